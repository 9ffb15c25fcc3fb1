//! Linear uops to source text, one file per language.
