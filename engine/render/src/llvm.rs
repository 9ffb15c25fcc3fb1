//! LLVM IR with opaque pointers (LLVM 15 and later). One function per kernel:
//! `define void @NAME(ptr noalias %data0, ...)`.
//!
//! Loops are basic blocks with a phi for the counter; accumulators are allocas, which `mem2reg`
//! promotes. Vectors are LLVM's. No instruction has flags that permit other results (no nsw, no
//! fast-math), but `getelementptr inbounds` has no value for an index out of range: one whose gate
//! is false, which is not used. A bool is i1, and a byte in memory; bf16 is held as its bits. The
//! ranges of groups are loops, so kernels with barriers are refused.

use gradiff_graph::{Arg, DType, Instruction, Linear, Op};

use crate::Error;
use crate::code::{Code, Helpers, code};
use crate::helpers::Definitions;
use crate::legalize::{Legalizations, legalize};
use crate::llvm_alu::{Signature, alu, constant, declaration, helper, type_of};
use crate::llvm_body::Body;
use crate::writer::{check_name, stored_slots, unsupported};

/// Renders a kernel.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in LLVM IR, or the name is not an
/// identifier.
pub(crate) fn llvm(linear: &Linear) -> Result<Code, Error> {
    check_name(&linear.name)?;
    let linear = &*legalize(linear, &Legalizations::LLVM);
    let mut writer = Writer {
        linear,
        body: Body::default(),
        entry: String::new(),
        names: vec![String::new(); linear.uops.len()],
    };
    for position in 0..linear.uops.len() {
        writer.write_uop(position).ok_or_else(|| unsupported("LLVM IR", linear, position))?;
    }
    let parameters = writer.parameters().join(", ");
    let (name, entry, body) = (&linear.name, &writer.entry, &writer.body.code);
    Ok(code!("define void @{name}({parameters}) {{\nentry:\n{entry}{}  ret void\n}}\n", body))
}

/// Returns the prelude of a file that uses these helpers: declarations of intrinsics, and
/// functions.
///
/// # Panics
/// If a helper has no [`llvm_definition`].
pub(crate) fn llvm_prelude(helpers: &Helpers) -> String {
    let definitions = Definitions::of(helpers, llvm_definition);
    let mut declarations: Vec<String> = definitions.names().filter_map(declaration).collect();
    declarations.sort();
    declarations.concat() + &definitions.text
}

/// Returns the definition of a helper. Intrinsics are helpers without one, which are declared.
pub(crate) fn llvm_definition(name: &str) -> Option<Code> {
    helper(name).or_else(|| declaration(name).map(|_| Code::default()))
}

struct Writer<'a> {
    linear: &'a Linear,
    body: Body,
    /// The allocas, at the beginning of the entry block.
    entry: String,
    /// The operand text of each uop's value.
    names: Vec<String>,
}

