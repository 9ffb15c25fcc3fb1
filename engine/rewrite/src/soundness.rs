//! Every row, checked: instantiated with constants and variables around zero and at the ends of
//! 8-bit types, and both sides compared point by point wherever the rule fires.

use std::sync::Arc;

use gradiff_graph::{Arg, Constant, DType, Op, Sources, UOp, Variable, evaluate};
use rustc_hash::FxHashMap;

use crate::driver::{Options, Scope, Trace};
use crate::pattern::{Bindings, Pattern, SLOTS, Slots};
use crate::rule::{Claim, Rule, Types, row};
use crate::ruleset::RuleSet;

fn variable(dtype: DType, name: usize, (min, max): (i64, i64)) -> UOp {
    let variable = Variable { name: format!("v{name}"), min, max };
    UOp::new(Op::DefineVar, dtype, Sources::new(), Arg::Var(Arc::new(variable)))
}

/// The value of a node; `None` if it is undefined.
fn value(root: &UOp, given: &FxHashMap<UOp, Constant>) -> Option<Constant> {
    let mut values: FxHashMap<UOp, Option<Constant>> = FxHashMap::default();
    for node in root.toposort() {
        let found = match node.as_const().or_else(|| given.get(&node).copied()) {
            Some(constant) => Some(constant),
            // The branch that is not taken may be undefined.
            None if node.op() == Op::Where => match values[&node.src()[0]] {
                Some(condition) => values[&node.src()[if condition.is_true() { 1 } else { 2 }]],
                None => None,
            },
            None => {
                let src: Option<Vec<Constant>> = node.src().iter().map(|s| values[s]).collect();
                src.and_then(|src| evaluate(node.op(), node.dtype(), &src))
            }
        };
        values.insert(node, found);
    }
    values[root]
}

fn is_as_claimed(claim: Claim, left: Constant, right: Constant) -> bool {
    match (left.to_float(), right.to_float()) {
        (Some(x), Some(y)) if x.is_nan() => y.is_nan(),
        (Some(x), Some(y)) if claim == Claim::Value => x == y,
        (Some(x), Some(y)) if matches!(claim, Claim::Ulp(_)) => {
            x == y || (x - y).abs() <= 2.0 * f64::from(f32::EPSILON) * x.abs().max(y.abs())
        }
        _ => left == right,
    }
}

/// The dtype that each name of a pattern must have, `dtype` being that of the rule's subject.
fn infer(pattern: &Pattern, dtype: DType, found: &mut [Option<DType>; SLOTS]) {
    let is_truth = |pattern: &Pattern| match pattern {
        Pattern::Literal(literal) => matches!(literal, crate::pattern::Literal::Truth(_)),
        Pattern::Node(op, ..) => op.is_comparison(),
        _ => false,
    };
    match pattern {
        Pattern::Any(slot) | Pattern::Constant(slot) => {
            found[*slot].get_or_insert(dtype);
        }
        Pattern::Node(Op::Where, src, _) => {
            infer(&src[0], DType::Bool, found);
            src[1..].iter().for_each(|source| infer(source, dtype, found));
        }
        Pattern::Node(op, src, _) => {
            let is_inner = dtype == DType::Bool && !src.iter().any(is_truth);
            let inner = match op.is_comparison() {
                true if src.iter().any(is_truth) => DType::Bool,
                true if is_inner && !src.is_empty() => DType::I8,
                _ => dtype,
            };
            src.iter().for_each(|source| infer(source, inner, found));
        }
        _ => {}
    }
}

const FLOATS: [f64; 12] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    3.5,
    -7.25,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    3e38,
    1e-40,
];

fn constants(dtype: DType) -> Vec<Constant> {
    match dtype.int_range() {
        None => FLOATS.iter().map(|value| Constant::float(dtype, *value)).collect(),
        Some((0, 1)) => vec![Constant::bool(false), Constant::bool(true)],
        Some((low, high)) => {
            let around_zero = (-8..=8).filter(|value| low <= *value);
            let values = around_zero.chain([low, low + 1, high - 1, high]);
            values.map(|value| Constant::int(dtype, value)).collect()
        }
    }
}

