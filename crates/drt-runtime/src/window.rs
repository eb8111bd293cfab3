use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::{JobHandle, PoolError, WorkerPool};

/// Jobs in flight whose results come back in the order of submission.
///
/// The window holds as many jobs as its owner submits before taking results: the owner decides the bound.
#[derive(Debug)]
pub struct OrderedWindow<T> {
    pool: Arc<WorkerPool>,
    jobs: VecDeque<JobHandle<T>>,
}

impl<T: Send + 'static> OrderedWindow<T> {
    /// An empty window over a pool.
    pub fn new(pool: Arc<WorkerPool>) -> Self {
        Self { pool, jobs: VecDeque::new() }
    }

    /// How many jobs were submitted and not yet taken.
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Is nothing in flight?
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Add a job behind all others.
    ///
    /// # Errors
    /// `Forked`.
    pub fn submit(&mut self, job: impl FnOnce() -> T + Send + 'static) -> Result<(), PoolError> {
        self.jobs.push_back(self.pool.submit(job)?);
        Ok(())
    }

    /// Wait for the oldest job's result; `None` when nothing is in flight.
    #[allow(
        clippy::should_implement_trait,
        reason = "an owner keeps submitting between calls, which an Iterator forbids"
    )]
    pub fn next(&mut self) -> Option<Result<T, PoolError>> {
        self.jobs.pop_front().map(JobHandle::wait)
    }

    /// Wait for the oldest job at most `timeout`.
    ///
    /// `None` means that it is still running (or that nothing is in flight: see [`is_empty`](Self::is_empty)).
    pub fn next_timeout(&mut self, timeout: Duration) -> Option<Result<T, PoolError>> {
        let outcome = self.jobs.front()?.wait_timeout(timeout)?;
        self.jobs.pop_front();
        Some(outcome)
    }
}
