//! Cases in JSON, for engines in other languages. `fuzz/peers/README.md` describes the forms.
//!
//! Everything that an engine would have to infer is there: the dtype and shape of each result, the
//! dtype in which operands are taken, the data of inputs. Elements are bytes in hexadecimal, so
//! that all bits arrive.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::{
    Arg, Array, BinaryOp, DType, Expr, ExprBinary, ExprCase, ExprUnary, Index, Literal, Method,
    Operand, Program, ReduceOp, Statement, TensorType, TypeError, UnaryOp, ValueId, Var, ViewOp,
    ViewOps, fill, literal_bits, promote,
};

/// Returns the program in JSON.
///
/// # Errors
/// It is not well formed.
pub fn to_json(program: &Program) -> Result<Value, TypeError> {
    let types = program.typing()?;
    let statements: Vec<Value> = program
        .statements
        .iter()
        .zip(&types)
        .map(|(statement, result)| {
            let mut fields = Map::new();
            fields.insert("op".into(), name(statement).into());
            fields.insert("dtype".into(), result.dtype.name().into());
            fields.insert("shape".into(), json!(result.shape));
            let more = parts(statement, &types);
            fields.extend(more.into_iter().map(|(name, value)| (name.to_string(), value)));
            Value::Object(fields)
        })
        .collect();
    let outputs: Vec<u32> = program.outputs.iter().map(|id| id.0).collect();
    Ok(json!({ "statements": statements, "outputs": outputs }))
}

/// Returns the dtypes that the program in JSON names: those of results, those in which operands are
/// taken, those of literals and of arguments.
///
/// # Errors
/// It is not well formed.
pub fn dtypes(program: &Program) -> Result<BTreeSet<DType>, TypeError> {
    let types = program.typing()?;
    let mut dtypes: BTreeSet<DType> = types.iter().map(|of| of.dtype).collect();
    for statement in &program.statements {
        match statement {
            Statement::Binary { srcs, .. } => dtypes.extend([common(srcs, &types)]),
            Statement::MulAcc { srcs } => dtypes.extend([common(srcs, &types)]),
            Statement::Where { srcs } => {
                let is_literal = matches!(srcs[0], Operand::Literal(_));
                dtypes.extend(is_literal.then_some(DType::Bool));
                dtypes.extend([common(&srcs[1..], &types)]);
            }
            Statement::Method { args, .. } => {
                dtypes.extend(args.iter().filter_map(|arg| match arg {
                    Arg::DType(dtype) => Some(*dtype),
                    _ => None,
                }));
            }
            _ => {}
        }
    }
    Ok(dtypes)
}

/// Returns a sequence of movements in JSON: each is a list of its name and its argument.
pub fn views_to_json(views: &ViewOps) -> Value {
    let argument = |op: &ViewOp| match op {
        ViewOp::Reshape(list)
        | ViewOp::Expand(list)
        | ViewOp::Permute(list)
        | ViewOp::Flip(list) => {
            json!(list)
        }
        ViewOp::Pad(pairs) | ViewOp::Shrink(pairs) => json!(pairs),
    };
    let ops: Vec<Value> = views.ops.iter().map(|op| json!([op.name(), argument(op)])).collect();
    json!({ "shape": views.shape, "ops": ops })
}

/// Returns an index expression in JSON: its variables, and the expression as nested lists, each of
/// which begins with the name of a function.
pub fn expr_to_json(case: &ExprCase) -> Value {
    let var = |var: &Var| {
        let Var { name, dtype, min, max } = var;
        json!({ "name": name, "dtype": dtype.name(), "min": min, "max": max })
    };
    let vars: Vec<Value> = case.vars.iter().map(var).collect();
    json!({ "vars": vars, "expr": nested(&case.expr) })
}

fn nested(expr: &Expr) -> Value {
    let mut list = vec![json!(expr_name(expr))];
    match expr {
        Expr::Int(value) => return json!(value),
        Expr::Bool(value) => return json!(value),
        Expr::Var(number) => list.push(json!(number)),
        Expr::Cast(dtype, _) => list.push(json!(dtype.name())),
        Expr::Unary(..) | Expr::Binary(..) | Expr::Where(_) => {}
    }
    list.extend(expr.operands().into_iter().map(nested));
    Value::Array(list)
}