fn variables(dtype: DType, slot: usize) -> Vec<UOp> {
    let ranges: &[(i64, i64)] = match dtype {
        DType::Bool => &[(0, 1)],
        DType::U8 => &[(0, 8), (0, 255), (250, 255), (1, 3), (0, 1)],
        DType::I8 => {
            &[(-8, 8), (0, 8), (-9, -1), (-128, 127), (-3, 2), (1, 7), (120, 127), (-128, -125)]
        }
        _ => &[(0, 0)],
    };
    ranges.iter().map(|range| variable(dtype, slot, *range)).collect()
}

/// The points at which a variable is tried.
fn points(uop: &UOp) -> Vec<Constant> {
    let Arg::Var(variable) = uop.arg() else { return Vec::new() };
    if uop.dtype().is_float() {
        return constants(uop.dtype());
    }
    let (min, max) = (i128::from(variable.min), i128::from(variable.max));
    let near =
        |value: &i128| max - min < 20 || value - min < 6 || max - value < 6 || value % 11 == 0;
    let values = (min..=max).filter(near);
    values.map(|value| Constant::int(uop.dtype(), value)).collect()
}

/// All ways to choose one of each list; every `stride`-th if there are more than `limit`.
fn choices<T: Clone>(lists: &[Vec<T>], limit: usize) -> Vec<Vec<T>> {
    let total: usize = lists.iter().map(Vec::len).product();
    // A stride without a common factor with the lists' lengths meets all combinations of ends.
    let stride = if total <= limit { 1 } else { (total / limit) | 1 };
    let choose = |mut index: usize| {
        let pick = |list: &Vec<T>| {
            let item = list[index % list.len()].clone();
            index /= list.len();
            item
        };
        lists.iter().map(pick).collect()
    };
    (0..total).step_by(stride).map(choose).collect()
}

/// How often the rule fired; an error names the first point at which the sides differ.
pub(crate) fn check(rule: Rule) -> Result<usize, String> {
    let set = RuleSet::load(&[&[rule]]).map_err(|error| error.to_string())?;
    let dtypes: &[DType] = match rule.types {
        Types::Any => &[DType::I8, DType::U8, DType::F32],
        Types::Ints => &[DType::I8, DType::U8],
        Types::Bool => &[DType::Bool],
        Types::Bits => &[DType::I8, DType::U8, DType::Bool],
        Types::Floats => &[DType::F32],
    };
    let mut fired = 0;
    for dtype in dtypes {
        let mut slots = Slots::new();
        let lhs = Pattern::parse_left(rule.lhs, &mut slots)?;
        let mut types = [None; SLOTS];
        infer(&lhs, *dtype, &mut types);
        let kinds = |slot: usize| types[slot].map(|dtype| (slot, dtype));
        let named: Vec<(usize, DType)> = (1..SLOTS).filter_map(kinds).collect();
        let is_constant =
            |slot: usize| slots.name(slot).starts_with('c') && slots.name(slot) != "c";
        let lists: Vec<Vec<UOp>> = named
            .iter()
            .map(|(slot, dtype)| match is_constant(*slot) {
                true => constants(*dtype).into_iter().map(UOp::constant).collect(),
                false => variables(*dtype, *slot),
            })
            .collect();
        let root = if matches!(&lhs, Pattern::Node(op, ..) if op.is_comparison()) {
            DType::Bool
        } else {
            *dtype
        };
        for chosen in choices(&lists, 20_000) {
            let mut bound = Bindings::default();
            for ((slot, _), uop) in named.iter().zip(&chosen) {
                bound.bind(*slot, uop);
            }
            let (options, mut trace) = (Options::default(), Trace::default());
            let scope = &mut Scope::new(&set, &options, &mut trace);
            let left = lhs.build(root, &bound, scope).ok_or("the left side cannot be built")?;
            if let Some(right) = set.get(0).apply(&left, scope) {
                fired += 1;
                compare(rule, &left, &right, &chosen)?;
            }
        }
    }
    Ok(fired)
}

