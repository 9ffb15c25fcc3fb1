//! PyTorch's checkpoints: a zip archive of a pickle and of storages, of which tensors are views.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use gradiff_graph::DType;
use gradiff_tensor::Tensor;

use crate::Error;
use crate::archive::Archive;
use crate::error::{Problem, broken};
use crate::layout::{Layout, negate, swap_bytes};
use crate::pickle::{self, Kind, Pickle, Value, ValueId, View};
use crate::source::{Budget, TENSOR_BYTES, check_name};

/// The maximal size of the pickle. That of a large model has a few MiB.
const MAX_PICKLE_BYTES: u64 = 64 << 20;

/// The maximal nesting of dicts, lists and tuples.
const MAX_DEPTH: usize = 64;

/// The factor by which the values of the pickle, the names of tensors, and the copies of elements
/// that several views have may be larger than the file. An opcode has one byte at least, and its
/// value about 40. Storages themselves may be as large as deflate can make them.
const MEMORY_FACTOR: u64 = 64;

/// The memory of an item of a dict that is visited.
const ITEM_BYTES: u64 = 48;

/// Reads the tensors of a checkpoint that `torch.save` of PyTorch 1.6 or later wrote: a state dict,
/// or any nesting of dicts, lists and tuples. Names are the keys on the way to a tensor, joined by
/// dots, as `optimizer.state.0.step`; a single tensor has the name `""`. Keys are texts and
/// integers. Values that are no tensors are left out.
///
/// Tensors that are views of the same elements share memory until either is written. Elements of a
/// tensor with PyTorch's negative bit are negated. Code in the file is not executed: objects of
/// other classes are an error.
///
/// ```no_run
/// let state = gradiff_files::load_torch("model.pt")?;
/// for (name, tensor) in &state {
///     println!("{name} {tensor:?}");
/// }
/// # Ok::<(), gradiff_files::Error>(())
/// ```
/// # Errors
/// If the file cannot be read, is broken, refers to functions other than those of tensors, has a
/// dtype that is not the engine's or a tensor below another key, or needs much more memory than a
/// file of its size should.
pub fn load_torch(path: impl AsRef<Path>) -> Result<BTreeMap<String, Tensor>, Error> {
    let path = path.as_ref();
    load(path).map_err(|problem| problem.at(path))
}

