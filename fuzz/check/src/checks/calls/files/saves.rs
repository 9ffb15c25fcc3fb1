//! Files that tensors are saved to: their bytes are those of the formats, and they replace what was
//! there at once, or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use gradiff::files::{Error, save_npy, save_npz, save_safetensors};
use gradiff::{DType, Tensor};

use super::written::{NAME_MAX, RANK_MAX, drawn_arrays, drawn_texts, npy_text};
use super::zips::crc;
use super::{Array, Format, Written, agrees, is_refusal, names_of, numpy_dtypes};
use crate::checks::calls::Draw;
use crate::checks::calls::values::dtypes;

/// Draws tensors, of which some are not computed yet, saves them and reads the file.
pub(super) fn saved(draw: &mut Draw, folder: &Path) -> Result<(), String> {
    let path = &folder.join("tensors");
    let replaced = Replaced::draw(draw, folder).map_err(|error| error.to_string())?;
    let format = draw.pick(&[Format::Npy, Format::Npz, Format::Safetensors]);
    let dtypes = if format == Format::Safetensors { dtypes() } else { numpy_dtypes() };
    let mut arrays = drawn_arrays(draw, &dtypes);
    let mut tensors = BTreeMap::new();
    for (name, array) in &mut arrays {
        tensors.insert(name.clone(), tensor(draw, array).map_err(|error| error.to_string())?);
    }
    let texts = if draw.one_in(3) { None } else { Some(drawn_texts(draw)) };
    let (name, array) = arrays.first_key_value().expect("there are some");
    let written = match format {
        Format::Npy => save_npy(&tensors[name], path),
        Format::Npz => save_npz(&tensors, path),
        _ => save_safetensors(&tensors, path, texts.as_ref()),
    };
    let problem = |problem: String| format!("saved {format:?}: {problem}");
    written.map_err(|error| problem(error.to_string()))?;
    replaced.check(folder).map_err(problem)?;
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let is_right = match format {
        Format::Npy => is_npy(&bytes, array),
        Format::Npz => is_npz(&bytes, &arrays),
        _ => is_safetensors(&bytes, &arrays, texts.as_ref()).unwrap_or(false),
    };
    if !is_right {
        return Err(problem(format!("{bytes:?} is not the file of {arrays:?}")));
    }
    let tensors = match format {
        Format::Npy => BTreeMap::from([(String::new(), array.clone())]),
        _ => arrays,
    };
    let texts = texts.unwrap_or_default();
    agrees(format, path, &Written { tensors, texts, ..Written::default() }).map_err(problem)
}

/// The tensor of an array; or, if its elements are integers, at times a tensor of them in reverse
/// that is not computed yet, to which the array is changed.
fn tensor(draw: &mut Draw, array: &mut Array) -> Result<Tensor, gradiff::Error> {
    let data = Tensor::from_bytes(array.dtype, &array.shape, &array.bytes)?;
    if array.dtype.is_float() || array.count() == 0 || array.shape.is_empty() || draw.one_in(2) {
        return Ok(data);
    }
    let row_bytes = array.bytes.len() / array.shape[0] as usize;
    array.bytes = array.bytes.chunks_exact(row_bytes).rev().flatten().copied().collect();
    data.to("interp")?.flip(&[0])
}

/// Returns whether this is version 1 of the `.npy` file of an array, as NumPy writes it.
fn is_npy(bytes: &[u8], array: &Array) -> bool {
    let rest = bytes.strip_prefix(b"\x93NUMPY\x01\x00".as_slice());
    let Some((length, rest)) = rest.and_then(|rest| rest.split_first_chunk::<2>()) else {
        return false;
    };
    let length = usize::from(u16::from_le_bytes(*length));
    let Some((text, data)) = rest.split_at_checked(length) else { return false };
    let order = if array.dtype.size_bytes() == 1 { '|' } else { '<' };
    // Spaces let the first size grow to 21 digits, and at least another aligns the data.
    let wanted = npy_text(array, order, false);
    let digits = array.shape.first().map_or(21, |size| size.to_string().len());
    let size = 10 + wanted.len() + (21 - digits) + 1;
    let is_padded = 10 + length == size + 64 - size % 64 && text.ends_with(b"\n");
    is_padded && text.trim_ascii_end() == wanted.as_bytes() && data == array.bytes
}

