//! The parent's side of a worker: sends requests and waits for answers; when the child dies or
//! hangs, reports it and starts another.

use std::cell::OnceCell;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use gradiff_check::{Blame, Crate, Failure as CheckFailure, Kind, Stage, Tally};
use gradiff_corpus::Program;

use crate::Failure;
use crate::cpu;
use crate::out::{clean, errln};
use crate::sequence::{Sequence, ranges};
use crate::worker::{
    parse_answer, parse_blame, parse_canary, parse_place, parse_problems, parse_unusable, to_hex,
};

/// Interval at which the limits of a worker and requests to end are checked.
const PAUSE: Duration = Duration::from_millis(100);
/// Time that a process may take to die after its output has ended.
const DYING: Duration = Duration::from_millis(500);
/// Wall time that a program may take: a multiple of its processor time, and the least seconds.
const WALL: (u64, u64) = (10, 120);

/// Processor time that the search for the stage at fault may take, in times that of a program: each
/// stage is evaluated by itself.
const BLAME_TIMES: u64 = 3;

/// Number of programs after which a fresh worker replaces one: its engines cache kernels, and if it
/// dies, all its programs are run again.
const PROGRAMS_MAX: usize = 2048;

/// Beginning of the description of a death that another process has caused: it says nothing about
/// programs.
pub(crate) const FROM_OUTSIDE: &str = "the process was ended from outside";

/// The name of the oracle where it stands for a backend.
const ORACLE: &str = "oracle";

/// Settings that a worker is started with.
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
    /// Seconds of wall time that one program may take; by default far more than processor time.
    pub(crate) wall_seconds: Option<u64>,
    /// Time that a running request may still take after a request to end.
    pub(crate) grace: Duration,
}

impl Settings {
    /// Wall time of a request that may take `cpu` seconds of processor time.
    fn wall_seconds(&self, cpu: u64) -> u64 {
        let (times, least) = WALL;
        let usual = self.timeout_seconds.saturating_mul(times).max(least).max(cpu);
        self.wall_seconds.unwrap_or(usual)
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
    /// The numbers of the generated programs that it was given, batch by batch.
    history: Vec<Vec<u64>>,
    /// Number of processes that the system had killed because memory ran out when this one started.
    memory_kills: Option<u64>,
}

/// The death of a worker that ran generated programs, or the limit that it exceeded.
#[derive(Clone, Debug)]
pub(crate) struct Death {
    /// The backend that ran, and how the process ended.
    pub(crate) failure: CheckFailure,
    /// All programs that it had run, up to those at which it died; or those at which it hung.
    pub(crate) sequence: Sequence,
}

/// A failure of a generated program.
#[derive(Clone, Debug)]
pub(crate) struct FailedProgram {
    /// The number of the program.
    pub(crate) index: u64,
    /// The failure.
    pub(crate) failure: CheckFailure,
    /// The death of the worker, if it died of this program.
    pub(crate) death: Option<Death>,
    /// All programs that the worker had run, up to those of the failure's batch.
    pub(crate) sequence: Arc<Sequence>,
}

/// Results of a batch of generated programs.
#[derive(Debug, Default)]
pub(crate) struct Results {
    /// Sums over the programs.
    pub(crate) tally: Tally,
    /// The failures of the programs.
    pub(crate) failures: Vec<FailedProgram>,
    /// Deaths that none of the programs has caused alone.
    pub(crate) deaths: Vec<Death>,
    /// The numbers, or ranges of them, of programs that exceeded a limit once, but not when they
    /// were run again alone.
    pub(crate) slow: Vec<String>,
    /// Number of batches that hung, and whose programs have not all run alone since.
    pub(crate) pending: u64,
    /// Number of programs at which workers hung, alone and twice. A peer that gives no answer in
    /// time makes no worker hang.
    pub(crate) hangs: u64,
}

impl Results {
    /// Counts a batch that hung, whose first `done` programs have these results alone.
    fn add_hang(&mut self, numbers: &[u64], done: usize) {
        match self.hangs {
            0 if done < numbers.len() => self.pending += 1,
            0 if self.slow.is_empty() => self.slow.push(ranges(numbers)),
            _ => {}
        }
    }
}

/// The part of the work that a worker is about to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The backend, or the oracle, that runs programs.
    Backend(String),
    /// The stage that blame evaluates, and its crate.
    Stage(Stage, Crate),
}

