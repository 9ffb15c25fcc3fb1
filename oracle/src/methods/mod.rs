//! The definitions of the methods, each straight from its mathematics: a running sum is the sum of
//! the elements so far, a convolution the sum over its window. How an engine composes them is of
//! no concern here.

mod creation;
mod cumulative;
mod indexing;
mod movement;
mod ordering;
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
        Method::Squeeze => movement::squeeze(call),
        Method::Unsqueeze => movement::unsqueeze(call),
        Method::Transpose => movement::transpose(call),
        Method::Flatten => movement::flatten(call),
        Method::Unflatten => movement::unflatten(call),
        Method::Repeat => movement::repeat(call),
        Method::RepeatInterleave => movement::repeat_interleave(call),
        Method::Stack => movement::stack(call),
        Method::Split => movement::split(call),
        Method::Chunk => movement::chunk(call),
        Method::Unfold => movement::unfold(call),
        Method::Diagonal => movement::diagonal(call),
        Method::Diag => movement::diag(call),
        Method::Triu => movement::triu(call),
        Method::Tril => movement::tril(call),
        Method::Slice => movement::slice(call),
        Method::PadReflect => movement::pad_reflect(call),
        Method::PadReplicate => movement::pad_replicate(call),
        Method::PadCircular => movement::pad_circular(call),
        Method::ShrinkTo => movement::shrink_to(call),
        Method::PadTo => movement::pad_to(call),
        Method::Movedim => movement::movedim(call),
        Method::Linspace => creation::linspace(call),
        Method::ArangeFloat => creation::arange(call),
        Method::Eye => creation::eye(call),
        Method::Tri => creation::tri(call),
        Method::OneHot => indexing::one_hot(call),
        Method::IndexSelect => indexing::index_select(call),
        Method::Scatter => indexing::scatter(call),
        Method::ScatterAdd => indexing::scatter_add(call),
        Method::ScatterAmax => indexing::scatter_amax(call),
        Method::Sort => ordering::sort(call),
        Method::Argsort => ordering::argsort(call),
        Method::Topk => ordering::topk(call),
        Method::TopkIndices => ordering::topk_indices(call),
        Method::Argmax => ordering::argmax(call),
        Method::Argmin => ordering::argmin(call),
        Method::Cummin => ordering::cummin(call),
        Method::Any => ordering::any(call),
        Method::All => ordering::all(call),
        Method::CountNonzero => ordering::count_nonzero(call),
    };
    let value = value.map_err(|why| format!("{}: {why}", method.row().name))?;
    limit(value.shape.clone())?;
    Ok(value)
}
