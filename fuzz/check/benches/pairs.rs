//! Simplifies the index/valid pairs of real kernels: prints the results and the time for all.
//!
//! `oracle/upstream/quality.py` runs it and compares it with tinygrad:
//! `cargo bench -p gradiff-check --bench pairs -- FILE REPEATS`. Without a file it takes the pairs
//! of the corpus. It prints a line for each pair: name, nodes, index, gate, separated by tabs; the
//! last line is the seconds that simplifying all pairs takes, the least of all repeats. Reading the
//! text is not included; interned nodes of former repeats are reused, which saves little.

#[path = "../tests/common/pairs.rs"]
mod pairs;

use std::hint::black_box;
use std::time::Instant;

use gradiff::graph::text::infix;
use pairs::{node_count, parts, read};

fn main() -> Result<(), String> {
    let mut args = std::env::args().skip(1).filter(|arg| !arg.starts_with("--"));
    let text = match args.next() {
        Some(file) => std::fs::read_to_string(&file).map_err(|error| format!("{file}: {error}"))?,
        None => String::from(include_str!("../../../corpus/index/kernels.txt")),
    };
    let repeats = args.next().map_or(Ok(5), |text| text.parse::<u32>());
    let repeats = repeats.map_err(|error| format!("repeats: {error}"))?;
    let pairs = read(&text)?;
    for pair in &pairs {
        let simple = pair.simplified();
        let (index, gate) = match parts(&simple) {
            Some((index, gate)) => (infix(index), gate.map_or(String::from("True"), infix)),
            None => (String::from("0"), String::from("False")),
        };
        println!("{}\t{}\t{index}\t{gate}", pair.name, node_count(&simple));
    }
    let seconds = (0..repeats.max(1)).map(|_| {
        let start = Instant::now();
        pairs.iter().for_each(|pair| drop(black_box(pair.simplified())));
        start.elapsed().as_secs_f64()
    });
    println!("{:.9}", seconds.fold(f64::INFINITY, f64::min));
    Ok(())
}
