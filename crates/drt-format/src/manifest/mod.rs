//! `manifest.json`: what a cache says about itself.
//!
//! [`Manifest`] is the one model that other crates see. The modules below have the wire form:
//! `wire` what both versions share, `v2` and `v3` where they differ.
//!
//! Source: docs/spec/v3.md, "Manifest".

mod extensions;
mod upgrade;
mod v2;
mod v3;
mod wire;

use serde_json::{Map, Value};

pub use self::extensions::{RecordChecksums, WriterInfo};
use crate::checksum::Sha256Digest;
use crate::compression::ShardCompression;
use crate::error::FormatError;
use crate::ids::CacheId;
use crate::schema::MetadataSchema;
use crate::version::FormatVersion;

/// The description of one cache.
///
/// A manifest that was decoded keeps these promises: no two columns have the same name, every
/// shard's name is one plain file name, and `cache_id` is there exactly in version 3. That the
/// other files agree with it is for [`validate_row_count`](crate::validate_row_count),
/// [`validate_index`](crate::validate_index) and whoever has the files.
#[derive(Debug, Clone, PartialEq)]
pub struct Manifest {
    /// Version of the format.
    pub version: FormatVersion,
    /// Identity of the cache; `None` in version 2.
    pub cache_id: Option<CacheId>,
    /// Name of the source that was written.
    pub source_name: String,
    /// Number of rows.
    pub sample_count: u64,
    /// Columns of the metadata.
    pub schema: MetadataSchema,
    /// Digest of `metadata.arrow`.
    pub metadata_sha256: Sha256Digest,
    /// Digest of `index.bin`.
    pub index_sha256: Sha256Digest,
    /// The shards by their number.
    pub shards: Vec<ShardEntry>,
    /// Top-level keys that the format does not define, in their order; ours begin with `drt_`.
    pub extra: Map<String, Value>,
}

/// What the manifest says about one shard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardEntry {
    /// File name below `shards/`.
    pub name: String,
    /// Sum of the lengths of its payloads, before compression and without metadata, in bytes.
    pub uncompressed_byte_len: u64,
    /// Exact size of the file in bytes.
    pub byte_len: u64,
    /// How its payloads are stored.
    pub compression: ShardCompression,
    /// Digest of the file.
    pub sha256: Sha256Digest,
}

impl Manifest {
    /// Reads the contents of `manifest.json`.
    ///
    /// Keys may come in any order, and keys that the format does not define are allowed
    /// everywhere; those at the top level are kept in [`extra`](Self::extra). A digest may be
    /// in upper or lower case.
    ///
    /// # Errors
    /// [`FormatError::ManifestUtf8`] and [`FormatError::ManifestJson`] when the bytes are not
    /// one JSON object; [`FormatError::UnsupportedVersion`] for every version but 2 and 3,
    /// whatever else is in the manifest; [`FormatError::ManifestKeyMissing`],
    /// [`FormatError::ManifestKeyRepeated`], [`FormatError::ManifestKeyInvalid`],
    /// [`FormatError::ColumnRepeated`] and [`FormatError::ShardName`].
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let text =
            std::str::from_utf8(bytes).map_err(|error| FormatError::ManifestUtf8 { offset: error.valid_up_to() })?;
        let document = wire::decode(text)?;
        match document.version {
            FormatVersion::V2 => v2::decode(document),
            FormatVersion::V3 => v3::decode(document),
        }
    }

    /// The contents of `manifest.json`, in the layout of the manifest's version.
    ///
    /// The same manifest always gives the same bytes: two spaces of indentation, the keys in
    /// the order of the format, then [`extra`](Self::extra), no newline at the end. An extra
    /// key that the format defines is left out. A version 3 manifest without an id gets the
    /// one of its source name.
    pub fn encode(&self) -> Vec<u8> {
        match self.version {
            FormatVersion::V2 => v2::encode(self),
            FormatVersion::V3 => v3::encode(self),
        }
    }
}

#[cfg(test)]
mod tests;
