//! The tensors of a model by name: how they are found, collected, and loaded.

use std::collections::BTreeMap;
use std::fmt::Display;

use gradiff_tensor::{Error, Tensor, realize};

/// A part of a model that has tensors: a tensor, a layer, a collection of parts, a struct of them.
///
/// The names are those of PyTorch and tinygrad: the fields and the numbers of items on the way to
/// the tensor, with dots between them, as `layers.0.weight`. [`state!`](crate::state) implements it
/// for a struct.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a part of a model: it does not implement `State`",
    label = "not a `State`",
    note = "the macro `state!` implements it for a struct: list the fields that have tensors, and \
            leave out numbers and other options"
)]
pub trait State {
    /// Shows the visitor each tensor of this part, in the order of declaration.
    ///
    /// ```
    /// # use gradiff_nn::{Linear, State, Visitor, get_state_dict};
    /// struct Twice(Linear);
    ///
    /// impl State for Twice {
    ///     fn visit(&self, visitor: &mut Visitor<'_>) {
    ///         visitor.field("linear", &self.0);
    ///     }
    /// }
    ///
    /// let tensors = get_state_dict(&Twice(Linear::new(2, 2)?));
    /// assert_eq!(tensors.keys().collect::<Vec<_>>(), ["linear.bias", "linear.weight"]);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    fn visit(&self, visitor: &mut Visitor<'_>);
}

/// The receiver of a model's tensors, which knows the name of the part that it is shown.
pub struct Visitor<'a> {
    name: String,
    receive: &'a mut dyn FnMut(&str, &Tensor),
}

impl Visitor<'_> {
    /// Receives the tensor that the current part is.
    ///
    /// ```
    /// # use gradiff_nn::{State, Visitor, get_parameters};
    /// # use gradiff_tensor::Tensor;
    /// struct Scale(Tensor);
    ///
    /// impl State for Scale {
    ///     fn visit(&self, visitor: &mut Visitor<'_>) {
    ///         visitor.tensor(&self.0);
    ///     }
    /// }
    ///
    /// let scale = Scale(Tensor::from_slice(&[1], &[2.0f32])?);
    /// assert_eq!(get_parameters(&scale).len(), 1);
    /// # Ok::<(), gradiff_tensor::Error>(())
    /// ```
    pub fn tensor(&mut self, tensor: &Tensor) {
        (self.receive)(&self.name, tensor);
    }

    /// Visits a part of the current part: a field by its name, an item by its number.
    ///
    /// See [`State::visit`].
    pub fn field(&mut self, name: impl Display, part: &(impl State + ?Sized)) {
        let length = self.name.len();
        if length != 0 {
            self.name.push('.');
        }
        self.name.push_str(&name.to_string());
        part.visit(self);
        self.name.truncate(length);
    }
}

/// Implements [`State`](crate::State) for a struct of which these fields have tensors.
///
/// ```
/// use gradiff_nn::{Embedding, Linear, get_state_dict, state};
///
/// struct Model {
///     embedding: Embedding,
///     layers: Vec<Linear>,
///     steps: usize,
/// }
/// state!(Model { embedding, layers });
///
/// let model = Model {
///     embedding: Embedding::new(10, 4)?,
///     layers: vec![Linear::new(4, 4)?, Linear::without_bias(4, 2)?],
///     steps: 0,
/// };
/// assert_eq!(
///     get_state_dict(&model).keys().collect::<Vec<_>>(),
///     ["embedding.weight", "layers.0.bias", "layers.0.weight", "layers.1.weight"]
/// );
/// # assert_eq!(model.steps, 0);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
#[macro_export]
macro_rules! state {
    ($model:ty { $($field:ident),* $(,)? }) => {
        impl $crate::State for $model {
            fn visit(&self, visitor: &mut $crate::Visitor<'_>) {
                let _ = &visitor;
                $(visitor.field(stringify!($field), &self.$field);)*
            }
        }
    };
}

