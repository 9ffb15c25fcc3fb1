//! A case file: one program, view sequence or expression, its story, and what is expected of it.

use crate::{Array, ExprCase, Program, Shape, ViewOps};

/// One file of the corpus.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseFile {
    /// The leading comment lines, without `#`: what the case shows, or what went wrong.
    pub story: Vec<String>,
    /// The case itself.
    pub case: Case,
    /// The `expect` lines, in order.
    pub expects: Vec<Expect>,
}

/// What a case file holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Case {
    /// A tensor program.
    Program(Program),
    /// A movement sequence for the view algebra.
    Views(ViewOps),
    /// An expression for the index algebra.
    Expr(ExprCase),
}

/// What must hold of a case. `Fires` is for all kinds, `Kernels` and `Values` are for programs,
/// `Text` and `Range` for expressions, all others for view sequences.
#[derive(Clone, Debug, PartialEq)]
pub enum Expect {
    /// All realised outputs (and `realize` statements) together take so many kernels.
    Kernels(usize),
    /// An output's elements.
    Values {
        /// Position in `Program::outputs`.
        output: usize,
        /// The elements; dtype and shape are the output's.
        array: Array,
    },
    /// The rendered index. Its variables are loop ranges `ridx0`, `ridx1`, ... or, where the text
    /// says so, kernel variables `idx0`, `idx1`, ...
    Index(String),
    /// The rendered validity, with the same variables.
    Valid(String),
    /// How many views the tracker has, as the operations leave it.
    Views(usize),
    /// How many views it has when no operation may merge into the view before.
    Unmerged(usize),
    /// Whether the tracker is one contiguous view.
    Contiguous(bool),
    /// One view of the tracker.
    View {
        /// Its number; 0 is nearest to the buffer.
        number: usize,
        /// Sizes.
        shape: Shape,
        /// Elements from one index to the next, for each axis.
        strides: Vec<i64>,
        /// Position of index 0 in elements.
        offset: i64,
        /// Half-open range of valid indices for each axis, if not all are.
        mask: Option<Vec<(i64, i64)>>,
    },
    /// The tracker's stride for each axis, `None` where it has no single one.
    RealStrides(Vec<Option<i64>>),
    /// How many elements of the buffer may be touched, counted from its start.
    RealSize(usize),
    /// The same of the tracker after `simplify`: `Index`, `Valid`, `Views`, `Contiguous`, `View`.
    Simplified(Box<Expect>),
    /// The rendered expression after rewriting.
    Text(String),
    /// Smallest and largest value (inclusive) that range analysis gives.
    Range(i64, i64),
    /// The rewrite rule of this name applies at least once: on the way of a program's kernels to
    /// the device `interp`, of a tracker's index and validity, of an expression.
    Fires(String),
}
