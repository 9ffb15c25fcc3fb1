//! Opt `tc`: a fold of products by the tensor cores of a device.
//!
//! Where a sum runs over products of two values, of which one varies along an output loop that the
//! other does not know, and the other way round, that is a product of matrices: of its rows m, its
//! columns n and its steps k each are split into tiles and what is left. The places within a tile
//! are those that a thread holds: bits of its number in the warp, and of the elements of its
//! fragment, as the layout says. An operand is written once for each element of its fragment, the
//! range of its loop replaced by such a place; of the result the elements are upcast ranges.

use gradiff_graph::{Arg, AxisKind, Constant, DType, Layout, Op, Sources, TensorCore, UOp};
use gradiff_rewrite::Mode;

use super::Setting;
use super::apply::{Replaced, range, replace};
use super::legal::{Loop, Loops, UPCAST_MOST, at_most, fits};
use crate::Error;
use crate::linearize::Free;

/// A fold of products that is a product of matrices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matmul {
    /// The sum.
    fold: UOp,
    /// The ranges of rows, columns and steps.
    ranges: [UOp; 3],
    /// How many of each there are.
    sizes: [i64; 3],
    /// What is multiplied: a value of rows and steps by one of columns and steps.
    operands: [UOp; 2],
}

impl Matmul {
    /// The numbers of the loops of rows, columns and steps.
    pub(super) fn numbers(&self) -> [i64; 3] {
        [0, 1, 2].map(|dim| match self.ranges[dim].arg() {
            Arg::Axis(axis) => axis.number,
            _ => -1,
        })
    }
}

/// The products of matrices of a kernel, each also as that of the transposed ones.
pub(super) fn matmuls(free: &Free, list: &[Loop]) -> Vec<Matmul> {
    let folds: Vec<&UOp> = free.nodes.iter().filter(|node| node.op() == Op::Reduce).collect();
    let mut found = Vec::new();
    for fold in &folds {
        let is_sum = matches!(fold.arg(), Arg::Reduce(Op::Add, _)) && fold.dtype() == DType::F32;
        let Some(operands) = is_sum.then(|| operands(&fold.src()[0])).flatten() else { continue };
        let varies = |operand: usize, one: &Loop| {
            depends(free, &operands[operand]) & free.of_node(&one.range) != 0
        };
        let plain = || list.iter().filter(|one| one.axis.kind == AxisKind::Loop);
        let output = || plain().filter(|one| one.is_output && !one.is_reduced);
        let is_step = |one: &&Loop| {
            let over = |fold: &&&UOp| fold.src()[1..].contains(&one.range);
            let is_own =
                fold.src()[1..].contains(&one.range) && folds.iter().filter(over).count() == 1;
            is_own && !one.is_output && varies(0, one) && varies(1, one)
        };
        for step in plain().filter(is_step) {
            for row in output().filter(|one| varies(0, one) && !varies(1, one)) {
                for column in output().filter(|one| varies(1, one) && !varies(0, one)) {
                    for [x, y, is_turned] in [[0, 1, 0], [1, 0, 1]] {
                        let (row, column) =
                            if is_turned == 1 { (column, row) } else { (row, column) };
                        let ranges = [row, column, step];
                        found.push(Matmul {
                            fold: (*fold).clone(),
                            ranges: ranges.map(|one| one.range.clone()),
                            sizes: ranges.map(|one| one.size),
                            operands: [x, y].map(|number: usize| operands[number].clone()),
                        });
                    }
                }
            }
        }
    }
    found
}

/// The ranges of an operand, which may be a new node over known ones.
fn depends(free: &Free, operand: &UOp) -> u64 {
    match operand.op() {
        Op::Where => operand.src().iter().fold(0, |all, source| all | depends(free, source)),
        _ => free.of_node(operand),
    }
}

