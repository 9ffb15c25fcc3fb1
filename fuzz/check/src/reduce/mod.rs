//! Makes a failing program smaller, as long as it still fails in the same way.
//!
//! The search is greedy and deterministic. It tries candidates in a fixed order, the largest
//! changes first, and begins anew after each success, until no candidate fails or the budget is
//! spent. Every candidate is well-typed and without dead statements. It is also strictly simpler by
//! [`cost`], so the search terminates.

pub(crate) mod simpler;
mod sizes;

use std::collections::HashSet;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher};

use gradiff_corpus::{
    Arg, Arity, DType, Distribution, Fill, Index, Literal, Operand, Program, Statement, TensorType,
    ValueId,
};

use crate::judge::agree::expectation;
use crate::judge::replaced::values;

/// Largest number of elements that are written out as the data of an input.
const DATA_MAX: usize = 128;
/// Largest number of different elements with which written data are plainer than seeded ones.
const DIFFERENT_MAX: usize = 8;
/// Largest number of elements of a program that is evaluated for its values.
const EVALUATED_MAX: usize = 1 << 16;

/// Returns the smallest program found for which `fails` is still true, after at most `budget` calls
/// of `fails`, or when `is_over`. For the given program it must be true.
pub fn reduce(
    program: &Program,
    budget: usize,
    is_over: &dyn Fn() -> bool,
    fails: &mut dyn FnMut(&Program) -> bool,
) -> Program {
    let mut best = program.without_dead();
    if best != *program && (is_over() || !fails(&best)) {
        best = program.clone();
    }
    let is_tried = |candidate: &Program, best: &Program| {
        cost(candidate) < cost(best) && candidate.typing().is_ok()
    };
    smallest(best, budget, &candidates, &is_tried, is_over, fails)
}

/// Returns the last case that still fails on the way from `best` to simpler ones: the first of the
/// candidates that is tried and fails is taken, until none does, `budget` calls are made, or
/// `is_over`. A candidate that did not fail is not tried again.
fn smallest<T: Debug>(
    mut best: T,
    budget: usize,
    candidates: &dyn Fn(&T) -> Vec<T>,
    is_tried: &dyn Fn(&T, &T) -> bool,
    is_over: &dyn Fn() -> bool,
    fails: &mut dyn FnMut(&T) -> bool,
) -> T {
    let mut left = budget;
    // Most candidates of a case are candidates of the next one, too.
    let mut passed = HashSet::new();
    'again: loop {
        if is_over() {
            return best;
        }
        for candidate in candidates(&best) {
            if left == 0 || is_over() {
                return best;
            }
            if !is_tried(&candidate, &best) {
                continue;
            }
            let text = hash_of_text(&candidate);
            if passed.contains(&text) {
                continue;
            }
            left -= 1;
            if fails(&candidate) {
                best = candidate;
                continue 'again;
            }
            passed.insert(text);
        }
        return best;
    }
}

/// A hash of the text of a case. Of two cases with one hash, one is not tried.
fn hash_of_text(case: &impl Debug) -> u64 {
    struct Text(DefaultHasher);
    impl std::fmt::Write for Text {
        fn write_str(&mut self, part: &str) -> std::fmt::Result {
            self.0.write(part.as_bytes());
            Ok(())
        }
    }
    let mut text = Text(DefaultHasher::new());
    std::fmt::Write::write_fmt(&mut text, format_args!("{case:?}")).expect("a hash takes any text");
    text.0.finish()
}

/// The complexity of a program, compared in this order: the numbers of statements that compute, of
/// statements, of outputs, of elements (with the axes), and the sum of [`oddity`].
fn cost(program: &Program) -> (usize, usize, usize, usize, usize) {
    let is_leaf = |statement: &&Statement| {
        matches!(
            statement,
            Statement::Input { .. } | Statement::Const { .. } | Statement::Arange { .. }
        )
    };
    let leaves = program.statements.iter().filter(is_leaf).count();
    let elements = program
        .typing()
        .map_or(usize::MAX, |types| types.iter().map(|t| 1 + t.count() + t.shape.len()).sum());
    let oddity = program.statements.iter().map(oddity).sum();
    let statements = program.statements.len();
    (statements - leaves, statements, program.outputs.len(), elements, oddity)
}

