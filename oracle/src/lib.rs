//! The naive reference evaluator with running error bounds.
//!
//! In: a [`Program`](gradiff_corpus::Program). Out: for every element of every output, the set of
//! results that legal computations may have ([`Expected`]), and a judgement of a backend's outputs.
//! It shares no computing code with the engine, and infers dtypes and shapes by itself.
//!
//! # Legal computations
//! * A float op may be rounded to its dtype or kept in higher precision; multiply and add may be
//!   fused; sums and products, elementwise chains as well as reductions, may be reordered, but a
//!   term of a sum reduction of n elements passes through at most 256 + 32 log2 n additions. So a
//!   long sum needs partial sums; a single accumulator is not legal ([`evaluate_in_order`] allows
//!   it), except in sums of elements by an index (scatter_add, sums and means of scatter_reduce,
//!   derivatives by what is read at an index) and of tensors that have -0.0 as an element. Products
//!   must not be distributed over sums. Casts always round, once, to nearest even.
//! * `+ - * /`, sqrt and recip are correctly rounded, to the nearest number; exp2, log2, sin and
//!   pow may be off by the ulps of the table in `transcendental`. Products, quotients and powers
//!   have the right sign, also where they are rounded to zero, as have roots, shares and powers of
//!   e and 2. Subnormals are never flushed.
//! * A result that needs no rounding in any order is exact and compared by its bits; so is the
//!   product of zero and a finite number. The sign of a zero is free if zeros of both signs, or
//!   opposite numbers, are combined by a sum, max or min; all other ops determine it.
//! * A number that overflows is infinite as an output; results computed from it are unspecified,
//!   since a wider intermediate would have stayed finite, unless any number beyond the largest of
//!   the dtype gives the same: comparisons with finite numbers and what these decide, its inverse,
//!   and functions that hardly vary there. An infinity in the data, or from a pole, or from a cast,
//!   is a true one; a chain that has one is not reordered, but a reduction is.
//! * Undefined integer ops, and decisions that fall within the error bounds, make an element
//!   unspecified, with a [`Reason`], as well as all elements that depend on it. The result of a
//!   `where`, pad or shrink does not depend on the elements that it omits; nor does a result of an
//!   elementwise op or a matrix product that another source decides: NaN, or an integer such as 0
//!   in a product, since an undefined integer is any integer.
//! * Whether the zeros between and around the elements of a transposed convolution are multiplied
//!   is free: an infinite or NaN weight there makes the element unspecified, a zero has any sign.
//! * A gradient may be computed in forward or reverse mode, in the dtypes of the values, with any
//!   formulas of derivatives of functions that are within 8 roundings. The numbers that stand for
//!   derivatives where there are none, and the bounds, are in oracle/README.md, "Derivatives".

mod arithmetic;
mod cast;
mod cell;
mod derivative;
mod evaluate;
mod format;
mod infer;
mod integer;
mod judge;
mod methods;
mod movement;
mod reduce;
mod transcendental;
mod value;

pub use cell::Reason;
pub use evaluate::{Error, evaluate, evaluate_in_order, is_finite, origins};
pub use judge::{Element, Expected, Mismatch, Verdict};
