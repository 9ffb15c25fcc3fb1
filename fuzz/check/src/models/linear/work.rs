//! A model of the estimates of a kernel's work, from their documentation: scopes in place of a
//! stack, and users before sources.

use gradiff::graph::{Arg, Instruction, Linear, Op};

/// Checks the estimates of a kernel: the ops on data, and the bytes of its parameters.
///
/// # Errors
/// They are others.
pub fn check_estimates(kernel: &Linear) -> Result<(), String> {
    let uops = &kernel.uops;
    let source = |uop: &Instruction, number: usize| &uops[uop.src[number] as usize];
    let trips = |range: &Instruction| match source(range, 0).arg {
        Arg::Const(end) => {
            end.to_int().map_or(1, |end| u64::try_from(end.max(0)).unwrap_or(u64::MAX))
        }
        _ => 1,
    };
    let end_of = |range: usize| {
        let ends = |uop: &Instruction| uop.op == Op::EndRange && uop.src[0] as usize == range;
        uops.iter().position(ends).unwrap_or(uops.len())
    };
    let ranges = uops.iter().enumerate().filter(|(_, uop)| uop.op == Op::Range);
    let loops: Vec<(usize, usize, u64)> =
        ranges.map(|(at, uop)| (at, end_of(at), trips(uop))).collect();
    // The ops that an index or a gate is computed by.
    let mut is_address = vec![false; uops.len()];
    for at in (0..uops.len()).rev() {
        let first = match uops[at].op {
            Op::Index => 1,
            op if is_address[at] && op.is_elementwise() => 0,
            _ => continue,
        };
        uops[at].src[first..].iter().for_each(|source| is_address[*source as usize] = true);
    }
    let (mut ops, mut access_bytes) = (0u64, 0u64);
    for (at, uop) in uops.iter().enumerate() {
        let around = loops.iter().filter(|(start, end, _)| *start < at && at < *end);
        let times = around.fold(1u64, |times, (_, _, trips)| times.saturating_mul(*trips));
        let bytes = |value: &Instruction| {
            let is_global = source(source(uop, 0), 0).op == Op::DefineGlobal;
            u64::from(is_global) * u64::from(value.lanes) * value.dtype.size_bytes() as u64
        };
        let bytes = match uop.op {
            Op::Load => bytes(uop),
            Op::Store => bytes(source(uop, 1)),
            _ => 0,
        };
        access_bytes = access_bytes.saturating_add(times.saturating_mul(bytes));
        let each = match (uop.op, &uop.arg) {
            (Op::Wmma, Arg::TensorCore(core)) => {
                (2 * core.sizes.iter().product::<i64>() / core.threads) as u64
            }
            (Op::Cast | Op::Bitcast, _) => 0,
            (op, _) if !op.is_elementwise() || is_address[at] => 0,
            (Op::MulAcc, _) => 2 * u64::from(uop.lanes),
            _ => u64::from(uop.lanes),
        };
        ops = ops.saturating_add(times.saturating_mul(each));
    }
    let found = crate::catch(|| kernel.estimates())?;
    match (found.ops, found.access_bytes) == (ops, access_bytes) {
        true => Ok(()),
        false => {
            Err(format!("{WRONG} {found:?}, expected {ops} ops and {access_bytes} bytes\n{kernel}"))
        }
    }
}

/// Prefix of this check's reports.
pub(crate) const WRONG: &str = "the estimates of a kernel are";
