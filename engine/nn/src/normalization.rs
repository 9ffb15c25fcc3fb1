//! Normalization: of batches, groups, instances, layers, and by the root mean square.

use std::iter::successors;

use gradiff_graph::DType;
use gradiff_tensor::{Error, Tensor, keepdim, realize};

use crate::functional::{affine, buffer, check_options, check_sizes, filled, invalid, per_channel};
use crate::{Module, state};

/// Updates wait until the graph from the running mean down to its buffer has more nodes than this.
/// Each adds 3 to 5 of them, and keeps its batch in memory until it is computed.
const WAITING_NODES: usize = 96;

/// Batch normalization of [n, c, ..], by the mean and variance of each channel.
///
/// While training ([`Tensor::train`]) they are those of the batch, and the running statistics are
/// updated by them, with the unbiased variance; else they are the running statistics. A batch
/// without elements counts, and changes no statistics.
///
/// The update is lazy, as any assignment, and keeps the batch in memory: a step of an optimiser
/// that has the buffers computes it. If several updates wait, a call of the layer computes them,
/// each layer for itself, which costs more: give the optimiser the tensors of frozen layers as
/// well, after `requires_grad_(false)`.
///
/// ```
/// # use gradiff_nn::{BatchNorm, Module};
/// # use gradiff_tensor::Tensor;
/// let norm = BatchNorm::new(1)?.momentum(0.5);
/// let x = Tensor::from_slice(&[2, 1], &[1.0f32, 5.0])?;
/// let _training = Tensor::train(true);
/// assert_eq!(norm.forward(&x)?.shape(), [2, 1]);
/// assert_eq!(norm.running_mean.as_ref().expect("tracked").to_text()?, "[1.5]");
/// assert_eq!(norm.running_var.as_ref().expect("tracked").to_text()?, "[4.5]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchNorm {
    /// The factor of each channel `[c]`.
    pub weight: Option<Tensor>,
    /// The summand of each channel `[c]`.
    pub bias: Option<Tensor>,
    /// The number of batches `[1]` that the running statistics are of, i64.
    pub num_batches_tracked: Tensor,
    /// The running mean `[c]`.
    pub running_mean: Option<Tensor>,
    /// The running variance `[c]`.
    pub running_var: Option<Tensor>,
    size: i64,
    eps: f64,
    momentum: f64,
}
state!(BatchNorm { weight, bias, num_batches_tracked, running_mean, running_var });

/// Batch normalization of images [n, c, h, w].
pub type BatchNorm2d = BatchNorm;
/// Batch normalization of volumes [n, c, d, h, w].
pub type BatchNorm3d = BatchNorm;

/// Defines options that the norms share. The names are used by `Norm::new(..)?.eps(1e-6)`.
macro_rules! options {
    ($norm:ident, $arguments:literal: $($option:ident)*) => {
        impl $norm {
            $(options! { @ $option $norm $arguments })*
        }
    };
    (@ eps $norm:ident $arguments:literal) => {
        /// Sets the summand of the variance; 1e-5 if it is not set.
        ///
        /// ```
        #[doc = concat!("# use gradiff_nn::", stringify!($norm), ";")]
        #[doc = concat!("let norm = ", stringify!($norm), "::new(", $arguments, ")?.eps(1e-3);")]
        /// # drop(norm);
        /// # Ok::<(), gradiff_tensor::Error>(())
        /// ```
        #[must_use]
        pub fn eps(self, eps: f64) -> $norm {
            $norm { eps, ..self }
        }
    };
    (@ without_affine $norm:ident $arguments:literal) => {
        /// Returns the layer without weight and bias.
        ///
        /// ```
        #[doc = concat!("# use gradiff_nn::", stringify!($norm), ";")]
        #[doc = concat!("let norm = ", stringify!($norm), "::new(", $arguments, ")?;")]
        /// assert!(norm.without_affine().weight.is_none());
        /// # Ok::<(), gradiff_tensor::Error>(())
        /// ```
        #[must_use]
        pub fn without_affine(self) -> $norm {
            $norm { weight: None, bias: None, ..self }
        }
    };
}

options! { BatchNorm, "4": eps without_affine }
options! { GroupNorm, "2, 4": eps without_affine }
options! { InstanceNorm, "4": eps without_affine }
options! { LayerNorm, "4": eps without_affine }

impl BatchNorm {
    /// Creates a layer for `size` channels: weight 1, bias 0, running mean 0, running variance 1.
    /// # Errors
    /// If the size is not positive.
    pub fn new(size: i64) -> Result<BatchNorm, Error> {
        check_sizes("BatchNorm", &[("size", size)])?;
        Ok(BatchNorm {
            weight: Some(filled(&[size], 1.0)?),
            bias: Some(filled(&[size], 0.0)?),
            num_batches_tracked: Tensor::from_slice(&[1], &[0i64])?.requires_grad_(false)?,
            running_mean: Some(buffer(&[size], 0.0)?),
            running_var: Some(buffer(&[size], 1.0)?),
            size,
            eps: 1e-5,
            momentum: 0.1,
        })
    }

