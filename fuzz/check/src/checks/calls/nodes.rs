//! Nodes of tensor level, most of them slightly wrong, against a second statement of when such a
//! node is well formed.
//!
//! The statement is that of the op table and of the head of the engine's verifier, written anew:
//! here a source is its dtype, its shape, its device and whether it is a constant.

use gradiff::graph::op::OPS;
use gradiff::graph::verify::{verify, verify_tree_node};
use gradiff::graph::{Arg, Buffer, DType, Dims, Global, Op, Pairs, Placement, UOp};
use gradiff_eval::scalar;

use super::Draw;
use crate::checks::kernels::{Typing, elementwise};

/// Number of nodes of a call.
const NODES: usize = 60;
/// Number of calls before a crate is blamed.
const CALLS_OF_BLAME: usize = 40;
/// Sizes of axes; 1 is frequent, since only such axes are expanded.
const SIZES: [i64; 6] = [1, 1, 2, 3, 4, 0];
const RANK_MAX: usize = 3;

/// A source of the drawn node, with what is known about it.
#[derive(Clone, Debug)]
struct Source {
    node: UOp,
    dtype: DType,
    shape: Option<Vec<i64>>,
    /// The name of its device; `None` for the default device, and without one.
    device: Option<&'static str>,
    is_constant: bool,
}

/// The drawn node.
#[derive(Clone, Debug)]
struct Node {
    op: Op,
    dtype: DType,
    src: Vec<Source>,
    arg: Arg,
}

/// The first node among many that the verifier judges wrongly.
pub(crate) fn wrong_node() -> Option<String> {
    let mut draw = Draw::new(0);
    (0..CALLS_OF_BLAME).find_map(|_| match crate::catch(|| nodes(&mut draw)) {
        Ok(judged) => judged.err(),
        Err(panic) => Some(panic),
    })
}

/// Draws nodes and checks what the verifier says about each.
pub(super) fn nodes(draw: &mut Draw) -> Result<(), String> {
    (0..NODES).try_for_each(|_| {
        let mut node = drawn(draw);
        for _ in 0..draw.below(3) {
            spoil(&mut node, draw);
        }
        judge(&node, draw)
    })
}

fn judge(node: &Node, draw: &mut Draw) -> Result<(), String> {
    let report = |problem: String| {
        let src: Vec<String> =
            node.src.iter().map(|src| format!("{} {:?}", src.dtype, src.shape)).collect();
        format!("{} {} of {src:?} with {:?}: {problem}", node.op, node.dtype, node.arg)
    };
    let arity = node.op.row().arity;
    if !(arity.0..=arity.1).contains(&node.src.len()) {
        // Such a node cannot be built.
        return Ok(());
    }
    let sources = node.src.iter().map(|src| src.node.clone());
    let built = UOp::new(node.op, node.dtype, sources, node.arg.clone());
    let root = match draw.one_in(3) {
        true => UOp::new(Op::Sink, DType::Void, [built.clone()], Arg::None),
        false => built.clone(),
    };
    let expected = check_arg(node).and_then(|()| check_types(node));
    let expected = expected.and_then(|()| check_shape(node)).and_then(|()| check_devices(node));
    let found = crate::catch(|| verify(&root)).map_err(report)?;
    match (&expected, &found) {
        (Ok(()), Err(error)) => return Err(report(format!("it is refused: {error}"))),
        (Err(problem), Ok(())) => return Err(report(format!("it is accepted: {problem}"))),
        (Ok(()), Ok(())) if !node.src.is_empty() && draw.one_in(4) => {
            crate::checks::trees::damaged_text(&root.to_text(), draw).map_err(report)?;
        }
        (Err(_), Err(error)) if error.problem.is_empty() || error.location.is_empty() => {
            return Err(report("it is refused without a message".to_string()));
        }
        _ => {}
    }
    if expected.is_ok() && elementwise(node.op).is_some() {
        let shaped = node.src.iter().find(|src| !src.is_constant).or(node.src.first());
        if built.shape() != shaped.and_then(|src| src.shape.as_deref()) {
            return Err(report(format!("it has the shape {:?}", built.shape())));
        }
    }
    // In a tree, shapes of elementwise nodes and of reductions are not checked.
    let is_free = node.op.is_elementwise() || node.op == Op::ReduceAxis;
    let expected = check_arg(node).and_then(|()| check_types(node));
    let expected = if is_free { expected } else { expected.and_then(|()| check_shape(node)) };
    let found = crate::catch(|| verify_tree_node(&built)).map_err(report)?;
    if expected.is_ok() != found.is_ok() {
        return Err(report(format!("as a node of a tree, {found:?}, expected {expected:?}")));
    }
    Ok(())
}

