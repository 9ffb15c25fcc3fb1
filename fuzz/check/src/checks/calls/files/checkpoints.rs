//! Checkpoints of PyTorch, as models and optimisers have them: tensors in nested dicts and lists,
//! of which several are views of one storage.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::path::Path;

use gradiff::files::load_torch;
use gradiff::{DType, Engine, Tensor};

use super::pickles::{Object, pickle};
use super::written::drawn_arrays;
use super::zips::{Entry, archive};
use super::{Array, Written, drawn_bytes, names_of, shuffled, swap};
use crate::checks::calls::Draw;
use crate::checks::calls::values::dtypes;

/// Number of tensors that are not the same object, at most.
const TENSORS_MAX: usize = 10;
/// Nesting of dicts, lists and tuples at most.
const DEPTH_MAX: usize = 3;

/// A storage: a file of the archive.
struct Storage {
    key: String,
    /// The dtype of its class; none if it is one of bytes.
    dtype: Option<DType>,
    bytes: Vec<u8>,
}

impl Storage {
    /// Draws a storage of at least 160 bytes: 20 elements of the largest dtypes.
    fn draw(draw: &mut Draw, key: String, is_big_endian: bool) -> Storage {
        let typed = dtypes().into_iter().filter(|dtype| !names_of(*dtype).storage.is_empty());
        let dtype = draw.pick(&typed.collect::<Vec<DType>>());
        if draw.one_in(3) {
            let count = 160 + draw.below(20);
            return Storage { key, dtype: None, bytes: drawn_bytes(draw, DType::U8, count) };
        }
        let size = dtype.size_bytes();
        let count = 160 / size + draw.below(4);
        let mut bytes = drawn_bytes(draw, DType::U8, count * size);
        let high = if is_big_endian { 0 } else { size - 1 };
        if dtype.is_float() {
            // Without the highest bit of the exponent no element is NaN, whose bits may change.
            bytes.chunks_exact_mut(size).for_each(|element| element[high] &= !0x40);
        }
        Storage { key, dtype: Some(dtype), bytes }
    }

    /// The number of elements of a dtype.
    fn count(&self, dtype: DType) -> usize {
        self.bytes.len() / dtype.size_bytes()
    }

    /// Returns whether the elements of a dtype may be NaN.
    fn may_have_nan(&self, dtype: DType) -> bool {
        let is_like = |known: DType| known.is_float() && known.size_bytes() == dtype.size_bytes();
        dtype.is_float() && !self.dtype.is_some_and(is_like)
    }
}

/// A tensor: a view of a storage. Offset and strides are in elements.
#[derive(Clone, Debug, PartialEq)]
struct View {
    storage: usize,
    dtype: DType,
    is_negative: bool,
    offset: usize,
    sizes: Vec<usize>,
    strides: Vec<usize>,
}

impl View {
    fn draw(draw: &mut Draw, storages: &[Storage]) -> View {
        let storage = draw.below(storages.len());
        let dtype = match storages[storage].dtype {
            Some(dtype) if !draw.one_in(5) => dtype,
            _ => draw.pick(&dtypes()),
        };
        let rank = draw.below(4);
        let sizes: Vec<usize> = (0..rank).map(|_| draw.pick(&[2, 3, 1, 4, 2, 3, 0])).collect();
        let strides = match draw.below(4) {
            order @ 0..=1 => strides_of(&sizes, order == 1),
            _ => sizes.iter().map(|_| draw.pick(&[0, 1, 2, 3, 5])).collect(),
        };
        let is_negative = dtype != DType::Bool && draw.one_in(4);
        let mut view = View { storage, dtype, is_negative, offset: 0, sizes, strides };
        // Elements that repeat, or windows that overlap, where there are too few.
        for axis in 0..rank {
            if !view.fits(storages) {
                view.strides[axis] = draw.below(2);
            }
            if !view.fits(storages) {
                view.strides[axis] = 1;
            }
        }
        for axis in 0..rank {
            // The stride of an axis of a single element says nothing.
            if view.sizes[axis] == 1 && draw.one_in(2) {
                view.strides[axis] = draw.pick(&[0, 1, 7, 1000]);
            }
        }
        assert!(view.fits(storages), "{view:?} is larger than its storage");
        let last = view.last();
        let free = last.map_or(1000, |last| storages[storage].count(dtype) - 1 - last);
        view.offset = draw.pick(&[0, free, free / 2]);
        view
    }

