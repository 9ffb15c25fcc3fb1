//! Backends, oracles, reduction, blame and reports.
