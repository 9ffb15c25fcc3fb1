//! Tests of the generator: every op, dtype and structure appears; every program is well typed; few
//! statements are dead; nothing panics.

use std::collections::{BTreeMap, BTreeSet};

use gradiff_corpus::{
    Arg, DType, Expr, ExprBinary, ExprCase, Literal, Method, Operand, Program, Statement, UnaryOp,
    ValueId, ViewOp,
};
use gradiff_gen::{
    ByteChoices, Choices, Config, Exhaustive, ExprConfig, Feature, Features, Generated, Lane, Op,
    Pairs, Recorder, Replay, SeedChoices, ViewConfig, case_seed, expr, features, program,
    program_at, views,
};

const PROGRAMS: u64 = 50_000;

/// Returns whether the op can have results of this dtype.
fn op_gives(op: Op, dtype: DType) -> bool {
    use gradiff_corpus::{BinaryOp::*, ReduceOp, UnaryOp};
    match op {
        Op::Unary(UnaryOp::Neg) => dtype != DType::Bool,
        Op::Unary(UnaryOp::Not) => !dtype.is_float(),
        Op::Unary(_) | Op::Binary(Div | Pow) | Op::Gradient => dtype.is_float(),
        Op::Binary(Add | Sub | Mul) | Op::MulAcc | Op::Bitcast => dtype != DType::Bool,
        Op::Binary(CDiv | CMod | FloorDiv | FloorMod | Shl | Shr) => dtype.is_int(),
        Op::Binary(CmpLt | CmpNe | CmpEq) => dtype == DType::Bool,
        Op::Binary(And | Or | Xor) => !dtype.is_float(),
        Op::Binary(Threefry) => dtype == DType::U64,
        Op::Reduce(ReduceOp::Sum | ReduceOp::Prod) => dtype >= DType::I32,
        _ => true,
    }
}

/// Adds the constructs of a program to their counts by name.
fn count_constructs(program: &Program, counts: &mut BTreeMap<String, usize>) {
    let types = program.typing().expect("every program is well typed");
    let mut see = |construct: String| *counts.entry(construct).or_insert(0) += 1;
    for (statement, tensor) in program.statements.iter().zip(&types) {
        if let Some(op) = Op::of(statement) {
            see(format!("{} {}", op.name(), tensor.dtype.name()));
        }
        see(format!("rank {}", tensor.shape.len()));
        if tensor.shape.contains(&0) {
            see("zero size".into());
        }
        if tensor.shape.len() >= 3 && tensor.shape.windows(2).all(|pair| pair[0] == pair[1]) {
            see("equal sizes".into());
        }
        let mut operands: &[Operand] = &[];
        match statement {
            Statement::Input { fill, dtype, .. } => {
                see(format!("input {} {}", dtype.name(), fill_name(fill)));
            }
            Statement::Const { dtype, shape, .. } => {
                see(format!("const {} {}", dtype.name(), shape.is_empty()));
            }
            Statement::Arange { dtype, step, .. } => {
                see(format!("arange {}", dtype.name()));
                see(format!("arange step {}", step.signum()));
            }
            Statement::Binary { srcs, .. } => operands = srcs,
            Statement::Where { srcs } | Statement::MulAcc { srcs } => operands = srcs,
            Statement::Reduce { axes, .. } => see(format!("reduce {} axes", axes.len())),
            Statement::Gather { .. } => see("gather".into()),
            _ => {}
        }
        see_operands(operands, &types, &mut see);
    }
    see(format!("{} outputs", program.outputs.len().min(3)));
    if program.outputs.iter().any(|id| Op::of(&program.statements[id.0 as usize]).is_none()) {
        see("output is data".into());
    }
}

/// Calls `see` with the name of each construct in the operands of a statement.
fn see_operands(
    operands: &[Operand],
    types: &[gradiff_corpus::TensorType],
    see: &mut impl FnMut(String),
) {
    let values: Vec<_> = operands
        .iter()
        .filter_map(|operand| match operand {
            Operand::Value(id) => Some(*id),
            Operand::Literal(_) => None,
        })
        .collect();
    for (index, operand) in operands.iter().enumerate() {
        if let Operand::Literal(_) = operand {
            see(format!("literal at {index} of {}", operands.len()));
        }
    }
    for pair in values.windows(2) {
        let (a, b) = (&types[pair[0].0 as usize], &types[pair[1].0 as usize]);
        if pair[0] == pair[1] {
            see("same value twice".into());
        }
        if a.shape.len() != b.shape.len() {
            see("broadcast of ranks".into());
        }
        if a.dtype != b.dtype {
            see("promotion".into());
        }
    }
}

