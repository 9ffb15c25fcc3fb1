//! Random numbers, bit for bit those of tinygrad 0.10.2: Threefry of a key and a counter.
//!
//! A call takes the key of its device and advances the device's counter at once; the numbers are a
//! graph, computed when they are needed. The same seed and the same calls in the same order give
//! the same numbers, on every device. What follows a uniform number is rounded as elsewhere:
//! sines and logarithms may differ in the last bits from one device to another.

mod distributions;
mod dropout;
mod seeds;
mod uniform;

use gradiff_graph::{DType, Placement};
use gradiff_runtime::{device_name, device_names};

use crate::error::invalid;
use crate::{Error, Tensor};

/// A device to draw random numbers on. The functions of [`Tensor`] draw on the default device, as
/// `RandomOn::default()` does.
///
/// Each device has a counter, and a key that depends on how many devices drew before it since the
/// seed was set.
///
/// ```
/// # use gradiff_tensor::{RandomOn, Tensor};
/// # use gradiff_graph::DType;
/// Tensor::manual_seed(42);
/// let x = RandomOn::device("interp")?.rand(DType::F32, &[2])?;
/// assert_eq!((x.device()?, x.to_text()?.as_str()), ("interp", "[0.07992947, 0.8102931]"));
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RandomOn {
    placement: Placement,
}

impl Default for RandomOn {
    fn default() -> RandomOn {
        RandomOn { placement: Placement::Default }
    }
}

impl RandomOn {
    /// Chooses a device, by a name as for [`Tensor::to`]. It is not opened.
    /// # Errors
    /// If there is no such device.
    ///
    /// ```
    /// # use gradiff_tensor::RandomOn;
    /// assert!(RandomOn::device("JIT").is_ok());
    /// assert!(RandomOn::device("abacus").is_err());
    /// ```
    pub fn device(device: &str) -> Result<RandomOn, Error> {
        match device_name(device) {
            Ok(name) => Ok(RandomOn { placement: Placement::Named(name.into()) }),
            Err(_) => invalid(format!(
                "random numbers on {device:?}: there is no such device; devices are {}",
                device_names().join(", ")
            )),
        }
    }
}

impl Tensor {
    /// Sets the seed of all random numbers of the process, and the counters of all devices to their
    /// start. The low 32 bits of the seed count. Without a call, the seed is the time in seconds
    /// since 1970 when the first number is drawn.
    ///
    /// All threads share the counters, so no two of them draw the same numbers; which of them draws
    /// first is up to them.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// Tensor::manual_seed(42);
    /// let first = Tensor::rand(DType::F32, &[3])?.to_vec::<f32>()?;
    /// Tensor::manual_seed(42);
    /// assert_eq!(Tensor::rand(DType::F32, &[3])?.to_vec::<f32>()?, first);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn manual_seed(seed: u64) {
        seeds::set_seed(seed);
    }

    /// Creates a random permutation of the integers of `0..n`, of shape `[n]`: the order of so many
    /// uniform numbers. tinygrad has it from 0.10.3 on, with a sort that orders equal numbers
    /// otherwise.
    /// # Errors
    /// If `n` is negative, or the dtype is not an integer or does not have all numbers, or `n` is
    /// too large for [`rand`](Tensor::rand) or [`argsort`](Tensor::argsort).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// Tensor::manual_seed(42);
    /// assert_eq!(Tensor::randperm(DType::I32, 6)?.to_text()?, "[2, 1, 3, 5, 4, 0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn randperm(dtype: DType, n: i64) -> Result<Tensor, Error> {
        RandomOn::default().randperm(dtype, n)
    }

    /// Computes `count` random words (u32) from a key and a counter, each two words of u32, the low
    /// one first: equal arguments give equal words. They are those of tinygrad 0.14.0, which takes
    /// the hash of the counter for the key of what follows. No counter of a device is advanced.
    /// # Errors
    /// If the key or the counter is no `u32[2]`, or `count` is negative or 2^32 or more.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let key = Tensor::from_slice(&[2], &[42u32, 7])?;
    /// let counter = Tensor::from_slice(&[2], &[0u32, 0])?;
    /// let words = Tensor::random_bits(&key, &counter, 3)?;
    /// assert_eq!(words.to_text()?, "[3122861573, 3608100492, 2521407869]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn random_bits(key: &Tensor, counter: &Tensor, count: i64) -> Result<Tensor, Error> {
        uniform::keyed_bits(key, counter, count)
    }
}

impl RandomOn {
    /// [`Tensor::randperm`] on this device.
    /// # Errors
    /// As there.
    ///
    /// ```
    /// # use gradiff_tensor::RandomOn;
    /// # use gradiff_graph::DType;
    /// let x = RandomOn::device("interp")?.randperm(DType::I32, 6)?;
    /// assert_eq!(x.device()?, "interp");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn randperm(&self, dtype: DType, n: i64) -> Result<Tensor, Error> {
        distributions::randperm(&self.placement, dtype, n)
    }
}

/// Defines functions of `Tensor` on the default device, and those of `RandomOn`.
macro_rules! random {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*), as in $call:literal;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            pub fn $name(dtype: DType, shape: &[i64] $(, $argument: $type)*)
                -> Result<Tensor, Error>
            {
                RandomOn::default().$name(dtype, shape $(, $argument)*)
            }
        )*}

        impl RandomOn {$(
            #[doc = concat!("[`Tensor::", stringify!($name), "`] on this device.")]
            /// # Errors
            /// As there.
            ///
            /// ```
            /// # use gradiff_tensor::RandomOn;
            /// # use gradiff_graph::DType;
            #[doc = concat!("let x = RandomOn::device(\"interp\")?.", $call, "?;")]
            /// assert_eq!(x.device()?, "interp");
            /// # Ok::<(), gradiff_tensor::Error>(())
            /// ```
            pub fn $name(&self, dtype: DType, shape: &[i64] $(, $argument: $type)*)
                -> Result<Tensor, Error>
            {
                distributions::$name(&self.placement, dtype, shape $(, $argument)*)
            }
        )*}
    };
}

