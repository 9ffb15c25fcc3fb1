//! The op table: the vocabulary of all levels, from tensors to linear uops.
//!
//! The meaning of each op is defined here, as a formula over scalars or indices; "undefined" means
//! that the result may be any value (never a trap), which matters only if it is used.

/// An op. The order is that of the table and breaks ties in canonical forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Data in memory, shape [size]; arg: the buffer.
    Buffer,
    /// The constant of the arg, shape [].
    Const,
    /// 0, 1, 2, ... wrapped to the dtype, shape [arg].
    Iota,
    /// The same elements in row-major order, in the shape of the arg.
    Reshape,
    /// Axis i of the result is axis arg[i] of the source.
    Permute,
    /// Axes of size 1 repeated up to the sizes of the arg.
    Expand,
    /// Zeros before and after each axis, counts in the arg.
    Pad,
    /// The half-open range of each axis, in the arg.
    Shrink,
    /// The axes of the arg reversed.
    Flip,
    /// Element i is element t(i) of the source, 0 where t masks it; t: the arg.
    View,
    /// The source, in a row-major buffer of its own.
    Contiguous,
    /// The source, detached from gradients.
    Detach,
    /// The axes of the arg reduced to size 1 by the op of the arg.
    ReduceAxis,
    /// The value converted to the dtype; undefined if a float is outside an integer's range.
    Cast,
    /// The same bits as another dtype of the same size.
    Bitcast,
    /// `-x, wrapping`.
    Neg,
    /// 2^x.
    Exp2,
    /// Log2(x).
    Log2,
    /// Sin(x).
    Sin,
    /// The square root of x.
    Sqrt,
    /// 1/x.
    Recip,
    /// `x+y, wrapping`.
    Add,
    /// `x-y, wrapping`.
    Sub,
    /// `x*y, wrapping`.
    Mul,
    /// `x/y of floats`.
    FDiv,
    /// `x/y truncated toward zero; undefined for y = 0; wraps`.
    CDiv,
    /// `x - y*cdiv(x,y); undefined for y = 0`.
    CMod,
    /// `x/y rounded down; undefined for y = 0; wraps`.
    FloorDiv,
    /// `x - y*floordiv(x,y); undefined for y = 0`.
    FloorMod,
    /// The larger one; NaN if either is.
    Max,
    /// The smaller one; NaN if either is.
    Min,
    /// `x^y of floats, as C's pow`.
    Pow,
    /// `x<y as bool; false if either is NaN`.
    CmpLt,
    /// `x!=y as bool; true if either is NaN; of bools: exclusive or`.
    CmpNe,
    /// Bitwise and.
    And,
    /// Bitwise or.
    Or,
    /// Bitwise exclusive or.
    Xor,
    /// `x*2^y, wrapping; undefined unless 0 <= y < bits`.
    Shl,
    /// `x/2^y rounded down; undefined unless 0 <= y < bits`.
    Shr,
    /// Threefry-2x32 of 20 rounds over u64: counter x, key y; word 0 is the low half of each.
    Threefry,
    /// Y if x else z; x is bool.
    Where,
    /// `x*y+z, the product rounded or not`.
    MulAcc,
    /// All sources have taken effect.
    Sink,
    /// The address of parameter arg.slot, elements of the dtype.
    DefineGlobal,
    /// An integer parameter within the bounds of the arg.
    DefineVar,
    /// A loop counter from 0 to the source (excluded); arg: the axis.
    Range,
    /// The end of the loop of the source.
    EndRange,
    /// Source 0 reduced over the ranges that follow, by the op of the arg.
    Reduce,
    /// The address of element y of x; source 2: the gate of accesses.
    Index,
    /// Tree: source 0 a global, arg a tracker; lowered: source 0 an index, 0 if its gate is false;
    /// runs after source 1. Its arg, if any: the distance in elements of a prefetch.
    Load,
    /// Tree: (global, value), arg a tracker; lowered: (index, value), nothing if the gate is false.
    Store,
    /// An accumulator that starts as source 0; the ranges around it follow.
    DefineAcc,
    /// Assigns source 1 to the accumulator of source 0.
    Assign,
    /// The address of an array of the dtype that the threads of a group share; arg: which.
    DefineLocal,
    /// Waits until all threads of the group are here; their stores are then visible to all.
    Barrier,
    /// Source i is lane i; a single source is every lane.
    Vectorize,
    /// The lane of the arg of a vector.
    Lane,
    /// A product of small matrices, which the threads of a warp hold as the arg says; products are
    /// exact, sums in f32 in any order. Lowered: sources are this thread's elements of A and of B,
    /// the number of an element of C and the range of the warp; the value is that element of A*B.
    /// Linear: sources are the vectors A, B and C and the range; the value is the vector A*B + C.
    Wmma,
}

