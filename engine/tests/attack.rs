//! Edge cases of shapes, graphs and uses: ranks, empty and huge sizes, deep and wide graphs, a
//! tensor that is used several times, devices that fail. Expected results follow from the meaning.

// Clippy does not recognise helpers of integration tests as test code.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use gradiff::graph::{Arg, BoundedLinear, Op, Target, UOp};
use gradiff::runtime::{Device, Error as RuntimeError, Executable, Memory};
use gradiff::{DType, Engine, Error, Tensor, keepdim};
use gradiff_skip::or_skip;

/// An engine for each configuration of scheduling on the interpreter, and one for the jit.
fn engines() -> Vec<Engine> {
    let mut engines = Vec::new();
    for (fuse, merge_views) in [(true, true), (false, true), (true, false), (false, false)] {
        let mut engine = Engine::new("interp").expect("the interpreter needs nothing");
        engine.schedule = gradiff::schedule::Options {
            fuse,
            merge_views,
            rows: merge_views,
            ..Default::default()
        };
        engines.push(engine);
    }
    engines.extend(Engine::new("jit"));
    engines
}

/// The tensor after the engine has computed it.
fn on(engine: &Engine, tensor: Tensor) -> Tensor {
    engine.realize(&[&tensor]).unwrap();
    tensor
}

fn check<T>(make: impl Fn() -> Result<Tensor, Error>, expected: &[T])
where
    T: gradiff::Element + PartialEq + std::fmt::Debug,
{
    for engine in engines() {
        let values = on(&engine, make().unwrap()).to_vec::<T>().unwrap();
        let (device, schedule) = (engine.device.name(), engine.schedule);
        assert_eq!(values, expected, "{device} {schedule:?}");
    }
}

fn numbered(shape: &[i64]) -> Tensor {
    let count: i64 = shape.iter().product();
    Tensor::from_slice(shape, &(0..count as i32).collect::<Vec<_>>()).unwrap()
}

#[test]
fn every_rank_moves_and_reduces() {
    for rank in 0..=8i64 {
        let shape: Vec<i64> = (0..rank).map(|axis| if axis % 3 == 1 { 1 } else { 2 }).collect();
        let count: i32 = shape.iter().product::<i64>() as i32;
        let axes: Vec<i64> = (0..rank).collect();
        let turned: Vec<i64> = axes.iter().rev().copied().collect();
        let make = || numbered(&shape).permute(&turned)?.permute(&turned)?.flip(&axes)?.add(1);
        check(make, &(1..=count).rev().collect::<Vec<_>>());
        let sum = || numbered(&shape).permute(&turned)?.sum(&axes[..])?.mul(2);
        check(sum, &[count * (count - 1)]);
        let pads = vec![(1, 0); rank as usize];
        let largest =
            || numbered(&shape).pad(&pads, -9)?.neg()?.max(keepdim(&axes[..]))?.reshape(&[1]);
        check(largest, &[if rank == 0 { 0 } else { 9 }]);
    }
}

#[test]
fn one_value_is_reduced_over_all_subsets_of_its_axes() {
    let shape = [2i64, 3, 1, 2];
    for subset in 0..16usize {
        let axes: Vec<i64> = (0..4).filter(|axis| subset >> axis & 1 == 1).collect();
        let whole = || {
            let x = numbered(&shape).add(1)?;
            let part = x.sum(keepdim(&axes[..]))?;
            x.mul(&part)?.sum(..)?.sub(part.max(..)?)
        };
        let sizes: Vec<i64> =
            (0..4).map(|a| if axes.contains(&a) { 1 } else { shape[a as usize] }).collect();
        let strides = [6i64, 2, 2, 1];
        let mut parts = [0i64; 12];
        let part_index = |flat: i64| -> usize {
            let index = (0..4).map(|axis| flat / strides[axis] % shape[axis]);
            index.zip(&sizes).fold(0, |flat, (i, size)| flat * size + i % size) as usize
        };
        (0..12).for_each(|flat| parts[part_index(flat)] += flat + 1);
        let sum: i64 = (0..12).map(|flat| (flat + 1) * parts[part_index(flat)]).sum();
        check(whole, &[(sum - parts.iter().max().unwrap()) as i32]);
    }
    // All sums as outputs of one plan.
    for engine in engines() {
        let x = numbered(&[2, 2, 2]).add(0).unwrap();
        let sums: Vec<Tensor> = (0..8usize)
            .map(|subset| (0..3).filter(|axis| subset >> axis & 1 == 1).collect::<Vec<_>>())
            .map(|axes| x.sum(keepdim(&axes[..])).unwrap())
            .collect();
        engine.realize(&sums.iter().collect::<Vec<_>>()).unwrap();
        for sum in &sums {
            assert_eq!(sum.to_vec::<i32>().unwrap().iter().sum::<i32>(), 28);
        }
    }
}