/// Outcome of a request.
enum Reply {
    Answer(String),
    /// The worker died: how, and where if it had begun.
    Died(String, Option<Place>),
    /// The worker exceeded a limit: which one, and where if it had begun.
    Hung(String, Option<Place>),
    /// The worker's backends cannot be opened: why.
    Unusable(String),
}

/// Limit that a worker has exceeded.
enum Limit {
    Cpu,
    Wall,
}

impl Client {
    /// Returns a client whose worker starts with the first request.
    pub(crate) fn new(settings: Settings) -> Client {
        Client { settings, process: None }
    }

    /// Runs generated programs `first..first + count`. If the worker dies or hangs, tells `lost` so
    /// and runs them one by one to find the culprits, until `is_over`.
    ///
    /// # Errors
    /// A worker cannot be started, or an end is requested, before one has died or hung.
    pub(crate) fn run(
        &mut self,
        first: u64,
        count: u64,
        is_over: &dyn Fn() -> bool,
        lost: &dyn Fn(&Death),
    ) -> Result<Results, Failure> {
        let numbers: Vec<u64> = (first..first + count).collect();
        let (reply, sequence) = self.ask_run(&numbers)?;
        match reply {
            Reply::Answer(line) => self.answered(&line, &numbers),
            Reply::Died(..) if count > 1 => {
                let death = Death { failure: self.loss(reply).1, sequence };
                lost(&death);
                let mut results = self.run_singly(&numbers, is_over)?.0;
                // A program that kills a worker alone has most likely killed the batch's worker.
                if results.failures.iter().all(|failed| failed.death.is_none()) {
                    results.tally.crashes += 1;
                    results.deaths.push(death);
                }
                Ok(results)
            }
            Reply::Hung(..) if count > 1 => {
                let sequence = sequence.tail(1);
                lost(&Death { failure: self.loss(reply).1, sequence });
                let start = Instant::now();
                let limit = Duration::from_secs(self.settings.timeout_seconds);
                let is_late = || is_over() && limit <= start.elapsed();
                let (mut results, done) = self.run_singly(&numbers, &is_late)?;
                results.add_hang(&numbers, done);
                Ok(results)
            }
            // Run it again in a fresh worker before the program is reported.
            Reply::Hung(..) => match self.ask_run(&numbers) {
                Ok((Reply::Answer(line), _)) => {
                    let mut results = self.answered(&line, &numbers)?;
                    results.slow.push(ranges(&numbers));
                    Ok(results)
                }
                Ok((Reply::Unusable(_), _))
                | Err(Failure::Interrupted | Failure::Environment(_)) => {
                    Ok(self.lost(&numbers, reply, sequence))
                }
                Ok((reply, sequence)) => Ok(self.lost(&numbers, reply, sequence)),
                Err(failure) => Err(failure),
            },
            reply => Ok(self.lost(&numbers, reply, sequence)),
        }
    }

    /// Returns whether the worker has run so many programs that a fresh one should replace it.
    pub(crate) fn is_worn(&self) -> bool {
        let count = |process: &Process| process.history.iter().map(Vec::len).sum::<usize>();
        self.process.as_ref().is_some_and(|process| PROGRAMS_MAX <= count(process))
    }

