//! WGSL. One module per kernel: arrays are bindings 0, 1, ... of group 0, scalar parameters follow
//! as uniforms. `wgsl_types` gives the supported types and how smaller ones are represented; a bool
//! is stored as a u32 that is 0 or 1. There are two dialects: the extended one with f16 and types
//! of 64 bits, and the core for devices without f16.
//!
//! WGSL does not specify the accuracy of transcendental functions, so they are lowered before
//! rendering (`unsupported` of the target).
//!
//! WGSL lets implementations assume that NaN and infinity do not occur. Such constants go through a
//! function, since as constant expressions they are errors.

use gradiff_graph::{AxisKind, Constant, DType, Linear, Op, evaluate};

use crate::Error;
use crate::code::{Code, Helpers, code, join};
use crate::dialect::{Access, Alu, Dialect, Header, Text, Value, dimension_name};
use crate::helpers::Definitions;
use crate::legalize::Legalizations;
use crate::vector::VectorSyntax;
use crate::wgsl_types::{self, CORE, EXTENDED, Types, not_equal, type_name};
use crate::writer::write;

/// Renders a kernel for a device with f16, and with the types of 64 bits that the kernel uses.
///
/// # Errors
/// If a uop is not an op of linear kernels or unsupported in WGSL, or the name is not an
/// identifier.
pub(crate) fn wgsl(linear: &Linear) -> Result<Code, Error> {
    write(&Wgsl(EXTENDED), &Legalizations::WGSL, linear, &linear.name)
}

/// Renders a kernel for any device: f16 is held as its bits.
///
/// # Errors
/// As [`wgsl`].
pub(crate) fn wgsl_core(linear: &Linear) -> Result<Code, Error> {
    write(&Wgsl(CORE), &Legalizations::WGSL, linear, &linear.name)
}

/// Returns the prelude of a file that uses these helpers.
///
/// # Panics
/// If a helper has no [`wgsl_definition`].
pub(crate) fn wgsl_prelude(helpers: &Helpers) -> String {
    let definitions = Definitions::of(helpers, wgsl_definition);
    let enable = if definitions.contain("f16") { "enable f16;\n" } else { "" };
    format!("{enable}{}", definitions.text)
}

/// Returns the definition of a helper. The type `f16` is one without, which has to be enabled.
pub(crate) fn wgsl_definition(name: &str) -> Option<Code> {
    let scalar = wgsl_function(name).or_else(|| wgsl_types::definition(name));
    scalar.or_else(|| VECTORS.definition(name))
}

/// A dialect of WGSL.
struct Wgsl(Types);

const VECTORS: VectorSyntax = VectorSyntax {
    type_name: vector_type,
    make: |kind, values| code!("{}({})", kind, values),
    bitcast: |kind, value| code!("bitcast<{}>({})", kind, value),
    convert: |kind, value| code!("{}({})", kind, value),
    // Those that scalars have helpers or two steps for.
    converts: |from, to| {
        let is_widened = from.is_int() && to.is_int() && from.size_bytes() < to.size_bytes();
        !(is_widened || to == DType::F64 && matches!(from, DType::I64 | DType::U64))
    },
    select: |mask, y, z| code!("select({}, {}, {})", z, y, mask),
    lane: |value, lane| code!("{}.{}", value, ["x", "y", "z", "w"][lane & 3]),
    constant: |value| EXTENDED.constant(value),
    scalar: |alu| Wgsl(EXTENDED).scalar(alu),
    function: |kind, word, parameters, value| {
        let parameters: Vec<Code> =
            parameters.iter().map(|(kind, name)| code!("{name}: {}", kind)).collect();
        let parameters = join(&parameters, ", ");
        code!("fn {word}({}) -> {} {{ return {}; }}\n", parameters, kind, value)
    },
    not_equal: crate::wgsl_types::not_equal,
    has_masks: false,
    wraps: true,
    has_unsigned_amounts: true,
    is_native: |_| true,
};

