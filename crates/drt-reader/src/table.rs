use std::any::Any;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use drt_format::{Sha256Digest, Sha256Hasher};
use drt_sampler::{SamplingPlan, Weights};

use crate::catalog::{Catalog, MAX_ROWS};
use crate::table_file::Section;
use crate::{Order, ReadError};

/// Rows that are looked up before anybody looks whether to stop.
pub(crate) const ROWS_PER_LOOK: usize = 1 << 16;

/// Something of the caller's that lives and is replaced with a table, such as the frame it was made from.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// The rows that are drawn from, and how much each weighs: checked whole, then used by iterators without another look.
pub struct ActiveTable {
    num_rows: u64,
    pub(crate) rows: PhysicalRows,
    pub(crate) weights: RowWeights,
    attachment: Option<Attachment>,
    rows_digest: OnceLock<Sha256Digest>,
    weights_digest: OnceLock<Option<Sha256Digest>>,
}

/// The physical row of each active row.
pub(crate) enum PhysicalRows {
    /// One after the other, from this one on.
    From(u64),
    Owned(Box<[u32]>),
    /// 32-bit little-endian numbers in a mapped file.
    Mapped(Section),
}

/// The weight of each active row.
pub(crate) enum RowWeights {
    Equal,
    Given {
        values: WeightValues,
        /// What draws by them. Made when it is first asked for.
        table: OnceLock<Arc<Weights>>,
    },
}

/// Positive finite numbers, one for each row.
pub(crate) enum WeightValues {
    Shared(Arc<dyn AsRef<[f64]> + Send + Sync>),
    /// 64-bit little-endian floats in a mapped file.
    Mapped(Section),
}

impl WeightValues {
    #[inline]
    pub(crate) fn get(&self, row: usize) -> f64 {
        match self {
            Self::Shared(values) => (**values).as_ref()[row],
            Self::Mapped(section) => f64::from_le_bytes(section.as_ref().as_chunks().0[row]),
        }
    }
}

impl std::fmt::Debug for ActiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveTable").field("num_rows", &self.num_rows()).finish_non_exhaustive()
    }
}

impl ActiveTable {
    /// All rows of the catalog in order, with equal weights.
    pub(crate) fn whole(catalog: &Catalog) -> Self {
        Self::from_parts(catalog.num_rows(), PhysicalRows::From(0), RowWeights::Equal)
    }

    pub(crate) fn from_parts(num_rows: u64, rows: PhysicalRows, weights: RowWeights) -> Self {
        Self {
            num_rows,
            rows,
            weights,
            attachment: None,
            rows_digest: OnceLock::new(),
            weights_digest: OnceLock::new(),
        }
    }

