//! The engine: plans, compiles and runs kernels on one device, and keeps what it compiled.

use std::sync::Arc;
use std::time::Duration;

use gradiff_graph::{Arg, BoundedLinear, Buffer, Op, UOp};
use gradiff_kernel::{Opt, Strategy};
use gradiff_runtime::{Device, Executable, Memory};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cache::{Cache, Key, Made};
use crate::search::{Search, Searches};
use crate::tensor::reshaped;
use crate::{Error, Tensor, debug, search};

/// A device with its options and its kernel cache. `realize` and all reads need one.
pub struct Engine {
    /// Where kernels run.
    pub device: Arc<dyn Device>,
    /// How graphs are cut into kernels.
    pub schedule: gradiff_schedule::Options,
    /// How kernels are lowered.
    pub kernel: gradiff_kernel::Options,
    /// What kernels are brought down to.
    pub target: gradiff_kernel::Target,
    /// How many candidates a search for the opts of a kernel keeps; 0 for no search. Kernels that
    /// are otherwise optimised by heuristic are searched when they are planned.
    pub beam: usize,
    /// How long a search lets the compile of a candidate take, and how long its runs.
    pub(crate) beam_limit: Duration,
    pub(crate) searches: Searches,
    cache: Cache,
    debug_level: u8,
}

/// A kernel that is to run on these buffers.
#[derive(Clone)]
pub struct PlannedKernel {
    /// The kernel's tree.
    pub ast: UOp,
    /// Its linear form; the name in it is unique within the plan.
    pub linear: Arc<BoundedLinear>,
    /// Its parameters by slot; the first one is written.
    pub buffers: Vec<Buffer>,
    /// The compiled kernel; there after [`Engine::compile`].
    pub executable: Option<Arc<dyn Executable>>,
    /// Whether rewriting it came back to where it had been, or had to be stopped though no fuel
    /// was set: what came out is right, but rules work against each other.
    pub is_endless: bool,
    /// The opts that a search found for it.
    pub opts: Option<Arc<[Opt]>>,
    key: Key,
}

/// Kernels in the order in which they run.
#[derive(Clone, Default)]
pub struct Plan {
    /// The kernels.
    pub items: Vec<PlannedKernel>,
    names: FxHashMap<String, usize>,
}

impl Plan {
    /// How many kernels run.
    pub fn kernel_count(&self) -> usize {
        self.items.len()
    }

    /// Puts the kernels of a later plan behind those of this one. Names stay unique.
    pub fn append(&mut self, later: Plan) {
        for item in later.items {
            self.push(item);
        }
    }

    fn push(&mut self, mut item: PlannedKernel) {
        let base = gradiff_kernel::name(&item.ast);
        let count = self.names.entry(base.clone()).or_default();
        let name = if *count == 0 { base } else { format!("{base}n{count}") };
        *count += 1;
        if item.linear.name != name {
            let named = item.linear.named(&name);
            item.linear = Arc::new(named.expect("names are made of letters and digits"));
        }
        self.items.push(item);
    }
}

/// Makes each tensor what stands for it.
fn rebind(tensors: &[&Tensor], outputs: Vec<UOp>) {
    assert_eq!(tensors.len(), outputs.len(), "each tensor has an output");
    tensors.iter().zip(outputs).for_each(|(tensor, output)| tensor.rebind(output));
}

/// What stands for a tensor that is a part of a buffer, but not all of it: a buffer of its own over
/// that part of the memory. None if only a device has the bytes, and it lets none begin there.
fn part(node: &UOp) -> Result<Option<UOp>, Error> {
    let Some((buffer, first)) = gradiff_schedule::part_of(node) else { return Ok(None) };
    let shape = node.shape().expect("a node of tensor level has a shape");
    let size_elements: i64 = shape.iter().product();
    if size_elements == buffer.size_elements() || buffer.memory().is_none() {
        return Ok(None);
    }
    let memory = gradiff_runtime::memory_of(&buffer)?;
    let place = [first, size_elements].map(usize::try_from);
    let ([Ok(first), Ok(size)], true) = (place, memory.is_initialised()) else { return Ok(None) };
    let Some(memory) = memory.part_in_place(first, size)?.map(Arc::new) else { return Ok(None) };
    let part = Buffer::new(buffer.dtype(), size_elements);
    part.memory_or_init(|| memory);
    let node = UOp::new(Op::Buffer, part.dtype(), [], Arg::Buffer(part));
    Ok(Some(reshaped(node, shape)))
}

