//! Beam search: a kernel's opts found by running it with many.
//!
//! It starts from the opts of the heuristic and from each beginning of them, no opts included; each
//! round adds one legal opt to each of the best so far in all ways, compiles what comes out, times
//! it on memories made for that alone (`Device::time`), and keeps the best `width`; a round that
//! gains less than 1 % is the last one. After each round the state is kept on disk under all that
//! it depends on: a search that is interrupted goes on from there, one that is finished is never
//! done again. Entries that are damaged, or whose opts are no longer legal, count as none. What a
//! search cannot do (too little memory, a kernel that fails) it leaves to the heuristic, and it
//! reports no error: compiling the kernel does.
//!
//! A candidate is given up when compiling it or running it takes longer than a limit. Only a
//! compiler that is a program of its own (of the device `c`) can be ended on its way; for the
//! others it is the count of uops that keeps a candidate's compile short.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gradiff_graph::{BoundedLinear, Linear, UOp};
use gradiff_kernel::{Context, Opt, Options, PASSES, Setting, Strategy, Target};
use gradiff_rewrite::Trace;
use gradiff_runtime::{Cache, Device, Executable, Memory};
use rustc_hash::{FxHashSet, FxHasher};

use crate::Error;
use crate::error::invalid;

/// Most candidates of a round that come from one of the round before.
const NEXT_MOST: usize = 64;
/// Most rounds.
const ROUNDS_MOST: usize = 16;
/// Candidates of more uops are dropped: compilers take too long over them, and those within this
/// process cannot be ended.
const UOPS_MOST: usize = 3000;
/// A candidate that takes so many times the best time at first is not run again,
const SLOW: u32 = 3;
/// but for so much, which the first run of any kernel may take.
const SLACK: Duration = Duration::from_micros(50);
/// Runs of a candidate: these,
const RUNS: u32 = 3;
/// more while they take less than this in all,
const SHORT: Duration = Duration::from_millis(2);
/// and fewer if they take more than this.
const LONG: Duration = Duration::from_millis(500);
/// A candidate whose compile or whose runs take so many seconds is given up, and a kernel that
/// takes so long not searched, unless the environment variable `BEAM_TIMEOUT_SEC` says another
/// number.
const LIMIT_SECONDS: u64 = 10;
/// The longest such limit.
const LIMIT_SECONDS_MOST: u64 = 3600;
/// A compile of several candidates may take a part of the limit more for each of them, this many of
/// which are the limit. With gcc 12 a candidate takes 0.1 s on one core.
const SHARE: u32 = 32;
/// All compiles of a round may take so many times what the first one of them may.
const TRIES: u32 = 3;
/// The widest beam.
const WIDTH_MOST: usize = 64;
/// How the names of kept searches end.
const ENDING: &str = "opts";

/// The width that the environment variable `BEAM` says; 0, for no search, if there is none.
pub(crate) fn width() -> Result<usize, Error> {
    match std::env::var("BEAM") {
        Err(std::env::VarError::NotPresent) => Ok(0),
        Err(error) => invalid(format!("BEAM: {error}")),
        Ok(text) => parse_width(&text),
    }
}

fn parse_width(text: &str) -> Result<usize, Error> {
    match text.parse() {
        Ok(width) if width <= WIDTH_MOST => Ok(width),
        _ => invalid(format!(
            "BEAM={text}: it is how many candidates a search keeps, from 0 (no search) to \
             {WIDTH_MOST}"
        )),
    }
}

/// How long a candidate may take, as the environment variable `BEAM_TIMEOUT_SEC` says.
pub(crate) fn limit() -> Result<Duration, Error> {
    match std::env::var("BEAM_TIMEOUT_SEC") {
        Err(std::env::VarError::NotPresent) => Ok(Duration::from_secs(LIMIT_SECONDS)),
        Err(error) => invalid(format!("BEAM_TIMEOUT_SEC: {error}")),
        Ok(text) => parse_limit(&text),
    }
}

