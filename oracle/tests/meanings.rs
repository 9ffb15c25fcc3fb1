//! Whole programs with results worked out by hand, for semantics that are easy to get wrong.

use gradiff_corpus::{Array, Case, DType, Program, parse};
use gradiff_oracle::{Element, Expected, Reason, evaluate};

fn program(text: &str) -> Program {
    match parse(text).map(|file| file.case) {
        Ok(Case::Program(program)) => program,
        result => panic!("{text}\n{result:?}"),
    }
}

fn expected(text: &str) -> Expected {
    let mut outputs = evaluate(&program(text)).unwrap_or_else(|error| panic!("{text}\n{error}"));
    assert_eq!(outputs.len(), 1, "{text}");
    outputs.remove(0)
}

/// Compares results as text: `?reason` for an unspecified one, `0?` for a zero of free sign, `~x`
/// for an inexact number.
fn check(text: &str, results: &str) {
    let expected = expected(text);
    let actual: Vec<_> = expected
        .elements()
        .map(|element| match element {
            Element::Exact(bits) => gradiff_corpus::format_element(expected.dtype, bits),
            Element::Zero => "0?".into(),
            Element::Nan => "any-nan".into(),
            Element::Ball { center, .. } => format!("~{center}"),
            Element::Unspecified(reason) => format!("?{}", reason.name()),
        })
        .collect();
    assert_eq!(actual.join(" "), results, "{text}");
}

#[test]
fn flip_reshape_flip_agrees_with_numpy() {
    check(
        "a = input i32[2,3] [1,2,3,4,5,6]\nb = flip a axes=[1]\nc = reshape b [3,2]\n\
         d = flip c axes=[0]\noutput d",
        "5 4 1 6 3 2",
    );
}

#[test]
fn divisions_and_shifts() {
    let on = |op: &str| {
        format!(
            "a = input i8[4] [-9,9,-128,7]\nb = input i8[4] [4,-4,-1,0]\nc = {op} a b\noutput c"
        )
    };
    check(&on("floordiv"), "-3 -3 -128 ?division-by-zero");
    check(&on("cdiv"), "-2 -2 -128 ?division-by-zero");
    check(&on("floormod"), "3 -3 0 ?division-by-zero");
    check(&on("cmod"), "-1 1 0 ?division-by-zero");
    check(
        "a = input i8[3] [-128,1,1]\nb = input i8[3] [7,8,-1]\nc = shr a b\noutput c",
        "-1 ?shift-out-of-range ?shift-out-of-range",
    );
}

#[test]
fn undefined_elements_matter_only_to_results_that_depend_on_them() {
    let poison = "a = input i32[2] [6,7]\nz = input i32[2] [0,2]\nq = floordiv a z\n";
    check(&format!("{poison}x = add q 0\noutput x"), "?division-by-zero 3");
    check(&format!("{poison}x = sum q axes=[0]\noutput x"), "?division-by-zero");
    check(&format!("{poison}m = cmpne z 0\nx = where m q 5\noutput x"), "5 3");
    check(&format!("{poison}x = shrink q [(1,2)]\ny = pad x [(1,0)] 9\noutput y"), "9 3");
    check(&format!("{poison}i = input i32[1] [1]\nx = gather q i axis=0\noutput x"), "3");
}

