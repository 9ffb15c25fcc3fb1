//! Sources of statements, and liveness: the statements that outputs depend on.

use crate::{Operand, Program, Statement, ValueId};

/// Visits the sources of a `&Statement` or a `&mut Statement`.
macro_rules! walk {
    ($statement:expr, $visit:expr) => {{
        let mut visit = $visit;
        match $statement {
            Statement::Input { .. } | Statement::Const { .. } | Statement::Arange { .. } => {}
            Statement::Binary { srcs, .. } => {
                for src in srcs {
                    if let Operand::Value(id) = src {
                        visit(id);
                    }
                }
            }
            Statement::Where { srcs } | Statement::MulAcc { srcs } => {
                for src in srcs {
                    if let Operand::Value(id) = src {
                        visit(id);
                    }
                }
            }
            Statement::Cat { srcs, .. } | Statement::Method { srcs, .. } => {
                for src in srcs {
                    visit(src);
                }
            }
            Statement::Gather { src, index, .. } => {
                visit(src);
                visit(index);
            }
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
            | Statement::Detach { src } => visit(src),
            Statement::Gradient { of, wrt } => {
                visit(of);
                visit(wrt);
            }
        }
    }};
}

impl Statement {
    /// Calls `visit` with each value that the statement uses, in order; literals are not values.
    pub fn for_each_source(&self, mut visit: impl FnMut(ValueId)) {
        walk!(self, |id: &ValueId| visit(*id));
    }

    /// Returns the values that the statement uses, in order; literals are not values.
    pub fn sources(&self) -> Vec<ValueId> {
        let mut sources = Vec::new();
        self.for_each_source(|source| sources.push(source));
        sources
    }

    /// Replaces each value that the statement uses, in order.
    pub fn map_sources(&mut self, mut map: impl FnMut(ValueId) -> ValueId) {
        walk!(self, |id: &mut ValueId| *id = map(*id));
    }
}

impl Program {
    /// Returns, for each statement, whether an output depends on it.
    ///
    /// # Panics
    /// If the program is ill-typed: it uses a value that is not defined before.
    pub fn live_statements(&self) -> Vec<bool> {
        let mut live = vec![false; self.statements.len()];
        for output in &self.outputs {
            live[output.0 as usize] = true;
        }
        for (number, statement) in self.statements.iter().enumerate().rev() {
            if live[number] {
                statement.for_each_source(|value| live[value.0 as usize] = true);
            }
        }
        live
    }

    /// Returns the program without dead statements, on which no output depends.
    ///
    /// # Panics
    /// Under the conditions of [`live_statements`](Program::live_statements).
    pub fn without_dead(&self) -> Program {
        let live = self.live_statements();
        let mut new_id = vec![ValueId(0); self.statements.len()];
        let mut statements = Vec::new();
        for (number, statement) in self.statements.iter().enumerate().filter(|(n, _)| live[*n]) {
            new_id[number] = ValueId(statements.len() as u32);
            let mut statement = statement.clone();
            statement.map_sources(|id| new_id[id.0 as usize]);
            statements.push(statement);
        }
        let outputs = self.outputs.iter().map(|id| new_id[id.0 as usize]).collect();
        Program { statements, outputs }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Case, parse};

    #[test]
    fn without_dead_keeps_live_statements() {
        let text = "a = input f32[2] iota\nb = neg a\nc = input bool[2] iota\nd = sqrt b\n\
                    e = where c a 1.0\noutput e, a\n";
        let expected = "a = input f32[2] iota\nb = input bool[2] iota\nc = where b a 1.0\n\
                    output c, a\n";
        let program = |text| match parse(text).unwrap().case {
            Case::Program(program) => program,
            _ => unreachable!("a program"),
        };
        assert_eq!(program(text).live_statements(), [true, false, true, false, true]);
        assert_eq!(program(text).without_dead(), program(expected));
    }
}
