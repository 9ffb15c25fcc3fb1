//! Counts of the methods that programs call, a coverage measure: by dtype of the first source, or
//! of the result if there is none. A dtype that a method takes but that no program had is a hole.

use std::collections::{BTreeMap, BTreeSet};

use gradiff_corpus::{Arg, DType, Method, Program, Statement, TensorType, ValueId, statement_type};

/// Counts of calls in a set of programs.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    counts: BTreeMap<(Method, DType), u64>,
    /// The dtypes that some call could have had.
    possible: BTreeSet<(Method, DType)>,
}

impl Calls {
    /// Adds the calls of a well-typed program.
    ///
    /// # Panics
    /// If the program is ill-typed.
    pub fn add(&mut self, program: &Program) {
        let types = program.typing().expect("the program is well typed");
        for (statement, result) in program.statements.iter().zip(&types) {
            let Statement::Method { method, srcs, .. } = statement else { continue };
            let dtype = srcs.first().map_or(result.dtype, |src| types[src.0 as usize].dtype);
            *self.counts.entry((*method, dtype)).or_default() += 1;
            for candidate in DType::ALL {
                if !self.possible.contains(&(*method, candidate))
                    && takes(statement, &types, dtype, candidate)
                {
                    self.possible.insert((*method, candidate));
                }
            }
        }
    }

    /// Returns how often the method was called for the dtype.
    pub fn count(&self, method: Method, dtype: DType) -> u64 {
        self.counts.get(&(method, dtype)).copied().unwrap_or(0)
    }

    /// Returns whether the method takes the dtype, as far as the programs show.
    pub fn is_possible(&self, method: Method, dtype: DType) -> bool {
        self.possible.contains(&(method, dtype))
    }

    /// Returns the methods that were never called, with no dtype, and the dtypes that a method
    /// takes but was never called for.
    pub fn holes(&self) -> Vec<(Method, Option<DType>)> {
        let is_called = |method: &Method| self.counts.keys().any(|(called, _)| called == method);
        let never = Method::ALL.into_iter().filter(|method| !is_called(method));
        let missing = self.possible.iter().filter(|key| !self.counts.contains_key(*key));
        let missing = missing.map(|(method, dtype)| (*method, Some(*dtype)));
        never.map(|method| (method, None)).chain(missing).collect()
    }
}

/// Returns whether the call would be well typed if all its sources and dtype arguments that have
/// the dtype `from` had the dtype `to`.
fn takes(statement: &Statement, types: &[TensorType], from: DType, to: DType) -> bool {
    let change = |dtype: DType| if dtype == from { to } else { dtype };
    let Statement::Method { method, srcs, args } = statement else { return false };
    let source = |src: &ValueId| {
        let TensorType { dtype, shape } = &types[src.0 as usize];
        TensorType { dtype: change(*dtype), shape: shape.clone() }
    };
    let sources: Vec<TensorType> = srcs.iter().map(source).collect();
    let args = args.iter().map(|arg| match arg {
        Arg::DType(dtype) => Arg::DType(change(*dtype)),
        arg => arg.clone(),
    });
    let srcs = (0..srcs.len() as u32).map(ValueId).collect();
    let statement = Statement::Method { method: *method, srcs, args: args.collect() };
    statement_type(&statement, &sources).is_ok()
}
