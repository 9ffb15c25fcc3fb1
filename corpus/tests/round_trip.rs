//! Round trips through the text form and the binary form; no input makes a reader panic.

use gradiff_corpus::{
    Case, CaseFile, DType, Distribution, Expr, ExprBinary, ExprCase, ExprUnary, Fill, Literal,
    MAX_EXPR_DEPTH, Operand, Program, Statement, Var, ViewOp, ViewOps, decode, embedded, encode,
    fill, parse,
};
use proptest::prelude::*;
use std::collections::BTreeSet;

/// Returns a file of the case, with a description and no expectations.
fn file_of(case: Case) -> CaseFile {
    CaseFile {
        description: vec!["description".into(), String::new(), "more".into()],
        case,
        expects: vec![],
    }
}

fn assert_round_trip(file: &CaseFile) {
    let text = file.to_string();
    match parse(&text) {
        Ok(parsed) => assert_eq!(&parsed, file, "\n{text}"),
        Err(error) => panic!("{error}\n{text}"),
    }
}

/// Well-typed programs of all kinds, decoded from random bytes.
fn programs(count: u64) -> impl Iterator<Item = Program> {
    (0..count).map(|seed| {
        let wide = Fill::Seeded { seed, distribution: Distribution::Wide };
        let length = 20 + seed as usize % 300;
        let mut bytes = fill(gradiff_corpus::DType::U8, &[length], &wide).to_bytes();
        // Most bytes are small, so that sizes and operations are plausible; many statements.
        let reduce_most = |(index, byte): (usize, &mut u8)| {
            if index % 7 != 0 {
                *byte %= 24;
            }
        };
        bytes.iter_mut().enumerate().for_each(reduce_most);
        bytes[0] = 1;
        bytes[1] = 60;
        decode(&bytes)
    })
}

#[test]
fn decoded_programs_are_small_and_survive_both_round_trips() {
    let mut kinds = BTreeSet::new();
    let (mut statements, mut dtypes) = (0, BTreeSet::new());
    for program in programs(3000) {
        let types = program.typing().unwrap();
        assert!(types.iter().all(|tensor| tensor.count() <= 4096));
        assert!(types.iter().map(|tensor| tensor.count()).sum::<usize>() <= 65_536);
        assert!(program.statements.len() <= 64);
        statements += program.statements.len();
        dtypes.extend(types.iter().map(|tensor| tensor.dtype));
        for statement in &program.statements {
            let text = statement.to_string();
            kinds.insert(text.split(' ').next().unwrap().to_string());
        }
        assert_eq!(decode(&encode(&program)), program);
        assert_round_trip(&file_of(Case::Program(program)));
    }
    assert!(3000 * 4 < statements, "only {statements} statements");
    assert_eq!(dtypes.len(), 13);
    assert!(45 <= kinds.len(), "only {kinds:?}");
}

#[test]
fn large_programs_survive_the_binary_form() {
    let text = "a = input u8[1000000] seeded(5, wide)\nb = reshape a [1000,1000]\noutput b, b, a";
    let Case::Program(program) = parse(text).unwrap().case else { panic!("a program") };
    let bytes = encode(&program);
    assert!(bytes.len() < 40, "{} bytes", bytes.len());
    assert_eq!(decode(&bytes), program);
    // Without the right checksum, such sizes are not accepted.
    for index in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[index] ^= 1;
        let types = decode(&damaged).typing().unwrap();
        assert!(types.iter().all(|tensor| tensor.count() <= 4096), "byte {index}");
    }
}

#[test]
fn encodings_never_change() {
    let Case::Program(program) = parse(
        "a = input f32[2,2] [1.0, 2.0, nan, -0.0]\nb = add a -3\nc = max b axes=[1]\noutput c, a",
    )
    .unwrap()
    .case
    else {
        panic!("a program")
    };
    let expected = "0103000b02020202\
                    0000803f000000400000c07f00000080\
                    04000000010205\
                    09020001010202 00";
    let hex: String = encode(&program).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex[..hex.len() - 8], expected.replace(' ', ""));
}