fn load(path: &Path) -> Result<BTreeMap<String, Tensor>, Problem> {
    let mut archive = Archive::open(
        path,
        "a checkpoint of PyTorch before 1.6 is none: load it in a later one, and save it again",
    )?;
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
    let mut memory = Budget::new(archive.size_bytes, MEMORY_FACTOR);
    let pickle = pickle::parse(&bytes, &mut memory)?;
    // The tensors of each storage, so that it is read once and is not in memory for longer.
    let mut storages: BTreeMap<&str, Vec<(String, &View)>> = BTreeMap::new();
    for (name, view) in Names::collect(&pickle, &mut memory)? {
        storages.entry(view.storage.key).or_default().push((name, view));
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
        let mut reader = Views {
            free_bytes: bytes.len() as u64,
            bytes,
            is_big_endian,
            memory: &mut memory,
            known: BTreeMap::new(),
        };
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
struct Names<'a, 'b> {
    pickle: &'a Pickle<'a>,
    tensors: BTreeMap<String, &'a View<'a>>,
    /// The memory that tensors, names, and items of visited dicts may still take. It limits the
    /// number of visits: a few bytes could nest shared values so that there are 2^64 ways to a
    /// tensor.
    memory: &'b mut Budget,
}

impl<'a, 'b> Names<'a, 'b> {
    fn collect(
        pickle: &'a Pickle<'a>,
        memory: &'b mut Budget,
    ) -> Result<BTreeMap<String, &'a View<'a>>, Problem> {
        let mut names = Names { pickle, tensors: BTreeMap::new(), memory };
        names.visit(pickle.root, Some(""), 0)?;
        Ok(names.tensors)
    }

    /// Visits a value. It has no name below a key that is no text or integer.
    fn visit(&mut self, id: ValueId, name: Option<&str>, depth: usize) -> Result<(), Problem> {
        let pickle = self.pickle;
        let size_bytes = match &pickle.values[id] {
            Value::Tensor(_) => TENSOR_BYTES,
            Value::Dict(items) => items.len() as u64 * ITEM_BYTES,
            Value::List(items) | Value::Tuple(items) => items.len() as u64 * ITEM_BYTES,
            _ => return Ok(()),
        };
        let name_bytes = name.map_or(0, str::len) as u64;
        if MAX_DEPTH < depth || !self.memory.take(ITEM_BYTES + size_bytes + name_bytes) {
            return broken("the pickle's dicts are nested too deeply, or share too much");
        }
        match &pickle.values[id] {
            Value::Tensor(view) => {
                let Some(name) = name else {
                    return broken(
                        "a tensor is below a key of a dict that is no text or integer, so that it \
                         has no name; save it with another key",
                    );
                };
                check_name(name)?;
                if self.tensors.insert(name.to_string(), view).is_some() {
                    return broken(format!("the name {name:?} is there twice"));
                }
            }
            Value::Dict(items) => {
                // As in Python, the last value of a key counts.
                let mut values: BTreeMap<(bool, Cow<'_, str>), ValueId> = BTreeMap::new();
                for (key, value) in items {
                    let key = match &pickle.values[*key] {
                        Value::Text(key) => (false, Cow::from(*key)),
                        Value::Int(key) => (true, Cow::from(key.to_string())),
                        _ => {
                            self.visit_item(*value, None, "", depth)?;
                            continue;
                        }
                    };
                    values.insert(key, *value);
                }
                for ((_, key), value) in values {
                    self.visit_item(value, name, &key, depth)?;
                }
            }
            Value::List(items) | Value::Tuple(items) => {
                for (index, value) in items.iter().enumerate() {
                    self.visit_item(*value, name, &index.to_string(), depth)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Visits an item of a value that is visited.
    fn visit_item(
        &mut self,
        id: ValueId,
        name: Option<&str>,
        key: &str,
        depth: usize,
    ) -> Result<(), Problem> {
        match &self.pickle.values[id] {
            Value::Tensor(_) | Value::Dict(_) | Value::List(_) | Value::Tuple(_) => {
                let name = name.map(|name| join(name, key));
                self.visit(id, name.as_deref(), depth + 1)
            }
            // Nothing with a name.
            _ => Ok(()),
        }
    }
}

fn join(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_string() } else { format!("{name}.{key}") }
}

/// Dtype, negative bit, offset, sizes and strides of a view.
type Region<'a> = (DType, bool, u64, &'a [u64], &'a [u64]);

/// The tensors that are views of a storage.
struct Views<'a, 'b> {
    bytes: Vec<u8>,
    is_big_endian: bool,
    /// The number of bytes that may still be copied without the budget: as many as the storage has.
    free_bytes: u64,
    memory: &'b mut Budget,
    known: BTreeMap<Region<'a>, Tensor>,
}

impl<'a> Views<'a, '_> {
    fn tensor(&mut self, view: &'a View<'a>) -> Result<Tensor, Problem> {
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
        let region: Region<'a> = (dtype, view.is_negative, view.offset, &view.sizes, &view.strides);
        if let Some(tensor) = self.known.get(&region) {
            // The same memory, and a state of its own.
            return Ok(Tensor::from_uop(tensor.uop())?);
        }
        // Repeated elements are read once.
        let pairs = view.sizes.iter().zip(&view.strides);
        let distinct =
            pairs.map(|(size, stride)| if *stride == 0 { (*size).min(1) } else { *size });
        let layout = Layout::new(dtype, &distinct.collect::<Vec<_>>())?;
        let free_bytes = self.free_bytes.min(layout.size_bytes());
        self.free_bytes -= free_bytes;
        if !self.memory.take(layout.size_bytes() - free_bytes) {
            return broken(format!(
                "views of the same elements need more than {MEMORY_FACTOR} times the file's size; \
                 save clones of them"
            ));
        }
        let mut bytes = layout.gather(&self.bytes, view.offset, &view.strides)?;
        if self.is_big_endian {
            swap_bytes(&mut bytes, dtype.size_bytes());
        }
        if view.is_negative {
            if dtype == DType::Bool {
                return broken("its negative bit is set, and a bool has no negative");
            }
            negate(&mut bytes, dtype);
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
