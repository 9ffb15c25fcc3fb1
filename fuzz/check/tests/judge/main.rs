//! The judge of mutants: one process that passes or reports the first failure as soon as it can.
//!
//! First the corpus: the `expect` lines of its files, then each of its programs on the plain
//! devices and through compilers. Then drawn programs on every configuration that needs no compiler
//! and no driver, mixed with views, expressions, sequences of optimisations, other targets, drawn
//! kernels and kernel trees, and each op of each type in each language, until the seconds are
//! spent. After each round of these, programs of the corpus have their turn on the other
//! configurations, so that a minute has some of everything.
//! `fuzz/mutants.py` runs it for each mutant; plain `cargo test` runs it for two seconds, after one
//! file of the corpus in eight, chosen by the seed: `tests/corpus.rs` runs all of them.
//!
//! From the environment: `GRADIFF_JUDGE_SEED` (default 1) and `GRADIFF_JUDGE_SECONDS` of CPU time
//! for the drawn part (default 2); `GRADIFF_JUDGE_DEVICES` (default `interp,jit,uops,text`; `c` and
//! `text`, which call compilers, take programs by the batch); `GRADIFF_JUDGE=digest` prints hashes
//! of programs' stages instead, `none` does nothing. `blame` prints each stage of the program of
//! the check in `GRADIFF_JUDGE_CHECK` before it is evaluated: if the process dies, the last one
//! printed is to blame.
//! A failure prints one line, `KILLED ...`, and exits with 1; success prints a line, `PASSED ...`.
//! The checks and their order depend on the seed alone; only their end depends on the clock.

mod clock;
mod corpus;
mod digest;
mod drawn;
mod targets;
mod verdict;

use verdict::Verdict;

/// The variable's number; the default if it is not set.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| {
        text.parse().unwrap_or_else(|_| panic!("{name} is a whole number, not {text}"))
    })
}

/// Each row of device `c` takes one group of programs in this many; its compiler is the slowest.
const C_EVERY: u64 = 8;

/// The same for each language whose texts run here: more than in hunts, since nothing else here
/// checks these texts.
const TEXT_EVERY: u64 = 4;

/// Plain `cargo test` takes one file of the corpus in this many.
const CORPUS_EVERY: usize = 8;

/// Number of kernel trees before the first round.
const TREES: u64 = 32;

/// Number of programs of the corpus after each round of drawn ones, which takes as long.
const CORPUS_PER_ROUND: usize = 16;

/// The names of the configurations on the chosen devices.
fn configurations(devices: &str) -> Vec<String> {
    let devices: Vec<&str> = devices.split(',').collect();
    let rows = gradiff_check::BACKENDS.iter().filter(|row| devices.contains(&row.device));
    let name = |row: &gradiff_check::BackendRow| match row.device {
        "c" => format!("{}:{C_EVERY}", row.name),
        "text" => format!("{}:{TEXT_EVERY}", row.name),
        _ => row.name.to_string(),
    };
    rows.map(name).collect()
}

#[test]
fn nothing_is_wrong() {
    let seed = number("GRADIFF_JUDGE_SEED", 1);
    match std::env::var("GRADIFF_JUDGE").as_deref() {
        Ok("digest") => return digest::print(seed),
        // For tools that build a test and insist on running it.
        Ok("none") => return,
        _ => {}
    }
    let devices =
        std::env::var("GRADIFF_JUDGE_DEVICES").unwrap_or("interp,jit,uops,text".to_string());
    let mut checks = drawn::Checks::new(seed, &devices);
    if std::env::var("GRADIFF_JUDGE").as_deref() == Ok("blame") {
        return checks.blame_in_steps(&std::env::var("GRADIFF_JUDGE_CHECK").unwrap_or_default());
    }
    let verdict = Verdict::watched();
    let files = match std::env::var_os("GRADIFF_JUDGE_SECONDS") {
        Some(_) => corpus::files(),
        None => corpus::share(seed, CORPUS_EVERY),
    };
    let plain = checks.direct.iter().take_while(|way| !way.name().contains('/')).count();
    corpus::check(&verdict, &files, &checks.direct[..plain]);
    verdict.check("trees", || drawn::trees(seed, TREES));
    corpus::check_batch(&verdict, &files, &checks.batched);
    let mut programs = corpus::programs(&files);
    let seconds = number("GRADIFF_JUDGE_SECONDS", 2) as f64;
    let mut drawn_seconds = 0.0;
    while drawn_seconds < seconds {
        let before = clock::cpu_seconds();
        checks.round(&verdict);
        drawn_seconds += clock::cpu_seconds() - before;
        let next = programs.by_ref().take(CORPUS_PER_ROUND);
        corpus::check_programs(&verdict, next, &checks.direct[plain..]);
    }
    corpus::check_programs(&verdict, programs, &checks.direct[plain..]);
    checks.finish(&verdict);
    println!(
        "PASSED drawn={drawn_seconds:.1} total={:.1} programs={} views={} exprs={} sequences={} \
         skipped={}",
        clock::cpu_seconds(),
        checks.programs,
        checks.views,
        checks.exprs,
        checks.sequences,
        checks.skipped.get()
    );
    println!("spent {}", verdict.spent());
    assert!(checks.programs > 0, "no program was drawn");
}