/// Returns the name of an expression's function, which is that of the operation in programs; `var`
/// of a variable and `const` of a literal.
pub fn expr_name(expr: &Expr) -> &'static str {
    match expr {
        Expr::Var(_) => "var",
        Expr::Int(_) | Expr::Bool(_) => "const",
        Expr::Unary(ExprUnary::Neg, _) => "neg",
        Expr::Unary(ExprUnary::Not, _) => "not",
        Expr::Cast(..) => "cast",
        Expr::Where(_) => "where",
        Expr::Binary(op, ..) => match op {
            ExprBinary::Add => "add",
            ExprBinary::Sub => "sub",
            ExprBinary::Mul => "mul",
            ExprBinary::FloorDiv => "floordiv",
            ExprBinary::FloorMod => "floormod",
            ExprBinary::CDiv => "cdiv",
            ExprBinary::CMod => "cmod",
            ExprBinary::Max => "max",
            ExprBinary::Min => "min",
            ExprBinary::Lt => "cmplt",
            ExprBinary::Ne => "cmpne",
            ExprBinary::Eq => "cmpeq",
            ExprBinary::And => "and",
            ExprBinary::Or => "or",
            ExprBinary::Xor => "xor",
            ExprBinary::Shl => "shl",
            ExprBinary::Shr => "shr",
        },
    }
}

/// Returns the name of a statement's operation.
pub fn name(statement: &Statement) -> &'static str {
    match statement {
        Statement::Input { .. } => "input",
        Statement::Const { .. } => "const",
        Statement::Arange { .. } => "arange",
        Statement::Unary { op, .. } => op.name(),
        Statement::Binary { op, .. } => op.name(),
        Statement::Where { .. } => "where",
        Statement::MulAcc { .. } => "mulacc",
        Statement::Cast { .. } => "cast",
        Statement::Bitcast { .. } => "bitcast",
        // Some elementwise operations have the same names.
        Statement::Reduce { op, .. } => match op {
            ReduceOp::Sum => "reduce_sum",
            ReduceOp::Prod => "reduce_prod",
            ReduceOp::Max => "reduce_max",
        },
        Statement::Reshape { .. } => "reshape",
        Statement::Permute { .. } => "permute",
        Statement::Expand { .. } => "expand",
        Statement::Pad { .. } => "pad",
        Statement::Shrink { .. } => "shrink",
        Statement::Flip { .. } => "flip",
        Statement::Cat { .. } => "cat",
        Statement::Gather { .. } => "gather",
        Statement::Contiguous { .. } => "contiguous",
        Statement::Realize { .. } => "realize",
        Statement::Detach { .. } => "detach",
        Statement::Gradient { .. } => "gradient",
        Statement::Method { method, .. } => method.row().name,
    }
}

/// The names of the operations that no table has.
const OTHER_NAMES: [&str; 22] = [
    "input",
    "const",
    "arange",
    "where",
    "mulacc",
    "cast",
    "bitcast",
    "reduce_sum",
    "reduce_prod",
    "reduce_max",
    "reshape",
    "permute",
    "expand",
    "pad",
    "shrink",
    "flip",
    "cat",
    "gather",
    "contiguous",
    "realize",
    "detach",
    "gradient",
];

/// Returns the names of all operations of programs; those of view sequences and expressions are
/// among them.
pub fn names() -> impl Iterator<Item = &'static str> {
    let unary = UnaryOp::ALL.into_iter().map(UnaryOp::name);
    let binary = BinaryOp::ALL.into_iter().map(BinaryOp::name);
    let methods = Method::ALL.iter().map(|method| method.row().name);
    OTHER_NAMES.into_iter().chain(unary).chain(binary).chain(methods)
}