    fn count(&self) -> usize {
        self.sizes.iter().product()
    }

    /// The index of the last element in the storage; none without elements.
    fn last(&self) -> Option<usize> {
        let axes = self.sizes.iter().zip(&self.strides);
        (self.count() != 0)
            .then(|| self.offset + axes.map(|(size, stride)| (size - 1) * stride).sum::<usize>())
    }

    /// Returns whether the storage has all elements, and the bits of none of them may change when
    /// elements are repeated.
    fn fits(&self, storages: &[Storage]) -> bool {
        let storage = &storages[self.storage];
        let may_change = self.repeats() && storage.may_have_nan(self.dtype);
        !may_change && self.last().is_none_or(|last| last < storage.count(self.dtype))
    }

    /// Returns whether an axis repeats the same elements.
    fn repeats(&self) -> bool {
        self.sizes.iter().zip(&self.strides).any(|(size, stride)| *size != 1 && *stride == 0)
    }

    /// The view with another value of one of its fields, if that is in the storage, too.
    fn changed(&self, draw: &mut Draw, storages: &[Storage]) -> View {
        let mut view = self.clone();
        match draw.below(6) {
            0 | 1 => view.is_negative = view.dtype != DType::Bool && !view.is_negative,
            2 => {
                let size = view.dtype.size_bytes();
                let of_size = dtypes().into_iter().filter(|dtype| dtype.size_bytes() == size);
                view.dtype = draw.pick(&of_size.collect::<Vec<DType>>());
                view.is_negative &= view.dtype != DType::Bool;
            }
            3 => view.offset = if draw.one_in(2) { view.offset + 1 } else { view.offset / 2 },
            4 => view.strides.reverse(),
            _ => view.sizes.reverse(),
        }
        if view.fits(storages) { view } else { self.clone() }
    }

    /// The elements.
    fn array(&self, storages: &[Storage], is_big_endian: bool) -> Array {
        let (size, stored) = (self.dtype.size_bytes(), &storages[self.storage].bytes);
        let mut bytes = Vec::new();
        for number in 0..self.count() {
            let (mut rest, mut address) = (number, self.offset);
            for (axis_size, stride) in self.sizes.iter().zip(&self.strides).rev() {
                address += rest % axis_size * stride;
                rest /= axis_size;
            }
            let mut element = stored[address * size..][..size].to_vec();
            if is_big_endian {
                // As the machine that saved it has the elements; PyTorch swaps by the dtype of the
                // storage.
                element.reverse();
            }
            match (self.dtype, self.is_negative) {
                (DType::Bool, _) => element[0] = u8::from(element[0] != 0),
                (_, false) => {}
                (dtype, true) if dtype.is_float() => element[size - 1] ^= 0x80,
                _ => {
                    let mut word = [0; 8];
                    word[..size].copy_from_slice(&element);
                    let negative = u64::from_le_bytes(word).wrapping_neg().to_le_bytes();
                    element.copy_from_slice(&negative[..size]);
                }
            }
            bytes.extend(element);
        }
        let shape = self.sizes.iter().map(|size| *size as i64).collect();
        Array { dtype: self.dtype, shape, bytes }
    }
}

/// The strides of elements without gaps, of which the first axis varies fastest if they are
/// column-major, and the last if not.
fn strides_of(sizes: &[usize], is_column_major: bool) -> Vec<usize> {
    let (mut strides, mut stride) = (vec![1; sizes.len()], 1);
    for number in 0..sizes.len() {
        let axis = if is_column_major { number } else { sizes.len() - 1 - number };
        strides[axis] = stride;
        stride *= sizes[axis].max(1);
    }
    strides
}

