//! Tables of rules: parsed, checked and sorted by the op that they start from.

use gradiff_graph::op::OPS;
use gradiff_graph::{DType, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::order;
use crate::pattern::Pattern;
use crate::rule::Rule;
use crate::syntax::ParsedRule;

/// Error in a table of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two rows have one name.
    #[error("two rules are named {0}")]
    Duplicate(&'static str),
    /// Two rows have the same text.
    #[error("rules {0} and {1} have the same text")]
    Same(&'static str, &'static str),
    /// A row cannot be read, or uses a name that its left side does not bind.
    #[error("rule {name}: {problem}")]
    Unreadable {
        /// The row.
        name: &'static str,
        /// The problem.
        problem: String,
    },
    /// A row makes terms neither cheaper nor smaller, so that rewriting might not terminate.
    #[error("rule {name} may not terminate: {problem}")]
    Endless {
        /// The row.
        name: &'static str,
        /// The prices of both sides.
        problem: String,
    },
}

/// Tables of rules, parsed and sorted by the op that they start from.
pub struct RuleSet {
    rules: Vec<ParsedRule>,
    /// For each op and class of dtypes (see [`class_of`]), the rules that may apply, in order.
    by_op: Vec<[Vec<Candidate>; CLASSES]>,
}

/// Filter that rejects most rules that do not apply; the filters are adjacent in memory.
pub(crate) struct Candidate {
    /// The index of the rule in the set.
    pub(crate) index: u16,
    /// For the first two sources, the ops that they may have, one bit each.
    sources: [u64; 2],
}

impl Candidate {
    /// Returns whether the rule accepts the ops of the sources.
    pub(crate) fn may_apply(&self, uop: &UOp) -> bool {
        let pairs = self.sources.iter().zip(uop.src());
        pairs.into_iter().all(|(mask, source)| mask & (1 << source.op() as u32) != 0)
    }
}

/// Number of classes of dtypes by which rules are filtered: void, bool, integers, floats. A rule
/// for some floats is a candidate for all of them: its match checks the dtype itself.
const CLASSES: usize = 4;

/// One dtype of each class.
const CLASS_DTYPES: [DType; CLASSES] = [DType::Void, DType::Bool, DType::I32, DType::F32];

fn class_of(dtype: DType) -> usize {
    match dtype {
        DType::Void => 0,
        DType::Bool => 1,
        _ if dtype.is_int() => 2,
        _ => 3,
    }
}

impl RuleSet {
    /// Parses and checks the rows of all tables; they are tried in this order.
    ///
    /// # Errors
    /// `Duplicate` if a name occurs twice; `Same` if a text does; `Unreadable` if a text does not
    /// parse or uses a name that the left side does not bind; `Endless` if the right side of a row
    /// is neither cheaper than the left one nor smaller in the path order of `order.rs`.
    pub fn load(tables: &[&[Rule]]) -> Result<RuleSet, Error> {
        let set = RuleSet::load_unordered(tables)?;
        for rule in &set.rules {
            let endless = |problem| Error::Endless { name: rule.row.name, problem };
            order::check(rule).map_err(endless)?;
        }
        Ok(set)
    }

    /// Does what [`RuleSet::load`] does, but accepts rows that may not terminate: the driver
    /// reports their loops.
    ///
    /// # Errors
    /// `Duplicate`, `Same` and `Unreadable`.
    pub fn load_unordered(tables: &[&[Rule]]) -> Result<RuleSet, Error> {
        let by_op = OPS.iter().map(|_| Default::default()).collect();
        let mut set = RuleSet { rules: Vec::new(), by_op };
        let mut names = FxHashSet::default();
        let mut texts = FxHashMap::default();
        for row in tables.iter().flat_map(|table| table.iter()) {
            if !names.insert(row.name) {
                return Err(Error::Duplicate(row.name));
            }
            let text = (row.types.name(), row.lhs, row.rhs, row.when, row.given);
            if let Some(earlier) = texts.insert(text, row.name) {
                return Err(Error::Same(earlier, row.name));
            }
            let unreadable = |problem| Error::Unreadable { name: row.name, problem };
            let rule = ParsedRule::new(*row).map_err(unreadable)?;
            let index = u16::try_from(set.rules.len()).expect("fewer than 65,536 rules");
            let is_start = |op: Op| match rule.lhs.op() {
                Some(start) => start == op,
                // A name alone stands for every elementwise op.
                None => op.is_elementwise(),
            };
            for start in OPS.iter().filter(|start| is_start(start.op)) {
                for (class, dtype) in CLASS_DTYPES.iter().enumerate() {
                    if row.types.has(*dtype) {
                        let candidate = Candidate { index, sources: source_ops(&rule.lhs) };
                        set.by_op[start.op as usize][class].push(candidate);
                    }
                }
            }
            set.rules.push(rule);
        }
        Ok(set)
    }

    /// The rows, in the order in which they are tried.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(|rule| &rule.row)
    }

    /// The rules to try on a node, in order.
    pub(crate) fn candidates(&self, uop: &UOp) -> &[Candidate] {
        let subject = uop.src().last().map_or(uop.dtype(), UOp::dtype);
        &self.by_op[uop.op() as usize][class_of(subject)]
    }

    /// Returns whether a rule starts from this op over operands of this dtype.
    pub(crate) fn has_rules_for(&self, op: Op, dtype: DType) -> bool {
        !self.by_op[op as usize][class_of(dtype)].is_empty()
    }

    pub(crate) fn get(&self, index: u16) -> &ParsedRule {
        &self.rules[usize::from(index)]
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }
}

