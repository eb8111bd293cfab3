//! Where the time of a write goes.

pub use drt_runtime::StageTotals;

/// Time spent in the stages of one or more writes: given to [`WriterConfig::with_profile`](crate::WriterConfig::with_profile).
pub type Profile = drt_runtime::Profile<Stage>;

/// A stage of a write. The names are those of the public package's profiles, where it has the stage.
///
/// Its calls are counted by samples where every sample goes through it, although whole blocks may be measured at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Payloads compressed, per sample, on the pool; bytes of payload. No time when they are stored as they are.
    Compression,
    /// Records given to the file system, per sample, on the pool; bytes of records.
    DiskWrite,
    /// The checksums of the records stored, on the caller's thread.
    FinishChecksums,
    /// The index stored, on the caller's thread.
    FinishIndex,
    /// The manifest stored, on the caller's thread.
    FinishManifest,
    /// The metadata table stored, on the caller's thread.
    FinishMetadata,
    /// The caller's thread waiting for the last blocks to be encoded and written.
    FinishWait,
    /// The caller's thread waiting until less is on its way, per block.
    IngressWait,
    /// Samples checked and put into a block, per sample, on the caller's thread.
    MetadataValidate,
    /// Folders synced and the cache given its name, on the caller's thread.
    Publish,
    /// Payload and metadata taken out of foreign objects, per sample, on the caller's thread; bytes of payload.
    PythonExtract,
    /// Samples got from the source, whatever it is written in, on the caller's thread: one call more than samples.
    PythonNext,
    /// Records encoded and their checksums made, per sample, on the pool; bytes of records.
    RecordEncode,
    /// Shards synced, per shard, on the pool.
    ShardFlush,
    /// Shards hashed, per sample, on the pool; bytes of records.
    ShardHash,
}

impl drt_runtime::Stage for Stage {
    const NAMES: &'static [&'static str] = &[
        "compression",
        "disk_write",
        "finish_checksums",
        "finish_index",
        "finish_manifest",
        "finish_metadata",
        "finish_wait",
        "ingress_wait",
        "metadata_validate",
        "publish",
        "python_extract",
        "python_next",
        "record_encode",
        "shard_flush",
        "shard_hash",
    ];

    #[inline]
    fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use drt_runtime::Stage as _;

    use super::*;

    #[test]
    fn names_are_sorted_and_each_stage_has_its_own() {
        assert!(Stage::NAMES.is_sorted());
        assert_eq!(Stage::ShardHash.index() + 1, Stage::NAMES.len());
        let named = [
            (Stage::FinishWait, "finish_wait"),
            (Stage::PythonNext, "python_next"),
            (Stage::ShardFlush, "shard_flush"),
        ];
        for (stage, name) in named {
            assert_eq!(stage.name(), name);
        }
    }
}
