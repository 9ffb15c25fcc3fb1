//! Mutation testing of the harness: rows of the rule tables are changed one at a time, and the
//! harness must notice, with the corpus, with nodes that the row's left side matches, and with
//! generated expressions and programs.
//!
//! A mutant is killed by a wrong value or bound, by rewriting that does not end, or by a panic; an
//! `expect` line or a reviewed form that fails kills as well, but only shows that the result
//! differs. There is no clock here: the caller chooses the rounds and says when time is up.

use gradiff::graph::{DType, Op, UOp};
use gradiff::rewrite::{
    Claim, Legal, Mode, Options, Rule, RuleSet, Trace, collapse, contract, late, rewrite, symbolic,
};
use gradiff_corpus::{Case, CaseFile, Expect, ExprCase, Program};
use gradiff_rules::mutate::Mutant;
use gradiff_rules::witness::{Hint, finite_witness, stray, trap, witness};

use crate::blame::culprit::{self, Culprit};
use crate::random::Random;
use crate::rules::directed::directed;
use crate::rules::forms::{self, Form, graph_of};

/// Number of rule applications from which on rewriting one of these small graphs counts as endless.
const FUEL: u64 = 3_000;

/// An input on which a mutant is tried.
#[derive(Clone, Debug)]
pub enum Subject {
    /// An expression over 32-bit integers, for the checker of expressions.
    Expr(ExprCase),
    /// A node of any dtype, simplified in each mode and compared point by point.
    Graph(UOp),
    /// A program, on the interpreter with the default rules and with the strict ones.
    Program(Program),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Expr(case) => write!(f, "{case}"),
            Subject::Graph(graph) => write!(f, "{} {}", graph.dtype(), culprit::short(graph)),
            Subject::Program(program) => write!(f, "{program}"),
        }
    }
}

/// Kind of evidence that a rule is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// A changed value.
    Value,
    /// A value outside its bounds.
    Bounds,
    /// A result that changes when it is simplified again.
    Again,
    /// Rewriting that does not end: a loop or growth.
    Endless,
    /// A panic.
    Panic,
    /// A failing `expect` line of a corpus file: the result is right, but not the reviewed one.
    Expect,
    /// A failing reviewed form: likewise.
    Form,
}

impl Sign {
    /// All signs.
    pub const ALL: [Sign; 7] = [
        Sign::Value,
        Sign::Bounds,
        Sign::Again,
        Sign::Endless,
        Sign::Panic,
        Sign::Expect,
        Sign::Form,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        ["value", "bounds", "not final", "endless", "panic", "expect", "form"][self as usize]
    }

    /// Returns whether the result is wrong, not only of another form.
    pub fn is_wrong(self) -> bool {
        !matches!(self, Sign::Expect | Sign::Form)
    }

    fn of(problem: &str) -> Sign {
        let has = |word: &str| problem.contains(word);
        match problem {
            _ if has("panic") => Sign::Panic,
            _ if has("does not end") => Sign::Endless,
            _ if has("simplified again") => Sign::Again,
            _ if has("outside its bounds") => Sign::Bounds,
            _ => Sign::Value,
        }
    }
}

/// The evidence that killed a mutant.
#[derive(Clone, Debug)]
pub struct Death {
    /// Kind of evidence.
    pub sign: Sign,
    /// Description in one line.
    pub detail: String,
    /// The input that it was tried on; `None` for `expect` lines, and for a panic outside of the
    /// judge.
    pub subject: Option<Subject>,
    /// The rule that blame names; for a failing line, the rule that it is about.
    pub rule: Option<String>,
    /// The pass that blame names; `None` for lines.
    pub pass: Option<String>,
}

/// Numbers of inputs that are tried in one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Nodes that the rule's left side matches.
    pub directed: u64,
    /// Generated expressions.
    pub expressions: u64,
    /// Generated programs.
    pub programs: u64,
}

/// The rounds, in order; each is for the mutants that survived those before it.
pub const ROUNDS: [Round; 3] = [
    Round { directed: 160, expressions: 60, programs: 0 },
    Round { directed: 1200, expressions: 1000, programs: 20 },
    Round { directed: 3000, expressions: 2000, programs: 60 },
];

