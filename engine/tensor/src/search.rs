//! Beam search for the opts of a kernel, by timing candidates.
//!
//! The first candidates are the heuristic's opts and all prefixes of them. Each round extends each
//! of the best candidates by every legal opt, compiles and times the results on scratch memories
//! (`Device::time`) and keeps the best `width`. A round that gains less than 1 % is the last. After
//! each round the state is saved on disk, under a key of everything that it depends on, so an
//! interrupted search is resumed and a finished one is never repeated. Entries that are damaged, or
//! whose opts are no longer legal, are ignored. If a search is not possible, since there is too
//! little memory or the kernel fails, the heuristic is used; the error is reported when the kernel
//! is compiled.
//!
//! A candidate is dropped if compiling or running it takes longer than a limit. Only a compiler in
//! a process of its own (of the device `c`) can be stopped; for the others the number of uops is
//! limited, which keeps compiles short.

use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gradiff_graph::{BoundedLinear, Linear, Target, UOp};
use gradiff_kernel::passes::{Context, before_optimize};
use gradiff_kernel::{Opt, Options, Setting, Strategy};
use gradiff_rewrite::Trace;
use gradiff_runtime::{Cache, Device, Executable, Memory};
use rustc_hash::{FxHashSet, FxHasher};

/// The maximum number of extensions of a candidate.
const MAX_EXTENSIONS: usize = 64;
/// The maximum number of rounds.
const MAX_ROUNDS: usize = 16;
/// The maximum number of uops of a candidate. Larger candidates take too long to compile, and a
/// compiler in this process cannot be stopped.
const MAX_UOPS: usize = 3000;
/// A candidate is dropped if its first run takes longer than this many times the best time, plus
/// [`SLACK`].
const SLOW: u32 = 3;
/// The additional time that the first run of any candidate may take.
const SLACK: Duration = Duration::from_micros(50);
/// The number of runs of a candidate, unless [`SHORT`] or [`LONG`] changes it.
const RUNS: u32 = 3;
/// While the runs of a candidate take less than this in total, it is run again.
const SHORT: Duration = Duration::from_millis(2);
/// Once the runs of a candidate take this long in total, it is not run again.
const LONG: Duration = Duration::from_millis(500);
/// If a call compiles several candidates, each after the first adds the limit of a single candidate
/// divided by this number. gcc 12 takes 0.1 s for a candidate on one core.
const SHARE: u32 = 32;
/// All compiles of a round together may take this many times the limit of the first call.
const TRIES: u32 = 3;
/// The file extension of saved searches.
const EXTENSION: &str = "opts";

/// The saved searches on disk, and the number of searches of an engine.
#[derive(Default)]
pub(crate) struct SearchCache {
    cache: OnceLock<Option<Cache>>,
    count: AtomicUsize,
}

impl SearchCache {
    /// The number of kernels that were searched, without those found on disk.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    fn cache(&self) -> Option<&Cache> {
        self.cache.get_or_init(|| Cache::open(EXTENSION).ok()).as_ref()
    }
}

/// The parameters of a search, without the kernel.
pub(crate) struct Search<'a> {
    /// The device that candidates run on.
    pub(crate) device: &'a dyn Device,
    /// The target that candidates are lowered for.
    pub(crate) target: &'a Target,
    /// The options of lowering; the opts in them are replaced.
    pub(crate) options: &'a Options,
    /// A description of everything that lowering and compiling depend on.
    pub(crate) settings: &'a str,
    /// The number of candidates that a round keeps.
    pub(crate) width: usize,
    /// The time limit for compiling a candidate, and for running it.
    pub(crate) limit: Duration,
    /// True if saved searches are repeated.
    pub(crate) ignores_saved: bool,
    /// At level 1 and above, each round is reported on stderr.
    pub(crate) debug_level: u8,
}

