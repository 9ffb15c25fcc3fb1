//! The parent's side of a worker: asks, waits, and when the child dies or hangs, says so and
//! starts another.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use gradiff_check::{Blame, Failure as Found, Kind, Tally};
use gradiff_corpus::Program;

use crate::Failure;
use crate::worker::{parse_answer, parse_blame, to_hex};

/// What a worker is started with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The seed of generated programs.
    pub(crate) seed: u64,
    /// Backends.
    pub(crate) backends: Vec<String>,
    /// Lanes; none means all.
    pub(crate) lanes: Vec<String>,
    /// A planted fault.
    pub(crate) fault: Option<String>,
    /// Seconds that one program may take.
    pub(crate) timeout_seconds: u64,
}

/// One worker, alive or to be started at the next request.
pub(crate) struct Client {
    settings: Settings,
    process: Option<Process>,
}

struct Process {
    child: Child,
    requests: ChildStdin,
    answers: Receiver<String>,
}

/// How a request ended.
enum Reply {
    Answer(String),
    Died(String),
    Hung,
}

impl Client {
    /// A client whose worker starts with the first request.
    pub(crate) fn new(settings: Settings) -> Client {
        Client { settings, process: None }
    }

    /// Runs generated programs `first..first + count`. If that kills or hangs the worker, they
    /// are run one by one to find the guilty ones.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn run(
        &mut self,
        first: u64,
        count: u64,
    ) -> Result<(Tally, Vec<(u64, Found)>), Failure> {
        match self.ask(&format!("run {first} {count}"), count)? {
            Reply::Answer(line) => {
                let (tally, failures) = understood(&line, parse_answer)?;
                let number = |(position, found)| (first + position as u64, found);
                Ok((tally, failures.into_iter().map(number).collect()))
            }
            Reply::Died(_) | Reply::Hung if count > 1 => {
                let mut all = (Tally::default(), Vec::new());
                for index in first..first + count {
                    let (tally, failures) = self.run(index, 1)?;
                    all.0.add(&tally);
                    all.1.extend(failures);
                }
                Ok(all)
            }
            reply => {
                let (tally, found) = self.lost(reply);
                Ok((tally, vec![(first, found)]))
            }
        }
    }

    /// Runs one program.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn judge(&mut self, program: &Program) -> Result<(Tally, Vec<Found>), Failure> {
        let request = format!("case {}", to_hex(&gradiff_corpus::encode(program)));
        match self.ask(&request, 1)? {
            Reply::Answer(line) => {
                let (tally, failures) = understood(&line, parse_answer)?;
                Ok((tally, failures.into_iter().map(|(_, found)| found).collect()))
            }
            reply => {
                let (tally, found) = self.lost(reply);
                Ok((tally, vec![found]))
            }
        }
    }

    /// The stage to blame for what a program does on a backend.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn blame(
        &mut self,
        program: &Program,
        backend: &str,
    ) -> Result<Option<Blame>, Failure> {
        let request = format!("blame {backend} {}", to_hex(&gradiff_corpus::encode(program)));
        match self.ask(&request, 1)? {
            Reply::Answer(line) => understood(&line, parse_blame),
            // The evaluators of the stages neither die nor hang: the device did.
            reply => {
                let detail = self.lost(reply).1.detail;
                let (stage, room) = ("run".to_string(), "runtime".to_string());
                Ok(Some(Blame { stage, room, detail, rule: None }))
            }
        }
    }

    /// What a dead or hung worker counts as.
    fn lost(&self, reply: Reply) -> (Tally, Found) {
        let mut tally = Tally { programs: 1, ..Tally::default() };
        let backend = self.settings.backends.join(",");
        let (kind, detail) = match reply {
            Reply::Hung => {
                tally.timeouts = 1;
                (Kind::Timeout, format!("no answer within {} s", self.settings.timeout_seconds))
            }
            Reply::Died(how) => {
                tally.crashes = 1;
                (Kind::Crash, how)
            }
            Reply::Answer(_) => unreachable!("an answer is not lost"),
        };
        (tally, Found { backend, kind, detail })
    }

    fn ask(&mut self, request: &str, programs: u64) -> Result<Reply, Failure> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.settings)?,
        };
        let sent = writeln!(process.requests, "{request}").and_then(|()| process.requests.flush());
        if sent.is_err() {
            return Ok(Reply::Died(process.end()));
        }
        // A batch shares its compiler calls, so that each further program adds little.
        let limit = Duration::from_secs(self.settings.timeout_seconds + programs / 4);
        match process.answers.recv_timeout(limit) {
            Ok(line) => {
                self.process = Some(process);
                Ok(Reply::Answer(line))
            }
            Err(RecvTimeoutError::Timeout) => {
                process.end();
                Ok(Reply::Hung)
            }
            Err(RecvTimeoutError::Disconnected) => Ok(Reply::Died(process.end())),
        }
    }
}

/// What an answer says; one that is none is a mistake of ours.
fn understood<T>(line: &str, parse: fn(&str) -> Option<T>) -> Result<T, Failure> {
    parse(line).ok_or_else(|| Failure::Internal(format!("a worker answered: {line}")))
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end();
        }
    }
}

impl Process {
    fn start(settings: &Settings) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| {
            Failure::Internal(format!("a worker process cannot be started: {error}"))
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("worker").arg(format!("--seed={}", settings.seed));
        command.arg(format!("--backends={}", settings.backends.join(",")));
        if !settings.lanes.is_empty() {
            command.arg(format!("--lanes={}", settings.lanes.join(",")));
        }
        if let Some(fault) = &settings.fault {
            command.arg(format!("--fault={fault}"));
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let requests = child.stdin.take().expect("standard input is a pipe");
        let lines = BufReader::new(child.stdout.take().expect("standard output is a pipe"));
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Process { child, requests, answers })
    }

    /// Ends the process and says how it had ended.
    fn end(&mut self) -> String {
        let early = self.child.try_wait().ok().flatten();
        let status = match early {
            Some(status) => Some(status),
            None => {
                // Its output has ended or its time is over; give a dying process a moment.
                std::thread::sleep(Duration::from_millis(20));
                let late = self.child.try_wait().ok().flatten();
                let _ = self.child.kill();
                let _ = self.child.wait();
                late
            }
        };
        match status {
            Some(status) => format!("the process ended with {status}"),
            None => "the process was ended".to_string(),
        }
    }
}
