//! The meaning of a kernel at any level before it is linear: of the tree over trackers and of
//! the graph over ranges alike. What commands evaluate after each pass.
//!
//! A node's value is an array over the axes (tree) or ranges (lowered) that it depends on, so
//! that nothing is evaluated more often than its meaning asks for, and nothing recurses. This
//! is for kernels of tests and findings, not for large ones.

use gradiff_graph::{
    Arg, AxisKind, Constant, DType, Op, TensorCore, UOp, evaluate, verify_tree_node,
};
use gradiff_view::ShapeTracker;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::Error;
use crate::error::malformed;

/// The most elements that one value may have.
const LIMIT: usize = 1 << 24;

/// Runs a kernel at any level before linear uops on `memories`, which are indexed by slot.
/// `None` is an element that is not initialised or undefined; what is computed from it is
/// undefined too, unless a `where`, an `and` or an `or` does not ask for it. Stores take effect
/// in the order of the sink, each after all loads of its value; what a loop of no step would not
/// reach is evaluated all the same.
///
/// # Errors
/// `OutOfBounds` or `UndefinedIndex` where a load or store whose gate holds misses its memory,
/// `TooLarge` where a value would have more than 2^24 elements, `Malformed` for what is neither
/// a kernel tree nor a lowered kernel.
pub fn interpret(root: &UOp, memories: &mut [Vec<Option<Constant>>]) -> Result<(), Error> {
    if root.op() != Op::Sink {
        return Err(malformed("the root is no sink"));
    }
    for node in root.toposort() {
        verify_tree_node(&node).map_err(|error| malformed(error.to_string()))?;
    }
    for store in root.src() {
        let mut evaluation = Evaluation { memories, values: FxHashMap::default() };
        let mut order = store.toposort();
        if order.pop().is_none_or(|last| last.op() != Op::Store) {
            return Err(malformed("a sink of something else than a store"));
        }
        for node in &order {
            let value = evaluation.node(node)?;
            evaluation.values.insert(node.clone(), value);
        }
        evaluation.store(store)?;
    }
    Ok(())
}

/// What an array varies along, in a fixed order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Along {
    /// An axis of the tree.
    Axis(usize),
    /// A range: the axis it names, its serial among the ranges of that name, the node.
    Range(i64, usize),
}

/// Names and sizes of what an array varies along, outermost first.
type Domain = SmallVec<[(Along, usize); 4]>;

/// The counters of a group.
type Group = SmallVec<[Option<Constant>; 4]>;

/// A value at every point of its domain, row by row.
struct Array {
    domain: Domain,
    data: Vec<Option<Constant>>,
}

impl Array {
    /// The element at a place of a tensor of this shape, row-major.
    fn at_place(&self, shape: &[i64], place: i64) -> Result<Option<Constant>, Error> {
        let beyond = || malformed("a view beyond a fold");
        let (mut at, mut step) = (0, 1);
        for (along, size) in self.domain.iter().rev() {
            let Along::Axis(axis) = along else { return Err(malformed("a range in a tree")) };
            let [own, below @ ..] = shape.get(*axis..).unwrap_or_default() else {
                return Err(beyond());
            };
            let inner: i64 = below.iter().product();
            let digit = place.checked_div(inner).and_then(|place| place.checked_rem(*own));
            at += digit.ok_or_else(beyond)? as usize * step;
            step *= size;
        }
        self.data.get(at).copied().ok_or_else(beyond)
    }
}

struct Evaluation<'a> {
    memories: &'a mut [Vec<Option<Constant>>],
    values: FxHashMap<UOp, Array>,
}

