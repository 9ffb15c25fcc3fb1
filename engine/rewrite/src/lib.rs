//! Rules as rows of data, the matcher, the driver and bounds.
