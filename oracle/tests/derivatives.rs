//! Gradients: they agree with finite differences of the oracle's own values at generic points, have
//! the meanings of oracle/README.md where functions have no derivative, and bounds that admit
//! roundings and no mistakes.

use std::collections::BTreeSet;

use gradiff_corpus::{
    Array, Case, DType, Fill, Method, Operand, Program, Statement, ValueId, parse,
};
use gradiff_oracle::{Element, Expected, Reason, evaluate, evaluate_in_order, origins};

/// Inputs that the rows of [`ROWS`] use: generic numbers, whose differences are generic, too.
const INPUTS: &str = "\
a = input T[2,3] [0.31, -0.72, 0.55, -0.18, 0.93, -0.41]
b = input T[2,3] [0.47, 0.83, -0.29, 0.66, -0.58, 0.12]
p = input T[2,3] [1.31, 2.72, 1.55, 3.18, 1.93, 2.41]
v = input T[4] [0.35, -0.64, 0.81, -0.22]
w = input T[3,2] [0.71, -0.33, 0.26, 0.94, -0.85, 0.43]
x = input T[1,2,3,3] [0.11, -0.27, 0.53, 0.71, -0.89, 0.37, 0.41, -0.63, 0.97, -0.15, 0.29, 0.77,
 -0.51, 0.19, 0.67, -0.83, 0.23, -0.45]
k = input T[2,2,2,2] [0.21, -0.37, 0.43, 0.91, -0.59, 0.17, 0.31, -0.73, 0.87, -0.25, 0.39, 0.67,
 -0.41, 0.29, 0.57, -0.93]
f = input T[2,3] [7.31, -5.72, 4.55, -8.18, 6.93, -9.41]
i = input i32[2,2] [2, 0, 2, 1]
j = input i32[4] [1, 0, 1, 5]
m = input bool[2,3] [true, false, false, true, true, false]
";