#[test]
fn sizes_0_and_1_are_supported() {
    check(|| Tensor::zeros(DType::F32, &[0, 3, 0])?.exp2()?.sum(keepdim([0, 2])), &[0f32; 3]);
    check(|| numbered(&[0, 4]).permute(&[1, 0])?.prod(keepdim(1))?.add(1), &[2i32; 4]);
    check(|| numbered(&[0]).pad(&[(2, 1)], 7)?.mul(3), &[21i32; 3]);
    check(|| Tensor::cat(&[&numbered(&[0, 2]), &numbered(&[1, 2])], 0)?.flip(&[1]), &[1i32, 0]);
    check(|| numbered(&[3]).gather(0, &numbered(&[0])), &[0i32; 0]);
    check(|| numbered(&[0, 2]).gather(0, &Tensor::zeros(DType::I32, &[1, 2])?), &[0i32; 2]);
    check(|| numbered(&[2, 0]).matmul(&numbered(&[0, 3])), &[0i32; 6]);
    check(
        || numbered(&[1, 1, 1]).add(1)?.expand(&[2, 1, 3])?.sum(keepdim([0, 2]))?.reshape(&[]),
        &[6i32],
    );
    check(|| numbered(&[1]).expand(&[0])?.contiguous().add(1)?.sum(keepdim(0)), &[0i32]);
}

#[test]
fn deep_chains_and_diamonds_are_computed() {
    check(
        || (0..10_000).try_fold(numbered(&[3]), |x, i| x.add(i % 3)?.xor(1)),
        &(0..3).map(|x| (0..10_000).fold(x, |x: i32, i| (x + i % 3) ^ 1)).collect::<Vec<_>>(),
    );
    check(|| (0..30).try_fold(numbered(&[2]), |x, _| x.add(&x)), &[0i32, 1 << 30]);
    let turned = |x: Vec<i32>| vec![x[0].wrapping_mul(x[1]).wrapping_add(1); 2];
    check(
        || (0..30).try_fold(numbered(&[2]).add(2)?, |x, _| x.mul(&x.flip(&[0])?)?.add(1)),
        &(0..30).fold(vec![2, 3], |x, _| turned(x)),
    );
    // Each value is reduced, and its elements are used besides the sum.
    let next = |x: Vec<i32>| {
        let sum = x[0].wrapping_add(x[1]);
        vec![x[0].wrapping_sub(sum), x[1].wrapping_sub(sum)]
    };
    check(
        || (0..30).try_fold(numbered(&[2]).add(1)?, |x, _| x.sub(x.sum(keepdim(0))?)),
        &(0..30).fold(vec![1, 2], |x, _| next(x)),
    );
}

#[test]
fn outputs_may_be_equal_inputs_constants_or_parts_of_each_other() {
    for engine in engines() {
        let input = numbered(&[2, 2]);
        let moved = input.reshape(&[4]).unwrap();
        let part = input.add(1).unwrap();
        let whole = part.mul(2).unwrap().sum(keepdim(0)).unwrap();
        let two = Tensor::full(DType::I32, &[2], 2).unwrap();
        let same = part.clone();
        let equal = input.add(1).unwrap();
        let tensors = [&input, &moved, &part, &whole, &two, &same, &equal, &part];
        engine.realize(&tensors).unwrap();
        engine.realize(&tensors).unwrap();
        assert_eq!(engine.plan(&tensors).unwrap().kernel_count(), 0, "all are realised");
        assert_eq!(moved.to_text().unwrap(), "[0, 1, 2, 3]");
        for tensor in [&part, &same, &equal] {
            assert_eq!(tensor.to_text().unwrap(), "[[1, 2], [3, 4]]");
        }
        assert_eq!(whole.to_text().unwrap(), "[[8, 12]]");
        assert_eq!(two.to_text().unwrap(), "[2, 2]");
        assert_eq!(input.to_text().unwrap(), "[[0, 1], [2, 3]]");
    }
}

