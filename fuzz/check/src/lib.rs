//! Backends, oracles, reduction, blame and reports.
//!
//! In: cases. Out: tallies, failures, minimised cases with the first wrong stage named. Touches no
//! process, file or clock, except in `texts`, where the host's compiler runs; the command line
//! does that. `fuzz/README.md` says what each module checks.

mod agree;
mod backend;
mod blame;
mod calls;
mod canary;
mod columns;
mod coverage;
mod culprit;
mod directed;
mod engine;
mod equal;
mod expects;
mod exprs;
pub mod forms;
pub mod fuzz;
mod gathers;
mod kernels;
mod linear;
mod listing;
mod lowering;
mod matmuls;
mod model;
mod nests;
mod opts;
mod panics;
mod parts;
mod points;
mod reduce;
mod refusal;
mod report;
pub mod sabotage;
mod session;
mod simpler;
pub mod snap;
mod spans;
mod stages;
mod strict;
mod sums;
mod symbolic;
mod texts;
mod translate;
mod trees;
mod views;

pub use agree::{Failure, Kind, Tally, agree, agree_in_steps};
pub use backend::{Backend, Outcome};
pub use blame::{Blame, Suspect, blame, blame_expr, blame_in_steps, blame_views, suspect};
pub use calls::{check_calls, check_chain, check_runtime, crate_of_calls};
pub use canary::{Canary, Judge, canaries, check_canaries};
pub use coverage::{At, Coverage, DEVICES, coverage, embedded_cases, fired};
pub use culprit::Culprit;
pub use engine::{BACKENDS, BackendRow, EngineBackend, OpenError, Turn, backends, device_of};
pub use equal::{Equal, equal_views};
pub use expects::check_expects;
pub use exprs::{check_expr, to_uop};
pub use gradiff::kernel::{Opt, OptOp};
pub use gradiff::rewrite::rules::rows;
pub use gradiff::rewrite::{Rule, Types};
pub use kernels::{
    COMPILED, DIRECT, check_cases, check_kernels, check_texts, count_of_cases, crate_of_kernels,
    drawn_kernel,
};
pub use listing::check_text;
pub use opts::{OptsFailure, OptsTally, Sequences, opts};
pub use panics::catch;
pub use reduce::reduce;
pub use report::{Finding, python_script, rust_test, stem};
pub use simpler::simpler_cases;
pub use stages::{Shown, show};
pub use sums::PREFIX as SUMS_PREFIX;
pub use symbolic::check_symbolic_views;
pub use trees::check_trees;
pub use views::check_views;
