//! Kernels with one field of one uop changed: they are refused or stay within their arrays, and
//! nothing panics.

use gradiff::graph::op::OPS;
use gradiff::graph::verify::{verify_kernel, verify_linear};
use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Local, Op,
};

use gradiff::render::LANGUAGES;

use super::form;
use super::walk::{Safety, walk};
use crate::checks::calls::Draw;

/// Beginning of a report that a renderer takes a kernel which has no text.
pub(super) const HAS_TEXT: &str = "it has a text in";

/// Number of changed kernels for each kernel.
const CHANGES: usize = 24;
/// Maximal length of a kernel's name.
const NAME_BYTES_MAX: usize = 1024;

/// Changes the kernel in several ways, one at a time, and checks each.
///
/// # Errors
/// The first changed kernel that is accepted though it is not well formed or exceeds its arrays,
/// that is refused by the verifier though it is well formed, or that makes the verifier panic.
pub(super) fn check(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    if verify_kernel(kernel).is_ok() {
        render(kernel, draw).map_err(|problem| format!("{problem}\n{}", text_of(kernel)))?;
    }
    check_name(kernel, draw)?;
    judge(kernel, draw).map_err(|problem| format!("{problem}\n{}", text_of(kernel)))?;
    for number in 0..CHANGES {
        let mut changed = changed(kernel, draw);
        // A second change may hide the first: a loop in the wrong position is refused at its end,
        // too, unless that is gone.
        if number % 4 == 0 {
            changed = self::changed(&changed, draw);
        }
        let report = |problem: String| format!("{problem}\n{}", text_of(&changed));
        judge(&changed, draw).map_err(report)?;
        if number == 0 {
            let is_bounded = BoundedLinear::check(changed.clone()).is_ok();
            check_renaming(&changed, "renamed", true, is_bounded).map_err(report)?;
        }
    }
    Ok(())
}

/// Gives the kernel a drawn name: it is accepted, and has texts, if the name is an identifier.
///
/// # Errors
/// The name that is judged wrongly.
fn check_name(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    let long = ["k".repeat(NAME_BYTES_MAX), "k".repeat(NAME_BYTES_MAX + 1)];
    let names =
        ["E_4", "_", "7", "4E", "", "a b", "a-b", "E\n", "\u{e9}", "e;", &long[0], &long[1]];
    let name = draw.pick(&names);
    let mut letters = name.chars();
    let is_first = |letter: char| letter == '_' || letter.is_ascii_alphabetic();
    let is_identifier = letters.next().is_some_and(is_first)
        && letters.all(|letter| is_first(letter) || letter.is_ascii_digit());
    let named = Linear { name: name.to_string(), uops: kernel.uops.clone() };
    let report = |problem: String| format!("of the name {name:?}: {problem}");
    let bounded = crate::catch(|| BoundedLinear::check(named.clone())).map_err(report)?;
    let is_allowed = is_identifier && name.len() <= NAME_BYTES_MAX;
    if bounded.is_ok() != (is_allowed && BoundedLinear::check(kernel.clone()).is_ok()) {
        return Err(report(format!("checked as {bounded:?}")));
    }
    check_renaming(kernel, name, is_allowed, bounded.is_ok()).map_err(report)?;
    let language = &LANGUAGES[draw.below(LANGUAGES.len())];
    let text = crate::catch(|| (language.render)(&named)).map_err(report)?;
    if text.is_ok() && !is_identifier {
        return Err(report(format!("{HAS_TEXT} {}", language.name)));
    }
    Ok(())
}

