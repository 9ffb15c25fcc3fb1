//! Assignment in place: the tensor and its clones change, and nothing that was made of it before.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use gradiff::{DType, Engine, Error, Tensor, keepdim};

fn numbered(shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    let numbers: Vec<i32> = (0..count as i32).collect();
    Tensor::from_slice(shape, &numbers).unwrap().to("jit").unwrap()
}

fn ints(x: &Tensor) -> Vec<i32> {
    x.to_vec().unwrap()
}

#[test]
fn a_tensor_and_its_clones_change_and_nothing_else() {
    for is_realised in [false, true] {
        let x = numbered(&[4]).add(1).unwrap();
        let (clone, lazy, flat) = (x.clone(), x.mul(10).unwrap(), x.flatten(0, -1).unwrap());
        let (part, same) = (x.shrink(&[(1, 3)]).unwrap(), x.to("jit").unwrap());
        if is_realised {
            x.realize().unwrap();
            part.realize().unwrap();
        }
        let returned = x.assign(x.flip(&[0]).unwrap()).unwrap();
        for changed in [&x, &clone, &returned] {
            assert_eq!(ints(changed), [4, 3, 2, 1]);
        }
        assert_eq!(ints(&lazy), [10, 20, 30, 40]);
        assert_eq!((ints(&flat), ints(&same)), (vec![1, 2, 3, 4], vec![1, 2, 3, 4]));
        assert_eq!(ints(&part), [2, 3]);
        // A chain: each uses the one before.
        for _ in 0..3 {
            x.assign(x.add(&x).unwrap()).unwrap();
        }
        assert_eq!((ints(&x), x.device().unwrap()), (vec![32, 24, 16, 8], "jit"));
    }
}

#[test]
fn values_are_broadcast_and_scalars_take_the_dtype() {
    let x = numbered(&[2, 3]);
    x.assign(numbered(&[3])).unwrap();
    assert_eq!(ints(&x), [0, 1, 2, 0, 1, 2]);
    x.assign(7).unwrap();
    assert_eq!((ints(&x), x.device().unwrap()), (vec![7; 6], "jit"));
    let y = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap();
    y.assign(-0.0).unwrap();
    assert_eq!(y.to_text().unwrap(), "[-0.0, -0.0]");
    let empty = numbered(&[0, 2]);
    empty.assign(5).unwrap();
    assert_eq!(empty.shape(), [0, 2]);
    let scalar = numbered(&[]);
    scalar.assign(3).unwrap();
    assert_eq!(ints(&scalar), [3]);
}

#[test]
fn slices_are_assigned_as_slice_reads_them() {
    let bounds = [i64::MIN, -9, -4, -1, 0, 1, 3, 5, 7, i64::MAX];
    for size in [0, 1, 5] {
        for start in bounds {
            for stop in bounds {
                for step in [1, 2, -1, -3, i64::MIN, i64::MAX] {
                    let x = numbered(&[size]);
                    let range = [(start, stop, step)];
                    let count = x.slice(&range).unwrap().shape()[0];
                    let value = numbered(&[count]).add(100).unwrap();
                    x.assign_slice(&range, &value).unwrap();
                    let label = format!("{size} {range:?}");
                    assert_eq!(ints(&x.slice(&range).unwrap()), ints(&value), "{label}");
                    let kept = ints(&x).iter().filter(|element| **element < 100).count();
                    assert_eq!(kept as i64, size - count, "{label}");
                }
            }
        }
    }
    let x = numbered(&[3, 4]);
    x.assign_slice(&[(0, 3, 2), (3, -5, -2)], numbered(&[2]).add(50).unwrap()).unwrap();
    assert_eq!(ints(&x), [0, 51, 2, 50, 4, 5, 6, 7, 8, 51, 10, 50]);
    // Overlapping parts of itself: the value is that before the assignment.
    let x = numbered(&[5]);
    x.assign_slice(&[(1, 5, 1)], x.shrink(&[(0, 4)]).unwrap()).unwrap();
    assert_eq!(ints(&x), [0, 0, 1, 2, 3]);
    x.assign_slice(&[], 4).unwrap();
    assert_eq!(ints(&x), [4; 5]);
    let halves = Tensor::from_slice(&[3], &[f32::NAN, -0.0, f32::INFINITY]).unwrap();
    halves.assign_slice(&[(1, 2, 1)], 2.5).unwrap();
    assert_eq!(halves.to_text().unwrap(), "[NaN, 2.5, inf]");
}

#[test]
fn operators_assign() {
    let mut x = numbered(&[3]);
    let (clone, before) = (x.clone(), &x + 0);
    x += 5;
    x *= &before;
    x -= 1;
    assert_eq!(
        (ints(&x), ints(&clone), ints(&before)),
        (vec![-1, 5, 13], vec![-1, 5, 13], vec![0, 1, 2])
    );
    x %= 4;
    x <<= 1;
    x |= 1;
    x ^= 3;
    x &= 6;
    x >>= 1;
    assert_eq!(ints(&x), [2, 0, 0]);
    let mut y = Tensor::from_slice(&[1], &[3.0f32]).unwrap();
    y /= 2;
    assert_eq!(y.to_text().unwrap(), "[1.5]");
    let panicked = std::panic::catch_unwind(move || x += numbered(&[2]));
    assert!(panicked.is_err());
}

