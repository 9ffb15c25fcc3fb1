//! What a kernel loads and stores along its loops.

use gradiff_graph::{AxisKind, DType, Op, UOp};
use gradiff_rewrite::Mode;

use super::Chosen;
use crate::Error;
use crate::linearize::Free;
use crate::opt::Loop;

/// A load or store.
pub(super) struct Access {
    pub(super) is_store: bool,
    /// By how much its place grows along each range, if that is known; ranges that are not here do
    /// not matter to it.
    steps: Vec<(UOp, Option<i64>)>,
    /// The ranges that decide whether it is done.
    gates: Vec<UOp>,
}

impl Access {
    pub(super) fn step(&self, range: &UOp) -> Option<i64> {
        let found = self.steps.iter().find(|(known, _)| known == range);
        found.map_or(Some(0), |(_, step)| *step)
    }

    /// Whether a range decides whether it is done.
    pub(super) fn is_gated(&self, range: &UOp) -> bool {
        self.gates.contains(range)
    }

    /// What lanes along a range would gain here.
    fn worth(&self, range: &UOp, has_fold: bool) -> i64 {
        match self.step(range) {
            Some(1) => 2,
            Some(0) => 0,
            // What a fold stores it stores once.
            _ if self.is_store && has_fold => -1,
            _ => -3,
        }
    }
}

/// All loads and stores of a kernel.
pub(super) struct Accesses {
    pub(super) list: Vec<Access>,
    /// Bytes of the widest value that is loaded, stored or folded, as it is computed with.
    pub(super) widest_bytes: i64,
    /// Whether 16-bit floats are loaded or stored.
    pub(super) has_halves: bool,
}

impl Accesses {
    pub(super) fn of(root: &UOp) -> Result<Accesses, Error> {
        let free = Free::of(root)?;
        let ranges: Vec<UOp> = free.ranges().cloned().collect();
        let is_access = |node: &&UOp| matches!(node.op(), Op::Load | Op::Store);
        let access = |node: &UOp| {
            let index = &node.src()[0];
            let varies = |part: &UOp, range: &UOp| free.of_node(part) & free.of_node(range) != 0;
            let along = |parts: &[UOp], range: &UOp| parts.iter().any(|part| varies(part, range));
            let gate = index.src().get(2..).unwrap_or_default();
            let gates: Vec<UOp> =
                ranges.iter().filter(|range| along(gate, range)).cloned().collect();
            let step = |range: &UOp| match gates.contains(range) {
                true => None,
                false => step(&index.src()[1], range, &free),
            };
            let known = ranges.iter().filter(|range| along(&index.src()[1..], range));
            let steps = known.map(|range| (range.clone(), step(range))).collect();
            Access { is_store: node.op() == Op::Store, steps, gates }
        };
        let list = free.nodes.iter().filter(is_access).map(access).collect();
        let is_wide = |node: &&UOp| matches!(node.op(), Op::Load | Op::Index | Op::Reduce);
        let is_half = |node: &UOp| matches!(node.dtype(), DType::F16 | DType::BF16);
        // 16-bit floats are computed with as f32.
        let bytes = |node: &UOp| if is_half(node) { 4 } else { node.dtype().size_bytes() as i64 };
        let widest_bytes = free.nodes.iter().filter(is_wide).map(bytes).max().unwrap_or(1).max(1);
        let has_halves = free.nodes.iter().any(|node| node.op() == Op::Index && is_half(node));
        Ok(Accesses { list, widest_bytes, has_halves })
    }
}

/// By how much an integer grows along a range, if that is the same everywhere.
pub(crate) fn step(node: &UOp, range: &UOp, free: &Free) -> Option<i64> {
    if node == range {
        return Some(1);
    }
    if free.of_node(node) & free.of_node(range) == 0 {
        return Some(0);
    }
    let of = |source: usize| step(&node.src()[source], range, free);
    let constant =
        |source: usize| node.src()[source].as_int().and_then(|value| i64::try_from(value).ok());
    match node.op() {
        Op::Add => of(0)?.checked_add(of(1)?),
        Op::Sub => of(0)?.checked_sub(of(1)?),
        Op::Mul => match (constant(0), constant(1)) {
            (Some(factor), _) => of(1)?.checked_mul(factor),
            (_, Some(factor)) => of(0)?.checked_mul(factor),
            _ => None,
        },
        Op::Cast if node.src()[0].dtype().is_int() => of(0),
        _ => None,
    }
}
/// The plain loop along which most accesses go to neighbours.
pub(super) fn best_lane(chosen: &Chosen<'_>, access: &Accesses) -> Option<usize> {
    let list = &chosen.loops.list;
    let has_fold = list.iter().any(|one| one.is_reduced);
    let worth = |place: usize| {
        let one = &list[place];
        Some((worth(chosen, access, one, has_fold)?, one.is_output, one.axis.number, place))
    };
    (0..list.len()).filter_map(worth).max().map(|best| best.3)
}

/// What lanes along a loop would gain, if anything.
pub(super) fn worth(
    chosen: &Chosen<'_>,
    access: &Accesses,
    one: &Loop,
    has_fold: bool,
) -> Option<i64> {
    let may_fold = chosen.setting.mode != Mode::Strict && chosen.setting.target.groups.is_none();
    let is_right = one.axis.kind == AxisKind::Loop && one.is_output != one.is_reduced;
    if !is_right || one.is_reduced && !may_fold {
        return None;
    }
    let worth: i64 = access.list.iter().map(|access| access.worth(&one.range, has_fold)).sum();
    (0 < worth).then_some(worth)
}
