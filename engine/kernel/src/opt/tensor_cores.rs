//! Opt `tc`: computes a sum of products with the tensor cores of a device.
//!
//! The loops of the rows m, columns n and summands k of a matrix product are split into tiles.
//! Within a tile, an index consists of bits of the thread's number in the warp and of bits of the
//! element's number in the thread's fragment, as the layout says. An operand is repeated for each
//! element of its fragment, with the range of the loop replaced by that index; the elements of the
//! result are upcast ranges.

use gradiff_graph::tensor_core::{Layout, TensorCore};
use gradiff_graph::{Arg, AxisKind, DType, Op, Sources, UOp};
use gradiff_rewrite::Mode;

use super::Setting;
use super::limits::{at_most, fits};
use super::loop_info::Loop;
use super::loops::Loops;
use super::matmul::Matmul;
use super::replace::{Replacement, replace};
use super::tuning::UPCAST_MAX;
use crate::Error;
use crate::nodes::range;

/// Returns the choices for a loop: all pairs of a tensor core and a matrix product that sums over
/// it. The amount of the opt is the index of a choice.
pub(super) fn choices<'a>(
    loops: &'a Loops,
    info: &Loop,
    setting: Setting<'_>,
) -> Vec<(&'static TensorCore, &'a Matmul)> {
    let cores = || setting.target.tensor_cores.iter().filter_map(|name| TensorCore::named(name));
    let over_it = loops.matmuls.iter().filter(|matmul| matmul.ranges[2] == info.range);
    over_it.flat_map(|matmul| cores().map(move |core| (core, matmul))).collect()
}

impl Loops {
    /// Returns the numbers of the loops of m, n and k for each choice of the loop at an index.
    pub(super) fn choices(&self, index: usize, setting: Setting<'_>) -> Vec<[i64; 3]> {
        let choices = choices(self, &self.list[index], setting);
        choices.into_iter().map(|(_, matmul)| matmul.numbers()).collect()
    }
}

/// Returns the choice of this number, if it is legal.
///
/// # Errors
/// The reason why it is illegal, and what is legal.
pub(super) fn check<'a>(
    loops: &'a Loops,
    info: &Loop,
    number: i64,
    setting: Setting<'_>,
) -> Result<(&'static TensorCore, &'a Matmul), String> {
    if setting.target.tensor_cores.is_empty() || !setting.target.unrolls {
        return Err("the device has no tensor cores".to_owned());
    }
    if setting.mode == Mode::Strict {
        return Err("in strict mode products are rounded and sums keep their order".to_owned());
    }
    let choices = choices(loops, info, setting);
    if choices.is_empty() {
        return Err("the loop has no matrix product: one sum over it, of products of two values \
                    that depend on it and each on an output loop on which the other does not"
            .to_owned());
    }
    let chosen = usize::try_from(number).ok().and_then(|number| choices.get(number));
    let (core, matmul) =
        *chosen.ok_or_else(|| format!("there are choices 0 to {}", choices.len() - 1))?;
    let dtype = matmul.operands[0].dtype();
    if dtype != core.operand_dtype {
        return Err(format!("{} multiplies {}, not {dtype}", core.name, core.operand_dtype));
    }
    let sizes = matmul.sizes.into_iter().zip(core.sizes);
    if let Some((size, tile)) = sizes.into_iter().find(|(size, tile)| size % tile != 0) {
        return Err(format!(
            "{}: a loop of {size} iterations is not a multiple of {tile}; see padto",
            core.name
        ));
    }
    if let Some(kind) = [AxisKind::Warp, AxisKind::Group].into_iter().find(|kind| loops.has(*kind))
    {
        return Err(format!("the kernel already has a loop of kind {kind:?}"));
    }
    at_most(UPCAST_MAX, loops.count(AxisKind::Upcast), core.elements(2) as i64)?;
    loops.check_loop_count(1 + core.layouts[2].elements.len(), &setting.target.thresholds)?;
    fits(loops, info, core.threads, AxisKind::Warp, setting)?;
    Ok((core, matmul))
}

