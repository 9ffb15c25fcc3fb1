//! One kernel: from its tree over views to linear uops.
