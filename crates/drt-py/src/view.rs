use std::path::PathBuf;
use std::sync::Arc;

use drt_format::{Sha256Digest, Sha256Hasher};
use drt_reader::{Order, Positions, TableView};
use drt_sampler::{Mode, PLAN_VERSION, SamplingPlan, Weights};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::dataset::build_samples;
use crate::error::{INVALID_CONFIG, from_read, from_sampler, raise};
use crate::iter::PySampleIterator;
use crate::orders::{PyWeightedOrder, check_positions};
use crate::portion::wait;
use crate::runtime::PyRuntime;
use crate::sample::SampleBuilder;

/// A table as it was at one moment: the rows of a `Dataset`, or of a file that another process saved.
#[pyclass(name = "TableView", module = "dataset_rt._native", frozen)]
pub(crate) struct PyTableView {
    view: TableView,
    builder: Arc<SampleBuilder>,
}

impl PyTableView {
    pub(crate) fn new(view: TableView, builder: Arc<SampleBuilder>) -> Self {
        Self { view, builder }
    }

    /// The table, and what makes objects of its samples.
    pub(crate) fn parts(&self) -> (&TableView, &Arc<SampleBuilder>) {
        (&self.view, &self.builder)
    }
}

pub(crate) fn order_named(name: &str) -> PyResult<Order> {
    Order::from_name(name).ok_or_else(|| {
        let message = format!("order must be \"weighted\", \"sequential\" or \"permutation\"; got {name:?}");
        raise(INVALID_CONFIG, message, None, None)
    })
}

/// Row numbers from a list of ints, or from a buffer of them.
fn row_numbers(rows: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
    let py = rows.py();
    if let Ok(buffer) = PyBuffer::<u64>::get(rows) {
        return buffer.to_vec(py);
    }
    if let Ok(buffer) = PyBuffer::<u32>::get(rows) {
        return Ok(buffer.to_vec(py)?.into_iter().map(u64::from).collect());
    }
    if let Ok(buffer) = PyBuffer::<i64>::get(rows) {
        let row = |row: i64| u64::try_from(row).map_err(|_| PyOverflowError::new_err(format!("row {row} is negative")));
        return buffer.to_vec(py)?.into_iter().map(row).collect();
    }
    rows.extract()
}

#[pymethods]
impl PyTableView {
    #[getter]
    fn num_rows(&self) -> u64 {
        self.view.table().num_rows()
    }

    #[getter]
    fn is_weighted(&self) -> bool {
        self.view.table().is_weighted()
    }

    /// What `Dataset.metadata` gave back when the view was taken; None for the stored metadata.
    #[getter]
    fn original<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        let original = self.view.table().attachment()?.downcast_ref::<Py<PyAny>>()?;
        Some(original.bind(py).clone())
    }

    /// Read rows by their number, in the order asked for.
    fn read<'py>(&self, py: Python<'py>, rows: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        let rows = row_numbers(rows)?;
        let blocks = wait(py, |stop| self.view.get_rows(&rows, stop))?.map_err(|error| from_read(&error))?;
        PyList::new(py, build_samples(py, blocks, self.view.pool(), &self.builder)?)
    }

    /// A part of the rows, of the table's order or of one of its permutations.
    #[pyo3(signature = (start, stop, *, permute=None))]
    fn subset(&self, py: Python<'_>, start: u64, stop: u64, permute: Option<u64>) -> PyResult<Self> {
        let part = py.detach(|| self.view.subset(start..stop, permute)).map_err(|error| from_read(&error))?;
        Ok(Self::new(part, Arc::clone(&self.builder)))
    }

    /// The same rows, read by the threads of another runtime.
    fn on(&self, runtime: &PyRuntime) -> Self {
        Self::new(self.view.on(Arc::clone(&runtime.pool)), Arc::clone(&self.builder))
    }

    /// The rows by weight, without replacement.
    fn weighted_order(&self, py: Python<'_>, seed: u64) -> PyResult<PyWeightedOrder> {
        let table = self.view.table();
        PyWeightedOrder::make(py, || (0..table.num_rows()).map(|row| table.weight(row)).collect(), seed)
    }

    /// How rows are drawn in an order.
    fn plan(&self, py: Python<'_>, order: &str, seed: u64) -> PyResult<PyPlan> {
        let order = order_named(order)?;
        let plan = py.detach(|| self.view.plan(order, seed)).map_err(|error| from_read(&error))?;
        Ok(PyPlan(plan))
    }

    /// Iterate over `count` positions of a plan: in a row, or in pieces of `piece` whose beginnings are `stride` apart.
    #[pyo3(signature = (plan, start, count, *, piece=None, stride=None))]
    fn iter(
        &self,
        plan: &PyPlan,
        start: u64,
        count: u64,
        piece: Option<u64>,
        stride: Option<u64>,
    ) -> PyResult<PySampleIterator> {
        let positions = match (piece, stride) {
            (None, None) => Positions::window(start, count),
            (Some(piece), Some(stride)) => Positions::pieces(start, count, piece, stride),
            _ => return Err(PyTypeError::new_err("piece and stride go together")),
        };
        let samples = positions.and_then(|positions| self.view.iter(plan.0.clone(), positions));
        let samples = samples.map_err(|error| from_read(&error))?;
        Ok(PySampleIterator::new(samples, Arc::clone(&self.builder), None))
    }

    /// Write the table to a new file that `Runtime.open_view` maps.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        py.detach(|| self.view.save(&path)).map_err(|error| from_read(&error))
    }

    /// Digests of what a stream of this table depends on: the caches, the rows, and the weights if they differ.
    fn digests(&self, py: Python<'_>) -> PyResult<(String, String, Option<String>)> {
        let (caches, rows, weights) = py.detach(|| {
            let table = self.view.table();
            (self.view.catalog().digest(), table.rows_digest(), table.weights_digest())
        });
        let weights = weights.map_err(|error| from_read(&error))?;
        Ok((caches.to_string(), rows.to_string(), weights.as_ref().map(Sha256Digest::to_string)))
    }
}

