//! Arguments of layers at both sides of their limits: legal ones are taken, others are refused as
//! invalid, and nothing panics. Nothing is computed.

use std::sync::PoisonError;

use gradiff::nn::{
    BatchNorm, Conv2d, ConvOptions, ConvTranspose2d, Dropout, Embedding, GRUCell, GroupNorm,
    InstanceNorm, LSTMCell, LayerNorm, LayerNorm2d, Linear, Module, MultiHeadAttention, RMSNorm,
};
use gradiff::{DType, Error, PerAxis, Tensor};

use crate::checks::calls::Draw;
use crate::checks::calls::random::TURN;

/// Draws an attempt.
pub(in crate::checks::calls) type Kind = fn(&mut Draw) -> Result<Attempt, Error>;

/// Number of attempts of a call.
const ATTEMPTS: usize = 4;

/// Attempts to create a layer, or to call it.
const KINDS: [Kind; 6] = [creation, convolution, forward, forward, state, option];

/// Sizes of kernels along two axes, and some of other ranks or without elements.
const KERNELS: [&[i64]; 9] =
    [&[2, 1], &[3, 3], &[2, 3], &[1, 1], &[3, 2], &[2], &[1, 2, 3], &[0, 1], &[1, -1]];
/// Strides of convolutions.
const STRIDES: [&[i64]; 5] = [&[1, 1], &[1, 1], &[1, 2], &[2, 1], &[2, 2]];
/// Distances of the elements of a kernel.
const DILATIONS: [&[i64]; 3] = [&[1, 1], &[1, 2], &[3, 1]];
/// Elements that are added to the output of a transposed convolution.
const ADDED: [&[i64]; 5] = [&[0, 0], &[0, 0], &[0, 0], &[1, 0], &[0, 1]];

/// Shapes of inputs of layers.
const SHAPES: [&[i64]; 16] = [
    &[],
    &[2],
    &[3],
    &[2, 3],
    &[3, 2],
    &[1, 3],
    &[1, 3, 1],
    &[1, 3, 2],
    &[2, 3, 2],
    &[1, 2, 3],
    &[4, 2, 3],
    &[1, 3, 2, 2],
    &[2, 2, 2, 3],
    &[1, 2, 3, 1],
    &[1, 3, 1, 2, 1],
    &[1, 2, 1, 1, 3],
];

/// A call with its text, whether it is legal, and its answer.
pub(in crate::checks::calls) struct Attempt {
    said: String,
    is_legal: bool,
    answer: Result<(), Error>,
    /// A state after the call that is wrong whatever the answer is.
    problem: Option<String>,
}

impl Attempt {
    pub(in crate::checks::calls) fn new<T>(
        said: String,
        is_legal: bool,
        answer: Result<T, Error>,
    ) -> Attempt {
        Attempt { said, is_legal, answer: answer.map(drop), problem: None }
    }

    /// Adds a problem if the state after the call is wrong.
    pub(in crate::checks::calls) fn with_problem(self, is_wrong: bool, problem: &str) -> Attempt {
        Attempt { problem: is_wrong.then(|| problem.to_string()), ..self }
    }

    pub(in crate::checks::calls) fn check(self) -> Result<(), String> {
        let Attempt { said, is_legal, answer, problem } = self;
        if let Some(problem) = problem {
            return Err(format!("{said}: {problem}"));
        }
        match answer {
            Ok(()) if is_legal => Ok(()),
            Err(Error::Invalid(message)) if !is_legal && !message.is_empty() => Ok(()),
            Ok(()) => Err(format!("{said}: it must be refused, but is taken")),
            Err(error) if is_legal => Err(format!("{said}: it is legal, but is refused: {error}")),
            Err(error) => Err(format!("{said}: it must be refused as invalid, not as {error:?}")),
        }
    }
}

/// Draws some attempts to create a layer, or to call it.
pub(in crate::checks::calls) fn refusals(draw: &mut Draw) -> Result<(), String> {
    // New layers are of random numbers.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    attempts(draw, &KINDS)
}

