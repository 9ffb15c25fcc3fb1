//! Pass `interleave`: gathered loads whose lanes are two elements apart or in reverse order become
//! loads of whole vectors, whose lanes are permuted; stores of lanes of two vectors in turns become
//! stores of whole vectors.
//!
//! Compilers make one or two instructions of a permutation of the lanes of at most two vectors. All
//! elements of a vector that is loaded are loaded anyway between the same two uops that change
//! memory or open or close a loop, so that no others are accessed.

use gradiff_graph::{Arg, Instruction, Linear, Op, Target};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::merge_loads::without_unused_values;

/// Fewest lanes that are permuted: fewer are as fast one by one.
const LANES_MIN: u8 = 4;

/// Replaces the loads and stores of a kernel.
pub(crate) fn interleave(linear: Linear, target: &Target) -> Linear {
    if !target.vectors.may_interleave() {
        return linear;
    }
    let is_vector =
        |gather: &Instruction| i64::from(gather.lanes) <= target.vectors.lanes_of(gather.dtype);
    let found = permuted_loads(&linear.uops, &is_vector);
    let linear = if found.gathers.is_empty() { linear } else { with_loads(linear, &found) };
    let stores = interleaved_stores(&linear.uops);
    if stores.is_empty() { linear } else { with_stores(linear, &stores) }
}

/// The terms of an index without its constant, each with the number of times it is added.
type Terms = SmallVec<[(u32, i128); 4]>;
/// An array, and the terms that the indices of several accesses have in common.
type Place = (u32, Terms);
/// The number of the block between two uops that change memory or open or close a loop, and the
/// place of loads in it.
type BlockKey = (u32, Place);

/// Vectors to be loaded, and gathers of their lanes.
#[derive(Default)]
struct PermutedLoads {
    /// The loads of the first elements, before which those of vectors are put, and their lanes.
    vectors: Vec<(u32, u8)>,
    /// For the position of each gather the loaded vector of each lane, and the lane in that.
    gathers: FxHashMap<u32, SmallVec<[(usize, i64); 16]>>,
}

/// Finds the gathers whose lanes are those of one or two vectors, of those that are `is_vector`.
fn permuted_loads(uops: &[Instruction], is_vector: &dyn Fn(&Instruction) -> bool) -> PermutedLoads {
    // For each constant the position of the first load.
    let mut blocks: FxHashMap<BlockKey, FxHashMap<i128, u32>> = FxHashMap::default();
    let mut elements: FxHashMap<u32, (BlockKey, i128)> = FxHashMap::default();
    let mut number = 0;
    for (position, uop) in uops.iter().enumerate() {
        match uop.op {
            Op::Range | Op::EndRange | Op::Store | Op::Barrier => number += 1,
            Op::Load if uop.lanes == 1 => {
                let Some((place, offset)) = place(uops, uop) else { continue };
                let key = (number, place);
                let block = blocks.entry(key.clone()).or_default();
                block.entry(offset).or_insert(position as u32);
                elements.insert(position as u32, (key, offset));
            }
            _ => {}
        }
    }
    let mut found = PermutedLoads::default();
    let mut known: FxHashMap<(u32, u8), usize> = FxHashMap::default();
    for (position, uop) in uops.iter().enumerate() {
        let gathered = gathered(uop, &elements).filter(|_| is_vector(uop));
        let Some((key, offsets)) = gathered else { continue };
        let found_vectors = vectors(&offsets, &blocks[key], position as u32);
        let Some((first, vectors)) = found_vectors else { continue };
        let lane = |offset: &i128| {
            let (distance, count) = (offset - first, i128::from(uop.lanes));
            let load = (vectors[(distance / count) as usize], uop.lanes);
            let vector = *known.entry(load).or_insert_with(|| {
                found.vectors.push(load);
                found.vectors.len() - 1
            });
            (vector, (distance % count) as i64)
        };
        let lanes = offsets.iter().map(lane).collect();
        found.gathers.insert(position as u32, lanes);
    }
    found
}
/// Returns the array, the terms and the constant of the index of a load or store without a gate, if
/// these have the same values wherever they occur in a block.
fn place(uops: &[Instruction], access: &Instruction) -> Option<(Place, i128)> {
    let ((Op::Load, [address]) | (Op::Store, [address, _])) = (access.op, access.src.as_slice())
    else {
        return None;
    };
    let [array, index] = uops[*address as usize].src.as_slice() else { return None };
    // A narrow index may wrap from element to element.
    if uops[*index as usize].dtype.bits() < 32 {
        return None;
    }
    let (mut terms, mut offset) = (Terms::new(), 0i128);
    let mut left: SmallVec<[(u32, i128); 8]> = SmallVec::from_slice(&[(*index, 1)]);
    while let Some((position, sign)) = left.pop() {
        let uop = &uops[position as usize];
        match (uop.op, &uop.arg, uop.src.as_slice()) {
            (Op::Const, Arg::Const(value), _) => offset += sign * value.to_int()?,
            (Op::Add, _, [x, y]) => left.extend([(*x, sign), (*y, sign)]),
            (Op::Sub, _, [x, y]) => left.extend([(*x, sign), (*y, -sign)]),
            (Op::Neg, _, [x]) => left.push((*x, -sign)),
            (Op::DefineAcc, ..) => return None,
            _ => match terms.iter_mut().find(|(known, _)| *known == position) {
                Some((_, times)) => *times += sign,
                None => terms.push((position, sign)),
            },
        }
    }
    terms.sort_unstable();
    Some(((*array, terms), offset))
}

