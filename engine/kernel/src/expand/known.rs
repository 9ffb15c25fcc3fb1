//! What is known of the uops that have been written: how far integers reach, which decides gates;
//! and which uops are there already, as the neighbours of a window load the same.

use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Op};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::dims::Dims;
use super::write::Place;

/// What makes two uops the same: what they do, how many lanes they have, their sources.
type Same = (Op, DType, Arg, u8, SmallVec<[Place; 4]>);

type Interval = (i128, i128);

pub(super) struct Known {
    facts: Vec<Fact>,
    /// Of each open loop, the outermost one first, the uops in it; none where nothing is the same.
    loops: Vec<FxHashMap<Same, Place>>,
    /// The parameters that the kernel stores to.
    stored: FxHashSet<Arg>,
}

/// What is known of a uop.
#[derive(Clone, Copy, Default)]
struct Fact {
    /// How far the integer reaches.
    bounds: Option<Interval>,
    /// Whether it is another value from time to time.
    is_variable: bool,
    /// Whether it is the address of an element that the kernel does not store to, or its array.
    is_constant: bool,
}

impl Known {
    pub(super) fn of(dims: &Dims<'_>) -> Known {
        let uops = &dims.linear.uops;
        let stores = uops.iter().filter(|uop| uop.op == Op::Store);
        let arrays = stores.map(|store| uops[store.src[0] as usize].src[0]);
        let stored = arrays.map(|array| uops[array as usize].arg.clone()).collect();
        // Neighbours meet where steps in a row and steps at once add up to the same.
        let has = |kind| dims.of_kind(kind) != 0;
        let is_window = has(AxisKind::Unroll) && has(AxisKind::Upcast);
        let loops = if is_window { vec![FxHashMap::default()] } else { Vec::new() };
        Known { facts: Vec::new(), loops, stored }
    }

    /// Takes in a uop that is written at this place; or says where the same one stands.
    pub(super) fn meet(
        &mut self,
        uop: &Instruction,
        src: &[Place],
        place: Place,
        constants: &[Constant],
    ) -> Option<Place> {
        let fact = |place: &Place| match place {
            Place::Uop(number) => self.facts[*number as usize],
            Place::Constant(_) | Place::Splat(_) => Fact::default(),
        };
        let is_pure = match uop.op {
            Op::Load => src.len() == 1 && fact(&src[0]).is_constant,
            op => op.is_elementwise() || matches!(op, Op::Index | Op::Vectorize),
        };
        if is_pure && !self.loops.is_empty() && !src.iter().any(|place| fact(place).is_variable) {
            let same = (uop.op, uop.dtype, uop.arg.clone(), uop.lanes, src.into());
            if let Some(known) = self.loops.iter().find_map(|known| known.get(&same)) {
                return Some(*known);
            }
            self.loops.last_mut().map(|known| known.insert(same, place));
        }
        let is_constant = match uop.op {
            Op::DefineGlobal => !self.stored.contains(&uop.arg),
            Op::Index => fact(&src[0]).is_constant,
            _ => false,
        };
        let is_variable = matches!(uop.op, Op::DefineAcc | Op::Assign);
        let bounds = self.reach(uop, src, constants);
        self.facts.push(Fact { bounds, is_variable, is_constant });
        match uop.op {
            Op::Range if !self.loops.is_empty() => self.loops.push(FxHashMap::default()),
            Op::EndRange => drop(self.loops.pop()),
            _ => {}
        }
        None
    }

    /// Whether a comparison of integers is true, if that is the same wherever they are.
    pub(super) fn decided(&self, op: Op, src: &[Place], constants: &[Constant]) -> Option<bool> {
        let (Op::CmpLt, [x, y]) = (op, src) else { return None };
        let (x, y) = (self.bounds(*x, constants)?, self.bounds(*y, constants)?);
        match () {
            () if x.1 < y.0 => Some(true),
            () if y.1 <= x.0 => Some(false),
            () => None,
        }
    }

