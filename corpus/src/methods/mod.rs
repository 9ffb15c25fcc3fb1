//! The table of methods: operations of tensors that an engine composes of others.
//!
//! A row holds the name, the number of sources, the arguments and the typing. What a method means
//! is in its documentation here; the oracle defines it in `oracle/src/methods`, an engine composes
//! it. To add a method, add a row and its typing here, its definition there, the generator's draw
//! in `fuzz/gen/src/methods`, and the call in `fuzz/check/src/backends/methods.rs`.
//!
//! An axis may be negative: it then counts from the last one, which is -1.

mod cumulative;
mod movement;
mod reduction;
mod windows;

use crate::{DType, Literal, TensorType};

/// An argument of a method.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// An integer: an axis, a size, a distance.
    Int(i64),
    /// A list of integers.
    Ints(Vec<i64>),
    /// `true` or `false`.
    Flag(bool),
    /// A number, which takes the dtype that the method says.
    Number(Literal),
    /// An element type.
    DType(DType),
}

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgKind {
    /// [`Arg::Int`].
    Int,
    /// [`Arg::Ints`].
    Ints,
    /// [`Arg::Flag`].
    Flag,
    /// [`Arg::Number`].
    Number,
    /// [`Arg::DType`].
    DType,
}

impl Arg {
    /// Returns the kind.
    pub fn kind(&self) -> ArgKind {
        match self {
            Arg::Int(_) => ArgKind::Int,
            Arg::Ints(_) => ArgKind::Ints,
            Arg::Flag(_) => ArgKind::Flag,
            Arg::Number(_) => ArgKind::Number,
            Arg::DType(_) => ArgKind::DType,
        }
    }
}

/// The number of sources of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arity {
    /// Exactly this many, written after the name.
    Exactly(usize),
    /// One or more, written as a list.
    List,
}

/// The arguments of a method, of the kinds that its row tells.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a>(pub &'a [Arg]);

impl<'a> Args<'a> {
    /// Returns argument `number`, an integer.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn int(self, number: usize) -> i64 {
        match self.0.get(number) {
            Some(Arg::Int(value)) => *value,
            found => panic!("argument {number} is {found:?}, not an integer"),
        }
    }

    /// Returns argument `number`, a list of integers.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn ints(self, number: usize) -> &'a [i64] {
        match self.0.get(number) {
            Some(Arg::Ints(values)) => values,
            found => panic!("argument {number} is {found:?}, not a list of integers"),
        }
    }

    /// Returns argument `number`, a flag.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn flag(self, number: usize) -> bool {
        match self.0.get(number) {
            Some(Arg::Flag(value)) => *value,
            found => panic!("argument {number} is {found:?}, not a flag"),
        }
    }

    /// Returns argument `number`, a number.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn number(self, number: usize) -> Literal {
        match self.0.get(number) {
            Some(Arg::Number(value)) => *value,
            found => panic!("argument {number} is {found:?}, not a number"),
        }
    }

    /// Returns argument `number`, an element type.
    ///
    /// # Panics
    /// If it is of another kind, or missing.
    pub fn dtype(self, number: usize) -> DType {
        match self.0.get(number) {
            Some(Arg::DType(value)) => *value,
            found => panic!("argument {number} is {found:?}, not a dtype"),
        }
    }
}

/// Returns the type of a method's result from those of its sources, or what is not allowed.
type Typing = fn(&[&TensorType], Args<'_>) -> Result<TensorType, String>;

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name in the text form, which is that of the engine's method.
    pub name: &'static str,
    /// The number of sources.
    pub arity: Arity,
    /// The arguments, in order: name and kind.
    pub parameters: &'static [(&'static str, ArgKind)],
    typing: Typing,
}

macro_rules! arity {
    (list) => {
        Arity::List
    };
    ($count:literal) => {
        Arity::Exactly($count)
    };
}

