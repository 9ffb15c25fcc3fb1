//! Drawn matrix products that tensor cores compute, against a naive evaluation after each pass.
//!
//! Programs seldom have a product whose sizes, types and gates suit a tensor core. Here each one
//! does, or almost: sizes are a tile or two, or one less; operands are permuted and padded; the
//! summand is chosen by a gate, with any number in the other case.

use gradiff::UOp;
use gradiff::graph::tensor_core::TensorCore;
use gradiff::graph::{Arg, Constant, DType, Dims, Global, Op, Target};
use gradiff::kernel::{
    Opt, OptOp, Options, Setting, Strategy, apply, check as check_opt, draw as draw_opts, legal,
    loops, stages,
};
use gradiff::rewrite::Mode;
use gradiff::view::ShapeTracker;
use gradiff_eval::kernel::interpret;
use gradiff_eval::{Elements, scalar};

use crate::checks::calls::Draw;

/// Prefix of this check's reports.
pub(crate) const PREFIX: &str = "matrix product";

/// Axes of a product: batch, rows, columns, summands.
const AXES: usize = 4;
const SUMMANDS: usize = 3;

/// A matrix over all axes but rows or columns, stored with its axes in another order. The summands
/// begin with zeros that are not stored.
struct Operand {
    order: Vec<usize>,
    padding: i64,
    elements: Vec<f64>,
}

/// The condition `axis < bound`, or its negation, under which a product is taken; in the other case
/// it is `otherwise`.
struct Gate {
    axis: usize,
    bound: i64,
    is_negated: bool,
    otherwise: f64,
}

/// The sum over the last axis of the products of two operands.
struct Drawn {
    sizes: [i64; AXES],
    dtype: DType,
    operands: [Operand; 2],
    gate: Option<Gate>,
    /// True if the product is computed in the operands' type, and then cast.
    is_cast_late: bool,
    /// True if negative results become 0.
    has_relu: bool,
}

/// Checks a product that the draw gives.
///
/// # Errors
/// A pass after which it has another value, or a kernel with another value.
pub(crate) fn check(draw: &mut Draw) -> Result<(), String> {
    let name = draw.pick(&["groups", "groups", "groups", "cuda", "cuda-tf32", "ptx"]);
    let target = Target::of(name);
    // Small tiles are seldom too slow.
    let is_small = |core: &&'static TensorCore| core.threads < 32;
    let cores: Vec<&TensorCore> =
        target.tensor_cores.iter().filter_map(|name| TensorCore::named(name)).collect();
    let small: Vec<&TensorCore> = cores.iter().copied().filter(|core| is_small(core)).collect();
    let has_small = !small.is_empty() && !draw.one_in(8);
    let core = draw.pick(if has_small { &small } else { &cores });
    let drawn = Drawn::draw(core, draw);
    let tree = drawn.tree();
    let report = |problem: String| format!("{PREFIX}: {problem} of\n{}", tree.to_text());
    drawn.check(&tree, (name, &target), draw).map_err(report)
}

impl Drawn {
    fn draw(core: &TensorCore, draw: &mut Draw) -> Drawn {
        let [rows, columns, summands] = core.sizes.map(|size| {
            let tiles = if core.threads < 32 { 1 + draw.below(3) as i64 } else { 1 };
            let size = tiles * size;
            if draw.one_in(6) { size - 1 } else { size }
        });
        let sizes = [1 + draw.below(2) as i64, rows.max(1), columns.max(1), summands.max(1)];
        let operands = [2, 1].map(|absent| {
            let mut order: Vec<usize> = (0..AXES).filter(|axis| *axis != absent).collect();
            (1..order.len()).rev().for_each(|at| order.swap(at, draw.below(at + 1)));
            let padding =
                if draw.one_in(4) { draw.below(sizes[SUMMANDS] as usize) as i64 } else { 0 };
            let mut operand = Operand { order, padding, elements: Vec::new() };
            let count: i64 = operand.stored(&sizes).iter().product();
            operand.elements = (0..count).map(|_| draw.below(7) as f64 - 3.0).collect();
            operand
        });
        let gate = draw.one_in(2).then(|| {
            let axis = if draw.one_in(2) { SUMMANDS } else { 1 + draw.below(2) };
            Gate {
                axis,
                bound: draw.below(sizes[axis] as usize + 1) as i64,
                is_negated: draw.one_in(2),
                otherwise: draw.pick(&[0.0, 0.0, 1.0, -2.0]),
            }
        });
        let is_cast_late = core.operand_dtype != DType::F32 && draw.one_in(2);
        Drawn {
            sizes,
            dtype: core.operand_dtype,
            operands,
            gate,
            is_cast_late,
            has_relu: draw.one_in(4),
        }
    }

