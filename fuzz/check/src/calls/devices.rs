//! Engines on a device that counts what is asked of it and says itself how long kernels take: what
//! is compiled when, and what a search finds.
//!
//! Kernels run on the interpreter. What a kernel costs follows from its text, so that the best one
//! of all that a search has run is known.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gradiff::graph::BoundedLinear;
use gradiff::kernel::Target;
use gradiff::runtime::{Device, Error, Executable, Limits, Memory, device};
use gradiff::{Engine, Tensor};

use super::Draw;

/// Searches of a process that begin with nothing on disk; later ones find what those kept.
const SEARCHES: u64 = 3;

/// Requests that a device was given.
#[derive(Default)]
struct Asked {
    /// The text of each kernel that was compiled.
    compiled: Vec<String>,
    /// The text of each kernel that was run by the clock.
    timed: Vec<String>,
}

/// The interpreter, and what is asked of it.
struct Counting {
    inner: Arc<dyn Device>,
    asked: Arc<Mutex<Asked>>,
    said: String,
    kernel_cache_capacity: usize,
    /// Of how many kernels one is refused while a search is on; 0 for none.
    refuses_one_in: u64,
}

struct Counted {
    inner: Arc<dyn Executable>,
    asked: Arc<Mutex<Asked>>,
    text: String,
}

fn hash(text: &str) -> u64 {
    crate::report::hash(text)
}

/// The time that a kernel takes, which is long enough that it is run a few times only.
fn cost(text: &str) -> Duration {
    Duration::from_micros(1000 + hash(text) % 30_000)
}

/// The text of a kernel but for its name.
fn text(kernel: &BoundedLinear) -> String {
    let text = kernel.to_string();
    text.split_once('\n').map_or(text.clone(), |(_, uops)| uops.to_string())
}

impl Counting {
    fn is_refused(&self, text: &str) -> bool {
        self.refuses_one_in != 0 && (hash(text) >> 20).is_multiple_of(self.refuses_one_in)
    }
}

impl Device for Counting {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let texts: Vec<String> = kernels.iter().map(|kernel| text(kernel)).collect();
        if texts.iter().any(|text| self.is_refused(text)) {
            let (device, why) = ("interp", "it is refused".to_string());
            return Err(Error::Unavailable { device, why });
        }
        let made = self.inner.compile(kernels)?;
        let mut asked = self.asked.lock().expect("no panic holds it");
        asked.compiled.extend(texts.iter().cloned());
        drop(asked);
        let counted = |(inner, text)| -> Arc<dyn Executable> {
            Arc::new(Counted { inner, asked: self.asked.clone(), text })
        };
        Ok(made.into_iter().zip(texts).map(counted).collect())
    }

    fn target(&self) -> &'static str {
        self.inner.target()
    }

    fn describe(&self) -> String {
        self.said.clone()
    }

    fn kernel_cache_capacity(&self) -> usize {
        self.kernel_cache_capacity
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }
}

impl Executable for Counted {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        self.inner.run(memories)
    }

    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        self.inner.run(memories)?;
        self.asked.lock().expect("no panic holds it").timed.push(self.text.clone());
        Ok(Some(cost(&self.text)))
    }
}

/// An engine on a device that counts, and what it was asked.
fn engine(said: &str, refuses_one_in: u64) -> Result<(Engine, Arc<Mutex<Asked>>), String> {
    let asked: Arc<Mutex<Asked>> = Arc::default();
    let inner = device("interp").map_err(|error| error.to_string())?;
    let counting = Counting {
        kernel_cache_capacity: inner.kernel_cache_capacity(),
        inner,
        asked: asked.clone(),
        said: said.to_string(),
        refuses_one_in,
    };
    let mut engine = Engine::new("interp").map_err(|error| error.to_string())?;
    engine.device = Arc::new(counting);
    Ok((engine, asked))
}

/// A tensor to compute, and its elements.
fn work(number: i32, size: usize) -> Result<(Tensor, Vec<i32>), gradiff::Error> {
    let elements: Vec<i32> = (0..size as i32 * 2).map(|at| at * 7 - 5).collect();
    let x = Tensor::from_slice(&[size as i64, 2], &elements)?;
    let sum = x.mul(number)?.sum(&[1])?;
    let wanted = elements.chunks(2).map(|pair| (pair[0] + pair[1]) * number).collect();
    Ok((sum, wanted))
}

