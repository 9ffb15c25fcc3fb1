//! Text forms of kernels: a printed kernel reads back to itself, and a damaged text is refused or
//! read literally.
//!
//! In: linear kernels. Out: the first text that reads back as another kernel, that is not refused
//! although a uop refers to one that is not above it, or that makes the parser panic.

use gradiff::graph::text::parse_linears;
use gradiff::graph::{Arg, Axis, AxisKind, Constant, DType, Linear};
use gradiff_eval::scalar;

use crate::checks::calls::Draw;

/// Prefix of this check's reports.
pub(crate) const PREFIX: &str = "text form of a kernel";

/// Number of damaged texts of each kernel.
const DAMAGED: usize = 2;

/// Letters after the numbers of ranges: those that the text form documents, and others.
const SUFFIXES: [(&str, Option<AxisKind>); 13] = [
    ("", Some(AxisKind::Loop)),
    ("g", Some(AxisKind::Global)),
    ("t", Some(AxisKind::Thread)),
    ("l", Some(AxisKind::Local)),
    ("w", Some(AxisKind::Warp)),
    ("p", Some(AxisKind::Group)),
    ("u", Some(AxisKind::Upcast)),
    ("v", Some(AxisKind::Vector)),
    ("r", Some(AxisKind::Unroll)),
    ("x", None),
    ("ug", None),
    ("uu", None),
    ("-", None),
];

/// Checks the text of a kernel and some damaged copies. A hash of the text is the seed of the
/// damage.
///
/// # Errors
/// The first problem, with the text.
pub fn check_text(kernel: &Linear) -> Result<(), String> {
    checked(kernel).map_err(|problem| format!("{PREFIX}: {problem}"))
}

fn checked(kernel: &Linear) -> Result<(), String> {
    let text = kernel.to_string();
    match crate::catch(|| parse_linears(&text))? {
        Ok(read) if read == std::slice::from_ref(kernel) && read[0].to_string() == text => {}
        Ok(read) => return Err(format!("{text}reads back as\n{}", printed(&read))),
        Err(error) => return Err(format!("{text}does not read back: {error}")),
    }
    // A kernel has uops.
    for empty in
        ["kernel k\n".to_string(), format!("{text}kernel k\n"), format!("kernel k\n{text}")]
    {
        if crate::catch(|| parse_linears(&empty))?.is_ok() {
            return Err(format!("{empty}is read, though a kernel has no uops"));
        }
    }
    let mut draw = Draw::new(crate::report::hash(&text));
    let drawn = (0..DAMAGED).map(|_| damaged(&text, &mut draw));
    for damaged in drawn.chain(without_words(&text)) {
        let read = crate::catch(|| parse_linears(&damaged));
        let read = read.map_err(|panic| format!("{panic} on\n{damaged}"))?;
        // A refusal is right.
        if let Ok(read) = read {
            check_as_written(&damaged, &read).map_err(|why| format!("{why} in\n{damaged}"))?;
        }
    }
    check_axis(&mut draw)
}

fn printed(kernels: &[Linear]) -> String {
    kernels.iter().map(Linear::to_string).collect()
}

/// Checks that a text was read as the kernels that it says: line by line, with each constant of its
/// value and each source above.
fn check_as_written(text: &str, read: &[Linear]) -> Result<(), String> {
    let printed = printed(read);
    // Empty lines have no meaning.
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    if lines().count() != printed.lines().count() {
        return Err("it was read as another number of uops".to_string());
    }
    let args = read.iter().flat_map(|kernel| {
        std::iter::once(None).chain(kernel.uops.iter().map(|uop| Some(&uop.arg)))
    });
    for ((line, printed_line), arg) in lines().zip(printed.lines()).zip(args) {
        let is_right = match (arg, line.split_once(']'), printed_line.split_once(']')) {
            // A constant may be printed differently from how it was written.
            (Some(Arg::Const(value)), Some((head, literal)), Some((printed_head, _))) => {
                is_alike(&words(head), &words(printed_head)) && is_literal(literal.trim(), *value)
            }
            _ => is_alike(&words(line), &words(printed_line)),
        };
        if !is_right {
            return Err(format!("{line:?} was read as {printed_line:?}"));
        }
    }
    for (position, uop) in read.iter().flat_map(|kernel| kernel.uops.iter().enumerate()) {
        if uop.src.iter().any(|source| *source as usize >= position) {
            return Err(format!("uop {position} has a source that is not above"));
        }
    }
    match parse_linears(&printed) {
        Ok(again) if again == read => Ok(()),
        Ok(_) => Err("printed and read again, it is another kernel".to_string()),
        Err(error) => Err(format!("printed again, it is refused: {error}")),
    }
}

