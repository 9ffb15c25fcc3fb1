//! Tidy test: the files of a crate of the engine do not import each other in a circle.
//!
//! A file imports another if it names an item of it, by a path that begins with `crate`, `super`,
//! `self` or a child module. Re-exports are followed to the file of the item. Neither `mod` nor a
//! re-export is an import, and methods are not seen. Modules of tests do not count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Path of a module from the root of its crate.
type Module = Vec<String>;

/// Source file of a module.
#[derive(Default)]
struct File {
    /// The names of its items.
    items: BTreeSet<String>,
    /// The paths from the root of the crate that it uses, and those that it re-exports.
    paths: BTreeSet<Vec<String>>,
    /// The paths of names that it imports or re-exports; `*` has all its globs.
    aliases: BTreeMap<String, Vec<Vec<String>>>,
}

/// Identifiers, `::` and the other characters of a source text, without comments, strings and
/// modules of tests.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
        let size = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if let Some(raw) = rest.strip_prefix("r#\"") {
            raw.find("\"#").map_or(rest.len(), |end| end + 5)
        } else if first == '"' {
            end_of_string(rest)
        } else if let Some(size) = end_of_char(rest) {
            size
        } else if first.is_whitespace() {
            first.len_utf8()
        } else {
            let word = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
            let size = if rest.starts_with("::") { 2 } else { word.max(first.len_utf8()) };
            tokens.push(&rest[..size]);
            size
        };
        rest = &rest[size..];
    }
    without_tests(&tokens)
}

fn end_of_string(text: &str) -> usize {
    let mut letters = text.char_indices().skip(1);
    while let Some((at, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the length of a character literal; `None` for a lifetime and for other text.
fn end_of_char(text: &str) -> Option<usize> {
    let inner = text.strip_prefix('\'')?;
    let letter = inner.chars().next()?;
    let size = if letter == '\\' { inner[2..].find('\'')? + 2 } else { letter.len_utf8() };
    inner[size..].starts_with('\'').then_some(size + 2)
}

/// The tokens without the items under `#[cfg(test)]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    const CFG_TEST: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].starts_with(&CFG_TEST) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        // The item ends with a semicolon or with its braces.
        let mut depth = 0;
        for token in &tokens[at..] {
            at += 1;
            depth += i32::from(*token == "{") - i32::from(*token == "}");
            if depth == 0 && matches!(*token, ";" | "}") {
                break;
            }
        }
    }
    kept
}

/// Reads the use tree at the front of `tokens` and adds its paths, each with the name that it
/// binds. Returns the tokens after it.
fn read_tree<'a, 'b>(
    mut tokens: &'b [&'a str],
    mut path: Vec<&'a str>,
    found: &mut Vec<(Vec<&'a str>, &'a str)>,
) -> &'b [&'a str] {
    loop {
        match tokens {
            ["::", rest @ ..] => tokens = rest,
            ["{", rest @ ..] => {
                tokens = rest;
                while tokens.first().is_some_and(|token| *token != "}") {
                    tokens = read_tree(tokens, path.clone(), found);
                    tokens = tokens.strip_prefix(&[","]).unwrap_or(tokens);
                }
                return tokens.get(1..).unwrap_or_default();
            }
            ["as", name, rest @ ..] => {
                found.push((path, name));
                return rest;
            }
            ["self", rest @ ..] if !path.is_empty() => tokens = rest,
            [";" | "," | "}", ..] | [] => {
                let name = path.last().copied().unwrap_or_default();
                found.push((path, name));
                return tokens;
            }
            [name, rest @ ..] => {
                path.push(name);
                tokens = rest;
            }
        }
    }
}

/// Returns the path from the root of the crate, for a path in a module; `None` for one that leads
/// out of the crate.
fn absolute(
    path: &[&str],
    module: &[&str],
    is_module: &dyn Fn(&[&str]) -> bool,
) -> Option<Vec<String>> {
    let (mut base, mut rest) = (module.to_vec(), path);
    match *path.first()? {
        "crate" => (base, rest) = (Vec::new(), &path[1..]),
        "self" => rest = &path[1..],
        "super" => {
            while let ["super", inner @ ..] = rest {
                base.pop();
                rest = inner;
            }
        }
        child => {
            let child = [module, &[child]].concat();
            is_module(&child).then_some(())?;
        }
    }
    Some(base.iter().chain(rest).map(|name| name.to_string()).collect())
}

