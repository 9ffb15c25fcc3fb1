//! The texts of a finding: a corpus file, a Rust test over the engine's tensors, and a script for
//! tinygrad or for a peer.

pub(crate) mod compare;
pub mod snap;

use gradiff_corpus::{
    Arg, Args, Arity, Array, BinaryOp, Case, CaseFile, DType, Index, Literal, Method, Operand,
    Program, Statement, TensorType, UnaryOp, ValueId, fill, float_value, format_element,
    literal_bits,
};

use gradiff_oracle::{Element, Expected};

use crate::backends::{methods, translate};
use crate::{Blame, Failure};

/// A failing program, minimised, and what is known about it.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The program.
    pub program: Program,
    /// Its failure.
    pub failure: Failure,
    /// The stage to blame, if one was found.
    pub blame: Option<Blame>,
    /// The command that prints the program as it was generated.
    pub origin: String,
}

impl Finding {
    /// A line that says how the program fails, on which backend, and what is to blame.
    pub fn story(&self) -> String {
        let Failure { backend, kind, detail } = &self.failure;
        let blame = self.blame.as_ref().map(|blame| {
            let rule = blame.rule.as_ref().map_or(String::new(), |culprit| format!(", {culprit}"));
            format!("; first wrong after stage {} (engine/{}){rule}", blame.stage, blame.crate_name)
        });
        let line = format!("{} on {backend}: {detail}{}", kind.name(), blame.unwrap_or_default());
        line.replace(['\n', '\r'], " ")
    }

    /// The corpus file.
    pub fn case_text(&self) -> String {
        let description = vec![self.story(), format!("from: {}", self.origin)];
        CaseFile { description, case: Case::Program(self.program.clone()), expects: Vec::new() }
            .to_string()
    }

    /// The name of its files: `fuzz-` and eight digits that depend on the program alone.
    pub fn stem(&self) -> String {
        stem(&self.program.to_string())
    }
}

/// The files of a finding, each as the ending of its name and its text: the case; a script for
/// tinygrad, or for the peer that is wrong; of the engine's findings also a Rust test.
pub fn files(finding: &Finding) -> Vec<(&'static str, String)> {
    let case = ("case", finding.case_text());
    match program_script(&finding.failure.backend, &finding.program) {
        None => vec![case, ("rs", rust_test(finding)), ("py", python_script(finding))],
        Some(Ok(script)) => vec![case, ("py", format!("# {}\n{script}", finding.story()))],
        // An engine of one's own need not write scripts.
        Some(Err(_)) => vec![case],
    }
}

/// The case as a script for a backend that is a peer, which prints what it got and what is
/// expected, and fails if they differ; `None` for other backends.
///
/// # Errors
/// The peer is not available, or writes no scripts; it is right, and the case is no program.
pub fn script(backend: &str, case: &Case) -> Option<Result<String, String>> {
    match case {
        Case::Program(program) => program_script(backend, program),
        case => crate::is_peer(backend).then(|| crate::checks::upstream::script(backend, case)),
    }
}

fn program_script(backend: &str, program: &Program) -> Option<Result<String, String>> {
    let expected = gradiff_oracle::evaluate(program).unwrap_or_default();
    let elements = expected.iter().flat_map(|output| {
        output.elements().map(|element| python_element(output.dtype, &element)).collect::<Vec<_>>()
    });
    crate::backends::peer::script(backend, program, &elements.collect::<Vec<String>>())
}

/// The expectation of an element, in Python: a number, a pair of bounds, or `None`.
fn python_element(dtype: DType, element: &Element) -> String {
    match element {
        Element::Exact(bits) if dtype.is_float() => python_float(float_value(dtype, *bits)),
        Element::Exact(bits) if dtype == DType::Bool => python_bool(*bits != 0).to_string(),
        Element::Exact(bits) => format_element(dtype, *bits),
        Element::Zero => "(0, 0)".to_string(),
        Element::Nan => python_float(f64::NAN),
        Element::Ball { center, radius, .. } => {
            let (low, high) = (center - radius, center + radius);
            format!("({}, {})", python_float(low), python_float(high))
        }
        Element::Unspecified(_) => "None".to_string(),
    }
}

