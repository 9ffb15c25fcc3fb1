//! Which of the ranges that are written out become the lanes of vectors, and in which form each uop
//! along them is needed: as one vector, as single values, or as its first value only (an address
//! from which a vector is loaded). In loops one after the other each may have lanes of its own;
//! they are as many everywhere.
//!
//! Where lanes are stored to elements far apart, neighbours may lie along another range, of which a
//! tile has some steps: its rows. Of what is stored there a vector along the rows is made for each
//! lane, and so is what it is made of, back to what was made along the lanes.

use gradiff_graph::{Arg, AxisKind, DType, Instruction, Op};

use super::dims::Dims;
use super::known;
use crate::target::Vectors;

/// As one vector.
pub(super) const VECTOR: u8 = 1;
/// Each lane by itself.
pub(super) const SINGLES: u8 = 2;
/// Lane 0 by itself.
pub(super) const FIRST: u8 = 4;
/// Does not vary along the lanes, and is needed in all of them at once.
pub(super) const SPLAT: u8 = 8;
/// As one vector along the rows for each lane.
pub(super) const ROW: u8 = 16;

/// A range of which a vector has all steps.
#[derive(Clone, Copy)]
pub(super) struct Axis {
    pub(super) bit: usize,
    pub(super) count: i64,
}

/// The ranges of the lanes and what is needed of each uop.
pub(super) struct Lanes {
    /// The ranges; none stands in another one.
    pub(super) bits: u64,
    /// The one that is being written, and how many lanes there are.
    pub(super) axis: Axis,
    /// The rows.
    pub(super) rows: Option<Axis>,
    /// For each uop the forms in which it is needed.
    pub(super) wants: Vec<u8>,
    /// For each uop whether its vector is made at once, not put together from single values.
    pub(super) is_native: Vec<bool>,
}

impl Lanes {
    /// The range along which most accesses are to neighbours, the longest one of those; none if
    /// that is not worth it.
    pub(super) fn choose(dims: &Dims<'_>, varies: &[u64], vectors: Vectors) -> Option<Lanes> {
        let fits = |bit: &usize| {
            let range = &dims.ranges[*bit];
            range.kind == AxisKind::Upcast && (2..=64).contains(&range.steps) && {
                (range.steps as u64).is_power_of_two()
            }
        };
        let intervals = known::intervals(&dims.linear.uops);
        let along = |bit| Along { dims, varies, intervals: &intervals, bit, vectors };
        let worth = |bit| (along(bit).worth(), dims.ranges[bit].steps, std::cmp::Reverse(bit));
        let mut best: Vec<(i64, i64, std::cmp::Reverse<usize>)> =
            (0..dims.ranges.len()).filter(fits).map(worth).collect();
        best.retain(|(worth, ..)| 0 < *worth);
        best.sort_unstable_by(|one, other| other.cmp(one));
        let mut lanes: Option<Lanes> = None;
        for (_, _, std::cmp::Reverse(bit)) in best {
            match &mut lanes {
                None => {
                    let rows = (0..dims.ranges.len()).filter(|row| *row != bit && fits(row));
                    let gain = |row: &usize| along(bit).gain(&along(*row));
                    let rows = rows.filter(|row| 0 < gain(row)).max_by_key(gain);
                    lanes = Some(along(bit).lanes(rows.map(along).as_ref()));
                }
                Some(lanes) if lanes.stand_beside(dims, bit) => {
                    lanes.join(&along(bit).lanes(None), varies);
                }
                Some(_) => {}
            }
        }
        lanes
    }

    /// Whether a range has as many steps as there are lanes, and stands in none of their loops.
    fn stand_beside(&self, dims: &Dims<'_>, bit: usize) -> bool {
        let range = &dims.ranges[bit];
        let mut taken = (0..dims.ranges.len()).filter(|taken| self.bits >> taken & 1 == 1);
        range.steps == self.axis.count
            && taken.all(|taken| {
                let other = &dims.ranges[taken];
                other.end < range.start || range.end < other.start
            })
    }

    /// Takes in the lanes of a range beside these.
    fn join(&mut self, other: &Lanes, varies: &[u64]) {
        self.bits |= other.bits;
        for (position, varies) in varies.iter().enumerate() {
            self.wants[position] |= other.wants[position];
            if varies & other.bits != 0 {
                self.is_native[position] = other.is_native[position];
            }
        }
    }
}

/// A range that may become the lanes.
struct Along<'a> {
    dims: &'a Dims<'a>,
    varies: &'a [u64],
    /// For each uop how far it reaches, if nothing that it is made of may wrap.
    intervals: &'a [Option<(i128, i128)>],
    bit: usize,
    vectors: Vectors,
}

