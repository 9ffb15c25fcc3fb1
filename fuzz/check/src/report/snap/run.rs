//! Comparison of the text of kernels with their uops, by running both on the same seeded data.
//!
//! A snapshot of text says neither how its kernels are launched nor how large their arrays are. The
//! uops that this build makes of the same case do, and they are the uops of the text if this build
//! renders the same text; another text is not run.

use gradiff::graph::Linear;
use gradiff::render::{Code, Language};

use super::cost::Cost;
use super::kept::{Kept, kept};
use super::outputs::{Outputs, compare_compiled, is_runnable};
use crate::backends::texts::{Uncompiled, compile};
use crate::models::stages::{Form, graph, planned, show_program};

/// The line above each kernel of a snapshot, without its number.
const HEAD: &str = "# kernel ";

/// Runs the text of a snapshot.
///
/// # Errors
/// The reason why it is not run.
pub(super) fn run(file: &str, text: &str) -> Result<Outputs, String> {
    let kept = kept().into_iter().find(|kept| kept.file() == file);
    let kept = kept.ok_or("no kept snapshot has this name")?;
    let written = show_program(&kept.program()?, kept.shown()?)?;
    if written.trim_end() != text.trim_end() {
        return Err(String::from("this build of gradiff renders another text"));
    }
    judge(&kept, text)
}

/// Compares a text with the uops that this build makes of the case.
fn judge(kept: &Kept, text: &str) -> Result<Outputs, String> {
    let outputs = graph(&kept.program()?)?;
    let (plan, _) = planned(&outputs, kept.shown()?)?;
    let kernels: Vec<&Linear> = plan.items.iter().map(|item| &**item.linear).collect();
    let texts = texts(text);
    if texts.len() != kernels.len() {
        return Err(format!("{} texts for {} kernels", texts.len(), kernels.len()));
    }
    let at =
        |number: usize, text: String| format!("kernel {number} ({}): {text}", kernels[number].name);
    for (number, kernel) in kernels.iter().enumerate() {
        let cost = Cost::of(kernel).map_err(|why| at(number, why))?;
        is_runnable(kernel, &cost).map_err(|why| at(number, why))?;
    }
    let Form::Text(language) = kept.shown()?.form else {
        return Err(String::from("it is no text of a language"));
    };
    let codes =
        kernels.iter().zip(texts).map(|(kernel, text)| with_helpers(language, kernel, text));
    let codes: Vec<Code> = codes.collect::<Result<_, _>>()?;
    let pairs: Vec<(&Linear, &Code)> = kernels.iter().copied().zip(&codes).collect();
    let compiled = match compile(language.name, &pairs) {
        Ok(compiled) => compiled,
        Err(Uncompiled::NotHere(why)) => return Err(why),
        Err(Uncompiled::Wrong(why)) => return Ok(Outputs::Different(why)),
    };
    for (number, (kernel, compiled)) in kernels.iter().zip(&compiled).enumerate() {
        let outputs = compare_compiled(kernel, &**compiled).map_err(|why| at(number, why))?;
        if let Outputs::Different(text) = outputs {
            return Ok(Outputs::Different(at(
                number,
                format!("the uops give another value: {text}"),
            )));
        }
    }
    Ok(Outputs::Same)
}

/// The text of a kernel in a language, with the helpers that this build's text of it names.
fn with_helpers(language: &Language, kernel: &Linear, text: &str) -> Result<Code, String> {
    let rendered = (language.render)(kernel);
    let Code { helpers, .. } = rendered.map_err(|error| error.to_string())?;
    Ok(Code { text: text.to_owned(), helpers })
}

/// The texts of the kernels of a snapshot.
fn texts(text: &str) -> Vec<&str> {
    let mut starts: Vec<usize> = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if line.starts_with(HEAD) {
            starts.push(offset);
        }
        offset += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let body = |part: &'_ str| part.find('\n').map_or(part.len(), |end| end + 1);
    let parts = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]);
    parts.map(|part| &part[body(part)..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kept snapshot, and the text that this build renders.
    fn written(file: &str) -> (Kept, String) {
        let kept = kept().into_iter().find(|kept| kept.file() == file).expect("it is kept");
        let program = kept.program().expect("a program");
        let text = show_program(&program, kept.shown().expect("a form")).expect("a text");
        (kept, text)
    }

    /// The languages whose texts run without a device, and a right and a wrong expression in each.
    const DIFFERENCES: [(&str, &str, &str); 6] = [
        ("c", "(val1-val0)", "(val0-val1)"),
        ("cuda", "(val1.x-acc0)", "(acc0-val1.x)"),
        ("metal", "(val1.x-acc0)", "(acc0-val1.x)"),
        ("opencl", "(val1-acc0)", "(acc0-val1)"),
        ("wgsl", "(val5-acc0)", "(acc0-val5)"),
        ("ptx", "div.rn.f32 ", "mul.rn.f32 "),
    ];

    #[test]
    fn a_text_that_differs_from_its_uops_is_reported() {
        let mut run = 0;
        for (language, right, wrong) in DIFFERENCES {
            let (kept, text) = written(&format!("kernels/{language}/softmax.snap"));
            assert!(text.contains(right), "{language}: {right} is in\n{text}");
            match judge(&kept, &text) {
                Ok(outputs) => assert_eq!(outputs, Outputs::Same, "{language}"),
                Err(why) => {
                    assert!(why.contains("clang"), "{language}: {why}");
                    gradiff_skip::skip("clang", &why);
                    continue;
                }
            }
            run += 1;
            let outputs = judge(&kept, &text.replace(right, wrong)).expect("it is run");
            let Outputs::Different(detail) = outputs else { panic!("{language}: {outputs:?}") };
            assert!(detail.starts_with("kernel "), "{detail}");
            let broken = text.replacen("data0", "data0(", 1);
            let outputs = judge(&kept, &broken).expect("it is run");
            assert!(matches!(outputs, Outputs::Different(_)), "{language}: {outputs:?}");
        }
        assert!(2 <= run, "PTX and WGSL need no compiler");
    }

    #[test]
    fn a_text_that_is_not_run_has_a_reason() {
        let why = |file: &str, text: &str| run(file, text).expect_err("it is not run");
        assert!(why("kernels/c/no-case.snap", "").contains("kept"));
        assert!(why("kernels/c/softmax.snap", "val0 = 1;").contains("another text"));
    }
}