/// Checks that a kernel with another name has the same uops, and still has to be proven.
fn check_renaming(
    kernel: &Linear,
    name: &str,
    is_allowed: bool,
    is_bounded: bool,
) -> Result<(), String> {
    let renamed = crate::catch(|| BoundedLinear::doubted(kernel.clone()).named(name))?;
    let is_right = match &renamed {
        Ok(renamed) => {
            let is_kept = renamed.name == name && renamed.uops == kernel.uops;
            is_allowed && is_kept && crate::catch(|| renamed.ensure())?.is_ok() == is_bounded
        }
        Err(error) => !is_allowed && !error.problem.is_empty() && !error.location.is_empty(),
    };
    is_right.then_some(()).ok_or_else(|| format!("renamed as {renamed:?}"))
}

/// The kernel as text, or its fields if that fails.
fn text_of(kernel: &Linear) -> String {
    crate::catch(|| kernel.to_string()).unwrap_or_else(|_| format!("{kernel:?}"))
}

/// Checks the requirements on any kernel; returns whether it is accepted.
///
/// # Errors
/// The first requirement that is not met.
pub(super) fn judge(kernel: &Linear, draw: &mut Draw) -> Result<bool, String> {
    for kind in AxisKind::ALL {
        let (found, expected) = (kernel.launched(kind), form::launched(kernel, kind));
        if found != expected {
            return Err(format!("launched ranges of {kind:?}: {found:?}, expected {expected:?}"));
        }
    }
    let linear = crate::catch(|| verify_linear(kernel))?;
    let whole = crate::catch(|| verify_kernel(kernel))?;
    if whole.is_ok() {
        render(kernel, draw)?;
    }
    let bounded = crate::catch(|| BoundedLinear::check(kernel.clone()))?;
    let formed = form::check(kernel).and_then(|()| match are_in_warps(kernel) {
        true => Ok(()),
        false => Err("a product outside of a warp".to_string()),
    });
    match (formed, &whole) {
        (Ok(()), Ok(())) => {}
        (Err(_), Err(error)) if !error.problem.is_empty() && !error.location.is_empty() => {}
        (Ok(()), Err(error)) => return Err(format!("it is refused as malformed: {error}")),
        (Err(_), Err(_)) => return Err("it is refused without a message".to_string()),
        (Err(problem), Ok(())) => {
            return Err(format!("it is accepted as well formed: {problem}"));
        }
    }
    let of_tensors = kernel.uops.iter().find(|uop| is_of_tensors(uop.op));
    if let (Some(uop), Ok(())) = (of_tensors, &linear) {
        return Err(format!("{} is accepted in a linear kernel", uop.op));
    }
    if linear.is_err() && whole.is_ok() || whole.is_err() && bounded.is_ok() {
        return Err("it is accepted by the stricter check alone".to_string());
    }
    if bounded.is_err() {
        return Ok(false);
    }
    match walk(kernel, draw) {
        Safety::Breach(problem) => Err(format!("it is accepted as within its arrays: {problem}")),
        Safety::Within | Safety::Unknown => Ok(true),
    }
}

/// Returns whether the op is over tensors, which a linear kernel does not have.
fn is_of_tensors(op: Op) -> bool {
    let is_source = matches!(op, Op::Buffer | Op::Iota) || op.is_marker();
    let is_movement =
        matches!(op, Op::Reshape | Op::Permute | Op::Expand | Op::Pad | Op::Shrink | Op::Flip);
    is_source || is_movement || matches!(op, Op::Reduce | Op::ReduceAxis)
}

/// Returns whether each matrix product is computed by the innermost threads of a group, as many as
/// a warp has.
fn are_in_warps(kernel: &Linear) -> bool {
    let innermost = form::launched(kernel, AxisKind::Local).last().copied();
    kernel.uops.iter().all(|uop| match &uop.arg {
        Arg::TensorCore(core) => {
            uop.src.get(3).is_some_and(|range| innermost == Some((*range, core.threads)))
        }
        _ => true,
    })
}

