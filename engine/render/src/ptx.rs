//! PTX for sm_80 and later. One entry per kernel, launched with one group per iteration of its
//! global ranges and one thread per iteration of its local ranges.
//!
//! A lane is a register: `%p` bool, `%r` integers of up to 32 bits (sign- or zero-extended), `%rd`
//! integers of 64 bits, `%h` 16-bit floats, `%f` f32, `%fd` f64. A vector has a register per lane;
//! vectors of up to 16 bytes are loaded and stored by one instruction, aligned to their size, and
//! computed lane by lane. Sums and products have a rounding mode, so that none are contracted.

use gradiff_graph::tensor_core::TensorCore;
use gradiff_graph::{Arg, AxisKind, DType, Instruction, Linear, Op};

use crate::Error;
use crate::code::{Code, Helpers};
use crate::dialect::dimension_name;
use crate::legalize::{Legalizations, legalize};
use crate::ptx_alu::{Registers, alu, class, constant};
use crate::writer::{check_name, unsupported};

/// Renders a kernel.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in PTX, or the name is not an identifier.
pub(crate) fn ptx(linear: &Linear) -> Result<Code, Error> {
    check_name(&linear.name)?;
    let linear = &*legalize(linear, &Legalizations::PTX);
    let mut writer = Writer {
        linear,
        out: Registers::default(),
        values: vec![Vec::new(); linear.uops.len()],
        grid_ranges: Vec::new(),
        locals: Vec::new(),
    };
    for kind in [AxisKind::Global, AxisKind::Local] {
        let ranges = linear.launched(kind);
        if let Some((outermost, _)) = ranges.first().filter(|_| ranges.len() > 3) {
            return Err(unsupported("PTX", linear, *outermost as usize));
        }
        let word = if kind == AxisKind::Global { "%ctaid" } else { "%tid" };
        let names = ranges.iter().rev().enumerate();
        let names =
            names.map(|(d, (position, _))| (*position, format!("{word}{}", dimension_name(d))));
        writer.grid_ranges.extend(names);
    }
    writer.load_parameters();
    for position in 0..linear.uops.len() {
        writer.write_uop(position).ok_or_else(|| unsupported("PTX", linear, position))?;
    }
    Ok(writer.finish().into())
}

/// Returns the prelude of every file: PTX has no helpers.
pub(crate) fn ptx_prelude(_helpers: &Helpers) -> String {
    ".version 7.8\n.target sm_80\n.address_size 64\n".to_string()
}

/// Returns `None`: PTX has no helpers.
pub(crate) fn ptx_definition(_name: &str) -> Option<Code> {
    None
}

struct Writer<'a> {
    linear: &'a Linear,
    out: Registers,
    /// The registers of each value, one per lane.
    values: Vec<Vec<String>>,
    /// Ranges that are indices of the grid: position, special register.
    grid_ranges: Vec<(u32, String)>,
    /// Declarations of local arrays.
    locals: Vec<String>,
}

