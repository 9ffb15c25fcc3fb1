//! Indices of tensors, against a naive selection of elements.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use gradiff::{DType, Ellipsis, Engine, Error, Index, NewAxis, Tensor, stepped};

fn numbered(shape: &[i64]) -> Tensor {
    Tensor::arange(DType::I32, 0, 1, shape.iter().product()).unwrap().reshape(shape).unwrap()
}

fn integers(shape: &[i64], elements: &[i64]) -> Tensor {
    Tensor::from_slice(shape, elements).unwrap()
}

fn check(found: Result<Tensor, Error>, expected: &str) {
    assert_eq!(found.unwrap().to_text().unwrap(), expected);
}

fn check_error(found: Result<Tensor, Error>, words: &str) {
    let error = found.expect_err("it is refused").to_string();
    assert!(error.contains(words), "{error:?} does not contain {words:?}");
}

/// The positions of a slice as Python defines them, by looking at each position in turn.
fn positions(size: i64, start: Option<i64>, stop: Option<i64>, step: i64) -> Vec<i64> {
    let from_end = |at: i64| if at < 0 { at + size } else { at };
    let (first, end) = match 0 < step {
        true => (start.map_or(0, |at| from_end(at).max(0)), stop.map_or(size, from_end)),
        false => (
            start.map_or(size - 1, |at| from_end(at).min(size - 1)),
            stop.map_or(-1, |at| from_end(at).max(-1)),
        ),
    };
    let mut found = Vec::new();
    let mut at = first;
    while (0..size).contains(&at) && (at - end) * step.signum() < 0 {
        found.push(at);
        at += step;
    }
    found
}

#[test]
fn slices_are_those_of_python() {
    for size in [0, 1, 4] {
        let x = numbered(&[size]);
        let ends: Vec<Option<i64>> = [None].into_iter().chain((-6..=6).map(Some)).collect();
        for step in [1, 2, 3, 7, -1, -2, -5] {
            for (start, stop) in
                ends.iter().flat_map(|start| ends.iter().map(move |stop| (start, stop)))
            {
                let (start, stop) = (*start, *stop);
                let found = x.get(Index::Slice { start, stop, step }).unwrap();
                let expected: Vec<i32> =
                    positions(size, start, stop, step).iter().map(|at| *at as i32).collect();
                assert_eq!(found.shape(), [expected.len() as i64]);
                let slice = format!("{start:?}:{stop:?}:{step} of {size}");
                assert_eq!(found.to_vec::<i32>().unwrap(), expected, "{slice}");
            }
        }
    }
}

#[test]
fn axes_are_removed_added_and_left() {
    let x = numbered(&[2, 3, 4]);
    check(x.get((1, 2, 3)), "23");
    check(x.get((-1, -1, -1)), "23");
    check(x.get((0, 1)), "[4, 5, 6, 7]");
    check(x.get(1), "[[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22, 23]]");
    check(x.get((Ellipsis, 0)), "[[0, 4, 8], [12, 16, 20]]");
    check(x.get((1, Ellipsis, 0)), "[12, 16, 20]");
    check(x.get((.., 1, ..2)), "[[4, 5], [16, 17]]");
    check(x.get((0, .., 1..=2)), "[[1, 2], [5, 6], [9, 10]]");
    check(x.get((0, 0, stepped(.., -1))), "[3, 2, 1, 0]");
    check(x.get((0, stepped(-1.., -2), 0)), "[8, 0]");
    let down = |first: i64, last: i64| x.get((0, 0, stepped(first..=last, -1)));
    check(down(3, 1), "[3, 2, 1]");
    check(down(3, 0), "[3, 2, 1, 0]");
    check(down(-1, -3), "[3, 2, 1]");
    check(down(i64::MAX, i64::MIN), "[3, 2, 1, 0]");
    check(x.get((0, 0, stepped(..=0, -2))), "[3, 1]");
    check(x.get((0, 0, stepped(1..=3, 2))), "[1, 3]");
    let from = |first: i64, step: i64| {
        stepped((std::ops::Bound::Excluded(first), std::ops::Bound::Unbounded), step)
    };
    check(x.get((0, 0, from(1, 1))), "[2, 3]");
    check(x.get((0, 0, from(2, -1))), "[1, 0]");
    check(x.get((0, 0, from(-1, 1))), "[]");
    check(x.get((0, 0, from(0, -1))), "[]");
    check(x.get((0, 0, stepped(..=-1, 3))), "[0, 3]");
    check(x.get((0, 0, stepped(1..3, -1))), "[]");
    assert_eq!(x.get((NewAxis, 0, NewAxis, Ellipsis, NewAxis)).unwrap().shape(), [1, 1, 3, 4, 1]);
    assert_eq!(x.get((0, 1, 2, Ellipsis, NewAxis)).unwrap().shape(), [1]);
    assert_eq!(x.get((.., 5.., ..)).unwrap().shape(), [2, 0, 4]);
    assert_eq!(x.get(Vec::new()).unwrap().shape(), [2, 3, 4]);
    check(numbered(&[1]).get(0), "0");
    check(numbered(&[1]).get(0).unwrap().get((Ellipsis, NewAxis)), "[0]");
}