/// Returns whether this is a zip archive, without compression, of the `.npy` files of arrays.
fn is_npz(bytes: &[u8], arrays: &BTreeMap<String, Array>) -> bool {
    let Some(entries) = unzipped(bytes) else { return false };
    let has = |(name, array): (&String, &Array)| {
        entries.get(&format!("{name}.npy")).is_some_and(|entry| is_npy(entry, array))
    };
    entries.len() == arrays.len() && arrays.iter().all(has)
}

/// The entries of a zip archive without compression and comments, and of the first date that zip
/// has, as NumPy writes them; `None` if it is none.
fn unzipped(bytes: &[u8]) -> Option<BTreeMap<String, &[u8]>> {
    let word = |at: usize, size: usize| {
        let bytes = bytes.get(at..at + size)?;
        Some(bytes.iter().rev().fold(0, |word, byte| word << 8 | usize::from(*byte)))
    };
    let end = bytes.len().checked_sub(22)?;
    let mut at = word(end + 16, 4)?;
    let mut entries = BTreeMap::new();
    for _ in 0..word(end + 10, 2)? {
        let is_dated = (word(at + 12, 2)?, word(at + 14, 2)?) == (0, 0x21);
        let is_stored = bytes.get(at..)?.starts_with(b"PK\x01\x02") && word(at + 10, 2)? == 0;
        let (crc_here, size, name_size) = (word(at + 16, 4)?, word(at + 24, 4)?, word(at + 28, 2)?);
        let name = std::str::from_utf8(bytes.get(at + 46..at + 46 + name_size)?).ok()?;
        let local = word(at + 42, 4)?;
        let is_local = bytes.get(local..)?.starts_with(b"PK\x03\x04");
        let start = local + 30 + word(local + 26, 2)? + word(local + 28, 2)?;
        let data = bytes.get(start..start + size)?;
        if !is_dated || !is_stored || !is_local || crc(data) as usize != crc_here {
            return None;
        }
        entries.insert(name.to_string(), data);
        at += 46 + name_size + word(at + 30, 2)? + word(at + 32, 2)?;
    }
    (at == end).then_some(entries)
}

/// Returns whether this is the safetensors file of arrays, whose data is without gaps and aligned;
/// `None` if it has no header.
fn is_safetensors(
    bytes: &[u8],
    arrays: &BTreeMap<String, Array>,
    texts: Option<&BTreeMap<String, String>>,
) -> Option<bool> {
    let (length, rest) = bytes.split_first_chunk::<8>()?;
    let (text, data) = rest.split_at_checked(u64::from_le_bytes(*length) as usize)?;
    let header: serde_json::Value = serde_json::from_slice(text).ok()?;
    for (name, array) in arrays {
        let entry = &header[name.as_str()];
        let start = entry["data_offsets"][0].as_u64()? as usize;
        let end = start + array.bytes.len();
        let wanted = serde_json::json!({
            "dtype": names_of(array.dtype).safetensors,
            "shape": array.shape,
            "data_offsets": [start, end],
        });
        let is_aligned = (8 + text.len() + start).is_multiple_of(array.dtype.size_bytes());
        if *entry != wanted || !is_aligned || data.get(start..end)? != array.bytes {
            return Some(false);
        }
    }
    let count = arrays.len() + usize::from(texts.is_some());
    let has_texts = texts.is_none_or(|texts| header["__metadata__"] == serde_json::json!(texts));
    let size_bytes: usize = arrays.values().map(|array| array.bytes.len()).sum();
    Some(has_texts && header.as_object()?.len() == count && size_bytes == data.len())
}

/// The file at the path that is saved to.
enum Replaced {
    /// There is none.
    Nothing,
    /// A file of this mode.
    File(u32),
    /// A chain of so many symbolic links to `real/target` in the folder.
    Link(usize),
}

