//! The compiler for the host, and the process in which its objects run.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;

use gradiff::runtime::Cache;

use super::languages::Language;

/// Compilers that are tried, in this order.
const COMPILERS: [&str; 8] =
    ["clang", "clang-21", "clang-20", "clang-19", "clang-18", "clang-17", "clang-16", "clang-22"];

/// The first version with opaque pointers and without excess precision of `_Float16`.
const VERSION_LEAST: u32 = 16;

/// Flags without optimisation, which could hide undefined behaviour of a text, and takes time. An
/// index beyond the declared size of an array ends the process.
const FLAGS: [&str; 7] = [
    "-O0",
    "-w",
    "-fPIC",
    "-ffp-contract=off",
    "-shared",
    "-fsanitize=bounds",
    "-fsanitize-undefined-trap-on-error",
];

/// The files that kernels include, and the source of the host.
const FILES: [(&str, &str); 8] = [
    ("host.c", include_str!("stand_ins/host.c")),
    ("launch.h", include_str!("stand_ins/launch.h")),
    ("cuda_host.h", include_str!("stand_ins/cuda_host.h")),
    ("cuda_asm.h", include_str!("stand_ins/cuda_asm.h")),
    ("cuda_fp16.h", include_str!("stand_ins/cuda_fp16.h")),
    ("cuda_bf16.h", include_str!("stand_ins/cuda_bf16.h")),
    ("metal_stdlib", include_str!("stand_ins/metal_stdlib")),
    ("opencl_host.h", include_str!("stand_ins/opencl_host.h")),
];

/// A compiler for the host, and the program that launches its objects.
pub(super) struct Compiler {
    command: &'static str,
    /// The first line that it prints about its version.
    pub(super) version: String,
    objects: Cache,
    programs: Cache,
}

/// The reason why a text does not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The text is wrong.
    Text(String),
    /// The machine fails: its compiler, its files.
    Machine(String),
}

impl Problem {
    /// The description of the problem.
    pub(super) fn message(&self) -> &str {
        match self {
            Problem::Text(message) | Problem::Machine(message) => message,
        }
    }

    fn machine(error: impl std::fmt::Display) -> Problem {
        Problem::Machine(error.to_string())
    }
}

/// The compiler of this process.
///
/// # Errors
/// No compiler is found, or it cannot build the program that launches kernels.
pub(super) fn compiler() -> Result<&'static Compiler, String> {
    static COMPILER: OnceLock<Result<Compiler, String>> = OnceLock::new();
    let open = || Compiler::open().map_err(|problem| problem.message().to_string());
    COMPILER.get_or_init(open).as_ref().map_err(Clone::clone)
}

