//! Planted faults: known mistakes that can be switched on, to measure whether the harness finds
//! them.
//!
//! They exist only with the cargo feature `faults`; without it [`is_active`] is `false` at compile
//! time. This is the lowest room, so the switch of all engine rooms lives here. At most one fault
//! is active in a process.

/// One planted fault: where it is and what it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// The fault.
    pub fault: Fault,
    /// Its name on the command line.
    pub name: &'static str,
    /// The room it bites in, which `blame` must name.
    pub room: &'static str,
    /// What goes wrong, in one sentence.
    pub story: &'static str,
}

/// No planted fault can be switched on by this name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownFault {
    /// The name is in no row.
    #[error("no planted fault is named {0:?}; `hunt --faults` lists them")]
    Name(String),
    /// The engine was built without the cargo feature `faults`.
    #[error("planted fault {0:?}: this build has none (cargo feature `faults` is off)")]
    NotBuilt(String),
}

macro_rules! faults {
    ($($fault:ident $name:literal $room:literal $story:literal;)*) => {
        /// The planted faults; the table [`ROWS`] tells of each.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Fault {
            $(#[doc = $story] $fault,)*
        }

        /// Every planted fault, by room in pipeline order.
        pub const ROWS: &[Row] = &[
            $(Row { fault: Fault::$fault, name: $name, room: $room, story: $story },)*
        ];
    };
}

