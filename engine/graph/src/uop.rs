//! Interned nodes: structurally equal nodes are the same node, so equality compares addresses.
//!
//! A `UOp` is a shared pointer. Nodes are in one sharded table of weak references, so that a node
//! is freed with its last user. Nothing in a node depends on when or where it was made (a buffer
//! has a serial number, which text forms replace by its order of appearance).

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use gradiff_view::ShapeTracker;
use hashbrown::HashTable;
use rustc_hash::{FxHashSet, FxHasher};
use smallvec::SmallVec;

use crate::tensor_core::TensorCore;
use crate::{Axis, Constant, DType, Op, Placement};

/// Sources of a node.
pub type Sources = SmallVec<[UOp; 3]>;
/// Sizes, axes or starts.
pub type Dims = SmallVec<[i64; 4]>;
/// Counts before and after (pad), or start and end (shrink), for each axis.
pub type Pairs = SmallVec<[(i64, i64); 4]>;

/// The arg of a node: its data besides the sources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Arg {
    /// No arg.
    None,
    /// The value of a `Const`.
    Const(Constant),
    /// The count of an `Iota`, the number of a `DefineAcc`, the lane of a `Lane`, or the hint of a
    /// `Load` or `Store` about caches.
    Int(i64),
    /// The axis of a `Range`.
    Axis(Axis),
    /// Sizes (`Reshape`, `Expand`) or axes (`Permute`, `Flip`).
    Dims(Dims),
    /// The pairs of `Pad` (before, after) and `Shrink` (start, end).
    Pairs(Pairs),
    /// The tracker of a `View`, and of a `Load` or `Store` before lowering.
    View(ShapeTracker),
    /// The op, `Add`, `Mul` or `Max`, of a `ReduceAxis` (with ascending axes) or `Reduce`
    /// (without).
    Reduce(Op, Dims),
    /// The buffer of a `Buffer`.
    Buffer(Buffer),
    /// The parameter of a `DefineGlobal`.
    Global(Global),
    /// The array of a `DefineLocal`.
    Local(Local),
    /// The parameter of a `DefineVar`.
    Var(Arc<Variable>),
    /// The tensor core of a `Wmma`.
    TensorCore(&'static TensorCore),
    /// The target of a `Copy`.
    Device(Placement),
    /// The name of a `Function`.
    Name(Arc<str>),
}

impl Arg {
    /// Makes the arg of a `Range` that is a plain loop.
    pub const fn plain_axis(number: i64) -> Arg {
        Arg::Axis(Axis::plain(number))
    }
}

/// A parameter of a kernel that is an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Global {
    /// Its index in the parameter list; the output is 0.
    pub slot: usize,
    /// Number of its elements.
    pub size_elements: i64,
}

/// An array that the threads of a group share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Local {
    /// Its number, unique within the kernel.
    pub number: usize,
    /// Number of its elements.
    pub size_elements: i64,
}

/// A parameter that is an integer from `min` to `max` (included).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// The smallest value.
    pub min: i64,
    /// The largest value.
    pub max: i64,
}

/// A buffer: placement, size, dtype and, once it is allocated, the memory. Equality is identity.
#[derive(Clone)]
pub struct Buffer(Arc<BufferSlot>);

struct BufferSlot {
    serial: u64,
    dtype: DType,
    size_elements: i64,
    placement: Option<Placement>,
    memory: OnceLock<Arc<dyn std::any::Any + Send + Sync>>,
}

impl Buffer {
    /// Makes a buffer of `size_elements` elements on the default device, without memory.
    pub fn new(dtype: DType, size_elements: i64) -> Buffer {
        Buffer::on(Placement::Default, dtype, size_elements)
    }

    /// Makes a buffer of `size_elements` elements, without memory. That of a result which is on no
    /// device has no placement.
    pub fn on(placement: impl Into<Option<Placement>>, dtype: DType, size_elements: i64) -> Buffer {
        assert!(dtype != DType::Void && size_elements >= 0, "a buffer holds elements");
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let serial = NEXT.fetch_add(1, Ordering::Relaxed);
        let (placement, memory) = (placement.into(), OnceLock::new());
        Buffer(Arc::new(BufferSlot { serial, dtype, size_elements, placement, memory }))
    }