/// Programs that compute `y` of the inputs, a list of those that have derivatives, and whether the
/// result has no floats.
const ROWS: &[(&str, &str)] = &[
    ("y = neg a", "a"),
    ("y = exp2 a", "a"),
    ("y = log2 p", "p"),
    ("y = sin a", "a"),
    ("y = sqrt p", "p"),
    ("y = recip a", "a"),
    ("y = add a b", "ab"),
    ("y = sub a b", "ab"),
    ("y = mul a b", "ab"),
    ("y = mul a a", "a"),
    ("y = div a b", "ab"),
    ("y = max a b", "ab"),
    ("y = min a b", "ab"),
    ("y = max a 0.2", "a"),
    ("y = pow p a", "pa"),
    ("y = pow a 3", "a"),
    ("y = pow a 2", "a"),
    ("y = pow 2.718281828459045 a", "a"),
    ("z = cmplt a b\ny = where z a b", "ab"),
    ("y = where m a 0.5", "a"),
    ("y = mulacc a b p", "abp"),
    ("y = sum a axes=[1]", "a"),
    ("y = sum a axes=[0,1]", "a"),
    ("y = prod a axes=[1]", "a"),
    ("y = max a axes=[0]", "a"),
    ("y = reshape a [3,2]", "a"),
    ("y = permute a axes=[1,0]", "a"),
    ("z = reshape v [4,1]\ny = expand z [4,3]", "v"),
    ("y = pad a [(1,0),(0,2)] 0.5", "a"),
    ("y = shrink a [(0,1),(1,3)]", "a"),
    ("y = flip a axes=[1]", "a"),
    ("y = cat [a,b,a] axis=0", "ab"),
    ("y = gather a i axis=1", "a"),
    ("y = contiguous a", "a"),
    ("y = realize a", "a"),
    ("y = cast a f64", "a"),
    // A value that is used thrice.
    ("z = mul a b\nq = sin z\nr = mul q z\ny = sub r z", "ab"),
    // Broadcasting, and a sum that is expanded.
    ("z = reshape v [4,1]\nq = mul z v\ny = sum q axes=[0]", "v"),
    ("q = sum p axes=[1]\ny = div p q", "p"),
    // Softmax.
    ("q = max a axes=[1]\nr = sub a q\ns = exp r\nt = sum s axes=[1]\ny = div s t", "a"),
    ("y = cumsum a axis=1", "a"),
    ("y = cumprod a axis=1", "a"),
    ("y = cummax a axis=1", "a"),
    ("y = cummin a axis=1", "a"),
    ("y = amin a axes=[1] keepdim=false", "a"),
    ("y = roll a shifts=[1,1] axes=[0,1]", "a"),
    ("y = matmul a w", "aw"),
    ("y = matmul v v", "v"),
    ("y = conv2d x k groups=1 stride=[2,1] dilation=[1,1] padding=[1,0,1,1]", "xk"),
    (
        "y = conv_transpose2d x k groups=1 stride=[2,1] dilation=[1,2] padding=[1,0,1,1] \
         output_padding=[0,0]",
        "xk",
    ),
    (
        "y = max_pool2d x kernel=[2,2] stride=[1,1] dilation=[1,1] padding=[1,0,1,0] \
         ceil_mode=false",
        "x",
    ),
    (
        "y = avg_pool2d x kernel=[2,2] stride=[1,2] dilation=[1,1] padding=[1,0,1,0] \
         ceil_mode=true count_include_pad=false",
        "x",
    ),
    (
        "y = avg_pool2d x kernel=[2,2] stride=[1,1] dilation=[1,1] padding=[1,0,1,0] \
         ceil_mode=false count_include_pad=true",
        "x",
    ),
    ("y = abs a", "a"),
    ("y = sign a", "a"),
    ("y = square a", "a"),
    ("y = clamp a min=-0.5 max=0.4", "a"),
    ("y = trunc f", "f"),
    ("y = floor f", "f"),
    ("y = ceil f", "f"),
    ("y = round f", "f"),
    ("q = isnan a\ny = cast q T", "a"),
    ("q = isinf a\ny = cast q T", "a"),
    ("q = isfinite a\ny = cast q T", "a"),
    ("y = copysign a b", "ab"),
    ("y = masked_fill a m value=0.3", "a"),
    ("y = lerp a b p", "abp"),
    ("y = relu a", "a"),
    ("y = relu6 f", "f"),
    ("y = hardtanh a min=-0.5 max=0.4", "a"),
    ("y = leaky_relu a slope=0.1", "a"),
    ("y = hardsigmoid a", "a"),
    ("y = hardsigmoid f", "f"),
    ("y = hardswish a", "a"),
    ("y = hardswish f", "f"),
    ("y = softsign a", "a"),
    ("y = exp a", "a"),
    ("y = log p", "p"),
    ("y = log10 p", "p"),
    ("y = rsqrt p", "p"),
    ("y = sigmoid a", "a"),
    ("y = sigmoid f", "f"),
    ("y = tanh a", "a"),
    ("y = silu a", "a"),
    ("y = silu f", "f"),
    ("y = softplus a beta=1.5", "a"),
    ("y = logsigmoid a", "a"),
    ("y = elu a alpha=0.7", "a"),
    ("y = celu a alpha=0.7", "a"),
    ("y = selu a", "a"),
    ("y = gelu a", "a"),
    ("y = gelu f", "f"),
    ("y = quick_gelu a", "a"),
    ("y = mish a", "a"),
    ("y = cos a", "a"),
    ("y = tan a", "a"),
    ("y = sinh a", "a"),
    ("y = cosh a", "a"),
    ("y = asinh a", "a"),
    ("y = acosh p", "p"),
    ("y = atanh a", "a"),
    ("y = erf a", "a"),
    ("y = erf p", "p"),
    ("y = asin a", "a"),
    ("y = acos a", "a"),
    ("y = atan a", "a"),
    ("y = logaddexp a b", "ab"),
    ("y = fmod f p", "fp"),
    ("q = unsqueeze a axis=0\ny = squeeze q axis=0", "a"),
    ("y = transpose a axis0=0 axis1=1", "a"),
    ("y = flatten a start=0 end=1", "a"),
    ("y = unflatten v axis=0 sizes=[2,-1]", "v"),
    ("y = repeat a counts=[2,1]", "a"),
    ("y = repeat_interleave a count=2 axis=1", "a"),
    ("y = stack [a,b,a] axis=1", "ab"),
    ("y = split a sizes=[2,1] axis=1 part=0", "a"),
    ("y = chunk a count=2 axis=1 part=1", "a"),
    ("y = unfold v axis=0 size=2 step=1", "v"),
    ("y = diagonal a offset=1 axis0=0 axis1=1", "a"),
    ("y = diag v offset=-1", "v"),
    ("y = triu a diagonal=1", "a"),
    ("y = tril a diagonal=0", "a"),
    ("y = slice a starts=[0,-1] stops=[2,-4] steps=[1,-2]", "a"),
    ("y = pad_reflect a before=[1,2] after=[0,1]", "a"),
    ("y = pad_replicate a before=[1,2] after=[0,1]", "a"),
    ("y = pad_circular a before=[1,2] after=[0,1]", "a"),
    ("y = shrink_to a sizes=[1,2]", "a"),
    ("y = pad_to a sizes=[3,4]", "a"),
    ("y = movedim a from=[0] to=[1]", "a"),
    ("q = linspace dtype=T start=0.5 stop=1 count=3\ny = mul a q", "a"),
    ("q = arange_float dtype=T start=1 stop=4 step=1\ny = mul a q", "a"),
    ("q = eye dtype=T rows=2 columns=3\ny = mul a q", "a"),
    ("q = tri dtype=T rows=2 columns=3 diagonal=0\ny = mul a q", "a"),
    ("q = one_hot i classes=3\nr = sum q axes=[1]\ns = reshape r [2,3]\ny = mul a s", "a"),
    ("y = index_select a j axis=1", "a"),
    ("y = get [a] at=[new, 1, ::-2]", "a"),
    ("y = get [a, i, i] at=[source, source]", "a"),
    ("y = scatter a i w0 axis=1", "aw"),
    ("y = scatter_add a i w0 axis=1", "aw"),
    ("y = scatter_amax a i w0 axis=1", "aw"),
    ("y = sort a axis=1 descending=true", "a"),
    ("q = argsort a axis=1 descending=true\ny = cast q T", "a"),
    ("y = topk a k=2 axis=1 largest=true", "a"),
    ("y = topk a k=1 axis=0 largest=false", "a"),
    ("q = topk_indices a k=2 axis=1 largest=true\ny = cast q T", "a"),
    ("q = argmax a axis=1 keepdim=true\ny = gather a q axis=1", "a"),
    ("q = argmin a axis=1 keepdim=true\ny = gather a q axis=1", "a"),
    ("q = any a axes=[1] keepdim=true\ny = where q a 0.0", "a"),
    ("q = all a axes=[1] keepdim=true\ny = where q a 0.0", "a"),
    ("q = count_nonzero a axes=[1] keepdim=true\ny = mul q a", "a"),
    ("y = mean a axes=[1] keepdim=true", "a"),
    ("y = var a axes=[1] keepdim=false correction=1", "a"),
    ("y = std a axes=[0,1] keepdim=false correction=0", "a"),
    ("y = layernorm a axes=[1] eps=0.25", "a"),
    ("q = layernorm f axes=[0,1] eps=1e-5\ny = mul q p", "fp"),
    ("y = normalize a p=2.0 axis=1 eps=1e-12", "a"),
    ("y = normalize a p=1.0 axis=0 eps=0.5", "a"),
    ("y = normalize f p=3.0 axis=-1 eps=0.0", "f"),
    ("q = normalize a p=2.0 axis=0 eps=1000.0\ny = mul q q", "a"),
    ("y = logsumexp a axes=[0] keepdim=false", "a"),
    ("y = logsumexp f axes=[0,1] keepdim=false", "f"),
    ("y = logcumsumexp a axis=1", "a"),
    ("y = logcumsumexp f axis=1", "f"),
    ("y = softmax a axis=1", "a"),
    ("y = log_softmax f axis=0", "f"),
    ("y = softmin a axis=-1", "a"),
    ("y = newton_schulz a steps=1 a=2.0 b=-1.5 c=0.5 eps=0.25", "a"),
    ("q = newton_schulz a steps=1 a=1.5 b=-0.5 c=0.0 eps=0.0\ny = mul q q", "a"),
    ("q = slice w starts=[0,0] stops=[3,1] steps=[1,1]\ny = qr_r q", "w"),
    ("q = slice w starts=[0,0] stops=[3,1] steps=[1,1]\ny = qr_q q", "w"),
    ("q = slice p starts=[0,0] stops=[1,2] steps=[1,1]\ny = qr_r q", "p"),
    ("q = isclose a b rtol=0.5 atol=0.5 equal_nan=false\ny = where q a b", "ab"),
    ("y = dot a w", "aw"),
    ("q = slice v starts=[0] stops=[2] steps=[1]\ny = linear a w q", "awv"),
    ("q = slice v starts=[0] stops=[3] steps=[1]\ny = linear a q b", "avb"),
    ("y = linear a w", "aw"),
    ("c = input i32[2] [2, 0]\ny = nll_loss a c ignore_index=-1 reduction=sum", "a"),
    ("q = cmplt a b\ny = masked_select_sized a q size=4", "a"),
    (
        "q = nonzero_sized a size=2 fill=0\nr = flatten q start=0 end=-1\n\
         y = index_select v r axis=0",
        "v",
    ),
    (
        "q = max_pool2d_indices a kernel=[2] stride=[1] dilation=[1] padding=[0] ceil_mode=false\n\
         r = max_pool2d a kernel=[2] stride=[1] dilation=[1] padding=[0] ceil_mode=false\n\
         y = max_unpool2d r q sizes=[3]",
        "a",
    ),
    ("y = rearrange a sizes=[2,3,1] parts=[1,2] order=[1,2,0] groups=[1,0,2]", "a"),
    ("y = scatter_reduce a i w0 axis=1 reduce=sum include_self=false", "aw"),
    ("y = scatter_reduce a i w0 axis=1 reduce=prod include_self=true", "aw"),
    ("y = scatter_reduce a i w0 axis=1 reduce=mean include_self=true", "aw"),
    ("y = scatter_reduce a i w0 axis=1 reduce=amin include_self=false", "aw"),
    ("y = scatter_reduce a i w0 axis=1 reduce=amax include_self=true", "aw"),
    ("y = cross_entropy a b label_smoothing=0.1 reduction=none", "ab"),
    ("c = input i32[2] [2, 0]\ny = cross_entropy a c label_smoothing=0.25 reduction=mean", "a"),
    (
        "c = input i32[2] [2, 0]\n\
         y = sparse_categorical_crossentropy f c ignore_index=0 label_smoothing=0.0 \
         reduction=mean",
        "f",
    ),
    (
        "c = input i32[2] [2, 0]\nq = slice v starts=[1] stops=[4] steps=[1]\n\
         y = nll_loss a c q ignore_index=-1 reduction=mean",
        "av",
    ),
    ("q = abs a\ny = binary_crossentropy q b reduction=none", "ab"),
    ("y = binary_crossentropy_logits f b reduction=sum", "fb"),
    ("y = einsum [a,w] labels=[0,1,1,2] output=[2,0]", "aw"),
    ("y = einsum [a,b,a] labels=[0,1,0,1,2,1] output=[1]", "ab"),
    (
        "q = slice w starts=[0,0] stops=[2,2] steps=[1,1]\n\
         y = einsum [q,v] labels=[3,3,5] output=[]",
        "wv",
    ),
    ("y = einsum [a] labels=[4,1] output=[1,4]", "a"),
    ("y = scaled_dot_product_attention [a,b,b] is_causal=true", "ab"),
    ("y = scaled_dot_product_attention [b,p,a] is_causal=false", "bpa"),
    (
        "q = slice v starts=[0] stops=[2] steps=[1]\n\
         y = scaled_dot_product_attention [a,b,w0,q] is_causal=false",
        "abwv",
    ),
    (
        "q = input bool[2] [true, false]\n\
         y = scaled_dot_product_attention [a,b,w0,q] is_causal=true",
        "abw",
    ),
    ("y = interpolate v sizes=[7] mode=linear align_corners=false", "v"),
    ("y = interpolate a sizes=[3,2] mode=linear align_corners=true", "a"),
    ("y = interpolate a sizes=[5,5] mode=linear align_corners=false", "a"),
    ("y = interpolate a sizes=[3,2] mode=nearest align_corners=false", "a"),
    ("y = interpolate v sizes=[3] mode=nearest_exact align_corners=false", "v"),
    (
        "q = slice v starts=[0] stops=[2] steps=[1]\nr = meshgrid [v,q] indexing=xy part=0\n\
         s = meshgrid [v,q] indexing=xy part=1\ny = mul r s",
        "v",
    ),
];