impl Search<'_> {
    /// Returns the best opts for a kernel, from disk or by a search; `None` if a search is not
    /// possible.
    pub(crate) fn best(&self, ast: &UOp, searches: &SearchCache) -> Option<Arc<[Opt]>> {
        // Concurrent searches would disturb each other's timings.
        static SEARCHING: Mutex<()> = Mutex::new(());
        let _searching = SEARCHING.lock().unwrap_or_else(PoisonError::into_inner);
        let tree = Tree::new(ast, self.target, self.options)?;
        let key = self.key(ast);
        let readable = searches.cache().filter(|_| !self.ignores_saved);
        let saved = readable.and_then(|cache| cache.read(&key));
        let saved = saved.and_then(|text| State::parse(std::str::from_utf8(&text).ok()?));
        let saved = saved.filter(|state| {
            state.beam.iter().all(|timed| tree.apply(&timed.opts, self.options).is_some())
        });
        let state = match saved {
            Some(state) if state.is_finished => state,
            unfinished => {
                searches.count.fetch_add(1, Ordering::Relaxed);
                let save = |state: &State| self.save(searches, &key, state);
                Run { search: self, ast, tree, seen: FxHashSet::default() }
                    .finish(unfinished, &save)?
            }
        };
        assert!(state.is_finished, "a search that returns a state has finished");
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

    /// Saves the state on disk. If that fails, a later search begins anew.
    fn save(&self, searches: &SearchCache, key: &str, state: &State) {
        let Some(cache) = searches.cache() else { return };
        if let Err(error) = cache.add(key, state.to_string().as_bytes()) {
            self.log(|| format!("not saved: {error}"));
        }
    }

    fn log(&self, text: impl FnOnce() -> String) {
        if 1 <= self.debug_level {
            eprintln!("beam {}", text());
        }
    }
}

/// Returns the opts that the strategy of the options chooses for a kernel; `None` if it cannot be
/// lowered.
pub(crate) fn chosen(ast: &UOp, target: &Target, options: &Options) -> Option<Vec<Opt>> {
    let tree = Tree::new(ast, target, options)?;
    let setting = tree.setting(options);
    match &options.opts {
        Strategy::None => Some(Vec::new()),
        Strategy::Fixed(opts) => Some(opts.clone()),
        Strategy::Drawn { seed, limit } => {
            gradiff_kernel::draw(&tree.root, *seed, *limit, setting).ok()
        }
        Strategy::Heuristic => gradiff_kernel::heuristic(&tree.root, setting).ok(),
    }
}

/// A kernel as it is before the pass `optimize`.
struct Tree {
    root: UOp,
    target: Target,
}

impl Tree {
    fn new(ast: &UOp, target: &Target, options: &Options) -> Option<Tree> {
        let mut trace = Trace::default();
        let mut ctx = Context::new(ast, target, options, &mut trace);
        let root = before_optimize(ast, &mut ctx).ok()?;
        Some(Tree { root, target: ctx.target })
    }

    fn setting(&self, options: &Options) -> Setting<'_> {
        Setting { mode: options.rewrite.mode, target: &self.target }
    }

    /// Returns the kernel with these opts, if they are legal.
    fn apply(&self, opts: &[Opt], options: &Options) -> Option<UOp> {
        let setting = self.setting(options);
        let apply = |root: UOp, opt: &Opt| gradiff_kernel::apply(&root, *opt, setting).ok();
        opts.iter().try_fold(self.root.clone(), apply)
    }

    /// Extends `opts` by each legal opt, or by [`MAX_EXTENSIONS`] evenly spaced ones if there are
    /// more.
    fn extensions(&self, opts: &[Opt], options: &Options) -> Vec<Vec<Opt>> {
        let legal = self.apply(opts, options).and_then(|root| {
            let legal = gradiff_kernel::legal(&root, self.setting(options));
            legal.ok()
        });
        let legal = legal.unwrap_or_default();
        let count = legal.len().min(MAX_EXTENSIONS);
        let chosen = (0..count).map(|number| legal[number * legal.len() / count]);
        chosen.map(|opt| [opts, &[opt]].concat()).collect()
    }
}

/// Opts of a kernel, and the shortest time of the kernel with them.
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

/// The state of a search, as saved on disk.
#[derive(Debug, PartialEq, Eq)]
struct State {
    round: usize,
    is_finished: bool,
    /// The best candidates so far, best first; never empty.
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

/// A search of one kernel in progress.
struct Run<'a> {
    search: &'a Search<'a>,
    ast: &'a UOp,
    tree: Tree,
    /// Hashes of the kernels that were candidates: different opts may give the same kernel.
    seen: FxHashSet<u64>,
}