fn parse_limit(text: &str) -> Result<Duration, Error> {
    match text.parse() {
        Ok(seconds) if (1..=LIMIT_SECONDS_MOST).contains(&seconds) => {
            Ok(Duration::from_secs(seconds))
        }
        _ => invalid(format!(
            "BEAM_TIMEOUT_SEC={text}: it is how many seconds a candidate of a search may be \
             compiled or run, from 1 to {LIMIT_SECONDS_MOST}"
        )),
    }
}

/// Where an engine keeps what it finds, and how often it searched.
#[derive(Default)]
pub(crate) struct Searches {
    cache: OnceLock<Option<Cache>>,
    count: AtomicUsize,
}

impl Searches {
    /// How many kernels were searched, those that an entry on disk answered not counted.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn cache(&self) -> Option<&Cache> {
        self.cache.get_or_init(|| Cache::open(ENDING).ok()).as_ref()
    }
}

/// What a search is about besides the kernel.
pub(crate) struct Search<'a> {
    /// Where candidates run.
    pub(crate) device: &'a dyn Device,
    /// What they are brought down to.
    pub(crate) target: &'a Target,
    /// How they are lowered, but for their opts.
    pub(crate) options: &'a Options,
    /// All that lowering and compiling depend on, as text.
    pub(crate) settings: &'a str,
    /// How many candidates a round keeps.
    pub(crate) width: usize,
    /// How long a candidate may be compiled, and how long it may run.
    pub(crate) limit: Duration,
    /// From 1 on, each round is told on stderr.
    pub(crate) debug_level: u8,
}

impl Search<'_> {
    /// The best opts for the kernel, from disk or searched; `None` if the search cannot be done.
    pub(crate) fn best(&self, ast: &UOp, searches: &Searches) -> Option<Arc<[Opt]>> {
        // Searches side by side would disturb each other's times.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let tree = Tree::of(ast, self)?;
        let key = self.key(ast);
        let kept = searches.cache().and_then(|cache| cache.read(&key));
        let kept = kept.and_then(|text| State::parse(std::str::from_utf8(&text).ok()?));
        let kept = kept.filter(|state| {
            state.beam.iter().all(|timed| tree.after(&timed.opts, self.options).is_some())
        });
        let state = match kept {
            Some(state) if state.is_finished => state,
            unfinished => {
                searches.count.fetch_add(1, Ordering::Relaxed);
                let keep = |state: &State| self.keep(searches, &key, state);
                Run { search: self, ast, tree, seen: FxHashSet::default() }
                    .finish(unfinished, &keep)?
            }
        };
        assert!(state.is_finished, "a search ends finished or not at all");
        state.beam.into_iter().next().map(|timed| timed.opts.into())
    }

    fn key(&self, ast: &UOp) -> String {
        format!(
            "beam {} within {:?} of gradiff {}\n{}\n{}\n{}",
            self.width,
            self.limit,
            env!("CARGO_PKG_VERSION"),
            self.settings,
            self.device.describe(),
            ast.to_text()
        )
    }

    /// Keeps the state on disk; without that the search only has to be done again.
    fn keep(&self, searches: &Searches, key: &str, state: &State) {
        let Some(cache) = searches.cache() else { return };
        if let Err(error) = cache.add(key, state.to_string().as_bytes()) {
            self.tell(|| format!("not kept: {error}"));
        }
    }

    fn tell(&self, text: impl FnOnce() -> String) {
        if 1 <= self.debug_level {
            eprintln!("beam {}", text());
        }
    }
}

/// The kernel as the optimiser gets it.
struct Tree {
    root: UOp,
    target: Target,
}

impl Tree {
    fn of(ast: &UOp, search: &Search<'_>) -> Option<Tree> {
        let mut trace = Trace::default();
        let mut ctx = Context::new(ast, search.target, search.options, &mut trace);
        let before = PASSES.iter().take_while(|pass| pass.name != "optimize");
        let mut root = ast.clone();
        for pass in before {
            root = (pass.run)(&root, &mut ctx).ok()?;
        }
        Some(Tree { root, target: ctx.target })
    }

