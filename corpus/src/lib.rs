//! Cases as plain data: programs, view sequences, expressions; parser, printer, binary form.

mod dtype;
mod program;

pub use dtype::DType;
pub use program::{
    BinaryOp, Distribution, Fill, Literal, Operand, Program, ReduceOp, Shape, Statement, UnaryOp,
    ValueId,
};
