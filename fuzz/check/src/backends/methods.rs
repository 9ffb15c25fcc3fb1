//! Calls of the engine's methods by the statements of the method table.

use gradiff::{Axes, Conv, Error, Pool, Tensor, keepdim};
use gradiff_corpus::{Arg, Args, Method};

use crate::backends::translate::scalar;

/// Calls a method on its sources.
///
/// # Errors
/// The engine's error if it refuses the call.
pub(crate) fn call(method: Method, srcs: &[&Tensor], args: &[Arg]) -> Result<Tensor, Error> {
    let args = Args(args);
    let x = srcs[0];
    let axes = |axes: usize, keep: usize| match args.flag(keep) {
        true => keepdim(args.ints(axes)),
        false => Axes::from(args.ints(axes)),
    };
    let number = |number: usize| scalar(&args.number(number));
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
    }
}

fn conv(args: Args<'_>) -> Conv {
    let options = Conv::default().groups(args.int(0)).stride(args.ints(1));
    options.dilation(args.ints(2)).padding(args.ints(3))
}

fn pool(args: Args<'_>) -> Pool {
    let options = Pool::new(args.ints(0)).stride(args.ints(1)).dilation(args.ints(2));
    options.padding(args.ints(3)).ceil_mode(args.flag(4))
}
