/// How payloads come into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IoMode {
    /// Shards are mapped, and small records copied from the map: the fastest, on file systems whose files stay as they are.
    /// A shard that is truncated while mapped ends the process with SIGBUS.
    #[default]
    Mmap,
    /// Every record is read by a positioned read: for network file systems, and wherever files may vanish or shrink. A read
    /// that comes back short is an error.
    Pread,
}

/// How caches are opened and drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderConfig {
    /// Seed of the draw stream.
    pub seed: u64,
    /// Samples that are prepared ahead of the consumer, at least 1.
    pub prefetch_size: usize,
    /// Draw by weight with replacement; otherwise rows come in table order, cyclically.
    pub shuffle: bool,
    /// Verify the checksums of all files when opening, and compare each record with the metadata table when it is read.
    pub validate_cache: bool,
    /// How payloads come into memory.
    pub io: IoMode,
}

impl ReaderConfig {
    /// The defaults: 64 samples ahead, shuffled, not validated, mapped.
    pub fn new(seed: u64) -> Self {
        Self { seed, prefetch_size: 64, shuffle: true, validate_cache: false, io: IoMode::Mmap }
    }
}
