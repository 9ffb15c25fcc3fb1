//! Where an element lies, as an expression: for whoever can build one.

/// A builder of integer index expressions and conditions over them. The graph builds nodes;
/// tests build numbers.
pub trait IndexAlgebra {
    /// An expression: an integer or a condition.
    type Expr: Clone;

    /// An integer.
    fn constant(&mut self, value: i64) -> Self::Expr;
    /// `x + y`.
    fn add(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
    /// `x * y`.
    fn mul(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
    /// `x / y` rounded down; `y` is positive.
    fn floordiv(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
    /// `x - y * (x / y)`; `y` is positive.
    fn floormod(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
    /// `x < y`, a condition.
    fn lt(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
    /// `x >= y`, a condition.
    fn ge(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
    /// Both conditions.
    fn and(&mut self, x: Self::Expr, y: Self::Expr) -> Self::Expr;
}
