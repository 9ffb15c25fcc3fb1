//! `gradiff sabotage`: changes one row of the rule tables at a time and counts which of these
//! mutants the harness notices, by which signs, and whether blame names the row.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use gradiff_check::forms::{self, Differences, Distinction, Form};
use gradiff_check::sabotage::{self, Death, Harness, ROUNDS, Sign};
use gradiff_gen::{Config, ExprConfig, SeedChoices, case_seed};
use gradiff_rules::mutate::{KINDS, Mutant};
use serde_json::{Value, json};

use crate::args::Sabotage;
use crate::out::outln;
use crate::whole::write_whole;
use crate::{Failure, Status};

/// Text of the reviewed survivors.
const REVIEWED: &str = include_str!("../../survivors.txt");

/// Number of subjects on which a survivor is compared with its row: to write forms, and otherwise.
const COMPARED: [u64; 2] = [1_200, 300];

/// Stack of a worker: a mutant may make deep terms.
const STACK_BYTES: usize = 512 << 20;

/// A mutant and its fate.
struct Case {
    mutant: Mutant,
    death: Option<Death>,
    /// Number of rounds that it went through.
    rounds: usize,
}

/// Runs the harness on every mutant of the requested rows.
///
/// # Errors
/// No row of such a name has a mutant; the list of reviewed survivors cannot be parsed; an
/// interrupt.
pub(crate) fn measure(options: &Sabotage) -> Result<Status, Failure> {
    crate::interrupt::install_with_grace();
    let reviewed = sabotage::reviewed(REVIEWED).map_err(Failure::Internal)?;
    let mutants = requested_mutants(options)?;
    if mutants.is_empty() {
        let prefixes = options.prefixes.join(", ");
        return Err(Failure::Usage(match options.only {
            Some(_) => "the file names no mutant".to_string(),
            None => format!("no rule whose name starts with {prefixes} has a mutant"),
        }));
    }
    std::panic::set_hook(Box::new(|_| {}));
    let expression = |number| {
        let mut choices = SeedChoices::new(case_seed(options.seed, number));
        gradiff_gen::expr(&mut choices, &ExprConfig::default())
    };
    let config = Config::default();
    let program = |number| gradiff_gen::program_at(options.seed, number, &config).program;
    let harness = Harness::new(&expression, &program);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = options.jobs.map_or(cores, |jobs| jobs as usize);
    let start = Instant::now();
    let taken = || crate::cpu::of_process(std::process::id());
    let upper_bound = || start.elapsed().as_secs_f64() * jobs as f64;
    let spent = || taken().map_or_else(upper_bound, |time| time.as_secs_f64());
    // The clock is cheaper to read, and its bound is never below the time that all threads took.
    let budget = options.seconds as f64;
    let is_over = || crate::interrupt::is_requested() || budget < upper_bound() && budget < spent();
    let new = |mutant| Case { mutant, death: None, rounds: 0 };
    let mut cases: Vec<Case> = mutants.into_iter().map(new).collect();
    for round in 0..ROUNDS.len() {
        let alive: Vec<&mut Case> = cases.iter_mut().filter(|case| case.death.is_none()).collect();
        let work = |case: &mut Case| attempt(case, round, &harness, options.seed, &is_over);
        in_parallel(alive, jobs, &work)?;
    }
    if crate::interrupt::is_requested() {
        return Err(Failure::Interrupted);
    }
    let seconds = spent();
    let mut groups = Group::all(&cases, &reviewed);
    let compared = COMPARED[usize::from(options.forms.is_none())];
    let explain = |group: &mut Group| {
        group.explain(&harness, compared);
        Ok(())
    };
    in_parallel(groups.iter_mut().collect(), jobs, &explain)?;
    let forms = groups.iter_mut().flat_map(|group| std::mem::take(&mut group.forms)).collect();
    let survivors = groups.into_iter().flat_map(|group| group.survivors).collect();
    let total_seconds = spent();
    let report = Report { cases, survivors, forms, stale: Vec::new(), seconds, total_seconds };
    let selection = match options.only {
        Some(_) => Selection::Named,
        None => Selection::Rules(&options.prefixes),
    };
    let report = Report { stale: report.stale(&reviewed, &selection), ..report };
    if let Some(path) = &options.forms {
        report.write_forms(path)?;
    }
    if options.json {
        outln!("{}", report.to_json());
    } else {
        report.print(options.seed);
    }
    Ok(if report.is_clean() { Status::Clean } else { Status::Findings })
}

