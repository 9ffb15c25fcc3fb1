//! The syntax in which the C-like languages differ. What they share is in [`crate::writer`].

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{AxisKind, Constant, DType, Op};
use smallvec::SmallVec;

use crate::code::{Code, Helpers, code};

/// A list with an entry per source; elementwise ops have at most three.
pub(crate) type Sources<T> = SmallVec<[T; 3]>;

/// A rendered operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    /// The expression.
    pub(crate) code: &'a Code,
    /// The type of a lane.
    pub(crate) dtype: DType,
    /// The number of lanes.
    pub(crate) lanes: u8,
    /// Bytes per lane of a mask, a vector of bools whose lanes are the integers 0 and -1; 0 for
    /// everything that is not a mask.
    pub(crate) mask_bytes: u8,
    /// The value, if it is a constant, an op of constants, or a splat of these.
    pub(crate) known: Option<Constant>,
}

impl Value<'_> {
    /// The value, if it is a constant integer.
    pub(crate) fn known_int(&self) -> Option<i128> {
        self.known.and_then(Constant::to_int)
    }
}

/// An elementwise op with rendered operands.
#[derive(Clone, Debug)]
pub(crate) struct Alu<'a> {
    /// The op.
    pub(crate) op: Op,
    /// The type of the result.
    pub(crate) dtype: DType,
    /// The number of lanes.
    pub(crate) lanes: u8,
    /// The operands.
    pub(crate) src: Sources<Value<'a>>,
    /// True if the integer result may overflow and has to wrap.
    pub(crate) may_wrap: bool,
    /// `Min` for a `where` of the form `x < y ? x : y`, `Max` for `y < x ? x : y`. Unlike these ops
    /// it gives `y` if the two are equal or one is NaN.
    pub(crate) min_max: Option<Op>,
}

impl<'a> Alu<'a> {
    /// The type of the first operand.
    pub(crate) fn from(&self) -> DType {
        self.src.first().map_or(self.dtype, |value| value.dtype)
    }

    /// The expressions of the operands.
    pub(crate) fn codes(&self) -> Sources<&'a Code> {
        self.src.iter().map(|value| value.code).collect()
    }
}

/// A rendered expression and the representation of its lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    /// The expression.
    pub(crate) code: Code,
    /// As in [`Value`].
    pub(crate) mask_bytes: u8,
}

impl From<Code> for Text {
    fn from(code: Code) -> Text {
        Text { code, mask_bytes: 0 }
    }
}

/// The memory that a load or store accesses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access<'a> {
    /// The name of the array.
    pub(crate) array: &'a str,
    /// The number of elements of the array.
    pub(crate) size_elements: i64,
    /// The index of the first element.
    pub(crate) index: &'a Code,
    /// The same, if it is constant.
    pub(crate) known_index: Option<i128>,
    /// The type of an element.
    pub(crate) dtype: DType,
    /// The number of consecutive elements.
    pub(crate) lanes: u8,
    /// True if the array is local: shared by the threads of a group, or private to a thread.
    pub(crate) is_local: bool,
    /// True for a store into an array that is too large for the caches.
    pub(crate) is_nontemporal: bool,
}

/// The parts of a kernel that precede its body.
#[derive(Clone, Debug)]
pub(crate) struct Header<'a> {
    /// The name of the kernel.
    pub(crate) name: &'a str,
    /// Arrays in the order of their slots: slot, type, whether it is written to.
    pub(crate) arrays: Vec<(usize, DType, bool)>,
    /// Scalar parameters: name, type.
    pub(crate) variables: Vec<(&'a str, DType)>,
    /// Local arrays: name, type, number of elements.
    pub(crate) locals: Vec<(String, DType, i64)>,
    /// The size of a group, dimension 0 first.
    pub(crate) group: Vec<i64>,
}

/// A C-like language. Methods return `None` for constructs that the language does not have.
pub(crate) trait Dialect {
    /// The name of the language, for messages.
    fn language(&self) -> &'static str;

