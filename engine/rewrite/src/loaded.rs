//! The loaded tables: loaded once for the process, and anew for a thread that runs with other rows.

use std::cell::RefCell;
use std::sync::{Arc, OnceLock};

use crate::legalization::Legalization;
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
    pub(crate) contract: Arc<RuleSet>,
    pub(crate) legal: Vec<(Legalization, Arc<RuleSet>)>,
}

impl Loaded {
    fn new(changed: &[Rule]) -> Result<Loaded, Error> {
        let load = |tables: &[&[Rule]]| {
            let tables = with_changes(tables, changed);
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
            contract: load(&[rules::CONTRACT])?,
            legal: rules::LEGAL
                .iter()
                .map(|(name, table)| Ok((*name, load(&[table])?)))
                .collect::<Result<_, _>>()?,
        })
    }
}

/// The tables with `rows` in place of those of the same names. A row with a new name is added to
/// the table that its name begins with; it is left out if there is none.
fn with_changes(tables: &[&[Rule]], rows: &[Rule]) -> Vec<Vec<Rule>> {
    let mut tables: Vec<Vec<Rule>> = tables.iter().map(|table| table.to_vec()).collect();
    let table_of = |name: &str| name.split('/').next().map(str::to_owned);
    for row in rows {
        let same_name = tables.iter_mut().flatten().find(|known| known.name == row.name);
        if let Some(same_name) = same_name {
            *same_name = *row;
        } else if !all_tables().flatten().any(|known| known.name == row.name) {
            let is_for_row = |table: &&mut Vec<Rule>| {
                table.first().is_some_and(|first| table_of(first.name) == table_of(row.name))
            };
            if let Some(table) = tables.iter_mut().find(is_for_row) {
                table.push(*row);
            }
        }
    }
    tables
}

/// All tables, in order.
fn all_tables() -> impl Iterator<Item = &'static [Rule]> {
    let legal = rules::LEGAL.iter().map(|(_, table)| *table);
    let last = [rules::REDUCE, rules::LATE, rules::CONTRACT];
    rules::SYMBOLIC.into_iter().chain(last).chain(legal)
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
    let tables: Vec<&[Rule]> = all_tables().collect();
    with_changes(&tables, &[]).concat()
}

/// The row of this name as it is in use, changed by [`with_rows`] or not.
pub fn row(name: &str) -> Option<Rule> {
    let Loaded { symbolic, reduce, late, contract, legal, .. } = loaded();
    let in_set = |set: Arc<RuleSet>| set.rules().find(|rule| rule.name == name).copied();
    let legal = legal.into_iter().map(|(_, set)| set);
    [symbolic, reduce, late, contract].into_iter().chain(legal).find_map(in_set)
}
