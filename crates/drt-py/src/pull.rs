//! Samples out of a Python iterable, into a cache writer.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use drt_format::{MetadataKind, MetadataValue};
use drt_runtime::WorkerPool;
use drt_writer::fs::StdFs;
use drt_writer::profile::{Profile, Stage};
use drt_writer::progress::ProgressSink;
use drt_writer::{CacheWriter, Payload, WriteError, WriteOptions, WriterConfig};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyException, PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyIterator, PyMapping, PyMemoryView, PyString, PyTuple, PyType,
};

use crate::error::{INVALID_SAMPLE, SOURCE_RAISED, from_write, raise};
use crate::portion::{copy_buffer, wait};
use crate::sample::LARGE_COPY;

/// How often the progress of a slow source is told.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// What is asked about one source besides the configuration.
pub(crate) struct Asked<'a> {
    /// Kept with the cache.
    pub(crate) fingerprint: Option<&'a str>,
    /// Replace a cache with another fingerprint.
    pub(crate) replace_stale: bool,
    /// Wait for another writer of the name.
    pub(crate) wait: bool,
}

/// Pull all samples of a source and publish them as `base/name`.
#[allow(clippy::too_many_arguments, reason = "one call, from one place")]
pub(crate) fn write(
    py: Python<'_>,
    pool: &Arc<WorkerPool>,
    source: &Bound<'_, PyAny>,
    name: &str,
    base: &Path,
    config: WriterConfig,
    asked: Asked<'_>,
    progress: &dyn ProgressSink,
) -> PyResult<PathBuf> {
    let profile = config.profile().clone();
    let Asked { fingerprint, replace_stale, wait } = asked;
    let mut writer = interruptible(py, |stop| {
        let mut told = false;
        let mut stop = |holder: &str| {
            if !std::mem::replace(&mut told, true) {
                progress.waiting(holder);
            }
            stop()
        };
        let options = WriteOptions { fingerprint, replace_stale, wait: if wait { Some(&mut stop) } else { None } };
        CacheWriter::create_with(Arc::new(StdFs), Arc::clone(pool), base, name, config, options)
    })?;
    let outcome = pull_all(py, source, &mut writer, &profile, progress);
    match outcome {
        Ok(()) => interruptible(py, |stop| writer.finish(stop)),
        Err(error) => {
            // Dropping waits for the jobs on their way and removes the work folder.
            py.detach(|| drop(writer));
            Err(error)
        }
    }
}

/// Run something that waits, unlocked, looking for signals meanwhile.
fn interruptible<T: Send>(
    py: Python<'_>,
    waiting: impl Send + FnOnce(&mut dyn FnMut() -> bool) -> Result<T, WriteError>,
) -> PyResult<T> {
    wait(py, waiting)?.map_err(|error| from_write(&error))
}

fn pull_all(
    py: Python<'_>,
    source: &Bound<'_, PyAny>,
    writer: &mut CacheWriter,
    profile: &Profile,
    progress: &dyn ProgressSink,
) -> PyResult<()> {
    let samples = source.try_iter().map_err(|error| source_raised(py, 0, error))?;
    let outcome = pull_from(py, &samples, writer, profile, progress);
    if outcome.is_err() {
        close(&samples)?;
    }
    outcome
}

/// Let a generator that will not be asked again run its `finally` blocks now.
fn close(samples: &Bound<'_, PyIterator>) -> PyResult<()> {
    static GENERATOR: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let generator = GENERATOR.import(samples.py(), "types", "GeneratorType")?;
    if samples.is_instance(generator)?
        && let Err(error) = samples.call_method0("close")
    {
        error.write_unraisable(samples.py(), Some(samples));
    }
    Ok(())
}

fn pull_from(
    py: Python<'_>,
    samples: &Bound<'_, PyIterator>,
    writer: &mut CacheWriter,
    profile: &Profile,
    progress: &dyn ProgressSink,
) -> PyResult<()> {
    let mut columns = Columns::default();
    let (mut told, mut told_at, mut bytes) = (0, Instant::now(), 0u64);
    let next = |row| profile.measure(Stage::PythonNext, 1, 0, || next_sample(py, samples, row));
    while let Some(sample) = next(writer.num_samples())? {
        bytes += push(&sample, writer, &mut columns, profile)?;
        let due = writer.needs_flush();
        if due {
            // A source made of ready objects runs no Python code in which a signal could be noticed.
            py.check_signals()?;
            interruptible(py, |stop| writer.flush(stop))?;
        }
        if due || told_at.elapsed() >= TELL_EVERY {
            progress.advanced(writer.num_samples() - told, bytes);
            (told, told_at, bytes) = (writer.num_samples(), Instant::now(), 0);
        }
    }
    progress.advanced(writer.num_samples() - told, bytes);
    Ok(())
}

