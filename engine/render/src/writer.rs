//! Kernels in the languages of C's family: statements, loops and names. What a language says in
//! its own way is asked of its [`Dialect`].
//!
//! A value used once stands where it is used, in parentheses; others get a name: `val0` (loaded),
//! `alu0` (computed), `acc0` (accumulated), `ridx0` (counted), `gidx0` and `lidx0` (the place in
//! the grid and in the group; 0 is the innermost range), `local0` (an array of the group).

use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op};

use crate::Error;
use crate::bounds::find_wrapping;
use crate::dialect::{Alu, Dialect, Head, Place, Sources, Text, Value};

/// Deeper expressions get a name, for readers and for compilers with a limit on parentheses.
const HEIGHT_MAX: u32 = 24;

/// The text of a kernel under a name.
pub(crate) fn write(dialect: &dyn Dialect, linear: &Linear, name: &str) -> Result<String, Error> {
    check_name(name)?;
    for uop in linear.uops.iter().filter(|uop| uop.dtype != DType::Void) {
        if dialect.lacks(uop.dtype, uop.op == Op::DefineGlobal) {
            return Err(Error::Type {
                language: dialect.language(),
                kernel: linear.name.clone(),
                dtype: uop.dtype,
            });
        }
    }
    for kind in [AxisKind::Global, AxisKind::Local] {
        let ranges = linear.launched(kind);
        let is_grid = dialect.launched(kind, 0).is_some();
        if let Some((outermost, _)) = ranges.first().filter(|_| is_grid && ranges.len() > 3) {
            return Err(unsupported(dialect.language(), linear, *outermost as usize));
        }
    }
    let mut writer = Writer::new(dialect, linear);
    writer.head(name).ok_or_else(|| unsupported(dialect.language(), linear, 0))?;
    for position in 0..linear.uops.len() {
        let written = writer.uop(position);
        written.ok_or_else(|| unsupported(dialect.language(), linear, position))?;
    }
    if let Some(tail) = dialect.tail(&writer.out) {
        writer.line(tail);
    }
    writer.out.push_str("}\n");
    Ok(writer.out)
}

/// Refuses what is no identifier.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let is_name = name.chars().all(is_word) && name.starts_with(|c: char| !c.is_ascii_digit());
    if is_name { Ok(()) } else { Err(Error::Name(name.to_string())) }
}

/// Says that a language has no text for a uop.
pub(crate) fn unsupported(language: &'static str, linear: &Linear, position: usize) -> Error {
    let uop = &linear.uops[position];
    let source = uop.src.first().and_then(|source| linear.uops.get(*source as usize));
    let lanes = source.map_or(uop.lanes, |source| source.lanes.max(uop.lanes));
    Error::Unsupported {
        language,
        kernel: linear.name.clone(),
        position,
        op: uop.op,
        dtype: source.map_or(uop.dtype, |source| source.dtype),
        lanes,
    }
}

/// What a uop is called in the text.
#[derive(Clone, Default)]
struct Expression {
    text: String,
    mask_bytes: u8,
    height: u32,
    /// Whether the text reads a variable that an `Assign` may change.
    is_volatile: bool,
}

struct Writer<'a> {
    dialect: &'a dyn Dialect,
    linear: &'a Linear,
    out: String,
    depth: usize,
    expressions: Vec<Expression>,
    /// Whether the value may stand where it is used.
    is_inline: Vec<bool>,
    /// Whether an integer may have to be wrapped.
    is_wrapping: Vec<bool>,
    /// Whether a variable is a vector that changes only around inner loops.
    is_outer: Vec<bool>,
    /// Launched ranges that the language has a word for: position, name, word.
    launched: Vec<(u32, String, String)>,
    /// How many names of each kind are taken: alu, val, acc, ridx.
    counts: [usize; 4],
}

#[derive(Clone, Copy)]
enum Kind {
    Alu,
    Val,
    Acc,
    Ridx,
}

