//! Positions shared out among components, each getting exactly its share, spread as evenly as whole numbers allow.
//!
//! Two components share out positions as a Beatty sequence does: position *k* is the first one's when `floor(k p + phase)` goes up
//! there. More of them are the leaves of a binary tree in which every node does that.

use crate::error::SamplerError;
use crate::plan::validate_population;
use crate::rng::{Domain, KeyStream};

/// Where the leading bit of the largest share goes when shares become integers: the sum of 2^32 of them stays below 2^127.
const TOP_BIT: i32 = 94;

/// An endless sequence of components, in which each comes as often as its share says.
///
/// Every position belongs to one component, and is that component's next *index*: its indexes are 0, 1, 2 and so on, without
/// gaps. Any position is computed directly, in time logarithmic in the number of components. After any number *k* of positions,
/// the indexes of a component deviate from `k * share / sum of shares` by less than the [`depth`](Self::depth), besides a rounding of
/// shares of `2^-64 k` per level. The seed decides how components alternate.
///
/// Source: the crate documentation, "Mixtures".
#[derive(Clone, Debug)]
pub struct Mixture {
    /// By the component with which the right part of a node begins; the first entry is not used.
    nodes: Box<[Node]>,
    seed: u64,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    /// The left part's share of the node's positions, in units of 2^-64.
    share: u64,
    phase: u64,
}

impl Mixture {
    /// Takes one share per component. Only their ratios matter.
    ///
    /// ```
    /// # use drt_sampler::Mixture;
    /// let mixture = Mixture::new(&[3.0, 1.0], 7)?;
    /// let mut places = [(0, 0); 400];
    /// mixture.fill(0, &mut places);
    /// assert_eq!(places.iter().filter(|(component, _)| *component == 1).count(), 100);
    /// assert_eq!(places[399], mixture.place(399));
    /// # Ok::<(), drt_sampler::SamplerError>(())
    /// ```
    ///
    /// # Errors
    /// [`InvalidShare`](SamplerError::InvalidShare) names the first share that is not finite and greater than zero;
    /// [`EmptyPopulation`](SamplerError::EmptyPopulation) and [`PopulationTooLarge`](SamplerError::PopulationTooLarge) refuse 0
    /// and 2^32 or more components.
    pub fn new(shares: &[f64], seed: u64) -> Result<Self, SamplerError> {
        validate_population(shares.len() as u64)?;
        let mut largest = 0.0;
        for (component, &share) in (0..).zip(shares) {
            if !(share > 0.0 && share < f64::INFINITY) {
                return Err(SamplerError::InvalidShare { component, share });
            }
            largest = f64::max(largest, share);
        }
        // Sums of the components before each one.
        let mut sums = vec![0_u128];
        for share in shares {
            sums.push(sums[sums.len() - 1] + units(*share, largest));
        }
        let phases = KeyStream::first_words(seed, Domain::Mixture, shares.len());
        let mut nodes: Box<[Node]> = phases.into_iter().map(|phase| Node { share: 0, phase }).collect();
        let mut parts = vec![(0, shares.len())];
        while let Some((low, high)) = parts.pop() {
            if high - low > 1 {
                let middle = middle(low, high);
                nodes[middle].share = fraction(sums[middle] - sums[low], sums[high] - sums[low]);
                parts.extend([(low, middle), (middle, high)]);
            }
        }
        Ok(Self { nodes, seed })
    }

