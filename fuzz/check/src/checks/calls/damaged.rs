//! Calls that are legal but for one thing: statements of the corpus with another dtype, another
//! size or another argument.
//!
//! A call that is drawn from nothing is illegal in several ways, and whichever is checked first
//! hides the others.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use gradiff_corpus::{
    Arg, Case, DType, Distribution, Fill, Literal, Method, Program, Statement, TensorType, ValueId,
};

use super::Draw;

/// A statement whose sources are numbered from 0 on, and their types.
type Legal = (Statement, Vec<TensorType>);

/// The statements of the corpus that call methods, concatenate or gather, on few elements.
fn legal() -> &'static [Legal] {
    static LEGAL: OnceLock<Vec<Legal>> = OnceLock::new();
    LEGAL
        .get_or_init(|| crate::judge::coverage::embedded_cases().iter().flat_map(of_case).collect())
}

fn of_case(case: &Case) -> Vec<Legal> {
    let Case::Program(program) = case else { return Vec::new() };
    let Ok(types) = program.typing() else { return Vec::new() };
    let is_small = |sources: &[TensorType]| sources.iter().all(|source| source.count() <= MAX);
    let renumbered =
        program.statements.iter().filter(|statement| is_call(statement)).map(|known| {
            let (mut statement, mut sources) = (known.clone(), Vec::new());
            statement.map_sources(|id| {
                sources.push(types[id.0 as usize].clone());
                ValueId(sources.len() as u32 - 1)
            });
            (statement, sources)
        });
    renumbered.filter(|(_, sources)| is_small(sources)).collect()
}

/// Elements of a source at most.
const MAX: usize = 64;

/// Returns whether a statement is legal for some sources and not for others.
fn is_call(statement: &Statement) -> bool {
    use Statement::{Cat, Gather, Method};
    matches!(statement, Method { .. } | Cat { .. } | Gather { .. })
}

/// Returns whether the statement makes numbers by a step, more than the corpus allows: the API does
/// allow them, up to a limit of its own.
fn is_too_large_here(statement: &Statement) -> bool {
    let Statement::Method { method: Method::ArangeFloat, args, .. } = statement else {
        return false;
    };
    let number = |arg: &Arg| match arg {
        Arg::Number(Literal::Int(value)) => *value as f64,
        Arg::Number(Literal::Float(value)) => *value,
        _ => f64::NAN,
    };
    let [start, stop, step] = [1, 2, 3].map(|at| number(&args[at]));
    let limits = gradiff_corpus::MAX_ELEMENTS as f64..LARGE_ELEMENTS as f64;
    limits.contains(&((stop - start) / step))
}

/// A legal call, or one with a single change.
pub(super) fn damaged(draw: &mut Draw) -> Legal {
    let legal = legal();
    let (mut statement, mut sources) = legal[draw.below(legal.len())].clone();
    let known = statement.clone();
    let at = draw.below(sources.len().max(1));
    match (sources.get_mut(at), draw.below(8)) {
        (_, 0) => {}
        (Some(source), 1..=3) => source.dtype = draw.pick(&DType::ALL),
        (Some(source), 4..=5) => resize(draw, source),
        _ => change(draw, &mut statement),
    }
    (if is_too_large_here(&statement) { known } else { statement }, sources)
}

/// The first statement of each name with one of its sources changed, each of another dtype and of
/// four other shapes, or with one of its arguments.
pub(super) fn sweep() -> impl Iterator<Item = Legal> {
    let mut names = BTreeSet::new();
    let first = legal().iter().filter(move |(known, _)| names.insert(gradiff_corpus::name(known)));
    first.flat_map(|(statement, sources)| {
        (0..sources.len())
            .flat_map(move |at| {
                let with = move |change: &dyn Fn(&mut TensorType)| {
                    let mut sources = sources.clone();
                    change(&mut sources[at]);
                    (statement.clone(), sources)
                };
                let dtypes = DType::ALL.map(|dtype| with(&|source| source.dtype = dtype));
                let shapes: [&dyn Fn(&mut TensorType); 4] = [
                    &|source| source.shape.push(1),
                    &|source| source.shape.truncate(source.shape.len().saturating_sub(1)),
                    &|source| source.shape.iter_mut().for_each(|size| *size += 1),
                    &|source| source.shape.iter_mut().for_each(|size| *size = 0),
                ];
                dtypes.into_iter().chain(shapes.map(with))
            })
            .chain(arguments(statement, sources))
            .filter(|(statement, _)| !is_too_large_here(statement))
    })
}