#[test]
fn literals_keep_their_bits() {
    let floats = [0.0, -0.0, 0.1, 1e300, 5e-324, f64::INFINITY, f64::NEG_INFINITY, f64::NAN];
    let more = [-f64::NAN, f64::from_bits(0x7ff0_0000_0000_0001), 1e16, 123456789.0, 1e-7];
    for value in floats.into_iter().chain(more) {
        assert_literal_round_trip(gradiff_corpus::DType::F64, Literal::Float(value));
    }
    for value in [0, -1, i128::from(i64::MIN), i128::from(u64::MAX)] {
        assert_literal_round_trip(gradiff_corpus::DType::F32, Literal::Int(value));
    }
    assert_literal_round_trip(gradiff_corpus::DType::Bool, Literal::Bool(true));
}

fn assert_literal_round_trip(dtype: gradiff_corpus::DType, value: Literal) {
    let constant = Statement::Const { dtype, shape: vec![1], value };
    let a = Operand::Value(gradiff_corpus::ValueId(0));
    let op = gradiff_corpus::BinaryOp::Max;
    let with = Statement::Binary { op, srcs: [Operand::Literal(value), a] };
    let outputs = vec![gradiff_corpus::ValueId(1)];
    let program = Program { statements: vec![constant, with], outputs };
    assert_eq!(decode(&encode(&program)), program);
    assert_round_trip(&file_of(Case::Program(program)));
}

fn expr_strategy() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![
        (0..3usize).prop_map(Expr::Var),
        any::<i64>().prop_map(Expr::Int),
        (-9..9i64).prop_map(Expr::Int),
        any::<bool>().prop_map(Expr::Bool),
    ];
    leaf.prop_recursive(6, 60, 3, |inner| {
        let op = prop::sample::select(ExprBinary::ALL.to_vec());
        let two = (op, inner.clone(), inner.clone());
        let three = [inner.clone(), inner.clone(), inner.clone()];
        prop_oneof![
            4 => two.prop_map(|(op, a, b)| Expr::Binary(op, Box::new(a), Box::new(b))),
            1 => inner.clone().prop_map(|src| Expr::Unary(ExprUnary::Neg, Box::new(src))),
            1 => inner.clone().prop_map(|src| Expr::Unary(ExprUnary::Not, Box::new(src))),
            1 => (0..9usize, inner).prop_map(|(n, src)| Expr::Cast(DType::ALL[n], Box::new(src))),
            1 => three.prop_map(|srcs| Expr::Where(Box::new(srcs))),
        ]
    })
}

