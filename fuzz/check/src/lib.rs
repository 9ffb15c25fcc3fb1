//! Backends, oracles, reduction, blame and reports.
//!
//! In: cases. Out: tallies, failures, minimised cases with the first wrong stage named. Touches no
//! process, file or clock, except in `texts`, where the host's compiler runs; the command line
//! does that. `fuzz/README.md` says what each module checks.

mod backends;
mod blame;
mod checks;
pub mod fuzz;
mod judge;
mod models;
mod random;
mod reduce;
mod report;
mod rules;

pub use backends::backend::{Backend, Kept, Outcome};
pub use backends::engine::{BACKENDS, BackendRow, OpenError, backends, device_of, name_of};
pub use backends::exchange::cancel_peers;
pub use backends::panics::catch;
pub use backends::peer::{PEERS, PeerRow, close_peers, environment, is_peer, version_of};
pub use blame::culprit::Culprit;
pub use blame::{Blame, Crate, Stage, blame, blame_expr, blame_in_steps, blame_views};
pub use checks::equal::{Equal, equal_views};
pub use checks::exprs::{check_expr, simplified_form, to_uop};
pub use checks::opts::{OptsFailure, OptsTally, Sequences, opts};
pub use checks::symbolic::check_symbolic_views;
pub use checks::upstream::{Answer, Upstream, ask};
pub use checks::views::check_views;
pub use gradiff::kernel::{Opt, OptOp};
pub use gradiff::rewrite::Rule;
pub use gradiff::rewrite::rules::rows;
pub use judge::agree::{Failure, Kind, Tally, agree, agree_in_steps};
pub use judge::canary::{Canary, Judge, canaries, check_canaries, check_float_mode};
pub use judge::coverage::{At, Coverage, DEVICES, coverage, embedded_cases, fired};
pub use judge::expects::check_expects;
pub use judge::replaced::with_values;
pub use models::stages::{Form, Shown, show};
pub use reduce::reduce;
pub use reduce::simpler::smaller;
pub use report::compare::{KernelSummary, check_kernels_there, kernels_here, kernels_there};
pub use report::snap;
pub use report::{Finding, files, script, stem};
pub use rules::{forms, sabotage};

/// Checks of drawn subjects, and the attribution of their problems, for this crate's tests.
pub mod testing {
    pub use crate::blame::{Suspect, suspect};
    pub use crate::checks::calls::{
        check_calls, check_damaged, check_large, check_runtime, crate_of_calls, small_programs,
    };
    pub use crate::checks::kernels::{
        COMPILED, DIRECT, check_cases, check_kernels, check_texts, count_of_cases, crate_of_kernels,
    };
    pub use crate::checks::listing::check_text;
    pub use crate::checks::trees::{check_trees, crate_of_trees};
    pub use crate::models::linear::check_estimates;
}
