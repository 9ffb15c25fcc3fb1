//! The child of a hunt: reads requests, runs programs, answers. It may die; the parent lives.
//!
//! A request is a line on standard input: `run FIRST COUNT` (generated programs), `case HEX` (one
//! program in binary form) or `blame BACKEND HEX`. An answer is a line of JSON on standard output;
//! before it, a line names each stage that is begun, so that the parent knows where a worker hangs.
//!
//! The canaries of the oracle are shown before the first request and after each: a backend may
//! leave the floating-point unit in another mode, in which the oracle is wrong.

use std::io::{BufRead, Write};

use gradiff_check::{Backend, Blame, Failure as Found, Guilt, Kind, Tally};
use gradiff_corpus::Program;
use serde_json::{Value, json};

use crate::args::Worker;
use crate::pool::Stage;
use crate::{Failure, Status};

/// Serves until standard input ends.
pub(crate) fn serve(options: &Worker) -> Result<Status, Failure> {
    crate::interrupt::ignore();
    std::panic::set_hook(Box::new(|_| {}));
    let backends = crate::case::open(&options.backends)?;
    let config = crate::case::config(&options.lanes)?;
    let mut problem = gradiff_check::check_canaries().err();
    let mut tell = |stage: &str, room: &str| {
        // A parent that no longer reads is noticed at the answer.
        let _ = say(&json!({"stage": stage, "room": room}));
    };
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::Internal(error.to_string()))?;
        let unknown = || Failure::Internal(format!("unknown request: {line}"));
        let answer = match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["run", first, count] => {
                let range = first.parse::<u64>().ok().zip(count.parse::<u64>().ok());
                let (first, count) = range.ok_or_else(unknown)?;
                let program = |index| gradiff_gen::program_at(options.seed, index, &config).program;
                let programs: Vec<Program> = (first..first + count).map(program).collect();
                judged(&programs, &backends, Some(first), &mut tell)
            }
            // A case alone runs on fresh backends: what earlier programs left in caches must not
            // make it fail, or its file would not fail again.
            ["case", hex] => {
                let program = from_hex(hex).map(|bytes| gradiff_corpus::decode(&bytes));
                let backends = crate::case::open(&options.backends)?;
                judged(&[program.ok_or_else(unknown)?], &backends, None, &mut tell)
            }
            ["blame", backend, hex] => {
                let program = from_hex(hex).map(|bytes| gradiff_corpus::decode(&bytes));
                blamed(&program.ok_or_else(unknown)?, backend, &mut tell)
            }
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
    first: Option<u64>,
    tell: Tell<'_>,
) -> Value {
    let programs: Vec<&Program> = programs.iter().collect();
    let mut began = |backend: &str| tell(backend, "");
    let (tally, failures) = gradiff_check::agree_in_steps(&programs, backends, first, &mut began);
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
           "crashes": tally.crashes, "timeouts": tally.timeouts, "skipped": tally.skipped,
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
