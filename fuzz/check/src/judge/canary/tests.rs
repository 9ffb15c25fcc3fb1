//! Judges that are too lenient or too strict in one respect each: the canaries detect every one,
//! and every canary detects one. And the list of the required canaries.

use gradiff_oracle::Element;

use super::*;

const FLOATS: [&str; 4] = ["f16", "bf16", "f32", "f64"];

/// The value of a finite element, exactly.
fn number(dtype: DType, bits: u64) -> f64 {
    let (precision, width) = match dtype {
        DType::F16 => (11, 16),
        DType::BF16 => (8, 16),
        DType::F32 => (24, 32),
        _ => return f64::from_bits(bits),
    };
    let least = 3 - (1 << (width - precision - 1)) - precision;
    let (field, implicit) =
        (bits << (65 - width) >> (64 - width + precision), 1 << (precision - 1));
    let fraction = (bits & (implicit - 1)) + if field == 0 { 0 } else { implicit };
    let value = fraction as f64 * 2f64.powi(field.max(1) as i32 - 1 + least);
    if bits >> (width - 1) == 1 { -value } else { value }
}

/// A test of an element: the expected one, its dtype and the bits of the answer.
type Admits = fn(&Element, DType, u64) -> bool;

/// A judge of form and elements that differs from the true one in one respect.
struct Flaw {
    name: &'static str,
    /// Returns whether an element is accepted.
    admits: Admits,
    /// The canaries that detect it, by the beginnings of their names.
    detected_by: &'static [&'static str],
}

/// Returns whether the answer is within `factor` times the bound.
fn is_within(element: &Element, dtype: DType, bits: u64, factor: f64) -> bool {
    match *element {
        Element::Ball { center, low, radius, .. } => {
            ((number(dtype, bits) - center) - low).abs() <= factor * radius
        }
        _ => element.admits(dtype, bits),
    }
}

fn is_nan(dtype: DType, bits: u64) -> bool {
    gradiff_corpus::format_element(dtype, bits).contains(['n', 'b']) && !is_infinite(dtype, bits)
}

fn is_infinite(dtype: DType, bits: u64) -> bool {
    dtype.is_float() && gradiff_corpus::format_element(dtype, bits).contains("inf")
}

fn sign(dtype: DType) -> u64 {
    1 << (8 * dtype.size_bytes() - 1)
}

/// The smallest normal number; for f64 a far larger one.
fn least_normal(dtype: DType) -> f64 {
    if dtype == DType::F16 { 2f64.powi(-14) } else { f32::MIN_POSITIVE.into() }
}

/// Returns whether these bits or adjacent bit patterns are accepted.
fn with_neighbours(element: &Element, dtype: DType, bits: u64) -> bool {
    let adjacent = [bits, bits.wrapping_add(1), bits.wrapping_sub(1)];
    adjacent
        .iter()
        .any(|bits| element.admits(dtype, bits & (u64::MAX >> (64 - 8 * dtype.size_bytes()))))
}

