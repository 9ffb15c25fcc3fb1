//! Steps that run at once or in a row, written out: a linear kernel without such ranges.
//!
//! Of an `upcast` range each uop that varies along it is written once for each step, uop after
//! uop, so that the loops inside are shared: steps are independent, any order will do. Of an
//! `unroll` range the steps stand one after the other, as a loop would run them, so that sums keep
//! their order. What does not vary is written once. What a step decides, a gate or a choice, is
//! left out, and with it all that nothing else needs.
//!
//! One `upcast` range may become the lanes of vectors (`lanes`): what varies along it is then
//! written as one uop of many lanes where the target has that, and put together from single values
//! or taken apart into them where it has not.

mod dims;
mod known;
mod lanes;
mod write;

use gradiff_graph::Linear;

use crate::Target;

/// The kernel with ranges of the kinds `Upcast` and `Unroll` written out, if the target wants so.
pub(crate) fn expand(linear: Linear, target: &Target) -> Linear {
    let dims = dims::Dims::of(&linear);
    if dims.ranges.is_empty() || !target.unrolls {
        return linear;
    }
    write::write(&dims, target.vectors)
}