/// The mutants of all rows whose names start with one of the prefixes (of all rows if there are no
/// prefixes), in the order of the tables.
pub fn mutants(prefixes: &[String]) -> Vec<Mutant> {
    let rows = gradiff::rewrite::rules::rows();
    let is_selected = |rule: &&Rule| {
        prefixes.is_empty() || prefixes.iter().any(|prefix| rule.name.starts_with(prefix))
    };
    let mutants_of = |rule: &Rule| gradiff_rules::mutate::mutants(rule, &rows);
    let mut mutants: Vec<Mutant> = rows.iter().filter(is_selected).flat_map(mutants_of).collect();
    // The tables refuse some rows together with others.
    mutants.retain(|mutant| gradiff::rewrite::rules::with_rows(&[mutant.rule], || ()).is_ok());
    mutants
}

/// The checks that a mutant must pass.
pub struct Harness<'a> {
    /// The corpus.
    pub files: Vec<CaseFile>,
    /// The generated expression of a number.
    pub expression: &'a (dyn Fn(u64) -> ExprCase + Sync),
    /// The generated program of a number.
    pub program: &'a (dyn Fn(u64) -> Program + Sync),
    /// Judges a subject, see [`judge`].
    pub judge: fn(&Subject) -> Result<(), String>,
    /// Returns the `expect` lines of a file that fail, see [`crate::check_expects`].
    pub expects: fn(&CaseFile) -> Vec<String>,
    /// The reviewed forms.
    pub forms: Vec<Form>,
    /// All unchanged rows.
    pub rows: Vec<Rule>,
}

