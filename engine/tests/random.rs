//! Random numbers: those of tinygrad 0.10.2 (`random_numbers.txt`, which
//! `oracle/upstream/random_numbers.py` prints), on several devices; their distributions; threads;
//! and what is refused.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gradiff::runtime::device_names;
use gradiff::{DType, Engine, Error, RandomOn, Tensor, default_device};
use gradiff_skip::or_skip;

/// The greatest difference of a normal number from tinygrad's: that of cosines of angles below 2 pi
/// which are rounded or not (2.4e-7), and of sines, logarithms and roots, times the largest radius
/// (5.7). Numbers of this size are added, so it is absolute, in units of the standard deviation.
const NORMAL_TOLERANCE: f64 = 2e-6;

/// The tests of this file take turns, since the seed is that of the process.
fn seeded(seed: u64) -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Tensor::manual_seed(seed);
    turn
}

/// The engines that compute the numbers of `random_numbers.txt`.
fn engines() -> Vec<Engine> {
    let always = ["interp", "jit"].map(|device| Engine::new(device).unwrap());
    always.into_iter().chain(or_skip("c", Engine::new("c"))).collect()
}

fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|dtype| dtype.name() == name).unwrap()
}

/// A call in `random_numbers.txt`.
struct Call<'a> {
    function: &'a str,
    device: &'static str,
    dtype: DType,
    shape: Vec<i64>,
    parameters: Vec<&'a str>,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Call<'a> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [function, device, dtype_name, shape, ref parameters @ ..] = words[..] else {
            panic!("{text:?} is no call");
        };
        let shape = match shape {
            "scalar" => Vec::new(),
            sizes => sizes.split(',').map(|size| size.parse().unwrap()).collect(),
        };
        let device = device_names()[device.parse::<usize>().unwrap()];
        Call { function, device, dtype: dtype(dtype_name), shape, parameters: parameters.to_vec() }
    }

    fn float(&self, number: usize) -> f64 {
        self.parameters[number].parse().unwrap()
    }

    fn int(&self, number: usize) -> i64 {
        self.parameters[number].parse().unwrap()
    }

    fn draw(&self) -> Result<Tensor, Error> {
        let (dtype, shape) = (self.dtype, &*self.shape);
        let random = RandomOn::device(self.device)?;
        match self.function {
            "rand" => random.rand(dtype, shape),
            "randn" => random.randn(dtype, shape),
            "randint" => random.randint(dtype, shape, self.int(0), self.int(1)),
            "uniform" => random.uniform(dtype, shape, self.float(0), self.float(1)),
            "normal" => random.normal(dtype, shape, self.float(0), self.float(1)),
            "scaled_uniform" => random.scaled_uniform(dtype, shape),
            "glorot_uniform" => random.glorot_uniform(dtype, shape),
            "kaiming_uniform" => random.kaiming_uniform(dtype, shape, self.float(0)),
            "kaiming_normal" => random.kaiming_normal(dtype, shape, self.float(0)),
            "dropout" => {
                let _training = Tensor::train(true);
                let numbers = Tensor::arange(DType::I32, 1, 1, shape.iter().product())?;
                numbers.cast(dtype)?.reshape(shape)?.to(self.device)?.dropout(self.float(0))
            }
            "multinomial" => {
                let weights: Vec<i32> =
                    self.parameters[0].split(',').map(|weight| weight.parse().unwrap()).collect();
                let samples = self.int(1);
                Tensor::from_slice(shape, &weights)?.multinomial(samples, samples != 1)
            }
            function => panic!("{function} is unknown"),
        }
    }

    /// The greatest difference that is allowed.
    fn tolerance(&self) -> f64 {
        match self.function {
            "randn" => NORMAL_TOLERANCE,
            "kaiming_normal" => NORMAL_TOLERANCE,
            "normal" => {
                NORMAL_TOLERANCE * self.float(1) + f64::from(f32::EPSILON) * self.float(0).abs()
            }
            _ => 0.0,
        }
    }
}

