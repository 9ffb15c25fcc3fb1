//! Pass "memory": reuses intermediate buffers that are no longer live.
//!
//! A buffer is live from the kernel that writes it to the last one that reads it, both included, so
//! that no kernel writes what it reads. Inputs and outputs are never reused. Only a buffer of the
//! same dtype and size is reused, since buffers are typed arrays for the runtime.

use gradiff_graph::{Buffer, DType};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Item;

/// Replaces buffers in `items` by earlier ones that are no longer live, except for `outputs`.
pub(crate) fn plan(items: &mut [Item], outputs: &[Buffer]) {
    let outputs: FxHashSet<&Buffer> = outputs.iter().collect();
    let written: FxHashSet<Buffer> = items.iter().map(|item| item.buffers[0].clone()).collect();
    let mut last_use: FxHashMap<Buffer, usize> = FxHashMap::default();
    for (index, item) in items.iter().enumerate() {
        last_use.extend(item.buffers.iter().map(|buffer| (buffer.clone(), index)));
    }
    let mut free: FxHashMap<(DType, i64), Vec<Buffer>> = FxHashMap::default();
    let mut reused: FxHashMap<Buffer, Buffer> = FxHashMap::default();
    for (index, item) in items.iter_mut().enumerate() {
        let old = item.buffers.clone();
        let may_share = |buffer: &Buffer| written.contains(buffer) && !outputs.contains(buffer);
        let new_of = |buffer: &Buffer| reused.get(buffer).unwrap_or(buffer).clone();
        let reads: Vec<Buffer> = old[1..].iter().map(new_of).collect();
        if may_share(&old[0]) {
            let free_buffer = take(free.entry(class(&old[0])).or_default(), &reads);
            reused.insert(old[0].clone(), free_buffer.unwrap_or_else(|| old[0].clone()));
        }
        item.buffers =
            std::iter::once(reused.get(&old[0]).unwrap_or(&old[0]).clone()).chain(reads).collect();
        let is_last_use = |buffer: &Buffer| last_use[buffer] == index;
        for buffer in old.iter().filter(|buffer| may_share(buffer) && is_last_use(buffer)) {
            free.entry(class(buffer)).or_default().push(reused[buffer].clone());
        }
        assert!(!item.buffers[1..].contains(&item.buffers[0]), "a kernel reads what it writes");
    }
}

/// Takes the buffer that was freed last and is not among `reads`.
fn take(free: &mut Vec<Buffer>, reads: &[Buffer]) -> Option<Buffer> {
    let index = free.iter().rposition(|buffer| !reads.contains(buffer))?;
    Some(free.remove(index))
}

fn class(buffer: &Buffer) -> (DType, i64) {
    (buffer.dtype(), buffer.size_elements())
}
