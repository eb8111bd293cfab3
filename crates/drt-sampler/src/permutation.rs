//! Each row once per epoch: a keyed bijection on row positions, evaluated one position at a time.
//!
//! Small populations are shuffled outright (Durstenfeld, "Algorithm 235: Random permutation", 1964), so that every order
//! is equally likely. Larger ones go through a generalised Feistel network with cycle walking (Black and Rogaway,
//! "Ciphers with arbitrary finite domains", 2002), whose memory does not grow with the population.

use crate::error::SamplerError;
use crate::rng::{BLOCK_BYTES, Domain, KeyStream};

/// The largest population that is shuffled outright.
const SMALL: u64 = 256;

/// Feistel rounds, an even number. README.md says how it was chosen.
const ROUNDS: usize = 12;

/// Blocks of key stream per epoch of a larger population: one word per round, the rest unused.
const LARGE_BLOCKS: usize = 2;

/// Rows taken through the rounds side by side, to keep the multipliers busy.
const LANES: usize = 8;

/// A sequence of orders of `0 .. population`, one per epoch, of which any element is computed directly.
///
/// Use it through [`SamplingPlan::permutation`](crate::SamplingPlan::permutation) for a stream of draws. On its own it
/// takes any population a `u64` can count.
///
/// ```
/// # use drt_sampler::Permutation;
/// let order = Permutation::new(1 << 40, 7)?;
/// assert!(order.row(0, 123) < 1 << 40);
/// # Ok::<(), drt_sampler::SamplerError>(())
/// ```
///
/// Source: the crate documentation, "Permutation".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permutation {
    population: u64,
    seed: u64,
    /// Sides of the smallest rectangle used: `height` is even and about the square root of the population.
    height: u64,
    width: u64,
}

impl Permutation {
    /// Orders of `population` rows under `seed`.
    ///
    /// # Errors
    /// [`EmptyPopulation`](SamplerError::EmptyPopulation) when `population` is 0.
    pub fn new(population: u64, seed: u64) -> Result<Self, SamplerError> {
        if population == 0 {
            return Err(SamplerError::EmptyPopulation);
        }
        let root = (population - 1).isqrt() + 1; // the square root, rounded up, except for a population of 1
        let height = root.next_multiple_of(2);
        Ok(Self { population, seed, height, width: population.div_ceil(height) })
    }

    /// Rows in the population.
    pub fn population(&self) -> u64 {
        self.population
    }

    /// The seed of the orders.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The row at place `index` of the order of `epoch`.
    ///
    /// # Panics
    /// When `index` is not below the population.
    pub fn row(&self, epoch: u64, index: u64) -> u64 {
        if self.population <= SMALL {
            let mut row = [0];
            self.fill(epoch, index, &mut row);
            return row[0];
        }
        assert!(index < self.population, "place {index} of an order of {} rows", self.population);
        let keys = round_keys(&mut self.open(epoch));
        let place = self.rounds(&keys, [index / self.width], [index % self.width]);
        self.walk(&keys, place)
    }

    /// Writes the rows from place `index` of `epoch` on, running into the following epochs.
    ///
    /// # Panics
    /// When `index` is not below the population, or the epochs pass 2^64 - 1.
    pub fn fill(&self, epoch: u64, index: u64, mut rows: &mut [u64]) {
        assert!(index < self.population, "place {index} of an order of {} rows", self.population);
        if self.population == 1 || rows.is_empty() {
            return rows.fill(0);
        }
        let (mut epoch, mut index) = (epoch, index);
        let mut stream = self.open(epoch);
        loop {
            let (part, rest) = rows.split_at_mut((self.population - index).min(rows.len() as u64) as usize);
            if self.population <= SMALL {
                self.fill_small(&mut stream, index as usize, part);
            } else {
                self.fill_large(&mut stream, index, part);
            }
            if rest.is_empty() {
                return;
            }
            (rows, index) = (rest, 0);
            epoch = epoch.checked_add(1).expect("epochs are below 2^64");
        }
    }

    /// The key stream at the first word of an epoch.
    fn open(&self, epoch: u64) -> KeyStream {
        let blocks = if self.population <= SMALL { self.population.div_ceil(8) } else { LARGE_BLOCKS as u64 };
        KeyStream::open_at_block(self.seed, Domain::Permutation, epoch.wrapping_mul(blocks))
    }

