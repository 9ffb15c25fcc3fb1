//! Linear kernels that access memory only within their arrays, as devices without bounds checks
//! require.
//!
//! A [`BoundedLinear`] is made in three ways. [`BoundedLinear::check`] takes any kernel, for
//! example one from a text, and proves that the index of each access is inside its array, from
//! intervals of integers and from gates. It also refuses correct kernels: an index that is inside
//! because of divisibility, or because of the values in another array, is not proven.
//! [`BoundedLinear::promised`] is `unsafe` and trusts its caller, such as lowering, which checks
//! the views from which the indices come. [`BoundedLinear::doubted`] trusts nobody: devices without
//! bounds checks prove such a kernel before they compile it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::interval::Interval;
use crate::interval::{self, unwrapped};
use crate::verify::is_value;
use crate::verify::{VerifyError, verify_kernel};
use crate::{Arg, AxisKind, DType, Linear, Op};

/// Most bytes of all local arrays of a kernel, as they may be on a stack.
pub const LOCAL_BYTES_MAX: u32 = 256 << 10;
/// Most refinements of intervals for one gate.
const REFINEMENTS_MAX: usize = 256;

/// A kernel whose loads and stores are within its arrays, for all values of the arrays.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundedLinear {
    linear: Linear,
    is_doubted: bool,
}

impl BoundedLinear {
    /// Takes a kernel if all its accesses are proven: [`verify_kernel`] accepts each uop; the name
    /// is an identifier; no slot and no local array is defined twice; each index is inside its
    /// array where its gate is true, and depends neither on a local array nor on a bool from
    /// memory; no thread of a thread range accesses an element that another one writes.
    ///
    /// # Errors
    /// The first uop that violates one of these, or is not proven to satisfy it.
    pub fn check(linear: Linear) -> Result<BoundedLinear, VerifyError> {
        prove(&linear)?;
        Ok(BoundedLinear { linear, is_doubted: false })
    }

    /// Takes a kernel without a proof.
    ///
    /// # Safety
    /// The kernel must satisfy all conditions of [`check`](BoundedLinear::check). Otherwise devices
    /// without bounds checks access memory outside of its arrays, or execute code that is injected
    /// through its name.
    #[allow(unsafe_code, reason = "the promise is the caller's; nothing here depends on it")]
    pub unsafe fn promised(linear: Linear) -> BoundedLinear {
        BoundedLinear { linear, is_doubted: false }
    }

    /// Takes a kernel whose accesses may be out of bounds, for example one that was lowered with
    /// rules that may be wrong.
    pub fn doubted(linear: Linear) -> BoundedLinear {
        BoundedLinear { linear, is_doubted: true }
    }

    /// Proves the kernel if it is [`doubted`](BoundedLinear::doubted); the accesses of others are
    /// known to be within its arrays.
    ///
    /// # Errors
    /// Those of [`check`](BoundedLinear::check).
    pub fn ensure(&self) -> Result<(), VerifyError> {
        if self.is_doubted { prove(&self.linear) } else { Ok(()) }
    }

    /// Renames the kernel.
    ///
    /// # Errors
    /// If the name is not an identifier.
    pub fn named(&self, name: &str) -> Result<BoundedLinear, VerifyError> {
        check_name(name)?;
        let linear = Linear { name: name.to_owned(), uops: self.linear.uops.clone() };
        Ok(BoundedLinear { linear, ..*self })
    }

    /// Returns the kernel as plain data.
    pub fn into_linear(self) -> Linear {
        self.linear
    }
}

/// Proves that all accesses of the kernel are within its arrays; see [`BoundedLinear::check`].
fn prove(linear: &Linear) -> Result<(), VerifyError> {
    check_name(&linear.name)?;
    verify_kernel(linear)?;
    let mut checker = Checker::new(linear);
    for position in 0..linear.uops.len() {
        checker.add(position).map_err(|problem| VerifyError {
            location: format!("uop {position} ({})", linear.uops[position].op),
            problem,
        })?;
    }
    checker.check_threads()
}

impl std::ops::Deref for BoundedLinear {
    type Target = Linear;

    fn deref(&self) -> &Linear {
        &self.linear
    }
}

impl std::fmt::Display for BoundedLinear {
    /// Formats the kernel like [`Linear`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.linear.fmt(f)
    }
}

/// Checks the name of a kernel, which becomes part of source code.
fn check_name(name: &str) -> Result<(), VerifyError> {
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let is_identifier = name.bytes().all(is_word)
        && name.len() <= 1024
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    let refused = || VerifyError {
        location: format!("kernel {name:?}"),
        problem: "the name is not an identifier of at most 1024 letters, digits and underscores"
            .into(),
    };
    is_identifier.then_some(()).ok_or_else(refused)
}