fn compare(rule: Rule, left: &UOp, right: &UOp, chosen: &[UOp]) -> Result<(), String> {
    let free: Vec<&UOp> = chosen.iter().filter(|uop| uop.op() == Op::DefineVar).collect();
    let lists: Vec<Vec<Constant>> = free.iter().map(|uop| points(uop)).collect();
    for point in choices(&lists, 150) {
        let given = free.iter().map(|uop| (*uop).clone()).zip(point).collect();
        let Some(expected) = value(left, &given) else { continue };
        let found = value(right, &given);
        if !found.is_some_and(|found| is_as_claimed(rule.claim, expected, found)) {
            let (left, right) = (gradiff_graph::infix(left), gradiff_graph::infix(right));
            let name = rule.name;
            return Err(format!("{name}: {left} = {expected:?}, {right} = {found:?} at {given:?}"));
        }
    }
    Ok(())
}

/// Rows that this checker cannot build: they start from memory, from casts (checked by
/// `casts_keep_their_values`) or from a name alone.
fn is_elsewhere(rule: &Rule) -> bool {
    let starts = [
        "memory/",
        "validity/",
        "cast/",
        "algebra/fold",
        "algebra/by-range",
        "late/threefry",
        "float/",
    ];
    starts.iter().any(|start| rule.name.starts_with(start)) || rule.lhs.contains("(cast")
}

