//! The one IR: dtypes, constants, the op table, interned UOps, linear uops.

mod algebra;
mod axis;
mod bounded;
mod constant;
mod dtype;
mod estimates;
pub mod evaluate;
mod infix;
pub mod interval;
mod linear;
mod linear_text;
pub mod op;
mod placement;
pub mod sint;
pub mod target;
pub mod tensor_core;
pub mod text;
mod thresholds;
mod uop;
pub mod verify;

pub use algebra::UopAlgebra;
pub use axis::{Axis, AxisKind};
pub use bounded::{BoundedLinear, LOCAL_BYTES_MAX};
pub use constant::Constant;
pub use dtype::DType;
pub use estimates::Estimates;
pub use evaluate::evaluate;
pub use linear::{Instruction, Linear};
pub use op::Op;
pub use placement::Placement;
pub use target::Target;
pub use uop::{Arg, Buffer, Dims, Global, Local, Pairs, Sources, UOp, Variable};
