//! Windows, ranges and repetitions of shapes near the limit of elements, stacks of views that do
//! not fit, and long axes: an illegal call is refused, a legal one is answered, nothing panics.

use gradiff::view::{Error as ViewError, ShapeTracker, View};
use gradiff::{Conv, DType, Engine, Error, Pool, Tensor};

use super::Draw;
use super::limits::{judge, legal, wide};

/// Sizes that are drawn.
const SIZES: [i64; 10] = [0, 1, 1, 2, 3, 7, 1 << 10, 1 << 20, (1 << 31) + 1, 1 << 40];
/// Arguments that are drawn besides those near a size.
const EXTREMES: [i64; 10] =
    [0, 1, -1, 2, 1 << 20, 1 << 39, 1 << 40, (1 << 62) + 1, i64::MAX, i64::MIN];
/// Numbers of elements of long axes.
const LENGTHS: [i64; 8] = [1, 255, 256, 257, 4095, 4097, 1 << 16, (1 << 16) + 1];
/// Number of images of a call.
const IMAGES: usize = 48;
/// Number of elements of the longest axis.
const LONGEST: i64 = 1 << 21;
/// Number of sums of shifted sums.
const SUMS: u32 = 24;
/// Limit of the nodes of all kernels of shifted sums; a graph without sharing has 2^24.
const NODES_MAX: usize = 1 << 14;

/// A number near the size, or an extreme one.
fn near(draw: &mut Draw, size: i64) -> i64 {
    match draw.below(3) {
        0 => draw.pick(&EXTREMES),
        1 => size + draw.pick(&[0, -1, 1]),
        _ => draw.pick(&[size / 2, 1, 2, 3]),
    }
}

/// Draws a constant and a method that takes parts of it.
pub(super) fn windows(draw: &mut Draw) -> Result<(), String> {
    let rank = 1 + draw.below(3);
    let shape: Vec<i64> = (0..rank).map(|_| draw.pick(&SIZES)).collect();
    let Some(_) = legal(&shape) else { return Ok(()) };
    let x = Tensor::full(DType::I8, &shape, 0).map_err(|error| error.to_string())?;
    let axis = draw.below(rank);
    let size = shape[axis];
    let number = axis as i64;
    match draw.below(10) {
        0 | 1 => unfold(draw, &x, axis),
        9 => (0..IMAGES).try_for_each(|_| image(draw, size)),
        2 => {
            let bounds: Vec<(i64, i64)> = shape
                .iter()
                .map(|size| match draw.below(3) {
                    0 => (near(draw, *size), near(draw, *size)),
                    _ => (0, *size),
                })
                .collect();
            let is_inside = |((begin, end), size): (&(i64, i64), &i64)| {
                0 <= *begin && begin <= end && end <= size
            };
            let is_legal = bounds.iter().zip(&shape).all(is_inside);
            // An empty range is legal wherever it is within the axis.
            let sizes = || bounds.iter().map(|(begin, end)| end - begin).collect();
            let call = format!("shrink of {shape:?} to {bounds:?}");
            judge(&call, is_legal.then(sizes), || x.shrink(&bounds)).map(drop)
        }
        3 => {
            let counts: Vec<i64> = shape.iter().map(|size| near(draw, *size)).collect();
            let product = |(size, count): (&i64, &i64)| i128::from(*size) * i128::from(*count);
            let is_legal = counts.iter().all(|count| 0 <= *count);
            let repeated: Vec<i128> = shape.iter().zip(&counts).map(product).collect();
            let expected = wide(&repeated).filter(|_| is_legal);
            judge(&format!("repeat of {shape:?} by {counts:?}"), expected, || x.repeat(&counts))
                .map(drop)
        }
        4 => {
            let count = near(draw, size);
            let mut repeated: Vec<i128> = shape.iter().map(|size| i128::from(*size)).collect();
            repeated[axis] *= i128::from(count);
            let expected = wide(&repeated).filter(|_| 0 <= count);
            let call = format!("repeat_interleave of {shape:?} by {count} along {axis}");
            judge(&call, expected, || x.repeat_interleave(count, number)).map(drop)
        }
        5 => {
            let shift = near(draw, size);
            let call = format!("roll of {shape:?} by {shift} along {axis}");
            judge(&call, Some(shape.clone()), || x.roll(&[shift], &[number])).map(drop)
        }
        _ => {
            let [first, second, third] = [0; 3].map(|_| near(draw, size));
            let pads: Vec<(i64, i64)> =
                (0..rank).map(|at| if at == axis { (first, second) } else { (0, 0) }).collect();
            let ranges = [(first, second, third)];
            let kind = draw.below(7);
            let call = format!("method {kind} of {shape:?}, {axis}: {first}, {second}, {third}");
            let work = || match kind {
                0 => x.slice(&ranges),
                1 => x.unflatten(number, &[first, second]),
                2 => x.diagonal(first, number, (number + 1) % rank as i64),
                3 => x.pad_reflect(&pads),
                4 => x.pad_replicate(&pads),
                5 => x.triu(first),
                _ => x.split(&[first, second], number).map(|mut parts| parts.remove(0)),
            };
            let expected = part(kind, &shape, axis, [first, second, third]);
            let expected = expected.and_then(|sizes| wide(&sizes));
            // Slices and diagonals are made of up to twice as many elements.
            let doubled = shape.iter().chain([&2]).map(|size| i128::from(*size));
            match (expected, wide(&doubled.collect::<Vec<_>>())) {
                (Some(_), None) if matches!(kind, 0 | 2) => answered(&call, work),
                (expected, _) => judge(&call, expected, work).map(drop),
            }
        }
    }
}

