//! Forms: reviewed texts of small subjects after rewriting. They distinguish a mutant from its row
//! if the mutant changes no value but leaves something less simple (or simpler than allowed).
//!
//! A line is `RULE: SUBJECT => FORM`. It distinguishes mutants of this rule from the rule. The
//! subject is an expression case, or a graph in its text form, with `; ` for each end of a line;
//! the form is its infix text after rewriting, and that of other modes where it differs.

use std::fmt::Write as _;

use gradiff::UOp;
use gradiff::graph::text::parse_text;
use gradiff::graph::verify::verify;
use gradiff::rewrite::{Mode, Options, Rule, RuleSet, Trace, rewrite};
use gradiff_corpus::Case;
use gradiff_rules::mutate::Mutant;

use crate::blame::culprit::short;
use crate::random::Random;
use crate::rules::directed::directed;
use crate::rules::sabotage::{Harness, Subject, contracted, legalizes, outcome};

/// The reviewed lines.
pub const FORMS: &str = include_str!("../../../forms.txt");

/// A subject and its form.
#[derive(Clone, Debug)]
pub struct Form {
    /// The rule whose mutants it distinguishes.
    pub rule: String,
    /// An expression or a graph.
    pub subject: Subject,
    /// See [`form`].
    pub text: String,
}

impl Form {
    /// The form that a subject has now; `None` for programs.
    pub fn new(rule: &str, subject: &Subject) -> Option<Form> {
        let text = form(rule, &graph_of(subject)?);
        Some(Form { rule: rule.to_owned(), subject: subject.clone(), text })
    }

    /// Reads a line of the list.
    ///
    /// # Errors
    /// The part that cannot be read.
    pub fn parse(line: &str) -> Result<Form, String> {
        let failed = |problem: &str| format!("{problem}: {line}");
        let (rule, rest) = line.split_once(": ").ok_or(failed("no rule"))?;
        let (subject, text) = rest.split_once(" => ").ok_or(failed("no =>"))?;
        let lines = subject.replace("; ", "\n");
        let subject = if subject.starts_with('%') {
            let graph = parse_text(&lines).map_err(|error| failed(&error.to_string()))?;
            verify(&graph).map_err(|error| failed(&error.to_string()))?;
            Subject::Graph(graph)
        } else {
            let file = gradiff_corpus::parse(&lines).map_err(|error| failed(&error.to_string()))?;
            match file.case {
                Case::Expr(case) => Subject::Expr(case),
                _ => return Err(failed("this is not an expression")),
            }
        };
        Ok(Form { rule: rule.to_owned(), subject, text: text.to_owned() })
    }

    /// Checks that the subject still has this form.
    ///
    /// # Errors
    /// The form that it has now.
    pub fn check(&self) -> Result<(), String> {
        let now = self.now();
        if now == self.text { Ok(()) } else { Err(format!("{self}, but now {now}")) }
    }

    /// The form that the subject has now; for a panic, its message.
    pub fn now(&self) -> String {
        let now = graph_of(&self.subject).map(|graph| crate::catch(|| form(&self.rule, &graph)));
        now.unwrap_or(Ok(String::new())).unwrap_or_else(|panic| panic)
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let subject = match &self.subject {
            Subject::Graph(graph) => graph.to_text(),
            subject => subject.to_string(),
        };
        write!(f, "{}: {} => {}", self.rule, subject.trim().replace('\n', "; "), self.text)
    }
}

/// The lines of a list, but for comments and empty ones.
pub fn read(text: &str) -> Vec<Result<Form, String>> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(Form::parse).collect()
}

pub(crate) fn graph_of(subject: &Subject) -> Option<UOp> {
    match subject {
        Subject::Expr(case) => Some(crate::to_uop(case)),
        Subject::Graph(graph) => Some(graph.clone()),
        Subject::Program(_) => None,
    }
}

/// The graph after rewriting, as text. For a rule that makes graphs legal: made legal as it is; for
/// a rule of contraction: with multiply-adds; both in the default mode. For others: simplified, and
/// after the late pass if that differs; in the default mode, and in the other modes where they
/// differ.
pub fn form(rule: &str, graph: &UOp) -> String {
    let rewritten = |mode| outcome(graph, mode, &mut Trace::default());
    if rule.starts_with("contract/") {
        return short(&contracted(graph));
    }
    if legalizes(rule) {
        let [.., legal] = rewritten(Mode::Default);
        return short(&legal);
    }
    let described = |[simple, last, ..]: &[UOp; 4]| match simple == last {
        true => short(simple),
        false => format!("{}, last {}", short(simple), short(last)),
    };
    let by_default = rewritten(Mode::Default);
    let mut text = described(&by_default);
    for (mode, name) in [(Mode::Strict, "strict"), (Mode::Fast, "fast")] {
        let in_mode = rewritten(mode);
        if in_mode[..2] != by_default[..2] {
            let _ = write!(text, ", {name} {}", described(&in_mode));
        }
    }
    text
}

