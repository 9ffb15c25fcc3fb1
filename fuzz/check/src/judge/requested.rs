//! Check of schedules: what a program asks for with `contiguous` is stored by a kernel.
//!
//! Such a request changes no element, so a schedule that drops it gives the right results, but
//! later reads compute again what the program wanted to have computed once.

use std::collections::HashSet;

use gradiff::graph::{Arg, DType, Op};
use gradiff::schedule::{self, Options};
use gradiff::{Plan, UOp};

/// Prefix of this check's reports.
pub(crate) const SAID: &str = "a request for a buffer is lost";

/// Checks a plan for these outputs, scheduled with these options.
///
/// A request is identified by the type and the number of elements of what is stored: a lost one is
/// not noticed if another buffer of the plan has the same.
///
/// # Errors
/// A node under `contiguous` that no kernel of the plan stores.
pub(crate) fn check(outputs: &[UOp], options: &Options, plan: &Plan) -> Result<(), String> {
    let is_requested = |node: &UOp| node.op() == Op::Contiguous && is_computed(&node.src()[0]);
    if !outputs.iter().any(|output| output.toposort().iter().any(is_requested)) {
        return Ok(());
    }
    // Some requests end with what is folded.
    let first = schedule::stages(outputs, options).next().expect("the scheduler has passes");
    let (name, folded) = first.map_err(|error| error.to_string())?;
    assert_eq!(name, "fold", "the first pass");
    let stores = plan.items.iter().flat_map(|item| item.ast.toposort());
    let stored: HashSet<(DType, i64)> = stores.filter_map(|node| stored(&node)).collect();
    for node in folded.iter().flat_map(UOp::toposort).filter(is_requested) {
        let size = node.shape().map_or(0, |shape| shape.iter().product());
        if size != 0 && !stored.contains(&(node.dtype(), size)) {
            let dtype = node.dtype().name();
            return Err(format!("{SAID}: no kernel stores the {size} elements of {dtype}"));
        }
    }
    Ok(())
}

/// Returns whether a kernel has to compute the node: it is in no buffer yet, and no constant.
fn is_computed(node: &UOp) -> bool {
    match (node.op(), node.arg()) {
        (Op::ReduceAxis, Arg::Reduce(_, axes)) => !axes.is_empty(),
        (op, _) => op.is_elementwise(),
    }
}

/// The type and the number of elements of the array that a store of a tree is to.
fn stored(node: &UOp) -> Option<(DType, i64)> {
    let array = node.src().first().filter(|_| node.op() == Op::Store)?;
    match array.arg() {
        Arg::Global(global) => Some((array.dtype(), global.size_elements)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::Case;

    use super::*;
    use crate::models::stages::graph;

    fn outputs(text: &str) -> Vec<gradiff::Tensor> {
        match gradiff_corpus::parse(text).map(|file| file.case) {
            Ok(Case::Program(program)) => graph(&program).expect("a program"),
            case => panic!("{case:?}"),
        }
    }

    /// Checks the plan of the first program for the requests of the second one.
    fn checked(planned: &str, requesting: &str) -> Result<(), String> {
        let engine = gradiff::Engine::new("interp").expect("a device");
        let planned = outputs(planned);
        let plan = engine.plan(&planned.iter().collect::<Vec<_>>()).expect("a plan");
        let requesting: Vec<UOp> = outputs(requesting).iter().map(gradiff::Tensor::uop).collect();
        check(&requesting, &engine.schedule, &plan)
    }

    #[test]
    fn a_request_that_no_kernel_stores_is_reported() {
        let program = |request: &str| {
            format!("a = input f32[6] iota\nb = mul a a\n{request}d = sum c axes=[0]\noutput d\n")
        };
        let [with, without] = ["c = contiguous b\n", "c = add b b\n"].map(program);
        assert_eq!(checked(&with, &with), Ok(()));
        assert_eq!(checked(&without, &without), Ok(()));
        let problem = checked(&without, &with).expect_err("a lost request");
        assert_eq!(problem, format!("{SAID}: no kernel stores the 6 elements of f32"));
    }
}
