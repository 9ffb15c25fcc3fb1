//! Generated cases in `cargo test`: hundreds of each kind, shrinking through proptest.

use gradiff_check::{agree, backends, check_expr, check_views};
use gradiff_corpus::{Program, ReduceOp, Statement};
use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn programs_agree_with_the_oracle(program in gradiff_gen::programs()) {
        let names = ["interp", "jit", "interp/unfused"].map(str::to_string);
        let backends = backends(&names).expect("these need nothing");
        let (_, failures) = agree(&[&program], &backends);
        prop_assert!(failures.is_empty(), "{program}\n{failures:?}");
    }

    #[test]
    fn views_agree_with_moved_elements(views in gradiff_gen::view_sequences()) {
        prop_assert_eq!(check_views(&views), Ok(()));
    }

    #[test]
    fn expressions_keep_their_value(expr in gradiff_gen::expressions()) {
        prop_assert_eq!(check_expr(&expr), Ok(()));
    }
}

/// The smallest program that proptest finds against a property.
fn shrunk(holds: impl Fn(&Program) -> bool) -> Program {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig {
            cases: 4096,
            max_shrink_iters: 100_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        },
        proptest::test_runner::TestRng::deterministic_rng(Default::default()),
    );
    let result = runner.run(&gradiff_gen::programs(), |program| {
        prop_assert!(holds(&program));
        Ok(())
    });
    match result {
        Err(TestError::Fail(_, program)) => program,
        result => panic!("no program fails: {result:?}"),
    }
}

#[test]
fn a_failing_program_shrinks_to_three_statements_at_most() {
    let has = |program: &Program, test: fn(&Statement) -> bool| program.statements.iter().any(test);
    let reduces = |s: &Statement| matches!(s, Statement::Reduce { op: ReduceOp::Sum, .. });
    let pads = |s: &Statement| matches!(s, Statement::Pad { .. });
    for test in [reduces, pads] {
        let smallest = shrunk(|program| !has(program, test));
        assert!(has(&smallest, test));
        assert!(smallest.statements.len() <= 3, "{smallest}");
    }
    let long = shrunk(|program| program.statements.len() < 3);
    assert_eq!(long.statements.len(), 3, "{long}");
}
