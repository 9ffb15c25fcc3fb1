//! A second verifier of kernels: op by op, from the descriptions of the op table and of linear
//! kernels, independent of the engine's verifier.

use gradiff::graph::{Arg, Axis, AxisKind, DType, Instruction, Linear, Op};

/// The role of a uop as a source of others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Value,
    Array,
    Address,
    Store,
    Barrier,
    /// Ends of loops and similar uops, which are no sources.
    Nothing,
}

/// The rule for the types of an elementwise op.
pub(crate) enum Typing {
    /// Operands of the type of the result, which must satisfy the predicate.
    Same(fn(DType) -> bool),
    /// Operands of one type; the result is a bool.
    Truth,
    /// A bool, then two operands of the result's type.
    Choice,
    /// An operand of any type.
    Cast,
    /// An operand of any type of the same size.
    Bits,
}

impl Typing {
    /// Returns whether sources of these types give a result of type `to`.
    pub(crate) fn allows(&self, to: DType, src: &[DType]) -> bool {
        let are_alike = |values: &[DType]| {
            values[0] != DType::Void && values.iter().all(|dtype| *dtype == values[0])
        };
        let from = src[0];
        match self {
            Typing::Same(is_allowed) => are_alike(src) && from == to && is_allowed(to),
            Typing::Truth => are_alike(src) && to == DType::Bool,
            Typing::Choice => from == DType::Bool && are_alike(&src[1..]) && src[1] == to,
            Typing::Cast => from != DType::Void,
            Typing::Bits => {
                let is_truth = from == DType::Bool || to == DType::Bool;
                from == to || bytes(from) == bytes(to) && !is_truth
            }
        }
    }
}

fn is_any(_: DType) -> bool {
    true
}

fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

fn is_number(dtype: DType) -> bool {
    !is_float(dtype) && dtype != DType::Bool && dtype != DType::Void
}

/// The number of bytes of an element.
fn bytes(dtype: DType) -> usize {
    match dtype {
        DType::Void => 0,
        DType::Bool | DType::I8 | DType::U8 => 1,
        DType::I16 | DType::U16 | DType::F16 | DType::BF16 => 2,
        DType::I32 | DType::U32 | DType::F32 => 4,
        DType::I64 | DType::U64 | DType::F64 => 8,
    }
}

/// The number of sources of an elementwise op, and the rule for their types.
pub(crate) fn elementwise(op: Op) -> Option<(usize, Typing)> {
    use Typing::{Bits, Cast, Choice, Same, Truth};
    Some(match op {
        Op::Cast => (1, Cast),
        Op::Bitcast => (1, Bits),
        Op::Neg => (1, Same(|dtype| dtype != DType::Bool)),
        Op::Exp2 | Op::Log2 | Op::Sin | Op::Sqrt | Op::Recip => (1, Same(is_float)),
        Op::FDiv | Op::Pow => (2, Same(is_float)),
        Op::Add | Op::Sub | Op::Mul | Op::Max | Op::Min => (2, Same(is_any)),
        Op::CDiv | Op::CMod | Op::FloorDiv | Op::FloorMod | Op::Shl | Op::Shr => {
            (2, Same(is_number))
        }
        Op::And | Op::Or | Op::Xor => (2, Same(|dtype| !is_float(dtype))),
        Op::CmpLt | Op::CmpNe => (2, Truth),
        Op::Threefry => (2, Same(|dtype| dtype == DType::U64)),
        Op::Where => (3, Choice),
        Op::MulAcc => (3, Same(|dtype| dtype != DType::Bool)),
        _ => return None,
    })
}

fn use_of(op: Op) -> Option<Use> {
    Some(match op {
        Op::Const | Op::Range | Op::Load | Op::DefineAcc | Op::Vectorize | Op::Lane | Op::Wmma => {
            Use::Value
        }
        Op::DefineGlobal | Op::DefineLocal => Use::Array,
        Op::Index => Use::Address,
        Op::Store => Use::Store,
        Op::Barrier => Use::Barrier,
        Op::EndRange | Op::Assign | Op::Sink => Use::Nothing,
        op if elementwise(op).is_some() => Use::Value,
        _ => return None,
    })
}

fn axis_of(uop: &Instruction) -> Option<Axis> {
    match uop.arg {
        Arg::Axis(axis) => Some(axis),
        _ => None,
    }
}

/// Returns whether iterations are executed by different groups, threads of a group, or threads of
/// the host.
fn is_parallel(uop: &Instruction) -> bool {
    let kinds = [AxisKind::Global, AxisKind::Local, AxisKind::Thread];
    uop.op == Op::Range && axis_of(uop).is_some_and(|axis| kinds.contains(&axis.kind))
}

