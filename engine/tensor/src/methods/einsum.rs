//! Sums of products by labels of axes.

use gradiff_graph::{DType, Op};

use crate::error::invalid;
use crate::promotion::promote;
use crate::{Error, Tensor};

/// The label of an axis. The axes of an ellipsis come first, those of a letter in the order of
/// their letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Label {
    /// An axis that `...` stands for, counted from the last one downwards, which is -1.
    Ellipsis(i64),
    /// A letter.
    Letter(char),
}

/// A formula for operands of known shapes.
struct Contraction {
    /// The labels of the axes of each operand.
    operands: Vec<Vec<Label>>,
    /// The labels of the axes of the result.
    output: Vec<Label>,
    /// The labels that are summed, in the order in which they occur.
    summed: Vec<Label>,
    /// The size of each label.
    sizes: Vec<(Label, i64)>,
}

impl Tensor {
    /// Einstein's sum: `formula` has a letter for each axis of each tensor, with commas between the
    /// tensors, and after `->` the letters of the result, whose elements are the sums, over the
    /// other letters, of the products of the tensors. A letter that a tensor has twice takes its
    /// diagonal. Without `->`, the result has the letters that occur once, in alphabetical order,
    /// capitals first. `...` stands for the axes without letters, which are broadcast, and are the
    /// first ones of the result without `->`; spaces have no meaning. In the promoted dtype, with
    /// sums as [`matmul`](Tensor::matmul), whose kernels these are, too.
    /// # Errors
    /// If the formula cannot be read, has not a term for each tensor or a letter for each axis, has
    /// a letter of two sizes, or gives the result a letter twice or one that no tensor has; if the
    /// dtype is bool, or there are too many elements, as for `matmul`.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
    /// assert_eq!(Tensor::einsum("ij,jk->ik", &[&x, &x])?.to_text()?, "[[7, 10], [15, 22]]");
    /// assert_eq!(Tensor::einsum("ii", &[&x])?.to_text()?, "5");
    /// assert_eq!(Tensor::einsum("ij->ji", &[&x])?.to_text()?, "[[1, 3], [2, 4]]");
    /// assert_eq!(Tensor::einsum("...i,...i", &[&x, &x])?.to_text()?, "[5, 25]");
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn einsum(formula: &str, tensors: &[&Tensor]) -> Result<Tensor, Error> {
        let shapes: Vec<&[i64]> = tensors.iter().map(|tensor| tensor.shape()).collect();
        let contraction = Contraction::of(formula, &shapes)
            .map_err(|why| Error::Invalid(format!("einsum {formula:?} of {shapes:?}: {why}")))?;
        let dtypes = tensors.iter().map(|tensor| tensor.dtype());
        let dtype = dtypes.reduce(promote).expect("there is a term, so there is a tensor");
        if dtype == DType::Bool {
            return invalid("einsum of bool: it takes numbers; cast the tensors first");
        }
        let mut product: Option<Tensor> = None;
        for (tensor, labels) in tensors.iter().zip(&contraction.operands) {
            let aligned = contraction.aligned(&tensor.cast(dtype)?, labels)?;
            product = Some(match product {
                Some(product) => product.combined(Op::Mul, &aligned)?,
                None => aligned,
            });
        }
        let product = product.expect("there is a tensor");
        let first = contraction.output.len();
        let summed: Vec<usize> = (first..product.rank()).collect();
        let shape = product.shape()[..first].to_vec();
        if summed.is_empty() {
            return product.reshape(&shape);
        }
        product.sum_kept(&summed)?.cast(dtype)?.reshape(&shape)
    }
}