impl<'a> Harness<'a> {
    /// The harness with the files of the embedded corpus that pass with the unchanged rules.
    pub fn new(
        expression: &'a (dyn Fn(u64) -> ExprCase + Sync),
        program: &'a (dyn Fn(u64) -> Program + Sync),
    ) -> Harness<'a> {
        let parsed = gradiff_corpus::embedded().iter();
        let mut files: Vec<CaseFile> =
            parsed.filter_map(|(_, text)| gradiff_corpus::parse(text).ok()).collect();
        let expects = crate::check_expects;
        let is_fine = |file: &CaseFile| {
            let subject = subject_of(file);
            expects(file).is_empty() && subject.is_none_or(|subject| judge(&subject).is_ok())
        };
        files.retain(|file| crate::catch(|| is_fine(file)).unwrap_or(false));
        let mut forms: Vec<Form> = forms::read(forms::FORMS).into_iter().flatten().collect();
        forms.retain(|form| form.check().is_ok());
        let rows = gradiff::rewrite::rules::rows();
        Harness { files, expression, program, judge, expects, forms, rows }
    }

    /// Tries one mutant for one round; the numbers of generated cases start at `seed`. `None` if it
    /// survives, or if `is_over` says that time is up.
    ///
    /// # Errors
    /// The mutant does not fit into the tables.
    pub fn attempt(
        &self,
        mutant: &Mutant,
        round: usize,
        seed: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Result<Option<Death>, String> {
        let rows = [mutant.rule];
        let work = || self.hunt(&mutant.rule, round, seed, is_over);
        match crate::catch(|| gradiff::rewrite::rules::with_rows(&rows, work)) {
            Ok(outcome) => outcome.map_err(|error| format!("{mutant}: {error}")),
            Err(detail) => {
                let sign = Sign::Panic;
                Ok(Some(Death { sign, detail, subject: None, rule: None, pass: None }))
            }
        }
    }

    fn hunt(
        &self,
        rule: &Rule,
        round: usize,
        seed: u64,
        is_over: &dyn Fn() -> bool,
    ) -> Option<Death> {
        let counts = ROUNDS[round];
        let row = self.rows.iter().find(|row| row.name == rule.name).unwrap_or(rule);
        let is_named = |file: &&CaseFile| {
            file.expects
                .iter()
                .any(|expect| matches!(expect, Expect::Fires(name) if name == rule.name))
        };
        let is_program = |file: &&CaseFile| matches!(file.case, Case::Program(_));
        let is_due = |file: &&CaseFile| match round {
            0 => !is_program(file),
            1 => is_program(file),
            _ => false,
        };
        let named = || self.files.iter().filter(|file| round == 0 && is_named(file));
        let unnamed = || self.files.iter().filter(|file| !is_named(file) && is_due(file));
        let mut random = Random::new(seed);
        let drawn =
            (0..counts.directed).filter_map(|number| directed(rule, row, number, &mut random));
        let expression = |number| Subject::Expr((self.expression)(seed.wrapping_add(number)));
        let program = |number| Subject::Program((self.program)(seed.wrapping_add(number)));
        // A wrong result says more than another form, so it is searched first.
        let mut reviewed: Option<Death> = None;
        let mut is_done = |death: &Option<Death>| {
            let is_wrong = death.as_ref().is_some_and(|death| death.sign.is_wrong());
            if !is_wrong {
                reviewed = reviewed.take().or(death.clone());
            }
            is_wrong || is_over()
        };
        let wrong = named()
            .map(|file| self.killed_by_file(rule, file))
            .chain(drawn.map(|subject| self.killed_by_subject(rule, &subject)))
            .find(|death| is_done(death))
            .flatten();
        let death = wrong.filter(|death| death.sign.is_wrong()).or(reviewed);
        if death.is_some() || is_over() {
            return death;
        }
        let lines = self.forms.iter().filter(|form| (round == 0) == (form.rule == rule.name));
        let lines = lines.filter(|_| round < 2).map(killed_by_form);
        let files = unnamed().map(|file| self.killed_by_file(rule, file));
        let expressions =
            (0..counts.expressions).map(|n| self.killed_by_subject(rule, &expression(n)));
        let programs = (0..counts.programs).map(|n| self.killed_by_subject(rule, &program(n)));
        let mut attempts = lines.chain(files).chain(expressions).chain(programs);
        attempts.find(|death| death.is_some() || is_over()).flatten()
    }

    /// Tries a corpus file.
    fn killed_by_file(&self, rule: &Rule, file: &CaseFile) -> Option<Death> {
        let by_subject = |subject: Subject| self.killed_by_subject(rule, &subject);
        if let Some(death) = subject_of(file).and_then(by_subject) {
            return Some(death);
        }
        if file.expects.is_empty() {
            return None;
        }
        let detail = match crate::catch(|| (self.expects)(file)) {
            Ok(problems) => problems.into_iter().next()?,
            Err(panic) => panic,
        };
        let fires = file.expects.iter().find_map(|expect| match expect {
            Expect::Fires(name) => Some(name.clone()),
            _ => None,
        });
        Some(Death { sign: Sign::Expect, detail, subject: None, rule: fires, pass: None })
    }

    /// Judges a subject.
    fn killed_by_subject(&self, rule: &Rule, subject: &Subject) -> Option<Death> {
        // A rule that does not fire changes nothing; one that makes an op legal leaves that op.
        if !legalizes(rule.name) && graph_of(subject).is_some_and(|graph| !fires(rule, &graph)) {
            return None;
        }
        let judged = crate::catch(|| (self.judge)(subject)).and_then(|judged| judged);
        let detail = judged.err()?;
        let culprit = crate::catch(|| blame(subject)).ok().flatten();
        let (rule, pass) = culprit.map(|culprit| (culprit.rule, culprit.pass)).unzip();
        let sign = Sign::of(&detail);
        Some(Death { sign, detail, subject: Some(subject.clone()), rule, pass })
    }
}

/// Checks a reviewed form.
fn killed_by_form(form: &Form) -> Option<Death> {
    let detail = form.check().err()?;
    let (subject, rule) = (Some(form.subject.clone()), Some(form.rule.clone()));
    Some(Death { sign: Sign::Form, detail, subject, rule, pass: None })
}