/// Repairs a random expression, which mostly mixes dtypes, to a well-typed one of this dtype.
fn repaired(expr: Expr, vars: &[Var], to: DType) -> Expr {
    use ExprBinary::*;
    let is_bool = to == DType::Bool;
    let of = |expr: Expr, to| Box::new(repaired(expr, vars, to));
    match expr {
        Expr::Bool(value) if !is_bool => Expr::Int(i64::from(value)),
        Expr::Int(value) if is_bool => Expr::Bool(value < 0),
        Expr::Var(number) if vars[number].dtype != to => Expr::Cast(to, Box::new(expr)),
        Expr::Unary(ExprUnary::Neg, src) if is_bool => Expr::Unary(ExprUnary::Not, of(*src, to)),
        Expr::Unary(op, src) => Expr::Unary(op, of(*src, to)),
        Expr::Binary(op, a, b) if op.is_comparison() && is_bool => {
            let inner = a.dtype(vars).unwrap_or(DType::U16);
            Expr::Binary(op, of(*a, inner), of(*b, inner))
        }
        Expr::Binary(op, a, b) if op.is_comparison() => Expr::Binary(Sub, of(*a, to), of(*b, to)),
        Expr::Binary(op, a, b) if is_bool && !op.takes_bool() => {
            Expr::Binary(Eq, of(*a, to), of(*b, to))
        }
        Expr::Binary(op, a, b) => Expr::Binary(op, of(*a, to), of(*b, to)),
        Expr::Where(srcs) => {
            let [condition, a, b] = *srcs;
            let srcs = [*of(condition, DType::Bool), *of(a, to), *of(b, to)];
            Expr::Where(Box::new(srcs))
        }
        Expr::Cast(_, src) => {
            let inner = src.dtype(vars).unwrap_or(DType::I64);
            Expr::Cast(to, of(*src, inner))
        }
        leaf => leaf,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn expressions_survive_text(expr in expr_strategy(), number in 0..9usize) {
        let var = |name: &str, dtype, min, max| Var { name: name.into(), dtype, min, max };
        let vars = vec![
            var("a", DType::I32, 0, 10),
            var("idx0", DType::I64, i64::MIN, -1),
            var("_z9", DType::Bool, 0, 1),
        ];
        let to = DType::ALL[number];
        let case = ExprCase { expr: repaired(expr, &vars, to), vars };
        let found = case.dtype();
        prop_assert!(found == Ok(to) || case.expr.dtype(&case.vars).is_none(), "{:?}", found);
        assert_round_trip(&file_of(Case::Expr(case)));
    }

    #[test]
    fn view_sequences_survive_text(
        shape in prop::collection::vec(0..5usize, 0..5),
        choices in prop::collection::vec((0..6u8, any::<u64>()), 0..8),
    ) {
        let mut views = ViewOps { shape: shape.clone(), ops: vec![] };
        let mut shape = shape;
        for (choice, draw) in choices {
            let op = view_op(choice, draw as usize, &shape);
            shape = op.shape(&shape).unwrap();
            views.ops.push(op);
        }
        let shapes = views.shapes().unwrap();
        prop_assert_eq!(shapes.last(), Some(&shape));
        assert_round_trip(&file_of(Case::Views(views)));
    }

    #[test]
    fn any_text_is_read_without_panic(text in any::<String>()) {
        let _ = parse(&text);
    }

    #[test]
    fn forged_checksums_give_a_program(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut bytes = vec![1];
        bytes.extend(body);
        let update = |sum: u32, byte: &u8| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        let sum = bytes.iter().fold(0x811c_9dc5, update);
        bytes.extend(sum.to_le_bytes());
        let program = decode(&bytes);
        prop_assert!(program.typing().is_ok());
        prop_assert_eq!(decode(&encode(&program)), program);
    }

    #[test]
    fn any_bytes_give_a_program(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let program = decode(&bytes);
        prop_assert!(program.typing().is_ok());
        prop_assert_eq!(decode(&encode(&program)), program);
    }
}

fn view_op(choice: u8, draw: usize, shape: &[usize]) -> ViewOp {
    let bit = |axis: usize| draw >> axis & 1;
    let rank = shape.len();
    match choice {
        0 => ViewOp::Reshape(vec![shape.iter().product()]),
        1 => ViewOp::Permute((0..rank).rev().collect()),
        2 => ViewOp::Expand(shape.iter().map(|size| if *size == 1 { 2 } else { *size }).collect()),
        3 => ViewOp::Pad((0..rank).map(|axis| (bit(axis), bit(axis + 8))).collect()),
        4 => ViewOp::Shrink(shape.iter().map(|size| ((*size).min(draw % 2), *size)).collect()),
        _ => ViewOp::Flip((0..rank).filter(|axis| bit(*axis) == 1).collect()),
    }
}

/// Parses every case with characters removed, inserted and replaced. The result is an error with a
/// position in the text, or a case that survives a round trip; never a panic.
#[test]
fn mutated_cases_are_read_without_panic() {
    let alphabet: Vec<char> = "abz019-.,:[]()=#\"\\ \n\t!<>&|^%/*+eE_é".chars().collect();
    let (mut accepted, mut rejected) = (0, 0);
    for (number, (_, text)) in embedded().iter().enumerate() {
        for round in 0..150u64 {
            let wide = Fill::Seeded {
                seed: number as u64 * 1000 + round,
                distribution: Distribution::Wide,
            };
            let draws = fill(gradiff_corpus::DType::U32, &[6], &wide).bits;
            let mut chars: Vec<char> = text.chars().collect();
            for pair in draws.chunks(2).take(1 + round as usize % 3) {
                let at = pair[0] as usize % chars.len().max(1);
                let new = alphabet[pair[1] as usize / 4 % alphabet.len()];
                match pair[1] % 4 {
                    _ if chars.is_empty() => chars.push(new),
                    0 => drop(chars.remove(at)),
                    1 => chars.insert(at, new),
                    2 => chars[at] = new,
                    _ => chars.truncate(at.max(1)),
                }
            }
            let mutated: String = chars.into_iter().collect();
            match parse(&mutated) {
                Ok(file) => {
                    accepted += 1;
                    assert_round_trip(&file);
                }
                Err(error) => {
                    rejected += 1;
                    assert!(1 <= error.line && error.line <= mutated.lines().count() + 1);
                    assert!(1 <= error.column, "{error}");
                    assert!(!error.message.is_empty());
                }
            }
        }
    }
    assert!(500 < accepted && 500 < rejected, "{accepted} accepted, {rejected} rejected");
}

#[test]
fn errors_have_a_position_and_an_expectation() {
    let table = [
        ("", 1, 1, "found no statement"),
        ("# only a description\n", 2, 1, "found no statement"),
        ("a = input f32[2] iota", 1, 1, "expected an `output` line"),
        ("a = input f33[2] iota\noutput a", 1, 11, "expected a dtype (bool i8 u8"),
        ("a = input f32[2 iota", 1, 17, "expected `,` or `]`, found `iota`"),
        ("a = input f32[-2] iota", 1, 15, "expected the size of an axis, found `-2`"),
        ("a = input f32[99999999999999999999] iota", 1, 15, "99999999999999999999 is too large"),
        ("a = input u8[1] [300]", 1, 18, "expected an element of u8, found `300`"),
        ("a = input f32[1] seeded(1, tiny)", 1, 28, "expected a distribution (small"),
        ("a = exp3 b", 1, 5, "expected an operation (input const"),
        ("a = neg b", 1, 9, "b is not defined above"),
        ("a = neg 4", 1, 9, "expected the name of a value, found `4`"),
        ("é = 1", 1, 1, "expected `name = ...`"),
        ("inf = const f32[] 1", 1, 1, "`inf` cannot name a value"),
        ("a = const f32[] 1\na = neg a", 2, 1, "a is already defined"),
        ("a = const f32[] 1 # one\nb = neg a a\noutput b", 2, 11, "expected the end of the line"),
        (
            "a = const f32[] 1\noutput a\nexpect kernel 1",
            3,
            8,
            "expected `kernels`, `values` or `fires`",
        ),
        (
            "a = const f32[] 1\nb = neg a\noutput b\nexpect values a [1]",
            4,
            15,
            "a is not an output",
        ),
        ("a = const f32[] 1\noutput a\nexpect values a [1, 2]", 3, 17, "2 elements are listed"),
        ("a = const f32[] 1\noutput a, a\nexpect values a [1]", 3, 1, "a is listed twice"),
        ("a = const f32[] 1\noutput a\nexpect values a [1]\noutput a", 3, 1, "a is listed twice"),
        ("view [4]\nreshape [5]", 2, 1, "4 elements cannot become 5"),
        ("view [4]\nrotate [5]", 2, 1, "expected `reshape`, `permute`"),
        ("view [4]\nexpect index \"a", 2, 14, "no closing"),
        ("var a 3..2\nexpr a", 1, 5, "3..2 is empty"),
        ("var max 0..2\nexpr max", 1, 5, "cannot name a variable"),
        ("var a 0..2\nexpr a + b", 2, 10, "variable b is not defined above"),
        ("var a 0..2\nexpr a < 1 < 2", 2, 12, "comparisons do not chain"),
        ("var a 0..2\nexpr a + (a < 1)", 2, 6, "+ takes an integer here, not a bool"),
        ("var a 0..2\nexpr (a", 2, 8, "expected `)`, found the end of the line"),
        ("var a 0..2\nexpr min(a)", 2, 11, "expected `,`, found `)`"),
        ("var a u8 0..256\nexpr a", 1, 5, "0..256 is not in 0..255, u8"),
        ("var a -2147483649..2\nexpr a", 1, 5, "is not in -2147483648..2147483647, i32"),
        ("var a f32 0..2\nexpr a", 1, 5, "f32 in an expression: only integers and bool are"),
        ("var a bool 0..1\nexpr a + 1", 2, 6, "+ takes an integer here, not a bool"),
        ("var a bool\nexpr a == 1", 2, 6, "== takes a bool here, not an integer"),
        ("var a u8\nvar b i64\nexpr a < b", 3, 6, "< takes u8 here, not i64"),
        ("var a u8\nexpr where(a, 1, 2)", 2, 6, "where's condition takes a bool here"),
        ("var a u8\nexpr i64 a", 2, 10, "expected `(`, found `a`"),
        ("var a u8\nexpr f32(a)", 2, 6, "f32 in an expression: only integers and bool are"),
        ("var i8 0..2\nexpr i8", 1, 5, "cannot name a variable"),
        ("var a 0..2\nexpr a\nexpect fires \"x\"", 3, 14, "expected the name of a rule"),
        ("var a 0..2", 1, 1, "expected an `expr` line"),
        ("expr 9223372036854775808", 1, 6, "is too large"),
    ];
    for (text, line, column, part) in table {
        let error = parse(text).expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text:?}: {error}");
        assert!(error.message.contains(part), "{text:?}: {error}");
    }
}

