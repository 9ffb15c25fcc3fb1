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
use crate::out::clean;
use crate::sequence::{Sequence, ranges};
use crate::worker::{
    parse_answer, parse_blame, parse_canary, parse_problems, parse_stage, parse_unusable, to_hex,
};

/// How often the limits of a worker, and whether an end was asked for, are looked at.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a process may take to die whose output has ended.
const DYING: Duration = Duration::from_millis(500);
/// Wall time that a program may take, in multiples of its processor time and in seconds at least.
const WALL: (u64, u64) = (10, 120);

/// Programs after which a worker gives way to a fresh one: its engines keep kernels, and what led
/// to a death has to be run again.
const PROGRAMS_MOST: usize = 2048;

/// How the end of a worker begins that another process has caused: it says nothing of programs.
pub(crate) const FROM_OUTSIDE: &str = "the process was ended from outside";

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
    /// How long a request may take that is under way when an end is asked for.
    pub(crate) grace: Duration,
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
    /// The generated programs that it was given, batch by batch.
    history: Vec<Vec<u64>>,
    /// How many processes the system had killed for want of memory when this one started.
    memory_kills: Option<u64>,
}

/// The death of a worker that ran generated programs.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    /// The backend that ran, how the process ended.
    pub(crate) found: Found,
    /// All that it had run, and what it died at.
    pub(crate) sequence: Sequence,
}

/// A failure of a generated program.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// The number of the program.
    pub(crate) index: u64,
    /// What was seen.
    pub(crate) found: Found,
    /// If the worker died of it: with what it had run before.
    pub(crate) death: Option<Death>,
}

/// What became of a batch of generated programs.
#[derive(Debug, Default)]
pub(crate) struct Ran {
    /// Sums over the programs.
    pub(crate) tally: Tally,
    /// What the programs have failed in.
    pub(crate) failures: Vec<Seen>,
    /// Deaths that none of the programs has caused when it was run again.
    pub(crate) deaths: Vec<Death>,
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
    /// Its backends cannot be opened.
    Unusable(String),
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
    /// A worker cannot be started; an end was asked for.
    pub(crate) fn run(&mut self, first: u64, count: u64) -> Result<Ran, Failure> {
        let numbers: Vec<u64> = (first..first + count).collect();
        let (reply, sequence) = self.ask_run(&numbers)?;
        match reply {
            Reply::Answer(line) => numbered(&line, &numbers),
            Reply::Died(..) if count > 1 => {
                let death = Death { found: self.lost(reply).1, sequence };
                let mut ran = self.run_singly(&numbers)?;
                // What kills a worker alone has most likely killed it in company.
                if ran.failures.iter().all(|seen| seen.death.is_none()) {
                    ran.tally.crashes += 1;
                    ran.deaths.push(death);
                }
                Ok(ran)
            }
            Reply::Hung(..) if count > 1 => {
                let mut ran = self.run_singly(&numbers)?;
                ran.tally.slow += u64::from(ran.tally.timeouts == 0);
                Ok(ran)
            }
            // Once more, alone in a fresh worker, before it is held against the program.
            Reply::Hung(..) => match self.ask_run(&numbers)? {
                (Reply::Answer(line), _) => {
                    let mut ran = numbered(&line, &numbers)?;
                    ran.tally.slow += 1;
                    Ok(ran)
                }
                (reply, sequence) => Ok(self.found(&numbers, reply, sequence)),
            },
            reply => Ok(self.found(&numbers, reply, sequence)),
        }
    }

    /// Returns whether the worker has run so many programs that it should be closed: a fresh one
    /// takes its place.
    pub(crate) fn is_worn(&self) -> bool {
        let count = |process: &Process| process.history.iter().map(Vec::len).sum::<usize>();
        self.process.as_ref().is_some_and(|process| PROGRAMS_MOST <= count(process))
    }

    fn run_singly(&mut self, numbers: &[u64]) -> Result<Ran, Failure> {
        let mut all = Ran::default();
        for index in numbers {
            let ran = self.run(*index, 1)?;
            all.tally.add(&ran.tally);
            all.failures.extend(ran.failures);
            all.deaths.extend(ran.deaths);
        }
        Ok(all)
    }

