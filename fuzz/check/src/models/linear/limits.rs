//! Checks of a kernel without running it: the target supports its launch, its local memory, its
//! vectors and products, and its language has a text for it.

use gradiff::graph::{Arg, AxisKind, Instruction, Linear, Op, Target};
use gradiff::render::{Error, LANGUAGES};

use super::Rules;

/// The words in reports of a kernel without a text, for which the renderer is to blame.
pub(crate) const NO_TEXT: &str = "it has no text";

/// Checks that a kernel satisfies the rules.
///
/// # Errors
/// The first rule that it breaks.
pub(super) fn check(kernel: &Linear, rules: &Rules) -> Result<(), String> {
    gradiff::graph::verify::verify_kernel(kernel).map_err(|error| error.to_string())?;
    check_launch(kernel, rules)?;
    check_local_memory(kernel, rules)?;
    for (position, uop) in kernel.uops.iter().enumerate() {
        let result = check_vectors(kernel, uop, rules).and_then(|()| check_product(uop, rules));
        result.map_err(|problem| format!("uop {position} ({}): {problem}", uop.op))?;
    }
    check_text(kernel, rules)
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}

/// Checks the numbers of threads of a group and of groups of the grid.
fn check_launch(kernel: &Linear, rules: &Rules) -> Result<(), String> {
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
        "a launched range has no constant trip count".to_owned()
    })?;
    let Some(limits) = rules.launch else {
        return ensure(grid.is_empty() && group.is_empty(), || {
            format!("groups of threads, which {} does not have", rules.language)
        });
    };
    ensure(threads.is_empty(), || format!("threads without groups, on {}", rules.language))?;
    for (unit, sizes, maxima) in
        [("threads of a group", &group, limits.sizes), ("groups", &grid, limits.counts)]
    {
        let is_small = sizes.iter().zip(maxima).all(|(size, maximum)| *size <= maximum);
        ensure(sizes.len() <= 3 && is_small, || {
            format!(
                "{sizes:?} {unit} (the innermost first), but {} has at most {maxima:?}",
                rules.language
            )
        })?;
    }
    let threads = group.iter().try_fold(1i64, |count, size| count.checked_mul(*size));
    ensure(threads.is_some_and(|threads| threads <= limits.threads), || {
        let maximum = limits.threads;
        format!("groups of {group:?} threads, but {} has at most {maximum}", rules.language)
    })
}

/// Checks the bytes of local arrays.
fn check_local_memory(kernel: &Linear, rules: &Rules) -> Result<(), String> {
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
        format!("{bytes} bytes of local memory, but {} has {}", rules.language, rules.local_bytes)
    })
}

/// Checks the vectors of a uop.
fn check_vectors(kernel: &Linear, uop: &Instruction, rules: &Rules) -> Result<(), String> {
    let source = |number: usize| &kernel.uops[uop.src[number] as usize];
    let value = if uop.op == Op::Store { source(1) } else { uop };
    if value.lanes == 1 {
        return Ok(());
    }
    let problem =
        || format!("{}x{}, which {} does not have", value.dtype, value.lanes, rules.language);
    if matches!(uop.op, Op::Load | Op::Store) {
        let bytes = value.dtype.size_bytes() as i64 * i64::from(value.lanes);
        return ensure(rules.lanes.contains(&value.lanes) && bytes <= rules.vector_bytes, problem);
    }
    ensure(rules.has_vector_alu || !uop.op.is_elementwise(), problem)
}

/// Checks the product of a uop.
fn check_product(uop: &Instruction, rules: &Rules) -> Result<(), String> {
    let Arg::TensorCore(core) = uop.arg else { return Ok(()) };
    ensure(rules.cores.contains(&core.name), || {
        format!("{}, which {} does not have", core.name, rules.language)
    })
}

/// Checks that the language has a text for the kernel, unless it does not support its types. A
/// function that its target does not support is the kernel's fault.
fn check_text(kernel: &Linear, rules: &Rules) -> Result<(), String> {
    let language = LANGUAGES.iter().find(|language| Some(language.name) == rules.text);
    let Some(language) = language else { return Ok(()) };
    match crate::catch(|| (language.render)(kernel)) {
        Ok(Ok(_) | Err(Error::Type { .. })) => Ok(()),
        Ok(Err(error)) => match Target::of(language.name).find_unsupported(kernel) {
            Some(problem) => Err(format!("{} {problem}", rules.language)),
            None => Err(format!("{NO_TEXT}: {error}")),
        },
        Err(panic) => Err(format!("{NO_TEXT}: {panic}")),
    }
}
