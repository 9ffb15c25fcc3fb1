//! The process of a peer: lines to its standard input, lines from its standard output.
//!
//! Nothing that it does holds up the caller for longer than an answer may take: it may not read,
//! write without end, close its output, or leave its output to a child and die.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Outcome;

/// Seconds without an answer after which a peer is ended. What it computes with takes long to load
/// or compiles; a loop that never ends is found earlier by the CPU time of the worker.
const ANSWER_SECONDS: u64 = 60;

/// Memory that a peer may have, in KiB.
const MEMORY_KIB: u64 = 8 << 20;

/// Bytes that an answer may have.
const ANSWER_BYTES: u64 = 1 << 28;

/// Bytes of a line of standard error that are read at once; the rest is the next line.
const ERROR_BYTES: u64 = 1 << 12;

/// Lines of standard error that are kept for messages.
const KEPT_LINES: usize = 8;

/// Characters of a peer's text that messages show.
const SHOWN_CHARS: usize = 300;

/// Time between two looks at whether the peer lives and an end was requested.
const PAUSE: Duration = Duration::from_millis(100);

/// Time in which the last line of a dead peer is read.
const LAST_LINE: Duration = Duration::from_secs(1);

static IS_CANCELLED: AtomicBool = AtomicBool::new(false);

/// Makes every wait for an answer end, now and from now on.
pub fn cancel_peers() {
    IS_CANCELLED.store(true, Ordering::SeqCst);
}

/// A running peer.
pub(super) struct Process {
    child: Child,
    /// Taken by a thread that writes, since the peer may not read.
    requests: Sender<String>,
    lines: Receiver<Result<String, String>>,
    errors: Arc<Mutex<VecDeque<String>>>,
    /// The requests until now. Each one has a number, which its answer may repeat.
    asked: u64,
}

