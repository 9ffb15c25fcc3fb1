//! Legalisation of a kernel for a language or a device: uops that it does not support become uops
//! that it supports, by the tables of `rewrite`. In: a kernel. Out: a kernel that gives the same
//! values; where an op is undefined it gives any value.

use std::borrow::Cow;

use gradiff_graph::interval::Interval;
use gradiff_graph::{
    Arg, Constant, Global, Instruction, Linear, Op, Sources, UOp, Variable, evaluate,
};
use gradiff_rewrite::{Legal, Options, Trace};

pub use gradiff_rewrite::Legalization;

use crate::bounds::intervals;

/// The legalisations that a language or a device requires.
#[derive(Clone, Copy, Debug)]
pub struct Legalizations {
    /// For single values.
    pub scalars: &'static [Legalization],
    /// For vectors.
    pub vectors: &'static [Legalization],
}

/// Those of C for single values. Arithmetic of vectors is not promoted to `int`.
const ALL: &[Legalization] = &[
    Legalization::Half,
    Legalization::MulAcc,
    Legalization::Recip,
    Legalization::Floor,
    Legalization::Division,
    Legalization::Shift,
    Legalization::Maximum,
    Legalization::Narrow,
];

impl Legalizations {
    /// C, which has instructions for the maximum of vectors.
    pub(crate) const C: Legalizations = Legalizations { scalars: ALL, vectors: ALL.split_at(6).0 };
    /// The other languages of C's family.
    pub const C_LIKE: Legalizations = Legalizations { scalars: ALL, vectors: ALL.split_at(7).0 };
    /// LLVM IR, in which integers of all widths wrap.
    pub(crate) const LLVM: Legalizations = Legalizations::both(ALL.split_at(7).0);
    /// PTX, in which shifts by too large an amount are defined.
    pub(crate) const PTX: Legalizations = Legalizations::both(&[
        Legalization::Half,
        Legalization::MulAcc,
        Legalization::Floor,
        Legalization::Division,
        Legalization::Maximum,
        Legalization::Narrow,
    ]);
    /// WGSL, in which a comparison need not tell NaN, so that its maximum is a helper.
    pub(crate) const WGSL: Legalizations = {
        use Legalization::{Division, Floor, Half, MulAcc, Narrow, Recip, Shift};
        const SCALARS: &[Legalization] = &[Half, MulAcc, Recip, Floor, Division, Shift, Narrow];
        Legalizations { scalars: SCALARS, vectors: SCALARS.split_at(6).0 }
    };

    /// The same ones for single values and for vectors.
    pub const fn both(required: &'static [Legalization]) -> Legalizations {
        Legalizations { scalars: required, vectors: required }
    }
}

/// Returns the kernel without unsupported ops.
pub fn legalize<'a>(linear: &'a Linear, required: &Legalizations) -> Cow<'a, Linear> {
    legalize_traced(linear, required, &mut Trace::default())
}

/// Does what [`legalize`] does, and records the rules that apply.
pub fn legalize_traced<'a>(
    linear: &'a Linear,
    required: &Legalizations,
    trace: &mut Trace,
) -> Cow<'a, Linear> {
    let (scalars, vectors) = (Legal::new(required.scalars), Legal::new(required.vectors));
    let legal_of = |uop: &Instruction| if uop.lanes == 1 { &scalars } else { &vectors };
    let is_concerned = |uop: &Instruction| {
        let operand = uop.src.last().and_then(|last| linear.uops.get(*last as usize));
        let concerns = |operand: &Instruction| legal_of(uop).concerns(uop.op, operand.dtype);
        uop.op.is_elementwise() && operand.is_some_and(concerns)
    };
    if !linear.uops.iter().any(is_concerned) {
        return Cow::Borrowed(linear);
    }
    let bounds = intervals(linear);
    let mut legalizer = Legalizer { uops: Vec::new(), positions: Vec::new(), leaves: Vec::new() };
    for uop in &linear.uops {
        if is_concerned(uop) {
            let node = legalizer.node(linear, uop, &bounds);
            let legal = folded(&legal_of(uop).rewrite(&node, &Options::default(), trace));
            if legal != node {
                let position = legalizer.emit(&legal, uop.lanes);
                legalizer.positions.push(position);
                continue;
            }
        }
        let mut uop = uop.clone();
        for source in &mut uop.src {
            *source = legalizer.positions[*source as usize];
        }
        let position = legalizer.push(uop);
        legalizer.positions.push(position);
    }
    Cow::Owned(Linear { name: linear.name.clone(), uops: legalizer.uops })
}