impl Run<'_> {
    /// Runs the search to its end, from the beginning or from a saved state, and calls `save` with
    /// the state after each round. `None` if the search is not possible.
    fn finish(mut self, state: Option<State>, save: &dyn Fn(&State)) -> Option<State> {
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
        let mut beam = self.time(starts, &scratch, None);
        beam.sort();
        beam.truncate(search.width);
        let mut best = beam.first()?.clone();
        let initial_time = best.time;
        let mut state = State { round: state.map_or(0, |s| s.round), is_finished: false, beam };
        while best.time < search.limit && state.round < MAX_ROUNDS {
            let next = state.beam.iter();
            let next =
                next.flat_map(|timed| self.tree.extensions(&timed.opts, search.options)).collect();
            let candidates = self.candidates(next, MAX_UOPS);
            if candidates.is_empty() {
                break;
            }
            state.round += 1;
            let (round, count) = (state.round, candidates.len());
            search.log(|| format!("{name} round {round}: {count} candidates, best {best}"));
            state.beam.extend(self.time(candidates, &scratch, Some(best.time)));
            state.beam.sort();
            state.beam.truncate(search.width);
            save(&state);
            let before = std::mem::replace(&mut best, state.beam.first()?.clone()).time;
            if before * 99 < best.time * 100 {
                break;
            }
        }
        state.is_finished = true;
        save(&state);
        let ratio = initial_time.as_secs_f64() / best.time.as_secs_f64().max(1e-9);
        search.log(|| format!("{name} done: {best}, {ratio:.2} x as fast as before"));
        Some(state)
    }

    /// Lowers the kernel with each of these lists of opts. Skips kernels that were candidates
    /// before or have too many uops.
    fn candidates(
        &mut self,
        opts_list: Vec<Vec<Opt>>,
        max_uops: usize,
    ) -> Vec<(Vec<Opt>, BoundedLinear)> {
        let mut candidates = Vec::with_capacity(opts_list.len());
        for opts in opts_list {
            let options =
                Options { opts: Strategy::Fixed(opts.clone()), ..self.search.options.clone() };
            let mut trace = Trace::default();
            let lowered = gradiff_kernel::lower(self.ast, self.search.target, &options, &mut trace);
            let Ok(linear) = lowered else { continue };
            let mut hasher = FxHasher::default();
            linear.to_string().hash(&mut hasher);
            if linear.uops.len() <= max_uops && self.seen.insert(hasher.finish()) {
                candidates.push((opts, linear));
            }
        }
        candidates
    }

    /// Compiles and times candidates. Drops those that fail or are much slower than `best`. Without
    /// a best time, drops those after one that exceeds the limit.
    fn time(
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
                    timed.push(Timed { time, opts });
                    // The first candidates of a search have no best time to compare with. Those
                    // that follow would hardly be faster, and a run cannot be stopped.
                    if best.is_none() && limit <= time {
                        break;
                    }
                    best = best.map(|best| best.min(time));
                }
                Ok(None) => {}
                Err(error) => self.search.log(|| {
                    let name = gradiff_kernel::name(self.ast);
                    format!("{name} with {opts:?} is dropped: {error}")
                }),
            }
        }
        timed
    }
}

/// Compiles kernels in one call. If that fails, compiles halves of them, and so on, until it is
/// known which ones fail.
///
/// If it takes too long, compiles them one by one, each within the limit: halves would wait for a
/// slow kernel repeatedly. Kernels that are not compiled after `TRIES` times the limit of the first
/// call are dropped.
fn compile(device: &dyn Device, linears: &[&BoundedLinear], limit: Duration) -> Vec<Compiled> {
    let deadline = Instant::now() + TRIES * compile_limit(linears.len(), limit);
    compile_until(device, linears, limit, deadline)
}

/// A compiled candidate, or the reason why it could not be compiled.
type Compiled = Result<Arc<dyn Executable>, gradiff_runtime::Error>;