    fn bounds(&self, place: Place, constants: &[Constant]) -> Option<Interval> {
        match place {
            Place::Constant(number) => {
                let value = constants[number as usize];
                let value = value.to_int().filter(|_| value.dtype().is_int())?;
                Some((value, value))
            }
            Place::Splat(_) => None,
            Place::Uop(number) => self.facts[number as usize].bounds,
        }
    }

    /// How far a uop reaches, if it is an integer that does not wrap.
    fn reach(&self, uop: &Instruction, src: &[Place], constants: &[Constant]) -> Option<Interval> {
        if uop.lanes != 1 {
            return None;
        }
        interval(uop, &|source| self.bounds(src[source], constants))
    }
}

/// Returns the interval of an integer, from those of its sources; nothing if it may wrap, or is
/// neither a sum nor a product nor a choice.
fn interval(uop: &Instruction, of: &dyn Fn(usize) -> Option<Interval>) -> Option<Interval> {
    let (least, most) = uop.dtype.int_range()?;
    let (low, high) = match uop.op {
        Op::Range => (0, of(0)?.1 - 1),
        Op::Add => (of(0)?.0 + of(1)?.0, of(0)?.1 + of(1)?.1),
        Op::Sub => (of(0)?.0 - of(1)?.1, of(0)?.1 - of(1)?.0),
        Op::Mul => {
            let (x, y) = (of(0)?, of(1)?);
            let corner = |x: i128, y: i128| x.checked_mul(y);
            let corners = [corner(x.0, y.0)?, corner(x.0, y.1)?, corner(x.1, y.0)?];
            let last = corner(x.1, y.1)?;
            corners.into_iter().fold((last, last), |all, one| (all.0.min(one), all.1.max(one)))
        }
        Op::Min => (of(0)?.0.min(of(1)?.0), of(0)?.1.min(of(1)?.1)),
        Op::Max => (of(0)?.0.max(of(1)?.0), of(0)?.1.max(of(1)?.1)),
        Op::Where => (of(1)?.0.min(of(2)?.0), of(1)?.1.max(of(2)?.1)),
        Op::Cast => of(0)?,
        _ => return None,
    };
    (least <= low && low <= high && high <= most).then_some((low, high))
}

/// Returns the interval of each uop that is an integer; nothing if it may wrap, or is made of what
/// may. What is neither a sum nor a product is any value of its type.
pub(super) fn intervals(uops: &[Instruction]) -> Vec<Option<Interval>> {
    let mut known: Vec<Option<Interval>> = Vec::with_capacity(uops.len());
    for uop in uops {
        let of = |source: usize| known[uop.src[source] as usize];
        let is_positive = |source: usize| of(source).filter(|(low, _)| 0 < *low);
        let of_type = uop.dtype.int_range().filter(|_| uop.dtype.is_int());
        let found = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => {
                value.to_int().filter(|_| uop.dtype.is_int()).map(|value| (value, value))
            }
            (Op::Range, _) if of(0).is_none() => of_type,
            (Op::Cast, _) if !uops[uop.src[0] as usize].dtype.is_int() => of_type,
            (
                Op::Range | Op::Add | Op::Sub | Op::Mul | Op::Min | Op::Max | Op::Where | Op::Cast,
                _,
            ) if uop.dtype.is_int() => interval(uop, &of),
            (Op::Shl, _) => of(0).zip(of(1)).and_then(|((low, high), (amount, most))| {
                let factor = 1i128 << u32::try_from(amount).ok().filter(|amount| *amount < 64)?;
                let (low, high) = (low.checked_mul(factor)?, high.checked_mul(factor)?);
                let (least, largest) = of_type?;
                (amount == most && least <= low && high <= largest).then_some((low, high))
            }),
            (Op::FloorMod, _) if is_positive(1).is_some() => of(1).map(|(_, most)| (0, most - 1)),
            _ => of_type,
        };
        known.push(found);
    }
    known
}
