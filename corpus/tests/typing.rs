//! Well-formed and ill-formed statements, and the promotion table.

use gradiff_corpus::{DType, MAX_ELEMENTS, MAX_RANK, ParseError, parse, promote};

/// Rows and columns in the order of `DType::ALL`; measured on tinygrad 0.10.2.
const PROMOTION: [&str; 13] = [
    "bool i8  u8  i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64",
    "i8   i8  i16 i16 i32 i32 i64 i64 f16 f16 bf16 f32 f64",
    "u8   i16 u8  i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64",
    "i16  i16 i16 i16 i32 i32 i64 i64 f16 f16 bf16 f32 f64",
    "u16  i32 u16 i32 u16 i32 u32 i64 u64 f16 bf16 f32 f64",
    "i32  i32 i32 i32 i32 i32 i64 i64 f16 f16 bf16 f32 f64",
    "u32  i64 u32 i64 u32 i64 u32 i64 u64 f16 bf16 f32 f64",
    "i64  i64 i64 i64 i64 i64 i64 i64 f16 f16 bf16 f32 f64",
    "u64  f16 u64 f16 u64 f16 u64 f16 u64 f16 bf16 f32 f64",
    "f16  f16 f16 f16 f16 f16 f16 f16 f16 f16 f32  f32 f64",
    "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 f32 bf16 f32 f64",
    "f32  f32 f32 f32 f32 f32 f32 f32 f32 f32 f32  f32 f64",
    "f64  f64 f64 f64 f64 f64 f64 f64 f64 f64 f64  f64 f64",
];

#[test]
fn promotion_is_the_measured_table() {
    for (a, row) in DType::ALL.into_iter().zip(PROMOTION) {
        let row: Vec<&str> = row.split_whitespace().collect();
        for (b, expected) in DType::ALL.into_iter().zip(row) {
            assert_eq!(promote(a, b).name(), expected, "{} with {}", a.name(), b.name());
        }
    }
}

/// The engine divides integers in f32, whatever they promote to.
#[test]
fn a_quotient_of_integers_is_refused_also_where_they_promote_to_a_float() {
    let text = "a = input i16[2] iota\nb = input u64[2] iota\nc = div a b\noutput c\n";
    assert!(error(text).to_string().contains("div of i16: it takes a float dtype"));
    assert!(parse(&text.replace("div", "add")).is_ok());
}

fn error(text: &str) -> ParseError {
    parse(text).expect_err(text)
}

/// Ill-typed statements after two inputs, `a` f32[2,3] and `i` i32[3], and a part of the message.
const REJECTED: &[(&str, &str)] = &[
    ("einsum [a] labels=[0] output=[]", "1 labels for 2 axes"),
    ("einsum [a] labels=[0,26] output=[]", "labels are 0 to 25"),
    ("einsum [a] labels=[0,-1] output=[]", "labels are 0 to 25"),
    ("einsum [a,i] labels=[0,1,0] output=[]", "label 0 has the sizes 2 and 3"),
    ("einsum [a] labels=[0,1] output=[1,1]", "label 1 is twice in the result"),
    ("einsum [a] labels=[0,1] output=[2]", "label 2 of the result is in no source"),
    ("scaled_dot_product_attention [a,a] is_causal=true", "it takes 3 or 4"),
    ("scaled_dot_product_attention [i,a,a] is_causal=true", "it takes floats"),
    ("scaled_dot_product_attention [a,a,a,i] is_causal=true", "it takes floats"),
    ("scaled_dot_product_attention [a,a,a,a] is_causal=true", "broadcast"),
    ("interpolate a sizes=[] mode=linear align_corners=false", "0 sizes for 2 axes"),
    ("interpolate a sizes=[1,0] mode=linear align_corners=false", "sizes must be 1 or more"),
    ("interpolate a sizes=[-1] mode=linear align_corners=false", "must not be negative"),
    ("interpolate i sizes=[2] mode=linear align_corners=false", "it takes floats"),
    ("interpolate i sizes=[2] mode=nearest align_corners=true", "linear takes it"),
    ("interpolate i sizes=[2] mode=cubic align_corners=true", "linear, nearest, nearest_exact"),
    ("meshgrid [i,a] indexing=ij part=0", "neither a vector nor a scalar"),
    ("meshgrid [i,i] indexing=ij part=2", "part 2 of 2"),
    ("reshape a [4,2]", "6 elements cannot become 8"),
    ("reshape a [1099511627776]", "too large"),
    ("permute a axes=[0,0]", "each axis below 2 must appear once"),
    ("permute a axes=[0]", "1 entries for 2 axes"),
    ("expand a [4,3]", "only axes of size 1"),
    ("pad a [(0,1)] 0.0", "1 entries for 2 axes"),
    ("pad a [(16777216,1),(0,0)] 0.0", "too large"),
    ("pad i [(0,1)] 0.5", "0.5 is not valid for i32"),
    ("shrink a [(0,3),(0,3)]", "axis of size 2 to (0,3)"),
    ("shrink a [(2,1),(0,3)]", "0 <= start <= end <= size"),
    ("flip a axes=[1,0]", "must ascend"),
    ("sum a axes=[2]", "below the rank"),
    ("add a [1]", "expected a value or a literal"),
    ("add 1 2", "one operand must be a value"),
    ("add i 1.5", "1.5 is not valid for i32"),
    ("and a a", "it takes bool or an integer dtype"),
    ("div i i", "it takes a float dtype"),
    ("sqrt i", "it takes a float dtype"),
    ("cdiv a a", "it takes an integer dtype"),
    ("where a a a", "bool condition"),
    ("where 1 a a", "condition 1 is not bool"),
    ("where true 1 2", "one operand must be a value"),
    ("bitcast a i16", "both must have the same size"),
    ("bitcast a bool", "both must have the same size"),
    ("cat [a,i] axis=0", "dtypes must be equal"),
    ("cat [] axis=0", "cat without sources"),
    ("cat [a] axis=2", "axis 2 of shape"),
    ("gather a a axis=0", "it takes an integer dtype"),
    ("gather a i axis=0", "all other axes must be equal"),
    ("arange f32[3] start=0 step=1", "only integer dtypes are allowed"),
    ("const u8[] 256", "256 is not valid for u8"),
    ("input u8[2] [1]", "lists 1 elements, it has 2"),
    ("expand i [1099511627776]", "too large"),
    ("const f32[0,18446744073709551615] 0", "too large"),
];

