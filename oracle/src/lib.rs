//! The naive reference evaluator with running error bounds.
//!
//! In: a [`Program`](gradiff_corpus::Program). Out: for every element of every output, what all
//! legal computations of it may give ([`Expected`]), and a judge of what a backend gave.
//! It shares no code that computes with the engine and infers dtypes and shapes by itself.
//!
//! # What is legal
//! * A float op may be rounded to its dtype or kept in higher precision; multiply and add may be
//!   fused; sums and products, elementwise chains as well as reductions, may be taken in any
//!   order, but a term of a sum reduction of n elements passes through at most 256 + 32 log2 n
//!   additions, as in sums of sums of parts: one accumulator will not do for a long sum
//!   ([`evaluate_in_order`] allows it). Nothing is distributed. Casts round for certain, once, to
//!   nearest even.
//! * `+ - * /`, sqrt and recip are correctly rounded; exp2, log2, sin and pow may be off by the
//!   ulps that the table in `transcendental` says. Subnormals are never flushed.
//! * A result that needs no rounding in any order is exact and compared by its bits. The sign of
//!   a zero is free where signs met in a sum, max or min; it is kept by everything else.
//! * A number that overflows is infinite as an output; what is computed from it further is
//!   unspecified, since a wider intermediate would have stayed finite. An infinity in the data,
//!   or from a pole, or from a cast, is a true one.
//! * Undefined integer ops, and decisions that the error bounds do not settle, make an element
//!   unspecified, with a [`Reason`], and whatever depends on it; an element that a `where`, pad or
//!   shrink leaves out depends on nothing.

mod arithmetic;
mod cast;
mod cell;
mod evaluate;
mod format;
mod infer;
mod integer;
mod judge;
mod movement;
mod reduce;
mod transcendental;

pub use cell::Reason;
pub use evaluate::{Error, evaluate, evaluate_in_order, is_finite, origins};
pub use judge::{Element, Expected, Mismatch, Verdict};