/// Renders a well-formed kernel in a language, which has a text for it or an error.
///
/// # Errors
/// A panic.
fn render(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    let language = &LANGUAGES[draw.below(LANGUAGES.len())];
    let render = || (language.render)(kernel).map(|code| (language.prelude)(&code.helpers));
    let prelude = crate::catch(render);
    prelude.map(|_| ()).map_err(|panic| format!("in {}: {panic}", language.name))
}

/// The kernel with one change.
fn changed(kernel: &Linear, draw: &mut Draw) -> Linear {
    let mut kernel = kernel.clone();
    let at = draw.below(kernel.uops.len());
    let donor = draw.below(kernel.uops.len());
    match draw.below(14) {
        0 => kernel.uops[at].dtype = dtype(draw),
        1 => kernel.uops[at].lanes = draw.pick(&[0, 1, 2, 3, 4, 8, 16, 64, 255]),
        2 => kernel.uops[at].op = OPS[draw.below(OPS.len())].op,
        3 => kernel.uops[at].arg = kernel.uops[donor].arg.clone(),
        4 => kernel.uops.swap(at, donor),
        5 => {
            let uop = &mut kernel.uops[at];
            match draw.one_in(2) {
                true => uop.src.push(donor as u32),
                false => uop.src.truncate(uop.src.len().saturating_sub(1)),
            }
        }
        6 => kernel.uops[at].arg = similar_arg(&kernel.uops[at], draw),
        7 => source(&mut kernel, at, draw.one_in(4), draw),
        8 => insert(&mut kernel, at, draw),
        9 => remove(&mut kernel, at),
        10 => relocate(&mut kernel, at, donor),
        11 => repeat_range(&mut kernel, draw),
        12 => launch_loops(&mut kernel, draw),
        _ => {
            // A field of a uop of a rare op.
            let rare = kernel.uops.iter().position(|uop| {
                matches!(uop.op, Op::Assign | Op::Barrier | Op::Lane | Op::DefineAcc | Op::Range)
            });
            let at = rare.unwrap_or(at);
            match draw.below(3) {
                0 => kernel.uops[at].dtype = dtype(draw),
                1 => kernel.uops[at].arg = similar_arg(&kernel.uops[at], draw),
                _ => source(&mut kernel, at, false, draw),
            }
        }
    }
    kernel
}

fn dtype(draw: &mut Draw) -> DType {
    if draw.one_in(8) { DType::Void } else { draw.pick(&DType::ALL) }
}

/// Replaces a source, usually by a uop above.
fn source(kernel: &mut Linear, at: usize, is_anywhere: bool, draw: &mut Draw) {
    let count = if is_anywhere { kernel.uops.len() + 1 } else { at.max(1) };
    let sources = &mut kernel.uops[at].src;
    if !sources.is_empty() {
        let number = draw.below(sources.len());
        sources[number] = draw.below(count) as u32;
    }
}

/// Inserts a uop of a rare op, and shifts the sources behind it.
fn insert(kernel: &mut Linear, at: usize, draw: &mut Draw) {
    let mut added = kernel.uops[at].clone();
    if draw.one_in(2) {
        added = Instruction::new(Op::Sink, DType::Void, [], Arg::None);
        added.op = draw.pick(&[Op::Sink, Op::Barrier, Op::Assign, Op::DefineAcc, Op::Lane]);
        added.src = (0..1 + draw.below(2)).map(|_| draw.below(at + 1) as u32).collect();
    }
    for uop in &mut kernel.uops[at..] {
        for source in uop.src.iter_mut().filter(|source| at < **source as usize) {
            *source += 1;
        }
    }
    kernel.uops.insert(at + 1, added);
    for uop in &mut kernel.uops[at + 2..] {
        for source in uop.src.iter_mut().filter(|source| **source as usize == at + 1) {
            *source -= u32::from(draw.one_in(2));
        }
    }
}

