//! The table of methods: operations of tensors that an engine composes of others.
//!
//! A row holds the name, the number of sources, the arguments and the typing. What a method means
//! is in its documentation here; the oracle defines it in `oracle/src/methods`, an engine composes
//! it. To add a method, add a row and its typing here, its definition there, the generator's draw
//! in `fuzz/gen/src/methods`, and the call in `fuzz/check/src/backends/methods.rs`.
//!
//! An axis may be negative: it then counts from the last one, which is -1.

mod cumulative;
mod elementwise;
mod movement;
mod reduction;
mod windows;

use crate::{DType, Literal, TensorType};

/// An argument of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An integer: an axis, a size, a distance.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// `true` or `false`.
    Flag(bool),
    /// A number, which takes the dtype that the method says.
    Number(Literal),
    /// An element type.
    DType(DType),
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// [`Arg::Int`].
    Int,
    /// [`Arg::Ints`].
    Ints,
    /// [`Arg::Flag`].
    Flag,
    /// [`Arg::Number`].
    Number,
    /// [`Arg::DType`].
    DType,
}

impl Arg {
    /// Returns the kind.
    pub fn kind(&self) -> ArgKind {
        match self {
            Arg::Int(_) => ArgKind::Int,
            Arg::Ints(_) => ArgKind::Ints,
            Arg::Flag(_) => ArgKind::Flag,
            Arg::Number(_) => ArgKind::Number,
            Arg::DType(_) => ArgKind::DType,
        }
    }
}

/// The number of sources of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many, written after the name.
    Exactly(usize),
    /// One or more, written as a list.
    List,
}

/// The arguments of a method, of the kinds that its row tells.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(pub &'a [Arg]);

impl<'a> Args<'a> {
    /// Returns argument `number`, an integer.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn int(self, number: usize) -> i64 {
        match self.0.get(number) {
            Some(Arg::Int(value)) => *value,
            found => panic!("argument {number} is {found:?}, not an integer"),
        }
    }

    /// Returns argument `number`, a list of integers.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn ints(self, number: usize) -> &'a [i64] {
        match self.0.get(number) {
            Some(Arg::Ints(values)) => values,
            found => panic!("argument {number} is {found:?}, not a list of integers"),
        }
    }

    /// Returns argument `number`, a flag.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn flag(self, number: usize) -> bool {
        match self.0.get(number) {
            Some(Arg::Flag(value)) => *value,
            found => panic!("argument {number} is {found:?}, not a flag"),
        }
    }

    /// Returns argument `number`, a number.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn number(self, number: usize) -> Literal {
        match self.0.get(number) {
            Some(Arg::Number(value)) => *value,
            found => panic!("argument {number} is {found:?}, not a number"),
        }
    }

    /// Returns argument `number`, an element type.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn dtype(self, number: usize) -> DType {
        match self.0.get(number) {
            Some(Arg::DType(value)) => *value,
            found => panic!("argument {number} is {found:?}, not a dtype"),
        }
    }
}

/// Returns the type of a method's result from those of its sources, or what is not allowed.
type Typing = fn(&[&TensorType], Args<'_>) -> Result<TensorType, String>;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name in the text form, which is that of the engine's method.
    pub name: &'static str,
    /// The number of sources.
    pub arity: Arity,
    /// The arguments, in order: name and kind.
    pub parameters: &'static [(&'static str, ArgKind)],
    typing: Typing,
}

macro_rules! arity {
    (list) => {
        Arity::List
    };
    ($count:literal) => {
        Arity::Exactly($count)
    };
}

/// Defines the enum of methods from a row for each: documentation, variant, name, number of
/// sources, parameters, typing.
macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:tt
        [$($parameter:ident: $kind:ident),*] $typing:path;)*) => {
        /// A method, a row of the table. New rows must be added at the end, so that encodings
        /// never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// All methods.
            pub const ALL: [Method; [$($name),*].len()] = [$(Method::$variant),*];

            /// Returns the row of the method.
            pub fn row(self) -> &'static Row {
                const ROWS: [Row; Method::ALL.len()] = [$(Row {
                    name: $name,
                    arity: arity!($arity),
                    parameters: &[$((stringify!($parameter), ArgKind::$kind)),*],
                    typing: $typing,
                }),*];
                &ROWS[self as usize]
            }
        }
    };
}

