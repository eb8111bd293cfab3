//! Pulled blocks in, shards out: encode in parallel, commit in source order, write and hash side by side.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drt_format::{
    IndexEntry, PayloadEncoder, RowEncoder, Sha256Digest, Sha256Hasher, ShardCompression, shard_file_name,
};
use drt_metadata::MetadataBuilder;
use drt_runtime::{CancelToken, PoolError, WorkerPool};

use crate::block::{EncodedBlock, InputBlock};
use crate::fs::{CacheFile, CacheFs};
use crate::gate::{Gate, Limits, Pass};
use crate::profile::{Profile, Stage};
use crate::{WriteError, WriterConfig};

/// Bytes that are written or hashed before a job looks whether the write was stopped.
pub(crate) const BYTES_PER_LOOK: usize = 8 << 20;
/// Slices that the system takes in one call.
const MAX_SLICES: usize = 1024;
/// Full shards that may wait for the disk at one time.
const MAX_UNSYNCED_FILES: usize = 32;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic in a job is recorded as a failure of the write, so what it left locked is never read again.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One shard's totals.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ShardTotals {
    pub(crate) payload_bytes: u64,
    pub(crate) byte_len: u64,
}

/// What the commits of all blocks add up to.
#[derive(Default)]
pub(crate) struct Committed {
    pub(crate) shards: Vec<ShardTotals>,
    pub(crate) index: Vec<u8>,
    pub(crate) checksums: Vec<u8>,
    /// `None` before the first block.
    pub(crate) metadata: Option<MetadataBuilder>,
    max_shard_bytes: u64,
    next_block: u64,
    waiting: BTreeMap<u64, (EncodedBlock, Pass)>,
}

/// A run of one block's records that lies in one shard.
struct Span {
    shard: usize,
    records: Range<usize>,
}

struct Task {
    block: EncodedBlock,
    spans: Vec<Span>,
    _pass: Pass,
}

impl Committed {
    /// Give every record of the block its place.
    fn place(&mut self, block: EncodedBlock, pass: Pass) -> Task {
        let mut spans: Vec<Span> = Vec::new();
        for (at, record) in block.records.iter().enumerate() {
            let len = record.len();
            let full = self
                .shards
                .last()
                .is_none_or(|shard| shard.byte_len > 0 && shard.byte_len.saturating_add(len) > self.max_shard_bytes);
            if full {
                self.shards.push(ShardTotals::default());
            }
            let shard = self.shards.len() - 1;
            match spans.last_mut() {
                Some(span) if span.shard == shard => span.records.end = at + 1,
                _ => spans.push(Span { shard, records: at..at + 1 }),
            }
            let totals = &mut self.shards[shard];
            let entry = IndexEntry { shard: shard as u64, offset: totals.byte_len, len };
            self.index.extend_from_slice(&entry.encode());
            self.checksums.extend_from_slice(&record.checksum.to_le_bytes());
            totals.byte_len += len;
            totals.payload_bytes += record.payload_len;
        }
        match &mut self.metadata {
            Some(metadata) => metadata.append(&block.metadata),
            None => self.metadata = Some(block.metadata.clone()),
        }
        Task { block, spans, _pass: pass }
    }
}

/// A queue that one job at a time works off, in order.
struct Lane<W> {
    state: Mutex<LaneState>,
    worker: Mutex<W>,
}

#[derive(Default)]
struct LaneState {
    queue: VecDeque<Arc<Task>>,
    running: bool,
}

impl<W> Lane<W> {
    fn new(worker: W) -> Self {
        Self { state: Mutex::default(), worker: Mutex::new(worker) }
    }

    /// Queue a task; true when the caller has to start a job for the lane.
    fn push(&self, task: Arc<Task>) -> bool {
        let mut state = lock(&self.state);
        state.queue.push_back(task);
        !std::mem::replace(&mut state.running, true)
    }

