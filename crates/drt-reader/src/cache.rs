use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use drt_format::constants::{INDEX_ENTRY_LEN, RECORD_CHECKSUM_LEN};
use drt_format::{
    CacheId, CacheLayout, CompressionAlgo, DecodedValue, FormatError, IndexEntry, IndexView, Manifest, MetadataSchema,
    MetadataValue, RecordChecksumsView, RowEncoder, Sha256Digest, Sha256Hasher, decode_row, record_checksum,
    validate_index, validate_row_count,
};
use drt_metadata::{Column, MetadataTable};
use polars_buffer::Buffer;

use crate::mmap::{MappedFile, prefetch};
use crate::shard::{Shard, open_file};
use crate::{IoMode, ReadError, RecordFault};

/// Bytes that are hashed before anybody looks whether to stop.
const HASHED_AT_ONCE: usize = 1 << 20;

/// One published cache: index and metadata mapped, shards tied to the files that were there.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    layout: CacheLayout,
    manifest: Manifest,
    id: CacheId,
    index: MappedFile,
    checksums: Option<MappedFile>,
    metadata: MetadataTable,
    shards: Vec<Shard>,
    rows: RowEncoder,
    /// Compare every record with the metadata table, and refuse those that differ.
    strict: bool,
    /// A bit a sample: its record was found to be right. Made when the first record is read.
    verified: OnceLock<Box<[AtomicU64]>>,
}

/// What the metadata of one record was found to be.
#[derive(Debug)]
pub(crate) enum RecordMetadata {
    /// The same as the table's row.
    Table,
    /// Valid, and different from the table's row: the record's own values, in column order.
    Own(Box<[OwnValue]>),
}

/// A value that was read from a record.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum OwnValue {
    Bool(bool),
    Int(i64),
    Float(f64),
    String(String),
}

impl OwnValue {
    pub(crate) fn as_value(&self) -> MetadataValue<'_> {
        match self {
            Self::Bool(value) => MetadataValue::Bool(*value),
            Self::Int(value) => MetadataValue::Int(*value),
            Self::Float(value) => MetadataValue::Float(*value),
            Self::String(value) => MetadataValue::String(value),
        }
    }
}

impl Cache {
    /// Open a cache with the cheap checks: manifest, lengths of all files, index rows inside their shards, structure of the
    /// metadata table. With `validate_cache` also the SHA-256 of every file; each record is then compared with the table
    /// when it is read.
    ///
    /// `legacy_id` is the identity of a cache whose manifest has none (format version 2). A cache that is replaced as a whole
    /// meanwhile is opened anew: all files are of one of the two. `stop` is asked whether to give up with every file, and every
    /// megabyte that is read.
    ///
    /// # Errors
    /// `CacheNotFound`, `NotACache`, `Format`, `Metadata`, `MissingFile`, `LengthMismatch`, `SampleCountMismatch`,
    /// `ChecksumMismatch`, `Replaced` (again and again), `Io`, and `Interrupted` when `stop` said so.
    pub fn open(
        path: &Path,
        legacy_id: u64,
        io: IoMode,
        validate_cache: bool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        let mut folder = folder_identity(path);
        for _attempt in 0..8 {
            let opened = Self::open_files(path, legacy_id, io, validate_cache, stop);
            let now = folder_identity(path);
            if now == folder || matches!(opened, Err(ReadError::Interrupted)) {
                return opened;
            }
            folder = now;
        }
        Err(ReadError::Replaced { path: path.to_owned() })
    }

