//! Tensors on several devices: names of devices, operands that are not on one device, and graphs
//! with copies, which reads compute without an engine.
//!
//! A graph is judged by matrices that this file computes: elements, shape and device of each
//! tensor. If its elements are wrong, the graph and its parts are evaluated, which says which crate
//! is wrong.

use std::collections::HashMap;

use gradiff::graph::{Arg, Buffer, Op, Placement, UOp};
use gradiff::schedule::Parts;
use gradiff::{DType, Engine, Error, Tensor, default_device, keepdim};
use gradiff_eval::Elements;

use super::{Draw, OF_ENGINE};
use crate::models::stages;

/// Devices that are always available.
const DEVICES: [&str; 2] = ["interp", "jit"];
/// Sizes of axes.
const SIZES: [usize; 6] = [1, 2, 3, 4, 20, 0];
/// The maximal number of elements of a tensor.
const ELEMENTS_MAX: usize = 1000;
/// Number of tensors that are drawn.
const TENSORS: usize = 12;

fn problem(error: Error) -> String {
    error.to_string()
}

fn default_name() -> Result<&'static str, String> {
    default_device().map_err(|error| error.to_string())
}

/// Checks that an invalid call is refused by a message with these words.
fn check_refused<T: std::fmt::Debug>(
    label: &str,
    words: &[&str],
    found: Result<T, Error>,
) -> Result<(), String> {
    match found {
        Err(Error::Invalid(text)) if words.iter().all(|word| text.contains(word)) => Ok(()),
        found => Err(format!("{label}: {found:?}, expected a refusal that says {words:?}")),
    }
}

/// Names of devices: those that exist, in any case, are taken, and others refused.
pub(super) fn names(draw: &mut Draw) -> Result<(), String> {
    let x = Tensor::from_slice(&[2], &[3, 4]).map_err(problem)?;
    let x = if draw.one_in(2) { x.to(draw.pick(&DEVICES)).map_err(problem)? } else { x };
    if draw.one_in(2) {
        let name = draw.pick(&["", "cpu", "interp ", "jit:1", "default", "jit/opts", "\0", "c:"]);
        return check_refused(&format!("to({name:?})"), &[&format!("{name:?}")], x.to(name));
    }
    let row = draw.pick(&gradiff::runtime::device_names());
    let name = match draw.below(3) {
        0 => row.to_string(),
        1 => row.to_uppercase(),
        _ => format!("{row}:0"),
    };
    let there = x.to(&name).map_err(|error| format!("to({name:?}) is refused: {error}"))?;
    let (from, found) = (x.device().map_err(problem)?, there.device().map_err(problem)?);
    if found != row || there.shape() != [2] || there.dtype() != DType::I32 {
        return Err(format!("to({name:?}) gives {there:?} on {found}"));
    }
    if (there.uop() == x.uop()) != (from == row) {
        return Err(format!("to({name:?}) from {from}: is it the same tensor?"));
    }
    Ok(())
}