/// The statements on sources of about as many elements as a tensor may have: all axes that are
/// longer than 1 have the same size, or each is longer by a factor.
pub(super) fn large() -> impl Iterator<Item = Legal> {
    legal().iter().flat_map(|(statement, sources)| {
        let with = move |change: &dyn Fn(&mut usize)| {
            let mut sources = sources.clone();
            let sizes = sources.iter_mut().flat_map(|source| &mut source.shape);
            sizes.filter(|size| 1 < **size).for_each(change);
            let count = |source: &TensorType| {
                source.shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size))
            };
            let fits = |source| count(source).is_some_and(|count| count <= LARGE_ELEMENTS);
            sources.iter().all(fits).then(|| (statement.clone(), sources))
        };
        let equal = LARGE_SIZES.into_iter().filter_map(move |large| with(&|size| *size = large));
        let longer = LARGE_FACTORS
            .into_iter()
            .filter_map(move |factor| with(&|size| *size = size.saturating_mul(factor)));
        equal.chain(longer)
    })
}

/// Sizes of large sources, and factors of sizes.
const LARGE_SIZES: [usize; 5] = [1 << 8, 1 << 10, 1 << 13, 1 << 20, 1 << 40];
const LARGE_FACTORS: [usize; 3] = [1 << 12, 1 << 18, 1 << 35];
/// The elements that a tensor may have.
const LARGE_ELEMENTS: usize = 1 << 40;

/// Numbers that arguments are replaced by.
const NUMBERS: [Literal; 10] = [
    Literal::Int(-1),
    Literal::Int(0),
    Literal::Int(1),
    Literal::Float(-0.0),
    Literal::Float(-1e-3),
    Literal::Float(0.5),
    Literal::Float(1.5),
    Literal::Float(f64::NAN),
    Literal::Float(f64::INFINITY),
    Literal::Float(1e39),
];
/// The farthest step from a legal integer to its limit: the API's limit of elements is larger than
/// the corpus'.
const FARTHEST: i64 = 1000;

/// The ordinal of a float among all floats from -infinity to infinity; 0 for zero.
fn ordinal(number: f64) -> i128 {
    let bits = i128::from(number.abs().to_bits());
    if number.is_sign_negative() { -bits } else { bits }
}

/// The float of an ordinal.
fn at_ordinal(ordinal: i128) -> f64 {
    let magnitude = f64::from_bits(ordinal.unsigned_abs() as u64);
    if ordinal < 0 { -magnitude } else { magnitude }
}

