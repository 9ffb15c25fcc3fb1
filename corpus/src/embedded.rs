//! The case files of the corpus, carried in the crate: users need no path to them.

/// Stem and text of every file in `cases/` and `regressions/`, sorted by stem. The stem of a file
/// in a folder of these has the folder before it: `rules/boolean/not-not`.
///
/// ```
/// let (_, text) = gradiff_corpus::embedded().iter().find(|(stem, _)| *stem == "add-add-fuse")
///     .expect("the corpus has this case");
/// assert!(gradiff_corpus::parse(text).is_ok());
/// ```
pub fn embedded() -> &'static [(&'static str, &'static str)] {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"))
}
