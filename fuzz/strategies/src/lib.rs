//! The generators as strategies of proptest; shrinking works on the bytes that make the choices.

use gradiff_corpus::{ExprCase, Program, ViewOps};
use gradiff_gen::{ByteChoices, Config, ExprConfig, Lane, ViewConfig, expr, program, views};
use proptest::prelude::{Strategy, any};

/// The bytes of a strategy: fewer and smaller bytes give smaller cases.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..512)
}

/// Well-typed programs of all lanes except `idioms`, `edges`, `methods` and `gradients`. Those
/// generate groups of dependent statements or arguments, which shrinking the bytes cannot take
/// apart; the other lanes have methods, too.
pub fn programs() -> impl Strategy<Value = Program> {
    let mut config = Config::default();
    config.lanes.retain(|lane| {
        !matches!(lane, Lane::Idioms | Lane::Edges | Lane::Methods | Lane::Gradients)
    });
    programs_of(config)
}

/// Well-typed programs of this configuration.
pub fn programs_of(config: Config) -> impl Strategy<Value = Program> {
    bytes().prop_map(move |bytes| program(&mut ByteChoices::new(&bytes), &config).program)
}

/// Well-formed sequences of view operations.
pub fn view_sequences() -> impl Strategy<Value = ViewOps> {
    let config = ViewConfig::default();
    bytes().prop_map(move |bytes| views(&mut ByteChoices::new(&bytes), &config))
}

/// Index expressions that are defined for all values of their variables.
pub fn expressions() -> impl Strategy<Value = ExprCase> {
    let config = ExprConfig::default();
    bytes().prop_map(move |bytes| expr(&mut ByteChoices::new(&bytes), &config))
}
