//! The text form of a case.

/// Whether `name` can name a variable of an expression.
pub(crate) fn is_expr_name(name: &str) -> bool {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let reserved = ["cdiv", "cmod", "max", "min", "where", "true", "false"];
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(word)
        && !reserved.contains(&name)
}