fn fill_name(fill: &gradiff_corpus::Fill) -> String {
    use gradiff_corpus::Fill;
    match fill {
        Fill::Iota => "iota".into(),
        Fill::Seeded { distribution, .. } => format!("{distribution:?}"),
        Fill::Explicit(_) => "explicit".into(),
    }
}

#[test]
fn everything_appears() {
    let config = Config::default();
    let mut counts = BTreeMap::new();
    let mut lanes = BTreeSet::new();
    for index in 0..PROGRAMS {
        let Generated { program, lane } = program_at(1, index, &config);
        lanes.insert(lane);
        count_constructs(&program, &mut counts);
    }
    assert_eq!(lanes.len(), Lane::ALL.len());
    let mut expected: Vec<String> = Vec::new();
    for dtype in DType::ALL {
        let ops = Op::ALL.into_iter().filter(|op| op_gives(*op, dtype));
        expected.extend(ops.map(|op| format!("{} {}", op.name(), dtype.name())));
        let fills = ["iota", "Small", "Positive", "Dyadic", "Unit", "Wide", "Special", "explicit"];
        expected.extend(fills.map(|fill| format!("input {} {fill}", dtype.name())));
        expected.extend([true, false].map(|scalar| format!("const {} {scalar}", dtype.name())));
        if dtype.is_int() {
            expected.push(format!("arange {}", dtype.name()));
        }
    }
    expected.extend((0..=8).map(|rank| format!("rank {rank}")));
    expected.extend((0..=4).map(|axes| format!("reduce {axes} axes")));
    expected.extend((1..=3).map(|count| format!("{count} outputs")));
    expected.extend([-1, 0, 1].map(|sign| format!("arange step {sign}")));
    expected.extend((0..2).map(|index| format!("literal at {index} of 2")));
    expected.extend((0..3).map(|index| format!("literal at {index} of 3")));
    let structures = [
        "zero size",
        "equal sizes",
        "same value twice",
        "broadcast of ranks",
        "promotion",
        "output is data",
    ];
    expected.extend(structures.map(String::from));
    let missing: Vec<&String> =
        expected.iter().filter(|name| !counts.contains_key(*name)).collect();
    assert!(missing.is_empty(), "not in {PROGRAMS} programs: {missing:?}");
}

/// Returns whether the program orders, or counts, floats that a function has rounded.
fn orders_rounded_floats(program: &Program) -> bool {
    use Method::{All, Any, Argmax, Argmin, Argsort, CountNonzero, Sort, Topk, TopkIndices};
    let orders = |method: &Method| {
        [All, Any, Argmax, Argmin, Argsort, CountNonzero, Sort, Topk, TopkIndices].contains(method)
    };
    let rounds = |statement: &Statement| match statement {
        Statement::Unary { op, .. } => !matches!(op, UnaryOp::Neg | UnaryOp::Not),
        _ => false,
    };
    program.statements.iter().any(|statement| match statement {
        Statement::Method { method, srcs, .. } if orders(method) => {
            srcs.iter().any(|src| rounds(&program.statements[src.0 as usize]))
        }
        _ => false,
    })
}

#[test]
fn rounded_floats_are_ordered() {
    for lane in [Lane::Methods, Lane::Gradients] {
        let config = Config { lanes: vec![lane], ..Config::default() };
        let programs = (0..20_000).map(|index| program_at(5, index, &config).program);
        let count = programs.filter(orders_rounded_floats).count();
        println!("{count} programs of lane {}", lane.name());
        assert!(count > 0, "no program of lane {} orders rounded floats", lane.name());
    }
}

#[test]
fn windows_have_three_axes_and_gaps() {
    let config = Config { lanes: vec![Lane::Methods], ..Config::default() };
    let (mut convolutions, mut pools, mut gaps) = (0, 0, 0);
    let numbers = |arg: &Arg| match arg {
        Arg::Ints(numbers) => numbers.clone(),
        _ => Vec::new(),
    };
    for index in 0..20_000 {
        for statement in program_at(6, index, &config).program.statements {
            let Statement::Method { method, args, .. } = statement else { continue };
            match method {
                Method::Conv2d | Method::ConvTranspose2d => {
                    convolutions += usize::from(numbers(&args[1]).len() == 3);
                    gaps += usize::from(numbers(&args[2]).contains(&3));
                }
                Method::MaxPool2d | Method::AvgPool2d | Method::MaxPool2dIndices => {
                    pools += usize::from(numbers(&args[0]).len() == 3);
                }
                _ => {}
            }
        }
    }
    println!("{convolutions} convolutions, {pools} pools, {gaps} with gaps of 2");
    assert!(convolutions > 0 && pools > 0 && gaps > 0, "{convolutions} {pools} {gaps}");
}

