//! What results are compared with, besides the oracle: the stages of a program, linear uops under
//! the rules of a target, trackers as lists of addresses, expressions at many points at once.

pub(crate) mod columns;
pub(crate) mod linear;
pub(crate) mod model;
pub(crate) mod spans;
pub(crate) mod stages;
