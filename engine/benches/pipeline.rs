//! Lowering of graphs to linear uops (kernels/s), and small programs on each available device
//! (programs/s), with a warm kernel cache and with new kernels.

use gradiff::graph::Target;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use gradiff::kernel::lower;
use gradiff::rewrite::Trace;
use gradiff::{DType, Engine, Error, Tensor, keepdim};

#[path = "common/convolution.rs"]
mod convolution;

use convolution::convolution;

/// The allocator of the command `gradiff`.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A program of some ten ops: movement, arithmetic, a reduction. Its kernels depend on `constant`.
fn program(constant: i32) -> Result<Tensor, Error> {
    let elements: Vec<i32> = (0..24).collect();
    let a = Tensor::from_slice(&[4, 6], &elements)?;
    let b = a.flip(&[1])?.reshape(&[6, 4])?.permute(&[1, 0])?.add(constant)?;
    let c = b.mul(&a)?.pad(&[(1, 0), (0, 1)], 0)?.maximum(3)?;
    c.sum(keepdim(1))?.add(&Tensor::arange(DType::I32, 0, 2, 5)?.reshape(&[5, 1])?)
}

/// Computes a tensor on an engine and reads it.
fn read(engine: &Engine, tensor: &Tensor) -> Result<Vec<u8>, Error> {
    engine.realize(&[tensor])?;
    tensor.to_bytes()
}

fn graph_to_uops(criterion: &mut Criterion) {
    let options = gradiff::schedule::Options::default();
    let count = |constant| {
        let node = program(constant).expect("a valid program").uop();
        gradiff::schedule::schedule(&[node], &options).expect("a schedule").items
    };
    let mut group = criterion.benchmark_group("graph-to-uops");
    group.throughput(Throughput::Elements(count(0).len() as u64));
    let mut constant = 0;
    group.bench_function("kernels", |bencher| {
        bencher.iter(|| {
            constant += 1;
            for item in count(constant) {
                let mut trace = Trace::default();
                let linear = lower(&item.ast, &Target::default(), &Default::default(), &mut trace);
                black_box(linear.expect("a lowered kernel"));
            }
        });
    });
    group.finish();
}

/// A block of a residual network with stride 1 or 2: convolutions, scales, shifts, relu, addition.
fn block(x: &Tensor, channels: i64, stride: i64) -> Result<Tensor, Error> {
    let weights = |k: i64, c: i64, f: i64| {
        Tensor::from_bytes(DType::F32, &[k, c, f, f], &vec![0; (4 * k * c * f * f) as usize])
    };
    let row =
        || Tensor::from_bytes(DType::F32, &[1, channels, 1, 1], &vec![0; 4 * channels as usize]);
    let normal = |x: Tensor| -> Result<Tensor, Error> {
        let shape = x.shape().to_vec();
        let per = |row: Tensor| row.expand(&shape);
        x.mul(&per(row()?)?)?.add(&per(row()?)?)
    };
    let before = x.shape()[1];
    let first = normal(convolution(x, &weights(channels, before, 3)?, stride)?)?.relu()?;
    let second = normal(convolution(&first, &weights(channels, channels, 3)?, 1)?)?;
    let short = match stride {
        1 => x.clone(),
        _ => normal(convolution(x, &weights(channels, before, 1)?, stride)?)?,
    };
    second.add(&short)?.relu()
}

/// The forward pass of ResNet-18 on images of this size, 1,000 classes.
fn resnet18(count: i64, size: i64) -> Result<Tensor, Error> {
    let data = |shape: &[i64]| {
        let bytes = 4 * shape.iter().product::<i64>() as usize;
        Tensor::from_bytes(DType::F32, shape, &vec![0; bytes])
    };
    let images = data(&[count, 3, size, size])?;
    let mut x = convolution(&images, &data(&[64, 3, 7, 7])?, 2)?.relu()?;
    for (channels, stride) in [(64, 1), (128, 2), (256, 2), (512, 2)] {
        x = block(&x, channels, stride)?;
        x = block(&x, channels, 1)?;
    }
    let means = x.mean(keepdim([2, 3]))?.reshape(&[count, 512])?;
    means.matmul(&data(&[512, 1000])?)?.softmax(1)
}

