//! Coverage of the engine by cases: how often each rewrite rule applies, to nodes of which op and
//! dtype, and which device runs which op at which dtype. A combination that never occurred is a
//! hole.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use gradiff::graph::op::OPS;
use gradiff::graph::verify::verify;
use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Linear, Op, Target, UOp};
use gradiff::kernel::passes::{Context, PASSES};
use gradiff::render::{Legalizations, legalize_traced};
use gradiff::rewrite::{Claim, Legal, Mode, Options, Rule, Trace, rewrite, symbolic};
use gradiff_corpus::{Case, Program, embedded, parse};

use crate::models::stages::{self, Configuration};
use crate::{Backend, Outcome};

/// The devices of the matrix, in its order.
pub const DEVICES: [&str; 3] = ["interp", "jit", "c"];

/// An op and the dtype of its operands (of its value, if it has none).
pub type At = (Op, DType);

/// Coverage of the engine by a set of cases.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    /// For each rule, how often it applied: to a node of this op over operands of this dtype, in a
    /// kernel for this device; "" if no device takes part (views and expressions).
    pub rules: BTreeMap<&'static str, BTreeMap<(At, &'static str), u64>>,
    /// For each available device, how many uops of this op and dtype its kernels had.
    pub devices: BTreeMap<&'static str, BTreeMap<At, u64>>,
    /// Unavailable devices, with the reason.
    pub missing: BTreeMap<&'static str, String>,
}

/// All rules, in the order of their tables.
fn rules() -> impl Iterator<Item = Rule> {
    gradiff::rewrite::rules::rows().into_iter()
}

/// The cases of the embedded corpus.
///
/// # Panics
/// If one does not parse; a test of the corpus checks that all do.
pub fn embedded_cases() -> Vec<Case> {
    let case = |(_, text): &(&str, &str)| parse(text).expect("a test parses the corpus").case;
    embedded().iter().map(case).collect()
}

/// Number of applications of each rule in the cases; rules that never apply are included with 0.
/// A case that the engine refuses counts up to the refusal.
pub fn fired(cases: &[Case]) -> BTreeMap<&'static str, u64> {
    let mut counts: BTreeMap<&'static str, u64> = rules().map(|rule| (rule.name, 0)).collect();
    for case in cases {
        // Other checks report a refusal.
        let trace = crate::catch(|| trace(case, Trace::default())).unwrap_or_default();
        for (rule, count) in trace.counts {
            *counts.entry(rule).or_default() += count;
        }
    }
    counts
}

/// Number of applications of each rule in the case, in the order of the tables, at most 255.
pub(crate) fn counters(case: &Case) -> [u8; crate::fuzz::RULES] {
    static POSITIONS: OnceLock<BTreeMap<&'static str, usize>> = OnceLock::new();
    let positions = POSITIONS.get_or_init(|| rules().map(|rule| rule.name).zip(0..).collect());
    let mut counters = [0; crate::fuzz::RULES];
    let trace = crate::catch(|| trace(case, Trace::default())).unwrap_or_default();
    for (rule, count) in trace.counts {
        let counter = positions.get(rule).and_then(|position| counters.get_mut(*position));
        counter.into_iter().for_each(|counter| *counter = count.min(255) as u8);
    }
    counters
}

/// Checks that the rule of this name applies in the case.
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
    let fired: Vec<&str> = counts.into_keys().collect();
    Err(format!("expected rule {name} to fire; these did: {}", fired.join(", ")))
}

/// Traces the rules' applications in a case: in the kernels of a program until they are linear
/// uops and in their texts, in the index and the validity of a tracker, in an expression.
fn trace(case: &Case, mut trace: Trace) -> Trace {
    let options = Options::default();
    match case {
        Case::Program(program) => {
            // Up to a refusal, which other checks report.
            let _ = kernels(program, &mut trace);
        }
        Case::Views(views) => {
            for tracker in
                crate::checks::views::tracker(views).into_iter().flat_map(|t| [t.simplify(), t])
            {
                let (index, valid) = crate::judge::expects::indexed(&tracker, false);
                for node in std::iter::once(index).chain(valid) {
                    rewrite(&node, &symbolic(), &options, &mut trace);
                }
            }
        }
        Case::Expr(expr) => {
            let simple = rewrite(&crate::to_uop(expr), &symbolic(), &options, &mut trace);
            Legal::all().rewrite(&simple, &options, &mut trace);
        }
    }
    trace
}

