//! Every op of the tensor API end to end on the checked interpreter, and a sample on all available
//! devices. Expected values follow from the meaning of the op.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use gradiff::graph::{Arg, Buffer, Op};
use gradiff::{Conv, DType, Engine, Error, Interpolation, Tensor, UOp, keepdim};

fn engine() -> Engine {
    Engine::new("interp").expect("the interpreter needs nothing")
}

/// The tensor after the engine has computed it.
fn on(engine: &Engine, tensor: Tensor) -> Tensor {
    engine.realize(&[&tensor]).unwrap();
    tensor
}

/// Checks the text of a tensor, fused and unfused.
fn check(make: impl Fn() -> Result<Tensor, Error>, expected: &str) {
    let mut engine = engine();
    for (fuse, merge_views) in [(true, true), (false, true), (true, false)] {
        engine.schedule = gradiff::schedule::Options {
            fuse,
            merge_views,
            rows: merge_views,
            ..Default::default()
        };
        let text = on(&engine, make().unwrap()).to_text().unwrap();
        assert_eq!(text, expected, "fuse {fuse}, merge_views {merge_views}");
    }
}

fn check_error(result: Result<Tensor, Error>, parts: &[&str]) {
    let error = result.expect_err("it is refused").to_string();
    for part in parts {
        assert!(error.contains(part), "{error:?} does not contain {part:?}");
    }
}

fn ints(shape: &[i64], elements: &[i32]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap()
}

fn floats(elements: &[f32]) -> Tensor {
    Tensor::from_slice(&[elements.len() as i64], elements).unwrap()
}

fn grid() -> Tensor {
    ints(&[2, 3], &[1, 2, 3, 4, 5, 6])
}

#[test]
fn unary_ops_compute_their_meaning() {
    check(|| floats(&[1.0, -2.5, 0.0]).neg(), "[-1.0, 2.5, -0.0]");
    check(|| floats(&[0.0, 3.0, -1.0]).exp2(), "[1.0, 8.0, 0.5]");
    check(|| floats(&[1.0, 8.0, 0.0]).log2(), "[0.0, 3.0, -inf]");
    check(|| floats(&[0.0]).sin(), "[0.0]");
    check(|| floats(&[0.0, 2.25, -1.0]).sqrt(), "[0.0, 1.5, NaN]");
    check(|| floats(&[4.0, -0.5]).recip(), "[0.25, -2.0]");
    check(|| ints(&[2], &[0, 5]).not(), "[-1, -6]");
    check(|| Tensor::from_slice(&[2], &[true, false])?.not(), "[false, true]");
    check(|| ints(&[2], &[i32::MIN, 7]).neg(), "[-2147483648, -7]");
}

#[test]
fn binary_ops_compute_their_meaning() {
    let (x, y) = (|| ints(&[4], &[7, -7, 7, -7]), || ints(&[4], &[2, 2, -2, -2]));
    check(|| x().add(y()), "[9, -5, 5, -9]");
    check(|| x().sub(y()), "[5, -9, 9, -5]");
    check(|| x().mul(y()), "[14, -14, -14, 14]");
    check(|| x().cdiv(y()), "[3, -3, -3, 3]");
    check(|| x().cmod(y()), "[1, -1, 1, -1]");
    check(|| x().floordiv(y()), "[3, -4, -4, 3]");
    check(|| x().floormod(y()), "[1, 1, -1, -1]");
    check(|| x().maximum(y()), "[7, 2, 7, -2]");
    check(|| x().minimum(y()), "[2, -7, -2, -7]");
    check(|| x().cmplt(y()), "[false, true, false, true]");
    check(|| x().cmpne(7), "[false, true, false, true]");
    check(|| x().cmpeq(7), "[true, false, true, false]");
    check(|| x().and(y()), "[2, 0, 6, -8]");
    check(|| x().or(y()), "[7, -5, -1, -1]");
    check(|| x().xor(y()), "[5, -5, -7, 7]");
    check(|| x().shl(2), "[28, -28, 28, -28]");
    check(|| x().shr(1), "[3, -4, 3, -4]");
    check(|| floats(&[1.0, 0.0]).div(4), "[0.25, 0.0]");
    check(|| floats(&[2.0, 9.0]).pow(0.5)?.mul(floats(&[0.0, 1.0])), "[0.0, 3.0]");
    check(|| floats(&[f32::NAN, 1.0]).maximum(0), "[NaN, 1.0]");
    check(|| floats(&[f32::NAN, 1.0]).cmplt(2), "[false, true]");
    check(|| ints(&[2], &[1, 3]).div(2), "[0.5, 1.5]");
}

#[test]
fn integers_wrap_at_their_own_width() {
    check(|| Tensor::from_slice(&[2], &[100i8, -128])?.add(100), "[-56, -28]");
    check(|| Tensor::from_slice(&[1], &[200u8])?.mul(2), "[144]");
    check(|| Tensor::from_slice(&[1], &[200u8])?.mul(2)?.floordiv(3), "[48]");
    check(|| Tensor::from_slice(&[1], &[0u16])?.sub(1), "[65535]");
    check(|| Tensor::from_slice(&[1], &[u64::MAX])?.add(2), "[1]");
}

#[test]
fn operands_are_broadcast_and_promoted() {
    let column = || ints(&[2, 1], &[10, 20]);
    let row = || Tensor::from_slice(&[3], &[1u8, 2, 255]).unwrap();
    check(|| column().add(row()), "[[11, 12, 265], [21, 22, 275]]");
    let sum = column().add(Tensor::from_slice(&[3], &[1u32, 2, 3]).unwrap()).unwrap();
    assert_eq!((sum.dtype(), sum.shape()), (DType::I64, [2, 3].as_slice()));
    let mixed = Tensor::from_slice(&[1], &[-1i8]).unwrap().add(row()).unwrap();
    assert_eq!(mixed.dtype(), DType::I16);
    check(|| Tensor::from_slice(&[1], &[-1i8])?.add(row()), "[0, 1, 254]");
    check(|| Tensor::scalar(DType::F32, 2)?.mul(grid()), "[[2.0, 4.0, 6.0], [8.0, 10.0, 12.0]]");
    check(|| grid().cmplt(4)?.where_(grid(), 0), "[[1, 2, 3], [0, 0, 0]]");
    check(|| Tensor::select(true, grid(), 0), "[[1, 2, 3], [4, 5, 6]]");
    check(|| grid().mulacc(2, ints(&[3], &[1, 0, -1])), "[[3, 4, 5], [9, 10, 11]]");
}

