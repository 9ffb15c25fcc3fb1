//! The definitions of the methods, each straight from its mathematics: a running sum is the sum of
//! the elements so far, a convolution the sum over its window. How an engine composes them is of
//! no concern here.

mod cumulative;
mod movement;
mod pooling;
mod products;
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
        Method::Matmul => products::matmul(call),
        Method::Conv2d => products::convolution(call),
        Method::ConvTranspose2d => products::transposed_convolution(call),
        Method::MaxPool2d => pooling::largest(call),
        Method::AvgPool2d => pooling::mean(call),
    };
    let value = value.map_err(|why| format!("{}: {why}", method.row().name))?;
    limit(value.shape.clone())?;
    Ok(value)
}

/// Returns a list of `rank` numbers, none below `least`.
fn counts(list: &[i64], rank: usize, least: usize) -> Check<Vec<usize>> {
    let found: Vec<usize> =
        list.iter().filter_map(|number| usize::try_from(*number).ok()).collect();
    let is_fit = found.len() == list.len() && list.len() == rank;
    match is_fit && found.iter().all(|number| least <= *number) {
        true => Ok(found),
        false => Err(format!("{list:?} are not {rank} numbers from {least} on")),
    }
}
