//! The reviewed snapshots: the forms that are stored for corpus cases.

use gradiff::kernel::Opt;
use gradiff_corpus::{Case, Program, embedded, parse};

use crate::models::stages::Shown;

/// A form that is stored for cases.
struct Kind {
    /// The folder below that of all snapshots.
    folder: &'static str,
    form: &'static str,
    target: &'static str,
    /// True if kernels get the optimisations that the engine chooses, else none.
    is_optimised: bool,
}

const fn kind(
    folder: &'static str,
    form: &'static str,
    target: &'static str,
    is_optimised: bool,
) -> Kind {
    Kind { folder, form, target, is_optimised }
}

/// Schedule, uops and C without optimisations; each language for its own target with those that the
/// engine chooses, C for a fixed machine.
const KINDS: [Kind; 10] = [
    kind("schedule", "schedule", "plain", false),
    kind("uops", "uops", "plain", false),
    kind("kernels/c", "c", "plain", false),
    kind("kernels/c-vectors", "c", "vectors", true),
    kind("kernels/cuda", "cuda", "cuda", true),
    kind("kernels/llvm", "llvm", "llvm", true),
    kind("kernels/metal", "metal", "metal", true),
    kind("kernels/opencl", "opencl", "opencl", true),
    kind("kernels/ptx", "ptx", "ptx", true),
    kind("kernels/wgsl", "wgsl", "wgsl", true),
];

/// The cases that are stored: one for each feature, not every case.
const CASES: &[&str] = &[
    "add-add-fuse",
    "arange-step",
    "bf16-cast",
    "bitcast-f32",
    "bitwise-and-or-xor-not",
    "broadcast-row-column",
    "cast-float-to-int",
    "cat-two",
    "cdiv-negative",
    "compare-mixed-sign",
    "collapse-count-step",
    "collapse-unparented",
    "contiguous-between",
    "f16-chain",
    "flip-reshape-flip",
    "gather-axis",
    "gather-rows",
    "i8-wrap",
    "matmul-4x4",
    "matmul-f16-tc",
    "matmul-transposed",
    "max-nan",
    "mean-rows",
    "min-max-integers",
    "mod-floor-negative",
    "pad-then-exp2",
    "pad-value",
    "pow-div-f64",
    "pool-and-repeat-in-pairs",
    "prod-f64",
    "product-of-few-rows",
    "promote-i8-u8",
    "rank-0",
    "realize-between",
    "reshape-pad-reshape",
    "rows-of-odd-length",
    "s15-diagonal-values",
    "s22-fused-add",
    "s31-contiguous-of-view",
    "s32-identities",
    "s33-reduce-then-expand",
    "s33-two-reduces",
    "s33-unsafe-pad",
    "s39-mulacc",
    "shift-arithmetic",
    "shrink-flip-permute",
    "softmax",
    "sum-i8-wide",
    "threefry-counter",
    "u8-wrap",
    "unary-floats",
    "where-mask",
];

/// Steps of training of whole models, those of the engine's examples. Schedule and C for a fixed
/// machine are stored.
const MODELS: &[&str] = &["model-digits-step", "model-gpt-step", "model-resnet-block-step"];

/// Cases with optimisations: one for each op and for combinations. The name, the case, the
/// optimisations; uops and C are stored.
const OPTIMISED: &[(&str, &str, &str)] = &[
    ("opt-padto", "add-add-fuse", "padto 0 5, upcast 0 5"),
    ("opt-overlap", "add-add-fuse", "overlap 0 3, upcast 0 3"),
    ("opt-padto-prod", "prod-f64", "padto 0 5, unroll 0 5"),
    ("opt-swap", "broadcast-row-column", "swap 0 1"),
    ("opt-thread", "add-add-fuse", "thread 0 4, upcast 0 4"),
    ("opt-unroll", "matmul-4x4", "unroll 2 2"),
    ("opt-upcast", "add-add-fuse", "upcast 0 4"),
    ("opt-upcast-unroll", "matmul-4x4", "upcast 0 2, upcast 1 2, unroll 2 2"),
];

/// A reviewed snapshot.
pub struct Kept {
    kind: &'static Kind,
    name: &'static str,
    case: &'static str,
    opts: Option<Vec<Opt>>,
}

impl Kept {
    /// The folder below that of all snapshots.
    pub fn folder(&self) -> &'static str {
        self.kind.folder
    }

    /// The name of the file, without its ending.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The file below the folder of all snapshots.
    pub fn file(&self) -> String {
        format!("{}/{}.snap", self.kind.folder, self.name)
    }

    /// Returns whether a language may refuse the case; its error is stored instead.
    pub fn may_be_refused(&self) -> bool {
        self.kind.is_optimised
    }

    /// The program of the corpus whose kernels are stored.
    ///
    /// # Errors
    /// If no case has this name, or it is no program.
    pub fn program(&self) -> Result<Program, String> {
        let found = embedded().iter().find(|(name, _)| *name == self.case);
        let (name, text) =
            found.ok_or_else(|| format!("no corpus case is called {}", self.case))?;
        let file = parse(text).map_err(|error| format!("{name}: {error}"))?;
        match file.case {
            Case::Program(program) => Ok(program),
            _ => Err(format!("{name} is no program")),
        }
    }

    /// The form of the program that is stored, with its target and optimisations.
    ///
    /// # Errors
    /// If no form has this name.
    pub fn shown(&self) -> Result<Shown<'_>, String> {
        let (form, target) = (self.kind.form.parse()?, Some(self.kind.target));
        Ok(Shown { form, opts: self.opts.as_deref(), target })
    }
}

/// All reviewed snapshots except for the pages of rules.
pub fn kept() -> Vec<Kept> {
    let stored = |kind: &'static Kind, cases: &'static [&str]| {
        let opts = || (!kind.is_optimised).then(Vec::new);
        cases.iter().map(move |case| Kept { kind, name: case, case, opts: opts() })
    };
    let plain = KINDS.iter().flat_map(|kind| stored(kind, CASES));
    let has_models = |kind: &&Kind| ["schedule", "kernels/c-vectors"].contains(&kind.folder);
    let models = KINDS.iter().filter(has_models).flat_map(|kind| stored(kind, MODELS));
    let has_opts = |kind: &&Kind| !kind.is_optimised && kind.form != "schedule";
    let optimised = KINDS.iter().filter(has_opts).flat_map(|kind| {
        OPTIMISED.iter().map(move |(name, case, opts)| {
            let opts = opts.split(", ").filter_map(|opt| opt.parse().ok()).collect();
            Kept { kind, name, case, opts: Some(opts) }
        })
    });
    plain.chain(models).chain(optimised).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_optimisation_is_parsed() {
        for (name, _, opts) in OPTIMISED {
            for opt in opts.split(", ") {
                assert!(opt.parse::<Opt>().is_ok(), "{name}: {opt}");
            }
        }
    }
}