    /// Components, 1 to 2^32 - 1.
    pub fn components(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// The seed of the alternation.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Levels of the tree: the binary logarithm of the number of components, rounded up.
    pub fn depth(&self) -> u32 {
        self.components().next_power_of_two().trailing_zeros()
    }

    /// The component that `position` belongs to, and which of that component's positions it is, from 0.
    pub fn place(&self, position: u64) -> (u64, u64) {
        let (mut low, mut high, mut index) = (0, self.nodes.len(), position);
        while high - low > 1 {
            let middle = middle(low, high);
            let Node { share, phase } = self.nodes[middle];
            let before = u128::from(index) * u128::from(share) + u128::from(phase);
            let left = (before >> 64) as u64;
            if (before + u128::from(share)) >> 64 > before >> 64 {
                (high, index) = (middle, left);
            } else {
                (low, index) = (middle, index - left);
            }
        }
        (low as u64, index)
    }

    /// How many of the positions before `position` belong to each component: the index that its next one has.
    ///
    /// ```
    /// # use drt_sampler::Mixture;
    /// let mixture = Mixture::new(&[3.0, 1.0], 7)?;
    /// assert_eq!(mixture.before(400), [300, 100]);
    /// # Ok::<(), drt_sampler::SamplerError>(())
    /// ```
    pub fn before(&self, position: u64) -> Vec<u64> {
        let mut before = vec![0; self.nodes.len()];
        let mut parts = vec![(0, self.nodes.len(), position)];
        while let Some((low, high, index)) = parts.pop() {
            if high - low == 1 {
                before[low] = index;
                continue;
            }
            let middle = middle(low, high);
            let left = self.nodes[middle].left(index);
            parts.extend([(low, middle, left), (middle, high, index - left)]);
        }
        before
    }

    /// Writes `place(position + i)` to `places[i]`. Does not allocate.
    ///
    /// # Panics
    /// When the last position would pass 2^64 - 1.
    pub fn fill(&self, position: u64, places: &mut [(u64, u64)]) {
        let Some(last) = places.len().checked_sub(1) else { return };
        assert!(position.checked_add(last as u64).is_some(), "positions are below 2^64");
        for (position, place) in (position..=u64::MAX).zip(places) {
            *place = self.place(position);
        }
    }
}

impl Node {
    /// How many of the first `index` positions of a node are its left part's.
    fn left(self, index: u64) -> u64 {
        ((u128::from(index) * u128::from(self.share) + u128::from(self.phase)) >> 64) as u64
    }
}

/// Where the right part of a node begins.
fn middle(low: usize, high: usize) -> usize {
    low + (high - low) / 2
}

/// `floor(share * 2^(94 - e))` for `2^e <= largest < 2^(e + 1)`, at least 1, taken exactly.
fn units(share: f64, largest: f64) -> u128 {
    let ((value, low), (value_of_largest, low_of_largest)) = (exact(share), exact(largest));
    let exponent = value_of_largest.ilog2() as i32 + low_of_largest;
    let shift = low - exponent + TOP_BIT;
    let value = u128::from(value);
    let units = if shift >= 0 { value << shift } else { value.checked_shr(shift.unsigned_abs()).unwrap_or(0) };
    units.max(1)
}

/// A positive float as `value * 2^low`.
fn exact(number: f64) -> (u64, i32) {
    let bits = number.to_bits();
    let (biased, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
    if biased == 0 { (fraction, -1074) } else { (fraction | 1 << 52, biased - 1075) }
}

/// `floor(2^64 * part / whole)` for `part < whole < 2^127`.
fn fraction(part: u128, whole: u128) -> u64 {
    let (mut rest, mut quotient) = (part, 0);
    for _ in 0..64 {
        rest <<= 1;
        quotient <<= 1;
        if rest >= whole {
            rest -= whole;
            quotient |= 1;
        }
    }
    quotient
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_rounded_down() {
        assert_eq!(fraction(1, 2), 1 << 63);
        assert_eq!(fraction(1, 3), u64::MAX / 3);
        assert_eq!(fraction(2, 3), u64::MAX / 3 * 2);
        assert_eq!(fraction(0, 1), 0);
        assert_eq!(fraction((1 << 127) - 2, (1 << 127) - 1), u64::MAX);
    }

    #[test]
    fn shares_become_units_exactly() {
        assert_eq!(units(1.0, 1.0), 1 << 94);
        assert_eq!(units(0.75, 1.5), 3 << 92);
        assert_eq!(units(f64::MAX, f64::MAX), ((1 << 53) - 1) << 42);
        assert_eq!(units(5e-324, 1e-323), 1 << 93);
        assert_eq!(units(5e-324, f64::MAX), 1);
        assert_eq!(units(f64::from_bits(1.0_f64.to_bits() - 1), 2.0), ((1 << 53) - 1) << 40);
    }
}
