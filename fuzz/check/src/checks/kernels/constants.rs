//! Kernels that store constants: each keeps all its bits, also those of a NaN, in every language.

use gradiff::graph::{Arg, BoundedLinear, Constant, DType, Global, Instruction, Linear, Op};

use gradiff_eval::scalar;

use super::draw::Style;
use super::table::edge;
use super::{Drawn, SAID};
use crate::checks::calls::Draw;

/// Number of constants of a kernel.
const COUNT: usize = 16;

/// Returns the kernel of a seed, which stores edge values of this dtype.
///
/// # Errors
/// [`BoundedLinear::check`] refuses it.
pub(super) fn constants(seed: u64, style: &Style, dtype: DType) -> Result<Drawn, String> {
    let mut draw = Draw::new(seed);
    let mut values: Vec<Constant> = (0..COUNT).map(|_| edge(&mut draw, style, dtype)).collect();
    // Languages have a word for the quiet NaN, which is not this one.
    if let Some(nan) = scalar::float(dtype, f64::NAN).filter(|_| style.free_nan != Some(dtype)) {
        values[0] = Constant::from_bits(dtype, nan.bits() | 1);
        // Of a signalling one the highest bit of the fraction is 0.
        let quiet = nan.bits() & !scalar::float(dtype, f64::INFINITY).map_or(0, Constant::bits);
        values[1] = Constant::from_bits(dtype, (nan.bits() & !quiet) | 1);
    }
    let global = Arg::Global(Global { slot: 0, size_elements: COUNT as i64 });
    let mut uops = vec![Instruction::new(Op::DefineGlobal, dtype, [], global)];
    for (at, value) in values.iter().enumerate() {
        let first = uops.len() as u32;
        let position = Arg::Const(Constant::int(DType::I32, at as i128));
        uops.extend([
            Instruction::new(Op::Const, DType::I32, [], position),
            Instruction::new(Op::Const, dtype, [], Arg::Const(*value)),
            Instruction::new(Op::Index, dtype, [0, first], Arg::None),
            Instruction::new(Op::Store, DType::Void, [first + 2, first + 1], Arg::None),
        ]);
    }
    let kernel = Linear { name: "constants".to_owned(), uops };
    let report = |error| format!("{SAID}, of seed {seed}: constants are refused: {error}");
    let kernel = BoundedLinear::check(kernel).map_err(report)?;
    let expected = values.into_iter().map(Some).collect();
    Ok(Drawn { kernel, memories: vec![vec![None; COUNT]], expected, has_bits: true })
}
