//! Runs the iterations of a kernel's thread range on the cores of the host.
//!
//! The threads are started by the first kernel that needs them and live until the process ends.
//! Together with the launching thread there are as many as cores, or `GRADIFF_THREADS`. The
//! launching thread works as well, so a launch never waits for threads that are busy with another.
//!
//! An idle thread spins for a while before it sleeps, since waking it takes as long as a small
//! kernel.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gradiff_graph::{Arg, AxisKind, Constant, Instruction, Linear, Op, Variable};

/// The time that an idle thread spins before it sleeps.
const SPIN_TIME: Duration = Duration::from_micros(100);

/// Replaces the outermost thread range of a kernel by an integer parameter, the index of the
/// iteration. Returns the kernel and the number of iterations; `None` if there is no such range of
/// two iterations or more, if it is in a global range, or if something outside of it has an effect.
pub(crate) fn extract_iteration(kernel: &Linear) -> Option<(Linear, usize)> {
    let (range, count) = *kernel.launched(AxisKind::Thread).first()?;
    let iterations = usize::try_from(count).ok().filter(|iterations| 2 <= *iterations)?;
    let is_end_of_range =
        |uop: &Instruction| uop.op == Op::EndRange && uop.src.first() == Some(&range);
    let end = kernel.uops.iter().position(is_end_of_range)?;
    let inside = range as usize..end;
    let stays_inside = |(position, uop): (usize, &Instruction)| match uop.op {
        Op::Store | Op::Barrier => inside.contains(&position),
        Op::Assign => {
            uop.src.first().is_some_and(|variable| range <= *variable)
                || !inside.contains(&position)
        }
        _ => true,
    };
    let is_outermost = kernel.launched(AxisKind::Global).is_empty();
    if !is_outermost || !kernel.uops.iter().enumerate().all(stays_inside) {
        return None;
    }
    let mut uops = kernel.uops.clone();
    let dtype = uops[range as usize].dtype;
    let variable = Variable { name: "thread_step".into(), min: 0, max: count - 1 };
    uops[range as usize] = Instruction::new(Op::DefineVar, dtype, [], Arg::Var(variable.into()));
    // A uop without an effect, so that the others keep their positions.
    let zero = Arg::Const(Constant::int(dtype, 0));
    uops[end] = Instruction::new(Op::Const, dtype, [], zero);
    Some((Linear { name: kernel.name.clone(), uops }, iterations))
}

/// A launch, whose iterations are taken one by one by all threads that are free.
struct Job {
    work: Box<dyn Fn(usize) + Send + Sync>,
    count: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    /// True if all iterations are done.
    is_finished: Mutex<bool>,
    finished: Condvar,
}

struct Pool {
    /// The jobs that have iterations left, and taken ones that are not removed yet.
    jobs: Mutex<VecDeque<Arc<Job>>>,
    /// The number of jobs so far.
    launched: AtomicUsize,
    job_added: Condvar,
    worker_count: usize,
    /// True if idle threads spin. Not if there are more threads than cores, since spinning threads
    /// would take time from working ones.
    spins: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Runs iterations until none is left.
    fn run_iterations(&self) {
        let mut done = 0;
        loop {
            let iteration = self.next.fetch_add(1, Ordering::Relaxed);
            if self.count <= iteration {
                break;
            }
            (self.work)(iteration);
            done += 1;
        }
        // Acquire and release make the writes of all iterations visible to the waiting thread.
        if 0 < done && self.done.fetch_add(done, Ordering::AcqRel) + done == self.count {
            *lock(&self.is_finished) = true;
            self.finished.notify_all();
        }
    }

    fn is_taken(&self) -> bool {
        self.count <= self.next.load(Ordering::Relaxed)
    }

    fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire) == self.count
    }
}

impl Pool {
    fn new(worker_count: usize, spins: bool) -> Pool {
        Pool {
            jobs: Mutex::new(VecDeque::new()),
            launched: AtomicUsize::new(0),
            job_added: Condvar::new(),
            worker_count,
            spins,
        }
    }

