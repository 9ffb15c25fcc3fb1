//! Pass `pipeline`: copies to local memory run beside the computation, on devices that copy
//! asynchronously.
//!
//! A loop in which threads wait, copy a tile to local memory, wait again and compute gets arrays of
//! twice the size. The first tile is copied before the loop. Each iteration waits once, starts the
//! copy of the next tile to one half of the arrays, and computes with the other half.

use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Local, Op, Target};
use rustc_hash::FxHashSet;

use crate::edit::Editor;

/// Overlaps copies with computation in the loops of a kernel.
pub(crate) fn pipeline(linear: Linear, target: &Target) -> Linear {
    if !target.copies_async {
        return linear;
    }
    match (0..linear.uops.len()).find_map(|position| Staged::at(&linear.uops, position)) {
        Some(staged) => Rewriter::new(&linear.uops, staged).run(linear.name.clone()),
        None => linear,
    }
}

/// A loop that copies tiles to local memory; positions of uops.
struct Staged {
    range: usize,
    end: usize,
    /// The barriers before and after the copies.
    barriers: [usize; 2],
    /// The local arrays.
    arrays: FxHashSet<u32>,
    trip_count: i64,
    is_in_loop: bool,
}

impl Staged {
    /// Returns the loop that begins at a position, if it is one.
    fn at(uops: &[Instruction], range: usize) -> Option<Staged> {
        let is_loop = |uop: &Instruction| match uop.arg {
            Arg::Axis(axis) => uop.op == Op::Range && axis.kind == AxisKind::Loop,
            _ => false,
        };
        if !is_loop(&uops[range]) {
            return None;
        }
        let Arg::Const(trip_count) = uops[uops[range].src[0] as usize].arg else { return None };
        let trip_count = i64::try_from(trip_count.to_int()?).ok().filter(|count| 2 <= *count)?;
        let is_end = |uop: &Instruction| uop.op == Op::EndRange && uop.src[0] as usize == range;
        let end = range + uops[range..].iter().position(is_end)?;
        let first = range + 1 + uops[range + 1..end].iter().position(|uop| !is_value(uop))?;
        let is_copy = |uop: &Instruction| is_value(uop) || matches!(uop.op, Op::Load | Op::Store);
        let second = first + 1 + uops[first + 1..end].iter().position(|uop| !is_copy(uop))?;
        let is_barrier = |position: usize| uops[position].op == Op::Barrier;
        (is_barrier(first) && is_barrier(second)).then_some(())?;
        let array_of = |uop: &Instruction| uops[uop.src[0] as usize].src[0];
        let accesses = |from: usize, to: usize, op: Op| {
            uops[from..to].iter().filter(move |uop| uop.op == op).map(array_of)
        };
        let is_local = |array: &u32| uops[*array as usize].op == Op::DefineLocal;
        let arrays: FxHashSet<u32> = accesses(first, second, Op::Store).collect();
        let stored: FxHashSet<u32> = accesses(0, uops.len(), Op::Store).collect();
        let is_staged = |array: u32| arrays.contains(&array);
        let are_copies = !arrays.is_empty()
            && arrays.iter().all(is_local)
            && accesses(first, second, Op::Load).all(|array| !stored.contains(&array))
            && uops[second + 1..end].iter().all(|uop| !matches!(uop.op, Op::Barrier | Op::Store))
            && [Op::Load, Op::Store].into_iter().all(|op| {
                !accesses(0, first, op).chain(accesses(end, uops.len(), op)).any(is_staged)
            });
        // What is loaded is only stored.
        let is_loaded = |source: &u32| {
            let source = *source as usize;
            first < source && source < second && uops[source].op == Op::Load
        };
        let is_kept = uops[second..].iter().any(|uop| uop.src.iter().any(is_loaded));
        let depth = uops[..range].iter().fold(0, |depth, uop| match uop.op {
            Op::Range => depth + i32::from(is_loop(uop)),
            _ => depth,
        });
        let ended = uops[..range].iter().filter(|uop| uop.op == Op::EndRange);
        let ended = ended.filter(|uop| is_loop(&uops[uop.src[0] as usize])).count() as i32;
        (are_copies && !is_kept).then_some(Staged {
            range,
            end,
            barriers: [first, second],
            arrays,
            trip_count,
            is_in_loop: ended < depth,
        })
    }
}

/// Returns whether a uop only computes a value or an address.
fn is_value(uop: &Instruction) -> bool {
    uop.op.is_elementwise() || matches!(uop.op, Op::Const | Op::Index | Op::Vectorize | Op::Lane)
}

struct Rewriter<'a> {
    old: &'a [Instruction],
    staged: Staged,
    /// For each old uop, whether it depends on the counter of the loop or is an access.
    varies: Vec<bool>,
    editor: Editor,
}

