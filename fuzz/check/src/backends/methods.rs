//! Calls of the engine's methods by the statements of the method table.

use gradiff::{Axes, Conv, Error, Pool, Tensor, keepdim};
use gradiff_corpus::{Arg, Args, Method};

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
