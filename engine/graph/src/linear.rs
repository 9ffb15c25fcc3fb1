//! The linear form of a kernel: uops in execution order, the input of renderers and devices.
//!
//! Invariants: sources come before their users; `Range` opens and `EndRange` closes loops in
//! properly nested pairs; a value is used only inside the loops in which it is defined, except for
//! `DefineAcc`, which is before the loops that assign it and reads as its latest value; there is no
//! `Reduce`, no `View` and no tensor-level op.
//!
//! Only this level has vectors. A uop of several lanes computes lane by lane from sources of as
//! many lanes; `Vectorize` makes a vector of scalars and `Lane` extracts one. A load or store of
//! several lanes accesses that many elements from its index on; the index and the gate have one
//! lane.
//!
//! Launched ranges ([`crate::AxisKind::is_launched`]) are around all other ranges, nested in each
//! other. In a kernel with a `Barrier` they are around all stores.

use smallvec::SmallVec;

use crate::{Arg, AxisKind, DType, Op};

/// One uop in linear order.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// The op.
    pub op: Op,
    /// The type of its value; element type for addresses; `Void` if there is none.
    pub dtype: DType,
    /// Number of lanes: 1, or more for a vector.
    pub lanes: u8,
    /// Positions of its sources in the list.
    pub src: SmallVec<[u32; 4]>,
    /// The arg.
    pub arg: Arg,
}

impl Instruction {
    /// Makes a uop of one lane.
    pub fn new(op: Op, dtype: DType, src: impl IntoIterator<Item = u32>, arg: Arg) -> Instruction {
        Instruction { op, dtype, lanes: 1, src: src.into_iter().collect(), arg }
    }
}

/// A kernel as a list of uops.
#[derive(Clone, Debug, PartialEq)]
pub struct Linear {
    /// The name of the kernel, unique within one schedule (`E_4_4`, `r_4_4n1`).
    pub name: String,
    /// The uops.
    pub uops: Vec<Instruction>,
}

impl Linear {
    /// Returns the array parameters in the order of their slots, with their dtypes.
    pub fn globals(&self) -> Vec<(crate::Global, DType)> {
        let mut globals: Vec<_> = self
            .uops
            .iter()
            .filter_map(|uop| match &uop.arg {
                Arg::Global(global) => Some((*global, uop.dtype)),
                _ => None,
            })
            .collect();
        globals.sort_by_key(|(global, _)| global.slot);
        globals
    }

    /// Returns the launched ranges of a kind, outermost first: position and trip count.
    pub fn launched(&self, kind: AxisKind) -> Vec<(u32, i64)> {
        let trip_count = |uop: &Instruction| match self.uops.get(*uop.src.first()? as usize)?.arg {
            Arg::Const(end) => i64::try_from(end.to_int()?).ok(),
            _ => None,
        };
        let ranges = self.uops.iter().enumerate().filter(|(_, uop)| match uop.arg {
            Arg::Axis(axis) => uop.op == Op::Range && axis.kind == kind && kind.is_launched(),
            _ => false,
        });
        ranges.filter_map(|(position, uop)| Some((position as u32, trip_count(uop)?))).collect()
    }
}

impl std::fmt::Display for Linear {
    /// A line for each uop: `position  op  dtype  [sources]  arg`, as tinygrad's `print_uops`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "kernel {}", self.name)?;
        for (position, uop) in self.uops.iter().enumerate() {
            let sources: Vec<String> = uop.src.iter().map(u32::to_string).collect();
            let sources = format!("[{}]", sources.join(", "));
            let line = format!(
                "{position:4} {:14} {:5} {sources:12} {}",
                uop.op.name(),
                match uop.lanes {
                    1 => uop.dtype.name().to_owned(),
                    lanes => format!("{}x{lanes}", uop.dtype.name()),
                },
                crate::text::arg(&uop.arg)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
