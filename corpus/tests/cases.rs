//! Every case file is well formed, has a description, and survives a round trip through its print.

use gradiff_corpus::{Case, CaseFile, decode, embedded, encode, parse};
use std::collections::BTreeSet;
use std::path::Path;

fn cases() -> Vec<(&'static str, CaseFile)> {
    let read = |(stem, text): &(&'static str, &'static str)| match parse(text) {
        Ok(file) => (*stem, file),
        Err(error) => panic!("{stem}: {error}"),
    };
    embedded().iter().map(read).collect()
}

#[test]
fn every_case_survives_a_round_trip() {
    for (stem, file) in cases() {
        let printed = file.to_string();
        assert_eq!(parse(&printed).as_ref(), Ok(&file), "{stem} printed as\n{printed}");
        if let Case::Program(program) = &file.case {
            assert_eq!(&decode(&encode(program)), program, "{stem} in binary form");
        }
    }
}

/// Movements of older texts have no key.
#[test]
fn every_list_of_axes_has_its_key() {
    for ((stem, text), (_, file)) in embedded().iter().zip(cases()) {
        let lines = text.lines().map(|line| line.split('#').next().unwrap());
        let keys: usize = lines.map(|line| line.matches("axes=").count()).sum();
        let described = file.description.join("\n").matches("axes=").count();
        assert_eq!(keys, file.to_string().matches("axes=").count() - described, "{stem}");
    }
}

#[test]
fn every_case_has_a_description_and_a_kebab_name() {
    for (stem, file) in cases() {
        assert!(
            file.description.first().is_some_and(|line| 10 < line.len()),
            "{stem} has no description"
        );
        let kebab = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-/".contains(c);
        assert!(stem.chars().all(kebab), "{stem} is not kebab-case");
    }
}

#[test]
fn embedded_lists_every_file_once() {
    let mut on_disk = BTreeSet::new();
    for folder in ["cases", "regressions"] {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let mut folders = vec![root.clone()];
        while let Some(inside) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(inside) else { continue };
            for path in entries.map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                assert_eq!(path.extension().unwrap(), "case", "{}", path.display());
                let stem = path.strip_prefix(&root).unwrap().with_extension("");
                let stem = stem.to_str().unwrap().to_string();
                assert!(on_disk.insert(stem.clone()), "there are two files of the stem {stem}");
            }
        }
    }
    let listed: Vec<&str> = embedded().iter().map(|(stem, _)| *stem).collect();
    assert_eq!(listed, on_disk.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Checks the rows of the seed documents that the text form can express.
#[test]
fn every_expressible_seed_row_has_a_case() {
    let rows = [
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 29, 31,
        32, 33, 35, 36, 38, 39,
    ];
    for row in rows {
        let prefix = format!("s{row:02}-");
        assert!(embedded().iter().any(|(stem, _)| stem.starts_with(&prefix)), "no case {prefix}*");
    }
}

/// Together the programs use every operation and every dtype, and the README lists the operations.
#[test]
fn programs_cover_every_operation_and_dtype() {
    let text: String =
        cases().iter().map(|(_, file)| file.to_string()).collect::<Vec<_>>().join("\n");
    let words = |text| -> BTreeSet<&str> {
        str::split(text, |c: char| !c.is_ascii_alphanumeric()).collect()
    };
    let (words, listed) = (words(&text), words(include_str!("../README.md")));
    let fixed = "input const arange where mulacc cast bitcast sum prod max reshape permute expand \
                 pad shrink flip cat gather contiguous realize detach gradient";
    let unary = gradiff_corpus::UnaryOp::ALL.map(|op| op.name());
    let binary = gradiff_corpus::BinaryOp::ALL.map(|op| op.name());
    let dtypes = gradiff_corpus::DType::ALL.map(|dtype| dtype.name());
    for word in fixed.split_whitespace().chain(unary).chain(binary) {
        assert!(listed.contains(word), "corpus/README.md does not list {word}");
        assert!(words.contains(word), "no case uses {word}");
    }
    for word in dtypes {
        assert!(words.contains(word), "no case uses {word}");
    }
}

/// The names of operations are those that the cases have.
#[test]
fn names_of_operations_are_listed_once() {
    let names: Vec<&str> = gradiff_corpus::names().collect();
    let different: BTreeSet<&str> = names.iter().copied().collect();
    assert_eq!(names.len(), different.len());
    let mut used = BTreeSet::new();
    for (_, file) in cases() {
        match &file.case {
            Case::Program(program) => {
                used.extend(program.statements.iter().map(gradiff_corpus::name));
            }
            Case::Views(views) => used.extend(views.ops.iter().map(|op| op.name())),
            Case::Expr(case) => case.expr.visit(&mut |node| {
                if !node.operands().is_empty() {
                    used.insert(gradiff_corpus::expr_name(node));
                }
            }),
        }
    }
    for name in used {
        assert!(different.contains(name), "{name} is not listed");
    }
}
