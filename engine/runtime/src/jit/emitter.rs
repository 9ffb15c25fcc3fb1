//! The state of a translation: the kernel, and the values of its uops.

use cranelift_codegen::ir::{Block, Type, Value, types};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, Variable};
use gradiff_graph::{DType, Linear};
use smallvec::{SmallVec, smallvec};

use crate::signature::Signature;

/// The representation of a value's lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A piece for each lane.
    Single,
    /// Vectors of 128 bits.
    Packed,
    /// Vectors of 128 bits for bools; true is all ones.
    Mask,
}

/// A value of one or several lanes.
#[derive(Clone, Debug)]
pub(super) struct Lanes {
    pub(super) form: Form,
    pub(super) pieces: SmallVec<[Value; 1]>,
}

impl Lanes {
    pub(super) fn one(value: Value) -> Lanes {
        Lanes { form: Form::Single, pieces: smallvec![value] }
    }
}

impl Form {
    /// The form of a value in memory and in variables, the type of its pieces and their number.
    pub(super) fn of(dtype: DType, lanes: u8) -> (Form, Type, usize) {
        let (kind, lanes) = (machine_type(dtype), usize::from(lanes));
        let lanes_per_piece = 16 / dtype.size_bytes().max(1);
        let is_packable = !matches!(dtype, DType::Bool | DType::F16 | DType::BF16 | DType::Void);
        match kind.by(lanes_per_piece as u32) {
            Some(packed) if is_packable && lanes != 0 && lanes % lanes_per_piece == 0 => {
                (Form::Packed, packed, lanes / lanes_per_piece)
            }
            _ => (Form::Single, kind, lanes),
        }
    }
}

/// The value of a uop.
#[derive(Clone)]
pub(super) enum UopValue {
    None,
    Values(Lanes),
    Variables(Form, SmallVec<[Variable; 1]>),
}

impl UopValue {
    pub(super) fn value(value: Value) -> UopValue {
        UopValue::Values(Lanes::one(value))
    }
}

pub(super) struct Loop {
    pub(super) range: u32,
    pub(super) counter: Variable,
    pub(super) header: Block,
    pub(super) exit: Block,
}

/// The kernel being translated.
pub(super) struct Emitter<'a, 'b> {
    pub(super) linear: &'a Linear,
    pub(super) signature: &'a Signature,
    pub(super) builder: FunctionBuilder<'b>,
    pub(super) isa: &'a dyn TargetIsa,
    pub(super) pointers: Vec<Value>,
    pub(super) values: Vec<UopValue>,
    pub(super) loops: Vec<Loop>,
}

/// The machine type of a dtype.
pub(super) fn machine_type(dtype: DType) -> Type {
    match dtype.size_bytes() {
        4 if dtype == DType::F32 => types::F32,
        8 if dtype == DType::F64 => types::F64,
        2 => types::I16,
        4 => types::I32,
        8 => types::I64,
        _ => types::I8,
    }
}