/// Removes a uop, usually the end of a loop. Its users have its first source instead.
fn remove(kernel: &mut Linear, at: usize) {
    let ends = |uop: &Instruction| uop.op == Op::EndRange;
    let at = kernel.uops[at..].iter().position(ends).map_or(at, |end| at + end);
    if kernel.uops.len() == 1 {
        return;
    }
    let removed = kernel.uops.remove(at);
    let replacement = removed.src.first().copied().unwrap_or(0);
    for source in kernel.uops[at..].iter_mut().flat_map(|uop| &mut uop.src) {
        match *source as usize {
            user if user == at => *source = replacement,
            user if at < user => *source -= 1,
            _ => {}
        }
    }
}

/// Moves a uop to another position; sources stay the same uops.
pub(super) fn relocate(kernel: &mut Linear, from: usize, to: usize) {
    let moved = kernel.uops.remove(from);
    kernel.uops.insert(to, moved);
    let mut positions: Vec<usize> = (0..kernel.uops.len()).collect();
    let position = positions.remove(from);
    positions.insert(to, position);
    for source in kernel.uops.iter_mut().flat_map(|uop| &mut uop.src) {
        let found = positions.iter().position(|before| *before == *source as usize);
        *source = found.map_or(*source, |found| found as u32);
    }
}

/// Inserts another range, of a drawn kind, that nothing ends: often within a loop.
fn repeat_range(kernel: &mut Linear, draw: &mut Draw) {
    let Some(first) = kernel.uops.iter().position(|uop| uop.op == Op::Range) else { return };
    let mut added = kernel.uops[first].clone();
    if draw.one_in(2) {
        added.arg = similar_arg(&added, draw);
    }
    let at = first + 1 + draw.below(kernel.uops.len() - first);
    for source in kernel.uops[at..].iter_mut().flat_map(|uop| &mut uop.src) {
        *source += u32::from(at <= *source as usize);
    }
    kernel.uops.insert(at, added);
}

/// Makes the loops around an assignment launched ranges, also those that its variable lives across.
fn launch_loops(kernel: &mut Linear, draw: &mut Draw) {
    let is_assign = |at: &usize| kernel.uops[*at].op == Op::Assign;
    let assigns: Vec<usize> = (0..kernel.uops.len()).filter(is_assign).collect();
    if assigns.is_empty() {
        return;
    }
    let before = &mut kernel.uops[..draw.pick(&assigns)];
    let kind = draw.pick(&[AxisKind::Global, AxisKind::Local, AxisKind::Thread]);
    for uop in before.iter_mut().filter(|uop| uop.op == Op::Range) {
        if let Arg::Axis(axis) = uop.arg {
            uop.arg = Arg::Axis(Axis { kind, ..axis });
        }
    }
}

/// An arg similar to that of the uop.
fn similar_arg(uop: &Instruction, draw: &mut Draw) -> Arg {
    let difference = draw.pick(&[-1, 1, -3, 2]);
    match &uop.arg {
        // The type of the uop may have been damaged.
        Arg::Const(constant) => match gradiff_eval::scalar::to_int(*constant) {
            Some(value) if !draw.one_in(6) => {
                Arg::Const(Constant::int(constant.dtype(), value + i128::from(difference)))
            }
            _ => Arg::Const(Constant::zero(draw.pick(&DType::ALL))),
        },
        Arg::Axis(axis) => {
            let kind = draw.pick(&AxisKind::ALL);
            let number = if draw.one_in(2) { axis.number } else { axis.number + difference };
            Arg::Axis(Axis { kind, number })
        }
        Arg::Global(global) => {
            let size_elements = global.size_elements + difference;
            let slot = if draw.one_in(3) { global.slot ^ 1 } else { global.slot };
            Arg::Global(Global { slot, size_elements })
        }
        Arg::Local(local) => {
            let size_elements = local.size_elements + difference;
            Arg::Local(Local { size_elements, ..*local })
        }
        Arg::Int(value) => Arg::Int(value + difference),
        Arg::None => Arg::Int(difference),
        arg => arg.clone(),
    }
}
