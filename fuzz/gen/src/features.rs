//! Features of programs, a coverage measure: each statement has features (its op, its dtype,
//! properties of its view, reduction, sizes or values). Two features of a statement, or of a
//! statement and its sources, are a pair.
//!
//! In: programs. Out: sets of features, counts of pairs. A bug that needs two conditions shows only
//! in programs that have the pair, so a hunt reports the number of pairs that it has covered.

use gradiff_corpus::{
    BinaryOp, DType, Fill, Operand, Program, ReduceOp, Statement, TensorType, ValueId, literal_bits,
};

use crate::values;
use crate::{Op, shapes};

/// Features that are neither an op nor a dtype, in the order of their numbers.
const PROPERTIES: [&str; 43] = [
    "cast-int-to-float",
    "cast-float-to-int",
    "cast-to-narrower-float",
    "cast-to-bool",
    "pad-with-number",
    "reshape-splits",
    "reshape-merges",
    "reduce-last-axis",
    "reduce-earlier-axis",
    "reduce-several-axes",
    "reduce-of-none",
    "reduce-of-one",
    "reduce-of-16-or-more",
    "reduce-of-power-of-two",
    "reduce-of-odd",
    "shared-value",
    "same-value-twice",
    "broadcast",
    "promotion",
    "literal",
    "value-and-its-reduction",
    "product-sum",
    "one-hot",
    "several-outputs",
    "used-output",
    "scalar",
    "empty",
    "rank-4-or-more",
    "odd-size",
    "size-below-power-of-two",
    "size-power-of-two",
    "size-above-power-of-two",
    "16-on-last-axis",
    "over-128-elements",
    "over-1024-elements",
    "constant",
    "range",
    "halfway-values",
    "nan-values",
    "negative-zero",
    "subnormal-values",
    "infinite-values",
    "beyond-2^31",
];

/// Number of features.
const COUNT: usize = FIRST_PROPERTY + PROPERTIES.len();

/// Number of the first feature that is neither an op nor a dtype.
const FIRST_PROPERTY: usize = Op::COUNT + DType::ALL.len();

/// A feature of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature(u8);

impl Feature {
    /// Number of features.
    pub const COUNT: usize = COUNT;

    /// Returns all features: ops, dtypes, properties.
    pub fn all() -> impl Iterator<Item = Feature> {
        (0..COUNT as u8).map(Feature)
    }

    /// Returns the name: that of the op or the dtype, or a kebab-case phrase.
    pub fn name(self) -> &'static str {
        let number = usize::from(self.0);
        match number {
            _ if number < Op::COUNT => Op::ALL[number].name(),
            _ if number < FIRST_PROPERTY => DType::ALL[number - Op::COUNT].name(),
            _ => PROPERTIES[number - FIRST_PROPERTY],
        }
    }

    /// Returns the op, if the feature is one.
    pub(crate) fn op(self) -> Option<Op> {
        Op::ALL.get(usize::from(self.0)).copied()
    }

    /// Returns the dtype, if the feature is one.
    pub(crate) fn dtype(self) -> Option<DType> {
        let number = usize::from(self.0).checked_sub(Op::COUNT)?;
        DType::ALL.get(number).copied()
    }

    /// Returns the feature of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Feature> {
        Feature::all().find(|feature| feature.name() == name)
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u128);

impl Features {
    /// Returns whether the set has the feature.
    pub fn has(self, feature: Feature) -> bool {
        self.0 >> feature.0 & 1 == 1
    }

    /// Returns the features of the set, in order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (number < 128).then_some(Feature(number as u8))
        })
    }

    /// Returns the union of both sets.
    pub fn union(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    /// Adds the property of this name if `is_present`.
    fn add_if(&mut self, is_present: bool, name: &str) {
        if is_present {
            let index = PROPERTIES.iter().position(|property| *property == name);
            let index = index.expect("the table lists every name");
            self.0 |= 1 << (FIRST_PROPERTY + index);
        }
    }
}

/// Returns the features of each statement of a well-typed program.
///
/// # Panics
/// If the program is ill-typed.
pub fn features(program: &Program) -> Vec<Features> {
    let types = program.typing().expect("the program is well typed");
    let mut uses = vec![0_usize; types.len()];
    let mut found: Vec<Features> = Vec::with_capacity(types.len());
    for number in 0..types.len() {
        found.push(of_statement(&program.statements, &types, &uses, number));
        program.statements[number].for_each_source(|src| uses[src.0 as usize] += 1);
    }
    for output in &program.outputs {
        let number = output.0 as usize;
        found[number].add_if(program.outputs.len() > 1, "several-outputs");
        found[number].add_if(uses[number] > 0, "used-output");
    }
    found
}

