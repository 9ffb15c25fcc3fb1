//! Generates the body of `embedded()`: the stem and the text of every case file below `cases/` and
//! `regressions/`, sorted by stem.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let mut files = Vec::new();
    for folder in ["cases", "regressions"] {
        let folder = Path::new(&root).join(folder);
        if folder.is_dir() {
            collect(&folder, "", &mut files)?;
        }
    }
    files.sort();
    let mut list = String::from("&[\n");
    for (stem, path) in &files {
        let path = path.to_string_lossy();
        list.push_str(&format!("    ({stem:?}, include_str!({path:?})),\n"));
    }
    list.push_str("]\n");
    let out = env::var("OUT_DIR").map_err(io::Error::other)?;
    fs::write(Path::new(&out).join("embedded.rs"), list)
}

/// Adds the stem and the path of each case below `folder` to `files`; every stem begins with
/// `prefix`.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<(String, PathBuf)>) -> io::Result<()> {
    println!("cargo::rerun-if-changed={}", folder.display());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Some(stem) = path.file_stem() else { continue };
        let stem = format!("{prefix}{}", stem.to_string_lossy());
        if path.is_dir() {
            collect(&path, &format!("{stem}/"), files)?;
        } else if path.extension().is_some_and(|extension| extension == "case") {
            files.push((stem, path));
        }
    }
    Ok(())
}
