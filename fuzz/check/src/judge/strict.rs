//! Check of strict mode: whether a backend keeps its promise.
//!
//! Strict mode applies only rules that keep every bit, or define a result that was undefined. Each
//! op of the tensor graph is then evaluated once for each element and rounded to its type: f32
//! and f64 by IEEE 754, f16 and bf16 in f32 first. Every product is rounded before it is added, and
//! the order of reductions of floats is fixed: they start from their identity and take the elements
//! in row-major order; that of one element is this element, and of equal maxima the first stays.
//! So a program's results are the same bits on every device, under every optimisation, except for
//!
//! * the payload and sign of a NaN,
//! * undefined results (a division by 0, a cast out of range),
//! * results that depend on exp2, log2, sin or pow, whose accuracy depends on the device, or on
//!   mulacc of floats, whose product may be rounded or not: the elements that do, not all.
//!
//! The reference is the whole tensor graph, evaluated node by node, before anything is scheduled.

use std::collections::HashMap;

use gradiff::UOp;
use gradiff::graph::{Arg, Buffer, Constant, Dims, Linear, Op};
use gradiff_corpus::{Array, Program};
use gradiff_eval::Elements;

use crate::models::stages;

/// Part of the report of a product that is added without being rounded.
pub(crate) const UNROUNDED: &str = "in strict mode a product is added without being rounded";

/// Returns whether more than one result of a node is right.
fn is_free(node: &UOp) -> bool {
    let is_function = matches!(node.op(), Op::Exp2 | Op::Log2 | Op::Sin | Op::Pow);
    is_function || node.op() == Op::MulAcc && node.dtype().is_float()
}

/// Checks that each product of a kernel is rounded, if its tree leaves no choice.
///
/// # Errors
/// A product that is added without being rounded.
pub(crate) fn check(tree: &UOp, kernel: &Linear) -> Result<(), String> {
    if tree.toposort().iter().any(is_free) {
        return Ok(());
    }
    let is_contracted = |op, is_float| op == Op::MulAcc && is_float || op == Op::Wmma;
    let contracted = kernel.uops.iter().position(|uop| is_contracted(uop.op, uop.dtype.is_float()));
    contracted.map_or(Ok(()), |position| {
        let op = kernel.uops[position].op;
        Err(format!("kernel {}, uop {position} ({op}): {UNROUNDED}", kernel.name))
    })
}

/// The outputs of a program in strict mode, whose elements are `None` where they may differ from
/// device to device.
#[derive(Debug)]
pub(crate) struct Reference(Vec<Elements>);

/// Returns the output with a buffer that nobody has written in place of each node of which more
/// than one result is right: its elements are undefined, and so is what depends on them.
fn without_free(output: &UOp) -> UOp {
    let mut known: HashMap<&UOp, UOp> = HashMap::new();
    for node in output.value_order() {
        let found = match node.shape() {
            Some(shape) if is_free(node) => {
                let buffer = Buffer::new(node.dtype(), shape.iter().product());
                let buffer = UOp::new(Op::Buffer, node.dtype(), [], Arg::Buffer(buffer));
                let sizes = Arg::Dims(Dims::from_slice(shape));
                UOp::new(Op::Reshape, node.dtype(), [buffer], sizes)
            }
            _ => {
                let source = |source: &UOp| known.get(source).unwrap_or(source).clone();
                node.with_src(node.src().iter().map(source))
            }
        };
        known.insert(node, found);
    }
    known[output].clone()
}

impl Reference {
    /// Evaluates the tensor graph; `None` if the engine refuses the program, which other checks
    /// report.
    pub(crate) fn new(program: &Program) -> Option<Reference> {
        let outputs = crate::catch(|| stages::graph(program)).and_then(|outputs| outputs).ok()?;
        let roots: Vec<UOp> = outputs.iter().map(|output| without_free(&output.uop())).collect();
        let values = crate::catch(|| gradiff_eval::graph::evaluate(&roots, &mut stages::contents));
        Some(Reference(values.and_then(|values| values).ok()?))
    }

    /// The elements of an output.
    pub(crate) fn elements(&self, output: usize) -> &[Option<Constant>] {
        self.0.get(output).map_or(&[], Vec::as_slice)
    }

    /// Describes the first element whose bits differ from the reference.
    pub(crate) fn difference(&self, values: &[Array]) -> Option<String> {
        for (number, (expected, value)) in self.0.iter().zip(values).enumerate() {
            for (index, (expected, found)) in expected.iter().zip(&value.bits).enumerate() {
                let Some(expected) = expected else { continue };
                let found = Constant::from_bits(expected.dtype(), *found);
                let is_nan = |value: Constant| value.to_float().is_some_and(f64::is_nan);
                if *expected != found && !(is_nan(*expected) && is_nan(found)) {
                    return Some(format!(
                        "element {index} of output {number} is {found:?} (bits {:#x}), but strict \
                         mode gives {expected:?} (bits {:#x})",
                        found.bits(),
                        expected.bits()
                    ));
                }
            }
        }
        None
    }
}

/// The references of programs, by position, each computed when it is first needed.
#[derive(Default)]
pub(crate) struct References(HashMap<usize, Option<Reference>>);