/// Returns whether the rule applies in some mode when [`examine`] rewrites the graph; true if that
/// panics.
fn fires(rule: &Rule, graph: &UOp) -> bool {
    let is_applied = |(mode, _): &(Mode, Witness)| {
        let mut trace = Trace::default();
        let [_, last, ..] = outcome(graph, *mode, &mut trace);
        rewritten(&last, &contract(), *mode, None, &mut trace);
        trace.counts.contains_key(rule.name)
    };
    crate::catch(|| MODES.iter().any(is_applied)).unwrap_or(true)
}

fn subject_of(file: &CaseFile) -> Option<Subject> {
    match &file.case {
        Case::Expr(case) => Some(Subject::Expr(case.clone())),
        Case::Program(program) => Some(Subject::Program(program.clone())),
        Case::Views(_) => None,
    }
}

/// Judges a subject.
///
/// # Errors
/// Its first problem, in one line.
pub fn judge(subject: &Subject) -> Result<(), String> {
    match subject {
        Subject::Expr(case) => crate::check_expr(case),
        Subject::Graph(graph) => MODES.iter().try_for_each(|mode| examine(graph, *mode)),
        Subject::Program(program) => {
            let names = ["interp", "interp/strict"].map(String::from);
            let backends = crate::backends(&names).map_err(|error| error.message)?;
            match crate::agree(&[program], &backends).1.into_iter().next() {
                Some((_, failure)) => Err(format!("{}: {}", failure.kind.name(), failure.detail)),
                None => Ok(()),
            }
        }
    }
}

/// Finds a point at which a rewritten graph is wrong, in words.
type Witness = fn(&UOp, &UOp) -> Option<String>;

/// The modes, each with its judgement: strict first, since the results of the others often equal
/// its result. Fast mode assumes finite floats; only graphs of floats are judged in it.
const MODES: [(Mode, Witness); 3] = [
    (Mode::Strict, |before, after| witness(before, after, Claim::Bits, &Hint::new())),
    (Mode::Default, |before, after| witness(before, after, Claim::Ulp(8), &Hint::new())),
    (Mode::Fast, |before, after| finite_witness(before, after, Claim::Ulp(8), &Hint::new())),
];

fn rewritten(
    graph: &UOp,
    rules: &RuleSet,
    mode: Mode,
    fuel: Option<u64>,
    trace: &mut Trace,
) -> UOp {
    let fuel = Some(fuel.unwrap_or(FUEL));
    rewrite(graph, rules, &Options { mode, fuel }, trace)
}

/// Replaces reductions by their closed forms; `fuel` replaces the default.
fn collapsed(graph: &UOp, mode: Mode, fuel: Option<u64>, trace: &mut Trace) -> UOp {
    let fuel = Some(fuel.unwrap_or(FUEL));
    collapse(graph, &Options { mode, fuel }, trace)
}

/// Returns whether the graph contains a reduction.
fn has_reduction(graph: &UOp) -> bool {
    graph.toposort().iter().any(|node| node.op() == Op::Reduce)
}

/// The graph without ops that languages need not support.
fn legal(graph: &UOp, mode: Mode, fuel: Option<u64>, trace: &mut Trace) -> UOp {
    let fuel = Some(fuel.unwrap_or(FUEL));
    Legal::all().rewrite(graph, &Options { mode, fuel }, trace)
}

/// The graph after rewriting: simplified, after the late pass, and legal; and made legal as it was,
/// which reaches rows whose nodes the simplifier removes. A graph with reductions is only
/// collapsed.
pub(crate) fn outcome(graph: &UOp, mode: Mode, trace: &mut Trace) -> [UOp; 4] {
    if has_reduction(graph) {
        let closed = collapsed(graph, mode, None, trace);
        return [(); 4].map(|()| closed.clone());
    }
    let simple = rewritten(graph, &symbolic(), mode, None, trace);
    let last = rewritten(&simple, &late(), mode, None, trace);
    let [from_last, from_first] = [&last, graph].map(|graph| legal(graph, mode, None, trace));
    [simple, last, from_last, from_first]
}

/// The graph after rewriting, with multiply-adds.
pub(crate) fn contracted(graph: &UOp) -> UOp {
    let trace = &mut Trace::default();
    let [_, last, ..] = outcome(graph, Mode::Default, trace);
    rewritten(&last, &contract(), Mode::Default, None, trace)
}

