use crate::ReadError;

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

/// Which row of a table comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Drawn by weight, with replacement.
    #[default]
    Weighted,
    /// In table order, from the first row again after the last. Weights do not matter.
    Sequential,
    /// Each row once per epoch, in another order each time. Weights do not matter.
    Permutation,
}

impl Order {
    /// The order's name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Sequential => "sequential",
            Self::Permutation => "permutation",
        }
    }

    /// The order of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::Weighted, Self::Sequential, Self::Permutation].into_iter().find(|order| order.name() == name)
    }
}

/// How caches are opened and drawn from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderConfig {
    /// Seed of the draw stream.
    pub seed: u64,
    /// Samples that are prepared ahead of the consumer, at least 1.
    pub prefetch_size: usize,
    /// Which row of the active table comes next.
    pub order: Order,
    /// Verify the checksums of all files when opening, and compare each record with the metadata table when it is read.
    pub validate_cache: bool,
    /// How payloads come into memory.
    pub io: IoMode,
}

impl ReaderConfig {
    /// Is every setting within its range?
    pub(crate) fn check(&self) -> Result<(), ReadError> {
        if self.prefetch_size == 0 {
            return Err(ReadError::InvalidConfig { reason: "prefetch_size must be at least 1".into() });
        }
        Ok(())
    }

    /// The defaults: 64 samples ahead, drawn by weight, not validated, mapped.
    pub fn new(seed: u64) -> Self {
        Self { seed, prefetch_size: 64, order: Order::Weighted, validate_cache: false, io: IoMode::Mmap }
    }
}
