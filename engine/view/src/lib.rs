//! Views and shape trackers: pure index algebra.
//!
//! A [`View`] says where each element of a shape lies in a flat buffer (strides, an offset, a mask
//! of what is real rather than padding). A [`ShapeTracker`] is a chain of views, for what one view
//! cannot say. The six movement ops never move data: they answer with another tracker. This crate
//! knows nothing of graphs; the caller's [`IndexAlgebra`] turns a tracker into index expressions.

mod canon;
mod dim;
mod error;
mod index;
mod merge;
mod movement;
mod reshape;
mod strides;
mod tracker;
mod view;

pub use dim::Dim;
pub use error::Error;
pub use index::{DimAlgebra, IndexAlgebra};
pub use movement::Movement;
pub use strides::AxisStrides;
pub use tracker::ShapeTracker;
pub use view::View;
