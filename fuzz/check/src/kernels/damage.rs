//! Kernels with one field of one uop changed: they are refused or keep within their arrays, and
//! nothing panics on the way.

use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Local, OPS,
    Op, verify_kernel, verify_linear,
};

use gradiff::render::LANGUAGES;

use super::form;
use super::walk::{Seen, walk};
use crate::calls::Draw;

/// Changes of each kernel.
const CHANGES: usize = 24;

/// Changes the kernel in several ways, one at a time, and checks each.
///
/// # Errors
/// The first one that is taken though it is not well formed or leaves its arrays, that is refused
/// by the verifier though it is well formed, or that makes the verifier panic.
pub(super) fn check(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    if verify_kernel(kernel).is_ok() {
        render(kernel, draw).map_err(|what| format!("{what}\n{}", shown(kernel)))?;
    }
    for _ in 0..CHANGES {
        let changed = changed(kernel, draw);
        judge(&changed, draw).map_err(|what| format!("{what}\n{}", shown(&changed)))?;
    }
    Ok(())
}

/// The kernel as text, if it has one.
fn shown(kernel: &Linear) -> String {
    crate::catch(|| kernel.to_string()).unwrap_or_else(|_| format!("{kernel:?}"))
}

/// What must hold of any kernel.
///
/// # Errors
/// What does not.
pub(super) fn judge(kernel: &Linear, draw: &mut Draw) -> Result<bool, String> {
    for kind in AxisKind::ALL {
        let (found, expected) = (kernel.launched(kind), form::launched(kernel, kind));
        if found != expected {
            return Err(format!("launched ranges of {kind:?}: {found:?}, not {expected:?}"));
        }
    }
    let linear = crate::catch(|| verify_linear(kernel))?;
    let whole = crate::catch(|| verify_kernel(kernel))?;
    if whole.is_ok() {
        render(kernel, draw)?;
    }
    let bounded = crate::catch(|| BoundedLinear::check(kernel.clone()))?;
    if kernel.uops.iter().any(|uop| uop.op == Op::Wmma) {
        return Ok(bounded.is_ok());
    }
    match (form::check(kernel), &whole) {
        (Ok(()), Ok(())) => {}
        (Err(_), Err(error)) if !error.problem.is_empty() && !error.place.is_empty() => {}
        (Ok(()), Err(error)) => return Err(format!("it is refused as malformed: {error}")),
        (Err(_), Err(_)) => return Err("it is refused without a word".to_string()),
        (Err(what), Ok(())) => return Err(format!("it is taken for well formed: {what}")),
    }
    if linear.is_err() && whole.is_ok() || whole.is_err() && bounded.is_ok() {
        return Err("it is taken by the stricter check alone".to_string());
    }
    if bounded.is_err() {
        return Ok(false);
    }
    match walk(kernel, draw) {
        Seen::Breach(what) => Err(format!("it is taken as keeping within its arrays: {what}")),
        Seen::Within | Seen::Unknown => Ok(true),
    }
}

/// Renders a well-formed kernel in a language, which has a text for it or an error.
///
/// # Errors
/// A panic.
fn render(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    let language = &LANGUAGES[draw.below(LANGUAGES.len())];
    let text = crate::catch(|| (language.render)(kernel).map(|text| (language.prelude)(&text)));
    text.map(|_| ()).map_err(|panic| format!("in {}: {panic}", language.name))
}

/// The kernel with one change.
fn changed(kernel: &Linear, draw: &mut Draw) -> Linear {
    let mut kernel = kernel.clone();
    let at = draw.below(kernel.uops.len());
    let other = draw.below(kernel.uops.len());
    match draw.below(10) {
        0 => kernel.uops[at].dtype = dtype(draw),
        1 => kernel.uops[at].lanes = draw.pick(&[0, 1, 2, 3, 4, 8, 16, 64, 255]),
        2 => kernel.uops[at].op = OPS[draw.below(OPS.len())].op,
        3 => kernel.uops[at].arg = kernel.uops[other].arg.clone(),
        4 => kernel.uops.swap(at, other),
        5 => {
            let uop = &mut kernel.uops[at];
            match draw.one_in(2) {
                true => uop.src.push(other as u32),
                false => uop.src.truncate(uop.src.len().saturating_sub(1)),
            }
        }
        6 => kernel.uops[at].arg = near(&kernel.uops[at], draw),
        7 => source(&mut kernel, at, draw.one_in(4), draw),
        8 => insert(&mut kernel, at, draw),
        _ => {
            // A field of a uop of an op that seldom stands in a kernel.
            let rare = kernel.uops.iter().position(|uop| {
                matches!(uop.op, Op::Assign | Op::Barrier | Op::Lane | Op::DefineAcc | Op::Range)
            });
            let at = rare.unwrap_or(at);
            match draw.below(3) {
                0 => kernel.uops[at].dtype = dtype(draw),
                1 => kernel.uops[at].arg = near(&kernel.uops[at], draw),
                _ => source(&mut kernel, at, false, draw),
            }
        }
    }
    kernel
}

fn dtype(draw: &mut Draw) -> DType {
    if draw.one_in(8) { DType::Void } else { draw.pick(&DType::ALL) }
}

/// Another source in the place of one: mostly one above.
fn source(kernel: &mut Linear, at: usize, is_anywhere: bool, draw: &mut Draw) {
    let count = if is_anywhere { kernel.uops.len() + 1 } else { at.max(1) };
    let sources = &mut kernel.uops[at].src;
    if !sources.is_empty() {
        let number = draw.below(sources.len());
        sources[number] = draw.below(count) as u32;
    }
}

/// A uop more, which few kernels have: sources that are above keep their places.
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

/// An arg near that of the uop.
fn near(uop: &Instruction, draw: &mut Draw) -> Arg {
    let step = draw.pick(&[-1, 1, -3, 2]);
    match &uop.arg {
        Arg::Const(value) => match crate::scalar::to_int(*value) {
            Some(value) if !draw.one_in(6) => {
                Arg::Const(Constant::int(uop.dtype, value + i128::from(step)))
            }
            _ => Arg::Const(Constant::zero(draw.pick(&DType::ALL))),
        },
        Arg::Axis(axis) => {
            let kind = draw.pick(&AxisKind::ALL);
            let number = if draw.one_in(2) { axis.number } else { axis.number + step };
            Arg::Axis(Axis { kind, number })
        }
        Arg::Global(global) => {
            let size_elements = global.size_elements + step;
            let slot = if draw.one_in(3) { global.slot ^ 1 } else { global.slot };
            Arg::Global(Global { slot, size_elements })
        }
        Arg::Local(local) => {
            let size_elements = local.size_elements + step;
            Arg::Local(Local { size_elements, ..*local })
        }
        Arg::Int(value) => Arg::Int(value + step),
        Arg::None => Arg::Int(step),
        other => other.clone(),
    }
}
