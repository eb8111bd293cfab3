//! A plan: everything that decides which row comes at a position.

use std::sync::Arc;

use crate::error::SamplerError;
use crate::permutation::Permutation;
use crate::weights::Weights;
use crate::{cyclic, multinomial};

/// The version of every rule by which a plan chooses rows. A rule never changes under one version.
pub const PLAN_VERSION: u32 = 1;

/// The largest population a plan can hold: 2^32 - 1 rows.
pub const MAX_POPULATION: u64 = u32::MAX as u64;

/// How a plan goes through its population.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Rows in order, from the first again after the last.
    Cyclic,
    /// Independent draws with replacement, by weight or uniform.
    Multinomial,
    /// Each row once per epoch, in an order of its own for every epoch.
    Permutation,
}

/// A population, its weights if any, a mode and a seed: an endless sequence of rows, any of which is computed directly.
///
/// Cloning is cheap: clones share the weights. Plans are immutable and may be used from many threads.
///
/// Positions are 0 to 2^64 - 1, rows are below the [`population`](Self::population).
#[derive(Clone, Debug)]
pub struct SamplingPlan {
    population: u64,
    seed: u64,
    rule: Rule,
}

#[derive(Clone, Debug)]
enum Rule {
    Cyclic,
    Uniform,
    Weighted(Arc<Weights>),
    Permutation(Permutation),
}

impl SamplingPlan {
    /// Rows in order, wrapping: `row(k)` is `k mod population`.
    ///
    /// # Errors
    /// [`EmptyPopulation`](SamplerError::EmptyPopulation) and
    /// [`PopulationTooLarge`](SamplerError::PopulationTooLarge) refuse 0 and more than [`MAX_POPULATION`] rows.
    pub fn cyclic(population: u64) -> Result<Self, SamplerError> {
        Ok(Self { population: validate_population(population)?, seed: 0, rule: Rule::Cyclic })
    }

    /// Independent draws with replacement, every row equally likely: the same rows as equal weights give.
    ///
    /// # Errors
    /// As [`cyclic`](Self::cyclic).
    pub fn uniform(population: u64, seed: u64) -> Result<Self, SamplerError> {
        Ok(Self { population: validate_population(population)?, seed, rule: Rule::Uniform })
    }

    /// Independent draws with replacement, every row as likely as its weight says. Takes `Weights` or `Arc<Weights>`.
    pub fn weighted(weights: impl Into<Arc<Weights>>, seed: u64) -> Self {
        let weights = weights.into();
        Self { population: weights.len(), seed, rule: Rule::Weighted(weights) }
    }

    /// Each row once in every `population` positions, in a new order each time.
    ///
    /// # Errors
    /// As [`cyclic`](Self::cyclic).
    pub fn permutation(population: u64, seed: u64) -> Result<Self, SamplerError> {
        let permutation = Permutation::new(validate_population(population)?, seed)?;
        Ok(Self { population, seed, rule: Rule::Permutation(permutation) })
    }

    /// How the plan goes through its population.
    pub fn mode(&self) -> Mode {
        match self.rule {
            Rule::Cyclic => Mode::Cyclic,
            Rule::Uniform | Rule::Weighted(_) => Mode::Multinomial,
            Rule::Permutation(_) => Mode::Permutation,
        }
    }

    /// Rows in the population, 1 to [`MAX_POPULATION`].
    pub fn population(&self) -> u64 {
        self.population
    }

    /// The seed; 0 for a cyclic plan, which has none.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The weights of a plan made by [`weighted`](Self::weighted).
    pub fn weights(&self) -> Option<&Arc<Weights>> {
        match &self.rule {
            Rule::Weighted(weights) => Some(weights),
            Rule::Cyclic | Rule::Uniform | Rule::Permutation(_) => None,
        }
    }

    /// The row drawn at `position`. For more than a few rows, [`fill`](Self::fill) is many times faster.
    pub fn row(&self, position: u64) -> u64 {
        match &self.rule {
            Rule::Cyclic => position % self.population,
            Rule::Uniform => multinomial::row(None, self.population, self.seed, position),
            Rule::Weighted(weights) => multinomial::row(weights.entries(), self.population, self.seed, position),
            Rule::Permutation(order) => order.row(position / self.population, position % self.population),
        }
    }

    /// Writes `row(position + i)` to `rows[i]`. Does not allocate.
    ///
    /// # Panics
    /// When the last position would pass 2^64 - 1.
    pub fn fill(&self, position: u64, rows: &mut [u64]) {
        let Some(last) = rows.len().checked_sub(1) else { return };
        assert!(position.checked_add(last as u64).is_some(), "positions are below 2^64");
        match &self.rule {
            Rule::Cyclic => cyclic::fill(self.population, position, rows),
            Rule::Uniform => multinomial::fill(None, self.population, self.seed, position, rows),
            Rule::Weighted(weights) => multinomial::fill(weights.entries(), self.population, self.seed, position, rows),
            Rule::Permutation(order) => order.fill(position / self.population, position % self.population, rows),
        }
    }
}

/// Refuses what no plan can hold.
pub(crate) fn validate_population(population: u64) -> Result<u64, SamplerError> {
    match population {
        0 => Err(SamplerError::EmptyPopulation),
        1..=MAX_POPULATION => Ok(population),
        _ => Err(SamplerError::PopulationTooLarge { population, maximum: MAX_POPULATION }),
    }
}
