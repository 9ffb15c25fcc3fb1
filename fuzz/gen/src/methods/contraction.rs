//! Draws sums of products over labels, and attention.

use gradiff_corpus::{
    Arg, BinaryOp, DType, Distribution, Fill, Method, ReduceOp, Shape, Statement, TensorType,
    ValueId, promote,
};

use super::floats::{is_exact, is_near, smooth, unknown};
use crate::elementwise::reduced_dtype;
use crate::fact::{self, Fact, Policy, power};
use crate::programs::Builder;
use crate::{shapes, transfer};

/// Maximum number of products for each element of the limit of a value.
const PRODUCTS: usize = 4;
/// Number of labels.
const LABELS: u32 = 26;
/// Maximum number of elements of a mask that are drawn one by one.
const MAX_BITS: usize = 64;
/// Maximum number of axes of a source whose axes get labels.
const MAX_RANK: usize = 8;

/// The labels of the axes of sources, with their sizes.
#[derive(Default)]
struct Labels {
    known: Vec<(i64, usize)>,
    /// Those of all sources, one after the other.
    of_axes: Vec<i64>,
}

impl Labels {
    /// The number of products, but for axes of size 0, without which they must not be too many.
    fn count(&self) -> usize {
        self.known.iter().map(|(_, size)| (*size).max(1)).product()
    }

    fn size(&self, label: i64) -> usize {
        let found = self.known.iter().find(|(known, _)| *known == label);
        found.expect("a label of an axis is known").1
    }

    fn uses(&self, label: i64) -> usize {
        self.of_axes.iter().filter(|known| **known == label).count()
    }
}

