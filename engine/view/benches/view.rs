//! Measures movements, simplification, composition and indexing: `cargo bench -p gradiff-view`.
#![allow(missing_docs)]

#[path = "../tests/dice/mod.rs"]
mod dice;
#[path = "../tests/model/mod.rs"]
mod model;

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use dice::Random;
use gradiff_view::{Movement, ShapeTracker};
use model::{Model, Numbers, compare};

const CHAINS: u64 = 1_000;

/// The tracker of a buffer, and four movements that can be applied to it one after the other.
struct Chain {
    start: ShapeTracker,
    movements: Vec<Movement>,
}

fn chains() -> Vec<Chain> {
    (1..=CHAINS)
        .map(|seed| {
            let mut random = Random::new(seed);
            let start = ShapeTracker::from_shape(&random.shape()).expect("a small shape");
            let (mut tracker, mut movements) = (start.clone(), vec![]);
            for _ in 0..4 {
                let movement = random.movement(tracker.shape());
                tracker = tracker.apply(&movement, true).expect("the movement fits");
                movements.push(movement);
            }
            Chain { start, movements }
        })
        .collect()
}

/// The tracker after all movements of a chain, with views merged or not.
fn apply_all(chain: &Chain, merge: bool) -> ShapeTracker {
    chain.movements.iter().fold(chain.start.clone(), |tracker, movement| {
        tracker.apply(movement, merge).expect("the movement fits")
    })
}

/// Permutes, reshapes, pads and shrinks a batch of images of shape [8, 3, 64, 64].
fn move_images(start: &ShapeTracker) -> ShapeTracker {
    let tracker = start.permute(&[0, 2, 3, 1]).expect("fits");
    let tracker = tracker.reshape(&[8, 64, 16, 4, 3]).expect("fits");
    let tracker = tracker.pad(&[(0, 0), (1, 1), (1, 1), (0, 0), (0, 0)]).expect("fits");
    tracker.shrink(&[(0, 8), (0, 65), (2, 17), (0, 4), (0, 3)]).expect("fits")
}

fn operations(criterion: &mut Criterion) {
    let chains = chains();
    let mut group = criterion.benchmark_group("view");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    group.sample_size(20);
    let images = ShapeTracker::from_shape(&[8, 3, 64, 64]).expect("a small shape");
    group.throughput(Throughput::Elements(4));
    group.bench_function("typical chain of 4 movements", |b| {
        b.iter(|| move_images(black_box(&images)))
    });
    group.throughput(Throughput::Elements(CHAINS * 4));
    group.bench_function("random movements", |b| {
        b.iter(|| chains.iter().map(|chain| apply_all(chain, true).size()).sum::<i64>());
    });
    group.throughput(Throughput::Elements(CHAINS));
    let unmerged: Vec<_> = chains.iter().map(|chain| apply_all(chain, false)).collect();
    group.bench_function("simplify", |b| {
        b.iter(|| unmerged.iter().map(|tracker| tracker.simplify().views().len()).sum::<usize>());
    });
    let merged: Vec<_> = chains.iter().map(|chain| apply_all(chain, true)).collect();
    let flipped = |base: &ShapeTracker| {
        let row_major = ShapeTracker::from_shape(base.shape()).expect("a small shape");
        row_major.flip(&vec![true; base.shape().len()]).expect("one flag per axis")
    };
    let pairs: Vec<_> = merged.iter().map(|base| (base, flipped(base))).collect();
    group.bench_function("compose", |b| {
        b.iter(|| {
            let composed =
                pairs.iter().map(|(base, top)| base.compose(top).expect("stacks").size());
            composed.sum::<i64>()
        });
    });
    let first_indices: Vec<_> =
        merged.iter().map(|tracker| vec![0; tracker.shape().len()]).collect();
    group.bench_function("index", |b| {
        b.iter(|| {
            let positions = merged.iter().zip(&first_indices);
            positions
                .map(|(tracker, index)| tracker.index(&mut Numbers, index).0)
                .fold(0, i64::wrapping_add)
        });
    });
    group.finish();
}

/// Measures sequences as in fuzzing: draws movements, applies them, and compares every element with
/// the model.
fn checked(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checked");
    group.measurement_time(Duration::from_secs(2)).warm_up_time(Duration::from_millis(500));
    group.sample_size(20).throughput(Throughput::Elements(1));
    let mut seed = 0;
    let mut next_random = || {
        seed += 1;
        Random::new(seed)
    };
    group.bench_function("sequence of 4 movements", |b| {
        b.iter_batched(
            &mut next_random,
            |mut random| {
                let shape = random.shape();
                let mut model = Model::new(&shape);
                let mut tracker = ShapeTracker::from_shape(&shape).expect("a small shape");
                for _ in 0..4 {
                    let movement = random.movement(&model.shape);
                    model = model.apply(&movement);
                    tracker = tracker.apply(&movement, true).expect("the movement fits");
                }
                compare(&tracker, &model).expect("tracker and model agree");
                tracker.size()
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, operations, checked);
criterion_main!(benches);
