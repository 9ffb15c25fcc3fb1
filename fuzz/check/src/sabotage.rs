//! How good is the harness? Rows of the rule tables are changed one at a time, and the harness is
//! asked whether it notices: with the corpus, with nodes that the row's left side matches, with
//! generated expressions and programs.
//!
//! A mutant is dead once something is wrong by value, bounds, termination or a panic; an `expect`
//! line or a reviewed form that fails kills as well, but only says that the result is another one.
//! No clock here: the caller says how far each round goes and when time is up.

use gradiff::graph::{Op, UOp};
use gradiff::rewrite::{
    Claim, Mode, Options, Rule, RuleSet, Trace, collapse, late, rewrite, symbolic,
};
use gradiff_corpus::{Case, CaseFile, Expect, ExprCase, Program};
use gradiff_rules::mutate::Mutant;
use gradiff_rules::witness::{Hint, stray, witness};

pub use crate::directed::directed;
use crate::forms::{self, Form, graph_of};
use crate::guilt::{self, Guilt};

/// Applications after which a rewriting of one of these small graphs counts as endless.
const FUEL: u64 = 3_000;

/// What a mutant is tried on.
#[derive(Clone, Debug)]
pub enum Subject {
    /// An expression over 32-bit integers, for the checker of expressions.
    Expr(ExprCase),
    /// A node of any dtype, simplified in both modes and compared point by point.
    Graph(UOp),
    /// A program, on the interpreter with the default rules and with the strict ones.
    Program(Program),
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Subject::Expr(case) => write!(f, "{case}"),
            Subject::Graph(graph) => write!(f, "{} {}", graph.dtype(), guilt::short(graph)),
            Subject::Program(program) => write!(f, "{program}"),
        }
    }
}

/// What shows that a rule is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Another value.
    Value,
    /// A value outside of its bounds.
    Bounds,
    /// Simplified again, it changes again.
    Again,
    /// Rules that lead back to where they came from, or go on.
    Endless,
    /// A panic.
    Panic,
    /// An `expect` line of a corpus file: the result is right but not the one that was reviewed.
    Expect,
    /// A reviewed form: likewise.
    Form,
}

impl Sign {
    /// All of them.
    pub const ALL: [Sign; 7] = [
        Sign::Value,
        Sign::Bounds,
        Sign::Again,
        Sign::Endless,
        Sign::Panic,
        Sign::Expect,
        Sign::Form,
    ];

    /// Its word.
    pub fn name(self) -> &'static str {
        ["value", "bounds", "not final", "endless", "panic", "expect", "form"][self as usize]
    }

    /// Whether something is wrong, not only another form.
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

/// How a mutant died.
#[derive(Clone, Debug)]
pub struct Death {
    /// What showed it.
    pub sign: Sign,
    /// The same in a line.
    pub detail: String,
    /// What it was tried on; none for `expect` lines.
    pub subject: Option<Subject>,
    /// The rule that blame names; of a line that fails, the rule that it is about.
    pub rule: Option<String>,
    /// The pass that blame names; none for lines.
    pub pass: Option<String>,
}

/// How much is tried in one round.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Nodes that the rule's left side matches.
    pub directed: u64,
    /// Generated expressions.
    pub expressions: u64,
    /// Generated programs.
    pub programs: u64,
}

/// Round after round, for those mutants that are still alive.
pub const ROUNDS: [Round; 3] = [
    Round { directed: 160, expressions: 60, programs: 0 },
    Round { directed: 1200, expressions: 1000, programs: 20 },
    Round { directed: 3000, expressions: 2000, programs: 60 },
];

/// The mutants of all rows whose names start with one of the prefixes (with none: of all rows), in
/// the order of the tables.
pub fn mutants(prefixes: &[String]) -> Vec<Mutant> {
    let rows = gradiff::rewrite::rules::rows();
    let is_asked = |rule: &&Rule| {
        prefixes.is_empty() || prefixes.iter().any(|prefix| rule.name.starts_with(prefix))
    };
    let of = |rule: &Rule| gradiff_rules::mutate::mutants(rule, &rows);
    let mut mutants: Vec<Mutant> = rows.iter().filter(is_asked).flat_map(of).collect();
    // Some rows do not go together with others.
    mutants.retain(|mutant| gradiff::rewrite::rules::with_rows(&[mutant.rule], || ()).is_ok());
    mutants
}

