//! Pass `merge-loads`: loads of adjacent elements become one load of a vector, on devices that have
//! vectors for loads and stores alone.
//!
//! The loads are of one array, between two uops that change memory or open or close a loop, without
//! gates, at one value plus different constants. The value is a multiple of the number of lanes.

use gradiff_graph::{Arg, Constant, DType, Instruction, Linear, Op, Target};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::edit::Editor;

/// Merges the loads of a kernel.
pub(crate) fn merge(linear: Linear, target: &Target) -> Linear {
    let vectors = target.vectors;
    if vectors.bytes == 0 || vectors.alu || !target.unrolls {
        return linear;
    }
    let lanes_of = |dtype: DType| vectors.lanes_of(dtype);
    let merged = find(&linear, &lanes_of);
    if merged.is_empty() { linear } else { replace(linear, &merged) }
}

/// A load of a vector in place of loads of scalars.
struct Merged {
    array: u32,
    /// The value to which the offset is added; none if that is the index.
    base: Option<u32>,
    offset: i128,
    /// The loads, by lane.
    loads: SmallVec<[u32; 8]>,
}

/// An array, and the value that the indices of several loads have in common.
type Place = (u32, Option<u32>);

/// Finds what can be merged.
fn find(linear: &Linear, lanes_of: &dyn Fn(DType) -> i64) -> Vec<Merged> {
    let uops = &linear.uops;
    let factors = factors(uops);
    let mut found = Vec::new();
    let mut block: FxHashMap<Place, Vec<(i128, u32)>> = FxHashMap::default();
    let mut places: Vec<Place> = Vec::new();
    let mut end_block = |block: &mut FxHashMap<Place, Vec<(i128, u32)>>,
                         places: &mut Vec<Place>| {
        for place in places.drain(..) {
            let mut loads = block.remove(&place).unwrap_or_default();
            loads.sort_unstable();
            let dtype = uops[place.0 as usize].dtype;
            let factor = place.1.map_or(u32::MAX, |base| factors[base as usize]);
            let limit = lanes_of(dtype).min(1 << factor.min(3));
            merge_runs(place, &loads, limit, &mut found);
        }
    };
    for (position, uop) in uops.iter().enumerate() {
        match uop.op {
            Op::Range | Op::EndRange | Op::Store | Op::Barrier => {
                end_block(&mut block, &mut places);
            }
            Op::Load if uop.lanes == 1 => {
                let Some((place, offset)) = place(uops, uop) else { continue };
                let loads = block.entry(place).or_insert_with(|| {
                    places.push(place);
                    Vec::new()
                });
                loads.push((offset, position as u32));
            }
            _ => {}
        }
    }
    end_block(&mut block, &mut places);
    found
}

/// Returns the array and the value of the index of a load without a gate, and the constant that is
/// added to the value.
fn place(uops: &[Instruction], load: &Instruction) -> Option<(Place, i128)> {
    let [address] = load.src.as_slice() else { return None };
    let [array, index] = uops[*address as usize].src.as_slice() else { return None };
    let constant = |position: u32| match uops[position as usize].arg {
        Arg::Const(value) => value.to_int(),
        _ => None,
    };
    let index_uop = &uops[*index as usize];
    let (base, offset) = match (index_uop.op, index_uop.src.as_slice()) {
        (Op::Const, _) => (None, constant(*index)?),
        (Op::Add, [base, more]) if let Some(offset) = constant(*more) => (Some(*base), offset),
        _ => (Some(*index), 0),
    };
    // An accumulator may have another value at a later load.
    let is_fixed = base.is_none_or(|base| uops[base as usize].op != Op::DefineAcc);
    (is_fixed && 0 <= offset).then_some(((*array, base), offset))
}

/// Merges runs of adjacent loads, sorted by their offsets, of at most `limit` lanes.
fn merge_runs(
    (array, base): Place,
    mut loads: &[(i128, u32)],
    limit: i64,
    found: &mut Vec<Merged>,
) {
    while let [(offset, _), rest @ ..] = loads {
        let is_run = |lanes: &usize| {
            let lanes = *lanes;
            let run = loads.get(..lanes).unwrap_or_default();
            let is_next = |(lane, (next, _)): (usize, &(i128, u32))| *next == offset + lane as i128;
            run.len() == lanes && offset % lanes as i128 == 0 && run.iter().enumerate().all(is_next)
        };
        let lanes = [8, 4, 2].into_iter().filter(|lanes| *lanes as i64 <= limit).find(is_run);
        let Some(lanes) = lanes else {
            loads = rest;
            continue;
        };
        let (run, rest) = loads.split_at(lanes);
        let run = run.iter().map(|(_, load)| *load).collect();
        found.push(Merged { array, base, offset: *offset, loads: run });
        loads = rest;
    }
}

