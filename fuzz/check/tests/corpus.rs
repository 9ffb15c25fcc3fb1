//! Every case of the corpus on every available backend, and its `expect` lines; what other
//! frameworks get wrong on the devices that need nothing.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use gradiff_check::{
    BACKENDS, Backend, Failure, Tally, agree, backends, check_expects, check_expr, check_views,
};
use gradiff_corpus::{Case, Program, embedded, parse};
use gradiff_skip::{of_backend, or_skip};
use rayon::prelude::*;

#[test]
fn every_case_holds_what_it_expects() {
    let mut problems = Vec::new();
    for (stem, text) in embedded() {
        let file = parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        problems.extend(check_expects(&file).into_iter().map(|p| format!("{stem}: {p}")));
        let checked = match &file.case {
            Case::Views(views) => {
                check_views(views).and_then(|()| gradiff_check::check_symbolic_views(views))
            }
            Case::Expr(expr) => check_expr(expr),
            Case::Program(_) => Ok(()),
        };
        problems.extend(checked.err().map(|p| format!("{stem}: {p}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Results of the backends of one device.
struct Judged {
    /// The backends that are there.
    names: Vec<&'static str>,
    tally: Tally,
    failures: Vec<(usize, Failure)>,
}

/// Backends that hunts and replays alone run: each of their options is that of another row.
const HUNTED: [&str; 1] = ["jit/fast"];

/// A backend that compiles each tensor of a program alone, at a third of a second for any kernel:
/// every so many programs run on it, and all of them nightly.
const SAMPLED: (&str, usize) = ("opencl/session", 8);

/// Runs the programs on every available backend but [`HUNTED`], on as many threads as there are
/// cores. The backends of a device run one after the other, since they share its kernels, each
/// batch a call of its compiler; those of device `text` share none.
fn on_all_backends(programs: &[&Program]) -> Vec<Judged> {
    let mut groups: Vec<(&str, Vec<&'static str>)> = Vec::new();
    for row in BACKENDS.iter().filter(|row| !HUNTED.contains(&row.name)) {
        let shared = if row.device == "text" { row.name } else { row.device };
        match groups.iter_mut().find(|(known, _)| *known == shared) {
            Some((_, names)) => names.push(row.name),
            None => groups.push((shared, vec![row.name])),
        }
    }
    let judged = |names: &Vec<&'static str>| {
        let mut present: Vec<Box<dyn Backend>> = Vec::new();
        for name in names {
            let opened = backends(&[name.to_string()]).map_err(|error| error.message);
            present.extend(or_skip(of_backend(name), opened).into_iter().flatten());
        }
        let is_there = |name: &&&str| present.iter().any(|backend| backend.name() == **name);
        let names = names.iter().filter(is_there).copied().collect();
        let (backend, every) = SAMPLED;
        let (sampled, rest): (Vec<_>, Vec<_>) =
            present.into_iter().partition(|present| present.name() == backend);
        let (mut tally, mut failures) = agree(programs, &rest);
        if !sampled.is_empty() {
            let chosen: Vec<&Program> = programs.iter().copied().step_by(every).collect();
            let (more, found) = agree(&chosen, &sampled);
            tally.add(&more);
            failures.extend(found.into_iter().map(|(at, failure)| (at * every, failure)));
        }
        Judged { names, tally, failures }
    };
    groups.par_iter().with_max_len(1).map(|(_, names)| judged(names)).collect()
}

/// The programs of the corpus, by the names of their files.
fn programs() -> Vec<(&'static str, Program)> {
    let files = embedded().iter().map(|(stem, text)| (*stem, parse(text).expect("a case parses")));
    let programs: Vec<_> = files
        .filter_map(|(stem, file)| match file.case {
            Case::Program(program) => Some((stem, program)),
            _ => None,
        })
        .collect();
    assert!(programs.len() > 40, "the corpus has programs");
    programs
}

/// Fails if there are failures, with the names of their files.
fn assert_none(failures: Vec<(usize, Failure)>, programs: &[(impl Display, Program)]) {
    let failures: Vec<String> = failures
        .into_iter()
        .map(|(at, f)| {
            format!("{}: {} on {}: {}", programs[at].0, f.kind.name(), f.backend, f.detail)
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// The programs that other frameworks get wrong, by their files.
fn programs_of_peers() -> Vec<(String, Program)> {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(folder).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus/upstream"));
    let folders = entries(root).into_iter().filter(|path| path.is_dir());
    let files = folders.flat_map(|folder| entries(&folder));
    let cases = files.filter(|path| path.extension().is_some_and(|extension| extension == "case"));
    let programs = cases.filter_map(|path| {
        let text = std::fs::read_to_string(&path).expect("a readable case");
        match parse(&text).expect("a case parses").case {
            Case::Program(program) => Some((path.display().to_string(), program)),
            _ => None,
        }
    });
    programs.collect()
}

#[test]
fn programs_that_peers_get_wrong_are_right_here() {
    let programs = programs_of_peers();
    assert!(programs.len() > 200, "{} programs", programs.len());
    let chosen = ["interp/heuristic", "jit/heuristic"].map(String::from);
    let present = backends(&chosen).unwrap_or_else(|error| panic!("{}", error.message));
    let (_, failures) = agree(&programs.iter().map(|(_, p)| p).collect::<Vec<_>>(), &present);
    assert_none(failures, &programs);
}

#[test]
#[ignore = "takes minutes; .ci/nightly runs it"]
fn every_program_is_right_on_the_sampled_backend() {
    let opened = backends(&[SAMPLED.0.to_string()]).map_err(|error| error.message);
    let Some(present) = or_skip(of_backend(SAMPLED.0), opened) else { return };
    let programs = programs();
    let (_, failures) = agree(&programs.iter().map(|(_, p)| p).collect::<Vec<_>>(), &present);
    assert_none(failures, &programs);
}

#[test]
fn every_program_is_right_on_every_backend() {
    let programs = programs();
    let without_stems: Vec<_> = programs.iter().map(|(_, program)| program).collect();
    let (mut names, mut tally, mut failures) = (Vec::new(), Tally::default(), Vec::new());
    for judged in on_all_backends(&without_stems) {
        names.extend(judged.names);
        tally.add(&judged.tally);
        failures.extend(judged.failures);
    }
    let needed = ["interp", "interp/heuristic", "jit/heuristic", "c/heuristic", "c/opts"];
    for name in needed.into_iter().chain(["text/ptx", "text/ptx-opts"]) {
        assert!(names.contains(&name), "{name} needs no driver");
    }
    for (reason, count) in &tally.skipped {
        println!("skipped: {count} programs, {reason}");
        let is_fast = reason.starts_with("interp/fast: fast mode requires finite values");
        let is_metal = reason == "text/metal: device text Metal has no f64";
        let is_wgsl = reason
            == "text/wgsl: f16 in WGSL requires finite values, and one may be infinite or NaN"
            || reason
                == "text/wgsl-core: device text WGSL without extensions has no type of 64 bits";
        let is_known = is_fast || is_metal || is_wgsl || reason.starts_with("wgpu");
        assert!(is_known, "{reason}");
        assert!(count * 3 < programs.len() as u64, "{count} of {}: {reason}", programs.len());
    }
    assert!(!tally.skipped.is_empty());
    assert!(tally.checked_elements > 1_000, "{}", tally.checked_elements);
    assert_none(failures, &programs);
}