/// Draws some attempts of these kinds.
pub(in crate::checks::calls) fn attempts(draw: &mut Draw, kinds: &[Kind]) -> Result<(), String> {
    for _ in 0..ATTEMPTS {
        let kind = draw.pick(kinds);
        kind(draw).map_err(|error| error.to_string())?.check()?;
    }
    Ok(())
}

/// Asserts that each kind draws legal and illegal attempts.
#[cfg(test)]
pub(in crate::checks::calls) fn assert_both(kinds: &[Kind]) {
    for (number, kind) in kinds.iter().enumerate() {
        let is_legal = |seed: &u64| kind(&mut Draw::new(*seed)).expect("it is there").is_legal;
        let legal = (0..200).filter(is_legal).count();
        assert!((10..=190).contains(&legal), "{number}: {legal} of 200");
    }
}

/// Sizes of a new layer.
fn creation(draw: &mut Draw) -> Result<Attempt, Error> {
    let size = |draw: &mut Draw| match draw.below(16) {
        0 => i64::MAX,
        1 => i64::MIN,
        _ => draw.pick(&[1, 2, 3, 4, 6, 0, -1]),
    };
    let sizes @ [a, b] = [size(draw), size(draw)];
    let is_size = |size: i64| (1..=6).contains(&size);
    let (is_first, is_both) = (is_size(a), is_size(a) && is_size(b));
    let kind = draw.below(13);
    let (name, is_legal, answer) = match kind {
        0 => ("Linear", is_both, Linear::new(a, b).map(drop)),
        1 => ("Linear without a bias", is_both, Linear::without_bias(a, b).map(drop)),
        2 => ("Embedding", is_both, Embedding::new(a, b).map(drop)),
        3 => ("LSTMCell", is_both, LSTMCell::new(a, b).map(drop)),
        4 => ("GRUCell", is_both, GRUCell::new(a, b).map(drop)),
        5 => {
            let is_legal = is_both && a % b == 0;
            ("MultiHeadAttention", is_legal, MultiHeadAttention::new(a, b).map(drop))
        }
        6 => ("GroupNorm", is_both && b % a == 0, GroupNorm::new(a, b).map(drop)),
        7 => ("InstanceNorm", is_first, InstanceNorm::new(a).map(drop)),
        8 => ("BatchNorm", is_first, BatchNorm::new(a).map(drop)),
        9 => ("RMSNorm", is_first, RMSNorm::new(a).map(drop)),
        10 => ("LayerNorm2d", is_first, LayerNorm2d::new(a).map(drop)),
        11 => ("LayerNorm of a list", is_both, LayerNorm::new(sizes).map(drop)),
        _ => ("LayerNorm of an empty list", false, LayerNorm::new([]).map(drop)),
    };
    Ok(Attempt::new(format!("{name} of {sizes:?}"), is_legal, answer))
}

/// Options of a new convolution along two axes.
fn convolution(draw: &mut Draw) -> Result<Attempt, Error> {
    let (is_transposed, is_same) = (draw.one_in(2), draw.one_in(2));
    let [inputs, outputs] = [(); 2].map(|()| draw.pick(&[2, 4, 2, 4, 3, 2, 4, 0]));
    let groups = draw.pick(&[1, 1, 1, 2, 2, 3, 0, -1]);
    let [kernel, strides] = [draw.pick(&KERNELS), draw.pick(&STRIDES)];
    let [dilation, added] = [draw.pick(&DILATIONS), draw.pick(&ADDED)];
    let mut options = ConvOptions::default().groups(groups).dilation(dilation);
    let is_scalar = strides[0] == strides[1] && draw.one_in(2);
    options = match is_scalar {
        true => options.stride(strides[0]),
        false => options.stride(strides),
    };
    if added != [0, 0] || draw.one_in(2) {
        options = options.output_padding(added);
    }
    if is_same {
        options = options.same_padding();
    }
    let fits_groups =
        0 < groups && 0 < inputs && 0 < outputs && inputs % groups == 0 && outputs % groups == 0;
    let fits_kind = match is_transposed {
        true => !is_same,
        false => added == [0, 0] && (!is_same || strides == [1, 1]),
    };
    let fits_kernel = kernel.len() == 2 && kernel.iter().all(|size| 0 < *size);
    let said = format!(
        "transposed: {is_transposed}, {inputs} to {outputs}, kernel {kernel:?}, {options:?}"
    );
    let kernel = PerAxis::from(kernel);
    let answer = match is_transposed {
        true => ConvTranspose2d::with(inputs, outputs, kernel, options).map(drop),
        false => Conv2d::with(inputs, outputs, kernel, options).map(drop),
    };
    Ok(Attempt::new(said, fits_groups && fits_kind && fits_kernel, answer))
}

