//! Random numbers: drawn calls after a drawn seed, against the counters of tinygrad 0.10.2 and the
//! definition of each distribution.

use std::sync::{Mutex, PoisonError};

use gradiff::graph::{Constant, Op};
use gradiff::{DType, Error, RandomOn, Tensor, default_device};
use gradiff_eval::scalar;

use super::Draw;
use super::values::{Wanted, compare};

/// The seed is that of the process: of all threads, one draws.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// Random numbers of tinygrad 0.10.2; the lines `key N = HEX` are the keys of devices.
const UPSTREAM: &str = include_str!("../../../../../engine/tests/random_numbers.txt");

/// Largest error of a normal number of deviation 1 in f32, where no number is above 6.
const NORMAL_ERROR: f64 = 2e-6;

const FLOATS: [DType; 4] = [DType::F32, DType::F16, DType::F64, DType::BF16];

/// The counters of the devices that drew since the seed was set.
struct Streams {
    seed: u32,
    drew: Vec<(&'static str, u32)>,
}

impl Streams {
    /// Advances the counter of a device by the words of a call, but for the first one. Returns its
    /// number.
    fn advance(&mut self, device: &'static str, words: u32) -> usize {
        match self.drew.iter().position(|(known, _)| *known == device) {
            Some(at) => {
                self.drew[at].1 = self.drew[at].1.wrapping_add(words);
                at
            }
            None => {
                self.drew.push((device, 0));
                self.drew.len() - 1
            }
        }
    }

    /// The first words of 32 bits of a call on a device.
    fn words(&mut self, device: &'static str, count: usize) -> Vec<u32> {
        let at = self.advance(device, count as u32);
        let of_device = UPSTREAM.lines().find_map(|line| {
            let key = line.strip_prefix(&format!("key {at} = "))?;
            u64::from_str_radix(key, 16).ok()
        });
        let key = u64::from(self.seed) << 32 | of_device.expect("every device has a key");
        let pairs = count.div_ceil(2) as u32;
        let drawn = |pair: u32| {
            let low = self.drew[at].1.wrapping_add(pair);
            hash(u64::from(low.wrapping_add(pairs)) << 32 | u64::from(low), key)
        };
        let pairs: Vec<u64> = (0..pairs).map(drawn).collect();
        let (low, high) = (pairs.iter().copied(), pairs.iter().map(|pair| pair >> 32));
        low.chain(high).map(|word| word as u32).take(count).collect()
    }

    /// So many uniform numbers of a call on a device.
    fn fractions(&mut self, device: &'static str, dtype: DType, count: usize) -> Vec<f64> {
        if count == 0 {
            return Vec::new();
        }
        let unit = |bits: u32| 0.5_f64.powi(bits as i32);
        let words = self.words(device, (count * dtype.size_bytes()).div_ceil(4));
        let halves = || words.iter().flat_map(|word| [*word as u16, (*word >> 16) as u16]);
        let numbers: Vec<f64> = match dtype {
            DType::F16 => halves().map(|half| f64::from(half >> 6) * unit(10)).collect(),
            DType::BF16 => halves().map(|half| f64::from(half >> 9) * unit(7)).collect(),
            DType::F32 => words.iter().map(|word| f64::from(word >> 9) * unit(23)).collect(),
            _ => {
                let long = |pair: &[u32]| u64::from(pair[1]) << 32 | u64::from(pair[0]);
                words.chunks(2).map(|pair| (long(pair) >> 12) as f64 * unit(52)).collect()
            }
        };
        numbers[..count].to_vec()
    }

    /// So many normal numbers in f32, not rounded.
    fn normals(&mut self, device: &'static str, count: usize) -> Vec<f64> {
        let numbers = self.fractions(device, DType::F32, 2 * count);
        let (angles, radii) = numbers.split_at(count);
        let normal = |(angle, radius): (&f64, &f64)| {
            (std::f64::consts::TAU * angle).cos() * (-2.0 * (1.0 - radius).ln()).sqrt()
        };
        angles.iter().zip(radii).map(normal).collect()
    }
}

/// Threefry of a counter with a key.
fn hash(counter: u64, key: u64) -> u64 {
    let word = |bits| Constant::from_bits(DType::U64, bits);
    let hashed = scalar::evaluate(Op::Threefry, DType::U64, &[word(counter), word(key)]);
    hashed.expect("it is defined for all words").bits()
}

/// The nearest number of a float type, as `f64`.
fn rounded(dtype: DType, value: f64) -> f64 {
    scalar::float(dtype, value).and_then(scalar::to_float).expect("it is a float's type")
}

/// The distance of 1 from the next number of a float type.
fn unit(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F32 => 2f64.powi(-23),
        _ => 2f64.powi(-52),
    }
}

