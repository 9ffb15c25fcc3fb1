//! The text form of nodes: one node a line, which parses back.
//!
//! ```text
//! %0 = const i32 3
//! %1 = define_var i32 n 0..9
//! %2 = add i32 %1 %0
//! ```
//!
//! A line is a number, an op, a dtype, sources by number, then the arg. The last line is the root.
//! Buffers are numbered in order of appearance (`#0 16`: the first one, of 16 elements); parsing
//! makes new ones. The device of a buffer follows, unless it is the default one. A NaN is written
//! as its bits (`0x7fc00000`).

pub use crate::infix::infix;
pub use crate::linear_text::parse_linears;
use std::sync::Arc;

use gradiff_view::{ShapeTracker, View};
use rustc_hash::FxHashMap;

use crate::placement::ANY;
use crate::tensor_core::TensorCore;
use crate::{
    Arg, Axis, Buffer, Constant, DType, Dims, Global, Local, Op, Pairs, Placement, Sources, UOp,
    Variable,
};

/// An error in a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct TextError {
    /// The line, counted from 1.
    pub line: usize,
    /// The expected and the actual text.
    pub problem: String,
}

/// Formats an arg; empty for none.
pub(crate) fn arg(arg: &Arg) -> String {
    match arg {
        Arg::None => String::new(),
        Arg::Const(value) => constant(*value),
        Arg::Int(value) => value.to_string(),
        Arg::Axis(axis) => axis.to_string(),
        Arg::Dims(dims) => format!("{:?}", dims.as_slice()),
        Arg::Pairs(pairs) => format!("{:?}", pairs.as_slice()),
        Arg::View(tracker) => tracker.to_string(),
        Arg::Reduce(op, axes) => format!("{op} {:?}", axes.as_slice()),
        Arg::Buffer(buffer) => format!("{buffer:?}"),
        Arg::Global(global) => format!("data{} {}", global.slot, global.size_elements),
        Arg::Local(local) => format!("local{} {}", local.number, local.size_elements),
        Arg::Var(variable) => format!("{} {}..{}", variable.name, variable.min, variable.max),
        Arg::TensorCore(core) => core.name.to_owned(),
        Arg::Device(placement) => placement.to_string(),
        Arg::Name(name) => name.to_string(),
    }
}

fn constant(value: Constant) -> String {
    match value.to_float() {
        Some(float) if float.is_nan() => format!("{:#x}", value.bits()),
        _ => value.to_string(),
    }
}

impl std::fmt::Debug for UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} {}", self.op(), self.dtype(), arg(self.arg()))
    }
}

impl std::fmt::Display for UOp {
    /// Writes [`UOp::to_text`].
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_text())
    }
}

impl UOp {
    /// Formats the graph below this node, sources before users; [`parse_text`] reads it back.
    pub fn to_text(&self) -> String {
        let mut numbers: FxHashMap<UOp, usize> = FxHashMap::default();
        let mut buffers: Vec<Buffer> = Vec::new();
        let mut text = String::new();
        for (number, node) in self.toposort().into_iter().enumerate() {
            text += &format!("%{number} = {} {}", node.op(), node.dtype());
            for source in node.src() {
                text += &format!(" %{}", numbers[source]);
            }
            let arg = match node.arg() {
                Arg::Buffer(buffer) => {
                    let known = buffers.iter().position(|known| known == buffer);
                    let index = known.unwrap_or_else(|| {
                        buffers.push(buffer.clone());
                        buffers.len() - 1
                    });
                    let text = format!("#{index} {}", buffer.size_elements());
                    match buffer.placement() {
                        Some(Placement::Default) => text,
                        Some(placement) => format!("{text} {placement}"),
                        None => format!("{text} {ANY}"),
                    }
                }
                other => self::arg(other),
            };
            if !arg.is_empty() {
                text += &format!(" {arg}");
            }
            text.push('\n');
            numbers.insert(node, number);
        }
        text
    }
}

/// Parses the output of [`UOp::to_text`]; the last line is the root. Without buffers the result is
/// the same interned node; each buffer becomes a new one.
///
/// # Errors
/// A line that is not a node, with its number and what was expected. The graph is not verified;
/// see [`crate::verify::verify`].
pub fn parse_text(text: &str) -> Result<UOp, TextError> {
    let mut nodes: Vec<UOp> = Vec::new();
    let mut buffers: Vec<Buffer> = Vec::new();
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let failed = |problem| TextError { line: index + 1, problem };
        let node = parse_line(line.trim(), &nodes, &mut buffers).map_err(failed)?;
        nodes.push(node);
    }
    nodes.pop().ok_or(TextError { line: 1, problem: "there is no node".to_owned() })
}

