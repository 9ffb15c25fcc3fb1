//! The kernel cache: lowered and compiled kernels, by their trees.
//!
//! A tree refers to buffers by slot, so kernels that differ only in their data share an entry. The
//! key has everything on which lowering and compiling depend: the tree, the device, the options.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gradiff_graph::{BoundedLinear, UOp};
use gradiff_kernel::Opt;
use gradiff_runtime::Executable;
use rustc_hash::FxHashMap;

/// The key of a kernel.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    ast: UOp,
    settings: Arc<str>,
}

impl Key {
    /// Creates the key of a kernel; `settings` describes the device and the options.
    pub(crate) fn new(ast: &UOp, settings: &Arc<str>) -> Key {
        Key { ast: ast.clone(), settings: settings.clone() }
    }
}

/// A lowered kernel, with its executable once it is compiled.
#[derive(Clone)]
pub(crate) struct CachedKernel {
    pub(crate) linear: Arc<BoundedLinear>,
    pub(crate) executable: Option<Arc<dyn Executable>>,
    /// True if rewriting the kernel came back to an earlier state, or ran out of fuel.
    pub(crate) is_endless: bool,
    /// The opts that a search found; `None` without a search.
    pub(crate) opts: Option<Arc<[Opt]>>,
}

/// A bounded cache of kernels by key, which evicts the oldest kernel first.
pub(crate) struct Cache {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    kernels: FxHashMap<Key, CachedKernel>,
    /// Keys in the order of insertion, oldest first.
    order: VecDeque<Key>,
}

impl Cache {
    /// Creates a cache for at most `capacity` kernels.
    pub(crate) fn new(capacity: usize) -> Cache {
        Cache { capacity, entries: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<CachedKernel> {
        self.lock().kernels.get(key).cloned()
    }

    pub(crate) fn insert(&self, key: Key, kernel: CachedKernel) {
        let mut entries = self.lock();
        if entries.kernels.insert(key.clone(), kernel).is_none() {
            entries.order.push_back(key);
        }
        if self.capacity < entries.order.len()
            && let Some(oldest) = entries.order.pop_front()
        {
            entries.kernels.remove(&oldest);
        }
        assert_eq!(entries.kernels.len(), entries.order.len(), "each kernel is in the order once");
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().kernels.len()
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{DType, Linear};

    use super::*;

    #[test]
    fn oldest_kernel_is_evicted_first() {
        let cache = Cache::new(2);
        let settings: Arc<str> = Arc::from("interp");
        let keys = [1, 2, 3].map(|value| Key::new(&UOp::int(DType::I32, value), &settings));
        for key in &keys {
            let linear = Linear { name: "E".into(), uops: Vec::new() };
            let linear = Arc::new(BoundedLinear::check(linear).unwrap());
            let kernel = CachedKernel { linear, executable: None, is_endless: false, opts: None };
            cache.insert(key.clone(), kernel);
        }
        assert_eq!(keys.map(|key| cache.get(&key).is_some()), [false, true, true]);
        assert_eq!(cache.len(), 2);
    }
}