/// The smallest normal number of a float type, below which errors are absolute.
fn smallest(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 2f64.powi(-14),
        DType::F64 => f64::MIN_POSITIVE,
        _ => 2f64.powi(-126),
    }
}

/// A value that rounding may move by so many units of its terms, which sum up to `largest`; by
/// several where a parameter is a subnormal number. Any value if a term may overflow.
fn near(dtype: DType, value: f64, largest: f64, units: f64) -> Wanted {
    let off = (largest * units + 8.0 * smallest(dtype)) * unit(dtype);
    match rounded(dtype, largest + off).is_finite() {
        true => Wanted::Near(value, off),
        false => Wanted::Free,
    }
}

/// A call, the type of what it gives, and its elements: `None` if it must be refused.
struct Call {
    label: String,
    result: Result<Tensor, Error>,
    wanted: Option<(DType, Vec<i64>, Vec<Wanted>)>,
}

impl Call {
    fn check(&self, draw: &mut Draw) -> Result<(), String> {
        let label = &self.label;
        match (&self.result, &self.wanted) {
            (Err(Error::Invalid(_)), None) => Ok(()),
            (Err(error), _) => Err(format!("{label}: {error:?}")),
            (Ok(x), None) => Err(format!("{label} gives {x:?}, but must be refused")),
            (Ok(x), Some((dtype, shape, _))) if (x.dtype(), x.shape()) != (*dtype, shape) => {
                Err(format!("{label} gives {x:?}, expected {dtype}{shape:?}"))
            }
            (Ok(x), Some((_, _, wanted))) => compare(draw, label, x, wanted),
        }
    }
}

/// Checks calls that are made after a drawn seed; the numbers are computed when all have been
/// called.
fn seeded(
    draw: &mut Draw,
    work: impl FnOnce(&mut Draw, &mut Streams) -> Result<Vec<Call>, String>,
) -> Result<(), String> {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let seed = draw.bits();
    Tensor::manual_seed(seed);
    let mut calls = work(draw, &mut Streams { seed: seed as u32, drew: Vec::new() })?;
    if draw.one_in(2) {
        calls.reverse();
    }
    let problem = |problem| format!("seed {seed}: {problem}");
    calls.iter().try_for_each(|call| call.check(draw)).map_err(problem)
}

/// Checks drawn calls of all kinds.
pub(super) fn random(draw: &mut Draw) -> Result<(), String> {
    seeded(draw, |draw, streams| {
        let mut calls: Vec<Call> = Vec::new();
        for _ in 0..1 + draw.below(4) {
            match draw.below(8) {
                0 => calls.push(dropout(draw, streams)?),
                1 => calls.push(multinomial(draw, streams)?),
                2 => uncomputed(draw, streams)?,
                _ => calls.push(distribution(draw, streams)?),
            }
        }
        Ok(calls)
    })
}

/// Draws numbers that are not computed, on any device and up to the limit of a call: those of later
/// calls are others.
fn uncomputed(draw: &mut Draw, streams: &mut Streams) -> Result<(), String> {
    let device = draw.pick(&gradiff::runtime::device_names());
    let on = RandomOn::device(device).map_err(|error| error.to_string())?;
    // Numbers of a word, of two, and of half a word each.
    let (dtype, count): (DType, i64) = match draw.below(3) {
        0 => (DType::F32, draw.pick(&[3, 5, (1 << 32) - 1, 1 << 32])),
        1 => (DType::F64, draw.pick(&[3, (1 << 31) - 1, 1 << 31])),
        _ => (DType::F16, draw.pick(&[3, (1 << 33) - 2, (1 << 33) - 1])),
    };
    let words = u32::try_from((count as u64 * dtype.size_bytes() as u64).div_ceil(4));
    let label = format!("rand of {dtype}[{count}] on {device}");
    match (on.rand(dtype, &[count]), words) {
        (Ok(x), Ok(words)) if x.shape() == [count] && x.dtype() == dtype => {
            streams.advance(device, words);
            Ok(())
        }
        (Err(Error::Invalid(_)), Err(_)) => Ok(()),
        (found, words) => Err(format!("{label} gives {found:?}, it has the words {words:?}")),
    }
}

