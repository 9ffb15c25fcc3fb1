//! The driver: rules, applied from the sources up until none applies.
//!
//! One stack instead of recursion, one memo for each call. A node whose sources are final is tried
//! against the rules of its op, in the order of the tables; what comes out is visited in turn.
//! A result that leads back to a node being rewritten is a loop: it is reported and left as it is.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use gradiff_graph::{Sources, UOp};
use rustc_hash::FxHashMap;

use crate::bounds::Bounds;
use crate::rule::Mode;
use crate::ruleset::RuleSet;

/// How to rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Which claims are good enough.
    pub mode: Mode,
    /// Stop after this many applications, counted over all calls with one [`Trace`]; for bisecting.
    pub fuel: Option<u64>,
}

/// What was done, added up over all calls.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Applications of rules.
    pub applied: u64,
    /// Applications of each rule.
    pub counts: BTreeMap<&'static str, u64>,
    /// Each application, in order; `None` if they are not to be kept.
    pub steps: Option<Vec<Step>>,
    /// Whether the fuel or the limit against endless growth ended a call.
    pub ran_out: bool,
    /// Rules whose result led back to a node that was being rewritten.
    pub loops: Vec<&'static str>,
}

impl Trace {
    /// A trace that keeps each step.
    pub fn with_steps() -> Trace {
        Trace { steps: Some(Vec::new()), ..Trace::default() }
    }
}

/// One application of a rule.
#[derive(Clone, Debug)]
pub struct Step {
    /// The rule.
    pub rule: &'static str,
    /// The node it was applied to.
    pub before: UOp,
    /// What came out.
    pub after: UOp,
}

/// How many applications one call may take: rules that grow a term without end must stop.
const APPLICATIONS_LIMIT: u64 = 200_000;

/// How many nodes a call has room for at first.
const USUAL_NODES: usize = 28;

/// Applies `rules` from the sources up to a fixed point and gives the new root. The same root,
/// rules and options give the same result; a node that occurs twice is rewritten once.
pub fn rewrite(root: &UOp, rules: &RuleSet, options: &Options, trace: &mut Trace) -> UOp {
    let driver = Driver {
        rules,
        options,
        left: APPLICATIONS_LIMIT,
        trace,
        counts: vec![0; rules.len()],
        last: "",
        bounds: Bounds::default(),
        done: FxHashMap::with_capacity_and_hasher(USUAL_NODES, Default::default()),
    };
    driver.run(root)
}

struct Driver<'a> {
    rules: &'a RuleSet,
    options: &'a Options,
    left: u64,
    trace: &'a mut Trace,
    counts: Vec<u64>,
    last: &'static str,
    bounds: Bounds,
    /// What nodes became; `None` of a node that is being rewritten.
    done: FxHashMap<UOp, Option<UOp>>,
}

enum Frame {
    /// Rewrite this node.
    Visit(UOp),
    /// Its sources are final: put it together again and try the rules.
    Build(UOp),
    /// The first two nodes become what the third one became.
    Link(UOp, UOp, UOp),
}

impl Driver<'_> {
    fn run(mut self, root: &UOp) -> UOp {
        let mut stack = vec![Frame::Visit(root.clone())];
        while let Some(frame) = stack.pop() {
            match frame {
                Frame::Visit(node) => self.visit(node, &mut stack),
                Frame::Build(node) => self.build(node, &mut stack),
                Frame::Link(node, rebuilt, target) => {
                    let result = self.result(&target);
                    if rebuilt != node {
                        self.done.insert(rebuilt, Some(result.clone()));
                    }
                    self.done.insert(node, Some(result));
                }
            }
        }
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let name = self.rules.get(index as u16).row.name;
            *self.trace.counts.entry(name).or_default() += count;
        }
        self.result(root)
    }

    fn visit(&mut self, node: UOp, stack: &mut Vec<Frame>) {
        if node.src().is_empty() {
            return;
        }
        match self.done.entry(node.clone()) {
            Entry::Vacant(place) => {
                place.insert(None);
            }
            Entry::Occupied(mut place) => {
                if place.get().is_none() {
                    self.trace.loops.push(self.last);
                    place.insert(Some(node));
                }
                return;
            }
        }
        stack.push(Frame::Build(node.clone()));
        let sources = node.src().iter().rev();
        let waiting = sources.filter(|src| !src.src().is_empty() && !self.is_done(src));
        stack.extend(waiting.map(|source| Frame::Visit(source.clone())));
    }

    fn build(&mut self, node: UOp, stack: &mut Vec<Frame>) {
        let src: Sources = node.src().iter().map(|source| self.result(source)).collect();
        let is_same = src.as_slice() == node.src();
        let rebuilt = if is_same { node.clone() } else { node.with_src(src) };
        if !is_same && let Some(Some(result)) = self.done.get(&rebuilt).cloned() {
            self.done.insert(node, Some(result));
            return;
        }
        match self.step(&rebuilt) {
            Some(next) => {
                stack.push(Frame::Link(node, rebuilt, next.clone()));
                stack.push(Frame::Visit(next));
            }
            None => {
                if !is_same {
                    self.done.insert(rebuilt.clone(), Some(rebuilt.clone()));
                }
                self.done.insert(node, Some(rebuilt));
            }
        }
    }

    /// What the node became; itself if it was not rewritten.
    fn result(&self, node: &UOp) -> UOp {
        self.done.get(node).and_then(Option::as_ref).unwrap_or(node).clone()
    }

    fn is_done(&self, node: &UOp) -> bool {
        self.done.get(node).is_some_and(Option::is_some)
    }

    /// The first rule that applies to the node.
    fn step(&mut self, node: &UOp) -> Option<UOp> {
        let candidates = self.rules.candidates(node);
        let is_empty = self.options.fuel.is_some_and(|fuel| fuel <= self.trace.applied);
        if self.left == 0 || is_empty {
            self.trace.ran_out = true;
            return None;
        }
        for candidate in candidates.iter().filter(|candidate| candidate.may_apply(node)) {
            let rule = self.rules.get(candidate.index);
            if !self.options.mode.allows(rule.row.claim) {
                continue;
            }
            if let Some(after) = rule.apply(node, &mut self.bounds) {
                self.counts[usize::from(candidate.index)] += 1;
                self.left -= 1;
                self.trace.applied += 1;
                self.last = rule.row.name;
                if let Some(steps) = &mut self.trace.steps {
                    let rule = rule.row.name;
                    steps.push(Step { rule, before: node.clone(), after: after.clone() });
                }
                return Some(after);
            }
        }
        None
    }
}
