//! Real compilers accept the text of representative kernels, and refuse wrong text.

/// The harness's reading of inline assembly, which is beside its stand-ins.
#[path = "../../../../fuzz/check/src/backends/texts/assembly.rs"]
mod assembly;
mod compilers;
mod helpers;
mod kernels;
mod products;
mod texts;
mod values;

use std::path::PathBuf;
use std::process::Command;

use gradiff_graph::Linear;
use gradiff_render::{Code, LANGUAGES, Language};
use gradiff_skip::{or_skip, skip};

use compilers::{COMPILERS, Compiler};

/// For each language, substrings of the names of kernels that it refuses.
const UNSUPPORTED: [(&str, &[&str]); 8] = [
    ("c", &["r_4_16", "wmma"]),
    ("llvm", &["r_4_16", "wmma"]),
    ("cuda", &[]),
    ("opencl", &["wmma"]),
    ("metal", &["f64", "wmma"]),
    ("wgsl", &["exp2", "log2", "sin", "pow", "wmma"]),
    ("wgsl-core", &["i64", "u64", "f64", "exp2", "log2", "sin", "pow", "wmma"]),
    ("ptx", &["exp2", "log2", "sin", "pow"]),
];

/// Renders the representative kernels; returns the texts and the names of the refused kernels.
fn texts(language: &Language) -> (Vec<Code>, Vec<String>) {
    let (mut texts, mut refused) = (Vec::new(), Vec::new());
    for kernel in kernels::representative(language) {
        match (language.render)(&kernel) {
            Ok(text) => texts.push(text),
            Err(_) => refused.push(kernel.name),
        }
    }
    (texts, refused)
}

/// The kernels of the reviewed snapshots of a language, with distinct names.
fn snapshots(language: &Language) -> Vec<Code> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../snapshots/kernels");
    let folders = std::fs::read_dir(root).expect("the folder of snapshots");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let is_of_language = |folder: &PathBuf| {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name == language.name || name.starts_with(&format!("{}-", language.name))
    };
    let mut paths: Vec<PathBuf> = Vec::new();
    for folder in folders.filter(is_of_language) {
        let entries = std::fs::read_dir(folder).expect("a folder of snapshots");
        paths.extend(entries.map(|entry| entry.expect("an entry").path()));
    }
    paths.sort();
    let mut kernels = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(path).expect("a snapshot");
        let (_, text) = text[3..].split_once("---\n").expect("a head");
        for part in text.split("# kernel ").skip(1) {
            let (_, kernel) = part.split_once('\n').expect("a number");
            let text = renamed(kernel, kernels.len());
            kernels.push(Code { helpers: helpers::named(language, &text), text });
        }
    }
    kernels
}

/// Makes the name of a kernel unique. The name is the first word that has the form of one.
fn renamed(kernel: &str, number: usize) -> String {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let mut words = kernel.split(|c| !is_word(c));
    // `E_4_4`, `r_4n1`; without loops `E`.
    let is_name = |word: &&str| {
        let rest = word.strip_prefix(['E', 'r']);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['_', 'n']))
    };
    let name = words.find(is_name);
    let name = name.unwrap_or_else(|| panic!("a kernel has a name:\n{kernel}"));
    let mut text = String::new();
    let mut rest = kernel;
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let is_whole = !before.ends_with(is_word) && !after.starts_with(is_word);
        text.push_str(before);
        text.push_str(name);
        if is_whole {
            text.push_str(&format!("_s{number}"));
        }
        rest = after;
    }
    text + rest
}

#[test]
fn compilers_accept_all_snapshots() {
    // wgsl-core has no snapshots there, only those of `texts`: it differs only in f16.
    for compiler in COMPILERS.iter().filter(|compiler| compiler.language != "wgsl-core") {
        let language = language_of(compiler);
        let kernels = snapshots(language);
        assert!(kernels.len() > 30, "{} has {} kernels", language.name, kernels.len());
        let Some(program) = (compiler.find)() else { continue };
        for file in files(compiler, language, &kernels) {
            if let Err(message) = compiler.check(&program, &file, language.extension) {
                let shown: String = message.chars().take(4000).collect();
                panic!("{} refuses: {shown}", compiler.name);
            }
        }
        println!("{}: {} kernels of snapshots accepted", compiler.name, kernels.len());
    }
}

fn language_of(compiler: &Compiler) -> &'static Language {
    let language = LANGUAGES.iter().find(|language| language.name == compiler.language);
    language.expect("the language of a compiler is in the table")
}

