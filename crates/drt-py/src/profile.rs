//! Profiles on their way to Python, which writes them to files.

use drt_runtime::StageTotals;
use pyo3::prelude::*;

/// A stage's name, its calls, its nanoseconds, its bytes.
type StageRow = (&'static str, u64, u64, u64);

fn stage_rows(totals: &[StageTotals]) -> Vec<StageRow> {
    totals.iter().map(|stage| (stage.name, stage.calls, stage.elapsed.as_nanos() as u64, stage.bytes)).collect()
}

/// Where the time of one source's write is counted.
#[pyclass(name = "WriteProfile", module = "dataset_rt._native", frozen)]
pub(crate) struct PyWriteProfile(pub(crate) drt_writer::profile::Profile);

#[pymethods]
impl PyWriteProfile {
    #[new]
    fn new() -> Self {
        Self(drt_writer::profile::Profile::on())
    }

    /// The stages that were gone through so far, sorted by name.
    fn stages(&self) -> Vec<StageRow> {
        stage_rows(&self.0.totals())
    }
}

/// Where the time of a dataset's iterators is counted.
#[pyclass(name = "ReadProfile", module = "dataset_rt._native", frozen)]
pub(crate) struct PyReadProfile(pub(crate) drt_reader::profile::Profile);

#[pymethods]
impl PyReadProfile {
    #[new]
    fn new() -> Self {
        Self(drt_reader::profile::Profile::on())
    }

    /// The stages that were gone through so far, sorted by name.
    fn stages(&self) -> Vec<StageRow> {
        stage_rows(&self.0.totals())
    }
}
