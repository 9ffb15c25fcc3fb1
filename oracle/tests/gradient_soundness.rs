//! Gradients that a plain engine computes, in reverse mode and f32 with a rounding after each op,
//! are within the bounds; a mistake in one op is not.

use std::fmt::Write;

use gradiff_corpus::{Array, Case, DType, Program, parse};
use gradiff_oracle::{Element, Expected, evaluate};

const COUNT: usize = 6;

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }

    fn float(&mut self) -> f32 {
        let magnitude = 0.25 + self.below(1 << 20) as f32 / (1 << 19) as f32;
        if self.below(2) == 0 { magnitude } else { -magnitude }
    }
}

/// A statement of the drawn programs, all on vectors.
#[derive(Clone, Copy)]
struct Op {
    name: &'static str,
    sources: usize,
    /// The value, and the partial derivatives, of up to two sources.
    value: fn(f32, f32) -> f32,
    partials: fn(f32, f32, f32) -> [f32; 2],
}

fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + (-x).exp())
}

const OPS: &[Op] = &[
    Op { name: "add", sources: 2, value: |x, y| x + y, partials: |_, _, _| [1.0, 1.0] },
    Op { name: "sub", sources: 2, value: |x, y| x - y, partials: |_, _, _| [1.0, -1.0] },
    Op { name: "mul", sources: 2, value: |x, y| x * y, partials: |x, y, _| [y, x] },
    Op {
        name: "div",
        sources: 2,
        value: |x, y| x / y,
        partials: |x, y, _| {
            let inverse = 1.0 / y;
            [inverse, -x * (inverse * inverse)]
        },
    },
    Op {
        name: "max",
        sources: 2,
        value: f32::max,
        partials: |x, y, _| match x == y {
            true => [0.5, 0.5],
            false => [f32::from(x > y), f32::from(y > x)],
        },
    },
    Op { name: "sin", sources: 1, value: |x, _| x.sin(), partials: |x, _, _| [x.cos(), 0.0] },
    Op {
        name: "exp2",
        sources: 1,
        value: |x, _| x.exp2(),
        partials: |_, _, y| [y * std::f32::consts::LN_2, 0.0],
    },
    Op { name: "recip", sources: 1, value: |x, _| 1.0 / x, partials: |_, _, y| [-y * y, 0.0] },
    Op { name: "square", sources: 1, value: |x, _| x * x, partials: |x, _, _| [2.0 * x, 0.0] },
    Op {
        name: "sigmoid",
        sources: 1,
        value: |x, _| sigmoid(x),
        partials: |_, _, y| [y * (1.0 - y), 0.0],
    },
    Op { name: "tanh", sources: 1, value: |x, _| x.tanh(), partials: |_, _, y| [1.0 - y * y, 0.0] },
    Op {
        name: "silu",
        sources: 1,
        value: |x, _| x * sigmoid(x),
        partials: |x, _, _| {
            let s = sigmoid(x);
            [s + x * (s * (1.0 - s)), 0.0]
        },
    },
    Op {
        name: "atan",
        sources: 1,
        value: |x, _| x.atan(),
        partials: |x, _, _| [1.0 / (1.0 + x * x), 0.0],
    },
    Op {
        name: "asinh",
        sources: 1,
        value: |x, _| x.asinh(),
        partials: |x, _, _| [1.0 / (1.0 + x * x).sqrt(), 0.0],
    },
    Op {
        name: "softsign",
        sources: 1,
        value: |x, _| x / (1.0 + x.abs()),
        partials: |x, _, _| {
            let inverse = 1.0 / (1.0 + x.abs());
            [inverse * inverse, 0.0]
        },
    },
];

#[derive(Clone, Copy)]
enum Step {
    Each {
        op: usize,
        sources: [usize; 2],
    },
    /// The sum of all elements, expanded.
    Sum {
        source: usize,
    },
    /// The running sum.
    Cumsum {
        source: usize,
    },
}

impl Step {
    fn sources(&self) -> &[usize] {
        match self {
            Step::Each { op, sources } => &sources[..OPS[*op].sources],
            Step::Sum { source } | Step::Cumsum { source } => std::slice::from_ref(source),
        }
    }
}

struct Drawn {
    inputs: Vec<Vec<f32>>,
    steps: Vec<Step>,
}

fn draw(random: &mut Random) -> Drawn {
    let inputs: Vec<Vec<f32>> =
        (0..2).map(|_| (0..COUNT).map(|_| random.float()).collect()).collect();
    let mut steps = Vec::new();
    for _ in 0..2 + random.below(7) {
        let known = inputs.len() + steps.len();
        // Mostly recent values, so that chains are long.
        let mut source = || known - 1 - random.below(known).min(random.below(known));
        let sources = [source(), source()];
        steps.push(match random.below(10) {
            0 => Step::Sum { source: sources[0] },
            1 => Step::Cumsum { source: sources[0] },
            _ => Step::Each { op: random.below(OPS.len()), sources },
        });
    }
    Drawn { inputs, steps }
}

