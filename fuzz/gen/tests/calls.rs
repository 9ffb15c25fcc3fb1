//! The generator calls every method, for every dtype that it takes.

use gradiff_corpus::{Arg, ArgKind, Method, Statement};
use gradiff_gen::{Calls, Config, Lane, program_at};

/// Number of programs: enough for each method and dtype, a few dozen times on average.
const PROGRAMS: u64 = 75_000;

#[test]
fn every_method_is_called_for_every_dtype_that_it_takes() {
    let config = Config { lanes: vec![Lane::Methods], ..Config::default() };
    let mut calls = Calls::default();
    let mut negative = [false; Method::ALL.len()];
    for index in 0..PROGRAMS {
        let program = program_at(20_261_125, index, &config).program;
        calls.add(&program);
        for statement in &program.statements {
            if let Statement::Method { method, args, .. } = statement {
                negative[*method as usize] |= args.iter().any(is_negative);
            }
        }
    }
    let holes: Vec<String> = calls
        .holes()
        .into_iter()
        .map(|(method, dtype)| format!("{} {dtype:?}", method.row().name))
        .collect();
    assert!(holes.is_empty(), "never drawn: {}", holes.join(", "));
    // Axes count from the last one, too.
    for method in Method::ALL {
        let is_axis = |(name, kind): &(&str, ArgKind)| {
            name.starts_with("axis") || name.starts_with("axes") && *kind != ArgKind::Flag
        };
        let has_axis = method.row().parameters.iter().any(is_axis);
        let name = method.row().name;
        assert!(!has_axis || negative[method as usize], "{name}: no negative axis is drawn");
    }
}

fn is_negative(arg: &Arg) -> bool {
    match arg {
        Arg::Int(value) => *value < 0,
        Arg::Ints(values) => values.iter().any(|value| *value < 0),
        _ => false,
    }
}
