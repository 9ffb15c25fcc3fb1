//! Opts that the loops of a kernel, and what is loaded along them, speak for.
//!
//! A CPU with vectors has its own, in `cpu.rs`, and so has a device with groups, in `groups.rs`.

mod access;
mod cpu;
mod groups;

use gradiff_graph::{AxisKind, UOp};

use super::apply::apply_to;
use super::{Loop, Loops, Opt, OptOp, Setting, loops};
use crate::Error;
pub(crate) use access::step;

/// The opts.
///
/// # Errors
/// Those of [`loops`].
pub fn heuristic(root: &UOp, setting: Setting<'_>) -> Result<Vec<Opt>, Error> {
    Ok(chosen(root, setting)?.opts)
}

/// The kernel with these opts.
pub(super) fn by_heuristic(root: &UOp, setting: Setting<'_>) -> Result<UOp, Error> {
    Ok(chosen(root, setting)?.root)
}

fn chosen<'a>(root: &UOp, setting: Setting<'a>) -> Result<Chosen<'a>, Error> {
    let mut chosen = Chosen { root: root.clone(), loops: loops(root)?, opts: Vec::new(), setting };
    match setting.target.groups {
        Some(_) => groups::on_groups(&mut chosen)?,
        None if setting.target.vectors.alu => cpu::on_cpu(&mut chosen)?,
        None => {}
    }
    Ok(chosen)
}

/// The opts so far, and the kernel as they leave it.
struct Chosen<'a> {
    root: UOp,
    loops: Loops,
    opts: Vec<Opt>,
    setting: Setting<'a>,
}

impl Chosen<'_> {
    /// Adds an opt of the plain loop of this number, if it is legal.
    fn add(&mut self, op: OptOp, number: i64, amount: i64) -> Result<bool, Error> {
        let Some(axis) = self.place(number) else { return Ok(false) };
        let opt = Opt { op, axis, amount };
        self.root = match apply_to(&self.root, &self.loops, opt, self.setting) {
            Err(Error::Illegal(_)) => return Ok(false),
            applied => applied?,
        };
        self.loops = loops(&self.root)?;
        self.opts.push(opt);
        Ok(true)
    }

    /// Adds the first of these amounts that is legal.
    fn add_largest(
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

    fn place(&self, number: i64) -> Option<usize> {
        let is_it = |one: &Loop| one.axis.kind == AxisKind::Loop && one.axis.number == number;
        self.loops.list.iter().position(is_it)
    }

    /// Puts a loop inside of all other loops of the output.
    fn innermost(&mut self, number: i64) -> Result<(), Error> {
        let is_plain = |one: &Loop| one.axis.kind == AxisKind::Loop && one.is_output;
        let last = self.loops.list.iter().rposition(is_plain);
        if let Some(last) = last.filter(|last| self.place(number) != Some(*last)) {
            self.add(OptOp::Swap, number, last as i64)?;
        }
        Ok(())
    }
}

/// The largest power of two up to `most` that divides the size; none below 2.
fn divisor(size: i64, most: i64) -> Option<i64> {
    let powers = std::iter::successors(Some(most), |power| Some(power / 2));
    powers.take_while(|power| 2 <= *power).find(|power| size % power == 0)
}