#[test]
fn limits_are_kept() {
    let small = Config {
        max_statements: 5,
        max_idiom_statements: 5,
        max_elements: 9,
        max_large_elements: 9,
        max_rank: 2,
        ..Config::default()
    };
    for (seed, config) in [(7, Config::default()), (8, small)] {
        for index in 0..20_000 {
            let Generated { program, lane } = program_at(seed, index, &config);
            let types = program.typing().expect("every program is well typed");
            let max_statements = match lane {
                Lane::Idioms => config.max_idiom_statements,
                _ => config.max_statements,
            };
            assert!(types.len() <= max_statements, "{program:?}");
            for tensor in &types {
                assert!(tensor.count() <= config.max_large_elements, "{tensor:?} in {program:?}");
                assert!(tensor.shape.len() <= config.max_rank.max(1), "{tensor:?} in {program:?}");
            }
        }
    }
}

#[test]
fn allow_lists_are_kept() {
    let ops = vec![Op::Reshape, Op::Binary(gradiff_corpus::BinaryOp::Add)];
    let config = Config {
        lanes: vec![Lane::Movement],
        dtypes: vec![DType::I32],
        ops: ops.clone(),
        ..Config::default()
    };
    for index in 0..2_000 {
        let Generated { program, lane } = program_at(3, index, &config);
        assert_eq!(lane, Lane::Movement);
        for statement in &program.statements {
            assert!(Op::of(statement).is_none_or(|op| ops.contains(&op)), "{statement:?}");
        }
        let types = program.typing().expect("every program is well typed");
        assert!(types.iter().all(|tensor| tensor.dtype == DType::I32));
    }
}

#[test]
fn statements_are_live() {
    let config = Config::default();
    let (mut live_count, mut total, mut op_count) = (0, 0, 0);
    for index in 0..PROGRAMS {
        let Generated { program, .. } = program_at(2, index, &config);
        live_count += program.live_statements().iter().filter(|live| **live).count();
        let has_op = |statement: &&Statement| Op::of(statement).is_some();
        op_count += program.statements.iter().filter(has_op).count();
        total += program.statements.len();
    }
    let share = live_count as f64 / total as f64;
    println!("{share:.4} live, {:.3} ops of {total} statements", op_count as f64 / total as f64);
    assert!(share >= 0.95, "only {share:.4} of the statements are live");
    assert!(op_count * 2 > total, "only {op_count} of {total} statements are ops");
}

#[test]
fn same_seed_gives_the_same_program() {
    let config = Config::default();
    for index in 0..1_000 {
        assert_eq!(program_at(5, index, &config), program_at(5, index, &config));
    }
    assert_ne!(case_seed(5, 0), case_seed(5, 1));
    assert_ne!(case_seed(5, 0), case_seed(6, 0));
}

#[test]
fn any_bytes_give_well_typed_cases() {
    let config = Config::default();
    let mut random = SeedChoices::new(11);
    for _ in 0..20_000 {
        let size = random.below(300) as usize;
        let sparse = random.one_in(4);
        let bytes: Vec<u8> = (0..size)
            .map(|_| if sparse && !random.one_in(3) { 0 } else { random.below(256) as u8 })
            .collect();
        let Generated { program, .. } = program(&mut ByteChoices::new(&bytes), &config);
        program.typing().expect("every program is well typed");
        views(&mut ByteChoices::new(&bytes), &ViewConfig::default()).shapes().expect("they fit");
        check_expr(&expr(&mut ByteChoices::new(&bytes), &ExprConfig::default()));
    }
}

#[test]
fn no_bytes_give_the_smallest_program() {
    let Generated { program, .. } = program(&mut ByteChoices::new(&[]), &Config::default());
    assert_eq!(program.statements.len(), 1);
    assert_eq!(program.outputs.len(), 1);
}

#[test]
fn a_replay_gives_the_same_program() {
    let config = Config::default();
    for seed in 0..2_000 {
        let mut recorder = Recorder::new(SeedChoices::new(seed));
        let first = program(&mut recorder, &config);
        let record = recorder.into_record();
        assert_eq!(program(&mut Replay::new(&record), &config), first);
        let half = &record[..record.len() / 2];
        let shorter = program(&mut Replay::new(half), &config);
        shorter.program.typing().expect("a truncated recording gives a well-typed program");
    }
}

