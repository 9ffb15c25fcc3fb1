//! The interpreter as a device: kernels are rendered to WGSL, and the text is run.

use std::sync::Arc;

use gradiff::graph::{AxisKind, BoundedLinear, Constant, DType, Linear, Target};
use gradiff::render::{Code, LANGUAGES, Language};
use gradiff::runtime::{Device, Error, Executable, Memory};
use gradiff_eval::scalar;
use naga::valid::{Capabilities, ValidationFlags, Validator};

use super::machine::{Array, Program};
use crate::models::linear::{executed, is_stored};

/// The name of the device in the names of backends: `text/wgsl`.
const NAME: &str = "text";

/// A launch that executes more lanes of uops than this runs on the device `interp`.
const LANE_LIMIT: u64 = 1 << 17;

/// Generous limit of the steps for a lane of a uop.
const STEPS_PER_LANE: u64 = 64;

/// The device of one of the dialects.
pub(crate) struct Wgsl {
    language: &'static Language,
    interp: Arc<dyn Device>,
}

impl Wgsl {
    /// Opens the device of a language.
    ///
    /// # Errors
    /// No renderer of this language, no device `interp`.
    pub(crate) fn open(name: &str) -> Result<Wgsl, String> {
        let language = LANGUAGES.iter().find(|language| language.name == name);
        let language = language.ok_or_else(|| format!("there is no language {name}"))?;
        let interp = gradiff::runtime::device("interp").map_err(|error| error.to_string())?;
        Ok(Wgsl { language, interp })
    }

    /// Returns whether the dialect has the types of the extensions.
    fn is_extended(&self) -> bool {
        self.language.name == "wgsl"
    }

    /// Reads a text, which is to be that of the kernel.
    ///
    /// # Errors
    /// A text or a launch that the interpreter refuses.
    pub(crate) fn compile_text(
        &self,
        kernel: &Linear,
        code: &Code,
    ) -> Result<Arc<dyn Executable>, Error> {
        let ready = self.read(kernel, code).map_err(|problem| refused(kernel, problem))?;
        Ok(Arc::new(ready))
    }

    fn read(&self, kernel: &Linear, code: &Code) -> Result<Ready, String> {
        let text = (self.language.prelude)(&code.helpers) + &code.text;
        let module =
            naga::front::wgsl::parse_str(&text).map_err(|why| why.emit_to_string(&text))?;
        let capabilities = match self.is_extended() {
            true => {
                Capabilities::SHADER_FLOAT16 | Capabilities::SHADER_INT64 | Capabilities::FLOAT64
            }
            false => Capabilities::empty(),
        };
        let mut validator = Validator::new(ValidationFlags::all(), capabilities);
        validator.validate(&module).map_err(|why| why.emit_to_string(&text))?;
        let program = Program::new(module)?;
        let sizes = |kind| -> Result<[u32; 3], String> {
            let mut sizes = [1; 3];
            for (dimension, (_, count)) in kernel.launched(kind).into_iter().rev().enumerate() {
                let size = sizes.get_mut(dimension).ok_or("more than three dimensions")?;
                *size = u32::try_from(count).map_err(|_| "a launch of a wrong size")?;
            }
            Ok(sizes)
        };
        let (grid, group) = (sizes(AxisKind::Global)?, sizes(AxisKind::Local)?);
        if program.group() != group {
            return Err(format!("groups of {:?} threads, expected {group:?}", program.group()));
        }
        let parameters: Vec<(DType, bool)> = (0..)
            .zip(kernel.globals())
            .map(|(slot, (_, dtype))| (dtype, is_stored(kernel, slot)))
            .collect();
        let storage: Vec<(DType, bool)> =
            parameters.iter().map(|(dtype, stored)| (self.storage(*dtype), *stored)).collect();
        if program.bindings()? != storage {
            return Err(format!("bindings are {:?}, expected {storage:?}", program.bindings()?));
        }
        Ok(Ready { kernel: kernel.clone(), program, grid, parameters, storage })
    }

    /// The type that stores elements of a dtype: a word for smaller types, with the value of an
    /// integer, or the bits of a 16-bit float that the language does not have.
    fn storage(&self, dtype: DType) -> DType {
        match dtype {
            DType::Bool | DType::U8 | DType::U16 | DType::BF16 => DType::U32,
            DType::I8 | DType::I16 => DType::I32,
            DType::F16 if !self.is_extended() => DType::U32,
            dtype => dtype,
        }
    }
}

