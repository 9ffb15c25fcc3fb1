//! The tables of rules, and the language that they are written in.
//!
//! A side is a name or `(op source ...)`; ops have the names of the op table, and `(not x)` stands
//! for `(cmpne x true)`. Names `c0`, `c1`, ... match constants, other names match any node; one
//! name twice asks for one node. `s@(op ...)` names a node, and `root` is the whole left side.
//! Numbers, `true` and `false` match constants by bits: `0.0` and `-0.0` are two, `0` in a float
//! rule is `0.0`. A left side that is a name alone is tried on every elementwise op.
//!
//! On the right, names stand for what they matched, numbers take the dtype of their place, and
//! `{...}` is a constant computed by the language of conditions: integers of unlimited meaning
//! (i128, checked) with `+ - * // %` (floored), comparisons, `&& || !`, `gcd(a, b)`,
//! `fits(a, x)` (a is a value of x's dtype), and of nodes `min(x)`, `max(x)`, `bits(x)`,
//! `isint(x)`, `isbool(x)`, `same(x, y)`, `exact(x, y)` (y's dtype has every value of x),
//! `nowrap(s)` (s's own op never wraps), `exactsum(c0, c1)` and `power2(c0)` for floats. What
//! cannot be computed is false. `@name` on the right names a function in `computed`.
//!
//! `x + y`, `x - y` and `x * y` wrap; a rule about order or division asks that nothing wraps.

mod algebra;
mod boolean;
mod cast;
mod compare;
mod divmod;
mod faults;
mod late;
mod memory;
mod validity;

use crate::rule::Rule;

pub(crate) use faults::with_faults;

/// The tables of [`crate::symbolic`], in the order in which they are tried.
pub const SYMBOLIC: [&[Rule]; 7] = [
    algebra::ALGEBRA,
    boolean::BOOLEAN,
    compare::COMPARE,
    divmod::DIVMOD,
    cast::CAST,
    memory::MEMORY,
    validity::VALIDITY,
];

/// The table of [`crate::late`].
pub const LATE: &[Rule] = late::LATE;
