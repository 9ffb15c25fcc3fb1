//! Linear uops: one uop at a time through the scalar meanings, the threads of a group one after the
//! other from barrier to barrier.
//!
//! It has two uses. [`run`] gives values: undefined ones are `None`. [`run_checked`] also checks
//! the [`Requirements`] of a target: aligned vectors, no read of unwritten memory, no overflow of
//! signed integers that the text assumes to be impossible. Both refuse accesses out of bounds,
//! races, and barriers that not all threads of a group reach.
//!
//! Products of matrices gather the fragments of the threads of a warp, and scatter the result to
//! them.

mod arrays;
mod machine;

use gradiff_graph::tensor_core::Coordinates;
use gradiff_graph::verify::verify_linear;
use gradiff_graph::{Arg, AxisKind, Constant, Instruction, Linear, Op};

use crate::{Elements, product};
use arrays::{Arrays, ThreadId};
use machine::{Layout, Machine};

pub use machine::{NOT_WRAPPED, exact};

/// The required alignment of the address of a vector.
#[derive(Clone, Copy, Debug)]
pub enum Alignment {
    /// The size of an element.
    Element,
    /// The size of the vector.
    Vector,
    /// The size of a piece of at most 4 elements and 16 bytes.
    Pieces,
}

impl Alignment {
    /// The alignment of a vector of elements of this size, in bytes.
    fn bytes(self, element_bytes: i64, lanes: i64) -> i64 {
        match self {
            Alignment::Element => element_bytes,
            Alignment::Vector => element_bytes * lanes,
            Alignment::Pieces => element_bytes * lanes.min(4).min(16 / element_bytes.max(1)),
        }
    }
}

/// The requirements of a target on a kernel, as the caller states them.
#[derive(Clone, Debug)]
pub struct Requirements {
    /// The name of its language in messages.
    pub language: &'static str,
    /// Alignment of vectors.
    pub alignment: Alignment,
    /// Alignment of parameters, in bytes.
    pub global_alignment: i64,
    /// Alignment of local arrays, in bytes.
    pub local_alignment: i64,
    /// For each uop, whether the text assumes that its integer does not overflow.
    pub must_not_overflow: Vec<bool>,
}

/// Runs a kernel on its parameters, in the order of their slots.
///
/// # Errors
/// A kernel that is not well formed, an access out of bounds, a race, a barrier that not all
/// threads of a group reach, a loop without an end.
pub fn run(kernel: &Linear, memories: &mut [Elements]) -> Result<(), String> {
    run_rounded(kernel, memories, &mut |_, value| value)
}

/// A change of each value that an elementwise op computes.
pub type Round<'a> = &'a mut dyn FnMut(Op, Constant) -> Constant;

/// As [`run`], but `round` changes the result of each elementwise op.
///
/// # Errors
/// As [`run`].
pub fn run_rounded(
    kernel: &Linear,
    memories: &mut [Elements],
    round: Round<'_>,
) -> Result<(), String> {
    verify_linear(kernel).map_err(|error| error.to_string())?;
    evaluate(kernel, memories, None, round)
}

/// Runs a kernel under the requirements of a target. Undefined values become arbitrary ones.
///
/// # Errors
/// As [`run`], and violations of the requirements. The kernel is not verified: it must be well
/// formed.
pub fn run_checked(
    kernel: &Linear,
    memories: &mut [Elements],
    requirements: &Requirements,
) -> Result<(), String> {
    evaluate(kernel, memories, Some(requirements), &mut |_, value| value)
}

fn evaluate(
    kernel: &Linear,
    memories: &mut [Elements],
    requirements: Option<&Requirements>,
    round: Round<'_>,
) -> Result<(), String> {
    let layout = Layout::new(kernel, requirements)?;
    let mut arrays = Arrays::new(kernel, memories, requirements)?;
    let result = run_grid(kernel, &layout, &mut arrays, round);
    let result =
        result.and_then(|()| if requirements.is_some() { arrays.check_written() } else { Ok(()) });
    arrays.return_memories(memories);
    result
}

/// Runs all groups one after the other, the threads of each from barrier to barrier.
fn run_grid(
    kernel: &Linear,
    layout: &Layout<'_>,
    arrays: &mut Arrays,
    round: Round<'_>,
) -> Result<(), String> {
    let mut grid = iterations_of(kernel, &[AxisKind::Global]);
    if contains_stores(kernel, AxisKind::Thread) {
        grid = iterations_of(kernel, &[AxisKind::Global, AxisKind::Thread]);
    }
    let group = iterations_of(kernel, &[AxisKind::Local]);
    let has_barriers = kernel.uops.iter().any(|uop| matches!(uop.op, Op::Barrier | Op::Wmma));
    let mut machines: Vec<Machine<'_>> = Vec::new();
    for (number, outer) in grid.iter().enumerate() {
        arrays.enter_group();
        let thread_id =
            |thread: usize| ThreadId { group: number as u32, thread: thread as u32, epoch: 0 };
        let counters = |inner: &Counters| outer.iter().chain(inner).copied().collect::<Counters>();
        if !has_barriers {
            machines.resize_with(1, || Machine::new(layout));
            for (thread, inner) in group.iter().enumerate() {
                machines[0].start(counters(inner), thread_id(thread));
                machines[0].run(arrays, round)?;
            }
            arrays.synchronise()?;
            continue;
        }
        machines.resize_with(group.len(), || Machine::new(layout));
        for (thread, (machine, inner)) in machines.iter_mut().zip(&group).enumerate() {
            machine.start(counters(inner), thread_id(thread));
        }
        run_group(kernel, &mut machines, arrays, round)?;
    }
    Ok(())
}