#[test]
fn all_short_view_sequences_are_enumerated() {
    let config = ViewConfig::small(2);
    let mut choices = Exhaustive::new();
    let mut seen = BTreeSet::new();
    let mut runs = 0_usize;
    loop {
        let sequence = views(&mut choices, &config);
        sequence.shapes().expect("they fit");
        seen.insert(format!("{sequence:?}"));
        runs += 1;
        if !choices.advance() {
            break;
        }
    }
    println!("{runs} runs, {} sequences", seen.len());
    assert!(seen.len() > 3_000, "{} sequences", seen.len());
    let expected = [
        vec![ViewOp::Pad(vec![(1, 0), (0, 1)]), ViewOp::Flip(vec![0, 1])],
        vec![ViewOp::Permute(vec![1, 0]), ViewOp::Reshape(vec![6])],
        vec![ViewOp::Shrink(vec![(1, 2), (0, 2)]), ViewOp::Expand(vec![2, 2])],
        vec![ViewOp::Flip(vec![1]), ViewOp::Reshape(vec![3, 2])],
    ];
    for ops in expected {
        let sequence = gradiff_corpus::ViewOps { shape: vec![2, 3], ops };
        assert!(seen.contains(&format!("{sequence:?}")), "{sequence:?}");
    }
}

#[test]
fn every_view_operation_and_function_appears() {
    let mut names = BTreeSet::new();
    let mut functions = BTreeSet::new();
    let mut choices = SeedChoices::new(4);
    for _ in 0..10_000 {
        let sequence = views(&mut choices, &ViewConfig::default());
        sequence.shapes().expect("they fit");
        names.extend(sequence.ops.iter().map(ViewOp::name));
        let case = expr(&mut choices, &ExprConfig::default());
        check_expr(&case);
        collect(&case.expr, &mut functions);
    }
    assert_eq!(names.len(), 6);
    assert_eq!(functions.len(), ExprBinary::ALL.len());
}

/// Adds the binary functions of an expression to `functions`.
fn collect(expr: &Expr, functions: &mut BTreeSet<ExprBinary>) {
    match expr {
        Expr::Var(_) | Expr::Int(_) | Expr::Bool(_) => {}
        Expr::Unary(_, src) | Expr::Cast(_, src) => collect(src, functions),
        Expr::Binary(op, a, b) => {
            functions.insert(*op);
            collect(a, functions);
            collect(b, functions);
        }
        Expr::Where(srcs) => srcs.iter().for_each(|src| collect(src, functions)),
    }
}

/// Checks that the expression is defined at the corners of its variables' ranges. Returns whether
/// any value wrapped there.
fn check_expr(case: &ExprCase) -> bool {
    case.dtype().expect("every expression is well typed");
    let mut wrapped = false;
    for corner in 0..1_u32 << case.vars.len() {
        let bound = |(i, var): (usize, &gradiff_corpus::Var)| {
            if corner & (1 << i) != 0 { var.max.into() } else { var.min.into() }
        };
        let values: Vec<i128> = case.vars.iter().enumerate().map(bound).collect();
        evaluate(&case.expr, case, &values, DType::I32, &mut wrapped);
    }
    wrapped
}

/// Wraps a value to the dtype; sets `wrapped` if that changes it.
fn wrap(value: i128, dtype: DType, wrapped: &mut bool) -> i128 {
    let modulus = 1_i128 << (8 * dtype.size_bytes());
    let low = if dtype.is_signed() { -modulus / 2 } else { 0 };
    let result = value.wrapping_sub(low).rem_euclid(modulus) + low;
    *wrapped |= result != value;
    result
}