impl Writer<'_> {
    fn parameters(&self) -> Vec<String> {
        let stored = stored_slots(self.linear);
        let arrays = self.linear.globals().into_iter().map(|(global, _)| {
            let access = if stored.contains(&global.slot) { "" } else { "readonly " };
            format!("ptr noalias {access}%data{}", global.slot)
        });
        let variables = self.linear.uops.iter().filter_map(|uop| match &uop.arg {
            Arg::Var(variable) => Some(format!("{} %{}", type_of(uop.dtype, 1), variable.name)),
            _ => None,
        });
        arrays.chain(variables).collect()
    }

    fn source(&self, uop: &Instruction, number: usize) -> Option<(&str, &Instruction)> {
        let position = *uop.src.get(number)? as usize;
        Some((self.names.get(position)?, &self.linear.uops[position]))
    }

    /// The value of a source. Accumulators are loaded.
    fn value(&mut self, uop: &Instruction, number: usize) -> Option<String> {
        let position = *uop.src.get(number)? as usize;
        let source = &self.linear.uops[position];
        let name = self.names.get(position)?.clone();
        Some(match source.op {
            Op::DefineAcc | Op::Assign => {
                let kind = type_of(source.dtype, source.lanes);
                self.body.value(&format!("load {kind}, ptr {name}"))
            }
            _ => name,
        })
    }

    fn write_uop(&mut self, position: usize) -> Option<()> {
        let uop = &self.linear.uops[position];
        let kind = type_of(uop.dtype, uop.lanes);
        self.names[position] = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => constant(*value),
            (Op::DefineGlobal, Arg::Global(global)) => format!("%data{}", global.slot),
            (Op::DefineVar, Arg::Var(variable)) => format!("%{}", variable.name),
            (Op::DefineLocal, Arg::Local(local)) => {
                let (name, size) = (format!("%local{}", local.number), local.size_elements.max(1));
                let element = memory_type(uop.dtype, 1);
                self.entry += &format!("  {name} = alloca [{size} x {element}], align 64\n");
                name
            }
            (Op::Index, _) => self.index(uop)?,
            (Op::Sink, _) => String::new(),
            (Op::Range, _) => self.open_loop(position)?,
            (Op::EndRange, _) => self.close_loop(*uop.src.first()?)?,
            (Op::DefineAcc, _) => {
                let (name, start) = (format!("%acc{position}"), self.value(uop, 0)?);
                self.entry += &format!("  {name} = alloca {kind}\n");
                self.body.line(&format!("store {kind} {start}, ptr {name}"));
                name
            }
            (Op::Assign, _) => {
                let value = self.value(uop, 1)?;
                let (name, variable) = self.source(uop, 0)?;
                let (name, kind) = (name.to_string(), type_of(variable.dtype, variable.lanes));
                self.body.line(&format!("store {kind} {value}, ptr {name}"));
                name
            }
            (Op::Load, _) => self.load(position)?,
            (Op::Store, _) => self.store(position)?,
            (Op::Vectorize, _) => self.vectorize(uop)?,
            (Op::Lane, Arg::Int(lane)) => {
                let value = self.value(uop, 0)?;
                let (_, source) = self.source(uop, 0)?;
                let kind = type_of(source.dtype, source.lanes);
                self.body.value(&format!("extractelement {kind} {value}, i64 {lane}"))
            }
            (op, _) if op.is_elementwise() => self.elementwise(uop)?,
            _ => return None,
        };
        Some(())
    }

    fn elementwise(&mut self, uop: &Instruction) -> Option<String> {
        let values = (0..uop.src.len()).map(|number| self.value(uop, number));
        let src: Vec<String> = values.collect::<Option<_>>()?;
        let first = if uop.op == Op::Where { 1 } else { 0 };
        let (_, source) = self.source(uop, first)?;
        let signature = Signature { from: source.dtype, to: uop.dtype, lanes: uop.lanes };
        alu(&mut self.body, uop.op, signature, &src)
    }

    fn index(&mut self, uop: &Instruction) -> Option<String> {
        let index = self.value(uop, 1)?;
        let (array, _) = self.source(uop, 0)?;
        let (_, index_uop) = self.source(uop, 1)?;
        let (element, kind) = (memory_type(uop.dtype, 1), type_of(index_uop.dtype, 1));
        let text = format!("getelementptr inbounds {element}, ptr {array}, {kind} {index}");
        Some(self.body.value(&text))
    }

    /// Writes the header block of a loop, which tests the counter, so that the trip count may be 0.
    fn open_loop(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let (kind, end) = (type_of(uop.dtype, 1), self.value(uop, 0)?);
        let (name, before) = (format!("%ridx{position}"), self.body.block().to_string());
        self.body.line(&format!("br label %loop{position}"));
        self.body.label(&format!("loop{position}"));
        self.body.line(&format!(
            "{name} = phi {kind} [ 0, %{before} ], [ %next{position}, %latch{position} ]"
        ));
        self.body.line(&format!("%more{position} = icmp slt {kind} {name}, {end}"));
        self.body
            .line(&format!("br i1 %more{position}, label %body{position}, label %end{position}"));
        self.body.label(&format!("body{position}"));
        Some(name)
    }

    fn close_loop(&mut self, range: u32) -> Option<String> {
        let kind = type_of(self.linear.uops[range as usize].dtype, 1);
        self.body.line(&format!("br label %latch{range}"));
        self.body.label(&format!("latch{range}"));
        self.body.line(&format!("%next{range} = add {kind} %ridx{range}, 1"));
        self.body.line(&format!("br label %loop{range}"));
        self.body.label(&format!("end{range}"));
        Some(String::new())
    }

    /// The gate of a load's or store's index, if it has one.
    fn gate(&mut self, uop: &Instruction) -> Option<String> {
        let linear = self.linear;
        let index = &linear.uops[*uop.src.first()? as usize];
        self.value(index, 2)
    }

    fn load(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let pointer = self.value(uop, 0)?;
        let (kind, memory) = (type_of(uop.dtype, uop.lanes), memory_type(uop.dtype, uop.lanes));
        let align = uop.dtype.size_bytes();
        let (gate, before) = (self.gate(uop), self.body.block().to_string());
        if let Some(gate) = &gate {
            self.body.line(&format!("br i1 {gate}, label %open{position}, label %shut{position}"));
            self.body.label(&format!("open{position}"));
        }
        let mut value = self.body.value(&format!("load {memory}, ptr {pointer}, align {align}"));
        if uop.dtype == DType::Bool {
            value = self.body.value(&format!("icmp ne {memory} {value}, zeroinitializer"));
        }
        if gate.is_some() {
            self.body.line(&format!("br label %shut{position}"));
            self.body.label(&format!("shut{position}"));
            let open = format!("[ {value}, %open{position} ]");
            value = self.body.value(&format!("phi {kind} [ zeroinitializer, %{before} ], {open}"));
        }
        Some(value)
    }

    fn store(&mut self, position: usize) -> Option<String> {
        let uop = &self.linear.uops[position];
        let (pointer, mut value) = (self.value(uop, 0)?, self.value(uop, 1)?);
        let (_, stored) = self.source(uop, 1)?;
        let (dtype, lanes) = (stored.dtype, stored.lanes);
        let (kind, memory) = (type_of(dtype, lanes), memory_type(dtype, lanes));
        if dtype == DType::Bool {
            value = self.body.value(&format!("zext {kind} {value} to {memory}"));
        }
        let store = format!("store {memory} {value}, ptr {pointer}, align {}", dtype.size_bytes());
        match self.gate(uop) {
            Some(gate) => {
                let (open, shut) = (format!("open{position}"), format!("shut{position}"));
                self.body.line(&format!("br i1 {gate}, label %{open}, label %{shut}"));
                self.body.label(&open);
                self.body.line(&store);
                self.body.line(&format!("br label %{shut}"));
                self.body.label(&shut);
            }
            None => self.body.line(&store),
        }
        Some(String::new())
    }

    fn vectorize(&mut self, uop: &Instruction) -> Option<String> {
        let (kind, element) = (type_of(uop.dtype, uop.lanes), type_of(uop.dtype, 1));
        let mut vector = "poison".to_string();
        for lane in 0..uop.src.len() {
            let value = self.value(uop, lane)?;
            let text = format!("insertelement {kind} {vector}, {element} {value}, i64 {lane}");
            vector = self.body.value(&text);
        }
        if uop.src.len() == 1 {
            let order = format!("<{} x i32> zeroinitializer", uop.lanes);
            let text = format!("shufflevector {kind} {vector}, {kind} poison, {order}");
            vector = self.body.value(&text);
        }
        Some(vector)
    }
}

/// The type of elements in memory.
fn memory_type(dtype: DType, lanes: u8) -> String {
    type_of(if dtype == DType::Bool { DType::U8 } else { dtype }, lanes)
}

/// Returns the maximal number of elements of a load or store.
pub(crate) fn lanes_max(_dtype: DType) -> u8 {
    64
}
