//! Sums of products over the labels of axes, and attention: for each element of the result, which
//! elements are its factors.

use gradiff_corpus::{DType, ReduceOp, Shape};

use super::Call;
use super::elementwise::{require, wide};
use super::exponentials::shares;
use super::products::product;
use crate::arithmetic::{add, mul};
use crate::cast::cast;
use crate::cell::{Cell, Real};
use crate::format::format;
use crate::infer::{Check, broadcast, count, limit, promote, reduced};
use crate::movement::{broadcast_positions, for_each_index, position};
use crate::reduce::reduce;
use crate::value::Value;

/// Number of labels.
const LABELS: usize = 26;

/// The function of the factors of each product that makes an element of the result.
type Combine<'a> = &'a mut dyn FnMut(DType, Vec<Vec<Cell>>) -> Cell;

/// The sum, over the labels that the result does not have, of the products of the sources.
pub(super) fn einsum(call: Call<'_>) -> Check<Value> {
    let output = call.args.ints(1);
    let is_summed = call.args.ints(0).iter().any(|label| !output.contains(label));
    einsum_by(call, &mut |dtype, products| {
        let value = |factors: &Vec<Cell>| {
            factors[1..].iter().fold(factors[0], |part, factor| product(dtype, part, *factor))
        };
        let terms: Vec<Cell> = products.iter().map(value).collect();
        match is_summed {
            true => {
                let sum = reduce(ReduceOp::Sum, call.sums, dtype, &terms);
                cast(reduced(ReduceOp::Sum, dtype), dtype, sum)
            }
            false => terms[0],
        }
    })
}

/// An einsum in which `combine` makes each element from the factors of all its products.
pub(crate) fn einsum_by(call: Call<'_>, combine: Combine<'_>) -> Check<Value> {
    let (mut labels, output) = (call.args.ints(0), call.args.ints(1));
    let dtype = call.srcs.iter().map(|src| src.dtype).reduce(promote).ok_or("no source")?;
    require(dtype != DType::Bool, dtype, "numbers")?;
    let mut sizes = [None; LABELS];
    let mut sources = Vec::with_capacity(call.srcs.len());
    for src in call.srcs {
        let (of_source, rest) = labels.split_at_checked(src.shape.len()).ok_or("too few labels")?;
        labels = rest;
        let axes = of_source.iter().map(|label| number(*label)).collect::<Check<Vec<_>>>()?;
        for (label, size) in axes.iter().zip(&src.shape) {
            let known = *sizes[*label].get_or_insert(*size);
            if known != *size {
                return Err(format!("label {label} has the sizes {known} and {size}"));
            }
        }
        sources.push((axes, src.map(dtype, |cell| cast(src.dtype, dtype, cell))));
    }
    if !labels.is_empty() {
        return Err(format!("{} labels without an axis", labels.len()));
    }
    let outer = output.iter().map(|label| number(*label)).collect::<Check<Vec<_>>>()?;
    let mut shape = Shape::new();
    for (at, label) in outer.iter().enumerate() {
        if outer[..at].contains(label) {
            return Err(format!("label {label} is twice in the result"));
        }
        shape.push(sizes[*label].ok_or_else(|| format!("label {label} is of no source"))?);
    }
    let inner: Vec<usize> =
        (0..LABELS).filter(|label| sizes[*label].is_some() && !outer.contains(label)).collect();
    let summed: Shape = inner.iter().filter_map(|label| sizes[*label]).collect();
    limit([&shape[..], &summed].concat())?;
    let mut cells = Vec::with_capacity(count(&shape));
    let mut at = [0; LABELS];
    for_each_index(&shape, |out| {
        outer.iter().zip(out).for_each(|(label, index)| at[*label] = *index);
        let mut products = Vec::with_capacity(count(&summed));
        for_each_index(&summed, |index| {
            inner.iter().zip(index).for_each(|(label, index)| at[*label] = *index);
            let factor = |(axes, src): &(Vec<usize>, Value)| {
                let index: Vec<usize> = axes.iter().map(|label| at[*label]).collect();
                src.cells[position(&index, &src.shape)]
            };
            products.push(sources.iter().map(factor).collect());
        });
        cells.push(combine(dtype, products));
    });
    Ok(Value::new(dtype, shape, cells))
}

fn number(label: i64) -> Check<usize> {
    let found = usize::try_from(label).ok().filter(|label| *label < LABELS);
    found.ok_or_else(|| format!("label {label} is not below {LABELS}"))
}

/// The shapes of an attention, and the positions of what each query refers to.
pub(crate) struct Attention {
    /// The dtype that it is computed in.
    pub(crate) dtype: DType,
    /// The number of elements of a query and of a key.
    pub(crate) depth: usize,
    /// The number of elements of a value.
    pub(crate) width: usize,
    /// The shape of the result, whose last axis is that of the values.
    pub(crate) shape: Shape,
    /// The queries, in the order of the result.
    pub(crate) queries: Vec<Query>,
}

/// A query: the position of its first element, and the keys that it may see.
pub(crate) struct Query {
    pub(crate) first: usize,
    pub(crate) keys: Vec<Key>,
}

/// A key of a query: the positions of the first elements of it and of its value, and of the
/// element of the mask.
pub(crate) struct Key {
    pub(crate) first: usize,
    pub(crate) value: usize,
    pub(crate) mask: Option<usize>,
    /// True if the order of the keys hides it from the query.
    pub(crate) is_later: bool,
}

