//! What a person sees while a hunt runs.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use gradiff_check::Tally;
use indicatif::{ProgressBar, ProgressStyle};

use crate::out::errln;

/// A line on the terminal, or, where there is none, a line now and then on standard error.
pub(crate) struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    told: Instant,
    every: Duration,
}

impl Progress {
    /// Starts the clock; nothing is shown if `is_quiet`.
    pub(crate) fn start(is_quiet: bool) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        let bar = (is_terminal && !is_quiet).then(|| {
            let bar = ProgressBar::new_spinner();
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
                bar.set_style(style);
            }
            bar
        });
        let every = if is_quiet { Duration::MAX } else { Duration::from_secs(10) };
        Progress { started: Instant::now(), bar, told: Instant::now(), every }
    }

    /// Seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Shows where the hunt stands.
    pub(crate) fn tell(&mut self, tally: &Tally, findings: usize) {
        let seconds = self.seconds();
        self.say(format!(
            "{seconds:.0} s  {} programs ({:.0}/s)  {} elements checked  {:.2} % unspecified  \
             {findings} findings",
            tally.programs,
            tally.programs as f64 / seconds.max(1e-9),
            tally.checked_elements,
            100.0 * tally.unspecified_fraction(),
        ));
    }

    /// Shows how many cases are done.
    pub(crate) fn count(&mut self, done: u64, what: &str) {
        let seconds = self.seconds();
        let rate = done as f64 / seconds.max(1e-9);
        self.say(format!("{seconds:.0} s  {done} {what} ({rate:.0}/s)"));
    }

    fn say(&mut self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.tick();
        } else if self.told.elapsed() >= self.every {
            self.told = Instant::now();
            errln!("{text}");
        }
    }

    /// Takes the line away.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
