//! New sizes of axes: where the elements of the result lie in the source.

use gradiff_corpus::DType;

use super::Call;
use super::elementwise::{require, wide};
use crate::arithmetic::{add, mul, neg};
use crate::cast::cast;
use crate::cell::{Cell, Real};
use crate::format::format;
use crate::infer::{Check, count, limit};
use crate::movement::{for_each_index, position};
use crate::value::Value;

/// The largest error of a weight, in roundings: 2 ulps.
const WEIGHT: f64 = 4.0;

/// A position in an axis: the elements before and after it, which are the same one at a whole
/// position, and the weight of the latter.
#[derive(Clone, Copy)]
pub(crate) struct Position {
    pub(crate) before: usize,
    pub(crate) after: usize,
    pub(crate) weight: Cell,
}

/// The positions of the elements of the result: for each of the last axes, those of its elements.
pub(crate) struct Grid {
    pub(crate) shape: Vec<usize>,
    /// The number of axes that stay.
    pub(crate) outer: usize,
    pub(crate) axes: Vec<Vec<Position>>,
}

impl Grid {
    /// Returns the positions in a source of this dtype and shape.
    ///
    /// # Errors
    /// Arguments that do not fit.
    pub(crate) fn of(dtype: DType, shape: &[usize], call: Call<'_>) -> Check<Grid> {
        let (sizes, mode) = (call.args.ints(0), call.args.word(1));
        let sizes = super::counts(sizes, sizes.len(), 1)?;
        let outer = shape.len().checked_sub(sizes.len()).filter(|_| !sizes.is_empty());
        let outer = outer.ok_or_else(|| format!("{} sizes", sizes.len()))?;
        if shape[outer..].contains(&0) {
            return Err(format!("{shape:?} has an empty axis"));
        }
        let is_aligned = call.args.flag(2);
        if is_aligned && mode != "linear" {
            return Err(format!("{mode} with aligned corners"));
        }
        let found = limit([&shape[..outer], &sizes].concat())?;
        let axis = |(from, to): (&usize, &usize)| -> Vec<Position> {
            (0..*to).map(|i| at(dtype, mode, is_aligned, [i, *from, *to])).collect()
        };
        let axes = shape[outer..].iter().zip(&sizes).map(axis).collect();
        Ok(Grid { shape: found, outer, axes })
    }
}

/// The position of element i of `to` elements in an axis of `from` elements.
fn at(dtype: DType, mode: &str, is_aligned: bool, [i, from, to]: [usize; 3]) -> Position {
    let [i, n, m] = [i, from, to].map(|number| number as i128);
    // As a fraction.
    let (over, under) = match mode {
        "nearest" => (i * n, m),
        "nearest_exact" => ((2 * i + 1) * n, 2 * m),
        _ if is_aligned && m == 1 => (0, 1),
        _ if is_aligned => (i * (n - 1), m - 1),
        _ => (((2 * i + 1) * n - m).clamp(0, (n - 1) * 2 * m), 2 * m),
    };
    let (before, rest) = (over / under, over % under);
    let after = if rest == 0 { before } else { before + 1 };
    Position { before: before as usize, after: after as usize, weight: weight(dtype, rest, under) }
}

fn weight(dtype: DType, over: i128, under: i128) -> Cell {
    let value = over as f64 / under as f64;
    let format = format(wide(dtype));
    // A denominator of a power of two, once it is reduced.
    let is_exact = value * 2.0_f64.powi(20) % 1.0 == 0.0 && under < 1 << 20;
    match is_exact {
        true => Cell::exact(value),
        false => Cell::Real(Real::ball(value, 0.0, 1.01 * WEIGHT * format.unit * value)),
    }
}

/// The elements at the positions, or between those before and after.
pub(super) fn interpolate(call: Call<'_>) -> Check<Value> {
    let x = call.srcs[0];
    let is_linear = call.args.word(1) == "linear";
    require(!is_linear || x.dtype.is_float(), x.dtype, "floats")?;
    let grid = Grid::of(x.dtype, &x.shape, call)?;
    let dtype = wide(x.dtype);
    let mut cells = Vec::with_capacity(count(&grid.shape));
    for_each_index(&grid.shape, |index| {
        let (outer, inner) = index.split_at(grid.outer);
        cells.push(if is_linear {
            let element =
                |source: &[usize]| cast(x.dtype, dtype, x.cells[position(source, &x.shape)]);
            let mut between = |before: Cell, after: Cell, weight: Cell| {
                let difference = add(dtype, after, neg(before));
                add(dtype, before, mul(dtype, difference, weight))
            };
            let found = grid.element(&mut outer.to_vec(), inner, &element, &mut between);
            cast(dtype, x.dtype, found)
        } else {
            let inner = inner.iter().zip(&grid.axes).map(|(i, axis)| axis[*i].before);
            let source: Vec<usize> = outer.iter().copied().chain(inner).collect();
            x.cells[position(&source, &x.shape)]
        });
    });
    Ok(Value::new(x.dtype, grid.shape, cells))
}

impl Grid {
    /// Returns the element at an index of the last axes, of which `source` has the first ones: that
    /// of the source, or `between` those before and after along the next axis.
    pub(crate) fn element<T: Copy>(
        &self,
        source: &mut Vec<usize>,
        index: &[usize],
        element: &impl Fn(&[usize]) -> T,
        between: &mut impl FnMut(T, T, Cell) -> T,
    ) -> T {
        let axis = source.len() - self.outer;
        let Some(position) = self.axes.get(axis).map(|axis_positions| axis_positions[index[axis]])
        else {
            return element(source);
        };
        let [before, after] = [position.before, position.after].map(|at| {
            source.push(at);
            let found = self.element(source, index, element, between);
            source.pop();
            found
        });
        between(before, after, position.weight)
    }
}