impl Attention {
    /// Returns the parts of the attention of a query, keys and values, with a mask or without.
    ///
    /// # Errors
    /// Dtypes or shapes that do not fit.
    pub(crate) fn of(srcs: &[&Value], is_causal: bool) -> Check<Attention> {
        let (first, mask) = match srcs {
            [first @ .., mask] if first.len() == 3 => (first, Some(*mask)),
            srcs => (srcs, None),
        };
        let [query, key, value] = *first else { return Err(format!("{} sources", srcs.len())) };
        let mut dtype = promote(promote(query.dtype, key.dtype), value.dtype);
        for src in [query, key, value] {
            require(src.dtype.is_float(), src.dtype, "floats")?;
        }
        if let Some(mask) = mask.filter(|mask| mask.dtype != DType::Bool) {
            require(mask.dtype.is_float(), mask.dtype, "a mask of bool or floats")?;
            dtype = promote(dtype, mask.dtype);
        }
        let refused = || format!("{:?}, {:?}, {:?}", query.shape, key.shape, value.shape);
        let ([outer @ .., rows, depth], [key_outer @ .., keys, key_depth]) =
            (&query.shape[..], &key.shape[..])
        else {
            return Err(refused());
        };
        let [value_outer @ .., values, width] = &value.shape[..] else { return Err(refused()) };
        if depth != key_depth || keys != values || *depth == 0 {
            return Err(refused());
        }
        let scored = broadcast(outer, key_outer)?;
        let scores = limit([&scored[..], &[*rows, *keys]].concat())?;
        if let Some(mask) =
            mask.filter(|mask| broadcast(&scores, &mask.shape) != Ok(scores.clone()))
        {
            return Err(format!("a mask of shape {:?} for {scores:?}", mask.shape));
        }
        limit([&scores[..], &[*depth]].concat())?;
        let whole = broadcast(&scored, value_outer)?;
        limit([&whole[..], &[*rows, *keys, *width]].concat())?;
        let masks = mask
            .map(|mask| broadcast_positions(&mask.shape, &[&whole[..], &[*rows, *keys]].concat()));
        let firsts = |outer: &[usize]| broadcast_positions(outer, &whole);
        let (query_firsts, key_firsts) = (firsts(outer), firsts(key_outer));
        let value_firsts = firsts(value_outer);
        let mut queries = Vec::with_capacity(count(&whole) * rows);
        for at in 0..count(&whole) {
            for row in 0..*rows {
                let key = |number: usize| Key {
                    first: (key_firsts[at] * keys + number) * depth,
                    value: (value_firsts[at] * keys + number) * width,
                    mask: masks.as_ref().map(|masks| masks[(at * rows + row) * keys + number]),
                    is_later: is_causal && row < number,
                };
                let first = (query_firsts[at] * rows + row) * depth;
                queries.push(Query { first, keys: (0..*keys).map(key).collect() });
            }
        }
        let shape = [&whole[..], &[*rows, *width]].concat();
        Ok(Attention { dtype: wide(dtype), depth: *depth, width: *width, shape, queries })
    }

    /// Returns the factor of the scores, the inverse of the square root of the depth.
    pub(crate) fn scale(&self) -> Cell {
        let root = (self.depth as f64).sqrt();
        if root.fract() == 0.0 && (root as u64).is_power_of_two() {
            return Cell::exact(1.0 / root);
        }
        let radius = 1.01 * format(self.dtype).unit + f64::EPSILON;
        Cell::Real(Real::ball(1.0 / root, 0.0, radius / root))
    }
}

/// The products of shares and values; the shares are those of powers of scores.
pub(super) fn attention(call: Call<'_>) -> Check<Value> {
    let parts = Attention::of(call.srcs, call.args.flag(0))?;
    let (sums, dtype) = (call.sums, parts.dtype);
    let widened = |src: &Value| src.map(dtype, |cell| cast(src.dtype, dtype, cell));
    let [query, key, value] = [0, 1, 2].map(|number| widened(call.srcs[number]));
    let mask = call.srcs.get(3);
    let scale = parts.scale();
    let dot = |factors: &mut dyn Iterator<Item = (Cell, Cell)>| {
        let products: Vec<Cell> = factors.map(|(x, y)| mul(dtype, x, y)).collect();
        reduce(ReduceOp::Sum, sums, dtype, &products)
    };
    let score = |of: &Query, to: &Key| {
        let element = |i: usize| (query.cells[of.first + i], key.cells[to.first + i]);
        let score = mul(dtype, dot(&mut (0..parts.depth).map(element)), scale);
        match mask.zip(to.mask).map(|(mask, at)| (mask.dtype, mask.cells[at])) {
            _ if to.is_later => Cell::infinity(true),
            None | Some((DType::Bool, Cell::Int(1))) => score,
            Some((DType::Bool, Cell::Int(_))) => Cell::infinity(true),
            Some((DType::Bool, unspecified)) => unspecified,
            Some((from, added)) => add(dtype, score, cast(from, dtype, added)),
        }
    };
    let to = promote(promote(call.srcs[0].dtype, call.srcs[1].dtype), call.srcs[2].dtype);
    let mut cells = Vec::with_capacity(count(&parts.shape));
    for of in &parts.queries {
        let scores: Vec<Cell> = of.keys.iter().map(|to| score(of, to)).collect();
        let shares = shares(sums, dtype, &scores);
        for element in 0..parts.width {
            let values = of.keys.iter().map(|to| value.cells[to.value + element]);
            cells.push(cast(dtype, to, dot(&mut shares.iter().copied().zip(values))));
        }
    }
    Ok(Value::new(to, parts.shape, cells))
}
