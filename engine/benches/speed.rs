//! How fast kernels are on this machine, one core, as shares of what the machine can do right
//! before and after (`limits.c`): f32 multiply-adds in registers, bytes read, bytes read and
//! written. A core that others use as well does less from one minute to the next, so each kernel
//! has limits of its own.
//!
//! `cargo bench -p gradiff --bench speed`, or with `-- matmul` a part of it. The device is `c`; the
//! heuristic alone chooses the optimisations. Each figure is the best of its samples.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::Criterion;
use gradiff::{Engine, Tensor};

mod common;

use common::convolution;

/// Elements of the large arrays.
const LARGE: i64 = 1 << 24;

/// Best times by name.
#[derive(Default)]
struct Times(RefCell<BTreeMap<String, f64>>);

impl Times {
    /// Measures `run` with criterion and keeps its best time in seconds.
    fn measure(&self, criterion: &mut Criterion, name: &str, mut run: impl FnMut()) {
        criterion.bench_function(name, |bencher| {
            bencher.iter_custom(|count| {
                let mut total = Duration::ZERO;
                for _ in 0..count {
                    let start = Instant::now();
                    run();
                    let time = start.elapsed();
                    total += time;
                    let mut times = self.0.borrow_mut();
                    let best = times.entry(name.to_owned()).or_insert(f64::MAX);
                    *best = best.min(time.as_secs_f64());
                }
                total
            });
        });
    }

    fn of(&self, name: &str) -> Option<f64> {
        self.0.borrow().get(name).copied()
    }
}

/// Numbers between -0.5 and 0.5.
fn data(shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    let number = |at: i64| (at * 7919 % 1000) as f32 / 1000.0 - 0.5;
    let numbers: Vec<f32> = (0..count).map(number).collect();
    Tensor::from_slice(shape, &numbers).expect("so many numbers")
}

/// What the machine can do: the seconds that one multiply-add and one byte take.
#[derive(Clone, Copy)]
struct Limits {
    multiply_add: f64,
    read: f64,
    moved: f64,
}

impl Limits {
    /// The better of two in each.
    fn best(self, other: Limits) -> Limits {
        Limits {
            multiply_add: self.multiply_add.min(other.multiply_add),
            read: self.read.min(other.read),
            moved: self.moved.min(other.moved),
        }
    }
}

/// `limits.c`, made for this machine by its C compiler.
struct Meter {
    folder: tempfile::TempDir,
}

impl Meter {
    fn new() -> Result<Meter, Box<dyn std::error::Error>> {
        let meter = Meter { folder: tempfile::tempdir()? };
        let source = meter.folder.path().join("limits.c");
        std::fs::write(&source, include_str!("limits.c"))?;
        let mut compiler = Command::new(std::env::var("CC").unwrap_or("cc".to_owned()));
        compiler.args(["-O3", "-march=native", "-o"]).arg(meter.program()).arg(&source);
        match compiler.status()? {
            status if status.success() => Ok(meter),
            status => Err(format!("the C compiler ends with {status} over limits.c").into()),
        }
    }

    fn program(&self) -> PathBuf {
        self.folder.path().join("limits")
    }

    fn measure(&self) -> Result<Limits, Box<dyn std::error::Error>> {
        let text = String::from_utf8(Command::new(self.program()).output()?.stdout)?;
        let seconds: Vec<f64> =
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        match seconds.as_slice() {
            &[multiply_add, read, moved] => Ok(Limits { multiply_add, read, moved }),
            _ => Err(format!("limits.c printed {text:?}").into()),
        }
    }
}

/// A kernel's work, and the limit that it is held against.
struct Work {
    name: String,
    make: Box<dyn Fn() -> Result<Tensor, gradiff::Error>>,
    need: Need,
}

enum Need {
    /// So many multiply-adds.
    MultiplyAdds(f64),
    /// So many bytes read.
    Read(f64),
    /// So many bytes read and written.
    Moved(f64),
}

impl Need {
    /// The seconds that the machine would need at its limit.
    fn least(&self, limits: &Limits) -> f64 {
        match self {
            Need::MultiplyAdds(count) => limits.multiply_add * count,
            Need::Read(bytes) => limits.read * bytes,
            Need::Moved(bytes) => limits.moved * bytes,
        }
    }

    /// The limit in words.
    fn shown(&self, limits: &Limits) -> String {
        match self {
            Need::MultiplyAdds(_) => format!("{:.1} GFLOP/s", 2e-9 / limits.multiply_add),
            Need::Read(_) => format!("{:.1} GB/s read", 1e-9 / limits.read),
            Need::Moved(_) => format!("{:.1} GB/s moved", 1e-9 / limits.moved),
        }
    }
}

fn works() -> Vec<Work> {
    let mut works = Vec::new();
    let mut add = |name: &str, need, make: Box<dyn Fn() -> Result<Tensor, gradiff::Error>>| {
        works.push(Work { name: name.to_owned(), make, need });
    };
    for size in [512i64, 1024, 2048] {
        let (x, y) = (data(&[size, size]), data(&[size, size]));
        let need = Need::MultiplyAdds((size * size * size) as f64);
        add(&format!("matmul {size}"), need, Box::new(move || x.matmul(&y)));
    }
    let (images, weights) = (data(&[8, 64, 56, 56]), data(&[64, 64, 3, 3]));
    let need = Need::MultiplyAdds((8 * 64 * 56 * 56 * 64 * 9) as f64);
    add("convolution 3x3", need, Box::new(move || convolution(&images, &weights, 1)));
    let large = LARGE as f64;
    let [x, y, z] = [(); 3].map(|()| data(&[LARGE]));
    let fused = move || x.mul(&y)?.add(&z)?.relu()?.exp2();
    add("elementwise 16M", Need::Moved(16.0 * large), Box::new(fused));
    let x = data(&[LARGE]);
    add("sum 16M", Need::Read(4.0 * large), Box::new(move || x.sum(&[0])));
    let x = data(&[4096, 1024]);
    let bytes = 8.0 * 4096.0 * 1024.0;
    add("softmax 4096x1024", Need::Moved(bytes), Box::new(move || x.softmax(1)));
    works
}

fn main() {
    let mut criterion = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let engine = Engine::new("c").expect("a C compiler");
    let times = Times::default();
    let meter = Meter::new().expect("a C compiler");
    let limits = || meter.measure().expect("a C program that measures");
    let (mut rows, mut before) = (Vec::new(), limits());
    for work in works() {
        let result = (work.make)().expect("shapes that fit");
        let mut plan = [engine.plan(&[&result]).expect("a plan")];
        engine.compile(&mut plan).expect("kernels that compile");
        times.measure(&mut criterion, &work.name, || engine.run(&plan[0]).expect("a run"));
        // Nothing is measured of what the command line leaves out.
        if let Some(time) = times.of(&work.name) {
            let after = limits();
            rows.push((work.name, time, work.need, before.best(after)));
            before = after;
        }
    }
    criterion.final_summary();
    println!("\n{:22} {:>10} {:>18} {:>10} {:>7}", "", "ms", "limit", "least ms", "share");
    for (name, time, need, limits) in rows {
        let (least, limit) = (need.least(&limits), need.shown(&limits));
        let share = 100.0 * least / time;
        println!("{name:22} {:10.3} {limit:>18} {:10.3} {share:6.0}%", time * 1e3, least * 1e3);
    }
}
