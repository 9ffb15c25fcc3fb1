//! Files that are right but for a single thing, and must be refused.

use std::path::Path;

use gradiff::DType;
use gradiff::files::{Error, GgufValue};

use super::blocks;
use super::checkpoints::storage_id;
use super::gguf::{Described, Gguf, gguf_value};
use super::pickles::{Object, pickle};
use super::written::{NAME_MAX, RANK_MAX};
use super::zips::{Entry, archive, crc};
use super::{Array, FORMATS, Format, is_refusal, loaded, shuffled};
use crate::checks::calls::Draw;

/// Wrong files of a call.
const FILES: usize = 40;

/// Descriptions of files, and their bytes.
type Files = Vec<(&'static str, Vec<u8>)>;

/// Draws a format, and checks that some of the wrong files of it are refused.
pub(super) fn check(draw: &mut Draw, folder: &Path) -> Result<(), String> {
    let format = draw.pick(&FORMATS);
    let (right, wrong) = match format {
        Format::Npy => npy(),
        Format::Npz => npz(),
        Format::Safetensors => safetensors(),
        Format::Gguf => gguf(),
        Format::Torch => torch(draw),
    };
    for (number, (label, bytes)) in right.into_iter().enumerate() {
        let path = folder.join(format!("right.{number}"));
        std::fs::write(&path, bytes).map_err(|error| error.to_string())?;
        loaded(format, &path).map_err(|error| format!("{format:?}, {label}: {error}"))?;
    }
    for (number, (label, bytes)) in shuffled(draw, wrong).into_iter().take(FILES).enumerate() {
        let path = folder.join(format!("wrong.{number}"));
        std::fs::write(&path, bytes).map_err(|error| error.to_string())?;
        is_refused(format, &path).map_err(|problem| format!("{format:?}, {label}: {problem}"))?;
    }
    let missing = folder.join("missing");
    match loaded(format, &missing) {
        Err(Error::Io { path, .. }) if path == missing => {}
        found => return Err(format!("{format:?}, a file that is missing gives {found:?}")),
    }
    is_refused(format, folder).map_err(|problem| format!("{format:?}, a folder: {problem}"))
}

/// Checks that a file is refused by an error that has its path and says why.
fn is_refused(format: Format, path: &Path) -> Result<(), String> {
    match loaded(format, path) {
        Err(error) if is_refusal(&error, path) => Ok(()),
        Err(error) => Err(format!("its error is {error:?}")),
        Ok(tensors) => Err(format!("it must be refused, and is read as {tensors:?}")),
    }
}

/// A `.npy` file of version 1 with this header.
fn npy_of(header: &[u8], data: &[u8]) -> Vec<u8> {
    let length = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00".as_slice(), &length, header, data].concat()
}

fn npy() -> (Files, Files) {
    let data = [1u8, 0, 2, 0, 3, 0, 4, 0, 5, 0, 6, 0];
    let header = |descr: &str, order: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n")
    };
    let with = |text: &str| npy_of(text.as_bytes(), &data);
    let text = header("'<i2'", "False", "(2, 3)");
    let right = with(&text);
    let mut wrong: Files = vec![
        ("no bytes", Vec::new()),
        ("a header that ends early", right[..40].to_vec()),
        ("data that ends early", right[..right.len() - 1].to_vec()),
        ("a byte after the data", [&right[..], &[0]].concat()),
        ("no dict", with("('<i2', False, (2, 3))\n")),
        ("text after the dict", with(&format!("{text} x\n"))),
        ("no end of the dict", with(text.trim_end().trim_end_matches('}'))),
        ("a key twice", with(&text.replace("'shape'", "'descr': '<i2', 'shape'"))),
        ("an unknown key", with(&text.replace("'shape'", "'size': 6, 'shape'"))),
        ("no descr", with("{'fortran_order': False, 'shape': (2, 3), }\n")),
        ("no order", with("{'descr': '<i2', 'shape': (2, 3), }\n")),
        ("no shape", with("{'descr': '<i2', 'fortran_order': False, }\n")),
        ("a header that is no UTF-8", npy_of(&[text.as_bytes(), b"\xff"].concat(), &data)),
        ("records", with(&header("[('a', '<i2')]", "False", "(6,)"))),
        ("an order that is no bool", with(&header("'<i2'", "0", "(2, 3)"))),
    ];
    for (at, byte, label) in [(0, 0x92, "another magic number"), (5, b'y', "another name")] {
        let mut bytes = right.clone();
        bytes[at] = byte;
        wrong.push((label, bytes));
    }
    for version in [0, 4, 255] {
        let mut bytes = right.clone();
        bytes[6] = version;
        wrong.push(("another version", bytes));
    }
    for shape in ["6", "(2, -3)", "(2 3)", "(2, 3", "(2, x)", "(2.0, 3)", "(2, 2)", "()", "(2, 4)"]
    {
        wrong.push(("another shape", with(&header("'<i2'", "False", shape))));
    }
    for descr in ["'|O'", "'|S2'", "'<U1'", "'<c8'", "'<i3'", "'<M8[ns]'", "'i2>'", "''", "2"] {
        wrong.push(("another dtype", with(&header(descr, "False", "(6,)"))));
    }
    let axes = |count: usize| format!("({})", "1, ".repeat(count));
    let single = |shape: &str| npy_of(header("'<i2'", "True", shape).as_bytes(), &data[..2]);
    wrong.push(("more axes than a tensor may have", single(&axes(RANK_MAX + 1))));
    let empty = |shape: &str| npy_of(header("'<i2'", "False", shape).as_bytes(), &[]);
    for shape in ["(0, 1099511627777)", "(4294967296, 4294967296, 16)", "(99999999999999999999,)"] {
        wrong.push(("more elements than a tensor may have", empty(shape)));
    }
    let right = vec![
        ("the right file", right),
        ("as many axes as a tensor may have", single(&axes(RANK_MAX))),
        ("an axis as long as a tensor may have", empty("(0, 1099511627776)")),
    ];
    (right, wrong)
}

