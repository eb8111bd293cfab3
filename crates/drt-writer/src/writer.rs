use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use drt_format::constants::{
    INDEX_FILE, MANIFEST_FILE, MAX_FINGERPRINT_BYTES, METADATA_FILE, RECORD_CHECKSUMS_FILE, SHARDS_DIR,
};
use drt_format::{
    CacheId, FormatError, FormatVersion, Manifest, MetadataField, MetadataSchema, MetadataValue, RecordChecksumAlgo,
    RecordChecksums, RowEncoder, Sha256Digest, Sha256Hasher, ShardEntry, WriterInfo, shard_file_name,
    validate_source_name,
};
use drt_metadata::{MetadataBuilder, MetadataError};
use drt_runtime::WorkerPool;

use crate::block::{InputBlock, Payload};
use crate::claim::Claim;
use crate::fs::{CacheFile, CacheFs, StdFs};
use crate::gate::{Limits, Waiter};
use crate::pipeline::{BYTES_PER_LOOK, Committed, Outcome, Pipeline};
use crate::profile::Stage;
use crate::publish::{Existing, WorkDir, create_dirs, sweep_on};
use crate::{WriteError, WriterConfig};

/// A block is handed to the pool when it has this many samples,
const BLOCK_ROWS: usize = 1024;
/// or this many bytes.
const BLOCK_BYTES: usize = 512 * 1024;
/// Bytes that may be on their way at one time, unless one block alone is larger.
const MAX_BYTES_IN_FLIGHT: usize = 64 * 1024 * 1024;
/// How often a writer that waits for another one looks whether that has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What is not the same for every source of a call. The default writes a cache without a fingerprint where there is none.
#[derive(Default)]
pub struct WriteOptions<'a> {
    /// Kept in the manifest: a text that changes when the cache would. 1 to 65536 bytes.
    pub fingerprint: Option<&'a str>,
    /// Put the new cache in the place of one that has another fingerprint, or none, in one step at the end. Without a fingerprint
    /// of one's own nothing is replaced.
    pub replace_stale: bool,
    /// While another writer of the name is at work, wait and ask this every 100 ms whether to give up; it is told who the other
    /// one is. Without it, that is `BeingWritten`.
    pub wait: Option<&'a mut (dyn FnMut(&str) -> bool + 'a)>,
}

/// One cache being written: samples are pushed, then the whole is published.
///
/// ```text
/// push ──► block ──flush──► encode (pool, parallel) ──► place (source order) ──┬─► shard files (pool)
///                                                                              └─► SHA-256     (pool)
/// finish ──► metadata.arrow, index.bin, checksums, manifest.json ──► fsync ──► rename
/// ```
///
/// `push` never waits, so that a caller may hold a lock of its own around it; `flush` and `finish` do. Dropping the writer
/// before `finish` leaves nothing behind.
pub struct CacheWriter {
    // Dropped in this order: the jobs end before the folder that they write to goes.
    pipeline: Option<Pipeline>,
    work: WorkDir,
    /// Held, not used. It goes after the folder: whoever waits for it finds the place clean.
    _claim: Claim,
    fs: Arc<dyn CacheFs>,
    pool: Arc<WorkerPool>,
    config: WriterConfig,
    name: String,
    fingerprint: Option<String>,
    replace_stale: bool,
    num_samples: u64,
    state: Option<SchemaState>,
}

struct SchemaState {
    schema: MetadataSchema,
    block: InputBlock,
}

impl CacheWriter {
    /// Begin a cache that will stand at `base/name`.
    ///
    /// # Errors
    /// `InvalidName`, `TargetExists`, `BeingWritten`, `Io`.
    pub fn create(pool: Arc<WorkerPool>, base: &Path, name: &str, config: WriterConfig) -> Result<Self, WriteError> {
        Self::create_with(Arc::new(StdFs), pool, base, name, config, WriteOptions::default())
    }