/// Returns for each uop the exponent of a power of two that divides it. Wrapping keeps it.
fn factors(uops: &[Instruction]) -> Vec<u32> {
    let mut factors: Vec<u32> = Vec::with_capacity(uops.len());
    for uop in uops {
        let of = |source: usize| factors[uop.src[source] as usize];
        let constant = |source: usize| match uops[uop.src[source] as usize].arg {
            Arg::Const(value) => value.to_int(),
            _ => None,
        };
        let factor = match (uop.op, &uop.arg) {
            _ if !uop.dtype.is_int() || uop.lanes != 1 => 0,
            (Op::Const, Arg::Const(value)) => match value.to_int() {
                Some(0) | None => 0,
                Some(number) => number.trailing_zeros().min(31),
            },
            (Op::Add | Op::Sub, _) => of(0).min(of(1)),
            (Op::Mul, _) => (of(0) + of(1)).min(31),
            (Op::Shl, _) if let Some(shift @ 0..=31) = constant(1) => {
                (of(0) + shift as u32).min(31)
            }
            (Op::Cast, _) if uops[uop.src[0] as usize].dtype.is_int() => of(0),
            _ => 0,
        };
        factors.push(factor);
    }
    factors
}

/// Puts each load of a vector where the first of its loads of scalars was.
fn replace(linear: Linear, merged: &[Merged]) -> Linear {
    let mut first: FxHashMap<u32, usize> = FxHashMap::default();
    let mut member: FxHashMap<u32, (usize, i64)> = FxHashMap::default();
    for (number, merged) in merged.iter().enumerate() {
        first.extend(merged.loads.iter().min().map(|load| (*load, number)));
        let lanes = merged.loads.iter().enumerate();
        member.extend(lanes.map(|(lane, load)| (*load, (number, lane as i64))));
    }
    let old = linear.uops;
    let mut editor = Editor::new(old.len());
    let int = |merged: &Merged| {
        merged
            .base
            .map_or_else(|| index_dtype(&old, merged.loads[0]), |base| old[base as usize].dtype)
    };
    let mut offsets: FxHashMap<Constant, u32> = FxHashMap::default();
    for merged in merged.iter().filter(|merged| merged.base.is_none() || merged.offset != 0) {
        let offset = Constant::int(int(merged), merged.offset);
        offsets.entry(offset).or_insert_with(|| {
            let arg = Arg::Const(offset);
            editor.push(Instruction::new(Op::Const, offset.dtype(), [], arg))
        });
    }
    let mut vectors: Vec<u32> = vec![0; merged.len()];
    for (position, uop) in old.iter().enumerate() {
        if let Some(number) = first.get(&(position as u32)) {
            let merged = &merged[*number];
            let dtype = uop.dtype;
            let offset = offsets.get(&Constant::int(int(merged), merged.offset)).copied();
            let index = match (merged.base.map(|base| editor.position(base)), offset) {
                (Some(base), Some(offset)) if merged.offset != 0 => {
                    editor.push(Instruction::new(Op::Add, int(merged), [base, offset], Arg::None))
                }
                (Some(base), _) => base,
                (None, offset) => offset.unwrap_or(0),
            };
            let array = editor.position(merged.array);
            let address =
                editor.push(Instruction::new(Op::Index, dtype, [array, index], Arg::None));
            let load = Instruction::new(Op::Load, dtype, [address], Arg::None);
            let lanes = merged.loads.len() as u8;
            vectors[*number] = editor.push(Instruction { lanes, ..load });
        }
        let new = match member.get(&(position as u32)) {
            Some((number, lane)) => {
                let arg = Arg::Int(*lane);
                editor.push(Instruction::new(Op::Lane, uop.dtype, [vectors[*number]], arg))
            }
            None => editor.copy(uop),
        };
        editor.set(position, new);
    }
    editor.finish(linear.name)
}

/// Returns the type of the index of a load.
fn index_dtype(uops: &[Instruction], load: u32) -> DType {
    let address = &uops[uops[load as usize].src[0] as usize];
    uops[address.src[1] as usize].dtype
}
