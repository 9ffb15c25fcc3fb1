//! Equations between sums: `x = w * c0 + r by multiples`.
//!
//! A finder proposes sums for the names that the left side does not bind. It is not trusted: each
//! equation is checked, coefficient by coefficient over the integers, before the rule may use it.
//! So the proof of a rule may take its equations for granted, and the finder is a mere heuristic.

use std::rc::Rc;

use gradiff_graph::{Constant, DType, Op, UOp};
use smallvec::SmallVec;

use crate::bounds::Bounds;
use crate::condition::{Expr, Operator};
use crate::finders::{self, Find, Input};
use crate::lexer::Lexer;
use crate::names::{Bindings, Slots, is_constant_name};
use crate::sum::Sum;

/// Reads a node as a sum.
type Read = fn(&mut Bounds, &UOp) -> Option<Rc<Sum>>;

/// The equations of a rule.
#[derive(Clone, Debug)]
pub struct Given {
    /// The number of each name on the left, and the expression with the same exact sum.
    pub equations: Vec<(usize, Expr)>,
    /// The number of the first name that the left side of the rule does not bind.
    pub first: usize,
    find: Find,
    read: Read,
    /// Slots that the left side binds: the sums to split, and constants.
    sums: SmallVec<[usize; 2]>,
    constants: SmallVec<[usize; 2]>,
    /// The names that the finder must bind, true for constants.
    names: Vec<bool>,
}

impl Given {
    /// Parses `x = sum, y = sum by finder` and binds the new names.
    pub(crate) fn parse(text: &str, slots: &mut Slots) -> Result<Given, String> {
        let mut lexer = Lexer::new(text);
        let first = slots.count();
        let mut equations = Vec::new();
        slots.is_open = true;
        loop {
            let left = slots.bind(lexer.word()?)?;
            lexer.expect("=")?;
            equations.push((left, Expr::parse(&mut lexer, slots)?));
            if !lexer.take(",") {
                break;
            }
        }
        slots.is_open = false;
        if let Some(slot) = defined_by_itself(&equations) {
            return Err(format!("the equations define {} by itself", slots.name(slot)));
        }
        lexer.expect("by")?;
        let name = lexer.word()?;
        lexer.end()?;
        let find = finders::FINDERS.iter().find(|(known, _)| *known == name);
        let (_, find) = find.ok_or(format!("there is no finder {name}"))?;
        let is_constant = |slot: usize| is_constant_name(slots.name(slot));
        let mut sums: SmallVec<[usize; 2]> = SmallVec::new();
        for (left, _) in &equations {
            if *left < first && !sums.contains(left) {
                sums.push(*left);
            }
        }
        Ok(Given {
            first,
            find: *find,
            // Only where a sum gets its canonical form are shared values in it single terms.
            read: if name == "linear" { Bounds::sum_of_shared } else { Bounds::sum },
            sums,
            constants: (1..first).filter(|slot| is_constant(*slot)).collect(),
            names: (first..slots.count()).map(is_constant).collect(),
            equations,
        })
    }

