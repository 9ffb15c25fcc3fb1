//! Canonicity of trackers: how often sequences that place all elements alike give equal trackers.

use std::collections::BTreeMap;

use gradiff::view::ShapeTracker;
use gradiff_corpus::ViewOps;

use crate::checks::views::tracker_with;
use crate::models::model::Model;

/// Maximal number of sequences of one placement, so that frequent placements do not dominate.
const SEQUENCES_MAX: usize = 8;

/// Counts of pairs of sequences that place all elements alike, and of those that differ as
/// trackers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Equal {
    /// Placements that at least two sequences lead to.
    pub placements: u64,
    /// Pairs of sequences that lead to the same placement.
    pub pairs: u64,
    /// Pairs whose simplified trackers differ.
    pub unequal: u64,
    /// Pairs whose trackers differ where nothing is merged or simplified.
    pub unequal_unmerged: u64,
}

impl Equal {
    /// Percentage of pairs whose simplified trackers differ.
    pub fn percent(&self) -> f64 {
        self.unequal as f64 * 100.0 / self.pairs.max(1) as f64
    }

    /// Percentage of pairs whose trackers differ where nothing is merged or simplified.
    pub fn percent_unmerged(&self) -> f64 {
        self.unequal_unmerged as f64 * 100.0 / self.pairs.max(1) as f64
    }
}

/// Counts over all pairs of these sequences, at most 8 sequences of each placement.
///
/// # Errors
/// An operation that the engine refuses.
pub fn equal_views(cases: impl Iterator<Item = ViewOps>) -> Result<Equal, String> {
    type Placements = BTreeMap<(Vec<usize>, Model), Vec<[ShapeTracker; 2]>>;
    let mut placements = Placements::new();
    for case in cases {
        let model = case.ops.iter().fold(Model::new(&case.shape), Model::moved);
        let trackers = placements.entry((case.shape.clone(), model)).or_default();
        if trackers.len() < SEQUENCES_MAX {
            let unmerged = tracker_with(&case, false)?;
            // Half of them merge views after each movement, half at the end.
            let simple = tracker_with(&case, trackers.len().is_multiple_of(2))?.simplify();
            trackers.push([simple, unmerged]);
        }
    }
    let mut equal = Equal::default();
    for trackers in placements.values().filter(|trackers| trackers.len() > 1) {
        equal.placements += 1;
        for (position, second) in trackers.iter().enumerate() {
            for first in &trackers[..position] {
                equal.pairs += 1;
                equal.unequal += u64::from(first[0] != second[0]);
                equal.unequal_unmerged += u64::from(first[1] != second[1]);
            }
        }
    }
    Ok(equal)
}