#[rustfmt::skip]
const FLAWS: &[Flaw] = &[
    Flaw { name: "bounds twice as wide", admits: |e, dtype, bits| is_within(e, dtype, bits, 2.0),
        detected_by: &["add/", "sub/", "mul/", "div/", "sqrt/", "recip/", "exp2/", "log2/", "sin/",
            "sin-reduced/", "pow/", "pow-large/", "sum-4/", "sum-64/", "sum-cancelled/", "chain/",
            "prod/", "matmul/", "mean/", "exp/", "log/", "log10/", "sigmoid/", "tanh/", "erf/",
            "sinh/", "cosh/", "asinh/", "acosh/", "atanh/", "asin/", "acos/", "atan/", "cos/",
            "softsign/", "hardsigmoid/", "hardswish/", "silu/", "quick_gelu/", "gelu/", "mish/",
            "logsigmoid/", "softplus/", "elu/", "celu/", "power-subnormal/",
            "softmax-subnormal/"] },
    Flaw { name: "bounds two thirds as wide",
        admits: |e, dtype, bits| is_within(e, dtype, bits, 0.66),
        detected_by: &["add/", "sub/", "mul/", "div/", "sqrt/", "recip/", "exp2/", "log2/", "sin/",
            "sin-reduced/", "pow/", "pow-large/", "sum-4/", "sum-64/", "chain/", "prod/",
            "matmul/", "mean/", "cast-computed-"] },
    Flaw { name: "numbers that are exact are inexact", admits: with_neighbours,
        detected_by: &["cast-tie-", "cast-tie-up-", "cast-above-tie-", "cast-rounds-",
            "cast-computed-", "cast-near-tie-", "number-due/", "subnormal/", "integer/", "integer-",
            "padding-value/", "undefined-alone/", "zero-times-computed/", "product-with-zero/",
            "gradient-mean-of-four/", "gradient-of-running-sum/"] },
    Flaw { name: "signs of zeros are ignored",
        admits: |e, dtype, bits| match *e {
            Element::Exact(expected) if dtype.is_float() && expected & !sign(dtype) == 0 => {
                bits & !sign(dtype) == 0
            }
            Element::Ball { .. } if bits & !sign(dtype) == 0 => {
                e.admits(dtype, bits) || e.admits(dtype, bits ^ sign(dtype))
            }
            _ => e.admits(dtype, bits),
        },
        detected_by: &["zero-sign-exact/", "zero-sign-product/", "zero-sign-where/",
            "padding-zero/", "zero-sign-underflow/", "product-with-zero/", "power-of-zero/"] },
    Flaw { name: "signs of zeros are never free",
        admits: |e, dtype, bits| match e { Element::Zero => bits == 0, _ => e.admits(dtype, bits) },
        detected_by: &["zero-sign-free/"] },
    Flaw { name: "signs are ignored",
        admits: |e, dtype, bits| e.admits(dtype, bits)
            || (dtype.is_float() && e.admits(dtype, bits ^ sign(dtype))),
        detected_by: &["zero-sign-exact/", "zero-sign-product/", "zero-sign-pole/", "infinity-due/",
            "inexact-number-due/", "nan-payload/", "unsigned-zeros/"] },
    Flaw { name: "NaN is always accepted",
        admits: |e, dtype, bits| e.admits(dtype, bits) || (dtype.is_float() && is_nan(dtype, bits)),
        detected_by: &["number-due/", "inexact-number-due/", "infinity-due/", "padding-zero/",
            "where-nan-left-out/", "nan-payload/", "unsigned-zeros/"] },
    Flaw { name: "numbers are accepted for NaN",
        admits: |e, dtype, bits| e.admits(dtype, bits) || matches!(e, Element::Nan),
        detected_by: &["nan-due/", "nan-due-max/"] },
    Flaw { name: "one NaN alone is accepted",
        admits: |e, dtype, bits| match e {
            Element::Nan => gradiff_corpus::format_element(dtype, bits) == "nan",
            _ => e.admits(dtype, bits),
        },
        detected_by: &["nan-due/"] },
    Flaw { name: "infinity and the largest number are one",
        admits: |e, dtype, bits| e.admits(dtype, bits) || (dtype.is_float()
            && (e.admits(dtype, bits.wrapping_add(1)) && is_infinite(dtype, bits.wrapping_add(1))
                || e.admits(dtype, bits.wrapping_sub(1)) && is_infinite(dtype, bits))),
        detected_by: &["infinity-due/", "largest-due/"] },
    Flaw { name: "infinity is always accepted",
        admits: |e, dtype, bits| e.admits(dtype, bits) || is_infinite(dtype, bits),
        detected_by: &["number-due/", "inexact-number-due/", "largest-due/", "nan-due/",
            "nan-due-max/", "zero-sign-pole/"] },
    Flaw { name: "subnormal numbers are zero",
        admits: |e, dtype, bits| e.admits(dtype, bits)
            || (dtype.is_float() && bits & !sign(dtype) == 0 && match *e {
                Element::Exact(bits) => number(dtype, bits).abs() < least_normal(dtype),
                Element::Ball { center, .. } => center.abs() < least_normal(dtype),
                _ => false,
            }),
        detected_by: &["subnormal/", "subnormal-rounded/f32"] },
    Flaw { name: "any bits are any integer",
        admits: |e, dtype, bits| e.admits(dtype, bits) || !dtype.is_float(),
        detected_by: &["integer/", "integer-", "swapped/i32", "swapped-outputs/i32",
            "gather-outside/i32", "padding-value/i16", "undefined-alone/i32"] },
    Flaw { name: "nothing is ever unspecified",
        admits: |e, dtype, bits| !matches!(e, Element::Unspecified(_)) && e.admits(dtype, bits),
        detected_by: &["undefined-alone/i32", "sum-near-overflow/", "prod-near-overflow/"] },
    Flaw { name: "everything is unspecified", admits: |_, _, _| true,
        detected_by: &["swapped/", "swapped-inexact/", "swapped-outputs/", "padding-", "where-",
            "gather-", "zero-sign-free/", "reflection-of-zero/", "length-of-residual/",
            "never-below-zero/", "fmod-of-computed/", "clamp-of-overflow/",
            "distance-that-overflows/", "power-of-zero/"] },
    Flaw { name: "bounds a thousand times as wide",
        admits: |e, dtype, bits| is_within(e, dtype, bits, 1000.0),
        detected_by: &["conv2d/", "layernorm/", "cross-entropy/", "attention/", "gradient-tanh/",
            "gradient-gelu/", "gradient-mean/", "gradient-matmul/", "gradient-conv2d/",
            "gradient-prod/", "gradient-softmax/", "gradient-layernorm/",
            "gradient-cross-entropy/", "gradient-attention/", "gradient-second/",
            "gram-of-halves/", "mean-of-two/", "product-subnormal/"] },
];

