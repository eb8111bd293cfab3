//! Names, sizes and limits that are fixed for as long as caches exist.
//!
//! Nothing here may change: files on disk were written with these values. The test at the
//! end pins each one.
//!
//! Source: docs/spec/v3.md, "Folder layout", "Index" and "Record".

/// File that describes one cache.
pub const MANIFEST_FILE: &str = "manifest.json";

/// Arrow file with the metadata of every row.
pub const METADATA_FILE: &str = "metadata.arrow";

/// File that says where each record lies.
pub const INDEX_FILE: &str = "index.bin";

/// Folder of the shards, inside the folder of the cache.
pub const SHARDS_DIR: &str = "shards";

/// What the name of a shard written by us ends in.
pub const SHARD_FILE_SUFFIX: &str = ".bin";

/// Folder for unfinished caches, beside the finished ones. No cache may have its name.
pub const TMP_DIR: &str = "tmp";

/// Our own file with one checksum per record; readers that do not know it ignore it.
pub const RECORD_CHECKSUMS_FILE: &str = "drt_record_checksums.bin";

/// Bytes of one row of `index.bin`.
pub const INDEX_ENTRY_LEN: usize = 24;

/// Bytes before the JSON text of a record: its length, u64 little-endian.
pub const RECORD_PREFIX_LEN: usize = 8;

/// Bytes before an LZ4 block: the payload's length, u32 little-endian.
pub const LZ4_PREFIX_LEN: usize = 4;

/// No LZ4 block decodes to more than this many bytes for each byte it has.
pub const LZ4_MAX_EXPANSION: u64 = 255;

/// The first bytes of a Zstandard frame.
pub const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Longest content of one block of a Zstandard frame, in bytes; no block is shorter than 4 bytes.
pub const ZSTD_MAX_BLOCK_LEN: u64 = 128 * 1024;

/// Zstandard levels that a writer accepts, and the one it uses unless told.
pub const ZSTD_LEVELS: std::ops::RangeInclusive<i32> = 1..=22;
/// See [`ZSTD_LEVELS`].
pub const ZSTD_DEFAULT_LEVEL: i32 = 3;

/// Bytes of one row of [`RECORD_CHECKSUMS_FILE`]: XXH3-64, u64 little-endian.
pub const RECORD_CHECKSUM_LEN: usize = 8;

/// Length after which the writer begins a new shard, unless told otherwise, in bytes.
pub const DEFAULT_MAX_SHARD_BYTES: u64 = 64 * 1024 * 1024;

/// Longest source name in bytes: the longest file name that common file systems allow.
pub const MAX_SOURCE_NAME_BYTES: usize = 255;

/// Column names that the sampling table uses for itself; no cache may be written with them.
pub const RESERVED_COLUMNS: [&str; 3] = ["cache_id", "sample_id", "weight"];

/// Manifest key that names the program which wrote a cache.
pub const WRITER_KEY: &str = "drt_writer";

/// Manifest key that announces [`RECORD_CHECKSUMS_FILE`].
pub const RECORD_CHECKSUMS_KEY: &str = "drt_record_checksums";

/// Manifest key that says which state of its source a cache was written from.
pub const FINGERPRINT_KEY: &str = "drt_fingerprint";

/// Longest fingerprint of a source in bytes.
pub const MAX_FINGERPRINT_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_never_change() {
        assert_eq!(MANIFEST_FILE, "manifest.json");
        assert_eq!(METADATA_FILE, "metadata.arrow");
        assert_eq!(INDEX_FILE, "index.bin");
        assert_eq!(SHARDS_DIR, "shards");
        assert_eq!(SHARD_FILE_SUFFIX, ".bin");
        assert_eq!(TMP_DIR, "tmp");
        assert_eq!(RECORD_CHECKSUMS_FILE, "drt_record_checksums.bin");
        assert_eq!(INDEX_ENTRY_LEN, 24);
        assert_eq!(RECORD_PREFIX_LEN, 8);
        assert_eq!(LZ4_PREFIX_LEN, 4);
        assert_eq!(LZ4_MAX_EXPANSION, 255);
        assert_eq!(RECORD_CHECKSUM_LEN, 8);
        assert_eq!(DEFAULT_MAX_SHARD_BYTES, 67_108_864);
        assert_eq!(MAX_SOURCE_NAME_BYTES, 255);
        assert_eq!(RESERVED_COLUMNS, ["cache_id", "sample_id", "weight"]);
        assert_eq!(WRITER_KEY, "drt_writer");
        assert_eq!(RECORD_CHECKSUMS_KEY, "drt_record_checksums");
        assert_eq!(FINGERPRINT_KEY, "drt_fingerprint");
        assert_eq!(MAX_FINGERPRINT_BYTES, 65_536);
    }
}