/// Evaluates an expression at a point. `default` is the dtype of an expression of literals only;
/// `wrapped` is set if a value wraps.
fn evaluate(
    expr: &Expr,
    case: &ExprCase,
    vars: &[i128],
    default: DType,
    wrapped: &mut bool,
) -> i128 {
    use ExprBinary::*;
    let type_of = |x: &Expr| x.dtype(&case.vars);
    let dtype = match expr {
        Expr::Binary(op, x, y) if op.is_comparison() => {
            type_of(x).or(type_of(y)).unwrap_or(DType::I32)
        }
        Expr::Cast(_, x) => type_of(x).unwrap_or(DType::I32),
        expr => type_of(expr).unwrap_or(default),
    };
    let mut value_of = |x: &Expr| evaluate(x, case, vars, dtype, wrapped);
    let value = match expr {
        Expr::Var(number) => vars[*number],
        Expr::Int(value) => i128::from(*value),
        Expr::Bool(value) => i128::from(*value),
        Expr::Unary(gradiff_corpus::ExprUnary::Neg, src) => -value_of(src),
        Expr::Unary(_, src) if dtype == DType::Bool => 1 - value_of(src),
        Expr::Unary(_, src) => {
            let ones = if dtype.is_signed() { -1 } else { (1 << (8 * dtype.size_bytes())) - 1 };
            value_of(src) ^ ones
        }
        Expr::Where(srcs) => {
            let [condition, if_true, if_false] = [&srcs[0], &srcs[1], &srcs[2]].map(&mut value_of);
            if condition != 0 { if_true } else { if_false }
        }
        Expr::Cast(DType::Bool, src) => return i128::from(value_of(src) != 0),
        Expr::Cast(to, src) => return wrap(value_of(src), *to, &mut false),
        Expr::Binary(op, a, b) => {
            let (x, y) = (value_of(a), value_of(b));
            if matches!(op, FloorDiv | FloorMod | CDiv | CMod) {
                assert_ne!(y, 0, "{case}");
            }
            if matches!(op, Shl | Shr) {
                assert!((0..8 * dtype.size_bytes() as i128).contains(&y), "{case}");
            }
            // 1 if the truncated quotient is above the floored one.
            let excess = |x: i128, y: i128| i128::from(x % y != 0 && (x < 0) != (y < 0));
            match op {
                Add => x + y,
                Sub => x - y,
                Mul => x.wrapping_mul(y),
                FloorDiv => x / y - excess(x, y),
                FloorMod => x - y * (x / y - excess(x, y)),
                CDiv => x / y,
                CMod => x % y,
                Max => x.max(y),
                Min => x.min(y),
                Lt => return i128::from(x < y),
                Ne => return i128::from(x != y),
                Eq => return i128::from(x == y),
                And => x & y,
                Or => x | y,
                Xor => x ^ y,
                Shl => x << y,
                Shr => x >> y,
            }
        }
    };
    if dtype == DType::Bool { value } else { wrap(value, dtype, wrapped) }
}

/// Without other dtypes no value leaves the range of i32. With them, half of the expressions may
/// wrap, and every dtype appears.
#[test]
fn expressions_wrap_only_if_allowed() {
    let mut choices = SeedChoices::new(9);
    let only_i32 = ExprConfig { dtypes: Vec::new(), ..ExprConfig::default() };
    let mut wrapped = 0;
    let mut dtypes = BTreeSet::new();
    for _ in 0..5_000 {
        let case = expr(&mut choices, &only_i32);
        assert!(!check_expr(&case), "{case}");
        assert!(case.vars.iter().all(|var| var.dtype == DType::I32), "{case}");
        let case = expr(&mut choices, &ExprConfig::default());
        wrapped += usize::from(check_expr(&case));
        dtypes.extend(case.vars.iter().map(|var| var.dtype));
    }
    assert!((250..2_500).contains(&wrapped), "{wrapped} of 5,000 wrap at a corner");
    assert_eq!(dtypes.len(), 9, "{dtypes:?}");
}

/// Adds the literals of an expression, and the amounts of its shifts: `None` for those that vary.
fn collect_numbers(expr: &Expr, literals: &mut BTreeSet<i64>, amounts: &mut BTreeSet<Option<i64>>) {
    match expr {
        Expr::Int(value) => {
            literals.insert(*value);
        }
        Expr::Var(_) | Expr::Bool(_) => {}
        Expr::Unary(_, src) | Expr::Cast(_, src) => collect_numbers(src, literals, amounts),
        Expr::Binary(op, a, b) => {
            if matches!(op, ExprBinary::Shl | ExprBinary::Shr) {
                amounts.insert(match **b {
                    Expr::Int(amount) => Some(amount),
                    _ => None,
                });
            }
            collect_numbers(a, literals, amounts);
            collect_numbers(b, literals, amounts);
        }
        Expr::Where(srcs) => {
            srcs.iter().for_each(|src| collect_numbers(src, literals, amounts));
        }
    }
}

#[test]
fn literals_and_amounts_of_shifts_reach_the_ends_of_dtypes() {
    let mut choices = SeedChoices::new(6);
    let (mut literals, mut amounts) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..20_000 {
        let case = expr(&mut choices, &ExprConfig::default());
        check_expr(&case);
        collect_numbers(&case.expr, &mut literals, &mut amounts);
    }
    for literal in [127, 255, (1 << 31) - 1, 1 << 31, i64::MAX, -128] {
        assert!(literals.contains(&literal), "{literal} is not among {literals:?}");
    }
    for amount in [None, Some(9), Some(15), Some(31), Some(63)] {
        assert!(amounts.contains(&amount), "{amount:?} is not among {amounts:?}");
    }
}

#[test]
fn all_small_expressions_are_enumerated() {
    let config = ExprConfig::small(2);
    let mut choices = Exhaustive::new();
    let mut seen = BTreeSet::new();
    loop {
        let case = expr(&mut choices, &config);
        check_expr(&case);
        seen.insert(format!("{:?}", case.expr));
        if !choices.advance() {
            break;
        }
    }
    assert!(seen.len() > 100, "{}", seen.len());
}

