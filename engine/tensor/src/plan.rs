//! Plans: lowered kernels in the order in which they run, each with its buffers.

use std::sync::Arc;

use gradiff_graph::{BoundedLinear, Buffer, UOp};
use gradiff_kernel::Opt;
use gradiff_runtime::Executable;
use rustc_hash::FxHashMap;

use crate::cache::Key;

/// A kernel of a plan, with its buffers.
#[derive(Clone)]
pub struct PlannedKernel {
    /// The kernel's tree.
    pub ast: UOp,
    /// Its linear form; the name in it is unique within the plan.
    pub linear: Arc<BoundedLinear>,
    /// Its parameters by slot; the first one is written.
    pub buffers: Vec<Buffer>,
    /// The compiled kernel; `None` before [`Engine::compile`].
    pub executable: Option<Arc<dyn Executable>>,
    /// True if rewriting the kernel came back to an earlier state, or ran out of the default fuel.
    /// The kernel is right, but some rules undo each other.
    pub is_endless: bool,
    /// The opts that a search found; `None` without a search.
    pub opts: Option<Arc<[Opt]>>,
    pub(crate) key: Key,
}

/// Kernels in execution order.
#[derive(Clone, Default)]
pub struct Plan {
    /// The kernels.
    pub items: Vec<PlannedKernel>,
    names: FxHashMap<String, usize>,
}

impl Plan {
    /// Returns the number of kernels.
    pub fn kernel_count(&self) -> usize {
        self.items.len()
    }

    /// Appends the kernels of another plan, and renames those whose name is taken.
    pub fn append(&mut self, later: Plan) {
        for item in later.items {
            self.push(item);
        }
    }

    /// Appends a kernel, and renames it if its name is taken.
    pub(crate) fn push(&mut self, mut item: PlannedKernel) {
        let base = gradiff_kernel::name(&item.ast);
        let count = self.names.entry(base.clone()).or_default();
        let name = if *count == 0 { base } else { format!("{base}n{count}") };
        *count += 1;
        if item.linear.name != name {
            let named = item.linear.named(&name);
            item.linear = Arc::new(named.expect("names are made of letters and digits"));
        }
        self.items.push(item);
    }
}
