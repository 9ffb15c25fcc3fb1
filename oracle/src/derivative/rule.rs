//! The table of methods: for each, how its derivative follows from its definition.

use gradiff_corpus::Method;

/// The way in which the derivative of a method follows from its definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The result is no float, has no source, or is constant almost everywhere: 0.
    Constant,
    /// Each element of the result is an element of a source, or 0. Which, the definition says.
    Movement,
    /// As `Movement`; the mask selects, and its elements have no derivative.
    Selection,
    /// An elementwise function, a row of `functions`.
    Function,
    /// Sums of elements of groups.
    Sums,
    /// Means of the elements of windows.
    Means,
    /// Sums of products of the two sources.
    Pairs,
    /// The largest or smallest element of groups; equal ones share the derivative equally.
    Extremes {
        /// True for the largest.
        is_largest: bool,
    },
    /// A function of the elements so far along an axis.
    Running(Running),
    /// Elements of the source at positions, which another method gives.
    Positions(Method),
    /// A formula of the elements along axes, a row of `statistics`.
    Statistic,
    /// Losses of samples, reduced.
    Loss,
    /// Sums, products, means or extremes of groups, as an argument tells.
    Scattered,
    /// Products of groups.
    Products,
    /// Sums of products of the first two sources, plus the third.
    Affine,
    /// Sums of products of all sources.
    Contraction,
    /// Sums of products of shares and values.
    Attention,
    /// Elements of the source, or numbers between them, as an argument tells.
    Interpolation,
    /// A function of matrices, in the steps of its definition.
    Matrices,
}

/// A function of the elements so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Running {
    Sum,
    Product,
    /// As [`Rule::Extremes`].
    Largest,
    /// As [`Rule::Extremes`].
    Smallest,
    /// The logarithm of the sum of powers.
    LogOfPowers,
}

/// Returns the rule of the elements that are scattered to a position.
pub(super) fn scattered(reduce: &str) -> Rule {
    match reduce {
        "sum" => Rule::Sums,
        "prod" => Rule::Products,
        "mean" => Rule::Means,
        _ => Rule::Extremes { is_largest: reduce == "amax" },
    }
}

/// Returns the rule of a method.
pub(super) fn rule(method: Method) -> Rule {
    const LARGEST: Rule = Rule::Extremes { is_largest: true };
    const SMALLEST: Rule = Rule::Extremes { is_largest: false };
    match method {
        Method::Cumsum => Rule::Running(Running::Sum),
        Method::Cumprod => Rule::Running(Running::Product),
        Method::Cummax => Rule::Running(Running::Largest),
        Method::Cummin => Rule::Running(Running::Smallest),
        Method::ScatterAdd => Rule::Sums,
        Method::MaxPool2d | Method::ScatterAmax => LARGEST,
        Method::Min => SMALLEST,
        Method::AvgPool2d | Method::Mean => Rule::Means,
        Method::Var | Method::Std | Method::LayerNorm => Rule::Statistic,
        Method::LogSumExp | Method::Softmax | Method::LogSoftmax => Rule::Statistic,
        Method::Softmin | Method::Normalize => Rule::Statistic,
        Method::LogCumSumExp => Rule::Running(Running::LogOfPowers),
        Method::Linear => Rule::Affine,
        Method::ScatterReduce => Rule::Scattered,
        Method::Einsum => Rule::Contraction,
        Method::ScaledDotProductAttention => Rule::Attention,
        Method::Interpolate => Rule::Interpolation,
        Method::NewtonSchulz | Method::QrQ | Method::QrR => Rule::Matrices,
        Method::SvdS | Method::SvdProduct | Method::SvdU | Method::SvdVt => Rule::Matrices,
        Method::CrossEntropy | Method::SparseCategoricalCrossEntropy => Rule::Loss,
        Method::NllLoss | Method::BinaryCrossEntropy => Rule::Loss,
        Method::BinaryCrossEntropyLogits => Rule::Loss,
        Method::Matmul | Method::Dot | Method::Conv2d | Method::ConvTranspose2d => Rule::Pairs,
        Method::MaskedFill => Rule::Selection,
        Method::Sort => Rule::Positions(Method::Argsort),
        Method::Topk => Rule::Positions(Method::TopkIndices),

        Method::Sign | Method::Trunc | Method::Floor | Method::Ceil | Method::Round => {
            Rule::Constant
        }
        Method::IsNan | Method::IsInf | Method::IsFinite => Rule::Constant,
        Method::IsClose => Rule::Constant,
        Method::Linspace | Method::ArangeFloat | Method::Eye | Method::Tri => Rule::Constant,
        Method::OneHot | Method::Argsort | Method::TopkIndices => Rule::Constant,
        Method::NonzeroSized | Method::MaxPool2dIndices => Rule::Constant,
        Method::Assign | Method::AssignSlice | Method::Set => Rule::Constant,
        Method::Argmax | Method::Argmin => Rule::Constant,
        Method::Any | Method::All | Method::CountNonzero | Method::Keccak => Rule::Constant,

        Method::Abs | Method::Square | Method::Clamp | Method::CopySign => Rule::Function,
        Method::Lerp | Method::LogAddExp | Method::Fmod => Rule::Function,
        Method::Relu | Method::Relu6 | Method::HardTanh | Method::LeakyRelu => Rule::Function,
        Method::HardSigmoid | Method::HardSwish | Method::SoftSign => Rule::Function,
        Method::Exp | Method::Log | Method::Log10 | Method::Rsqrt => Rule::Function,
        Method::Sigmoid | Method::Tanh | Method::Silu | Method::Softplus => Rule::Function,
        Method::LogSigmoid | Method::Elu | Method::Celu | Method::Selu => Rule::Function,
        Method::Gelu | Method::QuickGelu | Method::Mish | Method::Erf => Rule::Function,
        Method::Cos | Method::Tan | Method::Sinh | Method::Cosh => Rule::Function,
        Method::Asinh | Method::Acosh | Method::Atanh => Rule::Function,
        Method::Asin | Method::Acos | Method::Atan => Rule::Function,

        Method::Roll | Method::Squeeze | Method::Unsqueeze | Method::Transpose => Rule::Movement,
        Method::Flatten | Method::Unflatten | Method::Repeat => Rule::Movement,
        Method::RepeatInterleave | Method::Stack | Method::Split => Rule::Movement,
        Method::Chunk | Method::Unfold | Method::Diagonal | Method::Diag => Rule::Movement,
        Method::Triu | Method::Tril | Method::Slice | Method::PadReflect => Rule::Movement,
        Method::PadReplicate | Method::PadCircular | Method::ShrinkTo => Rule::Movement,
        Method::PadTo | Method::Movedim | Method::IndexSelect | Method::Scatter => Rule::Movement,
        Method::Get | Method::Meshgrid | Method::MaskedSelectSized => Rule::Movement,
        Method::MaxUnpool2d | Method::Rearrange => Rule::Movement,
    }
}
