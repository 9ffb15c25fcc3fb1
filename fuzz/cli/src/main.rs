//! The `gradiff` command.

fn main() {}