/// Operands of an op: legal on one device, else refused by the names of both.
pub(super) fn operands(draw: &mut Draw) -> Result<(), String> {
    let here = default_name()?;
    let mut devices: Vec<&str> = Vec::new();
    let mut tensor = |draw: &mut Draw| {
        let x = match draw.below(6) {
            0 => return Tensor::full(DType::I32, &[2], 1),
            1 => {
                let counter = Tensor::arange(DType::I32, 0, 1, 2)?;
                if draw.one_in(2) {
                    counter.realize()?;
                }
                return Ok(counter);
            }
            _ => Tensor::from_slice(&[2], &[1, 0])?,
        };
        let (x, device) = match draw.below(4) {
            0 => (x, here),
            at => {
                let device = DEVICES[at % 2];
                (x.to(device)?, device)
            }
        };
        if !devices.contains(&device) {
            devices.push(device);
        }
        if draw.one_in(3) { x.add(0) } else { Ok(x) }
    };
    let [x, y, z] = [tensor(draw), tensor(draw), tensor(draw)];
    let (x, y, z) = (x.map_err(problem)?, y.map_err(problem)?, z.map_err(problem)?);
    let op = draw.below(4);
    let found = match op {
        0 => x.mulacc(&y, &z),
        1 => x.cmplt(1).and_then(|x| x.where_(&y, &z)),
        2 => Tensor::cat(&[&x, &y, &z], 0),
        _ => x.gather(0, &y).and_then(|x| x.sub(&z)),
    };
    let label = format!("op {op} of tensors on {devices:?}");
    if devices.len() < 2 {
        let device = found.map_err(|error| format!("{label}: {error}"))?.device();
        let expected = devices.first().copied().unwrap_or(here);
        let is_right = device.as_ref().is_ok_and(|device| *device == expected);
        return is_right.then_some(()).ok_or(format!("{label} gives a tensor on {device:?}"));
    }
    // Of three devices, any two.
    let words =
        if devices.len() == 2 { vec![devices[0], devices[1], ".to("] } else { vec![".to("] };
    check_refused(&label, &words, found)
}

/// A tensor with the device and the elements that it must have.
#[derive(Clone)]
struct Placed {
    tensor: Tensor,
    /// The graph as it was built.
    node: UOp,
    /// `None` if it is made of counters alone and goes with any device.
    device: Option<&'static str>,
    rows: usize,
    columns: usize,
    elements: Vec<i32>,
}

impl Placed {
    fn new(
        tensor: Result<Tensor, Error>,
        device: impl Into<Option<&'static str>>,
        [rows, columns]: [usize; 2],
        element: impl Fn(usize, usize) -> i32,
    ) -> Result<Placed, String> {
        let tensor = tensor.map_err(problem)?;
        let at = |index: usize| element(index / columns, index % columns);
        let elements = (0..rows * columns).map(at).collect();
        let (node, device) = (tensor.uop(), device.into());
        Ok(Placed { node, tensor, device, rows, columns, elements })
    }

    fn at(&self, row: usize, column: usize) -> i32 {
        self.elements[row * self.columns + column]
    }

    fn shape(&self) -> [usize; 2] {
        [self.rows, self.columns]
    }

    /// A matrix of data or of a counter, on a drawn device or on none.
    fn leaf(draw: &mut Draw) -> Result<Placed, String> {
        let shape = [draw.pick(&SIZES), draw.pick(&SIZES)];
        let (sizes, count) = (shape.map(|size| size as i64), shape[0] * shape[1]);
        let device = draw.pick(&DEVICES);
        let start = draw.below(9) as i32;
        let numbers: Vec<i32> = (start..start + count as i32).collect();
        let counter =
            || Tensor::arange(DType::I32, i64::from(start), 1, count as i64)?.reshape(&sizes);
        let (tensor, device) = match draw.below(5) {
            0 => (Tensor::from_slice(&sizes, &numbers), Some(default_name()?)),
            1 => (counter().and_then(|x| x.to(device)), Some(device)),
            2 => (counter(), None),
            _ => (Tensor::from_slice(&sizes, &numbers).and_then(|x| x.to(device)), Some(device)),
        };
        Placed::new(tensor, device, shape, |row, column| start + (row * shape[1] + column) as i32)
    }

