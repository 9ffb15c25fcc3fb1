//! The loaded tables: loaded once for the process, and anew for a thread that runs with other rows.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::rule::Rule;
use crate::rules;
use crate::ruleset::{Error, RuleSet};

/// The rule sets of the passes.
#[derive(Clone)]
pub(crate) struct Loaded {
    pub(crate) symbolic: Arc<RuleSet>,
    pub(crate) reduce: Arc<RuleSet>,
    pub(crate) collapse: Arc<RuleSet>,
    pub(crate) late: Arc<RuleSet>,
}

impl Loaded {
    fn new(changed: &[Rule]) -> Result<Loaded, Error> {
        let load = |tables: &[&[Rule]]| {
            let tables = rules::changed(tables, changed);
            let tables: Vec<&[Rule]> = tables.iter().map(Vec::as_slice).collect();
            // Rows that are wrong on purpose may also loop.
            let is_unchanged = changed.is_empty();
            let load = if is_unchanged { RuleSet::load } else { RuleSet::load_unordered };
            load(&tables).map(Arc::new)
        };
        let collapse: Vec<&[Rule]> = [rules::REDUCE].into_iter().chain(rules::SYMBOLIC).collect();
        Ok(Loaded {
            symbolic: load(&rules::SYMBOLIC)?,
            reduce: load(&[rules::REDUCE])?,
            collapse: load(&collapse)?,
            late: load(&[rules::LATE])?,
        })
    }
}

thread_local! {
    /// The tables of [`with_rows`].
    static CHANGED: RefCell<Option<Loaded>> = const { RefCell::new(None) };
}

/// The tables in use on this thread.
pub(crate) fn loaded() -> Loaded {
    static ROWS: OnceLock<Loaded> = OnceLock::new();
    let changed = CHANGED.with_borrow(Option::clone);
    changed.unwrap_or_else(|| {
        ROWS.get_or_init(|| Loaded::new(&[]).expect("a test loads the tables")).clone()
    })
}

/// Runs `work` with other tables on this thread: each row that has the name of one of `rows` is
/// replaced by it; a row of a new name is added at the end of the table that its name begins with.
/// Kernels that are lowered by `work` may access elements outside of their arrays: devices that do
/// not check each access compile only kernels that are proven not to.
///
/// # Errors
/// The error of loading the tables.
pub fn with_rows<T>(rows: &[Rule], work: impl FnOnce() -> T) -> Result<T, Error> {
    /// Restores the tables, also if `work` panics.
    struct Restore(Option<Loaded>);
    impl Drop for Restore {
        fn drop(&mut self) {
            CHANGED.set(self.0.take());
        }
    }
    let _restore = Restore(CHANGED.replace(Some(Loaded::new(rows)?)));
    Ok(work())
}

/// Returns whether this thread is in [`with_rows`].
pub fn is_changed() -> bool {
    CHANGED.with_borrow(Option::is_some)
}

/// All rows of all tables, in order.
pub fn rows() -> Vec<Rule> {
    let tables: Vec<&[Rule]> =
        rules::SYMBOLIC.into_iter().chain([rules::REDUCE, rules::LATE]).collect();
    rules::changed(&tables, &[]).concat()
}

/// The row of this name as it is in use, changed by [`with_rows`] or not.
pub fn row(name: &str) -> Option<Rule> {
    let Loaded { symbolic, reduce, late, .. } = loaded();
    let in_set = |set: &Arc<RuleSet>| set.rules().find(|rule| rule.name == name).copied();
    [symbolic, reduce, late].iter().find_map(in_set)
}
