//! The generator: a ChaCha8 key stream, readable from any block.
//!
//! ChaCha with 8 rounds, 64-bit block counter and 64-bit nonce (D. J. Bernstein, "ChaCha, a variant of Salsa20", 2008).
//! The cipher is the `chacha20` crate's; this module fixes the key, the nonces and how the stream is addressed. All of
//! it belongs to plan version 1 and never changes.

use chacha20::ChaCha8Rng;
use chacha20::rand_core::{Rng, SeedableRng};

/// Bytes in one ChaCha block.
pub(crate) const BLOCK_BYTES: usize = 64;

/// Bytes 8 to 31 of every key; bytes 0 to 7 are the seed.
const KEY_LABEL: &[u8; 24] = b"datasetrt/plan/1\0\0\0\0\0\0\0\0";

/// What a key stream is used for. The number is the ChaCha nonce, so streams of one seed never overlap.
#[derive(Clone, Copy)]
pub(crate) enum Domain {
    /// Draws with replacement, 16 bytes each.
    Draws = 1,
    /// Keys of permutations, whole blocks per epoch.
    Permutation = 2,
    /// Keys of orders by weight, whole blocks per epoch.
    WeightedOrder = 3,
    /// Phases of mixtures, 8 bytes each.
    Mixture = 4,
    /// Seeds of the groups of a balanced plan, 8 bytes each.
    Groups = 5,
}

/// Reads the key stream of one seed and domain, forward from where it was opened.
pub(crate) struct KeyStream(ChaCha8Rng);

impl KeyStream {
    /// Opens the key stream at byte `16 * quarter`; a block has four quarters.
    pub(crate) fn open_at_quarter(seed: u64, domain: Domain, quarter: u64) -> Self {
        Self::open(seed, domain, u128::from(quarter) * 4)
    }

    /// Opens the key stream at byte `64 * block`.
    pub(crate) fn open_at_block(seed: u64, domain: Domain, block: u64) -> Self {
        Self::open(seed, domain, u128::from(block) * 16)
    }

    fn open(seed: u64, domain: Domain, word: u128) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8..].copy_from_slice(KEY_LABEL);
        Self::with_key(key, domain as u64, word)
    }

    fn with_key(key: [u8; 32], nonce: u64, word: u128) -> Self {
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(nonce); // first: it also rewinds
        rng.set_word_pos(word);
        Self(rng)
    }

    /// The first `len` words of a key stream, 8 bytes little-endian each.
    pub(crate) fn first_words(seed: u64, domain: Domain, len: usize) -> Vec<u64> {
        let mut bytes = vec![[0; 8]; len];
        Self::open_at_block(seed, domain, 0).fill(bytes.as_flattened_mut());
        bytes.into_iter().map(u64::from_le_bytes).collect()
    }

    /// Copies the next bytes of the key stream out.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(key: [u8; 32], nonce: u64, word: u128) -> String {
        let mut bytes = [0; 64];
        KeyStream::with_key(key, nonce, word).fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    // draft-strombergson-chacha-test-vectors-01: 256-bit keys, 8 rounds, blocks 0 and 1.
    #[test]
    fn the_generator_gives_the_published_block_for_a_zero_key() {
        assert_eq!(
            hex([0; 32], 0, 0),
            "3e00ef2f895f40d67f5bb8e81f09a5a12c840ec3ce9a7f3b181be188ef711a1e\
             984ce172b9216f419f445367456d5619314a42a3da86b001387bfdb80e0cfe42"
        );
    }

    #[test]
    fn the_generator_gives_the_published_blocks_for_a_sequence_key_and_nonce() {
        let mut key = [0; 32];
        for (i, byte) in (0..16)
            .zip([0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff])
        {
            key[i] = byte;
            key[31 - i] = byte;
        }
        let nonce = u64::from_le_bytes([0x0f, 0x1e, 0x2d, 0x3c, 0x4b, 0x5a, 0x69, 0x78]);
        assert_eq!(
            hex(key, nonce, 0),
            "db43ad9d1e842d1272e4530e276b3f568f8859b3f7cf6d9d2c74fa53808cb515\
             7a8ebf46ad3dcc4b6c7dadde131784b0120e0e22f6d5f9ffa7407d4a21b695d9"
        );
        assert_eq!(
            hex(key, nonce, 16),
            "c5dd30bf55612fab9bdd118920c19816470c7f5dcd42325dbbed8c57a56281c1\
             44cb0f03e81b3004624e0650a1ce5afaf9a7cd8163f6dbd72602257dd96e471e"
        );
    }

    #[test]
    fn blocks_and_quarters_address_one_stream_on_both_sides_of_the_32_bit_counter() {
        for block in [0, 1, 5, u64::from(u32::MAX) - 1, u64::from(u32::MAX), 1 << 32, 1 << 61] {
            let mut whole = [0; 8 * 64];
            KeyStream::open_at_block(7, Domain::Draws, block).fill(&mut whole);
            for quarter in 0..28 {
                let mut part = [0; 16];
                KeyStream::open_at_quarter(7, Domain::Draws, block * 4 + quarter as u64).fill(&mut part);
                assert_eq!(part, whole[16 * quarter..16 * quarter + 16], "block {block} quarter {quarter}");
            }
        }
    }

    #[test]
    fn domains_and_seeds_have_streams_of_their_own() {
        let first = |seed, domain| {
            let mut bytes = [0; 16];
            KeyStream::open_at_block(seed, domain, 0).fill(&mut bytes);
            bytes
        };
        let domains = [Domain::Draws, Domain::Permutation, Domain::WeightedOrder, Domain::Mixture, Domain::Groups]
            .map(|domain| first(7, domain));
        for (at, stream) in domains.iter().enumerate() {
            assert!(!domains[..at].contains(stream), "domain {}", at + 1);
        }
        assert_ne!(first(7, Domain::Draws), first(8, Domain::Draws));
        assert_ne!(first(7, Domain::Draws), first(7 << 56, Domain::Draws));
    }
}