/// Returns whether a constant has the value that a text says: a number, a truth value, or bits in
/// hexadecimal, of which those beyond the type do not count.
fn is_literal(text: &str, constant: Constant) -> bool {
    let (dtype, bits) = (constant.dtype(), constant.bits());
    if let Some(digits) = text.strip_prefix("0x") {
        return u64::from_str_radix(digits, 16).is_ok_and(|written| {
            let written = written & (u64::MAX >> (64 - 8 * dtype.size_bytes()));
            bits == if dtype == DType::Bool { u64::from(0 < written) } else { written }
        });
    }
    match (scalar::to_int(constant), scalar::to_float(constant)) {
        _ if dtype == DType::Bool => text == if bits == 1 { "true" } else { "false" },
        (Some(value), _) => text.parse() == Ok(value),
        (_, Some(value)) => {
            // A number of f32 is not rounded to f64 first.
            let written = match dtype {
                DType::F32 => text.parse::<f32>().map(f64::from),
                _ => text.parse::<f64>(),
            };
            written.is_ok_and(|written| {
                let is_same = scalar::float(dtype, written) == Some(constant);
                is_same || written.is_nan() && value.is_nan()
            })
        }
        _ => false,
    }
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns whether two texts are the same except for leading zeros of numbers.
fn is_alike(left: &str, right: &str) -> bool {
    let plain = |text: &str| {
        let mut plain = String::new();
        let mut before = ' ';
        let mut rest = text.chars().peekable();
        while let Some(letter) = rest.next() {
            let is_first_zero = letter == '0' && !before.is_ascii_digit();
            let is_followed = rest.peek().is_some_and(char::is_ascii_digit);
            if is_first_zero && is_followed {
                continue;
            }
            plain.push(letter);
            before = letter;
        }
        plain.replace("-0", "0")
    };
    plain(left) == plain(right)
}

/// The text with one drawn change.
pub(crate) fn damaged(text: &str, draw: &mut Draw) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let at = 1 + draw.below(lines.len() - 1);
    match draw.below(7) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines.swap(at, 1 + draw.below(text.lines().count() - 1)),
        3 => {
            let length = draw.below(lines[at].len());
            lines[at].truncate(length);
        }
        4 => {
            // A uop that refers to itself or to a later one.
            let source = at - 1 + draw.below(3);
            if let Some((head, rest)) = lines[at].clone().split_once('[')
                && let Some((sources, arg)) = rest.split_once(']')
                && !sources.trim().is_empty()
            {
                let mut sources: Vec<String> = sources.split(", ").map(str::to_string).collect();
                let changed = draw.below(sources.len());
                sources[changed] = source.to_string();
                lines[at] = format!("{head}[{}]{arg}", sources.join(", "));
            }
        }
        _ => {
            let digits: Vec<usize> = lines[at]
                .bytes()
                .enumerate()
                .filter(|(_, byte)| byte.is_ascii_digit())
                .map(|(position, _)| position)
                .collect();
            if !digits.is_empty() {
                let position = digits[draw.below(digits.len())];
                let digit = char::from(b'0' + draw.below(10) as u8);
                lines[at].replace_range(position..=position, &digit.to_string());
            }
        }
    }
    lines.join("\n") + "\n"
}

/// The texts in which a word of the first uop of each op is left out or is another one.
fn without_words(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut ops = Vec::new();
    let mut texts = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let op = words.get(1).copied().unwrap_or_default();
        if ops.contains(&op) {
            continue;
        }
        ops.push(op);
        for (number, word) in words.iter().enumerate() {
            for replacement in ["", "x", &format!("{word}x")] {
                let mut words = words.clone();
                words[number] = replacement;
                let line = words.join(" ");
                let mut lines = lines.clone();
                lines[at] = &line;
                texts.push(lines.join("\n") + "\n");
            }
        }
    }
    texts
}

