//! The sizes from which on the engine takes another path, in one table, so that a harness can make
//! them small: a hundred elements then take paths that otherwise need arrays of megabytes.

/// Sizes from which on kernels are lowered in another way. None changes the result, except for the
/// order in which floats are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thresholds {
    /// Bytes of an array that exceeds the caches of a CPU, so that neither its old nor its new
    /// content is found there: loads are prefetched, stores bypass the caches.
    pub large_bytes: u64,
    /// Iterations of all loops of a kernel from which on CPU threads are worth their start.
    pub thread_iterations: i64,
    /// Products of a contraction from which on packing an operand into panels is worth a kernel.
    pub pack_products: i64,
    /// Reads of each element of a panel from which on packing is worth it; fewer are if the rows
    /// are short.
    pub pack_reuse: i64,
    /// Bytes between two rows from which on reading one row after the other is slow.
    pub pack_row_bytes: i64,
    /// Elements of a dot product from which on a copy of the shorter operand that makes it
    /// contiguous is worth a kernel: the lanes are summed at the end.
    pub pack_row_elements: i64,
    /// Multiplications of a product of matrices from which on it has a kernel of its own, which is
    /// tiled, on devices with groups.
    pub tiled_products: i64,
    /// Reads of each element of an operand from which on a tile is worth it.
    pub tile_reads: i64,
    /// Reads of each element from which on a copy that includes the padding is worth it, as its
    /// loads need no gates.
    pub padding_reuse: i64,
    /// Elements of a reduction to one element from which on it is divided into two kernels on
    /// devices with groups.
    pub split_elements: i64,
    /// Products of a sum that are a block if it is divided into two kernels on CPUs: those for a
    /// panel of results take a quarter of a cache of the second level.
    pub split_products: i64,
    /// Elements that half of such a cache holds: such a sum is divided if both operands have more.
    pub split_operand_elements: i64,
    /// Products for each element of the operands from which on such a sum is divided.
    pub split_reads: i64,
    /// Elements of a row up to which several reductions of it share a kernel on devices with
    /// groups, so that the rows of all groups that run together stay in the cache.
    pub shared_row_elements: i64,
    /// Elements of the output up to which a reduction is divided among the threads of a group.
    pub group_reduce_elements: i64,
    /// Iterations of output loops that must be left for threads when each thread runs several.
    pub group_iterations_left: i64,
    /// Fewest threads of a group whose results are reduced in two steps: a thread reads 16 instead
    /// of 64 of them, and waits once more.
    pub twice_reduced_threads: i64,
    /// Cost, in additions, from which on a value that two loops compute is cached in an array.
    /// Computing it again is cheaper below, as caching takes a store, a load and their latency.
    pub cache_min_additions: i64,
    /// Most bytes of a cached row, so that it stays in the L1 cache.
    pub cache_row_bytes: i64,
    /// Most bytes of all cached rows of a kernel, as they are on the stack.
    pub cache_total_bytes: i64,
    /// Positions, in vectors, from which on an update for each element takes less time than
    /// comparing it with all of them.
    pub scatter_positions: i64,
    /// The same on devices with groups, in elements of the output: threads compare at once, and
    /// updates wait for each other.
    pub group_scatter_outputs: i64,
    /// Most additions of floats into one accumulator; at least 4.
    pub accumulator_additions: i64,
}

impl Thresholds {
    /// As measured on today's devices.
    pub const USUAL: Thresholds = Thresholds {
        large_bytes: 8 << 20,
        thread_iterations: 1 << 18,
        pack_products: 1 << 15,
        pack_reuse: 64,
        pack_row_bytes: 2048,
        pack_row_elements: 256,
        tiled_products: 1 << 20,
        tile_reads: 16,
        padding_reuse: 8,
        split_elements: 1 << 15,
        split_products: 1 << 11,
        split_operand_elements: 1 << 18,
        split_reads: 64,
        shared_row_elements: 1 << 14,
        group_reduce_elements: 2048,
        group_iterations_left: 1024,
        twice_reduced_threads: 64,
        cache_min_additions: 12,
        cache_row_bytes: 16 << 10,
        cache_total_bytes: 64 << 10,
        scatter_positions: 4,
        group_scatter_outputs: 1 << 21,
        accumulator_additions: 256,
    };

    /// So small that kernels of a hundred elements are on both sides of each.
    pub const SMALL: Thresholds = Thresholds {
        large_bytes: 128,
        thread_iterations: 32,
        pack_products: 64,
        pack_reuse: 4,
        pack_row_bytes: 16,
        pack_row_elements: 4,
        tiled_products: 64,
        tile_reads: 3,
        padding_reuse: 2,
        split_elements: 16,
        split_products: 4,
        split_operand_elements: 16,
        split_reads: 2,
        shared_row_elements: 64,
        group_reduce_elements: 16,
        group_iterations_left: 8,
        twice_reduced_threads: 4,
        cache_min_additions: 1,
        cache_row_bytes: 64,
        cache_total_bytes: 128,
        scatter_positions: 2,
        group_scatter_outputs: 8,
        accumulator_additions: 4,
    };
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds::USUAL
    }
}
