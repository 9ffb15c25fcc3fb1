//! Linear kernels that keep within their arrays: what devices that do not check run.
//!
//! A [`BoundedLinear`] is made in three ways. [`BoundedLinear::check`] takes any kernel, as one that
//! was read from text, and proves of each access that its index is inside its array, by intervals
//! of integers and by what gates say of them. It refuses more than is wrong: an index that is right
//! for reasons of divisibility, or because of the values in another array, is not proven.
//! [`BoundedLinear::promised`] is `unsafe` and believes the caller; lowering is one, whose indices
//! come from views that were held against their arrays. [`BoundedLinear::doubted`] believes nobody:
//! devices that do not check accesses prove such a kernel before they compile it.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::verify::is_value;
use crate::{Arg, AxisKind, DType, Interval, Linear, Op, VerifyError, unwrapped, verify_kernel};

/// Most bytes that the local arrays of a kernel have together: they may lie on a stack.
const LOCAL_BYTES_MOST: i128 = 256 << 10;
/// Most refinements of intervals that one gate gives rise to.
const REFINEMENTS_MOST: usize = 256;

/// A kernel whose loads and stores keep within its arrays, whatever values the arrays hold.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundedLinear {
    linear: Linear,
    is_doubted: bool,
}

impl BoundedLinear {
    /// Takes a kernel if it is proven to keep within its arrays: each uop is what
    /// [`verify_kernel`] asks for; the name is an identifier; no slot and no local array is
    /// defined twice; each index is inside its array wherever its gate holds, and depends on no
    /// local array and on no bool from memory; threads of a thread range touch no element that
    /// another one writes.
    ///
    /// # Errors
    /// The first uop that breaks, or is not proven to keep, one of these.
    pub fn check(linear: Linear) -> Result<BoundedLinear, VerifyError> {
        prove(&linear)?;
        Ok(BoundedLinear { linear, is_doubted: false })
    }

    /// Takes a kernel as it is.
    ///
    /// # Safety
    /// All that [`check`](BoundedLinear::check) proves must hold of the kernel. Else devices that
    /// do not check accesses read and write memory that is not the kernel's, or run what its name
    /// says.
    #[allow(unsafe_code, reason = "the promise is the caller's; nothing here depends on it")]
    pub unsafe fn promised(linear: Linear) -> BoundedLinear {
        BoundedLinear { linear, is_doubted: false }
    }

    /// Takes a kernel that may leave its arrays, as one that was lowered by rules that may be
    /// wrong.
    pub fn doubted(linear: Linear) -> BoundedLinear {
        BoundedLinear { linear, is_doubted: true }
    }

    /// Proves a kernel that is [`doubted`](BoundedLinear::doubted); every other one is known to
    /// keep within its arrays.
    ///
    /// # Errors
    /// Those of [`check`](BoundedLinear::check).
    pub fn ensure(&self) -> Result<(), VerifyError> {
        if self.is_doubted { prove(&self.linear) } else { Ok(()) }
    }

    /// The same kernel under another name.
    ///
    /// # Errors
    /// If the name is no identifier.
    pub fn named(&self, name: &str) -> Result<BoundedLinear, VerifyError> {
        check_name(name)?;
        let linear = Linear { name: name.to_owned(), uops: self.linear.uops.clone() };
        Ok(BoundedLinear { linear, ..*self })
    }

    /// The kernel as plain data.
    pub fn into_linear(self) -> Linear {
        self.linear
    }
}

