#![doc = include_str!("../README.md")]

mod dataset;
mod error;
mod frame;
mod iter;
mod mixed;
mod orders;
mod portion;
mod profile;
mod pull;
mod runtime;
mod sample;
mod state;
mod view;

/// The extension module: registration only.
#[pyo3::pymodule(gil_used = true)]
mod _native {
    #[pymodule_export]
    const PLAN_VERSION: u32 = drt_sampler::PLAN_VERSION;

    #[pymodule_export]
    use crate::dataset::{PyDataset, PyPreparedTable};
    #[pymodule_export]
    use crate::error::error_kinds;
    #[pymodule_export]
    use crate::iter::PySampleIterator;
    #[pymodule_export]
    use crate::mixed::PyMixedIterator;
    #[pymodule_export]
    use crate::orders::{PyBalancedPlan, PyMixture, PyWeightedOrder};
    #[pymodule_export]
    use crate::profile::{PyReadProfile, PyWriteProfile};
    #[pymodule_export]
    use crate::runtime::{PyProgress, PyRuntime, cpu_budget, sweep};
    #[pymodule_export]
    use crate::view::{PyPlan, PyTableView};
}
