//! One typed generator of cases behind bytes, seeds, replays and enumeration.