/// Reads the items, imports and paths of a file.
fn read(text: &str, module: &Module, is_module: &dyn Fn(&[&str]) -> bool) -> File {
    const ITEMS: [&str; 9] =
        ["fn", "struct", "enum", "trait", "type", "const", "static", "union", "macro_rules"];
    let tokens = tokens(text);
    let mut file = File::default();
    let mut reexports: Vec<(String, Vec<String>)> = Vec::new();
    let mut names: BTreeSet<&str> = BTreeSet::new();
    // The module and the inline modules within it, each with the depth of its braces.
    let mut inside: Vec<&str> = module.iter().map(String::as_str).collect();
    let (mut depths, mut depth) = (Vec::new(), 0);
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map_or("", |before| tokens[before]);
        match tokens[at..] {
            // `use<..>` names what a type captures.
            ["use", next, ..] if next != "<" => {
                let mut found = Vec::new();
                let rest = read_tree(&tokens[at + 1..], Vec::new(), &mut found);
                let is_reexport = matches!(before, "pub" | ")");
                for (path, name) in found {
                    let Some(path) = absolute(&path, &inside, is_module) else { continue };
                    file.aliases.entry(name.to_string()).or_default().push(path.clone());
                    match is_reexport {
                        true => reexports.push((name.to_string(), path)),
                        false => drop(file.paths.insert(path)),
                    }
                }
                at = tokens.len() - rest.len();
                continue;
            }
            ["mod", name, "{", ..] => {
                inside.push(name);
                depths.push(depth);
            }
            [word, name, ..] if ITEMS.contains(&word) => {
                let name = if name == "!" { tokens[at + 2] } else { name };
                file.items.insert(name.to_string());
            }
            [_, "::", ..] if !matches!(before, "::" | ".") => {
                let end = tokens[at..].chunks(2).take_while(|pair| pair.get(1) == Some(&"::"));
                let path: Vec<&str> =
                    tokens[at..].iter().step_by(2).take(end.count() + 1).copied().collect();
                file.paths.extend(absolute(&path, &inside, is_module));
            }
            _ => {}
        }
        names.insert(tokens[at]);
        match tokens[at] {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                if depths.last() == Some(&depth) {
                    depths.pop();
                    inside.pop();
                }
            }
            _ => {}
        }
        at += 1;
    }
    // An item that a file re-exports and uses itself is imported as well.
    let is_used = |name: &str| names.contains(name);
    file.paths.extend(reexports.into_iter().filter(|(name, _)| is_used(name)).map(|pair| pair.1));
    file
}

/// The module of the item at the end of a path; re-exports are followed.
fn module_of(path: &[String], files: &BTreeMap<Module, File>, fuel: usize) -> Module {
    let size = (0..=path.len()).rev().find(|size| files.contains_key(&path[..*size]));
    let size = size.expect("the root of the crate is a file");
    let (module, file) = (path[..size].to_vec(), &files[&path[..size]]);
    let Some((item, rest)) = path[size..].split_first() else { return module };
    if file.items.contains(item) || fuel == 0 {
        return module;
    }
    let follow =
        |alias: &Vec<String>, rest: &[String]| module_of(&[alias, rest].concat(), files, fuel - 1);
    if let Some(alias) = file.aliases.get(item).and_then(|aliases| aliases.first()) {
        return follow(alias, rest);
    }
    let globs = file.aliases.get("*").into_iter().flatten();
    let mut globs = globs.map(|glob| follow(&glob[..glob.len() - 1].to_vec(), &path[size..]));
    globs.find(|found| files[found].items.contains(item)).unwrap_or(module)
}

/// The source texts in a folder and those below it, by module.
fn texts(source: &Path) -> BTreeMap<Module, String> {
    let mut texts = BTreeMap::new();
    let mut folders = vec![source.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder of sources is readable") {
            let path: PathBuf = entry.expect("an entry is readable").path();
            let inner = path.strip_prefix(source).expect("it lies within").with_extension("");
            let module: Module =
                inner.iter().map(|name| name.to_string_lossy().into_owned()).collect();
            let last = module.last().map(String::as_str);
            if last == Some("tests") {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let is_root = matches!(last, Some("lib" | "main" | "mod"));
                let module = module[..module.len() - usize::from(is_root)].to_vec();
                texts.insert(module, std::fs::read_to_string(&path).expect("it is readable"));
            }
        }
    }
    texts
}

