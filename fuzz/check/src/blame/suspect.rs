//! Suspects: crates that are known to be wrong whatever stage the problem shows in.

use gradiff::graph::{Arg, DType, Op, Target, UOp, Variable};
use gradiff::rewrite::{Legal, Options, Trace};

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
/// `graph` if some constant fold, interval, size with variables or comparison of nodes is wrong,
/// and `view` if a movement is, since every stage computes with them and panics where they
/// contradict themselves; else the crate that panicked; `graph` if its checker refuses kernels that
/// are right; `kernel` if a target contradicts itself; `rewrite` if an op is left that tables of
/// rules replace; `render` if a text leaves out a wrap.
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
    if let Some(detail) = crate::checks::points::wrong_order() {
        return suspect(Stage::Order, Crate::Graph, detail);
    }
    if let Some(detail) = crate::checks::calls::wrong_view() {
        return suspect(Stage::Movements, Crate::View, detail);
    }
    if let Some(crate_name) = panicked {
        return suspect(Stage::Panic, crate_name, problem.to_string());
    }
    if problem.contains(crate::backends::translate::SAME_DTYPES) {
        return suspect(Stage::Dtypes, Crate::Graph, problem.to_string());
    }
    if let Some(detail) = wrong_target() {
        return suspect(Stage::Target, Crate::Kernel, detail);
    }
    if let Some(detail) = left_by_rules().filter(|_| problem.contains(HAS_NO)) {
        return suspect(Stage::Rules, Crate::Rewrite, detail);
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

/// The words of the runtime and of renderers about an op that is not supported.
const HAS_NO: &str = " has no ";

/// An op of integers that legalisation leaves though its tables have a row for it: then the rules
/// are not applied, whatever asks for them.
fn left_by_rules() -> Option<String> {
    let legal = Legal::all();
    [Op::FloorDiv, Op::FloorMod, Op::Max, Op::Min].into_iter().find_map(|op| {
        let dtype = DType::I32;
        let operand = |name: &str| {
            let variable = Variable { name: name.into(), min: -9, max: 9 };
            UOp::new(Op::DefineVar, dtype, [], Arg::Var(variable.into()))
        };
        let node = UOp::binary(op, operand("a"), operand("b"));
        let rewritten = || legal.rewrite(&node, &Options::default(), &mut Trace::default());
        let is_left = legal.concerns(op, dtype)
            && crate::catch(rewritten).map_or(true, |result| result == node);
        is_left.then(|| format!("legalisation leaves {node:?}"))
    })
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