/// A node of a legal graph that devices need not support, and why: an op that the tables replace,
/// or a division or shift that some point makes undefined where `before` is not.
fn illegal(before: &UOp, after: &UOp) -> Option<(UOp, String)> {
    let is_replaced = |node: &&UOp| match node.op() {
        Op::FloorDiv | Op::FloorMod | Op::Recip => true,
        Op::MulAcc => node.dtype().is_int(),
        Op::Max | Op::Min => matches!(node.dtype(), DType::F32 | DType::F64),
        _ => false,
    };
    let nodes = after.toposort();
    let replaced = nodes.iter().find(is_replaced);
    let replaced = replaced.map(|node| (node.clone(), "is not replaced".to_string()));
    replaced.or_else(|| {
        let trap = trap(before, after, &Hint::new())?;
        Some((trap.node, format!("is {}, which may trap", trap.words)))
    })
}

/// Checks that rewriting a graph in one mode ends, keeps the value by its claim, has bounds that
/// hold, and changes nothing when it is repeated, that devices support a legal result,
/// and that strict mode has no product that its sum may leave unrounded.
fn examine(graph: &UOp, (mode, find): (Mode, Witness)) -> Result<(), String> {
    let text = || culprit::short(graph);
    let mut trace = Trace::default();
    let [simple, last, legal, direct] = outcome(graph, mode, &mut trace);
    let contracted = rewritten(&last, &contract(), mode, None, &mut trace);
    if culprit::is_endless(&trace) {
        return Err(format!("simplifying {} does not end", text()));
    }
    let is_checked = mode != Mode::Strict && contracted == last && {
        let strict = outcome(graph, Mode::Strict, &mut Trace::default());
        strict == [simple.clone(), last.clone(), legal.clone(), direct.clone()]
    };
    if is_checked || mode == Mode::Fast && !graph.dtype().is_float() {
        return Ok(());
    }
    if mode == Mode::Strict && contracted != last {
        return Err(format!("{} became {} in strict mode", text(), culprit::short(&contracted)));
    }
    let mut results = vec![&simple, &last, &contracted, &legal, &direct];
    results.dedup();
    for after in results.into_iter().filter(|after| *after != graph) {
        if let Some(words) = find(graph, after) {
            return Err(format!("{} became {}: {words}", text(), culprit::short(after)));
        }
    }
    if has_reduction(graph) {
        return Ok(());
    }
    if let Some(stray) = stray(&[graph, &simple], &Hint::new()) {
        let words = stray.words;
        return Err(format!("{} is {words}, outside its bounds", culprit::short(&stray.node)));
    }
    for after in [&legal, &direct] {
        if let Some((node, words)) = illegal(graph, after) {
            return Err(format!("{} {words}", culprit::short(&node)));
        }
    }
    let again = rewritten(&simple, &symbolic(), mode, None, &mut Trace::default());
    if again != simple {
        let texts = (culprit::short(&simple), culprit::short(&again));
        return Err(format!("simplified again, {} becomes {}", texts.0, texts.1));
    }
    Ok(())
}

impl Death {
    /// Returns whether the mutated rule is the one that blame names, or one of two.
    pub fn names(&self, mutant: &Mutant) -> bool {
        let named = self.rule.as_deref().unwrap_or_default();
        named.split(" or ").any(|rule| rule == mutant.rule.name)
    }

    /// Returns whether the pass that blame names runs the mutated rule.
    pub fn names_pass(&self, mutant: &Mutant) -> bool {
        let pass = self.pass.as_deref().unwrap_or_default();
        match mutant.rule.name.split_once('/') {
            Some((table @ ("late" | "contract"), _)) => pass == table,
            Some(_) if legalizes(mutant.rule.name) => pass == "legal",
            Some(("reduce", _)) => pass == "collapse",
            _ => pass.starts_with("symbolic") || pass == "collapse",
        }
    }
}

