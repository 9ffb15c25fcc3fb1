//! Views and shape trackers: pure index algebra.
//!
//! In: shapes and movement operations. Out: where each element of the result lies in the buffer,
//! as numbers ([`ShapeTracker::locate`]) and as expressions ([`ShapeTracker::index`]). Knows
//! nothing of graphs, dtypes or data.

mod error;
pub mod fault;
mod index;
mod merge;
mod tracker;
mod view;

pub use error::Error;
pub use index::IndexAlgebra;
pub use tracker::{Movement, ShapeTracker};
pub use view::{Axes, Ranges, View};
