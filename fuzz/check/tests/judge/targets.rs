//! Checks of a program for other targets that need no device: its graph and its kernels are
//! verified, their text forms read back to themselves, and the WGSL is valid.

use gradiff::graph::AxisKind;
use gradiff::graph::text::{parse_linears, parse_text};
use gradiff::graph::verify::verify_linear;
use gradiff::render::{Code, LANGUAGES, Language};
use gradiff_check::{Form, Shown, testing};
use gradiff_corpus::{Case, Program};
use naga::valid::{Capabilities, ValidationFlags, Validator};

/// The texts of the kernels of one program in this many are damaged.
const TEXTS_ONE_IN: u64 = 4;

/// Checks the program for one language and its target, chosen by the number.
pub(crate) fn check(program: &Program, number: u64) -> Result<(), String> {
    let language = &LANGUAGES[number as usize % LANGUAGES.len()];
    let case = Case::Program(program.clone());
    let shown =
        |form| gradiff_check::show(&case, Shown { form, opts: None, target: Some(language.name) });
    for text in shown(Form::Graph)?.split("\n\n") {
        graph_reads_back(text.trim_end())?;
    }
    let uops = shown(Form::Uops)?;
    if uops.is_empty() {
        return Ok(());
    }
    // Checks of linear uops for a target that do not run them belong here.
    for kernel in parse_linears(&uops).map_err(|error| format!("{error} in\n{uops}"))? {
        let name = &kernel.name;
        if number.is_multiple_of(TEXTS_ONE_IN) {
            testing::check_text(&kernel)?;
        }
        testing::check_estimates(&kernel)?;
        let text = kernel.to_string();
        let is_same = uops.contains(text.trim_end());
        is_same.then_some(()).ok_or_else(|| format!("{name} reads back as other uops"))?;
        verify_linear(&kernel).map_err(|error| format!("for {}: {error}", language.name))?;
        // A language may refuse a type or an op that it does not have.
        if let Ok(code) = (language.render)(&kernel) {
            let group: Vec<i64> =
                kernel.launched(AxisKind::Local).into_iter().rev().map(|(_, size)| size).collect();
            valid(language, &code, &group).map_err(|problem| format!("{name}: {problem}"))?;
        }
    }
    Ok(())
}

fn graph_reads_back(text: &str) -> Result<(), String> {
    let node = parse_text(text).map_err(|error| format!("{error} in\n{text}"))?;
    let again = node.to_text();
    if again.trim_end() == text { Ok(()) } else { Err(format!("reads back as another: {again}")) }
}

/// Checks that a kernel's text is valid. Only WGSL has a compiler in process. Its text also
/// contains the size of the groups, which must be `group`, the innermost dimension first.
fn valid(language: &Language, kernel: &Code, group: &[i64]) -> Result<(), String> {
    let capabilities = match language.name {
        "wgsl" => Capabilities::SHADER_FLOAT16 | Capabilities::SHADER_INT64 | Capabilities::FLOAT64,
        "wgsl-core" => Capabilities::empty(),
        _ => return Ok(()),
    };
    let text = (language.prelude)(&kernel.helpers) + &kernel.text;
    let module = naga::front::wgsl::parse_str(&text).map_err(|why| why.emit_to_string(&text))?;
    let mut validator = Validator::new(ValidationFlags::all(), capabilities);
    validator.validate(&module).map_err(|why| why.emit_to_string(&text))?;
    let sizes = module.entry_points.first().map(|entry| entry.workgroup_size.map(i64::from));
    let expected = [0, 1, 2].map(|dimension| group.get(dimension).copied().unwrap_or(1));
    match sizes {
        Some(sizes) if sizes == expected => Ok(()),
        _ => Err(format!("groups of {sizes:?} threads, not {expected:?}")),
    }
}
