//! Engines on a device that records its requests and reports times of its own choice: when kernels
//! are compiled, and the result of a search. Errors of devices: which are the machine's fault.
//!
//! Kernels run on the interpreter. The time of a kernel follows from its text, so the best kernel
//! of those that a search has run is known.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use gradiff::graph::{BoundedLinear, Target};
use gradiff::runtime::{Device, Error, Executable, Memory, device};
use gradiff::{Engine, Tensor, keepdim};

use super::Draw;

/// Number of searches of a process that begin with nothing on disk; later ones find their results.
const SEARCHES: u64 = 3;

/// The requests to a device.
#[derive(Default)]
struct Requests {
    /// The text of each kernel that was compiled.
    compiled: Vec<String>,
    /// The text of each kernel that was timed.
    timed: Vec<String>,
}

/// The interpreter, and the requests to it.
struct Recording {
    inner: Arc<dyn Device>,
    requests: Arc<Mutex<Requests>>,
    description: String,
    kernel_cache_capacity: usize,
    /// One in this many kernels is refused; 0 for none.
    refuses_one_in: u64,
}

struct Recorded {
    inner: Arc<dyn Executable>,
    requests: Arc<Mutex<Requests>>,
    text: String,
}

fn hash(text: &str) -> u64 {
    crate::report::hash(text)
}

/// The reported time of a kernel, long enough that it is run only a few times.
fn cost(text: &str) -> Duration {
    Duration::from_micros(1000 + hash(text) % 30_000)
}

/// The text of a kernel without its name.
fn text(kernel: &BoundedLinear) -> String {
    let text = kernel.to_string();
    text.split_once('\n').map_or(text.clone(), |(_, uops)| uops.to_string())
}

impl Recording {
    fn is_refused(&self, text: &str) -> bool {
        self.refuses_one_in != 0 && (hash(text) >> 20).is_multiple_of(self.refuses_one_in)
    }
}

impl Device for Recording {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn compile(&self, kernels: &[&BoundedLinear]) -> Result<Vec<Arc<dyn Executable>>, Error> {
        let texts: Vec<String> = kernels.iter().map(|kernel| text(kernel)).collect();
        if texts.iter().any(|text| self.is_refused(text)) {
            let (device, why) = ("interp", "it is refused".to_string());
            return Err(Error::Unavailable { device, why });
        }
        let executables = self.inner.compile(kernels)?;
        let mut requests = self.requests.lock().expect("no panic holds it");
        requests.compiled.extend(texts.iter().cloned());
        drop(requests);
        let recorded = |(inner, text)| -> Arc<dyn Executable> {
            Arc::new(Recorded { inner, requests: self.requests.clone(), text })
        };
        Ok(executables.into_iter().zip(texts).map(recorded).collect())
    }

    fn target(&self) -> Target {
        self.inner.target()
    }

    fn describe(&self) -> String {
        self.description.clone()
    }

    fn kernel_cache_capacity(&self) -> usize {
        self.kernel_cache_capacity
    }
}

impl Executable for Recorded {
    fn run(&self, memories: &[&Memory]) -> Result<(), Error> {
        self.inner.run(memories)
    }

    fn run_timed(&self, memories: &[&Memory]) -> Result<Option<Duration>, Error> {
        self.inner.run(memories)?;
        self.requests.lock().expect("no panic holds it").timed.push(self.text.clone());
        Ok(Some(cost(&self.text)))
    }
}

/// An engine on a recording device, and the requests to it.
fn engine(
    description: &str,
    refuses_one_in: u64,
) -> Result<(Engine, Arc<Mutex<Requests>>), String> {
    let requests: Arc<Mutex<Requests>> = Arc::default();
    let inner = device("interp").map_err(|error| error.to_string())?;
    let recording = Recording {
        kernel_cache_capacity: inner.kernel_cache_capacity(),
        inner,
        requests: requests.clone(),
        description: description.to_string(),
        refuses_one_in,
    };
    let mut engine = Engine::new("interp").map_err(|error| error.to_string())?;
    engine.device = Arc::new(recording);
    Ok((engine, requests))
}

/// A tensor to compute, and its elements.
fn work(number: i32, size: usize) -> Result<(Tensor, Vec<i32>), gradiff::Error> {
    let elements: Vec<i32> = (0..size as i32 * 2).map(|at| at * 7 - 5).collect();
    let x = Tensor::from_slice(&[size as i64, 2], &elements)?;
    let sum = x.mul(number)?.sum(keepdim(1))?;
    let wanted = elements.chunks(2).map(|pair| (pair[0] + pair[1]) * number).collect();
    Ok((sum, wanted))
}

