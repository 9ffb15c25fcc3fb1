//! Elements as scalars: lowers the statements that a gradient differentiates, one scalar for each
//! element, which refers to the elements that it is computed from.

use std::rc::Rc;

use gradiff_corpus::{
    Args, BinaryOp, DType, Method, Operand, ReduceOp, Statement, UnaryOp, ValueId,
};

use super::forward::Scheme;
use super::labels::{Group, Labels};
use super::rule::{Rule, rule, scattered};
use super::scalars::{Function, Id, Scalars, WIDE};
use super::{decisions, forward};
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::evaluate::{evaluate_statement, get, literal_cell};
use crate::infer::Check;
use crate::methods::elementwise::literal;
use crate::methods::{self, Call};
use crate::movement;
use crate::value::Value;

/// The elements of a statement.
type Ids = Rc<Vec<Id>>;

/// The lowered statements of a program.
pub(super) struct Elements<'a> {
    pub(super) statements: &'a [Statement],
    pub(super) values: &'a [Option<Value>],
    pub(super) scheme: Scheme,
    pub(super) scalars: Scalars,
    /// Roundings of the gradients that the elements depend on.
    pub(super) inner_roundings: f64,
    /// The elements of the values that are known so far.
    known: Vec<Option<Ids>>,
}

/// The sources of an elementwise statement, broadcast.
pub(super) struct Broadcast {
    sources: Vec<Ids>,
}

impl Broadcast {
    pub(super) fn at(&self, position: usize) -> Vec<Id> {
        let element = |ids: &Ids| if ids.len() == 1 { ids[0] } else { ids[position] };
        self.sources.iter().map(element).collect()
    }
}