    /// Returns the type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns the number of elements.
    pub fn size_elements(&self) -> i64 {
        self.0.size_elements
    }

    /// Returns the device that the kernels of its users run on; `None` if that may be any device.
    /// The bytes may be anywhere.
    pub fn placement(&self) -> Option<&Placement> {
        self.0.placement.as_ref()
    }

    /// Returns the memory, if it has been set. Its type is known to the runtime only.
    pub fn memory(&self) -> Option<&Arc<dyn std::any::Any + Send + Sync>> {
        self.0.memory.get()
    }

    /// Returns the memory; sets it to the result of `make` if there is none.
    pub fn memory_or_init(
        &self,
        make: impl FnOnce() -> Arc<dyn std::any::Any + Send + Sync>,
    ) -> &Arc<dyn std::any::Any + Send + Sync> {
        self.0.memory.get_or_init(make)
    }
}

impl PartialEq for Buffer {
    fn eq(&self, other: &Buffer) -> bool {
        self.0.serial == other.0.serial
    }
}

impl Eq for Buffer {}

impl Hash for Buffer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.serial.hash(state);
    }
}

impl PartialOrd for Buffer {
    fn partial_cmp(&self, other: &Buffer) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Buffer {
    /// Older buffers first.
    fn cmp(&self, other: &Buffer) -> std::cmp::Ordering {
        self.0.serial.cmp(&other.0.serial)
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} x {})", self.0.size_elements, self.0.dtype)
    }
}

/// An interned node: op, dtype, sources and arg. Cheap to clone, compare and hash; thread-safe.
#[derive(Clone)]
pub struct UOp(Arc<Node>);

struct Node {
    op: Op,
    dtype: DType,
    src: Sources,
    arg: Arg,
    hash: u64,
    shape: OnceLock<Option<Dims>>,
    device: OnceLock<Option<Placement>>,
}

const SHARDS: usize = 16;

/// Nodes with their hashes.
type Shard = HashTable<(u64, Weak<Node>)>;

struct Interner {
    shards: [Mutex<Shard>; SHARDS],
}

static INTERNER: Interner = Interner { shards: [const { Mutex::new(HashTable::new()) }; SHARDS] };

