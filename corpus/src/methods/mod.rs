//! The table of methods: operations of tensors that an engine composes of others.
//!
//! A row holds the name, the number of sources, the arguments and the typing. What a method means
//! is in its documentation here; the oracle defines it in `oracle/src/methods`, an engine composes
//! it. `engine/README.md`, "How to add", lists all that a new method needs.
//!
//! An axis may be negative: it then counts from the last one, which is -1.

mod contraction;
mod creation;
mod cumulative;
mod elementwise;
mod index;
mod indexing;
mod interpolation;
mod losses;
mod matrices;
mod movement;
mod ordering;
mod reduction;
mod windows;

use crate::{DType, Literal, TensorType};

pub use index::Index;

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
    /// One of the words that the row lists.
    Word(&'static str),
    /// Indices along axes, from the first one on.
    Indices(Vec<Index>),
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
    /// [`Arg::Word`], one of these.
    Word(&'static [&'static str]),
    /// [`Arg::Indices`].
    Indices,
}

/// The reductions of the losses of samples to one.
pub const REDUCTIONS: &[&str] = &["none", "sum", "mean"];
/// The functions of the elements that are scattered to a position.
pub const SCATTERED: &[&str] = &["sum", "prod", "mean", "amax", "amin"];
/// The elements that an interpolation takes a new element from.
pub const INTERPOLATIONS: &[&str] = &["linear", "nearest", "nearest_exact"];
/// The hash functions of the Keccak family.
const KECCAK: &[&str] = &["sha3_224", "sha3_256", "shake_128"];
/// The orders of the axes of a grid.
pub const INDEXINGS: &[&str] = &["ij", "xy"];

impl ArgKind {
    /// Returns whether an argument is of the kind.
    pub fn takes(self, arg: &Arg) -> bool {
        match (self, arg) {
            (ArgKind::Int, Arg::Int(_))
            | (ArgKind::Ints, Arg::Ints(_))
            | (ArgKind::Flag, Arg::Flag(_))
            | (ArgKind::Number, Arg::Number(_))
            | (ArgKind::DType, Arg::DType(_))
            | (ArgKind::Indices, Arg::Indices(_)) => true,
            (ArgKind::Word(words), Arg::Word(word)) => words.contains(word),
            _ => false,
        }
    }
}

/// The number of sources of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many, written after the name.
    Exactly(usize),
    /// From the first to the second number of them, written after the name.
    Between(usize, usize),
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

    /// Returns argument `number`, a word.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn word(self, number: usize) -> &'static str {
        match self.0.get(number) {
            Some(Arg::Word(word)) => word,
            found => panic!("argument {number} is {found:?}, not a word"),
        }
    }

    /// Returns argument `number`, indices.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn indices(self, number: usize) -> &'a [Index] {
        match self.0.get(number) {
            Some(Arg::Indices(indices)) => indices,
            found => panic!("argument {number} is {found:?}, not a list of indices"),
        }
    }
}

