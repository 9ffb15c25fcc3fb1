//! The table of passes, and the two functions that run them.

use gradiff_graph::{Buffer, Op, UOp};
use rustc_hash::FxHashSet;

use crate::views::Viewed;
use crate::{
    Error, Item, Options, Schedule, Split, buffer_of, fold, kernels, memory, pack, push, realize,
    split, views,
};

/// A row of [`PASSES`].
pub struct Pass {
    /// The name, one word.
    pub name: &'static str,
    /// The postcondition.
    pub promise: &'static str,
    /// The crate that does its work: `view` if it merges movements into trackers.
    pub crate_name: &'static str,
    run: fn(&mut State, &Options) -> Result<(), Error>,
    /// Returns the graph or the kernel trees after the pass.
    result: fn(&State) -> Vec<UOp>,
}

/// Results of the passes so far; each pass fills in or changes a part.
struct State {
    /// The requested nodes; after `kernels`, where their elements will be.
    outputs: Vec<UOp>,
    viewed: Viewed,
    realized: FxHashSet<UOp>,
    items: Vec<Item>,
}

/// The passes in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass {
        name: "fold",
        promise: "constants and identities are folded",
        crate_name: "schedule",
        run: |state, _| {
            state.outputs = fold::constants(&state.outputs)?;
            Ok(())
        },
        result: |state| state.outputs.clone(),
    },
    Pass {
        name: "views",
        promise: "movement ops are one View node over their source",
        crate_name: "view",
        run: |state, options| {
            state.viewed = views::convert(&state.outputs, options)?;
            Ok(())
        },
        result: |state| state.viewed.outputs.clone(),
    },
    Pass {
        name: "push",
        promise: "no kernel only moves the result of a reduction that nothing else uses",
        crate_name: "schedule",
        run: |state, options| {
            if options.fuse {
                let used_once = push::used_once(&state.viewed);
                state.replace(options, |node, new| push::push(node, new, &used_once))?;
            }
            Ok(())
        },
        result: |state| state.viewed.outputs.clone(),
    },
    Pass {
        name: "split",
        promise: "no reduction leaves a device idle or reads its operands from memory often",
        crate_name: "schedule",
        run: |state, options| {
            if options.split != Split::Never && options.fuse {
                state.replace(options, |_, new| split::split(new, options))?;
            }
            Ok(())
        },
        result: |state| state.viewed.outputs.clone(),
    },
    Pass {
        name: "pack",
        promise: "operands that are read often are packed in reading order",
        crate_name: "schedule",
        run: |state, options| {
            if options.pack {
                state.replace(options, |node, new| pack::pack(node, new, options))?;
            }
            Ok(())
        },
        result: |state| state.viewed.outputs.clone(),
    },
    Pass {
        name: "share",
        promise: "no rearranged result is in several kernels, unless it is larger than its inputs",
        crate_name: "schedule",
        run: |state, options| {
            if options.fuse {
                let shared = realize::rearranged_in_several(&state.viewed, options);
                let copied = |new: &UOp| UOp::unary(Op::Contiguous, new.dtype(), new.clone());
                state.replace(options, |node, new| shared.contains(node).then(|| copied(new)))?;
            }
            Ok(())
        },
        result: |state| state.viewed.outputs.clone(),
    },
    Pass {
        name: "realize",
        promise: "each node that gets a buffer is Contiguous or a Copy",
        crate_name: "schedule",
        run: |state, options| {
            state.realized = realize::choose(&state.viewed, options);
            Ok(())
        },
        result: |state| realize::mark(&state.viewed, &state.realized),
    },
    Pass {
        name: "kernels",
        promise: "one tree for each buffer, with views at its leaves and above reductions of rows",
        crate_name: "schedule",
        run: |state, options| {
            let trees = kernels::trees(&state.viewed, &state.realized, options)?;
            let requested = state.viewed.outputs.len();
            assert_eq!(requested, trees.outputs.len(), "each output has a buffer or is a constant");
            (state.items, state.outputs) = (trees.items, trees.outputs);
            Ok(())
        },
        result: State::trees,
    },
    Pass {
        name: "order",
        promise: "every kernel is after those that write what it reads",
        crate_name: "schedule",
        run: |state, _| {
            state.items = kernels::order(std::mem::take(&mut state.items));
            Ok(())
        },
        result: State::trees,
    },
    Pass {
        name: "memory",
        promise: "intermediate buffers share memory if not live at once",
        crate_name: "schedule",
        run: |state, _| {
            let buffers: Vec<Buffer> = state.outputs.iter().filter_map(buffer_of).collect();
            memory::plan(&mut state.items, &buffers);
            Ok(())
        },
        result: State::trees,
    },
];

impl State {
    fn new(outputs: &[UOp]) -> State {
        let (viewed, realized) = (Viewed::default(), FxHashSet::default());
        State { outputs: outputs.to_vec(), viewed, realized, items: Vec::new() }
    }

    /// Replaces nodes of the viewed graph.
    fn replace(
        &mut self,
        options: &Options,
        replace: impl Fn(&UOp, &UOp) -> Option<UOp>,
    ) -> Result<(), Error> {
        if let Some(replaced) = self.viewed.replaced(options, replace)? {
            self.viewed = replaced;
        }
        Ok(())
    }

    fn trees(&self) -> Vec<UOp> {
        self.items.iter().map(|item| item.ast.clone()).collect()
    }
}

/// Schedules the kernels that compute `outputs`, and the buffers that will hold them.
///
/// Every output gets a row-major buffer of its own size; an output that is a whole buffer already
/// (reshaped or not) needs no kernel. Equal outputs share a buffer. An output that is the same
/// constant everywhere, or has no elements, needs neither buffer nor kernel.
///
/// # Errors
/// [`Error`] if a node is not of tensor level, or too large for a buffer.
pub fn schedule(outputs: &[UOp], options: &Options) -> Result<Schedule, Error> {
    let mut state = State::new(outputs);
    PASSES.iter().try_for_each(|pass| (pass.run)(&mut state, options))?;
    Ok(Schedule { items: state.items, outputs: state.outputs })
}

/// Runs the passes one by one and returns the graphs after each, by the name of the pass: of tensor
/// level up to "realize", kernel trees after that. Ends after an error.
///
/// # Errors
/// As [`schedule`].
pub fn stages(
    outputs: &[UOp],
    options: &Options,
) -> impl Iterator<Item = Result<(&'static str, Vec<UOp>), Error>> {
    let mut state = Some(State::new(outputs));
    PASSES.iter().map_while(move |pass| {
        let mut before = state.take()?;
        Some((pass.run)(&mut before, options).map(|()| {
            let result = (pass.result)(&before);
            state = Some(before);
            (pass.name, result)
        }))
    })
}