    /// One epoch of a small population; the key stream is at its first word.
    fn fill_small(&self, stream: &mut KeyStream, index: usize, rows: &mut [u64]) {
        let population = self.population as usize;
        let mut bytes = [[0; 8]; SMALL as usize];
        let words = &mut bytes[..population.next_multiple_of(BLOCK_BYTES / 8)];
        stream.fill(words.as_flattened_mut());
        let mut order: [u8; SMALL as usize] = std::array::from_fn(|row| row as u8);
        for last in (1..population).rev() {
            let word = u64::from_le_bytes(words[last]);
            order.swap(last, multiply_high(word, last as u64 + 1) as usize);
        }
        for (row, &place) in rows.iter_mut().zip(&order[index..population]) {
            *row = u64::from(place);
        }
    }

    /// One epoch of a larger population; the key stream is at its first word.
    fn fill_large(&self, stream: &mut KeyStream, index: u64, rows: &mut [u64]) {
        let keys = round_keys(stream);
        let (mut line, mut column) = (index / self.width, index % self.width);
        for rows in rows.chunks_mut(LANES) {
            // Lanes past the end of a short last piece are computed and dropped.
            let (mut lines, mut columns) = ([0; LANES], [0; LANES]);
            for lane in 0..rows.len() {
                (lines[lane], columns[lane]) = (line, column);
                column += 1;
                if column == self.width {
                    (line, column) = (line + 1, 0);
                }
            }
            let (lines, columns) = self.rounds(&keys, lines, columns);
            for ((row, line), column) in rows.iter_mut().zip(lines).zip(columns) {
                *row = self.walk(&keys, ([line], [column]));
            }
        }
    }

    /// The row of a place that went through the rounds: the rectangle has a few places too many, and one that lands
    /// there goes through again.
    #[inline(always)]
    fn walk(&self, keys: &[u64; ROUNDS], mut place: ([u64; 1], [u64; 1])) -> u64 {
        loop {
            let ([line], [column]) = place;
            let row = line * self.width + column;
            if row < self.population {
                return row;
            }
            place = self.rounds(keys, [line], [column]);
        }
    }

    /// All rounds, on `N` independent places of the rectangle.
    #[inline(always)]
    fn rounds<const N: usize>(
        &self,
        keys: &[u64; ROUNDS],
        mut lines: [u64; N],
        mut columns: [u64; N],
    ) -> ([u64; N], [u64; N]) {
        for [line_key, column_key] in keys.as_chunks().0 {
            for (line, column) in lines.iter_mut().zip(&columns) {
                *line = add_modulo(*line, multiply_high(mix(column.wrapping_add(*line_key)), self.height), self.height);
            }
            for (line, column) in lines.iter().zip(&mut columns) {
                *column =
                    add_modulo(*column, multiply_high(mix(line.wrapping_add(*column_key)), self.width), self.width);
            }
        }
        (lines, columns)
    }
}

/// The keys of one epoch; the key stream is at its first word.
fn round_keys(stream: &mut KeyStream) -> [u64; ROUNDS] {
    let mut bytes = [[0; 8]; LARGE_BLOCKS * BLOCK_BYTES / 8];
    stream.fill(bytes.as_flattened_mut());
    std::array::from_fn(|round| u64::from_le_bytes(bytes[round]))
}

/// The output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014).
#[inline(always)]
fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// `floor(word * bound / 2^64)`: below `bound`.
#[inline(always)]
fn multiply_high(word: u64, bound: u64) -> u64 {
    ((u128::from(word) * u128::from(bound)) >> 64) as u64
}

/// `(x + y) mod bound` for `x` and `y` below `bound`, which is at most 2^32.
#[inline(always)]
fn add_modulo(x: u64, y: u64, bound: u64) -> u64 {
    let sum = x + y;
    if sum >= bound { sum - bound } else { sum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rectangle_is_the_smallest_with_its_height_and_never_overflows() {
        for population in (2..2000).chain([1 << 32, 1 << 40, (1 << 62) + 1, u64::MAX - 1, u64::MAX]) {
            let order = Permutation::new(population, 0).unwrap();
            let area = u128::from(order.height) * u128::from(order.width);
            assert!(order.height.is_multiple_of(2));
            assert!(u128::from(order.height).pow(2) >= u128::from(population));
            assert!(u128::from(order.height - 2).pow(2) < u128::from(population));
            assert!(area >= u128::from(population) && area - u128::from(population) < u128::from(order.height));
            assert!(area <= 1 << 64, "the last place of the rectangle is a u64");
        }
    }
}
