//! The engine: plans, compiles and runs kernels on one device, with a cache of compiled kernels.

use std::sync::Arc;
use std::time::Duration;

use gradiff_graph::{BoundedLinear, Target, UOp};
use gradiff_kernel::{Opt, Strategy};
use gradiff_rewrite::Mode;
use gradiff_runtime::{Device, Executable, Memory};
use gradiff_schedule::Split;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::cache::{Cache, CachedKernel, Key};
use crate::environment::Environment;
use crate::plan::{Plan, PlannedKernel};
use crate::search::{Search, SearchCache};
use crate::templates::Templates;
use crate::tensor::rebind;
use crate::{Error, Tensor, debug, search, slices};

/// A device with options and a kernel cache, for programs that choose the options, plan kernels or
/// look at them; other programs read tensors, which computes them.
///
/// [`Engine::realize`] computes tensors, which are then read without further work. An engine runs
/// everything on its device, whatever the devices of the tensors are: [`Tensor::to`] is a kernel
/// that copies, or shares memory. The tensors' [`device`](Tensor::device) stays the same.
pub struct Engine {
    /// The device that kernels run on.
    pub device: Arc<dyn Device>,
    /// The options for dividing graphs into kernels.
    pub schedule: gradiff_schedule::Options,
    /// The options for lowering kernels.
    pub kernel: gradiff_kernel::Options,
    /// The target that kernels are lowered for; that of the device unless it is set.
    pub target: Target,
    /// The width of the beam search for the opts of a kernel; 0 for no search. If it is not 0, the
    /// opts of kernels that the heuristic would optimise are searched for when the kernels are
    /// planned.
    pub beam: usize,
    /// The time limit for compiling a candidate of a search, and for running it.
    pub(crate) beam_limit: Duration,
    pub(crate) searches: SearchCache,
    /// Most arrays that the device takes, for whatever target kernels are lowered.
    arrays_max: u32,
    cache: Cache,
    templates: Templates,
    /// True if searches that were saved on disk are repeated.
    ignores_saved_searches: bool,
    debug_level: u8,
}

impl Engine {
    /// Creates an engine for the device of this name, with the default options for it. Kernels are
    /// optimised by the heuristic, or by a beam search. These environment variables are read here:
    ///
    /// * `DEBUG`, 0 to 6: output to stderr: from 1 on devices and searches; from 2 on a line for
    ///   each kernel that runs; from 3 on the parameters and opts of each kernel that is compiled;
    ///   from 4 on its source; from 5 on its tree and its uops; at 6 its machine code.
    /// * `BEAM`, 0 to 64: the candidates that a search for opts keeps; 0, the default: no search.
    /// * `BEAM_TIMEOUT_SEC`, 1 to 3600: the limit of a candidate in seconds, 10 by default.
    /// * `IGNORE_BEAM_CACHE=1`: searches that were saved on disk are repeated.
    /// * `NOOPT=1`: kernels have no opts, and nothing is searched for.
    /// * `TC=0`: kernels use no tensor cores.
    /// * `MERGE_VIEW=0`: views are not merged as movement ops are applied.
    ///
    /// # Errors
    /// If there is no such device, it is not available, or a variable is not a number in its range.
    pub fn new(device: &str) -> Result<Engine, Error> {
        let device = gradiff_runtime::device(device)?;
        let environment = Environment::read()?;
        let Environment { beam, beam_limit, ignores_saved_searches, debug_level, .. } = environment;
        if 1 <= debug_level {
            eprintln!("opened device {}: {}", device.name(), device.describe());
        }
        let mut target = device.target();
        if !environment.has_tensor_cores {
            target.tensor_cores = &[];
        }
        let (schedule, kernel) = Default::default();
        let (cache, searches) =
            (Cache::new(device.kernel_cache_capacity()), SearchCache::default());
        let mut engine = Engine {
            device,
            schedule,
            kernel,
            target,
            beam,
            beam_limit,
            searches,
            arrays_max: target.arrays_max,
            cache,
            templates: Templates::default(),
            ignores_saved_searches,
            debug_level,
        };
        engine.set_target(target);
        engine.schedule.merge_views = environment.merges_views;
        if environment.has_no_opts {
            engine.kernel.opts = Strategy::None;
        }
        Ok(engine)
    }

    /// Sets the target and, for it, the default opts and options of `schedule`.
    pub fn set_target(&mut self, target: Target) {
        self.target = target;
        self.kernel.opts = Strategy::Heuristic;
        self.schedule = self.schedule.suited(&target);
    }

