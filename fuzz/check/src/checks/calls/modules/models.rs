//! Models: collections of layers that are modules, names of their tensors, and the loading of
//! tensors by name.

use std::collections::BTreeMap;

use gradiff::nn::{
    Embedding, Function, Linear, Module, RMSNorm, State, Unmatched, Visitor, get_parameters,
    get_state_dict, load_state_dict, load_state_dict_partial, state,
};
use gradiff::{DType, Engine, Error, Tensor};

use super::{Case, SINGLE, affine, agree, data, eighths, numbers, tensor};
use crate::checks::calls::Draw;

/// Layers, functions between them, and their tensors, which are loaded by name. In a list, each
/// layer has the same size.
fn sequence(draw: &mut Draw) -> Result<Case, Error> {
    let [inputs, hidden, outputs, rows] = [(); 4].map(|()| 1 + draw.below(4));
    let kind = draw.below(5);
    let sizes = match kind {
        0 => vec![inputs, hidden, outputs],
        _ => vec![inputs; 2 + draw.below(3)],
    };
    let zeros = |shape: &[usize]| tensor(DType::F32, shape, &vec![0.0; shape.iter().product()]);
    let empty = |sizes: &[usize]| -> Result<Linear, Error> {
        Ok(Linear { weight: zeros(&[sizes[1], sizes[0]])?, bias: Some(zeros(&sizes[1..])?) })
    };
    let mut layers = sizes.windows(2).map(empty).collect::<Result<Vec<Linear>, Error>>()?;
    // The numbers of the layers in the names, and whether a function follows the layer.
    let mut names: Vec<usize> = (0..layers.len()).collect();
    let mut is_rectified = vec![false; layers.len()];
    let model: Box<dyn Module> = match kind {
        0 => {
            let (last, first) = (layers.remove(1), layers.remove(0));
            (names, is_rectified) = (vec![0, 2], vec![true, false]);
            Box::new((first, Function(Tensor::relu), last))
        }
        1 => Box::new(layers),
        2 => {
            // A function after the last layer.
            is_rectified[names.len() - 1] = true;
            let boxed = |layer: Linear| -> Box<dyn Module> { Box::new(layer) };
            let mut modules: Vec<Box<dyn Module>> = layers.into_iter().map(boxed).collect();
            modules.push(Box::new(Function(Tensor::relu)));
            Box::new(modules)
        }
        3 => {
            // The first layer, which is twice in the model, and has two names.
            (names, is_rectified) = (vec![0, 2], vec![true, false]);
            let layer = layers.remove(0);
            Box::new([
                Box::new(layer.clone()) as Box<dyn Module>,
                Box::new(Function(Tensor::relu)),
                Box::new(layer),
            ])
        }
        _ => {
            let layer = layers.remove(0);
            names = vec![7];
            let same = || Function(|x: &Tensor| Ok::<Tensor, Error>(x.clone()));
            let relu = Function(Tensor::relu);
            Box::new((relu, same(), same(), same(), same(), same(), same(), layer))
        }
    };
    let mut tensors = BTreeMap::new();
    let mut values: Vec<(Vec<f64>, Vec<f64>)> = Vec::new();
    for (at, number) in names.iter().enumerate() {
        let pair = if kind == 0 { &sizes[at..] } else { &sizes[..2] };
        let (mut weight, mut weights) = data(draw, DType::F32, &[pair[1], pair[0]])?;
        let (mut bias, mut biases) = data(draw, DType::F32, &pair[1..2])?;
        if kind == 3 && at == 1 {
            // The tensors of the first name, since the layers share them.
            (weights, biases) = values.first().cloned().expect("the first layer has them");
            weight = tensor(DType::F32, &[pair[1], pair[0]], &weights)?;
            bias = tensor(DType::F32, &pair[1..2], &biases)?;
        }
        tensors.insert(format!("{number}.weight"), weight);
        tensors.insert(format!("{number}.bias"), bias);
        values.push((weights, biases));
    }
    load_state_dict(&*model, &tensors)?;
    let (x, mut x_values) = data(draw, DType::F32, &[rows, sizes[0]])?;
    let relu = |x: Vec<f64>| -> Vec<f64> { x.into_iter().map(|x| x.max(0.0)).collect() };
    if kind == 4 {
        x_values = relu(x_values);
    }
    for (at, (weights, biases)) in values.iter().enumerate() {
        let size = if kind == 0 { sizes[at] } else { sizes[0] };
        x_values = affine(&x_values, weights, biases, size);
        if is_rectified[at] {
            x_values = relu(x_values);
        }
    }
    let label = format!("a model of kind {kind}, layers of {sizes:?}");
    let outputs = sizes[sizes.len() - 1];
    Ok(Case::new(label, SINGLE, model.forward(&x)?, &[rows, outputs], x_values))
}

