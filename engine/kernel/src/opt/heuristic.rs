//! Opts that the loops of a kernel, and what is loaded along them, speak for.

use super::{Opt, Setting};
use crate::Error;
use gradiff_graph::UOp;

/// The opts.
///
/// # Errors
/// Those of [`super::loops`].
pub fn heuristic(_root: &UOp, _setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    Ok(Vec::new())
}
