//! Saved files are read as what was saved, by this crate and by the crate `safetensors`.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;

use gradiff_files::{
    Error, load_npy, load_npz, load_safetensors, load_safetensors_metadata, save_npy, save_npz,
    save_safetensors,
};
use gradiff_graph::DType;
use gradiff_tensor::Tensor;

/// A tensor of each dtype and several shapes.
fn tensors() -> BTreeMap<String, Tensor> {
    let mut tensors = BTreeMap::new();
    let shapes: [&[i64]; 6] = [&[], &[1], &[0], &[2, 3], &[2, 0, 3], &[70, 1001]];
    for dtype in DType::ALL {
        for shape in shapes {
            let elements = shape.iter().product::<i64>() as usize;
            let byte = |index: usize| match dtype {
                DType::Bool => u8::from(index.is_multiple_of(3)),
                _ => (index * 37 % 251) as u8,
            };
            let bytes: Vec<u8> = (0..elements * dtype.size_bytes()).map(byte).collect();
            let tensor = Tensor::from_bytes(dtype, shape, &bytes).unwrap();
            tensors.insert(format!("{dtype} {shape:?} \"ä\n"), tensor);
        }
    }
    let sum = Tensor::from_slice(&[2], &[1, 2]).unwrap();
    tensors.insert("computed".to_string(), sum.add(&sum).unwrap());
    tensors.insert("constant".to_string(), Tensor::full(DType::F32, &[3], 2.0).unwrap());
    tensors
}

fn assert_same(found: &BTreeMap<String, Tensor>, expected: &BTreeMap<String, Tensor>) {
    assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, tensor) in expected {
        let found = &found[name];
        assert_eq!((found.dtype(), found.shape()), (tensor.dtype(), tensor.shape()), "{name}");
        assert_eq!(found.to_bytes().unwrap(), tensor.to_bytes().unwrap(), "{name}");
    }
}

#[test]
fn safetensors_are_those_of_the_original_crate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.safetensors");
    let tensors = tensors();
    let metadata = BTreeMap::from([("a".to_string(), "\"b\"".to_string())]);
    save_safetensors(&tensors, &path, Some(&metadata)).unwrap();
    assert_same(&load_safetensors(&path).unwrap(), &tensors);
    assert_eq!(load_safetensors_metadata(&path).unwrap(), metadata);
    let bytes = std::fs::read(&path).unwrap();
    let original = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    assert_eq!(original.len(), tensors.len());
    for (name, tensor) in &tensors {
        let view = original.tensor(name).unwrap();
        assert_eq!(view.data(), tensor.to_bytes().unwrap(), "{name}");
    }
    let views = original.iter();
    let metadata = metadata.clone().into_iter().collect();
    let written = safetensors::serialize(views, Some(metadata)).unwrap();
    assert!(written == bytes, "the crate writes other bytes");
    save_safetensors(&tensors, &path, None).unwrap();
    assert_eq!(load_safetensors_metadata(&path).unwrap(), BTreeMap::new());
    assert_same(&load_safetensors(&path).unwrap(), &tensors);
}

#[test]
fn arrays_of_numpy_are_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let (npy, npz) = (folder.path().join("a.npy"), folder.path().join("a.npz"));
    let mut tensors = tensors();
    let refused = save_npz(&tensors, &npz).unwrap_err().to_string();
    assert!(refused.contains("bf16") && !npz.exists(), "{refused}");
    tensors.retain(|_, tensor| tensor.dtype() != DType::BF16);
    for tensor in tensors.values() {
        save_npy(tensor, &npy).unwrap();
        let found = BTreeMap::from([(String::new(), load_npy(&npy).unwrap())]);
        assert_same(&found, &BTreeMap::from([(String::new(), tensor.clone())]));
    }
    save_npz(&tensors, &npz).unwrap();
    assert_same(&load_npz(&npz).unwrap(), &tensors);
    let first = std::fs::read(&npz).unwrap();
    save_npz(&tensors, &npz).unwrap();
    assert!(first == std::fs::read(&npz).unwrap(), "two saves differ");
}

