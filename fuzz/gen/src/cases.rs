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
    /// What it is about.
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

/// Bytes behind a strategy: fewer and smaller bytes make smaller cases.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..512)
}

/// Well-typed programs of all lanes but `idioms` and `edges`: those have statements that hang
/// together, of which fewer and smaller bytes do not leave out one.
pub fn programs() -> impl Strategy<Value = Program> {
    let mut config = Config::default();
    config.lanes.retain(|lane| !matches!(lane, Lane::Idioms | Lane::Edges));
    programs_of(config)
}

/// Well-typed programs of this configuration.
pub fn programs_of(config: Config) -> impl Strategy<Value = Program> {
    bytes().prop_map(move |bytes| program(&mut ByteChoices::new(&bytes), &config).program)
}

/// Sequences of view operations that fit one another.
pub fn view_sequences() -> impl Strategy<Value = ViewOps> {
    let config = ViewConfig::default();
    bytes().prop_map(move |bytes| views(&mut ByteChoices::new(&bytes), &config))
}

/// Index expressions with a meaning everywhere.
pub fn expressions() -> impl Strategy<Value = ExprCase> {
    let config = ExprConfig::default();
    bytes().prop_map(move |bytes| expr(&mut ByteChoices::new(&bytes), &config))
}
