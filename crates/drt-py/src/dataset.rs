use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drt_reader::profile::Profile;
use drt_reader::{ActiveTable, Attachment, Block, CachedDataset, PreparedTable, StreamPlace};
use drt_runtime::WorkerPool;
use drt_writer::fs::StdFs;
use drt_writer::{UpgradeStatus, UpgradeTarget, upgrade_manifests};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::error::from_read;
use crate::frame;
use crate::iter::PySampleIterator;
use crate::portion::{Portion, TURN, Turns, wait};
use crate::sample::{SampleBuilder, to_python};
use crate::state::{self, Progress};
use crate::view::PyTableView;

/// The dataset behind a `CachedDataset`.
#[pyclass(name = "Dataset", module = "dataset_rt._native", frozen)]
pub(crate) struct PyDataset {
    dataset: CachedDataset,
    builder: Arc<SampleBuilder>,
    /// How far the iterator over the last window is, until another table or place is set.
    last: Mutex<Option<Arc<Progress>>>,
}

/// A table that was checked and can be made the active one.
#[pyclass(name = "PreparedTable", module = "dataset_rt._native", frozen)]
pub(crate) struct PyPreparedTable(Arc<ActiveTable>);

/// A stored column's name, the first row with another value, that row's identity, and the value that the cache holds.
type IgnoredColumn<'py> = (String, usize, u64, u64, Bound<'py, PyAny>);

impl PyDataset {
    pub(crate) fn new(py: Python<'_>, dataset: CachedDataset) -> PyResult<Self> {
        let builder = Arc::new(SampleBuilder::new(py, dataset.catalog())?);
        Ok(Self { dataset, builder, last: Mutex::default() })
    }

    fn last(&self) -> MutexGuard<'_, Option<Arc<Progress>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn samples(&self, py: Python<'_>, ids: Vec<(u64, u64)>) -> PyResult<Vec<Py<PyAny>>> {
        let blocks = wait(py, |stop| self.dataset.get_many(&ids, stop))?.map_err(|error| from_read(&error))?;
        build_samples(py, blocks, self.dataset.pool(), &self.builder)
    }
}

/// The objects of all samples in some blocks.
pub(crate) fn build_samples(
    py: Python<'_>,
    blocks: Vec<Block>,
    pool: &WorkerPool,
    builder: &SampleBuilder,
) -> PyResult<Vec<Py<PyAny>>> {
    let mut samples = Vec::with_capacity(blocks.iter().map(Block::len).sum());
    let mut portions: Vec<_> = blocks.into_iter().map(Arc::new).flat_map(Portion::cut).collect();
    let mut texts = builder.new_texts();
    let unmeasured = Profile::default();
    let mut copied = 1;
    let mut turns = Turns::new(TURN);
    for current in 0..portions.len() {
        turns.pause(py)?;
        // While one portion's objects are built, each of the threads copies another one's payloads.
        let ahead = portions.len().min(current + 1 + pool.num_workers());
        for portion in portions[..ahead].iter_mut().skip(copied.max(current + 1)) {
            portion.copy_ahead(py, pool, &unmeasured)?;
        }
        copied = copied.max(ahead);
        let portion = &mut portions[current];
        portion.finish_copying(py, &unmeasured)?;
        while let Some(at) = portion.next() {
            let payload = portion.payload().map_err(|error| from_read(&error))?;
            let sample = portion.block.sample(at).map_err(|error| from_read(&error))?;
            samples.push(builder.build(py, sample, payload, &mut texts)?.unbind());
        }
    }
    Ok(samples)
}

#[pymethods]
impl PyDataset {
    /// Take the next window of the stream.
    fn iter(&self) -> PyResult<PySampleIterator> {
        let mut last = self.last();
        let window = self.dataset.next_window().map_err(|error| from_read(&error))?;
        let samples = window.iter_from(window.positions.start).map_err(|error| from_read(&error))?;
        let progress = Arc::clone(last.insert(Arc::new(Progress::new(window))));
        Ok(PySampleIterator::new(samples, Arc::clone(&self.builder), Some(progress)))
    }