/// Returns the names of the structures in a program that engines tend to get wrong.
fn structures(program: &Program) -> BTreeSet<&'static str> {
    let types = program.typing().expect("every program is well typed");
    let statement_of = |value: ValueId| &program.statements[value.0 as usize];
    let type_of = |value: ValueId| &types[value.0 as usize];
    let mut seen = BTreeSet::new();
    for statement in &program.statements {
        let name = match statement {
            Statement::Reduce { src, axes, .. } => {
                let shape = &type_of(*src).shape;
                if axes.iter().any(|axis| shape[*axis] == 0) {
                    seen.insert("reduce over an axis of size 0");
                }
                match statement_of(*src) {
                    Statement::Reduce { .. } => "reduce of a reduce",
                    Statement::Pad { .. } => "reduce of a pad",
                    Statement::Binary { .. } => "reduce of arithmetic",
                    _ => continue,
                }
            }
            Statement::Binary { srcs, .. } => {
                let sources = srcs.iter().filter_map(|src| match src {
                    Operand::Value(value) => Some(statement_of(*value)),
                    Operand::Literal(_) => None,
                });
                let has_permuted_reduce = sources.into_iter().any(|source| {
                    matches!(source, Statement::Permute { src, .. }
                        if matches!(statement_of(*src), Statement::Reduce { .. }))
                });
                if !has_permuted_reduce {
                    continue;
                }
                "arithmetic on a permuted reduce"
            }
            Statement::Expand { src, .. }
                if matches!(statement_of(*src), Statement::Reduce { .. }) =>
            {
                "expand of a reduce"
            }
            Statement::Gather { src, .. }
                if Op::of(statement_of(*src)).is_some_and(|op| op.is_movement()) =>
            {
                "gather through a view"
            }
            Statement::Pad { src, value, .. } => match (type_of(*src).dtype, value) {
                (DType::Bool, Literal::Bool(true)) => "bool pad with true",
                (_, Literal::Int(value)) if *value != 0 => "integer pad with a number",
                (_, Literal::Float(value)) if *value != 0.0 => "float pad with a number",
                _ => continue,
            },
            Statement::Cat { srcs, .. } if srcs.len() >= 3 => "cat of three or more",
            Statement::Bitcast { dtype: DType::F16, .. } => "bitcast to f16",
            Statement::Bitcast { dtype: DType::BF16, .. } => "bitcast to bf16",
            Statement::Unary { op, src } if type_of(*src).dtype == DType::F64 => match op {
                UnaryOp::Exp2 => "exp2 of f64",
                UnaryOp::Log2 => "log2 of f64",
                UnaryOp::Sin => "sin of f64",
                _ => continue,
            },
            _ => continue,
        };
        seen.insert(name);
    }
    seen
}

#[test]
fn error_prone_structures_appear_in_two_of_a_thousand_programs() {
    let names = [
        "reduce over an axis of size 0",
        "reduce of a reduce",
        "reduce of a pad",
        "reduce of arithmetic",
        "arithmetic on a permuted reduce",
        "expand of a reduce",
        "gather through a view",
        "bool pad with true",
        "integer pad with a number",
        "float pad with a number",
        "cat of three or more",
        "bitcast to f16",
        "bitcast to bf16",
        "exp2 of f64",
        "log2 of f64",
        "sin of f64",
    ];
    const COUNT: u64 = 20_000;
    let mut counts: BTreeMap<&str, u64> = names.into_iter().map(|name| (name, 0)).collect();
    for index in 0..COUNT {
        for name in structures(&program_at(3, index, &Config::default()).program) {
            *counts.get_mut(name).expect("every structure is listed") += 1;
        }
    }
    println!("{counts:#?}");
    let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < COUNT / 500).collect();
    assert!(rare.is_empty(), "of {COUNT} programs: {rare:?}");
}

/// Structures that next to no program has but by its tail, or by the sizes of large programs, and
/// the number of [`TAILED`] programs that have each at least: a fraction of those expected.
const TAIL: [(&str, u64); 13] = [
    ("computed second factor", 150),
    ("product with the transpose", 60),
    ("attention to itself", 12),
    ("second factor of more axes", 60),
    ("convolution to 13 channels or more", 2),
    ("two gradients of a value", 30),
    ("step of training", 15),
    ("gradient by 65 elements or more", 2),
    ("power of an infinity or NaN", 40),
    ("axes in descending order", 100),
    ("integer beside a float", 40),
    ("six parts or more", 60),
    ("uneven axes", 30),
];

