//! Parsed rows: the language of rules as trees, for code that reasons about rules.
//!
//! In: a [`Rule`], whose texts are in the language of [`rules`](crate::rules). Out: a
//! [`ParsedRule`], both sides, conditions and equations as data. The matcher runs these very trees,
//! so that a proof is about the rule that is applied.

use std::ops::Range;

use gradiff_graph::UOp;

use crate::bounds::Bounds;
use crate::context::Context;
use crate::lexer::Lexer;
use crate::names::{Bindings, Slots};
use crate::reduce;
use crate::rule::Rule;

pub use crate::computed::Computed;
pub use crate::condition::{Expr, Operator, Question};
pub use crate::given::Given;
pub use crate::names::{MAX_NAMES, is_constant_name};
pub use crate::pattern::{Literal, Pattern};

/// A row, parsed. Names are numbered from 0, in the order in which they occur; name 0 is `root`.
pub struct ParsedRule {
    /// The row.
    pub row: Rule,
    /// The left side.
    pub lhs: Pattern,
    /// Conditions on the names that the left side binds, all of which must hold.
    pub when: Vec<Expr>,
    /// Equations, and the finder of the names that they bind; `None` if there are none.
    pub given: Option<Given>,
    /// Conditions on the names that the equations bind, all of which must hold.
    pub then: Vec<Expr>,
    /// The right side.
    pub rhs: Pattern,
    pub(crate) slots: Slots,
}

impl ParsedRule {
    /// Parses a row. The order of rules is not checked:
    /// [`RuleSet::load`](crate::RuleSet::load) does.
    ///
    /// # Errors
    /// The part that cannot be parsed, or the name that is not bound.
    pub fn new(row: Rule) -> Result<ParsedRule, String> {
        let mut slots = Slots::new();
        let lhs = Pattern::parse_left(row.lhs, &mut slots)?;
        let first = slots.count();
        let given = match row.given {
            "" => None,
            text => Some(Given::parse(text, &mut slots)?),
        };
        let mut conditions = Vec::new();
        if !row.when.is_empty() {
            let mut lexer = Lexer::new(row.when);
            conditions = Expr::parse(&mut lexer, &mut slots)?.conjuncts();
            lexer.end()?;
        }
        let is_bound = |expr: &Expr| expr.slots().iter().all(|slot| *slot < first);
        let (when, then) = conditions.into_iter().partition(is_bound);
        let rhs = Pattern::parse_right(row.rhs, &mut slots)?;
        if given.is_some() && matches!(rhs, Pattern::Computed(_)) {
            return Err(String::from("a computed side has no equations"));
        }
        Ok(ParsedRule { row, slots, lhs, when, given, then, rhs })
    }

    /// Number of names that the rule binds, `root` among them; at most [`MAX_NAMES`].
    pub fn name_count(&self) -> usize {
        self.slots.count()
    }

    /// The numbers of the names that the left side binds, without `root`.
    pub fn left_names(&self) -> Range<usize> {
        1..self.given.as_ref().map_or(self.slots.count(), |given| given.first)
    }

    /// The text of the name with this number; empty if there is none.
    pub fn name(&self, number: usize) -> &str {
        self.slots.name(number)
    }

    /// Applies the rule to the node itself, not to its sources. Returns `None` if it does not
    /// apply, and never the same node. A computed right side rewrites its result in the context.
    pub(crate) fn apply_in(&self, uop: &UOp, context: &mut dyn Context) -> Option<UOp> {
        let subject = uop.src().last().map_or(uop.dtype(), UOp::dtype);
        if !self.row.types.has(subject) {
            return None;
        }
        if let Pattern::Reduce(..) = self.lhs
            && 2 < uop.src().len()
        {
            return reduce::over_each_range(uop, |single| self.apply_in(single, context));
        }
        let mut bindings = Bindings::default();
        bindings.bind(0, uop);
        if !self.lhs.matches(uop, &mut bindings) {
            return None;
        }
        let bounds = context.bounds();
        if !all_hold(&self.when, &bindings, bounds) {
            return None;
        }
        let built = match (&self.given, &self.rhs) {
            (None, Pattern::Computed(Computed(function))) => function(uop, context),
            (None, _) => self.rhs.build(uop.dtype(), &bindings, bounds),
            (Some(given), _) => given.each(&bindings, bounds, &mut |bindings, bounds| {
                let holds = all_hold(&self.then, bindings, bounds);
                let built = holds.then(|| self.rhs.build(uop.dtype(), bindings, bounds));
                built.flatten().filter(|built| built != uop)
            }),
        }?;
        assert_eq!(built.dtype(), uop.dtype(), "{} changed the dtype", self.row.name);
        (built != *uop).then_some(built)
    }
}

/// Returns whether all conditions are true; one that cannot be computed is false.
fn all_hold(conditions: &[Expr], bindings: &Bindings<'_>, bounds: &mut Bounds) -> bool {
    conditions.iter().all(|condition| condition.value(bindings, bounds) == Some(1))
}