/// An integer as `stride * thread + rest`: the stride, and the interval of the rest.
type ThreadSplit = (i128, Interval);

/// An access of a global array by the threads of a thread range.
struct Access {
    array: u32,
    position: usize,
    is_store: bool,
    /// The elements that it accesses, if that is known.
    elements: Option<ThreadSplit>,
}

/// The facts about the uops so far.
struct Checker<'a> {
    linear: &'a Linear,
    /// The interval of each integer or bool.
    intervals: Vec<Option<Interval>>,
    /// For each uop, whether its formula does not wrap, so that the interval is that of the
    /// formula.
    is_exact: Vec<bool>,
    /// For each uop, whether its value may depend on uninitialised data: an element of a local
    /// array, or a bool from memory that is neither 0 nor 1. A compiler may give such a value a
    /// different result at each use.
    is_undefined: Vec<bool>,
    /// True if the kernel loads any such value, which may be assigned to an accumulator.
    has_undefined: bool,
    /// For each uop, whether it depends on an accumulator, and so may change between the evaluation
    /// of a gate and the access.
    is_mutable: Vec<bool>,
    /// The range that is divided among host threads.
    thread: Option<u32>,
    /// For each uop, its split by the thread's number, if it is known.
    thread_splits: Vec<Option<ThreadSplit>>,
    accesses: Vec<Access>,
    /// For each open loop, whether it never has an iteration.
    is_empty_loop: Vec<bool>,
    slots: FxHashSet<usize>,
    locals: FxHashSet<usize>,
    local_bytes: i128,
}

