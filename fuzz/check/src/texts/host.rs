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

/// No optimisation, which could hide what a text leaves undefined, and takes time.
const FLAGS: [&str; 5] = ["-O0", "-w", "-fPIC", "-ffp-contract=off", "-shared"];

/// The files beside those of kernels.
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

/// A compiler for the host, with the program that launches what it makes.
pub(super) struct Compiler {
    command: &'static str,
    /// What it says of itself.
    pub(super) version: String,
    objects: Cache,
    programs: Cache,
}

/// Why a text does not run.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Problem {
    /// The text is at fault.
    Text(String),
    /// The machine is: its compiler, its files.
    Machine(String),
}

impl Problem {
    /// What is wrong, in words.
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
/// There is none, or it makes no program that launches kernels.
pub(super) fn compiler() -> Result<&'static Compiler, String> {
    static FOUND: OnceLock<Result<Compiler, String>> = OnceLock::new();
    let open = || Compiler::open().map_err(|problem| problem.message().to_string());
    FOUND.get_or_init(open).as_ref().map_err(Clone::clone)
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

    /// The program that launches kernels, from the cache or new: asked for at each start, as the
    /// cache may have dropped it.
    fn host(&self) -> Result<PathBuf, Problem> {
        let key = format!("{}\n{}", self.version, FILES[0].1);
        if self.programs.read(&key).is_none() {
            let program = made(FILES, |place, program| {
                let mut host = Command::new(self.command);
                host.args(["-O1", "-w", "-rdynamic"]).arg(place.join(FILES[0].0));
                // The program is the same ever again, whatever the text.
                let made = ran(host.arg("-o").arg(program).args(["-ldl", "-lm"]));
                made.map_err(|problem| Problem::machine(problem.message()))
            })?;
            self.programs.add(&key, &program).map_err(Problem::machine)?;
        }
        let path = self.programs.path_of(&key);
        // Another process may have added it this moment.
        executable(&path)
            .map_err(|error| Problem::Machine(format!("{}: {error}", path.display())))?;
        Ok(path)
    }

    /// The shared object of a file of kernels, from the cache or new.
    ///
    /// # Errors
    /// What the compiler says.
    pub(super) fn object(&self, language: &Language, text: &str) -> Result<PathBuf, Problem> {
        let stand_ins: String = FILES.iter().map(|(_, text)| *text).collect();
        let flags = [&FLAGS, language.flags].concat().join(" ");
        let key = format!("{}\n{flags}\n{stand_ins}\n{text}", self.version);
        if self.objects.read(&key).is_some() {
            return Ok(self.objects.path_of(&key));
        }
        let make = || {
            let files = FILES.into_iter().chain([(language.file, text)]);
            made(files, |place, object| {
                let mut command = Command::new(self.command);
                command.args(FLAGS).args(language.flags).arg("-I").arg(place);
                command.arg(place.join(language.file)).arg("-o").arg(object).arg("-lm");
                // A compiler that is ended leaves its files behind.
                ran(command.env("TMPDIR", place))
            })
        };
        let object = make().map_err(|problem| self.culprit(problem, make))?;
        self.objects.add(&key, &object).map_err(Problem::machine)
    }

    /// What a failed compile says is a text's fault only if the compiler takes a text that is
    /// beyond doubt, and not this one when it is given it `again`.
    fn culprit(&self, problem: Problem, again: impl Fn() -> Result<Vec<u8>, Problem>) -> Problem {
        let Problem::Text(why) = problem else { return problem };
        // The machine may have been at fault at either end of the attempts.
        let probed = || self.probe().err().map(|problem| problem.message().to_string());
        let sick = probed().or_else(|| {
            let is_taken = (0..ATTEMPTS_MORE).any(|_| again().is_ok());
            let why = || format!("it failed and then did not: {why}");
            is_taken.then(why).or_else(probed)
        });
        sick.map_or(Problem::Text(why), Problem::Machine)
    }

    /// Compiles a text that is beyond doubt, where there is room for what compilers write.
    fn probe(&self) -> Result<(), Problem> {
        let made = made([PROBE], |place, object| {
            std::fs::write(place.join("room"), vec![1; ROOM]).map_err(Problem::machine)?;
            let mut command = Command::new(self.command);
            command.args(FLAGS).arg(place.join(PROBE.0)).arg("-o").arg(object);
            ran(&mut command)
        });
        made.map(drop)
    }
}

/// Returns whether the first compiler of C that is found takes a text; `None` if there is none.
pub(super) fn takes_c(text: &str) -> Option<bool> {
    let place = tempfile::tempdir().ok()?;
    let path = place.path().join("kernel.c");
    std::fs::write(&path, text).ok()?;
    let taken = |program: &&str| {
        let mut command = Command::new(program);
        command.args(["-w", "-march=native", "-fsyntax-only"]).arg(&path);
        let output = command.env("TMPDIR", place.path()).stdin(Stdio::null()).output().ok()?;
        Some(output.status.success())
    };
    ["cc", "gcc", "clang"].iter().find_map(taken)
}

/// How often a text that was refused is compiled once more.
const ATTEMPTS_MORE: usize = 8;
/// Bytes that a compiler's files must have room for.
const ROOM: usize = 4 << 20;

