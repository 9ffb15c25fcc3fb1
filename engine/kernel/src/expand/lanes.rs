//! Determines the form in which each uop along the lanes of vectors is required: as a vector, as
//! scalars, or as the first scalar only (the address of a vector load or store). Separate loops may
//! each have their own lanes; their number is the same in all of them.
//!
//! If the lanes are stored to elements that are not adjacent, adjacent elements may be along
//! another range of a tile: its rows. A value stored there is then required as a vector along the
//! rows for each lane, and so are its sources, back to those that are computed along the lanes.

use std::cell::OnceCell;

use gradiff_graph::target::Vectors;
use gradiff_graph::{Arg, AxisKind, DType, Instruction, Op};

use super::dims::Dims;
use super::known;

/// A set of the forms in which a uop is required.
pub(super) type Forms = u8;
/// A vector.
pub(super) const VECTOR: Forms = 1;
/// A scalar for each lane.
pub(super) const SCALARS: Forms = 2;
/// The scalar of lane 0.
pub(super) const FIRST: Forms = 4;
/// A broadcast to all lanes, of a uop that does not vary along them.
pub(super) const SPLAT: Forms = 8;
/// A vector along the rows for each lane.
pub(super) const ROW: Forms = 16;

/// A range whose iterations are the lanes of vectors.
#[derive(Clone, Copy)]
pub(super) struct VectorAxis {
    pub(super) bit: usize,
    pub(super) count: i64,
}

/// The ranges of the lanes, and the required forms of each uop.
pub(super) struct Lanes {
    /// The ranges (bits); nothing varies along two of them.
    pub(super) bits: u64,
    /// The range that is being emitted, and the number of lanes.
    pub(super) axis: VectorAxis,
    /// The range of the rows.
    pub(super) rows: Option<VectorAxis>,
    /// For each uop the forms in which it is required.
    pub(super) required: Vec<Forms>,
    /// For each uop whether its vector is one uop, not gathered from scalars.
    pub(super) is_native: Vec<bool>,
}

impl Lanes {
    /// Returns the lanes of the ranges of kind `Vector`; `None` if there are none. Those along
    /// which something varies together with another one, or of another length, are unrolled.
    pub(super) fn of(dims: &Dims<'_>, varies: &[u64], vectors: Vectors) -> Option<Lanes> {
        let of_kind = |kind: AxisKind| {
            let is_it = move |bit: &usize| {
                let range = &dims.ranges[*bit];
                let may_be_vector = (2..=64).contains(&range.count);
                range.kind == kind && may_be_vector && (range.count as u64).is_power_of_two()
            };
            (0..dims.ranges.len()).filter(is_it)
        };
        of_kind(AxisKind::Vector).next()?;
        let intervals = known::intervals(&dims.linear.uops);
        let candidate = |bit| Candidate {
            dims,
            varies,
            intervals: &intervals,
            bit,
            vectors,
            multiples: OnceCell::new(),
        };
        let rows_of = |bit: usize| {
            let gain = |row: &usize| candidate(bit).row_stores(&candidate(*row));
            of_kind(AxisKind::Upcast).filter(|row| 0 < gain(row)).max_by_key(gain)
        };
        let mut bits: Vec<usize> = of_kind(AxisKind::Vector).collect();
        // Those with rows come first.
        bits.sort_by_key(|bit| rows_of(*bit).is_none());
        let rows = rows_of(bits[0]).map(candidate);
        let mut lanes = candidate(bits[0]).lanes(rows.as_ref());
        for bit in &bits[1..] {
            if lanes.are_separate(dims, varies, *bit) {
                lanes.merge(&candidate(*bit).lanes(None), varies);
            }
        }
        Some(lanes)
    }

    /// Returns whether a range has as many iterations as there are lanes, and nothing varies along
    /// it and along another range of the lanes.
    fn are_separate(&self, dims: &Dims<'_>, varies: &[u64], bit: usize) -> bool {
        let range = &dims.ranges[bit];
        let mut lane_bits = (0..dims.ranges.len()).filter(|bit| self.bits >> bit & 1 == 1);
        range.count == self.axis.count
            && lane_bits.all(|lane_bit| {
                let lane_range = &dims.ranges[lane_bit];
                let both = 1 << lane_bit | 1 << bit;
                lane_range.end < range.start
                    || range.end < lane_range.start
                    || varies.iter().all(|varies| varies & both != both)
            })
    }

    /// Adds the lanes of a separate range.
    fn merge(&mut self, other: &Lanes, varies: &[u64]) {
        self.bits |= other.bits;
        for (position, varies) in varies.iter().enumerate() {
            self.required[position] |= other.required[position];
            if varies & other.bits != 0 {
                self.is_native[position] = other.is_native[position];
            }
        }
    }
}

