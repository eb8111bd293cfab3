//! Compression of payloads: the only door to LZ4 and Zstandard.
//!
//! Every payload is compressed alone. Its length is known before it is decoded, and believed
//! only as far as the compressed bytes can bear it out.
//!
//! Source: docs/spec/v3.md, "Compression".

use std::cell::RefCell;
use std::fmt;

use lz4_flex::block;
use zstd::bulk::{Compressor, Decompressor};
use zstd::zstd_safe;

use crate::constants::{
    LZ4_MAX_EXPANSION, LZ4_PREFIX_LEN, ZSTD_DEFAULT_LEVEL, ZSTD_LEVELS, ZSTD_MAGIC, ZSTD_MAX_BLOCK_LEN,
};
use crate::error::FormatError;

/// How the payloads of a shard are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CompressionAlgo {
    /// As they are.
    #[default]
    None,
    /// Length as u32 little-endian, then one raw LZ4 block.
    Lz4,
    /// One Zstandard frame that tells its content's length. Older readers refuse it by its name.
    Zstd,
}

impl CompressionAlgo {
    /// Every algorithm of the format.
    pub const ALL: [Self; 3] = [Self::None, Self::Lz4, Self::Zstd];

    /// The name in the manifest.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// The algorithm with this name, if the format has it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algo| algo.name() == name)
    }

    /// Longest payload that the algorithm can store, in bytes.
    pub const fn max_payload_len(self) -> u64 {
        match self {
            Self::None | Self::Zstd => u64::MAX,
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
    /// How hard the writer tried, where the algorithm has levels. No reader uses it.
    pub level: Option<i32>,
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
            _ if !(ratio > 0.0 && ratio.is_finite()) => "it is positive and finite",
            CompressionAlgo::None | CompressionAlgo::Lz4 => {
                return Ok(Self { algo, ratio: Ratio::from_f64(ratio), level: None });
            }
            CompressionAlgo::Zstd => {
                return Ok(Self { algo, ratio: Ratio::from_f64(ratio), level: Some(ZSTD_DEFAULT_LEVEL) });
            }
        };
        Err(FormatError::Ratio { algo, ratio, reason })
    }

    /// The same with another level.
    ///
    /// # Errors
    /// [`FormatError::Level`] unless the algorithm is `zstd` and the level one of
    /// [`ZSTD_LEVELS`].
    pub fn with_level(self, level: i32) -> Result<Self, FormatError> {
        if self.algo == CompressionAlgo::Zstd && ZSTD_LEVELS.contains(&level) {
            Ok(Self { level: Some(level), ..self })
        } else {
            Err(FormatError::Level { algo: self.algo, level })
        }
    }

    /// An encoder for payloads of such a shard.
    pub fn encoder(&self) -> PayloadEncoder {
        PayloadEncoder { algo: self.algo, level: self.level.unwrap_or(ZSTD_DEFAULT_LEVEL), zstd: None }
    }
}

impl Default for ShardCompression {
    /// No compression.
    fn default() -> Self {
        Self { algo: CompressionAlgo::None, ratio: Ratio::from_f64(1.0), level: None }
    }
}