fn program(text: &str) -> Program {
    match parse(text).unwrap_or_else(|error| panic!("{text}\n{error}")).case {
        Case::Program(program) => program,
        _ => panic!("{text} is a program"),
    }
}

fn outputs(text: &str) -> Vec<Expected> {
    evaluate(&program(text)).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

/// Returns the center and the radius of a number.
fn ball(expected: &Expected, index: usize) -> (f64, f64) {
    match expected.element(index) {
        Element::Ball { center, low, radius, .. } => (center + low, radius),
        Element::Zero => (0.0, 0.0),
        Element::Exact(bits) => {
            let value = match expected.dtype {
                DType::F64 => f64::from_bits(bits),
                DType::F32 => f32::from_bits(bits as u32).into(),
                DType::BF16 => f32::from_bits((bits as u32) << 16).into(),
                dtype => panic!("{dtype:?} is not tested"),
            };
            (value, 0.0)
        }
        element => panic!("{element:?} is no number"),
    }
}

/// Returns the row's program with the dtype, up to `z`, which is `y^2 + y`.
fn row_text(dtype: &str, row: &str) -> String {
    let w0 = "w0 = shrink w [(0,2),(0,2)]\n";
    let added = if row.contains("w0") { w0 } else { "" };
    let row = row.replace(" T", &format!(" {dtype}")).replace("=T", &format!("={dtype}"));
    let inputs = INPUTS.replace("0.97, -0.15, 0.29, 0.77,\n", "0.97, -0.15, 0.29, 0.77,");
    let inputs = inputs.replace("0.39, 0.67,\n", "0.39, 0.67,").replace(" T", &format!(" {dtype}"));
    format!("{inputs}{added}{row}\nzz = mulacc y y y\n")
}

/// Returns the sum of the elements of the first output.
fn total(program: &Program) -> f64 {
    let outputs = evaluate(program).expect("well-formed");
    (0..outputs[0].len()).map(|index| ball(&outputs[0], index).0).sum()
}

/// Returns the finite differences of the sum of the first output by each element of an input.
fn differences(program: &Program, input: usize) -> Vec<f64> {
    const STEP: f64 = 1e-6;
    let Statement::Input { fill: Fill::Explicit(bits), .. } = &program.statements[input] else {
        panic!("statement {input} is an input")
    };
    let moved = |at: usize, step: f64| {
        let mut bits = bits.clone();
        bits[at] = (f64::from_bits(bits[at]) + step).to_bits();
        let mut program = program.clone();
        if let Statement::Input { fill, .. } = &mut program.statements[input] {
            *fill = Fill::Explicit(bits);
        }
        total(&program)
    };
    (0..bits.len()).map(|at| (moved(at, STEP) - moved(at, -STEP)) / (2.0 * STEP)).collect()
}

/// The number of the statement that defines an input.
fn input_number(name: char) -> usize {
    INPUTS
        .lines()
        .filter(|line| line.contains('='))
        .position(|line| line.starts_with(name))
        .expect("an input")
}

#[test]
fn gradients_are_finite_differences() {
    for (row, inputs) in ROWS {
        for name in inputs.chars() {
            let number = input_number(name);
            let text = row_text("f64", row);
            let expected = differences(&program(&format!("{text}output zz\n")), number);
            for dtype in ["f64", "f32"] {
                let text = format!("{}gg = gradient zz {name}\noutput gg\n", row_text(dtype, row));
                let found = &outputs(&text)[0];
                for (index, expected) in expected.iter().enumerate() {
                    let (center, radius) = ball(found, index);
                    let limit = if dtype == "f64" { 1e-12 } else { 1e-4 };
                    assert!(radius <= limit * (1.0 + center.abs()), "{row} {name} {radius}");
                    let error = (center - expected).abs();
                    let limit = if dtype == "f64" { 1e-7 } else { 1e-5 };
                    assert!(
                        error <= limit * (1.0 + center.abs()),
                        "{row} by {name} {index} {dtype}: {center}, by differences {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_method_has_a_row() {
    let words: BTreeSet<&str> = ROWS.iter().flat_map(|(row, _)| row.split_whitespace()).collect();
    // Assignments have no derivatives, and digests are anything, which differences cannot tell: see
    // gradient-assign.case. Bounds of singular values are wider than those of other methods, see
    // the next test.
    let is_cut = |method: &Method| {
        let is_singular = method.row().name.starts_with("svd_");
        method.is_in_place() || *method == Method::Keccak || is_singular
    };
    for method in Method::ALL.into_iter().filter(|method| !is_cut(method)) {
        assert!(words.contains(method.row().name), "{} has no row", method.row().name);
    }
}

/// The vectors of singular values are constants for gradients.
#[test]
fn derivatives_of_singular_values_are_products_of_their_vectors() {
    for name in ['a', 'w', 'p'] {
        let row = format!("y = svd_s {name}");
        let expected = differences(
            &program(&format!("{}output zz\n", row_text("f64", &row))),
            input_number(name),
        );
        for (dtype, limit) in [("f64", 1e-10), ("f32", 1e-2)] {
            let text = format!("{}gg = gradient zz {name}\noutput gg\n", row_text(dtype, &row));
            let found = &outputs(&text)[0];
            for (index, expected) in expected.iter().enumerate() {
                let (center, radius) = ball(found, index);
                assert!(radius <= limit, "{row} {index} {dtype}: {radius}");
                let error = (center - expected).abs();
                assert!(
                    error <= 1e-5,
                    "{row} {index} {dtype}: {center}, by differences {expected}"
                );
            }
        }
        let text = |of: &str| {
            let row = format!("y = {of} {name} full_matrices=true");
            format!("{}gg = gradient zz {name}\noutput gg\n", row_text("f64", &row))
        };
        assert_eq!(ball(&outputs(&text("svd_u"))[0], 0).0, 0.0);
        assert_eq!(ball(&outputs(&text("svd_vt"))[0], 0).0, 0.0);
        let product = outputs(&text("svd_product"));
        assert!(matches!(product[0].element(0), Element::Unspecified(Reason::Derivative)));
    }
}

/// Second derivatives are differences of first ones.
#[test]
fn second_derivatives_are_finite_differences() {
    for (row, inputs) in ROWS {
        let first = inputs.chars().next().expect("an input");
        for name in inputs.chars() {
            let number = input_number(name);
            let text =
                format!("{}gg = gradient zz {first}\nhh = mul gg gg\n", row_text("f64", row));
            let expected = differences(&program(&format!("{text}output hh\n")), number);
            let text = format!("{text}ii = gradient hh {name}\noutput ii\n");
            let found = &outputs(&text)[0];
            for (index, expected) in expected.iter().enumerate() {
                let (center, radius) = ball(found, index);
                let scale = 1.0 + center.abs();
                // Far out, the second derivative of gelu's gate is noise times a square.
                let limit = if *row == "y = gelu f" { 1e-8 } else { 1e-11 };
                assert!(radius <= limit * scale, "{row} {name} {index}: {radius}");
                let error = (center - expected).abs();
                assert!(
                    error <= 1e-6 * scale,
                    "{row} by {first} and {name} {index}: {center}, by differences {expected}"
                );
            }
        }
    }
}

/// Asserts the elements of a gradient by `a`: numbers, or NaN for unspecified ones.
fn assert_gradient(input: &str, row: &str, expected: &[f64]) {
    let text = format!("a = input f32{input}\n{row}\ng = gradient y a\noutput g\n");
    let found = &outputs(&text)[0];
    assert_eq!(found.len(), expected.len(), "{text}");
    for (index, expected) in expected.iter().enumerate() {
        match found.element(index) {
            Element::Unspecified(_) => assert!(expected.is_nan(), "{text}{index} is unspecified"),
            _ => {
                let (center, radius) = ball(found, index);
                let limit = radius.max(1e-12);
                assert!((center - expected).abs() <= limit, "{text}{index}: {center}");
                assert!(radius <= 1e-4 * (1.0 + center.abs()), "{text}{index}: {radius}");
            }
        }
    }
}

const NO: f64 = f64::NAN;

#[test]
fn ties_share_the_derivative() {
    assert_gradient("[3] [1, 2, 1]", "b = input f32[3] [1, 1, 2]\ny = max a b", &[0.5, 1.0, 0.0]);
    assert_gradient("[3] [1, 2, 1]", "b = input f32[3] [1, 1, 2]\ny = min a b", &[0.5, 0.0, 1.0]);
    assert_gradient("[2] [0, -0.0]", "y = max a 0.0", &[0.5, 0.5]);
    assert_gradient("[1] [3]", "y = max a a", &[1.0]);
    assert_gradient("[4] [2, 3, 3, 1]", "y = max a axes=[0]", &[0.0, 0.5, 0.5, 0.0]);
    assert_gradient(
        "[4] [2, 1, 1, 1]",
        "y = amin a axes=[0] keepdim=true",
        &[0.0, 1.0 / 3.0, 1.0 / 3.0, 1.0 / 3.0],
    );
    // The prefixes are {1}, {1, 1}, {1, 1, 0}.
    assert_gradient("[3] [1, 1, 0]", "y = cummax a axis=0", &[2.0, 1.0, 0.0]);
    assert_gradient("[3] [0, 0, 1]", "y = cummin a axis=0", &[2.0, 1.0, 0.0]);
    assert_gradient(
        "[4] [2, 2, 1, 2]",
        "y = max_pool2d a kernel=[2] stride=[1] dilation=[1] padding=[0,0] ceil_mode=false",
        &[0.5, 1.5, 0.0, 1.0],
    );
    assert_gradient(
        "[1,2] [1, 5]",
        "i = input i32[1,2] [0, 0]\nb = input f32[1,2] [1, 0]\ny = scatter_amax a i b axis=1",
        &[0.5, 1.0],
    );
    assert_gradient("[3] [-inf, 1, -inf]", "y = max a axes=[0]", &[0.0, 1.0, 0.0]);
    // Equal numbers keep their order.
    assert_gradient(
        "[3] [1, 1, 0]",
        "w = input f32[3] [1, 2, 4]\nb = sort a axis=0 descending=true\ny = mul b w",
        &[1.0, 2.0, 4.0],
    );
}

#[test]
fn kinks_have_the_documented_derivatives() {
    assert_gradient("[4] [0, -0.0, 1, -1]", "y = relu a", &[0.0, 0.0, 1.0, 0.0]);
    assert_gradient("[4] [0, -0.0, 2, -2]", "y = abs a", &[0.0, 0.0, 1.0, -1.0]);
    assert_gradient("[4] [0, 6, 3, 7]", "y = relu6 a", &[0.0, 0.0, 1.0, 0.0]);
    assert_gradient("[4] [-1, 1, 0, 2]", "y = clamp a min=-1.0 max=1.0", &[1.0, 1.0, 1.0, 0.0]);
    assert_gradient("[4] [-1, 1, 0, 2]", "y = hardtanh a min=-1.0 max=1.0", &[0.0, 0.0, 1.0, 0.0]);
    assert_gradient("[3] [0, 1, -1]", "y = leaky_relu a slope=0.25", &[0.25, 1.0, 0.25]);
    assert_gradient("[3] [-3, 3, 0]", "y = hardsigmoid a", &[0.0, 0.0, 1.0 / 6.0]);
    assert_gradient("[4] [-3, 3, 0, 1.5]", "y = hardswish a", &[0.0, 1.0, 0.5, 1.0]);
    assert_gradient("[2] [0, 1]", "y = elu a alpha=2.0", &[2.0, 1.0]);
    assert_gradient("[2] [0, 1]", "y = celu a alpha=2.0", &[1.0, 1.0]);
    assert_gradient("[2] [0, 1]", "y = selu a", &[1.0507 * 1.67326, 1.0507]);
    assert_gradient("[3] [0.5, 1, -1.5]", "y = round a", &[0.0, 0.0, 0.0]);
    let division = "b = input f32[3] [3, 3, 3]\ny = fmod b a";
    assert_gradient("[3] [2, -2, 3]", division, &[-1.0, 1.0, -1.0]);
    let signs = "b = input f32[4] [-0.0, 0.0, -1, inf]\ny = copysign a b";
    assert_gradient("[4] [2, 2, 0, -3]", signs, &[-1.0, 1.0, 0.0, -1.0]);
    assert_gradient("[3] [0, 0, 0]", "y = pow a 2", &[0.0; 3]);
    assert_gradient("[2] [0, 3]", "y = pow a 1", &[1.0, 1.0]);
    assert_gradient("[2] [0, 3]", "y = pow a 0", &[0.0, 0.0]);
    assert_gradient("[2] [0, 2]", "y = pow 0.0 a", &[0.0, 0.0]);
    assert_gradient("[3] [0, 0, 3]", "y = prod a axes=[0]", &[0.0, 0.0, 0.0]);
    assert_gradient("[3] [2, 0, 3]", "y = prod a axes=[0]", &[0.0, 6.0, 0.0]);
    assert_gradient("[3] [2, 0, 3]", "y = cumprod a axis=0", &[1.0, 8.0, 0.0]);
}

#[test]
fn infinite_derivatives_are_unspecified_where_they_are_reached() {
    assert_gradient("[2] [0, 4]", "y = sqrt a", &[NO, 0.25]);
    assert_gradient("[2] [-1, 4]", "y = sqrt a", &[NO, 0.25]);
    assert_gradient("[2] [0, 4]", "y = log a", &[NO, 0.25]);
    assert_gradient("[2] [0, 4]", "y = pow a 0.5", &[NO, 0.25]);
    // Where selects, but in reverse mode 0 times an infinite derivative is NaN.
    let masked = "c = cmplt 0.0 a\nb = sqrt a\ny = where c b 0.0";
    assert_gradient("[2] [0, 4]", masked, &[NO, 0.25]);
    // The derivative of a source that is not selected is not reached.
    let guarded = "c = cmplt 0.0 a\nb = where c a 1.0\nd = sqrt b\ny = where c d 0.0";
    assert_gradient("[2] [0, 4]", guarded, &[0.0, 0.25]);
    assert_gradient("[2] [inf, 4]", "y = mul a 2.0", &[2.0, 2.0]);
    assert_gradient("[1] [3]", "b = input f32[2] [inf, 2]\ny = mul a b", &[NO]);
    // An infinity in a row that the element does not meet.
    let product = "b = input f32[2,2] [inf, 1, 2, 3]\ny = matmul a b";
    assert_gradient("[1,2] [1, 1]", product, &[NO, 5.0]);
    assert_gradient("[2] [nan, 1]", "y = max a 0.0", &[NO, 1.0]);
}

#[test]
fn values_without_a_way_have_no_derivative() {
    assert_gradient("[2] [1, 2]", "y = input f32[3] [1, 2, 3]", &[0.0, 0.0]);
    assert_gradient("[2] [1, 2]", "b = detach a\ny = mul a b", &[1.0, 2.0]);
    assert_gradient("[2] [1, 2]", "b = cast a i32\ny = mul a b", &[1.0, 2.0]);
    assert_gradient("[2] [1, 2]", "b = bitcast a i32\nc = bitcast b f32\ny = mul a c", &[1.0, 2.0]);
    // Values that are computed alike are distinct.
    let text = "a = input f32[2] [1, 2]\nb = reshape a [2]\nc = reshape a [2]\ny = mul b b\n\
                g = gradient y b\nh = gradient y c\ni = gradient y a\nj = gradient a a\n\
                output g, h, i, j\n";
    let found = outputs(text);
    let centers = |number: usize| [0, 1].map(|index| ball(&found[number], index).0);
    assert_eq!(centers(0), [2.0, 4.0]);
    assert_eq!(centers(1), [0.0, 0.0]);
    assert_eq!(centers(2), [2.0, 4.0]);
    assert_eq!(centers(3), [1.0, 1.0]);
}

#[test]
fn ill_formed_gradients_are_errors() {
    let input = |dtype| Statement::Input { dtype, shape: vec![1], fill: Fill::Iota };
    let gradient = |of, wrt| Statement::Gradient { of: ValueId(of), wrt: ValueId(wrt) };
    for (of, wrt) in [(0, 1), (1, 0), (0, 7), (7, 0), (2, 0)] {
        let statements = vec![input(DType::F32), input(DType::I32), gradient(of, wrt)];
        let program = Program { statements, outputs: vec![ValueId(2)] };
        assert_eq!(evaluate(&program).unwrap_err().statement, Some(2), "{of} {wrt}");
    }
}

/// Returns whether a gradient admits its center times `1 + error`.
fn admits(found: &Expected, error: f64) -> bool {
    let bits = |index| {
        let value = (ball(found, index).0 * (1.0 + error)) as f32;
        value.to_bits().into()
    };
    let bits = (0..found.len()).map(bits).collect();
    found.judge(&Array { dtype: DType::F32, shape: found.shape.clone(), bits }).is_ok()
}

#[test]
fn bounds_admit_roundings_and_refuse_mistakes() {
    for (row, inputs) in ROWS {
        let name = inputs.chars().next().expect("an input");
        let text = format!("{}gg = gradient zz {name}\noutput gg\n", row_text("f32", row));
        let found = &outputs(&text)[0];
        let is_rounded =
            (0..found.len()).all(|index| matches!(found.element(index), Element::Ball { .. }));
        assert!(admits(found, 0.0) && (!is_rounded || admits(found, 2f64.powi(-23))), "{row}");
        let is_zero = (0..found.len()).all(|index| ball(found, index).0 == 0.0);
        assert!(is_zero || !admits(found, 1e-3), "{row}");
    }
}

#[test]
fn narrow_dtypes_and_long_sums_have_wider_bounds() {
    let radius = |dtype: &str, count: usize, in_order: bool| {
        let text = format!(
            "a = input {dtype}[1] [0.3]\nb = expand a [{count}]\nc = sin b\ng = gradient c a\n\
             output g\n"
        );
        let program = program(&text);
        let evaluate = if in_order { evaluate_in_order } else { evaluate };
        match evaluate(&program).expect("well-formed")[0].element(0) {
            Element::Ball { center, radius, .. } => radius / center,
            element => panic!("{element:?} is no number"),
        }
    };
    assert!(radius("f64", 4, false) < 1e-14);
    assert!(radius("f32", 4, false) < 1e-5);
    assert!((1e-3..0.1).contains(&radius("f16", 4, false)));
    assert!(radius("bf16", 1000, false) < 0.5);
    assert!(radius("f32", 100, false) > 2.0 * radius("f32", 4, false));
    assert!(radius("f32", 4096, true) > 2.0 * radius("f32", 4096, false));
    // A cast to f16 on the way is a rounding of the derivative, too.
    let text = "a = input f32[1] [0.3]\nb = cast a f16\nc = cast b f32\nd = sin c\n\
                g = gradient d a\noutput g\n";
    assert!((1e-3..0.1).contains(&ball(&outputs(text)[0], 0).1));
}

#[test]
fn gradients_that_no_order_rounds_are_exact() {
    let bits = |text: &str, index| match outputs(text)[0].element(index) {
        Element::Exact(bits) => bits,
        element => panic!("{element:?} is not exact: {text}"),
    };
    let sum =
        "a = input bf16[64] seeded(3, unit)\nb = sum a axes=[0]\ng = gradient b a\noutput g\n";
    assert_eq!(bits(sum, 0), 0x3f80);
    // The inverse of a power of two is exact, that of 3 is not.
    let mean = "a = input f32[4] [1, 2, 3, 4]\nb = mean a axes=[0] keepdim=false\n\
                g = gradient b a\noutput g\n";
    assert_eq!(bits(mean, 0), u64::from(0.25f32.to_bits()));
    let third = mean.replace("[4] [1, 2, 3, 4]", "[3] [1, 2, 3]");
    assert!(matches!(outputs(&third)[0].element(0), Element::Ball { .. }));
    // An element that is read 20 times, and one that is read 44 times.
    let index: Vec<u32> = (0..64).map(|i| u32::from(i >= 20)).collect();
    let read = format!(
        "a = input bf16[2] [1, 2]\ni = input i32[64] {index:?}\nb = index_select a i axis=0\n\
         c = sum b axes=[0]\ng = gradient c a\noutput g\n"
    );
    assert_eq!((bits(&read, 0), bits(&read, 1)), (0x41a0, 0x4230));
    let product = "a = input f32[1] [3]\nb = mul a a\nc = mul b 0.1\ng = gradient b a\n\
                   h = gradient c b\noutput g\n";
    assert_eq!(bits(product, 0), u64::from(6f32.to_bits()));
    assert_eq!(bits(&product.replace("output g", "output h"), 0), u64::from(0.1f32.to_bits()));
    // bf16 counts up to 256, and the product of 3 and the digits of 0.1 has more of them.
    let many = "a = input bf16[1] [1]\nb = expand a [300]\ng = gradient b a\noutput g\n";
    assert!(matches!(outputs(many)[0].element(0), Element::Ball { .. }));
    let long = &product.replace("gradient b a", "gradient c a");
    assert!(matches!(outputs(long)[0].element(0), Element::Ball { .. }));
}

/// A direction has few terms where its statements have many.
#[test]
fn bounds_count_the_terms_of_a_direction() {
    let text = "a = input bf16[4,64] seeded(1, unit)\nw = input bf16[64,4] seeded(2, unit)\n\
                b = matmul a w\ng = gradient b a\noutput g\n";
    let found = &outputs(text)[0];
    let radii = (0..found.len()).map(|index| ball(found, index).1);
    let largest = radii.fold(0.0, f64::max);
    assert!(largest < 0.12, "{largest}");
}

/// Long lines refer to the function of the elements before.
#[test]
fn running_functions_of_long_lines_have_the_same_derivatives() {
    let count = 150;
    let numbers: Vec<f64> = (0..count).map(|i| f64::from((i * 7 + 3) % 11)).collect();
    let text = |row: &str| {
        let weights: Vec<f64> = (0..count).map(|i| f64::from(i % 4)).collect();
        format!(
            "a = input f64[{count}] {numbers:?}\nw = input f64[{count}] {weights:?}\n{row}\n\
             z = mul y w\ng = gradient z a\noutput g\n"
        )
    };
    for (row, is_before) in [
        ("y = cummax a axis=0", (|x, y| x < y) as fn(f64, f64) -> bool),
        ("y = cummin a axis=0", |x, y| x > y),
        ("y = cumsum a axis=0", |_, _| false),
    ] {
        let mut expected = vec![0.0; count as usize];
        for last in 0..count as usize {
            let prefix = &numbers[..=last];
            let best = prefix.iter().copied().reduce(|x, y| if is_before(x, y) { y } else { x });
            let is_sum = row.contains("sum");
            let ties: Vec<usize> =
                (0..=last).filter(|i| is_sum || Some(prefix[*i]) == best).collect();
            for i in &ties {
                let share = if is_sum { 1.0 } else { 1.0 / ties.len() as f64 };
                expected[*i] += share * (last % 4) as f64;
            }
        }
        let found = &outputs(&text(row))[0];
        for (index, expected) in expected.iter().enumerate() {
            let (center, radius) = ball(found, index);
            assert!((center - expected).abs() <= radius.max(1e-12), "{row} {index}: {center}");
        }
    }
}

/// The elements of a long line are added up in blocks, as an engine does.
#[test]
fn gradients_of_long_running_sums_have_few_roundings() {
    let text = "a = input bf16[200] seeded(3, unit)\nb = cumsum a axis=0\n\
                w = input bf16[200] seeded(4, unit)\nc = mul b w\ng = gradient c a\n\
                x = cast w f64\ny = abs x\nz = sum y axes=[0]\noutput g, z\n";
    let found = outputs(text);
    let ((_, radius), (mass, _)) = (ball(&found[0], 0), ball(&found[1], 0));
    assert!(0.2 * mass < radius && radius < 0.4 * mass, "{radius} of {mass}");
    // From 4096 elements on, blocks of blocks: the first element counts in each sum.
    let text = "x = input f64[1] [2.5]\na = pad x [(0,4300)] 0.0\nb = cumsum a axis=0\n\
                g = gradient b x\noutput g\n";
    assert_eq!(ball(&outputs(text)[0], 0), (4301.0, 0.0));
}

#[test]
fn work_is_limited() {
    let text = "a = input f32[4096] seeded(1, unit)\nb = sum a axes=[0]\nc = mul a b\nd = sin c\n\
                g = gradient d a\noutput g\n";
    let found = &outputs(text)[0];
    assert!(matches!(found.element(0), Element::Ball { .. }));
    assert!(matches!(found.element(4095), Element::Unspecified(Reason::Unbounded)));
}

#[test]
fn overflows_on_the_way_are_unspecified() {
    let text = "a = input f16[1] [2]\nb = mul a 600.0\nc = mul b 600.0\nd = mul c 0.001\n\
                e = mul a 300.0\nf = mul e 0.01\ng = gradient d a\nh = gradient f a\noutput g, h\n";
    let found = outputs(text);
    assert!(matches!(found[0].element(0), Element::Unspecified(Reason::Overflow)));
    assert!(matches!(found[1].element(0), Element::Ball { .. }));
}

#[test]
fn a_gradient_introduces_reasons() {
    let text = "a = input f32[2] [0, 1]\nb = sqrt a\nc = mul b b\ng = gradient c a\nh = mul g g\n\
                output h\n";
    let origins = origins(&program(text)).expect("well-formed");
    assert_eq!(origins[0].get(&Reason::Derivative), Some(&3));
}

#[test]
fn a_gradient_of_many_elements_takes_little_time() {
    let text = "a = input f32[4,8] seeded(1, unit)\nb = input f32[8,32] seeded(2, unit)\n\
                c = matmul a b\nd = tanh c\ne = mul d d\nf = sub e c\ng = sigmoid f\n\
                h = sum g axes=[1]\ni = sub g h\nj = mul i g\nk = permute j axes=[1,0]\n\
                l = exp k\nm = gradient l a\noutput m\n";
    let program = program(text);
    evaluate(&program).expect("well-formed");
    let start = std::time::Instant::now();
    evaluate(&program).expect("well-formed");
    println!("{:?}", start.elapsed());
    assert!(start.elapsed() < std::time::Duration::from_millis(500));
}

#[test]
fn operands_of_gradients_may_be_literals() {
    let statements = program("a = input f32[1] [2]\ny = mul a 3.0\noutput y\n").statements;
    assert!(matches!(
        &statements[1],
        Statement::Binary { srcs: [Operand::Value(_), Operand::Literal(_)], .. }
    ));
    assert_gradient("[1] [2]", "y = mul 3.0 a", &[3.0]);
    assert_gradient("[1] [2]", "y = div 3.0 a", &[-0.75]);
    assert_gradient("[1] [2]", "y = where true a 3.0", &[1.0]);
}
