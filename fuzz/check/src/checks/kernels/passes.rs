//! Passes over linear uops: a drawn kernel with unrolled and upcast ranges must give the same bits
//! after each pass.
//!
//! Kernels that are lowered from programs have the forms that the optimiser chooses; here each
//! range may be expanded, around loops, sums and choices of any type.

use gradiff::UOp;
use gradiff::graph::verify::verify_kernel;
use gradiff::graph::{Arg, Axis, AxisKind, DType, Linear, Op, Target};
use gradiff::kernel::Options;
use gradiff::kernel::passes::{Context, LINEAR_PASSES};
use gradiff::rewrite::Trace;
use gradiff_eval::Elements;

use super::draw::{Style, draw_kernel, element};
use super::is_same;
use crate::checks::calls::Draw;

/// Prefix of this check's reports.
pub(super) const PREFIX: &str = "pass over uops";

/// Targets whose passes are tried.
const TARGETS: [&str; 5] = ["plain", "groups", "short-vectors", "vectors", "llvm"];

/// Draws a kernel and runs each pass over linear uops on it.
///
/// # Errors
/// The first pass after which the kernel is malformed or has another result, as text.
pub(super) fn check(draw: &mut Draw) -> Result<(), String> {
    let name = draw.pick(&TARGETS);
    let mut kernel = draw_kernel(draw, &Style::of_passes(name));
    expand_some(&mut kernel, draw);
    check_passes(&kernel, name, draw)
}

/// Runs each pass on a kernel of indices, whose iterations may store the same element: all of its
/// ranges that are not launched are unrolled, in order, or stay loops.
///
/// # Errors
/// As [`check`].
pub(super) fn check_indices(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    let mut kernel = with_arrays_first(kernel);
    for uop in &mut kernel.uops {
        if let (Op::Range, Arg::Axis(axis)) = (uop.op, &uop.arg)
            && !axis.kind.is_launched()
        {
            let kind = draw.pick(&[AxisKind::Unroll, AxisKind::Loop]);
            uop.arg = Arg::Axis(Axis { kind, number: axis.number });
        }
    }
    let name = draw.pick(&TARGETS);
    check_passes(&kernel, name, draw)
}

/// The kernel with its arrays above its loops, where lowering puts them.
fn with_arrays_first(kernel: &Linear) -> Linear {
    let is_array = |at: &usize| matches!(kernel.uops[*at].op, Op::DefineGlobal | Op::DefineLocal);
    let (arrays, others): (Vec<usize>, Vec<usize>) = (0..kernel.uops.len()).partition(is_array);
    let order = [arrays, others].concat();
    let mut new_numbers = vec![0; order.len()];
    (0..).zip(&order).for_each(|(new, old)| new_numbers[*old] = new);
    let mut uops: Vec<_> = order.iter().map(|at| kernel.uops[*at].clone()).collect();
    for source in uops.iter_mut().flat_map(|uop| &mut uop.src) {
        *source = new_numbers[*source as usize];
    }
    Linear { name: kernel.name.clone(), uops }
}

fn check_passes(kernel: &Linear, name: &str, draw: &mut Draw) -> Result<(), String> {
    let target = Target::of(name);
    let mut before: Vec<Elements> = Vec::new();
    for (global, dtype) in kernel.globals() {
        let mut value = || match crate::models::linear::is_stored(kernel, global.slot) {
            true => None,
            false => Some(element(draw, dtype)),
        };
        // A kernel of indices may leave slots out.
        before.resize(before.len().max(global.slot + 1), Vec::new());
        before[global.slot] = (0..global.size_elements).map(|_| value()).collect();
    }
    let mut expected = before.clone();
    if gradiff_eval::linear::run(kernel, &mut expected).is_err() {
        // It has no meaning.
        return Ok(());
    }
    // No pass over linear uops looks at the tree.
    let tree = UOp::new(Op::Sink, DType::Void, [], Arg::None);
    let (options, mut trace) = (Options::default(), Trace::default());
    let context = Context::new(&tree, &target, &options, &mut trace);
    let mut linear = kernel.clone();
    for pass in LINEAR_PASSES {
        let report =
            |why: String| format!("{PREFIX}: after {} for {name}, {why} of\n{kernel}", pass.name);
        let after = crate::catch(|| (pass.run)(linear.clone(), &context)).map_err(report)?;
        linear = after.map_err(|error| report(format!("a refusal, {error},")))?;
        verify_kernel(&linear).map_err(|error| report(format!("{error}, in\n{linear}")))?;
        let mut found = before.clone();
        gradiff_eval::linear::run(&linear, &mut found)
            .map_err(|problem| report(format!("{problem}, in\n{linear}")))?;
        let pairs = found.iter().flatten().zip(expected.iter().flatten());
        for (at, (found, expected)) in pairs.enumerate() {
            let is_right = match (found, expected) {
                (Some(found), Some(expected)) => is_same(*found, *expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            if !is_right {
                let problem = format!("element {at} is {found:?}, not {expected:?}, in\n{linear}");
                return Err(report(problem));
            }
        }
    }
    Ok(())
}

/// Makes some loops unrolled ranges, and some of those without a sum upcast ranges.
fn expand_some(kernel: &mut Linear, draw: &mut Draw) {
    let (mut open, mut is_sum) = (0, false);
    for uop in &mut kernel.uops {
        match (uop.op, &uop.arg) {
            (Op::Range, Arg::Axis(axis)) => {
                open += 1;
                let Axis { kind, number } = *axis;
                let kind = match draw.below(3) {
                    _ if kind != AxisKind::Loop => kind,
                    0 => AxisKind::Unroll,
                    1 if !is_sum => draw.pick(&[AxisKind::Upcast, AxisKind::Vector]),
                    _ => kind,
                };
                uop.arg = Arg::Axis(Axis { kind, number });
            }
            (Op::DefineAcc, _) => is_sum = true,
            (Op::EndRange, _) => {
                open -= 1;
                is_sum &= open != 0;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_kernels_keep_their_results() {
        for seed in 0..2000 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }
}