    /// The kernel tree: its arrays are the result and the operands.
    fn tree(&self) -> UOp {
        let loads = [0, 1].map(|number| {
            let operand = &self.operands[number];
            let stored = operand.stored(&self.sizes);
            let mut tracker = tracker(&stored);
            let amounts: Vec<(i64, i64)> = operand
                .order
                .iter()
                .map(|axis| if *axis == SUMMANDS { (operand.padding, 0) } else { (0, 0) })
                .collect();
            tracker = tracker.pad(&amounts).expect("a small padding");
            let mut axes: Vec<usize> = (0..operand.order.len()).collect();
            axes.sort_unstable_by_key(|at| operand.order[*at]);
            tracker = tracker.permute(&axes).expect("an order of all axes");
            let present = |axis: usize| operand.order.contains(&axis);
            let shape = (0..AXES).map(|axis| if present(axis) { self.sizes[axis] } else { 1 });
            tracker = tracker.reshape(&shape.collect::<Vec<_>>()).expect("as many elements");
            tracker = tracker.expand(&self.sizes).expect("an axis of one element");
            let array = global(number + 1, self.dtype, stored.iter().product());
            UOp::new(Op::Load, self.dtype, [array], Arg::View(tracker))
        });
        let cast = |value: UOp| match self.dtype {
            DType::F32 => value,
            _ => UOp::unary(Op::Cast, DType::F32, value),
        };
        let [x, y] = loads;
        let mut value = match self.is_cast_late {
            true => self.chosen(UOp::binary(Op::Mul, x, y)),
            false => self.chosen(UOp::binary(Op::Mul, cast(x), cast(y))),
        };
        value = if self.is_cast_late { cast(value) } else { value };
        let axes = [SUMMANDS as i64].into_iter().collect();
        value = UOp::new(Op::ReduceAxis, DType::F32, [value], Arg::Reduce(Op::Add, axes));
        if self.has_relu {
            value = UOp::binary(Op::Max, value, UOp::constant(Constant::zero(DType::F32)));
        }
        let shape = [self.sizes[0], self.sizes[1], self.sizes[2], 1];
        let store = [global(0, DType::F32, shape.iter().product()), value];
        let store = UOp::new(Op::Store, DType::Void, store, Arg::View(tracker(&shape)));
        UOp::new(Op::Sink, DType::Void, [store], Arg::None)
    }

    /// The value under the gate.
    fn chosen(&self, value: UOp) -> UOp {
        let Some(gate) = &self.gate else { return value };
        let size = self.sizes[gate.axis];
        let numbers = UOp::new(Op::Iota, DType::I32, [], Arg::Int(size));
        let mut shape = [1; AXES];
        shape[gate.axis] = size;
        let spread = tracker(&shape).expand(&self.sizes).expect("axes of one element");
        let number = UOp::new(Op::View, DType::I32, [numbers], Arg::View(spread));
        let is_below = UOp::binary(Op::CmpLt, number, UOp::int(DType::I32, gate.bound));
        let otherwise = scalar::float(value.dtype(), gate.otherwise).expect("a float");
        let otherwise = UOp::constant(otherwise);
        match gate.is_negated {
            true => UOp::select(is_below, otherwise, value),
            false => UOp::select(is_below, value, otherwise),
        }
    }

    /// The result, computed element by element; small integers, whose sums are exact.
    fn naive(&self) -> Vec<f64> {
        let [batches, rows, columns, summands] = self.sizes;
        let mut result = Vec::new();
        for at in 0..batches * rows * columns {
            let summand = |last: i64| {
                let at = [at / columns / rows, at / columns % rows, at % columns, last];
                match &self.gate {
                    Some(gate) if (at[gate.axis] < gate.bound) == gate.is_negated => gate.otherwise,
                    _ => self.operands.iter().map(|x| x.element(&at, &self.sizes)).product(),
                }
            };
            let sum: f64 = (0..summands).map(summand).sum();
            result.push(if self.has_relu { sum.max(0.0) } else { sum });
        }
        result
    }

    fn memories(&self) -> Vec<Elements> {
        let float = |value: &f64| scalar::float(self.dtype, *value);
        let operands = self.operands.iter().map(|x| x.elements.iter().map(float).collect());
        let count: i64 = self.sizes[..SUMMANDS].iter().product();
        std::iter::once(vec![None; count as usize]).chain(operands).collect()
    }