    fn pop(&self) -> Option<Arc<Task>> {
        let mut state = lock(&self.state);
        let task = state.queue.pop_front();
        state.running = task.is_some();
        task
    }
}

struct ShardFiles {
    open: Option<(usize, Box<dyn CacheFile>)>,
}

#[derive(Default)]
struct ShardHashes {
    open: Option<(usize, Sha256Hasher)>,
    done: Vec<Sha256Digest>,
}

struct Shared {
    pool: Arc<WorkerPool>,
    fs: Arc<dyn CacheFs>,
    shards_dir: PathBuf,
    rows: RowEncoder,
    compression: ShardCompression,
    profile: Profile,
    /// Encoders that no job has. They may be large, and end with the write.
    encoders: Mutex<Vec<PayloadEncoder>>,
    committed: Mutex<Committed>,
    files: Lane<ShardFiles>,
    hashes: Lane<ShardHashes>,
    failure: Mutex<Option<WriteError>>,
    stopped: CancelToken,
    gate: Arc<Gate>,
    /// Cloned by whoever waits for the disk with a file open.
    unsynced: Arc<()>,
}

/// Records a panic of the job that holds it.
struct Witness(Arc<Shared>);

impl Drop for Witness {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.fail(WriteError::Pool(PoolError::JobPanicked { message: "see the message printed above".into() }));
        }
    }
}

impl Shared {
    fn fail(&self, error: WriteError) {
        lock(&self.failure).get_or_insert(error);
        self.stopped.cancel();
    }

    /// Run a step of the write on the pool. What goes wrong in it becomes the failure of the write.
    fn spawn(self: &Arc<Self>, step: impl FnOnce(&Arc<Self>) -> Result<(), WriteError> + Send + 'static) {
        let job = self.gate.begin_job();
        let witness = Witness(Arc::clone(self));
        let outcome = self.pool.spawn(move || {
            // Ends last. A step gives up its pass before its failure is recorded, and `finish` must not run between the two.
            let _job = job;
            let witness = witness;
            if let Err(error) = step(&witness.0) {
                witness.0.fail(error);
            }
        });
        if let Err(error) = outcome {
            self.fail(error.into());
        }
    }

    fn commit(self: &Arc<Self>, number: u64, block: EncodedBlock, pass: Pass) {
        let mut committed = lock(&self.committed);
        committed.waiting.insert(number, (block, pass));
        loop {
            let next = committed.next_block;
            let Some((block, pass)) = committed.waiting.remove(&next) else { break };
            committed.next_block += 1;
            let task = Arc::new(committed.place(block, pass));
            // Still under the lock: lanes must get the tasks in the order in which they were placed.
            if self.files.push(Arc::clone(&task)) {
                self.spawn(|shared| shared.run_files());
            }
            if self.hashes.push(task) {
                self.spawn(|shared| shared.run_hashes());
            }
        }
    }

    fn run_files(self: &Arc<Self>) -> Result<(), WriteError> {
        let mut files = lock(&self.files.worker);
        while let Some(task) = self.files.pop() {
            if self.stopped.is_cancelled() {
                continue;
            }
            let (records, bytes) = (task.block.records.len() as u64, task.block.num_bytes());
            self.profile.measure(Stage::DiskWrite, records, bytes, || {
                task.spans.iter().try_for_each(|span| self.write_span(&mut files, &task.block, span))
            })?;
        }
        Ok(())
    }

    fn write_span(
        self: &Arc<Self>,
        files: &mut ShardFiles,
        block: &EncodedBlock,
        span: &Span,
    ) -> Result<(), WriteError> {
        let path = self.shards_dir.join(shard_file_name(span.shard as u64));
        if files.open.as_ref().is_none_or(|(shard, _)| *shard != span.shard) {
            let file = self.fs.create_file(&path).map_err(WriteError::io("create", &path))?;
            if let Some((shard, full)) = files.open.replace((span.shard, file)) {
                self.sync_later(shard, full)?;
            }
        }
        if let Some((_, file)) = &mut files.open {
            write_all(file.as_mut(), &block.slices(span.records.clone()), &self.stopped)
                .map_err(WriteError::io("write", &path))?;
        }
        Ok(())
    }

