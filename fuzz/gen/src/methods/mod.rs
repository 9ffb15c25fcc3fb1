//! Draws methods: sources that fit, and legal arguments with their edge cases (negative axes,
//! empty lists, sizes around those of the axis).

mod activation;
mod assign;
mod contraction;
mod creation;
mod cumulative;
mod elementwise;
mod factors;
mod floats;
mod indexing;
mod interpolation;
mod losses;
mod matrices;
mod movement;
mod ordering;
mod reduction;
mod selection;
mod statistics;
mod windows;

pub(crate) use floats::unknown;

use gradiff_corpus::{Arg, DType, Method, Statement, TensorType, ValueId};

use crate::Lane;
use crate::fact::Fact;
use crate::programs::Builder;

/// Methods whose derivatives have cases: kinks, ties, zeros, windows of several blocks.
const KINKED: [Method; 21] = [
    Method::Abs,
    Method::Relu,
    Method::Relu6,
    Method::HardTanh,
    Method::LeakyRelu,
    Method::HardSigmoid,
    Method::HardSwish,
    Method::Clamp,
    Method::Elu,
    Method::Celu,
    Method::Selu,
    Method::CopySign,
    Method::Fmod,
    Method::MaxPool2d,
    Method::AvgPool2d,
    Method::Cummax,
    Method::Cummin,
    Method::Cumprod,
    Method::Min,
    Method::ScatterAmax,
    Method::ScatterReduce,
];

