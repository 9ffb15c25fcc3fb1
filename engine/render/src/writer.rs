//! Renderer of the C-like languages: statements, loops and names. A [`Dialect`] gives the syntax of
//! a language.
//!
//! A value that is used once is inlined, in parentheses. Others are named: `val0` (loaded), `alu0`
//! (computed), `acc0` (accumulator), `ridx0` (loop counter), `gidx0` and `lidx0` (index of the
//! group in the grid and of the thread in the group; 0 is the innermost range), `local0` (local
//! array).

use gradiff_graph::{Arg, AxisKind, Constant, DType, Instruction, Linear, Op, evaluate};

use crate::Error;
use crate::bounds::find_wrapping;
use crate::code::{Code, Piece, code};
use crate::dialect::{Access, Alu, Dialect, Header, Sources, Text, Value};
use crate::legalize::{Legalizations, legalize};

/// Deeper expressions are named, for readers and for compilers that limit nested parentheses.
const HEIGHT_MAX: u32 = 24;

/// Renders a kernel under a name.
pub(crate) fn write(
    dialect: &dyn Dialect,
    required: &Legalizations,
    linear: &Linear,
    name: &str,
) -> Result<Code, Error> {
    check_name(name)?;
    let linear = &*legalize(linear, required);
    for uop in linear.uops.iter().filter(|uop| uop.dtype != DType::Void) {
        if dialect.is_unsupported(uop.dtype) {
            return Err(Error::Type {
                language: dialect.language(),
                kernel: linear.name.clone(),
                dtype: uop.dtype,
            });
        }
    }
    for kind in [AxisKind::Global, AxisKind::Local] {
        let ranges = linear.launched(kind);
        let has_grid = dialect.grid_index(kind, 0).is_some();
        if let Some((outermost, _)) = ranges.first().filter(|_| has_grid && ranges.len() > 3) {
            return Err(unsupported(dialect.language(), linear, *outermost as usize));
        }
    }
    let mut writer = Writer::new(dialect, linear);
    writer.write_header(name).ok_or_else(|| unsupported(dialect.language(), linear, 0))?;
    for position in 0..linear.uops.len() {
        let written = writer.write_uop(position);
        written.ok_or_else(|| unsupported(dialect.language(), linear, position))?;
    }
    if let Some(tail) = dialect.tail(&writer.out.helpers) {
        writer.line(&tail);
    }
    writer.out.text.push_str("}\n");
    Ok(writer.out)
}

/// Rejects names that are not identifiers.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    let is_name = name.chars().all(is_word) && name.starts_with(|c: char| !c.is_ascii_digit());
    if is_name { Ok(()) } else { Err(Error::Name(name.to_string())) }
}

/// The error for a uop that a language does not have.
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

/// The text by which the users of a uop refer to it.
#[derive(Clone, Default)]
struct Expression {
    code: Code,
    mask_bytes: u8,
    /// The depth of nested ops; 0 for names.
    height: u32,
    /// True if the text reads a variable that an `Assign` may change.
    is_volatile: bool,
    /// The value of a constant, or of scalar ops of constants.
    constant: Option<Constant>,
}

struct Writer<'a> {
    dialect: &'a dyn Dialect,
    linear: &'a Linear,
    out: Code,
    depth: usize,
    expressions: Vec<Expression>,
    /// For each uop, true if its value may be inlined into its use.
    is_inline: Vec<bool>,
    /// For each uop, true if its integer result may have to wrap.
    is_wrapping: Vec<bool>,
    /// For each uop, true if it is an accumulator in vectors that no inner loop assigns.
    is_outer: Vec<bool>,
    /// For each uop, true if it is a load that is only copied to local memory.
    copied: Vec<bool>,
    /// True if a copy may be under way.
    is_copying: bool,
    /// Ranges that are indices of the grid: position, name, expression of the language.
    grid_ranges: Vec<(u32, String, String)>,
    /// The number of names used of each kind: alu, val, acc, ridx.
    counts: [usize; 4],
}

