//! Tensor cores: those of devices, and those that only the checked interpreter has. The PTX
//! interpreter of the crate gradiff-check runs the PTX; the CUDA text has the same instruction with
//! the same operands, and NVIDIA's compiler accepts it.

use gradiff_graph::tensor_core::{TENSOR_CORES, TensorCore};

use crate::kernels::product;

/// The tensor cores that GPUs have.
pub(crate) fn cores() -> impl Iterator<Item = &'static TensorCore> {
    TENSOR_CORES.iter().filter(|core| core.threads == 32)
}

#[test]
fn cores_of_the_interpreter_are_refused() {
    for core in TENSOR_CORES.iter().filter(|core| core.threads != 32) {
        for language in gradiff_render::LANGUAGES {
            let error = (language.render)(&product(core)).expect_err(language.name).to_string();
            assert!(error.contains("wmma"), "{error}");
        }
    }
}
