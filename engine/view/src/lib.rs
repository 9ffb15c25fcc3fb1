//! Views and shape trackers: pure index algebra.
