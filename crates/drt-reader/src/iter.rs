use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drt_format::MetadataValue;
use drt_runtime::{OrderedWindow, WorkerPool};
use drt_sampler::SamplingPlan;

use crate::ReadError;
use crate::block::{Block, SampleRef, read_ahead};
use crate::catalog::Catalog;
use crate::positions::Positions;
use crate::profile::{Profile, Stage};
use crate::table::ActiveTable;

/// Samples that are prepared together at most.
pub(crate) const BLOCK_LEN: usize = 64;
/// How long a wait for the pool lasts before its owner looks whether it should stop.
pub(crate) const STEP: Duration = Duration::from_millis(50);

/// A block that takes longer than this, and than its bytes at `WARM_BYTES_PER_MICRO`, was not in memory.
const WARM_TIME: Duration = Duration::from_micros(150);
const WARM_BYTES_PER_MICRO: u64 = 1500;
/// Warm blocks after which reading ahead stops again.
const COLD_MEMORY: u32 = 16;

/// The caches, the table, where to go in it, and the threads, as they were when an iterator was made.
#[derive(Debug, Clone)]
pub(crate) struct Snapshot {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) table: Arc<ActiveTable>,
    pub(crate) plan: SamplingPlan,
    pub(crate) positions: Positions,
    pub(crate) profile: Profile,
}

impl Snapshot {
    /// The physical rows of some consecutive samples.
    fn samples(&self, at: u64, rows: &mut [u64]) {
        let mut done = 0;
        while done < rows.len() {
            let (position, run) = self.positions.run(at + done as u64);
            let len = run.min((rows.len() - done) as u64) as usize;
            self.plan.fill(position, &mut rows[done..done + len]);
            done += len;
        }
        for row in rows {
            *row = self.table.physical(*row);
        }
    }

    fn fill(&self, block: &mut Block, at: u64, len: usize) {
        let mut rows = [0; BLOCK_LEN];
        let rows = &mut rows[..len];
        self.profile.measure(Stage::Draw, len as u64, 0, || self.samples(at, rows));
        block.fill(rows.iter().map(|row| self.catalog.locate(*row)), &self.profile);
    }
}

/// A finite part of a stream, over the table that was active when it was made.
///
/// As an [`Iterator`] it yields owned samples. A reader that builds objects of its own takes whole blocks instead.
#[derive(Debug)]
pub struct SampleIter {
    snapshot: Snapshot,
    next: u64,
    end: u64,
    prefetch_size: usize,
    supply: Supply,
    current: Block,
    at: usize,
}

#[derive(Debug)]
enum Supply {
    /// The consumer's thread prepares each block: all it needs is mapped.
    Direct { cold_blocks: u32, ahead: u64 },
    /// The pool's threads prepare blocks: records have to be read or decoded.
    Pooled { window: OrderedWindow<Block>, submitted: u64, spare: VecDeque<Block> },
}

impl SampleIter {
    pub(crate) fn new(snapshot: Snapshot, prefetch_size: usize) -> Self {
        let direct = snapshot.catalog.caches().iter().all(crate::Cache::is_direct);
        let supply = if direct {
            Supply::Direct { cold_blocks: 0, ahead: 0 }
        } else {
            Supply::Pooled {
                window: OrderedWindow::new(Arc::clone(&snapshot.pool)),
                submitted: 0,
                spare: VecDeque::new(),
            }
        };
        let current = Block::new(Arc::clone(&snapshot.catalog));
        let end = snapshot.positions.len();
        Self { snapshot, next: 0, end, prefetch_size, supply, current, at: 0 }
    }

    /// An empty block for [`next_block`](Self::next_block).
    pub fn empty_block(&self) -> Block {
        Block::new(Arc::clone(&self.snapshot.catalog))
    }

    /// The threads that read for this iterator.
    pub fn pool(&self) -> &WorkerPool {
        &self.snapshot.pool
    }

    /// Where the time of this iterator is counted.
    pub fn profile(&self) -> &Profile {
        &self.snapshot.profile
    }

    /// How many samples may be prepared before they are asked for.
    pub fn prefetch_size(&self) -> usize {
        self.prefetch_size
    }

    /// Samples that no block has yet held.
    pub fn remaining(&self) -> u64 {
        self.end - self.next
    }

