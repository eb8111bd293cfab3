//! Compression of payloads: the only door to LZ4.
//!
//! Every payload is compressed alone. Its length is known before it is decoded, and believed
//! only as far as the compressed bytes can bear it out.
//!
//! Source: docs/spec/v3.md, "Compression".

use std::fmt;

use lz4_flex::block;

use crate::constants::{LZ4_MAX_EXPANSION, LZ4_PREFIX_LEN};
use crate::error::FormatError;

/// How the payloads of a shard are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompressionAlgo {
    /// As they are.
    #[default]
    None,
    /// Length as u32 little-endian, then one raw LZ4 block.
    Lz4,
}

impl CompressionAlgo {
    /// Every algorithm of the format.
    pub const ALL: [Self; 2] = [Self::None, Self::Lz4];

    /// The name in the manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
        }
    }

    /// The algorithm with this name, if the format has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algo| algo.name() == name)
    }

    /// Longest payload that the algorithm can store, in bytes.
    pub const fn max_payload_len(self) -> u64 {
        match self {
            Self::None => u64::MAX,
            Self::Lz4 => u32::MAX as u64,
        }
    }
}

impl fmt::Display for CompressionAlgo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A finite number that keeps the text it was read from, so that a manifest written again
/// has the same bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ratio {
    text: Box<str>,
}

impl Ratio {
    /// The number in the notation of the format's floats: shortest, `1.0` rather than `1`.
    fn from_f64(value: f64) -> Self {
        Self { text: zmij::Buffer::new().format_finite(value).into() }
    }

    /// A number from its JSON text; `None` when `text` is no JSON number or not finite.
    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let number = text.starts_with(|first: char| first == '-' || first.is_ascii_digit());
        let finite = number && text.parse::<f64>().is_ok_and(f64::is_finite);
        finite.then(|| Self { text: text.into() })
    }

    /// The text, a JSON number.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The number.
    pub fn as_f64(&self) -> f64 {
        self.text.parse().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Compression of one shard as the manifest states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardCompression {
    /// How the payloads are stored.
    pub algo: CompressionAlgo,
    /// Copied from the writer's configuration; no measurement, and no reader uses it.
    pub ratio: Ratio,
}

impl ShardCompression {
    /// A setting for the writer.
    ///
    /// # Errors
    /// [`FormatError::Ratio`] unless `ratio` is exactly 1.0 without compression, or positive
    /// and finite with it.
    pub fn new(algo: CompressionAlgo, ratio: f64) -> Result<Self, FormatError> {
        let reason = match algo {
            CompressionAlgo::None if ratio != 1.0 => "without compression it is 1.0",
            CompressionAlgo::Lz4 if !(ratio > 0.0 && ratio.is_finite()) => "it is positive and finite",
            CompressionAlgo::None | CompressionAlgo::Lz4 => {
                return Ok(Self { algo, ratio: Ratio::from_f64(ratio) });
            }
        };
        Err(FormatError::Ratio { algo, ratio, reason })
    }
}

impl Default for ShardCompression {
    /// No compression.
    fn default() -> Self {
        Self { algo: CompressionAlgo::None, ratio: Ratio::from_f64(1.0) }
    }
}

/// Length of the payload in bytes, without decoding it.
///
/// A result of this function is safe to allocate: it is never more than 255 times the bytes
/// that are really there.
///
/// # Errors
/// [`FormatError::StoredPayloadTooShort`] without a whole length,
/// [`FormatError::PayloadLenImpossible`] for a length that the block cannot decode to.
#[inline]
pub fn payload_len(algo: CompressionAlgo, stored: &[u8]) -> Result<usize, FormatError> {
    match algo {
        CompressionAlgo::None => Ok(stored.len()),
        CompressionAlgo::Lz4 => lz4_parts(stored).map(|(len, _)| len),
    }
}

/// The checked length and the block of a payload stored with LZ4.
#[inline]
fn lz4_parts(stored: &[u8]) -> Result<(usize, &[u8]), FormatError> {
    let Some((prefix, block)) = stored.split_first_chunk::<LZ4_PREFIX_LEN>() else {
        return Err(FormatError::StoredPayloadTooShort { len: stored.len() });
    };
    let declared = u64::from(u32::from_le_bytes(*prefix));
    let bound = (block.len() as u64).saturating_mul(LZ4_MAX_EXPANSION);
    match usize::try_from(declared) {
        Ok(len) if declared <= bound => Ok((len, block)),
        _ => Err(FormatError::PayloadLenImpossible { declared, block_len: block.len() }),
    }
}

/// Decodes a stored payload into `out`, which has exactly [`payload_len`] bytes.
///
/// After an error `out` holds bytes of no meaning.
///
/// # Errors
/// The errors of [`payload_len`]; [`FormatError::PayloadLen`] when `out` or the decoded block
/// has another length; [`FormatError::Lz4Block`] when the block is damaged, cut short or
/// followed by other bytes.
#[inline]
pub fn decode_payload(algo: CompressionAlgo, stored: &[u8], out: &mut [u8]) -> Result<(), FormatError> {
    match algo {
        CompressionAlgo::None => {
            demand_len(out.len(), stored.len())?;
            out.copy_from_slice(stored);
        }
        CompressionAlgo::Lz4 => {
            let (len, block) = lz4_parts(stored)?;
            demand_len(out.len(), len)?;
            let found = block::decompress_into(block, out)
                .map_err(|error| FormatError::Lz4Block { problem: error.to_string() })?;
            demand_len(len, found)?;
        }
    }
    Ok(())
}

#[inline]
fn demand_len(expected: usize, found: usize) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::PayloadLen { expected, found }) }
}