/// Checks for which errors the machine is at fault, as their documentation says, alone and within
/// an error of tensors.
pub(super) fn classes_of_errors(_: &mut Draw) -> Result<(), String> {
    use gradiff::runtime::Error as Runtime;
    let text = || "x".to_string();
    let errors = [
        (Runtime::Environment { name: "N", text: text(), meaning: "m", min: 0, max: 1 }, true),
        (Runtime::DefaultDevice { settings: text(), why: "w" }, true),
        (Runtime::Unavailable { device: "d", why: text() }, true),
        (Runtime::CompilerUnusable { compiler: text(), why: text() }, true),
        (Runtime::DeviceUnusable { device: "d", call: "c", why: text() }, true),
        (Runtime::NoDevice { name: text(), known: vec![] }, false),
        (Runtime::Malformed { kernel: text(), position: 0, problem: text() }, false),
        (Runtime::Launch { device: "d", kernel: text(), problem: text() }, false),
    ];
    for (error, expected) in errors {
        let (said, alone) = (error.to_string(), error.is_environment());
        let within = gradiff::Error::Runtime(error);
        if [alone, within.is_environment()] != [expected; 2] || within.to_string() != said {
            return Err(format!("the error {said:?} counts as {alone} and {within:?} as another"));
        }
    }
    match gradiff::Error::Invalid(text()).is_environment() {
        true => Err("the machine is at fault for an invalid call".to_string()),
        false => Ok(()),
    }
}

/// Checks that a kernel that was compiled once is not compiled again, however it is requested.
pub(super) fn compiled_once(draw: &mut Draw) -> Result<(), String> {
    let (engine, requests) = engine("counts", 0)?;
    let problem = |error: gradiff::Error| error.to_string();
    let mut known: Vec<i32> = Vec::new();
    for _ in 0..5 {
        let number = 2 + draw.below(4) as i32;
        let (x, wanted) = work(number, 2).map_err(problem)?;
        let before = requests.lock().expect("no panic holds it").compiled.len();
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
            let [mut plan, later] = plans;
            plan.append(later);
            let names: Vec<&str> = plan.items.iter().map(|item| &*item.linear.name).collect();
            if names[0] == names[1] {
                return Err(format!("two kernels of a plan are called {}", names[0]));
            }
            engine.run(&plan).map_err(problem)?;
            let found = y.to_vec::<i32>().map_err(problem)?;
            if found != wanted {
                return Err(format!(
                    "the second of two plans gives {found:?}, expected {wanted:?}"
                ));
            }
        }
        engine.realize(&[&x]).map_err(problem)?;
        let found = x.to_vec::<i32>().map_err(problem)?;
        if found != wanted {
            return Err(format!(
                "a sum of products with {number} is {found:?}, expected {wanted:?}"
            ));
        }
        // It is realised already.
        engine.realize(&[&x]).map_err(problem)?;
        let compiled = requests.lock().expect("no panic holds it").compiled.len() - before;
        if compiled != expected {
            return Err(format!("{compiled} kernels are compiled, expected {expected}"));
        }
        if expected == 1 {
            known.push(number);
        }
        let (count, known) = (engine.cached_kernel_count(), known.len());
        if count != known {
            return Err(format!("the engine caches {count} kernels, expected {known}"));
        }
    }
    Ok(())
}

/// Checks that a search finds the best kernel of those that it has run, and is not repeated.
pub(super) fn searches(_: &mut Draw) -> Result<(), String> {
    // One search at a time, so that later ones find its result on disk.
    static NUMBER: Mutex<u64> = Mutex::new(0);
    static PROCESS: OnceLock<u64> = OnceLock::new();
    let process = PROCESS.get_or_init(|| RandomState::new().hash_one(0));
    let mut number = NUMBER.lock().unwrap_or_else(PoisonError::into_inner);
    let (turn, is_first) = (*number % SEARCHES, *number < SEARCHES);
    *number += 1;
    let description = format!("counts in process {process:x}, {turn}");
    let refuses_one_in = if turn % 2 == 1 { 4 } else { 0 };
    let problem = |error: gradiff::Error| error.to_string();
    let mut found: Vec<Option<String>> = Vec::new();
    for is_again in [false, true] {
        let (mut engine, requests) = engine(&description, refuses_one_in)?;
        engine.set_target(Target::of("groups"));
        engine.beam = 1 + turn as usize % 3;
        let (x, wanted) = work(3, 4 + 2 * turn as usize).map_err(problem)?;
        let plan = engine.plan(&[&x]).map_err(problem)?;
        let [item] = &plan.items[..] else { return Err("a sum is several kernels".to_string()) };
        let (opts, text) = (item.opts.clone(), text(&item.linear));
        {
            let requests = requests.lock().expect("no panic holds it");
            let is_new = is_first && !is_again;
            let (timed, searched) = (requests.timed.len(), engine.search_count());
            if !is_new && (timed != 0 || !requests.compiled.is_empty() || searched != 0) {
                return Err(format!(
                    "a search whose result is on disk is repeated: {timed} kernels are timed"
                ));
            }
            if is_new && (timed == 0 || searched != 1) {
                return Err(format!("{searched} searches run {timed} kernels"));
            }
            if let Some(best) = requests.timed.iter().min_by_key(|text| cost(text))
                && (opts.is_none() || cost(best) < cost(&text))
            {
                return Err(format!("{opts:?} take {:?}, the best {:?}", cost(&text), cost(best)));
            }
        }
        let mut plans = [plan];
        engine.compile(&mut plans).map_err(problem)?;
        engine.run(&plans[0]).map_err(problem)?;
        let elements = x.to_vec::<i32>().map_err(problem)?;
        if elements != wanted {
            return Err(format!("with {opts:?} a sum is {elements:?}, expected {wanted:?}"));
        }
        found.push(opts.map(|opts| format!("{opts:?}")));
    }
    match found[0] == found[1] {
        true => Ok(()),
        false => Err(format!("a search finds {:?}, then on disk {:?}", found[0], found[1])),
    }
}
