//! Shape and dtype inference, and the checks that a program is well formed.
//!
//! In: a statement and the types of the earlier values. Out: its type, or a `TypeError` with the
//! operation and what is allowed. Computes no element.

use crate::{
    BinaryOp, DType, Fill, Literal, Operand, Program, ReduceOp, Shape, Statement, UnaryOp, ValueId,
    geometry, literal_bits,
};

/// Maximum number of elements of a value. Axes of size 0 are left out of the product, so that
/// strides stay small, too.
pub const MAX_ELEMENTS: usize = 1 << 24;

/// Maximum number of axes of a value.
pub const MAX_RANK: usize = 32;

/// The type of a value: dtype and shape.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TensorType {
    /// Element type.
    pub dtype: DType,
    /// Sizes of the axes, outermost first.
    pub shape: Shape,
}

impl TensorType {
    /// Returns the number of elements, at most [`MAX_ELEMENTS`] for a type from inference.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// The reason why a program, a view sequence or an expression is ill-formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    /// Number of the ill-formed statement or view operation, if a single one is.
    pub statement: Option<usize>,
    /// The operation and what is allowed, with numbers.
    pub message: String,
}

impl TypeError {
    pub(crate) fn new(message: impl Into<String>) -> TypeError {
        TypeError { statement: None, message: message.into() }
    }

    pub(crate) fn at(mut self, statement: usize) -> TypeError {
        self.statement = Some(statement);
        self
    }
}

impl From<String> for TypeError {
    fn from(message: String) -> TypeError {
        TypeError::new(message)
    }
}

impl Program {
    /// Returns the type of every statement's value.
    ///
    /// # Errors
    /// The first ill-formed statement; a program without outputs, or with an output that is not
    /// defined.
    pub fn typing(&self) -> Result<Vec<TensorType>, TypeError> {
        let mut types = Vec::with_capacity(self.statements.len());
        for (number, statement) in self.statements.iter().enumerate() {
            types.push(statement_type(statement, &types).map_err(|error| error.at(number))?);
        }
        if self.outputs.is_empty() {
            return Err(TypeError::new("a program needs at least one output: add `output a`"));
        }
        for output in &self.outputs {
            value_type(*output, &types)?;
        }
        Ok(types)
    }
}

/// Returns the smallest dtype that both promote to, by tinygrad 0.10.2: the JAX lattice without
/// weak types.
///
/// `bool` is below all. Integers of the same signedness promote to the wider, of different
/// signedness to the signed type that represents both or, for `u64`, to `f16`. Floats are above
/// integers; `f16` and `bf16` promote to `f32`. Three sources are promoted from left to right.
pub fn promote(a: DType, b: DType) -> DType {
    let (low, high) = if a <= b { (a, b) } else { (b, a) };
    if low == high || low == DType::Bool {
        return high;
    }
    if high.is_float() {
        return if (low, high) == (DType::F16, DType::BF16) { DType::F32 } else { high };
    }
    if low.is_signed() == high.is_signed() {
        return high;
    }
    let (signed, unsigned) = if low.is_signed() { (low, high) } else { (high, low) };
    match signed.size_bytes().max(2 * unsigned.size_bytes()) {
        2 => DType::I16,
        4 => DType::I32,
        8 => DType::I64,
        _ => DType::F16,
    }
}

