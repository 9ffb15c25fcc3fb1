//! The numbers by which kernels are optimised, with what each buys. They depend on no target: the
//! sizes from which on an optimisation pays are its [`gradiff_graph::target::Thresholds`]. A change
//! shows in `cargo bench --bench speed` and in the snapshots of kernels.

// Limits of every sequence of opts, heuristic, searched or drawn.

/// Most upcast iterations in one loop nest: accumulators beyond some hundred are in memory anyway.
pub(crate) const UPCAST_MAX: i64 = 512;
/// Most unrolled iterations in one loop nest: longer bodies save no more of the loop's own cost.
pub(crate) const UNROLL_MAX: i64 = 32;
/// Most uops after unrolling, so that compilers take seconds at most.
pub(crate) const UOPS_MAX: i64 = 1 << 13;
/// Most uops after a drawn opt, so that tests compile many kernels; one draw in eight may exceed
/// it.
pub(crate) const DRAWN_UOPS_MAX: i64 = 1 << 10;
/// Most parts of a kernel for CPU threads on machines of few cores: each part costs its start.
pub(crate) const THREADS_MAX: i64 = 64;
/// Most parts for each core, on machines of many: no core waits long for the last one.
pub(crate) const PARTS_PER_THREAD: i64 = 8;

/// Most stores of a kernel whose loops are cut: each has a copy of what it computes.
pub(crate) const STORES_MAX: usize = 8;
/// Most lanes of a vector.
pub(crate) const LANES_MAX: i64 = 64;

// Devices with groups.

/// Threads of a group that output loops fill: enough warps to hide latencies, and several groups
/// for each multiprocessor.
pub(crate) const GROUP_THREADS: i64 = 256;
/// Threads that run together, whose accesses are fast if they are adjacent.
pub(crate) const SIMD: i64 = 32;
/// Shortest reduction that is divided among threads though there are outputs enough.
pub(crate) const DIVIDED_MIN: i64 = 64;
/// Threads that occupy a large device. With fewer, more threads divide a reduction, if its loop is
/// padded for that.
pub(crate) const THREADS_PER_DEVICE: i64 = 1 << 14;
/// Shortest row that threads share in a kernel of several reductions.
pub(crate) const SHARED_MIN: i64 = 16;
/// Shortest loop of a row over several loops whose iterations are those of threads.
pub(crate) const SHARED_LOOP_MIN: i64 = 4;
/// Rows beyond which a reduction of contiguous elements is divided among [`SIMD`] threads only, and
/// a group reduces several rows.
pub(crate) const MANY_ROWS: i64 = 1 << 15;
/// Outputs up to which 16 threads, and up to which 8, reduce a column: fewer leave the device idle.
pub(crate) const FEW_COLUMNS: i64 = 1 << 14;
/// See [`FEW_COLUMNS`].
pub(crate) const MANY_COLUMNS: i64 = 1 << 17;
/// Most rows or columns of a product whose reduction is divided among threads, each of which loads
/// elements of the larger operand for several results.
pub(crate) const NARROW_MAX: i64 = 64;
/// Shortest such reduction: in a shorter one the threads spend more on what they exchange.
pub(crate) const NARROW_DEPTH_MIN: i64 = 256;
/// Most results of such a thread: more would not fit local memory.
pub(crate) const NARROW_VALUES: i64 = 16;
/// Shortest innermost loop that is padded to a multiple of the threads of a group.
pub(crate) const PADDED_MIN: i64 = 64;
/// Longest one that fills a group by itself instead: rows of 3 x 341 elements of bf16 take 32 us
/// instead of 75 on an H100.
pub(crate) const WHOLE_MAX: i64 = 512;
/// Output loops up to this size that gates depend on are upcast, so that the gates are known.
pub(crate) const GATED_MAX: i64 = 7;
/// Number of upcast values of a thread from which on no more loops are upcast: more loads would be
/// reused, but registers run out.
pub(crate) const UPCAST_VALUES: i64 = 32;
/// Nothing is upcast that leaves fewer iterations for threads than the target's threshold, or than
/// this many times the threads of a group, if that is less: the device would be idle in part.
pub(crate) const LEFT_PER_THREAD: i64 = 4;
/// Elements of a thread whose accesses are no vectors: a flip of 8192 x 8192 takes 180 us instead
/// of 264 on an H100, a transposition 199 instead of 289.
pub(crate) const ELEMENTS_PER_THREAD: i64 = 4;
/// Numbers of overlapping windows of a thread along two loops, in order of preference: a depthwise
/// 3 x 3 convolution takes 43 us instead of 64 on an H100.
pub(crate) const WINDOWS_PER_THREAD: [&[i64]; 2] = [&[4, 3, 2], &[2]];
/// Most unrolled iterations of a thread, times its upcast values: the loads of several iterations
/// are under way together.
pub(crate) const GROUP_UNROLL_MAX: i64 = 256;
/// Iterations by which longer reductions are unrolled, for the same.
pub(crate) const GROUP_UNROLL_PART: i64 = 4;

