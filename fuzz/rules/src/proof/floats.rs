//! Float ops as SMT-LIB floating-point terms.
//!
//! Sums, products, quotients and roots of 16-bit floats are computed in f32 and rounded once more,
//! which is the correctly rounded result (f32 has more than twice the bits and two to spare), so
//! the theory's own ops give the same results. Functions without a fixed result have no terms.

use gradiff_graph::{Constant, DType, Op};

use super::encode::{Encoder, Type, Value, choice, float_literal, float_shape, float_sort};
use super::number::{Number, Theory};
use super::statics::has_all_of;
use super::{Obligation, Unsupported};

/// An elementwise op over floats.
pub(super) fn op(op: Op, src: &[Value]) -> Result<Value, Unsupported> {
    let mut texts = Vec::new();
    let mut dtype = DType::F32;
    for value in src {
        let Value::Float(text, source_dtype) = value else {
            return Err(Unsupported::new("a float op over something else"));
        };
        texts.push(text.as_str());
        dtype = *source_dtype;
    }
    // Both are commutative by definition; in a fixed order they are one term.
    if matches!(op, Op::Add | Op::Mul) {
        texts.sort_unstable();
    }
    let unit = float_literal(Constant::one(dtype));
    let float = |text: String| Ok(Value::Float(text, dtype));
    match (op, texts.as_slice()) {
        (Op::Neg, [x]) => float(format!("(fp.neg {x})")),
        (Op::Sqrt, [x]) => float(format!("(fp.sqrt RNE {x})")),
        (Op::Recip, [x]) => float(format!("(fp.div RNE {unit} {x})")),
        (Op::Add, [x, y]) => float(format!("(fp.add RNE {x} {y})")),
        // IEEE 754 defines x - y as x + (-y).
        (Op::Sub, [x, y]) => {
            let y = format!("(fp.neg {y})");
            let (first, second) = if *x < y.as_str() { (*x, y.as_str()) } else { (y.as_str(), *x) };
            float(format!("(fp.add RNE {first} {second})"))
        }
        (Op::Mul, [x, y]) => float(format!("(fp.mul RNE {x} {y})")),
        (Op::FDiv, [x, y]) => float(format!("(fp.div RNE {x} {y})")),
        (Op::Max, [x, y]) => float(format!("(ite (or (fp.gt {x} {y}) (fp.isNaN {x})) {x} {y})")),
        (Op::Min, [x, y]) => float(format!("(ite (or (fp.lt {x} {y}) (fp.isNaN {x})) {x} {y})")),
        (Op::CmpLt, [x, y]) => Ok(Value::Truth(format!("(fp.lt {x} {y})"))),
        (Op::CmpNe, [x, y]) => Ok(Value::Truth(format!("(not (fp.eq {x} {y}))"))),
        _ => Err(Unsupported(format!("{op} of floats has no terms"))),
    }
}

/// A cast to a float or bool.
pub(super) fn cast(text: &str, from: DType, to: Type) -> Result<Value, Unsupported> {
    match to {
        // A NaN is not 0, so it is true.
        Type::Bool => Ok(Value::Truth(format!("(not (fp.isZero {text}))"))),
        Type::Float(dtype) if from == dtype => Ok(Value::Float(text.to_owned(), dtype)),
        Type::Float(dtype) => {
            let (exponent, mantissa) = float_shape(dtype);
            Ok(Value::Float(format!("((_ to_fp {exponent} {mantissa}) RNE {text})"), dtype))
        }
        _ => Err(Unsupported::new("a cast of floats to integers needs a width")),
    }
}

