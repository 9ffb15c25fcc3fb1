//! Findings of a run: minimises failures, recognises duplicates, writes the files of each.
//!
//! A failure is first written as it is, to the folder `raw`, and removed from there once it is
//! saved in a smaller form: whatever ends this process, nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gradiff_check::{Blame, Failure as CheckFailure, Finding, Kind};
use gradiff_corpus::{Case, DType, Program, Statement};

use crate::Failure;
use crate::known::{self, Failed, Known};
use crate::out::{clean, errln};
use crate::pool::{Client, Death, FROM_OUTSIDE, FailedProgram, Settings};
use crate::progress::Progress;
use crate::sequence::{EXTENSION, Sequence};
use crate::whole::write_whole;

/// Number of runs that a minimisation may take, and the time in a hunt, whose other failures wait.
const BUDGET: usize = 600;
const MINIMISE_TIME: Duration = Duration::from_secs(120);
/// The same for a program that kills or hangs its worker at each run.
const BUDGET_FATAL: usize = 20;
/// The same for a program that ends the process of a peer.
const BUDGET_PEER_DEATH: usize = 60;
/// The same for a program on which a peer gives no answer in time, which takes a minute each time.
const BUDGET_PEER_TIMEOUT: usize = 4;

/// Seconds for the replays that reproduce and minimise the death of a worker.
const SEQUENCE_SECONDS: u64 = 60;

/// Largest number of raw files kept for programs that fail only after other programs.
const ORDER_DEPENDENT_MAX: u64 = 100;

/// Folder to which threads write the failures that they see, before anyone examines them.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    folder: PathBuf,
}

impl Raw {
    /// The folder `raw` in the folder of findings.
    pub(crate) fn of(findings: &Path) -> Raw {
        Raw { folder: findings.join("raw") }
    }

    /// Writes a failing program as it was generated.
    pub(crate) fn program(
        &self,
        program: &Program,
        failure: &CheckFailure,
        origin: &str,
    ) -> Option<PathBuf> {
        let (program, failure, origin) = (program.clone(), failure.clone(), origin.to_string());
        let finding = Finding { program, failure, blame: None, origin };
        self.write(&format!("{}.case", finding.stem()), &finding.case_text())
    }

    /// Writes the programs that a worker had run when it died.
    pub(crate) fn death(&self, death: &Death) -> Option<PathBuf> {
        let text = sequence_text(&death.failure, "not replayed yet", &death.sequence);
        self.write(&sequence_name(&death.failure, &death.sequence), &text)
    }

    /// Removes the file of a failure that is saved in a smaller form.
    pub(crate) fn remove(path: &Path) {
        // A file that cannot be removed is only superfluous.
        let _ = std::fs::remove_file(path);
    }

    fn write(&self, name: &str, text: &str) -> Option<PathBuf> {
        let path = self.folder.join(name);
        let written = std::fs::create_dir_all(&self.folder).and_then(|()| write_whole(&path, text));
        match written {
            Ok(()) => Some(path),
            Err(error) => {
                errln!("gradiff: {} cannot be written: {error}; the case is:", path.display());
                errln!("{text}");
                None
            }
        }
    }
}

fn sequence_text(failure: &CheckFailure, fate: &str, sequence: &Sequence) -> String {
    let CheckFailure { backend, kind, detail } = failure;
    let line = format!("{} on {backend}: {detail}; {fate}", kind.name()).replace(['\n', '\r'], " ");
    format!("# {}\n# gradiff replay runs this file again\n{sequence}", clean(&line))
}

fn sequence_name(failure: &CheckFailure, sequence: &Sequence) -> String {
    let CheckFailure { backend, kind, .. } = failure;
    let stem = gradiff_check::stem(&format!("{} on {backend}\n{sequence}", kind.name()));
    format!("{}.{EXTENSION}", stem.replace("fuzz-", "death-"))
}

/// The findings of one run.
pub(crate) struct Findings {
    folder: PathBuf,
    settings: Settings,
    /// A worker for each backend that failed: the others need not run again.
    clients: BTreeMap<String, Client>,
    records: Vec<Record>,
    known: Vec<Known>,
    /// The versions of the frameworks among the backends, where there are known failures.
    versions: BTreeMap<String, String>,
    /// The first program that fails only after other programs, by backend and kind of failure.
    order_dependent: BTreeMap<(String, Kind), Record>,
    slow: Vec<String>,
    not_reproduced: u64,
}