impl Evaluation<'_> {
    fn node(&self, node: &UOp) -> Result<Array, Error> {
        match (node.op(), node.arg()) {
            (Op::Const, Arg::Const(value)) => Ok(scalar(Some(*value))),
            (Op::Load, Arg::View(tracker)) => {
                let global = &node.src()[0];
                let zero = Constant::zero(node.dtype());
                self.tracked(tracker, |place| match place {
                    Some(place) => self.read(global, i128::from(place)),
                    None => Ok(Some(zero)),
                })
            }
            (Op::View, Arg::View(tracker)) if node.src()[0].op() == Op::ReduceAxis => {
                let folded = &node.src()[0];
                let shape = folded.shape().ok_or_else(|| malformed("a fold without a shape"))?;
                self.tracked(tracker, |place| match place {
                    Some(place) => self.values[folded].at_place(shape, place),
                    None => Ok(Some(Constant::zero(node.dtype()))),
                })
            }
            (Op::View, Arg::View(tracker)) => {
                let (leaf, dtype) = (&node.src()[0], node.dtype());
                self.tracked(tracker, |place| match (place, leaf.op(), leaf.as_const()) {
                    (None, ..) => Ok(Some(Constant::zero(dtype))),
                    (_, Op::Const, Some(value)) => Ok(Some(value)),
                    (Some(place), Op::Iota, _) => Ok(Some(Constant::int(dtype, i128::from(place)))),
                    (_, op, _) => Err(malformed(format!("a view of {op}"))),
                })
            }
            (Op::Load, _) => match node.src()[0].src().first().map(UOp::arg) {
                Some(Arg::Local(_)) if node.src().get(1).is_some_and(is_store) => {
                    self.load_stored(node)
                }
                Some(Arg::Local(local)) => self.load_shared(node, local.size_elements),
                _ => self.load(node),
            },
            (Op::Range, Arg::Axis(axis)) => {
                let end = node.src()[0].as_int().ok_or_else(|| malformed("a range without end"))?;
                let end = usize::try_from(end).unwrap_or(0);
                let domain: Domain = SmallVec::from_iter([(self.along(node, axis.number), end)]);
                let count = elements(&domain)?;
                let element = |value: usize| Some(Constant::int(node.dtype(), value as i128));
                Ok(Array { domain, data: (0..count).map(element).collect() })
            }
            (Op::ReduceAxis, Arg::Reduce(op, axes)) => {
                let along: Vec<Along> =
                    axes.iter().map(|axis| Along::Axis(*axis as usize)).collect();
                self.fold(*op, node, &along)
            }
            (Op::Reduce, Arg::Reduce(op, _)) => {
                let mut along = Vec::new();
                let ranges = &node.src()[1..];
                for (number, range) in ranges.iter().enumerate() {
                    if range.op() != Op::Range || ranges[..number].contains(range) {
                        return Err(malformed(format!("a reduction over {}", range.op())));
                    }
                    along.extend(self.values[range].domain.iter().map(|(along, _)| along.clone()));
                }
                self.fold(*op, node, &along)
            }
            (Op::Wmma, Arg::TensorCore(core)) => self.product(node, core),
            // Read through the nodes above them.
            (Op::DefineGlobal | Op::DefineLocal | Op::Index | Op::Iota, _) => Ok(scalar(None)),
            (Op::Store | Op::Barrier, _) => Ok(scalar(None)),
            (op, _) if op.is_elementwise() => {
                let arrays: SmallVec<[&Array; 4]> =
                    node.src().iter().map(|source| &self.values[source]).collect();
                let domain = union(&arrays)?;
                map(domain, &arrays, |src| Ok(element(node, src)))
            }
            (op, _) => Err(malformed(format!("{op} in a kernel"))),
        }
    }

    /// The name of a range: by its axis, and by age among the ranges of that axis.
    fn along(&self, range: &UOp, axis: i64) -> Along {
        let same =
            |other: &&UOp| other.op() == Op::Range && other.arg() == range.arg() && *other != range;
        Along::Range(axis, self.values.keys().filter(same).count())
    }

    /// A value for each place of a tracker; axes of size 1 do not count.
    fn tracked(
        &self,
        tracker: &ShapeTracker,
        value: impl Fn(Option<i64>) -> Result<Option<Constant>, Error>,
    ) -> Result<Array, Error> {
        let domain = domain_of(tracker)?;
        let mut data = Vec::with_capacity(elements(&domain)?);
        each_place(tracker, &domain, |place| {
            data.push(value(place)?);
            Ok(())
        })?;
        Ok(Array { domain, data })
    }

    fn read(&self, global: &UOp, place: i128) -> Result<Option<Constant>, Error> {
        let slot = slot(global)?;
        let memory = self.memories.get(slot).ok_or_else(|| malformed("a slot without memory"))?;
        let found = usize::try_from(place).ok().and_then(|place| memory.get(place));
        let size = memory.len();
        found.copied().ok_or(Error::OutOfBounds { what: "load", slot, index: place, size })
    }

    fn load(&self, node: &UOp) -> Result<Array, Error> {
        let index = lowered_index(&node.src()[0])?;
        let arrays: SmallVec<[&Array; 4]> =
            index.src()[1..].iter().map(|source| &self.values[source]).collect();
        let global = &index.src()[0];
        let undefined = Error::UndefinedIndex { what: "load", slot: slot(global)? };
        map(union(&arrays)?, &arrays, |src| {
            match gate(src) {
                None => return Ok(None),
                Some(false) => return Ok(Some(Constant::zero(node.dtype()))),
                Some(true) => {}
            }
            let place = src[0].and_then(Constant::to_int).ok_or_else(|| undefined.clone())?;
            self.read(global, place)
        })
    }

    /// What this step has stored just now.
    fn load_stored(&self, node: &UOp) -> Result<Array, Error> {
        let index = lowered_index(&node.src()[0])?;
        let places = index.src()[1..].iter().chain(node.src()[1].src().get(1));
        let arrays: SmallVec<[&Array; 4]> = places.map(|source| &self.values[source]).collect();
        map(union(&arrays)?, &arrays, |src| {
            let (stored, places) = src.split_last().ok_or_else(|| malformed("an empty store"))?;
            Ok(match gate(places) {
                None => None,
                Some(false) => Some(Constant::zero(node.dtype())),
                Some(true) => *stored,
            })
        })
    }

    /// What the threads of a group have stored for each other before the barrier, or what the
    /// loops of a fold have stored.
    fn load_shared(&self, node: &UOp, size_elements: i64) -> Result<Array, Error> {
        let (index, before) = (lowered_index(&node.src()[0])?, &node.src()[1..]);
        let stores: Vec<UOp> = match before.first().map(UOp::op) {
            Some(Op::Barrier) => before[0].src().to_vec(),
            _ => before.iter().flat_map(UOp::toposort).filter(is_store).collect(),
        };
        for store in &stores {
            lowered_index(&store.src()[0])?;
        }
        // Each step of the loops that the stores stand in has memory of its own.
        let to = stores.iter().flat_map(|store| [&store.src()[0].src()[1], &store.src()[1]]);
        let along: Vec<&Along> =
            to.flat_map(|source| &self.values[source].domain).map(|(along, _)| along).collect();
        let is_group = |node: &&UOp| {
            let Arg::Axis(axis) = node.arg() else { return false };
            let own = &self.values[*node].domain[0].0;
            let is_around = match before.first() {
                Some(fold) if fold.op() != Op::Barrier => {
                    self.values[fold].domain.iter().any(|(around, _)| around == own)
                }
                _ => matches!(axis.kind, AxisKind::Global | AxisKind::Loop),
            };
            is_around && along.contains(&own)
        };
        let mut ranges: Vec<&UOp> = self.values.keys().filter(is_group).collect();
        ranges.sort_by(|x, y| x.structural_cmp(y));
        let groups = ranges.iter().map(|range| &self.values[*range]);
        let size = usize::try_from(size_elements).unwrap_or(0);
        let outside = |what, index| Error::OutOfBounds { what, slot: usize::MAX, index, size };
        let undefined = |what| Error::UndefinedIndex { what, slot: usize::MAX };
        let mut shared: FxHashMap<Group, Vec<Option<Constant>>> = FxHashMap::default();
        for store in &stores {
            let to = lowered_index(&store.src()[0])?;
            if to.src()[0] != index.src()[0] {
                continue;
            }
            let sources = [&store.src()[1]].into_iter().chain(&to.src()[1..]);
            let sources: Vec<&Array> = sources.map(|source| &self.values[source]).collect();
            let count = sources.len();
            let arrays: SmallVec<[&Array; 4]> = sources.into_iter().chain(groups.clone()).collect();
            map(union(&arrays)?, &arrays, |src| {
                let (stored, src) = (src[0], &src[1..]);
                if gate(&src[..count - 1]) == Some(false) {
                    return Ok(None);
                }
                let place = src[0].and_then(Constant::to_int).ok_or(undefined("store"))?;
                let memory =
                    shared.entry(src[count - 1..].into()).or_insert_with(|| vec![None; size]);
                let element = usize::try_from(place).ok().and_then(|place| memory.get_mut(place));
                *element.ok_or_else(|| outside("store", place))? = stored;
                Ok(None)
            })?;
        }
        let places = index.src()[1..].iter().map(|source| &self.values[source]);
        let count = places.len();
        let arrays: SmallVec<[&Array; 4]> = places.chain(groups).collect();
        map(union(&arrays)?, &arrays, |src| {
            match gate(&src[..count]) {
                None => return Ok(None),
                Some(false) => return Ok(Some(Constant::zero(node.dtype()))),
                Some(true) => {}
            }
            let place = src[0].and_then(Constant::to_int).ok_or(undefined("load"))?;
            let memory = shared.get(&Group::from(&src[count..])).map_or(&[][..], Vec::as_slice);
            let element = usize::try_from(place).ok().and_then(|place| memory.get(place));
            element.copied().ok_or_else(|| outside("load", place))
        })
    }

    /// The elements of a product of matrices, each where the thread that holds it is at work.
    fn product(&self, node: &UOp, core: &TensorCore) -> Result<Array, Error> {
        let arrays: SmallVec<[&Array; 4]> =
            node.src().iter().map(|source| &self.values[source]).collect();
        let (count, first_of_b) = (arrays.len(), core.elements(0));
        let warp = &arrays[count - 1].domain[0].0;
        let strides: Vec<usize> = arrays.iter().map(|array| stride(array, warp)).collect();
        let domain = union(&arrays)?;
        let mut data = Vec::with_capacity(elements(&domain)?);
        visit(&domain, &arrays, |offsets| {
            let number = |source: usize| {
                let value = arrays[source].data[offsets[source]].and_then(Constant::to_int);
                value.and_then(|value| usize::try_from(value).ok())
            };
            let (Some(element), Some(thread)) = (number(count - 2), number(count - 1)) else {
                data.push(None);
                return Ok(());
            };
            let held = |matrix: usize, (holder, element): (usize, usize)| {
                let source = matrix * first_of_b + element;
                let own = offsets[source] - thread * strides[source];
                let value = arrays[source].data[own + holder * strides[source]]?;
                value.to_float().map(|value| value as f32)
            };
            let sum = core.add((thread, element), 0.0, &held);
            data.push(sum.map(|sum| Constant::float(DType::F32, sum.into())));
            Ok(())
        })?;
        Ok(Array { domain, data })
    }

    /// The fold of source 0 along some of its axes, row by row from the identity.
    fn fold(&self, op: Op, node: &UOp, along: &[Along]) -> Result<Array, Error> {
        let source = &self.values[&node.src()[0]];
        let mut loops: Domain = SmallVec::new();
        for range in node.src()[1..].iter().flat_map(|range| &self.values[range].domain) {
            loops.push(range.clone());
        }
        if node.op() == Op::ReduceAxis {
            let folded = source.domain.iter().filter(|(name, _)| along.contains(name));
            loops.extend(folded.cloned());
        }
        let kept = source.domain.iter().filter(|(name, _)| !along.contains(name)).cloned();
        let mut domain: Domain = kept.collect();
        let (count, steps) = (elements(&domain)?, elements(&loops)?);
        let start = start(op, node.dtype())?;
        let outer = domain.len();
        domain.extend(loops);
        let mut data = vec![Some(start); count];
        let mut position = 0;
        visit(&domain, &[source], |offsets| {
            let folded = &mut data[position / steps.max(1)];
            *folded = match (*folded, source.data[offsets[0]]) {
                (Some(x), Some(y)) => evaluate(op, node.dtype(), &[x, y]),
                _ => None,
            };
            position += 1;
            Ok(())
        })?;
        domain.truncate(outer);
        Ok(Array { domain, data })
    }

    fn store(&mut self, store: &UOp) -> Result<(), Error> {
        let value = &self.values[&store.src()[1]];
        let mut writes: Vec<(i128, Option<Constant>)> = Vec::new();
        let global = if let Arg::View(tracker) = store.arg() {
            let domain = domain_of(tracker)?;
            if value.domain.iter().any(|along| !domain.contains(along)) {
                return Err(malformed("a store of more elements than it has places"));
            }
            let mut values = Vec::with_capacity(elements(&domain)?);
            visit(&domain, &[value], |offsets| {
                values.push(value.data[offsets[0]]);
                Ok(())
            })?;
            let mut values = values.into_iter();
            each_place(tracker, &domain, |place| {
                let value = values.next().flatten();
                writes.extend(place.map(|place| (i128::from(place), value)));
                Ok(())
            })?;
            &store.src()[0]
        } else {
            let index = lowered_index(&store.src()[0])?;
            let places = index.src()[1..].iter().map(|source| &self.values[source]);
            let arrays: SmallVec<[&Array; 4]> = places.chain([value]).collect();
            let undefined = Error::UndefinedIndex { what: "store", slot: slot(&index.src()[0])? };
            map(union(&arrays)?, &arrays, |src| {
                let (value, place) = src.split_last().expect("a place and a value");
                if gate(place).ok_or_else(|| undefined.clone())? {
                    let place = place[0].and_then(Constant::to_int);
                    writes.push((place.ok_or_else(|| undefined.clone())?, *value));
                }
                Ok(None)
            })?;
            &index.src()[0]
        };
        let slot = slot(global)?;
        let memory =
            self.memories.get_mut(slot).ok_or_else(|| malformed("a slot without memory"))?;
        let size = memory.len();
        for (index, value) in writes {
            let place = usize::try_from(index).ok().and_then(|place| memory.get_mut(place));
            *place.ok_or(Error::OutOfBounds { what: "store", slot, index, size })? = value;
        }
        Ok(())
    }
}

