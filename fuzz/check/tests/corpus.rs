//! Every case of the corpus on every available backend, and its `expect` lines.

use gradiff_check::{BACKENDS, Backend, agree, backends, check_expects, check_expr, check_views};
use gradiff_corpus::{Case, embedded, parse};
use gradiff_skip::{of_backend, or_skip};

#[test]
fn every_case_holds_what_it_expects() {
    let mut problems = Vec::new();
    for (stem, text) in embedded() {
        let file = parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        problems.extend(check_expects(&file).into_iter().map(|p| format!("{stem}: {p}")));
        let checked = match &file.case {
            Case::Views(views) => check_views(views),
            Case::Expr(expr) => check_expr(expr),
            Case::Program(_) => Ok(()),
        };
        problems.extend(checked.err().map(|p| format!("{stem}: {p}")));
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn every_program_is_right_on_every_backend() {
    let files = embedded().iter().map(|(stem, text)| (stem, parse(text).expect("a case parses")));
    let programs: Vec<_> = files
        .filter_map(|(stem, file)| match file.case {
            Case::Program(program) => Some((stem, program)),
            _ => None,
        })
        .collect();
    assert!(programs.len() > 40, "the corpus has programs");
    // One backend after the other: those of a device share its kernels, each batch a compiler call.
    let mut present: Vec<Box<dyn Backend>> = Vec::new();
    for row in BACKENDS {
        let opened = backends(&[row.name.to_string()]).map_err(|error| error.message);
        present.extend(or_skip(of_backend(row.name), opened).into_iter().flatten());
    }
    let needed = ["interp", "interp/heuristic", "jit/heuristic", "c/heuristic", "c/opts"];
    for name in needed.into_iter().chain(["text/ptx", "text/ptx-opts"]) {
        assert!(present.iter().any(|backend| backend.name() == name), "{name} needs no driver");
    }
    let without_stems: Vec<_> = programs.iter().map(|(_, program)| program).collect();
    let (tally, failures) = agree(&without_stems, &present);
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
    let failures: Vec<String> = failures
        .into_iter()
        .map(|(at, f)| {
            format!("{}: {} on {}: {}", programs[at].0, f.kind.name(), f.backend, f.detail)
        })
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
