//! Facts about the emitted uops: the intervals of integers, which decide gates; and a table of the
//! uops themselves, since adjacent elements of a window share loads.

use gradiff_graph::interval::Interval;
use gradiff_graph::interval::unwrapped;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Op};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::dims::Dims;

/// An emitted value, by its number in one of three lists: constants, broadcasts of constants, and
/// uops.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Value {
    Constant(u32),
    Splat(u32),
    Uop(u32),
}

/// The key for common subexpressions: op, type, arg, number of lanes, and sources.
type Expression = (Op, DType, Arg, u8, SmallVec<[Value; 4]>);

pub(super) struct Known {
    facts: Vec<Fact>,
    /// The uops of each open loop, the outermost one first; empty if there are no windows, so that
    /// no common subexpressions are expected.
    loops: Vec<FxHashMap<Expression, Value>>,
    /// The parameters that the kernel stores to.
    stored: FxHashSet<Arg>,
}

/// The facts about a uop.
#[derive(Clone, Copy, Default)]
struct Fact {
    /// The interval, if it is an integer that does not wrap.
    bounds: Option<Interval>,
    /// True if its value changes over time: an accumulator or an assignment.
    is_mutable: bool,
    /// True if it is an array that the kernel does not store to, or an address in one.
    is_constant: bool,
}

impl Known {
    pub(super) fn of(dims: &Dims<'_>) -> Known {
        let uops = &dims.linear.uops;
        let stores = uops.iter().filter(|uop| uop.op == Op::Store);
        let arrays = stores.map(|store| uops[store.src[0] as usize].src[0]);
        let stored = arrays.map(|array| uops[array as usize].arg.clone()).collect();
        // Windows overlap if an unrolled and an upcast index can add up to the same.
        let is_window = dims.of_kind(AxisKind::Unroll) != 0 && dims.upcast() != 0;
        let loops = if is_window { vec![FxHashMap::default()] } else { Vec::new() };
        Known { facts: Vec::new(), loops, stored }
    }

    /// Looks up a uop; if it is new, inserts it as `value`. Returns the earlier value, if there is
    /// one.
    pub(super) fn get_or_insert(
        &mut self,
        uop: &Instruction,
        src: &[Value],
        value: Value,
        constants: &[Constant],
    ) -> Option<Value> {
        let fact = |value: &Value| match value {
            Value::Uop(number) => self.facts[*number as usize],
            Value::Constant(_) | Value::Splat(_) => Fact::default(),
        };
        let is_pure = match uop.op {
            Op::Load => src.len() == 1 && fact(&src[0]).is_constant,
            op => op.is_elementwise() || matches!(op, Op::Index | Op::Vectorize),
        };
        if is_pure && !self.loops.is_empty() && !src.iter().any(|source| fact(source).is_mutable) {
            let expression = (uop.op, uop.dtype, uop.arg.clone(), uop.lanes, src.into());
            if let Some(known) = self.loops.iter().find_map(|known| known.get(&expression)) {
                return Some(*known);
            }
            self.loops.last_mut().map(|known| known.insert(expression, value));
        }
        let is_constant = match uop.op {
            Op::DefineGlobal => !self.stored.contains(&uop.arg),
            Op::Index => fact(&src[0]).is_constant,
            _ => false,
        };
        let is_mutable = matches!(uop.op, Op::DefineAcc | Op::Assign);
        let bounds = self.interval(uop, src, constants);
        self.facts.push(Fact { bounds, is_mutable, is_constant });
        match uop.op {
            Op::Range if !self.loops.is_empty() => self.loops.push(FxHashMap::default()),
            Op::EndRange => drop(self.loops.pop()),
            _ => {}
        }
        None
    }

    /// Decides a comparison of integers, if their intervals do not overlap.
    pub(super) fn decided(&self, op: Op, src: &[Value], constants: &[Constant]) -> Option<bool> {
        let (Op::CmpLt, [x, y]) = (op, src) else { return None };
        let (x, y) = (self.bounds(*x, constants)?, self.bounds(*y, constants)?);
        match () {
            () if x.1 < y.0 => Some(true),
            () if y.1 <= x.0 => Some(false),
            () => None,
        }
    }

    fn bounds(&self, value: Value, constants: &[Constant]) -> Option<Interval> {
        match value {
            Value::Constant(number) => {
                let constant = constants[number as usize];
                let integer = constant.to_int().filter(|_| constant.dtype().is_int())?;
                Some((integer, integer))
            }
            Value::Splat(_) => None,
            Value::Uop(number) => self.facts[number as usize].bounds,
        }
    }

    /// Returns the interval of a uop, if it is an integer that does not wrap.
    fn interval(
        &self,
        uop: &Instruction,
        src: &[Value],
        constants: &[Constant],
    ) -> Option<Interval> {
        if uop.lanes != 1 {
            return None;
        }
        interval(uop, &|source| self.bounds(src[source], constants))
    }
}

/// Returns the interval of an integer from those of its sources; `None` if it may wrap.
fn interval(uop: &Instruction, of: &dyn Fn(usize) -> Option<Interval>) -> Option<Interval> {
    let (type_min, type_max) = uop.dtype.int_range()?;
    let exact = unwrapped((uop.op, uop.dtype, &uop.arg), of);
    exact.filter(|(low, high)| type_min <= *low && *high <= type_max)
}

/// Returns the interval of each uop; `None` if it is not an integer, or if it or a source of it may
/// wrap. The result of an op that is not supported may be any value of its type.
pub(super) fn intervals(uops: &[Instruction]) -> Vec<Option<Interval>> {
    let mut known: Vec<Option<Interval>> = Vec::with_capacity(uops.len());
    for uop in uops {
        let of = |source: usize| known[*uop.src.get(source)? as usize];
        let type_range = uop.dtype.int_range().filter(|_| uop.dtype.is_int());
        let is_arithmetic = matches!(
            uop.op,
            Op::Const
                | Op::Range
                | Op::Add
                | Op::Sub
                | Op::Mul
                | Op::Min
                | Op::Max
                | Op::Where
                | Op::Cast
                | Op::Shl
        );
        let found = match uop.op {
            Op::Range if of(0).is_none() => type_range,
            Op::Cast if !uops[uop.src[0] as usize].dtype.is_int() => type_range,
            // A remainder is bounded by its divisor, also if the dividend may have wrapped.
            Op::FloorMod => {
                let range = || uops[uop.src[0] as usize].dtype.int_range();
                let of = |source: usize| of(source).or_else(|| range().filter(|_| source == 0));
                interval(uop, &of).or(type_range)
            }
            _ if is_arithmetic => interval(uop, &of).filter(|_| uop.dtype.is_int()),
            _ => type_range,
        };
        known.push(found);
    }
    known
}
