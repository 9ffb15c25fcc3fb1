//! Keeps findings: minimises them, knows which are the same, writes each one down three times.
//!
//! What fails is written down as it is, in the folder `raw`, before anything else is done with it,
//! and taken away when it is kept in a smaller form: whatever ends this process, nothing is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use gradiff_check::{Blame, Failure as Found, Finding, Kind};
use gradiff_corpus::{Program, Statement};

use crate::Failure;
use crate::out::{clean, errln};
use crate::pool::{Client, Death, FROM_OUTSIDE, Seen, Settings};
use crate::sequence::{EXTENSION, Sequence};
use crate::whole::write_whole;

/// How often a minimisation may ask a backend.
const BUDGET: usize = 600;
/// The same for a program that kills or hangs its worker at each ask.
const BUDGET_FATAL: usize = 20;

/// Seconds that the replay of what a worker has died of may take, smaller and smaller.
const SEQUENCE_SECONDS: u64 = 60;

/// Raw files that are kept of programs that fail in company only.
const COMPANY_MOST: u64 = 100;

/// Where failures are written before they are looked at, by the threads that see them.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    folder: PathBuf,
}

impl Raw {
    /// Below the folder of findings.
    pub(crate) fn of(findings: &Path) -> Raw {
        Raw { folder: findings.join("raw") }
    }

    /// Writes a failing program as it was generated.
    pub(crate) fn program(
        &self,
        program: &Program,
        found: &Found,
        origin: &str,
    ) -> Option<PathBuf> {
        let (program, failure, origin) = (program.clone(), found.clone(), origin.to_string());
        let finding = Finding { program, failure, blame: None, origin };
        self.write(&format!("{}.case", finding.stem()), &finding.case_text())
    }

    /// Writes what a worker had run when it died.
    pub(crate) fn death(&self, death: &Death) -> Option<PathBuf> {
        let text = sequence_text(&death.found, "not replayed yet", &death.sequence);
        self.write(&sequence_name(&death.sequence), &text)
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

fn sequence_text(found: &Found, fate: &str, sequence: &Sequence) -> String {
    let Found { backend, kind, detail } = found;
    let line = format!("{} on {backend}: {detail}; {fate}", kind.name()).replace(['\n', '\r'], " ");
    format!("# {}\n# gradiff replay runs this file again\n{sequence}", clean(&line))
}

fn sequence_name(sequence: &Sequence) -> String {
    let stem = gradiff_check::stem(&sequence.to_string());
    format!("{}.{EXTENSION}", stem.replace("fuzz-", "death-"))
}

/// The findings of one run.
pub(crate) struct Findings {
    folder: PathBuf,
    settings: Settings,
    /// A worker for each backend that failed: the others need not be asked again.
    clients: BTreeMap<String, Client>,
    kept: Vec<Kept>,
    in_company: Option<Kept>,
    slow: u64,
    not_reproduced: u64,
}

/// One finding, minimised.
pub(crate) struct Kept {
    /// Which ones are the same: the failure's kind, the guilty stage and the ops.
    signature: String,
    /// What is written down.
    pub(crate) what: Form,
    /// The file's path, if it could be written.
    pub(crate) path: Option<PathBuf>,
    /// How many programs led to it.
    pub(crate) count: u64,
}

/// What a finding consists of.
pub(crate) enum Form {
    /// A program that fails.
    Program(Box<Finding>),
    /// Programs at which a worker died, and how, in words.
    Sequence(Sequence, String),
}

impl Kept {
    /// One line: what happens where.
    pub(crate) fn story(&self) -> String {
        match &self.what {
            Form::Program(finding) => clean(&finding.story()),
            Form::Sequence(_, story) => story.clone(),
        }
    }
}

impl Findings {
    /// No findings yet, to be written to `folder`, which is made if it is not there; `settings`
    /// are those of the run.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub(crate) fn open(folder: &Path, settings: &Settings) -> Result<Findings, Failure> {
        std::fs::create_dir_all(folder).map_err(|error| {
            let folder = folder.display();
            Failure::Usage(format!(
                "findings cannot be written to {folder}: {error}; name another folder with --findings"
            ))
        })?;
        Ok(Findings {
            folder: folder.to_path_buf(),
            settings: settings.clone(),
            clients: BTreeMap::new(),
            kept: Vec::new(),
            in_company: None,
            slow: 0,
            not_reproduced: 0,
        })
    }

    /// The different findings so far.
    pub(crate) fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Programs that hung when they were found and did not when they were run alone.
    pub(crate) fn slow(&self) -> u64 {
        self.slow
    }

    /// Deaths of workers that did not come again when what they had run was run again.
    pub(crate) fn not_reproduced(&self) -> u64 {
        self.not_reproduced
    }

    /// Minimises a failing program, and keeps it unless it is one that is known. `raw` is the file
    /// that holds it as it is.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn add(
        &mut self,
        program: &Program,
        seen: &Seen,
        origin: &str,
        raw: Option<PathBuf>,
    ) -> Result<(), Failure> {
        let found = &seen.found;
        let kept = match self.minimised(program, found) {
            Ok(Some((small, now, blame))) => {
                let finding =
                    Finding { program: small, failure: now, blame, origin: origin.to_string() };
                self.keep(finding)
            }
            Ok(None) => match (&seen.death, found.kind) {
                (_, Kind::Timeout) => {
                    self.slow += 1;
                    true
                }
                // No mistake of this program alone: what came before it has a part in it.
                (Some(death), _) => return self.add_death(death, raw),
                _ => self.keep_in_company(program, found, origin),
            },
            // There is no time to find out more. Who killed the worker is not known, either.
            Err(Failure::Interrupted) => {
                if let Some(death) = &seen.death {
                    return self.add_death(death, raw);
                }
                let (program, failure) = (program.clone(), found.clone());
                self.keep(Finding { program, failure, blame: None, origin: origin.to_string() })
            }
            Err(failure) => return Err(failure),
        };
        match raw {
            Some(raw) if kept => Self::remove_raw(&raw),
            _ => {}
        }
        Ok(())
    }