/// Checks drawn calls of `randint`, `dropout` and `multinomial`.
pub(super) fn integers_and_choices(draw: &mut Draw) -> Result<(), String> {
    seeded(draw, |draw, streams| {
        let call = |_| match draw.below(6) {
            0 => dropout(draw, streams),
            1 => multinomial(draw, streams),
            _ => {
                let target = Target::draw(draw)?;
                Ok(integers(draw, streams, target))
            }
        };
        (0..3).map(call).collect()
    })
}

/// The device, the dtype and the shape of a call.
struct Target {
    device: &'static str,
    on: RandomOn,
    dtype: DType,
    shape: Vec<i64>,
}

impl Target {
    fn draw(draw: &mut Draw) -> Result<Target, String> {
        let by_default = default_device().map_err(|error| error.to_string())?;
        let device = draw.pick(&[by_default, by_default, "interp", "jit"]);
        let on = match device == by_default {
            true => RandomOn::default(),
            false => RandomOn::device(device).map_err(|error| error.to_string())?,
        };
        let dtype = if draw.one_in(8) { draw.pick(&DType::ALL) } else { draw.pick(&FLOATS) };
        let rank = draw.below(4);
        let sizes = [1, 2, 3, 4, 5, 7, 0, 16];
        let mut shape: Vec<i64> = (0..rank).map(|_| draw.pick(&sizes)).collect();
        if draw.one_in(24) {
            shape.push(-1);
        }
        Ok(Target { device, on, dtype, shape })
    }

    /// The number of elements; `None` if there is no such shape.
    fn count(&self) -> Option<usize> {
        let is_shape = self.shape.iter().all(|size| 0 <= *size);
        is_shape.then(|| self.shape.iter().product::<i64>() as usize)
    }

    /// The number of floats; `None` if the dtype is none.
    fn float_count(&self) -> Option<usize> {
        self.count().filter(|_| self.dtype.is_float())
    }

    /// Returns whether parameters are finite in the dtype.
    fn fits(&self, parameters: &[f64]) -> bool {
        parameters.iter().all(|x| rounded(self.dtype, *x).is_finite())
    }

    fn uniform_bits(&self, streams: &mut Streams) -> Option<Vec<Wanted>> {
        let numbers = streams.fractions(self.device, self.dtype, self.float_count()?);
        Some(numbers.into_iter().map(|x| self.exactly(x)).collect())
    }

    /// Numbers of f32 times the size of the range, plus its lower end.
    fn uniform(&self, streams: &mut Streams, low: f64, high: f64) -> Option<Vec<f64>> {
        let count = self.float_count()?;
        let (dtype, span) = (self.dtype, high - low);
        let is_range = low < high && rounded(DType::F32, span).is_finite();
        if !is_range || !self.fits(&[low, high, span]) {
            return None;
        }
        let number = |x: f64| {
            let product = rounded(DType::F32, x * rounded(DType::F32, span));
            rounded(dtype, rounded(dtype, product) + rounded(dtype, low))
        };
        Some(streams.fractions(self.device, DType::F32, count).into_iter().map(number).collect())
    }

    /// Uniform numbers of -1..1 times a factor.
    fn scaled(&self, streams: &mut Streams, factor: f64) -> Option<Vec<Wanted>> {
        let numbers = self.uniform(streams, -1.0, 1.0)?;
        Some(numbers.into_iter().map(|x| self.about(x * factor, factor)).collect())
    }

    fn normal(&self, streams: &mut Streams, mean: f64, deviation: f64) -> Option<Vec<Wanted>> {
        let count = self.float_count()?;
        if deviation < 0.0 || !self.fits(&[mean, deviation]) {
            return None;
        }
        let number = |x: f64| {
            let largest = mean.abs() + (x * deviation).abs();
            match near(self.dtype, x * deviation + mean, largest, 3.0) {
                Wanted::Near(value, off) => Wanted::Near(value, off + deviation * NORMAL_ERROR),
                free => free,
            }
        };
        Some(streams.normals(self.device, count).into_iter().map(number).collect())
    }

