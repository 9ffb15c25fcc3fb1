//! Every op of every dtype on every device, with edge values, compared with the meaning of the op.

use crate::common::{Builder, Expression, memory_of, repeated, values_of};
use gradiff_graph::op::{Class, OPS};
use gradiff_graph::{Constant, DType, Op, evaluate};
use gradiff_runtime::{Memory, device};
use gradiff_skip::or_skip;

/// A kernel and its inputs.
#[derive(Clone)]
struct Case {
    expression: Expression,
    /// A list for each input, all of the same length.
    inputs: Vec<Vec<Constant>>,
}

const FLOATS: [f64; 26] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -2.5,
    -0.99,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1.1754943508222875e-38,
    1e-45,
    6e-8,
    -3e-5,
    3.0e38,
    -3.0e38,
    std::f64::consts::PI,
    127.0,
    -128.5,
    255.9,
    65504.0,
    65520.0,
    1e10,
    16777217.0,
];

/// Edge values: the smallest and largest, their neighbours, and small numbers of either sign.
fn values(dtype: DType) -> Vec<Constant> {
    let mut values: Vec<Constant> = match dtype.int_range() {
        None => FLOATS.iter().map(|value| Constant::float(dtype, *value)).collect(),
        Some((low, high)) => {
            let numbers =
                [low, low + 1, -7, -2, -1, 0, 1, 2, 3, 7, 8, 100, high / 2, high - 1, high];
            let inside = numbers.into_iter().filter(|value| low <= *value && *value <= high);
            inside.map(|value| Constant::int(dtype, value)).collect()
        }
    };
    values.dedup();
    values
}

/// All tuples of edge values, as a list for each of the dtypes.
fn tuples(dtypes: &[DType]) -> Vec<Vec<Constant>> {
    let mut lists: Vec<Vec<Constant>> = vec![Vec::new(); dtypes.len()];
    let values: Vec<Vec<Constant>> = dtypes.iter().map(|dtype| values(*dtype)).collect();
    let count: usize = values.iter().map(Vec::len).product();
    for number in 0..count {
        let mut remaining = number;
        for (list, values) in lists.iter_mut().zip(&values) {
            list.push(values[remaining % values.len()]);
            remaining /= values.len();
        }
    }
    lists
}

fn case(op: Op, dtype: DType, sources: &[DType]) -> Case {
    let inputs = (0..).zip(sources).map(|(n, dtype)| Expression::Input(n, *dtype)).collect();
    Case { expression: Expression::Apply(op, dtype, inputs), inputs: tuples(sources) }
}

/// Every combination of op and dtypes that is defined for at least one tuple.
fn single_ops() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in OPS.iter().map(|row| row.op) {
        for from in DType::ALL {
            let to = if op.is_comparison() { DType::Bool } else { from };
            match op.class() {
                Class::Unary if matches!(op, Op::Cast | Op::Bitcast) => {
                    cases.extend(DType::ALL.map(|to| case(op, to, &[from])));
                }
                Class::Unary => cases.push(case(op, to, &[from])),
                Class::Binary => cases.push(case(op, to, &[from, from])),
                Class::Ternary if op == Op::Where => {
                    cases.push(case(op, from, &[DType::Bool, from, from]));
                }
                Class::Ternary => cases.push(case(op, to, &[from, from, from])),
                _ => {}
            }
        }
    }
    let has_meaning = |case: &Case| {
        let Expression::Apply(op, to, sources) = &case.expression else { return false };
        // No device has it: it is lowered to ops of 32 bits.
        if *op == Op::Threefry {
            return false;
        }
        let is_of_bool = sources[0].dtype() == DType::Bool || *to == DType::Bool;
        let is_bool_op = matches!(op, Op::And | Op::Or | Op::Xor | Op::Max | Op::Min | Op::Add)
            || matches!(op, Op::Mul | Op::CmpLt | Op::CmpNe | Op::Cast | Op::Where);
        let is_defined = (0..case.inputs[0].len()).any(|n| expected(case, n).is_some());
        is_defined && (!is_of_bool || is_bool_op)
    };
    cases.retain(has_meaning);
    cases
}