impl<'a> Writer<'a> {
    fn new(dialect: &'a dyn Dialect, linear: &'a Linear) -> Writer<'a> {
        Writer {
            dialect,
            linear,
            out: String::new(),
            depth: 1,
            expressions: vec![Expression::default(); linear.uops.len()],
            is_inline: find_inline(linear),
            is_wrapping: find_wrapping(linear),
            is_outer: find_outer(linear),
            launched: Vec::new(),
            counts: [0; 4],
        }
    }

    /// Finds the launched ranges and writes what stands before the body.
    fn head(&mut self, name: &str) -> Option<()> {
        let linear = self.linear;
        let mut group = Vec::new();
        for (kind, word) in [(AxisKind::Global, "gidx"), (AxisKind::Local, "lidx")] {
            for (dimension, (position, steps)) in linear.launched(kind).iter().rev().enumerate() {
                let Some(text) = self.dialect.launched(kind, dimension) else { continue };
                self.launched.push((*position, format!("{word}{dimension}"), text));
                if kind == AxisKind::Local {
                    group.push(*steps);
                }
            }
        }
        let stored = stored_slots(linear);
        let arrays = linear.globals().into_iter();
        let variables = linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Var(variable) => Some((variable.name.as_str(), uop.dtype)),
            _ => None,
        });
        let locals = linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Local(local) => {
                Some((format!("local{}", local.number), uop.dtype, local.size_elements.max(1)))
            }
            _ => None,
        });
        let head = Head {
            name,
            arrays: arrays.map(|(g, dtype)| (g.slot, dtype, stored.contains(&g.slot))).collect(),
            variables: variables.collect(),
            locals: locals.collect(),
            group,
        };
        self.out = self.dialect.head(&head)?;
        Some(())
    }

    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn name(&mut self, kind: Kind) -> String {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        let word = ["alu", "val", "acc", "ridx"][kind as usize];
        format!("{word}{}", *count - 1)
    }

    /// Source `number` of a uop as a value.
    fn source(&self, uop: &Instruction, number: usize) -> Option<Value<'_>> {
        let position = *uop.src.get(number)? as usize;
        let (made, source) = (self.expressions.get(position)?, &self.linear.uops[position]);
        // What every lane is, is known of the vector as well.
        let splat = match (source.op, source.src.as_slice()) {
            (Op::Vectorize, [one]) => &self.linear.uops[*one as usize],
            _ => source,
        };
        Some(Value {
            text: &made.text,
            dtype: source.dtype,
            lanes: source.lanes,
            mask_bytes: made.mask_bytes,
            known: match splat.arg {
                Arg::Const(value) => Some(value),
                _ => None,
            },
        })
    }

    fn source_uop(&self, uop: &Instruction, number: usize) -> Option<&'a Instruction> {
        self.linear.uops.get(*uop.src.get(number)? as usize)
    }

    fn type_name(&self, uop: &Instruction, mask_bytes: u8) -> Option<String> {
        self.dialect.type_name(uop.dtype, uop.lanes, mask_bytes)
    }

    /// Writes one uop; `None` if there is no text for it.
    fn uop(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        let mut made = Expression::default();
        match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => made.text = self.dialect.constant(*value)?,
            (Op::DefineGlobal, Arg::Global(global)) => made.text = format!("data{}", global.slot),
            (Op::DefineVar, Arg::Var(variable)) => made.text = variable.name.clone(),
            (Op::DefineLocal, Arg::Local(local)) => made.text = format!("local{}", local.number),
            (Op::Barrier, _) => self.line(self.dialect.barrier()?),
            (Op::Index | Op::Sink, _) => {}
            (Op::Range, _) => made.text = self.open(position)?,
            (Op::EndRange, _) => {
                if !self.launched.iter().any(|(range, ..)| *range == uop.src[0]) {
                    self.depth -= 1;
                    self.line("}");
                }
            }
            (Op::DefineAcc, _) => made = self.define(position)?,
            (Op::Assign, _) => made = self.assign(uop)?,
            (Op::Load, _) => made = self.load(uop)?,
            (Op::Store, _) => self.store(uop)?,
            (Op::Wmma, Arg::TensorCore(core)) => {
                let src = (0..3).map(|number| self.source(uop, number));
                let product = self.dialect.product(core, &src.collect::<Option<Vec<_>>>()?)?;
                let kind = self.type_name(uop, 0)?;
                made.text = self.name(Kind::Alu);
                self.line(&self.dialect.declare(&kind, &made.text, &product, false));
            }
            (op, _) if op.is_elementwise() || matches!(op, Op::Vectorize | Op::Lane) => {
                made = self.alu(position)?;
            }
            _ => return None,
        }
        self.expressions[position] = made;
        Some(())
    }

    /// A loop, or the number of a thread.
    fn open(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let (kind, end) = (self.type_name(uop, 0)?, self.source(uop, 0)?.text.to_string());
        let launched = self.launched.iter().find(|(range, ..)| *range as usize == position);
        if let Some((_, name, text)) = launched.cloned() {
            let declared = self.dialect.declare(&kind, &name, &text, false);
            self.line(&format!("{declared} /* {end} */"));
            return Some(name);
        }
        let name = self.name(Kind::Ridx);
        self.line(&self.dialect.count(&kind, &name, &end));
        self.depth += 1;
        Some(name)
    }

    fn define(&mut self, position: usize) -> Option<Expression> {
        let uop = &self.linear.uops[position];
        let start = self.dialect.settled(&self.source(uop, 0)?);
        let kind = self.type_name(uop, start.mask_bytes)?;
        let text = self.name(Kind::Acc);
        let declared = match self.is_outer[position] {
            true => self.dialect.declare_outer(&kind, &text, &start.text),
            false => self.dialect.declare(&kind, &text, &start.text, true),
        };
        self.line(&declared);
        Some(Expression { text, mask_bytes: start.mask_bytes, height: 0, is_volatile: true })
    }

    fn assign(&mut self, uop: &Instruction) -> Option<Expression> {
        let variable = *uop.src.first()? as usize;
        let mut made = self.expressions.get(variable)?.clone();
        let value = self.dialect.settled(&self.source(uop, 1)?);
        self.line(&format!("{} = {};", made.text, value.text));
        (made.height, made.is_volatile) = (0, true);
        Some(made)
    }

    /// Where a load or store goes, and its gate.
    fn place(
        &self,
        uop: &Instruction,
        value: &Instruction,
    ) -> Option<(Place<'_>, Option<Value<'_>>)> {
        let index = self.source_uop(uop, 0)?;
        let array = self.source_uop(index, 0)?;
        let place = Place {
            array: self.source(index, 0)?.text,
            index: self.source(index, 1)?.text,
            dtype: value.dtype,
            lanes: value.lanes,
            is_local: array.op == Op::DefineLocal,
            is_past_caches: uop.op == Op::Store && matches!(uop.arg, Arg::Int(_)),
        };
        Some((place, self.source(index, 2)))
    }

    fn load(&mut self, uop: &Instruction) -> Option<Expression> {
        let (place, gate) = self.place(uop, uop)?;
        let loaded = self.dialect.load(&place)?;
        let early = match uop.arg {
            Arg::Int(further) => self.dialect.ask_early(&place, further),
            _ => None,
        };
        let kind = self.type_name(uop, loaded.mask_bytes)?;
        let gate = gate.map(|gate| gate.text.to_string());
        early.iter().for_each(|early| self.line(early));
        let text = self.name(Kind::Val);
        match gate {
            Some(gate) => {
                let zero = self.zero(uop)?;
                for line in self.dialect.gated(&kind, &text, &gate, &loaded.text, &zero) {
                    self.line(&line);
                }
            }
            None => self.line(&self.dialect.declare(&kind, &text, &loaded.text, false)),
        }
        Some(Expression { text, mask_bytes: loaded.mask_bytes, ..Expression::default() })
    }

    /// The zero of a uop's type.
    fn zero(&self, uop: &Instruction) -> Option<String> {
        let value = Constant::zero(uop.dtype);
        let text = self.dialect.constant(value)?;
        if uop.lanes == 1 {
            return Some(text);
        }
        let known = Some(value);
        let one = Value { text: &text, dtype: uop.dtype, lanes: 1, mask_bytes: 0, known };
        Some(self.dialect.vectorize(uop.dtype, uop.lanes, &[one])?.text)
    }

    fn store(&mut self, uop: &Instruction) -> Option<()> {
        let value = self.dialect.settled(&self.source(uop, 1)?);
        let stored = self.source_uop(uop, 1)?;
        let (place, gate) = self.place(uop, stored)?;
        let value =
            Value { text: &value.text, mask_bytes: value.mask_bytes, ..self.source(uop, 1)? };
        let store = self.dialect.store(&place, &value)?;
        match gate {
            Some(gate) => self.line(&format!("if ({}) {{ {store} }}", gate.text)),
            None => self.line(&store),
        }
        Some(())
    }

    fn alu(&mut self, position: usize) -> Option<Expression> {
        let uop = &self.linear.uops[position];
        let sources = || uop.src.iter().map(|source| &self.expressions[*source as usize]);
        let height = 1 + sources().map(|source| source.height).max()?;
        let is_volatile = sources().any(|source| source.is_volatile);
        // A lane of a name is as good as a name.
        let is_name = uop.op == Op::Lane && height == 1 && !is_volatile;
        let Text { text, mask_bytes } = self.computed(position)?;
        if is_name || self.is_inline[position] && height < HEIGHT_MAX {
            let height = if is_name { 0 } else { height };
            return Some(Expression { text, mask_bytes, height, is_volatile });
        }
        let (kind, name) = (self.type_name(uop, mask_bytes)?, self.name(Kind::Alu));
        self.line(&self.dialect.declare(&kind, &name, &text, false));
        Some(Expression { text: name, mask_bytes, ..Expression::default() })
    }

    /// The text of a value that is computed of others.
    fn computed(&self, position: usize) -> Option<Text> {
        let uop = &self.linear.uops[position];
        let sources = (0..uop.src.len()).map(|number| self.source(uop, number));
        let src: Sources<Value> = sources.collect::<Option<_>>()?;
        match (uop.op, &uop.arg) {
            (Op::Vectorize, _) => self.dialect.vectorize(uop.dtype, uop.lanes, &src),
            (Op::Lane, Arg::Int(lane)) => {
                let lane = usize::try_from(*lane).ok()?;
                self.dialect.lane(&src[0], lane).map(Text::from)
            }
            _ => {
                let may_wrap = self.is_wrapping[position];
                let extreme = self.extreme(uop);
                let Instruction { op, dtype, lanes, .. } = *uop;
                self.dialect.alu(&Alu { op, dtype, lanes, src, may_wrap, extreme })
            }
        }
    }

    /// What a `where` is like that compares the two values it chooses between.
    fn extreme(&self, uop: &Instruction) -> Option<Op> {
        let (Op::Where, [_, x, y]) = (uop.op, uop.src.as_slice()) else { return None };
        let gate = self.source_uop(uop, 0).filter(|gate| gate.op == Op::CmpLt)?;
        match gate.src.as_slice() {
            compared if compared == [*x, *y] => Some(Op::Min),
            compared if compared == [*y, *x] => Some(Op::Max),
            _ => None,
        }
    }
}