    /// The element that is this number.
    fn exactly(&self, x: f64) -> Wanted {
        scalar::float(self.dtype, x).map_or(Wanted::Free, Wanted::Bits)
    }

    /// A number that is computed from a bound of which the last bit is free.
    fn about(&self, x: f64, bound: f64) -> Wanted {
        near(self.dtype, x, bound, 4.0)
    }

    /// The product of all sizes but the first.
    fn inputs(&self) -> f64 {
        self.shape.iter().skip(1).map(|size| *size as f64).product()
    }
}

/// A call of a function of a dtype and a shape.
fn distribution(draw: &mut Draw, streams: &mut Streams) -> Result<Call, String> {
    let target = Target::draw(draw)?;
    let Target { device, on, dtype, shape } = &target;
    let (device, dtype) = (*device, *dtype);
    let numbers = [
        0.0,
        1.0,
        -1.0,
        2.5,
        -0.0,
        1e-3,
        100.0,
        -7.25,
        60000.0,
        1e6,
        3e38,
        -3e38,
        1e200,
        f64::NAN,
        f64::INFINITY,
        1e-9,
        0.5,
    ];
    let (x, y) = (draw.pick(&numbers), draw.pick(&numbers));
    // He's gain, of functions that have one.
    let gain = (x * x).is_finite().then(|| (2.0 / (1.0 + x * x)).sqrt());
    let deviation = gain.map(|gain| gain / target.inputs().max(1.0).sqrt());
    let (name, result, elements) = match draw.below(10) {
        9 => return Ok(permutation(draw, streams, &target)),
        0 => ("rand", on.rand(dtype, shape), target.uniform_bits(streams)),
        1 => ("randn", on.randn(dtype, shape), target.normal(streams, 0.0, 1.0)),
        2 => return Ok(integers(draw, streams, target)),
        3 => ("normal", on.normal(dtype, shape, x, y), target.normal(streams, x, y)),
        4 => {
            let elements = target.uniform(streams, x, y);
            let elements =
                elements.map(|found| found.into_iter().map(|x| target.exactly(x)).collect());
            ("uniform", on.uniform(dtype, shape, x, y), elements)
        }
        5 => {
            let factor = target.count().map(|count| (count.max(1) as f64).powf(-0.5));
            let elements = factor.and_then(|factor| target.scaled(streams, factor));
            ("scaled_uniform", on.scaled_uniform(dtype, shape), elements)
        }
        6 => {
            let fans = shape.first().map(|outputs| *outputs as f64 + target.inputs());
            let factor = fans.map(|fans| (6.0 / fans.max(1.0)).sqrt());
            let elements = factor.and_then(|factor| target.scaled(streams, factor));
            ("glorot_uniform", on.glorot_uniform(dtype, shape), elements)
        }
        7 => {
            let bound = deviation.map(|deviation| 3f64.sqrt() * deviation);
            let numbers = bound.and_then(|bound| target.uniform(streams, -bound, bound));
            let about = |x: f64| target.about(x, 2.0 * bound.unwrap_or(0.0));
            let elements = numbers.map(|numbers| numbers.into_iter().map(about).collect());
            ("kaiming_uniform", on.kaiming_uniform(dtype, shape, x), elements)
        }
        _ => {
            let elements = deviation.and_then(|deviation| target.normal(streams, 0.0, deviation));
            ("kaiming_normal", on.kaiming_normal(dtype, shape, x), elements)
        }
    };
    let label = format!("{name} of {dtype}{shape:?} on {device} with {x:?} and {y:?}");
    let wanted = elements.map(|elements: Vec<Wanted>| (dtype, shape.clone(), elements));
    Ok(Call { label, result, wanted })
}

/// The ends of a range within a type, as `randint` takes them: of few numbers, of about half of
/// them, or of nearly all.
fn span(draw: &mut Draw, first: i128, last: i128) -> (i64, i64) {
    let near = |draw: &mut Draw| draw.below(4) as i128;
    let middle = first + (last - first) / 2;
    let (low, high) = match draw.below(4) {
        0 => (first + near(draw), last + 1 - near(draw)),
        1 => (first + near(draw), middle + near(draw)),
        2 => (middle - near(draw), last + 1 - near(draw)),
        _ => (first + (last - first) / 4, last - (last - first) / 4 + near(draw)),
    };
    let [low, high] = [low, high].map(|end| end.clamp(i64::MIN.into(), i64::MAX.into()) as i64);
    (low, high)
}

