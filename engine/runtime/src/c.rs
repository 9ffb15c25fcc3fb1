//! The device `c`: kernels compiled to shared objects by the system's C compiler.
//!
//! Up to 64 distinct kernels make one source file and one run of the compiler. Kernels that compute
//! in 8 or 16 bits, and long ones, have files and flags of their own. Files are compiled in
//! parallel and cached on disk; the key is the source text, the compiler, its flags and the
//! machine.
//!
//! A compile may have a time limit. At the limit the compiler is killed with all the programs it
//! has started, and its directory is removed.
//!
//! A kernel whose outermost range is a thread range becomes a function of the iteration.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gradiff_graph::target::Vectors;
use gradiff_graph::{BoundedLinear, DType, Instruction, Linear, Op, Target};
use gradiff_render::{Code, Helpers};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use crate::cache::Cache;
use crate::device::bounded_linears;
use crate::locked::Locked;
use crate::memory::Memory;
use crate::process::{self, Limit};
use crate::signature::Signature;
use crate::{Device, Error, Executable, threads};

/// The maximal number of kernels in a file.
const KERNELS_PER_FILE: usize = 64;

/// The flags of all kernels, which follow the words of `CC`. The renderer relies on integers that
/// wrap and on floats of IEEE 754, with infinities, NaN, zeros of both signs and denormals, whose
/// operations are neither contracted nor reassociated. With `-ffast-math` an object also has an
/// initialiser that flushes the denormals of the thread that loads it. clang takes the flags
/// against that as a return to its defaults, so they are before the others for floats.
/// `-fno-math-errno` lets `sqrt` be an instruction; it changes `errno`, never a result.
const FLAGS: [&str; 14] = [
    "-std=c99",
    "-shared",
    "-fPIC",
    "-O2",
    "-fno-fast-math",
    "-fno-unsafe-math-optimizations",
    "-fno-finite-math-only",
    "-fno-associative-math",
    "-fno-reciprocal-math",
    "-fsigned-zeros",
    "-fno-single-precision-constant",
    "-fwrapv",
    "-ffp-contract=off",
    "-fno-math-errno",
];

/// Flag against vectorised scalar code, for kernels that compute in integers of 8 or 16 bits, store
/// or cast truth values, or add products of floats. In such code gcc 12 treats truth values as -1
/// if the compared type has as many bits: the maximum of 0, 1, 1, 1 becomes 0; with AVX-512 it
/// mixes up the truth values of 25 unequal doubles and their transposed; and it contracts products
/// that are added and subtracted in turns, in spite of `-ffp-contract=off`. The rest keeps the
/// vectoriser, with which it compiles faster: ten times if it is unrolled a lot.
const SCALAR_FLAG: &str = "-fno-tree-vectorize";

/// Flag that optimises for this machine; omitted if the compiler does not support it.
const NATIVE: &str = "-march=native";

/// Flag against vectorised loops; omitted if the compiler, such as clang, does not support it. The
/// engine vectorises by itself, and gcc 12 loads wrong elements for two loads under one condition
/// in a vectorised loop: 392 of 1,584 loops that sum or store such loads were wrong, in all types.
const NO_LOOP_VECTORS: &str = "-fno-tree-loop-vectorize";

/// Flag that makes kernels touch each page of the stack in order, so that local arrays that are too
/// large hit the guard page and not the memory behind it; omitted if the compiler does not support
/// it.
const STACK_PROBES: &str = "-fstack-clash-protection";

/// Flag that combines at most two instructions, for kernels of more than [`LONG_LINES`] lines;
/// omitted if the compiler does not support it. More than half of gcc 12's time goes to combining
/// three or four instructions: with pairs only, 11,500 lines of 64-bit integers take 9 s instead of
/// 15. Vector tiles are shorter, and up to 1.4 times as fast with all combinations.
const COMBINE_PAIRS: &str = "--param=max-combine-insns=2";

/// A source that every working compiler compiles.
const PROBE: &str = "int gradiff_probe(void) { return 0; }\n";
/// Disk space in bytes that the probe tests for.
const PROBE_BYTES: usize = 4 << 20;
/// The number of further attempts after a failed compile.
const RETRIES: usize = 8;

/// Vector registers: the macro by which the compiler says that the machine has them, their bytes
/// and their number. The longest are first.
const VECTOR_REGISTERS: [(&str, u32, i64); 3] =
    [("__AVX512F__", 64, 32), ("__AVX2__", 32, 16), ("__SSE2__", 16, 16)];

/// Bytes and number of vector registers without such a macro, as on Arm's processors. A compiler
/// splits vectors that the processor does not have.
const OTHER_REGISTERS: (u32, i64) = (16, 32);

/// Macros by which the compiler says that a multiply-add is an instruction.
const FMA: [&str; 2] = ["__FMA__", "__ARM_FEATURE_FMA"];

/// The number of lines beyond which a kernel gets the flag [`COMBINE_PAIRS`].
const LONG_LINES: usize = 2048;

/// A C compiler and its cache.
pub(crate) struct Compiler {
    /// The program and its first arguments.
    command: Vec<String>,
    version: String,
    flags: Vec<&'static str>,
    /// The additional flag of long kernels.
    long_flag: Option<&'static str>,
    /// A description of the machine: all macros that the compiler defines.
    machine: String,
    cache: Cache,
}

impl Compiler {
    /// Finds the compiler: `CC` if it is set, else the first of cc, gcc and clang.
    pub(crate) fn open() -> Result<Compiler, Error> {
        let chosen = command_of(std::env::var_os("CC"))?;
        Compiler::find(chosen.as_deref(), Cache::open("so")?)
    }