/// The ranges of a launched kind, with their trip counts; those whose trip count is no constant are
/// left out.
pub(super) fn launched(kernel: &Linear, kind: AxisKind) -> Vec<(u32, i64)> {
    let mut ranges = Vec::new();
    for (position, uop) in kernel.uops.iter().enumerate() {
        let is_of_kind = is_parallel(uop) && axis_of(uop).is_some_and(|axis| axis.kind == kind);
        let end = uop.src.first().and_then(|end| kernel.uops.get(*end as usize));
        if let (true, Some(Arg::Const(end))) = (is_of_kind, end.map(|end| &end.arg))
            && let Some(trip_count) = gradiff_eval::scalar::to_int(*end)
            && let Ok(trip_count) = i64::try_from(trip_count)
        {
            ranges.push((position as u32, trip_count));
        }
    }
    ranges
}

/// Succeeds if the kernel is well formed.
///
/// # Errors
/// The first rule that it breaks.
pub(super) fn check(kernel: &Linear) -> Result<(), String> {
    let uops = &kernel.uops;
    let mut open: Vec<usize> = Vec::new();
    let mut loops_of: Vec<Vec<usize>> = Vec::new();
    for (position, uop) in uops.iter().enumerate() {
        let checker = Checker { uops, position, uop };
        let found = checker.check_sources().and_then(|()| {
            checker.check_visible(&open, &loops_of)?;
            checker.check_order(&mut open)
        });
        let found = found.and_then(|()| checker.check_types());
        found.map_err(|problem| format!("uop {position} ({}): {problem}", uop.op))?;
        loops_of.push(open.clone());
    }
    if open.is_empty() { Ok(()) } else { Err("a loop has no end".to_string()) }
}

fn ensure(holds: bool, problem: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem.to_string()) }
}

/// A uop with its position in the kernel.
struct Checker<'a> {
    uops: &'a [Instruction],
    position: usize,
    uop: &'a Instruction,
}