/// Number of programs in which the structures of the tail are counted.
const TAILED: u64 = 60_000;

/// Returns the names of the structures of [`TAIL`] in a program.
fn tail_structures(program: &Program) -> BTreeSet<&'static str> {
    let types = program.typing().expect("every program is well typed");
    let mut seen = BTreeSet::new();
    let mut differentiated = BTreeSet::new();
    for statement in &program.statements {
        match statement {
            Statement::Method { method, srcs, args } => {
                let shapes: Vec<&[usize]> =
                    srcs.iter().map(|src| types[src.0 as usize].shape.as_slice()).collect();
                seen.extend(product_structures(program, *method, srcs, &shapes));
                let is_ordered =
                    is_descending(*method, args, shapes.first().map_or(0, |s| s.len()));
                seen.extend(is_ordered.then_some("axes in descending order"));
                let is_stack = *method == Method::Stack && 6 <= srcs.len();
                seen.extend(is_stack.then_some("six parts or more"));
            }
            Statement::Cat { srcs, .. } if 6 <= srcs.len() => {
                seen.insert("six parts or more");
            }
            Statement::Gradient { of, wrt } => {
                let is_second = !differentiated.insert(*of);
                seen.extend(is_second.then_some("two gradients of a value"));
                let is_long = 64 < types[wrt.0 as usize].count();
                seen.extend(is_long.then_some("gradient by 65 elements or more"));
            }
            Statement::Binary { op, srcs } => {
                let mut dtypes = srcs.iter().filter_map(|src| match src {
                    Operand::Value(value) => Some(types[value.0 as usize].dtype),
                    Operand::Literal(_) => None,
                });
                let has_int =
                    srcs.iter().any(|src| matches!(src, Operand::Literal(Literal::Int(_))));
                let is_mixed = has_int && dtypes.any(DType::is_float);
                seen.extend(is_mixed.then_some("integer beside a float"));
                let is_pow = *op == gradiff_corpus::BinaryOp::Pow;
                let is_special = is_pow && srcs.iter().any(|src| has_special(program, src));
                seen.extend(is_special.then_some("power of an infinity or NaN"));
            }
            Statement::Input { shape, .. } => {
                let is_uneven = |size: &usize| [19, 29, 37, 48, 96, 130].contains(size);
                let is_found = 2 <= shape.len() && shape.iter().any(is_uneven);
                seen.extend(is_found.then_some("uneven axes"));
            }
            _ => {}
        }
    }
    seen
}

/// Returns the names of the structures of a product, or of an assignment, in a program.
fn product_structures(
    program: &Program,
    method: Method,
    srcs: &[ValueId],
    shapes: &[&[usize]],
) -> Vec<&'static str> {
    use Method::{Assign, Conv2d, ConvTranspose2d, Dot, Linear, Matmul, ScaledDotProductAttention};
    let statement_of = |value: ValueId| &program.statements[value.0 as usize];
    let is_transpose = |a: ValueId, b: ValueId| match statement_of(a) {
        Statement::Permute { src, .. } => *src == b,
        _ => false,
    };
    let is_step = |value: ValueId| {
        let mut sources = Vec::new();
        statement_of(value).for_each_source(|src| sources.push(src));
        let of_gradient = |src: &ValueId| {
            let mut is_gradient = false;
            statement_of(*src).for_each_source(|src| {
                is_gradient |= matches!(statement_of(src), Statement::Gradient { .. });
            });
            is_gradient
        };
        sources.iter().any(of_gradient)
    };
    let mut seen = Vec::new();
    let is_matrix_product = matches!(method, Matmul | Dot | Linear);
    let is_convolution = matches!(method, Conv2d | ConvTranspose2d);
    let is_attention = method == ScaledDotProductAttention;
    if is_matrix_product || is_convolution || is_attention {
        let is_computed = Op::of(statement_of(srcs[1])).is_some();
        seen.extend(is_computed.then_some("computed second factor"));
    }
    if is_matrix_product {
        let has_transpose = is_transpose(srcs[0], srcs[1]) || is_transpose(srcs[1], srcs[0]);
        seen.extend(has_transpose.then_some("product with the transpose"));
        let has_more = shapes[0].len() < shapes[1].len() && 2 < shapes[1].len();
        seen.extend(has_more.then_some("second factor of more axes"));
    }
    let is_itself = is_attention && srcs[0] == srcs[1] && srcs[1] == srcs[2];
    seen.extend(is_itself.then_some("attention to itself"));
    let channels = usize::from(method == ConvTranspose2d);
    let is_wide = is_convolution && 13 <= shapes[1][channels];
    seen.extend(is_wide.then_some("convolution to 13 channels or more"));
    let is_training = method == Assign && is_step(srcs[1]);
    seen.extend(is_training.then_some("step of training"));
    seen
}

