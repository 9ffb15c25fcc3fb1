//! Kernels at any level before they are linear: trees over trackers and graphs over ranges.
//!
//! The value of a node is an array over the axes (tree) or ranges (lowered) that it depends on, so
//! that each node is evaluated once for each combination, and nothing recurses. It is meant for the
//! small kernels of tests and findings.

use gradiff_graph::tensor_core::{Coordinates, TensorCore};
use gradiff_graph::verify::verify_tree_node;
use gradiff_graph::{Arg, AxisKind, Constant, DType, Op, UOp};
use gradiff_view::ShapeTracker;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::{Elements, product, scalar};

/// Most elements of a value.
const LIMIT: usize = 1 << 24;

/// Runs a kernel at any level before linear uops on `memories`, which are indexed by slot. `None`
/// is an element that is uninitialised or undefined; a value computed from it is undefined, too,
/// unless a `where`, an `and` or an `or` does not depend on it. Stores take effect in the order of
/// the sink, each after all loads of its value. The body of a loop without iterations is evaluated
/// all the same.
///
/// # Errors
/// A load or store whose gate is true outside its memory or at an undefined index, a value of more
/// than 2^24 elements, a graph that is neither a kernel tree nor a lowered kernel.
pub fn interpret(root: &UOp, memories: &mut [Elements]) -> Result<(), String> {
    if root.op() != Op::Sink {
        return Err(malformed("the root is not a sink"));
    }
    for node in root.toposort() {
        verify_tree_node(&node).map_err(|error| malformed(error.to_string()))?;
    }
    for store in root.src() {
        let mut evaluation = Evaluation { memories, values: FxHashMap::default() };
        let mut order = store.toposort();
        if order.pop().is_none_or(|last| last.op() != Op::Store) {
            return Err(malformed("a sink of a node that is not a store"));
        }
        for node in &order {
            let value = evaluation.node(node)?;
            evaluation.values.insert(node.clone(), value);
        }
        evaluation.store(store)?;
    }
    Ok(())
}

/// A dimension of an array. Arrays have their dimensions in this order, outermost first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Dim {
    /// An axis of the tree.
    Axis(usize),
    /// A range: its number, and its serial among the ranges of that number.
    Range(i64, usize),
}

/// The dimensions of an array and their sizes, outermost first.
type Domain = SmallVec<[(Dim, usize); 4]>;

/// The counters of the loops around a local array, which select its copy.
type Group = SmallVec<[Option<Constant>; 4]>;

/// A value at every point of its domain, row by row.
struct Array {
    domain: Domain,
    data: Vec<Option<Constant>>,
}

impl Array {
    /// Returns the element at an offset in a row-major tensor of this shape.
    fn at_offset(&self, shape: &[i64], offset: i64) -> Result<Option<Constant>, String> {
        let out_of_bounds = || malformed("a view exceeds a reduction");
        let (mut at, mut stride) = (0, 1);
        for (dim, size) in self.domain.iter().rev() {
            let Dim::Axis(axis) = dim else { return Err(malformed("a range in a tree")) };
            let [axis_size, inner_sizes @ ..] = shape.get(*axis..).unwrap_or_default() else {
                return Err(out_of_bounds());
            };
            let inner: i64 = inner_sizes.iter().product();
            let index = offset.checked_div(inner).and_then(|row| row.checked_rem(*axis_size));
            at += index.ok_or_else(out_of_bounds)? as usize * stride;
            stride *= size;
        }
        self.data.get(at).copied().ok_or_else(out_of_bounds)
    }
}

struct Evaluation<'a> {
    memories: &'a mut [Vec<Option<Constant>>],
    values: FxHashMap<UOp, Array>,
}

