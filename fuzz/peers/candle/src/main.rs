//! The crate candle-core as an engine that gradiff judges: lines of JSON on standard input, answers
//! on standard output, as `fuzz/peers/README.md` describes.
//!
//! `--wrong` plants a mistake: `flip` forgets all axes but the first. Nothing here checks programs,
//! since those that arrive are well formed.

use std::io::{BufRead, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::{DType, Device, Error, Tensor};
use serde_json::{Value, json};

/// The dtypes, in candle's words but for bool.
const DTYPES: &str = "bool u8 u32 i16 i32 i64 f16 bf16 f32 f64";

type Unary = fn(&Tensor) -> Result<Tensor, Error>;
type Binary = fn(&Tensor, &Tensor) -> Result<Tensor, Error>;

/// Functions of one source.
const UNARY: &[(&str, Unary)] = &[
    ("neg", Tensor::neg),
    ("recip", Tensor::recip),
    ("sqrt", Tensor::sqrt),
    ("sin", Tensor::sin),
    ("cos", Tensor::cos),
    ("exp", Tensor::exp),
    ("log", Tensor::log),
    ("tanh", Tensor::tanh),
    ("erf", Tensor::erf),
    ("abs", Tensor::abs),
    ("sign", Tensor::sign),
    ("square", Tensor::sqr),
    ("relu", Tensor::relu),
    ("floor", Tensor::floor),
    ("ceil", Tensor::ceil),
    ("silu", Tensor::silu),
    ("contiguous", Tensor::contiguous),
    ("realize", |x| Ok(x.clone())),
    ("detach", |x| Ok(x.detach())),
];

/// Functions of two sources, which are broadcast.
const BINARY: &[(&str, Binary)] = &[
    ("add", Tensor::broadcast_add),
    ("sub", Tensor::broadcast_sub),
    ("mul", Tensor::broadcast_mul),
    ("div", Tensor::broadcast_div),
    ("cdiv", Tensor::broadcast_div),
    ("max", Tensor::broadcast_maximum),
    ("min", Tensor::broadcast_minimum),
    ("cmplt", Tensor::broadcast_lt),
    ("cmpne", Tensor::broadcast_ne),
    ("cmpeq", Tensor::broadcast_eq),
];

/// The other operations, which `statement` knows.
const OTHERS: &str = "input const arange cast where mulacc reduce_sum reduce_max reshape expand \
    permute flip shrink pad cat gather and or xor not matmul transpose amin squeeze unsqueeze \
    flatten unflatten";

/// The answer if there are no values.
struct Failure(Value);

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error {
            Error::UnsupportedDTypeForOp(..) => Failure(json!({ "skipped": error.to_string() })),
            Error::WithBacktrace { inner, .. } => (*inner).into(),
            _ => Failure(json!({ "refused": error.to_string() })),
        }
    }
}

fn skipped<T>(reason: &str) -> Result<T, Failure> {
    Err(Failure(json!({ "skipped": reason })))
}

/// A value of a program. Its dtype tells bool from u8.
type Typed = (Tensor, String);

/// The dtype of this name. Candle has no bool: it is a u8 that is 0 or 1.
fn dtype_of(name: &str) -> DType {
    name.parse().unwrap_or(DType::U8)
}

