//! Blocks of samples: everything about them is found out here, in passes over many samples at once, so that the memory
//! accesses of one overlap with those of the next. No lock of the caller's (such as Python's) has to be held meanwhile.

use std::hint::black_box;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use drt_format::constants::RECORD_PREFIX_LEN;
use drt_format::{
    CompressionAlgo, FormatError, IndexEntry, MetadataSchema, MetadataValue, RecordHasher, decode_payload, payload_len,
    split_record,
};
use drt_metadata::Column;

use crate::cache::{Cache, RecordMetadata};
use crate::catalog::Catalog;
use crate::mmap::prefetch;
use crate::profile::{Profile, Stage};
use crate::shard::Shard;
use crate::{ReadError, RecordFault};

/// From this length on a stored record is read straight into the caller's memory instead of being copied from the map: as
/// fast, and it does not fill the process with mapped pages.
pub(crate) const LARGE_RECORD: u64 = 32 * 1024;
/// Bytes from which a cold record is worth asking for ahead of time, and its payload worth copying apart from building objects;
/// below, a plain page fault is as fast.
pub(crate) const ADVISE_FROM: u64 = 2 * 1024;
const CACHE_LINE: usize = 64;
const PAGE: usize = 4096;
/// Of a mapped record this much is asked for ahead of time.
const PREFETCH_BYTES: usize = 512;

/// Where one sample's payload is.
#[derive(Debug)]
enum Place {
    /// In a mapped shard.
    Mapped { shard: u32, start: u64, len: usize },
    /// In the block's own memory.
    Arena { start: usize, len: usize },
    /// Still on its way: `copy_payload` reads it.
    Deferred { head_len: usize, len: usize },
    /// Nowhere: reading failed, and `Block::failures` says why.
    Failed,
}

#[derive(Debug)]
struct Row {
    cache: u32,
    sample: u64,
    entry: IndexEntry,
    place: Place,
    metadata: RecordMetadata,
}

impl Row {
    #[inline]
    fn payload_len(&self) -> usize {
        match self.place {
            Place::Mapped { len, .. } | Place::Arena { len, .. } | Place::Deferred { len, .. } => len,
            Place::Failed => 0,
        }
    }
}

/// Samples that are ready to be handed out, in order.
#[derive(Debug)]
pub struct Block {
    catalog: Arc<Catalog>,
    rows: Vec<Row>,
    buffers: Buffers,
    /// What went wrong, by position. Taken by whoever asks for the sample.
    failures: Mutex<Vec<(usize, ReadError)>>,
}

/// Memory that a block uses again for its next samples.
#[derive(Debug, Default)]
struct Buffers {
    /// Payloads that were read or decoded, end to end.
    arena: Vec<u8>,
    /// One record as it is stored.
    record: Vec<u8>,
    /// JSON text to compare a record's with.
    json: Vec<u8>,
    /// How long reading one record from its file took, when that is measured.
    from_files: Duration,
}

/// One sample of a block.
#[derive(Debug, Clone, Copy)]
pub struct SampleRef<'a> {
    block: &'a Block,
    row: &'a Row,
}

