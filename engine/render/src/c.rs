//! C99 with the vector extensions of gcc and clang. One function per kernel:
//! `void NAME(float* restrict data0, const int* restrict data1)`.
//!
//! The text has the meaning of the uops under `-fwrapv -ffp-contract=off`: signed 32- and 64-bit
//! arithmetic wraps, floats are not contracted. The ranges of groups are plain loops, so kernels
//! with barriers are refused.

use gradiff_graph::{AxisKind, Constant, DType, Linear};

use crate::Error;
use crate::c_scalar::{SCALARS, c_type, constant};
use crate::c_vector;
use crate::code::{Code, Helpers, code};
use crate::dialect::{Access, Alu, Dialect, Header, Text, Value};
use crate::helpers::{Definitions, function};
use crate::legalize::Legalizations;
use crate::writer::write;

/// Renders a kernel under its own name.
///
/// # Errors
/// If a uop is not an op of linear kernels, or the name is not an identifier.
pub fn c(linear: &Linear) -> Result<Code, Error> {
    write(&C, &Legalizations::C, linear, &linear.name)
}

/// Renders a kernel under another name.
///
/// # Errors
/// As [`c`].
pub fn c_named(linear: &Linear, name: &str) -> Result<Code, Error> {
    write(&C, &Legalizations::C, linear, name)
}

/// Returns the prelude of a file that uses these helpers.
///
/// # Panics
/// If a helper has no [`c_definition`].
pub fn c_prelude(helpers: &Helpers) -> String {
    let definitions = Definitions::of(helpers, c_definition);
    let vectors =
        if definitions.contain(c_vector::VECTOR) { include_str!("c_vector.h") } else { "" };
    format!("{}{vectors}{}", include_str!("c.h"), definitions.text)
}

/// Returns the definition of a helper.
pub(crate) fn c_definition(name: &str) -> Option<Code> {
    c_function(name).or_else(|| function(&SCALARS, name)).or_else(|| c_vector::definition(name))
}

/// Returns the definition of a helper that only C has.
fn c_function(name: &str) -> Option<Code> {
    let line = match name {
        "f32_bits" => "uint32_t f32_bits(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }",
        "f64_bits" => "uint64_t f64_bits(double x) { uint64_t b; memcpy(&b, &x, 8); return b; }",
        "f32_from_bits" => {
            "float f32_from_bits(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }"
        }
        "f64_from_bits" => {
            "double f64_from_bits(uint64_t b) { double x; memcpy(&x, &b, 8); return x; }"
        }
        // Orders the non-temporal stores before all later stores.
        "end_streams" => "void end_streams(void) { IF_STREAMS(__builtin_ia32_sfence();) }",
        // The SLP vectoriser of gcc 12 drops the rounding of two adjacent doubles that are
        // converted back to double at once; an opaque asm in between prevents that.
        "f32_from_f64" => {
            "float f32_from_f64(double x) {\n  float y = (float)x;\n\
             #if defined(__GNUC__) && !defined(__clang__) && defined(__SSE2__)\n  \
             __asm__(\"\" : \"+x\"(y));\n#endif\n  return y;\n}"
        }
        _ => return None,
    };
    Some(format!("static inline {line}\n").into())
}

/// The dialect C.
struct C;

impl Dialect for C {
    fn language(&self) -> &'static str {
        "C"
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code> {
        match lanes {
            1 => Some(c_type(dtype).into()),
            _ => c_vector::type_name(dtype, lanes, mask_bytes),
        }
    }

    /// Volatile, to be kept on the stack. gcc 12 would keep it in a register and spill the
    /// accumulators of the inner loop, of which there are nearly as many as registers.
    fn declare_outer(&self, kind: &Code, name: &str, value: &Code) -> Code {
        code!("volatile {} {} = {};", kind, name, value)
    }

    fn constant(&self, value: Constant) -> Option<Code> {
        Some(constant(value))
    }

    fn header(&self, header: &Header) -> Option<Code> {
        let arrays = header.arrays.iter().map(|(slot, dtype, is_stored)| {
            let qualifier = if *is_stored { "" } else { "const " };
            format!("{qualifier}{}* restrict data{slot}", c_type(*dtype))
        });
        let variables = header.variables.iter();
        let variables = variables.map(|(name, dtype)| format!("const {} {name}", c_type(*dtype)));
        let parameters: Vec<String> = arrays.chain(variables).collect();
        let mut text = format!("void {}({}) {{\n", header.name, parameters.join(", "));
        for (name, dtype, size_elements) in &header.locals {
            // Loading an uninitialised bool that is neither 0 nor 1 is undefined.
            let initial = if *dtype == DType::Bool { " = {0}" } else { "" };
            text.push_str(&format!(
                "  {} {name}[{size_elements}] __attribute__((aligned(64))){initial};\n",
                c_type(*dtype)
            ));
        }
        Some(text.into())
    }

