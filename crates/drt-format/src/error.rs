//! [`FormatError`]: every way in which bytes can fail to be a cache.

use crate::compression::CompressionAlgo;
use crate::schema::MetadataKind;

/// Why bytes are not what the format promises, or why values cannot be written in it.
///
/// Each variant is one fact and prints only that. The crate knows no paths; whoever read the
/// bytes adds the file. Text taken from the input is quoted and cut short in messages, the
/// fields have it whole.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FormatError {
    // --- manifest ---------------------------------------------------------------------
    /// The manifest is not UTF-8.
    #[error("the manifest is not UTF-8 from byte {offset} on")]
    ManifestUtf8 {
        /// Position of the first byte that is not part of a character.
        offset: usize,
    },
    /// The manifest is not one JSON object.
    #[error("the manifest is not one JSON object: {problem} at line {line}, column {column}")]
    ManifestJson {
        /// Line, from 1.
        line: usize,
        /// Byte within the line, from 1; 0 when the line ended too early.
        column: usize,
        /// What the JSON parser missed.
        problem: String,
    },
    /// The manifest lacks a required key.
    #[error("the manifest has no key `{key}`")]
    ManifestKeyMissing {
        /// The key with its place, such as `shards[3].byte_len`.
        key: String,
    },
    /// The manifest has the same key twice at its top level.
    #[error("the manifest has the key {} twice", quote(key))]
    ManifestKeyRepeated {
        /// The key.
        key: String,
    },
    /// The manifest has a value that its key does not allow.
    #[error("the manifest key `{key}` is wrong: {problem}")]
    ManifestKeyInvalid {
        /// The key with its place, such as `shards[3].byte_len`.
        key: String,
        /// What was expected and found.
        problem: String,
    },
    /// The cache has a version that this crate does not know.
    #[error("format version {found} is not supported; versions 2 and 3 are")]
    UnsupportedVersion {
        /// `format_version` of the manifest.
        found: u64,
    },
    /// A shard's name could lead out of the folder of the shards.
    #[error("shard {shard} is called {}, which is not one plain file name", quote(name))]
    ShardName {
        /// Position in the manifest's list, from 0.
        shard: usize,
        /// The name.
        name: String,
    },
    /// Text that should be a SHA-256 is not 64 hexadecimal digits.
    #[error("a SHA-256 is 64 hexadecimal digits, found {}", quote(found))]
    DigestText {
        /// The text.
        found: String,
    },

    // --- schema and names -------------------------------------------------------------
    /// Two columns have one name.
    #[error("the column {} occurs twice", quote(name))]
    ColumnRepeated {
        /// The name.
        name: String,
    },
    /// A column to be written has no name.
    #[error("column {column} has an empty name")]
    ColumnNameEmpty {
        /// Position of the column, from 0.
        column: usize,
    },
    /// A column to be written has the NUL character in its name.
    #[error("the column name {} contains the NUL character", quote(name))]
    ColumnNameNul {
        /// The name.
        name: String,
    },
    /// A column to be written has a name that the sampling table uses for itself.
    #[error("the column name {} is reserved; `cache_id`, `sample_id` and `weight` are", quote(name))]
    ColumnNameReserved {
        /// The name.
        name: String,
    },
    /// Columns to be written are not in ascending order of their names.
    #[error("the column {} must come before {}", quote(name), quote(previous))]
    ColumnsUnsorted {
        /// The name that comes too late.
        name: String,
        /// The name before it.
        previous: String,
    },
    /// A source name cannot be the name of a cache.
    #[error("the source name {} {reason}", quote(name))]
    SourceName {
        /// The name.
        name: String,
        /// What is wrong with it, as the end of a sentence.
        reason: &'static str,
    },

    // --- index ------------------------------------------------------------------------
    /// The index does not consist of whole rows.
    #[error("the index has {len} bytes, which is no multiple of 24")]
    IndexLen {
        /// Length of the index in bytes.
        len: usize,
    },
    /// Index and manifest disagree about the number of rows.
    #[error("the index has {found} rows, the manifest promises {expected}")]
    RowCount {
        /// `sample_count` of the manifest.
        expected: u64,
        /// Rows of the index.
        found: u64,
    },
    /// An index row names a shard that the manifest does not list.
    #[error("row {row} lies in shard {shard}, but there are only {num_shards} shards")]
    ShardOutOfRange {
        /// The row, from 0.
        row: usize,
        /// The shard number it names.
        shard: u64,
        /// Shards in the manifest.
        num_shards: usize,
    },
    /// An index row reaches past the end of its shard.
    #[error("row {row} takes {len} bytes at offset {offset} of shard {shard}, which has only {shard_len} bytes")]
    RecordOutOfShard {
        /// The row, from 0.
        row: usize,
        /// The shard number.
        shard: u64,
        /// Where the record is said to begin.
        offset: u64,
        /// How long it is said to be, in bytes.
        len: u64,
        /// `byte_len` of the shard.
        shard_len: u64,
    },
    /// The file of record checksums does not consist of whole rows.
    #[error("the record checksums have {len} bytes, which is no multiple of 8")]
    RecordChecksumsLen {
        /// Length of the file in bytes.
        len: usize,
    },

    // --- record and row ---------------------------------------------------------------
    /// A record is too short for the length of its JSON text.
    #[error("the record has {len} bytes, too few for its 8-byte prefix")]
    RecordTooShort {
        /// Length of the record in bytes.
        len: usize,
    },
    /// A record's JSON text would reach past the end of the record.
    #[error("the record promises {json_len} bytes of JSON, but only {available} follow")]
    RecordJsonLen {
        /// The length in the prefix.
        json_len: u64,
        /// Bytes after the prefix.
        available: usize,
    },
    /// A record's JSON text is not UTF-8.
    #[error("the row's JSON is not UTF-8 from byte {offset} on")]
    RowUtf8 {
        /// Position in the JSON text.
        offset: usize,
    },
    /// A record's JSON text is not one JSON object of plain values.
    #[error("the row's JSON is malformed at byte {offset}: expected {expected}")]
    RowJson {
        /// Position in the JSON text.
        offset: usize,
        /// What should be there.
        expected: &'static str,
    },
    /// A record lacks a column.
    #[error("the row has no column {}", quote(column))]
    RowColumnMissing {
        /// Name of the column.
        column: String,
    },
    /// A record has a column that the manifest does not list.
    #[error("the row has the column {}, which the manifest does not list", quote(column))]
    RowColumnUnknown {
        /// Name of the column.
        column: String,
    },
    /// A record has a value of another kind than its column.
    #[error("the row's column {} must be {expected}, found {found}", quote(column))]
    RowKind {
        /// Name of the column.
        column: String,
        /// Kind of the column.
        expected: MetadataKind,
        /// What the JSON text has.
        found: &'static str,
    },
    /// A record has a float that is too large for an f64.
    #[error("the row's column {} has a number beyond the range of f64", quote(column))]
    RowFloatRange {
        /// Name of the column.
        column: String,
    },

    // --- payload ----------------------------------------------------------------------
    /// A compressed payload is too short for its length.
    #[error("the stored payload has {len} bytes, too few for its 4-byte length")]
    StoredPayloadTooShort {
        /// Length of the stored payload in bytes.
        len: usize,
    },
    /// A compressed payload claims a length that its block cannot decode to.
    #[error("the stored payload claims to be {declared} bytes, but {block_len} compressed bytes can never become that")]
    PayloadLenImpossible {
        /// The claimed length.
        declared: u64,
        /// Length of the compressed bytes.
        block_len: usize,
    },
    /// A payload decodes to another length than the one stored with it, or than the caller's
    /// buffer.
    #[error("the payload should be {expected} bytes, found {found}")]
    PayloadLen {
        /// Length of the buffer to fill.
        expected: usize,
        /// Length that the stored payload has or decodes to.
        found: usize,
    },
    /// A compressed payload is not an LZ4 block of the stored length.
    #[error("the LZ4 block is damaged: {problem}")]
    Lz4Block {
        /// What the decoder found.
        problem: String,
    },
    /// A compressed payload is not one Zstandard frame of the stored length.
    #[error("the Zstandard frame is damaged: {problem}")]
    ZstdFrame {
        /// What the decoder found.
        problem: String,
    },
    /// A compression level does not fit its algorithm.
    #[error("compression {algo} with level {level} is not allowed: only zstd has levels, from 1 to 22")]
    Level {
        /// The algorithm.
        algo: CompressionAlgo,
        /// The level.
        level: i32,
    },
    /// A payload is too long for the algorithm.
    #[error("a payload of {len} bytes cannot be stored with {algo}, whose limit is {limit}")]
    PayloadTooLong {
        /// Length of the payload in bytes.
        len: usize,
        /// The algorithm.
        algo: CompressionAlgo,
        /// The longest payload it can store, in bytes.
        limit: u64,
    },
    /// A compression ratio does not fit its algorithm.
    #[error("compression {algo} with ratio {ratio} is not allowed: {reason}")]
    Ratio {
        /// The algorithm.
        algo: CompressionAlgo,
        /// The ratio.
        ratio: f64,
        /// What is allowed.
        reason: &'static str,
    },
}

/// Longest text from the input that a message repeats, in characters.
const MAX_QUOTED_CHARS: usize = 80;

/// `text` in quotation marks, control characters escaped, cut after [`MAX_QUOTED_CHARS`].
pub(crate) fn quote(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{:?}…", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_quote_and_shorten_text_from_the_input() {
        let error = FormatError::RowColumnMissing { column: "a\nb".into() };
        assert_eq!(error.to_string(), r#"the row has no column "a\nb""#);

        let long = "é".repeat(1000);
        let message = FormatError::RowColumnMissing { column: long }.to_string();
        assert!(message.chars().count() < 120, "{message}");
        assert!(message.ends_with('…'));
    }

    #[test]
    fn a_row_past_its_shard_names_every_number() {
        let error = FormatError::RecordOutOfShard { row: 7, shard: 2, offset: 100, len: 50, shard_len: 120 };
        assert_eq!(error.to_string(), "row 7 takes 50 bytes at offset 100 of shard 2, which has only 120 bytes");
    }
}
