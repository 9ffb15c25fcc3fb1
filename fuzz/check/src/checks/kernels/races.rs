//! Drawn accesses of shared memory: the checked interpreter must report a race exactly where the
//! evaluator, which compares all pairs of accesses, finds one.

use gradiff::graph::Linear;
use gradiff::graph::text::parse_linears;
use gradiff_eval::Elements;

use crate::checks::calls::Draw;

/// Limit of the accesses and barriers after the first stores.
const STEP_LIMIT: usize = 6;

/// Draws a kernel whose threads access elements of their own and of others, with barriers between
/// the accesses or not, and runs it by both.
///
/// # Errors
/// A kernel that one of them refuses and the other runs.
pub(super) fn check(draw: &mut Draw) -> Result<(), String> {
    let text = kernel(draw);
    let parsed = parse_linears(&text).map_err(|error| format!("{error}\n{text}"))?;
    let [kernel] = parsed.as_slice() else { return Err(format!("not one kernel:\n{text}")) };
    let memories: Vec<Elements> = kernel
        .globals()
        .iter()
        .map(|(global, _)| vec![None; global.size_elements as usize])
        .collect();
    let expected = gradiff_eval::linear::run(kernel, &mut memories.clone());
    let found = interpret(kernel, memories);
    match (&expected, &found) {
        (Ok(()), Err(problem)) => Err(format!("refused, {problem}\n{text}")),
        (Err(problem), Ok(())) => Err(format!("run in spite of {problem}\n{text}")),
        // Not refused for another reason.
        (Err(expected), Err(found)) if expected.contains("race") != found.contains("race") => {
            Err(format!("refused, {found}, expected {expected}\n{text}"))
        }
        _ => Ok(()),
    }
}

fn interpret(kernel: &Linear, mut memories: Vec<Elements>) -> Result<(), String> {
    crate::backends::engine::run_alone("interp", kernel, &mut memories)
}

/// Draws the text of a kernel of one or two groups of threads, or of one thread each.
fn kernel(draw: &mut Draw) -> String {
    let (groups, threads) = (1 + draw.below(2), 1 + draw.below(5));
    let mut text = Text { lines: Vec::new() };
    let output = text.push(&format!("define_global f32 [] data0 {}", groups * threads));
    let local = text.push(&format!("define_local f32 [] local0 {threads}"));
    let number = |text: &mut Text, value: usize| text.push(&format!("const i32 [] {value}"));
    let counts = [groups, threads].map(|count| number(&mut text, count));
    let [zero, one] = [0, 1].map(|value| number(&mut text, value));
    let last = number(&mut text, threads - 1);
    let value = text.push("const f32 [] 1");
    let group = text.push(&format!("range i32 [{}] 0g", counts[0]));
    let thread = text.push(&format!("range i32 [{}] 1l", counts[1]));
    let reversed = text.push(&format!("sub i32 [{last}, {thread}]"));
    let half = text.push(&format!("shr i32 [{thread}, {one}]"));
    let elements = [thread, thread, reversed, half, zero];
    let at = |text: &mut Text, array: usize, element: usize| {
        text.push(&format!("index f32 [{array}, {element}]"))
    };
    // Now and then nothing is written before the first access.
    if !draw.one_in(5) {
        let first = at(&mut text, local, thread);
        text.push(&format!("store void [{first}, {value}]"));
        text.push("barrier void []");
    }
    let mut sum = value;
    for _ in 0..draw.below(STEP_LIMIT + 1) {
        let address = match draw.below(3) {
            0 => {
                text.push("barrier void []");
                continue;
            }
            _ => {
                let element = draw.pick(&elements);
                at(&mut text, local, element)
            }
        };
        if draw.one_in(2) {
            text.push(&format!("store void [{address}, {value}]"));
        } else {
            let loaded = text.push(&format!("load f32 [{address}]"));
            sum = text.push(&format!("add f32 [{sum}, {loaded}]"));
        }
    }
    // Now and then several threads, or all groups, store the same element.
    let scaled = text.push(&format!("mul i32 [{group}, {}]", counts[1]));
    let within = if draw.one_in(8) { draw.pick(&elements) } else { thread };
    let shared = text.push(&format!("add i32 [{scaled}, {within}]"));
    let element = if draw.one_in(8) { within } else { shared };
    let address = at(&mut text, output, element);
    text.push(&format!("store void [{address}, {sum}]"));
    if draw.one_in(3) {
        rounds(draw, &mut text, [local, value, thread], &elements, threads);
    }
    text.push(&format!("endrange void [{thread}]"));
    text.push(&format!("endrange void [{group}]"));
    format!("kernel E\n{}\n", text.lines.join("\n"))
}