impl Process {
    /// # Errors
    /// The program cannot be started.
    pub(super) fn start(command: &[String]) -> Result<Process, String> {
        // A shell sets the limit, which the standard library cannot.
        let limit = format!("ulimit -d {MEMORY_KIB}; exec \"$@\"");
        let mut words: Vec<&str> = command.iter().map(String::as_str).collect();
        if cfg!(unix) {
            words.splice(0..0, ["sh", "-c", limit.as_str(), "sh"]);
        }
        let mut started = Command::new(words[0]);
        started.args(&words[1..]);
        started.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let failed = |error: std::io::Error| format!("{} cannot be started: {error}", words[0]);
        let mut child = started.spawn().map_err(failed)?;
        let missing = || "a pipe is missing".to_string();
        let stdin = child.stdin.take().ok_or_else(missing)?;
        let stdout = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        let stderr = BufReader::new(child.stderr.take().ok_or_else(missing)?);
        let errors = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&errors);
        std::thread::spawn(move || keep_last_lines(stderr, &kept));
        let (requests, lines) = (writer(stdin), reader(stdout));
        Ok(Process { child, requests, lines, errors, asked: 0 })
    }

    /// The answer to a request. Once an end is requested, a failure says nothing about the peer,
    /// which the same signal may have reached.
    pub(super) fn ask(&mut self, request: Value) -> Result<Value, Outcome> {
        self.exchange(request).map_err(|outcome| match IS_CANCELLED.load(Ordering::SeqCst) {
            true => Outcome::Environment("interrupted".to_string()),
            false => outcome,
        })
    }

    /// Sends a line and waits for the next one. Only the first line may be there before it is asked
    /// for: whether it is depends on which of both processes is faster. A line that comes too late
    /// to be seen there is taken for the next answer, unless it has a number.
    fn exchange(&mut self, mut request: Value) -> Result<Value, Outcome> {
        let number = json!(self.asked);
        self.asked += 1;
        if number != 0
            && let Ok(line) = self.lines.try_recv()
        {
            let line = line.unwrap_or_else(|problem| problem);
            return Err(Outcome::Crash(format!("a line that was not asked for: {}", cut(&line))));
        }
        request["id"] = number.clone();
        // A peer that has died is noticed at its answer.
        let _ = self.requests.send(format!("{request}\n"));
        let value = self.next_line()?.and_then(|line| {
            let object = serde_json::from_str(&line).ok().filter(Value::is_object);
            let object = object
                .ok_or_else(|| format!("an answer that is no JSON object: {}", cut(&line)))?;
            match object.get("id") {
                Some(id) if *id != number => {
                    Err(format!("the answer to request {id} in place of {number}: {}", cut(&line)))
                }
                _ => Ok(object),
            }
        });
        value.map_err(Outcome::Crash)
    }

    /// Waits for a line. The inner error is what stands in place of one.
    fn next_line(&mut self) -> Result<Result<String, String>, Outcome> {
        let start = Instant::now();
        loop {
            match self.lines.recv_timeout(PAUSE) {
                Ok(line) => return Ok(line),
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(Outcome::Crash(self.last_words()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            if IS_CANCELLED.load(Ordering::SeqCst) {
                return Err(Outcome::Environment("interrupted".to_string()));
            }
            // A child of a dead peer may hold its output open.
            if !matches!(self.child.try_wait(), Ok(None)) {
                let line = self.lines.recv_timeout(LAST_LINE);
                return line.map_err(|_| Outcome::Crash(self.last_words()));
            }
            if Duration::from_secs(ANSWER_SECONDS) <= start.elapsed() {
                return Err(Outcome::Timeout(ANSWER_SECONDS));
            }
        }
    }

    /// Describes the end of the process, with its last line of standard error.
    fn last_words(&mut self) -> String {
        // It has closed its output, and most likely ends.
        let mut ended = None;
        for _ in 0..100 {
            ended = self.child.try_wait().ok().flatten();
            if ended.is_some() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let how = match ended {
            Some(status) => format!("it ended ({status})"),
            None => "it closed its standard output".to_string(),
        };
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The thread that reads standard error ends after the process.
        std::thread::sleep(Duration::from_millis(20));
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let last = errors.iter().rev().find(|line| !line.is_empty());
        format!("{how}{}", last.map_or(String::new(), |line| format!(": {line}")))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes the lines that are sent, until the process or its owner ends.
fn writer(mut stdin: ChildStdin) -> Sender<String> {
    let (sender, requests) = channel::<String>();
    std::thread::spawn(move || {
        for line in requests {
            if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
                return;
            }
        }
    });
    sender
}

/// Reads lines, one before it is asked for: a peer that writes without end waits.
fn reader(mut stdout: impl BufRead + Send + 'static) -> Receiver<Result<String, String>> {
    let (sender, lines) = sync_channel(1);
    std::thread::spawn(move || {
        loop {
            let mut line = Vec::new();
            let read = stdout.by_ref().take(ANSWER_BYTES).read_until(b'\n', &mut line);
            let answer = match read {
                Ok(0) | Err(_) => return,
                Ok(_) if line.last() != Some(&b'\n') => Err(format!(
                    "an answer that does not end: {}",
                    cut(&String::from_utf8_lossy(&line[..line.len().min(4 * SHOWN_CHARS)]))
                )),
                Ok(_) => String::from_utf8(line).map_err(|_| "an answer that is no UTF-8".into()),
            };
            if sender.send(answer).is_err() {
                return;
            }
        }
    });
    lines
}

/// Keeps the last lines that a process writes, the beginning of each.
fn keep_last_lines(mut stderr: impl BufRead, kept: &Mutex<VecDeque<String>>) {
    loop {
        let mut line = Vec::new();
        match stderr.by_ref().take(ERROR_BYTES).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.push_back(cut(&String::from_utf8_lossy(&line)));
        if kept.len() > KEPT_LINES {
            kept.pop_front();
        }
    }
}

/// The start of a text in one line, for messages.
pub(super) fn cut(text: &str) -> String {
    let line = text.trim().replace(['\n', '\r'], " ");
    let start: String = line.chars().take(SHOWN_CHARS).collect();
    if start.len() < line.len() { format!("{start}...") } else { start }
}
