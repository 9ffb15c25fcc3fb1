//! Elements at indices: which element of the source each element of the result is, and what is
//! written where.

use gradiff_corpus::{DType, Index, Shape};

use super::Call;
use super::indexing::{Index as Number, indices};
use super::movement::python_range;
use crate::cast::cast;
use crate::cell::{Cell, Reason};
use crate::infer::{Check, broadcast, limit};
use crate::movement::{broadcast_positions, for_each_index, position};
use crate::value::Value;

/// The part of a source index that comes from an index.
enum Along {
    /// This position.
    Fixed(usize),
    /// The position that stands here at the index of an axis of the result.
    Kept { axis: usize, positions: Vec<usize> },
    /// The position that a source of indices names, one for each index of the common shape.
    Named(Vec<Number>),
}

/// A selection of elements.
struct Selection {
    /// The shape of the result.
    shape: Shape,
    /// The common shape of the sources of indices, and the first of its axes in the result.
    common: Shape,
    first: usize,
    /// The origin of the index along each axis of the source.
    along: Vec<Along>,
}

/// The element of the source that an element of a selection is.
enum Source {
    /// That at this position.
    Element(usize),
    /// None: an index is outside of the source.
    Outside,
    /// It is not known, for this reason, but for its indices along some axes.
    Unknown(Reason, Vec<Option<usize>>),
}

impl Selection {
    fn new(from: &[usize], list: &[Index], sources: &[&Value]) -> Check<Selection> {
        let takes_axis = |index: &&Index| !matches!(index, Index::NewAxis | Index::Ellipsis);
        let taken = list.iter().filter(takes_axis).count();
        let left = from.len().checked_sub(taken).ok_or("more indices than axes")?;
        let mut full: Vec<Index> = Vec::new();
        let mut is_filled = false;
        for index in list {
            match index {
                Index::Ellipsis if is_filled => return Err("a second ellipsis".to_string()),
                Index::Ellipsis => {
                    full.extend(vec![Index::WHOLE; left]);
                    is_filled = true;
                }
                index => full.push(*index),
            }
        }
        if !is_filled {
            full.extend(vec![Index::WHOLE; left]);
        }
        let is_source = |index: &Index| *index == Index::Source;
        if full.iter().filter(|index| is_source(index)).count() != sources.len() {
            return Err(format!("{} sources of indices for {list:?}", sources.len()));
        }
        let common = sources
            .iter()
            .try_fold(Shape::new(), |common, source| broadcast(&common, &source.shape))?;
        let common = limit(common)?;
        // The sizes of the axes of the result, those of the common shape left out, and the count
        // of them before each source of indices.
        let (mut sizes, mut before) = (Shape::new(), Vec::new());
        let mut along = Vec::new();
        let mut sources = sources.iter();
        for index in &full {
            if *index == Index::NewAxis {
                sizes.push(1);
                continue;
            }
            let size = from[along.len()];
            along.push(match *index {
                Index::Position(number) => {
                    let size = size as i128;
                    let number = i128::from(number);
                    let number = if number < 0 { number + size } else { number };
                    if !(0..size).contains(&number) {
                        return Err(format!("{index} of an axis of {size}"));
                    }
                    Along::Fixed(number as usize)
                }
                Index::Slice { start, stop, step } => {
                    let ends = if step < 0 { (i64::MAX, i64::MIN) } else { (0, i64::MAX) };
                    let (start, stop) = (start.unwrap_or(ends.0), stop.unwrap_or(ends.1));
                    let positions = python_range(size, start, stop, step)?;
                    sizes.push(positions.len());
                    Along::Kept { axis: sizes.len() - 1, positions }
                }
                _ => {
                    before.push(sizes.len());
                    let source = sources.next().expect("they are counted");
                    let numbers = indices(source)?;
                    let spread = broadcast_positions(&source.shape, &common);
                    Along::Named(spread.into_iter().map(|at| numbers[at]).collect())
                }
            });
        }
        let is_block = before.iter().all(|count| *count == before[0]);
        let first = if is_block { before.first().copied().unwrap_or(0) } else { 0 };
        let shape = limit([&sizes[..first], &common, &sizes[first..]].concat())?;
        Ok(Selection { shape, common, first, along })
    }

    /// Calls `visit` with the source of each element, in row-major order.
    fn for_each(&self, from: &[usize], mut visit: impl FnMut(Source)) {
        for_each_index(&self.shape, |index| {
            let (head, rest) = index.split_at(self.first);
            let (named, tail) = rest.split_at(self.common.len());
            let number = position(named, &self.common);
            let kept = [head, tail].concat();
            let mut source = Vec::with_capacity(from.len());
            let (mut is_inside, mut unknown) = (true, None);
            for (along, size) in self.along.iter().zip(from) {
                source.push(match along {
                    Along::Fixed(at) => Some(*at),
                    Along::Kept { axis, positions } => Some(positions[kept[*axis]]),
                    Along::Named(numbers) => match numbers[number] {
                        Ok(at) => {
                            let at = if at < 0 { at + *size as i128 } else { at };
                            is_inside &= 0 <= at && at < *size as i128;
                            Some(if is_inside { at as usize } else { 0 })
                        }
                        Err(reason) => {
                            unknown = unknown.or(Some(reason));
                            None
                        }
                    },
                });
            }
            visit(match unknown {
                _ if !is_inside => Source::Outside,
                Some(reason) => Source::Unknown(reason, source),
                None => {
                    let index: Vec<usize> = source.into_iter().flatten().collect();
                    Source::Element(position(&index, from))
                }
            });
        });
    }
}