/// Length of the payload in bytes, without decoding it.
///
/// A result of this function is safe to allocate: it is never more than the bytes that are
/// really there can decode to (255 times as many for LZ4).
///
/// # Errors
/// [`FormatError::StoredPayloadTooShort`] without a whole length,
/// [`FormatError::PayloadLenImpossible`] for a length that the block cannot decode to,
/// [`FormatError::ZstdFrame`] when the bytes are not one frame that tells its length.
#[inline]
pub fn payload_len(algo: CompressionAlgo, stored: &[u8]) -> Result<usize, FormatError> {
    match algo {
        CompressionAlgo::None => Ok(stored.len()),
        CompressionAlgo::Lz4 => lz4_parts(stored).map(|(len, _)| len),
        CompressionAlgo::Zstd => zstd_len(stored),
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

/// The checked length of a payload stored as a Zstandard frame.
fn zstd_len(stored: &[u8]) -> Result<usize, FormatError> {
    let damaged = |problem: &str| FormatError::ZstdFrame { problem: problem.to_owned() };
    if !stored.starts_with(&ZSTD_MAGIC) {
        return Err(damaged("it does not begin like one"));
    }
    let declared = match zstd_safe::get_frame_content_size(stored) {
        Ok(Some(declared)) => declared,
        Ok(None) => return Err(damaged("it does not tell the length of its content")),
        Err(_) => return Err(damaged("it has no whole frame header")),
    };
    // After the magic number and a header of 2 bytes, each block has at least 4.
    let bound = (stored.len() as u64).saturating_sub(6).div_ceil(4).saturating_mul(ZSTD_MAX_BLOCK_LEN);
    match usize::try_from(declared) {
        Ok(len) if declared <= bound => Ok(len),
        _ => Err(FormatError::PayloadLenImpossible { declared, block_len: stored.len() }),
    }
}

thread_local! {
    /// A decoder takes about 100 kB, and is made once a thread.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

fn decompress_zstd(stored: &[u8], out: &mut [u8]) -> Result<usize, FormatError> {
    let damaged = |problem: String| FormatError::ZstdFrame { problem };
    match zstd_safe::find_frame_compressed_size(stored) {
        Ok(len) if len == stored.len() => {}
        Ok(len) => return Err(damaged(format!("{} bytes follow the frame", stored.len() - len))),
        Err(code) => return Err(damaged(zstd_safe::get_error_name(code).to_owned())),
    }
    DECOMPRESSOR.with_borrow_mut(|decompressor| {
        let decompressor = match decompressor {
            Some(decompressor) => decompressor,
            None => decompressor.insert(Decompressor::new().map_err(|error| damaged(error.to_string()))?),
        };
        decompressor.decompress_to_buffer(stored, out).map_err(|error| damaged(error.to_string()))
    })
}

/// Appends one frame that tells its content's length.
fn compress_zstd(compressor: &mut Compressor<'_>, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let start = out.len();
    out.resize(start + zstd_safe::compress_bound(payload.len()), 0);
    match compressor.compress_to_buffer(payload, &mut out[start..]) {
        Ok(len) => {
            out.truncate(start + len);
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(FormatError::ZstdFrame { problem: error.to_string() })
        }
    }
}

/// Decodes a stored payload into `out`, which has exactly [`payload_len`] bytes.
///
/// After an error `out` holds bytes of no meaning.
///
/// # Errors
/// The errors of [`payload_len`]; [`FormatError::PayloadLen`] when `out` or the decoded block
/// has another length; [`FormatError::Lz4Block`] or [`FormatError::ZstdFrame`] when the block
/// or frame is damaged, cut short or followed by other bytes.
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
        CompressionAlgo::Zstd => {
            demand_len(out.len(), zstd_len(stored)?)?;
            let found = decompress_zstd(stored, out)?;
            demand_len(out.len(), found)?;
        }
    }
    Ok(())
}

#[inline]
fn demand_len(expected: usize, found: usize) -> Result<(), FormatError> {
    if expected == found { Ok(()) } else { Err(FormatError::PayloadLen { expected, found }) }
}

/// Appends the stored form of a payload to `out`, at the algorithm's usual level.
///
/// # Errors
/// [`FormatError::PayloadTooLong`] past [`CompressionAlgo::max_payload_len`]; `out` is then
/// unchanged.
pub fn encode_payload(algo: CompressionAlgo, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    PayloadEncoder { algo, level: ZSTD_DEFAULT_LEVEL, zstd: None }.encode(payload, out)
}

/// Encodes payloads of one shard compression, one after another.
///
/// For Zstandard it keeps the memory that a payload took to compress, up to hundreds of megabytes
/// at the highest levels, for the next one: drop it when no more come.
pub struct PayloadEncoder {
    algo: CompressionAlgo,
    level: i32,
    zstd: Option<Compressor<'static>>,
}

impl fmt::Debug for PayloadEncoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadEncoder").field("algo", &self.algo).field("level", &self.level).finish_non_exhaustive()
    }
}