    /// The same, over a file system of the caller's.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_on(
        fs: Arc<dyn CacheFs>,
        pool: Arc<WorkerPool>,
        base: &Path,
        name: &str,
        config: WriterConfig,
    ) -> Result<Self, WriteError> {
        Self::create_with(fs, pool, base, name, config, WriteOptions::default())
    }

    /// The same, with a fingerprint, and told what to do about a cache that is there or another writer of the name.
    ///
    /// # Errors
    /// As [`create`](Self::create); also `InvalidFingerprint`, `NotReplaceable`, and `Interrupted` when `wait` said so. With
    /// `replace_stale`, `TargetExists` says that the cache there has this very fingerprint.
    pub fn create_with(
        fs: Arc<dyn CacheFs>,
        pool: Arc<WorkerPool>,
        base: &Path,
        name: &str,
        config: WriterConfig,
        options: WriteOptions<'_>,
    ) -> Result<Self, WriteError> {
        let WriteOptions { fingerprint, replace_stale, mut wait } = options;
        validate_source_name(name).map_err(WriteError::InvalidName)?;
        if let Some(text) = fingerprint {
            validate_fingerprint(text)?;
        }
        pool.ensure_owner()?;
        let path = base.join(name);
        let existing = existing(fingerprint, replace_stale);
        existing.check(fs.as_ref(), &path)?;
        let tmp = create_dirs(fs.as_ref(), base)?;
        let claim = loop {
            let holder = match Claim::take(&fs, &tmp, name)? {
                Ok(claim) => break claim,
                Err(holder) => holder,
            };
            existing.check(fs.as_ref(), &path)?;
            match &mut wait {
                None => return Err(WriteError::BeingWritten { path, holder }),
                Some(stop) => {
                    if stop(&holder) {
                        return Err(WriteError::Interrupted);
                    }
                    thread::sleep(LOOK_EVERY);
                }
            }
        };
        // Whoever had the claim before may have published, or died in the midst of it.
        sweep_on(fs.as_ref(), base);
        existing.check(fs.as_ref(), &path)?;
        let work = WorkDir::create(Arc::clone(&fs), base)?;
        Ok(Self {
            pipeline: None,
            work,
            _claim: claim,
            fs,
            pool,
            config,
            name: name.to_owned(),
            fingerprint: fingerprint.map(str::to_owned),
            replace_stale,
            num_samples: 0,
            state: None,
        })
    }

    /// Samples pushed so far.
    pub fn num_samples(&self) -> u64 {
        self.num_samples
    }

    /// The columns, in column order, once the first sample has fixed them.
    pub fn schema(&self) -> Option<&MetadataSchema> {
        self.state.as_ref().map(|state| &state.schema)
    }

    /// Add a sample, its metadata by name in any order.
    ///
    /// # Errors
    /// `InvalidSchema`, `ColumnsDiffer`, `KindDiffers`, `NonFinite`, `Metadata`, `Payload`: each names the sample. Nothing of it
    /// is kept.
    pub fn push(&mut self, payload: Payload<'_>, metadata: &[(&str, MetadataValue<'_>)]) -> Result<(), WriteError> {
        let row = self.num_samples;
        if self.state.is_none() {
            self.fix_schema(metadata)?;
            let outcome = self.push(payload, metadata);
            if outcome.is_err() {
                (self.pipeline, self.state) = (None, None);
            }
            return outcome;
        }
        let schema = &self.state.as_ref().expect("looked at above").schema;
        if metadata.len() != schema.len() {
            return Err(columns_differ(row, schema, metadata));
        }
        let mut values = Vec::with_capacity(schema.len());
        for field in schema.fields() {
            let Some((_, value)) = metadata.iter().find(|(name, _)| *name == field.name) else {
                return Err(columns_differ(row, schema, metadata));
            };
            values.push(*value);
        }
        self.push_values(payload, &values)
    }

    /// Fix the columns as the first sample's metadata has them.
    ///
    /// # Errors
    /// `InvalidSchema`.
    ///
    /// # Panics
    /// After a sample was pushed.
    pub fn fix_schema(&mut self, metadata: &[(&str, MetadataValue<'_>)]) -> Result<&MetadataSchema, WriteError> {
        let row = self.num_samples;
        assert_eq!(row, 0, "the columns are fixed before samples are pushed");
        let fields = metadata
            .iter()
            .map(|(name, value)| MetadataField { name: (*name).to_owned(), kind: value.kind() })
            .collect();
        let invalid = |source| WriteError::InvalidSchema { row, source };
        let (schema, _) = MetadataSchema::from_unsorted(fields).map_err(invalid)?;
        schema.validate_for_write().map_err(invalid)?;
        self.pipeline = Some(Pipeline::new(
            Arc::clone(&self.pool),
            Arc::clone(&self.fs),
            self.work.path().join(SHARDS_DIR),
            RowEncoder::new(&schema),
            &self.config,
        ));
        let block = InputBlock::new(row, MetadataBuilder::new(&schema));
        Ok(&self.state.insert(SchemaState { schema, block }).schema)
    }

    /// Add a sample, its metadata in column order.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    ///
    /// # Panics
    /// Before [`fix_schema`](Self::fix_schema) or a first `push`.
    pub fn push_values(&mut self, payload: Payload<'_>, values: &[MetadataValue<'_>]) -> Result<(), WriteError> {
        if !self.config.profile().is_on() {
            return self.push_row(payload, values);
        }
        let began = self.config.profile().start();
        let outcome = self.push_row(payload, values);
        self.config.profile().stop(began, Stage::MetadataValidate, 1, 0);
        outcome
    }

    #[inline]
    fn push_row(&mut self, payload: Payload<'_>, values: &[MetadataValue<'_>]) -> Result<(), WriteError> {
        let row = self.num_samples;
        let SchemaState { schema, block } =
            self.state.as_mut().expect("the columns are fixed before values are pushed");
        for (field, value) in schema.fields().iter().zip(values) {
            if let MetadataValue::Float(value) = value
                && !value.is_finite()
            {
                return Err(WriteError::NonFinite { row, column: field.name.clone(), value: *value });
            }
        }
        let len = payload.len();
        let algo = self.config.compression().algo;
        if len as u64 > algo.max_payload_len() {
            let source = FormatError::PayloadTooLong { len, algo, limit: algo.max_payload_len() };
            return Err(WriteError::Payload { row, source });
        }
        block.metadata_mut().push(values.iter().copied()).map_err(|error| match error {
            MetadataError::KindMismatch { column, expected, found } => {
                WriteError::KindDiffers { row, column, expected, found }
            }
            source => WriteError::Metadata { row, source },
        })?;
        block.push_payload(payload, values);
        self.num_samples += 1;
        Ok(())
    }

    /// Is it time to call [`flush`](Self::flush)?
    pub fn needs_flush(&self) -> bool {
        let Some(SchemaState { block, .. }) = &self.state else { return false };
        block.num_rows() >= BLOCK_ROWS || block.num_bytes() >= BLOCK_BYTES
    }

    /// Hand what was pushed to the pool, waiting while too much is on its way already.
    ///
    /// `stop` is asked about every 50 ms of waiting whether to give up.
    ///
    /// # Errors
    /// A failure of anything handed over earlier, and `Interrupted` ever after: nothing can be published then. `Interrupted`
    /// when `stop` said so: what was pushed is kept, and the call may be repeated. `Pool` in a forked child.
    pub fn flush(&mut self, stop: &mut dyn FnMut() -> bool) -> Result<(), WriteError> {
        // In a forked child a lock may be held by a thread that it does not have.
        self.pool.ensure_owner()?;
        let Some(SchemaState { schema, block }) = &mut self.state else { return Ok(()) };
        let Some(pipeline) = &mut self.pipeline else { return Ok(()) };
        if block.num_rows() == 0 {
            return Ok(());
        }
        // Two blocks a thread keep every thread busy; fewer when the caller asked for less.
        let tasks = self.config.prefetch_size().min(2 * self.pool.num_workers());
        let limits = Limits::Below { tasks, bytes: MAX_BYTES_IN_FLIGHT };
        self.config.profile().measure(Stage::IngressWait, 1, 0, || pipeline.wait(limits, stop))?;
        let next = InputBlock::new(self.num_samples, MetadataBuilder::new(schema));
        pipeline.submit(std::mem::replace(block, next));
        Ok(())
    }

    /// Write what is left, make everything durable, and publish. Returns the cache's path.
    ///
    /// `stop` is asked between pieces of work and every 50 ms of waiting, so it has to be quick. The thread of the pool that
    /// waits for the disk then may do so for longer than this call.
    ///
    /// # Errors
    /// `NoSamples`, `TargetExists` (a writer that could not be seen was faster), `NotReplaceable`, `Io`, `Interrupted`, or a
    /// failure of anything handed over earlier. The cache is absent then, or the old one, unless the last step of all was
    /// interrupted or failed: making its name durable.
    pub fn finish(mut self, stop: &mut dyn FnMut() -> bool) -> Result<PathBuf, WriteError> {
        self.flush(stop)?;
        let (Some(pipeline), Some(SchemaState { schema, .. }), true) =
            (self.pipeline.take(), self.state.take(), self.num_samples > 0)
        else {
            return Err(WriteError::NoSamples);
        };
        let profile = self.config.profile().clone();
        let Outcome { committed, digests } = profile.measure(Stage::FinishWait, 1, 0, || pipeline.finish(stop))?;
        let Committed { shards, index, checksums, metadata, .. } = committed;

        let metadata = metadata.unwrap_or_else(|| MetadataBuilder::new(&schema));
        let pool = Arc::clone(&self.pool);
        let mut waiter = Waiter { pool: &pool, stop };
        let metadata_sha256 = self.write_file(Stage::FinishMetadata, METADATA_FILE, &mut waiter, |file| {
            metadata.write_ipc(&schema, file).map_err(|error| match error {
                MetadataError::Write(error) => error,
                other => io::Error::other(other),
            })
        })?;
        let index_sha256 =
            self.write_file(Stage::FinishIndex, INDEX_FILE, &mut waiter, |file| file.write_all(&index))?;
        let checksums_sha256 = self.write_file(Stage::FinishChecksums, RECORD_CHECKSUMS_FILE, &mut waiter, |file| {
            file.write_all(&checksums)
        })?;

        let shards = shards.iter().zip(digests).enumerate().map(|(number, (totals, sha256))| ShardEntry {
            name: shard_file_name(number as u64),
            uncompressed_byte_len: totals.payload_bytes,
            byte_len: totals.byte_len,
            compression: self.config.compression().clone(),
            sha256,
        });
        let manifest = Manifest {
            version: FormatVersion::V3,
            cache_id: Some(CacheId::from_source_name(&self.name)),
            source_name: self.name.clone(),
            sample_count: self.num_samples,
            schema,
            metadata_sha256,
            index_sha256,
            shards: shards.collect(),
            extra: serde_json::Map::new(),
        };
        let writer = WriterInfo { name: "dataset-rt".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
        let checksums = RecordChecksums { algo: RecordChecksumAlgo::Xxh3_64, sha256: checksums_sha256 };
        let mut manifest = manifest.with_writer(&writer).with_record_checksums(checksums);
        if let Some(fingerprint) = &self.fingerprint {
            manifest = manifest.with_fingerprint(fingerprint);
        }
        self.write_file(Stage::FinishManifest, MANIFEST_FILE, &mut waiter, |file| file.write_all(&manifest.encode()))?;
        let existing = existing(self.fingerprint.as_deref(), self.replace_stale);
        profile.measure(Stage::Publish, 1, 0, || self.work.publish(&self.name, existing, &mut waiter))
    }

    /// Write one file of the cache, durably, and return its digest.
    fn write_file(
        &self,
        stage: Stage,
        name: &str,
        waiter: &mut Waiter<'_>,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<Sha256Digest, WriteError> {
        let path = self.work.path().join(name);
        self.config.profile().measure(stage, 1, 0, || {
            let file = self.fs.create_file(&path).map_err(WriteError::io("create", &path))?;
            let mut file = HashedFile { file, hasher: Sha256Hasher::new(), stop: &mut *waiter.stop, stopped: false };
            let written = write(&mut file);
            let HashedFile { mut file, hasher, stopped, .. } = file;
            if stopped {
                return Err(WriteError::Interrupted);
            }
            written.map_err(WriteError::io("write", &path))?;
            waiter.run(move || file.sync())?.map_err(WriteError::io("sync", &path))?;
            Ok(hasher.finish())
        })
    }
}

