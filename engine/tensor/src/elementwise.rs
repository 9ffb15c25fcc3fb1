//! Elementwise ops: broadcast by NumPy's rules, with dtypes promoted by `promotion`.

use gradiff_graph::op::Operands;
use gradiff_graph::{Arg, Constant, DType, Op, UOp};

use crate::error::invalid;
use crate::placement::check_devices;
use crate::promotion::promote;
use crate::tensor::{broadcast, check_reduced, check_shape, constant_node, with_shape};
use crate::{Error, Operand, Tensor};

/// Refuses a dtype that operands may not have.
fn check_dtype(name: &str, operands: Operands, dtype: DType) -> Result<(), Error> {
    if operands.contains(dtype) {
        return Ok(());
    }
    let allowed = match operands {
        Operands::Any => "all dtypes",
        Operands::Numbers => "integers and floats",
        Operands::Floats => "floats",
        Operands::Ints => "integers",
        Operands::Bits => "bool and integers",
        Operands::U64 => "u64",
    };
    invalid(format!("{name} of {dtype}: it takes {allowed}; cast the tensor first"))
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident: $op:ident;)*) => {impl Tensor {$(
        $(#[$doc])*
        /// # Errors
        /// If the op does not take the dtype.
        pub fn $name(&self) -> Result<Tensor, Error> {
            check_dtype(stringify!($name), Op::$op.row().operands, self.dtype())?;
            Ok(Tensor::from_valid(with_shape(UOp::unary(Op::$op, self.dtype(), self.uop()))))
        }
    )*}};
}

unary! {
    /// `-x`, wrapping. Integers and floats.
    neg: Neg;
    /// `2^x`. Floats.
    exp2: Exp2;
    /// Logarithm to base 2. Floats.
    log2: Log2;
    /// Sine of x in radians. Floats.
    sin: Sin;
    /// Square root. Floats.
    sqrt: Sqrt;
    /// `1 / x`. Floats.
    recip: Recip;
}

/// The types of an op's operands: those of the op table, or fewer if a method says so.
macro_rules! operands {
    ($op:ident) => {
        Op::$op.row().operands
    };
    ($op:ident, $operands:ident) => {
        Operands::$operands
    };
}