impl<'a> Elements<'a> {
    pub(super) fn new(
        statements: &'a [Statement],
        values: &'a [Option<Value>],
        scheme: Scheme,
    ) -> Elements<'a> {
        let known = vec![None; statements.len()];
        let scalars = Scalars::new();
        Elements { statements, values, scheme, scalars, inner_roundings: 0.0, known }
    }

    /// Lowers a statement whose sources are lowered, as far as they have derivatives. If
    /// `is_named`, no element is that of a source.
    pub(super) fn lower(&mut self, number: usize, is_named: bool) -> Check<()> {
        let id = ValueId(number as u32);
        let value = get(self.values, id)?.clone();
        if !value.dtype.is_float() {
            return Ok(());
        }
        let statements = self.statements;
        let Some(mut ids) = self.lowered(&statements[number], &value)? else { return Ok(()) };
        if is_named {
            let cells = wide_cells(&value, value.dtype);
            let copies = ids.iter().zip(cells);
            ids = copies.map(|(id, cell)| self.copy(cell, *id)).collect();
        }
        self.known[number] = Some(Rc::new(ids));
        Ok(())
    }

    /// Returns the elements of a value; those of a value that is not lowered depend on nothing.
    pub(super) fn ids(&mut self, id: ValueId) -> Check<Ids> {
        let index = id.0 as usize;
        if let Some(Some(ids)) = self.known.get(index) {
            return Ok(ids.clone());
        }
        let value = get(self.values, id)?;
        let ids = self.leaves(wide_cells(value, value.dtype));
        self.known[index] = Some(ids.clone());
        Ok(ids)
    }

    fn leaves(&mut self, cells: Vec<Cell>) -> Ids {
        Rc::new(cells.into_iter().map(|cell| self.scalars.leaf(cell)).collect())
    }

    /// Returns the elements of an operand in a float dtype.
    pub(super) fn operand(&mut self, operand: &Operand, dtype: DType) -> Check<Ids> {
        match operand {
            Operand::Literal(value) => {
                let cell = cast(dtype, WIDE, literal_cell(dtype, value)?);
                Ok(self.leaves(vec![cell]))
            }
            Operand::Value(id) => {
                let value = get(self.values, *id)?;
                // Promoting a float does not round it.
                match value.dtype.is_float() {
                    true => self.ids(*id),
                    false => Ok(self.leaves(wide_cells(value, dtype))),
                }
            }
        }
    }

    /// Broadcasts operands to a shape.
    pub(super) fn broadcast(
        &mut self,
        operands: &[Operand],
        dtype: DType,
        shape: &[usize],
    ) -> Check<Broadcast> {
        let mut sources = Vec::with_capacity(operands.len());
        for operand in operands {
            let ids = self.operand(operand, dtype)?;
            let spread = match operand {
                Operand::Value(id) if ids.len() != 1 => {
                    let positions =
                        movement::broadcast_positions(&get(self.values, *id)?.shape, shape);
                    Rc::new(positions.into_iter().map(|at| ids[at]).collect())
                }
                _ => ids,
            };
            sources.push(spread);
        }
        Ok(Broadcast { sources })
    }

    pub(super) fn copy(&mut self, cell: Cell, id: Id) -> Id {
        self.scalars.covered_terms(cell, &[(id, Id::ONE)])
    }

    /// An element that depends on others in an unknown way.
    fn unknown(&mut self, reason: Reason, sources: &[Id]) -> Id {
        let slope = self.scalars.unspecified(reason);
        let pairs: Vec<(Id, Id)> = sources.iter().map(|id| (*id, slope)).collect();
        self.scalars.covered_terms(Cell::Unspecified(reason), &pairs)
    }

    /// Returns the elements of a statement with a float value; `None` if they have no derivatives.
    fn lowered(&mut self, statement: &Statement, value: &Value) -> Check<Option<Vec<Id>>> {
        Ok(Some(match statement {
            Statement::Input { .. }
            | Statement::Const { .. }
            | Statement::Arange { .. }
            | Statement::Detach { .. } => return Ok(None),
            Statement::Bitcast { src, .. } => match get(self.values, *src)?.dtype == value.dtype {
                // The tensor itself.
                true => self.ids(*src)?.to_vec(),
                false => return Ok(None),
            },
            Statement::Cast { src, .. } => {
                let from = get(self.values, *src)?.dtype;
                if !from.is_float() {
                    return Ok(None);
                }
                let ids = self.ids(*src)?;
                if from == value.dtype {
                    return Ok(Some(ids.to_vec()));
                }
                let cells = wide_cells(value, value.dtype);
                ids.iter().zip(cells).map(|(id, cell)| self.copy(cell, *id)).collect()
            }
            Statement::Contiguous { src } | Statement::Realize { src } => self.ids(*src)?.to_vec(),
            Statement::Unary { op, src } => self.unary(*op, *src, value)?,
            Statement::Binary { op, srcs } => self.binary(*op, srcs, value)?,
            Statement::Where { srcs } => self.select(srcs, value)?,
            Statement::MulAcc { srcs } => {
                let operands = self.broadcast(srcs, value.dtype, &value.shape)?;
                let cells = wide_cells(value, value.dtype).into_iter().enumerate();
                let element = |(at, cell)| {
                    let ids = operands.at(at);
                    self.scalars.covered_terms(cell, &[(ids[0], ids[1]), (ids[2], Id::ONE)])
                };
                cells.map(element).collect()
            }
            Statement::Reduce { op, src, axes } => self.reduce(*op, *src, axes, value)?,
            Statement::Pad { src, pads, value: added } => {
                let ids = self.ids(*src)?;
                let added = cast(value.dtype, WIDE, literal_cell(value.dtype, added)?);
                let added = self.scalars.leaf(added);
                let (_, positions) = movement::pad(&get(self.values, *src)?.shape, pads)?;
                positions.iter().map(|at| at.map_or(added, |at| ids[at])).collect()
            }
            Statement::Reshape { .. }
            | Statement::Permute { .. }
            | Statement::Expand { .. }
            | Statement::Shrink { .. }
            | Statement::Flip { .. }
            | Statement::Cat { .. }
            | Statement::Gather { .. } => self.moved(statement)?,
            Statement::Method { method, srcs, args } => {
                return self.method(*method, srcs, Args(args), statement, value);
            }
            Statement::Gradient { of, wrt } => self.gradient(*of, *wrt, value)?,
        }))
    }

    fn unary(&mut self, op: UnaryOp, src: ValueId, value: &Value) -> Check<Vec<Id>> {
        let ids = self.ids(src)?;
        let cells = wide_cells(value, value.dtype);
        let call =
            |(id, cell): (&Id, Cell)| self.scalars.covered_call(cell, Function::Unary(op), &[*id]);
        Ok(ids.iter().zip(cells).map(call).collect())
    }

    fn binary(&mut self, op: BinaryOp, srcs: &[Operand], value: &Value) -> Check<Vec<Id>> {
        let operands = self.broadcast(srcs, value.dtype, &value.shape)?;
        let cells = wide_cells(value, value.dtype).into_iter().enumerate();
        let call =
            |(at, cell)| self.scalars.covered_call(cell, Function::Binary(op), &operands.at(at));
        Ok(cells.map(call).collect())
    }

    fn select(&mut self, srcs: &[Operand; 3], value: &Value) -> Check<Vec<Id>> {
        let branches = self.broadcast(&srcs[1..], value.dtype, &value.shape)?;
        let conditions = match &srcs[0] {
            Operand::Literal(literal) => {
                vec![literal_cell(DType::Bool, literal)?; value.cells.len()]
            }
            Operand::Value(id) => {
                let condition = get(self.values, *id)?;
                let positions = movement::broadcast_positions(&condition.shape, &value.shape);
                positions.into_iter().map(|at| condition.cells[at]).collect()
            }
        };
        let branches = (0..value.cells.len()).map(|at| branches.at(at));
        Ok(conditions
            .into_iter()
            .zip(branches)
            .map(|(condition, branches)| match condition {
                Cell::Int(0) => branches[1],
                Cell::Unspecified(reason) if branches[0] != branches[1] => {
                    self.unknown(reason, &branches)
                }
                _ => branches[0],
            })
            .collect())
    }

    fn reduce(
        &mut self,
        op: ReduceOp,
        src: ValueId,
        axes: &[usize],
        value: &Value,
    ) -> Check<Vec<Id>> {
        let ids = self.ids(src)?;
        let (_, targets) = movement::reduce(&get(self.values, src)?.shape, axes)?;
        let mut groups: Vec<Vec<Id>> = vec![Vec::new(); value.cells.len()];
        for (id, target) in ids.iter().zip(targets) {
            groups[target].push(*id);
        }
        let cells = wide_cells(value, value.dtype);
        let element = |(group, cell): (&Vec<Id>, Cell)| match op {
            ReduceOp::Sum => self.sum(cell, group),
            ReduceOp::Prod => self.product(cell, group),
            ReduceOp::Max => self.extreme(cell, group, true),
        };
        Ok(groups.iter().zip(cells).map(element).collect())
    }

    pub(super) fn sum(&mut self, cell: Cell, group: &[Id]) -> Id {
        let pairs: Vec<(Id, Id)> = group.iter().map(|id| (*id, Id::ONE)).collect();
        self.scalars.covered_terms(cell, &pairs)
    }

    fn product(&mut self, cell: Cell, group: &[Id]) -> Id {
        match group {
            [] => self.scalars.leaf(cell),
            [id] => self.copy(cell, *id),
            [first, middle @ .., last] => {
                let part =
                    middle.iter().fold(*first, |part, id| self.scalars.terms(&[(part, *id)]));
                self.scalars.covered_terms(cell, &[(part, *last)])
            }
        }
    }

    fn extreme(&mut self, cell: Cell, group: &[Id], is_largest: bool) -> Id {
        let shares = decisions::shares(&self.scalars, group, is_largest);
        self.shared(cell, group, shares)
    }

    /// Adds the extreme of a group whose elements have these shares of the derivative.
    pub(super) fn shared(
        &mut self,
        cell: Cell,
        group: &[Id],
        shares: Vec<Result<f64, Reason>>,
    ) -> Id {
        let weight = |share: Result<f64, Reason>| match share {
            Ok(share) => self.scalars.exact(share),
            Err(reason) => self.scalars.unspecified(reason),
        };
        let weights: Vec<Id> = shares.into_iter().map(weight).collect();
        let pairs: Vec<(Id, Id)> = group.iter().copied().zip(weights).collect();
        self.scalars.covered_terms(cell, &pairs)
    }

    /// Returns the elements of a statement that moves those of its sources.
    fn moved(&mut self, statement: &Statement) -> Check<Vec<Id>> {
        let mut labels = Labels::new();
        let mut values = self.values.to_vec();
        for source in super::sources(statement) {
            let value = get(self.values, source)?;
            if value.dtype.is_float() {
                let ids = self.ids(source)?;
                values[source.0 as usize] = Some(labels.label(&value.shape, &ids));
            }
        }
        let moved = evaluate_statement(statement, self.scheme.sums, &values)?;
        let mut unknown = None;
        let element = |label: &Cell| {
            labels.element(*label).unwrap_or_else(|reason| {
                *unknown.get_or_insert_with(|| self.unknown(reason, labels.elements()))
            })
        };
        Ok(moved.cells.iter().map(element).collect())
    }

    fn method(
        &mut self,
        method: Method,
        srcs: &[ValueId],
        args: Args<'_>,
        statement: &Statement,
        value: &Value,
    ) -> Check<Option<Vec<Id>>> {
        Ok(Some(match rule(method) {
            Rule::Constant => return Ok(None),
            Rule::Movement => self.moved(statement)?,
            Rule::Selection => {
                let added = Operand::Literal(args.number(0));
                let [x, mask] = [srcs[0], srcs[1]].map(Operand::Value);
                self.select(&[mask, added, x], value)?
            }
            Rule::Function => self.function(method, srcs, args, value)?,
            Rule::Positions(positions) => self.positions(positions, srcs, args)?,
            Rule::Statistic => self.statistic(method, srcs[0], args, value)?,
            Rule::Loss => self.loss(method, srcs, args, value)?,
            Rule::Affine => self.affine(srcs, args, value)?,
            Rule::Contraction => self.contraction(srcs, args, value)?,
            Rule::Attention => self.attention(srcs, args, value)?,
            Rule::Interpolation if args.word(1) != "linear" => self.moved(statement)?,
            Rule::Interpolation => self.interpolation(srcs[0], args, value)?,
            Rule::Matrices => self.matrices(method, srcs[0], args, value)?,
            Rule::Running(running) => self.running(running, srcs[0], args, value)?,
            Rule::Sums
            | Rule::Means
            | Rule::Pairs
            | Rule::Products
            | Rule::Scattered
            | Rule::Extremes { .. } => self.grouped(method, srcs, args, value)?,
        }))
    }

    fn function(
        &mut self,
        method: Method,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let operands: Vec<Operand> = srcs.iter().map(|id| Operand::Value(*id)).collect();
        let operands = self.broadcast(&operands, value.dtype, &value.shape)?;
        let call = Call { srcs: &[value], args, sums: self.scheme.sums };
        let mut numbers = Vec::new();
        for number in 0..method.row().parameters.len() {
            let cell = literal(value.dtype, call, number)?;
            numbers.push(self.scalars.leaf(cast(value.dtype, WIDE, cell)));
        }
        let cells = wide_cells(value, value.dtype).into_iter().enumerate();
        let element = |(at, cell)| {
            let sources = [operands.at(at), numbers.clone()].concat();
            self.scalars.covered_call(cell, Function::Method(method), &sources)
        };
        Ok(cells.map(element).collect())
    }

    /// Returns the elements of the source, the lines of which are in the order that the method
    /// `positions` gives.
    fn positions(&mut self, positions: Method, srcs: &[ValueId], args: Args<'_>) -> Check<Vec<Id>> {
        let x = get(self.values, srcs[0])?;
        let ids = self.ids(srcs[0])?;
        let call = Call { srcs: &[x], args, sums: self.scheme.sums };
        let order = methods::evaluate(positions, call)?;
        let axis = args.int(if positions == Method::Argsort { 0 } else { 1 });
        let axis = crate::infer::resolve_axis(axis, x.shape.len())?;
        let mut found = Vec::with_capacity(order.cells.len());
        let mut cells = order.cells.iter();
        movement::for_each_index(&order.shape, |index| {
            let at = |number| ids[movement::gathered(&x.shape, index, axis, number)];
            found.push(match cells.next() {
                Some(Cell::Int(number)) => at(*number as usize),
                Some(Cell::Unspecified(reason)) => {
                    let line: Vec<Id> = (0..x.shape[axis]).map(at).collect();
                    self.unknown(*reason, &line)
                }
                cell => panic!("{cell:?} is no position"),
            });
        });
        Ok(found)
    }

    fn grouped(
        &mut self,
        method: Method,
        srcs: &[ValueId],
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let rule = match rule(method) {
            Rule::Scattered => scattered(args.word(1)),
            rule => rule,
        };
        let mut labels = Labels::new();
        let mut sources = Vec::with_capacity(srcs.len());
        for src in srcs {
            let source = get(self.values, *src)?;
            let is_data = source.dtype.is_float() || rule == Rule::Pairs;
            sources.push(if is_data {
                let ids = self.operand(&Operand::Value(*src), value.dtype)?;
                labels.label(&source.shape, &ids)
            } else {
                source.clone()
            });
        }
        let sources: Vec<&Value> = sources.iter().collect();
        let groups =
            labels.groups(method, Call { srcs: &sources, args, sums: self.scheme.sums })?;
        let cells = wide_cells(value, value.dtype);
        let mut unknown = None;
        // The gradient of an image is a transposed convolution, in which zeros may be multiplied by
        // all weights; what a transposed convolution cuts off has gradient 0, which may be
        // multiplied by all elements of both sources, also those that are in no sum.
        let is_number =
            |label: &Cell| labels.element(*label).is_ok_and(|id| self.scalars.check(id).is_ok());
        let are_numbers = |source: usize| sources[source].cells.iter().all(is_number);
        let lost: &[usize] = match method {
            Method::Conv2d if !are_numbers(1) => &[0],
            Method::ConvTranspose2d if !are_numbers(0) || !are_numbers(1) => &[0, 1],
            _ => &[],
        };
        let unused = lost.iter().flat_map(|source| labels.unused(&sources, *source, &groups));
        let unused: Vec<Id> = unused.collect();
        let infinity = self.scalars.constant(f64::INFINITY);
        let element = |(group, cell)| match group {
            Ok(Group { mut pairs, count }) => {
                let factor = |pair: &(Id, Id), source: usize| [pair.0, pair.1][source];
                let used = pairs.iter().flat_map(|pair| lost.iter().map(|n| factor(pair, *n)));
                let elements: Vec<Id> = used.chain(unused.iter().copied()).collect();
                pairs.extend(elements.into_iter().map(|id| (id, infinity)));
                self.element(rule, cell, &Group { pairs, count })
            }
            Err(reason) => *unknown.get_or_insert_with(|| self.unknown(reason, labels.elements())),
        };
        Ok(groups.into_iter().zip(cells).map(element).collect())
    }

    /// The element of a result that is made of a group.
    fn element(&mut self, rule: Rule, cell: Cell, group: &Group) -> Id {
        let alone: Vec<Id> = group.pairs.iter().map(|(id, _)| *id).collect();
        match rule {
            Rule::Extremes { is_largest } => self.extreme(cell, &alone, is_largest),
            Rule::Products => self.product(cell, &alone),
            Rule::Means => {
                let weight = self.scalars.constant(1.0 / group.count as f64);
                let pairs: Vec<(Id, Id)> = alone.iter().map(|id| (*id, weight)).collect();
                self.scalars.covered_terms(cell, &pairs)
            }
            _ => self.scalars.covered_terms(cell, &group.pairs),
        }
    }

    /// The elements of a gradient.
    fn gradient(&mut self, of: ValueId, wrt: ValueId, value: &Value) -> Check<Vec<Id>> {
        let (of, wrt) = (self.ids(of)?, self.ids(wrt)?);
        let found = forward::gradient(&mut self.scalars, &of, &wrt, self.scheme, true);
        self.inner_roundings += found.roundings;
        let sources = [&of[..], &wrt[..]].concat();
        let cells = wide_cells(value, value.dtype);
        let mut unknown = None;
        let element = |(direction, cell): (Result<forward::Direction, Reason>, Cell)| {
            let total = match cell {
                Cell::Unspecified(reason) => Err(reason),
                _ => direction.map(|direction| direction.total),
            };
            match total {
                Ok(Some(total)) => self.copy(cell, total),
                Ok(None) => Id::ZERO,
                Err(reason) => *unknown.get_or_insert_with(|| self.unknown(reason, &sources)),
            }
        };
        Ok(found.directions.into_iter().zip(cells).map(element).collect())
    }
}

/// Returns the elements of a value as f64, by way of the dtype that it is promoted to.
pub(super) fn wide_cells(value: &Value, dtype: DType) -> Vec<Cell> {
    let from = value.dtype;
    value.cells.iter().map(|cell| cast(dtype, WIDE, cast(from, dtype, *cell))).collect()
}