/// The names of the canaries that a judge of elements judges wrongly.
fn detecting(admits: Admits) -> Vec<&'static str> {
    let judge = |canary: &Canary, outputs: &[Array]| {
        let expected = agree::expectation(&canary.program).expect("the oracle knows it");
        let is_form = outputs.len() == expected.len()
            && outputs.iter().zip(&expected).all(|(output, expected)| {
                let form = (output.dtype, &output.shape, output.len());
                form == (expected.dtype, &expected.shape, expected.len())
            });
        is_form
            && outputs.iter().zip(&expected).all(|(output, expected)| {
                output.bits.iter().zip(expected.elements()).all(|(bits, element)| {
                    let zero = bits & !sign(output.dtype) == 0 && output.dtype.is_float();
                    let free = zero && !canary.keeps_zero_signs;
                    admits(&element, output.dtype, *bits)
                        || (free && admits(&element, output.dtype, bits ^ sign(output.dtype)))
                })
            })
    };
    let is_detecting = |canary: &&Canary| canary.check(&judge).is_err();
    canaries().iter().filter(is_detecting).map(|canary| canary.name.as_str()).collect()
}

#[test]
fn the_judge_of_hunts_passes() {
    assert_eq!(check_canaries(), Ok(()));
    assert_eq!(detecting(|element, dtype, bits| element.admits(dtype, bits)), [""; 0]);
}

#[test]
fn every_flawed_judge_is_detected_by_its_canaries() {
    let mut idle: Vec<&str> = canaries().iter().map(|canary| canary.name.as_str()).collect();
    for judge in FLAWS {
        let detecting = detecting(judge.admits);
        for start in judge.detected_by {
            let watching = canaries().iter().filter(|canary| canary.name.starts_with(start));
            let mut names = watching.map(|canary| canary.name.as_str()).peekable();
            assert!(names.peek().is_some(), "no canary {start}");
            let silent: Vec<_> = names.filter(|name| !detecting.contains(name)).collect();
            assert!(silent.is_empty(), "{}: not detected by {silent:?}", judge.name);
        }
        idle.retain(|name| !detecting.contains(name));
    }
    // The form is judged for all elements at once: see below.
    idle.retain(|name| !name.starts_with("form/"));
    assert!(idle.is_empty(), "these detect nothing: {idle:?}");
}