/// The sizes that a method of [`windows`] gives; `None` if the call is illegal.
fn part(kind: usize, shape: &[i64], axis: usize, numbers: [i64; 3]) -> Option<Vec<i128>> {
    let mut sizes: Vec<i128> = shape.iter().map(|size| i128::from(*size)).collect();
    let (size, [x, y, z]) = (sizes[axis], numbers.map(i128::from));
    let is_legal = match kind {
        0 => {
            sizes[0] = sliced(sizes[0], [x, y, z])?;
            true
        }
        1 => {
            let inferred = |known: i128| (0 < known && size % known == 0).then(|| size / known);
            let (x, y) = match (x, y) {
                (-1, known) => (inferred(known)?, known),
                (known, -1) => (known, inferred(known)?),
                both => both,
            };
            sizes.splice(axis..=axis, [x, y]);
            0 <= x && 0 <= y && x * y == size
        }
        2 if shape.len() == 1 => false,
        2 => {
            let next = (axis + 1) % shape.len();
            // Without the rows above the first element, and the columns before it.
            let rows = size - (-x).clamp(0, size);
            let columns = sizes[next] - x.clamp(0, sizes[next]);
            sizes.remove(axis.max(next));
            sizes.remove(axis.min(next));
            sizes.push(rows.min(columns));
            true
        }
        3 => {
            sizes[axis] += x + y;
            let limit = (size - 1).max(0);
            [x, y].iter().all(|count| (0..=limit).contains(count))
        }
        4 => {
            sizes[axis] += x + y;
            0 <= x && 0 <= y && (0 < size || sizes[axis] == 0)
        }
        5 => 2 <= shape.len(),
        _ => {
            sizes[axis] = x;
            0 <= x && 0 <= y && x + y == size
        }
    };
    is_legal.then_some(sizes)
}

/// The number of elements of Python's `range(size)[start:stop:step]`.
fn sliced(size: i128, [start, stop, step]: [i128; 3]) -> Option<i128> {
    let (low, high) = if step < 0 { (-1, size - 1) } else { (0, size) };
    let clipped = |at: i128| if at < 0 { at + size } else { at }.clamp(low, high);
    let distance = (clipped(stop) - clipped(start)) * step.signum();
    (step != 0).then(|| distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs()) as i128)
}

/// Windows along an axis.
fn unfold(draw: &mut Draw, x: &Tensor, axis: usize) -> Result<(), String> {
    let shape = x.shape().to_vec();
    let total = shape[axis];
    let (window, step) = (near(draw, total), near(draw, total));
    let is_legal = (0..=total).contains(&window) && 1 <= step;
    let expected = is_legal.then(|| {
        let mut windows = shape.clone();
        windows[axis] = (total - window) / step + 1;
        windows.push(window);
        windows
    });
    let expected = expected.and_then(|windows| legal(&windows));
    // The windows are made of copies of the axis, as many as a window has elements and some more.
    let copies = i128::from(window) * (i128::from(total) + 1) + i128::from(total);
    let mut copied: Vec<i128> = shape.iter().map(|size| i128::from(*size)).collect();
    copied[axis] = copies;
    let call = format!("unfold of {shape:?} into {window}, {step} apart, along {axis}");
    let work = || x.unfold(axis as i64, window, step);
    match (expected, wide(&copied)) {
        (Some(_), None) => answered(&call, work),
        (expected, _) => judge(&call, expected, work).map(drop),
    }
}

