use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use drt_reader::profile::Stage;
use drt_reader::{Block, SampleIter};
use drt_runtime::Began;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::error::{INVALID_STATE, ITERATOR_IN_USE, STATE_MISMATCH, from_read, raise};
use crate::portion::{Portion, TURN, Turns, wait};
use crate::sample::{SampleBuilder, Texts, thread_number};
use crate::state::{self, Progress};

/// Samples between two looks at the clock.
const MANY: usize = 64;

/// An iterator over one window. Threads may share it: each sample goes to one of them.
#[pyclass(name = "SampleIterator", module = "dataset_rt._native", frozen)]
pub(crate) struct PySampleIterator {
    builder: Arc<SampleBuilder>,
    /// How far it is, for iterators over a dataset's window.
    progress: Option<Arc<Progress>>,
    state: Exclusive<State>,
}

/// What one thread at a time works with, in between which others wait. A thread that comes back while it is inside is told so.
pub(crate) struct Exclusive<T> {
    state: Mutex<T>,
    /// The thread inside, 0 for none. Only that thread itself can see its own number here.
    owner: AtomicUsize,
}

/// What is being read of one window, up to the samples that are handed out next.
pub(crate) struct State {
    samples: SampleIter,
    /// What is handed out now.
    current: Portion,
    /// What comes after it, in order.
    ahead: VecDeque<Portion>,
    /// The block that is being cut into portions, and where the next one begins.
    block: Arc<Block>,
    cut: usize,
    /// What ended the supply of portions.
    end: Option<PyErr>,
    texts: Texts,
    /// When the last sample was handed out, if that is measured.
    handed_out: Began,
}

impl PySampleIterator {
    pub(crate) fn new(samples: SampleIter, builder: Arc<SampleBuilder>, progress: Option<Arc<Progress>>) -> Self {
        let state = Exclusive::new(State::new(samples, &builder));
        Self { builder, progress, state }
    }

    /// Note the outcome of a step. After an error nothing more is given.
    #[inline]
    fn count(&self, outcome: &PyResult<Option<Bound<'_, PyAny>>>, state: &mut State) {
        match (outcome, &self.progress) {
            (Ok(Some(_)), Some(progress)) => progress.advance(),
            (Ok(_), _) => {}
            (Err(_), _) => state.finish(),
        }
    }

    fn progress(&self) -> PyResult<&Progress> {
        self.progress.as_deref().ok_or_else(|| {
            raise(INVALID_STATE, "this iterator is not over a dataset's stream, so it has no place in one", None, None)
        })
    }

    fn lock(&self, py: Python<'_>) -> PyResult<Locked<'_, State>> {
        self.state.lock(py)
    }
}

impl<T: Send> Exclusive<T> {
    pub(crate) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), owner: AtomicUsize::new(0) }
    }

    /// Wait for the other threads.
    ///
    /// # Errors
    /// This thread is inside already.
    pub(crate) fn lock(&self, py: Python<'_>) -> PyResult<Locked<'_, T>> {
        let me = thread_number(py);
        let own = |state| {
            self.owner.store(me, Ordering::Relaxed);
            Locked { state, owner: &self.owner }
        };
        match self.state.try_lock() {
            Ok(state) => Ok(own(state)),
            Err(TryLockError::Poisoned(state)) => Ok(own(state.into_inner())),
            Err(TryLockError::WouldBlock) => {
                if self.owner.load(Ordering::Relaxed) == me {
                    // A destructor that ran while a sample was built came back here.
                    return Err(raise(
                        ITERATOR_IN_USE,
                        "this iterator is already being advanced by this thread",
                        None,
                        None,
                    ));
                }
                // Never wait with the interpreter locked: whoever is inside may need it. What runs when it is locked again may
                // come back here as well, so the owner is known before that.
                let locked = py.detach(|| Detached(own(self.state.lock().unwrap_or_else(PoisonError::into_inner))));
                Ok(locked.0)
            }
        }
    }
}

/// A state may be of another window of the same stream.
pub(crate) fn check_window(window: &Range<u64>, position: u64) -> PyResult<()> {
    let Range { start, end } = *window;
    if (start..=end).contains(&position) {
        return Ok(());
    }
    let message = format!(
        "the state is at position {position}, and this iterator has the positions {start} to {end}; load it into what was \
         iterated, whose next iterator then goes on there"
    );
    Err(raise(STATE_MISMATCH, message, None, None))
}