#[test]
fn casts_convert_and_bitcasts_do_not() {
    check(|| floats(&[1.9, -1.9, 0.0]).cast(DType::I32), "[1, -1, 0]");
    check(|| floats(&[0.5, 0.0, f32::NAN]).cast(DType::Bool), "[true, false, true]");
    check(|| ints(&[2], &[300, -1]).cast(DType::U8), "[44, 255]");
    check(|| ints(&[2], &[2049, 2051]).cast(DType::F16), "[2048.0, 2052.0]");
    check(|| floats(&[1.0]).bitcast(DType::U32), "[1065353216]");
    check(|| ints(&[1], &[-1]).bitcast(DType::U32), "[4294967295]");
    check(|| floats(&[1.003_906_3]).cast(DType::BF16)?.cast(DType::F32), "[1.0]");
}

#[test]
fn reductions_reduce_axes_to_size_1() {
    check(|| grid().sum(keepdim(1)), "[[6], [15]]");
    check(|| grid().sum(keepdim([0, 1])), "[[21]]");
    check(|| grid().prod(keepdim(0)), "[[4, 10, 18]]");
    check(|| grid().max(keepdim(1)), "[[3], [6]]");
    check(|| grid().neg()?.max(keepdim([0, 1])), "[[-1]]");
    check(|| floats(&[f32::NAN, 1.0]).max(keepdim(0)), "[NaN]");
    check(|| Tensor::from_slice(&[3], &[200u8, 100, 1])?.sum(keepdim(0)), "[301]");
    check(|| Tensor::from_slice(&[3], &[true, true, false])?.sum(keepdim(0)), "[2]");
    check(|| floats(&[4096.0, 1.0, 1.0, 1.0]).cast(DType::F16)?.sum(keepdim(0)), "[4100.0]");
    check(|| Tensor::zeros(DType::F32, &[2, 0])?.sum(keepdim(1)), "[[0.0], [0.0]]");
    check(|| Tensor::zeros(DType::F32, &[2, 0])?.prod(keepdim(1)), "[[1.0], [1.0]]");
    check(|| Tensor::zeros(DType::I8, &[0])?.max(keepdim(0)), "[-128]");
    check(|| grid().sum(keepdim([])), "[[1, 2, 3], [4, 5, 6]]");
    check(|| grid().sum(keepdim(1))?.expand(&[2, 2])?.add(1)?.sum(keepdim(0)), "[[23, 23]]");
}

#[test]
fn movement_ops_move() {
    check(|| grid().reshape(&[3, 2]), "[[1, 2], [3, 4], [5, 6]]");
    check(|| grid().permute(&[1, 0]), "[[1, 4], [2, 5], [3, 6]]");
    check(|| grid().reshape(&[3, -1]), "[[1, 2], [3, 4], [5, 6]]");
    check(|| ints(&[2, 1], &[1, 2]).expand(&[2, 3]), "[[1, 1, 1], [2, 2, 2]]");
    check(|| ints(&[2, 1], &[1, 2]).expand(&[2, -1, 2]), "[[[1, 1], [2, 2]], [[1, 1], [2, 2]]]");
    check(|| ints(&[], &[7]).expand(&[2]), "[7, 7]");
    check(|| grid().repeat_interleave(0, 0), "[]");
    check(|| grid().pad(&[(1, 0), (0, 1)], 0), "[[0, 0, 0, 0], [1, 2, 3, 0], [4, 5, 6, 0]]");
    check(|| grid().pad(&[(0, 0), (1, 1)], 9), "[[9, 1, 2, 3, 9], [9, 4, 5, 6, 9]]");
    check(|| floats(&[f32::NAN]).pad(&[(1, 1)], -0.0), "[-0.0, NaN, -0.0]");
    check(|| floats(&[f32::INFINITY]).exp2()?.pad(&[(1, 0)], 0)?.add(1), "[1.0, inf]");
    check(|| grid().shrink(&[(0, 2), (1, 3)]), "[[2, 3], [5, 6]]");
    check(|| grid().shrink(&[(1, 1), (0, 3)]), "[]");
    check(|| grid().flip(&[0, 1]), "[[6, 5, 4], [3, 2, 1]]");
    check(|| grid().flip(&[1])?.reshape(&[3, 2])?.flip(&[0]), "[[5, 4], [1, 6], [3, 2]]");
    check(|| Ok(grid().contiguous().detach()), "[[1, 2, 3], [4, 5, 6]]");
}

#[test]
fn cat_and_gather_copy_bits() {
    let nan = f32::from_bits(0x7fa0_1234);
    check(
        || Tensor::cat(&[&grid(), &ints(&[1, 3], &[7, 8, 9])], 0),
        "[[1, 2, 3], [4, 5, 6], [7, 8, 9]]",
    );
    check(
        || Tensor::cat(&[&grid(), &ints(&[2, 1], &[7, 8]), &grid()], 1),
        "[[1, 2, 3, 7, 1, 2, 3], [4, 5, 6, 8, 4, 5, 6]]",
    );
    check(|| Tensor::cat(&[&Tensor::zeros(DType::I32, &[0])?, &ints(&[1], &[3])], 0), "[3]");
    check(
        || Tensor::cat(&[&floats(&[-0.0]), &floats(&[nan])], 0)?.bitcast(DType::U32),
        "[2147483648, 2141196852]",
    );
    check(|| grid().gather(1, &ints(&[2, 2], &[2, 0, -1, 3])), "[[3, 1], [0, 0]]");
    check(|| grid().gather(0, &Tensor::from_slice(&[1, 3], &[1u8, 0, 1])?), "[[4, 2, 6]]");
    check(
        || floats(&[-0.0, nan]).gather(0, &ints(&[3], &[1, 0, 2]))?.bitcast(DType::U32),
        "[2141196852, 2147483648, 0]",
    );
    check(
        || Tensor::from_slice(&[2], &[true, false])?.gather(0, &ints(&[2], &[0, 5])),
        "[true, false]",
    );
    check(|| Tensor::from_slice(&[2], &[-3i8, 4])?.gather(0, &ints(&[1], &[0])), "[-3]");
    check(
        || {
            Tensor::from_slice(&[1], &[-3i64])?
                .gather(0, &Tensor::from_slice(&[2], &[0u64, u64::MAX])?)
        },
        "[-3, 0]",
    );
    check(
        || {
            Tensor::from_slice(&[2], &[1.5f64, f64::MAX])?
                .cast(DType::F16)?
                .gather(0, &ints(&[1], &[0]))
        },
        "[1.5]",
    );
    check(
        || Tensor::arange(DType::I32, 0, 1, 300)?.gather(0, &Tensor::from_slice(&[1], &[-1i8])?),
        "[0]",
    );
}

