//! Calls of the engine's methods by the statements of the method table.

use gradiff::{
    Axes, Conv, DType, Error, Index, Indexing, Interpolation, Keccak, Pool, Reduction, Scattered,
    Tensor, keepdim,
};
use gradiff_corpus::{Arg, Args, Literal, Method};

use crate::backends::translate::{dtype, scalar};

/// Calls a method on its sources.
///
/// # Errors
/// The engine's error if it refuses the call.
pub(crate) fn call(method: Method, srcs: &[&Tensor], args: &[Arg]) -> Result<Tensor, Error> {
    let args = Args(args);
    let Some(x) = srcs.first() else {
        return created(method, args);
    };
    let axes = |axes: usize, keep: usize| match args.flag(keep) {
        true => keepdim(args.ints(axes)),
        false => Axes::from(args.ints(axes)),
    };
    let number = |number: usize| scalar(&args.number(number));
    let axis = |axis: usize, keep: usize| match args.flag(keep) {
        true => keepdim(args.int(axis)),
        false => Axes::from(args.int(axis)),
    };
    let reduction = |number: usize| match args.word(number) {
        "none" => Reduction::None,
        "sum" => Reduction::Sum,
        _ => Reduction::Mean,
    };
    match method {
        Method::Cumsum => x.cumsum(args.int(0)),
        Method::Cumprod => x.cumprod(args.int(0)),
        Method::Cummax => x.cummax(args.int(0)),
        Method::Min => x.min(axes(0, 1)),
        Method::Roll => x.roll(args.ints(0), args.ints(1)),
        Method::Matmul => x.matmul(srcs[1]),
        Method::Conv2d => x.conv2d(srcs[1], &conv(args)),
        Method::ConvTranspose2d => {
            x.conv_transpose2d(srcs[1], &conv(args).output_padding(args.ints(4)))
        }
        Method::MaxPool2d => x.max_pool2d(&pool(args)),
        Method::AvgPool2d => x.avg_pool2d(&pool(args).count_include_pad(args.flag(5))),

        Method::Abs => x.abs(),
        Method::Sign => x.sign(),
        Method::Square => x.square(),
        Method::Clamp => x.clamp(number(0), number(1)),
        Method::Trunc => x.trunc(),
        Method::Floor => x.floor(),
        Method::Ceil => x.ceil(),
        Method::Round => x.round(),
        Method::IsNan => x.isnan(),
        Method::IsInf => x.isinf(),
        Method::IsFinite => x.isfinite(),
        Method::CopySign => x.copysign(srcs[1]),
        Method::MaskedFill => x.masked_fill(srcs[1], number(0)),
        Method::Lerp => x.lerp(srcs[1], srcs[2]),
        Method::Relu => x.relu(),
        Method::Relu6 => x.relu6(),
        Method::HardTanh => x.hardtanh(number(0), number(1)),
        Method::LeakyRelu => x.leaky_relu(number(0)),
        Method::HardSigmoid => x.hardsigmoid(),
        Method::HardSwish => x.hardswish(),
        Method::SoftSign => x.softsign(),
        Method::Exp => x.exp(),
        Method::Log => x.log(),
        Method::Log10 => x.log10(),
        Method::Rsqrt => x.rsqrt(),
        Method::Sigmoid => x.sigmoid(),
        Method::Tanh => x.tanh(),
        Method::Silu => x.silu(),
        Method::Softplus => x.softplus(number(0)),
        Method::LogSigmoid => x.logsigmoid(),
        Method::Elu => x.elu(number(0)),
        Method::Celu => x.celu(number(0)),
        Method::Selu => x.selu(),
        Method::Gelu => x.gelu(),
        Method::QuickGelu => x.quick_gelu(),
        Method::Mish => x.mish(),
        Method::Cos => x.cos(),
        Method::Tan => x.tan(),
        Method::Sinh => x.sinh(),
        Method::Cosh => x.cosh(),
        Method::Asinh => x.asinh(),
        Method::Acosh => x.acosh(),
        Method::Atanh => x.atanh(),
        Method::Erf => x.erf(),
        Method::Asin => x.asin(),
        Method::Acos => x.acos(),
        Method::Atan => x.atan(),
        Method::LogAddExp => x.logaddexp(srcs[1]),
        Method::Fmod => x.fmod(srcs[1]),
        Method::Squeeze => x.squeeze(args.int(0)),
        Method::Unsqueeze => x.unsqueeze(args.int(0)),
        Method::Transpose => x.transpose(args.int(0), args.int(1)),
        Method::Flatten => x.flatten(args.int(0), args.int(1)),
        Method::Unflatten => x.unflatten(args.int(0), args.ints(1)),
        Method::Repeat => x.repeat(args.ints(0)),
        Method::RepeatInterleave => x.repeat_interleave(args.int(0), args.int(1)),
        Method::Stack => Tensor::stack(srcs, args.int(0)),
        Method::Split => part(x.split(args.ints(0), args.int(1))?, args.int(2)),
        Method::Chunk => part(x.chunk(args.int(0), args.int(1))?, args.int(2)),
        Method::Unfold => x.unfold(args.int(0), args.int(1), args.int(2)),
        Method::Diagonal => x.diagonal(args.int(0), args.int(1), args.int(2)),
        Method::Diag => x.diag(args.int(0)),
        Method::Triu => x.triu(args.int(0)),
        Method::Tril => x.tril(args.int(0)),
        Method::Slice => x.slice(&ranges(args)),
        Method::Assign => x.assign(srcs[1].detach()),
        Method::AssignSlice => assignable(x).assign_slice(&ranges(args), srcs[1].detach()),
        Method::Get => x.get(indices(args, &srcs[1..])),
        Method::Set => assignable(x).set(indices(args, &srcs[2..]), srcs[1].detach()),
        Method::PadReflect => x.pad_reflect(&pairs(args)),
        Method::PadReplicate => x.pad_replicate(&pairs(args)),
        Method::PadCircular => x.pad_circular(&pairs(args)),
        Method::ShrinkTo => x.shrink_to(args.ints(0)),
        Method::PadTo => x.pad_to(args.ints(0)),
        Method::Movedim => x.movedim(args.ints(0), args.ints(1)),
        Method::Linspace | Method::ArangeFloat | Method::Eye | Method::Tri => created(method, args),
        Method::OneHot => x.one_hot(args.int(0)),
        Method::IndexSelect => x.index_select(srcs[1], args.int(0)),
        Method::Scatter => x.scatter(srcs[1], srcs[2], args.int(0)),
        Method::ScatterAdd => x.scatter_add(srcs[1], srcs[2], args.int(0)),
        Method::ScatterAmax => x.scatter_amax(srcs[1], srcs[2], args.int(0)),
        Method::Sort => x.sort(args.int(0), args.flag(1)),
        Method::Argsort => x.argsort(args.int(0), args.flag(1)),
        Method::Topk => Ok(x.topk(args.int(0), args.int(1), args.flag(2))?.0),
        Method::TopkIndices => Ok(x.topk(args.int(0), args.int(1), args.flag(2))?.1),
        Method::Argmax => x.argmax(axis(0, 1)),
        Method::Argmin => x.argmin(axis(0, 1)),
        Method::Cummin => x.cummin(args.int(0)),
        Method::Any => x.any(axes(0, 1)),
        Method::All => x.all(axes(0, 1)),
        Method::CountNonzero => x.count_nonzero(axes(0, 1)),
        Method::Mean => x.mean(axes(0, 1)),
        Method::Var => x.var(axes(0, 1), args.int(2)),
        Method::Std => x.std(axes(0, 1), args.int(2)),
        Method::LayerNorm => x.layernorm(args.ints(0), number(1)),
        Method::Normalize => x.normalize(number(0), args.int(1), number(2)),
        Method::LogSumExp => x.logsumexp(axes(0, 1)),
        Method::LogCumSumExp => x.logcumsumexp(args.int(0)),
        Method::Softmax => x.softmax(args.int(0)),
        Method::LogSoftmax => x.log_softmax(args.int(0)),
        Method::Softmin => x.softmin(args.int(0)),
        Method::IsClose => x.isclose(srcs[1], number(0), number(1), args.flag(2)),
        Method::Dot => x.dot(srcs[1]),
        Method::Linear => x.linear(srcs[1], srcs.get(2).copied()),
        Method::ScatterReduce => {
            let (axis, reduce) = (args.int(0), scattered(args.word(1)));
            x.scatter_reduce(srcs[1], srcs[2], axis, reduce, args.flag(2))
        }
        Method::CrossEntropy => x.cross_entropy(srcs[1], real(args.number(0)), reduction(1)),
        Method::SparseCategoricalCrossEntropy => {
            let (ignored, smoothing) = (args.int(0), real(args.number(1)));
            x.sparse_categorical_crossentropy(srcs[1], ignored, smoothing, reduction(2))
        }
        Method::NllLoss => {
            let weight = srcs.get(2).copied();
            let ignored = ignored_class(args.int(0), srcs[1].dtype());
            x.nll_loss(srcs[1], weight, ignored, reduction(1))
        }
        Method::BinaryCrossEntropy => x.binary_crossentropy(srcs[1], reduction(0)),
        Method::BinaryCrossEntropyLogits => x.binary_crossentropy_logits(srcs[1], reduction(0)),
        Method::Einsum => {
            let ranks = srcs.iter().map(|src| src.rank());
            Tensor::einsum(&formula(ranks, args.ints(0), args.ints(1)), srcs)
        }
        Method::ScaledDotProductAttention => {
            let (key, value, mask) = match *srcs {
                [_, key, value] => (key, value, None),
                [_, key, value, mask] => (key, value, Some(mask)),
                _ => return Err(Error::Invalid(format!("attention of {} tensors", srcs.len()))),
            };
            x.scaled_dot_product_attention(key, value, mask, 0.0, args.flag(0))
        }
        Method::Interpolate => {
            let mode = match args.word(1) {
                "linear" => Interpolation::Linear,
                "nearest" => Interpolation::Nearest,
                _ => Interpolation::NearestExact,
            };
            x.interpolate(args.ints(0), mode, args.flag(2))
        }
        Method::Meshgrid => {
            let indexing = if args.word(0) == "xy" { Indexing::Xy } else { Indexing::Ij };
            part(Tensor::meshgrid(srcs, indexing)?, args.int(1))
        }
        Method::MaskedSelectSized => x.masked_select_sized(srcs[1], args.int(0)),
        Method::NonzeroSized => x.nonzero_sized(args.int(0), args.int(1)),
        Method::MaxPool2dIndices => Ok(x.max_pool2d_with_indices(&pool(args))?.1),
        Method::MaxUnpool2d => x.max_unpool2d(srcs[1], args.ints(0)),
        Method::Rearrange => {
            let is_of_axis = |axis: usize, size: i64| x.shape().get(axis) == Some(&size);
            let (formula, sizes) = rearrangement(args, &is_of_axis);
            let sizes: Vec<(&str, i64)> =
                sizes.iter().map(|(name, size)| (&name[..], *size)).collect();
            x.rearrange(&formula, &sizes)
        }
        Method::NewtonSchulz => {
            let factors = [1, 2, 3].map(|number| real(args.number(number)));
            x.newton_schulz(args.int(0) as usize, &factors, real(args.number(4)))
        }
        Method::QrQ => Ok(x.qr()?.0),
        Method::QrR => Ok(x.qr()?.1),
        Method::SvdS => Ok(x.svd(false)?.1),
        Method::SvdProduct => {
            let (u, values, vt) = x.svd(args.flag(0))?;
            let count = values.shape()[values.rank() - 1];
            let [columns, rows] = [(u, 1), (vt, 2)].map(|(factor, from_end)| {
                let mut ranges: Vec<(i64, i64)> =
                    factor.shape().iter().map(|size| (0, *size)).collect();
                ranges[factor.rank() - from_end] = (0, count);
                factor.shrink(&ranges)
            });
            columns?.mul(&values.unsqueeze(-2)?)?.matmul(&rows?)
        }
        Method::SvdU => {
            let u = x.svd(args.flag(0))?.0;
            u.transpose(-2, -1)?.matmul(&u)
        }
        Method::SvdVt => {
            let vt = x.svd(args.flag(0))?.2;
            vt.matmul(&vt.transpose(-2, -1)?)
        }
        Method::Keccak => x.keccak(match args.word(0) {
            "sha3_224" => Keccak::Sha3_224,
            "shake_128" => Keccak::Shake128,
            _ => Keccak::Sha3_256,
        }),
    }
}

