//! One view: where element `i` of a tensor lies in a flat buffer, as strides, an offset and a
//! mask of valid indices. Knows nothing of graphs, dtypes or data.
//!
//! Element `i` lies at `offset + sum(i[a] * strides[a])` if the mask (a half-open range for each
//! axis) holds `i`, and is 0 otherwise. Views are kept in a canonical form, see [`View::create`].

use smallvec::SmallVec;

use crate::Error;
use crate::fault::{Fault, is_active};

/// Sizes, strides or an index, one for each axis.
pub type Axes = SmallVec<[i64; 4]>;
/// A half-open range for each axis.
pub type Ranges = SmallVec<[(i64, i64); 4]>;

/// A view of a flat buffer. Immutable and canonical.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct View {
    shape: Axes,
    strides: Axes,
    offset: i64,
    mask: Option<Ranges>,
    is_contiguous: bool,
}

/// Row-major strides in elements; 0 for axes of size 1.
pub(crate) fn row_major(shape: &[i64]) -> Axes {
    let mut strides: Axes = SmallVec::from_elem(0, shape.len());
    let mut step = 1;
    for axis in (0..shape.len()).rev() {
        strides[axis] = if shape[axis] == 1 { 0 } else { step };
        step *= shape[axis].max(1);
    }
    strides
}

/// The index of element `flat` in row-major order. Counts from the end where `flat` is negative,
/// as rounding down gives it.
pub(crate) fn unravel(shape: &[i64], mut flat: i64) -> Axes {
    let mut index: Axes = SmallVec::from_elem(0, shape.len());
    for axis in (0..shape.len()).rev() {
        index[axis] = flat.rem_euclid(shape[axis]);
        flat = flat.div_euclid(shape[axis]);
    }
    index
}

/// Refuses negative sizes and positions beyond 64 bits (with room for sums of two of them).
fn check(shape: &[i64], strides: &[i64], offset: i64) -> Result<(), Error> {
    let limit = i128::from(i64::MAX / 4);
    let mut count = 1i128;
    let mut reach = i128::from(offset).abs();
    for (axis, size) in shape.iter().enumerate() {
        if *size < 0 {
            return Err(Error::NegativeSize { shape: shape.to_vec(), axis, size: *size });
        }
        count *= i128::from(*size).max(1);
        reach += i128::from(strides[axis]).abs() * i128::from(*size);
        if count > limit || reach > limit {
            return Err(Error::TooLarge { shape: shape.to_vec() });
        }
    }
    Ok(())
}

impl View {
    /// A view in canonical form: strides of axes of size 1 are 0; a view without elements has
    /// only zeros; a mask that hides nothing is none; one that leaves a single index of an axis
    /// gives that axis stride 0 and moves the offset; one that hides all has only zeros.
    ///
    /// # Errors
    /// A negative size; positions beyond 64 bits.
    pub fn create(
        shape: &[i64],
        strides: Option<&[i64]>,
        offset: i64,
        mask: Option<&[(i64, i64)]>,
    ) -> Result<View, Error> {
        let shape = Axes::from_slice(shape);
        if let Some(strides) = strides {
            assert_eq!(strides.len(), shape.len(), "a stride for each axis");
        }
        check(&shape, strides.unwrap_or(&vec![0; shape.len()]), offset)?;
        let normal = row_major(&shape);
        if shape.contains(&0) {
            let strides = SmallVec::from_elem(0, shape.len());
            return Ok(View { shape, strides, offset: 0, mask: None, is_contiguous: true });
        }
        let mut strides = strides.map_or_else(|| normal.clone(), Axes::from_slice);
        for (stride, size) in strides.iter_mut().zip(&shape) {
            if *size == 1 {
                *stride = 0;
            }
        }
        let mut offset = offset;
        let mut mask = mask.map(Ranges::from_slice);
        if let Some(ranges) = &mut mask {
            assert_eq!(ranges.len(), shape.len(), "a range for each axis");
            if ranges.iter().any(|(begin, end)| begin >= end) {
                ranges.iter_mut().for_each(|range| *range = (0, 0));
                strides.iter_mut().for_each(|stride| *stride = 0);
                offset = 0;
            }
            for (axis, (begin, end)) in ranges.iter().enumerate() {
                assert!(0 <= *begin && *end <= shape[axis], "a mask inside the shape");
                if begin + 1 == *end {
                    offset += strides[axis] * begin;
                    strides[axis] = 0;
                }
            }
            if ranges.iter().zip(&shape).all(|(range, size)| *range == (0, *size)) {
                mask = None;
            }
        }
        let is_contiguous = offset == 0 && mask.is_none() && strides == normal;
        Ok(View { shape, strides, offset, mask, is_contiguous })
    }