fn parse_line(line: &str, nodes: &[UOp], buffers: &mut Vec<Buffer>) -> Result<UOp, String> {
    let prefix = format!("%{} = ", nodes.len());
    let rest = line.strip_prefix(&prefix).ok_or_else(|| format!("expected {prefix:?}"))?;
    let (op, rest) = split_word(rest);
    let (dtype, mut rest) = split_word(rest);
    let op = Op::from_name(op).ok_or_else(|| format!("there is no op {op:?}"))?;
    let dtype = DType::from_name(dtype).ok_or_else(|| format!("there is no dtype {dtype:?}"))?;
    let mut src = Sources::new();
    while let Some(after) = rest.strip_prefix('%') {
        let (number, after) = split_word(after);
        let index: usize = number.parse().map_err(|_| format!("%{number} is not a number"))?;
        src.push(nodes.get(index).ok_or_else(|| format!("%{index} is not above"))?.clone());
        rest = after;
    }
    let (min, max) = op.row().arity;
    if src.len() < min || max < src.len() {
        return Err(format!("{op} with {} sources", src.len()));
    }
    let arg = parse_arg(op, dtype, rest, buffers)?;
    Ok(UOp::new(op, dtype, src, arg))
}

pub(crate) fn split_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
    (word, rest.trim_start())
}

/// Parses the text after the sources of a node, as [`arg`] writes it.
pub(crate) fn parse_arg(
    op: Op,
    dtype: DType,
    text: &str,
    buffers: &mut Vec<Buffer>,
) -> Result<Arg, String> {
    match op {
        Op::Const => parse_constant(dtype, text).map(Arg::Const),
        Op::Buffer => parse_buffer(dtype, text, buffers).map(Arg::Buffer),
        Op::DefineGlobal => {
            let (slot, size) = split_word(text);
            let slot = slot.strip_prefix("data").ok_or("expected dataN")?;
            let global = Global { slot: number(slot)?, size_elements: number(size)? };
            Ok(Arg::Global(global))
        }
        Op::DefineLocal => {
            let (number, size) = split_word(text);
            let number = number.strip_prefix("local").ok_or("expected localN")?;
            let local = Local { number: self::number(number)?, size_elements: self::number(size)? };
            Ok(Arg::Local(local))
        }
        Op::DefineVar => {
            let (name, range) = text.rsplit_once(' ').ok_or("expected a name and min..max")?;
            let (min, max) = range.split_once("..").ok_or("expected min..max")?;
            let (min, max) = (number(min)?, number(max)?);
            Ok(Arg::Var(Arc::new(Variable { name: name.to_owned(), min, max })))
        }
        Op::Reduce | Op::ReduceAxis => parse_reduction(text),
        Op::Store if Op::from_name(split_word(text).0).is_some() => parse_reduction(text),
        Op::Range => {
            let axis =
                Axis::parse(text).ok_or("expected the number of a range, such as 3 or 3u")?;
            Ok(Arg::Axis(axis))
        }
        Op::Copy => placement(text).map(Arg::Device),
        Op::Function if !text.is_empty() => Ok(Arg::Name(text.into())),
        Op::Wmma => {
            let core = TensorCore::named(text.trim());
            core.map(Arg::TensorCore).ok_or_else(|| format!("there is no tensor core {text:?}"))
        }
        Op::Pad | Op::Shrink => pairs(text).map(|pairs| Arg::Pairs(Pairs::from_vec(pairs))),
        _ if text.is_empty() => Ok(Arg::None),
        _ if text.starts_with("ShapeTracker(") => tracker(text).map(Arg::View),
        _ if text.starts_with('[') => Ok(Arg::Dims(Dims::from_vec(numbers(text)?))),
        _ => number(text).map(Arg::Int),
    }
}

fn parse_reduction(text: &str) -> Result<Arg, String> {
    let (op, axes) = split_word(text);
    let op = Op::from_name(op).ok_or_else(|| format!("there is no op {op:?}"))?;
    Ok(Arg::Reduce(op, Dims::from_vec(numbers(axes)?)))
}

fn placement(text: &str) -> Result<Placement, String> {
    let expected = || format!("expected `default` or the name of a device, not {text:?}");
    Placement::parse(text).ok_or_else(expected)
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("expected a number, not {text:?}"))
}

