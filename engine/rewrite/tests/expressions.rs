//! Simplification of index expressions: some must get an exact form, and random ones must keep
//! their values.

use std::sync::Arc;

use gradiff_eval::point::{Limits, Tape};
use gradiff_eval::scalar;
use gradiff_graph::text::infix;
use gradiff_graph::{Arg, DType, Op, Sources, UOp, Variable};
use gradiff_rewrite::{Options, Trace, bounds, rewrite, simplify, symbolic};
use rustc_hash::FxHashMap;

fn variable(dtype: DType, name: &str, min: i64, max: i64) -> UOp {
    let variable = Variable { name: name.to_owned(), min, max };
    UOp::new(Op::DefineVar, dtype, Sources::new(), Arg::Var(Arc::new(variable)))
}

fn range(axis: i64, end: i64) -> UOp {
    UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, end)], Arg::plain_axis(axis))
}

/// Parses an expression `(op x y)` over named nodes and numbers.
fn parse(text: &str, names: &FxHashMap<&str, UOp>) -> UOp {
    let text = text.replace('(', " ( ").replace(')', " ) ");
    let mut words = text.split_whitespace();
    parse_words(&mut words, names)
}

fn parse_words<'t>(words: &mut impl Iterator<Item = &'t str>, names: &FxHashMap<&str, UOp>) -> UOp {
    match words.next().expect("a word") {
        "(" => {
            let op = Op::from_name(words.next().expect("an op")).expect("a known op");
            let x = parse_words(words, names);
            let y = parse_words(words, names);
            assert_eq!(words.next(), Some(")"));
            UOp::binary(op, x, y)
        }
        word => names
            .get(word)
            .cloned()
            .unwrap_or_else(|| UOp::int(DType::I32, word.parse().expect("a number"))),
    }
}

#[test]
fn expressions_simplify_to_exact_forms() {
    let mut names =
        FxHashMap::from_iter([("r", range(0, 100)), ("r0", range(0, 10)), ("r1", range(1, 10))]);
    for name in ["a", "b"] {
        names.insert(name, variable(DType::I32, name, 0, 10));
    }
    names.insert("i", variable(DType::I32, "idx0", 0, 99));
    names.insert("i0", variable(DType::I32, "idx0", 0, 9));
    names.insert("i1", variable(DType::I32, "idx1", 0, 9));
    names.insert("n", variable(DType::I32, "n", -20, 20));
    let cases = [
        ("(mul a 10)", "(a*10)"),
        ("(floormod (add a (mul b 10)) 10)", "(a%10)"),
        ("(floordiv (add (mul a 40) b) 20)", "(a*2)"),
        // The index of shape (10, 10) after a permute, a reshape and a flattening.
        (
            "(add (add (add (mul (floormod (floordiv r 20) 5) 2) (floormod (floordiv r 10) 2)) \
             (mul (floormod (floordiv r 2) 5) 20)) (mul (floormod r 2) 10))",
            "(((ridx0%10)*10)+(ridx0//10))",
        ),
        (
            "(add (add (add (mul (floormod (floordiv i 20) 5) 2) (floormod (floordiv i 10) 2)) \
             (mul (floormod (floordiv i 2) 5) 20)) (mul (floormod i 2) 10))",
            "(((idx0%10)*10)+(idx0//10))",
        ),
        ("(add r0 (mul r1 10))", "((ridx1*10)+ridx0)"),
        ("(add (mul i1 10) i0)", "(idx0+(idx1*10))"),
        ("(add (add (mul r0 -3) r1) 5)", "(((ridx0*-3)+ridx1)+5)"),
        // Floored and truncated divisions of a dividend that may be negative.
        ("(add (mul (floordiv n 4) 4) (floormod n 4))", "n"),
        ("(add (mul (cdiv n 4) 4) (cmod n 4))", "n"),
        ("(cdiv n 4)", "cdiv(n,4)"),
        ("(cdiv a 4)", "(a//4)"),
        ("(cmplt (mul a 10) 25)", "(a<3)"),
        ("(cmplt (add (mul a 20) b) 40)", "(a<2)"),
    ];
    for (text, expected) in cases {
        let simple = simplify(&parse(text, &names));
        assert_eq!(infix(&simple), expected, "{text}");
    }
    assert_eq!(bounds(&parse("(mul a 10)", &names)), (0, 100));
    assert_eq!(bounds(&parse("(add a b)", &names)), (0, 20));
    assert_eq!(bounds(&simplify(&parse("(floordiv (add (mul a 40) b) 20)", &names))), (0, 20));
}

#[test]
fn bounds_of_a_sum_of_sums_of_one_node_are_found() {
    let doubled = |sum: UOp, _| UOp::binary(Op::Add, sum.clone(), sum);
    let n = variable(DType::I32, "n", 0, 1);
    assert_eq!(bounds(&(0..6).fold(n.clone(), doubled)), (0, 64));
    // There are 2^60 paths to n, and its factor is 0 modulo 2^32.
    let (low, high) = bounds(&(0..60).fold(n, doubled));
    assert!(low <= 0 && 0 <= high, "{low} {high}");
}

struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn between(&mut self, low: i64, high: i64) -> i64 {
        low + self.below((high - low + 1) as u64) as i64
    }
}

const BINARY: [Op; 16] = [
    Op::Add,
    Op::Add,
    Op::Add,
    Op::Sub,
    Op::Mul,
    Op::Mul,
    Op::FloorDiv,
    Op::FloorDiv,
    Op::FloorMod,
    Op::FloorMod,
    Op::CDiv,
    Op::CMod,
    Op::Max,
    Op::Min,
    Op::And,
    Op::Xor,
];

/// Draws an expression of at most this depth.
fn expression(random: &mut Random, dtype: DType, variables: &[UOp], depth: u64) -> UOp {
    if depth == 0 || random.below(6) == 0 {
        return match random.below(3) {
            0 => UOp::int(dtype, random.between(-8, 8)),
            _ => variables[random.below(variables.len() as u64) as usize].clone(),
        };
    }
    let x = expression(random, dtype, variables, depth - 1);
    if random.below(16) == 0 {
        return UOp::unary(Op::Neg, dtype, x);
    }
    let y = match random.below(3) {
        0 => UOp::int(dtype, random.between(-8, 8)),
        1 => UOp::int(dtype, random.between(1, 12)),
        _ => expression(random, dtype, variables, depth - 1),
    };
    if random.below(8) == 0 {
        let op = if random.below(3) == 0 { Op::CmpNe } else { Op::CmpLt };
        let mut condition = UOp::binary(op, x.clone(), y.clone());
        if random.below(3) == 0 {
            condition = UOp::not(condition);
        }
        let z = expression(random, dtype, variables, depth - 1);
        return UOp::select(condition, if random.below(2) == 0 { x } else { y }, z);
    }
    UOp::binary(BINARY[random.below(BINARY.len() as u64) as usize], x, y)
}

/// Checks that a random expression over variables with these ranges keeps its values and stays
/// within its bounds, and that simplifying it once more changes nothing.
fn check(random: &mut Random, dtype: DType, ranges: &[(i64, i64)]) {
    let names = ["a", "b", "c"];
    let with_name = |((low, high), name): (&(i64, i64), &&str)| variable(dtype, name, *low, *high);
    let variables: Vec<UOp> = ranges.iter().zip(&names).map(with_name).collect();
    let depth = 1 + random.below(4);
    let before = expression(random, dtype, &variables, depth);
    let mut trace = Trace::default();
    let after = rewrite(&before, &symbolic(), &Options::default(), &mut trace);
    let case = format!("{dtype} {ranges:?} {}\n => {}", infix(&before), infix(&after));
    assert!(trace.loops.is_empty(), "rules that repeat: {:?}: {case}", trace.loops);
    assert!(!trace.ran_out, "out of fuel: {case}");
    let again = simplify(&after);
    assert_eq!(again, after, "not final: {case}\n => {}", infix(&again));
    let sides = [&before, &after];
    let intervals = sides.map(bounds);
    let mut tape = Tape::new(&sides, Limits::default());
    let [first, second] = sides.map(|side| tape.position(side).expect("a root"));
    for _ in 0..12 {
        let mut point = Vec::new();
        for (uop, (low, high)) in variables.iter().zip(ranges) {
            let value = match random.below(5) {
                0 => *low,
                1 => *high,
                _ => random.between(*low, *high),
            };
            point.push(value);
            if let Some(position) = tape.position(uop) {
                tape.set(position, scalar::int(dtype, value.into()));
            }
        }
        tape.run(&|dtype, _, _| scalar::zero(dtype));
        let Some(expected) = tape.value(first).element() else { continue };
        assert_eq!(tape.value(second).element(), Some(expected), "{case} at {point:?}");
        let value = scalar::to_int(expected).expect("an integer");
        for (min, max) in intervals {
            assert!(min <= value && value <= max, "{value} not in {min}..{max}: {case} {point:?}");
        }
    }
}

#[test]
fn random_expressions_keep_their_values() {
    let random = &mut Random(1);
    for _ in 0..20_000 {
        let ranges: Vec<(i64, i64)> = (0..3)
            .map(|_| {
                let low = if random.below(2) == 0 { 0 } else { random.between(-20, 5) };
                (low, low + random.between(0, 24))
            })
            .collect();
        check(random, DType::I32, &ranges);
    }
}

#[test]
fn random_expressions_wrap_at_their_width() {
    let random = &mut Random(2);
    for round in 0..10_000 {
        let dtype = [DType::I8, DType::U8, DType::U32, DType::I64][round % 4];
        let (low, high) = dtype.int_range().expect("an integer type");
        let (low, high) = (low.max(-(1 << 61)) as i64, high.min(1 << 61) as i64);
        let ranges: Vec<(i64, i64)> = (0..3)
            .map(|_| match random.below(3) {
                0 => (low, high),
                1 => (0, random.between(0, 12)),
                _ => (high - random.between(0, 9), high),
            })
            .collect();
        check(random, dtype, &ranges);
    }
}
