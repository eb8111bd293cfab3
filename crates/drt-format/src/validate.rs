//! Agreement between the files of one cache.
//!
//! What is wrong inside one file is said by that file's module; here are the promises that
//! only hold between two of them. Both are meant for every open.

use crate::error::FormatError;
use crate::index::IndexView;
use crate::manifest::{Manifest, ShardEntry};

/// Checks that the index has as many rows as the manifest promises.
///
/// # Errors
/// [`FormatError::RowCount`].
pub fn validate_row_count(manifest: &Manifest, index: IndexView<'_>) -> Result<(), FormatError> {
    let found = index.len() as u64;
    if found == manifest.sample_count {
        Ok(())
    } else {
        Err(FormatError::RowCount { expected: manifest.sample_count, found })
    }
}

/// Checks that every row of the index lies inside a shard that the manifest lists.
///
/// After that, `offset` and `offset + len` of every row are at most `byte_len` of its shard,
/// so nothing computed from them overflows. Gaps, overlaps and any order are allowed, and so
/// is a record too short to be one: reading it says so. The cost is about a nanosecond a row.
///
/// # Errors
/// [`FormatError::ShardOutOfRange`] or [`FormatError::RecordOutOfShard`] for the first row
/// that does not.
///
/// Source: docs/spec/v3.md, "Index".
pub fn validate_index(index: IndexView<'_>, shards: &[ShardEntry]) -> Result<(), FormatError> {
    // Side by side, the lengths of thousands of shards stay in the processor's cache.
    let lens: Vec<u64> = shards.iter().map(|shard| shard.byte_len).collect();
    for (row, entry) in index.iter().enumerate() {
        let shard_len = usize::try_from(entry.shard).ok().and_then(|shard| lens.get(shard));
        let inside = match (shard_len, entry.offset.checked_add(entry.len)) {
            (Some(shard_len), Some(end)) => end <= *shard_len,
            _ => false,
        };
        if !inside {
            return Err(match shard_len {
                Some(&shard_len) => FormatError::RecordOutOfShard {
                    row,
                    shard: entry.shard,
                    offset: entry.offset,
                    len: entry.len,
                    shard_len,
                },
                None => FormatError::ShardOutOfRange { row, shard: entry.shard, num_shards: shards.len() },
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Sha256Hasher;
    use crate::compression::ShardCompression;
    use crate::index::IndexEntry;

    fn shards(lens: &[u64]) -> Vec<ShardEntry> {
        lens.iter()
            .enumerate()
            .map(|(number, &byte_len)| ShardEntry {
                name: crate::layout::shard_file_name(number as u64),
                uncompressed_byte_len: 0,
                byte_len,
                compression: ShardCompression::default(),
                sha256: Sha256Hasher::digest(b""),
            })
            .collect()
    }

    fn validate(rows: &[(u64, u64, u64)], lens: &[u64]) -> Result<(), FormatError> {
        let bytes: Vec<u8> =
            rows.iter().flat_map(|&(shard, offset, len)| IndexEntry { shard, offset, len }.encode()).collect();
        validate_index(IndexView::new(&bytes).unwrap(), &shards(lens))
    }

    #[test]
    fn rows_may_touch_the_end_of_their_shard_but_not_pass_it() {
        assert_eq!(validate(&[(0, 0, 100), (0, 100, 0), (1, 3, 2), (0, 0, 100)], &[100, 5]), Ok(()));
        assert_eq!(
            validate(&[(0, 0, 1), (1, 4, 2)], &[100, 5]),
            Err(FormatError::RecordOutOfShard { row: 1, shard: 1, offset: 4, len: 2, shard_len: 5 })
        );
    }

    #[test]
    fn sums_that_overflow_are_out_of_range() {
        for (offset, len) in [(u64::MAX, 1), (1, u64::MAX), (u64::MAX, u64::MAX)] {
            assert!(matches!(
                validate(&[(0, offset, len)], &[u64::MAX]),
                Err(FormatError::RecordOutOfShard { row: 0, .. })
            ));
        }
        assert_eq!(validate(&[(0, u64::MAX, 0)], &[u64::MAX]), Ok(()));
    }

    #[test]
    fn unknown_shards_are_named() {
        for shard in [2, u64::MAX] {
            assert_eq!(
                validate(&[(shard, 0, 0)], &[1, 1]),
                Err(FormatError::ShardOutOfRange { row: 0, shard, num_shards: 2 })
            );
        }
        assert_eq!(validate(&[], &[]), Ok(()));
    }
}
