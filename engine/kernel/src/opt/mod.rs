//! Pass `optimize`: how the steps of each loop are run. Loops are split, padded, exchanged; an
//! optimisation never changes what a kernel computes, but sums of floats may be added in another
//! order.
//!
//! A range `r` of n steps becomes `outer*amount + inner` wherever it stands, so that indices, gates
//! and folds follow by themselves. Which opts are legal is said by [`Loops`] alone, see [`check`].

mod apply;
mod grid;
mod groups;
mod heuristic;
mod legal;
mod tensor_cores;

use gradiff_graph::UOp;
use gradiff_rewrite::Mode;

use crate::pass::Context;
use crate::{Error, Target, keep, prefetch};

pub use apply::apply;
pub(crate) use apply::range;
pub(crate) use groups::to_groups;
pub use heuristic::heuristic;
pub(crate) use heuristic::step;
pub use legal::{Loop, Loops, check, draw, legal, loops};
pub use tensor_cores::Matmul;

/// What is done to a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OptOp {
    /// `amount` steps at once, value by value; of a reduced loop: as many folds side by side, which
    /// are folded in the end.
    Upcast,
    /// `amount` steps of a reduced loop in a row, without a loop.
    Unroll,
    /// An output loop divided among `amount` threads, a stretch for each.
    Thread,
    /// As many more steps, which do nothing, as make the count a multiple of `amount`.
    PadTo,
    /// As many more steps of an output loop, likewise: its last `amount` steps are done as a whole,
    /// those among them that were done before once more.
    Overlap,
    /// The loop and the output loop of number `amount` exchanged.
    Swap,
    /// `amount` neighbouring steps of an output loop by as many threads of a group.
    Local,
    /// A fold divided among `amount` threads of a group, step by step.
    Group,
    /// A fold divided among `amount` threads of a group, a stretch for each.
    GroupTop,
    /// The output loops as they are become groups of one thread; nothing more is done to them.
    NoLocals,
    /// The product of matrices number `amount`, of those that tensor cores of the device may
    /// compute and that sum over a reduced loop, by a warp of threads.
    Tc,
}

impl OptOp {
    /// All of them.
    pub const ALL: [OptOp; 11] = [
        OptOp::Upcast,
        OptOp::Unroll,
        OptOp::Thread,
        OptOp::PadTo,
        OptOp::Overlap,
        OptOp::Swap,
        OptOp::Local,
        OptOp::Group,
        OptOp::GroupTop,
        OptOp::NoLocals,
        OptOp::Tc,
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        let names = ["upcast", "unroll", "thread", "padto", "overlap", "swap", "local", "group"];
        let names = names.into_iter().chain(["grouptop", "nolocals", "tc"]);
        names.into_iter().nth(self as usize).unwrap_or_default()
    }
}

/// One optimisation: what, of which loop (its place in [`Loops::list`]), how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opt {
    /// What is done.
    pub op: OptOp,
    /// The place of the loop in [`Loops::list`]; 0 for `nolocals`.
    pub axis: usize,
    /// How much; 0 stands for all steps of the loop. Of `swap` and `tc` it is a number.
    pub amount: i64,
}

impl std::fmt::Display for Opt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.op.name(), self.axis, self.amount)
    }
}

impl std::str::FromStr for Opt {
    type Err = String;

    fn from_str(text: &str) -> Result<Opt, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [op, axis, amount] = words.as_slice() else {
            return Err(format!("{text:?} is no opt: an opt is OP AXIS AMOUNT, as in upcast 0 4"));
        };
        let names = OptOp::ALL.map(OptOp::name);
        let found = OptOp::ALL.into_iter().find(|known| known.name() == *op);
        let op = found.ok_or_else(|| format!("no opt is called {op}: {}", names.join(", ")))?;
        let axis = axis.parse().map_err(|error| format!("axis {axis} of {text}: {error}"))?;
        let amount = amount.parse().map_err(|error| format!("amount {amount}: {error}"))?;
        Ok(Opt { op, axis, amount })
    }
}

/// Which opts a kernel gets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// None.
    #[default]
    None,
    /// These; a kernel for which one of them is not legal is an error.
    Fixed(Vec<Opt>),
    /// Up to this many legal ones, drawn from the number and the sizes of the loops.
    Drawn {
        /// What is drawn from; kernels with the same loops get the same opts.
        seed: u64,
        /// At most so many.
        most: usize,
    },
    /// Those that the loops and what is loaded along them speak for.
    Heuristic,
}

/// What opts must fit besides the loops.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// What may become of sums of floats.
    pub mode: Mode,
    /// The device.
    pub target: &'a Target,
}

/// The pass. See the head of this file.
pub(crate) fn optimize(root: &UOp, ctx: &mut Context<'_>) -> Result<UOp, Error> {
    let setting = Setting { mode: ctx.options.rewrite.mode, target: &ctx.target };
    let all =
        |opts: &[Opt]| opts.iter().try_fold(root.clone(), |root, opt| apply(&root, *opt, setting));
    let root = match &ctx.options.opts {
        Strategy::None => root.clone(),
        Strategy::Fixed(opts) => all(opts)?,
        Strategy::Drawn { seed, most } => all(&draw(root, *seed, *most, setting)?)?,
        Strategy::Heuristic => heuristic::by_heuristic(root, setting)?,
    };
    let root = if keep::has_rows(&root.toposort()) { keep::set_apart(&root)? } else { root };
    if ctx.target.asks_early {
        prefetch::ask_early(&root, ctx.target.thresholds.large_bytes)
    } else {
        Ok(root)
    }
}
