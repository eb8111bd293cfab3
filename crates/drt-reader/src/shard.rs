use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use drt_format::{CompressionAlgo, ShardEntry};
use rustix::fs::{Advice, fadvise};

use crate::mmap::MappedFile;
use crate::{IoMode, ReadError};

/// Maps that this process may hold for shards. Linux allows 65,530 in all by default.
const MAX_MAPS: usize = 32_768;

static MAPS: AtomicUsize = AtomicUsize::new(0);
static FILES: AtomicUsize = AtomicUsize::new(0);

/// Descriptors that this process may keep open for shards: a quarter of what the system allows it.
fn max_files() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        usize::try_from(limit.unwrap_or(u64::MAX)).unwrap_or(usize::MAX) / 4
    })
}

/// A share of a process-wide count, given back on drop.
#[derive(Debug)]
struct Share(&'static AtomicUsize);

impl Share {
    fn take(count: &'static AtomicUsize, max: usize) -> Option<Self> {
        count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| (taken < max).then_some(taken + 1)).ok()?;
        Some(Self(count))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What tells a file from another one at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    len: u64,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            len: metadata.len(),
        }
    }
}

/// One shard of an opened cache, tied to the file that was there when the cache was opened.
#[derive(Debug)]
pub(crate) struct Shard {
    path: PathBuf,
    identity: Identity,
    algo: CompressionAlgo,
    payload_bytes: u64,
    map: Option<(MappedFile, Share)>,
    file: Option<(File, Share)>,
}

impl Shard {
    pub(crate) fn open(dir: &Path, entry: &ShardEntry, io: IoMode) -> Result<Self, ReadError> {
        let path = dir.join(&entry.name);
        let file = open_file(&path)?;
        let metadata = file.metadata().map_err(ReadError::io("look at", &path))?;
        if metadata.len() != entry.byte_len {
            return Err(ReadError::LengthMismatch { path, expected: entry.byte_len, found: metadata.len() });
        }
        let map = match io {
            IoMode::Pread => None,
            // Without a share, or where mapping fails, reads take the other road.
            IoMode::Mmap => Share::take(&MAPS, MAX_MAPS).and_then(|share| {
                let map = MappedFile::map(&file, usize::try_from(entry.byte_len).ok()?).ok()?;
                Some((map, share))
            }),
        };
        let file = Share::take(&FILES, max_files()).map(|share| (file, share));
        Ok(Self {
            identity: Identity::of(&metadata),
            algo: entry.compression.algo,
            payload_bytes: entry.uncompressed_byte_len,
            path,
            map,
            file,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Length in bytes.
    pub(crate) fn len(&self) -> u64 {
        self.identity.len
    }

    /// Bytes of all its payloads together, before compression, as the manifest has it.
    pub(crate) fn payload_bytes(&self) -> u64 {
        self.payload_bytes
    }

    pub(crate) fn algo(&self) -> CompressionAlgo {
        self.algo
    }

    /// The whole shard, when it is mapped.
    #[inline]
    pub(crate) fn mapped(&self) -> Option<&[u8]> {
        self.map.as_ref().map(|(map, _)| map.as_ref())
    }

    /// May a large record be read past the map, into the caller's own memory?
    pub(crate) fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Start bringing a range into memory, without waiting.
    pub(crate) fn will_need(&self, offset: u64, len: u64) {
        if let Some((file, _)) = &self.file {
            // Advice that the kernel does not take costs speed, not correctness.
            let _advice = fadvise(file, offset, std::num::NonZeroU64::new(len), Advice::WillNeed);
        } else if let Some((map, _)) = &self.map {
            map.will_need(offset as usize, len as usize);
        }
    }

    /// Tell the kernel how the shard will be read.
    pub(crate) fn expect_random(&self) {
        if let Some((map, _)) = &self.map {
            map.expect_random();
        }
    }

    /// Fill `out` from `offset`.
    ///
    /// # Errors
    /// `LengthMismatch` when the file ends before that, `Replaced`, `MissingFile`, `Io`.
    pub(crate) fn read_exact_at(&self, offset: u64, out: &mut [u8]) -> Result<(), ReadError> {
        let failed = ReadError::io("read", &self.path);
        let read = |file: &File, out: &mut [u8]| match file.read_exact_at(out, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                let found = file.metadata().map_err(ReadError::io("look at", &self.path))?.len();
                Err(ReadError::LengthMismatch { path: self.path.clone(), expected: self.len(), found })
            }
            outcome => outcome.map_err(failed),
        };
        if let Some((file, _)) = &self.file {
            return read(file, out);
        }
        if let Some(bytes) = self.mapped() {
            // The index was checked against the shard's length when the cache was opened.
            out.copy_from_slice(&bytes[offset as usize..][..out.len()]);
            return Ok(());
        }
        let file = open_file(&self.path)?;
        if Identity::of(&file.metadata().map_err(ReadError::io("look at", &self.path))?) != self.identity {
            return Err(ReadError::Replaced { path: self.path.clone() });
        }
        read(&file, out)
    }
}

pub(crate) fn open_file(path: &Path) -> Result<File, ReadError> {
    File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => ReadError::MissingFile { path: path.to_owned() },
        _ => ReadError::Io { action: "open", path: path.to_owned(), source: error },
    })
}
