//! Derivatives of statistics and of layers: formulas of the elements along axes.

use gradiff_corpus::{Args, DType, Method, Operand, UnaryOp, ValueId};

use super::decisions::{below, is_exactly};
use super::elements::{Elements, wide_cells};
use super::labels::Labels;
use super::scalars::{Function, Id, Scalars, WIDE};
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::evaluate::get;
use crate::infer::{Check, resolve_axes};
use crate::methods::Call;
use crate::methods::elementwise::wide;
use crate::methods::statistics::{Norm, degrees, groups, wide_number};
use crate::movement::broadcast_positions;
use crate::value::Value;

impl Elements<'_> {
    /// The elements of a statistic of a source along axes.
    pub(super) fn statistic(
        &mut self,
        method: Method,
        src: ValueId,
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let x = get(self.values, src)?;
        let mut axes = match method {
            Method::Softmax | Method::LogSoftmax | Method::Softmin => {
                resolve_axes(&[args.int(0)], x.shape.len())?
            }
            Method::Normalize => resolve_axes(&[args.int(1)], x.shape.len())?,
            _ => resolve_axes(args.ints(0), x.shape.len())?,
        };
        axes.sort_unstable();
        let groups = groups(x, &axes)?;
        let ids = self.ids(src)?;
        let cells = wide_cells(value, value.dtype);
        let mut found = vec![Id::ZERO; cells.len()];
        for (number, positions) in groups.into_iter().enumerate() {
            let group: Vec<Id> = positions.iter().map(|at| ids[*at]).collect();
            let scalars = &mut self.scalars;
            match method {
                Method::Var | Method::Std => {
                    let degrees = degrees(group.len(), args.int(2)) as f64;
                    found[number] = if degrees == 0.0 {
                        self.unknown_of(cells[number], Reason::Derivative, &group)
                    } else {
                        spread(scalars, method, cells[number], &group, degrees)
                    };
                }
                Method::LogSumExp => found[number] = log_of_powers(scalars, cells[number], &group),
                Method::LayerNorm => {
                    let dtype = wide(x.dtype);
                    let eps = wide_number(dtype, &args.number(1))?;
                    let eps = self.scalars.leaf(cast(dtype, WIDE, eps));
                    let (differences, squares) = squares(&mut self.scalars, &group);
                    let weight = self.scalars.constant(1.0 / group.len() as f64);
                    let sum = self.scalars.terms(&[(squares, weight), (eps, Id::ONE)]);
                    let root = self.scalars.call(Function::Unary(UnaryOp::Sqrt), &[sum]);
                    for (at, difference) in positions.into_iter().zip(differences) {
                        found[at] =
                            self.scalars.covered_call(cells[at], QUOTIENT, &[difference, root]);
                    }
                }
                Method::Normalize => {
                    let divisor = divisor(scalars, wide(x.dtype), args, &group)?;
                    for (at, element) in positions.into_iter().zip(&group) {
                        found[at] = match divisor {
                            Ok(by) => {
                                self.scalars.covered_call(cells[at], QUOTIENT, &[*element, by])
                            }
                            Err(reason) => self.unknown_of(cells[at], reason, &group),
                        };
                    }
                }
                _ => {
                    let sign = if method == Method::Softmin { Id::MINUS_ONE } else { Id::ONE };
                    let (distances, powers) = powers(scalars, &group, sign);
                    let sum = sum(scalars, &powers);
                    let log = match method {
                        Method::LogSoftmax => scalars.method(Method::Log, sum),
                        _ => Id::ZERO,
                    };
                    for (number, at) in positions.into_iter().enumerate() {
                        found[at] = match method {
                            Method::LogSoftmax => scalars.covered_terms(
                                cells[at],
                                &[(distances[number], Id::ONE), (log, Id::MINUS_ONE)],
                            ),
                            _ => scalars.covered_call(cells[at], QUOTIENT, &[powers[number], sum]),
                        };
                    }
                }
            }
        }
        Ok(found)
    }

    /// An element that depends on a group in an unknown way.
    pub(super) fn unknown_of(&mut self, cell: Cell, reason: Reason, group: &[Id]) -> Id {
        let slope = self.scalars.unspecified(reason);
        let pairs: Vec<(Id, Id)> = group.iter().map(|id| (*id, slope)).collect();
        self.scalars.covered_terms(cell, &pairs)
    }

    /// The elements of a product with a weight, plus a bias.
    pub(super) fn affine(
        &mut self,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let mut labels = Labels::new();
        let mut sources = Vec::with_capacity(2);
        for src in &srcs[..2] {
            let shape = &get(self.values, *src)?.shape;
            let ids = self.operand(&Operand::Value(*src), value.dtype)?;
            sources.push(labels.label(shape, &ids));
        }
        let (x, weight) = (&sources[0], &sources[1]);
        let product: Vec<Result<Vec<(Id, Id)>, Reason>> = match weight.shape.len() {
            1 => {
                let shape = crate::infer::broadcast(&x.shape, &weight.shape)?;
                let positions = broadcast_positions(&x.shape, &shape)
                    .into_iter()
                    .zip(broadcast_positions(&weight.shape, &shape));
                let pair = |(a, b): (usize, usize)| {
                    let (x, weight) =
                        (labels.element(x.cells[a])?, labels.element(weight.cells[b])?);
                    Ok(vec![(x, weight)])
                };
                positions.map(pair).collect()
            }
            _ => {
                let call = Call { srcs: &[x, weight], args, sums: self.scheme.sums };
                let groups = labels.groups(Method::Matmul, call)?;
                groups.into_iter().map(|group| group.map(|group| group.pairs)).collect()
            }
        };
        let (bias_shape, bias_ids) = match srcs.get(2) {
            Some(bias) => (
                get(self.values, *bias)?.shape.clone(),
                self.operand(&Operand::Value(*bias), value.dtype)?,
            ),
            None => (Vec::new(), vec![Id::ZERO].into()),
        };
        let shape = product_shape(x, weight)?;
        let products = broadcast_positions(&shape, &value.shape);
        let biases = broadcast_positions(&bias_shape, &value.shape);
        let cells = wide_cells(value, value.dtype).into_iter();
        let element = |(cell, (a, b)): (Cell, (usize, usize))| {
            let mut pairs = product[a].clone().expect("labels are specified");
            pairs.push((bias_ids[b], Id::ONE));
            self.scalars.covered_terms(cell, &pairs)
        };
        Ok(cells.zip(products.into_iter().zip(biases)).map(element).collect())
    }
}