#[test]
fn tensors_select_positions() {
    let x = numbered(&[2, 3, 4]);
    let rows = integers(&[2], &[1, -2]);
    check(x.get((&rows, 0, 0)), "[12, 0]");
    check(x.get((0, &integers(&[2, 1], &[2, 0]), 1)), "[[9], [1]]");
    // Two tensors next to each other take the first of their axes.
    let columns = integers(&[2, 2], &[0, 1, 2, 3]);
    check(x.get((0, &integers(&[2], &[0, 2]), &columns)), "[[0, 9], [2, 11]]");
    check(x.get((.., &integers(&[2], &[0, 2]), &integers(&[2], &[3, 1]))), "[[3, 9], [15, 21]]");
    // Apart from each other, their shape comes first.
    let (first, last) = (integers(&[2], &[1, 0]), integers(&[2], &[3, 0]));
    check(x.get((&first, .., &last)), "[[15, 19, 23], [0, 4, 8]]");
    // Positions outside the axis give 0, whatever the width of the index.
    check(
        numbered(&[3]).add(7).unwrap().get(integers(&[4], &[3, -4, 2, i64::MIN])),
        "[0, 0, 9, 0]",
    );
    let high = Tensor::from_slice(&[3], &[u64::MAX, 1 << 63, 2]).unwrap();
    check(numbered(&[3]).add(7).unwrap().get(high), "[0, 0, 9]");
    let bytes = Tensor::from_slice(&[3], &[255u8, 1, 128]).unwrap();
    check(numbered(&[3]).add(7).unwrap().get(bytes), "[0, 8, 0]");
    assert_eq!(x.get(integers(&[0], &[])).unwrap().shape(), [0, 3, 4]);
    assert_eq!(x.get(integers(&[], &[1])).unwrap().shape(), [3, 4]);
    let wide = numbered(&[2, 3, 4]).get((NewAxis, &rows, .., &rows)).unwrap();
    assert_eq!(wide.shape(), [2, 1, 3]);
}

#[test]
fn masks_select_elements() {
    let x = numbered(&[2, 3]);
    check(x.get(x.cmpeq(4).unwrap()), "[4]");
    check(x.get(x.cmplt(0).unwrap()), "[]");
    let rows = Tensor::from_slice(&[2], &[false, true]).unwrap();
    check(x.get((&rows, 1)), "[4]");
    check(x.get((.., Tensor::from_slice(&[3], &[true, false, true]).unwrap())), "[[0, 2], [3, 5]]");
    check(x.get((rows, stepped(.., -1))), "[[5, 4, 3]]");
}

#[test]
fn elements_are_replaced() {
    let changed = |change: &dyn Fn(&Tensor) -> Result<Tensor, Error>| {
        let x = numbered(&[2, 3]);
        let before = x.add(0).unwrap();
        let returned = change(&x).unwrap();
        assert_eq!(returned.to_text().unwrap(), x.to_text().unwrap());
        assert_eq!(before.to_text().unwrap(), "[[0, 1, 2], [3, 4, 5]]");
        x.to_text().unwrap()
    };
    assert_eq!(changed(&|x| x.set((0, 1), 9)), "[[0, 9, 2], [3, 4, 5]]");
    assert_eq!(
        changed(&|x| x.set((.., -1), integers(&[2], &[7, 8]).cast(DType::I32)?)),
        "[[0, 1, 7], [3, 4, 8]]"
    );
    assert_eq!(changed(&|x| x.set(Ellipsis, x.get(stepped(.., -1))?)), "[[3, 4, 5], [0, 1, 2]]");
    assert_eq!(changed(&|x| x.set((NewAxis, 0), x.get((1, NewAxis))?)), "[[3, 4, 5], [3, 4, 5]]");
    assert_eq!(
        changed(&|x| x.set((.., stepped(.., -2)), x.get((.., ..2))?)),
        "[[1, 1, 0], [4, 4, 3]]"
    );
    // Of several values for an element the last one stays, and positions outside are ignored.
    let twice = integers(&[3], &[1, 1, 5]);
    let values = integers(&[3], &[7, 8, 9]).cast(DType::I32).unwrap();
    assert_eq!(changed(&|x| x.set((0, &twice), &values)), "[[0, 8, 2], [3, 4, 5]]");
    assert_eq!(changed(&|x| x.set(x.cmplt(3)?, -1)), "[[-1, -1, -1], [3, 4, 5]]");
    assert_eq!(changed(&|x| x.set(x.cmplt(0)?, -1)), "[[0, 1, 2], [3, 4, 5]]");
}

