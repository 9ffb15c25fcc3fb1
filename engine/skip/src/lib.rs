//! Tests that do not run, or not in full, for want of a compiler, a driver or a tool. Each prints a
//! line that runs can count, and fails where the environment requires what is missing:
//! `GRADIFF_REQUIRE=clang,z3` names what must not be missing, separated by commas.
//!
//! A dev-dependency of the crates whose tests need such things; no other code uses it.

use std::fmt::Display;
use std::io::Write;

/// The variable that names what must not be missing.
const VARIABLE: &str = "GRADIFF_REQUIRE";

/// The names of what tests may lack: devices, programs, features of this machine.
pub const REQUIREMENTS: [&str; 16] = [
    "avx2",
    "c",
    "clang",
    "cuda",
    "gcc",
    "llvmpipe",
    "numpy",
    "nvrtc",
    "opencl",
    "opt",
    "ptxas",
    "python3",
    "wgpu",
    "wgpu-core",
    "x86-64",
    "z3",
];

/// Returns the value, or prints that a test does not run for want of `requirement`, and why.
///
/// # Panics
/// If the environment requires what is missing, or `requirement` is not in [`REQUIREMENTS`].
#[track_caller]
pub fn or_skip<T, E: Display>(requirement: &str, found: Result<T, E>) -> Option<T> {
    match found {
        Ok(value) => Some(value),
        Err(why) => {
            skip(requirement, &why);
            None
        }
    }
}

/// Prints that a test does not run for want of `requirement`, and why.
///
/// # Panics
/// As [`or_skip`].
#[track_caller]
pub fn skip(requirement: &str, why: &dyn Display) {
    let required = std::env::var(VARIABLE).unwrap_or_default();
    match line(requirement, why, &required) {
        // To the stream itself: tests capture what macros print.
        Ok(line) => drop(writeln!(std::io::stderr(), "{line}")),
        Err(problem) => panic!("{problem}"),
    }
}

/// The requirement of a backend or a device: the device, or clang for one that runs texts.
pub fn of_backend(name: &str) -> &str {
    match name.split('/').next() {
        Some("text") => "clang",
        Some(device) => device,
        None => name,
    }
}

/// The line to print.
///
/// # Errors
/// The requirement is unknown, or one of those that are `required`.
fn line(requirement: &str, why: &dyn Display, required: &str) -> Result<String, String> {
    if !REQUIREMENTS.contains(&requirement) {
        return Err(format!("{requirement} is none of {}", REQUIREMENTS.join(", ")));
    }
    if names(required)?.contains(&requirement) {
        return Err(format!("{VARIABLE} names {requirement}, which is missing: {why}"));
    }
    Ok(format!("skipped for want of {requirement}: {why}"))
}

/// The names in the value of the variable.
///
/// # Errors
/// A name that no test asks for.
fn names(required: &str) -> Result<Vec<&str>, String> {
    let names: Vec<&str> = required.split(',').filter(|name| !name.is_empty()).collect();
    match names.iter().find(|name| !REQUIREMENTS.contains(name)) {
        Some(name) => {
            let known = REQUIREMENTS.join(", ");
            Err(format!("{VARIABLE}: {name:?} is unknown; allowed are {known}"))
        }
        None => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Otherwise a misspelt name would require nothing.
    #[test]
    fn the_environment_names_known_requirements() {
        let required = std::env::var(VARIABLE).unwrap_or_default();
        assert_eq!(names(&required).err(), None);
    }

    #[test]
    fn what_is_required_is_not_skipped() {
        let skipped = |requirement, required| line(requirement, &"not found", required);
        let text = Ok("skipped for want of z3: not found".to_string());
        assert_eq!(skipped("z3", ""), text);
        assert_eq!(skipped("z3", "clang,opt"), text);
        let missing = "GRADIFF_REQUIRE names z3, which is missing: not found".to_string();
        assert_eq!(skipped("z3", "clang,z3"), Err(missing));
        assert!(skipped("z4", "").is_err_and(|why| why.starts_with("z4 is none of avx2, c, ")));
        let misspelt = "GRADIFF_REQUIRE: \"clnag\" is unknown; allowed are avx2, c, ";
        assert!(skipped("z3", "clnag").is_err_and(|why| why.starts_with(misspelt)));
    }

    #[test]
    fn texts_need_clang_and_backends_their_device() {
        let backends = ["text/cuda", "opencl/opts", "wgpu-core", "c"];
        assert_eq!(backends.map(of_backend), ["clang", "opencl", "wgpu-core", "c"]);
    }
}