    fn grid_index(&self, _kind: AxisKind, _dimension: usize) -> Option<String> {
        None
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        match alu.lanes {
            1 => SCALARS.alu(alu).map(Text::from),
            _ => c_vector::alu(alu),
        }
    }

    /// gcc 12 turns `0.0f-x` into `-x`, which is -0.0 and not 0.0 for a zero, if the expression `x`
    /// shows that it is never -0.0, such as a conversion of an integer. `x*-1.0f+0.0f` becomes
    /// such a difference first. A variable shows nothing, and costs nothing.
    fn names_operand_of_zero(&self) -> bool {
        true
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        c_vector::vectorize(dtype, lanes, src)
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<Code> {
        Some(match vector.dtype {
            DType::Bool => code!("({}[{lane}]!=0)", vector.code),
            _ => code!("{}[{lane}]", vector.code),
        })
    }

    fn load(&self, access: &Access) -> Option<Text> {
        match access.lanes {
            1 => Some(code!("{}[{}]", access.array, access.index).into()),
            _ => c_vector::load(access),
        }
    }

    fn store(&self, access: &Access, value: &Value) -> Option<Code> {
        match access.lanes {
            1 => Some(code!("{}[{}] = {};", access.array, access.index, value.code)),
            _ => c_vector::store(access, value),
        }
    }

    fn barrier(&self) -> Option<&'static str> {
        None
    }

    /// Only for accesses of at least half a cache line: one prefetch into L1, and one at twice the
    /// distance into L2, which can have more misses outstanding.
    fn prefetch(&self, access: &Access, distance: i64) -> Option<Code> {
        let bytes = usize::from(access.lanes) * access.dtype.size_bytes();
        let address = code!("{}+{}", access.array, access.index);
        let twice = distance.checked_mul(2)?;
        let first = code!("__builtin_prefetch({}+{distance});", address);
        (32 <= bytes).then(|| code!("{} __builtin_prefetch({}+{twice}, 0, 2);", first, address))
    }

    fn tail(&self, helpers: &Helpers) -> Option<Code> {
        let has_streams = helpers.iter().any(|name| name.starts_with("stream_"));
        has_streams.then(|| code!("{};", Code::call("end_streams", &[])))
    }

