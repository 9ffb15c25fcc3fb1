//! The tables of rules, the language that they are written in, and which tables are in use.
//!
//! A side is a name or `(op source ...)`; ops have the names of the op table, and `(not x)` stands
//! for `(cmpne x true)`. Names `c0`, `c1`, ... match constants, other names match any node; one
//! name twice asks for one node. `s@(op ...)` names a node, and `root` is the whole left side.
//! Numbers, `true` and `false` match constants by bits: `0.0` and `-0.0` are two, `0` in a float
//! rule is `0.0`. A left side that is a name alone is tried on every elementwise op.
//!
//! On the right, names stand for what they matched, numbers take the dtype of their place, and
//! `{...}` is a constant computed by the language of conditions: integers of unlimited meaning
//! (i128, checked) with `+ - * // %` (floored), `cdiv(a, b)`, `cmod(a, b)` (cut), `gcd(a, b)`,
//! comparisons, `&& || !`, `fits(a, x)` (a is a value of x's dtype), and of nodes `min(x)`,
//! `max(x)`, `bits(x)`, `isint(x)`, `isbool(x)`, `same(x, y)`, `exact(x, y)` (y's dtype has every
//! value of x), `nowrap(s)` (s's own op never wraps), `linear(x)` (x's value is its exact sum:
//! read through additions, negations and products with constants, it stays in the dtype's range),
//! `before(x, y)` (x stands first in the canonical order of operands), `sameop(x, y)`,
//! `operands(x)` (of a chain of x's op, 17 if there are more than 16 or a part of the chain stands
//! in it twice), `exactsum(c0, c1)` and `power2(c0)` for floats. What cannot be computed is false.
//! `@name` on the right names a function in `computed`.
//!
//! Equations, `x = w * c0 + r by multiples`, take a sum apart: the finder gives names that the left
//! side does not bind, and the equation is checked between the exact sums before the rule goes
//! on. `//` and `%` (floored), `cdiv` and `cmod` in an equation are nodes that are there. Of such a
//! name `min`, `max` and `linear` speak of its exact sum.
//!
//! `(reduce.add v r)` reduces v by + over the range r; on the left r may be any one of several
//! ranges, and the reduction over the others stays around the right side. `free(v, r)` says that v
//! is not made from r, `size(r)` is the trip count of r.
//!
//! `x + y`, `x - y` and `x * y` wrap; a rule about order or division asks that nothing wraps.

mod algebra;
mod boolean;
mod cast;
mod compare;
mod divmod;
mod float;
mod late;
mod memory;
mod reduce;
mod validity;

use crate::rule::Rule;

pub use crate::loaded::{is_changed, row, rows, with_rows};

/// The tables with `rows` in place of those of the same names; new names are added to the table
/// that they begin with, else to the last one.
pub(crate) fn changed(tables: &[&[Rule]], rows: &[Rule]) -> Vec<Vec<Rule>> {
    let mut tables: Vec<Vec<Rule>> = tables.iter().map(|table| table.to_vec()).collect();
    let table_of = |name: &str| name.split('/').next().map(str::to_owned);
    for row in rows {
        let place = tables.iter_mut().flatten().find(|known| known.name == row.name);
        if let Some(place) = place {
            *place = *row;
        } else if !all().any(|known| known.name == row.name) {
            let is_its = |table: &&mut Vec<Rule>| {
                table.first().is_some_and(|first| table_of(first.name) == table_of(row.name))
            };
            if let Some(table) = tables.iter_mut().find(is_its) {
                table.push(*row);
            }
        }
    }
    tables
}

/// All rows.
pub(crate) fn all() -> impl Iterator<Item = &'static Rule> {
    SYMBOLIC.iter().copied().chain([REDUCE, LATE]).flatten()
}

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
