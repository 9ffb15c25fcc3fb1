//! Plans of graphs that differ from earlier ones in their buffers alone, as those of the steps of a
//! training loop do: they are copied, not made again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gradiff_graph::{Arg, Buffer, DType, Op, Placement, UOp};
use gradiff_schedule::Options;
use rustc_hash::FxHashMap;

use crate::plan::Plan;

/// Most plans that are kept.
const CAPACITY: usize = 64;
/// Most numbered buffers; all is forgotten then.
const NUMBERED_MAX: usize = 1 << 14;
/// Most nodes of a graph whose plan is kept.
const NODES_MAX: usize = 1 << 15;

/// A graph with numbered buffers in place of its own, and these.
pub(crate) struct Template {
    key: Key,
    /// The numbered buffers, and those that they stand for.
    buffers: FxHashMap<Buffer, Buffer>,
}

/// The graph and the settings that a plan depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    nodes: Vec<UOp>,
    schedule: Options,
    settings: Arc<str>,
}

/// A plan, and the nodes that the nodes of its graph are after it has run.
#[derive(Clone)]
struct Planned {
    plan: Plan,
    outputs: Vec<UOp>,
}

/// The plans of the graphs that an engine has planned.
#[derive(Default)]
pub(crate) struct Templates(Mutex<Entries>);

#[derive(Default)]
struct Entries {
    /// The numbered buffers: by number, dtype, size and placement.
    numbered: FxHashMap<(usize, DType, i64, Option<Placement>), Buffer>,
    plans: FxHashMap<Key, Planned>,
    /// Keys in the order of insertion, oldest first.
    order: VecDeque<Key>,
}

/// Rebuilds the nodes of `order`, each of which comes after those that it is computed from, on the
/// nodes that replace some of them, without markers of gradients: whether gradients flow makes no
/// difference to a plan. Adds the new nodes to `replaced`.
pub(crate) fn rebuild<'a>(order: &[&'a UOp], replaced: &mut FxHashMap<&'a UOp, UOp>) {
    for node in order {
        if replaced.contains_key(node) {
            continue;
        }
        let new = match node.op() {
            Op::Parameter | Op::Function | Op::Detach => replaced[&node.src()[0]].clone(),
            _ => node.with_src(node.src().iter().map(|src| replaced[src].clone())),
        };
        replaced.insert(node, new);
    }
}

impl Templates {
    /// Returns the template of a graph; `None` if the graph is too large to be kept.
    pub(crate) fn template(
        &self,
        nodes: &[UOp],
        schedule: Options,
        settings: &Arc<str>,
    ) -> Option<Template> {
        let sink = UOp::new(Op::Sink, DType::Void, nodes.iter().cloned(), Arg::None);
        let order = sink.value_order();
        if NODES_MAX < order.len() {
            return None;
        }
        let mut entries = self.lock();
        if NUMBERED_MAX < entries.numbered.len() {
            *entries = Entries::default();
        }
        let mut replaced: FxHashMap<&UOp, UOp> = FxHashMap::default();
        let mut buffers = FxHashMap::default();
        for node in &order {
            let Arg::Buffer(buffer) = node.arg() else { continue };
            let (dtype, size) = (buffer.dtype(), buffer.size_elements());
            let placement = buffer.placement().cloned();
            let key = (buffers.len(), dtype, size, placement.clone());
            let numbered = entries.numbered.entry(key);
            let numbered = numbered.or_insert_with(|| Buffer::on(placement, dtype, size));
            buffers.insert(numbered.clone(), buffer.clone());
            let new = UOp::new(Op::Buffer, node.dtype(), [], Arg::Buffer(numbered.clone()));
            replaced.insert(node, new);
        }
        let (_, below) = order.split_last().expect("the sink is the last node");
        rebuild(below, &mut replaced);
        let nodes = nodes.iter().map(|node| replaced[node].clone()).collect();
        let key = Key { nodes, schedule, settings: settings.clone() };
        Some(Template { key, buffers })
    }

    /// Returns the plan of a graph, and the nodes that its nodes are after it has run, if a graph
    /// with the same template has been planned.
    pub(crate) fn get(&self, template: &Template) -> Option<(Plan, Vec<UOp>)> {
        let planned = self.lock().plans.get(&template.key).cloned()?;
        Some(template.applied(planned))
    }

    /// Keeps a plan of the numbered graph, without executables, which the kernel cache may drop;
    /// returns that of the graph itself.
    pub(crate) fn insert(
        &self,
        template: &Template,
        mut plan: Plan,
        outputs: Vec<UOp>,
    ) -> (Plan, Vec<UOp>) {
        plan.items.iter_mut().for_each(|item| item.executable = None);
        let planned = Planned { plan, outputs };
        let mut entries = self.lock();
        if entries.plans.insert(template.key.clone(), planned.clone()).is_none() {
            entries.order.push_back(template.key.clone());
        }
        if CAPACITY < entries.order.len()
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.plans.remove(&oldest);
        }
        drop(entries);
        template.applied(planned)
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Template {
    /// The numbered graph, whose plan is to be kept.
    pub(crate) fn nodes(&self) -> &[UOp] {
        &self.key.nodes
    }

    /// A plan of the numbered graph with the buffers of the graph, and new ones for its results.
    fn applied(&self, planned: Planned) -> (Plan, Vec<UOp>) {
        let Planned { mut plan, outputs } = planned;
        let mut buffers = self.buffers.clone();
        let mut actual = |buffer: &Buffer| {
            let new = || {
                let placement = buffer.placement().cloned();
                Buffer::on(placement, buffer.dtype(), buffer.size_elements())
            };
            buffers.entry(buffer.clone()).or_insert_with(new).clone()
        };
        for item in &mut plan.items {
            item.buffers.iter_mut().for_each(|buffer| *buffer = actual(buffer));
        }
        let mut bound = |output: &UOp| match output.arg() {
            Arg::Buffer(buffer) => {
                UOp::new(Op::Buffer, output.dtype(), [], Arg::Buffer(actual(buffer)))
            }
            _ => output.clone(),
        };
        let outputs = outputs
            .iter()
            .map(|output| match output.op() {
                Op::Reshape => output.with_src([bound(&output.src()[0])]),
                _ => bound(output),
            })
            .collect();
        (plan, outputs)
    }
}