/// Whether a place (index, gate) may be touched; `None` if that is undefined.
fn gate(place: &[Option<Constant>]) -> Option<bool> {
    place.get(1).map_or(Some(true), |gate| gate.map(Constant::is_true))
}

/// One element of an elementwise op. Undefined sources that cannot matter do not.
fn element(node: &UOp, src: &[Option<Constant>]) -> Option<Constant> {
    let bool = |value: bool| Some(Constant::bool(value));
    match (node.op(), src) {
        (Op::Where, [condition, x, y]) => {
            if (*condition)?.is_true() {
                *x
            } else {
                *y
            }
        }
        (Op::And, _) if src.contains(&bool(false)) => bool(false),
        (Op::Or, _) if src.contains(&bool(true)) => bool(true),
        (op, _) => {
            let src: Option<SmallVec<[Constant; 4]>> = src.iter().copied().collect();
            evaluate(op, node.dtype(), &src?)
        }
    }
}

fn slot(global: &UOp) -> Result<usize, Error> {
    match global.arg() {
        Arg::Global(global) => Ok(global.slot),
        _ => Err(malformed(format!("memory that is a {}", global.op()))),
    }
}

fn is_store(node: &UOp) -> bool {
    node.op() == Op::Store
}

fn lowered_index(node: &UOp) -> Result<&UOp, Error> {
    let is_index = node.op() == Op::Index;
    is_index.then_some(node).ok_or_else(|| malformed(format!("{} as an address", node.op())))
}

