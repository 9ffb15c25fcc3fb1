//! Verdicts on rules: proved, tried exhaustively, refuted, open.
//!
//! A proof needs nothing but the row: [`obligations`] turns it into SMT-LIB 2 (each query must be
//! unsatisfiable), `exhaust` builds small left sides, applies the rule and compares both sides
//! point by point. The two share no model of arithmetic, so each checks the other. [`decide`] asks
//! both; no process is started here, the solver is a function of the caller. The verdicts are kept
//! in a ledger ([`verdict`]), so that a build needs no solver.

mod decide;
mod encode;
mod exhaust;
mod floats;
mod induction;
mod instance;
mod judge;
mod ledger;
mod lemmas;
mod model;
mod names;
mod number;
mod parsed;
mod reductions;
mod statics;
mod terms;
mod text;
mod typing;

use gradiff_graph::{Constant, UOp};
use gradiff_rewrite::Rule;
use gradiff_rewrite::syntax::{ParsedRule, is_constant_name};

pub use decide::Answer;
pub use exhaust::CounterExample;
pub use floats::whole_floats;
pub use ledger::{Entry, entries, entry, fingerprint, ledger, verdict};
pub use lemmas::TEMPLATES as LEMMAS;
pub use text::parse_row;

use decide::Finding;
use encode::Type;
use exhaust::exhaust;
use typing::Typing;

use crate::leaves;

/// The verdict on a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every obligation was proved, for all dtypes, and small cases agree.
    Proved,
    /// Small cases agree; the solver has no answer.
    Exhausted,
    /// It is false.
    Refuted(Box<CounterExample>),
    /// Nothing is known, for this reason.
    Open(String),
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Verdict::Proved => "proved",
            Verdict::Exhausted => "exhausted",
            Verdict::Refuted(_) => "refuted",
            Verdict::Open(_) => "open",
        })
    }
}

/// Proof obligation: a query that must be unsatisfiable.
#[derive(Clone, Debug)]
pub struct Obligation {
    /// The dtypes, the encoding and the goal, in words.
    pub label: String,
    /// SMT-LIB 2: declarations and assumptions.
    pub premises: String,
    /// The term that must follow from the premises.
    pub goal: String,
    /// The names to ask for if there is a counter-example.
    pub values: Vec<String>,
}

impl Obligation {
    /// The query, `(check-sat)` included.
    pub fn smt(&self) -> String {
        format!("{}(assert (not {}))\n(check-sat)\n", self.premises, self.goal)
    }
}

/// Part of a rule that has no SMT-LIB terms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsupported(pub(crate) String);

impl Unsupported {
    fn new(problem: &str) -> Unsupported {
        Unsupported(problem.to_owned())
    }
}

/// The queries of a rule that are asked first.
///
/// # Errors
/// The row cannot be parsed, or has a part without terms: then it can only be exhausted.
pub fn obligations(rule: &Rule) -> Result<Vec<Obligation>, String> {
    let rule = ParsedRule::new(*rule)?;
    decide::obligations(&rule).map_err(|Unsupported(problem)| problem)
}

/// Decides a rule; returns the verdict and a note on what was not proved. Without a solver (`None`)
/// nothing is proved, but a rule that is false on small cases is still refuted.
pub fn decide(
    rule: &Rule,
    ask: Option<&mut dyn FnMut(&Obligation) -> Answer>,
) -> (Verdict, String) {
    let parsed = match ParsedRule::new(*rule) {
        Ok(parsed) => parsed,
        Err(problem) => return (Verdict::Open(problem), String::new()),
    };
    let exhausted = match exhaust(rule) {
        Ok(exhausted) => exhausted,
        Err(example) => return (Verdict::Refuted(example), String::new()),
    };
    let finding = match ask {
        Some(ask) => decide::decide(&parsed, ask),
        None => Err(Unsupported::new("no solver was asked")),
    };
    let note = match finding {
        Ok(Finding::Proved) if exhausted.fired > 0 => return (Verdict::Proved, String::new()),
        Ok(Finding::Proved) => String::new(),
        Ok(Finding::Sat { types, values, label }) => {
            return match replayed(rule, &parsed, &types, &values) {
                Some(example) => (Verdict::Refuted(example), String::new()),
                None => {
                    let values = values.split_whitespace().collect::<Vec<_>>().join(" ");
                    (Verdict::Open(format!("{label} does not hold for {values}")), String::new())
                }
            };
        }
        Ok(Finding::Open(problem)) | Err(Unsupported(problem)) => problem,
    };
    if exhausted.fired == 0 {
        return (Verdict::Open(String::from("the rule applied to no small case")), note);
    }
    (Verdict::Exhausted, note)
}

/// The solver's counter-example, found again by applying the rule.
fn replayed(
    rule: &Rule,
    parsed: &ParsedRule,
    types: &[Option<Type>],
    values: &str,
) -> Option<Box<CounterExample>> {
    let typing = Typing::new(parsed);
    let slots = 1..parsed.name_count();
    let slot_of = |name: &str| slots.clone().find(|slot| parsed.name(*slot) == name);
    let dtype_of = |name: &str| {
        let class = typing.of_slot(slot_of(name)?)?;
        types[class]?.dtype()
    };
    let node = |(name, value): (String, Constant)| {
        let slot = slot_of(&name)?;
        if is_constant_name(&name) {
            return Some((slot, UOp::constant(value)));
        }
        // A variable of one value: a claim about any range holds for it.
        let only = value.to_int().and_then(|value| i64::try_from(value).ok());
        let range = if value.dtype().is_float() { (0, 0) } else { (only?, only?) };
        Some((slot, leaves::variable(value.dtype(), &name, range)))
    };
    let nodes: Option<Vec<(usize, UOp)>> =
        model::values(values, &dtype_of).into_iter().map(node).collect();
    exhaust::replay(rule, types, &nodes?)
}
