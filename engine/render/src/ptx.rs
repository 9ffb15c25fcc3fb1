//! PTX for sm_80 and later. One entry per kernel, launched with one group per step of its global
//! ranges and one thread per step of its local ones.
//!
//! A lane is a register: `%p` bool, `%r` integers of up to 32 bits (extended as their type says),
//! `%rd` those of 64, `%h` 16-bit floats, `%f` f32, `%fd` f64. A vector is as many registers;
//! vectors of up to 16 bytes are loaded and stored at once, at multiples of their size, and
//! computed lane by lane. Sums and products say how they round, so that none are fused.

use gradiff_graph::{Arg, AxisKind, DType, Instruction, Linear, Op, TensorCore};

use crate::Error;
use crate::dialect::dimension_name;
use crate::ptx_alu::{Registers, alu, class, constant};
use crate::writer::{check_name, unsupported};

/// The text of one kernel.
///
/// # Errors
/// If a uop is not of the linear level or has no text in PTX, or the name is no identifier.
pub fn ptx(linear: &Linear) -> Result<String, Error> {
    check_name(&linear.name)?;
    let mut writer = Writer {
        linear,
        out: Registers::default(),
        values: vec![Vec::new(); linear.uops.len()],
        launched: Vec::new(),
        locals: Vec::new(),
    };
    for kind in [AxisKind::Global, AxisKind::Local] {
        let ranges = linear.launched(kind);
        if let Some((outermost, _)) = ranges.first().filter(|_| ranges.len() > 3) {
            return Err(unsupported("PTX", linear, *outermost as usize));
        }
        let word = if kind == AxisKind::Global { "%ctaid" } else { "%tid" };
        let names = ranges.iter().rev().enumerate();
        let names = names.map(|(d, (at, _))| (*at, format!("{word}{}", dimension_name(d))));
        writer.launched.extend(names);
    }
    writer.parameters();
    for position in 0..linear.uops.len() {
        writer.uop(position).ok_or_else(|| unsupported("PTX", linear, position))?;
    }
    Ok(writer.finish())
}

/// What stands once before these kernels in a file.
pub fn ptx_prelude(_kernels: &str) -> String {
    ".version 7.8\n.target sm_80\n.address_size 64\n".to_string()
}

struct Writer<'a> {
    linear: &'a Linear,
    out: Registers,
    /// The registers of each value, one a lane.
    values: Vec<Vec<String>>,
    /// Ranges that are numbers of groups and threads: position, name of the number.
    launched: Vec<(u32, String)>,
    /// Declarations of arrays of the group.
    locals: Vec<String>,
}

