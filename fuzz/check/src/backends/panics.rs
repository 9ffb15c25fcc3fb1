//! Panics as findings: their messages, and the crate of the engine in which they arose.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

use crate::blame::Crate;

/// Files that check what callers give them: a panic there is the caller's fault.
const ASSERTING: [&str; 3] =
    ["engine/graph/src/uop.rs", "engine/graph/src/constant.rs", "engine/view/src/dim.rs"];

/// Prefix of the messages of [`catch`].
const PREFIX: &str = "panic: ";

thread_local! {
    /// Number of calls of `catch` in progress.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// The crate of the last panic that was caught.
    static CRATE: Cell<Option<Crate>> = const { Cell::new(None) };
}

/// Runs `work`; a panic becomes its message.
///
/// # Errors
/// The message of the panic.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let (mut work, mut result) = (Some(work), None);
    run_caught(&mut || result = work.take().map(|work| work()))?;
    Ok(result.expect("the work was run"))
}

/// The part of [`catch`] that is the same for all types.
fn run_caught(work: &mut dyn FnMut()) -> Result<(), String> {
    install();
    DEPTH.set(DEPTH.get() + 1);
    let caught = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    caught.map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
        format!("{PREFIX}{}", text.unwrap_or_else(|| "without a message".to_string()))
    })
}

/// The crate of the engine in which the last panic that was caught on this thread arose, if this
/// problem is a panic.
pub(crate) fn crate_of(problem: &str) -> Option<Crate> {
    problem.contains(PREFIX).then(|| CRATE.get()).flatten()
}

/// Installs the hook that notes the crate of a panic.
fn install() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.get() != 0 {
                CRATE.set(crate_of_hook(info));
            }
            previous(info);
        }));
    });
}

/// The crate of a panic, by its file; if that is not a file of the engine, by the innermost
/// function of the engine that was being called.
fn crate_of_hook(info: &PanicHookInfo<'_>) -> Option<Crate> {
    let file = info.location()?.file().replace('\\', "/");
    if ASSERTING.iter().any(|asserting| file.ends_with(asserting)) {
        return None;
    }
    let trace = || Backtrace::force_capture().to_string();
    crate_of_file(&file).or_else(|| trace().lines().find_map(crate_of_line))
}

fn crate_of_file(file: &str) -> Option<Crate> {
    Crate::ALL.into_iter().find(|known| file.contains(&format!("engine/{known}/src/")))
}

/// Returns the crate of a line of a backtrace, which names a function or its file. The types with
/// which a function is generic do not count.
fn crate_of_line(line: &str) -> Option<Crate> {
    let line = line.trim_start();
    if let Some(file) = line.strip_prefix("at ") {
        return crate_of_file(file);
    }
    let (_, function) = line.split_once(": ")?;
    let path = function.trim_start_matches(['<', '&']).strip_prefix("gradiff_")?;
    Crate::named(path.split_once("::")?.0).filter(|known| *known != Crate::Oracle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff::graph::{Constant, DType};

    #[test]
    fn panics_belong_to_the_crate_in_which_they_arise() {
        let problem = catch(|| gradiff::render::c_prelude(&Default::default())).map(drop);
        assert_eq!(problem, Ok(()));
        let problem = catch(|| panic!("here")).expect_err("it panics");
        assert_eq!((problem.as_str(), crate_of(&problem)), ("panic: here", None));
        // The caller's mistake.
        let problem = catch(|| Constant::float(DType::I32, 1.0)).expect_err("it panics");
        assert_eq!(crate_of(&problem), None);
        assert_eq!(crate_of("output 0 differs"), None);
    }

    #[test]
    fn lines_of_backtraces_name_their_crate() {
        for (line, expected) in [
            ("   3: gradiff_kernel::lower::lower", Some(Crate::Kernel)),
            ("   3: <&gradiff_graph::uop::UOp as core::ops::Add>::add", Some(Crate::Graph)),
            ("             at ./engine/view/src/merge.rs:3:7", Some(Crate::View)),
            ("   4: {closure#0}<gradiff_tensor::plan::Plan>", None),
            ("   5: core::iter::map<gradiff_graph::uop::UOp>", None),
            ("   6: gradiff_oracle::evaluate", None),
            ("             at ./fuzz/check/src/lib.rs:3:7", None),
            ("", None),
        ] {
            assert_eq!(crate_of_line(line), expected, "{line}");
        }
    }
}