/// An undefined integer is any integer.
#[test]
fn undefined_elements_do_not_matter_where_another_one_decides() {
    let poison = "a = input i32[2] [6,7]\nz = input i32[2] [0,2]\nq = floordiv a z\n";
    check(&format!("{poison}x = mul q 0\noutput x"), "0 0");
    check(&format!("{poison}x = and 0 q\noutput x"), "0 0");
    check(&format!("{poison}x = or q -1\noutput x"), "-1 -1");
    check(&format!("{poison}x = max q 2147483647\noutput x"), "2147483647 2147483647");
    check(&format!("{poison}x = min q -2147483648\noutput x"), "-2147483648 -2147483648");
    check(&format!("{poison}x = and q 1\noutput x"), "?division-by-zero 1");
    let with_nan = "f = cast q f32\nn = input f32[2] [nan,nan]\n";
    for op in ["add", "mul", "max", "min"] {
        check(&format!("{poison}{with_nan}x = {op} f n\noutput x"), "any-nan any-nan");
    }
    check(&format!("{poison}{with_nan}x = cmpne f n\noutput x"), "true true");
    let joined = "c = cat [f,n] axis=0\n";
    check(&format!("{poison}{with_nan}{joined}x = sum c axes=[0]\noutput x"), "any-nan");
    check(&format!("{poison}{with_nan}{joined}x = max c axes=[0]\noutput x"), "any-nan");
    check(
        &format!("{poison}{with_nan}{joined}x = amin c axes=[0] keepdim=false\noutput x"),
        "any-nan",
    );
    let zeros = "w = input i32[2,1] [0,0]\n";
    check(&format!("{poison}{zeros}x = matmul q w\noutput x"), "0");
}

#[test]
fn undefined_indices_reach_what_the_defined_ones_allow() {
    let indices = "z = input i32[2] [1,0]\ni = cdiv 2 z\n";
    check(
        &format!(
            "x = input i32[4,2] iota\n{indices}v = const i32[2] 9\n\
             y = set [x,v,i] at=[source, 0]\noutput y"
        ),
        "?division-by-zero 1 ?division-by-zero 3 ?division-by-zero 5 ?division-by-zero 7",
    );
    check(
        "x = input i32[3] [0,0,0]\nz = input i32[3] [0,1,0]\nq = cdiv 1 z\n\
         r = shrink q [(0,2)]\nv = input i32[2] [5,6]\ny = scatter x r v axis=0\noutput y",
        "?division-by-zero 6 ?division-by-zero",
    );
    check(
        &format!(
            "x = input i32[2,2] [1,2,3,4]\n{indices}j = input i32[2] [0,7]\n\
                  y = get [x,i,j] at=[source, source]\noutput y"
        ),
        "0 0",
    );
    let mask = "x = input i32[4] [10,11,12,13]\nz = input i32[4] [1,1,0,1]\nq = cdiv 2 z\n\
                m = cmpne q 0\n";
    check(&format!("{mask}y = masked_select_sized x m size=2\noutput y"), "10 11");
    check(
        &format!("{mask}y = masked_select_sized x m size=3\noutput y"),
        "10 11 ?division-by-zero",
    );
    check(&format!("{mask}y = nonzero_sized q size=3 fill=-1\noutput y"), "0 1 ?division-by-zero");
}

#[test]
fn a_certain_maximum_is_found_among_straddling_elements() {
    let pool = "kernel=[4] stride=[1] dilation=[1] padding=[0] ceil_mode=false\noutput y";
    check(
        &format!(
            "a = input f32[1,1,3] [1,1,15]\nb = div a 3.0\nc = input f32[1,1,1] [0.33333334]\n\
             d = cat [b,c] axis=2\ny = max_pool2d_indices d {pool}"
        ),
        "2",
    );
    check(&format!("d = input f32[1,1,4] [1,3,3,2]\ny = max_pool2d_indices d {pool}"), "1");
    check(&format!("d = input f32[1,1,4] [1,nan,3,nan]\ny = max_pool2d_indices d {pool}"), "1");
}

#[test]
fn padding_does_not_depend_on_the_source() {
    check("a = input f32[1] [nan]\nb = pad a [(1,1)] 0.0\nc = exp2 b\noutput c", "~1 any-nan ~1");
    check("a = input f32[1] [inf]\nb = pad a [(1,1)] -0.0\noutput b", "-0.0 inf -0.0");
    check("a = input i32[0] []\nb = pad a [(1,1)] 7\noutput b", "7 7");
}

