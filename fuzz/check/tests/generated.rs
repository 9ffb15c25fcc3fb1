//! Generated cases in `cargo test`: hundreds of each kind, shrinking through proptest.

use gradiff_check::{agree, backends, check_expr, check_views};
use gradiff_corpus::{Program, ReduceOp, Statement};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestError, TestRunner};

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn programs_agree_with_the_oracle(program in gradiff_strategies::programs()) {
        prop_assert!(program.typing().is_ok(), "{program}");
        let names = ["interp", "jit", "interp/unfused"].map(str::to_string);
        let backends = backends(&names).expect("these need nothing");
        let (_, failures) = agree(&[&program], &backends);
        prop_assert!(failures.is_empty(), "{program}\n{failures:?}");
    }

    #[test]
    fn views_agree_with_moved_elements(views in gradiff_strategies::view_sequences()) {
        prop_assert_eq!(check_views(&views), Ok(()));
    }

    #[test]
    fn expressions_keep_their_value(expr in gradiff_strategies::expressions()) {
        prop_assert_eq!(check_expr(&expr), Ok(()));
    }
}

/// The programs that proptest finds against a property in several streams of random numbers, each
/// as small as it becomes, the smallest first. One search ends where no single change helps, so its
/// result depends on where it began.
fn shrunk(holds: impl Fn(&Program) -> bool) -> Vec<Program> {
    let mut found: Vec<Program> = (0..STREAMS).map(|stream| shrunk_once(stream, &holds)).collect();
    found.sort_by_key(|program| program.statements.len());
    found
}

/// Number of streams of random numbers.
const STREAMS: u8 = 9;

fn shrunk_once(stream: u8, holds: impl Fn(&Program) -> bool) -> Program {
    let mut runner = TestRunner::new_with_rng(
        ProptestConfig {
            cases: 4096,
            max_shrink_iters: 100_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        },
        proptest::test_runner::TestRng::from_seed(RngAlgorithm::ChaCha, &[stream; 32]),
    );
    let result = runner.run(&gradiff_strategies::programs(), |program| {
        prop_assert!(holds(&program));
        Ok(())
    });
    match result {
        Err(TestError::Fail(_, program)) => program,
        result => panic!("no program fails: {result:?}"),
    }
}

#[test]
fn most_failing_programs_shrink_to_three_statements_at_most() {
    let has = |program: &Program, test: fn(&Statement) -> bool| program.statements.iter().any(test);
    let reduces = |s: &Statement| matches!(s, Statement::Reduce { op: ReduceOp::Sum, .. });
    let pads = |s: &Statement| matches!(s, Statement::Pad { .. });
    for test in [reduces, pads] {
        let found = shrunk(|program| !has(program, test));
        assert!(found.iter().all(|program| has(program, test)));
        let sizes: Vec<usize> = found.iter().map(|program| program.statements.len()).collect();
        let median = &found[found.len() / 2];
        assert!(median.statements.len() <= 3, "{sizes:?}\n{median}");
    }
    let found = shrunk(|program| program.statements.len() < 3);
    assert!(found[0].statements.len() >= 3, "{}", found[0]);
    assert_eq!(found[found.len() / 2].statements.len(), 3, "{}", found[found.len() / 2]);
}
