//! Sums of choices: a loop that adds elements under conditions, some of which hold in one iteration
//! only. Rules replace such loops by closed forms, which must have the same values.
//!
//! Drawn programs seldom have two conditions on one loop, and hardly ever negated ones.

use gradiff::UOp;
use gradiff::graph::{Arg, Constant, DType, Dims, Global, Op};
use gradiff::rewrite::{Options, Trace, collapse, rewrite, symbolic};
use gradiff_eval::Elements;
use gradiff_eval::kernel::interpret;

use crate::checks::calls::Draw;

/// Prefix of this check's reports.
pub(crate) const PREFIX: &str = "sum of choices";

/// Elements of the table that terms and values are loaded from.
const TABLE_SIZE: usize = 12;

/// An integer: `constant + outer * o + inner * r`, and an element of the table by `o` or not.
#[derive(Clone, Copy)]
struct Term {
    constant: i64,
    outer: i64,
    inner: i64,
    has_load: bool,
}

enum Condition {
    Differ(Term, Term),
    Less(Term, Term),
    Not(Box<Condition>),
    Both(Box<[Condition; 2]>),
    Either(Box<[Condition; 2]>),
}

/// The value that is chosen.
enum Value {
    Term(Term),
    /// The element of the table at `r`.
    ByInner,
    /// The element of the table at `o + r`.
    BySum,
}

/// The sum over `r` of a value, which is 0 unless all choices take it.
struct Drawn {
    dtype: DType,
    outer_size: i64,
    inner_size: i64,
    table: Vec<i64>,
    value: Value,
    /// Conditions from the inside out, and whether the value is taken where each holds.
    choices: Vec<(Condition, bool)>,
}

/// Checks a sum that the draw gives.
///
/// # Errors
/// A sum that has another value after the rules than by its definition.
pub(crate) fn check(draw: &mut Draw) -> Result<(), String> {
    let drawn = Drawn::draw(draw);
    let root = drawn.root();
    let report = |problem: String| format!("{PREFIX}: {problem} of\n{}", root.to_text());
    let expected: Vec<i64> = (0..drawn.outer_size).map(|o| drawn.sum(o)).collect();
    let (options, mut trace) = (Options::default(), Trace::default());
    let simplified = crate::catch(|| {
        let simple = rewrite(&root, &symbolic(), &options, &mut trace);
        let collapsed = collapse(&simple, &options, &mut trace);
        [simple, collapsed]
    });
    let [simple, collapsed] = simplified.map_err(report)?;
    for (name, kernel) in [("itself", &root), ("simplified", &simple), ("collapsed", &collapsed)] {
        let found =
            drawn.evaluate(kernel).map_err(|problem| report(format!("{name}, {problem}")))?;
        if found != expected {
            return Err(report(format!("{name}, it is {found:?}, expected {expected:?}")));
        }
    }
    Ok(())
}

impl Drawn {
    fn draw(draw: &mut Draw) -> Drawn {
        let (outer_size, inner_size) = (1 + draw.below(4) as i64, 1 + draw.below(7) as i64);
        let dtype = draw.pick(&[DType::I32, DType::I32, DType::I64]);
        let table = (0..TABLE_SIZE).map(|_| draw.below(9) as i64 - 2).collect();
        let value = match draw.below(3) {
            0 => Value::Term(Term::draw(draw)),
            1 => Value::ByInner,
            _ => Value::BySum,
        };
        let choices =
            (0..1 + draw.below(3)).map(|_| (Condition::draw(draw, 0), !draw.one_in(3))).collect();
        Drawn { dtype, outer_size, inner_size, table, value, choices }
    }

    /// The sum by its definition.
    fn sum(&self, o: i64) -> i64 {
        let is_taken =
            |r: i64| self.choices.iter().all(|(choice, taken)| choice.holds(self, o, r) == *taken);
        let value = |r: i64| match &self.value {
            Value::Term(term) => term.value(self, o, r),
            Value::ByInner => self.table[r as usize],
            Value::BySum => self.table[(o + r) as usize],
        };
        (0..self.inner_size).filter(|r| is_taken(*r)).map(value).sum()
    }

    fn root(&self) -> UOp {
        let range = |size: i64, number: i64| {
            UOp::new(Op::Range, self.dtype, [self.number(size)], Arg::plain_axis(number))
        };
        let [o, r] = [range(self.outer_size, 0), range(self.inner_size, 1)];
        let value = match &self.value {
            Value::Term(term) => term.node(self, &o, &r),
            Value::ByInner => self.load(&r),
            Value::BySum => self.load(&UOp::binary(Op::Add, o.clone(), r.clone())),
        };
        let chosen = self.choices.iter().fold(value, |value, (choice, is_taken)| {
            let (condition, zero) = (choice.node(self, &o, &r), self.number(0));
            match is_taken {
                true => UOp::select(condition, value, zero),
                false => UOp::select(condition, zero, value),
            }
        });
        let sum = UOp::new(Op::Reduce, self.dtype, [chosen, r], Arg::Reduce(Op::Add, Dims::new()));
        let address = self.address(0, self.outer_size as usize, &o);
        let store = UOp::new(Op::Store, DType::Void, [address, sum], Arg::None);
        UOp::new(Op::Sink, DType::Void, [store], Arg::None)
    }

    fn number(&self, value: i64) -> UOp {
        UOp::int(self.dtype, value)
    }

