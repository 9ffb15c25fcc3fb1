//! Worker, the child process of a hunt: reads requests, runs programs, answers. It may die without
//! its parent.
//!
//! A request is a line on standard input: `run NUMBERS` (generated programs, as in `run 0-63,70`),
//! `case HEX` (one program in binary form), `check HEX` (the text of a case; checks everything but
//! the values of its program) or `blame HEX BACKEND`. An answer is a line of JSON on standard
//! output; before it, a line names each stage that begins, so that the parent knows where a worker
//! hangs.
//!
//! When standard input ends, so does the worker, with all processes that it started.
//!
//! The oracle judges its canaries before the first request, after some of those that run many
//! programs, and after each that blames one. After the others it checks the mode of the
//! floating-point unit: a backend may leave it in one in which the oracle is wrong. Minimising
//! takes thousands of these requests.

use std::io::Write;

use gradiff_check::{Backend, Blame, Crate, Culprit, Failure as CheckFailure, Kind, Stage, Tally};
use gradiff_corpus::{Case, Program};
use serde_json::{Value, json};

use crate::args::Worker;
use crate::pool::Place;
use crate::{Failure, Status};

/// The oracle judges its canaries after one batch of programs in this many.
const CANARIES_ONE_IN: u64 = 4;

/// Serves until standard input ends.
///
/// # Errors
/// An unknown request; bad flags; missing backends, which are also reported to the parent.
pub(crate) fn serve(options: &Worker, parent: Option<u32>) -> Result<Status, Failure> {
    let requests = crate::orphan::requests(parent);
    std::panic::set_hook(Box::new(|_| {}));
    let backends = crate::case::open(&options.backends).inspect_err(|failure| {
        let _ = send(&json!({"unusable": failure.message()}));
    })?;
    let config = crate::case::config(&options.lanes)?;
    let mut problem = gradiff_check::check_canaries().err();
    let mut batches = 0u64;
    let mut begin = |place: Place| {
        let line = match place {
            Place::Backend(name) => json!({"backend": name}),
            Place::Stage(stage, crate_name) => {
                json!({"stage": stage.name(), "crate": crate_name.name()})
            }
        };
        // A parent that no longer reads is noticed at the answer.
        let _ = send(&line);
    };
    for line in requests {
        let unknown = || Failure::Internal(format!("unknown request: {line}"));
        let program = |hex| {
            let bytes = from_hex(hex).ok_or_else(unknown)?;
            Ok::<Program, Failure>(gradiff_corpus::decode(&bytes))
        };
        let mut check: fn() -> Result<(), String> = gradiff_check::check_float_mode;
        let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", numbers] => {
                if batches.is_multiple_of(CANARIES_ONE_IN) {
                    check = gradiff_check::check_canaries;
                }
                batches += 1;
                let numbers = crate::sequence::numbers(numbers).ok_or_else(unknown)?;
                let program = |index| gradiff_gen::program_at(options.seed, index, &config).program;
                let programs: Vec<Program> = numbers.iter().copied().map(program).collect();
                judged(&programs, &backends, Some(&numbers), &mut begin)
            }
            // A single case runs on fresh backends: if the caches of earlier programs made it fail,
            // its file would not fail again.
            ["case", hex] => match crate::case::open(&options.backends) {
                Ok(backends) => judged(&[program(hex)?], &backends, None, &mut begin),
                Err(failure) => json!({"unusable": failure.message()}),
            },
            ["check", hex] => {
                let text = from_hex(hex).and_then(|bytes| String::from_utf8(bytes).ok());
                json!({"problems": checked(&text.ok_or_else(unknown)?)})
            }
            // The name of a backend may have spaces.
            ["blame", hex, ..] => {
                check = gradiff_check::check_canaries;
                let backend = line.splitn(3, ' ').nth(2).ok_or_else(unknown)?;
                blamed(&program(hex)?, backend, &mut begin)
            }
            _ => return Err(unknown()),
        };
        problem = problem.or_else(|| check().err());
        let answer = problem.as_ref().map_or(answer, |problem| json!({"canary": problem}));
        if !send(&answer) {
            break;
        }
    }
    Ok(Status::Clean)
}

/// Checks a case, except for the values of its program. Returns the problems.
fn checked(text: &str) -> Vec<String> {
    let file = match gradiff_corpus::parse(text) {
        Ok(file) => file,
        Err(error) => return vec![error.to_string()],
    };
    let case = || match &file.case {
        Case::Program(_) => Ok(()),
        Case::Views(views) => gradiff_check::check_views(views)
            .and_then(|()| gradiff_check::check_symbolic_views(views)),
        Case::Expr(expr) => gradiff_check::check_expr(expr),
    };
    let mut problems: Vec<String> =
        gradiff_check::catch(case).and_then(|checked| checked).err().into_iter().collect();
    let expects = gradiff_check::catch(|| gradiff_check::check_expects(&file));
    problems.extend(expects.unwrap_or_else(|panic| vec![panic]));
    problems
}

/// Sends a line to the parent. Returns whether the parent still reads.
fn send(line: &Value) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// Callback with each part of the work before it begins.
type Begin<'a> = &'a mut dyn FnMut(Place);