fn scalar(value: Option<Constant>) -> Array {
    Array { domain: SmallVec::new(), data: vec![value] }
}

fn domain_of(tracker: &ShapeTracker) -> Result<Domain, Error> {
    let mut domain = Domain::new();
    for (axis, size) in tracker.shape().iter().enumerate().filter(|(_, size)| **size != 1) {
        let size = usize::try_from(*size).map_err(|_| malformed(format!("an axis of {size}")))?;
        domain.push((Along::Axis(axis), size));
    }
    Ok(domain)
}

/// How many points a domain has.
fn elements(domain: &Domain) -> Result<usize, Error> {
    let count = domain.iter().try_fold(1i128, |count, (_, size)| count.checked_mul(*size as i128));
    let elements = count.unwrap_or(i128::MAX);
    let count = usize::try_from(elements).ok().filter(|count| *count <= LIMIT);
    count.ok_or(Error::TooLarge { elements, limit: LIMIT })
}

/// Along what any of the arrays varies.
fn union(arrays: &[&Array]) -> Result<Domain, Error> {
    let mut domain = Domain::new();
    for along in arrays.iter().flat_map(|array| &array.domain) {
        match domain.iter().find(|(name, _)| *name == along.0) {
            None => domain.push(along.clone()),
            Some(known) if known == along => {}
            Some(known) => {
                return Err(malformed(format!("an axis of sizes {} and {}", known.1, along.1)));
            }
        }
    }
    domain.sort();
    Ok(domain)
}

