//! What rules make of small subjects, as reviewed text. A mutant that changes no value but leaves
//! something less simple (or simpler than it may be) is told from its row by these.
//!
//! A line is `RULE: SUBJECT => FORM`. The rule is the one whose mutants the line tells from it; the
//! subject is an expression case, or a graph in its text form, with `; ` for each end of a line;
//! the form is its infix text once it is rewritten, and that of other modes where it is another.

use std::fmt::Write as _;

use gradiff::UOp;
use gradiff::graph::{parse_text, verify};
use gradiff::rewrite::{Mode, Options, Rule, RuleSet, Trace, rewrite};
use gradiff_corpus::Case;
use gradiff_rules::mutate::Mutant;

use crate::directed::directed;
use crate::guilt::short;
use crate::sabotage::{Harness, Subject, outcome};

/// The reviewed lines.
pub const FORMS: &str = include_str!("../../forms.txt");

/// A subject and what comes out of it.
#[derive(Clone, Debug)]
pub struct Form {
    /// The rule whose mutants it tells from it.
    pub rule: String,
    /// An expression or a graph.
    pub subject: Subject,
    /// See [`form`].
    pub text: String,
}

impl Form {
    /// The form that a subject has now; none of programs.
    pub fn new(rule: &str, subject: &Subject) -> Option<Form> {
        let text = form(&graph_of(subject)?);
        Some(Form { rule: rule.to_owned(), subject: subject.clone(), text })
    }