/// Defines the enum of methods from a row for each: documentation, variant, name, number of
/// sources, parameters, typing.
macro_rules! methods {
    ($($(#[$doc:meta])* $variant:ident $name:literal $arity:tt
        [$($parameter:ident: $kind:ident),*] $typing:path;)*) => {
        /// A method, a row of the table. New rows must be added at the end, so that encodings
        /// never change.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Method {
            $($(#[$doc])* $variant,)*
        }

        impl Method {
            /// All methods.
            pub const ALL: [Method; [$($name),*].len()] = [$(Method::$variant),*];

            /// Returns the row of the method.
            pub fn row(self) -> &'static Row {
                const ROWS: [Row; Method::ALL.len()] = [$(Row {
                    name: $name,
                    arity: arity!($arity),
                    parameters: &[$((stringify!($parameter), ArgKind::$kind)),*],
                    typing: $typing,
                }),*];
                &ROWS[self as usize]
            }
        }
    };
}

methods! {
    /// The sum of the elements up to each position along an axis, in the accumulator's dtype as
    /// `sum`: `out[.., i, ..] = x[.., 0, ..] + .. + x[.., i, ..]`.
    Cumsum "cumsum" 1 [axis: Int] cumulative::accumulated;
    /// The product of the elements up to each position along an axis, as `cumsum`.
    Cumprod "cumprod" 1 [axis: Int] cumulative::accumulated;
    /// The largest element up to each position along an axis; NaN from the first NaN on.
    Cummax "cummax" 1 [axis: Int] cumulative::kept;
    /// The smallest element along `axes`; NaN if any element is NaN. No axis may be empty.
    Min "amin" 1 [axes: Ints, keepdim: Flag] reduction::extreme;
    /// Rotates the elements along each of `axes` by its shift: the element at `i` goes to
    /// `(i + shift) mod size`.
    Roll "roll" 1 [shifts: Ints, axes: Ints] movement::roll;
    // Products and windows.
    /// The matrix product of [.., m, k] and [.., k, n], in the promoted dtype: sums as `sum`, cast
    /// back. A vector is a row on the left and a column on the right, without its axis of 1.
    Matmul "matmul" 2 [] windows::matmul;
    /// The convolution of images [n, c, ..] with weights [k, c / groups, ..], in the promoted
    /// dtype: the sums over windows of products. The padding, before and after each axis, is
    /// zeros, which are multiplied as other elements.
    Conv2d "conv2d" 2 [groups: Int, stride: Ints, dilation: Ints, padding: Ints] windows::conv;
    /// The transposed convolution of images [n, c, ..] with weights [c, k / groups, ..]: element i
    /// adds its products with the weights j at i * stride + j * dilation - padding before. The
    /// size of an axis is (size - 1) * stride - padding + dilation * (kernel - 1) +
    /// output_padding + 1.
    ConvTranspose2d "conv_transpose2d" 2
        [groups: Int, stride: Ints, dilation: Ints, padding: Ints, output_padding: Ints]
        windows::conv_transpose;
    /// The largest element of each window over the last axes, without the padding; the smallest
    /// value of the dtype if there is no element. With `ceil_mode` also windows that reach beyond
    /// the padding, if they begin before the padding at the end.
    MaxPool2d "max_pool2d" 1
        [kernel: Ints, stride: Ints, dilation: Ints, padding: Ints, ceil_mode: Flag]
        windows::pool;
    /// The mean of each window over the last axes; of floats. The padding counts as zeros if
    /// `count_include_pad`, what `ceil_mode` adds beyond it never counts; the mean of no elements
    /// is NaN. f16 and bf16 are computed in f32.
    AvgPool2d "avg_pool2d" 1
        [kernel: Ints, stride: Ints, dilation: Ints, padding: Ints, ceil_mode: Flag,
         count_include_pad: Flag]
        windows::mean_pool;
}

impl Method {
    /// Returns the method of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.row().name == name)
    }

    /// Returns the type of the result from those of the sources.
    ///
    /// # Errors
    /// Sources or arguments that the method does not take.
    pub(crate) fn typing(self, srcs: &[&TensorType], args: &[Arg]) -> Result<TensorType, String> {
        let row = self.row();
        let fits = match row.arity {
            Arity::Exactly(count) => srcs.len() == count,
            Arity::List => !srcs.is_empty(),
        };
        if !fits {
            return Err(format!(
                "{} of {} sources: it takes {:?}",
                row.name,
                srcs.len(),
                row.arity
            ));
        }
        let kinds = row.parameters.iter().map(|(_, kind)| *kind);
        if !args.iter().map(Arg::kind).eq(kinds) {
            return Err(format!("{} with {args:?}: it takes {:?}", row.name, row.parameters));
        }
        let found = (row.typing)(srcs, Args(args)).map_err(|why| format!("{}: {why}", row.name))?;
        crate::geometry::check_size(&found.shape)?;
        Ok(found)
    }
}

/// Returns the axis that `axis` means in a shape of this rank.
///
/// # Errors
/// There is no such axis.
pub fn axis(axis: i64, rank: usize) -> Result<usize, String> {
    let from_start = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from_start) {
        Ok(found) if found < rank => Ok(found),
        _ => Err(format!("there is no axis {axis} of {rank}")),
    }
}

/// Returns the axes that `axes` mean, in the same order.
///
/// # Errors
/// There is no such axis, or it is named twice.
pub fn axes(axes: &[i64], rank: usize) -> Result<Vec<usize>, String> {
    let found = axes.iter().map(|number| axis(*number, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut sorted = found.clone();
    sorted.sort_unstable();
    match sorted.windows(2).all(|pair| pair[0] < pair[1]) {
        true => Ok(found),
        false => Err(format!("axes {axes:?} of rank {rank} name one twice")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_no_names_of_operations() {
        for method in Method::ALL {
            let name = method.row().name;
            assert_eq!(Method::from_name(name), Some(method));
            let error = crate::parse(&format!("a = {name}\noutput a\n")).unwrap_err();
            assert!(error.message.contains("a value"), "{name}: {error}");
        }
    }

    #[test]
    fn negative_axes_count_from_the_last() {
        assert_eq!(axis(-1, 3), Ok(2));
        assert_eq!(axis(-3, 3), Ok(0));
        assert!(axis(-4, 3).is_err() && axis(3, 3).is_err() && axis(0, 0).is_err());
        assert!(axes(&[0, -2], 2).is_err());
    }
}
