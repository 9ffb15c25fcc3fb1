//! The stages that can be wrong, and the crates to which they belong.

use gradiff::kernel::passes::{LINEAR_PASSES, LINEARIZE, PASSES};
use gradiff::schedule;

/// A crate that can be wrong, in the order in which a reader meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Crate {
    /// `engine/view`
    View,
    /// `engine/graph`
    Graph,
    /// `engine/rewrite`
    Rewrite,
    /// `engine/schedule`
    Schedule,
    /// `engine/kernel`
    Kernel,
    /// `engine/render`
    Render,
    /// `engine/runtime`
    Runtime,
    /// `engine/tensor`
    Tensor,
    /// `engine/nn`
    Nn,
    /// `engine/files`
    Files,
    /// `oracle`
    Oracle,
}

impl Crate {
    /// All of them, in order.
    pub const ALL: [Crate; 11] = [
        Crate::View,
        Crate::Graph,
        Crate::Rewrite,
        Crate::Schedule,
        Crate::Kernel,
        Crate::Render,
        Crate::Runtime,
        Crate::Tensor,
        Crate::Nn,
        Crate::Files,
        Crate::Oracle,
    ];

    /// Returns the name, that of the crate's folder.
    pub fn name(self) -> &'static str {
        match self {
            Crate::View => "view",
            Crate::Graph => "graph",
            Crate::Rewrite => "rewrite",
            Crate::Schedule => "schedule",
            Crate::Kernel => "kernel",
            Crate::Render => "render",
            Crate::Runtime => "runtime",
            Crate::Tensor => "tensor",
            Crate::Nn => "nn",
            Crate::Files => "files",
            Crate::Oracle => "oracle",
        }
    }

    /// Returns the crate of this name.
    pub fn named(name: &str) -> Option<Crate> {
        Crate::ALL.into_iter().find(|known| known.name() == name)
    }
}

impl std::fmt::Display for Crate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// A stage on the way from a program to its outputs, or a check beside that way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// The oracle evaluates the program.
    Oracle,
    /// Tensors are composed to a graph.
    Tensor,
    /// The graph is divided into kernels, by passes that are not told apart.
    Schedule,
    /// A pass of `schedule`, `kernel` or the rules, by its name.
    Pass(&'static str),
    /// The sequence of movements becomes a tracker.
    Movements,
    /// The text in the language of a device.
    Render,
    /// The text is compiled.
    Compile,
    /// One kernel runs.
    Run,
    /// Kernels and memories work together.
    Launch,
    /// Outputs are read.
    Read,
    /// A call of the API, beside programs.
    Calls,
    /// A drawn kernel or kernel tree, beside programs.
    Drawn,
    /// The text form of the IR.
    Text,
    /// Constants are folded.
    Fold,
    /// Intervals of ops.
    Interval,
    /// Sizes with variables.
    Sizes,
    /// The rules, on expressions.
    Rules,
    /// Dtypes of nodes.
    Dtypes,
    /// The description of a device.
    Target,
    /// The comparison of nodes, by which they are sorted.
    Order,
    /// The check of nodes and kernels.
    Verify,
    /// The crate has panicked.
    Panic,
}

/// The stages that are not passes, with their names.
const NAMED: [(Stage, &str); 21] = [
    (Stage::Oracle, "oracle"),
    (Stage::Tensor, "tensor"),
    (Stage::Schedule, "schedule"),
    (Stage::Movements, "movements"),
    (Stage::Render, "render"),
    (Stage::Compile, "compile"),
    (Stage::Run, "run"),
    (Stage::Launch, "launch"),
    (Stage::Read, "read"),
    (Stage::Calls, "calls"),
    (Stage::Drawn, "drawn"),
    (Stage::Text, "text"),
    (Stage::Fold, "constants"),
    (Stage::Interval, "interval"),
    (Stage::Sizes, "sizes"),
    (Stage::Rules, "rules"),
    (Stage::Dtypes, "dtypes"),
    (Stage::Target, "target"),
    (Stage::Order, "comparison"),
    (Stage::Verify, "verify"),
    (Stage::Panic, "panic"),
];

impl Stage {
    /// The pass of the schedule after which there are kernels.
    pub(crate) const KERNELS: Stage = Stage::Pass("kernels");
    /// The pass that turns a kernel tree into loops.
    pub const LOWER: Stage = Stage::Pass("lower");
    /// The pass that applies optimisations.
    pub const OPTIMIZE: Stage = Stage::Pass("optimize");
    /// The pass that puts the nodes of a kernel in order.
    pub const LINEARIZE: Stage = Stage::Pass(LINEARIZE.name);
    /// The pass that simplifies by rules.
    pub(crate) const SYMBOLIC: Stage = Stage::Pass("symbolic");

    /// Returns the name: that of the pass, or that of the stage.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Pass(name) => name,
            stage => NAMED.iter().find(|row| row.0 == stage).map_or("", |row| row.1),
        }
    }

    /// Returns the stage of this name.
    pub fn named(name: &str) -> Option<Stage> {
        let known = NAMED.iter().find(|row| row.1 == name).map(|row| row.0);
        known.or_else(|| passes().find(|pass| *pass == name).map(Stage::Pass))
    }
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Returns the names of all passes.
fn passes() -> impl Iterator<Item = &'static str> {
    let of_schedule = schedule::PASSES.iter().map(|pass| pass.name);
    let of_graphs = PASSES.iter().map(|pass| pass.name);
    let of_uops = LINEAR_PASSES.iter().map(|pass| pass.name);
    of_schedule.chain(of_graphs).chain([LINEARIZE.name]).chain(of_uops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_name_crates() {
        let of_schedule = schedule::PASSES.iter().map(|pass| pass.crate_name);
        let of_kernel = PASSES.iter().map(|pass| pass.crate_name);
        let mut names = of_schedule.chain(of_kernel);
        assert!(names.all(|name| Crate::named(name).is_some()));
    }

    #[test]
    fn names_are_distinct_and_name_their_stage() {
        let stages = NAMED.iter().map(|row| row.0).chain(passes().map(Stage::Pass));
        let mut names: Vec<&str> = stages
            .map(|stage| {
                assert_eq!(Stage::named(stage.name()), Some(stage));
                stage.name()
            })
            .collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        let constants =
            [Stage::KERNELS, Stage::LOWER, Stage::OPTIMIZE, Stage::LINEARIZE, Stage::SYMBOLIC];
        assert!(constants.iter().all(|stage| Stage::named(stage.name()) == Some(*stage)));
    }

    #[test]
    fn crates_are_named_by_their_folders() {
        for known in Crate::ALL {
            assert_eq!(Crate::named(known.name()), Some(known));
        }
        assert_eq!(Crate::named("cli"), None);
    }
}