    /// Returns whether the language does not have a type.
    fn is_unsupported(&self, dtype: DType) -> bool {
        let _ = dtype;
        false
    }

    /// The name of the type of a variable or of an array's elements.
    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code>;

    /// A constant of exactly these bits.
    fn constant(&self, value: Constant) -> Option<Code>;

    /// The text before the body, up to and including the opening brace and local arrays.
    fn header(&self, header: &Header) -> Option<Code>;

    /// The index of the group, or of the thread in its group, in dimension 0, 1 or 2; `None` if
    /// the ranges of groups are plain loops.
    fn grid_index(&self, kind: AxisKind, dimension: usize) -> Option<String>;

    /// An elementwise op.
    fn alu(&self, alu: &Alu) -> Option<Text>;

    /// Returns whether x in `x + 0` or `0 - x` of scalars must be a variable: some compilers get
    /// the sign of a zero wrong otherwise.
    fn names_operand_of_zero(&self) -> bool {
        false
    }

    /// A vector of these lanes, or the splat of a single value.
    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text>;

    /// A lane of a vector.
    fn lane(&self, vector: &Value, lane: usize) -> Option<Code>;

    /// The product of a tensor core: A times B plus C, for vectors A, B and C.
    fn product(&self, core: &TensorCore, src: &[Value]) -> Option<Code> {
        let _ = (core, src);
        None
    }

    /// The loaded elements.
    fn load(&self, access: &Access) -> Option<Text>;

    /// The statement that prefetches what lies `distance` elements after a load, if there is one.
    fn prefetch(&self, access: &Access, distance: i64) -> Option<Code> {
        let _ = (access, distance);
        None
    }

    /// The last statement of a function that names these helpers, if it needs one.
    fn tail(&self, helpers: &Helpers) -> Option<Code> {
        let _ = helpers;
        None
    }

    /// The statement that stores a value.
    fn store(&self, access: &Access, value: &Value) -> Option<Code>;

    /// The statement that copies what an access loads to where another stores, which is in local
    /// memory, while the thread goes on; `None` if such copies are loads and stores.
    fn copy(&self, from: &Access, to: &Access) -> Option<Code> {
        let _ = (from, to);
        None
    }

    /// The statement that waits for the copies of a thread.
    fn wait_for_copies(&self) -> Code {
        Code::default()
    }

    /// The barrier of a group.
    fn barrier(&self) -> Option<&'static str>;

    /// The declaration of a name with a value; `is_variable` if it may be assigned to.
    fn declare(&self, kind: &Code, name: &str, value: &Code, is_variable: bool) -> Code {
        let _ = is_variable;
        code!("{} {} = {};", kind, name, value)
    }

    /// The declaration of a variable that is assigned to only outside of inner loops.
    fn declare_outer(&self, kind: &Code, name: &str, value: &Code) -> Code {
        self.declare(kind, name, value, true)
    }

    /// The header of a loop.
    fn loop_header(&self, kind: &Code, name: &str, end: &Code) -> Code {
        code!("for ({} {name} = 0; {name} < {}; {name}++) {{", kind, end)
    }

    /// The declaration of a loaded value that is zero where the gate is false.
    fn gated_load(
        &self,
        kind: &Code,
        name: &str,
        gate: &Code,
        loaded: &Code,
        zero: &Code,
    ) -> Vec<Code> {
        vec![self.declare(kind, name, &code!("({}?{}:{})", gate, loaded, zero), false)]
    }

    /// The value in the representation that variables and memory have.
    fn canonical(&self, value: &Value) -> Text {
        Text { code: value.code.clone(), mask_bytes: value.mask_bytes }
    }
}

/// `.x`, `.y` or `.z`.
pub(crate) fn dimension_name(dimension: usize) -> &'static str {
    [".x", ".y", ".z"].get(dimension).copied().unwrap_or_default()
}