fn python_bool(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}

fn python_float(value: f64) -> String {
    if value.is_finite() { format!("{value:?}") } else { format!("float(\"{value}\")") }
}

/// FNV-1a hash of a text: the same on every machine and with every compiler.
pub(crate) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// `fuzz-` and eight digits that depend on the text alone.
pub fn stem(text: &str) -> String {
    let hash = hash(text);
    format!("fuzz-{:08x}", (hash ^ (hash >> 32)) as u32)
}

/// A Rust test that runs the program with `gradiff::Tensor` and compares the outputs with those
/// that the oracle expects.
fn rust_test(finding: &Finding) -> String {
    let mut text = format!(
        "//! {}\n\nuse gradiff::{{DType, Engine, Scalar, Tensor}};\n\n#[test]\nfn {}() -> \
         Result<(), Box<dyn std::error::Error>> {{\n",
        finding.story(),
        finding.stem().replace('-', "_")
    );
    let device = finding.failure.backend.split(['/', ',']).next().unwrap_or("interp");
    text += &format!("    let engine = Engine::new({device:?})?;\n");
    let types = finding.program.typing().unwrap_or_default();
    for (number, statement) in finding.program.statements.iter().enumerate() {
        text += &format!("    let v{number} = {};\n", rust_statement(statement, &types));
        if let Statement::Realize { .. } = statement {
            text += &format!("    run(&engine, &[&v{number}])?;\n");
        }
    }
    let names: Vec<String> =
        finding.program.outputs.iter().map(|id| format!("&v{}", id.0)).collect();
    text += &format!("    run(&engine, &[{}])?;\n", names.join(", "));
    let expected = gradiff_oracle::evaluate(&finding.program).unwrap_or_default();
    for (expected, id) in expected.iter().zip(&finding.program.outputs) {
        text += &rust_expectation(expected, id.0);
    }
    text + "    Ok(())\n}\n" + RUN
}

/// Text of a helper that computes whole plans, as backends do, also tensors that `realize` would
/// take as computed.
const RUN: &str = "
fn run(engine: &Engine, tensors: &[&Tensor]) -> Result<(), gradiff::Error> {
    let mut plans = [engine.plan(tensors)?];
    engine.compile(&mut plans)?;
    engine.run(&plans[0])
}
";

/// Compares the elements of one output that are known to the bit; the others become comments.
fn rust_expectation(expected: &Expected, value: u32) -> String {
    let size = expected.dtype.size_bytes();
    let mut text = format!("    let found = v{value}.to_bytes()?;\n");
    text += "    let expected: &[(usize, u64)] = &[\n";
    for (index, element) in expected.elements().enumerate() {
        let words = element.describe(expected.dtype);
        match element {
            Element::Exact(bits) => text += &format!("        ({index}, {bits:#x}), // {words}\n"),
            _ => text += &format!("        // {index}: {words}\n"),
        }
    }
    text + &format!(
        "    ];\n    for (index, bits) in expected {{\n        let found = \
         &found[index * {size}..][..{size}];\n        assert_eq!(found, \
         &bits.to_le_bytes()[..{size}], \"element {{index}} of v{value}\");\n    }}\n"
    )
}

/// The outputs that the oracle expects, flat, one list for each.
fn expected_text(program: &Program) -> String {
    let expected = gradiff_oracle::evaluate(program).unwrap_or_default();
    let list = |output: &Expected| {
        let words = output.elements().map(|element| element.describe(output.dtype));
        format!("[{}]", words.collect::<Vec<_>>().join(", "))
    };
    expected.iter().map(list).collect::<Vec<_>>().join(" ")
}

