//! Every public name of tinygrad's `Tensor` is a method here, or in the table of names in
//! README.md.

use std::path::Path;

/// The names of 0.10.2 that are not of one argument list in Python alone, and those that were added
/// until 0.14.
const NAMES: &str = "
    device shape dtype schedule realize replace assign detach data item tolist numpy clone to shard
    from_uop empty from_blob from_url manual_seed rand full zeros ones arange linspace eye full_like
    zeros_like ones_like rand_like randn randint normal uniform scaled_uniform glorot_uniform
    kaiming_uniform kaiming_normal multinomial gradient backward view reshape expand permute flip
    shrink pad gather cat stack repeat_interleave repeat split chunk meshgrid squeeze unsqueeze T
    transpose flatten unflatten roll rearrange sum prod max min any all isclose mean var std
    std_mean softmax log_softmax logsumexp logcumsumexp argmax argmin einsum avg_pool2d max_pool2d
    conv2d conv_transpose2d dot matmul cumsum cummax triu tril interpolate scatter scatter_reduce
    logical_not neg contiguous contiguous_backward log log2 exp exp2 relu sigmoid hardsigmoid sqrt
    rsqrt sin cos tan asin acos atan trunc ceil floor round isinf isnan lerp square clamp clip sign
    abs reciprocal elu celu selu swish silu relu6 hardswish tanh sinh cosh atanh asinh acosh
    hardtanh erf gelu quick_gelu leakyrelu mish softplus softsign add sub mul idiv div mod xor
    bitwise_and bitwise_or bitwise_not lshift rshift pow maximum minimum where masked_fill linear
    sequential layernorm batchnorm dropout one_hot scaled_dot_product_attention binary_crossentropy
    binary_crossentropy_logits sparse_categorical_crossentropy cross_entropy nll_loss ndim numel
    element_size nbytes is_floating_point cast bitcast float half int bool llvm_bf16_cast image_dot
    image_conv2d train test no_grad requires_grad_ schedule_with_vars shard_
    argsort sort topk masked_select unfold cumprod diag diagonal qr svd newton_schulz hash keccak
    copysign isfinite logsigmoid max_unpool2d randn_like randperm var_mean bfloat16 double long
    short bitwise_xor kernelize fuse allclose cummin empty_like fmod log10 logaddexp nonzero
    normalize pad_to shrink_to softmin custom_kernel random_bits leaky_relu";

/// Returns the text of all sources below a folder.
fn sources(folder: &Path) -> String {
    let entries = std::fs::read_dir(folder).expect("a folder of sources");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    let text = |path: std::path::PathBuf| match path.is_dir() {
        true => sources(&path),
        false => std::fs::read_to_string(&path).expect("a source file"),
    };
    paths.map(text).collect()
}

/// Returns whether a line declares a method of this name: as a function, or as a row of a macro.
fn declares(line: &str, name: &str) -> bool {
    let line = line.trim_start();
    let rest = line.strip_prefix("pub fn ").unwrap_or(line);
    let is_function = line.len() != rest.len();
    let Some(rest) = rest.strip_prefix(name) else { return false };
    match is_function {
        true => rest.starts_with(['(', '<']),
        false if rest.starts_with('(') => rest.contains(", as in "),
        false => rest.starts_with(": ") && rest.ends_with(';') || rest.starts_with(" => "),
    }
}

#[test]
fn every_name_of_tinygrad_is_a_method_or_in_the_table() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let methods = sources(&root.join("tensor/src"));
    let page = std::fs::read_to_string(root.join("README.md")).expect("the page");
    let table = page.split("| in tinygrad | here |").nth(1).expect("the table of names");
    let rows = table.lines().take_while(|line| line.is_empty() || line.starts_with('|'));
    let named: Vec<&str> =
        rows.filter_map(|row| row.split(" | ").next()).flat_map(|cell| cell.split('`')).collect();
    let is_named = |name: &str| named.iter().any(|word| word.split('(').next() == Some(name));
    let is_missing =
        |name: &&str| !is_named(name) && !methods.lines().any(|line| declares(line, name));
    let missing: Vec<&str> = NAMES.split_whitespace().filter(is_missing).collect();
    assert!(missing.is_empty(), "neither a method nor in the table: {missing:?}");
    let twice = |name: &&str| is_named(name) && methods.lines().any(|line| declares(line, name));
    let twice: Vec<&str> = NAMES.split_whitespace().filter(twice).collect();
    assert!(twice.is_empty(), "a method, and in the table: {twice:?}");
}
