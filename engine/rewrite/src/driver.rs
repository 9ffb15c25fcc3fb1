//! The driver: applies rules from the sources up until none applies.
//!
//! It uses a stack instead of recursion, and one memo for each call. When the sources of a node are
//! final, the rules of its op are tried in the order of the tables; a result is visited in turn,
//! unless the row says that it is final. A result that leads back to a node being rewritten is a
//! loop: it is reported and left as it is.

use std::collections::BTreeMap;
use std::collections::hash_map::Entry;

use gradiff_graph::text::infix;
use gradiff_graph::{Sources, UOp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::bounds::Bounds;
use crate::context::Context;
use crate::rule::Mode;
use crate::ruleset::RuleSet;
use crate::shared::shared_values;
use crate::syntax::ParsedRule;

/// Options of a rewrite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The claims whose rules may run.
    pub mode: Mode,
    /// Limit of the applications, counted over all calls with one [`Trace`]; for bisection.
    pub fuel: Option<u64>,
}

/// Record of the applications of rules, added up over all calls.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Number of applications.
    pub applied: u64,
    /// Number of applications of each rule.
    pub counts: BTreeMap<&'static str, u64>,
    /// Each application, in order; `None` if they are not recorded.
    pub steps: Option<Vec<Step>>,
    /// True if the fuel or the limit against endless growth ended a call.
    pub ran_out: bool,
    /// Rewrites that led back to a node that was being rewritten.
    pub loops: Vec<Cycle>,
}

impl Trace {
    /// A trace that records each step.
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
    /// The result.
    pub after: UOp,
    /// Nesting depth: 0, or more within a computed right side, whose inner steps come before its
    /// own step.
    pub depth: u32,
}

/// Steps that lead from a node back to it.
#[derive(Clone, Debug)]
pub struct Cycle {
    /// The rules in order, each with the node it was applied to.
    pub steps: Vec<Step>,
}

impl std::fmt::Display for Cycle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for step in &self.steps {
            let (before, after) = (infix(&step.before), infix(&step.after));
            writeln!(f, "{}: {before} -> {after}", step.rule)?;
        }
        Ok(())
    }
}

/// Limit of the applications of one call, which stops rules that grow a term without end.
const APPLICATIONS_LIMIT: u64 = 200_000;

/// Initial capacity of the memo of a call, in nodes.
const MEMO_CAPACITY: usize = 28;

/// Applies `rules` from the sources up to a fixed point and returns the new root. The same root,
/// rules and options give the same result; a node that occurs twice is rewritten once.
pub fn rewrite(root: &UOp, rules: &RuleSet, options: &Options, trace: &mut Trace) -> UOp {
    let mut scope = Scope::new(rules, options, trace);
    scope.bounds.shared = shared_values(root);
    let result = scope.rewrite(root);
    scope.add_counts();
    result
}

impl ParsedRule {
    /// Applies the rule to the node itself, not to its sources. Returns `None` if it does not
    /// apply, and never the same node. A computed right side rewrites its result with `rules`.
    pub fn apply(&self, node: &UOp, rules: &RuleSet) -> Option<UOp> {
        let (options, mut trace) = (Options::default(), Trace::default());
        self.apply_in(node, &mut Scope::new(rules, &options, &mut trace))
    }
}

/// Applies the first rule that applies to the node itself, once; `None` if there is none.
pub fn apply(node: &UOp, rules: &RuleSet, options: &Options, trace: &mut Trace) -> Option<UOp> {
    let mut scope = Scope::new(rules, options, trace);
    let after =
        Driver { done: FxHashMap::default(), path: Vec::new(), scope: &mut scope }.step(node);
    scope.add_counts();
    after.map(|(after, _)| after)
}

/// Context of the rules that are tried: bounds, and the rewriting of their results.
struct Scope<'a> {
    bounds: Bounds,
    rules: &'a RuleSet,
    options: &'a Options,
    trace: &'a mut Trace,
    applications_left: u64,
    depth: u32,
    /// Number of applications of each rule, not yet added to the trace.
    counts: Vec<u64>,
    /// Nodes to which no rule applies, nor to any node below them: nested calls skip them.
    finals: FxHashSet<UOp>,
}

impl<'a> Scope<'a> {
    fn new(rules: &'a RuleSet, options: &'a Options, trace: &'a mut Trace) -> Scope<'a> {
        let applications_left = APPLICATIONS_LIMIT;
        let counts = vec![0; rules.len()];
        let (bounds, finals) = (Bounds::default(), FxHashSet::default());
        Scope { bounds, rules, options, trace, applications_left, depth: 0, counts, finals }
    }

    fn rewrite(&mut self, root: &UOp) -> UOp {
        let driver = Driver {
            done: FxHashMap::with_capacity_and_hasher(MEMO_CAPACITY, Default::default()),
            path: Vec::new(),
            scope: self,
        };
        driver.run(root)
    }

    /// Adds the counts of this call to the trace.
    fn add_counts(&mut self) {
        for (index, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let name = self.rules.get(index as u16).row.name;
            *self.trace.counts.entry(name).or_default() += count;
        }
    }

    fn is_spent(&self) -> bool {
        self.applications_left == 0
            || self.options.fuel.is_some_and(|fuel| fuel <= self.trace.applied)
    }
}

impl Context for Scope<'_> {
    fn bounds(&mut self) -> &mut Bounds {
        &mut self.bounds
    }

