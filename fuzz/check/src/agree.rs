//! Does a backend agree with the oracle? Programs in, counts and findings out.

use std::collections::BTreeMap;

use gradiff_corpus::{Array, Program};
use gradiff_oracle::{Expected, Mismatch};

use crate::{Backend, Outcome, strict};

/// What was done and what it showed. Sums of tallies are tallies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Programs run (each on every backend).
    pub programs: u64,
    /// Output elements compared, over all backends.
    pub checked_elements: u64,
    /// Those of them that the oracle could not say, or that are undefined.
    pub unspecified_elements: u64,
    /// Programs whose answer was wrong or refused, counted per backend.
    pub mismatches: u64,
    /// Programs that killed a backend.
    pub crashes: u64,
    /// Programs that a backend did not finish.
    pub timeouts: u64,
    /// Programs skipped, by backend and reason.
    pub skipped: BTreeMap<String, u64>,
}

impl Tally {
    /// Adds what another run did.
    pub fn add(&mut self, other: &Tally) {
        self.programs += other.programs;
        self.checked_elements += other.checked_elements;
        self.unspecified_elements += other.unspecified_elements;
        self.mismatches += other.mismatches;
        self.crashes += other.crashes;
        self.timeouts += other.timeouts;
        for (reason, count) in &other.skipped {
            *self.skipped.entry(reason.clone()).or_default() += count;
        }
    }

    /// The share of compared elements that nothing could be said of; 0 if none was compared.
    pub fn unspecified_fraction(&self) -> f64 {
        self.unspecified_elements as f64 / self.checked_elements.max(1) as f64
    }
}

/// How a backend failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A wrong element.
    Mismatch,
    /// A well-formed program refused, or outputs of the wrong form.
    Refused,
    /// A panic or a dead process.
    Crash,
    /// No answer in time.
    Timeout,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Kind; 4] = [Kind::Mismatch, Kind::Refused, Kind::Crash, Kind::Timeout];

    /// The word in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Mismatch => "mismatch",
            Kind::Refused => "refused",
            Kind::Crash => "crash",
            Kind::Timeout => "timeout",
        }
    }

    /// The kind of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// One failure of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which backend.
    pub backend: String,
    /// How.
    pub kind: Kind,
    /// What was seen and what was expected.
    pub detail: String,
}

/// Runs the programs on every backend and judges each output element against the oracle.
/// Failures come with the position of their program, in order of position.
pub fn agree(
    programs: &[&Program],
    backends: &[Box<dyn Backend>],
) -> (Tally, Vec<(usize, Failure)>) {
    agree_where(programs, backends, &|_, _| true)
}

/// The same for programs of a hunt, of which the first one has this number: each backend runs those
/// that it [takes](Backend::takes).
pub fn agree_in_turn(
    first: u64,
    programs: &[&Program],
    backends: &[Box<dyn Backend>],
) -> (Tally, Vec<(usize, Failure)>) {
    agree_where(programs, backends, &|backend, position| backend.takes(first + position as u64))
}

fn agree_where(
    programs: &[&Program],
    backends: &[Box<dyn Backend>],
    takes: &dyn Fn(&dyn Backend, usize) -> bool,
) -> (Tally, Vec<(usize, Failure)>) {
    let mut tally = Tally { programs: programs.len() as u64, ..Tally::default() };
    let mut failures = Vec::new();
    let expected: Vec<_> = programs.iter().map(|program| expectation(program)).collect();
    let mut strict = strict::References::default();
    for backend in backends {
        let mut chosen = Vec::new();
        for (position, program) in programs.iter().enumerate() {
            if !takes(&**backend, position) {
                continue;
            }
            match (&expected[position], backend.supports(program)) {
                (Err(_), _) => {}
                (Ok(_), Some(reason)) => {
                    *tally.skipped.entry(format!("{}: {reason}", backend.name())).or_default() += 1;
                }
                (Ok(_), None) => chosen.push(position),
            }
        }
        let batch: Vec<&Program> = chosen.iter().map(|position| programs[*position]).collect();
        let outcomes = backend.run(&batch);
        assert_eq!(outcomes.len(), batch.len(), "one outcome for each program");
        for (position, outcome) in chosen.into_iter().zip(outcomes) {
            let Ok(expected) = &expected[position] else { continue };
            let judged = judge(expected, &outcome, backend.keeps_zero_signs(), &mut tally);
            let judged = judged.or_else(|| {
                let Outcome::Values(values) = &outcome else { return None };
                let is_strict = backend.is_strict();
                let reference = is_strict.then(|| strict.of(position, programs[position]));
                let other = reference.flatten()?.difference(values)?;
                tally.mismatches += 1;
                Some((Kind::Mismatch, other))
            });
            if let Some((kind, detail)) = judged {
                let backend = backend.name().to_string();
                failures.push((position, Failure { backend, kind, detail }));
            }
        }
    }
    for (position, expected) in expected.into_iter().enumerate() {
        if let Err(detail) = expected {
            let backend = "oracle".to_string();
            tally.crashes += 1;
            failures.push((position, Failure { backend, kind: Kind::Crash, detail }));
        }
    }
    failures.sort_by_key(|(position, _)| *position);
    (tally, failures)
}

