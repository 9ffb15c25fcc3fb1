//! Tidy: the sources use the field's words, in lines that are not too long. STYLE.md, "Words", has
//! the table.

use std::path::{Path, PathBuf};

/// First words of a doc comment that leave out its head noun.
const OPENINGS: &[&str] = &["What", "Whether", "Of", "How", "Where", "Who"];

/// Names that could be any value's. A method may have an `other` beside its `self`.
const NAMES: &[&str] = &["one", "own", "made", "most", "other", "others", "all", "what"];

/// Words in identifiers for which there is a standard term, and the term.
const DIALECT: &[(&str, &str)] = &[
    ("lacks", "unsupported"),
    ("settle", "canonicalise, decide or bound"),
    ("settled", "canonicalised, decided or bounded"),
    ("settles", "canonicalises, decides or bounds"),
    ("guilt", "culprit"),
    ("guilty", "culprit"),
    ("accuse", "attribute"),
    ("accuses", "attributes"),
    ("strangers", "stale entries"),
    ("twin", "matching expression"),
    ("twins", "matching expressions"),
];

/// The maximum length of a line.
const COLUMNS: usize = 100;

/// A line of a source file that uses the dialect, or is too long.
struct Find {
    line: usize,
    kind: Kind,
    word: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A doc comment that begins with one of [`OPENINGS`].
    Opening,
    /// A variable or parameter with one of [`NAMES`].
    Name,
    /// An identifier with a word of [`DIALECT`].
    Word,
    /// A line of more than [`COLUMNS`], which rustfmt leaves where it cannot break a string.
    Long,
}

/// The dialect's uses in a source text.
fn finds(text: &str) -> Vec<Find> {
    let mut finds = Vec::new();
    let mut is_in_doc = false;
    for (at, line) in text.lines().enumerate() {
        let mut find = |kind, word: &str| {
            finds.push(Find { line: at + 1, kind, word: word.to_string() });
        };
        let doc = line.trim_start().strip_prefix("/// ");
        if let Some(first) = doc.filter(|_| !is_in_doc).and_then(first_word)
            && OPENINGS.contains(&first)
        {
            find(Kind::Opening, first);
        }
        is_in_doc = doc.is_some();
        let columns = line.chars().count();
        if COLUMNS < columns {
            find(Kind::Long, &format!("{columns} columns"));
        }
        let code = code_of(line);
        let is_method = code.contains("self");
        let says_nothing = |name: &&str| NAMES.contains(name) && !(is_method && *name == "other");
        for name in names(&code).filter(says_nothing) {
            find(Kind::Name, name);
        }
        for word in words(&code) {
            let mut parts = word.split('_').map(str::to_lowercase);
            if parts.any(|part| DIALECT.iter().any(|(dialect, _)| *dialect == part)) {
                find(Kind::Word, word);
            }
        }
    }
    finds
}

/// The words and identifiers of a line.
fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

fn first_word(text: &str) -> Option<&str> {
    words(text).next()
}

/// A line without its strings and its comment. The parts of a longer string are not recognised.
fn code_of(line: &str) -> String {
    let pieces = line.replace("\\\"", "");
    let code: Vec<&str> = pieces.split('"').step_by(2).collect();
    code.join("\"\"").split("//").next().unwrap_or("").to_string()
}

/// The names that a line of code binds by `let` or `for`, in a match, or as a parameter.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let parts: Vec<&str> = words(code).collect();
    let bound = parts.windows(2).filter_map(|pair| match pair {
        [keyword, name] if matches!(*keyword, "let" | "for" | "mut") => Some(*name),
        _ => None,
    });
    // The names between the bars of a closure, before the types.
    let closures = code.split('|').skip(1).step_by(2).flat_map(|parameters| {
        parameters.split(',').filter_map(|parameter| first_word(parameter.split(':').next()?))
    });
    // Parameters and fields: a name, a colon, a type.
    let typed = code.split(['(', ',', '{']).filter_map(|part| {
        let (name, rest) = part.split_once(':')?;
        let name = name.trim();
        (!rest.starts_with(':') && words(name).eq([name])).then_some(name)
    });
    // The names in the pattern of a match, before its guard.
    let pattern = code.split_once("=>").and_then(|(arm, _)| arm.split(" if ").next());
    let matched = pattern.into_iter().flat_map(words);
    let names: Vec<&str> = bound.chain(closures).chain(typed).chain(matched).collect();
    names.into_iter()
}

/// The source files of the workspace's crates.
fn sources() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_path_buf();
    let mut sources = Vec::new();
    let mut folders = vec![(root.clone(), false)];
    while let Some((folder, is_in_crate)) = folders.pop() {
        let is_in_crate = is_in_crate || folder.join("Cargo.toml").exists() && folder != root;
        let entries = std::fs::read_dir(&folder).expect("a folder of the workspace is readable");
        for entry in entries {
            let path = entry.expect("an entry is readable").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && name != "target" {
                folders.push((path, is_in_crate));
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && is_in_crate
                && !path.ends_with("tests/words.rs")
            {
                sources.push(path);
            }
        }
    }
    sources.sort();
    sources
}

#[test]
fn sources_use_the_words_of_the_field() {
    let mut complaints = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).expect("a source file is readable");
        let complaint = |find: Find| format!("{}:{}: {}", file.display(), find.line, find.word);
        complaints.extend(finds(&text).into_iter().map(complaint));
    }
    assert!(complaints.is_empty(), "see STYLE.md, \"Words\":\n{}", complaints.join("\n"));
}

#[test]
fn the_dialect_is_found() {
    let count = |text: &str, kind: Kind| finds(text).iter().filter(|f| f.kind == kind).count();
    assert_eq!(count("/// Whether it is.\nfn f() {}", Kind::Opening), 1);
    assert_eq!(count("/// Returns it.\n/// What follows is fine.", Kind::Opening), 0);
    assert_eq!(count("let one = 1;\nfor other in [1] {}\nlet mut all = 2;", Kind::Name), 3);
    assert_eq!(count("x.map(|own| own + 1).fold(0, |a, most| a)", Kind::Name), 2);
    assert_eq!(count("fn f(one: u32, x: u32, made: &str) {}", Kind::Name), 2);
    assert_eq!(count("match x {\n    other => 1,\n    Some((known, other)) => 2,", Kind::Name), 2);
    assert_eq!(count("use a::one; one(2); // let one = 2", Kind::Name), 0);
    assert_eq!(count("f(\"{shape}: \\\"one\\\", for all\", 1)", Kind::Name), 0);
    assert_eq!(count("fn settle_all() {} // what it lacks", Kind::Word), 1);
    assert_eq!(count("fn unsettled() {}", Kind::Word), 0);
    assert_eq!(count(&format!("{}\n{}", "ä".repeat(100), "a".repeat(101)), Kind::Long), 1);
}