#[test]
fn gather_gives_zero_out_of_range() {
    check(
        "a = input f32[3] [1,2,3]\ni = input i8[5] [2,-1,3,0,1]\nb = gather a i axis=0\noutput b",
        "3.0 0.0 0.0 1.0 2.0",
    );
}

#[test]
fn comparisons_and_max_of_nan() {
    let with = |op: &str| {
        format!(
            "a = input f32[3] [nan,1,-0.0]\nb = input f32[3] [1,nan,0.0]\nc = {op} a b\noutput c"
        )
    };
    check(&with("cmplt"), "false false false");
    check(&with("cmpeq"), "false false true");
    check(&with("cmpne"), "true true false");
    check(&with("max"), "any-nan any-nan 0?");
    check(&with("min"), "any-nan any-nan 0?");
    check("a = input bool[2] [true,false]\nb = cmplt a true\noutput b", "false true");
}

#[test]
fn reductions_accumulate_wide() {
    check("a = const i8[3] 100\nb = sum a axes=[0]\noutput b", "300");
    check("a = const u16[3] 65535\nb = sum a axes=[0]\noutput b", "196605");
    check("a = const bool[3] true\nb = sum a axes=[0]\noutput b", "3");
    check("a = input f16[3] [60000,60000,-60000]\nb = sum a axes=[0]\noutput b", "60000.0");
    check("a = input i8[0] []\nb = max a axes=[0]\noutput b", "-128");
    check("a = input f32[0] []\nb = max a axes=[0]\noutput b", "-inf");
    check("a = input i16[2,2] iota\nb = prod a axes=[1]\noutput b", "0 6");
}

#[test]
fn zero_signs() {
    let unary = |op: &str| format!("a = input f32[2] [0.0,-0.0]\nb = {op} a\noutput b");
    check(&unary("neg"), "-0.0 0.0");
    check(&unary("sqrt"), "0.0 -0.0");
    check(&unary("recip"), "inf -inf");
    check(&unary("sin"), "0.0 -0.0");
    check("a = input f32[1] [1]\nb = sub a a\nc = recip b\noutput c", "?zero-sign");
    check("a = input f32[1] [1]\nb = sub a a\nc = bitcast b u32\noutput c", "?zero-sign");
    check("a = input f32[1] [-0.0]\nb = cast a f64\noutput b", "-0.0");
    check("a = input f32[2] [1,-1]\nb = mul a -0.0\noutput b", "-0.0 0.0");
}

#[test]
fn casts_round_once_and_are_undefined_out_of_range() {
    check("a = input i32[1] [16777217]\nb = cast a f32\noutput b", "16777216.0");
    check(
        "a = input f32[4] [-0.9,255.9,256,nan]\nb = cast a u8\noutput b",
        "0 255 ?cast-out-of-range ?cast-out-of-range",
    );
    check("a = input f32[3] [nan,0.5,-0.0]\nb = cast a bool\noutput b", "true true false");
    check("a = input f32[1] [70000]\nb = cast a f16\nc = mul b 0.5\noutput c", "inf");
}

#[test]
fn overflowed_numbers_are_infinite_and_their_uses_unspecified() {
    check("a = input f16[1] [60000]\nb = mul a 2.0\noutput b", "inf");
    check("a = input f16[1] [60000]\nb = mul a 2.0\nc = mul b 0.5\noutput c", "?overflow");
    check("a = input f16[1] [60000]\nb = mul a 2.0\nc = cast b f32\noutput c", "?overflow");
}