/// Runs the threads of a group from one barrier or product to the next.
fn run_group(
    kernel: &Linear,
    threads: &mut [Machine<'_>],
    arrays: &mut Arrays,
    round: Round<'_>,
) -> Result<(), String> {
    let Some(mut position) = threads.first().map(|thread| thread.position) else { return Ok(()) };
    while position < kernel.uops.len() {
        for thread in threads.iter_mut() {
            thread.run(arrays, round)?;
        }
        arrays.synchronise()?;
        let (first, rest) = threads.split_first().expect("a group has a thread");
        position = first.position;
        let waiting_at = first.waiting_at();
        if let Some(second) = rest.iter().find(|thread| thread.waiting_at() != waiting_at) {
            let at = |thread: &Machine<'_>| match kernel.uops.len() <= thread.position {
                true => "at its end".to_owned(),
                false => format!("at uop {}", thread.position),
            };
            return Err(format!(
                "uop {position}: not all threads wait at the barrier before it: thread {} is {} \
                 and thread {} {}, counters of loops {:?} and {:?}",
                first.id.thread,
                at(first),
                second.id.thread,
                at(second),
                waiting_at.1,
                second.waiting_at().1
            ));
        }
        if let Some(uop) = kernel.uops.get(position).filter(|uop| uop.op == Op::Wmma) {
            multiply(threads, uop)?;
        }
    }
    Ok(())
}

/// Returns whether the ranges of a kind contain all stores; otherwise they are loops.
fn contains_stores(kernel: &Linear, kind: AxisKind) -> bool {
    let ranges = kernel.launched(kind);
    let mut open = 0;
    kernel.uops.iter().enumerate().all(|(position, uop)| {
        let is_launched = |at: u32| ranges.iter().any(|(range, _)| *range == at);
        match uop.op {
            Op::Range => open += usize::from(is_launched(position as u32)),
            Op::EndRange => open -= usize::from(is_launched(uop.src[0])),
            Op::Store => return open == ranges.len(),
            _ => {}
        }
        true
    })
}

/// A product of matrices by the threads of a group, warp by warp.
fn multiply(threads: &mut [Machine<'_>], uop: &Instruction) -> Result<(), String> {
    let Arg::TensorCore(core) = uop.arg else {
        return Err("a product without a tensor core".to_owned());
    };
    for warp in threads.chunks_mut(core.threads as usize) {
        if warp.len() as i64 != core.threads {
            return Err(format!("a warp has {} threads, expected {}", warp.len(), core.threads));
        }
        // The matrices A, B and C as a whole, from the fragments.
        let mut matrices = [0, 1, 2].map(|_| std::collections::BTreeMap::new());
        for (number, thread) in warp.iter().enumerate() {
            for (matrix, elements) in matrices.iter_mut().enumerate() {
                for (element, value) in thread.lanes(uop.src[matrix]).iter().enumerate() {
                    elements.insert(core.coordinates(matrix, number, element), *value);
                }
            }
        }
        for (number, thread) in warp.iter_mut().enumerate() {
            // Under the requirements of a target, tf32 is as exact as f32, for which the oracle's
            // bounds are made: the test is which elements are multiplied.
            let is_rounded = core.is_tf32 && !thread.is_checked();
            let sum = |element: usize| {
                let coordinates = core.coordinates(2, number, element);
                let start = matrices[2][&coordinates]?;
                let operand = |matrix: usize, at: Coordinates| matrices[matrix][&at];
                product::element(core, coordinates, start, is_rounded, &operand)
            };
            let sums: Elements = (0..core.elements(2)).map(sum).collect();
            thread.set_product(&sums);
        }
    }
    Ok(())
}

/// Positions and counters of launched ranges.
type Counters = Vec<(usize, i64)>;

/// All iterations of the launched ranges of some kinds, outermost first.
fn iterations_of(kernel: &Linear, kinds: &[AxisKind]) -> Vec<Counters> {
    let ranges = kinds.iter().flat_map(|kind| kernel.launched(*kind));
    ranges.fold(vec![Vec::new()], |iterations, (range, count)| {
        let with = |counters: &Counters, counter| {
            counters.iter().copied().chain([(range as usize, counter)]).collect()
        };
        let each = |counters: &Counters| (0..count).map(|c| with(counters, c)).collect::<Vec<_>>();
        iterations.iter().flat_map(each).collect()
    })
}
