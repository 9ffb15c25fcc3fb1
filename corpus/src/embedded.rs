//! The case files of the corpus, embedded in the crate, so that users need no path to them.

/// Returns the stem and the text of every file in `cases/` and `regressions/`, sorted by stem. The
/// stem includes the folders below these: `rules/boolean/not-not`.
///
/// ```
/// let (_, text) = gradiff_corpus::embedded().iter().find(|(stem, _)| *stem == "add-add-fuse")
///     .expect("the corpus has this case");
/// assert!(gradiff_corpus::parse(text).is_ok());
/// ```
pub fn embedded() -> &'static [(&'static str, &'static str)] {
    include!(concat!(env!("OUT_DIR"), "/embedded.rs"))
}
