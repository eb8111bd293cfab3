//! Where a stream is, as a dictionary that fits into JSON.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use drt_format::Sha256Digest;
use drt_reader::{Order, StreamPlace, TableView, Window};
use drt_sampler::{Mode, PLAN_VERSION, SamplingPlan};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{INVALID_STATE, STATE_MISMATCH, from_read, raise};

const FORMAT: &str = "dataset-rt/state";
const VERSION: u64 = 1;

/// How far the iterator over a window is. The dataset that it came from looks at it.
#[derive(Debug)]
pub(crate) struct Progress {
    pub(crate) window: Window,
    next: AtomicU64,
    is_closed: AtomicBool,
}

impl Progress {
    pub(crate) fn new(window: Window) -> Self {
        let next = AtomicU64::new(window.positions.start);
        Self { window, next, is_closed: AtomicBool::new(false) }
    }

    /// One more sample was handed out. Only ever called by one thread at a time.
    #[inline]
    pub(crate) fn advance(&self) {
        self.next.store(self.next.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }

    /// Go on from another place, also when it was closed.
    pub(crate) fn set(&self, position: u64) {
        self.next.store(position, Ordering::Relaxed);
        self.is_closed.store(false, Ordering::Relaxed);
    }

    /// What was not handed out is not wanted.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// The place in the middle of the window; `None` when it is finished or closed.
    pub(crate) fn place(&self) -> Option<StreamPlace> {
        let (position, end) = (self.next.load(Ordering::Relaxed), self.window.positions.end);
        let is_open = position < end && !self.is_closed.load(Ordering::Relaxed);
        let Window { pass, epoch_len, .. } = self.window;
        is_open.then(|| StreamPlace { pass, position, rest: end - position, epoch_len })
    }

    /// The place behind the window.
    pub(crate) fn end(&self) -> StreamPlace {
        let Window { pass, epoch_len, .. } = self.window;
        StreamPlace { pass: pass.saturating_add(1), position: self.window.positions.end, rest: 0, epoch_len }
    }
}

/// Everything that decides which sample comes at a position.
struct Identity {
    order: &'static str,
    /// What order does not depend on is `None`.
    seed: Option<u64>,
    rows: u64,
    caches: String,
    table: String,
    weights: Option<String>,
}

impl Identity {
    fn of(py: Python<'_>, view: &TableView, plan: &SamplingPlan) -> PyResult<Self> {
        let order = match plan.mode() {
            Mode::Cyclic => Order::Sequential,
            Mode::Multinomial => Order::Weighted,
            Mode::Permutation => Order::Permutation,
        };
        let table = view.table();
        let (caches, rows, weights) = py.detach(|| {
            let weights = if order == Order::Weighted { table.weights_digest() } else { Ok(None) };
            (view.catalog().digest(), table.rows_digest(), weights)
        });
        let weights = weights.map_err(|error| from_read(&error))?;
        Ok(Self {
            order: order.name(),
            seed: (order != Order::Sequential).then(|| plan.seed()),
            rows: table.num_rows(),
            caches: caches.to_string(),
            table: rows.to_string(),
            weights: weights.as_ref().map(Sha256Digest::to_string),
        })
    }
}

/// The state of a stream at a place.
pub(crate) fn dump<'py>(
    py: Python<'py>,
    view: &TableView,
    plan: &SamplingPlan,
    place: StreamPlace,
) -> PyResult<Bound<'py, PyDict>> {
    let identity = Identity::of(py, view, plan)?;
    let state = PyDict::new(py);
    state.set_item("format", FORMAT)?;
    state.set_item("version", VERSION)?;
    let plan = PyDict::new(py);
    plan.set_item("version", PLAN_VERSION)?;
    plan.set_item("order", identity.order)?;
    plan.set_item("seed", identity.seed)?;
    plan.set_item("rows", identity.rows)?;
    plan.set_item("caches", identity.caches)?;
    plan.set_item("table", identity.table)?;
    plan.set_item("weights", identity.weights)?;
    state.set_item("plan", plan)?;
    state.set_item("pass", place.pass)?;
    state.set_item("position", place.position)?;
    state.set_item("rest", place.rest)?;
    state.set_item("epoch_len", place.epoch_len)?;
    Ok(state)
}

fn invalid(what: String) -> PyErr {
    raise(INVALID_STATE, format!("this is no state of a dataset: {what}"), None, None)
}

fn item<'py>(dict: &Bound<'py, PyDict>, key: &str) -> PyResult<Bound<'py, PyAny>> {
    dict.get_item(key)?.ok_or_else(|| invalid(format!("it has no {key:?}")))
}

/// The place that a state names. With `strict` the state must be of the stream that goes on.
pub(crate) fn load(
    py: Python<'_>,
    state: &Bound<'_, PyAny>,
    view: &TableView,
    plan: &SamplingPlan,
    strict: bool,
) -> PyResult<StreamPlace> {
    let state = state.cast::<PyDict>().map_err(|_| invalid("it is not a dict".into()))?;
    let number = |key: &str| {
        let value = item(state, key)?;
        value.extract::<u64>().map_err(|_| invalid(format!("{key:?} is no number from 0 to 2**64 - 1: {value}")))
    };
    let format = item(state, "format")?;
    if !format.eq(FORMAT)? {
        return Err(invalid(format!("its format is {format}, and not {FORMAT}")));
    }
    let version = number("version")?;
    if version != VERSION {
        let message = format!("the state has version {version}, and this release reads version {VERSION}");
        return Err(raise(STATE_MISMATCH, message, None, None));
    }
    let found = item(state, "plan")?;
    let found = found.cast::<PyDict>().map_err(|_| invalid("\"plan\" is not a dict".into()))?;
    let identity = Identity::of(py, view, plan)?;
    let mut differences = Vec::new();
    let mut compare = |key: &str, what: &str, own: Bound<'_, PyAny>, is_shown: bool| -> PyResult<()> {
        let saved = item(found, key)?;
        if !saved.eq(&own)? {
            differences.push(if is_shown {
                format!("{what} is {own} here and was {saved}")
            } else {
                format!("{what} differ")
            });
        }
        Ok(())
    };
    compare("version", "the plan version", PLAN_VERSION.into_pyobject(py)?.into_any(), true)?;
    compare("order", "the order", identity.order.into_pyobject(py)?.into_any(), true)?;
    compare("seed", "the seed", identity.seed.into_pyobject(py)?.into_any(), true)?;
    compare("caches", "the caches", identity.caches.into_pyobject(py)?.into_any(), false)?;
    compare("rows", "the number of active rows", identity.rows.into_pyobject(py)?.into_any(), true)?;
    compare("table", "the rows of the active table", identity.table.into_pyobject(py)?.into_any(), false)?;
    compare("weights", "the weights", identity.weights.into_pyobject(py)?.into_any(), false)?;
    if strict && !differences.is_empty() {
        let message = format!(
            "the state is of another stream: {}; set up what it was saved with, or pass strict=False to go on by position",
            differences.join(", ")
        );
        return Err(raise(STATE_MISMATCH, message, None, None));
    }
    let (pass, position, rest) = (number("pass")?, number("position")?, number("rest")?);
    Ok(StreamPlace { pass, position, rest, epoch_len: number("epoch_len")? })
}