fn rust_statement(statement: &Statement, types: &[TensorType]) -> String {
    let dtype = |dtype: DType| format!("DType::{dtype:?}");
    let list = |axes: &[usize]| format!("&{axes:?}");
    let pairs = |pairs: &[(usize, usize)]| format!("&{pairs:?}");
    let scalar = rust_scalar;
    let operand = |operand: &Operand| match operand {
        Operand::Value(ValueId(id)) => format!("&v{id}"),
        Operand::Literal(literal) => scalar(literal),
    };
    match statement {
        Statement::Input { dtype: of, shape, fill: data } => format!(
            "Tensor::from_bytes({}, {}, &{:?})?",
            dtype(*of),
            list(shape),
            fill(*of, shape, data).to_bytes()
        ),
        Statement::Const { dtype: of, shape, value } => {
            format!("Tensor::full({}, {}, {})?", dtype(*of), list(shape), scalar(value))
        }
        Statement::Arange { dtype: of, start, step, count } => {
            format!("Tensor::arange({}, {start}, {step}, {count})?", dtype(*of))
        }
        Statement::Unary { op, src } => format!("v{}.{}()?", src.0, op.name()),
        Statement::Binary { op, srcs: [x, y] } => {
            let first = match x {
                Operand::Value(ValueId(id)) => format!("v{id}"),
                Operand::Literal(literal) => {
                    let of = dtype(common(&[*x, *y], types));
                    format!("Tensor::scalar({of}, {})?", scalar(literal))
                }
            };
            format!("{first}.{}({})?", rust_method(*op), operand(y))
        }
        Statement::Where { srcs: [c, x, y] } => {
            format!("Tensor::select({}, {}, {})?", operand(c), operand(x), operand(y))
        }
        Statement::MulAcc { srcs } => {
            let [x, y, z] = srcs.map(|src| operand(&src));
            format!("Tensor::multiply_accumulate({x}, {y}, {z})?")
        }
        Statement::Cast { src, dtype: to } => format!("v{}.cast({})?", src.0, dtype(*to)),
        Statement::Bitcast { src, dtype: to } => format!("v{}.bitcast({})?", src.0, dtype(*to)),
        Statement::Reduce { op, src, axes } => {
            format!("v{}.{}(gradiff::keepdim({}))?", src.0, op.name(), list(axes))
        }
        Statement::Reshape { src, shape } => format!("v{}.reshape({})?", src.0, list(shape)),
        Statement::Permute { src, axes } => format!("v{}.permute({})?", src.0, list(axes)),
        Statement::Expand { src, shape } => format!("v{}.expand({})?", src.0, list(shape)),
        Statement::Pad { src, pads, value } => {
            format!("v{}.pad({}, {})?", src.0, pairs(pads), scalar(value))
        }
        Statement::Shrink { src, ranges } => format!("v{}.shrink({})?", src.0, pairs(ranges)),
        Statement::Flip { src, axes } => format!("v{}.flip({})?", src.0, list(axes)),
        Statement::Cat { srcs, axis } => {
            let srcs: Vec<String> = srcs.iter().map(|src| format!("&v{}", src.0)).collect();
            format!("Tensor::cat(&[{}], {axis})?", srcs.join(", "))
        }
        Statement::Gather { src, axis, index } => {
            format!("v{}.gather({axis}, &v{})?", src.0, index.0)
        }
        Statement::Method { method, srcs, args } => rust_call(*method, srcs, args, types),
        Statement::Contiguous { src } => format!("v{}.contiguous()", src.0),
        Statement::Realize { src } => format!("v{}.clone()", src.0),
        Statement::Detach { src } => format!("v{}.detach()", src.0),
        Statement::Gradient { of, wrt } => {
            format!("v{}.sum(..)?.gradient(&[&v{}])?.remove(0)", of.0, wrt.0)
        }
    }
}

