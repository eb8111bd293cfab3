use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use crate::PoolError;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed set of threads that run jobs in submission order (each thread takes the oldest waiting job).
///
/// The queue is unbounded: whoever submits bounds its own work, since only it knows what a job weighs.
#[derive(Debug)]
pub struct WorkerPool {
    jobs: Sender<Job>,
    num_workers: usize,
    owner: u32,
}

impl WorkerPool {
    /// Start exactly `num_workers` threads.
    ///
    /// # Errors
    /// `NoWorkers` for zero; `SpawnFailed` when the system refuses a thread (those already started end at once).
    pub fn new(num_workers: usize) -> Result<Self, PoolError> {
        if num_workers == 0 {
            return Err(PoolError::NoWorkers);
        }
        let (jobs, queue) = unbounded::<Job>();
        for index in 0..num_workers {
            let queue = queue.clone();
            thread::Builder::new()
                .name(format!("drt-worker-{index}"))
                .spawn(move || {
                    for job in queue {
                        // A job made by `submit` has caught its own panic; this guards `spawn`.
                        drop(catch_unwind(AssertUnwindSafe(job)));
                    }
                })
                .map_err(|error| PoolError::SpawnFailed { index, num_workers, message: error.to_string() })?;
        }
        Ok(Self { jobs, num_workers, owner: std::process::id() })
    }

    /// The number of threads, fixed at construction.
    pub fn num_workers(&self) -> usize {
        self.num_workers
    }

    /// Does this process own the threads?
    ///
    /// # Errors
    /// `Forked` in a child of the process that made the pool.
    pub fn ensure_owner(&self) -> Result<(), PoolError> {
        let child = std::process::id();
        if child == self.owner { Ok(()) } else { Err(PoolError::Forked { owner: self.owner, child }) }
    }

    /// Run a job whose outcome nobody waits for. A panic in it is swallowed: report through the job itself.
    ///
    /// # Errors
    /// `Forked`.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) -> Result<(), PoolError> {
        self.ensure_owner()?;
        // The threads hold receivers for as long as `self` holds the sender, so the channel is connected.
        self.jobs
            .send(Box::new(job))
            .map_err(|_| PoolError::JobPanicked { message: "the worker threads are gone".into() })
    }

    /// Let the first thread that is free run a job, unless its owner comes for the result before one is.
    ///
    /// In a forked child, where no thread will ever come, the owner runs it. A job that was offered before the fork may have
    /// been begun by a thread that the child does not have: it answers `Forked` there.
    pub fn offer<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> OfferedJob<T> {
        let job: Arc<Mutex<Option<OwnedJob<T>>>> = Arc::new(Mutex::new(Some(Box::new(job))));
        let (result, receiver) = bounded(1);
        let offered = Arc::clone(&job);
        let _forked = self.spawn(move || {
            if let Some(job) = take_job(&offered) {
                // Nobody may want the result any more.
                let _ = result.send(run(job));
            }
        });
        OfferedJob { job, result: Some(receiver), owner: std::process::id() }
    }

    /// Run a job and get a handle to its result.
    ///
    /// # Errors
    /// `Forked`.
    pub fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<JobHandle<T>, PoolError> {
        let (result, handle) = bounded(1);
        self.spawn(move || {
            // A dropped handle means that nobody wants the result any more.
            let _ = result.send(run(job));
        })?;
        Ok(JobHandle { result: handle })
    }
}

/// One submitted job's result-to-be.
#[derive(Debug)]
pub struct JobHandle<T> {
    result: Receiver<Result<T, PoolError>>,
}

impl<T> JobHandle<T> {
    /// Wait until the job has run.
    ///
    /// # Errors
    /// `JobPanicked`.
    pub fn wait(self) -> Result<T, PoolError> {
        self.result.recv().unwrap_or_else(|_| Err(lost_job()))
    }

    /// Wait at most `timeout`; `None` when the job has not finished by then.
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<T, PoolError>> {
        match self.result.recv_timeout(timeout) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(lost_job())),
        }
    }
}

type OwnedJob<T> = Box<dyn FnOnce() -> T + Send>;

/// A job that a thread of the pool runs, or whoever wants its result, if that one comes first. Waiting for it is never waiting
/// behind other jobs. Dropping it before it has begun means that it never runs.
pub struct OfferedJob<T> {
    job: Arc<Mutex<Option<OwnedJob<T>>>>,
    result: Option<Receiver<Result<T, PoolError>>>,
    /// The process that it was offered in.
    owner: u32,
}

impl<T> std::fmt::Debug for OfferedJob<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OfferedJob").finish_non_exhaustive()
    }
}

impl<T> OfferedJob<T> {
    /// Run the job here if no thread has begun it, else wait for its result at most `timeout`; `None` when that was not long
    /// enough. The result can be had once.
    pub fn finish(&self, timeout: Duration) -> Option<Result<T, PoolError>> {
        let child = std::process::id();
        if child != self.owner {
            // Whatever was locked when the process was forked stays so: nothing shared may be touched.
            return Some(Err(PoolError::Forked { owner: self.owner, child }));
        }
        if let Some(job) = take_job(&self.job) {
            return Some(run(job));
        }
        match self.result.as_ref()?.recv_timeout(timeout) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Err(lost_job())),
        }
    }
}

impl<T> Drop for OfferedJob<T> {
    fn drop(&mut self) {
        if std::process::id() == self.owner {
            drop(take_job(&self.job));
        } else {
            std::mem::forget((Arc::clone(&self.job), self.result.take()));
        }
    }
}

fn take_job<T>(job: &Mutex<Option<OwnedJob<T>>>) -> Option<OwnedJob<T>> {
    // The lock is held for this one move, which cannot panic.
    job.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn run<T>(job: impl FnOnce() -> T) -> Result<T, PoolError> {
    catch_unwind(AssertUnwindSafe(job))
        .map_err(|payload| PoolError::JobPanicked { message: panic_message(payload.as_ref()) })
}

fn lost_job() -> PoolError {
    PoolError::JobPanicked { message: "the job was dropped before it ran".into() }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
