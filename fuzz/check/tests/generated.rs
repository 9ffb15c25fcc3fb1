//! Generated cases in `cargo test`: a thousand of each kind, shrinking through proptest.

use gradiff_check::{agree, backends, check_expr, check_views};
use proptest::prelude::*;

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
