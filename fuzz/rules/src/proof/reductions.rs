//! Tests of rules about reductions over ranges: left sides are drawn, and wherever the rule
//! applies, both sides are compared at drawn points.
//!
//! Left sides are drawn by [`instance`], as for the mutants of rules, and points by [`difference`],
//! as for blame.

use gradiff_graph::text::infix;
use gradiff_graph::{DType, Op, UOp};
use gradiff_rewrite::RuleSet;
use gradiff_rewrite::syntax::ParsedRule;

use super::CounterExample;
use crate::instance::instance;
use crate::witness::{Hint, difference};

/// The number of left sides that are drawn for a rule.
const DRAWS: usize = 8_000;

/// The maximum number of points at which a left side is tried.
pub(super) const POINTS: usize = 24;

/// The maximum trip count of a reduction that is evaluated.
const TRIPS: i128 = 300;

/// The dtypes of the left sides, taken in turn. i8 occurs twice, since values of few bits wrap most
/// often, and that is where most rules about integers go wrong.
const DTYPES: [DType; 5] = [DType::I8, DType::U8, DType::I32, DType::F32, DType::I8];

/// Checks a rule, and returns the number of left sides to which the rule applied.
///
/// # Errors
/// The first point at which the sides differ.
pub(super) fn check(rule: &ParsedRule, set: &RuleSet) -> Result<usize, Box<CounterExample>> {
    let mut state = 1;
    let mut dice = |count: u64| below(&mut state, count);
    let mut applied = 0;
    for number in 0..DRAWS {
        let dtype = DTYPES[number % DTYPES.len()];
        let left = instance(&rule.row, dtype, &mut dice).filter(is_small);
        let Some(left) = left else { continue };
        let Some(right) = rule.apply(&left, set) else { continue };
        applied += 1;
        if let Some(found) = difference(&left, &right, rule.row.claim, &Hint::new(), POINTS) {
            let (dtype, sides) = (left.dtype().to_string(), [infix(&left), infix(&right)]);
            let (values, results) = (found.values, found.results);
            return Err(Box::new(CounterExample { values, dtype, sides, results }));
        }
    }
    Ok(applied)
}

/// Returns whether a left side is a reduction whose ranges together have at most [`TRIPS`]
/// iterations.
fn is_small(left: &UOp) -> bool {
    let ends = left.src()[1..].iter().map(|range| range.src().first()?.as_int());
    let trips = ends.into_iter().try_fold(1i128, |trips, end| trips.checked_mul(end?));
    left.op() == Op::Reduce && trips.is_some_and(|trips| trips <= TRIPS)
}

/// A random number below `count` (splitmix64).
fn below(state: &mut u64, count: u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) % count
}

#[cfg(test)]
mod tests {
    use gradiff_rewrite::Rule;
    use gradiff_rewrite::rules::rows;
    use rayon::prelude::*;

    use crate::proof::exhaust::exhaust;
    use crate::proof::parse_row;

    #[test]
    fn every_row_keeps_its_claim() {
        let problem = |rule: &Rule| match exhaust(rule) {
            Err(problem) => Some(format!("{}: {problem}", rule.name)),
            Ok(found) if found.fired < 5 => {
                Some(format!("{} fired {} times", rule.name, found.fired))
            }
            Ok(_) => None,
        };
        let mut rules = rows();
        rules.retain(|rule| rule.name.starts_with("reduce/"));
        let problems: Vec<String> = rules.par_iter().filter_map(problem).collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }

    #[test]
    fn check_false_rows_fails() {
        let read = |text| parse_row(text).expect("a row");
        let named = |name: &str| rows().into_iter().find(|rule| rule.name == name).expect("a row");
        let without = |name: &str, part: &str| {
            let rule = named(name);
            assert!(rule.when.contains(part), "{name}");
            Rule { when: rule.when.replace(part, "0 == 0").leak(), ..rule }
        };
        let rows = [
            read("test/varies any: (reduce.add v r) => (mul v {size(r)}) when isint(v)"),
            read("test/one any: (reduce.max v r) => v when free(v, r)"),
            read(
                "test/special any Ulp(1): (reduce.add v r) => (fdiv v (sub v v)) \
                 when !isint(v) && free(v, r)",
            ),
            without("reduce/max-of-sum", "nowrap(s)"),
            without("reduce/max-of-product", "c0 > 0"),
            without("reduce/sum-of-product", "free(y, r)"),
            without("reduce/sum-of-chosen", "free(s, r)"),
            without("reduce/count-below", "fits(max(x) - min(w) + c0, x)"),
            without("reduce/count-below", "fits(max(x) + 1, x)"),
            without("reduce/count-below", "free(w, r)"),
            without("reduce/count-below", "free(v, r)"),
            without("reduce/count-between", "max(y) <= min(z)"),
        ];
        for rule in rows {
            assert!(exhaust(&rule).is_err(), "{} where {}", rule.name, rule.when);
        }
    }
}