    /// Wait for the disk on another thread, while the next shard fills; on this one when many files are open already.
    fn sync_later(self: &Arc<Self>, shard: usize, mut file: Box<dyn CacheFile>) -> Result<(), WriteError> {
        let path = self.shards_dir.join(shard_file_name(shard as u64));
        let open = Arc::clone(&self.unsynced);
        if Arc::strong_count(&open) > MAX_UNSYNCED_FILES {
            return self.sync(file.as_mut(), path);
        }
        let pass = self.gate.enter(0);
        self.spawn(move |shared| {
            let (_pass, _open) = (pass, open);
            if shared.stopped.is_cancelled() {
                return Ok(());
            }
            shared.sync(file.as_mut(), path)
        });
        Ok(())
    }

    fn sync(&self, shard: &mut dyn CacheFile, path: PathBuf) -> Result<(), WriteError> {
        let outcome = self.profile.measure(Stage::ShardFlush, 1, 0, || shard.sync());
        outcome.map_err(WriteError::io("sync", path))
    }

    fn run_hashes(self: &Arc<Self>) -> Result<(), WriteError> {
        let mut hashes = lock(&self.hashes.worker);
        while let Some(task) = self.hashes.pop() {
            if self.stopped.is_cancelled() {
                continue;
            }
            let (records, bytes) = (task.block.records.len() as u64, task.block.num_bytes());
            self.profile.measure(Stage::ShardHash, records, bytes, || {
                task.spans.iter().for_each(|span| hashes.update(&task.block, span, &self.stopped));
            });
        }
        Ok(())
    }
}

impl ShardHashes {
    fn update(&mut self, block: &EncodedBlock, span: &Span, stopped: &CancelToken) {
        if self.open.as_ref().is_none_or(|(shard, _)| *shard != span.shard)
            && let Some((_, full)) = self.open.replace((span.shard, Sha256Hasher::new()))
        {
            self.done.push(full.finish());
        }
        if let Some((_, hasher)) = &mut self.open {
            for piece in block.slices(span.records.clone()).into_iter().flat_map(|slice| slice.chunks(BYTES_PER_LOOK)) {
                if stopped.is_cancelled() {
                    return;
                }
                hasher.update(piece);
            }
        }
    }
}