fn next_sample<'py>(
    py: Python<'py>,
    samples: &Bound<'py, PyIterator>,
    row: u64,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    samples.clone().next().transpose().map_err(|error| source_raised(py, row, error))
}

/// What the source raised, behind an exception that says where. Whatever is meant for the whole program passes unchanged.
fn source_raised(py: Python<'_>, row: u64, error: PyErr) -> PyErr {
    if !error.is_instance_of::<PyException>(py) {
        return error;
    }
    let outer = raise(SOURCE_RAISED, format!("sample {row}: the source raised {error}"), None, None);
    outer.set_cause(py, Some(error));
    outer
}

fn bad_sample(row: u64, reason: impl std::fmt::Display) -> PyErr {
    raise(INVALID_SAMPLE, format!("sample {row}: {reason}"), None, None)
}

fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an unnamed type".to_owned(), |name| name.to_string())
}

/// The columns that the first sample fixed.
#[derive(Default)]
struct Columns(Option<Vec<(Py<PyString>, MetadataKind)>>);

/// Push one sample; returns its payload's length in bytes.
fn push(
    sample: &Bound<'_, PyAny>,
    writer: &mut CacheWriter,
    columns: &mut Columns,
    profile: &Profile,
) -> PyResult<u64> {
    let began = profile.start();
    let py = sample.py();
    let row = writer.num_samples();
    let not_a_pair = || {
        let found = type_name(sample);
        bad_sample(row, format!("expected a CacheInput, or a tuple of data and metadata; got {found}"))
    };
    let pair = sample.cast::<PyTuple>().map_err(|_| not_a_pair())?;
    if pair.len() != 2 {
        return Err(not_a_pair());
    }
    let data = as_bytes(&pair.get_item(0)?, row)?;
    let metadata = as_dict(&pair.get_item(1)?, row)?;

    let known = match &columns.0 {
        Some(known) => known,
        None => columns.0.insert(fix_columns(&metadata, writer)?),
    };
    // Values may borrow their text from these objects.
    let mut objects = Vec::with_capacity(known.len());
    for (key, _) in known {
        match metadata.get_item(key.bind(py))? {
            Some(object) => objects.push(object),
            None => break,
        }
    }
    let mut values = Vec::with_capacity(known.len());
    for (object, (key, kind)) in objects.iter().zip(known) {
        values.push(as_value(object, Some(*kind)).map_err(|reason| reason.for_field(py, row, key.bind(py)))?);
    }

    let len = data.len();
    let payload =
        if len < Payload::SHARE_FROM { Payload::Copy(&data) } else { Payload::Shared(Arc::new(data.clone_ref(py))) };
    profile.stop(began, Stage::PythonExtract, 1, len as u64);
    let outcome = if values.len() == known.len() && metadata.len() == known.len() {
        writer.push_values(payload, &values)
    } else {
        push_other_columns(&metadata, writer, row, payload)?
    };
    outcome.map_err(|error| from_write(&error))?;
    Ok(len as u64)
}

/// A sample whose columns are not those of the first one: the writer says how they differ.
fn push_other_columns(
    metadata: &Bound<'_, PyDict>,
    writer: &mut CacheWriter,
    row: u64,
    payload: Payload<'_>,
) -> PyResult<Result<(), WriteError>> {
    let names = column_names(metadata, row)?;
    let values: Vec<_> = names.iter().map(|name| (name.as_str(), MetadataValue::Bool(false))).collect();
    Ok(writer.push(payload, &values))
}