/// A call of `randint`: the integral part of a product of f32, plus the lower end.
fn integers(draw: &mut Draw, streams: &mut Streams, target: Target) -> Call {
    let dtype = draw.pick(&DType::ALL);
    let range = scalar::range(dtype).filter(|_| dtype != DType::Bool);
    let (first, last) = range.unwrap_or((0, 255));
    let end = |draw: &mut Draw| {
        let end = draw.pick(&[0, 10, -3, 100, 1 << 24, 1 << 40, first, last]);
        let end = end + draw.pick(&[0, 0, 1, -1, 2]);
        end.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    };
    let (low, high) = match range {
        // A range of the type, of any length: some are longer than its largest number.
        Some(_) if draw.one_in(2) => span(draw, first, last),
        _ => (end(draw), end(draw)),
    };
    let (from, to) = (i128::from(low), i128::from(high));
    let fits = range.is_some_and(|(min, max)| min <= from && from < to && to - 1 <= max);
    let Target { device, on, shape, .. } = &target;
    let elements = target.count().filter(|_| fits).map(|count| {
        let number = |x: f64| {
            let product = rounded(DType::F32, x * rounded(DType::F32, (to - from) as f64));
            Wanted::Bits(scalar::int(dtype, product as i128 + from).expect("it is an integer's"))
        };
        streams.fractions(device, DType::F32, count).into_iter().map(number).collect()
    });
    let result = on.randint(dtype, shape, low, high);
    let label = format!("randint of {dtype}{shape:?} on {device} from {low} to {high}");
    Call { label, result, wanted: elements.map(|elements| (dtype, shape.clone(), elements)) }
}

/// A call of `randperm`: the order of uniform numbers, of equal ones the order of their positions.
fn permutation(draw: &mut Draw, streams: &mut Streams, target: &Target) -> Call {
    let dtype = draw.pick(&DType::ALL);
    // Longer ones are sorted in steps, of which the evaluator of graphs compares all pairs.
    let n = if draw.one_in(50) { 513 } else { draw.pick(&[0, 1, 2, 7, 40, 128, 129, 257, -1]) };
    let has_all = |range: (i128, i128)| i128::from(n) - 1 <= range.1;
    let fits = dtype != DType::Bool && scalar::range(dtype).is_some_and(has_all);
    let wanted = usize::try_from(n).ok().filter(|_| fits).map(|count| {
        let numbers = streams.fractions(target.device, DType::F32, count);
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by(|x, y| numbers[*x].total_cmp(&numbers[*y]));
        let element = |at: &usize| scalar::int(dtype, *at as i128).map(Wanted::Bits);
        let elements = order.iter().map(|at| element(at).expect("it is an integer's type"));
        (dtype, vec![n], elements.collect())
    });
    let label = format!("randperm of {n} numbers of {dtype} on {}", target.device);
    Call { label, result: target.on.randperm(dtype, n), wanted }
}