/// Ops with a constant as the second source, which devices treat specially.
fn constant_ops() -> Vec<Case> {
    let ops = [
        Op::Add,
        Op::Sub,
        Op::Mul,
        Op::CDiv,
        Op::CMod,
        Op::FloorDiv,
        Op::FloorMod,
        Op::Shl,
        Op::Shr,
    ];
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        let Some((low, high)) = dtype.int_range() else { continue };
        for value in [low, high, -1, 3, -2] {
            for op in ops {
                let value = Expression::Const(Constant::int(dtype, value));
                let sources = vec![Expression::Input(0, dtype), value];
                let expression = Expression::Apply(op, dtype, sources);
                cases.push(Case { expression, inputs: tuples(&[dtype]) });
            }
        }
    }
    cases.retain(|case| (0..case.inputs[0].len()).any(|n| expected(case, n).is_some()));
    cases
}

/// Narrow arithmetic whose result is used by an op that would see bits beyond the width.
fn nested_ops() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|dtype| dtype.is_int()) {
        for inner in [Op::Add, Op::Sub, Op::Mul] {
            let [x, y] = [0, 1].map(|number| Expression::Input(number, dtype));
            let inner = Expression::Apply(inner, dtype, vec![x.clone(), y]);
            let two = Expression::Const(Constant::int(dtype, 2));
            let apply = |op: Op, to: DType, sources: &[&Expression]| {
                Expression::Apply(op, to, sources.iter().map(|s| (*s).clone()).collect())
            };
            let outer = [
                apply(Op::FloorDiv, dtype, &[&inner, &two]),
                apply(Op::Shr, dtype, &[&inner, &two]),
                apply(Op::CmpLt, DType::Bool, &[&inner, &x]),
                apply(Op::Cast, DType::I64, &[&inner]),
                apply(Op::Cast, DType::F32, &[&inner]),
                apply(Op::Neg, dtype, &[&inner]),
            ];
            let case = |expression| Case { expression, inputs: tuples(&[dtype, dtype]) };
            cases.extend(outer.map(case));
        }
    }
    cases
}

/// Comparisons whose results are combined and used by `where`.
fn choices() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in DType::ALL {
        let [x, y] = [0, 1].map(|number| Expression::Input(number, dtype));
        let apply = |op: Op, to: DType, sources: &[&Expression]| {
            Expression::Apply(op, to, sources.iter().map(|s| (*s).clone()).collect())
        };
        if dtype == DType::Bool || dtype == DType::Void {
            continue;
        }
        let less = apply(Op::CmpLt, DType::Bool, &[&x, &y]);
        let unequal = apply(Op::CmpNe, DType::Bool, &[&x, &y]);
        let five = Expression::Const(Constant::int(DType::I32, 5));
        let number = apply(Op::Cast, DType::I32, &[&less]);
        let outer = [
            apply(Op::Where, dtype, &[&less, &x, &y]),
            apply(Op::Where, DType::I32, &[&less, &five, &number]),
            apply(Op::And, DType::Bool, &[&less, &unequal]),
            apply(Op::Or, DType::Bool, &[&less, &unequal]),
            apply(Op::Xor, DType::Bool, &[&less, &unequal]),
            apply(Op::CmpNe, DType::Bool, &[&less, &unequal]),
            apply(Op::Max, DType::Bool, &[&less, &unequal]),
        ];
        let case = |expression| Case { expression, inputs: tuples(&[dtype, dtype]) };
        cases.extend(outer.map(case));
    }
    cases
}

/// Sums and differences with a zero of either sign, of operands that are zero themselves and from
/// whose form a compiler may infer their sign.
fn zeros() -> Vec<Case> {
    let mut cases = Vec::new();
    let apply = |op: Op, to: DType, sources: &[&Expression]| {
        Expression::Apply(op, to, sources.iter().map(|s| (*s).clone()).collect())
    };
    for from in DType::ALL.into_iter().filter(|from| *from != DType::Void) {
        for to in [DType::F32, DType::F64] {
            let constant = |value: f64| Expression::Const(Constant::float(to, value));
            let x = Expression::Input(0, from);
            let x = if from == to { x } else { apply(Op::Cast, to, &[&x]) };
            let is_less = apply(Op::CmpLt, DType::Bool, &[&x, &constant(0.0)]);
            let operands = [
                apply(Op::Neg, to, &[&x]),
                apply(Op::Mul, to, &[&x, &constant(-1.0)]),
                apply(Op::Where, to, &[&is_less, &constant(-1.0), &constant(0.0)]),
                apply(Op::Where, to, &[&is_less, &apply(Op::Neg, to, &[&x]), &x]),
                x,
            ];
            for (x, zero) in operands.iter().flat_map(|x| [(x, 0.0), (x, -0.0)]) {
                let zero = constant(zero);
                let sums = [
                    apply(Op::Add, to, &[x, &zero]),
                    apply(Op::Sub, to, &[x, &zero]),
                    apply(Op::Sub, to, &[&zero, x]),
                ];
                let case = |expression| Case { expression, inputs: tuples(&[from]) };
                cases.extend(sums.map(case));
            }
        }
    }
    cases
}

