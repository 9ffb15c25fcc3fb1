//! A case file: a program, view sequence or expression, its description, and the expectations.

use crate::{Array, ExprCase, Program, Shape, ViewOps};

/// A file of the corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseFile {
    /// The leading comment lines, without `#`: the purpose of the case, or what went wrong.
    pub description: Vec<String>,
    /// The case itself.
    pub case: Case,
    /// The `expect` lines, in order.
    pub expects: Vec<Expect>,
}

/// The content of a case file.
#[derive(Clone, Debug, PartialEq)]
pub enum Case {
    /// A tensor program.
    Program(Program),
    /// A movement sequence for the view algebra.
    Views(ViewOps),
    /// An expression for the index algebra.
    Expr(ExprCase),
}

/// An expectation of a case. `Fires` applies to all kinds of cases, `Kernels` and `Values` to
/// programs, `Text` and `Range` to expressions, all others to view sequences.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// Number of kernels of all realised outputs and `realize` statements together.
    Kernels(usize),
    /// Elements of an output.
    Values {
        /// Index in `Program::outputs`, which lists the value once.
        output: usize,
        /// The elements; dtype and shape are the output's.
        array: Array,
    },
    /// The rendered index. Its variables are loop ranges `ridx0`, `ridx1`, ... or, if the text uses
    /// them, kernel variables `idx0`, `idx1`, ...
    Index(String),
    /// The rendered validity, with the same variables.
    Valid(String),
    /// Number of views of the tracker after the operations.
    Views(usize),
    /// Number of views if no operation is merged into the view before it.
    Unmerged(usize),
    /// True if the tracker is a single contiguous view.
    Contiguous(bool),
    /// A view of the tracker.
    View {
        /// Its number; 0 is the view of the buffer itself.
        number: usize,
        /// Sizes of the axes.
        shape: Shape,
        /// Stride of each axis, in elements.
        strides: Vec<i64>,
        /// Position of index 0, in elements.
        offset: i64,
        /// Half-open range of valid indices for each axis; `None` if all are valid.
        mask: Option<Vec<(i64, i64)>>,
    },
    /// The tracker's stride for each axis, `None` where it has no single one.
    RealStrides(Vec<Option<i64>>),
    /// Number of elements, from the start of the buffer, that may be accessed.
    RealSize(usize),
    /// An expectation of the tracker after `simplify`: `Index`, `Valid`, `Views`, `Contiguous` or
    /// `View`.
    Simplified(Box<Expect>),
    /// The rendered expression after rewriting.
    Text(String),
    /// Smallest and largest value (inclusive) from range analysis.
    Range(i64, i64),
    /// Name of a rewrite rule that applies at least once: in the lowering of a program's kernels
    /// for the device `interp`, or in the rewriting of a tracker's index and validity, or of an
    /// expression.
    Fires(String),
}