/// Graphs to C source with the engine's optimisations, without a cache. There are as many kernels
/// as ResNet-18 has forward and backward, from forward passes of several sizes.
fn graph_to_source(criterion: &mut Criterion) {
    let mut engine = Engine::new("interp").expect("a device without requirements");
    engine.set_target(Target::of("vectors"));
    let sizes = [(1, 224), (2, 192), (3, 160), (4, 128), (5, 96), (6, 64)];
    let nodes: Vec<_> =
        sizes.map(|(count, size)| resnet18(count, size).expect("a valid program").uop()).into();
    let items =
        |node| gradiff::schedule::schedule(&[node], &engine.schedule).expect("a schedule").items;
    let count: usize = nodes.iter().map(|node| items(node.clone()).len()).sum();
    let mut group = criterion.benchmark_group("graph-to-source");
    group.sample_size(10).throughput(Throughput::Elements(count as u64));
    group.bench_function(format!("{count}-kernels"), |bencher| {
        bencher.iter(|| {
            for item in nodes.iter().flat_map(|node| items(node.clone())) {
                let mut trace = Trace::default();
                let linear = lower(&item.ast, &engine.target, &engine.kernel, &mut trace);
                let text = gradiff::render::c(&linear.expect("a lowered kernel"));
                black_box(text.expect("C source"));
            }
        });
    });
    group.finish();
}

fn programs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("programs");
    group.sample_size(10).throughput(Throughput::Elements(1));
    for row in gradiff::runtime::devices() {
        let Ok(engine) = Engine::new(row.name) else { continue };
        group.bench_function(format!("{}-warm", row.name), |bencher| {
            bencher.iter(|| black_box(program(1).and_then(|tensor| read(&engine, &tensor))));
        });
        // With a compiler process for every kernel, this would measure the compiler.
        if ["c", "opencl"].contains(&row.name) {
            continue;
        }
        let mut constant = 1;
        group.bench_function(format!("{}-new", row.name), |bencher| {
            bencher.iter(|| {
                constant += 1;
                black_box(program(constant).and_then(|tensor| read(&engine, &tensor)))
            });
        });
    }
    group.finish();
}

/// A gather of 64 rows of 8 from 4,096 rows, with the loop over the rows collapsed, and with the
/// loop, which remains without rules.
fn gather(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("gather-from-4096-rows");
    group.sample_size(10).throughput(Throughput::Elements(64 * 8));
    for (name, fuel) in [("collapsed", None), ("looped", Some(0))] {
        let mut engine = Engine::new("jit").expect("a device without requirements");
        engine.kernel.rewrite.fuel = fuel;
        let table: Vec<i32> = (0..4096 * 8).collect();
        let table = Tensor::from_slice(&[4096, 8], &table).expect("a table");
        let rows: Vec<i32> = (0..64 * 8).map(|index| index / 8 * 61 % 4096).collect();
        let rows = Tensor::from_slice(&[64, 8], &rows).expect("rows");
        group.bench_function(name, |bencher| {
            bencher.iter(|| black_box(table.gather(0, &rows).and_then(|x| read(&engine, &x))));
        });
    }
    group.finish();
}

/// Computes the next value of a chain from the last two and the first.
type Link = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor, Error>;

/// Graphs with shared nodes, and long chains: the work must grow with the number of nodes, not with
/// that of paths.
const LINKS: [(&str, Link); 8] = [
    ("squarings", |last, _, _| last.mul(last)),
    ("doublings", |last, _, _| last.add(last)),
    ("fibonacci", |last, before, _| last.add(before)),
    ("diamonds", |last, _, first| last.add(first)?.xor(&last.mul(3)?)),
    ("adds", |last, _, first| last.add(first)),
    ("maxima", |last, _, first| last.maximum(first)),
    ("choices", |last, _, first| last.cmplt(first)?.where_(last, first)),
    ("casts", |last, _, _| last.cast(DType::I64)?.add(1)?.cast(DType::I32)),
];

/// The end of a chain with this number of links.
fn chain(link: Link, links: u64) -> Result<Tensor, Error> {
    let first = Tensor::from_slice(&[4], &[1, -2, 3, 5])?;
    let (mut before, mut last) = (first.clone(), first.neg()?);
    for _ in 0..links {
        let next = link(&last, &before, &first)?;
        before = std::mem::replace(&mut last, next);
    }
    Ok(last)
}

fn shared_graphs(criterion: &mut Criterion) {
    let options = gradiff::schedule::Options::default();
    let mut group = criterion.benchmark_group("links");
    group.sample_size(10);
    for (name, link) in LINKS {
        for links in [250, 1000, 4000] {
            group.throughput(Throughput::Elements(links));
            group.bench_function(format!("{name}/{links}"), |bencher| {
                bencher.iter(|| {
                    let node = chain(link, links).expect("a valid program").uop();
                    let schedule = gradiff::schedule::schedule(&[node], &options);
                    for item in schedule.expect("a schedule").items {
                        let mut trace = Trace::default();
                        let target = Target::default();
                        let linear = lower(&item.ast, &target, &Default::default(), &mut trace);
                        black_box(linear.expect("a lowered kernel"));
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, graph_to_uops, graph_to_source, programs, gather, shared_graphs);
criterion_main!(benches);