    fn find(chosen: Option<&str>, cache: Cache) -> Result<Compiler, Error> {
        let candidates = chosen.map_or(vec!["cc", "gcc", "clang"], |command| vec![command]);
        let mut tried = Vec::new();
        for candidate in candidates {
            let command: Vec<String> = candidate.split_whitespace().map(String::from).collect();
            match output(&command, &["--version"]) {
                Ok(output) if output.status.success() => {
                    let text = String::from_utf8_lossy(&output.stdout);
                    let version = text.lines().next().unwrap_or_default().to_string();
                    return Ok(Compiler::new(command, version, cache));
                }
                Ok(output) => {
                    tried.push(format!("`{candidate} --version` ended with {}", output.status))
                }
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                    let why = "the signal SIGCHLD is ignored in this process, so it cannot wait \
                               for a compiler: use device `jit`, which needs none, or start the \
                               process with the default action";
                    return Err(Error::Unavailable { device: "c", why: why.to_string() });
                }
                Err(error) => tried.push(format!("`{candidate}`: {error}")),
            }
        }
        let source = if chosen.is_some() { " (from the environment variable CC)" } else { "" };
        Err(Error::Unavailable {
            device: "c",
            why: format!(
                "no C compiler was found{source}: {}. Install gcc or clang, set CC to a compiler, \
                 or use device `jit`, which needs none",
                tried.join("; ")
            ),
        })
    }

    /// Tests which flags the compiler supports.
    fn new(command: Vec<String>, version: String, cache: Cache) -> Compiler {
        let macros = |flags: &[&str]| {
            let arguments = [flags, &["-dM", "-E", "-x", "c", "/dev/null"]].concat();
            let output = output(&command, &arguments).ok().filter(|out| out.status.success())?;
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let mut flags = FLAGS.to_vec();
        let native = macros(&[NATIVE]);
        flags.extend(native.is_some().then_some(NATIVE));
        for flag in [NO_LOOP_VECTORS, STACK_PROBES] {
            flags.extend(macros(&[flag]).map(|_| flag));
        }
        let long_flag = macros(&[COMBINE_PAIRS]).map(|_| COMBINE_PAIRS);
        let machine = native.or_else(|| macros(&[])).unwrap_or_default();
        Compiler { command, version, flags, long_flag, machine, cache }
    }

    /// Returns the shared object of a source file, from the cache or compiled now.
    fn object(
        &self,
        file: &SourceFile,
        limit: Option<Limit>,
    ) -> Result<Arc<libloading::Library>, Error> {
        let key = format!(
            "{}\n{}\n{}\n{}\n{}",
            self.command.join(" "),
            self.version,
            self.flags_of(file).collect::<Vec<_>>().join(" "),
            self.machine,
            file.text
        );
        if let Some(path) = self.cache.find(&key)
            && let Ok(library) = load(&path)
        {
            return Ok(library);
        }
        let object = self.build(file, limit)?;
        let path = self.cache.add(&key, &object)?;
        // Another thread or process may have evicted it.
        load(&path).or_else(|_| self.load_private(&object, path))
    }

    /// Loads the object of a cache entry from a folder of this call, whose files no other thread or
    /// process removes.
    fn load_private(
        &self,
        object: &[u8],
        path: PathBuf,
    ) -> Result<Arc<libloading::Library>, Error> {
        let directory = self.cache.build_folder()?;
        let copy = directory.path().join("kernels.so");
        if let Err(why) = std::fs::write(&copy, object) {
            return Err(Error::File { action: "cannot write", path: copy, why: why.to_string() });
        }
        load(&copy).map_err(|why| {
            // Objects cannot be loaded from a file system that is mounted noexec.
            let action = "cannot load (is the file system mounted noexec? \
                          GRADIFF_CACHE_DIR chooses another)";
            match self.probe() {
                Ok(()) => Error::Object { action: "cannot load", path, why },
                Err(_) => Error::File { action, path, why },
            }
        })
    }

    /// Compiles and loads [`PROBE`]. If that fails, the machine is at fault.
    ///
    /// # Errors
    /// The message of the compiler or the system.
    fn probe(&self) -> Result<(), String> {
        let message = |error: std::io::Error| error.to_string();
        let directory = self.cache.build_folder().map_err(|error| error.to_string())?;
        let [source, object] = ["probe.c", "probe.so"].map(|name| directory.path().join(name));
        let space = directory.path().join("space");
        std::fs::write(&space, vec![1; PROBE_BYTES]).map_err(message)?;
        std::fs::write(&source, PROBE).map_err(message)?;
        let paths = [&source, Path::new("-o"), &object].map(|path| path.to_string_lossy());
        let mut arguments: Vec<&str> = self.flags.clone();
        arguments.extend(paths.iter().map(|path| &**path));
        let output = output(&self.command, &arguments).map_err(message)?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} ({})", stderr.trim(), output.status));
        }
        load(&object).map(drop)
    }

    /// The flags for the kernels of a file.
    fn flags_of(&self, file: &SourceFile) -> impl Iterator<Item = &'static str> {
        let scalar = file.kind.is_scalar.then_some(SCALAR_FLAG);
        let long = self.long_flag.filter(|_| file.kind.is_long);
        self.flags.iter().copied().chain(scalar).chain(long)
    }

    /// Compiles a source file. A failure is the machine's fault if the compiler fails for a trivial
    /// file as well, or if it succeeds in another attempt: then it was short of something, such as
    /// memory for one of the programs that it starts.
    fn build(&self, file: &SourceFile, limit: Option<Limit>) -> Result<Vec<u8>, Error> {
        let built = self.attempt(file, Form::Object, limit);
        let Err(Error::CompilerFailed { compiler, kernels, source_path, stderr }) = built else {
            return built;
        };
        // The trivial file is tried before and after, since the machine may recover or fail
        // between.
        let machine_fault = self.probe().err().or_else(|| {
            let succeeds = (0..RETRIES).any(|_| self.attempt(file, Form::Object, limit).is_ok());
            let why = || format!("it failed and then did not for kernels {kernels}: {stderr}");
            succeeds.then(why).or_else(|| self.probe().err())
        });
        Err(match machine_fault {
            Some(why) => Error::CompilerUnusable { compiler, why },
            None => Error::CompilerFailed { compiler, kernels, source_path, stderr },
        })
    }

    /// Runs the compiler once and returns the bytes of its output.
    fn attempt(
        &self,
        file: &SourceFile,
        form: Form,
        limit: Option<Limit>,
    ) -> Result<Vec<u8>, Error> {
        let failed = |action: &'static str, path: &Path, why: std::io::Error| Error::File {
            action,
            path: path.to_path_buf(),
            why: why.to_string(),
        };
        let directory = self.cache.build_folder()?;
        let [source, object, stderr_path] =
            ["kernels.c", "kernels.so", "stderr"].map(|name| directory.path().join(name));
        std::fs::write(&source, &file.text).map_err(|why| failed("cannot write", &source, why))?;
        let stderr =
            File::create(&stderr_path).map_err(|why| failed("cannot write", &stderr_path, why))?;
        let mut command = command(&self.command);
        command.args(self.flags_of(file)).arg(&source).arg("-o").arg(&object);
        command.arg(match form {
            Form::Object => "-lm",
            Form::Assembly => "-S",
        });
        command.stdout(Stdio::null()).stderr(stderr);
        // A compiler that is killed leaves its temporary files behind.
        command.env("TMPDIR", directory.path());
        let outcome = process::run(&mut command, limit)
            .map_err(|why| failed("cannot run", Path::new(command.get_program()), why))?;
        let (compiler, kernels) = (self.command.join(" "), file.names.join(", "));
        let status = match outcome {
            Ok(status) => status,
            Err(limit) => {
                let (elapsed, limit) = (limit.elapsed(), limit.duration());
                return Err(Error::CompilerTooSlow { compiler, kernels, elapsed, limit });
            }
        };
        if process::was_killed_from_outside(status) {
            let why = format!("it was killed while it compiled kernels {kernels}: {status}");
            return Err(Error::CompilerUnusable { compiler, why });
        }
        if !status.success() {
            let stderr = std::fs::read(&stderr_path).unwrap_or_default();
            let stderr = String::from_utf8_lossy(&stderr).trim().to_string();
            let source_path = self.cache.add_text(&file.text, "c").ok();
            return Err(Error::CompilerFailed { compiler, kernels, source_path, stderr });
        }
        std::fs::read(&object).map_err(|why| failed("cannot read", &object, why))
    }

    /// Compiles kernels, within the limit if there is one.
    fn executables(
        &self,
        kernels: &[&Linear],
        limit: Option<Limit>,
    ) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let mut uniques = UniqueKernels::default();
        let mut numbered = Vec::with_capacity(kernels.len());
        for kernel in kernels {
            let signature = Signature::of(kernel)?;
            let (number, iterations) = uniques.add(kernel, &signature)?;
            numbered.push((signature, number, iterations));
        }
        let (files, file_of) = uniques.files();
        let libraries = parallel_map(&files, |file| self.object(file, limit))?;
        let executables = numbered.into_iter().map(|(signature, number, iterations)| {
            let library = &libraries[file_of[number]];
            let symbol = format!("run_{}", uniques.list[number].name);
            // SAFETY: `SourceFile::new` wrote the symbol with this signature.
            let entry = unsafe { library.get::<Entry>(symbol.as_bytes()) };
            let entry = *entry.map_err(|error| Error::Object {
                action: "cannot find a kernel in",
                path: self.cache.directory().to_path_buf(),
                why: error.to_string(),
            })?;
            let executable: Arc<dyn Executable> =
                Arc::new(Kernel { signature, iterations, entry, _library: library.clone() });
            Ok(executable)
        });
        executables.collect()
    }
}

