//! Shapes near the limit of elements, and buffers near theirs: a result that is too large is
//! refused, any other one has its shape, and nothing panics.
//!
//! The tensors are constants, or computed by plans that do not run, so that nothing is allocated.

use gradiff::kernel::Strategy;
use gradiff::{DType, Engine, Error, Tensor};

use super::Draw;

/// Maximal product of the sizes of a tensor that are not 0.
const PRODUCT_MAX: i128 = 1 << 40;
/// Maximal product of those sizes of what a method reduces and does not keep.
const REDUCED_MAX: i128 = (1 << 48) - 1;
/// Sizes that are drawn.
const SIZES: [i64; 10] = [0, 1, 1, 2, 3, 1 << 10, 1 << 20, (1 << 31) + 1, (1 << 40) - 1, 1 << 40];
/// Counts of padding that are drawn.
const COUNTS: [i64; 6] = [0, 0, 1, 1 << 20, 1 << 40, i64::MAX];

/// Maximal number of elements of a buffer, as the crate's documentation promises.
const BUFFER_MAX: i128 = 1 << 32;
/// Shapes of about as many elements.
const LARGE_SHAPES: [&[i64]; 10] = [
    &[1 << 32],
    &[1 << 16, 1 << 16],
    &[(1 << 32) - 1],
    &[(1 << 32) + 1],
    &[1 << 31, 2],
    &[1 << 31, 3],
    &[1, 1 << 32],
    &[1 << 33],
    &[1, 1 << 33],
    &[0, 1 << 33],
];

/// Plans tensors near the limit of buffers: a view that is stored, numbers that are counted, their
/// sum with a view, a maximum of what is stored, and one of a view. Each is planned if its buffers
/// fit.
pub(super) fn buffers(draw: &mut Draw) -> Result<(), String> {
    let shape = draw.pick(&LARGE_SHAPES);
    let count: i128 = shape.iter().map(|size| i128::from(*size)).product();
    let (kind, row) = (draw.below(5), vec![1; shape.len()]);
    let computed = || -> Result<Tensor, Error> {
        let element = Tensor::from_slice(&row, &[7u8])?.expand(shape)?;
        let numbers = || Tensor::arange(DType::U8, 0, 1, count as i64)?.reshape(shape);
        match kind {
            0 => Ok(element.contiguous()),
            1 => numbers(),
            2 => numbers()?.add(&element),
            3 => element.contiguous().max([0]),
            _ => element.max([0]),
        }
    };
    let label = format!("a plan of kind {kind} of {shape:?}");
    let said = |problem: String| format!("{label}: {problem}");
    let tensor = crate::catch(computed).map_err(said)?.map_err(|error| said(error.to_string()))?;
    // The last kind stores maxima alone. Those of no elements are a constant, of which nothing is
    // stored.
    let stored = if kind == 4 { count / i128::from(shape[0].max(1)) } else { count };
    let mut engine = Engine::new("interp").map_err(|error| error.to_string())?;
    engine.kernel.opts = Strategy::None;
    engine.beam = 0;
    match crate::catch(|| engine.plan(&[&tensor])).map_err(said)? {
        Ok(_) if stored <= BUFFER_MAX => Ok(()),
        Err(Error::Schedule(gradiff::schedule::Error::TooLarge { .. })) if BUFFER_MAX < stored => {
            Ok(())
        }
        Ok(_) => Err(format!("{label}: it is planned, with {stored} elements in a buffer")),
        Err(error) => Err(format!("{label}: {error}")),
    }
}

