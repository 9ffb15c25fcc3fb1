//! The tables of rules, the language that they are written in, and which tables are in use.
//!
//! A side is a name or `(op source ...)`; ops have the names of the op table, and `(not x)` stands
//! for `(cmpne x true)`. Names `c0`, `c1`, ... match constants, other names match any node; a name
//! that occurs twice matches the same node. `s@(op ...)` names a node, and `root` is the whole left
//! side. Numbers, `true` and `false` match constants by bits: `0.0` and `-0.0` are two, `0` in a
//! float rule is `0.0`. A left side that is a name alone is tried on every elementwise op.
//!
//! On the right, names stand for the nodes that they matched, numbers take the dtype of their
//! position, and `{...}` is a constant computed by the language of conditions: exact integers
//! (i128, checked) with `+ - * // %` (floored), `cdiv(a, b)`, `cmod(a, b)` (truncated),
//! `gcd(a, b)`, comparisons, `&& || !`, `fits(a, x)` (a is a value of x's dtype), and of nodes
//! `min(x)`, `max(x)`, `bits(x)`, `isint(x)`, `isbool(x)`, `same(x, y)`, `exact(x, y)` (y's dtype
//! has every value of x), `nowrap(s)` (s's own op never wraps), `linear(x)` (x's value is its exact
//! sum: read through additions, negations and products with constants, it stays in the dtype's
//! range), `before(x, y)` (x precedes y in the canonical order of operands), `sameop(x, y)`,
//! `operands(x)` (the number of operands of a chain of x's op; 17 if there are more than 16 or the
//! chain contains a part of itself twice or a shared value), `exactsum(c0, c1)` and `power2(c0)`
//! for floats. A condition that cannot be computed is false. `@name` on the right names a function
//! in `computed`.
//!
//! Equations, `x = w * c0 + r by multiples`, split a sum: the finder binds names that the left side
//! does not bind, and the equation is checked between the exact sums before the rule goes on. `//`
//! and `%` (floored), `cdiv` and `cmod` in an equation are nodes of the graph. `min`, `max` and
//! `linear` of a name that an equation binds are about its exact sum.
//!
//! `(reduce.add v r)` reduces v by + over the range r; on the left r may be any one of several
//! ranges, and the right side is then reduced over the other ranges. `free(v, r)` is true if v does
//! not depend on r, `size(r)` is the trip count of r.
//!
//! `x + y`, `x - y` and `x * y` wrap; a rule about order or division requires that nothing wraps.

mod algebra;
mod boolean;
mod cast;
mod compare;
mod contract;
mod divmod;
mod float;
mod late;
mod legal;
mod memory;
mod reduce;
mod validity;

use crate::legalization::Legalization;
use crate::rule::Rule;

pub use crate::loaded::{is_changed, row, rows, with_rows};

/// The tables of [`crate::symbolic`], in the order in which they are tried.
pub(crate) const SYMBOLIC: [&[Rule]; 8] = [
    algebra::ALGEBRA,
    boolean::BOOLEAN,
    compare::COMPARE,
    divmod::DIVMOD,
    cast::CAST,
    float::FLOAT,
    memory::MEMORY,
    validity::VALIDITY,
];

/// The table of reductions over ranges, tried before those of [`SYMBOLIC`] in [`crate::collapse`].
pub(crate) const REDUCE: &[Rule] = reduce::REDUCE;

/// The table of [`crate::late`].
pub(crate) const LATE: &[Rule] = late::LATE;

/// The table of [`crate::contract`].
pub(crate) const CONTRACT: &[Rule] = contract::CONTRACT;

/// The tables of [`crate::Legal`].
pub(crate) const LEGAL: &[(Legalization, &[Rule])] = legal::LEGAL;