/// Replaces the sum by tensor core operations.
pub(super) fn apply(
    root: &UOp,
    (core, matmul): (&'static TensorCore, &Matmul),
    next_number: i64,
) -> Result<UOp, Error> {
    let dtype = matmul.ranges[2].dtype();
    let warp = range(core.threads, dtype, AxisKind::Warp, next_number);
    let tile = Tile { core, warp: &warp, dtype };
    let outer: Vec<Option<UOp>> = (0..3)
        .map(|dim| {
            let tiles = matmul.sizes[dim] / core.sizes[dim];
            let number = matmul.numbers()[dim];
            let dtype = matmul.ranges[dim].dtype();
            (tiles != 1).then(|| range(tiles, dtype, AxisKind::Loop, number))
        })
        .collect();
    let index = |matrix: usize, dim: usize, element: &dyn Fn(usize) -> UOp| {
        let within = tile.index(matrix, dim, element);
        match &outer[dim] {
            None => within,
            Some(outer_range) => {
                let size = UOp::int(dtype, core.sizes[dim]);
                UOp::binary(Op::Add, UOp::binary(Op::Mul, outer_range.clone(), size), within)
            }
        }
    };
    let at = |matrix: usize, dim: usize, element: &dyn Fn(usize) -> UOp| {
        Replacement::value(&matmul.ranges[dim], index(matrix, dim, element))
    };
    let mut sources: Vec<UOp> = Vec::new();
    for (matrix, dim) in [(0, 0), (1, 1)] {
        let fragment = (0..core.elements(matrix)).map(|number| {
            let bit = |bit: usize| UOp::int(dtype, (number >> bit & 1) as i64);
            let replacements = [at(matrix, dim, &bit), at(matrix, 2, &bit)];
            replace(&matmul.operands[matrix], &replacements)
        });
        sources.extend(fragment.collect::<Result<Vec<UOp>, _>>()?);
    }
    let count = core.layouts[2].elements.len();
    let elements: Vec<UOp> = (0..count)
        .map(|bit| range(2, dtype, AxisKind::Upcast, next_number + 1 + bit as i64))
        .collect();
    sources.push(tile.number(&elements));
    sources.push(warp.clone());
    let product = UOp::new(Op::Wmma, DType::F32, sources, Arg::TensorCore(core));
    let new_range = |range: &UOp| match *range == matmul.ranges[2] {
        true => outer[2].clone(),
        false => Some(range.clone()),
    };
    let new_ranges: Vec<UOp> = matmul.sum.src()[1..].iter().filter_map(new_range).collect();
    let sum = if new_ranges.is_empty() {
        product
    } else {
        matmul.sum.with_src(std::iter::once(product).chain(new_ranges).collect::<Sources>())
    };
    let held = |bit: usize| elements[bit].clone();
    replace(root, &[Replacement::value(&matmul.sum, sum), at(2, 0, &held), at(2, 1, &held)])
}

/// The distribution of a tile over the threads of a warp.
struct Tile<'a> {
    core: &'static TensorCore,
    warp: &'a UOp,
    dtype: DType,
}

impl Tile<'_> {
    fn int(&self, value: i64) -> UOp {
        UOp::int(self.dtype, value)
    }

    /// Returns the index along a dimension of the element of a matrix whose number has these bits.
    fn index(&self, matrix: usize, dim: usize, element: &dyn Fn(usize) -> UOp) -> UOp {
        let Layout { threads, elements } = self.core.layouts[matrix];
        let mut sum = self.int(0);
        let mut add = |value: UOp, bit: u32| {
            let scaled = UOp::binary(Op::Mul, value, self.int(1 << bit));
            sum = UOp::binary(Op::Add, sum.clone(), scaled);
        };
        let mut from = 0;
        while from < threads.len() {
            // A run of bits that are consecutive in both the thread's number and the index.
            let (bit_dim, bit) = threads[from];
            let next = |at: &usize| threads[*at] == (bit_dim, bit + (*at - from) as u32);
            let count = (from..threads.len()).take_while(next).count();
            if bit_dim == dim {
                let divided = UOp::binary(Op::FloorDiv, self.warp.clone(), self.int(1 << from));
                add(UOp::binary(Op::FloorMod, divided, self.int(1 << count)), bit);
            }
            from += count;
        }
        for (at, (bit_dim, bit)) in elements.iter().enumerate() {
            if *bit_dim == dim {
                add(element(at), *bit);
            }
        }
        sum
    }

    /// Returns the number with these bits.
    fn number(&self, bits: &[UOp]) -> UOp {
        let scaled =
            |(at, bit): (usize, &UOp)| UOp::binary(Op::Mul, bit.clone(), self.int(1 << at));
        let scaled = bits.iter().enumerate().map(scaled);
        scaled.fold(self.int(0), |sum, bit| UOp::binary(Op::Add, sum, bit))
    }
}
