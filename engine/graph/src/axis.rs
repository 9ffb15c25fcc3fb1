//! What a loop is to the device: a plain loop, lanes of one step, copies in a row, threads, groups.

use crate::uop::Arg;

/// The name of a range: its number tells it from others, its kind says how it is run. In a kernel
/// without barriers each kind may be run as a plain loop; what comes out is the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis {
    /// How the steps are run.
    pub kind: AxisKind,
    /// Tells ranges apart; among ranges of one kind the smaller one is outside.
    pub number: i64,
}

/// How the steps of a range are run. In the order in which loops stand, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AxisKind {
    /// Each step by a group of threads of its own: steps are independent.
    Global,
    /// Each step by a thread of its own, or several: steps are independent.
    Thread,
    /// Each step by a thread of the group; threads share local memory and meet at barriers.
    Local,
    /// Each step by a thread of the same warp. Only within the optimiser; a kernel that runs has
    /// the innermost local range instead.
    Warp,
    /// One after the other.
    Loop,
    /// Of a fold: each step by a thread of the group, which share what they have in the end. Only
    /// within the optimiser; a kernel that runs has local memory instead.
    Group,
    /// All at once, value by value: steps are independent.
    Upcast,
    /// One after the other, without a loop.
    Unroll,
}

impl AxisKind {
    /// All kinds.
    pub const ALL: [AxisKind; 8] = [
        AxisKind::Global,
        AxisKind::Thread,
        AxisKind::Local,
        AxisKind::Warp,
        AxisKind::Loop,
        AxisKind::Group,
        AxisKind::Upcast,
        AxisKind::Unroll,
    ];

    /// What stands behind the number in text; nothing for a plain loop.
    pub fn suffix(self) -> &'static str {
        ["g", "t", "l", "w", "", "p", "u", "r"][self as usize]
    }

    /// Whether the steps are shared out when the kernel is launched, so that the range stands
    /// around the whole kernel.
    pub fn is_launched(self) -> bool {
        matches!(self, AxisKind::Global | AxisKind::Thread | AxisKind::Local)
    }
}

impl Axis {
    /// A plain loop.
    pub const fn plain(number: i64) -> Axis {
        Axis { kind: AxisKind::Loop, number }
    }

    /// The axis of a text such as `3` or `3u`, as [`Display`](std::fmt::Display) writes it.
    pub fn parse(text: &str) -> Option<Axis> {
        let end = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let kind = AxisKind::ALL.into_iter().find(|kind| kind.suffix() == suffix)?;
        Some(Axis { kind, number: number.parse().ok()? })
    }
}

impl std::fmt::Display for Axis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.number, self.kind.suffix())
    }
}

impl Arg {
    /// The arg of a `Range` that is a plain loop.
    pub const fn plain_axis(number: i64) -> Arg {
        Arg::Axis(Axis::plain(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_reads_back() {
        for kind in AxisKind::ALL {
            let axis = Axis { kind, number: 12 };
            assert_eq!(Axis::parse(&axis.to_string()), Some(axis));
        }
        for text in ["", "u", "3x", "3uu", "u3", "-"] {
            assert_eq!(Axis::parse(text), None, "{text}");
        }
    }

    #[test]
    fn kinds_stand_as_loops_do() {
        let axis = |kind, number| Axis { kind, number };
        assert!(axis(AxisKind::Thread, 9) < Axis::plain(0));
        assert!(Axis::plain(9) < axis(AxisKind::Upcast, 0));
        assert!(axis(AxisKind::Upcast, 9) < axis(AxisKind::Unroll, 0));
    }
}