/// The formula of `einsum` for operands of these ranks: `a` for label 0, `?` for a label that is
/// none.
pub(crate) fn formula(
    ranks: impl Iterator<Item = usize>,
    labels: &[i64],
    output: &[i64],
) -> String {
    let letter = |label: &i64| match u8::try_from(*label) {
        Ok(label) if label < 26 => char::from(b'a' + label),
        _ => '?',
    };
    let mut letters = labels.iter().map(letter);
    let terms: Vec<String> = ranks.map(|rank| letters.by_ref().take(rank).collect()).collect();
    // Letters without an axis are added to the last term, so that the engine refuses them.
    let rest: String = letters.collect();
    let output: String = output.iter().map(letter).collect();
    format!("{}{rest}->{output}", terms.join(","))
}

/// The formula of `rearrange`, with a letter for each part of an axis, and the sizes of the parts.
/// A size that follows from the others of its axis is left out, in most axes; not in those whose
/// size is another one than the product of their parts, which would be accepted then.
pub(crate) fn rearrangement(
    args: Args<'_>,
    is_of_axis: &dyn Fn(usize, i64) -> bool,
) -> (String, Vec<(String, i64)>) {
    let letter = |number: i64| match u8::try_from(number) {
        Ok(number) if number < 26 => char::from(b'a' + number).to_string(),
        _ => "?".to_string(),
    };
    let side = |labels: &mut dyn Iterator<Item = i64>, lengths: &[i64]| {
        let mut groups = Vec::with_capacity(lengths.len());
        for length in lengths {
            // Axes without a label, and labels without an axis, are refused by the engine.
            if !(0..=26).contains(length) {
                groups.push("?".to_string());
                continue;
            }
            let label = |_| labels.next().map_or("?".to_string(), letter);
            let letters: Vec<String> = (0..*length).map(label).collect();
            groups.push(match &letters[..] {
                [letter] => letter.clone(),
                letters => format!("({})", letters.join(" ")),
            });
        }
        groups.extend(labels.map(|_| "?".to_string()));
        groups.join(" ")
    };
    let left = side(&mut (0..args.ints(0).len() as i64), args.ints(1));
    let parts = args.ints(0);
    // They count from the last part, too.
    let from_first = |number: &i64| match *number {
        ..0 => number.saturating_add(parts.len() as i64),
        number => number,
    };
    let right = side(&mut args.ints(2).iter().map(from_first), args.ints(3));
    let mut sizes: Vec<(String, i64)> =
        parts.iter().enumerate().map(|(number, size)| (letter(number as i64), *size)).collect();
    let mut end = parts.len();
    for (axis, length) in args.ints(1).iter().enumerate().rev() {
        let start = end.saturating_sub(usize::try_from(*length).unwrap_or(0));
        let follows = |left_out: usize| {
            (start..end).filter(|part| *part != left_out).all(|part| parts[part] != 0)
        };
        let chosen = start + (end % (end - start).max(1));
        let size = parts[start..end].iter().try_fold(1i64, |size, part| size.checked_mul(*part));
        let is_whole = size.is_some_and(|size| is_of_axis(axis, size));
        if (start..end).contains(&chosen) && follows(chosen) && end % 4 != 3 && is_whole {
            sizes.remove(chosen);
        }
        end = start;
    }
    (format!("{left} -> {right}"), sizes)
}

