//! Checksums: SHA-256 of whole files, XXH3-64 of single records.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::constants::RECORD_CHECKSUM_LEN;
use crate::error::FormatError;

/// SHA-256 of a file, as the manifest has it for every file of a cache.
///
/// Text of either case stands for the same digest; it prints in lower case.
///
/// ```
/// use drt_format::Sha256Digest;
/// let upper = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";
/// let digest: Sha256Digest = upper.parse().unwrap();
/// assert_eq!(digest.to_string(), upper.to_lowercase());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// The digest with these bytes.
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [0; 64];
        for (pair, byte) in text.as_chunks_mut::<2>().0.iter_mut().zip(self.0) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        }
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sha256Digest({self})")
    }
}

impl FromStr for Sha256Digest {
    type Err = FormatError;

    /// # Errors
    /// [`FormatError::DigestText`] unless `text` is exactly 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, FormatError> {
        decode_hex(text.as_bytes()).map(Self).ok_or_else(|| FormatError::DigestText { found: text.to_owned() })
    }
}

fn decode_hex(text: &[u8]) -> Option<[u8; 32]> {
    let (pairs, rest) = text.as_chunks::<2>();
    if pairs.len() != 32 || !rest.is_empty() {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = hex_digit(*high)? << 4 | hex_digit(*low)?;
    }
    Some(bytes)
}

fn hex_digit(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

/// SHA-256 of bytes that arrive in pieces.
#[derive(Debug, Clone, Default)]
pub struct Sha256Hasher(Sha256);

impl Sha256Hasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in the next piece.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all pieces.
    pub fn finish(self) -> Sha256Digest {
        Sha256Digest(self.0.finalize().into())
    }

    /// The digest of bytes that are already in one piece.
    pub fn digest(bytes: &[u8]) -> Sha256Digest {
        let mut hasher = Self::new();
        hasher.update(bytes);
        hasher.finish()
    }
}

/// Algorithm of the checksums in `drt_record_checksums.bin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordChecksumAlgo {
    /// XXH3 with 64 bits and seed 0. It notices accidents, not attacks.
    Xxh3_64,
}

impl RecordChecksumAlgo {
    /// The name in the manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Xxh3_64 => "xxh3-64",
        }
    }

    /// The algorithm with this name, if it is one of ours.
    pub fn from_name(name: &str) -> Option<Self> {
        (name == "xxh3-64").then_some(Self::Xxh3_64)
    }
}

/// Checksum of one whole record: length, JSON text and stored payload.
///
/// ```
/// // The published value for no bytes and seed 0.
/// assert_eq!(drt_format::record_checksum(b""), 0x2d06800538d394c2);
/// ```
#[inline]
pub fn record_checksum(record: &[u8]) -> u64 {
    xxh3_64(record)
}

/// [`record_checksum`] of a record that lies in several pieces.
#[derive(Clone)]
pub struct RecordHasher(Xxh3Default);

impl RecordHasher {
    /// A hasher that has seen nothing.
    pub fn new() -> Self {
        Self(Xxh3Default::new())
    }

    /// Takes in the next piece.
    #[inline]
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The checksum of all pieces; the hasher is then as new.
    #[inline]
    pub fn finish_reset(&mut self) -> u64 {
        let checksum = self.0.digest();
        self.0.reset();
        checksum
    }
}

impl Default for RecordHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for RecordHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecordHasher").finish_non_exhaustive()
    }
}

/// The contents of `drt_record_checksums.bin`, read in place: one checksum per row, in row
/// order, each a u64 little-endian.
#[derive(Debug, Clone, Copy)]
pub struct RecordChecksumsView<'a> {
    rows: &'a [[u8; RECORD_CHECKSUM_LEN]],
}

impl<'a> RecordChecksumsView<'a> {
    /// Looks at the bytes of the file.
    ///
    /// # Errors
    /// [`FormatError::RecordChecksumsLen`] when the length is no multiple of 8.
    pub fn new(bytes: &'a [u8]) -> Result<Self, FormatError> {
        match bytes.as_chunks() {
            (rows, []) => Ok(Self { rows }),
            _ => Err(FormatError::RecordChecksumsLen { len: bytes.len() }),
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

    /// The checksum of one row's record.
    ///
    /// # Panics
    /// When `row` is out of range, as a slice does.
    #[inline]
    pub fn get(&self, row: usize) -> u64 {
        u64::from_le_bytes(self.rows[row])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_of_known_texts() {
        assert_eq!(
            Sha256Hasher::digest(b"abc").to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        let mut pieces = Sha256Hasher::new();
        pieces.update(b"a");
        pieces.update(b"");
        pieces.update(b"bc");
        assert_eq!(pieces.finish(), Sha256Hasher::digest(b"abc"));
    }

    #[test]
    fn digest_text_must_be_64_hexadecimal_digits() {
        let good = Sha256Hasher::digest(b"").to_string();
        assert_eq!(good.parse(), Ok(Sha256Hasher::digest(b"")));
        assert_eq!(good.to_uppercase().parse(), Ok(Sha256Hasher::digest(b"")));
        let long = format!("{good}0");
        let prefixed = format!("+{}", &good[1..]);
        let wide = format!("{}é", &good[2..]);
        for bad in ["", &good[1..], &long, &prefixed, &wide, &good.replace('4', "g")] {
            assert!(bad.parse::<Sha256Digest>().is_err(), "{bad}");
        }
    }

    #[test]
    fn record_checksums_do_not_depend_on_the_pieces() {
        let record: Vec<u8> = (0..2000u32).map(|n| (n * 7) as u8).collect();
        let mut hasher = RecordHasher::new();
        for _ in 0..2 {
            for piece in record.chunks(333) {
                hasher.update(piece);
            }
            assert_eq!(hasher.finish_reset(), record_checksum(&record));
        }
    }

    #[test]
    fn record_checksums_are_little_endian_in_row_order() {
        let bytes = [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
        let view = RecordChecksumsView::new(&bytes).unwrap();
        assert_eq!((view.len(), view.get(0), view.get(1)), (2, 1, 2 << 56));
        assert_eq!(RecordChecksumsView::new(&bytes[1..]).unwrap_err(), FormatError::RecordChecksumsLen { len: 15 });
    }
}