    /// Sizes of the axes.
    pub fn shape(&self) -> &[i64] {
        &self.shape
    }

    /// Elements of the buffer from one index to the next, for each axis.
    pub fn strides(&self) -> &[i64] {
        &self.strides
    }

    /// Where index 0 lies; negative for padded views.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// The valid indices; `None` if all are.
    pub fn mask(&self) -> Option<&[(i64, i64)]> {
        self.mask.as_deref()
    }

    /// Whether element `i` in row-major order lies at `i`, for all of them.
    pub fn is_contiguous(&self) -> bool {
        self.is_contiguous
    }

    /// How many elements it has.
    pub fn size(&self) -> i64 {
        self.shape.iter().product()
    }

    /// Where the element of this index lies; `None` if it is masked.
    pub fn locate(&self, index: &[i64]) -> Option<i64> {
        if let Some(mask) = &self.mask
            && index.iter().zip(mask).any(|(i, (begin, end))| i < begin || end <= i)
        {
            return None;
        }
        let steps = index.iter().zip(&self.strides).map(|(i, stride)| i * stride);
        Some(self.offset + steps.sum::<i64>())
    }

    fn rank_is(&self, movement: &'static str, found: usize) -> Result<(), Error> {
        if found == self.shape.len() {
            return Ok(());
        }
        Err(Error::Rank { movement, shape: self.shape.to_vec(), found })
    }

    /// Cuts or widens each axis to `range` (in indices of this view), under `mask`.
    fn resize(&self, ranges: &[(i64, i64)], mask: Option<Ranges>) -> Result<View, Error> {
        let starts = ranges.iter().zip(&self.strides).map(|((start, _), stride)| start * stride);
        let offset = self.offset + starts.sum::<i64>();
        let mut resized: Option<Ranges> = self.mask.as_ref().map(|old| {
            let pairs = old.iter().zip(ranges);
            pairs
                .map(|((begin, end), (start, stop))| {
                    let size = stop - start;
                    ((begin - start).clamp(0, size), (end - start).clamp(0, size))
                })
                .collect()
        });
        if let Some(mask) = mask {
            resized = Some(match resized {
                None => mask,
                Some(old) => {
                    let pairs = old.iter().zip(&mask);
                    pairs.map(|(a, b)| (a.0.max(b.0), a.1.min(b.1))).collect()
                }
            });
        }
        let shape: Axes = ranges.iter().map(|(start, stop)| stop - start).collect();
        View::create(&shape, Some(&self.strides), offset, resized.as_deref())
    }

    /// Adds masked elements before and after each axis. `pads`: (before, after).
    ///
    /// # Errors
    /// Another count of axes; a negative count; sizes beyond 64 bits.
    pub fn pad(&self, pads: &[(i64, i64)]) -> Result<View, Error> {
        self.rank_is("pad", pads.len())?;
        if pads.iter().any(|(before, after)| *before < 0 || *after < 0) {
            return Err(Error::Pad { shape: self.shape.to_vec(), pads: pads.to_vec() });
        }
        if pads.iter().all(|pad| *pad == (0, 0)) {
            return Ok(self.clone());
        }
        let too_large = || Error::TooLarge { shape: self.shape.to_vec() };
        let mut ranges = Ranges::new();
        let mut mask = Ranges::new();
        for ((before, after), size) in pads.iter().zip(&self.shape) {
            let stop = size.checked_add(*after).ok_or_else(too_large)?;
            stop.checked_add(*before).ok_or_else(too_large)?;
            ranges.push((-before, stop));
            // FAULT view-pad-mask-wide
            let wide = i64::from(is_active(Fault::ViewPadMaskWide) && *before > 0 && *after > 0);
            mask.push((*before, before + size + wide));
        }
        self.resize(&ranges, Some(mask))
    }

