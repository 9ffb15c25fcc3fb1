//! Legalisation: ops that a language or a device does not support become ops that it supports, by
//! the tables of `rules/legal.rs`.

use std::sync::Arc;

use gradiff_graph::{DType, Op, UOp};

use crate::driver::{Options, Trace, rewrite};
use crate::legalization::Legalization;
use crate::loaded;
use crate::ruleset::RuleSet;
use crate::wide;

/// The tables of some legalisations, in the order in which they are applied.
pub struct Legal(Vec<(Legalization, Arc<RuleSet>)>);

impl Legal {
    /// The tables of these legalisations.
    pub fn new(required: &[Legalization]) -> Legal {
        let mut tables = loaded::loaded().legal;
        tables.retain(|(table, _)| required.contains(table));
        Legal(tables)
    }

    /// All tables.
    pub fn all() -> Legal {
        Legal(loaded::loaded().legal)
    }

    /// Returns whether a table may have a row for an op over operands of this dtype.
    pub fn concerns(&self, op: Op, dtype: DType) -> bool {
        self.0.iter().any(|(table, rules)| match table {
            Legalization::Half => wide::is_half_arithmetic(op, dtype),
            Legalization::Narrow => wide::may_wrap(op, dtype),
            _ => rules.has_rules_for(op, dtype),
        })
    }

    /// Applies one table after the other.
    pub fn rewrite(&self, root: &UOp, options: &Options, trace: &mut Trace) -> UOp {
        let apply =
            |root, (_, rules): &(Legalization, Arc<RuleSet>)| rewrite(&root, rules, options, trace);
        self.0.iter().fold(root.clone(), apply)
    }
}