impl Evaluation<'_> {
    fn node(&self, node: &UOp) -> Result<Array, String> {
        match (node.op(), node.arg()) {
            (Op::Const, Arg::Const(value)) => Ok(scalar(Some(*value))),
            (Op::Load, Arg::View(tracker)) => {
                let global = &node.src()[0];
                let zero = scalar::zero(node.dtype());
                self.tracked(tracker, |offset| match offset {
                    Some(offset) => self.read(global, i128::from(offset)),
                    None => Ok(Some(zero)),
                })
            }
            (Op::View, Arg::View(tracker)) if node.src()[0].op() == Op::ReduceAxis => {
                let reduction = &node.src()[0];
                let shape =
                    reduction.shape().ok_or_else(|| malformed("a reduction without a shape"))?;
                self.tracked(tracker, |offset| match offset {
                    Some(offset) => self.values[reduction].at_offset(shape, offset),
                    None => Ok(Some(scalar::zero(node.dtype()))),
                })
            }
            (Op::View, Arg::View(tracker)) => {
                let (leaf, dtype) = (&node.src()[0], node.dtype());
                self.tracked(tracker, |offset| match (offset, leaf.op(), leaf.as_const()) {
                    (None, ..) => Ok(Some(scalar::zero(dtype))),
                    (_, Op::Const, Some(value)) => Ok(Some(value)),
                    (Some(offset), Op::Iota, _) => Ok(scalar::number(dtype, i128::from(offset))),
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
                let domain: Domain = SmallVec::from_iter([(self.dim(node, axis.number), end)]);
                let count = elements(&domain)?;
                let element = |value: usize| scalar::int(node.dtype(), value as i128);
                Ok(Array { domain, data: (0..count).map(element).collect() })
            }
            (Op::ReduceAxis, Arg::Reduce(op, axes)) => {
                let value = &node.src()[0];
                let is_reduced = |(dim, _): &&(Dim, usize)| match dim {
                    Dim::Axis(axis) => axes.contains(&(*axis as i64)),
                    Dim::Range(..) => false,
                };
                let loops = self.values[value].domain.iter().filter(is_reduced).cloned();
                self.accumulate(*op, &reduced(*op, value), loops.collect())
            }
            (Op::Reduce, Arg::Reduce(op, _)) => {
                let loops = self.loops(&node.src()[1..])?;
                self.accumulate(*op, &reduced(*op, &node.src()[0]), loops)
            }
            (Op::Assign, _) => {
                let [before, next] = [&node.src()[0], &node.src()[1]];
                let src: SmallVec<[Option<&UOp>; 3]> =
                    next.src().iter().map(|src| Some(src).filter(|src| *src != before)).collect();
                self.accumulate(next.op(), &src, self.loops(&before.src()[1..])?)
            }
            (Op::Wmma, Arg::TensorCore(core)) => self.product(node, core),
            // Their users read them.
            (Op::DefineGlobal | Op::DefineLocal | Op::DefineAcc, _) => Ok(scalar(None)),
            (Op::Index | Op::Iota, _) => Ok(scalar(None)),
            (Op::Store | Op::Barrier, _) => Ok(scalar(None)),
            (op, _) if op.is_elementwise() => {
                let arrays: SmallVec<[&Array; 4]> =
                    node.src().iter().map(|source| &self.values[source]).collect();
                let domain = union(&arrays)?;
                map(domain, &arrays, |src| Ok(scalar::element(op, node.dtype(), src)))
            }
            (op, _) => Err(malformed(format!("{op} in a kernel"))),
        }
    }

    /// Returns the dimension of a range: its number, and its serial among the ranges evaluated so
    /// far that have the same number.
    fn dim(&self, range: &UOp, axis: i64) -> Dim {
        let same = |candidate: &&UOp| {
            let is_of_axis = matches!(candidate.arg(), Arg::Axis(known) if known.number == axis);
            candidate.op() == Op::Range && is_of_axis && *candidate != range
        };
        Dim::Range(axis, self.values.keys().filter(same).count())
    }

    /// Evaluates `value` at the offset of each element of a tracker; `None` for masked ones.
    fn tracked(
        &self,
        tracker: &ShapeTracker,
        value: impl Fn(Option<i64>) -> Result<Option<Constant>, String>,
    ) -> Result<Array, String> {
        let domain = domain_of(tracker)?;
        let mut data = Vec::with_capacity(elements(&domain)?);
        for_each_offset(tracker, &domain, |offset| {
            data.push(value(offset)?);
            Ok(())
        })?;
        Ok(Array { domain, data })
    }

    fn read(&self, global: &UOp, index: i128) -> Result<Option<Constant>, String> {
        let slot = slot(global)?;
        let memory = self.memories.get(slot).ok_or_else(|| malformed("a slot without memory"))?;
        let found = usize::try_from(index).ok().and_then(|index| memory.get(index));
        let size = memory.len();
        found.copied().ok_or_else(|| out_of_bounds("load", &format!("data{slot}"), index, size))
    }

    fn load(&self, node: &UOp) -> Result<Array, String> {
        let address = address_of(&node.src()[0])?;
        let arrays: SmallVec<[&Array; 4]> =
            address.src()[1..].iter().map(|source| &self.values[source]).collect();
        let global = &address.src()[0];
        let name = format!("data{}", slot(global)?);
        map(union(&arrays)?, &arrays, |src| {
            match gate(src) {
                None => return Ok(None),
                Some(false) => return Ok(Some(scalar::zero(node.dtype()))),
                Some(true) => {}
            }
            let index = src[0].and_then(scalar::to_int);
            let index = index.ok_or_else(|| undefined_index("load", &name))?;
            self.read(global, index)
        })
    }

    /// Loads the value that the same iteration has just stored.
    fn load_stored(&self, node: &UOp) -> Result<Array, String> {
        let address = address_of(&node.src()[0])?;
        let parts = address.src()[1..].iter().chain(node.src()[1].src().get(1));
        let arrays: SmallVec<[&Array; 4]> = parts.map(|source| &self.values[source]).collect();
        map(union(&arrays)?, &arrays, |src| {
            let (stored, parts) = src.split_last().ok_or_else(|| malformed("an empty store"))?;
            Ok(match gate(parts) {
                None => None,
                Some(false) => Some(scalar::zero(node.dtype())),
                Some(true) => *stored,
            })
        })
    }

    /// Loads from a local array: what the threads of the group have stored before the barrier, or
    /// what the loops of a reduction have stored.
    fn load_shared(&self, node: &UOp, size_elements: i64) -> Result<Array, String> {
        let (address, before) = (address_of(&node.src()[0])?, &node.src()[1..]);
        let stores: Vec<UOp> = match before.first().map(UOp::op) {
            Some(Op::Barrier) => {
                before[0].src().iter().filter(|src| is_store(src)).cloned().collect()
            }
            _ => before.iter().flat_map(UOp::toposort).filter(is_store).collect(),
        };
        for store in &stores {
            address_of(&store.src()[0])?;
        }
        // Each iteration of the loops around the stores has its own array.
        let store_address =
            stores.iter().flat_map(|store| [&store.src()[0].src()[1], &store.src()[1]]);
        let store_dims: Vec<&Dim> = store_address
            .flat_map(|source| &self.values[source].domain)
            .map(|(store_dims, _)| store_dims)
            .collect();
        let is_group = |node: &&UOp| {
            let Arg::Axis(axis) = node.arg() else { return false };
            let dim = &self.values[*node].domain[0].0;
            let is_around = match before.first() {
                Some(reduction) if reduction.op() != Op::Barrier => {
                    self.values[reduction].domain.iter().any(|(around, _)| around == dim)
                }
                // A barrier ends the loops of the stores before it.
                barrier => {
                    let is_ended = barrier.is_some_and(|barrier| barrier.src().contains(node));
                    matches!(axis.kind, AxisKind::Global | AxisKind::Loop) && !is_ended
                }
            };
            is_around && store_dims.contains(&dim)
        };
        let mut ranges: Vec<&UOp> = self.values.keys().filter(is_group).collect();
        ranges.sort_by(|x, y| x.structural_cmp(y));
        let groups = ranges.iter().map(|range| &self.values[*range]);
        let size = usize::try_from(size_elements).unwrap_or(0);
        let outside = |access, index| out_of_bounds(access, "a local array", index, size);
        let undefined = |access| undefined_index(access, "a local array");
        let mut shared: FxHashMap<Group, Vec<Option<Constant>>> = FxHashMap::default();
        for store in &stores {
            let store_address = address_of(&store.src()[0])?;
            if store_address.src()[0] != address.src()[0] {
                continue;
            }
            let sources = [&store.src()[1]].into_iter().chain(&store_address.src()[1..]);
            let sources: Vec<&Array> = sources.map(|source| &self.values[source]).collect();
            let count = sources.len();
            let arrays: SmallVec<[&Array; 4]> = sources.into_iter().chain(groups.clone()).collect();
            map(union(&arrays)?, &arrays, |src| {
                let (stored, src) = (src[0], &src[1..]);
                if gate(&src[..count - 1]) == Some(false) {
                    return Ok(None);
                }
                let index = src[0].and_then(scalar::to_int).ok_or(undefined("store"))?;
                let memory =
                    shared.entry(src[count - 1..].into()).or_insert_with(|| vec![None; size]);
                let element = usize::try_from(index).ok().and_then(|index| memory.get_mut(index));
                *element.ok_or_else(|| outside("store", index))? = stored;
                Ok(None)
            })?;
        }
        let parts = address.src()[1..].iter().map(|source| &self.values[source]);
        let count = parts.len();
        let arrays: SmallVec<[&Array; 4]> = parts.chain(groups).collect();
        map(union(&arrays)?, &arrays, |src| {
            match gate(&src[..count]) {
                None => return Ok(None),
                Some(false) => return Ok(Some(scalar::zero(node.dtype()))),
                Some(true) => {}
            }
            let index = src[0].and_then(scalar::to_int).ok_or(undefined("load"))?;
            let memory = shared.get(&Group::from(&src[count..])).map_or(&[][..], Vec::as_slice);
            let element = usize::try_from(index).ok().and_then(|index| memory.get(index));
            element.copied().ok_or_else(|| outside("load", index))
        })
    }

    /// Computes the elements of a matrix product, at the counters of the threads that hold them.
    fn product(&self, node: &UOp, core: &TensorCore) -> Result<Array, String> {
        let arrays: SmallVec<[&Array; 4]> =
            node.src().iter().map(|source| &self.values[source]).collect();
        let (count, first_of_b) = (arrays.len(), core.elements(0));
        let warp = &arrays[count - 1].domain[0].0;
        let strides: Vec<usize> = arrays.iter().map(|array| stride(array, warp)).collect();
        let domain = union(&arrays)?;
        let mut data = Vec::with_capacity(elements(&domain)?);
        visit(&domain, &arrays, |offsets| {
            let number = |source: usize| {
                let value = arrays[source].data[offsets[source]].and_then(scalar::to_int);
                value.and_then(|value| usize::try_from(value).ok())
            };
            let (Some(element), Some(thread)) = (number(count - 2), number(count - 1)) else {
                data.push(None);
                return Ok(());
            };
            let operand = |matrix: usize, at: Coordinates| {
                let (holder, element) = core.holder(matrix, at);
                let source = matrix * first_of_b + element;
                let base = offsets[source] - thread * strides[source];
                arrays[source].data[base + holder * strides[source]]
            };
            let (at, zero) = (core.coordinates(2, thread, element), scalar::zero(DType::F32));
            data.push(product::element(core, at, zero, core.is_tf32, &operand));
            Ok(())
        })?;
        Ok(Array { domain, data })
    }

    /// Returns the dimensions of the ranges that a reduction runs over.
    fn loops(&self, ranges: &[UOp]) -> Result<Domain, String> {
        let mut loops = Domain::new();
        for (number, range) in ranges.iter().enumerate() {
            if range.op() != Op::Range || ranges[..number].contains(range) {
                return Err(malformed(format!("a reduction over {}", range.op())));
            }
            loops.extend(self.values[range].domain.iter().cloned());
        }
        Ok(loops)
    }

    /// Runs loops in row-major order, with an accumulator that starts with the identity and becomes
    /// the op of these sources in each iteration; `None` is the accumulator itself.
    fn accumulate(&self, op: Op, src: &[Option<&UOp>], loops: Domain) -> Result<Array, String> {
        let sources: SmallVec<[&UOp; 2]> = src.iter().flatten().copied().collect();
        let dtype = sources.first().ok_or_else(|| malformed("a reduction of nothing"))?.dtype();
        let arrays: SmallVec<[&Array; 4]> =
            sources.iter().map(|source| &self.values[*source]).collect();
        let is_reduced = |dim: &Dim| loops.iter().any(|(reduced, _)| reduced == dim);
        let mut domain = union(&arrays)?;
        domain.retain(|(dim, _)| !is_reduced(dim));
        let (count, iterations) = (elements(&domain)?, elements(&loops)?);
        let start = scalar::identity(if op == Op::MulAcc { Op::Add } else { op }, dtype);
        let start = start.ok_or_else(|| malformed(format!("a reduction by {op}")))?;
        let outer = domain.len();
        domain.extend(loops);
        let mut data = vec![Some(start); count];
        let mut position = 0;
        visit(&domain, &arrays, |offsets| {
            let accumulator = &mut data[position / iterations.max(1)];
            let mut values = arrays.iter().zip(offsets).map(|(array, offset)| array.data[*offset]);
            *accumulator = match arrays.len() {
                // A reduction of single elements adds nothing: -0.0 stays -0.0.
                1 if iterations == 1 => values.next().flatten(),
                _ => {
                    let src: Option<SmallVec<[Constant; 3]>> =
                        src.iter().map(|x| x.map_or(*accumulator, |_| values.next()?)).collect();
                    src.and_then(|src| scalar::evaluate(op, dtype, &src))
                }
            };
            position += 1;
            Ok(())
        })?;
        domain.truncate(outer);
        Ok(Array { domain, data })
    }

    fn store(&mut self, store: &UOp) -> Result<(), String> {
        let value = &self.values[&store.src()[1]];
        let mut writes: Vec<(i128, Option<Constant>)> = Vec::new();
        let global = if let Arg::View(tracker) = store.arg() {
            let domain = domain_of(tracker)?;
            if value.domain.iter().any(|dim| !domain.contains(dim)) {
                return Err(malformed("a store of a value with more dimensions than its view"));
            }
            let mut values = Vec::with_capacity(elements(&domain)?);
            visit(&domain, &[value], |offsets| {
                values.push(value.data[offsets[0]]);
                Ok(())
            })?;
            let mut values = values.into_iter();
            for_each_offset(tracker, &domain, |offset| {
                let value = values.next().flatten();
                writes.extend(offset.map(|offset| (i128::from(offset), value)));
                Ok(())
            })?;
            &store.src()[0]
        } else {
            let address = address_of(&store.src()[0])?;
            let parts = address.src()[1..].iter().map(|source| &self.values[source]);
            let arrays: SmallVec<[&Array; 4]> = parts.chain([value]).collect();
            let name = format!("data{}", slot(&address.src()[0])?);
            let undefined = || undefined_index("store", &name);
            map(union(&arrays)?, &arrays, |src| {
                let (value, parts) = src.split_last().expect("an index and a value");
                if gate(parts).ok_or_else(undefined)? {
                    let index = parts[0].and_then(scalar::to_int);
                    writes.push((index.ok_or_else(undefined)?, *value));
                }
                Ok(None)
            })?;
            &address.src()[0]
        };
        let slot = slot(global)?;
        let memory =
            self.memories.get_mut(slot).ok_or_else(|| malformed("a slot without memory"))?;
        let size = memory.len();
        for (index, value) in writes {
            let element = usize::try_from(index).ok().and_then(|index| memory.get_mut(index));
            let outside = || out_of_bounds("store", &format!("data{slot}"), index, size);
            let element = element.ok_or_else(outside)?;
            *element = match store.arg() {
                // An update, after those of the iterations before it.
                Arg::Reduce(op, _) => element
                    .zip(value)
                    .and_then(|(element, value)| scalar::reduce(*op, element, value)),
                _ => value,
            };
        }
        Ok(())
    }
}

/// Returns the gate among the parts of an address (index, gate), true if there is none; `None` if
/// it is undefined.
fn gate(parts: &[Option<Constant>]) -> Option<bool> {
    parts.get(1).map_or(Some(true), |gate| gate.map(scalar::is_true))
}

fn slot(global: &UOp) -> Result<usize, String> {
    match global.arg() {
        Arg::Global(global) => Ok(global.slot),
        _ => Err(malformed(format!("memory that is a {}", global.op()))),
    }
}

fn is_store(node: &UOp) -> bool {
    node.op() == Op::Store
}

fn address_of(node: &UOp) -> Result<&UOp, String> {
    let is_index = node.op() == Op::Index;
    is_index.then_some(node).ok_or_else(|| malformed(format!("{} as an address", node.op())))
}

fn scalar(value: Option<Constant>) -> Array {
    Array { domain: SmallVec::new(), data: vec![value] }
}

fn domain_of(tracker: &ShapeTracker) -> Result<Domain, String> {
    let mut domain = Domain::new();
    for (axis, size) in tracker.shape().iter().enumerate().filter(|(_, size)| **size != 1) {
        let size = usize::try_from(*size).map_err(|_| malformed(format!("an axis of {size}")))?;
        domain.push((Dim::Axis(axis), size));
    }
    Ok(domain)
}

/// Returns the number of points of a domain.
fn elements(domain: &Domain) -> Result<usize, String> {
    let count = domain.iter().try_fold(1i128, |count, (_, size)| count.checked_mul(*size as i128));
    let elements = count.unwrap_or(i128::MAX);
    let count = usize::try_from(elements).ok().filter(|count| *count <= LIMIT);
    count.ok_or_else(|| format!("a value of {elements} elements: at most {LIMIT} are possible"))
}

/// Returns the union of the domains of the arrays.
fn union(arrays: &[&Array]) -> Result<Domain, String> {
    let mut domain = Domain::new();
    for dim in arrays.iter().flat_map(|array| &array.domain) {
        match domain.iter().find(|(known, _)| *known == dim.0) {
            None => domain.push(dim.clone()),
            Some(known) if known == dim => {}
            Some(known) => {
                return Err(malformed(format!("an axis of sizes {} and {}", known.1, dim.1)));
            }
        }
    }
    domain.sort();
    Ok(domain)
}

/// Computes an array over the domain from the elements of other arrays.
fn map(
    domain: Domain,
    arrays: &[&Array],
    mut value: impl FnMut(&[Option<Constant>]) -> Result<Option<Constant>, String>,
) -> Result<Array, String> {
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

/// Visits all points of the domain in row-major order, with the offset of each array's element.
fn visit(
    domain: &Domain,
    arrays: &[&Array],
    mut body: impl FnMut(&[usize]) -> Result<(), String>,
) -> Result<(), String> {
    let count = elements(domain)?;
    let strides: Vec<SmallVec<[usize; 4]>> =
        domain.iter().map(|(dim, _)| arrays.iter().map(|a| stride(a, dim)).collect()).collect();
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

fn stride(array: &Array, dim: &Dim) -> usize {
    let Some(axis) = array.domain.iter().position(|(known, _)| known == dim) else { return 0 };
    array.domain[axis + 1..].iter().map(|(_, size)| size).product()
}

/// Visits the offsets of all elements of a tracker in row-major order; `None` for masked ones.
fn for_each_offset(
    tracker: &ShapeTracker,
    domain: &Domain,
    mut body: impl FnMut(Option<i64>) -> Result<(), String>,
) -> Result<(), String> {
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

/// The sources of a reduction of a value, in the order of [`scalar::reduce`]; `None` is the value
/// so far.
fn reduced(op: Op, value: &UOp) -> [Option<&UOp>; 2] {
    if op == Op::Max { [Some(value), None] } else { [None, Some(value)] }
}

/// Describes a graph that is not a kernel.
fn malformed(problem: impl std::fmt::Display) -> String {
    format!("not a kernel: {problem}")
}

fn out_of_bounds(access: &str, array: &str, index: i128, size: usize) -> String {
    format!("{access} element {index} of {array}, which has {size}")
}

fn undefined_index(access: &str, array: &str) -> String {
    format!("{access} at an undefined element of {array}")
}