/// The modules that each module imports items of.
fn imports(texts: &BTreeMap<Module, String>) -> BTreeMap<Module, BTreeSet<Module>> {
    let is_module = |path: &[&str]| texts.keys().any(|module| module == path);
    let read =
        |(module, text): (&Module, &String)| (module.clone(), read(text, module, &is_module));
    let files: BTreeMap<Module, File> = texts.iter().map(read).collect();
    let imports = |(module, file): (&Module, &File)| {
        let modules = file.paths.iter().map(|path| module_of(path, &files, 9));
        (module.clone(), modules.filter(|found| found != module).collect())
    };
    files.iter().map(imports).collect()
}

/// The modules that can be reached from one by imports.
fn reached<'a>(
    from: &Module,
    imports: &'a BTreeMap<Module, BTreeSet<Module>>,
) -> BTreeSet<&'a Module> {
    let mut reached = BTreeSet::new();
    let mut pending: Vec<&Module> = imports[from].iter().collect();
    while let Some(module) = pending.pop() {
        if reached.insert(module) {
            pending.extend(&imports[module]);
        }
    }
    reached
}

/// The imports of a circle, by the path of the file that has them.
fn circles(texts: &BTreeMap<Module, String>) -> BTreeMap<String, Vec<String>> {
    let imports = imports(texts);
    let reached: BTreeMap<&Module, _> =
        imports.keys().map(|module| (module, reached(module, &imports))).collect();
    let name = |module: &Module| match module.is_empty() {
        true => String::from("lib"),
        false => module.join("/"),
    };
    let mut circles: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (module, imported) in &imports {
        for target in imported.iter().filter(|target| reached[target].contains(module)) {
            circles.entry(name(module)).or_default().push(name(target));
        }
    }
    circles
}

#[test]
fn files_do_not_import_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(root).expect("the folder of the engine is readable");
    let mut crates: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry is readable").path())
        .filter(|path| path.join("Cargo.toml").exists())
        .collect();
    crates.push(root.to_path_buf());
    crates.sort();
    let mut complaints = Vec::new();
    for folder in crates {
        let name = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let circles = circles(&texts(&folder.join("src")));
        for (file, imported) in circles {
            complaints.push(format!("{name}: {file} imports {}", imported.join(", ")));
        }
    }
    assert!(complaints.is_empty(), "circles of imports:\n{}", complaints.join("\n"));
}

#[test]
fn circles_are_found() {
    let circles_of = |files: &[(&str, &str)]| {
        let file = |(path, text): &(&str, &str)| {
            let module = path.split('/').filter(|name| !name.is_empty());
            (module.map(String::from).collect(), text.to_string())
        };
        circles(&files.iter().map(file).collect()).into_keys().collect::<Vec<String>>()
    };
    let root = ("", "mod a;\nmod b;\npub use b::{f, g as h};\nstruct S;");
    let b = ("b", "pub(crate) fn f() {}\npub fn g() { super::a::x(); }");
    let none: [&str; 0] = [];
    assert_eq!(circles_of(&[root, ("a", "use crate::f;\nfn x() {}"), b]), ["a", "b"]);
    assert_eq!(circles_of(&[root, ("a", "fn x() { crate::h() }"), b]), ["a", "b"]);
    assert_eq!(circles_of(&[root, ("a", "use crate::{S, b};\nfn x() { b::g() }"), b]), ["a", "b"]);
    assert_eq!(circles_of(&[root, ("a", "use crate::S;\nfn x() {}"), b]), none);
    let child = ("a/c", "use super::x;\nmod d { use super::y; }\nfn y() {}");
    assert_eq!(circles_of(&[root, ("a", "mod c;\nfn x() { c::y() }"), b, child]), ["a", "a/c"]);
    assert_eq!(circles_of(&[root, ("a", "mod c;\npub use c::y;\nfn x() {}"), b, child]), none);
    let unseen = "// crate::b::f\nfn x() { \"crate::b::f\"; 'a'; '\\''; }\n\
                  #[cfg(test)]\nmod tests { use crate::b::f; }";
    assert_eq!(circles_of(&[root, ("a", unseen), b]), none);
}