/// The distance of a statement from the plainest one of its kind. Literals other than 0, data other
/// than iota, dtypes other than f32 and i32, and the entries of lists count.
fn oddity(statement: &Statement) -> usize {
    let operand = |operand: &Operand| match operand {
        Operand::Literal(value) => literal_oddity(value),
        Operand::Value(_) => 0,
    };
    match statement {
        Statement::Input { dtype, fill, .. } => {
            let fill = match fill {
                Fill::Iota => 0,
                Fill::Seeded { seed: 0, distribution: Distribution::Small } => 1,
                Fill::Explicit(bits) => 1 + bits.iter().collect::<HashSet<_>>().len(),
                Fill::Seeded { .. } => 2 + DIFFERENT_MAX,
            };
            fill + dtype_oddity(*dtype)
        }
        Statement::Const { dtype, value, .. } => literal_oddity(value) + dtype_oddity(*dtype),
        Statement::Arange { dtype, start, step, .. } => {
            usize::from(*start != 0) + usize::from(*step != 1) + dtype_oddity(*dtype)
        }
        Statement::Cast { dtype, .. } => dtype_oddity(*dtype),
        Statement::Binary { srcs, .. } => srcs.iter().map(operand).sum(),
        Statement::Where { srcs } | Statement::MulAcc { srcs } => srcs.iter().map(operand).sum(),
        Statement::Pad { pads, value, .. } => {
            literal_oddity(value) + pads.iter().filter(|pad| **pad != (0, 0)).count()
        }
        Statement::Reduce { axes, .. } | Statement::Flip { axes, .. } => axes.len(),
        Statement::Cat { srcs, .. } => srcs.len(),
        Statement::Method { args, .. } => args.iter().map(arg_oddity).sum(),
        _ => 0,
    }
}

/// The distance of a literal from 0.
fn literal_oddity(literal: &Literal) -> usize {
    match literal {
        Literal::Int(0) | Literal::Bool(false) => 0,
        Literal::Float(x) if x.to_bits() == 0 => 0,
        Literal::Int(1) | Literal::Bool(true) => 1,
        Literal::Float(x) if *x == 1.0 => 1,
        _ => 2,
    }
}

/// The plainest word of each list that a row of the table of methods has.
const PLAIN_WORDS: [&str; 3] = ["sum", "nearest", "ij"];

/// The distance of an argument from the plainest one of its kind.
fn arg_oddity(arg: &Arg) -> usize {
    let int = |value: i64| usize::from(value != 0) + usize::from(value < 0);
    match arg {
        Arg::Int(value) => int(*value),
        Arg::Ints(values) => values.len() + values.iter().map(|value| int(*value)).sum::<usize>(),
        Arg::Flag(value) => usize::from(*value),
        Arg::Number(value) => literal_oddity(value),
        Arg::DType(dtype) => dtype_oddity(*dtype),
        Arg::Word(word) => usize::from(!PLAIN_WORDS.contains(word)),
        Arg::Indices(indices) => indices
            .iter()
            .map(|index| match index {
                Index::Position(number) => 1 + int(*number),
                Index::Slice { start, stop, step } => {
                    let ends = start.iter().chain(stop).map(|end| 1 + int(*end)).sum::<usize>();
                    1 + ends + int(*step - i64::from(*step == 1))
                }
                Index::NewAxis | Index::Ellipsis => 2,
                Index::Source => 3,
            })
            .sum(),
    }
}