fn vector_type(dtype: DType, lanes: u8, _mask_bytes: u8) -> Option<Code> {
    let is_possible = matches!(lanes, 2 | 4) && EXTENDED.is_native(dtype);
    is_possible.then(|| code!("vec{lanes}<{}>", type_name(dtype)))
}

/// Returns the definition of a scalar helper.
fn wgsl_function(word: &str) -> Option<Code> {
    if word == "f16" {
        return Some(Code::default());
    }
    let (name, kind) = word.rsplit_once('_')?;
    let text = match word {
        "f32_from_bits" => "(x: u32) -> f32 { return bitcast<f32>(x); }".into(),
        "f64_from_bits" => "(x: u64) -> f64 { return bitcast<f64>(x); }".into(),
        "is_nan_f32" => {
            "(x: f32) -> bool {\n  return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;\n}".into()
        }
        "is_nan_f64" => "(x: f64) -> bool {\n  \
             return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;\n}"
            .into(),
        _ => {
            let dtype = DType::from_name(kind).filter(|dtype| EXTENDED.is_native(*dtype))?;
            let (kind, body) = (type_name(dtype), binary_body(name, dtype)?);
            code!("(x: {kind}, y: {kind}) -> {kind} {{{body}}}"; kind, body)
        }
    };
    Some(code!("fn {word}{}\n", text))
}

/// The body of a helper with two parameters `x` and `y` of a type.
fn binary_body(name: &str, dtype: DType) -> Option<Code> {
    let select = |sign: &str| {
        let is_nan = Code::helper(format!("is_nan_{dtype}"));
        code!(" return select(y, x, x {sign} y || {}(x)); ", is_nan)
    };
    match name {
        "max" if dtype.is_float() => Some(select(">")),
        "min" if dtype.is_float() => Some(select("<")),
        _ => None,
    }
}

impl Wgsl {
    /// The type of an array element.
    fn stored_type(&self, dtype: DType) -> Option<DType> {
        if dtype == DType::Bool { Some(DType::U32) } else { self.0.representation(dtype) }
    }

    /// Renders a scalar op.
    fn scalar(&self, alu: &Alu) -> Option<Code> {
        // Ops of constants are folded: an overflow in a constant expression is an error.
        let known: Option<Vec<Constant>> = alu.src.iter().map(|value| value.known).collect();
        if let Some(value) = known.and_then(|known| evaluate(alu.op, alu.dtype, &known)) {
            return self.0.constant(value);
        }
        let (src, from, to) = (alu.codes(), alu.from(), alu.dtype);
        Some(match alu.op {
            Op::Cast => self.0.cast(from, to, src[0])?,
            Op::Bitcast => self.0.bitcast(from, to, src[0])?,
            Op::Where => code!("select({}, {}, {})", src[2], src[1], src[0]),
            op if from == DType::Bool => bool_op(op, &src)?,
            op if from.is_float() => float_op(op, from, &src)?,
            _ => int_op(alu, self.0.representation(from)?)?,
        })
    }
}

fn bool_op(op: Op, src: &[&Code]) -> Option<Code> {
    let sign = match op {
        Op::CmpLt => return Some(code!("(!{}&{})", src[0], src[1])),
        Op::Add | Op::Max | Op::Or => "|",
        Op::Mul | Op::Min | Op::And => "&",
        Op::Sub | Op::CmpNe | Op::Xor => "!=",
        _ => return None,
    };
    Some(code!("({}{}{})", src[0], sign, src[1]))
}

/// Puts parentheses around an operand that begins with `-`, since two signs would become `--`.
fn parenthesized(x: &Code) -> Code {
    if x.text.starts_with('-') { code!("({})", x) } else { x.clone() }
}

