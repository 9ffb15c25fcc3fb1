//! Lists the case files, so that the crate can carry their text: `cases/` and `regressions/`,
//! sorted by stem, become the body of `embedded()`.

use std::path::Path;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = env::var("CARGO_MANIFEST_DIR").map_err(io::Error::other)?;
    let mut files = Vec::new();
    for folder in ["cases", "regressions"] {
        let folder = Path::new(&root).join(folder);
        if !folder.is_dir() {
            continue;
        }
        println!("cargo::rerun-if-changed={}", folder.display());
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "case")
                && let Some(stem) = path.file_stem()
            {
                files.push((stem.to_string_lossy().into_owned(), path));
            }
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