/// The statement with each argument changed: integers and numbers to both sides of each limit,
/// numbers to each kind as well, dtypes to all.
fn arguments(statement: &Statement, sources: &[TensorType]) -> Vec<Legal> {
    let Statement::Method { args, .. } = statement else { return Vec::new() };
    let with = |at: usize, arg: Arg| {
        let mut statement = statement.clone();
        if let Statement::Method { args, .. } = &mut statement {
            args[at] = arg;
        }
        (statement, sources.to_vec())
    };
    let is_legal =
        |(statement, sources): &Legal| gradiff_corpus::statement_type(statement, sources).is_ok();
    let integers = |at: usize, start: i64, arg: &dyn Fn(i64) -> Arg| -> Vec<Legal> {
        let mut found: Vec<i64> = [-1, 1].map(|step| start.saturating_add(step)).to_vec();
        found.extend([0, -1]);
        for sign in [1, -1] {
            let (mut inside, mut step) = (start, 1);
            let moved = |inside: i64, step: i64| inside.saturating_add(sign * step);
            let fits = |value: i64| is_legal(&with(at, arg(value)));
            while step <= FARTHEST && fits(moved(inside, step)) {
                (inside, step) = (moved(inside, step), 2 * step);
            }
            while 1 < step {
                step /= 2;
                inside = if fits(moved(inside, step)) { moved(inside, step) } else { inside };
            }
            found.extend([inside, moved(inside, 1)]);
        }
        found.into_iter().map(|value| with(at, arg(value))).collect()
    };
    let numbers = |at: usize, start: f64| -> Vec<Legal> {
        let with = |number: Literal| with(at, Arg::Number(number));
        let fits = |number: f64| is_legal(&with(Literal::Float(number)));
        let mut found = NUMBERS.map(with).to_vec();
        if !fits(start) {
            return found;
        }
        // The last legal number before each one that is illegal, and the first illegal one.
        for far in [f64::MAX, -f64::MAX, 0.0, 1.0].into_iter().filter(|far| !fits(*far)) {
            let (mut inside, mut outside) = (ordinal(start), ordinal(far));
            while 1 < inside.abs_diff(outside) {
                let middle = i128::midpoint(inside, outside);
                *if fits(at_ordinal(middle)) { &mut inside } else { &mut outside } = middle;
            }
            let both = [inside, outside].map(at_ordinal);
            found.extend(both.map(|number| with(Literal::Float(number))));
        }
        found
    };
    let each = |(at, arg): (usize, &Arg)| -> Vec<Legal> {
        match arg {
            Arg::Number(Literal::Int(start)) => {
                let of_integers = |value: i64| Arg::Number(Literal::Int(value.into()));
                let nearest = i64::try_from(*start).unwrap_or(i64::MAX);
                [numbers(at, *start as f64), integers(at, nearest, &of_integers)].concat()
            }
            Arg::Number(Literal::Float(start)) => numbers(at, *start),
            Arg::Number(Literal::Bool(_)) => NUMBERS.map(|it| with(at, Arg::Number(it))).to_vec(),
            Arg::Int(start) => integers(at, *start, &Arg::Int),
            Arg::Ints(list) => (0..list.len())
                .flat_map(|position| {
                    integers(at, list[position], &|value| {
                        let mut list = list.clone();
                        list[position] = value;
                        Arg::Ints(list)
                    })
                })
                .collect(),
            Arg::DType(_) => DType::ALL.map(|dtype| with(at, Arg::DType(dtype))).to_vec(),
            Arg::Flag(value) => vec![with(at, Arg::Flag(!value))],
            Arg::Word(_) | Arg::Indices(_) => Vec::new(),
        }
    };
    args.iter().enumerate().flat_map(each).collect()
}

/// The first statement of each name on its smallest sources, where that is legal: all axes of all
/// sources, or of one of them, of one size, or one axis; and each legal statement of the sweep.
/// Results are small. Statements that change their source come last.
pub(super) fn small() -> impl Iterator<Item = Program> {
    let mut names = BTreeSet::new();
    let first = legal().iter().filter(move |(known, _)| names.insert(gradiff_corpus::name(known)));
    let resized = first.flat_map(|(statement, sources)| {
        let with = move |change: &dyn Fn(&mut [TensorType])| {
            let mut sources = sources.clone();
            change(&mut sources);
            (statement.clone(), sources)
        };
        let mut found = Vec::new();
        for size in SMALL_SIZES {
            found.push(with(&|list| list.iter_mut().for_each(|source| source.shape.fill(size))));
            for (at, source) in sources.iter().enumerate() {
                found.push(with(&|list| list[at].shape.fill(size)));
                let axes = 0..source.shape.len();
                found.extend(axes.map(|axis| with(&|list| list[at].shape[axis] = size)));
            }
        }
        found
    });
    let (in_place, pure): (Vec<Legal>, Vec<Legal>) =
        resized.chain(sweep()).partition(|(statement, _)| is_in_place(statement));
    pure.into_iter().chain(in_place).flat_map(|legal| {
        let has_floats = legal.1.iter().any(|source| source.dtype.is_float());
        let edges = has_floats.then_some(Distribution::Special);
        let floats = [Some(Distribution::Unit), edges].into_iter().flatten();
        floats.filter_map(move |floats| program(legal.clone(), floats)).collect::<Vec<_>>()
    })
}