#[test]
fn parameters_stay_parameters() {
    let w = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    let loss = |w: &Tensor| w.mul(w).unwrap().sum(keepdim(0)).unwrap();
    let early = loss(&w);
    for _ in 0..3 {
        w.zero_grad();
        loss(&w).backward().unwrap();
        let step = w.grad().unwrap().mul(0.25).unwrap();
        w.assign(w.sub(&step).unwrap().detach()).unwrap();
        w.realize().unwrap();
        assert!(w.uop().order().len() <= 3, "nothing of the step is kept");
    }
    assert_eq!((w.to_text().unwrap(), w.requires_grad()), ("[0.125, 0.25]".into(), Some(true)));
    // The loss of the values that were assigned over: its gradient is that at those values.
    w.zero_grad();
    early.backward().unwrap();
    assert_eq!(w.grad().unwrap().to_text().unwrap(), "[2.0, 4.0]");
    assert!(early.gradient(&[&w]).is_err());
}

#[test]
fn an_engine_computes_assigned_tensors() {
    let engine = Engine::new("interp").unwrap();
    let x = numbered(&[3]);
    engine.realize(&[&x]).unwrap();
    x.assign(x.add(1).unwrap()).unwrap();
    engine.realize(&[&x]).unwrap();
    assert_eq!(ints(&x), [1, 2, 3]);
    // Threads see one of both.
    let x = numbered(&[1]);
    std::thread::scope(|scope| {
        for number in 1..5 {
            let x = &x;
            scope.spawn(move || x.assign(number).unwrap());
        }
        for _ in 0..20 {
            assert!((0..5).contains(&ints(&x)[0]));
        }
    });
}

/// Runs an action in a thread, and fails if it does not end.
fn ends(action: impl FnOnce() + Send + 'static) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        action();
        // The receiver is gone if it has waited too long.
        let _ = sender.send(());
    });
    match receiver.recv_timeout(Duration::from_secs(120)) {
        Err(RecvTimeoutError::Timeout) => panic!("the threads wait for each other"),
        _ => thread.join().unwrap(),
    }
}

/// Tells threads to end, also if the test fails.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[test]
fn an_assignment_while_another_thread_reads_stays() {
    for delay in 0..40 {
        let size = 120;
        let x = numbered(&[size, size]).to("interp").unwrap();
        let x = x.matmul(&x).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| ints(&x));
            std::thread::sleep(Duration::from_millis(delay));
            x.assign(5).unwrap();
            // The elements before the assignment, or after it.
            let read = reader.join().unwrap();
            assert!(read[0] == 5 || read[0] != read[1], "{:?}", &read[..2]);
        });
        assert!(ints(&x).iter().all(|element| *element == 5), "after {delay} ms");
    }
}

#[test]
fn a_read_while_another_thread_assigns_what_is_not_computed_ends() {
    let x = numbered(&[3]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                x.assign(x.add(1).unwrap()).unwrap();
                x.realize().unwrap();
            }
        });
        let _over = Over(&is_over);
        for _ in 0..200 {
            let read = ints(&x);
            assert_eq!((read[1] - read[0], read[2] - read[0]), (1, 2), "{read:?}");
        }
    });
}

#[test]
fn assignments_of_threads_to_parts_all_stay() {
    for _ in 0..20 {
        let x = numbered(&[8]);
        std::thread::scope(|scope| {
            for at in 0..8 {
                let x = &x;
                scope.spawn(move || match at % 2 {
                    0 => x.assign_slice(&[(at, at + 1, 1)], 100 + at).map(drop).unwrap(),
                    _ => x.set(numbered(&[1]).add(at).unwrap(), 100 + at).map(drop).unwrap(),
                });
            }
        });
        assert_eq!(ints(&x), (100..108).collect::<Vec<i32>>());
    }
}

#[test]
fn threads_that_train_do_not_wait_for_each_other() {
    ends(|| {
        let w = Tensor::from_slice(&[1], &[1.0f32]).unwrap().requires_grad_(true).unwrap();
        let double = w.mul(2).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !is_over.load(Ordering::SeqCst) {
                        w.add(&double).unwrap().requires_grad();
                    }
                });
            }
            let _over = Over(&is_over);
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(2) {
                w.assign(start.elapsed().as_secs_f64()).unwrap();
            }
        });
    });
}

#[test]
fn gradients_of_threads_are_added() {
    let w = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    w.mul(3).unwrap().sum(..).unwrap().backward().unwrap();
                }
            });
        }
    });
    assert_eq!(w.grad().unwrap().to_text().unwrap(), "[300.0, 300.0]");
}

#[test]
fn assignments_that_do_not_fit_are_refused() {
    let x = numbered(&[2]);
    let elsewhere = numbered(&[2]).to("interp").unwrap();
    let w = Tensor::from_slice(&[2], &[1.0f32, 2.0]).unwrap().requires_grad_(true).unwrap();
    let of_w = w.mul(2).unwrap();
    let floats = Tensor::zeros(DType::F32, &[2]).unwrap();
    let refused: [(Result<Tensor, Error>, &str); 9] = [
        (x.assign(numbered(&[3])), "must broadcast"),
        (x.assign(numbered(&[1, 2])), "must broadcast"),
        (x.assign(&floats), "dtypes must be equal"),
        (x.assign(1.5), "scalar"),
        (x.assign(&elsewhere), "jit and interp"),
        (floats.assign(&of_w), "requires a gradient"),
        (w.assign_slice(&[(0, 1, 1)], 0.0), "requires a gradient"),
        (x.assign_slice(&[(0, 1, 0)], 0), "step is 0"),
        (x.assign_slice(&[(0, 2, 1)], numbered(&[3])), "must broadcast"),
    ];
    for (result, words) in refused {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(words), "{error}: expected {words}");
    }
    assert_eq!(ints(&x), [0, 1]);
}
