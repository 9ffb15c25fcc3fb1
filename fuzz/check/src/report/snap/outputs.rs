//! Comparison of two linear kernels by running both on the same seeded data.
//!
//! Every parameter is filled, outputs as well; both kernels must write the same elements. Elements
//! that the earlier kernel leaves undefined may become anything. Elements that are not floats must
//! be equal; all NaN are equal.
//!
//! Floats that differ are close if rounding explains it: both kernels are run again with the last
//! bit of the result of each op moved up or down at random, and a difference is accepted up to four
//! times the greatest change of the element by that. Sums of equal addends round the same way each
//! time, so all are also moved up, and all down; that change is accepted once. There is no
//! tolerance to set.

use gradiff::graph::{Arg, AxisKind, Constant, DType, Global, Instruction, Linear, Op};
use gradiff::runtime::Executable;
use gradiff_eval::Elements;
use gradiff_eval::linear::run_rounded;

use super::cost::Cost;
use crate::random::Random;

/// The result of comparing the outputs of two kernels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outputs {
    /// They are equal bit for bit.
    Same,
    /// They differ, as rounding explains; the first difference.
    OtherBits(String),
    /// They differ otherwise; the first such difference.
    Different(String),
}

/// Limit of the uops that a kernel executes on one set of data.
const UOP_LIMIT: u64 = 5_000_000;

/// Limit of the elements of parameters and local arrays.
const ELEMENT_LIMIT: i64 = 1 << 22;

/// The data that parameters are filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Data {
    /// Integers from -8 to 8, in every dtype.
    SmallIntegers,
    /// Integers from -8 to -1; of dtypes without sign, from 1 to 8.
    Negative,
    /// Integers from 1 to 8.
    Positive,
    /// Floats from -4 to 4 of full precision, integers of any bits.
    Spread,
    /// Integers at and beside the integer constants of the earlier kernel, as bounds of indices
    /// are, one after the other; floats as in `Spread`.
    Bounds,
    /// NaN, infinities, zeros of both signs, the largest and smallest integers: over seven sets,
    /// each element takes each of these values.
    Edges,
}

/// The sets of data that kernels are compared on, with their seeds.
const SETS: [(Data, u64); 20] = [
    (Data::SmallIntegers, 1),
    (Data::SmallIntegers, 2),
    (Data::SmallIntegers, 3),
    (Data::Negative, 4),
    (Data::Positive, 5),
    (Data::Spread, 6),
    (Data::Spread, 7),
    (Data::Bounds, 0),
    (Data::Bounds, 1),
    (Data::Bounds, 2),
    (Data::Bounds, 3),
    (Data::Bounds, 4),
    (Data::Bounds, 5),
    (Data::Edges, 0),
    (Data::Edges, 1),
    (Data::Edges, 2),
    (Data::Edges, 3),
    (Data::Edges, 4),
    (Data::Edges, 5),
    (Data::Edges, 6),
];

/// Number of runs of a kernel with other roundings.
const ROUNDINGS: u64 = 6;

/// Allowed change of an element, relative to that by the random roundings that were tried.
const MARGIN: f64 = 4.0;

/// The runs of a kernel with other roundings, each with the allowed change relative to that of the
/// run.
type Spread = Vec<(f64, Vec<Elements>)>;

/// The move of the last bit of a result.
#[derive(Clone, Copy)]
enum Move {
    Random,
    Up,
    Down,
}

/// Checks that a kernel can be run here: parameters numbered from 0 on, all of moderate size.
///
/// # Errors
/// The reason why it cannot.
pub(super) fn is_runnable(kernel: &Linear, cost: &Cost) -> Result<(), String> {
    let globals = kernel.globals();
    if globals.is_empty() {
        return Err(String::from("there is no parameter to write to"));
    }
    for (slot, (global, _)) in globals.iter().enumerate() {
        if global.slot != slot {
            return Err(format!("data{} is where data{slot} is expected", global.slot));
        }
    }
    let size = |uop: &Instruction| match uop.arg {
        Arg::Global(Global { size_elements, .. }) => size_elements,
        Arg::Local(local) => local.size_elements,
        _ => 0,
    };
    let elements = kernel.uops.iter().map(size).fold(0, i64::saturating_add);
    if elements > ELEMENT_LIMIT {
        return Err(format!("{elements} elements; at most {ELEMENT_LIMIT} are filled"));
    }
    for kind in [AxisKind::Global, AxisKind::Local] {
        let counts = kernel.launched(kind).into_iter().map(|(_, count)| count.max(1));
        let threads = counts.fold(1, i64::saturating_mul);
        if threads.unsigned_abs() > UOP_LIMIT {
            return Err(format!("{threads} groups or threads; at most {UOP_LIMIT} are tried"));
        }
    }
    if cost.executed_uops > UOP_LIMIT {
        return Err(format!("{} uops are run; at most {UOP_LIMIT} are tried", cost.executed_uops));
    }
    Ok(())
}