#[test]
fn deep_expressions_are_rejected_without_stack_overflow() {
    let nested = |open: &str, close: &str, count: usize| {
        format!("var a 0..1\nexpr {}a{}", open.repeat(count), close.repeat(count))
    };
    for (open, close) in [("(", ")"), ("-", ""), ("!", ""), ("max(1, ", ")"), ("1 + ", "")] {
        let error = parse(&nested(open, close, 100_000)).expect_err(open);
        assert!(error.message.contains("nested deeper"), "{open}: {error}");
    }
    let deepest = nested("-(", ")", MAX_EXPR_DEPTH - 1);
    assert_round_trip(&parse(&deepest).unwrap());
    assert!(parse(&nested("-(", ")", MAX_EXPR_DEPTH)).is_err());
}

#[test]
fn spaces_and_comments_are_ignored() {
    let text = "\t# description\r\n\r\n  a=input f32 [ 2 , 2 ] iota # a comment\n\
                # not description\nc = pad a [( 0,1),(2 , 0 )] -1.5\n b = max   a   axes = [ 1 ]\n\
                output a,b\noutput c\n";
    let file = parse(text).unwrap();
    assert_eq!(
        file.to_string(),
        "# description\na = input f32[2,2] iota\nb = pad a [(0,1),(2,0)] -1.5\nc = max a axes=[1]\n\
         output a, c, b\n"
    );
}