/// The call of a method: sources, then arguments, in the order of the table.
fn rust_call(method: Method, srcs: &[ValueId], args: &[Arg], types: &[TensorType]) -> String {
    let row = method.row();
    let mut list: Vec<String> = match row.arity {
        Arity::Exactly(_) => srcs.iter().skip(1).map(|src| format!("&v{}", src.0)).collect(),
        Arity::Between(_, limit) => {
            let srcs = (1..limit).map(|number| srcs.get(number));
            let name = |src: &ValueId| format!("&v{}", src.0);
            srcs.map(|src| src.map_or("None".to_string(), name)).collect()
        }
        Arity::List => {
            let srcs: Vec<String> = srcs.iter().map(|src| format!("&v{}", src.0)).collect();
            vec![format!("&[{}]", srcs.join(", "))]
        }
    };
    let mut is_kept = false;
    let mut options = rust_options(method).map(str::to_string);
    for ((name, _), arg) in row.parameters.iter().zip(args) {
        if let Some(options) = &mut options {
            *options = match arg {
                Arg::Ints(values) if options.ends_with("::new") => {
                    format!("{options}(&{values:?})")
                }
                Arg::Ints(values) => format!("{options}.{name}(&{values:?})"),
                Arg::Int(value) => format!("{options}.{name}({value})"),
                Arg::Flag(value) => format!("{options}.{name}({value})"),
                Arg::Number(_) | Arg::DType(_) | Arg::Word(_) | Arg::Indices(_) => {
                    format!("{options}.{name}({arg:?})")
                }
            };
            continue;
        }
        match arg {
            Arg::Flag(keepdim) if *name == "keepdim" => is_kept = *keepdim,
            Arg::Int(value) if method == Method::NllLoss => {
                let classes = translate::dtype(types[srcs[1].0 as usize].dtype);
                list.push(format!("{:?}", methods::ignored_class(*value, classes)));
            }
            Arg::Int(value) => list.push(value.to_string()),
            Arg::Ints(values) => list.push(format!("&{values:?}")),
            Arg::Flag(value) => list.push(value.to_string()),
            Arg::Number(value) if *name == "label_smoothing" => list.push(rust_real(value)),
            Arg::Number(value) => list.push(rust_scalar(value)),
            Arg::DType(dtype) => list.push(format!("DType::{dtype:?}")),
            Arg::Word(word) => list.push(rust_variant(name, word)),
            // After the value that `set` assigns.
            Arg::Indices(indices) => {
                let named = srcs.len() - indices.iter().filter(|i| **i == Index::Source).count();
                list = vec![rust_indices(indices, &srcs[named..])];
                list.extend(srcs[1..named].iter().map(|src| format!("&v{}", src.0)));
            }
        }
    }
    if is_kept {
        list[0] = format!("gradiff::keepdim({})", list[0]);
    }
    list.extend(options.map(|options| format!("&{options}")));
    let mut part = String::new();
    match method {
        Method::Slice | Method::PadReflect | Method::PadReplicate | Method::PadCircular => {
            list = vec![tuples(args)];
        }
        Method::AssignSlice => list = vec![tuples(args), list.remove(0)],
        Method::Einsum => list = vec![quoted_formula(srcs, args, types), list.swap_remove(0)],
        Method::ScaledDotProductAttention => {
            let srcs = (1..4).map(|number| srcs.get(number).map(|src| format!("&v{}", src.0)));
            let srcs = srcs.map(|src| src.unwrap_or("None".to_string()));
            let flag = list.pop().expect("the flag is the last argument");
            list = srcs.chain(["0.0".to_string(), flag]).collect();
        }
        Method::Split | Method::Chunk | Method::Meshgrid => {
            let number = list.pop().expect("the number of a part is the last argument");
            part = format!("[{number}].clone()");
        }
        Method::Topk => part = ".0".to_string(),
        Method::TopkIndices | Method::MaxPool2dIndices => part = ".1".to_string(),
        Method::QrQ => part = ".0".to_string(),
        Method::QrR => part = ".1".to_string(),
        Method::NewtonSchulz => {
            let factor = |number| rust_real(&Args(args).number(number));
            let factors = format!("&[{}, {}, {}]", factor(1), factor(2), factor(3));
            list = vec![Args(args).int(0).to_string(), factors, factor(4)];
        }
        Method::Rearrange => {
            let (formula, sizes) = crate::backends::methods::rearrangement(Args(args));
            list = vec![format!("{formula:?}"), format!("&{sizes:?}")];
        }
        _ => {}
    }
    let receiver = match (row.arity, srcs) {
        // Later statements have the tensor as it was.
        (_, [first, ..]) if method.is_in_place() => format!("v{}.detach().", first.0),
        (_, [first, ..]) if matches!(method, Method::Get | Method::ScaledDotProductAttention) => {
            format!("v{}.", first.0)
        }
        (Arity::Exactly(_) | Arity::Between(..), [first, ..]) => format!("v{}.", first.0),
        _ => "Tensor::".to_string(),
    };
    format!("{receiver}{}({})?{part}", rust_name(method), list.join(", "))
}