/// Returns the type of a statement; `types` are those of the earlier values.
///
/// # Errors
/// A source that is not defined yet, a dtype, shape, axis or literal that the statement does not
/// allow, or a value of more than [`MAX_ELEMENTS`] elements or [`MAX_RANK`] axes.
pub fn statement_type(
    statement: &Statement,
    types: &[TensorType],
) -> Result<TensorType, TypeError> {
    let moved = |src: ValueId, shape: Result<Shape, String>| {
        Ok(TensorType { dtype: value_type(src, types)?.dtype, shape: shape? })
    };
    let shape_of = |src: ValueId| value_type(src, types).map(|tensor| tensor.shape.as_slice());
    match statement {
        Statement::Input { dtype, shape, fill } => input_type(*dtype, shape, fill),
        Statement::Const { dtype, shape, value } => {
            check_representable(*dtype, value)?;
            geometry::check_size(shape)?;
            Ok(TensorType { dtype: *dtype, shape: shape.clone() })
        }
        Statement::Arange { dtype, count, .. } => arange_type(*dtype, *count),
        Statement::Unary { op, src } => unary_type(*op, value_type(*src, types)?),
        Statement::Binary { op, srcs } => binary_type(*op, srcs, types),
        Statement::Where { srcs } => where_type(srcs, types),
        Statement::MulAcc { srcs } => {
            let dtype = common_dtype("mulacc", srcs, types)?;
            check_arithmetic("mulacc", dtype)?;
            Ok(TensorType { dtype, shape: broadcast_all("mulacc", srcs, types)? })
        }
        Statement::Cast { src, dtype } => {
            Ok(TensorType { dtype: *dtype, shape: shape_of(*src)?.to_vec() })
        }
        Statement::Bitcast { src, dtype } => bitcast_type(value_type(*src, types)?, *dtype),
        Statement::Reduce { op, src, axes } => reduce_type(*op, value_type(*src, types)?, axes),
        Statement::Reshape { src, shape } => moved(*src, geometry::reshape(shape_of(*src)?, shape)),
        Statement::Permute { src, axes } => moved(*src, geometry::permute(shape_of(*src)?, axes)),
        Statement::Expand { src, shape } => moved(*src, geometry::expand(shape_of(*src)?, shape)),
        Statement::Pad { src, pads, value } => {
            check_representable(value_type(*src, types)?.dtype, value)?;
            moved(*src, geometry::pad(shape_of(*src)?, pads))
        }
        Statement::Shrink { src, ranges } => moved(*src, geometry::shrink(shape_of(*src)?, ranges)),
        Statement::Flip { src, axes } => moved(*src, geometry::flip(shape_of(*src)?, axes)),
        Statement::Cat { srcs, axis } => cat_type(srcs, *axis, types),
        Statement::Gather { src, axis, index } => {
            gather_type(value_type(*src, types)?, *axis, value_type(*index, types)?)
        }
        Statement::Method { method, srcs, args } => {
            let srcs = srcs.iter().map(|src| value_type(*src, types));
            Ok(method.typing(&srcs.collect::<Result<Vec<_>, _>>()?, args)?)
        }
        Statement::Contiguous { src } | Statement::Realize { src } | Statement::Detach { src } => {
            Ok(value_type(*src, types)?.clone())
        }
        Statement::Gradient { of, wrt } => {
            let (of, wrt) = (value_type(*of, types)?, value_type(*wrt, types)?);
            match (of.dtype.is_float(), wrt.dtype.is_float()) {
                (true, true) => Ok(wrt.clone()),
                _ => Err(TypeError::new(format!(
                    "gradient of {} with respect to {}: only floats have derivatives",
                    of.dtype.name(),
                    wrt.dtype.name()
                ))),
            }
        }
    }
}

fn value_type(value: ValueId, types: &[TensorType]) -> Result<&TensorType, TypeError> {
    types.get(value.0 as usize).ok_or_else(|| {
        let message = format!("value {} is not defined yet: there are {}", value.0, types.len());
        TypeError::new(message)
    })
}

fn check_representable(dtype: DType, literal: &Literal) -> Result<(), TypeError> {
    if literal_bits(dtype, literal).is_some() {
        return Ok(());
    }
    let allowed = if dtype == DType::Bool {
        "`true` or `false`"
    } else if dtype.is_float() {
        "a number"
    } else {
        "an integer in its range"
    };
    let dtype = dtype.name();
    Err(TypeError::new(format!("{literal} is not valid for {dtype}: it must be {allowed}")))
}

fn input_type(dtype: DType, shape: &Shape, fill: &Fill) -> Result<TensorType, TypeError> {
    let count = geometry::check_size(shape)?;
    if let Fill::Explicit(bits) = fill {
        if bits.len() != count {
            let listed = bits.len();
            return Err(TypeError::new(format!(
                "input of shape {shape:?} lists {listed} elements, it has {count}"
            )));
        }
        let limit = largest_pattern(dtype);
        if let Some(bad) = bits.iter().find(|bits| limit < **bits) {
            let name = dtype.name();
            return Err(TypeError::new(format!("input: {bad:#x} is not a bit pattern of {name}")));
        }
    }
    Ok(TensorType { dtype, shape: shape.clone() })
}

