//! The bounds contain the results of legal computations, and little more. Random float programs are
//! computed in plain Rust with rounding after every op, without rounding, and with sums and
//! products in other orders: all results must be accepted, and results beyond the bound rejected.

use gradiff_corpus::{
    Array, BinaryOp, DType, Fill, Operand, Program, ReduceOp, Statement, UnaryOp, ValueId,
};
use gradiff_oracle::{Element, Expected, evaluate};

const COUNT: usize = 16;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        self.0 >> 33
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    /// Draws mostly moderate numbers with full mantissas, some dyadic ones, some of other
    /// magnitudes.
    fn float(&mut self) -> f32 {
        let mantissa = 1.0 + self.next() as f32 / (1u64 << 31) as f32;
        let sign = if self.next() & 1 == 0 { 1.0 } else { -1.0 };
        match self.below(8) {
            0..=4 => sign * mantissa * 2f32.powi(self.below(7) as i32 - 3),
            5 => sign * self.below(32) as f32 / 8.0,
            6 => sign * mantissa * 2f32.powi(self.below(60) as i32 - 30),
            _ => sign * self.below(3) as f32,
        }
    }
}

/// Draws a float program: inputs, elementwise ops on any earlier values, sometimes a reduction.
fn random_program(random: &mut Random) -> Program {
    let mut statements = Vec::new();
    for _ in 0..3 {
        let bits = (0..COUNT).map(|_| random.float().to_bits().into()).collect();
        let fill = Fill::Explicit(bits);
        statements.push(Statement::Input { dtype: DType::F32, shape: vec![COUNT], fill });
    }
    for _ in 0..1 + random.below(6) {
        let len = statements.len();
        let mut value = || ValueId(random.below(len) as u32);
        let (a, b, c) = (value(), value(), value());
        let values = |ids: [ValueId; 2]| ids.map(Operand::Value);
        let binary = |op| Statement::Binary { op, srcs: values([a, b]) };
        statements.push(match random.below(10) {
            0..=2 => binary(BinaryOp::Add),
            3 => binary(BinaryOp::Sub),
            4..=5 => binary(BinaryOp::Mul),
            6 => binary(BinaryOp::Div),
            7 => binary(BinaryOp::Max),
            8 => Statement::MulAcc { srcs: [a, b, c].map(Operand::Value) },
            _ => Statement::Unary { op: UnaryOp::Sqrt, src: a },
        });
    }
    let src = ValueId(statements.len() as u32 - 1);
    match random.below(4) {
        0 => statements.push(Statement::Reduce { op: ReduceOp::Sum, src, axes: vec![0] }),
        1 => statements.push(Statement::Reduce { op: ReduceOp::Prod, src, axes: vec![0] }),
        _ => {}
    }
    let outputs = vec![ValueId(statements.len() as u32 - 1)];
    Program { statements, outputs }
}

/// A legal computation.
struct Computation {
    /// Applied after each op.
    round: fn(f64) -> f64,
    /// The order of reductions: from the front (0), from the back (1), or as a tree.
    order: usize,
}

fn reduce(computation: &Computation, values: &[f64], combine: fn(f64, f64) -> f64) -> f64 {
    let join = |a: f64, b: f64| (computation.round)(combine(a, b));
    match computation.order {
        0 => values.iter().copied().reduce(join),
        1 => values.iter().rev().copied().reduce(join),
        _ => {
            let mut level = values.to_vec();
            while level.len() > 1 {
                level = level
                    .chunks(2)
                    .map(|pair| if pair.len() == 2 { join(pair[0], pair[1]) } else { pair[0] })
                    .collect();
            }
            level.first().copied()
        }
    }
    .expect("the group has elements")
}

fn compute(program: &Program, computation: &Computation) -> Vec<f64> {
    let mut values: Vec<Vec<f64>> = Vec::new();
    for statement in &program.statements {
        let elements = |operand: &Operand| match operand {
            Operand::Value(id) => &values[id.0 as usize],
            Operand::Literal(_) => panic!("no literals are drawn"),
        };
        let next: Vec<f64> = match statement {
            Statement::Input { fill: Fill::Explicit(bits), .. } => {
                bits.iter().map(|bits| f32::from_bits(*bits as u32).into()).collect()
            }
            Statement::Binary { op, srcs } => {
                let pairs = elements(&srcs[0]).iter().zip(elements(&srcs[1]));
                let apply = |(a, b): (&f64, &f64)| match op {
                    BinaryOp::Add => a + b,
                    BinaryOp::Sub => a - b,
                    BinaryOp::Mul => a * b,
                    BinaryOp::Div => a / b,
                    _ if a.is_nan() || b.is_nan() => f64::NAN,
                    _ => a.max(*b),
                };
                pairs.map(apply).map(computation.round).collect()
            }
            Statement::MulAcc { srcs } => {
                let [a, b, c] = [0, 1, 2].map(|i| elements(&srcs[i]));
                (0..COUNT).map(|i| (computation.round)(a[i].mul_add(b[i], c[i]))).collect()
            }
            Statement::Unary { src, .. } => {
                values[src.0 as usize].iter().map(|x| (computation.round)(x.sqrt())).collect()
            }
            Statement::Reduce { op, src, .. } => {
                let combine: fn(f64, f64) -> f64 =
                    if *op == ReduceOp::Sum { |a, b| a + b } else { |a, b| a * b };
                vec![reduce(computation, &values[src.0 as usize], combine)]
            }
            _ => panic!("{statement:?} is not drawn"),
        };
        values.push(next);
    }
    values.pop().expect("a program has statements")
}