/// A call of `dropout`, in training and not.
fn dropout(draw: &mut Draw, streams: &mut Streams) -> Result<Call, String> {
    let device = default_device().map_err(|error| error.to_string())?;
    let p = draw.pick(&[0.0, 0.5, 0.1, 0.9, 1.0, 1.5, -0.1, f64::NAN]);
    let dtype = draw.pick(&[
        DType::F32,
        DType::F32,
        DType::F16,
        DType::F64,
        DType::I32,
        DType::U8,
        DType::BF16,
        DType::I64,
        DType::Bool,
    ]);
    let count = draw.below(20);
    let number = |at: usize| scalar::number(dtype, at as i128 % 13 - 3).expect("it has numbers");
    let mut given: Vec<Constant> = (0..count).map(number).collect();
    // What is dropped is 0, whatever it was.
    if dtype.is_float() && draw.one_in(2) {
        let special = [f64::INFINITY, f64::NAN, f64::NEG_INFINITY];
        for element in given.iter_mut().step_by(2) {
            *element = scalar::float(dtype, draw.pick(&special)).expect("it is a float's type");
        }
    }
    let bytes = super::values::bytes_of(&given);
    let x = Tensor::from_bytes(dtype, &[count as i64], &bytes).map_err(|e| e.to_string())?;
    let trains = !draw.one_in(4);
    let training = Tensor::train(trains);
    let result = x.dropout(p);
    drop(training);
    let label = format!("dropout({p:?}) of {dtype}[{count}], training {trains}");
    if !(0.0..=1.0).contains(&p) {
        return Ok(Call { label, result, wanted: None });
    }
    if !trains || p == 0.0 {
        let unchanged = given.into_iter().map(Wanted::Bits).collect();
        return Ok(Call { label, result, wanted: Some((dtype, vec![count as i64], unchanged)) });
    }
    let to = if dtype.is_float() { dtype } else { DType::F32 };
    let numbers = streams.fractions(device, DType::F32, count);
    // Halves are multiplied in f32.
    let wide = if matches!(to, DType::F16 | DType::BF16) { DType::F32 } else { to };
    let factor = scalar::float(wide, 1.0 / (1.0 - p)).expect("it is a float's type");
    let element = |(x, number): (&Constant, &f64)| {
        if *number < rounded(DType::F32, p) {
            return Some(scalar::zero(to));
        }
        let product = [scalar::evaluate(Op::Cast, wide, &[*x])?, factor];
        scalar::evaluate(Op::Cast, to, &[scalar::evaluate(Op::Mul, wide, &product)?])
    };
    let elements = given.iter().zip(&numbers).map(element);
    let wanted = elements.map(|x| x.map_or(Wanted::Free, Wanted::Bits)).collect();
    Ok(Call { label, result, wanted: Some((to, vec![count as i64], wanted)) })
}

/// A call of `multinomial`: the number of bounds that a uniform number is not below.
fn multinomial(draw: &mut Draw, streams: &mut Streams) -> Result<Call, String> {
    let device = default_device().map_err(|error| error.to_string())?;
    let (rows, categories) = (draw.pick(&[1, 1, 2, 3]), draw.below(6));
    let samples = draw.pick(&[1, 2, 5, 0, -1]);
    let replaces = !draw.one_in(3);
    let count = rows * categories;
    let mut weights: Vec<f64> = (0..count).map(|_| (1 + draw.below(9)) as f64).collect();
    let is_flat = rows == 1 && draw.one_in(2);
    if 1 < categories && draw.one_in(3) {
        // A category that is never drawn.
        weights[draw.below(count)] = 0.0;
    }
    let shape = [rows as i64, categories as i64];
    let shape = if is_flat { &shape[1..] } else { &shape[..] };
    // Of several types, and in f64 of extreme magnitudes: only their ratio counts.
    let dtypes = [DType::F32, DType::F32, DType::F64, DType::F16, DType::I32, DType::U8];
    let dtype = draw.pick(&dtypes);
    let scale = if dtype == DType::F64 { draw.pick(&[1.0, 1e-300, 1e250, 1e-15]) } else { 1.0 };
    let scaled: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
    let weights_of = Tensor::from_slice(shape, &scaled).and_then(|weights| weights.cast(dtype));
    let result = weights_of.and_then(|weights| weights.multinomial(samples, replaces));
    let label = format!("multinomial({samples}, {replaces}) of {dtype} {scaled:?} as {shape:?}");
    let is_legal = 0 < categories && (samples == 1 || 1 < samples && replaces);
    if !is_legal {
        return Ok(Call { label, result, wanted: None });
    }
    let numbers = streams.fractions(device, DType::F32, samples as usize * rows);
    let mut wanted = Vec::new();
    for row in 0..rows {
        let weights = &weights[row * categories..][..categories];
        let total: f64 = weights.iter().sum();
        for sample in 0..samples as usize {
            let number = numbers[sample * rows + row];
            let mut sum = 0.0_f64;
            let bounds = weights.iter().map(|weight| {
                sum += weight;
                sum / total
            });
            let bounds: Vec<f64> = bounds.collect();
            // A bound is rounded twice.
            let is_close = bounds.iter().any(|bound| (bound - number).abs() < 3e-7);
            let category = bounds.iter().filter(|bound| **bound <= number).count();
            let category = scalar::int(DType::I32, category as i128).map(Wanted::Bits);
            wanted.push(if is_close { Wanted::Free } else { category.expect("it is an i32") });
        }
    }
    let shape = if is_flat { vec![samples] } else { vec![rows as i64, samples] };
    Ok(Call { label, result, wanted: Some((DType::I32, shape, wanted)) })
}