struct Legalizer {
    uops: Vec<Instruction>,
    /// For each uop of the old kernel, its position in the new one.
    positions: Vec<u32>,
    /// The nodes of the uop being replaced, and the uops that have their values.
    leaves: Vec<(UOp, u32)>,
}

impl Legalizer {
    fn push(&mut self, uop: Instruction) -> u32 {
        self.uops.push(uop);
        self.uops.len() as u32 - 1
    }

    /// The uop as a node over constants, and over leaves that have the bounds of its other sources.
    fn node(&mut self, linear: &Linear, uop: &Instruction, bounds: &[Option<Interval>]) -> UOp {
        self.leaves.clear();
        let mut sources = Vec::with_capacity(uop.src.len());
        for source in &uop.src {
            let slot = *source as usize;
            let value = &linear.uops[slot];
            let (min, max) = bounds[slot].unwrap_or((i128::MIN, i128::MAX));
            let leaf = match (i64::try_from(min), i64::try_from(max)) {
                _ if let Some(constant) = constant_of(linear, value) => UOp::constant(constant),
                (Ok(min), Ok(max)) => {
                    let variable = Variable { name: slot.to_string(), min, max };
                    UOp::new(Op::DefineVar, value.dtype, [], Arg::Var(variable.into()))
                }
                _ => {
                    let global = Global { slot, size_elements: 1 };
                    UOp::new(Op::DefineGlobal, value.dtype, [], Arg::Global(global))
                }
            };
            self.leaves.push((leaf.clone(), self.positions[slot]));
            sources.push(leaf);
        }
        UOp::new(uop.op, uop.dtype, sources, uop.arg.clone())
    }

    /// Appends the uops that compute a node in all lanes, and returns the position of its value.
    fn emit(&mut self, node: &UOp, lanes: u8) -> u32 {
        if let Some((_, position)) = self.leaves.iter().find(|(known, _)| known == node) {
            return *position;
        }
        let src: Vec<u32> = node.src().iter().map(|source| self.emit(source, lanes)).collect();
        let new = |op, src: &[u32], arg, lanes| {
            let uop = Instruction::new(op, node.dtype(), src.iter().copied(), arg);
            Instruction { lanes, ..uop }
        };
        let position = match node.op() {
            Op::Const => {
                let value = self.push(new(Op::Const, &[], node.arg().clone(), 1));
                match lanes {
                    1 => value,
                    _ => self.push(new(Op::Vectorize, &[value], Arg::None, lanes)),
                }
            }
            op => self.push(new(op, &src, node.arg().clone(), lanes)),
        };
        self.leaves.push((node.clone(), position));
        position
    }
}

/// The node with ops of constants evaluated: WGSL refuses constant expressions that overflow.
fn folded(node: &UOp) -> UOp {
    let src: Sources = node.src().iter().map(folded).collect();
    let constants: Option<Vec<Constant>> = src.iter().map(UOp::as_const).collect();
    let value = constants.filter(|constants| !constants.is_empty());
    match value.and_then(|src| evaluate(node.op(), node.dtype(), &src)) {
        Some(value) => UOp::constant(value),
        None => node.with_src(src),
    }
}

/// The value of a uop that is a constant, or has it in all lanes.
fn constant_of(linear: &Linear, uop: &Instruction) -> Option<Constant> {
    match (uop.op, &uop.arg, &uop.src[..]) {
        (Op::Const, Arg::Const(value), _) => Some(*value),
        (Op::Vectorize, _, [lane]) => constant_of(linear, &linear.uops[*lane as usize]),
        _ => None,
    }
}