/// Returns the block and the constants of the loads from which a vector is gathered, if each is as
/// far from the one before: one or two elements, in either direction.
fn gathered<'a>(
    uop: &Instruction,
    elements: &'a FxHashMap<u32, (BlockKey, i128)>,
) -> Option<(&'a BlockKey, SmallVec<[i128; 16]>)> {
    if uop.op != Op::Vectorize || uop.lanes < LANES_MIN || uop.src.len() != uop.lanes as usize {
        return None;
    }
    let (key, _) = elements.get(&uop.src[0])?;
    let offset = |source: &u32| elements.get(source).filter(|(known, _)| known == key);
    let offsets = uop.src.iter().map(|source| Some(offset(source)?.1));
    let offsets: SmallVec<[i128; 16]> = offsets.collect::<Option<_>>()?;
    let step = offsets[1] - offsets[0];
    let is_even = offsets.windows(2).all(|pair| pair[1] - pair[0] == step);
    (matches!(step, 1 | 2 | -1 | -2) && is_even).then_some((key, offsets))
}

/// Returns the first element of the one or two vectors that contain these elements, and the loads
/// of the first element of each, which come before the gather. All elements of the vectors are
/// loaded in the block.
fn vectors(
    offsets: &[i128],
    block: &FxHashMap<i128, u32>,
    gather: u32,
) -> Option<(i128, SmallVec<[u32; 2]>)> {
    let (first, last) = (*offsets.iter().min()?, *offsets.iter().max()?);
    let count = offsets.len() as i128;
    let width = if last - first < count { count } else { 2 * count };
    let is_loaded = |start: &i128| (*start..start + width).all(|at| block.contains_key(&at));
    let loads_from = |start: i128| {
        let starts = (start..start + width).step_by(offsets.len());
        let loads: SmallVec<[u32; 2]> = starts.map(|start| block[&start]).collect();
        loads.iter().all(|load| *load < gather).then_some((start, loads))
    };
    (last + 1 - width..=first).rev().filter(is_loaded).find_map(loads_from)
}

/// Puts the loads of vectors in, and gathers from their lanes.
fn with_loads(linear: Linear, found: &PermutedLoads) -> Linear {
    let mut before: FxHashMap<u32, SmallVec<[usize; 1]>> = FxHashMap::default();
    for (number, (load, _)) in found.vectors.iter().enumerate() {
        before.entry(*load).or_default().push(number);
    }
    let mut editor = Editor::default();
    let mut vectors: Vec<u32> = vec![0; found.vectors.len()];
    for (position, uop) in linear.uops.iter().enumerate() {
        let position = position as u32;
        for number in before.remove(&position).unwrap_or_default() {
            let (src, lanes) = (editor.moved(uop), found.vectors[number].1);
            vectors[number] = editor.push(Instruction { src, lanes, ..uop.clone() });
        }
        let src = match found.gathers.get(&position) {
            Some(lanes) => {
                let lane = |(vector, lane): &(usize, i64)| {
                    let arg = Arg::Int(*lane);
                    editor.push(Instruction::new(Op::Lane, uop.dtype, [vectors[*vector]], arg))
                };
                lanes.iter().map(lane).collect()
            }
            None => editor.moved(uop),
        };
        editor.replace(Instruction { src, ..uop.clone() });
    }
    editor.finish(linear.name)
}

/// The uops of a kernel that is built anew.
#[derive(Default)]
struct Editor {
    uops: Vec<Instruction>,
    /// For each old uop the position of the new one.
    positions: Vec<u32>,
}

impl Editor {
    fn push(&mut self, uop: Instruction) -> u32 {
        self.uops.push(uop);
        self.uops.len() as u32 - 1
    }

    /// Adds what stands for the next old uop.
    fn replace(&mut self, uop: Instruction) {
        let position = self.push(uop);
        self.positions.push(position);
    }

    /// Returns the new positions of the sources of an old uop.
    fn moved(&self, uop: &Instruction) -> SmallVec<[u32; 4]> {
        uop.src.iter().map(|source| self.positions[*source as usize]).collect()
    }