/// The slots that are written to.
pub(crate) fn stored_slots(linear: &Linear) -> Vec<usize> {
    let at = |position: u32| linear.uops.get(position as usize);
    let stores = linear.uops.iter().filter(|uop| uop.op == Op::Store);
    let indices = stores.filter_map(|uop| at(*uop.src.first()?));
    let globals = indices.filter_map(|index| at(*index.src.first()?));
    globals
        .filter_map(|global| match &global.arg {
            Arg::Global(global) => Some(global.slot),
            _ => None,
        })
        .collect()
}

/// The vectors that change in a loop behind an inner one, once for all of its iterations.
fn find_outer(linear: &Linear) -> Vec<bool> {
    let mut is_outer = vec![false; linear.uops.len()];
    // For each open loop, whether one has ended in it.
    let mut loops: Vec<bool> = Vec::new();
    for uop in &linear.uops {
        match uop.op {
            Op::Range => loops.push(false),
            Op::EndRange => {
                loops.pop();
                loops.iter_mut().for_each(|has_ended| *has_ended = true);
            }
            Op::Assign if uop.lanes > 1 && loops.last() == Some(&true) => {
                is_outer[uop.src[0] as usize] = true;
            }
            _ => {}
        }
    }
    is_outer
}

/// For each uop: whether it is used exactly once, in the loop it is made in, by something that
/// reads it at once, and no variable changes in between.
fn find_inline(linear: &Linear) -> Vec<bool> {
    let count = linear.uops.len();
    let mut place = vec![(0u32, 0u32); count];
    let mut use_counts = vec![0u32; count];
    let mut is_inline = vec![true; count];
    let mut loops = vec![0u32];
    let mut assign_count = 0;
    for (position, uop) in linear.uops.iter().enumerate() {
        match uop.op {
            Op::Range => loops.push(position as u32 + 1),
            Op::EndRange => {
                loops.pop();
            }
            Op::Assign => assign_count += 1,
            _ => {}
        }
        let innermost = loops.last().copied().unwrap_or(0);
        // An assignment reads its sources before it takes effect.
        let is_assign = u32::from(uop.op == Op::Assign);
        place[position] = (innermost, assign_count);
        for source in uop.src.iter().map(|source| *source as usize).filter(|s| *s < count) {
            use_counts[source] += 1;
            let is_near = place[source] == (innermost, assign_count - is_assign);
            // An address is read later than it is made.
            is_inline[source] &= is_near && !(uop.op == Op::Index && assign_count != 0);
        }
    }
    is_inline.iter().zip(&use_counts).map(|(inline, count)| *inline && *count == 1).collect()
}