/// Inputs of layers, most of them of a shape that fits another one.
fn forward(draw: &mut Draw) -> Result<Attempt, Error> {
    let shape = draw.pick(&SHAPES);
    let (is_training, is_tracked) = (draw.one_in(2), draw.one_in(2));
    let kind = draw.below(10);
    // Layers that take or refuse integers.
    let dtype = match kind {
        1 | 8 => draw.pick(&[DType::F32, DType::F16, DType::F64, DType::I32]),
        _ => DType::F32,
    };
    let (rank, last) = (shape.len(), shape.last().copied());
    let has_channels = |count: i64| 2 <= rank && shape[1] == count;
    let x = Tensor::zeros(dtype, shape)?;
    let _mode = Tensor::train(is_training);
    let (name, is_legal, answer) = match kind {
        0 => ("Linear of 3", last == Some(3), Linear::new(3, 2)?.forward(&x)),
        1 => {
            let is_legal = dtype == DType::I32;
            ("Embedding", is_legal, Embedding::new(3, 2)?.forward(&x))
        }
        2 | 3 => {
            let norm = BatchNorm::new(3)?;
            let norm = if is_tracked { norm } else { norm.without_running_stats() };
            let elements: i64 = shape.iter().product();
            let uses_batch = is_training || !is_tracked;
            let is_legal = has_channels(3) && (!uses_batch || elements != 3);
            ("BatchNorm of 3", is_legal, norm.forward(&x))
        }
        4 => ("GroupNorm of 3", has_channels(3), GroupNorm::new(3, 3)?.forward(&x)),
        5 => ("InstanceNorm of 2", has_channels(2), InstanceNorm::new(2)?.forward(&x)),
        6 => {
            let is_legal = shape.ends_with(&[2, 3]);
            ("LayerNorm of 2, 3", is_legal, LayerNorm::new([2, 3])?.forward(&x))
        }
        7 => {
            let is_legal = rank == 4 && has_channels(2);
            ("LayerNorm2d of 2", is_legal, LayerNorm2d::new(2)?.forward(&x))
        }
        8 => {
            let is_legal = last == Some(3) && dtype != DType::I32;
            ("RMSNorm of 3", is_legal, RMSNorm::new(3)?.forward(&x))
        }
        _ => {
            let is_legal = rank == 3 && last == Some(2);
            ("self-attention of 2", is_legal, MultiHeadAttention::new(2, 1)?.forward(&x))
        }
    };
    let modes = format!("training: {is_training}, tracked: {is_tracked}");
    let said = format!("{name}: forward of {dtype}{shape:?}, {modes}");
    Ok(Attempt::new(said, is_legal, answer))
}

