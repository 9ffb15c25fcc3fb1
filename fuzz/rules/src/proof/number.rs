//! Whole numbers in SMT-LIB 2: unbounded integers, or bit-vectors so wide that nothing is lost.
//!
//! Both are exact: a sum is the exact sum, whatever the width of the dtype; wrapping is separate.
//! SMT-LIB's `div` and `mod` are Euclidean, so floor and C division are defined here.

use super::Unsupported;

/// The sort of numbers in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theory {
    /// SMT-LIB `Int`.
    Unbounded,
    /// Signed bit-vectors of this width; bitwise ops exist only here.
    Vectors(u32),
}

/// A term, and the number of bits that its value may need (sign included; no meaning for
/// `Unbounded`).
#[derive(Clone, Debug)]
pub(super) struct Number {
    pub(super) text: String,
    pub(super) bits: u32,
}

/// The two kinds of division.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    Floor,
    Zero,
}

/// A division of a script, for the lemmas about it.
#[derive(Clone, Debug)]
pub(super) struct Division {
    pub(super) numerator: String,
    pub(super) divisor: String,
    pub(super) quotient: String,
    pub(super) rest: String,
}

/// Declarations and facts of a query, in the order in which they were added.
pub(super) struct Script {
    pub(super) theory: Theory,
    pub(super) declarations: Vec<String>,
    /// Facts that hold by definition.
    pub(super) facts: Vec<String>,
    pub(super) divisions: Vec<Division>,
    /// The most bits that a term needed.
    pub(super) widest: u32,
    count: usize,
}

impl Script {
    pub(super) fn new(theory: Theory) -> Script {
        Script {
            theory,
            declarations: Vec::new(),
            facts: Vec::new(),
            divisions: Vec::new(),
            widest: 1,
            count: 0,
        }
    }

    pub(super) fn sort(&self) -> String {
        match self.theory {
            Theory::Unbounded => String::from("Int"),
            Theory::Vectors(width) => format!("(_ BitVec {width})"),
        }
    }

    /// A name that is used nowhere else.
    pub(super) fn fresh(&mut self, stem: &str) -> String {
        self.count += 1;
        format!("{stem}.{}", self.count)
    }

    /// Declares a constant of this sort.
    pub(super) fn declare(&mut self, name: &str, sort: &str) -> String {
        self.declarations.push(format!("(declare-const {name} {sort})"));
        name.to_owned()
    }

    /// Defines an unknown number as this term of other unknowns.
    pub(super) fn define(&mut self, name: &str, term: &str) {
        let line = format!("(declare-const {name} {})", self.sort());
        self.declarations.retain(|known| *known != line);
        // Unknowns come first, as the term may have been declared later.
        self.declarations.sort_by_key(|line| line.starts_with("(define-fun"));
        let position = self.declarations.iter().position(|line| line.starts_with("(define-fun"));
        let line = format!("(define-fun {name} () {} {term})", self.sort());
        self.declarations.insert(position.unwrap_or(self.declarations.len()), line);
    }

    pub(super) fn fact(&mut self, fact: String) {
        self.facts.push(fact);
    }

    /// Declares a number of unknown value that needs at most `bits` bits.
    pub(super) fn unknown(&mut self, name: &str, bits: u32) -> Number {
        let sort = self.sort();
        self.declare(name, &sort);
        let number = Number { text: name.to_owned(), bits };
        self.widest = self.widest.max(bits);
        if let Theory::Vectors(width) = self.theory
            && bits < width
        {
            let cut = format!("((_ extract {} 0) {name})", bits - 1);
            self.fact(format!("(= {name} ((_ sign_extend {}) {cut}))", width - bits));
        }
        number
    }

    /// A number for this term; a long one gets a name.
    fn term(&mut self, text: String, bits: u32) -> Number {
        self.widest = self.widest.max(bits);
        if text.len() < 60 {
            return Number { text, bits };
        }
        let name = self.fresh("t");
        let sort = self.sort();
        self.declarations.push(format!("(define-fun {name} () {sort} {text})"));
        Number { text: name, bits }
    }

