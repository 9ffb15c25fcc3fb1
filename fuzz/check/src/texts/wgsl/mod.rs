//! An interpreter of the WGSL that kernels are written in, after the WGSL specification.
//!
//! In: the text of a module with one entry, which naga reads and validates, the elements of its
//! arrays, the sizes of the launch. Out: the elements after the launch. Statements become a flat
//! list ([`program`]); the threads of a group then run one after the other from barrier to barrier
//! ([`machine`]). What ops mean is stated in [`arithmetic`], by the evaluators' own scalars.
//!
//! Refused: what the module must not be; statements and functions outside the subset; accesses
//! outside an array; reads of what was never written; barriers that not all threads of the group
//! reach; elements of an array that are no value of the type that they hold. Where implementations
//! differ (comparisons of NaN by `!=`, integers that change their sign and their width at once),
//! the text must not ask: such a comparison is false, such a conversion is refused.

mod arithmetic;
mod device;
mod machine;
mod program;
#[cfg(test)]
mod tests;

pub(crate) use device::Wgsl;
