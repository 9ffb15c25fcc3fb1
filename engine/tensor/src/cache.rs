//! The kernel cache: what was lowered and compiled before is found by what the kernel says.
//!
//! Buffers are slots in a kernel, so kernels that differ in their data alone are one entry. The
//! key holds all that lowering and compiling depend on: the tree, the device, the options.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gradiff_graph::{BoundedLinear, UOp};
use gradiff_kernel::Opt;
use gradiff_runtime::Executable;
use rustc_hash::FxHashMap;

/// What a kernel is found by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    ast: UOp,
    settings: Arc<str>,
}

impl Key {
    /// The key of a kernel; `settings` says the device and the options.
    pub(crate) fn new(ast: &UOp, settings: &Arc<str>) -> Key {
        Key { ast: ast.clone(), settings: settings.clone() }
    }
}

/// A kernel as far as it was made.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) linear: Arc<BoundedLinear>,
    pub(crate) executable: Option<Arc<dyn Executable>>,
    /// Whether its rewriting led back to where it came from, or had to be stopped.
    pub(crate) is_endless: bool,
    /// The opts that a search found.
    pub(crate) opts: Option<Arc<[Opt]>>,
}

/// Kernels by key, bounded: the oldest one goes first.
pub(crate) struct Cache {
    capacity: usize,
    entries: Mutex<Entries>,
}

#[derive(Default)]
struct Entries {
    made: FxHashMap<Key, Made>,
    ages: VecDeque<Key>,
}

impl Cache {
    /// Room for so many kernels.
    pub(crate) fn new(capacity: usize) -> Cache {
        Cache { capacity, entries: Mutex::default() }
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Made> {
        self.lock().made.get(key).cloned()
    }

    pub(crate) fn insert(&self, key: Key, made: Made) {
        let mut entries = self.lock();
        if entries.made.insert(key.clone(), made).is_none() {
            entries.ages.push_back(key);
        }
        if self.capacity < entries.ages.len()
            && let Some(oldest) = entries.ages.pop_front()
        {
            entries.made.remove(&oldest);
        }
        assert_eq!(entries.made.len(), entries.ages.len(), "each kernel has one age");
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().made.len()
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
    fn the_oldest_kernel_goes_first() {
        let cache = Cache::new(2);
        let settings: Arc<str> = Arc::from("interp");
        let keys = [1, 2, 3].map(|value| Key::new(&UOp::int(DType::I32, value), &settings));
        for key in &keys {
            let linear = Linear { name: "E".into(), uops: Vec::new() };
            let linear = Arc::new(BoundedLinear::check(linear).unwrap());
            let made = Made { linear, executable: None, is_endless: false, opts: None };
            cache.insert(key.clone(), made);
        }
        assert_eq!(keys.map(|key| cache.get(&key).is_some()), [false, true, true]);
        assert_eq!(cache.len(), 2);
    }
}