    /// Keeps the half-open range of each axis.
    ///
    /// # Errors
    /// Another count of axes; a range that is not inside its axis.
    pub fn shrink(&self, ranges: &[(i64, i64)]) -> Result<View, Error> {
        self.rank_is("shrink", ranges.len())?;
        let is_inside = |(axis, (start, end)): (usize, &(i64, i64))| {
            0 <= *start && start <= end && *end <= self.shape[axis]
        };
        if let Some(axis) = (0..ranges.len()).find(|axis| !is_inside((*axis, &ranges[*axis]))) {
            let (shape, ranges) = (self.shape.to_vec(), ranges.to_vec());
            return Err(Error::Shrink { shape, ranges, axis });
        }
        self.resize(ranges, None)
    }

    /// Repeats axes of size 1.
    ///
    /// # Errors
    /// Another count of axes; an axis that is neither 1 nor equal; sizes beyond 64 bits.
    pub fn expand(&self, to: &[i64]) -> Result<View, Error> {
        self.rank_is("expand", to.len())?;
        let does_fit = |axis: &usize| self.shape[*axis] == to[*axis] || self.shape[*axis] == 1;
        if let Some(axis) = (0..to.len()).find(|axis| !does_fit(axis)) {
            return Err(Error::Expand { from: self.shape.to_vec(), to: to.to_vec(), axis });
        }
        let mask: Option<Ranges> = self.mask.as_ref().map(|old| {
            let widen = |axis: usize| {
                // An axis of size 1 is valid or not as a whole.
                let is_repeated = self.shape[axis] != to[axis];
                // FAULT view-expand-mask-kept
                let is_repeated = is_repeated && !is_active(Fault::ViewExpandMaskKept);
                if is_repeated && old[axis] == (0, 1) { (0, to[axis]) } else { old[axis] }
            };
            (0..to.len()).map(widen).collect()
        });
        View::create(to, Some(&self.strides), self.offset, mask.as_deref())
    }

    /// Axis `i` of the result is axis `axes[i]`.
    ///
    /// # Errors
    /// No permutation of the axes.
    pub fn permute(&self, axes: &[usize]) -> Result<View, Error> {
        let is_there = |axis: usize| axes.contains(&axis);
        if axes.len() != self.shape.len() || !(0..axes.len()).all(is_there) {
            let (shape, axes) = (self.shape.to_vec(), axes.to_vec());
            return Err(Error::Permute { shape, axes });
        }
        let pick = |from: &Axes| axes.iter().map(|axis| from[*axis]).collect::<Axes>();
        let mask: Option<Ranges> =
            self.mask.as_ref().map(|mask| axes.iter().map(|axis| mask[*axis]).collect());
        View::create(&pick(&self.shape), Some(&pick(&self.strides)), self.offset, mask.as_deref())
    }

    /// Reverses the axes that are `true`.
    ///
    /// # Errors
    /// Another count of axes.
    pub fn flip(&self, flips: &[bool]) -> Result<View, Error> {
        self.rank_is("flip", flips.len())?;
        let mut view = self.clone();
        // FAULT view-flip-first-axis-only
        let most = if is_active(Fault::ViewFlipFirstAxisOnly) { 1 } else { usize::MAX };
        for axis in (0..flips.len()).filter(|axis| flips[*axis]).take(most) {
            let size = self.shape[axis];
            view.offset += (size - 1) * self.strides[axis];
            view.strides[axis] = -self.strides[axis];
            if let Some(mask) = &mut view.mask {
                mask[axis] = (size - mask[axis].1, size - mask[axis].0);
            }
        }
        View::create(&view.shape, Some(&view.strides), view.offset, view.mask.as_deref())
    }

