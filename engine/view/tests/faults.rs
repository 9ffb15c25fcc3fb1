//! Each planted fault of this room makes random chains of movements fail, and often.
#![cfg(feature = "faults")]

mod dice;
mod model;

use dice::Random;
use gradiff_view::{ShapeTracker, fault};
use model::{Model, compare};

const CHAINS: u64 = 2_000;

/// Draws one chain of up to 8 movements; whether its trackers place every element as the model
/// does. Panics count as found.
fn is_right(seed: u64) -> bool {
    std::panic::catch_unwind(|| {
        let mut random = Random::new(seed);
        let from = random.shape();
        let mut model = Model::new(&from);
        let mut merged = ShapeTracker::from_shape(&from).expect("the movement fits");
        let mut plain = merged.clone();
        for _ in 0..1 + random.below(8) {
            let movement = random.movement(&model.shape);
            model = model.apply(&movement);
            merged = merged.apply(&movement, true).expect("the movement fits");
            plain = plain.apply(&movement, false).expect("the movement fits");
        }
        let trackers = [plain.simplify(), plain, merged];
        trackers.iter().all(|tracker| compare(tracker, &model).is_ok())
    })
    .unwrap_or(false)
}

/// Chains that come out wrong, of 2,000.
fn wrong_chains() -> usize {
    (1..=CHAINS).filter(|&seed| !is_right(seed)).count()
}

// One test for all: a fault is on for the whole process.
#[test]
fn every_view_fault_makes_one_chain_in_a_hundred_fail() {
    assert_eq!(wrong_chains(), 0, "without a fault");
    let rows: Vec<_> = fault::ROWS.iter().filter(|row| row.room == "view").collect();
    assert_eq!(rows.len(), 6);
    for row in rows {
        fault::set_active(row.name).unwrap();
        assert_eq!(fault::active(), Some(row.name));
        let wrong = wrong_chains();
        fault::clear();
        println!("{}: {wrong} of {CHAINS} chains", row.name);
        assert!(wrong >= 20, "{}: {wrong} of {CHAINS} chains", row.name);
    }
    assert_eq!(fault::active(), None);
    assert_eq!(wrong_chains(), 0, "after the last fault");
}
