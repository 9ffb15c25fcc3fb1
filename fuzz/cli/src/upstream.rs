//! `gradiff views --peer` and `gradiff exprs --peer`: the shape trackers and index expressions of
//! another engine, on random cases.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use gradiff_check::{Answer, Kind, Upstream};
use gradiff_corpus::{Case, CaseFile};
use gradiff_gen::{SeedChoices, case_seed};

use crate::args::Sweep;
use crate::known::{self, Failed, Known};
use crate::out::{errln, outln};
use crate::progress::Progress;
use crate::sweep::{save, smaller};
use crate::{Failure, Status};

/// Cases in a request: an exchange of messages takes longer than most cases.
const BATCH: u64 = 64;
/// Reasons of skips that are printed.
const SKIPPED_ROWS: usize = 4;

/// The failures of a sweep.
struct Causes {
    known: Vec<Known>,
    /// The version of the peer, if it says one.
    version: Option<String>,
    /// The number of cases of each new one, by signature.
    new: BTreeMap<String, u64>,
}

/// Draws cases and judges what the peer says of them. Failures are minimised, and one of each kind
/// is written down.
///
/// # Errors
/// The peer is not available, or has nothing like that; a file of known failures cannot be read.
/// The peer cannot be started any more, and nothing was found before.
pub(crate) fn sweep(
    options: &Sweep,
    peer: &str,
    noun: &str,
    draw: fn(&mut SeedChoices) -> Case,
) -> Result<Status, Failure> {
    let version = gradiff_check::version_of(peer);
    let upstream =
        Upstream::open(peer).map_err(|reason| Failure::Environment(format!("{peer}: {reason}")))?;
    let case = |number| draw(&mut SeedChoices::new(case_seed(options.seed, number)));
    if let Some(reason) = upstream.missing(&case(0)) {
        return Err(Failure::Usage(format!("{peer}: {reason}")));
    }
    let mut causes = Causes { known: known(options)?, version, new: BTreeMap::new() };
    let mut skipped: BTreeMap<String, u64> = BTreeMap::new();
    let (mut done, mut ops, mut fewer, mut sick) = (0, (0, 0), 0, None);
    let mut progress = Progress::start(false);
    let is_over = |causes: &Causes| {
        causes.new.len() as u64 >= options.max_findings || crate::interrupt::is_requested()
    };
    while done < options.cases && sick.is_none() && !is_over(&causes) {
        let batch = BATCH.min(options.cases - done);
        let cases: Vec<Case> = (done..done + batch).map(case).collect();
        for (case, answer) in cases.iter().zip(upstream.check(&cases)) {
            match answer {
                Answer::Skipped(reason) => *skipped.entry(reason).or_default() += 1,
                Answer::Right(theirs, text) => {
                    let (ours, form) = simplified(case);
                    if theirs < ours && fewer < options.larger {
                        outln!("{ours} operations, {theirs} there\n{}", shown(case));
                        outln!("    here   {form}\n    there  {text}");
                    }
                    ops = (ops.0 + ours, ops.1 + theirs);
                    fewer += u64::from(theirs < ours);
                }
                Answer::Wrong(..) if is_over(&causes) => {}
                Answer::Wrong(Kind::Environment, reason) => {
                    sick = Some(reason);
                    break;
                }
                Answer::Wrong(kind, detail) => {
                    sick = found(options, &upstream, case, (kind, &detail), &mut causes)?;
                }
            }
            done += 1;
            if sick.is_some() {
                break;
            }
        }
        progress.count(done, noun);
    }
    progress.end();
    let rate = done as f64 / progress.seconds().max(1e-9);
    outln!("{done} {noun} at random (seed {}) on {peer}, {rate:.0}/s", options.seed);
    let judged = done - skipped.values().sum::<u64>();
    let mut reasons: Vec<_> = skipped.into_iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    for (reason, count) in reasons.iter().take(SKIPPED_ROWS) {
        outln!("skipped  {count}, {reason}");
    }
    if ops.1 > 0 {
        outln!("simplified they have {} operations, here {}; fewer there in {fewer}", ops.1, ops.0);
    }
    for known in causes.known.iter().filter(|known| known.count > 0) {
        outln!("known    {}, {}", known.count, known.path.display());
    }
    match sick.map(|reason| format!("{peer}: {reason}")) {
        Some(reason) if causes.new.is_empty() => return Err(Failure::Environment(reason)),
        Some(reason) => errln!("gradiff: {reason}"),
        None => {}
    }
    if causes.new.is_empty() {
        if !crate::interrupt::is_requested() {
            crate::case::check_count(judged, "judged cases", options.allow_empty)?;
        }
        outln!("nothing found");
        return Ok(Status::Clean);
    }
    let cases: u64 = causes.new.values().sum();
    outln!("{} distinct failures, in {cases} cases", causes.new.len());
    Ok(Status::Findings)
}

/// The number of operations of the engine's own simplified form, and its text; 0 for movements.
fn simplified(case: &Case) -> (u64, String) {
    match case {
        Case::Expr(expr) => gradiff_check::simplified_form(expr),
        _ => (0, String::new()),
    }
}