#[test]
fn elements_that_a_mask_selects_are_replaced() {
    let values = |shape: &[i64], elements: &[i64]| integers(shape, elements).cast(DType::I32);
    let changed = |change: &dyn Fn(&Tensor) -> Result<Tensor, Error>| {
        let x = numbered(&[2, 3]);
        change(&x).unwrap();
        x.to_text().unwrap()
    };
    let found = changed(&|x| x.set(x.cmplt(3)?.not()?, values(&[3], &[7, 8, 9])?));
    assert_eq!(found, "[[0, 1, 2], [7, 8, 9]]");
    let columns = Tensor::from_slice(&[3], &[true, false, true]).unwrap();
    let cases: [(&[i64], &[i64], &str); 4] = [
        (&[2, 2], &[7, 8, 9, 10], "[[7, 1, 8], [9, 4, 10]]"),
        (&[2], &[7, 8], "[[7, 1, 8], [7, 4, 8]]"),
        (&[2, 1], &[7, 8], "[[7, 1, 7], [8, 4, 8]]"),
        (&[], &[7], "[[7, 1, 7], [7, 4, 7]]"),
    ];
    for (shape, elements, expected) in cases {
        let found = changed(&|x| x.set((.., &columns), values(shape, elements)?));
        assert_eq!(found, expected);
    }
    let last = Tensor::from_slice(&[2], &[false, true]).unwrap();
    let found = changed(&|x| x.set((&last, stepped(.., -1)), values(&[1, 3], &[7, 8, 9])?));
    assert_eq!(found, "[[0, 1, 2], [9, 8, 7]]");
    let found = changed(&|x| x.set((NewAxis, 0, &columns), values(&[1, 2], &[7, 8])?));
    assert_eq!(found, "[[7, 1, 8], [3, 4, 5]]");
    let rows = Tensor::full(DType::Bool, &[2], true).unwrap();
    let found = changed(&|x| x.set((&rows, 1), values(&[2], &[7, 8])?));
    assert_eq!(found, "[[0, 7, 2], [3, 8, 5]]");
    let found = changed(&|x| x.set((&rows, &integers(&[2], &[2, 0])), values(&[2], &[7, 8])?));
    assert_eq!(found, "[[0, 1, 7], [8, 4, 5]]");
    let found = changed(&|x| x.set(x.cmplt(0)?, values(&[0], &[])?));
    assert_eq!(found, "[[0, 1, 2], [3, 4, 5]]");
    let x = numbered(&[2, 3]);
    check_error(x.set((.., &columns), numbered(&[3])), "must broadcast");
    let nan = Tensor::from_slice(&[3], &[f32::NAN, 1.0, f32::NAN]).unwrap();
    check(nan.set(nan.cmplt(2).unwrap(), f64::INFINITY), "[NaN, inf, NaN]");
}

/// A mask is not compared with each position: no loop runs over the selected elements for each
/// element.
#[test]
fn work_of_a_mask_grows_with_the_elements() {
    const COUNT: usize = 20_000;
    let data = |count: usize| Tensor::from_slice(&[count as i64], &vec![1.5f32; count]).unwrap();
    let bits: Vec<bool> = (0..COUNT).map(|number| number % 2 == 0).collect();
    let mask = Tensor::from_slice(&[COUNT as i64], &bits).unwrap();
    let by_scalar = data(COUNT).set(&mask, 7).unwrap();
    let by_elements = data(COUNT).set(&mask, data(COUNT / 2)).unwrap();
    let x = data(COUNT).requires_grad_(true).unwrap();
    let weights = data(COUNT / 2);
    let gradient = x.get(&mask).unwrap().gradient_by(&weights, &[&x]).unwrap().remove(0);
    let engine = Engine::new("jit").unwrap();
    for tensor in [by_scalar, by_elements, gradient] {
        let plan = engine.plan(&[&tensor]).unwrap();
        let ops: u64 = plan.items.iter().map(|kernel| kernel.linear.estimates().ops).sum();
        assert!(1 <= plan.kernel_count() && ops < 1000 * COUNT as u64, "{ops} ops");
    }
}