#[test]
fn plans_that_share_a_subgraph_can_be_run_together() {
    for engine in engines() {
        let shared = numbered(&[3]).mul(3).unwrap();
        let first = shared.sum(keepdim(0)).unwrap();
        let second = shared.flip(&[0]).unwrap().add(&shared).unwrap();
        let mut plans = [engine.plan(&[&first]).unwrap(), engine.plan(&[&second]).unwrap()];
        let third = second.add(&first).unwrap();
        let mut whole = plans[0].clone();
        whole.append(plans[1].clone());
        whole.append(engine.plan(&[&third]).unwrap());
        engine.compile(&mut plans).unwrap();
        let mut whole = [whole];
        engine.compile(&mut whole).unwrap();
        engine.run(&whole[0]).unwrap();
        assert_eq!(third.to_text().unwrap(), "[15, 15, 15]");
        assert_eq!(shared.to_text().unwrap(), "[0, 3, 6]");
    }
}

/// An image of no elements was spread as if it had one: the result had another size than stated.
#[test]
fn transposed_convolutions_of_nothing_are_refused() {
    let image = Tensor::full(DType::F32, &[1, 1, 0], 1.0).unwrap();
    let weight = Tensor::full(DType::F32, &[1, 1, 3], 1.0).unwrap();
    let error = image.conv_transpose2d(&weight, &gradiff::Conv::default().stride(2)).unwrap_err();
    assert!(error.to_string().contains("an image has no elements"), "{error}");
}

/// With phases of the stride, the padding is cut off in the end; all of it may be cut off.
#[test]
fn transposed_convolutions_are_as_defined_for_all_small_options() {
    let (mut count, mut refused) = (0, 0);
    for size in 1..=3 {
        for kernel in 1..=4 {
            for (stride, dilation) in [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1), (2, 2), (1, 3)] {
                for (before, after) in [(0, 0), (1, 0), (0, 2), (1, 1), (3, 2)] {
                    for added in 0..2 {
                        let options = gradiff::Conv::default()
                            .stride(stride)
                            .dilation(dilation)
                            .padding([before, after])
                            .output_padding(added);
                        let image = numbered(&[1, 1, size]).add(1).unwrap();
                        let weight = numbered(&[1, 2, kernel]).add(1).unwrap();
                        let total = (size - 1) * stride + dilation * (kernel - 1) + 1 + added;
                        let result = image.conv_transpose2d(&weight, &options);
                        if total <= before + after {
                            assert!(result.is_err(), "{size} {kernel} {options:?}");
                            refused += 1;
                            continue;
                        }
                        let mut expected = vec![0i32; 2 * total as usize];
                        for i in 0..size {
                            for j in 0..kernel {
                                let at = (i * stride + j * dilation) as usize;
                                for output in 0..2 {
                                    let weight = 1 + output * kernel + j;
                                    expected[output as usize * total as usize + at] +=
                                        ((i + 1) * weight) as i32;
                                }
                            }
                        }
                        let kept: Vec<i32> = expected
                            .chunks(total as usize)
                            .flat_map(|row| &row[before as usize..(total - after) as usize])
                            .copied()
                            .collect();
                        let found = result.unwrap().to_vec::<i32>().unwrap();
                        assert_eq!(found, kept, "{size} {kernel} {options:?}");
                        count += 1;
                    }
                }
            }
        }
    }
    assert!(600 < count && 50 < refused, "{count} {refused}");
}

#[test]
fn huge_shapes_are_refused_before_allocation() {
    let engine = Engine::new("interp").unwrap();
    let huge = || numbered(&[1, 1]).add(1)?.expand(&[1 << 20, 1 << 20]);
    let error = engine.realize(&[&huge().unwrap().add(1).unwrap()]).unwrap_err().to_string();
    assert!(error.contains("at most"), "{error}");
    let error = huge().unwrap().to_bytes().unwrap_err().to_string();
    assert!(error.contains("at most"), "{error}");
    let constant = Tensor::full(DType::U8, &[1 << 20, 1 << 20], 3).unwrap().add(1).unwrap();
    engine.realize(&[&constant]).unwrap();
    let error = constant.to_bytes().unwrap_err().to_string();
    assert!(error.contains("at most"), "{error}");
    assert_eq!(constant.sum(keepdim([0, 1])).unwrap().to_text().unwrap(), "[[0]]");
    assert!(Tensor::arange(DType::I32, 0, 1, 1 << 41).is_err());
    assert!(huge().unwrap().expand(&[1 << 20, 1 << 20]).is_ok());
    assert!(numbered(&[1]).expand(&[1 << 41]).is_err());
    assert!(numbered(&[1]).pad(&[(1 << 62, 1 << 62)], 0).is_err());
    // Huge intermediate values are fine, since they are not materialised.
    let corner = huge().unwrap().add(1).unwrap().shrink(&[(0, 1), (5, 7)]).unwrap();
    assert_eq!(on(&engine, corner).to_text().unwrap(), "[[2, 2]]");
}

