//! A linear kernel that is built anew from the uops of another one, in their order.

use gradiff_graph::{Instruction, Linear, Op};
use smallvec::SmallVec;

/// The uops so far, and which of them replaces each uop of the old kernel.
pub(crate) struct Editor {
    uops: Vec<Instruction>,
    /// For each old uop, the position of the new one.
    positions: Vec<u32>,
}

impl Editor {
    /// Returns an empty kernel that will replace a kernel of `count` uops.
    pub(crate) fn new(count: usize) -> Editor {
        Editor { uops: Vec::with_capacity(count), positions: vec![u32::MAX; count] }
    }

    /// Adds a uop that replaces no old one. Returns its position.
    pub(crate) fn push(&mut self, uop: Instruction) -> u32 {
        self.uops.push(uop);
        self.uops.len() as u32 - 1
    }

    /// Adds an old uop, with its new sources. Returns its position; it replaces the old one only
    /// after [`set`](Editor::set).
    pub(crate) fn copy(&mut self, uop: &Instruction) -> u32 {
        let src = self.moved(uop);
        self.push(Instruction { src, ..uop.clone() })
    }

    /// Lets the uop at `new` replace the old one at `old` from now on.
    pub(crate) fn set(&mut self, old: usize, new: u32) {
        self.positions[old] = new;
    }

    /// Returns the position of the uop that replaces an old one.
    pub(crate) fn position(&self, old: u32) -> u32 {
        self.positions[old as usize]
    }

    /// Returns the new positions of the sources of an old uop.
    pub(crate) fn moved(&self, uop: &Instruction) -> SmallVec<[u32; 4]> {
        uop.src.iter().map(|source| self.position(*source)).collect()
    }

    /// Returns a new uop.
    pub(crate) fn uop(&self, position: u32) -> &Instruction {
        &self.uops[position as usize]
    }

    /// Returns the kernel, without addresses and values that have no users.
    pub(crate) fn finish(self, name: String) -> Linear {
        Linear { name, uops: without_unused_values(self.uops) }
    }
}

/// Removes addresses and values without users, and what only they used.
fn without_unused_values(uops: Vec<Instruction>) -> Vec<Instruction> {
    let mut is_used = vec![false; uops.len()];
    for (position, uop) in uops.iter().enumerate().rev() {
        let is_value = matches!(uop.op, Op::Index | Op::Load | Op::Lane | Op::Vectorize)
            || uop.op.is_elementwise() && uop.op != Op::Const;
        is_used[position] |= !is_value;
        if is_used[position] {
            uop.src.iter().for_each(|source| is_used[*source as usize] = true);
        }
    }
    let mut positions: Vec<u32> = Vec::with_capacity(uops.len());
    let mut kept: Vec<Instruction> = Vec::with_capacity(uops.len());
    for (position, mut uop) in uops.into_iter().enumerate() {
        positions.push(kept.len() as u32);
        if is_used[position] {
            uop.src.iter_mut().for_each(|source| *source = positions[*source as usize]);
            kept.push(uop);
        }
    }
    kept
}
