//! The text of tensors for people, in NumPy's layout: columns are aligned, and of more than 1,000
//! elements the first and last three along each axis are shown.

use std::fmt::{Display, Formatter};

use gradiff_graph::{Constant, DType};
use half::{bf16, f16};

use crate::Tensor;

/// Elements above which not all are shown.
const MAX_SHOWN: i64 = 1000;
/// Elements that are shown at each end of an axis then.
const EDGE: usize = 3;
/// Columns of a line, with the closing bracket.
const COLUMNS: usize = 75;
/// Digits after the point.
const PRECISION: usize = 8;
/// Stands for elements that are not shown.
const SUMMARY: &str = "...";

/// Computes the elements and writes them as NumPy's `print` does; if they cannot be computed, the
/// dtype, the shape and the error. [`to_text`](Tensor::to_text) gives all elements, and an error.
///
/// ```
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[2, 2], &[1f32, 2.5, -3.0, 400.0])?;
/// assert_eq!(x.to_string(), "[[  1.    2.5]\n [ -3.  400. ]]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
impl Display for Tensor {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let bytes = match self.to_bytes() {
            Ok(bytes) => bytes,
            Err(error) => return write!(f, "{self:?}: {error}"),
        };
        let sizes: Vec<usize> = self.shape().iter().map(|size| *size as usize).collect();
        let elements: Vec<Constant> = bytes
            .chunks_exact(self.dtype().size_bytes())
            .map(|bytes| {
                let mut bits = [0; 8];
                bits[..bytes.len()].copy_from_slice(bytes);
                Constant::from_bits(self.dtype(), u64::from_le_bytes(bits))
            })
            .collect();
        if elements.is_empty() {
            return f.write_str("[]");
        }
        if sizes.is_empty() {
            return f.write_str(&scalar(elements[0]));
        }
        let is_summary = MAX_SHOWN < self.size_elements();
        let mut strides = vec![1; sizes.len()];
        for axis in (1..sizes.len()).rev() {
            strides[axis - 1] = strides[axis] * sizes[axis];
        }
        let shown = |size: usize| -> Vec<Option<usize>> {
            if !is_summary || size <= 2 * EDGE {
                return (0..size).map(Some).collect();
            }
            let ends = (0..EDGE).map(Some).chain([None]);
            ends.chain((size - EDGE..size).map(Some)).collect()
        };
        let shown: Vec<Vec<Option<usize>>> = sizes.iter().map(|size| shown(*size)).collect();
        let mut visible = vec![0];
        for (positions, stride) in shown.iter().zip(&strides) {
            let positions: Vec<usize> = positions.iter().flatten().copied().collect();
            let starts = visible.iter();
            visible = starts
                .flat_map(|start| positions.iter().map(move |position| start + position * stride))
                .collect();
        }
        let visible: Vec<Constant> = visible.into_iter().map(|at| elements[at]).collect();
        let layout = Layout {
            elements: &elements,
            shown: &shown,
            strides: &strides,
            columns: Columns::of(&visible),
        };
        f.write_str(&layout.list(0, 0, " ", COLUMNS))
    }
}

/// A list of nested lists of elements.
struct Layout<'a> {
    elements: &'a [Constant],
    /// The positions that are shown along each axis, and gaps.
    shown: &'a [Vec<Option<usize>>],
    strides: &'a [usize],
    columns: Columns,
}

impl Layout<'_> {
    /// Returns the list along an axis from an element on, whose further lines are indented.
    fn list(&self, axis: usize, start: usize, indent: &str, width: usize) -> String {
        let is_last = axis + 1 == self.shown.len();
        let inner = format!("{indent} ");
        let parts = self.shown[axis].iter().map(|position| match position {
            None => SUMMARY.to_string(),
            Some(position) if is_last => {
                self.columns.text(self.elements[start + position * self.strides[axis]])
            }
            Some(position) => {
                self.list(axis + 1, start + position * self.strides[axis], &inner, width - 1)
            }
        });
        let text = match is_last {
            true => lines(parts, indent, width - 1),
            false => {
                let lines: Vec<String> = parts.map(|part| format!("{indent}{part}")).collect();
                lines.join(&"\n".repeat(self.shown.len() - axis - 1))
            }
        };
        format!("[{}]", &text[indent.len()..])
    }
}