/// The formula of `einsum`, as a string literal.
fn quoted_formula(srcs: &[ValueId], args: &[Arg], types: &[TensorType]) -> String {
    let ranks = srcs.iter().map(|src| types[src.0 as usize].shape.len());
    let args = Args(args);
    format!("{:?}", crate::backends::methods::formula(ranks, args.ints(0), args.ints(1)))
}

/// Indices as a vector, with the values that are sources.
fn rust_indices(indices: &[Index], sources: &[ValueId]) -> String {
    let mut sources = sources.iter();
    let index = |index: &Index| match index {
        Index::Position(position) => format!("gradiff::Index::from({position})"),
        Index::Slice { .. } => format!("gradiff::Index::{index:?}"),
        Index::NewAxis | Index::Ellipsis => format!("gradiff::Index::{index:?}"),
        Index::Source => {
            let source = sources.next().map_or(0, |source| source.0);
            format!("gradiff::Index::from(&v{source})")
        }
    };
    format!("vec![{}]", indices.iter().map(index).collect::<Vec<_>>().join(", "))
}

/// The indices and the value of an assignment to a part of a tensor.
fn python_assignment(statement: &Statement) -> Option<(String, ValueId)> {
    let Statement::Method { method, srcs, args } = statement else { return None };
    let indices = match method {
        Method::AssignSlice => python_indices(&slices(args), &[]),
        Method::Set => python_indices(Args(args).indices(0), &srcs[2..]),
        _ => return None,
    };
    Some((indices, srcs[1]))
}

/// Starts, stops and steps as indices; all elements without any.
fn slices(args: &[Arg]) -> Vec<Index> {
    let [starts, stops, steps] = [0, 1, 2].map(|number| Args(args).ints(number));
    let ends = starts.iter().zip(stops).zip(steps);
    let slice = |((start, stop), step): ((&i64, &i64), &i64)| Index::Slice {
        start: Some(*start),
        stop: Some(*stop),
        step: *step,
    };
    let slices: Vec<Index> = ends.map(slice).collect();
    if slices.is_empty() { vec![Index::Ellipsis] } else { slices }
}

/// Indices between the brackets of Python; all elements without any.
fn python_indices(indices: &[Index], sources: &[ValueId]) -> String {
    let mut sources = sources.iter();
    let index = |index: &Index| match index {
        Index::NewAxis => "None".to_string(),
        Index::Source => format!("v{}", sources.next().map_or(0, |source| source.0)),
        index => index.to_string(),
    };
    match indices {
        [] => "...".to_string(),
        _ => indices.iter().map(index).collect::<Vec<_>>().join(", "),
    }
}

/// The variant of an enum of the engine that a word means.
fn rust_variant(parameter: &str, word: &str) -> String {
    let kind = match parameter {
        "reduction" => "Reduction",
        "mode" => "Interpolation",
        "indexing" => "Indexing",
        "function" => "Keccak",
        _ => "Scattered",
    };
    let capitalised = |part: &str| part[..1].to_uppercase() + &part[1..];
    let mut variant = String::new();
    for part in word.split('_') {
        let are_numbers = variant.ends_with(char::is_numeric) && part.starts_with(char::is_numeric);
        variant.push_str(if are_numbers { "_" } else { "" });
        variant.push_str(&capitalised(part));
    }
    format!("gradiff::{kind}::{variant}")
}