/// Returns the command in the value of `CC`; `None` without a value and for a blank one.
fn command_of(value: Option<OsString>) -> Result<Option<String>, Error> {
    let Some(value) = value else { return Ok(None) };
    let command = value.into_string().map_err(|value| Error::Unavailable {
        device: "c",
        why: format!(
            "the environment variable CC is {value:?}, which is not UTF-8: set it to a compiler \
             whose path is, or unset it"
        ),
    })?;
    Ok(Some(command).filter(|command| !command.trim().is_empty()))
}

/// Runs a command and returns its output and status.
fn output(words: &[String], arguments: &[&str]) -> std::io::Result<Output> {
    command(words).args(arguments).output()
}

/// Makes a command of a program and its first arguments; its input is empty.
fn command(words: &[String]) -> Command {
    let (program, arguments) = words.split_first().expect("a command that is not blank");
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Loads a shared object.
///
/// # Errors
/// The message of the loader.
fn load(path: &Path) -> Result<Arc<libloading::Library>, String> {
    // Symbols are resolved at once: one that is missing is an error here, not the end of the
    // process at the first call.
    #[cfg(unix)]
    use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
    // SAFETY: the object was compiled from a source of this crate (the cache checks that it is not
    // damaged); it has no initialisers (see `FLAGS`) and depends only on the C and math libraries.
    #[cfg(unix)]
    let library = unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) };
    // SAFETY: as above.
    #[cfg(not(unix))]
    let library = unsafe { libloading::Library::new(path) };
    library.map(|library| Arc::new(library.into())).map_err(|error| {
        // The error's source has the loader's message.
        let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
        format!("{error}{}", source.unwrap_or_default())
    })
}