    /// Returns the results of the first programs, those before `is_over` or before something
    /// prevents another one, and the number of those that the machine could run.
    fn run_singly(
        &mut self,
        numbers: &[u64],
        is_over: &dyn Fn() -> bool,
    ) -> Result<(Results, usize), Failure> {
        let (mut sum, mut done) = (Results::default(), 0);
        let may_run = || !is_over() && !crate::interrupt::is_requested();
        for index in numbers.iter().take_while(|_| may_run()) {
            let results = match self.run(*index, 1, is_over, &|_| {}) {
                Err(Failure::Interrupted | Failure::Environment(_)) => break,
                results => results?,
            };
            sum.tally.add(&results.tally);
            sum.failures.extend(results.failures);
            sum.deaths.extend(results.deaths);
            sum.slow.extend(results.slow);
            sum.hangs += results.hangs;
            done += usize::from(results.tally.environment == 0);
        }
        Ok((sum, done))
    }

    /// Returns the results of programs at which the worker died or hung.
    fn lost(&self, numbers: &[u64], reply: Reply, sequence: Sequence) -> Results {
        let is_death = matches!(reply, Reply::Died(..));
        let hangs = u64::from(matches!(reply, Reply::Hung(..)));
        let (mut tally, failure) = self.loss(reply);
        if failure.kind == Kind::Environment {
            (tally.programs, tally.environment) = (0, numbers.len() as u64);
        }
        let sequence = Arc::new(sequence);
        let death = is_death
            .then(|| Death { failure: failure.clone(), sequence: Sequence::clone(&sequence) });
        let index = numbers.first().copied().unwrap_or_default();
        let failures = vec![FailedProgram { index, failure, death, sequence }];
        Results { tally, failures, hangs, ..Results::default() }
    }

    /// Parses an answer to `run`; its failures get the numbers of their programs, and all programs
    /// that the worker has run.
    fn answered(&self, line: &str, numbers: &[u64]) -> Result<Results, Failure> {
        let (tally, failures) = parsed(line, parse_answer)?;
        let history = self.process.as_ref().filter(|_| !failures.is_empty());
        let history = history.map_or_else(Vec::new, |process| process.history.clone());
        let sequence = Arc::new(self.sequence(history));
        let located = |(position, failure): (usize, CheckFailure)| {
            let index = *numbers.get(position)?;
            Some(FailedProgram { index, failure, death: None, sequence: Arc::clone(&sequence) })
        };
        let failures: Option<Vec<FailedProgram>> = failures.into_iter().map(located).collect();
        let failures =
            failures.ok_or_else(|| Failure::Internal(format!("a worker answered: {line}")))?;
        Ok(Results { tally, failures, ..Results::default() })
    }

