//! Integer values that several nodes use: they are computed once, and simplified nevertheless.

use gradiff_graph::text::infix;
use gradiff_graph::{Arg, DType, Global, Op, UOp};
use gradiff_rewrite::simplify;

const COUNT: i64 = 100;

fn range() -> UOp {
    UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, COUNT)], Arg::plain_axis(0))
}

/// A loaded element of an array.
fn load(slot: usize, index: UOp) -> UOp {
    let global = Arg::Global(Global { slot, size_elements: COUNT });
    let global = UOp::new(Op::DefineGlobal, DType::I32, [], global);
    let index = UOp::new(Op::Index, DType::I32, [global, index], Arg::None);
    UOp::unary(Op::Load, DType::I32, index)
}

fn element(slot: usize) -> UOp {
    load(slot, range())
}

fn binary(op: Op, x: &UOp, y: &UOp) -> UOp {
    UOp::binary(op, x.clone(), y.clone())
}

fn with_number(op: Op, x: &UOp, number: i64) -> UOp {
    UOp::binary(op, x.clone(), UOp::int(x.dtype(), number))
}

/// Checks how many nodes of an op are left.
fn check_count(root: &UOp, op: Op, expected: usize) {
    let simple = simplify(root);
    let count = simple.order().iter().filter(|node| node.op() == op).count();
    assert_eq!(count, expected, "{}", infix(&simple));
}

#[test]
fn multiples_of_a_sum_share_it() {
    let sum = (2..5).fold(element(1), |sum, slot| binary(Op::Add, &sum, &element(slot)));
    let multiples = [3, 5, 7, 11].map(|factor| with_number(Op::Mul, &sum, factor));
    let root = multiples.into_iter().reduce(|x, y| binary(Op::Xor, &x, &y)).expect("four");
    check_count(&root, Op::Mul, 4);
    check_count(&root, Op::Add, 3);
}

#[test]
fn rounds_of_a_hash_add_once() {
    let (mut x, mut y) = (element(1), element(2));
    for shift in 1..=12 {
        x = binary(Op::Add, &x, &y);
        y = binary(Op::Xor, &x, &with_number(Op::Shr, &y, shift));
    }
    check_count(&binary(Op::Or, &x, &y), Op::Add, 12);
}

#[test]
fn running_extremes_and_products_share_their_beginnings() {
    for op in [Op::Max, Op::Min, Op::Mul] {
        let mut last = element(1);
        let mut root = last.clone();
        for mask in 1..=12 {
            last = binary(op, &with_number(Op::Xor, &element(1), mask), &last);
            root = binary(Op::Xor, &root, &last);
        }
        check_count(&root, op, 12);
    }
}

#[test]
fn shared_sums_are_opened_where_terms_cancel() {
    let (a, b) = (element(1), element(2));
    let sum = binary(Op::Add, &a, &b);
    let rest = binary(Op::Sub, &sum, &a);
    let rest = simplify(&binary(Op::Xor, &sum, &rest));
    assert_eq!(rest, simplify(&binary(Op::Xor, &sum, &b)));
}

#[test]
fn indices_are_canonical_whoever_uses_their_parts() {
    let part = binary(Op::Add, &element(1), &range());
    let index = with_number(Op::Mul, &part, 3);
    let root = [&part, &index].map(|index| load(2, index.clone()));
    let simple = simplify(&binary(Op::Xor, &root[0], &root[1]));
    let alone = [&part, &index].map(|index| simplify(&load(2, index.clone())));
    assert!(alone.iter().all(|load| simple.order().contains(&load)), "{}", infix(&simple));
}