/// The two factors of a product, of one type. What is nothing but widened is taken as it was, and a
/// gate in front of the product stands in front of both.
fn operands(value: &UOp) -> Option<[UOp; 2]> {
    let is_half = |dtype: DType| matches!(dtype, DType::F16 | DType::BF16);
    match (value.op(), value.src()) {
        (Op::Mul, [x, y]) if value.dtype() == DType::F32 => {
            let narrow = |one: &UOp| {
                let source = one.src().first().filter(|_| one.op() == Op::Cast)?;
                is_half(source.dtype()).then(|| source.clone())
            };
            match [narrow(x), narrow(y)] {
                [Some(a), Some(b)] if a.dtype() == b.dtype() => Some([a, b]),
                _ => Some([x.clone(), y.clone()]),
            }
        }
        (Op::Mul, [x, y]) if is_half(value.dtype()) => Some([x.clone(), y.clone()]),
        // A product may be rounded later than at once.
        (Op::Cast, [x]) if is_half(x.dtype()) => operands(x),
        (Op::Where, [gate, x, zero]) if zero.as_const()?.to_float() == Some(0.0) => {
            let zero = |one: &UOp| UOp::constant(Constant::zero(one.dtype()));
            let gated = |one: UOp| UOp::select(gate.clone(), one.clone(), zero(&one));
            operands(x).map(|both| both.map(gated))
        }
        _ => None,
    }
}

/// The tensor cores and products of matrices that the numbers of this opt of a loop choose from.
pub(super) fn choices<'a>(
    loops: &'a Loops,
    one: &Loop,
    setting: Setting<'_>,
) -> Vec<(&'static TensorCore, &'a Matmul)> {
    let cores = || setting.target.tensor_cores.iter().filter_map(|name| TensorCore::named(name));
    let own = loops.matmuls.iter().filter(|matmul| matmul.ranges[2] == one.range);
    own.flat_map(|matmul| cores().map(move |core| (core, matmul))).collect()
}

impl Loops {
    /// The loops of rows, columns and steps of each choice that a loop has.
    pub(super) fn choices(&self, place: usize, setting: Setting<'_>) -> Vec<[i64; 3]> {
        let choices = choices(self, &self.list[place], setting);
        choices.into_iter().map(|(_, matmul)| matmul.numbers()).collect()
    }
}

/// What is to be done by the choice of this number, if it may be done.
///
/// # Errors
/// Why not, and what is allowed.
pub(super) fn check<'a>(
    loops: &'a Loops,
    one: &Loop,
    number: i64,
    setting: Setting<'_>,
) -> Result<(&'static TensorCore, &'a Matmul), String> {
    if setting.target.tensor_cores.is_empty() || !setting.target.unrolls {
        return Err("the device has no tensor cores".to_owned());
    }
    if setting.mode == Mode::Strict {
        return Err("in strict mode products are rounded and sums keep their order".to_owned());
    }
    let choices = choices(loops, one, setting);
    if choices.is_empty() {
        return Err("no sum over the loop alone is of products of two values that vary along it \
                    and each along an output loop that the other does not"
            .to_owned());
    }
    let chosen = usize::try_from(number).ok().and_then(|number| choices.get(number));
    let (core, matmul) =
        *chosen.ok_or_else(|| format!("there are choices 0 to {}", choices.len() - 1))?;
    let dtype = matmul.operands[0].dtype();
    if dtype != core.from {
        return Err(format!("{} multiplies {}, not {dtype}", core.name, core.from));
    }
    let sizes = matmul.sizes.into_iter().zip(core.sizes);
    if let Some((size, tile)) = sizes.into_iter().find(|(size, tile)| size % tile != 0) {
        return Err(format!(
            "{} does not divide a loop of {size} steps by {tile}; see padto",
            core.name
        ));
    }
    if let Some(kind) = [AxisKind::Warp, AxisKind::Group].into_iter().find(|kind| loops.has(*kind))
    {
        return Err(format!("the kernel has a loop of kind {kind:?} already"));
    }
    at_most(UPCAST_MOST, loops.count(AxisKind::Upcast), core.elements(2) as i64)?;
    fits(loops, one, core.threads, AxisKind::Warp, setting)?;
    Ok((core, matmul))
}

