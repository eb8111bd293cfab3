#![doc = include_str!("../README.md")]

pub mod constants;

mod checksum;
mod compression;
mod error;
mod ids;
mod index;
mod layout;
mod manifest;
mod record;
mod row;
mod schema;
#[cfg(feature = "testing")]
pub mod testing;
mod validate;
mod version;

pub use self::checksum::{
    RecordChecksumAlgo, RecordChecksumsView, RecordHasher, Sha256Digest, Sha256Hasher, record_checksum,
};
pub use self::compression::{
    CompressionAlgo, PayloadEncoder, Ratio, ShardCompression, decode_payload, encode_payload, payload_len,
};
pub use self::error::FormatError;
pub use self::ids::{CacheId, SampleId};
pub use self::index::{IndexEntry, IndexView};
pub use self::layout::{CacheLayout, shard_file_name, validate_source_name};
pub use self::manifest::{Manifest, RecordChecksums, ShardEntry, WriterInfo};
pub use self::record::split_record;
pub use self::row::{RowEncoder, decode_row};
pub use self::schema::{DecodedValue, MetadataField, MetadataKind, MetadataSchema, MetadataValue};
pub use self::validate::{validate_index, validate_row_count};
pub use self::version::FormatVersion;
