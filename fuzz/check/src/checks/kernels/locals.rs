//! Kernels whose local arrays have exactly as many bytes as a kernel may have, or one more; and
//! bools of a local array that nobody has written.

use gradiff::graph::{
    Arg, Axis, AxisKind, BoundedLinear, Constant, DType, Global, Instruction, Linear, Local, Op,
};
use gradiff::runtime::{Device, Memory};

use crate::checks::calls::Draw;

/// The bytes that all local arrays of a kernel may have, as the documentation of
/// [`BoundedLinear::check`] says.
const LIMIT_BYTES: i64 = 256 << 10;
/// Maximal number of arrays of a kernel, besides the last one.
const ARRAYS: usize = 3;

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