    /// The smallest program that fails as this one does, how, and what is to blame; `None` if it
    /// does not fail again.
    fn minimised(
        &mut self,
        program: &Program,
        found: &Found,
    ) -> Result<Option<(Program, Found, Option<Blame>)>, Failure> {
        // What one backend spoils another may die of: then all of them are asked.
        let mut on = found.backend.clone();
        let mut again = self.again(program, found, &on)?;
        if again.is_none() && found.kind == Kind::Crash {
            on = self.settings.backends.join(",");
            again = self.again(program, found, &on)?;
        }
        let Some(now) = again else { return Ok(None) };
        if is_death(&now) && self.again(program, found, &on)?.is_none() {
            return Ok(None);
        }
        let client = self.client(&on);
        let small = minimise(program, &now, client)?;
        let failures = match client.judge(&small) {
            Err(Failure::Interrupted) => return Ok(Some((small, now, None))),
            judged => judged?.1,
        };
        let (small, now) = match failures.into_iter().find(|failure| is_same(failure, found)) {
            Some(now) => (small, now),
            None if is_death(&now) => return Ok(None),
            None => (program.clone(), now),
        };
        let blame = match client.blame(&small, &now.backend) {
            Err(Failure::Interrupted) => None,
            blame => blame?,
        };
        Ok(Some((small, now, blame)))
    }

    /// Keeps a finding unless it is known; whether nothing of it is left to be kept.
    fn keep(&mut self, finding: Finding) -> bool {
        let signature = signature(&finding.program, &finding.failure, finding.blame.as_ref());
        if let Some(known) = self.kept.iter_mut().find(|kept| kept.signature == signature) {
            known.count += 1;
            return true;
        }
        let path = self.write(&finding);
        let is_written = path.is_some();
        self.kept.push(Kept { signature, what: Form::Program(Box::new(finding)), path, count: 1 });
        is_written
    }

