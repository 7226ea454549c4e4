//! One team of threads per model: the caller and its workers share out the tasks of one operation.
//!
//! A forward pass is one region: workers are woken when it begins, and between its operations they spin, because the
//! next one usually follows within microseconds. When the wait is long, or between regions, they sleep. A worker that
//! is still asleep when all tasks are taken is not waited for, and with more threads than cores nobody spins for
//! long, so that too many threads cost little.

use std::any::Any;
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

/// Looks at the state this often before going to sleep: some tens of microseconds.
const SPINS: usize = 4_000;
/// The same inside a region, where short serial work is no reason to sleep.
const REGION_SPINS: usize = 10 * SPINS;
/// The same if there are more threads than cores: another thread may need this core.
const CROWDED_SPINS: usize = 100;
/// Bit 0 of the state: workers may join the current job.
const OPEN: u64 = 1;
/// What one joined worker adds to the state; bits 1 to 15 count them.
const JOINED: u64 = 2;
const JOINED_MASK: u64 = 0xfffe;
/// Each job has a number of its own, in the bits above.
const NEXT_JOB: u64 = 1 << 16;
/// As many workers as the count in the state can hold, and then some margin.
const MAX_THREADS: usize = 1024;

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    state: AtomicU64,
    /// Written only while the state is closed and nobody has joined; read only by those who have joined.
    job: UnsafeCell<Option<Job>>,
    n_tasks: AtomicUsize,
    next_task: AtomicUsize,
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    stop: AtomicBool,
    /// Workers that may join jobs: the first ones.
    n_active: AtomicUsize,
    /// A region is open.
    region: AtomicBool,
    crowded: bool,
    n_asleep: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    /// Where workers wait that may not join jobs.
    activate: Condvar,
}

// SAFETY: `job` is guarded by the state as its comment says; the closure behind it is `Sync`.
unsafe impl Sync for Shared {}
// SAFETY: the pointer in `job` is only used between the publication of a job and its end.
unsafe impl Send for Shared {}

/// A team of threads. Dropping it ends them.
pub struct Team {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    busy: AtomicBool,
}

impl Team {
    /// A team of `n_threads` (at least 1, at most 1024), the caller of [`Team::run`] included.
    pub fn new(n_threads: usize) -> Team {
        let n_cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        let shared = Arc::new(Shared {
            state: AtomicU64::new(0),
            job: UnsafeCell::new(None),
            n_tasks: AtomicUsize::new(0),
            next_task: AtomicUsize::new(0),
            panic: Mutex::new(None),
            stop: AtomicBool::new(false),
            n_active: AtomicUsize::new(n_threads.saturating_sub(1)),
            region: AtomicBool::new(false),
            crowded: n_threads > n_cores,
            n_asleep: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            activate: Condvar::new(),
        });
        // A system that refuses more threads gets a smaller team: the results are the same.
        let workers = (1..n_threads.min(MAX_THREADS))
            .map_while(|i| {
                let shared = shared.clone();
                let name = format!("qgguf-{i}");
                std::thread::Builder::new().name(name).spawn(move || shared.work(i)).ok()
            })
            .collect();
        Team { shared, workers, busy: AtomicBool::new(false) }
    }

    /// Threads that take tasks.
    pub fn n_threads(&self) -> usize {
        self.shared.n_active.load(Ordering::Relaxed).min(self.workers.len()) + 1
    }

    /// Lets only the first `n` threads (at least 1) take tasks, the caller included; the others sleep.
    pub fn set_active(&mut self, n: usize) {
        let n_active = n.saturating_sub(1);
        if self.shared.n_active.load(Ordering::Relaxed) != n_active {
            let _guard = lock(&self.shared.sleep);
            self.shared.n_active.store(n_active, Ordering::SeqCst);
            self.shared.activate.notify_all();
        }
    }

    /// Begins a region: several runs that follow each other closely, until [`Team::end`].
    pub fn begin(&self) {
        self.shared.region.store(true, Ordering::Relaxed);
        self.shared.wake_all();
    }

    /// Ends a region.
    pub fn end(&self) {
        self.shared.region.store(false, Ordering::Relaxed);
    }

