//! The generators behind `arbitrary` (libFuzzer) and proptest; shrinking works on the choices.

use arbitrary::{Arbitrary, Result, Unstructured};
use gradiff_corpus::{ExprCase, Program, ViewOps};
use proptest::prelude::{Strategy, any};

use crate::choices::ArbitraryChoices;
use crate::{ByteChoices, Config, ExprConfig, Generated, Lane, ViewConfig, expr, program, views};

/// A program drawn from the bytes of a fuzzer with the default configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ProgramCase {
    /// Well typed.
    pub program: Program,
    /// The lane that it was drawn from.
    pub lane: Lane,
}

impl<'a> Arbitrary<'a> for ProgramCase {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<ProgramCase> {
        let Generated { program, lane } = program(&mut ArbitraryChoices(bytes), &Config::default());
        Ok(ProgramCase { program, lane })
    }
}

/// A sequence of view operations drawn from the bytes of a fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewsCase(pub ViewOps);

impl<'a> Arbitrary<'a> for ViewsCase {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<ViewsCase> {
        Ok(ViewsCase(views(&mut ArbitraryChoices(bytes), &ViewConfig::default())))
    }
}

/// An index expression drawn from the bytes of a fuzzer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExprsCase(pub ExprCase);

impl<'a> Arbitrary<'a> for ExprsCase {
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<ExprsCase> {
        Ok(ExprsCase(expr(&mut ArbitraryChoices(bytes), &ExprConfig::default())))
    }
}

/// The bytes of a strategy: fewer and smaller bytes give smaller cases.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..512)
}

/// Well-typed programs of all lanes except `idioms` and `edges`. Those generate groups of dependent
/// statements, which shrinking the bytes cannot take apart.
pub fn programs() -> impl Strategy<Value = Program> {
    let mut config = Config::default();
    config.lanes.retain(|lane| !matches!(lane, Lane::Idioms | Lane::Edges));
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