/// The array over the domain whose elements are made from those of the arrays.
fn map(
    domain: Domain,
    arrays: &[&Array],
    mut value: impl FnMut(&[Option<Constant>]) -> Result<Option<Constant>, Error>,
) -> Result<Array, Error> {
    let mut data = Vec::with_capacity(elements(&domain)?);
    let mut src: SmallVec<[Option<Constant>; 4]> = SmallVec::from_elem(None, arrays.len());
    visit(&domain, arrays, |offsets| {
        for (source, (array, offset)) in src.iter_mut().zip(arrays.iter().zip(offsets)) {
            *source = array.data[*offset];
        }
        data.push(value(&src)?);
        Ok(())
    })?;
    Ok(Array { domain, data })
}

/// All points of the domain, row by row: where each array has its element.
fn visit(
    domain: &Domain,
    arrays: &[&Array],
    mut body: impl FnMut(&[usize]) -> Result<(), Error>,
) -> Result<(), Error> {
    let count = elements(domain)?;
    let strides: Vec<SmallVec<[usize; 4]>> =
        domain.iter().map(|(name, _)| arrays.iter().map(|a| stride(a, name)).collect()).collect();
    let mut position = vec![0; domain.len()];
    let mut offsets: SmallVec<[usize; 4]> = SmallVec::from_elem(0, arrays.len());
    for _ in 0..count {
        body(&offsets)?;
        for axis in (0..domain.len()).rev() {
            position[axis] += 1;
            let is_over = position[axis] == domain[axis].1;
            for (offset, stride) in offsets.iter_mut().zip(&strides[axis]) {
                *offset += stride;
                if is_over {
                    *offset -= stride * domain[axis].1;
                }
            }
            if !is_over {
                break;
            }
            position[axis] = 0;
        }
    }
    Ok(())
}