fn largest_pattern(dtype: DType) -> u64 {
    if dtype == DType::Bool { 1 } else { u64::MAX >> (64 - 8 * dtype.size_bytes()) }
}

fn arange_type(dtype: DType, count: usize) -> Result<TensorType, TypeError> {
    if !dtype.is_int() {
        let name = dtype.name();
        return Err(TypeError::new(format!("arange of {name}: only integer dtypes are allowed")));
    }
    geometry::check_size(&[count])?;
    Ok(TensorType { dtype, shape: vec![count] })
}

fn unary_type(op: UnaryOp, src: &TensorType) -> Result<TensorType, TypeError> {
    let (is_allowed, allowed) = match op {
        UnaryOp::Neg => (src.dtype != DType::Bool, "an integer or float dtype"),
        UnaryOp::Not => (!src.dtype.is_float(), "bool or an integer dtype"),
        UnaryOp::Exp2 | UnaryOp::Log2 | UnaryOp::Sin | UnaryOp::Sqrt | UnaryOp::Recip => {
            (src.dtype.is_float(), "a float dtype")
        }
    };
    if is_allowed { Ok(src.clone()) } else { Err(wrong_dtype(op.name(), src.dtype, allowed)) }
}

fn wrong_dtype(op: &str, dtype: DType, allowed: &str) -> TypeError {
    TypeError::new(format!("{op} of {}: it takes {allowed}; use `cast` before it", dtype.name()))
}

fn check_arithmetic(op: &str, dtype: DType) -> Result<(), TypeError> {
    if dtype == DType::Bool {
        return Err(wrong_dtype(op, dtype, "an integer or float dtype"));
    }
    Ok(())
}

fn binary_type(
    op: BinaryOp,
    srcs: &[Operand; 2],
    types: &[TensorType],
) -> Result<TensorType, TypeError> {
    use BinaryOp::*;
    let dtype = common_dtype(op.name(), srcs, types)?;
    let (is_allowed, allowed) = match op {
        Add | Sub | Mul => (dtype != DType::Bool, "an integer or float dtype"),
        Div | Pow => (dtype.is_float(), "a float dtype"),
        CDiv | CMod | FloorDiv | FloorMod | Shl | Shr => (dtype.is_int(), "an integer dtype"),
        And | Or | Xor => (!dtype.is_float(), "bool or an integer dtype"),
        Max | Min | CmpLt | CmpNe | CmpEq => (true, ""),
        Threefry => (dtype == DType::U64, "u64"),
    };
    if !is_allowed {
        return Err(wrong_dtype(op.name(), dtype, allowed));
    }
    // A quotient of integers is one of f32, not of the f16 that u64 and a signed type promote to.
    let integers = |src: &Operand| match src {
        Operand::Value(value) => {
            value_type(*value, types).ok().map(|x| x.dtype).filter(|x| x.is_int())
        }
        Operand::Literal(_) => None,
    };
    if let (Div, [Some(x), Some(_)]) = (op, [&srcs[0], &srcs[1]].map(integers)) {
        return Err(wrong_dtype(op.name(), x, allowed));
    }
    let dtype = if op.is_comparison() { DType::Bool } else { dtype };
    Ok(TensorType { dtype, shape: broadcast_all(op.name(), srcs, types)? })
}

fn where_type(srcs: &[Operand; 3], types: &[TensorType]) -> Result<TensorType, TypeError> {
    let condition = match &srcs[0] {
        Operand::Value(value) => value_type(*value, types)?.dtype,
        Operand::Literal(Literal::Bool(_)) => DType::Bool,
        Operand::Literal(literal) => {
            return Err(TypeError::new(format!("where: condition {literal} is not bool")));
        }
    };
    if condition != DType::Bool {
        return Err(wrong_dtype("where", condition, "a bool condition (say, from `cmpne x 0`)"));
    }
    let dtype = common_dtype("where", &srcs[1..], types)?;
    Ok(TensorType { dtype, shape: broadcast_all("where", srcs, types)? })
}

