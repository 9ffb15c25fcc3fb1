//! Text forms of kernels: what is printed reads back to itself, and a text that was damaged is
//! refused or means what it says.
//!
//! In: linear kernels. Out: the first text that reads back as another kernel, that refers to a uop
//! which is not above it and is not refused, or that makes the parser panic.

use gradiff::graph::{Axis, AxisKind, Linear, Op, parse_linears};

use crate::calls::Draw;

/// The words that reports of this check begin with.
pub(crate) const SAID: &str = "text form of a kernel";

/// Damaged texts of each kernel.
const DAMAGED: usize = 2;

/// Letters behind the numbers of ranges, as the text form is documented, and others.
const SUFFIXES: [(&str, Option<AxisKind>); 12] = [
    ("", Some(AxisKind::Loop)),
    ("g", Some(AxisKind::Global)),
    ("t", Some(AxisKind::Thread)),
    ("l", Some(AxisKind::Local)),
    ("w", Some(AxisKind::Warp)),
    ("p", Some(AxisKind::Group)),
    ("u", Some(AxisKind::Upcast)),
    ("r", Some(AxisKind::Unroll)),
    ("x", None),
    ("ug", None),
    ("uu", None),
    ("-", None),
];

/// Checks the text of a kernel and some that were damaged, drawn from the text.
///
/// # Errors
/// What is wrong, with the text.
pub fn check_text(kernel: &Linear) -> Result<(), String> {
    checked(kernel).map_err(|problem| format!("{SAID}: {problem}"))
}

fn checked(kernel: &Linear) -> Result<(), String> {
    let text = kernel.to_string();
    match crate::catch(|| parse_linears(&text))? {
        Ok(read) if read == std::slice::from_ref(kernel) && read[0].to_string() == text => {}
        Ok(read) => return Err(format!("{text}reads back as\n{}", printed(&read))),
        Err(error) => return Err(format!("{text}does not read back: {error}")),
    }
    let mut draw = Draw::new(crate::report::hash(&text));
    for _ in 0..DAMAGED {
        let damaged = damaged(&text, &mut draw);
        let read = crate::catch(|| parse_linears(&damaged));
        let read = read.map_err(|panic| format!("{panic} on\n{damaged}"))?;
        // That it was refused is right.
        if let Ok(read) = read {
            says_what_it_is(&damaged, &read).map_err(|why| format!("{why} in\n{damaged}"))?;
        }
    }
    axis_reads_back(&mut draw)
}

fn printed(kernels: &[Linear]) -> String {
    kernels.iter().map(Linear::to_string).collect()
}

/// Whether a text was read as the kernels that it says: line by line, and each source above.
fn says_what_it_is(text: &str, read: &[Linear]) -> Result<(), String> {
    let shown = printed(read);
    // Empty lines say nothing.
    let lines = || text.lines().filter(|line| !line.trim().is_empty());
    if lines().count() != shown.lines().count() {
        return Err("it has another count of uops".to_string());
    }
    for (line, shown) in lines().zip(shown.lines()) {
        // A constant may be printed in another way than it was written.
        let is_constant = shown.split_whitespace().nth(1) == Some(Op::Const.name());
        let until = |line: &str| match line.split_once(']') {
            Some((head, _)) if is_constant => words(head),
            _ => words(line),
        };
        if !is_alike(&until(line), &until(shown)) {
            return Err(format!("{line:?} was read as {shown:?}"));
        }
    }
    for (position, uop) in read.iter().flat_map(|kernel| kernel.uops.iter().enumerate()) {
        if uop.src.iter().any(|source| *source as usize >= position) {
            return Err(format!("uop {position} has a source that is not above"));
        }
    }
    match parse_linears(&shown) {
        Ok(again) if again == read => Ok(()),
        Ok(_) => Err("printed and read once more it is another kernel".to_string()),
        Err(error) => Err(format!("printed again it is refused: {error}")),
    }
}

fn words(line: &str) -> String {
    line.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Whether two texts are the same but for zeros before numbers.
fn is_alike(one: &str, other: &str) -> bool {
    let plain = |text: &str| {
        let mut plain = String::new();
        let mut before = ' ';
        let mut rest = text.chars().peekable();
        while let Some(letter) = rest.next() {
            let leads = letter == '0' && !before.is_ascii_digit();
            let is_more = rest.peek().is_some_and(char::is_ascii_digit);
            if leads && is_more {
                continue;
            }
            plain.push(letter);
            before = letter;
        }
        plain.replace("-0", "0")
    };
    plain(one) == plain(other)
}

/// The text with one thing changed.
pub(crate) fn damaged(text: &str, draw: &mut Draw) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_string).collect();
    let at = 1 + draw.below(lines.len() - 1);
    match draw.below(7) {
        0 => drop(lines.remove(at)),
        1 => lines.insert(at, lines[at].clone()),
        2 => lines.swap(at, 1 + draw.below(text.lines().count() - 1)),
        3 => {
            let kept = draw.below(lines[at].len());
            lines[at].truncate(kept);
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
                .map(|(place, _)| place)
                .collect();
            if !digits.is_empty() {
                let place = digits[draw.below(digits.len())];
                let digit = char::from(b'0' + draw.below(10) as u8);
                lines[at].replace_range(place..=place, &digit.to_string());
            }
        }
    }
    lines.join("\n") + "\n"
}

/// Axes of every kind read back; letters that are no kind are refused.
fn axis_reads_back(draw: &mut Draw) -> Result<(), String> {
    let (suffix, kind) = draw.pick(&SUFFIXES);
    let number = draw.below(200) as i64;
    let text = format!("{number}{suffix}");
    let wanted = kind.map(|kind| Axis { kind, number });
    let found = Axis::parse(&text);
    if found != wanted || wanted.is_some_and(|axis| axis.to_string() != text) {
        return Err(format!("the axis {text:?} is read as {found:?}, not {wanted:?}"));
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
    fn forward_references_and_other_uops_are_seen() {
        let mut kernel = kernel();
        assert_eq!(says_what_it_is(TEXT, &[kernel.clone()]), Ok(()));
        kernel.uops[4].src[0] = 4;
        let text = TEXT.replace("[3, 2]", "[4, 2]");
        // The parser refuses it, so the answer of one that does not is made by hand.
        let problem = says_what_it_is(&text, &[kernel.clone()]).expect_err("it refers to itself");
        assert!(problem.contains("not above"), "{problem}");
        kernel.uops[4].src[0] = 2;
        let problem = says_what_it_is(TEXT, &[kernel]).expect_err("it has another source");
        assert!(problem.contains("was read as"), "{problem}");
    }

    #[test]
    fn zeros_before_numbers_do_not_count() {
        assert!(is_alike("data00 012", "data0 12") && is_alike("03u", "3u"));
        assert!(!is_alike("data1 12", "data0 12") && !is_alike("10", "1"));
    }

    #[test]
    fn damage_is_drawn_of_every_kind() {
        let mut draw = Draw::new(7);
        let texts: Vec<String> = (0..400).map(|_| damaged(TEXT, &mut draw)).collect();
        let read = texts.iter().filter(|text| parse_linears(text).is_ok()).count();
        assert!((40..360).contains(&read), "{read} of 400 are read");
        for text in texts {
            if let Ok(read) = parse_linears(&text) {
                assert_eq!(says_what_it_is(&text, &read), Ok(()), "{text}");
            }
        }
    }
}