impl Compiler {
    fn open() -> Result<Compiler, Problem> {
        let version = |command: &&'static str| {
            let output = Command::new(command).arg("--version").output().ok()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let number = text.split_once("clang version ")?.1.split('.').next()?;
            let line = text.lines().next()?.to_string();
            (VERSION_LEAST <= number.parse().ok()?).then_some((*command, line))
        };
        let (command, version) = COMPILERS.iter().find_map(version).ok_or_else(|| {
            Problem::Machine(format!(
                "no clang of version {VERSION_LEAST} or later was found; install one (Debian's \
                 clang-16)"
            ))
        })?;
        let [objects, programs] = ["text", "host"].map(Cache::open);
        let objects = objects.map_err(Problem::machine)?;
        let programs = programs.map_err(Problem::machine)?;
        let compiler = Compiler { command, version, objects, programs };
        compiler.host()?;
        Ok(compiler)
    }

    /// The program that launches kernels, from the cache or new. It is looked up at each start, as
    /// the cache may have evicted it.
    fn host(&self) -> Result<PathBuf, Problem> {
        let key = format!("{}\n{}", self.version, FILES[0].1);
        if self.programs.read(&key).is_none() {
            let program = build(FILES, |folder, program| {
                let mut host = Command::new(self.command);
                host.args(["-O1", "-w", "-rdynamic"]).arg(folder.join(FILES[0].0));
                // The program does not depend on the text.
                let result = run(host.arg("-o").arg(program).args(["-ldl", "-lm"]));
                result.map_err(|problem| Problem::machine(problem.message()))
            })?;
            self.programs.add(&key, &program).map_err(Problem::machine)?;
        }
        let path = self.programs.path_of(&key);
        // Another process may have added it in the meantime.
        make_executable(&path)
            .map_err(|error| Problem::Machine(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    /// The shared object of a file of kernels, from the cache or new.
    ///
    /// # Errors
    /// The message of the compiler.
    pub(super) fn object(&self, language: &Language, text: &str) -> Result<PathBuf, Problem> {
        let stand_ins: String = FILES.iter().map(|(_, text)| *text).collect();
        let flags = [&FLAGS, language.flags].concat().join(" ");
        let key = format!("{}\n{flags}\n{stand_ins}\n{text}", self.version);
        if self.objects.read(&key).is_some() {
            return Ok(self.objects.path_of(&key));
        }
        let make = || {
            let files = FILES.into_iter().chain([(language.file, text)]);
            build(files, |folder, object| {
                let mut command = Command::new(self.command);
                command.args(FLAGS).args(language.flags).arg("-I").arg(folder);
                command.arg(folder.join(language.file)).arg("-o").arg(object).arg("-lm");
                // A compiler that is killed leaves its files behind.
                run(command.env("TMPDIR", folder))
            })
        };
        let object = make().map_err(|problem| self.culprit(problem, make))?;
        self.objects.add(&key, &object).map_err(Problem::machine)
    }

    /// The text or the machine, whichever made a compile fail. The text is wrong only if the
    /// compiler accepts one that is certainly right, and refuses this one when it compiles it
    /// `again`.
    fn culprit(&self, problem: Problem, again: impl Fn() -> Result<Vec<u8>, Problem>) -> Problem {
        let Problem::Text(why) = problem else { return problem };
        // The machine may have been at fault at either end of the attempts.
        let probe = || self.probe().err().map(|problem| problem.message().to_string());
        let failure = probe().or_else(|| {
            let is_accepted = (0..RETRIES).any(|_| again().is_ok());
            let why = || format!("it failed and then succeeded: {why}");
            is_accepted.then(why).or_else(probe)
        });
        failure.map_or(Problem::Text(why), Problem::Machine)
    }

    /// Compiles a text that is certainly right, in a folder with enough space for a compiler's
    /// files.
    fn probe(&self) -> Result<(), Problem> {
        let result = build([PROBE], |folder, object| {
            std::fs::write(folder.join("space"), vec![1; SPACE_BYTES]).map_err(Problem::machine)?;
            let mut command = Command::new(self.command);
            command.args(FLAGS).arg(folder.join(PROBE.0)).arg("-o").arg(object);
            run(&mut command)
        });
        result.map(drop)
    }
}

/// Returns whether the first C compiler that is found accepts a text; `None` if there is none. A
/// call of a function that nobody defines would be found only by what links or loads the text.
pub(super) fn is_valid_c(text: &str) -> Option<bool> {
    let folder = tempfile::tempdir().ok()?;
    let path = folder.path().join("kernel.c");
    std::fs::write(&path, text).ok()?;
    let accepts = |program: &&str| {
        let mut command = Command::new(program);
        let flags = ["-std=c99", "-march=native", "-fsyntax-only"];
        command.args(flags).arg("-Werror=implicit-function-declaration").arg(&path);
        let output = command.env("TMPDIR", folder.path()).stdin(Stdio::null()).output().ok()?;
        Some(output.status.success())
    };
    ["cc", "gcc", "clang"].iter().find_map(accepts)
}

/// Number of further attempts to compile a text that was refused.
const RETRIES: usize = 8;
/// Space that must be free for a compiler's files.
const SPACE_BYTES: usize = 4 << 20;

/// A source that every compiler accepts.
const PROBE: (&str, &str) = ("probe.c", "int gradiff_probe(void) { return 0; }\n");

/// The file that `make` writes; it is called with a folder that has these files, and the path of
/// the result.
fn build<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    make: impl FnOnce(&Path, &Path) -> Result<(), Problem>,
) -> Result<Vec<u8>, Problem> {
    let folder = tempfile::tempdir().map_err(Problem::machine)?;
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).map_err(Problem::machine)?;
    }
    let result = folder.path().join("result");
    make(folder.path(), &result)?;
    std::fs::read(&result).map_err(Problem::machine)
}

/// Makes a file executable, for its owner only.
#[cfg(unix)]
fn make_executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Runs a program.
///
/// # Errors
/// Its messages, if it fails.
fn run(command: &mut Command) -> Result<(), Problem> {
    let output = command.stdin(Stdio::null()).output().map_err(Problem::machine)?;
    let (program, status) = (command.get_program().to_string_lossy(), output.status);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let message = format!("{program} ({status}): {}", stderr.trim());
    match status.success() {
        true => Ok(()),
        false if is_killed(status) => Err(Problem::Machine(message)),
        false => Err(Problem::Text(message)),
    }
}

/// Returns whether a user, or the system for lack of memory, time or room, has killed the program:
/// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM, SIGXCPU or SIGXFSZ. Other signals are crashes.
#[cfg(unix)]
fn is_killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal().is_some_and(|signal| matches!(signal, 1 | 2 | 3 | 9 | 15 | 24 | 25))
}

#[cfg(not(unix))]
fn is_killed(_: ExitStatus) -> bool {
    false
}

