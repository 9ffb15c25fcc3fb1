//! The op table: the vocabulary of all levels, from tensors to linear uops.
//!
//! The meaning of each op is defined here, as a formula over scalars or indices; "undefined" means
//! that the result may be any value (never a trap), which matters only if it is used.

use crate::{Constant, DType};

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

/// The types of the operands of an elementwise op.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// All types.
    Any,
    /// All types but bool.
    Numbers,
    /// Floats.
    Floats,
    /// Integers.
    Ints,
    /// Integers and bool.
    Bits,
    /// `u64`.
    U64,
}

impl Operands {
    /// Returns whether operands may have this type.
    pub fn contains(self, dtype: DType) -> bool {
        match self {
            Operands::Any => true,
            Operands::Numbers => dtype != DType::Bool,
            Operands::Floats => dtype.is_float(),
            Operands::Ints => dtype.is_int(),
            Operands::Bits => !dtype.is_float(),
            Operands::U64 => dtype == DType::U64,
        }
    }
}

/// The result of a reduction over no elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Identity {
    /// 0, or false.
    Zero,
    /// 1, or true.
    One,
    /// The smallest value of the type: minus infinity of a float.
    Smallest,
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
    /// The types of its operands, if it is elementwise; of `where`, those of both values.
    pub operands: Operands,
    /// True if `op(x, y) = op(y, x)`, bit by bit except for the payload of a NaN and, of max and
    /// min, the sign of a zero.
    pub is_commutative: bool,
    /// True if the result is bool for all types of operands.
    pub is_comparison: bool,
    /// True if `op(0, 0, ...)` is undefined or not +0, so that the op cannot be moved across a pad
    /// even if all its sources are padded.
    pub is_unsafe_under_pad: bool,
    /// The result of a reduction by the op over no elements; `None` if there is no such reduction.
    pub identity: Option<Identity>,
    /// The cost of an element, in additions, where the target has no instruction for a function.
    pub cost: i64,
}

/// A row with the usual properties, which the methods below change: operands of any type, a cost of
/// 1 if the op is elementwise.
const fn row(
    op: Op,
    name: &'static str,
    class: Class,
    arity: (usize, usize),
    meaning: &'static str,
) -> OpRow {
    OpRow {
        op,
        name,
        class,
        arity,
        meaning,
        operands: Operands::Any,
        is_commutative: false,
        is_comparison: false,
        is_unsafe_under_pad: false,
        identity: None,
        cost: matches!(class, Class::Unary | Class::Binary | Class::Ternary) as i64,
    }
}

impl OpRow {
    const fn of(self, operands: Operands) -> OpRow {
        OpRow { operands, ..self }
    }

    const fn commutative(self) -> OpRow {
        OpRow { is_commutative: true, ..self }
    }

    const fn comparison(self) -> OpRow {
        OpRow { is_comparison: true, ..self }
    }

    const fn unsafe_under_pad(self) -> OpRow {
        OpRow { is_unsafe_under_pad: true, ..self }
    }

    const fn reduces_from(self, identity: Identity) -> OpRow {
        OpRow { identity: Some(identity), ..self }
    }

    const fn costs(self, cost: i64) -> OpRow {
        OpRow { cost, ..self }
    }
}

/// Any number of sources.
const MANY: usize = usize::MAX;

/// Defines the ops and their rows. A row is the op, its name in text, its class, the least and the
/// greatest number of its sources, the formula of its value, and the properties that differ from
/// the usual ones.
macro_rules! ops {
    ($(
        $op:ident $name:literal $class:ident $arity:tt
            $meaning:literal
            $([$($property:tt)*])?;
    )*) => {
        /// An op. The order is that of the table and breaks ties in canonical forms.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = concat!("`", $name, "`: ", $meaning, ".")] $op,)*
        }

        /// The table, in the order of [`Op`].
        pub const OPS: &[OpRow] = {
            use Operands::{Bits, Floats, Ints, Numbers, U64};
            &[$(row(Op::$op, $name, Class::$class, $arity, $meaning)$($($property)*)?,)*]
        };
    };
}

