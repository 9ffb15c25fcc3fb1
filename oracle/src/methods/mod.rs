//! The definitions of the methods, each straight from its mathematics: a running sum is the sum of
//! the elements so far, a convolution the sum over its window. How an engine composes them is of
//! no concern here.

mod cumulative;
mod movement;
mod reduction;

use gradiff_corpus::{Args, Method};

use crate::infer::{Check, limit};
use crate::reduce::SumDepth;
use crate::value::Value;

/// The sources and arguments of a method, and the legal depth of its sums.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    pub(crate) srcs: &'a [&'a Value],
    pub(crate) args: Args<'a>,
    pub(crate) sums: SumDepth,
}

/// Evaluates a method.
///
/// # Errors
/// Sources or arguments that it does not take.
pub(crate) fn evaluate(method: Method, call: Call<'_>) -> Check<Value> {
    let value = match method {
        Method::Cumsum => cumulative::sum(call),
        Method::Cumprod => cumulative::product(call),
        Method::Cummax => cumulative::largest(call),
        Method::Min => reduction::smallest(call),
        Method::Roll => movement::roll(call),
    };
    let value = value.map_err(|why| format!("{}: {why}", method.row().name))?;
    limit(value.shape.clone())?;
    Ok(value)
}
