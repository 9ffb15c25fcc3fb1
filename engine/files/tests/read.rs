//! Files of the original libraries are read as these libraries read them, and damaged files give
//! tensors or an error. `make_data.py` wrote the files.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gradiff_files::{
    Error, GgufValue, load_gguf, load_npy, load_npz, load_safetensors, load_safetensors_metadata,
    load_torch,
};
use gradiff_tensor::Tensor;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Reads a file by the format that its name says.
fn load(path: &Path) -> Result<BTreeMap<String, Tensor>, Error> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => load_safetensors(path),
        Some("npy") => Ok(BTreeMap::from([(String::new(), load_npy(path)?)])),
        Some("npz") => load_npz(path),
        Some("pt") => load_torch(path),
        Some("gguf") => Ok(load_gguf(path)?.1),
        extension => panic!("a file of no format: {extension:?}"),
    }
}

/// The bytes in hexadecimal, or a hash if there are more than 64.
fn text_of(bytes: &[u8]) -> String {
    if bytes.len() <= 64 {
        return bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    }
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
    format!("fnv:{:016x}", bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix))
}

#[test]
fn files_of_the_original_libraries_are_read_as_they_read_them() {
    let mut expected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in std::fs::read_to_string(data().join("expected.txt")).unwrap().lines() {
        let (file, tensor) = line.split_once('|').unwrap();
        expected.entry(file.to_string()).or_default().push(tensor.to_string());
    }
    assert!(30 <= expected.len(), "{} files", expected.len());
    for (file, mut lines) in expected {
        let tensors = load(&data().join(&file)).unwrap();
        let found: Vec<String> = tensors
            .iter()
            .map(|(name, tensor)| {
                let text = text_of(&tensor.to_bytes().unwrap());
                format!("{name}|{}|{:?}|{text}", tensor.dtype(), tensor.shape())
            })
            .collect();
        lines.sort();
        let mut sorted = found.clone();
        sorted.sort();
        assert_eq!(sorted, lines, "{file}");
    }
}

#[test]
fn metadata_is_read() {
    let metadata = load_safetensors_metadata(data().join("dtypes.safetensors")).unwrap();
    assert_eq!(metadata, BTreeMap::from([("format".to_string(), "pt".to_string())]));
    let (metadata, _) = load_gguf(data().join("plain.gguf")).unwrap();
    assert_eq!(metadata["u8"], GgufValue::U8(200));
    assert_eq!(metadata["i8"], GgufValue::I8(-3));
    assert_eq!(metadata["u16"], GgufValue::U16(60000));
    assert_eq!(metadata["i16"].as_i64(), Some(-300));
    assert_eq!(metadata["i32"], GgufValue::I32(-70000));
    assert_eq!(metadata["f32"], GgufValue::F32(0.5));
    assert_eq!(metadata["bool"], GgufValue::Bool(true));
    assert_eq!(metadata["text"].as_str(), Some("Zürich"));
    let texts = ["a", "bc"].map(|text| GgufValue::Text(text.to_string()));
    assert_eq!(metadata["array"], GgufValue::Array(texts.to_vec()));
    assert_eq!(metadata["nested"], GgufValue::Array([1, 2, 3].map(GgufValue::I32).to_vec()));
    assert_eq!(metadata["u64"], GgufValue::U64(1 << 63));
    assert_eq!(metadata["i64"], GgufValue::I64(-(1 << 40)));
    assert_eq!(metadata["f64"], GgufValue::F64(0.1));
}

#[test]
fn views_of_the_same_elements_share_memory() {
    let tensors = load_torch(data().join("views.pt")).unwrap();
    assert!(tensors["base"].buffer().is_some());
    assert_eq!(tensors["base"].buffer(), tensors["same"].buffer());
}

/// The message for a file of `data`.
fn message(file: &str) -> String {
    load(&data().join(file)).unwrap_err().to_string()
}

