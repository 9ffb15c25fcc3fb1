//! Values of several lanes, in vectors of 128 bits where possible.
//!
//! A value whose lanes fill whole vectors is packed. Others, and all of bool and of 16-bit floats,
//! have a piece per lane. Comparisons of packed values give masks, with lanes of all ones or zeros,
//! which stay packed until a `where` uses them. An op that Cranelift does not have for vectors is
//! done lane by lane, and its result is packed when it is used.

use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::{Endianness, InstBuilder, MemFlagsData, Type, Value};
use gradiff_graph::{Arg, DType, Instruction, Op};
use smallvec::SmallVec;

use super::emitter::{Emitter, Form, Lanes, machine_type};
use crate::Error;

impl Emitter<'_, '_> {
    fn type_of(&self, value: Value) -> Type {
        self.builder.func.dfg.value_type(value)
    }

    /// Converts a value to another form.
    pub(super) fn in_form(&mut self, value: Lanes, form: Form, dtype: DType) -> Lanes {
        match (value.form, form) {
            (from, to) if from == to => value,
            (Form::Single, _) => self.pack(&value.pieces, dtype),
            _ => self.unpack(value),
        }
    }

    /// Extracts the lanes of a value.
    fn unpack(&mut self, value: Lanes) -> Lanes {
        if value.form == Form::Single {
            return value;
        }
        let mut pieces = SmallVec::new();
        for piece in value.pieces {
            for lane in 0..self.type_of(piece).lane_count() as u8 {
                let extracted = self.builder.ins().extractlane(piece, lane);
                pieces.push(match value.form {
                    Form::Mask => self.builder.ins().icmp_imm_s(IntCC::NotEqual, extracted, 0),
                    _ => extracted,
                });
            }
        }
        Lanes { form: Form::Single, pieces }
    }

    /// Packs lanes that fill whole vectors.
    fn pack(&mut self, lanes: &[Value], dtype: DType) -> Lanes {
        let (form, kind, _) = Form::of(dtype, lanes.len() as u8);
        let lanes_per_piece = kind.lane_count() as usize;
        let pieces = lanes.chunks(lanes_per_piece).map(|lanes| {
            let first = self.builder.ins().splat(kind, lanes[0]);
            let rest = (1..).zip(&lanes[1..]).filter(|(_, value)| **value != lanes[0]);
            rest.fold(first, |piece, (lane, value)| {
                self.builder.ins().insertlane(piece, *value, lane)
            })
        });
        Lanes { form, pieces: pieces.collect() }
    }

    pub(super) fn vectorize(&mut self, position: usize) -> Result<Lanes, Error> {
        let uop = &self.linear.uops[position];
        let mut lanes: SmallVec<[Value; 16]> = SmallVec::new();
        for source in &uop.src {
            lanes.push(self.lanes(*source)?.pieces[0]);
        }
        if lanes.len() == 1 {
            lanes.resize(uop.lanes.into(), lanes[0]);
        }
        match Form::of(uop.dtype, uop.lanes) {
            (Form::Packed, ..) => Ok(self.pack(&lanes, uop.dtype)),
            (form, ..) => Ok(Lanes { form, pieces: lanes.into_iter().collect() }),
        }
    }

    pub(super) fn lane(&mut self, position: usize, lane: u8) -> Result<Value, Error> {
        let value = self.lanes(self.linear.uops[position].src[0])?;
        if value.form == Form::Packed {
            let lanes_per_piece = self.type_of(value.pieces[0]).lane_count() as u8;
            let piece = value.pieces[usize::from(lane / lanes_per_piece)];
            return Ok(self.builder.ins().extractlane(piece, lane % lanes_per_piece));
        }
        Ok(self.unpack(value).pieces[usize::from(lane)])
    }

    /// Emits a vector op: packed if possible, else lane by lane.
    pub(super) fn vector_alu(&mut self, position: usize) -> Result<Lanes, Error> {
        let linear = self.linear;
        let uop = &linear.uops[position];
        let mut src: SmallVec<[Lanes; 3]> = SmallVec::new();
        for source in &uop.src {
            let value = self.lanes(*source)?;
            let dtype = linear.uops[*source as usize].dtype;
            let (form, ..) = Form::of(dtype, uop.lanes);
            let form = if value.form == Form::Mask { Form::Mask } else { form };
            src.push(self.in_form(value, form, dtype));
        }
        let from = linear.uops[uop.src[0] as usize].dtype;
        if let Some(lanes) = self.packed_alu(uop, from, &src) {
            return Ok(lanes);
        }
        let single: SmallVec<[Lanes; 3]> =
            src.into_iter().map(|value| self.unpack(value)).collect();
        let mut pieces = SmallVec::new();
        for lane in 0..usize::from(uop.lanes) {
            let source = |number: usize| single.get(number).unwrap_or(&single[0]).pieces[lane];
            let value = self.scalar_alu(uop, from, [source(0), source(1), source(2)]);
            pieces.push(value.ok_or_else(|| self.unsupported(position))?);
        }
        Ok(Lanes { form: Form::Single, pieces })
    }