    /// Sets the share of a new batch in the running statistics; 0.1 if it is not set. The example
    /// of [`BatchNorm`] does.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> BatchNorm {
        BatchNorm { momentum, ..self }
    }

    /// Returns the layer without running statistics: it always takes those of the batch.
    ///
    /// ```
    /// # use gradiff_nn::BatchNorm;
    /// assert!(BatchNorm::new(4)?.without_running_stats().running_mean.is_none());
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    #[must_use]
    pub fn without_running_stats(self) -> BatchNorm {
        BatchNorm { running_mean: None, running_var: None, ..self }
    }

    /// Updates the running statistics by those of a batch, of which `count` elements are in each
    /// channel, not 1.
    fn track(&self, mean: &Tensor, variance: &Tensor, count: i64) -> Result<(), Error> {
        let (Some(running_mean), Some(running_var)) = (&self.running_mean, &self.running_var)
        else {
            return Ok(());
        };
        let buffers = [running_mean, running_var, &self.num_batches_tracked];
        let nodes = |buffer: &&Tensor| {
            successors(Some(buffer.uop()), |node| node.src().first().cloned()).count()
        };
        if buffers.iter().map(nodes).any(|count| WAITING_NODES < count) {
            realize(&buffers)?;
        }
        let unbiased = count as f64 / (count - 1) as f64;
        let updates = [(running_mean, mean, 1.0), (running_var, variance, unbiased)];
        // The mean of no elements is NaN.
        for (running, batch, factor) in updates.into_iter().filter(|_| count != 0) {
            let batch = batch.detach().mul(self.momentum * factor)?;
            let sum = running.detach().mul(1.0 - self.momentum)?.add(batch)?;
            running.assign(sum.cast(running.dtype())?)?;
        }
        self.num_batches_tracked.assign(self.num_batches_tracked.add(1)?)?;
        Ok(())
    }
}

impl Module for BatchNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        check_channels("BatchNorm", x, self.size)?;
        check_options("BatchNorm", &[("eps", self.eps), ("momentum", self.momentum)])?;
        let (dtype, parameters) = (x.dtype(), [&self.weight, &self.bias]);
        let is_narrow = parameters.iter().copied().flatten().all(|y| y.dtype() == dtype);
        // Squares and sums of halves soon exceed their range.
        let widened = |y: &Tensor| match y.dtype().is_float() {
            true => y.cast(y.dtype().accumulator()),
            false => Ok(y.clone()),
        };
        let x = widened(x)?;
        let wide = |y: &Tensor| widened(&per_channel(y, x.rank())?);
        let (mean, variance) = match (&self.running_mean, &self.running_var) {
            (Some(mean), Some(variance)) if !Tensor::is_training() => {
                (wide(mean)?, wide(variance)?)
            }
            _ => {
                let count = x.size_elements() / self.size;
                if count == 1 {
                    return invalid(format!(
                        "BatchNorm of {x:?} by the statistics of this batch: a channel must have \
                         more than 1 element"
                    ));
                }
                let axes: Vec<i64> = (0..x.rank() as i64).filter(|axis| *axis != 1).collect();
                let mean = x.mean(keepdim(&axes[..]))?;
                let variance = x.sub(&mean)?.square()?.mean(keepdim(&axes[..]))?;
                if Tensor::is_training() {
                    let flat = |y: &Tensor| y.reshape(&[self.size]);
                    self.track(&flat(&mean)?, &flat(&variance)?, count)?;
                }
                (mean, variance)
            }
        };
        let scale = variance.add(self.eps)?.rsqrt()?;
        let [weight, bias] = parameters.map(|y| y.as_ref().map(wide).transpose());
        let scale = match weight? {
            Some(weight) => scale.mul(weight)?,
            None => scale,
        };
        let y = affine(x.sub(&mean)?, Some(&scale), bias?.as_ref())?;
        if is_narrow && dtype.is_float() { y.cast(dtype) } else { Ok(y) }
    }
}

/// Refuses a tensor that does not have channels on the second axis, as many as the layer.
fn check_channels(layer: &str, x: &Tensor, channels: i64) -> Result<(), Error> {
    if x.rank() < 2 || x.shape()[1] != channels {
        return invalid(format!("{layer} of {x:?}: it takes [n, {channels}, ..]"));
    }
    Ok(())
}