    /// The same elements in row-major order under other sizes; `None` where one view cannot say
    /// it.
    ///
    /// # Errors
    /// Negative sizes; another number of elements.
    pub fn reshape(&self, to: &[i64]) -> Result<Option<View>, Error> {
        if self.shape.as_slice() == to {
            return Ok(Some(self.clone()));
        }
        let fresh = View::create(to, None, 0, None)?;
        if self.size() != fresh.size() {
            return Err(Error::Reshape { from: self.shape.to_vec(), to: to.to_vec() });
        }
        if self.is_contiguous {
            return Ok(Some(fresh));
        }
        let Some(strides) = self.reshaped_strides(to) else { return Ok(None) };
        let Some(mask) = self.reshaped_mask(to) else { return Ok(None) };
        if mask.iter().any(|(begin, end)| begin >= end) {
            return View::create(to, None, 0, Some(&mask)).map(Some);
        }
        // The first valid element stays where it is.
        let first = |mask: &[(i64, i64)], strides: &[i64]| -> i64 {
            mask.iter().zip(strides).map(|((begin, _), stride)| begin * stride).sum()
        };
        let old = self.mask.as_ref().map_or(0, |mask| first(mask, &self.strides));
        let offset = self.offset + old - first(&mask, &strides);
        // FAULT view-reshape-mask-lost
        let is_lost = is_active(Fault::ViewReshapeMaskLost) && to.len() > 1;
        View::create(to, Some(&strides), offset, (!is_lost).then_some(&mask)).map(Some)
    }

    /// Strides under the sizes `to`: runs of axes that step evenly are merged, then split.
    fn reshaped_strides(&self, to: &[i64]) -> Option<Axes> {
        let mut strides = Axes::new();
        let mut sizes = to.iter().rev();
        for run in self.runs().iter().rev() {
            let mut done = 1;
            let mut stride = run.stride;
            while done != run.size {
                let size = sizes.next()?;
                strides.push(if *size == 1 { 0 } else { stride * done });
                done *= size;
                // A run of which only a part is real does not step beyond that part.
                if done >= run.real_size {
                    stride = 0;
                }
                if done > run.size {
                    return None;
                }
            }
        }
        strides.resize(to.len(), 0);
        strides.reverse();
        Some(strides)
    }

    /// Neighbouring axes that step evenly, merged. Axes whose mask leaves one index merge too.
    fn runs(&self) -> SmallVec<[Run; 4]> {
        let mut runs: SmallVec<[Run; 4]> = SmallVec::new();
        let mut is_single = false;
        for (axis, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let leaves_one = match &self.mask {
                Some(mask) => mask[axis].1 - mask[axis].0 == 1,
                None => *size == 1,
            };
            match runs.last_mut() {
                Some(_) if *size == 1 => continue,
                Some(run) if is_single || run.stride == size * stride => {
                    let real_size = if is_single { *size } else { run.real_size * size };
                    *run = Run { size: run.size * size, stride: *stride, real_size };
                }
                _ => {
                    let real_size = if *stride != 0 || axis > 0 { *size } else { 0 };
                    runs.push(Run { size: *size, stride: *stride, real_size });
                }
            }
            is_single = leaves_one;
        }
        runs
    }