/// Runs both kernels. Their parameters correspond by slot; if these differ in dtype or size, every
/// pairing of equal ones is tried, and the first with equal outputs is taken.
///
/// # Errors
/// The earlier kernel cannot be run on any data.
pub(super) fn compare(before: &Linear, after: &Linear) -> Result<Outputs, String> {
    if before.globals() == after.globals() {
        let slots: Vec<_> = (0..after.globals().len()).map(Some).collect();
        return compare_paired(before, after, &slots);
    }
    let mut best = Outputs::Different(format!(
        "the parameters are {} and were {}",
        parameters(after),
        parameters(before)
    ));
    for slots in pairings(before, after) {
        match compare_paired(before, after, &slots)? {
            Outputs::Same => return Ok(Outputs::Same),
            outputs @ Outputs::OtherBits(_) => best = outputs,
            Outputs::Different(_) => {}
        }
    }
    Ok(best)
}

/// Runs a kernel and its compiled text. Differences that rounding explains are ignored, since a
/// device has functions of its own.
///
/// # Errors
/// The kernel cannot be run on any data.
pub(super) fn compare_compiled(
    kernel: &Linear,
    compiled: &dyn Executable,
) -> Result<Outputs, String> {
    let slots: Vec<_> = (0..kernel.globals().len()).map(Some).collect();
    let (mut refused, mut tried) = (None, 0);
    for (data, seed) in SETS {
        let trial = Trial { is_compiled: true, ..Trial::new(kernel, kernel, &slots, data, seed) };
        let old = match run(kernel, &trial.before, &mut |_, value| value) {
            Ok(old) => old,
            Err(problem) => {
                refused = Some(problem);
                continue;
            }
        };
        tried += 1;
        let on = |text: String| format!("{text}, on {}", data.name());
        let mut new = trial.after.clone();
        if let Err(problem) = crate::backends::engine::run_compiled(compiled, kernel, &mut new) {
            return Ok(Outputs::Different(on(problem)));
        }
        if let Outputs::Different(at) = trial.judge(&old, &new) {
            return Ok(Outputs::Different(on(at)));
        }
    }
    match refused {
        Some(problem) if tried == 0 => Err(format!("its uops cannot be run: {problem}")),
        _ => Ok(Outputs::Same),
    }
}

fn parameters(kernel: &Linear) -> String {
    let globals = kernel.globals();
    let words: Vec<String> = globals
        .iter()
        .map(|(global, dtype)| format!("{dtype}[{}]", global.size_elements))
        .collect();
    format!("({})", words.join(", "))
}

/// Pairings of the parameters: for each slot of `after` a slot of `before` of the same dtype and
/// size, or none if `after` has more parameters; the output keeps its slot. At most a few hundred.
fn pairings(before: &Linear, after: &Linear) -> Vec<Vec<Option<usize>>> {
    const LIMIT: usize = 256;
    let (old, new) = (before.globals(), after.globals());
    let is_pair = |from: usize, to: usize| {
        old[from].1 == new[to].1 && old[from].0.size_elements == new[to].0.size_elements
    };
    if !is_pair(0, 0) {
        return Vec::new();
    }
    let mut pairings: Vec<Vec<Option<usize>>> = vec![vec![Some(0)]];
    for to in 1..new.len() {
        let mut longer = Vec::new();
        for slots in &pairings {
            let is_free = |slot: &usize| !slots.contains(&Some(*slot)) && is_pair(*slot, to);
            let partners = (1..old.len()).filter(is_free).map(Some);
            let unpaired = (old.len() < new.len()).then_some(None);
            longer
                .extend(partners.chain(unpaired).map(|slot| [slots.as_slice(), &[slot]].concat()));
        }
        longer.truncate(LIMIT);
        pairings = longer;
    }
    pairings
}

