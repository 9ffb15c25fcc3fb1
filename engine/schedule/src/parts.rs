//! Graphs on several devices: cut at their copies into parts, each on one device.
//!
//! In: the requested nodes, and the device of each placement. Out: parts in the order in which they
//! are computed, each with the nodes to compute on its device. The caller gives their results to
//! [`Parts::finish`], and later parts use these instead of the nodes. A node without a device is
//! computed where it is used, and a copy from a device to itself cuts nothing. Nothing is scheduled
//! here.
//!
//! Movement ops under a copy are applied after it, unless fewer elements are copied before them: of
//! `copy(permute(x))`, `x` is copied, of `copy(expand(shrink(x)))` the shrunk part.

use std::collections::BTreeMap;

use gradiff_graph::{Arg, DType, Op, Placement, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{Error, size_of};

/// The name of a device.
type Name = &'static str;

/// The nodes that are computed together on a device.
#[derive(Debug)]
pub struct Part {
    /// The device.
    pub device: &'static str,
    /// The nodes, in which the results of earlier parts stand for what they compute.
    pub nodes: Vec<UOp>,
    /// The nodes as they were requested.
    requested: Vec<UOp>,
}

/// A graph on several devices that is computed part by part.
pub struct Parts {
    outputs: Vec<UOp>,
    /// The nodes to compute, by the number of copies between devices below them, and by device.
    pending: BTreeMap<(usize, Name), Vec<UOp>>,
    /// The nodes that are requested.
    requested: FxHashSet<UOp>,
    /// The copies between devices.
    copies: FxHashMap<UOp, Copied>,
    /// The targets of the copies of each node.
    targets_of: FxHashMap<UOp, Vec<Placement>>,
    /// The result of each node that was computed.
    results: FxHashMap<UOp, UOp>,
    /// The results on their targets, by node and target.
    targets: FxHashMap<(UOp, Placement), UOp>,
}

/// A copy between devices.
struct Copied {
    /// The node whose elements are copied.
    node: UOp,
    target: Placement,
    /// The movement ops that are applied after the copy, in order.
    movements: Vec<UOp>,
}

/// The position of a node: the number of copies between devices below it, on the longest path, and
/// its device.
type Position = (usize, Option<Name>);

impl Parts {
    /// Cuts the graph of `outputs`. The function gives the device of a placement.
    ///
    /// # Errors
    /// [`Error::Devices`] if the sources of a node are on different devices, and the error of the
    /// function.
    pub fn new<E: From<Error>>(
        outputs: &[UOp],
        device: impl Fn(&Placement) -> Result<&'static str, E>,
    ) -> Result<Parts, E> {
        let mut parts = Parts {
            outputs: outputs.to_vec(),
            pending: BTreeMap::new(),
            requested: FxHashSet::default(),
            copies: FxHashMap::default(),
            targets_of: FxHashMap::default(),
            results: FxHashMap::default(),
            targets: FxHashMap::default(),
        };
        let mut positions: FxHashMap<&UOp, Position> = FxHashMap::default();
        let roots = UOp::new(Op::Sink, DType::Void, outputs.iter().cloned(), Arg::None);
        for node in roots.value_order().into_iter().filter(|node| **node != roots) {
            let (level, sources) = position_of_sources(node, &positions)?;
            let position = match node.arg() {
                Arg::Buffer(buffer) => (level, buffer.placement().map(&device).transpose()?),
                Arg::Device(target) => {
                    let name = device(target)?;
                    let is_between = sources.is_some_and(|source| source != name);
                    if let Some(source) = sources.filter(|_| is_between) {
                        let copied = Copied::new(node, target);
                        parts.request(&copied.node, level, source);
                        let targets = parts.targets_of.entry(copied.node.clone()).or_default();
                        if !targets.contains(target) {
                            targets.push(target.clone());
                        }
                        parts.copies.insert(node.clone(), copied);
                    }
                    (level + usize::from(is_between), Some(name))
                }
                _ => (level, sources),
            };
            positions.insert(node, position);
        }
        for output in outputs {
            let (level, name) = positions[output];
            let name = name.map_or_else(|| device(&Placement::Default), Ok)?;
            parts.request(output, level, name);
        }
        Ok(parts)
    }

    fn request(&mut self, node: &UOp, level: usize, device: Name) {
        if self.requested.insert(node.clone()) {
            self.pending.entry((level, device)).or_default().push(node.clone());
        }
    }

    /// Takes the next part; all copies in it, between devices, are of results of earlier parts.
    pub fn take(&mut self) -> Option<Part> {
        let ((_, device), requested) = self.pending.pop_first()?;
        let nodes = if self.copies.is_empty() && self.results.is_empty() {
            requested.clone()
        } else {
            let mut replaced = FxHashMap::default();
            requested.iter().map(|node| self.replaced(node, &mut replaced)).collect()
        };
        Some(Part { device, nodes, requested })
    }

    /// Records the results of a part: for each node a buffer, a reshape of one, or a constant. The
    /// function gives the result on another device.
    ///
    /// # Errors
    /// The error of the function.
    pub fn finish<E>(
        &mut self,
        part: Part,
        results: Vec<UOp>,
        copy: impl Fn(&UOp, &Placement) -> Result<UOp, E>,
    ) -> Result<(), E> {
        assert_eq!(part.requested.len(), results.len(), "each node of a part has a result");
        for (node, result) in part.requested.into_iter().zip(results) {
            assert_eq!(node.shape(), result.shape(), "a result has the shape of its node");
            assert_eq!(node.dtype(), result.dtype(), "a result has the dtype of its node");
            for target in self.targets_of.remove(&node).unwrap_or_default() {
                let on_target = placed(copy(&result, &target)?, Some(&target));
                self.targets.insert((node.clone(), target), on_target);
            }
            let result = placed(result, node.device());
            self.results.insert(node, result);
        }
        Ok(())
    }

    /// Returns the results of the outputs, when there is no part left.
    pub fn outputs(&self) -> Vec<UOp> {
        assert!(self.pending.is_empty(), "all parts are computed");
        self.outputs.iter().map(|output| self.results[output].clone()).collect()
    }

    /// Returns a node over the results so far.
    fn replaced(&self, root: &UOp, replaced: &mut FxHashMap<UOp, UOp>) -> UOp {
        // Without recursion, as chains may be of any length.
        let mut stack = vec![root.clone()];
        while let Some(node) = stack.last().cloned() {
            if replaced.contains_key(&node) {
                stack.pop();
                continue;
            }
            let known = self.results.get(&node).cloned().or_else(|| self.copied(&node));
            let is_known = known.is_some();
            let sources =
                node.value_src().iter().filter(|src| !is_known && !replaced.contains_key(*src));
            let pending: Vec<UOp> = sources.cloned().collect();
            if pending.is_empty() {
                let new = known.unwrap_or_else(|| match node.op() {
                    // The values of earlier parts have no gradients.
                    Op::Function => replaced[&node.src()[0]].clone(),
                    _ => with_shape(
                        node.with_src(node.src().iter().map(|src| replaced[src].clone())),
                    ),
                });
                replaced.insert(node, new);
                stack.pop();
            }
            stack.extend(pending);
        }
        replaced[root].clone()
    }

    /// Returns the result of a copy between devices; `None` for other nodes.
    fn copied(&self, node: &UOp) -> Option<UOp> {
        let Copied { node, target, movements } = self.copies.get(node)?;
        let on_target = self.targets[&(node.clone(), target.clone())].clone();
        let moved = |source, movement: &UOp| with_shape(movement.with_src([source]));
        Some(movements.iter().fold(on_target, moved))
    }
}

impl Copied {
    /// Chooses the node that is copied: of the source of the copy and the nodes below it through
    /// movement ops, the one with the fewest elements; of several, the lowest.
    fn new(copy: &UOp, target: &Placement) -> Copied {
        let mut movements = vec![&copy.src()[0]];
        while let Some(last) = movements.last().filter(|last| last.op().is_movement()) {
            movements.push(&last.src()[0]);
        }
        movements.reverse();
        let sizes = movements.iter().enumerate().map(|(index, node)| (size_of(node), index));
        let (_, first) = sizes.min().expect("a copy has a source");
        let mut movements = movements.into_iter().skip(first).cloned();
        let node = movements.next().expect("the node that is copied");
        Copied { node, target: target.clone(), movements: movements.collect() }
    }
}

/// Returns the position that the sources of a node give it.
fn position_of_sources(
    node: &UOp,
    positions: &FxHashMap<&UOp, Position>,
) -> Result<Position, Error> {
    let (mut level, mut device): Position = (0, None);
    for (below, name) in node.value_src().iter().map(|src| positions[src]) {
        level = level.max(below);
        match (device, name) {
            (Some(first), Some(second)) if first != second => {
                return Err(Error::Devices { op: node.op(), first, second });
            }
            _ => device = device.or(name),
        }
    }
    Ok((level, device))
}

/// Returns a result on a device: a constant has none, but what is made of it has to have one.
fn placed(result: UOp, device: Option<&Placement>) -> UOp {
    match device {
        Some(device) if result.device().is_none() => {
            let arg = Arg::Device(device.clone());
            with_shape(UOp::new(Op::Copy, result.dtype(), [result], arg))
        }
        _ => result,
    }
}

/// Returns a new node after inferring its shape, since inferring it later may take long.
fn with_shape(node: UOp) -> UOp {
    assert!(node.shape().is_some(), "a node of tensor level has a shape");
    node
}
