//! The text form of nodes.

use crate::Arg;

/// An arg as one word or list; empty for none.
pub(crate) fn arg(arg: &Arg) -> String {
    match arg {
        Arg::None => String::new(),
        Arg::Const(value) => value.to_string(),
        Arg::Int(value) => value.to_string(),
        Arg::Dims(dims) => format!("{:?}", dims.as_slice()),
        Arg::Pairs(pairs) => format!("{:?}", pairs.as_slice()),
        Arg::View(tracker) => tracker.to_string(),
        Arg::Reduce(op, axes) => format!("{op} {:?}", axes.as_slice()),
        Arg::Buffer(buffer) => format!("{buffer:?}"),
        Arg::Global(global) => format!("data{} {}", global.slot, global.size_elements),
        Arg::Var(variable) => format!("{} {}..{}", variable.name, variable.min, variable.max),
    }
}

impl std::fmt::Debug for crate::UOp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{} {}", self.op(), self.dtype(), arg(self.arg()))
    }
}