    fn check(
        &self,
        tree: &UOp,
        (name, target): (&str, &Target),
        draw: &mut Draw,
    ) -> Result<(), String> {
        let expected = self.naive();
        let compare = |found: &Elements| {
            let numbers: Vec<Option<f64>> =
                found.iter().map(|found| found.and_then(scalar::to_float)).collect();
            let is_right = |(found, expected): (&Option<f64>, &f64)| *found == Some(*expected);
            match numbers.iter().zip(&expected).position(|pair| !is_right(pair)) {
                Some(at) => Err(format!("element {at} is {:?}, not {}", numbers[at], expected[at])),
                None => Ok(()),
            }
        };
        let interpreted = |kernel: &UOp| {
            let mut memories = self.memories();
            crate::catch(|| interpret(kernel, &mut memories))??;
            compare(&memories[0])
        };
        interpreted(tree).map_err(|problem| format!("the tree: {problem}"))?;
        let opts = sequence(tree, target, draw)?;
        let words: Vec<String> = opts.iter().map(Opt::to_string).collect();
        let report = |stage: &str, problem: String| {
            format!("for {name}, opts \"{}\", after {stage}: {problem}", words.join(", "))
        };
        let options = Options { opts: Strategy::Fixed(opts), ..Options::default() };
        let stages = crate::catch(|| stages(tree, target, &options))?
            .map_err(|error| report("all", format!("it is refused: {error}")))?;
        for (pass, kernel) in &stages.graphs {
            interpreted(kernel).map_err(|problem| report(pass, problem))?;
        }
        let mut memories = self.memories();
        gradiff_eval::linear::run(&stages.linear, &mut memories)
            .and_then(|()| compare(&memories[0]))
            .map_err(|problem| report("linearize", format!("{problem}\n{}", *stages.linear)))
    }
}

impl Operand {
    /// The sizes of the array.
    fn stored(&self, sizes: &[i64; AXES]) -> Vec<i64> {
        let size = |axis: &usize| match *axis {
            SUMMANDS => sizes[SUMMANDS] - self.padding,
            axis => sizes[axis],
        };
        self.order.iter().map(size).collect()
    }

    fn element(&self, at: &[i64; AXES], sizes: &[i64; AXES]) -> f64 {
        let mut index = 0;
        for (axis, size) in self.order.iter().zip(self.stored(sizes)) {
            let coordinate = if *axis == SUMMANDS { at[*axis] - self.padding } else { at[*axis] };
            if coordinate < 0 {
                return 0.0;
            }
            index = index * size + coordinate;
        }
        self.elements[index as usize]
    }
}

fn tracker(shape: &[i64]) -> ShapeTracker {
    let dims: Dims = shape.iter().copied().collect();
    ShapeTracker::from_shape(&dims).expect("a small shape")
}

fn global(slot: usize, dtype: DType, size_elements: i64) -> UOp {
    UOp::new(Op::DefineGlobal, dtype, [], Arg::Global(Global { slot, size_elements }))
}

/// Draws opts with a tensor core among them, if one is legal: after others and paddings, and before
/// others.
fn sequence(tree: &UOp, target: &Target, draw: &mut Draw) -> Result<Vec<Opt>, String> {
    let setting = Setting { mode: Mode::Default, target };
    let plain = crate::catch(|| stages(tree, &Target::default(), &Options::default()))?
        .map_err(|error| error.to_string())?;
    let is_before = |(pass, _): &&(&str, UOp)| *pass == "collapse";
    let found = plain.graphs.iter().find(is_before).ok_or("there is no pass collapse")?;
    let (mut root, mut opts) = (found.1.clone(), Vec::new());
    let error = |error: gradiff::kernel::Error| error.to_string();
    let mut add = |root: &mut UOp, list: Vec<Opt>| -> Result<(), String> {
        for opt in list {
            *root = crate::catch(|| apply(root, opt, setting))?.map_err(error)?;
            opts.push(opt);
        }
        Ok(())
    };
    if draw.one_in(4) {
        let list = draw_opts(&root, draw.bits(), 1, setting).map_err(error)?;
        add(&mut root, list)?;
    }
    for axis in 0..loops(&root).map_err(error)?.list.len() {
        let opt = Opt { op: OptOp::PadTo, axis, amount: draw.pick(&[2, 4, 8, 16]) };
        let is_legal = check_opt(&loops(&root).map_err(error)?, opt, setting).is_ok();
        if is_legal && draw.one_in(2) {
            add(&mut root, vec![opt])?;
        }
    }
    let mut products = legal(&root, setting).map_err(error)?;
    products.retain(|opt| opt.op == OptOp::Tc);
    if !products.is_empty() {
        let product = draw.pick(&products);
        add(&mut root, vec![product])?;
    }
    let list = draw_opts(&root, draw.bits(), 3, setting).map_err(error)?;
    add(&mut root, list)?;
    Ok(opts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_products_agree_with_a_naive_evaluation() {
        for seed in 0..300 {
            check(&mut Draw::new(seed)).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        }
    }

    #[test]
    fn most_drawn_products_use_tensor_cores() {
        let target = Target::of("groups");
        let core = TensorCore::named("m4n2k2_f16").expect("a core");
        let has_product = |seed: &u64| {
            let draw = &mut Draw::new(*seed);
            let tree = Drawn::draw(core, draw).tree();
            let opts = sequence(&tree, &target, draw).expect("opts");
            opts.iter().any(|opt| opt.op == OptOp::Tc)
        };
        let count = (0..60).filter(has_product).count();
        assert!(25 < count, "{count} of 60 products use a tensor core");
    }
}
