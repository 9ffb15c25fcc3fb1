//! Draws statements that move elements: movement operations, concatenation, gather.

use gradiff_corpus::{DType, Distribution, Literal, Statement, TensorType, ValueId};

use crate::fact::{self, Fact};
use crate::programs::Builder;
use crate::sources::Need;
use crate::{Lane, Op, shapes};

/// Numbers of sources of a concatenation after the first.
const PARTS: [usize; 8] = [1, 2, 1, 3, 2, 1, 1, 0];

impl Builder<'_> {
    /// Adds one of the six movement operations.
    pub(crate) fn movement(&mut self, op: Op) -> Option<ValueId> {
        let min_rank = usize::from(op != Op::Reshape);
        let src = self.pick(|tensor, _| {
            min_rank <= tensor.shape.len() && (op != Op::Expand || tensor.shape.contains(&1))
        })?;
        let TensorType { dtype, shape } = self.type_of(src).clone();
        let (rank, limit) = (self.max_rank, self.limit);
        let mut fact = self.fact(src);
        let statement = match op {
            Op::Reshape => {
                Statement::Reshape { src, shape: shapes::reshape(self.choices, &shape, rank) }
            }
            Op::Permute => {
                Statement::Permute { src, axes: shapes::permutation(self.choices, shape.len()) }
            }
            Op::Expand => {
                Statement::Expand { src, shape: shapes::expansion(self.choices, &shape, 6, limit) }
            }
            Op::Pad => {
                let pads = shapes::pads(self.choices, &shape, 3, limit);
                let value = self.pad_value(dtype);
                let added = Fact { raw: true, ..fact::of_literal(dtype, &value) };
                fact = fact.join(&added);
                Statement::Pad { src, pads, value }
            }
            Op::Shrink => {
                let allows_empty = self.choices.one_in(64);
                let ranges = shapes::ranges(self.choices, &shape, allows_empty);
                Statement::Shrink { src, ranges }
            }
            _ => Statement::Flip { src, axes: shapes::axes(self.choices, shape.len()) },
        };
        Some(self.push(statement, fact))
    }

    /// Draws the value of a pad, mostly zero.
    fn pad_value(&mut self, dtype: DType) -> Literal {
        if self.choices.one_in(3) {
            return self.literal(dtype, Need::Any);
        }
        match dtype {
            DType::Bool => Literal::Bool(false),
            _ if dtype.is_float() => Literal::Float(0.0),
            _ => Literal::Int(0),
        }
    }

    pub(crate) fn cat(&mut self) -> Option<ValueId> {
        let first = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let TensorType { dtype, shape } = self.type_of(first).clone();
        let axis = self.choices.below(shape.len() as u32) as usize;
        let slice_count = shapes::slice_count(&shape, axis);
        let mut spare_elements = self.limit.saturating_sub(shapes::count(&shape));
        let mut fact = self.fact(first);
        let mut srcs = vec![first];
        for _ in 0..self.choices.pick(&PARTS) {
            let spare = spare_elements / slice_count.max(1);
            let next = match self.choices.below(4) {
                0 if shape[axis] <= spare => Some(first),
                1 if self.has_room(2) && spare > 0 => {
                    let mut part = shape.clone();
                    part[axis] = self.palette.size(self.choices).min(spare);
                    let (statement, fact) = self.fresh(dtype, part);
                    Some(self.push(statement, fact))
                }
                _ => self.pick(|tensor, _| {
                    let fits = tensor.dtype == dtype && tensor.shape.len() == shape.len();
                    fits && (0..shape.len()).all(|i| match i == axis {
                        true => tensor.shape[i] <= spare,
                        false => tensor.shape[i] == shape[i],
                    })
                }),
            };
            let Some(next) = next else { continue };
            spare_elements -= self.type_of(next).count().min(spare_elements);
            fact = fact.join(&self.fact(next));
            srcs.push(next);
        }
        if self.choices.one_in(2) {
            srcs.reverse();
        }
        Some(self.push(Statement::Cat { srcs, axis }, fact))
    }

    pub(crate) fn gather(&mut self) -> Option<ValueId> {
        let src = self.pick(|tensor, _| !tensor.shape.is_empty())?;
        let shape = self.type_of(src).shape.clone();
        let axis = self.choices.below(shape.len() as u32) as usize;
        let index = self.index(&shape, axis)?;
        let index_fact = self.fact(index);
        let mut fact = self.fact(src);
        let is_in_range = index_fact.lo >= 0.0 && index_fact.hi < shape[axis] as f64;
        if !is_in_range {
            fact = fact.join(&Fact { raw: true, ..Fact::exact(0.0, 0.0, 0) });
        }
        Some(self.push(Statement::Gather { src, axis, index }, fact))
    }

    /// Draws the index of a gather along `axis`: mostly an existing value if one fits, else new
    /// data, most of them in range.
    pub(crate) fn index(&mut self, shape: &[usize], axis: usize) -> Option<ValueId> {
        let found = self.pick(|tensor, fact| {
            let rank = tensor.shape.len();
            let fits = tensor.dtype.is_int() && rank == shape.len() && fact.err == 0.0;
            fits && (0..shape.len()).all(|i| i == axis || tensor.shape[i] == shape[i])
        });
        let is_existing = self.choices.below(4) < 3;
        if let Some(found) = found.filter(|_| is_existing) {
            return Some(found);
        }
        if !self.has_room(2) {
            return None;
        }
        let dtype = match self.dtype() {
            dtype if dtype.is_int() => dtype,
            _ => self.int_dtype()?,
        };
        let slice_count = shapes::slice_count(shape, axis);
        let max_size = (self.limit / slice_count.max(1)).max(1);
        let mut index_shape = shape.to_vec();
        index_shape[axis] = self.palette.size(self.choices).min(max_size);
        let (statement, fact) = if self.lane == Lane::NegativeIndex {
            self.fresh(dtype, index_shape)
        } else if self.choices.below(2) == 0 {
            self.listed_index(dtype, index_shape, shape[axis])
        } else {
            self.seeded(dtype, index_shape, Distribution::Small)
        };
        Some(self.push(statement, fact))
    }

    /// Draws an integer dtype of the configuration.
    pub(crate) fn int_dtype(&mut self) -> Option<DType> {
        let ints = self.config.dtypes.iter().filter(|dtype| dtype.is_int()).count();
        if ints == 0 {
            return None;
        }
        let nth = self.choices.below(ints as u32) as usize;
        self.config.dtypes.iter().filter(|dtype| dtype.is_int()).nth(nth).copied()
    }

    /// Draws a list of indices in `0..size`, sometimes also `size`. Long lists count up instead.
    pub(crate) fn listed_index(
        &mut self,
        dtype: DType,
        shape: Vec<usize>,
        size: usize,
    ) -> (Statement, Fact) {
        use gradiff_corpus::Fill;
        let count = shapes::count(&shape);
        if count > 12 || size > 100 {
            let fact = fact::of_iota(dtype, count);
            return (Statement::Input { dtype, shape, fill: Fill::Iota }, fact);
        }
        let allows_past_end = self.choices.one_in(4);
        let bound = size.max(1) as u32 + u32::from(allows_past_end);
        let bits: Vec<u64> = (0..count).map(|_| self.choices.below(bound) as u64).collect();
        let fact = Fact { raw: true, ..Fact::exact(0.0, bound as f64 - 1.0, 0) };
        (Statement::Input { dtype, shape, fill: Fill::Explicit(bits) }, fact)
    }
}
