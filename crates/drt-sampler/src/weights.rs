//! Weights: positive, finite and non-empty by construction, kept as the table that draws from them.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::error::SamplerError;
use crate::plan::validate_population;
use crate::table::{self, Entry, TABLE_ENTRY_BYTES};

/// The row weights of a population.
///
/// Weights are relative: only their ratios matter, and multiplying all by one power of two changes no bit of the table.
/// Equal weights are the uniform population and keep no table. Otherwise the weights themselves are dropped once the
/// alias table is built, at [`TABLE_ENTRY_BYTES`] a row.
///
/// Each row's share of the draws is `weight / sum of weights`, to a relative error below 2^-40 when its weight is at least
/// 2^-20 of the mean weight, and to an absolute one below `2^-61 / rows` when it is smaller.
///
/// Source: the crate documentation, "Weights into shares".
pub struct Weights {
    len: u64,
    table: Option<Box<dyn AsRef<[u8]> + Send + Sync>>,
}

impl Weights {
    /// Builds from one weight per row.
    ///
    /// # Errors
    /// [`InvalidWeight`](SamplerError::InvalidWeight) names the first weight that is not finite and greater than zero;
    /// [`EmptyPopulation`](SamplerError::EmptyPopulation) and
    /// [`PopulationTooLarge`](SamplerError::PopulationTooLarge) refuse 0 and 2^32 or more rows.
    pub fn new(weights: &[f64]) -> Result<Self, SamplerError> {
        validate_population(weights.len() as u64)?;
        Self::from_values(weights.iter().copied())
    }

    /// Builds from an iterator that is walked several times, once per clone, so that weights kept in chunks or in another
    /// number type need no copy.
    ///
    /// ```
    /// # use drt_sampler::Weights;
    /// let chunks: [&[f32]; 2] = [&[1.0, 2.0], &[3.0]];
    /// let weights = Weights::from_values(chunks.iter().flat_map(|chunk| chunk.iter().map(|w| f64::from(*w))))?;
    /// assert_eq!(weights.len(), 3);
    /// # Ok::<(), drt_sampler::SamplerError>(())
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// May panic when the clones do not yield the same values.
    pub fn from_values<I>(weights: I) -> Result<Self, SamplerError>
    where
        I: IntoIterator<Item = f64, IntoIter: Clone>,
    {
        let weights = weights.into_iter();
        let (mut len, mut first, mut largest, mut is_uniform) = (0, 0.0, 0.0, true);
        for weight in weights.clone() {
            if !(weight > 0.0 && weight < f64::INFINITY) {
                return Err(SamplerError::InvalidWeight { row: len, weight });
            }
            if len == 0 {
                first = weight;
            }
            len += 1;
            validate_population(len)?;
            is_uniform &= weight == first;
            largest = f64::max(largest, weight);
        }
        validate_population(len)?;
        if is_uniform {
            return Ok(Self { len, table: None });
        }
        let entries = table::build(weights.map(f64::to_bits), len, largest.to_bits());
        Ok(Self { len, table: Some(Box::new(OwnedTable(entries))) })
    }

    /// Takes a table that [`table`](Self::table) gave, for example from a file that several processes map.
    ///
    /// Entries are checked once, here. The bytes must not change while the value lives: a draw from a table that was
    /// altered may name a row outside the population, or panic when it was cut short.
    ///
    /// # Errors
    /// [`TableLength`](SamplerError::TableLength) or [`TableAlias`](SamplerError::TableAlias) when the bytes cannot be
    /// a table; the population is refused as in [`new`](Self::new).
    pub fn from_table(table: impl AsRef<[u8]> + Send + Sync + 'static) -> Result<Self, SamplerError> {
        let bytes = table.as_ref();
        if !bytes.len().is_multiple_of(TABLE_ENTRY_BYTES) {
            let (found_bytes, entry_bytes) = (bytes.len() as u64, TABLE_ENTRY_BYTES as u64);
            return Err(SamplerError::TableLength { found_bytes, entry_bytes });
        }
        let entries = table::view(bytes);
        let population = validate_population(entries.len() as u64)?;
        for (row, entry) in (0..).zip(entries) {
            let alias = u64::from(table::alias(entry));
            if alias >= population {
                return Err(SamplerError::TableAlias { row, alias, population });
            }
        }
        Ok(Self { len: population, table: Some(Box::new(table)) })
    }

    /// Whether all weights are equal.
    pub fn is_uniform(&self) -> bool {
        self.table.is_none()
    }

    /// Rows in the population, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "never empty, by construction")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Bytes held by the table: [`TABLE_ENTRY_BYTES`] a row, or 0 when uniform.
    pub fn table_bytes(&self) -> usize {
        self.table().map_or(0, <[u8]>::len)
    }

    /// The table as bytes, the same on every machine, or `None` when uniform. They are all that draws depend on besides
    /// the seed, so they can be written out, digested, and given to [`from_table`](Self::from_table).
    pub fn table(&self) -> Option<&[u8]> {
        self.table.as_ref().map(|table| (**table).as_ref())
    }

    pub(crate) fn entries(&self) -> Option<&[Entry]> {
        self.table().map(table::view)
    }
}

// Bytes are only read, and a panic while reading leaves nothing half done.
impl UnwindSafe for Weights {}
impl RefUnwindSafe for Weights {}

/// A table built here, in the form a mapped one has.
struct OwnedTable(Vec<Entry>);

impl AsRef<[u8]> for OwnedTable {
    fn as_ref(&self) -> &[u8] {
        self.0.as_flattened()
    }
}

impl fmt::Debug for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Weights")
            .field("len", &self.len)
            .field("is_uniform", &self.is_uniform())
            .finish_non_exhaustive()
    }
}
