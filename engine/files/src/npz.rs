//! NumPy's `.npz`: a zip archive of `.npy` files.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use gradiff_tensor::Tensor;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use crate::Error;
use crate::archive::{Archive, MAX_ENTRIES};
use crate::error::{Problem, broken};
use crate::npy;
use crate::output::write_atomically;
use crate::source::{MAX_NAME_BYTES, check_name};

/// Reads all arrays of a `.npz` file, compressed or not, by their names without `.npy`.
/// # Errors
/// If the file cannot be read or is broken, or an array cannot be read (as
/// [`load_npy`](crate::load_npy)).
pub fn load_npz(path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>, Error> {
    let path = path.as_ref();
    load(path).map_err(|problem| problem.at(path))
}

/// Writes tensors to a `.npz` file, without compression, as `numpy.savez`. Computes them first. The
/// file is replaced at once, and its bytes depend on the tensors alone.
///
/// ```
/// # use std::collections::BTreeMap;
/// # use gradiff_tensor::Tensor;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("data.npz");
/// let tensors = BTreeMap::from([("x".to_string(), Tensor::from_slice(&[2], &[true, false])?)]);
/// gradiff_files::save_npz(&tensors, &path)?;
/// assert_eq!(gradiff_files::load_npz(&path)?["x"].to_text()?, "[true, false]");
/// # Ok(())
/// # }
/// ```
/// # Errors
/// If a tensor cannot be computed, has more than 64 axes, a name of no or of more than 4096 bytes,
/// or is of bf16, or the file cannot be written.
pub fn save_npz(tensors: &BTreeMap<String, Tensor>, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    save(tensors, path).map_err(|problem| problem.at(path))
}

fn load(path: &Path) -> Result<BTreeMap<String, Tensor>, Problem> {
    let mut archive = Archive::open(path, "a .npz file is an archive of .npy files")?;
    let mut tensors = BTreeMap::new();
    for index in 0..archive.names.len() {
        let entry = archive.names[index].clone();
        let name = entry.strip_suffix(".npy").unwrap_or_default();
        if name.is_empty() || MAX_NAME_BYTES < name.len() as u64 {
            return broken(format!(
                "the entry {entry:?} is no array NAME.npy, with a name of 1 to {MAX_NAME_BYTES} \
                 bytes"
            ));
        }
        let tensor = archive.read_with(index, npy::read);
        let tensor = tensor.map_err(|problem| problem.of_tensor(name))?;
        if tensors.insert(name.to_string(), tensor).is_some() {
            return broken(format!("the name {name:?} is there twice"));
        }
    }
    Ok(tensors)
}

fn save(tensors: &BTreeMap<String, Tensor>, path: &Path) -> Result<(), Problem> {
    if MAX_ENTRIES < tensors.len() {
        return broken(format!("{} tensors; {MAX_ENTRIES} are allowed", tensors.len()));
    }
    let mut headers = Vec::new();
    for (name, tensor) in tensors {
        if name.is_empty() {
            return broken("a tensor has no name; names of arrays have at least one byte");
        }
        check_name(name)?;
        headers.push(npy::header_of(tensor).map_err(|problem| problem.of_tensor(name))?);
    }
    gradiff_tensor::realize(&tensors.values().collect::<Vec<_>>())?;
    write_atomically(path, |writer| {
        let mut zip = ZipWriter::new(writer);
        for ((name, tensor), header) in tensors.iter().zip(headers) {
            let bytes = tensor.to_bytes().map_err(|error| Problem::from(error).of_tensor(name))?;
            // Entries of 4 GiB or more need longer fields.
            let is_large = u64::from(u32::MAX) <= (header.len() + bytes.len()) as u64;
            let options = SimpleFileOptions::default()
                .compression_method(CompressionMethod::Stored)
                .last_modified_time(zip::DateTime::default())
                .large_file(is_large);
            zip.start_file(format!("{name}.npy"), options)?;
            zip.write_all(&header)?;
            zip.write_all(&bytes)?;
        }
        zip.finish()?;
        Ok(())
    })
}
