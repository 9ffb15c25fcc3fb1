//! Tensor core products on the checked interpreter, and refused ones.

use crate::common::{Builder, memory_of, values_of};
use gradiff_graph::tensor_core::{TENSOR_CORES, TensorCore};
use gradiff_graph::verify::verify_linear;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Linear, Op};
use gradiff_runtime::{Error, Memory, device};

/// The number of warps of a group.
const WARPS: i64 = 3;

/// Errors to put into a correct product.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    None,
    /// Another local range is inside of that of the warp.
    NotInnermost,
    /// The range of the warp is too small by one.
    Partial,
    /// The product is in a loop whose trip count is the thread index.
    Divergent,
}

/// `data0 = data1*data2 + data3`, twice. Each array holds the fragments of the threads, one after
/// the other.
fn kernel(core: &'static TensorCore, change: Change) -> Linear {
    let mut b = Builder::default();
    let threads = core.threads - i64::from(change == Change::Partial);
    let counts = [2, 0, 1, 2].map(|matrix| core.elements(matrix) as i64);
    let types = [DType::F32, core.operand_dtype, core.operand_dtype, DType::F32];
    let arrays =
        [0, 1, 2, 3].map(|slot| b.global(slot, types[slot], WARPS * threads * counts[slot]));
    let (outer, thread) = match change {
        Change::NotInnermost => {
            let thread = b.range_of(AxisKind::Local, threads);
            (b.range_of(AxisKind::Local, WARPS), thread)
        }
        _ => (b.range_of(AxisKind::Local, WARPS), b.range_of(AxisKind::Local, threads)),
    };
    let size = b.int(threads);
    let first = b.binary(Op::Mul, DType::I32, outer, size);
    let number = b.binary(Op::Add, DType::I32, first, thread);
    let [left, right, start] = [1, 2, 3].map(|slot| {
        let count = b.int(counts[slot]);
        let index = b.binary(Op::Mul, DType::I32, number, count);
        b.load_lanes(arrays[slot], index, None, counts[slot] as u8)
    });
    let lanes = counts[0] as u8;
    let sum = b.push(Op::DefineAcc, DType::F32, &[start], Arg::Int(0));
    b.uops[sum as usize].lanes = lanes;
    let range = match change {
        Change::Divergent => b.push(Op::Range, DType::I32, &[thread], Arg::plain_axis(9)),
        _ => b.range(2),
    };
    let src = [left, right, sum, thread];
    let product = b.push(Op::Wmma, DType::F32, &src, Arg::TensorCore(core));
    b.uops[product as usize].lanes = lanes;
    let assign = b.push(Op::Assign, DType::F32, &[sum, product], Arg::None);
    b.uops[assign as usize].lanes = lanes;
    b.end(range);
    let count = b.int(counts[0]);
    let index = b.binary(Op::Mul, DType::I32, number, count);
    b.store(arrays[0], index, None, sum);
    let inner = if change == Change::NotInnermost { [outer, thread] } else { [thread, outer] };
    inner.into_iter().for_each(|range| b.end(range));
    Linear { name: "r_3_32".to_owned(), uops: b.uops }
}

/// Random small numbers and a few special values.
fn fragments(core: &TensorCore) -> [Vec<Constant>; 3] {
    let mut number = 0u64;
    [0, 1, 2].map(|matrix| {
        let dtype = if matrix == 2 { DType::F32 } else { core.operand_dtype };
        let mut value = || {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            let value = match number >> 33 & 1023 {
                0 => f64::INFINITY,
                1 => f64::NAN,
                2 => f64::NEG_INFINITY,
                // Subnormal in f16.
                3 => 2f64.powi(-24),
                _ => (number >> 40 & 15) as f64 - 8.0,
            };
            Constant::float(dtype, value)
        };
        (0..(WARPS * core.threads) as usize * core.elements(matrix)).map(|_| value()).collect()
    })
}

fn run(kernel: &Linear, inputs: &[Vec<Constant>; 3]) -> Result<Vec<Constant>, Error> {
    let executable = device("interp")?.compile_checked(&[kernel])?.remove(0);
    let output = Memory::new(DType::F32, inputs[2].len())?;
    let inputs = [0, 1, 2].map(|slot| memory_of(&inputs[slot]));
    executable.run(&[&output, &inputs[0], &inputs[1], &inputs[2]])?;
    Ok(values_of(&output))
}

/// An element of the matrix product, computed in f64.
fn product_element(
    core: &TensorCore,
    warp: usize,
    thread: usize,
    lane: usize,
    fragments: &[Vec<Constant>; 3],
) -> f64 {
    let [row, column, _] = core.coordinates(2, thread, lane);
    let element = |matrix: usize, place: [i64; 3]| {
        let count = core.elements(matrix);
        let mut owners = (0..core.threads as usize).flat_map(|t| (0..count).map(move |e| (t, e)));
        let (t, e) = owners
            .find(|(t, e)| core.coordinates(matrix, *t, *e) == place)
            .expect("a thread has the element");
        let index = (warp * core.threads as usize + t) * count + e;
        fragments[matrix][index].to_float().expect("a float")
    };
    let product: f64 =
        (0..core.sizes[2]).map(|k| element(0, [row, 0, k]) * element(1, [0, column, k])).sum();
    element(2, [row, column, 0]) + product + product
}

#[test]
fn warps_multiply_the_fragments_of_their_threads() {
    for core in TENSOR_CORES {
        let kernel = kernel(core, Change::None);
        verify_linear(&kernel).expect("a correct kernel");
        let fragments = fragments(core);
        let found = run(&kernel, &fragments).expect("a product");
        let (mut finite, count) = (0, core.elements(2));
        for (index, value) in found.iter().enumerate() {
            let (thread, lane) = (index / count, index % count);
            let (warp, thread) = (thread / core.threads as usize, thread % core.threads as usize);
            let value = value.to_float().expect("a float");
            let sum = product_element(core, warp, thread, lane, &fragments);
            finite += usize::from(sum.is_finite());
            let is_right = match sum.is_finite() {
                true => (value - sum).abs() <= sum.abs().max(1.0) * 2f64.powi(-18),
                false => value == sum || value.is_nan() && sum.is_nan(),
            };
            assert!(is_right, "{} element {index}: {value}, not {sum}", core.name);
        }
        assert!(finite * 10 > found.len(), "{}: {finite}", core.name);
    }
}

#[test]
fn products_without_whole_warps_are_refused() {
    for change in [Change::NotInnermost, Change::Partial] {
        let core = &TENSOR_CORES[0];
        let kernel = kernel(core, change);
        let problem = verify_linear(&kernel).expect_err("no whole warp").to_string();
        assert!(problem.contains("innermost local range, of 32 threads"), "{problem}");
        let error = run(&kernel, &fragments(core)).expect_err("no whole warp").to_string();
        assert!(error.ends_with(&problem), "{error}");
    }
    let core = &TENSOR_CORES[0];
    let divergent = run(&kernel(core, Change::Divergent), &fragments(core));
    assert!(matches!(divergent, Err(Error::DivergentBarrier { .. })), "{divergent:?}");
}