fn parse_constant(dtype: DType, text: &str) -> Result<Constant, String> {
    if dtype == DType::Void {
        return Err("a constant is not void".to_owned());
    }
    if let Some(digits) = text.strip_prefix("0x") {
        let bits = u64::from_str_radix(digits, 16)
            .map_err(|_| format!("{text} is not a bit pattern in hexadecimal"))?;
        return Ok(Constant::from_bits(dtype, bits));
    }
    match dtype.int_range() {
        _ if dtype == DType::Bool => match text {
            "true" | "false" => Ok(Constant::bool(text == "true")),
            _ => Err(format!("expected true or false, not {text:?}")),
        },
        None if dtype == DType::F32 => {
            Ok(Constant::from_bits(dtype, u64::from(number::<f32>(text)?.to_bits())))
        }
        None => Ok(Constant::float(dtype, number(text)?)),
        Some((low, high)) => {
            let value: i128 = number(text)?;
            let is_inside = low <= value && value <= high;
            is_inside
                .then(|| Constant::int(dtype, value))
                .ok_or(format!("{value} is not a value of {dtype}"))
        }
    }
}

fn parse_buffer(dtype: DType, text: &str, buffers: &mut Vec<Buffer>) -> Result<Buffer, String> {
    let (index, rest) = split_word(text);
    let (size, device) = split_word(rest);
    let index: usize = number(index.strip_prefix('#').ok_or("expected #N and a size")?)?;
    let size: i64 = number(size)?;
    let placement = match device {
        "" => Some(Placement::Default),
        ANY => None,
        device => Some(placement(device)?),
    };
    if dtype == DType::Void || size < 0 || buffers.len() < index {
        return Err(format!("buffer #{index} of {size} elements of {dtype} is not valid here"));
    }
    if index == buffers.len() {
        buffers.push(Buffer::on(placement.clone(), dtype, size));
    }
    let buffer = buffers[index].clone();
    let is_same = buffer.dtype() == dtype
        && buffer.size_elements() == size
        && buffer.placement() == placement.as_ref();
    is_same.then_some(buffer).ok_or_else(|| format!("buffer #{index} differs from that above"))
}

/// Parses the numbers of `[1, 2]` or `(1, 2)`.
fn numbers(text: &str) -> Result<Vec<i64>, String> {
    let inner = text.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']);
    let items = inner.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(number).collect()
}

