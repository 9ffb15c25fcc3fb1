//! The one IR: dtypes, constants, the op table, interned UOps, linear uops.

mod algebra;
mod axis;
mod bounded;
mod constant;
mod dtype;
mod evaluate;
mod infix;
pub mod interval;
mod linear;
mod linear_text;
mod op;
mod sint;
mod target;
mod tensor_core;
mod text;
mod thresholds;
mod uop;
mod verify;

pub use algebra::UopAlgebra;
pub use axis::{Axis, AxisKind};
pub use bounded::BoundedLinear;
pub use constant::Constant;
pub use dtype::DType;
pub use evaluate::{THREEFRY_PARITY, THREEFRY_ROTATIONS, evaluate};
pub use infix::infix;
pub use interval::Interval;
pub use linear::{Instruction, Linear};
pub use linear_text::parse_linears;
pub use op::{Class, Identity, OPS, Op, OpRow, Operands};
pub use sint::{NotASize, SInt};
pub use target::{FUNCTIONS, Functions, Groups, Target, Vectors};
pub use tensor_core::{Bit, Coordinates, Layout, TENSOR_CORES, TensorCore};
pub use text::{TextError, parse_text};
pub use thresholds::Thresholds;
pub use uop::{Arg, Buffer, Dims, Global, Local, Pairs, Sources, UOp, Variable};
pub use verify::{VerifyError, verify, verify_kernel, verify_linear, verify_tree_node};
