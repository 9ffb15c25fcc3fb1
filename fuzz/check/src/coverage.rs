//! What cases make the engine do: how often each rewrite rule applies, to nodes of which op and
//! dtype, and which device runs which op at which dtype. What never occurred is a hole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Linear, OPS, Op, UOp, verify};
use gradiff::kernel::{Context, PASSES, Target};
use gradiff::rewrite::{Claim, Mode, Options, Rule, Trace, rewrite, symbolic};
use gradiff_corpus::{Case, Program, embedded, parse};

use crate::stages::{self, Way};
use crate::{Backend, Outcome};

/// The devices of the matrix, in its order.
pub const DEVICES: [&str; 3] = ["interp", "jit", "c"];

/// An op and the dtype of its operands (of its value, if it has none).
pub type At = (Op, DType);

/// What a set of cases makes the engine do.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// For each rule, how often it applied: to a node of this op over operands of this dtype, on
    /// the way to this device; "" if no device takes part (views and expressions).
    pub rules: BTreeMap<&'static str, BTreeMap<(At, &'static str), u64>>,
    /// For each device that is there, how many uops of this op and dtype its kernels had.
    pub devices: BTreeMap<&'static str, BTreeMap<At, u64>>,
    /// Devices that are not there, and why.
    pub missing: BTreeMap<&'static str, String>,
}

/// All rules, in the order of their tables.
fn rules() -> impl Iterator<Item = Rule> {
    gradiff::rewrite::rules::rows().into_iter()
}

/// The cases of the embedded corpus.
///
/// # Panics
/// If one does not parse; a test of the corpus says that all do.
pub fn embedded_cases() -> Vec<Case> {
    let case = |(_, text): &(&str, &str)| parse(text).expect("a test parses the corpus").case;
    embedded().iter().map(case).collect()
}

/// How often each rule applies in the cases; every rule is there, those that never do with 0.
/// A case that the engine refuses counts as far as it came.
pub fn fired(cases: &[Case]) -> BTreeMap<&'static str, u64> {
    let mut counts: BTreeMap<&'static str, u64> = rules().map(|rule| (rule.name, 0)).collect();
    for case in cases {
        // What is refused is a finding elsewhere.
        let trace = crate::catch(|| trace(case, Trace::default())).unwrap_or_default();
        for (rule, count) in trace.counts {
            *counts.entry(rule).or_default() += count;
        }
    }
    counts
}

/// How often each rule applies in the case, in the order of the tables, at most 255.
pub(crate) fn counters(case: &Case) -> [u8; crate::fuzz::RULES] {
    static PLACES: OnceLock<BTreeMap<&'static str, usize>> = OnceLock::new();
    let places = PLACES.get_or_init(|| rules().map(|rule| rule.name).zip(0..).collect());
    let mut counters = [0; crate::fuzz::RULES];
    let trace = crate::catch(|| trace(case, Trace::default())).unwrap_or_default();
    for (rule, count) in trace.counts {
        let counter = places.get(rule).and_then(|place| counters.get_mut(*place));
        counter.into_iter().for_each(|counter| *counter = count.min(255) as u8);
    }
    counters
}

/// Whether the rule of this name applies in the case.
///
/// # Errors
/// There is no such rule, or it does not apply.
pub(crate) fn fires(case: &Case, name: &str) -> Result<(), String> {
    if !rules().any(|rule| rule.name == name) {
        return Err(format!("there is no rule {name}; `gradiff rules` lists them"));
    }
    let counts = trace(case, Trace::default()).counts;
    if counts.contains_key(name) {
        return Ok(());
    }
    let others: Vec<&str> = counts.into_keys().collect();
    Err(format!("expected rule {name} to fire; these did: {}", others.join(", ")))
}