    /// The rows with these identities, in this order, with these weights.
    ///
    /// # Errors
    /// `InvalidTable` when there are no rows, other than equally many, unknown identities, or weights that are not positive and
    /// finite; `TooManyRows`; `Interrupted` when `stop` said so.
    pub(crate) fn new(
        catalog: &Catalog,
        ids: impl ExactSizeIterator<Item = (u64, u64)>,
        weights: Arc<dyn AsRef<[f64]> + Send + Sync>,
        attachment: Option<Attachment>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        let num_rows = ids.len();
        if num_rows == 0 {
            return Err(invalid("it has no rows; at least one sample must stay"));
        }
        if num_rows as u64 > MAX_ROWS {
            return Err(ReadError::TooManyRows { rows: num_rows as u64 });
        }
        let values = (*weights).as_ref();
        if values.len() != num_rows {
            return Err(invalid(format!("{num_rows} rows with {} weights", values.len())));
        }
        let mut rows = Vec::with_capacity(num_rows);
        // Neighbours mostly come from one cache: look an identity up only when it changes.
        let mut known: Option<(u64, u64, u64)> = None;
        for (at, (cache_id, sample_id)) in ids.enumerate() {
            if at % ROWS_PER_LOOK == 0 && stop() {
                return Err(ReadError::Interrupted);
            }
            let (_, start, len) = match known {
                Some(found) if found.0 == cache_id => found,
                _ => {
                    let place = catalog.find(cache_id).ok_or_else(|| unknown(at, cache_id, sample_id))?;
                    let (start, len) = catalog.rows_of(place);
                    *known.insert((cache_id, start, len))
                }
            };
            if sample_id >= len {
                return Err(unknown(at, cache_id, sample_id));
            }
            rows.push((start + sample_id) as u32);
        }
        // Whether or not draws look at them, so that a table is good or bad whatever it is used for.
        if let Some((at, weight)) = values.iter().enumerate().find(|(_, weight)| !is_weight(**weight)) {
            return Err(invalid(format!("row {at} has weight {weight}, and weights are positive and finite")));
        }
        let rows = match rows[0] {
            first if rows.iter().enumerate().all(|(at, row)| u64::from(*row) == u64::from(first) + at as u64) => {
                PhysicalRows::From(u64::from(first))
            }
            _ => PhysicalRows::Owned(rows.into()),
        };
        let weights = if values.iter().all(|weight| *weight == values[0]) {
            RowWeights::Equal
        } else {
            RowWeights::Given { values: WeightValues::Shared(weights), table: OnceLock::new() }
        };
        Ok(Self { attachment, ..Self::from_parts(num_rows as u64, rows, weights) })
    }

    /// Some of the rows, in their order or in that of a permutation of all rows, with their weights.
    ///
    /// # Errors
    /// `InvalidTable` when the range is empty or goes beyond the rows.
    pub(crate) fn subset(&self, range: Range<u64>, permutation: Option<u64>) -> Result<Self, ReadError> {
        let Range { start, end } = range;
        if start >= end || end > self.num_rows {
            return Err(invalid(format!("rows {start} to {end} of {} are no part of it", self.num_rows)));
        }
        let len = end - start;
        let Some(seed) = permutation else {
            let rows = match &self.rows {
                PhysicalRows::From(first) => PhysicalRows::From(first + start),
                rows => PhysicalRows::Owned((start..end).map(|row| rows.get(row) as u32).collect()),
            };
            let weights = self.weights.gather(start..end)?;
            return Ok(Self::from_parts(len, rows, weights));
        };
        let mut order = vec![0; len as usize];
        SamplingPlan::permutation(self.num_rows, seed)?.fill(start, &mut order);
        let rows = order.iter().map(|row| self.physical(*row) as u32).collect();
        let weights = self.weights.gather(order.iter().copied())?;
        Ok(Self::from_parts(len, PhysicalRows::Owned(rows), weights))
    }

    /// How rows are drawn in an order.
    ///
    /// # Errors
    /// `Sampler`, which a checked table gives no reason for.
    pub fn plan(&self, order: Order, seed: u64) -> Result<SamplingPlan, ReadError> {
        Ok(match order {
            Order::Sequential => SamplingPlan::cyclic(self.num_rows)?,
            Order::Permutation => SamplingPlan::permutation(self.num_rows, seed)?,
            Order::Weighted => match self.weights.table(self.num_rows)? {
                None => SamplingPlan::uniform(self.num_rows, seed)?,
                Some(weights) => SamplingPlan::weighted(Arc::clone(weights), seed),
            },
        })
    }

    /// Active rows.
    pub fn num_rows(&self) -> u64 {
        self.num_rows
    }

    /// Do some rows weigh more than others?
    pub fn is_weighted(&self) -> bool {
        matches!(self.weights, RowWeights::Given { .. })
    }

    /// What was given with the table.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// The physical row of each active row; `None` when they follow each other, or lie in a file.
    pub(crate) fn rows(&self) -> Option<&[u32]> {
        match &self.rows {
            PhysicalRows::Owned(rows) => Some(rows),
            PhysicalRows::From(_) | PhysicalRows::Mapped(_) => None,
        }
    }

