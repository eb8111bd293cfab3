use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that long jobs look at between steps. Clones share it; once tripped it stays so.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that has not been tripped.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ask every holder to stop at its next step.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Has anybody asked to stop?
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Cancels when it is dropped: for an owner of jobs whose results nobody will want then, however it ends.
#[derive(Debug, Default)]
pub struct CancelOnDrop(CancelToken);

impl CancelOnDrop {
    /// The token that will be tripped.
    pub fn token(&self) -> CancelToken {
        self.0.clone()
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
