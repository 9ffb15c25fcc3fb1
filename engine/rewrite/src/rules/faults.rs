//! Planted faults: rows that are wrong on purpose, to measure whether they are found.
//!
//! A fault replaces fields of one row when the tables are loaded, so it must be switched on before
//! the first rewrite. Without the cargo feature `faults` no fault is ever active.

use gradiff_graph::fault::{self, Fault};

use crate::rule::{Claim, Rule, Types};

/// A changed row: the fault, the rule's name, what the rule then says.
struct Change {
    fault: Fault,
    name: &'static str,
    change: fn(Rule) -> Rule,
}

const CHANGES: [Change; 13] = [
    Change {
        fault: Fault::RuleAddFoldConstant,
        name: "algebra/add-add-const",
        change: |rule| Rule { rhs: "(add x (sub c0 c1))", ..rule },
    },
    Change {
        fault: Fault::RuleAddFoldConstant,
        name: "algebra/add-add-const-float",
        change: |rule| Rule { rhs: "(add x (sub c0 c1))", ..rule },
    },
    Change {
        fault: Fault::RuleModConditionDropped,
        name: "divmod/floormod-in-range",
        change: |rule| Rule { when: "", ..rule },
    },
    Change {
        fault: Fault::RuleCdivAsFloordiv,
        name: "divmod/cdiv-to-floor",
        change: |rule| Rule { when: "", ..rule },
    },
    Change {
        fault: Fault::RuleCdivAsFloordiv,
        name: "divmod/cmod-to-floor",
        change: |rule| Rule { when: "", ..rule },
    },
    Change {
        fault: Fault::RuleCmpOffByOne,
        name: "compare/less-factor",
        change: |rule| Rule { rhs: "(cmplt w {1 - ((min(r) - c0) // c1)})", ..rule },
    },
    Change {
        fault: Fault::CollapseCountOffByOne,
        name: "reduce/count-below",
        change: one_step_more,
    },
    Change {
        fault: Fault::CollapseCountOffByOne,
        name: "reduce/count-from",
        change: one_step_more,
    },
    Change {
        fault: Fault::CollapseCountOffByOne,
        name: "reduce/count-true-below",
        change: one_step_more,
    },
    Change {
        fault: Fault::CollapseCountOffByOne,
        name: "reduce/count-true-from",
        change: one_step_more,
    },
    Change {
        fault: Fault::CollapseCountOffByOne,
        name: "reduce/count-between",
        change: one_step_more,
    },
    Change {
        fault: Fault::CollapseCountOffByOne,
        name: "reduce/count-between-swapped",
        change: one_step_more,
    },
    Change {
        fault: Fault::RuleMulZeroFloat,
        name: "algebra/mul-zero",
        change: |rule| Rule { types: Types::Any, claim: Claim::Bits, ..rule },
    },
];

/// Counts one step too many before the clamp.
fn one_step_more(rule: Rule) -> Rule {
    Rule { rhs: rule.rhs.replacen("{c0 - 1}", "c0", 1).leak(), ..rule }
}

/// The tables with the rows that the active fault changes.
pub(crate) fn with_faults(tables: &[&[Rule]]) -> Vec<Vec<Rule>> {
    let mut tables: Vec<Vec<Rule>> = tables.iter().map(|table| table.to_vec()).collect();
    for change in CHANGES.iter().filter(|change| fault::is_active(change.fault)) {
        let rows = tables.iter_mut().flatten();
        rows.filter(|rule| rule.name == change.name)
            .for_each(|rule| *rule = (change.change)(*rule));
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_names_a_row_and_makes_it_another() {
        let rows: Vec<&Rule> = crate::rules::all().collect();
        for change in &CHANGES {
            let row = rows.iter().find(|row| row.name == change.name).expect(change.name);
            let changed = (change.change)(**row);
            assert_ne!(changed.to_string(), row.to_string());
            let is_false = match change.name.starts_with("reduce/") {
                true => crate::reduce_check::check(changed).is_err(),
                false => crate::proof::exhaust(&changed).is_err(),
            };
            assert!(is_false, "{} stays sound", change.name);
        }
    }
}