impl Writer<'_> {
    /// The names and types of the parameters.
    fn parameters(&self) -> Vec<(String, &'static str)> {
        let arrays = self.linear.globals().into_iter();
        let arrays = arrays.map(|(global, _)| (format!("data{}", global.slot), "u64"));
        let variables = self.linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Var(variable) => Some((variable.name.clone(), class(uop.dtype).op_type)),
            _ => None,
        });
        arrays.chain(variables).collect()
    }

    fn load_parameters(&mut self) {
        for (position, uop) in self.linear.uops.iter().enumerate() {
            let (name, op_type) = match &uop.arg {
                Arg::Global(global) => (format!("data{}", global.slot), "u64"),
                Arg::Var(variable) => (variable.name.clone(), class(uop.dtype).op_type),
                _ => continue,
            };
            let is_array = uop.op == Op::DefineGlobal;
            let dtype = if is_array { DType::U64 } else { uop.dtype };
            let mut value = self.out.new_register(dtype);
            self.out.line(&format!("ld.param.{op_type} {value}, [{}_{name}];", self.linear.name));
            if is_array {
                let address = self.out.new_register(DType::U64);
                self.out.line(&format!("cvta.to.global.u64 {address}, {value};"));
                value = address;
            }
            self.values[position] = vec![value];
        }
    }

    fn finish(self) -> String {
        let name = &self.linear.name;
        let parameters: Vec<String> = self
            .parameters()
            .iter()
            .map(|(parameter, op_type)| format!("\t.param .{op_type} {name}_{parameter}"))
            .collect();
        let mut sizes = [1i64; 3];
        let ranges = self.linear.launched(AxisKind::Local);
        for (size, (_, range_size)) in sizes.iter_mut().zip(ranges.iter().rev()) {
            // A group without threads is never launched, but compilers refuse it.
            *size = (*range_size).max(1);
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

    fn write_uop(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        self.values[position] = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => vec![constant(&mut self.out, *value)],
            (Op::DefineGlobal | Op::DefineVar, _) => return Some(()),
            (Op::DefineLocal, Arg::Local(local)) => {
                let name = format!("local{}", local.number);
                let size_bytes = local.size_elements.max(1) * uop.dtype.size_bytes() as i64;
                self.locals.push(format!("\t.shared .align 16 .b8 {name}[{size_bytes}];\n"));
                let address = self.out.new_register(DType::U64);
                self.out.line(&format!("mov.u64 {address}, {name};"));
                vec![address]
            }
            (Op::Index, _) => vec![self.index(uop)?],
            (Op::Sink, _) => Vec::new(),
            (Op::Barrier, _) => {
                self.out.line("bar.sync 0;");
                Vec::new()
            }
            (Op::Range, _) => vec![self.open_range(position)?],
            (Op::EndRange, _) => {
                self.close_range(*uop.src.first()?)?;
                Vec::new()
            }
            (Op::DefineAcc, _) => {
                let start = self.lanes(uop, 0)?;
                start.iter().map(|lane| self.copy(uop.dtype, lane)).collect()
            }
            (Op::Assign, _) => {
                let (variable, value) = (self.lanes(uop, 0)?, self.lanes(uop, 1)?);
                for (to, from) in variable.iter().zip(value) {
                    self.out.line(&format!("mov.{} {to}, {from};", class(uop.dtype).register_type));
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
                    [value] => vec![value.clone(); uop.lanes.into()],
                    _ => values,
                }
            }
            (Op::Lane, Arg::Int(lane)) => {
                vec![self.lanes(uop, 0)?.get(usize::try_from(*lane).ok()?)?.clone()]
            }
            (Op::Wmma, Arg::TensorCore(core)) => self.product(uop, core)?,
            (op, _) if op.is_elementwise() => self.elementwise(uop)?,
            _ => return None,
        };
        // The registers of an accumulator are copied, since they may be assigned to before the use.
        if uop.op != Op::Assign && self.reads_variable(uop) {
            let sources: Vec<String> =
                (0..uop.src.len()).filter_map(|number| self.lanes(uop, number)).flatten().collect();
            for lane in 0..self.values[position].len() {
                let value = self.values[position][lane].clone();
                if sources.contains(&value) {
                    self.values[position][lane] = self.copy(uop.dtype, &value);
                }
            }
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

    /// Copies a value to a new register.
    fn copy(&mut self, dtype: DType, value: &str) -> String {
        let name = self.out.new_register(dtype);
        self.out.line(&format!("mov.{} {name}, {value};", class(dtype).register_type));
        name
    }

    fn elementwise(&mut self, uop: &Instruction) -> Option<Vec<String>> {
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

    /// Writes the product of a tensor core. The registers of A and B have 32 bits and hold two
    /// 16-bit floats each.
    fn product(&mut self, uop: &Instruction, core: &TensorCore) -> Option<Vec<String>> {
        let mma = crate::cuda::mma(core)?;
        let mut operands = Vec::new();
        for matrix in 0..2 {
            let mut registers = Vec::new();
            for values in self.lanes(uop, matrix)?.chunks(4 / core.operand_dtype.size_bytes()) {
                let register = self.out.new_register(DType::U32);
                self.out.line(&match values {
                    [value] => format!("cvt.rna.tf32.f32 {register}, {value};"),
                    halves => format!("mov.b32 {register}, {{{}}};", halves.join(", ")),
                });
                registers.push(register);
            }
            operands.push(registers.join(", "));
        }
        let starts = self.lanes(uop, 2)?;
        let sums: Vec<String> = starts.iter().map(|_| self.out.new_register(DType::F32)).collect();
        let (a, b) = (&operands[0], &operands[1]);
        let (to, from) = (sums.join(", "), starts.join(", "));
        self.out.line(&format!("{mma} {{{to}}}, {{{a}}}, {{{b}}}, {{{from}}};"));
        Some(sums)
    }

    fn open_range(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let (name, op_type) = (self.out.new_register(uop.dtype), class(uop.dtype).op_type);
        let grid_range = self.grid_ranges.iter().find(|(range, _)| *range as usize == position);
        if let Some((_, index)) = grid_range {
            match uop.dtype.bits() {
                32 => self.out.line(&format!("mov.u32 {name}, {index};")),
                _ => {
                    let narrow = self.out.new_register(DType::U32);
                    self.out.line(&format!("mov.u32 {narrow}, {index};"));
                    self.out.line(&format!("cvt.u64.u32 {name}, {narrow};"));
                }
            }
            return Some(name);
        }
        let (end, is_done) =
            (self.lanes(uop, 0)?.first()?.clone(), self.out.new_register(DType::Bool));
        self.out.line(&format!("mov.{} {name}, 0;", class(uop.dtype).register_type));
        self.out.label(&format!("$loop{position}_{}", self.linear.name));
        self.out.line(&format!("setp.ge.{op_type} {is_done}, {name}, {end};"));
        self.out.line(&format!("@{is_done} bra $end{position}_{};", self.linear.name));
        Some(name)
    }

    fn close_range(&mut self, range: u32) -> Option<()> {
        if self.grid_ranges.iter().any(|(position, _)| *position == range) {
            return Some(());
        }
        let op_type = class(self.linear.uops[range as usize].dtype).op_type;
        let counter = self.values[range as usize].first()?.clone();
        self.out.line(&format!("add.{op_type} {counter}, {counter}, 1;"));
        self.out.line(&format!("bra $loop{range}_{};", self.linear.name));
        self.out.label(&format!("$end{range}_{}", self.linear.name));
        Some(())
    }

    /// The address of an element.
    fn index(&mut self, uop: &Instruction) -> Option<String> {
        let (array, index) = (self.lanes(uop, 0)?.concat(), self.lanes(uop, 1)?.concat());
        let (size_bytes, dtype) = (uop.dtype.size_bytes(), self.source(uop, 1)?.dtype);
        let (offset, address) =
            (self.out.new_register(DType::U64), self.out.new_register(DType::U64));
        let multiply = if dtype.bits() == 64 { "mul.lo.s64" } else { "mul.wide.s32" };
        self.out.line(&format!("{multiply} {offset}, {index}, {size_bytes};"));
        self.out.line(&format!("add.s64 {address}, {array}, {offset};"));
        Some(address)
    }

    /// The state space, the predicate of the gate and the number of lanes per instruction of a load
    /// or store.
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
        Some((space.to_string(), guard, lanes.min(lanes_max(dtype))))
    }

    fn load(&mut self, uop: &Instruction) -> Option<Vec<String>> {
        let address = self.lanes(uop, 0)?.concat();
        let (space, guard, lanes) = self.access(uop, uop.dtype, uop.lanes)?;
        let memory_dtype = if uop.dtype == DType::Bool { DType::U8 } else { uop.dtype };
        let values: Vec<String> =
            (0..uop.lanes).map(|_| self.out.new_register(memory_dtype)).collect();
        if !guard.is_empty() {
            for value in &values {
                let zero = if memory_dtype == DType::F32 { "0f00000000" } else { "0" };
                let zero = if memory_dtype == DType::F64 { "0d0000000000000000" } else { zero };
                self.out
                    .line(&format!("mov.{} {value}, {zero};", class(memory_dtype).register_type));
            }
        }
        for (number, part) in values.chunks(lanes.into()).enumerate() {
            let offset = number * usize::from(lanes) * memory_dtype.size_bytes();
            let (vector, list) = vector_operand(part);
            let memory_type = class(memory_dtype).memory_type;
            let access = format!("ld.{space}{vector}.{memory_type} {list}, [{address}+{offset}];");
            self.out.line(&format!("{guard}{access}"));
        }
        if uop.dtype != DType::Bool {
            return Some(values);
        }
        let bools = values.into_iter().map(|value| {
            let name = self.out.new_register(DType::Bool);
            self.out.line(&format!("setp.ne.u32 {name}, {value}, 0;"));
            name
        });
        Some(bools.collect())
    }

    fn store(&mut self, uop: &Instruction) -> Option<()> {
        let (address, mut values) = (self.lanes(uop, 0)?.concat(), self.lanes(uop, 1)?);
        let source = self.source(uop, 1)?;
        let (dtype, lanes) = (source.dtype, source.lanes);
        let (space, guard, lanes) = self.access(uop, dtype, lanes)?;
        if dtype == DType::Bool {
            for value in &mut values {
                let name = self.out.new_register(DType::U8);
                self.out.line(&format!("selp.u32 {name}, 1, 0, {value};"));
                *value = name;
            }
        }
        let memory_dtype = if dtype == DType::Bool { DType::U8 } else { dtype };
        for (number, part) in values.chunks(lanes.into()).enumerate() {
            let offset = number * usize::from(lanes) * memory_dtype.size_bytes();
            let (vector, list) = vector_operand(part);
            let memory_type = class(memory_dtype).memory_type;
            let access = format!("st.{space}{vector}.{memory_type} [{address}+{offset}], {list};");
            self.out.line(&format!("{guard}{access}"));
        }
        Some(())
    }
}

/// The vector suffix of a load or store of these registers, and their list.
fn vector_operand(registers: &[String]) -> (String, String) {
    match registers {
        [register] => (String::new(), register.clone()),
        _ => (format!(".v{}", registers.len()), format!("{{{}}}", registers.join(", "))),
    }
}

/// Returns the maximal number of elements of a load or store.
pub(crate) fn lanes_max(dtype: DType) -> u8 {
    (16 / dtype.size_bytes().max(1) as u8).min(4)
}