#[test]
fn wrong_indices_are_refused() {
    let x = numbered(&[2, 3]);
    check_error(x.get(2), "2 along axis 0, which has 2");
    check_error(x.get((0, -4)), "-4 along axis 1, which has 3");
    check_error(x.get((0, 0, 0)), "3 axes have an index, of 2");
    check_error(x.get((Ellipsis, Ellipsis)), "more than one ellipsis");
    check_error(x.get(stepped(.., 0)), "a step is 0");
    check_error(x.get(Tensor::from_slice(&[1], &[0.5f32]).unwrap()), "neither of integers");
    check_error(x.get(Tensor::from_slice(&[3], &[true; 3]).unwrap()), "the mask has shape [3]");
    check_error(x.get((&integers(&[2], &[0, 1]), &integers(&[3], &[0, 1, 2]))), "equal or 1");
    check_error(x.set(0, 1.5), "i32");
    check_error(x.set(0, integers(&[2], &[0, 1])), "the dtypes must be equal");
    check_error(x.set(integers(&[2], &[0, 1]), numbered(&[2])), "must broadcast");
    check_error(numbered(&[]).get(0), "1 axes have an index, of 0");
}

#[test]
fn gradients_flow_to_the_selected_elements() {
    let x = Tensor::from_slice(&[3], &[1f32, 2.0, 3.0]).unwrap();
    x.requires_grad_(true).unwrap();
    let twice = integers(&[3], &[0, -1, 0]);
    let loss = x.get(&twice).unwrap().mul(x.get(1).unwrap()).unwrap().sum(..).unwrap();
    loss.backward().unwrap();
    check(Ok(x.grad().unwrap()), "[4.0, 5.0, 2.0]");
    let x = Tensor::from_slice(&[2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let columns = Tensor::from_slice(&[3], &[true, false, true]).unwrap();
    let weights = Tensor::from_slice(&[2, 2], &[1f32, 2.0, 3.0, 4.0]).unwrap();
    let found = x.get((.., &columns)).unwrap().gradient_by(&weights, &[&x]).unwrap().remove(0);
    check(Ok(found), "[[1.0, 0.0, 2.0], [3.0, 0.0, 4.0]]");
    let mask = x.cmplt(3).unwrap().not().unwrap();
    let selected = x.get(&mask).unwrap();
    let found = selected.mul(&selected).unwrap().sum(..).unwrap().gradient(&[&x]).unwrap();
    check(Ok(found[0].clone()), "[[0.0, 0.0, 6.0], [8.0, 10.0, 12.0]]");
}

#[test]
fn masks_select_on_any_device() -> Result<(), Error> {
    let x = Tensor::from_slice(&[3], &[1, 2, 3])?;
    let mask = Tensor::from_slice(&[3], &[true, false, true])?;
    for device in ["interp", "jit"] {
        let placed = x.to(device)?;
        assert_eq!(placed.get(mask.to(device)?)?.to_vec::<i32>()?, [1, 3]);
        // A mask without a device, and one on another.
        assert_eq!(placed.get(Tensor::ones(DType::Bool, &[3])?)?.to_vec::<i32>()?, [1, 2, 3]);
        assert_eq!(placed.get(&mask)?.to_vec::<i32>()?, [1, 3]);
        assert_eq!(placed.nonzero()?.device()?, device);
        let changed = placed.neg()?;
        changed.set(&mask, 9)?;
        changed.set(mask.to(device)?, Tensor::from_slice(&[2], &[7, 8])?.to(device)?)?;
        assert_eq!((changed.to_vec::<i32>()?, changed.device()?), (vec![7, -2, 8], device));
        let ones = Tensor::ones(DType::I32, &[3])?;
        assert_eq!(ones.get(mask.to(device)?)?.device()?, device);
    }
    Ok(())
}

#[test]
fn selections_of_more_elements_than_32_bits_count_end() {
    let x = Tensor::from_slice(&[3], &[1.0f32, 2.0, 3.0]).unwrap();
    let mask = Tensor::from_slice(&[3], &[true, true, false]).unwrap();
    let first = 2_900_000_000;
    let part = |x: Tensor| x.shrink(&[(first, first + 1)]).unwrap();
    let wide = x.masked_select_sized(&mask, 3_000_000_000).unwrap();
    check(Ok(part(wide)), "[0.0]");
    let wide = mask.nonzero_sized(3_000_000_000, -7).unwrap();
    check(Ok(part(wide.reshape(&[3_000_000_000]).unwrap())), "[-7]");
}
