//! Axes that are split, permuted and merged as a formula says.

use crate::error::invalid;
use crate::{Error, Tensor};

/// A part of an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Named(String),
    /// This axis of those that `...` stands for.
    Ellipsis(usize),
}

/// The parts of each axis.
type Axes = Vec<Vec<Part>>;

impl Tensor {
    /// The elements with axes that are split, permuted and merged: `formula` has a name for each
    /// axis, or parentheses around the names of its parts, and after `->` the same names in the
    /// order and with the parentheses of the result; `1` and `()` are axes of size 1, `...` stands
    /// for axes without names. `sizes` has the sizes of names that do not follow from the shape.
    /// # Errors
    /// If the formula cannot be read, does not fit the shape, has a name twice on a side, or on one
    /// side alone; if a size does not follow, or does not divide an axis.
    ///
    /// ```
    /// # use gradiff_tensor::Tensor;
    /// let x = Tensor::from_slice(&[2, 4], &[1, 2, 3, 4, 5, 6, 7, 8])?;
    /// let found = x.rearrange("b (h w) -> (w b) h", &[("h", 2)])?;
    /// assert_eq!(found.to_text()?, "[[1, 3], [5, 7], [2, 4], [6, 8]]");
    /// assert_eq!(x.rearrange("... c -> c 1 ...", &[])?.shape(), [4, 1, 2]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn rearrange(&self, formula: &str, sizes: &[(&str, i64)]) -> Result<Tensor, Error> {
        let refused = |why: String| invalid(format!("rearrange of {self:?} by {formula:?}: {why}"));
        let (from, to) = match axes_of(formula, self.rank()) {
            Ok(axes) => axes,
            Err(why) => return refused(why),
        };
        let split = match split_sizes(&from, self.shape(), sizes) {
            Ok(split) => split,
            Err(why) => return refused(why),
        };
        let parts: Vec<&Part> = from.iter().flatten().collect();
        let mut order = Vec::with_capacity(parts.len());
        for part in to.iter().flatten() {
            match parts.iter().position(|known| *known == part) {
                Some(at) => order.push(at),
                None => return refused(format!("{part} is only on the right")),
            }
        }
        if let Some(at) = (0..parts.len()).find(|at| !order.contains(at)) {
            return refused(format!("{} is only on the left", parts[at]));
        }
        // Checks the sizes, so that no product of them is too large.
        let moved = self.reshape(&split)?.permuted(&order);
        let mut sizes = moved.shape().iter();
        let shape: Vec<i64> =
            to.iter().map(|group| sizes.by_ref().take(group.len()).product()).collect();
        moved.reshape(&shape)
    }
}

impl std::fmt::Display for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Part::Named(name) => write!(f, "{name}"),
            Part::Ellipsis(_) => write!(f, "`...`"),
        }
    }
}

/// The axes of both sides of a formula, for a tensor of this rank.
fn axes_of(formula: &str, rank: usize) -> Result<(Axes, Axes), String> {
    let Some((left, right)) = formula.split_once("->") else {
        return Err("there is no `->`".to_string());
    };
    let from = side(left, None)?;
    let whole = |group: &Vec<Part>| group[..] == [Part::Ellipsis(0)];
    if from.iter().any(|group| !whole(group) && group.contains(&Part::Ellipsis(0))) {
        return Err("`...` is in parentheses on the left".to_string());
    }
    let has_ellipsis = from.iter().any(whole);
    let named = from.len() - usize::from(has_ellipsis);
    let count = match rank.checked_sub(named) {
        Some(count) if has_ellipsis || count == 0 => count,
        _ => return Err(format!("it has {named} axes on the left")),
    };
    Ok((side(left, Some(count))?, side(right, Some(count))?))
}

/// The axes of a side. An ellipsis is so many axes, or the axis 0 if the count is not known.
fn side(text: &str, ellipsis: Option<usize>) -> Result<Axes, String> {
    let mut axes: Axes = Vec::new();
    let mut group: Option<Vec<Part>> = None;
    let spaced = text.replace('(', " ( ").replace(')', " ) ").replace("...", " ... ");
    for token in spaced.split_whitespace() {
        let is_name = token.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
            && !token.starts_with(|c: char| c.is_ascii_digit());
        let parts = match token {
            "(" if group.is_none() => {
                group = Some(Vec::new());
                continue;
            }
            ")" => match group.take() {
                Some(found) => {
                    axes.push(found);
                    continue;
                }
                None => return Err("a parenthesis is closed that is not open".to_string()),
            },
            "..." => (0..ellipsis.unwrap_or(1)).map(Part::Ellipsis).collect(),
            "1" => Vec::new(),
            name if is_name => vec![Part::Named(name.to_string())],
            token => return Err(format!("{token:?} is not a name")),
        };
        if parts.iter().any(|part| {
            axes.iter().flatten().chain(group.iter().flatten()).any(|known| known == part)
        }) {
            return Err(format!("{token} is twice on a side"));
        }
        match &mut group {
            Some(group) => group.extend(parts),
            None if token == "..." => axes.extend(parts.into_iter().map(|part| vec![part])),
            None => axes.push(parts),
        }
    }
    match group {
        None => Ok(axes),
        Some(_) => Err("a parenthesis is not closed".to_string()),
    }
}

