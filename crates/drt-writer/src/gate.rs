use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use drt_runtime::WorkerPool;

use crate::WriteError;

/// How long a wait lasts before its owner looks whether it should stop.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug, Default, Clone, Copy)]
struct Load {
    tasks: usize,
    bytes: usize,
    jobs: usize,
}

impl Load {
    fn is_below(self, limits: Limits) -> bool {
        match limits {
            Limits::Idle => self.tasks == 0 && self.jobs == 0,
            Limits::Below { tasks, bytes } => self.tasks == 0 || (self.tasks < tasks && self.bytes < bytes),
        }
    }
}

/// How much may be inside before more is let in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limits {
    /// Nothing at all, and every job has said how it ended.
    Idle,
    /// Fewer tasks and fewer bytes than these; always open when there are no tasks.
    Below {
        /// Tasks that are let in.
        tasks: usize,
        /// Bytes of all tasks together.
        bytes: usize,
    },
}

/// Counts what is on its way, so that the thread that pulls can wait for less of it.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    load: Mutex<Load>,
    changed: Condvar,
}

impl Gate {
    /// Count a task until the pass is dropped.
    pub(crate) fn enter(self: &Arc<Self>, bytes: usize) -> Pass {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.tasks += 1;
        load.bytes += bytes;
        Pass { gate: Arc::clone(self), bytes }
    }

    /// Count a job until the result is dropped: to be kept until the job's failure, if any, is known to whoever waits.
    pub(crate) fn begin_job(self: &Arc<Self>) -> JobPass {
        self.load.lock().unwrap_or_else(PoisonError::into_inner).jobs += 1;
        JobPass(Arc::clone(self))
    }

    /// Wait until there is less inside than the limits say; false when `give_up` said so first.
    pub(crate) fn wait_below(&self, limits: Limits, give_up: &mut dyn FnMut() -> bool) -> bool {
        let mut load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
        while !load.is_below(limits) {
            let (next, timeout) = self.changed.wait_timeout(load, STEP).unwrap_or_else(PoisonError::into_inner);
            load = next;
            if timeout.timed_out() {
                drop(load);
                if give_up() {
                    return false;
                }
                load = self.load.lock().unwrap_or_else(PoisonError::into_inner);
            }
        }
        true
    }
}

/// One task inside the gate.
#[derive(Debug)]
pub(crate) struct Pass {
    gate: Arc<Gate>,
    bytes: usize,
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut load = self.gate.load.lock().unwrap_or_else(PoisonError::into_inner);
        load.tasks -= 1;
        load.bytes -= self.bytes;
        self.gate.changed.notify_all();
    }
}

/// One job at work.
#[derive(Debug)]
pub(crate) struct JobPass(Arc<Gate>);

impl Drop for JobPass {
    fn drop(&mut self) {
        self.0.load.lock().unwrap_or_else(PoisonError::into_inner).jobs -= 1;
        self.0.changed.notify_all();
    }
}

/// Runs what may wait for the disk on the pool, so that whoever waits for it can give up.
pub(crate) struct Waiter<'a> {
    pub(crate) pool: &'a WorkerPool,
    pub(crate) stop: &'a mut dyn FnMut() -> bool,
}

impl Waiter<'_> {
    /// Has the caller asked to stop?
    pub(crate) fn go_on(&mut self) -> Result<(), WriteError> {
        if (self.stop)() { Err(WriteError::Interrupted) } else { Ok(()) }
    }

    /// Run a job and wait for it. A caller that gives up leaves it running.
    ///
    /// # Errors
    /// `Interrupted` when `stop` said so, `Pool`.
    pub(crate) fn run<T: Send + 'static>(&mut self, job: impl FnOnce() -> T + Send + 'static) -> Result<T, WriteError> {
        let job = self.pool.submit(job)?;
        loop {
            match job.wait_timeout(STEP) {
                Some(outcome) => return Ok(outcome?),
                None => self.go_on()?,
            }
        }
    }
}