/// Joins words by spaces, in lines of at most so many columns where that is possible.
fn lines(words: impl Iterator<Item = String>, indent: &str, width: usize) -> String {
    let (mut text, mut line) = (String::new(), indent.to_string());
    for (number, word) in words.enumerate() {
        if number != 0 {
            line.push(' ');
        }
        if indent.len() < line.len() && width < line.len() + word.len() {
            text.push_str(line.trim_end());
            text.push('\n');
            line = indent.to_string();
        }
        line.push_str(&word);
    }
    text + &line
}

/// The form that all elements have.
enum Columns {
    Words,
    Integers {
        width: usize,
    },
    /// Floats: characters before the point and after it.
    Positional {
        before: usize,
        after: usize,
    },
    /// Floats with an exponent of at least so many digits.
    Scientific {
        before: usize,
        digits: usize,
        exponent: usize,
    },
}

impl Columns {
    /// Returns the form of these elements.
    fn of(elements: &[Constant]) -> Columns {
        let dtype = elements[0].dtype();
        if dtype == DType::Bool {
            return Columns::Words;
        }
        if dtype.is_int() {
            let widths = elements.iter().map(|element| element.to_string().len());
            return Columns::Integers { width: widths.max().unwrap_or(0) };
        }
        let numbers = || elements.iter().map(|element| (element, value(*element)));
        let finite = || numbers().filter(|(_, value)| value.is_finite());
        let sizes = || finite().map(|(_, value)| value.abs()).filter(|size| *size != 0.0);
        let largest = sizes().fold(0.0, f64::max);
        let least = sizes().fold(f64::INFINITY, f64::min);
        let is_scientific =
            positional_limit(dtype).min(1e8) <= largest || least < 1e-4 || 1000.0 < largest / least;
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        // Other words are right aligned, and may be longer than all numbers.
        let longest = numbers().filter(|(_, value)| !value.is_finite());
        let longest = width(&mut longest.map(|(_, value)| word(value).len()));
        let least_before = |after: usize| longest.saturating_sub(after + 1);
        if largest != 0.0 && is_scientific {
            let lengths = || finite().map(|(element, _)| scientific(*element));
            let [before, digits, exponent] =
                [0, 1, 2].map(|part| width(&mut lengths().map(|lengths| lengths[part])));
            let before = before.max(least_before(exponent + 2 + digits));
            return Columns::Scientific { before, digits, exponent };
        }
        let parts = || finite().map(|(element, _)| positional(*element));
        let before = width(&mut parts().map(|(whole, _)| whole.len()));
        let after = width(&mut parts().map(|(_, fraction)| fraction.len()));
        Columns::Positional { before: before.max(least_before(after)), after }
    }

    /// Returns the text of an element, padded with spaces.
    fn text(&self, element: Constant) -> String {
        let special = |width: usize| {
            let value = value(element);
            (!value.is_finite()).then(|| format!("{:>width$}", word(value)))
        };
        match *self {
            Columns::Words => if element.is_true() { " True" } else { "False" }.to_string(),
            Columns::Integers { width } => format!("{:>width$}", element.to_string()),
            Columns::Positional { before, after } => {
                special(before + after + 1).unwrap_or_else(|| {
                    let (whole, fraction) = positional(element);
                    format!("{whole:>before$}.{fraction:<after$}")
                })
            }
            Columns::Scientific { before, digits, exponent } => {
                special(before + digits + exponent + 3).unwrap_or_else(|| {
                    let (number, power) = in_parts(&format!("{:.digits$e}", value(element)));
                    let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
                    let sign = if power < 0 { '-' } else { '+' };
                    let power = power.unsigned_abs();
                    format!("{whole:>before$}.{fraction}e{sign}{power:0>exponent$}")
                })
            }
        }
    }
}

/// Returns the text of the element of a tensor without axes.
fn scalar(element: Constant) -> String {
    let number = value(element);
    if !element.dtype().is_float() {
        return Columns::of(&[element]).text(element).trim_start().to_string();
    }
    if !number.is_finite() {
        return word(number).to_string();
    }
    let range =
        1e-4..if element.dtype() == DType::F64 { 1e16 } else { positional_limit(element.dtype()) };
    if number != 0.0 && !range.contains(&number.abs()) {
        let (negative, digits, exponent) = shortest(element);
        let (first, rest) = digits.split_at(1);
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if negative { "-" } else { "" };
        let power = if exponent < 0 { '-' } else { '+' };
        return format!("{sign}{first}{point}{rest}e{power}{:02}", exponent.unsigned_abs());
    }
    let (whole, fraction) = positional_digits(shortest(element));
    format!("{whole}.{}", if fraction.is_empty() { "0" } else { &fraction })
}

