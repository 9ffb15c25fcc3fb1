//! Classes of changed snapshots: the same program, cheaper, dearer, or of another meaning.
//!
//! In: two sets of snapshot files by name, as bytes. Out: a row for each file that changed.
//! Snapshots of linear uops (`uops/`) are parsed, verified, counted ([`Cost`]) and run on the same
//! data ([`outputs`]). Other texts are compared as texts and reported with the class of the uops of
//! the same stem; a new text in a language that runs here is run and compared with its own uops
//! ([`run`]). Kernels are compared in their order, since a snapshot does not say how they pass data
//! on; another number of kernels is another meaning.

mod cost;
mod kept;
mod outputs;
mod run;
mod same;
mod words;

use std::collections::BTreeMap;

use gradiff::graph::Linear;
use gradiff::graph::text::{TextError, parse_linears};
use gradiff::graph::verify::verify_kernel;

pub use cost::Cost;
pub(crate) use cost::executions;
pub use kept::{Kept, kept};
use outputs::Outputs;
pub use words::{TextChange, text_change};

/// Class of a snapshot's change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The same uops after renumbering.
    SameProgram,
    /// The same outputs bit by bit, at a lower cost.
    Cheaper,
    /// The same outputs bit by bit, at a higher cost.
    Dearer,
    /// The same outputs bit by bit, at the same cost.
    EquallyDear,
    /// Different outputs, which rounding explains.
    OtherBits,
    /// Different outputs.
    DifferentMeaning,
    /// A text that differs only in names and blanks.
    SameText,
    /// A text that differs.
    Text,
    /// A new file.
    Added,
    /// A removed file.
    Removed,
    /// A file that is malformed, now or before.
    Broken,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 11] = [
        Class::SameProgram,
        Class::Cheaper,
        Class::Dearer,
        Class::EquallyDear,
        Class::OtherBits,
        Class::DifferentMeaning,
        Class::SameText,
        Class::Text,
        Class::Added,
        Class::Removed,
        Class::Broken,
    ];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Class::SameProgram => "same program",
            Class::Cheaper => "same meaning, cheaper",
            Class::Dearer => "same meaning, dearer",
            Class::EquallyDear => "same meaning, equally dear",
            Class::OtherBits => "other bits",
            Class::DifferentMeaning => "different meaning",
            Class::SameText => "same text up to names",
            Class::Text => "other text",
            Class::Added => "added",
            Class::Removed => "removed",
            Class::Broken => "broken",
        }
    }
}

/// A snapshot that changed or is malformed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The file below the folder of snapshots.
    pub name: String,
    /// Class of the change.
    pub class: Class,
    /// Cost of its kernels before, if it has uops and existed.
    pub before: Option<Cost>,
    /// Cost of its kernels now.
    pub after: Option<Cost>,
    /// Removed and added lines.
    pub lines: TextChange,
    /// The first difference, or what is wrong; empty if there is neither.
    pub detail: String,
    /// For other texts: the class of the uops of this stem, if there are any; the inner `None` if
    /// they did not change.
    pub uops: Option<Option<Class>>,
    /// For changed texts of kernels: `Ok` if the text was run, else the reason why it was not.
    pub run: Option<Result<(), String>>,
}

/// Changes of all snapshots.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Changed snapshots, by name.
    pub rows: Vec<Row>,
    /// Number of unchanged snapshots.
    pub unchanged: usize,
}

impl Report {
    /// Number of rows of a class.
    pub fn count(&self, class: Class) -> usize {
        self.rows.iter().filter(|row| row.class == class).count()
    }
}