/// Plainer arguments of the same kind.
fn plainer_args(arg: &Arg) -> Vec<Arg> {
    let ints = |value: i64| [0, 1, value / 2, value.saturating_neg()];
    match arg {
        Arg::Int(value) => ints(*value).map(Arg::Int).to_vec(),
        Arg::Ints(values) => {
            let mut lists = Vec::new();
            for position in 0..values.len() {
                let mut shorter = values.clone();
                shorter.remove(position);
                lists.push(Arg::Ints(shorter));
                lists.extend(ints(values[position]).map(|plain| {
                    let mut list = values.clone();
                    list[position] = plain;
                    Arg::Ints(list)
                }));
            }
            lists
        }
        Arg::Flag(_) => vec![Arg::Flag(false)],
        Arg::Number(literal) => plainer(*literal).into_iter().map(Arg::Number).collect(),
        Arg::DType(_) => [DType::F32, DType::I32].map(Arg::DType).to_vec(),
        Arg::Word(_) => PLAIN_WORDS.map(Arg::Word).to_vec(),
        Arg::Indices(indices) => {
            let mut lists = Vec::new();
            for (position, index) in indices.iter().enumerate() {
                let with = |plain: &[Index]| {
                    let mut list = indices.clone();
                    list.splice(position..=position, plain.iter().copied());
                    Arg::Indices(list)
                };
                lists.extend([with(&[]), with(&[Index::WHOLE]), with(&[Index::Position(0)])]);
                match *index {
                    Index::Position(number) => {
                        lists.extend(ints(number).map(|plain| with(&[Index::Position(plain)])))
                    }
                    Index::Slice { start, stop, step } => {
                        let ends = [(None, stop, step), (start, None, step), (start, stop, 1)];
                        let slice = |(start, stop, step)| Index::Slice { start, stop, step };
                        lists.extend(ends.map(|ends| with(&[slice(ends)])));
                    }
                    _ => {}
                }
            }
            lists
        }
    }
}

fn dtype_oddity(dtype: DType) -> usize {
    usize::from(dtype != DType::F32 && dtype != DType::I32)
}

/// The programs to try, those with the largest changes first. Not all of them are well-typed or
/// simpler.
fn candidates(program: &Program) -> Vec<Program> {
    let Ok(types) = program.typing() else { return Vec::new() };
    let mut candidates = Vec::new();
    if program.outputs.len() > 1 {
        for output in &program.outputs {
            candidates.push(Program { outputs: vec![*output], ..program.clone() });
        }
    }
    outputs_earlier(program, &mut candidates);
    statements_bypassed(program, &types, &mut candidates);
    statements_as_inputs(program, &types, &mut candidates);
    statements_as_values(program, &types, &mut candidates);
    sizes::smaller(program, &mut candidates);
    sizes::movements_bypassed(program, &mut candidates);
    sizes::axes_smaller(program, &mut candidates);
    data_plainer(program, &mut candidates);
    statements_simpler(program, &mut candidates);
    dtypes_plainer(program, &mut candidates);
    candidates.iter().map(Program::without_dead).collect()
}

/// Adds programs in which an output is replaced by a source of its statement.
fn outputs_earlier(program: &Program, candidates: &mut Vec<Program>) {
    for (position, output) in program.outputs.iter().enumerate() {
        program.statements[output.0 as usize].for_each_source(|source| {
            let mut candidate = program.clone();
            candidate.outputs[position] = source;
            candidates.push(candidate);
        });
    }
}

/// Adds programs in which the users of a statement use an earlier value of the same type instead.
fn statements_bypassed(program: &Program, types: &[TensorType], candidates: &mut Vec<Program>) {
    for number in (0..program.statements.len()).rev() {
        let sources = program.statements[number].sources();
        for id in sources.into_iter().chain((0..number as u32).map(ValueId)) {
            if types[id.0 as usize] == types[number] {
                candidates.push(replaced(program, number, id));
            }
        }
    }
}