/// The output of the compiler.
#[derive(Clone, Copy)]
enum Form {
    /// A shared object.
    Object,
    /// The machine code as text.
    Assembly,
}

/// The properties of kernels that the compiler flags depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KernelKind {
    /// True if they compute in integers of 8 or 16 bits, store or cast truth values, or add
    /// products of floats: see [`SCALAR_FLAG`].
    is_scalar: bool,
    /// True if they have more than [`LONG_LINES`] lines.
    is_long: bool,
}

impl KernelKind {
    const ALL: [KernelKind; 4] = [
        KernelKind { is_scalar: false, is_long: false },
        KernelKind { is_scalar: false, is_long: true },
        KernelKind { is_scalar: true, is_long: false },
        KernelKind { is_scalar: true, is_long: true },
    ];
}

/// A source file: its text, and the names and the kind of its kernels.
struct SourceFile {
    text: String,
    names: Vec<String>,
    kind: KernelKind,
}

impl SourceFile {
    /// Creates the file of some kernels of one kind.
    fn new(kernels: &[&UniqueKernel], kind: KernelKind) -> SourceFile {
        let (mut functions, mut helpers) = (String::new(), Helpers::default());
        for UniqueKernel { name, body, parameter_count, is_threaded, .. } in kernels {
            helpers.extend(&body.helpers);
            let body = &body.text;
            let mut arguments: Vec<String> =
                (0..*parameter_count).map(|n| format!("data[{n}]")).collect();
            arguments.extend(is_threaded.then(|| "step".to_string()));
            let arguments = arguments.join(", ");
            functions.push_str(&format!("\nstatic void {name}{body}"));
            functions.push_str(&format!(
                "void run_{name}(void* const* data, long long step) \
                 {{ (void)step; {name}({arguments}); }}\n"
            ));
        }
        let text = gradiff_render::c_prelude(&helpers) + &functions;
        let names = kernels.iter().map(|kernel| kernel.name.clone()).collect();
        SourceFile { text, names, kind }
    }
}

/// A function that all kernels with the same text share.
struct UniqueKernel {
    name: String,
    /// The text from the parameter list on.
    body: Code,
    parameter_count: usize,
    /// True if it takes the index of an iteration.
    is_threaded: bool,
    kind: KernelKind,
}

/// Returns for each uop whether it is a product for the compiler, which sees through negations,
/// lanes and variables.
fn find_products(kernel: &Linear) -> Vec<bool> {
    let mut is_product = vec![false; kernel.uops.len()];
    // Uops before an assignment read a product that it assigns, too.
    let mut is_complete = false;
    while !is_complete {
        is_complete = true;
        for (position, uop) in kernel.uops.iter().enumerate() {
            is_product[position] |= match uop.op {
                Op::Mul => true,
                Op::Neg | Op::Lane | Op::Vectorize | Op::DefineAcc | Op::Assign => {
                    uop.src.iter().any(|source| is_product[*source as usize])
                }
                _ => false,
            };
            if uop.op == Op::Assign && is_product[position] {
                let variable = uop.src[0] as usize;
                is_complete &= is_product[variable];
                is_product[variable] = true;
            }
        }
    }
    is_product
}

/// The kernels of one compile without duplicates.
#[derive(Default)]
struct UniqueKernels {
    list: Vec<UniqueKernel>,
    /// The index in the list by the text of the body.
    number_of: FxHashMap<String, usize>,
    /// The names in the list.
    names: FxHashSet<String>,
}

impl UniqueKernels {
    /// Adds a kernel unless its text is known. Returns its index in the list, and the number of
    /// iterations of its thread range; 1 without one.
    fn add(&mut self, kernel: &Linear, signature: &Signature) -> Result<(usize, usize), Error> {
        let threaded = threads::extract_iteration(kernel);
        let (body_kernel, iterations) =
            threaded.as_ref().map_or((kernel, 1), |(iteration, count)| (iteration, *count));
        let mut body = gradiff_render::c_named(body_kernel, "kernel")?;
        if let Some(text) = body.text.strip_prefix("void kernel") {
            body.text = text.to_string();
        }
        if let Some(number) = self.number_of.get(&body.text) {
            return Ok((*number, iterations));
        }
        let number = self.list.len();
        let mut name = identifier(&kernel.name);
        while !self.names.insert(name.clone()) {
            name = format!("{name}_b{number}");
        }
        self.number_of.insert(body.text.clone(), number);
        let (parameter_count, is_threaded) = (signature.parameters.len(), threaded.is_some());
        let is_computed = |uop: &Instruction| {
            let is_narrow = uop.dtype.is_int() && uop.dtype.bits() < 32;
            uop.op.is_elementwise() && is_narrow
        };
        let is_truth = |source: &u32| {
            let value = &kernel.uops[*source as usize];
            value.dtype == DType::Bool && value.lanes == 1 && value.op.is_elementwise()
        };
        let uses_truth = |uop: &Instruction| {
            matches!(uop.op, Op::Store | Op::Cast) && uop.src.last().is_some_and(is_truth)
        };
        let is_product = find_products(kernel);
        let adds_product = |uop: &Instruction| {
            let is_sum = matches!(uop.op, Op::Add | Op::Sub) && uop.dtype.is_float();
            is_sum && uop.lanes == 1 && uop.src.iter().any(|source| is_product[*source as usize])
        };
        let is_scalar =
            |uop: &Instruction| is_computed(uop) || uses_truth(uop) || adds_product(uop);
        let kind = KernelKind {
            is_scalar: kernel.uops.iter().any(is_scalar),
            is_long: LONG_LINES < body.text.lines().count(),
        };
        self.list.push(UniqueKernel { name, body, parameter_count, is_threaded, kind });
        Ok((number, iterations))
    }