    fn setting(&self, options: &Options) -> Setting<'_> {
        Setting { mode: options.rewrite.mode, target: &self.target }
    }

    /// The kernel with these opts, if they are legal.
    fn after(&self, opts: &[Opt], options: &Options) -> Option<UOp> {
        let setting = self.setting(options);
        let apply = |root: UOp, opt: &Opt| gradiff_kernel::apply(&root, *opt, setting).ok();
        opts.iter().try_fold(self.root.clone(), apply)
    }

    /// The opts, each with one more; of too many, some from everywhere among them.
    fn next(&self, opts: &[Opt], options: &Options) -> Vec<Vec<Opt>> {
        let legal = self.after(opts, options).and_then(|root| {
            let legal = gradiff_kernel::legal(&root, self.setting(options));
            legal.ok()
        });
        let legal = legal.unwrap_or_default();
        let count = legal.len().min(NEXT_MOST);
        let some = (0..count).map(|number| legal[number * legal.len() / count]);
        some.map(|opt| [opts, &[opt]].concat()).collect()
    }
}

/// Opts and the least time that the kernel took with them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timed {
    time: Duration,
    opts: Vec<Opt>,
}

impl std::fmt::Display for Timed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let opts: Vec<String> = self.opts.iter().map(Opt::to_string).collect();
        write!(f, "{} ns: {}", self.time.as_nanos(), opts.join(", "))
    }
}

impl Timed {
    fn parse(line: &str) -> Option<Timed> {
        let (nanos, opts) = line.split_once(" ns: ")?;
        let opts = opts.split(", ").filter(|opt| !opt.is_empty());
        let opts = opts.map(|opt| opt.parse().ok()).collect::<Option<_>>()?;
        Some(Timed { time: Duration::from_nanos(nanos.parse().ok()?), opts })
    }
}

/// How far a search is; what stands on disk.
#[derive(Debug, PartialEq, Eq)]
struct State {
    round: usize,
    is_finished: bool,
    /// The best so far, the best one first; never empty.
    beam: Vec<Timed>,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{} {}", if self.is_finished { "finished" } else { "round" }, self.round)?;
        self.beam.iter().try_for_each(|timed| writeln!(f, "{timed}"))
    }
}

impl State {
    fn parse(text: &str) -> Option<State> {
        let mut lines = text.lines();
        let (word, round) = lines.next()?.split_once(' ')?;
        let is_finished = match word {
            "finished" => true,
            "round" => false,
            _ => return None,
        };
        let beam = lines.map(Timed::parse).collect::<Option<Vec<Timed>>>()?;
        let round = round.parse().ok()?;
        (!beam.is_empty()).then_some(State { round, is_finished, beam })
    }
}

/// A search on its way.
struct Run<'a> {
    search: &'a Search<'a>,
    ast: &'a UOp,
    tree: Tree,
    /// Hashes of the kernels that were candidates: many opts lead to the same one.
    seen: FxHashSet<u64>,
}

