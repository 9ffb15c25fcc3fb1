//! NumPy's `.npy`: a magic number, a version, a header (the text of a Python dict), the data.

use std::io::{BufReader, Read, Write};
use std::path::Path;

use gradiff_graph::DType;
use gradiff_tensor::Tensor;

use crate::Error;
use crate::error::{Problem, broken};
use crate::layout::{Layout, check_rank, swap_bytes};
use crate::output::write_atomically;
use crate::source::{Source, read_exactly};

const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// The maximal length of a header. NumPy itself refuses those of more than 10,000 bytes.
const MAX_HEADER_BYTES: usize = 1 << 16;

/// Dtypes and their names in a header, without the byte order.
const NAMES: [(DType, &str); 12] = [
    (DType::Bool, "b1"),
    (DType::I8, "i1"),
    (DType::U8, "u1"),
    (DType::I16, "i2"),
    (DType::U16, "u2"),
    (DType::I32, "i4"),
    (DType::U32, "u4"),
    (DType::I64, "i8"),
    (DType::U64, "u8"),
    (DType::F16, "f2"),
    (DType::F32, "f4"),
    (DType::F64, "f8"),
];

/// Reads a `.npy` file: arrays of bools, integers and floats, in the order of C or of Fortran, with
/// little or big endian elements.
///
/// ```
/// # use gradiff_tensor::Tensor;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("x.npy");
/// gradiff_files::save_npy(&Tensor::from_slice(&[2, 2], &[1i64, 2, 3, 4])?, &path)?;
/// assert_eq!(gradiff_files::load_npy(&path)?.to_text()?, "[[1, 2], [3, 4]]");
/// # Ok(())
/// # }
/// ```
/// # Errors
/// If the file cannot be read, is broken, or holds objects, records or a dtype that the engine does
/// not have.
pub fn load_npy(path: impl AsRef<Path>) -> Result<Tensor, Error> {
    let path = path.as_ref();
    let load = || {
        let source = Source::open(path)?;
        read(&mut BufReader::new(source.file), source.size_bytes, source.size_bytes)
    };
    load().map_err(|problem| problem.at(path))
}

/// Writes a tensor to a `.npy` file. Computes it first. The file is replaced at once.
/// # Errors
/// If the tensor cannot be computed, has more than 64 axes or is of bf16, which NumPy does not
/// have, or the file cannot be written.
pub fn save_npy(tensor: &Tensor, path: impl AsRef<Path>) -> Result<(), Error> {
    let path = path.as_ref();
    let save = || {
        let header = header_of(tensor)?;
        let bytes = tensor.to_bytes()?;
        write_atomically(path, |writer| {
            writer.write_all(&header)?;
            Ok(writer.write_all(&bytes)?)
        })
    };
    save().map_err(|problem| problem.at(path))
}

/// Reads an array that fills `size_bytes` bytes, of which `present_bytes` are known to exist.
pub(crate) fn read(
    reader: &mut dyn Read,
    size_bytes: u64,
    present_bytes: u64,
) -> Result<Tensor, Problem> {
    let start = read_exactly(reader, 8, 8)?;
    let Some([major, _]) = start.strip_prefix(MAGIC.as_slice()) else {
        return broken("this is no .npy file: it does not begin with \\x93NUMPY");
    };
    let length_size = match major {
        1 => 2,
        2 | 3 => 4,
        version => return broken(format!("version {version} of .npy; 1 to 3 are supported")),
    };
    let mut length = [0; 4];
    let length_bytes = read_exactly(reader, length_size, length_size)?;
    length[..length_bytes.len()].copy_from_slice(&length_bytes);
    let length = u32::from_le_bytes(length);
    if MAX_HEADER_BYTES < length as usize {
        return broken(format!("a header of {length} bytes; {MAX_HEADER_BYTES} are allowed"));
    }
    let header = read_exactly(reader, u64::from(length), 0)?;
    let header = Header::parse(&header)?;
    let data = size_bytes.saturating_sub(8 + length_size + u64::from(length));
    let layout = header.layout;
    if layout.size_bytes() != data {
        return broken(format!(
            "{}{:?} needs {} bytes, and the file has {data} after its header",
            layout.dtype,
            layout.shape,
            layout.size_bytes()
        ));
    }
    let mut bytes = read_exactly(reader, data, present_bytes)?;
    if header.is_big_endian {
        swap_bytes(&mut bytes, layout.dtype.size_bytes());
    }
    if header.is_fortran {
        bytes = layout.gather(&bytes, 0, &layout.column_major())?;
    }
    layout.tensor(bytes)
}

