//! Gradients: of each op and function against differences of its values, at kinks and ties by
//! definition, and the calls that compute and keep them.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use gradiff::graph::{Arg, Op};
use gradiff::view::ShapeTracker;
use gradiff::{Conv, DType, Engine, Error, Interpolation, Pool, Tensor, UOp, keepdim};

type Function = fn(&Tensor) -> Result<Tensor, Error>;

fn data(shape: &[i64], elements: &[f64]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap().to("jit").unwrap()
}

fn indices(shape: &[i64], elements: &[i32]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap().to("jit").unwrap()
}

fn floats(x: &Tensor) -> Vec<f64> {
    x.cast(DType::F64).unwrap().to_vec().unwrap()
}

fn sum(x: &Tensor) -> Tensor {
    x.sum(..).unwrap()
}

/// Weights that differ from element to element.
fn weights(like: &Tensor) -> Tensor {
    let elements: Vec<f64> = (0..like.size_elements()).map(|i| 1.0 + 0.25 * i as f64).collect();
    data(like.shape(), &elements)
}

/// Checks derivatives by central differences, in f64.
fn check_at(name: &str, shape: &[i64], elements: &[f64], f: Function) {
    let value = |elements: &[f64]| -> f64 {
        let y = f(&data(shape, elements)).unwrap();
        floats(&sum(&y.mul(weights(&y)).unwrap()))[0]
    };
    let x = data(shape, elements);
    let y = f(&x).unwrap_or_else(|error| panic!("{name}: {error}"));
    let found = y.gradient_by(&weights(&y), &[&x]).unwrap().remove(0);
    assert_eq!((found.shape(), found.dtype()), (x.shape(), x.dtype()), "{name}");
    for (index, found) in floats(&found).into_iter().enumerate() {
        const STEP: f64 = 1e-5;
        let moved = |step: f64| {
            let mut moved = elements.to_vec();
            moved[index] += step;
            value(&moved)
        };
        let expected = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        let error = (found - expected).abs();
        assert!(error <= 1e-6 * (1.0 + expected.abs()), "{name}, {index}: {found}, {expected}");
    }
}

/// Checks the derivatives of a function of each element.
fn check(name: &str, elements: &[f64], f: Function) {
    check_at(name, &[elements.len() as i64], elements, f);
}

const USUAL: [f64; 6] = [-2.3, -0.7, 0.1, 0.45, 1.3, 2.9];
const POSITIVE: [f64; 4] = [0.2, 0.9, 1.7, 6.5];
const INSIDE: [f64; 5] = [-0.95, -0.4, 0.1, 0.3, 0.8];

#[test]
fn functions_have_the_derivatives_of_their_values() {
    let functions: [(&str, &[f64], Function); 50] = [
        ("neg", &USUAL, |x| x.neg()),
        ("exp2", &USUAL, |x| x.exp2()),
        ("log2", &POSITIVE, |x| x.log2()),
        ("sin", &USUAL, |x| x.sin()),
        ("sqrt", &POSITIVE, |x| x.sqrt()),
        ("recip", &USUAL, |x| x.recip()),
        ("abs", &USUAL, |x| x.abs()),
        ("square", &USUAL, |x| x.square()),
        ("sign", &USUAL, |x| x.sign()?.mul(x)),
        ("floor", &USUAL, |x| x.floor()?.mul(x)),
        ("ceil", &USUAL, |x| x.ceil()?.mul(x)),
        ("trunc", &USUAL, |x| x.trunc()?.mul(x)),
        ("round", &USUAL, |x| x.round()?.mul(x)),
        ("clamp", &USUAL, |x| x.clamp(-1, 1)),
        ("relu", &USUAL, |x| x.relu()),
        ("relu6", &[-1.0, 3.0, 7.0], |x| x.relu6()),
        ("hardtanh", &USUAL, |x| x.hardtanh(-1, 1)),
        ("leaky_relu", &USUAL, |x| x.leaky_relu(0.1)),
        ("exp", &USUAL, |x| x.exp()),
        ("log", &POSITIVE, |x| x.log()),
        ("log10", &POSITIVE, |x| x.log10()),
        ("rsqrt", &POSITIVE, |x| x.rsqrt()),
        ("sigmoid", &USUAL, |x| x.sigmoid()),
        ("cos", &USUAL, |x| x.cos()),
        ("tan", &[-1.2, 0.3, 1.0], |x| x.tan()),
        ("sinh", &USUAL, |x| x.sinh()),
        ("cosh", &USUAL, |x| x.cosh()),
        ("tanh", &USUAL, |x| x.tanh()),
        ("asinh", &USUAL, |x| x.asinh()),
        ("acosh", &[1.2, 1.9, 7.0], |x| x.acosh()),
        ("atanh", &INSIDE, |x| x.atanh()),
        ("asin", &INSIDE, |x| x.asin()),
        ("acos", &INSIDE, |x| x.acos()),
        ("atan", &USUAL, |x| x.atan()),
        ("erf", &USUAL, |x| x.erf()),
        ("hardsigmoid", &[-3.5, -1.0, 2.0, 3.5], |x| x.hardsigmoid()),
        ("hardswish", &[-3.5, -1.0, 2.0, 3.5], |x| x.hardswish()),
        ("softsign", &USUAL, |x| x.softsign()),
        ("silu", &USUAL, |x| x.silu()),
        ("quick_gelu", &USUAL, |x| x.quick_gelu()),
        ("gelu", &USUAL, |x| x.gelu()),
        ("mish", &USUAL, |x| x.mish()),
        ("softplus", &USUAL, |x| x.softplus(2)),
        ("logsigmoid", &USUAL, |x| x.logsigmoid()),
        ("elu", &USUAL, |x| x.elu(0.7)),
        ("celu", &USUAL, |x| x.celu(0.7)),
        ("selu", &USUAL, |x| x.selu()),
        ("softmax", &USUAL, |x| x.softmax(0)),
        ("log_softmax", &USUAL, |x| x.log_softmax(0)),
        ("lerp", &USUAL, |x| x.lerp(&x.mul(x)?, 0.3)),
    ];
    for (name, elements, f) in functions {
        check(name, elements, f);
    }
}

