//! Linear uops to source text, one file per language. Knows no device and does no IO.

mod c;
mod c_vector;
mod dialect;
mod error;
mod scalar;
mod writer;

pub use c::{c, c_named, c_prelude, c_type};
pub use error::Error;

use gradiff_graph::Linear;

/// A language that kernels can be written in.
pub struct Language {
    /// Its word on the command line.
    pub name: &'static str,
    /// The ending of its files, without the dot.
    pub extension: &'static str,
    /// Gives the text of one kernel, without the prelude.
    pub render: fn(&Linear) -> Result<String, Error>,
    /// Gives the text that stands once before these kernels in a file.
    pub prelude: fn(&str) -> String,
}

/// All languages.
pub const LANGUAGES: &[Language] =
    &[Language { name: "c", extension: "c", render: c, prelude: c_prelude }];