    /// Plans the kernels that compute `tensors`, and binds the tensors to the buffers that these
    /// kernels will write. Nothing is compiled or run, except the candidates of a search. Until the
    /// plan has run, the tensors have no data to read, and if the run fails they can never be
    /// computed again. If they must survive a failure, use [`realize`](Engine::realize).
    /// # Errors
    /// If a tensor cannot be scheduled or lowered; the tensors are unchanged then.
    pub fn plan(&self, tensors: &[&Tensor]) -> Result<Plan, Error> {
        let nodes: Vec<UOp> = tensors.iter().map(|tensor| tensor.uop()).collect();
        let (plan, outputs) = self.prepare(&nodes)?;
        rebind(tensors, &nodes, &outputs);
        Ok(plan)
    }

    /// Returns a plan, and the node that each node is after the plan has run.
    fn prepare(&self, nodes: &[UOp]) -> Result<(Plan, Vec<UOp>), Error> {
        let settings = self.settings();
        match self.templates.template(nodes, self.schedule_options(), &settings) {
            Some(template) => match self.templates.get(&template) {
                Some(found) => Ok(found),
                None => {
                    let (plan, outputs) = self.planned(template.nodes(), &settings)?;
                    Ok(self.templates.insert(&template, plan, outputs))
                }
            },
            None => self.planned(nodes, &settings),
        }
    }

    /// Returns the options for dividing graphs into kernels, as the mode restricts them.
    fn schedule_options(&self) -> gradiff_schedule::Options {
        let is_strict = self.kernel.rewrite.mode == Mode::Strict;
        let wide_products = self.schedule.wide_products && !is_strict;
        let split = if is_strict { Split::Never } else { self.schedule.split };
        // Threads share the rows of a kernel in another order.
        let rows = self.schedule.rows && !(is_strict && self.target.groups.is_some());
        let arrays_max = self.schedule.arrays_max.min(self.arrays_max);
        gradiff_schedule::Options { wide_products, split, rows, arrays_max, ..self.schedule }
    }

    /// Schedules and lowers nodes.
    fn planned(&self, nodes: &[UOp], settings: &Arc<str>) -> Result<(Plan, Vec<UOp>), Error> {
        let schedule = gradiff_schedule::schedule(nodes, &self.schedule_options())?;
        let mut plan = Plan::default();
        for item in schedule.items {
            let key = Key::new(&item.ast, settings);
            let kernel = self.lower(&item.ast, &key)?;
            let (ast, buffers) = (item.ast, item.buffers);
            let CachedKernel { linear, executable, is_endless, opts } = kernel;
            plan.push(PlannedKernel { ast, linear, buffers, executable, is_endless, opts, key });
        }
        Ok((plan, schedule.outputs))
    }

