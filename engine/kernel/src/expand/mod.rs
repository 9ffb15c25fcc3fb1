//! Expands upcast and unrolled ranges of a linear kernel.
//!
//! The iterations of an `upcast` range are independent. Each uop that varies along it is repeated
//! for each iteration before the next uop, so that the loops inside are shared (unroll and jam).
//! The iterations of an `unroll` range follow one another, as in a loop, so that sums keep their
//! order. Invariant uops are emitted once. Gates and choices that an iteration decides are folded,
//! and dead uops are removed. Ranges beyond the first 64 in the kernel remain loops.
//!
//! A `vector` range is an upcast one whose iterations are the lanes of vectors (`lanes`): a uop
//! that varies along it is one vector uop, if the target supports that. Vectors are gathered from
//! scalars and lanes are extracted where the two meet.

mod dims;
mod emit;
mod known;
mod lanes;

use gradiff_graph::{Linear, Target};

/// Expands the ranges of the kinds `Upcast`, `Vector` and `Unroll`, if the target unrolls.
pub(crate) fn expand(linear: Linear, target: &Target) -> Linear {
    let dims = dims::Dims::of(&linear);
    if dims.ranges.is_empty() || !target.unrolls {
        return linear;
    }
    emit::emit(&dims, target.vectors)
}