#[test]
fn every_row_keeps_its_claim() {
    let tables = crate::rules::SYMBOLIC.iter().copied().chain([crate::rules::LATE]);
    let mut problems = Vec::new();
    for rule in tables.flatten().filter(|rule| !is_elsewhere(rule)) {
        match check(*rule) {
            Err(problem) => problems.push(problem),
            // Equations and orders need sources of their own kind; the corpus fires those rows.
            Ok(0) if rule.given.is_empty() && !rule.when.contains("before") => {
                problems.push(format!("{} never fired", rule.name));
            }
            Ok(_) => {}
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn check_false_rows_fails() {
    let bits = (Types::Ints, Claim::Bits);
    let rows = [
        row("test/wrong-constant", bits, "(add (add x c0) c1)", "(add x c0)", "", "", ""),
        row("test/wraps", bits, "(cmplt (add x c0) c1)", "(cmplt x (sub c1 c0))", "", "", ""),
        row("test/sign", bits, "(cdiv x c0)", "(floordiv x c0)", "c0 > 0", "", ""),
        row("test/nan", (Types::Floats, Claim::Bits), "(mul x 0.0)", "0.0", "", "", ""),
        row("test/zero", (Types::Floats, Claim::Bits), "(add x 0.0)", "x", "", "", ""),
    ];
    for rule in rows {
        assert!(check(rule).is_err(), "{}", rule.name);
    }
}

#[test]
fn casts_keep_their_values() {
    let set = RuleSet::load(&[crate::rules::SYMBOLIC[4]]).expect("the table loads");
    let mut fired = 0;
    for (x, between, to) in DType::ALL.iter().flat_map(|x| {
        DType::ALL.iter().flat_map(move |y| DType::ALL.iter().map(move |z| (*x, *y, *z)))
    }) {
        for op in [Op::Cast, Op::Bitcast] {
            let range = if x == DType::Bool { (0, 1) } else { (0, 100) };
            for narrow in [false, true] {
                let range = match x.int_range() {
                    Some((low, high)) if !narrow => {
                        (i64::try_from(low).unwrap(), i64::try_from(high).unwrap_or(i64::MAX))
                    }
                    _ => range,
                };
                let source = variable(x, 0, range);
                let inner = UOp::unary(op, between, source.clone());
                let outer = UOp::unary(op, to, inner);
                let sizes = [x, between, to].map(DType::size_bytes);
                if op == Op::Bitcast && sizes != [sizes[0]; 3] {
                    continue;
                }
                for rule in 0..set.len() as u16 {
                    let (options, mut trace) = (Options::default(), Trace::default());
                    let scope = &mut Scope::new(&set, &options, &mut trace);
                    let Some(after) = set.get(rule).apply(&outer, scope) else { continue };
                    fired += 1;
                    let row = set.get(rule).row;
                    for point in points_of_type(&source) {
                        let given = FxHashMap::from_iter([(source.clone(), point)]);
                        let Some(expected) = value(&outer, &given) else { continue };
                        let found = value(&after, &given);
                        let is_right =
                            found.is_some_and(|found| is_as_claimed(row.claim, expected, found));
                        let name = row.name;
                        assert!(is_right, "{name}: {x} {between} {to} {point:?} {found:?}");
                    }
                }
            }
        }
    }
    assert!(fired > 100, "{fired}");
}

fn points_of_type(uop: &UOp) -> Vec<Constant> {
    let Arg::Var(variable) = uop.arg() else { return Vec::new() };
    if uop.dtype().is_float() {
        return constants(uop.dtype());
    }
    let (min, max) = (i128::from(variable.min), i128::from(variable.max));
    let ends = [min, min + 1, max, max - 1, 0, 1, 5, 100, 127, 128, 255, 256, 32768, (1 << 24) + 1];
    let inside = ends.into_iter().filter(|value| min <= *value && *value <= max);
    inside.map(|value| Constant::int(uop.dtype(), value)).collect()
}

#[test]
fn load_refuses_duplicates_and_unbound_names() {
    use crate::ruleset::Error;
    let bits = (Types::Any, Claim::Bits);
    let rule = row("test/a", bits, "(add x 0)", "x", "", "", "");
    assert_eq!(RuleSet::load(&[&[rule], &[rule]]).err(), Some(Error::Duplicate("test/a")));
    let other = Rule { name: "test/b", ..rule };
    assert_eq!(RuleSet::load(&[&[rule, other]]).err(), Some(Error::Same("test/a", "test/b")));
    let problems = [
        (row("test/b", bits, "(add x 0)", "y", "", "", ""), "y is not bound"),
        (row("test/b", bits, "(add x 0)", "x", "min(z) > 0", "", ""), "z is not bound"),
        (row("test/b", bits, "(add x c0)", "{c1}", "", "", ""), "c1 is not bound"),
        (row("test/b", bits, "(plus x 0)", "x", "", "", ""), "no op plus"),
        (row("test/b", bits, "(add x)", "x", "", "", ""), "add with 1 sources"),
        (row("test/b", bits, "(add x 0) y", "x", "", "", ""), "left over"),
        (row("test/b", bits, "(add x 0)", "@nothing", "", "", ""), "no computed side"),
        (row("test/b", bits, "(sub x c0)", "(add x c0)", "", "", ""), "may never end"),
        (row("test/b", bits, "(add x y)", "(add y x)", "", "", ""), "may never end"),
        (row("test/b", bits, "(mul x y)", "(mul (mul x y) y)", "", "", ""), "may never end"),
        (row("test/b", bits, "(add x 1)", "(add x c0)", "", "", ""), "c0 is not bound"),
    ];
    for (rule, problem) in problems {
        let error = RuleSet::load(&[&[rule]]).err().expect("a problem").to_string();
        assert!(error.contains(problem), "{error}");
    }
}

#[test]
fn loop_is_reported_and_ends() {
    let bits = (Types::Ints, Claim::Bits);
    let there = row("test/there", bits, "(add x c0)", "(sub x c0)", "", "", "");
    let back = row("test/back", bits, "(sub x c0)", "(add x c0)", "", "", "");
    let grow = row("test/grow", bits, "(mul x y)", "(mul (mul x y) y)", "", "", "");
    let set = RuleSet::load_unordered(&[&[there, back, grow]]).expect("they load");
    let x = variable(DType::I32, 0, (0, 9));
    let mut trace = crate::Trace::default();
    let sum = UOp::binary(Op::Add, x.clone(), UOp::int(DType::I32, 3));
    crate::rewrite(&sum, &set, &crate::Options::default(), &mut trace);
    assert!(!trace.loops.is_empty());
    let product = UOp::binary(Op::Mul, x.clone(), x);
    crate::rewrite(&product, &set, &crate::Options::default(), &mut trace);
    assert!(trace.ran_out);
}