fn ensure(holds: bool, problem: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem.to_string()) }
}

/// Checks that the op takes an arg of this kind.
fn check_arg(node: &Node) -> Result<(), String> {
    let is_right = match (node.op, &node.arg) {
        (Op::Reshape | Op::Expand | Op::Permute | Op::Flip, Arg::Dims(_)) => true,
        (Op::Pad | Op::Shrink, Arg::Pairs(_)) => true,
        (Op::ReduceAxis, Arg::Reduce(op, _)) => matches!(op, Op::Add | Op::Mul | Op::Max),
        (Op::Const, Arg::Const(value)) => value.dtype() == node.dtype,
        (Op::Buffer, Arg::Buffer(buffer)) => buffer.dtype() == node.dtype,
        (Op::Iota, Arg::Int(count)) => 0 <= *count,
        (Op::Copy, Arg::Device(_)) => true,
        (Op::Parameter, Arg::Int(_)) => true,
        (Op::Function, Arg::Name(_)) => true,
        (op, Arg::None) => elementwise(op).is_some() || matches!(op, Op::Contiguous | Op::Detach),
        _ => false,
    };
    ensure(is_right, "the op does not take this arg")
}

/// Checks the dtypes of the node and of its sources.
fn check_types(node: &Node) -> Result<(), String> {
    let (to, src) = (node.dtype, &node.src);
    ensure(to != DType::Void, "it has a value, but is void")?;
    let Some((_, typing)) = elementwise(node.op) else {
        let is_kept = src.iter().take(1).all(|src| src.dtype == to);
        return ensure(is_kept, "it changes the dtype of its source");
    };
    let from: Vec<DType> = src.iter().map(|src| src.dtype).collect();
    let is_right = typing.allows(to, &from);
    ensure(is_right, "the dtypes are not those of the op")
}

/// Checks the shapes of the sources and the numbers of the arg.
fn check_shape(node: &Node) -> Result<(), String> {
    if node.src.is_empty() {
        return Ok(());
    }
    if elementwise(node.op).is_some() {
        let mut shapes =
            node.src.iter().filter(|src| !src.is_constant).filter_map(|src| src.shape.as_ref());
        let first = shapes.next();
        return ensure(shapes.all(|shape| Some(shape) == first), "its operands differ in shape");
    }
    let shape = node.src[0].shape.as_ref().ok_or("its source has no shape")?;
    ensure(node.src.iter().all(|src| src.shape.is_some()), "a source has no shape")?;
    let count = |sizes: &[i64]| sizes.iter().map(|size| i128::from(*size)).product::<i128>();
    let are_axes = |axes: &[i64]| {
        let is_ascending = axes.windows(2).all(|pair| pair[0] < pair[1]);
        is_ascending && axes.iter().all(|axis| (0..shape.len() as i64).contains(axis))
    };
    let is_right = match (node.op, &node.arg) {
        (Op::Reshape, Arg::Dims(to)) => {
            to.iter().all(|size| 0 <= *size) && count(to) == count(shape)
        }
        (Op::Expand, Arg::Dims(to)) => {
            let mut pairs = shape.iter().zip(to);
            to.len() == shape.len()
                && pairs.all(|(from, to)| if *from == 1 { 0 <= *to } else { from == to })
        }
        (Op::Permute, Arg::Dims(order)) => {
            let mut sorted = order.to_vec();
            sorted.sort();
            sorted == (0..shape.len() as i64).collect::<Vec<_>>()
        }
        (Op::Flip, Arg::Dims(axes)) | (Op::ReduceAxis, Arg::Reduce(_, axes)) => are_axes(axes),
        (Op::Pad, Arg::Pairs(pads)) => {
            pads.len() == shape.len() && pads.iter().all(|pad| 0 <= pad.0.min(pad.1))
        }
        (Op::Shrink, Arg::Pairs(kept)) => {
            let is_inside = |(kept, size): (&(i64, i64), &i64)| {
                let allowed = 0..=*size;
                allowed.contains(&kept.0) && allowed.contains(&kept.1) && kept.0 <= kept.1
            };
            kept.len() == shape.len() && kept.iter().zip(shape).all(is_inside)
        }
        _ => true,
    };
    ensure(is_right, "the arg does not fit the shape")
}