#[test]
fn flawed_judges_of_forms_are_detected() {
    type Same = fn(&Array, &Array) -> bool;
    let flawed: [(&str, Same); 4] = [
        ("dtype", |x, y| (&x.shape, &x.bits) == (&y.shape, &y.bits)),
        ("shape", |x, y| (x.dtype, &x.bits) == (y.dtype, &y.bits)),
        ("missing elements", |x, y| {
            (x.dtype, &x.shape) == (y.dtype, &y.shape)
                && x.bits.iter().zip(&y.bits).all(|(x, y)| x == y)
        }),
        ("order", |x, y| {
            let sorted = |array: &Array| {
                let mut bits = array.bits.clone();
                bits.sort_unstable();
                bits
            };
            (x.dtype, &x.shape, sorted(x)) == (y.dtype, &y.shape, sorted(y))
        }),
    ];
    for (name, same) in flawed {
        let judge = |canary: &Canary, outputs: &[Array]| {
            let (right, _) =
                canary.answers.iter().find(|(_, is_right)| *is_right).expect("a right answer");
            right.len() == outputs.len() && right.iter().zip(outputs).all(|(x, y)| same(x, y))
        };
        let watch = if name == "order" { "swapped/" } else { "form/i32" };
        let mut watching = canaries().iter().filter(|canary| canary.name.starts_with(watch));
        assert!(watching.all(|canary| canary.check(&judge).is_err()), "{name}");
    }
    // Outputs that are missing, or too many.
    let judge = |canary: &Canary, outputs: &[Array]| {
        let right = &canary.answers[0].0;
        outputs.iter().zip(right).all(|(x, y)| x == y)
    };
    let form = canaries().iter().find(|canary| canary.name == "form/i32").expect("it is there");
    assert!(form.check(&judge).is_err());
}