fn stride(array: &Array, name: &Along) -> usize {
    let Some(axis) = array.domain.iter().position(|(along, _)| along == name) else { return 0 };
    array.domain[axis + 1..].iter().map(|(_, size)| size).product()
}

/// All places of a tracker, row by row.
fn each_place(
    tracker: &ShapeTracker,
    domain: &Domain,
    mut body: impl FnMut(Option<i64>) -> Result<(), Error>,
) -> Result<(), Error> {
    let shape = tracker.shape();
    let mut index = vec![0i64; shape.len()];
    for _ in 0..elements(domain)? {
        body(tracker.locate(&index))?;
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            if index[axis] < shape[axis] {
                break;
            }
            index[axis] = 0;
        }
    }
    Ok(())
}

/// The start of a reduction by `op`, as bits: stated here once more, so that kernels are not
/// judged by the very constant that they were made with.
fn start(op: Op, dtype: DType) -> Result<Constant, Error> {
    let bits = match (op, dtype) {
        (Op::Add, _) => 0,
        (Op::Mul, DType::F16) => 0x3c00,
        (Op::Mul, DType::BF16) => 0x3f80,
        (Op::Mul, DType::F32) => 0x3f80_0000,
        (Op::Mul, DType::F64) => 0x3ff0_0000_0000_0000,
        (Op::Mul, _) => 1,
        (Op::Max, DType::I8) => 0x80,
        (Op::Max, DType::I16) => 0x8000,
        (Op::Max, DType::I32) => 0x8000_0000,
        (Op::Max, DType::I64) => 0x8000_0000_0000_0000,
        (Op::Max, DType::F16) => 0xfc00,
        (Op::Max, DType::BF16) => 0xff80,
        (Op::Max, DType::F32) => 0xff80_0000,
        (Op::Max, DType::F64) => 0xfff0_0000_0000_0000,
        (Op::Max, _) => 0,
        _ => return Err(malformed(format!("a reduction by {op}"))),
    };
    Ok(Constant::from_bits(dtype, bits))
}