/// Checks that operands are not on two devices of different names.
fn check_devices(node: &Node) -> Result<(), String> {
    let mut devices = node.src.iter().filter_map(|src| src.device);
    let first = devices.next();
    let are_together = elementwise(node.op).is_none() || devices.all(|name| Some(name) == first);
    ensure(are_together, "its operands are on two devices")
}

/// Draws a well-formed node, but for the devices of its sources.
fn drawn(draw: &mut Draw) -> Node {
    let is_drawn = |op: Op| {
        let is_leaf = matches!(op, Op::Const | Op::Buffer | Op::Iota);
        let is_source_first = op.is_marker() || op == Op::ReduceAxis;
        is_leaf || is_source_first || op.is_movement() || elementwise(op).is_some()
    };
    let ops: Vec<Op> = OPS.iter().map(|row| row.op).filter(|op| is_drawn(*op)).collect();
    // Elementwise ops are many.
    let op = match draw.one_in(2) {
        true => draw.pick(&ops),
        false => draw.pick(&[Op::Reshape, Op::Expand, Op::Permute, Op::Flip, Op::Pad, Op::Shrink]),
    };
    let shape: Vec<i64> = (0..draw.below(RANK_MAX + 1)).map(|_| draw.pick(&SIZES)).collect();
    let from = draw.pick(&DType::ALL);
    let (mut to, mut src) = (from, Vec::new());
    match elementwise(op) {
        Some((count, typing)) => {
            src = (0..count).map(|_| source(draw, from, &shape)).collect();
            match typing {
                Typing::Truth => to = DType::Bool,
                Typing::Choice => src[0] = source(draw, DType::Bool, &shape),
                Typing::Cast | Typing::Bits => to = draw.pick(&DType::ALL),
                Typing::Same(_) => {}
            }
        }
        None if matches!(op, Op::Const | Op::Buffer | Op::Iota) => {}
        None => {
            src.push(source(draw, from, &shape));
            if op == Op::Function {
                let (dtype, shape) = (draw.pick(&DType::ALL), [draw.pick(&SIZES)]);
                src.push(source(draw, dtype, &shape));
            }
        }
    }
    let arg = arg(op, from, &shape, draw);
    Node { op, dtype: to, src, arg }
}

/// Draws a source of this dtype and shape, or a constant.
fn source(draw: &mut Draw, dtype: DType, shape: &[i64]) -> Source {
    if draw.one_in(6) {
        let node = UOp::constant(scalar::zero(dtype));
        let shape = Some(Vec::new());
        return Source { node, dtype, shape, device: None, is_constant: true };
    }
    let device = draw.pick(&[None, None, None, Some("jit"), Some("interp")]);
    let placement = device.map_or(Placement::Default, |name| Placement::Named(name.into()));
    let buffer = Buffer::on(placement, dtype, shape.iter().product());
    let node = UOp::new(Op::Buffer, dtype, [], Arg::Buffer(buffer));
    let node = UOp::new(Op::Reshape, dtype, [node], Arg::Dims(Dims::from_slice(shape)));
    Source { node, dtype, shape: Some(shape.to_vec()), device, is_constant: false }
}