/// Sizes of small sources.
const SMALL_SIZES: [usize; 3] = [0, 1, 2];

/// A program of a legal statement of few elements on data, the floats of this distribution.
fn program((statement, sources): Legal, floats: Distribution) -> Option<Program> {
    let result = gradiff_corpus::statement_type(&statement, &sources).ok()?;
    if MAX < result.count() || sources.iter().any(|source| MAX < source.count()) {
        return None;
    }
    let mut outputs = vec![ValueId(sources.len() as u32)];
    if is_in_place(&statement) {
        // The source keeps its elements.
        outputs.push(ValueId(0));
    }
    let input = |(at, source): (u64, TensorType)| Statement::Input {
        fill: match source.dtype.is_float() {
            true => Fill::Seeded { seed: at, distribution: floats },
            // Positions and numbers of bits are small.
            false => Fill::Iota,
        },
        dtype: source.dtype,
        shape: source.shape,
    };
    let inputs = (0..).zip(sources).map(input);
    let statements = inputs.chain([statement]).collect();
    Some(Program { statements, outputs })
}

/// Returns whether the statement changes its first source.
fn is_in_place(statement: &Statement) -> bool {
    matches!(statement, Statement::Method { method, .. } if method.is_in_place())
}

/// Changes an axis, or adds or removes one.
fn resize(draw: &mut Draw, source: &mut TensorType) {
    let shape = &mut source.shape;
    let axis = draw.below(shape.len() + 1);
    match draw.below(4) {
        0 => shape.insert(axis, draw.pick(&[1, 1, 2, 0])),
        _ if axis == shape.len() => {}
        1 => drop(shape.remove(axis)),
        2 => shape[axis] += 1,
        _ => shape[axis] = draw.pick(&[0, 1, 2]),
    }
}

/// Changes an argument a little.
fn change(draw: &mut Draw, statement: &mut Statement) {
    let by = draw.pick(&[-1, 1, 2, -2]);
    match statement {
        Statement::Cat { axis, .. } | Statement::Gather { axis, .. } => *axis += 1,
        Statement::Method { method, args, .. } if !args.is_empty() => {
            let number = draw.below(args.len());
            // Several lists of these are a single one for the API.
            let is_list = !matches!(
                method,
                Method::Slice
                    | Method::AssignSlice
                    | Method::PadReflect
                    | Method::PadReplicate
                    | Method::PadCircular
            );
            match &mut args[number] {
                Arg::Int(value) => *value = value.wrapping_add(by),
                Arg::Ints(values) if !values.is_empty() => match draw.below(4) {
                    0 if is_list => drop(values.pop()),
                    1 if is_list => values.push(values[0]),
                    _ => {
                        let at = draw.below(values.len());
                        values[at] = values[at].wrapping_add(by);
                    }
                },
                Arg::Flag(value) => *value = !*value,
                Arg::Number(value) => *value = Literal::Int(draw.pick(&[0, 1, -1, 3])),
                Arg::DType(dtype) => *dtype = draw.pick(&DType::ALL),
                Arg::Ints(_) | Arg::Word(_) | Arg::Indices(_) => {}
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_programs_have_statements_in_place() {
        let programs: Vec<Program> = small().collect();
        for method in [Method::Assign, Method::AssignSlice, Method::Set] {
            let has_method = |program: &&Program| {
                let last = program.statements.last();
                last.is_some_and(|last| gradiff_corpus::name(last) == method.row().name)
            };
            let count = programs.iter().filter(has_method).count();
            assert!(count > 0, "no small program has {}", method.row().name);
        }
    }
}