impl State for Tensor {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.tensor(self);
    }
}

impl<T: State + ?Sized> State for &T {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<T: State + ?Sized> State for Box<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        (**self).visit(visitor);
    }
}

impl<T: State> State for Option<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        if let Some(part) = self {
            part.visit(visitor);
        }
    }
}

impl<T: State> State for [T] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().enumerate().for_each(|(number, item)| visitor.field(number, item));
    }
}

impl<T: State> State for Vec<T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

impl<T: State, const COUNT: usize> State for [T; COUNT] {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.as_slice().visit(visitor);
    }
}

impl<T: State> State for BTreeMap<String, T> {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.iter().for_each(|(name, part)| visitor.field(name, part));
    }
}

/// Implements [`State`] for tuples, whose items have numbers as those of a list.
macro_rules! tuples {
    ($(($($item:ident $number:tt)*))*) => {$(
        impl<$($item: State),*> State for ($($item,)*) {
            fn visit(&self, visitor: &mut Visitor<'_>) {
                $(visitor.field($number, &self.$number);)*
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

/// Returns the tensors of a model with their names, in the order of declaration.
fn named(model: &(impl State + ?Sized)) -> Vec<(String, Tensor)> {
    let mut tensors = Vec::new();
    let mut receive = |name: &str, tensor: &Tensor| {
        tensors.push((name.to_string(), tensor.clone()));
    };
    model.visit(&mut Visitor { name: String::new(), receive: &mut receive });
    tensors
}

/// Returns the tensors of a model, in the order of declaration: parameters and buffers, a tensor
/// that has two names twice. An optimiser tells them apart.
///
/// ```
/// # use gradiff_nn::{Linear, get_parameters};
/// let layers = [Linear::new(3, 5)?, Linear::new(5, 2)?];
/// let shapes: Vec<_> = get_parameters(&layers).iter().map(|x| x.shape().to_vec()).collect();
/// assert_eq!(shapes, [vec![5, 3], vec![5], vec![2, 5], vec![2]]);
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
pub fn get_parameters(model: &(impl State + ?Sized)) -> Vec<Tensor> {
    named(model).into_iter().map(|(_, tensor)| tensor).collect()
}

/// Returns the tensors of a model by name. They are those of the model, not copies: if the model is
/// trained, they change. Of equal names, which only a [`State`] that is written by hand can give,
/// the last stays.
///
/// ```
/// # use gradiff_nn::{BatchNorm, get_state_dict, load_state_dict};
/// # use gradiff_files::{load_safetensors, save_safetensors};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("model.safetensors");
/// let norm = BatchNorm::new(4)?;
/// save_safetensors(&get_state_dict(&norm), &path, None)?;
/// load_state_dict(&norm, &load_safetensors(&path)?)?;
/// # Ok(())
/// # }
/// ```
pub fn get_state_dict(model: &(impl State + ?Sized)) -> BTreeMap<String, Tensor> {
    named(model).into_iter().collect()
}

/// Replaces the elements of all tensors of a model by those of the tensors with their names. They
/// are computed, and copied to the devices of the model. A tensor of one element may have any
/// number of axes.
///
/// ```
/// # use gradiff_nn::{Linear, get_state_dict, load_state_dict};
/// let (x, y) = (Linear::new(2, 3)?, Linear::new(2, 3)?);
/// load_state_dict(&x, &get_state_dict(&y))?;
/// assert_eq!(x.weight.to_text()?, y.weight.to_text()?);
/// let error = load_state_dict(&x, &get_state_dict(&Linear::without_bias(3, 2)?)).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "load_state_dict: weight is f32[2, 3], and the model has f32[3, 2]; bias is missing"
/// );
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
/// # Errors
/// If a tensor is missing, has another shape or dtype, or is not of the model: the error names all
/// of these. If a tensor cannot be computed. The model is unchanged then.
pub fn load_state_dict(
    model: &(impl State + ?Sized),
    tensors: &BTreeMap<String, Tensor>,
) -> Result<(), Error> {
    let Matched { pairs, unmatched, mut complaints } = matched(model, tensors);
    complaints.extend(unmatched.missing.iter().map(|name| format!("{name} is missing")));
    complaints.extend(unmatched.unknown.iter().map(|name| format!("{name} is not of the model")));
    load("load_state_dict", &pairs, &complaints)
}

/// Does what [`load_state_dict`] does for the names that both have, and returns the others, as
/// PyTorch does with `strict=False`.
///
/// ```
/// # use gradiff_nn::{Linear, get_state_dict, load_state_dict_partial};
/// let (x, y) = (Linear::new(2, 3)?, Linear::without_bias(2, 3)?);
/// let unmatched = load_state_dict_partial(&x, &get_state_dict(&y))?;
/// assert_eq!(x.weight.to_text()?, y.weight.to_text()?);
/// assert_eq!((unmatched.missing, unmatched.unknown), (vec!["bias".to_string()], vec![]));
/// # Ok::<(), gradiff_tensor::Error>(())
/// ```
/// # Errors
/// If a tensor has another shape or dtype than that of the model, or cannot be computed. The model
/// is unchanged then.
pub fn load_state_dict_partial(
    model: &(impl State + ?Sized),
    tensors: &BTreeMap<String, Tensor>,
) -> Result<Unmatched, Error> {
    let Matched { pairs, unmatched, complaints } = matched(model, tensors);
    load("load_state_dict_partial", &pairs, &complaints)?;
    Ok(unmatched)
}

/// Names that [`load_state_dict_partial`] has passed over.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the tensors of these names were not loaded"]
pub struct Unmatched {
    /// Names of tensors of the model for which there was none, in the order of declaration.
    pub missing: Vec<String>,
    /// Names of tensors that are not of the model.
    pub unknown: Vec<String>,
}

/// Tensors of a model with those that have their names.
struct Matched {
    /// Tensors of the model, and those to be loaded.
    pairs: Vec<(Tensor, Tensor)>,
    unmatched: Unmatched,
    /// A sentence for each pair that differs in shape or dtype.
    complaints: Vec<String>,
}

fn matched(model: &(impl State + ?Sized), tensors: &BTreeMap<String, Tensor>) -> Matched {
    let parts = named(model);
    let is_unknown = |name: &&String| parts.iter().all(|(known, _)| known != *name);
    let unknown = tensors.keys().filter(is_unknown).cloned().collect();
    let mut missing = Vec::new();
    let (mut pairs, mut complaints) = (Vec::with_capacity(parts.len()), Vec::new());
    for (name, part) in parts {
        let Some(value) = tensors.get(&name) else {
            missing.push(name);
            continue;
        };
        let is_single = part.size_elements() == 1 && value.size_elements() == 1;
        if part.dtype() != value.dtype() || part.shape() != value.shape() && !is_single {
            complaints.push(format!(
                "{name} is {}{:?}, and the model has {}{:?}",
                value.dtype(),
                value.shape(),
                part.dtype(),
                part.shape()
            ));
            continue;
        }
        pairs.push((part, value.clone()));
    }
    Matched { pairs, unmatched: Unmatched { missing, unknown }, complaints }
}

/// Replaces the elements of the first tensor of each pair by those of the second, unless there are
/// complaints.
fn load(user: &str, pairs: &[(Tensor, Tensor)], complaints: &[String]) -> Result<(), Error> {
    if !complaints.is_empty() {
        return Err(Error::Invalid(format!("{user}: {}", complaints.join("; "))));
    }
    let mut moved = Vec::with_capacity(pairs.len());
    for (part, value) in pairs {
        moved.push((part, value.detach().reshape(part.shape())?.to(part.device()?)?));
    }
    realize(&moved.iter().map(|(_, value)| value).collect::<Vec<_>>())?;
    for (part, value) in &moved {
        part.assign(value)?;
    }
    Ok(())
}