impl Interner {
    fn shard(&self, hash: u64) -> std::sync::MutexGuard<'_, Shard> {
        // A panic while the lock was held cannot have left the table inconsistent.
        let shard = &self.shards[(hash >> 40) as usize % SHARDS];
        shard.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Node {
    /// Compares two nodes by op, dtype and arg.
    fn cmp_without_sources(&self, other: &Node) -> std::cmp::Ordering {
        use std::cmp::Ordering::Equal;
        let args = || match (&self.arg, &other.arg) {
            (Arg::Const(a), Arg::Const(b)) => (a.to_int(), a.bits()).cmp(&(b.to_int(), b.bits())),
            (Arg::Int(a), Arg::Int(b)) => a.cmp(b),
            (Arg::Axis(a), Arg::Axis(b)) => a.cmp(b),
            (Arg::Dims(a), Arg::Dims(b)) => a.cmp(b),
            (Arg::Pairs(a), Arg::Pairs(b)) => a.cmp(b),
            (Arg::Buffer(a), Arg::Buffer(b)) => a.cmp(b),
            (Arg::Global(a), Arg::Global(b)) => {
                (a.slot, a.size_elements).cmp(&(b.slot, b.size_elements))
            }
            (Arg::Local(a), Arg::Local(b)) => a.cmp(b),
            (Arg::Var(a), Arg::Var(b)) => (&a.name, a.min, a.max).cmp(&(&b.name, b.min, b.max)),
            (Arg::TensorCore(a), Arg::TensorCore(b)) => a.name.cmp(b.name),
            (Arg::Device(a), Arg::Device(b)) => a.cmp(b),
            (Arg::Name(a), Arg::Name(b)) => a.cmp(b),
            _ => Equal,
        };
        (self.op, self.dtype).cmp(&(other.op, other.dtype)).then_with(args)
    }
}

impl UOp {
    /// Returns the node with this content; makes it if there is none.
    ///
    /// # Panics
    /// If the op does not take this number of sources, which is a bug of the engine.
    pub fn new(op: Op, dtype: DType, src: impl IntoIterator<Item = UOp>, arg: Arg) -> UOp {
        let src: Sources = src.into_iter().collect();
        let (min, max) = op.row().arity;
        assert!(min <= src.len() && src.len() <= max, "{op} with {} sources", src.len());
        let mut hasher = FxHasher::default();
        (op as u8, dtype as u8).hash(&mut hasher);
        arg.hash(&mut hasher);
        src.iter().for_each(|source| source.0.hash.hash(&mut hasher));
        let hash = hasher.finish();
        let same = |node: &Node| {
            node.op == op && node.dtype == dtype && node.src == src && node.arg == arg
        };
        let mut shard = INTERNER.shard(hash);
        // Upgraded nodes must not be dropped while the shard is locked: dropping locks it again.
        let mut passed: SmallVec<[Arc<Node>; 4]> = SmallVec::new();
        let found = shard.find(hash, |(_, weak)| match weak.upgrade() {
            Some(node) => {
                let is_same = same(&node);
                passed.push(node);
                is_same
            }
            None => false,
        });
        if found.is_some() {
            drop(shard);
            return UOp(passed.pop().expect("the node just found"));
        }
        let (shape, device) = (OnceLock::new(), OnceLock::new());
        let node = Arc::new(Node { op, dtype, src, arg, hash, shape, device });
        shard.insert_unique(hash, (hash, Arc::downgrade(&node)), |(hash, _)| *hash);
        drop(shard);
        UOp(node)
    }

    /// Makes a constant of shape [].
    pub fn constant(value: Constant) -> UOp {
        UOp::new(Op::Const, value.dtype(), Sources::new(), Arg::Const(value))
    }

    /// Makes an integer constant, wrapped to `dtype`.
    pub fn int(dtype: DType, value: i64) -> UOp {
        UOp::constant(Constant::int(dtype, i128::from(value)))
    }

    /// Makes a unary, cast or marker node.
    pub fn unary(op: Op, dtype: DType, src: UOp) -> UOp {
        UOp::new(op, dtype, [src], Arg::None)
    }

    /// Makes a binary node; its dtype is that of the first source, or bool for comparisons.
    ///
    /// # Panics
    /// If the sources differ in dtype (shifts as well).
    pub fn binary(op: Op, x: UOp, y: UOp) -> UOp {
        assert_eq!(x.dtype(), y.dtype(), "{op} of two dtypes");
        let dtype = if op.is_comparison() { DType::Bool } else { x.dtype() };
        UOp::new(op, dtype, [x, y], Arg::None)
    }

    /// Makes `condition ? x : y`.
    pub fn select(condition: UOp, x: UOp, y: UOp) -> UOp {
        assert_eq!(condition.dtype(), DType::Bool, "the condition is bool");
        assert_eq!(x.dtype(), y.dtype(), "where of two dtypes");
        UOp::new(Op::Where, x.dtype(), [condition, x, y], Arg::None)
    }

    /// Makes a logical negation, as `x != true`.
    #[expect(clippy::should_implement_trait, reason = "a constructor like the others here")]
    pub fn not(x: UOp) -> UOp {
        UOp::binary(Op::CmpNe, x, UOp::constant(Constant::bool(true)))
    }

    /// Returns its op.
    #[inline]
    pub fn op(&self) -> Op {
        self.0.op
    }

    /// Returns the type of its elements.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// Returns its sources.
    #[inline]
    pub fn src(&self) -> &[UOp] {
        &self.0.src
    }

    /// Returns its arg.
    #[inline]
    pub fn arg(&self) -> &Arg {
        &self.0.arg
    }