impl Block {
    /// An empty block.
    pub(crate) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, rows: Vec::new(), buffers: Buffers::default(), failures: Mutex::default() }
    }

    /// Samples in the block.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Is the block empty?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// A sample of the block.
    ///
    /// # Errors
    /// What went wrong when it was read. The error can be taken once.
    ///
    /// # Panics
    /// When there is no such sample.
    #[inline]
    pub fn sample(&self, at: usize) -> Result<SampleRef<'_>, ReadError> {
        let row = &self.rows[at];
        if let Place::Failed = row.place { Err(self.take_failure(at)) } else { Ok(SampleRef { block: self, row }) }
    }

    #[cold]
    fn take_failure(&self, at: usize) -> ReadError {
        // Whoever holds the lock only moves errors in or out of the list.
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        match failures.iter().position(|(position, _)| *position == at) {
            Some(found) => failures.swap_remove(found).1,
            None => ReadError::InvalidConfig { reason: "this sample's error was taken before".into() },
        }
    }

    /// Length of a sample's payload in bytes; 0 where reading failed.
    #[inline]
    pub fn payload_len(&self, at: usize) -> usize {
        self.rows[at].payload_len()
    }

    /// Is a sample's payload in the block's own memory, since it had to be read or decoded?
    #[inline]
    pub fn holds(&self, at: usize) -> bool {
        matches!(self.rows[at].place, Place::Arena { .. })
    }

    /// Bytes of the records that were touched where they are mapped.
    pub(crate) fn mapped_bytes(&self) -> u64 {
        let mapped = |row: &&Row| matches!(row.place, Place::Mapped { .. });
        self.rows.iter().filter(mapped).map(|row| row.entry.len).sum()
    }

    /// Replace the block's samples by these, given as places in the catalog and sample ids.
    pub(crate) fn fill(&mut self, samples: impl Iterator<Item = (u32, u64)>, profile: &Profile) {
        let began = profile.start();
        let mut decoded = Decoded::default();
        let catalog = Arc::clone(&self.catalog);
        self.rows.clear();
        self.buffers.arena.clear();
        let failures = self.failures.get_mut().unwrap_or_else(PoisonError::into_inner);
        failures.clear();
        self.rows.extend(samples.map(|(cache, sample)| Row {
            cache,
            sample,
            entry: IndexEntry { shard: 0, offset: 0, len: 0 },
            place: Place::Failed,
            metadata: RecordMetadata::Table,
        }));
        let cache_of = |row: &Row| &catalog.caches()[row.cache as usize];
        // Each pass asks for what the next one looks at, for all samples, so that they wait for memory together.
        for row in &self.rows {
            cache_of(row).prefetch_entry(row.sample);
        }
        for row in &mut self.rows {
            let cache = &catalog.caches()[row.cache as usize];
            row.entry = cache.entry(row.sample);
            let shard = &cache.shards()[row.entry.shard as usize];
            if let Some(bytes) = shard.mapped() {
                prefetch_record(bytes, row.entry);
            }
            let (columns, local) = cache.columns(row.sample);
            for column in columns {
                prefetch_value(column, local);
            }
        }
        for row in &self.rows {
            let (columns, local) = cache_of(row).columns(row.sample);
            for column in columns {
                prefetch_text(column, local);
            }
        }
        // A prefetch stops at a page that is not in memory: what is looked at from here on is waited for.
        let mut touched = 0u8;
        for (at, row) in self.rows.iter_mut().enumerate() {
            let cache = &catalog.caches()[row.cache as usize];
            let shard = &cache.shards()[row.entry.shard as usize];
            if let Some(bytes) = shard.mapped() {
                let record = &bytes[row.entry.offset as usize..][..row.entry.len as usize];
                touched ^= touch(&record[..looked_at_len(row.entry.len)]);
                // Nearly every read of a cache in use: mapped, stored as it is, and checked before.
                if !is_deferred(shard, row.entry)
                    && shard.algo() == CompressionAlgo::None
                    && cache.is_verified(row.sample)
                    && let Ok((_, payload)) = split_record(record)
                {
                    let start = row.entry.offset + (record.len() - payload.len()) as u64;
                    row.place = Place::Mapped { shard: row.entry.shard as u32, start, len: payload.len() };
                    let (columns, local) = cache.columns(row.sample);
                    touched = columns.iter().fold(touched, |touched, column| touched ^ touch_value(column, local));
                    continue;
                }
            }
            let reading = profile.start();
            let outcome = read(cache, row.sample, row.entry, &mut self.buffers, profile);
            let from_file = std::mem::take(&mut self.buffers.from_files);
            if !matches!(outcome, Ok((Place::Deferred { .. }, _))) {
                decoded.add(reading.elapsed().saturating_sub(from_file), row.entry.len);
            }
            match outcome {
                Ok((place, metadata)) => (row.place, row.metadata) = (place, metadata),
                Err(error) => failures.push((at, error)),
            }
        }
        black_box(touched);
        if profile.is_on() {
            let stored = self.rows.iter().map(|row| row.entry.len).sum();
            profile.add(Stage::Decode, decoded.records, decoded.elapsed, decoded.bytes);
            profile.add(Stage::PageIn, self.rows.len() as u64, began.elapsed().saturating_sub(decoded.elapsed), stored);
        }
    }
}

