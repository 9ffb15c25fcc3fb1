//! Transposed convolutions.

use super::windows::{Conv, Extent, Steps};
use crate::error::invalid;
use crate::methods::movement::zero;
use crate::{Error, Tensor};

/// Number of products of a transposed convolution from which on phases with different numbers of
/// elements have kernels of their own.
const DIVIDED_PRODUCTS: i64 = 1 << 16;

/// Phases of an axis of a transposed convolution that have as many elements of the kernel each.
/// Results that are a stride apart are sums of elements of a phase, which are a stride apart, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Phases {
    first: i64,
    count: i64,
    /// The number of elements of each phase.
    elements: i64,
}

impl Phases {
    /// Divides a kernel into phases; `None` if it has none.
    fn of(kernel: i64, stride: i64, dilation: i64) -> Option<Vec<Phases>> {
        if stride == 1 || dilation != 1 || kernel == 0 {
            return None;
        }
        let (fewer, longer) = (kernel / stride, kernel % stride);
        let longer = Phases { first: 0, count: longer, elements: fewer + 1 };
        let rest = Phases { first: longer.count, count: stride - longer.count, elements: fewer };
        Some([longer, rest].into_iter().filter(|part| 0 < part.count * part.elements).collect())
    }
}

impl Tensor {
    /// Transposed convolution of images [n, c, ..] with weights [c, k / groups, ..]: element `i` of
    /// an axis adds its products with the weights at `i * stride + j * dilation - padding`; the
    /// size is `(size - 1) * stride - padding before and after + dilation * (kernel - 1) +
    /// output_padding + 1`. In the promoted dtype, [n, k, ..]. Between and around the elements are
    /// zeros; whether they are multiplied is free, so that infinite weights may give NaN there.
    /// # Errors
    /// If shapes or options do not fit, or the dtype is bool.
    pub fn conv_transpose2d(&self, weight: &Tensor, options: &Conv) -> Result<Tensor, Error> {
        let name = "conv_transpose2d";
        let axes = self.check_channels(name, weight, options.groups, 0)?;
        if self.shape()[2..].contains(&0) {
            let shape = self.shape();
            return Err(Error::Invalid(format!("{name} of {shape:?}: an image has no elements")));
        }
        let padding = options.padding.pairs(axes, "conv_transpose2d with padding")?;
        let mut stride = options.stride.numbers(axes, 1, "conv_transpose2d with stride")?;
        // The stride of a single element has no effect, however large it is.
        (0..axes).filter(|axis| self.shape()[2 + axis] == 1).for_each(|axis| stride[axis] = 1);
        let dilation = options.dilation.numbers(axes, 1, "conv_transpose2d with dilation")?;
        let added =
            options.output_padding.numbers(axes, 0, "conv_transpose2d with output_padding")?;
        let too_large = || Error::Invalid(format!("{name}: the result is too large"));
        // Weights [groups, c / groups, k / groups, ..] become [k, c / groups, ..].
        let (groups, shape) = (options.groups, weight.shape());
        let mut split = vec![groups, shape[0] / groups, shape[1]];
        split.extend(&shape[2..]);
        let mut order: Vec<usize> = (0..split.len()).collect();
        order.swap(1, 2);
        let outputs = groups.checked_mul(shape[1]).ok_or_else(too_large)?;
        let mut merged = vec![outputs, shape[0] / groups];
        merged.extend(&shape[2..]);
        let weights = weight.reshape(&split)?.permuted(&order).reshape(&merged)?;
        // Few products are not worth several kernels.
        let products = weights.size_elements().saturating_mul(self.shape()[2..].iter().product());
        let parts_max = if products < DIVIDED_PRODUCTS { 1 } else { 2 };
        let phases = |axis: usize| {
            let phases = Phases::of(shape[2 + axis], stride[axis], dilation[axis]);
            phases.filter(|parts| parts.len() <= parts_max)
        };
        let phases: Vec<Option<Vec<Phases>>> = (0..axes).map(phases).collect();
        // Elements of an axis without phases have zeros between them, and so many around, or are so
        // many less, that the windows end as stated.
        let is_divided = |axis: usize| phases[axis].is_some();
        let between = (0..axes).map(|axis| if is_divided(axis) { 1 } else { stride[axis] });
        let mut image = self.with_zeros_between(&between.collect::<Vec<i64>>())?;
        for axis in (0..axes).filter(|axis| !is_divided(*axis)) {
            let reach = Extent::reach(shape[2 + axis], dilation[axis]).ok_or_else(too_large)? - 1;
            let (before, after) = (padding[axis].0, padding[axis].1.saturating_sub(added[axis]));
            let [before, after] = [before, after].map(|padding| reach.saturating_sub(padding));
            image = image.resized(2 + axis, before, after)?;
        }
        let steps = Steps { groups, stride: vec![1; axes], dilation };
        let sums = image.convolution_of_phases(&weights, &phases, &stride, &steps)?;
        let mut result = sums.with_phases_in_turns(&phases, &stride)?;
        for axis in (0..axes).filter(|axis| is_divided(*axis)) {
            let last = (self.shape()[2 + axis] - 1).checked_mul(stride[axis]);
            let end =
                last.and_then(|last| last.checked_add(shape[2 + axis])).ok_or_else(too_large)?;
            let end = end.saturating_add(added[axis]).saturating_sub(padding[axis].1);
            let after = end.saturating_sub(result.shape()[2 + axis]);
            result = result.resized(2 + axis, -padding[axis].0, after)?;
        }
        Ok(result)
    }

