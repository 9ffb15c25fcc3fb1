//! The definitions of the methods, each straight from its mathematics: a running sum is the sum of
//! the elements so far, a convolution the sum over its window. How an engine composes them is of
//! no concern here.

pub(crate) mod activation;
mod approximation;
pub(crate) mod contraction;
mod creation;
mod cumulative;
pub(crate) mod elementary;
pub(crate) mod elementwise;
mod exponentials;
mod hashing;
pub(crate) mod indexing;
pub(crate) mod interpolation;
pub(crate) mod losses;
pub(crate) mod matrices;
mod movement;
mod norms;
mod ordering;
pub(crate) mod pooling;
pub(crate) mod products;
pub(crate) mod reduction;
mod selection;
pub(crate) mod singular;
pub(crate) mod statistics;

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

        Method::Abs => elementwise::abs(call),
        Method::Sign => elementwise::sign(call),
        Method::Square => elementwise::square(call),
        Method::Clamp => elementwise::clamp(call),
        Method::Trunc => elementwise::whole(call, f64::trunc),
        Method::Floor => elementwise::whole(call, f64::floor),
        Method::Ceil => elementwise::whole(call, f64::ceil),
        Method::Round => elementwise::whole(call, f64::round_ties_even),
        Method::IsNan => elementwise::is(call, elementwise::Class::Nan),
        Method::IsInf => elementwise::is(call, elementwise::Class::Infinite),
        Method::IsFinite => elementwise::is(call, elementwise::Class::Finite),
        Method::CopySign => elementwise::copysign(call),
        Method::MaskedFill => elementwise::masked_fill(call),
        Method::Lerp => elementwise::lerp(call),
        Method::Relu => elementwise::relu(call),
        Method::Relu6 => activation::relu6(call),
        Method::HardTanh => elementwise::clamp_floats(call),
        Method::LeakyRelu => activation::leaky_relu(call),
        Method::HardSigmoid => elementwise::float(call, activation::hardsigmoid),
        Method::HardSwish => elementwise::float(call, activation::hardswish),
        Method::SoftSign => elementwise::float(call, activation::softsign),
        Method::Exp => elementwise::float(call, elementary::exp),
        Method::Log => elementwise::float(call, elementary::log),
        Method::Log10 => elementwise::float(call, elementary::log10),
        Method::Rsqrt => elementwise::float(call, elementary::rsqrt),
        Method::Sigmoid => elementwise::float(call, activation::sigmoid),
        Method::Tanh => elementwise::float(call, elementary::tanh),
        Method::Silu => elementwise::float(call, activation::silu),
        Method::Softplus => activation::softplus(call),
        Method::LogSigmoid => elementwise::float(call, activation::logsigmoid),
        Method::Elu => activation::elu(call),
        Method::Celu => activation::celu(call),
        Method::Selu => elementwise::float(call, activation::selu),
        Method::Gelu => elementwise::float(call, activation::gelu),
        Method::QuickGelu => elementwise::float(call, activation::quick_gelu),
        Method::Mish => elementwise::float(call, activation::mish),
        Method::Cos => elementwise::float(call, elementary::cos),
        Method::Tan => elementwise::float(call, elementary::tan),
        Method::Sinh => elementwise::float(call, elementary::sinh),
        Method::Cosh => elementwise::float(call, elementary::cosh),
        Method::Asinh => elementwise::float(call, elementary::asinh),
        Method::Acosh => elementwise::float(call, elementary::acosh),
        Method::Atanh => elementwise::float(call, elementary::atanh),
        Method::Erf => elementwise::float(call, elementary::erf),
        Method::Asin => elementwise::float(call, elementary::asin),
        Method::Acos => elementwise::float(call, elementary::acos),
        Method::Atan => elementwise::float(call, elementary::atan),
        Method::LogAddExp => elementary::logaddexp(call),
        Method::Fmod => elementwise::fmod(call),
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
        Method::Assign => movement::assign(call),
        Method::AssignSlice => movement::assign_slice(call),
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
        Method::Mean => statistics::mean(call),
        Method::Var => statistics::variance(call),
        Method::Std => statistics::deviation(call),
        Method::LayerNorm => statistics::normalized(call),
        Method::Normalize => statistics::of_norm_1(call),
        Method::LogSumExp => exponentials::log_of_sum(call),
        Method::LogCumSumExp => exponentials::log_of_running_sum(call),
        Method::Softmax => exponentials::softmax(call),
        Method::LogSoftmax => exponentials::log_softmax(call),
        Method::Softmin => exponentials::softmin(call),
        Method::IsClose => elementwise::is_close(call),
        Method::Dot => products::matmul(call),
        Method::Linear => products::linear(call),
        Method::ScatterReduce => indexing::scatter_reduce(call),
        Method::CrossEntropy => losses::cross_entropy(call),
        Method::SparseCategoricalCrossEntropy => losses::sparse_categorical(call),
        Method::NllLoss => losses::negative_log_likelihood(call),
        Method::BinaryCrossEntropy | Method::BinaryCrossEntropyLogits => {
            losses::binary(method, call)
        }
        Method::Get => selection::get(call),
        Method::Set => selection::set(call),
        Method::Einsum => contraction::einsum(call),
        Method::ScaledDotProductAttention => contraction::attention(call),
        Method::Interpolate => interpolation::interpolate(call),
        Method::Meshgrid => movement::meshgrid(call),
        Method::MaskedSelectSized => selection::masked_select(call),
        Method::NonzeroSized => selection::nonzero(call),
        Method::MaxPool2dIndices => pooling::positions_of_largest(call),
        Method::MaxUnpool2d => pooling::unpool(call),
        Method::Rearrange => movement::rearrange(call),
        Method::NewtonSchulz => matrices::newton_schulz(call),
        Method::QrQ => matrices::orthogonal(call),
        Method::QrR => matrices::triangular(call),
        Method::SvdS => singular::values(call),
        Method::SvdProduct => singular::product(call),
        Method::SvdU => singular::gram(call, false),
        Method::SvdVt => singular::gram(call, true),
        Method::Keccak => hashing::keccak(call),
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

/// Returns the padding before and after each axis, of a list with one number for each or two.
fn padding(list: &[i64], rank: usize) -> Check<Vec<usize>> {
    if list.len() == rank {
        return Ok(counts(list, rank, 0)?.into_iter().flat_map(|count| [count, count]).collect());
    }
    counts(list, 2 * rank, 0)
}
