//! Panics as findings: what they say, and the crate of the engine in which they arose.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

/// The crates of the engine.
const ROOMS: [&str; 8] =
    ["view", "graph", "rewrite", "schedule", "kernel", "render", "runtime", "tensor"];

/// Files that check what others give them: a panic there is the caller's.
const ASSERTING: [&str; 3] =
    ["engine/graph/src/uop.rs", "engine/graph/src/constant.rs", "engine/view/src/dim.rs"];

/// The words that what [`catch`] gives begins with.
const SAID: &str = "panic: ";

thread_local! {
    /// How many calls of `catch` are under way.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static ROOM: Cell<Option<&'static str>> = const { Cell::new(None) };
}

/// Runs `work`; a panic becomes its message.
///
/// # Errors
/// What the panic said.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if DEPTH.get() != 0 {
                ROOM.set(room_of(info));
            }
            before(info);
        }));
    });
    DEPTH.set(DEPTH.get() + 1);
    let caught = catch_unwind(AssertUnwindSafe(work));
    DEPTH.set(DEPTH.get() - 1);
    caught.map_err(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        let text = text.or_else(|| payload.downcast_ref::<&str>().map(|s| s.to_string()));
        format!("{SAID}{}", text.unwrap_or_else(|| "without a message".to_string()))
    })
}

/// The crate of the engine in which the last panic that was caught on this thread arose, if this
/// problem tells of a panic.
pub(crate) fn room(problem: &str) -> Option<&'static str> {
    problem.contains(SAID).then(|| ROOM.get()).flatten()
}

/// By the file of the panic; where that is none of the engine's, by the innermost function of the
/// engine that was being called.
fn room_of(info: &PanicHookInfo<'_>) -> Option<&'static str> {
    let file = info.location()?.file().replace('\\', "/");
    if ASSERTING.iter().any(|asserting| file.ends_with(asserting)) {
        return None;
    }
    let is_in = |room: &&&str| file.contains(&format!("engine/{room}/src/"));
    if let Some(room) = ROOMS.iter().find(is_in) {
        return Some(room);
    }
    let trace = Backtrace::force_capture().to_string();
    let first = |room: &&'static str| Some((trace.find(&format!("gradiff_{room}::"))?, *room));
    ROOMS.iter().filter_map(first).min().map(|(_, room)| room)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff::graph::{Constant, DType};

    #[test]
    fn panics_are_of_the_crate_they_arise_in() {
        let problem = catch(|| gradiff::render::c_prelude("")).map(drop);
        assert_eq!(problem, Ok(()));
        let problem = catch(|| panic!("here")).expect_err("it panics");
        assert_eq!((problem.as_str(), room(&problem)), ("panic: here", None));
        // The caller's mistake.
        let problem = catch(|| Constant::float(DType::I32, 1.0)).expect_err("it panics");
        assert_eq!(room(&problem), None);
        assert_eq!(room("output 0 differs"), None);
    }
}