/// Records of a block that were not at hand as they are, and the time that took without reading files; for its profile.
#[derive(Default)]
struct Decoded {
    records: u64,
    bytes: u64,
    elapsed: Duration,
}

impl Decoded {
    fn add(&mut self, elapsed: Duration, bytes: u64) {
        self.records += 1;
        self.bytes += bytes;
        self.elapsed += elapsed;
    }
}

/// Is a record's payload read past the map, into the caller's own memory?
#[inline]
fn is_deferred(shard: &Shard, entry: IndexEntry) -> bool {
    entry.len >= LARGE_RECORD && shard.algo() == CompressionAlgo::None && shard.has_file()
}

/// Of a record this much is looked at here: all of it, or only its head when whoever copies it can wait for the rest.
#[inline]
fn looked_at_len(len: u64) -> usize {
    if len >= ADVISE_FROM { CACHE_LINE.min(len as usize) } else { len as usize }
}

/// Have the beginning of a record brought nearer; what follows the processor finds by itself.
#[inline]
fn prefetch_record(bytes: &[u8], entry: IndexEntry) {
    let len = looked_at_len(entry.len).min(PREFETCH_BYTES);
    for at in (0..len).step_by(CACHE_LINE) {
        prefetch(bytes, entry.offset as usize + at);
    }
}

/// Have the beginning of a row's text brought nearer, when its offsets are near already.
#[inline]
fn prefetch_text(column: &Column, row: usize) {
    if let Column::String { offsets, text } = column
        && let Ok(start) = usize::try_from(offsets[row])
    {
        prefetch(text, start);
    }
}

/// Look at one byte of every page of a record.
#[inline]
fn touch(bytes: &[u8]) -> u8 {
    let Some((first, last)) = bytes.first().zip(bytes.last()) else { return 0 };
    let mut touched = first ^ last;
    let mut at = PAGE;
    while at < bytes.len() {
        touched ^= bytes[at];
        at += PAGE;
    }
    touched
}

#[inline]
fn prefetch_value(column: &Column, row: usize) {
    match column {
        Column::Bool(_) => {}
        Column::Int(values) => prefetch(values, row),
        Column::Float(values) => prefetch(values, row),
        Column::String { offsets, .. } => prefetch(offsets, row),
    }
}

#[inline]
fn touch_value(column: &Column, row: usize) -> u8 {
    match column {
        Column::Bool(bits) => u8::from(bits.get_bit(row)),
        Column::Int(values) => values[row] as u8,
        Column::Float(values) => values[row].to_bits() as u8,
        Column::String { offsets, text } => {
            usize::try_from(offsets[row]).ok().and_then(|start| text.get(start)).copied().unwrap_or(0)
        }
    }
}

