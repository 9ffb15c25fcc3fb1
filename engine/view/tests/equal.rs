//! Chains of movements with the same elements give equal trackers after simplification.

mod dice;
mod model;

use std::collections::BTreeMap;

use dice::Random;
use gradiff_view::ShapeTracker;
use model::{Model, compare};

const STARTS: [&[i64]; 6] = [&[6], &[2, 3], &[4], &[2, 4], &[2, 2, 3], &[3, 4]];
const CHAINS: u64 = 60_000;

/// The shape of a buffer, the shape of a tracker, and the buffer index of each element of the
/// tracker in row-major order, `None` for padding.
type Mapping = (Vec<i64>, Vec<i64>, Vec<Option<usize>>);

/// Draws random chains of movements, and groups their unsimplified trackers by mapping.
fn draw_trackers() -> BTreeMap<Mapping, Vec<ShapeTracker>> {
    let mut trackers: BTreeMap<Mapping, Vec<ShapeTracker>> = BTreeMap::new();
    for seed in 1..=CHAINS {
        let mut random = Random::new(seed);
        let buffer_shape = match random.below(4) {
            0 => random.shape(),
            _ => STARTS[random.below(6) as usize].to_vec(),
        };
        let mut model = Model::new(&buffer_shape);
        let mut tracker = ShapeTracker::from_shape(&buffer_shape).expect("a small shape");
        let merge = random.below(2) == 0;
        for _ in 0..1 + random.below(6) {
            let movement = random.movement(&model.shape);
            model = model.apply(&movement);
            tracker = tracker.apply(&movement, merge).expect("the movement fits");
        }
        let mapping = (buffer_shape, model.shape, model.elements);
        trackers.entry(mapping).or_default().push(tracker);
    }
    trackers
}

/// Returns the share of unequal pairs among the trackers of a mapping, averaged over the mappings
/// that more than one chain has.
fn unequal_share(trackers: &BTreeMap<Mapping, Vec<ShapeTracker>>) -> f64 {
    let shares: Vec<f64> = trackers
        .values()
        .filter(|trackers| trackers.len() > 1)
        .map(|trackers| {
            let mut counts: BTreeMap<&ShapeTracker, f64> = BTreeMap::new();
            trackers.iter().for_each(|tracker| *counts.entry(tracker).or_default() += 1.0);
            let count = trackers.len() as f64;
            1.0 - counts.values().map(|n| n * (n - 1.0)).sum::<f64>() / (count * (count - 1.0))
        })
        .collect();
    shares.iter().sum::<f64>() / shares.len() as f64
}

#[test]
fn equal_mappings_are_equal_trackers_except_5_in_1000() {
    let mut trackers_by_mapping = draw_trackers();
    let before = unequal_share(&trackers_by_mapping);
    for ((_, shape, elements), trackers) in &mut trackers_by_mapping {
        let model = Model { shape: shape.clone(), elements: elements.clone() };
        for tracker in trackers {
            *tracker = tracker.simplify();
            compare(tracker, &model).expect("simplify keeps the elements");
        }
    }
    let after = unequal_share(&trackers_by_mapping);
    println!("unequal: {:.3} % of pairs, {:.1} % unsimplified", after * 100.0, before * 100.0);
    assert!(after < 0.005, "{:.3} % of pairs differ", after * 100.0);
    // Without simplification many pairs differ, so the check above can fail.
    assert!(before > 0.05, "{:.3} % of pairs differ unsimplified", before * 100.0);
}
