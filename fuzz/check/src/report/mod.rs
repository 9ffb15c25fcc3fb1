//! The texts of a finding: a corpus file, and a Rust test over the engine's tensors or a script for
//! the peer that is wrong.

pub(crate) mod compare;
mod rust_test;
pub mod snap;

use gradiff_corpus::{Case, CaseFile, DType, Program, float_value, format_element};
use gradiff_oracle::Element;

use crate::judge::agree::{expectation, nearest};
use crate::{Blame, Failure};

/// The words of a description before the stage to blame.
const BLAMED: &str = "; first wrong after stage ";

/// A failing program, minimised, and what is known about it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The program.
    pub program: Program,
    /// Its failure.
    pub failure: Failure,
    /// The stage to blame, if one was found.
    pub blame: Option<Blame>,
    /// The command that prints the program as it was generated.
    pub origin: String,
}

impl Finding {
    /// A line that says how the program fails, on which backend, and what is to blame.
    pub fn description(&self) -> String {
        let Failure { backend, kind, detail } = &self.failure;
        let blame = self.blame.as_ref().map(|blame| {
            let rule = blame.rule.as_ref().map_or(String::new(), |culprit| format!(", {culprit}"));
            format!("{BLAMED}{} (engine/{}){rule}", blame.stage, blame.crate_name)
        });
        let line = format!("{} on {backend}: {detail}{}", kind.name(), blame.unwrap_or_default());
        line.replace(['\n', '\r'], " ")
    }

    /// The stage to blame that a description names, and the rule or the bounds, as in
    /// [`Culprit::rule`]; `None` if it names no stage.
    ///
    /// [`Culprit::rule`]: crate::Culprit::rule
    pub fn blamed(description: &str) -> Option<(&str, Option<String>)> {
        let (_, rest) = description.split_once(BLAMED)?;
        let (stage, rest) = rest.split_once(" (engine/")?;
        let culprit = rest.split_once("), ").and_then(|(_, culprit)| {
            let (words, _) = culprit.split_once(" (")?;
            let bounds = || words.strip_prefix("bounds of ").map(|op| format!("bounds/{op}"));
            words.strip_prefix("rule ").map(str::to_string).or_else(bounds)
        });
        Some((stage, culprit))
    }

    /// The corpus file.
    pub fn case_text(&self) -> String {
        let description = vec![self.description(), format!("from: {}", self.origin)];
        CaseFile { description, case: Case::Program(self.program.clone()), expects: Vec::new() }
            .to_string()
    }

    /// The name of its files: `fuzz-` and eight digits that depend on the program, the kind of
    /// failure and the backend.
    pub fn stem(&self) -> String {
        let Failure { backend, kind, .. } = &self.failure;
        stem(&format!("{} on {backend}\n{}", kind.name(), self.program))
    }
}

/// The files of a finding, each as the ending of its name and its text: the case, and a Rust test
/// or a script for the peer that is wrong. There is no Rust test if no engine of the library alone
/// runs programs as the backend does, or no output shows the failure.
pub fn files(finding: &Finding) -> Vec<(&'static str, String)> {
    let case = ("case", finding.case_text());
    match program_script(&finding.failure.backend, &finding.program) {
        None => {
            let test = rust_test::rust_test(finding).map(|text| ("rs", text));
            std::iter::once(case).chain(test).collect()
        }
        Some(Ok(script)) => vec![case, ("py", format!("# {}\n{script}", finding.description()))],
        // An engine of one's own need not write scripts.
        Some(Err(_)) => vec![case],
    }
}

/// The case as a script for a backend that is a peer, which prints what it got and what is
/// expected, and fails if they differ; `None` for other backends.
///
/// # Errors
/// The peer is not available, or writes no scripts; it is right, and the case is no program.
pub fn script(backend: &str, case: &Case) -> Option<Result<String, String>> {
    match case {
        Case::Program(program) => program_script(backend, program),
        case => crate::is_peer(backend).then(|| crate::checks::upstream::script(backend, case)),
    }
}

fn program_script(backend: &str, program: &Program) -> Option<Result<String, String>> {
    if !crate::is_peer(backend) {
        return None;
    }
    let expected = expectation(program).unwrap_or_default();
    let elements = expected.iter().flat_map(|output| {
        output.elements().map(|element| python_element(output.dtype, &element)).collect::<Vec<_>>()
    });
    crate::backends::peer::script(backend, program, &elements.collect::<Vec<String>>())
}

/// The expectation of an element, in Python: a number, a pair of bounds, these and the text of a
/// zero between them whose sign counts, or `None`.
fn python_element(dtype: DType, element: &Element) -> String {
    match element {
        Element::Exact(bits) if dtype.is_float() => python_float(float_value(dtype, *bits)),
        Element::Exact(bits) if dtype == DType::Bool => python_bool(*bits != 0).to_string(),
        Element::Exact(bits) => format_element(dtype, *bits),
        Element::Zero => "(0, 0)".to_string(),
        Element::Nan => python_float(f64::NAN),
        Element::Ball { zero_sign, .. } => {
            let [low, high] = ends(dtype, element);
            let zero = zero_sign.filter(|_| low <= 0.0 && 0.0 <= high);
            let zero = zero.map_or("", |sign| if sign { ", \"-0.0\"" } else { ", \"0.0\"" });
            format!("({}, {}{zero})", python_float(low), python_float(high))
        }
        Element::Unspecified(_) => "None".to_string(),
    }
}

