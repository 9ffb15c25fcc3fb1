//! Functions as flat lists of steps.

use naga::{Barrier, Block, Expression, Function, Handle, Statement};

/// A step of a function.
#[derive(Debug)]
pub(super) enum Step {
    /// Evaluates these expressions.
    Emit(Vec<Handle<Expression>>),
    Store {
        pointer: Handle<Expression>,
        value: Handle<Expression>,
    },
    Jump(usize),
    /// Jumps to the step of this number unless the condition is true.
    JumpUnless(Handle<Expression>, usize),
    /// Waits for all threads of the group, and orders their accesses to this memory.
    Barrier(Barrier),
    Call {
        function: Handle<Function>,
        arguments: Vec<Handle<Expression>>,
        result: Option<Handle<Expression>>,
    },
    Return(Option<Handle<Expression>>),
}

/// A target that is not known yet.
const UNKNOWN: usize = usize::MAX;

/// The jumps of a loop whose targets are not known yet: to its continuing block and to its end.
#[derive(Default)]
struct Waiting {
    continues: Vec<usize>,
    breaks: Vec<usize>,
}

#[derive(Default)]
struct Flat {
    steps: Vec<Step>,
    loops: Vec<Waiting>,
}

/// The steps of a function.
///
/// # Errors
/// A statement outside the subset.
pub(super) fn flatten(function: &Function) -> Result<Vec<Step>, String> {
    let mut flat = Flat::default();
    flat.block(&function.body)?;
    flat.steps.push(Step::Return(None));
    Ok(flat.steps)
}

impl Flat {
    fn block(&mut self, block: &Block) -> Result<(), String> {
        block.iter().try_for_each(|statement| self.statement(statement))
    }

    /// Emits a jump whose target is set later.
    fn jump(&mut self) -> usize {
        self.steps.push(Step::Jump(UNKNOWN));
        self.steps.len() - 1
    }

    /// Sets the target of a jump to the next step.
    fn land(&mut self, jump: usize) {
        let next = self.steps.len();
        match &mut self.steps[jump] {
            Step::Jump(to) | Step::JumpUnless(_, to) => *to = next,
            _ => {}
        }
    }

    fn statement(&mut self, statement: &Statement) -> Result<(), String> {
        match statement {
            Statement::Emit(range) => self.steps.push(Step::Emit(range.clone().collect())),
            Statement::Block(block) => self.block(block)?,
            Statement::If { condition, accept, reject } => {
                self.steps.push(Step::JumpUnless(*condition, UNKNOWN));
                let over = self.steps.len() - 1;
                self.block(accept)?;
                let end = self.jump();
                self.land(over);
                self.block(reject)?;
                self.land(end);
            }
            Statement::Loop { body, continuing, break_if } => {
                let start = self.steps.len();
                self.loops.push(Waiting::default());
                self.block(body)?;
                let waiting =
                    self.loops.last_mut().map(|jumps| std::mem::take(&mut jumps.continues));
                waiting.unwrap_or_default().into_iter().for_each(|jump| self.land(jump));
                self.block(continuing)?;
                match break_if {
                    // Repeats the loop unless the condition is true.
                    Some(condition) => self.steps.push(Step::JumpUnless(*condition, start)),
                    None => self.steps.push(Step::Jump(start)),
                }
                let waiting = self.loops.pop().unwrap_or_default();
                waiting.breaks.into_iter().for_each(|jump| self.land(jump));
            }
            Statement::Break => {
                let jump = self.jump();
                self.loops.last_mut().ok_or("a break outside of loops")?.breaks.push(jump);
            }
            Statement::Continue => {
                let jump = self.jump();
                self.loops.last_mut().ok_or("a continue outside of loops")?.continues.push(jump);
            }
            Statement::Return { value } => self.steps.push(Step::Return(*value)),
            Statement::ControlBarrier(memory)
                if [Barrier::WORK_GROUP, Barrier::STORAGE].contains(memory) =>
            {
                self.steps.push(Step::Barrier(*memory));
            }
            Statement::Store { pointer, value } => {
                self.steps.push(Step::Store { pointer: *pointer, value: *value });
            }
            Statement::Call { function, arguments, result } => self.steps.push(Step::Call {
                function: *function,
                arguments: arguments.clone(),
                result: *result,
            }),
            statement => return Err(format!("the statement {statement:?}")),
        }
        Ok(())
    }
}