    /// Reads a line of the list.
    ///
    /// # Errors
    /// What cannot be read.
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
                _ => return Err(failed("this is no expression")),
            }
        };
        Ok(Form { rule: rule.to_owned(), subject, text: text.to_owned() })
    }

    /// Whether the subject still has this form.
    ///
    /// # Errors
    /// What it has now.
    pub fn check(&self) -> Result<(), String> {
        let now = self.now();
        if now == self.text { Ok(()) } else { Err(format!("{self}, but now {now}")) }
    }

    /// The form that the subject has now; a panic is its message.
    pub fn now(&self) -> String {
        let now = graph_of(&self.subject).map(|graph| crate::catch(|| form(&graph)));
        now.unwrap_or(Ok(String::new())).unwrap_or_else(|panic| panic)
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let subject = match &self.subject {
            Subject::Graph(graph) => graph.to_text(),
            other => other.to_string(),
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

/// What all passes that know a graph make of it, as text: simplified, and with the last pass where
/// that is another one; by default, and in the other modes where they differ.
pub fn form(graph: &UOp) -> String {
    let of = |mode| outcome(graph, mode, &mut Trace::default());
    let words = |[simple, last]: &[UOp; 2]| match simple == last {
        true => short(simple),
        false => format!("{}, last {}", short(simple), short(last)),
    };
    let usual = of(Mode::Default);
    let mut text = words(&usual);
    for (mode, name) in [(Mode::Strict, "strict"), (Mode::Fast, "fast")] {
        let other = of(mode);
        if other != usual {
            let _ = write!(text, ", {name} {}", words(&other));
        }
    }
    text
}

/// What tells survivors of one rule from it.
pub struct Differences {
    row: Rule,
    /// Subjects of the row, as many as were asked for, smallest first.
    subjects: Vec<Candidate>,
    count: u64,
    /// More subjects, and what the row alone makes of each; drawn when they are needed.
    pool: Option<Vec<(Subject, UOp)>>,
    /// Those that told a mutant from the row.
    pub found: Vec<Form>,
}

/// A subject, its graph and its form.
type Candidate = (Subject, UOp, String);

/// What tells a mutant from its row.
pub enum Told {
    /// A subject, and its form with the mutant.
    By(Box<Form>, String),
    /// Nothing: of so many subjects the mutant alone treats this many in another way than the row
    /// alone, and all of them come to the same form.
    Never(usize, usize),
}

/// How many times more subjects are tried by the row alone and the mutant alone.
const POOL: u64 = 20;

/// At most so many of them are rewritten with all rules.
const APART: usize = 1_500;

impl Differences {
    /// For the row of this name, on so many subjects; `None` if there is no such row.
    pub fn new(rule: &str, harness: &Harness<'_>, count: u64) -> Option<Differences> {
        let row = gradiff::rewrite::rules::rows().into_iter().find(|row| row.name == rule)?;
        let mut state = 1;
        let drawn = (0..count).filter_map(|number| directed(&row, &row, number, &mut state));
        let expressions = (0..count / 4).map(|number| Subject::Expr((harness.expression)(number)));
        let subjects = with_forms(drawn.chain(expressions));
        Some(Differences { row, subjects, count, pool: None, found: Vec::new() })
    }

    /// The smallest subject that the mutant leaves in another form, and that form.
    pub fn of(&mut self, mutant: &Mutant) -> Told {
        let search = || match self.found.iter().find(|form| form.check().is_err()) {
            Some(form) => Some((form.clone(), form.now())),
            None => self.first(&self.subjects),
        };
        // The mutant was tried with these tables before, so that they load.
        let told = gradiff::rewrite::rules::with_rows(&[mutant.rule], search).ok().flatten();
        let (told, drawn, apart) = match told {
            Some(told) => (Some(told), 0, 0),
            None => {
                let (drawn, apart) = self.apart(mutant);
                let (apart, count) = (with_forms(apart.into_iter()), drawn);
                let search = || self.first(&apart);
                let told =
                    gradiff::rewrite::rules::with_rows(&[mutant.rule], search).ok().flatten();
                (told, count, apart.len())
            }
        };
        let Some((form, now)) = told else { return Told::Never(drawn, apart) };
        if !self.found.iter().any(|known| known.to_string() == form.to_string()) {
            self.found.push(form.clone());
        }
        Told::By(Box::new(form), now)
    }

    /// The first of these that has another form now.
    fn first(&self, candidates: &[Candidate]) -> Option<(Form, String)> {
        candidates.iter().find_map(|(subject, _, text)| {
            let (rule, subject) = (self.row.name.to_owned(), subject.clone());
            let form = Form { rule, subject, text: text.clone() };
            form.check().is_err().then(|| (form.clone(), form.now()))
        })
    }

    /// How many subjects were drawn, and those of them that the mutant alone makes something else
    /// of than the row alone.
    fn apart(&mut self, mutant: &Mutant) -> (usize, Vec<Subject>) {
        let row = self.row;
        // What a stronger claim lets a row do is seen where others may not.
        let mode = if mutant.field == "claim" { Mode::Strict } else { Mode::Fast };
        let alone = |rule: &Rule| {
            let set = RuleSet::load_unordered(&[&[*rule]]).ok()?;
            Some(move |graph: &UOp| {
                let options = Options { mode, fuel: Some(1) };
                let made = || rewrite(graph, &set, &options, &mut Trace::default());
                crate::catch(made).ok()
            })
        };
        let (Some(by_row), Some(by_mutant)) = (alone(&row), alone(&mutant.rule)) else {
            return (0, Vec::new());
        };
        let draw = |rule: &Rule, count: u64, mut state: u64| {
            let subject = move |number| directed(rule, &row, number, &mut state);
            let made = |subject: Subject| {
                let made = by_row(&graph_of(&subject)?)?;
                Some((subject, made))
            };
            (0..count).filter_map(subject).filter_map(made).collect::<Vec<_>>()
        };
        let pool = self.pool.get_or_insert_with(|| draw(&row, POOL * self.count, 3));
        // What the mutant's own left side matches may be something that the row does not match.
        let is_own = ["lhs", "types", "given"].contains(&mutant.field);
        let own = draw(&mutant.rule, if is_own { POOL * self.count } else { 0 }, 5);
        let is_apart = |(subject, made): &&(Subject, UOp)| {
            graph_of(subject).and_then(|graph| by_mutant(&graph)).is_none_or(|new| new != *made)
        };
        let apart = pool.iter().chain(&own).filter(is_apart).take(APART);
        (pool.len() + own.len(), apart.map(|(subject, _)| subject.clone()).collect())
    }
}

/// Each subject whose form is short enough to stand there whole and no panic, smallest first.
fn with_forms(subjects: impl Iterator<Item = Subject>) -> Vec<Candidate> {
    let with_form = |subject: Subject| {
        let graph = graph_of(&subject)?;
        let text = crate::catch(|| form(&graph)).ok()?;
        (!text.contains("...")).then_some((subject, graph, text))
    };
    let mut subjects: Vec<_> = subjects.filter_map(with_form).collect();
    // One that can be written as an expression is easier to read.
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
            crate::sabotage::judge(&form.subject).map_err(|problem| format!("{form}: {problem}"))
        };
        let problems: Vec<String> =
            read(FORMS).into_iter().filter_map(|form| check(form).err()).collect();
        assert!(problems.is_empty(), "see the head of fuzz/forms.txt:\n{}", problems.join("\n"));
    }

    #[test]
    fn forms_tell_mutants_that_change_no_value() {
        let forms: Vec<Form> = read(FORMS).into_iter().flatten().collect();
        let told = [
            "compare/less-cdiv sign when: c0 > 0 && c1 <= 0 && fits((c1 - 1) * c0 + -1, x)",
            "divmod/cdiv-to-floor constant when: min(x) >= 0 && min(y) >= 1",
            "late/word-of-word condition when: isint(x) && isint(root) && bits(s) == 64",
            "validity/clauses types types: Bits",
        ];
        let mut count = 0;
        for name in told {
            let rule = name.split(' ').next().unwrap_or_default();
            let mutants = crate::sabotage::mutants(&[rule.to_owned()]);
            for mutant in mutants.iter().filter(|mutant| mutant.to_string() == name) {
                let own = || forms.iter().any(|form| form.rule == rule && form.check().is_err());
                assert_eq!(
                    gradiff::rewrite::rules::with_rows(&[mutant.rule], own),
                    Ok(true),
                    "{name}"
                );
                count += 1;
            }
        }
        assert_eq!(count, told.len());
    }

    #[test]
    fn forms_that_are_wrong_or_unreadable_are_refused() {
        let line = "late/neg: %0 = define_var i32 v0 0..9; %1 = neg i32 %0 => (v0*-1), last (-v0)";
        let form = Form::parse(line).expect("it can be read");
        assert_eq!((form.check(), form.to_string()), (Ok(()), line.to_owned()));
        let other = Form::parse(&line.replace("*-1", "*-2")).expect("it can be read");
        assert!(other.check().is_err());
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
