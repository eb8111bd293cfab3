use std::sync::Arc;

use drt_format::Sha256Hasher;
use drt_sampler::{BalancedPlan, Mixture, PLAN_VERSION, WeightedOrder};
use pyo3::buffer::{Element, PyBuffer};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes, PyDict, PyList, PyTuple};

use crate::error::from_sampler;

/// Positions `start` to `start + count` are there.
pub(crate) fn check_positions(start: u64, count: usize) -> PyResult<()> {
    match start.checked_add(count as u64) {
        Some(_) => Ok(()),
        None => Err(PyOverflowError::new_err("positions end at 2**64")),
    }
}

/// A digest over everything that decides a sequence of this kind.
fn begin_digest(kind: &str, population: u64, seed: u64) -> Sha256Hasher {
    let mut hasher = Sha256Hasher::new();
    hasher.update(&PLAN_VERSION.to_le_bytes());
    hasher.update(kind.as_bytes());
    hasher.update(&population.to_le_bytes());
    hasher.update(&seed.to_le_bytes());
    hasher
}

fn update_floats(hasher: &mut Sha256Hasher, floats: &[f64]) {
    for floats in floats.chunks(1024) {
        let bytes: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
        hasher.update(&bytes);
    }
}

/// Numbers as an `array.array`, which pickles well and comes back as a buffer of the same type.
fn array<'py, T: Element>(py: Python<'py>, typecode: &str, numbers: &[T]) -> PyResult<Bound<'py, PyAny>> {
    let made =
        py.import("array")?.getattr("array")?.call1((typecode, PyBytes::new(py, &vec![0; size_of_val(numbers)])))?;
    PyBuffer::<T>::get(&made)?.copy_from_slice(py, numbers)?;
    Ok(made)
}

/// Rows without replacement, by weight: an order of all rows for each epoch.
#[pyclass(name = "WeightedOrder", module = "dataset_rt._native", frozen)]
pub(crate) struct PyWeightedOrder(WeightedOrder);

impl PyWeightedOrder {
    pub(crate) fn make(py: Python<'_>, weights: impl FnOnce() -> Arc<[f64]> + Send, seed: u64) -> PyResult<Self> {
        let order = py.detach(|| WeightedOrder::new(weights(), seed)).map_err(|error| from_sampler(&error))?;
        Ok(Self(order))
    }
}

#[pymethods]
impl PyWeightedOrder {
    /// An order of as many rows as there are weights (a buffer of 64-bit floats).
    #[new]
    #[pyo3(signature = (weights, *, seed=0))]
    fn new(py: Python<'_>, weights: &Bound<'_, PyAny>, seed: u64) -> PyResult<Self> {
        let weights = PyBuffer::<f64>::get(weights)?.to_vec(py)?;
        Self::make(py, || weights.into(), seed)
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
        let weights = array(py, "d", self.0.weights())?;
        let seed = [("seed", self.0.seed())].into_py_dict(py)?;
        Ok((PyTuple::new(py, [weights])?.into_any(), seed))
    }

    #[getter]
    fn population(&self) -> u64 {
        self.0.population()
    }

    /// The first `count` rows of the order of an epoch.
    fn rows<'py>(&self, py: Python<'py>, epoch: u64, count: u64) -> PyResult<Bound<'py, PyList>> {
        let population = self.0.population();
        if count > population {
            return Err(PyValueError::new_err(format!("{count} rows of {population} without replacement")));
        }
        let rows = py.detach(|| self.0.first(epoch, count));
        PyList::new(py, rows)
    }

    /// SHA-256 of everything that decides the orders.
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| {
            let mut hasher = begin_digest("weighted-order", self.0.population(), self.0.seed());
            update_floats(&mut hasher, self.0.weights());
            hasher.finish().to_string()
        })
    }
}

/// An endless sequence of components in given shares.
#[pyclass(name = "Mixture", module = "dataset_rt._native", frozen)]
pub(crate) struct PyMixture(pub(crate) Mixture);

#[pymethods]
impl PyMixture {
    #[new]
    #[pyo3(signature = (shares, *, seed=0))]
    fn new(shares: Vec<f64>, seed: u64) -> PyResult<Self> {
        Mixture::new(&shares, seed).map(Self).map_err(|error| from_sampler(&error))
    }

    /// The components at `count` positions from `start` on, each with which of its positions it is.
    fn places<'py>(&self, py: Python<'py>, start: u64, count: usize) -> PyResult<Bound<'py, PyList>> {
        check_positions(start, count)?;
        let places = py.detach(|| {
            let mut places = vec![(0, 0); count];
            self.0.fill(start, &mut places);
            places
        });
        PyList::new(py, places)
    }
}

/// An endless sequence of row numbers, by groups in given shares.
#[pyclass(name = "BalancedPlan", module = "dataset_rt._native", frozen)]
pub(crate) struct PyBalancedPlan {
    plan: BalancedPlan,
    shares: Vec<f64>,
    digest: String,
}

#[pymethods]
impl PyBalancedPlan {
    /// A plan for as many rows as there are group numbers (a buffer of 32-bit unsigned integers).
    #[new]
    #[pyo3(signature = (groups, shares, *, seed=0))]
    fn new(py: Python<'_>, groups: &Bound<'_, PyAny>, shares: Vec<f64>, seed: u64) -> PyResult<Self> {
        let groups = PyBuffer::<u32>::get(groups)?.to_vec(py)?;
        py.detach(|| {
            let plan = BalancedPlan::new(&groups, &shares, seed)?;
            let mut hasher = begin_digest("balanced", plan.population(), seed);
            update_floats(&mut hasher, &shares);
            for groups in groups.chunks(1024) {
                let bytes: Vec<u8> = groups.iter().flat_map(|group| group.to_le_bytes()).collect();
                hasher.update(&bytes);
            }
            let digest = hasher.finish().to_string();
            Ok(Self { plan, shares, digest })
        })
        .map_err(|error| from_sampler(&error))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyDict>)> {
        let groups = array(py, "I", &py.detach(|| self.plan.groups()))?;
        let shares = PyList::new(py, &self.shares)?.into_any();
        let seed = [("seed", self.plan.mixture().seed())].into_py_dict(py)?;
        Ok((PyTuple::new(py, [groups, shares])?.into_any(), seed))
    }

    #[getter]
    fn population(&self) -> u64 {
        self.plan.population()
    }

    /// The rows at `count` positions from `start` on.
    fn rows<'py>(&self, py: Python<'py>, start: u64, count: usize) -> PyResult<Bound<'py, PyList>> {
        check_positions(start, count)?;
        let rows = py.detach(|| {
            let mut rows = vec![0; count];
            self.plan.fill(start, &mut rows);
            rows
        });
        PyList::new(py, rows)
    }

    /// SHA-256 of everything that decides the sequence.
    fn digest(&self) -> &str {
        &self.digest
    }
}