fn judge(expected: &Expected, values: &[f64]) -> gradiff_oracle::Verdict {
    let bits = values.iter().map(|value| (*value as f32).to_bits().into()).collect();
    expected.judge(&Array { dtype: DType::F32, shape: vec![values.len()], bits })
}

#[test]
fn legal_computations_are_accepted_and_few_elements_unspecified() {
    let single: fn(f64) -> f64 = |value| f64::from(value as f32);
    let wide: fn(f64) -> f64 = |value| value;
    let mut random = Random(1);
    let (mut checked, mut open, mut exact) = (0, 0, 0);
    for number in 0..30_000 {
        let program = random_program(&mut random);
        let expected = evaluate(&program).expect("well-formed").remove(0);
        for round in [single, wide] {
            for order in 0..3 {
                let values = compute(&program, &Computation { round, order });
                let verdict = judge(&expected, &values);
                let mismatch = verdict.mismatch.map(|mismatch| {
                    let value = values[mismatch.index];
                    format!("{number}: got {value:e}, {mismatch:?}\n{program:?}")
                });
                assert_eq!(mismatch, None);
                checked += verdict.checked;
                open += verdict.unspecified;
            }
        }
        exact += expected.elements().filter(|element| matches!(element, Element::Exact(_))).count();
    }
    assert!(checked > 1_000_000 && exact > 10_000, "{checked} checked, {exact} exact");
    assert!(open * 20 < checked, "{open} of {checked} open");
}

#[test]
fn results_beyond_the_bound_are_refused() {
    let mut random = Random(2);
    let (mut sharp, mut balls) = (0, 0);
    for _ in 0..3_000 {
        let program = random_program(&mut random);
        let expected = evaluate(&program).expect("well-formed").remove(0);
        for element in expected.elements() {
            match element {
                Element::Ball { center, low, radius, .. } => {
                    balls += 1;
                    let beyond = (center + low + radius * 1.01) as f32;
                    if f64::from(beyond) > center + radius {
                        assert!(!element.admits(DType::F32, beyond.next_up().to_bits().into()));
                    }
                    sharp += usize::from(radius < center.abs() * 2f64.powi(-20));
                }
                Element::Exact(bits) if f32::from_bits(bits as u32).is_finite() => {
                    assert!(!element.admits(DType::F32, bits ^ 1));
                }
                _ => {}
            }
        }
    }
    // A wide bound would let everything pass: most must stay within 16 units of roundoff.
    assert!(sharp * 10 > balls * 6, "{sharp} of {balls}");
}

#[test]
fn the_test_itself_can_fail() {
    // Rounding to 23 bits is not legal, and must show.
    let coarse: fn(f64) -> f64 = |value| f64::from(f32::from_bits((value as f32).to_bits() & !3));
    let mut random = Random(3);
    let refused = (0..200).filter(|_| {
        let program = random_program(&mut random);
        let expected = evaluate(&program).expect("well-formed").remove(0);
        !judge(&expected, &compute(&program, &Computation { round: coarse, order: 0 })).is_ok()
    });
    let refused = refused.count();
    assert!(refused > 100, "{refused} of 200 refused");
}

/// f64 programs have no wider format to hide in: sums in other orders and an error-free sum.
#[test]
fn double_sums_hold_every_order_and_refuse_one_more_ulp() {
    let mut random = Random(4);
    for _ in 0..2_000 {
        let data: Vec<f64> = (0..COUNT)
            .map(|_| f64::from(random.float()) * (1.0 + 1e-9 * random.below(9) as f64))
            .collect();
        let fill = Fill::Explicit(data.iter().map(|value| value.to_bits()).collect());
        let input = Statement::Input { dtype: DType::F64, shape: vec![COUNT], fill };
        let src = ValueId(0);
        let sum = Statement::Reduce { op: ReduceOp::Sum, src, axes: vec![0] };
        let program = Program { statements: vec![input, sum], outputs: vec![ValueId(1)] };
        let expected = evaluate(&program).expect("well-formed").remove(0);
        let element = expected.element(0);
        for order in 0..3 {
            let sum = reduce(&Computation { round: |value| value, order }, &data, |a, b| a + b);
            assert!(element.admits(DType::F64, sum.to_bits()), "{sum:e} {element:?}");
        }
        let mass: f64 = data.iter().map(|value| value.abs()).sum();
        let far = data.iter().sum::<f64>() + mass * 2f64.powi(-53) * 2.0 * COUNT as f64;
        assert!(!element.admits(DType::F64, far.to_bits()), "{far:e} {element:?}");
    }
}
