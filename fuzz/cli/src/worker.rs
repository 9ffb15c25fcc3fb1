//! The child of a hunt: reads requests, runs programs, answers. It may die; the parent lives.
//!
//! A request is a line on standard input, `run FIRST COUNT` (generated programs) or `case HEX`
//! (one program in binary form). An answer is a line of JSON on standard output.

use std::io::{BufRead, Write};

use gradiff_check::{Backend, Failure as Found, Kind, Tally};
use gradiff_corpus::Program;
use gradiff_gen::Config;
use serde_json::{Value, json};

use crate::args::Worker;
use crate::{Failure, Status};

/// Serves until standard input ends.
pub(crate) fn serve(options: &Worker) -> Result<Status, Failure> {
    crate::interrupt::ignore();
    std::panic::set_hook(Box::new(|_| {}));
    crate::case::plant(options.fault.as_deref())?;
    let backends = crate::case::open(&options.backends)?;
    let config = crate::case::config(&options.lanes)?;
    let mut out = std::io::stdout().lock();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::Internal(error.to_string()))?;
        let programs = requested(&line, options.seed, &config)
            .ok_or_else(|| Failure::Internal(format!("unknown request: {line}")))?;
        let answer = answer(&programs, &backends);
        if writeln!(out, "{answer}").and_then(|()| out.flush()).is_err() {
            break;
        }
    }
    Ok(Status::Clean)
}

fn requested(line: &str, seed: u64, config: &Config) -> Option<Vec<Program>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    match words[..] {
        ["run", first, count] => {
            let (first, count): (u64, u64) = (first.parse().ok()?, count.parse().ok()?);
            let program = |index| gradiff_gen::program_at(seed, index, config).program;
            Some((first..first + count).map(program).collect())
        }
        ["case", hex] => Some(vec![gradiff_corpus::decode(&from_hex(hex)?)]),
        _ => None,
    }
}

fn answer(programs: &[Program], backends: &[Box<dyn Backend>]) -> Value {
    let programs: Vec<&Program> = programs.iter().collect();
    let (tally, failures) = gradiff_check::agree(&programs, backends);
    let failures: Vec<Value> = failures
        .into_iter()
        .map(|(position, found)| {
            json!({"position": position, "backend": found.backend,
                   "kind": found.kind.name(), "detail": found.detail})
        })
        .collect();
    json!({"programs": tally.programs, "checked": tally.checked_elements,
           "unspecified": tally.unspecified_elements, "mismatches": tally.mismatches,
           "crashes": tally.crashes, "timeouts": tally.timeouts, "skipped": tally.skipped,
           "failures": failures})
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