type Parts = Vec<(&'static str, Value)>;

/// The sources and arguments of a statement.
fn parts(statement: &Statement, types: &[TensorType]) -> Parts {
    let dtype_of = |id: &ValueId| types[id.0 as usize].dtype;
    match statement {
        Statement::Input { dtype, shape, fill: data } => {
            vec![("bytes", hex(&fill(*dtype, shape, data)))]
        }
        Statement::Const { dtype, value, .. } => vec![("bytes", literal(*dtype, value))],
        Statement::Arange { start, step, .. } => {
            vec![("start", json!(start)), ("step", json!(step))]
        }
        Statement::Unary { src, .. }
        | Statement::Cast { src, .. }
        | Statement::Bitcast { src, .. }
        | Statement::Contiguous { src }
        | Statement::Realize { src }
        | Statement::Reshape { src, .. }
        | Statement::Expand { src, .. }
        | Statement::Detach { src } => vec![sources(&[*src])],
        Statement::Binary { srcs, .. } => operands(srcs, srcs, types),
        Statement::Where { srcs } => operands(srcs, &srcs[1..], types),
        Statement::MulAcc { srcs } => operands(srcs, srcs, types),
        Statement::Reduce { src, axes, .. }
        | Statement::Permute { src, axes }
        | Statement::Flip { src, axes } => vec![sources(&[*src]), ("axes", json!(axes))],
        Statement::Pad { src, pads, value } => {
            vec![sources(&[*src]), ("pads", json!(pads)), ("bytes", literal(dtype_of(src), value))]
        }
        Statement::Shrink { src, ranges } => vec![sources(&[*src]), ("ranges", json!(ranges))],
        Statement::Cat { srcs, axis } => vec![sources(srcs), ("axis", json!(axis))],
        Statement::Gather { src, axis, index } => {
            vec![sources(&[*src, *index]), ("axis", json!(axis))]
        }
        Statement::Gradient { of, wrt } => vec![sources(&[*of, *wrt])],
        Statement::Method { method, srcs, args } => {
            let named = method.row().parameters.iter().zip(args);
            let args: Map<String, Value> =
                named.map(|((name, _), arg)| (name.to_string(), argument(arg))).collect();
            vec![sources(srcs), ("args", Value::Object(args))]
        }
    }
}

fn sources(srcs: &[ValueId]) -> (&'static str, Value) {
    ("src", json!(srcs.iter().map(|id| id.0).collect::<Vec<_>>()))
}

/// The operands of an elementwise statement, and the dtype in which those that are `promoted` are
/// taken.
fn operands(srcs: &[Operand], promoted: &[Operand], types: &[TensorType]) -> Parts {
    let common = common(promoted, types);
    let first_promoted = srcs.len() - promoted.len();
    let operand = |(number, operand): (usize, &Operand)| match operand {
        Operand::Value(id) => json!(id.0),
        Operand::Literal(value) => {
            let dtype = if number < first_promoted { DType::Bool } else { common };
            json!({ "dtype": dtype.name(), "bytes": literal(dtype, value) })
        }
    };
    let srcs: Vec<Value> = srcs.iter().enumerate().map(operand).collect();
    vec![("src", json!(srcs)), ("operands", common.name().into())]
}

/// The dtype in which operands that are promoted are taken.
fn common(promoted: &[Operand], types: &[TensorType]) -> DType {
    let values = promoted.iter().filter_map(|src| match src {
        Operand::Value(id) => Some(types[id.0 as usize].dtype),
        Operand::Literal(_) => None,
    });
    values.reduce(promote).unwrap_or(DType::Bool)
}

/// An argument of a method. Numbers are text that Python and most languages read, since JSON has
/// neither NaN nor infinities.
fn argument(arg: &Arg) -> Value {
    match arg {
        Arg::Int(value) => json!(value),
        Arg::Ints(values) => json!(values),
        Arg::Flag(value) => json!(value),
        Arg::Number(value) => match value {
            Literal::Bool(value) => json!({ "number": u8::from(*value).to_string() }),
            Literal::Int(value) => json!({ "number": value.to_string() }),
            Literal::Float(value) => json!({ "number": format!("{value:?}") }),
        },
        Arg::DType(dtype) => json!({ "dtype": dtype.name() }),
        Arg::Word(word) => json!(word),
        Arg::Indices(indices) => {
            json!(indices.iter().map(Index::to_string).collect::<Vec<_>>())
        }
    }
}

fn literal(dtype: DType, value: &Literal) -> Value {
    let bits = literal_bits(dtype, value).unwrap_or_default();
    hex(&Array { dtype, shape: vec![], bits: vec![bits] })
}

fn hex(array: &Array) -> Value {
    array.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, parse};

    fn json_of(text: &str) -> Value {
        let Ok(Case::Program(program)) = parse(text).map(|file| file.case) else {
            panic!("{text}")
        };
        to_json(&program).expect("it is well formed")
    }

    #[test]
    fn operands_have_the_dtype_in_which_they_are_taken() {
        let program = json_of(
            "a = input i8[2] [1, -2]\nb = input f16[] [0.5]\nc = cmplt a b\nd = where true 3 a\n\
             output c, d\n",
        );
        let statements = &program["statements"];
        assert_eq!(statements[0]["bytes"], "01fe");
        assert_eq!(statements[2]["operands"], "f16");
        assert_eq!(
            (&statements[2]["dtype"], &statements[2]["shape"]),
            (&json!("bool"), &json!([2]))
        );
        let condition = json!({ "dtype": "bool", "bytes": "01" });
        assert_eq!(statements[3]["src"], json!([condition, { "dtype": "i8", "bytes": "03" }, 0]));
        assert_eq!(program["outputs"], json!([2, 3]));
    }

    /// Adds the dtypes that a value names, at any depth.
    fn named(value: &Value, found: &mut BTreeSet<DType>) {
        match value {
            Value::Array(list) => list.iter().for_each(|value| named(value, found)),
            Value::Object(fields) => {
                let keys = ["dtype", "operands"].into_iter();
                let names = keys.filter_map(|key| fields.get(key)?.as_str());
                found.extend(names.map(|name| DType::from_name(name).expect("a dtype")));
                fields.values().for_each(|value| named(value, found));
            }
            _ => {}
        }
    }

    #[test]
    fn dtypes_are_those_that_are_named_anywhere() {
        for (stem, text) in crate::embedded() {
            let Ok(Case::Program(program)) = parse(text).map(|file| file.case) else { continue };
            let mut found = BTreeSet::new();
            named(&to_json(&program).expect("it is well formed"), &mut found);
            assert_eq!(dtypes(&program), Ok(found), "{stem}");
        }
        let text = "a = input u64[2] iota\nb = input i64[2] iota\nc = cmplt a b\noutput c\n";
        let Ok(Case::Program(program)) = parse(text).map(|file| file.case) else {
            panic!("{text}")
        };
        assert!(dtypes(&program).is_ok_and(|dtypes| dtypes.contains(&DType::F16)));
    }

    #[test]
    fn arguments_of_methods_have_names() {
        let program = json_of("a = input f32[4] iota\nb = clamp a min=0.5 max=inf\noutput b\n");
        let number = |text: &str| json!({ "number": text });
        let args = &program["statements"][1]["args"];
        assert_eq!((&args["min"], &args["max"]), (&number("0.5"), &number("inf")));
    }

    #[test]
    fn movements_and_expressions_are_nested_lists() {
        let case = |text: &str| parse(text).expect("it is well formed").case;
        let Case::Views(views) = case("view [2,3]\nflip axes=[1]\npad [(0,1),(2,0)]\n") else {
            panic!("movements")
        };
        let expected = json!({
            "shape": [2, 3], "ops": [["flip", [1]], ["pad", [[0, 1], [2, 0]]]],
        });
        assert_eq!(views_to_json(&views), expected);
        let Case::Expr(expr) = case("var a 0..5\nexpr cdiv(-a, 3) < 2\n") else {
            panic!("an expression")
        };
        let quotient = json!(["cdiv", ["neg", ["var", 0]], 3]);
        assert_eq!(expr_to_json(&expr)["expr"], json!(["cmplt", quotient, 2]));
        assert_eq!(expr_to_json(&expr)["vars"][0]["max"], 5);
    }

    #[test]
    fn programs_that_are_not_well_formed_are_errors() {
        let src = ValueId(3);
        let statements = vec![Statement::Contiguous { src }];
        assert!(to_json(&Program { statements, outputs: vec![] }).is_err());
    }
}