impl Writer<'_> {
    /// The names of the parameters, with their types.
    fn declared(&self) -> Vec<(String, &'static str)> {
        let arrays = self.linear.globals().into_iter();
        let arrays = arrays.map(|(global, _)| (format!("data{}", global.slot), "u64"));
        let variables = self.linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Var(variable) => Some((variable.name.clone(), class(uop.dtype).kind)),
            _ => None,
        });
        arrays.chain(variables).collect()
    }

    /// Loads the parameters.
    fn parameters(&mut self) {
        for (position, uop) in self.linear.uops.iter().enumerate() {
            let (name, kind) = match &uop.arg {
                Arg::Global(global) => (format!("data{}", global.slot), "u64"),
                Arg::Var(variable) => (variable.name.clone(), class(uop.dtype).kind),
                _ => continue,
            };
            let is_array = uop.op == Op::DefineGlobal;
            let dtype = if is_array { DType::U64 } else { uop.dtype };
            let mut value = self.out.new_of(dtype);
            self.out.line(&format!("ld.param.{kind} {value}, [{}_{name}];", self.linear.name));
            if is_array {
                let address = self.out.new_of(DType::U64);
                self.out.line(&format!("cvta.to.global.u64 {address}, {value};"));
                value = address;
            }
            self.values[position] = vec![value];
        }
    }

    fn finish(self) -> String {
        let name = &self.linear.name;
        let parameters: Vec<String> = self
            .declared()
            .iter()
            .map(|(parameter, kind)| format!("\t.param .{kind} {name}_{parameter}"))
            .collect();
        let mut sizes = [1i64; 3];
        for (dimension, (_, steps)) in
            self.linear.launched(AxisKind::Local).iter().rev().enumerate()
        {
            sizes[dimension] = *steps;
        }
        let [x, y, z] = sizes;
        format!(
            ".visible .entry {name}(\n{}\n)\n.maxntid {x}, {y}, {z}\n{{\n{}{}{}\tret;\n}}\n",
            parameters.join(",\n"),
            self.out.declarations(),
            self.locals.concat(),
            self.out.text
        )
    }

    fn lanes(&self, uop: &Instruction, number: usize) -> Option<Vec<String>> {
        self.values.get(*uop.src.get(number)? as usize).cloned()
    }

    fn source<'b>(&'b self, uop: &Instruction, number: usize) -> Option<&'b Instruction> {
        self.linear.uops.get(*uop.src.get(number)? as usize)
    }

    fn uop(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        self.values[position] = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => vec![constant(&mut self.out, *value)],
            (Op::DefineGlobal | Op::DefineVar, _) => return Some(()),
            (Op::DefineLocal, Arg::Local(local)) => {
                let name = format!("local{}", local.number);
                let size_bytes = local.size_elements.max(1) * uop.dtype.size_bytes() as i64;
                self.locals.push(format!("\t.shared .align 16 .b8 {name}[{size_bytes}];\n"));
                let address = self.out.new_of(DType::U64);
                self.out.line(&format!("mov.u64 {address}, {name};"));
                vec![address]
            }
            (Op::Index, _) => vec![self.index(uop)?],
            (Op::Sink, _) => Vec::new(),
            (Op::Barrier, _) => {
                self.out.line("bar.sync 0;");
                Vec::new()
            }
            (Op::Range, _) => vec![self.open(position)?],
            (Op::EndRange, _) => {
                self.close(*uop.src.first()?)?;
                Vec::new()
            }
            (Op::DefineAcc, _) => {
                let start = self.lanes(uop, 0)?;
                start.iter().map(|lane| self.copy(uop.dtype, lane)).collect()
            }
            (Op::Assign, _) => {
                let (variable, value) = (self.lanes(uop, 0)?, self.lanes(uop, 1)?);
                for (to, from) in variable.iter().zip(value) {
                    self.out.line(&format!("mov.{} {to}, {from};", class(uop.dtype).moved));
                }
                variable
            }
            (Op::Load, _) => self.load(uop)?,
            (Op::Store, _) => {
                self.store(uop)?;
                Vec::new()
            }
            (Op::Vectorize, _) => {
                let sources = (0..uop.src.len()).map(|number| self.lanes(uop, number));
                let values: Vec<String> = sources.collect::<Option<Vec<_>>>()?.concat();
                match values.as_slice() {
                    [one] => vec![one.clone(); uop.lanes.into()],
                    _ => values,
                }
            }
            (Op::Lane, Arg::Int(lane)) => {
                vec![self.lanes(uop, 0)?.get(usize::try_from(*lane).ok()?)?.clone()]
            }
            (Op::Wmma, Arg::TensorCore(core)) => self.product(uop, core)?,
            (op, _) if op.is_elementwise() => self.computed(uop)?,
            _ => return None,
        };
        // What a variable holds now is not what it holds when this is used.
        if matches!(uop.op, Op::Vectorize | Op::Lane) && self.reads_variable(uop) {
            let values = std::mem::take(&mut self.values[position]);
            self.values[position] = values.iter().map(|lane| self.copy(uop.dtype, lane)).collect();
        }
        Some(())
    }

    fn reads_variable(&self, uop: &Instruction) -> bool {
        let is_variable = |number| {
            self.source(uop, number)
                .is_some_and(|source| matches!(source.op, Op::DefineAcc | Op::Assign))
        };
        (0..uop.src.len()).any(is_variable)
    }

    /// A register of its own.
    fn copy(&mut self, dtype: DType, value: &str) -> String {
        let name = self.out.new_of(dtype);
        self.out.line(&format!("mov.{} {name}, {value};", class(dtype).moved));
        name
    }

    fn computed(&mut self, uop: &Instruction) -> Option<Vec<String>> {
        let sources = (0..uop.src.len()).map(|number| self.lanes(uop, number));
        let sources: Vec<Vec<String>> = sources.collect::<Option<_>>()?;
        let from = self.source(uop, usize::from(uop.op == Op::Where))?.dtype;
        let lane = |lane: usize| {
            let src: Option<Vec<String>> =
                sources.iter().map(|source| source.get(lane).cloned()).collect();
            alu(&mut self.out, uop.op, from, uop.dtype, &src?)
        };
        (0..uop.lanes.into()).map(lane).collect()
    }

    /// A product of matrices; A and B in registers of 32 bits, two 16-bit floats in each.
    fn product(&mut self, uop: &Instruction, core: &TensorCore) -> Option<Vec<String>> {
        let mma = crate::cuda::mma(core)?;
        let mut operands = Vec::new();
        for matrix in 0..2 {
            let mut registers = Vec::new();
            for values in self.lanes(uop, matrix)?.chunks(4 / core.from.size_bytes()) {
                let register = self.out.new_of(DType::U32);
                self.out.line(&match values {
                    [one] => format!("cvt.rna.tf32.f32 {register}, {one};"),
                    both => format!("mov.b32 {register}, {{{}}};", both.join(", ")),
                });
                registers.push(register);
            }
            operands.push(registers.join(", "));
        }
        let starts = self.lanes(uop, 2)?;
        let sums: Vec<String> = starts.iter().map(|_| self.out.new_of(DType::F32)).collect();
        let (a, b) = (&operands[0], &operands[1]);
        let (to, from) = (sums.join(", "), starts.join(", "));
        self.out.line(&format!("{mma} {{{to}}}, {{{a}}}, {{{b}}}, {{{from}}};"));
        Some(sums)
    }

    fn open(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let (name, kind) = (self.out.new_of(uop.dtype), class(uop.dtype).kind);
        if let Some((_, number)) = self.launched.iter().find(|(at, _)| *at as usize == position) {
            match uop.dtype.bits() {
                32 => self.out.line(&format!("mov.u32 {name}, {number};")),
                _ => {
                    let narrow = self.out.new_of(DType::U32);
                    self.out.line(&format!("mov.u32 {narrow}, {number};"));
                    self.out.line(&format!("cvt.u64.u32 {name}, {narrow};"));
                }
            }
            return Some(name);
        }
        let (end, is_done) = (self.lanes(uop, 0)?.first()?.clone(), self.out.new_of(DType::Bool));
        self.out.line(&format!("mov.{} {name}, 0;", class(uop.dtype).moved));
        self.out.label(&format!("$loop{position}_{}", self.linear.name));
        self.out.line(&format!("setp.ge.{kind} {is_done}, {name}, {end};"));
        self.out.line(&format!("@{is_done} bra $end{position}_{};", self.linear.name));
        Some(name)
    }

    fn close(&mut self, range: u32) -> Option<()> {
        if self.launched.iter().any(|(at, _)| *at == range) {
            return Some(());
        }
        let kind = class(self.linear.uops[range as usize].dtype).kind;
        let counter = self.values[range as usize].first()?.clone();
        self.out.line(&format!("add.{kind} {counter}, {counter}, 1;"));
        self.out.line(&format!("bra $loop{range}_{};", self.linear.name));
        self.out.label(&format!("$end{range}_{}", self.linear.name));
        Some(())
    }

    /// The address of an element.
    fn index(&mut self, uop: &Instruction) -> Option<String> {
        let (array, at) = (self.lanes(uop, 0)?.concat(), self.lanes(uop, 1)?.concat());
        let (size_bytes, index) = (uop.dtype.size_bytes(), self.source(uop, 1)?.dtype);
        let (offset, address) = (self.out.new_of(DType::U64), self.out.new_of(DType::U64));
        let multiply = if index.bits() == 64 { "mul.lo.s64" } else { "mul.wide.s32" };
        self.out.line(&format!("{multiply} {offset}, {at}, {size_bytes};"));
        self.out.line(&format!("add.s64 {address}, {array}, {offset};"));
        Some(address)
    }

    /// How the elements of an index are reached: the space, the guard of its gate, its address,
    /// and of how many lanes an access is.
    fn access(&self, uop: &Instruction, dtype: DType, lanes: u8) -> Option<(String, String, u8)> {
        let index = self.source(uop, 0)?;
        let space = match self.source(index, 0)?.op {
            Op::DefineLocal => "shared",
            _ => "global",
        };
        let guard = match self.lanes(index, 2) {
            Some(gate) => format!("@{} ", gate.first()?),
            None => String::new(),
        };
        let most = 16 / dtype.size_bytes().max(1) as u8;
        Some((space.to_string(), guard, lanes.min(most).min(4)))
    }

    fn load(&mut self, uop: &Instruction) -> Option<Vec<String>> {
        let address = self.lanes(uop, 0)?.concat();
        let (space, guard, step) = self.access(uop, uop.dtype, uop.lanes)?;
        let stored = if uop.dtype == DType::Bool { DType::U8 } else { uop.dtype };
        let values: Vec<String> = (0..uop.lanes).map(|_| self.out.new_of(stored)).collect();
        if !guard.is_empty() {
            for value in &values {
                let zero = if stored == DType::F32 { "0f00000000" } else { "0" };
                let zero = if stored == DType::F64 { "0d0000000000000000" } else { zero };
                self.out.line(&format!("mov.{} {value}, {zero};", class(stored).moved));
            }
        }
        for (number, part) in values.chunks(step.into()).enumerate() {
            let offset = number * usize::from(step) * stored.size_bytes();
            let (vector, list) = braced(part);
            let kind = class(stored).stored;
            let access = format!("ld.{space}{vector}.{kind} {list}, [{address}+{offset}];");
            self.out.line(&format!("{guard}{access}"));
        }
        if uop.dtype != DType::Bool {
            return Some(values);
        }
        let bools = values.into_iter().map(|value| {
            let name = self.out.new_of(DType::Bool);
            self.out.line(&format!("setp.ne.u32 {name}, {value}, 0;"));
            name
        });
        Some(bools.collect())
    }

    fn store(&mut self, uop: &Instruction) -> Option<()> {
        let (address, mut values) = (self.lanes(uop, 0)?.concat(), self.lanes(uop, 1)?);
        let source = self.source(uop, 1)?;
        let (dtype, lanes) = (source.dtype, source.lanes);
        let (space, guard, step) = self.access(uop, dtype, lanes)?;
        if dtype == DType::Bool {
            for value in &mut values {
                let name = self.out.new_of(DType::U8);
                self.out.line(&format!("selp.u32 {name}, 1, 0, {value};"));
                *value = name;
            }
        }
        let stored = if dtype == DType::Bool { DType::U8 } else { dtype };
        for (number, part) in values.chunks(step.into()).enumerate() {
            let offset = number * usize::from(step) * stored.size_bytes();
            let (vector, list) = braced(part);
            let kind = class(stored).stored;
            let access = format!("st.{space}{vector}.{kind} [{address}+{offset}], {list};");
            self.out.line(&format!("{guard}{access}"));
        }
        Some(())
    }
}

/// A list of registers, and the word for how many they are.
fn braced(registers: &[String]) -> (String, String) {
    match registers {
        [one] => (String::new(), one.clone()),
        many => (format!(".v{}", many.len()), format!("{{{}}}", many.join(", "))),
    }
}

/// How many elements a load takes at most.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    (16 / dtype.size_bytes().max(1) as u8).min(4)
}
