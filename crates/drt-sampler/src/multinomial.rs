//! Draws with replacement, uniform or by weight: 16 bytes of key stream decide one draw.
//!
//! The bytes are a number X below 2^128. The upper part of `X * population` picks a bucket, the 64 bits below it pick
//! between the bucket's own row and its alias (Walker, "An efficient method for generating discrete random variables
//! with general distributions", 1977). Both uses share no bit, and no draw is ever rejected.

use std::hint::select_unpredictable;

use crate::rng::{Domain, KeyStream};
use crate::table::{self, Entry};

/// Draws handled at a time: their key stream takes 4 KiB of stack.
const BATCH: usize = 256;

/// The row of the draw at `position`; `table` is `None` for a uniform population.
pub(crate) fn row(table: Option<&[Entry]>, population: u64, seed: u64, position: u64) -> u64 {
    let mut bytes = [0; 16];
    KeyStream::open_at_quarter(seed, Domain::Draws, position).fill(&mut bytes);
    let (bucket, fraction) = split(bytes, population);
    match table {
        None => bucket,
        Some(table) => pick(table, bucket, fraction),
    }
}

/// Writes the rows of the draws from `position` on.
pub(crate) fn fill(table: Option<&[Entry]>, population: u64, seed: u64, position: u64, rows: &mut [u64]) {
    if rows.is_empty() {
        return;
    }
    let mut stream = KeyStream::open_at_quarter(seed, Domain::Draws, position);
    let mut bytes = [[0; 16]; BATCH];
    let mut fractions = [0; BATCH];
    for rows in rows.chunks_mut(BATCH) {
        let bytes = &mut bytes[..rows.len()];
        stream.fill(bytes.as_flattened_mut());
        match table {
            None => {
                for (row, bytes) in rows.iter_mut().zip(bytes) {
                    *row = split(*bytes, population).0;
                }
            }
            Some(table) => {
                // Two passes: nothing in the second waits for arithmetic, so the processor overlaps its cache misses.
                for ((row, fraction), bytes) in rows.iter_mut().zip(&mut fractions).zip(bytes) {
                    (*row, *fraction) = split(*bytes, population);
                }
                for (row, fraction) in rows.iter_mut().zip(&fractions) {
                    *row = pick(table, *row, *fraction);
                }
            }
        }
    }
}

/// The integer part of `X * population / 2^128`, and the first 64 bits of its fraction.
#[inline(always)]
fn split(bytes: [u8; 16], population: u64) -> (u64, u64) {
    let x = u128::from_le_bytes(bytes);
    let (low, high) = (x as u64, (x >> 64) as u64);
    let carry = (u128::from(low) * u128::from(population)) >> 64;
    let upper = u128::from(high) * u128::from(population) + carry; // below 2^64 * population
    ((upper >> 64) as u64, upper as u64)
}

/// The row of a draw that fell into `bucket`.
#[inline(always)]
fn pick(table: &[Entry], bucket: u64, fraction: u64) -> u64 {
    let entry = &table[bucket as usize];
    select_unpredictable(fraction < table::threshold(entry), bucket, u64::from(table::alias(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draw_is_the_exact_product() {
        let third = u128::MAX / 3; // 3 * third is 2^128 - 1
        assert_eq!(split(third.to_le_bytes(), 3), (0, u64::MAX));
        assert_eq!(split((third + 1).to_le_bytes(), 3), (1, 0));
        assert_eq!(split((2 * third + 1).to_le_bytes(), 3), (2, 0));
        assert_eq!(split([0; 16], 3), (0, 0));
        let largest = u64::from(u32::MAX);
        assert_eq!(split([0xff; 16], largest), (largest - 1, u64::MAX));
        assert_eq!(split((1_u128 << 127).to_le_bytes(), largest), (largest / 2, 1 << 63));
    }

    #[test]
    fn a_draw_below_the_threshold_stays() {
        let mut table = vec![[0; 12]; 2];
        table[1][..8].copy_from_slice(&9_u64.to_le_bytes());
        assert_eq!(pick(&table, 1, 8), 1);
        assert_eq!(pick(&table, 1, 9), 0);
    }
}