/// What the oracle expects; a panic or an error of its own is told, not passed on.
fn expectation(program: &Program) -> Result<Vec<Expected>, String> {
    crate::catch(|| gradiff_oracle::evaluate(program))
        .and_then(|result| result.map_err(|error| error.to_string()))
}

/// A wrong element in words.
pub(crate) fn difference(output: usize, dtype: gradiff_corpus::DType, at: &Mismatch) -> String {
    let found = gradiff_corpus::format_element(dtype, at.got_bits);
    format!("element {} of output {output} is {found}, expected {}", at.index, at.expected)
}

/// The values, zeros with the sign that is expected.
fn with_signs_of(expected: &Expected, value: &Array) -> Array {
    let mut value = value.clone();
    if !value.dtype.is_float() {
        return value;
    }
    let sign = 1 << (8 * value.dtype.size_bytes() - 1);
    for (bits, element) in value.bits.iter_mut().zip(expected.elements()) {
        if *bits & !sign == 0 && !element.admits(value.dtype, *bits) {
            *bits ^= sign;
        }
    }
    value
}

/// Compares one outcome with what is expected and counts it.
fn judge(
    expected: &[Expected],
    outcome: &Outcome,
    keeps_zero_signs: bool,
    tally: &mut Tally,
) -> Option<(Kind, String)> {
    let values = match outcome {
        Outcome::Values(values) => values,
        Outcome::Refused(reason) => {
            tally.mismatches += 1;
            return Some((Kind::Refused, reason.clone()));
        }
        Outcome::Crash(last_words) => {
            tally.crashes += 1;
            return Some((Kind::Crash, last_words.clone()));
        }
        Outcome::Timeout(seconds) => {
            tally.timeouts += 1;
            return Some((Kind::Timeout, format!("no answer within {seconds} s")));
        }
    };
    if values.len() != expected.len() {
        tally.mismatches += 1;
        let detail = format!("{} outputs, expected {}", values.len(), expected.len());
        return Some((Kind::Refused, detail));
    }
    let mut first = None;
    for (number, (expected, value)) in expected.iter().zip(values).enumerate() {
        if (value.dtype, &value.shape) != (expected.dtype, &expected.shape) {
            let of = |dtype: gradiff_corpus::DType, shape: &[usize]| {
                format!("{}{shape:?}", dtype.name())
            };
            let detail = format!(
                "output {number} is {}, expected {}",
                of(value.dtype, &value.shape),
                of(expected.dtype, &expected.shape)
            );
            first.get_or_insert((Kind::Refused, detail));
            continue;
        }
        let verdict = match keeps_zero_signs {
            true => expected.judge(value),
            false => expected.judge(&with_signs_of(expected, value)),
        };
        tally.checked_elements += verdict.checked as u64;
        tally.unspecified_elements += verdict.unspecified as u64;
        if let Some(mismatch) = verdict.mismatch {
            let detail = difference(number, value.dtype, &mismatch);
            first.get_or_insert((Kind::Mismatch, detail));
        }
    }
    tally.mismatches += u64::from(first.is_some());
    first
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::{Case, DType, parse};

    use super::*;

    #[test]
    fn signs_of_zeros_alone_are_not_judged_where_none_are_kept() {
        let file = parse("a = input f32[2] [0.0, 1.0]\noutput a\n").unwrap();
        let Case::Program(program) = file.case else { panic!("it is a program") };
        let expected = expectation(&program).unwrap();
        let failure = |values: [f32; 2], keeps_zero_signs| {
            let bits = values.map(|value| u64::from(value.to_bits())).to_vec();
            let outcome = Outcome::Values(vec![Array { dtype: DType::F32, shape: vec![2], bits }]);
            judge(&expected, &outcome, keeps_zero_signs, &mut Tally::default())
        };
        assert_eq!(failure([0.0, 1.0], true), None);
        assert_eq!(failure([-0.0, 1.0], false), None);
        assert!(failure([-0.0, 1.0], true).is_some());
        assert!(failure([-0.0, -1.0], false).is_some() && failure([1e-45, 1.0], false).is_some());
    }
}