/// Finds forms that distinguish the surviving mutants of one rule from it.
pub struct Differences {
    row: Rule,
    /// The requested number of subjects of the row, smallest first.
    subjects: Vec<Candidate>,
    count: u64,
    /// More subjects, and the result of the row alone for each; drawn when they are needed.
    pool: Option<Vec<(Subject, UOp)>>,
    /// Forms that distinguished a mutant from the row.
    pub found: Vec<Form>,
}

/// A subject, its graph and its form.
type Candidate = (Subject, UOp, String);

/// The answer to whether a form distinguishes a mutant from its row.
pub enum Distinction {
    /// A subject, and its form with the mutant.
    By(Box<Form>, String),
    /// No form: of so many subjects, the mutant alone rewrites this many differently from the row
    /// alone, and all of them have the same form in the end.
    Never(usize, usize),
}

/// Factor by which more subjects are tried with the row alone and the mutant alone.
const POOL: u64 = 20;

/// Maximal number of these that are rewritten with all rules.
const DIFFERENT_MAX: usize = 1_500;

impl Differences {
    /// Starts with the row of this name and `count` subjects; `None` if there is no such row.
    pub fn new(rule: &str, harness: &Harness<'_>, count: u64) -> Option<Differences> {
        let row = gradiff::rewrite::rules::rows().into_iter().find(|row| row.name == rule)?;
        let mut random = Random::new(1);
        let drawn = (0..count).filter_map(|number| directed(&row, &row, number, &mut random));
        let expressions = (0..count / 4).map(|number| Subject::Expr((harness.expression)(number)));
        let subjects = with_forms(rule, drawn.chain(expressions));
        Some(Differences { row, subjects, count, pool: None, found: Vec::new() })
    }

    /// The smallest subject to which the mutant gives another form, and that form.
    pub fn of(&mut self, mutant: &Mutant) -> Distinction {
        let search = || match self.found.iter().find(|form| form.check().is_err()) {
            Some(form) => Some((form.clone(), form.now())),
            None => self.first(&self.subjects),
        };
        // The mutant was tried with these tables before, so that they load.
        let changed = gradiff::rewrite::rules::with_rows(&[mutant.rule], search).ok().flatten();
        let (changed, drawn, different) = match changed {
            Some(changed) => (Some(changed), 0, 0),
            None => {
                let (drawn, different) = self.different(mutant);
                let (different, count) = (with_forms(self.row.name, different.into_iter()), drawn);
                let search = || self.first(&different);
                let changed =
                    gradiff::rewrite::rules::with_rows(&[mutant.rule], search).ok().flatten();
                (changed, count, different.len())
            }
        };
        let Some((form, now)) = changed else { return Distinction::Never(drawn, different) };
        if !self.found.iter().any(|known| known.to_string() == form.to_string()) {
            self.found.push(form.clone());
        }
        Distinction::By(Box::new(form), now)
    }

    /// The first of these whose form differs now, with that form.
    fn first(&self, candidates: &[Candidate]) -> Option<(Form, String)> {
        candidates.iter().find_map(|(subject, _, text)| {
            let (rule, subject) = (self.row.name.to_owned(), subject.clone());
            let form = Form { rule, subject, text: text.clone() };
            form.check().is_err().then(|| (form.clone(), form.now()))
        })
    }