#[test]
fn wide_graphs_are_split_into_kernels() {
    // Many inputs of one value, summed from left to right and as a tree.
    let inputs = || (0..700).map(|value| Tensor::from_slice(&[2], &[value, -value]));
    let chain = || inputs().try_fold(numbered(&[2]), |sum, next| sum.add(next?));
    check(chain, &[244_650i32, -244_649]);
    let tree = || {
        let mut level = inputs().collect::<Result<Vec<Tensor>, Error>>()?;
        while level.len() > 1 {
            let pairs = level.chunks(2).map(|pair| match pair {
                [left, right] => left.add(right),
                _ => Ok(pair[0].clone()),
            });
            level = pairs.collect::<Result<_, _>>()?;
        }
        level.swap_remove(0).flip(&[0])
    };
    check(tree, &[-244_650i32, 244_650]);
    // Many users of one value.
    let x = numbered(&[3]).mul(2).unwrap();
    for engine in engines() {
        let users: Vec<Tensor> = (0..300).map(|user| x.add(user).unwrap()).collect();
        engine.realize(&users.iter().collect::<Vec<_>>()).unwrap();
        for (user, value) in users.iter().zip(0..) {
            assert_eq!(user.to_vec::<i32>().unwrap(), [value, value + 2, value + 4]);
        }
    }
}

#[test]
fn long_chains_of_movements_and_cats_are_computed() {
    let walk = || {
        (0..200).try_fold(numbered(&[2, 3]), |x, i| match i % 4 {
            0 => x.pad(&[(1, 0), (0, 1)], i)?.shrink(&[(1, 3), (0, 3)]),
            1 => x.permute(&[1, 0])?.reshape(&[2, 3])?.add(0),
            2 => x.flip(&[0])?.add(1)?.flip(&[0]),
            _ => x.reshape(&[3, 2])?.permute(&[1, 0]),
        })
    };
    let walked = (0..50).fold(vec![0, 1, 2, 3, 4, 5], |x: Vec<i32>, _| {
        let turned = [x[0], x[3], x[1], x[4], x[2], x[5]].map(|value| value + 1);
        vec![turned[0], turned[2], turned[4], turned[1], turned[3], turned[5]]
    });
    check(walk, &walked);
    let joined = || {
        (0..60).try_fold(numbered(&[1]), |x, i| {
            Tensor::cat(&[&x, &Tensor::full(DType::I32, &[1], i)?.add(1)?], 0)
        })
    };
    check(joined, &(0..=60).collect::<Vec<i32>>());
    let picked = || (0..12).try_fold(numbered(&[3]), |x, _| x.gather(0, &x)?.add(0));
    check(picked, &[0i32, 1, 2]);
}

#[test]
fn threads_may_realise_a_shared_tensor() {
    for engine in engines() {
        for round in 0..20 {
            let shared = numbered(&[64]).add(round).unwrap().sum(keepdim(0)).unwrap();
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let sum = on(&engine, shared.clone()).to_vec::<i32>().unwrap();
                        assert_eq!(sum, [2016 + 64 * round]);
                    });
                }
            });
        }
    }
}

/// A device that fails to compile or to run.
struct Failing {
    fails_to_compile: bool,
}

struct FailsToRun;

fn failure() -> RuntimeError {
    RuntimeError::Memory { dtype: DType::I32, size_elements: 0, why: "it is to fail".to_string() }
}