    fn nested(&mut self, root: &UOp) -> UOp {
        self.depth += 1;
        let result = self.rewrite(root);
        self.depth -= 1;
        result
    }
}

struct Driver<'a, 'b> {
    scope: &'b mut Scope<'a>,
    /// The results of nodes; `None` for a node that is being rewritten.
    done: FxHashMap<UOp, Option<UOp>>,
    /// The steps whose results are being rewritten, for the report of a cycle.
    path: Vec<Step>,
}

enum Frame {
    /// Rewrite this node.
    Visit(UOp),
    /// Its sources are final: rebuild the node and try the rules.
    Build(UOp),
    /// The result of the third node is that of the first two.
    Link(UOp, UOp, UOp),
}

impl Driver<'_, '_> {
    fn run(mut self, root: &UOp) -> UOp {
        let mut stack = vec![Frame::Visit(root.clone())];
        while let Some(frame) = stack.pop() {
            match frame {
                Frame::Visit(node) => self.visit(node, &mut stack),
                Frame::Build(node) => self.build(node, &mut stack),
                Frame::Link(node, rebuilt, target) => {
                    let result = self.result(&target);
                    if rebuilt != node {
                        self.finish(rebuilt, result.clone());
                    }
                    self.finish(node, result);
                    self.path.pop();
                }
            }
        }
        self.result(root)
    }

    fn visit(&mut self, node: UOp, stack: &mut Vec<Frame>) {
        if node.src().is_empty() {
            return;
        }
        if self.scope.depth > 0 && self.scope.finals.contains(&node) {
            self.done.insert(node.clone(), Some(node));
            return;
        }
        match self.done.entry(node.clone()) {
            Entry::Vacant(entry) => {
                entry.insert(None);
            }
            Entry::Occupied(mut entry) => {
                if entry.get().is_none() {
                    entry.insert(Some(node.clone()));
                    self.report_cycle(&node);
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
            self.finish(node, result);
            return;
        }
        match self.step(&rebuilt) {
            Some((next, true)) => {
                self.path.pop();
                if !is_same {
                    self.finish(rebuilt, next.clone());
                }
                self.finish(node, next);
            }
            Some((next, false)) => {
                stack.push(Frame::Link(node, rebuilt, next.clone()));
                stack.push(Frame::Visit(next));
            }
            None => {
                if !self.scope.is_spent() {
                    self.scope.finals.insert(rebuilt.clone());
                }
                if !is_same {
                    self.finish(rebuilt.clone(), rebuilt.clone());
                }
                self.finish(node, rebuilt);
            }
        }
    }

    /// Records the result of a node.
    fn finish(&mut self, node: UOp, result: UOp) {
        self.scope.bounds.replaced(&node, &result);
        self.done.insert(node, Some(result));
    }

    /// The result of the node; itself if it was not rewritten.
    fn result(&self, node: &UOp) -> UOp {
        self.done.get(node).and_then(Option::as_ref).unwrap_or(node).clone()
    }

    fn is_done(&self, node: &UOp) -> bool {
        self.done.get(node).is_some_and(Option::is_some)
    }

    /// Reports the steps since `node` was visited first.
    fn report_cycle(&mut self, node: &UOp) {
        let start = self.path.iter().rposition(|step| step.before == *node).unwrap_or(0);
        self.scope.trace.loops.push(Cycle { steps: self.path[start..].to_vec() });
    }

    /// Applies the first rule that applies to the node; returns also whether the result is final.
    fn step(&mut self, node: &UOp) -> Option<(UOp, bool)> {
        let rules = self.scope.rules;
        if self.scope.is_spent() {
            self.scope.trace.ran_out = true;
            return None;
        }
        for candidate in rules.candidates(node).iter().filter(|rule| rule.may_apply(node)) {
            let rule = rules.get(candidate.index);
            if !self.scope.options.mode.allows(rule.row.claim) {
                continue;
            }
            if let Some(after) = rule.apply_in(node, self.scope) {
                self.scope.counts[usize::from(candidate.index)] += 1;
                self.scope.applications_left = self.scope.applications_left.saturating_sub(1);
                self.scope.trace.applied += 1;
                let is_final = rule.row.is_single;
                let (rule, before, depth) = (rule.row.name, node.clone(), self.scope.depth);
                let step = Step { rule, before, after: after.clone(), depth };
                if let Some(steps) = &mut self.scope.trace.steps {
                    steps.push(step.clone());
                }
                self.path.push(step);
                return Some((after, is_final));
            }
        }
        None
    }
}
