//! Convolutions and transposed convolutions.

use gradiff_tensor::{Conv, Error, PerAxis, Tensor};

use crate::functional::{affine, check_sizes, invalid, per_channel, uniform};
use crate::{Module, State, Visitor};

/// The options of a convolution: stride 1, dilation 1, no padding, one group, a bias, unless set.
/// A number holds for every axis, a list has a number for each, as in [`Conv`].
#[derive(Clone, Debug)]
pub struct ConvOptions {
    stride: PerAxis,
    dilation: PerAxis,
    /// `None` for as much as the size of the image needs to stay.
    padding: Option<PerAxis>,
    output_padding: PerAxis,
    groups: i64,
    bias: bool,
}

impl Default for ConvOptions {
    fn default() -> ConvOptions {
        ConvOptions {
            stride: PerAxis::Same(1),
            dilation: PerAxis::Same(1),
            padding: Some(PerAxis::Same(0)),
            output_padding: PerAxis::Same(0),
            groups: 1,
            bias: true,
        }
    }
}

impl ConvOptions {
    /// Sets the distance between windows.
    ///
    /// ```
    /// # use gradiff_nn::{Conv2d, ConvOptions, Module};
    /// # use gradiff_tensor::Tensor;
    /// let layer = Conv2d::with(2, 4, 3, ConvOptions::default().stride([1, 2]))?;
    /// let image = Tensor::ones(gradiff_graph::DType::F32, &[1, 2, 7, 7])?;
    /// assert_eq!(layer.forward(&image)?.shape(), [1, 4, 5, 3]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn stride(self, stride: impl Into<PerAxis>) -> ConvOptions {
        ConvOptions { stride: stride.into(), ..self }
    }

    /// Sets the distance between the elements of a window.
    ///
    /// ```
    /// # use gradiff_nn::{Conv2d, ConvOptions, Module};
    /// # use gradiff_tensor::Tensor;
    /// let layer = Conv2d::with(2, 4, 3, ConvOptions::default().dilation(2))?;
    /// let image = Tensor::ones(gradiff_graph::DType::F32, &[1, 2, 7, 7])?;
    /// assert_eq!(layer.forward(&image)?.shape(), [1, 4, 3, 3]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn dilation(self, dilation: impl Into<PerAxis>) -> ConvOptions {
        ConvOptions { dilation: dilation.into(), ..self }
    }

    /// Sets the number of zeros around the image.
    ///
    /// ```
    /// # use gradiff_nn::{Conv2d, ConvOptions, Module};
    /// # use gradiff_tensor::Tensor;
    /// let layer = Conv2d::with(2, 4, 3, ConvOptions::default().padding(1))?;
    /// let image = Tensor::ones(gradiff_graph::DType::F32, &[1, 2, 7, 7])?;
    /// assert_eq!(layer.forward(&image)?.shape(), [1, 4, 7, 7]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn padding(self, padding: impl Into<PerAxis>) -> ConvOptions {
        ConvOptions { padding: Some(padding.into()), ..self }
    }

    /// Sets the padding so that the output has the size of the image. Of an odd number of zeros,
    /// the larger part is at the end. Takes no stride, and no transposed convolution.
    ///
    /// ```
    /// # use gradiff_nn::{Conv2d, ConvOptions, Module};
    /// # use gradiff_tensor::Tensor;
    /// let layer = Conv2d::with(1, 1, [4, 3], ConvOptions::default().same_padding().dilation(2))?;
    /// let image = Tensor::ones(gradiff_graph::DType::F32, &[1, 1, 9, 8])?;
    /// assert_eq!(layer.forward(&image)?.shape(), [1, 1, 9, 8]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn same_padding(self) -> ConvOptions {
        ConvOptions { padding: None, ..self }
    }

    /// Sets the number of elements that a transposed convolution adds at the end of each axis.
    /// Another convolution takes none.
    ///
    /// ```
    /// # use gradiff_nn::{ConvOptions, ConvTranspose2d, Module};
    /// # use gradiff_tensor::Tensor;
    /// let options = ConvOptions::default().stride(2).output_padding(1);
    /// let layer = ConvTranspose2d::with(2, 4, 3, options)?;
    /// let image = Tensor::ones(gradiff_graph::DType::F32, &[1, 2, 7, 7])?;
    /// assert_eq!(layer.forward(&image)?.shape(), [1, 4, 16, 16]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn output_padding(self, output_padding: impl Into<PerAxis>) -> ConvOptions {
        ConvOptions { output_padding: output_padding.into(), ..self }
    }

    /// Sets the number of groups of channels that are convolved separately.
    ///
    /// ```
    /// # use gradiff_nn::{Conv2d, ConvOptions};
    /// let layer = Conv2d::with(2, 4, 3, ConvOptions::default().groups(2))?;
    /// assert_eq!(layer.weight.shape(), [4, 1, 3, 3]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn groups(self, groups: i64) -> ConvOptions {
        ConvOptions { groups, ..self }
    }

    /// Sets whether there is a bias.
    ///
    /// ```
    /// # use gradiff_nn::{Conv2d, ConvOptions};
    /// let layer = Conv2d::with(2, 4, 3, ConvOptions::default().bias(false))?;
    /// assert!(layer.bias.is_none());
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn bias(self, bias: bool) -> ConvOptions {
        ConvOptions { bias, ..self }
    }

    /// Refuses the options that are for the other kind of convolution.
    fn check_kind(&self, layer: &str, is_transposed: bool) -> Result<(), Error> {
        if is_transposed && self.padding.is_none() {
            return invalid(format!(
                "{layer} with same_padding: it is for convolutions that are not transposed; set \
                 the padding"
            ));
        }
        let added = match &self.output_padding {
            PerAxis::Same(number) => std::slice::from_ref(number),
            PerAxis::Each(numbers) => numbers.as_slice(),
        };
        if !is_transposed && added.iter().any(|number| *number != 0) {
            return invalid(format!(
                "{layer} with output_padding {added:?}: it is for transposed convolutions"
            ));
        }
        Ok(())
    }

    /// Returns the options of the method for a kernel of these sizes.
    fn conv(&self, layer: &str, kernel: &[i64]) -> Result<Conv, Error> {
        let padding = match &self.padding {
            Some(padding) => padding.clone(),
            None => {
                let stride = numbers(layer, "stride", &self.stride, kernel.len())?;
                if stride.iter().any(|stride| *stride != 1) {
                    return invalid(format!(
                        "{layer} with same_padding and stride {stride:?}: the stride must be 1"
                    ));
                }
                let dilation = numbers(layer, "dilation", &self.dilation, kernel.len())?;
                let total = |(size, dilation): (&i64, &i64)| dilation.saturating_mul(size - 1);
                let totals = kernel.iter().zip(&dilation).map(total);
                PerAxis::Each(totals.flat_map(|total| [total / 2, total - total / 2]).collect())
            }
        };
        let conv = Conv::default().stride(self.stride.clone()).dilation(self.dilation.clone());
        let conv = conv.output_padding(self.output_padding.clone()).groups(self.groups);
        Ok(conv.padding(padding))
    }
}

