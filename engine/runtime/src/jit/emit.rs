//! Translation of a kernel to Cranelift IR.
//!
//! A value has the machine type of its dtype: integers their own width (they wrap by themselves and
//! are extended only when they are widened), bool a byte of 0 or 1, 16-bit floats their bits. Loops
//! are blocks; counters and accumulators are variables; launched ranges are ordinary loops. Nothing
//! traps. `vector` translates values with several lanes.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{
    AbiParam, Function, InstBuilder, MemFlagsData, Signature as MachineSignature, StackSlotData,
    StackSlotKind, Type, Value, types,
};
use cranelift_codegen::isa::TargetIsa;
use cranelift_frontend::{FunctionBuilder, FunctionBuilderContext, Variable};
use gradiff_graph::{Arg, Constant, DType, Instruction, LOCAL_BYTES_MAX, Linear, Local, Op};
use smallvec::{SmallVec, smallvec};

use super::emitter::{Emitter, Form, Lanes, Loop, UopValue, machine_type};
use super::helpers::{self, Helper};
use crate::Error;
use crate::signature::Signature;

/// Translates the kernel into `function`, whose only parameter is the array of addresses.
pub(crate) fn emit(
    linear: &Linear,
    signature: &Signature,
    function: &mut Function,
    functions: &mut FunctionBuilderContext,
    isa: &dyn TargetIsa,
) -> Result<(), Error> {
    let mut builder = FunctionBuilder::new(function, functions);
    let entry = builder.create_block();
    builder.append_block_params_for_function_params(entry);
    builder.switch_to_block(entry);
    builder.seal_block(entry);
    let array = builder.block_params(entry)[0];
    let pointers = (0..signature.parameters.len() as i32)
        .map(|number| builder.ins().load(types::I64, trusted(), array, 8 * number))
        .collect();
    let count = linear.uops.len();
    let mut emitter = Emitter {
        linear,
        signature,
        builder,
        isa,
        pointers,
        values: vec![UopValue::None; count],
        loops: Vec::new(),
    };
    let result = (0..count).try_for_each(|position| emitter.uop(position));
    let is_open = !emitter.loops.is_empty();
    let Emitter { mut builder, .. } = emitter;
    if result.is_ok() && !is_open {
        builder.ins().return_(&[]);
        builder.finalize(isa.frontend_config());
        return Ok(());
    }
    // The context must be clean for the next kernel.
    *functions = FunctionBuilderContext::new();
    result.and(Err(Error::Malformed {
        kernel: linear.name.clone(),
        position: count,
        problem: "a loop is never closed".into(),
    }))
}

fn trusted() -> MemFlagsData {
    MemFlagsData::trusted()
}

/// The flags of an access. Elements are aligned to their own size; vectors may be unaligned.
fn access_of(kind: Type) -> MemFlagsData {
    if kind.is_vector() { MemFlagsData::new().with_notrap() } else { trusted() }
}

impl Emitter<'_, '_> {
    fn malformed(&self, position: usize, problem: &str) -> Error {
        let (kernel, problem) = (self.linear.name.clone(), problem.to_string());
        Error::Malformed { kernel, position, problem }
    }

    /// The value of a uop, with all its pieces.
    pub(super) fn lanes(&mut self, position: u32) -> Result<Lanes, Error> {
        match &self.values[position as usize] {
            UopValue::Values(lanes) => Ok(lanes.clone()),
            UopValue::Variables(form, variables) => {
                let read = |variable: &Variable| self.builder.use_var(*variable);
                Ok(Lanes { form: *form, pieces: variables.iter().map(read).collect() })
            }
            UopValue::None => Err(self.malformed(position as usize, "it has no value to use")),
        }
    }

    /// The value of a scalar uop.
    fn value(&mut self, position: u32) -> Result<Value, Error> {
        Ok(self.lanes(position)?.pieces[0])
    }

    fn source(&mut self, position: usize, number: usize) -> Result<Value, Error> {
        self.value(self.linear.uops[position].src[number])
    }

