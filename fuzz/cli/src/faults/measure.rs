//! `gradiff hunt --faults`: plants every fault in turn and measures how fast it is found, how small
//! its case becomes and whether blame names the right crate.

use std::path::Path;
use std::process::{Command, Output};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use gradiff_check::Crate;
use serde_json::{Value, json};

use super::parse::{Fault, FoundBy};
use super::{Catalogue, FAULT, workspace};
use crate::args::Hunt;
use crate::out::outln;
use crate::{Failure, Status};

/// Seconds of the hunt for one fault.
const SECONDS: u64 = 60;
/// Interval at which requests to end are checked.
const PAUSE: Duration = Duration::from_millis(100);

/// Results of the hunt for one fault.
struct Row {
    name: String,
    crate_name: Crate,
    first_seconds: Option<f64>,
    statements: Option<usize>,
    blamed: String,
}

/// Hunts each fault that programs reach, on one core in a separate process, and prints a table. If
/// the command names no backends, those of a fault are the ones that its file names, if any.
///
/// # Errors
/// Faults that cannot be planted; a process cannot be started.
pub(crate) fn measure(options: &Hunt, from: Option<&Path>) -> Result<Status, Failure> {
    let catalogue = Catalogue::read(from)?;
    let binary = workspace::binary(&catalogue)?;
    crate::interrupt::install();
    let mut rows = Vec::new();
    for fault in catalogue.faults.iter().filter(|fault| fault.found_by == FoundBy::Hunt) {
        if crate::interrupt::is_requested() {
            break;
        }
        let row = match hunt(fault, &binary, options) {
            Err(Failure::Interrupted) => break,
            row => row?,
        };
        if !options.json {
            print_row(&row);
        }
        rows.push(row);
    }
    let missed = rows.iter().filter(|row| row.first_seconds.is_none()).count();
    let misblamed = rows.iter().filter(|row| !row.is_blamed_rightly()).count();
    let seconds = median(rows.iter().filter_map(|row| row.first_seconds).collect());
    let statements =
        median(rows.iter().filter_map(|row| row.statements.map(|n| n as f64)).collect());
    if options.json {
        let faults: Vec<Value> = rows.iter().map(Row::to_json).collect();
        outln!(
            "{}",
            json!({"faults": faults, "missed": missed, "blamed_wrongly": misblamed,
                   "median_seconds": seconds, "median_statements": statements})
        );
    } else {
        outln!(
            "{} faults, {missed} missed, {misblamed} blamed on the wrong crate; median {:.2} s, \
             {} statements",
            rows.len(),
            seconds.unwrap_or(f64::NAN),
            statements.unwrap_or(f64::NAN)
        );
    }
    Ok(if missed + misblamed == 0 { Status::Clean } else { Status::Findings })
}

impl Row {
    fn is_blamed_rightly(&self) -> bool {
        self.blamed == self.crate_name.name()
    }

    fn to_json(&self) -> Value {
        json!({"fault": self.name, "crate": self.crate_name.name(), "seconds": self.first_seconds,
               "statements": self.statements, "blamed": self.blamed})
    }
}

fn print_row(row: &Row) {
    let seconds = row.first_seconds.map_or("missed".to_string(), |s| format!("{s:.2} s"));
    let statements = row.statements.map_or(String::new(), |n| format!("{n} statements"));
    let blamed = match row.is_blamed_rightly() {
        true => format!("blamed on {}", row.blamed),
        false => format!("blamed on {}, but is in {}", row.blamed, row.crate_name),
    };
    outln!("{:36} {seconds:>9}  {statements:14} {blamed}", row.name);
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn hunt(fault: &Fault, binary: &Path, options: &Hunt) -> Result<Row, Failure> {
    let (name, crate_name) = (fault.name.clone(), fault.crate_name);
    let failed = |error: std::io::Error| {
        Failure::Internal(format!("the hunt for {name} cannot be started: {error}"))
    };
    let folder = options.findings.join(&name);
    let mut command = Command::new(binary);
    command.args(["hunt", "--json", "--jobs", "1", "--max-findings", "1"]);
    command.env(FAULT, &name);
    command.arg(format!("--parent={}", std::process::id()));
    command.arg(format!("--seed={}", options.seed));
    command.arg(format!("--seconds={}", options.seconds.unwrap_or(SECONDS)));
    let requested = match options.backends.is_empty() {
        true => &fault.backends,
        false => &options.backends,
    };
    let chosen = crate::case::choose(requested, crate::case::hunted(), &[])?;
    command.arg(format!("--backends={}", chosen.names.join(",")));
    command.arg("--findings").arg(&folder);
    let output = output(command)?.map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: Value = serde_json::from_str(text.trim()).map_err(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        Failure::Internal(format!("the hunt for {name} printed no summary: {}", errors.trim()))
    })?;
    let first = summary["details"].get(0);
    Ok(Row {
        name,
        crate_name,
        first_seconds: summary["first_seconds"].as_f64(),
        statements: first.and_then(|f| f["statements"].as_u64()).map(|n| n as usize),
        blamed: first.and_then(|f| f["crate"].as_str()).unwrap_or("nothing").to_string(),
    })
}

/// Waits for the end of a hunt, or for a request to end: the hunt ends with this process.
fn output(mut command: Command) -> Result<std::io::Result<Output>, Failure> {
    let (sender, outputs) = channel();
    std::thread::spawn(move || sender.send(command.output()));
    loop {
        let output = outputs.recv_timeout(PAUSE);
        if crate::interrupt::is_requested() {
            return Err(Failure::Interrupted);
        }
        match output {
            Ok(output) => return Ok(output),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Failure::Internal("a hunt was lost".to_string()));
            }
        }
    }
}
