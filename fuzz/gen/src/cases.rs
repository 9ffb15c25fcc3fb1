//! The generators behind `arbitrary`, for libFuzzer.

use arbitrary::{Arbitrary, Result, Unstructured};
use gradiff_corpus::{ExprCase, Program, ViewOps};

use crate::choices::ArbitraryChoices;
use crate::{Config, ExprConfig, Generated, Lane, ViewConfig, expr, program, views};

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
