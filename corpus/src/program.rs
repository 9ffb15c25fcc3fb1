//! A tensor program as plain data: a list of single assignments, and the outputs.
//!
//! Computes nothing. `typing` defines which programs are well formed; ARCHITECTURE.md, "Meanings
//! that are fixed", defines their semantics, which the oracle and the engine implement
//! independently.

use crate::{Arg, DType, Method};

/// Sizes of the axes, outermost first; `[]` is a scalar, a 0 makes the tensor empty.
pub type Shape = Vec<usize>;

/// A program in single-assignment form. Statement number `i` defines `ValueId(i)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// The statements in order; each uses only values of earlier ones.
    pub statements: Vec<Statement>,
    /// The outputs, in order; a value may appear more than once.
    pub outputs: Vec<ValueId>,
}

/// The value that the statement with this number defines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ValueId(pub u32);

/// A source of an elementwise statement: a value, or a scalar literal that takes the dtype of
/// the other sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand {
    /// An earlier value.
    Value(ValueId),
    /// A scalar constant. At least one operand of a statement is a value.
    Literal(Literal),
}

/// A literal, which must be representable in the dtype that it takes. An `Int` is representable in
/// an integer dtype whose range contains it, and in every float dtype; a `Float` in every float
/// dtype; a `Bool` in bool. In a float dtype the number is rounded to nearest even. Floats are
/// compared by their bits, so a NaN equals itself and 0.0 differs from -0.0.
#[derive(Clone, Copy, Debug)]
pub enum Literal {
    /// `true` or `false`.
    Bool(bool),
    /// An integer from -2^63 to 2^64-1.
    Int(i128),
    /// A real number, `nan`, `inf`, `-inf` or `-0.0`.
    Float(f64),
}

impl PartialEq for Literal {
    fn eq(&self, other: &Literal) -> bool {
        match (self, other) {
            (Literal::Bool(a), Literal::Bool(b)) => a == b,
            (Literal::Int(a), Literal::Int(b)) => a == b,
            (Literal::Float(a), Literal::Float(b)) => a.to_bits() == b.to_bits(),
            _ => false,
        }
    }
}

/// The data of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Fill {
    /// 0, 1, 2, ... in row-major order, wrapped (integers), rounded (floats) or `i % 2` (bool).
    Iota,
    /// Random data; the same seed always gives the same data.
    Seeded {
        /// Start of the random sequence.
        seed: u64,
        /// Distribution of the numbers.
        distribution: Distribution,
    },
    /// The elements' bit patterns, row-major, zero-extended to 64 bits.
    Explicit(Vec<u64>),
}

/// The distribution of seeded data. For bool, false and true are equally likely in all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Distribution {
    /// Integers from -4 to 4 (unsigned: 0 to 8).
    Small,
    /// Integers from 1 to 4, safe as divisors.
    Positive,
    /// Floats: multiples of 1/8 from -4 to 4. Integers: as `Small`.
    Dyadic,
    /// Floats: uniform in (-1, 1). Integers: -100 to 100 (unsigned: 0 to 200).
    Unit,
    /// Floats: either sign, magnitudes 2^-12 to 2^12, full mantissa. Integers: the whole range.
    Wide,
    /// Floats: nan, inf, -inf, -0.0, 0.0, smallest subnormals, largest finite values, 1, -1.
    /// Integers: smallest, largest, 0, 1, -1 and neighbours.
    Special,
}

impl Distribution {
    /// All distributions.
    pub const ALL: [Distribution; 6] = [
        Distribution::Small,
        Distribution::Positive,
        Distribution::Dyadic,
        Distribution::Unit,
        Distribution::Wide,
        Distribution::Special,
    ];

    /// Returns the keyword in the text form.
    pub fn name(self) -> &'static str {
        match self {
            Distribution::Small => "small",
            Distribution::Positive => "positive",
            Distribution::Dyadic => "dyadic",
            Distribution::Unit => "unit",
            Distribution::Wide => "wide",
            Distribution::Special => "special",
        }
    }
}