/// Checks every canary by name, so that none is deleted or renamed.
#[test]
fn no_canary_is_missing() {
    let mut names: Vec<String> = Vec::new();
    let mut each = |titles: &[&str], dtypes: &[&str]| {
        let combinations =
            titles.iter().flat_map(|title| dtypes.iter().map(move |to| format!("{title}/{to}")));
        names.extend(combinations);
    };
    let ops = ["add", "sub", "mul", "div", "sqrt", "recip", "exp2", "log2", "sin", "sin-reduced"];
    each(&ops, &FLOATS);
    each(&["pow", "pow-large", "sum-4", "sum-64", "mean", "prod", "matmul"], &FLOATS);
    each(&["sum-cancelled", "chain"], &["f32", "f64"]);
    let ties = ["computed", "tie", "tie-up", "above-tie"];
    let from = |source: &str| ties.map(|title| format!("cast-{title}-{source}"));
    let (f64s, f32s) = (from("f64"), from("f32"));
    each(&f64s.each_ref().map(String::as_str), &["f16", "bf16", "f32"]);
    each(&f32s.each_ref().map(String::as_str), &["f16", "bf16"]);
    each(&["cast-rounds-i32"], &["f16", "f32"]);
    each(&["cast-rounds-i64"], &["bf16"]);
    each(&["cast-rounds-u64"], &["f64"]);
    each(&["nan-due", "number-due", "inexact-number-due", "infinity-due", "largest-due"], &FLOATS);
    each(&["subnormal"], &FLOATS);
    each(&["zero-sign-exact"], &["f16", "bf16"]);
    each(&["zero-sign-product"], &["f32", "f64"]);
    each(&["zero-sign-pole", "zero-sign-where", "zero-sign-free", "nan-due-max"], &["f32"]);
    each(&["nan-payload", "subnormal-rounded", "swapped", "swapped-inexact", "form"], &["f32"]);
    each(&["padding-zero", "where-nan-left-out", "unsigned-zeros", "long-sum"], &["f32"]);
    each(&["deviation-of-equals", "magnitude-near-zero", "square-near-zero"], &["f32"]);
    each(&["extreme-among-ties", "ranks-among-ties"], &["f32"]);
    each(&["sum-near-overflow", "prod-near-overflow", "prod-near-zero"], &["f32"]);
    each(&["nearest-quotient", "softmax-of-masked", "logarithms-of-masked"], &["f32"]);
    each(&["gates-of-computed", "waves-of-unknown", "never-negative"], &["f32"]);
    each(&["power-near-zero", "points-of-a-line", "variance-of-large"], &["f32"]);
    each(&["polynomial-of-matrix", "max-of-zero-and-below"], &["f32"]);
    each(&["exp", "log", "log10", "sigmoid", "tanh", "erf", "sinh", "cosh", "asinh"], &["f32"]);
    each(&["acosh", "atanh", "asin", "acos", "atan", "cos", "softsign", "hardsigmoid"], &["f32"]);
    each(&["hardswish", "silu", "quick_gelu", "gelu", "mish", "logsigmoid"], &["f32"]);
    each(&["softplus", "elu", "celu", "layernorm", "conv2d", "cross-entropy"], &["f32"]);
    each(&["attention", "gradient-tanh", "gradient-gelu", "gradient-mean"], &["f32"]);
    each(&["gradient-matmul", "gradient-conv2d", "gradient-prod", "gradient-softmax"], &["f32"]);
    each(&["gradient-layernorm", "gradient-cross-entropy", "gradient-attention"], &["f32"]);
    each(&["gradient-second", "gradient-mean-of-four", "gradient-of-ties"], &["f32"]);
    each(&["gradient-of-running-sum", "zero-times-computed", "product-with-zero"], &["f32"]);
    each(&["reflection-of-zero", "length-of-residual", "product-subnormal"], &["f32"]);
    each(&["mean-of-two", "fmod-of-computed", "clamp-of-overflow", "power-of-zero"], &["f32"]);
    each(&["zero-sign-underflow"], &["f32"]);
    each(&["never-below-zero", "distance-that-overflows"], &["bool"]);
    each(&["power-subnormal", "softmax-subnormal"], &["f16"]);
    each(&["gram-of-halves"], &["bf16"]);
    each(&["cast-near-tie-f32"], &["bf16"]);
    each(&["integer"], &["bool", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64"]);
    each(&["integer-sum-widens", "integer-division", "integer-from-float"], &["i32"]);
    each(&["swapped", "swapped-outputs", "form", "gather-outside", "undefined-alone"], &["i32"]);
    each(&["padding-value"], &["f16", "i16"]);
    let mut found: Vec<&str> = canaries().iter().map(|canary| canary.name.as_str()).collect();
    names.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, names);
    let is_complete = |canary: &Canary| {
        let has = |right| canary.answers.iter().any(|(_, is_right)| *is_right == right);
        has(true) && has(false)
    };
    assert!(canaries().iter().all(is_complete), "each has right and wrong answers");
}

#[test]
fn other_float_modes_are_detected() {
    type Operation = fn(f64, f64) -> f64;
    let (sum, product): (Operation, Operation) = (|x, y| x + y, |x, y| x * y);
    // Sums of 1 or -1 and a number that is too small to change them.
    let up: Operation = |x, y| if y < 0.0 { x } else { x.next_up() };
    let down: Operation = |x, y| if y < 0.0 { x.next_down() } else { x };
    let toward_zero: Operation = |x, y| if x * y < 0.0 { x.next_down() } else { x };
    let flushed = |x: f64| if x.is_subnormal() { 0.0 } else { x };
    assert_eq!(check_float_mode(), Ok(()));
    assert_eq!(float_mode(&sum, &product), Ok(()));
    for (found, fault) in [
        (float_mode(&up, &product), "rounded up"),
        (float_mode(&down, &product), "rounded down"),
        (float_mode(&toward_zero, &product), "rounded toward zero"),
        (float_mode(&sum, &|x, y| flushed(x * y)), "a subnormal result"),
        (float_mode(&sum, &|x, y| flushed(x) * flushed(y)), "a subnormal operand"),
    ] {
        let found = found.unwrap_err();
        assert!(found.contains(fault), "{fault}: {found}");
    }
}