/// Find out where a sample's payload is and what its metadata is, checking the record the first time it is met.
fn read(
    cache: &Cache,
    sample: u64,
    entry: IndexEntry,
    buffers: &mut Buffers,
    profile: &Profile,
) -> Result<(Place, RecordMetadata), ReadError> {
    let shard = &cache.shards()[entry.shard as usize];
    let fault = |source: RecordFault| cache.record_error(sample, source);
    let format_fault = |source: FormatError| fault(source.into());

    if is_deferred(shard, entry) {
        // Only the head: the payload goes from the file to where the caller wants it.
        let head = match shard.mapped() {
            Some(bytes) => {
                let record = &bytes[entry.offset as usize..][..entry.len as usize];
                let (json, _) = split_record(record).map_err(format_fault)?;
                let metadata = metadata_of(cache, sample, json, &mut buffers.json).map_err(fault)?;
                (RECORD_PREFIX_LEN + json.len(), metadata)
            }
            None => {
                let began = profile.start();
                let mut prefix = [0; RECORD_PREFIX_LEN];
                cache.read_record(sample, entry.offset, &mut prefix)?;
                let available = entry.len as usize - RECORD_PREFIX_LEN;
                let json_len = u64::from_le_bytes(prefix);
                let len = usize::try_from(json_len).ok().filter(|len| *len <= available);
                let len = len.ok_or_else(|| format_fault(FormatError::RecordJsonLen { json_len, available }))?;
                let mut json = vec![0; len];
                cache.read_record(sample, entry.offset + RECORD_PREFIX_LEN as u64, &mut json)?;
                buffers.from_files += began.elapsed();
                let metadata = metadata_of(cache, sample, &json, &mut buffers.json).map_err(fault)?;
                (RECORD_PREFIX_LEN + len, metadata)
            }
        };
        let (head_len, metadata) = head;
        return Ok((Place::Deferred { head_len, len: entry.len as usize - head_len }, metadata));
    }

    let from_map = shard.mapped().map(|bytes| &bytes[entry.offset as usize..][..entry.len as usize]);
    let record = match from_map {
        Some(record) => record,
        None => {
            buffers.record.resize(entry.len as usize, 0);
            let began = profile.start();
            cache.read_record(sample, entry.offset, &mut buffers.record)?;
            buffers.from_files += began.elapsed();
            &buffers.record
        }
    };

    let (json, stored) = split_record(record).map_err(format_fault)?;
    let metadata = if cache.is_verified(sample) {
        RecordMetadata::Table
    } else {
        cache.check_bytes(sample, record).map_err(fault)?;
        let metadata = cache.check_json(sample, json, &mut buffers.json).map_err(fault)?;
        // A record with values of its own has to be looked at each time.
        if matches!(metadata, RecordMetadata::Table) {
            cache.mark_verified(sample);
        }
        metadata
    };

    let start = buffers.arena.len();
    let place = match shard.algo() {
        CompressionAlgo::None if from_map.is_some() => {
            let payload_start = entry.offset + (record.len() - stored.len()) as u64;
            Place::Mapped { shard: entry.shard as u32, start: payload_start, len: stored.len() }
        }
        CompressionAlgo::None => {
            buffers.arena.extend_from_slice(stored);
            Place::Arena { start, len: stored.len() }
        }
        algo => {
            let len = payload_len(algo, stored).map_err(format_fault)?;
            let limit = shard.payload_bytes();
            if algo == CompressionAlgo::Zstd && len as u64 > limit {
                // A few bytes may stand for gigabytes, and the manifest says how many there can be.
                return Err(fault(RecordFault::PayloadTooLong { len, limit }));
            }
            if buffers.arena.try_reserve(len).is_err() {
                return Err(fault(RecordFault::OutOfMemory { len }));
            }
            buffers.arena.resize(start + len, 0);
            decode_payload(algo, stored, &mut buffers.arena[start..]).map_err(format_fault)?;
            Place::Arena { start, len }
        }
    };
    Ok((place, metadata))
}

/// The metadata of a record whose payload is not at hand; its checksum waits for that.
fn metadata_of(cache: &Cache, sample: u64, json: &[u8], scratch: &mut Vec<u8>) -> Result<RecordMetadata, RecordFault> {
    if cache.is_verified(sample) { Ok(RecordMetadata::Table) } else { cache.check_json(sample, json, scratch) }
}