    /// Requests a run of generated programs. Returns the reply and, if it is not an answer, all
    /// programs that the worker has run.
    fn ask_run(&mut self, numbers: &[u64]) -> Result<(Reply, Sequence), Failure> {
        let process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.settings)?,
        };
        let process = self.process.insert(process);
        process.history.push(numbers.to_vec());
        // If the process dies, `ask` drops it.
        let mut history = std::mem::take(&mut process.history);
        // The programs of a batch share compiler calls, so that each further one adds little.
        let further = numbers.len() as u64 / 4;
        let seconds = self.settings.timeout_seconds.saturating_add(further);
        let reply = self.ask(&format!("run {}", ranges(numbers)), seconds)?;
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

    /// Runs the batches of a sequence in a fresh worker. Returns the results, and the worker's
    /// death if it died.
    ///
    /// # Errors
    /// A worker cannot be started, or its backends cannot be opened; an end was requested.
    pub(crate) fn replay(
        &mut self,
        sequence: &Sequence,
    ) -> Result<(Results, Option<CheckFailure>), Failure> {
        self.end();
        let mut sum = Results::default();
        for numbers in &sequence.batches {
            let (reply, _) = self.ask_run(numbers)?;
            match reply {
                Reply::Answer(line) => {
                    let results = self.answered(&line, numbers)?;
                    sum.tally.add(&results.tally);
                    sum.failures.extend(results.failures);
                }
                Reply::Unusable(why) => return Err(Failure::Environment(why)),
                reply => {
                    let (tally, failure) = self.loss(reply);
                    sum.tally.add(&tally);
                    return Ok((sum, Some(failure)));
                }
            }
        }
        let death = self.close();
        sum.tally.crashes += u64::from(death.is_some());
        Ok((sum, death.map(|death| death.failure)))
    }

    /// Ends the worker. Returns its death, if it had died since its last request.
    pub(crate) fn close(&mut self) -> Option<Death> {
        let mut process = self.process.take()?;
        // Work that it left running may still kill it.
        std::thread::sleep(Duration::from_millis(5));
        let is_dead = cpu::has_ended(&mut process.child);
        let history = std::mem::take(&mut process.history);
        let how = process.end();
        let sequence = self.sequence(history);
        is_dead.then(|| Death { failure: self.loss(Reply::Died(how, None)).1, sequence })
    }

    fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.end();
        }
    }

    /// Runs one program; if it hangs, runs it again in a fresh worker.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn judge_twice(
        &mut self,
        program: &Program,
    ) -> Result<(Tally, Vec<CheckFailure>), Failure> {
        let judged = self.judge(program)?;
        if judged.0.timeouts == 0 { Ok(judged) } else { self.judge(program) }
    }

    /// Runs one program.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn judge(
        &mut self,
        program: &Program,
    ) -> Result<(Tally, Vec<CheckFailure>), Failure> {
        let request = format!("case {}", to_hex(&gradiff_corpus::encode(program)));
        match self.ask(&request, self.settings.timeout_seconds)? {
            Reply::Answer(line) => {
                let (tally, failures) = parsed(&line, parse_answer)?;
                Ok((tally, failures.into_iter().map(|(_, failure)| failure).collect()))
            }
            reply => {
                let (tally, failure) = self.loss(reply);
                Ok((tally, vec![failure]))
            }
        }
    }

    /// Checks a case, given by its text, except for the values of its program. Returns the
    /// problems.
    ///
    /// # Errors
    /// A worker cannot be started; an end was requested.
    pub(crate) fn check(&mut self, text: &str) -> Result<Vec<String>, Failure> {
        let request = format!("check {}", to_hex(text.as_bytes()));
        match self.ask(&request, self.settings.timeout_seconds)? {
            Reply::Answer(line) => parsed(&line, parse_problems),
            Reply::Unusable(why) => Err(Failure::Environment(why)),
            Reply::Died(how, _) | Reply::Hung(how, _) => Ok(vec![how]),
        }
    }

    /// Returns the stage to blame for the failure of a program; `None` if no stage is wrong by
    /// itself, or none was found in time.
    ///
    /// # Errors
    /// A worker cannot be started.
    pub(crate) fn blame(
        &mut self,
        program: &Program,
        failure: &CheckFailure,
    ) -> Result<Option<Blame>, Failure> {
        let hex = to_hex(&gradiff_corpus::encode(program));
        let request = format!("blame {hex} {}", failure.backend);
        let seconds = self.settings.timeout_seconds.saturating_mul(BLAME_TIMES);
        match self.ask(&request, seconds)? {
            Reply::Answer(line) => parsed(&line, parse_blame),
            Reply::Unusable(why) => Err(Failure::Environment(why)),
            Reply::Hung(how, _) if failure.kind != Kind::Timeout => {
                errln!("gradiff: the search for the stage at fault gave {how}");
                Ok(None)
            }
            Reply::Died(how, _) if is_no_fault(&how, failure.kind) => {
                errln!("gradiff: the search for the stage at fault ended: {how}");
                Ok(None)
            }
            // The stage at which the worker died, or hung as the program did, is to blame.
            Reply::Died(detail, place) | Reply::Hung(detail, place) => {
                let (stage, crate_name) = match place {
                    Some(Place::Stage(stage, crate_name)) => (stage, crate_name),
                    _ => (Stage::Run, Crate::Runtime),
                };
                Ok(Some(Blame { stage, crate_name, detail, rule: None }))
            }
        }
    }

    /// Returns the counts and the failure for a dead, hung or unusable worker.
    fn loss(&self, reply: Reply) -> (Tally, CheckFailure) {
        let mut tally = Tally { programs: 1, ..Tally::default() };
        let (kind, detail, place) = match reply {
            Reply::Hung(how, place) => {
                tally.timeouts = 1;
                (Kind::Timeout, how, place)
            }
            Reply::Died(how, place) => {
                tally.crashes = 1;
                (Kind::Crash, how, place)
            }
            Reply::Unusable(why) => {
                tally.environment = 1;
                (Kind::Environment, why, None)
            }
            Reply::Answer(_) => unreachable!("a worker that answers is not lost"),
        };
        let backends = &self.settings.backends;
        let names = backends.iter().map(|word| gradiff_check::name_of(word));
        let names: Vec<&str> = names.collect();
        let backend = match place {
            Some(Place::Backend(name)) if name == ORACLE || names.contains(&name.as_str()) => name,
            _ => names.join(","),
        };
        (tally, CheckFailure { backend, kind, detail })
    }

    /// Sends a request, whose answer may take `cpu` seconds of processor time.
    fn ask(&mut self, request: &str, cpu: u64) -> Result<Reply, Failure> {
        let mut process = match self.process.take() {
            Some(process) => process,
            None => Process::start(&self.settings)?,
        };
        let wall = self.settings.wall_seconds(cpu);
        let clock = Clock::start(process.child.id(), cpu, wall);
        let sent = writeln!(process.requests, "{request}").and_then(|()| process.requests.flush());
        if sent.is_err() {
            return Ok(Reply::Died(process.end_after(DYING), None));
        }
        let mut place = None;
        loop {
            match process.answers.recv_timeout(PAUSE) {
                Ok(line) => {
                    if let Some(next) = parse_place(&line) {
                        place = Some(next);
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
                    if crate::interrupt::is_requested() && self.settings.grace <= clock.elapsed() {
                        process.end();
                        return Err(Failure::Interrupted);
                    }
                    let how = match clock.exceeded() {
                        None => continue,
                        Some(Limit::Cpu) => format!("no answer within {cpu} s of processor time"),
                        Some(Limit::Wall) => format!("no answer within {wall} s"),
                    };
                    process.end();
                    return Ok(Reply::Hung(how, place));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Ok(Reply::Died(process.end_after(DYING), place));
                }
            }
        }
    }
}