/// The program in which every use of the value of a statement is replaced by another value.
fn replaced(program: &Program, number: usize, by: ValueId) -> Program {
    let mut candidate = program.clone();
    let mut replace = |id: ValueId| if id.0 as usize == number { by } else { id };
    for statement in &mut candidate.statements[number + 1..] {
        statement.map_sources(&mut replace);
    }
    candidate.outputs.iter_mut().for_each(|id| *id = replace(*id));
    candidate
}

/// Adds programs in which a statement is replaced by an input of its type.
fn statements_as_inputs(program: &Program, types: &[TensorType], candidates: &mut Vec<Program>) {
    let fills = [
        Fill::Iota,
        Fill::Seeded { seed: 0, distribution: Distribution::Small },
        Fill::Seeded { seed: 0, distribution: Distribution::Wide },
        Fill::Seeded { seed: 0, distribution: Distribution::Special },
    ];
    for number in (0..program.statements.len()).rev() {
        if matches!(program.statements[number], Statement::Input { .. }) {
            continue;
        }
        let TensorType { dtype, shape } = types[number].clone();
        for fill in fills.clone() {
            let mut candidate = program.clone();
            candidate.statements[number] = Statement::Input { dtype, shape: shape.clone(), fill };
            candidates.push(candidate);
        }
    }
}

/// Adds programs in which a statement of few elements is replaced by an input that has its values,
/// where the oracle knows them. It is not asked about large programs, which take it long.
fn statements_as_values(program: &Program, types: &[TensorType], candidates: &mut Vec<Program>) {
    if EVALUATED_MAX < types.iter().map(TensorType::count).sum::<usize>() {
        return;
    }
    let is_chosen = |number: &usize| {
        !matches!(program.statements[*number], Statement::Input { .. })
            && types[*number].count() <= DATA_MAX
    };
    let numbers: Vec<usize> = (0..program.statements.len()).rev().filter(is_chosen).collect();
    let outputs = numbers.iter().map(|number| ValueId(*number as u32)).collect();
    let evaluated = Program { outputs, ..program.clone() }.without_dead();
    let Ok(expected) = expectation(&evaluated) else { return };
    for (number, expected) in numbers.into_iter().zip(expected) {
        let Some(bits) = values(&expected) else { continue };
        let TensorType { dtype, shape } = types[number].clone();
        let mut candidate = program.clone();
        candidate.statements[number] =
            Statement::Input { dtype, shape, fill: Fill::Explicit(bits) };
        candidates.push(candidate);
    }
}

/// The different elements, in the order in which they occur first.
fn different(bits: &[u64]) -> Vec<u64> {
    let mut different: Vec<u64> = Vec::new();
    for bits in bits {
        if !different.contains(bits) {
            different.push(*bits);
        }
    }
    different
}

/// Adds programs in which an input has only one half of its different elements, again and again.
fn data_plainer(program: &Program, candidates: &mut Vec<Program>) {
    for (number, statement) in program.statements.iter().enumerate() {
        let Statement::Input { dtype, shape, fill } = statement else { continue };
        let count: usize = shape.iter().product();
        if matches!(fill, Fill::Iota) || DATA_MAX < count {
            continue;
        }
        let different = different(&gradiff_corpus::fill(*dtype, shape, fill).bits);
        if different.len() < 2 {
            continue;
        }
        let (first, second) = different.split_at(different.len() / 2);
        for half in [first, second] {
            let bits = half.iter().copied().cycle().take(count).collect();
            let mut candidate = program.clone();
            candidate.statements[number] = Statement::Input {
                dtype: *dtype,
                shape: shape.clone(),
                fill: Fill::Explicit(bits),
            };
            candidates.push(candidate);
        }
    }
}

/// Adds programs in which the contents of a statement are plainer.
fn statements_simpler(program: &Program, candidates: &mut Vec<Program>) {
    for number in 0..program.statements.len() {
        for statement in simpler(&program.statements[number]) {
            let mut candidate = program.clone();
            candidate.statements[number] = statement;
            candidates.push(candidate);
        }
    }
}

