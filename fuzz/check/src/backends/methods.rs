//! Calls of the engine's methods by the statements of the method table.

use gradiff::{Axes, Error, Tensor, keepdim};
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
    }
}