/// Returns the mutants of the requested rows; if a file is given, only those that it names.
fn requested_mutants(options: &Sabotage) -> Result<Vec<Mutant>, Failure> {
    let mut mutants = sabotage::mutants(&options.prefixes);
    if let Some(path) = &options.only {
        let failed = |error: std::io::Error| Failure::Usage(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let lines = text.lines().map(|line| line.trim().trim_start_matches("LIVES "));
        let names: HashSet<&str> = lines.collect();
        mutants.retain(|mutant| names.contains(mutant.to_string().as_str()));
    }
    Ok(mutants)
}

fn attempt(
    case: &mut Case,
    round: usize,
    harness: &Harness<'_>,
    seed: u64,
    is_over: &dyn Fn() -> bool,
) -> Result<(), Failure> {
    if is_over() {
        return Ok(());
    }
    let death = harness.attempt(&case.mutant, round, seed, is_over);
    case.death = death.map_err(Failure::Internal)?;
    case.rounds += usize::from(!is_over());
    Ok(())
}

/// Does the work on each item, on `jobs` threads.
fn in_parallel<T: Send>(
    items: Vec<&mut T>,
    jobs: usize,
    work: &(dyn Fn(&mut T) -> Result<(), Failure> + Sync),
) -> Result<(), Failure> {
    let slots: Vec<Mutex<&mut T>> = items.into_iter().map(Mutex::new).collect();
    let next = AtomicUsize::new(0);
    let run_thread = || {
        while let Some(slot) = slots.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut item = slot.lock().expect("each item is taken once");
            work(&mut item)?;
        }
        Ok(())
    };
    let cannot_start =
        |error: std::io::Error| Failure::Internal(format!("a thread cannot be started: {error}"));
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..jobs {
            let builder = std::thread::Builder::new().stack_size(STACK_BYTES);
            let thread = builder.spawn_scoped(scope, run_thread);
            threads.push(thread.map_err(cannot_start)?);
        }
        let failed = |_| Failure::Internal("a worker of sabotage panicked".to_string());
        threads.into_iter().try_for_each(|thread| thread.join().map_err(failed)?)
    })
}

/// A mutant that nothing killed.
struct Survivor {
    mutant: Mutant,
    /// True if all rounds were run.
    is_tried: bool,
    /// The reason that the review gives.
    reason: Option<String>,
    /// The result of comparing it with the row.
    explanation: String,
    /// True if some form distinguishes it from the row.
    is_distinguished: bool,
}

/// The survivors of one rule.
struct Group {
    rule: &'static str,
    survivors: Vec<Survivor>,
    /// Forms that distinguish some of them from the row.
    forms: Vec<Form>,
}