impl Checker<'_> {
    fn source(&self, number: usize) -> &Instruction {
        &self.uops[self.uop.src[number] as usize]
    }

    fn sources(&self) -> impl Iterator<Item = &Instruction> {
        self.uop.src.iter().map(|source| &self.uops[*source as usize])
    }

    /// Checks the number of sources, that they precede the uop, and their roles.
    fn check_sources(&self) -> Result<(), String> {
        let count = self.uop.src.len();
        let is_right = match self.uop.op {
            Op::Const | Op::DefineGlobal | Op::DefineLocal => count == 0,
            Op::Range | Op::EndRange | Op::Lane => count == 1,
            Op::Load => (1..=2).contains(&count),
            Op::Index => (2..=3).contains(&count),
            Op::Store | Op::Assign => count == 2,
            Op::DefineAcc | Op::Vectorize => count >= 1,
            Op::Wmma => count == 4,
            Op::Barrier | Op::Sink => true,
            op => elementwise(op).is_some_and(|(sources, _)| sources == count),
        };
        ensure(is_right, "it has a wrong number of sources, or is no uop of a kernel")?;
        ensure(
            self.uop.src.iter().all(|at| (*at as usize) < self.position),
            "a source follows the uop",
        )?;
        let uses = self.sources().map(|source| use_of(source.op)).enumerate();
        for (number, found) in uses {
            let fits = match (self.uop.op, number) {
                (Op::Sink, _) => true,
                (Op::Index, 0) => found == Some(Use::Array),
                (Op::Load | Op::Store, 0) => found == Some(Use::Address),
                (Op::Load, 1) => {
                    matches!(found, Some(Use::Barrier | Use::Store | Use::Value))
                }
                (Op::Barrier, _) => found == Some(Use::Store),
                (Op::EndRange, _) => self.source(0).op == Op::Range,
                (Op::Assign, 0) => self.source(0).op == Op::DefineAcc,
                _ => found == Some(Use::Value),
            };
            ensure(fits, "a source has a wrong role")?;
        }
        Ok(())
    }

    /// Checks scopes: a value is visible within the loops that it is computed in, a variable also
    /// after them.
    fn check_visible(&self, open: &[usize], loops_of: &[Vec<usize>]) -> Result<(), String> {
        let is_visible = |at: &u32| {
            let source = &self.uops[*at as usize];
            let is_free = self.uop.op == Op::EndRange || source.op == Op::DefineAcc;
            is_free || loops_of[*at as usize].iter().all(|range| open.contains(range))
        };
        ensure(self.uop.src.iter().all(is_visible), "a source is in a loop that has ended")
    }

    fn check_order(&self, open: &mut Vec<usize>) -> Result<(), String> {
        match self.uop.op {
            Op::Range => {
                let is_deep = open.iter().any(|range| !is_parallel(&self.uops[*range]));
                ensure(!(is_parallel(self.uop) && is_deep), "a launched range is within a loop")?;
                open.push(self.position);
            }
            Op::EndRange => {
                let innermost = open.pop();
                ensure(innermost == Some(self.uop.src[0] as usize), "loops are not nested")?;
            }
            Op::Assign => {
                let variable = self.uop.src[0] as usize;
                let carries =
                    |range: &&usize| is_parallel(&self.uops[**range]) && variable < **range;
                ensure(!open.iter().any(|range| carries(&range)), "threads share a variable")?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks types, args and lanes.
    fn check_types(&self) -> Result<(), String> {
        let (uop, dtype) = (self.uop, self.uop.dtype);
        let is_void = dtype == DType::Void;
        let same = |number: usize| self.source(number).dtype == dtype;
        let single = uop.lanes == 1 && self.sources().all(|source| source.lanes == 1);
        let alike = self.sources().all(|source| source.lanes == uop.lanes);
        ensure(uop.lanes > 0, "it has no lanes")?;
        let (types, lanes) = match (uop.op, &uop.arg) {
            (Op::Const, Arg::Const(value)) => (value.dtype() == dtype && !is_void, single),
            (Op::DefineGlobal, Arg::Global(array)) => (array.size_elements >= 0, single),
            (Op::DefineLocal, Arg::Local(array)) => (array.size_elements >= 0, single),
            (Op::Range, Arg::Axis(_)) => (is_number(dtype) && same(0), single),
            (Op::EndRange | Op::Barrier | Op::Sink, Arg::None) => {
                (is_void || uop.op == Op::EndRange, single)
            }
            (Op::Index, Arg::None) => {
                let index = self.source(1).dtype;
                let gate = uop.src.len() < 3 || self.source(2).dtype == DType::Bool;
                (same(0) && matches!(index, DType::I32 | DType::I64) && gate, single)
            }
            (Op::Load, Arg::None | Arg::Int(_)) => {
                (same(0), self.sources().all(|source| source.lanes == 1))
            }
            (Op::Store, Arg::None | Arg::Int(_)) => {
                let is_right = is_void && self.source(0).dtype == self.source(1).dtype;
                (is_right, uop.lanes == 1 && self.source(0).lanes == 1)
            }
            (Op::DefineAcc, Arg::None | Arg::Int(_)) => {
                (same(0), self.source(0).lanes == uop.lanes)
            }
            (Op::Assign, Arg::None) => (self.source(0).dtype == self.source(1).dtype, alike),
            (Op::Vectorize, Arg::None) => {
                let count = uop.src.len();
                let is_right = self.sources().all(|source| source.dtype == dtype);
                let is_single = self.sources().all(|source| source.lanes == 1);
                let is_full = count == 1 || count == usize::from(uop.lanes);
                (is_right, is_single && is_full && uop.lanes != 1)
            }
            (Op::Lane, Arg::Int(lane)) => {
                let lanes = i64::from(self.source(0).lanes);
                (same(0), uop.lanes == 1 && (0..lanes).contains(lane))
            }
            (Op::Wmma, Arg::TensorCore(core)) => {
                let dtypes = [core.operand_dtype, core.operand_dtype, DType::F32];
                let is_right = |matrix: usize| self.source(matrix).dtype == dtypes[matrix];
                let fits =
                    |matrix: usize| usize::from(self.source(matrix).lanes) == core.elements(matrix);
                let range = self.source(3);
                let is_result = dtype == DType::F32 && range.op == Op::Range;
                let is_full = usize::from(uop.lanes) == core.elements(2) && range.lanes == 1;
                ((0..3).all(is_right) && is_result, (0..3).all(fits) && is_full)
            }
            (op, Arg::None) => match elementwise(op) {
                Some((_, typing)) => {
                    let from: Vec<DType> = self.sources().map(|source| source.dtype).collect();
                    (typing.allows(dtype, &from), alike)
                }
                None => (false, false),
            },
            _ => (false, false),
        };
        let is_effect =
            matches!(uop.op, Op::Store | Op::Barrier | Op::Sink | Op::EndRange | Op::Assign);
        ensure(!is_void || is_effect, "a value is of type void")?;
        ensure(types, "types or the arg do not fit")?;
        ensure(lanes, "lanes do not fit")
    }
}

#[cfg(test)]
mod tests {
    use gradiff::graph::tensor_core::TENSOR_CORES;

    use super::*;
    use crate::checks::kernels::products::kernel;

    #[test]
    fn products_of_fragments_that_do_not_fit_are_refused() {
        for core in TENSOR_CORES {
            let kernel = kernel(core);
            assert_eq!(check(&kernel), Ok(()), "{}", core.name);
            let product = kernel.uops.iter().position(|uop| uop.op == Op::Wmma);
            let product = product.expect("a kernel of a product");
            // No two cores have fragments of the same sizes and types.
            for wrong in TENSOR_CORES.iter().filter(|wrong| wrong.name != core.name) {
                let mut kernel = kernel.clone();
                kernel.uops[product].arg = Arg::TensorCore(wrong);
                assert!(check(&kernel).is_err(), "{} as {}", core.name, wrong.name);
            }
            let mut kernel = kernel;
            kernel.uops[product].dtype = core.operand_dtype;
            kernel.uops[product].lanes += u8::from(core.operand_dtype == DType::F32);
            assert!(check(&kernel).is_err(), "{}", core.name);
        }
    }
}