    /// Compiles all kernels of the plans that are not compiled yet, in one call of the device.
    /// # Errors
    /// If the device cannot compile one of them.
    pub fn compile(&self, plans: &mut [Plan]) -> Result<(), Error> {
        let mut uncompiled: Vec<(Key, CachedKernel)> = Vec::new();
        let mut seen: FxHashSet<Key> = FxHashSet::default();
        for item in plans.iter_mut().flat_map(|plan| &mut plan.items) {
            if item.executable.is_none() {
                item.executable = self.cache.get(&item.key).and_then(|kernel| kernel.executable);
            }
            if item.executable.is_none() && seen.insert(item.key.clone()) {
                self.print_kernel(item)?;
                let (linear, opts) = (item.linear.clone(), item.opts.clone());
                let kernel =
                    CachedKernel { linear, executable: None, is_endless: item.is_endless, opts };
                uncompiled.push((item.key.clone(), kernel));
            }
        }
        if uncompiled.is_empty() {
            return Ok(());
        }
        let linears: Vec<&BoundedLinear> =
            uncompiled.iter().map(|(_, kernel)| &*kernel.linear).collect();
        let executables = self.device.compile(&linears)?;
        assert_eq!(executables.len(), uncompiled.len(), "a device compiles every kernel");
        let mut compiled: FxHashMap<Key, Arc<dyn Executable>> = FxHashMap::default();
        for ((key, kernel), executable) in uncompiled.into_iter().zip(executables) {
            compiled.insert(key.clone(), executable.clone());
            self.cache.insert(key, CachedKernel { executable: Some(executable), ..kernel });
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
    /// If a kernel is not compiled, or fails.
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

    /// Computes `tensors`: plans, compiles and runs. The tensors are bound to their buffers only
    /// when these have the data, so that no other thread sees a tensor without data. A tensor that
    /// is a contiguous part of a buffer, such as some rows of a matrix, shares the buffer's memory
    /// ([`Memory::part`]) and needs no kernel. Kernels that read a small part have it as a buffer
    /// of its own, and do not depend on where it begins; those of a [`plan`](Engine::plan) do.
    /// # Errors
    /// Those of `plan`, `compile` and `run`; the tensors are unchanged then.
    pub fn realize(&self, tensors: &[&Tensor]) -> Result<(), Error> {
        let nodes: Vec<UOp> = tensors.iter().map(|tensor| tensor.uop()).collect();
        rebind(tensors, &nodes, &self.compute(&nodes)?);
        Ok(())
    }

    /// Computes nodes. Returns for each its buffer, reshaped or not, or the constant that it is.
    pub(crate) fn compute(&self, nodes: &[UOp]) -> Result<Vec<UOp>, Error> {
        let mut results = nodes.iter().map(slices::in_place).collect::<Result<Vec<_>, Error>>()?;
        let is_missing = |(_, result): &(&UOp, &Option<UOp>)| result.is_none();
        let missing = nodes.iter().zip(&results).filter(is_missing);
        let missing: Vec<UOp> = missing.map(|(node, _)| node.clone()).collect();
        let limit = self.schedule_options().arrays_max as usize / 2;
        let missing = slices::replaced(missing, limit, self.device.has_memory())?;
        let (plan, outputs) = self.prepare(&missing)?;
        let mut plans = [plan];
        self.compile(&mut plans)?;
        self.run(&plans[0])?;
        let mut outputs = outputs.into_iter();
        let fill = |result: &mut Option<UOp>| {
            result.take().or_else(|| outputs.next()).expect("each node has a result")
        };
        Ok(results.iter_mut().map(fill).collect())
    }

    /// Prints a kernel that is to be compiled, as the debug level says.
    fn print_kernel(&self, kernel: &PlannedKernel) -> Result<(), Error> {
        if debug::PRINTED <= self.debug_level {
            let opts = self.opts_of(kernel);
            debug::print_kernel(self.debug_level, &*self.device, kernel, &opts)?;
        }
        Ok(())
    }

    /// Returns the opts of a kernel that this engine planned: those that a search found, or those
    /// that its strategy chooses.
    pub fn opts_of(&self, kernel: &PlannedKernel) -> Vec<Opt> {
        let chosen = || search::chosen(&kernel.ast, &self.target, &self.kernel).unwrap_or_default();
        kernel.opts.as_ref().map_or_else(chosen, |opts| opts.to_vec())
    }

    /// Returns the number of kernels in the cache.
    pub fn cached_kernel_count(&self) -> usize {
        self.cache.len()
    }

    /// Returns the number of kernels whose opts were searched for, without those whose opts were
    /// found on disk.
    pub fn search_count(&self) -> usize {
        self.searches.count()
    }

    /// Lowers a kernel, unless the cache has it.
    fn lower(&self, ast: &UOp, key: &Key) -> Result<CachedKernel, Error> {
        if let Some(kernel) = self.cache.get(key) {
            return Ok(kernel);
        }
        let opts = self.search_opts(ast);
        let mut options = self.kernel.clone();
        if let Some(opts) = &opts {
            options.opts = Strategy::Fixed(opts.to_vec());
        }
        let mut trace = gradiff_rewrite::Trace::default();
        let linear = gradiff_kernel::lower(ast, &self.target, &options, &mut trace)?;
        let has_fuel_limit = self.kernel.rewrite.fuel.is_some();
        let is_endless = !trace.loops.is_empty() || trace.ran_out && !has_fuel_limit;
        let kernel = CachedKernel { linear: Arc::new(linear), executable: None, is_endless, opts };
        self.cache.insert(key.clone(), kernel.clone());
        Ok(kernel)
    }

    /// Returns the best opts by a search; `None` if searches are disabled or this one is not
    /// possible.
    fn search_opts(&self, ast: &UOp) -> Option<Arc<[Opt]>> {
        if self.beam == 0 || self.kernel.opts != Strategy::Heuristic {
            return None;
        }
        self.search(&self.settings()).best(ast, &self.searches)
    }

    /// Creates a search with the engine's options, given its [`settings`](Engine::settings).
    pub(crate) fn search<'a>(&'a self, settings: &'a str) -> Search<'a> {
        let Engine { kernel: options, target, .. } = self;
        let (device, debug_level) = (&*self.device, self.debug_level);
        let (width, limit) = (self.beam, self.beam_limit);
        let ignores_saved = self.ignores_saved_searches;
        Search { device, target, options, settings, width, limit, ignores_saved, debug_level }
    }

    /// Describes everything that a compiled kernel depends on besides its tree.
    pub(crate) fn settings(&self) -> Arc<str> {
        let Engine { kernel, target, beam, .. } = self;
        format!("{} {kernel:?} {target:?} beam {beam}", self.device.name()).into()
    }
}