/// Removes a source of a list, and the index that it is.
fn remove_source(srcs: &mut Vec<ValueId>, args: &mut [Arg], position: usize) {
    for arg in args {
        if let Arg::Indices(indices) = arg {
            let is_source = |(_, index): &(usize, &Index)| **index == Index::Source;
            let positions: Vec<usize> =
                indices.iter().enumerate().filter(is_source).map(|(at, _)| at).collect();
            let named = srcs.len().saturating_sub(positions.len());
            if let Some(at) = position.checked_sub(named).and_then(|number| positions.get(number)) {
                indices.remove(*at);
            }
        }
    }
    srcs.remove(position);
}

/// The statement with plainer contents, in several ways.
fn simpler(statement: &Statement) -> Vec<Statement> {
    let mut candidates = Vec::new();
    let mut copy = |change: &dyn Fn(&mut Statement)| {
        let mut copy = statement.clone();
        change(&mut copy);
        candidates.push(copy);
    };
    match statement {
        Statement::Input { .. } => {
            let small = Fill::Seeded { seed: 0, distribution: Distribution::Small };
            for plain in [Fill::Iota, small] {
                copy(&|s| {
                    if let Statement::Input { fill, .. } = s {
                        *fill = plain.clone();
                    }
                });
            }
        }
        Statement::Arange { start, step, .. } => {
            for plain in [(0, 1), (0, *step), (*start, 1)] {
                copy(&|s| {
                    if let Statement::Arange { start, step, .. } = s {
                        (*start, *step) = plain;
                    }
                });
            }
        }
        Statement::Pad { pads, .. } => {
            for axis in 0..pads.len() {
                for to in [(0, 0), (1, 0), (0, 1)] {
                    copy(&|s| {
                        if let Statement::Pad { pads, .. } = s {
                            pads[axis] = to;
                        }
                    });
                }
            }
        }
        Statement::Reduce { axes, .. } | Statement::Flip { axes, .. } => {
            for position in 0..axes.len() {
                copy(&|s| {
                    if let Statement::Reduce { axes, .. } | Statement::Flip { axes, .. } = s {
                        axes.remove(position);
                    }
                });
            }
        }
        Statement::Method { method, srcs, args } => {
            if method.row().arity == Arity::List && srcs.len() > 1 {
                for position in 0..srcs.len() {
                    copy(&|s| {
                        if let Statement::Method { srcs, args, .. } = s {
                            remove_source(srcs, args, position);
                        }
                    });
                }
            }
            let arity = method.row().arity;
            if matches!(arity, Arity::Between(..)) && arity.takes(srcs.len() - 1) {
                copy(&|s| {
                    if let Statement::Method { srcs, .. } = s {
                        srcs.pop();
                    }
                });
            }
            for (position, arg) in args.iter().enumerate() {
                for plain in plainer_args(arg) {
                    copy(&|s| {
                        if let Statement::Method { args, .. } = s {
                            args[position] = plain.clone();
                        }
                    });
                }
            }
        }
        Statement::Cat { srcs, .. } if srcs.len() > 1 => {
            for position in 0..srcs.len() {
                copy(&|s| {
                    if let Statement::Cat { srcs, .. } = s {
                        srcs.remove(position);
                    }
                });
            }
        }
        _ => {}
    }
    for (position, literal) in literals(statement).into_iter().enumerate() {
        for plain in plainer(literal) {
            copy(&|s| {
                if let Some(literal) = literals_mut(s).into_iter().nth(position) {
                    *literal = plain;
                }
            });
        }
    }
    candidates
}

fn literals(statement: &Statement) -> Vec<Literal> {
    literals_mut(&mut statement.clone()).into_iter().map(|literal| *literal).collect()
}

