//! Reductions of products, compared with naive loops. Operands are repeated along some axes and
//! padded along any, including the repeated ones.
//!
//! In: operands of any layout. A CPU's schedule packs one of them, even of few elements. Groups of
//! threads copy parts of them to local memory, in a loop that is inside another one if several axes
//! are reduced. Programs seldom pad what they have repeated, and their reductions are seldom along
//! several loops, or of values that are the same all along one.

use gradiff::graph::Target;
use gradiff::graph::target::Thresholds;
use gradiff::kernel::Strategy;
use gradiff::{DType, Engine, Error, Tensor};

use super::Draw;

/// Number of sums of a check.
const SUMS: usize = 8;
/// Most products of a sum of products.
const PRODUCTS_MAX: usize = 2048;
/// Number of sequences of optimisations for groups, and of optimisations of each at most.
const GROUPED: usize = 6;
const OPTS_MAX: usize = 4;

/// The axis of an operand: its elements, or one that is repeated, with zeros before and after.
struct Axis {
    size: usize,
    is_repeated: bool,
    before: usize,
    after: usize,
}

impl Axis {
    /// Draws an axis of this size together with its zeros.
    fn draw(draw: &mut Draw, size: usize, is_repeated: bool) -> Axis {
        let is_padded = 1 < size && draw.one_in(4);
        let before = if is_padded { draw.below(size.min(3)) } else { 0 };
        let after = if is_padded { draw.below((size - before).min(3)) } else { 0 };
        Axis { size: size - before - after, is_repeated, before, after }
    }

    /// The number of elements in memory.
    fn stored(&self) -> usize {
        if self.is_repeated { 1 } else { self.size }
    }
}

/// An operand: its axes, their order in memory, and its elements.
struct Operand {
    axes: Vec<Axis>,
    order: Vec<usize>,
    elements: Vec<i32>,
}

impl Operand {
    /// Draws an operand that is repeated along the axes that `repeated` says.
    fn draw(
        draw: &mut Draw,
        sizes: &[usize],
        repeated: impl Fn(&mut Draw, usize) -> bool,
    ) -> Operand {
        let axis = |(axis, size): (usize, &usize)| {
            let is_repeated = repeated(draw, axis);
            Axis::draw(draw, *size, is_repeated)
        };
        let axes: Vec<Axis> = sizes.iter().enumerate().map(axis).collect();
        let mut order: Vec<usize> = (0..axes.len()).collect();
        for at in 1..order.len() {
            order.swap(at, draw.below(at + 1));
        }
        let count = axes.iter().map(Axis::stored).product::<usize>();
        let elements = (0..count).map(|_| draw.below(9) as i32 - 4).collect();
        Operand { axes, order, elements }
    }

    fn tensor(&self, dtype: DType) -> Result<Tensor, Error> {
        let stored = self.order.iter().map(|axis| self.axes[*axis].stored() as i64);
        let mut inverse = vec![0; self.order.len()];
        for (at, axis) in self.order.iter().enumerate() {
            inverse[*axis] = at as i64;
        }
        let sizes: Vec<i64> = self.axes.iter().map(|axis| axis.size as i64).collect();
        let pads = self.axes.iter().map(|axis| (axis.before as i64, axis.after as i64));
        Tensor::from_slice(&stored.collect::<Vec<_>>(), &self.elements)?
            .cast(dtype)?
            .permute(&inverse)?
            .expand(&sizes)?
            .pad(&pads.collect::<Vec<_>>(), 0)
    }

    fn element(&self, index: &[usize]) -> i32 {
        let mut position = 0;
        for axis in &self.order {
            let Axis { size, is_repeated, before, .. } = self.axes[*axis];
            match index[*axis].checked_sub(before).filter(|at| *at < size) {
                Some(_) if is_repeated => {}
                Some(at) => position = position * size + at,
                None => return 0,
            }
        }
        self.elements[position]
    }
}

/// A reduction.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Sum,
    Product,
    Maximum,
}

impl Kind {
    fn reduce(self, x: &Tensor, axes: &[i64]) -> Result<Tensor, Error> {
        match self {
            Kind::Sum => x.sum(axes),
            Kind::Product => x.prod(axes),
            Kind::Maximum => x.max(axes),
        }
    }

    fn identity(self) -> i32 {
        match self {
            Kind::Sum => 0,
            Kind::Product => 1,
            Kind::Maximum => i32::MIN,
        }
    }

    fn combine(self, x: i32, y: i32) -> i32 {
        match self {
            Kind::Sum => x.wrapping_add(y),
            Kind::Product => x.wrapping_mul(y),
            Kind::Maximum => x.max(y),
        }
    }
}

