//! Kernels whose local arrays have exactly as many bytes as a kernel may have, or one more; arrays
//! that are written and read at their ends; and bools of a local array that nobody has written.

use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Local, Op,
};
use gradiff::runtime::{Device, Memory};
use gradiff_eval::scalar;

use super::Drawn;
use super::compiled::{Uops, expected};
use super::draw::Style;
use crate::checks::calls::Draw;

/// The bytes that all local arrays of a kernel may have, as the documentation of
/// [`BoundedLinear::check`] says.
const LIMIT_BYTES: i64 = 256 << 10;
/// Maximal number of arrays of a kernel, besides the last one.
const ARRAYS: usize = 3;
/// Number of elements of an array that are written.
const WRITTEN: usize = 5;

/// Draws a kernel at the limit, which must be accepted, or beyond it, which must be refused.
///
/// # Errors
/// It is not.
pub(super) fn check(draw: &mut Draw) -> Result<(), String> {
    let excess = i64::from(draw.one_in(2));
    let output = Arg::Global(Global { slot: 0, size_elements: 1 });
    let mut uops = vec![Instruction::new(Op::DefineGlobal, DType::U8, [], output)];
    let mut left = LIMIT_BYTES + excess;
    for number in 0..=draw.below(ARRAYS) {
        let dtype = draw.pick(&[DType::F32, DType::I64, DType::F16, DType::Bool]);
        let size_elements = 1 + draw.below(10_000) as i64;
        left -= size_elements * dtype.size_bytes() as i64;
        let array = Arg::Local(Local { number, size_elements });
        uops.push(Instruction::new(Op::DefineLocal, dtype, [], array));
    }
    let last = Arg::Local(Local { number: uops.len() - 1, size_elements: left });
    let first = uops.len() as u32 + 1;
    uops.extend([
        Instruction::new(Op::DefineLocal, DType::U8, [], last),
        Instruction::new(Op::Const, DType::I32, [], Arg::Const(Constant::int(DType::I32, 0))),
        Instruction::new(Op::Const, DType::U8, [], Arg::Const(Constant::int(DType::U8, 7))),
        Instruction::new(Op::Index, DType::U8, [0, first], Arg::None),
        Instruction::new(Op::Store, DType::Void, [first + 2, first + 1], Arg::None),
    ]);
    let kernel = Linear { name: "locals".to_owned(), uops };
    let bytes = LIMIT_BYTES + excess;
    match BoundedLinear::check(kernel.clone()) {
        Ok(_) if excess == 1 => {
            Err(format!("{bytes} bytes of local arrays are accepted\n{kernel}"))
        }
        Err(error) if excess == 0 => {
            Err(format!("{bytes} bytes of local arrays are refused: {error}\n{kernel}"))
        }
        _ => Ok(()),
    }
}

/// The bytes that CUDA and PTX declare, beyond which CUDA has to ask for them.
const DECLARED_BYTES: i64 = 48 << 10;
/// A multiple of all alignments.
const PIECE_BYTES: i64 = 128;

/// A kernel that writes a few elements of each of its local arrays, at the ends of most, and then
/// copies them: arrays that overlap, or are shorter than they should be, differ. Together they have
/// as many bytes as the language allows or as CUDA declares, somewhat less or somewhat more.
///
/// # Errors
/// The kernel is refused.
pub(super) fn written(seed: u64, style: &Style) -> Result<Drawn, String> {
    let mut draw = Draw::new(seed);
    let limit = style.local_bytes.min(LIMIT_BYTES);
    let total = draw.pick(&[limit, limit / 2, DECLARED_BYTES, DECLARED_BYTES + PIECE_BYTES, 1024]);
    let mut pieces = total.min(limit) / PIECE_BYTES;
    let mut uops = Uops::default();
    let count = 2 + draw.below(ARRAYS - 1);
    let out = uops.array(0, DType::I32, count * WRITTEN);
    let mut arrays = Vec::new();
    for number in 0..count {
        let is_last = number + 1 == count;
        let share = if is_last { pieces } else { 1 + draw.below(pieces as usize / 2) as i64 };
        pieces -= share;
        let dtype = draw.pick(&style.dtypes);
        let element_bytes = style.local_element_bytes.max(dtype.size_bytes() as i64);
        let size_elements = share * PIECE_BYTES / element_bytes - draw.pick(&[0, 0, 1, 3]);
        let array = Arg::Local(Local { number, size_elements });
        arrays.push((uops.push(Op::DefineLocal, dtype, &[], array), dtype, size_elements as usize));
    }
    let positions = |(array, dtype, size): &(u32, DType, usize)| {
        [0, 1, size / 2, size - 2, size - 1].map(|at| (*array, *dtype, at))
    };
    let elements: Vec<(u32, DType, usize)> = arrays.iter().flat_map(positions).collect();
    for (number, (array, dtype, at)) in elements.iter().enumerate() {
        let value = if *dtype == DType::Bool { draw.below(2) } else { 1 + number };
        let value = scalar::number(*dtype, value as i128).expect("a small number");
        let value = uops.push(Op::Const, *dtype, &[], Arg::Const(value));
        uops.store(*array, *dtype, *at, value);
    }
    for (number, (array, dtype, at)) in elements.into_iter().enumerate() {
        let loaded = uops.load(array, dtype, at);
        let value = match dtype {
            DType::I32 => loaded,
            _ => uops.push(Op::Cast, DType::I32, &[loaded], Arg::None),
        };
        uops.store(out, DType::I32, number, value);
    }
    expected(Linear { name: "written".to_owned(), uops: uops.0 }, &mut draw, seed)
}