/// Returns the features of statement `number`; `uses` are the counts of uses of each value by
/// earlier statements.
pub(crate) fn of_statement(
    statements: &[Statement],
    types: &[TensorType],
    uses: &[usize],
    number: usize,
) -> Features {
    let statement = &statements[number];
    let tensor = &types[number];
    let mut found = Features(1 << (Op::COUNT + dtype_index(tensor.dtype)));
    let source = |src: &ValueId| &types[src.0 as usize];
    if let Some(op) = Op::of(statement).filter(|_| is_effective(statement, types)) {
        let index = Op::ALL.into_iter().position(|listed| listed == op);
        found.0 |= 1 << index.expect("the table lists every op");
    }
    match statement {
        Statement::Input { dtype, fill, .. } => add_values(&mut found, *dtype, &tensor.shape, fill),
        Statement::Const { dtype, value, .. } => {
            found.add_if(true, "constant");
            let bits = literal_bits(*dtype, value).unwrap_or(0);
            add_bits(&mut found, *dtype, &[bits]);
        }
        Statement::Arange { .. } => found.add_if(true, "range"),
        Statement::Cast { src, dtype } => add_cast(&mut found, source(src).dtype, *dtype),
        Statement::Pad { value, src, .. } => {
            let bits = literal_bits(source(src).dtype, value);
            found.add_if(bits.is_some_and(|bits| bits != 0), "pad-with-number");
        }
        Statement::Reshape { src, shape } => {
            let rank = |shape: &[usize]| shape.iter().filter(|size| **size != 1).count();
            let (before, after) = (rank(&source(src).shape), rank(shape));
            found.add_if(before < after, "reshape-splits");
            found.add_if(after < before, "reshape-merges");
        }
        Statement::Reduce { op, src, axes } => {
            add_reduce(&mut found, &source(src).shape, axes);
            let product = is_product(&statements[src.0 as usize], types);
            found.add_if(*op == ReduceOp::Sum && product, "product-sum");
        }
        _ => {}
    }
    add_operands(&mut found, statements, types, number);
    let mut is_shared = false;
    statement.for_each_source(|src| is_shared |= uses[src.0 as usize] > 0);
    found.add_if(is_shared, "shared-value");
    add_sizes(&mut found, &tensor.shape);
    found
}

fn dtype_index(dtype: DType) -> usize {
    DType::ALL.into_iter().position(|listed| listed == dtype).expect("every dtype is listed")
}

/// Returns whether a statement does something: a movement or cast without effect does not.
fn is_effective(statement: &Statement, types: &[TensorType]) -> bool {
    let shape_of = |src: &ValueId| &types[src.0 as usize].shape;
    match statement {
        Statement::Reshape { src, shape } | Statement::Expand { src, shape } => {
            shape != shape_of(src)
        }
        Statement::Permute { src, axes } => {
            let shape = shape_of(src);
            let moved: Vec<usize> = axes.iter().copied().filter(|axis| shape[*axis] != 1).collect();
            !moved.is_sorted()
        }
        Statement::Pad { pads, .. } => pads.iter().any(|pad| *pad != (0, 0)),
        Statement::Shrink { src, ranges } => {
            let shape = shape_of(src);
            ranges.iter().zip(shape).any(|((start, end), size)| end - start != *size)
        }
        Statement::Flip { src, axes } => axes.iter().any(|axis| shape_of(src)[*axis] > 1),
        Statement::Cat { srcs, .. } => srcs.len() > 1,
        Statement::Cast { src, dtype } => types[src.0 as usize].dtype != *dtype,
        _ => true,
    }
}

fn add_cast(found: &mut Features, from: DType, to: DType) {
    found.add_if(!from.is_float() && to.is_float(), "cast-int-to-float");
    found.add_if(from.is_float() && to.is_int(), "cast-float-to-int");
    let narrows = from.is_float() && to.is_float() && to.size_bytes() < from.size_bytes();
    found.add_if(narrows, "cast-to-narrower-float");
    found.add_if(to == DType::Bool && from != to, "cast-to-bool");
}

fn add_reduce(found: &mut Features, shape: &[usize], axes: &[usize]) {
    let count: usize = axes.iter().map(|axis| shape[*axis]).product();
    let is_proper = |axis: &usize| shape[*axis] != 1;
    let last = (0..shape.len()).rev().find(is_proper);
    found.add_if(axes.iter().any(|axis| Some(*axis) == last), "reduce-last-axis");
    let is_earlier = |axis: &usize| is_proper(axis) && last.is_some_and(|last| *axis < last);
    found.add_if(axes.iter().any(is_earlier), "reduce-earlier-axis");
    found.add_if(axes.iter().filter(|axis| is_proper(axis)).count() > 1, "reduce-several-axes");
    found.add_if(count == 0, "reduce-of-none");
    found.add_if(count == 1, "reduce-of-one");
    found.add_if(count >= 16, "reduce-of-16-or-more");
    found.add_if(count >= 4 && count.is_power_of_two(), "reduce-of-power-of-two");
    found.add_if(count >= 3 && count % 2 == 1, "reduce-of-odd");
}