    /// The sums of the phases of a transposed convolution with weights [k, c / groups, ..]:
    /// [n, k, phases of each axis, ..], with zeros at the end where others have more sums.
    fn convolution_of_phases(
        &self,
        weights: &Tensor,
        phases: &[Option<Vec<Phases>>],
        stride: &[i64],
        steps: &Steps,
    ) -> Result<Tensor, Error> {
        let axes = phases.len();
        let Some(axis) = (0..axes).find(|axis| phases[*axis].as_ref().is_some_and(|p| 1 < p.len()))
        else {
            let single = |parts: &Option<Vec<Phases>>| parts.as_ref().map(|parts| parts[0]);
            let phases: Vec<Option<Phases>> = phases.iter().map(single).collect();
            return self.convolution_of_equal_phases(weights, &phases, stride, steps);
        };
        let mut found = Vec::new();
        for part in phases[axis].iter().flatten() {
            let mut chosen = phases.to_vec();
            chosen[axis] = Some(vec![*part]);
            found.push(self.convolution_of_phases(weights, &chosen, stride, steps)?);
        }
        let size = |x: &Tensor| x.shape()[2 + axes + axis];
        let longest = found.iter().map(size).max().unwrap_or(0);
        let ended = |x: &Tensor| x.resized(2 + axes + axis, 0, longest - size(x));
        let found: Vec<Tensor> = found.iter().map(ended).collect::<Result<_, _>>()?;
        Tensor::cat(&found.iter().collect::<Vec<_>>(), 2 + axis as i64)
    }

    /// The sums of phases that have as many elements along an axis each.
    fn convolution_of_equal_phases(
        &self,
        weights: &Tensor,
        phases: &[Option<Phases>],
        stride: &[i64],
        steps: &Steps,
    ) -> Result<Tensor, Error> {
        let parts = weights.divided_into_phases(phases, stride)?;
        let mut image = self.clone();
        for (axis, phases) in phases.iter().enumerate() {
            if let Some(Phases { elements, .. }) = phases {
                image = image.resized(2 + axis, elements - 1, elements - 1)?;
            }
        }
        let space: Vec<usize> = (2..2 + phases.len()).collect();
        let sums = image.convolution("conv_transpose2d", &parts.flipped(&space), steps)?;
        let shape = sums.shape();
        let counts = phases.iter().map(|phases| phases.map_or(1, |phases| phases.count));
        let outputs = weights.shape()[0];
        let split: Vec<i64> =
            [shape[0], outputs].into_iter().chain(counts).chain(shape[2..].to_vec()).collect();
        sums.reshape(&split)
    }