#[test]
fn unsupported_files_are_named_in_errors() {
    assert!(message("objects.npy").contains("Python objects"), "{}", message("objects.npy"));
    assert!(message("records.npy").contains("records"), "{}", message("records.npy"));
    let module = message("module.pt");
    assert!(module.contains("torch.nn.modules.linear.Linear"), "{module}");
    let complex = message("complex.pt");
    assert!(complex.contains("tensor \"c\"") && complex.contains("ComplexFloat"), "{complex}");
    let folder = tempfile::tempdir().unwrap();
    for (name, note) in [("old.pt", "before 1.6"), ("old.npz", "an archive of .npy files")] {
        let error =
            load_bytes(folder.path(), name, b"\x80\x02\x8a\nl\xfc").unwrap_err().to_string();
        assert!(error.contains("no zip archive") && error.contains(note), "{error}");
    }
    let missing = message("missing.npy");
    assert!(missing.contains("missing.npy"), "{missing}");
}

/// Writes bytes to a file of the format of `name`, reads it, and computes its tensors.
fn load_bytes(folder: &Path, name: &str, bytes: &[u8]) -> Result<BTreeMap<String, Tensor>, Error> {
    let path = folder.join(name);
    // A new file: some file systems write at once to the disk what replaces the text of an old one.
    let _ = std::fs::remove_file(&path);
    std::fs::write(&path, bytes).unwrap();
    load(&path)
}

fn small_files() -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(data()).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_string();
        if !name.ends_with(".txt") {
            files.push((name, std::fs::read(path).unwrap()));
        }
    }
    files.sort();
    assert!(30 < files.len(), "{} files", files.len());
    files
}

#[test]
fn no_prefix_of_a_file_panics() {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in small_files() {
        let full = load_bytes(folder.path(), &name, &bytes);
        for size in 0..bytes.len() {
            let Ok(tensors) = load_bytes(folder.path(), &name, &bytes[..size]) else { continue };
            // Padding follows the last tensor of GGUF.
            assert!(name.ends_with("gguf"), "{name} cut to {size} bytes is taken");
            for (name, tensor) in full.as_ref().unwrap() {
                assert_eq!(tensors[name].to_bytes().unwrap(), tensor.to_bytes().unwrap());
            }
        }
    }
}

/// Calls `load` with damaged copies of `bytes`: one to eight bytes are wrong. Returns the number of
/// copies that are taken, and refused.
fn damage<T>(
    bytes: &[u8],
    count: usize,
    random: &mut u64,
    mut load: impl FnMut(&[u8]) -> Result<T, Error>,
) -> (usize, usize) {
    let (mut taken, mut refused) = (0, 0);
    let mut damaged = bytes.to_vec();
    for index in 0..count {
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        // Half of the copies have one wrong byte; else the damage adds up.
        if index % 16 < 9 {
            damaged.copy_from_slice(bytes);
        }
        let at = *random as usize % bytes.len();
        damaged[at] = match *random >> 40 & 3 {
            0 => damaged[at] ^ 1 << (*random >> 50 & 7),
            1 => 0xff,
            2 => 0,
            _ => (*random >> 32) as u8,
        };
        match load(&damaged) {
            Ok(_) => taken += 1,
            Err(_) => refused += 1,
        }
    }
    (taken, refused)
}

#[test]
fn no_damaged_byte_panics() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15;
    let (mut taken, mut refused) = (0, 0);
    for (name, bytes) in small_files() {
        let load = |damaged: &[u8]| load_bytes(folder.path(), &name, damaged);
        let counts = damage(&bytes, 600, &mut random, load);
        (taken, refused) = (taken + counts.0, refused + counts.1);
    }
    assert!(1000 < taken && 1000 < refused, "{taken} taken, {refused} refused");
}

#[test]
fn no_damaged_pickle_panics() {
    use std::io::Read;
    let folder = tempfile::tempdir().unwrap();
    let mut random = 0x2545_f491_4f6c_dd1d;
    let (mut taken, mut refused) = (0, 0);
    for name in ["dtypes1.pt", "dtypes2.pt", "model.pt", "views.pt", "module.pt"] {
        // The checksums of the archive would refuse damage before the pickle is read.
        let file = std::fs::File::open(data().join(name)).unwrap();
        let mut zip = zip::ZipArchive::new(file).unwrap();
        let mut entries = Vec::new();
        let mut pickle = Vec::new();
        for index in 0..zip.len() {
            let mut entry = zip.by_index(index).unwrap();
            let name = entry.name().unwrap().to_string();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            match name.ends_with("data.pkl") {
                true => pickle = bytes,
                false => entries.push((name, bytes)),
            }
        }
        let folder_name = entries[0].0.split('/').next().unwrap().to_string();
        let load = |damaged: &[u8]| {
            let pickle_name = format!("{folder_name}/data.pkl");
            let mut parts = vec![(pickle_name.as_str(), damaged)];
            parts.extend(entries.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice())));
            let result = load_bytes(folder.path(), "damaged.pt", &archive(&parts));
            for tensor in result.iter().flat_map(BTreeMap::values) {
                assert!(tensor.buffer().is_none() || tensor.to_bytes().is_ok());
            }
            result
        };
        assert_eq!(load(&pickle).is_ok(), name != "module.pt");
        let counts = damage(&pickle, 1000, &mut random, load);
        (taken, refused) = (taken + counts.0, refused + counts.1);
    }
    assert!(200 < taken && 200 < refused, "{taken} taken, {refused} refused");
}

