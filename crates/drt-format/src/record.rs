//! One stored record: the length of the JSON text, the text, the stored payload.
//!
//! Source: docs/spec/v3.md, "Record".

use crate::constants::RECORD_PREFIX_LEN;
use crate::error::FormatError;

/// Takes a record apart into its JSON text and its stored payload.
///
/// Neither part is looked at: [`decode_row`](crate::decode_row) reads the first,
/// [`decode_payload`](crate::decode_payload) the second.
///
/// # Errors
/// [`FormatError::RecordTooShort`] below 8 bytes, [`FormatError::RecordJsonLen`] when the text
/// would reach past the end.
///
/// ```
/// let record = b"\x02\0\0\0\0\0\0\0{}payload";
/// let (json, stored) = drt_format::split_record(record)?;
/// assert_eq!((json, stored), (&b"{}"[..], &b"payload"[..]));
/// # Ok::<(), drt_format::FormatError>(())
/// ```
#[inline]
pub fn split_record(record: &[u8]) -> Result<(&[u8], &[u8]), FormatError> {
    let Some((prefix, rest)) = record.split_first_chunk::<RECORD_PREFIX_LEN>() else {
        return Err(FormatError::RecordTooShort { len: record.len() });
    };
    let json_len = u64::from_le_bytes(*prefix);
    usize::try_from(json_len)
        .ok()
        .and_then(|json_len| rest.split_at_checked(json_len))
        .ok_or(FormatError::RecordJsonLen { json_len, available: rest.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_part_may_be_empty() {
        assert_eq!(split_record(&[0; 8]), Ok((&[][..], &[][..])));
        assert_eq!(split_record(&[1, 0, 0, 0, 0, 0, 0, 0, 7]), Ok((&[7][..], &[][..])));
        assert_eq!(split_record(&[0, 0, 0, 0, 0, 0, 0, 0, 7]), Ok((&[][..], &[7][..])));
    }

    #[test]
    fn short_records_are_refused() {
        for len in 0..8 {
            assert_eq!(split_record(&vec![0; len]), Err(FormatError::RecordTooShort { len }));
        }
    }

    #[test]
    fn a_json_length_past_the_record_is_refused() {
        for json_len in [2, 1 << 40, u64::MAX - 7, u64::MAX] {
            let mut record = json_len.to_le_bytes().to_vec();
            record.push(0);
            assert_eq!(split_record(&record), Err(FormatError::RecordJsonLen { json_len, available: 1 }));
        }
    }
}
