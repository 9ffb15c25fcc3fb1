//! Which statements of a program reach an output.

use gradiff_corpus::{Operand, Program, Statement, ValueId};

/// Calls `visit` for every source of a statement, in order.
pub(crate) fn for_each_source(statement: &Statement, mut visit: impl FnMut(ValueId)) {
    let operands: &[Operand] = match statement {
        Statement::Input { .. } | Statement::Const { .. } | Statement::Arange { .. } => &[],
        Statement::Unary { src, .. }
        | Statement::Cast { src, .. }
        | Statement::Bitcast { src, .. }
        | Statement::Reduce { src, .. }
        | Statement::Reshape { src, .. }
        | Statement::Permute { src, .. }
        | Statement::Expand { src, .. }
        | Statement::Pad { src, .. }
        | Statement::Shrink { src, .. }
        | Statement::Flip { src, .. }
        | Statement::Contiguous { src }
        | Statement::Realize { src }
        | Statement::Detach { src } => return visit(*src),
        Statement::Cat { srcs, .. } => return srcs.iter().copied().for_each(visit),
        Statement::Gather { src, index, .. } => {
            visit(*src);
            return visit(*index);
        }
        Statement::Binary { srcs, .. } => srcs,
        Statement::Where { srcs } | Statement::MulAcc { srcs } => srcs,
    };
    for operand in operands {
        if let Operand::Value(value) = operand {
            visit(*value);
        }
    }
}

/// For each statement, whether an output depends on it. The density of a program is the share of
/// such statements.
///
/// # Panics
/// If the program is not well typed (a source that is not defined before).
pub fn live_statements(program: &Program) -> Vec<bool> {
    let mut live = vec![false; program.statements.len()];
    for output in &program.outputs {
        live[output.0 as usize] = true;
    }
    for (number, statement) in program.statements.iter().enumerate().rev() {
        if live[number] {
            for_each_source(statement, |value| live[value.0 as usize] = true);
        }
    }
    live
}