/// The state, and the note of who has it.
pub(crate) struct Locked<'a, T> {
    pub(crate) state: MutexGuard<'a, T>,
    owner: &'a AtomicUsize,
}

impl<T> Drop for Locked<'_, T> {
    fn drop(&mut self) {
        self.owner.store(0, Ordering::Relaxed);
    }
}

/// A guard that moves out of a closure which runs on the same thread.
struct Detached<'a, T>(Locked<'a, T>);

// SAFETY: `Python::detach` asks for `Send` in order to keep Python objects out of the closure. It runs the closure on the
// calling thread, so the guard is released on the thread that took it.
#[allow(unsafe_code)]
unsafe impl<T> Send for Detached<'_, T> {}

#[pymethods]
impl PySampleIterator {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut locked = self.lock(py)?;
        let state = &mut *locked.state;
        let outcome = state.next(py, &self.builder);
        self.count(&outcome, state);
        outcome
    }

    /// The next samples, `count` of them or as many as there are. After an error those before it are lost.
    fn take<'py>(&self, py: Python<'py>, count: usize) -> PyResult<Bound<'py, PyList>> {
        let mut locked = self.lock(py)?;
        let state = &mut *locked.state;
        let mut turns = Turns::new(TURN);
        let mut samples = Vec::with_capacity(count.min(state.samples.prefetch_size().max(MANY)));
        while samples.len() < count {
            let outcome = state.next(py, &self.builder);
            self.count(&outcome, state);
            let Some(sample) = outcome? else { break };
            samples.push(sample);
            if samples.len() % MANY == 0 {
                turns.pause(py)?;
            }
        }
        PyList::new(py, samples)
    }

    /// What `__next__` does, measured; None after the last sample.
    fn next_measured<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut locked = self.lock(py)?;
        let state = &mut *locked.state;
        let outcome = state.next_measured(py, &self.builder);
        self.count(&outcome, state);
        outcome
    }

    /// Give nothing more, and let go of what was prepared. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.lock(py)?.state.finish();
        if let Some(progress) = &self.progress {
            progress.close();
        }
        Ok(())
    }

    /// Where in the stream the next sample is.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let progress = self.progress()?;
        let place = progress.place().unwrap_or_else(|| progress.end());
        state::dump(py, &progress.window.view, &progress.window.plan, place)
    }

    /// Go on in this window from the place that a state names.
    #[pyo3(signature = (state, *, strict=true))]
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>, strict: bool) -> PyResult<()> {
        let progress = self.progress()?;
        let place = state::load(py, state, &progress.window.view, &progress.window.plan, strict)?;
        check_window(&progress.window.positions, place.position)?;
        let samples = progress.window.iter_from(place.position).map_err(|error| from_read(&error))?;
        let mut locked = self.lock(py)?;
        *locked.state = State::new(samples, &self.builder);
        progress.set(place.position);
        Ok(())
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Samples left, for `list` and its like.
    fn __length_hint__(&self, py: Python<'_>) -> PyResult<u64> {
        let locked = self.lock(py)?;
        let state = &*locked.state;
        let portions = std::iter::once(&state.current).chain(&state.ahead);
        let prepared = portions.map(Portion::len).sum::<usize>() + state.block.len() - state.cut;
        Ok(state.samples.remaining() + prepared as u64)
    }
}

impl State {
    pub(crate) fn new(samples: SampleIter, builder: &SampleBuilder) -> Self {
        let block = Arc::new(samples.empty_block());
        Self {
            samples,
            current: Portion::empty(Arc::clone(&block)),
            ahead: VecDeque::new(),
            block,
            cut: 0,
            end: None,
            texts: builder.new_texts(),
            handed_out: Began::default(),
        }
    }

