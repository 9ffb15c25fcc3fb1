//! Parses the text form of linear kernels: the inverse of `Display` of [`Linear`].
//!
//! A kernel is a line `kernel name`, then a line `position op dtype [sources] arg` for each uop, as
//! in snapshots. The parser checks that each uop has as many sources as its op takes and that they
//! are above it; [`crate::verify::verify_kernel`] checks the other invariants.

use smallvec::SmallVec;

use crate::text::TextError;
use crate::text::{parse_arg, split_word};
use crate::{DType, Instruction, Linear, Op};

/// Parses kernels; empty lines and lines that begin with `#` are ignored.
///
/// # Errors
/// A line that is not a uop, with its number and what was expected; a text without a kernel; a
/// kernel without a uop.
pub fn parse_linears(text: &str) -> Result<Vec<Linear>, TextError> {
    let mut kernels: Vec<Linear> = Vec::new();
    // The line on which the last kernel begins.
    let mut start = 1;
    let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
    for (line, text) in lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let failed = |problem: String| TextError { line, problem };
        let (word, name) = split_word(text);
        match (word, kernels.last_mut()) {
            ("kernel", previous) => {
                check_not_empty(previous.as_deref(), start)?;
                if name.is_empty() || name.contains(char::is_whitespace) {
                    return Err(failed(format!("{name:?} is not the name of a kernel")));
                }
                start = line;
                kernels.push(Linear { name: name.to_owned(), uops: Vec::new() });
            }
            (_, Some(kernel)) => {
                let uop = parse_uop(text, kernel.uops.len()).map_err(failed)?;
                kernel.uops.push(uop);
            }
            (_, None) => {
                return Err(failed(format!("expected \"kernel\" and a name, not {text:?}")));
            }
        }
    }
    check_not_empty(kernels.last(), start)?;
    match kernels.is_empty() {
        true => Err(TextError { line: 1, problem: "there is no kernel".to_owned() }),
        false => Ok(kernels),
    }
}

fn check_not_empty(kernel: Option<&Linear>, line: usize) -> Result<(), TextError> {
    match kernel {
        Some(kernel) if kernel.uops.is_empty() => {
            Err(TextError { line, problem: format!("kernel {} has no uops", kernel.name) })
        }
        _ => Ok(()),
    }
}

/// Parses the line of the uop at this position.
fn parse_uop(line: &str, position: usize) -> Result<Instruction, String> {
    let (number, rest) = split_word(line);
    if number.parse() != Ok(position) {
        return Err(format!("expected uop {position}, not {number:?}"));
    }
    let (op, rest) = split_word(rest);
    let (dtype, rest) = split_word(rest);
    let op = Op::from_name(op).ok_or_else(|| format!("there is no op {op:?}"))?;
    let (dtype, lanes) = parse_dtype(dtype)?;
    let sources = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (sources, arg) = sources.ok_or_else(|| format!("expected [sources], not {rest:?}"))?;
    let src: SmallVec<[u32; 4]> = match sources.trim() {
        "" => SmallVec::new(),
        list => {
            list.split(',').map(|text| parse_source(text, position)).collect::<Result<_, _>>()?
        }
    };
    let (min, max) = op.row().arity;
    if src.len() < min || max < src.len() {
        let allowed = if min == max { min.to_string() } else { format!("{min} to {max}") };
        return Err(format!("{op} with {} sources: it takes {allowed}", src.len()));
    }
    if op == Op::Buffer {
        return Err("a linear kernel has no buffers: its arrays are `define_global`".to_owned());
    }
    let arg = parse_arg(op, dtype, arg.trim(), &mut Vec::new())?;
    Ok(Instruction { op, dtype, lanes, src, arg })
}

/// Parses a dtype and its number of lanes: `f32`, `f32x16`.
fn parse_dtype(text: &str) -> Result<(DType, u8), String> {
    let (name, lanes) = match text.rsplit_once('x') {
        None => (text, Some(1)),
        Some((name, lanes)) => (name, lanes.parse().ok().filter(|lanes| 1 < *lanes)),
    };
    let lanes = lanes.ok_or_else(|| format!("{text:?} is not a dtype with 2 to 255 lanes"))?;
    let dtype = DType::from_name(name).ok_or_else(|| format!("there is no dtype {name:?}"))?;
    Ok((dtype, lanes))
}