    /// Returns the value of a constant; `None` for other nodes.
    #[inline]
    pub fn as_const(&self) -> Option<Constant> {
        match self.0.arg {
            Arg::Const(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of an integer or bool constant; `None` for other nodes.
    pub fn as_int(&self) -> Option<i128> {
        self.as_const().and_then(Constant::to_int)
    }

    /// Returns the trip count of a range that ends at a constant: 0 if this is negative. `None` for
    /// a range whose end is computed, and for other nodes.
    pub fn trip_count(&self) -> Option<i64> {
        match (self.op(), self.src()) {
            (Op::Range, [end, ..]) => i64::try_from(end.as_int()?.max(0)).ok(),
            _ => None,
        }
    }

    /// Returns the node with the same op, dtype and arg over other sources.
    pub fn with_src(&self, src: impl IntoIterator<Item = UOp>) -> UOp {
        UOp::new(self.0.op, self.0.dtype, src, self.0.arg.clone())
    }

    /// Returns a hash of the content, which is the same in every run, except for buffers.
    pub fn structural_hash(&self) -> u64 {
        self.0.hash
    }

    /// Returns the shape of a tensor-level node: `[]` for a constant; `None` for nodes of lower
    /// levels (`Range`, `Index`, ...) and for invalid movements. Elementwise nodes have the shape
    /// of their first source that has one and is no constant, or else that of a constant.
    pub fn shape(&self) -> Option<&[i64]> {
        if let Some(known) = self.0.shape.get() {
            return known.as_deref();
        }
        // Without recursion, as chains may be of any length.
        let mut stack: SmallVec<[&UOp; 4]> = smallvec::smallvec![self];
        while let Some(node) = stack.last() {
            match node.source_of_unknown_shape() {
                Some(source) => stack.push(source),
                None => {
                    node.0.shape.get_or_init(|| node.find_shape());
                    stack.pop();
                }
            }
        }
        self.0.shape.get().and_then(Option::as_deref)
    }

    /// Returns a source whose shape must be computed before that of this node.
    fn source_of_unknown_shape(&self) -> Option<&UOp> {
        let op = self.op();
        let has_shape_of_first = op.is_movement() || op.is_marker() || op == Op::ReduceAxis;
        let count = if has_shape_of_first { 1 } else { usize::from(op.is_elementwise()) * 4 };
        let fits_any_shape = |source: &&UOp| op.is_elementwise() && source.op() == Op::Const;
        for source in self.src().iter().take(count).filter(|source| !fits_any_shape(source)) {
            match source.0.shape.get() {
                None => return Some(source),
                Some(Some(_)) => return None,
                Some(None) => {}
            }
        }
        None
    }

    fn find_shape(&self) -> Option<Dims> {
        let first = || self.src().first().and_then(|source| source.shape());
        match (&self.0.op, &self.0.arg) {
            (Op::Const, _) => Some(Dims::new()),
            (Op::Iota, Arg::Int(count)) => Some(Dims::from_slice(&[*count])),
            (Op::Buffer, Arg::Buffer(buffer)) => Some(Dims::from_slice(&[buffer.size_elements()])),
            (Op::Reshape | Op::Expand, Arg::Dims(dims)) => Some(dims.clone()),
            (Op::Permute, Arg::Dims(axes)) => {
                let shape = first()?;
                let size = |axis: &i64| shape.get(usize::try_from(*axis).ok()?).copied();
                axes.iter().map(size).collect()
            }
            (Op::Pad, Arg::Pairs(pads)) => {
                let sizes = first()?.iter().zip(pads);
                let padded = |(size, (before, after)): (&i64, &(i64, i64))| {
                    size.checked_add(*before)?.checked_add(*after)
                };
                sizes.map(padded).collect()
            }
            (Op::Shrink, Arg::Pairs(ranges)) => {
                ranges.iter().map(|(start, end)| end.checked_sub(*start)).collect()
            }
            (Op::View | Op::Load | Op::Store, Arg::View(tracker)) => {
                Some(Dims::from_slice(tracker.shape()))
            }
            (Op::ReduceAxis, Arg::Reduce(_, axes)) => {
                let mut shape = Dims::from_slice(first()?);
                for axis in axes {
                    *shape.get_mut(usize::try_from(*axis).ok()?)? = 1;
                }
                Some(shape)
            }
            (op, _) if *op == Op::Flip || op.is_marker() => first().map(Dims::from_slice),
            (op, _) if op.is_elementwise() => {
                let values = self.src().iter().filter(|source| source.op() != Op::Const);
                let shape = values.chain(self.src()).find_map(UOp::shape);
                shape.map(Dims::from_slice)
            }
            _ => None,
        }
    }

    /// Returns the device of a tensor-level node: that of its buffer, the target of its copy, or
    /// that of its first source that has one. `None` if neither a copy nor a buffer on a device is
    /// below it, so that it can be computed on any device, and for nodes of lower levels.
    pub fn device(&self) -> Option<&Placement> {
        // Without recursion, as chains may be of any length.
        let mut stack: SmallVec<[&UOp; 4]> = smallvec::smallvec![self];
        while let Some(node) = stack.last() {
            match node.source_of_unknown_device() {
                Some(source) => stack.push(source),
                None => {
                    node.0.device.get_or_init(|| node.find_device());
                    stack.pop();
                }
            }
        }
        self.0.device.get().and_then(Option::as_ref)
    }

    /// Returns the sources whose device the node has, unless its arg says one.
    fn device_sources(&self) -> &[UOp] {
        let op = self.op();
        match op {
            Op::Copy => &[],
            op if op.is_marker() => &self.src()[..1],
            op if op.is_movement() || op.is_elementwise() || op == Op::ReduceAxis => self.src(),
            _ => &[],
        }
    }

    /// Returns a source whose device must be found before that of this node.
    fn source_of_unknown_device(&self) -> Option<&UOp> {
        for source in self.device_sources() {
            match source.0.device.get() {
                None => return Some(source),
                Some(Some(_)) => return None,
                Some(None) => {}
            }
        }
        None
    }

    fn find_device(&self) -> Option<Placement> {
        match (self.op(), self.arg()) {
            (Op::Buffer, Arg::Buffer(buffer)) => buffer.placement().cloned(),
            (Op::Copy, Arg::Device(target)) => Some(target.clone()),
            _ => self.device_sources().iter().find_map(UOp::device).cloned(),
        }
    }

    /// Returns all nodes that this one depends on, sources before users, each once, itself last.
    /// The order depends on the structure only.
    pub fn toposort(&self) -> Vec<UOp> {
        self.order().into_iter().cloned().collect()
    }

    /// Returns the same as [`UOp::toposort`], by reference.
    pub fn order(&self) -> Vec<&UOp> {
        self.order_by(UOp::src)
    }

    /// Returns the nodes that the elements of this one are computed from, in the order of
    /// [`UOp::toposort`].
    pub fn value_order(&self) -> Vec<&UOp> {
        self.order_by(UOp::value_src)
    }

    /// Returns the sources that the elements are computed from: of a `Function` its value.
    pub fn value_src(&self) -> &[UOp] {
        if self.op() == Op::Function { &self.src()[..1] } else { self.src() }
    }

    /// Returns the nodes that are reached by these sources of each, in the order of
    /// [`UOp::toposort`].
    pub fn order_by<'a>(&'a self, sources: impl Fn(&'a UOp) -> &'a [UOp]) -> Vec<&'a UOp> {
        const TYPICAL_COUNT: usize = 32;
        let mut order = Vec::with_capacity(TYPICAL_COUNT);
        let mut seen: FxHashSet<*const Node> = FxHashSet::default();
        seen.reserve(TYPICAL_COUNT);
        let mut stack = Vec::with_capacity(TYPICAL_COUNT);
        stack.push((self, false));
        while let Some((node, are_sources_done)) = stack.pop() {
            if are_sources_done {
                order.push(node);
            } else if seen.insert(Arc::as_ptr(&node.0)) {
                let sources = sources(node);
                if sources.is_empty() {
                    order.push(node);
                    continue;
                }
                stack.push((node, true));
                let sources = sources.iter().rev();
                let is_new = |source: &&UOp| !seen.contains(&Arc::as_ptr(&source.0));
                stack.extend(sources.filter(is_new).map(|source| (source, false)));
            }
        }
        order
    }

    /// Compares nodes by content: op, dtype, arg, then sources. A total order, except for nodes
    /// that differ in the trackers of views only.
    pub fn structural_cmp(&self, other: &UOp) -> std::cmp::Ordering {
        use std::cmp::Ordering::Equal;
        // Without recursion, as chains may be of any length.
        let mut stack = vec![(self, other, false)];
        while let Some((x, y, are_sources_equal)) = stack.pop() {
            if x == y {
                continue;
            }
            let order = match are_sources_equal {
                true => x.src().len().cmp(&y.src().len()).then(x.0.hash.cmp(&y.0.hash)),
                false => x.0.cmp_without_sources(&y.0),
            };
            if order != Equal {
                return order;
            }
            if !are_sources_equal {
                stack.push((x, y, true));
                let pairs = x.src().iter().zip(y.src()).map(|(x, y)| (x, y, false));
                stack.extend(pairs.rev());
            }
        }
        Equal
    }
}

impl PartialEq for UOp {
    fn eq(&self, other: &UOp) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for UOp {}

impl Hash for UOp {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Sources are dropped in a loop, so that a long chain does not overflow the stack.
        let mut pending = std::mem::take(&mut self.src);
        while let Some(source) = pending.pop() {
            if let Some(mut node) = Arc::into_inner(source.0) {
                pending.append(&mut node.src);
            }
        }
        // The node may have been moved, so its entry is identified by being dead. Another dead
        // entry of this hash will do, since the drop of its node then removes this one's.
        let mut shard = INTERNER.shard(self.hash);
        if let Ok(entry) = shard.find_entry(self.hash, |(_, weak)| weak.strong_count() == 0) {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> UOp {
        UOp::int(DType::I32, 3)
    }

    #[test]
    fn new_of_equal_content_is_the_same_node() {
        let a = UOp::binary(Op::Add, three(), UOp::int(DType::I32, 4));
        let b = UOp::binary(Op::Add, three(), UOp::int(DType::I32, 4));
        assert_eq!(a, b);
        assert_ne!(a, UOp::binary(Op::Add, three(), UOp::int(DType::I32, 5)));
        assert_ne!(three(), UOp::int(DType::I64, 3));
    }

    #[test]
    fn trip_counts_are_those_of_constant_ends() {
        let axis = Axis { kind: crate::AxisKind::Loop, number: 0 };
        let range = |end: UOp| UOp::new(Op::Range, DType::I32, [end], Arg::Axis(axis));
        assert_eq!(range(three()).trip_count(), Some(3));
        assert_eq!(range(UOp::int(DType::I32, -3)).trip_count(), Some(0));
        assert_eq!(range(range(three())).trip_count(), None);
        assert_eq!(three().trip_count(), None);
    }

    #[test]
    fn drop_of_a_long_chain_does_not_overflow_the_stack() {
        let mut chain = UOp::int(DType::I32, 77);
        for _ in 0..200_000 {
            chain = UOp::unary(Op::Neg, DType::I32, chain);
        }
        assert_eq!(chain.toposort().len(), 200_001);
        drop(chain);
    }

    #[test]
    fn new_from_many_threads_gives_one_node() {
        fn is_shareable<T: Send + Sync>() {}
        is_shareable::<UOp>();
        let make = || {
            let mut sum = UOp::int(DType::I64, 0);
            for value in 0..2_000 {
                sum = UOp::binary(Op::Add, sum, UOp::int(DType::I64, value));
            }
            sum
        };
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(make)).collect();
        let sums: Vec<UOp> = threads.into_iter().map(|t| t.join().expect("no panic")).collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]));
    }

