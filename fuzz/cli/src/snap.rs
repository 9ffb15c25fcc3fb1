//! `gradiff snap diff`: compares the reviewed snapshots with those of a git revision or of another
//! folder. Snapshots that tests left pending count as changed. This file reads files and runs git;
//! `check` classifies the changes.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use gradiff_check::snap::{Class, Cost, Files, Report, Row, diff};
use serde_json::{Value, json};

use crate::args::{Snap, SnapAction, SnapDiff};
use crate::out::outln;
use crate::{Failure, Status};

/// Runs a command on snapshots.
///
/// # Errors
/// As [`measure`].
pub(crate) fn snap(options: &Snap) -> Result<Status, Failure> {
    match &options.action {
        SnapAction::Diff(options) => measure(options),
    }
}

/// Prints a line for each snapshot that changed; a different meaning is a finding.
///
/// # Errors
/// A folder without snapshots, an unknown revision, no git; broken snapshots, after everything is
/// printed.
fn measure(options: &SnapDiff) -> Result<Status, Failure> {
    let mut after = in_folder(&options.snapshots, is_snapshot)?;
    let pending = in_folder(&options.snapshots, is_pending)?;
    let pending_count = pending.len();
    after.extend(pending.into_iter().map(|(name, bytes)| (accepted_name(&name), bytes)));
    let after = nonempty(after, &options.snapshots.display().to_string())?;
    let folder = Path::new(&options.before);
    let before = match folder.is_dir() {
        true => nonempty(in_folder(folder, is_snapshot)?, &folder.display().to_string())?,
        false => in_revision(&options.before, &options.snapshots)?,
    };
    // A panic of a kernel from a broken file is reported in its row.
    std::panic::set_hook(Box::new(|_| {}));
    let report = diff(&before, &after);
    drop(std::panic::take_hook());
    if options.json {
        outln!("{}", to_json(&report, pending_count));
    } else {
        report.rows.iter().for_each(print_row);
        outln!("{}", summary(&report));
        if pending_count != 0 {
            outln!("{pending_count} of them pending: `cargo insta review` accepts or rejects them");
        }
    }
    if let Some(row) = report.rows.iter().find(|row| row.class == Class::Broken) {
        let count = report.count(Class::Broken);
        let problem = format!("{}: {}", row.name, row.detail);
        return Err(Failure::Usage(format!("{count} broken snapshots, the first is {problem}")));
    }
    Ok(match report.count(Class::DifferentMeaning) {
        0 => Status::Clean,
        _ => Status::Findings,
    })
}

fn print_row(row: &Row) {
    let mut words: Vec<String> = Vec::new();
    match (row.before, row.after) {
        (Some(before), Some(after)) => words.extend(costs(&before, &after)),
        (Some(cost), None) | (None, Some(cost)) => words.extend(costs(&cost, &cost)),
        (None, None) => {
            words.push(format!("+{} -{} lines", row.lines.added, row.lines.removed));
            words.extend(row.uops.map(|class| match class {
                Some(class) => format!("uops: {}", class.name()),
                None => String::from("uops: unchanged"),
            }));
            words.extend(row.run.as_ref().map(|run| match run {
                Ok(()) => String::from("run"),
                Err(reason) => format!("not run: {reason}"),
            }));
        }
    }
    outln!("{:28} {:36} {}", row.class.name(), row.name, words.join(", "));
    if !row.detail.is_empty() {
        outln!("{:28} {}", "", row.detail);
    }
}

/// Returns each number before and after, or once if it is unchanged.
fn costs(before: &Cost, after: &Cost) -> Vec<String> {
    let pairs = before.numbers().into_iter().zip(after.numbers());
    let shown = |((name, old), (_, new)): ((&str, u64), (&str, u64))| match old == new {
        true => format!("{name} {old}"),
        false => format!("{name} {old} -> {new}"),
    };
    pairs.map(shown).collect()
}

fn summary(report: &Report) -> String {
    let classes = Class::ALL.into_iter().map(|class| (class, report.count(class)));
    let words = classes.filter(|(_, count)| *count != 0);
    let words: Vec<String> =
        words.map(|(class, count)| format!("{count} {}", class.name())).collect();
    let total = report.rows.len() + report.unchanged;
    match words.as_slice() {
        [] => format!("{total} snapshots, none changed"),
        words => format!("{total} snapshots, {} unchanged; {}", report.unchanged, words.join("; ")),
    }
}

fn to_json(report: &Report, pending_count: usize) -> Value {
    let cost = |cost: &Cost| -> Value {
        cost.numbers().into_iter().map(|(name, number)| (name.to_owned(), json!(number))).collect()
    };
    let row = |row: &Row| {
        let uops = row.uops.map(|class| class.map_or("unchanged", Class::name));
        json!({"snapshot": row.name, "class": row.class.name(), "detail": row.detail,
               "before": row.before.as_ref().map(cost), "after": row.after.as_ref().map(cost),
               "lines_added": row.lines.added, "lines_removed": row.lines.removed, "uops": uops,
               "is_run": row.run.as_ref().map(Result::is_ok),
               "not_run": row.run.as_ref().and_then(|run| run.as_ref().err())})
    };
    let rows: Vec<Value> = report.rows.iter().map(row).collect();
    let counts: serde_json::Map<String, Value> =
        Class::ALL.into_iter().map(|c| (c.name().to_owned(), json!(report.count(c)))).collect();
    json!({"changes": rows, "unchanged": report.unchanged, "counts": counts,
           "pending": pending_count})
}