/// The right side of an assignment.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// An input.
    Input {
        /// Element type.
        dtype: DType,
        /// Sizes of the axes.
        shape: Shape,
        /// The data.
        fill: Fill,
    },
    /// A tensor with all elements equal to `value`.
    Const {
        /// Element type.
        dtype: DType,
        /// Sizes of the axes.
        shape: Shape,
        /// The element.
        value: Literal,
    },
    /// `start + i * step` for i in 0..count, a tensor of rank 1. Integer dtypes only; values wrap.
    Arange {
        /// Element type.
        dtype: DType,
        /// Element 0.
        start: i64,
        /// Difference of successive elements.
        step: i64,
        /// Number of elements.
        count: usize,
    },
    /// An elementwise function of one source.
    Unary {
        /// The function.
        op: UnaryOp,
        /// Its source.
        src: ValueId,
    },
    /// An elementwise function of two sources, broadcast and promoted.
    Binary {
        /// The function.
        op: BinaryOp,
        /// Its sources.
        srcs: [Operand; 2],
    },
    /// `srcs[0] ? srcs[1] : srcs[2]`; the condition is bool, the two values are promoted.
    Where {
        /// Condition, value where true, value where false.
        srcs: [Operand; 3],
    },
    /// `srcs[0] * srcs[1] + srcs[2]`, promoted; a float product may be rounded before the sum.
    MulAcc {
        /// Factor, factor, summand.
        srcs: [Operand; 3],
    },
    /// Conversion to another dtype.
    Cast {
        /// Source.
        src: ValueId,
        /// The new element type.
        dtype: DType,
    },
    /// Reinterpretation of the bits; both dtypes have the same size, neither is bool.
    Bitcast {
        /// Source.
        src: ValueId,
        /// The new element type.
        dtype: DType,
    },
    /// Reduces axes to size 1; the rank stays.
    Reduce {
        /// The function that combines two elements.
        op: ReduceOp,
        /// Source.
        src: ValueId,
        /// The axes, ascending, without repeats; may be empty.
        axes: Vec<usize>,
    },
    /// The same elements in row-major order with another shape.
    Reshape {
        /// Source.
        src: ValueId,
        /// New sizes, with the same product.
        shape: Shape,
    },
    /// Axis `i` of the result is axis `axes[i]` of the source.
    Permute {
        /// Source.
        src: ValueId,
        /// A permutation of the axes.
        axes: Vec<usize>,
    },
    /// Repeats axes of size 1; the rank stays.
    Expand {
        /// Source.
        src: ValueId,
        /// New sizes.
        shape: Shape,
    },
    /// Adds elements equal to `value` before and after each axis.
    Pad {
        /// Source.
        src: ValueId,
        /// Number of elements before and after, for each axis.
        pads: Vec<(usize, usize)>,
        /// The added element; takes the dtype of the source.
        value: Literal,
    },
    /// Keeps a half-open range of each axis.
    Shrink {
        /// Source.
        src: ValueId,
        /// Start (inclusive) and end (exclusive) for each axis; a range may be empty.
        ranges: Vec<(usize, usize)>,
    },
    /// Reverses axes.
    Flip {
        /// Source.
        src: ValueId,
        /// The axes, ascending, without repeats.
        axes: Vec<usize>,
    },
    /// Concatenates tensors along an axis; all other axes and the dtypes are equal.
    Cat {
        /// One or more sources.
        srcs: Vec<ValueId>,
        /// The axis whose sizes add up.
        axis: usize,
    },
    /// `out[.., i, ..] = src[.., index[.., i, ..], ..]` along `axis`. Elements are copied bit by
    /// bit; where the index is negative or not below the size of the axis, the result is 0.
    Gather {
        /// Source.
        src: ValueId,
        /// The axis that is indexed.
        axis: usize,
        /// An integer tensor of the source's rank; all its sizes but that of `axis` are the
        /// source's.
        index: ValueId,
    },
    /// A method of tensors that is composed of other operations. Its row of the table tells what it
    /// takes and what it means.
    Method {
        /// The row.
        method: Method,
        /// Sources, as many as the row says.
        srcs: Vec<ValueId>,
        /// Arguments, of the kinds that the row says.
        args: Vec<Arg>,
    },
    /// The same value; requests a contiguous buffer for it.
    Contiguous {
        /// Source.
        src: ValueId,
    },
    /// The same value; computed before the next statement.
    Realize {
        /// Source.
        src: ValueId,
    },
    /// The same value; no gradient flows through it.
    Detach {
        /// Source.
        src: ValueId,
    },
    /// The derivatives of the sum of the elements of `of` with respect to each element of `wrt`, in
    /// dtype and shape of `wrt`; both are floats. Zeros where `of` does not depend on `wrt`. Values
    /// are distinct even if they are computed alike.
    Gradient {
        /// The value whose derivatives are taken.
        of: ValueId,
        /// The value that they are taken with respect to.
        wrt: ValueId,
    },
}