impl Builder<'_> {
    /// Adds a sum of products of one to three values, of which the first exists.
    pub(super) fn draw_einsum(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let x = self.pick(|tensor, _| tensor.shape.len() <= MAX_RANK)?;
        let first = self.type_of(x).clone();
        let mut labels = Labels::default();
        self.label(&mut labels, &first.shape, 6);
        let (mut dtype, mut fact) = (first.dtype, self.fact(x));
        let (mut srcs, mut facts) = (vec![x], vec![(self.fact(x), first.dtype)]);
        let mut added: Vec<(Statement, Fact)> = Vec::new();
        let least = u32::from(first.dtype == DType::Bool);
        for _ in 0..least + self.choices.below(3 - least) {
            let partner = self.pick(|tensor, _| tensor.shape.len() <= 3);
            if let Some(partner) = partner.filter(|_| self.choices.one_in(3)) {
                let tensor = self.type_of(partner).clone();
                self.label(&mut labels, &tensor.shape, 2);
                facts.push((self.fact(partner), tensor.dtype));
                srcs.push(partner);
                dtype = promote(dtype, tensor.dtype);
                continue;
            }
            let shape = self.shape_of_labels(&mut labels);
            let kind = self.factor_dtype_for(dtype)?;
            if !self.has_room(added.len() + 2) || self.limit < shapes::count(&shape) {
                return None;
            }
            let (statement, fact) = self.fresh(kind, shape);
            facts.push((fact, kind));
            // The number that the statement will have.
            srcs.push(ValueId((self.types.len() + added.len()) as u32));
            added.push((statement, fact));
            dtype = promote(dtype, kind);
        }
        if dtype == DType::Bool || PRODUCTS * self.limit < labels.count() {
            return None;
        }
        let output = self.labels_of_result(&labels)?;
        let terms: Vec<usize> = labels
            .known
            .iter()
            .filter(|(label, _)| !output.contains(label))
            .map(|(_, size)| *size)
            .collect();
        let mut product: Option<Fact> = None;
        for (factor, from) in facts {
            let factor = fact::cast(&factor, from, dtype, policy)?;
            product = Some(match product {
                Some(product) => transfer::binary(BinaryOp::Mul, &product, &factor, dtype, policy)?,
                None => factor,
            });
        }
        fact = product.unwrap_or(fact);
        if !terms.is_empty() {
            let to = reduced_dtype(ReduceOp::Sum, dtype);
            let count = shapes::count(&terms);
            let sum = transfer::reduce(ReduceOp::Sum, &fact, count, dtype, to, policy)?;
            fact = fact::cast(&sum, to, dtype, policy)?;
        }
        for (statement, fact) in added {
            self.push(statement, fact);
        }
        let args = vec![Arg::Ints(labels.of_axes), Arg::Ints(output)];
        Some(self.push_method(Method::Einsum, srcs, args, fact))
    }

    /// Draws labels for the axes of a source: known ones of their sizes once in `odds`, else new
    /// ones.
    fn label(&mut self, labels: &mut Labels, shape: &[usize], odds: u32) {
        for size in shape {
            let same = labels.known.iter().filter(|(_, known)| known == size);
            let same: Vec<i64> = same.map(|(label, _)| *label).collect();
            let label = match !same.is_empty() && self.choices.one_in(odds) {
                true => self.choices.pick(&same),
                false => self.new_label(labels, *size),
            };
            labels.of_axes.push(label);
        }
    }

    fn new_label(&mut self, labels: &mut Labels, size: usize) -> i64 {
        let drawn = self.choices.below(LABELS);
        let is_free = |label: &i64| labels.known.iter().all(|(known, _)| known != label);
        let free = (0..LABELS).map(|step| i64::from((drawn + step) % LABELS)).find(is_free);
        let label = free.expect("sources have fewer axes than there are labels");
        labels.known.push((label, size));
        label
    }

    /// Draws the shape of a new source whose axes have mostly known labels, and adds these.
    fn shape_of_labels(&mut self, labels: &mut Labels) -> Shape {
        let rank = self.choices.pick(&[2, 1, 2, 3, 2, 0]).min(self.max_rank);
        let mut shape = Shape::new();
        for _ in 0..rank {
            let known: Vec<i64> = labels.known.iter().map(|(label, _)| *label).collect();
            let label = match !known.is_empty() && !self.choices.one_in(3) {
                true => self.choices.pick(&known),
                false => {
                    let size = self.palette.size(self.choices);
                    let fits = labels.count() * size <= PRODUCTS * self.limit;
                    self.new_label(labels, if fits { size } else { 1 })
                }
            };
            shape.push(labels.size(label));
            labels.of_axes.push(label);
        }
        shape
    }

    /// Draws the labels of the result: mostly those that one axis has, in any order.
    fn labels_of_result(&mut self, labels: &Labels) -> Option<Vec<i64>> {
        let mut kept = Vec::new();
        for (label, _) in &labels.known {
            let odds = if labels.uses(*label) == 1 { 4 } else { 2 };
            if !self.choices.one_in(odds) {
                kept.push(*label);
            }
        }
        let order = shapes::permutation(self.choices, kept.len());
        let output: Vec<i64> = order.into_iter().map(|at| kept[at]).collect();
        let sizes: Vec<usize> = output.iter().map(|label| labels.size(*label)).collect();
        let fits = output.len() <= self.max_rank && shapes::count(&sizes) <= self.limit;
        fits.then_some(output)
    }

    /// Adds the attention of a value, or of new data, to new keys and values.
    pub(super) fn draw_attention(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        if !policy.inexact || !self.has_room(4) || self.max_rank < 2 {
            return None;
        }
        let found = self.pick(|tensor, fact| may_attend(tensor, fact, policy));
        let x = match found {
            Some(found) => found,
            None => self.new_queries()?,
        };
        let query = self.type_of(x).clone();
        let (outer, &[rows, depth]) = query.shape.split_last_chunk::<2>()?;
        let (keys, width) = (self.palette.size(self.choices), self.palette.size(self.choices));
        let [key_outer, value_outer] = [0, 1].map(|_| match self.choices.below(3) {
            0 => Shape::new(),
            1 => outer.to_vec(),
            _ => outer.iter().map(|_| 1).collect(),
        });
        let key = [&key_outer[..], &[keys, depth]].concat();
        let value = [&value_outer[..], &[keys, width]].concat();
        let whole = outer.iter().map(|size| (*size).max(1)).product::<usize>() * rows;
        let sizes = [&key, &value].map(|shape| shapes::count(shape));
        let is_large = sizes.iter().any(|count| self.limit < *count)
            || self.limit < whole * width.max(keys)
            || PRODUCTS * self.limit < whole * keys * depth.max(width);
        if is_large {
            return None;
        }
        let mut dtypes = [query.dtype; 2];
        for slot in &mut dtypes {
            let drawn = self.dtype();
            if drawn.is_float() && self.choices.one_in(4) {
                *slot = drawn;
            }
        }
        let is_causal = self.choices.one_in(2);
        let mut facts = [self.fact(x); 3];
        let mut srcs = vec![x];
        for (number, shape) in [key, value].into_iter().enumerate() {
            let (statement, fact) = self.seeded_floats(dtypes[number], shape);
            facts[number + 1] = fact;
            srcs.push(self.push(statement, fact));
        }
        let mask = match self.choices.below(3) {
            0 => None,
            1 => Some(DType::Bool),
            _ => Some(self.choices.pick(&[query.dtype, dtypes[0], DType::F32])),
        };
        let mask = mask.filter(|mask| self.config.dtypes.contains(mask));
        let mut added = Fact::exact(0.0, 0.0, 0);
        if let Some(dtype) = mask {
            let shape = match self.choices.below(4) {
                0 => vec![keys],
                1 => vec![rows, 1],
                2 => [outer, &[rows, keys]].concat(),
                _ => vec![rows, keys],
            };
            let (statement, fact) = match dtype {
                DType::Bool => self.mask_of_bool(shape),
                _ => self.seeded_floats(dtype, shape),
            };
            added = fact;
            srcs.push(self.push(statement, fact));
        }
        let dtype = dtypes.into_iter().fold(query.dtype, promote);
        let fact = match mask {
            Some(DType::Bool) => unknown(dtype),
            _ => fact_of_attention(facts, added.magnitude(), depth, dtype, policy),
        };
        let args = vec![Arg::Flag(is_causal)];
        Some(self.push_method(Method::ScaledDotProductAttention, srcs, args, fact))
    }

    /// Adds the attention of a value to itself.
    pub(crate) fn self_attention(&mut self) -> Option<ValueId> {
        let policy = self.policy;
        let x = self.pick(|tensor, fact| policy.inexact && may_attend(tensor, fact, policy))?;
        let TensorType { dtype, shape } = self.type_of(x).clone();
        let (_, &[rows, depth]) = shape.split_last_chunk::<2>()?;
        if PRODUCTS * self.limit < shapes::count(&shape) * rows {
            return None;
        }
        let fact = fact_of_attention([self.fact(x); 3], 0.0, depth, dtype, policy);
        let args = vec![Arg::Flag(self.choices.one_in(2))];
        Some(self.push_method(Method::ScaledDotProductAttention, vec![x; 3], args, fact))
    }

    /// Adds queries, of two axes or three.
    fn new_queries(&mut self) -> Option<ValueId> {
        let dtype = match self.dtype() {
            dtype if dtype.is_float() => dtype,
            _ => DType::F32,
        };
        let mut shape =
            vec![1 + self.choices.below(4) as usize, 1 + self.choices.below(5) as usize];
        if self.max_rank > 2 && self.choices.one_in(3) {
            shape.insert(0, 1 + self.choices.below(2) as usize);
        }
        let is_allowed = self.config.dtypes.contains(&dtype) && self.has_room(5);
        if !is_allowed || self.limit < shapes::count(&shape) {
            return None;
        }
        let (statement, fact) = self.seeded_floats(dtype, shape);
        Some(self.push(statement, fact))
    }

    /// Draws floats from -1 to 1, or multiples of 1/8 up to 4.
    fn seeded_floats(&mut self, dtype: DType, shape: Shape) -> (Statement, Fact) {
        let distribution = self.choices.pick(&[Distribution::Unit, Distribution::Dyadic]);
        self.seeded(dtype, shape, distribution)
    }

    /// Draws a mask; a small one is mostly true, so that few queries see nothing.
    fn mask_of_bool(&mut self, shape: Shape) -> (Statement, Fact) {
        let count = shapes::count(&shape);
        if MAX_BITS < count {
            return self.seeded(DType::Bool, shape, Distribution::Small);
        }
        let bits = (0..count).map(|_| u64::from(!self.choices.one_in(4))).collect();
        (Statement::Input { dtype: DType::Bool, shape, fill: Fill::Explicit(bits) }, Fact::BOOL)
    }
}

/// Returns whether a value may be the queries of an attention.
fn may_attend(tensor: &TensorType, fact: &Fact, policy: Policy) -> bool {
    tensor.dtype.is_float()
        && 2 <= tensor.shape.len()
        && tensor.shape.last() != Some(&0)
        && (is_exact(fact, policy) || is_near(fact, policy))
}

/// Fact of the attention of queries of `depth` elements to keys and values, if numbers up to
/// `added` are added to the scores.
fn fact_of_attention(
    [query, key, value]: [Fact; 3],
    added: f64,
    depth: usize,
    dtype: DType,
    policy: Policy,
) -> Fact {
    if query.special || key.special || value.special {
        return unknown(dtype);
    }
    // The error of a score changes each share by twice as much of it.
    let size = depth as f64 * query.magnitude() * key.magnitude() + added;
    let score = depth as f64 * (query.err * key.magnitude() + key.err * query.magnitude())
        + size * depth as f64 * power(-24);
    let err = value.err + 4.0 * score * value.magnitude();
    let range = (value.lo.min(0.0), value.hi.max(0.0));
    smooth(&Fact { err, ..value }, dtype, range, 1.0, policy)
}