/// A range that may become the lanes or the rows.
struct Candidate<'a> {
    dims: &'a Dims<'a>,
    varies: &'a [u64],
    /// For each uop its interval, if neither it nor a source of it may wrap.
    intervals: &'a [Option<(i128, i128)>],
    bit: usize,
    vectors: Vectors,
    /// For each uop whether it is a multiple of the number of lanes, if that was asked for.
    multiples: OnceCell<Vec<bool>>,
}

impl Candidate<'_> {
    fn uops(&self) -> &[Instruction] {
        &self.dims.linear.uops
    }

    fn varies(&self, position: u32) -> bool {
        self.varies[position as usize] >> self.bit & 1 == 1
    }

    fn count(&self) -> i64 {
        self.dims.ranges[self.bit].count
    }

    fn axis(&self) -> VectorAxis {
        VectorAxis { bit: self.bit, count: self.count() }
    }

    /// Returns the number of stores that are contiguous along these rows, but not along the lanes.
    fn row_stores(&self, rows: &Candidate<'_>) -> usize {
        let stores = self.uops().iter().enumerate().filter(|(_, uop)| uop.op == Op::Store);
        stores.filter(|(position, uop)| self.is_row_store(rows, *position, uop)).count()
    }

    /// Returns whether a store is contiguous along these rows, but not along the lanes, whose
    /// vectors it does not store in turns either.
    fn is_row_store(&self, rows: &Candidate<'_>, position: usize, store: &Instruction) -> bool {
        let index = self.uops()[store.src[0] as usize].src[1];
        let is_vector = || self.is_native(store.src[1] as usize);
        let takes_turns = || rows.count() == 2 && self.stride(index) == Some(2) && is_vector();
        self.may_be_row(rows, position as u32)
            && !self.is_contiguous(store)
            && !(self.vectors.may_interleave() && takes_turns())
    }

    /// Returns whether a uop varies along the lanes and along these rows, and its vector along the
    /// rows is one uop.
    fn may_be_row(&self, rows: &Candidate<'_>, position: u32) -> bool {
        self.varies(position) && rows.varies(position) && rows.is_native(position as usize)
    }

    /// Returns whether the target has vectors of this type with that many lanes.
    fn is_supported(&self, dtype: DType) -> bool {
        self.count() <= self.vectors.lanes_of(dtype)
    }

    /// Returns whether a load or store of all lanes is one vector access: contiguous, aligned if
    /// necessary, and with the same gate in all lanes.
    fn is_contiguous(&self, access: &Instruction) -> bool {
        let index = &self.uops()[access.src[0] as usize];
        let dtype = index.dtype;
        let has_same_gate = index.src.get(2).is_none_or(|gate| !self.varies(*gate));
        self.is_supported(dtype)
            && has_same_gate
            && self.stride(index.src[1]) == Some(1)
            && (!self.vectors.aligned || self.is_multiple(index.src[1]))
    }

    /// Returns whether a load of all lanes is one of vectors whose lanes are permuted.
    fn is_permuted(&self, position: usize) -> bool {
        let load = &self.uops()[position];
        let address = || &self.uops()[load.src[0] as usize];
        let stride = |candidate: &Candidate<'_>| candidate.stride(address().src[1]).map(i64::abs);
        let has_same_gate = |candidate: &Candidate<'_>| {
            address().src.get(2).is_none_or(|gate| !candidate.varies(*gate))
        };
        let is_between = |bit: usize| {
            let between = Candidate { bit, multiples: OnceCell::new(), ..*self };
            bit != self.bit && stride(&between) == Some(1) && has_same_gate(&between)
        };
        self.vectors.may_interleave()
            && load.op == Op::Load
            && self.is_supported(load.dtype)
            && has_same_gate(self)
            && match stride(self) {
                Some(1) => true,
                Some(2) => (0..self.dims.ranges.len()).any(is_between),
                _ => false,
            }
    }

    fn constant(&self, position: u32) -> Option<i64> {
        match self.uops()[position as usize].arg {
            Arg::Const(value) => i64::try_from(value.to_int()?).ok(),
            _ => None,
        }
    }

    /// Returns the stride of an integer from lane to lane, if it is constant. The integer may wrap
    /// in its own type, since an index that wraps is never that of an element.
    fn stride(&self, position: u32) -> Option<i64> {
        let uop = &self.uops()[position as usize];
        if !self.varies(position) {
            return Some(0);
        }
        if position as usize == self.dims.ranges[self.bit].start {
            return Some(1);
        }
        let stride = |source: usize| self.stride(uop.src[source]);
        match uop.op {
            Op::Add => stride(0)?.checked_add(stride(1)?),
            Op::Sub => stride(0)?.checked_sub(stride(1)?),
            Op::Cast if self.uops()[uop.src[0] as usize].dtype.is_int() => {
                // In a wider type the stride is the same only if the narrower value does not wrap.
                let is_wider = self.uops()[uop.src[0] as usize].dtype.bits() < uop.dtype.bits();
                let is_exact = || self.intervals[uop.src[0] as usize].is_some();
                if !is_wider || is_exact() { stride(0) } else { None }
            }
            Op::Mul => match (self.constant(uop.src[0]), self.constant(uop.src[1])) {
                (Some(factor), _) => stride(1)?.checked_mul(factor),
                (_, Some(factor)) => stride(0)?.checked_mul(factor),
                _ => None,
            },
            Op::Shl => stride(0)?
                .checked_mul(1 << self.constant(uop.src[1]).filter(|n| (0..32).contains(n))?),
            _ => None,
        }
    }

    /// Returns whether an integer at lane 0 is a multiple of the number of lanes for all other
    /// counters.
    fn is_multiple(&self, position: u32) -> bool {
        self.multiples.get_or_init(|| self.find_multiples())[position as usize]
    }

    /// Returns for each uop whether it is such a multiple. Wrapping keeps the divisibility by
    /// powers of two, which all lane counts are. Types other than integers are not multiples of
    /// anything.
    fn find_multiples(&self) -> Vec<bool> {
        let mut multiples: Vec<bool> = Vec::with_capacity(self.uops().len());
        for (position, uop) in self.uops().iter().enumerate() {
            let is_multiple = |source: usize| multiples[uop.src[source] as usize];
            let divides = |number: i64| number % self.count() == 0;
            let is_int = uop.dtype.is_int();
            let is_found = match uop.op {
                _ if position == self.dims.ranges[self.bit].start => true,
                Op::Const if is_int => self.constant(position as u32).is_some_and(divides),
                Op::Add | Op::Sub if is_int => is_multiple(0) && is_multiple(1),
                Op::Mul if is_int => is_multiple(0) || is_multiple(1),
                Op::Shl if is_int => {
                    let shift = self.constant(uop.src[1]).filter(|shift| (0..31).contains(shift));
                    is_multiple(0) || shift.is_some_and(|shift| divides(1 << shift))
                }
                Op::Cast if is_int => is_multiple(0),
                _ => false,
            };
            multiples.push(is_found);
        }
        multiples
    }

    /// Returns whether the vector of a uop along the lanes is one uop.
    fn is_native(&self, position: usize) -> bool {
        let uop = &self.uops()[position];
        match uop.op {
            Op::Load | Op::Store => self.is_contiguous(uop),
            Op::DefineAcc | Op::Assign => {
                let accumulator = if uop.op == Op::Assign { uop.src[0] } else { position as u32 };
                let is_alu = self.vectors.alu && !self.sums_products(accumulator);
                is_alu && self.is_supported(self.uops()[uop.src[0] as usize].dtype)
            }
            op if op.is_elementwise() && self.vectors.alu => {
                let source = if op == Op::Where { 1 } else { 0 };
                let from = self.uops()[uop.src[source] as usize].dtype;
                let is_mask = op.is_comparison() && from != DType::Bool;
                self.is_supported(from) && (self.is_supported(uop.dtype) || is_mask)
            }
            _ => false,
        }
    }

    /// Returns whether an accumulator sums the results of tensor cores, which need its lanes as
    /// scalars.
    fn sums_products(&self, accumulator: u32) -> bool {
        let is_product = |at: &u32| self.uops()[*at as usize].op == Op::Wmma;
        let assigns = self.uops().iter().filter(|uop| uop.op == Op::Assign);
        let values = assigns.filter(|uop| uop.src[0] == accumulator).map(|uop| uop.src[1]);
        values.into_iter().any(|value| self.uops()[value as usize].src.iter().any(is_product))
    }

    /// Returns whether a uop is native and either an accumulator, a load, or an op on floats whose
    /// sources along the lanes are `vectors`.
    fn is_vector_of(&self, position: usize, is_native: &[bool], vectors: &[bool]) -> bool {
        let uop = &self.uops()[position];
        let mut varying = uop.src.iter().filter(|source| self.varies(**source));
        let is_float = uop.op.is_elementwise() && uop.dtype.is_float();
        is_native[position]
            && match uop.op {
                Op::DefineAcc | Op::Assign | Op::Load => true,
                _ => is_float && varying.all(|source| vectors[*source as usize]),
            }
    }

    /// Returns for each uop whether it and all that it depends on along the lanes are vectors.
    fn computed_in_vectors(&self, is_native: &[bool]) -> Vec<bool> {
        let mut in_vectors: Vec<bool> = Vec::with_capacity(is_native.len());
        for position in 0..is_native.len() {
            in_vectors.push(self.is_vector_of(position, is_native, &in_vectors));
        }
        in_vectors
    }

    /// Determines the required forms of each uop, users first.
    fn lanes(&self, rows: Option<&Candidate<'_>>) -> Lanes {
        let count = self.uops().len();
        let is_native: Vec<bool> = (0..count).map(|position| self.is_native(position)).collect();
        let in_vectors = self.computed_in_vectors(&is_native);
        let is_vector = |position| is_native[position] || self.is_permuted(position);
        let is_vector: Vec<bool> = (0..count).map(is_vector).collect();
        // Rows of accumulators and of values computed along the lanes are gathered from scalars.
        let is_row = |position: usize| {
            let is_accumulator = matches!(self.uops()[position].op, Op::DefineAcc | Op::Assign);
            let may_be_row = rows.is_some_and(|rows| self.may_be_row(rows, position as u32));
            may_be_row && !is_accumulator && !in_vectors[position]
        };
        let is_row_store = |position: usize, uop: &Instruction| {
            let is_store = |rows: &Candidate<'_>| self.is_row_store(rows, position, uop);
            !is_native[position] && is_row(position) && rows.is_some_and(is_store)
        };
        let mut required: Vec<Forms> = vec![0; count];
        for position in (0..count).rev() {
            let uop = &self.uops()[position];
            if !self.varies(position as u32) {
                continue;
            }
            let default_form = if is_native[position] { VECTOR } else { SCALARS };
            if required[position] & ROW != 0 && !is_row(position) {
                required[position] = required[position] & !ROW | SCALARS;
            }
            match uop.op {
                // Emitted together with the value that it assigns.
                Op::Assign if self.dims.accumulation(position - 1).is_some() => continue,
                Op::Store if is_row_store(position, uop) => required[position] |= ROW,
                Op::Store | Op::Assign | Op::DefineAcc => required[position] |= default_form,
                // A vector is gathered from scalars, or its lanes are extracted.
                _ if required[position] & VECTOR != 0 && !is_native[position] => {
                    required[position] |= SCALARS;
                }
                Op::Load if is_native[position] && required[position] != 0 => {
                    required[position] |= VECTOR;
                }
                // One vector op and its lanes are cheaper than an op for each lane of its sources.
                _ if required[position] & SCALARS != 0
                    && self.is_vector_of(position, &is_native, &is_vector) =>
                {
                    required[position] |= VECTOR;
                }
                _ => {}
            }
            match self.dims.accumulation(position) {
                Some(accumulator) => {
                    self.require_accumulated(&mut required, &is_native, position, accumulator);
                }
                None => self.require_sources(&mut required, position, is_native[position]),
            }
        }
        let rows = rows.map(Candidate::axis);
        Lanes { bits: 1 << self.bit, axis: self.axis(), rows, required, is_native }
    }

    /// Requires an accumulation and the value that it adds in one form: that of the accumulator, or
    /// of the value if all lanes share the accumulator.
    fn require_accumulated(
        &self,
        required: &mut [Forms],
        is_native: &[bool],
        position: usize,
        accumulator: u32,
    ) {
        // All lanes are reduced into an accumulator that does not vary along them.
        let is_shared = !self.varies(accumulator);
        let is_value = |source: &&u32| **source != accumulator;
        let values = self.uops()[position].src.iter().filter(is_value);
        let is_vector = match values.clone().next() {
            Some(value) if is_shared => is_native[*value as usize],
            _ => is_native[accumulator as usize],
        };
        let form = if is_vector { VECTOR } else { SCALARS };
        required[position] = form;
        values.for_each(|value| self.require(required, *value, form));
    }

    /// Requires the sources of a uop in the forms that its own forms need.
    fn require_sources(&self, required: &mut [Forms], position: usize, is_native: bool) {
        let uop = &self.uops()[position];
        let forms = required[position];
        let is_access = matches!(uop.op, Op::Load | Op::Store);
        for (number, source) in uop.src.iter().enumerate() {
            if uop.op == Op::DefineAcc && 0 < number {
                break;
            }
            let is_address = is_access && number == 0;
            if forms & VECTOR != 0 && is_native {
                self.require(required, *source, if is_address { FIRST } else { VECTOR });
            } else {
                self.require(required, *source, forms & (SCALARS | FIRST));
            }
            if forms & ROW != 0 {
                self.require(required, *source, if is_address { SCALARS } else { ROW });
            }
        }
    }

    fn require(&self, required: &mut [Forms], source: u32, forms: Forms) {
        let splat = if forms & VECTOR != 0 { SPLAT } else { 0 };
        required[source as usize] |= if self.varies(source) { forms } else { splat };
    }
}
