//! The alias table: weights become whole shares that sum to exactly one unit per bucket, and the shares fill buckets.
//!
//! Everything here is integer arithmetic, so a table is the same on every machine. Building walks the weights forward
//! only, four times in all, and needs no memory besides the table. The sweep over light and heavy rows follows
//! Hübschle-Schneider and Sanders, "Parallel weighted random sampling", 2019.

/// Bytes per row of a sampling table: a 64-bit threshold, then a 32-bit alias, both little-endian.
pub const TABLE_ENTRY_BYTES: usize = 12;

/// One bucket. Bytes rather than integers, so that a table in a mapped file can be drawn from where it lies.
pub(crate) type Entry = [u8; TABLE_ENTRY_BYTES];

/// What one bucket holds, in units of 2^-64.
const BUCKET: u128 = 1 << 64;

/// Where the leading bit of the largest weight goes when weights become integers. With fewer than 2^32 rows, every sum
/// and every product with the population then stays below 2^127.
const TOP_BIT: i32 = 94;

/// Bits after the point of the factor that turns an integer into a share. The mean integer is at least `2^94 / 2^32`, so
/// the factor stays below 2^128; and an integer below 2^95 times its rounding error stays below one unit.
const RECIPROCAL_BITS: u32 = 125;

/// Bytes of a table as entries; an incomplete last entry is left out.
#[inline(always)]
pub(crate) fn view(bytes: &[u8]) -> &[Entry] {
    bytes.as_chunks().0
}

/// A draw stays in the bucket when its fraction is below this.
#[inline(always)]
pub(crate) fn threshold(entry: &Entry) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *entry;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The row of the other draws.
#[inline(always)]
pub(crate) fn alias(entry: &Entry) -> u32 {
    let [.., a, b, c, d] = *entry;
    u32::from_le_bytes([a, b, c, d])
}

fn encode(threshold: u128, alias: usize) -> Entry {
    debug_assert!(threshold < BUCKET);
    let mut entry = [0; TABLE_ENTRY_BYTES];
    entry[..8].copy_from_slice(&(threshold as u64).to_le_bytes());
    entry[8..].copy_from_slice(&(alias as u32).to_le_bytes());
    entry
}

/// Builds the table for `len` weights of which `largest` is the largest, all as the bits of positive finite numbers.
pub(crate) fn build(weights: impl Iterator<Item = u64> + Clone, len: u64, largest: u64) -> Vec<Entry> {
    let shares = Shares::new(weights.clone(), len, largest);
    // Larger weights have larger bits, so one comparison tells light rows from heavy ones. A row that gets a spare unit
    // can be heavy a little earlier.
    let (light_below, light_below_spare) = (shares.smallest_reaching(BUCKET), shares.smallest_reaching(BUCKET - 1));
    let is_light =
        |row: usize, weight: u64| weight < if (row as u64) < shares.spare { light_below_spare } else { light_below };
    let rows = (0..).zip(weights);
    let mut light = rows.clone().filter(|&(row, weight)| is_light(row, weight));
    let mut heavy =
        rows.filter(|&(row, weight)| !is_light(row, weight)).map(|(row, weight)| (row, shares.of(row, weight)));

    let mut entries = vec![[0; TABLE_ENTRY_BYTES]; len as usize];
    // `left` is what `row` still has to place. Light rows fill their own bucket first and let `row` top it up; once
    // `row` has less than a bucket left, it opens its own, and the next heavy row tops that up. Shares sum to one
    // bucket per row, so there is a next heavy row then.
    let Some((mut row, mut left)) = heavy.next() else { unreachable!("some share is at least the mean") };
    loop {
        if left < BUCKET {
            let Some((next, share)) = heavy.next() else { unreachable!("shares sum to one bucket per row") };
            entries[row] = encode(left, next);
            left += share - BUCKET;
            row = next;
        } else if let Some((light_row, weight)) = light.next() {
            let share = shares.of(light_row, weight);
            entries[light_row] = encode(share, row);
            left -= BUCKET - share;
        } else {
            // Nothing is left to top up, so this row fills exactly its own bucket. The threshold cannot say "all of it",
            // so the alias does.
            entries[row] = encode(BUCKET - 1, row);
            let Some(next) = heavy.next() else { return entries };
            (row, left) = next;
        }
    }
}

/// The share of each row, in units of which a bucket holds 2^64 and all rows together one bucket per row.
struct Shares {
    scale: Scale,
    len: u64,
    /// Sum of the weights as integers.
    total: u128,
    /// `floor(len * 2^(64 + RECIPROCAL_BITS) / total)`, at most 2^127.
    reciprocal: u128,
    /// Rounding down leaves fewer units than there are rows; the first rows get one each.
    spare: u64,
}