fn existing(fingerprint: Option<&str>, replace_stale: bool) -> Existing<'_> {
    match fingerprint {
        Some(fingerprint) if replace_stale => Existing::ReplaceUnless(fingerprint),
        _ => Existing::Keep,
    }
}

fn validate_fingerprint(text: &str) -> Result<(), WriteError> {
    let reason = match text.len() {
        0 => "is empty".to_owned(),
        len if len > MAX_FINGERPRINT_BYTES => {
            format!("has {len} bytes, and at most {MAX_FINGERPRINT_BYTES} are kept: use a hash of it")
        }
        _ => return Ok(()),
    };
    Err(WriteError::InvalidFingerprint { reason })
}

fn columns_differ(row: u64, schema: &MetadataSchema, metadata: &[(&str, MetadataValue<'_>)]) -> WriteError {
    let missing = schema.fields().iter().find(|field| metadata.iter().all(|(name, _)| *name != field.name));
    let extra = metadata.iter().find(|(name, _)| schema.fields().iter().all(|field| field.name != *name));
    let reason = match (missing, extra) {
        (Some(field), _) => format!("metadata field {:?} is missing", field.name),
        (None, Some((name, _))) => format!("metadata field {name:?} is not one of the first sample's"),
        (None, None) => "a metadata field is given twice".to_owned(),
    };
    let names: Vec<_> = schema.fields().iter().map(|field| format!("{:?}", field.name)).collect();
    WriteError::ColumnsDiffer { row, reason, expected: format!("[{}]", names.join(", ")) }
}

struct HashedFile<'a> {
    file: Box<dyn CacheFile>,
    hasher: Sha256Hasher,
    stop: &'a mut dyn FnMut() -> bool,
    /// Has `stop` ended the writing?
    stopped: bool,
}

impl Write for HashedFile<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stopped = (self.stop)();
        if self.stopped {
            return Err(io::Error::other("the write was interrupted"));
        }
        let written = self.file.write(&bytes[..bytes.len().min(BYTES_PER_LOOK)])?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
