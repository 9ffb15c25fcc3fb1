//! Products of matrices by the threads of a warp, one kernel for each tensor core, with consecutive
//! fragments in memory.
//!
//! The sums are exact, so that the order in which a device adds them does not matter. The engine's
//! table gives the coordinates of each element of a fragment; PTX and the stand-in for CUDA's
//! assembly have them from the manual.

use std::fmt::Write;

use gradiff::graph::tensor_core::{TENSOR_CORES, TensorCore};
use gradiff::graph::text::parse_linears;
use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Instruction, Linear, Op,
};
use gradiff_eval::{Elements, scalar};

use super::table::Case;
use crate::checks::calls::Draw;

/// Number of threads of a warp on the devices that have warps.
const WARP: i64 = 32;

/// The products that a device or a language has.
fn cores(device: &str) -> Vec<&'static TensorCore> {
    let is_supported = |core: &&TensorCore| match device {
        "interp" => true,
        "cuda" | "ptx" => core.threads == WARP,
        _ => false,
    };
    TENSOR_CORES.iter().filter(is_supported).collect()
}

/// The kernel of one product, `D = A*B + C`: its arrays are D, A, B and C.
///
/// # Panics
/// If the engine does not parse the kernel's text.
pub(crate) fn kernel(core: &TensorCore) -> Linear {
    let counts = [2, 0, 1, 2].map(|matrix| core.elements(matrix));
    let dtypes = [DType::F32, core.operand_dtype, core.operand_dtype, DType::F32];
    let lanes_of = |dtype: DType, lanes: usize| match lanes {
        1 => dtype.to_string(),
        _ => format!("{dtype}x{lanes}"),
    };
    let mut text = "kernel r\n".to_owned();
    for (slot, (dtype, count)) in dtypes.iter().zip(counts).enumerate() {
        let size_elements = core.threads * count as i64;
        let _ = writeln!(text, "{slot} define_global {dtype} [] data{slot} {size_elements}");
    }
    let _ = writeln!(text, "4 const i32 [] {}\n5 range i32 [4] 0l", core.threads);
    for (slot, (dtype, count)) in dtypes.iter().zip(counts).enumerate() {
        let at = 6 + 4 * slot;
        let _ = writeln!(text, "{at} const i32 [] {count}");
        let _ = writeln!(text, "{} mul i32 [5, {at}]", at + 1);
        let _ = writeln!(text, "{} index {dtype} [{slot}, {}]", at + 2, at + 1);
        match slot {
            0 => _ = writeln!(text, "{} const i32 [] 0", at + 3),
            _ => _ = writeln!(text, "{} load {} [{}]", at + 3, lanes_of(*dtype, count), at + 2),
        }
    }
    let result = lanes_of(DType::F32, counts[0]);
    let _ = writeln!(text, "22 wmma {result} [13, 17, 21, 5] {}", core.name);
    text += "23 store void [8, 22]\n24 endrange void [5]\n";
    let mut kernels = parse_linears(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    kernels.remove(0)
}

/// The kernel with another range of threads inside that of the warp, so that the threads of a warp
/// are not the innermost ones.
///
/// # Panics
/// If the kernel has no range.
pub(super) fn with_inner_threads(kernel: &Linear) -> Linear {
    let mut uops = kernel.uops.clone();
    let warp = uops.iter().position(|uop| uop.op == Op::Range).expect("a range of a warp");
    for source in uops.iter_mut().flat_map(|uop| &mut uop.src) {
        *source += if warp < *source as usize { 2 } else { 0 };
    }
    let two = Arg::Const(Constant::int(DType::I32, 2));
    let end = Instruction::new(Op::Const, DType::I32, [], two);
    let axis = Arg::Axis(Axis { kind: AxisKind::Local, number: 1 });
    let range = Instruction::new(Op::Range, DType::I32, [warp as u32 + 1], axis);
    uops.splice(warp + 1..=warp, [end, range]);
    let last = Instruction::new(Op::EndRange, DType::Void, [warp as u32 + 2], Arg::None);
    uops.insert(uops.len() - 1, last);
    Linear { name: kernel.name.clone(), uops }
}

/// Fragments of A, B and C, of eighths below 4, so that no sum is rounded. Operands that the
/// product rounds first get a fraction of the last unit that remains: those of A up to half a unit
/// and more.
pub(crate) fn fragments(core: &TensorCore, draw: &mut Draw) -> [Elements; 3] {
    [0, 1, 2].map(|matrix| {
        let dtype = if matrix == 2 { DType::F32 } else { core.operand_dtype };
        let count = core.threads as usize * core.elements(matrix);
        let mut number = || {
            let eighths = draw.below(64) as f64 / 8.0 - 4.0;
            let parts: &[f64] = if matrix == 0 { &[0.0, 0.25, 0.5, 0.75] } else { &[0.0, 0.25] };
            match core.is_tf32 && matrix != 2 && eighths != 0.0 {
                true => eighths + eighths.signum() * draw.pick(parts) * unit(eighths),
                false => eighths,
            }
        };
        (0..count).map(|_| scalar::float(dtype, number())).collect()
    })
}

/// The distance of adjacent numbers with ten bits of fraction around a number that is not 0.
fn unit(number: f64) -> f64 {
    let mut power = 1.0;
    while power <= number.abs() / 2.0 {
        power *= 2.0;
    }
    while number.abs() < power {
        power /= 2.0;
    }
    power / 1024.0
}

/// The number rounded to ten bits of fraction, to nearest, ties away from zero.
fn rounded(number: f64) -> f64 {
    if number == 0.0 {
        return number;
    }
    let unit = unit(number);
    number.signum() * ((number.abs() / unit) + 0.5).floor() * unit
}

/// The fragments of D.
///
/// # Panics
/// If an element of a matrix is in no fragment.
pub(crate) fn expected(core: &TensorCore, inputs: &[Elements; 3]) -> Vec<f64> {
    let value = |matrix: usize, at: usize| {
        let value = inputs[matrix][at].and_then(scalar::to_float).expect("a fragment of floats");
        if core.is_tf32 && matrix != 2 { rounded(value) } else { value }
    };
    let element_at = |matrix: usize, coordinates: [i64; 3]| {
        let count = core.elements(matrix);
        let is_there = |at: &usize| core.coordinates(matrix, at / count, at % count) == coordinates;
        value(matrix, (0..inputs[matrix].len()).find(is_there).expect("a fragment has it"))
    };
    let count = core.elements(2);
    let element = |at: usize| {
        let [row, column, _] = core.coordinates(2, at / count, at % count);
        let product = |k: i64| element_at(0, [row, 0, k]) * element_at(1, [0, column, k]);
        value(2, at) + (0..core.sizes[2]).map(product).sum::<f64>()
    };
    (0..inputs[2].len()).map(element).collect()
}

/// The kernel of a drawn product, and its arrays before and after it; `None` on a device that has
/// no products.
///
/// # Errors
/// The kernel is refused.
pub(super) fn case(device: &str, draw: &mut Draw) -> Result<Option<Case>, String> {
    let cores = cores(device);
    if cores.is_empty() {
        return Ok(None);
    }
    let core = draw.pick(&cores);
    let kernel = BoundedLinear::check(kernel(core))
        .map_err(|error| format!("the product {} is refused: {error}", core.name))?;
    let inputs = fragments(core, draw);
    let result: Elements =
        expected(core, &inputs).iter().map(|value| scalar::float(DType::F32, *value)).collect();
    let arrays = |first: Elements| std::iter::once(first).chain(inputs.clone()).collect();
    let (before, after) = (arrays(vec![None; result.len()]), arrays(result));
    Ok(Some((kernel, before, after)))
}
