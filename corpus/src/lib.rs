//! Test cases as plain data: programs, view sequences, expressions; parser, printer, binary form.
//!
//! In: text or bytes. Out: data that are checked to be well formed. Evaluates no program: the
//! oracle and the engine do, independently of each other.

mod binary;
mod case;
mod data;
mod dtype;
mod element;
mod embedded;
mod expr;
mod geometry;
mod json;
mod methods;
mod program;
mod repair;
mod sources;
mod text;
mod typing;
mod views;

pub use binary::{decode, encode};
pub use case::{Case, CaseFile, Expect};
pub use data::{Array, fill, splitmix64};
pub use dtype::DType;
pub use element::{float_value, format_element, literal_bits};
pub use embedded::embedded;
pub use expr::{Expr, ExprBinary, ExprCase, ExprUnary, MAX_EXPR_DEPTH, Var};
pub use json::{dtypes, expr_name, expr_to_json, name, names, to_json, views_to_json};
pub use methods::{
    Arg, ArgKind, Args, Arity, INDEXINGS, INTERPOLATIONS, Index, Method, REDUCTIONS, SCATTERED,
    axes, axis,
};
pub use program::{
    BinaryOp, Distribution, Fill, Literal, Operand, Program, ReduceOp, Shape, Statement, UnaryOp,
    ValueId,
};
pub use text::{ParseError, parse};
pub use typing::{MAX_ELEMENTS, MAX_RANK, TensorType, TypeError, promote, statement_type};
pub use views::{ViewOp, ViewOps};