impl Encoder<'_> {
    /// A cast of an integer or a truth value, rounded once.
    pub(super) fn int_cast(
        &mut self,
        x: &Value,
        to: DType,
        shown: &str,
    ) -> Result<Value, Unsupported> {
        let (number, exact) = match x {
            Value::Truth(truth) => (self.as_number(truth), None),
            Value::Int { ring, read: None, class } => {
                (self.read(x, shown)?, Some((ring.clone(), *class)))
            }
            _ => (self.read(x, shown)?, None),
        };
        let mut cast = self.of_int(&number, to)?;
        if let Some((exact, class)) = exact {
            // A number that does not wrap is a term that it may share with another cast.
            let inside = self.is_inside(&exact, class);
            let exact = self.of_int(&exact, to)?;
            cast = self.choose(&inside, &exact, &cast)?;
        }
        if let Value::Float(text, _) = &cast {
            self.of_ints.push((text.clone(), number));
        }
        Ok(cast)
    }

    /// The float nearest to a number: an unknown float, the same for the same number, 0 for 0
    /// and 1 for 1.
    fn of_int(&mut self, number: &Number, to: DType) -> Result<Value, Unsupported> {
        if self.script.theory == Theory::Unbounded {
            return Err(Unsupported::new("a cast to float needs bit-vectors"));
        }
        let (exponent, digits) = float_shape(to);
        // A truth value is encoded exactly.
        if number.bits <= 2 {
            let cut = format!("((_ extract {} 0) {})", number.bits - 1, number.text);
            return Ok(Value::Float(format!("((_ to_fp {exponent} {digits}) RNE {cut})"), to));
        }
        let known = self.nearest.iter().position(|known| *known == (number.text.clone(), to));
        let name = format!("nearest_{}", known.unwrap_or(self.nearest.len()));
        if known.is_none() {
            self.nearest.push((number.text.clone(), to));
            self.script.declare(&name, &float_sort(to));
            for (value, float) in [(0, Constant::zero(to)), (1, Constant::one(to))] {
                let known = self.script.literal(value);
                let float = float_literal(float);
                self.script
                    .fact(format!("(=> (= {} {}) (= {name} {float}))", number.text, known.text));
            }
        }
        Ok(Value::Float(name, to))
    }

    /// A cast of a float, and the condition that it is defined. A float that is a cast of an
    /// integer of few enough digits is that integer: see [`whole_floats`].
    pub(super) fn float_cast(
        &mut self,
        text: &str,
        from: DType,
        class: usize,
    ) -> Result<(Value, String), Unsupported> {
        let always = String::from("true");
        let to = self.type_of(class);
        let usual = match to {
            Type::Int(dtype) => self.whole(text, dtype, class)?,
            _ => (cast(text, from, to)?, always.clone()),
        };
        if let Value::Float(wide, to) = &usual.0
            && *to != from
            && has_all_of(*to, from)
        {
            self.widened.push((wide.clone(), text.to_owned()));
        }
        let known = self.of_ints.iter().find(|(known, _)| known == text).cloned();
        let Some((_, number)) = known else { return Ok(usual) };
        let limit = 1i128 << float_shape(from).1;
        let [low, high] = [-limit, limit].map(|end| self.script.literal(end));
        let ends = [self.script.at_most(&low, &number), self.script.at_most(&number, &high)];
        let is_exact = format!("(and {} {})", ends[0], ends[1]);
        let (value, defined) = match to {
            Type::Int(_) => {
                let inside = self.is_inside(&number, class);
                (Value::Int { ring: number, read: None, class }, inside)
            }
            Type::Float(dtype) => (self.of_int(&number, dtype)?, always),
            _ => {
                let zero = self.script.literal(0);
                (Value::Truth(format!("(distinct {} {})", number.text, zero.text)), always)
            }
        };
        let value = self.choose(&is_exact, &value, &usual.0)?;
        Ok((value, choice(&is_exact, &defined, &usual.1)))
    }

    /// A float that is cast to an integer: an unknown number, the same for each cast of the same
    /// float, and defined where it is one of the dtype. A float that was widened is the same.
    fn whole(
        &mut self,
        text: &str,
        to: DType,
        class: usize,
    ) -> Result<(Value, String), Unsupported> {
        if self.script.theory == Theory::Unbounded {
            return Err(Unsupported::new("a cast of floats to integers needs bit-vectors"));
        }
        let text = self.narrowest(text).to_owned();
        let known = self.wholes.iter().position(|known| *known == text);
        let number = known.unwrap_or(self.wholes.len());
        let (name, defined) = (format!("whole_{number}"), format!("is_{to}_{number}"));
        if known.is_none() {
            self.wholes.push(text.clone());
            let (any, zero) = (self.script.unknown(&name, 65), self.script.literal(0));
            self.script.fact(format!("(=> (fp.isZero {text}) (= {} {}))", any.text, zero.text));
        }
        let ring = Number { text: name, bits: 65 };
        let inside = self.is_inside(&ring, class);
        if !self.script.declarations.iter().any(|line| line.contains(&format!(" {defined} "))) {
            self.script.declare(&defined, "Bool");
        }
        self.script.fact(format!("(=> {defined} {inside})"));
        Ok((Value::Int { ring, read: None, class }, defined))
    }

    /// The float of fewest bits that the term was widened from.
    fn narrowest<'t>(&'t self, text: &'t str) -> &'t str {
        let found = self.widened.iter().find(|(wide, _)| wide == text);
        found.map_or(text, |(_, narrow)| self.narrowest(narrow))
    }
}

/// The facts that proofs about casts of floats assume, for a test: each float dtype has the
/// integers of no more digits than its own, both ends included, and widening changes no value.
pub fn whole_floats() -> Vec<Obligation> {
    let floats = [DType::F16, DType::BF16, DType::F32, DType::F64];
    let whole = floats.map(|dtype| {
        let (exponent, digits) = float_shape(dtype);
        let bits = digits + 2;
        let limit = format!("(_ bv{} {bits})", 1u64 << digits);
        Obligation {
            label: format!("{dtype} has the integers of {digits} digits"),
            premises: format!(
                "(declare-const x (_ BitVec {bits}))\n\
                 (assert (and (bvsle (bvneg {limit}) x) (bvsle x {limit})))\n"
            ),
            goal: format!("(= x ((_ fp.to_sbv {bits}) RTZ ((_ to_fp {exponent} {digits}) RNE x)))"),
            values: vec![String::from("x")],
        }
    });
    let pairs = floats.iter().flat_map(|from| floats.map(|to| (*from, to)));
    let wider =
        pairs.filter(|(from, to)| from != to && has_all_of(*to, *from)).map(|(from, to)| {
            let ((exponent, digits), (wide, more)) = (float_shape(from), float_shape(to));
            Obligation {
                label: format!("{to} has the values of {from}"),
                premises: format!("(declare-const x {})\n", float_sort(from)),
                goal: format!(
                    "(= x ((_ to_fp {exponent} {digits}) RNE ((_ to_fp {wide} {more}) RNE x)))"
                ),
                values: vec![String::from("x")],
            }
        });
    whole.into_iter().chain(wider).collect()
}
