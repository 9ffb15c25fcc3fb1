//! Draws shapes and the arguments of movement operations. Knows shapes only, no values, no dtypes.
//!
//! Every function gives arguments that fit: `limit` bounds the element count of the result.

use gradiff_corpus::Shape;

use crate::Choices;

/// Maximum number of axes of a value in nearly all programs.
pub(crate) const USUAL_RANK: usize = 5;

/// Returns the number of elements.
pub(crate) fn count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Returns the number of elements with the same index on `axis`.
pub(crate) fn slice_count(shape: &[usize], axis: usize) -> usize {
    shape[..axis].iter().chain(&shape[axis + 1..]).product()
}

/// Axis sizes that the shapes of a case draw from, so that equal and distinct sizes both occur.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Palette {
    sizes: [usize; 3],
    kinds: u32,
}

impl Palette {
    /// Draws one to three small sizes, at most 16; with `has_zero`, one of them is 0.
    pub(crate) fn draw(choices: &mut dyn Choices, has_zero: bool) -> Palette {
        let mut sizes = [0; 3];
        for size in &mut sizes {
            *size = choices.pick(&[2, 3, 4, 5, 3, 2, 4, 6, 8, 7, 1, 3, 9, 4, 16, 10]);
        }
        if has_zero {
            sizes[2] = 0;
        }
        let kinds = if has_zero { 3 } else { 1 + choices.below(3) };
        Palette { sizes, kinds }
    }

    /// Draws one to three sizes up to `limit`: powers of two, their neighbours, and primes.
    pub(crate) fn draw_edges(choices: &mut dyn Choices, limit: usize) -> Palette {
        const SMALL: [usize; 16] = [4, 2, 3, 8, 7, 16, 5, 9, 1, 15, 17, 6, 8, 13, 4, 11];
        const LARGE: [usize; 16] =
            [32, 16, 31, 33, 64, 63, 65, 128, 127, 129, 256, 255, 257, 8, 17, 1];
        let mut sizes = [0; 3];
        for size in &mut sizes {
            // Mostly large axes if there is room for them.
            let is_large = limit > 512 && choices.below(3) != 2;
            let size_drawn = choices.pick(if is_large { &LARGE } else { &SMALL });
            *size = size_drawn.min(limit);
        }
        Palette { sizes, kinds: 1 + choices.below(3) }
    }

    /// Draws one to three sizes up to `limit` that leave a remainder after most tiles.
    pub(crate) fn draw_uneven(choices: &mut dyn Choices, limit: usize) -> Palette {
        const SIZES: [usize; 14] = [12, 14, 18, 19, 20, 24, 29, 30, 37, 48, 65, 96, 130, 520];
        let sizes = [(); 3].map(|()| choices.pick(&SIZES).min(limit));
        Palette { sizes, kinds: 1 + choices.below(3) }
    }

    /// Makes the sizes small, so that shapes of many axes have few elements.
    pub(crate) fn shortened(mut self) -> Palette {
        for (size, max) in self.sizes.iter_mut().zip([2, 3, 2]) {
            *size = (*size).min(max);
        }
        self
    }

    /// Draws a size; sometimes 1, whatever the palette.
    pub(crate) fn size(&self, choices: &mut dyn Choices) -> usize {
        if choices.one_in(8) { 1 } else { self.sizes[choices.below(self.kinds) as usize] }
    }

    /// Draws a shape of at most `max_rank` axes and `limit` elements. If more axes than usual are
    /// allowed, most shapes have them.
    pub(crate) fn shape(&self, choices: &mut dyn Choices, max_rank: usize, limit: usize) -> Shape {
        let rank = choices.pick(&[1, 2, 2, 3, 3, 2, 4, 0, 2, 3, 1, 3, 4, 5, 6, 2]);
        let rank = if USUAL_RANK < max_rank && 1 < rank { rank + 4 } else { rank };
        let mut shape = Shape::with_capacity(rank.min(max_rank));
        let mut product = 1;
        for _ in 0..rank.min(max_rank) {
            let size = self.size(choices);
            let size = if product * size <= limit { size } else { 1 };
            product *= size.max(1);
            shape.push(size);
        }
        shape
    }
}