#[derive(Clone, Copy)]
enum NameKind {
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
            out: Code::default(),
            depth: 1,
            expressions: vec![Expression::default(); linear.uops.len()],
            is_inline: find_inline(dialect, linear),
            is_wrapping: find_wrapping(linear),
            is_outer: find_outer(linear),
            copied: find_copied(dialect, linear),
            is_copying: false,
            grid_ranges: Vec::new(),
            counts: [0; 4],
        }
    }

    /// Finds the ranges that are indices of the grid and writes the text before the body.
    fn write_header(&mut self, name: &str) -> Option<()> {
        let linear = self.linear;
        let mut group = Vec::new();
        for (kind, word) in [(AxisKind::Global, "gidx"), (AxisKind::Local, "lidx")] {
            for (dimension, (position, size)) in linear.launched(kind).iter().rev().enumerate() {
                let Some(text) = self.dialect.grid_index(kind, dimension) else { continue };
                self.grid_ranges.push((*position, format!("{word}{dimension}"), text));
                if kind == AxisKind::Local {
                    // A group without threads is never launched, but compilers refuse it.
                    group.push((*size).max(1));
                }
            }
        }
        let stored = stored_slots(linear);
        let arrays = linear.globals().into_iter();
        let variables = linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Var(variable) => Some((variable.name.as_str(), uop.dtype)),
            _ => None,
        });
        let locals = locals(linear)
            .map(|(number, dtype, size_elements)| (format!("local{number}"), dtype, size_elements));
        let header = Header {
            name,
            arrays: arrays.map(|(g, dtype)| (g.slot, dtype, stored.contains(&g.slot))).collect(),
            variables: variables.collect(),
            locals: locals.collect(),
            group,
        };
        self.out = self.dialect.header(&header)?;
        Some(())
    }

    fn line(&mut self, line: &(impl Piece + ?Sized)) {
        self.out.text.extend(std::iter::repeat_n("  ", self.depth));
        self.out.write(line);
        self.out.text.push('\n');
    }

    fn new_name(&mut self, kind: NameKind) -> String {
        let count = &mut self.counts[kind as usize];
        *count += 1;
        let word = ["alu", "val", "acc", "ridx"][kind as usize];
        format!("{word}{}", *count - 1)
    }

    /// Source `number` of a uop as an operand.
    fn source(&self, uop: &Instruction, number: usize) -> Option<Value<'_>> {
        let position = *uop.src.get(number)? as usize;
        let (expression, source) = (self.expressions.get(position)?, &self.linear.uops[position]);
        // The splat of a constant is known as well.
        let lane = match (source.op, source.src.as_slice()) {
            (Op::Vectorize, [lane]) => *lane as usize,
            _ => position,
        };
        Some(Value {
            code: &expression.code,
            dtype: source.dtype,
            lanes: source.lanes,
            mask_bytes: expression.mask_bytes,
            known: self.expressions.get(lane)?.constant,
        })
    }

    fn source_uop(&self, uop: &Instruction, number: usize) -> Option<&'a Instruction> {
        self.linear.uops.get(*uop.src.get(number)? as usize)
    }

    fn type_name(&self, uop: &Instruction, mask_bytes: u8) -> Option<Code> {
        self.dialect.type_name(uop.dtype, uop.lanes, mask_bytes)
    }

    /// Writes one uop; `None` if the language does not have it.
    fn write_uop(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        let mut expression = Expression::default();
        match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => expression.code = self.dialect.constant(*value)?,
            (Op::DefineGlobal, Arg::Global(global)) => {
                expression.code = format!("data{}", global.slot).into();
            }
            (Op::DefineVar, Arg::Var(variable)) => expression.code = variable.name.as_str().into(),
            (Op::DefineLocal, Arg::Local(local)) => {
                expression.code = format!("local{}", local.number).into();
            }
            (Op::Barrier, _) => {
                if self.is_copying {
                    self.line(&self.dialect.wait_for_copies());
                }
                self.line(self.dialect.barrier()?);
            }
            (Op::Index | Op::Sink, _) => {}
            (Op::Range, _) => expression.code = self.open_range(position)?.into(),
            (Op::EndRange, _) => {
                if !self.grid_ranges.iter().any(|(range, ..)| *range == uop.src[0]) {
                    self.depth -= 1;
                    self.line("}");
                }
            }
            (Op::DefineAcc, _) => expression = self.define_accumulator(position)?,
            (Op::Assign, _) => expression = self.assign(uop)?,
            // Copied where it is stored.
            (Op::Load, _) if self.copied[position] => {}
            (Op::Load, _) => expression = self.load(uop)?,
            (Op::Store, _) => self.store(uop)?,
            (Op::Wmma, Arg::TensorCore(core)) => {
                let src = (0..3).map(|number| self.source(uop, number));
                let product = self.dialect.product(core, &src.collect::<Option<Vec<_>>>()?)?;
                let kind = self.type_name(uop, 0)?;
                let name = self.new_name(NameKind::Alu);
                self.line(&self.dialect.declare(&kind, &name, &product, false));
                expression.code = name.into();
            }
            (op, _) if op.is_elementwise() || matches!(op, Op::Vectorize | Op::Lane) => {
                expression = self.alu(position)?;
            }
            _ => return None,
        }
        expression.constant = self.constant(uop);
        self.expressions[position] = expression;
        Some(())
    }

    /// The value of a uop that is a constant or an op of constants.
    fn constant(&self, uop: &Instruction) -> Option<Constant> {
        if let Arg::Const(value) = uop.arg {
            return Some(value);
        }
        let constant = |source: &u32| self.expressions[*source as usize].constant;
        let src: Option<Sources<Constant>> = match uop.op.is_elementwise() {
            true => uop.src.iter().map(constant).collect(),
            false => None,
        };
        evaluate(uop.op, uop.dtype, &src?)
    }

    /// Opens a loop, or declares an index of the grid.
    fn open_range(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let (kind, end) = (self.type_name(uop, 0)?, self.source(uop, 0)?.code.clone());
        let grid_range = self.grid_ranges.iter().find(|(range, ..)| *range as usize == position);
        if let Some((_, name, text)) = grid_range.cloned() {
            let declared = self.dialect.declare(&kind, &name, &text.into(), false);
            self.line(&code!("{} /* {} */", declared, end));
            return Some(name);
        }
        let name = self.new_name(NameKind::Ridx);
        self.line(&self.dialect.loop_header(&kind, &name, &end));
        self.depth += 1;
        Some(name)
    }

    fn define_accumulator(&mut self, position: usize) -> Option<Expression> {
        let uop = &self.linear.uops[position];
        let start = self.dialect.canonical(&self.source(uop, 0)?);
        let kind = self.type_name(uop, start.mask_bytes)?;
        let name = self.new_name(NameKind::Acc);
        let declared = match self.is_outer[position] {
            true => self.dialect.declare_outer(&kind, &name, &start.code),
            false => self.dialect.declare(&kind, &name, &start.code, true),
        };
        self.line(&declared);
        let code = name.into();
        let mask_bytes = start.mask_bytes;
        Some(Expression { code, mask_bytes, is_volatile: true, ..Expression::default() })
    }

    fn assign(&mut self, uop: &Instruction) -> Option<Expression> {
        let variable = *uop.src.first()? as usize;
        let mut expression = self.expressions.get(variable)?.clone();
        let value = self.dialect.canonical(&self.source(uop, 1)?);
        self.line(&code!("{} = {};", expression.code, value.code));
        (expression.height, expression.is_volatile) = (0, true);
        Some(expression)
    }

    /// The memory that a load or store accesses, and its gate.
    fn access(
        &self,
        uop: &Instruction,
        value: &Instruction,
    ) -> Option<(Access<'_>, Option<Value<'_>>)> {
        let index = self.source_uop(uop, 0)?;
        let array = self.source_uop(index, 0)?;
        let size_elements = match &array.arg {
            Arg::Global(global) => global.size_elements,
            Arg::Local(local) => local.size_elements,
            _ => return None,
        };
        let address = self.expressions.get(*index.src.get(1)? as usize)?;
        let access = Access {
            array: &self.source(index, 0)?.code.text,
            size_elements,
            index: &address.code,
            known_index: address.constant.and_then(Constant::to_int),
            dtype: value.dtype,
            lanes: value.lanes,
            is_local: array.op == Op::DefineLocal,
            is_nontemporal: uop.op == Op::Store && matches!(uop.arg, Arg::Int(_)),
        };
        Some((access, self.source(index, 2)))
    }

    fn load(&mut self, uop: &Instruction) -> Option<Expression> {
        let (access, gate) = self.access(uop, uop)?;
        let loaded = self.dialect.load(&access)?;
        let prefetch = match uop.arg {
            Arg::Int(distance) => self.dialect.prefetch(&access, distance),
            _ => None,
        };
        let kind = self.type_name(uop, loaded.mask_bytes)?;
        let gate = gate.map(|gate| gate.code.clone());
        prefetch.iter().for_each(|prefetch| self.line(prefetch));
        let name = self.new_name(NameKind::Val);
        match gate {
            Some(gate) => {
                let zero = self.zero(uop)?;
                for line in self.dialect.gated_load(&kind, &name, &gate, &loaded.code, &zero) {
                    self.line(&line);
                }
            }
            None => self.line(&self.dialect.declare(&kind, &name, &loaded.code, false)),
        }
        let code = name.into();
        Some(Expression { code, mask_bytes: loaded.mask_bytes, ..Expression::default() })
    }

    /// The zero of a uop's type.
    fn zero(&self, uop: &Instruction) -> Option<Code> {
        let value = Constant::zero(uop.dtype);
        let code = self.dialect.constant(value)?;
        if uop.lanes == 1 {
            return Some(code);
        }
        let known = Some(value);
        let zero = Value { code: &code, dtype: uop.dtype, lanes: 1, mask_bytes: 0, known };
        Some(self.dialect.vectorize(uop.dtype, uop.lanes, &[zero])?.code)
    }

    fn store(&mut self, uop: &Instruction) -> Option<()> {
        if self.copied[uop.src[1] as usize] {
            let stored = self.source_uop(uop, 1)?;
            let ((from, _), (to, gate)) = (self.access(stored, stored)?, self.access(uop, stored)?);
            let copy = self.dialect.copy(&from, &to)?;
            let line = match gate {
                Some(gate) => code!("if ({}) {{ {} }}", gate.code, copy),
                None => copy,
            };
            self.line(&line);
            self.is_copying = true;
            return Some(());
        }
        let value = self.dialect.canonical(&self.source(uop, 1)?);
        let stored = self.source_uop(uop, 1)?;
        let (access, gate) = self.access(uop, stored)?;
        let value =
            Value { code: &value.code, mask_bytes: value.mask_bytes, ..self.source(uop, 1)? };
        let store = self.dialect.store(&access, &value)?;
        match gate {
            Some(gate) => self.line(&code!("if ({}) {{ {} }}", gate.code, store)),
            None => self.line(&store),
        }
        Some(())
    }

    fn alu(&mut self, position: usize) -> Option<Expression> {
        let uop = &self.linear.uops[position];
        let sources = || uop.src.iter().map(|source| &self.expressions[*source as usize]);
        let height = 1 + sources().map(|source| source.height).max()?;
        let is_volatile = sources().any(|source| source.is_volatile);
        // A lane of a name needs no name of its own.
        let is_named_lane = uop.op == Op::Lane && height == 1 && !is_volatile;
        let Text { code, mask_bytes } = self.alu_text(position)?;
        if is_named_lane || self.is_inline[position] && height < HEIGHT_MAX {
            let height = if is_named_lane { 0 } else { height };
            return Some(Expression { code, mask_bytes, height, is_volatile, constant: None });
        }
        let (kind, name) = (self.type_name(uop, mask_bytes)?, self.new_name(NameKind::Alu));
        self.line(&self.dialect.declare(&kind, &name, &code, false));
        Some(Expression { code: name.into(), mask_bytes, ..Expression::default() })
    }

    /// The expression of an elementwise op, vector or lane.
    fn alu_text(&self, position: usize) -> Option<Text> {
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
                let min_max = self.match_min_max(uop);
                let Instruction { op, dtype, lanes, .. } = *uop;
                self.dialect.alu(&Alu { op, dtype, lanes, src, may_wrap, min_max })
            }
        }
    }

    /// Matches a `where` that compares the two values it selects from: see [`Alu::min_max`].
    fn match_min_max(&self, uop: &Instruction) -> Option<Op> {
        let (Op::Where, [_, x, y]) = (uop.op, uop.src.as_slice()) else { return None };
        let gate = self.source_uop(uop, 0).filter(|gate| gate.op == Op::CmpLt)?;
        match gate.src.as_slice() {
            compared if compared == [*x, *y] => Some(Op::Min),
            compared if compared == [*y, *x] => Some(Op::Max),
            _ => None,
        }
    }
}