macro_rules! binary {
    ($($(#[$doc:meta])* $name:ident: $op:ident $(of $operands:ident)?;)*) => {impl Tensor {$(
        $(#[$doc])*
        /// # Errors
        /// If shapes do not broadcast, or the op does not take the promoted dtype.
        pub fn $name(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
            let operands = operands!($op $(, $operands)?);
            let (x, y) = pair(stringify!($name), operands, self, other.into(), check_shape)?;
            Ok(Tensor::from_valid(with_shape(UOp::binary(Op::$op, x, y))))
        }
    )*}};
}

binary! {
    /// `x + y`, wrapping. Integers and floats.
    add: Add of Numbers;
    /// `x - y`, wrapping. Integers and floats.
    sub: Sub of Numbers;
    /// `x * y`, wrapping. Integers and floats.
    mul: Mul of Numbers;
    /// Quotient truncated toward zero; undefined for y = 0. Integers.
    cdiv: CDiv;
    /// Remainder of `cdiv`, with the sign of x; undefined for y = 0. Integers.
    cmod: CMod;
    /// Quotient rounded down; undefined for y = 0. Integers.
    floordiv: FloorDiv;
    /// Remainder of `floordiv`, with the sign of y; undefined for y = 0. Integers.
    floormod: FloorMod;
    /// The greater of x and y; NaN if either is NaN. All dtypes. The greatest element of an axis is
    /// [`max`](Tensor::max).
    maximum: Max;
    /// The lesser of x and y; NaN if either is NaN. All dtypes.
    minimum: Min;
    /// `x^y` as C's pow; `e^y` if x is the constant nearest to e in f32 or f64. Floats.
    pow: Pow;
    /// `x < y` as bool. All dtypes.
    cmplt: CmpLt;
    /// `x != y` as bool, true if either is NaN. All dtypes.
    cmpne: CmpNe;
    /// Bitwise and; logical for bool. Bool and integers.
    and: And;
    /// Bitwise or; logical for bool. Bool and integers.
    or: Or;
    /// Bitwise exclusive or; logical for bool. Bool and integers.
    xor: Xor;
    /// `x * 2^y`, wrapping; undefined unless 0 <= y < bits. Integers.
    shl: Shl;
    /// `x / 2^y` rounded down; undefined unless 0 <= y < bits. Integers.
    shr: Shr;
    /// 64 random bits: Threefry-2x32 with 20 rounds (Random123, JAX, tinygrad) of the counter x
    /// with the key y. Word 0 of counter, key and result is the low 32 bits. u64.
    threefry: Threefry;
}

impl Tensor {
    /// Complement: logical for bool, bitwise for integers.
    /// # Errors
    /// If the dtype is a float.
    pub fn not(&self) -> Result<Tensor, Error> {
        check_dtype("not", Operands::Bits, self.dtype())?;
        let (op, ones) = match self.dtype() {
            DType::Bool => (Op::CmpNe, Constant::bool(true)),
            dtype => (Op::Xor, Constant::int(dtype, -1)),
        };
        Ok(Tensor::from_valid(with_shape(UOp::binary(
            op,
            self.uop(),
            constant_node(ones, self.shape()),
        ))))
    }

    /// `x == y` as bool, false if either is NaN. All dtypes.
    /// # Errors
    /// If shapes do not broadcast.
    pub fn cmpeq(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        self.cmpne(other)?.not()
    }

    /// `x / y`. Integers and bool become f32 first.
    /// # Errors
    /// If shapes do not broadcast.
    pub fn div(&self, other: impl Into<Operand>) -> Result<Tensor, Error> {
        let to_float = |tensor: &Tensor| match tensor.dtype().is_float() {
            true => Ok(tensor.clone()),
            false => tensor.cast(DType::F32),
        };
        let (x, y) = match other.into() {
            Operand::Tensor(y) if self.dtype().is_float() || y.dtype().is_float() => {
                (self.clone(), Operand::Tensor(y))
            }
            Operand::Tensor(y) => (to_float(self)?, Operand::Tensor(to_float(&y)?)),
            scalar => (to_float(self)?, scalar),
        };
        let (x, y) = pair("div", Operands::Floats, &x, y, check_shape)?;
        Ok(Tensor::from_valid(with_shape(UOp::binary(Op::FDiv, x, y))))
    }

    /// The tensor and an operand of a comparison, promoted and broadcast.
    pub(crate) fn compared(&self, name: &str, other: Operand) -> Result<(Tensor, Tensor), Error> {
        let (x, y) = pair(name, Operands::Any, self, other, check_shape)?;
        Ok((Tensor::from_valid(x), Tensor::from_valid(y)))
    }

    /// The op of pairs of elements, all of which a method reduces at once: none is stored, so that
    /// there may be more than of a tensor.
    pub(crate) fn combined(&self, op: Op, other: &Tensor) -> Result<Tensor, Error> {
        let operands = if op.is_comparison() { Operands::Any } else { Operands::Numbers };
        let (x, y) = pair(op.name(), operands, self, other.into(), check_reduced)?;
        Ok(Tensor::from_valid(with_shape(UOp::binary(op, x, y))))
    }

    /// `x` where `self` is true, else `y`. `self` is bool; x and y are promoted, all broadcast.
    /// # Errors
    /// If `self` is not bool, x and y are both scalars, or shapes do not broadcast.
    pub fn where_(&self, x: impl Into<Operand>, y: impl Into<Operand>) -> Result<Tensor, Error> {
        Tensor::select(self, x, y)
    }

    /// [`where_`](Tensor::where_) whose condition may be a scalar.
    /// # Errors
    /// As `where_`.
    pub fn select(
        condition: impl Into<Operand>,
        x: impl Into<Operand>,
        y: impl Into<Operand>,
    ) -> Result<Tensor, Error> {
        let condition = condition.into();
        if let Operand::Tensor(tensor) = &condition
            && tensor.dtype() != DType::Bool
        {
            let dtype = tensor.dtype();
            return invalid(format!(
                "where with a condition of {dtype}: the condition must be bool; use cmpne x 0"
            ));
        }
        let values = [x.into(), y.into()];
        let dtype = common_dtype("where", &values)?;
        let [x, y] = values;
        let shape = common_shape("where", &[&condition, &x, &y])?;
        let condition = operand_node(condition, DType::Bool, &shape)?;
        let (x, y) = (operand_node(x, dtype, &shape)?, operand_node(y, dtype, &shape)?);
        Ok(Tensor::from_valid(with_shape(UOp::select(condition, x, y))))
    }

    /// `self * factor + summand`, promoted and broadcast. The product may be rounded or not.
    /// # Errors
    /// If shapes do not broadcast, or the promoted dtype is bool.
    pub fn mulacc(
        &self,
        factor: impl Into<Operand>,
        summand: impl Into<Operand>,
    ) -> Result<Tensor, Error> {
        Tensor::multiply_accumulate(self, factor, summand)
    }

    /// [`mulacc`](Tensor::mulacc) whose first factor may be a scalar.
    /// # Errors
    /// As `mulacc`; also if all three are scalars.
    pub fn multiply_accumulate(
        x: impl Into<Operand>,
        y: impl Into<Operand>,
        z: impl Into<Operand>,
    ) -> Result<Tensor, Error> {
        let operands = [x.into(), y.into(), z.into()];
        let dtype = common_dtype("mulacc", &operands)?;
        check_dtype("mulacc", Op::MulAcc.row().operands, dtype)?;
        let shape = common_shape("mulacc", &operands.each_ref())?;
        let mut sources = Vec::with_capacity(3);
        for operand in operands {
            sources.push(operand_node(operand, dtype, &shape)?);
        }
        Ok(Tensor::from_valid(with_shape(UOp::new(Op::MulAcc, dtype, sources, Arg::None))))
    }

    /// Converts the elements to `dtype`. The result is undefined for a float outside of the range
    /// of an integer dtype.
    /// # Errors
    /// If `dtype` is void.
    pub fn cast(&self, dtype: DType) -> Result<Tensor, Error> {
        if dtype == DType::Void {
            return invalid("cast to void: choose a dtype of data");
        }
        Ok(Tensor::from_valid(cast_node(self.uop(), dtype)))
    }

    /// Reinterprets the bits of the elements as another dtype of the same size, without a
    /// derivative; as the same dtype they are the tensor itself, which has one.
    /// # Errors
    /// If the sizes differ or one of the dtypes is bool.
    pub fn bitcast(&self, dtype: DType) -> Result<Tensor, Error> {
        let from = self.dtype();
        let has_bool = from == DType::Bool || dtype == DType::Bool;
        if has_bool || from.size_bytes() != dtype.size_bytes() {
            return invalid(format!(
                "bitcast of {from} to {dtype}: both must have one size, and neither may be bool"
            ));
        }
        if from == dtype {
            return Ok(self.unchanged());
        }
        Ok(Tensor::from_valid(with_shape(UOp::unary(Op::Bitcast, dtype, self.uop()))))
    }
}

/// Promotes and broadcasts the operands of a binary op, whose shape is checked.
fn pair(
    name: &str,
    operands: Operands,
    x: &Tensor,
    y: Operand,
    check: fn(&[i64]) -> Result<i64, Error>,
) -> Result<(UOp, UOp), Error> {
    let sources = [Operand::from(x), y];
    let dtype = common_dtype(name, &sources)?;
    check_dtype(name, operands, dtype)?;
    let shape = broadcast_shape(name, &sources.each_ref(), check)?;
    let [x, y] = sources;
    Ok((operand_node(x, dtype, &shape)?, operand_node(y, dtype, &shape)?))
}

/// Converts an operand to a node of this dtype and shape.
fn operand_node(operand: Operand, dtype: DType, shape: &[i64]) -> Result<UOp, Error> {
    match operand {
        Operand::Tensor(tensor) => Ok(broadcast(cast_node(tensor.uop(), dtype), shape)),
        Operand::Scalar(scalar) => Ok(constant_node(scalar.element(dtype)?, shape)),
    }
}

/// Casts a node to a dtype; to bool as `x != 0`.
pub(crate) fn cast_node(node: UOp, dtype: DType) -> UOp {
    if node.dtype() == dtype {
        return node;
    }
    if dtype == DType::Bool {
        let shape = node.shape().expect("a node of tensor level has a shape");
        let zero = constant_node(Constant::zero(node.dtype()), shape);
        return with_shape(UOp::binary(Op::CmpNe, node, zero));
    }
    with_shape(UOp::unary(Op::Cast, dtype, node))
}

/// The promoted dtype of the tensors among the operands.
fn common_dtype(name: &str, operands: &[Operand]) -> Result<DType, Error> {
    let dtypes = operands.iter().filter_map(|operand| match operand {
        Operand::Tensor(tensor) => Some(tensor.dtype()),
        Operand::Scalar(_) => None,
    });
    match dtypes.reduce(promote) {
        Some(dtype) => Ok(dtype),
        None => invalid(format!("{name} of scalars only: one operand must be a tensor")),
    }
}

/// The shape that all operands broadcast to: aligned at the last axis, sizes equal or 1. Operands
/// on different devices are refused.
pub(crate) fn common_shape(name: &str, operands: &[&Operand]) -> Result<Vec<i64>, Error> {
    broadcast_shape(name, operands, check_shape)
}

/// [`common_shape`], which is checked unless it is that of an operand.
fn broadcast_shape(
    name: &str,
    operands: &[&Operand],
    check: fn(&[i64]) -> Result<i64, Error>,
) -> Result<Vec<i64>, Error> {
    let tensors = operands.iter().filter_map(|operand| match operand {
        Operand::Tensor(tensor) => Some(tensor.uop()),
        Operand::Scalar(_) => None,
    });
    check_devices(name, tensors)?;
    let mut shape: Vec<i64> = Vec::new();
    for operand in operands {
        let Operand::Tensor(tensor) = operand else { continue };
        let missing = tensor.rank().saturating_sub(shape.len());
        shape.splice(0..0, std::iter::repeat_n(1, missing));
        let start = shape.len() - tensor.rank();
        let before = shape.clone();
        for (size, operand_size) in shape[start..].iter_mut().zip(tensor.shape()) {
            if *size != *operand_size && *size != 1 && *operand_size != 1 {
                return invalid(format!(
                    "{name} of shapes {before:?} and {:?}: aligned at the last axis, sizes \
                     must be equal or 1",
                    tensor.shape()
                ));
            }
            *size = if *size == 1 { *operand_size } else { *size };
        }
    }
    let has_shape = |operand: &&Operand| match operand {
        Operand::Tensor(tensor) => *tensor.shape() == *shape,
        Operand::Scalar(_) => false,
    };
    if !operands.iter().any(has_shape) {
        check(&shape)?;
    }
    Ok(shape)
}
