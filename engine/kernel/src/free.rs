//! The ranges that the nodes of a lowered kernel depend on.

use gradiff_graph::{Op, UOp};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::error::malformed;

/// Most ranges of a kernel: a set of them is the bits of a word.
pub(crate) const MAX_RANGES: usize = 64;

/// Most iterations of reductions that count in [`Free::weight`].
const WEIGHT_MAX: i64 = 1 << 12;

/// The ranges that each node of a lowered kernel depends on.
pub(crate) struct Free {
    /// The nodes, sources before users.
    pub(crate) nodes: Vec<UOp>,
    of: FxHashMap<UOp, u64>,
    /// The ranges of all reductions.
    reduced: u64,
}

impl Free {
    /// Computes the ranges of all nodes below a root.
    ///
    /// # Errors
    /// If there are more than [`MAX_RANGES`] ranges, or a node is not of a lowered kernel.
    pub(crate) fn of(root: &UOp) -> Result<Free, Error> {
        let Numbered { nodes, free, .. } = Numbered::of(root)?;
        let of = nodes.iter().cloned().zip(free).collect();
        let mut found = Free { nodes, of, reduced: 0 };
        let reductions = found.nodes.iter().filter(|node| node.op() == Op::Reduce);
        found.reduced = reductions.fold(0, |reduced, node| reduced | found.of_loops(node));
        Ok(found)
    }

    /// Returns whether a node runs in the loops of a reduction.
    pub(crate) fn is_reduced(&self, node: &UOp) -> bool {
        self.of_node(node) & self.reduced != 0
    }

    /// Returns how often a node runs, in terms of those outside of the loops of reductions: as if
    /// it were in all of them or in none.
    pub(crate) fn weight(&self, node: &UOp) -> i64 {
        if !self.is_reduced(node) {
            return 1;
        }
        let reduced = self.ranges().filter(|range| self.is_reduced(range));
        let counts = reduced.map(|range| range.trip_count().unwrap_or(1));
        counts.fold(1, i64::saturating_mul).min(WEIGHT_MAX)
    }

    /// Returns the ranges of a node, one bit each; a range depends on itself alone.
    pub(crate) fn of_node(&self, node: &UOp) -> u64 {
        self.of.get(node).copied().unwrap_or(0)
    }

    /// Returns whether a node is in the kernel.
    pub(crate) fn contains(&self, node: &UOp) -> bool {
        self.of.contains_key(node)
    }

    /// Returns the ranges that a reduction runs over, one bit each.
    pub(crate) fn of_loops(&self, reduction: &UOp) -> u64 {
        reduction.src().iter().skip(1).fold(0, |bits, range| bits | self.of_node(range))
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = &UOp> {
        self.nodes.iter().filter(|node| node.op() == Op::Range)
    }
}

/// The nodes of a lowered kernel, by number.
pub(crate) struct Numbered {
    /// The nodes, sources before users.
    pub(crate) nodes: Vec<UOp>,
    /// The sources of each node.
    pub(crate) src: Vec<SmallVec<[u32; 4]>>,
    /// The ranges that each node depends on.
    pub(crate) free: Vec<u64>,
    /// The nodes that are ranges, by bit.
    pub(crate) ranges: Vec<u32>,
}

impl Numbered {
    /// Numbers the nodes below a root.
    ///
    /// # Errors
    /// Those of [`Free::of`].
    pub(crate) fn of(root: &UOp) -> Result<Numbered, Error> {
        let nodes = root.toposort();
        let mut numbers: FxHashMap<&UOp, u32> = FxHashMap::default();
        numbers.reserve(nodes.len());
        let (mut src, mut free, mut ranges) = (Vec::new(), Vec::<u64>::new(), Vec::new());
        for (number, node) in nodes.iter().enumerate() {
            numbers.insert(node, number as u32);
            let sources: SmallVec<[u32; 4]> = node.src().iter().map(|x| numbers[x]).collect();
            let join = |sources: &[u32]| sources.iter().fold(0, |bits, x| bits | free[*x as usize]);
            let open = match node.op() {
                Op::Range if ranges.len() == MAX_RANGES => {
                    return Err(Error::TooManyLoops(MAX_RANGES + 1));
                }
                Op::Range => {
                    ranges.push(number as u32);
                    1 << (ranges.len() - 1)
                }
                Op::Reduce => join(&sources[..1]) & !join(&sources[1..]),
                // It ends the loops of the stores before it.
                Op::Barrier => {
                    let is_range = |source: &&u32| nodes[**source as usize].op() == Op::Range;
                    let ranges = sources.iter().filter(is_range).copied();
                    join(&sources) & !join(&ranges.collect::<SmallVec<[u32; 4]>>())
                }
                Op::Assign => join(&sources[1..]) & !join(&sources[..1]),
                Op::View | Op::ReduceAxis | Op::Iota => {
                    return Err(malformed(format!("{} after lowering", node.op())));
                }
                _ => join(&sources),
            };
            free.push(open);
            src.push(sources);
        }
        Ok(Numbered { nodes, src, free, ranges })
    }
}