#[test]
fn overflowed_numbers_decide_where_their_size_is_enough() {
    let over = "a = input f32[3] [1,3e38,-3e38]\nb = mul a 10.0\n";
    for (row, results) in [
        ("c = clamp b min=-1.0 max=1.0", "1.0 1.0 -1.0"),
        ("c = relu b", "10.0 inf 0.0"),
        ("c = cmplt b 5.0", "false false true"),
        ("c = sort b axis=0 descending=false", "-inf 10.0 inf"),
        ("c = argmax b axis=0 keepdim=false", "1"),
        ("c = max b axes=[0]", "inf"),
        ("c = cmpeq b b", "true ?overflow ?overflow"),
        ("d = neg b\ne = max b d\nc = cmplt 4.0 e", "true true true"),
        ("c = mul b 0.5", "5.0 ?overflow ?overflow"),
    ] {
        check(&format!("{over}{row}\noutput c"), results);
    }
    check("a = input f32[1] [-3e38]\nb = mul a 10.0\nc = tanh b\noutput c", "~-1");
    check("a = input f32[1] [-3e38]\nb = mul a 10.0\nc = elu b alpha=2.0\noutput c", "~-2");
    check(
        "a = input f32[1] [3e38]\nb = input f32[1] [-3e38]\n\
         c = isclose a b rtol=1e-5 atol=1e-8 equal_nan=false\noutput c",
        "false",
    );
}

/// Other orders of a sum overflow before they meet the infinity; a chain with one has no others.
#[test]
fn reductions_are_reordered_around_an_infinity_and_chains_are_not() {
    check("a = input f32[3] [inf,-3e38,-3e38]\nb = sum a axes=[0]\noutput b", "?overflow");
    check(
        "a = input f32[1] [inf]\nb = input f32[1] [-3e38]\nc = add a b\nd = add c b\noutput d",
        "inf",
    );
}

/// Returns whether a result of a single f32 may have this value.
fn admits(text: &str, value: f32) -> bool {
    let expected = expected(text);
    let bits = vec![value.to_bits().into()];
    let array = Array { dtype: DType::F32, shape: expected.shape.clone(), bits };
    let verdict = expected.judge(&array);
    assert_eq!(verdict.unspecified, 0, "{text}");
    verdict.is_ok()
}

#[test]
fn zero_times_a_computed_number_is_zero() {
    let computed = "a = input f32[2] [3,-7]\nr = recip a\nz = input f32[2] [0,0]\nm = mul r z\n";
    check(&format!("{computed}output m"), "0.0 -0.0");
    check(&format!("{computed}x = cmpne m 0.0\noutput x"), "false false");
    check(&format!("{computed}x = recip m\noutput x"), "inf -inf");
    let sum = "o = const f32[1] 1.0\nc = cat [o,m] axis=0\nx = sum c axes=[0]\noutput x";
    check(&format!("{computed}{sum}"), "1.0");
    check("a = input f32[3] [1.1,0.3,0.0]\nb = prod a axes=[0]\noutput b", "0.0");
    // A row of zeros with a 1 selects an element, which is rounded once.
    let select = "a = input f32[256,1] seeded(3, positive)\nr = recip a\n\
                  i = input i32[1] [5]\nh = one_hot i classes=256\ng = cast h f32\n\
                  m = matmul g r\n";
    let text = format!("{select}s = shrink r [(5,6),(0,1)]\noutput m, s");
    let radii = evaluate(&program(&text)).expect("well-formed");
    let radii = [0, 1].map(|number| match radii[number].element(0) {
        Element::Ball { radius, .. } => radius,
        element => panic!("{element:?} is rounded"),
    });
    assert!(radii[0] < 1.001 * radii[1], "{radii:?}");
    // A reflection of a column whose element on the diagonal is 0.
    let matrix = "a = input f32[3,3] [3,2,3,0,0,4,0,5,6]\nr = qr_r a\n\
                  s = shrink r [(1,2),(1,2)]\noutput s";
    assert!(admits(matrix, -5.0) && !admits(matrix, 5.0));
}