/// Lists of one length as a list of tuples.
fn tuples(args: &[Arg]) -> String {
    let lists: Vec<&[i64]> = (0..args.len()).map(|number| Args(args).ints(number)).collect();
    let tuple = |at: usize| {
        let parts: Vec<String> = lists.iter().map(|list| list[at].to_string()).collect();
        format!("({})", parts.join(", "))
    };
    let count = lists.first().map_or(0, |list| list.len());
    format!("&[{}]", (0..count).map(tuple).collect::<Vec<_>>().join(", "))
}

/// The start of the value that holds the options of a method, whose setters are the parameters.
fn rust_options(method: Method) -> Option<&'static str> {
    match method {
        Method::Conv2d | Method::ConvTranspose2d => Some("gradiff::Conv::default()"),
        Method::MaxPool2d | Method::MaxPool2dIndices | Method::AvgPool2d => {
            Some("gradiff::Pool::new")
        }
        _ => None,
    }
}

/// The name of a method of `Tensor`, which that of an operation of programs may forbid there.
fn rust_name(method: Method) -> &'static str {
    match method {
        Method::Min => "min",
        Method::TopkIndices => "topk",
        Method::QrQ | Method::QrR => "qr",
        Method::MaxPool2dIndices => "max_pool2d_with_indices",
        _ => method.row().name,
    }
}

fn rust_real(literal: &Literal) -> String {
    match literal {
        Literal::Bool(value) => u8::from(*value).to_string(),
        Literal::Int(value) => format!("{value}.0"),
        Literal::Float(value) => format!("{value:?}"),
    }
}

fn rust_scalar(literal: &Literal) -> String {
    match literal {
        Literal::Bool(value) => format!("Scalar::Bool({value})"),
        Literal::Int(value) => format!("Scalar::Int({value})"),
        Literal::Float(value) => {
            format!("Scalar::Float(f64::from_bits({:#x}))", value.to_bits())
        }
    }
}

/// Returns the method of `Tensor` for an op; `max` and `min` are reductions there.
fn rust_method(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Max => "maximum",
        BinaryOp::Min => "minimum",
        _ => op.name(),
    }
}

/// The promoted dtype of the values among the operands, which literals take.
fn common(srcs: &[Operand], types: &[TensorType]) -> DType {
    let values = srcs.iter().filter_map(|src| match src {
        Operand::Value(id) => Some(types[id.0 as usize].dtype),
        Operand::Literal(_) => None,
    });
    values.reduce(gradiff_corpus::promote).unwrap_or(DType::F32)
}

/// A script for tinygrad 0.10 that runs the program and prints its outputs, followed by the
/// expected ones. Ops that tinygrad does not have are composed of those that it has.
fn python_script(finding: &Finding) -> String {
    let mut text = format!(
        "# {}\n# Run beside a tinygrad checkout: PYTHONPATH=. python3 {}.py\n\
         from tinygrad import Tensor, dtypes\n\n\
         def bits(dtype, size, *elements):\n    \
         data = b\"\".join(e.to_bytes(size, \"little\") for e in elements)\n    \
         return Tensor(data, dtype=dtype)\n\n",
        finding.story(),
        finding.stem()
    );
    let types = finding.program.typing().unwrap_or_default();
    for (number, statement) in finding.program.statements.iter().enumerate() {
        text += &format!("v{number} = {}\n", python_statement(statement, &types));
        if let Some((indices, value)) = python_assignment(statement) {
            text += &format!("v{number}[{indices}] = v{}\n", value.0);
        }
    }
    for output in &finding.program.outputs {
        text += &format!("print(v{}.tolist())\n", output.0);
    }
    text + &format!("# expected: {}\n", expected_text(&finding.program).replace('\n', " "))
}

fn python_dtype(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "dtypes.bool",
        DType::I8 => "dtypes.int8",
        DType::U8 => "dtypes.uint8",
        DType::I16 => "dtypes.int16",
        DType::U16 => "dtypes.uint16",
        DType::I32 => "dtypes.int32",
        DType::U32 => "dtypes.uint32",
        DType::I64 => "dtypes.int64",
        DType::U64 => "dtypes.uint64",
        DType::F16 => "dtypes.float16",
        DType::BF16 => "dtypes.bfloat16",
        DType::F32 => "dtypes.float32",
        DType::F64 => "dtypes.float64",
    }
}