faults! {
    ViewMergeOffByOne "view-merge-off-by-one" "view"
        "Merging two views starts one element early, or late where early would be outside.";
    ViewReshapeMaskLost "view-reshape-mask-lost" "view"
        "Reshaping a padded view drops its mask and repeats its first real element.";
    ViewFlipOffset "view-flip-offset" "view"
        "Flip forgets the innermost axis: its offset stays, hence its direction.";
    ViewPadMaskWide "view-pad-mask-wide" "view"
        "Padding shows one element too many: one that shrink had cut off, or that an axis repeats.";
    ViewExpandMaskKept "view-expand-mask-kept" "view"
        "Expanding a padded, shrunk or flipped view keeps the mask of the axis of size 1.";
    ViewSettleMaskLost "view-settle-mask-lost" "view"
        "The canonical form of two views shows its first real element where one of them hides.";
    SintBoundTermDropped "sint-bound-term-dropped" "graph"
        "Comparing sizes with variables forgets the constant of their difference.";
    BoundsUnsignedWrapForgotten "bounds-unsigned-wrap-forgotten" "rewrite"
        "Range analysis forgets that unsigned arithmetic wraps.";
    RuleAddFoldConstant "rule-add-fold-constant" "rewrite"
        "Folding two added constants gives a wrong constant.";
    RuleModConditionDropped "rule-mod-condition-dropped" "rewrite"
        "A remainder rule fires without its condition.";
    RuleCdivAsFloordiv "rule-cdiv-as-floordiv" "rewrite"
        "A rule of flooring division is used for truncating division.";
    RuleCmpOffByOne "rule-cmp-off-by-one" "rewrite"
        "A comparison rule moves its bound by one.";
    RuleMulZeroFloat "rule-mul-zero-float" "rewrite"
        "A float times zero becomes zero although it may be NaN or infinite.";
    RuleThreefryRotation "rule-threefry-rotation" "rewrite"
        "Threefry on devices rotates by 25 bits where it should by 24.";
    CollapseCountOffByOne "collapse-count-off-by-one" "rewrite"
        "The steps of a sum that lie below a bound are counted as one too many.";
    CollapseGatherGateDropped "collapse-gather-gate-dropped" "rewrite"
        "A picked step is taken for one of the range although it is negative.";
    SchedulePadAcrossExp2 "schedule-pad-across-exp2" "schedule"
        "A pad is moved across exp2, so padding becomes one instead of zero.";
    ScheduleFusedAcrossRealize "schedule-fused-across-realize" "schedule"
        "A kernel is fused across a realize that it needs.";
    ScheduleReduceViewDropped "schedule-reduce-view-dropped" "schedule"
        "A movement on top of a reduction is dropped.";
    ScheduleBufferReusedEarly "schedule-buffer-reused-early" "schedule"
        "The memory plan reuses a buffer that is still to be read.";
    NarrowOverflowForgotten "narrow-overflow-forgotten" "kernel"
        "64-bit arithmetic on 32-bit values is done in 32 bits although its result is wider.";
    LowerReduceIdentity "lower-reduce-identity" "kernel"
        "A reduction starts from the wrong identity.";
    LowerRowsShareRange "lower-rows-share-range" "kernel"
        "A fold over an axis that other loops run over as well folds what they are at.";
    LowerGateLost "lower-gate-lost" "kernel"
        "A padded load loses its gate.";
    LowerAccumulatorNarrow "lower-accumulator-narrow" "kernel"
        "A reduction accumulates in too narrow a type.";
    LegalizeBf16Truncates "legalize-bf16-truncates" "kernel"
        "The cast from f32 to bf16 truncates instead of rounding to nearest even.";
    SinReductionShort "sin-reduction-short" "kernel"
        "A word of 2/pi is shifted without the bits of the next one.";
    Exp2Coefficient "exp2-coefficient" "kernel"
        "A digit of a coefficient of exp2 is wrong.";
    Log2ScaleForgotten "log2-scale-forgotten" "kernel"
        "log2 of what lies below the normal numbers forgets that it was scaled up.";
    OptSplitStride "opt-split-stride" "kernel"
        "A split loop counts its outer steps by their own number instead of that of the inner ones.";
    OptPadGateLost "opt-pad-gate-lost" "kernel"
        "What the steps of a padded loop store is not held back.";
    OptPadFoldWrong "opt-pad-fold-wrong" "kernel"
        "The steps of a padded loop give a fold zero, whatever its identity is.";
    OptOverlapShort "opt-overlap-short" "kernel"
        "The steps that are done as a whole in the end leave out the last one.";
    OptSwapHalf "opt-swap-half" "kernel"
        "Of two loops that are exchanged one stays as it was.";
    OptUpcastFoldLost "opt-upcast-fold-lost" "kernel"
        "Of the folds side by side the last one is forgotten in the end.";
    OptThreadOverlap "opt-thread-overlap" "kernel"
        "The stretches of two threads overlap, and the end belongs to nobody.";
    GroupShareLost "group-share-lost" "kernel"
        "What the last thread of a group has folded is forgotten.";
    GroupIdentity "group-identity" "kernel"
        "A maximum over the threads of a group starts from zero.";
    GroupStoreByAll "group-store-by-all" "kernel"
        "All threads of a group store what one of them should.";
    GroupBarrierLost "group-barrier-lost" "kernel"
        "Threads read what others share without waiting for them.";
    GroupPlaceShared "group-place-shared" "kernel"
        "Threads of different outputs share one place of local memory.";
    GroupUpcastShared "group-upcast-shared" "kernel"
        "Values that are computed at once share one place of local memory.";
    KeepUpcastShared "keep-upcast-shared" "kernel"
        "Rows that are computed at once are kept in one array.";
    TcFragmentTurned "tc-fragment-turned" "kernel"
        "The elements that a thread gives to a tensor core stand in reverse order.";
    TcElementWrong "tc-element-wrong" "kernel"
        "Of what a tensor core computes a thread takes another element than is its own.";
    TcLastStepLost "tc-last-step-lost" "kernel"
        "The last tile along the reduced loop is left out of a product of matrices.";
    TcAccumulatorLost "tc-accumulator-lost" "kernel"
        "A tensor core starts from zero in each step instead of from what was summed so far.";
    GridDimWrong "grid-dim-wrong" "kernel"
        "Joined loops are taken apart by the wrong size.";
    LanesStrideIgnored "lanes-stride-ignored" "kernel"
        "A vector is loaded from neighbours though its lanes lie two apart.";
    LanesGateIgnored "lanes-gate-ignored" "kernel"
        "A vector behind the gates of its lanes is loaded behind that of the first one.";
    LanesFoldShort "lanes-fold-short" "kernel"
        "Of the lanes that are folded into one the last one is forgotten.";
    LanesTakenWrong "lanes-taken-wrong" "kernel"
        "A lane is taken from the neighbour's place.";
    RowsTurned "rows-turned" "kernel"
        "A vector along the rows of a tile begins with the last one.";
    ContractSubtraction "contract-subtraction" "kernel"
        "A product from which something is subtracted becomes one to which it is added.";
    ExpandRemainderLost "expand-remainder-lost" "kernel"
        "Of the steps written out in a row the last one is forgotten.";
    ExpandAccumulatorShared "expand-accumulator-shared" "kernel"
        "Steps that run at once add to one variable.";
    ExpandBoundShort "expand-bound-short" "kernel"
        "A loop is taken to end one step early where its bounds decide a gate.";
    ExpandChoiceTurned "expand-choice-turned" "kernel"
        "A choice that a step decides is the value that it does not choose.";
    ExpandConstantForgotten "expand-constant-forgotten" "kernel"
        "Of two constants that are added to one value only the second one is.";
    HoistTermLost "hoist-term-lost" "kernel"
        "When the terms of a sum change their order the last one is lost.";
    LinearizeAccumulatorNotReset "linearize-accumulator-not-reset" "kernel"
        "The accumulator is set once instead of once per output element.";
    RenderNoCutBack "render-no-cut-back" "render"
        "8- and 16-bit results that C computes in int, and WGSL in words, are not cut back.";
    RenderCompareUnsignedAsSigned "render-compare-unsigned-as-signed" "render"
        "Unsigned values are compared as signed.";
    RenderShiftArithmeticLost "render-shift-arithmetic-lost" "render"
        "A signed right shift fills with zeros.";
    JitUnsignedDivideAsSigned "jit-unsigned-divide-as-signed" "runtime"
        "The jit divides unsigned values as signed.";
    JitNarrowNotExtended "jit-narrow-not-extended" "runtime"
        "The jit uses narrow values without extending them.";
    CacheIgnoresConstants "cache-ignores-constants" "runtime"
        "The kernel cache takes kernels for equal that differ in a constant.";
    InterpMaxDropsNan "interp-max-drops-nan" "runtime"
        "The interpreter's max drops NaN.";
    TensorPromotionSkipsUnsigned "tensor-promotion-skips-unsigned" "tensor"
        "Promotion of a signed with an unsigned dtype forgets the unsigned range.";
    TensorCatOrder "tensor-cat-order" "tensor"
        "Cat puts its sources in the wrong order.";
}