    /// Takes the phases of the axes of a kernel [k, c, ..]: element `i * stride + phase` of an axis
    /// becomes element `i` of a further output, [k * phases, c, ..].
    fn divided_into_phases(
        &self,
        phases: &[Option<Phases>],
        stride: &[i64],
    ) -> Result<Tensor, Error> {
        let axes = phases.len();
        let mut parts = self.clone();
        for (axis, phases) in phases.iter().enumerate() {
            let at = 2 + 2 * axis;
            let Some(Phases { first, count, elements }) = *phases else {
                parts = parts.unsqueeze(at as i64 + 1)?;
                continue;
            };
            let size = parts.shape()[at];
            let mut split = parts.shape().to_vec();
            split.splice(at..=at, [elements, stride[axis]]);
            let rows = parts.resized(at, 0, elements * stride[axis] - size)?.reshape(&split)?;
            parts = rows.range(at + 1, first, first + count)?;
        }
        let mut order = vec![0];
        order.extend((0..axes).map(|axis| 3 + 2 * axis));
        order.push(1);
        order.extend((0..axes).map(|axis| 2 + 2 * axis));
        let shape = parts.shape();
        let outputs = (0..axes).fold(shape[0], |outputs, axis| outputs * shape[3 + 2 * axis]);
        let mut merged = vec![outputs, shape[1]];
        merged.extend((0..axes).map(|axis| shape[2 + 2 * axis]));
        parts.permuted(&order).reshape(&merged)
    }

    /// Makes images of sums [n, k, phases of each axis, ..]: elements of the phases take turns
    /// along their axes, and zeros follow if there are fewer of them than the stride.
    fn with_phases_in_turns(
        &self,
        phases: &[Option<Vec<Phases>>],
        stride: &[i64],
    ) -> Result<Tensor, Error> {
        let (shape, axes) = (self.shape(), phases.len());
        let mut order = vec![0, 1];
        order.extend((0..axes).flat_map(|axis| [2 + axes + axis, 2 + axis]));
        let (mut pads, mut merged) = (vec![(0, 0); 2], shape[..2].to_vec());
        for axis in 0..axes {
            let step = phases[axis].as_ref().map_or(1, |_| stride[axis]);
            pads.extend([(0, 0), (0, step - shape[2 + axis])]);
            let Some(total) = shape[2 + axes + axis].checked_mul(step) else {
                return invalid(format!("conv_transpose2d to {shape:?}: the stride is too large"));
            };
            merged.push(total);
        }
        let turns = self.permuted(&order).pad(&pads, zero(self.dtype()))?;
        // Those that are put together are stored in whole blocks; a part of a block is not.
        let are_joined = phases.iter().flatten().any(|parts| 1 < parts.len());
        if are_joined { turns.contiguous() } else { turns }.reshape(&merged)
    }

    /// Adds zeros before and after an axis; negative numbers remove elements.
    fn resized(&self, axis: usize, before: i64, after: i64) -> Result<Tensor, Error> {
        // Zeros may be removed, too, so they come first.
        let padded = self.padded(axis, before.max(0), after.max(0))?;
        let size = padded.shape()[axis];
        let removed = |added: i64| added.saturating_neg().max(0);
        let (first, last) = (removed(before), size.saturating_sub(removed(after)));
        if last <= first {
            return invalid(format!(
                "conv_transpose2d of {:?}: the padding leaves nothing of axis {axis}",
                self.shape()
            ));
        }
        padded.range(axis, first, last)
    }

    /// Inserts `stride - 1` zeros between the elements of each axis from the third on.
    fn with_zeros_between(&self, stride: &[i64]) -> Result<Tensor, Error> {
        if stride.iter().all(|stride| *stride == 1) {
            return Ok(self.clone());
        }
        let shape = self.shape();
        let mut sizes = shape[2..].iter().zip(stride);
        if sizes.any(|(size, stride)| size.checked_mul(*stride).is_none()) {
            return invalid(format!("conv_transpose2d of {shape:?}: the stride is too large"));
        }
        self.spread(2, stride)
    }
}