/// Appends the stored form of a payload to `out`.
///
/// # Errors
/// [`FormatError::PayloadTooLong`] past [`CompressionAlgo::max_payload_len`]; `out` is then
/// unchanged.
pub fn encode_payload(algo: CompressionAlgo, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    match algo {
        CompressionAlgo::None => out.extend_from_slice(payload),
        CompressionAlgo::Lz4 => {
            let len = u32::try_from(payload.len()).map_err(|_| FormatError::PayloadTooLong {
                len: payload.len(),
                algo,
                limit: algo.max_payload_len(),
            })?;
            let start = out.len();
            out.extend_from_slice(&len.to_le_bytes());
            let block_start = out.len();
            out.resize(block_start + block::get_maximum_output_size(payload.len()), 0);
            match block::compress_into(payload, &mut out[block_start..]) {
                Ok(block_len) => out.truncate(block_start + block_len),
                Err(error) => {
                    // Not reachable: the room is the compressor's own upper bound.
                    out.truncate(start);
                    return Err(FormatError::Lz4Block { problem: error.to_string() });
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(algo: CompressionAlgo, payload: &[u8]) -> Vec<u8> {
        let mut out = b"kept".to_vec();
        encode_payload(algo, payload, &mut out).unwrap();
        assert_eq!(out[..4], *b"kept");
        out.split_off(4)
    }

    fn decode(algo: CompressionAlgo, stored: &[u8]) -> Result<Vec<u8>, FormatError> {
        let mut out = vec![0; payload_len(algo, stored)?];
        decode_payload(algo, stored, &mut out)?;
        Ok(out)
    }

    fn noise(len: usize) -> Vec<u8> {
        let mut state = 1u32;
        (0..len)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            })
            .collect()
    }

    #[test]
    fn payloads_survive_both_algorithms() {
        let payloads =
            [vec![], vec![7], b"abcabcabcabcabcabcabc".to_vec(), noise(1000), noise(70_000), vec![0; 2_000_000]];
        for algo in CompressionAlgo::ALL {
            for payload in &payloads {
                assert_eq!(decode(algo, &stored(algo, payload)).as_ref(), Ok(payload), "{algo}");
            }
        }
    }

    #[test]
    fn an_empty_payload_is_five_zero_bytes_of_lz4() {
        assert_eq!(stored(CompressionAlgo::Lz4, b""), [0; 5]);
        assert_eq!(stored(CompressionAlgo::None, b""), [0; 0]);
    }

    #[test]
    fn incompressible_payloads_grow_as_the_format_says() {
        assert_eq!(stored(CompressionAlgo::Lz4, &noise(1000)).len(), 1009);
        assert_eq!(stored(CompressionAlgo::Lz4, &noise(70_000)).len(), 70_280);
    }

    #[test]
    fn the_best_block_stays_within_the_bound() {
        for len in [0, 1, 20, 300, 65_536, 10_000_000] {
            let stored = stored(CompressionAlgo::Lz4, &vec![0; len]);
            assert_eq!(payload_len(CompressionAlgo::Lz4, &stored), Ok(len));
        }
    }

    #[test]
    fn a_lying_length_is_refused_before_anything_is_allocated() {
        let mut lie = stored(CompressionAlgo::Lz4, &noise(1000));
        lie[..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(
            payload_len(CompressionAlgo::Lz4, &lie),
            Err(FormatError::PayloadLenImpossible { declared: u64::from(u32::MAX), block_len: 1005 })
        );
        for len in 0..4 {
            assert_eq!(
                payload_len(CompressionAlgo::Lz4, &vec![0; len]),
                Err(FormatError::StoredPayloadTooShort { len })
            );
        }
    }

    #[test]
    fn only_the_exact_length_decodes() {
        for payload in [vec![], vec![9], b"abcabcabcabcabcabcabc".to_vec(), noise(500), vec![0; 5000]] {
            let good = stored(CompressionAlgo::Lz4, &payload);
            for wrong in [payload.len() as u32 + 1, (payload.len() as u32).wrapping_sub(1), 0, 1] {
                if wrong as usize == payload.len() {
                    continue;
                }
                let mut bad = good.clone();
                bad[..4].copy_from_slice(&wrong.to_le_bytes());
                assert!(decode(CompressionAlgo::Lz4, &bad).is_err(), "{} as {wrong}", payload.len());
            }
            for extra in [&[0][..], &[0, 0], &[0, 1, 0], &[0, 1, 0, 0], &[0x10, 9]] {
                let long = [&good[..], extra].concat();
                assert!(decode(CompressionAlgo::Lz4, &long).is_err(), "{} + {extra:?}", payload.len());
            }
            for end in 4..good.len() {
                assert!(decode(CompressionAlgo::Lz4, &good[..end]).is_err(), "{} cut to {end}", payload.len());
            }
        }
    }

    #[test]
    fn the_buffer_must_have_the_exact_length() {
        for algo in CompressionAlgo::ALL {
            let stored = stored(algo, b"abc");
            for len in [0, 2, 4] {
                assert_eq!(
                    decode_payload(algo, &stored, &mut vec![0; len]),
                    Err(FormatError::PayloadLen { expected: len, found: 3 }),
                    "{algo}"
                );
            }
        }
    }

    #[test]
    fn ratios_follow_the_algorithm() {
        for (algo, ratio, text) in [
            (CompressionAlgo::None, 1.0, "1.0"),
            (CompressionAlgo::Lz4, 1.0, "1.0"),
            (CompressionAlgo::Lz4, 2.5, "2.5"),
            (CompressionAlgo::Lz4, 1e-9, "1e-9"),
        ] {
            assert_eq!(ShardCompression::new(algo, ratio).unwrap().ratio.as_str(), text);
        }
        for (algo, ratio) in [
            (CompressionAlgo::None, 2.0),
            (CompressionAlgo::None, f64::NAN),
            (CompressionAlgo::Lz4, 0.0),
            (CompressionAlgo::Lz4, -1.0),
            (CompressionAlgo::Lz4, f64::INFINITY),
            (CompressionAlgo::Lz4, f64::NAN),
        ] {
            assert!(ShardCompression::new(algo, ratio).is_err(), "{algo} {ratio}");
        }
        assert_eq!(ShardCompression::default(), ShardCompression::new(CompressionAlgo::None, 1.0).unwrap());
    }

    #[test]
    fn ratio_text_is_kept() {
        for text in ["1", "1.50", "0", "-0.0", "2E1"] {
            assert_eq!(Ratio::from_json(text).unwrap().as_str(), text);
        }
        for text in ["", "null", "inf", "NaN", "+1", "\"1\"", "1e999"] {
            assert_eq!(Ratio::from_json(text), None, "{text}");
        }
    }
}