impl Along<'_> {
    fn uops(&self) -> &[Instruction] {
        &self.dims.linear.uops
    }

    fn varies(&self, position: u32) -> bool {
        self.varies[position as usize] >> self.bit & 1 == 1
    }

    fn count(&self) -> i64 {
        self.dims.ranges[self.bit].steps
    }

    fn axis(&self) -> Axis {
        Axis { bit: self.bit, count: self.count() }
    }

    /// How much there is to be gained: accesses to neighbours are good, those to others are bad.
    fn worth(&self) -> i64 {
        let along = self.uops().iter().enumerate().filter(|(at, _)| self.varies(*at as u32));
        let accesses = along.filter(|(_, uop)| matches!(uop.op, Op::Load | Op::Store));
        accesses.map(|(_, uop)| if self.is_unit(uop) { 2 } else { -1 }).sum()
    }

    /// How many stores to others have their neighbours along these rows.
    fn gain(&self, rows: &Along<'_>) -> usize {
        let stores = self.uops().iter().enumerate().filter(|(_, uop)| uop.op == Op::Store);
        stores.filter(|(at, uop)| self.is_across(rows, *at as u32) && !self.is_unit(uop)).count()
    }

    /// Whether a uop varies along the lanes and along these rows, and its vector along the rows is
    /// made at once.
    fn is_across(&self, rows: &Along<'_>, position: u32) -> bool {
        self.varies(position) && rows.varies(position) && rows.is_native(position as usize)
    }

    /// Whether vectors of this type and as many lanes are there.
    fn holds(&self, dtype: DType) -> bool {
        self.count() <= self.vectors.lanes_of(dtype)
    }

    /// Whether the lanes of a load or store are neighbours, behind one gate.
    fn is_unit(&self, access: &Instruction) -> bool {
        let index = &self.uops()[access.src[0] as usize];
        let dtype = index.dtype;
        let is_one_gate = index.src.get(2).is_none_or(|gate| !self.varies(*gate));
        let is_aligned = !self.vectors.aligned || self.is_multiple(index.src[1], self.count());
        self.holds(dtype) && is_one_gate && self.step(index.src[1]) == Some(1) && is_aligned
    }

    fn constant(&self, position: u32) -> Option<i64> {
        match self.uops()[position as usize].arg {
            Arg::Const(value) => i64::try_from(value.to_int()?).ok(),
            _ => None,
        }
    }

    /// By how much an integer grows from lane to lane, if that is known. Whether it wraps in its
    /// own type does not matter, since an index that wraps is none of an element.
    fn step(&self, position: u32) -> Option<i64> {
        let uop = &self.uops()[position as usize];
        if !self.varies(position) {
            return Some(0);
        }
        if position as usize == self.dims.ranges[self.bit].start {
            return Some(1);
        }
        let step = |source: usize| self.step(uop.src[source]);
        match uop.op {
            Op::Add => step(0)?.checked_add(step(1)?),
            Op::Sub => step(0)?.checked_sub(step(1)?),
            Op::Cast if self.uops()[uop.src[0] as usize].dtype.is_int() => {
                // In a longer type neighbours are so only if the shorter one did not wrap.
                let is_longer = self.uops()[uop.src[0] as usize].dtype.bits() < uop.dtype.bits();
                let is_whole = || self.intervals[uop.src[0] as usize].is_some();
                if !is_longer || is_whole() { step(0) } else { None }
            }
            Op::Mul => match (self.constant(uop.src[0]), self.constant(uop.src[1])) {
                (Some(factor), _) => step(1)?.checked_mul(factor),
                (_, Some(factor)) => step(0)?.checked_mul(factor),
                _ => None,
            },
            Op::Shl => step(0)?.checked_mul(1 << self.constant(uop.src[1]).filter(|n| *n < 32)?),
            _ => None,
        }
    }

    /// Whether an integer at lane 0 is a multiple of a number, whatever the other counters are.
    fn is_multiple(&self, position: u32, of: i64) -> bool {
        let uop = &self.uops()[position as usize];
        if position as usize == self.dims.ranges[self.bit].start {
            return true;
        }
        // A float or a truth made of a multiple is none; of integers that wrap, powers of two up to
        // 64 stay factors.
        if !uop.dtype.is_int() {
            return false;
        }
        let is_multiple = |source: usize| self.is_multiple(uop.src[source], of);
        match uop.op {
            Op::Const => self.constant(position).is_some_and(|value| value % of == 0),
            Op::Add | Op::Sub => is_multiple(0) && is_multiple(1),
            Op::Mul => is_multiple(0) || is_multiple(1),
            Op::Shl => {
                let shift = self.constant(uop.src[1]).filter(|shift| (0..31).contains(shift));
                is_multiple(0) || shift.is_some_and(|shift| (1i64 << shift) % of == 0)
            }
            Op::Cast => is_multiple(0),
            _ => false,
        }
    }

    /// Whether the vector of a uop along the lanes is made at once.
    fn is_native(&self, position: usize) -> bool {
        let uop = &self.uops()[position];
        match uop.op {
            Op::Load | Op::Store => self.is_unit(uop),
            Op::DefineAcc | Op::Assign => {
                let variable = if uop.op == Op::Assign { uop.src[0] } else { position as u32 };
                let is_alu = self.vectors.alu && !self.sums_products(variable);
                is_alu && self.holds(self.uops()[uop.src[0] as usize].dtype)
            }
            op if op.is_elementwise() && self.vectors.alu => {
                let source = if op == Op::Where { 1 } else { 0 };
                let from = self.uops()[uop.src[source] as usize].dtype;
                let is_mask = op.is_comparison() && from != DType::Bool;
                self.holds(from) && (self.holds(uop.dtype) || is_mask)
            }
            _ => false,
        }
    }

    /// Whether a variable sums what tensor cores compute, which take it lane by lane.
    fn sums_products(&self, variable: u32) -> bool {
        let is_product = |at: &u32| self.uops()[*at as usize].op == Op::Wmma;
        let assigns = self.uops().iter().filter(|uop| uop.op == Op::Assign);
        let values = assigns.filter(|uop| uop.src[0] == variable).map(|uop| uop.src[1]);
        values.into_iter().any(|value| self.uops()[value as usize].src.iter().any(is_product))
    }

    /// Whether a variable, a load of neighbours, or an op on floats is made at once, the op of what
    /// `vectors` marks.
    fn is_made_of(&self, position: usize, is_native: &[bool], vectors: &[bool]) -> bool {
        let uop = &self.uops()[position];
        let mut along = uop.src.iter().filter(|source| self.varies(**source));
        let is_float = uop.op.is_elementwise() && uop.dtype.is_float();
        is_native[position]
            && match uop.op {
                Op::DefineAcc | Op::Assign | Op::Load => true,
                _ => is_float && along.all(|source| vectors[*source as usize]),
            }
    }

    /// The uops that are made at once, and so is all that they are made of along the lanes.
    fn made_of_vectors(&self, is_native: &[bool]) -> Vec<bool> {
        let mut is_made: Vec<bool> = Vec::with_capacity(is_native.len());
        for position in 0..is_native.len() {
            is_made.push(self.is_made_of(position, is_native, &is_made));
        }
        is_made
    }

    /// What is needed of each uop, users first.
    fn lanes(&self, rows: Option<&Along<'_>>) -> Lanes {
        let count = self.uops().len();
        let is_native: Vec<bool> = (0..count).map(|position| self.is_native(position)).collect();
        let is_made = self.made_of_vectors(&is_native);
        // Rows of variables and of what is made along the lanes are put together.
        let is_row = |position: usize| {
            let is_variable = matches!(self.uops()[position].op, Op::DefineAcc | Op::Assign);
            let is_across = rows.is_some_and(|rows| self.is_across(rows, position as u32));
            is_across && !is_variable && !is_made[position]
        };
        let mut wants = vec![0u8; count];
        for position in (0..count).rev() {
            let uop = &self.uops()[position];
            if !self.varies(position as u32) {
                continue;
            }
            let own = if is_native[position] { VECTOR } else { SINGLES };
            if wants[position] & ROW != 0 && !is_row(position) {
                wants[position] = wants[position] & !ROW | SINGLES;
            }
            match uop.op {
                // Written with the value that it assigns.
                Op::Assign if self.dims.accumulation(position - 1).is_some() => continue,
                Op::Store if !is_native[position] && is_row(position) => wants[position] |= ROW,
                Op::Store | Op::Assign | Op::DefineAcc => wants[position] |= own,
                // A value that is put together, or of which lanes are taken, is needed so as well.
                _ if wants[position] & VECTOR != 0 && !is_native[position] => {
                    wants[position] |= SINGLES;
                }
                Op::Load if is_native[position] && wants[position] != 0 => {
                    wants[position] |= VECTOR;
                }
                // One op and its lanes, instead of the lanes of what it is made of and as many ops.
                _ if wants[position] & SINGLES != 0
                    && self.is_made_of(position, &is_native, &is_native) =>
                {
                    wants[position] |= VECTOR;
                }
                _ => {}
            }
            if let Some((variable, value)) = self.dims.accumulation(position) {
                // A variable that does not vary holds one value that all lanes are reduced into.
                let by = if self.varies(variable) { variable } else { value };
                let form = if is_native[by as usize] { VECTOR } else { SINGLES };
                wants[position] = form;
                self.want(&mut wants, value, form);
                continue;
            }
            let forms = wants[position];
            let is_access = matches!(uop.op, Op::Load | Op::Store);
            for (number, source) in uop.src.iter().enumerate() {
                if uop.op == Op::DefineAcc && 0 < number {
                    break;
                }
                let is_address = is_access && number == 0;
                if forms & VECTOR != 0 && is_native[position] {
                    self.want(&mut wants, *source, if is_address { FIRST } else { VECTOR });
                } else {
                    self.want(&mut wants, *source, forms & (SINGLES | FIRST));
                }
                if forms & ROW != 0 {
                    self.want(&mut wants, *source, if is_address { SINGLES } else { ROW });
                }
            }
        }
        let rows = rows.map(Along::axis);
        Lanes { bits: 1 << self.bit, axis: self.axis(), rows, wants, is_native }
    }

    fn want(&self, wants: &mut [u8], source: u32, forms: u8) {
        let is_along = self.varies(source);
        let splat = if forms & VECTOR != 0 { SPLAT } else { 0 };
        wants[source as usize] |= if is_along { forms } else { splat };
    }
}