/// One finding, minimised.
pub(crate) struct Record {
    /// Equal for findings that count as the same: the failure's kind, the peer, the stage at fault
    /// and the ops.
    signature: String,
    /// The error of a peer, which most likely has one cause, whatever the ops.
    error: Option<String>,
    /// The contents of its file.
    pub(crate) form: Form,
    /// The file's path, if it could be written.
    pub(crate) path: Option<PathBuf>,
    /// The files of further ones that count as the same.
    pub(crate) further: Vec<PathBuf>,
    /// Number of programs that led to it.
    pub(crate) count: u64,
}

impl Record {
    /// Starts the count of a finding.
    fn new(signature: String, error: Option<String>, form: Form, path: Option<PathBuf>) -> Record {
        Record { signature, error, form, path, further: Vec::new(), count: 1 }
    }
}

/// Contents of a finding.
pub(crate) enum Form {
    /// A program that fails.
    Program(Box<Finding>),
    /// Programs that a worker ran before it died, and a description of its death.
    Sequence(Sequence, String),
}

impl Record {
    /// Describes in one line what happens and where.
    pub(crate) fn description(&self) -> String {
        match &self.form {
            Form::Program(finding) => clean(&finding.description()),
            Form::Sequence(_, description) => description.clone(),
        }
    }
}

/// Creates the folder of findings if it is missing.
///
/// # Errors
/// It cannot be created.
pub(crate) fn create(folder: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(folder).map_err(|error| {
        let folder = folder.display();
        Failure::Usage(format!(
            "findings cannot be written to {folder}: {error}; choose a folder with --findings"
        ))
    })
}

/// Reads the known failures of these files, and of those in folders.
///
/// # Errors
/// A file that cannot be read, or is not what a hunt writes.
pub(crate) fn known(paths: &[PathBuf]) -> Result<Vec<Known>, Failure> {
    let mut known = Vec::new();
    for path in crate::case::cases(paths, true)? {
        let file = crate::case::read(&path)?;
        // Hunts meet no other failures.
        let Case::Program(program) = &file.case else { continue };
        let Some((kind, backend)) = known::headline(&file) else {
            return Err(Failure::Usage(format!(
                "{}: the first line of a known failure begins as in `# mismatch on torch`",
                path.display()
            )));
        };
        known::check_backends(&path, backend)?;
        let blamed = file.description.first().and_then(|line| Finding::blamed(line));
        let signature = signature(program, kind, blamed, backend);
        known.push(Known::new(path, &file, signature, kind)?);
    }
    Ok(known)
}

impl Findings {
    /// Starts without findings, apart from those that are known; they go to `folder`. `settings`
    /// are those of the run. Frameworks are asked for their versions if failures are known.
    pub(crate) fn new(folder: &Path, settings: &Settings, known: Vec<Known>) -> Findings {
        let asked = settings.backends.iter().filter(|_| !known.is_empty());
        let version = |word: &String| {
            Some((gradiff_check::name_of(word).to_string(), gradiff_check::version_of(word)?))
        };
        let versions = asked.filter_map(version).collect();
        // Those of this process would stay idle.
        gradiff_check::close_peers();
        Findings {
            folder: folder.to_path_buf(),
            settings: settings.clone(),
            clients: BTreeMap::new(),
            records: Vec::new(),
            known,
            versions,
            order_dependent: BTreeMap::new(),
            slow: Vec::new(),
            not_reproduced: 0,
        }
    }

    /// Returns the known failures.
    pub(crate) fn known(&self) -> &[Known] {
        &self.known
    }

    /// Returns the distinct findings so far.
    pub(crate) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns the numbers of programs that hung when they were run, but not when they were
    /// examined.
    pub(crate) fn slow(&self) -> &[String] {
        &self.slow
    }

    /// Returns the number of workers whose deaths did not recur when their programs were run again.
    pub(crate) fn not_reproduced(&self) -> u64 {
        self.not_reproduced
    }