/// The numbers for each of `axes` axes, which must be positive.
fn numbers(layer: &str, name: &str, numbers: &PerAxis, axes: usize) -> Result<Vec<i64>, Error> {
    let numbers = match numbers {
        PerAxis::Same(number) => vec![*number; axes],
        PerAxis::Each(numbers) => numbers.clone(),
    };
    if numbers.len() != axes || numbers.iter().any(|number| *number < 1) {
        return invalid(format!(
            "{layer} with {name} {numbers:?}: one number, 1 or more, for each of {axes} axes"
        ));
    }
    Ok(numbers)
}

/// Defines a layer whose weight begins with two axes of channels.
macro_rules! layers {
    ($(
        $(#[$doc:meta])* $layer:ident: $method:ident, $name:literal, transposed $transposed:literal,
        weight of ($in_size:ident, $out_size:ident): $first:ident, $second:ident, $shape:literal;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $layer<const AXES: usize> {
            #[doc = concat!("The weight ", $shape, ".")]
            pub weight: Tensor,
            /// The bias `[out]`.
            pub bias: Option<Tensor>,
            options: Conv,
        }

        impl<const AXES: usize> $layer<AXES> {
            /// Creates a layer with the default options. `kernel_size` is a number for all axes, or
            /// a list with one for each.
            /// # Errors
            /// As [`with`](Self::with).
            pub fn new(
                in_channels: i64,
                out_channels: i64,
                kernel_size: impl Into<PerAxis>,
            ) -> Result<Self, Error> {
                Self::with(in_channels, out_channels, kernel_size, ConvOptions::default())
            }

            /// Creates a layer with these options. Weight and bias are uniform in `±1 / sqrt(n)`,
            /// where n is the number of input channels times the size of the kernel.
            /// # Errors
            /// If a number of channels or the size of the kernel is not positive, the numbers of
            /// channels are no multiples of the groups, the options do not fit each other, or the
            /// weight would be too large. Options that do not fit an image are an error of
            /// `forward`.
            pub fn with(
                in_channels: i64,
                out_channels: i64,
                kernel_size: impl Into<PerAxis>,
                options: ConvOptions,
            ) -> Result<Self, Error> {
                let (layer, groups) = ($name, options.groups);
                let sizes = [
                    ("in_channels", in_channels),
                    ("out_channels", out_channels),
                    ("groups", groups),
                ];
                check_sizes(layer, &sizes)?;
                options.check_kind(layer, $transposed)?;
                if in_channels % groups != 0 || out_channels % groups != 0 {
                    return invalid(format!(
                        "{layer} of {in_channels} to {out_channels} channels with groups \
                         {groups}: both must be multiples of it"
                    ));
                }
                let kernel = numbers(layer, "kernel_size", &kernel_size.into(), AXES)?;
                let count: f64 = kernel.iter().map(|size| *size as f64).product();
                let bound = 1.0 / (in_channels as f64 * count).sqrt();
                let ($in_size, $out_size) = (in_channels, out_channels);
                let mut shape = vec![$first, $second / groups];
                shape.extend(&kernel);
                let weight = uniform(&shape, bound)?;
                let bias = match options.bias {
                    true => Some(uniform(&[out_channels], bound)?),
                    false => None,
                };
                Ok(Self { weight, bias, options: options.conv(layer, &kernel)? })
            }
        }

        impl<const AXES: usize> State for $layer<AXES> {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                visitor.field("weight", &self.weight);
                visitor.field("bias", &self.bias);
            }
        }

        impl<const AXES: usize> Module for $layer<AXES> {
            fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
                let y = x.$method(&self.weight, &self.options)?;
                match &self.bias {
                    Some(bias) => affine(y, None, Some(&per_channel(bias, AXES + 2)?)),
                    None => Ok(y),
                }
            }
        }
    )*};
}

