//! `gradiff opts`: checks that a kernel gives the same results under every legal sequence of
//! optimisations.

use gradiff_check::{Opt, OptOp, OptsTally, Sequences};
use gradiff_corpus::Case;
use serde_json::json;

use crate::args::Opts;
use crate::out::outln;
use crate::progress::Progress;
use crate::{Failure, Status};

/// Tries the sequences on the kernels of a program and prints the counts; stops at the first wrong
/// sequence.
///
/// # Errors
/// A file that holds no program, or one without a kernel; a program that is refused; an unknown or
/// illegal opt.
pub(crate) fn measure(options: &Opts) -> Result<Status, Failure> {
    crate::interrupt::install_with_grace();
    let case = crate::case::read(&options.file)?;
    let Case::Program(program) = &case.case else {
        let file = options.file.display();
        return Err(Failure::Usage(format!("{file} holds no program: only programs have kernels")));
    };
    let sequences = sequences(options)?;
    let mut progress = Progress::start(options.json);
    let mut seen = |tally: &OptsTally| progress.count(tally.sequences, "sequences");
    let is_over = || crate::interrupt::is_requested();
    let (tally, failure) = gradiff_check::opts(program, &sequences, &is_over, &mut seen)
        .map_err(|problem| Failure::Usage(format!("{}: {problem}", options.file.display())))?;
    progress.end();
    let detail = failure.as_ref().map(ToString::to_string);
    if options.json {
        let ops: serde_json::Map<String, serde_json::Value> =
            counts(&tally).map(|(op, count)| (op.name().to_string(), json!(count))).collect();
        outln!(
            "{}",
            json!({"kernels": tally.kernels, "sequences": tally.sequences, "ops": ops,
                   "reordered": tally.reordered, "failure": detail})
        );
    } else {
        outln!("{:18}{}", "kernels", tally.kernels);
        outln!("{:18}{}", "sequences", tally.sequences);
        counts(&tally).for_each(|(op, count)| outln!("{:18}{count}", op.name()));
        outln!("{:18}{}", "reordered sums", tally.reordered);
        outln!("{:18}{}", "wrong", u64::from(failure.is_some()));
        detail.iter().for_each(|detail| outln!("\n{detail}"));
    }
    if tally.sequences == 0 && failure.is_none() && !is_over() {
        let file = options.file.display();
        return Err(Failure::Usage(format!("{file}: the program has no kernel to try opts on")));
    }
    Ok(if failure.is_none() { Status::Clean } else { Status::Findings })
}

fn counts(tally: &OptsTally) -> impl Iterator<Item = (OptOp, u64)> {
    OptOp::ALL.into_iter().zip(tally.ops)
}

/// Parses a list of opts such as "padto 0 4, upcast 0 4".
///
/// # Errors
/// One of them is not an opt.
pub(crate) fn parse(text: &str) -> Result<Vec<Opt>, Failure> {
    let opts = text.split(',').map(str::trim).filter(|opt| !opt.is_empty());
    opts.map(|opt| opt.parse().map_err(Failure::Usage)).collect()
}

fn sequences(options: &Opts) -> Result<Sequences, Failure> {
    match &options.opts {
        Some(text) => parse(text).map(Sequences::Given),
        None => {
            let (depth, random, seed) = (usize::from(options.depth), options.random, options.seed);
            Ok(Sequences::Legal { depth, random, seed })
        }
    }
}