impl Group {
    /// Groups all survivors by rule.
    fn all(cases: &[Case], reviewed: &[(&str, &str)]) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        for case in cases.iter().filter(|case| case.death.is_none()) {
            let (rule, survivor) = (case.mutant.rule.name, Survivor::of(case, reviewed));
            match groups.last_mut().filter(|group| group.rule == rule) {
                Some(group) => group.survivors.push(survivor),
                None => {
                    groups.push(Group { rule, survivors: vec![survivor], forms: Vec::new() });
                }
            }
        }
        groups
    }

    fn explain(&mut self, harness: &Harness<'_>, count: u64) {
        let Some(mut differences) = Differences::new(self.rule, harness, count) else { return };
        for survivor in &mut self.survivors {
            let difference = differences.of(&survivor.mutant);
            survivor.is_distinguished = matches!(difference, Distinction::By(..));
            survivor.explanation = match difference {
                Distinction::By(form, mutated) => {
                    format!("different form: {form}, with the mutant {mutated}")
                }
                Distinction::Never(drawn, differing) => format!(
                    "alone, the mutant rewrites {differing} of {drawn} subjects differently; with \
                     all rules, they end in the same form"
                ),
            };
        }
        self.forms = differences.found;
    }
}

impl Survivor {
    fn of(case: &Case, reviewed: &[(&str, &str)]) -> Survivor {
        let name = case.mutant.to_string();
        let reason = reviewed.iter().find(|(mutant, _)| *mutant == name);
        Survivor {
            mutant: case.mutant,
            is_tried: case.rounds == ROUNDS.len(),
            reason: reason.map(|(_, reason)| (*reason).to_string()),
            explanation: String::new(),
            is_distinguished: false,
        }
    }

    fn is_equivalent(&self) -> bool {
        let says_so = |reason: &str| reason.starts_with("equivalent");
        !self.is_distinguished && self.reason.as_deref().is_some_and(says_so)
    }

    /// Returns whether there is a review that nothing contradicts.
    fn is_explained(&self) -> bool {
        self.is_equivalent()
            || self.reason.as_deref().is_some_and(|reason| reason.starts_with("harmless"))
    }
}

/// Selection of mutants.
enum Selection<'a> {
    /// Those that a file names.
    Named,
    /// Those of rules whose names start with one of these; if there are none, of all rules.
    Rules(&'a [String]),
}

struct Report {
    cases: Vec<Case>,
    survivors: Vec<Survivor>,
    /// Reviewed survivors that are not mutants any more, or are dead.
    stale: Vec<String>,
    /// Forms that distinguish survivors from their rows.
    forms: Vec<Form>,
    /// CPU seconds for trying mutants.
    seconds: f64,
    /// The same, with the comparison of survivors.
    total_seconds: f64,
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

impl Report {
    /// Returns the reviewed mutants that are dead or not mutants at all: if rules were selected,
    /// those of these rules; if a file names the mutants, those that it names and that died.
    fn stale(&self, reviewed: &[(&str, &str)], selection: &Selection<'_>) -> Vec<String> {
        let alive: Vec<String> = self.survivors.iter().map(|s| s.mutant.to_string()).collect();
        let tried = |name: &String| self.cases.iter().any(|case| case.mutant.to_string() == *name);
        let is_selected = |name: &String| match selection {
            Selection::Named => tried(name),
            Selection::Rules([]) => true,
            Selection::Rules(prefixes) => prefixes.iter().any(|prefix| name.starts_with(prefix)),
        };
        let names = reviewed.iter().map(|(mutant, _)| (*mutant).to_string());
        names.filter(|name| is_selected(name) && !alive.contains(name)).collect()
    }

    fn is_clean(&self) -> bool {
        self.stale.is_empty() && self.survivors.iter().all(Survivor::is_explained)
    }

    fn deaths(&self) -> impl Iterator<Item = (&Mutant, &Death)> {
        self.cases.iter().filter_map(|case| Some((&case.mutant, case.death.as_ref()?)))
    }

    /// Returns the number of deaths by a wrong result, of those blamed on the right rule, and of
    /// those blamed on the right pass.
    fn blamed(&self) -> (usize, usize, usize) {
        let wrong = || self.deaths().filter(|(_, death)| death.sign.is_wrong());
        let rule = wrong().filter(|(mutant, death)| death.names(mutant)).count();
        let pass = wrong().filter(|(mutant, death)| death.names_pass(mutant)).count();
        (wrong().count(), rule, pass)
    }