    /// Minimises a failing program, and saves it unless the finding is known. `raw` is the file
    /// that holds the program as generated.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn add(
        &mut self,
        program: &Program,
        failed: &FailedProgram,
        origin: &str,
        raw: Option<PathBuf>,
        progress: &mut Progress,
    ) -> Result<(), Failure> {
        let original = &failed.failure;
        let minimised = self.minimised(program, original, progress);
        // It is not even known who killed the worker.
        let is_open = matches!(minimised, Err(Failure::Interrupted | Failure::Environment(_)));
        if let (Some(death), true) = (&failed.death, is_open) {
            return self.add_death(death, raw);
        }
        let origin = origin.to_string();
        let is_saved = match minimised {
            Ok(Some(found)) => self.save_with_rest(program, found, &origin, progress)?,
            Ok(None) => match (&failed.death, original.kind) {
                (_, Kind::Timeout) => {
                    self.slow.push(failed.index.to_string());
                    true
                }
                // The program alone does not fail: the programs before it have a part in it.
                (Some(death), _) => return self.add_death(death, raw),
                _ => self.save_order_dependent(program, failed, origin),
            },
            // There is no time to examine it.
            Err(Failure::Interrupted) => {
                let (program, failure) = (program.clone(), original.clone());
                self.save(Finding { program, failure, blame: None, origin }, false)
            }
            Err(failure) => return Err(failure),
        };
        match raw {
            Some(raw) if is_saved => Raw::remove(&raw),
            _ => {}
        }
        Ok(())
    }

    /// Returns the smallest program that fails as this one does, and the blame; `None` if the
    /// program does not fail again.
    ///
    /// # Errors
    /// The machine prevents a run; an end was requested.
    fn minimised(
        &mut self,
        program: &Program,
        original: &CheckFailure,
        progress: &mut Progress,
    ) -> Result<Option<(Smallest, Option<Blame>)>, Failure> {
        let mut backends = self.backends_of(original);
        let mut repeated = self.rerun(program, original, &backends)?;
        // One backend may die of damage done by another: then all of them run.
        if repeated.is_none() && original.kind == Kind::Crash {
            backends = self.settings.backends.join(",");
            repeated = self.rerun(program, original, &backends)?;
        }
        let Some(now) = repeated else { return Ok(None) };
        if is_death(&now) && self.rerun(program, original, &backends)?.is_none() {
            return Ok(None);
        }
        let client = self.client(&backends);
        let small = minimise(program, &now, client, Some(MINIMISE_TIME), progress)?;
        let Some(small) = small else { return Ok(None) };
        let blame = match gradiff_check::is_peer(&small.failure.backend) {
            true => None,
            false => match client.blame(&small.program, &small.failure) {
                Err(Failure::Interrupted) => None,
                blame => blame?,
            },
        };
        Ok(Some((small, blame)))
    }

    /// The backends that run a program to see how it fails.
    fn backends_of(&self, failure: &CheckFailure) -> String {
        match failure.backend.as_str() {
            // The oracle fails whatever the backends are.
            "oracle" => self.settings.backends.join(","),
            backend => backend.to_string(),
        }
    }

    /// Saves the smallest form of a failing program; if that is known, what the program still has
    /// without the operations of that form, if it fails. Returns whether the raw file is no longer
    /// needed.
    ///
    /// # Errors
    /// The machine prevents a run.
    fn save_with_rest(
        &mut self,
        program: &Program,
        found: (Smallest, Option<Blame>),
        origin: &str,
        progress: &mut Progress,
    ) -> Result<bool, Failure> {
        let mut program = program.clone();
        let (mut small, mut blame) = found;
        let finding_of = |program, failure, blame| {
            let origin = origin.to_string();
            Finding { program, failure, blame, origin }
        };
        loop {
            let finding = finding_of(small.program, small.failure, blame);
            if !self.count_known(&finding, small.is_minimal) {
                return Ok(self.save_new(finding));
            }
            let rest = match self.rest(&program, &finding) {
                Err(Failure::Interrupted) => return Ok(false),
                rest => rest?,
            };
            let Some((rest, failure)) = rest else { return Ok(true) };
            (small, blame) = match self.minimised(&rest, &failure, progress) {
                Ok(Some(found)) => found,
                // The file of the program stays: this has failed, and does not fail again.
                Ok(None) => return Ok(false),
                Err(Failure::Interrupted) => {
                    return Ok(self.save(finding_of(rest, failure, None), false));
                }
                Err(failure) => return Err(failure),
            };
            program = rest;
        }
    }

    /// Returns a program with values in place of the operations of a finding, and how it fails;
    /// `None` if it does not, or has no other operations.
    ///
    /// # Errors
    /// No worker can be started.
    fn rest(
        &mut self,
        program: &Program,
        finding: &Finding,
    ) -> Result<Option<(Program, CheckFailure)>, Failure> {
        let failure = &finding.failure;
        // A run of it takes long, and there is no answer to what it computes beside.
        if failure.kind == Kind::Timeout {
            return Ok(None);
        }
        let ops = finding.program.statements.iter().map(gradiff_corpus::name);
        let ops: BTreeSet<&str> = ops.filter(|op| !known::is_leaf(op)).collect();
        let is_replaced = |statement: &Statement| ops.contains(gradiff_corpus::name(statement));
        let Some(rest) = gradiff_check::with_values(program, &is_replaced) else { return Ok(None) };
        if rest.statements.iter().all(|left| known::is_leaf(gradiff_corpus::name(left))) {
            return Ok(None);
        }
        let backends = self.backends_of(failure);
        let failures = self.client(&backends).judge(&rest)?.1;
        let is_of_machine =
            |found: &&CheckFailure| found.kind == Kind::Environment || is_from_outside(found);
        if let Some(CheckFailure { backend, detail, .. }) = failures.iter().find(is_of_machine) {
            return Err(Failure::Environment(format!("{backend}: {detail}")));
        }
        // Of several backends, it may be known of which it is without the operations.
        let is_there = |found: &CheckFailure| {
            found.backend == failure.backend
                || failure.backend.split(',').any(|name| name == found.backend)
        };
        Ok(failures.into_iter().find(is_there).map(|failure| (rest, failure)))
    }

    /// The signature of a finding.
    fn signature(finding: &Finding) -> String {
        let blamed = finding.blame.as_ref().map(|blame| {
            let rule = blame.rule.as_ref().map(|culprit| culprit.rule.clone());
            (blame.stage.name(), rule)
        });
        let CheckFailure { kind, backend, .. } = &finding.failure;
        signature(&finding.program, kind.name(), blamed, backend)
    }

    /// Counts a finding if it is known. Returns whether it is.
    fn count_known(&mut self, finding: &Finding, is_minimal: bool) -> bool {
        let signature = &Findings::signature(finding);
        let CheckFailure { kind, backend, .. } = &finding.failure;
        let (kind, case) = (kind.name(), &Case::Program(finding.program.clone()));
        let version = backend.split(',').find_map(|name| self.versions.get(name));
        let version = version.map(String::as_str);
        let failed = Failed { signature, kind, case, is_minimal, backend, version };
        known::count(&mut self.known, &failed)
    }

    /// Writes a finding unless it is known. Returns whether its raw file is no longer needed.
    fn save(&mut self, finding: Finding, is_minimal: bool) -> bool {
        self.count_known(&finding, is_minimal) || self.save_new(finding)
    }

    /// Writes a finding unless there is one like it. Returns whether its raw file is no longer
    /// needed.
    fn save_new(&mut self, finding: Finding) -> bool {
        let signature = Findings::signature(&finding);
        let error = error_of_peer(&finding.failure);
        let is_same = |known: &&mut Record| {
            known.signature == signature || (error.is_some() && known.error == error)
        };
        if let Some(known) = self.records.iter_mut().find(is_same) {
            known.count += 1;
            return true;
        }
        let path = self.write(&finding);
        let is_written = path.is_some();
        let form = Form::Program(Box::new(finding));
        self.records.push(Record::new(signature, error, form, path));
        is_written
    }

    /// Runs the programs of a dead worker again in a fresh one. If that one dies as well, removes
    /// the programs that its death does not need; otherwise saves all of them, as a death that was
    /// not reproduced.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn add_death(&mut self, death: &Death, raw: Option<PathBuf>) -> Result<(), Failure> {
        let start = Instant::now();
        let mut sick = None;
        let repeated = match self.dying_tail(&death.sequence, start) {
            // It is saved as it is.
            Err(Failure::Interrupted) => None,
            Err(Failure::Environment(reason)) => {
                sick = Some(reason);
                None
            }
            repeated => repeated?,
        };
        let is_reproduced = repeated.is_some();
        let (sequence, failure, fate) = match repeated {
            Some((tail, failure)) => {
                let small = tail.minimised(&mut |candidate| {
                    self.dies(candidate, start).is_ok_and(|died| died.is_some())
                });
                (small, failure, "a fresh worker dies as well".to_string())
            }
            None => {
                self.not_reproduced += 1;
                let count = death.sequence.count();
                let is_in_time = start.elapsed().as_secs() < SEQUENCE_SECONDS;
                let fate = match (sick, is_in_time && !crate::interrupt::is_requested()) {
                    (Some(reason), _) => format!("not reproduced: {reason}"),
                    (None, true) => {
                        format!("not reproduced: a fresh worker survived all {count} programs")
                    }
                    _ => format!("not reproduced in the available time, with {count} programs"),
                };
                (death.sequence.clone(), death.failure.clone(), fate)
            }
        };
        let text = sequence_text(&failure, &fate, &sequence);
        let path = self.folder.join(sequence_name(&failure, &sequence));
        let path = match write_whole(&path, &text) {
            Ok(()) => {
                raw.iter().for_each(|raw| Raw::remove(raw));
                Some(path)
            }
            // The raw file stays, or its text was printed when it could not be written.
            Err(_) => raw,
        };
        let head = text.lines().next().unwrap_or_default();
        let description = head.trim_start_matches("# ").to_string();
        // A death that was reproduced and one that was not are different findings.
        let signature = match is_reproduced {
            true => format!("death {} {}", failure.backend, failure.detail),
            false => format!("not reproduced {} {}", failure.backend, failure.detail),
        };
        if let Some(known) = self.records.iter_mut().find(|known| known.signature == signature) {
            known.count += 1;
            // Programs may end a worker in the same way for several causes.
            known.further.extend(path);
            return Ok(());
        }
        let form = Form::Sequence(sequence, description);
        self.records.push(Record::new(signature, None, form, path));
        Ok(())
    }

    /// Returns the last batches of a sequence, as few as possible, that kill a fresh worker, and
    /// the failure; `None` if none do.
    fn dying_tail(
        &self,
        sequence: &Sequence,
        start: Instant,
    ) -> Result<Option<(Sequence, CheckFailure)>, Failure> {
        let mut count = 1;
        loop {
            let tail = sequence.tail(count);
            if let Some(failure) = self.dies(&tail, start)? {
                return Ok(Some((tail, failure)));
            }
            if sequence.batches.len() <= count {
                return Ok(None);
            }
            count *= 4;
        }
    }

    /// Returns how a fresh worker dies of a sequence; `None` if it does not, or not in time.
    fn dies(&self, sequence: &Sequence, start: Instant) -> Result<Option<CheckFailure>, Failure> {
        let left = SEQUENCE_SECONDS.saturating_sub(start.elapsed().as_secs());
        if left == 0 {
            return Ok(None);
        }
        if crate::interrupt::is_requested() {
            return Err(Failure::Interrupted);
        }
        let mut client = Client::new(Settings {
            // The limit of each batch: there is no need to wait longer for a death.
            wall_seconds: Some(left),
            grace: Duration::ZERO,
            ..self.settings.clone()
        });
        let failure = client.replay(sequence)?.1;
        Ok(failure.filter(|failure| failure.kind == Kind::Crash && !is_from_outside(failure)))
    }

    /// Returns the worker with these backends, separated by commas.
    fn client(&mut self, backends: &str) -> &mut Client {
        self.clients.entry(backends.to_string()).or_insert_with(|| {
            let backends = backends.split(',').map(str::to_string).collect();
            Client::new(Settings { backends, ..self.settings.clone() })
        })
    }

    /// Runs the program alone. Returns the same failure, if it is there; of a program that hung,
    /// any failure, since it may come to a wrong end by now.
    ///
    /// # Errors
    /// The machine prevents the run: it is not known whether the program fails.
    fn rerun(
        &mut self,
        program: &Program,
        original: &CheckFailure,
        backends: &str,
    ) -> Result<Option<CheckFailure>, Failure> {
        let is_hang = original.kind == Kind::Timeout;
        // A worker that another process ends again and again is a death that is not reproduced.
        let is_sick = |failure: &CheckFailure| {
            let is_ended = is_from_outside(failure) && original.kind != Kind::Crash;
            failure.kind == Kind::Environment || is_ended
        };
        let failures = self.client(backends).judge(program)?.1;
        let is_found =
            |failure: &&CheckFailure| is_same(failure, original) || is_hang && !is_sick(failure);
        if let Some(found) = failures.iter().find(is_found) {
            return Ok(Some(found.clone()));
        }
        match failures.into_iter().find(is_sick) {
            Some(CheckFailure { backend, detail, .. }) => {
                Err(Failure::Environment(format!("{backend}: {detail}")))
            }
            None => Ok(None),
        }
    }

    /// Writes a program that fails only after the programs before it, and these programs, if it is
    /// the first such one of its backend and kind of failure. Returns whether its raw file is no
    /// longer needed.
    fn save_order_dependent(
        &mut self,
        program: &Program,
        failed: &FailedProgram,
        origin: String,
    ) -> bool {
        let original = &failed.failure;
        let key = (original.backend.clone(), original.kind);
        if let Some(known) = self.order_dependent.get_mut(&key) {
            known.count += 1;
            // The raw files of the first few stay.
            return ORDER_DEPENDENT_MAX < known.count;
        }
        let fate = "only after the programs before it";
        let detail = format!("{} ({fate}: caches, memory)", original.detail);
        let failure = CheckFailure { detail, ..original.clone() };
        let finding = Finding { program: program.clone(), failure, blame: None, origin };
        let path = self.write(&finding);
        let mut is_written = path.is_some();
        if let Some(path) = &path {
            let text = sequence_text(original, fate, &failed.sequence);
            is_written = write_whole(&path.with_extension(EXTENSION), &text).is_ok();
        }
        let form = Form::Program(Box::new(finding));
        let record = Record::new(String::new(), None, form, path);
        self.order_dependent.insert(key, record);
        is_written
    }

    /// Ends the run: programs that fail only after others count as well, and no thread writes raw
    /// files any more.
    pub(crate) fn close(&mut self) {
        self.records.extend(std::mem::take(&mut self.order_dependent).into_values());
        // This succeeds only if the folder is empty.
        let _ = std::fs::remove_dir(Raw::of(&self.folder).folder);
    }

    /// Writes the files of a finding. If that fails, the corpus file
    /// goes to standard error, so that nothing is lost.
    fn write(&self, finding: &Finding) -> Option<PathBuf> {
        let text = clean(&finding.case_text());
        let stem = finding.stem();
        for (ending, content) in gradiff_check::files(finding) {
            let path = self.folder.join(format!("{stem}.{ending}"));
            if let Err(error) = write_whole(&path, &clean(&content)) {
                errln!("gradiff: {} cannot be written: {error}; the case is:", path.display());
                errln!("{text}");
                return None;
            }
        }
        Some(self.folder.join(format!("{stem}.case")))
    }
}