/// The magic number, the version and the header of a tensor, as NumPy writes them.
pub(crate) fn header_of(tensor: &Tensor) -> Result<Vec<u8>, Problem> {
    check_rank(tensor.rank())?;
    let dtype = tensor.dtype();
    let Some((_, name)) = NAMES.iter().find(|(known, _)| *known == dtype) else {
        return broken(format!("NumPy has no {dtype}; cast the tensor to f32 before"));
    };
    let order = if dtype.size_bytes() == 1 { '|' } else { '<' };
    let shape = match tensor.shape() {
        [size] => format!("({size},)"),
        sizes => {
            let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
            format!("({})", sizes.join(", "))
        }
    };
    let mut text =
        format!("{{'descr': '{order}{name}', 'fortran_order': False, 'shape': {shape}, }}");
    // NumPy leaves space for the first size to grow in place.
    let digits = tensor.shape().first().map_or(0, |size| size.to_string().len());
    text.push_str(&" ".repeat(if tensor.rank() == 0 { 0 } else { 21 - digits }));
    // The data begins at a multiple of 64, after at least one space.
    let size_bytes = MAGIC.len() + 4 + text.len() + 1;
    text.push_str(&" ".repeat(64 - size_bytes % 64));
    text.push('\n');
    let Ok(length) = u16::try_from(text.len()) else {
        return broken("the shape has too many axes for a header");
    };
    let mut header = MAGIC.to_vec();
    header.extend_from_slice(&[1, 0]);
    header.extend_from_slice(&length.to_le_bytes());
    header.extend_from_slice(text.as_bytes());
    Ok(header)
}

struct Header {
    layout: Layout,
    is_big_endian: bool,
    is_fortran: bool,
}

impl Header {
    /// Parses the text of a dict with the keys `descr`, `fortran_order` and `shape`.
    fn parse(bytes: &[u8]) -> Result<Header, Problem> {
        let Ok(text) = std::str::from_utf8(bytes) else {
            return broken("the header is no text");
        };
        let mut literal = Literal { rest: text };
        let (mut descr, mut is_fortran, mut shape) = (None, None, None);
        literal.expect("{")?;
        while !literal.accept("}") {
            let key = literal.string()?;
            literal.expect(":")?;
            let is_new = match key {
                "descr" => descr.replace(literal.descr()?).is_none(),
                "fortran_order" => is_fortran.replace(literal.bool()?).is_none(),
                "shape" => shape.replace(literal.shape()?).is_none(),
                key => return broken(format!("the header has an unknown key {key:?}")),
            };
            if !is_new {
                return broken(format!("the header has the key {key:?} twice"));
            }
            if !literal.accept(",") {
                literal.expect("}")?;
                break;
            }
        }
        if !literal.rest.trim().is_empty() {
            return broken("the header has text after its dict");
        }
        let (Some(descr), Some(is_fortran), Some(shape)) = (descr, is_fortran, shape) else {
            return broken("the header lacks 'descr', 'fortran_order' or 'shape'");
        };
        let (dtype, is_big_endian) = dtype_of(descr)?;
        Ok(Header { layout: Layout::new(dtype, &shape)?, is_big_endian, is_fortran })
    }
}

/// Returns the dtype of a description such as `<f4`, and whether it is big endian.
fn dtype_of(descr: &str) -> Result<(DType, bool), Problem> {
    let name = descr.strip_prefix(['<', '>', '|', '=']).unwrap_or(descr);
    match NAMES.iter().find(|(_, known)| *known == name) {
        Some((dtype, _)) => Ok((*dtype, descr.starts_with('>'))),
        None if name.starts_with('O') => {
            broken("an array of Python objects, which are pickled and never read")
        }
        None => {
            let known: Vec<_> = NAMES.iter().map(|(_, name)| *name).collect();
            broken(format!("its dtype is {descr:?}; supported are {}", known.join(", ")))
        }
    }
}

/// The text that is left of a Python literal.
struct Literal<'a> {
    rest: &'a str,
}

impl<'a> Literal<'a> {
    /// Skips white space and `token`, if it is next.
    fn accept(&mut self, token: &str) -> bool {
        self.rest = self.rest.trim_start();
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn expect(&mut self, token: &str) -> Result<(), Problem> {
        if self.accept(token) {
            return Ok(());
        }
        let found: String = self.rest.chars().take(20).collect();
        broken(format!("the header has {found:?} where {token:?} belongs"))
    }

    /// A string without escapes.
    fn string(&mut self) -> Result<&'a str, Problem> {
        let quote = if self.accept("\"") { '"' } else { '\'' };
        if quote == '\'' {
            self.expect("'")?;
        }
        match self.rest.split_once(quote) {
            Some((text, rest)) if !text.contains('\\') => {
                self.rest = rest;
                Ok(text)
            }
            _ => broken("the header has a string without an end, or with escapes"),
        }
    }

    fn descr(&mut self) -> Result<&'a str, Problem> {
        if self.accept("[") || self.accept("(") || self.accept("{") {
            return broken("an array of records; supported are arrays of numbers");
        }
        self.string()
    }

    fn bool(&mut self) -> Result<bool, Problem> {
        if self.accept("True") {
            return Ok(true);
        }
        self.expect("False").map(|()| false)
    }

    /// A tuple of numbers.
    fn shape(&mut self) -> Result<Vec<u64>, Problem> {
        self.expect("(")?;
        let mut sizes = Vec::new();
        while !self.accept(")") {
            let digits =
                self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (number, rest) = self.rest.split_at(digits);
            let Ok(size) = number.parse() else {
                return broken("the header has a shape that is no tuple of sizes");
            };
            sizes.push(size);
            // Python 2 wrote long integers with an L.
            self.rest = rest.strip_prefix('L').unwrap_or(rest);
            if !self.accept(",") {
                self.expect(")")?;
                break;
            }
        }
        Ok(sizes)
    }
}