impl Engine {
    /// An engine for the device of this name, with the options that suit it: kernels are optimised
    /// by heuristic, or searched if `BEAM` says how widely, for which `BEAM_TIMEOUT_SEC` bounds the
    /// time of each candidate. These and `DEBUG` are read here.
    /// # Errors
    /// If there is no such device, it is not available, `BEAM` is no number from 0 to 64,
    /// `BEAM_TIMEOUT_SEC` none from 1 to 3600, or `DEBUG` is no level from 0 to 5.
    pub fn new(device: &str) -> Result<Engine, Error> {
        let device = gradiff_runtime::device(device)?;
        let debug_level = debug::level()?;
        let (beam, beam_limit) = (search::width()?, search::limit()?);
        if 1 <= debug_level {
            eprintln!("opened device {}: {}", device.name(), device.describe());
        }
        let target = gradiff_kernel::Target::of(device.target());
        let (schedule, kernel) = Default::default();
        let (cache, searches) = (Cache::new(device.kernels_kept()), Searches::default());
        let mut engine = Engine {
            device,
            schedule,
            kernel,
            target,
            beam,
            beam_limit,
            searches,
            cache,
            debug_level,
        };
        engine.suit(target);
        Ok(engine)
    }

    /// Makes kernels for this target, optimised as suits it.
    pub fn suit(&mut self, target: gradiff_kernel::Target) {
        self.target = target;
        self.kernel.opts = Strategy::Heuristic;
        self.schedule = self.schedule.suited(target.is_vector_cpu());
    }

    /// Plans the kernels that compute `tensors`, and makes the tensors ones that are in the
    /// buffers which these kernels will fill. Nothing of it is run, nor compiled (but for what a
    /// search tries): until the plan has run, reads of the tensors find nothing. If the plan may
    /// fail and the tensors must outlive that, [`realize`](Engine::realize) is the call to use.
    /// # Errors
    /// If a tensor cannot be scheduled or lowered; the tensors stay as they were.
    pub fn plan(&self, tensors: &[&Tensor]) -> Result<Plan, Error> {
        let (plan, outputs) = self.prepare(tensors)?;
        rebind(tensors, outputs);
        Ok(plan)
    }

    /// A plan, and what stands for each tensor once it has run. The tensors stay as they are.
    fn prepare(&self, tensors: &[&Tensor]) -> Result<(Plan, Vec<UOp>), Error> {
        let nodes: Vec<UOp> = tensors.iter().map(|tensor| tensor.uop()).collect();
        let schedule = gradiff_schedule::schedule(&nodes, &self.schedule)?;
        let settings = self.settings();
        let mut plan = Plan::default();
        for item in schedule.items {
            let key = Key::new(&item.ast, &settings);
            let made = self.made(&item.ast, &key)?;
            let (ast, buffers) = (item.ast, item.buffers);
            let Made { linear, executable, is_endless, opts } = made;
            plan.push(PlannedKernel { ast, linear, buffers, executable, is_endless, opts, key });
        }
        Ok((plan, schedule.outputs))
    }