/// Draws the storage of an array, with elements before and after it, and its view.
fn stored(draw: &mut Draw, array: &Array, at: usize, is_big_endian: bool) -> (Storage, View) {
    let (dtype, is_transposed, stored) = (array.dtype, draw.one_in(3), array.stored(draw));
    let elements = if is_transposed { stored.column_major() } else { stored.bytes };
    let (offset, after) = (draw.below(3), draw.below(3));
    let [before, after] = [offset, after].map(|count| drawn_bytes(draw, dtype, count));
    let mut bytes = [before, elements, after].concat();
    if is_big_endian {
        swap(&mut bytes, dtype);
    }
    let class = (!names_of(dtype).storage.is_empty()).then_some(dtype);
    let sizes: Vec<usize> = array.shape.iter().map(|size| *size as usize).collect();
    let strides = strides_of(&sizes, is_transposed);
    let view = View { storage: at, dtype, is_negative: false, offset, sizes, strides };
    (Storage { key: at.to_string(), dtype: class, bytes }, view)
}

/// Draws a dict of tensors of which each has a storage alone.
pub(super) fn torch(draw: &mut Draw) -> Written {
    let (tensors, is_big_endian) = (drawn_arrays(draw, &dtypes()), draw.one_in(4));
    let (mut storages, mut items) = (Vec::new(), Vec::new());
    for (name, array) in &tensors {
        let (storage, view) = stored(draw, array, storages.len(), is_big_endian);
        items.push((Object::text(name), rebuilt(draw, &storage, &view)));
        storages.push(storage);
    }
    let bytes = file(draw, &Object::Dict(items), &storages, is_big_endian);
    Written { bytes, tensors, ..Written::default() }
}

/// The objects of a checkpoint, while they are drawn.
struct Builder<'a> {
    draw: &'a mut Draw,
    storages: Vec<Storage>,
    /// The tensors that were drawn before.
    views: Vec<View>,
    /// The tensors whose objects may be used again, by the number of the object.
    kept: Vec<View>,
    /// The tensors by name.
    tensors: BTreeMap<String, View>,
}

