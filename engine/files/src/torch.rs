//! PyTorch's checkpoints: a zip archive of a pickle and of storages, of which tensors are views.

use std::collections::BTreeMap;
use std::path::Path;

use gradiff_graph::DType;
use gradiff_tensor::Tensor;

use crate::Error;
use crate::archive::Archive;
use crate::error::{Problem, broken};
use crate::layout::{Layout, swap_bytes};
use crate::pickle::{self, Kind, Pickle, Value, ValueId, View};
use crate::source::MAX_NAME_BYTES;

/// The maximal size of the pickle. That of a large model has a few MiB.
const MAX_PICKLE_BYTES: u64 = 64 << 20;

/// The maximal nesting of dicts, lists and tuples.
const MAX_DEPTH: usize = 64;

/// The factor by which all tensors of a storage may be larger than the storage.
const MAX_COPIES: u64 = 64;

/// Reads the tensors of a checkpoint that `torch.save` of PyTorch 1.6 or later wrote: a state dict,
/// or any nesting of dicts, lists and tuples. Names are the keys on the way to a tensor, joined by
/// dots, as `optimizer.state.0.step`; a single tensor has the name `""`. Values that are no tensors
/// are left out.
///
/// Tensors that are views of the same elements share memory until either is written. Code in the
/// file is not executed: objects of other classes are an error.
///
/// ```no_run
/// let state = gradiff_files::load_torch("model.pt")?;
/// for (name, tensor) in &state {
///     println!("{name} {tensor:?}");
/// }
/// # Ok::<(), gradiff_files::Error>(())
/// ```
/// # Errors
/// If the file cannot be read, is broken, refers to functions other than those of tensors, or has
/// a dtype that the engine has not.
pub fn load_torch(path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>, Error> {
    let path = path.as_ref();
    load(path).map_err(|problem| problem.at(path))
}

fn load(path: &Path) -> Result<BTreeMap<String, Tensor>, Problem> {
    let mut archive = Archive::open(path)?;
    let is_pickle =
        |name: &String| name.split_once('/').is_some_and(|(_, name)| name == "data.pkl");
    let mut pickles = (0..archive.names.len()).filter(|index| is_pickle(&archive.names[*index]));
    let (Some(index), None) = (pickles.next(), pickles.next()) else {
        return broken("this is no checkpoint: the archive does not have one entry NAME/data.pkl");
    };
    let folder = archive.names[index].trim_end_matches("data.pkl").to_string();
    let entries: BTreeMap<String, usize> =
        archive.names.iter().enumerate().map(|(index, name)| (name.clone(), index)).collect();
    let is_big_endian = match entries.get(&format!("{folder}byteorder")) {
        Some(index) => archive.read(*index, 16)? == b"big",
        None => false,
    };
    let bytes = archive.read(index, MAX_PICKLE_BYTES)?;
    let pickle = pickle::parse(&bytes)?;
    // The tensors of each storage, so that it is read once and is not in memory for longer.
    let mut storages: BTreeMap<&str, Vec<(String, &View)>> = BTreeMap::new();
    for (name, view) in Names::collect(&pickle, bytes.len())? {
        storages.entry(&view.storage.key).or_default().push((name, view));
    }
    let mut tensors = BTreeMap::new();
    for (key, views) in storages {
        let entry = entries.get(&format!("{folder}data/{key}"));
        let Some(entry) = entry else {
            return broken(format!("its storage {key:?} is not in the archive"))
                .map_err(|problem| problem.of_tensor(&views[0].0));
        };
        // All tensors of a storage agree about its size, or one of them is refused.
        let (name, view) = &views[0];
        let size_bytes = storage_bytes(view).map_err(|problem| problem.of_tensor(name))?;
        let bytes = archive.read(*entry, size_bytes);
        let bytes = bytes.map_err(|problem| problem.of_tensor(name))?;
        let mut reader = Views { bytes, is_big_endian, copied_bytes: 0, known: BTreeMap::new() };
        for (name, view) in views {
            let tensor = reader.tensor(view).map_err(|problem| problem.of_tensor(&name))?;
            tensors.insert(name, tensor);
        }
    }
    Ok(tensors)
}

/// The size of the storage of a view, as the pickle says.
fn storage_bytes(view: &View) -> Result<u64, Problem> {
    let size = match &view.storage.kind {
        Kind::Untyped => 1,
        kind => dtype_of(kind)?.size_bytes() as u64,
    };
    let size_bytes = view.storage.size_elements.checked_mul(size);
    size_bytes.ok_or_else(|| Problem::File("its storage is too large".to_string()))
}

fn dtype_of(kind: &Kind) -> Result<DType, Problem> {
    match kind {
        Kind::Known(dtype) => Ok(*dtype),
        Kind::Untyped => broken("its storage has no dtype"),
        Kind::Unsupported(name) => broken(format!(
            "its dtype is that of torch.{name}; convert it to one of the engine's dtypes before"
        )),
    }
}

/// The tensors of a pickle by name.
struct Names<'a> {
    pickle: &'a Pickle,
    tensors: BTreeMap<String, &'a View>,
    /// The number of values that may still be visited: a few bytes could nest shared values so that
    /// there are 2^64 ways to a tensor.
    visits_left: usize,
    /// The number of bytes that names may still have.
    name_bytes_left: usize,
}

