//! All sequences of up to three movements of small shapes, compared with the model.
//!
//! The movements of a shape are a fixed list with the interesting cases of each kind: merging,
//! splitting and adding axes, padding and cutting of both ends, empty results, each axis alone and
//! all axes at once.

mod model;

use gradiff_view::{Movement, ShapeTracker};
use model::{Model, compare};

/// Shapes to start from: rank 0, size 1, size 0, and up to three axes.
const STARTS: &[&[i64]] = &[&[], &[1], &[0], &[4], &[6], &[2, 3], &[1, 3], &[2, 0], &[2, 1, 2]];

/// Most elements of a result; movements that exceed it are left out.
const LIMIT: i64 = 36;

fn movements(shape: &[i64]) -> Vec<Movement> {
    let mut movements = reshapes(shape);
    let rank = shape.len();
    if rank > 1 {
        movements.push(Movement::Permute((0..rank).rev().collect()));
        movements.push(Movement::Permute((1..rank).chain([0]).collect()));
    }
    for axis in 0..rank {
        movements.push(Movement::Flip((0..rank).map(|at| at == axis).collect()));
    }
    movements.push(Movement::Flip(vec![true; rank]));
    let by_axis = |pair: (i64, i64), axis: usize| -> Vec<(i64, i64)> {
        (0..rank).map(|at| if at == axis { pair } else { (0, 0) }).collect()
    };
    for axis in 0..rank {
        movements.push(Movement::Pad(by_axis((1, 0), axis)));
        movements.push(Movement::Pad(by_axis((0, 2), axis)));
    }
    movements.push(Movement::Pad(vec![(1, 1); rank]));
    let cut = |pick: &dyn Fn(usize, i64) -> (i64, i64)| {
        Movement::Shrink(shape.iter().enumerate().map(|(axis, &size)| pick(axis, size)).collect())
    };
    movements.push(cut(&|_, size| (size.min(1), size)));
    movements.push(cut(&|_, size| (0, (size - 1).max(0))));
    for at in 0..rank {
        movements.push(cut(&|axis, size| if axis == at { (size / 2, size) } else { (0, size) }));
        movements.push(cut(&|axis, size| if axis == at { (0, size.min(1)) } else { (0, size) }));
    }
    movements.push(Movement::Expand(shape.iter().map(|&s| if s == 1 { 2 } else { s }).collect()));
    movements.push(Movement::Expand(shape.iter().map(|&s| if s == 1 { 0 } else { s }).collect()));
    movements.retain(|movement| result_size(shape, movement) <= LIMIT);
    movements
}

fn reshapes(shape: &[i64]) -> Vec<Movement> {
    let count: i64 = shape.iter().product();
    let mut reshapes = vec![Movement::Reshape(vec![count]), Movement::Reshape(vec![1, count])];
    if count == 1 {
        reshapes.push(Movement::Reshape(vec![]));
    }
    for factor in [2, 3] {
        if count % factor == 0 {
            reshapes.push(Movement::Reshape(vec![factor, count / factor]));
            reshapes.push(Movement::Reshape(vec![count / factor, 1, factor]));
        }
    }
    reshapes
}

fn result_size(shape: &[i64], movement: &Movement) -> i64 {
    match movement {
        Movement::Pad(amounts) => shape.iter().zip(amounts).map(|(s, (b, a))| s + b + a).product(),
        Movement::Expand(to) => to.iter().product(),
        _ => shape.iter().product(),
    }
}

/// A tracker that merges views and one that does not.
struct Pair {
    merged: ShapeTracker,
    plain: ShapeTracker,
}

fn walk(left: usize, model: &Model, pair: &Pair, sequence: &mut Vec<Movement>) -> usize {
    for tracker in [&pair.merged, &pair.plain, &pair.plain.simplify()] {
        if let Err(difference) = compare(tracker, model) {
            panic!("{sequence:?}: {difference}");
        }
    }
    if left == 0 {
        return 1;
    }
    let mut sequences = 1;
    for movement in movements(&model.shape) {
        let next = Pair {
            merged: pair.merged.apply(&movement, true).expect("the movement fits"),
            plain: pair.plain.apply(&movement, false).expect("the movement fits"),
        };
        let moved = model.apply(&movement);
        sequence.push(movement);
        sequences += walk(left - 1, &moved, &next, sequence);
        sequence.pop();
    }
    sequences
}

#[test]
fn every_sequence_of_three_movements_matches_the_model() {
    let mut sequences = 0;
    for start in STARTS {
        let merged = ShapeTracker::from_shape(start).unwrap();
        let pair = Pair { plain: merged.clone(), merged };
        sequences += walk(3, &Model::new(start), &pair, &mut vec![]);
    }
    assert!(sequences > 30_000, "{sequences} sequences");
}