/// What a mutant must pass.
pub struct Harness<'a> {
    /// The corpus.
    pub files: Vec<CaseFile>,
    /// The generated expression of a number.
    pub expression: &'a (dyn Fn(u64) -> ExprCase + Sync),
    /// The generated program of a number.
    pub program: &'a (dyn Fn(u64) -> Program + Sync),
    /// What is wrong with a subject, see [`judge`].
    pub judge: fn(&Subject) -> Result<(), String>,
    /// Which `expect` lines of a file fail, see [`crate::check_expects`].
    pub expects: fn(&CaseFile) -> Vec<String>,
    /// The reviewed forms.
    pub forms: Vec<Form>,
    /// All rows as they are.
    pub rows: Vec<Rule>,
}

impl<'a> Harness<'a> {
    /// The harness with the embedded corpus, as far as it passes with the rules as they are.
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

    /// Tries one mutant for one round; the numbers of generated cases start at `seed`. `None` if
    /// it lives, or if `is_over` says that time is up.
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
        let is_now = |file: &&CaseFile| match round {
            0 => !is_program(file),
            1 => is_program(file),
            _ => false,
        };
        let named = || self.files.iter().filter(|file| round == 0 && is_named(file));
        let others = || self.files.iter().filter(|file| !is_named(file) && is_now(file));
        let mut state = seed;
        let drawn =
            (0..counts.directed).filter_map(|number| directed(rule, row, number, &mut state));
        let expression = |number| Subject::Expr((self.expression)(seed.wrapping_add(number)));
        let program = |number| Subject::Program((self.program)(seed.wrapping_add(number)));
        // Another form alone says less than something wrong does, so that is looked for first.
        let mut reviewed: Option<Death> = None;
        let mut is_done = |death: &Option<Death>| {
            let is_wrong = death.as_ref().is_some_and(|death| death.sign.is_wrong());
            if !is_wrong {
                reviewed = reviewed.take().or(death.clone());
            }
            is_wrong || is_over()
        };
        let wrong = named()
            .map(|file| self.corpus(rule, file))
            .chain(drawn.map(|subject| self.found(rule, &subject)))
            .find(|death| is_done(death))
            .flatten();
        let known = wrong.filter(|death| death.sign.is_wrong()).or(reviewed);
        if known.is_some() || is_over() {
            return known;
        }
        let lines = self.forms.iter().filter(|form| (round == 0) == (form.rule == rule.name));
        let lines = lines.filter(|_| round < 2).map(of_form);
        let files = others().map(|file| self.corpus(rule, file));
        let expressions = (0..counts.expressions).map(|n| self.found(rule, &expression(n)));
        let programs = (0..counts.programs).map(|n| self.found(rule, &program(n)));
        let mut all = lines.chain(files).chain(expressions).chain(programs);
        all.find(|death| death.is_some() || is_over()).flatten()
    }

    fn corpus(&self, rule: &Rule, file: &CaseFile) -> Option<Death> {
        if let Some(death) = subject_of(file).and_then(|subject| self.found(rule, &subject)) {
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

    fn found(&self, rule: &Rule, subject: &Subject) -> Option<Death> {
        // Where the rule does not fire it changes nothing.
        if graph_of(subject).is_some_and(|graph| !fires(rule, &graph)) {
            return None;
        }
        let judged = crate::catch(|| (self.judge)(subject)).and_then(|judged| judged);
        let detail = judged.err()?;
        let guilt = crate::catch(|| blame(subject)).ok().flatten();
        let (rule, pass) = guilt.map(|guilt| (guilt.rule, guilt.pass)).unzip();
        let sign = Sign::of(&detail);
        Some(Death { sign, detail, subject: Some(subject.clone()), rule, pass })
    }
}

fn of_form(form: &Form) -> Option<Death> {
    let detail = form.check().err()?;
    let (subject, rule) = (Some(form.subject.clone()), Some(form.rule.clone()));
    Some(Death { sign: Sign::Form, detail, subject, rule, pass: None })
}

/// Whether the rule is applied, in any mode, as [`examine`] rewrites; so it seems if that panics.
fn fires(rule: &Rule, graph: &UOp) -> bool {
    let is_applied = |(mode, _): &(Mode, Claim)| {
        let mut trace = Trace::default();
        outcome(graph, *mode, &mut trace);
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

/// What is wrong with a subject, in a line.
///
/// # Errors
/// What is wrong.
pub fn judge(subject: &Subject) -> Result<(), String> {
    match subject {
        Subject::Expr(case) => crate::check_expr(case),
        Subject::Graph(graph) => MODES.iter().try_for_each(|mode| examine(graph, *mode)),
        Subject::Program(program) => {
            let names = ["interp", "interp/strict"].map(String::from);
            let backends = crate::backends(&names).map_err(|error| error.message)?;
            match crate::agree(&[program], &backends).1.into_iter().next() {
                Some((_, found)) => Err(format!("{}: {}", found.kind.name(), found.detail)),
                None => Ok(()),
            }
        }
    }
}

/// The ways to simplify, each held to its claim: strict first, which the others often equal. Where
/// a float is not finite the third says nothing, so that only floats are judged in it.
const MODES: [(Mode, Claim); 3] =
    [(Mode::Strict, Claim::Bits), (Mode::Default, Claim::Ulp(8)), (Mode::Fast, Claim::Ulp(8))];

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

/// Without the folds that have a closed form; with less fuel if so much is given.
fn collapsed(graph: &UOp, mode: Mode, fuel: Option<u64>, trace: &mut Trace) -> UOp {
    let fuel = Some(fuel.unwrap_or(FUEL));
    collapse(graph, &Options { mode, fuel }, trace)
}

/// Whether the graph holds a loop.
fn is_folded(graph: &UOp) -> bool {
    graph.toposort().iter().any(|node| node.op() == Op::Reduce)
}

/// What rewriting makes of a graph: simplified (without the folds that have a closed form), and as
/// it is last.
pub(crate) fn outcome(graph: &UOp, mode: Mode, trace: &mut Trace) -> [UOp; 2] {
    if is_folded(graph) {
        let closed = collapsed(graph, mode, None, trace);
        return [closed.clone(), closed];
    }
    let simple = rewritten(graph, &symbolic(), mode, None, trace);
    let last = rewritten(&simple, &late(), mode, None, trace);
    [simple, last]
}

fn examine(graph: &UOp, (mode, claim): (Mode, Claim)) -> Result<(), String> {
    let text = || guilt::short(graph);
    let mut trace = Trace::default();
    let [simple, last] = outcome(graph, mode, &mut trace);
    if guilt::is_endless(&trace) {
        return Err(format!("simplifying {} does not end", text()));
    }
    let is_seen = mode != Mode::Strict && {
        let strict = outcome(graph, Mode::Strict, &mut Trace::default());
        strict == [simple.clone(), last.clone()]
    };
    if is_seen || mode == Mode::Fast && !graph.dtype().is_float() {
        return Ok(());
    }
    let mut results = vec![&simple, &last];
    results.dedup();
    for after in results.into_iter().filter(|after| *after != graph) {
        if let Some(words) = witness(graph, after, claim, &Hint::new()) {
            return Err(format!("{} became {}: {words}", text(), guilt::short(after)));
        }
    }
    if is_folded(graph) {
        return Ok(());
    }
    if let Some(stray) = stray(&[graph, &simple], &Hint::new()) {
        let words = stray.words;
        return Err(format!("{} is {words}, outside its bounds", guilt::short(&stray.node)));
    }
    let again = rewritten(&simple, &symbolic(), mode, None, &mut Trace::default());
    if again != simple {
        let texts = (guilt::short(&simple), guilt::short(&again));
        return Err(format!("simplified again, {} becomes {}", texts.0, texts.1));
    }
    Ok(())
}

impl Death {
    /// Whether the rule that blame names is the mutated one.
    pub fn names(&self, mutant: &Mutant) -> bool {
        self.rule.as_deref() == Some(mutant.rule.name)
    }

    /// Whether the pass that blame names is one that runs the mutated rule.
    pub fn passes(&self, mutant: &Mutant) -> bool {
        let pass = self.pass.as_deref().unwrap_or_default();
        match mutant.rule.name.split_once('/') {
            Some(("late", _)) => pass == "late",
            Some(("reduce", _)) => pass == "collapse",
            _ => pass.starts_with("symbolic") || pass == "collapse",
        }
    }
}

/// The rule and the pass that a wrong subject is blamed on.
fn blame(subject: &Subject) -> Option<Guilt> {
    match subject {
        Subject::Expr(case) => crate::blame_expr(case)?.rule,
        Subject::Program(program) => {
            let on = |backend: &str| crate::blame(program, backend);
            on("interp").or_else(|| on("interp/strict"))?.rule
        }
        Subject::Graph(graph) => {
            let is_wrong = |way: &&(Mode, Claim)| {
                !matches!(crate::catch(|| examine(graph, **way)), Ok(Ok(())))
            };
            let way = MODES.iter().find(is_wrong)?;
            let (mode, (symbolic, late)) = (way.0, (symbolic(), late()));
            if is_folded(graph) {
                let go = |fuel, trace: &mut Trace| collapsed(graph, mode, fuel, trace);
                return in_pass(graph, &go, "collapse", way.1);
            }
            let first = |fuel, trace: &mut Trace| rewritten(graph, &symbolic, mode, fuel, trace);
            let found = in_pass(graph, &first, "symbolic", way.1);
            found.or_else(|| {
                let simple = crate::catch(|| first(None, &mut Trace::default())).ok()?;
                let last = |fuel, trace: &mut Trace| rewritten(&simple, &late, mode, fuel, trace);
                in_pass(graph, &last, "late", way.1)
            })
        }
    }
}

/// The application to blame if what `go` makes, given fuel, differs from `graph`.
fn in_pass(
    graph: &UOp,
    go: &dyn Fn(Option<u64>, &mut Trace) -> UOp,
    pass: &str,
    claim: Claim,
) -> Option<Guilt> {
    let named = |guilt: Guilt| Guilt { pass: pass.to_string(), ..guilt };
    let mut run = |fuel: Option<u64>, trace: &mut Trace| {
        let after = crate::catch(|| go(fuel, trace))?;
        witness(graph, &after, claim, &Hint::new()).map_or(Ok(()), Err)
    };
    let mut trace = Trace::with_steps();
    let whole = crate::catch(|| go(None, &mut trace));
    if whole.is_ok() && guilt::is_endless(&trace) {
        return guilt::of_endless(&trace).map(named);
    }
    if let Some(guilt) = guilt::search(&mut run, &Hint::new()) {
        return Some(named(guilt));
    }
    let simple = whole.ok()?;
    if let Some(stray) = stray(&[graph, &simple], &Hint::new()) {
        return Some(named(guilt::of_bounds(&stray)));
    }
    let steps = trace.steps.unwrap_or_default();
    guilt::first_false(&steps, &Hint::new()).map(named)
}

/// The survivors that were looked at: the mutant and why it lives, `equivalent: ...` if no input
/// can tell it from the row, `harmless: ...` if it is right but the result is less simple.
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
                Err(format!("{mutant}: a reason is `equivalent: ...` or `harmless: ...`"))
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

    /// The mutants of some rows, but for those that a review calls equivalent.
    fn some() -> Vec<Mutant> {
        let mut mutants = mutants(&ROWS.map(String::from));
        mutants.retain(|mutant| ROWS.contains(&mutant.rule.name));
        let reviewed = reviewed(include_str!("../../survivors.txt")).expect("it can be read");
        mutants.retain(|mutant| !reviewed.iter().any(|(known, _)| *known == mutant.to_string()));
        mutants
    }

    #[test]
    fn harness_kills_all_mutants_of_some_rows_and_blames_them() {
        let harness = Harness::new(&expression, &program);
        let mutants = some();
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
        for mutant in some() {
            let death = blind.attempt(&mutant, 0, 1, &|| false).expect("it loads");
            assert!(death.is_none(), "{mutant}: {death:?}");
        }
    }

    #[test]
    fn rows_as_they_are_pass_what_mutants_must() {
        let mut state = 7;
        for rule in gradiff::rewrite::rules::rows() {
            for number in 0..24 {
                let Some(subject) = directed(&rule, &rule, number, &mut state) else { continue };
                let judged = judge(&subject);
                assert!(judged.is_ok(), "{}: {subject}: {judged:?}", rule.name);
            }
        }
    }

    #[test]
    fn reviewed_asks_for_a_reason() {
        let line = "divmod/x constant rhs: 1 # equivalent: bounds decide first";
        assert_eq!(reviewed(line).map(|list| list.len()), Ok(1));
        for line in ["divmod/x constant rhs: 1", "divmod/x constant rhs: 1 # looks fine"] {
            assert!(reviewed(line).is_err(), "{line}");
        }
    }
}