    /// The files of the kernels, and for each kernel the number of its file.
    fn files(&self) -> (Vec<SourceFile>, Vec<usize>) {
        let (mut files, mut file_of) = (Vec::new(), vec![0; self.list.len()]);
        for kind in KernelKind::ALL {
            let is_of_kind = |number: &usize| self.list[*number].kind == kind;
            let numbers: Vec<usize> = (0..self.list.len()).filter(is_of_kind).collect();
            for numbers in numbers.chunks(KERNELS_PER_FILE) {
                numbers.iter().for_each(|number| file_of[*number] = files.len());
                let kernels: Vec<&UniqueKernel> =
                    numbers.iter().map(|number| &self.list[*number]).collect();
                files.push(SourceFile::new(&kernels, kind));
            }
        }
        (files, file_of)
    }
}

/// Turns a name into an identifier that neither the prelude nor C uses.
fn identifier(name: &str) -> String {
    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
    if (name.starts_with("E_") || name.starts_with("r_")) && name.chars().all(is_word) {
        return name.to_string();
    }
    let word: String = name.chars().map(|c| if is_word(c) { c } else { '_' }).collect();
    format!("kernel_{word}")
}

impl Device for Compiler {
    fn name(&self) -> &'static str {
        "c"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        self.executables(&bounded_linears(kernels)?, None)
    }

    fn compile_within(
        &self,
        kernels: &[&BoundedLinear],
        limit: Duration,
    ) -> Result<Vec<Arc<dyn Executable>>, Error> {
        self.executables(&bounded_linears(kernels)?, Some(Limit::new(limit)))
    }

    fn assembly(&self, kernel: &BoundedLinear) -> Result<Option<String>, Error> {
        let kernels = bounded_linears(&[kernel])?;
        let mut uniques = UniqueKernels::default();
        uniques.add(kernels[0], &Signature::of(kernels[0])?)?;
        let (files, _) = uniques.files();
        let text = self.attempt(&files[0], Form::Assembly, None)?;
        Ok(Some(String::from_utf8_lossy(&text).into_owned()))
    }

    fn describe(&self) -> String {
        format!(
            "{} ({}), {}; cache in {}",
            self.version,
            self.command.join(" "),
            self.flags.join(" "),
            self.cache.directory().display()
        )
    }

    /// The machine as the compiler's macros describe it under the flags of kernels, with the
    /// threads that run a launch.
    fn target(&self) -> Target {
        let has = |name: &str| self.machine.contains(&format!("#define {name} "));
        let row = VECTOR_REGISTERS.iter().find(|(name, ..)| has(name));
        let (bytes, registers) = row.map_or(OTHER_REGISTERS, |row| (row.1, row.2));
        Target {
            fma: FMA.into_iter().any(has),
            vectors: Vectors::cpu(bytes, registers),
            prefetches: true,
            threads: threads::thread_count() as i64,
            ..Target::PLAIN
        }
    }
}

