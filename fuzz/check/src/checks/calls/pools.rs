//! Pooling of images by windows of any size, distance and padding, and its gradient, against a loop
//! over the elements of each window. Few different numbers make many windows with several largest
//! elements, which share the gradient equally.

use gradiff::{DType, Error, Pool};
use gradiff_eval::scalar;

use super::Draw;
use super::values::{Wanted, compare, number, tensor_of};

/// The windows along an axis of the image.
struct Side {
    size: i64,
    kernel: i64,
    stride: i64,
    dilation: i64,
    padding: (i64, i64),
}

impl Side {
    /// Draws a side of few elements, or a long one for which a gradient has many terms.
    fn draw(draw: &mut Draw, is_long: bool, is_strided: bool, limit: usize) -> Side {
        if is_long {
            let kernel = 60 + draw.below(8) as i64;
            let size = kernel + draw.below(6) as i64;
            let (stride, dilation) = (if is_strided { 1 } else { kernel }, 1);
            let padding = (draw.below(3) as i64, draw.below(3) as i64);
            return Side { size, kernel, stride, dilation, padding };
        }
        let mut number = |limit: usize| 1 + draw.below(limit) as i64;
        let (size, kernel) = (number(limit), number(4));
        let stride = if is_strided { number(4) } else { kernel };
        let (dilation, padding) = (number(3).max(2) - 1, (number(3) - 1, number(3) - 1));
        Side { size, kernel, stride, dilation, padding }
    }

    /// The positions of the elements of each window, of which some are beside the image; `None` if
    /// no window fits.
    fn windows(&self, is_ceil: bool) -> Option<Vec<Vec<i64>>> {
        let (before, after) = self.padding;
        let reach = (self.kernel - 1) * self.dilation + 1;
        let rest = self.size + before + after - reach;
        if rest < 0 {
            return None;
        }
        let mut last =
            if is_ceil { (rest + self.stride - 1) / self.stride } else { rest / self.stride };
        // One more, which may end beyond the padding, but not begin in the padding at the end.
        if is_ceil && 0 < last && self.size + before <= last * self.stride {
            last -= 1;
        }
        let first = |window: i64| window * self.stride - before;
        let elements =
            |window: i64| (0..self.kernel).map(|at| first(window) + at * self.dilation).collect();
        Some((0..=last).map(elements).collect())
    }
}

/// A window: the elements of a plane of the image, in their order, and the number of elements that
/// are in the image or in its padding.
struct Window {
    elements: Vec<usize>,
    with_padding: usize,
}

/// All windows of a plane, in row-major order, and their number along each axis.
fn windows(sides: &[Side], is_ceil: bool) -> Option<(Vec<i64>, Vec<Window>)> {
    let mut counts = Vec::new();
    // The number of an element in the plane, if it is there, and whether it is in the padded plane.
    let mut found: Vec<Vec<(Option<i64>, bool)>> = vec![vec![(Some(0), true)]];
    for side in sides {
        let along = side.windows(is_ceil)?;
        counts.push(along.len() as i64);
        let longer = |window: &Vec<(Option<i64>, bool)>, positions: &Vec<i64>| {
            let pairs = window.iter().flat_map(|known| positions.iter().map(move |at| (known, at)));
            let element = |((number, is_padded), at): (&(Option<i64>, bool), &i64)| {
                let is_inside = (0..side.size).contains(at);
                let number = number.filter(|_| is_inside).map(|number| number * side.size + at);
                (number, *is_padded && *at < side.size + side.padding.1)
            };
            pairs.map(element).collect::<Vec<_>>()
        };
        found = found
            .iter()
            .flat_map(|window| along.iter().map(move |positions| longer(window, positions)))
            .collect();
    }
    let window = |elements: &Vec<(Option<i64>, bool)>| Window {
        elements: elements.iter().filter_map(|(number, _)| number.map(|at| at as usize)).collect(),
        with_padding: elements.iter().filter(|(_, is_padded)| *is_padded).count(),
    };
    Some((counts, found.iter().map(window).collect()))
}