#[test]
fn ops_of_two_tensors_have_the_derivatives_of_their_values() {
    fn second(x: &Tensor) -> Tensor {
        x.mul(0.7).unwrap().add(0.31).unwrap()
    }
    macro_rules! both {
        ($($name:literal: $f:expr;)*) => {$(
            check($name, &POSITIVE, |x| {
                let f: fn(&Tensor, &Tensor) -> Result<Tensor, Error> = $f;
                f(x, &second(x))
            });
            check($name, &POSITIVE, |x| {
                let f: fn(&Tensor, &Tensor) -> Result<Tensor, Error> = $f;
                f(&second(x), x)
            });
        )*};
    }
    both! {
        "add": |x, y| x.add(y);
        "sub": |x, y| x.sub(y);
        "mul": |x, y| x.mul(y);
        "div": |x, y| x.div(y);
        "pow": |x, y| x.pow(y);
        "maximum": |x, y| x.maximum(y);
        "minimum": |x, y| x.minimum(y);
        "mulacc": |x, y| x.mulacc(y, x);
        "logaddexp": |x, y| x.logaddexp(y);
        "copysign": |x, y| x.copysign(&y.sub(1)?);
        "fmod": |x, y| x.fmod(y);
        "where": |x, y| x.cmplt(1)?.where_(x, y);
        "masked_fill": |x, y| x.masked_fill(&y.cmplt(1)?, 3)?.mul(y);
        "cast": |x, y| x.cast(DType::F64)?.mul(y);
    }
}

