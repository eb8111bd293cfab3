//! The one error of this crate.

/// What a pool can answer instead of a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// A pool needs at least one thread.
    #[error("num_workers must be at least 1")]
    NoWorkers,
    /// The operating system refused another thread.
    #[error("could not start worker thread {index} of {num_workers}: {message}")]
    SpawnFailed {
        /// Which thread, from 0.
        index: usize,
        /// How many were asked for.
        num_workers: usize,
        /// The operating system's reason.
        message: String,
    },
    /// The job panicked. This is a bug in the job, never in its input.
    #[error("a worker job panicked: {message}")]
    JobPanicked {
        /// The panic's text, when it had one.
        message: String,
    },
    /// This process was forked from the one that owns the threads.
    #[error(
        "this process (pid {child}) was forked from the one that owns the worker threads (pid {owner}), and threads do \
         not survive a fork; start child processes with the 'spawn' or 'forkserver' method, or create the runtime after \
         forking"
    )]
    Forked {
        /// The process that made the pool.
        owner: u32,
        /// The process that asked.
        child: u32,
    },
}