/// Returns whether the statement multiplies values that are broadcast along different axes.
fn is_product(statement: &Statement, types: &[TensorType]) -> bool {
    let Statement::Binary { op: BinaryOp::Mul, srcs: [Operand::Value(x), Operand::Value(y)] } =
        statement
    else {
        return false;
    };
    let [x, y] = [x, y].map(|value| &types[value.0 as usize].shape);
    // Axes are counted from the last one, as broadcasting aligns them.
    let size =
        |shape: &[usize], i: usize| shape.len().checked_sub(i + 1).map_or(1, |axis| shape[axis]);
    let is_wider =
        |a: &[usize], b: &[usize]| (0..a.len().max(b.len())).any(|i| size(a, i) > size(b, i));
    is_wider(x, y) && is_wider(y, x)
}

fn add_operands(
    found: &mut Features,
    statements: &[Statement],
    types: &[TensorType],
    number: usize,
) {
    let (operands, is_equality): (&[Operand], bool) = match &statements[number] {
        Statement::Binary { op, srcs } => (srcs, matches!(op, BinaryOp::CmpEq | BinaryOp::CmpNe)),
        Statement::Where { srcs } | Statement::MulAcc { srcs } => (srcs, false),
        _ => return,
    };
    let value = |operand: &Operand| match operand {
        Operand::Value(id) => Some(*id),
        Operand::Literal(_) => None,
    };
    let values: Vec<ValueId> = operands.iter().filter_map(value).collect();
    found.add_if(values.len() < operands.len(), "literal");
    let shape_of = |id: &ValueId| &types[id.0 as usize].shape;
    found.add_if(values.iter().any(|id| *shape_of(id) != types[number].shape), "broadcast");
    let is_repeated = |index: usize| values[..index].contains(&values[index]);
    found.add_if((1..values.len()).any(is_repeated), "same-value-twice");
    let dtypes = || values.iter().map(|id| types[id.0 as usize].dtype);
    let is_where = matches!(statements[number], Statement::Where { .. });
    let first = dtypes().nth(usize::from(is_where));
    found.add_if(dtypes().skip(usize::from(is_where)).any(|d| Some(d) != first), "promotion");
    let is_reduction_of = |reduction: &ValueId, value: &ValueId| {
        let is_shared = |src: &ValueId| is_related(statements, *value, *src);
        shapes::count(shape_of(reduction)) < shapes::count(shape_of(value))
            && reduced_values(statements, *reduction).iter().any(is_shared)
    };
    let is_reduced = |value: &ValueId| values.iter().any(|x| is_reduction_of(x, value));
    found.add_if(values.iter().any(is_reduced), "value-and-its-reduction");
    let is_one_hot = is_equality
        && values.len() == 2
        && values.iter().any(|id| is_range(statements, *id))
        && shape_of(&values[0]) != shape_of(&values[1]);
    found.add_if(is_one_hot, "one-hot");
}

/// Returns the sources of the reductions that a value depends on, at most three statements away.
fn reduced_values(statements: &[Statement], value: ValueId) -> Vec<ValueId> {
    let (mut found, mut level) = (Vec::new(), vec![value]);
    for _ in 0..3 {
        let mut next = Vec::new();
        for value in level {
            match &statements[value.0 as usize] {
                Statement::Reduce { src, .. } => found.push(*src),
                statement => statement.for_each_source(|src| next.push(src)),
            }
        }
        level = next;
    }
    found
}

/// Returns whether two values are equal, one depends on the other, or both share a dependency, at
/// most two statements away.
fn is_related(statements: &[Statement], a: ValueId, b: ValueId) -> bool {
    let dependencies = |value: ValueId| {
        let mut found = vec![value];
        let mut start = 0;
        for _ in 0..2 {
            let end = found.len();
            for index in start..end {
                statements[found[index].0 as usize].for_each_source(|src| found.push(src));
            }
            start = end;
        }
        found
    };
    let of_a = dependencies(a);
    dependencies(b).iter().any(|value| of_a.contains(value))
}

/// Returns whether the value is a range, possibly moved or converted.
fn is_range(statements: &[Statement], value: ValueId) -> bool {
    let mut value = value;
    for _ in 0..4 {
        value = match &statements[value.0 as usize] {
            Statement::Arange { .. } | Statement::Input { fill: Fill::Iota, .. } => return true,
            Statement::Reshape { src, .. }
            | Statement::Expand { src, .. }
            | Statement::Permute { src, .. }
            | Statement::Cast { src, .. } => *src,
            _ => return false,
        };
    }
    false
}