    /// Calls `task(0)`, …, `task(n_tasks - 1)`, each once, on any threads, and returns when all are done.
    ///
    /// A panic in a task comes out here. Called from inside a task, it runs the tasks one after the other.
    pub fn run(&self, n_tasks: usize, task: impl Fn(usize) + Sync) {
        if n_tasks <= 1 || self.n_threads() == 1 || self.busy.swap(true, Ordering::Acquire) {
            (0..n_tasks).for_each(task);
            return;
        }
        let shared = &*self.shared;
        let job: *const (dyn Fn(usize) + Sync + '_) = &task;
        // SAFETY: only the lifetime changes; nobody uses the job after this function has returned.
        let job = unsafe { std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), Job>(job) };
        // SAFETY: the state is closed and nobody has joined since the last job ended.
        unsafe { *shared.job.get() = Some(job) };
        shared.n_tasks.store(n_tasks, Ordering::Relaxed);
        shared.next_task.store(0, Ordering::Relaxed);
        shared.state.fetch_add(NEXT_JOB | OPEN, Ordering::SeqCst);
        shared.wake_all();
        shared.take_tasks(&task);
        let mut state = shared.state.fetch_and(!OPEN, Ordering::AcqRel);
        let mut spins = 0;
        while state & JOINED_MASK != 0 {
            // At first; then the core is left to others: what is waited for may need it.
            spins += 1;
            if spins < shared.spins() {
                std::hint::spin_loop()
            } else {
                std::thread::yield_now()
            }
            state = shared.state.load(Ordering::Acquire);
        }
        self.busy.store(false, Ordering::Release);
        if let Some(panic) = lock(&shared.panic).take() {
            resume_unwind(panic);
        }
    }

    /// Cuts `data` into chunks of `chunk` values and calls `task(index, chunk)` for each.
    pub fn run_chunks<T: Send>(&self, data: &mut [T], chunk: usize, task: impl Fn(usize, &mut [T]) + Sync) {
        let chunk = chunk.max(1);
        let n = data.len();
        let data = SharedSlice::new(data);
        self.run(n.div_ceil(chunk), |i| {
            let start = i * chunk;
            // SAFETY: every task has an index of its own, so the ranges do not meet.
            task(i, unsafe { data.range(start, chunk.min(n - start)) });
        });
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        drop(lock(&self.shared.sleep));
        self.shared.wake.notify_all();
        self.shared.activate.notify_all();
        for worker in self.workers.drain(..) {
            // A worker cannot panic outside a task, and those are caught.
            let _ = worker.join();
        }
    }
}

impl Shared {
    /// The life of worker `index`, the first of which is 1.
    fn work(&self, index: usize) {
        let mut last_job = 0;
        let mut spins = 0;
        while !self.stop.load(Ordering::SeqCst) {
            if index > self.n_active.load(Ordering::SeqCst) {
                self.wait_for_activation(index);
                continue;
            }
            let state = self.state.load(Ordering::SeqCst);
            if !self.joinable(state, last_job) {
                self.idle(&mut spins, last_job);
                continue;
            }
            let joined = state + JOINED;
            if self.state.compare_exchange(state, joined, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            last_job = state / NEXT_JOB;
            spins = 0;
            // SAFETY: joined, so the job stays as it is until this thread leaves.
            let job = unsafe { (*self.job.get()).expect("an open state has a job") };
            // SAFETY: the caller of `run` keeps the closure alive until all who joined have left.
            self.take_tasks(unsafe { &*job });
            self.state.fetch_sub(JOINED, Ordering::AcqRel);
        }
    }

    fn joinable(&self, state: u64, last_job: u64) -> bool {
        state & OPEN != 0 && state / NEXT_JOB != last_job
    }

    fn idle(&self, spins: &mut usize, last_job: u64) {
        if *spins < self.spins() {
            *spins += 1;
            std::hint::spin_loop();
            return;
        }
        *spins = 0;
        let guard = lock(&self.sleep);
        self.n_asleep.fetch_add(1, Ordering::SeqCst);
        let idle =
            !self.joinable(self.state.load(Ordering::SeqCst), last_job) && !self.stop.load(Ordering::SeqCst);
        if idle {
            drop(self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner));
        }
        self.n_asleep.fetch_sub(1, Ordering::SeqCst);
    }

