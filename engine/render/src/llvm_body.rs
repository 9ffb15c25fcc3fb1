//! The instructions of a function in LLVM IR.

use crate::code::{Code, Piece};

/// A sequence of instructions, with the names of their results and the current basic block.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) code: Code,
    count: usize,
    /// The label of the block being written; empty for the first.
    block: String,
}

impl Body {
    pub(crate) fn line(&mut self, instruction: &(impl Piece + ?Sized)) {
        self.code.text.push_str("  ");
        self.code.write(instruction);
        self.code.text.push('\n');
    }

    /// Appends an instruction and returns the name of its result.
    pub(crate) fn value(&mut self, instruction: &(impl Piece + ?Sized)) -> String {
        let name = format!("%t{}", self.count);
        self.count += 1;
        self.code.text.push_str(&format!("  {name} = "));
        self.code.write(instruction);
        self.code.text.push('\n');
        name
    }

    pub(crate) fn label(&mut self, name: &str) {
        self.code.text.push_str(&format!("{name}:\n"));
        self.block = name.to_string();
    }

    pub(crate) fn block(&self) -> &str {
        if self.block.is_empty() { "entry" } else { &self.block }
    }
}
