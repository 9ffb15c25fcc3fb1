//! An interpreter of the subset of PTX that kernels use, after the PTX ISA manual.
//!
//! In: the text of a module with one entry, the bytes of its arrays, the sizes of the launch. Out:
//! the bytes after the launch. The text is decoded once ([`decode`]) into instructions over
//! numbered registers; the threads of a group then run one after the other from barrier to barrier
//! ([`machine`]). Nothing is shared with the renderer: instructions, operand types, layouts of
//! fragments and roundings are stated here again.
//!
//! Refused, with the line of the text where there is one: instructions, modifiers and directives
//! outside the subset; operands of a type that the instruction does not accept; registers that are
//! read before they are written; accesses outside an array or at an address that is not a multiple
//! of their size; races; barriers and matrix products that not all threads of the group or warp
//! execute. `add`, `sub` and `mul` of floats without a rounding modifier are legal PTX, but the
//! assembler may fuse them, so they are refused as well.

mod arithmetic;
mod decode;
mod device;
mod machine;
mod memory;
mod number;
mod statement;
#[cfg(test)]
mod tests;
mod types;
mod warp;

pub(crate) use device::Ptx;
