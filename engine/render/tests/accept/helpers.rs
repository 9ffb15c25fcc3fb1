//! The helpers that a text names are those that were recorded with it.

use gradiff_render::{Code, Helpers, LANGUAGES, Language};

use crate::kernels::representative;

/// The helpers that occur in a text, in its order.
pub(crate) fn named(language: &Language, text: &str) -> Helpers {
    // Intrinsics of LLVM have names with dots.
    let is_dot = |c: char| c == '.' && language.name == "llvm";
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric() || is_dot(c);
    let words = text.split(|c: char| !is_word(c));
    words.filter(|word| (language.definition)(word).is_some()).collect()
}

/// Checks that the helpers of a text, besides the one that it defines, are recorded, and that no
/// others are.
fn check(language: &Language, code: &Code, defined: &str) {
    let found = named(language, &code.text);
    let message = |name: &str, problem: &str| {
        format!("{}: {name} is {problem} in\n{}", language.name, code.text)
    };
    // A vector type is defined with its constructor, load and store.
    let is_defined = |name: &str| {
        let methods = ["", "make_", "load_", "store_"];
        methods.iter().any(|method| name.strip_prefix(method) == Some(defined))
    };
    let found: Vec<&str> = found.iter().filter(|name| !is_defined(name)).collect();
    for name in &found {
        assert!(code.helpers.contains(name), "{}", message(name, "not recorded"));
    }
    for name in code.helpers.iter() {
        assert!(code.text.contains(name), "{}", message(name, "recorded, but not"));
    }
    // The prelude has definitions in this order. A type may be recorded before it is a word of its
    // own, as `double2` in `as_double2`; types that occur in other words have no text.
    let has_text = |name: &&str| {
        (language.definition)(name).is_some_and(|definition| !definition.text.is_empty())
    };
    let recorded: Vec<&str> = code.helpers.iter().filter(has_text).collect();
    let found: Vec<&str> = found.into_iter().filter(has_text).collect();
    assert_eq!(recorded, found, "{}: another order in\n{}", language.name, code.text);
}

/// The same helper for vectors of all lengths: `max_f32x4`, `max_f32x8`, ...
fn lengths(name: &str) -> Vec<String> {
    let mut names = vec![name.to_string()];
    if let Some((start, _)) = name.rsplit_once('x') {
        names.extend([2, 4, 8, 16, 32, 64].map(|lanes| format!("{start}x{lanes}")));
    }
    names
}

#[test]
fn recorded_helpers_are_those_in_the_text() {
    for language in LANGUAGES {
        let mut helpers = Helpers::default();
        let kernels = representative(language);
        let codes = kernels.iter().filter_map(|kernel| (language.render)(kernel).ok());
        for code in codes {
            check(language, &code, "");
            helpers.extend(&code.helpers);
        }
        // Definitions, of helpers that they name as well.
        let mut names: Vec<String> = helpers.iter().map(str::to_string).collect();
        let mut number = 0;
        while let Some(name) = names.get(number).cloned() {
            for name in lengths(&name) {
                let Some(definition) = (language.definition)(&name) else { continue };
                if !definition.text.is_empty() {
                    check(language, &definition, &name);
                }
                for name in definition.helpers.iter().filter(|name| !helpers.contains(name)) {
                    names.push(name.to_string());
                }
                helpers.extend(&definition.helpers);
            }
            number += 1;
        }
        let count = helpers.iter().count();
        assert!(language.name == "ptx" || count > 20, "{} has {count}", language.name);
        let prelude = (language.prelude)(&helpers);
        assert!(prelude.len() > count, "{} has the prelude\n{prelude}", language.name);
    }
}
