//! Writes a finding as a Rust test: an engine with the options of the backend, the program as calls
//! of `gradiff::Tensor`, and the elements that the oracle expects, exactly or within a bound.

use gradiff::graph::Constant;
use gradiff_corpus::{
    Arg, Args, Arity, BinaryOp, DType, Index, Literal, Method, Operand, Statement, TensorType,
    ValueId, fill,
};
use gradiff_oracle::{Element, Expected};

use super::Finding;
use crate::backends::{engine, methods, translate};
use crate::judge::agree::expectation;
use crate::judge::{requested, strict};
use crate::{Failure, Kind};

/// Parts of the reports of failures that no output shows, since its elements are right.
const NOT_SHOWN: [&str; 4] = [requested::SAID, strict::UNROUNDED, engine::ENDLESS, engine::CHANGED];

/// A Rust test that runs the program with `gradiff::Tensor` and compares the outputs with those
/// that the oracle expects. `None` if no engine runs programs as the backend does, or the outputs
/// do not show the failure.
pub(super) fn rust_test(finding: &Finding) -> Option<String> {
    let Failure { kind, detail, .. } = &finding.failure;
    if *kind == Kind::Refused && NOT_SHOWN.iter().any(|part| detail.contains(part)) {
        return None;
    }
    let backend = finding.failure.backend.split(',').next().unwrap_or_default();
    let engine = crate::backends::engine::engine_text(backend)?;
    let mut text = format!(
        "//! {}\n\nuse gradiff::{{DType, Engine, Scalar, Tensor}};\n\n#[test]\nfn {}() -> \
         Result<(), Box<dyn std::error::Error>> {{\n",
        finding.description(),
        finding.stem().replace('-', "_")
    );
    text += &engine;
    let targets = translate::targets(&finding.program);
    let types = finding.program.typing().unwrap_or_default();
    for (number, statement) in finding.program.statements.iter().enumerate() {
        text += &format!("    let v{number} = {};\n", expression(statement, &types));
        if targets.contains(&ValueId(number as u32)) {
            let target = format!("v{number}.reshape(v{number}.shape())?.requires_grad_(true)?");
            text += &format!("    let v{number} = {target};\n");
        }
        if let Statement::Realize { .. } = statement {
            text += &format!("    run(&engine, &[&v{number}])?;\n");
        }
    }
    let names: Vec<String> =
        finding.program.outputs.iter().map(|id| format!("&v{}", id.0)).collect();
    text += &format!("    run(&engine, &[{}])?;\n", names.join(", "));
    // As the backend is judged: in strict mode a sum may have a single accumulator, and has bits.
    let (is_strict, has_zero_signs) = crate::backends::engine::promises(backend)?;
    let in_order = || crate::catch(|| gradiff_oracle::evaluate_in_order(&finding.program).ok());
    let expected = match is_strict {
        true => in_order().ok().flatten(),
        false => expectation(&finding.program).ok(),
    };
    let expected = expected.unwrap_or_default();
    let reference = is_strict.then(|| strict::Reference::new(&finding.program)).flatten();
    let comparisons = expected.iter().zip(&finding.program.outputs).enumerate();
    let comparisons: String = comparisons
        .map(|(output, (expected, id))| {
            let bits = reference.as_ref().map_or(&[][..], |reference| reference.elements(output));
            comparison(expected, bits, id.0, has_zero_signs)
        })
        .collect();
    let helper = if comparisons.contains(" = number(") { NUMBER } else { "" };
    Some(text + &comparisons + "    Ok(())\n}\n" + RUN + helper)
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

/// Text of a helper that reads an element of a tensor of floats.
const NUMBER: &str = "
fn number(tensor: &Tensor, bytes: &[u8], index: usize) -> f64 {
    let size = tensor.dtype().size_bytes();
    let bytes = bytes[index * size..][..size].iter().rev();
    let bits = bytes.fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
    let element = gradiff::graph::Constant::from_bits(tensor.dtype(), bits);
    element.to_float().expect(\"a float\")
}
";

/// The element that strict mode gives, in place of several that the oracle allows.
fn in_mode(element: Element, bits: Option<Constant>) -> Element {
    match (element, bits) {
        (Element::Exact(_), _) | (_, None) => element,
        (_, Some(bits)) if bits.to_float().is_some_and(f64::is_nan) => Element::Nan,
        (_, Some(bits)) => Element::Exact(bits.bits()),
    }
}

/// Compares the elements of one output: bits, numbers within a bound, and NaN. Those that are
/// unspecified become comments. `bits` has the elements that strict mode gives.
fn comparison(
    expected: &Expected,
    bits: &[Option<Constant>],
    value: u32,
    has_zero_signs: bool,
) -> String {
    let size = expected.dtype.size_bytes();
    let sign_bit = 1u64 << (8 * size - 1);
    let is_zero = |bits: u64| expected.dtype.is_float() && bits & !sign_bit == 0;
    let (mut exact, mut balls, mut nans) = (String::new(), String::new(), Vec::new());
    for (index, element) in expected.elements().enumerate() {
        let element = in_mode(element, bits.get(index).copied().flatten());
        let words = element.describe(expected.dtype);
        let ball = |center: f64, low: f64, radius: f64, sign: Option<bool>| {
            format!("        ({index}, {center:?}, {low:?}, {radius:?}, {sign:?}), // {words}\n")
        };
        match element {
            Element::Exact(bits) if !has_zero_signs && is_zero(bits) => {
                balls += &ball(0.0, 0.0, 0.0, None);
            }
            Element::Exact(bits) => exact += &format!("        ({index}, {bits:#x}), // {words}\n"),
            Element::Unspecified(_) => exact += &format!("        // {index}: {words}\n"),
            Element::Zero => balls += &ball(0.0, 0.0, 0.0, None),
            Element::Ball { center, low, radius, zero_sign } => {
                balls += &ball(center, low, radius, zero_sign.filter(|_| has_zero_signs));
            }
            Element::Nan => nans.push(index),
        }
    }
    let mut text = format!(
        "    let found = v{value}.to_bytes()?;\n    let expected: &[(usize, u64)] = \
         &[\n{exact}    ];\n    for (index, bits) in expected {{\n        let found = \
         &found[index * {size}..][..{size}];\n        assert_eq!(found, \
         &bits.to_le_bytes()[..{size}], \"element {{index}} of v{value}\");\n    }}\n"
    );
    let read = format!("        let number = number(&v{value}, &found, ");
    let message_inside = format!("\"element {{index}} of v{value} is {{number}}\");\n");
    let message = format!("{message_inside}    }}\n");
    if !balls.is_empty() {
        text += &format!(
            "    // Index, center and its low part, radius, the sign of a zero.\n    let balls: \
             &[(usize, f64, f64, f64, Option<bool>)] = &[\n{balls}    ];\n    for (index, \
             center, low, radius, sign) in balls {{\n{read}*index);\n        let has_sign = \
             sign.is_none_or(|sign| number.is_sign_negative() == sign);\n        \
             assert!(number != 0.0 || has_sign, {message_inside}        \
             assert!(((number - center) - low).abs() <= *radius, {message}"
        );
    }
    if !nans.is_empty() {
        text += &format!(
            "    for index in {nans:?} {{\n{read}index);\n        assert!(number.is_nan(), \
             {message}"
        );
    }
    text
}

fn expression(statement: &Statement, types: &[TensorType]) -> String {
    let dtype = |dtype: DType| format!("DType::{dtype:?}");
    let list = |axes: &[usize]| format!("&{axes:?}");
    let pairs = |pairs: &[(usize, usize)]| format!("&{pairs:?}");
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
            format!("{first}.{}({})?", binary_method(*op), operand(y))
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
        Statement::Method { method, srcs, args } => call(*method, srcs, args, types),
        Statement::Contiguous { src } => format!("v{}.contiguous()", src.0),
        Statement::Realize { src } => format!("v{}.clone()", src.0),
        Statement::Detach { src } => format!("v{}.detach()", src.0),
        Statement::Gradient { of, wrt } => {
            let like = |id: &ValueId| format!("(v{0}.dtype(), v{0}.shape())", id.0);
            let weights = format!("&Tensor::ones{}?", like(of));
            let found = format!("v{}.gradients_if_used({weights}, &[&v{}])?", of.0, wrt.0);
            format!("{found}.remove(0).map_or_else(|| Tensor::zeros{}, Ok)?", like(wrt))
        }
    }
}

/// The call of a method: sources, then arguments, in the order of the table.
fn call(method: Method, srcs: &[ValueId], args: &[Arg], types: &[TensorType]) -> String {
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
    let mut options = default_options(method).map(str::to_string);
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
            Arg::Number(value) if *name == "label_smoothing" => list.push(float(value)),
            Arg::Number(value) => list.push(scalar(value)),
            Arg::DType(dtype) => list.push(format!("DType::{dtype:?}")),
            Arg::Word(word) => list.push(enum_variant(name, word)),
            // After the value that `set` assigns.
            Arg::Indices(indices) => {
                let named = srcs.len() - indices.iter().filter(|i| **i == Index::Source).count();
                list = vec![index_list(indices, &srcs[named..])];
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
        Method::SvdS => {
            (list, part) = (vec!["false".to_string()], ".1".to_string());
        }
        Method::SvdProduct | Method::SvdU | Method::SvdVt => {
            return svd(method, srcs[0], args, types);
        }
        Method::NewtonSchulz => {
            let factor = |number| float(&Args(args).number(number));
            let factors = format!("&[{}, {}, {}]", factor(1), factor(2), factor(3));
            list = vec![Args(args).int(0).to_string(), factors, factor(4)];
        }
        Method::Rearrange => {
            // The statement is legal.
            let rearranged = crate::backends::methods::rearrangement(Args(args), &|_, _| true);
            let (formula, sizes) = rearranged;
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
    format!("{receiver}{}({})?{part}", method_name(method), list.join(", "))
}

/// The formula of `einsum`, as a string literal.
fn quoted_formula(srcs: &[ValueId], args: &[Arg], types: &[TensorType]) -> String {
    let ranks = srcs.iter().map(|src| types[src.0 as usize].shape.len());
    let args = Args(args);
    format!("{:?}", crate::backends::methods::formula(ranks, args.ints(0), args.ints(1)))
}

/// Indices as a vector, with the values that are sources.
fn index_list(indices: &[Index], sources: &[ValueId]) -> String {
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

/// The variant of an enum of the engine that a word means.
fn enum_variant(parameter: &str, word: &str) -> String {
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
fn default_options(method: Method) -> Option<&'static str> {
    match method {
        Method::Conv2d | Method::ConvTranspose2d => Some("gradiff::Conv::default()"),
        Method::MaxPool2d | Method::MaxPool2dIndices | Method::AvgPool2d => {
            Some("gradiff::Pool::new")
        }
        _ => None,
    }
}

/// The products of the factors of matrices.
fn svd(method: Method, src: ValueId, args: &[Arg], types: &[TensorType]) -> String {
    let factors = format!("v{}.svd({})?", src.0, Args(args).flag(0));
    let shape = &types[src.0 as usize].shape;
    let (outer, sizes) = shape.split_at(shape.len() - 2);
    let count = sizes[0].min(sizes[1]);
    let first = |sizes: [usize; 2]| {
        let ranges = outer.iter().chain(&sizes).map(|size| (0, *size));
        format!("shrink(&{:?})?", ranges.collect::<Vec<(usize, usize)>>())
    };
    let (names, product) = match method {
        Method::SvdU => ("u, _, _", "u.transpose(-2, -1)?.matmul(&u)?".to_string()),
        Method::SvdVt => ("_, _, vt", "vt.matmul(&vt.transpose(-2, -1)?)?".to_string()),
        _ => {
            let (columns, rows) = (first([sizes[0], count]), first([count, sizes[1]]));
            let columns = format!("u.{columns}.mul(&s.unsqueeze(-2)?)?");
            ("u, s, vt", format!("{columns}.matmul(&vt.{rows})?"))
        }
    };
    format!("{{ let ({names}) = {factors}; {product} }}")
}

/// The name of a method of `Tensor`, which that of an operation of programs may forbid there.
fn method_name(method: Method) -> &'static str {
    match method {
        Method::Min => "min",
        Method::TopkIndices => "topk",
        Method::QrQ | Method::QrR => "qr",
        Method::SvdS => "svd",
        Method::MaxPool2dIndices => "max_pool2d_with_indices",
        _ => method.row().name,
    }
}

fn float(literal: &Literal) -> String {
    match literal {
        Literal::Bool(value) => u8::from(*value).to_string(),
        Literal::Int(value) => format!("{value}.0"),
        Literal::Float(value) => format!("{value:?}"),
    }
}

fn scalar(literal: &Literal) -> String {
    match literal {
        Literal::Bool(value) => format!("Scalar::Bool({value})"),
        Literal::Int(value) => format!("Scalar::Int({value})"),
        Literal::Float(value) => {
            format!("Scalar::Float(f64::from_bits({:#x}))", value.to_bits())
        }
    }
}

/// Returns the method of `Tensor` for an op; `max` and `min` are reductions there.
fn binary_method(op: BinaryOp) -> &'static str {
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

#[cfg(test)]
mod tests {
    use gradiff_corpus::Case;

    use super::*;
    use crate::BACKENDS;

    /// The Rust test of a mismatch of this program on this backend.
    fn of(text: &str, backend: &str) -> Option<String> {
        let Ok(Case::Program(program)) = gradiff_corpus::parse(text).map(|file| file.case) else {
            panic!("{text}");
        };
        let (backend, detail) = (backend.to_string(), "element 0".to_string());
        let failure = Failure { backend, kind: Kind::Mismatch, detail };
        rust_test(&Finding { program, failure, blame: None, origin: String::new() })
    }

    #[test]
    fn tests_of_strict_mode_have_its_bits() {
        // 2^24 + 1 + 1 is 2^24 where it is added in order.
        let program = "a = input f32[3] [16777216.0, 1.0, 1.0]\nb = sum a axes=[0]\n\
                       c = exp2 a\nd = recip c\noutput b, d\n";
        let text = of(program, "jit/strict").expect("a test");
        assert!(text.contains("(0, 0x4b800000), // "), "{text}");
        // Functions are as exact as the device has them.
        assert!(text.contains(" within "), "{text}");
        let text = of(program, "jit").expect("a test");
        assert!(!text.contains("(0, 0x4b800000), // "), "{text}");
    }

    #[test]
    fn failures_that_outputs_do_not_show_have_no_test() {
        let of = |detail: &str| {
            let text = "a = input i32[2] iota\noutput a\n";
            let Ok(Case::Program(program)) = gradiff_corpus::parse(text).map(|file| file.case)
            else {
                panic!("{text}");
            };
            let (backend, detail) = ("interp".to_string(), detail.to_string());
            let failure = Failure { backend, kind: Kind::Refused, detail };
            rust_test(&Finding { program, failure, blame: None, origin: String::new() })
        };
        let lost = "a request for a buffer is lost: no kernel stores the 6 elements of f32";
        assert_eq!(of(lost), None);
        assert_eq!(of("rewriting kernel E_2 does not end"), None);
        assert!(of("reshape [2] to [3]").is_some());
    }

    #[test]
    fn engines_have_the_options_of_their_backends() {
        let text = |backend: &str| of("a = input i32[2] iota\noutput a\n", backend);
        for row in BACKENDS {
            let is_of_engine = !matches!(row.device, "uops" | "text");
            let found = text(row.name);
            assert_eq!(
                found.is_some(),
                is_of_engine && !row.name.ends_with("/session"),
                "{}",
                row.name
            );
            let opens = format!("engine = Engine::new({:?})?;\n", row.device);
            assert!(found.is_none_or(|found| found.contains(&opens)), "{}", row.name);
        }
        assert_eq!(text("oracle"), None);
        for (backend, part) in [
            ("interp/unfused", "schedule.fuse = false;"),
            ("jit/strict", "mode = gradiff::rewrite::Mode::Strict;"),
            ("jit/fast", "mode = gradiff::rewrite::Mode::Fast;"),
            ("c/opts", "Strategy::Drawn { seed: 0, limit: 5 };"),
            ("interp/groups", "target = gradiff::graph::Target::of(\"groups\");"),
            ("jit/small", "target.thresholds = gradiff::graph::target::Thresholds::SMALL;"),
            ("interp", "engine.target.unsupported = unsupported;"),
        ] {
            assert!(text(backend).is_some_and(|text| text.contains(part)), "{backend}: {part}");
        }
    }

    #[test]
    fn elements_are_compared_by_bits_or_bounds() {
        let text = of("a = input f32[3] [1.0, nan, 0.0]\nb = sin a\noutput b\n", "interp");
        let text = text.expect("a test");
        let ball = text.lines().find(|line| line.trim_start().starts_with("(0, 0.84147"));
        assert!(ball.is_some_and(|line| line.contains(" within ")), "{text}");
        assert!(text.contains("assert!(((number - center) - low).abs() <= *radius, "), "{text}");
        let nan = "for index in [1] {\n        let number = number(&v1, &found, index);\n        \
                   assert!(number.is_nan(), \"element {index} of v1 is {number}\");\n";
        assert!(text.contains(nan) && text.contains("\nfn number("), "{text}");
        // Zeros of either sign.
        let text = of("a = input f32[1] [1.0]\nb = sub a a\noutput b\n", "interp");
        assert!(text.is_some_and(|text| text.contains("(0, 0.0, 0.0, 0.0, None), // zero")));
        // WGSL keeps no signs of zeros.
        let negative_zero = "a = input f32[1] [-0.0]\nb = mul a 2.0\noutput b\n";
        let signed = of(negative_zero, "interp");
        assert!(signed.is_some_and(|text| text.contains("(0, 0x80000000), // ")));
        let unsigned = of(negative_zero, "wgpu");
        assert!(unsigned.is_some_and(|text| text.contains("(0, 0.0, 0.0, 0.0, None), // ")));
        let text = of("a = input i32[1] [7]\nb = neg a\noutput b\n", "interp");
        assert!(text.is_some_and(|text| {
            text.contains("(0, 0xfffffff9), // ") && !text.contains("number(")
        }));
    }

    #[test]
    fn gradients_of_unused_targets_are_zeros() {
        let program = "a = input f32[2] iota\nb = input f32[3] iota\nc = gradient a b\noutput c\n";
        let text = of(program, "interp").expect("a test");
        let target = "let v1 = v1.reshape(v1.shape())?.requires_grad_(true)?;";
        assert!(text.contains(target), "{text}");
        let zeros = ".remove(0).map_or_else(|| Tensor::zeros(v1.dtype(), v1.shape()), Ok)?;";
        assert!(text.contains(zeros) && !text.contains(".gradient("), "{text}");
    }
}