/// Compares the kernels, where slot i of `after` corresponds to slot `slots[i]` of `before`.
fn compare_paired(
    before: &Linear,
    after: &Linear,
    slots: &[Option<usize>],
) -> Result<Outputs, String> {
    let mut found = Outputs::Same;
    let mut refused = None;
    let mut tried = 0;
    for (data, seed) in SETS {
        let trial = Trial::new(before, after, slots, data, seed);
        let old = match run(before, &trial.before, &mut |_, value| value) {
            Ok(old) => old,
            Err(problem) => {
                refused = Some(problem);
                continue;
            }
        };
        tried += 1;
        let on = |text: String| format!("{text}, on {}", data.name());
        let new = match run(after, &trial.after, &mut |_, value| value) {
            Ok(new) => new,
            Err(problem) => return Ok(Outputs::Different(on(problem))),
        };
        if let Some(problem) = trial.unwritten_difference(&old, &new) {
            return Ok(Outputs::Different(on(problem)));
        }
        match trial.judge(&old, &new) {
            Outputs::Same => {}
            Outputs::OtherBits(at) if found == Outputs::Same => {
                found = Outputs::OtherBits(on(at));
            }
            Outputs::OtherBits(_) => {}
            Outputs::Different(at) => return Ok(Outputs::Different(on(at))),
        }
        if let Some(problem) = trial.check_later() {
            return Ok(Outputs::Different(on(problem)));
        }
    }
    match refused {
        Some(problem) if tried == 0 => Err(format!("the earlier kernel cannot be run: {problem}")),
        _ => Ok(found),
    }
}

/// The parameters after a run; a panic is an error as well.
fn run(
    kernel: &Linear,
    memories: &[Elements],
    round: gradiff_eval::linear::Round<'_>,
) -> Result<Vec<Elements>, String> {
    crate::catch(|| {
        let mut memories = memories.to_vec();
        run_rounded(kernel, &mut memories, round).map(|()| memories)
    })?
}

/// Two kernels and the data that they are run on.
struct Trial<'a> {
    kernels: [&'a Linear; 2],
    slots: &'a [Option<usize>],
    before: Vec<Elements>,
    after: Vec<Elements>,
    seed: u64,
    /// True if the later kernel was compiled, so that no other roundings of it are available.
    is_compiled: bool,
}

/// The edge of the first element of a parameter in the set of data of this seed. Seven sets use all
/// edges, in another order for each of six consecutive parameters.
fn first_edge(seed: u64, parameter: usize) -> u64 {
    let (turn, order) = (parameter as u64 / 6, parameter as u64 % 6);
    seed.wrapping_mul(order + 1).wrapping_add(turn)
}

impl<'a> Trial<'a> {
    fn new(
        before: &'a Linear,
        after: &'a Linear,
        slots: &'a [Option<usize>],
        data: Data,
        seed: u64,
    ) -> Trial<'a> {
        let constant = |uop: &Instruction| match uop.arg {
            Arg::Const(value) if value.dtype().is_int() => value.to_int(),
            _ => None,
        };
        let constants = before.uops.iter().filter_map(constant).chain([0]);
        let mut bounds: Vec<i128> =
            constants.flat_map(|constant| [constant - 1, constant, constant + 1]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let filled = |number: usize, (global, dtype): (Global, DType)| -> Elements {
            let mut random = Random::new(seed << 32 | number as u64);
            let count = global.size_elements;
            let first = first_edge(seed, number);
            let edge = |element: i64| first.wrapping_add(element as u64) as usize;
            (0..count).map(|n| Some(data.element(dtype, &mut random, edge(n), &bounds))).collect()
        };
        let globals = before.globals().into_iter().enumerate();
        let old: Vec<Elements> = globals.map(|(slot, global)| filled(slot, global)).collect();
        let pairs = slots.iter().zip(after.globals()).enumerate();
        let new = pairs.map(|(number, (slot, global))| match slot {
            Some(slot) => old[*slot].clone(),
            None => filled(old.len() + number, global),
        });
        let new = new.collect();
        let kernels = [before, after];
        Trial { kernels, slots, before: old, after: new, seed, is_compiled: false }
    }

    /// The report of an element that only one of the kernels writes, if there is one.
    fn unwritten_difference(&self, old: &[Elements], new: &[Elements]) -> Option<String> {
        let old = unwritten(self.kernels[0], &self.before, old)?;
        let new = unwritten(self.kernels[1], &self.after, new)?;
        let pairs = self.slots.iter().enumerate();
        pairs.filter_map(|(number, slot)| Some((number, (*slot)?))).find_map(|(number, slot)| {
            let element = (0..old[slot].len())
                .find(|element| old[slot][*element] != new[number][*element])?;
            let state = if new[number][element] { "not written" } else { "written" };
            Some(format!("element {element} of data{number} is {state}, unlike before"))
        })
    }

    /// An error of the checked interpreter for the later kernel alone, such as a race of two
    /// threads.
    fn check_later(&self) -> Option<String> {
        let check = |kernel: &Linear, memories: &[Elements]| {
            let mut memories = memories.to_vec();
            for slot in accessed_slots(kernel, Op::Store) {
                memories[slot].fill(None);
            }
            crate::catch(|| crate::backends::engine::run_alone("interp", kernel, &mut memories))
                .and_then(|result| result)
        };
        check(self.kernels[0], &self.before).ok()?;
        check(self.kernels[1], &self.after).err()
    }