    #[inline]
    pub(crate) fn next<'py>(
        &mut self,
        py: Python<'py>,
        builder: &SampleBuilder,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        loop {
            if let Some(at) = self.current.next() {
                return self.build(py, builder, at).map(Some);
            }
            if !self.advance(py)? {
                return Ok(None);
            }
        }
    }

    #[inline]
    fn build<'py>(&mut self, py: Python<'py>, builder: &SampleBuilder, at: usize) -> PyResult<Bound<'py, PyAny>> {
        let payload = self.current.payload().map_err(|error| from_read(&error))?;
        let sample = self.current.block.sample(at).map_err(|error| from_read(&error))?;
        builder.build(py, sample, payload, &mut self.texts)
    }

    fn next_measured<'py>(&mut self, py: Python<'py>, builder: &SampleBuilder) -> PyResult<Option<Bound<'py, PyAny>>> {
        let profile = self.samples.profile().clone();
        profile.stop(std::mem::take(&mut self.handed_out), Stage::Consumer, 1, 0);
        loop {
            if let Some(at) = self.current.next() {
                let began = profile.start();
                let bytes = self.current.block.payload_len(at) as u64;
                let sample = self.build(py, builder, at)?;
                profile.stop(began, Stage::ObjectBuilding, 1, bytes);
                self.handed_out = profile.start();
                return Ok(Some(sample));
            }
            if !self.advance(py)? {
                return Ok(None);
            }
        }
    }

    /// Go to the next portion; false after the last.
    fn advance(&mut self, py: Python<'_>) -> PyResult<bool> {
        // A consumer written in C runs no Python code in which a signal could be noticed.
        py.check_signals()?;
        let Some(next) = self.ahead.pop_front().map_or_else(|| self.cut_portion(py), |portion| Ok(Some(portion)))?
        else {
            self.current = Portion::empty(Arc::clone(&self.block));
            return self.end.take().map_or(Ok(false), Err);
        };
        self.current = next;
        if self.current.is_large() {
            self.copy_ahead(py)?;
        }
        self.current.finish_copying(py, self.samples.profile())?;
        Ok(true)
    }

    /// Have portions beyond the current one copied, as many as there are threads, within the bounds of `prefetch_size`.
    fn copy_ahead(&mut self, py: Python<'_>) -> PyResult<()> {
        let mut num_ahead = self.ahead.iter().map(Portion::len).sum::<usize>();
        while self.ahead.len() < self.samples.pool().num_workers() && num_ahead < self.samples.prefetch_size() {
            let Some(mut portion) = self.cut_portion(py)? else { break };
            num_ahead += portion.len();
            // Where there is no memory for what comes later, each payload is read in its turn.
            let is_ahead =
                portion.is_large() && portion.copy_ahead(py, self.samples.pool(), self.samples.profile()).is_ok();
            self.ahead.push_back(portion);
            if !is_ahead {
                break;
            }
        }
        Ok(())
    }

    /// The next portion, from the block at hand or the next one; `None` after the last, with the reason in `end` if it is not
    /// simply the last.
    ///
    /// # Errors
    /// What a signal handler raised, and nothing else: that is nobody's turn.
    fn cut_portion(&mut self, py: Python<'_>) -> PyResult<Option<Portion>> {
        if self.cut == self.block.len() && (self.end.is_some() || !self.next_block(py)?) {
            return Ok(None);
        }
        let portion = Portion::new(Arc::clone(&self.block), self.cut);
        self.cut += portion.len();
        Ok(Some(portion))
    }

    fn next_block(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Self { samples, block, current, .. } = self;
        if Arc::ptr_eq(block, &current.block) && current.len() == 0 {
            // Nobody looks at the block any more: its memory serves again.
            *current = Portion::empty(Arc::new(samples.empty_block()));
        }
        if Arc::get_mut(block).is_none() {
            *block = Arc::new(samples.empty_block());
        }
        let filled = Arc::get_mut(block).expect("made just now, or found to be nobody else's");
        let outcome = wait(py, |stop| samples.next_block(filled, stop));
        // Without a new block the old one stays, and has been cut to its end.
        self.cut = self.block.len();
        match outcome? {
            Ok(true) => {
                self.cut = 0;
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(error) => {
                // It is raised after the samples that come before it.
                self.end = Some(from_read(&error));
                Ok(false)
            }
        }
    }

    /// Give nothing more.
    fn finish(&mut self) {
        self.samples.finish();
        self.block = Arc::new(self.samples.empty_block());
        self.cut = 0;
        self.current = Portion::empty(Arc::clone(&self.block));
        self.ahead.clear();
        self.end = None;
    }
}