/// States of cells, and keys and values of attention: shapes that would broadcast do not fit.
fn state(draw: &mut Draw) -> Result<Attempt, Error> {
    let zeros = |shape: &[i64]| Tensor::zeros(DType::F32, shape);
    if draw.one_in(2) {
        let inputs: [&[i64]; 6] = [&[2, 3], &[2, 3], &[1, 3], &[3], &[2, 2], &[2, 3, 3]];
        let x = draw.pick(&inputs);
        let states: [&[i64]; 5] = [&[2, 2], &[2, 2], &[1, 2], &[2, 3], &[2]];
        let [h, c] = [(); 2].map(|()| draw.pick(&states));
        let (is_long, has_state) = (draw.one_in(2), !draw.one_in(3));
        let fits = |state: &[i64]| !has_state || state == [x[0], 2];
        let fits_input = x.len() == 2 && x[1] == 3;
        let said = format!("a cell of 3 and 2, long: {is_long}, of {x:?} after {h:?} and {c:?}");
        let said = format!("{said}, with a state: {has_state}");
        let (x_zeros, h_zeros, c_zeros) = (zeros(x)?, zeros(h)?, zeros(c)?);
        if is_long {
            let state = has_state.then_some((&h_zeros, &c_zeros));
            let answer = LSTMCell::new(3, 2)?.forward(&x_zeros, state);
            return Ok(Attempt::new(said, fits_input && fits(h) && fits(c), answer));
        }
        let answer = GRUCell::new(3, 2)?.forward(&x_zeros, has_state.then_some(&h_zeros));
        return Ok(Attempt::new(said, fits_input && fits(h), answer));
    }
    let shapes: [&[i64]; 6] = [&[2, 3, 4], &[2, 3, 4], &[2, 1, 4], &[1, 3, 4], &[2, 3, 2], &[3, 4]];
    let [queries, keys, drawn] = [(); 3].map(|()| draw.pick(&shapes));
    let values = if draw.one_in(3) { drawn } else { keys };
    let fits = |shape: &[i64]| shape.len() == 3 && shape[2] == 4;
    let is_legal = fits(queries) && fits(keys) && keys == values && queries[0] == keys[0];
    let layer = MultiHeadAttention::new(4, 2)?;
    let answer = layer.attend(&zeros(queries)?, &zeros(keys)?, &zeros(values)?, None);
    let said = format!("attention of {queries:?} to {keys:?} and {values:?}");
    Ok(Attempt::new(said, is_legal, answer))
}

/// Options that are numbers.
fn option(draw: &mut Draw) -> Result<Attempt, Error> {
    let number = draw.pick(&[0.0, 0.5, 1.0, 1.5, -0.5, -1e-9, f64::NAN, f64::INFINITY]);
    let (is_number, is_share) =
        (0.0 <= number && number.is_finite(), (0.0..=1.0).contains(&number));
    let x = Tensor::ones(DType::F32, &[2, 2, 2])?;
    let _mode = Tensor::train(true);
    let (name, is_legal, answer) = match draw.below(8) {
        0 => ("BatchNorm with eps", is_number, BatchNorm::new(2)?.eps(number).forward(&x)),
        1 => {
            let answer = BatchNorm::new(2)?.momentum(number).forward(&x);
            ("BatchNorm with momentum", is_number, answer)
        }
        2 => ("GroupNorm with eps", is_number, GroupNorm::new(1, 2)?.eps(number).forward(&x)),
        3 => ("InstanceNorm with eps", is_number, InstanceNorm::new(2)?.eps(number).forward(&x)),
        4 => ("LayerNorm with eps", is_number, LayerNorm::new(2)?.eps(number).forward(&x)),
        5 => ("RMSNorm with eps", is_number, RMSNorm::new(2)?.eps(number).forward(&x)),
        6 => ("Dropout with", is_share, Dropout::new(number).and_then(|layer| layer.forward(&x))),
        _ => {
            let answer = MultiHeadAttention::new(2, 1)?.dropout(number).forward(&x);
            ("attention with dropout", is_share, answer)
        }
    };
    Ok(Attempt::new(format!("{name} {number}"), is_legal, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_answers_are_reported() {
        let check = |is_legal: bool, answer: Result<(), Error>| {
            Attempt::new("x".to_string(), is_legal, answer).check()
        };
        let refused = |message: &str| Err(Error::Invalid(message.to_string()));
        assert!(check(true, Ok(())).is_ok() && check(false, refused("no")).is_ok());
        assert!(check(false, Ok(())).is_err() && check(true, refused("no")).is_err());
        assert!(check(false, refused("")).is_err());
    }

    #[test]
    fn each_kind_draws_legal_and_illegal_attempts() {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        assert_both(&KINDS);
    }
}