impl Replaced {
    /// Draws what is there before the save, and creates it.
    #[cfg(unix)]
    fn draw(draw: &mut Draw, folder: &Path) -> std::io::Result<Replaced> {
        use std::fs::{Permissions, create_dir, set_permissions, write};
        use std::os::unix::fs::{PermissionsExt, symlink};
        let path = folder.join("tensors");
        match draw.below(4) {
            0 => Ok(Replaced::Nothing),
            1 | 2 => {
                let mode = draw.pick(&[0o600, 0o640, 0o644, 0o666, 0o755, 0o777]);
                write(&path, "an old file")?;
                // Some file systems have no modes, or not all.
                drop(set_permissions(&path, Permissions::from_mode(mode)));
                Ok(Replaced::File(path.metadata()?.permissions().mode() & 0o777))
            }
            _ => {
                let (count, target) = (1 + draw.below(2), folder.join("real/target"));
                let linked = if count == 1 { target.as_path() } else { Path::new("links/second") };
                if symlink(linked, path).is_err() {
                    // Some file systems have no links.
                    return Ok(Replaced::Nothing);
                }
                create_dir(folder.join("real"))?;
                if draw.one_in(2) {
                    write(target, "an old file")?;
                }
                if count == 2 {
                    create_dir(folder.join("links"))?;
                    // It is relative to the folder of the link.
                    symlink("../real/target", folder.join("links/second"))?;
                }
                Ok(Replaced::Link(count))
            }
        }
    }

    /// There is nothing.
    #[cfg(not(unix))]
    fn draw(_draw: &mut Draw, _folder: &Path) -> std::io::Result<Replaced> {
        Ok(Replaced::Nothing)
    }

    /// Checks that a file keeps its mode, that links stay, and that nothing else is there.
    fn check(&self, folder: &Path) -> Result<(), String> {
        let names = names_in(folder)?;
        let wanted: &[&str] = match self {
            Replaced::Nothing | Replaced::File(_) => &["tensors"],
            Replaced::Link(1) => &["real", "tensors"],
            Replaced::Link(_) => &["links", "real", "tensors"],
        };
        if names != wanted {
            return Err(format!("after the save there are {names:?}, not {wanted:?}"));
        }
        let path = folder.join("tensors");
        let is_link = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        match self {
            Replaced::Link(count) => {
                let target = folder.join("real/target");
                let links_stay =
                    is_link(&path) && (*count == 1 || is_link(&folder.join("links/second")));
                if !links_stay || is_link(&target) || !target.is_file() {
                    return Err(
                        "after the save a link is replaced, or no file is there".to_string()
                    );
                }
                match names_in(&folder.join("real"))?.as_slice() {
                    [name] if name == "target" => check_mode(&target, None),
                    names => Err(format!("there are {names:?} beside the file")),
                }
            }
            Replaced::File(mode) => check_mode(&path, Some(*mode)),
            Replaced::Nothing => check_mode(&path, None),
        }
    }
}