/// For the first two sources of a left side, the ops that they may have, one bit each.
fn source_ops(lhs: &Pattern) -> [u64; 2] {
    let mut sources = [u64::MAX; 2];
    if let Pattern::Reduce(_, src) = lhs {
        sources[0] = src[0].op().map_or(u64::MAX, |op| 1 << op as u32);
    }
    if let Pattern::Node(_, src, _) = lhs {
        for (mask, source) in sources.iter_mut().zip(src) {
            *mask = source.op().map_or(u64::MAX, |op| 1 << op as u32);
        }
    }
    sources
}

const _: () = assert!(OPS.len() <= 64, "a set of ops fits one u64");

#[cfg(test)]
mod tests {
    use gradiff_graph::{Arg, DType, Op, Sources, UOp, Variable};

    use super::*;
    use crate::rule::{Claim, Types, row};

    #[test]
    fn load_refuses_duplicates_and_unbound_names() {
        let bits = (Types::Any, Claim::Bits);
        let rule = row("test/a", bits, "(add x 0)", "x", "", "", "");
        assert_eq!(RuleSet::load(&[&[rule], &[rule]]).err(), Some(Error::Duplicate("test/a")));
        let copy = Rule { name: "test/b", ..rule };
        assert_eq!(RuleSet::load(&[&[rule, copy]]).err(), Some(Error::Same("test/a", "test/b")));
        let problems = [
            (row("test/b", bits, "(add x 0)", "y", "", "", ""), "y is not bound"),
            (row("test/b", bits, "(add x 0)", "x", "min(z) > 0", "", ""), "z is not bound"),
            (row("test/b", bits, "(add x c0)", "{c1}", "", "", ""), "c1 is not bound"),
            (row("test/b", bits, "(plus x 0)", "x", "", "", ""), "no op plus"),
            (row("test/b", bits, "(add x)", "x", "", "", ""), "add with 1 sources"),
            (row("test/b", bits, "(add x 0) y", "x", "", "", ""), "left over"),
            (row("test/b", bits, "(add x 0)", "@nothing", "", "", ""), "no computed side"),
            (row("test/b", bits, "(sub x c0)", "(add x c0)", "", "", ""), "may not terminate"),
            (row("test/b", bits, "(add x y)", "(add y x)", "", "", ""), "may not terminate"),
            (
                row("test/b", bits, "(mul x y)", "(mul (mul x y) y)", "", "", ""),
                "may not terminate",
            ),
            (row("test/b", bits, "(add x 1)", "(add x c0)", "", "", ""), "c0 is not bound"),
            (
                Rule { given: "x = y * 3 + r, y = x + 1 by multiples", ..rule },
                "the equations define x by itself",
            ),
        ];
        for (rule, problem) in problems {
            let error = RuleSet::load(&[&[rule]]).err().expect("a problem").to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn loop_is_reported_and_ends() {
        let bits = (Types::Ints, Claim::Bits);
        let there = row("test/there", bits, "(add x c0)", "(sub x c0)", "", "", "");
        let back = row("test/back", bits, "(sub x c0)", "(add x c0)", "", "", "");
        let grow = row("test/grow", bits, "(mul x y)", "(mul (mul x y) y)", "", "", "");
        let set = RuleSet::load_unordered(&[&[there, back, grow]]).expect("they load");
        let variable = Variable { name: String::from("x"), min: 0, max: 9 };
        let x = UOp::new(Op::DefineVar, DType::I32, Sources::new(), Arg::Var(variable.into()));
        let mut trace = crate::Trace::default();
        let sum = UOp::binary(Op::Add, x.clone(), UOp::int(DType::I32, 3));
        crate::rewrite(&sum, &set, &crate::Options::default(), &mut trace);
        assert!(!trace.loops.is_empty());
        let product = UOp::binary(Op::Mul, x.clone(), x);
        crate::rewrite(&product, &set, &crate::Options::default(), &mut trace);
        assert!(trace.ran_out);
    }
}