impl<'a> Checker<'a> {
    fn new(linear: &'a Linear) -> Checker<'a> {
        let is_divided = |(range, count): (u32, i64)| (1 < count).then_some(range);
        let mut loads = linear.uops.iter().filter(|uop| uop.op == Op::Load);
        let has_undefined = loads.any(|load| is_undefined_load(linear, load));
        Checker {
            linear,
            has_undefined,
            intervals: Vec::with_capacity(linear.uops.len()),
            is_exact: Vec::with_capacity(linear.uops.len()),
            is_undefined: Vec::with_capacity(linear.uops.len()),
            is_mutable: Vec::with_capacity(linear.uops.len()),
            thread: linear.launched(AxisKind::Thread).into_iter().find_map(is_divided),
            thread_splits: Vec::with_capacity(linear.uops.len()),
            accesses: Vec::new(),
            is_empty_loop: Vec::new(),
            slots: FxHashSet::default(),
            locals: FxHashSet::default(),
            local_bytes: 0,
        }
    }

    fn add(&mut self, position: usize) -> Result<(), String> {
        self.check_definition(position)?;
        let uop = &self.linear.uops[position];
        let is_undefined = match uop.op {
            Op::Load => is_undefined_load(self.linear, uop),
            // A value that is assigned to it later may be undefined.
            Op::DefineAcc => self.has_undefined,
            _ => uop.src.iter().any(|source| self.is_undefined[*source as usize]),
        };
        let (interval, is_exact) =
            self.interval_of(position, &|source| self.intervals[source as usize]);
        self.intervals.push(interval);
        self.is_exact.push(is_exact);
        self.is_undefined.push(is_undefined);
        let is_mutable = match uop.op {
            Op::DefineAcc => true,
            Op::Load => false,
            _ => uop.src.iter().any(|source| self.is_mutable[*source as usize]),
        };
        self.is_mutable.push(is_mutable);
        let thread_split = self.split_by_thread(position);
        self.thread_splits.push(thread_split);
        match uop.op {
            Op::Range => {
                let end = uop.src[0] as usize;
                let is_empty = self.intervals[end].is_some_and(|(_, high)| high <= 0);
                self.is_empty_loop.push(is_empty && !self.is_undefined[end]);
            }
            Op::EndRange => drop(self.is_empty_loop.pop()),
            // The body of a loop without iterations is never executed.
            _ if self.is_empty_loop.contains(&true) => {}
            Op::Load => return self.check_access(position, uop.src[0], uop.lanes, false),
            Op::Store => {
                let lanes = self.linear.uops[uop.src[1] as usize].lanes;
                return self.check_access(position, uop.src[0], lanes, true);
            }
            _ => {}
        }
        Ok(())
    }

    fn check_definition(&mut self, position: usize) -> Result<(), String> {
        let uop = &self.linear.uops[position];
        match &uop.arg {
            Arg::Global(global) if !self.slots.insert(global.slot) => {
                Err(format!("slot {} is defined twice", global.slot))
            }
            Arg::Local(local) => {
                let size_bytes = uop.dtype.size_bytes() as i128 * i128::from(local.size_elements);
                self.local_bytes += size_bytes.max(1);
                if !self.locals.insert(local.number) {
                    return Err(format!("local array {} is defined twice", local.number));
                }
                if local.size_elements < 0 || i128::from(LOCAL_BYTES_MAX) < self.local_bytes {
                    return Err(format!(
                        "its array is too large: all local arrays of a kernel have at most \
                         {LOCAL_BYTES_MAX} bytes"
                    ));
                }
                Ok(())
            }
            Arg::Axis(axis) if axis.kind.is_launched() => {
                let end = &self.linear.uops[uop.src[0] as usize];
                let is_constant = matches!(end.arg, Arg::Const(end) if end.to_int() >= Some(0));
                let problem = "the end of a launched range is not a constant of 0 or more";
                is_constant.then_some(()).ok_or_else(|| problem.to_owned())
            }
            _ => Ok(()),
        }
    }

    fn is_local(&self, index: u32) -> bool {
        is_local(self.linear, index)
    }

    /// Returns the interval of a uop from those of its sources, and whether it does not wrap.
    fn interval_of(
        &self,
        position: usize,
        of: &dyn Fn(u32) -> Option<Interval>,
    ) -> (Option<Interval>, bool) {
        let uop = &self.linear.uops[position];
        let Some(range) = uop.dtype.int_range().filter(|_| is_value(uop.op)) else {
            return (None, false);
        };
        let formula = match uop.op {
            Op::Vectorize => uop.src.iter().map(|source| of(*source)).reduce(hull).flatten(),
            Op::Lane => of(uop.src[0]),
            op => unwrapped((op, uop.dtype, &uop.arg), &|number| of(*uop.src.get(number)?)),
        };
        let exact = formula.filter(|(low, high)| range.0 <= *low && *high <= range.1);
        (exact.or(Some(range)), exact.is_some())
    }

    /// Checks that an access is inside its array.
    fn check_access(
        &mut self,
        position: usize,
        index: u32,
        lanes: u8,
        is_store: bool,
    ) -> Result<(), String> {
        let [array, element] = [0, 1].map(|n| self.linear.uops[index as usize].src[n]);
        let gate = self.linear.uops[index as usize].src.get(2).copied();
        if self.is_undefined[index as usize] {
            return Err(
                "its index depends on a local array or a bool from memory, which may have any value"
                    .to_owned(),
            );
        }
        let size_elements = match self.linear.uops[array as usize].arg {
            Arg::Global(global) => global.size_elements,
            Arg::Local(local) => local.size_elements,
            _ => return Err("its address is not in an array".to_owned()),
        };
        let interval = match gate {
            None => self.intervals[element as usize],
            Some(gate) => match self.where_true(gate) {
                Some(refined) => match self.refined_interval(element, &refined) {
                    Some(interval) => interval,
                    None => return Ok(()),
                },
                // The gate is never true.
                None => return Ok(()),
            },
        };
        let Some((low, high)) = interval else {
            return Err("its index is not an integer".to_owned());
        };
        let last = high + i128::from(lanes) - 1;
        if low < 0 || i128::from(size_elements) <= last {
            return Err(format!(
                "its elements are among {low} to {last} as far as can be proven, and the array \
                 has {size_elements}"
            ));
        }
        if !self.is_local(index) {
            let widen = |(stride, (low, high)): (i128, Interval)| {
                (stride, (low, high + i128::from(lanes) - 1))
            };
            let elements = self.thread_splits[element as usize].map(widen);
            self.accesses.push(Access { array, position, is_store, elements });
        }
        Ok(())
    }

    /// Returns the refined intervals of uops under a condition; `None` if it is never true.
    fn where_true(&self, condition: u32) -> Option<FxHashMap<u32, Interval>> {
        let mut refined: FxHashMap<u32, Interval> = FxHashMap::default();
        let mut conditions = vec![(condition, true)];
        let mut pending: Vec<u32> = Vec::new();
        for _ in 0..REFINEMENTS_MAX {
            if let Some(node) = pending.pop() {
                self.refine_sources(node, &mut refined, &mut pending)?;
            } else if let Some((node, is_true)) = conditions.pop() {
                let uop = &self.linear.uops[node as usize];
                let constant = |number: usize| self.constant_of(uop.src[number]);
                match uop.op {
                    Op::And if is_true => conditions.extend(uop.src.iter().map(|s| (*s, true))),
                    Op::Or if !is_true => conditions.extend(uop.src.iter().map(|s| (*s, false))),
                    Op::CmpNe | Op::Xor if self.is_bool(uop.src[0]) => {
                        // A negation of a bool, if the other one is a constant.
                        match (constant(0), constant(1)) {
                            (_, Some(constant)) => {
                                conditions.push((uop.src[0], is_true == (constant == 0)))
                            }
                            (Some(constant), _) => {
                                conditions.push((uop.src[1], is_true == (constant == 0)))
                            }
                            _ => {}
                        }
                    }
                    Op::CmpNe if !is_true => {
                        let [x, y] = [0, 1].map(|n| self.current(uop.src[n], &refined));
                        let (Some(x), Some(y)) = (x, y) else { continue };
                        self.refine(uop.src[0], y, &mut refined, &mut pending)?;
                        self.refine(uop.src[1], x, &mut refined, &mut pending)?;
                    }
                    Op::CmpLt => {
                        let [x, y] = [0, 1].map(|n| self.current(uop.src[n], &refined));
                        let (Some(x), Some(y)) = (x, y) else { continue };
                        let (for_x, for_y) = match is_true {
                            true => ((x.0, y.1 - 1), (x.0 + 1, y.1)),
                            false => ((y.0, x.1), (y.0, x.1)),
                        };
                        self.refine(uop.src[0], for_x, &mut refined, &mut pending)?;
                        self.refine(uop.src[1], for_y, &mut refined, &mut pending)?;
                    }
                    Op::Const if constant_is(uop, !is_true) => return None,
                    _ => {}
                }
            } else {
                break;
            }
        }
        Some(refined)
    }

    fn current(&self, node: u32, refined: &FxHashMap<u32, Interval>) -> Option<Interval> {
        refined.get(&node).copied().or(self.intervals[node as usize])
    }

    fn is_bool(&self, node: u32) -> bool {
        self.linear.uops[node as usize].dtype == DType::Bool
    }

    fn constant_of(&self, node: u32) -> Option<i128> {
        let uop = &self.linear.uops[node as usize];
        let (low, high) = self.intervals[node as usize].filter(|_| uop.op == Op::Const)?;
        (low == high).then_some(low)
    }

    /// Intersects the interval of a uop with another one; `None` if the result is empty.
    fn refine(
        &self,
        node: u32,
        interval: Interval,
        refined: &mut FxHashMap<u32, Interval>,
        pending: &mut Vec<u32>,
    ) -> Option<()> {
        let Some(current) = self.current(node, refined).filter(|_| !self.is_mutable[node as usize])
        else {
            return Some(());
        };
        let new = (current.0.max(interval.0), current.1.min(interval.1));
        if new.1 < new.0 {
            return None;
        }
        if new != current {
            refined.insert(node, new);
            pending.push(node);
        }
        Some(())
    }

    /// Refines the sources of a uop by its refined interval; `None` if one of them becomes empty.
    /// If the uop may wrap, nothing follows for its sources.
    fn refine_sources(
        &self,
        node: u32,
        refined: &mut FxHashMap<u32, Interval>,
        pending: &mut Vec<u32>,
    ) -> Option<()> {
        let uop = &self.linear.uops[node as usize];
        let (Some((low, high)), true) = (self.current(node, refined), self.is_exact[node as usize])
        else {
            return Some(());
        };
        let of = |number: usize| self.current(*uop.src.get(number)?, refined);
        match (uop.op, of(0), of(1)) {
            (Op::Cast, Some(_), _) => self.refine(uop.src[0], (low, high), refined, pending),
            (Op::Neg, Some(_), _) => self.refine(uop.src[0], (-high, -low), refined, pending),
            (Op::Add, Some(x), Some(y)) => {
                self.refine(uop.src[0], (low - y.1, high - y.0), refined, pending)?;
                self.refine(uop.src[1], (low - x.1, high - x.0), refined, pending)
            }
            (Op::Sub, Some(x), Some(y)) => {
                self.refine(uop.src[0], (low + y.0, high + y.1), refined, pending)?;
                self.refine(uop.src[1], (x.0 - high, x.1 - low), refined, pending)
            }
            (Op::Mul, Some(_), Some((factor, high_factor)))
                if factor == high_factor && 0 < factor =>
            {
                let multiples = (-(-low).div_euclid(factor), high.div_euclid(factor));
                self.refine(uop.src[0], multiples, refined, pending)
            }
            (Op::Mul, Some((factor, high_factor)), Some(_))
                if factor == high_factor && 0 < factor =>
            {
                let multiples = (-(-low).div_euclid(factor), high.div_euclid(factor));
                self.refine(uop.src[1], multiples, refined, pending)
            }
            _ => Some(()),
        }
    }

    /// Returns the interval of a uop under refined intervals, if it is known; `None` if they
    /// contradict each other.
    fn refined_interval(
        &self,
        node: u32,
        refined: &FxHashMap<u32, Interval>,
    ) -> Option<Option<Interval>> {
        // The uops from which it is computed, up to loads.
        let mut needed: Vec<u32> = vec![node];
        let mut seen: FxHashSet<u32> = FxHashSet::default();
        let mut next = 0;
        while let Some(node) = needed.get(next).copied() {
            next += 1;
            let uop = &self.linear.uops[node as usize];
            if uop.op.is_elementwise() || matches!(uop.op, Op::Vectorize | Op::Lane) {
                needed.extend(uop.src.iter().copied().filter(|source| seen.insert(*source)));
            }
        }
        needed.sort_unstable();
        needed.dedup();
        let mut found: FxHashMap<u32, Option<Interval>> = FxHashMap::default();
        for node in needed {
            let of = |source: u32| match found.get(&source) {
                Some(interval) => *interval,
                None => self.current(source, refined),
            };
            let (computed, _) = self.interval_of(node as usize, &of);
            // Both intervals contain the value, so their intersection does.
            let both = match (computed, self.current(node, refined)) {
                (Some(x), Some(y)) => Some((x.0.max(y.0), x.1.min(y.1))),
                (x, y) => x.or(y),
            };
            if both.is_some_and(|(low, high)| high < low) {
                return None;
            }
            found.insert(node, both);
        }
        Some(found.get(&node).copied().flatten())
    }

    /// Splits an integer by the thread's number, if it is linear in it.
    fn split_by_thread(&self, position: usize) -> Option<ThreadSplit> {
        let thread = self.thread?;
        let uop = &self.linear.uops[position];
        let interval = self.intervals[position]?;
        if position == thread as usize {
            return Some((1, (0, 0)));
        }
        let of = |number: usize| self.thread_splits.get(*uop.src.get(number)? as usize).copied()?;
        let is_uniform = |number: usize| of(number).is_some_and(|(stride, _)| stride == 0);
        // A loaded or reduced value is not known to be linear in the number of the thread.
        if !uop.op.is_elementwise() && uop.op != Op::Range && uop.op != Op::Const {
            return None;
        }
        if (0..uop.src.len()).all(is_uniform) {
            return Some((0, interval));
        }
        if !self.is_exact[position] {
            return None;
        }
        let times = |(stride, (low, high)): ThreadSplit, factor: i128| {
            let ends = [low.checked_mul(factor)?, high.checked_mul(factor)?];
            let stride = stride.checked_mul(factor)?;
            Some((stride, (ends[0].min(ends[1]), ends[0].max(ends[1]))))
        };
        let plus = |x: ThreadSplit, y: ThreadSplit| {
            let rest = (x.1.0.checked_add(y.1.0)?, x.1.1.checked_add(y.1.1)?);
            Some((x.0.checked_add(y.0)?, rest))
        };
        let constant = |number: usize| self.constant_of(uop.src[number]);
        match uop.op {
            Op::Cast => of(0),
            Op::Neg => times(of(0)?, -1),
            Op::Add => plus(of(0)?, of(1)?),
            Op::Sub => plus(of(0)?, times(of(1)?, -1)?),
            Op::Mul => match (constant(0), constant(1)) {
                (_, Some(factor)) => times(of(0)?, factor),
                (Some(factor), _) => times(of(1)?, factor),
                _ => None,
            },
            Op::Shl => times(of(0)?, 1 << constant(1).filter(|by| (0..64).contains(by))?),
            _ => None,
        }
    }

    /// Checks that no two threads access an element that one of them writes.
    fn check_threads(&self) -> Result<(), VerifyError> {
        let Some(thread) = self.thread else { return Ok(()) };
        let is_end = |uop: &crate::Instruction| uop.op == Op::EndRange && uop.src[0] == thread;
        let end = self.linear.uops.iter().position(is_end).unwrap_or(usize::MAX);
        let inside = thread as usize..end;
        if self.accesses.iter().any(|access| access.is_store && !inside.contains(&access.position))
        {
            // Devices run a thread range with stores outside of it as a plain loop: no races.
            return Ok(());
        }
        let stores = self.accesses.iter().filter(|access| access.is_store);
        let stored: FxHashSet<u32> = stores.map(|access| access.array).collect();
        for array in stored {
            let accesses = || self.accesses.iter().filter(|access| access.array == array);
            let mut total: Option<ThreadSplit> = None;
            for access in accesses() {
                let union = access.elements.and_then(|(stride, rest)| match total {
                    None => Some((stride, rest)),
                    Some((known, interval)) => (known == stride)
                        .then_some((stride, (rest.0.min(interval.0), rest.1.max(interval.1)))),
                });
                let is_disjoint = |(stride, (low, high)): &ThreadSplit| high - low < stride.abs();
                total = Some(union.filter(is_disjoint).ok_or_else(|| VerifyError {
                    location: format!(
                        "uop {} ({})",
                        access.position, self.linear.uops[access.position].op
                    ),
                    problem:
                        "it is not proven that no two threads access the same element".to_owned(),
                })?);
            }
        }
        Ok(())
    }
}

/// Returns whether an index is into a local array.
fn is_local(linear: &Linear, index: u32) -> bool {
    let array = linear.uops[index as usize].src[0];
    linear.uops[array as usize].op == Op::DefineLocal
}

/// Returns whether a load may return uninitialised data.
fn is_undefined_load(linear: &Linear, load: &crate::Instruction) -> bool {
    load.dtype == DType::Bool || is_local(linear, load.src[0])
}

fn constant_is(uop: &crate::Instruction, value: bool) -> bool {
    matches!(uop.arg, Arg::Const(constant) if constant.to_int() == Some(i128::from(value)))
}

fn hull(x: Option<Interval>, y: Option<Interval>) -> Option<Interval> {
    x.zip(y).map(|(x, y)| interval::hull(x, y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse_linears;

    /// Checks that the kernel of these uops is proven, or refused with this problem. Uops are
    /// numbered here.
    fn check(uops: &str, problem: Option<&str>) {
        let numbered = uops.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate();
        let lines: Vec<String> = numbered.map(|(at, line)| format!("{at} {line}\n")).collect();
        let text = format!("kernel E_8\n{}", lines.concat());
        let linear = parse_linears(&text).expect("it parses").remove(0);
        let found = BoundedLinear::check(linear).err().map(|error| error.to_string());
        match (problem, &found) {
            (None, None) => {}
            (Some(problem), Some(found)) if found.contains(problem) => {}
            _ => panic!("{text}{found:?}"),
        }
    }

    /// Checks `data0[index of i] = data1[i]` for i below `count`; the index is uop 5.
    fn check_copy(size: i64, count: i64, index: &str, problem: Option<&str>) {
        check(
            &format!(
                "define_global f32 [] data0 {size}
                 define_global f32 [] data1 8
                 const i32 [] {count}
                 range i32 [2] 0
                 const i32 [] 2
                 {index}
                 index f32 [1, 3]
                 load f32 [6]
                 index f32 [0, 5]
                 store void [8, 7]
                 endrange void [3]"
            ),
            problem,
        );
    }

    #[test]
    fn index_is_inside_its_array_for_every_iteration() {
        check_copy(8, 8, "add i32 [3, 3]", Some("uop 9 (store): its elements are among 0 to 14"));
        check_copy(15, 8, "add i32 [3, 3]", None);
        check_copy(10, 9, "add i32 [3, 4]", Some("uop 7 (load): its elements are among 0 to 8"));
        check_copy(10, 8, "add i32 [3, 4]", None);
        check_copy(8, 8, "sub i32 [3, 4]", Some("among -2 to 5"));
        check_copy(2, 8, "cmod i32 [3, 4]", None);
        check_copy(4, 8, "cdiv i32 [3, 4]", None);
        check_copy(1, 8, "mulacc i32 [3, 4, 4]", Some("among 2 to 16"));
        check_copy(1, 0, "add i32 [3, 4]", None);
        check_copy(1, 8, "const i32 [] -1", Some("among -1 to -1"));
        check_copy(0, 8, "const i32 [] 0", Some("the array has 0"));
    }

    #[test]
    fn sum_that_wraps_may_have_any_value() {
        check(
            "define_global f32 [] data0 2147483647
             const i32 [] 2147483647
             const i32 [] 2
             range i32 [2] 0
             add i32 [3, 1]
             index f32 [0, 4]
             load f32 [5]
             endrange void [3]",
            Some("among -2147483648 to 2147483647"),
        );
    }

    #[test]
    fn shift_by_too_much_may_have_any_value() {
        let shifted = |by: i64| {
            format!(
                "define_global f32 [] data0 512
                 const i32 [] 1000000
                 const i32 [] {by}
                 range i32 [1] 0
                 shr i32 [3, 2]
                 const f32 [] 0
                 index f32 [0, 4]
                 store void [6, 5]
                 endrange void [3]"
            )
        };
        check(&shifted(11), None);
        // Most devices would shift by 40 - 32.
        check(&shifted(40), Some("among -2147483648 to 2147483647"));
        check(&shifted(-1), Some("among -2147483648 to 2147483647"));
    }

    #[test]
    fn contradictory_gate_is_never_true() {
        // The index is a quotient by i, and the gate says 0 < i and i < 1.
        check(
            "define_global f32 [] data0 1
             const i32 [] 4
             range i32 [1] 0
             const i32 [] 0
             const i32 [] 1
             mul i32 [2, 1]
             cmplt bool [3, 5]
             cmplt bool [5, 1]
             and bool [6, 7]
             cdiv i32 [1, 2]
             const f32 [] 0
             index f32 [0, 9, 8]
             store void [11, 10]
             endrange void [2]",
            None,
        );
    }

    #[test]
    fn all_lanes_are_inside() {
        for (size, problem) in [(7, Some("among 3 to 7")), (8, None)] {
            check(
                &format!(
                    "define_global f32 [] data0 {size}
                     const i32 [] 3
                     index f32 [0, 1]
                     load f32x5 [2]
                     store void [2, 3]"
                ),
                problem,
            );
        }
    }

    /// Checks `data0[i + offset]` for i below 8, gated by uop 6.
    fn check_gated(offset: i64, gate: &str, problem: Option<&str>) {
        check(
            &format!(
                "define_global f32 [] data0 6
                 const i32 [] 8
                 range i32 [1] 0
                 const i32 [] {offset}
                 add i32 [2, 3]
                 const i32 [] 0
                 {gate}
                 const f32 [] 0
                 index f32 [0, 4, 6]
                 store void [8, 7]
                 endrange void [2]"
            ),
            problem,
        );
    }

    #[test]
    fn gates_bound_their_operands() {
        check_gated(-1, "cmplt bool [5, 2]", Some("among 0 to 6"));
        check_gated(-2, "cmplt bool [3, 4]", Some("among -1 to 5"));
        check_gated(-1, "cmpne bool [2, 5]", Some("among -1 to 6"));
        check_gated(-2, "cmplt bool [4, 5]", Some("among -2 to -1"));
        check_gated(0, "const bool [] true", Some("among 0 to 7"));
        check_gated(0, "const bool [] false", None);
        check_gated(9, "cmplt bool [4, 5]", None);
        // The gate says 0 <= i - 2, as `not (i - 2 < 0)`; i - 2 < 6 always holds.
        let not = "cmplt bool [4, 5]\nconst bool [] true\ncmpne bool [6, 7]\nconst f32 [] 0\n\
                   index f32 [0, 4, 8]\nstore void [10, 9]\nendrange void [2]";
        let head = "define_global f32 [] data0 6\nconst i32 [] 8\nrange i32 [1] 0\n\
                    const i32 [] -2\nadd i32 [2, 3]\nconst i32 [] 0\n";
        check(&format!("{head}{not}"), None);
        // The gate compares one sum, and the index is another sum over the same variable.
        let another_sum = "const i32 [] 3\ncmplt bool [5, 4]\nadd i32 [2, 3]\nadd i32 [8, 5]\n\
                     const f32 [] 0\nindex f32 [0, 9, 7]\nstore void [11, 10]\nendrange void [2]";
        check(&format!("{head}{another_sum}"), None);
    }

    #[test]
    fn gates_do_not_bound_accumulators() {
        // The accumulator is assigned between the comparison and the access.
        check(
            "define_global i32 [] data0 8
             const i32 [] 0
             const i32 [] 8
             range i32 [2] 0
             define_acc i32 [1, 3] 0
             const i32 [] -1
             cmplt bool [4, 2]
             cmplt bool [5, 4]
             and bool [6, 7]
             const i32 [] 100
             assign i32 [4, 9]
             index i32 [0, 4, 8]
             store void [11, 1]
             endrange void [3]",
            Some("uop 12 (store): its elements are among -2147483648 to 2147483647"),
        );
    }

    #[test]
    fn loaded_indices_need_gates_and_initialised_memory() {
        let gather = |array: &str, index: &str| {
            format!(
                "{array}
                 const i32 [] 0
                 const i32 [] 8
                 index i32 [0, 1]
                 load i32 [3]
                 cmplt bool [4, 2]
                 const i32 [] -1
                 cmplt bool [6, 4]
                 and bool [5, 7]
                 define_global i32 [] data1 8
                 {index}
                 store void [10, 1]"
            )
        };
        let global = "define_global i32 [] data0 1";
        check(&gather(global, "index i32 [9, 4, 8]"), None);
        check(&gather(global, "index i32 [9, 4]"), Some("among -2147483648"));
        check(&gather(global, "index i32 [9, 4, 5]"), Some("among -2147483648 to 7"));
        let local = "define_local i32 [] local0 1";
        check(&gather(local, "index i32 [9, 4, 8]"), Some("depends on a local array"));
        check(
            "define_global bool [] data0 1
             const i32 [] 0
             index bool [0, 1]
             load bool [2]
             cast i32 [3]
             define_global i32 [] data1 2
             index i32 [5, 4]
             store void [6, 1]",
            Some("a bool from memory"),
        );
    }

    #[test]
    fn accumulators_may_hold_uninitialised_data() {
        // The accumulator is defined before the array from which it is assigned.
        let through = |array: &str, dtype: &str, initial: &str| {
            format!(
                "const i32 [] 0
                 const {dtype} [] {initial}
                 define_acc {dtype} [1] 0
                 {array}
                 index {dtype} [3, 0]
                 load {dtype} [4]
                 assign {dtype} [2, 5]
                 cast i32 [2]
                 const i32 [] 8
                 cmod i32 [7, 8]
                 cmplt bool [9, 8]
                 const i32 [] -1
                 cmplt bool [11, 9]
                 and bool [10, 12]
                 define_global i32 [] data1 8
                 index i32 [14, 7, 13]
                 store void [15, 0]"
            )
        };
        let problem = Some("its index depends on a local array or a bool from memory");
        check(&through("define_local bool [] local0 1", "bool", "false"), problem);
        check(&through("define_global bool [] data0 1", "bool", "false"), problem);
        check(&through("define_local u8 [] local0 1", "u8", "0"), problem);
    }

    #[test]
    fn loops_that_may_have_an_iteration_are_checked() {
        // A bool minus 1 is at most 0, unless the byte is neither 0 nor 1.
        for array in ["define_local bool [] local0 1", "define_global bool [] data0 1"] {
            check(
                &format!(
                    "{array}
                     const i32 [] 0
                     index bool [0, 1]
                     load bool [2]
                     cast i32 [3]
                     const i32 [] 1
                     sub i32 [4, 5]
                     range i32 [6] 0
                     const i32 [] 1000000
                     define_global i32 [] data1 8
                     index i32 [9, 8]
                     store void [10, 1]
                     endrange void [7]"
                ),
                Some("uop 11 (store): its elements are among 1000000 to 1000000"),
            );
        }
    }

    #[test]
    fn uops_of_wrong_kinds_are_refused() {
        let twice = "define_global f32 [] data0 1\ndefine_global f32 [] data0 8";
        check(twice, Some("uop 1 (define_global): slot 0 is defined twice"));
        let locals = "define_local f32 [] local0 1\ndefine_local f32 [] local0 1";
        check(locals, Some("local array 0 is defined twice"));
        check("define_local f32 [] local0 65537", Some("its array is too large"));
        check("define_local f32 [] local0 4611686018427387904", Some("its array is too large"));
        let address = "define_global i32 [] data0 8\nconst i32 [] 0\nindex i32 [0, 1]\n";
        check(&format!("{address}add i32 [2, 1]"), Some("source 2 is index"));
        check(&format!("{address}add i32 [0, 1]"), Some("source 0 is define_global"));
        check(&format!("{address}index i32 [0, 2]"), Some("source 2 is index"));
        check("define_var i32 [] n 0..4", Some("the op is not supported"));
        // A lane of 1000 that is extracted as a value of 8 bits.
        let lane = "const i32 [] 1000\nvectorize i32x2 [0]\nlane u8 [1] 0\ncast i32 [2]\n\
                    define_global f32 [] data0 256\nindex f32 [4, 3]\nload f32 [5]";
        check(lane, Some("uop 2 (lane): lane of"));
        check("const i32 [] 1000\nvectorize u8x2 [0]", Some("uop 1 (vectorize): vectorize of"));
        let launched = "const i32 [] -1\nrange i32 [0] 0g\nendrange void [1]";
        check(launched, Some("the end of a launched range"));
    }

    #[test]
    fn names_are_identifiers() {
        let named = |name: &str| {
            let linear = Linear { name: name.to_owned(), uops: Vec::new() };
            BoundedLinear::check(linear)
        };
        let kernel = named("r_4_4n1").expect("a name");
        for name in ["", "4", "E;", "E(){}void*f", "E\u{e9}", &"E".repeat(1025)] {
            assert!(named(name).is_err() && kernel.named(name).is_err(), "{name}");
        }
        assert_eq!(kernel.named("E_2").expect("a name").name, "E_2");
    }

    /// Checks `data0[thread * stride + j] = 0` for 4 threads and j below `width`.
    fn check_threads(stride: i64, width: i64, more: &str, problem: Option<&str>) {
        check(
            &format!(
                "define_global f32 [] data0 64
                 const i32 [] 4
                 range i32 [1] 0t
                 const i32 [] {stride}
                 mul i32 [2, 3]
                 const i32 [] {width}
                 range i32 [5] 1
                 add i32 [4, 6]
                 index f32 [0, 7]
                 const f32 [] 0
                 store void [8, 9]
                 {more}
                 endrange void [6]
                 endrange void [2]"
            ),
            problem,
        );
    }

    #[test]
    fn threads_access_separate_elements() {
        let nothing = "const i32 [] 0";
        check_threads(8, 8, nothing, None);
        check_threads(8, 9, nothing, Some("uop 10 (store): it is not proven that no two threads"));
        check_threads(0, 1, nothing, Some("no two threads"));
        check_threads(
            8,
            8,
            "index f32 [0, 2]\nload f32 [11]",
            Some("uop 12 (load): it is not proven"),
        );
        check_threads(8, 7, "load f32 [8]", None);
        check_threads(8, 8, "load f32x2 [8]", Some("no two threads"));
    }
}
