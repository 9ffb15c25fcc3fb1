//! The device that compiles and runs texts.

use std::sync::{Arc, Mutex, PoisonError};

use gradiff::graph::{AxisKind, BoundedLinear, DType, Linear, Op, Target};
use gradiff::render::Code;
use gradiff::runtime::{Device, Error, Executable, Memory};

use super::host::{Argument, Host, Launch, Problem, compiler};
use super::languages::{Language, language};

/// The name of the device in the names of backends: `text/cuda`.
pub(crate) const NAME: &str = "text";

/// The value of bytes of memory that were never written.
const UNWRITTEN: u8 = 0xa5;

/// A language whose texts run here.
pub(crate) struct Texts {
    language: &'static Language,
    /// The engine's renderer.
    text: &'static gradiff::render::Language,
}

impl Texts {
    /// The device of a language.
    ///
    /// # Errors
    /// A language that the compiler for the host does not accept; a missing compiler.
    pub(crate) fn open(name: &str) -> Result<Texts, String> {
        compiler()?;
        let language = language(name).ok_or_else(|| format!("{name} does not run here"))?;
        let mut texts = gradiff::render::LANGUAGES.iter();
        let text = texts.find(|text| text.name == name);
        Ok(Texts { language, text: text.ok_or_else(|| format!("there is no language {name}"))? })
    }

    /// Compiles texts, each of which is to be the text of its kernel, under the kernel's name.
    ///
    /// # Errors
    /// The message of the compiler.
    pub(crate) fn compile_texts(
        &self,
        kernels: &[(&Linear, &Code)],
    ) -> Result<Vec<Arc<dyn Executable>>, Error> {
        for (kernel, code) in kernels {
            if let Some(problem) = (self.language.refused)(kernel, &code.text) {
                return Err(Error::Launch { device: NAME, kernel: kernel.name.clone(), problem });
            }
        }
        let code: Code = kernels.iter().map(|(_, code)| *code).collect();
        let call = |(number, (kernel, _)): (usize, &(&Linear, &Code))| {
            let dtypes: Vec<DType> = kernel.globals().iter().map(|(_, dtype)| *dtype).collect();
            (self.language.call)(&format!("call_k{number}"), &kernel.name, &dtypes)
        };
        let calls: String = kernels.iter().enumerate().map(call).collect();
        let kernels_text = (self.text.prelude)(&code.helpers) + &code.text;
        let kernels_text = (self.language.adapt)(&kernels_text);
        let file = [self.language.head, &kernels_text, &calls].concat();
        let names = || kernels.iter().map(|(kernel, _)| kernel.name.as_str()).collect::<Vec<_>>();
        let host = Host::new(self.language, file);
        let host = host.map_err(|problem| error(problem, names().join(", ")))?;
        let host = Arc::new(Mutex::new(host));
        let compiled = |(number, (kernel, _)): (usize, &(&Linear, &Code))| {
            let executable: Arc<dyn Executable> =
                Arc::new(Compiled { kernel: (*kernel).clone(), number, host: host.clone() });
            executable
        };
        Ok(kernels.iter().enumerate().map(compiled).collect())
    }
}

impl Device for Texts {
    fn name(&self) -> &'static str {
        NAME
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        if kernels.is_empty() {
            return Ok(Vec::new());
        }
        // Kernels of several programs may share a name.
        let named = |(number, kernel): (usize, &&BoundedLinear)| -> Result<_, Error> {
            let kernel = Linear { name: format!("k{number}"), uops: kernel.uops.clone() };
            let code = (self.text.render)(&kernel)?;
            Ok((kernel, code))
        };
        let named: Vec<(Linear, Code)> =
            kernels.iter().enumerate().map(named).collect::<Result<_, _>>()?;
        let texts: Vec<(&Linear, &Code)> =
            named.iter().map(|(kernel, code)| (kernel, code)).collect();
        self.compile_texts(&texts)
    }

    /// That of the language. C has none, and no program is lowered for it here.
    fn target(&self) -> Target {
        Target::named(self.language.name).unwrap_or_default()
    }

    fn supports_all(&self) -> bool {
        false
    }

    fn unsupported(&self, kernel: &Linear) -> Option<String> {
        (self.language.unsupported)(kernel).map(str::to_string)
    }

    fn describe(&self) -> String {
        let version = compiler().map_or("", |compiler| &compiler.version);
        format!("texts in {}, run by {version}", self.language.name)
    }
}

fn error(problem: Problem, kernel: String) -> Error {
    match problem {
        Problem::Text(problem) => Error::Launch { device: NAME, kernel, problem },
        Problem::Machine(why) => Error::CompilerUnusable { compiler: "clang".to_string(), why },
    }
}

/// A kernel in an object.
struct Compiled {
    kernel: Linear,
    number: usize,
    host: Arc<Mutex<Host>>,
}

impl Executable for Compiled {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let argument = |(slot, memory): (usize, &&Memory)| {
            let bytes = match memory.read() {
                Ok(bytes) => bytes,
                Err(Error::Unwritten { .. }) => {
                    vec![UNWRITTEN; memory.size_elements() * memory.dtype().size_bytes()]
                }
                Err(error) => return Err(error),
            };
            Ok(Argument { bytes, is_stored: crate::models::linear::is_stored(&self.kernel, slot) })
        };
        let mut arguments: Vec<Argument> =
            memories.iter().enumerate().map(argument).collect::<Result<_, _>>()?;
        let counts = |kind| {
            let mut counts = [1; 3];
            for (count, (_, size)) in counts.iter_mut().zip(self.kernel.launched(kind).iter().rev())
            {
                *count = u64::try_from(*size).unwrap_or(0);
            }
            counts
        };
        let launch = Launch {
            kernel: self.number,
            groups: counts(AxisKind::Global),
            threads: counts(AxisKind::Local),
            has_barriers: self
                .kernel
                .uops
                .iter()
                .any(|uop| matches!(uop.op, Op::Barrier | Op::Wmma)),
        };
        let mut host = self.host.lock().unwrap_or_else(PoisonError::into_inner);
        host.launch(&launch, &mut arguments)
            .map_err(|problem| error(problem, self.kernel.name.clone()))?;
        for (memory, argument) in memories.iter().zip(&arguments) {
            if argument.is_stored {
                memory.write(&argument.bytes)?;
            }
        }
        Ok(())
    }
}