/// The type of a method's result, or what is not allowed.
type Typed = Result<TensorType, String>;
/// Returns the type of a method's result from those of its sources.
type Typing = fn(&[&TensorType], Args<'_>) -> Typed;

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

impl Arity {
    /// Returns whether a method takes this many sources.
    pub fn takes(self, count: usize) -> bool {
        match self {
            Arity::Exactly(exact) => count == exact,
            Arity::Between(least, limit) => (least..=limit).contains(&count),
            Arity::List => 0 < count,
        }
    }
}

macro_rules! arity {
    (list) => {
        Arity::List
    };
    (($least:literal to $limit:literal)) => {
        Arity::Between($least, $limit)
    };
    ($count:literal) => {
        Arity::Exactly($count)
    };
}

/// Defines the enum of methods from a row for each: documentation, variant, name, number of
/// sources, parameters, typing.
macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:tt
        [$($parameter:ident: $kind:ident $(($words:ident))?),*] $typing:path;)*) => {
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
                    parameters: &[$((stringify!($parameter), ArgKind::$kind $(($words))?)),*],
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
    Cummax "cummax" 1 [axis: Int] cumulative::same;
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
    /// dtype: the sums over windows of products. The padding, one number for each axis or two,
    /// before and after, is zeros, which are multiplied as other elements.
    Conv2d "conv2d" 2 [groups: Int, stride: Ints, dilation: Ints, padding: Ints] windows::conv;
    /// The transposed convolution of images [n, c, ..] with weights [c, k / groups, ..]: element i
    /// adds its products with the weights j at i * stride + j * dilation - padding before. Zeros
    /// between and around the elements are multiplied as these. The size of an axis is
    /// (size - 1) * stride - padding + dilation * (kernel - 1) + output_padding + 1.
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
    /// True where x is NaN; false for integers and bool. All dtypes.
    IsNan "isnan" 1 [] elementwise::predicate;
    /// True where x is an infinity of either sign; false for integers and bool. All dtypes.
    IsInf "isinf" 1 [] elementwise::predicate;
    /// True where x is neither NaN nor an infinity, so for all integers and bools. All dtypes.
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
    // Movement.
    /// The source without an axis of size 1.
    Squeeze "squeeze" 1 [axis: Int] movement::squeeze;
    /// The source with a new axis of size 1, which is number `axis` of the result.
    Unsqueeze "unsqueeze" 1 [axis: Int] movement::unsqueeze;
    /// Exchanges two axes, which may be the same.
    Transpose "transpose" 1 [axis0: Int, axis1: Int] movement::transpose;
    /// Merges the axes from `start` to `end`, both included, into one, in row-major order. A scalar
    /// has the axes 0 and -1 here, which become one axis of size 1.
    Flatten "flatten" 1 [start: Int, end: Int] movement::flatten;
    /// Splits an axis into axes of these sizes, in row-major order. One of them may be -1: it is
    /// the size of the axis divided by the product of the others, which must not be 0.
    Unflatten "unflatten" 1 [axis: Int, sizes: Ints] movement::unflatten;
    /// Repeats the whole of the source `counts[i]` times along axis i. If there are more counts
    /// than axes, the source gets axes of size 1 before its first.
    Repeat "repeat" 1 [counts: Ints] movement::repeat;
    /// Repeats each element along an axis: the element at `i` is at `i * count` to
    /// `i * count + count - 1` of the result.
    RepeatInterleave "repeat_interleave" 1 [count: Int, axis: Int] movement::repeat_interleave;
    /// Stacks sources of one dtype and shape along a new axis, which is number `axis` of the
    /// result.
    Stack "stack" list [axis: Int] movement::stack;
    /// Part number `part` of the parts of these sizes, whose sum is the size of the axis.
    Split "split" 1 [sizes: Ints, axis: Int, part: Int] movement::split;
    /// Part number `part` of the parts that have the size `ceil(size / count)` along an axis, but
    /// for the last one, which may be smaller; there may be fewer than `count`. An empty axis has
    /// `count` empty parts. `count` is 1 to 65536.
    Chunk "chunk" 1 [count: Int, axis: Int, part: Int] movement::chunk;
    /// Windows of `size` elements that begin at each multiple of `step` and lie within the axis,
    /// whose size becomes their number; the positions in the window are a new last axis.
    Unfold "unfold" 1 [axis: Int, size: Int, step: Int] movement::unfold;
    /// The elements whose index on `axis1` is that on `axis0` plus `offset`, as a new last axis;
    /// both axes are removed.
    Diagonal "diagonal" 1 [offset: Int, axis0: Int, axis1: Int] movement::diagonal;
    /// The square matrix that has a vector on diagonal `offset` and 0 elsewhere; of a matrix, its
    /// diagonal `offset`.
    Diag "diag" 1 [offset: Int] movement::diag;
    /// Keeps the elements of matrices (the last two axes) on and above a diagonal: those whose
    /// column is at least `row + diagonal`. The others are 0.
    Triu "triu" 1 [diagonal: Int] movement::triangle;
    /// Keeps the elements of matrices (the last two axes) on and below a diagonal: those whose
    /// column is at most `row + diagonal`. The others are 0.
    Tril "tril" 1 [diagonal: Int] movement::triangle;
    /// NumPy's basic indexing: axis i of the first axes keeps the indices that Python's
    /// `range(size)[starts[i]:stops[i]:steps[i]]` has. Negative starts and stops count from the
    /// end; both are clipped to the axis; no step is 0.
    Slice "slice" 1 [starts: Ints, stops: Ints, steps: Ints] movement::slice;
    /// Extends each axis by `before` and `after` elements, reflected at its first and last element,
    /// which are not repeated. The counts are less than the size of the axis.
    PadReflect "pad_reflect" 1 [before: Ints, after: Ints] movement::pad_reflect;
    /// Extends each axis by copies of its first and last element. An axis that is extended is not
    /// empty.
    PadReplicate "pad_replicate" 1 [before: Ints, after: Ints] movement::pad_replicate;
    /// Extends each axis periodically: by its last `before` and first `after` elements. The counts
    /// are at most the size of the axis.
    PadCircular "pad_circular" 1 [before: Ints, after: Ints] movement::pad_circular;
    /// Keeps the first `sizes[i]` elements of axis i.
    ShrinkTo "shrink_to" 1 [sizes: Ints] movement::shrink_to;
    /// Adds zeros (false for bool) after the last element of axis i, so that its size is
    /// `sizes[i]`.
    PadTo "pad_to" 1 [sizes: Ints] movement::pad_to;
    /// Moves axis `from[i]` to number `to[i]` of the result; the other axes keep their order.
    Movedim "movedim" 1 [from: Ints, to: Ints] movement::movedim;
    // Creation.
    /// `count` equidistant floats: element `i` is
    /// `((count - 1 - i) * start + i * stop) / (count - 1)`. `start` and `stop` are rounded to the
    /// dtype, in which they and their difference are finite; they are the first and the last
    /// element. The error of the others is at most 4 roundings of `|start|` and the distance from
    /// it together; in the second half, of the larger of that and the same of `stop`. f16 and bf16
    /// are computed in f32 and then rounded. A zero may have either sign.
    Linspace "linspace" 0 [dtype: DType, start: Number, stop: Number, count: Int]
        creation::linspace;
    /// Floats `start + i * step` for i in `0..ceil((stop - start) / step)`, which is computed in
    /// f64; none if that is negative. The error is at most 4 roundings of `|start| + |i * step|`,
    /// and none where the step, the product and the sum are representable; f16 and bf16 are
    /// computed in f32 and then rounded. A zero may have either sign. The step is not 0, and
    /// `|start| + count * |step|` is finite in the dtype.
    ArangeFloat "arange_float" 0 [dtype: DType, start: Number, stop: Number, step: Number]
        creation::arange;
    /// A matrix of ones on the main diagonal, and zeros.
    Eye "eye" 0 [dtype: DType, rows: Int, columns: Int] creation::matrix;
    /// A matrix of ones where the column is at most `row + diagonal`, and zeros.
    Tri "tri" 0 [dtype: DType, rows: Int, columns: Int, diagonal: Int] creation::matrix;
    // Indexing.
    /// 1 (i32) at the position along a new last axis of size `classes` that each integer names, 0
    /// elsewhere: all zeros for an integer that is negative or not below `classes`.
    OneHot "one_hot" 1 [classes: Int] indexing::one_hot;
    /// The elements at the positions along an axis that the second source names, integers of one
    /// axis; 0 where the index is negative or not below the size of the axis.
    IndexSelect "index_select" 2 [axis: Int] indexing::index_select;
    /// The first source after `out[.., index[.., j, ..], ..] = src[.., j, ..]` along an axis for
    /// the index and src, the second and third source. Of several writes to a position the last one
    /// in row-major order stays; an index that is negative or not below the size of the axis writes
    /// nothing. Index and src have one shape, that of the first source but for the axis; dtypes of
    /// the first source and src are equal.
    Scatter "scatter" 3 [axis: Int] indexing::scatter;
    /// As `scatter`, but elements are added to what is there. Integers wrap at their own width; f16
    /// and bf16 are added in f32 and rounded once. Not bool.
    ScatterAdd "scatter_add" 3 [axis: Int] indexing::scatter_add;
    /// As `scatter`, but the largest of the elements and what is there stays; NaN if one is NaN.
    ScatterAmax "scatter_amax" 3 [axis: Int] indexing::scatter;
    // Ordering.
    /// The elements along an axis in ascending or descending order.
    /// Equal elements, such as zeros of both signs, keep their order; NaN is above all numbers and
    /// equal to NaN. Elements are copied bit by bit.
    Sort "sort" 1 [axis: Int, descending: Flag] ordering::sorted;
    /// The positions (i32) along an axis of the elements in the order of `sort`.
    Argsort "argsort" 1 [axis: Int, descending: Flag] ordering::positions;
    /// The first `k` elements in the order of `sort`, descending for the largest.
    Topk "topk" 1 [k: Int, axis: Int, largest: Flag] ordering::first;
    /// The positions (i32) of the elements of `topk`.
    TopkIndices "topk_indices" 1 [k: Int, axis: Int, largest: Flag] ordering::first_positions;
    /// The position (i32) along an axis of its largest element: the first of equal ones, and of the
    /// first NaN if there is one. The axis is not empty.
    Argmax "argmax" 1 [axis: Int, keepdim: Flag] ordering::position;
    /// The position (i32) along an axis of its smallest element, as `argmax`.
    Argmin "argmin" 1 [axis: Int, keepdim: Flag] ordering::position;
    /// The smallest element up to each position along an axis; NaN from the first NaN on.
    Cummin "cummin" 1 [axis: Int] cumulative::same;
    /// True where an element along `axes` is not 0 (true for bool; NaN is not 0); false if there
    /// are none.
    Any "any" 1 [axes: Ints, keepdim: Flag] ordering::truth;
    /// True where all elements along `axes` are not 0 (true for bool; NaN is not 0); true if there
    /// are none.
    All "all" 1 [axes: Ints, keepdim: Flag] ordering::truth;
    /// The number (i32) of elements along `axes` that are not 0; NaN is not 0.
    CountNonzero "count_nonzero" 1 [axes: Ints, keepdim: Flag] ordering::number;
    // Assignment in place. The result is the first source after it; the first source itself, and
    // values that are computed from it, keep their elements.
    /// Replaces the elements by those of the second source, which is broadcast. The dtypes are
    /// equal. No gradient flows through it.
    Assign "assign" 2 [] movement::assign;
    /// Replaces the elements that `slice` keeps by those of the second source, which is broadcast
    /// to the shape of the slice. The dtypes are equal. No gradient flows through it.
    AssignSlice "assign_slice" 2 [starts: Ints, stops: Ints, steps: Ints] movement::assign_slice;
    // Statistics, of floats. f16 and bf16 are computed in f32 and rounded once.
    /// The sum of the elements along `axes` divided by their number; NaN of no elements.
    Mean "mean" 1 [axes: Ints, keepdim: Flag] reduction::float;
    /// The sum of the squares of the differences from the mean along `axes`, divided by the number
    /// of elements less `correction`, or by 0 if that is negative. Differences, squares and sum are
    /// each rounded, or later.
    Var "var" 1 [axes: Ints, keepdim: Flag, correction: Int] reduction::float;
    /// The square root of `var`.
    Std "std" 1 [axes: Ints, keepdim: Flag, correction: Int] reduction::float;
    /// The differences from the mean along `axes`, divided by the square root of `eps` plus the
    /// mean of their squares, or multiplied by its inverse. `eps` takes the dtype that it is
    /// computed in, and is finite and not negative.
    LayerNorm "layernorm" 1 [axes: Ints, eps: Number] reduction::normalized;
    /// The elements along an axis divided by the larger of `(sum of |x|^p)^(1/p)` and `eps`: for
    /// p 2 the root of the sum of squares, for p 1 the sum of magnitudes. `p` and `eps` take the
    /// dtype that it is computed in, as does `1/p`; `p` is finite and positive, `eps` finite and
    /// not negative.
    Normalize "normalize" 1 [p: Number, axis: Int, eps: Number] reduction::of_norm_1;
    /// `log(sum of e^x)` along `axes`, as if elements were counted from the largest, so that no
    /// power overflows: within an ulp and the error of the logarithm of a sum of powers of which
    /// the largest is 1. -inf if there is no larger element, inf if one is inf.
    LogSumExp "logsumexp" 1 [axes: Ints, keepdim: Flag] reduction::float;
    /// `logsumexp` of the elements up to each position along an axis.
    LogCumSumExp "logcumsumexp" 1 [axis: Int] reduction::float_axis;
    /// `e^x` divided by its sum along an axis, as if elements were counted from the largest: within
    /// 4 ulps, the error of the sum, and a rounding of the difference from the largest. NaN along
    /// an axis whose largest element is infinite.
    Softmax "softmax" 1 [axis: Int] reduction::float_axis;
    /// The logarithm of `softmax`: the difference from the largest element, less the logarithm of
    /// the sum of powers.
    LogSoftmax "log_softmax" 1 [axis: Int] reduction::float_axis;
    /// `softmax` of `-x`.
    Softmin "softmin" 1 [axis: Int] reduction::float_axis;
    /// True where `|x - y| <= atol + rtol * |y|` for finite x and y, where infinities are equal,
    /// and where both are NaN if `equal_nan`. Floats, promoted and broadcast; f16 and bf16 are
    /// compared in f32. The numbers take the dtype that it is computed in.
    IsClose "isclose" 2 [rtol: Number, atol: Number, equal_nan: Flag] elementwise::close;
    // Layers.
    /// As `matmul`.
    Dot "dot" 2 [] windows::matmul;
    /// The matrix product of x and a weight [.., k, n], plus a bias, if there is one, which is
    /// broadcast; the product of elements, which are broadcast, for a weight of one axis. Sources
    /// x, weight, bias. Floats, promoted; f16 and bf16 are computed in f32 and rounded once.
    Linear "linear" (2 to 3) [] windows::linear;
    /// As `scatter`, but the position gets the sum, product, mean, largest or smallest of the
    /// elements whose index names it; also of what is there, if `include_self` or if there is no
    /// other. Sums and products are computed as `sum` and `prod` and cast back; means, of floats
    /// alone, are computed in f32 for f16 and bf16. Sums and products not of bool.
    ScatterReduce "scatter_reduce" 3 [axis: Int, reduce: Word(SCATTERED), include_self: Flag]
        indexing::scatter_reduce;
    // Losses, of floats. f16 and bf16 are computed in f32 and rounded once. `reduction` gives the
    // losses of samples, their sum, or their mean. `label_smoothing` is 0 to 1.
    /// The negative sum of the logarithms of the shares (`log_softmax` along the classes, axis 1,
    /// or 0 of a vector) times the weights of the classes: `1 - label_smoothing` for that of the
    /// second source, integers, and `label_smoothing / classes` for each, not if that is 0. A
    /// second source of the shape and dtype of the first has the probabilities of the classes
    /// instead of 1 and 0.
    CrossEntropy "cross_entropy" 2 [label_smoothing: Number, reduction: Word(REDUCTIONS)]
        losses::cross_entropy;
    /// `cross_entropy` of integers along the last axis. Samples of the class `ignore_index`, unless
    /// it is -1, have the loss 0 and do not count in the mean.
    SparseCategoricalCrossEntropy "sparse_categorical_crossentropy" 2
        [ignore_index: Int, label_smoothing: Number, reduction: Word(REDUCTIONS)]
        losses::sparse_categorical;
    /// The negative element of the class along axis 1 times the weight of the class, both 0 for a
    /// class out of range; 0 for `ignore_index`. The mean is the sum divided by that of the weights
    /// of the samples. Sources x, classes, a weight for each class of x's dtype, which is 1 if it
    /// is left out.
    NllLoss "nll_loss" (2 to 3) [ignore_index: Int, reduction: Word(REDUCTIONS)] losses::nll;
    /// `-y * log(x) - (1 - y) * log(1 - x)`: the differences, logarithms and products are each
    /// rounded, or later. Sources x, y. Floats, promoted and broadcast.
    BinaryCrossEntropy "binary_crossentropy" 2 [reduction: Word(REDUCTIONS)] losses::binary;
    /// `max(x, 0) - y * x + log(1 + e^-|x|)`, which is `binary_crossentropy` of `sigmoid(x)`, as
    /// that.
    BinaryCrossEntropyLogits "binary_crossentropy_logits" 2 [reduction: Word(REDUCTIONS)]
        losses::binary;
    // Indices. The sources beyond the named ones are positions, of integers: one for each index
    // that is `source`.
    /// The elements at indices of the first source; the axes after the last index are whole. The
    /// positions are broadcast, and count from the end if they are negative; where one is outside
    /// its axis, the element is 0. Their shape takes the place of their axes, or comes first if
    /// other axes, new ones included, are between these.
    Get "get" list [at: Indices] index::get;
    /// The first source after the elements at indices are replaced by those of the second one,
    /// which is broadcast to the shape of `get`. The last one in row-major order stays where an
    /// element is replaced several times; positions outside their axis are ignored. In place, as
    /// `assign`.
    Set "set" list [at: Indices] index::set;
    // Contractions, grids and sizes.
    /// The sums of the products of elements of all sources: `labels`, from 0 to 25, are those of
    /// the axes of all sources, one source after the other, `output` those of the result. An
    /// element of the result is the sum over the labels that are not in `output`. A label that a
    /// source has twice takes its diagonal. In the promoted dtype, in which the products are
    /// computed from the first source on; sums as `sum`, cast back. Not of bool.
    Einsum "einsum" list [labels: Ints, output: Ints] contraction::einsum;
    /// The attention of queries [.., l, d] to keys [.., s, d] and values [.., s, e]: the products
    /// [.., l, e] of `softmax` of the scores, along the keys, and values. The scores are the
    /// products of queries and keys divided by the square root of d, or multiplied by its inverse,
    /// which is rounded; plus a fourth source of floats, or -inf where a fourth source of bool is
    /// false, and where the number of the key is above that of the query if `is_causal`. Floats,
    /// promoted without the fourth source; computed in f64 if a source is, else in f32, and
    /// rounded once.
    ScaledDotProductAttention "scaled_dot_product_attention" list [is_causal: Flag]
        contraction::attention;
    /// The source with new `sizes` of its last axes. Element i of an axis of n elements that gets
    /// m is, with `nearest`, element `floor(i * n / m)`, with `nearest_exact`
    /// `floor((i + 1/2) * n / m)`. With `linear`, of floats, the last axis first, it is
    /// `x + (y - x) * w` of the elements at the floor and the ceiling of its position, the fraction
    /// of which is w, within 2 ulps: the position is `i * (n - 1) / (m - 1)` with `align_corners`,
    /// or 0 if m is 1, else `(i + 1/2) * n / m - 1/2` within the axis. f16 and bf16 are computed in
    /// f32 and rounded once. The other modes take all dtypes, and no `align_corners`. No size is 0.
    Interpolate "interpolate" 1
        [sizes: Ints, mode: Word(INTERPOLATIONS), align_corners: Flag]
        interpolation::interpolate;
    /// Number `part` of the grids of vectors: the sources, repeated along the axes of the others,
    /// one axis for each source in their order; with `xy`, the first two axes are exchanged.
    /// A scalar counts as a vector of one element.
    Meshgrid "meshgrid" list [indexing: Word(INDEXINGS), part: Int] movement::meshgrid;
    /// The elements of the first source, in row-major order, where the second one, a mask of bool,
    /// is true, both broadcast: the first `size` of them, and zeros if there are fewer.
    MaskedSelectSized "masked_select_sized" 2 [size: Int] indexing::masked_select;
    /// The indices [size, rank], i32, of the elements that are not 0, in row-major order: the first
    /// `size` of them, and rows of `fill` if there are fewer. NaN is not 0.
    NonzeroSized "nonzero_sized" 1 [size: Int, fill: Int] indexing::nonzero;
    /// The positions (i32), within the last axes in row-major order, of the elements of
    /// `max_pool2d`: the first of equal ones in a window, and the first NaN if there is one; -1 for
    /// a window without an element.
    MaxPool2dIndices "max_pool2d_indices" 1
        [kernel: Ints, stride: Ints, dilation: Ints, padding: Ints, ceil_mode: Flag]
        windows::pool_positions;
    /// Zeros of the `sizes` of the last axes after the elements of the first source are written at
    /// the positions, within these axes in row-major order, that the second source names: the last
    /// of several stays, positions outside are ignored.
    MaxUnpool2d "max_unpool2d" 2 [sizes: Ints] windows::unpool;
    /// The source with each axis split into `parts` of it, whose sizes are the next of `sizes`;
    /// these permuted by `order`, and each next `groups` of them merged into an axis. An axis of
    /// size 1 has no parts, too; a group of none is an axis of size 1.
    Rearrange "rearrange" 1 [sizes: Ints, parts: Ints, order: Ints, groups: Ints]
        movement::rearrange;
    // Matrices, the last two axes. Of floats; f16 and bf16 are computed in f32 and rounded once.
    /// `steps` times `a * x + b * (x xT) x + c * (x xT)^2 x`, which brings singular values near 1,
    /// from the matrix divided by the root of the sum of its squares plus `eps`. A matrix with more
    /// rows than columns is transposed before it and after it. At most 64 steps. The sums of
    /// products, the other products and sums, the root and the quotient are each rounded, or later.
    /// The numbers take the dtype that it is computed in, and are finite; `eps` is not negative.
    NewtonSchulz "newton_schulz" 1 [steps: Int, a: Number, b: Number, c: Number, eps: Number]
        matrices::newton_schulz;
    /// The orthogonal [m, m] factor q of a matrix [m, n], which is `q r`: the product of the
    /// reflections of each of the first `min(m, n)` columns, below those before it, to a multiple
    /// of the unit vector whose sign is opposite to that of its first element (a zero counts as
    /// positive); a column of zeros is not reflected. The lengths and quotients, and the
    /// differences and products of each reflection are each rounded, or later. NaN for a matrix
    /// with an element that is not finite.
    QrQ "qr_q" 1 [] matrices::qr_q;
    /// The upper triangular [m, n] factor r of `qr_q`: 0 below the diagonal.
    QrR "qr_r" 1 [] matrices::qr_r;
    /// The singular values of a matrix [m, n], min(m, n) of them, the largest first. NaN for a
    /// matrix with an element that is not finite. The error is relative to the length of the
    /// matrix: 8 (m + n) roundings.
    SvdS "svd_s" 1 [] matrices::svd_s;
    /// The product of the factors of a matrix [m, n]: the first min(m, n) columns of u, each times
    /// its singular value, and the first min(m, n) rows of vt. It is the matrix, within the error
    /// of `svd_s`. u is [m, m] and vt [n, n] if `full_matrices`, else they have min(m, n) columns
    /// and rows.
    SvdProduct "svd_product" 1 [full_matrices: Flag] matrices::svd_product;
    /// The products of the columns of u with each other: ones on the diagonal and zeros beside it,
    /// within 8 (m + n) roundings. NaN for a matrix with an element that is not finite.
    SvdU "svd_u" 1 [full_matrices: Flag] matrices::svd_u;
    /// The products of the rows of vt with each other, as `svd_u`.
    SvdVt "svd_vt" 1 [full_matrices: Flag] matrices::svd_vt;
    // Hashing.
    /// The digests of the bytes of the elements along the last axis, little endian: 28, 32 or 16
    /// elements of u8 in its place. All dtypes; a bool is a byte that is 0 or 1. At most 65,536
    /// bytes along the axis.
    Keccak "keccak" 1 [function: Word(KECCAK)] matrices::keccak;
}

