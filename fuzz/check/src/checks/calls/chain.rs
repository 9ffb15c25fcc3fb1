//! Chains of calls: later calls take the results of earlier ones. Then results are computed, and
//! damaged texts of their kernels are compiled, and run if they are accepted as safe.

use std::sync::Arc;

use gradiff::graph::Linear;
use gradiff::graph::text::parse_linears;
use gradiff::runtime::{Executable, Memory};
use gradiff::{Engine, Tensor};
use gradiff_corpus::TensorType;

use super::{Draw, SAID, check_link};
use crate::backends::translate;
use crate::checks::listing;

/// Limit of the calls of a chain.
const CALL_LIMIT: usize = 12;

/// Limit of the elements of a tensor that later calls may take.
const ELEMENT_LIMIT: usize = 512;

/// Damaged texts of a chain.
const TEXTS: usize = 4;

/// Checks a chain of calls that the bytes choose.
///
/// # Errors
/// The first call whose answer is wrong, or the failure to compute a tensor.
pub(crate) fn check_chain(bytes: &[u8]) -> Result<(), String> {
    let mut draw = Draw::of_bytes(bytes);
    for _ in 0..CALL_LIMIT {
        if draw.bytes.is_empty() {
            break;
        }
        let tensor = check_link(&mut draw).map_err(|problem| format!("{SAID}, {problem}"))?;
        if let Some(tensor_type) = tensor.as_ref().and_then(type_of) {
            draw.given.extend(tensor.map(|tensor| (tensor_type, tensor)));
        }
    }
    let tensors: Vec<Tensor> = draw.given.drain(..).map(|(_, tensor)| tensor).collect();
    crate::catch(|| compute(&mut draw, &tensors))
        .and_then(|found| found)
        .map_err(|problem| format!("{SAID}, a chain of them: {problem}"))
}

/// The type of a tensor; `None` if it is too large for later calls.
fn type_of(tensor: &Tensor) -> Option<TensorType> {
    let shape: Vec<usize> =
        tensor.shape().iter().map(|size| usize::try_from(*size).ok()).collect::<Option<_>>()?;
    let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul((*size).max(1)))?;
    let mut dtypes = gradiff_corpus::DType::ALL.into_iter();
    let dtype = dtypes.find(|dtype| translate::dtype(*dtype) == tensor.dtype())?;
    (count <= ELEMENT_LIMIT).then_some(TensorType { dtype, shape })
}

/// Computes some of the tensors, and runs damaged texts of their kernels.
fn compute(draw: &mut Draw, tensors: &[Tensor]) -> Result<(), String> {
    if tensors.is_empty() {
        return Ok(());
    }
    let device = draw.pick(&["jit", "interp"]);
    let engine = Engine::new(device).map_err(|error| error.to_string())?;
    let computed: Vec<&Tensor> = tensors.iter().filter(|_| !draw.one_in(3)).collect();
    let failed = |error: gradiff::Error| format!("on {device}: {error}");
    let mut kernels: Vec<Linear> = Vec::new();
    if draw.one_in(3) {
        engine.realize(&computed).map_err(failed)?;
    } else {
        let mut plans = [engine.plan(&computed).map_err(failed)?];
        engine.compile(&mut plans).map_err(failed)?;
        engine.run(&plans[0]).map_err(failed)?;
        let items = plans[0].items.iter().take(TEXTS);
        kernels.extend(items.map(|item| (**item.linear).clone()));
    }
    for tensor in computed {
        let bytes = tensor.to_bytes().map_err(|error| format!("read: {error}"))?;
        let count = tensor.shape().iter().product::<i64>() as usize;
        if bytes.len() != count * tensor.dtype().size_bytes() {
            return Err(format!("read gives {} bytes of {tensor:?}", bytes.len()));
        }
    }
    for kernel in kernels {
        let text = listing::damaged(&kernel.to_string(), draw);
        for kernel in parse_linears(&text).unwrap_or_default() {
            run_text(&kernel);
        }
    }
    Ok(())
}

/// Compiles an arbitrary kernel, and runs it if it is accepted as safe; refusals are right.
fn run_text(kernel: &Linear) {
    let globals = kernel.globals();
    let elements = globals.iter().map(|(global, _)| global.size_elements);
    let is_small = elements.clone().all(|size| (0..=4096).contains(&size));
    let iterations = crate::models::linear::executed(kernel);
    if !is_small || 1 << 16 < iterations {
        return;
    }
    for device in ["interp", "jit"] {
        let Ok(device) = gradiff::runtime::device(device) else { continue };
        let Ok(compiled) = device.compile_checked(&[kernel]) else { continue };
        let compiled: &Arc<dyn Executable> = &compiled[0];
        let memories = globals.iter().map(|(global, dtype)| {
            let size = global.size_elements as usize * dtype.size_bytes();
            Memory::from_bytes(*dtype, &vec![1; size])
        });
        let Ok(memories) = memories.collect::<Result<Vec<Memory>, _>>() else { continue };
        // Nothing is claimed of its result.
        let _ = compiled.run(&memories.iter().collect::<Vec<_>>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Findings of the fuzzer: a damaged text whose uops have sources without a value made the
    /// interpreter index out of bounds.
    const FINDINGS: [&[u8]; 1] = [&[
        3, 0, 0, 49, 0, 175, 228, 97, 108, 103, 101, 98, 114, 97, 47, 115, 117, 109, 45, 110, 101,
        61, 61, 59, 113, 0, 175, 228, 10, 114, 152, 10, 114, 101, 100, 115, 99, 101, 102, 49, 189,
        192, 103, 97, 116, 104, 99, 171, 9, 0, 49, 0, 175, 228, 61, 61, 59, 49, 0, 175, 228, 10,
        114, 152, 10, 114, 101, 100, 0,
    ]];

    #[test]
    fn findings_are_answered() {
        for bytes in FINDINGS {
            assert_eq!(check_chain(bytes), Ok(()));
        }
    }

    #[test]
    fn chains_of_calls_are_answered_as_they_must_be() {
        let mut draw = Draw::new(3);
        let (mut chains, mut computed) = (0, 0);
        for _ in 0..1500 {
            let length = 1 + draw.below(160);
            let bytes: Vec<u8> = (0..length).map(|_| draw.below(256) as u8).collect();
            chains += 1;
            if let Err(problem) = check_chain(&bytes) {
                panic!("{problem}\n{bytes:?}");
            }
            let mut again = Draw::of_bytes(&bytes);
            computed += usize::from(matches!(check_link(&mut again), Ok(Some(_))));
        }
        assert!(chains < 4 * computed, "{computed} of {chains} chains begin with a legal call");
    }
}
