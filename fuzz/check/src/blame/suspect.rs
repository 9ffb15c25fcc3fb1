//! Suspects: crates that are known to be wrong whatever stage the problem shows in.

use gradiff::graph::{DType, Target};

use super::{Crate, Stage};

/// The culprit of a problem, wherever the problem shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// As in [`Blame`].
    pub stage: Stage,
    /// As in [`Blame`].
    pub crate_name: Crate,
    /// A description of what is wrong there.
    pub detail: String,
}

/// A crate that is known to be the culprit of a problem, whatever stage the problem shows in:
/// `graph` if some constant fold, interval or size with variables is wrong, since every stage
/// computes with them and panics where they contradict themselves; else the crate that panicked;
/// `graph` if its checker refuses kernels that are right; `kernel` if a target contradicts itself;
/// `render` if a text leaves out a wrap.
pub fn suspect(problem: &str) -> Option<Suspect> {
    let suspect = |stage, crate_name, detail| Some(Suspect { stage, crate_name, detail });
    // The checks below may panic as well.
    let panicked = crate::backends::panics::crate_of(problem);
    if let Some(detail) = crate::checks::calls::wrong_fold() {
        return suspect(Stage::Fold, Crate::Graph, detail);
    }
    if let Some(detail) = crate::checks::calls::wrong_interval() {
        return suspect(Stage::Interval, Crate::Graph, detail);
    }
    if let Some(detail) = crate::checks::calls::wrong_size() {
        return suspect(Stage::Sizes, Crate::Graph, detail);
    }
    if let Some(crate_name) = panicked {
        return suspect(Stage::Panic, crate_name, problem.to_string());
    }
    if problem.contains(crate::backends::translate::SAME_DTYPES) {
        return suspect(Stage::Dtypes, Crate::Graph, problem.to_string());
    }
    if let Some(detail) = crate::checks::calls::wrong_view() {
        return suspect(Stage::Movements, Crate::View, detail);
    }
    if let Some(detail) = wrong_target() {
        return suspect(Stage::Target, Crate::Kernel, detail);
    }
    if problem.contains(gradiff_eval::linear::NOT_WRAPPED) {
        return suspect(Stage::Render, Crate::Render, problem.to_string());
    }
    let is_difference = problem.contains(" of output ");
    match is_difference {
        true => None,
        false => {
            let refused =
                crate::checks::kernels::refused().or_else(crate::checks::calls::wrong_node);
            refused.and_then(|detail| suspect(Stage::Verify, Crate::Graph, detail))
        }
    }
}

/// A target whose vectors have more lanes or bytes than it says.
fn wrong_target() -> Option<String> {
    let wrong = |name: &str, dtype: DType| {
        let vectors = Target::of(name).vectors;
        let lanes = vectors.lanes_of(dtype);
        let bytes = i64::from(vectors.bytes);
        let is_right = match dtype {
            DType::Void => lanes == 0,
            DType::Bool => lanes <= vectors.bool_lanes && lanes <= bytes,
            DType::F16 | DType::BF16 => lanes <= vectors.half_lanes && 2 * lanes <= bytes,
            _ => lanes <= vectors.lanes && lanes * dtype.size_bytes() as i64 <= bytes,
        };
        (!is_right)
            .then(|| format!("{name} claims vectors of {lanes} {dtype}, but has {vectors:?}"))
    };
    Target::names().find_map(|name| DType::ALL.into_iter().find_map(|dtype| wrong(name, dtype)))
}
