//! The steps of a kernel's thread range on the cores of the host.
//!
//! Threads are started when the first kernel wants them, one for each core but the one that asks,
//! or as many as the environment variable `GRADIFF_THREADS` says in all, and stay until the
//! process ends. Who launches works as well, so a launch never waits for threads that are busy
//! with another one.
//!
//! A thread that has nothing to do looks for more for a while before it sleeps: to wake it takes
//! the system as long as a small kernel does.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use gradiff_graph::{Arg, AxisKind, Constant, Instruction, Linear, Op, Variable};

/// How long a thread looks for more before it sleeps.
const LOOKS: Duration = Duration::from_micros(100);

/// A kernel whose outermost range is one of threads and stands around all that has an effect, as
/// one that does the step of its integer parameter; and the count of the steps.
pub(crate) fn by_steps(kernel: &Linear) -> Option<(Linear, usize)> {
    let (range, count) = *kernel.launched(AxisKind::Thread).first()?;
    let steps = usize::try_from(count).ok().filter(|steps| 2 <= *steps)?;
    let is_range = |uop: &Instruction| uop.op == Op::EndRange && uop.src.first() == Some(&range);
    let end = kernel.uops.iter().position(is_range)?;
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
    // Something without an effect, so that all others keep their places.
    let nothing = Arg::Const(Constant::int(dtype, 0));
    uops[end] = Instruction::new(Op::Const, dtype, [], nothing);
    Some((Linear { name: kernel.name.clone(), uops }, steps))
}

/// A launch: steps that are taken one by one by whoever has time.
struct Job {
    work: Box<dyn Fn(usize) + Send + Sync>,
    count: usize,
    next: AtomicUsize,
    done: AtomicUsize,
    /// Whether all steps are done.
    is_over: Mutex<bool>,
    over: Condvar,
}

struct Pool {
    jobs: Mutex<VecDeque<Arc<Job>>>,
    /// How many jobs there were so far.
    launched: AtomicUsize,
    more: Condvar,
    worker_count: usize,
    /// Whether each thread may have a core of its own; else those that look take time from those
    /// that work.
    looks: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Job {
    /// Takes steps until none is left.
    fn help(&self) {
        let mut done = 0;
        loop {
            let step = self.next.fetch_add(1, Ordering::Relaxed);
            if self.count <= step {
                break;
            }
            (self.work)(step);
            done += 1;
        }
        // What all steps wrote is seen by who waits: each adds up behind the others.
        if 0 < done && self.done.fetch_add(done, Ordering::AcqRel) + done == self.count {
            *lock(&self.is_over) = true;
            self.over.notify_all();
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
    /// Looks until something holds, but not for long.
    fn look(&self, holds: impl Fn() -> bool) {
        let start = Instant::now();
        while self.looks && !holds() && start.elapsed() < LOOKS {
            std::hint::spin_loop();
        }
    }

    fn work(&self) {
        let (mut jobs, mut has_looked) = (lock(&self.jobs), false);
        loop {
            while jobs.front().is_some_and(|job| job.is_taken()) {
                jobs.pop_front();
            }
            if let Some(job) = jobs.front().cloned() {
                drop(jobs);
                job.help();
                (jobs, has_looked) = (lock(&self.jobs), false);
            } else if !has_looked {
                let seen = self.launched.load(Ordering::Relaxed);
                drop(jobs);
                self.look(|| self.launched.load(Ordering::Relaxed) != seen);
                (jobs, has_looked) = (lock(&self.jobs), true);
            } else {
                jobs = self.more.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }
}

/// How many threads work on a launch, the one that launches among them.
pub(crate) fn thread_count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| {
        // Opening a device has told of a mistake.
        let wanted = crate::environment::number("GRADIFF_THREADS").unwrap_or_default();
        wanted.unwrap_or_else(core_count)
    })
}

fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, |count| count.get())
}

fn pool() -> &'static Pool {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    POOL.get_or_init(|| {
        let pool = Pool {
            jobs: Mutex::new(VecDeque::new()),
            launched: AtomicUsize::new(0),
            more: Condvar::new(),
            worker_count: thread_count() - 1,
            looks: thread_count() <= core_count(),
        };
        let pool: &'static Pool = Box::leak(Box::new(pool));
        for number in 1..=pool.worker_count {
            // A thread that cannot be started is one that does not help.
            let thread = std::thread::Builder::new().name(format!("gradiff-{number}"));
            drop(thread.spawn(|| pool.work()));
        }
        pool
    })
}

/// Does all steps below `count`, in any order, some at once, and returns when they are done.
pub(crate) fn run(count: usize, work: impl Fn(usize) + Send + Sync + 'static) {
    if count < 2 || thread_count() < 2 {
        return (0..count).for_each(work);
    }
    let pool = pool();
    let job = Arc::new(Job {
        work: Box::new(work),
        count,
        next: AtomicUsize::new(0),
        done: AtomicUsize::new(0),
        is_over: Mutex::new(false),
        over: Condvar::new(),
    });
    {
        let mut jobs = lock(&pool.jobs);
        jobs.push_back(job.clone());
        pool.launched.fetch_add(1, Ordering::Relaxed);
    }
    if count <= pool.worker_count {
        (1..count).for_each(|_| pool.more.notify_one());
    } else {
        pool.more.notify_all();
    }
    job.help();
    pool.look(|| job.is_done());
    if job.is_done() {
        return;
    }
    let mut is_over = lock(&job.is_over);
    while !*is_over {
        is_over = job.over.wait(is_over).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_is_done_once_whoever_launches() {
        let launch = |count: usize| {
            let done: Arc<Vec<AtomicUsize>> =
                Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect());
            let counted = done.clone();
            run(count, move |step| {
                counted[step].fetch_add(1, Ordering::Relaxed);
            });
            assert!(done.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{count} steps");
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|round| launch(round % 17)));
            }
        });
    }

    #[test]
    fn steps_run_at_once() {
        if thread_count() < 2 {
            return;
        }
        // Two steps that wait for each other: one thread alone would never come to an end.
        let met = Arc::new(std::sync::Barrier::new(2));
        run(2, move |_| {
            met.wait();
        });
    }
}
