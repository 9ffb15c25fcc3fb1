//! What can be said of a kernel without running it: its launch, its local memory, its vectors and
//! products are within what the target has, and its language has a text for it.

use gradiff::graph::{Arg, AxisKind, Instruction, Linear, Op};
use gradiff::render::{Error, LANGUAGES};

use super::Rules;

/// The words that tell a kernel without a text, whose renderer is to blame, from others.
pub(crate) const NO_TEXT: &str = "it has no text";

/// Whether a kernel keeps within the rules.
///
/// # Errors
/// The first rule that it breaks.
pub(super) fn check(kernel: &Linear, rules: &Rules) -> Result<(), String> {
    gradiff::graph::verify_kernel(kernel).map_err(|error| error.to_string())?;
    launch(kernel, rules)?;
    local_memory(kernel, rules)?;
    for (position, uop) in kernel.uops.iter().enumerate() {
        let within = vectors(kernel, uop, rules).and_then(|()| product(uop, rules));
        within.map_err(|problem| format!("uop {position} ({}): {problem}", uop.op))?;
    }
    text(kernel, rules)
}

fn ensure(is_so: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if is_so { Ok(()) } else { Err(why()) }
}

/// Threads of a group and groups of the grid.
fn launch(kernel: &Linear, rules: &Rules) -> Result<(), String> {
    let sizes = |kind| -> Vec<i64> {
        kernel.launched(kind).into_iter().rev().map(|(_, size)| size).collect()
    };
    let (grid, group) = (sizes(AxisKind::Global), sizes(AxisKind::Local));
    let is_range = |uop: &&Instruction| {
        uop.op == Op::Range && matches!(uop.arg, Arg::Axis(axis) if axis.kind.is_launched())
    };
    let threads = sizes(AxisKind::Thread);
    let count = kernel.uops.iter().filter(is_range).count();
    ensure(count == grid.len() + group.len() + threads.len(), || {
        "a launched range has no constant count".to_owned()
    })?;
    let Some(limits) = rules.launch else {
        return ensure(grid.is_empty() && group.is_empty(), || {
            format!("groups of threads, which {} has not", rules.language)
        });
    };
    ensure(threads.is_empty(), || format!("threads without groups, on {}", rules.language))?;
    for (what, sizes, most) in
        [("threads of a group", &group, limits.sizes), ("groups", &grid, limits.counts)]
    {
        let is_small = sizes.iter().zip(most).all(|(size, most)| *size <= most);
        ensure(sizes.len() <= 3 && is_small, || {
            format!("{sizes:?} {what} (the innermost first), and {} has {most:?}", rules.language)
        })?;
    }
    let threads = group.iter().try_fold(1i64, |count, size| count.checked_mul(*size));
    ensure(threads.is_some_and(|threads| threads <= limits.threads), || {
        let most = limits.threads;
        format!("groups of {group:?} threads, and {} has {most} in all", rules.language)
    })
}

/// Bytes of local arrays.
fn local_memory(kernel: &Linear, rules: &Rules) -> Result<(), String> {
    let bytes = |uop: &Instruction| match uop.arg {
        Arg::Local(local) => {
            let element = (uop.dtype.size_bytes() as i64).max(rules.local_element_bytes);
            local.size_elements.max(1).saturating_mul(element)
        }
        _ => 0,
    };
    let arrays = kernel.uops.iter().filter(|uop| uop.op == Op::DefineLocal);
    let bytes = arrays.map(bytes).fold(0, i64::saturating_add);
    ensure(bytes <= rules.local_bytes, || {
        format!("{bytes} bytes of local memory, and {} has {}", rules.language, rules.local_bytes)
    })
}

/// Which vectors there are.
fn vectors(kernel: &Linear, uop: &Instruction, rules: &Rules) -> Result<(), String> {
    let source = |number: usize| &kernel.uops[uop.src[number] as usize];
    let value = if uop.op == Op::Store { source(1) } else { uop };
    if value.lanes == 1 {
        return Ok(());
    }
    let what = || format!("{}x{}, which {} has not", value.dtype, value.lanes, rules.language);
    if matches!(uop.op, Op::Load | Op::Store) {
        let bytes = value.dtype.size_bytes() as i64 * i64::from(value.lanes);
        return ensure(rules.lanes.contains(&value.lanes) && bytes <= rules.vector_bytes, what);
    }
    ensure(rules.has_vector_alu || !uop.op.is_elementwise(), what)
}

/// Which products of matrices there are.
fn product(uop: &Instruction, rules: &Rules) -> Result<(), String> {
    let Arg::TensorCore(core) = uop.arg else { return Ok(()) };
    ensure(rules.cores.contains(&core.name), || {
        format!("{}, which {} has not", core.name, rules.language)
    })
}

/// Whether the language has a text for it. Types that it lacks are no case for it.
fn text(kernel: &Linear, rules: &Rules) -> Result<(), String> {
    let language = LANGUAGES.iter().find(|language| Some(language.name) == rules.text);
    let Some(language) = language else { return Ok(()) };
    match crate::catch(|| (language.render)(kernel)) {
        Ok(Ok(_) | Err(Error::Type { .. })) => Ok(()),
        Ok(Err(error)) => Err(format!("{NO_TEXT}: {error}")),
        Err(panic) => Err(format!("{NO_TEXT}: {panic}")),
    }
}