/// A convolution or a pool of an image, with options near its size or extreme ones.
fn image(draw: &mut Draw, size: i64) -> Result<(), String> {
    let full = |shape: &[i64]| Tensor::full(DType::F32, shape, 0);
    // Products with the elements of a window must be few.
    let shape = [1, 1, draw.pick(&[1, 2, 8]), size.clamp(0, 1 << 20)];
    let window = [draw.pick(&[1, 2]), draw.pick(&[1, 2, 3, 0])];
    let (x, weight) = match (full(&shape), full(&[1, 1, window[0], window[1]])) {
        (Ok(x), Ok(weight)) => (x, weight),
        pair => return Err(format!("an image: {pair:?}")),
    };
    let mut option = |usual: i64| match draw.below(4) {
        0 | 1 => usual,
        2 => draw.pick(&EXTREMES),
        _ => near(draw, size),
    };
    let (stride, dilation, padding, added) = (option(1), option(1), option(0), option(0));
    let kernel = option(window[1]);
    let kind = draw.below(4);
    let call = format!(
        "method {kind} of an image of {shape:?}, window {window:?} or {kernel}: stride {stride}, \
         dilation {dilation}, padding {padding}, {added} added"
    );
    let conv = Conv::default().stride(stride).dilation(dilation).padding(padding);
    let pool = Pool::new(kernel).stride(stride).dilation(dilation).padding(padding);
    answered(&call, || match kind {
        0 => x.conv2d(&weight, &conv),
        1 => x.conv_transpose2d(&weight, &conv.output_padding(added)),
        2 => x.max_pool2d(&pool.ceil_mode(added % 2 != 0)),
        _ => x.avg_pool2d(&pool.ceil_mode(added % 2 != 0)),
    })
}

/// Makes a call, which must give a tensor of a legal shape, or a refusal.
fn answered(call: &str, work: impl FnOnce() -> Result<Tensor, Error>) -> Result<(), String> {
    match crate::catch(work).map_err(|panic| format!("{call}: {panic}"))? {
        Ok(tensor) if legal(tensor.shape()).is_some() => Ok(()),
        Err(Error::Invalid(message)) if !message.is_empty() => Ok(()),
        found => Err(format!("{call}: it gives {found:?}")),
    }
}

/// A view with the addresses that it reads, lowest and highest; `None` if it reads none.
struct Drawn {
    view: View,
    read: Option<(i128, i128)>,
}

/// Draws a view, usually of addresses near those of `size` elements.
fn drawn(draw: &mut Draw, size: i64) -> Option<Drawn> {
    let rank = draw.below(3);
    let sizes = [1, 2, 3, 4, 8, size, size / 2, 1 << 40];
    let shape: Vec<i64> = (0..rank).map(|_| draw.pick(&sizes).max(1)).collect();
    let is_masked = draw.one_in(2);
    let (mut strides, mut mask, mut read) = (Vec::new(), Vec::new(), Some((0i128, 0i128)));
    for size in &shape {
        let stride = draw.pick(&[1, 0, 2, -1, 4, 1 << 31]);
        let range = match draw.below(3) {
            _ if !is_masked => (0, *size),
            0 => (0, *size),
            _ => {
                let [x, y] = [0, 1].map(|_| near(draw, *size).clamp(0, *size));
                (x.min(y), x.max(y))
            }
        };
        let ends = [range.0, range.1 - 1].map(|at| i128::from(stride) * i128::from(at));
        read = read
            .filter(|_| range.0 < range.1)
            .map(|(low, high)| (low + ends[0].min(ends[1]), high + ends[0].max(ends[1])));
        strides.push(stride);
        mask.push(range);
    }
    // Usually the lowest address is 0, or the highest is the last.
    let low = read.map_or(0, |(low, _)| -low);
    let high = read.map_or(0, |(_, high)| i128::from(size) - 1 - high);
    let offset = draw.pick(&[low, high, 0, low - 1, high + 1, i128::from(size)]);
    let offset = i64::try_from(offset).ok()?;
    let mask = is_masked.then_some(&mask[..]);
    let view = View::create(&shape, Some(&strides), offset, mask).ok()?;
    let offset = i128::from(offset);
    Some(Drawn { view, read: read.map(|(low, high)| (low + offset, high + offset)) })
}