impl Builder<'_> {
    fn new(draw: &mut Draw, storages: Vec<Storage>) -> Builder<'_> {
        let (views, kept) = (Vec::new(), Vec::new());
        Builder { draw, storages, views, kept, tensors: BTreeMap::new() }
    }

    /// An object that has this name in the file.
    fn object(&mut self, name: &str, depth: usize) -> Object {
        if self.views.len() == TENSORS_MAX {
            return self.plain();
        }
        let kind = match depth {
            // At times, the file has a single tensor.
            0 => 1 + self.draw.below(16),
            DEPTH_MAX => 0,
            _ => self.draw.below(9),
        };
        match kind {
            0..=2 if depth != 0 || kind == 1 => self.tensor(name),
            3 | 4 => {
                let items = self.items(name, depth);
                if kind == 3 { Object::List(items) } else { Object::Tuple(items) }
            }
            _ => self.dict(name, depth),
        }
    }

    /// The items of a list or a tuple.
    fn items(&mut self, name: &str, depth: usize) -> Vec<Object> {
        let count = 1 + self.draw.below(3);
        let mut items = Vec::new();
        for index in 0..count {
            items.push(match self.draw.one_in(4) {
                true => self.plain(),
                false => self.object(&joined(name, &index.to_string()), depth + 1),
            });
        }
        items
    }

    fn dict(&mut self, name: &str, depth: usize) -> Object {
        let texts = ["w", "layers.0.bias", "x y", "größe"].map(Object::text);
        let numbers = [0, 7, -3, 300, 70_000, 1 << 40].map(Object::Int);
        let keys = shuffled(self.draw, [texts.to_vec(), numbers.to_vec()].concat());
        let count = 1 + self.draw.below(4);
        let mut items = Vec::new();
        for key in keys.into_iter().take(count) {
            let said = match &key {
                Object::Int(number) => number.to_string(),
                Object::Text(text) => text.clone(),
                key => unreachable!("{key:?} is no key"),
            };
            if self.draw.one_in(6) {
                // The last value of a key counts.
                let view = View::draw(self.draw, &self.storages);
                let before = match self.draw.one_in(2) {
                    true => self.plain(),
                    false => rebuilt(self.draw, &self.storages[view.storage], &view),
                };
                items.push((key.clone(), before));
            }
            let value = match self.draw.one_in(5) {
                true => self.plain(),
                false => self.object(&joined(name, &said), depth + 1),
            };
            items.push((key, value));
            if self.draw.one_in(6) {
                // Another key, below which no tensor is.
                let key = self.draw.pick(&[0.5, -1.0]);
                let value = Object::List(vec![self.plain()]);
                items.push((Object::Float(key), value));
            }
        }
        match self.draw.below(4) {
            0 => Object::ordered(items),
            1 => {
                // As `state_dict` gives them, with the versions of modules.
                let version = vec![(Object::text("version"), Object::Int(2))];
                let versions = vec![(Object::text(""), Object::Dict(version))];
                let state = vec![(Object::text("_metadata"), Object::ordered(versions))];
                Object::State(Box::new(Object::ordered(items)), Box::new(Object::Dict(state)))
            }
            _ => Object::Dict(items),
        }
    }

    /// An object that is no tensor and has none.
    fn plain(&mut self) -> Object {
        match self.draw.below(13) {
            0 => Object::None,
            1 => Object::Bool(self.draw.one_in(2)),
            2 => Object::Int(self.draw.pick(&[0, 255, 256, 65_535, 65_536, -1, i64::MIN])),
            3 => Object::Large,
            4 => Object::Float(0.1),
            5 => Object::text("a note"),
            6 => Object::Bytes(vec![b'b'; self.draw.pick(&[0, 3, 300])]),
            7 => Object::call("torch", "Size", vec![Object::numbers(&[2, 3])]),
            8 => Object::Global("torch", "float32"),
            9 => Object::Dict(Vec::new()),
            10 => Object::ordered(vec![(Object::text("lr"), Object::Float(1e-3))]),
            11 => Object::List(vec![Object::Tuple(Vec::new()), Object::None]),
            _ => Object::Text("long ".repeat(60)),
        }
    }

    /// A tensor: a new one, a view of the elements of an earlier one, or the same object.
    fn tensor(&mut self, name: &str) -> Object {
        if !self.kept.is_empty() && self.draw.one_in(4) {
            let number = self.draw.below(self.kept.len());
            self.tensors.insert(name.to_string(), self.kept[number].clone());
            return Object::Again(number);
        }
        let view = match self.draw.below(5) {
            at @ 0..=2 if !self.views.is_empty() => {
                let known = self.views[self.draw.below(self.views.len())].clone();
                if at == 0 { known } else { known.changed(self.draw, &self.storages) }
            }
            _ => View::draw(self.draw, &self.storages),
        };
        self.tensors.insert(name.to_string(), view.clone());
        self.views.push(view.clone());
        let mut object = rebuilt(self.draw, &self.storages[view.storage], &view);
        if self.draw.one_in(3) {
            let arguments = vec![object, Object::Bool(true), Object::ordered(Vec::new())];
            object = Object::call("torch._utils", "_rebuild_parameter", arguments);
        }
        if self.draw.one_in(3) {
            self.kept.push(view);
            object = Object::Kept(self.kept.len() - 1, Box::new(object));
        }
        object
    }
}