/// Draws a divisor of `number` (at least 1), with equal probabilities.
pub(crate) fn divisor(choices: &mut dyn Choices, number: usize) -> usize {
    // Each small divisor has a large cofactor, except a square root.
    let is_divisor = |size: &usize| number.is_multiple_of(*size);
    let small = || (1..).take_while(|size| size * size <= number).filter(is_divisor);
    let count = small().map(|size| 1 + usize::from(size * size != number)).sum::<usize>();
    let nth = choices.below(count as u32) as usize;
    let is_small = nth < count.div_ceil(2);
    let divisor = small().nth(if is_small { nth } else { count - 1 - nth }).unwrap_or(1);
    if is_small { divisor } else { number / divisor }
}

/// Draws sizes with the same product: merges or splits axes, inserts a 1 or drops all, flattens, or
/// draws all sizes anew.
pub(crate) fn reshape(choices: &mut dyn Choices, from: &[usize], max_rank: usize) -> Shape {
    let rank = from.len();
    let mut to = from.to_vec();
    if from.contains(&0) {
        return empty_reshape(choices, from, max_rank);
    }
    match choices.below(6) {
        0 if rank >= 2 => {
            let axis = choices.below(rank as u32 - 1) as usize;
            to[axis] *= to.remove(axis + 1);
        }
        1 if rank >= 1 && rank < max_rank => {
            let axis = choices.below(rank as u32) as usize;
            let outer = divisor(choices, to[axis]);
            to[axis] /= outer;
            to.insert(axis, outer);
        }
        2 if rank < max_rank => {
            let axis = choices.below(rank as u32 + 1) as usize;
            to.insert(axis, 1);
        }
        3 if to.contains(&1) => to.retain(|size| *size != 1),
        4 => to = vec![count(from)],
        _ => {
            let mut rest = count(from);
            to.clear();
            for _ in 1..1 + choices.below(max_rank.max(1) as u32) {
                let size = divisor(choices, rest);
                rest /= size;
                to.push(size);
            }
            if rest != 1 || to.is_empty() {
                to.push(rest);
            }
        }
    }
    to
}

/// Draws a reshape of a tensor without elements: any sizes as long as one is 0.
fn empty_reshape(choices: &mut dyn Choices, from: &[usize], max_rank: usize) -> Shape {
    // The product of the sizes that stay is limited.
    let max_rank = max_rank.min(USUAL_RANK);
    let mut to: Shape = (0..choices.below(max_rank as u32)).map(|i| 1 + i as usize).collect();
    if to.is_empty() {
        return from.to_vec();
    }
    let axis = choices.below(to.len() as u32) as usize;
    to[axis] = 0;
    to
}

/// Draws a permutation of `rank` axes; the identity is the smallest choice.
pub(crate) fn permutation(choices: &mut dyn Choices, rank: usize) -> Vec<usize> {
    let mut axes: Vec<usize> = (0..rank).collect();
    for i in 0..rank.saturating_sub(1) {
        let j = i + choices.below((rank - i) as u32) as usize;
        axes[i..=j].rotate_right(1);
    }
    axes
}

/// Draws an expansion of the axes of size 1, each up to `max_size`, as far as `limit` allows.
pub(crate) fn expansion(
    choices: &mut dyn Choices,
    from: &[usize],
    max_size: usize,
    limit: usize,
) -> Shape {
    let mut product: usize = from.iter().filter(|size| **size != 0).product();
    let mut to = from.to_vec();
    for size in to.iter_mut().filter(|size| **size == 1) {
        let max = (limit / product.max(1)).clamp(1, max_size);
        *size = 1 + choices.below(max as u32) as usize;
        product *= *size;
    }
    to
}