impl Method {
    /// Returns the method of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.row().name == name)
    }

    /// Returns whether the method changes its first source, which keeps its elements in programs.
    pub fn is_in_place(self) -> bool {
        matches!(self, Method::Assign | Method::AssignSlice | Method::Set)
    }

    /// Returns the type of the result from those of the sources.
    ///
    /// # Errors
    /// Sources or arguments that the method does not take.
    pub(crate) fn typing(self, srcs: &[&TensorType], args: &[Arg]) -> Result<TensorType, String> {
        let row = self.row();
        if !row.arity.takes(srcs.len()) {
            return Err(format!(
                "{} of {} sources: it takes {:?}",
                row.name,
                srcs.len(),
                row.arity
            ));
        }
        let mut kinds = row.parameters.iter().zip(args);
        let fits = kinds.all(|((_, kind), arg)| kind.takes(arg));
        if !fits || row.parameters.len() != args.len() {
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

/// Returns a number of axes or elements as a size.
///
/// # Errors
/// It is negative.
pub(crate) fn size(number: i64) -> Result<usize, String> {
    usize::try_from(number).map_err(|_| format!("{number} must not be negative"))
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
            assert_eq!(Method::from_name(method.row().name), Some(method));
        }
        let error = crate::parse("a = unknown\noutput a\n").unwrap_err().message;
        let list = error.split(['(', ')']).nth(1).expect("the message lists the operations");
        let mut words: Vec<&str> = list.split(' ').collect();
        words.sort_unstable();
        assert!(words.windows(2).all(|pair| pair[0] != pair[1]), "{list}");
        assert!(Method::ALL.iter().all(|method| words.contains(&method.row().name)), "{list}");
    }

    #[test]
    fn negative_axes_count_from_the_last() {
        assert_eq!(axis(-1, 3), Ok(2));
        assert_eq!(axis(-3, 3), Ok(0));
        assert!(axis(-4, 3).is_err() && axis(3, 3).is_err() && axis(0, 0).is_err());
        assert!(axes(&[0, -2], 2).is_err());
    }
}
