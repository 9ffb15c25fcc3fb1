//! The name and the parameters of a kernel, read off its uops.

use gradiff_graph::{Arg, DType, Instruction, Linear, Op};

use crate::Error;

/// A parameter of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) slot: usize,
    pub(crate) dtype: DType,
    pub(crate) size_elements: i64,
    pub(crate) is_read: bool,
    pub(crate) is_written: bool,
}

/// The name and parameters of a kernel.
#[derive(Clone, Debug)]
pub(crate) struct Signature {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
}

impl Signature {
    /// Reads the parameters off the uops.
    pub(crate) fn of(linear: &Linear) -> Result<Signature, Error> {
        let malformed = |position: usize, problem: &str| Error::Malformed {
            kernel: linear.name.clone(),
            position,
            problem: problem.to_string(),
        };
        let mut parameters: Vec<Parameter> = linear
            .globals()
            .into_iter()
            .map(|(global, dtype)| Parameter {
                slot: global.slot,
                dtype,
                size_elements: global.size_elements,
                is_read: false,
                is_written: false,
            })
            .collect();
        if parameters.windows(2).any(|pair| pair[0].slot == pair[1].slot) {
            return Err(malformed(0, "a slot is defined twice"));
        }
        for (position, uop) in linear.uops.iter().enumerate() {
            if uop.src.iter().any(|source| *source as usize >= position) {
                return Err(malformed(position, "a source comes after its user"));
            }
            let (min, max) = uop.op.row().arity;
            if uop.src.len() < min || max < uop.src.len() {
                return Err(malformed(position, "wrong number of sources"));
            }
            if uop.op == Op::DefineVar {
                return Err(malformed(position, "integer parameters are not supported yet"));
            }
            if !has_right_lanes(linear, uop) {
                return Err(malformed(position, "its sources have the wrong number of lanes"));
            }
            if uop.op == Op::Index {
                let array = &linear.uops[uop.src[0] as usize];
                let is_array = matches!(array.op, Op::DefineGlobal | Op::DefineLocal);
                if !is_array || array.dtype != uop.dtype {
                    return Err(malformed(position, "an index must be into an array of its dtype"));
                }
            }
            if matches!(uop.op, Op::Load | Op::Store) {
                let index = &linear.uops[uop.src[0] as usize];
                if index.op != Op::Index {
                    return Err(malformed(position, "a load or store must be through an index"));
                }
                let global = match &linear.uops[index.src[0] as usize].arg {
                    Arg::Global(global) => global,
                    Arg::Local(_) => continue,
                    _ => return Err(malformed(position, "an index must be into an array")),
                };
                let parameter = parameters.iter_mut().find(|p| p.slot == global.slot);
                let parameter = parameter.ok_or_else(|| malformed(position, "no such slot"))?;
                parameter.is_read |= uop.op != Op::Store;
                parameter.is_written |= uop.op == Op::Store;
            }
        }
        Ok(Signature { name: linear.name.clone(), parameters })
    }

    /// The number of the parameter that an `Index` is into.
    pub(crate) fn parameter_of(&self, linear: &Linear, index: u32) -> Option<usize> {
        let global = linear.uops[index as usize].src.first()?;
        let Arg::Global(global) = &linear.uops[*global as usize].arg else { return None };
        self.parameters.iter().position(|parameter| parameter.slot == global.slot)
    }
}

/// Returns whether the numbers of lanes of a uop and its sources are consistent.
fn has_right_lanes(linear: &Linear, uop: &Instruction) -> bool {
    let lanes = |source: u32| linear.uops[source as usize].lanes;
    let sources_have = |expected: u8| uop.src.iter().all(|source| lanes(*source) == expected);
    let is_consistent = match (uop.op, &uop.arg) {
        (Op::Vectorize, _) => {
            sources_have(1) && (uop.src.len() == 1 || uop.src.len() == usize::from(uop.lanes))
        }
        (Op::Lane, Arg::Int(lane)) => {
            uop.lanes == 1 && (0..i64::from(lanes(uop.src[0]))).contains(lane)
        }
        (Op::DefineAcc, _) => lanes(uop.src[0]) == uop.lanes,
        (Op::Wmma, Arg::TensorCore(core)) => {
            let expected = [0, 1, 2].map(|matrix| core.elements(matrix) as u8);
            let is_consistent = |(source, expected): (&u32, u8)| lanes(*source) == expected;
            uop.lanes == expected[2] && uop.src.iter().zip(expected).all(is_consistent)
        }
        (Op::Load, _) => sources_have(1),
        (Op::Store, _) => uop.lanes == 1 && lanes(uop.src[0]) == 1,
        (op, _) if op == Op::Assign || op.is_elementwise() => sources_have(uop.lanes),
        _ => uop.lanes == 1 && sources_have(1),
    };
    is_consistent && uop.lanes != 0
}
