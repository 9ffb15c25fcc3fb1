//! Overflow: an op that renderers may compute in signed integers must not exceed its type.
//!
//! Kernels of a few integer ops over loads, casts and constants near the ends of types are drawn.
//! Each op that the analysis says not to wrap is evaluated exactly where the loads have extreme
//! values.

use gradiff::graph::{Arg, Constant, DType, Global, Instruction, Linear, Op};
use gradiff::render::find_wrapping;
use gradiff_eval::linear::exact;
use gradiff_eval::scalar;

use crate::checks::calls::Draw;

/// Number of drawn kernels of a check, of ops of a kernel, and of points at which it is evaluated.
const KERNELS: usize = 16;
const OPS_MAX: usize = 3;
const POINTS: usize = 12;

/// The prefix of this check's reports.
pub(super) const PREFIX: &str = "overflow";

/// Types of the loads.
const LOADED: [DType; 6] = [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::I64];

/// Checks drawn kernels.
///
/// # Errors
/// The first op that exceeds its type though the analysis says that it does not.
pub(super) fn check(draw: &mut Draw) -> Result<(), String> {
    (0..KERNELS).try_for_each(|_| {
        let kernel = drawn(draw);
        let wrapping = crate::catch(|| find_wrapping(&kernel))?;
        (0..POINTS).try_for_each(|_| {
            evaluate(&kernel, &wrapping, draw)
                .map_err(|problem| format!("{PREFIX}: {problem} in\n{kernel}"))
        })
    })
}

fn drawn(draw: &mut Draw) -> Linear {
    let dtype = draw.pick(&[DType::I32, DType::I64]);
    let mut uops = Vec::new();
    let mut push = |op, dtype, src: &[u32], arg| {
        uops.push(Instruction::new(op, dtype, src.iter().copied(), arg));
        uops.len() as u32 - 1
    };
    let zero = push(Op::Const, DType::I32, &[], Arg::Const(scalar::zero(DType::I32)));
    let mut values = Vec::new();
    for slot in 0..1 + draw.below(2) {
        let from = draw.pick(&LOADED);
        let array = Arg::Global(Global { slot, size_elements: 1 });
        let array = push(Op::DefineGlobal, from, &[], array);
        let index = push(Op::Index, from, &[array, zero], Arg::None);
        let loaded = push(Op::Load, from, &[index], Arg::None);
        values.push(match from == dtype {
            true => loaded,
            false => push(Op::Cast, dtype, &[loaded], Arg::None),
        });
    }
    for _ in 0..1 + draw.below(2) {
        let bits = draw.below(dtype.bits() as usize) as u32;
        let near = (1_i128 << bits) * draw.pick(&[1, -1]) + draw.pick(&[0, 0, 1, -1]);
        let small = draw.pick(&[1, -1, 2, 3, 5]);
        let number = if draw.one_in(2) { small } else { near };
        let number = scalar::int(dtype, number).expect("it is an integer's type");
        values.push(push(Op::Const, dtype, &[], Arg::Const(number)));
    }
    for _ in 0..1 + draw.below(OPS_MAX) {
        let op = draw.pick(&[
            Op::Neg,
            Op::Add,
            Op::Sub,
            Op::Mul,
            Op::Shl,
            Op::Max,
            Op::Min,
            Op::And,
            Op::CMod,
            Op::MulAcc,
            Op::MulAcc,
        ]);
        let src: Vec<u32> = (0..op.row().arity.0).map(|_| draw.pick(&values)).collect();
        values.push(push(op, dtype, &src, Arg::None));
    }
    Linear { name: "overflow".to_owned(), uops }
}

/// Evaluates the kernel for drawn extreme values of the loads.
fn evaluate(kernel: &Linear, wrapping: &[bool], draw: &mut Draw) -> Result<(), String> {
    let mut values: Vec<Option<Constant>> = Vec::new();
    for (uop, may_wrap) in kernel.uops.iter().zip(wrapping) {
        let src: Option<Vec<Constant>> =
            uop.src.iter().map(|source| values[*source as usize]).collect();
        let value = match (uop.op, &uop.arg, src) {
            (Op::Const, Arg::Const(value), _) => Some(*value),
            (Op::Load, ..) => {
                let (low, high) = scalar::range(uop.dtype).expect("it is an integer's type");
                let any = i128::from(draw.bits() as i64);
                scalar::int(uop.dtype, draw.pick(&[low, high, low + 1, -1, 0, 1, any]))
            }
            (op, _, Some(src)) if op.is_elementwise() => {
                if let Some(exact) = exact(op, &src).filter(|_| !may_wrap)
                    && scalar::int(uop.dtype, exact).and_then(scalar::to_int) != Some(exact)
                {
                    return Err(format!("{op} of {src:?} reaches {exact}"));
                }
                scalar::evaluate(op, uop.dtype, &src)
            }
            _ => None,
        };
        values.push(value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_op_exceeds_its_type_unsaid() {
        for seed in 0..2_000 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn overflow_is_reported() {
        let draw = &mut Draw::new(1);
        let found = (0..200).any(|_| {
            let kernel = drawn(draw);
            let none = vec![false; kernel.uops.len()];
            (0..POINTS).any(|_| evaluate(&kernel, &none, draw).is_err())
        });
        assert!(found);
    }
}
