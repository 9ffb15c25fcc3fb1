//! `gradiff bisect`: which versions of a framework fail on a case, and a report of that.

use std::fmt::Write;

use gradiff_check::{Answer, Kind, PEERS};
use gradiff_corpus::{Case, CaseFile};

use crate::args::Bisect;
use crate::known::{RIGHT, headline};
use crate::out::outln;
use crate::whole::write_whole;
use crate::{Failure, Status};

const FAILS: &str = "fails in";
const OTHERWISE: &str = "fails otherwise in";
const NOT_JUDGED: &str = "not judged in";
const WORDS: [&str; 4] = [FAILS, OTHERWISE, RIGHT, NOT_JUDGED];

/// A version, and the word of [`WORDS`] for its answer.
type Listed = (String, &'static str);

/// The answer of a version to a case.
struct Tried {
    version: String,
    answer: Answer,
}

/// Runs each file on each installed version, prints the answers, and writes the report.
///
/// # Errors
/// No framework of that name, none of its versions is installed; files that cannot be read; a
/// report that cannot be written.
pub(crate) fn bisect(options: &Bisect) -> Result<Status, Failure> {
    crate::interrupt::install();
    let row = PEERS.iter().find(|row| row.name == options.peer).ok_or_else(|| {
        let names: Vec<&str> = PEERS.iter().map(|row| row.name).collect();
        let names = names.join(", ");
        Failure::Usage(format!("no peer is called {}; there are: {names}", options.peer))
    })?;
    let versions = row.versions();
    if versions.is_empty() {
        return Err(Failure::Environment(format!(
            "no version of {0} is installed for gradiff; `gradiff peers install {0}==VERSION` does \
             that",
            row.package()
        )));
    }
    let longest = versions.iter().map(String::len).max().unwrap_or(0);
    let width = options.peer.len() + 1 + longest + 2;
    let mut report = String::new();
    for path in crate::case::cases(&options.files, false)? {
        let file = crate::case::read(&path)?;
        outln!("{}", path.display());
        let mut tried = Vec::new();
        for version in &versions {
            let name = format!("{}@{version}", options.peer);
            let answer = judged(answer(&name, &file.case)?);
            // It may be that of a peer which the request to end has ended.
            if crate::interrupt::is_requested() {
                return Err(Failure::Interrupted);
            }
            outln!("  {name:width$}{}", words(&answer));
            tried.push(Tried { version: version.clone(), answer });
        }
        let listed = listed(&tried, kind(&file));
        let summary = summary(&listed);
        outln!("  {summary}");
        if options.write {
            let text = with_versions(file.clone(), listed).to_string();
            write_whole(&path, &text)
                .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        }
        report += &section(&options.peer, &file, &tried, &summary);
    }
    if let Some(path) = &options.report {
        write_whole(path, &report)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        outln!("report in {}", path.display());
    }
    Ok(Status::Clean)
}

/// # Errors
/// The oracle fails on a canary.
fn answer(name: &str, case: &Case) -> Result<Answer, Failure> {
    if let Case::Program(program) = case {
        let backends = match crate::case::open(&[name.to_string()]) {
            Ok(backends) => backends,
            Err(failure) => return Ok(Answer::Skipped(failure.message().to_string())),
        };
        let (tally, failures) = gradiff_check::agree(&[program], &backends);
        gradiff_check::check_canaries().map_err(Failure::Oracle)?;
        return Ok(match (failures.into_iter().next(), tally.skipped.into_keys().next()) {
            (Some((_, failure)), _) => Answer::Wrong(failure.kind, failure.detail),
            (None, Some(reason)) => Answer::Skipped(reason),
            (None, None) => Answer::Right(0, String::new()),
        });
    }
    Ok(gradiff_check::ask(name, case))
}

/// The answer of a version, which is none if the machine has failed.
fn judged(answer: Answer) -> Answer {
    match answer {
        Answer::Wrong(Kind::Environment, reason) => Answer::Skipped(reason),
        answer => answer,
    }
}

fn words(answer: &Answer) -> String {
    match answer {
        Answer::Right(..) => "right".to_string(),
        Answer::Skipped(reason) => format!("skipped  {reason}"),
        Answer::Wrong(kind, detail) => {
            format!("wrong    {}: {}", kind.name(), detail.lines().next().unwrap_or_default())
        }
    }
}

/// The kind of failure of a program that its first line begins with.
fn kind(file: &CaseFile) -> Option<&str> {
    match file.case {
        Case::Program(_) => Some(headline(file)?.0),
        _ => None,
    }
}

/// The versions with the words for their answers. Where the kind of failure is known, those that
/// fail in another way have another word.
fn listed(tried: &[Tried], kind: Option<&str>) -> Vec<Listed> {
    let word = |answer: &Answer| match answer {
        Answer::Wrong(found, _) if kind.is_none_or(|kind| found.name() == kind) => FAILS,
        Answer::Wrong(..) => OTHERWISE,
        Answer::Right(..) => RIGHT,
        Answer::Skipped(_) => NOT_JUDGED,
    };
    tried.iter().map(|tried| (tried.version.clone(), word(&tried.answer))).collect()
}

/// The versions that fail and those that do not, in one line.
fn summary(listed: &[Listed]) -> String {
    let part = |word: &&str| {
        let chosen = listed.iter().filter(|(_, of)| of == word);
        let versions: Vec<&str> = chosen.map(|(version, _)| version.as_str()).collect();
        (!versions.is_empty()).then(|| format!("{word} {}", versions.join(", ")))
    };
    WORDS.iter().filter_map(part).collect::<Vec<_>>().join("; ")
}

/// The case with a comment line that says which versions fail, in place of an earlier one, whose
/// words for versions without an answer stay.
fn with_versions(mut file: CaseFile, mut listed: Vec<Listed>) -> CaseFile {
    let mut lines = file.description.iter().enumerate();
    let found = lines.find_map(|(at, line)| Some((at, read_summary(line)?)));
    let (at, earlier) = found.unzip();
    for (version, word) in earlier.unwrap_or_default() {
        match listed.iter_mut().find(|(now, _)| *now == version) {
            None => listed.push((version, word)),
            Some(now) if now.1 == NOT_JUDGED => now.1 = word,
            Some(_) => {}
        }
    }
    listed.sort_by_cached_key(|(version, _)| -> Vec<u64> {
        version.split(['.', '+']).map_while(|part| part.parse().ok()).collect()
    });
    match at {
        Some(at) => file.description[at] = summary(&listed),
        None => file.description.push(summary(&listed)),
    }
    file
}

/// Reads a line that lists versions by their answer, and says nothing else; `None` if it is another
/// line.
fn read_summary(line: &str) -> Option<Vec<Listed>> {
    let is_version = |version: &str| {
        let is_of_version = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '+';
        version.starts_with(|c: char| c.is_ascii_digit()) && version.chars().all(is_of_version)
    };
    let mut listed = Vec::new();
    for part in line.split("; ") {
        let read = |word: &'static str| Some((word, part.strip_prefix(word)?.strip_prefix(' ')?));
        let (word, versions) = WORDS.into_iter().find_map(read)?;
        for version in versions.split(", ") {
            listed.push((Some(version).filter(|version| is_version(version))?.to_string(), word));
        }
    }
    Some(listed)
}

/// A case in the report: title, versions, what the newest version that fails says, a script.
fn section(peer: &str, file: &CaseFile, tried: &[Tried], summary: &str) -> String {
    let title = file.description.first().map_or("A case", String::as_str);
    let title = title.split_once(": ").map_or(title, |(_, title)| title);
    let mut text = format!("## {title}\n\n{peer}: {summary}\n\n");
    let last = tried.iter().rev().find_map(|tried| match &tried.answer {
        Answer::Wrong(_, detail) => Some((&tried.version, detail)),
        _ => None,
    });
    let Some((version, detail)) = last else { return text };
    let _ = writeln!(text, "{version} says: {detail}\n");
    let fenced = |kind: &str, body: &str| format!("```{kind}\n{}\n```\n\n", body.trim_end());
    match gradiff_check::script(&format!("{peer}@{version}"), &file.case) {
        Some(Ok(script)) => text += &fenced("python", &script),
        _ => {
            let shown = CaseFile { description: vec![], case: file.case.clone(), expects: vec![] };
            text += &fenced("text", &shown.to_string());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_listed_by_their_answer() {
        let answers = [
            ("0.9.0", Answer::Wrong(Kind::Refused, "no such operator".into())),
            ("0.9.2", Answer::Wrong(Kind::Mismatch, "element 0".into())),
            ("0.10.0", Answer::Right(0, String::new())),
            ("0.14.0", Answer::Skipped("it has no shape trackers".into())),
        ];
        let tried = answers.map(|(version, answer)| Tried { version: version.into(), answer });
        let rest = "right in 0.10.0; not judged in 0.14.0";
        let of = |kind| summary(&listed(&tried, kind));
        assert_eq!(of(None), format!("fails in 0.9.0, 0.9.2; {rest}"));
        let apart = format!("fails in 0.9.2; fails otherwise in 0.9.0; {rest}");
        assert_eq!(of(Some("mismatch")), apart);
        assert_eq!(read_summary(&apart).as_deref().map(summary), Some(apart));
        assert!(read_summary("right in 2.9.1+cpu").is_some());
    }

    #[test]
    fn comments_that_begin_like_a_list_of_versions_stay() {
        let comment = "fails in a loop of more than 2^24 turns";
        let text = format!("# mismatch on numpy: x\n# {comment}\na = input i8[1] [1]\noutput a\n");
        let mut file = gradiff_corpus::parse(&text).unwrap();
        for word in [FAILS, RIGHT] {
            file = with_versions(file, vec![("1.9".to_string(), word)]);
            let summary = format!("{word} 1.9");
            assert_eq!(file.description, ["mismatch on numpy: x", comment, summary.as_str()]);
        }
        assert!(read_summary("fails in ml_dtypes 0.6.0").is_none());
        assert!(read_summary("not judged in 1.9; later").is_none());
    }

    #[test]
    fn versions_without_an_answer_keep_what_is_known_of_them() {
        let line = "fails in 0.8.0, 0.9.2; right in 0.9.0, 0.10.0, 0.14.0; not judged in 0.11.0";
        let text = format!("# mismatch on tinygrad: x\n# {line}\na = input i8[1] [1]\noutput a\n");
        let file = gradiff_corpus::parse(&text).unwrap();
        let sick = || judged(Answer::Wrong(Kind::Environment, "no space left".into()));
        let answers = [
            ("0.9.0", Answer::Wrong(Kind::Mismatch, "element 0".into())),
            ("0.9.2", Answer::Right(0, String::new())),
            ("0.10.0", Answer::Skipped("it is not installed".into())),
            ("0.11.0", Answer::Right(0, String::new())),
            ("0.14.0", sick()),
            ("0.14.1", sick()),
        ];
        let tried = answers.map(|(version, answer)| Tried { version: version.into(), answer });
        let file = with_versions(file, listed(&tried, Some("mismatch")));
        let expected = "fails in 0.8.0, 0.9.0; right in 0.9.2, 0.10.0, 0.11.0, 0.14.0; \
                        not judged in 0.14.1";
        assert_eq!(file.description[1], expected);
    }
}