/// The object of a tensor, as PyTorch pickles it.
fn rebuilt(draw: &mut Draw, storage: &Storage, view: &View) -> Object {
    let id = storage_id(storage.dtype, &storage.key, storage.bytes.len());
    let is_typed = storage.dtype == Some(view.dtype) && !draw.one_in(4);
    let numbers = |list: &[usize]| {
        Object::numbers(&list.iter().map(|number| *number as i64).collect::<Vec<i64>>())
    };
    let mut sizes = numbers(&view.sizes);
    if draw.one_in(4) {
        sizes = Object::call("torch", "Size", vec![sizes]);
    }
    let mut arguments = vec![
        Object::Persistent(Box::new(id)),
        Object::Int(view.offset as i64),
        sizes,
        numbers(&view.strides),
        Object::Bool(draw.one_in(2)),
        Object::ordered(Vec::new()),
    ];
    if !is_typed {
        arguments.push(Object::Global("torch", names_of(view.dtype).torch));
    }
    let flag = |name: &str, value: bool| (Object::text(name), Object::Bool(value));
    let conjugate = flag("conj", false);
    match (view.is_negative, draw.below(4)) {
        (true, 0 | 1) => arguments.push(Object::Dict(vec![flag("neg", true)])),
        (true, 2) => arguments.push(Object::Dict(vec![flag("neg", true), conjugate])),
        (true, _) => arguments.push(Object::Dict(vec![conjugate, flag("neg", true)])),
        (false, 0) => arguments.push(Object::None),
        (false, 1) => arguments.push(Object::Dict(Vec::new())),
        (false, 2) => arguments.push(Object::Dict(vec![flag("neg", false), conjugate])),
        (false, _) => {}
    }
    let function = if is_typed { "_rebuild_tensor_v2" } else { "_rebuild_tensor_v3" };
    Object::call("torch._utils", function, arguments)
}

/// The id of a storage of so many bytes.
pub(super) fn storage_id(dtype: Option<DType>, key: &str, size_bytes: usize) -> Object {
    let (class, size) = match dtype {
        Some(dtype) => {
            (Object::Global("torch", names_of(dtype).storage), size_bytes / dtype.size_bytes())
        }
        None => (Object::Global("torch.storage", "UntypedStorage"), size_bytes),
    };
    let [tag, key, location] = ["storage", key, "cpu"].map(Object::text);
    Object::Tuple(vec![tag, class, key, location, Object::Int(size as i64)])
}

fn joined(name: &str, key: &str) -> String {
    if name.is_empty() { key.to_string() } else { format!("{name}.{key}") }
}

/// Draws a checkpoint, reads it, and checks its tensors.
pub(super) fn check(draw: &mut Draw, path: &Path) -> Result<(), String> {
    let is_big_endian = draw.one_in(3);
    let count = 1 + draw.below(3);
    let storages = (0..count).map(|at| Storage::draw(draw, (at * 7).to_string(), is_big_endian));
    let storages = storages.collect();
    let mut builder = Builder::new(draw, storages);
    let root = builder.object("", 0);
    let Builder { draw, storages, tensors, .. } = builder;
    let bytes = file(draw, &root, &storages, is_big_endian);
    std::fs::write(path, bytes).map_err(|error| error.to_string())?;
    let expected: BTreeMap<String, Array> = tensors
        .iter()
        .map(|(name, view)| (name.clone(), view.array(&storages, is_big_endian)))
        .collect();
    agree(path, &tensors, &expected).map_err(|problem| format!("{problem}, of {root:?}"))
}

/// The archive of a pickle and of storages.
fn file(draw: &mut Draw, root: &Object, storages: &[Storage], is_big_endian: bool) -> Vec<u8> {
    let folder = draw.pick(&["model", "archive", "a_model_of_21_letters", "a b"]);
    let mut parts = vec![("data.pkl".to_string(), pickle(draw, root))];
    for storage in storages {
        parts.push((format!("data/{}", storage.key), storage.bytes.clone()));
    }
    if is_big_endian || draw.one_in(2) {
        let order: &[u8] = if is_big_endian { b"big" } else { b"little" };
        parts.push(("byteorder".to_string(), order.to_vec()));
    }
    if draw.one_in(2) {
        // What else PyTorch writes, and a storage that no tensor has.
        for (name, text) in [("version", "3\n"), (".format_version", "1"), ("data/99", "")] {
            parts.push((name.to_string(), text.as_bytes().to_vec()));
        }
    }
    let parts = if draw.one_in(2) { parts } else { shuffled(draw, parts) };
    let mut entries = Vec::new();
    for (name, data) in parts {
        entries.push(Entry::drawn(draw, &format!("{folder}/{name}"), data));
    }
    archive(&entries)
}