/// Returns whether the rule of this name is in a table that makes graphs legal.
pub(crate) fn legalizes(rule: &str) -> bool {
    let table = rule.split('/').next().unwrap_or_default();
    let tables = ["half", "mulacc", "recip", "floor", "division", "shift", "maximum", "narrow"];
    tables.contains(&table)
}

/// The culprit of a wrong subject.
fn blame(subject: &Subject) -> Option<Culprit> {
    match subject {
        Subject::Expr(case) => crate::blame_expr(case)?.rule,
        Subject::Program(program) => {
            let on = |backend: &str| crate::blame(program, backend);
            on("interp").or_else(|| on("interp/strict"))?.rule
        }
        Subject::Graph(graph) => {
            let is_wrong = |mode: &&(Mode, Witness)| {
                !matches!(crate::catch(|| examine(graph, **mode)), Ok(Ok(())))
            };
            let (mode, find) = *MODES.iter().find(is_wrong)?;
            let (symbolic, late, contract) = (symbolic(), late(), contract());
            if has_reduction(graph) {
                let run = |fuel, trace: &mut Trace| collapsed(graph, mode, fuel, trace);
                return in_pass(graph, &run, "collapse", find);
            }
            let first = |fuel, trace: &mut Trace| rewritten(graph, &symbolic, mode, fuel, trace);
            let culprit = in_pass(graph, &first, "symbolic", find).or_else(|| {
                let simple = crate::catch(|| first(None, &mut Trace::default())).ok()?;
                let last = |fuel, trace: &mut Trace| rewritten(&simple, &late, mode, fuel, trace);
                in_pass(graph, &last, "late", find).or_else(|| {
                    let last = crate::catch(|| last(None, &mut Trace::default())).ok()?;
                    let contracted =
                        |fuel, trace: &mut Trace| rewritten(&last, &contract, mode, fuel, trace);
                    let run = |fuel, trace: &mut Trace| legal(&last, mode, fuel, trace);
                    let culprit = in_pass(graph, &contracted, "contract", find);
                    culprit.or_else(|| in_pass(graph, &run, "legal", find)).or_else(|| {
                        let mut trace = Trace::with_steps();
                        contracted(None, &mut trace);
                        let steps = trace.steps.filter(|_| mode == Mode::Strict)?;
                        let witness = "may leave a product unrounded".to_string();
                        let pass = "contract".to_string();
                        Some(Culprit { pass, witness, ..culprit::of_step(steps.first()?) })
                    })
                })
            });
            culprit.or_else(|| {
                let direct = |fuel, trace: &mut Trace| legal(graph, mode, fuel, trace);
                in_pass(graph, &direct, "legal", find).or_else(|| {
                    let mut trace = Trace::with_steps();
                    let after = direct(None, &mut trace);
                    let (node, words) = illegal(graph, &after)?;
                    let steps = trace.steps.unwrap_or_default();
                    let culprit = culprit::of_illegal(&node, &words, &steps);
                    Some(Culprit { pass: "legal".to_string(), ..culprit })
                })
            })
        }
    }
}

/// The culprit if the result of `rewrite`, given fuel, differs from `graph`.
fn in_pass(
    graph: &UOp,
    rewrite: &dyn Fn(Option<u64>, &mut Trace) -> UOp,
    pass: &str,
    find: Witness,
) -> Option<Culprit> {
    let with_pass = |culprit: Culprit| Culprit { pass: pass.to_string(), ..culprit };
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let after = crate::catch(|| rewrite(fuel, trace))?;
        find(graph, &after).map_or(Ok(()), Err)
    };
    let mut trace = Trace::with_steps();
    let whole = crate::catch(|| rewrite(None, &mut trace));
    if whole.is_ok() && culprit::is_endless(&trace) {
        return culprit::of_endless(&trace).map(with_pass);
    }
    if let Some(culprit) = culprit::search(&mut run, &Hint::new()) {
        return Some(with_pass(culprit));
    }
    let simple = whole.ok()?;
    if let Some(stray) = stray(&[graph, &simple], &Hint::new()) {
        return Some(with_pass(culprit::of_bounds(&stray)));
    }
    let steps = trace.steps.unwrap_or_default();
    culprit::first_false(&steps, &Hint::new()).map(with_pass)
}