/// Returns whether a failure has the same kind as the one that was found, on the same backend, with
/// a message that begins alike, and no other process caused it. A worker may die of damage while
/// another backend runs.
fn is_same(failure: &CheckFailure, original: &CheckFailure) -> bool {
    let is_of_worker =
        |failure: &CheckFailure| is_death(failure) && !gradiff_check::is_peer(&failure.backend);
    let is_there =
        failure.backend == original.backend || (is_of_worker(failure) && is_of_worker(original));
    let is_alike = failure.kind == original.kind && head(failure) == head(original);
    is_alike && is_there && !is_from_outside(failure)
}

/// Number of words by which messages are told apart: those that follow tell of the program.
const HEAD_WORDS: usize = 4;

/// Returns the first words of the message of a panic, and of a peer that refuses a program the name
/// of the exception; other messages are not told apart. Numbers, dtypes, operations and code are
/// left out: they change as a program shrinks.
fn head(failure: &CheckFailure) -> Vec<&str> {
    let text = match failure.kind {
        Kind::Refused if gradiff_check::is_peer(&failure.backend) => {
            failure.detail.split(": ").next().unwrap_or_default()
        }
        Kind::Crash if !is_death(failure) => failure.detail.as_str(),
        _ => return Vec::new(),
    };
    let is_name = |word: &str| {
        DType::from_name(word).is_some() || gradiff_corpus::names().any(|name| name == word)
    };
    let words = text.split_whitespace().map(|word| word.trim_matches([',', ':', ';', '.']));
    let is_plain = |word: &&str| word.chars().all(char::is_alphabetic) && !is_name(word);
    words.filter(|word| !word.is_empty()).filter(is_plain).take(HEAD_WORDS).collect()
}