/// Parses a source of the uop at this position.
fn parse_source(text: &str, position: usize) -> Result<u32, String> {
    let text = text.trim();
    let source: u32 = text.parse().map_err(|_| format!("source {text:?} is not a number"))?;
    let is_above = (source as usize) < position;
    let refusal = || format!("source {source} is not above uop {position}");
    is_above.then_some(source).ok_or_else(refusal)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::verify_kernel;

    const GROUPS: &str = "kernel r_2_4n1
   0 const          i32   []           2
   1 const          i32   []           4
   2 const          f32   []           0x7fc00000
   3 define_global  f32   []           data0 2
   4 define_local   f32   []           local0 4
   5 range          i32   [0]          3g
   6 range          i32   [1]          0l
   7 index          f32   [4, 6]
   8 store          void  [7, 2]
   9 barrier        void  [8]
  10 load           f32   [7, 9]
  11 vectorize      f32x16 [10]
  12 mulacc         f32x16 [11, 11, 11]
  13 lane           f32   [12]         15
  14 index          f32   [3, 5]
  15 store          void  [14, 13]
  16 endrange       void  [6]
  17 endrange       void  [5]
";

    #[test]
    fn text_reads_back() {
        let kernels = parse_linears(GROUPS).expect("it parses");
        assert_eq!(kernels.len(), 1);
        assert_eq!(kernels[0].to_string(), GROUPS);
        assert_eq!(verify_kernel(&kernels[0]), Ok(()));
        let twice = parse_linears(&format!("# kernel 0\n{GROUPS}\n# kernel 1\n{GROUPS}"));
        assert_eq!(twice.expect("it parses"), [kernels.clone(), kernels].concat());
    }

    #[test]
    fn malformed_text_is_refused_with_its_line() {
        let edits = [
            ("kernel r_2_4n1", "kernel", "line 1: \"\" is not the name"),
            ("kernel r_2_4n1\n", "", "line 1: expected \"kernel\""),
            ("  12 mulacc", "  13 mulacc", "line 14: expected uop 12"),
            ("mulacc", "muladd", "line 14: there is no op"),
            ("f32x16 [11,", "f32x1 [11,", "line 14: \"f32x1\" is not a dtype with"),
            ("f32x16 [11,", "f32x256 [11,", "line 14: \"f32x256\" is not a dtype with"),
            ("f32x16 [11,", "f31x16 [11,", "line 14: there is no dtype"),
            ("[11, 11, 11]", "[11, 12, 11]", "line 14: source 12 is not above"),
            ("[11, 11, 11]", "[11, 11]", "line 14: mulacc with 2 sources"),
            ("[11, 11, 11]", "11, 11, 11", "line 14: expected [sources]"),
            ("[11, 11, 11]", "[11, -1, 11]", "line 14: source \"-1\" is not a number"),
            ("3g", "3x", "line 7: expected the number of a range"),
            ("data0 2", "data0", "line 5: expected a number"),
        ];
        for (from, to, problem) in edits {
            let error = parse_linears(&GROUPS.replacen(from, to, 1)).expect_err(to).to_string();
            assert!(error.starts_with(problem), "{to}: {error}");
        }
        for (text, problem) in [("", "there is no kernel"), ("kernel E", "kernel E has no uops")] {
            let error = parse_linears(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn kernels_of_invalid_nodes_are_refused() {
        let edits = [
            ("lane           f32   [12]         15", "lane f32 [12] 16", "lanes"),
            ("store          void  [14, 13]", "store void [14, 0]", "uop 15 (store)"),
            ("store          void  [14, 13]", "store void [14, 13] add []", "not supported"),
            ("index          f32   [3, 5]", "index f32 [3, 2]", "uop 14 (index)"),
            ("data0 2", "data0 -2", "uop 3 (define_global)"),
            ("endrange       void  [5]", "endrange void [6]", "innermost"),
        ];
        for (from, to, problem) in edits {
            let kernels = parse_linears(&GROUPS.replacen(from, to, 1)).expect(to);
            let error = verify_kernel(&kernels[0]).expect_err(to).to_string();
            assert!(error.contains(problem), "{to}: {error}");
        }
    }
}
