//! Overflow: an op that renderers may compute in signed integers must not exceed its type.
//!
//! Kernels of a few integer ops over loads, casts, counters of loops, choices and constants near
//! the ends of types are drawn. Each op that the analysis says not to wrap is evaluated exactly
//! where the loads and the counters have extreme values.

use gradiff::graph::{Arg, Constant, DType, Global, Instruction, Linear, Op};
use gradiff::render::find_wrapping;
use gradiff_eval::linear::exact;
use gradiff_eval::scalar;

use crate::checks::calls::Draw;

/// Number of drawn kernels of a check, of ops of a kernel, and of points at which it is evaluated.
const KERNELS: usize = 16;
const OPS_MAX: usize = 4;
const POINTS: usize = 12;

/// The prefix of this check's reports.
pub(super) const PREFIX: &str = "overflow";

/// Types of the loads, and of values between two casts.
const LOADED: [DType; 8] =
    [DType::I8, DType::U8, DType::I16, DType::U16, DType::I32, DType::I64, DType::U32, DType::U64];

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
    let dtype =
        if draw.one_in(3) { draw.pick(&LOADED) } else { draw.pick(&[DType::I32, DType::I64]) };
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
        let value = match draw.below(7) {
            0 => {
                let end = draw.pick(&values);
                push(Op::Range, dtype, &[end], Arg::plain_axis(values.len() as i64))
            }
            1 => {
                let between = draw.pick(&LOADED);
                let mut value = push(Op::Cast, between, &[draw.pick(&values)], Arg::None);
                if draw.one_in(2) {
                    let op = draw.pick(&[Op::Add, Op::Sub, Op::Mul]);
                    value = push(op, between, &[value, value], Arg::None);
                }
                push(Op::Cast, dtype, &[value], Arg::None)
            }
            2 => {
                let [x, y, limit] = [(); 3].map(|()| draw.pick(&values));
                let is_less = push(Op::CmpLt, DType::Bool, &[x, limit], Arg::None);
                push(Op::Where, dtype, &[is_less, x, y], Arg::None)
            }
            3 => {
                let by = draw.below(dtype.bits() as usize) as i128;
                let by = scalar::int(dtype, by).expect("it is an integer's type");
                let by = push(Op::Const, dtype, &[], Arg::Const(by));
                let op = draw.pick(&[Op::Shl, Op::Shr]);
                push(op, dtype, &[draw.pick(&values), by], Arg::None)
            }
            _ => {
                let op = draw.pick(&[
                    Op::Neg,
                    Op::Add,
                    Op::Sub,
                    Op::Mul,
                    Op::Shl,
                    Op::Shr,
                    Op::Max,
                    Op::Min,
                    Op::And,
                    Op::CMod,
                    Op::MulAcc,
                    Op::MulAcc,
                ]);
                let src: Vec<u32> = (0..op.row().arity.0).map(|_| draw.pick(&values)).collect();
                push(op, dtype, &src, Arg::None)
            }
        };
        values.push(value);
    }
    Linear { name: "overflow".to_owned(), uops }
}

/// Evaluates the kernel for drawn extreme values of the loads, in drawn iterations of its loops.
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
            (Op::Range, _, Some(src)) => {
                let last = scalar::to_int(src[0]).map_or(-1, |end| end - 1);
                let any = i128::from(draw.bits() as i64);
                // A loop that never runs has no counter.
                let counter = draw.pick(&[0, last, last / 2, any]);
                scalar::int(uop.dtype, counter.clamp(0, last.max(0))).filter(|_| 0 <= last)
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

    #[test]
    fn kernels_of_every_kind_are_drawn() {
        let draw = &mut Draw::new(1);
        let kernels: Vec<Linear> = (0..2_000).map(|_| drawn(draw)).collect();
        let has = |op: Op, dtype: DType| {
            let is_found = |uop: &Instruction| uop.op == op && uop.dtype == dtype;
            kernels.iter().any(|kernel| kernel.uops.iter().any(is_found))
        };
        for op in [Op::Range, Op::Where, Op::Shr, Op::Cast, Op::Mul] {
            for dtype in [DType::I32, DType::I64, DType::I8, DType::U64] {
                assert!(has(op, dtype), "{op} of {dtype}");
            }
        }
    }
}
