//! Methods that are composed of others, a file for each family. The harness judges each by its
//! definition in the oracle; a row of `corpus/src/methods` says what it takes.

mod creation;
mod cumulative;
mod indexing;
mod movement;
mod ordering;
mod reduction;
mod softmax;