#[test]
fn axes_without_their_key_are_read_in_movements() {
    let table = [
        (
            "a = input u8[2,3] iota\nb = permute a [1,0]\nc = flip b [0,1]\noutput c\n",
            "a = input u8[2,3] iota\nb = permute a axes=[1,0]\nc = flip b axes=[0,1]\noutput c\n",
        ),
        ("view [2,3]\npermute [1,0]\nflip []\n", "view [2,3]\npermute axes=[1,0]\nflip axes=[]\n"),
    ];
    for (old, new) in table {
        let file = parse(old).unwrap();
        assert_eq!(file.to_string(), new);
        assert_eq!(parse(new), Ok(file));
    }
    let reduction = parse("a = const u8[2] 1\nb = sum a [0]\noutput b").unwrap_err();
    assert_eq!(reduction.message, "expected `axes=`, found `[`");
}

#[test]
fn names_after_z_are_numbered() {
    let mut text = String::from("x0 = const f32[] 1\n");
    for number in 1..30 {
        text += &format!("x{number} = neg x{}\n", number - 1);
    }
    text += "output x29";
    let file = parse(&text).unwrap();
    let printed = file.to_string();
    assert!(printed.contains("z = neg y\nv26 = neg z\nv27 = neg v26\n"), "{printed}");
    assert_round_trip(&file);
}

#[test]
fn variables_without_bounds_have_all_values_of_their_dtype() {
    let text = "var a u8\nvar b i64\nvar c bool\nvar d u64\nvar e 0..1\nexpr i8(a) < i8(b)\n";
    let printed = "var a u8 0..255\nvar b i64 -9223372036854775808..9223372036854775807\n\
                   var c bool 0..1\nvar d u64 0..9223372036854775807\nvar e 0..1\n\
                   expr i8(a) < i8(b)\n";
    assert_eq!(parse(text).unwrap().to_string(), printed);
}
