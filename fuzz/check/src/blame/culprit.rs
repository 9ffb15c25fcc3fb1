//! Culprits: the application of a rule that makes a result wrong. Bisection by fuel finds the
//! application whose presence makes the result wrong; its equation is then judged alone, by points.

use gradiff::UOp;
use gradiff::graph::text::infix;
use gradiff::rewrite::rules::{row, rows};
use gradiff::rewrite::{Claim, RuleSet, Step, Trace, bounds};
use gradiff_rules::proof;
use gradiff_rules::witness::{Hint, Stray, stray, witness};

use crate::rules::sabotage::legalizes;

/// Maximal number of characters of a node in a report.
const CHARACTERS_MAX: usize = 240;

/// The application of a rule that is to blame, or the bounds of an op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Culprit {
    /// `<table>/<name>` of the rule; `bounds/<op>` where range analysis is wrong.
    pub rule: String,
    /// The pass in which it was applied.
    pub pass: String,
    /// The node it was applied to, in infix form.
    pub before: String,
    /// The result; for bounds, the interval that was claimed.
    pub after: String,
    /// Why it is false: `false for x=-9, c=4: 2 became 3`, or that no point shows it.
    pub witness: String,
    /// Verdict on the rule in the ledger of proofs: `proved`, `exhausted`, `refuted`, `open` or
    /// `none (the row changed since)`.
    pub verdict: String,
    /// For rewriting that does not end: `rule: before -> after` of the steps that repeat.
    pub cycle: Vec<String>,
}

impl Culprit {
    /// The application of a rule, with the rule's verdict.
    fn new(rule: &str, before: String, after: String) -> Culprit {
        let (rule, verdict) = (rule.to_string(), verdict(rule));
        let (pass, witness) = (String::new(), String::new());
        Culprit { rule, pass, before, after, witness, verdict, cycle: Vec::new() }
    }

    /// The file of the engine that contains the wrong rule or bounds.
    pub fn file(&self) -> String {
        match self.rule.split_once('/') {
            Some(("bounds", _)) => "engine/rewrite/src/bounds.rs".to_string(),
            Some(_) if legalizes(&self.rule) => "engine/rewrite/src/rules/legal.rs".to_string(),
            Some((table, _)) => format!("engine/rewrite/src/rules/{table}.rs"),
            None => "engine/rewrite/src/rules".to_string(),
        }
    }

    /// A report of several lines: pass, node before and after, the cycle if there is one, and last
    /// the line that names the rule.
    pub fn report(&self) -> String {
        let mut text = format!("pass    {}\n", self.pass);
        for (name, node) in [("before", &self.before), ("after", &self.after)] {
            if !node.is_empty() {
                text += &format!("{name:8}{node}\n");
            }
        }
        self.cycle.iter().for_each(|step| text += &format!("cycle   {step}\n"));
        text + &self.to_string()
    }
}

impl std::fmt::Display for Culprit {
    /// The line that names the rule.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Culprit { rule, witness, verdict, .. } = self;
        match rule.strip_prefix("bounds/") {
            Some(op) => write!(f, "bounds of {op} ({}): {witness}", self.file()),
            None => write!(f, "rule {rule} ({}): {witness}; verdict: {verdict}", self.file()),
        }
    }
}

/// A rewriting with so much fuel, or no limit, and into this trace.
///
/// # Errors
/// The problem of the result.
pub(crate) type Run<'a> = &'a mut dyn FnMut(Option<u64>, &mut Trace) -> Result<(), String>;

/// The application that turns a right result of `run` into a wrong one; its pass is left empty.
/// `None` if the result is wrong without any rule, or right with all: then no application is the
/// culprit.
pub(crate) fn search(run: Run<'_>, hint: &Hint) -> Option<Culprit> {
    let mut whole = Trace::default();
    run(None, &mut whole).err()?;
    run(Some(0), &mut Trace::default()).ok()?;
    // An application that panics is not counted. The result is right at `low` and wrong at `high`,
    // so two neighbours in between differ.
    let (mut low, mut high) = (0, whole.applied + 1);
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        match run(Some(middle), &mut Trace::default()) {
            Ok(()) => low = middle,
            Err(_) => high = middle,
        }
    }
    let (mut right, mut wrong) = (Trace::with_steps(), Trace::with_steps());
    let _ = run(Some(low), &mut right);
    let problem = run(Some(high), &mut wrong).err()?;
    let (right, wrong) = (right.steps.unwrap_or_default(), wrong.steps.unwrap_or_default());
    let is_same = |(x, y): &(&Step, &Step)| (x.rule, &x.before) == (y.rule, &y.before);
    let common = right.iter().zip(&wrong).take_while(is_same).count();
    match culprit_among(&wrong[common..], hint) {
        Some(culprit) => Some(culprit),
        // The application panicked before it was recorded: the panic names it.
        None => {
            let rule = rows().into_iter().find(|rule| problem.contains(rule.name))?;
            let culprit = Culprit::new(rule.name, String::new(), String::new());
            Some(Culprit { witness: problem, ..culprit })
        }
    }
}

/// The first of these steps, of which inner ones come first, that is false by itself; the last one
/// if none is.
pub(crate) fn culprit_among(steps: &[Step], hint: &Hint) -> Option<Culprit> {
    let false_step = steps.iter().find_map(|step| Some((step, falsehood(step, hint)?)));
    let (step, words) = match false_step {
        Some((step, words)) => (step, format!("false for {words}")),
        None => (steps.last()?, "no local witness".to_string()),
    };
    // A rule whose condition uses bounds is only as right as they are.
    if let Some(stray) = stray(&[&step.before, &step.after], hint) {
        return Some(of_bounds(&stray));
    }
    Some(Culprit { witness: words, ..of_step(step) })
}

