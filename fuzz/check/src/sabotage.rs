//! How good is the harness? Rows of the rule tables are changed one at a time, and the harness is
//! asked whether it notices: with the corpus, with nodes that the row's left side matches, with
//! generated expressions and programs.
//!
//! A mutant is dead once something is wrong by value, bounds, termination or a panic; an `expect`
//! line that fails kills as well, but only says that the result is less simple. No clock here: the
//! caller says how far each round goes and when time is up.

use gradiff::graph::{Arg, DType, Op, UOp};
pub use gradiff::rewrite::mutate::{KINDS, Mutant};
use gradiff::rewrite::{
    Claim, Mode, Options, Rule, RuleSet, Trace, collapse, instance, late, rewrite, symbolic,
};
use gradiff_corpus::{Case, CaseFile, Expect, Expr, ExprCase, ExprUnary, Program, Var};

use crate::guilt::{self, Guilt};
use crate::witness::{Hint, stray, witness};

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
}

impl Sign {
    /// All of them.
    pub const ALL: [Sign; 6] =
        [Sign::Value, Sign::Bounds, Sign::Again, Sign::Endless, Sign::Panic, Sign::Expect];

    /// Its word.
    pub fn name(self) -> &'static str {
        ["value", "bounds", "not final", "endless", "panic", "expect"][self as usize]
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
    /// The rule that blame names.
    pub rule: Option<String>,
    /// The pass that blame names.
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
    let rows = gradiff::rewrite::rows();
    let is_asked = |rule: &&Rule| {
        prefixes.is_empty() || prefixes.iter().any(|prefix| rule.name.starts_with(prefix))
    };
    let of = |rule: &Rule| gradiff::rewrite::mutate::mutants(rule, &rows);
    let mut mutants: Vec<Mutant> = rows.iter().filter(is_asked).flat_map(of).collect();
    // Some rows do not go together with others.
    mutants.retain(|mutant| gradiff::rewrite::with_rows(&[mutant.rule], || ()).is_ok());
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
        files.extend(forms(FORMS).into_iter().flatten());
        files.retain(|file| crate::catch(|| is_fine(file)).unwrap_or(false));
        Harness { files, expression, program, judge, expects }
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
        match crate::catch(|| gradiff::rewrite::with_rows(&rows, work)) {
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
        let names = |file: &&CaseFile| {
            file.expects
                .iter()
                .any(|expect| matches!(expect, Expect::Fires(name) if name == rule.name))
        };
        let is_program = |file: &&CaseFile| matches!(file.case, Case::Program(_));
        let mut reviewed = None;
        let named = self.files.iter().filter(|file| names(file));
        for file in named.filter(|_| round == 0) {
            match self.corpus(file) {
                Some(death) if death.sign != Sign::Expect => return Some(death),
                death => reviewed = reviewed.or(death),
            }
        }
        let mut state = seed;
        for number in 0..counts.directed {
            let subject = directed(rule, number, &mut state);
            let death = subject.and_then(|subject| self.found(&subject));
            if death.is_some() || is_over() {
                return death.or(reviewed);
            }
        }
        // What is known to be less simple is not looked at for longer.
        let others = self.files.iter().filter(|file| !names(file));
        let is_now = |file: &&CaseFile| match round {
            0 => !is_program(file),
            1 => is_program(file),
            _ => false,
        };
        for file in others.filter(is_now) {
            if reviewed.is_some() {
                break;
            }
            match self.corpus(file) {
                Some(death) if death.sign != Sign::Expect => return Some(death),
                death => reviewed = reviewed.or(death),
            }
            if is_over() {
                return reviewed;
            }
        }
        for number in (0..counts.expressions).filter(|_| reviewed.is_none()) {
            let death = self.found(&Subject::Expr((self.expression)(seed.wrapping_add(number))));
            if death.is_some() || is_over() {
                return death;
            }
        }
        for number in (0..counts.programs).filter(|_| reviewed.is_none()) {
            let death = self.found(&Subject::Program((self.program)(seed.wrapping_add(number))));
            if death.is_some() || is_over() {
                return death;
            }
        }
        reviewed
    }

