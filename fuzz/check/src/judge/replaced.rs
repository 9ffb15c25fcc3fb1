//! Programs with values in place of statements, for failures whose cause is known: what else is
//! wrong in such a program fails without the operations at fault.
//!
//! In: a program, and the operations. Out: the program whose statements of these operations are
//! inputs that have the elements which the oracle expects. Runs nothing.

use gradiff_corpus::{Fill, Program, Statement, ValueId};
use gradiff_oracle::{Element, Expected};

use crate::judge::agree::{expectation, nearest};

/// Maximum number of elements of a statement that becomes an input: they are written out.
const ELEMENTS_MAX: usize = 4096;

/// Returns the program with an input in place of each statement that `is_replaced` chooses and
/// whose elements the oracle specifies, unless they are too many. `None` if there is none, or the
/// oracle refuses the program.
pub fn with_values(program: &Program, is_replaced: &dyn Fn(&Statement) -> bool) -> Option<Program> {
    let types = program.typing().ok()?;
    let numbers: Vec<usize> =
        (0..types.len()).filter(|number| is_replaced(&program.statements[*number])).collect();
    let outputs = numbers.iter().map(|number| ValueId(*number as u32)).collect();
    let evaluated = Program { outputs, ..program.clone() }.without_dead();
    let expected = expectation(&evaluated).ok()?;
    let mut replaced = program.clone();
    let mut is_changed = false;
    for (number, expected) in numbers.into_iter().zip(&expected) {
        let (dtype, shape) = (types[number].dtype, types[number].shape.clone());
        if ELEMENTS_MAX < types[number].count() {
            continue;
        }
        let Some(bits) = values(expected) else { continue };
        replaced.statements[number] = Statement::Input { dtype, shape, fill: Fill::Explicit(bits) };
        is_changed = true;
    }
    is_changed.then(|| replaced.without_dead())
}

/// An element of each set that the oracle gives; `None` if one of them is unspecified.
pub(crate) fn values(expected: &Expected) -> Option<Vec<u64>> {
    let value = |element| match element {
        Element::Exact(bits) => Some(bits),
        Element::Zero => Some(0),
        Element::Nan => Some(nearest(expected.dtype, f64::NAN)),
        Element::Ball { center, .. } => Some(nearest(expected.dtype, center)),
        Element::Unspecified(_) => None,
    };
    expected.elements().map(value).collect()
}

#[cfg(test)]
mod tests {
    use gradiff_corpus::{Case, parse};

    use super::*;

    #[test]
    fn statements_become_inputs_with_their_values() {
        let program = |text: &str| match parse(text).expect("it parses").case {
            Case::Program(program) => program,
            _ => panic!("{text}"),
        };
        let without = |text: &str, op: &str| {
            let is_replaced = |statement: &Statement| gradiff_corpus::name(statement) == op;
            with_values(&program(text), &is_replaced)
        };
        let text = "a = input f32[2] [4.0, 9.0]\nb = sqrt a\nc = neg b\nd = sqrt b\noutput c, d\n";
        let rest = "a = input f32[2] [2.0, 3.0]\nb = neg a\n\
                    c = input f32[2] [1.4142135, 1.7320508]\noutput b, c\n";
        assert_eq!(without(text, "sqrt"), Some(program(rest)));
        assert_eq!(without(text, "add"), None);
        // Nothing is known of the quotient.
        let text = "a = input i32[1] [1]\nb = cdiv a 0\noutput b\n";
        assert_eq!(without(text, "cdiv"), None);
    }
}
