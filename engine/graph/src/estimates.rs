//! Estimates of the work of a kernel, from its uops.

use rustc_hash::FxHashSet;

use crate::{Arg, Instruction, Linear, Op};

/// The arithmetic and the memory traffic of a kernel, as its uops say: an access under a gate
/// counts as if the gate were open, and caches are not considered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Estimates {
    /// Number of elementwise ops on data, one for each lane, two for each multiply-add, those of
    /// matrix products included. Casts, bitcasts and the ops that compute indices and gates do not
    /// count.
    pub ops: u64,
    /// Number of bytes that are loaded from parameters and stored to them.
    pub access_bytes: u64,
}

impl Linear {
    /// Returns the estimates of the kernel. A loop whose trip count is no constant counts as one
    /// iteration.
    pub fn estimates(&self) -> Estimates {
        let addresses = self.address_arithmetic();
        let mut estimates = Estimates::default();
        // The number of executions of the uops in each open range, outermost first.
        let mut times: Vec<u64> = vec![1];
        for (position, uop) in self.uops.iter().enumerate() {
            let executions = times.last().copied().unwrap_or(1);
            match uop.op {
                Op::Range => times.push(executions.saturating_mul(self.trip_count(uop))),
                Op::EndRange if 1 < times.len() => drop(times.pop()),
                _ if addresses.contains(&position) => {}
                _ => {
                    let count = |each: u64| executions.saturating_mul(each);
                    estimates.ops = estimates.ops.saturating_add(count(ops(uop)));
                    let bytes = count(self.access_bytes(uop));
                    estimates.access_bytes = estimates.access_bytes.saturating_add(bytes);
                }
            }
        }
        estimates
    }

    /// The positions of elementwise uops that indices and gates of accesses are computed by.
    fn address_arithmetic(&self) -> FxHashSet<usize> {
        let mut found = FxHashSet::default();
        let indices = self.uops.iter().filter(|uop| uop.op == Op::Index);
        let mut pending: Vec<u32> =
            indices.flat_map(|uop| uop.src.iter().skip(1).copied()).collect();
        while let Some(position) = pending.pop() {
            let uop = &self.uops[position as usize];
            if uop.op.is_elementwise() && found.insert(position as usize) {
                pending.extend(&uop.src);
            }
        }
        found
    }

    fn trip_count(&self, range: &Instruction) -> u64 {
        match range.src.first().map(|end| &self.uops[*end as usize].arg) {
            Some(Arg::Const(end)) => {
                end.to_int().map_or(1, |end| u64::try_from(end.max(0)).unwrap_or(u64::MAX))
            }
            _ => 1,
        }
    }

    /// The bytes of an access of a parameter; 0 for other uops.
    fn access_bytes(&self, uop: &Instruction) -> u64 {
        let value = match uop.op {
            Op::Load => uop,
            Op::Store => &self.uops[uop.src[1] as usize],
            _ => return 0,
        };
        let array = &self.uops[self.uops[uop.src[0] as usize].src[0] as usize];
        match array.op {
            Op::DefineGlobal => u64::from(value.lanes) * value.dtype.size_bytes() as u64,
            _ => 0,
        }
    }
}

/// The ops on data of an execution of a uop by a thread.
fn ops(uop: &Instruction) -> u64 {
    match (uop.op, &uop.arg) {
        (Op::Wmma, Arg::TensorCore(core)) => {
            (2 * core.sizes.iter().product::<i64>() / core.threads) as u64
        }
        (Op::Cast | Op::Bitcast, _) => 0,
        (Op::MulAcc, _) => 2 * u64::from(uop.lanes),
        (op, _) if op.is_elementwise() => u64::from(uop.lanes),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use crate::text::parse_linears;

    fn estimates(text: &str) -> [u64; 2] {
        let estimates = parse_linears(text).unwrap()[0].estimates();
        [estimates.ops, estimates.access_bytes]
    }

    #[test]
    fn indices_and_casts_do_not_count() {
        let text = "kernel r_4
           0 define_global  i32   []           data0 1
           1 define_global  i8    []           data1 8
           2 const          i32   []           0
           3 index          i32   [0, 2]
           4 define_acc     i32   [2]          0
           5 const          i32   []           4
           6 range          i32   [5]          0
           7 add            i32   [6, 6]
           8 index          i8    [1, 7]
           9 load           i8    [8]
          10 cast           i32   [9]
          11 mulacc         i32   [10, 10, 4]
          12 assign         i32   [4, 11]
          13 endrange       void  [6]
          14 store          void  [3, 4]";
        // Four multiply-adds; four bytes are loaded, and four stored.
        assert_eq!(estimates(text), [8, 8]);
    }

    #[test]
    fn lanes_and_loops_in_loops_multiply() {
        let text = "kernel E_2_3
           0 define_global  f32   []           data0 4
           1 const          i32   []           0
           2 const          i32   []           2
           3 const          i32   []           3
           4 range          i32   [2]          0
           5 range          i32   [3]          1
           6 index          f32   [0, 1]
           7 load           f32x4 [6]
           8 mul            f32x4 [7, 7]
           9 store          void  [6, 8]
          10 endrange       void  [5]
          11 endrange       void  [4]";
        assert_eq!(estimates(text), [24, 192]);
    }
}