/// Returns the local arrays: number, type, number of elements. Each array has at least one, since
/// languages have no empty arrays.
pub(crate) fn locals(linear: &Linear) -> impl Iterator<Item = (usize, DType, i64)> {
    linear.uops.iter().filter_map(|uop| match &uop.arg {
        Arg::Local(local) => Some((local.number, uop.dtype, local.size_elements.max(1))),
        _ => None,
    })
}

/// Returns the slots that are written to.
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

/// Returns for each uop whether it is a load whose only use is a store to local memory under the
/// same gate, if the language copies that while a thread goes on.
fn find_copied(dialect: &dyn Dialect, linear: &Linear) -> Vec<bool> {
    let uops = &linear.uops;
    let mut use_counts = vec![0u32; uops.len()];
    uops.iter().flat_map(|uop| &uop.src).for_each(|source| use_counts[*source as usize] += 1);
    let mut copied = vec![false; uops.len()];
    // Without barriers, local arrays are private, and loaded without waiting.
    if uops.iter().all(|uop| uop.op != Op::Barrier) {
        return copied;
    }
    for store in uops.iter().filter(|uop| uop.op == Op::Store) {
        let [to, load] = [0, 1].map(|number: usize| store.src[number] as usize);
        if uops[load].op != Op::Load || use_counts[load] != 1 || uops[load].src.len() != 1 {
            continue;
        }
        let [to, from] = [&uops[to], &uops[uops[load].src[0] as usize]];
        let array = |index: &Instruction| uops[index.src[0] as usize].op;
        let is_staging = array(to) == Op::DefineLocal && array(from) == Op::DefineGlobal;
        if !is_staging || to.src.get(2) != from.src.get(2) {
            continue;
        }
        let none = Code::default();
        let (dtype, lanes) = (uops[load].dtype, uops[load].lanes);
        let access = |is_local| Access {
            array: "",
            size_elements: 0,
            index: &none,
            known_index: None,
            dtype,
            lanes,
            is_local,
            is_nontemporal: false,
        };
        copied[load] = dialect.copy(&access(false), &access(true)).is_some();
    }
    copied
}