/// Snapshot files by their name below the folder, with `/` between folders.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Compares two sets of snapshots.
pub fn diff(before: &Files, after: &Files) -> Report {
    let mut report = Report::default();
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        match row(name, before.get(name), after.get(name)) {
            Some(row) => report.rows.push(row),
            None => report.unchanged += 1,
        }
    }
    let uops_classes: BTreeMap<String, Class> = report
        .rows
        .iter()
        .filter(|row| is_uops(&row.name))
        .map(|row| (stem(&row.name).to_owned(), row.class))
        .collect();
    for row in report.rows.iter_mut().filter(|row| !is_uops(&row.name)) {
        let uops = format!("{UOPS}{}{SNAP}", stem(&row.name));
        let exists = before.contains_key(&uops) || after.contains_key(&uops);
        row.uops = exists.then(|| uops_classes.get(stem(&row.name)).copied());
    }
    let has_changed =
        |row: &&mut Row| matches!(row.class, Class::SameText | Class::Text | Class::Added);
    let texts = report.rows.iter_mut().filter(|row| row.name.starts_with(KERNELS));
    for row in texts.filter(has_changed) {
        let Ok(snapshot) = Snapshot::read(&row.name, &after[&row.name]) else { continue };
        match run::run(&row.name, &snapshot.text) {
            Ok(Outputs::Different(detail)) => {
                (row.class, row.detail, row.run) = (Class::DifferentMeaning, detail, Some(Ok(())));
            }
            Ok(_) => row.run = Some(Ok(())),
            Err(why) => row.run = Some(Err(why)),
        }
    }
    report
}

/// The folder of linear uops.
const UOPS: &str = "uops/";

/// The folder of texts in the languages of devices.
const KERNELS: &str = "kernels/";

/// Suffix of the names of snapshots.
const SNAP: &str = ".snap";

fn is_uops(name: &str) -> bool {
    name.starts_with(UOPS)
}

fn stem(name: &str) -> &str {
    let file = name.rsplit('/').next().unwrap_or(name);
    file.strip_suffix(SNAP).unwrap_or(file)
}

/// The row of one snapshot; `None` if it is well formed and did not change.
fn row(name: &str, before: Option<&Vec<u8>>, after: Option<&Vec<u8>>) -> Option<Row> {
    let text = |bytes: Option<&Vec<u8>>| Snapshot::read(name, bytes.map_or(&[], Vec::as_slice));
    let (old, new) = (before.map(|_| text(before)), after.map(|_| text(after)));
    let lines = text_change(&lossy(before), &lossy(after));
    let row = |class, detail| {
        let cost = |side: &Option<Result<Snapshot, String>>| {
            side.as_ref().and_then(|side| side.as_ref().ok()).and_then(Snapshot::cost)
        };
        let (before, after) = (cost(&old), cost(&new));
        Some(Row {
            name: name.to_owned(),
            class,
            before,
            after,
            lines,
            detail,
            uops: None,
            run: None,
        })
    };
    let broken = |when: &str, side: &Option<Result<Snapshot, String>>| match side {
        Some(Err(problem)) => Some(format!("{when}{problem}")),
        _ => None,
    };
    if let Some(problem) = broken("", &new).or_else(|| broken("before: ", &old)) {
        return row(Class::Broken, problem);
    }
    match (&old, &new) {
        (None, _) => row(Class::Added, String::new()),
        (_, None) => row(Class::Removed, String::new()),
        _ if before == after => None,
        (Some(Ok(old)), Some(Ok(new))) => match (&old.kernels, &new.kernels) {
            (Some(old), Some(new)) => match compare(old, new) {
                Ok((class, detail)) => row(class, detail),
                Err(problem) => row(Class::Broken, problem),
            },
            // The header may differ where the text does not.
            _ => match text_change(&old.text, &new.text).is_same_up_to_names {
                true => row(Class::SameText, String::new()),
                false => row(Class::Text, String::new()),
            },
        },
        _ => None,
    }
}

fn lossy(bytes: Option<&Vec<u8>>) -> String {
    String::from_utf8_lossy(bytes.map_or(&[], Vec::as_slice)).into_owned()
}

/// A snapshot that is well formed.
struct Snapshot {
    text: String,
    /// Its kernels and their costs, if it has uops.
    kernels: Option<Vec<(Linear, Cost)>>,
}