/// Draws a tensor and a method that gives another shape.
pub(super) fn shapes(draw: &mut Draw) -> Result<(), String> {
    let rank = 1 + draw.below(4);
    let shape: Vec<i64> = (0..rank).map(|_| draw.pick(&SIZES)).collect();
    let dtype = draw.pick(&[DType::F32, DType::U8, DType::I64]);
    let full = |dtype: DType, shape: &[i64]| Tensor::full(dtype, shape, 0);
    let Some(x) = judge("full", legal(&shape), || full(dtype, &shape))? else { return Ok(()) };
    let axis = draw.below(rank);
    // The same shape but for one axis.
    let mut similar = shape.clone();
    similar[axis] = draw.pick(&SIZES);
    match draw.below(6) {
        0 => {
            let pads: Vec<(i64, i64)> =
                shape.iter().map(|_| (draw.pick(&COUNTS), draw.pick(&COUNTS))).collect();
            let padded: Vec<i128> = shape
                .iter()
                .zip(&pads)
                .map(|(size, (before, after))| {
                    [*size, *before, *after].map(i128::from).iter().sum()
                })
                .collect();
            let value = draw.below(2) as i64;
            judge(&format!("pad of {shape:?} by {pads:?}"), wide(&padded), || x.pad(&pads, value))?;
        }
        1 if legal(&similar).is_some() => {
            let y = full(dtype, &similar).map_err(|error| error.to_string())?;
            let mut joined: Vec<i128> = shape.iter().map(|size| (*size).into()).collect();
            joined[axis] += i128::from(similar[axis]);
            let call = format!("cat of {shape:?} and {similar:?} along {axis}");
            judge(&call, wide(&joined), || Tensor::cat(&[&x, &y], axis as i64))?;
        }
        2 if legal(&similar).is_some() => {
            let dtype = draw.pick(&[DType::I8, DType::I32, DType::I64]);
            let index = full(dtype, &similar).map_err(|error| error.to_string())?;
            // Each element is the sum over the gathered axis.
            let sizes = similar.iter().chain([&shape[axis]]).filter(|size| **size != 0);
            let summed = sizes.fold(1i128, |product, size| product.saturating_mul((*size).into()));
            let expected = (summed <= REDUCED_MAX).then(|| similar.clone());
            let call = format!("gather of {shape:?} by {dtype} {similar:?} along {axis}");
            judge(&call, expected, || x.gather(axis as i64, &index))?;
        }
        3 => {
            let to: Vec<i64> = shape
                .iter()
                .map(|size| if *size == 1 { draw.pick(&SIZES) } else { *size })
                .collect();
            judge(&format!("expand of {shape:?} to {to:?}"), legal(&to), || x.expand(&to))?;
        }
        4 => {
            let to: Vec<i64> = (0..1 + draw.below(4)).map(|_| draw.pick(&SIZES)).collect();
            let count =
                |shape: &[i64]| shape.iter().map(|size| i128::from(*size)).product::<i128>();
            let is_same = legal(&to).is_some() && count(&to) == count(&shape);
            let call = format!("reshape of {shape:?} to {to:?}");
            judge(&call, is_same.then(|| to.clone()), || x.reshape(&to))?;
        }
        _ => {
            let row: Vec<i64> =
                shape.iter().map(|size| if *size == 1 { draw.pick(&SIZES) } else { 1 }).collect();
            let Some(_) = legal(&row) else { return Ok(()) };
            let y = full(dtype, &row).map_err(|error| error.to_string())?;
            let sizes = shape.iter().zip(&row);
            let both: Vec<i64> =
                sizes.map(|(size, added)| if *size == 1 { *added } else { *size }).collect();
            judge(&format!("add of {shape:?} and {row:?}"), legal(&both), || x.add(&y))?;
        }
    }
    Ok(())
}

/// The shape, if a tensor may have it.
pub(super) fn legal(shape: &[i64]) -> Option<Vec<i64>> {
    wide(&shape.iter().map(|size| i128::from(*size)).collect::<Vec<_>>())
}

/// The shape of these sizes, if a tensor may have it.
pub(super) fn wide(shape: &[i128]) -> Option<Vec<i64>> {
    let sizes = shape.iter().filter(|size| **size != 0);
    let product = sizes.fold(1i128, |product, size| product.saturating_mul(*size));
    (product <= PRODUCT_MAX).then(|| shape.iter().map(|size| *size as i64).collect())
}

/// Makes a call, which must give a tensor of the expected shape, or a refusal; returns the tensor.
pub(super) fn judge(
    call: &str,
    expected: Option<Vec<i64>>,
    work: impl FnOnce() -> Result<Tensor, Error>,
) -> Result<Option<Tensor>, String> {
    match (crate::catch(work).map_err(|panic| format!("{call}: {panic}"))?, expected) {
        (Ok(tensor), Some(shape)) if tensor.shape() == shape => Ok(Some(tensor)),
        (Err(Error::Invalid(message)), None) if !message.is_empty() => Ok(None),
        (found, expected) => Err(format!("{call}: it gives {found:?}, expected {expected:?}")),
    }
}