fn expected(case: &Case, number: usize) -> Option<Constant> {
    let inputs: Vec<Constant> = case.inputs.iter().map(|list| list[number]).collect();
    case.expression.evaluate(&inputs)
}

/// The value of `x*y+z` of floats if the product is not rounded; 16-bit floats are computed in f32.
fn fused(case: &Case, number: usize) -> Option<Constant> {
    let Expression::Apply(Op::MulAcc, dtype, sources) = &case.expression else { return None };
    let inputs: Vec<Constant> = case.inputs.iter().map(|list| list[number]).collect();
    let value = |source: &Expression| source.evaluate(&inputs)?.to_float();
    let [x, y, z] = [value(&sources[0])?, value(&sources[1])?, value(&sources[2])?];
    Some(Constant::float(
        *dtype,
        match dtype {
            DType::F64 => x.mul_add(y, z),
            _ => (x as f32).mul_add(y as f32, z as f32).into(),
        },
    ))
}

/// The rank of a float among all floats of its dtype.
fn ordinal(value: Constant) -> i128 {
    let sign = 1u64 << (8 * value.dtype().size_bytes() - 1);
    let magnitude = i128::from(value.bits() & (sign - 1));
    if value.bits() & sign != 0 { -magnitude } else { magnitude }
}

/// Returns whether a value agrees with the expected one: the same bits, any NaN for NaN, within 2
/// ulp for functions of the math library.
fn is_right(op: Op, value: Constant, expected: Constant) -> bool {
    let (Some(x), Some(y)) = (value.to_float(), expected.to_float()) else {
        return value == expected;
    };
    if x.is_nan() || y.is_nan() {
        return x.is_nan() && y.is_nan();
    }
    let is_library = matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow);
    value == expected || (is_library && (ordinal(value) - ordinal(expected)).abs() <= 2)
}

/// Runs all cases on a device, compiled in one call, and describes the wrong elements.
fn wrong(device_name: &str, cases: &[Case], is_heavy: bool, lanes: u8) -> Vec<String> {
    let kernels: Vec<_> = (0..)
        .zip(cases)
        .map(|(number, case): (usize, &Case)| {
            let dtypes: Vec<DType> = case.inputs.iter().map(|list| list[0].dtype()).collect();
            let count = case.inputs[0].len() as i64;
            let repeats = is_heavy.then(|| 1 + 100_000 / count);
            repeated(&format!("E_{number}"), &case.expression, &dtypes, count, (repeats, lanes))
        })
        .collect();
    let kernels: Vec<_> = kernels.iter().collect();
    let executables = device(device_name).and_then(|device| device.compile_checked(&kernels));
    let executables = executables.expect("every kernel compiles");
    let mut wrong = Vec::new();
    for (case, executable) in cases.iter().zip(executables) {
        let count = case.inputs[0].len();
        let output = Memory::new(case.expression.dtype(), count).expect("a little memory");
        let inputs: Vec<Memory> = case.inputs.iter().map(|list| memory_of(list)).collect();
        let memories: Vec<&Memory> = std::iter::once(&output).chain(&inputs).collect();
        executable.run(&memories).expect("the kernel runs");
        assert!(output.is_initialised());
        let Expression::Apply(op, ..) = &case.expression else { continue };
        for (number, value) in values_of(&output).into_iter().enumerate() {
            let Some(expected) = expected(case, number) else { continue };
            let fused = fused(case, number).is_some_and(|fused| is_right(*op, value, fused));
            if !is_right(*op, value, expected) && !fused {
                let inputs: Vec<Constant> = case.inputs.iter().map(|list| list[number]).collect();
                wrong.push(format!(
                    "{device_name}: {:?} of {inputs:?} is {value:?}, not {expected:?}",
                    case.expression
                ));
            }
        }
    }
    wrong
}

fn check(device_name: &str, is_heavy: bool, lanes: u8) {
    check_some(device_name, is_heavy, lanes, |_, _| true);
}

