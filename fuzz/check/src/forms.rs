//! What rules make of small subjects, as reviewed text. A mutant that changes no value but leaves
//! something less simple (or simpler than it may be) is told from its row by these.
//!
//! A line is `RULE: SUBJECT => FORM`. The rule is the one whose mutants the line tells from it; the
//! subject is an expression case, or a graph in its text form, with `; ` for each end of a line;
//! the form is its infix text once it is rewritten, and that of other modes where it is another.

use std::fmt::Write as _;

use gradiff::UOp;
use gradiff::graph::{parse_text, verify};
use gradiff::rewrite::{Mode, Rule, Trace};
use gradiff_corpus::Case;

use crate::directed::directed;
use crate::guilt::short;
use crate::sabotage::{Harness, Mutant, Subject, outcome};

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
        let now = graph_of(&self.subject).map(|graph| crate::catch(|| form(&graph)));
        let now = now.unwrap_or(Ok(String::new())).unwrap_or_else(|panic| panic);
        if now == self.text { Ok(()) } else { Err(format!("{self}, but now {now}")) }
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

/// What all passes that know a graph make of it, as text: by default, and in the other modes where
/// that is not the same.
pub fn form(graph: &UOp) -> String {
    let of = |mode| {
        let [_, last] = outcome(graph, mode, &mut Trace::default());
        last
    };
    let usual = of(Mode::Default);
    let mut text = short(&usual);
    for (mode, name) in [(Mode::Strict, "strict"), (Mode::Fast, "fast")] {
        let other = of(mode);
        if other != usual {
            let _ = write!(text, ", {name} {}", short(&other));
        }
    }
    text
}

/// What tells survivors of one rule from it.
pub struct Differences {
    row: Rule,
    /// Subjects of the row, as many as were asked for, smallest first.
    subjects: Vec<(Subject, UOp, String)>,
    count: u64,
    /// Those that told a mutant from the row.
    pub found: Vec<Form>,
}

impl Differences {
    /// For the row of this name, on so many subjects; `None` if there is no such row.
    pub fn new(rule: &str, harness: &Harness<'_>, count: u64) -> Option<Differences> {
        let row = gradiff::rewrite::rows().into_iter().find(|row| row.name == rule)?;
        let mut state = 1;
        let drawn = (0..count).filter_map(|number| directed(&row, &row, number, &mut state));
        let expressions = (0..count / 4).map(|number| Subject::Expr((harness.expression)(number)));
        let subjects = with_forms(drawn.chain(expressions));
        Some(Differences { row, subjects, count, found: Vec::new() })
    }

    /// The smallest subject that the mutant leaves in another form, and that form. `None` if there
    /// is none: the mutant may be equivalent.
    pub fn of(&mut self, mutant: &Mutant) -> Option<(Form, String)> {
        let told = |(subject, graph, text): &(Subject, UOp, String)| {
            let now = crate::catch(|| form(graph)).unwrap_or_else(|panic| panic);
            let form =
                || Form { rule: self.row.name.into(), subject: subject.clone(), text: text.clone() };
            (now != *text).then(|| (form(), now))
        };
        // What the mutant's own left side matches may be something that the row does not match.
        let mut state = 2;
        let is_own = ["lhs", "types"].contains(&mutant.field);
        let count = if is_own { self.count } else { self.count / 4 };
        let own = (0..count).filter_map(|number| directed(&mutant.rule, &self.row, number, &mut state));
        let own = with_forms(own);
        let known = |form: &Form| Some((form.check().err()?, form.clone()));
        let search = || match self.found.iter().find_map(known) {
            Some((_, form)) => Some((form.clone(), crate::forms::form(&graph_of(&form.subject)?))),
            None => self.subjects.iter().find_map(told).or_else(|| own.iter().find_map(told)),
        };
        let (form, now) = gradiff::rewrite::with_rows(&[mutant.rule], search).ok()??;
        if !self.found.iter().any(|known| known.to_string() == form.to_string()) {
            self.found.push(form.clone());
        }
        Some((form, now))
    }
}

/// Each subject that has a form short enough to stand there whole, smallest first; one that is no panic.
fn with_forms(subjects: impl Iterator<Item = Subject>) -> Vec<(Subject, UOp, String)> {
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
    fn forms_are_as_reviewed() {
        let check = |form: Result<Form, String>| form.and_then(|form| form.check()).err();
        let problems: Vec<String> = read(FORMS).into_iter().filter_map(check).collect();
        assert!(problems.is_empty(), "see the head of fuzz/forms.txt:\n{}", problems.join("\n"));
    }
}