/// The class of an op.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// No sources.
    Leaf,
    /// Moves elements without computing.
    Movement,
    /// Marks its source without changing it.
    Marker,
    /// Elementwise, one source.
    Unary,
    /// Elementwise, two sources.
    Binary,
    /// Elementwise, three sources.
    Ternary,
    /// Reduces many elements to one.
    Reduce,
    /// Memory, parameters and accumulators of a kernel.
    Kernel,
    /// Order and loops.
    Control,
}

/// A row of the op table.
#[derive(Debug)]
pub struct OpRow {
    /// The op.
    pub op: Op,
    /// Its name in text.
    pub name: &'static str,
    /// Its class.
    pub class: Class,
    /// Least and greatest number of sources.
    pub arity: (usize, usize),
    /// The formula of its value.
    pub meaning: &'static str,
}

const fn row(
    op: Op,
    name: &'static str,
    class: Class,
    arity: (usize, usize),
    meaning: &'static str,
) -> OpRow {
    OpRow { op, name, class, arity, meaning }
}

/// Any number of sources.
const MANY: usize = usize::MAX;

/// The table, in the order of [`Op`].
#[rustfmt::skip]
pub const OPS: [OpRow; 58] = [
    row(Op::Buffer, "buffer", Class::Leaf, (0, 0),
        "data in memory, shape [size]; arg: the buffer"),
    row(Op::Const, "const", Class::Leaf, (0, 0),
        "the constant of the arg, shape []"),
    row(Op::Iota, "iota", Class::Leaf, (0, 0),
        "0, 1, 2, ... wrapped to the dtype, shape [arg]"),
    row(Op::Reshape, "reshape", Class::Movement, (1, 1),
        "the same elements in row-major order, in the shape of the arg"),
    row(Op::Permute, "permute", Class::Movement, (1, 1),
        "axis i of the result is axis arg[i] of the source"),
    row(Op::Expand, "expand", Class::Movement, (1, 1),
        "axes of size 1 repeated up to the sizes of the arg"),
    row(Op::Pad, "pad", Class::Movement, (1, 1),
        "zeros before and after each axis, counts in the arg"),
    row(Op::Shrink, "shrink", Class::Movement, (1, 1),
        "the half-open range of each axis, in the arg"),
    row(Op::Flip, "flip", Class::Movement, (1, 1),
        "the axes of the arg reversed"),
    row(Op::View, "view", Class::Movement, (1, 1),
        "element i is element t(i) of the source, 0 where t masks it; t: the arg"),
    row(Op::Contiguous, "contiguous", Class::Marker, (1, 1),
        "the source, in a row-major buffer of its own"),
    row(Op::Detach, "detach", Class::Marker, (1, 1),
        "the source, detached from gradients"),
    row(Op::ReduceAxis, "reduce_axis", Class::Reduce, (1, 1),
        "the axes of the arg reduced to size 1 by the op of the arg"),
    row(Op::Cast, "cast", Class::Unary, (1, 1),
        "the value converted to the dtype; undefined if a float is outside an integer's range"),
    row(Op::Bitcast, "bitcast", Class::Unary, (1, 1),
        "the same bits as another dtype of the same size"),
    row(Op::Neg, "neg", Class::Unary, (1, 1),
        "-x, wrapping"),
    row(Op::Exp2, "exp2", Class::Unary, (1, 1),
        "2^x"),
    row(Op::Log2, "log2", Class::Unary, (1, 1),
        "log2(x)"),
    row(Op::Sin, "sin", Class::Unary, (1, 1),
        "sin(x)"),
    row(Op::Sqrt, "sqrt", Class::Unary, (1, 1),
        "the square root of x"),
    row(Op::Recip, "recip", Class::Unary, (1, 1),
        "1/x"),
    row(Op::Add, "add", Class::Binary, (2, 2),
        "x+y, wrapping"),
    row(Op::Sub, "sub", Class::Binary, (2, 2),
        "x-y, wrapping"),
    row(Op::Mul, "mul", Class::Binary, (2, 2),
        "x*y, wrapping"),
    row(Op::FDiv, "fdiv", Class::Binary, (2, 2),
        "x/y of floats"),
    row(Op::CDiv, "cdiv", Class::Binary, (2, 2),
        "x/y truncated toward zero; undefined for y = 0; wraps"),
    row(Op::CMod, "cmod", Class::Binary, (2, 2),
        "x - y*cdiv(x,y); undefined for y = 0"),
    row(Op::FloorDiv, "floordiv", Class::Binary, (2, 2),
        "x/y rounded down; undefined for y = 0; wraps"),
    row(Op::FloorMod, "floormod", Class::Binary, (2, 2),
        "x - y*floordiv(x,y); undefined for y = 0"),
    row(Op::Max, "max", Class::Binary, (2, 2),
        "the larger one; NaN if either is"),
    row(Op::Min, "min", Class::Binary, (2, 2),
        "the smaller one; NaN if either is"),
    row(Op::Pow, "pow", Class::Binary, (2, 2),
        "x^y of floats, as C's pow"),
    row(Op::CmpLt, "cmplt", Class::Binary, (2, 2),
        "x<y as bool; false if either is NaN"),
    row(Op::CmpNe, "cmpne", Class::Binary, (2, 2),
        "x!=y as bool; true if either is NaN; of bools: exclusive or"),
    row(Op::And, "and", Class::Binary, (2, 2),
        "bitwise and"),
    row(Op::Or, "or", Class::Binary, (2, 2),
        "bitwise or"),
    row(Op::Xor, "xor", Class::Binary, (2, 2),
        "bitwise exclusive or"),
    row(Op::Shl, "shl", Class::Binary, (2, 2),
        "x*2^y, wrapping; undefined unless 0 <= y < bits"),
    row(Op::Shr, "shr", Class::Binary, (2, 2),
        "x/2^y rounded down; undefined unless 0 <= y < bits"),
    row(Op::Threefry, "threefry", Class::Binary, (2, 2),
        "Threefry-2x32 of 20 rounds over u64: counter x, key y; word 0 is the low half of each"),
    row(Op::Where, "where", Class::Ternary, (3, 3),
        "y if x else z; x is bool"),
    row(Op::MulAcc, "mulacc", Class::Ternary, (3, 3),
        "x*y+z, the product rounded or not"),
    row(Op::Sink, "sink", Class::Control, (0, MANY),
        "all sources have taken effect"),
    row(Op::DefineGlobal, "define_global", Class::Kernel, (0, 0),
        "the address of parameter arg.slot, elements of the dtype"),
    row(Op::DefineVar, "define_var", Class::Kernel, (0, 0),
        "an integer parameter within the bounds of the arg"),
    row(Op::Range, "range", Class::Control, (1, 1),
        "a loop counter from 0 to the source (excluded); arg: the axis"),
    row(Op::EndRange, "endrange", Class::Control, (1, 1),
        "the end of the loop of the source"),
    row(Op::Reduce, "reduce", Class::Reduce, (1, MANY),
        "source 0 reduced over the ranges that follow, by the op of the arg"),
    row(Op::Index, "index", Class::Kernel, (2, 3),
        "the address of element y of x; source 2: the gate of accesses"),
    row(Op::Load, "load", Class::Kernel, (1, 2),
        "tree: source 0 a global, arg a tracker; lowered: source 0 an index, 0 if its gate is \
         false; runs after source 1 (a barrier, a store, a reduction that stores); arg: the \
         distance in elements of a prefetch"),
    row(Op::Store, "store", Class::Kernel, (2, 2),
        "tree: (global, value), arg a tracker; lowered: (index, value), nothing if the gate is false"),
    row(Op::DefineAcc, "define_acc", Class::Kernel, (1, MANY),
        "an accumulator that starts as source 0; the ranges around it follow"),
    row(Op::Assign, "assign", Class::Kernel, (2, 2),
        "assigns source 1 to the accumulator of source 0"),
    row(Op::DefineLocal, "define_local", Class::Kernel, (0, 0),
        "the address of an array of the dtype that the threads of a group share; arg: which"),
    row(Op::Barrier, "barrier", Class::Control, (0, MANY),
        "waits until all threads of the group are here; their stores are then visible to all"),
    row(Op::Vectorize, "vectorize", Class::Kernel, (1, MANY),
        "source i is lane i; a single source is every lane"),
    row(Op::Lane, "lane", Class::Kernel, (1, 1),
        "the lane of the arg of a vector"),
    row(Op::Wmma, "wmma", Class::Kernel, (4, MANY),
        "lowered: (elements of A, elements of B, which element, range of the warp), that element of A*B held by this thread as the arg says; linear: (vector A, vector B, vector C, range), the vector A*B + C; products exact, sums in f32 in any order"),
];

