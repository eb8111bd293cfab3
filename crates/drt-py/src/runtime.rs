use std::path::PathBuf;
use std::sync::Arc;

use drt_format::constants::MANIFEST_FILE;
use drt_format::{CompressionAlgo, ShardCompression};
use drt_reader::{Cache, CachedDataset, IoMode, ReadError, ReaderConfig, TableView};
use drt_runtime::WorkerPool;
use drt_writer::WriterConfig;
use drt_writer::progress::{ProgressSink, Silent, for_stderr};
use pyo3::prelude::*;

use crate::dataset::PyDataset;
use crate::error::{INVALID_CONFIG, from_pool, from_read, from_write, raise};
use crate::portion::wait;
use crate::profile::{PyReadProfile, PyWriteProfile};
use crate::pull;
use crate::sample::SampleBuilder;
use crate::view::{PyTableView, order_named};

/// The fixed pool of threads behind a `DatasetRuntime`.
#[pyclass(name = "Runtime", module = "dataset_rt._native", frozen)]
pub(crate) struct PyRuntime {
    pub(crate) pool: Arc<WorkerPool>,
}

fn io_mode(io: &str) -> PyResult<IoMode> {
    match io {
        "mmap" => Ok(IoMode::Mmap),
        "pread" => Ok(IoMode::Pread),
        other => Err(raise(INVALID_CONFIG, format!("io must be \"mmap\" or \"pread\"; got {other:?}"), None, None)),
    }
}

#[pymethods]
impl PyRuntime {
    #[new]
    #[pyo3(signature = (*, num_workers))]
    fn new(num_workers: usize) -> PyResult<Self> {
        let pool = WorkerPool::new(num_workers).map_err(|error| from_pool(&error))?;
        Ok(Self { pool: Arc::new(pool) })
    }

    #[getter]
    fn num_workers(&self) -> usize {
        self.pool.num_workers()
    }

    /// Open caches as one dataset.
    #[pyo3(signature = (paths, *, seed, prefetch_size, order, validate_cache, io, profile))]
    #[allow(clippy::too_many_arguments, reason = "one flat call: the Python side has the models")]
    fn open_dataset(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        seed: u64,
        prefetch_size: usize,
        order: &str,
        validate_cache: bool,
        io: &str,
        profile: Option<&PyReadProfile>,
    ) -> PyResult<PyDataset> {
        let config = ReaderConfig { seed, prefetch_size, order: order_named(order)?, validate_cache, io: io_mode(io)? };
        let pool = Arc::clone(&self.pool);
        let dataset = wait(py, |stop| CachedDataset::open_unless(pool, &paths, config, stop))?;
        let dataset = dataset.map_err(|error| from_read(&error))?;
        let profile = profile.map(|profile| profile.0.clone()).unwrap_or_default();
        PyDataset::new(py, dataset.with_profile(profile))
    }

    /// Open caches with a table that `TableView.save` wrote for them.
    #[pyo3(signature = (paths, table, *, prefetch_size, validate_cache, io))]
    fn open_view(
        &self,
        py: Python<'_>,
        paths: Vec<PathBuf>,
        table: PathBuf,
        prefetch_size: usize,
        validate_cache: bool,
        io: &str,
    ) -> PyResult<PyTableView> {
        let config = ReaderConfig { prefetch_size, validate_cache, io: io_mode(io)?, ..ReaderConfig::new(0) };
        let pool = Arc::clone(&self.pool);
        let view = wait(py, |stop| TableView::open(pool, &paths, &table, config, stop))?;
        let view = view.map_err(|error| from_read(&error))?;
        let builder = SampleBuilder::new(py, view.catalog())?;
        Ok(PyTableView::new(view, Arc::new(builder)))
    }

    /// Is there a cache at the path that can be used? Raises what opening it would, and returns the fingerprint of its source.
    #[pyo3(signature = (path, *, validate_cache))]
    fn check_cache(&self, py: Python<'_>, path: PathBuf, validate_cache: bool) -> PyResult<Option<String>> {
        let look = |stop: &mut dyn FnMut() -> bool| {
            let cache = Cache::open(&path, 0, IoMode::Mmap, validate_cache, stop)?;
            let fingerprint = cache.manifest().fingerprint();
            let in_manifest = |source| ReadError::Format { path: path.join(MANIFEST_FILE), source };
            Ok(fingerprint.map_err(in_manifest)?.map(str::to_owned))
        };
        wait(py, look)?.map_err(|error: ReadError| from_read(&error))
    }

    /// Write one source as `base/name` and return the cache's path.
    #[pyo3(signature = (
        source, name, base, *, fingerprint, replace_stale, wait, max_shard_bytes, compression, ratio, level, prefetch_size,
        progress, profile
    ))]
    #[allow(clippy::too_many_arguments, reason = "one flat call: the Python side has the models")]
    fn write_source(
        &self,
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        name: &str,
        base: PathBuf,
        fingerprint: Option<&str>,
        replace_stale: bool,
        wait: bool,
        max_shard_bytes: u64,
        compression: &str,
        ratio: f64,
        level: Option<i32>,
        prefetch_size: usize,
        progress: &PyProgress,
        profile: Option<&PyWriteProfile>,
    ) -> PyResult<PathBuf> {
        let algo = CompressionAlgo::from_name(compression)
            .ok_or_else(|| raise(INVALID_CONFIG, format!("unknown compression {compression:?}"), None, None))?;
        let compression = ShardCompression::new(algo, ratio)
            .and_then(|compression| level.map_or(Ok(compression.clone()), |level| compression.with_level(level)))
            .map_err(|error| raise(INVALID_CONFIG, error.to_string(), None, None))?;
        let config =
            WriterConfig::new(max_shard_bytes, compression, prefetch_size).map_err(|error| from_write(&error))?;
        let config = config.with_profile(profile.map(|profile| profile.0.clone()).unwrap_or_default());
        progress.0.source_started(name);
        let asked = pull::Asked { fingerprint, replace_stale, wait };
        let outcome = pull::write(py, &self.pool, source, name, &base, config, asked, progress.0.as_ref());
        progress.0.source_finished(outcome.is_ok());
        outcome
    }
}

/// Processors that this process may use: those it may run on, and no more than its control group pays for.
#[pyfunction]
pub(crate) fn cpu_budget() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Remove what writers below a base folder have left that died without it.
#[pyfunction]
pub(crate) fn sweep(py: Python<'_>, base: PathBuf) {
    py.detach(|| drt_writer::sweep(&base));
}

/// Where a call's progress is told.
#[pyclass(name = "Progress", module = "dataset_rt._native", frozen)]
pub(crate) struct PyProgress(Box<dyn ProgressSink>);

#[pymethods]
impl PyProgress {
    #[new]
    #[pyo3(signature = (*, num_sources, show))]
    fn new(num_sources: usize, show: bool) -> Self {
        Self(if show { for_stderr(num_sources) } else { Box::new(Silent) })
    }
}