    /// Tries the rest of a rule with each proposal whose equations hold, until one succeeds.
    pub(crate) fn each(
        &self,
        bindings: &Bindings<'_>,
        bounds: &mut Bounds,
        finish: &mut dyn FnMut(&Bindings<'_>, &mut Bounds) -> Option<UOp>,
    ) -> Option<UOp> {
        let (sums, constants) = (SmallVec::new(), SmallVec::new());
        let mut input = Input { root: bindings.node(0)?, sums, constants };
        for slot in &self.sums {
            input.sums.push((self.read)(bounds, bindings.node(*slot)?)?);
        }
        for slot in &self.constants {
            input.constants.push(bindings.node(*slot)?.as_int()?);
        }
        (self.find)(&input, bounds, &mut |parts, bounds| {
            let bindings = bindings.with_parts(self.first, parts);
            if !self.is_right(&bindings, parts, bounds) {
                return None;
            }
            finish(&bindings, bounds)
        })
    }

    /// Returns whether every equation holds between the exact sums, and names of constants are
    /// bound to constants.
    fn is_right(&self, bindings: &Bindings<'_>, parts: &[Sum], bounds: &mut Bounds) -> bool {
        assert_eq!(parts.len(), self.names.len(), "a finder gives a sum for each name");
        let mut named = self.names.iter().zip(parts);
        named.all(|(is_constant, part)| !is_constant || part.terms.is_empty())
            && self.equations.iter().all(|(left, right)| {
                let left = exact(&Expr::Slot(*left), self.read, bindings, bounds);
                let right = exact(right, self.read, bindings, bounds);
                left.zip(right).is_some_and(|(left, right)| is_equal(&left, &right))
            })
    }
}

/// The first name whose equations depend on it.
fn defined_by_itself(equations: &[(usize, Expr)]) -> Option<usize> {
    let named_by = |slot: usize| {
        let definitions = equations.iter().filter(move |(left, _)| *left == slot);
        definitions.flat_map(|(_, sum)| sum.slots())
    };
    equations.iter().map(|(left, _)| *left).find(|left| {
        let mut reached: Vec<usize> = named_by(*left).collect();
        let mut next = 0;
        while let Some(slot) = reached.get(next).copied() {
            let new: Vec<usize> = named_by(slot).filter(|slot| !reached.contains(slot)).collect();
            reached.extend(new);
            next += 1;
        }
        reached.contains(left)
    })
}

fn is_equal(left: &Sum, right: &Sum) -> bool {
    left.constant == right.constant
        && left.terms.len() == right.terms.len()
        && left.terms.iter().all(|term| right.terms.contains(term))
}

/// The exact sum of one side of an equation, over the integers; divisions are nodes.
fn exact(expr: &Expr, read: Read, bindings: &Bindings<'_>, bounds: &mut Bounds) -> Option<Sum> {
    let mut part = |expr: &Expr| exact(expr, read, bindings, bounds);
    match expr {
        Expr::Int(value) => Some(Sum::of_constant(DType::I64, *value)),
        Expr::Slot(slot) => match bindings.node(*slot) {
            // As in conditions, a constant is its value; as a sum it would be one modulo 2^bits.
            Some(node) if node.op() == Op::Const => {
                node.as_int().map(|value| Sum::of_constant(node.dtype(), value))
            }
            Some(node) => read(bounds, node).map(|sum| (*sum).clone()),
            None => bindings.part(*slot).cloned(),
        },
        Expr::Unary('-', inner) => combine(&Sum::of_constant(DType::I64, 0), &part(inner)?, -1),
        Expr::Binary(operator, left, right) => {
            let (left, right) = (part(left)?, part(right)?);
            match operator {
                Operator::Add => combine(&left, &right, 1),
                Operator::Sub => combine(&left, &right, -1),
                Operator::Mul if right.terms.is_empty() => scale(&left, right.constant),
                Operator::Mul if left.terms.is_empty() => scale(&right, left.constant),
                Operator::FloorDiv => division(Op::FloorDiv, &left, &right),
                Operator::FloorMod => division(Op::FloorMod, &left, &right),
                Operator::CDiv => division(Op::CDiv, &left, &right),
                Operator::CMod => division(Op::CMod, &left, &right),
                _ => None,
            }
        }
        _ => None,
    }
}

/// `left + factor * right`, not wrapped. Constants alone take the dtype of the other side.
fn combine(left: &Sum, right: &Sum, factor: i128) -> Option<Sum> {
    let mut sum = left.clone();
    if left.terms.is_empty() {
        sum.dtype = right.dtype;
    }
    sum.constant = sum.constant.checked_add(right.constant.checked_mul(factor)?)?;
    for (node, coefficient) in &right.terms {
        let added = coefficient.checked_mul(factor)?;
        match sum.terms.iter_mut().find(|(known, _)| known == node) {
            Some((_, coefficient)) => *coefficient = coefficient.checked_add(added)?,
            None => sum.terms.push((node.clone(), added)),
        }
    }
    sum.terms.retain(|(_, coefficient)| *coefficient != 0);
    Some(sum)
}

fn scale(sum: &Sum, factor: i128) -> Option<Sum> {
    combine(&Sum { dtype: sum.dtype, ..Sum::of_constant(sum.dtype, 0) }, sum, factor)
}

/// The node of a division by a constant. `None` if the dividend is constant, or the divisor is not,
/// is 0 or does not fit the dtype.
fn division(op: Op, left: &Sum, right: &Sum) -> Option<Sum> {
    if !right.terms.is_empty() || left.terms.is_empty() || right.constant == 0 {
        return None;
    }
    let (low, high) = left.dtype.int_range()?;
    if right.constant < low || high < right.constant {
        return None;
    }
    let divisor = UOp::constant(Constant::int(left.dtype, right.constant));
    Some(Sum::of_node(UOp::binary(op, left.build(), divisor)))
}
