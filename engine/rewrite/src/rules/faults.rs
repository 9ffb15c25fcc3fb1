//! Planted faults: rows that are wrong on purpose, to measure whether they are found.
//!
//! A fault replaces one field of one row when the tables are loaded. Without the cargo feature
//! `faults` no fault is ever active.

use crate::rule::Rule;

/// The tables with the rows that the active fault changes.
pub(crate) fn with_faults(tables: &[&[Rule]]) -> Vec<Vec<Rule>> {
    tables.iter().map(|table| table.to_vec()).collect()
}
