//! Labels: integers that stand for the elements of sources. A definition that is applied to labels
//! tells which elements each element of its result is made of.

use std::cell::RefCell;
use std::collections::HashSet;

use gradiff_corpus::{DType, Method};

use super::scalars::Id;
use crate::cell::{Cell, Reason};
use crate::infer::Check;
use crate::methods::pooling::over_windows;
use crate::methods::{Call, indexing, pooling, products, reduction};
use crate::value::Value;

/// The labelled elements. Label 0 is a zero that the definition adds.
pub(super) struct Labels {
    elements: Vec<Id>,
}

/// The terms of an element of a result: pairs of factors, or of an element and `Id::ONE`. Zeros
/// that pad a window of pooling are left out, but may be among the `count` terms; those of a
/// convolution are factors, with which a gradient is multiplied.
#[derive(Clone)]
pub(super) struct Group {
    pub(super) pairs: Vec<(Id, Id)>,
    pub(super) count: usize,
}

impl Labels {
    pub(super) fn new() -> Labels {
        Labels { elements: vec![Id::ZERO] }
    }

    /// Returns a value of this shape whose elements are labels of `ids`.
    pub(super) fn label(&mut self, shape: &[usize], ids: &[Id]) -> Value {
        let first = self.elements.len() as u64;
        self.elements.extend(ids);
        let cells = (first..first + ids.len() as u64).map(Cell::Int).collect();
        Value::new(DType::I64, shape.to_vec(), cells)
    }

    /// Returns all labelled elements.
    pub(super) fn elements(&self) -> &[Id] {
        &self.elements[1..]
    }

    /// Returns the element of a label.
    pub(super) fn element(&self, label: Cell) -> Result<Id, Reason> {
        match label {
            Cell::Int(label) => Ok(self.elements[label as usize]),
            Cell::Unspecified(reason) => Err(reason),
            Cell::Real(_) | Cell::Inf { .. } | Cell::Nan(_) => panic!("{label:?} is no label"),
        }
    }

    /// Returns the element of a label that is data.
    fn known(&self, label: Cell) -> Id {
        self.element(label).expect("labels that are data are specified")
    }

    /// Returns the labelled elements of a source, by its number, that are in no group.
    pub(super) fn unused(
        &self,
        sources: &[&Value],
        number: usize,
        groups: &[Result<Group, Reason>],
    ) -> Vec<Id> {
        let pairs = groups.iter().flatten().flat_map(|group| &group.pairs);
        let used: HashSet<Id> = pairs.map(|(a, b)| [*a, *b][number]).collect();
        let elements = sources[number].cells.iter().map(|label| self.known(*label));
        elements.filter(|element| !used.contains(element)).collect()
    }

    /// Returns for each element of a method's result the group that it is made of. The data among
    /// the sources of `call` are labels.
    pub(super) fn groups(
        &self,
        method: Method,
        call: Call<'_>,
    ) -> Check<Vec<Result<Group, Reason>>> {
        let found = RefCell::new(Vec::new());
        let record = |pairs: &mut dyn Iterator<Item = (Id, Id)>, count: usize| {
            let pairs = pairs.collect();
            let mut groups = found.borrow_mut();
            groups.push(Group { pairs, count });
            Cell::Int(groups.len() as u64 - 1)
        };
        let alone = |cells: &[Cell]| {
            record(&mut cells.iter().map(|cell| (self.known(*cell), Id::ONE)), cells.len())
        };
        let paired = |_: DType, pairs: &[(Cell, Cell)]| {
            let known = |(a, b): &(Cell, Cell)| (self.known(*a), self.known(*b));
            record(&mut pairs.iter().map(known), pairs.len())
        };
        let cells = match method {
            Method::Min | Method::Mean => {
                let (axes, keepdim) = (call.args.ints(0), call.args.flag(1));
                let value =
                    reduction::over_axes(call.srcs[0], axes, keepdim, |group| Ok(alone(group)))?;
                value.cells.to_vec()
            }
            Method::MaxPool2d | Method::AvgPool2d => {
                let counts_padding = method == Method::AvgPool2d && call.args.flag(5);
                let value = over_windows(call, |parts| {
                    let elements = pooling::elements(parts);
                    let count = if counts_padding { parts.len() } else { elements.len() };
                    record(&mut elements.iter().map(|cell| (self.known(*cell), Id::ONE)), count)
                })?;
                value.cells.to_vec()
            }
            Method::ScatterAdd | Method::ScatterAmax => {
                let value =
                    indexing::scattered(call, |old, written| alone(&[&[old], written].concat()))?;
                value.cells.to_vec()
            }
            Method::ScatterReduce => {
                let value = indexing::scattered(call, |old, written| {
                    alone(&indexing::scattered_elements(call, old, written))
                })?;
                value.cells.to_vec()
            }
            Method::Matmul | Method::Dot => products::matmul_by(call, &paired)?.cells.to_vec(),
            Method::Conv2d => products::convolution_by(call, &paired)?.cells.to_vec(),
            Method::ConvTranspose2d => {
                let paired = |dtype, pairs: &[_], _: &[_]| paired(dtype, pairs);
                products::transposed_convolution_by(call, &paired)?.cells.to_vec()
            }
            _ => return Err(format!("{} has no groups", method.row().name)),
        };
        let groups = found.into_inner();
        let group = |cell: Cell| match cell {
            Cell::Int(number) => Ok(groups[number as usize].clone()),
            Cell::Unspecified(reason) => Err(reason),
            Cell::Real(_) | Cell::Inf { .. } | Cell::Nan(_) => panic!("{cell:?} is no number"),
        };
        Ok(cells.into_iter().map(group).collect())
    }
}