    fn found(&self, numbers: &[u64], reply: Reply, sequence: Sequence) -> Ran {
        let is_death = matches!(reply, Reply::Died(..));
        let (mut tally, found) = self.lost(reply);
        if found.kind == Kind::Environment {
            (tally.programs, tally.environment) = (0, numbers.len() as u64);
        }
        let death = is_death.then(|| Death { found: found.clone(), sequence });
        let index = numbers.first().copied().unwrap_or_default();
        Ran { tally, failures: vec![Seen { index, found, death }], deaths: Vec::new() }
    }

    /// Asks for generated programs; the reply with all that the worker has run by then, if it is no
    /// answer.
    fn ask_run(&mut self, numbers: &[u64]) -> Result<(Reply, Sequence), Failure> {
        let process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.settings)?,
        };
        let process = self.process.insert(process);
        process.history.push(numbers.to_vec());
        // The process is gone when it has died.
        let mut history = std::mem::take(&mut process.history);
        let reply = self.ask(&format!("run {}", ranges(numbers)), numbers.len() as u64)?;
        match (&reply, &mut self.process) {
            (Reply::Answer(_), Some(process)) => {
                process.history = std::mem::take(&mut history);
                Ok((reply, Sequence::default()))
            }
            _ => Ok((reply, self.sequence(history))),
        }
    }

    fn sequence(&self, batches: Vec<Vec<u64>>) -> Sequence {
        let Settings { seed, lanes, backends, .. } = &self.settings;
        Sequence { seed: *seed, lanes: lanes.clone(), backends: backends.clone(), batches }
    }

    /// Runs the batches of a sequence in a worker that is fresh; what fails, and how it died, if it
    /// did.
    ///
    /// # Errors
    /// A worker cannot be started, or its backends cannot be opened; an end was asked for.
    pub(crate) fn replay(&mut self, sequence: &Sequence) -> Result<(Ran, Option<Found>), Failure> {
        self.end();
        let mut all = Ran::default();
        for numbers in &sequence.batches {
            let (reply, _) = self.ask_run(numbers)?;
            match reply {
                Reply::Answer(line) => {
                    let ran = numbered(&line, numbers)?;
                    all.tally.add(&ran.tally);
                    all.failures.extend(ran.failures);
                }
                Reply::Unusable(why) => return Err(Failure::Environment(why)),
                reply => {
                    let (tally, found) = self.lost(reply);
                    all.tally.add(&tally);
                    return Ok((all, Some(found)));
                }
            }
        }
        let death = self.close();
        all.tally.crashes += u64::from(death.is_some());
        Ok((all, death.map(|death| death.found)))
    }

    /// Ends the worker; its death, if it had died before with nothing to do.
    pub(crate) fn close(&mut self) -> Option<Death> {
        let mut process = self.process.take()?;
        // What was started last may end it yet.
        std::thread::sleep(Duration::from_millis(5));
        let is_dead = cpu::has_ended(&mut process.child);
        let history = std::mem::take(&mut process.history);
        let how = process.end();
        let sequence = self.sequence(history);
        is_dead.then(|| Death { found: self.lost(Reply::Died(how, Stage::default())).1, sequence })
    }

    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end();
        }
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

    /// What is wrong with a case, given by its text, besides the values of its program.
    ///
    /// # Errors
    /// A worker cannot be started; an end was asked for.
    pub(crate) fn check(&mut self, text: &str) -> Result<Vec<String>, Failure> {
        match self.ask(&format!("check {}", to_hex(text.as_bytes())), 1)? {
            Reply::Answer(line) => understood(&line, parse_problems),
            Reply::Unusable(why) => Err(Failure::Environment(why)),
            Reply::Died(how, _) | Reply::Hung(how, _) => Ok(vec![how]),
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
            Reply::Unusable(why) => Err(Failure::Environment(why)),
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
            Reply::Unusable(why) => {
                tally.environment = 1;
                (Kind::Environment, why, Stage::default())
            }
            Reply::Answer(_) => unreachable!("an answer is not lost"),
        };
        let names = self.settings.backends.iter().filter_map(|word| word.split(':').next());
        let is_known = names.into_iter().any(|name| name == stage.name);
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
            return Ok(Reply::Died(process.end_after(DYING), Stage::default()));
        }
        let mut stage = Stage::default();
        loop {
            match process.answers.recv_timeout(PAUSE) {
                Ok(line) => {
                    if let Some(next) = parse_stage(&line) {
                        stage = next;
                        continue;
                    }
                    if let Some(problem) = parse_canary(&line) {
                        return Err(Failure::Oracle(problem));
                    }
                    if let Some(why) = parse_unusable(&line) {
                        process.end();
                        return Ok(Reply::Unusable(clean(&why)));
                    }
                    self.process = Some(process);
                    return Ok(Reply::Answer(line));
                }
                Err(RecvTimeoutError::Timeout) => {
                    if crate::interrupt::is_asked() && self.settings.grace <= clock.elapsed() {
                        process.end();
                        return Err(Failure::Interrupted);
                    }
                    let how = match clock.beyond() {
                        None => continue,
                        Some(Limit::Cpu) => format!("no answer within {cpu} s of processor time"),
                        Some(Limit::Wall) => format!("no answer within {wall} s"),
                    };
                    process.end();
                    return Ok(Reply::Hung(how, stage));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Reply::Died(process.end_after(DYING), stage));
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

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// The limit that the worker is beyond. Without processor time, wall time counts for it.
    fn beyond(&self) -> Option<Limit> {
        let elapsed = self.elapsed();
        if elapsed < self.earliest.min(self.wall) {
            return None;
        }
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
fn numbered(line: &str, numbers: &[u64]) -> Result<Ran, Failure> {
    let (tally, failures) = understood(line, parse_answer)?;
    let seen = |(position, found): (usize, Found)| {
        let index = *numbers.get(position)?;
        Some(Seen { index, found, death: None })
    };
    let failures: Option<Vec<Seen>> = failures.into_iter().map(seen).collect();
    let failures =
        failures.ok_or_else(|| Failure::Internal(format!("a worker answered: {line}")))?;
    Ok(Ran { tally, failures, deaths: Vec::new() })
}

/// What an answer says; one that is none is a mistake of ours.
fn understood<T>(line: &str, parse: fn(&str) -> Option<T>) -> Result<T, Failure> {
    parse(line).ok_or_else(|| Failure::Internal(format!("a worker answered: {line}")))
}

impl Drop for Client {
    fn drop(&mut self) {
        self.end();
    }
}

impl Process {
    fn start(settings: &Settings) -> Result<Process, Failure> {
        let failed = |error: std::io::Error| {
            Failure::Environment(format!("a worker process cannot be started: {error}"))
        };
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("worker").arg(format!("--seed={}", settings.seed));
        command.arg(format!("--parent={}", std::process::id()));
        command.arg(format!("--backends={}", settings.backends.join(",")));
        if !settings.lanes.is_empty() {
            command.arg(format!("--lanes={}", settings.lanes.join(",")));
        }
        cpu::lead(&mut command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let memory_kills = cpu::memory_kills();
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
        Ok(Process { child, requests, answers, history: Vec::new(), memory_kills })
    }

    /// Ends the process with all that it started, and says how it had ended.
    fn end(&mut self) -> String {
        self.end_after(Duration::ZERO)
    }

    /// The same of a process whose output has ended, which is given a moment to die by itself.
    fn end_after(&mut self, patience: Duration) -> String {
        let start = Instant::now();
        let mut had_ended = cpu::has_ended(&mut self.child);
        while !had_ended && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
            had_ended = cpu::has_ended(&mut self.child);
        }
        // It has not been waited for: its number is its own, and that of its group.
        cpu::end_group(self.child.id());
        let _ = self.child.kill();
        match self.child.wait() {
            Ok(status) if had_ended && cpu::is_from_outside(status, self.memory_kills) => {
                format!("{FROM_OUTSIDE}: {status}")
            }
            Ok(status) if had_ended => format!("the process ended with {status}"),
            _ => "the process was ended".to_string(),
        }
    }
}