    /// The physical row of an active row.
    #[inline]
    pub(crate) fn physical(&self, row: u64) -> u64 {
        self.rows.get(row)
    }

    /// SHA-256 over the physical rows, as 32-bit little-endian numbers. Computed once.
    pub fn rows_digest(&self) -> Sha256Digest {
        *self.rows_digest.get_or_init(|| {
            let mut hasher = Sha256Hasher::new();
            match &self.rows {
                PhysicalRows::Mapped(section) => hasher.update(section.as_ref()),
                rows => {
                    let mut chunk = Vec::with_capacity(4 * CHUNK_ROWS as usize);
                    let mut start = 0;
                    while start < self.num_rows {
                        let end = self.num_rows.min(start + CHUNK_ROWS);
                        chunk.clear();
                        chunk.extend((start..end).flat_map(|row| (rows.get(row) as u32).to_le_bytes()));
                        hasher.update(&chunk);
                        start = end;
                    }
                }
            }
            hasher.finish()
        })
    }

    /// The weight of a row: 1 when all weights are equal.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn weight(&self, row: u64) -> f64 {
        assert!(row < self.num_rows, "row {row} of {}", self.num_rows);
        match &self.weights {
            RowWeights::Equal => 1.0,
            RowWeights::Given { values, .. } => values.get(row as usize),
        }
    }

    /// SHA-256 over what draws by weight depend on; `None` when the weights are equal. Computed once.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn weights_digest(&self) -> Result<Option<Sha256Digest>, ReadError> {
        if let Some(digest) = self.weights_digest.get() {
            return Ok(*digest);
        }
        let table = self.weights.table(self.num_rows)?;
        let digest = table.and_then(|weights| weights.table()).map(Sha256Hasher::digest);
        Ok(*self.weights_digest.get_or_init(|| digest))
    }
}

/// Rows that are digested at a time.
const CHUNK_ROWS: u64 = 16 * 1024;

impl PhysicalRows {
    #[inline]
    pub(crate) fn get(&self, row: u64) -> u64 {
        match self {
            Self::From(first) => first + row,
            Self::Owned(rows) => u64::from(rows[row as usize]),
            Self::Mapped(section) => u64::from(u32::from_le_bytes(section.as_ref().as_chunks().0[row as usize])),
        }
    }
}

impl RowWeights {
    /// The table that draws by the weights; `None` when they are equal.
    pub(crate) fn table(&self, num_rows: u64) -> Result<Option<&Arc<Weights>>, ReadError> {
        let Self::Given { values, table } = self else { return Ok(None) };
        if let Some(table) = table.get() {
            return Ok(Some(table));
        }
        let made = match values {
            WeightValues::Shared(values) => Weights::new((**values).as_ref()),
            WeightValues::Mapped(_) => Weights::from_values((0..num_rows as usize).map(|row| values.get(row))),
        };
        let made = Arc::new(made.map_err(|error| invalid(error.to_string()))?);
        Ok(Some(table.get_or_init(|| made)))
    }

    fn gather(&self, rows: impl Iterator<Item = u64>) -> Result<Self, ReadError> {
        let Self::Given { values, .. } = self else { return Ok(Self::Equal) };
        let gathered: Vec<f64> = rows.map(|row| values.get(row as usize)).collect();
        Ok(if gathered.iter().all(|weight| *weight == gathered[0]) {
            Self::Equal
        } else {
            Self::Given { values: WeightValues::Shared(Arc::new(gathered)), table: OnceLock::new() }
        })
    }
}

fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

fn invalid(reason: impl Into<String>) -> ReadError {
    ReadError::InvalidTable { reason: reason.into() }
}

fn unknown(at: usize, cache_id: u64, sample_id: u64) -> ReadError {
    invalid(format!("row {at} is (cache_id {cache_id}, sample_id {sample_id}), and no such sample is loaded"))
}