#[test]
fn movements_and_reductions_have_the_derivatives_of_their_values() {
    const SHAPE: [i64; 2] = [2, 3];
    const ELEMENTS: [f64; 6] = [0.9, -1.2, 0.3, 2.1, -0.4, 1.6];
    let functions: [(&str, Function); 40] = [
        ("reshape", |x| x.reshape(&[3, 2])?.mul(&Tensor::full(DType::F64, &[3, 2], 2)?)),
        ("permute", |x| x.permute(&[1, 0])),
        ("expand", |x| x.reshape(&[2, 1, 3])?.expand(&[2, 4, 3])),
        ("broadcast", |x| x.reshape(&[2, 3, 1])?.mul(&x.reshape(&[2, 1, 3])?)),
        ("pad", |x| x.pad(&[(1, 0), (0, 2)], 3)),
        ("shrink", |x| x.shrink(&[(0, 1), (1, 3)])),
        ("flip", |x| x.flip(&[1])),
        ("cat", |x| Tensor::cat(&[x, &x.mul(x)?], 1)),
        ("contiguous", |x| Ok(x.contiguous())),
        ("to", |x| x.mul(x)?.to("interp")?.to(x.device()?)),
        ("sum", |x| x.sum(keepdim(1))),
        ("prod", |x| x.prod(keepdim(1))),
        ("prod of all", |x| x.prod(keepdim([0, 1]))),
        ("max", |x| x.max(keepdim(0))),
        ("min", |x| x.min(keepdim(1))),
        ("mean", |x| x.mean(keepdim([0, 1]))),
        ("cumsum", |x| x.cumsum(1)),
        ("cumprod", |x| x.cumprod(-1)),
        ("cummax", |x| x.cummax(1)),
        ("cummin", |x| x.cummin(0)),
        ("matmul", |x| x.matmul(&x.permute(&[1, 0])?)),
        ("gather", |x| x.gather(1, &indices(&[2, 4], &[0, 0, 2, 9, 1, 1, 1, -1]))),
        ("index_select", |x| x.index_select(&indices(&[3], &[2, 0, 2]), 1)),
        ("scatter", |x| {
            x.scatter(&indices(&[2, 2], &[0, 0, 2, 1]), &x.shrink(&[(0, 2), (0, 2)])?, 1)
        }),
        ("scatter_add", |x| {
            let index = indices(&[2, 2], &[0, 0, 2, 1]);
            x.scatter_add(&index, &x.shrink(&[(0, 2), (0, 2)])?.mul(2)?, 1)
        }),
        ("scatter_amax", |x| {
            let index = indices(&[2, 2], &[0, 0, 2, 1]);
            x.scatter_amax(&index, &x.shrink(&[(0, 2), (0, 2)])?.mul(3)?, 1)
        }),
        ("sort", |x| x.sort(1, true)),
        ("topk", |x| Ok(x.topk(2, 1, true)?.0)),
        ("roll", |x| x.roll(&[1], &[1])),
        ("repeat", |x| x.repeat(&[2, 2])),
        ("repeat_interleave", |x| x.repeat_interleave(2, 1)),
        ("stack", |x| Tensor::stack(&[x, x], 0)),
        ("split", |x| Ok(x.split(&[1, 2], 1)?.remove(1))),
        ("unfold", |x| x.unfold(1, 2, 1)),
        ("diagonal", |x| x.diagonal(0, 0, 1)),
        ("tril", |x| x.tril(0)),
        ("slice", |x| x.slice(&[(0, 2, 1), (2, -4, -2)])),
        ("pad_reflect", |x| x.pad_reflect(&[(0, 0), (2, 1)])),
        ("pad_circular", |x| x.pad_circular(&[(0, 0), (2, 1)])),
        ("softmax", |x| x.softmax(1)?.mul(x)),
    ];
    for (name, f) in functions {
        check_at(name, &SHAPE, &ELEMENTS, f);
    }
    let image: Vec<f64> = (0..2 * 2 * 5 * 4).map(|i| f64::from(i * 37 % 41) * 0.1 - 2.0).collect();
    let shape = [2, 2, 5, 4];
    check_at("conv2d", &shape, &image, |x| {
        let weight = x.shrink(&[(0, 2), (0, 2), (0, 2), (0, 3)])?;
        x.conv2d(&weight, &Conv::default().stride(2).padding(1))
    });
    check_at("conv_transpose2d", &shape, &image, |x| {
        let weight = x.shrink(&[(0, 2), (0, 1), (0, 2), (0, 3)])?;
        x.conv_transpose2d(&weight, &Conv::default().stride(2))
    });
    check_at("max_pool2d", &shape, &image, |x| x.max_pool2d(&Pool::new(3).stride(2).padding(1)));
    check_at("avg_pool2d", &shape, &image, |x| x.avg_pool2d(&Pool::new(2).stride(1).padding(1)));
    check_at("a product with zeros", &[4], &[2.0, 0.0, 3.0, -1.0], |x| x.prod(keepdim(0)));
    check_at("a product with two zeros", &[3], &[0.0, 0.0, 3.0], |x| x.prod(keepdim(0)));
    let long: Vec<f64> = (0..100).map(|i| f64::from(i * 29 % 101) * 0.02 + 0.1).collect();
    check_at("a long running maximum", &[100], &long, |x| x.cummax(0));
    check_at("a long running sum", &[100], &long, |x| x.cumsum(0));
}

/// The derivatives of the sum of `f(x)`, as text.
fn slopes(elements: &[f64], f: Function) -> String {
    let x = data(&[elements.len() as i64], elements);
    let y = f(&x).unwrap();
    let weights = Tensor::ones(y.dtype(), y.shape()).unwrap();
    y.gradient_by(&weights, &[&x]).unwrap()[0].add(0).unwrap().to_text().unwrap()
}

#[test]
fn first_elements_of_a_long_axis_have_their_derivatives() {
    let elements: Vec<f64> = (0..600).map(|i| f64::from(i * 7 % 600)).collect();
    let mut expected = vec![0.0; 600];
    (expected[257], expected[514]) = (1198.0, 1196.0);
    let squares: Function = |x| {
        let (values, _) = x.topk(2, 0, true)?;
        values.mul(&values)
    };
    assert_eq!(slopes(&elements, squares), format!("{expected:?}"));
}