impl Device for Wgsl {
    fn name(&self) -> &'static str {
        NAME
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let compile = |bounded: &&BoundedLinear| {
            // Not every name of a kernel is valid in WGSL.
            let kernel = &Linear { name: "k".to_owned(), uops: bounded.uops.clone() };
            let rendered = (self.language.render)(kernel);
            let code = rendered.map_err(|error| refused(kernel, error.to_string()))?;
            let ready = self.compile_text(kernel, &code)?;
            if LANE_LIMIT < executed(kernel) {
                return Ok(self.interp.compile(&[bounded])?.remove(0));
            }
            Ok(ready)
        };
        kernels.iter().map(compile).collect()
    }

    fn target(&self) -> Target {
        Target::of(self.language.name)
    }

    fn supports_all(&self) -> bool {
        false
    }

    fn unsupported(&self, kernel: &Linear) -> Option<String> {
        let is_wide = |dtype: DType| matches!(dtype, DType::I64 | DType::U64 | DType::F64);
        let is_unsupported =
            !self.is_extended() && kernel.uops.iter().any(|uop| is_wide(uop.dtype));
        is_unsupported.then(|| "WGSL without extensions has no type of 64 bits".to_string())
    }

    fn describe(&self) -> String {
        "interpreter of the source text, after the WGSL specification".to_owned()
    }
}

fn refused(kernel: &Linear, problem: String) -> Error {
    Error::Launch { device: NAME, kernel: kernel.name.clone(), problem }
}

/// A kernel whose text was parsed.
struct Ready {
    kernel: Linear,
    program: Program,
    grid: [u32; 3],
    /// For each array, the dtype of its elements, and whether it is stored to.
    parameters: Vec<(DType, bool)>,
    /// The same, with the types that store the elements.
    storage: Vec<(DType, bool)>,
}

impl Executable for Ready {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let arrays = memories
            .iter()
            .zip(self.parameters.iter().zip(&self.storage))
            .enumerate()
            .map(|(slot, (memory, ((dtype, is_stored), (storage, _))))| {
                let bytes = match memory.read() {
                    Ok(bytes) => Some(bytes),
                    Err(Error::Unwritten { .. }) => None,
                    Err(error) => return Err(error),
                };
                let elements = match bytes {
                    None => vec![None; memory.size_elements()],
                    Some(bytes) => bytes
                        .chunks_exact(dtype.size_bytes())
                        .map(|bytes| Some(widen(element(*dtype, bytes), *storage)))
                        .collect(),
                };
                Ok(Array { name: format!("data{slot}"), elements, is_stored: *is_stored })
            })
            .collect::<Result<Vec<_>, _>>()?;
        let steps = STEPS_PER_LANE.saturating_mul(executed(&self.kernel) + 64);
        let after = self.program.launch(self.grid, arrays, steps);
        let after = after.map_err(|problem| refused(&self.kernel, problem))?;
        for ((memory, array), (dtype, is_stored)) in
            memories.iter().zip(&after).zip(&self.parameters)
        {
            if !is_stored {
                continue;
            }
            let mut bytes = Vec::with_capacity(array.elements.len() * dtype.size_bytes());
            for (at, word) in array.elements.iter().enumerate() {
                // Elements that the kernel does not write get arbitrary bits.
                let bits = match word {
                    None => 0xa5a5_a5a5_a5a5_a5a5,
                    Some(word) => narrow(*word, *dtype).ok_or_else(|| {
                        let name = &array.name;
                        refused(
                            &self.kernel,
                            format!("element {at} of {name} is {word:?}, not a value of {dtype}"),
                        )
                    })?,
                };
                bytes.extend(bits.to_le_bytes().into_iter().take(dtype.size_bytes()));
            }
            memory.write(&bytes)?;
        }
        Ok(())
    }
}

fn element(dtype: DType, bytes: &[u8]) -> Constant {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    Constant::from_bits(dtype, u64::from_le_bytes(word))
}

/// An element in the word that stores it.
fn widen(element: Constant, storage: DType) -> Constant {
    match scalar::to_int(element) {
        Some(value) => scalar::int(storage, value).unwrap_or(element),
        None => Constant::from_bits(storage, element.bits()),
    }
}

/// The bits of the element that a word stores; none if it stores no value of the type.
fn narrow(word: Constant, dtype: DType) -> Option<u64> {
    if word.dtype() == dtype {
        return Some(word.bits());
    }
    let bits = word.bits() & (u64::MAX >> (64 - 8 * dtype.size_bytes()));
    let element = Constant::from_bits(dtype, bits);
    (dtype != DType::Bool || bits <= 1)
        .then_some(element)
        .filter(|element| widen(*element, word.dtype()) == word)
        .map(Constant::bits)
}