fn program(drawn: &Drawn) -> Program {
    let mut text = String::new();
    for (number, input) in drawn.inputs.iter().enumerate() {
        writeln!(text, "v{number} = input f32[{COUNT}] {input:?}").expect("a string grows");
    }
    for (number, step) in drawn.steps.iter().enumerate() {
        let v = drawn.inputs.len() + number;
        match step {
            Step::Each { op, sources: [a, b] } => {
                let Op { name, sources, .. } = OPS[*op];
                let second = if sources == 2 { format!("v{b}") } else { String::new() };
                writeln!(text, "v{v} = {name} v{a} {second}").expect("a string grows");
            }
            Step::Sum { source } => {
                writeln!(text, "s{v} = sum v{source} axes=[0]\nv{v} = expand s{v} [{COUNT}]")
                    .expect("a string grows")
            }
            Step::Cumsum { source } => {
                writeln!(text, "v{v} = cumsum v{source} axis=0").expect("a string grows");
            }
        }
    }
    let last = drawn.inputs.len() + drawn.steps.len() - 1;
    write!(text, "g = gradient v{last} v0\noutput g\n").expect("a string grows");
    match parse(&text).unwrap_or_else(|error| panic!("{text}\n{error}")).case {
        Case::Program(program) => program,
        _ => panic!("{text} is a program"),
    }
}

/// Returns the gradient by the first input, in reverse mode. If there is a `fault`, the partial
/// derivatives of this step are wrong.
fn reverse(drawn: &Drawn, fault: Option<usize>) -> Vec<f32> {
    let mut values = drawn.inputs.clone();
    for step in &drawn.steps {
        values.push(match step {
            Step::Each { op, sources: [a, b] } => {
                (0..COUNT).map(|i| (OPS[*op].value)(values[*a][i], values[*b][i])).collect()
            }
            Step::Sum { source } => vec![values[*source].iter().sum(); COUNT],
            Step::Cumsum { source } => {
                (0..COUNT).map(|i| values[*source][..=i].iter().sum()).collect()
            }
        });
    }
    let mut adjoints = vec![vec![0f32; COUNT]; values.len()];
    *adjoints.last_mut().expect("there are values") = vec![1.0; COUNT];
    let mut is_used = vec![false; values.len()];
    *is_used.last_mut().expect("there are values") = true;
    for (number, step) in drawn.steps.iter().enumerate().rev() {
        let v = drawn.inputs.len() + number;
        if !is_used[v] {
            continue;
        }
        for source in step.sources() {
            is_used[*source] = true;
        }
        let adjoint = adjoints[v].clone();
        let scale = if fault == Some(number) { 1.01 } else { 1.0 };
        match step {
            Step::Each { op, sources } => {
                for i in 0..COUNT {
                    let [a, b] = sources.map(|source| values[source][i]);
                    let partials = (OPS[*op].partials)(a, b, values[v][i]);
                    for (source, partial) in sources.iter().zip(partials).take(OPS[*op].sources) {
                        adjoints[*source][i] += adjoint[i] * partial * scale;
                    }
                }
            }
            Step::Sum { source } => {
                let sum: f32 = adjoint.iter().sum();
                (0..COUNT).for_each(|i| adjoints[*source][i] += sum * scale);
            }
            Step::Cumsum { source } => (0..COUNT).for_each(|i| {
                adjoints[*source][i] += adjoint[i..].iter().sum::<f32>() * scale;
            }),
        }
    }
    adjoints.swap_remove(0)
}

fn judge(expected: &Expected, values: &[f32]) -> gradiff_oracle::Verdict {
    let bits = values.iter().map(|value| value.to_bits().into()).collect();
    expected.judge(&Array { dtype: DType::F32, shape: vec![values.len()], bits })
}

#[test]
fn reverse_mode_is_accepted_and_mistakes_are_not() {
    let mut random = Random(1);
    let (mut checked, mut unspecified, mut faults, mut found) = (0, 0, 0, 0);
    let mut largest: f64 = 0.0;
    for _ in 0..20_000 {
        let drawn = draw(&mut random);
        if reverse(&drawn, None).iter().all(|value| *value == 0.0) {
            continue;
        }
        let program = program(&drawn);
        let expected = &evaluate(&program).expect("well-formed")[0];
        let gradient = reverse(&drawn, None);
        let verdict = judge(expected, &gradient);
        assert!(verdict.is_ok(), "{:?}\n{program:?}\n{gradient:?}", verdict.mismatch);
        checked += verdict.checked;
        unspecified += verdict.unspecified;
        for (index, value) in gradient.iter().enumerate() {
            if let Element::Ball { center, radius, .. } = expected.element(index) {
                largest = largest.max((f64::from(*value) - center).abs() / radius);
            }
        }
        let fault = random.below(drawn.steps.len());
        let wrong = reverse(&drawn, Some(fault));
        if wrong != gradient && verdict.unspecified < COUNT {
            faults += 1;
            found += usize::from(!judge(expected, &wrong).is_ok());
        }
    }
    println!("{checked} checked, {unspecified} unspecified, {found} of {faults}, {largest}");
    assert!(unspecified * 20 < checked, "{unspecified} of {checked} are unspecified");
    assert!(found * 10 > faults * 9, "{found} of {faults} mistakes are found");
    assert!(largest > 0.05, "the bounds are loose: {largest}");
}
