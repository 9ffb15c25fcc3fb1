//! The judge: results of backends against the oracle, what corpus files and strict mode promise,
//! and the canaries that the judge itself is held to.

pub(crate) mod agree;
pub(crate) mod canary;
pub(crate) mod coverage;
pub(crate) mod expects;
pub(crate) mod replaced;
pub(crate) mod requested;
pub(crate) mod strict;