/// Parses the pairs of `[(1, 2), (3, 4)]`.
fn pairs(text: &str) -> Result<Vec<(i64, i64)>, String> {
    let flat = numbers(&text.replace(['[', ']', '(', ')'], " "))?;
    if flat.len() % 2 != 0 {
        return Err(format!("expected pairs, not {text:?}"));
    }
    Ok(flat.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

/// Parses `ShapeTracker(views=(View(shape=..., strides=..., offset=..., mask=...,
/// contiguous=...),))`.
fn tracker(text: &str) -> Result<ShapeTracker, String> {
    let views: Result<Vec<View>, String> = text.split("View(").skip(1).map(view).collect();
    match views?.as_slice() {
        [] => Err("a tracker has a view".to_owned()),
        views => ShapeTracker::from_views(views).map_err(|error| error.to_string()),
    }
}

fn view(text: &str) -> Result<View, String> {
    let field = |name: &str, next: &str| {
        let (_, rest) = text.split_once(name).ok_or_else(|| format!("expected {name}"))?;
        rest.split_once(next).map(|(field, _)| field).ok_or_else(|| format!("expected {next}"))
    };
    let shape = numbers(field("shape=", ", strides=")?)?;
    let strides = numbers(field("strides=", ", offset=")?)?;
    let offset = number(field("offset=", ", mask=")?)?;
    let mask = match field("mask=", ", contiguous=")? {
        "None" => None,
        ranges => Some(pairs(ranges)?),
    };
    let is_mask_valid = mask.as_ref().is_none_or(|mask| {
        let inside = |((begin, end), size): (&(i64, i64), &i64)| 0 <= *begin && end <= size;
        mask.len() == shape.len() && mask.iter().zip(&shape).all(inside)
    });
    if strides.len() != shape.len() || !is_mask_valid {
        return Err("strides and mask do not fit the shape".to_owned());
    }
    View::create(&shape, Some(&strides), offset, mask.as_deref()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> UOp {
        let dims = |dims: &[i64]| Dims::from_slice(dims);
        let global = |slot| {
            let global = Global { slot, size_elements: 6 };
            UOp::new(Op::DefineGlobal, DType::F32, [], Arg::Global(global))
        };
        let tracker = ShapeTracker::from_shape(&[2, 3]).unwrap().flip(&[false, true]).unwrap();
        let padded = tracker.pad(&[(0, 1), (2, 0)]).unwrap().reshape(&[15]).unwrap();
        let load = UOp::new(Op::Load, DType::F32, [global(1)], Arg::View(padded));
        let sum = UOp::new(Op::ReduceAxis, DType::F32, [load], Arg::Reduce(Op::Add, dims(&[0])));
        let nan = UOp::constant(Constant::from_bits(DType::F32, 0x7fc0_0001));
        let view = Arg::View(ShapeTracker::from_shape(&[1]).unwrap());
        let bias = UOp::new(Op::View, DType::F32, [nan], view.clone());
        let value = UOp::binary(Op::Max, sum, bias);
        let store = UOp::new(Op::Store, DType::Void, [global(0), value], view);
        UOp::new(Op::Sink, DType::Void, [store], Arg::None)
    }

    #[test]
    fn text_parses_back_to_the_same_node() {
        assert_eq!(parse_text(&kernel().to_text()), Ok(kernel()));
        let store = kernel().src()[0].clone();
        let update = Arg::Reduce(Op::Add, Dims::new());
        let update = UOp::new(Op::Store, DType::Void, store.src().iter().cloned(), update);
        assert_eq!(parse_text(&update.to_text()), Ok(update));
        for dtype in DType::ALL {
            for value in [Constant::one(dtype), Constant::smallest(dtype), Constant::zero(dtype)] {
                let node = UOp::constant(value);
                assert_eq!(parse_text(&node.to_text()), Ok(node));
            }
        }
        let variable = Variable { name: "n".to_owned(), min: -3, max: 9 };
        let node = UOp::new(Op::DefineVar, DType::I64, [], Arg::Var(Arc::new(variable)));
        assert_eq!(parse_text(&node.to_text()), Ok(node));
    }

    #[test]
    fn text_of_buffers_is_stable() {
        let make = || {
            let buffer = Buffer::new(DType::F32, 6);
            let data = UOp::new(Op::Buffer, DType::F32, [], Arg::Buffer(buffer));
            let pads = Arg::Pairs(Pairs::from_slice(&[(1, 2)]));
            UOp::binary(Op::Add, UOp::new(Op::Pad, DType::F32, [data.clone()], pads), data)
        };
        let text = make().to_text();
        assert_eq!(text, make().to_text());
        assert_eq!(parse_text(&text).expect("it parses").to_text(), text);
        assert!(text.starts_with("%0 = buffer f32 #0 6\n%1 = pad f32 %0 [(1, 2)]\n"), "{text}");
    }

    #[test]
    fn text_has_the_devices() {
        let text = "%0 = buffer f32 #0 6 jit\n%1 = copy f32 %0 default\n\
                    %2 = buffer f32 #1 6\n%3 = add f32 %1 %2\n%4 = copy f32 %3 wgpu-core\n\
                    %5 = buffer f32 #2 6 any\n%6 = add f32 %4 %5\n";
        let node = parse_text(text).expect("it parses");
        assert_eq!(node.to_text(), text);
        assert_eq!(node.device(), Placement::parse("wgpu-core").as_ref());
        assert_eq!(node.src()[0].src()[0].device(), Some(&Placement::Default));
        assert_eq!(node.src()[1].device(), None);
    }

    #[test]
    fn malformed_text_is_refused() {
        let cases = [
            ("", "no node"),
            ("%1 = const i32 3", "expected \"%0 = \""),
            ("%0 = plus i32", "no op"),
            ("%0 = const i33 3", "no dtype"),
            ("%0 = const i8 300", "300 is not a value of i8"),
            ("%0 = neg i32 %0", "%0 is not above"),
            ("%0 = add i32", "add with 0 sources"),
            ("%0 = const bool maybe", "true or false"),
            ("%0 = buffer f32 #0 6 jit 2", "name of a device"),
            ("%0 = buffer f32 #0 6 jit\n%1 = buffer f32 #0 6\n", "differs from that above"),
            ("%0 = const f32 1\n%1 = copy f32 %0", "name of a device"),
            ("%0 = buffer f32 #1 4", "is not valid here"),
            ("%0 = define_var i32 n 0-9", "min..max"),
            ("%0 = const i32 1\n%1 = view i32 %0 ShapeTracker(views=())", "has a view"),
        ];
        for (text, problem) in cases {
            let error = parse_text(text).expect_err(text).to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }
}