    pub(super) fn literal(&mut self, value: i128) -> Number {
        let bits = 129 - if value < 0 { value.leading_ones() } else { value.leading_zeros() };
        self.widest = self.widest.max(bits);
        let text = match self.theory {
            Theory::Unbounded if value < 0 => format!("(- {})", value.unsigned_abs()),
            Theory::Unbounded => value.to_string(),
            // A literal that is too wide raises `widest`, and the query is encoded anew.
            Theory::Vectors(width) if width < 128 => {
                format!("(_ bv{} {width})", value as u128 & ((1 << width) - 1))
            }
            Theory::Vectors(width) => {
                format!("((_ sign_extend {}) (_ bv{} 128))", width - 128, value as u128)
            }
        };
        Number { text, bits }
    }

    fn call(&mut self, names: [&str; 2], x: &Number, y: &Number, bits: u32) -> Number {
        let name = if self.theory == Theory::Unbounded { names[0] } else { names[1] };
        self.term(format!("({name} {} {})", x.text, y.text), bits)
    }

    pub(super) fn add(&mut self, x: &Number, y: &Number) -> Number {
        self.call(["+", "bvadd"], x, y, x.bits.max(y.bits) + 1)
    }

    pub(super) fn sub(&mut self, x: &Number, y: &Number) -> Number {
        self.call(["-", "bvsub"], x, y, x.bits.max(y.bits) + 1)
    }

    pub(super) fn mul(&mut self, x: &Number, y: &Number) -> Number {
        self.call(["*", "bvmul"], x, y, x.bits + y.bits)
    }

    pub(super) fn neg(&mut self, x: &Number) -> Number {
        let zero = self.literal(0);
        self.sub(&zero, x)
    }

    pub(super) fn less(&self, x: &Number, y: &Number) -> String {
        let name = if self.theory == Theory::Unbounded { "<" } else { "bvslt" };
        format!("({name} {} {})", x.text, y.text)
    }

    pub(super) fn at_most(&self, x: &Number, y: &Number) -> String {
        let name = if self.theory == Theory::Unbounded { "<=" } else { "bvsle" };
        format!("({name} {} {})", x.text, y.text)
    }

    pub(super) fn choose(&mut self, condition: &str, x: &Number, y: &Number) -> Number {
        let bits = x.bits.max(y.bits);
        self.term(format!("(ite {condition} {} {})", x.text, y.text), bits)
    }

    /// Quotient and rest of `x / y`; any numbers for y = 0.
    pub(super) fn divide(&mut self, rounding: Rounding, x: &Number, y: &Number) -> [Number; 2] {
        if let Some(known) = self.known_division(rounding, x, y) {
            return known;
        }
        let found = match self.theory {
            Theory::Vectors(_) => self.divide_vectors(rounding, x, y),
            Theory::Unbounded => self.divide_unbounded(rounding, x, y),
        };
        self.divisions.push(Division {
            numerator: x.text.clone(),
            divisor: y.text.clone(),
            quotient: found[0].text.clone(),
            rest: found[1].text.clone(),
        });
        found
    }

    /// The terms of the same division if it is known, so that equal operands give equal results.
    fn known_division(&self, rounding: Rounding, x: &Number, y: &Number) -> Option<[Number; 2]> {
        let stem = if rounding == Rounding::Floor { "floor" } else { "cut" };
        let found = self.divisions.iter().find(|known| {
            known.numerator == x.text && known.divisor == y.text && known.quotient.starts_with(stem)
        })?;
        let number = |text: &String, bits| Number { text: text.clone(), bits };
        Some([number(&found.quotient, x.bits + 1), number(&found.rest, x.bits.max(y.bits))])
    }

    fn divide_unbounded(&mut self, rounding: Rounding, x: &Number, y: &Number) -> [Number; 2] {
        let stem = if rounding == Rounding::Floor { "floor" } else { "cut" };
        let quotient = self.fresh(stem);
        let quotient = self.unknown(&quotient, x.bits + 1);
        let rest = self.fresh("rest");
        let rest = self.unknown(&rest, x.bits.max(y.bits));
        let (q, r, x, y) = (&quotient.text, &rest.text, &x.text, &y.text);
        self.fact(format!("(=> (distinct {y} 0) (= {x} (+ (* {y} {q}) {r})))"));
        self.fact(match rounding {
            Rounding::Floor => format!(
                "(and (=> (< 0 {y}) (and (<= 0 {r}) (< {r} {y}))) \
                 (=> (< {y} 0) (and (< {y} {r}) (<= {r} 0))))"
            ),
            Rounding::Zero => format!(
                "(=> (distinct {y} 0) (and (< {r} (ite (< {y} 0) (- {y}) {y})) \
                 (< (- {r}) (ite (< {y} 0) (- {y}) {y})) \
                 (=> (<= 0 {x}) (<= 0 {r})) (=> (<= {x} 0) (<= {r} 0))))"
            ),
        });
        [quotient, rest]
    }