fn judged(
    programs: &[Program],
    backends: &[Box<dyn Backend>],
    numbers: Option<&[u64]>,
    begin: Begin<'_>,
) -> Value {
    let programs: Vec<&Program> = programs.iter().collect();
    let mut begin_backend = |backend: &str| begin(Place::Backend(backend.to_string()));
    let (tally, failures) =
        gradiff_check::agree_in_steps(&programs, backends, numbers, &mut begin_backend);
    let failures: Vec<Value> = failures
        .into_iter()
        .map(|(position, failure)| {
            json!({"position": position, "backend": failure.backend,
                   "kind": failure.kind.name(), "detail": failure.detail})
        })
        .collect();
    json!({"programs": tally.programs, "checked": tally.checked_elements,
           "unspecified": tally.unspecified_elements, "origins": tally.unspecified,
           "vacuous": tally.vacuous_elements,
           "mismatches": tally.mismatches,
           "crashes": tally.crashes, "timeouts": tally.timeouts,
           "environment": tally.environment, "skipped": tally.skipped,
           "failures": failures})
}

fn blamed(program: &Program, backend: &str, begin: Begin<'_>) -> Value {
    let mut began = |stage, crate_name| begin(Place::Stage(stage, crate_name));
    let blame = || gradiff_check::blame_in_steps(program, backend, &mut began);
    let blame = gradiff_check::catch(blame).ok().flatten();
    match blame {
        None => json!({"blame": null}),
        Some(Blame { stage, crate_name, detail, rule }) => {
            let rule = rule.map(|culprit| {
                json!({"rule": culprit.rule, "pass": culprit.pass, "before": culprit.before,
                       "after": culprit.after, "witness": culprit.witness,
                       "verdict": culprit.verdict, "cycle": culprit.cycle})
            });
            json!({"blame": {"stage": stage.name(), "crate": crate_name.name(), "detail": detail,
                             "rule": rule}})
        }
    }
}

/// Parses the line that says where the worker's work goes on; `None` if it is another line.
pub(crate) fn parse_place(line: &str) -> Option<Place> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| value.get(key)?.as_str();
    match text("backend") {
        Some(name) => Some(Place::Backend(name.to_string())),
        None => Some(Place::Stage(Stage::named(text("stage")?)?, Crate::named(text("crate")?)?)),
    }
}

/// Parses the report of a canary on which the oracle failed; `None` if it is another line.
pub(crate) fn parse_canary(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(value.get("canary")?.as_str()?.to_string())
}

/// Parses the reason why the backends of a worker cannot be opened; `None` if it is another line.
pub(crate) fn parse_unusable(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(value.get("unusable")?.as_str()?.to_string())
}

/// Parses the problems of an answer to `check`; `None` if it is another line.
pub(crate) fn parse_problems(line: &str) -> Option<Vec<String>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let problems = value.get("problems")?.as_array()?.iter();
    problems.map(|problem| problem.as_str().map(str::to_string)).collect()
}

/// Parses an answer to `blame`; outer `None` if it is another line.
pub(crate) fn parse_blame(line: &str) -> Option<Option<Blame>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let blame = value.get("blame")?;
    if blame.is_null() {
        return Some(None);
    }
    let text = |from: &Value, key: &str| Some(from.get(key)?.as_str()?.to_string());
    let culprit = |from: &Value| {
        let cycle = from.get("cycle")?.as_array()?.iter();
        Some(Culprit {
            rule: text(from, "rule")?,
            pass: text(from, "pass")?,
            before: text(from, "before")?,
            after: text(from, "after")?,
            witness: text(from, "witness")?,
            verdict: text(from, "verdict")?,
            cycle: cycle.map(|rule| rule.as_str().map(str::to_string)).collect::<Option<_>>()?,
        })
    };
    let stage = Stage::named(&text(blame, "stage")?)?;
    let crate_name = Crate::named(&text(blame, "crate")?)?;
    let rule = blame.get("rule").and_then(culprit);
    Some(Some(Blame { stage, crate_name, detail: text(blame, "detail")?, rule }))
}

/// Parses an answer to `run` or `case`; `None` if it is another line.
pub(crate) fn parse_answer(line: &str) -> Option<(Tally, Vec<(usize, CheckFailure)>)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let number = |key: &str| value.get(key)?.as_u64();
    let mut tally = Tally {
        programs: number("programs")?,
        checked_elements: number("checked")?,
        unspecified_elements: number("unspecified")?,
        vacuous_elements: number("vacuous")?,
        mismatches: number("mismatches")?,
        crashes: number("crashes")?,
        timeouts: number("timeouts")?,
        environment: number("environment")?,
        ..Tally::default()
    };
    for (reason, count) in value.get("skipped")?.as_object()? {
        tally.skipped.insert(reason.clone(), count.as_u64()?);
    }
    for (origin, count) in value.get("origins")?.as_object()? {
        tally.unspecified.insert(origin.clone(), count.as_u64()?);
    }
    let mut failures = Vec::new();
    for entry in value.get("failures")?.as_array()? {
        let text = |key: &str| Some(entry.get(key)?.as_str()?.to_string());
        let failure = CheckFailure {
            backend: text("backend")?,
            kind: Kind::from_name(&text("kind")?)?,
            detail: text("detail")?,
        };
        failures.push((entry.get("position")?.as_u64()? as usize, failure));
    }
    Some((tally, failures))
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    let pairs = digits.chunks(2).map(|pair| {
        let pair = std::str::from_utf8(pair).ok()?;
        if pair.len() == 2 { u8::from_str_radix(pair, 16).ok() } else { None }
    });
    pairs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_survives_encoding_and_decoding() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