/// The time limit for compiling this number of candidates in one call.
fn compile_limit(count: usize, limit: Duration) -> Duration {
    limit + limit / SHARE * (count.saturating_sub(1) as u32)
}

fn compile_until(
    device: &dyn Device,
    linears: &[&BoundedLinear],
    limit: Duration,
    deadline: Instant,
) -> Vec<Compiled> {
    let remaining = deadline.saturating_duration_since(Instant::now());
    match device.compile_within(linears, compile_limit(linears.len(), limit).min(remaining)) {
        Ok(executables) => executables.into_iter().map(Ok).collect(),
        Err(error) if linears.len() <= 1 => vec![Err(error)],
        Err(error) => {
            let is_slow = matches!(error, gradiff_runtime::Error::CompilerTooSlow { .. });
            let parts = linears.chunks(if is_slow { 1 } else { linears.len().div_ceil(2) });
            parts.flat_map(|part| compile_until(device, part, limit, deadline)).collect()
        }
    }
}

/// Allocates memories for a kernel's parameters: floats near 1, other elements 0.
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

/// Returns the shortest time of a few runs, by the device's clock if it has one; `None` if the
/// candidate is much slower than the best or exceeds the limit.
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
    use crate::{Engine, Plan, Tensor, keepdim};

    const LIMIT: Duration = Duration::from_secs(10);

    /// An engine that searches, and saves searches in this directory.
    fn engine(device: &str, directory: &Path) -> Engine {
        let mut engine = Engine::new(device).unwrap();
        engine.beam = 2;
        let cache = Cache::at(directory, EXTENSION, 1 << 20).unwrap();
        engine.searches =
            SearchCache { cache: OnceLock::from(Some(cache)), count: AtomicUsize::new(0) };
        engine
    }

    /// Two matrices and their product; sums of these numbers are exact in any order.
    fn product(size: i64) -> [Tensor; 3] {
        let numbers = |factor: i64| -> Vec<f32> {
            (0..size * size).map(|number| (number * factor % 7 - 3) as f32).collect()
        };
        let [left, right] =
            [3, 5].map(|factor| Tensor::from_slice(&[size, size], &numbers(factor)).unwrap());
        let rows = left.reshape(&[size, 1, size]).unwrap();
        let columns = right.permute(&[1, 0]).unwrap().reshape(&[1, size, size]).unwrap();
        let product = rows.mul(&columns).unwrap().sum(keepdim(2)).unwrap();
        [left, right, product]
    }

    /// Plans and runs the product.
    fn plan(engine: &Engine, size: i64) -> (Plan, Vec<u8>) {
        let [left, right, product] = product(size);
        let inputs_before = [&left, &right].map(|tensor| tensor.to_bytes().unwrap());
        let mut plans = [engine.plan(&[&product]).unwrap()];
        engine.compile(&mut plans).unwrap();
        engine.run(&plans[0]).unwrap();
        let inputs_after = [&left, &right].map(|tensor| tensor.to_bytes().unwrap());
        assert_eq!(inputs_before, inputs_after, "a search does not change the data");
        let [plan] = plans;
        (plan, product.to_bytes().unwrap())
    }

    /// The key of the product's kernel.
    fn key(engine: &Engine, plan: &Plan) -> String {
        engine.search(&engine.settings()).key(&plan.items[0].ast)
    }

    fn entries(directory: &Path) -> Vec<PathBuf> {
        let listing = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
        listing.filter(|path| path.extension().is_some_and(|ending| ending == EXTENSION)).collect()
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
            assert_eq!(first.search_count(), 1, "the engine caches lowered kernels");
            let opts = found.items[0].opts.clone().expect("a search finds opts");
            let settings = first.settings();
            let search = first.search(&settings);
            let tree = Tree::new(&found.items[0].ast, search.target, search.options).unwrap();
            assert!(tree.apply(&opts, search.options).is_some(), "{opts:?} are legal");

            let second = engine(device, directory.path());
            let (again, result) = plan(&second, size);
            assert_eq!(result, expected);
            assert_eq!((second.search_count(), &again.items[0].opts), (0, &Some(opts)));
            assert_eq!(again.items[0].linear, found.items[0].linear);
        }
    }

    #[test]
    fn damaged_or_illegal_entry_is_searched_again() {
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
        // Not damaged, but not a state of a search of this kernel.
        for text in ["", "finished 1\n", "finished 1\n10 ns: upcast 0 5\n", "done 1\n10 ns: \n"] {
            cache.add(&key, text.as_bytes()).unwrap();
            let next = engine("jit", directory.path());
            assert_eq!(plan(&next, 6).1, expected);
            assert_eq!(next.search_count(), 1, "{text:?}");
        }
    }

    #[test]
    fn interrupted_search_is_resumed() {
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
        // One round was left, so all opts are those of the entry and at most one more.
        assert!(state.is_finished && state.round == 16, "{text}");
        assert!(state.beam.iter().all(|timed| timed.opts[0].to_string() == "upcast 0 2"), "{text}");
        assert!(state.beam.iter().all(|timed| timed.opts.len() <= 2), "{text}");
        assert_eq!(resumed.items[0].opts.as_deref(), Some(state.beam[0].opts.as_slice()));
    }

    #[test]
    fn state_is_saved_after_each_round() {
        let directory = tempfile::tempdir().unwrap();
        let engine = engine("jit", directory.path());
        let [_, _, product] = product(12);
        let ast = &engine.plan(&[&product]).unwrap().items[0].ast;
        let settings = engine.settings();
        let search = engine.search(&settings);
        let tree = Tree::new(ast, search.target, search.options).unwrap();
        let saved = std::cell::RefCell::new(Vec::new());
        let save = |state: &State| saved.borrow_mut().push((state.is_finished, state.round));
        let run = Run { search: &search, ast, tree, seen: FxHashSet::default() };
        let rounds = run.finish(None, &save).unwrap().round;
        assert!(1 <= rounds, "12 iterations can be split");
        let mut expected: Vec<(bool, usize)> = (1..=rounds).map(|round| (false, round)).collect();
        expected.push((true, rounds));
        assert_eq!(saved.into_inner(), expected);
    }

    #[test]
    fn fixed_opts_are_not_searched() {
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
    fn failing_kernel_does_not_fail_the_others() {
        let device = gradiff_runtime::device("jit").unwrap();
        let plain = Engine::new("jit").unwrap();
        let (planned, _) = plan(&plain, 12);
        let good = &*planned.items[0].linear;
        // The device has no groups.
        let barrier = gradiff_graph::text::parse_linears("kernel E\n0 barrier void []").unwrap();
        let bad = BoundedLinear::check(barrier[0].clone()).unwrap();
        let compiled = compile(&*device, &[good, &bad, good], LIMIT);
        let is_compiled: Vec<bool> = compiled.iter().map(Result::is_ok).collect();
        assert_eq!(is_compiled, [true, false, true]);
    }

    /// A device that exhausts the time limit if one of the kernels is named `slow`.
    struct Slow {
        null: Arc<dyn Device>,
        /// The number of kernels and the limit of each call.
        calls: Mutex<Vec<(usize, Duration)>>,
    }

    impl Device for Slow {
        fn name(&self) -> &'static str {
            "slow"
        }

        fn target(&self) -> Target {
            self.null.target()
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
            self.calls.lock().unwrap().push((kernels.len(), limit));
            if kernels.iter().all(|kernel| kernel.name != "slow") {
                return self.compile(kernels);
            }
            std::thread::sleep(limit);
            let (compiler, kernels) = ("slow".to_owned(), "slow".to_owned());
            let elapsed = limit;
            Err(gradiff_runtime::Error::CompilerTooSlow { compiler, kernels, elapsed, limit })
        }
    }

    /// Compiles kernels on [`Slow`]: which ones are compiled, and the calls to the device.
    fn compiled_slowly(names: &[&str], limit: Duration) -> (Vec<bool>, Vec<(usize, Duration)>) {
        let null = gradiff_runtime::device("null").unwrap();
        let linear = |name: &&str| Linear { name: (*name).into(), uops: Vec::new() };
        let bounded = |name: &&str| BoundedLinear::check(linear(name)).unwrap();
        let kernels: Vec<BoundedLinear> = names.iter().map(bounded).collect();
        let slow = Slow { null, calls: Mutex::default() };
        let compiled = compile(&slow, &kernels.iter().collect::<Vec<_>>(), limit);
        let is_compiled = compiled.iter().map(Result::is_ok).collect();
        (is_compiled, slow.calls.into_inner().unwrap())
    }

    #[test]
    fn slow_compile_costs_its_limit_twice() {
        let limit = Duration::from_millis(320);
        let (is_compiled, calls) = compiled_slowly(&["E_1", "E_2", "slow", "E_3", "E_4"], limit);
        assert_eq!(is_compiled, [true, true, false, true, true]);
        // One call for all, with 1/32 more time for each further kernel; then one by one.
        let expected = [(5, limit + Duration::from_millis(40))];
        assert_eq!(calls, [&expected[..], &[(1, limit); 5]].concat());
    }

    #[test]
    fn time_of_slow_compiles_is_bounded() {
        let limit = Duration::from_millis(32);
        let (is_compiled, calls) = compiled_slowly(&["slow"; 33], limit);
        assert_eq!(is_compiled, [false; 33]);
        let given: Duration = calls.iter().map(|(_, time)| *time).sum();
        assert_eq!((calls.len(), calls[0].1), (34, 2 * limit));
        assert!(given <= TRIES * calls[0].1, "{given:?}");
    }

    #[test]
    fn slow_candidate_is_run_once() {
        /// The number of runs, and the time of a run by the device's clock.
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

    /// A device by whose clock each run takes this time, and the kernels that ran.
    struct Clocked(Duration, Arc<Mutex<FxHashSet<String>>>);

    /// A kernel of [`Clocked`], by name.
    struct ClockedKernel(String, Duration, Arc<Mutex<FxHashSet<String>>>);

    impl Device for Clocked {
        fn name(&self) -> &'static str {
            "clocked"
        }

        fn target(&self) -> Target {
            Target::PLAIN
        }

        fn describe(&self) -> String {
            String::new()
        }

        fn compile(
            &self,
            kernels: &[&BoundedLinear],
        ) -> Result<Vec<Arc<dyn Executable>>, gradiff_runtime::Error> {
            let compile = |kernel: &&BoundedLinear| -> Arc<dyn Executable> {
                Arc::new(ClockedKernel(kernel.name.clone(), self.0, self.1.clone()))
            };
            Ok(kernels.iter().map(compile).collect())
        }
    }

    impl Executable for ClockedKernel {
        fn run(&self, _: &[&Memory]) -> Result<(), gradiff_runtime::Error> {
            self.2.lock().unwrap().insert(self.0.clone());
            Ok(())
        }

        fn run_timed(
            &self,
            memories: &[&Memory],
        ) -> Result<Option<Duration>, gradiff_runtime::Error> {
            self.run(memories).map(|()| Some(self.1))
        }
    }

    /// The limit did not apply to the first candidates, since they have no best time.
    #[test]
    fn first_candidate_beyond_the_limit_is_the_last() {
        let mut engine = Engine::new("jit").unwrap();
        engine.beam = 0;
        let [_, _, product] = product(4);
        let ast = &engine.plan(&[&product]).unwrap().items[0].ast;
        let settings = engine.settings();
        for (time, expected) in [(LIMIT, 1), (LIMIT / 2, 3)] {
            let device = Clocked(time, Arc::default());
            let search = Search { device: &device, limit: LIMIT, ..engine.search(&settings) };
            let tree = Tree::new(ast, search.target, search.options).unwrap();
            let run = Run { search: &search, ast, tree, seen: FxHashSet::default() };
            let candidate = |name: &str| {
                let linear = Linear { name: name.into(), uops: Vec::new() };
                (Vec::new(), BoundedLinear::check(linear).unwrap())
            };
            let candidates = ["E_1", "E_2", "E_3"].map(candidate).into_iter().collect();
            let timed = run.time(candidates, &[], None);
            let ran = device.1.lock().unwrap().len();
            assert_eq!((timed.len(), ran), (expected, expected), "{time:?}");
        }
    }

    #[test]
    fn state_round_trips_and_other_text_is_refused() {
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
}