impl Op {
    /// Returns the op's row.
    pub fn row(self) -> &'static OpRow {
        &OPS[self as usize]
    }

    /// Returns the op's name in text.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the op's class.
    pub fn class(self) -> Class {
        self.row().class
    }

    /// Returns the op of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Op> {
        OPS.iter().find(|row| row.name == name).map(|row| row.op)
    }

    /// Returns whether the op computes each element from the same element of its sources.
    pub fn is_elementwise(self) -> bool {
        matches!(self.class(), Class::Unary | Class::Binary | Class::Ternary)
    }

    /// Returns whether the op moves elements without computing.
    pub fn is_movement(self) -> bool {
        self.class() == Class::Movement
    }

    /// Returns whether `op(x, y) = op(y, x)`, bit by bit except for the payload of a NaN.
    pub fn is_commutative(self) -> bool {
        matches!(
            self,
            Op::Add | Op::Mul | Op::Max | Op::Min | Op::CmpNe | Op::And | Op::Or | Op::Xor
        )
    }

    /// Returns whether the result is bool for all types of sources.
    pub fn is_comparison(self) -> bool {
        matches!(self, Op::CmpLt | Op::CmpNe)
    }

    /// Returns whether `op(0, 0, ...)` is undefined or not +0, so that the op cannot be moved
    /// across a pad even if all its sources are padded.
    pub fn is_unsafe_under_pad(self) -> bool {
        matches!(
            self,
            Op::Neg // -0.0
                | Op::Recip
                | Op::Log2
                | Op::Exp2
                | Op::Pow
                | Op::FDiv
                | Op::CDiv
                | Op::CMod
                | Op::FloorDiv
                | Op::FloorMod
                | Op::Threefry
        )
    }
}

impl std::fmt::Display for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_in_the_order_of_the_ops() {
        for (position, row) in OPS.iter().enumerate() {
            assert_eq!(row.op as usize, position, "{}", row.name);
            assert_eq!(Op::from_name(row.name), Some(row.op));
        }
    }
}