/// Draws an arg that the op takes over a source of this shape.
fn arg(op: Op, dtype: DType, shape: &[i64], draw: &mut Draw) -> Arg {
    let dims = |dims: &[i64]| Arg::Dims(Dims::from_slice(dims));
    let mut axes: Vec<i64> = (0..shape.len() as i64).collect();
    match op {
        Op::Reshape => {
            let mut to = shape.to_vec();
            to.reverse();
            (0..draw.below(3)).for_each(|_| to.insert(draw.below(to.len() + 1), 1));
            dims(&to)
        }
        Op::Expand => {
            let to = shape.iter().map(|size| if *size == 1 { draw.pick(&SIZES) } else { *size });
            dims(&to.collect::<Vec<_>>())
        }
        Op::Permute => {
            axes.rotate_left(draw.below(shape.len() + 1).min(shape.len()));
            dims(&axes)
        }
        Op::Flip => {
            axes.retain(|_| draw.one_in(2));
            dims(&axes)
        }
        Op::ReduceAxis => {
            axes.retain(|_| draw.one_in(2));
            Arg::Reduce(draw.pick(&[Op::Add, Op::Mul, Op::Max]), Dims::from_slice(&axes))
        }
        Op::Pad => {
            let pads: Vec<_> = shape.iter().map(|_| amounts(draw, 3)).collect();
            Arg::Pairs(Pairs::from_slice(&pads))
        }
        Op::Shrink => {
            let kept = shape.iter().map(|size| {
                let (x, y) = amounts(draw, *size);
                (x.min(y), x.max(y))
            });
            Arg::Pairs(kept.collect())
        }
        Op::Const => Arg::Const(scalar::zero(dtype)),
        Op::Buffer => Arg::Buffer(Buffer::new(dtype, 3)),
        Op::Iota | Op::Parameter => Arg::Int(draw.pick(&SIZES)),
        Op::Function => Arg::Name("abs".into()),
        Op::Copy => {
            let text = draw.pick(&["default", "jit", "interp", "wgpu-core", "elsewhere"]);
            Arg::Device(Placement::parse(text).expect("it is a name"))
        }
        _ => Arg::None,
    }
}

/// Draws two numbers from 0 to `maximum`.
fn amounts(draw: &mut Draw, maximum: i64) -> (i64, i64) {
    let mut amount = || draw.below(maximum as usize + 1) as i64;
    (amount(), amount())
}

/// Changes the dtype, a source or the arg.
fn spoil(node: &mut Node, draw: &mut Draw) {
    match draw.below(8) {
        0 => node.dtype = if draw.one_in(4) { DType::Void } else { draw.pick(&DType::ALL) },
        1 | 2 if !node.src.is_empty() => {
            let number = draw.below(node.src.len());
            let old = node.src[number].clone();
            let Some(mut shape) = old.shape else { return };
            node.src[number] = match draw.below(5) {
                0 => {
                    let node = UOp::new(Op::Sink, DType::Void, [old.node], Arg::None);
                    let dtype = DType::Void;
                    Source { node, dtype, shape: None, device: None, is_constant: false }
                }
                1 if elementwise(node.op).is_none() => {
                    let array = Arg::Global(Global { slot: 0, size_elements: 4 });
                    let node = UOp::new(Op::DefineGlobal, old.dtype, [], array);
                    let dtype = old.dtype;
                    Source { node, dtype, shape: None, device: None, is_constant: false }
                }
                2 => {
                    let dtype = draw.pick(&DType::ALL);
                    source(draw, dtype, &shape)
                }
                _ => {
                    let at = draw.below(shape.len() + 1);
                    match shape.get_mut(at) {
                        Some(size) => *size = draw.pick(&SIZES),
                        None => shape.push(draw.pick(&SIZES)),
                    }
                    source(draw, old.dtype, &shape)
                }
            };
        }
        3 => {
            let op =
                draw.pick(&[Op::Reshape, Op::Pad, Op::ReduceAxis, Op::Const, Op::Iota, Op::Add]);
            let dtype = draw.pick(&DType::ALL);
            node.arg = arg(op, dtype, &[2, 1], draw);
        }
        _ => node.arg = changed(&node.arg, draw),
    }
}