/// The unit of relative errors: a mean, of halves in f32 and rounded once, is off by two at most, a
/// sum of a few shares by four.
fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F32 => 2.5e-6,
        _ => 2.5e-13,
    }
}

/// Draws an image and options of a pool, and compares the values or the gradient with a loop.
pub(super) fn pools(draw: &mut Draw) -> Result<(), String> {
    let is_long = draw.one_in(8);
    let axes = if is_long { 1 } else { draw.pick(&[1, 2, 2, 3]) };
    let is_strided = !draw.one_in(4);
    let limit = [0, 12, 7, 4][axes];
    let sides: Vec<Side> =
        (0..axes).map(|_| Side::draw(draw, is_long, is_strided, limit)).collect();
    let outer: Vec<i64> = (0..draw.below(3)).map(|_| 1 + draw.below(2) as i64).collect();
    let planes = outer.iter().product::<i64>() as usize;
    let kind = draw.below(3);
    let dtype = match kind != 2 && draw.one_in(4) {
        true => draw.pick(&[DType::I32, DType::U8, DType::I16, DType::I64, DType::Bool]),
        false => draw.pick(&[DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16]),
    };
    let of_sides = |number: fn(&Side) -> i64| sides.iter().map(number).collect::<Vec<i64>>();
    let (kernel, stride) = (of_sides(|side| side.kernel), of_sides(|side| side.stride));
    let (size, dilation) = (of_sides(|side| side.size), of_sides(|side| side.dilation));
    let padding: Vec<i64> =
        sides.iter().flat_map(|side| [side.padding.0, side.padding.1]).collect();
    let (is_ceil, counts_padding) = (draw.one_in(3), draw.one_in(2));
    let options = Pool::new(&kernel[..]).dilation(&dilation[..]).padding(&padding[..]);
    let options = if is_strided { options.stride(&stride[..]) } else { options };
    let options = options.ceil_mode(is_ceil).count_include_pad(counts_padding);
    let plane = size.iter().product::<i64>() as usize;
    let smallest = scalar::range(dtype).map_or(f64::NEG_INFINITY, |range| range.0 as f64);
    let (least, kinds) = (smallest.max(-1.0), if dtype == DType::Bool { 2 } else { 4 });
    let specials = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
    let special = (dtype.is_float() && draw.one_in(8)).then(|| draw.pick(&specials));
    let element = |_| match special {
        Some(special) if draw.one_in(4) => special,
        _ => draw.below(kinds) as f64 + least,
    };
    let numbers: Vec<f64> = (0..planes * plane).map(element).collect();
    let shape = [&outer[..], &size].concat();
    let x = tensor_of(dtype, &shape, &numbers).map_err(|error| error.to_string())?;
    let name = ["max_pool2d", "max_pool2d_with_indices", "avg_pool2d"][kind];
    let label = format!("{name} of {dtype}{shape:?} {numbers:?} with {options:?}");
    let found = match kind {
        0 => x.max_pool2d(&options).map(|value| (value, None)),
        1 => x.max_pool2d_with_indices(&options).map(|(value, at)| (value, Some(at))),
        _ => x.avg_pool2d(&options).map(|value| (value, None)),
    };
    let Some((counts, windows)) = windows(&sides, is_ceil) else {
        return match found {
            Err(Error::Invalid(message)) if !message.is_empty() => Ok(()),
            found => Err(format!("{label} gives {found:?}, not a refusal")),
        };
    };
    let (value, positions) = found.map_err(|error| format!("{label}: {error}"))?;
    let result = [&outer[..], &counts].concat();
    if value.shape() != result || value.dtype() != dtype {
        return Err(format!("{label} gives {value:?}, expected {dtype}{result:?}"));
    }
    let divisor = |window: &Window| match counts_padding {
        true => window.with_padding as f64,
        false => window.elements.len() as f64,
    };
    // A NaN if there is one, and the smallest value if there is no element.
    let largest = |plane: &[f64], window: &Window| {
        let larger = |x: f64, y: f64| if y.is_nan() || x < y { y } else { x };
        window.elements.iter().map(|at| plane[*at]).fold(smallest, larger)
    };
    let is_undefined = |w: &Window| kind == 2 && !counts_padding && w.elements.is_empty();
    let windows = &windows;
    let pairs = || {
        let planes = numbers.chunks(plane).enumerate();
        planes.flat_map(move |(number, plane)| windows.iter().map(move |w| (number, plane, w)))
    };
    let has_gradient = !windows.iter().any(is_undefined) && !special.is_some_and(f64::is_nan);
    if dtype.is_float() && has_gradient && draw.one_in(2) {
        let weights: Vec<f64> = pairs().map(|_| draw.below(7) as f64 - 3.0).collect();
        let by = tensor_of(dtype, &result, &weights).map_err(|error| error.to_string())?;
        let gradient =
            value.gradient_by(&by, &[&x]).map_err(|error| format!("{label}: {error}"))?;
        // The sums, and those of the absolute values.
        let mut sums = vec![(0.0, 0.0); numbers.len()];
        for ((number, elements, window), weight) in pairs().zip(&weights) {
            let largest = largest(elements, window);
            let chosen: Vec<usize> = match kind {
                2 => window.elements.clone(),
                _ => {
                    window.elements.iter().copied().filter(|at| elements[*at] == largest).collect()
                }
            };
            let share = weight / if kind == 2 { divisor(window) } else { chosen.len() as f64 };
            for at in chosen {
                let (sum, magnitude) = &mut sums[number * plane + at];
                *sum += share;
                *magnitude += share.abs();
            }
        }
        let unit = 4.0 * tolerance(dtype);
        let near = |(sum, magnitude): &(f64, f64)| Wanted::Near(*sum, unit * magnitude);
        let wanted: Vec<Wanted> = sums.iter().map(near).collect();
        return compare(
            draw,
            &format!("gradient of {label} by {weights:?}"),
            &gradient[0],
            &wanted,
        );
    }
    let wanted = |(_, elements, window): (usize, &[f64], &Window)| {
        let sum: f64 = window.elements.iter().map(|at| elements[*at]).sum();
        match kind {
            2 if is_undefined(window) => Wanted::Free,
            2 => Wanted::Near(sum / divisor(window), 2.0 * tolerance(dtype)),
            _ => Wanted::Bits(number(dtype, largest(elements, window))),
        }
    };
    compare(draw, &label, &value, &pairs().map(wanted).collect::<Vec<_>>())?;
    let Some(positions) = positions else { return Ok(()) };
    if positions.shape() != result || positions.dtype() != DType::I32 {
        return Err(format!("{label} gives the positions {positions:?}"));
    }
    let first = |(_, elements, window): (usize, &[f64], &Window)| {
        let largest = largest(elements, window);
        let is_first = |at: &&usize| elements[**at] == largest || elements[**at].is_nan();
        let first = window.elements.iter().find(is_first);
        Wanted::Bits(number(DType::I32, first.map_or(-1.0, |at| *at as f64)))
    };
    compare(draw, &label, &positions, &pairs().map(first).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_match_loops() {
        for seed in 0..200 {
            pools(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn windows_are_those_of_the_definition() {
        let side = |size, kernel, stride, dilation, padding| Side {
            size,
            kernel,
            stride,
            dilation,
            padding,
        };
        let found = side(5, 2, 2, 1, (0, 0)).windows(false);
        assert_eq!(found, Some(vec![vec![0, 1], vec![2, 3]]));
        let found = side(5, 2, 2, 1, (0, 0)).windows(true);
        assert_eq!(found, Some(vec![vec![0, 1], vec![2, 3], vec![4, 5]]));
        // The third would begin in the padding.
        let found = side(4, 2, 2, 1, (0, 1)).windows(true);
        assert_eq!(found, Some(vec![vec![0, 1], vec![2, 3]]));
        assert_eq!(side(3, 2, 1, 2, (1, 0)).windows(false), Some(vec![vec![-1, 1], vec![0, 2]]));
        assert_eq!(side(3, 2, 1, 3, (0, 0)).windows(false), None);
    }
}