#[test]
fn index_of_a_gather_is_computed_where_it_is_used() {
    let engine = Engine::new("jit").unwrap();
    let index = ints(&[2, 2], &[2, 0, -1, 1]);
    let gathered = || grid().gather(1, &index.add(1).unwrap()).unwrap();
    assert_eq!(engine.plan(&[&gathered()]).unwrap().kernel_count(), 1);
    // So is the index of the index, by loops of the same sizes.
    let twice = || grid().gather(1, &gathered());
    assert_eq!(engine.plan(&[&twice().unwrap()]).unwrap().kernel_count(), 1);
    check(twice, "[[1, 3], [0, 0]]");
}

#[test]
fn sorts_merge_long_axes() {
    for length in [511, 512, 513, 768, 769, 5000] {
        // Each number twice or more, with gaps.
        let numbers: Vec<i32> = (0..length).map(|i| i * 7919 % 251 - 100).collect();
        let mut expected: Vec<i32> = (0..length).collect();
        expected.sort_by_key(|position| numbers[*position as usize]);
        let x = Tensor::from_slice(&[i64::from(length)], &numbers).unwrap();
        assert_eq!(x.argsort(0, false).unwrap().to_vec::<i32>().unwrap(), expected, "{length}");
        expected.sort_by_key(|position| -numbers[*position as usize]);
        let first: Vec<i32> = expected[..3].to_vec();
        assert_eq!(x.topk(3, 0, true).unwrap().1.to_vec::<i32>().unwrap(), first, "{length}");
    }
    let long = Tensor::zeros(DType::F32, &[1 << 24]).unwrap();
    let error = long.sort(0, false).unwrap_err().to_string();
    assert!(error.contains("the elements times the size of the axis are 2^48 or more"), "{error}");
}

/// Checks that the `k` first elements and their positions are the beginning of a sort.
fn check_topk(engine: &Engine, x: &Tensor, axis: usize, ks: &[i64]) {
    let number = axis as i64;
    let bits = |tensor: &Tensor| -> Vec<u32> {
        tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
    };
    for largest in [false, true] {
        let sorted = x.sort(number, largest).unwrap();
        let order = x.argsort(number, largest).unwrap();
        engine.realize(&[&sorted, &order]).unwrap();
        for k in ks {
            let (values, positions) = x.topk(*k, number, largest).unwrap();
            let mut sizes = x.shape().to_vec();
            sizes[axis] = *k;
            let first_values = sorted.shrink_to(&sizes).unwrap();
            let first_positions = order.shrink_to(&sizes).unwrap();
            engine.realize(&[&values, &positions, &first_values, &first_positions]).unwrap();
            let name = format!("{k} of {x:?} along {axis}, largest {largest}");
            assert_eq!(values.shape(), sizes, "{name}");
            assert_eq!(
                positions.to_vec::<i32>().unwrap(),
                first_positions.to_vec::<i32>().unwrap(),
                "{name}"
            );
            assert_eq!(bits(&values), bits(&first_values), "{name}");
        }
    }
}

#[test]
fn topk_is_the_beginning_of_a_sort() {
    let engine = Engine::new("jit").unwrap();
    // Many are equal, also beside NaN of two kinds, infinities and zeros of both signs.
    let number = |i: i64| match i * 7919 % 101 {
        0 => f32::NAN,
        1 => f32::from_bits(0xffc0_0001),
        2 => f32::INFINITY,
        3 => f32::NEG_INFINITY,
        4 | 5 => -0.0,
        n => (n % 16 - 8) as f32,
    };
    let of_shape = |shape: &[i64]| {
        let count: i64 = shape.iter().product();
        let numbers: Vec<f32> = (0..count).map(number).collect();
        Tensor::from_slice(shape, &numbers).unwrap().to("jit").unwrap()
    };
    // Long axes, of which blocks are chosen for as many as an eighth of their elements.
    let cases: [(i64, &[i64]); 6] = [
        (512, &[0, 1, 64, 65, 512]),
        (513, &[0, 1, 2, 10, 64, 65, 513]),
        (520, &[1, 3, 64, 65]),
        (1021, &[1, 2, 127, 128]),
        (1024, &[1, 2, 4, 128]),
        (4099, &[1, 7, 128, 129, 512]),
    ];
    for (length, ks) in cases {
        check_topk(&engine, &of_shape(&[length]), 0, ks);
    }
    // Short axes, if there are many.
    for shape in [[128, 64], [32, 128], [33, 127], [3, 512]] {
        check_topk(&engine, &of_shape(&shape), 1, &[1, 2, 8, 9]);
    }
    check_topk(&engine, &of_shape(&[600, 3]), 0, &[1, 5, 75]);
    check_topk(&engine, &of_shape(&[2, 521, 2]), 1, &[1, 5, 65]);
    check_topk(&engine, &of_shape(&[0, 600]), 1, &[0, 3]);
}

#[test]
fn topk_of_few_sorts_no_whole_axis() {
    let engine = Engine::new("null").unwrap();
    let kernels = |shape: &[i64], k: i64, is_sorted: bool| {
        let numbers = Tensor::zeros(DType::I32, shape).unwrap();
        let positions = match is_sorted {
            true => numbers.contiguous().argsort(-1, true).unwrap(),
            false => numbers.contiguous().topk(k, -1, true).unwrap().1,
        };
        engine.plan(&[&positions]).unwrap().kernel_count()
    };
    let (few, sorted) = (kernels(&[1 << 20], 10, false), kernels(&[1 << 20], 10, true));
    assert!(3 * few < sorted, "{few} kernels, {sorted} of a sort");
}