fn npz() -> (Files, Files) {
    let file = npy_of(b"{'descr': '<i2', 'fortran_order': False, 'shape': (2,)}\n", &[1, 0, 2, 0]);
    let entry = |name: &str| Entry::stored(name, file.clone());
    let both = [entry("a.npy"), entry("b.npy")];
    let right = archive(&both);
    let changed = |change: &dyn Fn(&mut Entry)| {
        let mut entries = both.clone();
        change(&mut entries[1]);
        archive(&entries)
    };
    let packed = |change: &dyn Fn(&mut Entry)| {
        let mut entry = Entry::deflated("a.npy", file.clone());
        change(&mut entry);
        archive(&[entry])
    };
    let longer = [&file[..], &[0]].concat();
    let wrong: Files = vec![
        ("no bytes", Vec::new()),
        ("no archive", file.clone()),
        ("no end", right[..right.len() - 30].to_vec()),
        ("an entry of another name", archive(&[entry("a.npy"), entry("b.txt")])),
        ("an entry without a name", archive(&[entry(".npy")])),
        ("two entries of a name", archive(&[entry("a.npy"), entry("a.npy")])),
        ("two entries of the same data", changed(&|entry| entry.data_of = Some(0))),
        ("another byte of the data", changed(&|entry| entry.stored[file.len() - 1] ^= 1)),
        ("another checksum", changed(&|entry| entry.crc ^= 1 << 31)),
        ("another size", changed(&|entry| entry.size += 1)),
        ("another compression", changed(&|entry| entry.method = 12)),
        ("an entry that is no array", changed(&|entry| entry.stored[0] ^= 1)),
        ("a byte after the array", archive(&[Entry::stored("a.npy", longer.clone())])),
        ("compressed data that ends early", packed(&|entry| entry.stored.truncate(20))),
        ("another checksum of compressed data", packed(&|entry| entry.crc = crc(&longer))),
        ("a size that is too small", packed(&|entry| entry.size -= 1)),
        ("a size that is too large", packed(&|entry| entry.size += 1)),
        ("a long name", archive(&[entry(&format!("{}.npy", "n".repeat(NAME_MAX + 1)))])),
    ];
    let long = format!("{}.npy", "n".repeat(NAME_MAX));
    let right = vec![
        ("the right file", right),
        ("a compressed file", packed(&|_| {})),
        ("the longest name", archive(&[entry(&long)])),
        ("zeros, of which a few bytes are many", {
            let header = b"{'descr': '|u1', 'fortran_order': False, 'shape': (40000,)}\n";
            archive(&[Entry::deflated("z.npy", npy_of(header, &[0; 40_000]))])
        }),
    ];
    (right, wrong)
}

