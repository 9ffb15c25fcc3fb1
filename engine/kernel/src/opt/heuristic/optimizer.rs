//! The state of the heuristics: a kernel, to which opts are applied one by one.

use gradiff_graph::{Arg, AxisKind, DType, Op, UOp};

use crate::Error;
use crate::opt::apply::apply_to;
use crate::opt::legal::{check, padded_size};
use crate::opt::tuning::{LONG_BLOCKS, SHIFTED_MAX};
use crate::opt::{Loop, Loops, Opt, OptOp, Setting, loops};

/// The opts chosen so far, and the kernel after them. A copy is what to go back to.
#[derive(Clone)]
pub(super) struct Optimizer<'a> {
    pub(super) root: UOp,
    pub(super) loops: Loops,
    pub(super) opts: Vec<Opt>,
    pub(super) setting: Setting<'a>,
}

impl Optimizer<'_> {
    /// Applies an opt to the plain loop of this number, if it is legal; returns whether it is.
    pub(super) fn add(&mut self, op: OptOp, number: i64, amount: i64) -> Result<bool, Error> {
        let Some(axis) = self.index_of(number) else { return Ok(false) };
        let opt = Opt { op, axis, amount };
        self.root = match apply_to(&self.root, &self.loops, opt, self.setting) {
            Err(Error::Illegal(_)) => return Ok(false),
            applied => applied?,
        };
        self.loops = loops(&self.root)?;
        self.opts.push(opt);
        Ok(true)
    }

    /// Applies an opt with the first of these amounts that is legal; returns that amount.
    pub(super) fn add_first_legal(
        &mut self,
        op: OptOp,
        number: i64,
        amounts: &[i64],
    ) -> Result<Option<i64>, Error> {
        for amount in amounts {
            if self.add(op, number, *amount)? {
                return Ok(Some(*amount));
            }
        }
        Ok(None)
    }

    /// Returns whether blocks of so many iterations of a loop may be shifted inwards.
    pub(super) fn may_shift(&self, info: &Loop, amount: i64) -> bool {
        let overlap = |axis| Opt { op: OptOp::Overlap, axis, amount };
        let axis = self.index_of(info.axis.number);
        axis.is_some_and(|axis| check(&self.loops, overlap(axis), self.setting).is_ok())
    }

    /// Returns the first of these numbers of vectors that a loop can have at once, with these
    /// lanes: one that divides it, else one that shifted blocks make. 1 if none can.
    pub(super) fn vectors(&self, info: &Loop, lanes: i64, amounts: &[i64]) -> i64 {
        let (over, under) = SHIFTED_MAX;
        let divides = |amount: &&i64| info.size % (lanes * **amount) == 0;
        let is_shifted = |amount: &&i64| {
            let padded = padded_size(info.size, lanes * **amount);
            padded <= info.size.saturating_mul(over) / under
                && self.may_shift(info, shifted_block(info.size, lanes, **amount))
        };
        let found = amounts.iter().find(divides).or_else(|| amounts.iter().find(is_shifted));
        found.copied().unwrap_or(1)
    }

    /// Makes lanes of the iterations of a loop, with so many vectors at once. If the loop alone can
    /// be divided among threads, the number of vectors becomes a multiple of theirs.
    pub(super) fn add_lanes(
        &mut self,
        info: &Loop,
        lanes: i64,
        vectors: i64,
        threads: i64,
    ) -> Result<(), Error> {
        let number = info.axis.number;
        let Some(index) = self.index_of(number) else { return Ok(()) };
        // A rest may have been cut off.
        let info = self.loops.list[index].clone();
        let block = lanes * vectors;
        let is_shifted = info.size % block != 0;
        if is_shifted {
            let is_divisible = |known: &Loop| {
                known.is_output && known.range != info.range && known.size % threads == 0
            };
            let is_alone = info.is_output && !self.loops.list.iter().any(is_divisible);
            let wide = block.saturating_mul(if is_alone { threads } else { 1 });
            let is_long = wide.saturating_mul(LONG_BLOCKS) <= info.size;
            let short = shifted_block(info.size, lanes, vectors);
            self.add(OptOp::Overlap, number, if is_long { wide } else { short })?;
        }
        self.add(OptOp::Upcast, number, lanes)?;
        self.add(OptOp::Upcast, number, vectors)?;
        if is_shifted && let Some(index) = self.index_of(number) {
            let info = &self.loops.list[index];
            let repeats = |(number, _): &(usize, DType)| {
                !matches!(self.loops.reductions[*number].arg(), Arg::Reduce(Op::Max, _))
            };
            // Only the last block has elements that must not count again.
            if info.reductions.iter().any(repeats) {
                self.add(OptOp::Cut, number, info.size - 1)?;
            }
        }
        Ok(())
    }

    /// Returns the index of the plain loop of this number.
    pub(super) fn index_of(&self, number: i64) -> Option<usize> {
        let is_it = |info: &Loop| info.axis.kind == AxisKind::Loop && info.axis.number == number;
        self.loops.list.iter().position(is_it)
    }

    /// Makes a loop the innermost output loop.
    pub(super) fn make_innermost(&mut self, number: i64) -> Result<(), Error> {
        let is_plain = |info: &Loop| info.axis.kind == AxisKind::Loop && info.is_output;
        let last = self.loops.list.iter().rposition(is_plain);
        if let Some(last) = last.filter(|last| self.index_of(number) != Some(*last)) {
            self.add(OptOp::Swap, number, last as i64)?;
        }
        Ok(())
    }
}

/// Returns the size of the blocks that are shifted inwards: that of so many vectors, or of one if
/// the vectors are all that a loop has.
fn shifted_block(size: i64, lanes: i64, vectors: i64) -> i64 {
    if size < lanes * vectors { lanes } else { lanes * vectors }
}

/// Returns the largest of `limit`, `limit / 2`, `limit / 4` and so on that divides the size, if one
/// above 1 does.
pub(super) fn divisor(size: i64, limit: i64) -> Option<i64> {
    let powers = std::iter::successors(Some(limit), |power| Some(power / 2));
    powers.take_while(|power| 2 <= *power).find(|power| size % power == 0)
}