    fn open_files(
        path: &Path,
        legacy_id: u64,
        io: IoMode,
        validate_cache: bool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        go_on(stop)?;
        let layout = CacheLayout::new(path);
        let manifest_path = layout.manifest();
        let manifest = read_manifest(path, &manifest_path)?;
        let in_manifest = |source| ReadError::Format { path: manifest_path.clone(), source };

        let shards_dir = layout.shards_dir();
        let shards = manifest
            .shards
            .iter()
            .map(|entry| go_on(stop).and_then(|()| Shard::open(&shards_dir, entry, io)))
            .collect::<Result<Vec<_>, ReadError>>()?;

        let index_path = layout.index();
        let mut index_file = open_file(&index_path)?;
        let index = map_file(&index_file, &index_path)?;
        let in_index = |source| match source {
            FormatError::RowCount { expected, found } => {
                ReadError::SampleCountMismatch { path: index_path.clone(), expected, found }
            }
            source => ReadError::Format { path: index_path.clone(), source },
        };
        let view = IndexView::new(index.as_ref()).map_err(in_index)?;
        validate_row_count(&manifest, view).map_err(in_index)?;
        if !index_fits(&mut index_file, &index_path, &manifest, stop)? {
            validate_index(view, &manifest.shards).map_err(in_index)?;
        }

        let metadata_path = layout.metadata();
        let file = Buffer::from_owner(map_whole(&metadata_path)?);
        let metadata = MetadataTable::open(file.clone(), &manifest.schema, manifest.sample_count)
            .map_err(|source| ReadError::Metadata { path: metadata_path.clone(), source })?;

        let checksums = match manifest.record_checksums().map_err(in_manifest)? {
            None => None,
            Some(announced) => Some((open_checksums(&layout, manifest.sample_count)?, announced.sha256)),
        };

        if validate_cache {
            verify(&metadata_path, &file, manifest.metadata_sha256, stop)?;
            verify(&index_path, index.as_ref(), manifest.index_sha256, stop)?;
            if let Some((map, sha256)) = &checksums {
                verify(&layout.record_checksums(), map.as_ref(), *sha256, stop)?;
            }
            for (shard, entry) in shards.iter().zip(&manifest.shards) {
                verify_shard(shard, entry.sha256, stop)?;
            }
        }

        let rows = RowEncoder::new(&manifest.schema);
        let id = manifest.cache_id.unwrap_or(CacheId::new(legacy_id));
        Ok(Self {
            path: path.to_owned(),
            layout,
            id,
            index,
            checksums: checksums.map(|(map, _)| map),
            metadata,
            shards,
            rows,
            strict: validate_cache,
            verified: OnceLock::new(),
            manifest,
        })
    }

    /// The cache's folder, as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The cache's identity.
    pub fn id(&self) -> CacheId {
        self.id
    }

    /// The cache's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The columns of the metadata.
    pub fn schema(&self) -> &MetadataSchema {
        &self.manifest.schema
    }

    /// The metadata as it lies in the file.
    pub fn metadata(&self) -> &MetadataTable {
        &self.metadata
    }

    /// Where the metadata lies.
    pub fn metadata_path(&self) -> PathBuf {
        self.layout.metadata()
    }

    /// Samples in the cache.
    #[inline]
    pub fn num_samples(&self) -> u64 {
        self.manifest.sample_count
    }

    #[inline]
    pub(crate) fn entry(&self, sample: u64) -> IndexEntry {
        self.index().get(sample as usize)
    }

    /// Have the index entry and the verified bit of a sample brought nearer.
    #[inline]
    pub(crate) fn prefetch_entry(&self, sample: u64) {
        prefetch(self.index.as_ref(), sample as usize * INDEX_ENTRY_LEN);
        prefetch(self.verified_bits(), (sample / 64) as usize);
    }