/// Defines an enum of ops from a row for each op: its documentation, its name, and its keyword in
/// the text form.
macro_rules! ops {
    ($(#[$doc:meta])* $name:ident { $($(#[$row:meta])* $op:ident $keyword:literal;)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$row])* $op,)*
        }

        impl $name {
            /// All ops.
            pub const ALL: [$name; [$($keyword),*].len()] = [$($name::$op),*];

            /// Returns the keyword in the text form.
            pub fn name(self) -> &'static str {
                match self {
                    $($name::$op => $keyword,)*
                }
            }
        }
    };
}

ops! {
    /// Elementwise functions of one source. `Not` takes bool (logical) and integers (bitwise),
    /// `Neg` integers and floats, all others floats only.
    UnaryOp {
        /// `-x`, wrapping.
        Neg "neg";
        /// `2^x`.
        Exp2 "exp2";
        /// `log2(x)`; NaN below zero, -inf at zero.
        Log2 "log2";
        /// `sin(x)`, x in radians.
        Sin "sin";
        /// Square root; NaN below zero.
        Sqrt "sqrt";
        /// `1 / x`.
        Recip "recip";
        /// Bitwise complement of an integer, logical complement of a bool.
        Not "not";
    }
}

ops! {
    /// Elementwise functions of two sources. Integers wrap.
    ///
    /// Dtypes after promotion: `Add Sub Mul` integers and floats; `Div Pow` floats only;
    /// `CDiv CMod FloorDiv FloorMod Shl Shr` integers only; `Max Min CmpLt CmpNe CmpEq` all;
    /// `And Or Xor` bool and integers; `Threefry` u64 only. Comparisons give bool.
    BinaryOp {
        /// `x + y`.
        Add "add";
        /// `x - y`.
        Sub "sub";
        /// `x * y`.
        Mul "mul";
        /// `x / y`.
        Div "div";
        /// Quotient truncated toward zero; undefined for y = 0.
        CDiv "cdiv";
        /// Remainder of `CDiv`, with the sign of x; undefined for y = 0.
        CMod "cmod";
        /// Quotient rounded down; undefined for y = 0.
        FloorDiv "floordiv";
        /// Remainder of `FloorDiv`, with the sign of y; undefined for y = 0.
        FloorMod "floormod";
        /// Maximum; NaN if either source is NaN.
        Max "max";
        /// Minimum; NaN if either source is NaN.
        Min "min";
        /// `x^y` with the special cases of C's pow.
        Pow "pow";
        /// `x < y`.
        CmpLt "cmplt";
        /// `x != y`; true if either is NaN.
        CmpNe "cmpne";
        /// `x == y`.
        CmpEq "cmpeq";
        /// Bitwise and of integers, logical and of bools.
        And "and";
        /// Bitwise or of integers, logical or of bools.
        Or "or";
        /// Bitwise exclusive or of integers, logical exclusive or of bools.
        Xor "xor";
        /// `x << y`; undefined unless 0 <= y < bits.
        Shl "shl";
        /// `x >> y`, arithmetic for signed; undefined unless 0 <= y < bits.
        Shr "shr";
        /// Threefry-2x32 with 20 rounds, counter x and key y. Word 0 of counter, key and result is
        /// the low 32 bits, word 1 the high ones.
        Threefry "threefry";
    }
}

impl BinaryOp {
    /// Returns whether the op is a comparison, whose result is bool.
    pub fn is_comparison(self) -> bool {
        matches!(self, BinaryOp::CmpLt | BinaryOp::CmpNe | BinaryOp::CmpEq)
    }
}

ops! {
    /// The function with which a reduction combines two elements. In the text form, `max` with a
    /// list of axes is a reduction.
    ///
    /// `Sum` and `Prod` of bool, i8 and i16 give i32, and those of u8 and u16 give u32. Those of
    /// f16 and bf16 are accumulated in f32 and then rounded to the source's dtype. In all other
    /// dtypes, and for `Max` in every dtype, the result has the source's dtype. A reduction without
    /// elements gives 0 for `Sum`, 1 for `Prod`, and for `Max` the dtype's smallest value: false,
    /// the most negative integer or -inf.
    ReduceOp {
        /// Addition.
        Sum "sum";
        /// Multiplication.
        Prod "prod";
        /// Maximum; NaN if any element is NaN.
        Max "max";
    }
}