    fn canonical(&self, value: &Value) -> Text {
        match value.lanes {
            1 => value.code.clone().into(),
            _ => c_vector::canonical(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Arg, Global, Instruction, Op};

    use super::*;

    /// A kernel of rows of (op, dtype, sources, arg).
    fn linear(rows: &[(Op, DType, &[u32], Arg)]) -> Linear {
        let uops = rows.iter().map(|(op, dtype, src, arg)| {
            Instruction::new(*op, *dtype, src.iter().copied(), arg.clone())
        });
        Linear { name: "E_4".into(), uops: uops.collect() }
    }

    fn global(slot: usize) -> Arg {
        Arg::Global(Global { slot, size_elements: 4 })
    }

    fn int(dtype: DType, value: i128) -> Arg {
        Arg::Const(Constant::int(dtype, value))
    }

    /// `data0[i] = op(data1[i], value)` for i below 4.
    fn with_constant(op: Op, dtype: DType, value: Arg) -> Linear {
        let result = if op.is_comparison() { DType::Bool } else { dtype };
        linear(&[
            (Op::DefineGlobal, result, &[], global(0)),
            (Op::DefineGlobal, dtype, &[], global(1)),
            (Op::Const, DType::I32, &[], int(DType::I32, 4)),
            (Op::Range, DType::I32, &[2], Arg::plain_axis(0)),
            (Op::Index, dtype, &[1, 3], Arg::None),
            (Op::Load, dtype, &[4], Arg::None),
            (Op::Const, dtype, &[], value),
            (op, result, &[5, 6], Arg::None),
            (Op::Index, result, &[0, 3], Arg::None),
            (Op::Store, DType::Void, &[8, 7], Arg::None),
            (Op::EndRange, DType::Void, &[3], Arg::None),
        ])
    }

    #[test]
    fn elementwise_kernel_is_a_plain_loop() {
        let kernel =
            with_constant(Op::Add, DType::F32, Arg::Const(Constant::float(DType::F32, 7.0)));
        let expected = "\
void E_4(float* restrict data0, const float* restrict data1) {
  for (int ridx0 = 0; ridx0 < 4; ridx0++) {
    float val0 = data1[ridx0];
    data0[ridx0] = (val0+7.0f);
  }
}
";
        assert_eq!(c(&kernel).unwrap().text, expected);
    }

    /// Checks the expression of an op over a loaded value and a constant.
    fn check(op: Op, dtype: DType, value: Arg, expected: &str) {
        let text = c(&with_constant(op, dtype, value)).unwrap().text;
        let line = text.lines().find_map(|line| line.trim().strip_prefix("data0[ridx0] = "));
        assert_eq!(line, Some(format!("{expected};").as_str()), "{op} {dtype}");
    }

    #[test]
    fn narrow_arithmetic_is_truncated() {
        check(Op::Add, DType::I8, int(DType::I8, 100), "((int8_t)(((int)val0)+100))");
        let product = "((uint16_t)(((unsigned int)val0)*9u))";
        check(Op::Mul, DType::U16, int(DType::U16, 9), product);
        check(Op::Mul, DType::I32, int(DType::I32, -9), "(val0*-9)");
    }

    #[test]
    fn division_is_guarded_unless_the_divisor_is_known() {
        check(Op::CDiv, DType::I32, int(DType::I32, 3), "(val0/3)");
        check(Op::CMod, DType::U8, int(DType::U8, 0), "(val0%1)");
        let quotient = "(((val0^alu0)/3)^alu0)";
        check(Op::FloorDiv, DType::I32, int(DType::I32, 3), quotient);
        check(Op::FloorMod, DType::U32, int(DType::U32, 3), "(val0%3u)");
    }

    #[test]
    fn shifts_and_comparisons_keep_the_sign_of_the_dtype() {
        check(Op::Shr, DType::I32, int(DType::I32, 3), "(val0>>3)");
        check(Op::Shr, DType::I32, int(DType::I32, 40), "(val0>>8)");
        check(Op::Shl, DType::I32, int(DType::I32, 3), "(int)(((unsigned int)val0)<<3)");
        check(Op::CmpLt, DType::U64, int(DType::U64, 3), "(val0<3ull)");
    }

    #[test]
    fn constants_keep_their_bits() {
        let float = |value: f64| constant(Constant::float(DType::F32, value)).text;
        assert_eq!(float(0.1), "0.1f");
        assert_eq!(float(-0.0), "-0.0f");
        assert_eq!(float(1e-45), "1e-45f");
        assert_eq!(float(f64::NEG_INFINITY), "-INFINITY");
        assert_eq!(float(f64::NAN), "NAN");
        let payload = Constant::from_bits(DType::F32, 0x7fc0_0001);
        assert_eq!(constant(payload).text, "f32_from_bits(0x7fc00001u)");
        let low = Constant::int(DType::I64, i64::MIN.into());
        assert_eq!(constant(low).text, "(-9223372036854775807ll-1)");
        assert_eq!(constant(Constant::float(DType::F16, 1.0)).text, "0x3c00/*1.0*/");
    }

    #[test]
    fn gated_load_is_conditional() {
        let kernel = linear(&[
            (Op::DefineGlobal, DType::I32, &[], global(0)),
            (Op::DefineGlobal, DType::I32, &[], global(1)),
            (Op::Const, DType::I32, &[], int(DType::I32, 4)),
            (Op::Range, DType::I32, &[2], Arg::plain_axis(0)),
            (Op::Const, DType::I32, &[], int(DType::I32, 2)),
            (Op::CmpLt, DType::Bool, &[3, 4], Arg::None),
            (Op::Index, DType::I32, &[1, 3, 5], Arg::None),
            (Op::Load, DType::I32, &[6], Arg::None),
            (Op::Index, DType::I32, &[0, 3], Arg::None),
            (Op::Store, DType::Void, &[8, 7], Arg::None),
            (Op::EndRange, DType::Void, &[3], Arg::None),
        ]);
        let text = c(&kernel).unwrap().text;
        assert!(text.contains("int val0 = ((ridx0<2)?data1[ridx0]:0);"), "{text}");
    }

    #[test]
    fn expression_used_twice_is_named() {
        let mut kernel = with_constant(Op::Add, DType::I32, int(DType::I32, 1));
        kernel.uops[9].src[1] = 9;
        let square = Instruction::new(Op::Mul, DType::I32, [7, 7], Arg::None);
        kernel.uops.insert(9, square);
        let text = c(&kernel).unwrap().text;
        assert!(text.contains("int alu0 = (val0+1);"), "{text}");
        assert!(text.contains("data0[ridx0] = (alu0*alu0);"), "{text}");
    }

    #[test]
    fn unsupported_op_and_bad_name_are_refused() {
        let kernel = with_constant(Op::Xor, DType::F32, Arg::Const(Constant::zero(DType::F32)));
        let error = c(&kernel).unwrap_err();
        assert_eq!(error.to_string(), "kernel E_4, uop 7: C has no xor of f32");
        let mut kernel = with_constant(Op::Add, DType::I32, int(DType::I32, 1));
        kernel.name = "a-b".into();
        assert_eq!(c(&kernel), Err(Error::Name("a-b".into())));
    }
}
