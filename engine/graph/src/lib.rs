//! The one IR: dtypes, constants, the op table, interned UOps, linear uops.
