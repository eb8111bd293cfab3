//! A table in a file, for other processes to map: its rows, its weights, and what draws by them. A private matter of one program
//! run (a training process and its loading processes), so there is one version and no promise to read it later.

use std::fs::{self, File};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use drt_format::{RecordHasher, Sha256Digest};
use drt_sampler::{TABLE_ENTRY_BYTES, Weights};

use crate::ReadError;
use crate::catalog::{Catalog, MAX_ROWS};
use crate::mmap::MappedFile;
use crate::shard::open_file;
use crate::table::{ActiveTable, PhysicalRows, RowWeights, WeightValues};

const MAGIC: &[u8; 8] = b"DRTTABL1";
const HAS_ROWS: u32 = 1;
const HAS_WEIGHTS: u32 = 2;
const ROW_BYTES: u64 = 4;
const WEIGHT_BYTES: u64 = 8;

/// Magic, flags and four unused bytes, number of rows, first row, the catalog's digest, checksum of what follows, checksum of
/// this header: little-endian, no padding.
const HEADER_LEN: usize = 8 + 4 + 4 + 8 + 8 + 32 + 8 + 8;

/// Part of a mapped file.
#[derive(Clone)]
pub(crate) struct Section {
    file: Arc<MappedFile>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Section {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &(*self.file).as_ref()[self.range.clone()]
    }
}

struct Header {
    flags: u32,
    num_rows: u64,
    first_row: u64,
    catalog: Sha256Digest,
    body_checksum: u64,
}

impl Header {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_LEN);
        bytes.extend(MAGIC);
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.num_rows.to_le_bytes());
        bytes.extend(self.first_row.to_le_bytes());
        bytes.extend(self.catalog.as_bytes());
        bytes.extend(self.body_checksum.to_le_bytes());
        bytes.extend(checksum(&bytes).to_le_bytes());
        bytes
    }

    /// `None` when these bytes are no header.
    fn decode(bytes: &[u8; HEADER_LEN]) -> Option<Self> {
        let (content, own) = bytes.split_at(HEADER_LEN - 8);
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        if !content.starts_with(MAGIC) || checksum(content).to_le_bytes() != *own {
            return None;
        }
        Some(Self {
            flags: number(8) as u32,
            num_rows: number(16),
            first_row: number(24),
            catalog: Sha256Digest::new(bytes[32..64].try_into().expect("32 bytes")),
            body_checksum: number(64),
        })
    }

    fn section_lens(&self) -> [u64; 3] {
        let rows = if self.flags & HAS_ROWS != 0 { ROW_BYTES * self.num_rows } else { 0 };
        let weighted = if self.flags & HAS_WEIGHTS != 0 { self.num_rows } else { 0 };
        [rows, WEIGHT_BYTES * weighted, TABLE_ENTRY_BYTES as u64 * weighted]
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    drt_format::record_checksum(bytes)
}

/// Writes, and keeps a checksum of what was written.
struct Checked<W> {
    out: W,
    hasher: RecordHasher,
}

impl<W: Write> Write for Checked<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl ActiveTable {
    /// Write the table to a new file.
    ///
    /// # Errors
    /// `Io`, also when there is a file already; a file that could not be completed is removed.
    pub(crate) fn save(&self, catalog: &Catalog, path: &Path) -> Result<(), ReadError> {
        let file = File::create_new(path).map_err(ReadError::io("create", path))?;
        self.write_to(catalog, &file, path).inspect_err(|_| {
            // It was made here. What is reported is why it could not be completed.
            let _left = fs::remove_file(path);
        })
    }