/// An array of a launch: its bytes, and whether the kernel stores to it.
pub(super) struct Argument {
    pub(super) bytes: Vec<u8>,
    pub(super) is_stored: bool,
}

/// A launch of a kernel.
pub(super) struct Launch {
    /// The number of the kernel in its object.
    pub(super) kernel: usize,
    /// Number of groups in each dimension, the innermost first.
    pub(super) groups: [u64; 3],
    /// Number of threads of a group in each dimension.
    pub(super) threads: [u64; 3],
    /// True if the threads of a group wait for each other.
    pub(super) has_barriers: bool,
}

/// A process that launches the kernels of one file.
pub(super) struct Host {
    language: &'static Language,
    file: String,
    process: Option<Process>,
}

struct Process {
    child: Child,
    stderr: File,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Host {
    /// Compiles the file; the process starts with the first launch.
    ///
    /// # Errors
    /// The message of the compiler.
    pub(super) fn new(language: &'static Language, file: String) -> Result<Host, Problem> {
        compiler().map_err(Problem::Machine)?.object(language, &file)?;
        Ok(Host { language, file, process: None })
    }

    /// Starts the process. The object is looked up again, as the cache may have evicted it.
    fn start(&self) -> Result<Process, Problem> {
        let compiler = compiler().map_err(Problem::Machine)?;
        Process::start(compiler, &compiler.object(self.language, &self.file)?)
    }

    /// Launches a kernel, and updates the arrays that it stores to.
    ///
    /// # Errors
    /// The process has ended, or not all threads of a group reach a barrier.
    pub(super) fn launch(
        &mut self,
        launch: &Launch,
        arguments: &mut [Argument],
    ) -> Result<(), Problem> {
        let process = match self.process.take() {
            Some(process) => process,
            None => self.start()?,
        };
        // A process that has failed is killed.
        let process = self.process.insert(process);
        let answer = process.request(launch, arguments);
        if answer.is_err() {
            let process = self.process.take();
            return Err(process.map_or(Problem::Text(String::new()), Process::end));
        }
        let text = |problem: &str| Err(Problem::Text(problem.to_string()));
        match answer.unwrap_or_default() {
            0 => Ok(()),
            1 => text("a thread ends while others of its group wait at a barrier"),
            2 => text("there is no memory for the threads of a group"),
            _ => text("the object has no such kernel"),
        }
    }
}

impl Process {
    fn start(compiler: &Compiler, object: &Path) -> Result<Process, Problem> {
        let host = compiler.host()?;
        let start = || -> std::io::Result<Process> {
            let stderr = tempfile::tempfile()?;
            let child = Command::new(&host)
                .arg(object)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(stderr.try_clone()?)
                .spawn()?;
            Ok(Process { child, stderr })
        };
        start()
            .map_err(|error| Problem::Machine(format!("cannot start the host of texts: {error}")))
    }

    /// Sends a launch and reads the answer; if it is 0, also reads the stored arrays.
    fn request(&mut self, launch: &Launch, arguments: &mut [Argument]) -> std::io::Result<u64> {
        let closed = || std::io::ErrorKind::BrokenPipe;
        let input = self.child.stdin.as_mut().ok_or_else(closed)?;
        let Launch { kernel, groups, threads, has_barriers } = launch;
        let mut words = vec![*kernel as u64];
        words.extend(groups.iter().chain(threads));
        words.extend([u64::from(*has_barriers), arguments.len() as u64]);
        for argument in arguments.iter() {
            words.extend([argument.bytes.len() as u64, u64::from(argument.is_stored)]);
        }
        let mut sent: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        arguments.iter().for_each(|argument| sent.extend(&argument.bytes));
        input.write_all(&sent)?;
        input.flush()?;
        let output = self.child.stdout.as_mut().ok_or_else(closed)?;
        let mut answer = [0; 8];
        output.read_exact(&mut answer)?;
        let answer = u64::from_ne_bytes(answer);
        if answer == 0 {
            let mut stored = arguments.iter_mut().filter(|argument| argument.is_stored);
            stored.try_for_each(|argument| output.read_exact(&mut argument.bytes))?;
        }
        Ok(answer)
    }

    /// The reason why the process has ended.
    fn end(mut self) -> Problem {
        drop(self.child.stdin.take());
        let status = self.child.wait();
        let mut stderr = String::new();
        let _ = std::io::Seek::rewind(&mut self.stderr)
            .and_then(|()| self.stderr.read_to_string(&mut stderr));
        let stderr = stderr.trim();
        match status {
            Ok(status) if is_killed(status) => {
                Problem::Machine(format!("the host of texts was killed: {status}"))
            }
            Ok(status) if stderr.is_empty() => Problem::Text(format!(
                "the text crashes or overflows: its process ended with {status}"
            )),
            Ok(_) => Problem::Text(stderr.to_string()),
            Err(error) => Problem::machine(error),
        }
    }
}
