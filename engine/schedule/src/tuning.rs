//! The numbers by which graphs are cut into kernels, the same for all targets. The sizes from which
//! on packing pays are a target's [`gradiff_graph::target::Thresholds`]. A change shows in
//! `cargo bench --bench speed` and in the snapshots of kernels.

/// Most nodes that are fused into one kernel, to bound the time to compile it.
pub const MAX_KERNEL_NODES: u32 = 256;
/// Most views that a kernel has of an array, one on top of the other. The time to simplify the
/// indices grows with the fourth power of their number; those of usual programs are 4 at most.
pub(crate) const MAX_KERNEL_VIEWS: usize = 16;
/// Most nodes of a chain without loads that is cheaper to compute again than to store.
pub(crate) const CHEAP_NODES: u32 = 8;
/// Highest cost of ops that follow a load and are cheaper to repeat than to store, on devices with
/// groups.
pub(crate) const REPEATED_COST: i64 = 4;
/// Most times that these ops are repeated.
pub(crate) const REPEATS_MAX: i64 = 16;
/// Highest cost of a node that each of its kernels computes from a row and one value of the row.
pub(crate) const SHIFTED_COST: i64 = 8;
/// Lowest cost of a value of each row that is worth a launch if all threads computed it otherwise.
pub(crate) const ROW_VALUE_COST: i64 = 25;
/// Most elementwise nodes on a path that a view of a reduction is moved through.
pub(crate) const PUSHED_DEPTH_MAX: usize = 4;
/// Most reductions of a kernel: each computes its inputs again, which saves a buffer and a launch.
pub(crate) const MAX_REDUCTIONS: usize = 4;
/// Most loops of all reductions of a kernel, to bound its size.
pub(crate) const MAX_LOOPS: usize = 16;
/// Sizes of the innermost axis of a panel, in order of preference: whole vectors that are adjacent,
/// as many as a tile of a product has.
pub(crate) const PANEL_WIDTHS: [i64; 4] = [64, 32, 16, 8];
/// Least width of the panels of an operand that is contiguous along that axis: two vectors.
pub(crate) const PANEL_WIDTH_MIN: i64 = 32;
/// Sizes of an axis that becomes one panel if no width divides it: more than the lanes of a vector,
/// and rows that are not far apart.
pub(crate) const PANEL_WHOLE: std::ops::Range<i64> = 9..1024;
/// Most elements of one panel of a longer axis: those that a cache of the second level holds.
pub(crate) const PANEL_ELEMENTS: i64 = 1 << 17;
/// The cost of an element that is stored by itself, in terms of an element that is packed.
pub(crate) const SCATTERED_STORE: i64 = 4;
/// Cost of a scattered store if the lanes are so far apart that few of their cache lines stay.
pub(crate) const FAR_STORE: i64 = 16;
/// Most lanes of a vector of floats.
pub(crate) const LANES: i64 = 16;
/// Number of products of lanes that cost as much as an element that is packed.
pub(crate) const PRODUCTS: i64 = 32;
/// A copy that makes an operand of dot products contiguous pays if the other operand has at least
/// this many times the elements of the copy.
pub(crate) const ROWS_GAIN: i64 = 3;
/// Longest row, in multiples of the reads of each packed element, that is packed though it is read
/// seldom.
pub(crate) const SHORT_ROW: i64 = 3;
/// Most elements of the output of the first of two kernels that a long reduction is divided into: a
/// few groups for each multiprocessor of a large device.
pub(crate) const GROUPS: i64 = 1024;
/// Fewest elements of that output for each element of the whole result: fewer are not worth a
/// second kernel.
pub(crate) const GROUPS_MIN: i64 = 4;
/// Fewest groups of the first kernel if they reduce as many elements as a reduction that is split:
/// with fewer, most of a large device is idle.
pub(crate) const BUSY_GROUPS: i64 = 64;
/// Longest windows along the rows of a tile whose padding is not copied: the tile unrolls them.
pub(crate) const PADDING_WINDOW: i64 = 4;