/// The class that is ignored; the largest one stands for none if no sample of the dtype has it.
pub(crate) fn ignored_class(class: i64, dtype: DType) -> Option<i64> {
    let is_possible = dtype.int_range().is_some_and(|(_, last)| i128::from(class) <= last);
    (class != i64::MAX || is_possible).then_some(class)
}

fn scattered(word: &str) -> Scattered {
    match word {
        "prod" => Scattered::Prod,
        "mean" => Scattered::Mean,
        "amax" => Scattered::Amax,
        "amin" => Scattered::Amin,
        _ => Scattered::Sum,
    }
}

fn real(literal: Literal) -> f64 {
    match literal {
        Literal::Bool(value) => u8::from(value).into(),
        Literal::Int(value) => value as f64,
        Literal::Float(value) => value,
    }
}

/// Calls a method without sources.
fn created(method: Method, args: Args<'_>) -> Result<Tensor, Error> {
    let element = dtype(args.dtype(0));
    let number = |number: usize| scalar(&args.number(number));
    match method {
        Method::Linspace => Tensor::linspace(element, number(1), number(2), args.int(3)),
        Method::ArangeFloat => Tensor::arange_float(element, number(1), number(2), number(3)),
        Method::Eye => Tensor::eye(element, args.int(1), args.int(2)),
        Method::Tri => Tensor::tri(element, args.int(1), args.int(2), args.int(3)),
        _ => unreachable!("{} has sources, typing says", method.row().name),
    }
}

