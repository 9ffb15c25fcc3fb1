//! Products of matrices that devices have and that only the checked interpreter has. PTX is run by
//! the interpreter of the crate gradiff-check; CUDA says the same instruction with the same operands,
//! and the compiler of NVIDIA reads it.

use gradiff_graph::{TENSOR_CORES, TensorCore};

use crate::kernels::product;

/// Those that cards have.
pub(crate) fn cores() -> impl Iterator<Item = &'static TensorCore> {
    TENSOR_CORES.iter().filter(|core| core.threads == 32)
}

#[test]
fn what_only_the_interpreter_has_is_refused() {
    for core in TENSOR_CORES.iter().filter(|core| core.threads != 32) {
        for language in gradiff_render::LANGUAGES {
            let error = (language.render)(&product(core)).expect_err(language.name).to_string();
            assert!(error.contains("wmma"), "{error}");
        }
    }
}
