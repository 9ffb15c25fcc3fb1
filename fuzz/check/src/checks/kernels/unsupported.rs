//! Kernels that a target does not support: it must say so of each, and of no others.

use gradiff::graph::{DType, Linear, Op, Target};

use super::table::single_op_kernel;
use crate::checks::calls::Draw;

/// Ops of floats that some targets support, and one that all do.
const OPS: [Op; 6] = [Op::Exp2, Op::Log2, Op::Sin, Op::Pow, Op::Sqrt, Op::Add];
const DTYPES: [DType; 5] = [DType::F16, DType::BF16, DType::F32, DType::F64, DType::I64];

/// Checks the answers of a drawn target about a kernel and about one with a single op.
///
/// # Errors
/// The first wrong answer.
pub(super) fn check(kernel: &Linear, draw: &mut Draw) -> Result<(), String> {
    let name = draw.pick(&Target::names().collect::<Vec<_>>());
    let dtype = draw.pick(&DTYPES);
    let single = single_op_kernel(draw.pick(&OPS), dtype, dtype, 1);
    [kernel, &single].into_iter().try_for_each(|kernel| answer(name, kernel))
}

fn answer(name: &str, kernel: &Linear) -> Result<(), String> {
    let target = Target::of(name);
    // Functions of 16-bit floats are computed in f32.
    let computed = |dtype: DType| match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        dtype => dtype,
    };
    let mut uops = kernel.uops.iter();
    let unsupported = uops.find(|uop| {
        let is_function = target.unsupported.contains(&(uop.op, computed(uop.dtype)));
        is_function || target.unsupported_types.contains(&uop.dtype)
    });
    match (unsupported, target.find_unsupported(kernel)) {
        (None, None) => Ok(()),
        (Some(uop), Some(problem)) if problem.contains(&uop.dtype.to_string()) => Ok(()),
        (None, Some(problem)) => Err(format!("{name} supports all of it, but it {problem}")),
        (Some(uop), found) => {
            let (op, dtype) = (uop.op, uop.dtype);
            Err(format!("{name} does not support {op} of {dtype}, but says {found:?}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_drawn_that_a_target_supports_or_not() {
        let (plain, narrow) = (Target::of("plain"), Target::of("wgsl-core"));
        let kernels = OPS.iter().flat_map(|op| DTYPES.map(|dtype| (*op, dtype)));
        let kernels = kernels.map(|(op, dtype)| single_op_kernel(op, dtype, dtype, 1));
        let kernels: Vec<Linear> = kernels.collect();
        for target in [plain, narrow] {
            let refused = kernels.iter().filter(|kernel| target.find_unsupported(kernel).is_some());
            assert!(refused.count() < kernels.len());
        }
        assert!(kernels.iter().any(|kernel| narrow.find_unsupported(kernel).is_some()));
    }
}
