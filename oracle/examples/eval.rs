//! Reads programs in the text form from stdin, separated by lines `---`, and prints a JSON object
//! for each: the program with all its data, and the results that the oracle expects.
//! `check_numpy.py` computes the same programs in NumPy and compares, `check_torch.py` those with
//! gradients in PyTorch.

use std::io::{Read, Write};

use gradiff_corpus::{Arg, Case, Literal, Operand, Statement, ValueId, fill, literal_bits};
use gradiff_oracle::{Element, Expected, evaluate};
use serde_json::{Value, json};

fn main() -> std::io::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for case in text.split("\n---").map(str::trim).filter(|case| !case.is_empty()) {
        writeln!(out, "{}", line(case))?;
    }
    out.flush()
}

fn line(case: &str) -> Value {
    let program = match gradiff_corpus::parse(case).map(|file| file.case) {
        Ok(Case::Program(program)) => program,
        Ok(_) => return json!({ "text": case, "error": "not a program" }),
        Err(error) => return json!({ "text": case, "error": error.to_string() }),
    };
    match evaluate(&program) {
        Err(error) => json!({ "text": case, "error": error.to_string() }),
        Ok(outputs) => json!({
            "text": case,
            "statements": program.statements.iter().map(statement).collect::<Vec<_>>(),
            "outputs": outputs.iter().zip(&program.outputs).map(output).collect::<Vec<_>>(),
        }),
    }
}

fn id(value: &ValueId) -> Value {
    json!(value.0)
}

fn operand(operand: &Operand) -> Value {
    match operand {
        Operand::Value(value) => json!({ "value": value.0 }),
        Operand::Literal(value) => json!({ "literal": literal(value) }),
    }
}

/// Returns integers and floats as text, since JSON has neither 64-bit numbers nor NaN.
fn literal(literal: &Literal) -> Value {
    match literal {
        Literal::Bool(value) => json!({ "bool": value }),
        Literal::Int(value) => json!({ "int": value.to_string() }),
        Literal::Float(value) => json!({ "float": value.to_bits().to_string() }),
    }
}

fn operands(op: &str, srcs: &[Operand]) -> Value {
    json!({ "op": op, "srcs": srcs.iter().map(operand).collect::<Vec<_>>() })
}

fn statement(statement: &Statement) -> Value {
    match statement {
        Statement::Input { dtype, shape, fill: data } => {
            json!({ "op": "data", "dtype": dtype.name(), "shape": shape,
                    "bits": fill(*dtype, shape, data).bits })
        }
        Statement::Const { dtype, shape, value } => {
            let count = shape.iter().product();
            let bits = literal_bits(*dtype, value).expect("the oracle accepted the program");
            json!({ "op": "data", "dtype": dtype.name(), "shape": shape,
                    "bits": vec![bits; count] })
        }
        Statement::Arange { dtype, start, step, count } => {
            json!({ "op": "arange", "dtype": dtype.name(), "start": start, "step": step,
                    "count": count })
        }
        Statement::Unary { op, src } => json!({ "op": op.name(), "src": id(src) }),
        Statement::Binary { op, srcs } => operands(op.name(), srcs),
        Statement::Where { srcs } => operands("where", srcs),
        Statement::MulAcc { srcs } => operands("mulacc", srcs),
        Statement::Cast { src, dtype } => {
            json!({ "op": "cast", "src": id(src), "dtype": dtype.name() })
        }
        Statement::Bitcast { src, dtype } => {
            json!({ "op": "bitcast", "src": id(src), "dtype": dtype.name() })
        }
        Statement::Reduce { op, src, axes } => {
            json!({ "op": format!("reduce_{}", op.name()), "src": id(src), "axes": axes })
        }
        _ => movement(statement),
    }
}

fn argument(arg: &Arg) -> Value {
    match arg {
        Arg::Int(value) => json!(value),
        Arg::Ints(values) => json!(values),
        Arg::Flag(value) => json!(value),
        Arg::Number(value) => literal(value),
        Arg::DType(dtype) => json!({ "dtype": dtype.name() }),
        Arg::Word(word) => json!(word),
        Arg::Indices(indices) => {
            json!(indices.iter().map(gradiff_corpus::Index::to_string).collect::<Vec<_>>())
        }
    }
}

fn movement(statement: &Statement) -> Value {
    match statement {
        Statement::Reshape { src, shape } => {
            json!({ "op": "reshape", "src": id(src), "shape": shape })
        }
        Statement::Permute { src, axes } => {
            json!({ "op": "permute", "src": id(src), "axes": axes })
        }
        Statement::Expand { src, shape } => {
            json!({ "op": "expand", "src": id(src), "shape": shape })
        }
        Statement::Pad { src, pads, value } => {
            json!({ "op": "pad", "src": id(src), "pads": pads, "value": literal(value) })
        }
        Statement::Shrink { src, ranges } => {
            json!({ "op": "shrink", "src": id(src), "ranges": ranges })
        }
        Statement::Flip { src, axes } => json!({ "op": "flip", "src": id(src), "axes": axes }),
        Statement::Cat { srcs, axis } => {
            json!({ "op": "cat", "srcs": srcs.iter().map(id).collect::<Vec<_>>(), "axis": axis })
        }
        Statement::Gather { src, axis, index } => {
            json!({ "op": "gather", "src": id(src), "axis": axis, "index": id(index) })
        }
        Statement::Contiguous { src } | Statement::Realize { src } => {
            json!({ "op": "same", "src": id(src) })
        }
        Statement::Detach { src } => json!({ "op": "detach", "src": id(src) }),
        Statement::Gradient { of, wrt } => {
            json!({ "op": "gradient", "of": id(of), "wrt": id(wrt) })
        }
        Statement::Method { method, srcs, args } => {
            let named = method.row().parameters.iter().map(|(name, _)| name).zip(args);
            let args: Vec<Value> = named.map(|(name, arg)| json!([name, argument(arg)])).collect();
            json!({ "op": "method", "name": method.row().name, "args": args,
                    "srcs": srcs.iter().map(id).collect::<Vec<_>>() })
        }
        _ => panic!("{statement:?} does not move elements"),
    }
}

fn output((expected, value): (&Expected, &ValueId)) -> Value {
    let elements: Vec<_> = expected.elements().map(element).collect();
    json!({ "value": id(value), "dtype": expected.dtype.name(), "shape": expected.shape,
            "elements": elements })
}

/// Returns `["exact", bits]`, `["zero"]`, `["nan"]`, `["ball", center, low, radius]` (as bits of
/// f64) or `["unspecified", reason]`.
fn element(element: Element) -> Value {
    match element {
        Element::Exact(bits) => json!(["exact", bits]),
        Element::Zero => json!(["zero"]),
        Element::Nan => json!(["nan"]),
        Element::Ball { center, low, radius } => {
            json!(["ball", center.to_bits(), low.to_bits(), radius.to_bits()])
        }
        Element::Unspecified(reason) => json!(["unspecified", reason.name()]),
    }
}
