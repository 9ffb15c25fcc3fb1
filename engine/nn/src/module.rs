//! Modules: parts of a model that make a tensor of a tensor, and sequences of them.

use gradiff_tensor::{Error, Tensor};

use crate::{State, Visitor};

/// A part of a model that makes a tensor of a tensor.
///
/// Tuples of up to 8 modules, lists and vectors of modules are modules: each gets the result of the
/// one before. For more of different types, there are tuples of tuples and `Vec<Box<dyn Module>>`.
///
/// ```
/// # use gradiff_nn::{Function, Linear, Module, get_state_dict};
/// # use gradiff_tensor::Tensor;
/// let model = (Linear::new(2, 8)?, Function(Tensor::relu), Linear::new(8, 3)?);
/// let y = model.forward(&Tensor::from_slice(&[1, 2], &[1.0f32, 2.0])?)?;
/// assert_eq!(y.shape(), [1, 3]);
/// assert!(get_state_dict(&model).contains_key("2.weight"));
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "not a `Module`",
    note = "tuples of up to 8 modules are modules; for more, use tuples of tuples or \
            `Vec<Box<dyn Module>>`",
    note = "a function of a tensor is a module as `Function(f)`; a struct implements `Module` by \
            hand, and `State` by the macro `state!`"
)]
pub trait Module: State {
    /// Returns the output for this input.
    /// # Errors
    /// If the module does not take the shape or dtype.
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error>;
}

/// A function without tensors of its own, as a module.
///
/// ```
/// # use gradiff_nn::{Function, Module};
/// # use gradiff_tensor::{Pool, Tensor};
/// let pool = Function(|x| x.max_pool2d(&Pool::new(2)));
/// let x = Tensor::from_slice(&[2, 2], &[1, 2, 3, 4])?;
/// assert_eq!(pool.forward(&x)?.to_text()?, "[[4]]");
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Function<F: Fn(&Tensor) -> Result<Tensor, Error>>(pub F);

impl<F: Fn(&Tensor) -> Result<Tensor, Error>> State for Function<F> {
    fn visit(&self, _: &mut Visitor<'_>) {}
}

impl<F: Fn(&Tensor) -> Result<Tensor, Error>> Module for Function<F> {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.0(x)
    }
}

impl<T: Module + ?Sized> Module for &T {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        (**self).forward(x)
    }
}

impl<T: Module + ?Sized> Module for Box<T> {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        (**self).forward(x)
    }
}

impl<T: Module> Module for [T] {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.iter().try_fold(x.clone(), |x, module| module.forward(&x))
    }
}

impl<T: Module> Module for Vec<T> {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.as_slice().forward(x)
    }
}

impl<T: Module, const COUNT: usize> Module for [T; COUNT] {
    fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
        self.as_slice().forward(x)
    }
}

/// Implements [`Module`] for tuples.
macro_rules! tuples {
    ($(($($item:ident $number:tt)*))*) => {$(
        impl<$($item: Module),*> Module for ($($item,)*) {
            fn forward(&self, x: &Tensor) -> Result<Tensor, Error> {
                let x = x.clone();
                $(let x = self.$number.forward(&x)?;)*
                Ok(x)
            }
        }
    )*};
}

tuples! {
    (A 0)
    (A 0 B 1)
    (A 0 B 1 C 2)
    (A 0 B 1 C 2 D 3)
    (A 0 B 1 C 2 D 3 E 4)
    (A 0 B 1 C 2 D 3 E 4 F 5)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6)
    (A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7)
}
