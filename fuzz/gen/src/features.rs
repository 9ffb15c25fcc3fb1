//! What a program combines: each statement has features (its op, its dtype, what is special about
//! its view, reduction, sizes or values), and two that lie close together in one program are a pair.
//!
//! In: programs. Out: sets of features, counts of pairs. Bugs that take two conditions at once show
//! only in programs that have the pair, so a hunt reports how many pairs it has met.

use gradiff_corpus::{
    BinaryOp, DType, Fill, Operand, Program, ReduceOp, Statement, TensorType, ValueId, literal_bits,
};

use crate::values;
use crate::{Op, shapes};

/// Features that are neither an op nor a dtype, in the order of their numbers.
const OTHERS: [&str; 43] = [
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
    "row-beside-its-reduction",
    "product-sum",
    "one-hot",
    "several-outputs",
    "output-that-is-used",
    "scalar",
    "empty",
    "rank-4-or-more",
    "odd-size",
    "size-below-power-of-two",
    "size-power-of-two",
    "size-above-power-of-two",
    "16-in-a-row",
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

/// How many features there are.
const COUNT: usize = Op::COUNT + DType::ALL.len() + OTHERS.len();

/// One property of a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature(u8);

impl Feature {
    /// How many there are.
    pub const COUNT: usize = COUNT;

    /// All of them: ops, dtypes, others.
    pub fn all() -> impl Iterator<Item = Feature> {
        (0..COUNT as u8).map(Feature)
    }

    /// The name: a statement's word, a dtype, or a phrase in hyphens.
    pub fn name(self) -> &'static str {
        let number = usize::from(self.0);
        let others = Op::COUNT + DType::ALL.len();
        match number {
            _ if number < Op::COUNT => Op::ALL[number].name(),
            _ if number < others => DType::ALL[number - Op::COUNT].name(),
            _ => OTHERS[number - others],
        }
    }

    /// The op that the feature is, if it is one.
    pub(crate) fn op(self) -> Option<Op> {
        Op::ALL.get(usize::from(self.0)).copied()
    }

    /// The dtype that the feature is, if it is one.
    pub(crate) fn dtype(self) -> Option<DType> {
        let number = usize::from(self.0).checked_sub(Op::COUNT)?;
        DType::ALL.get(number).copied()
    }

    /// The feature of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Feature> {
        Feature::all().find(|feature| feature.name() == name)
    }
}

/// A set of features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(u128);

impl Features {
    /// Whether it has the feature.
    pub fn has(self, feature: Feature) -> bool {
        self.0 >> feature.0 & 1 == 1
    }

    /// The features in it, in order.
    pub fn iter(self) -> impl Iterator<Item = Feature> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let number = rest.trailing_zeros();
            rest &= rest.wrapping_sub(1);
            (number < 128).then_some(Feature(number as u8))
        })
    }

    /// What either has.
    pub fn union(self, other: Features) -> Features {
        Features(self.0 | other.0)
    }

    fn see(&mut self, is_so: bool, name: &str) {
        if is_so {
            let number = OTHERS.iter().position(|other| *other == name);
            let number = number.expect("the table lists every name");
            self.0 |= 1 << (Op::COUNT + DType::ALL.len() + number);
        }
    }
}

/// The features of each statement of a well-typed program.
///
/// # Panics
/// If the program does not type.
pub fn features(program: &Program) -> Vec<Features> {
    let types = program.typing().expect("the program types");
    let mut uses = vec![0_usize; types.len()];
    let mut found: Vec<Features> = Vec::with_capacity(types.len());
    for number in 0..types.len() {
        let of = of_statement(&program.statements, &types, &uses, number);
        program.statements[number].for_each_source(|src| uses[src.0 as usize] += 1);
        found.push(of);
    }
    for output in &program.outputs {
        let number = output.0 as usize;
        found[number].see(program.outputs.len() > 1, "several-outputs");
        found[number].see(uses[number] > 0, "output-that-is-used");
    }
    found
}