/// The arg with one of its numbers changed, added, removed or repeated.
fn changed(arg: &Arg, draw: &mut Draw) -> Arg {
    let numbers = |dims: &Dims, draw: &mut Draw| {
        let mut dims = dims.to_vec();
        let at = draw.below(dims.len() + 1);
        match draw.below(5) {
            0 => dims.insert(at, draw.pick(&[0, 1, 2, 3])),
            1 if at < dims.len() => drop(dims.remove(at)),
            // Two negative sizes, whose product is as before.
            2 if 1 < dims.len() => dims[..2].iter_mut().for_each(|size| *size = -*size),
            3 if at < dims.len() => dims[at] = dims[draw.below(dims.len())],
            _ if at < dims.len() => dims[at] += draw.pick(&[-1, 1, 2, -5]),
            _ => dims.reverse(),
        }
        Dims::from_slice(&dims)
    };
    match arg {
        Arg::Dims(dims) => Arg::Dims(numbers(dims, draw)),
        Arg::Reduce(_, dims) if draw.one_in(3) => {
            Arg::Reduce(draw.pick(&[Op::Sub, Op::Min, Op::And, Op::CmpLt, Op::Mul]), dims.clone())
        }
        Arg::Reduce(op, dims) => Arg::Reduce(*op, numbers(dims, draw)),
        Arg::Pairs(pairs) => {
            let mut pairs = pairs.to_vec();
            let at = draw.below(pairs.len() + 1);
            match pairs.get_mut(at) {
                _ if draw.one_in(6) => pairs.truncate(at),
                Some(pair) if draw.one_in(2) => pair.0 += draw.pick(&[-1, 1, -4, 4]),
                Some(pair) => pair.1 += draw.pick(&[-1, 1, -4, 4]),
                None => pairs.push((0, 0)),
            }
            Arg::Pairs(Pairs::from_slice(&pairs))
        }
        Arg::Const(_) => Arg::Const(scalar::zero(draw.pick(&DType::ALL))),
        Arg::Buffer(_) => Arg::Buffer(Buffer::new(draw.pick(&DType::ALL), 3)),
        Arg::Int(number) => Arg::Int(draw.pick(&[-1, -number, number + 1])),
        _ => Arg::Int(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_agrees() {
        for seed in 0..3_000 {
            nodes(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    /// Each op is drawn well formed and malformed, and each kind of violation occurs.
    #[test]
    fn all_violations_are_drawn() {
        let mut seen = std::collections::BTreeMap::<String, usize>::new();
        let draw = &mut Draw::new(1);
        for _ in 0..40_000 {
            let mut node = drawn(draw);
            spoil(&mut node, draw);
            let arity = node.op.row().arity;
            if (arity.0..=arity.1).contains(&node.src.len()) {
                let types = [check_arg(&node), check_types(&node)];
                let checks = types.into_iter().chain([check_shape(&node), check_devices(&node)]);
                for (name, check) in ["arg", "types", "shape", "devices"].into_iter().zip(checks) {
                    let class = if elementwise(node.op).is_some() {
                        "elementwise"
                    } else {
                        node.op.row().name
                    };
                    *seen.entry(format!("{class} {name} {}", check.is_ok())).or_default() += 1;
                }
            }
        }
        println!("{seen:#?}");
        for key in ["elementwise devices true", "elementwise devices false", "copy arg false"] {
            assert!(seen.get(key).is_some_and(|count| 20 < *count), "{key}");
        }
        for op in [Op::Reshape, Op::Expand, Op::Permute, Op::Flip, Op::Pad, Op::Shrink] {
            for part in ["arg", "types", "shape"] {
                for verdict in [true, false] {
                    let key = format!("{} {part} {verdict}", op.row().name);
                    assert!(seen.get(&key).is_some_and(|count| 20 < *count), "{key}");
                }
            }
        }
    }
}