impl<'a> SampleRef<'a> {
    fn cache(&self) -> &'a Cache {
        &self.block.catalog.caches()[self.row.cache as usize]
    }

    /// The names and kinds of the metadata.
    pub fn schema(&self) -> &'a MetadataSchema {
        self.cache().schema()
    }

    /// The error for a metadata table that changed while it was mapped.
    pub fn changed(&self) -> ReadError {
        ReadError::Replaced { path: self.cache().metadata_path() }
    }

    /// The place of the sample's cache among the dataset's paths.
    #[inline]
    pub fn cache_position(&self) -> usize {
        self.row.cache as usize
    }

    /// The identity of the sample's cache.
    #[inline]
    pub fn cache_id(&self) -> u64 {
        self.cache().id().get()
    }

    /// The sample's row in its cache.
    #[inline]
    pub fn sample_id(&self) -> u64 {
        self.row.sample
    }

    /// Is the payload in the block's own memory, since it had to be read or decoded?
    #[inline]
    pub fn is_held(&self) -> bool {
        matches!(self.row.place, Place::Arena { .. })
    }

    /// Length of the payload in bytes.
    #[inline]
    pub fn payload_len(&self) -> usize {
        self.row.payload_len()
    }

    /// The payload, when it is in memory; `None` when [`copy_payload`](Self::copy_payload) has to read it first.
    #[inline]
    pub fn payload(&self) -> Option<&'a [u8]> {
        match self.row.place {
            Place::Mapped { shard, start, len } => {
                let bytes = self.cache().shards()[shard as usize].mapped()?;
                Some(&bytes[start as usize..][..len])
            }
            Place::Arena { start, len } => Some(&self.block.buffers.arena[start..][..len]),
            Place::Deferred { .. } | Place::Failed => None,
        }
    }

    /// Fill `out`, which has [`payload_len`](Self::payload_len) bytes, with the payload. May wait for the disk.
    ///
    /// # Errors
    /// `Io`, `Record`.
    ///
    /// # Panics
    /// When `out` has another length.
    pub fn copy_payload(&self, out: &mut [u8]) -> Result<(), ReadError> {
        if let Some(payload) = self.payload() {
            out.copy_from_slice(payload);
            return Ok(());
        }
        let Row { sample, entry, place, metadata, .. } = self.row;
        let Place::Deferred { head_len, len } = place else {
            unreachable!("a sample that is handed out has its payload")
        };
        assert_eq!(out.len(), *len, "the buffer has the payload's length");
        let cache = self.cache();
        cache.read_record(*sample, entry.offset + *head_len as u64, out)?;
        if cache.is_verified(*sample) {
            return Ok(());
        }
        if let Some(expected) = cache.expected_checksum(*sample) {
            let mut head = vec![0; *head_len];
            cache.read_record(*sample, entry.offset, &mut head)?;
            let mut hasher = RecordHasher::new();
            hasher.update(&head);
            hasher.update(out);
            let found = hasher.finish_reset();
            if found != expected {
                return Err(cache.record_error(*sample, RecordFault::Checksum { expected, found }));
            }
        }
        if matches!(metadata, RecordMetadata::Table) {
            cache.mark_verified(*sample);
        }
        Ok(())
    }

    /// The columns of the table around the sample and its row in them, when the record says the same as the table.
    #[inline]
    pub fn table_row(&self) -> Option<(&'a [Column], usize)> {
        match &self.row.metadata {
            RecordMetadata::Table => Some(self.cache().columns(self.row.sample)),
            RecordMetadata::Own(_) => None,
        }
    }

    /// One metadata value, by its column's position; `None` only where the mapped table changed since the record was checked.
    ///
    /// # Panics
    /// When there is no such column.
    #[inline]
    pub fn metadata(&self, column: usize) -> Option<MetadataValue<'a>> {
        match &self.row.metadata {
            RecordMetadata::Table => {
                let (columns, local) = self.cache().columns(self.row.sample);
                columns[column].value(local)
            }
            RecordMetadata::Own(values) => Some(values[column].as_value()),
        }
    }
}

/// Start bringing the records of some samples into memory, from a thread that may wait for it.
pub(crate) fn read_ahead(catalog: &Catalog, samples: impl Iterator<Item = (u32, u64)> + Clone) {
    let shard_of = |(cache, sample): (u32, u64)| {
        let cache = &catalog.caches()[cache as usize];
        let entry = cache.entry(sample);
        (&cache.shards()[entry.shard as usize], entry)
    };
    // First tell the kernel about all that is large, then wait for what is small.
    for (shard, entry) in samples.clone().map(shard_of) {
        if entry.len >= ADVISE_FROM {
            shard.will_need(entry.offset, entry.len);
        }
    }
    let mut touched = 0;
    for (shard, entry) in samples.map(shard_of) {
        if entry.len < ADVISE_FROM
            && let Some(bytes) = shard.mapped()
        {
            touched ^= touch(&bytes[entry.offset as usize..][..entry.len as usize]);
        }
    }
    black_box(touched);
}