    fn packed_alu(&mut self, uop: &Instruction, from: DType, src: &[Lanes]) -> Option<Lanes> {
        let forms: SmallVec<[Form; 3]> = src.iter().map(|value| value.form).collect();
        let form =
            match (uop.op, &forms[..]) {
                (Op::Where, [Form::Mask, Form::Packed, Form::Packed]) => Form::Packed,
                (Op::And | Op::Or | Op::Xor | Op::CmpNe, [Form::Mask, Form::Mask]) => Form::Mask,
                (op, forms) if forms.iter().all(|form| *form == Form::Packed) => {
                    if op.is_comparison() { Form::Mask } else { Form::Packed }
                }
                _ => return None,
            };
        let mut pieces = SmallVec::new();
        for number in 0..src[0].pieces.len() {
            let piece = |source: usize| src.get(source).unwrap_or(&src[0]).pieces.get(number);
            let piece = [*piece(0)?, *piece(1)?, *piece(2)?];
            pieces.push(match from {
                DType::Bool => self.packed_mask_op(uop.op, piece)?,
                _ if matches!(uop.op, Op::Cast | Op::Bitcast) => {
                    self.packed_cast(uop.op, from, uop.dtype, piece[0])?
                }
                DType::F32 | DType::F64 => self.packed_float(uop.op, piece)?,
                _ => match self.shift_amount(uop) {
                    Some(amount) => self.packed_shift(uop.op, from, piece[0], amount),
                    None => self.packed_int(uop.op, from, piece)?,
                },
            });
        }
        Some(Lanes { form, pieces })
    }

    fn reinterpret(&mut self, value: Value, kind: Type) -> Value {
        if self.type_of(value) == kind {
            return value;
        }
        let flags = MemFlagsData::new().with_endianness(Endianness::Little);
        self.builder.ins().bitcast(kind, flags, value)
    }

    /// Emits an op of masks, or `where`.
    fn packed_mask_op(&mut self, op: Op, [x, y, z]: [Value; 3]) -> Option<Value> {
        let (mask, kind) = (self.type_of(x), self.type_of(y));
        match op {
            Op::Where if mask.lane_bits() == kind.lane_bits() => Some(self.select(x, y, z)),
            Op::And if mask == kind => Some(self.builder.ins().band(x, y)),
            Op::Or if mask == kind => Some(self.builder.ins().bor(x, y)),
            Op::Xor | Op::CmpNe if mask == kind => Some(self.builder.ins().bxor(x, y)),
            _ => None,
        }
    }

    fn select(&mut self, mask: Value, x: Value, y: Value) -> Value {
        let kind = self.type_of(x);
        let mask = self.reinterpret(mask, kind);
        self.builder.ins().bitselect(mask, x, y)
    }

    fn packed_cast(&mut self, op: Op, from: DType, to: DType, x: Value) -> Option<Value> {
        let (to_kind, kind) = (machine_type(to), self.type_of(x));
        let is_same_width = to_kind.bits() == kind.lane_bits() && to != DType::Bool;
        let packed = to_kind.by(kind.lane_count()).filter(|_| is_same_width)?;
        let is_half = to.is_half();
        match (op, from, to) {
            _ if is_half => None,
            (Op::Bitcast, ..) => Some(self.reinterpret(x, packed)),
            (_, from, to) if from == to || from.is_int() && to.is_int() => Some(x),
            (_, DType::I32, DType::F32) => Some(self.builder.ins().fcvt_from_sint(packed, x)),
            _ => None,
        }
    }

    fn packed_float(&mut self, op: Op, [x, y, z]: [Value; 3]) -> Option<Value> {
        Some(match op {
            Op::Neg => self.builder.ins().fneg(x),
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

    /// The constant amount by which all lanes are shifted, if there is an instruction for it.
    fn shift_amount(&self, uop: &Instruction) -> Option<i64> {
        let is_shift = matches!(uop.op, Op::Shl | Op::Shr) && uop.dtype.bits() != 8;
        let source = is_shift.then(|| &self.linear.uops[uop.src[1] as usize])?;
        let lane = match (source.op, &source.src[..]) {
            (Op::Vectorize, [lane]) => &self.linear.uops[*lane as usize],
            _ => source,
        };
        let Arg::Const(amount) = lane.arg else { return None };
        let amount = i64::try_from(amount.to_int()?).ok()?;
        (0..i64::from(uop.dtype.bits())).contains(&amount).then_some(amount)
    }

    fn packed_shift(&mut self, op: Op, dtype: DType, x: Value, amount: i64) -> Value {
        match op {
            Op::Shl => self.builder.ins().ishl_imm_u(x, amount),
            _ if dtype.is_signed() => self.builder.ins().sshr_imm_u(x, amount),
            _ => self.builder.ins().ushr_imm_u(x, amount),
        }
    }

    fn packed_int(&mut self, op: Op, dtype: DType, [x, y, _]: [Value; 3]) -> Option<Value> {
        let less = match dtype.is_signed() {
            true => IntCC::SignedLessThan,
            false => IntCC::UnsignedLessThan,
        };
        let has_product = dtype.bits() != 8;
        Some(match op {
            Op::Neg => self.builder.ins().ineg(x),
            Op::Add => self.builder.ins().iadd(x, y),
            Op::Sub => self.builder.ins().isub(x, y),
            Op::Mul if has_product => self.builder.ins().imul(x, y),
            Op::And => self.builder.ins().band(x, y),
            Op::Or => self.builder.ins().bor(x, y),
            Op::Xor => self.builder.ins().bxor(x, y),
            Op::CmpLt => self.builder.ins().icmp(less, x, y),
            Op::CmpNe => self.builder.ins().icmp(IntCC::NotEqual, x, y),
            Op::Max | Op::Min => {
                let is_less = self.builder.ins().icmp(less, x, y);
                let (x, y) = if op == Op::Max { (y, x) } else { (x, y) };
                self.select(is_less, x, y)
            }
            _ => return None,
        })
    }
}