impl Run<'_> {
    /// Goes on from a state, or begins; each state on the way is kept.
    fn finish(mut self, state: Option<State>, keep: &dyn Fn(&State)) -> Option<State> {
        let search = self.search;
        let name = gradiff_kernel::name(self.ast);
        let starts = match &state {
            Some(state) => state.beam.iter().map(|timed| timed.opts.clone()).collect(),
            None => {
                let setting = self.tree.setting(search.options);
                let opts = gradiff_kernel::heuristic(&self.tree.root, setting).ok()?;
                (0..=opts.len()).rev().map(|count| opts[..count].to_vec()).collect()
            }
        };
        let starts = self.candidates(starts, usize::MAX);
        let scratch = scratch(&starts.first()?.1)?;
        let mut beam = self.timed(starts, &scratch, None);
        beam.sort();
        beam.truncate(search.width);
        let mut best = beam.first()?.clone();
        let first = best.time;
        let mut state = State { round: state.map_or(0, |s| s.round), is_finished: false, beam };
        while best.time < search.limit && state.round < ROUNDS_MOST {
            let next = state.beam.iter();
            let next = next.flat_map(|timed| self.tree.next(&timed.opts, search.options)).collect();
            let candidates = self.candidates(next, UOPS_MOST);
            if candidates.is_empty() {
                break;
            }
            state.round += 1;
            let (round, count) = (state.round, candidates.len());
            search.tell(|| format!("{name} round {round}: {count} candidates, best {best}"));
            state.beam.extend(self.timed(candidates, &scratch, Some(best.time)));
            state.beam.sort();
            state.beam.truncate(search.width);
            keep(&state);
            let before = std::mem::replace(&mut best, state.beam.first()?.clone()).time;
            if before * 99 < best.time * 100 {
                break;
            }
        }
        state.is_finished = true;
        keep(&state);
        let ratio = first.as_secs_f64() / best.time.as_secs_f64().max(1e-9);
        search.tell(|| format!("{name} done: {best}, {ratio:.2} x as fast as before"));
        Some(state)
    }

    /// The kernels with these opts that were no candidates before and are not too long.
    fn candidates(
        &mut self,
        all: Vec<Vec<Opt>>,
        uops_most: usize,
    ) -> Vec<(Vec<Opt>, BoundedLinear)> {
        let mut candidates = Vec::with_capacity(all.len());
        for opts in all {
            let options =
                Options { opts: Strategy::Fixed(opts.clone()), ..self.search.options.clone() };
            let mut trace = Trace::default();
            let lowered = gradiff_kernel::lower(self.ast, self.search.target, &options, &mut trace);
            let Ok(linear) = lowered else { continue };
            let mut hasher = FxHasher::default();
            linear.to_string().hash(&mut hasher);
            if linear.uops.len() <= uops_most && self.seen.insert(hasher.finish()) {
                candidates.push((opts, linear));
            }
        }
        candidates
    }

    /// Compiles and times candidates; those that fail or are much slower than the best are left
    /// out.
    fn timed(
        &self,
        candidates: Vec<(Vec<Opt>, BoundedLinear)>,
        scratch: &[Memory],
        best: Option<Duration>,
    ) -> Vec<Timed> {
        let linears: Vec<&BoundedLinear> = candidates.iter().map(|(_, linear)| linear).collect();
        let Search { device, limit, .. } = *self.search;
        let executables = compile(device, &linears, limit);
        assert_eq!(executables.len(), candidates.len(), "each candidate is compiled or refused");
        let mut best = best;
        let mut timed = Vec::with_capacity(candidates.len());
        for ((opts, _), executable) in candidates.into_iter().zip(executables) {
            let time =
                executable.and_then(|executable| time(device, &*executable, scratch, best, limit));
            match time {
                Ok(Some(time)) => {
                    // Where a search starts from is timed in full.
                    best = best.map(|best| best.min(time));
                    timed.push(Timed { time, opts });
                }
                Ok(None) => {}
                Err(error) => self.search.tell(|| {
                    let name = gradiff_kernel::name(self.ast);
                    format!("{name} with {opts:?} is dropped: {error}")
                }),
            }
        }
        timed
    }
}

/// Compiles in one go; where that fails, by halves, until it is known which ones fail.
///
/// Where it takes too long, one by one, each within the limit: halves would wait for the
/// slow one once for each of them. What is not compiled when all of it has taken `TRIES` times the
/// time of the first go is given up.
fn compile(device: &dyn Device, linears: &[&BoundedLinear], limit: Duration) -> Vec<Compiled> {
    let deadline = Instant::now() + TRIES * time_of(linears.len(), limit);
    compile_until(device, linears, limit, deadline)
}

/// A candidate that was compiled, or why it was not.
type Compiled = Result<Arc<dyn Executable>, gradiff_runtime::Error>;

/// How long the compile of so many candidates may take.
fn time_of(count: usize, limit: Duration) -> Duration {
    limit + limit / SHARE * (count.saturating_sub(1) as u32)
}