    #[inline]
    fn index(&self) -> IndexView<'_> {
        IndexView::new(self.index.as_ref()).expect("checked when the cache was opened")
    }

    /// Can every record be handed out from a map, or read straight to where it is wanted?
    pub(crate) fn is_direct(&self) -> bool {
        self.shards.iter().all(|shard| shard.mapped().is_some() && shard.algo() == CompressionAlgo::None)
    }

    pub(crate) fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// The table's columns around a sample, and its row in them.
    #[inline]
    pub(crate) fn columns(&self, sample: u64) -> (&[Column], usize) {
        self.metadata.locate(sample)
    }

    fn verified_bits(&self) -> &[AtomicU64] {
        self.verified.get_or_init(|| {
            let words = self.num_samples().div_ceil(64) as usize;
            std::iter::repeat_with(AtomicU64::default).take(words).collect()
        })
    }

    #[inline]
    pub(crate) fn is_verified(&self, sample: u64) -> bool {
        let word = &self.verified_bits()[(sample / 64) as usize];
        word.load(Ordering::Relaxed) & (1 << (sample % 64)) != 0
    }

    pub(crate) fn mark_verified(&self, sample: u64) {
        self.verified_bits()[(sample / 64) as usize].fetch_or(1 << (sample % 64), Ordering::Relaxed);
    }

    /// The checksum stored for a record, when the cache has them.
    pub(crate) fn expected_checksum(&self, sample: u64) -> Option<u64> {
        let checksums = self.checksums.as_ref()?;
        let view = RecordChecksumsView::new(checksums.as_ref()).expect("checked when the cache was opened");
        Some(view.get(sample as usize))
    }

    /// Is a whole record what was written?
    pub(crate) fn check_bytes(&self, sample: u64, record: &[u8]) -> Result<(), RecordFault> {
        match self.expected_checksum(sample) {
            None => Ok(()),
            Some(expected) => match record_checksum(record) {
                found if found == expected => Ok(()),
                found => Err(RecordFault::Checksum { expected, found }),
            },
        }
    }

    /// Compare a record's JSON text with the sample's row of the table.
    pub(crate) fn check_json(
        &self,
        sample: u64,
        json: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<RecordMetadata, RecordFault> {
        let (columns, row) = self.columns(sample);
        let readable = !self.metadata.has_nulls() && columns.iter().all(|column| column.value(row).is_some());
        if readable {
            // Writers are deterministic: what they would write for the table's row is what nearly every record has.
            scratch.clear();
            let value = |column: usize| columns[column].value(row).unwrap_or(MetadataValue::Bool(false));
            self.rows.encode(value, scratch);
            if scratch == json {
                return Ok(RecordMetadata::Table);
            }
        }
        let decoded = decode_row(self.schema(), json)?;
        let table = |column: usize| if readable { columns[column].value(row) } else { None };
        let mut own = Vec::with_capacity(decoded.len());
        let mut differs = !readable;
        for (column, value) in decoded.into_iter().enumerate() {
            let stored = table(column);
            if !stored.is_some_and(|stored| same_value(&value, stored)) {
                differs = true;
                if self.strict {
                    return Err(RecordFault::MetadataDiffers {
                        column: self.schema().fields()[column].name.clone(),
                        record: format!("{value:?}"),
                        table: stored.map_or_else(|| "unreadable".to_owned(), |stored| format!("{stored:?}")),
                    });
                }
            }
            own.push(match value {
                DecodedValue::Bool(value) => OwnValue::Bool(value),
                DecodedValue::Int(value) => OwnValue::Int(value),
                DecodedValue::Float(value) => OwnValue::Float(value),
                // The table alone knows which of the non-finite values it was.
                DecodedValue::NonFiniteFloat => match stored {
                    Some(MetadataValue::Float(value)) if !value.is_finite() => OwnValue::Float(value),
                    _ => OwnValue::Float(f64::NAN),
                },
                DecodedValue::String(value) => OwnValue::String(value.into_owned()),
            });
        }
        Ok(if differs { RecordMetadata::Own(own.into()) } else { RecordMetadata::Table })
    }

    /// Fill `out` with bytes of a sample's record, from `offset` in its shard.
    pub(crate) fn read_record(&self, sample: u64, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let shard = &self.shards[self.entry(sample).shard as usize];
        shard.read_exact_at(offset, out).map_err(|error| match error {
            ReadError::LengthMismatch { expected, found, .. } => {
                self.record_error(sample, RecordFault::CutShort { expected, found })
            }
            error => error,
        })
    }

    pub(crate) fn record_error(&self, sample: u64, source: RecordFault) -> ReadError {
        let entry = self.entry(sample);
        ReadError::Record {
            path: self.shards[entry.shard as usize].path().to_owned(),
            cache_id: self.id,
            sample_id: sample,
            offset: entry.offset,
            len: entry.len,
            source,
        }
    }
}

fn same_value(decoded: &DecodedValue<'_>, stored: MetadataValue<'_>) -> bool {
    match (decoded, stored) {
        (DecodedValue::Bool(a), MetadataValue::Bool(b)) => *a == b,
        (DecodedValue::Int(a), MetadataValue::Int(b)) => *a == b,
        (DecodedValue::Float(a), MetadataValue::Float(b)) => a.to_bits() == b.to_bits(),
        (DecodedValue::NonFiniteFloat, MetadataValue::Float(b)) => !b.is_finite(),
        (DecodedValue::String(a), MetadataValue::String(b)) => a == b,
        _ => false,
    }
}

/// Which folder has the path: replacing a cache gives the name to another one.
fn folder_identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|folder| (folder.dev(), folder.ino()))
}