type Function = fn(&RandomOn) -> Result<Tensor, Error>;

/// The elements of a tensor as their bits.
fn bits(tensor: &Tensor) -> Vec<u64> {
    let number =
        |bytes: &[u8]| bytes.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
    tensor.to_bytes().unwrap().chunks(tensor.dtype().size_bytes()).map(number).collect()
}

fn float(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F32 => f64::from(f32::from_bits(bits as u32)),
        DType::F64 => f64::from_bits(bits),
        _ => panic!("no numbers of {dtype} have a tolerance"),
    }
}

/// Draws the numbers of all calls in `random_numbers.txt`: line, call, tensor.
fn drawn() -> Vec<(&'static str, Call<'static>, Tensor)> {
    let _turn = seeded(0);
    let text = include_str!("random_numbers.txt");
    let mut drawn = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with("key")) {
        match line.strip_prefix("seed ") {
            Some(seed) => Tensor::manual_seed(seed.parse().unwrap()),
            None => {
                let call = Call::parse(line.split_once(" =").unwrap().0);
                let tensor = call.draw().unwrap();
                drawn.push((line, call, tensor));
            }
        }
    }
    drawn
}

#[test]
fn numbers_are_tinygrads() {
    for engine in engines() {
        let drawn = drawn();
        // All at once, since compilers are slow to start.
        let tensors: Vec<&Tensor> = drawn.iter().map(|(_, _, tensor)| tensor).collect();
        engine.realize(&tensors).unwrap();
        for (line, call, tensor) in &drawn {
            let words = line.split_once(" =").unwrap().1.split_whitespace();
            let expected: Vec<u64> =
                words.map(|word| u64::from_str_radix(word, 16).unwrap()).collect();
            let found = bits(tensor);
            let context = || format!("{line} on {:?}:\n{found:x?}", engine.device.name());
            assert_eq!(found.len(), expected.len(), "{}", context());
            for (found, expected) in found.iter().zip(&expected) {
                let is_close = || {
                    let number = |bits: &u64| float(call.dtype, *bits);
                    (number(found) - number(expected)).abs() <= call.tolerance()
                };
                let has_tolerance = call.tolerance() > 0.0;
                assert!(found == expected || has_tolerance && is_close(), "{}", context());
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_numbers_on_every_device() {
    let functions: [Function; 6] = [
        |random| random.rand(DType::F32, &[1000]),
        |random| random.rand(DType::F64, &[31, 3]),
        |random| random.rand(DType::F16, &[333]),
        |random| random.rand(DType::BF16, &[333]),
        |random| random.randint(DType::I8, &[100], -100, 100),
        |random| random.uniform(DType::F16, &[100], -0.3, 0.1),
    ];
    for function in functions {
        let draw = |device: &str| {
            let _turn = seeded(11);
            let random = RandomOn::device(device).unwrap();
            let (x, y) = (function(&random).unwrap(), function(&random).unwrap());
            assert_eq!(x.device().unwrap(), device);
            (bits(&x), bits(&y))
        };
        let (first, second) = draw("interp");
        assert_ne!(first, second, "the counter advances");
        assert_eq!(draw("jit"), (first.clone(), second.clone()));
        // Computed on the default device, and copied.
        for device in ["interp", "jit"] {
            let _turn = seeded(11);
            let x = function(&RandomOn::default()).unwrap().to(device).unwrap();
            assert_eq!(bits(&x), first);
        }
    }
}

#[test]
fn the_counter_advances_when_a_function_is_called() {
    let draw = |order: [usize; 2]| {
        let _turn = seeded(12);
        let tensors = [(); 2].map(|()| Tensor::rand(DType::F32, &[5]).unwrap());
        let mut numbers = order.map(|number| (number, bits(&tensors[number])));
        numbers.sort_unstable();
        numbers
    };
    assert_eq!(draw([0, 1]), draw([1, 0]));
    // A tensor has its numbers before and after it is computed.
    let _turn = seeded(13);
    let x = Tensor::rand(DType::F32, &[4]).unwrap();
    let doubled = x.add(&x).unwrap();
    let numbers: Vec<f32> = x.to_vec().unwrap();
    let twice: Vec<f32> = numbers.iter().map(|number| 2.0 * number).collect();
    assert_eq!(doubled.to_vec::<f32>().unwrap(), twice);
    // The default device and the same device by name have one counter.
    Tensor::manual_seed(14);
    let mut seen = BTreeSet::new();
    for random in [RandomOn::default(), RandomOn::device(default_device().unwrap()).unwrap()] {
        for _ in 0..2 {
            assert!(seen.insert(bits(&random.rand(DType::F32, &[3]).unwrap())));
        }
    }
    // Nothing is drawn for no elements, nor by a call that is refused.
    let after = |call: &dyn Fn()| {
        Tensor::manual_seed(15);
        drop(Tensor::rand(DType::F32, &[2]).unwrap());
        call();
        bits(&Tensor::rand(DType::F32, &[2]).unwrap())
    };
    let expected = after(&|| ());
    assert_eq!(expected, after(&|| drop(Tensor::randn(DType::F32, &[0, 7]).unwrap())));
    assert_eq!(expected, after(&|| drop(Tensor::rand(DType::I32, &[2]).unwrap_err())));
    assert_eq!(expected, after(&|| drop(Tensor::rand(DType::F64, &[1 << 36]).unwrap_err())));
}

#[test]
fn threads_do_not_draw_the_same_numbers() {
    let _turn = seeded(16);
    let draw = || -> Vec<u64> {
        let draw = || bits(&Tensor::rand(DType::F64, &[10]).unwrap());
        std::iter::repeat_with(draw).take(50).flatten().collect()
    };
    let drawn = || -> BTreeSet<u64> {
        let numbers: Vec<u64> = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(draw));
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
        numbers.into_iter().collect()
    };
    let first = drawn();
    assert_eq!(first.len(), 2000);
    Tensor::manual_seed(16);
    assert_eq!(first, drawn(), "the same numbers, by other threads");
}

/// Checks mean and variance of 100,000 numbers within 5 standard deviations of theirs; the fourth
/// moment is in units of the variance.
fn check_moments(name: &str, tensor: &Tensor, mean: f64, variance: f64, fourth: f64) {
    let numbers: Vec<f64> = tensor.cast(DType::F64).unwrap().to_vec().unwrap();
    let count = numbers.len() as f64;
    assert_eq!(count, 1e5);
    let found = numbers.iter().sum::<f64>() / count;
    let squares: f64 = numbers.iter().map(|number| (number - found).powi(2)).sum();
    let (found_variance, limit) = (squares / (count - 1.0), 5.0 / count.sqrt());
    let close = (found - mean).abs() < limit * variance.sqrt();
    assert!(close, "{name}: mean {found}, expected {mean}");
    let close = (found_variance - variance).abs() < limit * variance * (fourth - 1.0).sqrt();
    assert!(close, "{name}: variance {found_variance}, expected {variance}");
}

#[test]
fn distributions_have_their_mean_and_variance() {
    let shape = &[250, 400];
    let _turn = seeded(17);
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        // Multiples of a unit, rounded down.
        let unit = match dtype {
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            _ => 0.0,
        };
        let uniform = Tensor::rand(dtype, shape).unwrap();
        let name = format!("rand of {dtype}");
        check_moments(&name, &uniform, 0.5 - unit / 2.0, 1.0 / 12.0, 1.8);
        let normal = Tensor::randn(dtype, shape).unwrap();
        check_moments(&format!("randn of {dtype}"), &normal, 0.0, 1.0, 3.0);
    }
    let f32 = DType::F32;
    let normal = Tensor::normal(f32, shape, 10.0, 3.0).unwrap();
    check_moments("normal", &normal, 10.0, 9.0, 3.0);
    let uniform = Tensor::uniform(f32, shape, -2.0, 4.0).unwrap();
    check_moments("uniform", &uniform, 1.0, 3.0, 1.8);
    let int = Tensor::randint(DType::I16, shape, -50, 51).unwrap();
    check_moments("randint", &int, 0.0, (101.0 * 101.0 - 1.0) / 12.0, 1.8);
    let int = Tensor::randint(DType::I64, shape, i64::MIN, i64::MAX).unwrap();
    check_moments("randint of i64", &int, 0.0, 2f64.powi(128) / 12.0, 1.8);
    let scaled = Tensor::scaled_uniform(f32, shape).unwrap();
    check_moments("scaled_uniform", &scaled, 0.0, 1e-5 / 3.0, 1.8);
    let glorot = Tensor::glorot_uniform(f32, shape).unwrap();
    check_moments("glorot_uniform", &glorot, 0.0, 6.0 / 650.0 / 3.0, 1.8);
    let kaiming = Tensor::kaiming_uniform(f32, shape, 0.5).unwrap();
    check_moments("kaiming_uniform", &kaiming, 0.0, 2.0 / 1.25 / 400.0, 1.8);
    let kaiming = Tensor::kaiming_normal(f32, shape, 0.5).unwrap();
    check_moments("kaiming_normal", &kaiming, 0.0, 2.0 / 1.25 / 400.0, 3.0);
    let _training = Tensor::train(true);
    let dropped = Tensor::ones(f32, shape).unwrap().dropout(0.25).unwrap();
    // 0 with probability 1/4, else 4/3: the fourth moment is (1 - 3 p q) / (p q) with p q = 3/16.
    check_moments("dropout", &dropped, 1.0, 1.0 / 3.0, 7.0 / 3.0);
    let weights = Tensor::from_slice(&[3], &[1.0f32, 0.0, 1.0]).unwrap();
    let drawn = weights.multinomial(100_000, true).unwrap();
    check_moments("multinomial", &drawn, 1.0, 1.0, 1.0 + 1e-4);
}

#[test]
fn integers_of_all_ranges_are_in_them_and_all_occur() {
    let _turn = seeded(18);
    for (dtype, low, high) in [
        (DType::I8, -128, 128),
        (DType::U8, 0, 256),
        (DType::I16, -3, 4),
        (DType::U16, 65530, 65536),
        (DType::I32, i64::from(i32::MIN), i64::from(i32::MIN) + 5),
        (DType::U32, i64::from(u32::MAX) - 6, i64::from(u32::MAX) + 1),
        (DType::I64, i64::MAX - 9, i64::MAX),
        (DType::U64, i64::MAX - 9, i64::MAX),
    ] {
        let x = Tensor::randint(dtype, &[5000], low, high).unwrap();
        assert_eq!(x.dtype(), dtype);
        let numbers: BTreeSet<i64> =
            x.cast(DType::I64).unwrap().to_vec().unwrap().into_iter().collect();
        let expected: BTreeSet<i64> = (low..high).collect();
        assert_eq!(numbers, expected, "{dtype} {low}..{high}");
    }
    for (dtype, low, high) in
        [(DType::I32, i32::MIN.into(), i64::from(i32::MAX) + 1), (DType::I64, i64::MIN, i64::MAX)]
    {
        let x = Tensor::randint(dtype, &[1000], low, high).unwrap().cast(DType::I64).unwrap();
        let numbers: Vec<i64> = x.to_vec().unwrap();
        let (min, max) = (*numbers.iter().min().unwrap(), *numbers.iter().max().unwrap());
        assert!(low <= min && min < low / 10 * 9 && high / 10 * 9 < max && max < high);
    }
}

#[test]
fn dropout_of_everything_has_gradients() {
    let _training = Tensor::train(true);
    for (dtype, p) in [(DType::F32, 1.0), (DType::F16, 1.0), (DType::F16, 0.99999)] {
        let x = Tensor::ones(dtype, &[4]).unwrap().to("interp").unwrap();
        let x = x.requires_grad_(true).unwrap();
        let y = x.dropout(p).unwrap();
        y.sum(..).unwrap().backward().unwrap();
        assert_eq!(y.to_text().unwrap(), "[0.0, 0.0, 0.0, 0.0]");
        assert_eq!(x.grad().unwrap().to_text().unwrap(), "[0.0, 0.0, 0.0, 0.0]", "{dtype} {p}");
    }
}

#[test]
fn extreme_weights_have_their_proportions() {
    let check = |weights: Tensor| {
        let drawn = weights.to("interp").unwrap().multinomial(2000, true).unwrap();
        let drawn: Vec<i32> = drawn.to_vec().unwrap();
        let count = drawn.iter().filter(|category| **category == 1).count();
        assert!((850..1150).contains(&count), "{count} of 2000 for {weights:?}");
        assert!(drawn.iter().all(|category| (0..2).contains(category)));
    };
    check(Tensor::from_slice(&[2], &[2_000_000_000i32; 2]).unwrap());
    check(Tensor::from_slice(&[2], &[u64::MAX; 2]).unwrap());
    for weight in [1e-300, 1e300, f64::MAX, 1e-50, 3.0] {
        check(Tensor::from_slice(&[2], &[weight; 2]).unwrap());
    }
    for weight in [1e-45f32, 1e-40, f32::MAX, 1e-20, 1e20] {
        check(Tensor::from_slice(&[2], &[weight; 2]).unwrap());
    }
}

#[test]
fn dropout_is_off_unless_the_thread_trains() {
    let x = Tensor::ones(DType::F32, &[100]).unwrap();
    assert_eq!(x.dropout(0.5).unwrap().uop(), x.uop());
    let training = Tensor::train(true);
    assert!(std::thread::spawn(|| !Tensor::is_training()).join().unwrap());
    {
        let _testing = Tensor::train(false);
        assert!(!Tensor::is_training());
    }
    assert!(Tensor::is_training());
    let _turn = seeded(19);
    for dtype in DType::ALL {
        let ones = x.cast(dtype).unwrap();
        let dropped = ones.dropout(0.75).unwrap();
        let expected = if dtype.is_float() { dtype } else { DType::F32 };
        assert_eq!((dropped.dtype(), dropped.shape()), (expected, x.shape()));
        let numbers: Vec<f32> = dropped.cast(DType::F32).unwrap().to_vec().unwrap();
        assert!(numbers.contains(&0.0) && numbers.contains(&4.0));
        assert!(numbers.iter().all(|number| [0.0, 4.0].contains(number)));
        let zeros: Vec<f32> =
            ones.dropout(1.0).unwrap().cast(DType::F32).unwrap().to_vec().unwrap();
        assert_eq!(zeros, [0.0; 100]);
    }
    assert_eq!(x.dropout(0.0).unwrap().uop(), x.uop());
    for device in ["interp", "jit"] {
        let there = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap().to(device).unwrap();
        assert_eq!(there.dropout(0.5).unwrap().device().unwrap(), device);
        assert_eq!(there.rand_like().unwrap().device().unwrap(), device);
        assert_eq!(there.randn_like().unwrap().device().unwrap(), device);
    }
    drop(training);
    assert!(!Tensor::is_training());
}

/// The numbers are those of tinygrad 0.10.3, the first version that has the function.
#[test]
fn permutations_are_those_of_upstream() {
    let _turn = seeded(42);
    let drawn = |n| Tensor::randperm(DType::I32, n).unwrap().to_vec::<i32>().unwrap();
    assert_eq!(drawn(6), [2, 1, 3, 5, 4, 0]);
    let second = [18, 15, 14, 5, 2, 11, 0, 13, 8, 16, 12, 4, 17, 6, 10, 1, 19, 9, 3, 7];
    assert_eq!(drawn(20), second);
    let mut long = drawn(3000);
    assert!(!long.is_sorted());
    long.sort_unstable();
    assert!(long.into_iter().eq(0..3000));
    assert_eq!(Tensor::randperm(DType::U8, 256).unwrap().dtype(), DType::U8);
    assert!(drawn(0).is_empty());
    check_error(Tensor::randperm(DType::U8, 257), &["randperm of 257 numbers of u8"]);
    check_error(Tensor::randperm(DType::F32, 2), &["numbers of f32"]);
    check_error(Tensor::randperm(DType::I32, -1), &["-1"]);
}

#[test]
fn shapes_without_elements_or_axes_have_numbers() {
    let _turn = seeded(20);
    let f32 = DType::F32;
    for shape in [&[0][..], &[2, 0], &[0, 0], &[3, 0, 2]] {
        for result in [
            Tensor::rand(f32, shape),
            Tensor::randn(f32, shape),
            Tensor::randint(DType::U8, shape, 0, 3),
            Tensor::uniform(f32, shape, 0.0, 3.0),
            Tensor::normal(f32, shape, 0.0, 3.0),
            Tensor::scaled_uniform(f32, shape),
            Tensor::glorot_uniform(f32, shape),
            Tensor::kaiming_uniform(f32, shape, 0.0),
            Tensor::kaiming_normal(f32, shape, 0.0),
            RandomOn::device("interp").unwrap().rand(f32, shape),
        ] {
            let x = result.unwrap();
            assert_eq!((x.shape(), bits(&x).len()), (shape, 0));
        }
    }
    for result in [
        Tensor::rand(f32, &[]),
        Tensor::randn(f32, &[]),
        Tensor::scaled_uniform(f32, &[]),
        Tensor::kaiming_normal(f32, &[], 0.0),
    ] {
        assert_eq!(bits(&result.unwrap()).len(), 1);
    }
    let weights = Tensor::zeros(f32, &[0, 3]).unwrap();
    assert_eq!(weights.multinomial(5, true).unwrap().shape(), [0, 5]);
}

fn check_error(result: Result<Tensor, Error>, parts: &[&str]) {
    let error = result.expect_err("it is refused").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not contain {part:?}");
    }
}

#[test]
fn bad_calls_are_errors() {
    let (f32, i32) = (DType::F32, DType::I32);
    for dtype in [DType::Void, DType::Bool, i32, DType::U64] {
        check_error(Tensor::rand(dtype, &[2]), &["rand of", "it makes floats"]);
        check_error(Tensor::randn(dtype, &[2]), &["randn of", "it makes floats"]);
        check_error(Tensor::normal(dtype, &[2], 0.0, 1.0), &["normal of"]);
        check_error(Tensor::uniform(dtype, &[2], 0.0, 1.0), &["uniform of"]);
        check_error(Tensor::glorot_uniform(dtype, &[2]), &["glorot_uniform of"]);
        check_error(Tensor::kaiming_normal(dtype, &[2], 0.0), &["kaiming_normal of"]);
    }
    check_error(Tensor::from_slice(&[1], &[1]).unwrap().rand_like(), &["rand of i32"]);
    for dtype in [DType::Void, DType::Bool, f32, DType::BF16] {
        check_error(Tensor::randint(dtype, &[2], 0, 1), &["it makes integers"]);
    }
    for shape in [&[-1][..], &[2, i64::MIN], &[1 << 30, 1 << 30], &[i64::MAX]] {
        check_error(Tensor::rand(f32, shape), &["a tensor of shape"]);
        check_error(Tensor::randn(f32, shape), &["a tensor of shape"]);
        check_error(Tensor::randint(i32, shape, 0, 1), &["a tensor of shape"]);
        check_error(Tensor::kaiming_uniform(f32, shape, 0.0), &["a tensor of shape"]);
        check_error(Tensor::kaiming_normal(f32, shape, 0.0), &["a tensor of shape"]);
        check_error(Tensor::scaled_uniform(f32, shape), &["a tensor of shape"]);
        check_error(Tensor::glorot_uniform(f32, shape), &["a tensor of shape"]);
    }
    check_error(Tensor::rand(f32, &[1 << 32]), &["less than 2^32 words"]);
    check_error(Tensor::glorot_uniform(f32, &[]), &["needs an axis"]);
    for (low, high) in [(0, 0), (1, 0), (i64::MAX, i64::MIN)] {
        check_error(Tensor::randint(i32, &[2], low, high), &["must not be empty"]);
    }
    for (dtype, low, high) in
        [(DType::U8, -1, 2), (DType::U8, 0, 257), (DType::I8, -129, 0), (DType::U64, -1, 1)]
    {
        check_error(Tensor::randint(dtype, &[2], low, high), &["numbers of"]);
    }
    for (low, high) in [(1.0, 1.0), (2.0, -2.0)] {
        check_error(Tensor::uniform(f32, &[2], low, high), &["must not be empty"]);
    }
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e300] {
        check_error(Tensor::uniform(f32, &[2], bad, 1.0), &["must be finite"]);
        check_error(Tensor::uniform(f32, &[2], 0.0, bad), &["must be finite"]);
        check_error(Tensor::normal(f32, &[2], bad, 1.0), &["must be finite"]);
        check_error(Tensor::normal(f32, &[2], 0.0, bad), &["must be finite"]);
        check_error(Tensor::kaiming_uniform(f32, &[2], bad), &["must be a finite"]);
        check_error(Tensor::kaiming_normal(f32, &[2], bad), &["must be a finite"]);
    }
    check_error(Tensor::uniform(f32, &[2], -3e38, 3e38), &["must be finite in f32"]);
    check_error(Tensor::uniform(DType::F16, &[2], 0.0, 1e5), &["must be finite in f16"]);
    check_error(Tensor::normal(f32, &[2], 0.0, -1.0), &["must not be negative"]);
    let x = Tensor::ones(f32, &[2]).unwrap();
    for training in [false, true] {
        let _training = Tensor::train(training);
        for p in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            check_error(x.dropout(p), &["between 0 and 1"]);
        }
    }
    check_error(x.multinomial(0, true), &["at least 1"]);
    check_error(x.multinomial(-1, true), &["at least 1"]);
    check_error(x.multinomial(2, false), &["without replacement"]);
    check_error(x.multinomial(i64::MAX, true), &["a tensor of shape"]);
    check_error(x.reshape(&[1, 1, 2]).unwrap().multinomial(1, true), &["one axis or two"]);
    check_error(Tensor::ones(f32, &[]).unwrap().multinomial(1, true), &["one axis or two"]);
    check_error(Tensor::ones(f32, &[2, 0]).unwrap().multinomial(1, true), &["0 categories"]);
    let error = RandomOn::device("abacus").unwrap_err().to_string();
    assert!(error.contains("no such device") && error.contains("interp"), "{error}");
}

