use drt_format::ShardCompression;
use drt_format::constants::DEFAULT_MAX_SHARD_BYTES;

use crate::WriteError;
use crate::profile::Profile;

/// How a cache is written. The bytes of the cache depend on `max_shard_bytes` and `compression` alone.
#[derive(Debug, Clone, PartialEq)]
pub struct WriterConfig {
    max_shard_bytes: u64,
    compression: ShardCompression,
    prefetch_size: usize,
    profile: Profile,
}

impl Default for WriterConfig {
    fn default() -> Self {
        Self {
            max_shard_bytes: DEFAULT_MAX_SHARD_BYTES,
            compression: ShardCompression::default(),
            prefetch_size: 64,
            profile: Profile::default(),
        }
    }
}

impl WriterConfig {
    /// Check and keep a configuration.
    ///
    /// `max_shard_bytes` is the length after which a new shard is begun; a record longer than that has a shard of its own.
    /// `prefetch_size` bounds the blocks of samples that are encoded or written at one time.
    ///
    /// # Errors
    /// `InvalidConfig` when a number is zero.
    pub fn new(max_shard_bytes: u64, compression: ShardCompression, prefetch_size: usize) -> Result<Self, WriteError> {
        if max_shard_bytes == 0 {
            return Err(WriteError::InvalidConfig { reason: "max_shard_bytes must be at least 1".into() });
        }
        if prefetch_size == 0 {
            return Err(WriteError::InvalidConfig { reason: "prefetch_size must be at least 1".into() });
        }
        Ok(Self { max_shard_bytes, compression, prefetch_size, profile: Profile::default() })
    }

    /// Bytes after which a new shard is begun.
    pub fn max_shard_bytes(&self) -> u64 {
        self.max_shard_bytes
    }

    /// What is done to each payload.
    pub fn compression(&self) -> &ShardCompression {
        &self.compression
    }

    /// Blocks that may be on their way at one time.
    pub fn prefetch_size(&self) -> usize {
        self.prefetch_size
    }

    /// Measure what is written with this configuration.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Where time is counted: nowhere, unless [`with_profile`](Self::with_profile) was given a profile that is on.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }
}
