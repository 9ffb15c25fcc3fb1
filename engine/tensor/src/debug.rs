//! Debug output to stderr by the level in `DEBUG`: 1 the device and searches, 2 a line for each
//! kernel run, 3 its parameters, 4 its source in C, 5 its tree and its linear uops.

use std::time::Duration;

use gradiff_graph::UOp;

use crate::Error;
use crate::error::invalid;
use crate::plan::PlannedKernel;

/// Returns the level in the environment variable `DEBUG`; 0 if it is not set.
pub(crate) fn level() -> Result<u8, Error> {
    match std::env::var("DEBUG") {
        Err(_) => Ok(0),
        Ok(text) => parse(&text),
    }
}

fn parse(text: &str) -> Result<u8, Error> {
    match text.parse() {
        Ok(level) if level <= 5 => Ok(level),
        _ => invalid(format!("DEBUG={text}: it must be a level from 0 to 5")),
    }
}

/// Prints a kernel that is compiled, at levels 3 to 5.
pub(crate) fn print_source(level: u8, kernel: &PlannedKernel) -> Result<(), Error> {
    let name = &kernel.linear.name;
    if 3 <= level {
        let parameters = kernel.buffers.iter().enumerate();
        let parameters: Vec<String> = parameters
            .map(|(slot, buffer)| {
                format!("data{slot}: {}[{}]", buffer.dtype(), buffer.size_elements())
            })
            .collect();
        eprintln!("{name}({})", parameters.join(", "));
    }
    if 5 <= level {
        eprintln!("{}{}", tree(&kernel.ast), kernel.linear);
    }
    if 4 <= level {
        eprintln!("{}", gradiff_render::c(&kernel.linear)?.text);
    }
    Ok(())
}

/// The lowest level at which kernels are timed.
pub(crate) const TIMED: u8 = 2;

/// Prints a kernel run and its time by the device's clock.
pub(crate) fn print_run(device: &str, number: usize, kernel: &PlannedKernel, time: Duration) {
    let size_bytes: u64 = kernel
        .buffers
        .iter()
        .map(|buffer| buffer.size_elements() as u64 * buffer.dtype().size_bytes() as u64)
        .sum();
    eprintln!(
        "*** {device} {number:4} {:24} arg {:2} mem {:9.3} MB tm {:9.2} us",
        kernel.linear.name,
        kernel.buffers.len(),
        size_bytes as f64 / 1e6,
        time.as_secs_f64() * 1e6
    );
}

/// Prints a kernel tree, a line per node: its number, the node, the numbers of its sources.
fn tree(ast: &UOp) -> String {
    let order = ast.toposort();
    let number = |node: &UOp| order.iter().position(|known| known == node).unwrap_or(0);
    let mut text = String::new();
    for (index, node) in order.iter().enumerate() {
        let sources: Vec<String> = node.src().iter().map(|src| number(src).to_string()).collect();
        text.push_str(&format!("{index:4} {node:?} [{}]\n", sources.join(", ")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn debug_level_is_0_to_5() {
        assert_eq!(parse("4").ok(), Some(4));
        for text in ["6", "-1", "yes", ""] {
            let error = parse(text).map(|level| level.to_string()).unwrap_err().to_string();
            assert!(error.contains("0 to 5"), "{error}");
        }
    }
}