    fn finish(self, name: String) -> Linear {
        Linear { name, uops: without_unused_values(self.uops) }
    }
}

/// Stores of adjacent lanes of two vectors, in the order of their elements.
type Stores = SmallVec<[u32; 16]>;

/// Finds the stores that can be those of vectors, by the position of the last one.
fn interleaved_stores(uops: &[Instruction]) -> FxHashMap<u32, Stores> {
    let mut found = FxHashMap::default();
    let mut blocks: FxHashMap<Place, Vec<(i128, u32)>> = FxHashMap::default();
    let mut end_block = |mut stores: Vec<(i128, u32)>| {
        stores.sort_unstable();
        // An element that is stored twice must have the later value.
        if stores.windows(2).all(|pair| pair[0].0 != pair[1].0) {
            find_runs(uops, &stores, &mut found);
        }
    };
    for (position, uop) in uops.iter().enumerate() {
        let array = |access: &Instruction| uops[access.src[0] as usize].src[0];
        match uop.op {
            Op::Range | Op::EndRange | Op::Barrier => {
                blocks.drain().for_each(|(_, stores)| end_block(stores));
            }
            Op::Load | Op::Store => {
                let found = if uop.op == Op::Store { place(uops, uop) } else { None };
                let is_scalar = uops[*uop.src.get(1).unwrap_or(&0) as usize].lanes == 1;
                let stored = found.filter(|_| is_scalar);
                // What accesses the array in another way ends the block.
                let is_ended = |known: &Place| {
                    known.0 == array(uop) && stored.as_ref().is_none_or(|(place, _)| place != known)
                };
                let ended: Vec<Place> =
                    blocks.keys().filter(|key| is_ended(key)).cloned().collect();
                for place in ended {
                    end_block(blocks.remove(&place).unwrap_or_default());
                }
                if let Some((place, offset)) = stored {
                    blocks.entry(place).or_default().push((offset, position as u32));
                }
            }
            _ => {}
        }
    }
    blocks.into_values().for_each(end_block);
    found
}

/// Finds runs of stores, sorted by their offsets, whose values are lanes of at most two vectors.
fn find_runs(uops: &[Instruction], mut stores: &[(i128, u32)], found: &mut FxHashMap<u32, Stores>) {
    let value = |store: u32| &uops[uops[store as usize].src[1] as usize];
    while let [(offset, store), rest @ ..] = stores {
        let lane = value(*store);
        let vector = (lane.op == Op::Lane).then(|| lane.src[0]);
        let count = vector.map_or(0, |vector| uops[vector as usize].lanes);
        let run = stores.get(..count as usize).unwrap_or_default();
        let is_adjacent =
            run.iter().enumerate().all(|(lane, (next, _))| *next == offset + lane as i128);
        let mut vectors: SmallVec<[u32; 2]> = SmallVec::new();
        let mut is_lane = |(_, store): &(i128, u32)| {
            let lane = value(*store);
            let is_lane = lane.op == Op::Lane && uops[lane.src[0] as usize].lanes == count;
            if is_lane && !vectors.contains(&lane.src[0]) {
                vectors.push(lane.src[0]);
            }
            is_lane && vectors.len() <= 2
        };
        if LANES_MIN <= count && !run.is_empty() && is_adjacent && run.iter().all(&mut is_lane) {
            let run: Stores = run.iter().map(|(_, store)| *store).collect();
            found.extend(run.iter().copied().max().map(|last| (last, run)));
            stores = &stores[count as usize..];
        } else {
            stores = rest;
        }
    }
}

/// Puts a store of a vector where the last of its stores of scalars was.
fn with_stores(linear: Linear, found: &FxHashMap<u32, Stores>) -> Linear {
    let old = linear.uops;
    let merged: FxHashSet<u32> = found.values().flatten().copied().collect();
    let mut editor = Editor::default();
    for (position, uop) in old.iter().enumerate() {
        let position = position as u32;
        match found.get(&position) {
            Some(run) => {
                let value = |store: &u32| old[*store as usize].src[1];
                let dtype = old[value(&run[0]) as usize].dtype;
                let vector = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
                let src = run.iter().map(|store| editor.positions[value(store) as usize]);
                let src = src.collect();
                let vector = editor.push(Instruction { src, lanes: run.len() as u8, ..vector });
                let address = editor.positions[old[run[0] as usize].src[0] as usize];
                let src = SmallVec::from_slice(&[address, vector]);
                editor.replace(Instruction { src, ..uop.clone() });
            }
            // Nothing depends on a store.
            None if merged.contains(&position) => editor.positions.push(u32::MAX),
            None => {
                let src = editor.moved(uop);
                editor.replace(Instruction { src, ..uop.clone() });
            }
        }
    }
    editor.finish(linear.name)
}