/// The linear kernels of a program. Rules that apply in fast mode alone, for targets with fast
/// multiply-adds, or to kernels with arithmetic of 16-bit floats are traced as well.
fn kernels(program: &Program, trace: &mut Trace) -> Result<Vec<Linear>, String> {
    let configuration = Configuration::default();
    let schedule = stages::scheduled(&stages::graph(program)?, &configuration)?;
    let mut fast = configuration.kernel.clone();
    fast.rewrite.mode = Mode::Fast;
    let mut fast_trace =
        Trace { steps: trace.steps.as_ref().map(|_| Vec::new()), ..Trace::default() };
    for item in &schedule.items {
        let target = Target { fma: true, native_f16: true, native_bf16: true, ..Target::default() };
        let kernel = gradiff::kernel::lower(&item.ast, &target, &fast, &mut fast_trace)
            .map_err(|error| error.to_string())?;
        legalize_traced(&kernel, &Legalizations::C_LIKE, &mut fast_trace);
    }
    let is_fast = |name: &str| {
        let is_named = |rule: &Rule| rule.name == name && rule.claim == Claim::Finite;
        let is_of_target = ["contract/", "half/"].iter().any(|table| name.starts_with(table));
        is_of_target || rules().any(|rule| is_named(&rule))
    };
    trace.counts.extend(fast_trace.counts.into_iter().filter(|(name, _)| is_fast(name)));
    let steps = fast_trace.steps.into_iter().flatten().filter(|step| is_fast(step.rule));
    if let Some(known) = &mut trace.steps {
        known.extend(steps);
    }
    let lower =
        |ast| gradiff::kernel::lower(ast, &configuration.target, &configuration.kernel, trace);
    let kernels = schedule.items.iter().map(|item| &item.ast).map(lower);
    let linears = kernels.map(|kernel| kernel.map(BoundedLinear::into_linear));
    let linears: Vec<Linear> =
        linears.collect::<Result<_, _>>().map_err(|error| error.to_string())?;
    for linear in &linears {
        legalize_traced(linear, &Legalizations::C_LIKE, trace);
    }
    Ok(linears)
}

/// Measures the coverage of the cases; programs run on all available devices.
pub fn coverage(cases: &[Case]) -> Coverage {
    let rules = rules().map(|rule| (rule.name, BTreeMap::new())).collect();
    let mut coverage = Coverage { rules, ..Coverage::default() };
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

    /// Counts the rules and uops of the programs that a device answered.
    fn count_device(&mut self, device: &'static str, backend: &dyn Backend, programs: &[&Program]) {
        self.devices.insert(device, BTreeMap::new());
        for (program, outcome) in programs.iter().zip(backend.run(programs)) {
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

    /// Number of applications of a rule.
    pub fn fired(&self, rule: &str) -> u64 {
        self.rules.get(rule).map_or(0, |counts| counts.values().sum())
    }

    /// The rules that never applied, in the order of their names.
    pub fn never_fired(&self) -> Vec<&'static str> {
        self.rules.keys().copied().filter(|rule| self.fired(rule) == 0).collect()
    }

    /// The dtypes that each rule is for and at which it never applied. Some cannot occur: a
    /// condition may exclude a dtype that the column of types allows.
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

    /// Ops and their dtypes that the op table allows and pass `legalize` leaves, but that no kernel
    /// of the device had.
    pub fn device_holes(&self, device: &str) -> Vec<At> {
        let Some(ran) = self.devices.get(device) else { return Vec::new() };
        let ops = OPS.iter().map(|row| row.op).filter(|op| op.is_elementwise());
        let pairs = ops.flat_map(|op| DType::ALL.map(|dtype| (op, dtype)));
        pairs.filter(|at| !ran.contains_key(at) && is_allowed(*at)).collect()
    }
}

/// The dtype of a node's operands; its own if it has none, or if it is a reduction.
fn operands(node: &UOp) -> DType {
    let last = node.src().last().filter(|_| node.op() != Op::Reduce);
    last.map_or(node.dtype(), UOp::dtype)
}

/// Returns whether a kernel for the default target may have this op over operands of this dtype.
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
    let legalize = PASSES.iter().find(|pass| pass.name == "legalize").expect("a pass");
    verify(&node).is_ok() && (legalize.run)(&node, &mut ctx).is_ok_and(|legal| legal == node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_in_the_order_of_the_rules() {
        assert!(rules().count() <= crate::fuzz::RULES);
        let file = parse("var p bool\nexpr !!p | !!p").expect("a case parses");
        let counters = counters(&file.case);
        let fired = rules().zip(counters).filter(|(_, count)| *count != 0);
        let fired: Vec<_> = fired.map(|(rule, count)| (rule.name, count)).collect();
        assert_eq!(fired, [("boolean/not-not", 1), ("boolean/or-self", 1)]);
    }

    #[test]
    fn holes_are_ops_that_the_op_table_allows_on_the_target() {
        assert!(is_allowed((Op::Add, DType::I8)));
        assert!(is_allowed((Op::Where, DType::BF16)));
        // Computed in f32; not an op of integers; only the operands of a comparison are bool.
        assert!(!is_allowed((Op::Add, DType::F16)));
        assert!(!is_allowed((Op::Sqrt, DType::I32)));
        assert!(is_allowed((Op::CmpNe, DType::Bool)));
    }
}