fn python_array(array: &Array) -> String {
    let elements: Vec<String> = array.bits.iter().map(u64::to_string).collect();
    format!(
        "bits({}, {}, {}).reshape({:?})",
        python_dtype(array.dtype),
        array.dtype.size_bytes(),
        elements.join(", "),
        array.shape
    )
}

fn python_literal(dtype: DType, literal: &Literal) -> String {
    let bits = literal_bits(dtype, literal).unwrap_or(0);
    let text = format_element(dtype, bits);
    let value = match text.as_str() {
        "true" => "True".to_string(),
        "false" => "False".to_string(),
        word if word.parse::<f64>().is_ok_and(f64::is_finite) => text,
        word => format!("float({word:?})"),
    };
    format!("Tensor({value}, dtype={})", python_dtype(dtype))
}

fn python_statement(statement: &Statement, types: &[TensorType]) -> String {
    let operand = |operand: &Operand, dtype: DType| match operand {
        Operand::Value(ValueId(id)) => format!("v{id}"),
        Operand::Literal(literal) => python_literal(dtype, literal),
    };
    match statement {
        Statement::Input { dtype, shape, fill: data } => python_array(&fill(*dtype, shape, data)),
        Statement::Const { dtype, shape, value } => {
            format!("{}.expand({shape:?})", python_literal(*dtype, value))
        }
        Statement::Arange { dtype, start, step, count } => format!(
            "(Tensor.arange({count}, dtype=dtypes.int64) * {step} + {start}).cast({})",
            python_dtype(*dtype)
        ),
        Statement::Unary { op, src } => python_unary(*op, src.0),
        Statement::Binary { op, srcs } => {
            let dtype = common(srcs, types);
            python_binary(*op, &operand(&srcs[0], dtype), &operand(&srcs[1], dtype))
        }
        Statement::Where { srcs: [c, x, y] } => {
            let dtype = common(&[*x, *y], types);
            let condition = operand(c, DType::Bool);
            format!("{condition}.where({}, {})", operand(x, dtype), operand(y, dtype))
        }
        Statement::MulAcc { srcs } => {
            let dtype = common(srcs, types);
            let [x, y, z] = srcs.map(|src| operand(&src, dtype));
            format!("{x} * {y} + {z}")
        }
        Statement::Cast { src, dtype } => format!("v{}.cast({})", src.0, python_dtype(*dtype)),
        Statement::Bitcast { src, dtype } => {
            format!("v{}.bitcast({})", src.0, python_dtype(*dtype))
        }
        Statement::Reduce { op, src, axes } => {
            format!("v{}.{}(axis={axes:?}, keepdim=True)", src.0, op.name())
        }
        Statement::Reshape { src, shape } => format!("v{}.reshape({shape:?})", src.0),
        Statement::Permute { src, axes } => format!("v{}.permute({axes:?})", src.0),
        Statement::Expand { src, shape } => format!("v{}.expand({shape:?})", src.0),
        Statement::Pad { src, pads, value } => {
            let text = python_literal(types[src.0 as usize].dtype, value);
            format!("v{}.pad({pads:?}, value={text}.item())", src.0)
        }
        Statement::Shrink { src, ranges } => format!("v{}.shrink({ranges:?})", src.0),
        Statement::Flip { src, axes } => format!("v{}.flip({axes:?})", src.0),
        Statement::Cat { srcs, axis } => {
            let srcs: Vec<String> = srcs.iter().map(|src| format!("v{}", src.0)).collect();
            format!("Tensor.cat({}, dim={axis})", srcs.join(", "))
        }
        Statement::Gather { src, axis, index } => {
            format!("v{}.gather({axis}, v{})", src.0, index.0)
        }
        Statement::Method { method, srcs, args } => python_call(*method, srcs, args, types),
        Statement::Contiguous { src } => format!("v{}.contiguous()", src.0),
        Statement::Realize { src } => format!("v{}.realize()", src.0),
        Statement::Detach { src } => format!("v{}.detach()", src.0),
        Statement::Gradient { of, wrt } => format!("v{}.sum().gradient(v{})[0]", of.0, wrt.0),
    }
}