#[test]
fn topk_of_long_axes_takes_all_dtypes() {
    let engine = Engine::new("jit").unwrap();
    let numbers: Vec<i64> = (0..600).map(|i| i * 7919 % 37 - 18).collect();
    let numbers = Tensor::from_slice(&[600], &numbers).unwrap().to("jit").unwrap();
    for dtype in DType::ALL {
        // Negative numbers are the largest unsigned ones.
        let x = on(&engine, numbers.cast(dtype).unwrap().contiguous());
        for largest in [false, true] {
            let sorted = on(&engine, x.sort(0, largest).unwrap()).to_text().unwrap();
            let order = on(&engine, x.argsort(0, largest).unwrap()).to_text().unwrap();
            for k in [1, 5, 40] {
                let (values, positions) = x.topk(k, 0, largest).unwrap();
                let values = on(&engine, values).to_text().unwrap();
                let positions = on(&engine, positions).to_text().unwrap();
                for (found, expected) in [(values, &sorted), (positions, &order)] {
                    let beginning = found.trim_end_matches(']');
                    let rest = expected.strip_prefix(beginning);
                    let is_beginning = rest.is_some_and(|rest| rest.starts_with(", "));
                    assert!(is_beginning, "{k} of {dtype}, largest {largest}: {found}");
                }
            }
        }
    }
    let equal = Tensor::from_slice(&[600], &[3i32; 600]).unwrap();
    assert_eq!(equal.topk(4, 0, true).unwrap().1.to_text().unwrap(), "[0, 1, 2, 3]");
    assert_eq!(equal.topk(4, 0, false).unwrap().1.to_text().unwrap(), "[0, 1, 2, 3]");
}

/// S27 a tensor of a list, a number, bools, bytes or an array, "which infers the dtype"; here it is
/// that of the Rust type. bf16 by way of f32.
#[test]
fn tensors_are_made_of_lists_numbers_and_arrays() {
    check(|| Tensor::new([[true], [false]]), "[[true], [false]]");
    check(|| Tensor::new(vec![[1, 2], [3, 4]]), "[[1, 2], [3, 4]]");
    check(|| Tensor::new(&[vec![0.5f32; 2]][..]), "[[0.5, 0.5]]");
    check(|| Tensor::new(2.5f64), "2.5");
    check(|| Tensor::from_bytes(DType::I16, &[2], &[1, 0, 255, 255]), "[1, -1]");
    check(|| Tensor::new([0.5f32, 3.0])?.cast(DType::BF16), "[0.5, 3.0]");
    let array = ndarray::Array2::from_shape_fn((2, 3), |(row, column)| (10 * row + column) as u8);
    check(|| Tensor::new(array.t()), "[[0, 10], [1, 11], [2, 12]]");
    check(|| Tensor::new([&array, &array])?.sum(1), "[[10, 12, 14], [10, 12, 14]]");
    let dtypes = [Tensor::new([true]), Tensor::new([1]), Tensor::new([1.0]), Tensor::new([1f32])];
    let dtypes = dtypes.map(|tensor| tensor.unwrap().dtype());
    assert_eq!(dtypes, [DType::Bool, DType::I32, DType::F64, DType::F32]);
    for (tensor, shape) in [
        (Tensor::new(Vec::<i32>::new()), &[0][..]),
        (Tensor::new([[0u8; 3]; 0]), &[0, 3]),
        (Tensor::new(vec![Vec::<f32>::new(); 2]), &[2, 0]),
        (Tensor::new(Vec::<Vec<[i8; 4]>>::new()), &[0, 0, 4]),
    ] {
        assert_eq!(tensor.unwrap().shape(), shape);
    }
    let ragged = Tensor::new(vec![vec![1, 2], vec![], vec![3, 4]]);
    check_error(ragged, &["a list of 0 items where the first has 2"]);
    let turned = ndarray::Array2::from_elem((3, 2), 0u8);
    check_error(Tensor::new([&array, &turned]), &["shape [3, 2] where the first has [2, 3]"]);
}

/// S30 "if the key yields an existing `LazyBuffer` from `lazycache`, that one will return": equal
/// computations are one node, data is not.
#[test]
fn equal_computations_are_one_node() {
    let two = || Tensor::full(DType::I32, &[], 2).unwrap();
    assert_eq!(two().uop(), two().uop());
    let x = ints(&[3], &[1, 2, 3]);
    assert_eq!(x.add(2).unwrap().uop(), x.add(two()).unwrap().uop());
    assert_ne!(x.uop(), ints(&[3], &[1, 2, 3]).uop());
}

#[test]
fn constructors_give_their_elements() {
    check(|| Tensor::full(DType::F16, &[2, 1], 1.5), "[[1.5], [1.5]]");
    check(|| Tensor::full(DType::I64, &[], 7), "7");
    check(|| Tensor::arange(DType::I32, 5, -2, 4), "[5, 3, 1, -1]");
    check(|| Tensor::arange(DType::U8, 250, 3, 4), "[250, 253, 0, 3]");
    check(|| Tensor::arange(DType::I64, 0, 1, 0), "[]");
    check(|| Tensor::ones(DType::Bool, &[2]), "[true, true]");
}