    /// Runs what a worker has died of once more in a fresh one. If that dies as well, the programs
    /// are left out that it does not take; else all are kept, as a death that was not reproduced.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn add_death(&mut self, death: &Death, raw: Option<PathBuf>) -> Result<(), Failure> {
        let start = Instant::now();
        let again = match self.dying_tail(&death.sequence, start) {
            // It is kept as it is.
            Err(Failure::Interrupted | Failure::Environment(_)) => None,
            again => again?,
        };
        let is_again = again.is_some();
        let (sequence, found, fate) = match again {
            Some((tail, found)) => {
                let small = tail.minimised(&mut |candidate| {
                    self.dies(candidate, start).is_ok_and(|died| died.is_some())
                });
                (small, found, "in a fresh worker as well".to_string())
            }
            None => {
                self.not_reproduced += 1;
                let count = death.sequence.count();
                let fate = format!("not reproduced: {count} programs run again, and nothing died");
                let fate = match start.elapsed().as_secs() < SEQUENCE_SECONDS {
                    true if !crate::interrupt::is_asked() => fate,
                    _ => format!("not reproduced in the time there was, of {count} programs"),
                };
                (death.sequence.clone(), death.found.clone(), fate)
            }
        };
        let text = sequence_text(&found, &fate, &sequence);
        let path = self.folder.join(sequence_name(&sequence));
        let path = match write_whole(&path, &text) {
            Ok(()) => {
                raw.iter().for_each(|raw| Self::remove_raw(raw));
                Some(path)
            }
            // The raw file stays, or was told when it could not be written.
            Err(_) => raw,
        };
        let story = text.lines().next().unwrap_or_default().trim_start_matches("# ").to_string();
        // The fate of a death that comes once is part of what it is.
        let signature = match is_again {
            true => format!("death {} {}", found.backend, found.detail),
            false => format!("not reproduced {} {}", found.backend, found.detail),
        };
        if let Some(known) = self.kept.iter_mut().find(|kept| kept.signature == signature) {
            known.count += 1;
            return Ok(());
        }
        let what = Form::Sequence(sequence, story);
        self.kept.push(Kept { signature, what, path, count: 1 });
        Ok(())
    }

    /// The last batches of a sequence, few if few will do, of which a fresh worker dies, and how.
    fn dying_tail(
        &self,
        sequence: &Sequence,
        start: Instant,
    ) -> Result<Option<(Sequence, Found)>, Failure> {
        let mut count = 1;
        loop {
            let tail = sequence.tail(count);
            if let Some(found) = self.dies(&tail, start)? {
                return Ok(Some((tail, found)));
            }
            if sequence.batches.len() <= count {
                return Ok(None);
            }
            count *= 4;
        }
    }

    /// How a fresh worker dies of a sequence; `None` if it does not, or not in time.
    fn dies(&self, sequence: &Sequence, start: Instant) -> Result<Option<Found>, Failure> {
        let left = SEQUENCE_SECONDS.saturating_sub(start.elapsed().as_secs());
        if left == 0 {
            return Ok(None);
        }
        if crate::interrupt::is_asked() {
            return Err(Failure::Interrupted);
        }
        let mut client = Client::new(Settings {
            // Of each batch, and of a death there is no need to wait for more.
            wall_seconds: Some(left),
            grace: Duration::ZERO,
            ..self.settings.clone()
        });
        let found = client.replay(sequence)?.1;
        Ok(found.filter(|found| found.kind == Kind::Crash && !is_from_outside(found)))
    }

    /// The worker that has these backends, separated by commas.
    fn client(&mut self, backends: &str) -> &mut Client {
        self.clients.entry(backends.to_string()).or_insert_with(|| {
            let backends = backends.split(',').map(str::to_string).collect();
            Client::new(Settings { backends, ..self.settings.clone() })
        })
    }

    /// The failure of the same kind when the program is run alone.
    fn again(
        &mut self,
        program: &Program,
        found: &Found,
        backends: &str,
    ) -> Result<Option<Found>, Failure> {
        let failures = self.client(backends).judge(program)?.1;
        Ok(failures.into_iter().find(|failure| is_same(failure, found)))
    }

    /// Keeps the first program that fails only in the company of those before it, for want of
    /// one that fails alone; whether this one is it.
    fn keep_in_company(&mut self, program: &Program, found: &Found, origin: &str) -> bool {
        if let Some(known) = &mut self.in_company {
            known.count += 1;
            // Their raw files are kept, of not too many.
            return COMPANY_MOST < known.count;
        }
        let detail =
            format!("{} (only after the programs before it: caches, memory)", found.detail);
        let failure = Found { detail, ..found.clone() };
        let (program, origin) = (program.clone(), origin.to_string());
        let finding = Finding { program, failure, blame: None, origin };
        let path = self.write(&finding);
        let is_written = path.is_some();
        let what = Form::Program(Box::new(finding));
        self.in_company = Some(Kept { signature: String::new(), what, path, count: 1 });
        is_written
    }

    /// The hunt is over: what fails in company counts as well. Nobody writes raw files any more.
    pub(crate) fn close(&mut self) {
        self.kept.extend(self.in_company.take());
        // Only if it is empty.
        let _ = std::fs::remove_dir(Raw::of(&self.folder).folder);
    }

    /// Takes away what is kept in a smaller form.
    fn remove_raw(path: &Path) {
        // If it cannot be removed, it is there once more than it need be.
        let _ = std::fs::remove_file(path);
    }

    /// Writes the corpus file, the Rust test and the Python script. If the disk refuses, the
    /// corpus file goes to standard error, so that nothing is lost.
    fn write(&self, finding: &Finding) -> Option<PathBuf> {
        let text = clean(&finding.case_text());
        let stem = finding.stem();
        let files = [
            (format!("{stem}.case"), text.clone()),
            (format!("{stem}.rs"), clean(&gradiff_check::rust_test(finding))),
            (format!("{stem}.py"), clean(&gradiff_check::python_script(finding))),
        ];
        for (name, content) in files {
            let path = self.folder.join(name);
            if let Err(error) = write_whole(&path, &content) {
                errln!("gradiff: {} cannot be written: {error}; the case is:", path.display());
                errln!("{text}");
                return None;
            }
        }
        Some(self.folder.join(format!("{stem}.case")))
    }
}

