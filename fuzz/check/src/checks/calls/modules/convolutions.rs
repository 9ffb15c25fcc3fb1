//! Convolutions of images and of rows, transposed or not, and those that keep the size.

use std::sync::PoisonError;

use gradiff::nn::{Conv1d, Conv2d, ConvOptions, ConvTranspose1d, ConvTranspose2d, Module};
use gradiff::{DType, Error, PerAxis, Tensor};

use super::{Case, Output, SINGLE, Typed, data, optional, tensor};
use crate::checks::calls::Draw;
use crate::checks::calls::random::TURN;

/// Dtypes of images and layers.
const DTYPES: [Typed; 3] = [SINGLE, SINGLE, (DType::F64, 1e-9)];

/// The axes of a convolution, from large images to small ones, or of a transposed convolution,
/// from small images to large ones.
#[derive(Debug)]
struct Plane {
    images: usize,
    groups: usize,
    /// Channels and sizes of small images.
    small: [usize; 3],
    large: [usize; 3],
    kernel: [usize; 2],
    stride: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
}

impl Plane {
    /// Calls `visit` with the numbers of the elements of the small image, the large image and the
    /// weight of each product.
    fn products(&self, mut visit: impl FnMut([usize; 3])) {
        let [small_channels, rows, columns] = self.small;
        let large_channels = self.large[0] / self.groups;
        let [high, wide] = self.kernel;
        let count = self.images * small_channels * rows * columns * large_channels * high * wide;
        for number in 0..count {
            let (rest, j) = (number / wide, number % wide);
            let (rest, i) = (rest / high, rest % high);
            let (small, channel) = (rest / large_channels, rest % large_channels);
            let (rest, x) = (small / columns, small % columns);
            let (rest, y) = (rest / rows, rest % rows);
            let (image, small_channel) = (rest / small_channels, rest % small_channels);
            let group = small_channel / (small_channels / self.groups);
            let position = |axis: usize, small: usize, of_kernel: usize| {
                let at = small * self.stride[axis] + of_kernel * self.dilation[axis];
                at.checked_sub(self.padding[axis]).filter(|at| *at < self.large[1 + axis])
            };
            let (Some(y), Some(x)) = (position(0, y, i), position(1, x, j)) else { continue };
            let image = image * self.large[0] + group * large_channels + channel;
            let large = (image * self.large[1] + y) * self.large[2] + x;
            let weight = ((small_channel * large_channels + channel) * high + i) * wide + j;
            visit([small, large, weight]);
        }
    }

    /// The elements of the output: the small images, or the large ones if it is transposed.
    fn outputs(
        &self,
        is_transposed: bool,
        image: &[f64],
        weights: &[f64],
        biases: &[f64],
    ) -> Vec<f64> {
        let [channels, rows, columns] = if is_transposed { self.large } else { self.small };
        let area = rows * columns;
        let bias = |at: usize| biases[at / area % channels];
        let mut outputs: Vec<f64> = (0..self.images * channels * area).map(bias).collect();
        self.products(|[small, large, weight]| match is_transposed {
            true => outputs[large] += image[small] * weights[weight],
            false => outputs[small] += image[large] * weights[weight],
        });
        outputs
    }
}

/// Numbers of both axes: a single number if they are equal.
fn per_axis([first, second]: [usize; 2]) -> PerAxis {
    match first == second {
        true => PerAxis::from(first as i64),
        false => PerAxis::from([first as i64, second as i64]),
    }
}