impl Shares {
    fn new(weights: impl Iterator<Item = u64> + Clone, len: u64, largest: u64) -> Self {
        let scale = Scale::new(largest);
        let total = weights.clone().map(|weight| scale.integer(weight)).sum();
        let reciprocal = scaled_quotient(u128::from(len), total, 64 + RECIPROCAL_BITS);
        let mut shares = Self { scale, len, total, reciprocal, spare: 0 };
        let given: u128 = weights.map(|weight| shares.floor(weight)).sum();
        shares.spare = ((u128::from(len) << 64) - given) as u64;
        shares
    }

    /// The share of a row.
    fn of(&self, row: usize, weight: u64) -> u128 {
        self.floor(weight) + u128::from((row as u64) < self.spare)
    }

    /// `floor(2^64 * len * integer / total)`, below 2^96.
    #[inline]
    fn floor(&self, weight: u64) -> u128 {
        let integer = self.scale.integer(weight);
        // The reciprocal is less than 1 too small and the integer is below 2^95, so this is exact or 1 too small.
        let estimate = multiply_shift(integer, self.reciprocal);
        // Below 2 * total, so it can be computed modulo 2^128.
        let remainder =
            integer.wrapping_mul(u128::from(self.len) << 64).wrapping_sub(estimate.wrapping_mul(self.total));
        estimate + u128::from(remainder >= self.total)
    }

    /// Bits of the smallest weight whose share, rounded down, is at least `share`.
    fn smallest_reaching(&self, share: u128) -> u64 {
        let (mut below, mut reaching) = (0, f64::INFINITY.to_bits()); // the share of the largest weight reaches a bucket
        while reaching - below > 1 {
            let middle = below + (reaching - below) / 2;
            if middle > self.scale.largest || self.floor(middle) >= share {
                reaching = middle;
            } else {
                below = middle;
            }
        }
        reaching
    }
}

/// Weights as integers: each times the power of two that brings the largest into `2^94 .. 2^95`, rounded down.
struct Scale {
    largest: u64,
    /// What the biased exponent of a weight must be for its 53-bit significand to stay where it is.
    unshifted: i32,
}

impl Scale {
    fn new(largest: u64) -> Self {
        let (significand, exponent) = parts(largest);
        let leading_bit = significand.ilog2() as i32;
        Self { largest, unshifted: exponent + leading_bit - TOP_BIT }
    }

    #[inline]
    fn integer(&self, weight: u64) -> u128 {
        let (significand, exponent) = parts(weight);
        let shift = exponent - self.unshifted;
        if shift >= 0 {
            u128::from(significand) << shift
        } else {
            u128::from(significand.checked_shr(-shift as u32).unwrap_or(0))
        }
    }
}

/// Significand and exponent of a positive finite number: it is `significand * 2^(exponent - 1075)`.
#[inline]
fn parts(weight: u64) -> (u64, i32) {
    let (biased, fraction) = ((weight >> 52) as i32, weight & ((1 << 52) - 1));
    if biased == 0 { (fraction, 1) } else { (fraction | 1 << 52, biased) }
}

/// `floor(x * 2^bits / y)`, for `x < y < 2^127` and a result below 2^128.
fn scaled_quotient(x: u128, y: u128, bits: u32) -> u128 {
    let (mut quotient, mut remainder) = (0, x);
    for _ in 0..bits {
        remainder <<= 1;
        quotient <<= 1;
        if remainder >= y {
            remainder -= y;
            quotient |= 1;
        }
    }
    quotient
}

