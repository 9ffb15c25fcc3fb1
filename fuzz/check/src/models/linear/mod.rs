//! The targets of the harness as devices: kernels run on the evaluator of linear uops, under the
//! rules of their target.
//!
//! The backends `uops/...` check the limits and requirements of a target ([`Rules`]).

mod device;
mod limits;
mod rules;
#[cfg(test)]
mod tests;
mod work;

pub(crate) use device::{Uops, executed, is_stored, target};
pub(crate) use limits::NO_TEXT;
pub(crate) use rules::Rules;
pub(crate) use work::WRONG;
pub use work::check_estimates;