#[test]
fn composed_functions_compute_their_meaning() {
    let (a, b) = (|| ints(&[2, 2], &[1, 2, 3, 4]), || ints(&[2, 2], &[5, 6, 7, 8]));
    check(|| a().matmul(&b()), "[[19, 22], [43, 50]]");
    check(|| ints(&[2, 1, 2], &[1, 2, 3, 4]).matmul(&b()), "[[[19, 22]], [[43, 50]]]");
    check(|| floats(&[1.0, 2.0, 6.0]).mean(keepdim(0)), "[3.0]");
    check(|| ints(&[3], &[-1, 0, 2]).relu(), "[0, 0, 2]");
    check(|| floats(&[3.0, 3.0]).softmax(0), "[0.5, 0.5]");
    check(|| floats(&[0.0, 1000.0]).softmax(0)?.log(), "[-inf, 0.0]");
    check(|| floats(&[0.0, 1000.0]).log_softmax(0), "[-1000.0, 0.0]");
    check(|| floats(&[0.0]).sigmoid(), "[0.5]");
    // A constant, which needs no kernel.
    check(|| Tensor::scalar(DType::F32, 88.0)?.exp(), "1.6516363e38");
    // e^12 exceeds the largest f16.
    check(|| Tensor::scalar(DType::F16, -12.0)?.sigmoid()?.cmpne(0), "true");
    check(|| grid().transpose(-2, -1)?.unsqueeze(0)?.squeeze(0), "[[1, 4], [2, 5], [3, 6]]");
    assert_eq!(ints(&[1], &[3]).add(4).unwrap().item::<i32>().unwrap(), 7);
    let array = grid().to_ndarray::<i32>().unwrap();
    assert_eq!((array.shape(), array[[1, 2]]), ([2, 3].as_slice(), 6));
}

#[test]
fn elementwise_ops_are_fused_unless_realised() {
    let engine = engine();
    let a = Tensor::from_slice(&[4, 4], &[1f32; 16]).unwrap();
    let fused = a.add(4).unwrap().add(3).unwrap();
    assert_eq!(engine.plan(&[&fused]).unwrap().kernel_count(), 1);
    let split = a.add(4).unwrap().contiguous().add(3).unwrap();
    let plan = engine.plan(&[&split]).unwrap();
    let names: Vec<&str> = plan.items.iter().map(|item| item.linear.name.as_str()).collect();
    assert_eq!(names, ["E_4_4", "E_4_4n1"]);
    let first = a.add(4).unwrap();
    let mut plan = engine.plan(&[&first]).unwrap();
    let second = first.add(3).unwrap();
    plan.append(engine.plan(&[&second]).unwrap());
    assert_eq!(plan.kernel_count(), 2, "1 + 1 with realize between");
    let mut plans = [plan];
    engine.compile(&mut plans).unwrap();
    engine.run(&plans[0]).unwrap();
    assert_eq!(second.to_vec::<f32>().unwrap(), vec![8.0; 16]);
    assert_eq!(first.to_vec::<f32>().unwrap(), vec![5.0; 16]);
}

#[test]
fn equal_kernels_are_compiled_once_and_constants_distinguish_them() {
    let engine = engine();
    for value in [1, 2, 1] {
        let sums = on(&engine, grid().add(value).unwrap()).to_vec::<i32>().unwrap();
        assert_eq!(sums, (1..=6).map(|x| x + value).collect::<Vec<_>>());
    }
    assert_eq!(engine.cached_kernel_count(), 2);
}

#[test]
fn deep_graphs_are_computed() {
    let engine = engine();
    let mut deep = ints(&[2], &[0, 1]);
    for _ in 0..3_000 {
        deep = deep.add(1).unwrap();
    }
    assert_eq!(on(&engine, deep).to_text().unwrap(), "[3000, 3001]");
}

#[test]
fn negative_axes_count_from_the_last() {
    let x = Tensor::arange(DType::I32, 1, 1, 24).unwrap().reshape(&[2, 3, 4]).unwrap();
    let index = Tensor::from_slice(&[2, 3, 1], &[3, 2, 1, 0, 4, -1]).unwrap();
    type Call<'a> = &'a dyn Fn(i64) -> Result<Tensor, Error>;
    let calls: [Call; 10] = [
        &|axis| x.sum(axis),
        &|axis| x.prod(keepdim([axis, 0])),
        &|axis| x.max([axis]),
        &|axis| x.min([axis, 1]),
        &|axis| x.cast(DType::F32)?.mean(axis),
        &|axis| x.permute(&[axis, 0, 1]),
        &|axis| x.flip(&[axis, 1]),
        &|axis| Tensor::cat(&[&x, &x], axis),
        &|axis| x.gather(axis, &index),
        &|axis| x.argmax(axis),
    ];
    for call in calls {
        let (last, negative) = (call(2).unwrap(), call(-1).unwrap());
        assert_eq!(last.shape(), negative.shape());
        assert_eq!(last.to_text().unwrap(), negative.to_text().unwrap());
        check_error(call(3), &["axis 3", "axes are -3 to 2"]);
        check_error(call(-4), &["axis -4", "axes are -3 to 2"]);
    }
    assert_eq!(x.sum(..).unwrap().to_text().unwrap(), "300");
    assert_eq!(x.sum(keepdim(..)).unwrap().shape(), [1, 1, 1]);
    check_error(x.permute(&[0, 1]), &["each of the 3 axes must appear once"]);
}