/// Group normalization of [n, c, ..], by the mean and variance of each group of adjacent channels
/// of each image.
///
/// ```
/// # use gradiff_nn::{GroupNorm, Module};
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[1, 4], &[1.0f32, 3.0, 10.0, 30.0])?;
/// let y = GroupNorm::new(2, 4)?.eps(0.0).forward(&x)?;
/// assert_eq!(y.to_text()?, "[[-1.0, 1.0, -1.0, 1.0]]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct GroupNorm {
    /// The factor of each channel `[c]`.
    pub weight: Option<Tensor>,
    /// The summand of each channel `[c]`.
    pub bias: Option<Tensor>,
    groups: i64,
    channels: i64,
    eps: f64,
}
state!(GroupNorm { weight, bias });

impl GroupNorm {
    /// Creates a layer for `num_channels` channels in `num_groups` groups: weight 1, bias 0.
    /// # Errors
    /// If a number is not positive, or the channels are no multiple of the groups.
    pub fn new(num_groups: i64, num_channels: i64) -> Result<GroupNorm, Error> {
        let sizes = [("num_groups", num_groups), ("num_channels", num_channels)];
        check_sizes("GroupNorm", &sizes)?;
        if num_channels % num_groups != 0 {
            return invalid(format!(
                "GroupNorm of {num_channels} channels in {num_groups} groups: the channels must be \
                 a multiple of the groups"
            ));
        }
        Ok(GroupNorm {
            weight: Some(filled(&[num_channels], 1.0)?),
            bias: Some(filled(&[num_channels], 0.0)?),
            groups: num_groups,
            channels: num_channels,
            eps: 1e-5,
        })
    }
}

impl Module for GroupNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        check_channels("GroupNorm", x, self.channels)?;
        grouped(x, self.groups, self.eps, self.weight.as_ref(), self.bias.as_ref())
    }
}

/// Normalizes each of `groups` groups of channels of each image.
fn grouped(
    x: &Tensor,
    groups: i64,
    eps: f64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
) -> Result<Tensor, Error> {
    let size = x.shape()[1..].iter().product::<i64>() / groups;
    let split = x.reshape(&[x.shape()[0], groups, size])?;
    let y = split.layernorm(-1, eps)?.reshape(x.shape())?;
    let wide = |y: &Tensor| per_channel(y, x.rank());
    affine(y, weight.map(wide).transpose()?.as_ref(), bias.map(wide).transpose()?.as_ref())
}

/// Instance normalization of [n, c, ..], by the mean and variance of each channel of each image.
///
/// ```
/// # use gradiff_nn::{InstanceNorm, Module};
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[1, 2, 2], &[1.0f32, 3.0, 10.0, 30.0])?;
/// let y = InstanceNorm::new(2)?.eps(0.0).forward(&x)?;
/// assert_eq!(y.to_text()?, "[[[-1.0, 1.0], [-1.0, 1.0]]]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct InstanceNorm {
    /// The factor of each channel `[c]`.
    pub weight: Option<Tensor>,
    /// The summand of each channel `[c]`.
    pub bias: Option<Tensor>,
    features: i64,
    eps: f64,
}
state!(InstanceNorm { weight, bias });

impl InstanceNorm {
    /// Creates a layer for `num_features` channels: weight 1, bias 0.
    /// # Errors
    /// If the number is not positive.
    pub fn new(num_features: i64) -> Result<InstanceNorm, Error> {
        check_sizes("InstanceNorm", &[("num_features", num_features)])?;
        Ok(InstanceNorm {
            weight: Some(filled(&[num_features], 1.0)?),
            bias: Some(filled(&[num_features], 0.0)?),
            features: num_features,
            eps: 1e-5,
        })
    }
}

impl Module for InstanceNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        check_channels("InstanceNorm", x, self.features)?;
        grouped(x, self.features, self.eps, self.weight.as_ref(), self.bias.as_ref())
    }
}

/// Layer normalization, by the mean and variance along the last axes.
///
/// ```
/// # use gradiff_nn::{LayerNorm, Module};
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[2, 2], &[1.0f32, 3.0, 10.0, 30.0])?;
/// let y = LayerNorm::new(2)?.eps(0.0).forward(&x)?;
/// assert_eq!(y.to_text()?, "[[-1.0, 1.0], [-1.0, 1.0]]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// The factors, of the normalized shape.
    pub weight: Option<Tensor>,
    /// The summands, of the normalized shape.
    pub bias: Option<Tensor>,
    shape: Vec<i64>,
    eps: f64,
}
state!(LayerNorm { weight, bias });

