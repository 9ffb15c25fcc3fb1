//! The kinds of loop transformations, and the choice of them for a kernel.

use gradiff_graph::Target;
use gradiff_rewrite::Mode;

/// The kind of a loop transformation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OptOp {
    /// Runs `amount` iterations at once, which may become the lanes of a vector. A reduced loop
    /// gets `amount` accumulators, which are reduced at the end.
    Upcast,
    /// Unrolls `amount` iterations of a reduced loop, in order.
    Unroll,
    /// Divides an output loop among `amount` CPU threads, in contiguous blocks.
    Thread,
    /// Pads the trip count to a multiple of `amount` with iterations that do nothing.
    PadTo,
    /// Rounds the trip count up to a multiple of `amount`. The last block of `amount` iterations is
    /// shifted inwards: it repeats some iterations of the block before it, which a reduction does
    /// not count again.
    Overlap,
    /// Cuts a loop into two: the iterations before `amount`, and those from it on. Those of an
    /// output loop have stores of their own; the results of a reduced loop are reduced at the end.
    Cut,
    /// Interchanges two output loops: this one and the one at index `amount`.
    Swap,
    /// Runs `amount` adjacent iterations of an output loop by as many threads of a group: by those
    /// of a reduction, if it is divided among as many and does not depend on the loop.
    Local,
    /// Divides a reduction among `amount` threads of a group, with the iterations interleaved:
    /// among those of a second reduction, if they are as many and neither is inside the other.
    Group,
    /// Divides a reduction among `amount` threads of a group, in contiguous blocks.
    GroupTop,
    /// Makes each iteration of the output loops a group of one thread; excludes further opts of
    /// them.
    NoLocals,
    /// Computes a matrix product, whose sum runs over this loop, by the tensor cores of a warp of
    /// threads. `amount` is the number of a combination of a tensor core and a product.
    Tc,
    /// Copies what the threads of a group load in `amount` iterations of a reduced loop into local
    /// memory first; excludes further opts.
    Stage,
}

impl OptOp {
    /// All kinds.
    pub const ALL: [OptOp; 13] = [
        OptOp::Upcast,
        OptOp::Unroll,
        OptOp::Thread,
        OptOp::PadTo,
        OptOp::Overlap,
        OptOp::Cut,
        OptOp::Swap,
        OptOp::Local,
        OptOp::Group,
        OptOp::GroupTop,
        OptOp::NoLocals,
        OptOp::Tc,
        OptOp::Stage,
    ];

    /// Returns its name in the text form.
    pub fn name(self) -> &'static str {
        let names = ["upcast", "unroll", "thread", "padto", "overlap", "cut", "swap", "local"];
        let names = names.into_iter().chain(["group", "grouptop", "nolocals", "tc", "stage"]);
        names.into_iter().nth(self as usize).unwrap_or_default()
    }
}

/// One optimisation, with the text form `OP AXIS AMOUNT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opt {
    /// The kind.
    pub op: OptOp,
    /// The index of the loop in [`Loops::list`](super::Loops::list); 0 for `nolocals`.
    pub axis: usize,
    /// The number of iterations, threads or accumulators; 0 means all iterations of the loop. For
    /// `cut` the first iteration of the second part, for `swap` the index of the other loop, for
    /// `tc` the number of a combination.
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
            return Err(format!(
                "{text:?} is not an opt: an opt is OP AXIS AMOUNT, as in upcast 0 4"
            ));
        };
        let names = OptOp::ALL.map(OptOp::name);
        let found = OptOp::ALL.into_iter().find(|known| known.name() == *op);
        let op = found.ok_or_else(|| format!("no opt is called {op}: {}", names.join(", ")))?;
        let axis = axis.parse().map_err(|error| format!("axis {axis} of {text}: {error}"))?;
        let amount = amount.parse().map_err(|error| format!("amount {amount}: {error}"))?;
        Ok(Opt { op, axis, amount })
    }
}

/// The choice of opts for a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// No opts.
    #[default]
    None,
    /// These opts, in order. It is an error if one of them is illegal for the kernel.
    Fixed(Vec<Opt>),
    /// Legal opts, drawn at random.
    Drawn {
        /// The seed; kernels with the same loops get the same opts.
        seed: u64,
        /// The maximum number of opts.
        limit: usize,
    },
    /// The opts that the heuristic chooses from the loops and memory accesses.
    Heuristic,
}

/// The conditions, besides the loops, on which the legality of opts depends.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// The mode, which says whether floats may be summed in another order.
    pub mode: Mode,
    /// The target, which says what the device supports.
    pub target: &'a Target,
}
