//! The child of a hunt: reads requests, runs programs, answers. It may die; the parent lives.
//!
//! A request is a line on standard input: `run NUMBERS` (generated programs, as in `run 0-63,70`),
//! `case HEX` (one program in binary form), `check HEX` (the text of a case: all but running its
//! program) or `blame BACKEND HEX`. An answer is a line of JSON on standard output; before it, a line
//! names each stage that is begun, so that the parent knows where a worker hangs.
//!
//! When standard input ends, so does the worker, with all that it started.
//!
//! The canaries of the oracle are shown before the first request and after each: a backend may
//! leave the floating-point unit in another mode, in which the oracle is wrong.

use std::io::Write;

use gradiff_check::{Backend, Blame, Failure as Found, Guilt, Kind, Tally};
use gradiff_corpus::{Case, Program};
use serde_json::{Value, json};

use crate::args::Worker;
use crate::pool::Stage;
use crate::{Failure, Status};

/// Serves until standard input ends.
///
/// # Errors
/// A request that is none; bad flags; missing backends, which the parent is told as well.
pub(crate) fn serve(options: &Worker, parent: Option<u32>) -> Result<Status, Failure> {
    let requests = crate::orphan::requests(parent);
    std::panic::set_hook(Box::new(|_| {}));
    let backends = crate::case::open(&options.backends).inspect_err(|failure| {
        let _ = say(&json!({"unusable": failure.message()}));
    })?;
    let config = crate::case::config(&options.lanes)?;
    let mut problem = gradiff_check::check_canaries().err();
    let mut tell = |stage: &str, room: &str| {
        // A parent that no longer reads is noticed at the answer.
        let _ = say(&json!({"stage": stage, "room": room}));
    };
    for line in requests {
        let unknown = || Failure::Internal(format!("unknown request: {line}"));
        let program = |hex| {
            let bytes = from_hex(hex).ok_or_else(unknown)?;
            Ok::<Program, Failure>(gradiff_corpus::decode(&bytes))
        };
        let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", numbers] => {
                let numbers = crate::sequence::numbers(numbers).ok_or_else(unknown)?;
                let program = |index| gradiff_gen::program_at(options.seed, index, &config).program;
                let programs: Vec<Program> = numbers.iter().copied().map(program).collect();
                judged(&programs, &backends, Some(&numbers), &mut tell)
            }
            // A case alone runs on fresh backends: what earlier programs left in caches must not
            // make it fail, or its file would not fail again.
            ["case", hex] => match crate::case::open(&options.backends) {
                Ok(backends) => judged(&[program(hex)?], &backends, None, &mut tell),
                Err(failure) => json!({"unusable": failure.message()}),
            },
            ["check", hex] => {
                let text = from_hex(hex).and_then(|bytes| String::from_utf8(bytes).ok());
                json!({"problems": checked(&text.ok_or_else(unknown)?)})
            }
            ["blame", backend, hex] => blamed(&program(hex)?, backend, &mut tell),
            _ => return Err(unknown()),
        };
        problem = problem.or_else(|| gradiff_check::check_canaries().err());
        let answer = problem.as_ref().map_or(answer, |problem| json!({"canary": problem}));
        if !say(&answer) {
            break;
        }
    }
    Ok(Status::Clean)
}

/// What is wrong with a case besides the values of its program.
fn checked(text: &str) -> Vec<String> {
    let file = match gradiff_corpus::parse(text) {
        Ok(file) => file,
        Err(error) => return vec![error.to_string()],
    };
    let case = || match &file.case {
        Case::Program(_) => Ok(()),
        Case::Views(views) => gradiff_check::check_views(views),
        Case::Expr(expr) => gradiff_check::check_expr(expr),
    };
    let mut problems: Vec<String> =
        gradiff_check::catch(case).and_then(|checked| checked).err().into_iter().collect();
    let expects = gradiff_check::catch(|| gradiff_check::check_expects(&file));
    problems.extend(expects.unwrap_or_else(|panic| vec![panic]));
    problems
}

/// Writes a line to the parent; whether it still reads.
fn say(line: &Value) -> bool {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).is_ok()
}

/// Names a stage and its room, before it is begun.
type Tell<'a> = &'a mut dyn FnMut(&str, &str);

