//! Typed generators of cases, driven by a fuzzer's bytes, a seed, a recording or an enumeration.
//!
//! In: `Choices` and limits. Out: programs, view sequences and index expressions that are valid by
//! construction and whose results are seldom undefined. Computes no element and knows no engine.

mod calls;
mod cases;
mod choices;
mod config;
mod edges;
mod elementwise;
mod exprs;
mod fact;
mod features;
mod gradients;
mod idioms;
mod methods;
mod moves;
mod programs;
mod shapes;
mod sources;
mod steer;
mod tail;
mod transfer;
mod values;
mod views;

pub use calls::Calls;
pub use cases::{ExprsCase, ProgramCase, ViewsCase};
pub use choices::{ByteChoices, Choices, Exhaustive, Recorder, Replay, SeedChoices, case_seed};
pub use config::{Config, Lane, Op};
pub use exprs::{ExprConfig, expr};
pub use features::{Feature, Features, Pairs, features};
pub use programs::{Generated, program, program_at};
pub use views::{ViewConfig, views};
