//! How often sequences that place all elements alike give equal trackers.

use std::collections::BTreeMap;

use gradiff::view::ShapeTracker;
use gradiff_corpus::ViewOps;

use crate::model::Model;
use crate::views::tracker_with;

/// Sequences kept of one placement, at most: the commonest must not drown the others.
const KEPT: usize = 8;

/// Pairs of sequences that place all elements alike, and how many differ as trackers.
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
    /// Simplified trackers that differ, of a hundred pairs.
    pub fn percent(&self) -> f64 {
        self.unequal as f64 * 100.0 / self.pairs.max(1) as f64
    }

    /// The same of trackers as the operations leave them.
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
        let kept = placements.entry((case.shape.clone(), model)).or_default();
        if kept.len() < KEPT {
            let unmerged = tracker_with(&case, false)?;
            // Half of them merge while they move, half at the end.
            let simple = tracker_with(&case, kept.len().is_multiple_of(2))?.simplify();
            kept.push([simple, unmerged]);
        }
    }
    let mut equal = Equal::default();
    for kept in placements.values().filter(|kept| kept.len() > 1) {
        equal.placements += 1;
        for (place, one) in kept.iter().enumerate() {
            for other in &kept[..place] {
                equal.pairs += 1;
                equal.unequal += u64::from(one[0] != other[0]);
                equal.unequal_unmerged += u64::from(one[1] != other[1]);
            }
        }
    }
    Ok(equal)
}