impl Contraction {
    /// Reads a formula.
    ///
    /// # Errors
    /// The part of it that cannot be read, or that does not fit the shapes.
    fn of(formula: &str, shapes: &[&[i64]]) -> Result<Contraction, String> {
        let formula: String = formula.chars().filter(|c| !c.is_whitespace()).collect();
        let (left, right) = match formula.split_once("->") {
            Some((left, right)) => (left, Some(right)),
            None => (&formula[..], None),
        };
        let terms: Vec<&str> = left.split(',').collect();
        if terms.len() != shapes.len() {
            return Err(format!("{} terms for {} tensors", terms.len(), shapes.len()));
        }
        let mut operands = Vec::with_capacity(shapes.len());
        let mut sizes: Vec<(Label, i64)> = Vec::new();
        for (term, shape) in terms.into_iter().zip(shapes) {
            let labels = labels(term, |letters| {
                let axes = shape.len().checked_sub(letters);
                axes.ok_or_else(|| format!("{term:?} has {letters} letters for {shape:?}"))
            })?;
            if labels.len() != shape.len() {
                return Err(format!("{term:?} has {} letters for {shape:?}", labels.len()));
            }
            for (label, size) in labels.iter().zip(*shape) {
                join(&mut sizes, *label, *size)?;
            }
            operands.push(labels);
        }
        let output = match right {
            Some(term) => {
                let is_hidden = |(label, _): &&(Label, i64)| matches!(label, Label::Ellipsis(_));
                labels(term, |_| Ok(sizes.iter().filter(is_hidden).count()))?
            }
            None => implicit_output(&operands, &sizes),
        };
        for (number, label) in output.iter().enumerate() {
            if output[..number].contains(label) {
                return Err(format!("the result has {label} twice"));
            }
            if !sizes.iter().any(|(known, _)| known == label) {
                return Err(format!("the result has {label}, which no tensor has"));
            }
        }
        let summed = sizes.iter().map(|(label, _)| *label);
        let summed = summed.filter(|label| !output.contains(label)).collect();
        Ok(Contraction { operands, output, summed, sizes })
    }

    /// The tensor with its axes in the order of those of the result, then of the summed ones, with
    /// axes of size 1 for those that it does not have.
    fn aligned(&self, tensor: &Tensor, labels: &[Label]) -> Result<Tensor, Error> {
        let (mut tensor, mut labels) = (tensor.clone(), labels.to_vec());
        while let Some((first, second)) = repeated(&labels) {
            tensor = tensor.diagonal(0, first as i64, second as i64)?;
            labels.remove(second);
            let label = labels.remove(first);
            labels.push(label);
        }
        let (mut order, mut shape) = (Vec::new(), Vec::with_capacity(self.sizes.len()));
        for label in self.output.iter().chain(&self.summed) {
            let axis = labels.iter().position(|known| known == label);
            shape.push(axis.map_or(1, |axis| tensor.shape()[axis]));
            order.extend(axis);
        }
        let ordered = match order.is_sorted() {
            true => tensor,
            false => tensor.permuted(&order),
        };
        ordered.reshape(&shape)
    }
}

impl std::fmt::Display for Label {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Label::Ellipsis(axis) => write!(f, "axis {axis} of the ellipsis"),
            Label::Letter(letter) => write!(f, "{letter:?}"),
        }
    }
}

/// The labels of a term. `ellipsis` gives the number of axes that `...` stands for beside so many
/// letters.
fn labels(
    term: &str,
    ellipsis: impl Fn(usize) -> Result<usize, String>,
) -> Result<Vec<Label>, String> {
    let parts: Vec<&str> = term.split("...").collect();
    let (before, after) = match parts[..] {
        [before] => (before, None),
        [before, after] => (before, Some(after)),
        _ => return Err(format!("{term:?} has more than one ellipsis")),
    };
    let letters: Vec<char> = before.chars().chain(after.unwrap_or("").chars()).collect();
    if let Some(unknown) = letters.iter().find(|letter| !letter.is_ascii_alphabetic()) {
        return Err(format!("{unknown:?} in {term:?} is no letter"));
    }
    let mut labels: Vec<Label> = letters.iter().map(|letter| Label::Letter(*letter)).collect();
    if after.is_some() {
        let count = ellipsis(letters.len())? as i64;
        let at = before.len();
        labels.splice(at..at, (-count..0).map(Label::Ellipsis));
    }
    Ok(labels)
}

/// Adds the size of a label; the axes of an ellipsis are broadcast.
fn join(sizes: &mut Vec<(Label, i64)>, label: Label, size: i64) -> Result<(), String> {
    let Some((_, known)) = sizes.iter_mut().find(|(known, _)| *known == label) else {
        sizes.push((label, size));
        return Ok(());
    };
    match label {
        _ if *known == size => Ok(()),
        Label::Ellipsis(_) if size == 1 => Ok(()),
        Label::Ellipsis(_) if *known == 1 => {
            *known = size;
            Ok(())
        }
        _ => Err(format!("{label} has the sizes {known} and {size}")),
    }
}

