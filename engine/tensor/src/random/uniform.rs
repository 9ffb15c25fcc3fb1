//! Uniform numbers of [0, 1): bits of Threefry as mantissas.

use gradiff_graph::{Arg, Buffer, DType, Op, Placement, UOp};

use super::seeds::{Draw, draw};
use crate::error::invalid;
use crate::placement::name_of;
use crate::tensor::check_shape;
use crate::{Error, Tensor};

/// Creates uniform numbers of [0, 1), to be computed where they are used.
pub(super) fn fractions(
    name: &str,
    placement: &Placement,
    dtype: DType,
    shape: &[i64],
) -> Result<Tensor, Error> {
    check_float(name, dtype)?;
    let elements = check_shape(shape)?;
    let device = name_of(placement)?;
    if elements == 0 {
        return placed(placement, Tensor::zeros(dtype, shape)?);
    }
    let size_bytes = elements.unsigned_abs() * dtype.size_bytes() as u64;
    let Ok(words) = u32::try_from(size_bytes.div_ceil(4)) else {
        return invalid(format!(
            "{name} of {dtype}{shape:?}: a call draws less than 2^32 words, or numbers repeat"
        ));
    };
    let words = random_words(placement, draw(device, words), words)?;
    let bits = resize(&words, dtype.unsigned(), elements)?;
    // The exponent of 1 and random mantissas are the numbers of [1, 2).
    let exponent = Tensor::ones(dtype, &[1])?.bitcast(dtype.unsigned())?;
    let shift = i64::from(dtype.bits() - dtype.mantissa_bits());
    bits.shr(shift)?.or(&exponent)?.bitcast(dtype)?.sub(1)?.reshape(shape)
}

/// Refuses dtypes that are not floats.
pub(super) fn check_float(name: &str, dtype: DType) -> Result<(), Error> {
    match dtype.is_float() {
        true => Ok(()),
        false => invalid(format!("{name} of {dtype}: it makes floats; for integers see randint")),
    }
}

/// Puts a constant on a device, unless that is the default one.
fn placed(placement: &Placement, constant: Tensor) -> Result<Tensor, Error> {
    match placement {
        Placement::Default => Ok(constant),
        Placement::Named(device) => constant.to(device),
    }
}

/// Creates `count` random words of 32 bits that follow a counter.
fn random_words(placement: &Placement, draw: Draw, count: u32) -> Result<Tensor, Error> {
    // In a buffer, since each constant would be another kernel.
    let state = upload(placement, [draw.key, u64::from(draw.counter)])?;
    let (key, counter) = (state.shrink(&[(0, 1)])?, state.shrink(&[(1, 2)])?);
    words_after(&key, &counter.cast(DType::U32)?, count)
}

/// Creates `count` random words of 32 bits of a key (u64[1]): Threefry of pairs of counters, which
/// follow the first one (u32[1]); first the low words of all pairs, then the high ones.
fn words_after(key: &Tensor, first: &Tensor, count: u32) -> Result<Tensor, Error> {
    let pairs = i64::from(count.div_ceil(2));
    let low = Tensor::arange(DType::U32, 0, 1, pairs)?.add(first)?;
    let high = low.add(pairs)?;
    let counters = high.cast(DType::U64)?.shl(32)?.or(&low.cast(DType::U64)?)?;
    let random = counters.threefry(key)?.reshape(&[1, pairs])?;
    let shifts = Tensor::arange(DType::U64, 0, 32, 2)?.reshape(&[2, 1])?;
    let words = random.shr(&shifts)?.cast(DType::U32)?;
    words.reshape(&[2 * pairs])?.shrink(&[(0, count.into())])
}

/// The words of [`Tensor::random_bits`].
pub(super) fn keyed_bits(key: &Tensor, counter: &Tensor, count: i64) -> Result<Tensor, Error> {
    for (name, words) in [("key", key), ("counter", counter)] {
        if words.dtype() != DType::U32 || words.shape() != [2] {
            return invalid(format!(
                "random_bits: the {name} is {}{:?}, not two words of u32",
                words.dtype(),
                words.shape()
            ));
        }
    }
    let Ok(count) = u32::try_from(count) else {
        return invalid(format!("random_bits: {count} words, not 0 to {}", u32::MAX));
    };
    if count == 0 {
        return counter.shrink(&[(0, 0)]);
    }
    let key = resize(counter, DType::U64, 1)?.threefry(&resize(key, DType::U64, 1)?)?;
    words_after(&key, &Tensor::scalar(DType::U32, 0)?.reshape(&[1])?, count)
}

/// Creates a tensor of these words on a device.
fn upload(placement: &Placement, words: [u64; 2]) -> Result<Tensor, Error> {
    let buffer = Buffer::on(placement.clone(), DType::U64, words.len() as i64);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    gradiff_runtime::memory_of(&buffer)?.write(&bytes)?;
    Ok(Tensor::from_valid(UOp::new(Op::Buffer, DType::U64, [], Arg::Buffer(buffer))))
}

/// Reinterprets words of 32 bits as `count` integers of another size, little endian.
fn resize(words: &Tensor, dtype: DType, count: i64) -> Result<Tensor, Error> {
    let size = words.size_elements();
    match dtype {
        DType::U16 => {
            let shifts = Tensor::arange(DType::U32, 0, 16, 2)?;
            let halves = words.reshape(&[size, 1])?.shr(&shifts)?.cast(dtype)?;
            halves.reshape(&[2 * size])?.shrink(&[(0, count)])
        }
        DType::U64 => {
            let pairs = words.reshape(&[count, 2])?.cast(dtype)?;
            let (low, high) =
                (pairs.shrink(&[(0, count), (0, 1)])?, pairs.shrink(&[(0, count), (1, 2)])?);
            high.shl(32)?.or(&low)?.reshape(&[count])
        }
        _ => Ok(words.clone()),
    }
}