/// Names of the faults that no program reaches, since none has sizes with variables:
/// `gradiff views` finds them, not `gradiff hunt`.
pub const BY_VIEWS: &[&str] = &["sint-bound-term-dropped"];

/// Whether `fault` is switched on; constant `false` without the feature `faults`.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub const fn is_active(_fault: Fault) -> bool {
    false
}

/// Whether `fault` is switched on; constant `false` without the feature `faults`.
#[cfg(feature = "faults")]
#[inline]
pub fn is_active(fault: Fault) -> bool {
    switch::ACTIVE.load(std::sync::atomic::Ordering::Relaxed) == fault as u8 + 1
}

/// Switches the named fault on, and any other off, for the whole process.
/// # Errors
/// [`UnknownFault`], and nothing changes.
pub fn set_active(name: &str) -> Result<(), UnknownFault> {
    let row = ROWS.iter().find(|row| row.name == name);
    let row = row.ok_or_else(|| UnknownFault::Name(name.to_owned()))?;
    switch::set(Some(row.fault)).map_err(|()| UnknownFault::NotBuilt(name.to_owned()))
}

/// Switches whatever fault is on off.
pub fn clear() {
    // Without the feature nothing is on, so a refusal means the same.
    switch::set(None).unwrap_or_default();
}

/// Name of the fault that is switched on.
pub fn active() -> Option<&'static str> {
    ROWS.iter().find(|row| is_active(row.fault)).map(|row| row.name)
}

#[cfg(feature = "faults")]
mod switch {
    use std::sync::atomic::{AtomicU8, Ordering};

    /// 0, or one more than the active fault.
    pub(super) static ACTIVE: AtomicU8 = AtomicU8::new(0);

    pub(super) fn set(fault: Option<super::Fault>) -> Result<(), ()> {
        ACTIVE.store(fault.map_or(0, |fault| fault as u8 + 1), Ordering::Relaxed);
        Ok(())
    }
}

#[cfg(not(feature = "faults"))]
mod switch {
    pub(super) fn set(_fault: Option<super::Fault>) -> Result<(), ()> {
        Err(())
    }
}
