//! The one error of this crate.

use std::io;
use std::path::PathBuf;

use drt_format::{CacheId, FormatError, Sha256Digest};
use drt_metadata::MetadataError;
use drt_runtime::PoolError;
use drt_sampler::SamplerError;

/// What can go wrong between a path and a sample.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// A setting outside its range.
    #[error("invalid reader configuration: {reason}")]
    InvalidConfig {
        /// Which setting, and its range.
        reason: String,
    },
    /// No caches were given.
    #[error("no cache paths were given; pass at least one cache folder")]
    NoCaches,
    /// Nothing is at the path.
    #[error("no such cache folder: {}", path.display())]
    CacheNotFound {
        /// The path as it was given.
        path: PathBuf,
    },
    /// The path is something other than a published cache.
    #[error("{} is not a cache: {reason}", path.display())]
    NotACache {
        /// The path as it was given.
        path: PathBuf,
        /// What is missing.
        reason: &'static str,
    },
    /// A file's bytes do not follow the format.
    #[error("{}: not valid", path.display())]
    Format {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: FormatError,
    },
    /// The metadata table does not follow the format.
    #[error("{}: not valid", path.display())]
    Metadata {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: MetadataError,
    },
    /// A file that the manifest lists does not exist.
    #[error("{}: the manifest lists this file, and it does not exist", path.display())]
    MissingFile {
        /// The file.
        path: PathBuf,
    },
    /// A file of another length than the manifest says.
    #[error("{}: the manifest says {expected} bytes and the file has {found}", path.display())]
    LengthMismatch {
        /// The file.
        path: PathBuf,
        /// Bytes in the manifest.
        expected: u64,
        /// Bytes on disk.
        found: u64,
    },
    /// An index of another number of rows than the manifest says.
    #[error("{}: the manifest says {expected} samples and the index has {found}", path.display())]
    SampleCountMismatch {
        /// The index file.
        path: PathBuf,
        /// Samples in the manifest.
        expected: u64,
        /// Rows in the index.
        found: u64,
    },
    /// A file whose bytes changed since it was written.
    #[error("{}: SHA-256 is {found} and should be {expected}; restore or rebuild this cache", path.display())]
    ChecksumMismatch {
        /// The file.
        path: PathBuf,
        /// The manifest's digest.
        expected: Sha256Digest,
        /// The file's.
        found: Sha256Digest,
    },
    /// A record that cannot be what was written.
    #[error(
        "{}: the record of cache {cache_id}, sample {sample_id} at offset {offset} ({len} bytes) is damaged; restore or rebuild \
         this cache", path.display()
    )]
    Record {
        /// The shard file.
        path: PathBuf,
        /// Which cache.
        cache_id: CacheId,
        /// Which sample.
        sample_id: u64,
        /// Where the record begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// What is wrong with it.
        #[source]
        source: RecordFault,
    },
    /// The file at a shard's path is not the one that was opened, or a cache's folder changes again and again.
    #[error("{}: it was replaced since the dataset was opened; open the dataset again", path.display())]
    Replaced {
        /// The shard file, or the folder.
        path: PathBuf,
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
    /// Two caches with one identity.
    #[error("two caches have cache_id {id}: {} and {}; {remedy}", first.display(), second.display())]
    DuplicateCacheId {
        /// The shared identity.
        id: CacheId,
        /// The earlier path.
        first: PathBuf,
        /// The later path.
        second: PathBuf,
        /// What can be done.
        remedy: &'static str,
    },
    /// Two caches whose metadata columns differ.
    #[error("the caches {} and {} cannot be opened together: {reason}", first.display(), second.display())]
    SchemasDiffer {
        /// The first cache.
        first: PathBuf,
        /// The one that differs from it.
        second: PathBuf,
        /// The first difference.
        reason: String,
    },
    /// Caches without a single sample between them.
    #[error("the caches have no samples")]
    NoSamples,
    /// More rows than a table can address.
    #[error("{rows} rows are more than the 4294967295 that one dataset can hold")]
    TooManyRows {
        /// How many.
        rows: u64,
    },
    /// An identity that no opened cache has.
    #[error("no sample (cache_id {cache_id}, sample_id {sample_id}) is loaded")]
    UnknownSample {
        /// As asked for.
        cache_id: u64,
        /// As asked for.
        sample_id: u64,
    },
    /// A row that a table does not have.
    #[error("row {row} is not in the table, which has {rows} rows")]
    UnknownRow {
        /// As asked for.
        row: u64,
        /// How many there are.
        rows: u64,
    },
    /// A metadata table that cannot become the active one.
    #[error("the metadata table was not accepted: {reason}")]
    InvalidTable {
        /// Which column or row, and what it should be.
        reason: String,
    },
    /// Columns that a data frame cannot hold, though the samples can be read.
    #[error("the metadata of {} cannot be shown as a table: {reason}", path.display())]
    Unrepresentable {
        /// The cache.
        path: PathBuf,
        /// Which column, and why.
        reason: String,
    },
    /// A finite window that no iterator can have.
    #[error("epoch length {len} is not between 1 and {max}")]
    InvalidEpochLen {
        /// As asked for.
        len: u64,
        /// The most that is possible.
        max: u64,
    },
    /// A stream of 2^64 draws that came to its end.
    #[error("the draw stream is exhausted after 2^64 draws; update the metadata to begin a new one")]
    StreamExhausted,
    /// The sampler refused.
    #[error(transparent)]
    Sampler(#[from] SamplerError),
    /// The pool could not run a job.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The caller asked to stop.
    #[error("the operation was interrupted")]
    Interrupted,
}

/// What is wrong with one record.
#[derive(Debug, thiserror::Error)]
pub enum RecordFault {
    /// Its envelope, JSON or compressed block.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Its bytes are not those that were written.
    #[error("its XXH3-64 checksum is {found:016x} and should be {expected:016x}")]
    Checksum {
        /// As stored beside the index.
        expected: u64,
        /// Of the record as it is.
        found: u64,
    },
    /// Its file lost its end after it was opened.
    #[error("its file had {expected} bytes when it was opened and has {found} now")]
    CutShort {
        /// Length of the file when it was opened, in bytes.
        expected: u64,
        /// Length now, in bytes.
        found: u64,
    },
    /// Its payload claims to be longer than all payloads of its shard together.
    #[error("its payload claims to be {len} bytes, and all payloads of its shard are {limit}")]
    PayloadTooLong {
        /// The claimed length in bytes.
        len: usize,
        /// What the manifest says of the shard, in bytes.
        limit: u64,
    },
    /// There is no memory for its payload.
    #[error("its payload of {len} bytes does not fit into memory")]
    OutOfMemory {
        /// Length in bytes.
        len: usize,
    },
    /// Its metadata is not the table's.
    #[error("metadata field {column:?} is {record} in the record and {table} in the metadata table")]
    MetadataDiffers {
        /// The column.
        column: String,
        /// The record's value.
        record: String,
        /// The table's value.
        table: String,
    },
}

impl ReadError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { action, path, source }
    }
}