/// Write slices one after another; a write that was stopped may end anywhere.
fn write_all(file: &mut dyn CacheFile, slices: &[&[u8]], stopped: &CancelToken) -> io::Result<()> {
    // Empty slices, which would look like a full disk below, have no pieces.
    let pieces = slices.iter().flat_map(|slice| slice.chunks(BYTES_PER_LOOK));
    let mut pieces: Vec<_> = pieces.map(IoSlice::new).collect();
    let mut left = pieces.as_mut_slice();
    while !left.is_empty() && !stopped.is_cancelled() {
        let mut bytes = 0;
        let fits = |piece: &&IoSlice<'_>| {
            bytes += piece.len();
            bytes <= BYTES_PER_LOOK
        };
        let count = left.iter().take(MAX_SLICES).take_while(fits).count();
        match file.write_vectored(&left[..count]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut left, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The part of a write that runs on the pool.
pub(crate) struct Pipeline {
    shared: Arc<Shared>,
    blocks: u64,
}

/// Everything the manifest needs to know of the shards.
pub(crate) struct Outcome {
    pub(crate) committed: Committed,
    pub(crate) digests: Vec<Sha256Digest>,
}

impl Pipeline {
    pub(crate) fn new(
        pool: Arc<WorkerPool>,
        fs: Arc<dyn CacheFs>,
        shards_dir: PathBuf,
        rows: RowEncoder,
        config: &WriterConfig,
    ) -> Self {
        let committed = Committed { max_shard_bytes: config.max_shard_bytes(), ..Committed::default() };
        let shared = Shared {
            pool,
            fs,
            shards_dir,
            rows,
            compression: config.compression().clone(),
            profile: config.profile().clone(),
            encoders: Mutex::default(),
            committed: Mutex::new(committed),
            files: Lane::new(ShardFiles { open: None }),
            hashes: Lane::new(ShardHashes::default()),
            failure: Mutex::new(None),
            stopped: CancelToken::new(),
            gate: Arc::default(),
            unsynced: Arc::default(),
        };
        Self { shared: Arc::new(shared), blocks: 0 }
    }

    /// What went wrong so far, once.
    pub(crate) fn take_failure(&self) -> Result<(), WriteError> {
        lock(&self.shared.failure).take().map_or(Ok(()), Err)
    }

    /// Start on a block. The caller has waited for room.
    pub(crate) fn submit(&mut self, block: InputBlock) {
        let pass = self.shared.gate.enter(block.num_bytes());
        let number = self.blocks;
        self.blocks += 1;
        self.shared.spawn(move |shared| {
            if shared.stopped.is_cancelled() {
                return Ok(());
            }
            let mut encoder = lock(&shared.encoders).pop().unwrap_or_else(|| shared.compression.encoder());
            let block = block
                .encode(&shared.rows, shared.compression.algo, &mut encoder, &shared.profile, &shared.stopped)
                .map_err(|(row, source)| WriteError::Payload { row, source })?;
            lock(&shared.encoders).push(encoder);
            if let Some(block) = block {
                shared.commit(number, block, pass);
            }
            Ok(())
        });
    }

    /// Wait until less is on its way than the limits say.
    ///
    /// # Errors
    /// A failure of what was submitted, once; `Interrupted` ever after, and when `stop` said so.
    pub(crate) fn wait(&self, limits: Limits, stop: &mut dyn FnMut() -> bool) -> Result<(), WriteError> {
        let mut interrupted = false;
        let mut give_up = || {
            interrupted = stop();
            interrupted || self.shared.stopped.is_cancelled()
        };
        self.shared.gate.wait_below(limits, &mut give_up);
        // In this order, since whatever fails is recorded first and stops the write then.
        let stopped = self.shared.stopped.is_cancelled();
        self.take_failure()?;
        if interrupted || stopped { Err(WriteError::Interrupted) } else { Ok(()) }
    }

    /// Wait until all that was submitted is written and synced.
    ///
    /// # Errors
    /// Any block's failure; `Interrupted` when `stop` said so.
    pub(crate) fn finish(self, stop: &mut dyn FnMut() -> bool) -> Result<Outcome, WriteError> {
        self.wait(Limits::Idle, stop)?;
        let last = lock(&self.shared.files.worker).open.take();
        if let Some((shard, file)) = last {
            self.shared.sync_later(shard, file)?;
        }
        self.wait(Limits::Idle, stop)?;
        let mut hashes = std::mem::take(&mut *lock(&self.shared.hashes.worker));
        hashes.done.extend(hashes.open.take().map(|(_, hasher)| hasher.finish()));
        Ok(Outcome { committed: std::mem::take(&mut *lock(&self.shared.committed)), digests: hashes.done })
    }
}

impl Drop for Pipeline {
    /// Stop what is on its way, and wait until nothing of it makes or writes a file, so that the work folder can be removed.
    ///
    /// What only encodes, hashes or waits for the disk may take its time: it touches no names, and nobody waits for it.
    fn drop(&mut self) {
        self.shared.stopped.cancel();
        if self.shared.pool.ensure_owner().is_err() {
            return;
        }
        // Whoever gets this lock from now on finds the write stopped before it does anything.
        drop(lock(&self.shared.files.worker));
        lock(&self.shared.committed).waiting.clear();
    }
}
