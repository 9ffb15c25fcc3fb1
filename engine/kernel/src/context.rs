//! The context of a pass: the user's choices, the device and the trace of the rules.

use std::hash::{Hash, Hasher};

use gradiff_graph::{Target, UOp};
use gradiff_rewrite::Trace;
use rustc_hash::FxHasher;

use crate::name;
use crate::opt::Strategy;

/// The user's choices for lowering a kernel.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Mode and fuel of the rewriting.
    pub rewrite: gradiff_rewrite::Options,
    /// The choice of optimisations.
    pub opts: Strategy,
    /// Seed for tests: if set, each kernel gets smaller group limits, drawn from the seed and the
    /// kernel's name.
    pub limits: Option<u64>,
}

/// The input of a pass besides the kernel, and its trace.
pub struct Context<'a> {
    /// The device.
    pub target: Target,
    /// The user's choices.
    pub options: &'a Options,
    /// The record of the rules that fired.
    pub trace: &'a mut Trace,
    /// True if loops were divided after they were simplified, without any opts.
    pub(crate) is_divided: bool,
}

impl<'a> Context<'a> {
    /// Makes the context for the passes over this kernel, with its limits drawn.
    pub fn new(
        ast: &UOp,
        target: &Target,
        options: &'a Options,
        trace: &'a mut Trace,
    ) -> Context<'a> {
        let mut target = *target;
        if let (Some(groups), Some(seed)) = (&mut target.groups, options.limits) {
            let mut hasher = FxHasher::default();
            (name(ast), seed).hash(&mut hasher);
            *groups = groups.smaller(hasher.finish());
        }
        Context { target, options, trace, is_divided: false }
    }
}