/// Returns whether another process has ended the worker.
fn is_from_outside(failure: &CheckFailure) -> bool {
    failure.detail.starts_with(FROM_OUTSIDE)
}

/// Returns whether the process died, which may be by chance, unlike a panic.
fn is_death(failure: &CheckFailure) -> bool {
    failure.kind == Kind::Crash && !failure.detail.starts_with("panic")
}

/// The smallest program found that fails as another one does.
pub(crate) struct Smallest {
    pub(crate) program: Program,
    pub(crate) failure: CheckFailure,
    /// False if the search was cut off: for lack of time or runs, or by the machine.
    pub(crate) is_minimal: bool,
}

/// Returns the smallest program found that fails on the same backend in the same way; `time` limits
/// the search. `None` if a worker dies of it by chance.
///
/// # Errors
/// No worker can be started.
pub(crate) fn minimise(
    program: &Program,
    original: &CheckFailure,
    client: &mut Client,
    time: Option<Duration>,
    progress: &mut Progress,
) -> Result<Option<Smallest>, Failure> {
    let start = Instant::now();
    let (mut runs, mut statements) = (0, program.statements.len());
    let budget = match (original.kind, gradiff_check::is_peer(&original.backend)) {
        (Kind::Timeout, true) => BUDGET_PEER_TIMEOUT,
        (Kind::Timeout, false) => BUDGET_FATAL,
        _ if !is_death(original) => BUDGET,
        (_, true) => BUDGET_PEER_DEATH,
        (_, false) => BUDGET_FATAL,
    };
    let (mut problem, mut is_cut) = (None, false);
    let is_late = || {
        let is_late = time.is_some_and(|time| time <= start.elapsed());
        is_late || crate::interrupt::is_requested()
    };
    let small = gradiff_check::reduce(program, budget, &is_late, &mut |candidate| {
        if problem.is_some() {
            return false;
        }
        runs += 1;
        progress.minimising(&original.backend, runs, statements);
        match client.judge(candidate) {
            Ok((_, failures)) => {
                let is_failing = failures.iter().any(|failure| is_same(failure, original));
                if is_failing {
                    statements = candidate.statements.len();
                }
                is_cut |= failures.iter().any(|failure| failure.kind == Kind::Environment);
                is_failing
            }
            // The smallest program so far is the result.
            Err(Failure::Interrupted) => false,
            Err(failure) => {
                problem = Some(failure);
                false
            }
        }
    });
    problem.map_or(Ok(()), Err)?;
    let is_minimal = !is_cut && runs < budget && !is_late();
    let found = |program, failure| Some(Smallest { program, failure, is_minimal });
    let failures = match small == *program {
        true => return Ok(found(small, original.clone())),
        false => match client.judge(&small) {
            Err(Failure::Interrupted) => return Ok(found(small, original.clone())),
            judged => judged?.1,
        },
    };
    Ok(match failures.into_iter().find(|failure| is_same(failure, original)) {
        Some(failure) => found(small, failure),
        None if is_death(original) => None,
        None => {
            let (program, failure) = (program.clone(), original.clone());
            Some(Smallest { program, failure, is_minimal: false })
        }
    })
}