#[test]
fn kinks_and_ties_have_the_derivatives_of_their_definition() {
    assert_eq!(slopes(&[0.0, -0.0], |x| x.relu()), "[0.0, 0.0]");
    assert_eq!(slopes(&[0.0, -0.0], |x| x.abs()), "[0.0, 0.0]");
    assert_eq!(slopes(&[0.0, 6.0], |x| x.relu6()), "[0.0, 0.0]");
    assert_eq!(slopes(&[-1.0, 1.0, 1.5], |x| x.clamp(-1, 1)), "[1.0, 1.0, 0.0]");
    assert_eq!(slopes(&[-1.0, 0.5, 1.0], |x| x.hardtanh(-1, 1)), "[0.0, 1.0, 0.0]");
    assert_eq!(slopes(&[-3.0, 3.0], |x| x.hardswish()), "[0.0, 1.0]");
    assert_eq!(slopes(&[0.0], |x| x.leaky_relu(0.5)), "[0.5]");
    assert_eq!(slopes(&[0.0], |x| x.elu(3)), "[3.0]");
    assert_eq!(slopes(&[2.0, 1.0], |x| x.maximum(2)), "[0.5, 0.0]");
    assert_eq!(slopes(&[2.0, 1.0], |x| x.minimum(2)), "[0.5, 1.0]");
    assert_eq!(slopes(&[2.0, 5.0, 5.0], |x| x.max(keepdim(0))), "[0.0, 0.5, 0.5]");
    assert_eq!(slopes(&[2.0, 2.0, 5.0], |x| x.min(0)), "[0.5, 0.5, -0.0]");
    // 2; 2 and 2; 5.
    assert_eq!(slopes(&[2.0, 2.0, 5.0], |x| x.cummax(0)), "[1.5, 0.5, 1.0]");
    let text = slopes(&[2.0, 2.0, 2.0], |x| {
        x.scatter_amax(&indices(&[2], &[0, 0]), &Tensor::full(DType::F64, &[2], 2)?, 0)
    });
    assert_eq!(text, "[0.3333333333333333, 1.0, 1.0]");
    assert_eq!(
        slopes(&[1e-320, 5.0], |x| x.cast(DType::I32)?.cast(DType::F64)?.add(x)),
        "[1.0, 1.0]"
    );
    assert_eq!(slopes(&[3.0], |x| x.mul(x.detach())), "[3.0]");
    assert_eq!(slopes(&[0.0, 2.0], |x| x.pow(0)), "[0.0, 0.0]");
    assert_eq!(slopes(&[0.0, 3.0], |x| x.pow(2)), "[0.0, 6.0]");
    assert_eq!(slopes(&[0.0, 1.0], |x| Tensor::zeros(DType::F64, &[])?.pow(x)), "[0.0, 0.0]");
    assert_eq!(slopes(&[1e300, -1e300], |x| x.gelu()), "[1.0, 0.0]");
    assert_eq!(slopes(&[1e300, -1e300], |x| x.silu()), "[1.0, 0.0]");
    assert_eq!(slopes(&[1e300, -800.0], |x| x.mish()), "[1.0, 0.0]");
    assert_eq!(slopes(&[800.0, -800.0], |x| x.tanh()), "[0.0, 0.0]");
    assert_eq!(slopes(&[800.0, -800.0], |x| x.sigmoid()), "[0.0, 0.0]");
    assert_eq!(slopes(&[], |x| x.mul(x)), "[]");
}

#[test]
fn values_that_are_used_several_times_add_up() {
    let x = data(&[], &[3.0]);
    let square = x.mul(&x).unwrap();
    let y = square.mul(&x).unwrap().add(&square).unwrap();
    assert_eq!(floats(&y.gradient(&[&x]).unwrap()[0]), [33.0]);
    let found = y.gradient(&[&x, &square, &y]).unwrap();
    assert_eq!(found.iter().map(|found| floats(found)[0]).collect::<Vec<_>>(), [33.0, 4.0, 1.0]);
    // Second and third derivatives of x^4, and of functions with a row of their own.
    let power = square.mul(&square).unwrap();
    let mut derivatives = vec![power];
    for _ in 0..3 {
        let last = derivatives.last().unwrap();
        derivatives.push(last.gradient(&[&x]).unwrap().remove(0));
    }
    let values: Vec<f64> = derivatives.iter().map(|value| floats(value)[0]).collect();
    assert_eq!(values, [81.0, 108.0, 108.0, 72.0]);
    let slope = |x: &Tensor| Ok(sum(&x.tanh()?.mul(&x.sin()?)?).gradient(&[x])?.remove(0));
    check("a second derivative", &[0.4], slope);
}

#[test]
fn narrow_floats_have_gradients_of_their_dtype() {
    for dtype in [DType::F16, DType::BF16, DType::F32] {
        let x = data(&[3], &[0.5, -1.0, 2.0]).cast(dtype).unwrap();
        let y = sum(&x.tanh().unwrap().mul(&x).unwrap());
        let found = y.gradient(&[&x]).unwrap().remove(0);
        assert_eq!(found.dtype(), dtype);
        let expected = [0.855_340_5, -1.181_568_6, 1.105_329_3];
        for (found, expected) in floats(&found).iter().zip(expected) {
            assert!((found - expected).abs() < 0.02, "{dtype}: {found}, {expected}");
        }
    }
}

#[test]
fn a_detached_value_keeps_no_computation() {
    let w = data(&[2], &[1.0, 3.0]).requires_grad_(true).unwrap();
    let loss = sum(&w.square().unwrap());
    loss.realize().unwrap();
    let without = {
        let _evaluation = Tensor::no_grad();
        loss.reshape(&[]).unwrap()
    };
    for value in [loss.detach(), without] {
        // The buffer, its shape, and the cut.
        assert!(value.uop().order().len() <= 3, "{:?}", value.uop());
        assert_eq!(floats(&value), [10.0]);
    }
    assert_eq!(floats(&loss.gradient(&[&w]).unwrap()[0]), [2.0, 6.0]);
}