#[test]
fn numbers_that_are_not_negative_are_known_to_be() {
    let rest = "a = input f32[2] [3,7]\nr = recip a\nk = input f32[2] [0.33333334,0.14285715]\n\
                d = sub r k\n";
    for row in ["e = abs d", "e = square d", "e = relu d", "f = square d\ne = mul f f"] {
        check(&format!("{rest}{row}\nx = cmplt e 0.0\noutput x"), "false false");
    }
    let least = "z = input f32[1] [0]\ns = square d\nc = cat [z,s] axis=0\n";
    check(&format!("{rest}{least}x = argmin c axis=0 keepdim=false\noutput x"), "0");
    let length = format!("{rest}s = square d\nt = sum s axes=[0]\nq = sqrt t\noutput q");
    assert!(admits(&length, 2e-8) && !admits(&length, f32::NAN) && !admits(&length, -1e-9));
}

#[test]
fn zeros_that_underflowed_have_the_sign_of_the_number() {
    let product = "a = input f32[1] [1e-30]\nb = mul a -1e-30\noutput b";
    assert!(admits(product, -0.0) && !admits(product, 0.0));
    let power = "a = input f32[1] [-200]\nb = exp a\n";
    assert!(admits(&format!("{power}output b"), 0.0));
    assert!(!admits(&format!("{power}output b"), -0.0));
    let copied = "c = input f32[1] [1]\nd = copysign c b\noutput d";
    check(&format!("{power}{copied}"), "1.0");
    // A sum of zeros may begin with another one.
    assert!(admits(&format!("{power}c = sum b axes=[0]\noutput c"), -0.0));
}

#[test]
fn powers_and_remainders_of_computed_numbers_are_known() {
    let inverse = "a = input f32[1] [2.2]\nr = recip a\n";
    check(&format!("{inverse}z = input f32[1] [0]\np = pow z r\noutput p"), "0.0");
    check(&format!("{inverse}z = input f32[1] [inf]\np = pow r z\noutput p"), "0.0");
    let rest =
        "a = input f32[1] [0.3]\nb = recip a\nc = input f32[1] [2.0]\nd = fmod b c\noutput d";
    assert!(admits(rest, 1.333_333_3) && !admits(rest, 1.3334) && !admits(rest, f32::NAN));
    // 3 * 0.33333334 is 1 or a bit less.
    let third = "a = input f32[1] [3]\nb = recip a\no = input f32[1] [1]\n";
    check(&format!("{third}c = fmod o b\noutput c"), "?straddle");
}

#[test]
fn means_of_two_are_rounded_once() {
    let mean = "a = input f32[2] [1.0,3e-8]\nm = mean a axes=[0] keepdim=false\noutput m";
    assert!(admits(mean, 0.5));
    assert!(!admits(mean, 0.5f32.next_up()) && !admits(mean, 0.5f32.next_down()));
}

#[test]
fn data_nans_keep_their_bits_until_arithmetic() {
    let nan = "i = input u32[1] [2143302179]\nf = bitcast i f32\n";
    check(&format!("{nan}g = flip f axes=[0]\nh = bitcast g u32\noutput h"), "2143302179");
    check(&format!("{nan}g = neg f\nh = bitcast g u32\noutput h"), "?inexact-bits");
    check(
        &format!("{nan}m = cmpne f f\ng = where m f 0.0\nh = bitcast g i32\noutput h"),
        "2143302179",
    );
}

#[test]
fn decisions_within_the_bound_are_unspecified() {
    let third = "a = input f32[1] [1]\nb = div a 3.0\n";
    check(&format!("{third}c = cmplt b 0.34\noutput c"), "true");
    check(&format!("{third}c = mul b 3.0\nd = cmpeq c 1.0\noutput d"), "?straddle");
    check(&format!("{third}c = mul b 3.0\nd = cast c i32\noutput d"), "?straddle");
    check(&format!("{third}c = bitcast b u32\noutput c"), "?inexact-bits");
}

#[test]
fn promotion_and_broadcasting() {
    check(
        "a = input i8[2,1] [-1,1]\nb = input u8[2] [255,1]\nc = add a b\noutput c",
        "254 0 256 2",
    );
    assert_eq!(
        expected("a = input i8[1] [1]\nb = input u64[1] [1]\nc = add a b\noutput c").dtype,
        DType::F16
    );
    check("a = input i32[2] [1,2]\nb = mulacc a a 3\noutput b", "4 7");
    check("a = arange i8[3] start=126 step=1\noutput a", "126 127 -128");
}