    #[test]
    fn shape_follows_movements_and_reductions() {
        let buffer = Buffer::new(DType::F32, 6);
        let data = UOp::new(Op::Buffer, DType::F32, [], Arg::Buffer(buffer));
        let dims = |dims: &[i64]| Arg::Dims(Dims::from_slice(dims));
        let matrix = UOp::new(Op::Reshape, DType::F32, [data], dims(&[2, 3]));
        let transposed = UOp::new(Op::Permute, DType::F32, [matrix], dims(&[1, 0]));
        assert_eq!(transposed.shape(), Some([3, 2].as_slice()));
        let arg = Arg::Reduce(Op::Add, Dims::from_slice(&[0]));
        let sum = UOp::new(Op::ReduceAxis, DType::F32, [transposed], arg);
        assert_eq!(sum.shape(), Some([1, 2].as_slice()));
    }

    #[test]
    fn shape_of_an_elementwise_node_is_not_that_of_a_constant() {
        let data = UOp::new(Op::Buffer, DType::I32, [], Arg::Buffer(Buffer::new(DType::I32, 6)));
        let truth = UOp::constant(Constant::bool(true));
        let shape = |node: UOp| node.shape().map(<[i64]>::to_vec);
        assert_eq!(shape(UOp::binary(Op::Add, three(), data.clone())), Some(vec![6]));
        assert_eq!(shape(UOp::binary(Op::Add, data.clone(), three())), Some(vec![6]));
        assert_eq!(shape(UOp::select(truth.clone(), three(), data)), Some(vec![6]));
        assert_eq!(shape(UOp::select(truth, three(), three())), Some(vec![]));
        // A range has no shape.
        let range = UOp::new(Op::Range, DType::I32, [three()], Arg::plain_axis(0));
        assert_eq!(shape(UOp::binary(Op::Mul, range, three())), Some(vec![]));
    }