    fn wait_for_activation(&self, index: usize) {
        let mut guard = lock(&self.sleep);
        while index > self.n_active.load(Ordering::SeqCst) && !self.stop.load(Ordering::SeqCst) {
            guard = self.activate.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Wakes the workers that sleep because there was nothing to do.
    fn wake_all(&self) {
        if self.n_asleep.load(Ordering::SeqCst) > 0 {
            // The lock makes sure that a worker on its way to sleep is either asleep or sees the new state.
            drop(lock(&self.sleep));
            self.wake.notify_all();
        }
    }

    /// How often a thread looks before it gives way.
    fn spins(&self) -> usize {
        match self.region.load(Ordering::Relaxed) {
            _ if self.crowded => CROWDED_SPINS,
            true => REGION_SPINS,
            false => SPINS,
        }
    }

    fn take_tasks(&self, task: &(dyn Fn(usize) + Sync)) {
        let n_tasks = self.n_tasks.load(Ordering::Relaxed);
        loop {
            let i = self.next_task.fetch_add(1, Ordering::Relaxed);
            if i >= n_tasks {
                return;
            }
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| task(i))) {
                let mut first = lock(&self.panic);
                match *first {
                    // A payload may panic again when it is dropped, and nobody could catch that.
                    Some(_) => std::mem::forget(panic),
                    None => *first = Some(panic),
                }
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A slice whose parts are written by different tasks.
pub(crate) struct SharedSlice<'a, T> {
    data: *mut T,
    len: usize,
    borrow: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: it gives out parts of a `&mut [T]`, disjoint ones by the contract of `range`.
unsafe impl<T: Send> Sync for SharedSlice<'_, T> {}

impl<'a, T> SharedSlice<'a, T> {
    pub(crate) fn new(data: &'a mut [T]) -> SharedSlice<'a, T> {
        SharedSlice { data: data.as_mut_ptr(), len: data.len(), borrow: std::marker::PhantomData }
    }

    /// The same slice once more.
    pub(crate) fn again(&self) -> SharedSlice<'_, T> {
        SharedSlice { data: self.data, len: self.len, borrow: self.borrow }
    }

    /// `len` values from `start`.
    ///
    /// # Safety
    /// No two parts in use at the same time overlap.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn range(&self, start: usize, len: usize) -> &mut [T] {
        assert!(start <= self.len && len <= self.len - start);
        // SAFETY: inside the borrowed slice by the assertion, not shared by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.data.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for n_threads in [1, 2, 3, 7] {
            let team = Team::new(n_threads);
            for n_tasks in (0..50).chain([1000]) {
                let counts: Vec<_> = (0..n_tasks).map(|_| AtomicUsize::new(0)).collect();
                team.run(n_tasks, |i| {
                    counts[i].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1), "{n_threads} {n_tasks}");
            }
        }
    }

    #[test]
    fn sleeping_workers_wake_up_and_many_small_jobs_finish() {
        let team = Team::new(4);
        let sum = AtomicUsize::new(0);
        // Miri takes a thousand times as long.
        let n_rounds = if cfg!(miri) { 40 } else { 20_000 };
        for round in 0..n_rounds {
            if round % (n_rounds / 4) == 0 {
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
            team.run(3, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
        }
        assert_eq!(sum.into_inner(), 3 * n_rounds);
    }

    #[test]
    fn a_panic_in_a_task_reaches_the_caller_and_the_team_goes_on() {
        let team = Team::new(3);
        let caught = catch_unwind(AssertUnwindSafe(|| team.run(10, |i| assert!(i != 4, "task four"))));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        team.run(10, |i| {
            sum.fetch_add(i, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), 45);
    }

    #[test]
    fn inactive_threads_take_no_tasks_until_they_are_active_again() {
        let mut team = Team::new(4);
        for n in [2, 1, 4, 3] {
            team.set_active(n);
            assert_eq!(team.n_threads(), n);
            let ids = Mutex::new(std::collections::HashSet::new());
            team.begin();
            for _ in 0..if cfg!(miri) { 2 } else { 50 } {
                team.run(64, |_| {
                    lock(&ids).insert(std::thread::current().id());
                });
            }
            team.end();
            assert!(lock(&ids).len() <= n);
        }
    }

    #[test]
    fn a_run_inside_a_task_is_done_by_that_thread() {
        let team = Team::new(2);
        let sum = AtomicUsize::new(0);
        team.run(4, |_| {
            team.run(4, |i| {
                sum.fetch_add(i, Ordering::Relaxed);
            });
        });
        assert_eq!(sum.into_inner(), 24);
    }

    #[test]
    fn chunks_cover_the_slice() {
        let team = Team::new(3);
        let mut data = vec![0; 103];
        team.run_chunks(&mut data, 10, |i, chunk| chunk.fill(i + 1));
        assert!(data.iter().enumerate().all(|(at, &v)| v == at / 10 + 1));
    }
}