/// What the rules did to a case: the kernels of a program on their way to linear uops, the index
/// and the validity of a tracker, an expression.
fn trace(case: &Case, mut trace: Trace) -> Trace {
    let with = Options::default();
    match case {
        Case::Program(program) => {
            // As far as it goes: what the engine refuses, other checks report.
            let _ = kernels(program, &mut trace);
        }
        Case::Views(views) => {
            for tracker in crate::views::tracker(views).into_iter().flat_map(|t| [t.simplify(), t])
            {
                let (index, valid) = crate::expects::indexed(&tracker, false);
                for node in std::iter::once(index).chain(valid) {
                    rewrite(&node, &symbolic(), &with, &mut trace);
                }
            }
        }
        Case::Expr(expr) => {
            rewrite(&crate::to_uop(expr), &symbolic(), &with, &mut trace);
        }
    }
    trace
}

/// The kernels of a program, linear. What fast mode alone does to them is traced as well.
fn kernels(program: &Program, trace: &mut Trace) -> Result<Vec<Linear>, String> {
    let way = Way::default();
    let schedule = stages::scheduled(&stages::graph(program)?, &way)?;
    let mut fast = way.kernel.clone();
    fast.rewrite.mode = Mode::Fast;
    let mut more = Trace { steps: trace.steps.as_ref().map(|_| Vec::new()), ..Trace::default() };
    for item in &schedule.items {
        gradiff::kernel::lower(&item.ast, &Target::default(), &fast, &mut more)
            .map_err(|error| error.to_string())?;
    }
    let is_fast = |name: &str| rules().any(|rule| rule.name == name && rule.claim == Claim::Finite);
    trace.counts.extend(more.counts.into_iter().filter(|(name, _)| is_fast(name)));
    let steps = more.steps.into_iter().flatten().filter(|step| is_fast(step.rule));
    if let Some(known) = &mut trace.steps {
        known.extend(steps);
    }
    let lower = |ast| gradiff::kernel::lower(ast, &way.target, &way.kernel, trace);
    let kernels = schedule.items.iter().map(|item| &item.ast).map(lower);
    let plain = kernels.map(|kernel| kernel.map(BoundedLinear::into_linear));
    plain.collect::<Result<_, _>>().map_err(|error| error.to_string())
}

/// Counts what the cases do; programs run on all devices that are there.
pub fn coverage(cases: &[Case]) -> Coverage {
    let all = rules().map(|rule| (rule.name, BTreeMap::new())).collect();
    let mut coverage = Coverage { rules: all, ..Coverage::default() };
    let programs: Vec<&Program> = cases
        .iter()
        .filter_map(|case| match case {
            Case::Program(program) => Some(program),
            Case::Views(_) | Case::Expr(_) => None,
        })
        .collect();
    for case in cases.iter().filter(|case| !matches!(case, Case::Program(_))) {
        let trace = crate::catch(|| trace(case, Trace::with_steps())).unwrap_or_default();
        coverage.count_rules(trace, "");
    }
    for device in DEVICES {
        match crate::backends(&[device.to_string()]) {
            Ok(backends) => coverage.count_device(device, &*backends[0], &programs),
            Err(error) => drop(coverage.missing.insert(device, error.message)),
        }
    }
    coverage
}

impl Coverage {
    fn count_rules(&mut self, trace: Trace, device: &'static str) {
        for step in trace.steps.into_iter().flatten() {
            let at = ((step.before.op(), operands(&step.before)), device);
            *self.rules.entry(step.rule).or_default().entry(at).or_default() += 1;
        }
    }

    /// The rules and uops of the programs that a device gave an answer to.
    fn count_device(&mut self, device: &'static str, on: &dyn Backend, programs: &[&Program]) {
        self.devices.insert(device, BTreeMap::new());
        for (program, outcome) in programs.iter().zip(on.run(programs)) {
            if !matches!(outcome, Outcome::Values(_)) {
                continue;
            }
            let mut trace = Trace::with_steps();
            let linears = kernels(program, &mut trace).unwrap_or_default();
            self.count_rules(trace, device);
            let ran = self.devices.entry(device).or_default();
            for linear in &linears {
                for uop in &linear.uops {
                    let is_by_source = uop.op.is_elementwise() || uop.op == Op::Store;
                    let last = uop.src.last().filter(|_| is_by_source);
                    let dtype = last.map_or(uop.dtype, |last| linear.uops[*last as usize].dtype);
                    *ran.entry((uop.op, dtype)).or_default() += 1;
                }
            }
        }
    }