impl LayerNorm {
    /// Creates a layer for last axes of this shape, a number or a list: weight 1, bias 0.
    /// # Errors
    /// If the shape has no axis, or a size is not positive.
    pub fn new(normalized_shape: impl Into<Shape>) -> Result<LayerNorm, Error> {
        let Shape(shape) = normalized_shape.into();
        if shape.is_empty() || shape.iter().any(|size| *size < 1) {
            return invalid(format!(
                "LayerNorm with normalized_shape {shape:?}: it needs an axis, and sizes must be 1 \
                 or more"
            ));
        }
        Ok(LayerNorm {
            weight: Some(filled(&shape, 1.0)?),
            bias: Some(filled(&shape, 0.0)?),
            shape,
            eps: 1e-5,
        })
    }
}

impl Module for LayerNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        if !x.shape().ends_with(&self.shape) {
            return invalid(format!("LayerNorm of {x:?}: the last sizes must be {:?}", self.shape));
        }
        let axes: Vec<i64> = (1..=self.shape.len() as i64).map(|number| -number).collect();
        affine(x.layernorm(&axes[..], self.eps)?, self.weight.as_ref(), self.bias.as_ref())
    }
}

/// The sizes of the last axes; made from a number or a list.
#[derive(Clone, Debug)]
pub struct Shape(Vec<i64>);

impl From<i64> for Shape {
    fn from(size: i64) -> Shape {
        Shape(vec![size])
    }
}

impl<const COUNT: usize> From<[i64; COUNT]> for Shape {
    fn from(sizes: [i64; COUNT]) -> Shape {
        Shape(sizes.to_vec())
    }
}

impl From<&[i64]> for Shape {
    fn from(sizes: &[i64]) -> Shape {
        Shape(sizes.to_vec())
    }
}

/// Layer normalization of images [n, c, h, w] along the channels.
///
/// ```
/// # use gradiff_nn::{LayerNorm2d, Module};
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[1, 2, 1, 2], &[1.0f32, 10.0, 3.0, 30.0])?;
/// let y = LayerNorm2d::new(2)?.forward(&x)?;
/// assert_eq!(y.shape(), [1, 2, 1, 2]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LayerNorm2d(
    /// The layer that sees the channels as the last axis.
    pub LayerNorm,
);

impl LayerNorm2d {
    /// Creates a layer for so many channels: weight 1, bias 0.
    /// # Errors
    /// If the number is not positive.
    pub fn new(channels: i64) -> Result<LayerNorm2d, Error> {
        Ok(LayerNorm2d(LayerNorm::new(channels)?))
    }
}

impl crate::State for LayerNorm2d {
    fn visit(&self, visitor: &mut crate::Visitor<'_>) {
        self.0.visit(visitor);
    }
}

impl Module for LayerNorm2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        if x.rank() != 4 {
            return invalid(format!("LayerNorm2d of {x:?}: it takes [n, c, h, w]"));
        }
        self.0.forward(&x.permute(&[0, 2, 3, 1])?)?.permute(&[0, 3, 1, 2])
    }
}

/// Normalization by the root of the mean square along the last axis, computed in f32, in the
/// promoted dtype of input and weight.
///
/// ```
/// # use gradiff_nn::{Module, RMSNorm};
/// # use gradiff_tensor::Tensor;
/// let x = Tensor::from_slice(&[1, 2], &[3.0f32, -3.0])?;
/// assert_eq!(RMSNorm::new(2)?.eps(0.0).forward(&x)?.to_text()?, "[[1.0, -1.0]]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RMSNorm {
    /// The factors `[size]`.
    pub weight: Tensor,
    eps: f64,
}
state!(RMSNorm { weight });

impl RMSNorm {
    /// Creates a layer for a last axis of this size: weight 1.
    /// # Errors
    /// If the size is not positive.
    pub fn new(size: i64) -> Result<RMSNorm, Error> {
        check_sizes("RMSNorm", &[("size", size)])?;
        Ok(RMSNorm { weight: filled(&[size], 1.0)?, eps: 1e-6 })
    }

    /// Sets the summand of the mean square; 1e-6 if it is not set. The example of [`RMSNorm`]
    /// does.
    #[must_use]
    pub fn eps(self, eps: f64) -> RMSNorm {
        RMSNorm { eps, ..self }
    }
}

impl Module for RMSNorm {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        let size = self.weight.size_elements();
        if x.shape().last() != Some(&size) || !x.dtype().is_float() {
            return invalid(format!("RMSNorm of {x:?}: it takes floats [.., {size}]"));
        }
        let wide = match x.dtype() {
            DType::F64 => x.clone(),
            _ => x.cast(DType::F32)?,
        };
        check_options("RMSNorm", &[("eps", self.eps)])?;
        let scale = wide.square()?.mean(keepdim(-1))?.add(self.eps)?.rsqrt()?;
        wide.mul(scale)?.cast(x.dtype())?.mul(&self.weight)
    }
}