ops! {
    Buffer "buffer" Leaf (0, 0)
        "data in memory, shape [size]; arg: the buffer";
    Const "const" Leaf (0, 0)
        "the constant of the arg, shape []";
    Iota "iota" Leaf (0, 0)
        "0, 1, 2, ... wrapped to the dtype, shape [arg]";
    Reshape "reshape" Movement (1, 1)
        "the same elements in row-major order, in the shape of the arg";
    Permute "permute" Movement (1, 1)
        "axis i of the result is axis arg[i] of the source";
    Expand "expand" Movement (1, 1)
        "axes of size 1 repeated up to the sizes of the arg";
    Pad "pad" Movement (1, 1)
        "zeros before and after each axis, counts in the arg";
    Shrink "shrink" Movement (1, 1)
        "the half-open range of each axis, in the arg";
    Flip "flip" Movement (1, 1)
        "the axes of the arg reversed";
    View "view" Movement (1, 1)
        "element i is element t(i) of the source, 0 where t masks it; t: the arg";
    Contiguous "contiguous" Marker (1, 1)
        "the source, in a row-major buffer of its own";
    Detach "detach" Marker (1, 1)
        "the source, detached from gradients";
    Copy "copy" Marker (1, 1)
        "the source, in a row-major buffer on the device of the arg";
    Parameter "parameter" Marker (1, 1)
        "the source, as a tensor of its own that gradients are taken of; arg: its number";
    Function "function" Marker (2, MANY)
        "source 0, which is computed as the function of the arg of the sources after it; gradients \
         use the function's derivative";
    ReduceAxis "reduce_axis" Reduce (1, 1)
        "the axes of the arg reduced to size 1 by the op of the arg";
    Cast "cast" Unary (1, 1)
        "the value converted to the dtype; undefined if a float is outside an integer's range";
    Bitcast "bitcast" Unary (1, 1)
        "the same bits as another dtype of the same size";
    Neg "neg" Unary (1, 1)
        "-x, wrapping"
        [.of(Numbers).unsafe_under_pad()];
    Exp2 "exp2" Unary (1, 1)
        "2^x"
        [.of(Floats).unsafe_under_pad().costs(25)];
    Log2 "log2" Unary (1, 1)
        "log2(x)"
        [.of(Floats).unsafe_under_pad().costs(35)];
    Sin "sin" Unary (1, 1)
        "sin(x)"
        [.of(Floats).costs(90)];
    Sqrt "sqrt" Unary (1, 1)
        "the square root of x"
        [.of(Floats).costs(4)];
    Recip "recip" Unary (1, 1)
        "1/x"
        [.of(Floats).unsafe_under_pad().costs(4)];
    Add "add" Binary (2, 2)
        "x+y, wrapping"
        [.commutative().reduces_from(Identity::Zero)];
    Sub "sub" Binary (2, 2)
        "x-y, wrapping";
    Mul "mul" Binary (2, 2)
        "x*y, wrapping"
        [.commutative().reduces_from(Identity::One)];
    FDiv "fdiv" Binary (2, 2)
        "x/y of floats"
        [.of(Floats).unsafe_under_pad().costs(4)];
    CDiv "cdiv" Binary (2, 2)
        "x/y truncated toward zero; undefined for y = 0; wraps"
        [.of(Ints).unsafe_under_pad().costs(8)];
    CMod "cmod" Binary (2, 2)
        "x - y*cdiv(x,y); undefined for y = 0"
        [.of(Ints).unsafe_under_pad().costs(8)];
    FloorDiv "floordiv" Binary (2, 2)
        "x/y rounded down; undefined for y = 0; wraps"
        [.of(Ints).unsafe_under_pad().costs(8)];
    FloorMod "floormod" Binary (2, 2)
        "x - y*floordiv(x,y); undefined for y = 0"
        [.of(Ints).unsafe_under_pad().costs(8)];
    Max "max" Binary (2, 2)
        "the larger one, y if they are equal; NaN if either is"
        [.commutative().reduces_from(Identity::Smallest)];
    Min "min" Binary (2, 2)
        "the smaller one, y if they are equal; NaN if either is"
        [.commutative()];
    Pow "pow" Binary (2, 2)
        "x^y of floats, as C's pow"
        [.of(Floats).unsafe_under_pad().costs(120)];
    CmpLt "cmplt" Binary (2, 2)
        "x<y as bool; false if either is NaN"
        [.comparison()];
    CmpNe "cmpne" Binary (2, 2)
        "x!=y as bool; true if either is NaN; of bools: exclusive or"
        [.commutative().comparison()];
    And "and" Binary (2, 2)
        "bitwise and"
        [.of(Bits).commutative()];
    Or "or" Binary (2, 2)
        "bitwise or"
        [.of(Bits).commutative()];
    Xor "xor" Binary (2, 2)
        "bitwise exclusive or"
        [.of(Bits).commutative()];
    Shl "shl" Binary (2, 2)
        "x*2^y, wrapping; undefined unless 0 <= y < bits"
        [.of(Ints)];
    Shr "shr" Binary (2, 2)
        "x/2^y rounded down; undefined unless 0 <= y < bits"
        [.of(Ints)];
    Threefry "threefry" Binary (2, 2)
        "Threefry-2x32 of 20 rounds over u64: counter x, key y; word 0 is the low half of each"
        [.of(U64).unsafe_under_pad().costs(125)];
    Where "where" Ternary (3, 3)
        "y if x else z; x is bool";
    MulAcc "mulacc" Ternary (3, 3)
        "x*y+z, the product rounded or not"
        [.of(Numbers)];
    Sink "sink" Control (0, MANY)
        "all sources have taken effect";
    DefineGlobal "define_global" Kernel (0, 0)
        "the address of parameter arg.slot, elements of the dtype";
    DefineVar "define_var" Kernel (0, 0)
        "an integer parameter within the bounds of the arg";
    Range "range" Control (1, 1)
        "a loop counter from 0 to the source (excluded); arg: the axis";
    EndRange "endrange" Control (1, 1)
        "the end of the loop of the source";
    Reduce "reduce" Reduce (1, MANY)
        "source 0 reduced over the ranges that follow, by the op of the arg";
    Index "index" Kernel (2, 3)
        "the address of element y of x; source 2: the gate of accesses";
    Load "load" Kernel (1, 2)
        "tree: source 0 a global, arg a tracker; lowered: source 0 an index, 0 if its gate is \
         false; runs after source 1 (a barrier, a store, a reduction that stores); arg: the \
         distance in elements of a prefetch";
    Store "store" Kernel (2, 2)
        "tree: (global, value), arg a tracker; lowered: (index, value), nothing if the gate is \
         false; with an op as arg, an update: the element becomes op(element, value), in the order \
         of the iterations";
    DefineAcc "define_acc" Kernel (1, MANY)
        "an accumulator that starts as source 0; the ranges around it follow";
    Assign "assign" Kernel (2, 2)
        "assigns source 1 to the accumulator of source 0";
    DefineLocal "define_local" Kernel (0, 0)
        "the address of an array of the dtype that the threads of a group share; arg: which";
    Barrier "barrier" Control (0, MANY)
        "waits until all threads of the group are here; their stores are then visible to all";
    Vectorize "vectorize" Kernel (1, MANY)
        "source i is lane i; a single source is every lane; 2 lanes or more";
    Lane "lane" Kernel (1, 1)
        "the lane of the arg of a vector";
    Wmma "wmma" Kernel (4, MANY)
        "lowered: (elements of A, elements of B, which element, range of the warp), that element \
         of A*B held by this thread as the arg says; linear: (vector A, vector B, vector C, \
         range), the vector A*B + C; products exact, sums in f32 in any order";
}

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

    /// Returns whether the op has the elements of its first source, about which it says something.
    pub fn is_marker(self) -> bool {
        self.class() == Class::Marker
    }

    /// Returns whether the op moves elements without computing.
    pub fn is_movement(self) -> bool {
        self.class() == Class::Movement
    }

    /// Returns whether `op(x, y) = op(y, x)`, bit by bit except for the payload of a NaN and, of
    /// max and min, the sign of a zero.
    pub fn is_commutative(self) -> bool {
        self.row().is_commutative
    }

    /// Returns whether the result is bool for all types of sources.
    pub fn is_comparison(self) -> bool {
        self.row().is_comparison
    }

    /// Returns whether `op(0, 0, ...)` is undefined or not +0; see [`OpRow::is_unsafe_under_pad`].
    pub fn is_unsafe_under_pad(self) -> bool {
        self.row().is_unsafe_under_pad
    }

    /// Returns the result of a reduction over no elements; `None` if there is no reduction by the
    /// op.
    pub fn identity(self, dtype: DType) -> Option<Constant> {
        Some(match self.row().identity? {
            Identity::Zero => Constant::zero(dtype),
            Identity::One => Constant::one(dtype),
            Identity::Smallest => Constant::smallest(dtype),
        })
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
    fn names_lead_back_to_their_ops() {
        for row in OPS {
            assert_eq!(Op::from_name(row.name).map(Op::row).map(|row| row.op), Some(row.op));
        }
    }

    #[test]
    fn identities_change_no_value() {
        for row in OPS.iter().filter(|row| row.identity.is_some()) {
            for dtype in [DType::Bool, DType::I8, DType::U64, DType::F16, DType::F32] {
                let identity = row.op.identity(dtype).expect("it has one");
                for value in [Constant::smallest(dtype), Constant::one(dtype)] {
                    let found = crate::evaluate(row.op, dtype, &[identity, value]);
                    assert_eq!(found, Some(value), "{} of {dtype}", row.name);
                }
            }
        }
    }
}