    fn corpus(&self, file: &CaseFile) -> Option<Death> {
        if let Some(death) = subject_of(file).and_then(|subject| self.found(&subject)) {
            return Some(death);
        }
        let detail = match crate::catch(|| (self.expects)(file)) {
            Ok(problems) => problems.into_iter().next()?,
            Err(panic) => panic,
        };
        Some(Death { sign: Sign::Expect, detail, subject: None, rule: None, pass: None })
    }

    fn found(&self, subject: &Subject) -> Option<Death> {
        let judged = crate::catch(|| (self.judge)(subject)).and_then(|judged| judged);
        let detail = judged.err()?;
        let guilt = crate::catch(|| blame(subject)).ok().flatten();
        let (rule, pass) = guilt.map(|guilt| (guilt.rule, guilt.pass)).unzip();
        let sign = Sign::of(&detail);
        Some(Death { sign, detail, subject: Some(subject.clone()), rule, pass })
    }
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

/// The two ways to simplify that are held to different claims.
const MODES: [(Mode, Claim); 2] = [(Mode::Default, Claim::Ulp(8)), (Mode::Strict, Claim::Bits)];

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

fn examine(graph: &UOp, (mode, claim): (Mode, Claim)) -> Result<(), String> {
    let text = || guilt::short(graph);
    let mut trace = Trace::default();
    if is_folded(graph) {
        let closed = collapsed(graph, mode, None, &mut trace);
        if guilt::is_endless(&trace) {
            return Err(format!("collapsing {} does not end", text()));
        }
        let words = witness(graph, &closed, claim, &Hint::new());
        let found = |words| format!("{} became {}: {words}", text(), guilt::short(&closed));
        return words.map_or(Ok(()), |words| Err(found(words)));
    }
    let simple = rewritten(graph, &symbolic(), mode, None, &mut trace);
    let last = rewritten(&simple, &late(), mode, None, &mut trace);
    if guilt::is_endless(&trace) {
        return Err(format!("simplifying {} does not end", text()));
    }
    let mut results = vec![&simple, &last];
    results.dedup();
    for after in results {
        if let Some(words) = witness(graph, after, claim, &Hint::new()) {
            return Err(format!("{} became {}: {words}", text(), guilt::short(after)));
        }
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

/// A node that the rule's left side matches, as an expression if it can be written as one; of the
/// dtypes that the rule is for, each in turn.
pub fn directed(rule: &Rule, number: u64, state: &mut u64) -> Option<Subject> {
    use DType::{Bool, F16, F32, F64, I8, I32, I64, U8, U32};
    const DTYPES: [DType; 12] = [I32, F32, Bool, I8, I32, U8, F64, I32, U32, I64, F16, I32];
    // Whether folds wrap is seen in few bits.
    const FOLDED: [DType; 12] = [I8, I32, F32, I8, U8, I32, I8, F64, I8, Bool, I32, F16];
    let dtypes = if rule.name.starts_with("reduce/") { FOLDED } else { DTYPES };
    let dtypes: Vec<DType> = dtypes.into_iter().filter(|dtype| rule.types.has(*dtype)).collect();
    let mut dice = |count: u64| {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed >> 32) * count) >> 32
    };
    let dtype = dtypes[number as usize % dtypes.len()];
    let graph = instance(rule, dtype, &mut dice)?;
    // The checker of expressions does not run what comes last.
    let expr = if rule.name.starts_with("late/") { None } else { written(&graph) };
    Some(expr.map_or(Subject::Graph(graph), Subject::Expr))
}

/// The expression that says the same as a graph of integers and truth values, if there is one.
fn written(graph: &UOp) -> Option<ExprCase> {
    let mut vars = Vec::new();
    let expr = expr_of(graph, &mut vars, EXPR_DEPTH)?;
    let case = ExprCase { vars, expr };
    // Numbers take the dtype of what stands beside them, which may be another one.
    (case.dtype().is_ok() && crate::to_uop(&case) == *graph).then_some(case)
}

/// How deep a graph may be that is written as an expression.
const EXPR_DEPTH: u32 = 16;

fn expr_of(node: &UOp, vars: &mut Vec<Var>, depth: u32) -> Option<Expr> {
    let depth = depth.checked_sub(1)?;
    let dtype = gradiff_corpus::DType::from_name(node.dtype().name())?;
    let mut of = |number: usize| expr_of(&node.src()[number], vars, depth).map(Box::new);
    match (node.op(), node.arg()) {
        (_, Arg::Const(value)) if dtype == gradiff_corpus::DType::Bool => {
            Some(Expr::Bool(value.is_true()))
        }
        (_, Arg::Const(value)) => Some(Expr::Int(value.to_int()?.try_into().ok()?)),
        (_, Arg::Var(variable)) => {
            let (min, max) = (variable.min, variable.max);
            let var = Var { name: variable.name.clone(), dtype, min, max };
            let known = vars.iter().position(|known| *known == var);
            Some(Expr::Var(known.unwrap_or_else(|| {
                vars.push(var);
                vars.len() - 1
            })))
        }
        (Op::Cast, _) => Some(Expr::Cast(dtype, of(0)?)),
        (Op::Neg, _) => Some(Expr::Unary(ExprUnary::Neg, of(0)?)),
        (Op::Where, _) => Some(Expr::Where(Box::new([*of(0)?, *of(1)?, *of(2)?]))),
        (op, _) if op.is_elementwise() && node.src().len() == 2 => {
            Some(Expr::Binary(crate::exprs::written_op(node)?, of(0)?, of(1)?))
        }
        _ => None,
    }
}

/// What can be found out about a survivor, and the case that tells it from the row, if there is one
/// that can be written as an expression.
pub fn explain(mutant: &Mutant, harness: &Harness<'_>, count: u64) -> (String, Option<ExprCase>) {
    match crate::catch(|| difference(mutant, harness, count)) {
        Ok(None) => (format!("no difference, not even in form, on {count} subjects"), None),
        Ok(Some((subject, before, after))) => {
            let text = subject.to_string().trim().replace('\n', "; ");
            let story = format!("another form: {text} is {before}, with the mutant {after}");
            (story, if let Subject::Expr(case) = subject { Some(case) } else { None })
        }
        Err(panic) => (panic, None),
    }
}

/// The smallest directed or generated subject that the mutant leaves in another form than the rows
/// as they are: the text of both. `None` if there is none: the mutant may be equivalent.
pub fn difference(
    mutant: &Mutant,
    harness: &Harness<'_>,
    count: u64,
) -> Option<(Subject, String, String)> {
    let rows = gradiff::rewrite::rows();
    let rule = rows.iter().find(|rule| rule.name == mutant.rule.name)?;
    let mut state = 1;
    let directed = (0..count).filter_map(|number| {
        let row = if number % 2 == 0 { rule } else { &mutant.rule };
        directed(row, number / 2, &mut state)
    });
    let mut subjects: Vec<Subject> = directed.collect();
    subjects.extend((0..count / 2).map(|number| Subject::Expr((harness.expression)(number))));
    let graph = |subject: &Subject| match subject {
        Subject::Expr(case) => Some(crate::to_uop(case)),
        Subject::Graph(graph) => Some(graph.clone()),
        Subject::Program(_) => None,
    };
    let graphs: Vec<UOp> = subjects.iter().filter_map(graph).collect();
    let form = |graph: &UOp| {
        let mut trace = Trace::default();
        let simple = rewritten(graph, &symbolic(), Mode::Default, None, &mut trace);
        rewritten(&simple, &late(), Mode::Default, None, &mut trace)
    };
    let before: Vec<UOp> = graphs.iter().map(form).collect();
    // The smallest one, and one that can be written as an expression.
    let size = |at: &usize| {
        let is_expr = matches!(subjects[*at], Subject::Expr(_));
        graphs[*at].toposort().len() + if is_expr { 0 } else { 1000 }
    };
    let differs = || {
        let at =
            (0..graphs.len()).filter(|at| form(&graphs[*at]) != before[*at]).min_by_key(size)?;
        Some((at, form(&graphs[at])))
    };
    let (at, after) = gradiff::rewrite::with_rows(&[mutant.rule], differs).ok()??;
    Some((subjects.swap_remove(at), guilt::short(&before[at]), guilt::short(&after)))
}

/// Expressions and what they become, each of which tells a mutant from the row as it is.
const FORMS: &str = include_str!("../../forms.txt");

/// The reviewed expressions, as corpus files: a line is a case, `=>` and its simplified text.
///
/// # Errors
/// Of a line, what cannot be read.
pub fn forms(text: &str) -> Vec<Result<CaseFile, String>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &str| {
        let (case, form) = line.split_once(" => ").ok_or(format!("no => in {line}"))?;
        let text = format!("{}\nexpect text {form}\n", case.replace("; ", "\n"));
        gradiff_corpus::parse(&text).map_err(|error| format!("{line}: {error}"))
    };
    lines.map(read).collect()
}