fn column_names(metadata: &Bound<'_, PyDict>, row: u64) -> PyResult<Vec<String>> {
    let name = |key: Bound<'_, PyAny>| {
        let text = key
            .cast::<PyString>()
            .map_err(|_| bad_sample(row, format!("metadata names must be str; got {}", type_name(&key))))?;
        text.to_str()
            .map(str::to_owned)
            .map_err(|_| bad_sample(row, "a metadata name has characters that UTF-8 cannot hold (lone surrogates)"))
    };
    metadata.keys().iter().map(name).collect()
}

/// Fix the columns as the first sample has them.
fn fix_columns(metadata: &Bound<'_, PyDict>, writer: &mut CacheWriter) -> PyResult<Vec<(Py<PyString>, MetadataKind)>> {
    let py = metadata.py();
    let row = writer.num_samples();
    let names = column_names(metadata, row)?;
    let objects: Vec<_> = metadata.values().iter().collect();
    let mut fields = Vec::with_capacity(names.len());
    for (name, object) in names.iter().zip(&objects) {
        let value = as_value(object, None).map_err(|reason| reason.for_field(py, row, &PyString::new(py, name)))?;
        fields.push((name.as_str(), value));
    }
    let schema = writer.fix_schema(&fields).map_err(|error| from_write(&error))?;
    Ok(schema.fields().iter().map(|field| (PyString::intern(py, &field.name).unbind(), field.kind)).collect())
}

/// A payload. `bytes` are shared; anything else with the buffer protocol is copied, since it may change.
fn as_bytes(data: &Bound<'_, PyAny>, row: u64) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return Ok(bytes.clone().into());
    }
    let refused = |_| {
        let found = type_name(data);
        let hint = if data.is_instance_of::<PyString>() {
            "encode it first, for example with .encode()"
        } else {
            "serialize it first"
        };
        bad_sample(row, format!("data must be bytes or another buffer; got {found}: {hint}"))
    };
    let view = PyMemoryView::from(data).map_err(refused)?;
    // The bytes of an array of objects are addresses, and a lone number is a forgotten serialization.
    let format: String = view.getattr("format")?.extract()?;
    if format.contains('O') || view.getattr("ndim")?.extract::<usize>()? == 0 {
        let found = type_name(data);
        let reason = format!("data must be bytes or an array of plain values; got {found}: serialize it first");
        return Err(bad_sample(row, reason));
    }
    let buffer = PyUntypedBuffer::get(&view).map_err(refused)?;
    let bytes = if buffer.len_bytes() >= LARGE_COPY && buffer.is_c_contiguous() {
        copy_buffer(data.py(), &buffer)?
    } else {
        view.call_method0("tobytes").map_err(refused)?
    };
    Ok(bytes.cast_into::<PyBytes>().map_err(|error| refused(error.into()))?.into())
}

/// Metadata as a dict: itself, or a copy of another mapping.
fn as_dict<'py>(metadata: &Bound<'py, PyAny>, row: u64) -> PyResult<Bound<'py, PyDict>> {
    if let Ok(dict) = metadata.cast::<PyDict>() {
        return Ok(dict.clone());
    }
    let mapping = metadata.cast::<PyMapping>().map_err(|_| {
        bad_sample(row, format!("metadata must be a mapping of names to values; got {}", type_name(metadata)))
    })?;
    let dict = PyDict::new(metadata.py());
    for item in mapping.items()? {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = item.extract()?;
        dict.set_item(key, value)?;
    }
    Ok(dict)
}

/// Why a value cannot be stored.
enum Refusal {
    /// Not of any kind that can.
    Kind(String),
    /// An integer beyond 64 bits.
    Range(String),
    /// Text that UTF-8 cannot hold.
    Text,
    /// The object's own conversion raised.
    Raised(PyErr),
}

impl Refusal {
    fn for_field(self, py: Python<'_>, row: u64, key: &Bound<'_, PyString>) -> PyErr {
        let reason = match self {
            Self::Kind(found) if found == "NoneType" => {
                "is None, and cached metadata has no nulls; leave the sample out, or store a stand-in value and a bool field \
                 that marks it"
                    .to_owned()
            }
            Self::Kind(found) => {
                format!("has type {found}; metadata values are bool, int, float or str (keep the rest in the payload)")
            }
            Self::Range(value) => {
                format!("is {value}, an integer outside -2**63 to 2**63-1; store it as str or float")
            }
            Self::Text => "has characters that UTF-8 cannot hold (lone surrogates)".to_owned(),
            // An interrupt or an exit is nobody's bad value.
            Self::Raised(error) if !error.is_instance_of::<PyException>(py) => return error,
            Self::Raised(error) => {
                let outer = bad_sample(row, format!("metadata field {key:?} cannot be converted: {error}"));
                outer.set_cause(py, Some(error));
                return outer;
            }
        };
        bad_sample(row, format!("metadata field {key:?} {reason}"))
    }
}