#[test]
fn one_ulp_off_is_rejected_where_the_result_is_exact() {
    let expected =
        expected("a = input f32[4] seeded(3, dyadic)\nb = mul a a\nc = sum b axes=[0]\noutput c");
    let Element::Exact(bits) = expected.element(0) else { panic!("{:?}", expected.element(0)) };
    let judge = |bits| {
        expected.judge(&Array { dtype: DType::F32, shape: vec![1], bits: vec![bits] }).is_ok()
    };
    assert!(judge(bits) && !judge(bits + 1) && !judge(bits - 1));
}

#[test]
fn ill_formed_programs_give_errors_with_the_statement() {
    use gradiff_corpus::{BinaryOp, Fill, Literal, Operand, Statement, UnaryOp, ValueId};
    let input = Statement::Input { dtype: DType::F32, shape: vec![2], fill: Fill::Iota };
    let src = ValueId(0);
    let rows = [
        (Statement::Unary { op: UnaryOp::Not, src }, "not does not take f32"),
        (Statement::Unary { op: UnaryOp::Neg, src: ValueId(7) }, "there is no value 7"),
        (Statement::Reshape { src, shape: vec![3] }, "2 elements cannot become 3"),
        (Statement::Bitcast { src, dtype: DType::F64 }, "sizes differ"),
        (
            Statement::Const { dtype: DType::I8, shape: vec![1 << 40], value: Literal::Int(1) },
            "more than",
        ),
        (
            Statement::Const { dtype: DType::I8, shape: vec![], value: Literal::Int(300) },
            "not representable in i8",
        ),
        (
            Statement::Binary { op: BinaryOp::And, srcs: [Operand::Value(src); 2] },
            "and does not take f32",
        ),
        (Statement::Where { srcs: [Operand::Value(src); 3] }, "condition"),
        (
            Statement::Input { dtype: DType::U8, shape: vec![1], fill: Fill::Explicit(vec![256]) },
            "0x100",
        ),
        (Statement::Gather { src, axis: 0, index: src }, "index of gather"),
    ];
    for (statement, text) in rows {
        let program = Program { statements: vec![input.clone(), statement], outputs: vec![src] };
        let error = evaluate(&program).expect_err(text);
        assert_eq!(error.statement, Some(1));
        assert!(error.to_string().contains(text), "{error}");
    }
    let program = Program { statements: vec![input], outputs: vec![ValueId(1)] };
    assert_eq!(evaluate(&program).expect_err("no such output").statement, None);
}

#[test]
fn reasons_say_whether_the_program_is_undefined() {
    assert!(Reason::DivisionByZero.is_undefined() && !Reason::Straddle.is_undefined());
}

#[test]
fn zeros_of_transposed_convolutions_may_be_left_out() {
    let of = |dtype: &str, weights: &str, stride: i64| {
        format!(
            "a = input {dtype}[1,1,2] [2,0]\nw = input {dtype}[1,1,2] {weights}\n\
             b = conv_transpose2d a w groups=1 stride=[{stride}] dilation=[1] padding=[0] \
             output_padding=[0]\noutput b"
        )
    };
    check(&of("i32", "[3,5]", 1), "6 10 0");
    // The last element is 0 * 5 plus, perhaps, a zero beyond the image times 3.
    check(&of("f32", "[3,5]", 1), "6.0 10.0 0?");
    // The first element is 2 * 3 plus, perhaps, a zero times infinity; the image's zero is there.
    check(&of("f32", "[3,inf]", 1), "?optional-zero inf any-nan");
    check(&of("f32", "[3,inf]", 2), "?optional-zero inf ?optional-zero any-nan");
}
