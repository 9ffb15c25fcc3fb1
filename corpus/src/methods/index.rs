//! Indices, and typing of the methods that read and write elements at indices.

use std::fmt::{self, Display, Formatter};

use super::movement::{assigned, range_size};
use super::{Args, Typed};
use crate::geometry::{broadcast, check_size};
use crate::{Shape, TensorType};

/// An index along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// One position, from the end if it is negative; the axis is removed. Text: `3`.
    Position(i64),
    /// The positions of Python's `start:stop:step`, which is also the text.
    Slice {
        /// The first position; the first or last one of the axis if missing.
        start: Option<i64>,
        /// The excluded end; the end of the axis if missing.
        stop: Option<i64>,
        /// The distance of two positions.
        step: i64,
    },
    /// A new axis of size 1. Text: `new`.
    NewAxis,
    /// As many whole axes as the other indices leave. Text: `...`.
    Ellipsis,
    /// The positions that the next of the sources has, of integers. Text: `source`.
    Source,
}

impl Index {
    /// The index that takes an axis as it is.
    pub const WHOLE: Index = Index::Slice { start: None, stop: None, step: 1 };
}

impl Display for Index {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Index::Position(position) => write!(f, "{position}"),
            Index::Slice { start, stop, step } => {
                let text = |end: &Option<i64>| end.map_or(String::new(), |end| end.to_string());
                write!(f, "{}:{}:{step}", text(start), text(stop))
            }
            Index::NewAxis => write!(f, "new"),
            Index::Ellipsis => write!(f, "..."),
            Index::Source => write!(f, "source"),
        }
    }
}

/// The type of the elements at indices.
pub(super) fn get(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let [x, positions @ ..] = srcs else { return Err("it has no source".to_string()) };
    Ok(TensorType { dtype: x.dtype, shape: selected(&x.shape, positions, args.indices(0))? })
}

/// The type of a tensor after a value is written at indices: the sources are the tensor, the value
/// and the positions.
pub(super) fn set(srcs: &[&TensorType], args: Args<'_>) -> Typed {
    let [x, _, positions @ ..] = srcs else {
        return Err(format!("it has {} sources, it must have two or more", srcs.len()));
    };
    let part = selected(&x.shape, positions, args.indices(0))?;
    check_size(&part)?;
    assigned(&srcs[..2], part)
}

/// The shape of the elements of a tensor at indices.
fn selected(
    shape: &[usize],
    positions: &[&TensorType],
    indices: &[Index],
) -> Result<Shape, String> {
    let sources = indices.iter().filter(|index| **index == Index::Source).count();
    if sources != positions.len() {
        return Err(format!("{sources} indices are sources, there are {}", positions.len()));
    }
    let is_of_axis = |index: &&Index| !matches!(index, Index::NewAxis | Index::Ellipsis);
    let used = indices.iter().filter(is_of_axis).count();
    let ellipses = indices.iter().filter(|index| **index == Index::Ellipsis).count();
    let Some(rest) = shape.len().checked_sub(used).filter(|_| ellipses < 2) else {
        return Err(format!("{used} axes have an index, with {ellipses} ellipses, of {shape:?}"));
    };
    let at = indices.iter().position(|index| *index == Index::Ellipsis);
    let mut axes = shape.iter();
    let mut found = Shape::new();
    // The axes of the result that are positions, and the shape that these have in common.
    let mut of_sources = Vec::new();
    let mut common = Shape::new();
    let mut positions = positions.iter();
    for number in 0..=indices.len() {
        if Some(number) == at || (at.is_none() && number == indices.len()) {
            found.extend(axes.by_ref().take(rest));
        }
        match indices.get(number) {
            None | Some(Index::Ellipsis) => {}
            Some(Index::NewAxis) => found.push(1),
            Some(index) => {
                let size = *axes.next().expect("each index has an axis");
                match *index {
                    Index::Position(position) => {
                        let (size, position) = (size as i128, i128::from(position));
                        if position < -size || size <= position {
                            return Err(format!("{position} is outside an axis of {size}"));
                        }
                    }
                    Index::Slice { step: 0, .. } => return Err("a step is 0".to_string()),
                    Index::Slice { start, stop, step } => {
                        let forward = 0 < step;
                        let first = start.unwrap_or(if forward { 0 } else { i64::MAX });
                        let end = stop.unwrap_or(if forward { i64::MAX } else { i64::MIN });
                        found.push(range_size(size, first, end, step));
                    }
                    _ => {
                        let index = positions.next().expect("as many as there are sources");
                        if !index.dtype.is_int() {
                            return Err(format!(
                                "an index is {}, it must be of integers",
                                index.dtype.name()
                            ));
                        }
                        broadcast("index", &mut common, &index.shape)?;
                        of_sources.push(found.len());
                    }
                }
            }
        }
    }
    let are_adjacent = of_sources.windows(2).all(|pair| pair[0] == pair[1]);
    if let Some(first) = of_sources.first() {
        let at = if are_adjacent { *first } else { 0 };
        found.splice(at..at, common);
    }
    Ok(found)
}