    /// How often a rule applied.
    pub fn fired(&self, rule: &str) -> u64 {
        self.rules.get(rule).map_or(0, |counts| counts.values().sum())
    }

    /// The rules that never applied, in the order of their names.
    pub fn never_fired(&self) -> Vec<&'static str> {
        self.rules.keys().copied().filter(|rule| self.fired(rule) == 0).collect()
    }

    /// The dtypes that each rule is for and at which it never applied. Not every one can be had:
    /// conditions may leave out what the column of types allows.
    pub fn rule_holes(&self) -> BTreeMap<&'static str, Vec<DType>> {
        let mut holes = BTreeMap::new();
        for rule in rules() {
            let counts = self.rules.get(rule.name);
            let seen: BTreeSet<DType> =
                counts.into_iter().flatten().map(|(((_, dtype), _), _)| *dtype).collect();
            let is_hole = |dtype: &DType| rule.types.has(*dtype) && !seen.contains(dtype);
            let missed: Vec<DType> = DType::ALL.into_iter().filter(is_hole).collect();
            if !missed.is_empty() && !seen.contains(&DType::Void) {
                holes.insert(rule.name, missed);
            }
        }
        holes
    }

    /// What the op table allows, pass `legalize` leaves and no kernel of the device had.
    pub fn device_holes(&self, device: &str) -> Vec<At> {
        let Some(ran) = self.devices.get(device) else { return Vec::new() };
        let all = OPS.iter().map(|row| row.op).filter(|op| op.is_elementwise());
        let all = all.flat_map(|op| DType::ALL.map(|dtype| (op, dtype)));
        all.filter(|at| !ran.contains_key(at) && is_allowed(*at)).collect()
    }
}

/// The dtype of a node's operands; its own if it has none, or if they are a value and ranges.
fn operands(node: &UOp) -> DType {
    let last = node.src().last().filter(|_| node.op() != Op::Reduce);
    last.map_or(node.dtype(), UOp::dtype)
}

/// Whether a kernel for the default target may have this op over operands of this dtype.
fn is_allowed((op, dtype): At) -> bool {
    let value = UOp::constant(Constant::zero(dtype));
    let condition = UOp::constant(Constant::bool(true));
    let sources = match op.row().arity.0 {
        _ if op == Op::Where => vec![condition, value.clone(), value],
        count => vec![value; count],
    };
    let to = if op.is_comparison() { DType::Bool } else { dtype };
    let node = UOp::new(op, to, sources, Arg::None);
    let (target, options, mut trace) = (Target::default(), Default::default(), Trace::default());
    let mut ctx = Context::new(&node, &target, &options, &mut trace);
    let legalize = PASSES.last().expect("there are passes");
    verify(&node).is_ok() && (legalize.run)(&node, &mut ctx).is_ok_and(|legal| legal == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_in_the_order_of_the_rules() {
        assert!(rules().count() <= crate::fuzz::RULES);
        let file = parse("var p bool\nexpr !!p | !!p").expect("a case parses");
        let counters = counters(&file.case);
        let fired = rules().zip(counters).filter(|(_, count)| *count != 0);
        let fired: Vec<_> = fired.map(|(rule, count)| (rule.name, count)).collect();
        assert_eq!(fired, [("boolean/not-not", 1), ("boolean/or-self", 1)]);
    }

    #[test]
    fn holes_are_what_the_op_table_allows_on_the_target() {
        assert!(is_allowed((Op::Add, DType::I8)));
        assert!(is_allowed((Op::Where, DType::BF16)));
        // Computed in f32; no op of integers; of bool, the operands of a comparison alone.
        assert!(!is_allowed((Op::Add, DType::F16)));
        assert!(!is_allowed((Op::Sqrt, DType::I32)));
        assert!(is_allowed((Op::CmpNe, DType::Bool)));
    }
}
