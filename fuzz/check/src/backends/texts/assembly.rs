//! Inline assembly of CUDA C++ as calls of a stand-in, `stand_ins/cuda_asm.h`, which a compiler for
//! the host accepts.
//!
//! In: `asm volatile("TEXT" : "+f"(x), ... : "r"(y), ...);`. Out:
//! `cuda_asm("TEXT").out("+f",x)....in("r",y)....run();`. Text that is no such statement is
//! unchanged, and the compiler refuses it.

/// Rewrites each statement of inline assembly.
pub(super) fn as_calls(text: &str) -> String {
    let mut calls = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("asm") {
        calls += &rest[..start];
        let after = &rest[start + "asm".len()..];
        match statement(after) {
            Some((call, end)) => {
                calls += &call;
                rest = &after[end..];
            }
            None => {
                calls += "asm";
                rest = after;
            }
        }
    }
    calls + rest
}

/// The call for a statement after the word `asm`, and the offset of the end of the statement.
fn statement(text: &str) -> Option<(String, usize)> {
    let body = text.strip_prefix(" volatile").unwrap_or(text).strip_prefix('(')?;
    let end = closing(body)?;
    let after = body[end + 1..].strip_prefix(';')?;
    let parts = split(&body[..end], ':');
    let [instruction, outputs, inputs] = parts.as_slice() else { return None };
    let mut call = format!("cuda_asm({})", instruction.trim());
    for (method, operands) in [("out", outputs), ("in", inputs)] {
        for operand in split(operands, ',') {
            let (form, expression) = operand.trim().split_once('(')?;
            call += &format!(".{method}({form},{}", expression);
        }
    }
    Some((call + ".run();", text.len() - after.len()))
}

/// The offset of the bracket that closes an open one, outside of string literals.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    outside(text).find_map(|(at, c)| {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
        None
    })
}

/// The characters outside of string literals, with their offsets.
fn outside(text: &str) -> impl Iterator<Item = (usize, char)> {
    let mut is_quoted = false;
    text.char_indices().filter(move |(_, c)| {
        is_quoted ^= *c == '"';
        !is_quoted
    })
}

/// The parts between separators outside of string literals and brackets.
fn split(text: &str, separator: char) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, c) in outside(text) {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if c == separator && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_become_calls() {
        let check = |text: &str, expected: &str| assert_eq!(as_calls(text), expected);
        check(
            "x = 1; asm volatile(\"f {%0}, (%1:;\"\n : \"+f\"(c.x)\n \
             : \"r\"(x[g(0, 1)]), \"r\"(y)); z();",
            "x = 1; cuda_asm(\"f {%0}, (%1:;\").out(\"+f\",c.x)\
             .in(\"r\",x[g(0, 1)]).in(\"r\",y).run(); z();",
        );
        check(
            "asm(\"a\" : \"=r\"(b) : \"r\"(c));",
            "cuda_asm(\"a\").out(\"=r\",b).in(\"r\",c).run();",
        );
        for text in ["plasma(1);", "asm(\"a\")", "asm(\"a\" : \"=r\"(b);", "asm", ""] {
            check(text, text);
        }
    }
}
