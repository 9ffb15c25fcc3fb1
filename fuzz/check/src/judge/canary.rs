//! Canaries: answers that the judge must refuse, and answers that it must accept.
//!
//! The engine is only as good as its judge, and a judge that accepts too much finds nothing, which
//! looks like success. Each hunt and each replay therefore tests it first. The right answers were
//! derived without the oracle: by hand (`values.txt`), or exactly, in fractions (`bounds.txt`,
//! printed by `canaries.py`). Knows the text form of programs; nothing of the engine.

use std::hint::black_box;
use std::sync::OnceLock;

use gradiff_corpus::{Array, Case, DType, Program, parse};
use gradiff_oracle::Expected;

use crate::Kept;
use crate::judge::agree;

/// Texts of the rows: answers just within and beyond computed bounds, and answers given by bits.
const TEXTS: [&str; 2] = [include_str!("canary/bounds.txt"), include_str!("canary/values.txt")];

/// A program, and answers to it that are known to be right or wrong.
#[derive(Clone, Debug)]
pub struct Canary {
    /// Unique name: the property that it tests and the dtype.
    pub name: String,
    /// The program.
    pub program: Program,
    /// True if zeros keep their signs on the device that answers.
    pub keeps_zero_signs: bool,
    /// The answers: the outputs in order, and true if they must be accepted.
    pub answers: Vec<(Vec<Array>, bool)>,
}

/// A judge of answers: returns whether it accepts the outputs of the canary's program.
pub type Judge<'a> = &'a dyn Fn(&Canary, &[Array]) -> bool;

/// All canaries.
pub fn canaries() -> &'static [Canary] {
    static ROWS: OnceLock<Vec<Canary>> = OnceLock::new();
    ROWS.get_or_init(|| TEXTS.iter().flat_map(|text| rows(text)).collect())
}

/// Shows all canaries to the judge of hunts and replays.
///
/// # Errors
/// The first answer that is judged wrongly, with the name of its canary.
pub fn check_canaries() -> Result<(), String> {
    canaries().iter().try_for_each(|canary| {
        let expected = agree::expectation(&canary.program)
            .map_err(|problem| format!("the oracle fails on canary {}: {problem}", canary.name))?;
        canary.check(&|canary, outputs| accepts(canary, &expected, outputs))
    })
}

/// Checks that floating-point operations of this thread round to nearest and keep subnormal
/// numbers: in another mode, which code of a backend may leave behind, the oracle is wrong.
///
/// # Errors
/// Says which operation has another result.
pub fn check_float_mode() -> Result<(), String> {
    float_mode(&|x, y| black_box(x) + black_box(y), &|x, y| black_box(x) * black_box(y))
}

/// Returns the result of [`check_float_mode`] for this addition and multiplication.
fn float_mode(
    sum: &dyn Fn(f64, f64) -> f64,
    product: &dyn Fn(f64, f64) -> f64,
) -> Result<(), String> {
    let (tiny, least, large) = (f64::EPSILON / 8.0, f64::from_bits(1), 2f64.powi(1000));
    let rows = [
        ("a sum is rounded up", sum(1.0, tiny) == 1.0),
        ("a sum is rounded down", sum(-1.0, -tiny) == -1.0),
        ("a difference is rounded toward zero", sum(1.0, -tiny) == 1.0),
        ("a subnormal result is zero", product(f64::MIN_POSITIVE, 0.5).to_bits() != 0),
        ("a subnormal operand is taken for zero", product(least, large).to_bits() != 0),
    ];
    match rows.iter().find(|(_, is_right)| !is_right) {
        None => Ok(()),
        Some((fault, _)) => Err(format!(
            "{fault}: a backend has left the floating-point unit of this thread in another mode"
        )),
    }
}