    /// Returns the percentage killed of all mutants, and of those not reviewed as equivalent.
    fn scores(&self) -> (f64, f64) {
        let (count, killed) = (self.cases.len(), self.deaths().count());
        (percent(killed, count), percent(killed, count - self.equivalent()))
    }

    fn equivalent(&self) -> usize {
        self.survivors.iter().filter(|survivor| survivor.is_equivalent()).count()
    }

    fn print(&self, seed: u64) {
        for survivor in &self.survivors {
            outln!("LIVES {}", survivor.mutant);
            let reason = match &survivor.reason {
                Some(reason) if survivor.is_explained() => reason,
                Some(reason) => &format!("BUT ITS FORM DIFFERS: {reason}"),
                None => "NOT REVIEWED",
            };
            let tried = if survivor.is_tried { "" } else { " (time ran out)" };
            outln!("      {reason}{tried}\n      {}", survivor.explanation);
        }
        let (wrong, rule, pass) = self.blamed();
        for (mutant, death) in self.deaths().filter(|(_, death)| death.sign.is_wrong()) {
            if !death.names(mutant) || !death.names_pass(mutant) {
                let (rule, pass) = (death.rule.as_deref(), death.pass.as_deref());
                let (rule, pass) = (rule.unwrap_or("none"), pass.unwrap_or("none"));
                outln!("BLAME {mutant}\n      rule {rule}, pass {pass}: {}", death.detail);
            }
        }
        self.stale.iter().for_each(|name| outln!("STALE {name}"));
        outln!("{:12} {:>6} {:>6}", "kind", "killed", "of");
        for (kind, description) in KINDS {
            let count = self.cases.iter().filter(|case| case.mutant.kind == kind).count();
            let killed = self.deaths().filter(|(mutant, _)| mutant.kind == kind).count();
            outln!("{kind:12} {killed:6} {count:6}  {description}");
        }
        let signs = Sign::ALL.map(|sign| {
            let count = self.deaths().filter(|(_, death)| death.sign == sign).count();
            format!("{} {count}", sign.name())
        });
        outln!("killed by: {}", signs.join(", "));
        outln!(
            "blame of the {wrong} with wrong results: right rule {:.1} %, right pass {:.1} %",
            percent(rule, wrong),
            percent(pass, wrong)
        );
        let killed = self.deaths().count();
        let is_named = |(mutant, death): &(&Mutant, &Death)| death.names(mutant);
        outln!(
            "of the {killed} killed, the failing line or blame names the rule: {:.1} %",
            percent(self.deaths().filter(is_named).count(), killed)
        );
        let (raw, score) = self.scores();
        outln!(
            "{} mutants, {killed} killed: {raw:.1} % of all, score {score:.1} % of the {} not \
             reviewed as equivalent; {:.0} CPU seconds ({:.0} with the comparison of survivors), \
             seed {seed}",
            self.cases.len(),
            self.cases.len() - self.equivalent(),
            self.seconds,
            self.total_seconds
        );
    }