/// A Python object as a metadata value. `expected` decides nothing but which type is tried first.
fn as_value<'a>(object: &'a Bound<'_, PyAny>, expected: Option<MetadataKind>) -> Result<MetadataValue<'a>, Refusal> {
    match expected {
        Some(MetadataKind::Float) => {
            if let Ok(value) = object.cast_exact::<PyFloat>() {
                return Ok(MetadataValue::Float(value.value()));
            }
        }
        Some(MetadataKind::Int) => {
            if let Ok(value) = object.cast_exact::<PyInt>() {
                return integer(value.as_any());
            }
        }
        Some(MetadataKind::Bool | MetadataKind::String) | None => {}
    }
    if let Ok(text) = object.cast::<PyString>() {
        return text.to_str().map(MetadataValue::String).map_err(|_| Refusal::Text);
    }
    if let Ok(value) = object.cast::<PyBool>() {
        return Ok(MetadataValue::Bool(value.is_true()));
    }
    if object.is_instance_of::<PyInt>() {
        return integer(object);
    }
    if let Ok(value) = object.cast::<PyFloat>() {
        return Ok(MetadataValue::Float(value.value()));
    }
    foreign_value(object)
}

fn integer<'a>(object: &Bound<'_, PyAny>) -> Result<MetadataValue<'a>, Refusal> {
    object.extract::<i64>().map(MetadataValue::Int).map_err(|error| {
        if error.is_instance_of::<PyOverflowError>(object.py()) {
            // Python refuses to print integers of thousands of digits.
            Refusal::Range(object.str().map_or_else(|_| "huge".to_owned(), |text| text.to_string()))
        } else {
            Refusal::Raised(error)
        }
    })
}

/// NumPy scalars, decimals, and whatever else says that it is a number.
fn foreign_value<'a>(object: &Bound<'_, PyAny>) -> Result<MetadataValue<'a>, Refusal> {
    let py = object.py();
    let class = object.get_type();
    let name = type_name(object);
    let has = |attribute: &str| class.hasattr(attribute).unwrap_or(false);
    let is_numpy = class.module().is_ok_and(|module| module.to_str().is_ok_and(|module| module == "numpy"));
    if is_numpy && (name == "bool" || name == "bool_") {
        return object.is_truthy().map(MetadataValue::Bool).map_err(Refusal::Raised);
    }
    // An array without dimensions is one number.
    if is_numpy && name == "ndarray" && object.getattr("ndim").is_ok_and(|ndim| ndim.eq(0).unwrap_or(false)) {
        let item = object.call_method0("item").map_err(Refusal::Raised)?;
        return if let Ok(value) = item.cast::<PyBool>() {
            Ok(MetadataValue::Bool(value.is_true()))
        } else if item.is_instance_of::<PyInt>() {
            integer(&item)
        } else if let Ok(value) = item.cast::<PyFloat>() {
            Ok(MetadataValue::Float(value.value()))
        } else {
            Err(Refusal::Kind(name))
        };
    }
    // These have the methods of numbers, and would lose something by them.
    if is_numpy && (name == "ndarray" || name.starts_with("complex") || name.starts_with("clongdouble")) {
        return Err(Refusal::Kind(name));
    }
    if has("__index__") {
        static INDEX: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let index = INDEX.import(py, "operator", "index").map_err(Refusal::Raised)?;
        match index.call1((object,)) {
            Ok(value) => return integer(&value),
            // What has the method for all of its kind, like tensors, refuses it for those that are no integers.
            Err(error) if error.is_instance_of::<PyTypeError>(py) && has("__float__") => {}
            Err(error) => return Err(Refusal::Raised(error)),
        }
    }
    if has("__float__") {
        return object.extract::<f64>().map(MetadataValue::Float).map_err(Refusal::Raised);
    }
    Err(Refusal::Kind(name))
}