    fn uop(&mut self, position: usize) -> Result<(), Error> {
        let uop = &self.linear.uops[position];
        let value = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => UopValue::value(self.constant(*value)),
            (Op::DefineGlobal | Op::Index | Op::Sink, _) => UopValue::None,
            (Op::DefineAcc, _) => self.define_variable(position)?,
            (Op::Assign, _) => self.assign(position)?,
            (Op::Range, _) => self.open_loop(position)?,
            (Op::EndRange, _) => self.close_loop(position)?,
            (Op::Load, _) => UopValue::Values(self.load(position)?),
            (Op::Store, _) => {
                self.store(position)?;
                UopValue::None
            }
            (Op::Vectorize, _) => UopValue::Values(self.vectorize(position)?),
            (Op::Lane, Arg::Int(lane)) => UopValue::value(self.lane(position, *lane as u8)?),
            (op, _) if op.is_elementwise() && uop.lanes == 1 => {
                UopValue::value(self.alu(position)?)
            }
            (op, _) if op.is_elementwise() => UopValue::Values(self.vector_alu(position)?),
            (Op::DefineLocal, Arg::Local(local)) => self.local(position, *local)?,
            (Op::Barrier, _) => {
                let kernel = self.linear.name.clone();
                let why = format!("it has a {}, and jit runs no groups of threads", uop.op);
                return Err(Error::Jit { kernel, why });
            }
            _ => return Err(self.unsupported(position)),
        };
        self.values[position] = value;
        Ok(())
    }

    /// Allocates a local array on the stack.
    fn local(&mut self, position: usize, local: Local) -> Result<UopValue, Error> {
        let element = self.linear.uops[position].dtype.size_bytes() as i64;
        let size = local.size_elements.max(1).checked_mul(element);
        let size =
            size.and_then(|size| u32::try_from(size).ok()).filter(|size| *size <= LOCAL_BYTES_MAX);
        let size = size.ok_or_else(|| self.malformed(position, "its array is too large"))?;
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, size, 4);
        let slot = self.builder.create_sized_stack_slot(slot);
        let pointer = self.isa.pointer_type();
        Ok(UopValue::value(self.builder.ins().stack_addr(pointer, slot, 0)))
    }

    fn define_variable(&mut self, position: usize) -> Result<UopValue, Error> {
        let uop = &self.linear.uops[position];
        let (form, kind, _) = Form::of(uop.dtype, uop.lanes);
        let start = self.lanes(uop.src[0])?;
        let start = self.in_form(start, form, uop.dtype);
        let define = |start: &Value| {
            let variable = self.builder.declare_var(kind);
            self.builder.def_var(variable, *start);
            variable
        };
        Ok(UopValue::Variables(form, start.pieces.iter().map(define).collect()))
    }

    fn assign(&mut self, position: usize) -> Result<UopValue, Error> {
        let uop = &self.linear.uops[position];
        let accumulator = self.values[uop.src[0] as usize].clone();
        let UopValue::Variables(form, variables) = &accumulator else {
            return Err(self.malformed(position, "it assigns to a uop that is not an accumulator"));
        };
        let value = self.lanes(uop.src[1])?;
        let value = self.in_form(value, *form, self.linear.uops[uop.src[0] as usize].dtype);
        for (variable, piece) in variables.iter().zip(&value.pieces) {
            self.builder.def_var(*variable, *piece);
        }
        Ok(accumulator)
    }

    pub(super) fn unsupported(&self, position: usize) -> Error {
        let uop = &self.linear.uops[position];
        let source = uop.src.first().map(|source| self.linear.uops[*source as usize].dtype);
        Error::Unsupported {
            device: "jit",
            kernel: self.linear.name.clone(),
            position,
            op: uop.op,
            dtype: source.unwrap_or(uop.dtype),
        }
    }

    pub(super) fn constant(&mut self, value: Constant) -> Value {
        match value.dtype() {
            DType::F32 => self.builder.ins().f32const(f32::from_bits(value.bits() as u32)),
            DType::F64 => self.builder.ins().f64const(f64::from_bits(value.bits())),
            dtype => self.builder.ins().iconst(machine_type(dtype), value.bits() as i64),
        }
    }

    fn int(&mut self, kind: Type, value: i64) -> Value {
        let bits = if kind.bits() == 64 { value } else { value & ((1 << kind.bits()) - 1) };
        self.builder.ins().iconst(kind, bits)
    }

    /// Opens a loop that counts from 0 to the end. The test is in the header, so the trip count may
    /// be 0.
    fn open_loop(&mut self, position: usize) -> Result<UopValue, Error> {
        let kind = machine_type(self.linear.uops[position].dtype);
        let end = self.source(position, 0)?;
        let counter = self.builder.declare_var(kind);
        let zero = self.int(kind, 0);
        self.builder.def_var(counter, zero);
        let [header, body, exit] = [(); 3].map(|()| self.builder.create_block());
        self.builder.ins().jump(header, &[]);
        self.builder.switch_to_block(header);
        let count = self.builder.use_var(counter);
        let continues = self.builder.ins().icmp(IntCC::SignedLessThan, count, end);
        self.builder.ins().brif(continues, body, &[], exit, &[]);
        self.builder.switch_to_block(body);
        self.builder.seal_block(body);
        self.loops.push(Loop { range: position as u32, counter, header, exit });
        Ok(UopValue::value(count))
    }

    fn close_loop(&mut self, position: usize) -> Result<UopValue, Error> {
        let range = self.linear.uops[position].src[0];
        let Some(innermost) = self.loops.pop().filter(|open| open.range == range) else {
            return Err(self.malformed(position, "it closes a loop that is not the innermost"));
        };
        let kind = machine_type(self.linear.uops[range as usize].dtype);
        let count = self.builder.use_var(innermost.counter);
        let step = self.int(kind, 1);
        let next = self.builder.ins().iadd(count, step);
        self.builder.def_var(innermost.counter, next);
        self.builder.ins().jump(innermost.header, &[]);
        self.builder.seal_block(innermost.header);
        self.builder.switch_to_block(innermost.exit);
        self.builder.seal_block(innermost.exit);
        Ok(UopValue::None)
    }

    /// The address of an `Index`.
    fn address(&mut self, index: u32) -> Result<Value, Error> {
        let uop = &self.linear.uops[index as usize];
        let array = match self.signature.parameter_of(self.linear, index) {
            Some(parameter) => self.pointers[parameter],
            None => self.value(uop.src[0])?,
        };
        let element = self.source(index as usize, 1)?;
        let element_dtype = self.linear.uops[uop.src[1] as usize].dtype;
        let element = self.resize(element, element_dtype, types::I64);
        let size = self.int(types::I64, i64::from(uop.dtype.size_bytes().trailing_zeros()));
        let offset = self.builder.ins().ishl(element, size);
        Ok(self.builder.ins().iadd(array, offset))
    }

    fn gate(&mut self, index: u32) -> Result<Option<Value>, Error> {
        let gate = self.linear.uops[index as usize].src.get(2).copied();
        gate.map(|gate| self.value(gate)).transpose()
    }

    fn load(&mut self, position: usize) -> Result<Lanes, Error> {
        let uop = &self.linear.uops[position];
        let index = uop.src[0];
        let (form, kind, count) = Form::of(uop.dtype, uop.lanes);
        let Some(gate) = self.gate(index)? else {
            return Ok(Lanes { form, pieces: self.load_pieces(index, kind, count)? });
        };
        let [open, after] = [(); 2].map(|()| self.builder.create_block());
        let zero = self.constant(Constant::zero(uop.dtype));
        let zero = if kind.is_vector() { self.builder.ins().splat(kind, zero) } else { zero };
        let pieces: SmallVec<[Value; 1]> =
            (0..count).map(|_| self.builder.append_block_param(after, kind)).collect();
        let zeros: SmallVec<[_; 4]> = smallvec![zero.into(); count];
        self.builder.ins().brif(gate, open, &[], after, &zeros);
        self.builder.switch_to_block(open);
        self.builder.seal_block(open);
        let loaded: SmallVec<[_; 4]> =
            self.load_pieces(index, kind, count)?.into_iter().map(Into::into).collect();
        self.builder.ins().jump(after, &loaded);
        self.builder.switch_to_block(after);
        self.builder.seal_block(after);
        Ok(Lanes { form, pieces })
    }

    fn load_pieces(
        &mut self,
        index: u32,
        kind: Type,
        count: usize,
    ) -> Result<SmallVec<[Value; 1]>, Error> {
        let address = self.address(index)?;
        let array = &self.linear.uops[self.linear.uops[index as usize].src[0] as usize];
        // An unwritten element of a local array may have any value.
        let may_be_invalid_bool = array.op == Op::DefineLocal && array.dtype == DType::Bool;
        let offsets = (0..count as i32).map(|piece| piece * kind.bytes() as i32);
        let load = |offset| {
            let value = self.builder.ins().load(kind, access_of(kind), address, offset);
            match may_be_invalid_bool {
                true => self.builder.ins().band_imm_u(value, 1),
                false => value,
            }
        };
        Ok(offsets.map(load).collect())
    }

    fn store_pieces(&mut self, index: u32, value: &Lanes) -> Result<(), Error> {
        let address = self.address(index)?;
        let mut offset = 0;
        for piece in &value.pieces {
            let kind = self.builder.func.dfg.value_type(*piece);
            self.builder.ins().store(access_of(kind), *piece, address, offset);
            offset += kind.bytes() as i32;
        }
        Ok(())
    }

    fn store(&mut self, position: usize) -> Result<(), Error> {
        let uop = &self.linear.uops[position];
        let index = uop.src[0];
        let value = self.lanes(uop.src[1])?;
        let source = &self.linear.uops[uop.src[1] as usize];
        let (form, ..) = Form::of(source.dtype, source.lanes);
        let value = self.in_form(value, form, source.dtype);
        let Some(gate) = self.gate(index)? else {
            return self.store_pieces(index, &value);
        };
        let [open, after] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(gate, open, &[], after, &[]);
        self.builder.switch_to_block(open);
        self.builder.seal_block(open);
        self.store_pieces(index, &value)?;
        self.builder.ins().jump(after, &[]);
        self.builder.switch_to_block(after);
        self.builder.seal_block(after);
        Ok(())
    }

    fn call(&mut self, helper: &Helper, arguments: &[Value]) -> Value {
        let mut signature = MachineSignature::new(self.isa.default_call_conv());
        signature.params.extend(helper.parameters.iter().copied().map(AbiParam::new));
        signature.returns.push(AbiParam::new(helper.result));
        let signature = self.builder.import_signature(signature);
        let address = self.int(types::I64, helper.address as i64);
        let call = self.builder.ins().call_indirect(signature, address, arguments);
        self.builder.inst_results(call)[0]
    }

    fn alu(&mut self, position: usize) -> Result<Value, Error> {
        let uop = &self.linear.uops[position];
        let from = self.linear.uops[uop.src[0] as usize].dtype;
        let mut src = [self.source(position, 0)?; 3];
        for (number, slot) in src.iter_mut().enumerate().take(uop.src.len()).skip(1) {
            *slot = self.source(position, number)?;
        }
        self.scalar_alu(uop, from, src).ok_or_else(|| self.unsupported(position))
    }

    /// Emits a scalar op; `from` is the dtype of its first source.
    pub(super) fn scalar_alu(
        &mut self,
        uop: &Instruction,
        from: DType,
        src: [Value; 3],
    ) -> Option<Value> {
        match uop.op {
            Op::Where => Some(self.builder.ins().select(src[0], src[1], src[2])),
            Op::Cast => self.cast(from, uop.dtype, src[0]),
            Op::Bitcast => self.bitcast(from, uop.dtype, src[0]),
            op => match from {
                DType::Bool => self.bool_op(op, src),
                DType::F32 | DType::F64 => self.float_op(op, from, src),
                _ => self.int_op(op, from, src),
            },
        }
    }

    fn bool_op(&mut self, op: Op, [x, y, _]: [Value; 3]) -> Option<Value> {
        let ins = self.builder.ins();
        Some(match op {
            Op::Add | Op::Or | Op::Max => ins.bor(x, y),
            Op::Mul | Op::And | Op::Min => ins.band(x, y),
            Op::Sub | Op::Xor | Op::CmpNe => ins.bxor(x, y),
            Op::CmpLt => ins.icmp(IntCC::UnsignedLessThan, x, y),
            _ => return None,
        })
    }

    fn float_op(&mut self, op: Op, dtype: DType, [x, y, z]: [Value; 3]) -> Option<Value> {
        let is_f32 = dtype == DType::F32;
        let pick = |f32: fn() -> Helper, f64: fn() -> Helper| if is_f32 { f32() } else { f64() };
        Some(match op {
            Op::Neg => self.builder.ins().fneg(x),
            Op::Exp2 => self.call(&pick(helpers::exp2_f32, helpers::exp2_f64), &[x]),
            Op::Log2 => self.call(&pick(helpers::log2_f32, helpers::log2_f64), &[x]),
            Op::Sin => self.call(&pick(helpers::sin_f32, helpers::sin_f64), &[x]),
            Op::Pow => self.call(&pick(helpers::pow_f32, helpers::pow_f64), &[x, y]),
            Op::Sqrt => self.builder.ins().sqrt(x),
            Op::Add => self.builder.ins().fadd(x, y),
            Op::Sub => self.builder.ins().fsub(x, y),
            Op::Mul => self.builder.ins().fmul(x, y),
            Op::FDiv => self.builder.ins().fdiv(x, y),
            Op::MulAcc => {
                let product = self.builder.ins().fmul(x, y);
                self.builder.ins().fadd(product, z)
            }
            Op::CmpLt => self.builder.ins().fcmp(FloatCC::LessThan, x, y),
            Op::CmpNe => self.builder.ins().fcmp(FloatCC::NotEqual, x, y),
            _ => return None,
        })
    }

    fn int_op(&mut self, op: Op, dtype: DType, [x, y, _]: [Value; 3]) -> Option<Value> {
        let is_signed = dtype.is_signed();
        let less = if is_signed { IntCC::SignedLessThan } else { IntCC::UnsignedLessThan };
        Some(match op {
            Op::Neg => self.builder.ins().ineg(x),
            Op::Add => self.builder.ins().iadd(x, y),
            Op::Sub => self.builder.ins().isub(x, y),
            Op::Mul => self.builder.ins().imul(x, y),
            Op::CDiv if is_signed => self.builder.ins().sdiv(x, y),
            Op::CDiv => self.builder.ins().udiv(x, y),
            // A quotient of the same operands is computed only once.
            Op::CMod => {
                let quotient = self.int_op(Op::CDiv, dtype, [x, y, y])?;
                let product = self.builder.ins().imul(quotient, y);
                self.builder.ins().isub(x, product)
            }
            Op::Max => {
                let is_less = self.builder.ins().icmp(less, x, y);
                self.builder.ins().select(is_less, y, x)
            }
            Op::Min => {
                let is_less = self.builder.ins().icmp(less, x, y);
                self.builder.ins().select(is_less, x, y)
            }
            Op::CmpLt => self.builder.ins().icmp(less, x, y),
            Op::CmpNe => self.builder.ins().icmp(IntCC::NotEqual, x, y),
            Op::And => self.builder.ins().band(x, y),
            Op::Or => self.builder.ins().bor(x, y),
            Op::Xor => self.builder.ins().bxor(x, y),
            // Cranelift takes shift amounts modulo the width.
            Op::Shl => self.builder.ins().ishl(x, y),
            Op::Shr if is_signed => self.builder.ins().sshr(x, y),
            Op::Shr => self.builder.ins().ushr(x, y),
            _ => return None,
        })
    }

    /// Truncates or extends an integer or bool, by the sign of its dtype.
    fn resize(&mut self, x: Value, from: DType, to: Type) -> Value {
        let (old, new) = (machine_type(from).bits(), to.bits());
        match old.cmp(&new) {
            std::cmp::Ordering::Equal => x,
            std::cmp::Ordering::Greater => self.builder.ins().ireduce(to, x),
            std::cmp::Ordering::Less if from.is_signed() => self.builder.ins().sextend(to, x),
            std::cmp::Ordering::Less => self.builder.ins().uextend(to, x),
        }
    }

    fn cast(&mut self, from: DType, to: DType, x: Value) -> Option<Value> {
        if from == to {
            return Some(x);
        }
        if from.is_half() {
            let wide = self.half_to_f32(from, x);
            return self.cast(DType::F32, to, wide);
        }
        Some(match (from.is_float(), to) {
            (_, DType::Void) => return None,
            (true, DType::Bool) => {
                let zero = self.constant(Constant::zero(from));
                self.builder.ins().fcmp(FloatCC::NotEqual, x, zero)
            }
            (false, DType::Bool) => {
                let zero = self.constant(Constant::zero(from));
                self.builder.ins().icmp(IntCC::NotEqual, x, zero)
            }
            (_, DType::F16 | DType::BF16) => self.round_to_half(from, to, x),
            (true, DType::F32) => self.builder.ins().fdemote(types::F32, x),
            (true, DType::F64) => self.builder.ins().fpromote(types::F64, x),
            (false, DType::F32 | DType::F64) => self.int_to_float(from, machine_type(to), x),
            (true, _) => self.float_to_int(to, x),
            (false, _) => self.resize(x, from, machine_type(to)),
        })
    }

    fn int_to_float(&mut self, from: DType, to: Type, x: Value) -> Value {
        let wide = if from.bits() < 32 { self.resize(x, from, types::I32) } else { x };
        match from.is_signed() {
            true => self.builder.ins().fcvt_from_sint(to, wide),
            false => self.builder.ins().fcvt_from_uint(to, wide),
        }
    }

    /// Saturates to 32 or 64 bits, then truncates to narrower types: some value, but no trap.
    fn float_to_int(&mut self, to: DType, x: Value) -> Value {
        let wide = if to.bits() == 64 { types::I64 } else { types::I32 };
        let whole = match to.is_signed() {
            true => self.builder.ins().fcvt_to_sint_sat(wide, x),
            false => self.builder.ins().fcvt_to_uint_sat(wide, x),
        };
        if to.bits() < 32 { self.builder.ins().ireduce(machine_type(to), whole) } else { whole }
    }

    fn half_to_f32(&mut self, from: DType, x: Value) -> Value {
        let wide = self.builder.ins().uextend(types::I32, x);
        if from == DType::F16 {
            return self.call(&helpers::f16_to_f32(), &[wide]);
        }
        self.call(&helpers::bf16_to_f32(), &[wide])
    }

    /// Rounds a value of any type but 16-bit floats to a 16-bit float, correctly rounded.
    fn round_to_half(&mut self, from: DType, to: DType, x: Value) -> Value {
        let is_f16 = to == DType::F16;
        let pick = |f16: fn() -> Helper, bf16: fn() -> Helper| if is_f16 { f16() } else { bf16() };
        let from_f64 = pick(helpers::f16_from_f64, helpers::bf16_from_f64);
        let bits = match from {
            DType::F32 => self.call(&pick(helpers::f16_from_f32, helpers::bf16_from_f32), &[x]),
            DType::F64 => self.call(&from_f64, &[x]),
            DType::I64 => {
                let odd = self.call(&helpers::f64_odd_i64(), &[x]);
                self.call(&from_f64, &[odd])
            }
            DType::U64 => {
                let odd = self.call(&helpers::f64_odd_u64(), &[x]);
                self.call(&from_f64, &[odd])
            }
            _ => {
                let exact = self.int_to_float(from, types::F64, x);
                self.call(&from_f64, &[exact])
            }
        };
        self.builder.ins().ireduce(types::I16, bits)
    }

    fn bitcast(&mut self, from: DType, to: DType, x: Value) -> Option<Value> {
        let is_possible = from.size_bytes() == to.size_bytes();
        if !is_possible || from == DType::Bool || to == DType::Bool {
            return None;
        }
        let (old, new) = (machine_type(from), machine_type(to));
        let is_same = old == new;
        Some(if is_same { x } else { self.builder.ins().bitcast(new, MemFlagsData::new(), x) })
    }
}