methods! {
    /// The sum of the elements up to each position along an axis, in the accumulator's dtype as
    /// `sum`: `out[.., i, ..] = x[.., 0, ..] + .. + x[.., i, ..]`.
    Cumsum "cumsum" 1 [axis: Int] cumulative::accumulated;
    /// The product of the elements up to each position along an axis, as `cumsum`.
    Cumprod "cumprod" 1 [axis: Int] cumulative::accumulated;
    /// The largest element up to each position along an axis; NaN from the first NaN on.
    Cummax "cummax" 1 [axis: Int] cumulative::kept;
    /// The smallest element along `axes`; NaN if any element is NaN. No axis may be empty.
    Min "amin" 1 [axes: Ints, keepdim: Flag] reduction::extreme;
    /// Rotates the elements along each of `axes` by its shift: the element at `i` goes to
    /// `(i + shift) mod size`.
    Roll "roll" 1 [shifts: Ints, axes: Ints] movement::roll;
    // Products and windows.
    /// The matrix product of [.., m, k] and [.., k, n], in the promoted dtype: sums as `sum`, cast
    /// back. A vector is a row on the left and a column on the right, without its axis of 1.
    Matmul "matmul" 2 [] windows::matmul;
    /// The convolution of images [n, c, ..] with weights [k, c / groups, ..], in the promoted
    /// dtype: the sums over windows of products. The padding, before and after each axis, is
    /// zeros, which are multiplied as other elements.
    Conv2d "conv2d" 2 [groups: Int, stride: Ints, dilation: Ints, padding: Ints] windows::conv;
    /// The transposed convolution of images [n, c, ..] with weights [c, k / groups, ..]: element i
    /// adds its products with the weights j at i * stride + j * dilation - padding before. The
    /// size of an axis is (size - 1) * stride - padding + dilation * (kernel - 1) +
    /// output_padding + 1.
    ConvTranspose2d "conv_transpose2d" 2
        [groups: Int, stride: Ints, dilation: Ints, padding: Ints, output_padding: Ints]
        windows::conv_transpose;
    /// The largest element of each window over the last axes, without the padding; the smallest
    /// value of the dtype if there is no element. With `ceil_mode` also windows that reach beyond
    /// the padding, if they begin before the padding at the end.
    MaxPool2d "max_pool2d" 1
        [kernel: Ints, stride: Ints, dilation: Ints, padding: Ints, ceil_mode: Flag]
        windows::pool;
    /// The mean of each window over the last axes; of floats. The padding counts as zeros if
    /// `count_include_pad`, what `ceil_mode` adds beyond it never counts; the mean of no elements
    /// is NaN. f16 and bf16 are computed in f32.
    AvgPool2d "avg_pool2d" 1
        [kernel: Ints, stride: Ints, dilation: Ints, padding: Ints, ceil_mode: Flag,
         count_include_pad: Flag]
        windows::mean_pool;

    // Elementwise functions. The result has the dtype of the source. f16 and bf16 are computed in
    // f32 and rounded once. NaN gives NaN. Numbers take the dtype of the first source. An error of
    // n ulps is relative to the exact result; for f64, 4 ulps are added to each bound.
    /// `|x|`; +0 for a zero of either sign, wrapping for the smallest integer. Integers and floats.
    Abs "abs" 1 [] elementwise::number;
    /// -1, 0 or 1 as x is negative, zero or positive; +0 for a zero of either sign, NaN for NaN.
    /// Integers and floats.
    Sign "sign" 1 [] elementwise::number;
    /// `x * x`, rounded once; integers wrap. Integers and floats.
    Square "square" 1 [] elementwise::number;
    /// The lesser of `max` and the greater of `x` and `min`: `max` if `max < min`. NaN if any of
    /// the three is NaN; a zero that equals a bound may have either sign. Integers and floats.
    Clamp "clamp" 1 [min: Number, max: Number] elementwise::number;
    /// The integer nearest to x in the direction of 0, with the sign of x. Infinities stay.
    /// Integers, which stay, and floats.
    Trunc "trunc" 1 [] elementwise::number;
    /// The largest integer that is at most x; a zero has the sign of x. As `trunc`.
    Floor "floor" 1 [] elementwise::number;
    /// The smallest integer that is at least x; a zero has the sign of x. As `trunc`.
    Ceil "ceil" 1 [] elementwise::number;
    /// The integer nearest to x, the even one of two; a zero has the sign of x. As `trunc`.
    Round "round" 1 [] elementwise::number;
    /// Whether x is NaN, as bool; false for integers and bool. All dtypes.
    IsNan "isnan" 1 [] elementwise::predicate;
    /// Whether x is an infinity of either sign, as bool; false for integers and bool. All dtypes.
    IsInf "isinf" 1 [] elementwise::predicate;
    /// Whether x is neither NaN nor an infinity, as bool; true for integers and bool. All dtypes.
    IsFinite "isfinite" 1 [] elementwise::predicate;
    /// The magnitude of x with the sign of y, also that of a zero; NaN if x or y is NaN, whose sign
    /// means nothing. Floats, promoted and broadcast.
    CopySign "copysign" 2 [] elementwise::floats;
    /// `value` where the second source, a mask of bool, is true, else x. Broadcast. All dtypes.
    MaskedFill "masked_fill" 2 [value: Number] elementwise::masked;
    /// `x + (y - x) * weight`: the difference, product and sum are each rounded, or later. Sources
    /// x, y, weight. Floats, promoted and broadcast.
    Lerp "lerp" 3 [] elementwise::floats;
    /// `max(x, 0)`; a zero may have either sign. Integers and floats.
    Relu "relu" 1 [] elementwise::number;
    /// `min(max(x, 0), 6)`, as `clamp`. Floats.
    Relu6 "relu6" 1 [] elementwise::float;
    /// `min(max(x, min), max)`, as `clamp`. Floats.
    HardTanh "hardtanh" 1 [min: Number, max: Number] elementwise::float;
    /// `slope * x` for x below 0, else x. Floats.
    LeakyRelu "leaky_relu" 1 [slope: Number] elementwise::float;
    /// `min(max(x + 3, 0), 6) / 6`, within 2 ulps. Floats.
    HardSigmoid "hardsigmoid" 1 [] elementwise::float;
    /// `x * hardsigmoid(x)`, within 3 ulps; NaN for -inf, the product of an infinity and 0. Floats.
    HardSwish "hardswish" 1 [] elementwise::float;
    /// `x / (1 + |x|)`, within 2 ulps; NaN for infinities, the quotient of two. Floats.
    SoftSign "softsign" 1 [] elementwise::float;
    /// `e^x`, within 2 ulps. Floats.
    Exp "exp" 1 [] elementwise::float;
    /// The natural logarithm, within 3 ulps; -inf for zeros, NaN below. Floats.
    Log "log" 1 [] elementwise::float;
    /// The logarithm to base 10, within 3 ulps; -inf for zeros, NaN below. Floats.
    Log10 "log10" 1 [] elementwise::float;
    /// `1 / sqrt(x)`, both rounded; an infinity with the sign of a zero, NaN below. Floats.
    Rsqrt "rsqrt" 1 [] elementwise::float;
    /// `1 / (1 + e^-x)`, within 3 ulps; a subnormal result may be 0. Floats.
    Sigmoid "sigmoid" 1 [] elementwise::float;
    /// The hyperbolic tangent, within 4 ulps. Floats.
    Tanh "tanh" 1 [] elementwise::float;
    /// `x * sigmoid(x)`, within 4 ulps and the smallest subnormal number times x; NaN for -inf, the
    /// product of an infinity and 0. Floats.
    Silu "silu" 1 [] elementwise::float;
    /// `log(1 + e^(beta * x)) / beta`: the product and the quotient are rounded, the logarithm is
    /// within 4 ulps. `beta` must be finite and above 0. Floats.
    Softplus "softplus" 1 [beta: Number] elementwise::float_scaled;
    /// `log(sigmoid(x))`, within 4 ulps; -0 for inf. Floats.
    LogSigmoid "logsigmoid" 1 [] elementwise::float;
    /// `alpha * (e^x - 1)` for x below 0, else x. The difference is within 3 ulps, the product is
    /// rounded. Floats.
    Elu "elu" 1 [alpha: Number] elementwise::float;
    /// `alpha * (e^(x / alpha) - 1)` for x below 0, else x, as `elu`. `alpha` must be finite and
    /// above 0. Floats.
    Celu "celu" 1 [alpha: Number] elementwise::float_scaled;
    /// 1.0507 times `elu` with the alpha 1.67326, the numbers of tinygrad. Floats.
    Selu "selu" 1 [] elementwise::float;
    /// `x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2`, tinygrad's approximation of x times
    /// the normal distribution, within 4 ulps of itself and what 6 roundings of the argument of
    /// tanh and the smallest subnormal number of the factor make. NaN for -inf, the product of an
    /// infinity and 0. Floats.
    Gelu "gelu" 1 [] elementwise::float;
    /// `x * sigmoid(1.702 * x)`, as `gelu` with 3 roundings of the argument. Floats.
    QuickGelu "quick_gelu" 1 [] elementwise::float;
    /// `x * tanh(log(1 + e^x))`, within 5 ulps and two of the smallest subnormal number times x;
    /// NaN for -inf. Floats.
    Mish "mish" 1 [] elementwise::float;
    /// The cosine of x in radians, within 6 ulps of 1; NaN for infinities. Floats.
    Cos "cos" 1 [] elementwise::float;
    /// The quotient of `sin` and `cos`, each within its bound; NaN for infinities. Floats.
    Tan "tan" 1 [] elementwise::float;
    /// The hyperbolic sine, within 4 ulps. Floats.
    Sinh "sinh" 1 [] elementwise::float;
    /// The hyperbolic cosine, within 4 ulps. Floats.
    Cosh "cosh" 1 [] elementwise::float;
    /// The inverse of `sinh`, within 5 ulps. Floats.
    Asinh "asinh" 1 [] elementwise::float;
    /// The inverse of `cosh` that is not negative, within 5 ulps; NaN below 1. Floats.
    Acosh "acosh" 1 [] elementwise::float;
    /// The inverse of `tanh`, within 5 ulps; infinities for -1 and 1, NaN beyond. Floats.
    Atanh "atanh" 1 [] elementwise::float;
    /// The error function, `2/sqrt(pi)` times the integral of `e^(-t^2)` from 0 to x, within 4
    /// ulps. Floats.
    Erf "erf" 1 [] elementwise::float;
    /// The inverse of the sine, from -pi/2 to pi/2, within 4 ulps; NaN beyond -1 and 1. Floats.
    Asin "asin" 1 [] elementwise::float;
    /// The inverse of the cosine, from 0 to pi, within 4 ulps; NaN beyond -1 and 1. Floats.
    Acos "acos" 1 [] elementwise::float;
    /// The inverse of the tangent, from -pi/2 to pi/2, within 4 ulps. Floats.
    Atan "atan" 1 [] elementwise::float;
    /// `log(e^x + e^y)`, within 4 ulps of the largest of its magnitude, those of x and y, and 1; an
    /// infinity where the larger of x and y is. Floats, promoted and broadcast.
    LogAddExp "logaddexp" 2 [] elementwise::floats;
    /// The remainder `x - trunc(x / y) * y`, exact, with the sign of x, also that of a zero; x for
    /// an infinite y, NaN for an infinite x or a zero y. Floats, promoted and broadcast.
    Fmod "fmod" 2 [] elementwise::floats;
}

