//! Progress display of a running command.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use gradiff_check::Tally;
use indicatif::{ProgressBar, ProgressStyle};

use crate::out::errln;

/// Prints a line that is updated in place on a terminal, or else a line now and then on standard
/// error.
pub(crate) struct Progress {
    started: Instant,
    bar: Option<ProgressBar>,
    last_print: Instant,
    interval: Duration,
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
        let interval = if is_quiet { Duration::MAX } else { Duration::from_secs(10) };
        Progress { started: Instant::now(), bar, last_print: Instant::now(), interval }
    }

    /// Returns the seconds since the start.
    pub(crate) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    /// Shows the state of a hunt.
    pub(crate) fn report(&mut self, tally: &Tally, findings: usize) {
        let seconds = self.seconds();
        self.show(format!(
            "{seconds:.0} s  {} programs ({:.0}/s)  {} elements checked  {:.2} % unspecified  \
             {findings} findings",
            tally.programs,
            tally.programs as f64 / seconds.max(1e-9),
            tally.checked_elements,
            100.0 * tally.unspecified_fraction(),
        ));
    }

    /// Shows the state of a minimisation: the runs so far, and the statements that are left.
    pub(crate) fn minimising(&mut self, backend: &str, runs: usize, statements: usize) {
        let seconds = self.seconds();
        self.show(format!(
            "{seconds:.0} s  minimising a failure on {backend}: {runs} runs, {statements} \
             statements left"
        ));
    }

    /// Shows the number of cases that are done.
    pub(crate) fn count(&mut self, done: u64, noun: &str) {
        let seconds = self.seconds();
        let rate = done as f64 / seconds.max(1e-9);
        self.show(format!("{seconds:.0} s  {done} {noun} ({rate:.0}/s)"));
    }

    fn show(&mut self, text: String) {
        if let Some(bar) = &self.bar {
            bar.set_message(text);
            bar.tick();
        } else if self.last_print.elapsed() >= self.interval {
            self.last_print = Instant::now();
            errln!("{text}");
        }
    }

    /// Removes the line.
    pub(crate) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