    fn address(&self, slot: usize, size: usize, index: &UOp) -> UOp {
        let arg = Arg::Global(Global { slot, size_elements: size as i64 });
        let array = UOp::new(Op::DefineGlobal, self.dtype, [], arg);
        UOp::new(Op::Index, self.dtype, [array, index.clone()], Arg::None)
    }

    fn load(&self, index: &UOp) -> UOp {
        UOp::new(Op::Load, self.dtype, [self.address(1, TABLE_SIZE, index)], Arg::None)
    }

    /// The values that a kernel stores.
    fn evaluate(&self, kernel: &UOp) -> Result<Vec<i64>, String> {
        let table = self.table.iter().map(|value| Some(Constant::int(self.dtype, (*value).into())));
        let mut memories: Vec<Elements> =
            vec![vec![None; self.outer_size as usize], table.collect()];
        crate::catch(|| interpret(kernel, &mut memories))??;
        let value = |element: &Option<Constant>| element.and_then(|value| value.to_int());
        let values = memories[0].iter().map(|element| value(element).map(|value| value as i64));
        values.collect::<Option<_>>().ok_or_else(|| String::from("an element is not stored"))
    }
}

impl Term {
    fn draw(draw: &mut Draw) -> Term {
        Term {
            constant: draw.below(7) as i64 - 3,
            outer: draw.pick(&[0, 0, 1, -1, 2]),
            inner: draw.pick(&[0, 1, 1, -1, 2]),
            has_load: draw.one_in(4),
        }
    }

    fn value(&self, drawn: &Drawn, o: i64, r: i64) -> i64 {
        let loaded = if self.has_load { drawn.table[o as usize] } else { 0 };
        self.constant + self.outer * o + self.inner * r + loaded
    }

    fn node(&self, drawn: &Drawn, o: &UOp, r: &UOp) -> UOp {
        let add = |x: UOp, y: UOp| UOp::binary(Op::Add, x, y);
        let scaled = |factor: i64, x: &UOp| match factor {
            0 => None,
            1 => Some(x.clone()),
            _ => Some(UOp::binary(Op::Mul, x.clone(), drawn.number(factor))),
        };
        let load = self.has_load.then(|| drawn.load(o));
        let parts = [scaled(self.outer, o), scaled(self.inner, r), load];
        let sum = parts.into_iter().flatten().reduce(add);
        match sum {
            None => drawn.number(self.constant),
            Some(sum) if self.constant == 0 => sum,
            Some(sum) => add(sum, drawn.number(self.constant)),
        }
    }
}

impl Condition {
    fn draw(draw: &mut Draw, depth: usize) -> Condition {
        let two = |draw: &mut Draw| {
            Box::new([Condition::draw(draw, depth + 1), Condition::draw(draw, depth + 1)])
        };
        match draw.below(if depth < 3 { 8 } else { 5 }) {
            0..=2 => Condition::Differ(Term::draw(draw), Term::draw(draw)),
            3..=4 => Condition::Less(Term::draw(draw), Term::draw(draw)),
            5 => Condition::Not(Box::new(Condition::draw(draw, depth + 1))),
            6 => Condition::Both(two(draw)),
            _ => Condition::Either(two(draw)),
        }
    }

    fn holds(&self, drawn: &Drawn, o: i64, r: i64) -> bool {
        let holds = |condition: &Condition| condition.holds(drawn, o, r);
        match self {
            Condition::Differ(x, y) => x.value(drawn, o, r) != y.value(drawn, o, r),
            Condition::Less(x, y) => x.value(drawn, o, r) < y.value(drawn, o, r),
            Condition::Not(condition) => !holds(condition),
            Condition::Both(conditions) => conditions.iter().all(holds),
            Condition::Either(conditions) => conditions.iter().any(holds),
        }
    }

    fn node(&self, drawn: &Drawn, o: &UOp, r: &UOp) -> UOp {
        let node = |condition: &Condition| condition.node(drawn, o, r);
        let term = |term: &Term| term.node(drawn, o, r);
        match self {
            Condition::Differ(x, y) => UOp::binary(Op::CmpNe, term(x), term(y)),
            Condition::Less(x, y) => UOp::binary(Op::CmpLt, term(x), term(y)),
            Condition::Not(condition) => UOp::not(node(condition)),
            Condition::Both(conditions) => {
                UOp::binary(Op::And, node(&conditions[0]), node(&conditions[1]))
            }
            Condition::Either(conditions) => {
                UOp::binary(Op::Or, node(&conditions[0]), node(&conditions[1]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_choices_keep_their_values_and_many_have_closed_forms() {
        let mut closed = 0;
        for seed in 0..2_000 {
            check(&mut Draw::new(seed)).unwrap_or_else(|problem| panic!("{problem}"));
            let root = Drawn::draw(&mut Draw::new(seed)).root();
            let has_sum = |root: &UOp| root.toposort().iter().any(|node| node.op() == Op::Reduce);
            let (options, mut trace) = (Options::default(), Trace::default());
            let simple = rewrite(&root, &symbolic(), &options, &mut trace);
            let collapsed = collapse(&simple, &options, &mut trace);
            closed += usize::from(has_sum(&simple) && !has_sum(&collapsed));
        }
        assert!(200 < closed, "{closed} of 2000 have a closed form");
    }
}