impl Device for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn compile(
        &self,
        kernels: &[&BoundedLinear],
    ) -> Result<Vec<Arc<dyn Executable>>, RuntimeError> {
        if self.fails_to_compile {
            return Err(failure());
        }
        Ok(kernels.iter().map(|_| Arc::new(FailsToRun) as Arc<dyn Executable>).collect())
    }

    fn target(&self) -> Target {
        Target::PLAIN
    }

    fn describe(&self) -> String {
        "fails".to_string()
    }
}

impl Executable for FailsToRun {
    fn run(&self, _memories: &[&Memory]) -> Result<(), RuntimeError> {
        Err(failure())
    }
}

#[test]
fn tensors_are_unchanged_after_a_failure() {
    let sound = Engine::new("interp").unwrap();
    for fails_to_compile in [true, false] {
        let mut failing = Engine::new("interp").unwrap();
        failing.device = Arc::new(Failing { fails_to_compile });
        let sum = numbered(&[4]).add(1).unwrap().sum(keepdim(0)).unwrap();
        let twice = sum.mul(2).unwrap();
        let before = (sum.uop(), twice.uop());
        for _ in 0..2 {
            let error = failing.realize(&[&sum, &twice]).unwrap_err().to_string();
            assert!(error.contains("it is to fail"), "{error}");
            assert_eq!((sum.uop(), twice.uop()), before);
        }
        assert!(sum.buffer().is_none());
        assert_eq!(on(&sound, twice).to_text().unwrap(), "[20]");
        assert_eq!(on(&sound, sum).to_text().unwrap(), "[10]");
        // A tensor that cannot be planned does not affect the others.
        let huge = numbered(&[1]).expand(&[1 << 40]).unwrap().add(1).unwrap();
        let fine = numbered(&[4]).add(1).unwrap();
        assert!(sound.realize(&[&fine, &huge]).is_err());
        assert_eq!(on(&sound, fine).to_text().unwrap(), "[1, 2, 3, 4]");
    }
}