/// Number of elements of the arrays of [`check_unwritten`].
const ELEMENTS: i64 = 64;

/// A kernel that copies a local array to the output, after it has written 255 to each element or
/// without having written any.
fn copies_local(dtype: DType, is_written: bool) -> Result<BoundedLinear, String> {
    let instruction = |op, dtype, src: &[u32]| Instruction::new(op, dtype, src.to_vec(), Arg::None);
    let int = |dtype, value: i64| {
        let value = Constant::int(dtype, value.into());
        Instruction::new(Op::Const, dtype, [], Arg::Const(value))
    };
    let range = |number| {
        let axis = Arg::Axis(Axis { kind: AxisKind::Loop, number });
        Instruction::new(Op::Range, DType::I32, [2], axis)
    };
    let output = Arg::Global(Global { slot: 0, size_elements: ELEMENTS });
    let array = Arg::Local(Local { number: 0, size_elements: ELEMENTS });
    let mut uops = vec![
        Instruction::new(Op::DefineGlobal, DType::U8, [], output),
        Instruction::new(Op::DefineLocal, dtype, [], array),
        int(DType::I32, ELEMENTS),
    ];
    if is_written {
        uops.extend([
            int(dtype, 255),
            range(0),
            instruction(Op::Index, dtype, &[1, 4]),
            instruction(Op::Store, DType::Void, &[5, 3]),
            instruction(Op::EndRange, DType::Void, &[4]),
        ]);
    }
    let first = uops.len() as u32;
    uops.extend([
        range(1),
        instruction(Op::Index, dtype, &[1, first]),
        instruction(Op::Load, dtype, &[first + 1]),
        instruction(Op::Cast, DType::U8, &[first + 2]),
        instruction(Op::Index, DType::U8, &[0, first]),
        instruction(Op::Store, DType::Void, &[first + 4, first + 3]),
        instruction(Op::EndRange, DType::Void, &[first]),
    ]);
    let kernel = Linear { name: "local".to_owned(), uops };
    BoundedLinear::check(kernel).map_err(|error| format!("a copy of a local array: {error}"))
}

/// Checks that a bool which nobody has written is 0 or 1, also where the memory of its array was
/// that of other values just before.
///
/// # Errors
/// It is another byte, or a kernel fails.
pub(super) fn check_unwritten(device: &dyn Device) -> Result<(), String> {
    let kernels = [copies_local(DType::U8, true)?, copies_local(DType::Bool, false)?];
    let problem = |error: gradiff::runtime::Error| error.to_string();
    let executables = device.compile(&kernels.each_ref()).map_err(problem)?;
    let memory = Memory::new(DType::U8, ELEMENTS as usize).map_err(problem)?;
    for (executable, limit) in executables.iter().zip([255, 1]) {
        executable.run(&[&memory]).map_err(problem)?;
        let bytes = memory.read().map_err(problem)?;
        if let Some(byte) = bytes.iter().find(|byte| limit < **byte) {
            return Err(format!("a bool of a local array that nobody has written is {byte}"));
        }
    }
    Ok(())
}