/// A source that every compiler takes.
const PROBE: (&str, &str) = ("probe.c", "int gradiff_probe(void) { return 0; }\n");

/// What a compiler makes in a folder of these files: the folder, and where to put it.
fn made<'a>(
    files: impl IntoIterator<Item = (&'a str, &'a str)>,
    make: impl FnOnce(&Path, &Path) -> Result<(), Problem>,
) -> Result<Vec<u8>, Problem> {
    let place = tempfile::tempdir().map_err(Problem::machine)?;
    for (name, text) in files {
        std::fs::write(place.path().join(name), text).map_err(Problem::machine)?;
    }
    let result = place.path().join("result");
    make(place.path(), &result)?;
    std::fs::read(&result).map_err(Problem::machine)
}

/// Lets the owner alone run a file.
#[cfg(unix)]
fn executable(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn executable(_: &Path) -> std::io::Result<()> {
    Ok(())
}

/// Runs a program that is to succeed; else what it says.
fn ran(command: &mut Command) -> Result<(), Problem> {
    let output = command.stdin(Stdio::null()).output().map_err(Problem::machine)?;
    let (program, status) = (command.get_program().to_string_lossy(), output.status);
    let said = String::from_utf8_lossy(&output.stderr);
    let message = format!("{program} ({status}): {}", said.trim());
    match status.success() {
        true => Ok(()),
        false if is_ended_from_outside(status) => Err(Problem::Machine(message)),
        false => Err(Problem::Text(message)),
    }
}

/// Returns whether somebody, or the system for want of memory or time, has ended the program:
/// SIGHUP, SIGINT, SIGQUIT, SIGKILL, SIGTERM or SIGXCPU. A crash is a signal of its own doing.
#[cfg(unix)]
fn is_ended_from_outside(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal().is_some_and(|signal| matches!(signal, 1 | 2 | 3 | 9 | 15 | 24))
}

#[cfg(not(unix))]
fn is_ended_from_outside(_: ExitStatus) -> bool {
    false
}

/// An array of a launch: its bytes, and whether the kernel stores to it.
pub(super) struct Argument {
    pub(super) bytes: Vec<u8>,
    pub(super) is_stored: bool,
}

/// What is launched.
pub(super) struct Launch {
    /// The number of the kernel in its object.
    pub(super) kernel: usize,
    /// Counts of groups, the innermost first.
    pub(super) groups: [u64; 3],
    /// Counts of threads of a group.
    pub(super) threads: [u64; 3],
    /// Whether the threads of a group wait for each other.
    pub(super) meets: bool,
}

/// A process that launches the kernels of one object.
pub(super) struct Host {
    object: PathBuf,
    process: Option<Process>,
}

struct Process {
    child: Child,
    said: File,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Host {
    pub(super) fn new(object: &Path) -> Host {
        Host { object: object.to_path_buf(), process: None }
    }

    /// Launches a kernel, and changes what it stores to.
    ///
    /// # Errors
    /// The kernel has ended the process, or not all threads of a group have met.
    pub(super) fn launch(
        &mut self,
        launch: &Launch,
        arguments: &mut [Argument],
    ) -> Result<(), Problem> {
        let process = match self.process.take() {
            Some(process) => process,
            None => Process::start(compiler().map_err(Problem::Machine)?, &self.object)?,
        };
        // A process that has failed is ended.
        let process = self.process.insert(process);
        let answer = process.ask(launch, arguments);
        if answer.is_err() {
            let ended = self.process.take();
            return Err(ended.map_or(Problem::Text(String::new()), Process::end));
        }
        let text = |said: &str| Err(Problem::Text(said.to_string()));
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
            let said = tempfile::tempfile()?;
            let child = Command::new(&host)
                .arg(object)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(said.try_clone()?)
                .spawn()?;
            Ok(Process { child, said })
        };
        start()
            .map_err(|error| Problem::Machine(format!("cannot start the host of texts: {error}")))
    }

    /// Sends a launch and reads its answer, and after 0 what was stored.
    fn ask(&mut self, launch: &Launch, arguments: &mut [Argument]) -> std::io::Result<u64> {
        let closed = || std::io::ErrorKind::BrokenPipe;
        let input = self.child.stdin.as_mut().ok_or_else(closed)?;
        let Launch { kernel, groups, threads, meets } = launch;
        let mut words = vec![*kernel as u64];
        words.extend(groups.iter().chain(threads));
        words.extend([u64::from(*meets), arguments.len() as u64]);
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

    /// How the process has ended.
    fn end(mut self) -> Problem {
        drop(self.child.stdin.take());
        let status = self.child.wait();
        let mut said = String::new();
        let _ = std::io::Seek::rewind(&mut self.said)
            .and_then(|()| self.said.read_to_string(&mut said));
        let said = said.trim();
        match status {
            Ok(status) if is_ended_from_outside(status) => {
                Problem::Machine(format!("the host of texts was ended: {status}"))
            }
            Ok(status) if said.is_empty() => Problem::Text(format!(
                "the text strays or overflows: its process ended with {status}"
            )),
            Ok(_) => Problem::Text(said.to_string()),
            Err(error) => Problem::machine(error),
        }
    }
}
