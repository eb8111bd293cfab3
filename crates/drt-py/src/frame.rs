//! The one door between Polars in Python and Polars in Rust: frames cross it both ways without a copy.
//!
//! pyo3-polars speaks a private protocol of Polars. Should a release break it, the Arrow PyCapsule protocol can take its
//! place here, and nothing else changes (docs/adr/0002-polars-and-arrow.md).

use polars_core::frame::DataFrame;
use pyo3::prelude::*;
use pyo3_polars::PyDataFrame;

/// A Python frame as a Rust one. The caller has made sure that every column has a type that this build knows.
pub(crate) fn from_python(frame: &Bound<'_, PyAny>) -> PyResult<DataFrame> {
    Ok(frame.extract::<PyDataFrame>()?.0)
}

/// A Rust frame as a Python one.
pub(crate) fn to_python(py: Python<'_>, frame: DataFrame) -> PyResult<Bound<'_, PyAny>> {
    PyDataFrame(frame).into_pyobject(py)
}