#[test]
fn nodes_of_bare_constants_have_the_shape_of_their_operands() {
    let x = Tensor::arange(DType::I32, 0, 1, 6).unwrap().uop();
    let number = |value| UOp::int(DType::I32, value);
    let truth = UOp::constant(gradiff::graph::Constant::bool(true));
    let nodes = [
        UOp::binary(Op::Add, number(0), x.clone()),
        UOp::binary(Op::Mul, number(1), x.clone()),
        UOp::binary(Op::Or, number(0), x.clone()),
        UOp::select(truth.clone(), x.clone(), number(3)),
    ];
    for node in nodes {
        let tensor = Tensor::from_uop(node).unwrap();
        assert_eq!(tensor.shape(), [6]);
        assert_eq!(tensor.to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    }
    let chosen = Tensor::from_uop(UOp::select(truth, number(3), x)).unwrap();
    assert_eq!(chosen.to_vec::<i32>().unwrap(), [3; 6]);
}

/// Nodes that callers build are accepted if they are valid tensors; others are refused.
#[test]
fn invalid_nodes_are_refused() {
    let node = |op, shape: &[i64], arg: Arg| {
        let tensor = Tensor::zeros(DType::F32, &[6]).unwrap().add(1).unwrap();
        UOp::new(op, DType::F32, [tensor.reshape(shape).unwrap().uop()], arg)
    };
    let dims = |sizes: &[i64]| Arg::Dims(sizes.iter().copied().collect());
    let pairs = |pairs: &[(i64, i64)]| Arg::Pairs(pairs.iter().copied().collect());
    let reduce = |op, axes: &[i64]| Arg::Reduce(op, axes.iter().copied().collect());
    let max = i64::MAX;
    let u8s = Tensor::zeros(DType::U8, &[6]).unwrap().uop();
    let nodes = [
        node(Op::Reshape, &[6], dims(&[2, 4])),
        node(Op::Reshape, &[6], dims(&[-2, -3])),
        node(Op::Reshape, &[6], dims(&[max, max])),
        node(Op::Reshape, &[6], Arg::None),
        node(Op::Shrink, &[6], pairs(&[(0, 7)])),
        node(Op::Shrink, &[6], pairs(&[(-1, 3)])),
        node(Op::Shrink, &[6], pairs(&[(i64::MIN, max)])),
        node(Op::Shrink, &[6], pairs(&[(0, 1), (0, 1)])),
        node(Op::Pad, &[6], pairs(&[(max, max)])),
        node(Op::Pad, &[6], pairs(&[(1 << 40, 0)])),
        node(Op::Pad, &[6], pairs(&[(-3, 0)])),
        node(Op::Expand, &[6], dims(&[7])),
        node(Op::Expand, &[1, 6], dims(&[-1, 6])),
        node(Op::Expand, &[1, 6], dims(&[1 << 40, 6])),
        node(Op::Permute, &[2, 3], dims(&[0, 2])),
        node(Op::Permute, &[2, 3], dims(&[0, -1])),
        node(Op::Permute, &[2, 3], dims(&[0, 0])),
        node(Op::Flip, &[6], dims(&[1])),
        node(Op::ReduceAxis, &[6], reduce(Op::Add, &[1])),
        node(Op::ReduceAxis, &[6], reduce(Op::Add, &[-1])),
        node(Op::ReduceAxis, &[6], reduce(Op::Sub, &[0])),
        UOp::new(Op::Iota, DType::I32, [], Arg::Int(-1)),
        UOp::new(Op::Iota, DType::I32, [], Arg::Int(max)),
        UOp::binary(Op::Add, node(Op::Neg, &[6], Arg::None), node(Op::Neg, &[2, 3], Arg::None)),
        UOp::binary(
            Op::Add,
            node(Op::Neg, &[6], Arg::None),
            node(Op::Pad, &[6], pairs(&[(max, max)])),
        ),
        UOp::unary(Op::Bitcast, DType::F64, node(Op::Neg, &[6], Arg::None)),
        UOp::unary(Op::Bitcast, DType::Bool, u8s),
        UOp::new(Op::Sink, DType::Void, [], Arg::None),
        UOp::new(Op::Range, DType::I32, [UOp::int(DType::I32, 3)], Arg::plain_axis(0)),
    ];
    for node in nodes {
        let text = format!("{node:?}");
        let error = Tensor::from_uop(node).map(|_| ()).expect_err(&text).to_string();
        assert!(error.contains("a tensor of"), "{text}: {error}");
    }
    let doubled = node(Op::Flip, &[6], dims(&[0]));
    let doubled = Tensor::from_uop(UOp::binary(Op::Add, doubled.clone(), doubled)).unwrap();
    assert_eq!(doubled.to("jit").unwrap().to_vec::<f32>().unwrap(), [2.0; 6]);
}

#[test]
fn long_chains_are_compared_and_have_shapes() {
    let chain = |start: i64| {
        let x = Tensor::arange(DType::I32, 0, 1, 6).unwrap().uop();
        let first = UOp::binary(Op::Add, x.clone(), UOp::int(DType::I32, start));
        (0..200_000).fold(first, |sum, _| UOp::binary(Op::Xor, sum, x.clone()))
    };
    let (low, high) = (chain(1), chain(2));
    assert_eq!(low.structural_cmp(&high), std::cmp::Ordering::Less);
    assert_eq!(high.structural_cmp(&low), std::cmp::Ordering::Greater);
    assert_eq!(low.shape(), Some(&[6][..]));
}

/// A wrong rule gives kernels with accesses out of bounds: devices that do not check each access
/// refuse them, and `interp` reports the access.
#[test]
fn kernels_of_wrong_rules_access_no_memory() {
    let row =
        |name| gradiff::rewrite::rules::rows().into_iter().find(|row| row.name == name).unwrap();
    let wrong = gradiff::rewrite::Rule { rhs: "1000000", when: "", ..row("algebra/mul-order") };
    let mut devices = 0;
    for name in ["interp", "jit", "c"] {
        let Some(engine) = or_skip(name, Engine::new(name)) else { continue };
        devices += 1;
        let flipped = || numbered(&[4, 4]).permute(&[1, 0])?.flip(&[0])?.reshape(&[16]);
        let make = || engine.realize(&[&flipped()?.pad(&[(1, 1)], 0)?.add(1)?]);
        let error = gradiff::rewrite::rules::with_rows(&[wrong], make).unwrap().unwrap_err();
        let Error::Runtime(error) = error else { panic!("{name}: {error}") };
        let is_unproven = matches!(error, RuntimeError::Unproven { .. });
        assert_eq!(is_unproven, name != "interp", "{name}: {error}");
        // Kernels of the unchanged rules need no proof again.
        let right = on(&engine, numbered(&[2]).add(1).unwrap());
        assert_eq!(right.to_vec::<i32>().unwrap(), [1, 2]);
    }
    assert!(2 <= devices);
}
