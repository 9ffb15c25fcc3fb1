//! Conditions, computed constants and equations as SMT-LIB terms.

use gradiff_graph::{Constant, DType};
use gradiff_rewrite::syntax::{Expr, Operator, Question};

use super::Unsupported;
use super::encode::{Encoder, Type, Value, both, float_literal};
use super::number::{Number, Rounding};

/// A number or a truth value.
enum Term {
    Number(Number),
    Truth(String),
}

impl Encoder<'_> {
    /// The term that a condition can be computed and holds.
    pub(super) fn condition(&mut self, expr: &Expr) -> Result<String, Unsupported> {
        let (term, defined) = self.term(expr)?;
        let holds = match term {
            Term::Truth(text) => text,
            Term::Number(number) => {
                let truth = self.script.literal(1);
                format!("(= {} {})", number.text, truth.text)
            }
        };
        Ok(both(&defined, &holds))
    }

    /// An expression as a number, and the condition that it can be computed.
    pub(super) fn number(&mut self, expr: &Expr) -> Result<(Number, String), Unsupported> {
        let (term, defined) = self.term(expr)?;
        let number = match term {
            Term::Number(number) => number,
            Term::Truth(text) => self.as_number(&text),
        };
        Ok((number, defined))
    }

    fn truth(&mut self, expr: &Expr) -> Result<(String, String), Unsupported> {
        let (term, defined) = self.term(expr)?;
        let truth = match term {
            Term::Truth(text) => text,
            Term::Number(number) => {
                let zero = self.script.literal(0);
                format!("(distinct {} {})", number.text, zero.text)
            }
        };
        Ok((truth, defined))
    }

    fn term(&mut self, expr: &Expr) -> Result<(Term, String), Unsupported> {
        let always = || String::from("true");
        Ok(match expr {
            Expr::Int(value) => (Term::Number(self.script.literal(*value)), always()),
            Expr::Slot(slot) => (self.constant_of(*slot)?, always()),
            Expr::Ask(question, [first, second]) => {
                let term = self.ask(*question, *first, *second)?;
                (term, always())
            }
            Expr::Unary('!', inner) => {
                let (truth, defined) = self.truth(inner)?;
                (Term::Truth(format!("(not {truth})")), defined)
            }
            Expr::Unary(_, inner) => {
                let (number, defined) = self.number(inner)?;
                (Term::Number(self.script.neg(&number)), defined)
            }
            Expr::Fits(inner, slot) => {
                let (number, defined) = self.number(inner)?;
                let class = self.class_of(*slot)?;
                (Term::Truth(self.is_inside(&number, class)), defined)
            }
            Expr::Binary(operator @ (Operator::And | Operator::Or), left, right) => {
                let (x, first) = self.truth(left)?;
                let (y, second) = self.truth(right)?;
                // The right operand is needed only if the left one does not decide.
                let (name, needed) = match operator {
                    Operator::And => ("and", format!("(or (not {x}) {second})")),
                    _ => ("or", format!("(or {x} {second})")),
                };
                let needed = if second == "true" { always() } else { needed };
                (Term::Truth(format!("({name} {x} {y})")), both(&first, &needed))
            }
            Expr::Binary(operator, left, right) => {
                let (x, first) = self.number(left)?;
                let (y, second) = self.number(right)?;
                let (term, op_defined) = self.binary(*operator, &x, &y);
                (term, both(&both(&first, &second), &op_defined))
            }
        })
    }

    fn binary(&mut self, operator: Operator, x: &Number, y: &Number) -> (Term, String) {
        let script = &mut self.script;
        let always = String::from("true");
        let truth = match operator {
            Operator::Equal => Some(format!("(= {} {})", x.text, y.text)),
            Operator::NotEqual => Some(format!("(distinct {} {})", x.text, y.text)),
            Operator::AtMost => Some(script.at_most(x, y)),
            Operator::AtLeast => Some(script.at_most(y, x)),
            Operator::Less => Some(script.less(x, y)),
            Operator::More => Some(script.less(y, x)),
            Operator::And | Operator::Or => unreachable!("they are handled before"),
            _ => None,
        };
        if let Some(truth) = truth {
            return (Term::Truth(truth), always);
        }
        let sum = match operator {
            Operator::Add => Some(script.add(x, y)),
            Operator::Sub => Some(script.sub(x, y)),
            Operator::Mul => Some(script.mul(x, y)),
            Operator::Gcd => Some(self.gcd(x, y)),
            _ => None,
        };
        if let Some(sum) = sum {
            return (Term::Number(sum), always);
        }
        let rounding = match operator {
            Operator::CDiv | Operator::CMod => Rounding::Zero,
            _ => Rounding::Floor,
        };
        let zero = self.script.literal(0);
        let [quotient, rest] = self.script.divide(rounding, x, y);
        let is_quotient = matches!(operator, Operator::FloorDiv | Operator::CDiv);
        let number = if is_quotient { quotient } else { rest };
        (Term::Number(number), format!("(distinct {} {})", y.text, zero.text))
    }

    /// A common divisor that is not negative; it is not said to be the greatest.
    fn gcd(&mut self, x: &Number, y: &Number) -> Number {
        let name = self.script.fresh("gcd");
        let found = self.script.unknown(&name, x.bits.max(y.bits));
        let zero = self.script.literal(0);
        for of in [x, y] {
            let part = self.script.fresh("part");
            let part = self.script.unknown(&part, of.bits);
            let product = self.script.mul(&found, &part);
            self.script.fact(format!("(= {} {})", of.text, product.text));
        }
        let is_zero = format!("(and (= {0} {2}) (= {1} {2}))", x.text, y.text, zero.text);
        let positive = self.script.less(&zero, &found);
        self.script.fact(format!("(ite {is_zero} (= {} {}) {positive})", found.text, zero.text));
        found
    }

    fn class_of(&self, slot: usize) -> Result<usize, Unsupported> {
        self.typing.of_slot(slot).ok_or(Unsupported::new("a name without a class"))
    }

    /// The value of a constant.
    fn constant_of(&mut self, slot: usize) -> Result<Term, Unsupported> {
        match self.slots[slot].as_ref().map(|slot| slot.value.clone()) {
            Some(Value::Int { ring, read, .. }) => Ok(Term::Number(read.unwrap_or(ring))),
            Some(Value::Truth(text)) => Ok(Term::Truth(text)),
            _ => Err(Unsupported::new("a condition on a constant that is no integer")),
        }
    }

    fn ask(
        &mut self,
        question: Question,
        first: usize,
        second: usize,
    ) -> Result<Term, Unsupported> {
        let class = self.class_of(first)?;
        let kind = self.type_of(class);
        let truth = |value: bool| Ok(Term::Truth(value.to_string()));
        match question {
            Question::Min | Question::Max => {
                let bounds = self.slots[first].as_ref().and_then(|slot| slot.bounds.clone());
                let [min, max] = bounds.ok_or(Unsupported::new("bounds of a compound node"))?;
                Ok(Term::Number(if question == Question::Min { min } else { max }))
            }
            Question::Bits => match kind.dtype().filter(|dtype| *dtype != DType::Void) {
                Some(dtype) => Ok(Term::Number(self.script.literal(dtype.bits().into()))),
                None => Err(Unsupported::new("the width of a dtype of any width")),
            },
            Question::IsInt => truth(match kind {
                Type::Raw(dtype) => dtype.is_int(),
                _ => matches!(kind, Type::Any { .. } | Type::Int(_)),
            }),
            Question::IsBool => truth(matches!(kind, Type::Bool | Type::Raw(DType::Bool))),
            Question::Same => self.is_same(class, second),
            Question::Exact => self.is_exact(first, second),
            Question::NoWrap | Question::Linear => {
                let inside = self.in_range(first)?;
                let name = self.script.fresh("asked");
                let asked = self.script.declare(&name, "Bool");
                let is_known = super::parsed::says(self.rule, question, first);
                // `linear` of a name that no equation splits says nothing that matters here.
                let is_of_use = self.is_of_use(question, first);
                if is_known && is_of_use {
                    return Ok(Term::Truth(inside));
                }
                if is_of_use {
                    self.script.fact(format!("(=> {asked} {inside})"));
                }
                Ok(Term::Truth(asked))
            }
            // Questions about form: any answer is possible.
            Question::Before | Question::SameOp => {
                let name = self.script.fresh("asked");
                Ok(Term::Truth(self.script.declare(&name, "Bool")))
            }
            Question::Operands => {
                let name = self.script.fresh("asked");
                Ok(Term::Number(self.script.unknown(&name, 8)))
            }
            Question::PowerOfTwo => match self.slots[first].as_ref().map(|slot| &slot.value) {
                Some(Value::Float(text, dtype)) => Ok(Term::Truth(power_of_two(text, *dtype))),
                _ => Err(Unsupported::new("a power of two that is no float")),
            },
            Question::ExactSum => Err(Unsupported::new("a sum without rounding")),
            Question::Size => self.size(first).map(Term::Number),
            Question::Free if self.is_free(first) => truth(true),
            // A name may be free without a condition that says so.
            Question::Free => {
                let name = self.script.fresh("asked");
                Ok(Term::Truth(self.script.declare(&name, "Bool")))
            }
        }
    }

    /// The truth value that a name has the class's dtype.
    fn is_same(&mut self, class: usize, name: usize) -> Result<Term, Unsupported> {
        let class_of_name = self.class_of(name)?;
        match (self.type_of(class), self.type_of(class_of_name)) {
            (Type::Any { .. }, Type::Any { .. }) if class != class_of_name => {
                Err(Unsupported::new("whether two dtypes of any width are the same"))
            }
            (kind, of_name) => Ok(Term::Truth((kind == of_name).to_string())),
        }
    }

    /// Returns whether the question is about the ring term: the op's own result, or the exact sum.
    fn is_of_use(&self, question: Question, slot: usize) -> bool {
        match question {
            Question::NoWrap => self.slots[slot].as_ref().is_some_and(|slot| slot.bounds.is_none()),
            _ => super::parsed::is_in_equation(self.rule, slot),
        }
    }

    /// The truth value that each value of the first name is one of the second name's dtype.
    fn is_exact(&mut self, first: usize, second: usize) -> Result<Term, Unsupported> {
        let to_class = self.class_of(second)?;
        let to = self.type_of(to_class);
        let class = self.class_of(first)?;
        let from = self.type_of(class);
        let truth = |value: bool| Ok(Term::Truth(value.to_string()));
        let bounds = self.slots[first].as_ref().and_then(|slot| slot.bounds.clone());
        match (from, to) {
            (Type::Float(from), Type::Float(to)) => truth(super::statics::has_all_of(to, from)),
            (Type::Float(_), _) => truth(false),
            (_, Type::Float(to)) => {
                let [min, max] = bounds.ok_or(Unsupported::new("bounds of a compound node"))?;
                let (_, mantissa) = super::encode::float_shape(to);
                let ends = [-(1i128 << mantissa), 1 << mantissa];
                let [low, high] = ends.map(|end| self.script.literal(end));
                let inside = [self.script.at_most(&low, &min), self.script.at_most(&max, &high)];
                Ok(Term::Truth(format!("(and {} {})", inside[0], inside[1])))
            }
            _ => {
                let [min, max] = bounds.ok_or(Unsupported::new("bounds of a compound node"))?;
                let inside = [self.is_inside(&min, to_class), self.is_inside(&max, to_class)];
                Ok(Term::Truth(format!("(and {} {})", inside[0], inside[1])))
            }
        }
    }

    /// One side of an equation: an exact sum; a division is the value of a node.
    pub(super) fn sum(&mut self, expr: &Expr) -> Result<Number, Unsupported> {
        let unknown = || Unsupported::new("an equation of something other than sums");
        match expr {
            Expr::Int(value) => Ok(self.script.literal(*value)),
            Expr::Slot(slot) => self.exact(*slot),
            Expr::Unary('-', inner) => {
                let inner = self.sum(inner)?;
                Ok(self.script.neg(&inner))
            }
            Expr::Binary(operator, left, right) => {
                let (x, y) = (self.sum(left)?, self.sum(right)?);
                let rounding = match operator {
                    Operator::Add => return Ok(self.script.add(&x, &y)),
                    Operator::Sub => return Ok(self.script.sub(&x, &y)),
                    Operator::Mul => return Ok(self.script.mul(&x, &y)),
                    Operator::FloorDiv | Operator::FloorMod => Rounding::Floor,
                    Operator::CDiv | Operator::CMod => Rounding::Zero,
                    _ => return Err(unknown()),
                };
                let x = match &**left {
                    Expr::Slot(slot) => self.value_of(*slot)?,
                    // Only a quotient by -1 may wrap.
                    Expr::Binary(Operator::FloorDiv | Operator::CDiv, _, divisor) => {
                        let value = self.node_value(&x);
                        let divisor = self.sum(divisor)?;
                        let minus_one = self.script.literal(-1);
                        self.assumed.push(format!(
                            "(=> (distinct {} {}) (= {} {}))",
                            divisor.text, minus_one.text, value.text, x.text
                        ));
                        value
                    }
                    Expr::Binary(..) => self.node_value(&x),
                    _ => x,
                };
                let [quotient, rest] = self.script.divide(rounding, &x, &y);
                let zero = self.script.literal(0);
                self.assumed.push(format!("(distinct {} {})", y.text, zero.text));
                // The divisor is a constant in the graph, so it fits the dtype.
                let class = self.typing.node(0);
                let inside = self.is_inside(&y, class);
                self.assumed.push(inside);
                let is_quotient = matches!(operator, Operator::FloorDiv | Operator::CDiv);
                Ok(if is_quotient { quotient } else { rest })
            }
            _ => Err(unknown()),
        }
    }

    /// The value of a name that is divided: the value of its node, wrapped.
    fn value_of(&mut self, slot: usize) -> Result<Number, Unsupported> {
        let value = self.slots[slot].as_ref().map(|slot| slot.value.clone());
        let (ring, class) = match value {
            Some(Value::Int { read: Some(read), .. }) => return Ok(read),
            Some(Value::Int { ring, read: None, class }) => (ring, class),
            _ => return self.exact(slot),
        };
        let number = self.value_in(&ring, class);
        // From here on the name has this value.
        if let Some(slot) = self.slots[slot].as_mut() {
            slot.value = Value::Int { ring: number.clone(), read: Some(number.clone()), class };
            slot.exact = Some(ring);
        }
        Ok(number)
    }

    /// The value of a node with this exact number; nodes of equations have the root's dtype.
    fn node_value(&mut self, number: &Number) -> Number {
        let class = self.typing.node(0);
        self.value_in(number, class)
    }

    fn value_in(&mut self, ring: &Number, class: usize) -> Number {
        let name = self.script.fresh("value");
        let number = self.script.unknown(&name, ring.bits);
        let inside = self.is_inside(&number, class);
        self.assumed.push(inside);
        let congruent = self.congruent(&number, ring, class);
        self.assumed.push(congruent);
        number
    }
}

/// The term that a float is one of the powers of two that `power2` allows.
fn power_of_two(text: &str, dtype: DType) -> String {
    let mut term = String::from("(or");
    for exponent in -14..=14 {
        for sign in [1.0, -1.0] {
            let value = Constant::float(dtype, sign * 2f64.powi(exponent));
            term += &format!(" (= {text} {})", float_literal(value));
        }
    }
    term + ")"
}