/// Returns the number from which on floats are written with an exponent. Those below it with as
/// many decimal digits are told apart.
fn positional_limit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 1e3,
        DType::BF16 => 1e2,
        DType::F32 => 1e6,
        _ => 1e15,
    }
}

fn value(element: Constant) -> f64 {
    element.to_float().unwrap_or(0.0)
}

fn word(value: f64) -> &'static str {
    match value {
        _ if value.is_nan() => "nan",
        _ if value < 0.0 => "-inf",
        _ => "inf",
    }
}

/// Returns the fewest decimal digits that are read as the same number of the dtype, from the first
/// that is not 0 on: whether it is negative, the digits, and the exponent of the first.
fn shortest(element: Constant) -> (bool, String, i32) {
    let number = value(element);
    let is_same = |text: &str| match element.dtype() {
        DType::F16 => f16::from_f64(text.parse().unwrap_or(f64::NAN)).to_f64() == number,
        DType::BF16 => bf16::from_f64(text.parse().unwrap_or(f64::NAN)).to_f64() == number,
        _ => true,
    };
    let text = match element.dtype() {
        DType::F32 => format!("{:e}", number as f32),
        DType::F64 => format!("{number:e}"),
        _ => (0..17)
            .map(|digits| format!("{number:.digits$e}"))
            .find(|text| is_same(text))
            .unwrap_or_else(|| format!("{number:e}")),
    };
    let (digits, exponent) = in_parts(&text);
    let digits = digits.replace(['.', '-'], "");
    let trimmed = digits.trim_end_matches('0');
    let digits = if trimmed.is_empty() { "0" } else { trimmed };
    (number.is_sign_negative(), digits.to_string(), exponent)
}

/// Returns what is before and after the point of a number that is written without an exponent.
fn positional_digits((negative, digits, exponent): (bool, String, i32)) -> (String, String) {
    let sign = if negative { "-" } else { "" };
    let count = digits.len() as i32;
    if exponent < 0 {
        let zeros = "0".repeat((-exponent - 1) as usize);
        return (format!("{sign}0"), if digits == "0" { String::new() } else { zeros + &digits });
    }
    let whole = (exponent + 1) as usize;
    match count <= exponent + 1 {
        true => (format!("{sign}{digits}{}", "0".repeat(whole - digits.len())), String::new()),
        false => (format!("{sign}{}", &digits[..whole]), digits[whole..].to_string()),
    }
}

/// As [`positional_digits`], with at most [`PRECISION`] digits after the point.
fn positional(element: Constant) -> (String, String) {
    let (whole, fraction) = positional_digits(shortest(element));
    if fraction.len() <= PRECISION {
        return (whole, fraction);
    }
    let rounded = format!("{:.PRECISION$}", value(element));
    let (whole, fraction) = rounded.split_once('.').unwrap_or((&rounded, ""));
    (whole.to_string(), fraction.trim_end_matches('0').to_string())
}

/// Returns the lengths of the parts of a number with an exponent: the first digit with its sign, at
/// most [`PRECISION`] digits after the point, and the digits of the exponent.
fn scientific(element: Constant) -> [usize; 3] {
    let (negative, digits, mut power) = shortest(element);
    let mut count = digits.len() - 1;
    if PRECISION < count {
        let (number, rounded) = in_parts(&format!("{:.PRECISION$e}", value(element).abs()));
        power = rounded;
        count = number.trim_end_matches('0').trim_end_matches('.').len().saturating_sub(2);
    }
    let exponent = format!("{:02}", power.unsigned_abs()).len();
    [1 + usize::from(negative), count, exponent]
}

/// Returns the number and the power of ten of a text with an exponent.
fn in_parts(text: &str) -> (String, i32) {
    let (number, power) = text.split_once('e').unwrap_or((text, "0"));
    (number.to_string(), power.parse().unwrap_or(0))
}
