//! `index.bin`: where each record lies. Rows of fixed width, read in place.
//!
//! Source: docs/spec/v3.md, "Index".

use crate::constants::INDEX_ENTRY_LEN;
use crate::error::FormatError;

/// Place of one record: one row of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IndexEntry {
    /// Position of the shard in the manifest's list, from 0.
    pub shard: u64,
    /// Where the record begins in that shard, in bytes.
    pub offset: u64,
    /// Length of the whole record in bytes.
    pub len: u64,
}

impl IndexEntry {
    /// The row as stored: three u64, little-endian.
    #[inline]
    pub fn encode(&self) -> [u8; INDEX_ENTRY_LEN] {
        let mut row = [0; INDEX_ENTRY_LEN];
        row[..8].copy_from_slice(&self.shard.to_le_bytes());
        row[8..16].copy_from_slice(&self.offset.to_le_bytes());
        row[16..].copy_from_slice(&self.len.to_le_bytes());
        row
    }

    /// The entry that is stored as `row`; every row is one.
    #[inline]
    pub fn decode(row: &[u8; INDEX_ENTRY_LEN]) -> Self {
        let integer = |start: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&row[start..start + 8]);
            u64::from_le_bytes(bytes)
        };
        Self { shard: integer(0), offset: integer(8), len: integer(16) }
    }
}

/// The bytes of an index, read in place at any alignment.
///
/// ```
/// use drt_format::{IndexEntry, IndexView};
///
/// let entry = IndexEntry { shard: 1, offset: 115, len: 42 };
/// let bytes = [[0; 24], entry.encode()].concat();
/// let index = IndexView::new(&bytes)?;
/// assert_eq!(index.len(), 2);
/// assert_eq!(index.get(1), entry);
/// # Ok::<(), drt_format::FormatError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct IndexView<'a> {
    rows: &'a [[u8; INDEX_ENTRY_LEN]],
}

impl<'a> IndexView<'a> {
    /// Looks at the bytes of an index. What the rows say is not judged here, see
    /// [`validate_index`](crate::validate_index).
    ///
    /// # Errors
    /// [`FormatError::IndexLen`] when the length is no multiple of 24.
    #[inline]
    pub fn new(bytes: &'a [u8]) -> Result<Self, FormatError> {
        match bytes.as_chunks() {
            (rows, []) => Ok(Self { rows }),
            _ => Err(FormatError::IndexLen { len: bytes.len() }),
        }
    }

    /// Number of rows.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The entry of one row.
    ///
    /// # Panics
    /// When `row` is out of range, as a slice does.
    #[inline]
    pub fn get(&self, row: usize) -> IndexEntry {
        IndexEntry::decode(&self.rows[row])
    }

    /// All entries in row order.
    #[inline]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = IndexEntry> + DoubleEndedIterator + 'a {
        self.rows.iter().map(IndexEntry::decode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: IndexEntry = IndexEntry { shard: 0x0102, offset: u64::MAX, len: 3 };

    #[test]
    fn a_row_is_three_little_endian_integers() {
        let row = ENTRY.encode();
        assert_eq!(row[..8], [2, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(row[8..16], [255; 8]);
        assert_eq!(row[16..], [3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(IndexEntry::decode(&row), ENTRY);
    }

    #[test]
    fn rows_are_read_at_any_alignment() {
        let mut bytes = vec![0];
        bytes.extend(ENTRY.encode());
        bytes.extend(ENTRY.encode());
        let view = IndexView::new(&bytes[1..]).unwrap();
        assert_eq!(view.iter().collect::<Vec<_>>(), [ENTRY, ENTRY]);
    }

    #[test]
    fn half_a_row_is_no_index() {
        assert!(IndexView::new(&[]).unwrap().is_empty());
        for len in [1, 23, 25, 47] {
            let error = IndexView::new(&vec![0; len]).unwrap_err();
            assert_eq!(error, FormatError::IndexLen { len });
        }
    }
}