    /// Spins until a condition holds, for [`SPIN_TIME`] at most.
    fn spin(&self, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while self.spins && !condition() && start.elapsed() < SPIN_TIME {
            std::hint::spin_loop();
        }
    }

    fn work(&self) {
        let (mut jobs, mut has_spun) = (lock(&self.jobs), false);
        loop {
            while jobs.front().is_some_and(|job| job.is_taken()) {
                jobs.pop_front();
            }
            if let Some(job) = jobs.front().cloned() {
                drop(jobs);
                job.run_iterations();
                (jobs, has_spun) = (lock(&self.jobs), false);
            } else if !has_spun {
                let seen = self.launched.load(Ordering::Relaxed);
                drop(jobs);
                self.spin(|| self.launched.load(Ordering::Relaxed) != seen);
                (jobs, has_spun) = (lock(&self.jobs), true);
            } else {
                jobs = self.job_added.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Runs a launch of two iterations or more, and returns when they are done.
    fn run(&self, count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
        let job = Arc::new(Job {
            work: Box::new(work),
            count,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            is_finished: Mutex::new(false),
            finished: Condvar::new(),
        });
        {
            let mut jobs = lock(&self.jobs);
            jobs.push_back(job.clone());
            self.launched.fetch_add(1, Ordering::Relaxed);
        }
        if count <= self.worker_count {
            (1..count).for_each(|_| self.job_added.notify_one());
        } else {
            self.job_added.notify_all();
        }
        job.run_iterations();
        // The threads of the pool remove jobs, too, but there may be none: they could not be
        // started, or this is a forked process. If the lock is held, the next launch removes it.
        if let Ok(mut jobs) = self.jobs.try_lock() {
            jobs.retain(|job| !job.is_taken());
        }
        self.spin(|| job.is_done());
        if job.is_done() {
            return;
        }
        let mut is_finished = lock(&job.is_finished);
        while !*is_finished {
            is_finished = job.finished.wait(is_finished).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The number of threads that work on a launch, including the launching thread.
pub(crate) fn thread_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // An invalid value was reported when the device was opened.
        let configured = crate::environment::THREADS.number().unwrap_or_default();
        configured.unwrap_or_else(core_count)
    })
}

/// Returns the number of threads that run at a time.
pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let pool = Pool::new(thread_count() - 1, thread_count() <= core_count());
        let pool: &'static Pool = Box::leak(Box::new(pool));
        for number in 1..=pool.worker_count {
            // If a thread cannot be started, the others do its work.
            let thread = std::thread::Builder::new().name(format!("gradiff-{number}"));
            drop(thread.spawn(|| pool.work()));
        }
        pool
    })
}

/// Runs all iterations below `count`, in any order and concurrently, and returns when they are
/// done.
pub(crate) fn run(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    if count < 2 || thread_count() < 2 {
        return (0..count).for_each(work);
    }
    pool().run(count, work);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_iteration_runs_once_with_concurrent_launches() {
        let launch = |count: usize| {
            let done: Arc<Vec<AtomicUsize>> =
                Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
            let counted = done.clone();
            run(count, move |iteration| {
                counted[iteration].fetch_add(1, Ordering::Relaxed);
            });
            let is_once = |count: &AtomicUsize| count.load(Ordering::Relaxed) == 1;
            assert!(done.iter().all(is_once), "{count} iterations");
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|round| launch(round % 17)));
            }
        });
    }

    #[test]
    fn launches_without_other_threads_leave_no_jobs() {
        let pool = Pool::new(0, false);
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let counted = done.clone();
            pool.run(4, move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
            });
        }
        assert_eq!(done.load(Ordering::Relaxed), 12);
        assert!(lock(&pool.jobs).is_empty());
    }

    #[test]
    fn iterations_run_concurrently() {
        if thread_count() < 2 {
            return;
        }
        // Two iterations that wait for each other: a single thread would deadlock.
        let barrier = Arc::new(std::sync::Barrier::new(2));
        run(2, move |_| {
            barrier.wait();
        });
    }
}
