//! Gates, validity, fuel and traces.

use gradiff_graph::text::{infix, parse_text};
use gradiff_graph::verify::verify;
use gradiff_graph::{Arg, Constant, DType, Global, Op, UOp};
use gradiff_rewrite::{Mode, Options, Trace, late, rewrite, simplify, symbolic};

/// Simplifies a graph, such as a gated load from data1. `lines` are its lines from %3 on; %0 is the
/// global and %2 the range 0..100.
fn check(lines: &str, expected: &str) {
    let head = "%0 = define_global f32 data1 100\n%1 = const i32 100\n%2 = range i32 %1 0\n";
    let root = parse_text(&format!("{head}{lines}")).expect("it parses");
    verify(&root).expect("it is well formed");
    let simple = simplify(&root);
    verify(&simple).expect("it stays well formed");
    assert_eq!(infix(&simple), expected, "{lines}");
}

#[test]
fn gates_that_are_known_vanish() {
    let limit = "%3 = const i32 100\n%4 = cmplt bool %2 %3\n";
    check(&format!("{limit}%5 = index f32 %0 %2 %4\n%6 = load f32 %5"), "load(data1[ridx0])");
    let never = "%3 = const i32 0\n%4 = cmplt bool %2 %3\n";
    check(&format!("{never}%5 = index f32 %0 %2 %4\n%6 = load f32 %5"), "0.0");
}

#[test]
fn index_is_simplified_under_its_gate() {
    let gate = "%3 = const i32 10\n%4 = cmplt bool %2 %3\n";
    // (ridx0 % 10) is ridx0 where ridx0 < 10.
    let index = "%5 = floormod i32 %2 %3\n%6 = index f32 %0 %5 %4\n%7 = load f32 %6";
    check(&format!("{gate}{index}"), "load(data1[ridx0 if (ridx0<10)])");
    let row = "%5 = floordiv i32 %2 %3\n%6 = index f32 %0 %5 %4\n%7 = load f32 %6";
    check(&format!("{gate}{row}"), "load(data1[0 if (ridx0<10)])");
}

#[test]
fn clauses_that_say_nothing_new_vanish() {
    let lines = "%3 = const i32 10\n%4 = const i32 20\n%5 = cmplt bool %2 %3\n\
                 %6 = cmplt bool %2 %4\n%7 = and bool %6 %5\n";
    check(lines, "(ridx0<10)");
    let exclude = "%3 = const i32 10\n%4 = const i32 20\n%5 = cmplt bool %2 %3\n\
                   %6 = cmplt bool %2 %4\n%7 = const bool true\n%8 = cmpne bool %6 %7\n\
                   %9 = and bool %5 %8\n";
    check(exclude, "False");
}

/// (x + c0) + c1 over a loaded float.
fn float_sum(c0: f64, c1: f64) -> UOp {
    let global = Arg::Global(Global { slot: 1, size_elements: 1 });
    let global = UOp::new(Op::DefineGlobal, DType::F32, [], global);
    let zero = UOp::int(DType::I32, 0);
    let index = UOp::new(Op::Index, DType::F32, [global, zero], Arg::None);
    let load = UOp::unary(Op::Load, DType::F32, index);
    let constant = |value| UOp::constant(Constant::float(DType::F32, value));
    let sum = UOp::binary(Op::Add, load, constant(c0));
    UOp::binary(Op::Add, sum, constant(c1))
}

#[test]
fn float_constants_are_added_where_that_is_exact() {
    assert_eq!(infix(&simplify(&float_sum(4.0, 3.0))), "(load(data1[0])+7.0)");
    let unchanged = [float_sum(1e8, 0.001), float_sum(4.0, -3.0), float_sum(3e38, 3e38)];
    for sum in unchanged {
        assert_eq!(simplify(&sum), sum);
    }
    let strict = Options { mode: Mode::Strict, fuel: None };
    let sum = float_sum(4.0, 3.0);
    assert_eq!(rewrite(&sum, &symbolic(), &strict, &mut Trace::default()), sum);
}

