//! Index/valid pairs of real kernels: simplifying keeps each value, and the table that compares
//! node counts with tinygrad's matches the current rules.

#[path = "common/pairs.rs"]
mod pairs;

use std::collections::BTreeMap;

use gradiff::graph::{Arg, Constant, Op, UOp};
use gradiff_eval::scalar;
use gradiff_gen::{Choices, SeedChoices};
use pairs::{Pair, node_count, parts, read};

const PAIRS: &str = include_str!("../../../corpus/index/kernels.txt");
const TABLE: &str = include_str!("../../../snapshots/rules/quality.txt");

/// Maximal number of points that are checked for each pair.
const POINTS: u64 = 300;

/// Values of the variables, by their numbers.
type Point = BTreeMap<i64, i64>;

fn points(load: &UOp, seed: u64) -> Vec<Point> {
    let spans: BTreeMap<i64, u64> = load
        .toposort()
        .iter()
        .filter_map(|node| match node.arg() {
            Arg::Axis(axis) if node.op() == Op::Range => {
                Some((axis.number, node.src()[0].as_int().expect("an end") as u64))
            }
            _ => None,
        })
        .collect();
    let total = spans.values().fold(1u64, |total, span| total.saturating_mul(*span));
    let mut choices = SeedChoices::new(seed);
    let mut point = |number: u64| {
        let mut rest = number;
        let mut digit = |span: u64| {
            let digit = rest % span;
            rest /= span;
            if total <= POINTS { digit } else { u64::from(choices.below(span as u32)) }
        };
        spans.iter().map(|(number, span)| (*number, digit(*span) as i64)).collect()
    };
    (0..total.min(POINTS)).map(&mut point).collect()
}

/// The index where the gate is open; `None` where it is not.
fn value(load: &UOp, point: &Point) -> Option<Constant> {
    let (index, gate) = parts(load)?;
    let is_open = gate.is_none_or(|gate| value_of(gate, point).is_some_and(scalar::is_true));
    is_open.then(|| value_of(index, point).expect("an open index has a value"))
}

fn value_of(root: &UOp, point: &Point) -> Option<Constant> {
    gradiff_eval::point::value(root, |range| match range.arg() {
        Arg::Axis(axis) => scalar::int(range.dtype(), point[&axis.number].into()),
        _ => None,
    })
}

/// The first point at which two loads differ.
fn difference(written: &UOp, found: &UOp) -> Option<Point> {
    points(written, 1).into_iter().find(|point| value(written, point) != value(found, point))
}

#[test]
fn pairs_keep_their_values() {
    let pairs = read(PAIRS).expect("it parses");
    assert_eq!(pairs.len(), 500);
    for pair in &pairs {
        let simple = pair.simplified();
        let different = difference(&pair.load, &simple);
        assert!(different.is_none(), "{}: differs at {different:?}", pair.name);
    }
}

#[test]
fn pairs_that_differ_are_detected() {
    let pairs = read(PAIRS).expect("it parses");
    let gate = |pair: &&Pair| pair.load.src()[0].src()[2].op() == Op::And;
    let load = &pairs.iter().find(gate).expect("some gate is a conjunction").load;
    let access = &load.src()[0];
    let [global, index, gate] = access.src() else { panic!("an access has three sources") };
    let moved = UOp::binary(Op::Add, index.clone(), UOp::int(index.dtype(), 1));
    let closed = UOp::not(gate.clone());
    for (index, gate) in [(&moved, gate), (index, &closed)] {
        let access = access.with_src([global.clone(), index.clone(), gate.clone()]);
        assert!(difference(load, &load.with_src([access])).is_some());
    }
}

/// Checks the table of lines `pair ours theirs right|wrong`, made by `oracle/upstream/quality.py`.
#[test]
fn quality_table_is_current_and_no_right_answer_is_smaller() {
    let pairs = read(PAIRS).expect("it parses");
    let rows: Vec<Vec<&str>> = TABLE
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows.len(), pairs.len());
    for (pair, row) in pairs.iter().zip(&rows) {
        let [name, ours, theirs, right] = row[..] else { panic!("{row:?} has four words") };
        let number = |text: &str| text.parse::<usize>().expect("a count");
        let count = node_count(&pair.simplified());
        assert_eq!((name, number(ours)), (pair.name.as_str(), count), "make the table again");
        assert!(right == "wrong" || count <= number(theirs), "{name}: {count} nodes, not {theirs}");
    }
}
