//! The one error of this crate.

use std::io;
use std::path::PathBuf;

use drt_format::{FormatError, MetadataKind};
use drt_metadata::MetadataError;
use drt_runtime::PoolError;

/// Why a cache was not written.
///
/// What was at its path before is still there, and otherwise nothing, with one exception: when only the last step fails, to make
/// the new name in the base folder durable (`Io` about that folder or the one for work in it), the cache stands whole at its
/// path and might not outlast a power failure.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A setting outside its range.
    #[error("invalid writer configuration: {reason}")]
    InvalidConfig {
        /// Which setting, and its range.
        reason: String,
    },
    /// A source name that cannot be a folder name.
    #[error("invalid source name")]
    InvalidName(#[source] FormatError),
    /// Something is at the cache's path already.
    #[error("{} already exists; choose another source name or base folder, or remove it first", path.display())]
    TargetExists {
        /// The cache's path.
        path: PathBuf,
    },
    /// Somebody else writes the cache at the moment.
    #[error(
        "{} is being written by {holder}; wait until that has ended and reuse the cache, or choose another source name or base \
         folder", path.display()
    )]
    BeingWritten {
        /// The cache's path.
        path: PathBuf,
        /// Who it is, as far as is known.
        holder: String,
    },
    /// What stands at the cache's path is no folder of a cache that could be replaced by a new one.
    #[error("{} cannot be replaced by a new cache: {reason}", path.display())]
    NotReplaceable {
        /// The cache's path.
        path: PathBuf,
        /// What is there.
        reason: String,
    },
    /// A fingerprint that cannot be kept.
    #[error("the source's fingerprint {reason}")]
    InvalidFingerprint {
        /// What is wrong with it.
        reason: String,
    },
    /// The source yielded nothing.
    #[error("cache source yielded no samples")]
    NoSamples,
    /// The first sample's columns cannot be stored.
    #[error("sample {row}: the metadata columns cannot be stored")]
    InvalidSchema {
        /// The sample, from 0.
        row: u64,
        /// The reason.
        #[source]
        source: FormatError,
    },
    /// A sample with other columns than the first.
    #[error("sample {row}: {reason}; every sample needs the columns of the first one: {expected}")]
    ColumnsDiffer {
        /// The sample, from 0.
        row: u64,
        /// Which column is missing or extra.
        reason: String,
        /// The first sample's columns.
        expected: String,
    },
    /// A value of another kind than the first sample's.
    #[error("sample {row}: metadata field {column:?} is {found} here and {expected} in the first sample")]
    KindDiffers {
        /// The sample, from 0.
        row: u64,
        /// The column.
        column: String,
        /// The first sample's kind.
        expected: MetadataKind,
        /// This sample's kind.
        found: MetadataKind,
    },
    /// A float that the format has no text for.
    #[error(
        "sample {row}: metadata field {column:?} is {value}, and cached metadata must be finite; leave the sample out, or \
         store a finite stand-in and a bool column that marks it"
    )]
    NonFinite {
        /// The sample, from 0.
        row: u64,
        /// The column.
        column: String,
        /// The value.
        value: f64,
    },
    /// A metadata table that cannot be stored.
    #[error("sample {row}")]
    Metadata {
        /// The sample, from 0.
        row: u64,
        /// The reason.
        #[source]
        source: MetadataError,
    },
    /// A payload that cannot be encoded.
    #[error("sample {row}: the payload cannot be encoded")]
    Payload {
        /// The sample, from 0.
        row: u64,
        /// The reason.
        #[source]
        source: FormatError,
    },
    /// The source itself failed.
    #[error("sample {row}: the source failed")]
    Source {
        /// The sample that was asked for, from 0.
        row: u64,
        /// The source's own error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file system refused.
    #[error("could not {action} {}", path.display())]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The file system's reason.
        #[source]
        source: io::Error,
    },
    /// The caller asked to stop.
    #[error("the write was interrupted")]
    Interrupted,
    /// The pool could not run a job.
    #[error(transparent)]
    Pool(#[from] PoolError),
}

impl WriteError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
