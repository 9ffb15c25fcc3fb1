//! `gradiff views` and `gradiff exprs`: check cases that need no worker, by enumeration and at
//! random; and `gradiff gen`, which prints generated programs.

use std::path::Path;

use gradiff_corpus::{Case, CaseFile};
use gradiff_gen::{Exhaustive, SeedChoices, case_seed};

use crate::args::{Gen, Sweep};
use crate::out::{errln, outln};
use crate::progress::Progress;
use crate::whole::write_whole;
use crate::{Failure, Status};

/// Kind of cases: how they are generated and checked.
struct Kind {
    name: &'static str,
    enumerate: fn(&mut Exhaustive) -> Case,
    random: fn(&mut SeedChoices) -> Case,
    /// Draws a case for other engines, whose integers need not wrap.
    random_for_peers: fn(&mut SeedChoices) -> Case,
    check: fn(&Case) -> Result<(), String>,
    /// A further check of enumerated cases.
    check_small: fn(&Case) -> Result<(), String>,
}

/// Number of sequences that `views` draws to measure how often equivalent ones give equal trackers.
const ALIKE_CASES: u64 = 200_000;
/// Largest number of operations of enumerated sequences that are also tried with variables.
const SYMBOLIC_OPS: usize = 2;

/// Checks shape trackers against a model of real elements.
///
/// # Errors
/// Bad flags.
pub(crate) fn views(options: &Sweep) -> Result<Status, Failure> {
    let random: fn(&mut SeedChoices) -> Case =
        |choices| Case::Views(gradiff_gen::views(choices, &gradiff_gen::ViewConfig::default()));
    let status = sweep(
        options,
        &Kind {
            name: "view sequences",
            enumerate: |choices| {
                Case::Views(gradiff_gen::views(choices, &gradiff_gen::ViewConfig::small(3)))
            },
            random,
            random_for_peers: random,
            check: |case| match case {
                Case::Views(views) => gradiff_check::check_views(views),
                _ => Ok(()),
            },
            check_small: |case| match case {
                Case::Views(views) if views.ops.len() <= SYMBOLIC_OPS => {
                    gradiff_check::check_symbolic_views(views)
                }
                _ => Ok(()),
            },
        },
    )?;
    if status == Status::Clean && !options.random_only && options.peer.is_none() {
        let config = gradiff_gen::ViewConfig::alike();
        let drawn = (0..ALIKE_CASES).map(|index| {
            gradiff_gen::views(&mut SeedChoices::new(case_seed(options.seed, index)), &config)
        });
        let equal = gradiff_check::equal_views(drawn).map_err(Failure::Internal)?;
        outln!(
            "{} pairs of sequences move all elements alike ({} mappings): {:.3} % give different \
             trackers, {:.1} % before simplification",
            equal.pairs,
            equal.placements,
            equal.percent(),
            equal.percent_unmerged()
        );
    }
    Ok(status)
}

/// Checks that simplified index expressions keep their values.
///
/// # Errors
/// Bad flags.
pub(crate) fn exprs(options: &Sweep) -> Result<Status, Failure> {
    sweep(
        options,
        &Kind {
            name: "expressions",
            enumerate: |choices| {
                Case::Expr(gradiff_gen::expr(choices, &gradiff_gen::ExprConfig::small(3)))
            },
            random: |choices| {
                Case::Expr(gradiff_gen::expr(choices, &gradiff_gen::ExprConfig::default()))
            },
            random_for_peers: |choices| {
                let config = gradiff_gen::ExprConfig {
                    dtypes: Vec::new(),
                    ..gradiff_gen::ExprConfig::default()
                };
                Case::Expr(gradiff_gen::expr(choices, &config))
            },
            check: |case| match case {
                Case::Expr(expr) => gradiff_check::check_expr(expr),
                _ => Ok(()),
            },
            check_small: |_| Ok(()),
        },
    )
}

