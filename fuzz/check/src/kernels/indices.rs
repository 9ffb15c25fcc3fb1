//! Kernels that are little but indices under gates, in loops and in threads, and whether it must be
//! seen that they keep within their arrays.
//!
//! In: draws. Out: the first kernel that is taken though a walk through it leaves an array or makes
//! two threads meet, or that is refused though each of its indices is a sum of counters whose
//! extent follows from the extent of each counter under the gate. The extents are found by trying all
//! values. Of other formulas, as remainders, nothing must be seen; what is seen must be so.

use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Local, Op,
};

use super::damage;
use super::walk::{Seen, walk};
use crate::calls::Draw;

/// Least and greatest value, both included.
type Extent = (i128, i128);

/// Counters with their factors, and a constant.
type Sum = (Vec<(usize, i128)>, i128);

/// An integer that the kernel computes.
#[derive(Clone, Debug)]
struct Formula {
    uop: u32,
    /// The counters that it is a sum of, each times a factor; none if it is no such sum.
    sum: Option<Sum>,
    /// The op that it is of such a sum and a constant.
    bent: Option<(Op, i128, Sum)>,
    /// What it may be, wherever the counters stand: known of sums and what is made of one.
    all: Option<Extent>,
    /// Whether only counters, constants, sums, differences, negations, casts and products by a
    /// positive constant are in it, none of which wraps.
    is_plain: bool,
}

/// A counter of a loop, or another integer of known extent.
struct Counter {
    uop: u32,
    extent: Extent,
    is_loop: bool,
}

/// A gate, and what it leaves of each counter; nothing if it never holds.
struct Gate {
    uop: u32,
    left: Option<Vec<Extent>>,
    /// Formulas that it bounds as a whole.
    bounded: Vec<(Formula, Extent)>,
}

/// An index that is not emitted yet.
struct Place {
    formula: Formula,
    /// Elements that the array must have.
    count: i128,
    /// Whether that is so beyond doubt.
    is_known: bool,
    /// Whether it is never computed, or its gate never holds.
    is_dead: bool,
}

struct Builder<'a> {
    draw: &'a mut Draw,
    uops: Vec<Instruction>,
    dtype: DType,
    counters: Vec<Counter>,
    /// The counter that is the number of a thread.
    thread: Option<usize>,
    /// Whether a loop that is open has no step.
    is_idle: bool,
    /// Of each parameter that is stored to, by access: the factor of the thread's number in its
    /// index, and what the rest may be; none if it is no such sum.
    stores: Vec<Vec<Option<(i128, Extent)>>>,
    /// The factor of the thread's number in another access of the same array.
    factor: Option<i128>,
    /// Whether a literal was drawn with which sums may wrap.
    is_large: bool,
    /// Whether all accesses so far must be seen to be inside.
    must_be_seen: bool,
    slots: usize,
}

/// Draws a kernel and checks it; then some with a change.
///
/// # Errors
/// What is wrong, with the kernel.
pub(super) fn check(draw: &mut Draw) -> Result<(), String> {
    let (kernel, must_be_seen) = drawn(draw);
    let said = |what: String| format!("{what}\n{kernel}");
    // Memory holds something else each time.
    let mut found = Seen::Within;
    for _ in 0..3 {
        found = walk(&kernel, draw);
        if found != Seen::Within {
            break;
        }
    }
    let is_taken = damage::judge(&kernel, draw).map_err(said)?;
    if is_taken && let Seen::Breach(what) = &found {
        return Err(said(format!("it is taken as keeping within its arrays: {what}")));
    }
    if must_be_seen && !is_taken && found == Seen::Within {
        let error = BoundedLinear::check(kernel.clone()).err();
        let error = error.map_or_else(String::new, |error| error.to_string());
        return Err(said(format!("it is refused: {error}")));
    }
    damage::check(&kernel, draw)
}

/// A kernel, and whether it must be taken if it is right.
fn drawn(draw: &mut Draw) -> (Linear, bool) {
    let dtype = draw.pick(&[DType::I32, DType::I32, DType::I64]);
    let mut builder = Builder {
        draw,
        uops: Vec::new(),
        dtype,
        counters: Vec::new(),
        thread: None,
        is_idle: false,
        stores: Vec::new(),
        factor: None,
        is_large: false,
        must_be_seen: true,
        slots: 0,
    };
    builder.kernel();
    let must_be_seen = builder.must_be_seen && builder.threads_are_apart();
    (Linear { name: "E_2".to_string(), uops: builder.uops }, must_be_seen)
}