/// The kernel with the product done by tensor cores.
pub(super) fn apply(
    root: &UOp,
    (core, matmul): (&'static TensorCore, &Matmul),
    fresh: i64,
) -> Result<UOp, Error> {
    let dtype = matmul.ranges[2].dtype();
    let warp = range(core.threads, dtype, AxisKind::Warp, fresh);
    let tile = Tile { core, warp: &warp, dtype };
    let rests: Vec<Option<UOp>> = (0..3)
        .map(|dim| {
            let rest = matmul.sizes[dim] / core.sizes[dim];
            let number = matmul.numbers()[dim];
            (rest != 1).then(|| range(rest, matmul.ranges[dim].dtype(), AxisKind::Loop, number))
        })
        .collect();
    let place = |matrix: usize, dim: usize, element: &dyn Fn(usize) -> UOp| {
        let within = tile.place(matrix, dim, element);
        match &rests[dim] {
            None => within,
            Some(rest) => {
                let size = UOp::int(dtype, core.sizes[dim]);
                UOp::binary(Op::Add, UOp::binary(Op::Mul, rest.clone(), size), within)
            }
        }
    };
    let at = |matrix: usize, dim: usize, element: &dyn Fn(usize) -> UOp| {
        Replaced::value(&matmul.ranges[dim], place(matrix, dim, element))
    };
    let mut sources: Vec<UOp> = Vec::new();
    for (matrix, dim) in [(0, 0), (1, 1)] {
        let fragment = (0..core.elements(matrix)).map(|number| {
            let bit = |bit: usize| UOp::int(dtype, (number >> bit & 1) as i64);
            let by = [at(matrix, dim, &bit), at(matrix, 2, &bit)];
            replace(&matmul.operands[matrix], &by)
        });
        sources.extend(fragment.collect::<Result<Vec<UOp>, _>>()?);
    }
    let count = core.layouts[2].elements.len();
    let elements: Vec<UOp> =
        (0..count).map(|bit| range(2, dtype, AxisKind::Upcast, fresh + 1 + bit as i64)).collect();
    sources.push(tile.number(&elements));
    sources.push(warp.clone());
    let product = UOp::new(Op::Wmma, DType::F32, sources, Arg::TensorCore(core));
    let own =
        |one: &UOp| if *one == matmul.ranges[2] { rests[2].clone() } else { Some(one.clone()) };
    let over: Vec<UOp> = matmul.fold.src()[1..].iter().filter_map(own).collect();
    let fold = if over.is_empty() {
        product
    } else {
        matmul.fold.with_src(std::iter::once(product).chain(over).collect::<Sources>())
    };
    let held = |bit: usize| elements[bit].clone();
    replace(root, &[Replaced::value(&matmul.fold, fold), at(2, 0, &held), at(2, 1, &held)])
}

/// The places that the threads of a warp hold.
struct Tile<'a> {
    core: &'static TensorCore,
    warp: &'a UOp,
    dtype: DType,
}

impl Tile<'_> {
    fn int(&self, value: i64) -> UOp {
        UOp::int(self.dtype, value)
    }

    /// Where along a dimension the element of a matrix lies whose number has these bits.
    fn place(&self, matrix: usize, dim: usize, element: &dyn Fn(usize) -> UOp) -> UOp {
        let Layout { threads, elements } = self.core.layouts[matrix];
        let mut sum = self.int(0);
        let mut add = |value: UOp, bit: u32| {
            let scaled = UOp::binary(Op::Mul, value, self.int(1 << bit));
            sum = UOp::binary(Op::Add, sum.clone(), scaled);
        };
        let mut from = 0;
        while from < threads.len() {
            // As many bits as follow each other in both numbers.
            let (own, bit) = threads[from];
            let next = |at: &usize| threads[*at] == (own, bit + (*at - from) as u32);
            let count = (from..threads.len()).take_while(next).count();
            if own == dim {
                let divided = UOp::binary(Op::FloorDiv, self.warp.clone(), self.int(1 << from));
                add(UOp::binary(Op::FloorMod, divided, self.int(1 << count)), bit);
            }
            from += count;
        }
        for (at, (own, bit)) in elements.iter().enumerate() {
            if *own == dim {
                add(element(at), *bit);
            }
        }
        sum
    }

    /// The number with these bits.
    fn number(&self, bits: &[UOp]) -> UOp {
        let scaled =
            |(at, bit): (usize, &UOp)| UOp::binary(Op::Mul, bit.clone(), self.int(1 << at));
        let scaled = bits.iter().enumerate().map(scaled);
        scaled.fold(self.int(0), |sum, one| UOp::binary(Op::Add, sum, one))
    }
}