/// Checks that an axis of a drawn kind reads back, and that letters of no kind are refused.
fn check_axis(draw: &mut Draw) -> Result<(), String> {
    let (suffix, kind) = draw.pick(&SUFFIXES);
    let number = draw.below(200) as i64;
    let text = format!("{number}{suffix}");
    let expected = kind.map(|kind| Axis { kind, number });
    let found = Axis::parse(&text);
    if found != expected || expected.is_some_and(|axis| axis.to_string() != text) {
        return Err(format!("the axis {text:?} is read as {found:?}, not {expected:?}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "kernel e_12\n   0 const          i32   []           12
   1 define_global  i32   []           data0 12
   2 range          i32   [0]          3u
   3 index          i32   [1, 2]
   4 store          void  [3, 2]
   5 endrange       void  [2]\n";

    fn kernel() -> Linear {
        parse_linears(TEXT).expect("it is well formed").remove(0)
    }

    #[test]
    fn texts_of_kernels_read_back() {
        assert_eq!(check_text(&kernel()), Ok(()));
    }

    #[test]
    fn forward_references_and_changed_uops_are_reported() {
        let mut kernel = kernel();
        assert_eq!(check_as_written(TEXT, &[kernel.clone()]), Ok(()));
        kernel.uops[4].src[0] = 4;
        let text = TEXT.replace("[3, 2]", "[4, 2]");
        // The parser refuses it, so the kernel that a wrong parser would give is built by hand.
        let problem = check_as_written(&text, &[kernel.clone()]).expect_err("it refers to itself");
        assert!(problem.contains("not above"), "{problem}");
        kernel.uops[4].src[0] = 2;
        let problem = check_as_written(TEXT, &[kernel]).expect_err("it has another source");
        assert!(problem.contains("was read as"), "{problem}");
    }

    #[test]
    fn constants_of_another_value_are_reported() {
        let check = |dtype: &str, literal: &str, written: &str| {
            let text = format!("kernel k\n 0 const {dtype} [] ");
            let read = parse_linears(&format!("{text}{literal}\n")).expect("it is well formed");
            check_as_written(&format!("{text}{written}\n"), &read).is_ok()
        };
        for (dtype, literal, written) in [
            ("i32", "1", "01"),
            ("i32", "-1", "0xffffffff"),
            ("f32", "1.5", "1.50"),
            ("f16", "0.1", "0.1"),
            ("f64", "NaN", "nan"),
            ("bool", "true", "0x2"),
        ] {
            assert!(check(dtype, literal, written), "{written} is {literal}");
        }
        for (dtype, literal, written) in [
            ("i32", "1", "1x"),
            ("i32", "1", "2"),
            ("f32", "1.5", "1.5x"),
            ("f32", "0.0", "-0.0"),
            ("f64", "NaN", "1.0"),
            ("bool", "true", "false"),
            ("bool", "true", "0x0"),
        ] {
            assert!(!check(dtype, literal, written), "{written} is not {literal}");
        }
    }

    #[test]
    fn leading_zeros_do_not_count() {
        assert!(is_alike("data00 012", "data0 12") && is_alike("03u", "3u"));
        assert!(!is_alike("data1 12", "data0 12") && !is_alike("10", "1"));
    }

    #[test]
    fn damage_is_drawn_of_every_kind() {
        let mut draw = Draw::new(7);
        let texts: Vec<String> = (0..400).map(|_| damaged(TEXT, &mut draw)).collect();
        assert_eq!(without_words(TEXT).len(), 3 * (2 + 5 + 6 + 5 + 5 + 5 + 4));
        let read = texts.iter().filter(|text| parse_linears(text).is_ok()).count();
        assert!((40..360).contains(&read), "{read} of 400 are read");
        for text in texts {
            if let Ok(read) = parse_linears(&text) {
                assert_eq!(check_as_written(&text, &read), Ok(()), "{text}");
            }
        }
    }
}
