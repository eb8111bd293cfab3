//! Every error of the crates below, as an exception of `dataset_rt.exceptions`.
//!
//! The matches have no catch-all: a new variant compiles only once it has a kind.

use std::error::Error;
use std::path::Path;

use drt_format::FormatError;
use drt_reader::ReadError;
use drt_runtime::PoolError;
use drt_sampler::SamplerError;
use drt_writer::WriteError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// A kind of error: its stable code, and the class that carries it.
#[derive(Clone, Copy)]
pub(crate) struct Kind(&'static str, &'static str);

macro_rules! kinds {
    ($($name:ident = $code:literal $class:literal;)*) => {
        $(pub(crate) const $name: Kind = Kind($code, $class);)*
        const ALL: &[Kind] = &[$($name),*];
    };
}

kinds! {
    INVALID_ARGUMENT = "invalid-argument" "InvalidInputError";
    INVALID_CONFIG = "invalid-config" "InvalidInputError";
    INVALID_NAME = "invalid-name" "InvalidInputError";
    NO_CACHES = "no-caches" "InvalidInputError";
    NOT_A_CACHE = "not-a-cache" "CacheNotFoundError";
    CACHE_NOT_FOUND = "cache-not-found" "CacheNotFoundError";
    CACHE_EXISTS = "cache-exists" "CacheExistsError";
    BEING_WRITTEN = "being-written" "CacheExistsError";
    INVALID_FINGERPRINT = "invalid-fingerprint" "InvalidInputError";
    NO_SAMPLES = "no-samples" "InvalidInputError";
    INVALID_SAMPLE = "invalid-sample" "InvalidInputError";
    SOURCE_RAISED = "source-raised" "SourceError";
    MALFORMED_MANIFEST = "malformed-manifest" "CorruptCacheError";
    MALFORMED_INDEX = "malformed-index" "CorruptCacheError";
    MALFORMED_METADATA = "malformed-metadata" "CorruptCacheError";
    UNSUPPORTED_VERSION = "unsupported-version" "UnsupportedVersionError";
    MISSING_FILE = "missing-file" "CorruptCacheError";
    LENGTH_MISMATCH = "length-mismatch" "CorruptCacheError";
    SAMPLE_COUNT_MISMATCH = "sample-count-mismatch" "CorruptCacheError";
    CHECKSUM_MISMATCH = "checksum-mismatch" "CorruptCacheError";
    DAMAGED_RECORD = "damaged-record" "CorruptCacheError";
    REPLACED_FILE = "replaced-file" "CorruptCacheError";
    DUPLICATE_CACHE_ID = "duplicate-cache-id" "InvalidInputError";
    SCHEMAS_DIFFER = "schemas-differ" "InvalidInputError";
    TOO_MANY_ROWS = "too-many-rows" "InvalidInputError";
    INVALID_TABLE = "invalid-table" "InvalidInputError";
    UNREPRESENTABLE_METADATA = "unrepresentable-metadata" "CorruptCacheError";
    INVALID_EPOCH_LENGTH = "invalid-epoch-length" "InvalidInputError";
    INVALID_STATE = "invalid-state" "InvalidInputError";
    STATE_MISMATCH = "state-mismatch" "StateMismatchError";
    STREAM_EXHAUSTED = "stream-exhausted" "InvalidInputError";
    INDEX_OUT_OF_BOUNDS = "index-out-of-bounds" "SampleIndexError";
    ITERATOR_IN_USE = "iterator-in-use" "InvalidInputError";
    FORKED = "forked" "ForkedProcessError";
    STORAGE = "storage" "StorageError";
    INTERNAL = "internal" "InternalError";
}

/// Every kind that the native module can raise, with its class's name.
#[pyfunction]
pub(crate) fn error_kinds() -> Vec<(&'static str, &'static str)> {
    ALL.iter().map(|Kind(code, class)| (*code, *class)).collect()
}

/// An exception of `dataset_rt.exceptions`.
pub(crate) fn raise(kind: Kind, message: impl Into<String>, path: Option<&Path>, errno: Option<i32>) -> PyErr {
    static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
    let message = message.into();
    Python::attach(|py| {
        let build = || -> PyResult<PyErr> {
            let module =
                MODULE.get_or_try_init(py, || PyModule::import(py, "dataset_rt.exceptions").map(Bound::unbind))?;
            let arguments = PyDict::new(py);
            arguments.set_item("kind", kind.0)?;
            arguments.set_item("path", path)?;
            if kind.1 == STORAGE.1 {
                arguments.set_item("errno", errno)?;
            }
            let exception = module.bind(py).getattr(kind.1)?.call((message,), Some(&arguments))?;
            Ok(PyErr::from_value(exception))
        };
        build().unwrap_or_else(|error| error)
    })
}

/// An error and all that lies behind it, in one line.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut behind = error.source();
    while let Some(error) = behind {
        let more = error.to_string();
        // `#[error(transparent)]` repeats what it wraps.
        if !text.ends_with(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        behind = error.source();
    }
    text
}