/// Draws the padding of each axis, at most `max_pad` on each side, as far as `limit` allows.
pub(crate) fn pads(
    choices: &mut dyn Choices,
    from: &[usize],
    max_pad: usize,
    limit: usize,
) -> Vec<(usize, usize)> {
    let mut product: usize = from.iter().map(|size| *size.max(&1)).product();
    let mut pads = Vec::with_capacity(from.len());
    for &size in from {
        let slice_count = (product / size.max(1)).max(1);
        let spare = (limit / slice_count).saturating_sub(size);
        let before = choices.below(spare.min(max_pad) as u32 + 1) as usize;
        let after = choices.below((spare - before).min(max_pad) as u32 + 1) as usize;
        product = slice_count * (size + before + after).max(1);
        pads.push((before, after));
    }
    pads
}

/// Draws a range of each axis; empty ones only if `allows_empty` or if the axis is empty.
pub(crate) fn ranges(
    choices: &mut dyn Choices,
    from: &[usize],
    allows_empty: bool,
) -> Vec<(usize, usize)> {
    let mut ranges = Vec::with_capacity(from.len());
    for &size in from {
        let min = usize::from(!allows_empty && size > 0);
        let start = choices.below((size + 1 - min) as u32) as usize;
        let end = size - choices.below((size + 1 - min - start) as u32) as usize;
        ranges.push((start, end));
    }
    ranges
}

/// Draws a subset of the axes, ascending; the empty set is the smallest choice.
pub(crate) fn axes(choices: &mut dyn Choices, rank: usize) -> Vec<usize> {
    let mask = choices.below(1 << rank.min(16));
    (0..rank).filter(|axis| mask & (1 << axis) != 0).collect()
}

/// Returns whether the shapes broadcast, to at most `limit` elements.
pub(crate) fn broadcast(a: &[usize], b: &[usize], limit: usize) -> bool {
    let (long, short) = if a.len() < b.len() { (b, a) } else { (a, b) };
    let offset = long.len() - short.len();
    let mut product: usize = long[..offset].iter().product();
    for (x, y) in long[offset..].iter().zip(short) {
        if x != y && *x != 1 && *y != 1 {
            return false;
        }
        product *= if *x == 1 { *y } else { *x };
    }
    product <= limit
}

/// Draws a shape that broadcasts with `shape`: the same one, with some sizes 1, or with leading
/// axes dropped or added.
pub(crate) fn partner(
    choices: &mut dyn Choices,
    shape: &[usize],
    palette: &Palette,
    max_rank: usize,
    limit: usize,
) -> Shape {
    let mut partner = shape.to_vec();
    match choices.below(8) {
        0..=3 => {}
        4 | 5 => {
            for axis in axes(choices, shape.len()) {
                partner[axis] = 1;
            }
        }
        6 => {
            let dropped = choices.below(shape.len() as u32 + 1) as usize;
            partner.drain(..dropped);
        }
        _ => {
            let size = palette.size(choices);
            if shape.len() < max_rank && size * count(shape) <= limit {
                partner.insert(0, size);
            }
        }
    }
    // Without an axis of size 0, the rest may be too large.
    if limit < count(&partner) { shape.to_vec() } else { partner }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SeedChoices;

    #[test]
    fn movement_arguments_fit_and_respect_the_limit() {
        let mut choices = SeedChoices::new(1);
        for i in 0..20_000 {
            let palette = Palette::draw(&mut choices, i % 10 == 0);
            let from = palette.shape(&mut choices, 5, 64);
            assert!(from.len() <= 5);
            assert!(count(&from) <= 64);
            let to = reshape(&mut choices, &from, 5);
            assert_eq!(count(&to), count(&from));
            assert!(count(&expansion(&mut choices, &from, 4, 64)) <= 64);
            let padded = pads(&mut choices, &from, 3, 64);
            let sizes = from.iter().zip(&padded).map(|(size, (a, b))| size + a + b);
            assert!(sizes.product::<usize>() <= 64);
            for ((start, end), size) in ranges(&mut choices, &from, false).iter().zip(&from) {
                assert!(start < end || *size == 0);
                assert!(end <= size);
            }
            let partner = partner(&mut choices, &from, &palette, 5, 64);
            assert!(broadcast(&from, &partner, 64), "{from:?} {partner:?}");
        }
    }
}