#[test]
fn ill_typed_statements_say_what_is_allowed() {
    for (body, part) in REJECTED {
        let text = format!("a = input f32[2,3] iota\ni = input i32[3] iota\nb = {body}\noutput b");
        let error = error(&text);
        assert_eq!(error.line, 3, "{body}: {error}");
        assert!(error.message.contains(part), "{body}: {error}");
    }
    let add = "a = input f32[2,3] iota\nb = input f32[2] iota\nc = add a b\noutput c";
    assert!(error(add).message.contains("[2, 3] and [2] do not broadcast"));
    let add = "a = input bool[2] iota\nc = mulacc a a a\noutput c";
    assert!(error(add).message.contains("mulacc of bool"));
}

#[test]
fn results_have_the_documented_types() {
    let table = [
        ("sum i8 axes=[1]", "i32", vec![2, 1]),
        ("prod bool axes=[0]", "i32", vec![1, 3]),
        ("sum u16 axes=[0,1]", "u32", vec![1, 1]),
        ("sum u64 axes=[]", "u64", vec![2, 3]),
        ("sum bf16 axes=[0]", "bf16", vec![1, 3]),
        ("max i8 axes=[1]", "i8", vec![2, 1]),
        ("cmplt i8 u64", "bool", vec![2, 3]),
        ("max bool false", "bool", vec![2, 3]),
        ("where bool i8 u8", "i16", vec![2, 3]),
        ("mulacc i64 u64 bf16", "f32", vec![2, 3]),
        ("shl i8 u8", "i16", vec![2, 3]),
        ("bitcast f16 u16", "u16", vec![2, 3]),
        ("permute f64 axes=[1,0]", "f64", vec![3, 2]),
        ("cat [u8,u8] axis=1", "u8", vec![2, 6]),
        ("gather f64 i8 axis=0", "f64", vec![2, 3]),
        ("pad bool [(0,1),(2,0)] true", "bool", vec![3, 5]),
    ];
    for (body, dtype, shape) in table {
        let inputs: String =
            DType::ALL.map(|dtype| format!("{0} = input {0}[2,3] iota\n", dtype.name())).concat();
        let file = parse(&format!("{inputs}r = {body}\noutput r")).expect(body);
        let gradiff_corpus::Case::Program(program) = file.case else { panic!("a program") };
        let types = program.typing().unwrap();
        let last = types.last().unwrap();
        assert_eq!((last.dtype.name(), &last.shape), (dtype, &shape), "{body}");
    }
}

#[test]
fn rank_is_limited() {
    let result = |rank| parse(&format!("a = const u8[{}] 0\noutput a", vec!["1"; rank].join(",")));
    assert!(result(MAX_RANK).is_ok());
    assert!(result(MAX_RANK + 1).expect_err("too many axes").message.contains("33 axes"));
}

#[test]
fn element_count_is_limited() {
    let result = |count| parse(&format!("a = const u8[{count}] 0\noutput a"));
    assert!(result(MAX_ELEMENTS).is_ok());
    assert!(result(MAX_ELEMENTS + 1).is_err());
}
