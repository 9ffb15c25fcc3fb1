//! Every generated case is the same after a round trip through the text form; so is every program
//! after one through the binary form.

use gradiff_corpus::{Case, CaseFile, decode, encode, parse};
use gradiff_gen::{Config, ExprConfig, SeedChoices, ViewConfig, expr, program_at, views};

const CASES: u64 = 20_000;

fn check(case: Case) {
    let file = CaseFile { description: vec!["drawn".into()], case, expects: Vec::new() };
    let text = file.to_string();
    match parse(&text) {
        Ok(parsed) => assert_eq!(parsed, file, "{text}"),
        Err(error) => panic!("{error}\n{text}"),
    }
}

#[test]
fn programs_survive_text() {
    let config = Config::default();
    for index in 0..CASES {
        check(Case::Program(program_at(21, index, &config).program));
    }
}

#[test]
fn programs_survive_the_binary_form() {
    let config = Config::default();
    for index in 0..CASES {
        let program = program_at(22, index, &config).program;
        assert_eq!(decode(&encode(&program)), program);
    }
}

#[test]
fn views_and_expressions_survive_text() {
    let mut choices = SeedChoices::new(23);
    for _ in 0..CASES {
        check(Case::Views(views(&mut choices, &ViewConfig::default())));
        check(Case::Expr(expr(&mut choices, &ExprConfig::default())));
    }
}
