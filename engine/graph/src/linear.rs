//! The linear form of a kernel: uops in the order in which they take effect. What renderers
//! read and devices run.
//!
//! Invariants: sources come before their users; `Range` opens and `EndRange` closes loops in
//! properly nested pairs; a value is used only inside the loops it was made in, but for
//! `DefineAcc`, which stands before the loops that change it and reads as its newest value;
//! there is no `Reduce`, no `View` and no tensor-level op.

use smallvec::SmallVec;

use crate::{Arg, DType, Op};

/// One uop in linear order.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// What it does.
    pub op: Op,
    /// The type of its value; element type for addresses; `Void` if there is none.
    pub dtype: DType,
    /// Positions of its sources in the list.
    pub src: SmallVec<[u32; 4]>,
    /// What it carries.
    pub arg: Arg,
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
    /// The array parameters in the order of their slots, with their dtypes.
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
                uop.dtype.name(),
                crate::text::arg(&uop.arg)
            );
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}