#[test]
fn backward_keeps_gradients_of_parameters() {
    let w = data(&[2], &[1.0, 2.0]).requires_grad_(true).unwrap();
    let frozen = data(&[2], &[5.0, 7.0]);
    assert_eq!((w.requires_grad(), frozen.requires_grad()), (Some(true), None));
    let loss = || sum(&w.mul(&frozen).unwrap());
    assert_eq!((loss().requires_grad(), loss().detach().requires_grad()), (Some(true), None));
    assert!(w.grad().is_none());
    loss().backward().unwrap();
    loss().backward().unwrap();
    assert_eq!(floats(&w.grad().unwrap()), [10.0, 14.0]);
    assert!(frozen.grad().is_none());
    w.zero_grad();
    assert!(w.grad().is_none());
    // Realised or not, before and after its use, it is the same parameter.
    let before = loss();
    w.realize().unwrap();
    assert!(w.buffer().is_some() && w.requires_grad() == Some(true));
    before.add(loss()).unwrap().backward().unwrap();
    assert_eq!(floats(&w.grad().unwrap()), [10.0, 14.0]);
    assert_eq!(floats(&w), [1.0, 2.0]);
    w.requires_grad_(false).unwrap();
    assert_eq!(w.requires_grad(), Some(false));
    let error = loss().backward().unwrap_err().to_string();
    assert!(error.contains("requires a gradient"), "{error}");
    // A parameter that is gone needs no gradient; the others have theirs.
    let v = data(&[2], &[1.0, 1.0]).requires_grad_(true).unwrap();
    let loss = {
        let gone = data(&[2], &[3.0, 4.0]).requires_grad_(true).unwrap();
        sum(&gone.mul(&v).unwrap())
    };
    loss.backward().unwrap();
    assert_eq!(floats(&v.grad().unwrap()), [3.0, 4.0]);
}

#[test]
fn many_equal_halves_share_a_gradient() {
    let x = Tensor::zeros(DType::F16, &[70_000]).unwrap().contiguous().to("jit").unwrap();
    let index = indices(&[70_000], &[0; 70_000]);
    let first = Tensor::zeros(DType::F16, &[1]).unwrap().contiguous().to("jit").unwrap();
    let image = x.reshape(&[1, 70_000]).unwrap();
    let extremes = [
        x.max(keepdim(0)),
        x.min(keepdim(0)),
        image.max_pool2d(&Pool::new([1, 70_000])),
        first.scatter_amax(&index, &x, 0),
    ];
    for extreme in extremes {
        let found = floats(&sum(&extreme.unwrap()).gradient(&[&x]).unwrap()[0]);
        let is_share = |share: &f64| (share * 70_000.0 - 1.0).abs() < 1e-2;
        assert!(found.iter().all(is_share), "{}", found[0]);
    }
}

#[test]
fn gradients_are_tensors_of_their_own() {
    let a = data(&[1], &[2.0]).requires_grad_(true).unwrap();
    let b = data(&[1], &[3.0]).requires_grad_(true).unwrap();
    let weights = data(&[1], &[4.0]);
    let y = a.add(&b).unwrap();
    y.backward_by(&weights).unwrap();
    a.grad().unwrap().assign(0.0).unwrap();
    assert_eq!((floats(&b.grad().unwrap()), floats(&weights)), (vec![4.0], vec![4.0]));
    let found = y.gradient_by(&weights, &[&a, &b]).unwrap();
    found[0].assign(1.0).unwrap();
    assert_eq!((floats(&found[1]), floats(&weights)), (vec![4.0], vec![4.0]));
}

/// S37 the three states of `requires_grad`: unset, true and false; `_ctx` only "if `requires_grad`
/// is True".
#[test]
fn values_of_a_tensor_that_requires_no_gradient_have_none_of_it() {
    for is_computed in [false, true] {
        let w = data(&[1], &[2.0]).requires_grad_(true).unwrap();
        let early = sum(&w.mul(&w).unwrap());
        w.requires_grad_(false).unwrap();
        let frozen = sum(&w.mul(5).unwrap());
        assert_eq!(frozen.requires_grad(), None);
        if is_computed {
            frozen.realize().unwrap();
        }
        w.requires_grad_(true).unwrap();
        assert!(frozen.backward().is_err());
        let late = sum(&w.mul(3).unwrap());
        late.backward().unwrap();
        assert_eq!(floats(&w.grad().unwrap()), [3.0]);
        // What was made before belongs to the same tensor.
        early.backward().unwrap();
        assert_eq!(floats(&w.grad().unwrap()), [7.0]);
        w.assign(1.0).unwrap();
        assert_eq!(w.requires_grad(), Some(true));
        w.zero_grad();
        sum(&w.mul(&w).unwrap()).backward().unwrap();
        assert_eq!(floats(&w.grad().unwrap()), [2.0]);
    }
}

