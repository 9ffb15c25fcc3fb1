//! The environment variables that [`Engine::new`](crate::Engine::new) reads. They have tinygrad's
//! names where they mean the same.

use std::time::Duration;

use gradiff_runtime::Variable;

use crate::Error;

const DEBUG: Variable =
    Variable { name: "DEBUG", min: 0, max: 6, meaning: "the level of debug output" };
const BEAM: Variable = Variable {
    name: "BEAM",
    min: 0,
    max: 64,
    meaning: "the number of candidates that a search keeps, 0 for no search",
};
const BEAM_TIMEOUT_SEC: Variable = Variable {
    name: "BEAM_TIMEOUT_SEC",
    min: 1,
    max: 3600,
    meaning: "the number of seconds in which a candidate of a search is compiled or run",
};
const IGNORE_BEAM_CACHE: Variable = Variable {
    name: "IGNORE_BEAM_CACHE",
    min: 0,
    max: 1,
    meaning: "1 if searches that were saved on disk are repeated, else 0",
};
const NOOPT: Variable =
    Variable { name: "NOOPT", min: 0, max: 1, meaning: "1 for kernels without opts, else 0" };
const TC: Variable =
    Variable { name: "TC", min: 0, max: 1, meaning: "0 for kernels without tensor cores, else 1" };
const MERGE_VIEW: Variable =
    Variable { name: "MERGE_VIEW", min: 0, max: 1, meaning: "0 if views are not merged, else 1" };

/// The default of `BEAM_TIMEOUT_SEC`. A candidate whose compile or runs take longer is dropped, and
/// the search ends if the kernel takes longer.
const BEAM_SECONDS: usize = 10;

/// The values of the variables.
pub(crate) struct Environment {
    /// `DEBUG`.
    pub(crate) debug_level: u8,
    /// `BEAM`.
    pub(crate) beam: usize,
    /// `BEAM_TIMEOUT_SEC`.
    pub(crate) beam_limit: Duration,
    /// `IGNORE_BEAM_CACHE`.
    pub(crate) ignores_saved_searches: bool,
    /// `NOOPT`.
    pub(crate) has_no_opts: bool,
    /// `TC`.
    pub(crate) has_tensor_cores: bool,
    /// `MERGE_VIEW`.
    pub(crate) merges_views: bool,
}

impl Environment {
    /// Reads the variables.
    ///
    /// # Errors
    /// A value that is not a number in the range of its variable.
    pub(crate) fn read() -> Result<Environment, Error> {
        let number = |variable: Variable, default| -> Result<usize, Error> {
            Ok(variable.number()?.unwrap_or(default))
        };
        Ok(Environment {
            debug_level: number(DEBUG, 0)? as u8,
            beam: number(BEAM, 0)?,
            beam_limit: Duration::from_secs(number(BEAM_TIMEOUT_SEC, BEAM_SECONDS)? as u64),
            ignores_saved_searches: number(IGNORE_BEAM_CACHE, 0)? == 1,
            has_no_opts: number(NOOPT, 0)? == 1,
            has_tensor_cores: number(TC, 1)? == 1,
            merges_views: number(MERGE_VIEW, 1)? == 1,
        })
    }
}