    /// Writes the list of forms anew: the subjects that are there, with their current forms, and
    /// those that distinguish survivors from their rows.
    fn write_forms(&self, path: &Path) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::Usage(format!("{}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(failed)?;
        let comments = text.lines().filter(|line| line.starts_with('#'));
        let mut lines: Vec<String> = comments.map(str::to_owned).collect();
        let old = forms::read(&text).into_iter().flatten();
        let old = old.filter_map(|form| Form::new(&form.rule, &form.subject));
        let new = self.forms.iter().cloned();
        let mut forms: Vec<String> = old.chain(new).map(|form| form.to_string()).collect();
        forms.sort();
        forms.dedup();
        lines.extend(forms);
        write_whole(path, &(lines.join("\n") + "\n")).map_err(failed)
    }

    fn to_json(&self) -> Value {
        let (wrong, rule, pass) = self.blamed();
        let (raw, score) = self.scores();
        let alive = |survivor: &Survivor| {
            json!({"mutant": survivor.mutant.to_string(), "reviewed": survivor.reason,
                   "story": survivor.explanation, "tried": survivor.is_tried})
        };
        let dead = |(mutant, death): (&Mutant, &Death)| {
            json!({"mutant": mutant.to_string(), "sign": death.sign.name(),
                   "detail": death.detail, "rule": death.rule, "pass": death.pass})
        };
        json!({
            "deaths": self.deaths().map(dead).collect::<Vec<_>>(),
            "mutants": self.cases.len(), "killed": self.deaths().count(), "wrong": wrong,
            "blamed_rule": rule, "blamed_pass": pass, "score_raw": raw, "score": score,
            "equivalent": self.equivalent(),
            "survivors": self.survivors.iter().map(alive).collect::<Vec<_>>(),
            "stale": self.stale, "cpu_seconds": self.seconds,
            "cpu_seconds_whole": self.total_seconds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report on the mutants of one row, of which only the first survives.
    fn report(review: &str) -> Report {
        let reviewed = sabotage::reviewed(review).expect("the review can be parsed");
        let mutants = sabotage::mutants(&["algebra/sub-self".to_string()]);
        let death = |mutant: &Mutant| Death {
            sign: Sign::Value,
            detail: String::new(),
            subject: None,
            rule: Some(mutant.rule.name.to_string()),
            pass: Some("symbolic".to_string()),
        };
        let new = |(number, mutant): (usize, Mutant)| {
            let death = (number > 0).then(|| death(&mutant));
            Case { mutant, death, rounds: ROUNDS.len() }
        };
        let cases: Vec<Case> = mutants.into_iter().enumerate().map(new).collect();
        assert!(cases.len() > 1, "{}", cases.len());
        let survivors = vec![Survivor::of(&cases[0], &reviewed)];
        let (stale, forms) = (Vec::new(), Vec::new());
        let report = Report { cases, survivors, stale, forms, seconds: 1.0, total_seconds: 1.0 };
        Report { stale: report.stale(&reviewed, &Selection::Rules(&[])), ..report }
    }

    fn name(number: usize) -> String {
        sabotage::mutants(&["algebra/sub-self".to_string()])[number].to_string()
    }

    #[test]
    fn reviewed_survivors_are_clean_and_do_not_lower_the_score() {
        let report = report(&format!("{} # equivalent: nothing tells it", name(0)));
        assert!(report.is_clean());
        let (raw, score) = report.scores();
        assert!(raw < 100.0 && score == 100.0, "{raw} {score}");
    }

    #[test]
    fn survivors_that_are_not_reviewed_or_only_harmless_count() {
        let unknown = report("");
        assert!(!unknown.is_clean() && unknown.scores().1 < 100.0);
        let harmless = report(&format!("{} # harmless: less simple", name(0)));
        assert!(harmless.is_clean() && harmless.scores().1 < 100.0);
    }

    #[test]
    fn stale_lines_are_findings() {
        let both = format!("{} # equivalent: so\n{} # equivalent: so", name(0), name(1));
        let report = report(&both);
        assert_eq!(report.stale, [name(1)]);
        assert!(!report.is_clean());
        let gone = [("algebra/gone constant rhs: 1", "equivalent: so")];
        assert_eq!(report.stale(&gone, &Selection::Rules(&[])).len(), 1);
        assert_eq!(report.stale(&gone, &Selection::Rules(&["divmod".to_string()])).len(), 0);
        assert_eq!(report.stale(&gone, &Selection::Named).len(), 0);
    }

    #[test]
    fn equivalent_survivors_that_have_a_different_form_are_findings() {
        let mut report = report(&format!("{} # equivalent: nothing tells it", name(0)));
        report.survivors[0].is_distinguished = true;
        assert!(!report.is_clean() && report.scores().1 < 100.0);
    }
}