/// Clock of a request.
struct Clock {
    worker: u32,
    start: Instant,
    /// Processor time of the worker at the first pause, from which on it counts: short requests
    /// need not read it. `None` where the system does not give it.
    before: OnceCell<Option<Duration>>,
    cpu: Duration,
    wall: Duration,
    /// Wall time before which the processor time cannot be spent.
    earliest: Duration,
}

impl Clock {
    fn start(worker: u32, cpu_seconds: u64, wall_seconds: u64) -> Clock {
        let [cpu, wall] = [cpu_seconds, wall_seconds].map(Duration::from_secs);
        let cores = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
        let earliest = cpu / cores;
        Clock { worker, start: Instant::now(), before: OnceCell::new(), cpu, wall, earliest }
    }

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// Returns the limit that the worker has exceeded. Where there is no processor time, wall time
    /// counts instead.
    fn exceeded(&self) -> Option<Limit> {
        let before = *self.before.get_or_init(|| cpu::of_tree(self.worker));
        let elapsed = self.elapsed();
        if elapsed < self.earliest.min(self.wall) {
            return None;
        }
        let now = before.and_then(|before| Some((before, cpu::of_tree(self.worker)?)));
        let taken = now.map_or(elapsed, |(before, now)| now.saturating_sub(before));
        match (taken >= self.cpu, elapsed >= self.wall) {
            (true, _) => Some(Limit::Cpu),
            (_, true) => Some(Limit::Wall),
            _ => None,
        }
    }
}