/// Succeeds if the kernel is proven to keep within its arrays; see [`BoundedLinear::check`].
fn prove(linear: &Linear) -> Result<(), VerifyError> {
    check_name(&linear.name)?;
    verify_kernel(linear)?;
    let mut checker = Checker::new(linear);
    for position in 0..linear.uops.len() {
        checker.add(position).map_err(|problem| VerifyError {
            place: format!("uop {position} ({})", linear.uops[position].op),
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
    /// As [`Linear`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.linear.fmt(f)
    }
}

/// Names become names in source texts.
fn check_name(name: &str) -> Result<(), VerifyError> {
    let is_word = |byte: u8| byte == b'_' || byte.is_ascii_alphanumeric();
    let is_identifier = name.bytes().all(is_word)
        && name.len() <= 1024
        && name.bytes().next().is_some_and(|first| !first.is_ascii_digit());
    let refused = || VerifyError {
        place: format!("kernel {name:?}"),
        problem: "its name is no identifier of 1024 letters, digits and underscores at most".into(),
    };
    is_identifier.then_some(()).ok_or_else(refused)
}

/// An access of a global array, as threads see it.
struct Access {
    array: u32,
    position: usize,
    is_store: bool,
    /// The elements that it touches are `step` * thread + one of the interval, if that is known.
    elements: Option<(i128, Interval)>,
}

/// What is known of the uops so far.
struct Checker<'a> {
    linear: &'a Linear,
    /// The interval of each integer or bool.
    intervals: Vec<Option<Interval>>,
    /// Whether that is the interval of the formula, which does not wrap.
    is_exact: Vec<bool>,
    /// Whether the value may depend on what nobody has written: an element of a local array, or a
    /// bool that is neither 0 nor 1. A compiler may take such a value for another one at each use.
    is_undefined: Vec<bool>,
    /// Whether the kernel loads any such value, before or after it is assigned to a variable.
    has_undefined: bool,
    /// Whether it depends on a variable, and so may be another one behind its gate than in it.
    is_variable: Vec<bool>,
    /// The range that is shared out to threads of the host.
    thread: Option<u32>,
    /// Each exact integer as a multiple of the thread's number plus one of an interval.
    by_thread: Vec<Option<(i128, Interval)>>,
    accesses: Vec<Access>,
    /// Of each open loop, whether it never has a step.
    is_idle: Vec<bool>,
    slots: FxHashSet<usize>,
    locals: FxHashSet<usize>,
    local_bytes: i128,
}

impl<'a> Checker<'a> {
    fn new(linear: &'a Linear) -> Checker<'a> {
        let is_shared = |(range, steps): (u32, i64)| (1 < steps).then_some(range);
        let mut loads = linear.uops.iter().filter(|uop| uop.op == Op::Load);
        let has_undefined = loads.any(|load| is_undefined_load(linear, load));
        Checker {
            linear,
            has_undefined,
            intervals: Vec::with_capacity(linear.uops.len()),
            is_exact: Vec::with_capacity(linear.uops.len()),
            is_undefined: Vec::with_capacity(linear.uops.len()),
            is_variable: Vec::with_capacity(linear.uops.len()),
            thread: linear.launched(AxisKind::Thread).into_iter().find_map(is_shared),
            by_thread: Vec::with_capacity(linear.uops.len()),
            accesses: Vec::new(),
            is_idle: Vec::new(),
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
            // What is assigned later may be.
            Op::DefineAcc => self.has_undefined,
            _ => uop.src.iter().any(|source| self.is_undefined[*source as usize]),
        };
        let (interval, is_exact) =
            self.interval_of(position, &|source| self.intervals[source as usize]);
        self.intervals.push(interval);
        self.is_exact.push(is_exact);
        self.is_undefined.push(is_undefined);
        let is_variable = match uop.op {
            Op::DefineAcc => true,
            Op::Load => false,
            _ => uop.src.iter().any(|source| self.is_variable[*source as usize]),
        };
        self.is_variable.push(is_variable);
        let by_thread = self.split_by_thread(position);
        self.by_thread.push(by_thread);
        match uop.op {
            Op::Range => {
                let end = uop.src[0] as usize;
                let is_empty = self.intervals[end].is_some_and(|(_, most)| most <= 0);
                self.is_idle.push(is_empty && !self.is_undefined[end]);
            }
            Op::EndRange => drop(self.is_idle.pop()),
            // What is in a loop without a step is never reached.
            _ if self.is_idle.contains(&true) => {}
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
                if local.size_elements < 0 || LOCAL_BYTES_MOST < self.local_bytes {
                    return Err(format!(
                        "its array is too large: those of a kernel have {LOCAL_BYTES_MOST} bytes \
                         at most"
                    ));
                }
                Ok(())
            }
            Arg::Axis(axis) if axis.kind.is_launched() => {
                let end = &self.linear.uops[uop.src[0] as usize];
                let is_constant = matches!(end.arg, Arg::Const(end) if end.to_int() >= Some(0));
                let problem = "a launched range ends with a constant of 0 or more";
                is_constant.then_some(()).ok_or_else(|| problem.to_owned())
            }
            _ => Ok(()),
        }
    }

    fn is_local(&self, index: u32) -> bool {
        is_local(self.linear, index)
    }

    /// The interval of a uop from those of its sources; whether it is the formula's.
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
            _ => unwrapped(uop, &|number| of(*uop.src.get(number)?)),
        };
        let inside = formula.filter(|(low, high)| range.0 <= *low && *high <= range.1);
        (inside.or(Some(range)), inside.is_some())
    }

    /// Whether an access is inside its array.
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
                "its index depends on a local array or a bool from memory, which may hold anything"
                    .to_owned(),
            );
        }
        let size_elements = match self.linear.uops[array as usize].arg {
            Arg::Global(global) => global.size_elements,
            Arg::Local(local) => local.size_elements,
            _ => return Err("it goes to no array".to_owned()),
        };
        let known = match gate {
            None => self.intervals[element as usize],
            Some(gate) => match self.where_true(gate) {
                Some(refined) => match self.refined_interval(element, &refined) {
                    Some(known) => known,
                    None => return Ok(()),
                },
                // The gate never holds.
                None => return Ok(()),
            },
        };
        let Some((low, high)) = known else { return Err("its index is no integer".to_owned()) };
        let last = high + i128::from(lanes) - 1;
        if low < 0 || i128::from(size_elements) <= last {
            return Err(format!(
                "its elements are among {low} to {last} as far as can be proven, and the array \
                 has {size_elements}"
            ));
        }
        if !self.is_local(index) {
            let widen =
                |(step, (low, high)): (i128, Interval)| (step, (low, high + i128::from(lanes) - 1));
            let elements = self.by_thread[element as usize].map(widen);
            self.accesses.push(Access { array, position, is_store, elements });
        }
        Ok(())
    }

    /// What is known of uops where a condition holds, beyond what is always; `None` if it never
    /// holds.
    fn where_true(&self, condition: u32) -> Option<FxHashMap<u32, Interval>> {
        let mut refined: FxHashMap<u32, Interval> = FxHashMap::default();
        let mut conditions = vec![(condition, true)];
        let mut pending: Vec<u32> = Vec::new();
        for _ in 0..REFINEMENTS_MOST {
            if let Some(node) = pending.pop() {
                self.refine_sources(node, &mut refined, &mut pending)?;
            } else if let Some((node, is_true)) = conditions.pop() {
                let uop = &self.linear.uops[node as usize];
                let constant = |number: usize| self.constant_of(uop.src[number]);
                match uop.op {
                    Op::And if is_true => conditions.extend(uop.src.iter().map(|s| (*s, true))),
                    Op::Or if !is_true => conditions.extend(uop.src.iter().map(|s| (*s, false))),
                    Op::CmpNe | Op::Xor if self.is_bool(uop.src[0]) => {
                        // Of bools: a negation where one is a constant.
                        match (constant(0), constant(1)) {
                            (_, Some(other)) => {
                                conditions.push((uop.src[0], is_true == (other == 0)))
                            }
                            (Some(other), _) => {
                                conditions.push((uop.src[1], is_true == (other == 0)))
                            }
                            _ => {}
                        }
                    }
                    Op::CmpNe if !is_true => {
                        let [x, y] = [0, 1].map(|n| self.now(uop.src[n], &refined));
                        let (Some(x), Some(y)) = (x, y) else { continue };
                        self.refine(uop.src[0], y, &mut refined, &mut pending)?;
                        self.refine(uop.src[1], x, &mut refined, &mut pending)?;
                    }
                    Op::CmpLt => {
                        let [x, y] = [0, 1].map(|n| self.now(uop.src[n], &refined));
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

    fn now(&self, node: u32, refined: &FxHashMap<u32, Interval>) -> Option<Interval> {
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

    /// Takes in that a uop is in an interval as well; `None` if it cannot be.
    fn refine(
        &self,
        node: u32,
        interval: Interval,
        refined: &mut FxHashMap<u32, Interval>,
        pending: &mut Vec<u32>,
    ) -> Option<()> {
        let Some(now) = self.now(node, refined).filter(|_| !self.is_variable[node as usize]) else {
            return Some(());
        };
        let new = (now.0.max(interval.0), now.1.min(interval.1));
        if new.1 < new.0 {
            return None;
        }
        if new != now {
            refined.insert(node, new);
            pending.push(node);
        }
        Some(())
    }

    /// Takes in what follows for the sources of a uop from its refined interval. Where a value may
    /// have wrapped, nothing does.
    fn refine_sources(
        &self,
        node: u32,
        refined: &mut FxHashMap<u32, Interval>,
        pending: &mut Vec<u32>,
    ) -> Option<()> {
        let uop = &self.linear.uops[node as usize];
        let (Some((low, high)), true) = (self.now(node, refined), self.is_exact[node as usize])
        else {
            return Some(());
        };
        let of = |number: usize| self.now(*uop.src.get(number)?, refined);
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
            (Op::Mul, Some(_), Some((factor, other))) if factor == other && 0 < factor => {
                let multiples = (-(-low).div_euclid(factor), high.div_euclid(factor));
                self.refine(uop.src[0], multiples, refined, pending)
            }
            (Op::Mul, Some((factor, other)), Some(_)) if factor == other && 0 < factor => {
                let multiples = (-(-low).div_euclid(factor), high.div_euclid(factor));
                self.refine(uop.src[1], multiples, refined, pending)
            }
            _ => Some(()),
        }
    }

    /// The interval of a uop where the refined ones hold, if there is one; `None` if they cannot all
    /// hold.
    fn refined_interval(
        &self,
        node: u32,
        refined: &FxHashMap<u32, Interval>,
    ) -> Option<Option<Interval>> {
        // What it is computed from, without what it is loaded from.
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
                None => self.now(source, refined),
            };
            let (fresh, _) = self.interval_of(node as usize, &of);
            // Each of them holds.
            let both = match (fresh, self.now(node, refined)) {
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

    /// An integer as a multiple of the thread's number plus one of an interval.
    fn split_by_thread(&self, position: usize) -> Option<(i128, Interval)> {
        let thread = self.thread?;
        let uop = &self.linear.uops[position];
        let own = self.intervals[position]?;
        if position == thread as usize {
            return Some((1, (0, 0)));
        }
        let of = |number: usize| self.by_thread.get(*uop.src.get(number)? as usize).copied()?;
        let is_alike = |number: usize| of(number).is_some_and(|(step, _)| step == 0);
        // A load has no split of its own: threads may load one value or others.
        if !uop.op.is_elementwise() && uop.op != Op::Range && uop.op != Op::Const {
            return None;
        }
        if (0..uop.src.len()).all(is_alike) {
            return Some((0, own));
        }
        if !self.is_exact[position] {
            return None;
        }
        let times = |(step, (low, high)): (i128, Interval), factor: i128| {
            let ends = [low.checked_mul(factor)?, high.checked_mul(factor)?];
            let step = step.checked_mul(factor)?;
            Some((step, (ends[0].min(ends[1]), ends[0].max(ends[1]))))
        };
        let plus = |x: (i128, Interval), y: (i128, Interval)| {
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

    /// Whether no two threads touch an element that one of them writes.
    fn check_threads(&self) -> Result<(), VerifyError> {
        let Some(thread) = self.thread else { return Ok(()) };
        let is_end = |uop: &crate::Instruction| uop.op == Op::EndRange && uop.src[0] == thread;
        let end = self.linear.uops.iter().position(is_end).unwrap_or(usize::MAX);
        let inside = thread as usize..end;
        if self.accesses.iter().any(|one| one.is_store && !inside.contains(&one.position)) {
            // Then the steps are not shared out, but done in their order.
            return Ok(());
        }
        let stores = self.accesses.iter().filter(|access| access.is_store);
        let stored: FxHashSet<u32> = stores.map(|access| access.array).collect();
        for array in stored {
            let accesses = || self.accesses.iter().filter(|access| access.array == array);
            let mut all: Option<(i128, Interval)> = None;
            for access in accesses() {
                let joined = access.elements.and_then(|(step, own)| match all {
                    None => Some((step, own)),
                    Some((known, other)) => {
                        (known == step).then_some((step, (own.0.min(other.0), own.1.max(other.1))))
                    }
                });
                let is_apart = |(step, (low, high)): &(i128, Interval)| high - low < step.abs();
                all = Some(joined.filter(is_apart).ok_or_else(|| VerifyError {
                    place: format!(
                        "uop {} ({})",
                        access.position, self.linear.uops[access.position].op
                    ),
                    problem: "it is not proven that no two threads touch one element".to_owned(),
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

/// Returns whether a load may give what nobody has written.
fn is_undefined_load(linear: &Linear, load: &crate::Instruction) -> bool {
    load.dtype == DType::Bool || is_local(linear, load.src[0])
}

fn constant_is(uop: &crate::Instruction, value: bool) -> bool {
    matches!(uop.arg, Arg::Const(constant) if constant.to_int() == Some(i128::from(value)))
}

fn hull(x: Option<Interval>, y: Option<Interval>) -> Option<Interval> {
    x.zip(y).map(|(x, y)| (x.0.min(y.0), x.1.max(y.1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse_linears;

    /// The kernel of these uops, numbered, is proven; or refused with these words.
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

    /// `data0[index of i] = data1[i]` for i below `steps`; the index is uop 5.
    fn copied(size: i64, steps: i64, index: &str, problem: Option<&str>) {
        check(
            &format!(
                "define_global f32 [] data0 {size}
                 define_global f32 [] data1 8
                 const i32 [] {steps}
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
    fn index_is_inside_its_array_for_every_step() {
        copied(8, 8, "add i32 [3, 3]", Some("uop 9 (store): its elements are among 0 to 14"));
        copied(15, 8, "add i32 [3, 3]", None);
        copied(10, 9, "add i32 [3, 4]", Some("uop 7 (load): its elements are among 0 to 8"));
        copied(10, 8, "add i32 [3, 4]", None);
        copied(8, 8, "sub i32 [3, 4]", Some("among -2 to 5"));
        copied(2, 8, "cmod i32 [3, 4]", None);
        copied(4, 8, "cdiv i32 [3, 4]", None);
        copied(1, 8, "mulacc i32 [3, 4, 4]", Some("among -2147483648 to 2147483647"));
        copied(1, 0, "add i32 [3, 4]", None);
        copied(1, 8, "const i32 [] -1", Some("among -1 to -1"));
        copied(0, 8, "const i32 [] 0", Some("the array has 0"));
    }

    #[test]
    fn sums_that_wrap_may_be_anything() {
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
    fn shifts_by_too_much_may_be_anything() {
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
    fn gates_that_contradict_themselves_are_shut() {
        // Where 0 < i and i < 1, a quotient by i would be one by nothing.
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
    fn lanes_are_inside_as_well() {
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

    /// `data0[i + offset]` for i below 8, gated by uop 6.
    fn gated(offset: i64, gate: &str, problem: Option<&str>) {
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
    fn gates_bound_what_they_compare() {
        gated(-1, "cmplt bool [5, 2]", Some("among 0 to 6"));
        gated(-2, "cmplt bool [3, 4]", Some("among -1 to 5"));
        gated(-1, "cmpne bool [2, 5]", Some("among -1 to 6"));
        gated(-2, "cmplt bool [4, 5]", Some("among -2 to -1"));
        gated(0, "const bool [] true", Some("among 0 to 7"));
        gated(0, "const bool [] false", None);
        gated(9, "cmplt bool [4, 5]", None);
        // 0 <= i - 2, as `not (i - 2 < 0)`, and i - 2 < 6 always.
        let not = "cmplt bool [4, 5]\nconst bool [] true\ncmpne bool [6, 7]\nconst f32 [] 0\n\
                   index f32 [0, 4, 8]\nstore void [10, 9]\nendrange void [2]";
        let head = "define_global f32 [] data0 6\nconst i32 [] 8\nrange i32 [1] 0\n\
                    const i32 [] -2\nadd i32 [2, 3]\nconst i32 [] 0\n";
        check(&format!("{head}{not}"), None);
        // Through the sum that is compared to what another sum is made of.
        let other = "const i32 [] 3\ncmplt bool [5, 4]\nadd i32 [2, 3]\nadd i32 [8, 5]\n\
                     const f32 [] 0\nindex f32 [0, 9, 7]\nstore void [11, 10]\nendrange void [2]";
        check(&format!("{head}{other}"), None);
    }

    #[test]
    fn gates_say_nothing_of_variables() {
        // The variable is set to 100 between the comparison and the access.
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
    fn loaded_indices_need_gates_and_memory_that_is_written() {
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
    fn variables_may_hold_what_nobody_wrote() {
        // The variable stands before the array that it is set from.
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
        // A truth value less 1 is 0 at most, unless the byte is neither 0 nor 1.
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
    fn uops_are_used_as_what_they_are() {
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
        check("define_var i32 [] n 0..4", Some("no such uop"));
        // A lane of 1000 that is taken for one of 8 bits.
        let lane = "const i32 [] 1000\nvectorize i32x2 [0]\nlane u8 [1] 0\ncast i32 [2]\n\
                    define_global f32 [] data0 256\nindex f32 [4, 3]\nload f32 [5]";
        check(lane, Some("uop 2 (lane): lane of"));
        check("const i32 [] 1000\nvectorize u8x2 [0]", Some("uop 1 (vectorize): vectorize of"));
        let launched = "const i32 [] -1\nrange i32 [0] 0g\nendrange void [1]";
        check(launched, Some("a launched range ends"));
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

    /// `data0[thread * step + j] = 0` for 4 threads and j below `width`.
    fn threaded(step: i64, width: i64, more: &str, problem: Option<&str>) {
        check(
            &format!(
                "define_global f32 [] data0 64
                 const i32 [] 4
                 range i32 [1] 0t
                 const i32 [] {step}
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
    fn threads_touch_elements_of_their_own() {
        let nothing = "const i32 [] 0";
        threaded(8, 8, nothing, None);
        threaded(8, 9, nothing, Some("uop 10 (store): it is not proven that no two threads"));
        threaded(0, 1, nothing, Some("no two threads"));
        threaded(8, 8, "index f32 [0, 2]\nload f32 [11]", Some("uop 12 (load): it is not proven"));
        threaded(8, 7, "load f32 [8]", None);
        threaded(8, 8, "load f32x2 [8]", Some("no two threads"));
    }
}