fn compile_until(
    device: &dyn Device,
    linears: &[&BoundedLinear],
    limit: Duration,
    deadline: Instant,
) -> Vec<Compiled> {
    let left = deadline.saturating_duration_since(Instant::now());
    match device.compile_within(linears, time_of(linears.len(), limit).min(left)) {
        Ok(executables) => executables.into_iter().map(Ok).collect(),
        Err(error) if linears.len() <= 1 => vec![Err(error)],
        Err(error) => {
            let is_slow = matches!(error, gradiff_runtime::Error::CompilerTooSlow { .. });
            let parts = linears.chunks(if is_slow { 1 } else { linears.len().div_ceil(2) });
            parts.flat_map(|part| compile_until(device, part, limit, deadline)).collect()
        }
    }
}

/// Memories like those that the kernel takes: floats near 1, other elements 0.
fn scratch(linear: &Linear) -> Option<Vec<Memory>> {
    let memory = |(global, dtype): (gradiff_graph::Global, gradiff_graph::DType)| {
        let size_bytes = usize::try_from(global.size_elements).ok()?;
        let size_bytes = size_bytes.checked_mul(dtype.size_bytes())?;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(size_bytes).ok()?;
        bytes.resize(size_bytes, if dtype.is_float() { 0x3f } else { 0 });
        Memory::from_bytes(dtype, &bytes).ok()
    };
    linear.globals().into_iter().map(memory).collect()
}

