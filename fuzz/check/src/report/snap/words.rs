//! Texts other than uops: the number of changed lines, and whether only names and blanks changed.
//!
//! Names are those that renderers and printers number: `val3`, `alu12`, `%17`, `%r4`, `E_4_4n1`.
//! A name may change to another one of its kind if it does so everywhere and no other name changes
//! to the same; `data0` is a position in the parameter list and keeps its name, as do types such as
//! `f32` and `int4`.

use std::collections::HashMap;

/// The difference of two texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextChange {
    /// Number of lines that only the later text has.
    pub added: usize,
    /// Number of lines that only the earlier text has.
    pub removed: usize,
    /// True if the texts are the same up to names and blanks.
    pub is_same_up_to_names: bool,
}

/// Compares two texts.
pub fn text_change(before: &str, after: &str) -> TextChange {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let common = common_lines(&old, &new);
    let is_same_up_to_names = is_same_up_to_names(before, after);
    TextChange { added: new.len() - common, removed: old.len() - common, is_same_up_to_names }
}

/// Number of lines of the longest common subsequence; of very long texts a lower bound: equal lines
/// at the same position.
fn common_lines(old: &[&str], new: &[&str]) -> usize {
    const PAIR_LIMIT: usize = 1 << 24;
    let pairs = |(a, b): &(&&str, &&str)| a == b;
    let head = old.iter().zip(new).take_while(pairs).count();
    let (old, new) = (&old[head..], &new[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(pairs).count();
    let (old, new) = (&old[..old.len() - tail], &new[..new.len() - tail]);
    if old.len().saturating_mul(new.len()) > PAIR_LIMIT {
        return head + tail + old.iter().zip(new).filter(pairs).count();
    }
    // lengths[j]: the length for the rows so far and the first j lines of `new`.
    let mut lengths = vec![0; new.len() + 1];
    for line in old {
        let mut diagonal = 0;
        for (at, candidate) in new.iter().enumerate() {
            let above = lengths[at + 1];
            let best = if line == candidate { diagonal + 1 } else { above.max(lengths[at]) };
            lengths[at + 1] = best;
            diagonal = above;
        }
    }
    head + tail + lengths[new.len()]
}

fn is_same_up_to_names(before: &str, after: &str) -> bool {
    let (mut forward, mut backward) = (HashMap::new(), HashMap::new());
    let (mut old, mut new) = (words(before), words(after));
    loop {
        let (a, b) = match (old.next(), new.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) => (a, b),
            _ => return false,
        };
        match (kind(a), kind(b)) {
            (Some(old_kind), Some(new_kind)) if old_kind == new_kind => {
                if *forward.entry(a).or_insert(b) != b || *backward.entry(b).or_insert(a) != a {
                    return false;
                }
            }
            _ if a == b => {}
            _ => return false,
        }
    }
}

/// Words and single signs, without blanks.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        let first = rest.chars().next()?;
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let start = if first == '%' { 1 } else { 0 };
        let end = rest[start..].find(|letter| !is_letter(letter));
        let end = end.map_or(rest.len(), |end| start + end).max(first.len_utf8());
        let (word, after) = rest.split_at(end);
        rest = after;
        Some(word)
    })
}

/// The kind of a name; `None` if the word is no name.
fn kind(word: &str) -> Option<(&str, &str)> {
    // PTX has `E_4_data0`: the kernel's name and the parameter, which does not change.
    let split = word.find("_data").filter(|at| is_kernel(&word[..*at]));
    if let Some(at) = split {
        return Some(("kernel", &word[at..]));
    }
    if is_kernel(word) {
        return Some(("kernel", ""));
    }
    let stem = word.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let is_known = match stem.strip_prefix('%') {
        Some(stem) => stem != "data",
        None => NAMES.contains(&stem),
    };
    (is_known && stem.len() < word.len()).then_some((stem, ""))
}

/// The stems of numbered names.
const NAMES: [&str; 12] =
    ["val", "alu", "acc", "ridx", "lidx", "gidx", "cond", "loop", "latch", "body", "end", "next"];

/// Returns whether a word is a kernel's name: `E`, `E_4_4`, `r_4_4n1`.
fn is_kernel(word: &str) -> bool {
    let sizes = word.strip_prefix(['E', 'r']);
    sizes.is_some_and(|sizes| {
        let (sizes, count) = sizes.split_once('n').unwrap_or((sizes, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let are_sizes = sizes.is_empty()
            || sizes.strip_prefix('_').is_some_and(|sizes| sizes.split('_').all(is_number));
        are_sizes && is_number(count) && (word.starts_with('E') || !sizes.is_empty())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_blanks_are_distinguished_from_the_rest() {
        let source =
            "void E_4(float* data0) {\n  float val0 = data1[alu1];\n  %t2 = add f32 %t1\n}\n";
        let edits = [
            ("", "", true),
            ("val0", "val7", true),
            ("  float", "\tfloat", true),
            ("E_4", "E_2_2n3", true),
            ("%t2", "%t5", true),
            ("%t2", "%t1", false),
            ("%t2", "%r2", false),
            ("alu1", "val0", false),
            ("data1", "data2", false),
            ("f32", "f64", false),
            ("add", "sub", false),
            ("float val0", "int val0", false),
            ("}", "}}", false),
            ("E_4", "kernel", false),
        ];
        for (from, to, is_same) in edits {
            let change = text_change(source, &source.replacen(from, to, 1));
            assert_eq!(change.is_same_up_to_names, is_same, "{from} to {to}");
        }
    }

    #[test]
    fn lines_are_counted() {
        let count = |old: &str, new: &str| {
            let change = text_change(old, new);
            (change.removed, change.added)
        };
        assert_eq!(count("a\nb\nc\nd\n", "a\nb\nc\nd\n"), (0, 0));
        assert_eq!(count("a\nb\nc\nd\n", "a\nx\nc\ny\nd\n"), (1, 2));
        assert_eq!(count("", "a\n"), (0, 1));
        assert_eq!(count("a\nb\na\n", "b\n"), (2, 0));
    }
}