/// The call of the method of the same name, its arguments by their names.
fn python_call(method: Method, srcs: &[ValueId], args: &[Arg], types: &[TensorType]) -> String {
    let row = method.row();
    match method {
        Method::Get => {
            return format!(
                "v{}[{}]",
                srcs[0].0,
                python_indices(Args(args).indices(0), &srcs[1..])
            );
        }
        Method::Slice => return format!("v{}[{}]", srcs[0].0, python_indices(&slices(args), &[])),
        // Later statements have the tensor as it was; the next line assigns to the copy.
        Method::AssignSlice | Method::Set => return format!("v{}.clone()", srcs[0].0),
        _ => {}
    }
    let mut list: Vec<String> = srcs.iter().skip(1).map(|src| format!("v{}", src.0)).collect();
    for ((name, _), arg) in row.parameters.iter().zip(args) {
        list.push(match arg {
            Arg::Int(value) => format!("{name}={value}"),
            Arg::Ints(values) => format!("{name}={values:?}"),
            Arg::Flag(value) => format!("{name}={}", if *value { "True" } else { "False" }),
            Arg::Number(value) => format!("{name}={value}"),
            Arg::DType(dtype) => format!("{name}={}", python_dtype(*dtype)),
            Arg::Word(word) => format!("{name}={:?}", word.replace('_', "-")),
            Arg::Indices(_) => unreachable!("indices are the only argument"),
        });
    }
    let receiver = srcs.first().map_or("Tensor".to_string(), |first| format!("v{}", first.0));
    let mut part = String::new();
    match method {
        Method::Einsum => {
            let formula = quoted_formula(srcs, args, types);
            let srcs: Vec<String> = srcs.iter().map(|src| format!("v{}", src.0)).collect();
            return format!("Tensor.einsum({formula}, {})", srcs.join(", "));
        }
        Method::Interpolate => list[0] = list[0].replacen("sizes", "size", 1),
        Method::Meshgrid => {
            list.pop();
            part = format!("[{}]", Args(args).int(1));
        }
        _ => {}
    }
    format!("{receiver}.{}({}){part}", rust_name(method), list.join(", "))
}

fn python_unary(op: UnaryOp, src: u32) -> String {
    match op {
        UnaryOp::Recip => format!("v{src}.reciprocal()"),
        UnaryOp::Not => format!("~v{src}"),
        _ => format!("v{src}.{}()", op.name()),
    }
}

fn python_binary(op: BinaryOp, x: &str, y: &str) -> String {
    let infix = |sign: &str| format!("{x} {sign} {y}");
    match op {
        BinaryOp::Add => infix("+"),
        BinaryOp::Sub => infix("-"),
        BinaryOp::Mul => infix("*"),
        BinaryOp::Div => infix("/"),
        BinaryOp::CDiv => format!("{x}.idiv({y})"),
        BinaryOp::CMod => format!("{x} - {x}.idiv({y}) * {y}"),
        BinaryOp::FloorDiv => infix("//"),
        BinaryOp::FloorMod => infix("%"),
        BinaryOp::Max => format!("{x}.maximum({y})"),
        BinaryOp::Min => format!("{x}.minimum({y})"),
        BinaryOp::Pow => infix("**"),
        BinaryOp::CmpLt => infix("<"),
        BinaryOp::CmpNe => infix("!="),
        BinaryOp::CmpEq => infix("=="),
        BinaryOp::And => infix("&"),
        BinaryOp::Or => infix("|"),
        BinaryOp::Xor => infix("^"),
        BinaryOp::Shl => infix("<<"),
        BinaryOp::Shr => infix(">>"),
        BinaryOp::Threefry => format!("{x}.threefry({y})"),
    }
}
