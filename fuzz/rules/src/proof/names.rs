//! The values of the names of a rule. A name is a value within bounds, a part of a sum that an
//! equation splits, or a node within the left side.

use gradiff_graph::{DType, Op};
use gradiff_rewrite::syntax::{Pattern, Question, is_constant_name};

use super::Unsupported;
use super::encode::{Encoder, Slot, Type, Value, both, float_sort};
use super::number::Number;
use super::parsed::{asks, is_in_equation, says};

/// The number of bits that an exact sum has in addition to those of a value, in bit-vectors.
const EXACT_BITS: u32 = 4;

/// The role of a name in the left side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// An integer, a bool or a float.
    Value,
    /// The array of an `Index`.
    Global,
    /// The address of a `Load`.
    Address,
}

impl Encoder<'_> {
    /// Declares the names in a part of the left side that has this role.
    pub(super) fn declare_slots(
        &mut self,
        pattern: &Pattern,
        role: Role,
    ) -> Result<(), Unsupported> {
        match pattern {
            Pattern::Any(slot) | Pattern::Constant(slot) => {
                if self.slots[*slot].is_none() {
                    let declared = self.declare_slot(*slot, role)?;
                    self.slots[*slot] = Some(declared);
                }
            }
            Pattern::Node(op, src, _) => {
                for (position, source) in src.iter().enumerate() {
                    let role = match (op, position) {
                        (Op::Index, 0) => Role::Global,
                        (Op::Load, 0) => Role::Address,
                        _ => Role::Value,
                    };
                    self.declare_slots(source, role)?;
                }
            }
            Pattern::Reduce(..) => {
                return Err(Unsupported::new("a reduction within the left side"));
            }
            Pattern::Literal(_) | Pattern::Value(_) | Pattern::Computed(_) => {}
        }
        Ok(())
    }

    /// Declares a name with this role: a value of its dtype, and its bounds.
    fn declare_slot(&mut self, slot: usize, role: Role) -> Result<Slot, Unsupported> {
        let name = self.rule.name(slot).to_owned();
        let class = self.typing.of_slot(slot).ok_or(Unsupported::new("a name without a class"))?;
        let value = format!("v_{name}");
        match role {
            Role::Value => {}
            Role::Global => {
                let global = self.script.declare(&value, "Global");
                let index = self.script.literal(0);
                let value = Value::Address { global, index, gate: String::from("true"), class };
                return Ok(Slot { value, bounds: None, exact: None });
            }
            Role::Address => return Err(Unsupported::new("an address without its index")),
        }
        let value = match self.type_of(class) {
            Type::Any { .. } | Type::Int(_) => {
                let number = self.script.unknown(&value, self.bits(class));
                let inside = self.is_inside(&number, class);
                self.script.fact(inside);
                Value::Int { ring: number.clone(), read: Some(number), class }
            }
            Type::Bool => Value::Truth(self.script.declare(&value, "Bool")),
            Type::Float(dtype) => {
                Value::Float(self.script.declare(&value, &float_sort(dtype)), dtype)
            }
            Type::Raw(dtype) => {
                let bits = 8 * dtype.size_bytes();
                let name = self.script.declare(&value, &format!("(_ BitVec {bits})"));
                if dtype == DType::Bool {
                    self.script.fact(format!("(bvult {name} (_ bv2 {bits}))"));
                }
                Value::Raw(name, dtype)
            }
            Type::Void => return Err(Unsupported::new("a name without a value")),
        };
        let bounds = self.bounds_of(&name, &value, class, is_constant_name(&name))?;
        if let Some((_, fact)) = &bounds {
            let fact = match self.has_choice() {
                true => format!("(=> {} {fact})", self.flag(&name)),
                false => fact.clone(),
            };
            self.script.fact(fact);
        }
        let value = self.with_exact_sum(slot, value, class);
        Ok(Slot { value, bounds: bounds.map(|(bounds, _)| bounds), exact: None })
    }

    /// Declares the bounds of a value. Returns them and a term that says that the value is within
    /// them; `None` for a value that has no bounds, such as a float.
    pub(super) fn bounds_of(
        &mut self,
        name: &str,
        value: &Value,
        class: usize,
        is_constant: bool,
    ) -> Result<Option<([Number; 2], String)>, Unsupported> {
        let number = match value {
            Value::Int { read: Some(number), .. } => number.clone(),
            Value::Truth(text) => self.as_number(text),
            _ => return Ok(None),
        };
        if is_constant {
            return Ok(Some(([number.clone(), number], String::from("true"))));
        }
        let bits = self.bits(class).max(2);
        let ends = ["min", "max"].map(|end| format!("{end}_{name}"));
        let ends = ends.map(|end| self.script.unknown(&end, bits));
        for end in &ends {
            let inside = self.is_inside(end, class);
            self.script.fact(inside);
        }
        let within =
            [self.script.at_most(&ends[0], &number), self.script.at_most(&number, &ends[1])];
        self.script.fact(self.script.at_most(&ends[0], &ends[1]));
        Ok(Some((ends, format!("(and {} {})", within[0], within[1]))))
    }

    /// Returns whether a name may be undefined where the left side is defined.
    pub(super) fn has_choice(&self) -> bool {
        fn find(pattern: &Pattern) -> bool {
            match pattern {
                Pattern::Node(op, src, _) => *op == Op::Where || src.iter().any(find),
                // A name is not evaluated if there is no iteration.
                Pattern::Reduce(..) => true,
                _ => false,
            }
        }
        find(&self.rule.lhs)
    }

    /// Declares the flag that is true if the name is defined.
    pub(super) fn flag(&mut self, name: &str) -> String {
        let flag = format!("is_defined_{name}");
        let line = format!("(declare-const {flag} Bool)");
        if !self.script.declarations.contains(&line) {
            self.script.declarations.push(line);
        }
        flag
    }

    /// Returns the value of a name. If an equation splits the name, the ring term of the value
    /// becomes an exact sum, which is congruent to it.
    fn with_exact_sum(&mut self, slot: usize, value: Value, class: usize) -> Value {
        let Value::Int { read: Some(number), .. } = &value else { return value };
        let name = self.rule.name(slot);
        if !is_in_equation(self.rule, slot) || is_constant_name(name) {
            return value;
        }
        if says(self.rule, Question::Linear, slot) {
            return value;
        }
        let exact = self.script.unknown(&format!("exact_{name}"), number.bits + EXACT_BITS);
        let congruent = self.congruent(number, &exact, class);
        self.script.fact(congruent);
        Value::Int { ring: exact, read: Some(number.clone()), class }
    }

    /// Declares the names that equations bind. They are exact sums, not confined to the range of a
    /// dtype.
    pub(super) fn declare_parts(&mut self) {
        let Some(given) = &self.rule.given else { return };
        let guard = match self.reduction {
            Some(_) => given.equations.iter().fold(String::from("true"), |guard, (left, _)| {
                let name = self.rule.name(*left).to_owned();
                both(&guard, &self.flag(&name))
            }),
            None => String::from("true"),
        };
        for slot in given.first..self.slots.len() {
            let name = self.rule.name(slot).to_owned();
            let class = self.typing.of_slot(slot).unwrap_or_default();
            let bits = self.bits(class) + EXACT_BITS;
            let exact = self.script.unknown(&format!("v_{name}"), bits);
            let bounds = if is_constant_name(&name) {
                [exact.clone(), exact.clone()]
            } else {
                let ends = ["min", "max"].map(|end| format!("{end}_{name}"));
                let ends = ends.map(|end| self.script.unknown(&end, bits));
                for (low, high) in [(&ends[0], &exact), (&exact, &ends[1])] {
                    let within = self.script.at_most(low, high);
                    self.script.fact(match guard.as_str() {
                        "true" => within,
                        guard => format!("(=> {guard} {within})"),
                    });
                }
                ends
            };
            let is_inside = says(self.rule, Question::Linear, slot);
            if is_inside {
                for end in &bounds {
                    let inside = self.is_inside(end, class);
                    self.script.fact(inside);
                }
            }
            let value = Value::Int { read: is_inside.then(|| exact.clone()), ring: exact, class };
            self.slots[slot] = Some(Slot { value, bounds: Some(bounds), exact: None });
        }
    }

    /// Assumes the equations of the rule, over exact sums.
    pub(super) fn equations(&mut self) -> Result<(), Unsupported> {
        let Some(given) = &self.rule.given else { return Ok(()) };
        for (left, right) in &given.equations {
            let left = self.exact(*left)?;
            let right = self.sum(right)?;
            self.assumed.push(format!("(= {} {})", left.text, right.text));
        }
        Ok(())
    }

    /// Returns the exact sum of a name.
    pub(super) fn exact(&self, slot: usize) -> Result<Number, Unsupported> {
        let known = self.slots[slot].as_ref();
        match known.map(|slot| (&slot.exact, &slot.value)) {
            Some((Some(exact), _)) => Ok(exact.clone()),
            Some((None, Value::Int { ring, .. })) => Ok(ring.clone()),
            _ => Err(Unsupported::new("an equation about something that is no integer")),
        }
    }

    /// Declares the name `root`, which conditions and equations may use, and returns its value.
    pub(super) fn name_root(&mut self, left: Value) -> Result<Value, Unsupported> {
        let class = self.typing.node(0);
        let left = match left {
            Value::Int { ring, .. } if is_in_equation(self.rule, 0) => {
                let exact = self.script.unknown("exact_root", ring.bits + EXACT_BITS);
                let congruent = self.congruent(&ring, &exact, class);
                self.script.fact(congruent);
                Value::Int { ring: exact, read: None, class }
            }
            left => left,
        };
        self.slots[0] = Some(Slot { value: left.clone(), bounds: None, exact: None });
        Ok(left)
    }

    /// Declares a name that the left side gives to one of its nodes, and returns the node's value.
    pub(super) fn name_node(
        &mut self,
        slot: usize,
        value: Value,
        class: usize,
        is_exact: bool,
    ) -> Result<Value, Unsupported> {
        let value = match value {
            Value::Int { ring, read: None, class } if is_exact => {
                let inside = self.is_inside(&ring, class);
                self.assumed.push(inside);
                Value::Int { read: Some(ring.clone()), ring, class }
            }
            Value::Int { ring, class, .. } if is_in_equation(self.rule, slot) => {
                let name = self.rule.name(slot);
                let exact = self.script.unknown(&format!("exact_{name}"), ring.bits + EXACT_BITS);
                let congruent = self.congruent(&ring, &exact, class);
                self.script.fact(congruent);
                let is_inside = says(self.rule, Question::Linear, slot);
                if is_inside {
                    let inside = self.is_inside(&exact, class);
                    self.assumed.push(inside);
                }
                Value::Int { read: is_inside.then(|| exact.clone()), ring: exact, class }
            }
            value => value,
        };
        self.slots[slot] = Some(Slot { value: value.clone(), bounds: None, exact: None });
        let questions = [Question::Min, Question::Max];
        let is_asked = questions.iter().any(|question| asks(self.rule, *question, slot));
        if is_asked {
            let name = self.rule.name(slot).to_owned();
            let read = self.as_read(&value, &name)?;
            if let Some((bounds, fact)) = self.bounds_of(&name, &read, class, false)? {
                self.ordered.push(fact);
                self.slots[slot] =
                    Some(Slot { value: read.clone(), bounds: Some(bounds), exact: None });
            }
            return Ok(read);
        }
        Ok(value)
    }
}