    fn write_to(&self, catalog: &Catalog, mut file: &File, path: &Path) -> Result<(), ReadError> {
        use std::os::unix::fs::FileExt;

        let weights = self.weights.table(self.num_rows())?;
        let (flags, first_row) = match &self.rows {
            PhysicalRows::From(first) => (0, *first),
            PhysicalRows::Owned(_) | PhysicalRows::Mapped(_) => (HAS_ROWS, 0),
        };
        let flags = flags | if weights.is_some() { HAS_WEIGHTS } else { 0 };
        let mut header =
            Header { flags, num_rows: self.num_rows(), first_row, catalog: catalog.digest(), body_checksum: 0 };
        let mut write = || {
            file.write_all_at(&[0; HEADER_LEN], 0)?;
            file.seek(SeekFrom::Start(HEADER_LEN as u64))?;
            let mut out = Checked { out: BufWriter::with_capacity(1 << 18, file), hasher: RecordHasher::new() };
            if flags & HAS_ROWS != 0 {
                for row in 0..self.num_rows() {
                    out.write_all(&(self.physical(row) as u32).to_le_bytes())?;
                }
            }
            if let (RowWeights::Given { values, .. }, Some(table)) = (&self.weights, weights) {
                for row in 0..self.num_rows() as usize {
                    out.write_all(&values.get(row).to_le_bytes())?;
                }
                out.write_all(table.table().unwrap_or_default())?;
            }
            out.flush()?;
            header.body_checksum = out.hasher.finish_reset();
            file.write_all_at(&header.encode(), 0)
        };
        write().map_err(ReadError::io("write", path))
    }

    /// Map a table that [`save`](Self::save) wrote for these caches. Next to nothing is kept in private memory.
    ///
    /// # Errors
    /// `Io`, `MissingFile`, and `InvalidTable` when the file is damaged or was written for other caches.
    pub(crate) fn open(catalog: &Catalog, path: &Path) -> Result<Self, ReadError> {
        let invalid = |reason: &str| ReadError::InvalidTable { reason: format!("{}: {reason}", path.display()) };
        let file = open_file(path)?;
        let len = file.metadata().map_err(ReadError::io("look at", path))?.len();
        let map = usize::try_from(len).map_err(|_| invalid("it does not fit into the address space"))?;
        let map = Arc::new(MappedFile::map(&file, map).map_err(ReadError::io("map", path))?);
        let bytes = (*map).as_ref();
        let header = bytes.first_chunk().and_then(Header::decode).ok_or_else(|| invalid("it is not a table file"))?;
        if !(1..=MAX_ROWS).contains(&header.num_rows) {
            return Err(invalid("it has no rows, or more than any table"));
        }
        let lens = header.section_lens();
        if len != HEADER_LEN as u64 + lens.iter().sum::<u64>() {
            return Err(invalid("its length is not what it says itself"));
        }
        if header.catalog != catalog.digest() {
            return Err(invalid("it was written for other caches"));
        }
        if checksum(&bytes[HEADER_LEN..]) != header.body_checksum {
            return Err(invalid("its checksum does not match"));
        }
        let mut end = HEADER_LEN;
        let [rows, values, entries] = lens.map(|len| {
            let start = end;
            end += len as usize;
            Section { file: Arc::clone(&map), range: start..end }
        });
        let rows = if header.flags & HAS_ROWS == 0 {
            PhysicalRows::From(header.first_row)
        } else {
            PhysicalRows::Mapped(rows)
        };
        let known = catalog.num_rows();
        let is_known = match &rows {
            PhysicalRows::From(first) => first.checked_add(header.num_rows).is_some_and(|end| end <= known),
            rows => (0..header.num_rows).all(|row| rows.get(row) < known),
        };
        if !is_known {
            return Err(invalid("it has rows that the caches do not have"));
        }
        let weights = if header.flags & HAS_WEIGHTS == 0 {
            RowWeights::Equal
        } else {
            let table = Weights::from_table(entries).map_err(|error| invalid(&error.to_string()))?;
            RowWeights::Given { values: WeightValues::Mapped(values), table: OnceLock::from(Arc::new(table)) }
        };
        Ok(Self::from_parts(header.num_rows, rows, weights))
    }
}