fn read_manifest(cache: &Path, manifest: &Path) -> Result<Manifest, ReadError> {
    let bytes = match fs::read(manifest) {
        Ok(bytes) => bytes,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Err(match fs::metadata(cache) {
                Ok(found) if found.is_dir() => {
                    ReadError::NotACache { path: cache.to_owned(), reason: "it has no manifest.json" }
                }
                Ok(_) => {
                    ReadError::NotACache { path: cache.to_owned(), reason: "it is a file, and a cache is a folder" }
                }
                Err(_) => ReadError::CacheNotFound { path: cache.to_owned() },
            });
        }
        Err(source) => return Err(ReadError::Io { action: "read", path: manifest.to_owned(), source }),
    };
    Manifest::decode(&bytes).map_err(|source| ReadError::Format { path: manifest.to_owned(), source })
}

fn map_whole(path: &Path) -> Result<MappedFile, ReadError> {
    map_file(&open_file(path)?, path)
}

fn map_file(file: &File, path: &Path) -> Result<MappedFile, ReadError> {
    let len = file.metadata().map_err(ReadError::io("look at", path))?.len();
    let len = usize::try_from(len).map_err(|_| ReadError::io("map", path)(io::ErrorKind::FileTooLarge.into()))?;
    MappedFile::map(file, len).map_err(ReadError::io("map", path))
}

/// Do all rows of the index lie in their shards? Read through a buffer, since looking at all rows of the map would make all
/// of it part of the process. When one does not, the map tells which.
fn index_fits(
    file: &mut File,
    path: &Path,
    manifest: &Manifest,
    stop: &mut dyn FnMut() -> bool,
) -> Result<bool, ReadError> {
    const BUFFER_ROWS: usize = 8192;
    let mut buffer = vec![0; BUFFER_ROWS * INDEX_ENTRY_LEN];
    loop {
        go_on(stop)?;
        let mut len = 0;
        while len < buffer.len() {
            match file.read(&mut buffer[len..]) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ReadError::io("read", path)(error)),
            }
        }
        let fits = IndexView::new(&buffer[..len]).is_ok_and(|rows| validate_index(rows, &manifest.shards).is_ok());
        if !fits || len < buffer.len() {
            return Ok(fits);
        }
    }
}

fn open_checksums(layout: &CacheLayout, num_samples: u64) -> Result<MappedFile, ReadError> {
    let path = layout.record_checksums();
    let map = map_whole(&path)?;
    let found = map.as_ref().len() as u64;
    match num_samples.checked_mul(RECORD_CHECKSUM_LEN as u64) {
        Some(expected) if expected == found => Ok(map),
        expected => Err(ReadError::LengthMismatch { path, expected: expected.unwrap_or(u64::MAX), found }),
    }
}

fn go_on(stop: &mut dyn FnMut() -> bool) -> Result<(), ReadError> {
    if stop() { Err(ReadError::Interrupted) } else { Ok(()) }
}

fn verify(path: &Path, bytes: &[u8], expected: Sha256Digest, stop: &mut dyn FnMut() -> bool) -> Result<(), ReadError> {
    let mut hasher = Sha256Hasher::new();
    for bytes in bytes.chunks(HASHED_AT_ONCE) {
        go_on(stop)?;
        hasher.update(bytes);
    }
    check_digest(path, hasher.finish(), expected)
}

fn check_digest(path: &Path, found: Sha256Digest, expected: Sha256Digest) -> Result<(), ReadError> {
    if found == expected { Ok(()) } else { Err(ReadError::ChecksumMismatch { path: path.to_owned(), expected, found }) }
}

/// Hash a shard through a buffer, so that verifying a cache does not map all of it into memory. The file is the one that
/// records will be read from, whatever is at its path by now.
fn verify_shard(shard: &Shard, expected: Sha256Digest, stop: &mut dyn FnMut() -> bool) -> Result<(), ReadError> {
    let mut hasher = Sha256Hasher::new();
    let mut buffer = vec![0; HASHED_AT_ONCE];
    let mut offset = 0;
    while offset < shard.len() {
        go_on(stop)?;
        let len = (shard.len() - offset).min(buffer.len() as u64);
        let bytes = &mut buffer[..len as usize];
        shard.read_exact_at(offset, bytes)?;
        hasher.update(bytes);
        offset += len;
    }
    check_digest(shard.path(), hasher.finish(), expected)
}