/// Joins texts and preludes to files as a compiler takes them.
fn files(compiler: &Compiler, language: &Language, texts: &[Code]) -> Vec<String> {
    let file = |code: &Code| (language.prelude)(&code.helpers) + &code.text;
    match compiler.takes_single_kernels() {
        true => texts.iter().map(file).collect(),
        false => vec![file(&texts.iter().collect())],
    }
}

#[test]
fn compilers_accept_all_kernels() {
    for compiler in COMPILERS {
        let language = language_of(compiler);
        let Some(program) = (compiler.find)() else { continue };
        let (texts, refused) = texts(language);
        for file in files(compiler, language, &texts) {
            if let Err(message) = compiler.check(&program, &file, language.extension) {
                let shown: String = message.chars().take(4000).collect();
                panic!(
                    "{} refuses: {shown}\n{}",
                    compiler.name,
                    file.lines().take(60).collect::<Vec<_>>().join("\n")
                );
            }
        }
        println!("{}: {} accepted, {} have no text", compiler.name, texts.len(), refused.len());
    }
}

#[test]
fn languages_refuse_only_unsupported_kernels() {
    for language in LANGUAGES {
        let row = UNSUPPORTED.iter().find(|(name, _)| *name == language.name);
        let (_, unsupported) = row.expect("each language has a row");
        let (texts, refused) = texts(language);
        let is_known = |name: &&String| unsupported.iter().any(|word| name.contains(word));
        let unexpected: Vec<&String> = refused.iter().filter(|name| !is_known(name)).collect();
        assert!(unexpected.is_empty(), "{} has no {unexpected:?}", language.name);
        assert!(texts.len() > 100, "{} has {} texts", language.name, texts.len());
    }
}

/// Text with an undefined name, and text without its prelude.
#[test]
fn compilers_refuse_wrong_text() {
    for compiler in COMPILERS {
        let language = language_of(compiler);
        let Some(program) = (compiler.find)() else { continue };
        let (texts, _) = texts(language);
        let check = |text: &str| compiler.check(&program, text, language.extension);
        // A kernel that needs a helper, a value in it, and an undefined name.
        let (name, value, undefined) = match language.name {
            "llvm" => ("E_exp2_f32", "%t2", "%t77"),
            "ptx" => ("E_floordiv_i32", "%r9", "%r77"),
            _ => ("E_cast_f32_f16", "val0", "val77"),
        };
        let kernel = texts.iter().find(|kernel| kernel.text.contains(name));
        let Code { text: kernel, helpers } = kernel.expect("a kernel of this name");
        let prelude = (language.prelude)(helpers);
        assert_eq!(check(&(prelude.clone() + kernel)), Ok(()), "{}", compiler.name);
        let last = kernel.rfind(value).expect("the value is used");
        let wrong = format!("{}{undefined}{}", &kernel[..last], &kernel[last + value.len()..]);
        assert!(check(&(prelude + &wrong)).is_err(), "{}", compiler.name);
        assert!(check(kernel).is_err(), "{} needs no prelude", compiler.name);
    }
}

/// The assembly that gcc generates for a machine with 512-bit vectors; an error without gcc.
fn assembly(kernel: &Linear) -> std::io::Result<String> {
    let code = gradiff_render::c(kernel).expect("C has it");
    let directory = tempfile::tempdir().expect("a directory");
    let source = directory.path().join("kernel.c");
    let text = gradiff_render::c_prelude(&code.helpers) + &code.text;
    std::fs::write(&source, text).expect("written");
    let flags = ["-std=c99", "-O2", "-mavx512f", "-mfma", "-fwrapv", "-ffp-contract=off"];
    let output = Command::new("gcc").args(flags).args(["-S", "-o", "-"]).arg(&source).output();
    let output = output?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn tile_keeps_its_sums_in_registers() {
    if !cfg!(target_arch = "x86_64") {
        return skip("x86-64", &"another machine");
    }
    let Some(text) = or_skip("gcc", assembly(&kernels::tile())) else { return };
    assert_eq!(text.matches("vfmadd231ps").count(), 16, "{text}");
    assert_eq!(text.matches("vfmadd").count(), 16, "{text}");
    assert!(!text.contains("(%rsp)") && !text.contains("(%rbp)"), "{text}");
}

#[test]
fn c_has_no_barriers() {
    let error = gradiff_render::c(&kernels::group()).unwrap_err();
    assert_eq!(error.to_string(), "kernel r_4_16, uop 15: C has no barrier");
}
