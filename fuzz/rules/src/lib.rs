//! The laboratory of rewrite rules: proofs, mutants, drawn subjects and witnesses.
//!
//! In: rows of `gradiff-rewrite`, and nodes that they rewrote. Out: verdicts ([`proof`]), rows made
//! wrong on purpose ([`mutate`]), nodes that a left side matches ([`instance`]), and points at
//! which an application is false ([`witness`]). It uses the rules' syntax trees, `RuleSet` and
//! `bounds` of the engine, nothing else, and the engine does not know it. It starts no process and
//! needs no solver.

mod claim;
mod instance;
mod leaves;
pub mod mutate;
pub mod proof;
pub mod witness;

pub use instance::instance;