random! {
    /// Creates a tensor of uniform numbers of [0, 1): multiples of 2^-23 in f32, 2^-52 in f64,
    /// 2^-10 in f16 and 2^-7 in bf16. Floats.
    /// # Errors
    /// If the dtype is not a float, a size is negative or too large, or there are 2^32 words of 4
    /// bytes or more, the last one whole or not: numbers would repeat.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// Tensor::manual_seed(42);
    /// let x = Tensor::rand(DType::F32, &[2, 2])?;
    /// assert_eq!(x.to_text()?, "[[0.36450243, 0.85052645], [0.9106685, 0.88112855]]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    rand(), as in "rand(DType::F32, &[2])";

    /// Creates a tensor of normal numbers with mean 0 and standard deviation 1, computed in f32 by
    /// the Box-Muller transform of twice as many uniform numbers. Floats.
    /// # Errors
    /// As [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// Tensor::manual_seed(42);
    /// let x = Tensor::randn(DType::F32, &[1000])?.to_vec::<f32>()?;
    /// let mean = x.iter().sum::<f32>() / 1000.0;
    /// assert!(mean.abs() < 0.1);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    randn(), as in "randn(DType::F32, &[2])";

    /// Creates a tensor of uniform integers of `low..high`. They are products of f32, so of more
    /// than 2^23 numbers in the range not all occur. Integers.
    /// # Errors
    /// If the dtype is not an integer or does not have all numbers of the range, the range is
    /// empty, or the shape is not valid for [`rand`](Tensor::rand) in f32.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// Tensor::manual_seed(42);
    /// let x = Tensor::randint(DType::I32, &[5], -3, 9)?;
    /// assert_eq!(x.to_text()?, "[8, 4, -1, 6, 7]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    randint(low: i64, high: i64), as in "randint(DType::I32, &[2], 0, 10)";

    /// Creates a tensor of normal numbers: [`randn`](Tensor::randn) times `std`, plus `mean`.
    /// Floats.
    /// # Errors
    /// If `std` is negative, a parameter is not finite in the dtype, or as
    /// [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::normal(DType::F64, &[2], 10.0, 0.0)?;
    /// assert_eq!(x.to_text()?, "[10.0, 10.0]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    normal(mean: f64, std: f64), as in "normal(DType::F32, &[2], 10.0, 2.0)";

    /// Creates a tensor of uniform numbers of `low..high`: numbers of f32 times the size of the
    /// range, converted to the dtype, plus `low`. A result may be rounded to `high`. Floats.
    /// # Errors
    /// If the range is empty, an end or the size is not finite in the dtype or the size not in f32,
    /// or as [`rand`](Tensor::rand) in f32.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// Tensor::manual_seed(42);
    /// let x = Tensor::uniform(DType::F32, &[2], -1.0, 1.0)?;
    /// assert_eq!(x.to_text()?, "[-0.84014106, 0.62058616]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    uniform(low: f64, high: f64), as in "uniform(DType::F32, &[2], 2.0, 10.0)";

    /// Creates a tensor of uniform numbers between `-n^-0.5` and `n^-0.5`, where n is the number
    /// of elements. Floats.
    /// # Errors
    /// As [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::scaled_uniform(DType::F32, &[4, 4])?.to_vec::<f32>()?;
    /// assert!(x.iter().all(|x| x.abs() <= 0.25));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    scaled_uniform(), as in "scaled_uniform(DType::F32, &[2])";

    /// Creates a tensor of uniform numbers between `-b` and `b`, where b is the square root of 6 by
    /// the first size plus the product of the others (Glorot and Bengio's initial weights). Floats.
    /// # Errors
    /// If the shape has no axis, or as [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::glorot_uniform(DType::F32, &[2, 4])?.to_vec::<f32>()?;
    /// assert!(x.iter().all(|x| x.abs() <= 1.0));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    glorot_uniform(), as in "glorot_uniform(DType::F32, &[2])";

    /// Creates a tensor of uniform numbers between `-b` and `b`, where b is the square root of
    /// `6 / (1 + a^2) / n`, and n the product of all sizes but the first (He's initial weights
    /// before a leaky ReLU with slope `a`; tinygrad's default is 0.01). Floats.
    /// # Errors
    /// If `a^2` is not finite, or as [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::kaiming_uniform(DType::F32, &[2, 6], 0.0)?.to_vec::<f32>()?;
    /// assert!(x.iter().all(|x| x.abs() <= 1.0));
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    kaiming_uniform(a: f64), as in "kaiming_uniform(DType::F32, &[2, 3], 0.01)";

    /// Creates a tensor of normal numbers with mean 0, whose standard deviation is the square root
    /// of `2 / (1 + a^2) / n`, and n the product of all sizes but the first (He's initial weights
    /// before a leaky ReLU with slope `a`; tinygrad's default is 0.01). Floats.
    /// # Errors
    /// If `a^2` is not finite, or as [`rand`](Tensor::rand).
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// # use gradiff_graph::DType;
    /// let x = Tensor::kaiming_normal(DType::F32, &[3, 8], 0.01)?;
    /// assert_eq!(x.shape(), [3, 8]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    kaiming_normal(a: f64), as in "kaiming_normal(DType::F32, &[2, 3], 0.01)";
}