    /// A tensor that is made of this one, and of another one of the same shape.
    fn next(&self, other: &Placed, draw: &mut Draw) -> Result<Placed, String> {
        let (x, device, shape) = (&self.tensor, self.device, self.shape());
        let [rows, columns] = shape;
        let sizes = shape.map(|size| size as i64);
        match draw.below(11) {
            0..3 => {
                let device = draw.pick(&DEVICES);
                Placed::new(x.to(device), device, shape, |row, column| self.at(row, column))
            }
            3 if other.shape() == shape => {
                let sum = match (device, other.device) {
                    (Some(device), Some(_)) => other.tensor.to(device).and_then(|y| x.sub(&y)),
                    _ => x.sub(&other.tensor),
                };
                Placed::new(sum, device.or(other.device), shape, |row, column| {
                    self.at(row, column).wrapping_sub(other.at(row, column))
                })
            }
            4 => Placed::new(x.mul(3), device, shape, |row, column| {
                self.at(row, column).wrapping_mul(3)
            }),
            5 => Placed::new(x.permute(&[1, 0]), device, [columns, rows], |row, column| {
                self.at(column, row)
            }),
            6 => Placed::new(x.flip(&[0]), device, shape, |row, column| {
                self.at(rows - 1 - row, column)
            }),
            7 => {
                let start = draw.below(rows + 1);
                let part = x.shrink(&[(start as i64, rows as i64), (0, columns as i64)]);
                Placed::new(part, device, [rows - start, columns], |row, column| {
                    self.at(start + row, column)
                })
            }
            8 => Placed::new(x.pad(&[(1, 0), (0, 1)], 0), device, [rows + 1, columns + 1], {
                |row, column| {
                    if row == 0 || column == columns { 0 } else { self.at(row - 1, column) }
                }
            }),
            9 => {
                let sum = x.sum(keepdim(1)).and_then(|sum| sum.expand(&sizes)?.add(x));
                Placed::new(sum, device, shape, |row, column| {
                    let elements = (0..columns).map(|column| self.at(row, column));
                    elements.fold(self.at(row, column), i32::wrapping_add)
                })
            }
            _ => Placed::new(Ok(x.contiguous()), device, shape, |row, column| self.at(row, column)),
        }
    }

    /// Reads the tensor and compares it.
    fn check(&self) -> Result<(), String> {
        let device = self.tensor.device().map_err(problem)?;
        let expected = self.device.map_or_else(default_name, Ok)?;
        if device != expected {
            return Err(format!("a tensor on {expected} is on {device}, {}", self.node));
        }
        let found = crate::catch(|| self.tensor.to_vec::<i32>())?;
        let found = found.map_err(|error| format!("{error}, of\n{}", self.node));
        let is_right = found.as_ref() == Ok(&self.elements);
        let shape = self.shape().map(|size| size as i64);
        if is_right && self.tensor.shape() == shape {
            return Ok(());
        }
        let expected = &self.elements;
        let crate_name = if self.are_parts_right() { "tensor" } else { "schedule" };
        Err(format!(
            "a tensor on {device} is {found:?}, expected {expected:?} {OF_ENGINE}{crate_name})\n{}",
            self.node
        ))
    }

    /// Returns whether the parts of the graph have the right elements if they are evaluated.
    fn are_parts_right(&self) -> bool {
        let Ok(found) = crate::catch(|| by_parts(&self.node)) else { return false };
        let number = |element: &Option<gradiff::graph::Constant>| element.and_then(|x| x.to_int());
        found.is_ok_and(|found| {
            let expected = self.elements.iter().map(|element| Some(i128::from(*element)));
            found.iter().map(number).eq(expected)
        })
    }
}

