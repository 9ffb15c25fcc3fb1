//! An interpreter of the subset of WGSL that kernels use, after the WGSL specification.
//!
//! In: the text of a module with one entry, which naga reads and validates, the elements of its
//! arrays, the sizes of the launch. Out: the elements after the launch. Statements become a flat
//! list ([`program`]); the threads of a group then run one after the other from barrier to barrier
//! ([`machine`]). The meanings of ops are in [`arithmetic`], by this crate's scalars.
//!
//! Refused: invalid modules; statements and functions outside the subset; accesses outside an
//! array; reads of unwritten variables; barriers that not all threads of the group reach; accesses
//! of two threads, one of them a write, that no barrier for this memory orders; words of an array
//! that represent no value of its element type. The text must not depend on behaviour in
//! which implementations differ (comparisons of NaN by `!=`, integers that change their sign and
//! their width at once): such a comparison is false, such a conversion is refused.

mod arithmetic;
mod device;
mod machine;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use device::Wgsl;