pub(super) fn convolution(draw: &mut Draw) -> Result<Case, Error> {
    let is_transposed = draw.one_in(2);
    let typed @ (dtype, _) = draw.pick(&DTYPES);
    let groups = 1 + draw.below(2);
    let [small_channels, large_channels] = [(); 2].map(|()| groups * (1 + draw.below(2)));
    let [kernel, stride, dilation] = [(); 3].map(|()| [(); 2].map(|()| 1 + draw.below(3)));
    // The distance from the first to the last element of a window.
    let span = [0, 1].map(|axis| dilation[axis] * (kernel[axis] - 1));
    let padding = span.map(|span| draw.below(span / 2 + 1));
    let sizes = [(); 2].map(|()| 1 + draw.below(3));
    // Elements beyond those that windows reach.
    let added = stride.map(|stride| draw.below(stride));
    let large = [0, 1].map(|axis| {
        (sizes[axis] - 1) * stride[axis] + span[axis] + 1 + added[axis] - 2 * padding[axis]
    });
    let plane = Plane {
        images: 1 + draw.below(2),
        groups,
        small: [small_channels, sizes[0], sizes[1]],
        large: [large_channels, large[0], large[1]],
        kernel,
        stride,
        dilation,
        padding,
    };
    let (from, to) =
        if is_transposed { (plane.small, plane.large) } else { (plane.large, plane.small) };
    let image_shape = [&[plane.images][..], &from].concat();
    let (image, elements) = data(draw, dtype, &image_shape)?;
    let weight_shape = [small_channels, large_channels / groups, kernel[0], kernel[1]];
    let (weight, weights) = data(draw, dtype, &weight_shape)?;
    let (bias, biases) = optional(draw, dtype, &[to[0]], 0.0)?;
    let options = ConvOptions::default().stride(per_axis(stride)).dilation(per_axis(dilation));
    let has_bias = bias.is_some();
    let options = options.padding(per_axis(padding)).groups(groups as i64).bias(has_bias);
    let (inputs, outputs) = (from[0] as i64, to[0] as i64);
    // Weights of a new layer are random numbers.
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let y = match is_transposed {
        true => {
            let options = options.output_padding(per_axis(added));
            let mut layer = ConvTranspose2d::with(inputs, outputs, per_axis(kernel), options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
        false => {
            let mut layer = Conv2d::with(inputs, outputs, per_axis(kernel), options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
    };
    drop(turn);
    let wanted = plane.outputs(is_transposed, &elements, &weights, &biases);
    let shape = [&[plane.images][..], &to].concat();
    let label = format!("of {dtype}, transposed: {is_transposed}, {plane:?}");
    let mut case = Case::new(label, typed, y, &shape, wanted);
    if draw.one_in(3) {
        let numbers: [&[f64]; 3] = [&elements, &weights, &biases];
        case.outputs.push(convolution_of_rows(&plane, typed, is_transposed, has_bias, numbers)?);
        case.label += ", also of rows";
    }
    Ok(case)
}

/// The first numbers, also as a tensor of this shape.
fn first<'a>(
    dtype: DType,
    shape: &[usize],
    numbers: &'a [f64],
) -> Result<(Tensor, &'a [f64]), Error> {
    let numbers = &numbers[..shape.iter().product::<usize>()];
    Ok((tensor(dtype, shape, numbers)?, numbers))
}

/// The convolution along the last axis alone, of the first elements.
fn convolution_of_rows(
    plane: &Plane,
    typed: Typed,
    is_transposed: bool,
    has_bias: bool,
    [elements, weights, biases]: [&[f64]; 3],
) -> Result<Output, Error> {
    let plane = Plane {
        small: [plane.small[0], 1, plane.small[2]],
        large: [plane.large[0], 1, plane.large[2]],
        kernel: [1, plane.kernel[1]],
        stride: [1, plane.stride[1]],
        dilation: [1, plane.dilation[1]],
        padding: [0, plane.padding[1]],
        ..*plane
    };
    let (from, to) =
        if is_transposed { (plane.small, plane.large) } else { (plane.large, plane.small) };
    let [kernel, stride, dilation, padding] =
        [plane.kernel, plane.stride, plane.dilation, plane.padding].map(|sizes| sizes[1]);
    let (image, elements) = first(typed.0, &[plane.images, from[0], from[2]], elements)?;
    let weight_shape = [plane.small[0], plane.large[0] / plane.groups, kernel];
    let (weight, weights) = first(typed.0, &weight_shape, weights)?;
    let bias = has_bias.then(|| tensor(typed.0, &[to[0]], biases)).transpose()?;
    let options = ConvOptions::default().stride(stride as i64).dilation(dilation as i64);
    let options = options.padding(padding as i64).groups(plane.groups as i64).bias(has_bias);
    let (inputs, outputs, size) = (from[0] as i64, to[0] as i64, kernel as i64);
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let y = match is_transposed {
        true => {
            let reached = (from[2] - 1) * stride + dilation * (kernel - 1) + 1;
            let options = options.output_padding((to[2] + 2 * padding - reached) as i64);
            let mut layer = ConvTranspose1d::with(inputs, outputs, size, options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
        false => {
            let mut layer = Conv1d::with(inputs, outputs, size, options)?;
            (layer.weight, layer.bias) = (weight, bias);
            layer.forward(&image)?
        }
    };
    drop(turn);
    let wanted = plane.outputs(is_transposed, elements, weights, biases);
    Ok(Output::new(typed, y, &[plane.images, to[0], to[2]], wanted))
}

/// A convolution with the padding that keeps the size of the image. Of an odd number of zeros along
/// an axis, the larger part is at the end, which an image of several elements shows.
pub(super) fn same(draw: &mut Draw) -> Result<Case, Error> {
    let typed @ (dtype, _) = draw.pick(&DTYPES);
    let groups = 1 + draw.below(2);
    let [outputs, inputs] = [(); 2].map(|()| groups * (1 + draw.below(2)));
    let [rows, columns] = [(); 2].map(|()| 1 + draw.below(4));
    let kernel = draw.pick(&[[2, 1], [1, 2], [2, 3], [4, 2], [2, 2], [3, 4], [3, 3], [1, 5]]);
    let dilation = draw.pick(&[[1, 1], [1, 1], [3, 1], [1, 3], [2, 1], [1, 2]]);
    let plane = Plane {
        images: 1 + draw.below(2),
        groups,
        small: [outputs, rows, columns],
        large: [inputs, rows, columns],
        kernel,
        stride: [1; 2],
        dilation,
        padding: [0, 1].map(|axis| dilation[axis] * (kernel[axis] - 1) / 2),
    };
    let (image, elements) = data(draw, dtype, &[plane.images, inputs, rows, columns])?;
    let weight_shape = [outputs, inputs / groups, kernel[0], kernel[1]];
    let (weight, weights) = data(draw, dtype, &weight_shape)?;
    let (bias, biases) = optional(draw, dtype, &[outputs], 0.0)?;
    let options = ConvOptions::default().dilation(per_axis(dilation)).same_padding();
    let options = options.groups(groups as i64).bias(bias.is_some());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut layer = Conv2d::with(inputs as i64, outputs as i64, per_axis(kernel), options)?;
    drop(turn);
    (layer.weight, layer.bias) = (weight, bias);
    let wanted = plane.outputs(false, &elements, &weights, &biases);
    let is_unequal = [0, 1].iter().any(|axis| dilation[*axis] * (kernel[*axis] - 1) % 2 == 1);
    let label = format!("with same padding of {dtype}, unequal: {is_unequal}, {plane:?}");
    let shape = [plane.images, outputs, rows, columns];
    Ok(Case::new(label, typed, layer.forward(&image)?, &shape, wanted))
}