impl Builder<'_> {
    fn push(&mut self, op: Op, dtype: DType, src: &[u32], arg: Arg) -> u32 {
        self.uops.push(Instruction::new(op, dtype, src.iter().copied(), arg));
        self.uops.len() as u32 - 1
    }

    fn int(&mut self, value: i128) -> u32 {
        let value = Constant::int(self.dtype, value);
        self.push(Op::Const, self.dtype, &[], Arg::Const(value))
    }

    fn op(&mut self, op: Op, src: &[u32]) -> u32 {
        self.push(op, self.dtype, src, Arg::None)
    }

    fn truth(&mut self, op: Op, x: u32, y: u32) -> u32 {
        self.push(op, DType::Bool, &[x, y], Arg::None)
    }

    fn kernel(&mut self) {
        let launched = self.draw.below(3);
        let kinds = [AxisKind::Thread, AxisKind::Thread, AxisKind::Global, AxisKind::Local];
        let mut open = Vec::new();
        for number in 0..launched as i64 {
            let kind = self.draw.pick(&kinds);
            let is_second = kind == AxisKind::Thread && self.thread.is_some();
            open.push(self.range(if is_second { AxisKind::Global } else { kind }, number));
        }
        let loops = self.draw.below(4) as i64;
        for number in 0..loops {
            if self.draw.one_in(4) {
                self.access();
            }
            let kinds = [AxisKind::Loop, AxisKind::Loop, AxisKind::Upcast, AxisKind::Unroll];
            let kind = self.draw.pick(&kinds);
            open.push(self.range(kind, 2 + number));
        }
        if self.draw.one_in(4) {
            self.other_counter();
        }
        for _ in 0..1 + self.draw.below(2) {
            self.access();
        }
        for range in open.iter().rev() {
            self.push(Op::EndRange, DType::Void, &[*range], Arg::None);
        }
        if self.thread.is_some() && self.draw.one_in(8) {
            self.store_outside();
        }
    }

    /// A store outside of the range of threads: then there are none.
    fn store_outside(&mut self) {
        let slot = self.slots;
        let arg = Arg::Global(Global { slot, size_elements: 1 });
        let array = self.push(Op::DefineGlobal, DType::F32, &[], arg);
        let zero = self.int(0);
        let index = self.push(Op::Index, DType::F32, &[array, zero], Arg::None);
        let value = self.push(Op::Const, DType::F32, &[], Arg::Const(Constant::zero(DType::F32)));
        self.push(Op::Store, DType::Void, &[index, value], Arg::None);
        self.stores.clear();
    }

    fn range(&mut self, kind: AxisKind, number: i64) -> u32 {
        let steps = match self.draw.below(12) {
            0 => 0,
            1 => 1,
            steps => 1 + steps as i128 % 4,
        };
        let mut extent = (0, steps - 1);
        let mut end = self.int(steps);
        // An end that depends on a counter outside; none of it may be left.
        if let Some(outer) = self.counters.last()
            && !kind.is_launched()
            && self.draw.one_in(5)
        {
            let (of, from) = (outer.uop, outer.extent);
            let less = self.draw.below(6) as i128 - 1;
            let by = self.int(less);
            end = self.op(Op::Sub, &[of, by]);
            extent = (0, from.1 - less - 1);
            self.must_be_seen &= extent.1 < 0;
        }
        self.is_idle |= extent.1 < 0;
        let arg = Arg::Axis(Axis { kind, number });
        let uop = self.push(Op::Range, self.dtype, &[end], arg);
        // Only the outermost of its kind is shared out, if it has a step to share.
        if kind == AxisKind::Thread && self.thread.is_none() && 0 < extent.1 {
            self.thread = Some(self.counters.len());
        }
        self.counters.push(Counter { uop, extent: (0, extent.1.max(0)), is_loop: true });
        uop
    }

    /// An integer that is no counter of a loop: loaded, or a variable that changes.
    fn other_counter(&mut self) {
        let limits = self.limits();
        let zero = self.int(0);
        let array_of = |builder: &mut Self, dtype, is_local| {
            builder.slots += 1;
            let slot = builder.slots - 1;
            let (op, arg) = match is_local {
                true => (Op::DefineLocal, Arg::Local(Local { number: slot, size_elements: 1 })),
                false => (Op::DefineGlobal, Arg::Global(Global { slot, size_elements: 1 })),
            };
            let array = builder.push(op, dtype, &[], arg);
            let index = builder.push(Op::Index, dtype, &[array, zero], Arg::None);
            builder.push(Op::Load, dtype, &[index], Arg::None)
        };
        let (uop, extent) = match self.draw.below(5) {
            0 => {
                let loaded = array_of(self, DType::U8, false);
                (self.op(Op::Cast, &[loaded]), (0, 255))
            }
            1 => {
                let (is_local, dtype) =
                    self.draw.pick(&[(true, DType::U8), (true, DType::Bool), (false, DType::Bool)]);
                self.must_be_seen = false;
                let loaded = array_of(self, dtype, is_local);
                (self.op(Op::Cast, &[loaded]), (0, 255))
            }
            2 => {
                self.must_be_seen = false;
                let variable = self.push(Op::DefineAcc, self.dtype, &[zero], Arg::Int(0));
                (variable, limits)
            }
            _ => (array_of(self, self.dtype, false), limits),
        };
        self.counters.push(Counter { uop, extent, is_loop: false });
    }

    /// A sum of some of the counters, each at most once.
    fn formula(&mut self, of: &[usize]) -> Formula {
        match of {
            [] => {
                let value = self.draw.below(5) as i128 - 1;
                let uop = self.int(value);
                self.linear(uop, Vec::new(), value, &[])
            }
            [counter] => {
                let made = self.leaf(*counter);
                self.unary(made)
            }
            _ => {
                let (first, second) = of.split_at(1 + self.draw.below(of.len() - 1));
                let (x, y) = (self.formula(first), self.formula(second));
                let op = self.draw.pick(&[Op::Add, Op::Sub]);
                let made = self.together(op, &x, &y);
                if self.draw.one_in(2) { made } else { self.unary(made) }
            }
        }
    }

    fn leaf(&mut self, counter: usize) -> Formula {
        self.linear(self.counters[counter].uop, vec![(counter, 1)], 0, &[])
    }

    /// Least and greatest value of the type of indices.
    fn limits(&self) -> Extent {
        match self.dtype {
            DType::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
            _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
        }
    }

    fn extents(&self) -> Vec<Extent> {
        self.counters.iter().map(|counter| counter.extent).collect()
    }

    /// What is known of a sum, from the extents of its counters and from what it is made of.
    fn linear(
        &self,
        uop: u32,
        factors: Vec<(usize, i128)>,
        constant: i128,
        of: &[&Formula],
    ) -> Formula {
        let all = extent_of(&factors, constant, &self.extents());
        let has_wrapped = of.iter().any(|part| part.all.is_none());
        let is_plain = of.iter().all(|part| part.is_plain);
        let limits = self.limits();
        let is_inside = !has_wrapped && limits.0 <= all.0 && all.1 <= limits.1;
        let sum = Some((factors, constant));
        Formula {
            uop,
            sum,
            bent: None,
            all: is_inside.then_some(all),
            is_plain: is_plain && is_inside,
        }
    }

    fn together(&mut self, op: Op, x: &Formula, y: &Formula) -> Formula {
        let uop = self.op(op, &[x.uop, y.uop]);
        let sign = if op == Op::Sub { -1 } else { 1 };
        match (&x.sum, &y.sum) {
            (Some((some, one)), Some((others, other))) => {
                let others = others.iter().map(|(counter, by)| (*counter, sign * by));
                let factors = some.iter().copied().chain(others).collect();
                self.linear(uop, factors, one + sign * other, &[x, y])
            }
            _ => Formula { uop, sum: None, bent: None, all: None, is_plain: false },
        }
    }

    /// A formula of another one.
    fn unary(&mut self, of: Formula) -> Formula {
        let Some((factors, constant)) = of.sum.clone() else { return of };
        let by = |factor: i128| factors.iter().map(|(at, own)| (*at, own * factor)).collect();
        let is_large = self.draw.one_in(24);
        self.is_large |= is_large;
        let small = self.draw.below(4) as i128;
        let value = if is_large { i128::from(i32::MAX) - small } else { small };
        match self.draw.below(9) {
            0 | 1 => self.negative(&of),
            2 | 3 => {
                let number = self.int(value);
                let is_turned = self.draw.one_in(2);
                let sources = if is_turned { [number, of.uop] } else { [of.uop, number] };
                let uop = self.op(Op::Add, &sources);
                self.linear(uop, factors, constant + value, &[&of])
            }
            4 => {
                let number = self.int(value);
                let uop = self.op(Op::Sub, &[of.uop, number]);
                self.linear(uop, factors, constant - value, &[&of])
            }
            5 => {
                let number = self.int(value);
                let uop = self.op(Op::Sub, &[number, of.uop]);
                self.linear(uop, by(-1), value - constant, &[&of])
            }
            6 => {
                let factor = 1 + small;
                let number = self.int(factor);
                let is_turned = self.draw.one_in(2);
                let sources = if is_turned { [number, of.uop] } else { [of.uop, number] };
                let uop = self.op(Op::Mul, &sources);
                self.linear(uop, by(factor), constant * factor, &[&of])
            }
            7 => {
                let bits = self.int(small % 3);
                let uop = self.op(Op::Shl, &[of.uop, bits]);
                // Nothing must be concluded from what is left of a shifted value.
                let made = self.linear(uop, by(1 << (small % 3)), constant << (small % 3), &[&of]);
                Formula { is_plain: false, ..made }
            }
            _ => of,
        }
    }

    fn negative(&mut self, of: &Formula) -> Formula {
        let uop = self.op(Op::Neg, &[of.uop]);
        match &of.sum {
            Some((factors, constant)) => {
                let factors = factors.iter().map(|(at, own)| (*at, -own)).collect();
                self.linear(uop, factors, -constant, &[of])
            }
            None => Formula { uop, sum: None, bent: None, all: None, is_plain: false },
        }
    }

    /// Some of the counters, in any order.
    fn some_counters(&mut self, most: usize) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.counters.len()).collect();
        let count = self.draw.below(most.min(left.len()) + 1);
        (0..count).map(|_| left.swap_remove(self.draw.below(left.len()))).collect()
    }

    /// What a comparison with a constant leaves of the counters, each by itself.
    fn compared(&mut self, gate: &mut Gate) -> u32 {
        let some = self.some_counters(3);
        let formula = self.formula(&some);
        self.limited(gate, &formula)
    }

    /// A limit of a formula.
    fn limited(&mut self, gate: &mut Gate, formula: &Formula) -> u32 {
        let all = formula.all.unwrap_or((0, 4));
        // Of what may be anything, near 0.
        let is_far = 1 << 20 < all.1 - all.0;
        let (from, to) = if is_far { (0, 8) } else { all };
        let limit = from - 1 + self.draw.below((to - from + 3).min(12) as usize) as i128;
        let limit = limit.clamp(i128::from(i32::MIN), i128::from(i32::MAX));
        let number = self.int(limit);
        let is_above = self.draw.one_in(2);
        let is_negated = self.draw.one_in(2);
        let sources = if is_above { [number, formula.uop] } else { [formula.uop, number] };
        let mut uop = self.truth(Op::CmpLt, sources[0], sources[1]);
        if is_negated {
            uop = self.negated(uop);
        }
        let (low, high) = match (is_above, is_negated) {
            (false, false) => (i128::MIN, limit - 1),
            (false, true) => (limit, i128::MAX),
            (true, false) => (limit + 1, i128::MAX),
            (true, true) => (i128::MIN, limit),
        };
        self.leave(gate, formula, (low, high));
        uop
    }

    /// Takes in that a formula is between these.
    fn leave(&self, gate: &mut Gate, formula: &Formula, (low, high): Extent) {
        let is_taken_apart = formula.is_plain && formula.sum.is_some();
        let Some(all) = formula.all.filter(|_| is_taken_apart || formula.bent.is_some()) else {
            return;
        };
        if all.1 < low || high < all.0 {
            gate.left = None;
        }
        gate.bounded.push((formula.clone(), (low.max(all.0), high.min(all.1))));
        let Some((factors, constant)) = &formula.sum else { return };
        let Some(left) = &mut gate.left else { return };
        for (counter, factor) in factors {
            // With the others wherever they help most.
            let rest: Vec<(usize, i128)> =
                factors.iter().copied().filter(|(other, _)| other != counter).collect();
            let extents = self.extents();
            let rest = extent_of(&rest, *constant, &extents);
            let own = &mut left[*counter];
            let is_possible =
                |value: i128| low <= value * factor + rest.1 && value * factor + rest.0 <= high;
            // Values of few steps are tried; of others both ends are known to be far away.
            if 4096 < extents[*counter].1 - extents[*counter].0 {
                if factor.abs() == 1 && rest.0 == rest.1 {
                    let ends = match factor {
                        1 => (low.saturating_sub(rest.0), high.saturating_sub(rest.0)),
                        _ => (rest.0.saturating_sub(high), rest.0.saturating_sub(low)),
                    };
                    *own = (own.0.max(ends.0), own.1.min(ends.1));
                }
                continue;
            }
            let found = |mut values: Box<dyn Iterator<Item = i128>>| {
                values.find(|value| is_possible(*value))
            };
            let (from, to) = extents[*counter];
            match (found(Box::new(from..=to)), found(Box::new((from..=to).rev()))) {
                (Some(first), Some(last)) => *own = (own.0.max(first), own.1.min(last)),
                _ => *own = (1, 0),
            }
        }
        if left.iter().any(|(low, high)| high < low) {
            gate.left = None;
        }
    }

    fn negated(&mut self, gate: u32) -> u32 {
        let value = self.draw.one_in(2);
        let other = Arg::Const(Constant::bool(value));
        let number = self.push(Op::Const, DType::Bool, &[], other);
        let op = self.draw.pick(&[Op::CmpNe, Op::Xor]);
        let is_turned = self.draw.one_in(2);
        let sources = if is_turned { [number, gate] } else { [gate, number] };
        let made = self.truth(op, sources[0], sources[1]);
        // Against false nothing changes, so another time.
        if value {
            return made;
        }
        let truth = self.push(Op::Const, DType::Bool, &[], Arg::Const(Constant::bool(true)));
        self.truth(Op::Xor, made, truth)
    }

    /// One clause of a gate.
    fn clause(&mut self, gate: &mut Gate) -> u32 {
        match self.draw.below(14) {
            0 => {
                let value = self.draw.one_in(2);
                if !value {
                    gate.left = None;
                }
                self.push(Op::Const, DType::Bool, &[], Arg::Const(Constant::bool(value)))
            }
            1 => {
                // Equal to a constant.
                let some = self.some_counters(1);
                let formula = self.formula(&some);
                let all = formula.all.unwrap_or((0, 4));
                let value = all.0 + self.draw.below(4) as i128 - 1;
                let value = value.clamp(i128::from(i32::MIN), i128::from(i32::MAX));
                let number = self.int(value);
                let is_turned = self.draw.one_in(2);
                let (x, y) = if is_turned { (number, formula.uop) } else { (formula.uop, number) };
                let other = self.truth(Op::CmpNe, x, y);
                self.leave(gate, &formula, (value, value));
                self.negated(other)
            }
            2 => {
                // Of two formulas: what it says of them need not be seen.
                let some = self.some_counters(3);
                let (first, second) = some.split_at(some.len() / 2);
                let (x, y) = (self.formula(first), self.formula(second));
                let uop = self.truth(Op::CmpLt, x.uop, y.uop);
                let (Some(own), Some(other)) = (x.all, y.all) else { return uop };
                self.leave(gate, &x, (i128::MIN, other.1 - 1));
                self.leave(gate, &y, (own.0 + 1, i128::MAX));
                uop
            }
            3 => {
                // As the opposite of one or the other.
                let [x, y] = [(); 2].map(|()| self.compared(gate));
                let (x, y) = (self.negated(x), self.negated(y));
                let either = self.truth(Op::Or, x, y);
                self.negated(either)
            }
            4 | 5 => {
                // A function of a formula, and the formula itself: they may exclude each other.
                let some = self.some_counters(2);
                let formula = self.formula(&some);
                let bent = self.bent(formula.clone());
                let [x, y] = [&bent, &formula].map(|of| self.limited(gate, of));
                self.truth(Op::And, x, y)
            }
            6 => {
                // One or the other: nothing must be seen.
                let mut other = Gate { uop: 0, left: gate.left.clone(), bounded: Vec::new() };
                let [x, y] = [(); 2].map(|()| self.compared(&mut other));
                self.truth(Op::Or, x, y)
            }
            _ => self.compared(gate),
        }
    }

    fn gate(&mut self) -> Option<Gate> {
        if self.draw.one_in(4) {
            return None;
        }
        let left = Some(self.extents());
        let mut gate = Gate { uop: 0, left, bounded: Vec::new() };
        let count = 1 + self.draw.below(3);
        let clauses: Vec<u32> = (0..count).map(|_| self.clause(&mut gate)).collect();
        let all = clauses.into_iter().reduce(|x, y| self.truth(Op::And, x, y));
        gate.uop = all.expect("a clause");
        Some(gate)
    }

    /// One or two accesses of an array that is just large enough, or a little too small.
    fn access(&mut self) {
        let gate = self.gate();
        let lanes = self.draw.pick(&[1, 1, 1, 2, 3, 8]);
        self.factor = None;
        let mut places = vec![self.place(gate.as_ref())];
        if self.draw.one_in(2) {
            places.push(self.place(gate.as_ref()));
        }
        let count = places.iter().map(|place| place.count).max().unwrap_or(0);
        let is_small = self.draw.one_in(3);
        let size = count.clamp(0, 4096) + i128::from(lanes) - 1 - i128::from(is_small);
        let is_local = self.draw.one_in(8);
        let array = self.array(size.max(0) as i64, is_local);
        let mut shared = Vec::new();
        let mut is_stored = false;
        for Place { formula, is_known, is_dead, .. } in &places {
            let is_store = self.draw.one_in(2);
            self.emit(array, formula, gate.as_ref(), lanes, is_store);
            self.must_be_seen &= *is_dead || is_known & !is_small;
            if !is_dead {
                is_stored |= is_store;
                shared.push(self.split(formula, lanes));
            }
        }
        if is_stored && !is_local {
            self.stores.push(shared);
        }
    }

    /// An index from 0 on, or a little above, as far as its extent is known.
    fn place(&mut self, gate: Option<&Gate>) -> Place {
        let mut formula = self.index(gate);
        let under = self.under(&formula, gate);
        let extent = under.flatten();
        let mut is_known = formula.all.is_some();
        // A sum of what may be anything may wrap, but under the gate it does not.
        if let (Some((factors, _)), Some((low, high))) = (&formula.sum, extent) {
            let is_far = |at: &(usize, i128)| 1 << 20 < self.counters[at.0].extent.1;
            is_known |= factors.iter().any(is_far) && !self.is_large && -1000 < low && high < 1000;
        }
        let (low, mut high) = extent.unwrap_or((0, 0));
        if !(0..=100).contains(&low) || self.draw.one_in(2) {
            let first = low;
            let low = low.clamp(i128::from(i32::MIN) + 1, i128::from(i32::MAX));
            // The index begins below 0 then.
            is_known &= low == first;
            let by = self.int(low);
            let uop = self.op(Op::Sub, &[formula.uop, by]);
            let all = formula.all.map(|all| (all.0 - low, all.1 - low));
            let sum = formula.sum.map(|(factors, constant)| (factors, constant - low));
            let limits = self.limits();
            let is_inside = |all: Extent| limits.0 <= all.0 && all.1 <= limits.1;
            is_known &= all.is_none_or(is_inside);
            formula = Formula { uop, sum, bent: None, all, is_plain: formula.is_plain };
            high -= low;
        }
        is_known &= high < 4096;
        Place { formula, count: high + 1, is_known, is_dead: self.is_idle || under.is_none() }
    }

    /// What a formula may be where the gate holds, if that is known; none if it never holds.
    fn under(&self, formula: &Formula, gate: Option<&Gate>) -> Option<Option<Extent>> {
        let left = match gate {
            Some(gate) => gate.left.clone()?,
            None => self.extents(),
        };
        let made = match (&formula.sum, &formula.bent) {
            (Some((factors, constant)), _) => Some(extent_of(factors, *constant, &left)),
            (_, Some((op, value, (factors, constant)))) => {
                bend(*op, *value, extent_of(factors, *constant, &left))
            }
            _ => formula.all,
        };
        let bound = |gate: &Gate| {
            let own = gate.bounded.iter().find(|(bounded, _)| bounded.uop == formula.uop);
            own.map(|(_, extent)| *extent)
        };
        match (made, gate.and_then(bound)) {
            (Some(made), Some(bound)) => {
                let both = (made.0.max(bound.0), made.1.min(bound.1));
                (both.0 <= both.1).then_some(Some(both))
            }
            (made, _) => Some(made),
        }
    }

    fn array(&mut self, size_elements: i64, is_local: bool) -> u32 {
        let slot = self.slots;
        self.slots += 1;
        let (op, arg) = match is_local {
            true => (Op::DefineLocal, Arg::Local(Local { number: slot, size_elements })),
            false => (Op::DefineGlobal, Arg::Global(Global { slot, size_elements })),
        };
        self.push(op, DType::F32, &[], arg)
    }

    /// The index and the access itself.
    fn emit(
        &mut self,
        array: u32,
        formula: &Formula,
        gate: Option<&Gate>,
        lanes: u8,
        is_store: bool,
    ) {
        let dtype = DType::F32;
        let mut src = vec![array, formula.uop];
        src.extend(gate.map(|gate| gate.uop));
        let index = self.push(Op::Index, dtype, &src, Arg::None);
        if !is_store {
            let load = self.push(Op::Load, dtype, &[index], Arg::None);
            self.uops[load as usize].lanes = lanes;
            return;
        }
        let mut value = self.push(Op::Const, dtype, &[], Arg::Const(Constant::one(dtype)));
        if 1 < lanes {
            value = self.push(Op::Vectorize, dtype, &[value], Arg::None);
            self.uops[value as usize].lanes = lanes;
        }
        self.push(Op::Store, DType::Void, &[index, value], Arg::None);
        if self.draw.one_in(3) {
            // What is stored, loaded again.
            self.push(Op::Load, dtype, &[index], Arg::None);
        }
    }

    /// The formula of an index: in threads mostly one that takes elements of its own for
    /// each of them, or nearly.
    fn index(&mut self, gate: Option<&Gate>) -> Formula {
        if let Some(gate) = gate
            && !gate.bounded.is_empty()
        {
            // The very value that the gate is about, mostly if it is a function of another one.
            let bent = gate.bounded.iter().find(|(formula, _)| formula.bent.is_some());
            let any = &gate.bounded[self.draw.below(gate.bounded.len())];
            let (chance, (formula, _)) = bent.map_or((4, any), |bent| (2, bent));
            if self.draw.one_in(chance) {
                return formula.clone();
            }
        }
        let mut some = self.some_counters(3);
        if let Some(thread) = self.thread.filter(|_| !self.draw.one_in(4)) {
            // Seldom the number of the thread is in the rest as well.
            let is_twice = self.draw.one_in(5);
            some.retain(|counter| is_twice || *counter != thread);
            let rest = self.formula(&some);
            let width = rest.all.map_or(3, |(low, high)| (high - low).min(1000));
            let factor = width + self.draw.pick(&[1, 1, 2, 8, 0]);
            let factor = match self.factor {
                Some(other) if !self.draw.one_in(4) => other,
                _ => factor,
            };
            self.factor = Some(factor);
            let mut leaf = self.leaf(thread);
            let mut sign = 1;
            if self.draw.one_in(4) {
                (leaf, sign) = (self.negative(&leaf), -1);
            }
            let by = self.int(factor);
            let uop = self.op(Op::Mul, &[leaf.uop, by]);
            let scaled = self.linear(uop, vec![(thread, sign * factor)], 0, &[&leaf]);
            let op = self.draw.pick(&[Op::Add, Op::Sub]);
            let is_turned = self.draw.one_in(2);
            let (x, y) = if is_turned { (&rest, &scaled) } else { (&scaled, &rest) };
            let made = self.together(op, x, y);
            return match self.draw.below(3) {
                0 => made,
                1 => self.negative(&made),
                _ => self.unary(made),
            };
        }
        let made = self.formula(&some);
        if self.draw.one_in(3) { self.bent(made) } else { made }
    }

    /// A function that is no sum of a formula; its extent where it is plain to see.
    fn bent(&mut self, of: Formula) -> Formula {
        let value = 1 + self.draw.below(6) as i128;
        let ops =
            [Op::Max, Op::Min, Op::CDiv, Op::FloorDiv, Op::CMod, Op::FloorMod, Op::Shr, Op::And];
        let op = self.draw.pick(&ops);
        let number = self.int(value);
        let uop = self.op(op, &[of.uop, number]);
        let all = of.all.and_then(|all| bend(op, value, all));
        let bent = of.sum.filter(|_| all.is_some()).map(|sum| (op, value, sum));
        Formula { uop, sum: None, bent, all, is_plain: false }
    }

    /// The factor of the thread's number in an index, and what the rest may be.
    fn split(&self, formula: &Formula, lanes: u8) -> Option<(i128, Extent)> {
        let thread = self.thread?;
        let (factors, constant) = formula.sum.as_ref()?;
        formula.all?;
        if !factors.iter().all(|(counter, _)| self.counters[*counter].is_loop) {
            return None;
        }
        let (own, rest): (Vec<_>, Vec<_>) =
            factors.iter().copied().partition(|(counter, _)| *counter == thread);
        let (low, high) = extent_of(&rest, *constant, &self.extents());
        let factor = own.iter().map(|(_, factor)| factor).sum();
        Some((factor, (low, high + i128::from(lanes) - 1)))
    }

    /// Whether it must be seen that no thread touches what another one writes: all accesses of an
    /// array go on by as much from thread to thread, which is more than what each thread touches.
    fn threads_are_apart(&self) -> bool {
        let is_apart = |accesses: &Vec<Option<(i128, Extent)>>| {
            let known: Option<Vec<(i128, Extent)>> = accesses.iter().copied().collect();
            let Some(known) = known else { return false };
            let factor = known[0].0;
            let low = known.iter().map(|(_, extent)| extent.0).min();
            let high = known.iter().map(|(_, extent)| extent.1).max();
            let width = high.zip(low).map_or(0, |(high, low)| high - low);
            known.iter().all(|(own, _)| *own == factor) && width < factor.abs()
        };
        self.thread.is_none() || self.stores.iter().all(is_apart)
    }
}

