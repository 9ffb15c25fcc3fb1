//! Derivatives of derivatives where formulas break: of each statement of the corpus with one or two
//! sources, at zeros, kinks and ties, up to the third order.

use std::collections::HashSet;

use gradiff_check::{agree, backends};
use gradiff_corpus::{
    Case, DType, Fill, Program, Statement, TensorType, ValueId, embedded, parse, statement_type,
};

/// The elements of the sources: zeros of both signs, integers, halves, equal ones at some places.
const POINTS: [[f32; 12]; 2] = [
    [0.0, -0.0, 1.0, -1.0, 3.0, -3.0, 0.5, -0.5, 2.5, -2.5, 6.0, 0.25],
    [0.0, 2.0, 1.0, 0.0, -3.0, 3.0, 0.5, 0.5, 0.0, 1.0, 6.0, -0.0],
];
const SHAPES: [&[usize]; 2] = [&[12], &[3, 4]];
/// The sources that derivatives are taken with respect to, one after the other.
const ORDERS: [&[u32]; 4] = [&[0, 0, 0], &[0, 1, 0], &[1, 1, 1], &[1, 0]];

/// The statements of the corpus with one source or two, which become values 0 and 1, each once.
fn statements() -> Vec<Statement> {
    let mut known = HashSet::new();
    let mut found = Vec::new();
    for (stem, text) in embedded() {
        let file = parse(text).unwrap_or_else(|error| panic!("{stem}: {error}"));
        let Case::Program(program) = file.case else { continue };
        for mut statement in program.statements {
            if matches!(statement, Statement::Gradient { .. }) {
                continue;
            }
            let mut count = 0;
            statement.map_sources(|_| {
                count += 1;
                ValueId(count - 1)
            });
            if (1..=2).contains(&count) && known.insert(format!("{statement:?}")) {
                found.push(statement);
            }
        }
    }
    found
}

/// The program that takes these derivatives of a statement; `None` if one is not defined.
fn program(statement: &Statement, shape: &[usize], order: &[u32]) -> Option<Program> {
    let count = statement.sources().len();
    if order.iter().any(|number| count <= *number as usize) {
        return None;
    }
    let input = |points: [f32; 12]| {
        let fill = Fill::Explicit(points.map(|point| u64::from(point.to_bits())).to_vec());
        Statement::Input { dtype: DType::F32, shape: shape.to_vec(), fill }
    };
    let mut statements: Vec<Statement> = POINTS[..count].iter().copied().map(input).collect();
    let mut types: Vec<TensorType> = Vec::new();
    for statement in &statements {
        types.push(statement_type(statement, &types).ok()?);
    }
    let derivatives = order.iter().zip(count as u32..);
    let derivatives =
        derivatives.map(|(wrt, of)| Statement::Gradient { of: ValueId(of), wrt: ValueId(*wrt) });
    for statement in std::iter::once(statement.clone()).chain(derivatives) {
        types.push(statement_type(&statement, &types).ok()?);
        statements.push(statement);
    }
    let outputs = (count as u32 + 1..statements.len() as u32).map(ValueId).collect();
    Some(Program { statements, outputs })
}

#[test]
fn derivatives_of_derivatives_are_right_at_special_points() {
    let mut programs = Vec::new();
    for statement in statements() {
        for shape in SHAPES {
            programs.extend(ORDERS.iter().filter_map(|order| program(&statement, shape, order)));
        }
    }
    println!("{} programs", programs.len());
    assert!(programs.len() > 500, "{} programs", programs.len());
    let present = backends(&["interp".to_string()]).unwrap_or_else(|e| panic!("{}", e.message));
    let (tally, failures) = agree(&programs.iter().collect::<Vec<_>>(), &present);
    let failures: Vec<String> = failures
        .into_iter()
        .map(|(at, failure)| format!("{}\n{}", failure.detail, programs[at]))
        .collect();
    assert!(failures.is_empty(), "{} programs: {}", failures.len(), failures.join("\n"));
    assert!(tally.checked_elements > 10_000, "{}", tally.checked_elements);
}
