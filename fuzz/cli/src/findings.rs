//! Keeps findings: minimises them, knows which are the same, writes each one down three times.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gradiff_check::{Blame, Failure as Found, Finding, Kind};
use gradiff_corpus::{Program, Statement};

use crate::Failure;
use crate::pool::{Client, Settings};

/// How often a minimisation may ask a backend.
const BUDGET: usize = 600;
/// The same for a program that kills or hangs its worker at each ask.
const BUDGET_FATAL: usize = 20;

/// The findings of one run.
pub(crate) struct Findings {
    folder: PathBuf,
    settings: Settings,
    /// A worker for each backend that failed: the others need not be asked again.
    clients: BTreeMap<String, Client>,
    kept: Vec<Kept>,
    in_company: Option<Kept>,
    slow: u64,
}

/// One finding, minimised.
pub(crate) struct Kept {
    /// Which ones are the same: the failure's kind, the guilty stage and the ops.
    signature: String,
    /// What is written down.
    pub(crate) finding: Finding,
    /// The file's path, if it could be written.
    pub(crate) path: Option<PathBuf>,
    /// How many programs led to it.
    pub(crate) count: u64,
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

    /// Minimises a failing program, and keeps it unless it is one that is known.
    ///
    /// # Errors
    /// No worker can be started.
    pub(crate) fn add(
        &mut self,
        program: &Program,
        found: &Found,
        origin: &str,
    ) -> Result<(), Failure> {
        // What one backend spoils another may die of: then all of them are asked.
        let mut on = found.backend.clone();
        let mut again = self.again(program, found, &on)?;
        if again.is_none() && found.kind == Kind::Crash {
            on = self.settings.backends.join(",");
            again = self.again(program, found, &on)?;
        }
        let Some(now) = again else {
            match found.kind {
                Kind::Timeout => self.slow += 1,
                _ => self.keep_in_company(program, found, origin),
            }
            return Ok(());
        };
        let client = self.client(&on);
        let small = minimise(program, &now, client)?;
        let failures = client.judge(&small)?.1;
        let now = failures.into_iter().find(|f| f.kind == found.kind).unwrap_or(now);
        let blame = client.blame(&small, &now.backend)?;
        let signature = signature(&small, &now, blame.as_ref());
        if let Some(known) = self.kept.iter_mut().find(|kept| kept.signature == signature) {
            known.count += 1;
            return Ok(());
        }
        let finding = Finding { program: small, failure: now, blame, origin: origin.to_string() };
        let path = self.write(&finding);
        self.kept.push(Kept { signature, finding, path, count: 1 });
        Ok(())
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
        Ok(failures.into_iter().find(|failure| failure.kind == found.kind))
    }

    /// Keeps the first program that fails only in the company of those before it, for want of
    /// one that fails alone.
    fn keep_in_company(&mut self, program: &Program, found: &Found, origin: &str) {
        if let Some(known) = &mut self.in_company {
            known.count += 1;
            return;
        }
        let detail =
            format!("{} (only after the programs before it: caches, memory)", found.detail);
        let failure = Found { detail, ..found.clone() };
        let (program, origin) = (program.clone(), origin.to_string());
        let finding = Finding { program, failure, blame: None, origin };
        let path = self.write(&finding);
        self.in_company = Some(Kept { signature: String::new(), finding, path, count: 1 });
    }

    /// The hunt is over: what fails in company counts as well.
    pub(crate) fn close(&mut self) {
        self.kept.extend(self.in_company.take());
    }

    /// Writes the corpus file, the Rust test and the Python script. If the disk refuses, the
    /// corpus file goes to standard error, so that nothing is lost.
    fn write(&self, finding: &Finding) -> Option<PathBuf> {
        let text = finding.case_text();
        let stem = finding.stem();
        let files = [
            (format!("{stem}.case"), text.clone()),
            (format!("{stem}.rs"), gradiff_check::rust_test(finding)),
            (format!("{stem}.py"), gradiff_check::python_script(finding)),
        ];
        for (name, content) in files {
            let path = self.folder.join(name);
            if let Err(error) = std::fs::write(&path, content) {
                eprintln!("gradiff: {} cannot be written: {error}; the case is:", path.display());
                eprintln!("{text}");
                return None;
            }
        }
        Some(self.folder.join(format!("{stem}.case")))
    }
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
    let is_fatal = matches!(found.kind, Kind::Timeout)
        || (found.kind == Kind::Crash && !found.detail.starts_with("panic"));
    let budget = if is_fatal { BUDGET_FATAL } else { BUDGET };
    let mut problem = None;
    let small = gradiff_check::reduce(program, budget, &mut |candidate| {
        if crate::interrupt::is_asked() || problem.is_some() {
            return false;
        }
        match client.judge(candidate) {
            Ok((_, failures)) => failures.iter().any(|f| f.kind == found.kind),
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