#[test]
fn errors_say_what_is_allowed() {
    check_error(grid().reshape(&[4, 2]), &["[2, 3] to [4, 2]", "6 elements cannot become 8"]);
    check_error(grid().permute(&[0, 0]), &["[0, 0]", "twice"]);
    for shape in [&[-1, -1][..], &[-1, 4], &[0, -1], &[-1, -2], &[-1, i64::MAX, 2]] {
        check_error(grid().reshape(shape), &["one size may be -1", "divides 6"]);
    }
    check_error(grid().reshape(&[-2, -3]), &["the size -2 is negative"]);
    check_error(grid().expand(&[2, 4]), &["[2, 4]", "only sizes of 1 may change"]);
    check_error(grid().expand(&[3]), &["only sizes of 1 may change"]);
    check_error(grid().expand(&[-1, 2, 3]), &["the size -1 is negative"]);
    check_error(grid().repeat_interleave(-1, 0), &["-1 times", "0 or more"]);
    check_error(Tensor::from_slice(&[2, 3], &[1.0f32; 5]), &["f32[2, 3] from 5 elements", "6"]);
    check_error(grid().pad(&[(1, 1)], 0), &["2 axes"]);
    check_error(grid().pad(&[(i64::MAX, 1), (0, 0)], 0), &["too many"]);
    check_error(grid().shrink(&[(0, 3), (0, 1)]), &["start <= end <= size"]);
    check_error(grid().flip(&[2]), &["axes are -2 to 1"]);
    check_error(grid().add(ints(&[2], &[1, 2])), &["[2, 3]", "[2]", "equal or 1"]);
    check_error(grid().add(2.5), &["2.5", "i32", "cast"]);
    check_error(grid().add(1i64 << 40), &["does not fit"]);
    check_error(grid().exp2(), &["exp2 of i32", "floats"]);
    check_error(floats(&[1.0]).shl(1), &["integers"]);
    check_error(floats(&[1.0]).bitcast(DType::F64), &["one size"]);
    check_error(grid().where_(grid(), 0), &["bool"]);
    check_error(Tensor::select(true, 1, 2), &["one operand must be a tensor"]);
    check_error(Tensor::cat(&[], 0), &["one tensor"]);
    check_error(grid().gather(1, &floats(&[1.0])), &["integers"]);
    check_error(grid().sum(keepdim([0, 0])), &["twice"]);
    check_error(Tensor::full(DType::U8, &[1], 256), &["256", "fit"]);
    check_error(Tensor::full(DType::F32, &[1 << 20, 1 << 21], 1), &["at most"]);
    // Sizes besides a 0 are limited too: the product would overflow after a sum along that axis.
    let huge = [i64::MAX, i64::MAX, 0];
    for shape in [huge, [1 << 20, 0, 1 << 21]] {
        check_error(Tensor::full(DType::F32, &shape, 1), &["not 0", "1099511627776 at most"]);
        check_error(Tensor::from_bytes(DType::F32, &shape, &[]), &["not 0"]);
        check_error(Tensor::zeros(DType::F32, &[0]).unwrap().reshape(&shape), &["not 0"]);
    }
    let empty = Tensor::zeros(DType::F32, &[0, 3]).unwrap();
    let cases: [(&[i64], &[i64]); 3] = [(&[-1], &[0]), (&[2, -1], &[2, 0]), (&[-1, 3], &[0, 3])];
    for (to, shape) in cases {
        assert_eq!(empty.reshape(to).unwrap().shape(), shape);
    }
    check_error(empty.reshape(&[0, -1]), &["is not 0"]);
    let none = Tensor::zeros(DType::F32, &[1, 1, 0]).unwrap();
    check_error(none.expand(&huge), &["not 0"]);
    check_error(none.pad(&[(i64::MAX - 1, 0), (i64::MAX - 1, 0), (0, 0)], 0), &["not 0"]);
    let row = Tensor::zeros(DType::F32, &[1 << 20, 0]).unwrap();
    let columns = Tensor::zeros(DType::F32, &[0, 1 << 21]).unwrap();
    check_error(row.matmul(&columns), &["[1048576, 2097152]", "1099511627776 elements at most"]);
    check_error(Tensor::einsum("ij,jk->ik", &[&row, &columns]), &["1099511627776 elements"]);
    let rows = Tensor::zeros(DType::F32, &[1 << 20, 1 << 10]).unwrap();
    check_error(rows.matmul(&rows.transpose(0, 1).unwrap()), &["[1048576, 1048576, 1024]"]);
    let row = Tensor::zeros(DType::F32, &[1 << 20, 1]).unwrap();
    check_error(row.mul(columns.sum(keepdim(0)).unwrap()), &["1099511627776 elements at most"]);
    let text_of = |shape| Tensor::zeros(DType::F32, shape).unwrap().to_text();
    let error = text_of(&[1 << 40, 0]).unwrap_err().to_string();
    assert!(error.contains("1099511627776 elements or lists, 67108864 at most"), "{error}");
    assert_eq!(text_of(&[2, 0, 1 << 30]).unwrap(), "[[], []]");
    check_error(Tensor::full(DType::F32, &[-1], 1), &["-1"]);
    let images = |shape: &[i64]| Tensor::zeros(DType::F32, shape).unwrap();
    let groups = Conv::default().groups(i64::MAX);
    let transposed = images(&[1, 0, 3]).conv_transpose2d(&images(&[0, 3, 2]), &groups);
    check_error(transposed, &["too large"]);
    check_error(Tensor::arange(DType::F32, 0, 1, 3), &["integer dtypes"]);
    check_error(Tensor::from_bytes(DType::F32, &[2], &[0; 7]), &["7 bytes", "8 bytes"]);
    let huge = Tensor::full(DType::F32, &[1 << 40], 1).unwrap();
    let error = huge.to_bytes().expect_err("it is refused").to_string();
    assert!(error.contains("at most"), "{error}");
    assert!(grid().to_vec::<f32>().is_err(), "the dtype is not converted implicitly");
    assert!(Engine::new("abacus").is_err());
}

/// Products and pairs that no kernel stores may be more than the elements of a tensor.
#[test]
fn reductions_of_more_elements_than_a_tensor_has_are_planned() {
    let zeros = |shape: &[i64]| Tensor::zeros(DType::F32, shape).unwrap();
    let numbers = |count: i64| Tensor::arange(DType::I32, 0, 1, count).unwrap();
    let (count, square) = (1_100_000, zeros(&[2048, 2048]));
    let x = numbers(count);
    assert_eq!(x.index_select(&x, 0).unwrap().shape(), [count]);
    assert_eq!(x.interpolate(&[count], Interpolation::Nearest, false).unwrap().shape(), [count]);
    assert_eq!(x.sort(0, false).unwrap().shape(), [count]);
    assert_eq!(zeros(&[1 << 23, 512]).sort(1, false).unwrap().shape(), [1 << 23, 512]);
    let positions = numbers(300_000).floormod(2048).unwrap();
    assert_eq!(square.get((&positions, &positions)).unwrap().shape(), [300_000]);
    square.set((&positions, &positions), 1).unwrap();
    let mask = Tensor::full(DType::Bool, &[count], true).unwrap();
    assert_eq!(x.get(&mask).unwrap().shape(), [count]);
    let wide = zeros(&[10_400, 10_400]);
    let product = wide.matmul(&wide).unwrap();
    assert_eq!(product.sum(..).unwrap().gradient(&[&wide]).unwrap()[0].shape(), wide.shape());
    let image = zeros(&[64, 1024, 64, 64]);
    let found = image.conv2d(&zeros(&[8192, 1024, 1, 1]), &Conv::default()).unwrap();
    assert_eq!(found.shape(), [64, 8192, 64, 64]);
    // These matrices have no memory: nothing runs.
    let matrix = || {
        let arg = Arg::Buffer(Buffer::new(DType::F32, 1 << 28));
        let node = UOp::new(Op::Buffer, DType::F32, [], arg);
        Tensor::from_uop(node).unwrap().reshape(&[1 << 14, 1 << 14]).unwrap()
    };
    let engine = Engine::new("jit").unwrap();
    let mut plans = [engine.plan(&[&matrix().matmul(&matrix()).unwrap()]).unwrap()];
    assert!(1 <= plans[0].kernel_count());
    engine.compile(&mut plans).unwrap();
}