layers! {
    /// A convolution along AXES axes: images [n, in, ..] give [n, out, ..].
    ///
    /// ```
    /// # use gradiff_nn::{Conv1d, Conv2d, ConvOptions, Module};
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let layer = Conv2d::with(3, 8, 3, ConvOptions::default().stride(2).padding(1))?;
    /// let images = Tensor::ones(DType::F32, &[2, 3, 8, 8])?;
    /// assert_eq!(layer.forward(&images)?.shape(), [2, 8, 4, 4]);
    /// let signals = Tensor::ones(DType::F32, &[2, 3, 8])?;
    /// assert_eq!(Conv1d::new(3, 8, 3)?.forward(&signals)?.shape(), [2, 8, 6]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    ConvNd: conv2d, "a convolution", transposed false,
        weight of (in_size, out_size): out_size, in_size, "[out, in / groups, ..]";

    /// A transposed convolution along AXES axes: images [n, in, ..] give [n, out, ..].
    ///
    /// ```
    /// # use gradiff_nn::{ConvOptions, ConvTranspose1d, ConvTranspose2d, Module};
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let layer = ConvTranspose2d::with(3, 8, 2, ConvOptions::default().stride(2))?;
    /// let images = Tensor::ones(DType::F32, &[2, 3, 4, 4])?;
    /// assert_eq!(layer.forward(&images)?.shape(), [2, 8, 8, 8]);
    /// let signals = Tensor::ones(DType::F32, &[2, 3, 4])?;
    /// assert_eq!(ConvTranspose1d::new(3, 8, 3)?.forward(&signals)?.shape(), [2, 8, 6]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    ConvTransposeNd: conv_transpose2d, "a transposed convolution", transposed true,
        weight of (in_size, out_size): in_size, out_size, "[in, out / groups, ..]";
}

/// A convolution along one axis; see [`ConvNd`].
pub type Conv1d = ConvNd<1>;
/// A convolution along two axes; see [`ConvNd`].
pub type Conv2d = ConvNd<2>;
/// A transposed convolution along one axis; see [`ConvTransposeNd`].
pub type ConvTranspose1d = ConvTransposeNd<1>;
/// A transposed convolution along two axes; see [`ConvTransposeNd`].
pub type ConvTranspose2d = ConvTransposeNd<2>;