/// An endless sequence of row numbers, any of which is computed directly.
#[pyclass(name = "Plan", module = "dataset_rt._native", frozen)]
pub(crate) struct PyPlan(pub(crate) SamplingPlan);

#[pymethods]
impl PyPlan {
    /// A plan for `population` rows, or for as many as there are weights (a buffer of 64-bit floats). `table` is what a plan with
    /// weights is pickled with.
    #[new]
    #[pyo3(signature = (order, *, population=None, weights=None, table=None, seed=0))]
    fn new(
        py: Python<'_>,
        order: &str,
        population: Option<u64>,
        weights: Option<&Bound<'_, PyAny>>,
        table: Option<PyBackedBytes>,
        seed: u64,
    ) -> PyResult<Self> {
        let order = order_named(order)?;
        let by_weight = |weights| SamplingPlan::weighted(weights, seed);
        let plan = match (order, population, weights, table) {
            (Order::Weighted, None, Some(weights), None) => {
                let weights = PyBuffer::<f64>::get(weights)?.to_vec(py)?;
                py.detach(|| Weights::new(&weights)).map(by_weight)
            }
            (Order::Weighted, None, None, Some(table)) => {
                py.detach(|| Weights::from_table(table.to_vec())).map(by_weight)
            }
            (Order::Weighted, Some(population), None, None) => SamplingPlan::uniform(population, seed),
            (Order::Sequential, Some(population), None, None) => SamplingPlan::cyclic(population),
            (Order::Permutation, Some(population), None, None) => SamplingPlan::permutation(population, seed),
            _ => return Err(PyTypeError::new_err("a plan takes a population, or, to draw by them, weights")),
        };
        plan.map(Self).map_err(|error| from_sampler(&error))
    }

    fn __getnewargs_ex__<'py>(&self, py: Python<'py>) -> PyResult<((&'static str,), Bound<'py, PyDict>)> {
        let given = PyDict::new(py);
        match self.0.weights().and_then(|weights| weights.table()) {
            Some(table) => given.set_item("table", PyBytes::new(py, table))?,
            None => given.set_item("population", self.0.population())?,
        }
        given.set_item("seed", self.0.seed())?;
        Ok(((self.order(),), given))
    }

    #[getter]
    fn order(&self) -> &'static str {
        let order = match self.0.mode() {
            Mode::Cyclic => Order::Sequential,
            Mode::Multinomial => Order::Weighted,
            Mode::Permutation => Order::Permutation,
        };
        order.name()
    }

    #[getter]
    fn population(&self) -> u64 {
        self.0.population()
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.0.seed()
    }

    /// The rows at `count` positions from `start` on.
    fn rows<'py>(&self, py: Python<'py>, start: u64, count: usize) -> PyResult<Bound<'py, PyList>> {
        check_positions(start, count)?;
        let rows = py.detach(|| {
            let mut rows = vec![0; count];
            self.0.fill(start, &mut rows);
            rows
        });
        PyList::new(py, rows)
    }

    /// SHA-256 of everything that decides the sequence.
    fn digest(&self, py: Python<'_>) -> String {
        py.detach(|| {
            let mut hasher = Sha256Hasher::new();
            hasher.update(&PLAN_VERSION.to_le_bytes());
            hasher.update(self.order().as_bytes());
            hasher.update(&self.0.population().to_le_bytes());
            hasher.update(&self.0.seed().to_le_bytes());
            if let Some(table) = self.0.weights().and_then(|weights| weights.table()) {
                hasher.update(table);
            }
            hasher.finish().to_string()
        })
    }
}