/// Evaluates a graph part by part.
fn by_parts(node: &UOp) -> Result<Elements, String> {
    let name = |placement: &Placement| -> Result<&'static str, gradiff::schedule::Error> {
        let known = |name: &str| gradiff::runtime::device_name(name).unwrap_or("interp");
        Ok(match placement {
            Placement::Default => default_device().unwrap_or("interp"),
            Placement::Named(name) => known(name),
        })
    };
    let mut parts = Parts::new(std::slice::from_ref(node), name).map_err(|e| e.to_string())?;
    let results: std::cell::RefCell<HashMap<Buffer, Elements>> = Default::default();
    let stored = |like: &UOp, placement: Option<Placement>, elements: Elements| {
        let buffer = Buffer::on(placement, like.dtype(), elements.len() as i64);
        results.borrow_mut().insert(buffer.clone(), elements);
        let whole = UOp::new(Op::Buffer, like.dtype(), [], Arg::Buffer(buffer));
        let shape = like.shape().unwrap_or_default().iter().copied().collect();
        UOp::new(Op::Reshape, like.dtype(), [whole], Arg::Dims(shape))
    };
    let read = |nodes: &[UOp]| {
        gradiff_eval::graph::evaluate(nodes, &mut |buffer| {
            let known = results.borrow().get(buffer).cloned();
            known.map_or_else(|| stages::contents(buffer), Ok)
        })
    };
    while let Some(part) = parts.take() {
        let values = read(&part.nodes)?;
        let nodes = part.nodes.iter().zip(values);
        let new: Vec<UOp> =
            nodes.map(|(node, values)| stored(node, node.device().cloned(), values)).collect();
        parts.finish(part, new, |result, target| {
            let values = read(std::slice::from_ref(result))?.swap_remove(0);
            Ok::<UOp, String>(stored(result, Some(target.clone()), values))
        })?;
    }
    Ok(read(&parts.outputs())?.swap_remove(0))
}

/// Draws tensors on several devices, some of which are realised on the way, alone, together, or by
/// an engine; all are read at the end.
pub(super) fn graphs(draw: &mut Draw) -> Result<(), String> {
    let mut values = vec![Placed::leaf(draw)?, Placed::leaf(draw)?];
    for _ in 0..TENSORS {
        let x = values[draw.below(values.len())].clone();
        let second = values[draw.below(values.len())].clone();
        let next = if draw.one_in(5) { Placed::leaf(draw)? } else { x.next(&second, draw)? };
        if next.elements.len() <= ELEMENTS_MAX {
            values.push(next);
        }
        let some: Vec<&Tensor> =
            values.iter().filter(|_| draw.one_in(4)).map(|value| &value.tensor).collect();
        let realised = match draw.below(8) {
            0 => gradiff::realize(&some),
            1 => x.tensor.realize(),
            2 => Engine::new(draw.pick(&DEVICES)).and_then(|engine| engine.realize(&some)),
            3 => {
                x.check()?;
                Ok(())
            }
            _ => Ok(()),
        };
        realised.map_err(problem)?;
    }
    values.iter().rev().try_for_each(Placed::check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn graphs_on_several_devices_are_right() {
        for seed in 0..400 {
            graphs(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn wrong_elements_and_devices_are_reported() {
        let mut leaves = (0..).map(|seed| Placed::leaf(&mut Draw::new(seed)).unwrap());
        let x = leaves.find(|leaf| !leaf.elements.is_empty() && leaf.device.is_some()).unwrap();
        assert_eq!(x.check(), Ok(()));
        let device = x.device.expect("it is on one");
        let absent = DEVICES.into_iter().find(|absent| *absent != device).unwrap();
        let report = Placed { device: Some(absent), ..x.clone() }.check().unwrap_err();
        assert!(report.starts_with(&format!("a tensor on {absent} is on {device}")), "{report}");
        let elements = x.elements.iter().map(|element| element + 1).collect();
        let wrong = Placed { elements, ..x.clone() };
        let report = wrong.check().unwrap_err();
        // The evaluated parts differ from the wrong expectation, too.
        assert!(report.contains("(engine/schedule)"), "{report}");
        assert!(x.are_parts_right());
    }

    #[test]
    fn operands_are_drawn_on_one_device_and_on_several() {
        let refused = |seed| {
            let mut draw = Draw::new(seed);
            let label = operands(&mut draw);
            assert_eq!(label, Ok(()), "seed {seed}");
        };
        (0..500).for_each(refused);
        assert!(check_refused("x", &["jit"], Ok::<_, Error>(1)).is_err());
        assert!(
            check_refused("x", &["jit"], Err::<i32, _>(Error::Invalid("on c".into()))).is_err()
        );
        let refusal = Err::<i32, _>(Error::Invalid("on c and jit".into()));
        assert!(check_refused("x", &["jit", "c"], refusal).is_ok());
    }
}