    /// Compiles all kernels of all plans that are not compiled yet in one go of the device.
    /// # Errors
    /// If the device cannot compile one of them.
    pub fn compile(&self, plans: &mut [Plan]) -> Result<(), Error> {
        let mut missing: Vec<(Key, Made)> = Vec::new();
        let mut seen: FxHashSet<Key> = FxHashSet::default();
        for item in plans.iter_mut().flat_map(|plan| &mut plan.items) {
            if item.executable.is_none() {
                item.executable = self.cache.get(&item.key).and_then(|made| made.executable);
            }
            if item.executable.is_none() && seen.insert(item.key.clone()) {
                debug::print_source(self.debug_level, item)?;
                let (linear, opts) = (item.linear.clone(), item.opts.clone());
                let made = Made { linear, executable: None, is_endless: item.is_endless, opts };
                missing.push((item.key.clone(), made));
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        let linears: Vec<&BoundedLinear> = missing.iter().map(|(_, made)| &*made.linear).collect();
        let executables = self.device.compile(&linears)?;
        assert_eq!(executables.len(), missing.len(), "a device compiles each kernel it is given");
        let mut compiled: FxHashMap<Key, Arc<dyn Executable>> = FxHashMap::default();
        for ((key, made), executable) in missing.into_iter().zip(executables) {
            compiled.insert(key.clone(), executable.clone());
            self.cache.insert(key, Made { executable: Some(executable), ..made });
        }
        for item in plans.iter_mut().flat_map(|plan| &mut plan.items) {
            if item.executable.is_none() {
                item.executable = compiled.get(&item.key).cloned();
            }
        }
        Ok(())
    }

    /// Runs the kernels of a plan in order.
    /// # Errors
    /// If one is not compiled, or fails.
    pub fn run(&self, plan: &Plan) -> Result<(), Error> {
        for (number, item) in plan.items.iter().enumerate() {
            let Some(executable) = &item.executable else {
                let name = &item.linear.name;
                return Err(Error::Invalid(format!("run of {name}: compile the plan first")));
            };
            let memories: Vec<Arc<Memory>> =
                item.buffers.iter().map(gradiff_runtime::memory_of).collect::<Result<_, _>>()?;
            let memories: Vec<&Memory> = memories.iter().map(|memory| &**memory).collect();
            if debug::TIMED <= self.debug_level {
                let time = self.device.time(&**executable, &memories)?;
                debug::print_run(self.device.name(), number, item, time);
            } else {
                executable.run(&memories)?;
            }
        }
        Ok(())
    }

    /// Computes `tensors`: plans, compiles and runs. The tensors are in their buffers only when
    /// these hold the data, so that no other thread sees a tensor without. One that is a part of a
    /// buffer which the host has, as rows of a tensor that was given, takes its bytes from there
    /// ([`Memory::part`]) and needs no kernel.
    /// # Errors
    /// As those three; the tensors stay as they were.
    pub fn realize(&self, tensors: &[&Tensor]) -> Result<(), Error> {
        let mut parts = Vec::new();
        let mut others = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            match part(&tensor.uop())? {
                Some(output) => parts.push((*tensor, output)),
                None => others.push(*tensor),
            }
        }
        let (plan, outputs) = self.prepare(&others)?;
        let mut plans = [plan];
        self.compile(&mut plans)?;
        self.run(&plans[0])?;
        rebind(&others, outputs);
        parts.into_iter().for_each(|(tensor, output)| tensor.rebind(output));
        Ok(())
    }

    /// How many kernels the cache holds.
    pub fn cached_kernel_count(&self) -> usize {
        self.cache.len()
    }

    /// How many kernels were searched; those whose opts were found on disk do not count.
    pub fn search_count(&self) -> usize {
        self.searches.count()
    }

    fn made(&self, ast: &UOp, key: &Key) -> Result<Made, Error> {
        if let Some(made) = self.cache.get(key) {
            return Ok(made);
        }
        let opts = self.searched(ast);
        let mut options = self.kernel.clone();
        if let Some(opts) = &opts {
            options.opts = Strategy::Fixed(opts.to_vec());
        }
        let mut trace = gradiff_rewrite::Trace::default();
        let linear = gradiff_kernel::lower(ast, &self.target, &options, &mut trace)?;
        let is_fuelled = self.kernel.rewrite.fuel.is_some();
        let is_endless = !trace.loops.is_empty() || trace.ran_out && !is_fuelled;
        let made = Made { linear: Arc::new(linear), executable: None, is_endless, opts };
        self.cache.insert(key.clone(), made.clone());
        Ok(made)
    }

    /// The opts that a search finds, if the kernel is one to search.
    fn searched(&self, ast: &UOp) -> Option<Arc<[Opt]>> {
        if self.beam == 0 || self.kernel.opts != Strategy::Heuristic {
            return None;
        }
        self.search(&self.settings()).best(ast, &self.searches)
    }

    /// A search with these options; `settings` are [`settings`](Engine::settings).
    pub(crate) fn search<'a>(&'a self, settings: &'a str) -> Search<'a> {
        let Engine { kernel: options, target, .. } = self;
        let (device, debug_level) = (&*self.device, self.debug_level);
        let (width, limit) = (self.beam, self.beam_limit);
        Search { device, target, options, settings, width, limit, debug_level }
    }

    /// All that a kernel depends on besides its tree.
    pub(crate) fn settings(&self) -> Arc<str> {
        let Engine { kernel, target, beam, .. } = self;
        format!("{} {kernel:?} {target:?} beam {beam}", self.device.name()).into()
    }
}