fn float_op(op: Op, dtype: DType, src: &[&Code]) -> Option<Code> {
    let sign = match op {
        Op::Neg => return Some(code!("(-{})", parenthesized(src[0]))),
        Op::Sqrt => return Some(code!("sqrt({})", src[0])),
        Op::MulAcc => return Some(code!("fma({})", join(src, ", "))),
        Op::Max | Op::Min => return Some(Code::call(format!("{op}_{dtype}"), src)),
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::FDiv => "/",
        Op::CmpLt => "<",
        Op::CmpNe => return Some(not_equal(src[0], src[1])),
        _ => return None,
    };
    Some(code!("({}{}{})", src[0], sign, parenthesized(src[1])))
}

/// Renders an op of integers that are represented in this type.
fn int_op(alu: &Alu, representation: DType) -> Option<Code> {
    let (op, dtype, src) = (alu.op, alu.from(), alu.codes());
    let known = alu.src.get(1).and_then(Value::known_int);
    let amount = || match known {
        Some(amount) => format!("{amount}u").into(),
        None => code!("u32({})", src[1]),
    };
    let sign = match op {
        Op::Neg if dtype.is_unsigned() => {
            let zero = EXTENDED.constant(Constant::zero(representation))?;
            return Some(code!("({}-{})", zero, src[0]));
        }
        Op::Neg => return Some(code!("(-{})", parenthesized(src[0]))),
        Op::Max | Op::Min => return Some(code!("{op}({})", join(&src, ", "))),
        Op::Shl => return Some(code!("({}<<{})", src[0], amount())),
        Op::Shr => return Some(code!("({}>>{})", src[0], amount())),
        Op::CDiv => "/",
        Op::CMod => "%",
        Op::Add => "+",
        Op::Sub => "-",
        Op::Mul => "*",
        Op::CmpLt => "<",
        Op::CmpNe => "!=",
        Op::And => "&",
        Op::Or => "|",
        Op::Xor => "^",
        _ => return None,
    };
    Some(code!("({}{}{})", src[0], sign, parenthesized(src[1])))
}