#[test]
fn files_are_the_bytes_that_numpy_writes() {
    let folder = tempfile::tempdir().unwrap();
    let data = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for name in ["bool_le_C.npy", "uint16_le_C.npy", "float64_le_C.npy", "scalar.npy"] {
        let tensor = load_npy(data.join(name)).unwrap();
        save_npy(&tensor, folder.path().join(name)).unwrap();
        let bytes = std::fs::read(folder.path().join(name)).unwrap();
        assert!(bytes == std::fs::read(data.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn a_failed_save_leaves_the_file_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    save_npy(&Tensor::from_slice(&[1], &[7]).unwrap(), &path).unwrap();
    let half = Tensor::full(DType::BF16, &[1], 0.0).unwrap();
    save_npy(&half, &path).unwrap_err();
    assert_eq!(load_npy(&path).unwrap().to_text().unwrap(), "[7]");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
    let missing = folder.path().join("missing/a.npy");
    assert!(save_npy(&half.cast(DType::F32).unwrap(), &missing).is_err());
}

#[test]
fn tensors_that_could_not_be_read_are_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let refuse = |result: Result<(), Error>, why: &str| {
        let message = result.unwrap_err().to_string();
        assert!(message.contains(why) && !path.exists(), "{message} does not say {why:?}");
    };
    let named = |name: String, shape: &[i64]| {
        let tensor = Tensor::from_bytes(DType::U8, shape, &[7]).unwrap();
        BTreeMap::from([(name, tensor)])
    };
    let axes = named("x".to_string(), &[1; 65]);
    refuse(save_npy(&axes["x"], &path), "65 axes; 64 are allowed");
    refuse(save_npz(&axes, &path), "65 axes; 64 are allowed");
    refuse(save_safetensors(&axes, &path, None), "65 axes; 64 are allowed");
    let long = named("x".repeat(4097), &[1]);
    refuse(save_npz(&long, &path), "a name of 4097 bytes; 4096 are allowed");
    refuse(save_safetensors(&long, &path, None), "a name of 4097 bytes; 4096 are allowed");
    refuse(save_npz(&named(String::new(), &[1]), &path), "no name");
    // The limits themselves.
    let limit = named("x".repeat(4096), &[1; 64]);
    save_npz(&limit, &path).unwrap();
    assert_same(&load_npz(&path).unwrap(), &limit);
    save_safetensors(&limit, &path, None).unwrap();
    assert_same(&load_safetensors(&path).unwrap(), &limit);
}

#[test]
fn a_folder_is_not_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    std::fs::create_dir(&path).unwrap();
    let message = save_npy(&Tensor::from_slice(&[1], &[7]).unwrap(), &path).unwrap_err();
    assert!(message.to_string().contains("no regular file"), "{message}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[test]
fn a_replaced_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    for (value, mode) in [(1, 0o600), (2, 0o666), (3, 0o640)] {
        std::fs::write(&path, "old").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        save_npy(&Tensor::from_slice(&[1], &[value]).unwrap(), &path).unwrap();
        assert_eq!(load_npy(&path).unwrap().to_text().unwrap(), format!("[{value}]"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
    }
}

#[cfg(unix)]
#[test]
fn a_file_that_may_not_be_written_is_not_replaced() {
    use std::fs::{File, Permissions};
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let protected = folder.path().join("protected.npy");
    std::fs::write(&protected, "old").unwrap();
    std::fs::set_permissions(&protected, Permissions::from_mode(0o444)).unwrap();
    // This program: while it runs, not even root may write to it.
    let running = folder.path().join("running");
    std::fs::hard_link(std::env::current_exe().unwrap(), &running).unwrap();
    for path in [protected, running] {
        let is_writable = File::options().write(true).open(&path).is_ok();
        let before = std::fs::metadata(&path).unwrap().len();
        let saved = save_npy(&Tensor::from_slice(&[1], &[7]).unwrap(), &path);
        assert_eq!(saved.is_ok(), is_writable, "{}: {saved:?}", path.display());
        let is_kept = std::fs::metadata(&path).unwrap().len() == before;
        assert_eq!(is_kept, !is_writable, "{}", path.display());
    }
}

#[cfg(unix)]
#[test]
fn symbolic_links_are_followed() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::create_dir(path("real")).unwrap();
    std::fs::create_dir(path("links")).unwrap();
    std::fs::write(path("real/old.npy"), "old").unwrap();
    symlink("../real/old.npy", path("links/old.npy")).unwrap();
    // A chain of two links, to a file that does not exist yet.
    symlink(path("links/second.npy"), path("new.npy")).unwrap();
    symlink("../real/new.npy", path("links/second.npy")).unwrap();
    for (link, target) in [("links/old.npy", "real/old.npy"), ("new.npy", "real/new.npy")] {
        save_npy(&Tensor::from_slice(&[1], &[7]).unwrap(), path(link)).unwrap();
        assert!(std::fs::symlink_metadata(path(link)).unwrap().is_symlink(), "{link}");
        assert!(std::fs::symlink_metadata(path(target)).unwrap().is_file(), "{target}");
        assert_eq!(load_npy(path(target)).unwrap().to_text().unwrap(), "[7]");
    }
    assert_eq!(std::fs::read_dir(path("real")).unwrap().count(), 2, "no temporary file is left");
    symlink("b", path("a")).unwrap();
    symlink("a", path("b")).unwrap();
    let circle = save_npy(&Tensor::from_slice(&[1], &[7]).unwrap(), path("a")).unwrap_err();
    assert!(circle.to_string().contains("symbolic links"), "{circle}");
}

#[cfg(unix)]
#[test]
fn sockets_and_devices_are_not_replaced() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let folder = tempfile::tempdir().unwrap();
    let (socket, link) = (folder.path().join("s"), folder.path().join("link"));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    symlink("s", &link).unwrap();
    for path in [&socket, &link] {
        let refused = save_npy(&Tensor::from_slice(&[1], &[7]).unwrap(), path).unwrap_err();
        assert!(refused.to_string().contains("no regular file"), "{refused}");
    }
    assert!(std::fs::symlink_metadata(&socket).unwrap().file_type().is_socket());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "no temporary file is left");
}