impl Snapshot {
    /// Reads a file.
    ///
    /// # Errors
    /// Bytes that are not text, a missing header, an empty file; malformed kernels, with the line.
    fn read(name: &str, bytes: &[u8]) -> Result<Snapshot, String> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| format!("not UTF-8 text (byte {})", error.valid_up_to()))?;
        let text = text.replace("\r\n", "\n");
        if text.trim().is_empty() {
            return Err(String::from("the file is empty"));
        }
        let start = match name.ends_with(SNAP) {
            true => text
                .strip_prefix("---\n")
                .and_then(|rest| rest.find("\n---\n"))
                .map(|end| "---\n".len() + end + "\n---\n".len())
                .ok_or("the header of a snapshot is missing: lines between two of \"---\"")?,
            false => 0,
        };
        let (header, body) = text.split_at(start);
        let kernels = match is_uops(name) && name.ends_with(SNAP) {
            // A program that needs no kernel leaves nothing below the header.
            true if body.trim().is_empty() => Some(Vec::new()),
            true => Some(kernels(body, header.lines().count())?),
            false => None,
        };
        Ok(Snapshot { text: body.to_owned(), kernels })
    }

    fn cost(&self) -> Option<Cost> {
        self.kernels.as_deref().map(total)
    }
}

fn total(kernels: &[(Linear, Cost)]) -> Cost {
    kernels.iter().fold(Cost::default(), |sum, (_, cost)| sum.and(*cost))
}

/// The kernels of a text, which begins below so many lines.
fn kernels(text: &str, above: usize) -> Result<Vec<(Linear, Cost)>, String> {
    let in_file = |error: TextError| TextError { line: error.line + above, ..error };
    let parsed = parse_linears(text).map_err(|error| in_file(error).to_string())?;
    let checked = |(number, kernel): (usize, Linear)| {
        let at = |problem: String| format!("kernel {number} ({}): {problem}", kernel.name);
        verify_kernel(&kernel).map_err(|error| at(error.to_string()))?;
        let cost = Cost::of(&kernel).map_err(at)?;
        outputs::is_runnable(&kernel, &cost).map_err(at)?;
        Ok((kernel, cost))
    };
    parsed.into_iter().enumerate().map(checked).collect()
}

/// The class of a change of uops, and the first difference.
///
/// # Errors
/// A kernel that could not be run before.
fn compare(before: &[(Linear, Cost)], after: &[(Linear, Cost)]) -> Result<(Class, String), String> {
    if before.len() != after.len() {
        let (old, new) = (before.len(), after.len());
        return Ok((Class::DifferentMeaning, format!("{new} kernels, before {old}")));
    }
    let pairs = || before.iter().zip(after).map(|((old, _), (new, _))| (old, new)).enumerate();
    let is_same = |old: &Linear, new: &Linear| {
        old.globals() == new.globals() && same::is_same_program(old, new)
    };
    if pairs().all(|(_, (old, new))| is_same(old, new)) {
        return Ok((Class::SameProgram, String::new()));
    }
    let mut rounding = None;
    for (number, (old, new)) in pairs().filter(|(_, (old, new))| !is_same(old, new)) {
        let at = |text: String| format!("kernel {number} ({}): {text}", new.name);
        match outputs::compare(old, new).map_err(at)? {
            Outputs::Same => {}
            Outputs::OtherBits(text) => rounding = rounding.or_else(|| Some(at(text))),
            Outputs::Different(text) => return Ok((Class::DifferentMeaning, at(text))),
        }
    }
    let class = match (rounding.is_some(), total(after).rank().cmp(&total(before).rank())) {
        (true, _) => Class::OtherBits,
        (false, std::cmp::Ordering::Less) => Class::Cheaper,
        (false, std::cmp::Ordering::Greater) => Class::Dearer,
        (false, std::cmp::Ordering::Equal) => Class::EquallyDear,
    };
    Ok((class, rounding.unwrap_or_default()))
}