/// The features of statement `number`; `uses` counts how often earlier statements use each value.
pub(crate) fn of_statement(
    statements: &[Statement],
    types: &[TensorType],
    uses: &[usize],
    number: usize,
) -> Features {
    let statement = &statements[number];
    let of = &types[number];
    let mut found = Features(1 << (Op::COUNT + dtype_number(of.dtype)));
    let source = |src: &ValueId| &types[src.0 as usize];
    if let Some(op) = Op::of(statement).filter(|_| is_effective(statement, types)) {
        let op = Op::ALL.into_iter().position(|other| other == op);
        found.0 |= 1 << op.expect("the table lists every op");
    }
    match statement {
        Statement::Input { dtype, fill, .. } => see_values(&mut found, *dtype, &of.shape, fill),
        Statement::Const { dtype, value, .. } => {
            found.see(true, "constant");
            let bits = literal_bits(*dtype, value).unwrap_or(0);
            see_bits(&mut found, *dtype, &[bits]);
        }
        Statement::Arange { .. } => found.see(true, "range"),
        Statement::Cast { src, dtype } => see_cast(&mut found, source(src).dtype, *dtype),
        Statement::Pad { value, src, .. } => {
            let bits = literal_bits(source(src).dtype, value);
            found.see(bits.is_some_and(|bits| bits != 0), "pad-with-number");
        }
        Statement::Reshape { src, shape } => {
            let parts = |shape: &[usize]| shape.iter().filter(|size| **size != 1).count();
            let (before, after) = (parts(&source(src).shape), parts(shape));
            found.see(before < after, "reshape-splits");
            found.see(after < before, "reshape-merges");
        }
        Statement::Reduce { op, src, axes } => {
            see_reduce(&mut found, &source(src).shape, axes);
            let product = is_product(&statements[src.0 as usize], types);
            found.see(*op == ReduceOp::Sum && product, "product-sum");
        }
        _ => {}
    }
    see_operands(&mut found, statements, types, number);
    let mut is_shared = false;
    statement.for_each_source(|src| is_shared |= uses[src.0 as usize] > 0);
    found.see(is_shared, "shared-value");
    see_sizes(&mut found, &of.shape);
    found
}

fn dtype_number(dtype: DType) -> usize {
    DType::ALL.into_iter().position(|other| other == dtype).expect("all are listed")
}