    /// The mask under the sizes `to`; `None` where half-open ranges cannot say it.
    fn reshaped_mask(&self, to: &[i64]) -> Option<Ranges> {
        let Some(old) = &self.mask else { return Some(to.iter().map(|size| (0, *size)).collect()) };
        let nothing = || Some(to.iter().map(|_| (0, 0)).collect());
        if old.iter().any(|(begin, end)| begin >= end) {
            return nothing();
        }
        let mut ranges = old.iter().rev().copied();
        let mut old_sizes = self.shape.iter().rev().copied();
        let mut new_sizes = to.iter().rev().copied();
        let mut new_mask = Ranges::new();
        let mut step = 1;
        let mut size = old_sizes.next().unwrap_or(1);
        let mut new_size = new_sizes.next().unwrap_or(1);
        let (mut begin, mut end) = ranges.next().unwrap_or((0, 1));
        while new_mask.len() < to.len() {
            let next = new_size * step;
            if size == next {
                new_mask.push((begin / step, (end - 1) / step + 1));
                step = 1;
                size = old_sizes.next().unwrap_or(1);
                new_size = new_sizes.next().unwrap_or(1);
                (begin, end) = ranges.next().unwrap_or((0, 1));
            } else if size > next {
                // An axis is split: the valid part is whole rows, or lies in one row.
                let is_cut = begin % next != 0 || end % next != 0;
                if size % next != 0 || (is_cut && begin / next != (end - 1) / next) {
                    return None;
                }
                new_mask.push((begin % next / step, (end - 1) % next / step + 1));
                step = next;
                new_size = new_sizes.next().unwrap_or(1);
            } else {
                // Two axes are merged: the inner one is whole, or the outer one has one row.
                let (outer_begin, outer_end) = ranges.next().unwrap_or((0, 1));
                let is_whole = (begin, end) == (0, size);
                if !is_whole && outer_end - outer_begin != 1 {
                    return None;
                }
                (begin, end) = (outer_begin * size + begin, (outer_end - 1) * size + end);
                size *= old_sizes.next().unwrap_or(1);
            }
        }
        if (begin, end) != (0, 1) || ranges.any(|range| range != (0, 1)) {
            return nothing();
        }
        new_mask.reverse();
        Some(new_mask)
    }

    /// The view without repeated elements: axes of stride 0 cut to size 1.
    pub fn minify(&self) -> View {
        let cut =
            |(size, stride): (&i64, &i64)| (0, if *stride == 0 { 1.min(*size) } else { *size });
        let ranges: Ranges = self.shape.iter().zip(&self.strides).map(cut).collect();
        self.shrink(&ranges).expect("the ranges lie inside the axes")
    }

    /// A view that undoes this one: seen through both, a buffer of sizes `to` is itself again
    /// (but for what this view does not show). `None` if elements are shown twice, or not in a
    /// way that a view undoes.
    pub fn invert(&self, to: &[i64]) -> Option<View> {
        let mut view = View::create(&self.shape, None, 0, None).ok()?;
        if let Some(mask) = &self.mask {
            view = view.shrink(mask).ok()?;
        }
        let flips: SmallVec<[bool; 4]> = self.strides.iter().map(|stride| *stride < 0).collect();
        view = view.flip(&flips).ok()?;
        let mut axes: SmallVec<[usize; 4]> = (0..self.shape.len()).collect();
        axes.sort_by_key(|axis| -self.strides[*axis].abs());
        let view = view.permute(&axes).ok()?;
        if view.size() != to.iter().product::<i64>() {
            return None;
        }
        view.reshape(to).ok().flatten()
    }
}

/// Axes that step evenly.
#[derive(Clone, Copy)]
struct Run {
    /// How many elements.
    size: i64,
    /// From one to the next.
    stride: i64,
    /// How many of them the stride reaches; the rest is masked, or the stride is 0.
    real_size: i64,
}

/// `(4, 8)`, `(5,)`, `()`: as Python writes tuples.
pub(crate) fn tuple<T: std::fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let words: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if words.len() == 1 { format!("({},)", words[0]) } else { format!("({})", words.join(", ")) }
}

impl std::fmt::Display for View {
    /// As tinygrad prints it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mask = self.mask.as_ref().map_or("None".to_string(), |mask| {
            tuple(mask.iter().map(|(begin, end)| format!("({begin}, {end})")))
        });
        write!(
            f,
            "View(shape={}, strides={}, offset={}, mask={mask}, contiguous={})",
            tuple(&self.shape),
            tuple(&self.strides),
            self.offset,
            if self.is_contiguous { "True" } else { "False" }
        )
    }
}