/// Returns whether hunts and replays would accept the outputs.
fn accepts(canary: &Canary, expected: &[Expected], outputs: &[Array]) -> bool {
    let outcome = crate::Outcome::Values(outputs.to_vec());
    let mut tally = crate::Tally::default();
    let kept = Kept { zero_signs: canary.keeps_zero_signs, ..Kept::ALL };
    agree::judge(expected, &outcome, kept, &mut tally).is_none()
}

impl Canary {
    /// Shows all answers to a judge.
    ///
    /// # Errors
    /// The first answer that is judged wrongly.
    pub fn check(&self, judge: Judge<'_>) -> Result<(), String> {
        let wrong =
            self.answers.iter().find(|(outputs, is_right)| judge(self, outputs) != *is_right);
        wrong.map_or(Ok(()), |(outputs, is_right)| {
            let verdict = if *is_right { "refuses a right" } else { "accepts a wrong" };
            let outputs: Vec<String> = outputs.iter().map(text_of).collect();
            let (name, outputs) = (&self.name, outputs.join("; "));
            Err(format!("the oracle {verdict} answer: canary {name}, output {outputs}"))
        })
    }
}

fn text_of(output: &Array) -> String {
    let bits: Vec<String> = output.bits.iter().map(|bits| format!("{bits:#x}")).collect();
    format!("{}{:?} bits {}", output.dtype.name(), output.shape, bits.join(" "))
}

/// The canaries of a text: rows separated by empty lines, `;` begins a comment.
fn rows(text: &str) -> Vec<Canary> {
    let is_comment = |line: &&str| line.starts_with(';');
    let lines: Vec<&str> = text.lines().filter(|line| !is_comment(line)).collect();
    let blocks = lines.split(|line| line.is_empty()).filter(|block| !block.is_empty());
    blocks.map(|block| row(block).unwrap_or_else(|| panic!("no canary: {block:?}"))).collect()
}

/// A canary: `# NAME`, the statements of a program, `accept OUTPUTS` and `refuse OUTPUTS`.
fn row(lines: &[&str]) -> Option<Canary> {
    let name = lines.first()?.strip_prefix("# ")?.to_string();
    let (mut program, mut answers, mut keeps_zero_signs) = (String::new(), Vec::new(), true);
    for line in &lines[1..] {
        match line.split_once(' ').unwrap_or((line, "")) {
            ("accept", outputs) => answers.push((arrays(outputs)?, true)),
            ("refuse", outputs) => answers.push((arrays(outputs)?, false)),
            ("zeros", "either") => keeps_zero_signs = false,
            _ => program += &format!("{line}\n"),
        }
    }
    let Ok(Case::Program(program)) = parse(&program).map(|file| file.case) else { return None };
    Some(Canary { name, program, keeps_zero_signs, answers })
}

/// Outputs separated by ` ; `: a dtype with the sizes of its axes, then each element.
fn arrays(text: &str) -> Option<Vec<Array>> {
    let outputs = text.split(';').map(str::trim).filter(|output| !output.is_empty());
    outputs.map(array).collect()
}

fn array(text: &str) -> Option<Array> {
    let mut words = text.split_whitespace();
    let (dtype, sizes) = words.next()?.strip_suffix(']')?.split_once('[')?;
    let dtype = DType::from_name(dtype)?;
    let sizes = sizes.split(',').filter(|size| !size.is_empty());
    let shape = sizes.map(|size| size.parse().ok()).collect::<Option<_>>()?;
    let bits = words.map(|word| element(dtype, word)).collect::<Option<_>>()?;
    Some(Array { dtype, shape, bits })
}

/// Bits as hexadecimal digits, or a decimal integer cut to the width of the dtype.
fn element(dtype: DType, word: &str) -> Option<u64> {
    if let Some(digits) = word.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).ok();
    }
    let unused = 64 - 8 * dtype.size_bytes();
    Some(word.parse::<i128>().ok()? as u64 & (u64::MAX >> unused))
}

#[cfg(test)]
mod tests;
