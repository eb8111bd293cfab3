use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_format::MetadataValue;
use drt_runtime::WorkerPool;

use crate::fs::StdFs;
use crate::profile::Stage;
use crate::progress::ProgressSink;
use crate::{CacheWriter, Payload, WriteError, WriteOptions, WriterConfig};

/// A metadata value that owns its text.
#[derive(Debug, Clone, PartialEq)]
pub enum OwnedValue {
    /// True or false.
    Bool(bool),
    /// A 64-bit signed integer.
    Int(i64),
    /// A finite 64-bit float.
    Float(f64),
    /// UTF-8 text.
    String(String),
}

impl OwnedValue {
    /// The value without its ownership.
    pub fn as_value(&self) -> MetadataValue<'_> {
        match self {
            Self::Bool(value) => MetadataValue::Bool(*value),
            Self::Int(value) => MetadataValue::Int(*value),
            Self::Float(value) => MetadataValue::Float(*value),
            Self::String(value) => MetadataValue::String(value),
        }
    }
}

/// One sample on its way into a cache.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CacheInput {
    /// The payload, stored as it is or compressed.
    pub data: Vec<u8>,
    /// Names and values of the metadata, in any order; every sample of a source has the same names and kinds.
    pub metadata: Vec<(String, OwnedValue)>,
}

/// A name and its samples.
pub trait CacheSource {
    /// The cache's folder name, and the text its `cache_id` is derived from.
    fn name(&self) -> &str;

    /// A text that changes when the cache would: a version, or a hash of what the samples are made from. Kept in the manifest.
    fn fingerprint(&self) -> Option<&str> {
        None
    }

    /// The next sample, `None` after the last.
    ///
    /// # Errors
    /// Whatever the source needs to say; the write stops and nothing is published.
    fn next_sample(&mut self) -> Result<Option<CacheInput>, Box<dyn std::error::Error + Send + Sync>>;
}

/// Any iterator of samples, under a name.
#[derive(Debug, Clone)]
pub struct IterSource<I> {
    name: String,
    samples: I,
}

impl<I: Iterator<Item = CacheInput>> IterSource<I> {
    /// A source of infallible samples.
    pub fn new(name: impl Into<String>, samples: impl IntoIterator<IntoIter = I>) -> Self {
        Self { name: name.into(), samples: samples.into_iter() }
    }
}

impl<I: Iterator<Item = CacheInput>> CacheSource for IterSource<I> {
    fn name(&self) -> &str {
        &self.name
    }

    fn next_sample(&mut self) -> Result<Option<CacheInput>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(self.samples.next())
    }
}

/// Write one source under `base` and publish it as `base/NAME`.
///
/// Samples are pulled on this thread and encoded, hashed and written by the pool's. The cache's bytes depend on the samples
/// and the configuration alone. Returns the cache's path.
///
/// # Errors
/// Any [`WriteError`]; the work folder is then removed and nothing stands at `base/NAME`.
pub fn write_cache(
    pool: &Arc<WorkerPool>,
    source: &mut dyn CacheSource,
    base: &Path,
    config: &WriterConfig,
    progress: &dyn ProgressSink,
) -> Result<PathBuf, WriteError> {
    write_cache_with(pool, source, base, config, progress, false)
}

/// The same; with `replace_stale` a cache that has another fingerprint than the source, or none, is replaced by the new one, in
/// one step at the end. Datasets that are open on the old one go on reading it.
///
/// # Errors
/// As [`write_cache`]; what was at the path before is still there.
pub fn write_cache_with(
    pool: &Arc<WorkerPool>,
    source: &mut dyn CacheSource,
    base: &Path,
    config: &WriterConfig,
    progress: &dyn ProgressSink,
    replace_stale: bool,
) -> Result<PathBuf, WriteError> {
    let mut never = || false;
    let options = WriteOptions { fingerprint: source.fingerprint(), replace_stale, wait: None };
    let (fs, pool) = (Arc::new(StdFs), Arc::clone(pool));
    let mut writer = CacheWriter::create_with(fs, pool, base, source.name(), config.clone(), options)?;
    loop {
        let row = writer.num_samples();
        let sample = config.profile().measure(Stage::PythonNext, 1, 0, || source.next_sample());
        let Some(sample) = sample.map_err(|source| WriteError::Source { row, source })? else { break };
        let metadata: Vec<_> = sample.metadata.iter().map(|(name, value)| (name.as_str(), value.as_value())).collect();
        progress.advanced(1, sample.data.len() as u64);
        let payload = if sample.data.len() < Payload::SHARE_FROM {
            Payload::Copy(&sample.data)
        } else {
            Payload::Shared(Arc::new(sample.data))
        };
        writer.push(payload, &metadata)?;
        if writer.needs_flush() {
            writer.flush(&mut never)?;
        }
    }
    writer.finish(&mut never)
}