/// A kernel that was planned once is not compiled again, however it is asked for.
pub(super) fn compiled_once(draw: &mut Draw) -> Result<(), String> {
    let (engine, asked) = engine("counts", 0)?;
    let problem = |error: gradiff::Error| error.to_string();
    let mut known: Vec<i32> = Vec::new();
    for _ in 0..5 {
        let number = 2 + draw.below(4) as i32;
        let (x, wanted) = work(number, 2).map_err(problem)?;
        let before = asked.lock().expect("no panic holds it").compiled.len();
        let expected = usize::from(!known.contains(&number));
        if draw.one_in(3) {
            // Two plans of the same kernel, one compile.
            let (y, _) = work(number, 2).map_err(problem)?;
            let first = engine.plan(&[&x]).map_err(problem)?;
            let mut plans = [first, engine.plan(&[&y]).map_err(problem)?];
            let count: usize = plans.iter().map(gradiff::Plan::kernel_count).sum();
            if count != 2 {
                return Err(format!("two sums are {count} kernels"));
            }
            engine.compile(&mut plans).map_err(problem)?;
            let [mut all, later] = plans;
            all.append(later);
            let names: Vec<&str> = all.items.iter().map(|item| &*item.linear.name).collect();
            if names[0] == names[1] {
                return Err(format!("two kernels of a plan are called {}", names[0]));
            }
            engine.run(&all).map_err(problem)?;
            let other = y.to_vec::<i32>(&engine).map_err(problem)?;
            if other != wanted {
                return Err(format!("the second of two plans gives {other:?}, not {wanted:?}"));
            }
        }
        let found = x.to_vec::<i32>(&engine).map_err(problem)?;
        if found != wanted {
            return Err(format!("a sum of products with {number} is {found:?}, not {wanted:?}"));
        }
        // All is there already.
        x.realize(&engine).map_err(problem)?;
        let compiled = asked.lock().expect("no panic holds it").compiled.len() - before;
        if compiled != expected {
            return Err(format!("{compiled} kernels are compiled, not {expected}"));
        }
        if expected == 1 {
            known.push(number);
        }
        let (count, known) = (engine.cached_kernel_count(), known.len());
        if count != known {
            return Err(format!("the engine keeps {count} kernels, not {known}"));
        }
    }
    Ok(())
}

/// A search finds the best of all that it has run, and is not done again.
pub(super) fn searches(_: &mut Draw) -> Result<(), String> {
    // One at a time, so that what a search keeps is there for those after it.
    static NUMBER: Mutex<u64> = Mutex::new(0);
    static PROCESS: OnceLock<u64> = OnceLock::new();
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(0));
    let mut number = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
    let (turn, is_first) = (*number % SEARCHES, *number < SEARCHES);
    *number += 1;
    let said = format!("counts in process {process:x}, {turn}");
    let refuses_one_in = if turn % 2 == 1 { 4 } else { 0 };
    let problem = |error: gradiff::Error| error.to_string();
    let mut found: Vec<Option<String>> = Vec::new();
    for is_again in [false, true] {
        let (mut engine, asked) = engine(&said, refuses_one_in)?;
        engine.set_target(Target::named("groups").unwrap_or_default());
        engine.beam = 1 + turn as usize % 3;
        let (x, wanted) = work(3, 4 + 2 * turn as usize).map_err(problem)?;
        let plan = engine.plan(&[&x]).map_err(problem)?;
        let [item] = &plan.items[..] else { return Err("a sum is several kernels".to_string()) };
        let (opts, text) = (item.opts.clone(), text(&item.linear));
        {
            let asked = asked.lock().expect("no panic holds it");
            let is_new = is_first && !is_again;
            let (timed, searched) = (asked.timed.len(), engine.search_count());
            if !is_new && (timed != 0 || !asked.compiled.is_empty() || searched != 0) {
                return Err(format!("a search that is on disk is done again: {timed} are timed"));
            }
            if is_new && (timed == 0 || searched != 1) {
                return Err(format!("{searched} searches run {timed} kernels"));
            }
            if let Some(best) = asked.timed.iter().min_by_key(|text| cost(text))
                && (opts.is_none() || cost(best) < cost(&text))
            {
                return Err(format!("{opts:?} take {:?}, not {:?}", cost(&text), cost(best)));
            }
        }
        let mut plans = [plan];
        engine.compile(&mut plans).map_err(problem)?;
        engine.run(&plans[0]).map_err(problem)?;
        let elements = x.to_vec::<i32>(&engine).map_err(problem)?;
        if elements != wanted {
            return Err(format!("with {opts:?} a sum is {elements:?}, not {wanted:?}"));
        }
        found.push(opts.map(|opts| format!("{opts:?}")));
    }
    match found[0] == found[1] {
        true => Ok(()),
        false => Err(format!("a search finds {:?}, and kept {:?}", found[0], found[1])),
    }
}
