//! Groups of rows, each drawn as often as its share says, and within a group each row once before any comes again.

use crate::error::SamplerError;
use crate::mixture::Mixture;
use crate::permutation::Permutation;
use crate::plan::validate_population;
use crate::rng::{Domain, KeyStream};

/// Positions handled at a time.
const BATCH: usize = 1024;

/// A population in groups, and a share for each: an endless sequence of rows, any of which is computed directly.
///
/// A [`Mixture`] chooses the group, a permutation of its own for each group the row: after any number of positions the groups have
/// come by their shares, and the rows of a group equally often, give or take one.
///
/// Memory is 4 bytes a row.
///
/// Source: the crate documentation, "Mixtures".
#[derive(Debug)]
pub struct BalancedPlan {
    mixture: Mixture,
    orders: Box<[Permutation]>,
    /// The rows group by group, and where each group begins.
    rows: Box<[u32]>,
    starts: Box<[usize]>,
}

impl BalancedPlan {
    /// Takes the group of each row, and one share per group. Only the ratios of shares matter.
    ///
    /// # Errors
    /// As [`Mixture::new`] for the shares; [`EmptyPopulation`](SamplerError::EmptyPopulation) and
    /// [`PopulationTooLarge`](SamplerError::PopulationTooLarge) for the rows; [`UnknownGroup`](SamplerError::UnknownGroup) for a row
    /// whose group has no share, and [`EmptyGroup`](SamplerError::EmptyGroup) for a group without rows.
    pub fn new(groups: &[u32], shares: &[f64], seed: u64) -> Result<Self, SamplerError> {
        let mixture = Mixture::new(shares, seed)?;
        validate_population(groups.len() as u64)?;
        let mut counts = vec![0_usize; shares.len()];
        for (row, &group) in (0..).zip(groups) {
            let Some(count) = counts.get_mut(group as usize) else {
                let (group, groups) = (u64::from(group), shares.len() as u64);
                return Err(SamplerError::UnknownGroup { row, group, groups });
            };
            *count += 1;
        }
        let mut starts = Vec::with_capacity(shares.len());
        let mut start = 0;
        for (group, count) in (0..).zip(&counts) {
            if *count == 0 {
                return Err(SamplerError::EmptyGroup { group });
            }
            starts.push(start);
            start += count;
        }
        let mut rows = vec![0; groups.len()];
        let mut next = starts.clone();
        for (row, &group) in (0..).zip(groups) {
            let place = &mut next[group as usize];
            rows[*place] = row;
            *place += 1;
        }
        let seeds = KeyStream::first_words(seed, Domain::Groups, shares.len());
        let orders = counts.iter().zip(seeds).map(|(count, seed)| Permutation::new(*count as u64, seed));
        Ok(Self { mixture, orders: orders.collect::<Result<_, _>>()?, rows: rows.into(), starts: starts.into() })
    }

    /// Rows in the population.
    pub fn population(&self) -> u64 {
        self.rows.len() as u64
    }

    /// How groups alternate.
    pub fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    /// The group of each row, as [`new`](Self::new) took them.
    pub fn groups(&self) -> Vec<u32> {
        let mut groups = vec![0; self.rows.len()];
        let ends = self.starts[1..].iter().copied().chain([self.rows.len()]);
        for (group, (&start, end)) in (0..).zip(self.starts.iter().zip(ends)) {
            for &row in &self.rows[start..end] {
                groups[row as usize] = group;
            }
        }
        groups
    }

    /// The row at `position`. For more than a few rows, [`fill`](Self::fill) is many times faster.
    pub fn row(&self, position: u64) -> u64 {
        let (group, index) = self.mixture.place(position);
        let order = &self.orders[group as usize];
        self.nth(group, order.row(index / order.population(), index % order.population()))
    }

    /// Writes `row(position + i)` to `rows[i]`.
    ///
    /// # Panics
    /// When the last position would pass 2^64 - 1.
    pub fn fill(&self, position: u64, rows: &mut [u64]) {
        let Some(last) = rows.len().checked_sub(1) else { return };
        assert!(position.checked_add(last as u64).is_some(), "positions are below 2^64");
        let mut places = [(0, 0); BATCH];
        let mut taken = Vec::with_capacity(BATCH.min(rows.len()));
        let mut run = [0; BATCH];
        for (start, rows) in (0..).step_by(BATCH).zip(rows.chunks_mut(BATCH)) {
            let places = &mut places[..rows.len()];
            self.mixture.fill(position + start, places);
            taken.clear();
            taken.extend((0..).zip(&*places).map(|(at, (group, index))| (*group, *index, at)));
            taken.sort_unstable();
            // Indexes of a group follow one another, so its rows are one piece of its order.
            for same in taken.chunk_by(|a, b| a.0 == b.0) {
                let (group, index, _) = same[0];
                let order = &self.orders[group as usize];
                let run = &mut run[..same.len()];
                order.fill(index / order.population(), index % order.population(), run);
                for ((_, _, at), row) in same.iter().zip(run) {
                    rows[*at] = self.nth(group, *row);
                }
            }
        }
    }

    /// A row of a group.
    fn nth(&self, group: u64, row: u64) -> u64 {
        u64::from(self.rows[self.starts[group as usize] + row as usize])
    }
}