/// The shape of the product of x and a weight.
fn product_shape(x: &Value, weight: &Value) -> Check<Vec<usize>> {
    let rank = weight.shape.len();
    if rank == 1 {
        return crate::infer::broadcast(&x.shape, &weight.shape);
    }
    let outer = |shape: &[usize]| shape[..shape.len().saturating_sub(2)].to_vec();
    let mut shape = crate::infer::broadcast(&outer(&x.shape), &outer(&weight.shape))?;
    if x.shape.len() > 1 {
        shape.push(x.shape[x.shape.len() - 2]);
    }
    shape.push(weight.shape[rank - 1]);
    Ok(shape)
}

pub(super) const QUOTIENT: Function = Function::Binary(gradiff_corpus::BinaryOp::Div);

pub(super) fn sum(s: &mut Scalars, group: &[Id]) -> Id {
    let pairs: Vec<(Id, Id)> = group.iter().map(|id| (*id, Id::ONE)).collect();
    s.terms(&pairs)
}

/// The differences from the mean, and the sum of their squares.
fn squares(s: &mut Scalars, group: &[Id]) -> (Vec<Id>, Id) {
    let weight = s.constant(1.0 / group.len() as f64);
    let pairs: Vec<(Id, Id)> = group.iter().map(|id| (*id, weight)).collect();
    let mean = s.terms(&pairs);
    let differences: Vec<Id> = group.iter().map(|id| s.sub(*id, mean)).collect();
    let pairs: Vec<(Id, Id)> = differences.iter().map(|id| (*id, *id)).collect();
    let squares = s.terms(&pairs);
    (differences, squares)
}

