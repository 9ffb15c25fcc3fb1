//! Tensors in files: safetensors, NumPy's `.npy` and `.npz`, checkpoints of PyTorch, GGUF.
//!
//! | format | read | write |
//! |---|---|---|
//! | safetensors | [`load_safetensors`], [`load_safetensors_metadata`] | [`save_safetensors`] |
//! | `.npy` | [`load_npy`] | [`save_npy`] |
//! | `.npz` | [`load_npz`] | [`save_npz`] |
//! | PyTorch's zip checkpoints (`.pt`, `.pth`) | [`load_torch`] | |
//! | GGUF, versions 2 and 3 | [`load_gguf`] | |
//!
//! A file goes in, and tensors by name come out, on the default device. A file is data from a
//! stranger: whatever its bytes are, reading it gives tensors or an [`Error`]. Nothing in it is
//! executed, sizes are compared with the length of the file before memory is allocated, and counts,
//! nesting and the lengths of names have limits. The memory of other values, and of views that
//! repeat elements, is limited to a multiple of the file's size. Bytes of bools other than 0 and 1
//! are read as 1.
//!
//! Files are read, not mapped into memory: the bytes of a tensor are copied to its device in any
//! case, and a mapped file that another process truncates would end this process. Saving writes a
//! temporary file in the same folder, which then replaces the file at once, and gives the same
//! bytes for the same tensors. A file that is replaced keeps its mode, symbolic links are followed,
//! and anything but a regular file that may be written is refused, as is a tensor that could not be
//! read again.
//!
//! ```
//! use std::collections::BTreeMap;
//! use gradiff_files::{load_safetensors, save_safetensors};
//! use gradiff_tensor::Tensor;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let path = folder.path().join("model.safetensors");
//! let weight = Tensor::from_slice(&[2, 2], &[1.0f32, 2.0, 3.0, 4.0])?;
//! save_safetensors(&BTreeMap::from([("weight".to_string(), weight)]), &path, None)?;
//! let loaded = load_safetensors(&path)?;
//! assert_eq!(loaded["weight"].to_text()?, "[[1.0, 2.0], [3.0, 4.0]]");
//! # Ok(())
//! # }
//! ```

mod archive;
mod error;
mod gguf;
mod layout;
mod npy;
mod npz;
mod output;
mod pickle;
mod quantized;
mod safetensors;
mod source;
mod torch;

pub use error::Error;
pub use gguf::{GgufContents, GgufValue, load_gguf};
pub use npy::{load_npy, save_npy};
pub use npz::{load_npz, save_npz};
pub use safetensors::{load_safetensors, load_safetensors_metadata, save_safetensors};
pub use torch::load_torch;