    fn judge(&self, old: &[Elements], new: &[Elements]) -> Outputs {
        let mut spread = None;
        let mut found = Outputs::Same;
        for (number, slot) in self.slots.iter().enumerate() {
            let Some(slot) = *slot else { continue };
            for (element, (a, b)) in old[slot].iter().zip(&new[number]).enumerate() {
                if is_same(*a, *b) {
                    continue;
                }
                let show = |value: Option<Constant>| match value {
                    Some(value) => value.to_string(),
                    None => String::from("undefined"),
                };
                let at =
                    format!("element {element} of data{number} is {}, was {}", show(*b), show(*a));
                let spread = spread.get_or_insert_with(|| self.spread());
                if !is_close(*a, *b, spread, (slot, number, element)) {
                    return Outputs::Different(at);
                }
                if found == Outputs::Same {
                    found = Outputs::OtherBits(at);
                }
            }
        }
        found
    }

    /// The outputs of both kernels with other roundings.
    fn spread(&self) -> [Spread; 2] {
        let runs = |index: usize, memories: &[Elements]| {
            let moved = |(number, (margin, way)): (u64, (f64, Move))| {
                let mut random = Random::new(self.seed << 8 | number);
                let mut round = |op, value| nudge(op, value, way, &mut random);
                Some((margin, run(self.kernels[index], memories, &mut round).ok()?))
            };
            let random = (0..ROUNDINGS).map(|_| (MARGIN, Move::Random));
            let ways = random.chain([(1.0, Move::Up), (1.0, Move::Down)]);
            (0..).zip(ways).filter_map(moved).collect()
        };
        let later = if self.is_compiled { Vec::new() } else { runs(1, &self.after) };
        [runs(0, &self.before), later]
    }
}

/// For each element, whether the kernel does not write it: it is undefined after a run on undefined
/// elements, but not after one on defined ones (`outputs`). `None` if the kernel reads an array
/// that it writes.
fn unwritten(
    kernel: &Linear,
    memories: &[Elements],
    outputs: &[Elements],
) -> Option<Vec<Vec<bool>>> {
    let (read, written) = (accessed_slots(kernel, Op::Load), accessed_slots(kernel, Op::Store));
    if written.iter().any(|slot| read.contains(slot)) {
        return None;
    }
    let mut memories = memories.to_vec();
    written.iter().for_each(|slot| memories[*slot].fill(None));
    let after = run(kernel, &memories, &mut |_, value| value).ok()?;
    let is_unwritten = |(after, output): (&Option<Constant>, &Option<Constant>)| {
        after.is_none() && output.is_some()
    };
    let compare = |(after, output): (&Elements, &Elements)| {
        after.iter().zip(output).map(is_unwritten).collect()
    };
    Some(after.iter().zip(outputs).map(compare).collect())
}

/// The slots that a kernel loads from or stores to.
fn accessed_slots(kernel: &Linear, op: Op) -> Vec<usize> {
    let accesses = kernel.uops.iter().filter(|uop| uop.op == op);
    let array = |access: &Instruction| {
        let index = &kernel.uops[access.src[0] as usize];
        match kernel.uops[*index.src.first()? as usize].arg {
            Arg::Global(global) => Some(global.slot),
            _ => None,
        }
    };
    accesses.filter_map(array).collect()
}

/// Returns whether the later value is equal to the earlier one; an undefined one equals any.
fn is_same(before: Option<Constant>, after: Option<Constant>) -> bool {
    let is_nan = |value: Constant| value.to_float().is_some_and(f64::is_nan);
    match (before, after) {
        (None, _) => true,
        (Some(a), Some(b)) => a == b || is_nan(a) && is_nan(b),
        (Some(_), None) => false,
    }
}