/// Fewest groups for large tiles: as many as a large device has multiprocessors.
pub(crate) const LEAST_GROUPS: i64 = 128;

/// Rows, and summands, of a tile of a tensor core.
pub(crate) const TILE_ROWS: i64 = 16;
/// Columns of a tile of a tensor core.
pub(crate) const TILE_COLUMNS: i64 = 8;
/// Elements of the result that a group of 2 x 2 warps computes with 4 x 8 tiles of tensor cores
/// each. Products of fewer than [`LEAST_GROUPS`] times as many take smaller ones.
pub(crate) const LARGE_TILE: i64 = 4 * 4 * 16 * 8 * TILE_COLUMNS;
/// Tiles of tensor cores that occupy a large device, four for each multiprocessor. With fewer,
/// warps divide the reduction: bf16 [16, 4096] by [11008, 4096] takes 57 us instead of 190 on an
/// H100.
pub(crate) const TILES_PER_DEVICE: i64 = 4 * LEAST_GROUPS;
/// Fewest products that each warp adds up where warps divide a reduction.
pub(crate) const WARP_STEPS_MIN: i64 = 4;
/// Most warps that divide a reduction.
pub(crate) const WARPS_MAX: i64 = 8;
/// Fewest rows and columns of a product whose operands are copied to local memory: those of a tile.
pub(crate) const STAGED_MIN: i64 = 64;
/// Summands of a block of such a product: more take more memory, fewer wait more often.
pub(crate) const STAGED_DEPTH: i64 = 16;
/// Most elements of a tile that threads copy to local memory.
pub(crate) const TILE_MAX: i64 = 1 << 14;
/// Most tiles of a kernel: the operands of a product, and a bias.
pub(crate) const STAGED_MAX: usize = 3;
/// Most copies of a thread that are under way together.
pub(crate) const COPIES_MAX: i64 = 16;

// CPUs with vectors.

/// Most iterations of both loops of a block of transposed elements: half a cache line of floats, so
/// that a square of them fits the registers.
pub(crate) const TRANSPOSED: i64 = 8;
/// Longest stride of the loads along a loop of such a block: several of them share a cache line.
pub(crate) const TRANSPOSED_STRIDE_MAX: i64 = 4;
/// Most cuts of a loop where gates change: the edges of a padded axis, or three joints.
pub(crate) const CUTS_MAX: usize = 3;
/// Fewest iterations of the longest part of a loop that is cut: a vector.
pub(crate) const CUT_PART_MIN: i64 = 4;
/// Shortest row with a loop of its own where threads divide rows that masks tell apart: a vector of
/// floats.
pub(crate) const MASKED_ROW_MIN: i64 = 16;
/// Fewest lanes of vectors the last of which repeats elements: fewer save too little.
pub(crate) const SHIFTED_LANES_MIN: i64 = 4;
/// Most iterations of a loop with shifted blocks, in terms of those without, as a fraction.
pub(crate) const SHIFTED_MAX: (i64, i64) = (5, 4);
/// Fewest blocks of a loop that are made larger so that threads can divide them.
pub(crate) const LONG_BLOCKS: i64 = 64;
/// Numbers of accumulator vectors in a reduction without reuse, in order of preference: as many
/// additions as the latency of one takes are under way.
pub(crate) const ACCUMULATORS: [i64; 4] = [4, 5, 3, 2];
/// Most rows of a tile. The rows of a large matrix often map to the same set of the L1 cache, which
/// has 8 ways or more.
pub(crate) const ROWS_MAX: i64 = 8;
/// Most cost of a tile whose rows are nearer in memory, in terms of the cheapest, as a fraction:
/// rows of other images share no cache lines.
pub(crate) const NEARER_ROWS_MAX: (i128, i128) = (12, 11);
/// Most vectors of a tile whose lanes are stored one by one and whose windows are unrolled: both
/// take many instructions.
pub(crate) const SCALAR_STORE_VECTORS_MAX: i64 = 16;
/// Most products of a window that is unrolled although no vector of it is reused.
pub(crate) const WINDOWS_MAX: i64 = 49;
/// Most products of such windows of several rows that are upcast.
pub(crate) const WINDOWS_OF_ROWS_MAX: i64 = 200;
/// Most iterations of a reduced loop that is unrolled because gates depend on it, so that the gates
/// of most iterations are known.
pub(crate) const WINDOW_MAX: i64 = 4;
/// Most iterations of a loop that accesses the elements between lanes that are two elements apart:
/// the window of a pool or of a depthwise convolution.
pub(crate) const BETWEEN_MAX: i64 = 8;
/// Most arrays in which a kernel caches inputs of reductions, each of which costs a loop.
pub(crate) const ARRAYS_MAX: usize = 4;
/// The prefetch distance in large arrays: more than a loop reads while one cache line arrives.
pub(crate) const AHEAD_BYTES: i64 = 2 << 10;
/// The size of a cache line. Loads with a larger stride would prefetch one line each.
pub(crate) const LINE_BYTES: u64 = 64;