/// Returns whether the death of a worker that looked for the stage at fault is no fault of that
/// stage: another process has ended it; or memory ran out, of which the program did not die.
fn is_no_fault(how: &str, kind: Kind) -> bool {
    how.starts_with(FROM_OUTSIDE) || kind != Kind::Crash && how.contains("signal: 9")
}

/// Parses an answer; a line that is not an answer is an internal error.
fn parsed<T>(line: &str, parse: fn(&str) -> Option<T>) -> Result<T, Failure> {
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
        let read = move || {
            for line in lines.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        };
        let mut process = Process { child, requests, answers, history: Vec::new(), memory_kills };
        match std::thread::Builder::new().spawn(read) {
            Ok(_) => Ok(process),
            Err(error) => {
                process.end();
                Err(failed(error))
            }
        }
    }

    /// Ends the process with all processes that it started. Returns a description of its end.
    fn end(&mut self) -> String {
        self.end_after(Duration::ZERO)
    }

    /// As [`Process::end`], for a process whose output has ended: it gets a moment to die by
    /// itself.
    fn end_after(&mut self, patience: Duration) -> String {
        let start = Instant::now();
        let mut had_ended = cpu::has_ended(&mut self.child);
        while !had_ended && start.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(5));
            had_ended = cpu::has_ended(&mut self.child);
        }
        // It has not been reaped: its number, which is that of its group, is not reused.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_that_hung_is_pending_until_its_programs_have_run_alone() {
        let after = |mut results: Results, done| {
            results.add_hang(&[5, 6, 7], done);
            (results.pending, results.slow)
        };
        // One of the programs had no answer of a peer.
        let late =
            || Results { tally: Tally { timeouts: 1, ..Tally::default() }, ..Results::default() };
        assert_eq!(after(late(), 1), (1, vec![]));
        assert_eq!(after(late(), 3), (0, vec!["5-7".to_string()]));
        assert_eq!(after(Results { hangs: 1, ..late() }, 1), (0, vec![]));
        let slow = || vec!["6".to_string()];
        assert_eq!(after(Results { slow: slow(), ..late() }, 3), (0, slow()));
    }

    #[test]
    fn deaths_in_the_oracle_are_those_of_no_backend() {
        let client = Client::new(Settings {
            seed: 0,
            backends: vec!["torch".to_string(), "c/opts:4".to_string()],
            lanes: Vec::new(),
            timeout_seconds: 1,
            wall_seconds: None,
            grace: Duration::ZERO,
        });
        for (place, backend) in [
            (Some("oracle"), "oracle"),
            (Some("c/opts"), "c/opts"),
            (Some("interp"), "torch,c/opts"),
            (None, "torch,c/opts"),
        ] {
            let at = place.map(|name| Place::Backend(name.to_string()));
            let (_, failure) = client.loss(Reply::Died(String::new(), at));
            assert_eq!(failure.backend, backend, "{place:?}");
        }
    }

    #[test]
    fn deaths_from_outside_blame_no_stage() {
        let outside = format!("{FROM_OUTSIDE}: signal: 9 (SIGKILL)");
        let memory = "the process ended with signal: 9 (SIGKILL)";
        let abort = "the process ended with signal: 6 (SIGABRT)";
        for (how, kind, is_expected) in [
            (outside.as_str(), Kind::Crash, true),
            (outside.as_str(), Kind::Mismatch, true),
            (memory, Kind::Mismatch, true),
            (memory, Kind::Crash, false),
            (abort, Kind::Mismatch, false),
            (abort, Kind::Crash, false),
        ] {
            assert_eq!(is_no_fault(how, kind), is_expected, "{how} {kind:?}");
        }
    }
}
