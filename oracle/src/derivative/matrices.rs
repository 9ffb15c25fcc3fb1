//! Derivatives of functions of matrices: the steps of their definitions, over scalars.

use gradiff_corpus::{Args, DType, Method, UnaryOp, ValueId};

use super::elements::{Elements, wide_cells};
use super::scalars::{Function, Id, Scalars, WIDE};
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::evaluate::get;
use crate::infer::Check;
use crate::methods::Call;
use crate::methods::elementwise::wide;
use crate::methods::matrices::{Matrix, Polynomial, Steps, factorized};
use crate::methods::singular::Singular;
use crate::value::Value;

impl Steps for Scalars {
    type Number = Id;

    fn cell(&self, x: Id) -> Cell {
        Scalars::cell(self, x)
    }

    fn leaf(&mut self, cell: Cell) -> Id {
        match cell {
            Cell::Real(real) if real.is_exact() => self.exact(real.hi),
            cell => Scalars::leaf(self, cell),
        }
    }

    fn unknown(&mut self, cell: Cell, sources: &[Id]) -> Id {
        let slope = self.unspecified(match cell {
            Cell::Unspecified(reason) => reason,
            _ => Reason::Derivative,
        });
        let pairs: Vec<(Id, Id)> = sources.iter().map(|id| (*id, slope)).collect();
        self.covered_terms(cell, &pairs)
    }

    fn terms(&mut self, pairs: &[(Id, Id)]) -> Id {
        Scalars::terms(self, pairs)
    }

    fn div(&mut self, x: Id, y: Id) -> Id {
        Scalars::div(self, x, y)
    }

    fn sqrt(&mut self, x: Id) -> Id {
        self.call(Function::Unary(UnaryOp::Sqrt), &[x])
    }
}

/// The singular values of a matrix, as far as their derivatives are known.
fn singular_values(scalars: &mut Scalars, matrix: &Matrix<Id>, dtype: DType) -> Vec<Id> {
    let elements: Vec<Cell> = matrix.elements.iter().map(|id| scalars.cell(*id)).collect();
    let (rows, columns) = (matrix.rows, matrix.columns);
    let singular = Singular::of(&Matrix { rows, columns, elements });
    let mut found = Vec::new();
    for number in 0..rows.min(columns) {
        found.push(match &singular {
            Err(cell) => scalars.unknown(*cell, &matrix.elements),
            Ok(singular) => {
                let slopes = singular.slopes(number, dtype).into_iter();
                let ids = matrix.elements.iter().copied();
                let pairs: Vec<(Id, Id)> =
                    ids.zip(slopes).map(|(id, slope)| (id, scalars.leaf(slope))).collect();
                scalars.covered_terms(Cell::exact(singular.values[number]), &pairs)
            }
        });
    }
    found
}

impl Elements<'_> {
    /// The elements of a function of the matrices of a source.
    pub(super) fn matrices(
        &mut self,
        method: Method,
        src: ValueId,
        args: Args<'_>,
        value: &Value,
    ) -> Check<Vec<Id>> {
        let x = get(self.values, src)?;
        let ids = self.ids(src)?;
        let [outer @ .., rows, columns] = &x.shape[..] else {
            return Err(format!("{:?} has fewer than two axes", x.shape));
        };
        let call = Call { srcs: &[x], args, sums: self.scheme.sums };
        let dtype = wide(x.dtype);
        let scalars = &mut self.scalars;
        let mut found = Vec::with_capacity(value.cells.len());
        for number in 0..outer.iter().product() {
            let elements = ids[number * rows * columns..][..rows * columns].to_vec();
            let matrix = Matrix { rows: *rows, columns: *columns, elements };
            found.extend(match method {
                Method::NewtonSchulz => {
                    let number = |cell| Steps::leaf(scalars, cast(dtype, WIDE, cell));
                    let polynomial = Polynomial::of(call, dtype, number)?;
                    polynomial.orthogonalized(scalars, matrix).elements
                }
                Method::QrQ => factorized(scalars, matrix).0.elements,
                Method::SvdS => singular_values(scalars, &matrix, dtype),
                Method::SvdProduct => {
                    let sources = matrix.elements.clone();
                    let known = |id: &Id| Steps::cell(scalars, *id);
                    let cells: Vec<Cell> = sources.iter().map(known).collect();
                    cells.into_iter().map(|cell| scalars.unknown(cell, &sources)).collect()
                }
                // The vectors are constants.
                Method::SvdU | Method::SvdVt => {
                    let count = value.cells.len() / outer.iter().product::<usize>();
                    vec![Id::ZERO; count]
                }
                _ => factorized(scalars, matrix).1.elements,
            });
        }
        let cells = wide_cells(value, value.dtype);
        Ok(found.into_iter().zip(cells).map(|(id, cell)| self.copy(cell, id)).collect())
    }
}