/// Part `number`.
fn part(parts: Vec<Tensor>, number: i64) -> Result<Tensor, Error> {
    let found = usize::try_from(number).ok().and_then(|number| parts.get(number).cloned());
    found.ok_or_else(|| Error::Invalid(format!("there is no part {number} of {}", parts.len())))
}

/// The first two arguments, lists of one length, as pairs.
fn pairs(args: Args<'_>) -> Vec<(i64, i64)> {
    args.ints(0).iter().copied().zip(args.ints(1).iter().copied()).collect()
}

/// The tensor if a part of it can be assigned to, else its elements without their gradient.
fn assignable(x: &Tensor) -> Tensor {
    match x.requires_grad() {
        Some(true) => x.detach(),
        _ => x.clone(),
    }
}

/// The engine's indices, with the tensors that are sources.
fn indices(args: Args<'_>, sources: &[&Tensor]) -> Vec<Index> {
    let mut sources = sources.iter();
    let index = |index: &gradiff_corpus::Index| match *index {
        gradiff_corpus::Index::Position(position) => Index::Position(position),
        gradiff_corpus::Index::Slice { start, stop, step } => Index::Slice { start, stop, step },
        gradiff_corpus::Index::NewAxis => Index::NewAxis,
        gradiff_corpus::Index::Ellipsis => Index::Ellipsis,
        gradiff_corpus::Index::Source => {
            Index::from(*sources.next().expect("typing counts the sources"))
        }
    };
    args.indices(0).iter().map(index).collect()
}

/// The starts, stops and steps of a slice, one of each for an axis.
fn ranges(args: Args<'_>) -> Vec<(i64, i64, i64)> {
    let ends = pairs(args).into_iter().zip(args.ints(2));
    ends.map(|((start, stop), step)| (start, stop, *step)).collect()
}

fn conv(args: Args<'_>) -> Conv {
    let options = Conv::default().groups(args.int(0)).stride(args.ints(1));
    options.dilation(args.ints(2)).padding(args.ints(3))
}

fn pool(args: Args<'_>) -> Pool {
    let options = Pool::new(args.ints(0)).stride(args.ints(1)).dilation(args.ints(2));
    options.padding(args.ints(3)).ceil_mode(args.flag(4))
}