/// Reads the files below a folder whose names are wanted.
fn in_folder(folder: &Path, is_wanted: fn(&str) -> bool) -> Result<Files, Failure> {
    let (mut files, mut folders) = (Files::new(), vec![folder.to_path_buf()]);
    while let Some(inside) = folders.pop() {
        let failed =
            |error: std::io::Error| Failure::Usage(format!("{}: {error}", inside.display()));
        for entry in std::fs::read_dir(&inside).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let parts = path.strip_prefix(folder).into_iter().flat_map(Path::components);
            let parts: Vec<_> = parts.map(|part| part.as_os_str().to_string_lossy()).collect();
            let name = parts.join("/");
            if is_wanted(&name) {
                let bytes = std::fs::read(&path)
                    .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
                files.insert(name, bytes);
            }
        }
    }
    Ok(files)
}

/// Returns whether a file is a snapshot that a test left pending.
fn is_pending(name: &str) -> bool {
    name.ends_with(PENDING)
}

/// Extension of a pending snapshot.
const PENDING: &str = ".new";

/// Returns the name under which a pending snapshot is accepted.
fn accepted_name(name: &str) -> String {
    name.strip_suffix(PENDING).unwrap_or(name).to_owned()
}

fn is_snapshot(name: &str) -> bool {
    // The test of the snapshots is in their folder.
    !is_pending(name) && !name.ends_with(".pending-snap") && name != "review.rs"
}

/// Returns the files, if there is a snapshot among them.
fn nonempty(files: Files, origin: &str) -> Result<Files, Failure> {
    let is_any = files.keys().any(|name| name.ends_with(".snap"));
    is_any
        .then_some(files)
        .ok_or_else(|| Failure::Usage(format!("{origin}: no snapshots (.snap files)")))
}

/// Reads the files that git has below `folder` at a revision.
fn in_revision(revision: &str, folder: &Path) -> Result<Files, Failure> {
    let inside = git(folder, &["rev-parse", "--show-prefix"], b"")?;
    let prefix = String::from_utf8_lossy(&inside).trim_end_matches('\n').to_owned();
    let commit = format!("{revision}^{{commit}}");
    let arguments = ["rev-parse", "--verify", "--quiet", "--end-of-options", &commit];
    let commit = git(folder, &arguments, b"").map_err(|_| {
        Failure::Usage(format!("{revision} is neither a folder nor a revision that git knows"))
    })?;
    let commit = String::from_utf8_lossy(&commit).trim().to_owned();
    let mut arguments = vec!["ls-tree", "-r", "-z", "--full-tree", &commit];
    if !prefix.is_empty() {
        arguments.extend(["--", prefix.as_str()]);
    }
    let listing = git(folder, &arguments, b"")?;
    // Each entry: mode, type and hash, a tab, the path.
    let entries: Vec<(String, String)> = listing
        .split(|byte| *byte == 0)
        .filter_map(|entry| {
            let entry = String::from_utf8_lossy(entry);
            let (head, path) = entry.split_once('\t')?;
            let name = path.strip_prefix(&prefix)?.to_owned();
            let mut head = head.split(' ').skip(1);
            let is_file = head.next() == Some("blob") && is_snapshot(&name);
            is_file.then_some((name, head.next()?.to_owned()))
        })
        .collect();
    let hashes: String = entries.iter().map(|(_, hash)| format!("{hash}\n")).collect();
    let contents = git(folder, &["cat-file", "--batch"], hashes.as_bytes())?;
    let mut rest = contents.as_slice();
    let mut files = Files::new();
    for (name, _) in entries {
        let missing = || Failure::Internal(format!("git cat-file did not give {name}"));
        let (bytes, after) = blob(rest).ok_or_else(missing)?;
        rest = after;
        files.insert(name, bytes.to_vec());
    }
    nonempty(files, &format!("{} at {revision}", folder.display()))
}

/// Splits off the first answer of `git cat-file --batch`: `hash type size`, a newline, that many
/// bytes, a newline.
fn blob(answers: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = answers.iter().position(|byte| *byte == b'\n')?;
    let head = std::str::from_utf8(&answers[..end]).ok()?;
    let size: usize = head.rsplit(' ').next()?.parse().ok()?;
    let (bytes, rest) = answers[end + 1..].split_at_checked(size)?;
    Some((bytes, rest.strip_prefix(b"\n")?))
}

/// Runs git in a folder with `input` as standard input. Returns its output.
fn git(folder: &Path, arguments: &[&str], input: &[u8]) -> Result<Vec<u8>, Failure> {
    let failed = |error: std::io::Error| {
        let reason = "comparing with a revision needs git; name a folder instead";
        Failure::Usage(format!("git cannot be run in {}: {error}; {reason}", folder.display()))
    };
    let mut command = Command::new("git");
    command.arg("-C").arg(folder).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    let output = std::thread::scope(|scope| {
        // Written while the output is read, or each side might wait for the other. If git ends
        // early, it prints the reason.
        scope.spawn(move || stdin.map(|mut stdin| stdin.write_all(input)));
        child.wait_with_output()
    });
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        let arguments = arguments.join(" ");
        return Err(Failure::Usage(format!("git {arguments} failed: {}", message.trim())));
    }
    Ok(output.stdout)
}