fn safetensors() -> (Files, Files) {
    let of = |text: &str, data: &[u8]| {
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), data].concat()
    };
    let data = [1u8, 0, 2, 0, 3, 0, 4, 0];
    let item = |name: &str, dtype: &str, shape: &str, range: &str| {
        format!(r#""{name}":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{range}}}"#)
    };
    let first = item("a", "I16", "[2]", "[0,4]");
    let second = item("b", "I16", "[2,1]", "[4,8]");
    let metadata = r#""__metadata__":{"k":"v"}"#;
    let text = format!("{{{metadata},{first},{second}}}");
    // The right file with another second tensor.
    let with = |item: &str| of(&format!("{{{metadata},{first},{item}}}"), &data);
    let replaced = |from: &str, to: &str| of(&text.replace(from, to), &data);
    let b = |dtype: &str, shape: &str, range: &str| with(&item("b", dtype, shape, range));
    let mut wrong: Files = vec![
        ("no bytes", Vec::new()),
        ("a length that ends early", vec![0; 7]),
        ("an empty header", of("", &[])),
        ("a header that is longer than the file", [&[255u8, 0][..], &[0; 14]].concat()),
        ("a header of 2^64 bytes", [&[255u8; 8][..], text.as_bytes()].concat()),
        ("a list", of("[]", &[])),
        ("text after the header", of(&format!("{text} x"), &data)),
        ("no end of the header", of(text.trim_end_matches('}'), &data)),
        ("data that ends early", of(&text, &data[..7])),
        ("a byte after the data", of(&text, &[&data[..], &[0]].concat())),
        ("data that begins later", of(&format!("{{{second}}}"), &data)),
        ("no range", with(r#""b":{"dtype":"I16","shape":[2]}"#)),
        ("no shape", with(r#""b":{"dtype":"I16","data_offsets":[4,8]}"#)),
        ("no dtype", with(r#""b":{"shape":[2],"data_offsets":[4,8]}"#)),
        (
            "a dtype twice",
            replaced(
                r#""dtype":"I16","shape":[2,1]"#,
                r#""dtype":"I16","dtype":"I16","shape":[2,1]"#,
            ),
        ),
        ("a tensor that is a list", with(r#""b":[4,8]"#)),
        ("a name twice", with(&item("a", "I16", "[2]", "[4,8]"))),
        ("metadata twice", replaced(metadata, &format!("{metadata},{metadata}"))),
        ("metadata that is a number", replaced(r#""v""#, "1")),
        ("metadata that is nothing", replaced(r#""v""#, "null")),
        ("metadata of metadata", replaced(r#""v""#, r#"{"w":"x"}"#)),
        ("metadata that is a text", replaced(r#"{"k":"v"}"#, r#""v""#)),
        ("a long name", with(&item(&"n".repeat(NAME_MAX + 1), "I16", "[2]", "[4,8]"))),
    ];
    for range in ["[5,9]", "[3,7]", "[0,4]", "[8,4]", "[4,7]", "[4]", "[4,6,8]", "[-4,8]", "[4,9]"]
    {
        wrong.push(("another range", b("I16", "[2]", range)));
    }
    for shape in ["[3]", "[1]", "[-2]", "[2.0]", "[2,2]", "2", "[0]", "[\"2\"]"] {
        wrong.push(("another shape", b("I16", shape, "[4,8]")));
    }
    for dtype in ["F8_E5M2", "F8_E4M3", "i16", "I32", "C64", "", "int16"] {
        wrong.push(("another dtype", b(dtype, "[2]", "[4,8]")));
    }
    let axes = |count: usize| format!("[2{}]", ",1".repeat(count - 1));
    wrong.push(("more axes than a tensor may have", b("I16", &axes(RANK_MAX + 1), "[4,8]")));
    let empty = |shape: &str| of(&format!("{{{}}}", item("a", "I16", shape, "[0,0]")), &[]);
    for shape in ["[0,1099511627777]", "[4294967296,4294967296,16]", "[4611686018427387904,4]"] {
        wrong.push(("more elements than a tensor may have", empty(shape)));
    }
    let name = "n".repeat(NAME_MAX);
    let right = vec![
        ("the right file", of(&text, &data)),
        ("as many axes as a tensor may have", b("I16", &axes(RANK_MAX), "[4,8]")),
        ("the longest name", with(&item(&name, "I16", "[2]", "[4,8]"))),
        ("an axis as long as a tensor may have", empty("[0,1099511627776]")),
        ("no tensors", of("{}", &[])),
    ];
    (right, wrong)
}

fn gguf() -> (Files, Files) {
    let array = Array { dtype: DType::I16, shape: vec![2, 3], bytes: (1..13).collect() };
    let tensor = |name: &str, offset: u64| {
        let described = Described::of(name, &array, 25, array.bytes.clone());
        Described { offset, ..described }
    };
    let value = |key: &str, value: GgufValue| {
        let (kind, bytes) = gguf_value(&value);
        (key.to_string(), kind, bytes)
    };
    let mut base = Gguf::default();
    base.values.push(value("general.name", GgufValue::Text("x".to_string())));
    base.tensors = vec![tensor("a", 0), tensor("b", 32)];
    let changed = |change: &dyn Fn(&mut Gguf)| {
        let mut file = base.clone();
        change(&mut file);
        file.bytes()
    };
    let valued = |value: (String, u32, Vec<u8>)| changed(&|file| file.values.push(value.clone()));
    let raw = |kind: u32, bytes: &[u8]| valued(("k".to_string(), kind, bytes.to_vec()));
    let right = base.bytes();
    let alignment = |value: GgufValue| {
        let (kind, bytes) = gguf_value(&value);
        valued(("general.alignment".to_string(), kind, bytes))
    };
    // The last tensor with another description, and data that is enough for any.
    let described = |kind: u32, sizes: &[u64]| {
        changed(&|file| {
            let name = "b".to_string();
            let data = vec![1; 2048];
            file.tensors[1] = Described { name, sizes: sizes.to_vec(), kind, offset: 32, data };
        })
    };
    let long = "n".repeat(NAME_MAX + 1);
    let mut nested = GgufValue::U8(1);
    for _ in 0..100 {
        nested = GgufValue::Array(vec![nested]);
    }
    let mut wrong: Files = vec![
        ("no bytes", Vec::new()),
        ("a header that ends early", right[..100].to_vec()),
        ("data that ends early", right[..right.len() - 1].to_vec()),
        ("another start", changed(&|file| file.start = *b"GGUf")),
        ("big endian", changed(&|file| file.version = 3u32.swap_bytes())),
        ("too many tensors", changed(&|file| file.surplus_counts = [1 << 40, 0])),
        ("too many values", changed(&|file| file.surplus_counts = [0, 1 << 40])),
        ("2^64 - 1 values", changed(&|file| file.surplus_counts = [0, u64::MAX - 1])),
        ("a key twice", valued(value("general.name", GgufValue::U8(1)))),
        ("a name twice", changed(&|file| file.tensors[1].name = "a".to_string())),
        ("a bool that is 2", raw(7, &[2])),
        ("a type that there is not", raw(13, &[0; 8])),
        ("a text that is no UTF-8", raw(8, &[1, 0, 0, 0, 0, 0, 0, 0, 0xff])),
        ("a text of 2^63 bytes", raw(8, &[0, 0, 0, 0, 0, 0, 0, 0x80])),
        ("an array of 2^61 numbers", raw(9, &[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20])),
        ("a hundred arrays", valued(value("k", nested))),
        ("a long key", valued(value(&long, GgufValue::U8(1)))),
        ("a long name", changed(&|file| file.tensors[1].name = long.clone())),
        ("an alignment of another type", alignment(GgufValue::U64(32))),
        ("an alignment in a text", alignment(GgufValue::Text("32".to_string()))),
        ("overlapping data", changed(&|file| file.tensors[1].offset = 0)),
        ("a hundred axes", described(0, &[1; 100])),
        ("more elements than a tensor may have", described(0, &[1 << 32, 1 << 32, 16])),
        ("a longer axis than a tensor may have", described(0, &[(1 << 40) + 1, 0])),
    ];
    for version in [0, 1, 4] {
        wrong.push(("another version", changed(&|file| file.version = version)));
    }
    for size in [0, 4, 12, 33] {
        wrong.push(("another alignment", alignment(GgufValue::U32(size))));
    }
    for offset in [33, 40, 48] {
        wrong.push(("data that is not aligned", changed(&|file| file.tensors[1].offset = offset)));
    }
    // The offset of "b" ends the header.
    let at = right.windows(8).rposition(|bytes| bytes == 32u64.to_le_bytes());
    let at = at.expect("it is in the header");
    for offset in [1u64 << 15, 1 << 62, u64::MAX - 31] {
        let mut far = right.clone();
        far[at..][..8].copy_from_slice(&offset.to_le_bytes());
        wrong.push(("data after the end", far));
    }
    // Removed types, those of blocks that are not read, and numbers that no type has.
    for kind in [4, 5, 9, 10, 11, 15, 16, 19, 20, 23, 29, 31, 34, 35, 39, 99, u32::MAX] {
        wrong.push(("another type", described(kind, &[256])));
    }
    for block in blocks::BLOCKS {
        let row = block.elements as u64;
        wrong.push(("half a block", described(block.kind, &[row / 2, 2])));
        wrong.push(("a block and an element", described(block.kind, &[row + 1])));
        wrong.push(("a block without axes", described(block.kind, &[])));
    }
    (vec![("the right file", right)], wrong)
}

/// A checkpoint of these entries, in a folder.
fn checkpoint(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let entry = |(name, data): &(&str, &[u8])| Entry::stored(&format!("m/{name}"), data.to_vec());
    archive(&entries.iter().map(entry).collect::<Vec<_>>())
}

fn torch(draw: &mut Draw) -> (Files, Files) {
    let data: Vec<u8> = (0..16).collect();
    let id = || storage_id(Some(DType::F32), "0", 16);
    // The arguments of a tensor of 2 by 2 elements.
    let arguments = |id: Object| {
        vec![
            Object::Persistent(Box::new(id)),
            Object::Int(0),
            Object::numbers(&[2, 2]),
            Object::numbers(&[2, 1]),
            Object::Bool(false),
            Object::ordered(Vec::new()),
        ]
    };
    let version_2 = |args| Object::call("torch._utils", "_rebuild_tensor_v2", args);
    let version_3 = |args| Object::call("torch._utils", "_rebuild_tensor_v3", args);
    let tensor = || version_2(arguments(id()));
    let with = |at: usize, object: Object| {
        let mut list = arguments(id());
        list[at] = object;
        version_2(list)
    };
    let and = |object: Object| {
        let mut list = arguments(id());
        list.push(object);
        list
    };
    let flag = |name: &str, value: Object| Object::Dict(vec![(Object::text(name), value)]);
    let of_dtype = |name: &'static str| version_3(and(Object::Global("torch", name)));
    let id_with = |at: usize, object: Object| {
        let Object::Tuple(mut items) = id() else { unreachable!("an id is a tuple") };
        items[at] = object;
        version_2(arguments(Object::Tuple(items)))
    };
    let raw = |bytes: &[u8]| Object::Raw(bytes.to_vec());
    let far = vec![Object::Int(3), Object::Int(1 << 62)];
    let mut nested = tensor();
    for _ in 0..500 {
        nested = Object::List(vec![nested]);
    }
    let keyed = |key: Object, value: Object| Object::Dict(vec![(key, value)]);
    let roots = [
        ("a view one element too far", with(1, Object::Int(1))),
        ("a larger stride", with(3, Object::numbers(&[3, 1]))),
        ("more rows", with(2, Object::numbers(&[3, 2]))),
        ("more sizes than strides", with(2, Object::numbers(&[2, 2, 1]))),
        ("more strides than sizes", with(3, Object::numbers(&[2, 1, 1]))),
        ("a negative offset", with(1, Object::Int(-1))),
        ("a negative size", with(2, Object::numbers(&[2, -2]))),
        ("a negative stride", with(3, Object::numbers(&[-2, 1]))),
        ("an index of 2^62", with(3, Object::Tuple(far))),
        ("an offset that is a text", with(1, Object::text("0"))),
        ("an offset that is a float", with(1, Object::Float(0.0))),
        ("an offset of nine bytes", with(1, Object::Large)),
        ("a tensor without a storage", with(0, id())),
        ("five arguments", version_2(arguments(id())[..5].to_vec())),
        ("no dtype", version_3(arguments(id()))),
        ("a dtype that is a text", version_3(and(Object::text("float32")))),
        ("a conjugate", version_2(and(flag("conj", Object::Bool(true))))),
        ("an unknown flag", version_2(and(flag("future", Object::Bool(true))))),
        ("a flag that is nothing", version_2(and(flag("neg", Object::None)))),
        ("flags in a list", version_2(and(Object::List(Vec::new())))),
        ("a negative bool", {
            let mut list = and(Object::Global("torch", "bool"));
            list.push(flag("neg", Object::Bool(true)));
            version_3(list)
        }),
        ("a complex dtype", of_dtype("complex64")),
        ("a float of a byte", of_dtype("float8_e4m3fn")),
        ("half a byte", of_dtype("uint4")),
        ("complex elements", id_with(1, Object::Global("torch", "ComplexFloatStorage"))),
        ("bytes without a dtype", version_2(arguments(storage_id(None, "0", 16)))),
        ("another tag", id_with(0, Object::text("module"))),
        ("a class that is a text", id_with(1, Object::text("FloatStorage"))),
        ("a key that is a number", id_with(2, Object::Int(0))),
        ("a storage that is missing", id_with(2, Object::text("1"))),
        ("a larger storage", id_with(4, Object::Int(5))),
        ("a smaller storage", id_with(4, Object::Int(3))),
        ("an id that is a text", version_2(arguments(Object::text("0")))),
        ("a call of the system", Object::call("posix", "system", vec![Object::text("ls")])),
        ("a call of eval", Object::call("builtins", "eval", vec![Object::text("1")])),
        ("a module", Object::call("torch.nn.modules.linear", "Linear", Vec::new())),
        ("a quantised tensor", Object::call("torch._utils", "_rebuild_qtensor", Vec::new())),
        ("a parameter of nothing", {
            let arguments = vec![Object::None, Object::Bool(true), Object::ordered(Vec::new())];
            Object::call("torch._utils", "_rebuild_parameter", arguments)
        }),
        ("a call of a text", Object::Call(Box::new(Object::text("f")), Box::new(raw(b")")))),
        ("a call without a tuple", {
            let function = Object::Global("collections", "OrderedDict");
            Object::Call(Box::new(function), Box::new(Object::List(Vec::new())))
        }),
        ("attributes of a tensor", Object::State(Box::new(tensor()), Box::new(Object::None))),
        (
            "items of a list",
            Object::Items(Box::new(Object::List(Vec::new())), vec![(Object::Int(0), tensor())]),
        ),
        ("a key that is nothing", keyed(Object::None, tensor())),
        ("a key that is a float", keyed(Object::Float(0.5), Object::List(vec![tensor()]))),
        ("a key that is a tuple", keyed(Object::numbers(&[1]), tensor())),
        ("a key of bytes", keyed(Object::Bytes(vec![b'b']), tensor())),
        ("a long name", keyed(Object::text(&"n".repeat(NAME_MAX + 1)), tensor())),
        (
            "a number and its text",
            Object::Dict(vec![(Object::Int(1), tensor()), (Object::text("1"), tensor())]),
        ),
        (
            "two ways to a name",
            Object::Dict(vec![
                (Object::text("a"), keyed(Object::text("b"), tensor())),
                (Object::text("a.b"), tensor()),
            ]),
        ),
        ("five hundred lists", nested),
        ("an instance", raw(b"(cm\nN\no")),
        ("a new object", raw(b"ctorch\nSize\n)\x81")),
        ("an empty memo", raw(b"h\xfa")),
        ("an item of nothing", raw(b"Na")),
        ("items without a dict", raw(b"(NNu")),
        ("half an item", raw(b"}(Nu")),
        ("a value that is not there", raw(b"00")),
        ("a tuple without a mark", raw(b"Nt")),
        ("a text that is no UTF-8", raw(b"X\x01\0\0\0\xff")),
        ("a text that ends early", raw(b"X\xff\xff\xff\x7fabc")),
        ("a name without an end", raw(b"ctorch")),
    ];
    let mut wrong: Files = Vec::new();
    for (label, root) in roots {
        let bytes = pickle(draw, &root);
        wrong.push((label, checkpoint(&[("data.pkl", &bytes), ("data/0", &data)])));
    }
    let bytes = pickle(draw, &keyed(Object::text("w"), tensor()));
    let right = checkpoint(&[("data.pkl", &bytes), ("data/0", &data)]);
    let end = &bytes[..bytes.len() - 1];
    wrong.extend([
        ("no bytes", Vec::new()),
        ("a pickle alone", bytes.clone()),
        ("no pickle", checkpoint(&[("data/0", &data)])),
        ("a pickle in a folder", checkpoint(&[("m/data.pkl", &bytes), ("m/data/0", &data)])),
        ("a pickle in no folder", archive(&[Entry::stored("data.pkl", bytes.clone())])),
        ("no storages", checkpoint(&[("data.pkl", &bytes)])),
        ("a pickle without an end", checkpoint(&[("data.pkl", end), ("data/0", &data)])),
        ("an empty pickle", checkpoint(&[("data.pkl", b""), ("data/0", &data)])),
        ("less data", checkpoint(&[("data.pkl", &bytes), ("data/0", &data[..12])])),
        ("more data", checkpoint(&[("data.pkl", &bytes), ("data/0", &[0; 20])])),
        ("two pickles", {
            let entries =
                ["a/data.pkl", "b/data.pkl"].map(|name| Entry::stored(name, bytes.clone()));
            archive(&[&entries[..], &[Entry::stored("a/data/0", data.clone())]].concat())
        }),
        ("another byte of a storage", {
            let mut entry = Entry::stored("m/data/0", data.clone());
            entry.stored[3] ^= 1;
            archive(&[Entry::stored("m/data.pkl", bytes.clone()), entry])
        }),
    ]);
    let mut right_files = vec![("the right file", right)];
    for (label, root) in [
        ("the last elements", {
            let mut list = arguments(id());
            (list[1], list[2]) = (Object::Int(2), Object::numbers(&[1, 2]));
            version_2(list)
        }),
        ("nothing, beyond the end", {
            let mut list = arguments(id());
            (list[1], list[2]) = (Object::Int(9), Object::numbers(&[0, 2]));
            version_2(list)
        }),
        ("the longest name", keyed(Object::text(&"n".repeat(NAME_MAX)), tensor())),
        ("as many axes as a tensor may have", {
            let mut list = arguments(id());
            (list[2], list[3]) = (Object::numbers(&[1; RANK_MAX]), Object::numbers(&[9; RANK_MAX]));
            version_2(list)
        }),
        ("no tensors", Object::Dict(Vec::new())),
    ] {
        let bytes = pickle(draw, &root);
        right_files.push((label, checkpoint(&[("data.pkl", &bytes), ("data/0", &data)])));
    }
    (right_files, wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each wrong file is refused, and each right one is read, whatever is drawn.
    #[test]
    fn wrong_files_of_all_formats_are_refused() {
        for seed in 0..8 {
            let formats = [npy(), npz(), safetensors(), gguf(), torch(&mut Draw::new(seed))];
            let folder = tempfile::tempdir().expect("a folder");
            let path = folder.path().join("tensors");
            let mut problems = Vec::new();
            for (format, (right, wrong)) in FORMATS.into_iter().zip(formats) {
                for (label, bytes) in right {
                    std::fs::write(&path, bytes).expect("it can be written");
                    let error = loaded(format, &path).err();
                    problems.extend(error.map(|error| format!("{format:?}, {label}: {error}")));
                }
                for (label, bytes) in wrong {
                    std::fs::write(&path, bytes).expect("it can be written");
                    let problem = is_refused(format, &path).err();
                    problems.extend(problem.map(|why| format!("{format:?}, {label}: {why}")));
                }
            }
            assert!(problems.is_empty(), "seed {seed}: {}", problems.join("\n"));
        }
    }
}