/// The words of tinygrad 0.14.0, also where the counter carries into its high word.
#[test]
fn words_of_a_key_and_a_counter_are_those_of_tinygrad() {
    let words = |words: [u32; 2]| Tensor::from_slice(&[2], &words).unwrap();
    let expected: [([u32; 2], &[u32]); 4] = [
        ([0, 0], &[3884666042, 1382215832, 2790597546, 2298250502, 2804986951]),
        ([4294967294, 3], &[2217596743, 1333095841, 4123788660, 3068661716, 536925802, 2036572067]),
        ([5, 0], &[]),
        ([1, 0], &[2015528564]),
    ];
    let bits = |counter, count| Tensor::random_bits(&words([42, 7]), &words(counter), count);
    for engine in engines() {
        for (counter, expected) in expected {
            let bits = bits(counter, expected.len() as i64).unwrap();
            engine.realize(&[&bits]).unwrap();
            let device = engine.device.name();
            assert_eq!(bits.to_vec::<u32>().unwrap(), expected, "{counter:?} on {device}");
        }
    }
    for (count, key) in [(-1, [2].as_slice()), (1 << 32, &[2]), (1, &[1]), (1, &[2, 1])] {
        let key = Tensor::zeros(DType::U32, key).unwrap();
        assert!(Tensor::random_bits(&key, &words([0, 0]), count).is_err());
    }
    let signed = Tensor::zeros(DType::I32, &[2]).unwrap();
    assert!(Tensor::random_bits(&signed, &words([0, 0]), 1).is_err());
}
