//! Passes over linear uops: a drawn kernel with unrolled and upcast ranges must give the same bits
//! after each pass.
//!
//! Kernels that are lowered from programs have the forms that the optimiser chooses; here each
//! range may be expanded, around loops, sums and choices of any type.

use gradiff::UOp;
use gradiff::graph::verify::verify_kernel;
use gradiff::graph::{Arg, Axis, AxisKind, Constant, DType, Instruction, Linear, Op, Target};
use gradiff::kernel::Options;
use gradiff::kernel::passes::{Context, LINEAR_PASSES};
use gradiff::rewrite::Trace;
use gradiff_eval::{Elements, scalar};

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
    check_passes(&kernel, name, false, draw)
}

/// Runs each pass on a kernel of indices, whose iterations may store the same element: all of its
/// ranges that are not launched are unrolled, in order, or stay loops. Its stores get values that
/// show this order.
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
    check_passes(&with_values(&kernel), name, true, draw)
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

/// The kernel with a value for each store that no other store and no other iteration has: the sum
/// of their numbers and of the last loaded element.
///
/// `expand` emits a uop that does not vary along an unrolled range once, in the first iteration. No
/// kernel that is lowered has such a store, and none has such a load of an array that it stores to
/// there. So each store varies along all ranges around it, and only the element of a load that
/// varies along the unrolled ranges around it, or that no store changes, is part of a value.
fn with_values(kernel: &Linear) -> Linear {
    let old = &kernel.uops;
    let array = |access: &Instruction| old[access.src[0] as usize].src[0];
    let is_stored =
        |load: &Instruction| old.iter().any(|uop| uop.op == Op::Store && array(uop) == array(load));
    let (mut uops, mut positions): (Vec<Instruction>, Vec<u32>) = Default::default();
    // The ranges (bits) that each uop varies along.
    let mut varies: Vec<u64> = Vec::new();
    // The bit of each open range, or 0 if it is not unrolled, and the number of the iteration.
    let mut open: Vec<(u64, u32)> = Vec::new();
    let (mut loaded, mut range_count, mut store_count) = (None, 0, 0);
    for uop in old {
        let mut bits = uop.src.iter().fold(0u64, |bits, source| bits | varies[*source as usize]);
        let mut copy = uop.clone();
        copy.src.iter_mut().for_each(|source| *source = positions[*source as usize]);
        if uop.op == Op::Store {
            store_count += 1;
            let parts = open.last().map(|(_, number)| *number).into_iter().chain(loaded);
            let lanes = old[uop.src[1] as usize].lanes;
            copy.src[1] = value(&mut uops, parts, store_count, lanes);
        }
        uops.push(copy);
        let position = uops.len() as u32 - 1;
        match (uop.op, &uop.arg) {
            (Op::Range, Arg::Axis(axis)) => {
                let bit = 1 << range_count;
                range_count += 1;
                bits |= bit;
                let number = iteration(&mut uops, position, open.last().map(|(_, number)| *number));
                open.push((if axis.kind == AxisKind::Unroll { bit } else { 0 }, number));
            }
            (Op::EndRange, _) => {
                open.pop();
                loaded = None;
            }
            // A kernel that is lowered takes no lane of a loaded vector.
            (Op::Load, _) if uop.dtype == DType::F32 && uop.lanes == 1 => {
                let unrolled = open.iter().fold(0u64, |bits, (bit, _)| bits | *bit);
                if unrolled & !bits == 0 || !is_stored(uop) {
                    loaded = Some(position);
                }
            }
            _ => {}
        }
        positions.push(position);
        varies.push(bits);
    }
    Linear { name: kernel.name.clone(), uops }
}

/// Appends the number of an iteration, counted through all ranges around it. Drawn ranges have
/// fewer than 8 iterations.
fn iteration(uops: &mut Vec<Instruction>, range: u32, outer: Option<u32>) -> u32 {
    let counter = push(uops, Op::Cast, &[range], Arg::None);
    let Some(outer) = outer else { return counter };
    let eight = push(uops, Op::Const, &[], Arg::Const(Constant::float(DType::F32, 8.0)));
    let scaled = push(uops, Op::Mul, &[outer, eight], Arg::None);
    push(uops, Op::Add, &[scaled, counter], Arg::None)
}

/// Appends the sum of the parts and of the number of a store, of which there are fewer than 16.
fn value(
    uops: &mut Vec<Instruction>,
    parts: impl Iterator<Item = u32>,
    store: u32,
    lanes: u8,
) -> u32 {
    let number = Constant::float(DType::F32, f64::from(store) / 16.0);
    let number = push(uops, Op::Const, &[], Arg::Const(number));
    let sum = parts.fold(number, |sum, part| push(uops, Op::Add, &[part, sum], Arg::None));
    if lanes == 1 {
        return sum;
    }
    let vector = push(uops, Op::Vectorize, &[sum], Arg::None);
    uops[vector as usize].lanes = lanes;
    vector
}

fn push(uops: &mut Vec<Instruction>, op: Op, src: &[u32], arg: Arg) -> u32 {
    uops.push(Instruction::new(op, DType::F32, src.iter().copied(), arg));
    uops.len() as u32 - 1
}