/// Checks tensors that are like a drawn one, and words of drawn keys.
pub(super) fn likes(draw: &mut Draw) -> Result<(), String> {
    seeded(draw, |draw, streams| {
        let count = 1 + draw.below(3);
        let call = |_| match draw.below(6) {
            0 => keyed_words(draw),
            _ => like(draw, streams),
        };
        (0..count).map(call).collect()
    })
}

/// A call that makes a tensor of the dtype and the shape of a drawn one; random numbers are on its
/// device as well.
fn like(draw: &mut Draw, streams: &mut Streams) -> Result<Call, String> {
    let mut target = Target::draw(draw)?;
    target.shape.retain(|size| 0 <= *size);
    let (device, dtype) = (target.device, target.dtype);
    let count = target.count().expect("no size is negative");
    let source = Tensor::from_bytes(dtype, &target.shape, &vec![0; count * dtype.size_bytes()])
        .and_then(|source| source.to(device))
        .map_err(|error| error.to_string())?;
    let number = draw.pick(&[3i64, 0, 1, -1, 300]);
    let filled = |number: i64| {
        let number = i128::from(number);
        let element = match scalar::range(dtype).filter(|_| dtype != DType::Bool) {
            Some((low, high)) if low <= number && number <= high => scalar::int(dtype, number),
            _ => scalar::float(dtype, number as f64),
        };
        element.map(|element| vec![Wanted::Bits(element); count])
    };
    // The same for bool, which has no numbers.
    let filled_or_bool = |number: i64| match dtype {
        DType::Bool => scalar::int(dtype, number.into()).map(|x| vec![Wanted::Bits(x); count]),
        _ => filled(number),
    };
    let (name, result, elements, is_random) = match draw.below(5) {
        0 => ("rand_like", source.rand_like(), target.uniform_bits(streams), true),
        1 => ("randn_like", source.randn_like(), target.normal(streams, 0.0, 1.0), true),
        2 => ("full_like", source.full_like(number), filled(number), false),
        3 => ("zeros_like", source.zeros_like(), filled_or_bool(0), false),
        _ => ("ones_like", source.ones_like(), filled_or_bool(1), false),
    };
    let label = format!("{name} with {number} of {dtype}{:?} on {device}", target.shape);
    if let Ok(found) = &result
        && is_random
        && found.device().ok() != Some(device)
    {
        return Err(format!("{label} gives a tensor on {:?}", found.device()));
    }
    let wanted = elements.map(|elements| (dtype, target.shape, elements));
    Ok(Call { label, result, wanted })
}

/// A call of `random_bits`: the words of the counters from 0 on, by the hash of the given counter
/// as the key.
fn keyed_words(draw: &mut Draw) -> Result<Call, String> {
    let problem = |error: Error| error.to_string();
    let [key, counter] = [(); 2].map(|()| draw.bits());
    let count = draw.pick(&[1i64, 2, 3, 8, 17, 0, -1]);
    let words = |number: u64| [number as u32, (number >> 32) as u32];
    let counter_words = Tensor::from_slice(&[2], &words(counter)).map_err(problem)?;
    let is_legal = !draw.one_in(8);
    let key_words = match is_legal {
        true => Tensor::from_slice(&[2], &words(key)),
        false => Tensor::from_slice(&[1], &[key as u32]),
    };
    let result = Tensor::random_bits(&key_words.map_err(problem)?, &counter_words, count);
    let key = hash(counter, key);
    let wanted = usize::try_from(count).ok().filter(|_| is_legal).map(|count| {
        let pairs = count.div_ceil(2) as u64;
        let hashed: Vec<u64> =
            (0..pairs).map(|pair| hash((pair + pairs) << 32 | pair, key)).collect();
        let (low, high) = (hashed.iter().copied(), hashed.iter().map(|pair| pair >> 32));
        let word = |word: u64| {
            let word = scalar::int(DType::U32, i128::from(word));
            Wanted::Bits(word.expect("it is an integer's type"))
        };
        (DType::U32, vec![count as i64], low.chain(high).take(count).map(word).collect())
    });
    Ok(Call { label: format!("random_bits of {count} words"), result, wanted })
}
