//! The parent's side of a worker: asks, waits, and when the child dies or hangs, says so and
//! starts another.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gradiff_check::{Blame, Failure as Found, Kind, Tally};
use gradiff_corpus::Program;

use crate::Failure;
use crate::cpu;
use crate::worker::{parse_answer, parse_blame, parse_canary, parse_stage, to_hex};

/// How often a worker's processor time is looked at, once it may have used it up.
const PAUSE: Duration = Duration::from_millis(100);
/// Wall time that a program may take, in multiples of its processor time and in seconds at least.
const WALL: (u64, u64) = (10, 120);

/// What a worker is started with.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The seed of generated programs.
    pub(crate) seed: u64,
    /// Backends.
    pub(crate) backends: Vec<String>,
    /// Lanes; none means all.
    pub(crate) lanes: Vec<String>,
    /// Seconds of processor time that one program may take.
    pub(crate) timeout_seconds: u64,
    /// Seconds of wall time that one program may take; unless it is said, far more.
    pub(crate) wall_seconds: Option<u64>,
}

impl Settings {
    fn wall_seconds(&self) -> u64 {
        let (times, least) = WALL;
        self.wall_seconds.unwrap_or(self.timeout_seconds.saturating_mul(times).max(least))
    }
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

/// What a worker does, as it says before it does it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stage {
    /// The backend that runs programs, or the stage that blame evaluates.
    pub(crate) name: String,
    /// The room of the engine that the stage stands in; empty of a backend.
    pub(crate) room: String,
}

/// How a request ended.
enum Reply {
    Answer(String),
    /// How it died, and at what.
    Died(String, Stage),
    /// What limit it ran into, and at what.
    Hung(String, Stage),
}

/// Which limit a worker is beyond.
enum Limit {
    Cpu,
    Wall,
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
            Reply::Answer(line) => numbered(&line, first),
            Reply::Died(..) | Reply::Hung(..) if count > 1 => {
                let mut all = (Tally::default(), Vec::new());
                for index in first..first + count {
                    let (tally, failures) = self.run(index, 1)?;
                    all.0.add(&tally);
                    all.1.extend(failures);
                }
                Ok(all)
            }
            // Once more, alone in a fresh worker, before it is held against the program.
            Reply::Hung(..) => match self.ask(&format!("run {first} 1"), 1)? {
                Reply::Answer(line) => {
                    let (mut tally, failures) = numbered(&line, first)?;
                    tally.slow += 1;
                    Ok((tally, failures))
                }
                reply => self.found(first, reply),
            },
            reply => self.found(first, reply),
        }
    }

    fn found(&self, index: u64, reply: Reply) -> Result<(Tally, Vec<(u64, Found)>), Failure> {
        let (tally, found) = self.lost(reply);
        Ok((tally, vec![(index, found)]))
    }

    /// Runs one program; if it hangs, once more in a fresh worker.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn judge_twice(
        &mut self,
        program: &Program,
    ) -> Result<(Tally, Vec<Found>), Failure> {
        let judged = self.judge(program)?;
        if judged.0.timeouts == 0 { Ok(judged) } else { self.judge(program) }
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
            // The stage that it died or hung at is to blame.
            Reply::Died(detail, Stage { name, room })
            | Reply::Hung(detail, Stage { name, room }) => {
                let (stage, room) = match room.is_empty() {
                    true => ("run".to_string(), "runtime".to_string()),
                    false => (name, room),
                };
                Ok(Some(Blame { stage, room, detail, rule: None }))
            }
        }
    }

    /// What a dead or hung worker counts as.
    fn lost(&self, reply: Reply) -> (Tally, Found) {
        let mut tally = Tally { programs: 1, ..Tally::default() };
        let (kind, detail, stage) = match reply {
            Reply::Hung(how, stage) => {
                tally.timeouts = 1;
                (Kind::Timeout, how, stage)
            }
            Reply::Died(how, stage) => {
                tally.crashes = 1;
                (Kind::Crash, how, stage)
            }
            Reply::Answer(_) => unreachable!("an answer is not lost"),
        };
        let is_known = self.settings.backends.contains(&stage.name);
        let backend = if is_known { stage.name } else { self.settings.backends.join(",") };
        (tally, Found { backend, kind, detail })
    }

    fn ask(&mut self, request: &str, programs: u64) -> Result<Reply, Failure> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.settings)?,
        };
        // A batch shares its compiler calls, so that each further program adds little.
        let cpu = self.settings.timeout_seconds + programs / 4;
        let wall = self.settings.wall_seconds().max(cpu);
        let clock = Clock::start(process.child.id(), cpu, wall);
        let sent = writeln!(process.requests, "{request}").and_then(|()| process.requests.flush());
        if sent.is_err() {
            return Ok(Reply::Died(process.end(), Stage::default()));
        }
        let mut stage = Stage::default();
        loop {
            match process.answers.recv_timeout(clock.pause()) {
                Ok(line) => match (parse_stage(&line), parse_canary(&line)) {
                    (Some(next), _) => stage = next,
                    (_, Some(problem)) => return Err(Failure::Oracle(problem)),
                    (None, None) => {
                        self.process = Some(process);
                        return Ok(Reply::Answer(line));
                    }
                },
                Err(RecvTimeoutError::Timeout) => {
                    let how = match clock.beyond() {
                        None => continue,
                        Some(Limit::Cpu) => format!("no answer within {cpu} s of processor time"),
                        Some(Limit::Wall) => format!("no answer within {wall} s"),
                    };
                    process.end();
                    return Ok(Reply::Hung(how, stage));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Reply::Died(process.end(), stage));
                }
            }
        }
    }
}

/// The time that a request takes.
struct Clock {
    worker: u32,
    start: Instant,
    /// Processor time of the worker before the request; `None` where the system does not say.
    before: Option<Duration>,
    cpu: Duration,
    wall: Duration,
    /// Wall time before which processor time cannot be used up.
    earliest: Duration,
}

impl Clock {
    fn start(worker: u32, cpu_seconds: u64, wall_seconds: u64) -> Clock {
        let [cpu, wall] = [cpu_seconds, wall_seconds].map(Duration::from_secs);
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let (before, earliest) = (cpu::of_tree(worker), cpu / cores);
        Clock { worker, start: Instant::now(), before, cpu, wall, earliest }
    }

    /// How long to wait for an answer before the limits are looked at.
    fn pause(&self) -> Duration {
        self.earliest.saturating_sub(self.start.elapsed()).max(PAUSE)
    }

    /// The limit that the worker is beyond. Without processor time, wall time counts for it.
    fn beyond(&self) -> Option<Limit> {
        let elapsed = self.start.elapsed();
        let now = self.before.and_then(|before| Some((before, cpu::of_tree(self.worker)?)));
        let taken = now.map_or(elapsed, |(before, now)| now.saturating_sub(before));
        match (taken >= self.cpu, elapsed >= self.wall) {
            (true, _) => Some(Limit::Cpu),
            (_, true) => Some(Limit::Wall),
            _ => None,
        }
    }
}

/// An answer to `run`, its failures with the numbers of their programs.
fn numbered(line: &str, first: u64) -> Result<(Tally, Vec<(u64, Found)>), Failure> {
    let (tally, failures) = understood(line, parse_answer)?;
    let number = |(position, found)| (first + position as u64, found);
    Ok((tally, failures.into_iter().map(number).collect()))
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
        cpu::lead(&mut command);
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
                if late.is_none() {
                    cpu::end_group(self.child.id());
                }
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