/// Returns a peer and the exception with which it refused a program, its message without numbers;
/// `None` if it has no message, or this is another failure.
fn error_of_peer(failure: &CheckFailure) -> Option<String> {
    let (exception, message) = failure.detail.split_once(": ")?;
    let peer = known::peer_of(&failure.backend)?;
    let is_exception = exception.ends_with("Error") || exception.ends_with("Exception");
    if failure.kind != Kind::Refused || !is_exception {
        return None;
    }
    let text = message.replace(|c: char| c.is_ascii_digit(), "");
    message.contains(' ').then(|| format!("{peer}: {exception}: {text}"))
}

/// Returns a text that is equal for findings that are most likely one bug: kind, peer whatever its
/// variant, rule at fault, or stage at fault and the ops that compute, in any order. `blamed` has
/// the stage and the rule. Where no stage is known, as of peers, an op counts with its dtype: all
/// integers of 32 and 64 bits for one, and f32 and f64.
fn signature(
    program: &Program,
    kind: &str,
    blamed: Option<(&str, Option<String>)>,
    backend: &str,
) -> String {
    // Of a worker that dies it may be known only that it is one of several.
    let frameworks: BTreeSet<Option<String>> =
        backend.split(',').map(known::framework_of).collect();
    let names = frameworks.iter().map(|name| name.as_deref().unwrap_or("the engine"));
    let kind = match frameworks.iter().all(Option::is_none) {
        true => kind.to_string(),
        false => format!("{kind} on {}", Vec::from_iter(names).join(",")),
    };
    if let Some((_, Some(rule))) = &blamed {
        return format!("{kind} {rule}");
    }
    let types = program.typing().unwrap_or_default();
    let dtype = |number: usize| match types.get(number).map(|of| of.dtype) {
        Some(DType::F32 | DType::F64) => "float",
        Some(dtype) if dtype.is_int() && dtype.size_bytes() >= 4 => "int",
        dtype => dtype.map_or("", DType::name),
    };
    let word = |(number, statement): (usize, &Statement)| {
        let line = statement.to_string();
        let op = line.split_whitespace().next().unwrap_or_default().to_string();
        match statement {
            _ if blamed.is_some() => op,
            Statement::Cast { src, .. } => {
                format!("{op} {} {}", dtype(src.0 as usize), dtype(number))
            }
            _ => format!("{op} {}", dtype(number)),
        }
    };
    let is_leaf =
        |word: &String| matches!(word.split(' ').next(), Some("input" | "const" | "arange"));
    let words = program.statements.iter().enumerate().map(word);
    let ops: BTreeSet<String> = words.filter(|word| !is_leaf(word)).collect();
    let stage = blamed.as_ref().map_or("", |(stage, _)| *stage);
    format!("{kind} {stage} {ops:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_of_peers_and_panics_are_told_apart_by_their_first_words() {
        let failure = |kind, backend: &str, detail: &str| {
            let (backend, detail) = (backend.to_string(), detail.to_string());
            CheckFailure { backend, kind, detail }
        };
        for (kind, backend, before, after, is_expected) in [
            (Kind::Refused, "torch", "KeyError: 3", "KeyError: no axis 4", true),
            (Kind::Refused, "torch", "KeyError: 3", "CompileError: 3", false),
            (
                Kind::Refused,
                "torch",
                "output 0 is i32[1], expected i32[]",
                "output 1 is f16[2,3], expected f16[2]",
                true,
            ),
            (Kind::Refused, "torch", "no f32 in add", "no bool in sub", true),
            (Kind::Refused, "interp", "reshape [2] to [3]", "the dtype of a gather", true),
            (
                Kind::Crash,
                "interp",
                "panic: index out of bounds: the len is 3 but the index is 4",
                "panic: index out of bounds: the len is 0 but the index is 0",
                true,
            ),
            (Kind::Crash, "interp", "panic: index out of bounds", "panic: not a loop", false),
            (Kind::Crash, "c", "the process ended with signal: 6", "the process ended", true),
            (Kind::Mismatch, "interp", "element 0 of output 0 is 1", "element 3 is nan", true),
        ] {
            let (before, after) = (failure(kind, backend, before), failure(kind, backend, after));
            assert_eq!(is_same(&after, &before), is_expected, "{before:?} {after:?}");
        }
    }
}
