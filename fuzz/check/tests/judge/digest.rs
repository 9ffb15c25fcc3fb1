//! Hashes of programs' stages: of the schedule, of the uops for each target and of the text in each
//! language. A mutant that changes none of them changes no kernel here.

use std::hash::{DefaultHasher, Hash, Hasher};

use gradiff_check::{Form, Shown};
use gradiff_corpus::{Case, embedded, parse};

/// Number of drawn programs, in addition to those of the corpus.
const DRAWN: u64 = 150;
/// Targets for which the uops are hashed.
const TARGETS: [&str; 6] = ["short-vectors", "loops", "vectors", "groups", "cuda", "wgsl"];
/// Languages whose text is hashed, each for its own target.
const LANGUAGES: [&str; 7] = ["cuda", "opencl", "metal", "wgsl-core", "llvm", "ptx", "wgsl"];

/// Prints a line for each program: its name, then the three hashes.
pub(crate) fn print(seed: u64) {
    let corpus = embedded().iter().filter_map(|(stem, text)| {
        let case = parse(text).unwrap_or_else(|e| panic!("{stem}: {e}")).case;
        matches!(case, Case::Program(_)).then(|| (stem.to_string(), case))
    });
    let config = gradiff_gen::Config::default();
    let drawn = (0..DRAWN).map(|number| {
        let program = gradiff_gen::program_at(seed, number, &config).program;
        (format!("drawn-{number}"), Case::Program(program))
    });
    for (name, case) in corpus.chain(drawn) {
        let hash = |form, targets: &[&str]| {
            let mut hasher = DefaultHasher::new();
            for target in targets {
                let shown = Shown { form, opts: None, target: Some(target) };
                text_of(&case, shown).hash(&mut hasher);
            }
            hasher.finish()
        };
        let schedule = hash(Form::Schedule, &["plain"]);
        let uops = hash(Form::Uops, &TARGETS);
        let mut hasher = DefaultHasher::new();
        for name in LANGUAGES {
            let form = name.parse().unwrap_or_else(|error| panic!("{error}"));
            hash(form, &[name]).hash(&mut hasher);
        }
        let text = hasher.finish();
        println!("DIGEST {name} {schedule:016x} {uops:016x} {text:016x}");
    }
}

/// The text of a form, or the reason why there is none.
fn text_of(case: &Case, shown: Shown<'_>) -> String {
    let shown = gradiff_check::catch(|| gradiff_check::show(case, shown));
    shown.and_then(|text| text).unwrap_or_else(|problem| problem)
}