/// The sorted names in a folder.
fn names_in(folder: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(|error| error.to_string())? {
        let entry = entry.map_err(|error| error.to_string())?;
        names.push(entry.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

/// Checks the mode of a file: without another, that of files that are created in the usual way.
#[cfg(unix)]
fn check_mode(path: &Path, mode: Option<u32>) -> Result<(), String> {
    use std::os::unix::fs::PermissionsExt;
    let mode_of = |path: &Path| {
        let metadata = path.metadata().map_err(|error| error.to_string())?;
        Ok::<u32, String>(metadata.permissions().mode() & 0o777)
    };
    let wanted = match mode {
        Some(mode) => mode,
        None => {
            let usual = path.with_extension("usual");
            std::fs::write(&usual, "").map_err(|error| error.to_string())?;
            mode_of(&usual)?
        }
    };
    let found = mode_of(path)?;
    if found != wanted {
        return Err(format!("the mode of the file is {found:o}, not {wanted:o}"));
    }
    Ok(())
}

/// Elsewhere, files have no modes.
#[cfg(not(unix))]
fn check_mode(_path: &Path, _mode: Option<u32>) -> Result<(), String> {
    Ok(())
}

/// A save, of a format, to a path.
type Save<'a> = &'a dyn Fn(&Path) -> Result<(), Error>;

/// Checks that tensors that no file may have are not saved, and that the file that is there stays.
pub(super) fn refused(folder: &Path) -> Result<(), String> {
    let tensor = |dtype: DType, shape: &[i64]| {
        let bytes = vec![1; dtype.size_bytes()];
        Tensor::from_bytes(dtype, shape, &bytes).map_err(|error| error.to_string())
    };
    let named = |name: &str, tensor: &Tensor| BTreeMap::from([(name.to_string(), tensor.clone())]);
    let (small, half) = (tensor(DType::I16, &[1])?, tensor(DType::BF16, &[1])?);
    let deep = tensor(DType::I16, &[1; RANK_MAX + 1])?;
    let long = "n".repeat(NAME_MAX + 1);
    let saves: [(&str, Save); 9] = [
        ("bf16 in .npy", &|path| save_npy(&half, path)),
        ("bf16 in .npz", &|path| save_npz(&named("w", &half), path)),
        ("many axes in .npy", &|path| save_npy(&deep, path)),
        ("many axes in .npz", &|path| save_npz(&named("w", &deep), path)),
        ("many axes in safetensors", &|path| save_safetensors(&named("w", &deep), path, None)),
        ("a long name in .npz", &|path| save_npz(&named(&long, &small), path)),
        ("a long name in safetensors", &|path| save_safetensors(&named(&long, &small), path, None)),
        ("no name in .npz", &|path| save_npz(&named("", &small), path)),
        ("the name of the metadata in safetensors", &|path| {
            save_safetensors(&named("__metadata__", &small), path, None)
        }),
    ];
    let path = folder.join("tensors");
    std::fs::write(&path, "an old file").map_err(|error| error.to_string())?;
    for (label, save) in saves {
        check_fails(save, &path, false).map_err(|problem| format!("{label}: {problem}"))?;
        let stays = std::fs::read(&path).is_ok_and(|bytes| bytes == b"an old file");
        if !stays || names_in(folder)? != ["tensors"] {
            return Err(format!("{label}: the folder is not as it was before the save"));
        }
    }
    let formats: [(&str, Save); 3] = [
        (".npy", &|path| save_npy(&small, path)),
        (".npz", &|path| save_npz(&named("w", &small), path)),
        ("safetensors", &|path| save_safetensors(&named("w", &small), path, None)),
    ];
    for (label, save) in formats {
        let problem = |problem: String| format!("{label}: {problem}");
        check_fails(save, &folder.join("missing/tensors"), true).map_err(problem)?;
        check_fails(save, folder, false).map_err(problem)?;
    }
    match names_in(folder)?.as_slice() {
        [name] if name == "tensors" => Ok(()),
        names => Err(format!("saves that are refused leave {names:?}")),
    }
}

/// Checks that a save fails with an error of the system or another, which has the path.
fn check_fails(save: Save, path: &Path, is_of_system: bool) -> Result<(), String> {
    let Err(error) = save(path) else { return Err("it must not be saved".to_string()) };
    let is_right = match &error {
        Error::Io { path: named, .. } => is_of_system && named == path,
        error => !is_of_system && is_refusal(error, path),
    };
    if is_right { Ok(()) } else { Err(format!("its error is {error:?}")) }
}

#[cfg(test)]
mod tests {
    use super::super::zips::{Entry, archive};
    use super::*;

    #[test]
    fn wrong_files_are_refused() {
        let array = Array { dtype: DType::I16, shape: vec![2], bytes: vec![1, 0, 2, 0] };
        let arrays = BTreeMap::from([("w".to_string(), array.clone())]);
        let text = npy_text(&array, '<', false);
        let padded = format!("{text}{}\n", " ".repeat(118 - 1 - text.len()));
        let header = [b"\x93NUMPY\x01\x00".as_slice(), &118u16.to_le_bytes(), padded.as_bytes()];
        let file = [header.concat(), array.bytes.clone()].concat();
        assert!(is_npy(&file, &array) && !is_npy(&file[..file.len() - 1], &array));
        let right = archive(&[Entry::stored("w.npy", file.clone())]);
        assert!(is_npz(&right, &arrays));
        let mut damaged = right.clone();
        damaged[40] ^= 1;
        assert!(!is_npz(&damaged, &arrays) && !is_npz(&archive(&[]), &arrays));
        let entry = r#"{"w":{"dtype":"I16","shape":[2],"data_offsets":[0,4]}}  "#;
        let length = (entry.len() as u64).to_le_bytes();
        let file = [&length[..], entry.as_bytes(), &array.bytes].concat();
        assert_eq!(is_safetensors(&file, &arrays, None), Some(true));
        let longer = [&file[..], &[0]].concat();
        assert_eq!(is_safetensors(&longer, &arrays, None), Some(false));
    }
}
