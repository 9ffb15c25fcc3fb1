//! `linearize`: puts the graph of a kernel into a linear order of uops, for the passes over uops.
//!
//! A value depends on the ranges that it uses, except for those that a `Reduce` in between closes.
//! It is placed in the outermost loop in which all of them are open, so that nothing is computed
//! more often than necessary. A reduction is an accumulator that is set before its loops, assigned
//! in them and read after them. Each reduction opens loops of its own; what two of them have in
//! common is computed in both, and a range may be open twice (a reduction within a reduction over
//! the same range). Stores are in the order of the sink. If none of their arrays is loaded, they
//! are in the same outer loops as far as these are equal; else each has a loop nest of its own,
//! within the loops that are distributed at the launch.
//!
//! Nothing here recurses, so that long chains of nodes do not overflow the stack.

use gradiff_graph::{Arg, Axis, AxisKind, Constant, DType, Instruction, Linear, Op, UOp};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::Error;
use crate::accumulators;
use crate::error::malformed;
use crate::free::Numbered;
use crate::globals::globals;
use crate::nodes::loads_what_it_stores;
use crate::scatter;

/// Linearizes a lowered kernel, a graph over ranges as it is after the last of
/// [`crate::passes::PASSES`].
///
/// # Errors
/// If `root` is not a sink of lowered stores, or uses a range outside of its loop.
pub fn linearize(root: &UOp, name: String) -> Result<Linear, Error> {
    with_globals(root, &globals(root)?, name)
}

/// Linearizes like [`linearize`]; all `globals` become parameters, whether they are read or not.
pub(crate) fn with_globals(root: &UOp, globals: &[UOp], name: String) -> Result<Linear, Error> {
    let root = accumulators::explicit(&scatter::explicit(root)?, |_| true)?;
    let mut linearizer = Linearizer::new(&root)?;
    for global in globals {
        linearizer.push(ROOT, Instruction::of(global, SmallVec::new()));
        linearizer.globals.push((global.clone(), linearizer.uops.len() as u32 - 1));
    }
    let may_share = !loads_what_it_stores(&linearizer.nodes, |_| true);
    let mut open = ROOT;
    for store in root.src() {
        let outer = linearizer.shared_scope(open, store, may_share)?;
        linearizer.close(open, outer);
        open = linearizer.store(store, outer)?;
    }
    linearizer.close(open, ROOT);
    Ok(Linear { name, uops: linearizer.flatten() })
}

/// The scope outside of all loops.
const ROOT: u32 = 0;

/// An open loop, or the root.
struct Scope {
    parent: u32,
    /// The bit of its range; 0 for the root.
    bit: u64,
    /// The `Range` that opens it; none for the root.
    range: u32,
    items: Vec<Item>,
}

enum Item {
    Uop(u32),
    Loop(u32),
}

/// A task of the work list; nodes and scopes by number.
enum Task {
    /// Emit the node for the scope, after its sources.
    Visit(u32, u32),
    /// Emit the node; its sources have been emitted.
    Emit(u32, u32),
    /// Close the loops from `inner` up to `at`.
    CloseLoops { inner: u32, at: u32 },
    /// Assign the accumulator of the reduction `node` its next value, which has been emitted in
    /// `inner`, and close the loops up to `at`.
    Close { node: u32, inner: u32, at: u32, accumulator: u32 },
}

struct Linearizer {
    nodes: Vec<UOp>,
    src: Vec<SmallVec<[u32; 4]>>,
    /// The ranges that each node depends on.
    free: Vec<u64>,
    /// Nodes that are ranges, by bit.
    ranges: Vec<u32>,
    globals: Vec<(UOp, u32)>,
    scopes: Vec<Scope>,
    /// The uops so far; their sources are positions in this list.
    uops: Vec<Instruction>,
    /// The uop of each node (first) in a scope (second).
    emitted: FxHashMap<(u32, u32), u32>,
    constants: Vec<(Constant, u32)>,
    accumulator_count: i64,
    /// True if the kernel has barriers; if not, local arrays are private to a thread.
    has_barrier: bool,
    /// The stores before which their barrier has waited for readers.
    staging: FxHashSet<u32>,
    /// The local arrays that have been read.
    read: FxHashSet<u32>,
}