/// A line of the list of forms, of a case as it is simplified now.
pub fn form_line(case: &ExprCase) -> String {
    let text = case.to_string();
    let simple = gradiff::rewrite::simplify(&crate::to_uop(case));
    format!("{} => {}", text.trim().replace('\n', "; "), gradiff::graph::infix(&simple))
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

    /// The mutants of some rows that change what comes out.
    fn some() -> Vec<Mutant> {
        let mut mutants = mutants(&ROWS.map(String::from));
        mutants.retain(|mutant| ROWS.contains(&mutant.rule.name));
        mutants.retain(|mutant| mutant.field == "rhs");
        mutants
    }

    #[test]
    fn harness_kills_all_mutants_of_some_rows_and_blames_them() {
        let harness = Harness::new(&expression, &program);
        let mutants = some();
        assert!(mutants.len() > 12, "{}", mutants.len());
        let (mut wrong, mut named) = (0, 0);
        for mutant in mutants {
            let attempt = |round| harness.attempt(&mutant, round, 1, &|| false).expect("it loads");
            let death = attempt(0).or_else(|| attempt(1)).or_else(|| attempt(2));
            let death = death.unwrap_or_else(|| panic!("{mutant} lives"));
            wrong += usize::from(death.sign != Sign::Expect);
            named += usize::from(death.sign != Sign::Expect && death.names(&mutant));
        }
        assert!(wrong > 8 && named * 20 >= wrong * 19, "{named} of {wrong} are blamed rightly");
    }

    #[test]
    fn harness_that_checks_nothing_kills_nothing() {
        let (judge, expects) = (|_: &Subject| Ok(()), |_: &CaseFile| Vec::new());
        let files = Vec::new();
        let blind = Harness { files, expression: &expression, program: &program, judge, expects };
        for mutant in some() {
            let death = blind.attempt(&mutant, 0, 1, &|| false).expect("it loads");
            assert!(death.is_none(), "{mutant}: {death:?}");
        }
    }

    #[test]
    fn rows_as_they_are_pass_what_mutants_must() {
        let mut state = 7;
        for rule in gradiff::rewrite::rows() {
            for number in 0..24 {
                let Some(subject) = directed(&rule, number, &mut state) else { continue };
                let judged = judge(&subject);
                assert!(judged.is_ok(), "{}: {subject}: {judged:?}", rule.name);
            }
        }
    }

    #[test]
    fn forms_are_as_reviewed() {
        let mut problems = Vec::new();
        for file in forms(FORMS) {
            problems.extend(crate::check_expects(&file.expect("the line is readable")));
        }
        assert!(problems.is_empty(), "see the head of fuzz/forms.txt:\n{}", problems.join("\n"));
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