impl Builder<'_> {
    /// Adds a method, and new sources where it needs some. Returns `None` if nothing fits.
    pub(crate) fn method(&mut self) -> Option<ValueId> {
        let method = match self.lane {
            Lane::Gradients if self.choices.one_in(2) => self.choices.pick(&KINKED),
            Lane::State if self.choices.one_in(4) => {
                self.choices.pick(&[Method::Assign, Method::AssignSlice, Method::Set])
            }
            _ => self.choices.pick(&Method::ALL),
        };
        let checkpoint = self.checkpoint();
        let start = self.statements.len();
        let found = self.draw_method(method).or_else(|| self.draw_with_data(method))?;
        if self.keeps_limits(start) {
            return Some(found);
        }
        self.roll_back(checkpoint);
        None
    }

    /// Returns whether the program, with the values from `start` on, is within its limits.
    pub(crate) fn keeps_limits(&self, start: usize) -> bool {
        let fits = |tensor: &TensorType| {
            tensor.shape.len() <= self.max_rank.max(1) && tensor.count() <= self.limit
        };
        self.has_room(0) && self.types[start..].iter().all(fits)
    }

    /// Adds small floats and the method on them. Returns `None`, and adds nothing, if the method
    /// takes no such data either.
    fn draw_with_data(&mut self, method: Method) -> Option<ValueId> {
        if !self.policy.inexact || !self.has_room(2) {
            return None;
        }
        let dtype = self.float_dtype()?;
        let checkpoint = self.checkpoint();
        let shape = self.palette.shape(self.choices, self.max_rank, self.limit);
        let data = self.fresh_unit(dtype, &shape)?;
        let result = self.on(data, |builder| builder.draw_method(method));
        if result.is_none() {
            self.roll_back(checkpoint);
        }
        result
    }

    /// Draws a float type of the configuration that the lane uses.
    pub(crate) fn float_dtype(&mut self) -> Option<DType> {
        let is_drawn = |dtype: &DType| dtype.is_float() && self.lane.uses(*dtype);
        let floats: Vec<DType> = self.config.dtypes.iter().copied().filter(is_drawn).collect();
        (!floats.is_empty()).then(|| self.choices.pick(&floats))
    }

    pub(crate) fn draw_method(&mut self, method: Method) -> Option<ValueId> {
        match method {
            Method::Cumsum | Method::Cumprod | Method::Cummax => self.draw_cumulative(method),
            Method::Min => self.draw_smallest(),
            Method::Roll => self.draw_roll(),
            Method::Matmul | Method::Dot => self.draw_matmul(method),
            Method::Linear => self.draw_linear(),
            Method::IsClose => self.draw_is_close(),
            Method::Mean | Method::Var | Method::Std | Method::LayerNorm => {
                self.draw_statistic(method)
            }
            Method::LogSumExp => self.draw_statistic(method),
            Method::Normalize => self.draw_normalized(),
            Method::LogCumSumExp | Method::Softmax | Method::LogSoftmax | Method::Softmin => {
                self.draw_powers(method)
            }
            Method::Conv2d | Method::ConvTranspose2d => self.draw_convolution(method),
            Method::MaxPool2d | Method::AvgPool2d | Method::MaxPool2dIndices => {
                self.draw_pool(method)
            }

            Method::Abs
            | Method::Sign
            | Method::Square
            | Method::Trunc
            | Method::Floor
            | Method::Ceil
            | Method::Round
            | Method::Relu => self.draw_elementwise(method),
            Method::Clamp | Method::HardTanh => self.draw_clamp(method),
            Method::IsNan | Method::IsInf | Method::IsFinite => self.draw_predicate(method),
            Method::CopySign => self.draw_copysign(),
            Method::MaskedFill => self.draw_masked_fill(),
            Method::Lerp => self.draw_lerp(),
            Method::Relu6 => self.draw_relu6(),
            Method::LeakyRelu => self.draw_leaky_relu(),
            Method::LogAddExp => self.draw_logaddexp(),
            Method::Fmod => self.draw_fmod(),
            Method::HardSigmoid
            | Method::HardSwish
            | Method::SoftSign
            | Method::Exp
            | Method::Log
            | Method::Log10
            | Method::Rsqrt
            | Method::Sigmoid
            | Method::Tanh
            | Method::Silu
            | Method::Softplus
            | Method::LogSigmoid
            | Method::Elu
            | Method::Celu
            | Method::Selu
            | Method::Gelu
            | Method::QuickGelu
            | Method::Mish
            | Method::Cos
            | Method::Tan
            | Method::Sinh
            | Method::Cosh
            | Method::Asinh
            | Method::Acosh
            | Method::Atanh
            | Method::Erf
            | Method::Asin
            | Method::Acos
            | Method::Atan => self.draw_function(method),
            Method::Stack => self.draw_stack(),
            Method::Squeeze
            | Method::Unsqueeze
            | Method::Transpose
            | Method::Flatten
            | Method::Unflatten
            | Method::Repeat
            | Method::RepeatInterleave
            | Method::Split
            | Method::Chunk
            | Method::Unfold
            | Method::Diagonal
            | Method::Diag
            | Method::Triu
            | Method::Tril
            | Method::Slice
            | Method::PadReflect
            | Method::PadReplicate
            | Method::PadCircular
            | Method::ShrinkTo
            | Method::PadTo
            | Method::Movedim => self.draw_movement(method),
            Method::Linspace => self.draw_linspace(),
            Method::ArangeFloat => self.draw_arange(),
            Method::Eye | Method::Tri => self.draw_matrix(method),
            Method::OneHot => self.draw_one_hot(),
            Method::IndexSelect => self.draw_index_select(),
            Method::Scatter | Method::ScatterAdd | Method::ScatterAmax => self.draw_scatter(method),
            Method::ScatterReduce => self.draw_scatter(method),
            Method::CrossEntropy | Method::SparseCategoricalCrossEntropy | Method::NllLoss => {
                self.draw_loss_of_classes(method)
            }
            Method::BinaryCrossEntropy | Method::BinaryCrossEntropyLogits => {
                self.draw_binary_loss(method)
            }
            Method::Sort | Method::Argsort | Method::Topk | Method::TopkIndices => {
                self.draw_sort(method)
            }
            Method::Argmax | Method::Argmin => self.draw_extreme_position(method),
            Method::Cummin => self.draw_cummin(),
            Method::Assign | Method::AssignSlice | Method::Set => self.draw_assign(method),
            Method::Get => self.draw_get(),
            Method::Any | Method::All | Method::CountNonzero => self.draw_truth(method),
            Method::Einsum => self.draw_einsum(),
            Method::ScaledDotProductAttention => self.draw_attention(),
            Method::Interpolate => self.draw_interpolate(),
            Method::Meshgrid => self.draw_meshgrid(),
            Method::MaskedSelectSized => self.draw_masked_select(),
            Method::NonzeroSized => self.draw_nonzero(),
            Method::MaxUnpool2d => self.draw_unpool(),
            Method::Rearrange => self.draw_rearrange(),
            Method::NewtonSchulz => self.draw_newton_schulz(),
            Method::QrQ | Method::QrR => self.draw_qr(method),
            Method::SvdS | Method::SvdProduct | Method::SvdU | Method::SvdVt => {
                self.draw_svd(method)
            }
            Method::Keccak => self.draw_keccak(),
        }
    }

    /// Adds the statement of a method.
    fn push_method(
        &mut self,
        method: Method,
        srcs: Vec<ValueId>,
        args: Vec<Arg>,
        fact: Fact,
    ) -> ValueId {
        self.push(Statement::Method { method, srcs, args }, fact)
    }

    /// Draws a number of this axis, which is negative half of the time.
    fn axis_number(&mut self, axis: usize, rank: usize) -> i64 {
        let number = axis as i64;
        if self.choices.one_in(2) { number - rank as i64 } else { number }
    }

    /// Draws the numbers of these axes.
    fn axis_numbers(&mut self, axes: &[usize], rank: usize) -> Vec<i64> {
        axes.iter().map(|axis| self.axis_number(*axis, rank)).collect()
    }
}