fn sweep(options: &Sweep, kind: &Kind) -> Result<Status, Failure> {
    // Peers are asked about random cases only.
    let is_random = options.random_only || options.peer.is_some();
    let count = if is_random { options.cases } else { 1 };
    crate::case::check_count(count, "cases", options.allow_empty)?;
    crate::interrupt::install();
    if let Some(peer) = &options.peer {
        return crate::upstream::sweep(options, peer, kind.name, kind.random_for_peers);
    }
    std::panic::set_hook(Box::new(|_| {}));
    let mut progress = Progress::start(false);
    let mut found = None;
    let mut enumerated = 0u64;
    if !options.random_only {
        let mut choices = Exhaustive::new();
        loop {
            let case = (kind.enumerate)(&mut choices);
            enumerated += 1;
            found = problem(&case, kind.check).or_else(|| problem(&case, kind.check_small));
            let is_last = !choices.advance();
            if found.is_some() || is_last || crate::interrupt::is_requested() {
                break;
            }
        }
    }
    let mut random = 0;
    while found.is_none() && random < options.cases && !crate::interrupt::is_requested() {
        let mut choices = SeedChoices::new(case_seed(options.seed, random));
        found = problem(&(kind.random)(&mut choices), kind.check);
        random += 1;
        if random % 4096 == 0 {
            progress.count(enumerated + random, kind.name);
        }
    }
    progress.end();
    let seconds = progress.seconds().max(1e-9);
    outln!(
        "{enumerated} {} enumerated, {random} at random (seed {}), {:.0}/s",
        kind.name,
        options.seed,
        (enumerated + random) as f64 / seconds
    );
    let Some((case, detail)) = found else {
        outln!("nothing found");
        return Ok(Status::Clean);
    };
    // A case that fails only the check of enumerated cases is small enough.
    let is_small = problem(&case, kind.check).is_none();
    let fails = |case: &Case| problem(case, kind.check).is_some();
    let small = if is_small { case } else { smaller(&case, &fails) };
    let detail = problem(&small, kind.check).map_or(detail, |(_, detail)| detail);
    let file = CaseFile { description: vec![detail.clone()], case: small, expects: Vec::new() };
    outln!("FOUND: {detail}");
    outln!("{file}");
    save(&options.findings, &file, None)?;
    Ok(Status::Findings)
}

fn problem(case: &Case, check: fn(&Case) -> Result<(), String>) -> Option<(Case, String)> {
    let checked = gradiff_check::catch(|| check(case)).and_then(|result| result);
    checked.err().map(|detail| (case.clone(), detail))
}

/// Minimises a failing case; an interrupt ends it.
pub(crate) fn smaller(case: &Case, fails: &dyn Fn(&Case) -> bool) -> Case {
    gradiff_check::smaller(case, &|case| !crate::interrupt::is_requested() && fails(case))
}

/// Writes a case, and beside it a script of the peer that is wrong.
pub(crate) fn save(folder: &Path, file: &CaseFile, peer: Option<&str>) -> Result<(), Failure> {
    let text = file.to_string();
    let path = folder.join(format!("{}.case", gradiff_check::stem(&text)));
    let script = peer.and_then(|peer| gradiff_check::script(peer, &file.case)?.ok());
    let written = std::fs::create_dir_all(folder).and_then(|()| {
        script.map_or(Ok(()), |script| write_whole(&path.with_extension("py"), &script))?;
        write_whole(&path, &text)
    });
    match written {
        Ok(()) => outln!("saved as {}", path.display()),
        Err(error) => {
            let path = path.display();
            errln!("gradiff: {path} cannot be written: {error}; the case is printed above")
        }
    }
    Ok(())
}

/// Prints generated programs, each as a corpus file, separated by `---`.
///
/// # Errors
/// The name of no lane.
pub(crate) fn generate(options: &Gen) -> Result<Status, Failure> {
    use std::io::Write;
    let config = crate::case::config(&options.lanes)?;
    crate::case::check_count(options.count, "programs", options.allow_empty)?;
    // An inclusive end, so that the largest number can be given.
    let last = options.first.checked_add(options.count.saturating_sub(1)).ok_or_else(|| {
        let (first, count) = (options.first, options.count);
        let largest = u64::MAX;
        Failure::Usage(format!("--first {first} --count {count}: numbers end at {largest}"))
    })?;
    let numbers = (options.first..=last).take(usize::try_from(options.count).unwrap_or(usize::MAX));
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for index in numbers {
        let generated = gradiff_gen::program_at(options.seed, index, &config);
        let separator = if index == options.first { "" } else { "---\n" };
        let lane = generated.lane.name();
        let seed = options.seed;
        let text =
            format!("{separator}# {lane} lane, seed {seed}, number {index}\n{}", generated.program);
        out.write_all(text.as_bytes()).unwrap_or_else(|error| crate::out::end(&error));
    }
    out.flush().unwrap_or_else(|error| crate::out::end(&error));
    Ok(Status::Clean)
}