/// What a function of a value and a constant may be, where that is plain to see.
fn bend(op: Op, value: i128, (low, high): Extent) -> Option<Extent> {
    match op {
        Op::Max => Some((low.max(value), high.max(value))),
        Op::Min => Some((low.min(value), high.min(value))),
        Op::Shr => Some((low >> value, high >> value)),
        _ if low < 0 => None,
        Op::CDiv | Op::FloorDiv => Some((low / value, high / value)),
        Op::And => Some((0, high.min(value))),
        _ => Some((0, high.min(value - 1))),
    }
}

/// Least and greatest value of a sum, each counter in its extent.
fn extent_of(factors: &[(usize, i128)], constant: i128, extents: &[Extent]) -> Extent {
    factors.iter().fold((constant, constant), |(low, high), (counter, factor)| {
        let ends = [extents[*counter].0 * factor, extents[*counter].1 * factor];
        (low + ends[0].min(ends[1]), high + ends[0].max(ends[1]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_indices_are_judged_as_they_must_be() {
        let (mut taken, mut must) = (0, 0);
        for seed in 0..3000 {
            let mut draw = Draw::new(seed);
            let (kernel, must_be_seen) = drawn(&mut draw);
            taken += usize::from(BoundedLinear::check(kernel).is_ok());
            must += usize::from(must_be_seen);
            check(&mut Draw::new(seed)).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        }
        println!("{taken} of 3000 are taken, {must} must be if they are right");
        assert!(600 < taken && taken < 2600, "{taken} of 3000 are taken");
        assert!(taken < 2 * must, "{must} of {taken} must be taken");
    }
}