#[test]
fn available_devices_agree_on_a_sample() {
    for row in gradiff::runtime::devices() {
        if row.status.is_err() || row.name == "null" {
            continue;
        }
        let grid = || grid().to(row.name).unwrap();
        let turned = grid().flip(&[1]).unwrap().reshape(&[3, 2]).unwrap().flip(&[0]).unwrap();
        assert_eq!(turned.to_text().unwrap(), "[[5, 4], [1, 6], [3, 2]]", "{}", row.name);
        let product = grid().matmul(&grid().transpose(-2, -1).unwrap()).unwrap();
        assert_eq!(product.to_text().unwrap(), "[[14, 32], [32, 77]]", "{}", row.name);
        let wrapped = Tensor::from_slice(&[1], &[200u8]).unwrap().to(row.name).unwrap();
        let wrapped = wrapped.mul(2).unwrap().floordiv(3);
        assert_eq!(wrapped.unwrap().to_text().unwrap(), "[48]", "{}", row.name);
    }
}

/// The second graph takes the plan of the first, with buffers of its own.
#[test]
fn graphs_that_differ_in_buffers_alone_have_their_own_results() {
    let engine = engine();
    let data = |first: i32| Tensor::from_slice(&[3], &[first, first + 1, first + 2]).unwrap();
    let (a, b, c) = (data(1), data(10), data(100));
    let found: Vec<Tensor> = [(&a, &b), (&b, &c), (&a, &a), (&b, &a)]
        .map(|(x, y)| x.mul(2).unwrap().sub(y).unwrap().sum(0).unwrap())
        .to_vec();
    // Each is planned by itself; the third has one buffer, so it is another graph.
    for tensor in &found {
        engine.realize(&[tensor]).unwrap();
    }
    let texts: Vec<String> = found.iter().map(|tensor| tensor.to_text().unwrap()).collect();
    assert_eq!(texts, ["-21", "-237", "6", "60"]);
    assert_eq!(engine.cached_kernel_count(), 2);
}

/// Packing an operand keeps the buffers that a program asks for.
#[test]
fn contiguous_is_kept_beside_packed_operands() {
    let mut engine = engine();
    engine.schedule.pack = true;
    engine.schedule.thresholds = gradiff::graph::target::Thresholds::SMALL;
    let [x, y] = [(); 2].map(|()| Tensor::from_slice(&[16, 16], &[0.5f32; 256]).unwrap());
    let product = || x.matmul(&y.transpose(0, 1).unwrap()).unwrap();
    let count = |tensor: Tensor| engine.plan(&[&tensor.add(1).unwrap()]).unwrap().kernel_count();
    assert_eq!(count(product()) + 1, count(product().contiguous()));
    let packed = count(product());
    engine.schedule.pack = false;
    assert!(engine.plan(&[&product().add(1).unwrap()]).unwrap().kernel_count() < packed);
}

#[test]
fn packed_products_of_halves_are_rounded_in_strict_mode_alone() {
    use gradiff::rewrite::Mode;
    let (root, square) = (1.0 + 2f64.powi(-10), 1.0 + 2f64.powi(-9));
    // A matrix of f16 whose rows repeat two elements.
    let matrix = |rows: usize, row: [f64; 2]| {
        let elements: Vec<f64> = row.repeat(rows);
        Tensor::from_slice(&[rows as i64, 2], &elements)?.cast(DType::F16)
    };
    // The square of the root exceeds `square` by 2^-20, and rounds to it.
    for (mode, expected, kernels) in [(Mode::Strict, 0.0, 1), (Mode::Default, 2f64.powi(-20), 3)] {
        let mut engine = engine();
        engine.schedule.pack = true;
        engine.schedule.thresholds = gradiff::graph::target::Thresholds::SMALL;
        engine.kernel.rewrite.mode = mode;
        let [a, b] = [matrix(8, [root, -1.0]), matrix(16, [root, square])];
        let [a, b] = [on(&engine, a.unwrap()), on(&engine, b.unwrap())];
        let product = || a.matmul(&b.transpose(0, 1).unwrap()).unwrap();
        assert_eq!(engine.plan(&[&product()]).unwrap().kernel_count(), kernels, "{mode:?}");
        let product = on(&engine, product());
        let elements = product.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
        assert!(elements.iter().all(|element| *element == expected), "{mode:?}: {elements:?}");
    }
}

/// Computed by hashlib; `hash` as tinygrad 0.14.0 defines it.
#[test]
fn hashes_are_those_of_hashlib() {
    let hex = |x: &Tensor| -> String {
        x.to_vec::<u8>().unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    };
    let text = Tensor::from_slice(&[12], b"Hello World!").unwrap();
    assert_eq!(hex(&text.hash().unwrap()), "e02b050b7b6e9bb60f9c033633502ee3");
    let empty = Tensor::zeros(DType::U8, &[0]).unwrap();
    assert_eq!(
        hex(&empty.keccak(gradiff::Keccak::Sha3_224).unwrap()),
        "6b4e03423667dbb73b6e15454f0eb1abd4597f9a1b078e3f5b5a6bc7"
    );
}