    /// Where the stream is: in the middle of the last window if its iterator has not come to its end.
    fn state_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (view, plan, place) = {
            let last = self.last();
            let (view, plan, place) = self.dataset.snapshot();
            let middle = last.as_ref().and_then(|progress| progress.place());
            (view, plan, middle.map_or(place, |middle| StreamPlace { epoch_len: place.epoch_len, ..middle }))
        };
        state::dump(py, &view, &plan, place)
    }

    /// Go on from the place that a state names.
    fn load_state_dict(&self, py: Python<'_>, state: &Bound<'_, PyAny>, strict: bool) -> PyResult<()> {
        let (view, plan, _) = self.dataset.snapshot();
        let place = state::load(py, state, &view, &plan, strict)?;
        let mut last = self.last();
        self.dataset.set_place(place).map_err(|error| from_read(&error))?;
        *last = None;
        Ok(())
    }

    /// The active table as it is now.
    fn view(&self) -> PyTableView {
        PyTableView::new(self.dataset.view(), Arc::clone(&self.builder))
    }

    #[getter]
    fn epoch_len(&self) -> u64 {
        self.dataset.place().epoch_len
    }

    /// Samples in the next window: those of an epoch, or the rest of one.
    #[getter]
    fn next_len(&self) -> u64 {
        self.dataset.epoch_len()
    }

    fn set_epoch_len(&self, len: u64) -> PyResult<()> {
        self.dataset.set_epoch_len(len).map_err(|error| from_read(&error))
    }

    /// Names and kinds of the stored columns, in order.
    #[getter]
    fn schema(&self) -> Vec<(String, &'static str)> {
        self.dataset.schema().fields().iter().map(|field| (field.name.clone(), field.kind.name())).collect()
    }

    /// Read one sample by identity.
    fn get_item(&self, py: Python<'_>, cache_id: u64, sample_id: u64) -> PyResult<Py<PyAny>> {
        Ok(self.samples(py, vec![(cache_id, sample_id)])?.remove(0))
    }

    /// Read samples by identity, in the order asked for.
    fn get_many<'py>(&self, py: Python<'py>, ids: Vec<(u64, u64)>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.samples(py, ids)?)
    }

    /// The frame that was last made active, or the stored metadata.
    fn metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        if let Some(attachment) = self.dataset.table().attachment()
            && let Some(frame) = attachment.downcast_ref::<Py<PyAny>>()
        {
            return Ok(frame.bind(py).clone());
        }
        self.stored_metadata(py)
    }

    /// The stored metadata, whatever table is active.
    fn stored_metadata<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let frame = py.detach(|| self.dataset.stored_metadata()).map_err(|error| from_read(&error))?;
        frame::to_python(py, frame)
    }

    /// Check a frame that is to be the active table. `columns` has those that decide, `original` is what `metadata` gives back.
    ///
    /// With the table come the stored columns whose values are other ones in the frame: each one's name, its first row that
    /// differs, the identity of that row, and the value that the cache holds.
    fn prepare_metadata<'py>(
        &self,
        py: Python<'py>,
        columns: &Bound<'_, PyAny>,
        original: Py<PyAny>,
    ) -> PyResult<(PyPreparedTable, Vec<IgnoredColumn<'py>>)> {
        let frame = frame::from_python(columns)?;
        let attachment: Attachment = Arc::new(original);
        let prepared = wait(py, |stop| self.dataset.prepare_metadata(&frame, Some(attachment), stop))?;
        let PreparedTable { table, ignored } = prepared.map_err(|error| from_read(&error))?;
        let ignored = ignored.into_iter().map(|column| {
            let stored = to_python(py, column.stored);
            (column.name.to_owned(), column.row, column.cache_id.get(), column.sample_id, stored)
        });
        Ok((PyPreparedTable(table), ignored.collect()))
    }

    /// Make a table that this dataset prepared the active one.
    fn activate(&self, table: &PyPreparedTable) -> PyResult<()> {
        let mut last = self.last();
        self.dataset.activate(Arc::clone(&table.0)).map_err(|error| from_read(&error))?;
        *last = None;
        Ok(())
    }

    /// Give manifests of format 2 the identities that their caches have here: what was done, and which manifest stopped it.
    #[allow(clippy::type_complexity, reason = "two parts of one answer, taken apart at once")]
    fn update_manifests(
        &self,
        py: Python<'_>,
    ) -> PyResult<(Vec<(PathBuf, u64, &'static str)>, Option<(PathBuf, String)>)> {
        let caches = self.dataset.catalog().caches();
        let targets: Vec<_> = (caches.iter())
            .map(|cache| UpgradeTarget { cache: cache.path(), cache_id: cache.id(), opened: cache.manifest() })
            .collect();
        let (entries, failure) = match wait(py, |stop| upgrade_manifests(&StdFs, &targets, stop))? {
            Ok(entries) => (entries, None),
            Err(error) => {
                let message = error.to_string();
                (error.entries, Some((error.path, message)))
            }
        };
        let status = |status| match status {
            UpgradeStatus::Updated => "updated",
            UpgradeStatus::Unchanged => "unchanged",
            UpgradeStatus::DurabilityUnknown => "durability_unknown",
        };
        let entries = entries.into_iter().map(|entry| (entry.path, entry.cache_id.get(), status(entry.status)));
        Ok((entries.collect(), failure))
    }
}