/// Makes a uop of the op, type and arg of a node.
trait OfNode {
    fn of(node: &UOp, src: SmallVec<[u32; 4]>) -> Instruction;
}

impl OfNode for Instruction {
    fn of(node: &UOp, src: SmallVec<[u32; 4]>) -> Instruction {
        Instruction::new(node.op(), node.dtype(), src, node.arg().clone())
    }
}

impl Linearizer {
    fn new(root: &UOp) -> Result<Linearizer, Error> {
        let Numbered { nodes, src, free, ranges } = Numbered::of(root)?;
        let root = Scope { parent: ROOT, bit: 0, range: 0, items: Vec::new() };
        Ok(Linearizer {
            src,
            free,
            ranges,
            globals: Vec::new(),
            scopes: vec![root],
            uops: Vec::with_capacity(2 * nodes.len()),
            emitted: FxHashMap::default(),
            constants: Vec::new(),
            accumulator_count: 0,
            staging: FxHashSet::default(),
            read: FxHashSet::default(),
            has_barrier: nodes.iter().any(|node| node.op() == Op::Barrier),
            nodes,
        })
    }

    /// Emits a store in the loops of the ranges that it depends on. Those around the scope `outer`
    /// are open; the others are opened in it. Returns the scope of the store.
    fn store(&mut self, store: &UOp, outer: u32) -> Result<u32, Error> {
        let (number, loops) = self.nest(store)?;
        if self.is_empty(&loops)? {
            return Ok(outer);
        }
        // Values loaded before the previous store may be out of date.
        self.emitted.clear();
        let open = self.path(outer).len();
        let mut scope = outer;
        for range in &loops[open..] {
            scope = self.open(*range, scope)?;
        }
        self.run(number, scope)?;
        Ok(scope)
    }

    /// Returns the number of a store, and the ranges that it depends on, outermost first by axis.
    fn nest(&self, store: &UOp) -> Result<(u32, SmallVec<[u32; 4]>), Error> {
        let number = self.nodes.iter().position(|node| node == store);
        let number = number.ok_or_else(|| malformed("a store that is not in the graph"))?;
        let mut loops = self.ranges_of(self.free[number]);
        loops.sort_by_key(|range| (nesting(self.nodes[*range as usize].arg()), *range));
        Ok((number as u32, loops))
    }

    /// Returns the innermost of the open scopes whose loops are the outermost ones of a store: all
    /// of these if it may share them, else those that are distributed at the launch.
    fn shared_scope(&self, open: u32, store: &UOp, may_share: bool) -> Result<u32, Error> {
        let (_, loops) = self.nest(store)?;
        let bits = loops.iter().map(|range| self.free[*range as usize]);
        let path = self.path(open);
        let is_shared = |(scope, bit): &(&u32, u64)| {
            let Scope { bit: known, range, .. } = self.scopes[**scope as usize];
            let is_launched = || axis(&self.uops[range as usize].arg).kind.is_launched();
            known == *bit && (may_share || is_launched())
        };
        let shared = path.iter().zip(bits).take_while(is_shared);
        Ok(shared.last().map_or(ROOT, |(scope, _)| *scope))
    }

    /// Returns the scopes from the outermost loop in to `scope`.
    fn path(&self, mut scope: u32) -> SmallVec<[u32; 4]> {
        let mut path = SmallVec::new();
        while scope != ROOT {
            path.push(scope);
            scope = self.scopes[scope as usize].parent;
        }
        path.reverse();
        path
    }