    fn divide_vectors(&mut self, rounding: Rounding, x: &Number, y: &Number) -> [Number; 2] {
        let [zero, one] = [0, 1].map(|value| self.literal(value));
        let stem = if rounding == Rounding::Floor { "floor" } else { "cut" };
        let names = [self.fresh(stem), self.fresh("rest")];
        let bits = [x.bits + 1, x.bits.max(y.bits)];
        let (x, y, zero, one) = (&x.text, &y.text, &zero.text, &one.text);
        let cut = format!("(bvsdiv {x} {y})");
        let rest = format!("(bvsrem {x} {y})");
        let is_off = format!(
            "(and (distinct {rest} {zero}) (distinct (bvslt {rest} {zero}) (bvslt {y} {zero})))"
        );
        let values = match rounding {
            Rounding::Zero => [cut, rest],
            Rounding::Floor => [
                format!("(ite {is_off} (bvsub {cut} {one}) {cut})"),
                format!("(ite {is_off} (bvadd {rest} {y}) {rest})"),
            ],
        };
        let mut found = Vec::new();
        for ((name, value), bits) in names.into_iter().zip(values).zip(bits) {
            // The result of a division by zero is any number.
            let number = self.unknown(&name, bits);
            self.fact(format!("(=> (distinct {y} {zero}) (= {name} {value}))"));
            found.push(number);
        }
        let rest = found.pop().expect("there are two values");
        [found.pop().expect("there are two values"), rest]
    }

    /// And, or, exclusive or of numbers in two's complement.
    pub(super) fn bitwise(
        &mut self,
        name: &str,
        x: &Number,
        y: &Number,
    ) -> Result<Number, Unsupported> {
        match self.theory {
            Theory::Unbounded => Err(Unsupported::new("bitwise ops need bit-vectors")),
            Theory::Vectors(_) => {
                let bits = x.bits.max(y.bits);
                Ok(self.term(format!("({name} {} {})", x.text, y.text), bits))
            }
        }
    }

    /// `x * 2^y` or `x / 2^y` rounded down, for `0 <= y < limit`.
    pub(super) fn shift(
        &mut self,
        is_left: bool,
        x: &Number,
        y: &Number,
        limit: u32,
    ) -> Result<Number, Unsupported> {
        if self.theory == Theory::Unbounded {
            return Err(Unsupported::new("shifts need bit-vectors"));
        }
        let name = if is_left { "bvshl" } else { "bvashr" };
        let bits = if is_left { x.bits + limit } else { x.bits };
        Ok(self.term(format!("({name} {} {})", x.text, y.text), bits))
    }

    /// The value between `low` and `high` that is congruent to `x` modulo `high - low + 1`,
    /// which is 2^bits.
    pub(super) fn wrap(&mut self, x: &Number, (low, high): (i128, i128), bits: u32) -> Number {
        let need = bits + u32::from(low == 0);
        match self.theory {
            Theory::Unbounded => {
                let [low, modulus] = [low, high - low + 1].map(|value| self.literal(value));
                let from_low = self.sub(x, &low);
                let rest = format!("(mod {} {})", from_low.text, modulus.text);
                self.term(format!("(+ {} {rest})", low.text), need)
            }
            Theory::Vectors(width) => {
                let kind = if low == 0 { "zero_extend" } else { "sign_extend" };
                let cut = format!("((_ extract {} 0) {})", bits - 1, x.text);
                self.term(format!("((_ {kind} {}) {cut})", width - bits), need)
            }
        }
    }

    /// The term that `x` and `y` are congruent modulo 2^bits.
    pub(super) fn congruent(&self, x: &Number, y: &Number, bits: u32) -> String {
        let (x, y) = (&x.text, &y.text);
        match self.theory {
            Theory::Unbounded => format!("(= 0 (mod (- {x} {y}) {}))", 1u128 << bits),
            Theory::Vectors(_) => {
                let cut = |text: &str| format!("((_ extract {} 0) {text})", bits - 1);
                format!("(= {} {})", cut(x), cut(y))
            }
        }
    }
}