/// Calls `work` on each item, on as many threads as the machine has cores. Results are in order.
fn parallel_map<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let thread_count = threads::core_count();
    if thread_count == 1 || items.len() < 2 {
        return items.iter().map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(number) else { return done };
            done.push((number, work(item)));
        }
    };
    let mut results: Vec<(usize, Result<R, Error>)> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..thread_count.min(items.len())).map(|_| scope.spawn(take)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<_>>| match thread.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        threads.into_iter().flat_map(join).collect()
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The entry point of a compiled kernel. It takes the addresses of the parameters as an array, and
/// the index of an iteration, which kernels without a thread range ignore.
type Entry = unsafe extern "C" fn(*const *mut u8, i64);

struct Kernel {
    signature: Signature,
    /// The number of calls of a launch, which may run concurrently.
    iterations: usize,
    entry: Entry,
    _library: Arc<libloading::Library>,
}

/// The addresses of the parameters, shared by the threads of a launch.
struct Pointers(SmallVec<[*mut u8; 6]>);

// SAFETY: the memories that they point to are locked for the launch; see `Kernel::run`.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

impl Executable for Kernel {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        let mut locked = Locked::new(&self.signature, memories)?;
        let pointers = Pointers(locked.pointers());
        let entry = self.entry;
        threads::run(self.iterations, move |iteration| {
            let Pointers(pointers) = &pointers;
            // SAFETY: the code accesses only elements of its parameters (the promise of lowering,
            // see `Executable::run`). Each pointer is to at least as many elements as the kernel
            // declares, locked until `run` returns, for reading or writing as the kernel does. No
            // memory that is written is in two slots, as `restrict` requires. Concurrent iterations
            // are independent (the promise of a thread range, which the checked interpreter
            // tests). `_library` keeps the code loaded.
            unsafe { entry(pointers.as_ptr(), iteration as i64) }
        });
        locked.mark_written();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gradiff_graph::{Arg, Constant, DType, Global, Instruction, Op};

    use super::*;

    fn compiler(directory: &Path, command: Option<&str>) -> Result<Compiler, Error> {
        Compiler::find(command, Cache::at(directory, "so", 1 << 30)?)
    }

    /// `data0[0] = 42`.
    fn kernel() -> Linear {
        let row = |op: Op, dtype: DType, src: &[u32], arg: Arg| {
            Instruction::new(op, dtype, src.iter().copied(), arg)
        };
        let global = Arg::Global(Global { slot: 0, size_elements: 1 });
        let int = |value| Arg::Const(Constant::int(DType::I32, value));
        let uops = vec![
            row(Op::DefineGlobal, DType::I32, &[], global),
            row(Op::Const, DType::I32, &[], int(0)),
            row(Op::Const, DType::I32, &[], int(42)),
            row(Op::Index, DType::I32, &[0, 1], Arg::None),
            row(Op::Store, DType::Void, &[3, 2], Arg::None),
        ];
        Linear { name: "E_1".into(), uops }
    }

    fn bounded() -> BoundedLinear {
        BoundedLinear::check(kernel()).unwrap()
    }

    fn check(compiler: &Compiler) {
        let kernels = compiler.compile_checked(&[&kernel(), &kernel()]).unwrap();
        for kernel in kernels {
            let output = Memory::new(DType::I32, 1).unwrap();
            kernel.run(&[&output]).unwrap();
            assert_eq!(output.read().unwrap(), 42i32.to_le_bytes());
        }
    }

    #[test]
    fn long_kernels_have_a_file_and_flags_of_their_own() {
        // Adds the element of the array, which is 0, to 42 many times.
        let mut long = kernel();
        let store = long.uops.pop().unwrap();
        let mut sum = 2;
        for _ in 0..=LONG_LINES {
            let load = Instruction::new(Op::Load, DType::I32, [3], Arg::None);
            let add =
                Instruction::new(Op::Add, DType::I32, [sum, long.uops.len() as u32], Arg::None);
            long.uops.extend([load, add]);
            sum = long.uops.len() as u32 - 1;
        }
        long.uops.push(Instruction { src: [3, sum].into_iter().collect(), ..store });
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path(), None).unwrap();
        let mut uniques = UniqueKernels::default();
        for kernel in [&kernel(), &long] {
            uniques.add(kernel, &Signature::of(kernel).unwrap()).unwrap();
        }
        let (files, file_of) = uniques.files();
        let has_flag =
            |file: &SourceFile| compiler.flags_of(file).any(|flag| flag == COMBINE_PAIRS);
        let flagged: Vec<bool> = file_of.iter().map(|file| has_flag(&files[*file])).collect();
        assert_eq!(flagged, [false, compiler.long_flag.is_some()]);
        let output = Memory::new(DType::I32, 1).unwrap();
        compiler.compile_checked(&[&long]).unwrap()[0].run(&[&output]).unwrap();
        assert_eq!(output.read().unwrap(), 42i32.to_le_bytes());
    }

    #[test]
    fn kernels_whose_names_look_alike_compile() {
        // The third one cannot be called `E_1_b2`, as the first name that is free would be.
        let names = ["E_1", "E_1_b2", "E_1"];
        let kernels: Vec<Linear> = names
            .into_iter()
            .zip([42, 43, 44])
            .map(|(name, value)| {
                let mut kernel = kernel();
                kernel.name = name.into();
                kernel.uops[2].arg = Arg::Const(Constant::int(DType::I32, value));
                kernel
            })
            .collect();
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path(), None).unwrap();
        let compiled = compiler.compile_checked(&kernels.iter().collect::<Vec<_>>()).unwrap();
        for (kernel, value) in compiled.iter().zip([42i32, 43, 44]) {
            let output = Memory::new(DType::I32, 1).unwrap();
            kernel.run(&[&output]).unwrap();
            assert_eq!(output.read().unwrap(), value.to_le_bytes());
        }
    }

    /// A variable counted as a product only if a product itself was assigned to it: not if it began
    /// as a product, or if a negated product was assigned.
    #[test]
    fn sums_of_products_are_scalar() {
        // `data0[0] = acc + 1` in a loop, for the uops with which `acc` begins and goes on.
        let is_scalar = |start: &str, assigned: &str| {
            let text = format!(
                "kernel r_4
                 0 define_global f32 [] data0 2
                 1 define_global f32 [] data1 4
                 2 const i32 [] 4
                 3 const f32 [] 1.0
                 4 const i32 [] 0
                 5 index f32 [1, 4]
                 6 load f32 [5]
                 7 mul f32 [6, 6]
                 8 neg f32 [7]
                 9 define_acc f32 [{start}] 0
                 10 range i32 [2] 0
                 11 add f32 [9, 3]
                 12 index f32 [0, 4]
                 13 store void [12, 11]
                 14 assign f32 [9, {assigned}]
                 15 endrange void [10]"
            );
            let kernel = gradiff_graph::text::parse_linears(&text).unwrap().remove(0);
            let mut uniques = UniqueKernels::default();
            uniques.add(&kernel, &Signature::of(&kernel).unwrap()).unwrap();
            uniques.list[0].kind.is_scalar
        };
        for (start, assigned, expected) in
            [("3", "6", false), ("3", "7", true), ("3", "8", true), ("8", "6", true)]
        {
            assert_eq!(is_scalar(start, assigned), expected, "{start}, then {assigned}");
        }
    }

    #[test]
    fn long_paths_to_products_are_found() {
        let row =
            |op: Op, src: &[u32]| Instruction::new(op, DType::F32, src.iter().copied(), Arg::None);
        // Each vector consists of the lanes of another, so there are 8^100 paths to the product.
        let mut uops = vec![row(Op::Load, &[]), row(Op::Mul, &[0, 0])];
        for _ in 0..100 {
            let last = uops.len() as u32 - 1;
            uops.extend((0..8).map(|_| row(Op::Lane, &[last])));
            uops.push(row(Op::Vectorize, &(last + 1..last + 9).collect::<Vec<_>>()));
        }
        // So many negations would overflow the stack of a recursion.
        for last in uops.len() as u32 - 1..200_000 {
            uops.push(row(Op::Neg, &[last]));
        }
        let products = find_products(&Linear { name: "E".into(), uops });
        assert!(!products[0] && products[1..].iter().all(|is_product| *is_product));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn target_is_what_the_compiler_has() {
        let directory = tempfile::tempdir().unwrap();
        let compile = |command: &str| compiler(directory.path(), Some(command)).unwrap();
        // The flags before `-march=native` win over it.
        for (flags, bytes, registers, fma) in [
            ("-mavx512f -mfma", 64, 32, true),
            ("-mno-avx512f -mavx2 -mfma", 32, 16, true),
            ("-mno-avx2 -mno-fma -msse4.1", 16, 16, false),
        ] {
            let target = compile(&format!("cc {flags}")).target();
            let Vectors { bytes: found_bytes, registers: found_registers, .. } = target.vectors;
            assert_eq!(
                (found_bytes, found_registers, target.fma),
                (bytes, registers, fma),
                "{flags}: {target}"
            );
            assert_eq!(target.threads, threads::thread_count() as i64);
        }
    }

    /// Kernels lost NaN, and loading them made the thread flush denormals.
    #[test]
    fn words_of_the_compiler_do_not_relax_floats() {
        let text = "kernel E_1
            0 define_global f32 [] data0 2
            1 define_global f32 [] data1 2
            2 const i32 [] 0
            3 const i32 [] 1
            4 const f32 [] 1.5
            5 index f32 [1, 2]
            6 load f32 [5]
            7 mul f32 [6, 4]
            8 index f32 [0, 2]
            9 store void [8, 7]
            10 index f32 [1, 3]
            11 load f32 [10]
            12 max f32 [11, 4]
            13 index f32 [0, 3]
            14 store void [13, 12]";
        let kernel = gradiff_graph::text::parse_linears(text).unwrap().remove(0);
        let bytes = |values: [f32; 2]| values.map(f32::to_le_bytes).concat();
        let denormal = std::hint::black_box(1e-40f32);
        let scaled = (1.5 * denormal).to_bits();
        for flags in [
            "-ffast-math",
            "-Ofast",
            "-funsafe-math-optimizations",
            "-ffinite-math-only",
            "-fassociative-math -freciprocal-math -fno-signed-zeros -fno-trapping-math",
            "-ffp-contract=fast",
        ] {
            let directory = tempfile::tempdir().unwrap();
            let compiler = compiler(directory.path(), Some(&format!("cc {flags}"))).unwrap();
            let compiled = compiler.compile_checked(&[&kernel]).unwrap();
            let input = Memory::from_bytes(DType::F32, &bytes([denormal, f32::NAN])).unwrap();
            let output = Memory::new(DType::F32, 2).unwrap();
            compiled[0].run(&[&output, &input]).unwrap();
            let output = output.read().unwrap();
            assert_eq!(output[..4], scaled.to_le_bytes(), "{flags}");
            let largest = f32::from_le_bytes(output[4..].try_into().unwrap());
            assert!(largest.is_nan(), "{flags}: {largest}");
            let product = 1.5 * std::hint::black_box(denormal);
            assert_eq!(product.to_bits(), scaled, "{flags}: the thread flushes denormals");
        }
        let text = "kernel E_1
            0 define_global f64 [] data0 1
            1 const i32 [] 0
            2 const f64 [] 0.1
            3 index f64 [0, 1]
            4 store void [3, 2]";
        let kernel = gradiff_graph::text::parse_linears(text).unwrap().remove(0);
        let directory = tempfile::tempdir().unwrap();
        let words = "cc -fsingle-precision-constant";
        let compiler = compiler(directory.path(), Some(words)).unwrap();
        let output = Memory::new(DType::F64, 1).unwrap();
        compiler.compile_checked(&[&kernel]).unwrap()[0].run(&[&output]).unwrap();
        assert_eq!(output.read().unwrap(), 0.1f64.to_le_bytes());
    }

    #[test]
    fn missing_compiler_error_says_what_to_do() {
        let directory = tempfile::tempdir().unwrap();
        let Err(error) = compiler(directory.path(), Some("/nonexistent/cc -O1")) else {
            panic!("there is no such compiler");
        };
        let text = error.to_string();
        for part in ["CC", "/nonexistent/cc", "Install gcc or clang", "`jit`"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn command_is_a_text_that_is_not_blank() {
        let command = |value: Option<OsString>| command_of(value).unwrap();
        assert_eq!(command(Some("gcc -O1".into())).as_deref(), Some("gcc -O1"));
        assert_eq!((command(Some(" ".into())), command(None)), (None, None));
        #[cfg(unix)]
        {
            use std::os::unix::ffi::OsStringExt;
            let error = command_of(Some(OsString::from_vec(vec![0xff]))).unwrap_err().to_string();
            assert!(error.contains("CC") && error.contains("not UTF-8"), "{error}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn ignored_signal_is_named() {
        if !crate::child::is_child("c::tests::ignored_signal_is_named", |_| ()) {
            return;
        }
        // SAFETY: the signal is ignored, so no handler runs.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
        let directory = tempfile::tempdir().unwrap();
        let error = compiler(directory.path(), Some("sh")).err().unwrap().to_string();
        assert!(error.contains("SIGCHLD is ignored") && error.contains("`jit`"), "{error}");
    }

    #[test]
    fn failing_compiler_is_quoted_and_source_is_saved() {
        let directory = tempfile::tempdir().unwrap();
        // Defines the name of the kernel, and only that, as an operator.
        let compiler = compiler(directory.path(), Some("cc -DE_1=+")).unwrap();
        match compiler.compile_checked(&[&kernel()]) {
            Err(Error::CompilerFailed { kernels, source_path: Some(path), stderr, .. }) => {
                assert_eq!(kernels, "E_1");
                assert!(stderr.contains("kernels.c"), "{stderr}");
                assert!(std::fs::read_to_string(path).unwrap().contains("E_1"));
                // Another failure adds no file.
                assert!(compiler.compile_checked(&[&kernel()]).is_err());
                let mut names: Vec<_> = std::fs::read_dir(directory.path()).unwrap().collect();
                names.retain(|item| !item.as_ref().unwrap().path().ends_with("lock"));
                assert_eq!(names.len(), 1, "{names:?}");
            }
            result => panic!("{:?}", result.err()),
        }
    }

    /// The probe is compiled before the kernel is blamed.
    #[test]
    fn compiler_that_always_fails_is_an_environment_error() {
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path(), Some("cc -include /nonexistent.h")).unwrap();
        let error = compiler.compile_checked(&[&kernel()]).err().unwrap();
        assert!(matches!(error, Error::CompilerUnusable { .. }), "{error}");
        assert!(error.is_environment() && error.to_string().contains("/nonexistent.h"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn compiler_that_fails_sometimes_is_an_environment_error() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, script) = (directory.path().join("cache"), directory.path().join("once.sh"));
        let text = format!(
            "cd {} && case \"$*\" in *kernels.c*) mkdir a || mkdir b || mkdir c && exit 1;; esac\n\
             exec cc \"$@\"\n",
            directory.path().display()
        );
        std::fs::write(&script, text).unwrap();
        let once = compiler(&cache, Some(&format!("sh {}", script.display()))).unwrap();
        let error = once.compile_checked(&[&kernel()]).err().unwrap();
        assert!(error.is_environment() && error.to_string().contains("then did not"), "{error}");
        check(&once);
    }

    #[cfg(unix)]
    #[test]
    fn compiler_that_is_killed_is_an_environment_error() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, script) = (directory.path().join("cache"), directory.path().join("killed.sh"));
        let text = "case \"$*\" in *kernels.c*) kill -KILL $$;; esac\nexec cc \"$@\"\n";
        std::fs::write(&script, text).unwrap();
        let killed = compiler(&cache, Some(&format!("sh {}", script.display()))).unwrap();
        let error = killed.compile_checked(&[&kernel()]).err().unwrap();
        assert!(error.is_environment() && error.to_string().contains("signal: 9"), "{error}");
    }

    /// With a small cache, another thread or process may evict an object before it is loaded.
    #[test]
    fn object_is_loaded_without_its_entry() {
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path(), None).unwrap();
        let mut uniques = UniqueKernels::default();
        uniques.add(&kernel(), &Signature::of(&kernel()).unwrap()).unwrap();
        let object = compiler.build(&uniques.files().0[0], None).unwrap();
        let entry_path = directory.path().join("absent.so");
        let library = compiler.load_private(&object, entry_path.clone()).unwrap();
        // SAFETY: `SourceFile::new` wrote the symbol with this signature.
        let entry = unsafe { library.get::<Entry>("run_E_1".as_bytes()) };
        assert!(entry.is_ok());
        let error = compiler.load_private(b"no object", entry_path).err().unwrap();
        assert!(matches!(error, Error::Object { .. }), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn missing_symbol_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let [source, object] = ["source.c", "object.so"].map(|name| directory.path().join(name));
        std::fs::write(&source, "void absent(void); void present(void) { absent(); }\n").unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).args([&object, &source]);
        assert!(cc.status().unwrap().success());
        let error = load(&object).expect_err("a symbol is missing");
        assert!(error.contains("absent"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn slow_compiler_is_killed_and_leaves_no_files() {
        let directory = tempfile::tempdir().unwrap();
        let (cache, script) = (directory.path().join("cache"), directory.path().join("slow.sh"));
        let text = "case \"$*\" in *--version*|*-dM*) exec cc \"$@\";; esac\n\
                    mktemp; sleep 60; exec cc \"$@\"\n";
        std::fs::write(&script, text).unwrap();
        let slow = compiler(&cache, Some(&format!("sh {}", script.display()))).unwrap();
        let start = std::time::Instant::now();
        let Err(error) = slow.compile_within(&[&bounded()], Duration::from_millis(200)) else {
            panic!("it takes a minute");
        };
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        assert!(matches!(error, Error::CompilerTooSlow { .. }), "{error}");
        let text = error.to_string();
        for part in ["slow.sh was ended after", "kernels E_1", "limit of 0.2 s", "larger limit"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 0, "no files are left");
    }

    #[test]
    fn cached_kernels_need_no_time() {
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path(), None).unwrap();
        let none = || compiler.compile_within(&[&bounded()], Duration::ZERO);
        assert!(matches!(none(), Err(Error::CompilerTooSlow { .. })), "no time, no compile");
        compiler.compile_within(&[&bounded()], Duration::from_secs(60)).unwrap();
        assert!(none().is_ok(), "cached kernels are not compiled");
        check(&compiler);
    }

    #[test]
    fn truncated_entry_is_built_again() {
        let directory = tempfile::tempdir().unwrap();
        let compiler = compiler(directory.path(), None).unwrap();
        check(&compiler);
        let is_entry = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "so");
        let listing = || std::fs::read_dir(directory.path()).unwrap().flatten();
        let entries: Vec<PathBuf> = listing().map(|entry| entry.path()).filter(is_entry).collect();
        assert_eq!(entries.len(), 1);
        let whole = std::fs::read(&entries[0]).unwrap();
        // A new file: the old one is loaded and must not change.
        std::fs::remove_file(&entries[0]).unwrap();
        std::fs::write(&entries[0], &whole[..whole.len() / 2]).unwrap();
        check(&compiler);
        assert_eq!(std::fs::read(&entries[0]).unwrap().len(), whole.len());
    }
}