/// The least and the greatest float that a ball admits.
fn ends(dtype: DType, element: &Element) -> [f64; 2] {
    let Element::Ball { center, radius, .. } = *element else { return [f64::NAN; 2] };
    let sign = 1u64 << (8 * dtype.size_bytes() - 1);
    // Floats in the order of their values have consecutive positions, zeros the same one.
    let position = |bits: u64| match bits & sign {
        0 => bits as i64,
        _ => -((bits & !sign) as i64),
    };
    let bits = |position: i64| position.unsigned_abs() | if position < 0 { sign } else { 0 };
    let is_within = |position: i64| {
        let is_negative_zero = position == 0 && element.admits(dtype, sign);
        is_negative_zero || element.admits(dtype, bits(position))
    };
    let inner = position(nearest(dtype, center));
    if !is_within(inner) {
        return [center - radius, center + radius];
    }
    [f64::NEG_INFINITY, f64::INFINITY].map(|end| {
        let (mut inside, mut outside) = (inner, position(nearest(dtype, end)));
        while 1 < inside.abs_diff(outside) {
            let middle = inside.midpoint(outside);
            *(if is_within(middle) { &mut inside } else { &mut outside }) = middle;
        }
        float_value(dtype, bits(inside))
    })
}

fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn python_float(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { format!("float(\"{value}\")") }
}

/// FNV-1a hash of a text: the same on every machine and with every compiler.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `fuzz-` and eight digits that depend on the text alone.
pub fn stem(text: &str) -> String {
    let hash = hash(text);
    format!("fuzz-{:08x}", (hash ^ (hash >> 32)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Crate, Culprit, Kind, Stage};

    #[test]
    fn scripts_have_the_last_floats_of_a_ball() {
        for dtype in [DType::F16, DType::BF16] {
            for (center, radius) in
                [(1.0, 0.01), (-3.3, 0.4), (1e-7, 1e-7), (0.0, 1e-6), (6e4, 1e4), (0.1, 1e-3)]
            {
                for zero_sign in [None, Some(true), Some(false)] {
                    let element = Element::Ball { center, low: 0.0, radius, zero_sign };
                    let admitted = (0..=0xffff).filter(|bits| element.admits(dtype, *bits));
                    let values = admitted.map(|bits| float_value(dtype, bits));
                    let values: Vec<f64> = values.collect();
                    let least = values.iter().copied().reduce(f64::min);
                    let greatest = values.iter().copied().reduce(f64::max);
                    let expected = [least, greatest].map(|end| end.expect("an element"));
                    assert_eq!(ends(dtype, &element), expected, "{} {element:?}", dtype.name());
                }
            }
        }
        // A sum that is rounded reaches a float that is not within the ball.
        let (center, radius) = (0.954_366_014_129_732_7, 6e-17);
        let element = Element::Ball { center, low: -1.2e-17, radius, zero_sign: None };
        assert!(center - radius < center && !element.admits(DType::F64, center.to_bits() - 1));
        assert_eq!(ends(DType::F64, &element), [center; 2]);
    }

    /// A product that is rounded to zero has a sign.
    #[test]
    fn scripts_have_the_signs_of_zeros() {
        let least = f64::from(f32::from_bits(1));
        for (center, radius, zero_sign, expected) in [
            (-1e-60, 2e-45, Some(true), format!("({:?}, {least:?}, \"-0.0\")", -least)),
            (1e-60, 2e-45, Some(false), format!("({:?}, {least:?}, \"0.0\")", -least)),
            (1e-60, 2e-45, None, format!("({:?}, {least:?})", -least)),
            (-1e-60, 1e-45, Some(true), "(0.0, 0.0, \"-0.0\")".to_string()),
            (1.0, 1e-10, Some(true), "(1.0, 1.0)".to_string()),
        ] {
            let element = Element::Ball { center, low: 0.0, radius, zero_sign };
            assert_eq!(python_element(DType::F32, &element), expected);
        }
    }

    #[test]
    fn stories_name_what_was_blamed() {
        let culprit = |rule: &str| Culprit {
            rule: rule.to_string(),
            pass: "symbolic".to_string(),
            before: "(a/3)".to_string(),
            after: "(a//3)".to_string(),
            witness: "false for a=-1: 0 became -1".to_string(),
            verdict: "proved".to_string(),
            cycle: Vec::new(),
        };
        let (stage, crate_name) = (Stage::LOWER, Crate::Kernel);
        for rule in [None, Some("divmod/cdiv-to-floor"), Some("bounds/cdiv")] {
            let detail = String::new();
            let blame = Blame { stage, crate_name, detail, rule: rule.map(culprit) };
            let (backend, detail) = ("interp".to_string(), "element 0 is (1)".to_string());
            let failure = Failure { backend, kind: Kind::Mismatch, detail };
            let program = Program { statements: Vec::new(), outputs: Vec::new() };
            let blame = Some(blame);
            let finding = Finding { program, failure, blame, origin: String::new() };
            let description = finding.description();
            let expected = Some(("lower", rule.map(str::to_string)));
            assert_eq!(Finding::blamed(&description), expected, "{description}");
        }
        assert_eq!(Finding::blamed("mismatch on interp: element 0 is 1"), None);
    }
}