    #[test]
    fn device_is_that_of_buffers_and_copies() {
        let data = |placement| {
            let buffer = Buffer::on(placement, DType::I32, 1);
            UOp::new(Op::Buffer, DType::I32, [], Arg::Buffer(buffer))
        };
        let jit = Placement::parse("jit").expect("it is a name");
        let iota = UOp::new(Op::Iota, DType::I32, [], Arg::Int(1));
        let (here, there) = (data(Placement::Default), data(jit.clone()));
        let arg = Arg::Device(jit.clone());
        let copy = UOp::new(Op::Copy, DType::I32, [here.clone()], arg.clone());
        let sum = |x: &UOp, y: &UOp| UOp::binary(Op::Add, x.clone(), y.clone());
        assert_eq!(sum(&iota, &three()).device(), None);
        assert_eq!(sum(&iota, &here).device(), Some(&Placement::Default));
        let anywhere =
            UOp::new(Op::Buffer, DType::I32, [], Arg::Buffer(Buffer::on(None, DType::I32, 1)));
        assert_eq!((anywhere.device(), sum(&anywhere, &there).device()), (None, Some(&jit)));
        assert_eq!(sum(&three(), &there).device(), Some(&jit));
        assert_eq!(UOp::unary(Op::Neg, DType::I32, copy).device(), Some(&jit));
        assert_eq!(UOp::new(Op::Copy, DType::I32, [iota], arg).device(), Some(&jit));
        let mut chain = there;
        for _ in 0..200_000 {
            chain = UOp::unary(Op::Neg, DType::I32, chain);
        }
        assert_eq!(chain.device(), Some(&jit));
    }

    #[test]
    fn drop_leaves_no_dead_entry() {
        let base = UOp::int(DType::I64, 987_654_321);
        let deep = || {
            let mut chain = base.clone();
            for _ in 0..8 {
                chain = UOp::unary(Op::Neg, DType::I64, chain);
            }
            chain
        };
        let hash = deep().src()[0].structural_hash();
        (0..100).for_each(|_| drop(deep()));
        let shard = INTERNER.shard(hash);
        let same = shard.iter_hash(hash).filter(|(known, _)| *known == hash).count();
        assert_eq!(same, 0, "entries of nodes that are gone");
    }
}