    /// The number of subjects drawn, and those of them that the mutant alone rewrites differently
    /// from the row alone.
    fn different(&mut self, mutant: &Mutant) -> (usize, Vec<Subject>) {
        let row = self.row;
        // A mutant of a stronger claim applies in strict mode, where the row may not.
        let mode = if mutant.field == "claim" { Mode::Strict } else { Mode::Fast };
        let alone = |rule: &Rule| {
            let set = RuleSet::load_unordered(&[&[*rule]]).ok()?;
            Some(move |graph: &UOp| {
                let options = Options { mode, fuel: Some(1) };
                let rewritten = || rewrite(graph, &set, &options, &mut Trace::default());
                crate::catch(rewritten).ok()
            })
        };
        let (Some(by_row), Some(by_mutant)) = (alone(&row), alone(&mutant.rule)) else {
            return (0, Vec::new());
        };
        let draw = |rule: &Rule, count: u64, mut random: Random| {
            let subject = move |number| directed(rule, &row, number, &mut random);
            let with_result = |subject: Subject| {
                let result = by_row(&graph_of(&subject)?)?;
                Some((subject, result))
            };
            (0..count).filter_map(subject).filter_map(with_result).collect::<Vec<_>>()
        };
        let pool = self.pool.get_or_insert_with(|| draw(&row, POOL * self.count, Random::new(3)));
        // The mutant's left side may match nodes that the row does not match.
        let matches_more = ["lhs", "types", "given"].contains(&mutant.field);
        let count = if matches_more { POOL * self.count } else { 0 };
        let matched = draw(&mutant.rule, count, Random::new(5));
        let differs = |(subject, result): &&(Subject, UOp)| {
            graph_of(subject).and_then(|graph| by_mutant(&graph)).is_none_or(|new| new != *result)
        };
        let different = pool.iter().chain(&matched).filter(differs).take(DIFFERENT_MAX);
        (pool.len() + matched.len(), different.map(|(subject, _)| subject.clone()).collect())
    }
}

/// The subjects whose form is computed without a panic and printed uncut, smallest first.
fn with_forms(rule: &str, subjects: impl Iterator<Item = Subject>) -> Vec<Candidate> {
    let with_form = |subject: Subject| {
        let graph = graph_of(&subject)?;
        let text = crate::catch(|| form(rule, &graph)).ok()?;
        (!text.contains("...")).then_some((subject, graph, text))
    };
    let mut subjects: Vec<_> = subjects.filter_map(with_form).collect();
    // A subject that can be written as an expression is easier to read.
    let is_graph = |subject: &Subject| matches!(subject, Subject::Graph(_));
    subjects.sort_by_cached_key(|(subject, graph, _)| {
        graph.toposort().len() + if is_graph(subject) { 8 } else { 0 }
    });
    subjects
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_as_reviewed_and_right() {
        let check = |form: Result<Form, String>| {
            let form = form?;
            form.check()?;
            crate::rules::sabotage::judge(&form.subject)
                .map_err(|problem| format!("{form}: {problem}"))
        };
        let problems: Vec<String> =
            read(FORMS).into_iter().filter_map(|form| check(form).err()).collect();
        assert!(problems.is_empty(), "see the head of fuzz/forms.txt:\n{}", problems.join("\n"));
    }

    #[test]
    fn forms_distinguish_mutants_that_change_no_value() {
        let forms: Vec<Form> = read(FORMS).into_iter().flatten().collect();
        let distinguished = [
            "compare/less-cdiv sign when: c0 > 0 && c1 <= 0 && fits((c1 - 1) * c0 + -1, x)",
            "divmod/cdiv-to-floor constant when: min(x) >= 0 && min(y) >= 1",
            "late/word-of-word condition when: isint(x) && isint(root) && bits(s) == 64",
            "validity/clauses types types: Bits",
        ];
        let mut count = 0;
        for name in distinguished {
            let rule = name.split(' ').next().unwrap_or_default();
            let mutants = crate::rules::sabotage::mutants(&[rule.to_owned()]);
            for mutant in mutants.iter().filter(|mutant| mutant.to_string() == name) {
                let fails = || forms.iter().any(|form| form.rule == rule && form.check().is_err());
                assert_eq!(
                    gradiff::rewrite::rules::with_rows(&[mutant.rule], fails),
                    Ok(true),
                    "{name}"
                );
                count += 1;
            }
        }
        assert_eq!(count, distinguished.len());
    }

    #[test]
    fn forms_that_are_wrong_or_unreadable_are_refused() {
        let line = "late/neg: %0 = define_var i32 v0 0..9; %1 = neg i32 %0 => (v0*-1), last (-v0)";
        let form = Form::parse(line).expect("it can be read");
        assert_eq!((form.check(), form.to_string()), (Ok(()), line.to_owned()));
        let changed = Form::parse(&line.replace("*-1", "*-2")).expect("it can be read");
        assert!(changed.check().is_err());
        for line in [
            "late/neg",
            "late/neg: %0 = define_var i32 v0 0..9",
            "late/neg: %0 = define_var i33 v0 0..9 => v0",
            "late/neg: %0 = const f32 1.0; %1 = and f32 %0 %0 => 1.0",
            "late/neg: reshape 2 3 => v0",
        ] {
            assert!(Form::parse(line).is_err(), "{line}");
        }
    }
}