#[test]
fn results_without_elements_have_gradients() {
    let x = data(&[2], &[1.0, 2.0]).requires_grad_(true).unwrap();
    let results = [x.repeat(&[0]), x.repeat(&[3, 0]), x.unfold(0, 0, 1)];
    for result in results {
        let result = result.unwrap();
        assert_eq!(result.size_elements(), 0);
        x.zero_grad();
        sum(&result).backward().unwrap();
        assert_eq!(floats(&x.grad().unwrap()), [0.0, 0.0]);
    }
}

/// Values that are computed on the way, by reads or by an engine, pass the same gradients.
#[test]
fn gradients_flow_through_computed_values() {
    let w = data(&[2], &[1.0, 2.0]).requires_grad_(true).unwrap();
    let square = w.mul(&w).unwrap();
    assert_eq!(floats(&square), [1.0, 4.0]);
    square.realize().unwrap();
    gradiff::Engine::new("interp").unwrap().realize(&[&square]).unwrap();
    let depth = square.uop().order().len();
    square.realize().unwrap();
    assert_eq!(square.uop().order().len(), depth, "reads do not add up");
    assert!(square.buffer().is_some());
    let loss = sum(&square.mul(&square).unwrap());
    assert_eq!(floats(&loss), [17.0]);
    loss.backward().unwrap();
    assert_eq!(floats(&w.grad().unwrap()), [4.0, 32.0]);
    assert_eq!(floats(&loss.gradient(&[&square]).unwrap()[0]), [2.0, 8.0]);
    // Nothing else keeps its computation.
    let x = data(&[2], &[1.0, 2.0]);
    let square = x.mul(&x).unwrap();
    square.realize().unwrap();
    assert!(square.uop().order().len() <= 2);
}

#[test]
fn parameters_that_are_computed_alike_are_distinct() {
    let constant = || Tensor::full(DType::F64, &[], 2).unwrap().requires_grad_(true).unwrap();
    let (x, y) = (constant(), constant());
    let z = x.mul(&x).unwrap().mul(&y).unwrap();
    let found = z.gradient(&[&x, &y]).unwrap();
    assert_eq!((floats(&found[0]), floats(&found[1])), (vec![8.0], vec![4.0]));
    assert!(x.constant().is_some());
    x.realize().unwrap();
    let found = z.add(&x).unwrap().gradient(&[&x]).unwrap();
    assert_eq!(floats(&found[0]), [9.0]);
    // A computed tensor may be a parameter, too; gradients pass through it.
    let inner = y.mul(3).unwrap().requires_grad_(true).unwrap();
    let outer = inner.mul(&inner).unwrap();
    outer.backward().unwrap();
    assert_eq!(floats(&inner.grad().unwrap()), [12.0]);
    assert_eq!(floats(&y.grad().unwrap()), [36.0]);
}

#[test]
fn gradients_that_do_not_exist_are_refused() {
    let x = data(&[2], &[1.0, 2.0]);
    let integers = Tensor::from_slice(&[], &[1]).unwrap();
    let single = data(&[1], &[1.0]);
    let refused = [
        (x.gradient(&[&x]).map(drop), "one element"),
        (x.backward(), "one element"),
        (integers.gradient(&[&x]).map(drop), "only floats"),
        (sum(&x).gradient(&[&integers]).map(drop), "only floats"),
        (integers.requires_grad_(true).map(drop), "only floats"),
        (sum(&x).gradient(&[&single]).map(drop), "not computed from"),
        (sum(&x.detach()).gradient(&[&x]).map(drop), "not computed from"),
        (sum(&x.cmplt(1).unwrap().cast(DType::F64).unwrap()).gradient(&[&x]).map(drop), "not comp"),
        (x.gradient_by(&single, &[&x]).map(drop), "must be equal"),
        (sum(&x).backward(), "requires a gradient"),
    ];
    for (result, words) in refused {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}: expected {words}");
    }
    assert!(integers.requires_grad_(false).is_ok());
    let weights = Tensor::ones(DType::F64, &[]).unwrap();
    assert!(sum(&x).gradients_if_used(&weights, &[&single, &x]).unwrap()[0].is_none());
}

#[test]
fn long_chains_have_gradients() {
    let x = data(&[], &[1.0]);
    let mut y = x.clone();
    for _ in 0..2_000 {
        y = y.mul(0.999).unwrap().add(&x).unwrap();
    }
    let found = y.gradient(&[&x]).unwrap().remove(0);
    assert_eq!(found.shape(), [0i64; 0]);
}

