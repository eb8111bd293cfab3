use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use drt_reader::{Block, SampleIter};
use pyo3::prelude::*;

use crate::error::{ITERATOR_IN_USE, from_read, raise};
use crate::sample::{SampleBuilder, Texts, thread_number};

/// An iterator over one window. Threads may share it: each sample goes to one of them.
#[pyclass(name = "SampleIterator", module = "dataset_rt._native", frozen)]
pub(crate) struct PySampleIterator {
    builder: Arc<SampleBuilder>,
    state: Mutex<State>,
    /// The thread inside `__next__`, 0 for none. Only that thread itself can see its own number here.
    owner: AtomicUsize,
}

struct State {
    samples: SampleIter,
    block: Block,
    at: usize,
    texts: Texts,
}

impl PySampleIterator {
    pub(crate) fn new(samples: SampleIter, builder: Arc<SampleBuilder>) -> Self {
        let state = State { block: samples.empty_block(), samples, at: 0, texts: builder.new_texts() };
        Self { builder, state: Mutex::new(state), owner: AtomicUsize::new(0) }
    }

    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => {
                if self.owner.load(Ordering::Relaxed) == thread_number(py) {
                    // A destructor that ran while a sample was built came back here.
                    return Err(raise(
                        ITERATOR_IN_USE,
                        "this iterator is already being advanced by this thread",
                        None,
                        None,
                    ));
                }
                // Never wait with the interpreter locked: whoever is inside may need it.
                let state = py.detach(|| Detached(self.state.lock().unwrap_or_else(PoisonError::into_inner)));
                Ok(state.0)
            }
        }
    }
}

/// A guard that moves out of a closure which runs on the same thread.
struct Detached<'a>(MutexGuard<'a, State>);

// SAFETY: `Python::detach` asks for `Send` in order to keep Python objects out of the closure. It runs the closure on the
// calling thread, so the guard is released on the thread that took it.
#[allow(unsafe_code)]
unsafe impl Send for Detached<'_> {}

#[pymethods]
impl PySampleIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut guard = self.lock(py)?;
        let state = &mut *guard;
        self.owner.store(thread_number(py), Ordering::Relaxed);
        let outcome = state.next(py, &self.builder);
        self.owner.store(0, Ordering::Relaxed);
        if outcome.is_err() {
            state.finish();
        }
        outcome
    }

    /// Samples left, for `list` and its like.
    fn __length_hint__(&self, py: Python<'_>) -> PyResult<u64> {
        let state = self.lock(py)?;
        Ok(state.samples.remaining() + (state.block.len() - state.at) as u64)
    }
}

impl State {
    #[inline]
    fn next<'py>(&mut self, py: Python<'py>, builder: &SampleBuilder) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.at == self.block.len() && !self.refill(py)? {
            return Ok(None);
        }
        let at = self.at;
        self.at += 1;
        let sample = self.block.sample(at).map_err(|error| from_read(&error))?;
        builder.build(py, sample, &mut self.texts).map(Some)
    }

    fn refill(&mut self, py: Python<'_>) -> PyResult<bool> {
        // A consumer written in C runs no Python code in which a signal could be noticed.
        py.check_signals()?;
        let Self { samples, block, at, .. } = self;
        let mut signal = None;
        let mut stop = || {
            signal = Python::attach(|py| py.check_signals()).err();
            signal.is_some()
        };
        let more = py.detach(|| samples.next_block(block, &mut stop));
        if let Some(error) = signal {
            return Err(error);
        }
        *at = 0;
        match more {
            Ok(true) => Ok(true),
            Ok(false) => {
                *block = samples.empty_block();
                Ok(false)
            }
            Err(error) => Err(from_read(&error)),
        }
    }

    /// Give nothing more.
    fn finish(&mut self) {
        self.samples.finish();
        self.block = self.samples.empty_block();
        self.at = 0;
    }
}
