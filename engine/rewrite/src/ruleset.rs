//! Rows, compiled: parsed, checked and sorted by the op that they start from.

use gradiff_graph::{OPS, Op, UOp};
use rustc_hash::FxHashSet;

use crate::bounds::Bounds;
use crate::condition::Expr;
use crate::pattern::{Lexer, Pattern, SLOTS, Slots};
use crate::rule::Rule;

/// What is wrong with a table of rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Two rows have one name.
    #[error("two rules are named {0}")]
    Duplicate(&'static str),
    /// A row cannot be read, or uses a name that its left side does not bind.
    #[error("rule {name}: {problem}")]
    Unreadable {
        /// The row.
        name: &'static str,
        /// What is wrong.
        problem: String,
    },
}

/// Compiled tables.
pub struct RuleSet {
    rules: Vec<Compiled>,
    by_op: Vec<Vec<u16>>,
}

/// One row, ready to be tried.
pub(crate) struct Compiled {
    pub(crate) row: Rule,
    lhs: Pattern,
    when: Option<Expr>,
    rhs: Pattern,
    /// For the first two sources, the ops that they may have, one bit each.
    sources: [u64; 2],
}

impl RuleSet {
    /// Parses and checks the rows of all tables; they are tried in this order.
    ///
    /// # Errors
    /// `Duplicate` if a name stands twice; `Unreadable` if a text does not parse or names what is
    /// not bound by the left side.
    pub fn load(tables: &[&[Rule]]) -> Result<RuleSet, Error> {
        let mut set = RuleSet { rules: Vec::new(), by_op: vec![Vec::new(); OPS.len()] };
        let mut names = FxHashSet::default();
        for row in tables.iter().flat_map(|table| table.iter()) {
            if !names.insert(row.name) {
                return Err(Error::Duplicate(row.name));
            }
            let unreadable = |problem| Error::Unreadable { name: row.name, problem };
            let compiled = Compiled::new(*row).map_err(unreadable)?;
            let index = u16::try_from(set.rules.len()).expect("fewer than 65,536 rules");
            match compiled.lhs.op() {
                Some(op) => set.by_op[op as usize].push(index),
                // A name alone stands for every elementwise op.
                None => OPS
                    .iter()
                    .filter(|row| row.op.is_elementwise())
                    .for_each(|row| set.by_op[row.op as usize].push(index)),
            }
            set.rules.push(compiled);
        }
        Ok(set)
    }

    /// The rows, in the order in which they are tried.
    pub fn rules(&self) -> impl ExactSizeIterator<Item = &Rule> {
        self.rules.iter().map(|compiled| &compiled.row)
    }

    /// The table as text, one rule a line: name, types, claim, `lhs => rhs`, condition.
    pub fn listing(&self) -> String {
        self.rules.iter().map(|compiled| format!("{}\n", compiled.row)).collect()
    }

    pub(crate) fn for_op(&self, op: Op) -> &[u16] {
        &self.by_op[op as usize]
    }

    pub(crate) fn get(&self, index: u16) -> &Compiled {
        &self.rules[usize::from(index)]
    }

    pub(crate) fn len(&self) -> usize {
        self.rules.len()
    }
}

impl Compiled {
    fn new(row: Rule) -> Result<Compiled, String> {
        let mut slots = Slots::new();
        let lhs = Pattern::parse_left(row.lhs, &mut slots)?;
        let when = match row.when {
            "" => None,
            text => {
                let mut lexer = Lexer::new(text);
                let parsed = Expr::parse(&mut lexer, &mut slots)?;
                lexer.end()?;
                Some(parsed)
            }
        };
        let rhs = Pattern::parse_right(row.rhs, &mut slots)?;
        let mut sources = [u64::MAX; 2];
        if let Pattern::Node(_, src, _) = &lhs {
            for (mask, source) in sources.iter_mut().zip(src) {
                *mask = source.op().map_or(u64::MAX, |op| 1 << op as u32);
            }
        }
        Ok(Compiled { row, lhs, when, rhs, sources })
    }

    /// What this rule makes of the node; `None` if it does not apply. Never the node itself.
    pub(crate) fn apply(&self, uop: &UOp, known: &mut Bounds) -> Option<UOp> {
        for (mask, source) in self.sources.iter().zip(uop.src()) {
            if mask & (1 << source.op() as u32) == 0 {
                return None;
            }
        }
        let subject = uop.src().last().map_or(uop.dtype(), UOp::dtype);
        if !self.row.types.has(subject) {
            return None;
        }
        let mut bound = [None; SLOTS];
        bound[0] = Some(uop);
        if !self.lhs.matches(uop, &mut bound) {
            return None;
        }
        if let Some(when) = &self.when
            && when.value(&bound, known) != Some(1)
        {
            return None;
        }
        let built = self.rhs.build(uop.dtype(), &bound, known)?;
        assert_eq!(built.dtype(), uop.dtype(), "{} changed the dtype", self.row.name);
        (built != *uop).then_some(built)
    }
}

const _: () = assert!(OPS.len() <= 64, "a set of ops fits one u64");