/// The elements at indices; 0 outside of the source.
pub(super) fn get(call: Call<'_>) -> Check<Value> {
    let (x, sources) = call.srcs.split_first().ok_or("no source")?;
    let selection = Selection::new(&x.shape, call.args.indices(0), sources)?;
    let mut cells = Vec::new();
    selection.for_each(&x.shape, |source| {
        cells.push(match source {
            Source::Element(at) => x.cells[at],
            Source::Outside => Cell::from_bits(x.dtype, 0),
            Source::Unknown(reason, _) => Cell::Unspecified(reason),
        });
    });
    Ok(Value::new(x.dtype, selection.shape, cells))
}

/// The first source after the elements of the second one are written at indices.
pub(super) fn set(call: Call<'_>) -> Check<Value> {
    let [x, value, sources @ ..] = call.srcs else { return Err("too few sources".to_string()) };
    let selection = Selection::new(&x.shape, call.args.indices(0), sources)?;
    let fits =
        broadcast(&selection.shape, &value.shape).is_ok_and(|shape| shape == selection.shape);
    if x.dtype != value.dtype || !fits {
        return Err(format!("{:?} for {:?}, or other dtypes", value.shape, selection.shape));
    }
    let mut written = broadcast_positions(&value.shape, &selection.shape).into_iter();
    let mut cells = x.cells.to_vec();
    // What the last element made doubtful, if nothing was written since.
    let mut doubted: Option<Vec<Option<usize>>> = None;
    // Of elements written to the same position, the last one stays.
    selection.for_each(&x.shape, |target| {
        let from = written.next().expect("one for each element");
        match target {
            Source::Element(at) => {
                cells[at] = value.cells[from];
                doubted = None;
            }
            Source::Outside => {}
            Source::Unknown(_, known) if doubted.as_ref() == Some(&known) => {}
            Source::Unknown(reason, known) => {
                let sizes = x.shape.iter().zip(&known).map(|(size, at)| at.map_or(*size, |_| 1));
                for_each_index(&sizes.collect::<Vec<_>>(), |index| {
                    let at = index.iter().zip(&known).map(|(i, known)| known.unwrap_or(*i));
                    let at = position(&at.collect::<Vec<_>>(), &x.shape);
                    cells[at] = Cell::Unspecified(reason);
                });
                doubted = Some(known);
            }
        }
    });
    Ok(Value::new(x.dtype, x.shape.clone(), cells))
}

/// The first `size` positions at which a truth holds, and the reason why those after them are not
/// known.
fn first_true(truths: &[Cell], size: i64) -> Check<(Vec<usize>, Option<Reason>)> {
    let size = usize::try_from(size).map_err(|_| format!("{size} elements"))?;
    let mut found = Vec::new();
    for (at, truth) in truths.iter().enumerate() {
        match truth {
            _ if found.len() == size => break,
            Cell::Int(0) => {}
            Cell::Int(_) => found.push(at),
            Cell::Unspecified(reason) => return Ok((found, Some(*reason))),
            truth => panic!("{truth:?} is no truth"),
        }
    }
    Ok((found, None))
}

/// The first elements that a mask selects, and zeros.
pub(super) fn masked_select(call: Call<'_>) -> Check<Value> {
    let (x, mask) = (call.srcs[0], call.srcs[1]);
    if mask.dtype != DType::Bool {
        return Err(format!("a mask of {}", mask.dtype.name()));
    }
    let shape = broadcast(&x.shape, &mask.shape)?;
    let spread = |value: &Value| -> Vec<Cell> {
        broadcast_positions(&value.shape, &shape).into_iter().map(|at| value.cells[at]).collect()
    };
    let (elements, size) = (spread(x), call.args.int(0));
    let (found, doubt) = first_true(&spread(mask), size)?;
    let shape = limit(vec![size as usize])?;
    let rest = doubt.map_or(Cell::from_bits(x.dtype, 0), Cell::Unspecified);
    let cell = |number: usize| found.get(number).map_or(rest, |at| elements[*at]);
    let cells = (0..shape[0]).map(cell).collect();
    Ok(Value::new(x.dtype, shape, cells))
}

/// The indices of the first elements other than 0, and rows of a number.
pub(super) fn nonzero(call: Call<'_>) -> Check<Value> {
    let (x, size, fill) = (call.srcs[0], call.args.int(0), call.args.int(1));
    let fill = i32::try_from(fill).map_err(|_| format!("{fill} is no i32"))?;
    let truths: Vec<Cell> = x.cells.iter().map(|cell| cast(x.dtype, DType::Bool, *cell)).collect();
    let (found, doubt) = first_true(&truths, size)?;
    let rank = x.shape.len();
    let shape = limit(vec![size as usize, rank])?;
    let mut list = Vec::new();
    for_each_index(&x.shape, |index| list.push(index.to_vec()));
    let rest = doubt.map_or(Cell::Int(u64::from(fill as u32)), Cell::Unspecified);
    let row = |number: usize| match found.get(number) {
        Some(at) => list[*at].iter().map(|index| Cell::Int(*index as u64)).collect(),
        None => vec![rest; rank],
    };
    let cells = (0..shape[0]).flat_map(row).collect();
    Ok(Value::new(DType::I32, shape, cells))
}