/// A part of a model whose `State` is written by hand: two tensors of the same name.
struct Doubled(Tensor, Tensor);

impl State for Doubled {
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.field("x", &self.0);
        visitor.field("x", &self.1);
    }
}

/// A model of each kind of part.
struct Parts {
    table: Embedding,
    layers: Vec<(Linear, RMSNorm)>,
    steps: usize,
    scale: Option<Tensor>,
    missing: Option<Box<Linear>>,
    named: BTreeMap<String, Tensor>,
    doubled: [Doubled; 1],
}
state!(Parts { table, layers, scale, missing, named, doubled });

impl Parts {
    fn new() -> Result<Parts, Error> {
        let filled = |shape: &[usize], value: f64| {
            tensor(DType::F32, shape, &vec![value; shape.iter().product()])
        };
        let pair = |value: f64| -> Result<(Linear, RMSNorm), Error> {
            let linear = Linear { weight: filled(&[2, 2], value)?, bias: None };
            let mut norm = RMSNorm::new(2)?;
            norm.weight = filled(&[2], value + 1.0)?;
            Ok((linear, norm))
        };
        let linear = Linear { weight: filled(&[1, 2], 8.0)?, bias: Some(filled(&[1], 9.0)?) };
        Ok(Parts {
            table: Embedding { weight: filled(&[3, 2], 1.0)? },
            layers: vec![pair(2.0)?, pair(4.0)?],
            steps: 0,
            scale: Some(filled(&[1], 6.0)?),
            missing: Some(Box::new(linear)),
            named: BTreeMap::from([("b".to_string(), filled(&[], 7.0)?)]),
            doubled: [Doubled(filled(&[1], 10.0)?, filled(&[1], 11.0)?)],
        })
    }
}

/// The names and first elements of the tensors of [`Parts`], in the order of declaration.
const NAMES: [(&str, f64); 11] = [
    ("table.weight", 1.0),
    ("layers.0.0.weight", 2.0),
    ("layers.0.1.weight", 3.0),
    ("layers.1.0.weight", 4.0),
    ("layers.1.1.weight", 5.0),
    ("scale", 6.0),
    ("missing.weight", 8.0),
    ("missing.bias", 9.0),
    ("named.b", 7.0),
    ("doubled.0.x", 10.0),
    ("doubled.0.x", 11.0),
];

/// Checks names and the order of a model's tensors, a model of several layers, or the loading of
/// tensors by name.
pub(in crate::checks::calls) fn state_dicts(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    match draw.below(5) {
        0 => names(draw).map_err(problem)?,
        1 => sequence(draw).map_err(problem)?.check(),
        _ => loading(draw),
    }
}

/// The names and the order of a model with or without some parts.
fn names(draw: &mut Draw) -> Result<Result<(), String>, Error> {
    let mut model = Parts::new()?;
    let [has_scale, has_layer] = [(); 2].map(|()| draw.one_in(2));
    if !has_scale {
        model.scale = None;
    }
    if !has_layer {
        model.missing = None;
    }
    let is_there = |(name, _): &&(&str, f64)| {
        (has_scale || *name != "scale") && (has_layer || !name.starts_with("missing"))
    };
    let wanted: Vec<(&str, f64)> = NAMES.iter().filter(is_there).copied().collect();
    let first = |tensor: &Tensor| Ok::<f64, Error>(numbers(tensor)?[0]);
    let found = get_parameters(&model).iter().map(first).collect::<Result<Vec<f64>, Error>>()?;
    if !wanted.iter().map(|(_, value)| *value).eq(found.iter().copied()) {
        return Ok(Err(format!("parameters {found:?}, not {wanted:?}")));
    }
    // Of equal names, the last stays.
    let last: BTreeMap<&str, f64> = wanted.iter().copied().collect();
    let by_name = get_state_dict(&model);
    let mut found = BTreeMap::new();
    for (name, tensor) in &by_name {
        found.insert(name.as_str(), first(tensor)?);
    }
    if found != last {
        return Ok(Err(format!("state dict {found:?}, not {last:?}")));
    }
    // The tensors are those of the model.
    let changed = model.steps as f64 + 12.0;
    by_name["table.weight"].assign(tensor(DType::F32, &[3, 2], &[changed; 6])?)?;
    Engine::new("interp")?.realize(&[&model.table.weight])?;
    let found = numbers(&model.table.weight)?;
    Ok(match found == [changed; 6] {
        true => Ok(()),
        false => Err(format!("the table has {found:?} after {changed} is assigned by name")),
    })
}

/// The difference of a tensor to be loaded from that of its name.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Given {
    Fitting,
    Missing,
    /// An axis of size 1 more, which counts only if there is more than an element.
    Deeper,
    Longer,
    /// The axes in the other order, which counts only if their sizes differ.
    Turned,
    OtherType,
}