/// Returns the promoted dtype of the values among `srcs`, in which all literals must be
/// representable.
fn common_dtype(op: &str, srcs: &[Operand], types: &[TensorType]) -> Result<DType, TypeError> {
    let mut common = None;
    for src in srcs {
        if let Operand::Value(value) = src {
            let dtype = value_type(*value, types)?.dtype;
            common = Some(common.map_or(dtype, |before| promote(before, dtype)));
        }
    }
    let Some(dtype) = common else {
        let message = format!("{op} of literals only: one operand must be a value, say a `const`");
        return Err(TypeError::new(message));
    };
    for src in srcs {
        if let Operand::Literal(literal) = src {
            check_representable(dtype, literal)?;
        }
    }
    Ok(dtype)
}

fn broadcast_all(op: &str, srcs: &[Operand], types: &[TensorType]) -> Result<Shape, TypeError> {
    let mut out = Shape::new();
    for src in srcs {
        if let Operand::Value(value) = src {
            geometry::broadcast(op, &mut out, &value_type(*value, types)?.shape)?;
        }
    }
    geometry::check_size(&out)?;
    Ok(out)
}

fn bitcast_type(src: &TensorType, dtype: DType) -> Result<TensorType, TypeError> {
    let is_allowed = src.dtype != DType::Bool
        && dtype != DType::Bool
        && src.dtype.size_bytes() == dtype.size_bytes();
    if !is_allowed {
        let (from, to) = (src.dtype.name(), dtype.name());
        return Err(TypeError::new(format!(
            "bitcast of {from} to {to}: both must have the same size and neither may be bool"
        )));
    }
    Ok(TensorType { dtype, shape: src.shape.clone() })
}

fn reduce_type(op: ReduceOp, src: &TensorType, axes: &[usize]) -> Result<TensorType, TypeError> {
    let dtype = match (op, src.dtype) {
        (ReduceOp::Sum | ReduceOp::Prod, DType::Bool | DType::I8 | DType::I16) => DType::I32,
        (ReduceOp::Sum | ReduceOp::Prod, DType::U8 | DType::U16) => DType::U32,
        (_, dtype) => dtype,
    };
    geometry::check_axes(op.name(), &src.shape, axes)?;
    let mut shape = src.shape.clone();
    for axis in axes {
        shape[*axis] = 1;
    }
    geometry::check_size(&shape)?;
    Ok(TensorType { dtype, shape })
}

fn cat_type(srcs: &[ValueId], axis: usize, types: &[TensorType]) -> Result<TensorType, TypeError> {
    let Some(first) = srcs.first() else {
        return Err(TypeError::new("cat without sources: it takes one or more values"));
    };
    let mut out = value_type(*first, types)?.clone();
    if out.shape.len() <= axis {
        let shape = &out.shape;
        return Err(TypeError::new(format!(
            "cat along axis {axis} of shape {shape:?}: no such axis"
        )));
    }
    for src in &srcs[1..] {
        let next = value_type(*src, types)?;
        if next.dtype != out.dtype {
            let (a, b) = (out.dtype.name(), next.dtype.name());
            return Err(TypeError::new(format!("cat of {a} and {b}: dtypes must be equal")));
        }
        let fits = next.shape.len() == out.shape.len()
            && (0..out.shape.len()).all(|i| i == axis || next.shape[i] == out.shape[i]);
        if !fits {
            return Err(TypeError::new(format!(
                "cat of {:?} and {:?} along axis {axis}: all other axes must be equal",
                out.shape, next.shape
            )));
        }
        out.shape[axis] = out.shape[axis].saturating_add(next.shape[axis]);
    }
    geometry::check_size(&out.shape)?;
    Ok(out)
}

fn gather_type(src: &TensorType, axis: usize, index: &TensorType) -> Result<TensorType, TypeError> {
    if !index.dtype.is_int() {
        return Err(wrong_dtype("gather's index", index.dtype, "an integer dtype"));
    }
    let rank = src.shape.len();
    if rank <= axis {
        let shape = &src.shape;
        return Err(TypeError::new(format!(
            "gather along axis {axis} of shape {shape:?}: no such axis"
        )));
    }
    let fits =
        index.shape.len() == rank && (0..rank).all(|i| i == axis || src.shape[i] == index.shape[i]);
    if !fits {
        return Err(TypeError::new(format!(
            "gather from {:?} by an index of {:?} along axis {axis}: all other axes must be equal",
            src.shape, index.shape
        )));
    }
    Ok(TensorType { dtype: src.dtype, shape: index.shape.clone() })
}
