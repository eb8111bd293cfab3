use std::ops::Range;
use std::sync::Arc;

use drt_reader::{Positions, TableView};
use drt_sampler::{Mixture, SamplingPlan};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::error::from_read;
use crate::iter::{Exclusive, State, check_window};
use crate::orders::PyMixture;
use crate::sample::SampleBuilder;
use crate::view::{PyPlan, PyTableView};

/// Positions whose components are computed at a time.
const PLACES: usize = 256;

/// An iterator over a window of a mixture's stream. Threads may share it: each sample goes to one of them.
#[pyclass(name = "MixedIterator", module = "dataset_rt._native", frozen, subclass)]
pub(crate) struct PyMixedIterator {
    mixture: Mixture,
    components: Vec<Component>,
    window: Range<u64>,
    state: Exclusive<Mixed>,
}

struct Component {
    view: TableView,
    plan: SamplingPlan,
    builder: Arc<SampleBuilder>,
    /// What its samples are handed out with, if anything.
    name: Option<Py<PyString>>,
    /// Which of its positions is the first one behind the window.
    end: u64,
}

struct Mixed {
    /// Of the next sample, and the window's end.
    position: u64,
    end: u64,
    /// The components of the positions from `position` on, as far as `at` says.
    places: Vec<(u64, u64)>,
    at: usize,
    /// What is being read of each component; nothing of any when nothing more is given.
    sources: Vec<Source>,
}

/// What is being read of a component.
enum Source {
    /// Nothing yet: it begins at this one of its positions.
    Before(u64),
    Reading(Box<State>),
}

impl Component {
    fn open(&self, begin: u64) -> PyResult<State> {
        let positions = Positions::window(begin, self.end - begin);
        let samples = positions.and_then(|positions| self.view.iter(self.plan.clone(), positions));
        Ok(State::new(samples.map_err(|error| from_read(&error))?, &self.builder))
    }
}

impl Mixed {
    /// Begin at a position, and end with the window.
    fn new(mixture: &Mixture, position: u64, end: u64) -> Self {
        let sources = mixture.before(position).into_iter().map(Source::Before).collect();
        Self { position, end, places: Vec::new(), at: 0, sources }
    }

    fn next<'py>(
        &mut self,
        py: Python<'py>,
        mixture: &Mixture,
        components: &[Component],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.sources.is_empty() {
            return Ok(None);
        }
        if self.at == self.places.len() {
            let len = (self.end - self.position).min(PLACES as u64) as usize;
            if len == 0 {
                self.finish();
                return Ok(None);
            }
            self.places.resize(len, (0, 0));
            mixture.fill(self.position, &mut self.places);
            self.at = 0;
        }
        let number = self.places[self.at].0 as usize;
        let (component, source) = (&components[number], &mut self.sources[number]);
        if let Source::Before(begin) = *source {
            *source = Source::Reading(Box::new(component.open(begin)?));
        }
        let Source::Reading(reading) = source else { unreachable!("it was opened just now") };
        let sample = reading.next(py, &component.builder)?;
        let sample = sample.ok_or_else(|| PyValueError::new_err("a component has fewer positions than its share"))?;
        let outcome = match &component.name {
            None => sample,
            Some(name) => PyTuple::new(py, [name.bind(py).as_any(), &sample])?.into_any(),
        };
        self.at += 1;
        self.position += 1;
        Ok(Some(outcome))
    }

    /// Give nothing more.
    fn finish(&mut self) {
        self.sources = Vec::new();
    }
}

#[pymethods]
impl PyMixedIterator {
    /// Iterate over `count` positions. `names`, one for each component, are what samples are paired with.
    #[new]
    #[pyo3(signature = (mixture, components, start, count, *, names=None))]
    fn new(
        mixture: &PyMixture,
        components: Vec<(PyRef<'_, PyTableView>, PyRef<'_, PyPlan>)>,
        start: u64,
        count: u64,
        names: Option<Vec<Py<PyString>>>,
    ) -> PyResult<Self> {
        let mixture = mixture.0.clone();
        let end = start.checked_add(count).ok_or_else(|| PyOverflowError::new_err("positions end at 2**64"))?;
        let len = components.len();
        if mixture.components() != len as u64 || names.as_ref().is_some_and(|names| names.len() != len) {
            return Err(PyValueError::new_err("a mixture's components have one view, one plan and one name each"));
        }
        let mut names = names.map(Vec::into_iter);
        let components = (components.iter().zip(mixture.before(end)))
            .map(|((view, plan), end)| {
                let (view, builder) = view.parts();
                let name = names.as_mut().and_then(Iterator::next);
                Component { view: view.clone(), plan: plan.0.clone(), builder: Arc::clone(builder), name, end }
            })
            .collect();
        let state = Exclusive::new(Mixed::new(&mixture, start, end));
        Ok(Self { mixture, components, window: start..end, state })
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut locked = self.state.lock(py)?;
        let outcome = locked.state.next(py, &self.mixture, &self.components);
        if outcome.is_err() {
            locked.state.finish();
        }
        outcome
    }

    /// Position of the next sample, and how many are left of the window; nothing is left of one that was closed.
    fn place(&self, py: Python<'_>) -> PyResult<(u64, u64)> {
        let locked = self.state.lock(py)?;
        Ok((locked.state.position, locked.state.end - locked.state.position))
    }

    /// Go on from another position of the window, also when it is finished or closed.
    fn go_to(&self, py: Python<'_>, position: u64) -> PyResult<()> {
        check_window(&self.window, position)?;
        let next = Mixed::new(&self.mixture, position, self.window.end);
        let before = std::mem::replace(&mut *self.state.lock(py)?.state, next);
        drop(before); // with nobody kept waiting
        Ok(())
    }

    /// Give nothing more, and let go of what was prepared. Closing again does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let state = &mut *self.state.lock(py)?.state;
        state.end = state.position;
        state.finish();
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
        let locked = self.state.lock(py)?;
        let state = &*locked.state;
        let left = if state.sources.is_empty() { 0 } else { state.end - state.position };
        // Who makes room for as many cannot do so for what has no end.
        Ok(if left > u64::from(u32::MAX) { 0 } else { left })
    }
}