impl Method {
    /// Returns the method of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.row().name == name)
    }

    /// Returns the type of the result from those of the sources.
    ///
    /// # Errors
    /// Sources or arguments that the method does not take.
    pub(crate) fn typing(self, srcs: &[&TensorType], args: &[Arg]) -> Result<TensorType, String> {
        let row = self.row();
        let fits = match row.arity {
            Arity::Exactly(count) => srcs.len() == count,
            Arity::List => !srcs.is_empty(),
        };
        if !fits {
            return Err(format!(
                "{} of {} sources: it takes {:?}",
                row.name,
                srcs.len(),
                row.arity
            ));
        }
        let kinds = row.parameters.iter().map(|(_, kind)| *kind);
        if !args.iter().map(Arg::kind).eq(kinds) {
            return Err(format!("{} with {args:?}: it takes {:?}", row.name, row.parameters));
        }
        let found = (row.typing)(srcs, Args(args)).map_err(|why| format!("{}: {why}", row.name))?;
        crate::geometry::check_size(&found.shape)?;
        Ok(found)
    }
}

/// Returns the axis that `axis` means in a shape of this rank.
///
/// # Errors
/// There is no such axis.
pub fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_start) {
        Ok(found) if found < rank => Ok(found),
        _ => Err(format!("there is no axis {axis} of {rank}")),
    }
}

/// Returns the axes that `axes` mean, in the same order.
///
/// # Errors
/// There is no such axis, or it is named twice.
pub fn axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let found = axes.iter().map(|number| axis(*number, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = found.clone();
    sorted.sort_unstable();
    match sorted.windows(2).all(|pair| pair[0] < pair[1]) {
        true => Ok(found),
        false => Err(format!("axes {axes:?} of rank {rank} name one twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_no_names_of_operations() {
        for method in Method::ALL {
            let name = method.row().name;
            assert_eq!(Method::from_name(name), Some(method));
            let error = crate::parse(&format!("a = {name}\noutput a\n")).unwrap_err();
            assert!(error.message.contains("a value"), "{name}: {error}");
        }
    }

    #[test]
    fn negative_axes_count_from_the_last() {
        assert_eq!(axis(-1, 3), Ok(2));
        assert_eq!(axis(-3, 3), Ok(0));
        assert!(axis(-4, 3).is_err() && axis(3, 3).is_err() && axis(0, 0).is_err());
        assert!(axes(&[0, -2], 2).is_err());
    }
}