/// The labels of the result of a formula without `->`: those of an ellipsis, and the letters that
/// occur once.
fn implicit_output(operands: &[Vec<Label>], sizes: &[(Label, i64)]) -> Vec<Label> {
    let count = |label: &Label| operands.iter().flatten().filter(|known| *known == label).count();
    let is_kept = |label: &Label| matches!(label, Label::Ellipsis(_)) || count(label) == 1;
    let mut output: Vec<Label> = sizes.iter().map(|(label, _)| *label).filter(is_kept).collect();
    output.sort_unstable();
    output
}

/// The first two axes with the same label.
fn repeated(labels: &[Label]) -> Option<(usize, usize)> {
    labels.iter().enumerate().find_map(|(second, label)| {
        let first = labels[..second].iter().position(|known| known == label)?;
        Some((first, second))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tensor(shape: &[i64]) -> Tensor {
        let count: i64 = shape.iter().product();
        Tensor::from_slice(shape, &(0..count as i32).collect::<Vec<_>>()).unwrap()
    }

    fn check(formula: &str, shapes: &[&[i64]], expected: &str) {
        let tensors: Vec<Tensor> = shapes.iter().map(|shape| tensor(shape)).collect();
        let found = Tensor::einsum(formula, &tensors.iter().collect::<Vec<_>>());
        let found = found.and_then(|found| found.to_text()).map_err(|why| why.to_string());
        match found {
            Ok(text) => assert_eq!(text, expected, "{formula}"),
            Err(text) => assert!(text.contains(expected), "{formula}: {text}"),
        }
    }

    #[test]
    fn matrix_products_are_the_nodes_of_matmul() {
        let ones = |shape: &[i64]| Tensor::full(DType::F32, shape, 1).unwrap().contiguous();
        let (x, y) = (ones(&[2, 3, 4]), ones(&[2, 4, 5]));
        let found = Tensor::einsum("bij,bjk->bik", &[&x, &y]).unwrap();
        assert_eq!(found.uop(), x.matmul(&y).unwrap().uop());
    }

    #[test]
    fn formulas_without_arrow_keep_letters_that_occur_once() {
        check("ba", &[&[2, 2]], "[[0, 2], [1, 3]]");
        check("aB", &[&[2, 2]], "[[0, 2], [1, 3]]");
        check(" i j , j ", &[&[2, 2], &[2]], "[1, 3]");
        check("i,i,i", &[&[3], &[3], &[3]], "9");
        check("", &[&[]], "0");
    }

    #[test]
    fn ellipses_are_broadcast_from_the_last_axis() {
        check(
            "...ij,...jk->...ik",
            &[&[2, 1, 1, 2], &[2, 2, 1]],
            "[[[[1]], [[3]]], [[[3]], [[13]]]]",
        );
        check("i...->...", &[&[2, 3]], "[3, 5, 7]");
        check("...", &[&[2]], "[0, 1]");
        check("...i->i", &[&[2, 2]], "[2, 4]");
        check("a...b->b...a", &[&[1, 2, 2]], "[[[0], [2]], [[1], [3]]]");
        check("...,...->...", &[&[2], &[3]], "axis -1 of the ellipsis has the sizes 2 and 3");
    }

    #[test]
    fn repeated_letters_take_diagonals() {
        check("iii->i", &[&[2, 2, 2]], "[0, 7]");
        check("iijj->ij", &[&[2, 2, 1, 1]], "[[0], [3]]");
        check("iji->j", &[&[2, 2, 2]], "[5, 9]");
    }

    #[test]
    fn errors_say_which_label_and_which_shapes() {
        let square: &[i64] = &[2, 2];
        check("ij,jk->ik", &[square], "2 terms for 1 tensors");
        check("ij->ik", &[square], "the result has 'k', which no tensor has");
        check("ij->ii", &[square], "the result has 'i' twice");
        check("i->i", &[square], "\"i\" has 1 letters for [2, 2]");
        check("ijk...->i", &[square], "\"ijk...\" has 3 letters for [2, 2]");
        check("ij,jk", &[&[2, 3], &[4, 5]], "of [[2, 3], [4, 5]]: 'j' has the sizes 3 and 4");
        check("i1->i", &[square], "'1' in \"i1\" is no letter");
        check("i.j->i", &[square], "'.' in \"i.j\" is no letter");
        check("......->", &[square], "more than one ellipsis");
        check("ij->i->j", &[square], "'-' in \"i->j\" is no letter");
        let mask = Tensor::full(DType::Bool, &[2], true).unwrap();
        let error = Tensor::einsum("i", &[&mask]).unwrap_err().to_string();
        assert!(error.contains("einsum of bool"), "{error}");
        assert!(Tensor::einsum("", &[]).is_err());
    }
}