/// The reviewed survivors: each mutant, and the reason why it survives, `equivalent: ...` if no
/// input distinguishes it from the row, `harmless: ...` if it is right but the result is less
/// simple.
///
/// # Errors
/// A line without a reason of one of these two kinds.
pub fn reviewed(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (mutant, reason) = line.split_once(" # ").unwrap_or((line, ""));
            let is_known =
                ["equivalent: ", "harmless: "].iter().any(|kind| reason.starts_with(kind));
            if is_known {
                Ok((mutant, reason))
            } else {
                Err(format!("{mutant}: the reason must be `equivalent: ...` or `harmless: ...`"))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradiff_gen::{Config, ExprConfig, SeedChoices, case_seed};

    fn expression(number: u64) -> ExprCase {
        gradiff_gen::expr(&mut SeedChoices::new(case_seed(1, number)), &ExprConfig::default())
    }

    fn program(number: u64) -> Program {
        gradiff_gen::program_at(1, number, &Config::default()).program
    }

    const ROWS: [&str; 5] = [
        "algebra/add-self",
        "algebra/where-and",
        "boolean/or-of-limits",
        "compare/less-floordiv",
        "late/sub",
    ];

    /// The mutants of some rows, except for reviewed survivors.
    fn mutants_of_rows() -> Vec<Mutant> {
        let mut mutants = mutants(&ROWS.map(String::from));
        mutants.retain(|mutant| ROWS.contains(&mutant.rule.name));
        let reviewed = reviewed(include_str!("../../../survivors.txt")).expect("it can be read");
        mutants.retain(|mutant| !reviewed.iter().any(|(known, _)| *known == mutant.to_string()));
        mutants
    }

    #[test]
    fn harness_kills_all_mutants_of_some_rows_and_blames_them() {
        let harness = Harness::new(&expression, &program);
        let mutants = mutants_of_rows();
        assert!(mutants.len() > 20, "{}", mutants.len());
        let (mut wrong, mut named) = (0, 0);
        for mutant in mutants {
            let attempt = |round| harness.attempt(&mutant, round, 1, &|| false).expect("it loads");
            let death = attempt(0).or_else(|| attempt(1)).or_else(|| attempt(2));
            let death = death.unwrap_or_else(|| panic!("{mutant} lives"));
            wrong += usize::from(death.sign.is_wrong());
            named += usize::from(death.sign.is_wrong() && death.names(&mutant));
        }
        assert!(wrong > 10 && named * 20 >= wrong * 19, "{named} of {wrong} are blamed rightly");
    }

    #[test]
    fn harness_that_checks_nothing_kills_nothing() {
        let (judge, expects) = (|_: &Subject| Ok(()), |_: &CaseFile| Vec::new());
        let files = Vec::new();
        let (forms, rows) = (Vec::new(), gradiff::rewrite::rules::rows());
        let (expression, program) = (&expression, &program);
        let blind = Harness { files, expression, program, judge, expects, forms, rows };
        for mutant in mutants_of_rows() {
            let death = blind.attempt(&mutant, 0, 1, &|| false).expect("it loads");
            assert!(death.is_none(), "{mutant}: {death:?}");
        }
    }

    #[test]
    fn unchanged_rows_pass_the_checks_of_mutants() {
        let mut random = Random::new(7);
        for rule in gradiff::rewrite::rules::rows() {
            for number in 0..24 {
                let Some(subject) = directed(&rule, &rule, number, &mut random) else { continue };
                let judged = judge(&subject);
                assert!(judged.is_ok(), "{}: {subject}: {judged:?}", rule.name);
            }
        }
    }

    #[test]
    fn reviewed_requires_a_reason() {
        let line = "divmod/x constant rhs: 1 # equivalent: bounds decide first";
        assert_eq!(reviewed(line).map(|list| list.len()), Ok(1));
        for line in ["divmod/x constant rhs: 1", "divmod/x constant rhs: 1 # looks fine"] {
            assert!(reviewed(line).is_err(), "{line}");
        }
    }
}