/// The norm of a group, or the limit that it does not exceed; an error if either may be larger.
fn divisor(
    s: &mut Scalars,
    dtype: DType,
    args: Args<'_>,
    group: &[Id],
) -> Check<Result<Id, Reason>> {
    let Norm { power, exponent, root } = Norm::new(dtype, &args.number(0))?;
    let mut leaf = |cell| s.leaf(cast(dtype, WIDE, cell));
    let [exponent, root, limit] =
        [exponent, root, wide_number(dtype, &args.number(2))?].map(&mut leaf);
    let pow = Function::Binary(gradiff_corpus::BinaryOp::Pow);
    let mut pair = |id: &Id| match power {
        1.0 => (s.method(Method::Abs, *id), Id::ONE),
        2.0 => (*id, *id),
        _ => {
            let size = s.method(Method::Abs, *id);
            (s.call(pow, &[size, exponent]), Id::ONE)
        }
    };
    let pairs: Vec<(Id, Id)> = group.iter().map(&mut pair).collect();
    let sum = s.terms(&pairs);
    if is_exactly(s.cell(sum), 0.0) {
        return Ok(Ok(limit));
    }
    let norm = match power {
        1.0 => sum,
        2.0 => s.call(Function::Unary(UnaryOp::Sqrt), &[sum]),
        _ => s.call(pow, &[sum, root]),
    };
    let of = |is_above: bool, is_below: bool| match (is_above, is_below) {
        (true, _) => Ok(norm),
        (_, true) => Ok(limit),
        _ => Err(Reason::Derivative),
    };
    Ok(below(s, limit, norm).and_then(|above| of(above, below(s, norm, limit)?)))
}

/// A variance, or its square root.
fn spread(s: &mut Scalars, method: Method, cell: Cell, group: &[Id], degrees: f64) -> Id {
    let (_, squares) = squares(s, group);
    let weight = s.constant(1.0 / degrees);
    match method {
        Method::Var => s.covered_terms(cell, &[(squares, weight)]),
        _ => {
            let variance = s.mul(squares, weight);
            s.covered_call(cell, Function::Unary(UnaryOp::Sqrt), &[variance])
        }
    }
}

/// The differences of the elements, times a sign, from the largest; and their powers. A power of
/// -inf is 0 and depends on nothing, unless the largest element is not finite: then no power has a
/// derivative.
pub(super) fn powers(s: &mut Scalars, group: &[Id], sign: Id) -> (Vec<Id>, Vec<Id>) {
    let is_turned = sign == Id::MINUS_ONE;
    let center = |id: &Id| match s.cell(*id) {
        Cell::Real(real) if is_turned => -real.hi,
        Cell::Real(real) => real.hi,
        _ => f64::NEG_INFINITY,
    };
    let largest = group.iter().map(center).fold(f64::NEG_INFINITY, f64::max);
    let largest = s.exact(if largest.is_finite() { largest } else { 0.0 });
    let distances: Vec<Id> =
        group.iter().map(|id| s.terms(&[(*id, sign), (largest, Id::MINUS_ONE)])).collect();
    let is_nothing = |cell| match cell {
        Cell::Inf { negative, overflowed: false } => negative != is_turned,
        _ => false,
    };
    let is_real = |cell| matches!(cell, Cell::Real(_));
    let has_derivatives = group.iter().any(|id| is_real(s.cell(*id)))
        && group.iter().all(|id| is_real(s.cell(*id)) || is_nothing(s.cell(*id)));
    let power = |(id, distance): (&Id, &Id)| match has_derivatives {
        true if is_nothing(s.cell(*id)) => Id::ZERO,
        true => s.method(Method::Exp, *distance),
        false => {
            let slope = s.unspecified(Reason::Derivative);
            s.covered_terms(Cell::Unspecified(Reason::Derivative), &[(*id, slope)])
        }
    };
    let powers = group.iter().zip(&distances).map(power).collect();
    (distances, powers)
}

/// The logarithm of the sum of powers of e.
pub(super) fn log_of_powers(s: &mut Scalars, cell: Cell, group: &[Id]) -> Id {
    let (_, powers) = powers(s, group, Id::ONE);
    let sum = sum(s, &powers);
    let log = s.method(Method::Log, sum);
    s.covered_terms(cell, &[(log, Id::ONE)])
}