impl References {
    /// The reference of the program at a position.
    pub(crate) fn of(&mut self, position: usize, program: &Program) -> Option<&Reference> {
        self.0.entry(position).or_insert_with(|| Reference::new(program)).as_ref()
    }
}

#[cfg(test)]
mod tests {
    use gradiff::graph::text::{parse_linears, parse_text};
    use gradiff_corpus::{Case, parse};

    use super::*;

    fn program(text: &str) -> Program {
        match parse(text).expect("it parses").case {
            Case::Program(program) => program,
            _ => panic!("it is a program"),
        }
    }

    fn array(dtype: gradiff_corpus::DType, bits: &[u64]) -> Array {
        Array { dtype, shape: vec![bits.len()], bits: bits.to_vec() }
    }

    #[test]
    fn a_changed_bit_is_a_difference_but_another_nan_is_not() {
        let text = "a = input f32[3] [1.5, nan, -0.0]\nb = add a a\noutput b\n";
        let reference = Reference::new(&program(text)).expect("the engine takes it");
        let right = [0x4040_0000, 0x7fc0_0001, 0x8000_0000];
        let with = |index: usize, bits: u64| {
            let mut values = right;
            values[index] = bits;
            reference.difference(&[array(gradiff_corpus::DType::F32, &values)])
        };
        assert_eq!(with(1, 0xffc0_0000), None);
        assert_eq!(with(0, right[0]), None);
        let found = with(0, 0x4040_0001).expect("an ulp is a difference");
        assert!(found.starts_with("element 0 of output 0 is f32:3.0000002"), "{found}");
        assert!(with(2, 0).is_some(), "so is the sign of a zero");
        assert!(with(1, 0).is_some(), "so is a number for a NaN");
    }

    #[test]
    fn sums_are_taken_in_order_and_functions_are_free() {
        // (2^24 + 1) + 1 is 2^24 in f32, 1 + (1 + 2^24) is not.
        let sum = |values: &str| {
            let text = format!("a = input f32[3] {values}\nb = sum a axes=[0]\noutput b\n");
            let reference = Reference::new(&program(&text)).expect("the engine takes it");
            let bits = u64::from(16_777_216f32.to_bits());
            reference.difference(&[array(gradiff_corpus::DType::F32, &[bits])])
        };
        assert_eq!(sum("[16777216.0, 1.0, 1.0]"), None);
        assert!(sum("[1.0, 1.0, 16777216.0]").is_some());
        let zero = program("a = input f32[1] [-0.0]\nb = sum a axes=[0]\noutput b\n");
        let zero = Reference::new(&zero).expect("the engine takes it");
        let zero = |bits| zero.difference(&[array(gradiff_corpus::DType::F32, &[bits])]);
        assert!(zero(0x8000_0000).is_none() && zero(0).is_some());
        let text = "a = input f32[1] [0.3]\nb = exp2 a\nc = mulacc a a a\noutput b\noutput c\n";
        let reference = Reference::new(&program(text)).expect("the engine takes it");
        let wrong = array(gradiff_corpus::DType::F32, &[0]);
        assert_eq!(reference.difference(&[wrong.clone(), wrong]), None);
        // Only the elements that depend on a function are free.
        let text = "a = input f32[2] [0.3, 1.5]\nb = exp2 a\nc = add a a\nd = cat [b,c] axis=0\n\
                    e = cmplt a 1.0\nf = where e b c\noutput d, f\n";
        let reference = Reference::new(&program(text)).expect("the engine takes it");
        let (twice, thrice) = (0x3f19_999a, 0x4040_0000);
        let with = |last: u64, chosen: u64| {
            let found = |bits: &[u64]| array(gradiff_corpus::DType::F32, bits);
            reference.difference(&[found(&[7, 7, twice, last]), found(&[7, chosen])])
        };
        assert_eq!(with(thrice, thrice), None);
        assert!(with(thrice + 1, thrice).is_some() && with(thrice, thrice + 1).is_some());
    }

    #[test]
    fn product_that_is_not_rounded_is_refused_unless_the_tree_has_it() {
        let kernel = "kernel E\n0 const f32 [] 2\n1 mulacc f32 [0, 0, 0]\n";
        let kernel = parse_linears(kernel).expect("it parses").remove(0);
        let tree =
            |last: &str| parse_text(&format!("%0 = const f32 2\n{last}")).expect("it parses");
        let found = check(&tree("%1 = mul f32 %0 %0\n%2 = add f32 %1 %0"), &kernel);
        assert!(found.is_err_and(|found| found.contains("uop 1 (mulacc)")));
        assert_eq!(check(&tree("%1 = mulacc f32 %0 %0 %0"), &kernel), Ok(()));
        assert_eq!(check(&tree("%1 = exp2 f32 %0"), &kernel), Ok(()));
        let ints = "kernel E\n0 const i32 [] 2\n1 mulacc i32 [0, 0, 0]\n";
        let ints = parse_linears(ints).expect("it parses").remove(0);
        assert_eq!(check(&tree("%1 = mul f32 %0 %0"), &ints), Ok(()));
    }
}