/// Whether a movement moves anything; all else is effective.
fn is_effective(statement: &Statement, types: &[TensorType]) -> bool {
    let shape_of = |src: &ValueId| &types[src.0 as usize].shape;
    match statement {
        Statement::Reshape { src, shape } | Statement::Expand { src, shape } => {
            shape != shape_of(src)
        }
        Statement::Permute { src, axes } => {
            let shape = shape_of(src);
            let long: Vec<usize> = axes.iter().copied().filter(|axis| shape[*axis] != 1).collect();
            !long.is_sorted()
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

fn see_cast(found: &mut Features, from: DType, to: DType) {
    found.see(!from.is_float() && to.is_float(), "cast-int-to-float");
    found.see(from.is_float() && to.is_int(), "cast-float-to-int");
    let narrower = from.is_float() && to.is_float() && to.size_bytes() < from.size_bytes();
    found.see(narrower, "cast-to-narrower-float");
    found.see(to == DType::Bool && from != to, "cast-to-bool");
}

fn see_reduce(found: &mut Features, shape: &[usize], axes: &[usize]) {
    let count: usize = axes.iter().map(|axis| shape[*axis]).product();
    let long = |axis: &usize| shape[*axis] != 1;
    let last = (0..shape.len()).rev().find(long);
    found.see(axes.iter().any(|axis| Some(*axis) == last), "reduce-last-axis");
    let earlier = axes.iter().any(|axis| long(axis) && last.is_some_and(|last| *axis < last));
    found.see(earlier, "reduce-earlier-axis");
    found.see(axes.iter().filter(|axis| long(axis)).count() > 1, "reduce-several-axes");
    found.see(count == 0, "reduce-of-none");
    found.see(count == 1, "reduce-of-one");
    found.see(count >= 16, "reduce-of-16-or-more");
    found.see(count >= 4 && count.is_power_of_two(), "reduce-of-power-of-two");
    found.see(count >= 3 && count % 2 == 1, "reduce-of-odd");
}

/// Whether it multiplies values that are spread along different axes.
fn is_product(statement: &Statement, types: &[TensorType]) -> bool {
    let Statement::Binary { op: BinaryOp::Mul, srcs: [Operand::Value(x), Operand::Value(y)] } =
        statement
    else {
        return false;
    };
    let [x, y] = [x, y].map(|value| &types[value.0 as usize].shape);
    let count =
        |shape: &[usize], at: usize| shape.len().checked_sub(at + 1).map_or(1, |axis| shape[axis]);
    let wider =
        |a: &[usize], b: &[usize]| (0..a.len().max(b.len())).any(|at| count(a, at) > count(b, at));
    wider(x, y) && wider(y, x)
}

fn see_operands(
    found: &mut Features,
    statements: &[Statement],
    types: &[TensorType],
    number: usize,
) {
    let (operands, test): (&[Operand], bool) = match &statements[number] {
        Statement::Binary { op, srcs } => (srcs, matches!(op, BinaryOp::CmpEq | BinaryOp::CmpNe)),
        Statement::Where { srcs } | Statement::MulAcc { srcs } => (srcs, false),
        _ => return,
    };
    let value = |operand: &Operand| match operand {
        Operand::Value(id) => Some(*id),
        Operand::Literal(_) => None,
    };
    let values: Vec<ValueId> = operands.iter().filter_map(value).collect();
    found.see(values.len() < operands.len(), "literal");
    let of = &types[number];
    let shape_of = |id: &ValueId| &types[id.0 as usize].shape;
    found.see(values.iter().any(|id| *shape_of(id) != of.shape), "broadcast");
    let twice = (1..values.len()).any(|at| values[..at].contains(&values[at]));
    found.see(twice, "same-value-twice");
    let dtypes = || values.iter().map(|id| types[id.0 as usize].dtype);
    let is_where = matches!(statements[number], Statement::Where { .. });
    let first = dtypes().nth(usize::from(is_where));
    found.see(dtypes().skip(usize::from(is_where)).any(|d| Some(d) != first), "promotion");
    let is_above = |row: &ValueId, other: &ValueId| {
        shapes::count(shape_of(row)) < shapes::count(shape_of(other))
            && reductions(statements, *row).iter().any(|src| depends(statements, *other, *src))
    };
    let rows = values.iter().any(|x| values.iter().any(|y| is_above(x, y)));
    found.see(rows, "row-beside-its-reduction");
    let ranges = |id: &ValueId| is_range(statements, *id);
    let hot = test
        && values.len() == 2
        && values.iter().any(ranges)
        && shape_of(&values[0]) != shape_of(&values[1]);
    found.see(hot, "one-hot");
}

/// The sources of the reductions that a value is made of, within a few statements.
fn reductions(statements: &[Statement], value: ValueId) -> Vec<ValueId> {
    let (mut found, mut level) = (Vec::new(), vec![value]);
    for _ in 0..3 {
        let mut next = Vec::new();
        for value in level {
            match &statements[value.0 as usize] {
                Statement::Reduce { src, .. } => found.push(*src),
                other => other.for_each_source(|src| next.push(src)),
            }
        }
        level = next;
    }
    found
}

/// Whether `value` is `source`, or made of it, or shares what it is made of, a few statements on.
fn depends(statements: &[Statement], value: ValueId, source: ValueId) -> bool {
    let near = |value: ValueId| {
        let mut found = vec![value];
        let mut from = 0;
        for _ in 0..2 {
            let until = found.len();
            for at in from..until {
                statements[found[at].0 as usize].for_each_source(|src| found.push(src));
            }
            from = until;
        }
        found
    };
    let mine = near(value);
    near(source).iter().any(|other| mine.contains(other))
}

/// Whether the value counts up: a range, moved or converted.
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

fn see_sizes(found: &mut Features, shape: &[usize]) {
    let count = shapes::count(shape);
    found.see(shape.is_empty(), "scalar");
    found.see(count == 0, "empty");
    found.see(shape.len() >= 4, "rank-4-or-more");
    found.see(shape.iter().any(|size| *size >= 5 && size % 2 == 1), "odd-size");
    let any = |test: fn(usize) -> bool| shape.iter().any(|size| *size >= 7 && test(*size));
    found.see(any(|size| (size + 1).is_power_of_two()), "size-below-power-of-two");
    found.see(any(usize::is_power_of_two), "size-power-of-two");
    found.see(any(|size| (size - 1).is_power_of_two()), "size-above-power-of-two");
    found.see(shape.last().is_some_and(|size| *size >= 16), "16-in-a-row");
    found.see(count > 128, "over-128-elements");
    found.see(count > 1024, "over-1024-elements");
}

fn see_values(found: &mut Features, dtype: DType, shape: &[usize], fill: &Fill) {
    match fill {
        Fill::Iota => found.see(true, "range"),
        Fill::Explicit(bits) => see_bits(found, dtype, bits),
        Fill::Seeded { .. } => {
            // The first elements tell what the others are like.
            let count = shapes::count(shape).min(16);
            see_bits(found, dtype, &gradiff_corpus::fill(dtype, &[count], fill).bits);
        }
    }
}

fn see_bits(found: &mut Features, dtype: DType, bits: &[u64]) {
    for &bits in bits {
        let kinds = values::kinds(dtype, bits);
        found.see(kinds.is_halfway, "halfway-values");
        found.see(kinds.is_nan, "nan-values");
        found.see(kinds.is_negative_zero, "negative-zero");
        found.see(kinds.is_subnormal, "subnormal-values");
        found.see(kinds.is_infinite, "infinite-values");
        found.see(kinds.is_beyond, "beyond-2^31");
    }
}

/// How often each pair of features lay close together.
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
    /// How many pairs there are.
    pub const POSSIBLE: usize = COUNT * (COUNT - 1) / 2;

    /// Counts the pairs of a program: the features of a statement and of its sources are close; each
    /// pair counts once for each program. Dead statements do not count.
    ///
    /// # Panics
    /// If the program does not type.
    pub fn add(&mut self, program: &Program) {
        let found = features(program);
        let mut rows = [0_u128; COUNT];
        let live = program.live_statements();
        for (number, statement) in program.statements.iter().enumerate() {
            if !live[number] {
                continue;
            }
            let mut near = found[number];
            statement.for_each_source(|src| near = near.union(found[src.0 as usize]));
            near.iter().for_each(|feature| rows[usize::from(feature.0)] |= near.0);
        }
        for (large, row) in rows.iter().enumerate() {
            let smaller = Features(row & ((1 << large) - 1));
            for small in smaller.iter() {
                self.counts[large * large.saturating_sub(1) / 2 + usize::from(small.0)] += 1;
            }
        }
    }

    /// How many programs had both features close together; 0 of a feature with itself.
    pub fn count(&self, a: Feature, b: Feature) -> u32 {
        let (small, large) = (usize::from(a.0.min(b.0)), usize::from(a.0.max(b.0)));
        if small == large { 0 } else { self.counts[large * (large - 1) / 2 + small] }
    }

    /// In how many programs each pair was, in the order of their numbers.
    pub fn counts(&self) -> &[u32] {
        &self.counts
    }

    /// How many pairs were seen.
    pub fn seen(&self) -> usize {
        self.counts.iter().filter(|count| **count > 0).count()
    }

    /// The pairs that were not.
    pub fn unseen(&self) -> Vec<(Feature, Feature)> {
        let pairs = (0..Pairs::POSSIBLE).map(Pairs::pair);
        pairs.filter(|(a, b)| self.count(*a, *b) == 0).collect()
    }

    /// Pair number `number`: its smaller and its larger feature.
    ///
    /// # Panics
    /// If there is no such pair.
    pub fn pair(number: usize) -> (Feature, Feature) {
        assert!(number < Pairs::POSSIBLE, "pairs are numbered from 0");
        let larger = (1..COUNT).rfind(|large| large * (large - 1) / 2 <= number);
        let larger = larger.expect("the first number is 0");
        (Feature((number - larger * (larger - 1) / 2) as u8), Feature(larger as u8))
    }
}