/// Returns whether a failure is of the kind of the one that was found, and of the program's doing.
fn is_same(failure: &Found, found: &Found) -> bool {
    failure.kind == found.kind && !is_from_outside(failure)
}

/// Returns whether another process has ended the worker.
fn is_from_outside(found: &Found) -> bool {
    found.detail.starts_with(FROM_OUTSIDE)
}

/// Returns whether the process died, which may come by chance; a panic is its own.
fn is_death(found: &Found) -> bool {
    found.kind == Kind::Crash && !found.detail.starts_with("panic")
}

/// The smallest program that the same backend fails in the same way.
///
/// # Errors
/// No worker can be started.
pub(crate) fn minimise(
    program: &Program,
    found: &Found,
    client: &mut Client,
) -> Result<Program, Failure> {
    let is_fatal = found.kind == Kind::Timeout || is_death(found);
    let budget = if is_fatal { BUDGET_FATAL } else { BUDGET };
    let mut problem = None;
    let small = gradiff_check::reduce(program, budget, &mut |candidate| {
        if crate::interrupt::is_asked() || problem.is_some() {
            return false;
        }
        match client.judge(candidate) {
            Ok((_, failures)) => failures.iter().any(|failure| is_same(failure, found)),
            // What is small so far will do.
            Err(Failure::Interrupted) => false,
            Err(failure) => {
                problem = Some(failure);
                false
            }
        }
    });
    problem.map_or(Ok(small), Err)
}

/// The same for findings that are most likely one bug: kind and guilty rule, or guilty stage and
/// the ops that compute, in any order.
fn signature(program: &Program, found: &Found, blame: Option<&Blame>) -> String {
    if let Some(guilt) = blame.and_then(|blame| blame.rule.as_ref()) {
        return format!("{} {}", found.kind.name(), guilt.rule);
    }
    let stage = blame.map_or("", |blame| blame.stage.as_str());
    let word = |statement: &Statement| {
        let line = statement.to_string();
        line.split_whitespace().next().unwrap_or_default().to_string()
    };
    let is_leaf = |word: &String| matches!(word.as_str(), "input" | "const" | "arange");
    let ops: BTreeSet<String> =
        program.statements.iter().map(word).filter(|word| !is_leaf(word)).collect();
    format!("{} {stage} {ops:?}", found.kind.name())
}
