//! Mutants of rewrite rules, and the subjects that distinguish them from their rows.

pub(crate) mod directed;
pub mod forms;
pub mod sabotage;