/// Appends a loop of accesses of two arrays, some of them under a gate, with barriers between them
/// or not.
fn rounds(
    draw: &mut Draw,
    text: &mut Text,
    [local, value, thread]: [usize; 3],
    elements: &[usize],
    threads: usize,
) {
    let second = text.push(&format!("define_local f32 [] local1 {threads}"));
    let first = text.push(&format!("index f32 [{second}, {thread}]"));
    text.push(&format!("store void [{first}, {value}]"));
    if !draw.one_in(4) {
        text.push("barrier void []");
    }
    let [count, limit] =
        [2, 1 + draw.below(threads)].map(|value| text.push(&format!("const i32 [] {value}")));
    let round = text.push(&format!("range i32 [{count}] 2"));
    let gate = text.push(&format!("cmplt bool [{thread}, {limit}]"));
    for _ in 0..1 + draw.below(STEP_LIMIT) {
        if draw.one_in(2) {
            text.push("barrier void []");
            continue;
        }
        let (array, element) = (draw.pick(&[local, second]), draw.pick(elements));
        let gated = if draw.one_in(3) { format!(", {gate}") } else { String::new() };
        let address = text.push(&format!("index f32 [{array}, {element}{gated}]"));
        match draw.one_in(2) {
            true => text.push(&format!("store void [{address}, {value}]")),
            false => text.push(&format!("load f32 [{address}]")),
        };
    }
    text.push(&format!("endrange void [{round}]"));
}

/// Numbered lines.
struct Text {
    lines: Vec<String>,
}

impl Text {
    /// Appends a uop and returns its number.
    fn push(&mut self, uop: &str) -> usize {
        self.lines.push(format!("{} {uop}", self.lines.len()));
        self.lines.len() - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some loops race for the second array, and some do not.
    #[test]
    fn loops_race_or_not() {
        let (mut races, mut runs) = (0, 0);
        for seed in 0..600 {
            let text = kernel(&mut Draw::new(seed));
            if !text.contains("local1") {
                continue;
            }
            let kernel = parse_linears(&text).expect("a text").remove(0);
            let size = kernel.globals()[0].0.size_elements as usize;
            match gradiff_eval::linear::run(&kernel, &mut [vec![None; size]]) {
                Ok(()) => runs += 1,
                Err(problem) => {
                    let is_of_second = problem.contains("race") && problem.contains("of local1,");
                    races += usize::from(is_of_second);
                }
            }
        }
        assert!(5 < races && 5 < runs, "{races} races for the second array, {runs} runs");
    }

    #[test]
    fn races_are_found_and_only_races() {
        let (mut races, mut runs) = (0, 0);
        for seed in 0..600 {
            let text = kernel(&mut Draw::new(seed));
            let kernel = parse_linears(&text).expect("a text").remove(0);
            let mut memories: Vec<Elements> = vec![vec![None; 16]];
            memories[0].truncate(kernel.globals()[0].0.size_elements as usize);
            match gradiff_eval::linear::run(&kernel, &mut memories) {
                Ok(()) => runs += 1,
                Err(problem) if problem.contains("race") => races += 1,
                // An element of the output that no thread stores.
                Err(_) => {}
            }
            check(&mut Draw::new(seed)).unwrap_or_else(|problem| panic!("{problem}"));
        }
        assert!(100 < races && 100 < runs, "{races} races, {runs} runs");
    }
}