/// Runs the passes one after the other. With `is_numbered`, floats in memory are numbers of their
/// elements; else they are drawn, and what is stored is undefined before.
fn check_passes(
    kernel: &Linear,
    name: &str,
    is_numbered: bool,
    draw: &mut Draw,
) -> Result<(), String> {
    let target = Target::of(name);
    let mut before: Vec<Elements> = Vec::new();
    for (global, dtype) in kernel.globals() {
        let number = |at: i64| scalar::float(dtype, at as f64 + 0.5).filter(|_| is_numbered);
        let value = |at: i64| match crate::models::linear::is_stored(kernel, global.slot) {
            true => number(at),
            false => {
                let drawn = element(draw, dtype);
                number(at).or(Some(drawn))
            }
        };
        // A kernel of indices may leave slots out.
        before.resize(before.len().max(global.slot + 1), Vec::new());
        before[global.slot] = (0..global.size_elements).map(value).collect();
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
        compare(&linear, &before, &expected)
            .map_err(|problem| report(format!("{problem}, in\n{linear}")))?;
    }
    Ok(())
}

/// Runs a kernel on arrays and compares them with those that are expected after it.
fn compare(linear: &Linear, before: &[Elements], expected: &[Elements]) -> Result<(), String> {
    let mut found = before.to_vec();
    gradiff_eval::linear::run(linear, &mut found)?;
    let pairs = found.iter().flatten().zip(expected.iter().flatten());
    for (at, (found, expected)) in pairs.enumerate() {
        let is_right = match (found, expected) {
            (Some(found), Some(expected)) => is_same(*found, *expected),
            (found, expected) => found.is_none() && expected.is_none(),
        };
        if !is_right {
            return Err(format!("element {at} is {found:?}, not {expected:?}"));
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
    use gradiff::graph::text::parse_linears;

    use super::super::damage::relocate;
    use super::super::indices::drawn;
    use super::*;

    #[test]
    fn drawn_kernels_keep_their_results() {
        for seed in 0..2000 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// Each iteration loads the element that the one before stored.
    const KERNEL: &str = "\
kernel E_2
   0 const          i32   []           2
   1 const          i32   []           1
   2 const          f32   []           1.0
   3 define_global  f32   []           data0 3
   4 range          i32   [0]          0r
   5 index          f32   [3, 4]
   6 load           f32   [5]
   7 add            i32   [4, 1]
   8 index          f32   [3, 7]
   9 store          void  [8, 2]
  10 endrange       void  [4]
";

    #[test]
    fn another_order_of_accesses_is_noticed() {
        let (target, options, mut trace) =
            (Target::of("plain"), Options::default(), Trace::default());
        let tree = UOp::new(Op::Sink, DType::Void, [], Arg::None);
        let context = Context::new(&tree, &target, &options, &mut trace);
        // Both iterations store to the last element of the second kernel.
        let same = KERNEL.replace("[3, 7]", "[3, 0]");
        for (text, is_load) in [(KERNEL, true), (same.as_str(), false)] {
            let kernel = with_values(&parse_linears(text).expect("a kernel")[0]);
            let number = |at: u8| scalar::float(DType::F32, f64::from(at) + 0.5);
            let before: Vec<Elements> = vec![(0..3).map(number).collect()];
            let mut expected = before.clone();
            gradiff_eval::linear::run(&kernel, &mut expected).expect("it runs");
            let mut linear = (LINEAR_PASSES[0].run)(kernel, &context).expect("it is expanded");
            assert_eq!(compare(&linear, &before, &expected), Ok(()), "{linear}");
            let positions = |op: Op| -> Vec<usize> {
                (0..linear.uops.len()).filter(|at| linear.uops[*at].op == op).collect()
            };
            let (loads, stores) = (positions(Op::Load), positions(Op::Store));
            assert_eq!([loads.len(), stores.len()], [2; 2], "{linear}");
            relocate(&mut linear, stores[0], if is_load { loads[1] } else { stores[1] });
            assert!(compare(&linear, &before, &expected).is_err(), "{linear}");
        }
    }

    #[test]
    fn stores_of_unrolled_indices_depend_on_loads() {
        let mut count = 0;
        for seed in 0..600 {
            let mut kernel = with_arrays_first(&drawn(&mut Draw::new(seed)).0);
            for uop in &mut kernel.uops {
                if let Arg::Axis(axis) = &mut uop.arg
                    && !axis.kind.is_launched()
                {
                    axis.kind = AxisKind::Unroll;
                }
            }
            let valued = with_values(&kernel);
            assert_eq!(verify_kernel(&valued).is_ok(), verify_kernel(&kernel).is_ok(), "{valued}");
            let mut is_loaded: Vec<bool> = Vec::new();
            for uop in &valued.uops {
                let depends = uop.src.iter().any(|source| is_loaded[*source as usize]);
                is_loaded.push(uop.op == Op::Load || depends);
            }
            let mut stores = valued.uops.iter().filter(|uop| uop.op == Op::Store);
            count += usize::from(stores.any(|store| is_loaded[store.src[1] as usize]));
        }
        assert!(40 < count, "stores of {count} of 600 kernels depend on a load");
    }
}