/// Returns for each uop whether it is a vector that is assigned to after an inner loop: once for
/// all of its iterations.
fn find_outer(linear: &Linear) -> Vec<bool> {
    let mut is_outer = vec![false; linear.uops.len()];
    // For each open loop, whether an inner loop has ended.
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

/// Returns for each uop whether it is used exactly once, in the loop that it is in, by a uop that
/// evaluates it immediately, with no assignment in between, and the language does not ask for a
/// name.
fn find_inline(dialect: &dyn Dialect, linear: &Linear) -> Vec<bool> {
    let count = linear.uops.len();
    // Innermost loop, and number of assignments so far.
    let mut scopes = vec![(0u32, 0u32); count];
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
        let is_named = dialect.names_operand_of_zero() && is_sum_with_zero(linear, uop);
        scopes[position] = (innermost, assign_count);
        for source in uop.src.iter().map(|source| *source as usize).filter(|s| *s < count) {
            use_counts[source] += 1;
            let is_same_scope = scopes[source] == (innermost, assign_count - is_assign);
            // An index is evaluated later, by its loads and stores.
            is_inline[source] &=
                is_same_scope && !is_named && !(uop.op == Op::Index && assign_count != 0);
        }
    }
    is_inline.iter().zip(&use_counts).map(|(inline, count)| *inline && *count == 1).collect()
}

/// Returns whether a uop is a sum or difference of float scalars one of which is the constant zero,
/// of either sign.
fn is_sum_with_zero(linear: &Linear, uop: &Instruction) -> bool {
    let is_zero = |source: &u32| match linear.uops.get(*source as usize).map(|uop| &uop.arg) {
        Some(Arg::Const(value)) => value.to_float() == Some(0.0),
        _ => false,
    };
    let is_sum = matches!(uop.op, Op::Add | Op::Sub) && uop.dtype.is_float() && uop.lanes == 1;
    is_sum && uop.src.iter().any(is_zero)
}