/// `floor(x * y / 2^RECIPROCAL_BITS)`, for a result below 2^128.
#[inline]
fn multiply_shift(x: u128, y: u128) -> u128 {
    const LOW: u128 = u64::MAX as u128;
    let (x_low, x_high, y_low, y_high) = (x & LOW, x >> 64, y & LOW, y >> 64);
    // x is below 2^95, so none of these sums overflows
    let middle = x_high * y_low + ((x_low * y_low) >> 64);
    let (middle, carry) = middle.overflowing_add(x_low * y_high);
    let high = x_high * y_high + (middle >> 64) + (u128::from(carry) << 64);
    high << (128 - RECIPROCAL_BITS) | u128::from(middle as u64 >> (RECIPROCAL_BITS - 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares_of(weights: &[f64]) -> Vec<u128> {
        let bits = weights.iter().map(|weight| weight.to_bits());
        let shares = Shares::new(bits.clone(), weights.len() as u64, bits.clone().max().unwrap());
        bits.enumerate().map(|(row, weight)| shares.of(row, weight)).collect()
    }

    #[test]
    fn the_largest_weight_takes_the_top_bit_whatever_its_exponent() {
        for largest in [f64::MAX, 1e308, 1.0, 1.5, f64::MIN_POSITIVE, f64::MIN_POSITIVE / 2.0, f64::from_bits(1)] {
            let scale = Scale::new(largest.to_bits());
            assert_eq!(scale.integer(largest.to_bits()).ilog2() as i32, TOP_BIT, "{largest}");
            if largest > f64::MIN_POSITIVE {
                assert_eq!(scale.integer((largest / 2.0).to_bits()), scale.integer(largest.to_bits()) / 2);
            }
        }
        let scale = Scale::new(1.75_f64.to_bits());
        assert_eq!(scale.integer(1.75_f64.to_bits()), 7 << 92);
        assert_eq!(scale.integer(2_f64.powi(-94).to_bits()), 1);
        assert_eq!(scale.integer((1.5 * 2_f64.powi(-94)).to_bits()), 1);
        assert_eq!(scale.integer(2_f64.powi(-95).to_bits()), 0);
        assert_eq!(scale.integer(f64::from_bits(1).to_bits()), 0);
    }

    #[test]
    fn shares_are_rounded_down_and_the_first_rows_get_the_spare_units() {
        // 3 * 2^64 * (1, 1, 5) / 7, of which two units are spare
        let exact = |weight: u128| (weight * 3) << 64;
        assert_eq!(shares_of(&[1.0, 1.0, 5.0]), [exact(1) / 7 + 1, exact(1) / 7 + 1, exact(5) / 7]);
        assert_eq!(exact(1) % 7 + exact(1) % 7 + exact(5) % 7, 2 * 7);
    }

    #[test]
    fn a_share_that_is_a_whole_number_is_kept_though_its_factor_is_not() {
        // 3 * 2^64 * 7 / 14, with a factor of 3 / 14
        assert_eq!(shares_of(&[3.0, 4.0, 7.0])[2], 3 << 63);
    }

    #[test]
    fn shares_sum_to_one_bucket_per_row() {
        for weights in [&[1e308; 4][..], &[1e-300, 1e300, 7.0], &[0.1, 0.2, 0.3, 0.4, 0.5], &[5e-324, 1e-323]] {
            let mut weights = weights.to_vec();
            weights.push(weights[0] * 1.5);
            let shares = shares_of(&weights);
            assert_eq!(shares.iter().sum::<u128>(), (weights.len() as u128) << 64, "{weights:?}");
        }
    }

    #[test]
    fn wide_products_are_exact() {
        assert_eq!(multiply_shift(3 << 60, 5 << 65), 15);
        assert_eq!(multiply_shift((1 << 95) - 1, 1 << 127), (1 << 97) - 4);
        assert_eq!(multiply_shift((1 << 95) - 1, u128::MAX), (1 << 98) - 9);
        assert_eq!(multiply_shift((1 << 64) - 1, u128::MAX), (1 << 67) - 9);
        assert_eq!(multiply_shift(1, u128::MAX), 7);
    }

    #[test]
    fn wide_quotients_are_exact() {
        assert_eq!(scaled_quotient(3, 7, 127), (3 << 125) / 7 * 4 + (3 << 125) % 7 * 4 / 7);
        assert_eq!(scaled_quotient(1, 1 << 100, 189), 1 << 89);
        assert_eq!(scaled_quotient((1 << 32) - 1, 1 << 126, 189), ((1 << 32) - 1) << 63);
    }

    #[test]
    fn a_row_that_the_spare_unit_makes_whole_is_heavy() {
        // One unit under the mean, rounded: rows below and above by less than a unit of 2^-64.
        let mut weights = vec![1.0; 1 << 12];
        weights[3000] = 1.0 + f64::EPSILON;
        let shares = shares_of(&weights);
        let bits = weights.iter().map(|weight| weight.to_bits());
        let entries = build(bits, weights.len() as u64, weights[3000].to_bits());
        assert_eq!(masses(&entries), shares);
    }

    /// What the entries give each row, in units of 2^-64 of a bucket.
    fn masses(entries: &[Entry]) -> Vec<u128> {
        let mut masses = vec![0; entries.len()];
        for (row, entry) in entries.iter().enumerate() {
            masses[row] += u128::from(threshold(entry));
            masses[alias(entry) as usize] += BUCKET - u128::from(threshold(entry));
        }
        masses
    }
}