#[test]
fn random_bytes_after_a_right_beginning_do_not_panic() {
    let folder = tempfile::tempdir().unwrap();
    let mut random = 1u64;
    for (name, bytes) in small_files() {
        for _ in 0..50 {
            let mut damaged = bytes.clone();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = random as usize >> 8 & 63;
            for byte in damaged.iter_mut().skip(start).take(64) {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = (random >> 56) as u8;
            }
            let _ = load_bytes(folder.path(), &name, &damaged);
        }
    }
}

fn safetensors(header: &str, size_bytes: usize) -> Vec<u8> {
    let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
    bytes.extend_from_slice(header.as_bytes());
    bytes.resize(bytes.len() + size_bytes, 0);
    bytes
}

#[test]
fn headers_that_claim_too_much_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |name: &str, bytes: &[u8], why: &str| {
        let message = load_bytes(folder.path(), name, bytes).unwrap_err().to_string();
        assert!(message.contains(why), "{message} does not say {why:?}");
    };
    let end = 1u64 << 42;
    let header =
        format!(r#"{{"x":{{"dtype":"F32","shape":[1048576,1048576],"data_offsets":[0,{end}]}}}}"#);
    refuse("a.safetensors", &safetensors(&header, 8), "tensor \"x\"");
    refuse("a.safetensors", &u64::MAX.to_le_bytes(), "a header of");
    let entry = r#"{"dtype":"U8","shape":[1],"data_offsets":[0,1]}"#;
    let second = entry.replace("[0,1]", "[1,2]");
    let twice = format!(r#"{{"x":{entry},"x":{second}}}"#);
    refuse("a.safetensors", &safetensors(&twice, 2), "twice");
    let overlap = format!(r#"{{"x":{entry},"y":{entry}}}"#);
    refuse("a.safetensors", &safetensors(&overlap, 1), "must begin at 1");
    refuse("a.safetensors", &safetensors(&format!(r#"{{"x":{entry}}}"#), 2), "end at 1 of 2");
    let float = entry.replace("U8", "F8_E4M3");
    let message = format!(r#"{{"x":{float}}}"#);
    refuse("a.safetensors", &safetensors(&message, 1), "tensor \"x\": its dtype is \"F8_E4M3\"");

    let npy = |shape: &str| {
        let text = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n");
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(text.len() as u16).to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
        bytes
    };
    refuse("a.npy", &npy("(1099511627776,)"), "needs 4398046511104 bytes");
    refuse("a.npy", &npy("(18446744073709551615, 2)"), "too many elements");
    refuse("a.npy", &npy(&format!("({})", "1, ".repeat(65))), "65 axes");

    let gguf = |tensors: u64, values: u64, rest: &[u8]| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend_from_slice(&tensors.to_le_bytes());
        bytes.extend_from_slice(&values.to_le_bytes());
        bytes.extend_from_slice(rest);
        bytes
    };
    refuse("a.gguf", &gguf(1 << 40, 0, &[0; 64]), "do not fit");
    refuse("a.gguf", &gguf(0, u64::MAX, &[0; 64]), "do not fit");
    let mut description = [1u64.to_le_bytes().as_slice(), b"x"].concat();
    description.extend_from_slice(&1u32.to_le_bytes());
    description.extend_from_slice(&(1u64 << 40).to_le_bytes());
    description.extend_from_slice(&[0; 12]);
    description.resize(128, 0);
    refuse("a.gguf", &gguf(1, 0, &description), "tensor \"x\"");
}

/// A zip archive of entries, compressed.
fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
    use std::io::Write;
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated);
    for (name, bytes) in entries {
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

/// The opcodes of a tensor that is a view of a storage of floats. `tail` has the arguments after
/// those about gradients.
fn tensor_opcodes(elements: u32, offset: u32, axes: [&str; 2], tail: &[u8]) -> Vec<u8> {
    let version = if tail.starts_with(b"c") { "3" } else { "2" };
    let mut pickle = format!("ctorch._utils\n_rebuild_tensor_v{version}\n((").into_bytes();
    pickle.extend_from_slice(b"X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000");
    pickle.extend_from_slice(b"X\x03\0\0\0cpuJ");
    pickle.extend_from_slice(&elements.to_le_bytes());
    pickle.extend_from_slice(b"tQJ");
    pickle.extend_from_slice(&offset.to_le_bytes());
    pickle.extend_from_slice(format!("({}t({}t", axes[0], axes[1]).as_bytes());
    pickle.extend_from_slice(b"\x89ccollections\nOrderedDict\n)R");
    pickle.extend_from_slice(tail);
    pickle.extend_from_slice(b"tR");
    pickle
}

/// Reads a checkpoint of a pickle and of a storage.
fn load_pickle(
    folder: &Path,
    pickle: &[u8],
    storage: &[u8],
) -> Result<BTreeMap<String, Tensor>, Error> {
    load_bytes(folder, "a.pt", &archive(&[("a/data.pkl", pickle), ("a/data/0", storage)]))
}

#[test]
fn metadata_of_tensors_is_applied_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let storage: Vec<u8> = [1.5f32, -2.0].iter().flat_map(|item| item.to_le_bytes()).collect();
    let load_tail = |tail: &[u8]| {
        let mut pickle = tensor_opcodes(2, 0, ["K\x02", "K\x01"], tail);
        pickle.push(b'.');
        load_pickle(folder.path(), &pickle, &storage)
    };
    let flag = |key: &str, value: u8| {
        let mut tail = vec![b'}', b'X', key.len() as u8, 0, 0, 0];
        tail.extend_from_slice(key.as_bytes());
        tail.extend_from_slice(&[value, b's']);
        tail
    };
    let (set, unset) = (0x88, 0x89);
    let dtype = |name: &str, flags: &[u8]| {
        let mut tail = format!("ctorch\n{name}\n").into_bytes();
        tail.extend_from_slice(flags);
        tail
    };
    let taken = [
        (b"".to_vec(), "[1.5, -2.0]"),
        (b"N".to_vec(), "[1.5, -2.0]"),
        (b"}".to_vec(), "[1.5, -2.0]"),
        (flag("neg", unset), "[1.5, -2.0]"),
        (flag("conj", unset), "[1.5, -2.0]"),
        (flag("neg", set), "[-1.5, 2.0]"),
        (dtype("float32", b""), "[1.5, -2.0]"),
        (dtype("float32", &flag("neg", set)), "[-1.5, 2.0]"),
        (dtype("int32", &flag("neg", set)), "[-1069547520, 1073741824]"),
        (dtype("uint32", &flag("neg", set)), "[3225419776, 1073741824]"),
    ];
    for (tail, expected) in taken {
        let tensors = load_tail(&tail).unwrap();
        assert_eq!(tensors[""].to_text().unwrap(), expected, "{tail:?}");
    }
    let refused = [
        (flag("conj", set), "\"conj\""),
        (flag("future", set), "\"future\""),
        (flag("neg", b'N'), "\"neg\""),
        (b"K\x01".to_vec(), "no dict of flags"),
        (b"NN".to_vec(), "arguments that do not fit"),
        (dtype("bool", &flag("neg", set)), "no negative"),
        (dtype("int32", &flag("conj", set)), "\"conj\""),
        (dtype("int32", b"NN"), "arguments that do not fit"),
        (dtype("uint4", b""), "its dtype is that of torch.uint4"),
        (dtype("bits1x8", b""), "its dtype is that of torch.bits1x8"),
        (dtype("internal", b""), "refers to torch.internal"),
    ];
    for (tail, expected) in refused {
        let message = load_tail(&tail).unwrap_err().to_string();
        assert!(message.contains(expected), "{message} does not say {expected:?}");
    }
}

#[test]
fn tensors_without_a_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let tensor = tensor_opcodes(2, 0, ["K\x02", "K\x01"], b"");
    let load_dict = |key: &[u8], value: &[u8]| {
        let pickle = [&b"}X\x01\0\0\0a"[..], &tensor[..], b"s", key, value, b"s."].concat();
        load_pickle(folder.path(), &pickle, &[0; 8])
    };
    // A float, None, a tuple, bytes, an integer of 9 bytes.
    let keys: [&[u8]; 5] =
        [b"G\x3f\xf8\0\0\0\0\0\0", b"N", b"K\x01\x85", b"C\x01b", b"\x8a\x09\0\0\0\0\0\0\0\0\x01"];
    for key in keys {
        for value in [tensor.clone(), [&b"]("[..], &tensor[..], b"e"].concat()] {
            let message = load_dict(key, &value).unwrap_err().to_string();
            assert!(message.contains("no text or integer"), "{message}");
        }
        // Nothing that has no name is lost.
        let tensors = load_dict(key, b"](K\x01Ne").unwrap();
        assert_eq!(tensors.keys().collect::<Vec<_>>(), ["a"]);
    }
}

#[test]
fn small_pickles_of_many_values_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |start: &[u8], repeated: &[u8], count: usize, why: &str| {
        let pickle = [start, repeated.repeat(count).as_slice(), b"."].concat();
        let message = load_pickle(folder.path(), &pickle, &[0; 8]).unwrap_err().to_string();
        assert!(message.contains(why), "{message} does not say {why:?}");
    };
    // Values of a byte each, storages of a key, tensors of many axes.
    refuse(b"", b"]", 3 << 20, "too much memory");
    let mut id = b"(X\x07\0\0\0storagectorch\nFloatStorage\nX\x80\0\0\0".to_vec();
    id.resize(id.len() + 128, b'0');
    id.extend_from_slice(b"X\x03\0\0\0cpuK\x02tq\0");
    refuse(&id, b"h\0Q", 1 << 20, "too much memory");
    let axes = "K\x01".repeat(64);
    let tensor = tensor_opcodes(2, 0, [axes.as_str(), axes.as_str()], b"");
    // The function and its arguments are in the memo, and the call is repeated.
    let function = b"ctorch._utils\n_rebuild_tensor_v2\nq\0".as_slice();
    let arguments = &tensor[function.len() - 2..tensor.len() - 1];
    let start = [function, arguments, b"q\x01".as_slice()].concat();
    refuse(&start, b"h\0h\x01R", 80 << 10, "too much memory");
    // A dict whose items have no name, in a list 60,000 times.
    let mut dict = b"}q\0(".to_vec();
    dict.extend_from_slice(&b"N".repeat(40_000));
    dict.extend_from_slice(b"u](");
    dict.extend_from_slice(&b"h\0".repeat(60_000));
    refuse(&dict, b"e", 1, "share too much");
    // A tensor, 100,000 times.
    let mut list = tensor_opcodes(2, 0, ["K\x02", "K\x01"], b"");
    list.extend_from_slice(b"q\0](");
    list.extend_from_slice(&b"h\0".repeat(100_000));
    refuse(&list, b"e", 1, "share too much");
}

#[test]
fn copies_of_a_compressed_storage_are_limited() {
    let folder = tempfile::tempdir().unwrap();
    let storage = vec![0; 4 << 20];
    let load_views = |count: u32| {
        let mut pickle = b"](".to_vec();
        for offset in 0..count {
            let axes = ["J\0\0\x0f\0", "K\x01"];
            pickle.extend_from_slice(&tensor_opcodes(1 << 20, offset, axes, b""));
        }
        pickle.extend_from_slice(b"e.");
        load_pickle(folder.path(), &pickle, &storage)
    };
    assert_eq!(load_views(4).unwrap().len(), 4);
    let message = load_views(40).unwrap_err().to_string();
    assert!(message.contains("views of the same elements"), "{message}");
}

#[test]
fn metadata_of_gguf_may_not_need_much_more_memory_than_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let load_array = |count: u64| {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend_from_slice(&[0u64, 1, 1].map(u64::to_le_bytes).concat());
        bytes.push(b'a');
        // An array of u8.
        bytes.extend_from_slice(&[9u32, 0].map(u32::to_le_bytes).concat());
        bytes.extend_from_slice(&count.to_le_bytes());
        bytes.resize(bytes.len() + count as usize, 7);
        let path = folder.path().join(format!("{count}.gguf"));
        std::fs::write(&path, bytes).unwrap();
        load_gguf(&path)
    };
    let (metadata, _) = load_array(1 << 16).unwrap();
    assert_eq!(metadata["a"], GgufValue::Array(vec![GgufValue::U8(7); 1 << 16]));
    let message = load_array(3 << 20).unwrap_err().to_string();
    assert!(message.contains("too much memory"), "{message}");
}

#[test]
fn headers_of_safetensors_may_not_need_much_more_memory_than_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let load_header = |tensors: usize, items: usize| {
        let items: Vec<String> = (0..items).map(|item| format!(r#""{item:06}":"""#)).collect();
        let mut header = format!(r#"{{"__metadata__":{{{}}}"#, items.join(","));
        for tensor in 0..tensors {
            let description = r#"{"dtype":"U8","shape":[0],"data_offsets":[0,0]}"#;
            header.push_str(&format!(r#","{tensor:06}":{description}"#));
        }
        header.push('}');
        std::fs::write(&path, safetensors(&header, 0)).unwrap();
        load_safetensors_metadata(&path)
    };
    assert_eq!(load_header(110_000, 10).unwrap().len(), 10);
    // Too many tensors, and too many items beside them.
    for (tensors, items) in [(130_000, 10), (110_000, 120_000)] {
        let message = load_header(tensors, items).unwrap_err().to_string();
        assert!(message.contains("too much memory"), "{message}");
    }
}

#[test]
fn compressed_checkpoints_are_read_and_bombs_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let view = |sizes: &str, strides: &str| {
        let mut pickle = b"\x80\x02}X\x01\0\0\0xctorch._utils\n_rebuild_tensor_v2\n((".to_vec();
        pickle.extend_from_slice(b"X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\x000");
        pickle.extend_from_slice(b"X\x03\0\0\0cpuJ\0\0\x10\0tQK\0");
        pickle.extend_from_slice(format!("({sizes}t({strides}t").as_bytes());
        pickle.extend_from_slice(b"\x89ccollections\nOrderedDict\n)RtRs.");
        pickle
    };
    let storage = vec![0; 4 << 20];
    let load_view = |sizes: &str, strides: &str, storage: &[u8]| {
        let pickle = view(sizes, strides);
        let bytes = archive(&[("a/data.pkl", &pickle), ("a/data/0", storage)]);
        load_bytes(folder.path(), "a.pt", &bytes)
    };
    let tensors = load_view("K\x02K\x03", "K\x03K\x01", &storage).unwrap();
    assert_eq!(tensors["x"].to_text().unwrap(), "[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]");
    // 2^80 elements, more than a storage has, a window that overlaps itself, a larger entry.
    let huge = "J\0\0\0@".repeat(3);
    let refused = [
        load_view(&huge, "K\0K\0K\0", &storage),
        load_view("J\0\0\x10\0K\x02", "K\x01K\x01", &storage),
        load_view("J\0\0\x01\0J\0\0\x01\0K\x01", "K\x01K\x01K\x01", &storage),
        load_view("K\x01", "K\x01", &vec![0; 8 << 20]),
    ];
    for result in refused {
        let message = result.unwrap_err().to_string();
        assert!(message.contains("tensor \"x\""), "{message}");
    }
    // Dicts that share dicts: 2^40 ways to a tensor.
    let mut pickle = b"\x80\x02}q\0".to_vec();
    for _ in 0..40 {
        pickle.extend_from_slice(b"}(K\x01h\0K\x02h\0uq\0");
    }
    pickle.push(b'.');
    let bytes = archive(&[("a/data.pkl", &pickle)]);
    let message = load_bytes(folder.path(), "a.pt", &bytes).unwrap_err().to_string();
    assert!(message.contains("share too much"), "{message}");
    // A call of any other function.
    let bytes = archive(&[("a/data.pkl", b"cposix\nsystem\n(X\x02\0\0\0lstR.")]);
    let message = load_bytes(folder.path(), "a.pt", &bytes).unwrap_err().to_string();
    assert!(message.contains("posix.system"), "{message}");
}
