//! The device that a tensor is on: where its kernels run.

use std::sync::Arc;

/// The device of a buffer, or the target of a `copy`.
///
/// This crate knows no device; names are checked where tensors are made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placement {
    /// The default device of the process, which is chosen when it is needed first.
    Default,
    /// The device of this name.
    Named(Arc<str>),
}

/// The text form of no placement.
pub(crate) const ANY: &str = "any";

impl Placement {
    /// Parses the text form: `default`, or the name of a device, in ASCII letters, digits and
    /// hyphens, but not `any`; `None` for other texts.
    pub fn parse(text: &str) -> Option<Placement> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        match text {
            "default" => Some(Placement::Default),
            ANY => None,
            _ if !text.is_empty() && text.bytes().all(is_name) => {
                Some(Placement::Named(text.into()))
            }
            _ => None,
        }
    }

    /// Returns whether two placements are certainly different devices: two names that differ. The
    /// default device may have any name.
    pub fn differs_from(&self, other: &Placement) -> bool {
        self != other && *self != Placement::Default && *other != Placement::Default
    }
}

impl std::fmt::Display for Placement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Placement::Default => f.write_str("default"),
            Placement::Named(name) => f.write_str(name),
        }
    }
}