/// The way in which a reduction is computed.
#[derive(Clone, Copy)]
enum Form {
    Plain,
    Packed,
    /// By groups of threads, with optimisations drawn from a seed.
    Grouped(u64),
}

impl Form {
    fn engine(self) -> Result<Engine, Error> {
        let mut engine = Engine::new("interp")?;
        engine.beam = 0;
        engine.schedule.thresholds = Thresholds::SMALL;
        let is_packed = matches!(self, Form::Packed);
        (engine.schedule.pack, engine.schedule.rows) = (is_packed, is_packed);
        if let Form::Grouped(seed) = self {
            engine.target = Target::of("groups");
            engine.kernel.opts = Strategy::Drawn { seed, limit: OPTS_MAX };
        }
        Ok(engine)
    }
}

/// Checks reductions of products of drawn operands.
pub(super) fn contractions(draw: &mut Draw) -> Result<(), String> {
    (0..SUMS).try_for_each(|_| contraction(draw))
}

/// Draws two operands, and compares the reductions of their products with those of loops. Half of
/// them are matrices, with several reduced axes.
fn contraction(draw: &mut Draw) -> Result<(), String> {
    let is_matrix = draw.one_in(2);
    let rank = if is_matrix { 4 } else { 3 + draw.below(2) };
    let mut left = PRODUCTS_MAX;
    let mut size = |axis: usize| {
        let sizes: &[usize] = match axis {
            // As long as a panel of the packed operand.
            1 if is_matrix => &[8, 16, 9],
            // An odd number of tiles: the next row begins in the half of local memory that the last
            // tile is in.
            2.. if is_matrix => &[6, 9, 12, 2, 3],
            _ => &[2, 3, 4, 5, 8, 16, 9],
        };
        let size = draw.pick(sizes).min(left);
        left /= size;
        size
    };
    let sizes: Vec<usize> = (0..rank).map(&mut size).collect();
    let summed = draw.below(rank);
    let mut is_summed = |axis: usize| match is_matrix {
        true => 2 <= axis,
        false => axis == summed || draw.one_in(3),
    };
    let is_summed: Vec<bool> = (0..rank).map(&mut is_summed).collect();
    // The products may be the same all along one reduced axis.
    let is_constant = draw.one_in(2);
    let operands = [0, 1].map(|number| {
        Operand::draw(draw, &sizes, |draw, axis| match is_matrix {
            true => axis == number,
            false => is_constant && axis == summed || draw.one_in(2),
        })
    });
    let (summed, outputs): (Vec<usize>, Vec<usize>) = (0..rank).partition(|axis| is_summed[*axis]);
    // Only sums of floats are packed; integers wrap, in any order.
    let is_packed = draw.one_in(2);
    let kinds = [Kind::Product, Kind::Sum, Kind::Product, Kind::Maximum];
    let (kind, dtype) =
        if is_packed { (Kind::Sum, DType::F32) } else { (draw.pick(&kinds), DType::I32) };
    let count = outputs.iter().map(|axis| sizes[*axis]).product();
    let mut expected = vec![kind.identity(); count];
    for number in 0..sizes.iter().product() {
        let mut rest: usize = number;
        let mut index = vec![0; rank];
        for axis in (0..rank).rev() {
            (rest, index[axis]) = (rest / sizes[axis], rest % sizes[axis]);
        }
        let output = outputs.iter().fold(0, |at, axis| at * sizes[*axis] + index[*axis]);
        let product = operands[0].element(&index) * operands[1].element(&index);
        expected[output] = kind.combine(expected[output], product);
    }
    let axes: Vec<i64> = summed.iter().map(|axis| *axis as i64).collect();
    let computed = |form: Form| -> Result<Vec<i32>, Error> {
        let [x, y] = &operands;
        let found = kind.reduce(&x.tensor(dtype)?.mul(&y.tensor(dtype)?)?, &axes)?;
        let found = found.cast(DType::I32)?;
        form.engine()?.realize(&[&found])?;
        found.to_vec::<i32>()
    };
    let is_right = |form: Form| computed(form).is_ok_and(|found| found == expected);
    let (forms, of_crate) = match is_packed {
        true => (vec![Form::Packed], " (engine/schedule)"),
        false => {
            let grouped = (0..GROUPED).map(|_| Form::Grouped(draw.bits()));
            (grouped.collect(), " (engine/kernel)")
        }
    };
    let Some(form) = forms.into_iter().find(|form| !is_right(*form)) else { return Ok(()) };
    let of_crate = if is_right(Form::Plain) { of_crate } else { "" };
    let said = format!("{kind:?} of products {sizes:?} along {axes:?}{of_crate}");
    let found = computed(form);
    Err(format!("{said}: {found:?}, not {expected:?}"))
}