    fn run(&mut self, root: u32, scope: u32) -> Result<(), Error> {
        let mut tasks = vec![Task::Visit(root, scope)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Visit(node, scope) => self.visit(node, scope, &mut tasks)?,
                Task::Emit(node, at) => {
                    if self.find(node, at).is_none() {
                        self.emit(node, at)?;
                    }
                }
                Task::CloseLoops { inner, at } => self.close(inner, at),
                Task::Close { node, inner, at, accumulator } => {
                    self.assign(node, inner, accumulator)?;
                    self.close(inner, at);
                    self.emitted.insert((node, at), accumulator);
                }
            }
        }
        Ok(())
    }

    fn visit(&mut self, node: u32, scope: u32, tasks: &mut Vec<Task>) -> Result<(), Error> {
        let at = self.scope_of(node, scope);
        if self.find(node, at).is_some() {
            return Ok(());
        }
        let uop = &self.nodes[node as usize];
        if uop.op() == Op::Barrier && uop.src().iter().any(|source| source.op() == Op::Range) {
            return self.visit_staging(node, at, tasks);
        }
        if uop.op() != Op::Assign {
            tasks.push(Task::Emit(node, at));
            let sources = self.src[node as usize].iter().rev();
            tasks.extend(sources.map(|source| Task::Visit(*source, at)));
            return Ok(());
        }
        let (before, next) = (self.src[node as usize][0], self.src[node as usize][1]);
        let (accumulator, is_range) = (&uop.src()[0], |uop: &UOp| uop.op() == Op::Range);
        let start = accumulator.src().first().and_then(UOp::as_const);
        let (Op::DefineAcc, Some(start)) = (accumulator.op(), start) else {
            return Err(malformed("an assignment of no accumulator"));
        };
        if !accumulator.src()[1..].iter().all(is_range) {
            return Err(malformed("an accumulator of no loop"));
        }
        let identity = self.constant(start);
        let loops: SmallVec<[u32; 4]> = SmallVec::from_slice(&self.src[before as usize][1..]);
        if self.is_empty(&loops)? {
            self.emitted.insert((node, at), identity);
            return Ok(());
        }
        let accumulator = self.accumulator(node, identity, at);
        let mut inner = at;
        for range in loops {
            inner = self.open(range, inner)?;
        }
        self.emitted.insert((before, inner), accumulator);
        tasks.push(Task::Close { node, inner, at, accumulator });
        tasks.push(Task::Visit(next, inner));
        Ok(())
    }

    /// Visits the stores before a barrier, each in those of the barrier's loops that it depends on.
    fn visit_staging(&mut self, node: u32, at: u32, tasks: &mut Vec<Task>) -> Result<(), Error> {
        let is_range = |source: &u32| self.nodes[*source as usize].op() == Op::Range;
        let (ranges, stores): (Vec<u32>, Vec<u32>) =
            self.src[node as usize].iter().partition(|source| is_range(source));
        // A tile that does not vary in some loops is stored before them.
        let mut scopes: SmallVec<[(u32, SmallVec<[u32; 4]>); 2]> = SmallVec::new();
        for store in &stores {
            let Some(array) = self.array_of(*store) else { continue };
            let is_copied = ranges.iter().any(|range| self.depends_on(*store, *range));
            let scope = if is_copied { at } else { self.scope_of(*store, at) };
            match scopes.iter_mut().find(|(known, _)| *known == scope) {
                Some((_, arrays)) => arrays.push(array),
                None => scopes.push((scope, SmallVec::from_slice(&[array]))),
            }
        }
        for (scope, arrays) in scopes {
            self.wait_for_readers(&arrays, scope);
        }
        tasks.push(Task::Emit(node, at));
        for store in stores.into_iter().rev() {
            let mut inner = at;
            for range in &ranges {
                if self.depends_on(store, *range) {
                    inner = self.open(*range, inner)?;
                }
            }
            self.staging.insert(store);
            tasks.push(Task::CloseLoops { inner, at });
            tasks.push(Task::Visit(store, inner));
        }
        Ok(())
    }

    /// Returns whether a node has other values in each iteration of a range.
    fn depends_on(&self, node: u32, range: u32) -> bool {
        self.free[range as usize] & self.free[node as usize] != 0
    }

    /// Emits the accumulator of a reduction in the scope `at`.
    fn accumulator(&mut self, node: u32, identity: u32, at: u32) -> u32 {
        let mut loops: SmallVec<[u32; 4]> = SmallVec::new();
        let mut scope = at;
        while scope != ROOT {
            loops.push(self.scopes[scope as usize].range);
            scope = self.scopes[scope as usize].parent;
        }
        let src = std::iter::once(identity).chain(loops.into_iter().rev());
        let arg = Arg::Int(self.accumulator_count);
        self.accumulator_count += 1;
        let dtype = self.nodes[node as usize].dtype();
        self.push(at, Instruction::new(Op::DefineAcc, dtype, src, arg))
    }

    /// Assigns an accumulator its next value.
    fn assign(&mut self, node: u32, inner: u32, accumulator: u32) -> Result<(), Error> {
        let next = self.value(self.src[node as usize][1], inner)?;
        let dtype = self.nodes[node as usize].dtype();
        self.push(inner, Instruction::new(Op::Assign, dtype, [accumulator, next], Arg::None));
        Ok(())
    }

    fn emit(&mut self, node: u32, at: u32) -> Result<(), Error> {
        let uop = self.nodes[node as usize].clone();
        if uop.op() == Op::Range {
            return Err(malformed(format!(
                "range {} is used outside of its loop",
                axis(uop.arg())
            )));
        }
        // In linear form the order of the uops replaces these dependencies.
        let mut sources = self.src[node as usize].clone();
        match uop.op() {
            Op::Barrier => sources.clear(),
            Op::Load => sources.truncate(1),
            _ => {}
        }
        let sources: SmallVec<[u32; 4]> =
            sources.iter().map(|source| self.value(*source, at)).collect::<Result<_, Error>>()?;
        if let Some(array) = self.array_of(node) {
            match uop.op() {
                Op::Store if self.has_barrier && !self.staging.contains(&node) => {
                    self.wait_for_readers(&[array], at);
                }
                Op::Load => drop(self.read.insert(array)),
                _ => {}
            }
        }
        let position = self.push(at, Instruction::of(&uop, sources));
        self.emitted.insert((node, at), position);
        Ok(())
    }

    /// The local array that a load or store is of, by its number.
    fn array_of(&self, node: u32) -> Option<u32> {
        let address = *self.src[node as usize].first()?;
        let array = *self.src[address as usize].first()?;
        (self.nodes[array as usize].op() == Op::DefineLocal).then_some(array)
    }

    /// Emits a barrier before stores to local arrays if the scope is in a loop, or if one of the
    /// arrays has been read before: threads may still read what was stored there.
    fn wait_for_readers(&mut self, arrays: &[u32], at: u32) {
        let is_loop = |scope: &u32| {
            let range = &self.uops[self.scopes[*scope as usize].range as usize];
            !axis(&range.arg).kind.is_launched()
        };
        let parent = |scope: &u32| Some(self.scopes[*scope as usize].parent);
        let mut scopes = std::iter::successors(Some(at), parent).take_while(|scope| *scope != ROOT);
        if arrays.iter().any(|array| self.read.contains(array)) || scopes.any(|s| is_loop(&s)) {
            self.push(at, Instruction::new(Op::Barrier, DType::Void, [], Arg::None));
        }
    }

    /// Returns the uop of a node as seen from the scope; the node has been visited.
    fn value(&mut self, node: u32, scope: u32) -> Result<u32, Error> {
        let at = self.scope_of(node, scope);
        self.find(node, at).ok_or_else(|| {
            malformed(format!("{} is used before it is computed", self.nodes[node as usize].op()))
        })
    }

    /// Returns the outermost scope around `scope` in which all ranges that the node depends on are
    /// open.
    fn scope_of(&self, node: u32, mut scope: u32) -> u32 {
        let free = self.free[node as usize];
        while scope != ROOT && free & self.scopes[scope as usize].bit == 0 {
            scope = self.scopes[scope as usize].parent;
        }
        scope
    }

    fn find(&mut self, node: u32, at: u32) -> Option<u32> {
        let uop = &self.nodes[node as usize];
        match (uop.op(), uop.arg()) {
            (Op::Const, Arg::Const(value)) => {
                let value = *value;
                Some(self.constant(value))
            }
            (Op::Range, _) => (at != ROOT).then(|| self.scopes[at as usize].range),
            (Op::DefineGlobal, _) => {
                self.globals.iter().find(|(global, _)| global == uop).map(|(_, position)| *position)
            }
            _ => self.emitted.get(&(node, at)).copied(),
        }
    }

    fn constant(&mut self, value: Constant) -> u32 {
        if let Some((_, position)) = self.constants.iter().find(|(known, _)| *known == value) {
            return *position;
        }
        let (dtype, arg) = (value.dtype(), Arg::Const(value));
        let position = self.push(ROOT, Instruction::new(Op::Const, dtype, [], arg));
        self.constants.push((value, position));
        position
    }

    /// Opens a loop in the scope. It is added to the items of the scope when it is closed.
    fn open(&mut self, range: u32, parent: u32) -> Result<u32, Error> {
        let uop = self.nodes[range as usize].clone();
        let bit = self.free[range as usize];
        let end = uop.src()[0].as_const().ok_or_else(|| malformed("a range without an end"))?;
        let end = self.constant(end);
        let mut instruction = Instruction::of(&uop, SmallVec::from_slice(&[end]));
        if self.is_open(bit, parent) {
            let number = self.fresh_number();
            instruction.arg = Arg::Axis(Axis { number, ..axis(uop.arg()) });
        }
        let range = self.uops.len() as u32;
        self.uops.push(instruction);
        self.scopes.push(Scope { parent, bit, range, items: vec![Item::Uop(range)] });
        Ok(self.scopes.len() as u32 - 1)
    }

    fn is_open(&self, bit: u64, mut scope: u32) -> bool {
        while scope != ROOT {
            if self.scopes[scope as usize].bit == bit {
                return true;
            }
            scope = self.scopes[scope as usize].parent;
        }
        false
    }

    /// Returns a number that no loop has so far.
    fn fresh_number(&self) -> i64 {
        let nodes = self.ranges.iter().map(|range| axis(self.nodes[*range as usize].arg()));
        let emitted = self.uops.iter().filter(|uop| uop.op == Op::Range).map(|uop| axis(&uop.arg));
        nodes.chain(emitted).map(|axis| axis.number + 1).max().unwrap_or(0)
    }

    /// Closes the loops from `inner` out to `outer`.
    fn close(&mut self, inner: u32, outer: u32) {
        let mut scope = inner;
        while scope != outer {
            let parent = self.scopes[scope as usize].parent;
            self.scopes[parent as usize].items.push(Item::Loop(scope));
            scope = parent;
        }
    }

    fn push(&mut self, scope: u32, instruction: Instruction) -> u32 {
        let position = self.uops.len() as u32;
        self.uops.push(instruction);
        self.scopes[scope as usize].items.push(Item::Uop(position));
        position
    }

    fn ranges_of(&self, bits: u64) -> SmallVec<[u32; 4]> {
        let bits = (0..self.ranges.len()).filter(|bit| bits >> bit & 1 == 1);
        bits.map(|bit| self.ranges[bit]).collect()
    }

    /// Returns whether one of the loops has no iterations. Its body must not be emitted, as parts
    /// of it would be hoisted out and run.
    fn is_empty(&self, loops: &[u32]) -> Result<bool, Error> {
        for range in loops {
            let end = self.nodes[*range as usize].src()[0].as_int();
            if end.ok_or_else(|| malformed("a range without an end"))? <= 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Puts all items in order, with the ends of loops; sources become final positions.
    fn flatten(mut self) -> Vec<Instruction> {
        let mut position = vec![0u32; self.uops.len()];
        let mut uops: Vec<Instruction> = Vec::with_capacity(self.uops.len() + self.scopes.len());
        let mut stack = vec![(ROOT, 0)];
        while let Some((scope, item)) = stack.pop() {
            let Scope { items, range, .. } = &self.scopes[scope as usize];
            match items.get(item) {
                Some(Item::Uop(number)) => {
                    let mut uop = std::mem::replace(&mut self.uops[*number as usize], end_of(0));
                    uop.src.iter_mut().for_each(|source| *source = position[*source as usize]);
                    position[*number as usize] = uops.len() as u32;
                    uops.push(uop);
                    stack.push((scope, item + 1));
                }
                Some(Item::Loop(inner)) => {
                    stack.push((scope, item + 1));
                    stack.push((*inner, 0));
                }
                None if scope != ROOT => uops.push(end_of(position[*range as usize])),
                None => {}
            }
        }
        uops
    }
}

/// Makes the end of the loop that the uop at this position opens.
fn end_of(range: u32) -> Instruction {
    Instruction::new(Op::EndRange, DType::Void, [range], Arg::None)
}

/// Returns the axis in the arg of a range.
fn axis(arg: &Arg) -> Axis {
    match arg {
        Arg::Axis(axis) => *axis,
        _ => Axis::plain(0),
    }
}

/// Returns the order of a range in a loop nest: the lanes are one of the upcast ranges.
fn nesting(arg: &Arg) -> Axis {
    match axis(arg) {
        Axis { kind: AxisKind::Vector, number } => Axis { kind: AxisKind::Upcast, number },
        axis => axis,
    }
}
