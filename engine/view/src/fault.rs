//! Planted faults: deliberate mistakes that the harness must find.
//!
//! They exist under the feature `faults` alone; without it [`is_active`] is `false` for the
//! compiler and every fault is gone from the code. At most one is active in a process. A fault
//! is one marked line where it bites, or (in the rewrite room) a changed row. The switch stands
//! in the lowest room because all rooms above must see it.

/// What there is to know of a planted fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultRow {
    /// Which fault.
    pub fault: Fault,
    /// Its name on the command line.
    pub name: &'static str,
    /// The room it bites in, and that blame must name.
    pub room: &'static str,
    /// What goes wrong, in one sentence.
    pub story: &'static str,
}

macro_rules! faults {
    ($($variant:ident, $name:literal, $room:literal, $story:literal;)*) => {
        /// A planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $(#[doc = $story] $variant,)*
        }

        /// All faults, in the order of the pipeline.
        pub const ROWS: &[FaultRow] = &[
            $(FaultRow { fault: Fault::$variant, name: $name, room: $room, story: $story },)*
        ];
    };
}

faults! {
    TensorPromotionSkipsUnsigned, "tensor-promotion-skips-unsigned", "tensor",
        "An unsigned and a signed integer meet in the signed type of the same width.";
    TensorCatOrder, "tensor-cat-order", "tensor",
        "A concatenation of three or more tensors swaps the last two.";
    ViewMergeOffByOne, "view-merge-off-by-one", "view",
        "Merging two views forgets one element of the offset when a stride is negative.";
    ViewReshapeMaskLost, "view-reshape-mask-lost", "view",
        "A reshape that carries a mask over drops it.";
    ViewFlipFirstAxisOnly, "view-flip-first-axis-only", "view",
        "A flip of several axes reverses only the first of them.";
    ViewPadMaskWide, "view-pad-mask-wide", "view",
        "The first element after the data of a padded axis is taken for data.";
    ViewExpandMaskKept, "view-expand-mask-kept", "view",
        "Expanding a masked axis keeps the mask of its one element.";
    SchedulePadAcrossExp2, "schedule-pad-across-exp2", "schedule",
        "A pad is moved across exp2, so that the padding becomes 1.";
    ScheduleFusedAcrossRealize, "schedule-fused-across-realize", "schedule",
        "A node that must be realised is fused, and the view between is lost.";
    ScheduleReduceViewDropped, "schedule-reduce-view-dropped", "schedule",
        "A permute between a reduction and its user counts as no view.";
    ScheduleBufferReusedEarly, "schedule-buffer-reused-early", "schedule",
        "The memory plan ends the life of a buffer one kernel too early.";
    BoundsUnsignedWrapForgotten, "bounds-unsigned-wrap-forgotten", "rewrite",
        "Range analysis forgets that unsigned and narrow integers wrap.";
    RuleAddFoldConstant, "rule-add-fold-constant", "rewrite",
        "Folding two added constants keeps only their difference.";
    RuleModConditionDropped, "rule-mod-condition-dropped", "rewrite",
        "A remainder is dropped without asking for the range of what it is taken of.";
    RuleCdivAsFloordiv, "rule-cdiv-as-floordiv", "rewrite",
        "A quotient cut toward zero is taken for one rounded down.";
    RuleCmpOffByOne, "rule-cmp-off-by-one", "rewrite",
        "A comparison decided by ranges takes less for less or equal.";
    RuleMulZeroFloat, "rule-mul-zero-float", "rewrite",
        "A float times zero is zero, also if it is NaN or infinite.";
    LowerReduceIdentity, "lower-reduce-identity", "kernel",
        "A maximum starts at 0.";
    LowerGateLost, "lower-gate-lost", "kernel",
        "A masked load reads the nearest element instead of 0.";
    LowerAccumulatorNarrow, "lower-accumulator-narrow", "kernel",
        "An accumulator is as narrow as what was widened into it.";
    LegalizeBf16Truncates, "legalize-bf16-truncates", "kernel",
        "Results in bf16 are cut off instead of rounded to nearest even.";
    LinearizeAccumulatorNotReset, "linearize-accumulator-not-reset", "kernel",
        "An accumulator is set once, not for each output element.";
    RenderNoCutBack, "render-no-cut-back", "render",
        "Results in 8 and 16 bits keep what C's promotion to int added.";
    RenderCompareUnsignedAsSigned, "render-compare-unsigned-as-signed", "render",
        "Unsigned integers are compared as if they were signed.";
    RenderShiftArithmeticLost, "render-shift-arithmetic-lost", "render",
        "A signed shift to the right fills with zeros.";
    JitUnsignedDivideAsSigned, "jit-unsigned-divide-as-signed", "runtime",
        "Unsigned integers are divided as if they were signed.";
    JitNarrowNotExtended, "jit-narrow-not-extended", "runtime",
        "Narrow signed integers are extended with zeros.";
    CacheIgnoresConstants, "cache-ignores-constants", "runtime",
        "Kernels that differ in their constants share one entry of the kernel cache.";
    InterpMaxDropsNan, "interp-max-drops-nan", "runtime",
        "The maximum of NaN and a number is the number.";
}

/// There is no fault of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no fault is called {0}")]
pub struct UnknownFault(pub String);

#[cfg(feature = "faults")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Position of the active fault in the table plus 1; 0 is none.
    static ACTIVE: AtomicU8 = AtomicU8::new(0);

    /// Switches the fault of this name on, for the whole process. To be called before the
    /// engine is used: rule tables and caches are made once.
    ///
    /// # Errors
    /// There is none of this name.
    pub fn set_active(name: &str) -> Result<(), super::UnknownFault> {
        let position = super::ROWS.iter().position(|row| row.name == name);
        let position = position.ok_or_else(|| super::UnknownFault(name.to_string()))?;
        ACTIVE.store(position as u8 + 1, Ordering::Relaxed);
        Ok(())
    }

    /// The name of the active fault.
    pub fn active() -> Option<&'static str> {
        let position = ACTIVE.load(Ordering::Relaxed).checked_sub(1)?;
        Some(super::ROWS[position as usize].name)
    }

    /// Whether this fault is on.
    pub fn is_active(fault: super::Fault) -> bool {
        ACTIVE.load(Ordering::Relaxed) == fault as u8 + 1
    }
}

#[cfg(feature = "faults")]
pub use switch::{active, is_active, set_active};

/// Whether this fault is on: never, without the feature `faults`.
#[cfg(not(feature = "faults"))]
pub const fn is_active(_fault: Fault) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::ROWS;

    #[test]
    fn rows_stand_in_the_order_of_their_faults() {
        for (position, row) in ROWS.iter().enumerate() {
            assert_eq!(row.fault as usize, position, "{}", row.name);
            let same = ROWS.iter().filter(|other| other.name == row.name).count();
            assert_eq!(same, 1, "{}", row.name);
        }
        assert!(ROWS.len() >= 20);
    }
}
