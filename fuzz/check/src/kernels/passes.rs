//! Passes over linear uops: a drawn kernel with unrolled and upcast ranges must give the same bits
//! after each pass.
//!
//! Kernels that are lowered from programs have the forms that the optimiser chooses; here each
//! range may be expanded, around loops, sums and choices of any type.

use gradiff::UOp;
use gradiff::graph::{Arg, Axis, AxisKind, DType, Linear, Op, verify_kernel};
use gradiff::kernel::{Context, LINEAR_PASSES, Options, Target};
use gradiff::rewrite::Trace;

use super::draw::{Style, draw_kernel, element};
use super::is_same;
use crate::calls::Draw;
use crate::stages::Elements;

/// Targets whose passes are tried, none of which contracts a product and a sum.
const TARGETS: [&str; 5] = ["plain", "groups", "jit", "vectors", "llvm"];

/// Draws a kernel and runs each pass over linear uops on it.
///
/// # Errors
/// The first pass after which the kernel is malformed or has another result, as text.
pub(super) fn check(draw: &mut Draw) -> Result<(), String> {
    let name = draw.pick(&TARGETS);
    let target = Target { fma: false, ..Target::of(name) };
    let mut kernel = draw_kernel(draw, &Style::of_passes(name));
    expand_some(&mut kernel, draw);
    let mut array = |(global, dtype): (gradiff::graph::Global, DType)| -> Elements {
        match global.slot {
            0 => vec![None; global.size_elements as usize],
            _ => (0..global.size_elements).map(|_| Some(element(draw, dtype))).collect(),
        }
    };
    let before: Vec<Elements> = kernel.globals().into_iter().map(&mut array).collect();
    let mut expected = before.clone();
    crate::linear::run(&kernel, &mut expected).map_err(|why| format!("{why}\n{kernel}"))?;
    // No pass over linear uops looks at the tree.
    let tree = UOp::new(Op::Sink, DType::Void, [], Arg::None);
    let (options, mut trace) = (Options::default(), Trace::default());
    let context = Context::new(&tree, &target, &options, &mut trace);
    let mut linear = kernel.clone();
    for pass in &LINEAR_PASSES {
        let report = |why: String| format!("after {} for {name}, {why} of\n{kernel}", pass.name);
        let after = crate::catch(|| (pass.run)(linear.clone(), &context)).map_err(report)?;
        linear = after.map_err(|error| report(format!("a refusal, {error},")))?;
        verify_kernel(&linear).map_err(|error| report(format!("{error}, in\n{linear}")))?;
        let mut found = before.clone();
        crate::linear::run(&linear, &mut found)
            .map_err(|problem| report(format!("{problem}, in\n{linear}")))?;
        for (at, (found, expected)) in found[0].iter().zip(&expected[0]).enumerate() {
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
                    1 if !is_sum => AxisKind::Upcast,
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