/// The least time of a few runs, by the device's clock where it has one; `None` for a candidate
/// that is much slower than the best, or that the limit ended.
fn time(
    device: &dyn Device,
    executable: &dyn Executable,
    scratch: &[Memory],
    best: Option<Duration>,
    limit: Duration,
) -> Result<Option<Duration>, gradiff_runtime::Error> {
    let memories: Vec<&Memory> = scratch.iter().collect();
    let start = Instant::now();
    let mut least = Duration::MAX;
    for count in 1.. {
        least = least.min(device.time(executable, &memories)?);
        let taken = start.elapsed();
        if best.is_some_and(|best| limit <= taken || best * SLOW + SLACK < least) {
            return Ok(None);
        }
        if LONG <= taken || RUNS <= count && SHORT <= taken {
            break;
        }
    }
    Ok(Some(least))
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{Engine, Plan, Tensor};

    const LIMIT: Duration = Duration::from_secs(LIMIT_SECONDS);

    /// An engine that searches and keeps what it finds in this directory.
    fn engine(device: &str, directory: &Path) -> Engine {
        let mut engine = Engine::new(device).unwrap();
        engine.beam = 2;
        let cache = Cache::at(directory, ENDING, 1 << 20).unwrap();
        engine.searches =
            Searches { cache: OnceLock::from(Some(cache)), count: AtomicUsize::new(0) };
        engine
    }

    /// Inputs and their product; sums of these numbers are exact in any order.
    fn product(size: i64) -> [Tensor; 3] {
        let numbers = |step: i64| -> Vec<f32> {
            (0..size * size).map(|number| (number * step % 7 - 3) as f32).collect()
        };
        let [left, right] =
            [3, 5].map(|step| Tensor::from_slice(&[size, size], &numbers(step)).unwrap());
        let rows = left.reshape(&[size, 1, size]).unwrap();
        let columns = right.permute(&[1, 0]).unwrap().reshape(&[1, size, size]).unwrap();
        let product = rows.mul(&columns).unwrap().sum(&[2]).unwrap();
        [left, right, product]
    }

    /// Plans the product, and runs it.
    fn plan(engine: &Engine, size: i64) -> (Plan, Vec<u8>) {
        let [left, right, product] = product(size);
        let before = [&left, &right].map(|tensor| tensor.read().unwrap());
        let mut plans = [engine.plan(&[&product]).unwrap()];
        engine.compile(&mut plans).unwrap();
        engine.run(&plans[0]).unwrap();
        let after = [&left, &right].map(|tensor| tensor.read().unwrap());
        assert_eq!(before, after, "a search leaves the data alone");
        let [plan] = plans;
        (plan, product.read().unwrap())
    }

    /// The key of the product's kernel.
    fn key(engine: &Engine, plan: &Plan) -> String {
        engine.search(&engine.settings()).key(&plan.items[0].ast)
    }

    fn entries(directory: &Path) -> Vec<PathBuf> {
        let listing = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
        listing.filter(|path| path.extension().is_some_and(|ending| ending == ENDING)).collect()
    }

    #[test]
    fn searched_kernels_compute_the_same_and_are_searched_once() {
        for (device, size) in [("jit", 12), ("interp", 4), ("c", 4)] {
            let directory = tempfile::tempdir().unwrap();
            let mut plain = Engine::new(device).unwrap();
            plain.beam = 0;
            let (unsearched, expected) = plan(&plain, size);
            assert_eq!((plain.search_count(), &unsearched.items[0].opts), (0, &None));

            let first = engine(device, directory.path());
            let (found, result) = plan(&first, size);
            assert_eq!(result, expected, "{device}");
            assert_eq!((first.search_count(), entries(directory.path()).len()), (1, 1));
            plan(&first, size);
            assert_eq!(first.search_count(), 1, "the engine keeps what it lowered");
            let opts = found.items[0].opts.clone().expect("a search finds opts");
            let settings = first.settings();
            let search = first.search(&settings);
            let tree = Tree::of(&found.items[0].ast, &search).unwrap();
            assert!(tree.after(&opts, search.options).is_some(), "{opts:?} are legal");

            let second = engine(device, directory.path());
            let (again, result) = plan(&second, size);
            assert_eq!(result, expected);
            assert_eq!((second.search_count(), &again.items[0].opts), (0, &Some(opts)));
            assert_eq!(again.items[0].linear, found.items[0].linear);
        }
    }

    #[test]
    fn damaged_or_illegal_entry_is_searched_anew() {
        let directory = tempfile::tempdir().unwrap();
        let first = engine("jit", directory.path());
        let (found, expected) = plan(&first, 6);
        let cache = first.searches.cache().unwrap();
        let key = key(&first, &found);
        let path = cache.path_of(&key);
        let whole = std::fs::read(&path).unwrap();
        let flipped = |at: usize| {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            damaged
        };
        for damaged in [whole[..whole.len() / 2].to_vec(), Vec::new(), flipped(0), flipped(12)] {
            std::fs::write(&path, damaged).unwrap();
            let next = engine("jit", directory.path());
            assert_eq!(plan(&next, 6).1, expected);
            assert_eq!(next.search_count(), 1);
        }
        // Whole, but not what a search of this kernel keeps.
        for text in ["", "finished 1\n", "finished 1\n10 ns: upcast 0 5\n", "done 1\n10 ns: \n"] {
            cache.add(&key, text.as_bytes()).unwrap();
            let next = engine("jit", directory.path());
            assert_eq!(plan(&next, 6).1, expected);
            assert_eq!(next.search_count(), 1, "{text:?}");
        }
    }

    #[test]
    fn interrupted_search_goes_on_from_its_best() {
        let directory = tempfile::tempdir().unwrap();
        let first = engine("jit", directory.path());
        let (found, expected) = plan(&first, 6);
        let cache = first.searches.cache().unwrap();
        let key = key(&first, &found);
        cache.add(&key, b"round 15\n10 ns: upcast 0 2\n").unwrap();
        let next = engine("jit", directory.path());
        let (resumed, result) = plan(&next, 6);
        assert_eq!((next.search_count(), result), (1, expected));
        let text = String::from_utf8(cache.read(&key).unwrap()).unwrap();
        let state = State::parse(&text).unwrap();
        // One round was left, so that all opts are those of the entry and at most one more.
        assert!(state.is_finished && state.round == 16, "{text}");
        assert!(state.beam.iter().all(|timed| timed.opts[0].to_string() == "upcast 0 2"), "{text}");
        assert!(state.beam.iter().all(|timed| timed.opts.len() <= 2), "{text}");
        assert_eq!(resumed.items[0].opts.as_deref(), Some(state.beam[0].opts.as_slice()));
    }

    #[test]
    fn state_is_kept_after_each_round() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine("jit", directory.path());
        let [_, _, product] = product(12);
        let ast = &engine.plan(&[&product]).unwrap().items[0].ast;
        let settings = engine.settings();
        let search = engine.search(&settings);
        let tree = Tree::of(ast, &search).unwrap();
        let kept = std::cell::RefCell::new(Vec::new());
        let keep = |state: &State| kept.borrow_mut().push((state.is_finished, state.round));
        let run = Run { search: &search, ast, tree, seen: FxHashSet::default() };
        let rounds = run.finish(None, &keep).unwrap().round;
        assert!(1 <= rounds, "12 steps can be split");
        let mut expected: Vec<(bool, usize)> = (1..=rounds).map(|round| (false, round)).collect();
        expected.push((true, rounds));
        assert_eq!(kept.into_inner(), expected);
    }

    #[test]
    fn chosen_opts_are_not_searched() {
        let directory = tempfile::tempdir().unwrap();
        for opts in [Strategy::None, Strategy::Fixed(Vec::new())] {
            let mut engine = engine("jit", directory.path());
            engine.kernel.opts = opts;
            plan(&engine, 6);
            assert_eq!(engine.search_count(), 0);
        }
        assert_eq!(entries(directory.path()).len(), 0);
    }

    #[test]
    fn failing_kernel_is_left_out_of_a_compile() {
        let device = gradiff_runtime::device("jit").unwrap();
        let plain = Engine::new("jit").unwrap();
        let (planned, _) = plan(&plain, 12);
        let good = &*planned.items[0].linear;
        // The device has no groups.
        let barrier = gradiff_graph::parse_linears("kernel E\n0 barrier void []").unwrap();
        let bad = BoundedLinear::check(barrier[0].clone()).unwrap();
        let compiled = compile(&*device, &[good, &bad, good], LIMIT);
        let is_there: Vec<bool> = compiled.iter().map(Result::is_ok).collect();
        assert_eq!(is_there, [true, false, true]);
    }

    /// A device that takes all the time it is given for any kernels among which one is `slow`.
    struct Slow {
        null: Arc<dyn Device>,
        /// How many kernels it was given, and how much time.
        asked: Mutex<Vec<(usize, Duration)>>,
    }

    impl Device for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn compile(
            &self,
            kernels: &[&BoundedLinear],
        ) -> Result<Vec<Arc<dyn Executable>>, gradiff_runtime::Error> {
            self.null.compile(kernels)
        }

        fn compile_within(
            &self,
            kernels: &[&BoundedLinear],
            limit: Duration,
        ) -> Result<Vec<Arc<dyn Executable>>, gradiff_runtime::Error> {
            self.asked.lock().unwrap().push((kernels.len(), limit));
            if kernels.iter().all(|kernel| kernel.name != "slow") {
                return self.compile(kernels);
            }
            std::thread::sleep(limit);
            let (compiler, kernels) = ("slow".to_owned(), "slow".to_owned());
            let taken = limit;
            Err(gradiff_runtime::Error::CompilerTooSlow { compiler, kernels, taken, limit })
        }
    }

    /// Which of these kernels a search gets compiled, and what it asks a slow device.
    fn compiled_slowly(names: &[&str], limit: Duration) -> (Vec<bool>, Vec<(usize, Duration)>) {
        let null = gradiff_runtime::device("null").unwrap();
        let linear = |name: &&str| Linear { name: (*name).into(), uops: Vec::new() };
        let bounded = |name: &&str| BoundedLinear::check(linear(name)).unwrap();
        let kernels: Vec<BoundedLinear> = names.iter().map(bounded).collect();
        let slow = Slow { null, asked: Mutex::default() };
        let compiled = compile(&slow, &kernels.iter().collect::<Vec<_>>(), limit);
        let is_there = compiled.iter().map(Result::is_ok).collect();
        (is_there, slow.asked.into_inner().unwrap())
    }

    #[test]
    fn slow_compile_is_given_up_and_costs_its_limit_twice() {
        let limit = Duration::from_millis(320);
        let (is_there, asked) = compiled_slowly(&["E_1", "E_2", "slow", "E_3", "E_4"], limit);
        assert_eq!(is_there, [true, true, false, true, true]);
        // All in one go, which is given 1/32 more for each, then one by one.
        let expected = [(5, limit + Duration::from_millis(40))];
        assert_eq!(asked, [&expected[..], &[(1, limit); 5]].concat());
    }

    #[test]
    fn slow_compiles_do_not_add_up() {
        let limit = Duration::from_millis(32);
        let (is_there, asked) = compiled_slowly(&["slow"; 33], limit);
        assert_eq!(is_there, [false; 33]);
        let given: Duration = asked.iter().map(|(_, time)| *time).sum();
        assert_eq!((asked.len(), asked[0].1), (34, 2 * limit));
        assert!(given <= TRIES * asked[0].1, "{given:?}");
    }

    #[test]
    fn slow_candidate_is_run_once() {
        /// How often it ran, and what the clock of the device says of a run.
        struct Counted(AtomicUsize, Option<Duration>);
        impl Executable for Counted {
            fn run(&self, _: &[&Memory]) -> Result<(), gradiff_runtime::Error> {
                self.0.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
                Ok(())
            }

            fn run_timed(
                &self,
                memories: &[&Memory],
            ) -> Result<Option<Duration>, gradiff_runtime::Error> {
                self.run(memories).map(|()| self.1)
            }
        }
        let device = gradiff_runtime::device("null").unwrap();
        let timed_by = |clock: Option<Duration>, best: Option<Duration>, limit: Duration| {
            let counted = Counted(AtomicUsize::new(0), clock);
            let time = time(&*device, &counted, &[], best, limit).unwrap();
            (time, counted.0.into_inner())
        };
        let timed = |best: Option<Duration>, limit: Duration| {
            let (time, count) = timed_by(None, best, limit);
            (time.is_some(), count)
        };
        let [short, long] = [Duration::from_micros(10), Duration::from_secs(1)];
        assert_eq!(timed(Some(short), LIMIT), (false, 1));
        assert_eq!(timed(Some(long), LIMIT), (true, 3));
        assert_eq!(timed(None, LIMIT), (true, 3));
        assert_eq!(timed(Some(long), short), (false, 1), "the limit ends it");
        // The host takes long, the device does not.
        assert_eq!(timed_by(Some(short), Some(short), LIMIT), (Some(short), 3));
    }

    #[test]
    fn state_reads_back_and_nothing_else_does() {
        let opts = |text: &str| text.split(", ").map(|opt| opt.parse().unwrap()).collect();
        let timed = |nanos, opts| Timed { time: Duration::from_nanos(nanos), opts };
        let beam = vec![timed(12, opts("upcast 0 4, unroll 1 0")), timed(13, Vec::new())];
        let state = State { round: 3, is_finished: false, beam };
        let text = state.to_string();
        assert_eq!(text, "round 3\n12 ns: upcast 0 4, unroll 1 0\n13 ns: \n");
        assert_eq!(State::parse(&text), Some(state));
        for text in ["", "round 3\n", "round x\n1 ns: \n", "finished 1\n1 ns: upcast 0\n", "1\n2"] {
            assert_eq!(State::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn width_takes_small_numbers_and_nothing_else() {
        assert_eq!((parse_width("0").ok(), parse_width("64").ok()), (Some(0), Some(64)));
        for text in ["65", "-1", "yes", "", "2.5"] {
            let error = parse_width(text).unwrap_err().to_string();
            assert!(error.contains(&format!("BEAM={text}: ")), "{error}");
            assert!(error.contains("0 (no search) to 64"), "{error}");
        }
    }

    #[test]
    fn limit_takes_seconds_and_nothing_else() {
        assert_eq!(parse_limit("1").ok(), Some(Duration::from_secs(1)));
        assert_eq!(parse_limit("3600").ok(), Some(Duration::from_secs(3600)));
        for text in ["0", "3601", "-1", "yes", "", "2.5"] {
            let error = parse_limit(text).unwrap_err().to_string();
            assert!(error.contains(&format!("BEAM_TIMEOUT_SEC={text}: ")), "{error}");
            assert!(error.contains("from 1 to 3600"), "{error}");
        }
    }
}
