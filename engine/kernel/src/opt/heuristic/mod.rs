//! Chooses opts by heuristics, from the loops of a kernel and its memory accesses: `cpu.rs` for
//! CPUs with vectors, with `cuts.rs` where gates change and `transposes.rs`; `groups.rs` for
//! devices with thread groups, with `reductions.rs`.

mod access;
mod cpu;
mod cuts;
mod groups;
mod optimizer;
mod reductions;
mod transposes;

use gradiff_graph::UOp;

use super::{Opt, Setting, loops};
use crate::Error;
use optimizer::Optimizer;

/// Returns the opts that the heuristics choose.
///
/// # Errors
/// Those of [`loops`].
pub fn heuristic(root: &UOp, setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    Ok(run(root, setting)?.opts)
}

/// Returns the kernel with the opts that the heuristics choose.
pub(super) fn by_heuristic(root: &UOp, setting: Setting<'_>) -> Result<UOp, Error> {
    Ok(run(root, setting)?.root)
}

fn run<'a>(root: &UOp, setting: Setting<'a>) -> Result<Optimizer<'a>, Error> {
    let mut optimizer =
        Optimizer { root: root.clone(), loops: loops(root)?, opts: Vec::new(), setting };
    match setting.target.groups {
        Some(_) => groups::optimize(&mut optimizer)?,
        None if setting.target.vectors.alu => cpu::optimize(&mut optimizer)?,
        None => {}
    }
    Ok(optimizer)
}