/// Checks the cases that a predicate selects by number and case.
fn check_some(device: &str, is_heavy: bool, lanes: u8, is_selected: impl Fn(usize, &Case) -> bool) {
    let mut cases: Vec<Case> =
        [single_ops(), constant_ops(), nested_ops(), choices(), zeros()].concat();
    for list in cases.iter_mut().flat_map(|case| &mut case.inputs) {
        list.resize(list.len().next_multiple_of(lanes.into()), list[0]);
    }
    assert!(cases.len() > 700, "{} cases", cases.len());
    let total = cases.len();
    let cases: Vec<Case> =
        (0..).zip(cases).filter(|(n, case)| is_selected(*n, case)).map(|(_, case)| case).collect();
    println!("{device}: {} of {total} kernels skipped", total - cases.len());
    assert!(total < 20 * cases.len(), "{} cases", cases.len());
    let wrong = wrong(device, &cases, is_heavy, lanes);
    let shown = wrong.iter().take(20).cloned().collect::<Vec<_>>().join("\n");
    assert!(wrong.is_empty(), "{} wrong elements\n{shown}", wrong.len());
}

#[test]
fn interp_every_op_has_its_meaning() {
    check("interp", false, 1);
}

#[test]
fn jit_every_op_has_its_meaning() {
    check("jit", false, 1);
}

/// Kernels that execute many uops are optimised.
#[test]
fn jit_every_op_of_a_heavy_kernel_has_its_meaning() {
    check("jit", true, 1);
}

/// Runs if there is a driver.
#[test]
fn opencl_every_op_has_its_meaning() {
    if or_skip("opencl", device("opencl")).is_some() {
        // PoCL takes 60 ms to compile a kernel: all cases would take a minute.
        check_some("opencl", false, 1, |number, _| number.is_multiple_of(11));
    }
}

/// Returns whether a case is one of [`zeros`].
fn is_sum_with_zero(case: &Case) -> bool {
    let is_zero = |source: &Expression| match source {
        Expression::Const(value) => value.to_float() == Some(0.0),
        _ => false,
    };
    let Expression::Apply(op, _, sources) = &case.expression else { return false };
    matches!(op, Op::Add | Op::Sub) && sources.iter().any(is_zero)
}

/// Runs if there is an adapter, for the types that it has, without functions, whose accuracy WGSL
/// does not specify, and without sums with zero, whose sign it lets drivers ignore.
fn check_wgsl(name: &str) {
    let Some(device) = or_skip(name, device(name)) else { return };
    let copy = |dtype| {
        let mut b = Builder::default();
        let arrays = [0, 1].map(|slot| b.global(slot, dtype, 1));
        let zero = b.int(0);
        let value = b.load(arrays[1], zero, None);
        b.store(arrays[0], zero, None, value);
        b.verified("E")
    };
    let unsupported: Vec<DType> = DType::ALL
        .into_iter()
        .filter(|dtype| device.unsupported(&copy(*dtype)).is_some())
        .collect();
    println!("{name} has no {unsupported:?}");
    assert!(unsupported.iter().all(|dtype| dtype.bits() == 64), "{unsupported:?}");
    let is_supported = |dtype: DType| !unsupported.contains(&dtype);
    check_some(name, false, 1, |_, case| {
        let Expression::Apply(op, to, _) = &case.expression else { return false };
        !matches!(op, Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow)
            && !is_sum_with_zero(case)
            && is_supported(*to)
            && case.inputs.iter().all(|list| is_supported(list[0].dtype()))
    });
}

#[test]
fn wgpu_every_op_has_its_meaning() {
    check_wgsl("wgpu");
}

/// f16 is held as its bits.
#[test]
fn wgpu_core_every_op_has_its_meaning() {
    check_wgsl("wgpu-core");
}

#[test]
fn c_every_op_has_its_meaning() {
    check("c", false, 1);
}

#[test]
fn interp_every_vector_op_has_its_meaning() {
    check("interp", false, 3);
}

/// Vectors of 1 to 8 pieces, and vectors that do not fill pieces.
#[test]
fn jit_every_vector_op_has_its_meaning() {
    for lanes in [2, 3, 4, 16] {
        check("jit", false, lanes);
    }
    check("jit", true, 8);
}

#[test]
fn values_include_undefined_cases() {
    let zero = Constant::zero(DType::I32);
    assert_eq!(evaluate(Op::CDiv, DType::I32, &[zero, zero]), None);
    assert!(values(DType::I8).contains(&Constant::int(DType::I8, -128)));
    assert!(values(DType::F16).iter().any(|value| value.to_float().is_some_and(f64::is_nan)));
}