#[test]
fn steps_that_are_subnormal_have_all_digits() {
    let check = |x: Tensor, step: f64, start: f64| {
        for device in ["interp", "jit", "c"] {
            let x = x.cast(DType::F64).unwrap().to(device).unwrap();
            for (index, found) in x.to_vec::<f64>().unwrap().into_iter().enumerate() {
                let expected = start + index as f64 * step;
                let error = (found - expected).abs();
                let bound = 4.0 * f64::from(f32::EPSILON) * expected.abs() + 1.5e-45;
                assert!(error <= bound, "{device}, {index}: {found:e}, not {expected:e}");
            }
        }
    };
    let linspace = |start: f64, stop: f64, count: i64| {
        let x = Tensor::linspace(DType::F32, start, stop, count).unwrap();
        check(x, (stop - start) / (count - 1) as f64, start);
    };
    linspace(0.0, 1e-36, 65_537);
    linspace(1e-40, -3e-40, 7);
    check(Tensor::arange_float(DType::F32, 0.0, 1e-40, 1e-43).unwrap(), 1e-43, 0.0);
    let x = Tensor::linspace(DType::F64, 0.0, 1e-305, 1001).unwrap().to("jit").unwrap();
    for (index, found) in x.to_vec::<f64>().unwrap().into_iter().enumerate() {
        let expected = index as f64 / 1000.0 * 1e-305;
        assert!((found - expected).abs() <= 4.0 * f64::EPSILON * expected, "{index}: {found:e}");
    }
}

/// The number of sweeps is fixed, so that they must converge for the slowest matrices, too.
#[test]
fn singular_values_of_larger_matrices_converge() {
    let mut state = 7u64;
    let mut random = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f64 / f64::from(1u32 << 23) - 1.0
    };
    let mut matrix = |rows: usize, columns: usize, kind: usize| -> Vec<f64> {
        let first: Vec<f64> = (0..rows).map(|_| random()).collect();
        let second: Vec<f64> = (0..columns).map(|_| random()).collect();
        let noise: Vec<f64> = (0..rows * columns).map(|_| random()).collect();
        let element = |at: usize| {
            let (row, column) = (at / columns, at % columns);
            match kind {
                0 => noise[at],
                // Nearly equal singular values, of rank 1, and graded ones.
                1 => f64::from(row == column) + 1e-7 * noise[at],
                2 => first[row] * second[column],
                _ => noise[at] * 10f64.powi(-(column as i32)),
            }
        };
        (0..rows * columns).map(element).collect()
    };
    for (rows, columns) in [(8, 8), (7, 9), (12, 5), (16, 16), (13, 13)] {
        for kind in 0..4 {
            let elements = matrix(rows, columns, kind);
            let shape = [rows as i64, columns as i64];
            let x = Tensor::from_slice(&shape, &elements).unwrap().to("jit").unwrap();
            let (u, s, vt) = x.svd(false).unwrap();
            let scaled = u.mul(&s).unwrap();
            let difference = scaled.matmul(&vt).unwrap().sub(&x).unwrap();
            let gram = u.transpose(-2, -1).unwrap().matmul(&u).unwrap();
            let count = rows.min(columns) as i64;
            let unit = gram.sub(Tensor::eye(DType::F64, count, count).unwrap()).unwrap();
            let largest = |x: &Tensor| {
                let elements = x.to_vec::<f64>().unwrap();
                elements.into_iter().fold(0.0f64, |largest, element| largest.max(element.abs()))
            };
            let (error, skew) = (largest(&difference), largest(&unit));
            assert!(error < 1e-12 && skew < 1e-12, "{shape:?}, {kind}: {error:e}, {skew:e}");
            let values = s.to_vec::<f64>().unwrap();
            assert!(values.is_sorted_by(|x, y| x >= y) && values.iter().all(|x| *x >= 0.0));
        }
    }
}

/// Columns whose squares underflow are reflected as precisely as larger ones.
#[test]
fn columns_far_below_the_largest_are_orthogonal() {
    for size in [3e-22f32, 1e-25] {
        let rows = [1.0, 0.0, 0.0, 0.0, size, 0.3 * size, 0.0, 0.7 * size, size];
        let x = Tensor::from_slice(&[3, 3], &rows).unwrap().to("jit").unwrap();
        let (q, r) = x.qr().unwrap();
        let unit = Tensor::eye(DType::F32, 3, 3).unwrap();
        let gram = q.transpose(0, 1).unwrap().matmul(&q).unwrap();
        let columns = x.abs().unwrap().max(keepdim(0)).unwrap();
        let error = q.matmul(&r).unwrap().sub(&x).unwrap().div(&columns).unwrap();
        for difference in [gram.sub(&unit).unwrap(), error] {
            let elements = difference.to_vec::<f32>().unwrap();
            assert!(elements.iter().all(|element| element.abs() < 1e-5), "{size}: {elements:?}");
        }
    }
}

#[test]
fn a_factor_of_a_matrix_without_elements_is_another_tensor() {
    let x = Tensor::zeros(DType::F32, &[0, 2]).unwrap();
    let (_, r) = x.qr().unwrap();
    r.requires_grad_(true).unwrap();
    assert_eq!(x.requires_grad(), None);
}

#[test]
fn positions_of_no_elements_have_the_fill() {
    let x = Tensor::zeros(DType::F32, &[0, 1 << 35]).unwrap();
    assert_eq!(x.nonzero_sized(1, -7).unwrap().to_text().unwrap(), "[[-7, -7]]");
}

/// Axes that are divided into blocks, and blocks of blocks.
#[test]
fn long_running_sums_of_powers_are_those_of_each_prefix() {
    const COUNT: usize = 1500;
    let element = |at: usize| match at {
        ..20 | 700..740 => f64::NEG_INFINITY,
        1400 => f64::INFINITY,
        1450 => f64::NAN,
        _ => 3.0 * (at * 7919 % 101) as f64 - 150.0 + at as f64 / 10.0,
    };
    let x: Vec<f64> = (0..COUNT).map(element).collect();
    let tensor = Tensor::from_slice(&[COUNT as i64], &x).unwrap().to("jit").unwrap();
    let found = tensor.logcumsumexp(0).unwrap().to_vec::<f64>().unwrap();
    for (last, found) in found.into_iter().enumerate() {
        let so_far = &x[..=last];
        let largest = so_far.iter().fold(f64::NEG_INFINITY, |largest, x| largest.max(*x));
        let expected = match largest {
            _ if 1450 <= last => f64::NAN,
            largest if largest.is_infinite() => largest,
            _ => largest + so_far.iter().map(|x| (x - largest).exp()).sum::<f64>().ln(),
        };
        let is_near = (found - expected).abs() <= 1e-12 * expected.abs().max(1.0);
        let is_same = found == expected || found.is_nan() && expected.is_nan();
        assert!(is_near || is_same, "{last}: {found}, {expected}");
    }
}
