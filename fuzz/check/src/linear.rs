//! What a list of linear uops means, said slowly: one uop at a time through the scalar meanings.
//!
//! For blame: it tells a wrong list from a device that runs a right list wrongly.

use gradiff::graph::{Arg, Constant, DType, Instruction, Linear, Op, evaluate};

use crate::stages::Elements;

/// Runs a kernel on its parameters, in the order of their slots.
///
/// # Errors
/// A touch outside a parameter, a loop without an end.
pub(crate) fn run(kernel: &Linear, memories: &mut [Elements]) -> Result<(), String> {
    let uops = &kernel.uops;
    let mut machine = Machine { uops, values: vec![Value::Nothing; uops.len()], memories };
    let mut position = 0;
    while position < uops.len() {
        position = machine.step(position)?;
    }
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Value {
    Nothing,
    /// An element; `None` if undefined.
    Element(Option<Constant>),
    /// A place in a parameter; `None` if its gate is closed.
    Address(Option<(usize, i128)>),
}

struct Machine<'a> {
    uops: &'a [Instruction],
    values: Vec<Value>,
    memories: &'a mut [Elements],
}

impl Machine<'_> {
    /// Carries out the uop at `position` and says which one is next.
    fn step(&mut self, position: usize) -> Result<usize, String> {
        let uop = &self.uops[position];
        let next = position + 1;
        let at = |problem: String| format!("uop {position} ({}): {problem}", uop.op);
        let value = match (uop.op, &uop.arg) {
            (Op::DefineGlobal, _) => Value::Nothing,
            (Op::Const, Arg::Const(value)) => Value::Element(Some(*value)),
            (Op::Range, _) => {
                self.values[position] = Value::Element(Some(Constant::int(uop.dtype, 0)));
                return self.enter(position);
            }
            (Op::EndRange, _) => return self.repeat(uop.src[0] as usize),
            (Op::DefineAcc, _) => Value::Element(self.element(uop.src[0])),
            (Op::Assign, _) => {
                let value = Value::Element(self.element(uop.src[1]));
                self.values[uop.src[0] as usize] = value;
                value
            }
            (Op::Index, _) => Value::Address(self.address(uop).map_err(at)?),
            (Op::Load, _) => Value::Element(self.load(uop).map_err(at)?),
            (Op::Store, _) => {
                self.store(uop).map_err(at)?;
                Value::Nothing
            }
            (Op::Where, _) => Value::Element(match self.element(uop.src[0]) {
                Some(is) => self.element(uop.src[if is.is_true() { 1 } else { 2 }]),
                None => None,
            }),
            (op, _) if op.is_elementwise() => {
                let sources: Option<Vec<Constant>> =
                    uop.src.iter().map(|source| self.element(*source)).collect();
                Value::Element(sources.and_then(|s| evaluate(op, uop.dtype, &s)))
            }
            _ => return Err(at("not a linear uop".to_string())),
        };
        self.values[position] = value;
        Ok(next)
    }

    fn element(&self, position: u32) -> Option<Constant> {
        match self.values[position as usize] {
            Value::Element(element) => element,
            _ => None,
        }
    }

    fn number(&self, position: u32) -> Option<i128> {
        self.element(position).and_then(Constant::to_int)
    }

    /// Goes into the loop at `range`, or past its end if the counter has reached it.
    fn enter(&self, range: usize) -> Result<usize, String> {
        let (Some(counter), Some(end)) =
            (self.number(range as u32), self.number(self.uops[range].src[0]))
        else {
            return Err(format!("uop {range}: a loop over an unknown count"));
        };
        if counter < end {
            return Ok(range + 1);
        }
        let is_end = |uop: &Instruction| uop.op == Op::EndRange && uop.src[0] as usize == range;
        let offset = self.uops[range..].iter().position(is_end);
        offset.map(|offset| range + offset + 1).ok_or(format!("uop {range}: a loop without end"))
    }

    fn repeat(&mut self, range: usize) -> Result<usize, String> {
        let dtype: DType = self.uops[range].dtype;
        let counter = self.number(range as u32).ok_or("a loop that was not entered")?;
        self.values[range] = Value::Element(Some(Constant::int(dtype, counter + 1)));
        self.enter(range)
    }

    fn address(&self, uop: &Instruction) -> Result<Option<(usize, i128)>, String> {
        let Arg::Global(global) = &self.uops[uop.src[0] as usize].arg else {
            return Err("an index into no parameter".to_string());
        };
        if let Some(gate) = uop.src.get(2)
            && self.element(*gate) == Some(Constant::bool(false))
        {
            return Ok(None);
        }
        let index = self.number(uop.src[1]).ok_or("an undefined index")?;
        let size = self.memories[global.slot].len();
        if index < 0 || index >= size as i128 {
            return Err(format!("element {index} of data{} of {size}", global.slot));
        }
        Ok(Some((global.slot, index)))
    }

    fn load(&self, uop: &Instruction) -> Result<Option<Constant>, String> {
        match (self.values[uop.src[0] as usize], uop.src.get(1)) {
            (Value::Address(Some((slot, index))), _) => Ok(self.memories[slot][index as usize]),
            (Value::Address(None), Some(alternative)) => Ok(self.element(*alternative)),
            (Value::Address(None), None) => Ok(Some(Constant::zero(uop.dtype))),
            _ => Err("a load from no address".to_string()),
        }
    }

    fn store(&mut self, uop: &Instruction) -> Result<(), String> {
        match self.values[uop.src[0] as usize] {
            Value::Address(Some((slot, index))) => {
                self.memories[slot][index as usize] = self.element(uop.src[1]);
                Ok(())
            }
            Value::Address(None) => Ok(()),
            _ => Err("a store to no address".to_string()),
        }
    }
}