impl<'a> Rewriter<'a> {
    fn new(old: &'a [Instruction], staged: Staged) -> Rewriter<'a> {
        let mut varies = vec![false; old.len()];
        varies[staged.range] = true;
        for position in staged.range + 1..staged.end {
            let uop = &old[position];
            let is_access = matches!(uop.op, Op::Load | Op::Store);
            varies[position] = is_access || uop.src.iter().any(|source| varies[*source as usize]);
        }
        Rewriter { old, staged, varies, editor: Editor::new(old.len()) }
    }

    fn run(mut self, name: String) -> Linear {
        let (range, end) = (self.staged.range, self.staged.end);
        let [first, second] = self.staged.barriers;
        let dtype = self.old[range].dtype;
        let constant = |value: i64| {
            let arg = Arg::Const(Constant::int(dtype, value.into()));
            Instruction::new(Op::Const, dtype, [], arg)
        };
        let [zero, one, count] =
            [0, 1, self.staged.trip_count].map(|value| self.editor.push(constant(value)));
        for position in 0..range {
            self.copy(position);
        }
        // The first tile.
        let before_loop = self.old[first].clone();
        if self.staged.is_in_loop {
            self.editor.push(before_loop.clone());
        }
        self.editor.set(range, zero);
        for position in (range + 1..first).chain(first + 1..second) {
            self.copy(position);
        }
        // The loop.
        self.copy(range);
        let counter = self.editor.position(range as u32);
        self.editor.push(before_loop);
        let binary = |op, src: [u32; 2]| Instruction::new(op, dtype, src, Arg::None);
        let next = self.editor.push(binary(Op::Add, [counter, one]));
        let is_more = Instruction::new(Op::CmpLt, DType::Bool, [next, count], Arg::None);
        let is_more = self.editor.push(is_more);
        let halves = [counter, next].map(|at| self.editor.push(binary(Op::And, [at, one])));
        let [half, next_half] = halves;
        self.editor.set(range, next);
        for position in (range + 1..first).chain(first + 1..second) {
            if self.varies[position] {
                self.copy_in_loop(position, next_half, Some(is_more));
            }
        }
        self.editor.set(range, counter);
        for position in range + 1..end {
            let is_copied = position < second && !self.varies[position];
            let is_staging = position == first
                || position == second
                || first < position
                    && position < second
                    && matches!(self.old[position].op, Op::Load | Op::Store);
            if !is_copied && !is_staging {
                self.copy_in_loop(position, half, None);
            }
        }
        for position in end..self.old.len() {
            self.copy(position);
        }
        self.editor.finish(name)
    }

    /// Copies a uop with its new sources; the arrays get twice their size.
    fn copy(&mut self, position: usize) {
        let uop = &self.old[position];
        let mut new = Instruction { src: self.editor.moved(uop), ..uop.clone() };
        if let Arg::Local(local) = uop.arg
            && self.staged.arrays.contains(&(position as u32))
        {
            new.arg = Arg::Local(Local { size_elements: 2 * local.size_elements, ..local });
        }
        let new = self.editor.push(new);
        self.editor.set(position, new);
    }

    /// Copies a uop of the loop. Rebuilds the address of an access: in a staged array it points
    /// into half 0 or 1; with `gate`, it is gated.
    fn copy_in_loop(&mut self, position: usize, half: u32, gate: Option<u32>) {
        let uop = &self.old[position];
        if !matches!(uop.op, Op::Load | Op::Store) {
            return self.copy(position);
        }
        let mut access_src = self.editor.moved(uop);
        let address = &self.old[uop.src[0] as usize];
        let mut src = self.editor.moved(address);
        if let Arg::Local(local) = self.old[address.src[0] as usize].arg
            && self.staged.arrays.contains(&address.src[0])
        {
            let dtype = self.old[address.src[1] as usize].dtype;
            let size = Constant::int(dtype, local.size_elements.into());
            let size = Instruction::new(Op::Const, dtype, [], Arg::Const(size));
            let size = self.editor.push(size);
            let half = match self.editor.uop(half).dtype == dtype {
                true => half,
                false => self.editor.push(Instruction::new(Op::Cast, dtype, [half], Arg::None)),
            };
            let mut binary =
                |op, src: [u32; 2]| self.editor.push(Instruction::new(op, dtype, src, Arg::None));
            let start = binary(Op::Mul, [half, size]);
            src[1] = binary(Op::Add, [start, src[1]]);
        }
        if let Some(gate) = gate {
            match src.get(2).copied() {
                Some(before) => {
                    let both = [gate, before];
                    let both = Instruction::new(Op::And, DType::Bool, both, Arg::None);
                    src[2] = self.editor.push(both);
                }
                None => src.push(gate),
            }
        }
        access_src[0] = self.editor.push(Instruction { src, ..address.clone() });
        let new = self.editor.push(Instruction { src: access_src, ..uop.clone() });
        self.editor.set(position, new);
    }
}
