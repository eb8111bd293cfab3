//! The one error of this crate.

use drt_format::MetadataKind;

/// What can be wrong with a metadata table, in memory or in a file.
#[derive(Debug, thiserror::Error)]
pub enum MetadataError {
    /// The file's structure contradicts itself or the Arrow IPC file format.
    #[error("not a readable Arrow file: {reason}")]
    Malformed {
        /// What was expected and found.
        reason: String,
    },
    /// The file's columns are not those that the manifest lists.
    #[error("the table's columns do not match the manifest: {reason}")]
    SchemaMismatch {
        /// The first difference.
        reason: String,
    },
    /// The file has another number of rows than the manifest says.
    #[error("the table has {found} rows where the manifest says {expected}")]
    RowCountMismatch {
        /// Rows in the manifest.
        expected: u64,
        /// Rows in the file.
        found: u64,
    },
    /// A layout that the format does not use, such as compressed buffers.
    #[error("the table uses {what}, which the cache format does not have")]
    Unsupported {
        /// The layout's name.
        what: String,
    },
    /// A null, which the format does not have.
    #[error("column {column:?} has null values, which the cache format does not have")]
    Nulls {
        /// The first such column.
        column: String,
    },
    /// A string that is not UTF-8 or lies outside the column's text.
    #[error("column {column:?}, row {row}: the text is not valid UTF-8 or lies outside the column's data")]
    InvalidText {
        /// The column's name.
        column: String,
        /// The row within the file.
        row: u64,
    },
    /// A value of another kind than its column.
    #[error("column {column:?} holds {expected} values; got {found}")]
    KindMismatch {
        /// The column's name.
        column: String,
        /// The kind of the column.
        expected: MetadataKind,
        /// The kind of the value.
        found: MetadataKind,
    },
    /// A row with too few or too many values.
    #[error("a row needs {expected} values; got {found}")]
    WidthMismatch {
        /// Columns of the table.
        expected: usize,
        /// Values in the row.
        found: usize,
    },
    /// One string too long for 32-bit offsets.
    #[error("column {column:?}: one text of {len} bytes is longer than the format's limit of 2147483647")]
    TextTooLong {
        /// The column's name.
        column: String,
        /// The text's length in bytes.
        len: usize,
    },
    /// The destination refused the bytes.
    #[error("could not write the table")]
    Write(#[source] std::io::Error),
}

impl MetadataError {
    pub(crate) fn malformed(reason: impl Into<String>) -> Self {
        Self::Malformed { reason: reason.into() }
    }
}