/// The first step that is false by itself, whatever the result is.
pub(crate) fn first_false(steps: &[Step], hint: &Hint) -> Option<Culprit> {
    let step = steps.iter().find(|step| falsehood(step, hint).is_some())?;
    culprit_among(std::slice::from_ref(step), hint)
}

/// A point at which a step is false, as text.
fn falsehood(step: &Step, hint: &Hint) -> Option<String> {
    let claim = row(step.rule).map_or(Claim::Bits, |rule| rule.claim);
    witness(&step.before, &step.after, claim, hint)
}

/// Returns whether the rewriting with this trace did not end.
pub(crate) fn is_endless(trace: &Trace) -> bool {
    trace.ran_out || !trace.loops.is_empty()
}

/// The rule to blame for a rewriting that does not end, with the steps that repeat: one that is
/// false; else one that is refused when it is loaded because it may not terminate; else one that
/// changed since it was proved; else the one that adds the most nodes.
pub(crate) fn of_endless(trace: &Trace) -> Option<Culprit> {
    let steps = trace.steps.as_deref()?;
    let cycle = cycle(trace, steps);
    let growth =
        |step: &Step| step.after.toposort().len() as i64 - step.before.toposort().len() as i64;
    let is_refused =
        |step: &&Step| row(step.rule).is_some_and(|row| RuleSet::load(&[&[row]]).is_err());
    let culprit = first_false(cycle, &Hint::new()).or_else(|| {
        let (step, why) = match cycle.iter().find(is_refused) {
            Some(step) => (step, "; the row may make a term larger in the order of terms"),
            None => {
                let is_new = |step: &Step| verdict(step.rule).starts_with("none");
                (cycle.iter().max_by_key(|step| (is_new(step), growth(step)))?, "")
            }
        };
        Some(Culprit { witness: format!("repeats without end{why}"), ..of_step(step) })
    })?;
    let line =
        |step: &Step| format!("{}: {} -> {}", step.rule, short(&step.before), short(&step.after));
    Some(Culprit { cycle: cycle.iter().map(line).collect(), ..culprit })
}

/// The steps of the first loop that was found; for endless growth, the shortest tail that repeats.
fn cycle<'a>(trace: &'a Trace, steps: &'a [Step]) -> &'a [Step] {
    if let Some(cycle) = trace.loops.first() {
        return &cycle.steps;
    }
    let names = |range: std::ops::Range<usize>| steps[range].iter().map(|step| step.rule);
    let count = steps.len();
    let repeats =
        |period: &usize| names(count - 2 * period..count - period).eq(names(count - period..count));
    let period = (1..=count.min(64) / 2).find(repeats).unwrap_or(count.min(8));
    &steps[count - period..]
}

/// The culprit if the bounds of an op do not hold.
pub(crate) fn of_bounds(stray: &Stray) -> Culprit {
    let node = &stray.node;
    let interval = |(low, high): (i128, i128)| format!("{low}..{high}");
    let sources: Vec<String> = node.src().iter().map(|source| interval(bounds(source))).collect();
    let (op, claimed) = (node.op().name(), interval(bounds(node)));
    let (sources, dtype) = (sources.join(" and "), node.dtype());
    let witness =
        format!("{op} of {sources} in {dtype} is said to be {claimed}, but is {}", stray.words);
    Culprit { witness, ..Culprit::new(&format!("bounds/{op}"), short(node), claimed) }
}

/// The culprit if a node is left that devices need not support: the rule that made it; if no rule
/// did, those that should have replaced it, joined by ` or `.
pub(crate) fn of_illegal(node: &UOp, words: &str, steps: &[Step]) -> Culprit {
    let has = |graph: &UOp| graph.toposort().contains(node);
    let witness = format!("{} {words}", short(node));
    if let Some(step) = steps.iter().find(|step| has(&step.after) && !has(&step.before)) {
        return Culprit { witness, ..of_step(step) };
    }
    let left_side = format!("({} ", node.op().name());
    let mut rows: Vec<&str> = rows()
        .iter()
        .filter(|row| legalizes(row.name) && row.lhs.starts_with(&left_side))
        .map(|row| row.name)
        .collect();
    rows.sort_unstable();
    Culprit { witness, ..Culprit::new(&rows.join(" or "), short(node), String::new()) }
}

/// A step as the culprit, without a witness yet.
pub(crate) fn of_step(step: &Step) -> Culprit {
    Culprit::new(step.rule, short(&step.before), short(&step.after))
}

/// The rule's verdict in the ledger of proofs.
fn verdict(rule: &str) -> String {
    let known = row(rule).and_then(|row| proof::verdict(&row));
    known.map_or("none (the row changed since)".to_string(), |verdict| verdict.to_string())
}

/// The node in infix form, truncated if it is long.
pub(crate) fn short(node: &UOp) -> String {
    // Shared parts are printed each time: the text may be far larger than the graph.
    let order = node.toposort();
    let mut lengths: std::collections::HashMap<&UOp, usize> = std::collections::HashMap::new();
    for node in &order {
        let inner = node.src().iter().map(|source| lengths[source]);
        lengths.insert(node, inner.fold(4, usize::saturating_add));
    }
    if lengths[node] > 40 * CHARACTERS_MAX {
        return format!("a term of {} nodes", order.len());
    }
    let text = infix(node);
    match text.char_indices().nth(CHARACTERS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