impl Dialect for Wgsl {
    fn language(&self) -> &'static str {
        "WGSL"
    }

    fn is_unsupported(&self, dtype: DType) -> bool {
        self.0.representation(dtype).is_none()
    }

    fn type_name(&self, dtype: DType, lanes: u8, mask_bytes: u8) -> Option<Code> {
        match lanes {
            1 => self.0.representation(dtype).map(type_name),
            _ => vector_type(dtype, lanes, mask_bytes).filter(|_| self.0.is_native(dtype)),
        }
    }

    fn constant(&self, value: Constant) -> Option<Code> {
        self.0.constant(value)
    }

    fn header(&self, header: &Header) -> Option<Code> {
        let mut text = Code::default();
        for (number, (slot, dtype, is_stored)) in header.arrays.iter().enumerate() {
            let access = if *is_stored { "read_write" } else { "read" };
            let kind = type_name(self.stored_type(*dtype)?);
            text.push(&code!(
                "@group(0) @binding({number}) var<storage, {access}> data{slot}: array<{}>;\n",
                kind
            ));
        }
        for (number, (name, dtype)) in (header.arrays.len()..).zip(&header.variables) {
            let kind = type_name(self.0.representation(*dtype)?);
            text.push(&code!("@group(0) @binding({number}) var<uniform> {name}: {};\n", kind));
        }
        for (name, dtype, size_elements) in &header.locals {
            let kind = type_name(self.stored_type(*dtype)?);
            text.push(&code!("var<workgroup> {name}: array<{}, {size_elements}>;\n", kind));
        }
        let size = |dimension: usize| header.group.get(dimension).copied().unwrap_or(1);
        Some(code!(
            "{}@compute @workgroup_size({}, {}, {})\n\
             fn {}(@builtin(workgroup_id) gid: vec3<u32>, \
             @builtin(local_invocation_id) lid: vec3<u32>) {{\n",
            text,
            size(0),
            size(1),
            size(2),
            header.name
        ))
    }

    fn grid_index(&self, kind: AxisKind, dimension: usize) -> Option<String> {
        let word = if kind == AxisKind::Global { "gid" } else { "lid" };
        Some(format!("i32({word}{})", dimension_name(dimension)))
    }

    fn alu(&self, alu: &Alu) -> Option<Text> {
        if matches!(alu.op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow) {
            return None;
        }
        match alu.lanes {
            1 => self.scalar(alu).map(Text::from),
            _ if [alu.from(), alu.dtype].iter().all(|dtype| self.0.is_native(*dtype)) => {
                VECTORS.alu(alu)
            }
            _ => None,
        }
    }

    fn vectorize(&self, dtype: DType, lanes: u8, src: &[Value]) -> Option<Text> {
        let values: Vec<&Code> = src.iter().map(|value| value.code).collect();
        Some((VECTORS.make)(&vector_type(dtype, lanes, 0)?, &join(&values, ", ")).into())
    }

    fn lane(&self, vector: &Value, lane: usize) -> Option<Code> {
        Some((VECTORS.lane)(vector.code, lane))
    }

    /// Arrays have scalar elements, so lanes are loaded one by one.
    fn load(&self, access: &Access) -> Option<Text> {
        let load_lane = |lane: u8| element(access, lane);
        Some(match access.lanes {
            1 => load_lane(0).into(),
            lanes => {
                let values: Vec<Code> = (0..lanes).map(load_lane).collect();
                (VECTORS.make)(&vector_type(access.dtype, lanes, 0)?, &join(&values, ", ")).into()
            }
        })
    }

    fn store(&self, access: &Access, value: &Value) -> Option<Code> {
        if access.lanes == 1 {
            let is_bool = access.dtype == DType::Bool;
            let stored = if is_bool { code!("u32({})", value.code) } else { value.code.clone() };
            return Some(code!("{} = {};", lvalue(access, 0), stored));
        }
        let vector = Code::from("vector");
        let stores = (0..access.lanes).map(|lane| {
            code!("{} = {};", lvalue(access, lane), (VECTORS.lane)(&vector, lane.into()))
        });
        let stores: Vec<Code> = stores.collect();
        Some(code!("{{ let vector = {}; {} }}", value.code, join(&stores, " ")))
    }

    fn barrier(&self) -> Option<&'static str> {
        Some("workgroupBarrier(); storageBarrier();")
    }

    fn declare(&self, kind: &Code, name: &str, value: &Code, is_variable: bool) -> Code {
        let word = if is_variable { "var" } else { "let" };
        code!("{word} {name}: {} = {};", kind, value)
    }

    fn loop_header(&self, kind: &Code, name: &str, end: &Code) -> Code {
        code!("for (var {name}: {} = 0; {name} < {}; {name}++) {{", kind, end)
    }

    fn gated_load(
        &self,
        kind: &Code,
        name: &str,
        gate: &Code,
        loaded: &Code,
        zero: &Code,
    ) -> Vec<Code> {
        let load = code!("if ({}) {{ {name} = {}; }}", gate, loaded);
        vec![self.declare(kind, name, zero, true), load]
    }
}

/// The value of an accessed element.
fn element(access: &Access, lane: u8) -> Code {
    let element = lvalue(access, lane);
    if access.dtype == DType::Bool { code!("({}!=0u)", element) } else { element }
}

/// An accessed element, as an lvalue.
fn lvalue(access: &Access, lane: u8) -> Code {
    let elements = 0..i128::from(access.size_elements);
    let known = access.known_index.map(|index| index + i128::from(lane));
    match lane {
        // A constant outside of the array only occurs behind a false gate, but WGSL rejects it.
        _ if known.is_some_and(|element| !elements.contains(&element)) => {
            format!("{}[0]", access.array).into()
        }
        0 => code!("{}[{}]", access.array, access.index),
        _ => code!("{}[{}+{lane}]", access.array, access.index),
    }
}

/// Returns the maximal number of elements of a load or store.
pub(crate) fn lanes_max(types: Types, dtype: DType) -> u8 {
    if types.is_native(dtype) && dtype != DType::Bool { 4 } else { 1 }
}