    /// Put the next samples into `block`; false after the last. May wait for the disk or the pool.
    ///
    /// A sample that cannot be read is in the block too: asking for it gives the error.
    ///
    /// # Errors
    /// `Pool`, and `Interrupted` when `stop` (asked about every 50 ms of waiting) says so.
    pub fn next_block(&mut self, block: &mut Block, stop: &mut dyn FnMut() -> bool) -> Result<bool, ReadError> {
        if self.next == self.end {
            return Ok(false);
        }
        let (next, end) = (self.next, self.end);
        match &mut self.supply {
            Supply::Direct { cold_blocks, ahead } => {
                let len = (end - next).min(BLOCK_LEN.min(self.prefetch_size) as u64);
                let began = Instant::now();
                self.snapshot.fill(block, next, len as usize);
                self.next += len;
                let warm = WARM_TIME + Duration::from_micros(block.mapped_bytes() / WARM_BYTES_PER_MICRO);
                if began.elapsed() > warm {
                    *cold_blocks = COLD_MEMORY;
                }
                if *cold_blocks > 0 {
                    *cold_blocks -= 1;
                    *ahead = (*ahead).max(self.next);
                    let until = end.min(self.next.saturating_add(self.prefetch_size as u64));
                    // Only a hint: a forked child, which has none of the pool's threads, reads without it.
                    let _hint = spawn_read_ahead(&self.snapshot, *ahead, until);
                    *ahead = until;
                }
            }
            Supply::Pooled { window, submitted, spare } => {
                let num_workers = self.snapshot.pool.num_workers();
                let block_len = (self.prefetch_size / (2 * num_workers)).clamp(1, BLOCK_LEN) as u64;
                while *submitted < end && *submitted - next < self.prefetch_size as u64 {
                    let room = self.prefetch_size as u64 - (*submitted - next);
                    let len = block_len.min(end - *submitted).min(room);
                    let (snapshot, position) = (self.snapshot.clone(), *submitted);
                    let mut block = spare.pop_front().unwrap_or_else(|| Block::new(Arc::clone(&snapshot.catalog)));
                    window.submit(move || {
                        snapshot.fill(&mut block, position, len as usize);
                        block
                    })?;
                    *submitted += len;
                }
                let began = self.snapshot.profile.start();
                let filled = loop {
                    if let Some(filled) = window.next_timeout(STEP) {
                        break filled;
                    }
                    // A forked child has none of the threads that could finish the block.
                    self.snapshot.pool.ensure_owner()?;
                    if stop() {
                        return Err(ReadError::Interrupted);
                    }
                };
                self.snapshot.profile.stop(began, Stage::Waiting, 1, 0);
                let filled = match filled {
                    Ok(filled) => filled,
                    Err(error) => {
                        // A block is missing for good, so there is nothing that could come next.
                        self.finish();
                        return Err(error.into());
                    }
                };
                self.next += filled.len() as u64;
                spare.push_back(std::mem::replace(block, filled));
            }
        }
        Ok(true)
    }
}

/// Bring what comes next into memory on the pool, each thread a share.
fn spawn_read_ahead(snapshot: &Snapshot, from: u64, until: u64) -> Result<(), ReadError> {
    let share = (until - from).div_ceil(snapshot.pool.num_workers() as u64).clamp(1, BLOCK_LEN as u64);
    let mut position = from;
    while position < until {
        let len = share.min(until - position);
        let snapshot_of_job = snapshot.clone();
        snapshot.pool.spawn(move || {
            let snapshot = snapshot_of_job;
            let mut rows = [0; BLOCK_LEN];
            let rows = &mut rows[..len as usize];
            snapshot.profile.measure(Stage::ReadAhead, len, 0, || {
                snapshot.samples(position, rows);
                read_ahead(&snapshot.catalog, rows.iter().map(|row| snapshot.catalog.locate(*row)));
            });
        })?;
        position += len;
    }
    Ok(())
}

/// One sample, its payload and texts owned.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The payload, as it was written.
    pub data: Vec<u8>,
    /// Names and values of the metadata, in column order.
    pub metadata: Vec<(String, SampleValue)>,
    /// Which cache.
    pub cache_id: u64,
    /// Which row of it.
    pub sample_id: u64,
}

/// A metadata value that owns its text.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// True or false.
    Bool(bool),
    /// A 64-bit signed integer.
    Int(i64),
    /// A 64-bit float.
    Float(f64),
    /// UTF-8 text.
    String(String),
}

impl From<MetadataValue<'_>> for SampleValue {
    fn from(value: MetadataValue<'_>) -> Self {
        match value {
            MetadataValue::Bool(value) => Self::Bool(value),
            MetadataValue::Int(value) => Self::Int(value),
            MetadataValue::Float(value) => Self::Float(value),
            MetadataValue::String(value) => Self::String(value.to_owned()),
        }
    }
}

impl Sample {
    /// Copy a sample out of its block, reading its payload if that is still on the disk.
    pub(crate) fn from_ref(sample: SampleRef<'_>) -> Result<Self, ReadError> {
        let mut data = vec![0; sample.payload_len()];
        sample.copy_payload(&mut data)?;
        let mut metadata = Vec::new();
        for (column, field) in sample.schema().fields().iter().enumerate() {
            let value = sample.metadata(column).ok_or_else(|| sample.changed())?;
            metadata.push((field.name.clone(), value.into()));
        }
        Ok(Self { data, metadata, cache_id: sample.cache_id(), sample_id: sample.sample_id() })
    }
}

impl Iterator for SampleIter {
    type Item = Result<Sample, ReadError>;

    /// The next sample. After an error the iterator is finished.
    fn next(&mut self) -> Option<Self::Item> {
        if self.at == self.current.len() {
            let mut block = std::mem::replace(&mut self.current, Block::new(Arc::clone(&self.snapshot.catalog)));
            let more = self.next_block(&mut block, &mut || false);
            self.current = block;
            self.at = 0;
            match more {
                Ok(true) => {}
                Ok(false) => {
                    self.current = self.empty_block();
                    return None;
                }
                Err(error) => {
                    self.finish();
                    return Some(Err(error));
                }
            }
        }
        let at = self.at;
        self.at += 1;
        let outcome = self.current.sample(at).and_then(Sample::from_ref);
        if outcome.is_err() {
            self.finish();
        }
        Some(outcome)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.remaining() + (self.current.len() - self.at) as u64;
        (0, usize::try_from(left).ok())
    }
}

impl SampleIter {
    /// Give nothing more.
    pub fn finish(&mut self) {
        self.next = self.end;
        self.current = self.empty_block();
        self.at = 0;
        if let Supply::Pooled { window, spare, .. } = &mut self.supply {
            *window = OrderedWindow::new(Arc::clone(&self.snapshot.pool));
            spare.clear();
        }
    }
}