/// Nodes that a program made by itself have errors, not panics.
#[test]
fn functions_of_hand_made_nodes_are_checked() {
    let tensor = |text: &str| Tensor::from_uop(gradiff::graph::text::parse_text(text).unwrap());
    let data = "%0 = buffer f32 #0 3\n%1 = buffer f32 #1 2\n%2 = const i64 1\n";
    for (function, words) in [
        ("function f32 %0 %1 nothing", "there is no function nothing"),
        ("function f32 %0 %0 %0 tanh", "tanh has 1 sources"),
        ("function f32 %0 %0 elu", "elu has 2 sources"),
    ] {
        let error = tensor(&format!("{data}%3 = {function}\n")).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
    let gradient = |text: &str| {
        let y = tensor(text).unwrap();
        let node = y.uop().src()[0].src()[1].clone();
        let x = Tensor::from_uop(node).unwrap();
        let weights = Tensor::ones(DType::F32, y.shape()).unwrap();
        y.gradient_by(&weights, &[&x]).map(drop)
    };
    let text = format!("{data}%3 = function f32 %0 %1 tanh\n%4 = neg f32 %3\n");
    assert!(gradient(&text).is_err());
    // A number beyond the rank, and a value that is no number.
    let data = "%0 = buffer f32 #0 3\n%1 = buffer f32 #1 3\n%2 = buffer i32 #2 3\n\
                %3 = buffer bool #3 3\n%4 = const i64 1\n";
    for axis in ["%4", "%2"] {
        for function in [
            format!("%1 {axis} cummax"),
            format!("%1 %2 {axis} gather"),
            format!("%1 %3 {axis} masked_select"),
            format!("%1 %2 %1 {axis} scatter_amax"),
            format!("%1 %2 %1 {axis} %3 scatter_extreme"),
        ] {
            let text = format!("{data}%5 = function f32 %0 {function}\n%6 = neg f32 %5\n");
            let error = gradient(&text).unwrap_err().to_string();
            assert!(error.contains("is not an axis"), "{function}: {error}");
        }
    }
    let data = "%0 = buffer f32 #0 3\n%1 = reshape f32 %0 [1, 1, 3]\n%2 = buffer f32 #1 1\n\
                %3 = reshape f32 %2 [1, 1, 1]\n%4 = const i64 0\n%5 = const i64 1\n";
    let convolution = |sources: &str| {
        let text = format!("{data}%6 = function f32 {sources} convolution\n%7 = neg f32 %6\n");
        gradient(&text)
    };
    assert!(convolution("%1 %1 %3 %5 %5 %5").is_ok());
    // A value and weights of rank 1, and no groups, stride or dilation.
    for sources in [
        "%0 %1 %3 %5 %5 %5",
        "%1 %1 %2 %5",
        "%1 %1 %3 %4 %5 %5",
        "%1 %1 %3 %5 %4 %5",
        "%1 %1 %3 %5 %5 %4",
    ] {
        let error = convolution(sources).unwrap_err().to_string();
        assert!(error.contains("not those of a convolution"), "{sources}: {error}");
    }
    // A view within its buffer, and a longer one.
    for size in [6, 7] {
        let buffer = gradiff::graph::text::parse_text("%0 = buffer f32 #0 6\n").unwrap();
        let arg = Arg::View(ShapeTracker::from_shape(&[size]).unwrap());
        let view = UOp::new(Op::View, DType::F32, [buffer], arg);
        let error = Tensor::from_uop(view).unwrap_err().to_string();
        assert!(error.contains("view is no op of tensor level"), "{error}");
    }
    // A parameter with the number of another tensor's is none of it.
    let w = data64().requires_grad_(true).unwrap();
    let number = format!("{:?}", w.uop()).rsplit(' ').next().unwrap().to_string();
    let text = format!("%0 = buffer f32 #0 1\n%1 = parameter f32 %0 {number}\n");
    assert!(tensor(&text).unwrap().backward().is_err());
    assert!(w.grad().is_none());
}

fn data64() -> Tensor {
    data(&[3], &[1.0, 2.0, 3.0])
}

#[test]
fn tensors_computed_without_gradients_require_none() -> Result<(), Error> {
    let w = Tensor::from_slice(&[2], &[3f32, 4.0])?.requires_grad_(true)?;
    let before = w.mul(2)?;
    let (output, parameter, realised) = {
        let _evaluation = Tensor::no_grad();
        let parameter = w.mul(5)?.requires_grad_(true)?;
        let realised = before.add(1)?;
        assert_eq!(realised.to_vec::<f32>()?, [7.0, 9.0]);
        (before.mul(&w)?.sum(..)?, parameter, realised)
    };
    assert_eq!((output.requires_grad(), realised.requires_grad()), (None, None));
    assert_eq!(output.item::<f32>()?, 50.0);
    assert!(output.backward().is_err(), "no parameter is below");
    // Computed before, or again after, gradients flow; and to parameters of the scope.
    before.mul(&w)?.add(&output)?.mul(&parameter)?.sum(..)?.backward()?;
    assert_eq!(w.grad().expect("it is used").to_vec::<f32>()?, [180.0, 320.0]);
    assert_eq!(parameter.grad().expect("it is used").to_vec::<f32>()?, [68.0, 82.0]);
    Ok(())
}

/// Axes that are divided into blocks, and blocks of blocks.
#[test]
fn gradients_of_long_running_functions_are_those_of_each_prefix() {
    const COUNT: usize = 1500;
    let shape = [COUNT as i64];
    let elements = |number: fn(usize) -> f64| (0..COUNT).map(number).collect::<Vec<f64>>();
    let weights = elements(|at| 1.0 + (at % 4) as f64);
    let gradient = |elements: &[f64], f: Function| {
        let x = data(&shape, elements);
        let y = f(&x).unwrap();
        floats(&y.gradient_by(&data(&shape, &weights), &[&x]).unwrap()[0])
    };
    let check = |name: &str, found: &[f64], expected: &[f64]| {
        for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
            let error = (found - expected).abs();
            assert!(error <= 1e-10 * (1.0 + expected.abs()), "{name} {at}: {found}, {expected}");
        }
    };
    // Equal maxima that are many blocks apart, until NaN.
    let mut x = elements(|at| (at * 7919 % 13 + at / 600) as f64);
    x[1300] = f64::NAN;
    let mut expected = vec![0.0; COUNT];
    for last in 0..1300 {
        let largest = x[..=last].iter().fold(f64::NEG_INFINITY, |largest, x| largest.max(*x));
        let equal: Vec<usize> = (0..=last).filter(|at| x[*at] == largest).collect();
        equal.iter().for_each(|at| expected[*at] += weights[last] / equal.len() as f64);
    }
    check("cummax", &gradient(&x, |x| x.cummax(0)), &expected);
    let turned: Vec<f64> = x.iter().map(|x| -x).collect();
    check("cummin", &gradient(&turned, |x| x.cummin(0)), &expected);
    // The share of each power in the sum so far; that of no power has no derivative.
    let mut x = elements(|at| 3.0 * (at * 7919 % 101) as f64 - 150.0 + at as f64 / 10.0);
    x[..20].fill(f64::NEG_INFINITY);
    let mut expected = vec![0.0; COUNT];
    for last in 20..COUNT {
        let largest = x[..=last].iter().fold(f64::NEG_INFINITY, |largest, x| largest.max(*x));
        let powers: Vec<f64> = x[..=last].iter().map(|x| (x - largest).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.iter().zip(&mut expected).for_each(|(power, share)| {
            *share += weights[last] * power / sum;
        });
    }
    let found = gradient(&x, |x| x.logcumsumexp(0));
    check("logcumsumexp", &found[20..], &expected[20..]);
}

/// No loop runs over an axis for each of its elements.
#[test]
fn work_of_running_functions_grows_with_the_axis() {
    const COUNT: usize = 100_000;
    let x = Tensor::from_slice(&[COUNT as i64], &vec![1.5f32; COUNT]).unwrap();
    let y = x.cummax(0).unwrap();
    let gradient = y.gradient_by(&x, &[&x]).unwrap().remove(0);
    let sums = x.logcumsumexp(0).unwrap();
    let shares = sums.gradient_by(&x, &[&x]).unwrap().remove(0);
    let engine = Engine::new("jit").unwrap();
    for tensor in [gradient, sums, shares] {
        let plan = engine.plan(&[&tensor]).unwrap();
        let ops: u64 = plan.items.iter().map(|kernel| kernel.linear.estimates().ops).sum();
        assert!(1 <= plan.kernel_count() && ops < 20_000 * COUNT as u64, "{ops} ops");
    }
}

/// The gradient of an element is a sum over its copies alone.
#[test]
fn work_of_repeated_elements_grows_with_them() {
    const COUNT: i64 = 3000;
    for mode in [Interpolation::Nearest, Interpolation::NearestExact] {
        let x = Tensor::from_slice(&[COUNT], &vec![1.5f32; COUNT as usize]).unwrap();
        let y = x.interpolate(&[3 * COUNT], mode, false).unwrap();
        let weights = Tensor::arange(DType::I32, 0, 1, 3 * COUNT).unwrap();
        let weights = weights.cast(DType::F32).unwrap();
        let gradient = y.gradient_by(&weights, &[&x]).unwrap().remove(0);
        assert_eq!(floats(&gradient)[..3], [3.0, 12.0, 21.0], "{mode:?}");
        let plan = Engine::new("jit").unwrap().plan(&[&gradient.add(0.5).unwrap()]).unwrap();
        let ops: u64 = plan.items.iter().map(|kernel| kernel.linear.estimates().ops).sum();
        assert!(ops < 20 * COUNT as u64, "{mode:?}: {ops} ops");
    }
}

#[test]
fn gradients_of_a_constant_are_added_across_devices() {
    let w = Tensor::zeros(DType::F32, &[2]).unwrap().requires_grad_(true).unwrap();
    let part = |device: &str, elements: &[f32]| {
        let x = Tensor::from_slice(&[2], elements).unwrap().to(device).unwrap();
        sum(&w.to(device).unwrap().mul(&x).unwrap())
    };
    let (a, b) = (part("jit", &[1.0, 2.0]), part("interp", &[10.0, 20.0]));
    let both = a.to("interp").unwrap().add(&b).unwrap();
    assert_eq!(floats(&both.gradient(&[&w]).unwrap()[0]), [11.0, 22.0]);
    for loss in [&both, &a, &b] {
        loss.backward().unwrap();
    }
    assert_eq!(floats(&w.grad().unwrap()), [22.0, 44.0]);
}
