//! Speed of kernels on one core, as a share of the limit of the machine (`limits.c`): f32
//! multiply-adds in registers, bytes read, bytes read and written. If other processes use the core
//! its speed varies, so the limit is measured before and after every sample of a kernel. The result
//! is the median of the shares of all samples, with their quartiles.
//!
//! `cargo bench -p gradiff --bench speed`, or with `-- matmul` a part of it. The device is `c`; the
//! heuristic chooses the optimisations.

use std::time::{Duration, Instant};

use criterion::Criterion;
use gradiff::{Engine, Tensor, keepdim};

#[path = "common/convolution.rs"]
mod convolution;
#[path = "common/limits.rs"]
mod limits;

use convolution::convolution;
use limits::{Meter, Unit, quantile};

/// The number of elements of the large arrays.
const LARGE: i64 = 1 << 24;

/// Numbers between -0.5 and 0.5.
fn data(shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    let number = |index: i64| (index * 7919 % 1000) as f32 / 1000.0 - 0.5;
    let numbers: Vec<f32> = (0..count).map(number).collect();
    Tensor::from_slice(shape, &numbers).expect("a number for each element")
}

/// The minimal time in seconds of a sample of a compute-bound kernel: a shorter sample is distorted
/// by a core that slept before and is slow to wake. A sample of a memory-bound kernel is a single
/// run, with cold caches.
const COMPUTE_SAMPLE_SECONDS: f64 = 10e-3;

/// A sample: the seconds of a run, and the seconds of one unit measured around it.
struct Sample {
    time: f64,
    unit: f64,
}

/// A benchmark: a computation, its limiting resource and the amount of it.
struct Work {
    name: String,
    make: Box<dyn Fn() -> Result<Tensor, gradiff::Error>>,
    unit: Unit,
    count: f64,
}

impl Work {
    /// Measures the kernel and its limit in turns, as often as criterion requires; no samples if
    /// the command line excludes it.
    fn measure(
        &self,
        criterion: &mut Criterion,
        engine: &Engine,
        meter: &mut Meter,
    ) -> Vec<Sample> {
        let result = (self.make)().expect("shapes that fit");
        let mut plan = [engine.plan(&[&result]).expect("a plan")];
        engine.compile(&mut plan).expect("kernels that compile");
        let run = || {
            let start = Instant::now();
            engine.run(&plan[0]).expect("a run");
            start.elapsed()
        };
        let runs = match self.unit {
            Unit::MultiplyAdd => {
                (COMPUTE_SAMPLE_SECONDS / run().min(run()).as_secs_f64()).ceil() as u32
            }
            Unit::ByteRead | Unit::ByteMoved => 1,
        };
        let mut samples = Vec::new();
        let mut limit = || meter.measure(self.unit).expect("a C program that measures");
        criterion.bench_function(&self.name, |bencher| {
            bencher.iter_custom(|count| {
                let (mut total, mut before) = (Duration::ZERO, limit());
                for _ in 0..count {
                    let time = (0..runs).map(|_| run()).sum::<Duration>() / runs;
                    let after = limit();
                    let unit = (before + after) / 2.0;
                    samples.push(Sample { time: time.as_secs_f64(), unit });
                    (total, before) = (total + time, after);
                }
                total
            });
        });
        samples
    }

    /// Formats the row of results.
    fn row(&self, samples: &[Sample]) -> String {
        let share = |part| {
            let shares = samples.iter().map(|sample| self.count * sample.unit / sample.time);
            100.0 * quantile(shares, part)
        };
        let time = 1e3 * quantile(samples.iter().map(|sample| sample.time), 0.5);
        let limit = self.unit.rate(quantile(samples.iter().map(|sample| sample.unit), 0.5));
        let [low, middle, high] = [0.25, 0.5, 0.75].map(share);
        format!(
            "{:22} {:>7} {time:10.3} {limit:>18} {middle:6.0}% {low:5.0} to {high:.0}",
            self.name,
            samples.len()
        )
    }
}

fn works() -> Vec<Work> {
    let mut works = Vec::new();
    let mut add = |name: &str, unit, count: i64, make: Box<dyn Fn() -> _>| {
        works.push(Work { name: name.to_owned(), make, unit, count: count as f64 });
    };
    for size in [512i64, 1024, 2048] {
        let (x, y) = (data(&[size, size]), data(&[size, size]));
        let name = format!("matmul {size}");
        add(&name, Unit::MultiplyAdd, size * size * size, Box::new(move || x.matmul(&y)));
    }
    let (images, weights) = (data(&[8, 64, 56, 56]), data(&[64, 64, 3, 3]));
    let convolved = move || convolution(&images, &weights, 1);
    add("convolution 3x3", Unit::MultiplyAdd, 8 * 64 * 56 * 56 * 64 * 9, Box::new(convolved));
    let [x, y, z] = [(); 3].map(|()| data(&[LARGE]));
    let fused = move || x.mul(&y)?.add(&z)?.relu()?.exp2();
    add("elementwise 16M", Unit::ByteMoved, 16 * LARGE, Box::new(fused));
    let x = data(&[LARGE]);
    add("sum 16M", Unit::ByteRead, 4 * LARGE, Box::new(move || x.sum(keepdim(0))));
    let x = data(&[4096, 1024]);
    add("softmax 4096x1024", Unit::ByteMoved, 8 * 4096 * 1024, Box::new(move || x.softmax(1)));
    works
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let engine = Engine::new("c").expect("a C compiler");
    let mut meter = Meter::new().expect("a C compiler");
    let mut rows = Vec::new();
    for work in works() {
        let samples = work.measure(&mut criterion, &engine, &mut meter);
        if !samples.is_empty() {
            rows.push(work.row(&samples));
        }
    }
    criterion.final_summary();
    let [name, count, time, limit, share] = ["", "samples", "ms", "limit", "share"];
    println!("\n{name:22} {count:>7} {time:>10} {limit:>18} {share:>7} quartiles");
    rows.iter().for_each(|row| println!("{row}"));
}
