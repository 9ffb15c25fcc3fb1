//! The naive reference evaluator with running error bounds.