fn found<T: Copy>(table: &[(&str, T)], name: &str) -> Option<T> {
    table.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

fn items(of: &Value) -> impl Iterator<Item = &Value> {
    of.as_array().into_iter().flatten()
}

fn sizes(of: &Value) -> Vec<usize> {
    items(of).filter_map(Value::as_u64).map(|size| size as usize).collect()
}

/// The tensor of these bytes in hexadecimal.
fn tensor_of(dtype: &str, shape: &[usize], digits: &str) -> Result<Tensor, Error> {
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or(0);
    let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
    Tensor::from_raw_buffer(&bytes, dtype_of(dtype), shape, &Device::Cpu)
}

fn cast((x, from): &Typed, to: &str) -> Result<Tensor, Error> {
    if to == "bool" && from != "bool" { x.ne(&x.zeros_like()?) } else { x.to_dtype(dtype_of(to)) }
}

/// The value that a statement defines.
fn statement(s: &Value, values: &[Typed], is_wrong: bool) -> Result<Tensor, Failure> {
    let (op, dtype, args) = (text(s, "op"), text(s, "dtype"), &s["args"]);
    let (shape, axes) = (sizes(&s["shape"]), sizes(&s["axes"]));
    let source = |of: &Value| match of.as_u64() {
        Some(number) => Ok(values[number as usize].clone()),
        None => {
            let dtype = text(of, "dtype");
            Ok((tensor_of(dtype, &[], text(of, "bytes"))?, dtype.to_string()))
        }
    };
    let mut sources = items(&s["src"]).map(source).collect::<Result<Vec<Typed>, Error>>()?;
    if let Some(operands) = s["operands"].as_str() {
        // The condition of `where` stays as it is.
        for x in sources.iter_mut().skip(usize::from(op == "where")) {
            *x = (cast(x, operands)?, operands.to_string());
        }
    }
    let src: Vec<&Tensor> = sources.iter().map(|(tensor, _)| tensor).collect();
    let is_bool = sources.first().is_some_and(|(_, dtype)| dtype == "bool");
    if is_bool && matches!(op, "add" | "sub" | "mul" | "div" | "cdiv" | "neg" | "abs" | "sign") {
        return skipped("it has no numbers of bool");
    }
    if op == "silu" && dtype.ends_with("f16") {
        return skipped("each part of a composed function is rounded to 16 bits");
    }
    if let Some(function) = found(UNARY, op) {
        return Ok(function(src[0])?);
    }
    if let Some(function) = found(BINARY, op) {
        return Ok(function(src[0], src[1])?);
    }
    Ok(match op {
        "input" => tensor_of(dtype, &shape, text(s, "bytes"))?,
        "const" => tensor_of(dtype, &[], text(s, "bytes"))?.broadcast_as(shape)?,
        "arange" => {
            let [start, step] = ["start", "step"].map(|name| s[name].as_i64().unwrap_or(0));
            let number = |i| step.wrapping_mul(i as i64).wrapping_add(start);
            let tensor = Tensor::from_iter((0..shape[0]).map(number), &Device::Cpu)?;
            cast(&(tensor, "i64".to_string()), dtype)?
        }
        "cast" => cast(&sources[0], dtype)?,
        "not" if is_bool => src[0].eq(&src[0].zeros_like()?)?,
        "and" if is_bool => src[0].broadcast_minimum(src[1])?,
        "or" if is_bool => src[0].broadcast_maximum(src[1])?,
        "xor" if is_bool => src[0].broadcast_ne(src[1])?,
        "where" => {
            let [c, x, y] = [0, 1, 2].map(|number| src[number].broadcast_as(shape.clone()));
            c?.where_cond(&x?, &y?)?
        }
        "mulacc" => src[0].broadcast_mul(src[1])?.broadcast_add(src[2])?,
        "reduce_sum" => {
            // 16-bit floats are accumulated in f32.
            let wide = if dtype.ends_with("f16") { "f32" } else { dtype };
            let x = cast(&sources[0], wide)?;
            let sum = if axes.is_empty() { x } else { x.sum_keepdim(axes)? };
            sum.to_dtype(dtype_of(dtype))?
        }
        "reduce_max" if src[0].elem_count() != 0 => {
            axes.iter().try_fold(src[0].clone(), |x, axis| x.max_keepdim(*axis))?
        }
        "reshape" | "flatten" | "unflatten" | "squeeze" | "unsqueeze" => src[0].reshape(shape)?,
        "expand" => src[0].broadcast_as(shape)?,
        "permute" => src[0].permute(axes)?,
        "flip" => {
            let flipped = if is_wrong { &axes[..axes.len().min(1)] } else { &axes };
            // Its documentation does not say so, but the error does that ends it otherwise.
            src[0].contiguous()?.flip(flipped)?
        }
        "shrink" => {
            let mut ranges = items(&s["ranges"]).map(sizes).enumerate();
            ranges.try_fold(src[0].clone(), |x, (axis, range)| {
                x.narrow(axis, range[0], range[1] - range[0])
            })?
        }
        "pad" if text(s, "bytes").bytes().all(|digit| digit == b'0') => {
            let mut pads = items(&s["pads"]).map(sizes).enumerate();
            pads.try_fold(src[0].clone(), |x, (axis, pad)| x.pad_with_zeros(axis, pad[0], pad[1]))?
        }
        "cat" => Tensor::cat(&src, s["axis"].as_u64().unwrap_or(0) as usize)?,
        "gather" => {
            // An index beyond the axis is an error in candle, and 0 in gradiff.
            let axis = s["axis"].as_u64().unwrap_or(0) as usize;
            let size = src[0].dims()[axis] as i64;
            if size == 0 {
                return skipped("it gathers nothing from an empty axis");
            }
            let at = src[1].to_dtype(DType::I64)?;
            let inside = at.ge(0i64)?.mul(&at.lt(size)?)?;
            let x = src[0].contiguous()?.gather(&at.clamp(0i64, size - 1)?, axis)?;
            inside.where_cond(&x, &x.zeros_like()?)?
        }
        "matmul" if [src[0], src[1]].iter().all(|x| (2..=4).contains(&x.rank())) => {
            let [x, y] = [0, 1].map(|number| cast(&sources[number], dtype));
            x?.contiguous()?.broadcast_matmul(&y?.contiguous()?)?
        }
        "transpose" => {
            let [a, b] = ["axis0", "axis1"].map(|axis| args[axis].as_i64().unwrap_or(0));
            src[0].transpose(src[0].normalize_axis(a)?, src[0].normalize_axis(b)?)?
        }
        "amin" if src[0].elem_count() != 0 => {
            let mut axes = items(&args["axes"]).filter_map(Value::as_i64);
            let smallest = |x: Tensor, axis| x.min_keepdim(x.normalize_axis(axis)?);
            axes.try_fold(src[0].clone(), smallest)?.reshape(shape)?
        }
        _ => return skipped(&format!("it has no {op} of such arguments and dtypes")),
    })
}

fn run(program: &Value, is_wrong: bool) -> Result<Value, Failure> {
    let mut values: Vec<Typed> = Vec::new();
    for s in items(&program["statements"]) {
        let tensor = statement(s, &values, is_wrong)?;
        values.push((tensor, text(s, "dtype").to_string()));
    }
    let outputs = sizes(&program["outputs"]).into_iter().map(|output| {
        let (tensor, dtype) = &values[output];
        let mut bytes = Vec::new();
        tensor.write_bytes(&mut bytes)?;
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        // A wrong dtype shows itself.
        let is_right = dtype_of(dtype) == tensor.dtype();
        let dtype = if is_right { dtype.as_str() } else { tensor.dtype().as_str() };
        Ok(json!({ "dtype": dtype, "shape": tensor.dims(), "bytes": digits }))
    });
    Ok(json!({ "values": outputs.collect::<Result<Vec<Value>, Error>>()? }))
}

fn answer(request: &Value, is_wrong: bool) -> Value {
    if !request["gradiff"].is_null() {
        let tables = UNARY.iter().map(|row| row.0).chain(BINARY.iter().map(|row| row.0));
        let ops: Vec<&str> = tables.chain(OTHERS.split_whitespace()).collect();
        let dtypes: Vec<&str> = DTYPES.split_whitespace().collect();
        return json!({ "gradiff": 1, "name": "candle-core 0.11.1", "ops": ops, "dtypes": dtypes });
    }
    if request["run"].is_null() {
        return json!({ "refused": "an unknown request" });
    }
    match catch_unwind(AssertUnwindSafe(|| run(&request["run"], is_wrong))) {
        Ok(Ok(values)) => values,
        Ok(Err(Failure(answer))) => answer,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
            // The panic of candle's functions without a body, and undefined quotients by zero. The
            // smallest integer by -1 is defined, so that its overflow is a failure.
            let is_missing = text.contains("not yet implemented")
                || text.contains("divide by zero")
                || text.contains("divisor of zero");
            json!({ (if is_missing { "skipped" } else { "refused" }): text })
        }
    }
}

fn main() {
    let is_wrong = std::env::args().any(|flag| flag == "--wrong");
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let request: Value = serde_json::from_str(&line).unwrap_or_default();
        let mut answer = answer(&request, is_wrong);
        answer["id"] = request["id"].clone();
        println!("{answer}");
        std::io::stdout().flush().expect("standard output takes answers");
    }
}
