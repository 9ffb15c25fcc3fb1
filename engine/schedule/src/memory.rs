//! Pass "memory": intermediate buffers take over the place of those whose life is over.
//!
//! A buffer's life goes from the kernel that writes it to the last one that reads it, both
//! included, so that no kernel writes what it reads. Inputs and outputs keep a place of their own.
//! Only buffers of one dtype and size share a place: a place is a typed array for the runtime.

use gradiff_graph::{Buffer, DType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Item;

/// Replaces buffers in `items` by earlier ones that are free again; those in `kept` stay.
pub(crate) fn plan(items: &mut [Item], kept: &[Buffer]) {
    let kept: FxHashSet<&Buffer> = kept.iter().collect();
    let written: FxHashSet<Buffer> = items.iter().map(|item| item.buffers[0].clone()).collect();
    let mut last_use: FxHashMap<Buffer, usize> = FxHashMap::default();
    for (index, item) in items.iter().enumerate() {
        last_use.extend(item.buffers.iter().map(|buffer| (buffer.clone(), index)));
    }
    let mut free: FxHashMap<(DType, i64), Vec<Buffer>> = FxHashMap::default();
    let mut places: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    for (index, item) in items.iter_mut().enumerate() {
        let was = item.buffers.clone();
        let is_shared = |buffer: &Buffer| written.contains(buffer) && !kept.contains(buffer);
        let place_of = |buffer: &Buffer| places.get(buffer).unwrap_or(buffer).clone();
        let reads: Vec<Buffer> = was[1..].iter().map(place_of).collect();
        if is_shared(&was[0]) {
            let place = take(free.entry(class(&was[0])).or_default(), &reads);
            places.insert(was[0].clone(), place.unwrap_or_else(|| was[0].clone()));
        }
        item.buffers =
            std::iter::once(places.get(&was[0]).unwrap_or(&was[0]).clone()).chain(reads).collect();
        let is_over = |buffer: &Buffer| last_use[buffer] == index;
        for buffer in was.iter().filter(|buffer| is_shared(buffer) && is_over(buffer)) {
            free.entry(class(buffer)).or_default().push(places[buffer].clone());
        }
        assert!(!item.buffers[1..].contains(&item.buffers[0]), "a kernel reads what it writes");
    }
}

/// The place that was freed last, but none of `reads`.
fn take(free: &mut Vec<Buffer>, reads: &[Buffer]) -> Option<Buffer> {
    let index = free.iter().rposition(|place| !reads.contains(place))?;
    Some(free.remove(index))
}

fn class(buffer: &Buffer) -> (DType, i64) {
    (buffer.dtype(), buffer.size_elements())
}