/// A tensor for the interpreter.
fn placed(dtype: DType, shape: &[usize], values: &[f64]) -> Result<Tensor, Error> {
    tensor(dtype, shape, values)?.to("interp")
}

/// Loads tensors by name, with names that are missing or not of the model, and tensors that do not
/// fit. If the call must be refused, the model stays as it is, and the error names each reason.
fn loading(draw: &mut Draw) -> Result<(), String> {
    let problem = |error: Error| error.to_string();
    let is_partial = draw.one_in(2);
    let (mut model, mut given) = (BTreeMap::new(), BTreeMap::new());
    let (mut before, mut after) = (Vec::new(), Vec::new());
    let (mut missing, mut reasons, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    let (is_wrong, mut requires) = (draw.one_in(2), BTreeMap::new());
    for name in ["a", "b.0", "b.1", "c"] {
        let shape = draw.pick(&[[1, 1], [2, 3], [3, 1], [1, 1]]);
        let rank = draw.below(3);
        let shape = if shape == [1, 1] { &shape[..rank] } else { &shape[..] };
        let old = eighths(draw, shape.iter().product());
        let mut part = placed(DType::F32, shape, &old).map_err(problem)?;
        if draw.one_in(2) {
            part = part.requires_grad_(true).map_err(problem)?;
        }
        requires.insert(name.to_string(), part.requires_grad());
        model.insert(name.to_string(), part);
        let kind = match draw.below(12) {
            0 => Given::Missing,
            1 if is_wrong => Given::Longer,
            2 if is_wrong => Given::OtherType,
            5 if is_wrong && shape.first() != shape.last() => Given::Turned,
            3 | 4 if is_wrong || old.len() == 1 => Given::Deeper,
            _ => Given::Fitting,
        };
        kinds.push((name, kind));
        let new: Vec<f64> = eighths(draw, old.len()).iter().map(|x| x + 8.0).collect();
        let is_loaded = kind == Given::Fitting || kind == Given::Deeper && old.len() == 1;
        after.push(if is_loaded { new.clone() } else { old.clone() });
        before.push(old);
        match kind {
            Given::Missing => missing.push(name.to_string()),
            _ if !is_loaded => reasons.push(name.to_string()),
            _ => {}
        }
        if kind == Given::Missing {
            continue;
        }
        let value = match kind {
            Given::Longer => {
                let doubled = [&new[..], &new[..]].concat();
                placed(DType::F32, &[&[2][..], shape].concat(), &doubled)
            }
            Given::Deeper => placed(DType::F32, &[&[1][..], shape].concat(), &new),
            Given::Turned => placed(DType::F32, &[shape[1], shape[0]], &new),
            Given::OtherType => placed(DType::F64, shape, &new),
            _ => placed(DType::F32, shape, &new),
        };
        // Only the values of a parameter are taken.
        let value = value.and_then(|value| match draw.one_in(4) {
            true => value.requires_grad_(true),
            false => Ok(value),
        });
        given.insert(name.to_string(), value.map_err(problem)?);
    }
    let mut unknown = Vec::new();
    for name in ["b", "a.weight", "d"] {
        if draw.one_in(6) {
            unknown.push(name.to_string());
            let value = placed(DType::F32, &[1], &[0.0]).map_err(problem)?;
            given.insert(name.to_string(), value);
        }
    }
    // A dict gives names in their order.
    unknown.sort();
    let label = format!("loading, partial: {is_partial}, {kinds:?}, unknown {unknown:?}");
    if !is_partial {
        reasons.extend(missing.iter().chain(&unknown).cloned());
    }
    let found = match is_partial {
        true => load_state_dict_partial(&model, &given).map(Some),
        false => load_state_dict(&model, &given).map(|()| None),
    };
    let is_refused = !reasons.is_empty();
    let unmatched = Unmatched { missing, unknown };
    let is_named = |name: &&String, message: &str| message.contains(&format!("{name} is "));
    match &found {
        Err(Error::Invalid(message)) if is_refused => {
            if let Some(reason) = reasons.iter().find(|name| !is_named(name, message)) {
                return Err(format!("{label}: the error does not name {reason}: {message}"));
            }
        }
        Ok(None) if !is_refused && !is_partial => {}
        Ok(Some(found)) if !is_refused && *found == unmatched => {}
        answer => return Err(format!("{label}: {answer:?}")),
    }
    let wanted = if is_refused { before } else { after };
    for ((name, part), wanted) in model.iter().zip(&wanted) {
        let found = numbers(part).map_err(problem)?;
        agree(&format!("{label}, {name}"), &found, wanted, 0.0)?;
        if part.requires_grad() != requires[name] {
            return Err(format!("{label}: {name} requires a gradient: {:?}", part.requires_grad()));
        }
    }
    Ok(())
}