fn pool_kind(error: &PoolError) -> Kind {
    match error {
        PoolError::NoWorkers => INVALID_ARGUMENT,
        PoolError::Forked { .. } => FORKED,
        PoolError::SpawnFailed { .. } => STORAGE,
        PoolError::JobPanicked { .. } => INTERNAL,
    }
}

pub(crate) fn from_pool(error: &PoolError) -> PyErr {
    raise(pool_kind(error), chain(error), None, None)
}

/// Every refusal of the sampler is about the numbers that it was given.
pub(crate) fn from_sampler(error: &SamplerError) -> PyErr {
    raise(INVALID_ARGUMENT, chain(error), None, None)
}

pub(crate) fn from_read(error: &ReadError) -> PyErr {
    let message = chain(error);
    match error {
        ReadError::InvalidConfig { .. } => raise(INVALID_CONFIG, message, None, None),
        ReadError::NoCaches => raise(NO_CACHES, message, None, None),
        ReadError::CacheNotFound { path } => raise(CACHE_NOT_FOUND, message, Some(path), None),
        ReadError::NotACache { path, .. } => raise(NOT_A_CACHE, message, Some(path), None),
        ReadError::Format { path, source: FormatError::UnsupportedVersion { .. } } => {
            raise(UNSUPPORTED_VERSION, message, Some(path), None)
        }
        ReadError::Format { path, .. } => {
            let is_index = path.extension().is_some_and(|extension| extension == "bin");
            raise(if is_index { MALFORMED_INDEX } else { MALFORMED_MANIFEST }, message, Some(path), None)
        }
        ReadError::Metadata { path, .. } => raise(MALFORMED_METADATA, message, Some(path), None),
        ReadError::MissingFile { path } => raise(MISSING_FILE, message, Some(path), None),
        ReadError::LengthMismatch { path, .. } => raise(LENGTH_MISMATCH, message, Some(path), None),
        ReadError::SampleCountMismatch { path, .. } => raise(SAMPLE_COUNT_MISMATCH, message, Some(path), None),
        ReadError::ChecksumMismatch { path, .. } => raise(CHECKSUM_MISMATCH, message, Some(path), None),
        ReadError::Record { path, .. } => raise(DAMAGED_RECORD, message, Some(path), None),
        ReadError::Replaced { path } => raise(REPLACED_FILE, message, Some(path), None),
        ReadError::Io { path, source, .. } => raise(STORAGE, message, Some(path), source.raw_os_error()),
        ReadError::DuplicateCacheId { second, .. } => raise(DUPLICATE_CACHE_ID, message, Some(second), None),
        ReadError::SchemasDiffer { second, .. } => raise(SCHEMAS_DIFFER, message, Some(second), None),
        ReadError::NoSamples => raise(NO_SAMPLES, message, None, None),
        ReadError::TooManyRows { .. } => raise(TOO_MANY_ROWS, message, None, None),
        ReadError::UnknownSample { .. } => raise(INDEX_OUT_OF_BOUNDS, message, None, None),
        ReadError::UnknownRow { .. } => raise(INDEX_OUT_OF_BOUNDS, message, None, None),
        ReadError::InvalidTable { .. } => raise(INVALID_TABLE, message, None, None),
        ReadError::Unrepresentable { path, .. } => raise(UNREPRESENTABLE_METADATA, message, Some(path), None),
        ReadError::InvalidEpochLen { .. } => raise(INVALID_EPOCH_LENGTH, message, None, None),
        ReadError::StreamExhausted => raise(STREAM_EXHAUSTED, message, None, None),
        ReadError::Sampler(_) => raise(INVALID_TABLE, message, None, None),
        ReadError::Pool(error) => raise(pool_kind(error), message, None, None),
        ReadError::Interrupted => raise(INTERNAL, message, None, None),
    }
}

pub(crate) fn from_write(error: &WriteError) -> PyErr {
    let message = chain(error);
    match error {
        WriteError::InvalidConfig { .. } => raise(INVALID_CONFIG, message, None, None),
        WriteError::InvalidName(_) => raise(INVALID_NAME, message, None, None),
        WriteError::TargetExists { path } => raise(CACHE_EXISTS, message, Some(path), None),
        WriteError::BeingWritten { path, .. } => raise(BEING_WRITTEN, message, Some(path), None),
        WriteError::NotReplaceable { path, .. } => raise(NOT_A_CACHE, message, Some(path), None),
        WriteError::InvalidFingerprint { .. } => raise(INVALID_FINGERPRINT, message, None, None),
        WriteError::NoSamples => raise(NO_SAMPLES, message, None, None),
        WriteError::InvalidSchema { .. }
        | WriteError::ColumnsDiffer { .. }
        | WriteError::KindDiffers { .. }
        | WriteError::NonFinite { .. }
        | WriteError::Metadata { .. }
        | WriteError::Payload { .. } => raise(INVALID_SAMPLE, message, None, None),
        WriteError::Source { .. } => raise(SOURCE_RAISED, message, None, None),
        WriteError::Io { path, source, .. } => raise(STORAGE, message, Some(path), source.raw_os_error()),
        WriteError::Interrupted => raise(INTERNAL, message, None, None),
        WriteError::Pool(error) => raise(pool_kind(error), message, None, None),
    }
}
