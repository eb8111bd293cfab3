//! Rows without replacement, by weight: every row gets a random key, and the smallest keys come first.
//!
//! With keys `-ln(u) / weight`, each next row is drawn with a chance proportional to its weight among those that are left
//! (Efraimidis and Spirakis, "Weighted random sampling with a reservoir", 2006). Logarithms are `libm`'s, which gives the same
//! bits on every machine, as the system's need not.

use std::sync::Arc;

use crate::error::SamplerError;
use crate::plan::validate_population;
use crate::rng::{Domain, KeyStream};

/// Words of key stream taken at a time; whole blocks.
const BATCH: usize = 512;

/// Bits of a float below its exponent.
const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;

/// More than the exponent of any weight (-1074 to 1023). With it, and with that of an exponential variable (-65 to 5), the exponent of
/// a key takes 12 bits.
const EXPONENT_OFFSET: i64 = 1100;

/// An order of all rows for every epoch, heavier rows earlier: draws without replacement.
///
/// Only the ratios of weights matter, and multiplying all by one power of two changes no order. Cloning is cheap.
///
/// Source: the crate documentation, "Draws without replacement".
#[derive(Clone, Debug)]
pub struct WeightedOrder {
    weights: Arc<[f64]>,
    seed: u64,
}

impl WeightedOrder {
    /// Takes one weight per row.
    ///
    /// # Errors
    /// As [`Weights::new`](crate::Weights::new).
    pub fn new(weights: impl Into<Arc<[f64]>>, seed: u64) -> Result<Self, SamplerError> {
        let weights = weights.into();
        validate_population(weights.len() as u64)?;
        match (0..).zip(&*weights).find(|(_, weight)| !(**weight > 0.0 && **weight < f64::INFINITY)) {
            Some((row, weight)) => Err(SamplerError::InvalidWeight { row, weight: *weight }),
            None => Ok(Self { weights, seed }),
        }
    }

    /// Rows in the population, 1 to [`MAX_POPULATION`](crate::MAX_POPULATION).
    pub fn population(&self) -> u64 {
        self.weights.len() as u64
    }

    /// The seed of the orders.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// One weight per row.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// The first `len` rows of the order of `epoch`. The whole population gets its keys, at 16 bytes a row.
    ///
    /// # Panics
    /// When `len` exceeds the population.
    pub fn first(&self, epoch: u64, len: u64) -> Vec<u64> {
        let population = self.population();
        assert!(len <= population, "{len} rows of {population} without replacement");
        if len == 0 {
            return Vec::new();
        }
        let blocks = population.div_ceil(8);
        let mut stream = KeyStream::open_at_block(self.seed, Domain::WeightedOrder, epoch.wrapping_mul(blocks));
        let mut bytes = [[0; 8]; BATCH];
        let mut keys: Vec<(u64, u32)> = Vec::with_capacity(self.weights.len());
        for weights in self.weights.chunks(BATCH) {
            let bytes = &mut bytes[..weights.len()];
            stream.fill(bytes.as_flattened_mut());
            for (bytes, weight) in bytes.iter().zip(weights) {
                keys.push((key(u64::from_le_bytes(*bytes), *weight), keys.len() as u32));
            }
        }
        if len < population {
            keys.select_nth_unstable(len as usize - 1);
            keys.truncate(len as usize);
        }
        keys.sort_unstable();
        keys.into_iter().map(|(_, row)| u64::from(row)).collect()
    }
}

/// A number that orders as `exponential(word) / weight` does. It is the quotient of the mantissas with an exponent of its own, so that
/// no weight is too large or too small for it.
fn key(word: u64, weight: f64) -> u64 {
    let (mantissa, exponent) = split(weight);
    let quotient = exponential(word) / mantissa;
    if quotient == 0.0 {
        return 0;
    }
    quotient.to_bits() + ((EXPONENT_OFFSET - exponent).cast_unsigned() << FRACTION_BITS)
}

/// `-ln(1 - word / 2^64)`, with all its digits near both ends.
fn exponential(word: u64) -> f64 {
    const UNIT: f64 = 1.0 / 18_446_744_073_709_551_616.0; // 2^-64
    if word < 1 << 63 { -libm::log1p(-(word as f64 * UNIT)) } else { -libm::log(word.wrapping_neg() as f64 * UNIT) }
}

/// A positive weight as `mantissa * 2^exponent`, the mantissa from 1 to below 2.
fn split(weight: f64) -> (f64, i64) {
    const SUBNORMAL_SCALE: f64 = 18_014_398_509_481_984.0; // 2^54
    let (scaled, scale) = if weight < f64::MIN_POSITIVE { (weight * SUBNORMAL_SCALE, 54) } else { (weight, 0) };
    let bits = scaled.to_bits();
    let exponent = (bits >> FRACTION_BITS) as i64 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << FRACTION_BITS) - 1) | 1023 << FRACTION_BITS);
    (mantissa, exponent - scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_split_exactly() {
        for weight in [1.0, 1.5, 0.1, f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.1e-310] {
            let (mantissa, exponent) = split(weight);
            assert!((1.0..2.0).contains(&mantissa));
            let half = exponent / 2; // the power itself may be out of range
            assert_eq!(mantissa * 2_f64.powi(half as i32) * 2_f64.powi((exponent - half) as i32), weight);
        }
    }

    #[test]
    fn keys_order_as_the_quotients_do_and_never_run_over() {
        let words = [0, 1, 2, 1 << 40, 1 << 62, 1 << 63, u64::MAX - 1, u64::MAX];
        for pair in words.windows(2) {
            assert!(exponential(pair[0]) < exponential(pair[1]), "{pair:?}");
            for weight in [5e-324, 1e-300, 0.3, 1.0, 7.0, f64::MAX] {
                assert!(key(pair[0], weight) < key(pair[1], weight), "{pair:?} {weight}");
            }
        }
        for word in &words[1..] {
            for pair in [5e-324, 1e-323, 1e-300, 0.5, 0.75, 1.0, 1e300, f64::MAX].windows(2) {
                assert!(key(*word, pair[0]) > key(*word, pair[1]), "{word} {pair:?}");
            }
        }
        assert_eq!(exponential(1 << 63), std::f64::consts::LN_2);
    }
}
