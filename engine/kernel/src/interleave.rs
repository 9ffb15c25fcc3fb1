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

use crate::edit::Editor;

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

/// The terms that the indices of several accesses of an array have in common, and their gate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    array: u32,
    gate: Option<u32>,
    terms: Terms,
}

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

/// Returns the place and the constant of the index of a load or store, if the terms and the gate
/// have the same values wherever they occur in a block.
fn place(uops: &[Instruction], access: &Instruction) -> Option<(Place, i128)> {
    let ((Op::Load, [address]) | (Op::Store, [address, _])) = (access.op, access.src.as_slice())
    else {
        return None;
    };
    let (array, index, gate) = match *uops[*address as usize].src.as_slice() {
        [array, index] => (array, index, None),
        [array, index, gate] => (array, index, Some(gate)),
        _ => return None,
    };
    if gate.is_some_and(|gate| uops[gate as usize].op == Op::DefineAcc) {
        return None;
    }
    // A narrow index may wrap from element to element.
    if uops[index as usize].dtype.bits() < 32 {
        return None;
    }
    let (mut terms, mut offset) = (Terms::new(), 0i128);
    let mut left: SmallVec<[(u32, i128); 8]> = SmallVec::from_slice(&[(index, 1)]);
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
    Some((Place { array, gate, terms }, offset))
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
    let mut editor = Editor::new(linear.uops.len());
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
        let new = editor.push(Instruction { src, ..uop.clone() });
        editor.set(position as usize, new);
    }
    editor.finish(linear.name)
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
                    known.array == array(uop)
                        && stored.as_ref().is_none_or(|(place, _)| place != known)
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
    let mut editor = Editor::new(old.len());
    for (position, uop) in old.iter().enumerate() {
        let position = position as u32;
        let new = match found.get(&position) {
            Some(run) => {
                let value = |store: &u32| old[*store as usize].src[1];
                let dtype = old[value(&run[0]) as usize].dtype;
                let vector = Instruction::new(Op::Vectorize, dtype, [], Arg::None);
                let src = run.iter().map(|store| editor.position(value(store))).collect();
                let vector = editor.push(Instruction { src, lanes: run.len() as u8, ..vector });
                let address = editor.position(old[run[0] as usize].src[0]);
                let src = SmallVec::from_slice(&[address, vector]);
                editor.push(Instruction { src, ..uop.clone() })
            }
            // Nothing depends on a store.
            None if merged.contains(&position) => continue,
            None => editor.copy(uop),
        };
        editor.set(position as usize, new);
    }
    editor.finish(linear.name)
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Constant, DType, Global};

    use super::*;

    /// The elements of the input, in the middle of which the base of all indices is.
    const SIZE: i64 = 64;

    /// A kernel that is being drawn.
    struct Draw {
        state: u64,
        uops: Vec<Instruction>,
    }

    impl Draw {
        fn below(&mut self, count: u64) -> u64 {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.state >> 33) % count
        }

        fn push(&mut self, op: Op, src: &[u32], arg: Arg) -> u32 {
            self.uops.push(Instruction::new(op, DType::I32, src.iter().copied(), arg));
            self.uops.len() as u32 - 1
        }

        fn int(&mut self, value: i64) -> u32 {
            self.push(Op::Const, &[], Arg::Const(Constant::int(DType::I32, value.into())))
        }

        fn binary(&mut self, op: Op, x: u32, y: u32) -> u32 {
            self.push(op, &[x, y], Arg::None)
        }

        /// `base + offset` in one of several forms.
        fn sum(&mut self, base: u32, offset: i64) -> u32 {
            let form = self.below(6);
            let [number, opposite] = [offset, -offset].map(|value| self.int(value));
            match form {
                0 if offset == 0 => base,
                0 | 1 => self.binary(Op::Add, base, number),
                2 => self.binary(Op::Add, number, base),
                3 => self.binary(Op::Sub, base, opposite),
                4 => {
                    let negated = self.binary(Op::Sub, opposite, base);
                    self.push(Op::Neg, &[negated], Arg::None)
                }
                _ => {
                    let part = self.below(9) as i64;
                    let [part, rest] = [part, part - offset].map(|value| self.int(value));
                    let sum = self.binary(Op::Add, base, part);
                    self.binary(Op::Sub, sum, rest)
                }
            }
        }

        fn address(&mut self, array: u32, base: u32, offset: i64) -> u32 {
            let index = self.sum(base, offset);
            self.push(Op::Index, &[array, index], Arg::None)
        }

        /// Gathers four vectors from adjacent elements, and stores their lanes two by two in turns.
        fn kernel(seed: u64) -> Linear {
            let mut draw = Draw { state: seed, uops: Vec::new() };
            let [output, input] = [0, 1].map(|slot| {
                let global = Arg::Global(Global { slot, size_elements: SIZE });
                draw.push(Op::DefineGlobal, &[], global)
            });
            let two = draw.int(2);
            let range = draw.push(Op::Range, &[two], Arg::plain_axis(0));
            let middle = draw.int(SIZE / 2);
            // Not a sum, so that it is a single term.
            let base = draw.binary(Op::Or, middle, range);
            let lanes = 4 << draw.below(2);
            let first = draw.below(9) as i64 - 4 - lanes;
            let mut offsets: Vec<i64> = (first..first + 2 * lanes).collect();
            let shift = draw.below(offsets.len() as u64) as usize;
            offsets.rotate_left(shift);
            let mut loads = vec![0; offsets.len()];
            for offset in offsets {
                let address = draw.address(input, base, offset);
                loads[(offset - first) as usize] = draw.push(Op::Load, &[address], Arg::None);
            }
            let mut vectors = Vec::new();
            for _ in 0..2 {
                let stride = 1 + draw.below(2) as usize;
                let start = draw.below((2 - stride as u64) * lanes as u64 + 1) as usize;
                let mut src: Vec<u32> =
                    loads[start..].iter().copied().step_by(stride).take(lanes as usize).collect();
                if draw.below(2) == 0 {
                    src.reverse();
                }
                let vector = draw.push(Op::Vectorize, &src, Arg::None);
                draw.uops[vector as usize].lanes = lanes as u8;
                vectors.push(vector);
            }
            for lane in 0..2 * lanes {
                let vector = vectors[(lane % 2) as usize];
                let value = draw.push(Op::Lane, &[vector], Arg::Int(lane / 2));
                let address = draw.address(output, base, first + lane);
                let store = draw.push(Op::Store, &[address, value], Arg::None);
                draw.uops[store as usize].dtype = DType::Void;
            }
            draw.push(Op::EndRange, &[range], Arg::None);
            draw.uops.last_mut().expect("a uop").dtype = DType::Void;
            Linear { name: "E_2".to_string(), uops: draw.uops }
        }
    }

    #[test]
    fn permuted_accesses_have_the_same_elements() {
        let target = Target::of("vectors");
        let (mut load_count, mut store_count) = (0, 0);
        for seed in 0..1000 {
            let kernel = Draw::kernel(seed);
            let run = |kernel: &Linear| {
                let number = |at: i64| Some(Constant::int(DType::I32, (at * at).into()));
                let mut memories = [vec![None; SIZE as usize], (0..SIZE).map(number).collect()];
                let run = gradiff_eval::linear::run(kernel, &mut memories);
                run.unwrap_or_else(|error| panic!("{seed}: {error}\n{kernel}"));
                memories
            };
            let expected = run(&kernel);
            let found = interleave(kernel.clone(), &target);
            assert_eq!(run(&found), expected, "{seed}\n{kernel}\n{found}");
            let uops = &found.uops;
            let lanes_of_stored = |uop: &&Instruction| 1 < uops[uop.src[1] as usize].lanes;
            load_count += uops.iter().filter(|uop| uop.op == Op::Load && 1 < uop.lanes).count();
            let stores = uops.iter().filter(|uop| uop.op == Op::Store);
            store_count += stores.filter(lanes_of_stored).count();
        }
        assert!(
            1000 < load_count && 1000 < store_count,
            "{load_count} loads, {store_count} stores"
        );
    }
}