/// Reads a checkpoint and compares its tensors with those that it was written from.
fn agree(
    path: &Path,
    views: &BTreeMap<String, View>,
    expected: &BTreeMap<String, Array>,
) -> Result<(), String> {
    let problem = |error: gradiff::Error| error.to_string();
    let loaded = load_torch(path).map_err(|error| error.to_string())?;
    let pairs = shared_pairs(views, &loaded)?;
    // Elements that repeat are not in memory, but a graph.
    let lazy: Vec<&Tensor> = loaded.values().filter(|tensor| tensor.buffer().is_none()).collect();
    if !lazy.is_empty() {
        Engine::new("interp").and_then(|engine| engine.realize(&lazy)).map_err(problem)?;
    }
    let read = |tensors: &BTreeMap<String, Tensor>| {
        let arrays = tensors.iter().map(|(name, tensor)| Ok((name.clone(), Array::read(tensor)?)));
        arrays.collect::<Result<BTreeMap<String, Array>, String>>()
    };
    let found = read(&loaded)?;
    if found != *expected {
        return Err(format!("it has {found:?}, not {expected:?}"));
    }
    let Some((first, second)) = pairs.first() else { return Ok(()) };
    // What is written to a tensor is in no other.
    let mut array = expected[*first].clone();
    array.bytes.iter_mut().for_each(|byte| *byte ^= 1);
    let value = Tensor::from_bytes(array.dtype, &array.shape, &array.bytes).map_err(problem)?;
    loaded[*first].assign(&value).map_err(problem)?;
    let mut expected = expected.clone();
    expected.insert(first.to_string(), array);
    let found = read(&loaded)?;
    if found != expected {
        let (first, second) = (&found[*first], &found[*second]);
        return Err(format!("after an assignment: {first:?}, and a view of the same: {second:?}"));
    }
    Ok(())
}

/// The names of tensors that are views of the same elements, which must share their memory.
fn shared_pairs<'a>(
    views: &'a BTreeMap<String, View>,
    loaded: &BTreeMap<String, Tensor>,
) -> Result<Vec<(&'a String, &'a String)>, String> {
    let mut pairs = Vec::new();
    for (first, view) in views {
        let after = views.range::<String, _>((Bound::Excluded(first), Bound::Unbounded));
        for (second, _) in after.filter(|(_, known)| *known == view) {
            let (Some(here), Some(there)) = (loaded.get(first), loaded.get(second)) else {
                return Err(format!("{first:?} or {second:?} is missing"));
            };
            if here.buffer() != there.buffer() {
                return Err(format!("{first:?} and {second:?} do not share their memory"));
            }
            if here.buffer().is_some() {
                pairs.push((first, second));
            }
        }
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_fit_in_their_storages() {
        for seed in 0..20_000 {
            let mut draw = Draw::new(seed);
            let storages = [Storage::draw(&mut draw, "0".to_string(), false)];
            let view = View::draw(&mut draw, &storages);
            assert!(view.fits(&storages), "seed {seed}: {view:?}");
        }
    }

    /// Some checkpoints have views that differ by their negative bit alone, and views that are the
    /// same.
    #[test]
    fn views_that_are_alike_are_drawn() {
        let (mut negated, mut same) = (0, 0);
        for seed in 0..60 {
            let mut draw = Draw::new(seed);
            let storages = vec![Storage::draw(&mut draw, "0".to_string(), false)];
            let mut builder = Builder::new(&mut draw, storages);
            builder.object("", 0);
            let views = &builder.views;
            let pairs = (0..views.len()).flat_map(|last| (0..last).map(move |at| (at, last)));
            let pairs = pairs.map(|(at, last)| (&views[at], &views[last]));
            let pairs: Vec<(&View, &View)> = pairs.collect();
            negated += usize::from(pairs.iter().any(|(first, second)| {
                let is_negative = second.is_negative;
                first != second && **second == View { is_negative, ..(*first).clone() }
            }));
            same += usize::from(pairs.iter().any(|(first, second)| first == second));
        }
        assert!(3 < negated && 3 < same, "{negated} and {same} of 60");
    }
}
