//! The sizes from which on the engine takes another path, in one table, so that a harness can make
//! them small: what is otherwise taken by arrays of megabytes is then taken by a hundred elements.

/// Sizes from which on kernels are made in another way. None changes what is computed, but for the
/// order in which floats are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// Bytes of an array from which on it is not in the caches of a CPU when a kernel begins, nor
    /// when somebody reads what it stored: loads are prefetched, stores go past the caches.
    pub large_bytes: u64,
    /// Iterations of all loops of a kernel from which on CPU threads are worth their start.
    pub thread_iterations: i64,
    /// Products of a contraction from which on packing an operand into panels is worth a kernel.
    pub pack_products: i64,
    /// Fewest reads of each element of a panel.
    pub pack_reuse: i64,
    /// Bytes between two rows from which on they lie too far apart to be read one after the other.
    pub pack_row_bytes: i64,
    /// Elements of the output up to which a reduction is divided among the threads of a group.
    pub group_reduce_elements: i64,
    /// Iterations of output loops that must be left for threads when each does several.
    pub group_iterations_left: i64,
    /// Additions from which on a value that two loops compute is worth an array that keeps it:
    /// what costs less is computed again, as a store, a load, and what makes them wait.
    pub keep_additions: i64,
    /// Most bytes of a row that is kept, so that it stays in the nearest cache.
    pub keep_row_bytes: i64,
    /// Most bytes of all rows that are kept at once: they lie on the stack.
    pub keep_bytes: i64,
    /// Most additions of floats into one accumulator; at least 4.
    pub accumulator_additions: i64,
}

impl Thresholds {
    /// As measured on today's devices.
    pub const USUAL: Thresholds = Thresholds {
        large_bytes: 8 << 20,
        thread_iterations: 1 << 18,
        pack_products: 1 << 21,
        pack_reuse: 64,
        pack_row_bytes: 2048,
        group_reduce_elements: 2048,
        group_iterations_left: 1024,
        keep_additions: 12,
        keep_row_bytes: 16 << 10,
        keep_bytes: 64 << 10,
        accumulator_additions: 256,
    };

    /// So small that a hundred elements lie on either side of each.
    pub const SMALL: Thresholds = Thresholds {
        large_bytes: 128,
        thread_iterations: 32,
        pack_products: 64,
        pack_reuse: 2,
        pack_row_bytes: 16,
        group_reduce_elements: 16,
        group_iterations_left: 8,
        keep_additions: 1,
        keep_row_bytes: 64,
        keep_bytes: 128,
        accumulator_additions: 4,
    };
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds::USUAL
    }
}