#[test]
fn fuel_and_trace_count_applications() {
    let x = parse_text("%0 = define_var i32 x -9..9").expect("it parses");
    let mut root = x.clone();
    for value in 1..6 {
        root = UOp::binary(Op::Add, root, UOp::int(DType::I32, value));
    }
    let mut trace = Trace::with_steps();
    let full = rewrite(&root, &symbolic(), &Options::default(), &mut trace);
    assert_eq!(infix(&full), "(x+15)");
    assert_eq!(trace.counts["algebra/add-add-const"], 4);
    let steps = trace.steps.as_ref().expect("they were recorded");
    assert_eq!(steps.len() as u64, trace.applied);
    assert_eq!(trace.counts.values().sum::<u64>(), trace.applied);
    for fuel in 0..=trace.applied {
        let mut bounded = Trace::default();
        let options = Options { fuel: Some(fuel), ..Options::default() };
        let result = rewrite(&root, &symbolic(), &options, &mut bounded);
        assert_eq!(bounded.applied, fuel);
        assert_eq!(result == full, fuel == trace.applied, "{fuel}");
    }
}

#[test]
fn late_rules_suit_devices() {
    let text = "%0 = define_var i32 a 0..9\n%1 = define_var i32 b 0..9\n%2 = sub i32 %0 %1\n";
    let root = simplify(&parse_text(text).expect("it parses"));
    assert_eq!(infix(&root), "(a+(b*-1))");
    let done = rewrite(&root, &late(), &Options::default(), &mut Trace::default());
    assert_eq!(infix(&done), "(a-b)");
    let text = "%0 = define_var i32 a 0..9\n%1 = const i32 4\n%2 = floordiv i32 %0 %1\n";
    let root = parse_text(text).expect("it parses");
    let done = rewrite(&root, &late(), &Options::default(), &mut Trace::default());
    assert_eq!(infix(&done), "cdiv(a,4)");
}

#[test]
fn few_right_sides_are_computed() {
    let rows = gradiff_rewrite::rules::rows();
    let computed = rows.iter().filter(|rule| rule.rhs.starts_with('@'));
    let names: Vec<&str> = computed.map(|rule| rule.name).collect();
    assert!(names.len() * 100 <= rows.len() * 15, "{} of {}: {names:?}", names.len(), rows.len());
}

#[test]
fn long_chains_need_little_stack_and_time() {
    let mut root = UOp::int(DType::I32, 1);
    for slot in 0..2_000 {
        let global = Arg::Global(Global { slot, size_elements: 1 });
        let global = UOp::new(Op::DefineGlobal, DType::I32, [], global);
        let zero = UOp::int(DType::I32, 0);
        let index = UOp::new(Op::Index, DType::I32, [global, zero], Arg::None);
        root = UOp::binary(Op::Add, root, UOp::unary(Op::Load, DType::I32, index));
    }
    simplify(&root);
    let mut doubled = UOp::binary(Op::Mul, root.clone(), root);
    for _ in 0..100 {
        doubled = UOp::binary(Op::Mul, doubled.clone(), doubled);
    }
    simplify(&doubled);
}

/// Chains of each op whose values are used twice: by their square, by the next two, by both sides
/// of a diamond.
#[test]
fn chains_of_shared_values_keep_their_size() {
    const LINKS: usize = 24;
    let load = |slot| {
        let global = Arg::Global(Global { slot, size_elements: 1 });
        let global = UOp::new(Op::DefineGlobal, DType::I32, [], global);
        let index = UOp::new(Op::Index, DType::I32, [global, UOp::int(DType::I32, 0)], Arg::None);
        UOp::unary(Op::Load, DType::I32, index)
    };
    let ops = [Op::Add, Op::Mul, Op::Max, Op::Min, Op::And, Op::Or, Op::Xor];
    for op in ops {
        for kind in ["square", "pair", "diamond"] {
            let (mut before, mut last) = (load(0), load(1));
            for _ in 0..LINKS {
                let next = match kind {
                    "square" => UOp::binary(op, last.clone(), last.clone()),
                    "pair" => UOp::binary(op, before, last.clone()),
                    _ => {
                        let left = UOp::binary(Op::Add, last.clone(), UOp::int(DType::I32, 1));
                        let right = UOp::binary(Op::Max, last.clone(), UOp::int(DType::I32, 3));
                        UOp::binary(op, left, right)
                    }
                };
                (before, last) = (last, next);
            }
            let count = simplify(&last).toposort().len();
            // Sums are flat: each has the terms of those in it.
            let limit = if op == Op::Add { LINKS * LINKS } else { 8 + 5 * LINKS };
            assert!(count <= limit, "{kind} of {op}: {count} nodes");
        }
    }
}
