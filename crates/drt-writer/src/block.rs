use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use drt_format::{
    CompressionAlgo, FormatError, MetadataValue, PayloadEncoder, RecordHasher, RowEncoder, record_checksum,
};
use drt_metadata::MetadataBuilder;
use drt_runtime::{Began, CancelToken};

use crate::profile::{Profile, Stage};

/// Bytes that several threads may read: how a large payload travels without being copied.
pub type SharedPayload = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A payload as the caller hands it over.
pub enum Payload<'a> {
    /// Copied now; the caller may reuse its buffer.
    Copy(&'a [u8]),
    /// Kept until it is written; must not change.
    Shared(SharedPayload),
}

impl Payload<'_> {
    /// From this length on sharing is cheaper than copying.
    pub const SHARE_FROM: usize = 16 * 1024;

    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Copy(bytes) => bytes.len(),
            Self::Shared(bytes) => bytes.as_ref().as_ref().len(),
        }
    }
}

/// Where a pulled payload waits.
enum Held {
    Arena(Range<usize>),
    Shared(SharedPayload),
}

/// Samples that were pulled and are encoded together.
pub(crate) struct InputBlock {
    first_row: u64,
    metadata: MetadataBuilder,
    arena: Vec<u8>,
    payloads: Vec<Held>,
    num_bytes: usize,
}

impl InputBlock {
    pub(crate) fn new(first_row: u64, metadata: MetadataBuilder) -> Self {
        Self { first_row, metadata, arena: Vec::new(), payloads: Vec::new(), num_bytes: 0 }
    }

    pub(crate) fn metadata_mut(&mut self) -> &mut MetadataBuilder {
        &mut self.metadata
    }

    /// Keep a payload; `values` is the metadata that was pushed for it.
    pub(crate) fn push_payload(&mut self, payload: Payload<'_>, values: &[MetadataValue<'_>]) {
        let text = |value: &MetadataValue<'_>| if let MetadataValue::String(text) = value { text.len() } else { 0 };
        self.num_bytes += payload.len() + values.iter().map(text).sum::<usize>();
        self.payloads.push(match payload {
            Payload::Copy(bytes) => {
                let start = self.arena.len();
                self.arena.extend_from_slice(bytes);
                Held::Arena(start..self.arena.len())
            }
            Payload::Shared(bytes) => Held::Shared(bytes),
        });
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.payloads.len()
    }

    pub(crate) fn num_bytes(&self) -> usize {
        self.num_bytes
    }

    /// Turn the samples into records; `None` when stopped meanwhile. On failure says which row, and why.
    pub(crate) fn encode(
        self,
        rows: &RowEncoder,
        algo: CompressionAlgo,
        payloads: &mut PayloadEncoder,
        profile: &Profile,
        stopped: &CancelToken,
    ) -> Result<Option<EncodedBlock>, (u64, FormatError)> {
        let began = profile.start();
        let compresses = algo != CompressionAlgo::None;
        let (mut compressing, mut payload_bytes) = (Duration::ZERO, 0);
        let columns = self.metadata.columns();
        let mut buffer = Vec::with_capacity(self.arena.len() + self.payloads.len() * 96);
        let mut records = Vec::with_capacity(self.payloads.len());
        let mut hasher = RecordHasher::new();
        for (row, held) in self.payloads.into_iter().enumerate() {
            if stopped.is_cancelled() {
                return Ok(None);
            }
            let start = buffer.len();
            rows.encode_record_head(|column| columns[column].get(row), &mut buffer);
            let (payload, shared) = match &held {
                Held::Arena(range) => (&self.arena[range.clone()], None),
                Held::Shared(bytes) => (bytes.as_ref().as_ref(), Some(bytes)),
            };
            let payload_len = payload.len() as u64;
            // A large payload that is stored as it is goes from the caller's memory to the file.
            let shared = if compresses { None } else { shared.cloned() };
            if shared.is_none() {
                let began = if compresses { profile.start() } else { Began::default() };
                payloads.encode(payload, &mut buffer).map_err(|error| (self.first_row + row as u64, error))?;
                compressing += began.elapsed();
            }
            let inline = start..buffer.len();
            let checksum = match &shared {
                None => record_checksum(&buffer[inline.clone()]),
                Some(bytes) => {
                    hasher.update(&buffer[inline.clone()]);
                    hasher.update(bytes.as_ref().as_ref());
                    hasher.finish_reset()
                }
            };
            payload_bytes += payload_len;
            records.push(EncodedRecord { inline, shared, payload_len, checksum });
        }
        let encoded = EncodedBlock { metadata: self.metadata, buffer, records };
        if profile.is_on() {
            let records = encoded.records.len() as u64;
            profile.add(Stage::Compression, records, compressing, payload_bytes);
            profile.add(Stage::RecordEncode, records, began.elapsed().saturating_sub(compressing), encoded.num_bytes());
        }
        Ok(Some(encoded))
    }
}

/// One record: a stretch of its block's buffer, then perhaps a payload that was not copied into it.
pub(crate) struct EncodedRecord {
    inline: Range<usize>,
    shared: Option<SharedPayload>,
    pub(crate) payload_len: u64,
    pub(crate) checksum: u64,
}

impl EncodedRecord {
    pub(crate) fn len(&self) -> u64 {
        let shared = self.shared.as_ref().map_or(0, |bytes| bytes.as_ref().as_ref().len());
        (self.inline.len() + shared) as u64
    }
}

/// Records of one block, laid end to end.
pub(crate) struct EncodedBlock {
    pub(crate) metadata: MetadataBuilder,
    buffer: Vec<u8>,
    pub(crate) records: Vec<EncodedRecord>,
}

impl EncodedBlock {
    /// Length of all records in bytes.
    pub(crate) fn num_bytes(&self) -> u64 {
        self.records.iter().map(EncodedRecord::len).sum()
    }

    /// The bytes of a run of records, in as few slices as there are.
    pub(crate) fn slices(&self, records: Range<usize>) -> Vec<&[u8]> {
        let mut slices: Vec<&[u8]> = Vec::new();
        let mut start = records.clone().next().map_or(0, |first| self.records[first].inline.start);
        let mut end = start;
        for record in &self.records[records] {
            // Inline parts follow each other without gaps, so only a shared payload ends a slice.
            end = record.inline.end;
            if let Some(bytes) = &record.shared {
                slices.push(&self.buffer[start..end]);
                slices.push(bytes.as_ref().as_ref());
                start = end;
            }
        }
        if end > start {
            slices.push(&self.buffer[start..end]);
        }
        slices
    }
}
