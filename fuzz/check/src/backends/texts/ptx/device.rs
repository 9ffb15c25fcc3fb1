//! The interpreter as a device: kernels are rendered to PTX, and the text is run.

use std::sync::Arc;

use gradiff::graph::{AxisKind, BoundedLinear, Linear, Target};
use gradiff::render::{Code, LANGUAGES, Language};
use gradiff::runtime::{Device, Error, Executable, Memory};

use super::decode::{Program, decode};
use super::machine::{Argument, Launch, launch};
use super::memory::POISON;
use crate::models::linear::{executed, is_stored};

/// The name of the device in the names of backends: `text/ptx`.
const NAME: &str = "text";

/// A launch that executes more lanes of uops than this runs on the device `interp`.
const LANE_LIMIT: u64 = 1 << 20;

/// Generous limit of the instructions for a lane of a uop: a text that executes more has a loop
/// without an end.
const INSTRUCTIONS_PER_LANE: u64 = 64;

/// Threads of a group and groups of a grid in each dimension: CUDA programming guide, technical
/// specifications, all compute capabilities from 8.0 on.
const THREADS_MAX: [i64; 3] = [1024, 1024, 64];
const GROUPS_MAX: [i64; 3] = [0x7fff_ffff, 0xffff, 0xffff];

/// The device of the interpreter.
pub(crate) struct Ptx {
    language: &'static Language,
    interp: Arc<dyn Device>,
}

impl Ptx {
    /// Opens the device.
    ///
    /// # Errors
    /// No renderer of this language, no device `interp`.
    pub(crate) fn open() -> Result<Ptx, String> {
        let language = LANGUAGES.iter().find(|language| language.name == "ptx");
        let language = language.ok_or("there is no language ptx")?;
        let interp = gradiff::runtime::device("interp").map_err(|error| error.to_string())?;
        Ok(Ptx { language, interp })
    }
}

impl Ptx {
    /// Decodes a text, which is to be that of the kernel.
    ///
    /// # Errors
    /// A text or a launch that the interpreter refuses.
    pub(crate) fn compile_text(
        &self,
        kernel: &Linear,
        code: &Code,
    ) -> Result<Arc<dyn Executable>, Error> {
        let text = (self.language.prelude)(&code.helpers) + &code.text;
        let program = decode(&text).map_err(|problem| refused(kernel, problem))?;
        let launch = sizes(kernel).map_err(|problem| refused(kernel, problem))?;
        Ok(Arc::new(Ready { launch, kernel: kernel.clone(), program }))
    }
}

impl Device for Ptx {
    fn name(&self) -> &'static str {
        NAME
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let compile = |kernel: &&BoundedLinear| {
            let rendered = (self.language.render)(kernel);
            let code = rendered.map_err(|error| refused(kernel, error.to_string()))?;
            let ready = self.compile_text(kernel, &code)?;
            if LANE_LIMIT < executed(kernel) {
                return Ok(self.interp.compile(&[kernel])?.remove(0));
            }
            Ok(ready)
        };
        kernels.iter().map(compile).collect()
    }

    fn target(&self) -> Target {
        Target::of("ptx")
    }

    fn describe(&self) -> String {
        "interpreter of the source text, after the PTX ISA manual".to_owned()
    }
}

fn refused(kernel: &Linear, problem: String) -> Error {
    Error::Launch { device: NAME, kernel: kernel.name.clone(), problem }
}

/// The launch of a kernel: a group for each iteration of the global ranges and a thread for each of
/// the local ones; the innermost range is x.
fn sizes(kernel: &Linear) -> Result<Launch, String> {
    let sizes_of = |kind, limits: [i64; 3]| -> Result<[u32; 3], String> {
        let mut sizes = [1; 3];
        for (dimension, (_, count)) in kernel.launched(kind).into_iter().rev().enumerate() {
            let size = sizes.get_mut(dimension).ok_or("more than three dimensions")?;
            let count = Some(count).filter(|count| *count <= limits[dimension]);
            let count = count.and_then(|count| u32::try_from(count).ok());
            *size = count.ok_or_else(|| format!("more than {limits:?} {kind:?} iterations"))?;
        }
        Ok(sizes)
    };
    let instructions_max = INSTRUCTIONS_PER_LANE.saturating_mul(executed(kernel) + 64);
    let grid = sizes_of(AxisKind::Global, GROUPS_MAX)?;
    let group = sizes_of(AxisKind::Local, THREADS_MAX)?;
    Ok(Launch { grid, group, instructions_max })
}

/// A kernel whose text is decoded.
struct Ready {
    kernel: Linear,
    program: Program,
    launch: Launch,
}

impl Executable for Ready {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut arguments: Vec<Argument> = (0..)
            .zip(memories)
            .map(|(slot, memory)| argument(memory, is_stored(&self.kernel, slot)))
            .collect::<Result<_, _>>()?;
        launch(&self.program, &mut arguments, &self.launch)
            .map_err(|problem| refused(&self.kernel, problem))?;
        for (memory, argument) in memories.iter().zip(&arguments) {
            if argument.is_stored {
                memory.write(&argument.bytes)?;
            }
        }
        Ok(())
    }
}

fn argument(memory: &Memory, is_stored: bool) -> Result<Argument, Error> {
    let element_bytes = memory.dtype().size_bytes();
    let (bytes, is_fresh) = match memory.read() {
        Ok(bytes) => (bytes, false),
        Err(Error::Unwritten { .. }) => {
            (vec![POISON; memory.size_elements() * element_bytes], true)
        }
        Err(error) => return Err(error),
    };
    Ok(Argument { bytes, element_bytes, is_stored, is_fresh })
}