/// A case without comments.
fn shown(case: &Case) -> CaseFile {
    CaseFile { description: Vec::new(), case: case.clone(), expects: Vec::new() }
}

/// Minimises a failure, and writes it down unless there is one like it. Returns the reason if the
/// peer cannot be started any more: then the case is as small as it was by then.
fn found(
    options: &Sweep,
    upstream: &Upstream,
    case: &Case,
    failure: (Kind, &str),
    causes: &mut Causes,
) -> Result<Option<String>, Failure> {
    let kind = kind_of(failure.0, failure.1);
    // Each run of a peer that dies is a start of its process: one such death is minimised.
    let is_death = matches!(failure.0, Kind::Crash | Kind::Timeout);
    if let Some(count) = causes.new.get_mut(kind).filter(|_| is_death) {
        *count += 1;
        return Ok(None);
    }
    let sick = RefCell::new(None);
    let wrong = |case: &Case| {
        if sick.borrow().is_some() {
            return None;
        }
        match upstream.check(std::slice::from_ref(case)).pop() {
            Some(Answer::Wrong(Kind::Environment, reason)) => {
                *sick.borrow_mut() = Some(reason);
                None
            }
            // The same kind of failure: a smaller case may show another one.
            Some(Answer::Wrong(found, detail)) if kind_of(found, &detail) == kind => {
                Some((found, detail))
            }
            _ => None,
        }
    };
    // The failure of the smallest case, which is the last that fails.
    let last = RefCell::new((failure.0, failure.1.to_string()));
    let small = smaller(case, &|case| {
        let found = wrong(case);
        let is_wrong = found.is_some();
        found.into_iter().for_each(|found| *last.borrow_mut() = found);
        is_wrong
    });
    let (found, detail) = last.into_inner();
    let sick = sick.into_inner();
    let peer = options.peer.as_deref().unwrap_or_default();
    let signature = signature(&small, kind);
    let is_minimal = sick.is_none() && !crate::interrupt::is_requested();
    let version = causes.version.as_deref();
    let (case, backend) = (&small, peer);
    let failed = Failed { signature: &signature, kind, case, is_minimal, backend, version };
    if known::count(&mut causes.known, &failed) {
        return Ok(sick);
    }
    let signature = if is_death { kind.to_string() } else { signature };
    let count = causes.new.entry(signature).or_default();
    *count += 1;
    if *count > 1 {
        return Ok(sick);
    }
    let title = format!("{} on {peer}: {detail}", found.name());
    outln!("FOUND: {title}");
    let file = CaseFile { description: vec![title, detail], case: small, expects: Vec::new() };
    outln!("{file}");
    save(&options.findings, &file, options.peer.as_deref())?;
    Ok(sick)
}

/// The causes that are reviewed. Programs, and failures of the engine, are no business of this
/// sweep.
fn known(options: &Sweep) -> Result<Vec<Known>, Failure> {
    if options.known.is_empty() {
        return Ok(Vec::new());
    }
    let mut known = Vec::new();
    for path in crate::case::cases(&options.known, true)? {
        let file = crate::case::read(&path)?;
        if matches!(file.case, Case::Program(_)) {
            continue;
        }
        let headline = known::headline(&file);
        if let Some((_, backends)) = headline {
            known::check_backends(&path, backends)?;
        }
        let of_peer = headline.filter(|(_, backend)| gradiff_check::is_peer(backend));
        let Some(failure) = of_peer.and_then(|(kind, _)| Kind::from_name(kind)) else {
            errln!("gradiff: {}: its first line names no peer, so it is not known", path.display());
            continue;
        };
        // The first line is the title, the second one the failure itself.
        let detail = file.description.get(1).map_or("", String::as_str);
        let kind = kind_of(failure, detail);
        known.push(Known::new(path, &file, signature(&file.case, kind), kind)?);
    }
    Ok(known)
}

/// The kind of a failure: of a wrong answer whether a value or a bound is wrong, otherwise how its
/// description begins, up to the first number.
fn kind_of(failure: Kind, detail: &str) -> &str {
    let end = detail.find(|c: char| c.is_ascii_digit()).unwrap_or(detail.len());
    // Titles that people wrote call refusals mismatches, too.
    let is_answer = failure == Kind::Mismatch && !detail.starts_with("refused: ");
    match detail {
        _ if !is_answer => &detail[..end],
        _ if detail.contains("expected") && !detail.contains("of the buffer") => "value",
        _ if detail.contains("outside its bounds") => "bounds",
        _ => &detail[..end],
    }
}

/// Equal for failures that most likely have one cause: their kind and the set of operations.
fn signature(case: &Case, kind: &str) -> String {
    let ops: BTreeSet<&str> = match case {
        Case::Program(program) => program.statements.iter().map(gradiff_corpus::name).collect(),
        Case::Views(views) => views.ops.iter().map(|op| op.name()).collect(),
        Case::Expr(case) => {
            let mut ops = BTreeSet::new();
            case.expr.visit(&mut |node| {
                ops.insert(gradiff_corpus::expr_name(node));
            });
            ops
        }
    };
    format!("{kind}: {ops:?}")
}