impl<'a> Names<'a> {
    fn collect(
        pickle: &'a Pickle,
        size_bytes: usize,
    ) -> Result<BTreeMap<String, &'a View>, Problem> {
        let mut names = Names {
            pickle,
            tensors: BTreeMap::new(),
            visits_left: 1000 + 4 * pickle.values.len(),
            name_bytes_left: (1 << 20) + 16 * size_bytes,
        };
        names.visit(pickle.root, "", 0)?;
        Ok(names.tensors)
    }

    fn visit(&mut self, id: ValueId, name: &str, depth: usize) -> Result<(), Problem> {
        let fuel =
            self.visits_left.checked_sub(1).zip(self.name_bytes_left.checked_sub(name.len()));
        let Some((visits, bytes)) = fuel.filter(|_| depth <= MAX_DEPTH) else {
            return broken("the pickle's dicts are nested too deeply, or share too much");
        };
        (self.visits_left, self.name_bytes_left) = (visits, bytes);
        let pickle = self.pickle;
        match &pickle.values[id] {
            Value::Tensor(view) => {
                if MAX_NAME_BYTES < name.len() as u64 {
                    return broken(format!(
                        "the name of a tensor has more than {MAX_NAME_BYTES} bytes"
                    ));
                }
                if self.tensors.insert(name.to_string(), view).is_some() {
                    return broken(format!("the name {name:?} is there twice"));
                }
            }
            Value::Dict(items) => {
                // As in Python, the last value of a key counts.
                let mut values: BTreeMap<(bool, String), ValueId> = BTreeMap::new();
                for (key, value) in items {
                    match &pickle.values[*key] {
                        Value::Text(key) => drop(values.insert((false, key.clone()), *value)),
                        Value::Int(key) => drop(values.insert((true, key.to_string()), *value)),
                        _ => {}
                    }
                }
                for ((_, key), value) in values {
                    self.visit(value, &join(name, &key), depth + 1)?;
                }
            }
            Value::List(items) | Value::Tuple(items) => {
                for (index, value) in items.iter().enumerate() {
                    self.visit(*value, &join(name, &index.to_string()), depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn join(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_string() } else { format!("{name}.{key}") }
}

/// Dtype, offset, sizes and strides of a view.
type Region<'a> = (DType, u64, &'a [u64], &'a [u64]);

/// The tensors that are views of a storage.
struct Views<'a> {
    bytes: Vec<u8>,
    is_big_endian: bool,
    copied_bytes: u64,
    known: BTreeMap<Region<'a>, Tensor>,
}

impl<'a> Views<'a> {
    fn tensor(&mut self, view: &'a View) -> Result<Tensor, Problem> {
        let size_bytes = storage_bytes(view)?;
        if size_bytes != self.bytes.len() as u64 {
            return broken(format!(
                "its storage has {} bytes, and {size_bytes} in the pickle",
                self.bytes.len()
            ));
        }
        let dtype = dtype_of(&view.kind)?;
        let full = Layout::new(dtype, &view.sizes)?;
        check_within(view, &full, self.bytes.len() / dtype.size_bytes())?;
        let region: Region<'a> = (dtype, view.offset, &view.sizes, &view.strides);
        if let Some(tensor) = self.known.get(&region) {
            // The same memory, and a state of its own.
            return Ok(Tensor::from_uop(tensor.uop())?);
        }
        // Repeated elements are read once.
        let pairs = view.sizes.iter().zip(&view.strides);
        let distinct =
            pairs.map(|(size, stride)| if *stride == 0 { (*size).min(1) } else { *size });
        let layout = Layout::new(dtype, &distinct.collect::<Vec<_>>())?;
        self.copied_bytes = self.copied_bytes.saturating_add(layout.size_bytes());
        if MAX_COPIES.saturating_mul(self.bytes.len() as u64) < self.copied_bytes {
            return broken(format!(
                "the views of its storage have more than {MAX_COPIES} times the storage's elements"
            ));
        }
        let mut bytes = layout.gather(&self.bytes, view.offset, &view.strides)?;
        if self.is_big_endian {
            swap_bytes(&mut bytes, dtype.size_bytes());
        }
        let mut tensor = layout.tensor(bytes)?;
        if layout.shape != full.shape {
            tensor = tensor.expand(&full.shape)?;
        }
        self.known.insert(region, tensor.clone());
        Ok(tensor)
    }
}

/// Checks that all elements of a view are among those of its storage.
fn check_within(view: &View, layout: &Layout, storage_elements: usize) -> Result<(), Problem> {
    if layout.size_elements == 0 {
        return Ok(());
    }
    let mut axes = view.sizes.iter().zip(&view.strides);
    let last = axes.try_fold(view.offset, |address, (size, stride)| {
        address.checked_add((size - 1).checked_mul(*stride)?)
    });
    if last.is_none_or(|last| storage_elements as u64 <= last) {
        return broken(format!(
            "its view of sizes {:?}, strides {:?} and offset {} is larger than its storage of \
             {storage_elements} elements",
            view.sizes, view.strides, view.offset
        ));
    }
    Ok(())
}
