//! `gradiff hunt --faults`: plants every fault in turn and measures how fast it is found, how
//! small its case becomes and whether blame names the right room.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use super::parse::{Fault, FoundBy};
use super::{Catalogue, FAULT, workspace};
use crate::args::Hunt;
use crate::out::outln;
use crate::{Failure, Status};

/// Seconds that one fault is hunted for.
const SECONDS: u64 = 60;

/// What the hunt for one fault showed.
struct Row {
    name: String,
    room: String,
    first_seconds: Option<f64>,
    statements: Option<usize>,
    blamed: String,
}

/// Hunts each fault that programs reach on one core in a process of its own and prints a table.
///
/// # Errors
/// Faults that cannot be planted; a process cannot be started.
pub(crate) fn measure(options: &Hunt, from: Option<&Path>) -> Result<Status, Failure> {
    let catalogue = Catalogue::read(from)?;
    let binary = workspace::binary(&catalogue)?;
    crate::interrupt::install();
    let mut rows = Vec::new();
    for fault in catalogue.faults.iter().filter(|fault| fault.found_by == FoundBy::Hunt) {
        if crate::interrupt::is_asked() {
            break;
        }
        let found = hunt(fault, &binary, options)?;
        if !options.json {
            print_row(&found);
        }
        rows.push(found);
    }
    let missed = rows.iter().filter(|row| row.first_seconds.is_none()).count();
    let wrongly = rows.iter().filter(|row| !row.is_blamed_rightly()).count();
    let seconds = median(rows.iter().filter_map(|row| row.first_seconds).collect());
    let statements =
        median(rows.iter().filter_map(|row| row.statements.map(|n| n as f64)).collect());
    if options.json {
        let faults: Vec<Value> = rows.iter().map(Row::to_json).collect();
        outln!(
            "{}",
            json!({"faults": faults, "missed": missed, "blamed_wrongly": wrongly,
                   "median_seconds": seconds, "median_statements": statements})
        );
    } else {
        outln!(
            "{} faults, {missed} missed, {wrongly} blamed wrongly; median {:.2} s, {} statements",
            rows.len(),
            seconds.unwrap_or(f64::NAN),
            statements.unwrap_or(f64::NAN)
        );
    }
    Ok(if missed + wrongly == 0 { Status::Clean } else { Status::Findings })
}

impl Row {
    fn is_blamed_rightly(&self) -> bool {
        self.blamed == self.room
    }

    fn to_json(&self) -> Value {
        json!({"fault": self.name, "room": self.room, "seconds": self.first_seconds,
               "statements": self.statements, "blamed": self.blamed})
    }
}

fn print_row(row: &Row) {
    let seconds = row.first_seconds.map_or("missed".to_string(), |s| format!("{s:.2} s"));
    let statements = row.statements.map_or(String::new(), |n| format!("{n} statements"));
    let blamed = match row.is_blamed_rightly() {
        true => format!("blamed on {}", row.blamed),
        false => format!("blamed on {:?}, bites in {}", row.blamed, row.room),
    };
    outln!("{:36} {seconds:>9}  {statements:14} {blamed}", row.name);
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn hunt(fault: &Fault, binary: &Path, options: &Hunt) -> Result<Row, Failure> {
    let (name, room) = (fault.name.clone(), fault.room.clone());
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
    command.arg(format!(
        "--backends={}",
        crate::case::choose(&options.backends, crate::case::hunted(), &[])?.names.join(",")
    ));
    command.arg("--findings").arg(&folder);
    let output = command.output().map_err(failed)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let summary: Value = serde_json::from_str(text.trim()).map_err(|_| {
        let words = String::from_utf8_lossy(&output.stderr);
        Failure::Internal(format!("the hunt for {name} gave no summary: {}", words.trim()))
    })?;
    let first = summary["details"].get(0);
    Ok(Row {
        name,
        room,
        first_seconds: summary["first_seconds"].as_f64(),
        statements: first.and_then(|f| f["statements"].as_u64()).map(|n| n as usize),
        blamed: first.and_then(|f| f["room"].as_str()).unwrap_or("nobody").to_string(),
    })
}