/// Returns whether rounding explains the difference of two values: at slot `old` before, `new`
/// after.
fn is_close(
    before: Option<Constant>,
    after: Option<Constant>,
    [earlier, later]: &[Spread; 2],
    (old, new, element): (usize, usize, usize),
) -> bool {
    let (Some(a), Some(b)) = (before, after) else { return false };
    let values = |runs: &Spread, slot: usize| -> Vec<(f64, Constant)> {
        let value =
            |(margin, memories): &(f64, Vec<Elements>)| Some((*margin, memories[slot][element]?));
        runs.iter().filter_map(value).collect()
    };
    let (earlier, later) = (values(earlier, old), values(later, new));
    // Other roundings of one kernel give the value of the other one.
    let gives = |runs: &[(f64, Constant)], wanted| runs.iter().any(|(_, value)| *value == wanted);
    if gives(&earlier, b) || gives(&later, a) {
        return true;
    }
    let (Some(x), Some(y)) = (a.to_float(), b.to_float()) else { return false };
    if x == 0.0 && y == 0.0 {
        return true;
    }
    let moved = |from: f64, runs: &[(f64, Constant)]| {
        let change = |(margin, value): &(f64, Constant)| {
            value.to_float().map(|to| margin * (to - from).abs())
        };
        runs.iter().filter_map(change).fold(0.0, f64::max)
    };
    let change = moved(x, &earlier).max(moved(y, &later));
    (x - y).abs() <= change && change.is_finite()
}

/// The value, with the last bit of a float that the op rounds moved up or down; at random, possibly
/// not at all.
fn nudge(op: Op, value: Constant, way: Move, random: &mut Random) -> Constant {
    let is_exact =
        matches!(op, Op::Neg | Op::Max | Op::Min | Op::Where | Op::Bitcast | Op::CmpLt | Op::CmpNe);
    let Some(float) = value.to_float().filter(|float| float.is_finite() && *float != 0.0) else {
        return value;
    };
    // The bits of a negative number grow with its size.
    let grows = match way {
        _ if is_exact => return value,
        Move::Up => 0.0 < float,
        Move::Down => float < 0.0,
        Move::Random => match random.below(3) {
            0 => true,
            1 => false,
            _ => return value,
        },
    };
    let bits = if grows { value.bits() + 1 } else { value.bits() - 1 };
    let moved = Constant::from_bits(value.dtype(), bits);
    let is_number =
        moved.to_float().is_some_and(|to| to.is_finite() && to.signum() == float.signum());
    if is_number { moved } else { value }
}

impl Data {
    fn name(self) -> &'static str {
        match self {
            Data::SmallIntegers => "small integers",
            Data::Negative => "negative data",
            Data::Positive => "positive data",
            Data::Spread => "spread data",
            Data::Bounds => "bounds",
            Data::Edges => "edges",
        }
    }

    /// An element; `edge` is the number of the edge value or of the bound, modulo their count.
    fn element(self, dtype: DType, random: &mut Random, edge: usize, bounds: &[i128]) -> Constant {
        const COUNT: usize = 7;
        let bits = random.bits();
        let up_to_8 = 1 + i128::from(bits % 8);
        match (self, dtype.int_range()) {
            (_, Some(_)) if dtype == DType::Bool => Constant::bool(bits & 1 == 1),
            (Data::Negative, range) if range.is_none_or(|(low, _)| low < 0) => {
                Constant::int(dtype, -up_to_8)
            }
            (Data::Negative | Data::Positive, _) => Constant::int(dtype, up_to_8),
            (Data::SmallIntegers, range) => {
                let low = if range.is_some_and(|(low, _)| low == 0) { 0 } else { -8 };
                Constant::int(dtype, low + i128::from(bits % (9 - low) as u64))
            }
            (Data::Spread, Some(_)) => Constant::from_bits(dtype, bits),
            (Data::Bounds, Some((low, high))) => {
                let bound = bounds[edge % bounds.len()];
                Constant::int(dtype, bound.clamp(low, high))
            }
            (Data::Spread | Data::Bounds, None) => {
                let unit = (bits >> 11) as f64 / (1u64 << 53) as f64;
                Constant::float(dtype, 8.0 * unit - 4.0)
            }
            (Data::Edges, Some((low, high))) => {
                let edges: [i128; COUNT] = [low, high, 0, 1, high - 1, low + 1, 2];
                Constant::int(dtype, edges[edge % COUNT])
            }
            (Data::Edges, None) => {
                let infinity = f64::INFINITY;
                let edges: [f64; COUNT] = [f64::NAN, infinity, -infinity, 0.0, -0.0, 1.0, -1.5];
                Constant::float(dtype, edges[edge % COUNT])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn seven_sets_use_all_edges_for_each_parameter() {
        for parameter in 0..14 {
            let value = |seed: u64| {
                let mut random = Random::new(seed);
                let edge = first_edge(seed, parameter) as usize;
                Data::Edges.element(DType::F32, &mut random, edge, &[])
            };
            let sets = SETS.iter().filter(|(data, _)| *data == Data::Edges);
            let values: HashSet<Constant> = sets.map(|(_, seed)| value(*seed)).collect();
            assert_eq!(values.len(), 7, "parameter {parameter}");
        }
    }
}