impl PayloadEncoder {
    /// Appends the stored form of a payload to `out`.
    ///
    /// # Errors
    /// As [`encode_payload`].
    pub fn encode(&mut self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
        match self.algo {
            CompressionAlgo::Zstd => {
                let compressor = match &mut self.zstd {
                    Some(compressor) => compressor,
                    None => self.zstd.insert(
                        Compressor::new(self.level)
                            .map_err(|error| FormatError::ZstdFrame { problem: error.to_string() })?,
                    ),
                };
                compress_zstd(compressor, payload, out)
            }
            CompressionAlgo::None => {
                out.extend_from_slice(payload);
                Ok(())
            }
            CompressionAlgo::Lz4 => compress_lz4(payload, out),
        }
    }
}

/// Appends the payload's length and one block.
fn compress_lz4(payload: &[u8], out: &mut Vec<u8>) -> Result<(), FormatError> {
    let algo = CompressionAlgo::Lz4;
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
    fn payloads_survive_every_algorithm() {
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
    fn a_zstd_frame_tells_its_length_and_is_all_there_is() {
        for payload in [vec![], vec![9], b"abcabcabcabcabcabcabc".to_vec(), noise(500), vec![0; 5_000_000]] {
            let good = stored(CompressionAlgo::Zstd, &payload);
            assert_eq!(payload_len(CompressionAlgo::Zstd, &good), Ok(payload.len()));
            for end in 0..good.len().min(400) {
                assert!(decode(CompressionAlgo::Zstd, &good[..end]).is_err(), "{} cut to {end}", payload.len());
            }
            // Another frame, one that is skipped, and bytes of no meaning behind it.
            for skipped in [&[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0][..], &[]] {
                assert!(payload_len(CompressionAlgo::Zstd, skipped).is_err());
            }
            for extra in [&good[..], &[0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0], &[0]] {
                let long = [&good[..], extra].concat();
                assert!(decode(CompressionAlgo::Zstd, &long).is_err(), "{} + {} bytes", payload.len(), extra.len());
            }
        }
        // A frame of a stream does not tell: magic number, two bytes of header, one raw block.
        let mut untold = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0, 0x19, 0, 0];
        untold.extend_from_slice(b"abc");
        assert_eq!(zstd::bulk::decompress(&untold, 100).unwrap(), b"abc");
        let error = payload_len(CompressionAlgo::Zstd, &untold).unwrap_err();
        assert!(matches!(error, FormatError::ZstdFrame { .. }), "{error:?}");
        // A length of 2^40 in a frame of some bytes: magic number, a header with 8 bytes of length, one block.
        let mut lie = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
        lie.extend_from_slice(&(1u64 << 40).to_le_bytes());
        lie.extend_from_slice(&[3, 0, 0, 7]);
        let error = payload_len(CompressionAlgo::Zstd, &lie).unwrap_err();
        assert!(
            matches!(error, FormatError::PayloadLenImpossible { declared, .. } if declared == 1 << 40),
            "{error:?}"
        );
    }

    #[test]
    fn levels_are_for_zstd_alone_and_matter() {
        let words = ["shard", "index", "record", "label", "split", "score", "weight", "epoch", "draw", "cache"];
        let text: Vec<u8> = noise(20_000).iter().flat_map(|byte| words[usize::from(byte % 10)].bytes()).collect();
        let len_at = |level| {
            let mut out = Vec::new();
            let compression = ShardCompression::new(CompressionAlgo::Zstd, 1.0).unwrap().with_level(level).unwrap();
            compression.encoder().encode(&text, &mut out).unwrap();
            assert_eq!(decode(CompressionAlgo::Zstd, &out).as_ref(), Ok(&text));
            out.len()
        };
        assert!(len_at(19) < len_at(1));
        assert_eq!(len_at(ZSTD_DEFAULT_LEVEL), stored(CompressionAlgo::Zstd, &text).len());
        let zstd = ShardCompression::new(CompressionAlgo::Zstd, 1.0).unwrap();
        for level in [0, -1, 23, i32::MAX] {
            assert_eq!(zstd.clone().with_level(level), Err(FormatError::Level { algo: CompressionAlgo::Zstd, level }));
        }
        assert!(ShardCompression::default().with_level(3).is_err());
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