fn judged(
    programs: &[Program],
    backends: &[Box<dyn Backend>],
    numbers: Option<&[u64]>,
    tell: Tell<'_>,
) -> Value {
    let programs: Vec<&Program> = programs.iter().collect();
    let mut began = |backend: &str| tell(backend, "");
    let (tally, failures) = gradiff_check::agree_in_steps(&programs, backends, numbers, &mut began);
    let failures: Vec<Value> = failures
        .into_iter()
        .map(|(position, found)| {
            json!({"position": position, "backend": found.backend,
                   "kind": found.kind.name(), "detail": found.detail})
        })
        .collect();
    json!({"programs": tally.programs, "checked": tally.checked_elements,
           "unspecified": tally.unspecified_elements, "origins": tally.unspecified,
           "mismatches": tally.mismatches,
           "crashes": tally.crashes, "timeouts": tally.timeouts,
           "environment": tally.environment, "skipped": tally.skipped,
           "failures": failures})
}

fn blamed(program: &Program, backend: &str, tell: Tell<'_>) -> Value {
    let blame = || gradiff_check::blame_in_steps(program, backend, tell);
    let blame = gradiff_check::catch(blame).ok().flatten();
    match blame {
        None => json!({"blame": null}),
        Some(Blame { stage, room, detail, rule }) => {
            let rule = rule.map(|guilt| {
                let cycle = guilt.cycle;
                json!({"rule": guilt.rule, "pass": guilt.pass, "before": guilt.before,
                       "after": guilt.after, "witness": guilt.witness,
                       "verdict": guilt.verdict, "cycle": cycle})
            });
            json!({"blame": {"stage": stage, "room": room, "detail": detail, "rule": rule}})
        }
    }
}

/// The stage that a line says is begun; `None` if it is another line.
pub(crate) fn parse_stage(line: &str) -> Option<Stage> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |key: &str| Some(value.get(key)?.as_str()?.to_string());
    Some(Stage { name: text("stage")?, room: text("room")? })
}

/// The canary that the oracle failed on; `None` if the line says nothing of one.
pub(crate) fn parse_canary(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(value.get("canary")?.as_str()?.to_string())
}

/// Why the backends of a worker cannot be opened; `None` if the line says nothing of it.
pub(crate) fn parse_unusable(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    Some(value.get("unusable")?.as_str()?.to_string())
}

/// The problems of an answer to `check`; `None` if it is no such answer.
pub(crate) fn parse_problems(line: &str) -> Option<Vec<String>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let problems = value.get("problems")?.as_array()?.iter();
    problems.map(|problem| problem.as_str().map(str::to_string)).collect()
}

/// The blame of an answer; outer `None` if it is no such answer.
pub(crate) fn parse_blame(line: &str) -> Option<Option<Blame>> {
    let value: Value = serde_json::from_str(line).ok()?;
    let blame = value.get("blame")?;
    if blame.is_null() {
        return Some(None);
    }
    let text = |from: &Value, key: &str| Some(from.get(key)?.as_str()?.to_string());
    let guilt = |from: &Value| {
        let steps = from.get("cycle")?.as_array()?.iter();
        Some(Guilt {
            rule: text(from, "rule")?,
            pass: text(from, "pass")?,
            before: text(from, "before")?,
            after: text(from, "after")?,
            witness: text(from, "witness")?,
            verdict: text(from, "verdict")?,
            cycle: steps.map(|step| step.as_str().map(str::to_string)).collect::<Option<_>>()?,
        })
    };
    let (stage, room) = (text(blame, "stage")?, text(blame, "room")?);
    let rule = blame.get("rule").and_then(guilt);
    Some(Some(Blame { stage, room, detail: text(blame, "detail")?, rule }))
}

/// The tally and failures of an answer; `None` if it is none.
pub(crate) fn parse_answer(line: &str) -> Option<(Tally, Vec<(usize, Found)>)> {
    let value: Value = serde_json::from_str(line).ok()?;
    let number = |key: &str| value.get(key)?.as_u64();
    let mut tally = Tally {
        programs: number("programs")?,
        checked_elements: number("checked")?,
        unspecified_elements: number("unspecified")?,
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
    for failure in value.get("failures")?.as_array()? {
        let text = |key: &str| Some(failure.get(key)?.as_str()?.to_string());
        let found = Found {
            backend: text("backend")?,
            kind: Kind::from_name(&text("kind")?)?,
            detail: text("detail")?,
        };
        failures.push((failure.get("position")?.as_u64()? as usize, found));
    }
    Some((tally, failures))
}

/// Bytes as hexadecimal digits.
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
    fn hex_goes_there_and_back() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!(from_hex("0"), None);
        assert_eq!(from_hex("zz"), None);
    }
}
