//! The kinds of ranges: plain loops, vector lanes, unrolled loops, threads, groups.

/// The kind and the number of a range. In a kernel without barriers each kind may be run as a plain
/// loop with the same result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis {
    /// The execution of the iterations.
    pub kind: AxisKind,
    /// Identifies the range; among ranges of a kind the one with the smaller number is outside.
    pub number: i64,
}

/// The execution of the iterations of a range. The order is that of the loops, outermost first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AxisKind {
    /// Each by its own group of threads; iterations are independent.
    Global,
    /// Divided among CPU threads; iterations are independent.
    Thread,
    /// Each by a thread of the group; threads share local memory and wait at barriers.
    Local,
    /// Each by a thread of the same warp. Only within the optimiser; lowered kernels have the
    /// innermost local range instead.
    Warp,
    /// One after the other.
    Loop,
    /// Iterations of a reduction, each by a thread of the group; their results are reduced at the
    /// end. Only within the optimiser; lowered kernels have a local range and local memory instead.
    Group,
    /// All at once, uop by uop; iterations are independent.
    Upcast,
    /// All at once, as the lanes of vectors where the target has them; iterations are independent.
    Vector,
    /// One after the other, without a loop.
    Unroll,
}

impl AxisKind {
    /// All kinds.
    pub const ALL: [AxisKind; 9] = [
        AxisKind::Global,
        AxisKind::Thread,
        AxisKind::Local,
        AxisKind::Warp,
        AxisKind::Loop,
        AxisKind::Group,
        AxisKind::Upcast,
        AxisKind::Vector,
        AxisKind::Unroll,
    ];

    /// Returns the suffix of the number in text; empty for a plain loop.
    pub fn suffix(self) -> &'static str {
        ["g", "t", "l", "w", "", "p", "u", "v", "r"][self as usize]
    }

    /// Returns whether the iterations are distributed when the kernel is launched, so that the
    /// range is around the whole kernel.
    pub fn is_launched(self) -> bool {
        matches!(self, AxisKind::Global | AxisKind::Thread | AxisKind::Local)
    }
}

impl Axis {
    /// Makes a plain loop.
    pub const fn plain(number: i64) -> Axis {
        Axis { kind: AxisKind::Loop, number }
    }

    /// Parses a text such as `3` or `3u`, as [`Display`](std::fmt::Display) writes it.
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
    fn kinds_are_ordered_like_loops() {
        let axis = |kind, number| Axis { kind, number };
        assert!(axis(AxisKind::Thread, 9) < Axis::plain(0));
        assert!(Axis::plain(9) < axis(AxisKind::Upcast, 0));
        assert!(axis(AxisKind::Upcast, 9) < axis(AxisKind::Unroll, 0));
    }
}