/// The sizes of the parts of axes.
fn split_sizes(axes: &Axes, shape: &[i64], given: &[(&str, i64)]) -> Result<Vec<i64>, String> {
    let is_part = |name: &str| {
        let named = |part: &Part| matches!(part, Part::Named(known) if known == name);
        axes.iter().flatten().any(named)
    };
    if let Some((name, size)) = given.iter().find(|(name, size)| !is_part(name) || *size < 0) {
        return Err(format!("the size {size} of {name}"));
    }
    let mut sizes = Vec::new();
    for (axis, (parts, size)) in axes.iter().zip(shape).enumerate() {
        let known = |part: &Part| match part {
            Part::Named(name) => {
                given.iter().find(|(known, _)| known == name).map(|(_, size)| *size)
            }
            Part::Ellipsis(_) => Some(*size),
        };
        let found: Vec<Option<i64>> = parts.iter().map(known).collect();
        let product =
            found.iter().flatten().try_fold(1i64, |product, size| product.checked_mul(*size));
        let product = product.ok_or_else(|| format!("the sizes of axis {axis} are too large"))?;
        let missing = match found.iter().filter(|size| size.is_none()).count() {
            0 if product == *size => 1,
            1 if product != 0 && size % product == 0 => size / product,
            0 | 1 => {
                return Err(format!("axis {axis} has size {size}, not {product} times another"));
            }
            count => return Err(format!("axis {axis} has {count} parts of unknown size")),
        };
        sizes.extend(found.into_iter().map(|size| size.unwrap_or(missing)));
    }
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use gradiff_graph::DType;

    use super::*;

    #[test]
    fn errors_say_what_does_not_fit() {
        let x = Tensor::zeros(DType::I32, &[2, 6]).expect("a legal shape");
        let error = |formula: &str, sizes: &[(&str, i64)]| match x.rearrange(formula, sizes) {
            Err(error) => error.to_string(),
            Ok(found) => panic!("{formula} gives {found:?}"),
        };
        assert!(error("a b", &[]).ends_with("there is no `->`"));
        assert!(error("a b c -> a b c", &[]).ends_with("it has 3 axes on the left"));
        assert!(error("a -> a", &[]).ends_with("it has 1 axes on the left"));
        assert!(error("a a -> a", &[]).ends_with("a is twice on a side"));
        assert!(error("a b -> a", &[]).ends_with("b is only on the left"));
        assert!(error("a b -> a b c", &[]).ends_with("c is only on the right"));
        assert!(error("a (b c) -> a b c", &[]).ends_with("axis 1 has 2 parts of unknown size"));
        assert!(error("a (b c) -> a b c", &[("b", 4)]).contains("axis 1 has size 6, not 4"));
        assert!(error("a 1 -> a 1", &[]).contains("axis 1 has size 6, not 1"));
        assert!(error("a b -> a b", &[("c", 4)]).ends_with("the size 4 of c"));
        assert!(error("a (b -> a b", &[]).ends_with("a parenthesis is not closed"));
        assert!(error("a b) -> a b", &[]).contains("not open"));
        assert!(error("a ((b)) -> a b", &[]).ends_with("\"(\" is not a name"));
        assert!(error("(a ...) -> a ...", &[]).contains("in parentheses on the left"));
        assert!(error("a 2 -> a 2", &[]).ends_with("\"2\" is not a name"));
        let empty = Tensor::zeros(DType::I32, &[0]).expect("a legal shape");
        let sizes = [("c", 0), ("a", 1 << 40), ("b", 1 << 40)];
        assert!(empty.rearrange("(c a b) -> c (a b)", &sizes).is_err(), "too many elements");
    }

    #[test]
    fn ellipses_stand_for_any_number_of_axes() {
        let x = Tensor::zeros(DType::I32, &[2, 6]).expect("a legal shape");
        let shape = |formula: &str| x.rearrange(formula, &[]).expect(formula).shape().to_vec();
        assert_eq!(shape("a b ... -> (...) b a"), [1, 6, 2]);
        assert_eq!(shape("... -> (...)"), [12]);
        assert_eq!(shape("a ... -> ... () a"), [6, 1, 2]);
    }
}
