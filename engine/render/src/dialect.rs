//! What the languages of C's family say each in its own way. The writer knows the rest.

use gradiff_graph::{AxisKind, Constant, DType, Op, TensorCore};
use smallvec::SmallVec;

/// One thing for each source: an elementwise op has three at most.
pub(crate) type Sources<T> = SmallVec<[T; 3]>;

/// A value in the text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    /// How it is written.
    pub(crate) text: &'a str,
    /// Its type, that of one lane.
    pub(crate) dtype: DType,
    /// How many lanes it has.
    pub(crate) lanes: u8,
    /// Of a vector of bools: how many bytes a lane has, where it is 0 or -1; else 0.
    pub(crate) mask_bytes: u8,
    /// Its value, where it is a constant.
    pub(crate) known: Option<Constant>,
}

impl Value<'_> {
    /// The value of a constant integer.
    pub(crate) fn known_int(&self) -> Option<i128> {
        self.known.and_then(Constant::to_int)
    }
}

/// An elementwise op over values.
#[derive(Clone, Debug)]
pub(crate) struct Alu<'a> {
    /// What it does.
    pub(crate) op: Op,
    /// The type of what comes out.
    pub(crate) dtype: DType,
    /// How many lanes.
    pub(crate) lanes: u8,
    /// The values that go in.
    pub(crate) src: Sources<Value<'a>>,
    /// Whether an integer may leave its type, so that it has to be wrapped.
    pub(crate) may_wrap: bool,
    /// `Min` of a `where` that is `x < y ? x : y`, `Max` of `y < x ? x : y`: as these ops, but `y`
    /// where the two are equal or one is NaN.
    pub(crate) extreme: Option<Op>,
}

impl<'a> Alu<'a> {
    /// The type of what goes in first.
    pub(crate) fn from(&self) -> DType {
        self.src.first().map_or(self.dtype, |value| value.dtype)
    }

    /// The texts of the sources.
    pub(crate) fn texts(&self) -> Sources<&'a str> {
        self.src.iter().map(|value| value.text).collect()
    }
}

/// An expression and what form its lanes have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text {
    /// The expression.
    pub(crate) text: String,
    /// As in [`Value`].
    pub(crate) mask_bytes: u8,
}

impl From<String> for Text {
    fn from(text: String) -> Text {
        Text { text, mask_bytes: 0 }
    }
}

/// Where a load or store goes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The name of the array.
    pub(crate) array: &'a str,
    /// The number of the first element.
    pub(crate) index: &'a str,
    /// The type of an element.
    pub(crate) dtype: DType,
    /// How many elements, one after the other.
    pub(crate) lanes: u8,
    /// Whether the threads of a group share the array, or it is the thread's own.
    pub(crate) is_local: bool,
    /// True for a store into an array that is too large for the caches.
    pub(crate) is_past_caches: bool,
}

/// What is known of a kernel before its body.
#[derive(Clone, Debug)]
pub(crate) struct Head<'a> {
    /// What it is called.
    pub(crate) name: &'a str,
    /// Its arrays in the order of their slots: slot, type, whether it is written to.
    pub(crate) arrays: Vec<(usize, DType, bool)>,
    /// Its other parameters: name, type.
    pub(crate) variables: Vec<(&'a str, DType)>,
    /// The arrays that the threads of a group share: name, type, count of elements.
    pub(crate) locals: Vec<(String, DType, i64)>,
    /// The sizes of a group, dimension 0 first.
    pub(crate) group: Vec<i64>,
}

/// A language of C's family. `None` says that it has no such thing.
pub(crate) trait Dialect {
    /// Its name, for messages.
    fn language(&self) -> &'static str;

    /// Whether there is no such type, or none that can be stored.
    fn lacks(&self, dtype: DType, is_stored: bool) -> bool {
        let _ = (dtype, is_stored);
        false
    }

    /// The type of a variable or of an array's elements.
    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<String>;

    /// A constant of exactly these bits.
    fn constant(&self, value: Constant) -> Option<String>;

    /// The text before the body, from the first word to the brace.
    fn head(&self, head: &Head) -> Option<String>;

    /// The number of the group or of the thread in it, of dimension 0, 1 or 2; `None` if groups
    /// are plain loops.
    fn launched(&self, kind: AxisKind, dimension: usize) -> Option<String>;

    /// An elementwise op.
    fn alu(&self, alu: &Alu) -> Option<Text>;

    /// Values, or one for all, side by side.
    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text>;

    /// A lane of a vector.
    fn lane(&self, vector: &Value, lane: usize) -> Option<String>;

    /// What a tensor core makes of vectors A, B and C.
    fn product(&self, core: &TensorCore, src: &[Value]) -> Option<String> {
        let _ = (core, src);
        None
    }

    /// The elements at a place.
    fn load(&self, place: &Place) -> Option<Text>;

    /// The statement that asks for what lies so many elements further on, if there is one.
    fn ask_early(&self, place: &Place, further: i64) -> Option<String> {
        let _ = (place, further);
        None
    }

    /// The statement that ends a function of this text, if it needs one.
    fn tail(&self, function: &str) -> Option<&'static str> {
        let _ = function;
        None
    }

    /// The statement that stores a value at a place.
    fn store(&self, place: &Place, value: &Value) -> Option<String>;

    /// The statement that no thread passes before all are there.
    fn barrier(&self) -> Option<&'static str>;

    /// The statement that gives a value a name; a variable may change.
    fn declare(&self, kind: &str, name: &str, value: &str, is_variable: bool) -> String {
        let _ = is_variable;
        format!("{kind} {name} = {value};")
    }

    /// The statement that names a variable which changes only around inner loops.
    fn declare_outer(&self, kind: &str, name: &str, value: &str) -> String {
        self.declare(kind, name, value, true)
    }

    /// The head of a loop.
    fn count(&self, kind: &str, name: &str, end: &str) -> String {
        format!("for ({kind} {name} = 0; {name} < {end}; {name}++) {{")
    }

    /// The statements that name what is loaded where the gate is open, and zero where it is shut.
    fn gated(&self, kind: &str, name: &str, gate: &str, loaded: &str, zero: &str) -> Vec<String> {
        vec![self.declare(kind, name, &format!("({gate}?{loaded}:{zero})"), false)]
    }

    /// The value in the form in which a variable holds it.
    fn settled(&self, value: &Value) -> Text {
        Text { text: value.text.to_string(), mask_bytes: value.mask_bytes }
    }
}

/// `.x`, `.y` or `.z`.
pub(crate) fn dimension_name(dimension: usize) -> &'static str {
    [".x", ".y", ".z"].get(dimension).copied().unwrap_or_default()
}