fn literals_mut(statement: &mut Statement) -> Vec<&mut Literal> {
    fn literal(operand: &mut Operand) -> Option<&mut Literal> {
        match operand {
            Operand::Literal(literal) => Some(literal),
            Operand::Value(_) => None,
        }
    }
    match statement {
        Statement::Const { value, .. } | Statement::Pad { value, .. } => vec![value],
        Statement::Binary { srcs, .. } => srcs.iter_mut().filter_map(literal).collect(),
        Statement::Where { srcs } | Statement::MulAcc { srcs } => {
            srcs.iter_mut().filter_map(literal).collect()
        }
        _ => Vec::new(),
    }
}

/// The plainest literals of the same kind.
fn plainer(literal: Literal) -> Vec<Literal> {
    match literal {
        Literal::Bool(_) => vec![Literal::Bool(false)],
        Literal::Int(_) => vec![Literal::Int(0), Literal::Int(1)],
        Literal::Float(_) => vec![Literal::Float(0.0), Literal::Float(1.0)],
    }
}

/// Adds programs in which a dtype is replaced by a plainer one wherever it occurs.
fn dtypes_plainer(program: &Program, candidates: &mut Vec<Program>) {
    for from in DType::ALL.into_iter().filter(|dtype| dtype_oddity(*dtype) > 0) {
        for to in [DType::I32, DType::F32] {
            let mut candidate = program.clone();
            let mut is_changed = false;
            for statement in &mut candidate.statements {
                match statement {
                    Statement::Input { fill: Fill::Explicit(_), .. } => {}
                    Statement::Input { dtype, .. }
                    | Statement::Const { dtype, .. }
                    | Statement::Arange { dtype, .. }
                    | Statement::Cast { dtype, .. }
                        if *dtype == from =>
                    {
                        *dtype = to;
                        is_changed = true;
                    }
                    _ => {}
                }
            }
            if is_changed {
                candidates.push(candidate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_corpus::{BinaryOp, Case, UnaryOp};

    fn input(shape: &[usize]) -> Statement {
        Statement::Input { dtype: DType::F32, shape: shape.to_vec(), fill: Fill::Iota }
    }

    #[test]
    fn reduce_keeps_only_the_wrong_statement() {
        let value = |id| Operand::Value(ValueId(id));
        let program = Program {
            statements: vec![
                input(&[4, 6]),
                Statement::Unary { op: UnaryOp::Neg, src: ValueId(0) },
                Statement::Binary { op: BinaryOp::Mul, srcs: [value(0), value(1)] },
                Statement::Flip { src: ValueId(2), axes: vec![0, 1] },
                Statement::Unary { op: UnaryOp::Sqrt, src: ValueId(3) },
                Statement::Binary { op: BinaryOp::Add, srcs: [value(4), value(0)] },
            ],
            outputs: vec![ValueId(5), ValueId(2)],
        };
        let (mut calls, mut tried) = (0, HashSet::new());
        let small = reduce(&program, 10_000, &|| false, &mut |candidate| {
            calls += 1;
            assert!(tried.insert(candidate.to_string()), "tried twice:\n{candidate}");
            candidate.statements.iter().any(|s| matches!(s, Statement::Flip { .. }))
        });
        assert_eq!(small.statements.len(), 2, "{small:?}");
        assert_eq!(small.outputs, vec![ValueId(1)]);
        assert!(small.typing().is_ok_and(|types| types[1].count() == 1), "{small:?}");
        assert!(calls < 500, "{calls}");
    }

    fn parsed(text: &str) -> Program {
        match gradiff_corpus::parse(text).unwrap().case {
            Case::Program(program) => program,
            case => panic!("{case:?}"),
        }
    }

    /// The first source of a statement has this element.
    fn is_met(program: &Program, number: usize, bits: u64) -> bool {
        let sources = program.statements[number].sources();
        let Some(source) = sources.first() else { return false };
        let outputs = vec![*source];
        let expected = expectation(&Program { outputs, ..program.clone() }).unwrap();
        values(&expected[0]).unwrap().contains(&bits)
    }

    #[test]
    fn values_that_fail_become_the_data_of_an_input() {
        // Only the product of the last elements is wrong for `neg`.
        let text = "a = input i32[2,3] [1, 2, 3, 4, 5, 70000]\nb = permute a axes=[1,0]\n\
                    c = cast b i64\nd = mul c c\ne = neg d\nf = add e 1\noutput f";
        let program = parsed(text);
        let small = reduce(&program, 600, &|| false, &mut |candidate| {
            (0..candidate.statements.len()).any(|number| {
                matches!(candidate.statements[number], Statement::Unary { op: UnaryOp::Neg, .. })
                    && is_met(candidate, number, 4_900_000_000)
            })
        });
        let expected = "a = input i64[] [4900000000]\nb = neg a\noutput b";
        assert_eq!(small, parsed(expected), "{small}");
    }

    #[test]
    fn seeded_data_become_the_element_that_fails() {
        let text = "a = input u8[40] seeded(7, wide)\nb = neg a\noutput b";
        let program = parsed(text);
        let last = gradiff_corpus::fill(
            DType::U8,
            &[40],
            &Fill::Seeded { seed: 7, distribution: Distribution::Wide },
        );
        let last = *last.bits.last().unwrap();
        let small = reduce(&program, 600, &|| false, &mut |candidate| {
            candidate.statements.len() == 2 && is_met(candidate, 1, last)
        });
        let Statement::Input { fill: Fill::Explicit(bits), .. } = &small.statements[0] else {
            panic!("{small}")
        };
        assert_eq!(bits, &vec![last], "{small}");
    }

    #[test]
    fn numbers_and_dtypes_that_do_not_matter_become_plain() {
        for (text, expected) in [
            ("a = input f32[2] iota\nb = leaky_relu a slope=0.37\n", "leaky_relu a slope=0.0"),
            ("a = arange i32[3] start=7 step=-2\nb = neg a\n", "start=0 step=1"),
            ("a = input f32[2] iota\nb = cast a f64\n", "cast a i32"),
        ] {
            let program = parsed(&format!("{text}output b"));
            let kinds = |program: &Program| {
                let kinds = program.statements.iter().map(std::mem::discriminant);
                kinds.collect::<Vec<_>>()
            };
            let small = reduce(&program, 600, &|| false, &mut |candidate| {
                kinds(candidate) == kinds(&program)
            });
            assert!(small.to_string().contains(expected), "{small}");
        }
    }

    #[test]
    fn reduce_stops_at_its_budget() {
        let program = Program { statements: vec![input(&[8])], outputs: vec![ValueId(0); 3] };
        let mut calls = 0;
        reduce(&program, 2, &|| false, &mut |_| {
            calls += 1;
            true
        });
        assert_eq!(calls, 2);
    }

    #[test]
    fn reduce_ends_when_it_is_over() {
        let text = "a = input f32[8] iota\nb = neg a\nc = sqrt a\noutput b";
        let program = parsed(text);
        let small = reduce(&program, 600, &|| true, &mut |_| panic!("it is over"));
        assert_eq!(small, program);
        // After the second call.
        let calls = std::cell::Cell::new(0);
        reduce(&program, 600, &|| calls.get() == 2, &mut |_| {
            calls.set(calls.get() + 1);
            true
        });
        assert_eq!(calls.get(), 2);
    }

    #[test]
    fn large_programs_are_not_evaluated_for_their_values() {
        for (size, is_evaluated) in [(1 << 10, true), (1 << 17, false)] {
            let text = format!("a = input i32[{size}] iota\nb = sum a axes=[0]\noutput b");
            let program = parsed(&text);
            let mut candidates = Vec::new();
            statements_as_values(&program, &program.typing().unwrap(), &mut candidates);
            assert_eq!(!candidates.is_empty(), is_evaluated, "{size}");
        }
    }
}