/// Stacks drawn views: each may read the elements of the view below alone.
pub(super) fn stacks(draw: &mut Draw) -> Result<(), String> {
    let size = draw.pick(&[1, 4, 8, 12, 1 << 20, 1 << 40]);
    let Some(below) = drawn(draw, size) else { return Ok(()) };
    let Some(count) = below.view.shape().iter().try_fold(1i64, |count, n| count.checked_mul(*n))
    else {
        return Ok(());
    };
    let Some(above) = drawn(draw, count) else { return Ok(()) };
    let is_legal = above.read.is_none_or(|(low, high)| 0 <= low && high < i128::from(count));
    let views = [below.view, above.view];
    let found = crate::catch(|| ShapeTracker::from_views(&views))?;
    match &found {
        Ok(tracker) if is_legal && tracker.views() == views => Ok(()),
        Err(ViewError::Stack { .. }) if !is_legal => Ok(()),
        _ => Err(format!("from_views of {} and {} gives {found:?}", views[0], views[1])),
    }
}

/// Running sums along an axis, which may be long, sums of shifted sums, and sorts.
pub(super) fn long_axes(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    match draw.below(8) {
        0 => return shifted_sums(),
        1..=3 => return sorts(draw),
        _ => {}
    }
    let length = if draw.one_in(16) { LONGEST } else { draw.pick(&LENGTHS) };
    let first = draw.bits();
    let numbers: Vec<i32> =
        (0..length as u64).map(|at| (first.wrapping_add(at * 7919) % 201) as i32 - 100).collect();
    let x = Tensor::from_slice(&[length], &numbers).map_err(problem)?;
    let sums = x.cumsum(0).map_err(problem)?;
    Engine::new("jit").and_then(|engine| engine.realize(&[&sums])).map_err(problem)?;
    let found = sums.to_vec::<i32>().map_err(problem)?;
    let mut sum = 0;
    let expected = numbers.iter().map(|number| {
        sum += number;
        sum
    });
    match found.iter().copied().zip(expected).position(|(found, expected)| found != expected) {
        None if found.len() == numbers.len() => Ok(()),
        at => Err(format!("cumsum of {length} elements is wrong at {at:?} of {}", found.len())),
    }
}

/// Sorts rows, of which long ones are merged from blocks, and finds their first elements.
fn sorts(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let near = 128 * (1 + draw.below(12)) as i64 + draw.pick(&[-1, 0, 1, 30, -50]);
    let (rows, length) = (1 + draw.below(2) as i64, near);
    // Few numbers have many equal ones, whose order must stay.
    let kinds = draw.pick(&[2, 7, 100, 1 << 30]);
    let numbers: Vec<f32> = (0..rows * length)
        .map(|_| match draw.below(kinds) {
            number if 7 < kinds && number % 50 == 0 => draw.pick(&[f32::NAN, -0.0, f32::INFINITY]),
            number => number as f32 - (kinds / 2) as f32,
        })
        .collect();
    let descending = draw.one_in(2);
    let before = |x: f32, y: f32| match (x.is_nan(), y.is_nan()) {
        (false, false) => x.partial_cmp(&y).expect("neither is NaN"),
        (x, y) => x.cmp(&y),
    };
    let mut expected = Vec::new();
    for row in numbers.chunks(length as usize) {
        let mut positions: Vec<i32> = (0..length as i32).collect();
        positions.sort_by(|x, y| {
            let order = before(row[*x as usize], row[*y as usize]);
            if descending { order.reverse() } else { order }
        });
        expected.extend(positions);
    }
    let x = Tensor::from_slice(&[rows, length], &numbers).map_err(problem)?;
    let positions = x.argsort(1, descending).map_err(problem)?;
    let k = draw.pick(&[1, 2, 10, length / 8, length]);
    let (_, first) = x.topk(k, 1, descending).map_err(problem)?;
    Engine::new("jit").and_then(|engine| engine.realize(&[&positions, &first])).map_err(problem)?;
    let found = positions.to_vec::<i32>().map_err(problem)?;
    if found != expected {
        let at = found.iter().zip(&expected).position(|(found, expected)| found != expected);
        return Err(format!("argsort of {rows} rows of {length} is wrong at {at:?}"));
    }
    let expected: Vec<i32> =
        expected.chunks(length as usize).flat_map(|row| &row[..k as usize]).copied().collect();
    match first.to_vec::<i32>().map_err(problem)? == expected {
        true => Ok(()),
        false => Err(format!("topk of {k} of {rows} rows of {length} is wrong")),
    }
}