/// Returns whether a method has a list of several axes, of `rank`, in descending order.
fn is_descending(method: Method, args: &[Arg], rank: usize) -> bool {
    use Method::{All, Any, CountNonzero, LayerNorm, LogSumExp, Mean, Min, Roll, Std, Var};
    let list = match method {
        Roll => &args[1],
        All | Any | CountNonzero | LayerNorm | LogSumExp | Mean | Min | Std | Var => &args[0],
        _ => return false,
    };
    let Arg::Ints(list) = list else { return false };
    let from_start = |axis: &i64| if *axis < 0 { axis + rank as i64 } else { *axis };
    let axes: Vec<i64> = list.iter().map(from_start).collect();
    1 < axes.len() && axes.windows(2).all(|pair| pair[1] < pair[0])
}

/// Returns whether an operand is data with an infinity or a NaN among its listed elements.
fn has_special(program: &Program, operand: &Operand) -> bool {
    let Operand::Value(value) = operand else { return false };
    let Statement::Input { dtype, fill: gradiff_corpus::Fill::Explicit(bits), .. } =
        &program.statements[value.0 as usize]
    else {
        return false;
    };
    let text = |bits: &u64| gradiff_corpus::format_element(*dtype, *bits);
    let is_special = |text: String| text.parse::<f64>().is_ok_and(|number| !number.is_finite());
    dtype.is_float() && bits.iter().map(text).any(is_special)
}

#[test]
fn structures_of_the_tail_appear() {
    let mut counts: BTreeMap<&str, u64> = TAIL.into_iter().map(|(name, _)| (name, 0)).collect();
    for index in 0..TAILED {
        for name in tail_structures(&program_at(6, index, &Config::default()).program) {
            *counts.get_mut(name).expect("every structure is listed") += 1;
        }
    }
    println!("{counts:#?}");
    let rare: Vec<_> = TAIL.iter().filter(|(name, least)| counts[name] < *least).collect();
    assert!(rare.is_empty(), "of {TAILED} programs: {rare:?}, {counts:?}");
}

/// A hunt of half a minute covers most pairs of features. Without steering, 4,042 of 5,050 pairs
/// were covered after 2,500 programs, and 4,580 after 20,000.
#[test]
fn most_pairs_of_features_are_covered() {
    let mut pairs = Pairs::default();
    let mut counts: BTreeMap<Feature, u64> = Feature::all().map(|feature| (feature, 0)).collect();
    for index in 0..20_000 {
        let program = program_at(1, index, &Config::default()).program;
        pairs.add(&program);
        let found = features(&program).into_iter().fold(Features::default(), Features::union);
        found.iter().for_each(|feature| *counts.entry(feature).or_default() += 1);
        if index == 2_499 {
            println!("{} after 2,500", pairs.seen());
            assert!(pairs.seen() >= 4_500, "{} of {}", pairs.seen(), Pairs::POSSIBLE);
        }
    }
    println!("{} of {}", pairs.seen(), Pairs::POSSIBLE);
    assert!(pairs.seen() >= 4_950, "{} of {}", pairs.seen(), Pairs::POSSIBLE);
    // Each feature is in one of 400 programs at least. More of those with large tensors would cost
    // time.
    let rare: Vec<_> = counts.iter().filter(|(_, count)| **count < 50).collect();
    let rare: Vec<_> = rare.iter().map(|(feature, count)| (feature.name(), **count)).collect();
    assert!(rare.is_empty(), "of 20,000 programs: {rare:?}");
}

#[test]
fn pairs_are_of_a_statement_and_its_sources() {
    let text = "a = input f32[2,3] iota\nb = pad a [(1,0),(0,0)] 0.0\nc = permute b axes=[1,0]\n\
                d = sum c axes=[0]\noutput d\n";
    let file = gradiff_corpus::parse(text).expect("it parses");
    let gradiff_corpus::Case::Program(program) = file.case else { panic!("a program") };
    let mut pairs = Pairs::default();
    pairs.add(&program);
    let named = |name: &str| Feature::from_name(name).expect("the feature exists");
    let count = |a: &str, b: &str| pairs.count(named(a), named(b));
    assert_eq!((count("pad", "permute"), count("permute", "sum")), (1, 1));
    assert_eq!(count("pad", "sum"), 0);
    assert_eq!(count("sum", "reduce-earlier-axis"), 1);
    assert_eq!(Pairs::POSSIBLE - pairs.seen(), pairs.unseen().len());
}