fn add_sizes(found: &mut Features, shape: &[usize]) {
    let count = shapes::count(shape);
    found.add_if(shape.is_empty(), "scalar");
    found.add_if(count == 0, "empty");
    found.add_if(shape.len() >= 4, "rank-4-or-more");
    found.add_if(shape.iter().any(|size| *size >= 5 && size % 2 == 1), "odd-size");
    let any = |test: fn(usize) -> bool| shape.iter().any(|size| *size >= 7 && test(*size));
    found.add_if(any(|size| (size + 1).is_power_of_two()), "size-below-power-of-two");
    found.add_if(any(usize::is_power_of_two), "size-power-of-two");
    found.add_if(any(|size| (size - 1).is_power_of_two()), "size-above-power-of-two");
    found.add_if(shape.last().is_some_and(|size| *size >= 16), "16-on-last-axis");
    found.add_if(count > 128, "over-128-elements");
    found.add_if(count > 1024, "over-1024-elements");
}

fn add_values(found: &mut Features, dtype: DType, shape: &[usize], fill: &Fill) {
    match fill {
        Fill::Iota => found.add_if(true, "range"),
        Fill::Explicit(bits) => add_bits(found, dtype, bits),
        Fill::Seeded { .. } => {
            // The first elements show the distribution.
            let count = shapes::count(shape).min(16);
            add_bits(found, dtype, &gradiff_corpus::fill(dtype, &[count], fill).bits);
        }
    }
}

fn add_bits(found: &mut Features, dtype: DType, bits: &[u64]) {
    for &bits in bits {
        let kinds = values::kinds(dtype, bits);
        found.add_if(kinds.is_halfway, "halfway-values");
        found.add_if(kinds.is_nan, "nan-values");
        found.add_if(kinds.is_negative_zero, "negative-zero");
        found.add_if(kinds.is_subnormal, "subnormal-values");
        found.add_if(kinds.is_infinite, "infinite-values");
        found.add_if(kinds.is_beyond, "beyond-2^31");
    }
}

/// Counts of the programs that have each pair of features.
#[derive(Clone, Debug)]
pub struct Pairs {
    counts: Vec<u32>,
}

impl Default for Pairs {
    fn default() -> Pairs {
        Pairs { counts: vec![0; Pairs::POSSIBLE] }
    }
}

impl Pairs {
    /// Number of pairs.
    pub const POSSIBLE: usize = COUNT * (COUNT - 1) / 2;

    /// Counts the pairs of a program: two features of a statement and its sources. Each pair counts
    /// once for each program; dead statements do not count.
    ///
    /// # Panics
    /// If the program is ill-typed.
    pub fn add(&mut self, program: &Program) {
        let found = features(program);
        let mut rows = [0_u128; COUNT];
        let live = program.live_statements();
        for (number, statement) in program.statements.iter().enumerate() {
            if !live[number] {
                continue;
            }
            let mut adjacent = found[number];
            statement.for_each_source(|src| adjacent = adjacent.union(found[src.0 as usize]));
            adjacent.iter().for_each(|feature| rows[usize::from(feature.0)] |= adjacent.0);
        }
        for (large, row) in rows.iter().enumerate() {
            let smaller = Features(row & ((1 << large) - 1));
            for small in smaller.iter() {
                self.counts[large * large.saturating_sub(1) / 2 + usize::from(small.0)] += 1;
            }
        }
    }

    /// Returns the number of programs that have the pair; 0 for a feature with itself.
    pub fn count(&self, a: Feature, b: Feature) -> u32 {
        let (small, large) = (usize::from(a.0.min(b.0)), usize::from(a.0.max(b.0)));
        if small == large { 0 } else { self.counts[large * (large - 1) / 2 + small] }
    }

    /// Returns the number of programs that have each pair, in the order of the pairs' numbers.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// Returns the number of pairs that were seen.
    pub fn seen(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// Returns the pairs that were not seen.
    pub fn unseen(&self) -> Vec<(Feature, Feature)> {
        let pairs = (0..Pairs::POSSIBLE).map(Pairs::pair);
        pairs.filter(|(a, b)| self.count(*a, *b) == 0).collect()
    }

    /// Returns pair `number`: its smaller and its larger feature.
    ///
    /// # Panics
    /// If `number` is not below [`Pairs::POSSIBLE`].
    pub fn pair(number: usize) -> (Feature, Feature) {
        assert!(number < Pairs::POSSIBLE, "pair {number} of {}", Pairs::POSSIBLE);
        let larger = (1..COUNT).rfind(|large| large * (large - 1) / 2 <= number);
        let larger = larger.expect("the first number is 0");
        (Feature((number - larger * (larger - 1) / 2) as u8), Feature(larger as u8))
    }
}