/// Plans sums, each of two parts of the sum before: every sum is planned once.
fn shifted_sums() -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let mut y = Tensor::arange(DType::I32, 0, 1, 1 << (SUMS + 1)).map_err(problem)?;
    for exponent in 0..SUMS {
        let (size, shift) = (y.shape()[0], 1 << exponent);
        let parts = (y.shrink(&[(0, size - shift)]), y.shrink(&[(shift, size)]));
        y = parts.0.and_then(|first| first.add(&parts.1?)).map_err(problem)?;
    }
    let engine = Engine::new("interp").map_err(problem)?;
    let plan = engine.plan(&[&y]).map_err(problem)?;
    let nodes: usize = plan.items.iter().map(|item| item.ast.order().len()).sum();
    if NODES_MAX < nodes {
        return Err(format!("{SUMS} shifted sums are planned as {nodes} nodes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&mut Draw) -> Result<(), String>;

    #[test]
    fn windows_and_long_axes_are_answered() {
        let checks: [(Check, u64); 3] = [(windows, 20_000), (stacks, 20_000), (long_axes, 60)];
        for (check, seeds) in checks {
            for seed in 0..seeds {
                check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
            }
        }
    }

    #[test]
    fn parts_have_known_sizes() {
        // A kind of method, a shape, an axis, the numbers, and the sizes.
        type Part = (usize, &'static [i64], usize, [i64; 3], Option<&'static [i64]>);
        let parts: [Part; 19] = [
            (0, &[7, 2], 1, [1, 6, 2], Some(&[3, 2])),
            (0, &[7], 0, [-1, i64::MIN, -3], Some(&[3])),
            (0, &[7], 0, [0, 7, 0], None),
            (0, &[0], 0, [5, -1, i64::MAX], Some(&[0])),
            (1, &[2, 12], 1, [3, -1, 0], Some(&[2, 3, 4])),
            (1, &[12], 0, [-1, -1, 0], None),
            (1, &[0], 0, [0, -1, 0], None),
            (1, &[0], 0, [0, i64::MAX, 0], Some(&[0, i64::MAX])),
            (2, &[3, 5, 4], 1, [1, 0, 0], Some(&[3, 3])),
            (2, &[5, 4], 1, [i64::MIN, 0, 0], Some(&[0])),
            (2, &[5], 0, [0, 0, 0], None),
            (3, &[3], 0, [2, 1, 0], Some(&[6])),
            (3, &[3], 0, [0, 3, 0], None),
            (4, &[3], 0, [0, 5, 0], Some(&[8])),
            (4, &[0], 0, [1, 0, 0], None),
            (5, &[7, 7], 0, [i64::MIN, 0, 0], Some(&[7, 7])),
            (5, &[7], 0, [0, 0, 0], None),
            (6, &[2, 7], 1, [3, 4, 0], Some(&[2, 3])),
            (6, &[7], 0, [8, -1, 0], None),
        ];
        for (kind, shape, axis, numbers, sizes) in parts {
            let found = part(kind, shape, axis, numbers);
            let wide = |sizes: &[i64]| sizes.iter().map(|size| i128::from(*size)).collect();
            let sizes: Option<Vec<i128>> = sizes.map(wide);
            assert_eq!(found, sizes, "{kind} {shape:?} {numbers:?}");
        }
    }

    #[test]
    fn stacks_are_drawn_that_fit_and_that_do_not() {
        let fits = |seed: &u64| {
            let mut draw = Draw::new(*seed);
            drawn(&mut draw, 8)
                .and_then(|view| view.read)
                .is_none_or(|(low, high)| 0 <= low && high < 8)
        };
        let fitting = (0..600).filter(fits).count();
        assert!((100..500).contains(&fitting), "{fitting} of 600 views fit");
    }
}
