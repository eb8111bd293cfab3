use std::any::Any;
use std::sync::Arc;

use drt_sampler::{SamplingPlan, Weights};

use crate::ReadError;
use crate::catalog::{Catalog, MAX_ROWS};

/// Something of the caller's that lives and is replaced with a table, such as the frame it was made from.
pub type Attachment = Arc<dyn Any + Send + Sync>;

/// The rows that are drawn from, and how: checked whole, then used by iterators without another look.
pub struct ActiveTable {
    plan: SamplingPlan,
    /// The physical row of each active row; `None` when they are the same.
    rows: Option<Box<[u32]>>,
    attachment: Option<Attachment>,
}

impl std::fmt::Debug for ActiveTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveTable").field("plan", &self.plan).field("rows", &self.num_rows()).finish_non_exhaustive()
    }
}

impl ActiveTable {
    /// All rows of the catalog in order, with equal weights.
    pub(crate) fn whole(catalog: &Catalog, seed: u64, shuffle: bool) -> Result<Self, ReadError> {
        let rows = catalog.num_rows();
        let plan = if shuffle { SamplingPlan::uniform(rows, seed)? } else { SamplingPlan::cyclic(rows)? };
        Ok(Self { plan, rows: None, attachment: None })
    }

    /// The rows with these identities, in this order, with these weights.
    ///
    /// # Errors
    /// `InvalidTable` when there are no rows, other than equally many, unknown identities, or weights that are not positive and
    /// finite; `TooManyRows`.
    pub(crate) fn new(
        catalog: &Catalog,
        seed: u64,
        shuffle: bool,
        ids: impl ExactSizeIterator<Item = (u64, u64)>,
        weights: &[f64],
        attachment: Option<Attachment>,
    ) -> Result<Self, ReadError> {
        let invalid = |reason: String| ReadError::InvalidTable { reason };
        let num_rows = ids.len();
        if num_rows == 0 {
            return Err(invalid("it has no rows; at least one sample must stay".into()));
        }
        if num_rows as u64 > MAX_ROWS {
            return Err(ReadError::TooManyRows { rows: num_rows as u64 });
        }
        if weights.len() != num_rows {
            return Err(invalid(format!("{num_rows} rows with {} weights", weights.len())));
        }
        let mut rows = Vec::with_capacity(num_rows);
        // Neighbours mostly come from one cache: look an identity up only when it changes.
        let mut known: Option<(u64, u64, u64)> = None;
        for (at, (cache_id, sample_id)) in ids.enumerate() {
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
        // Checked in both modes, so that a table is good or bad whatever it is used for.
        let plan = if shuffle {
            let weights = Weights::new(weights).map_err(|error| invalid(error.to_string()))?;
            SamplingPlan::weighted(weights, seed)
        } else {
            if let Some((at, weight)) = weights.iter().enumerate().find(|(_, weight)| !is_weight(**weight)) {
                return Err(invalid(format!("row {at} has weight {weight}, and weights are positive and finite")));
            }
            SamplingPlan::cyclic(num_rows as u64)?
        };
        let in_order =
            rows.len() as u64 == catalog.num_rows() && rows.iter().enumerate().all(|(at, row)| at == *row as usize);
        Ok(Self { plan, rows: (!in_order).then(|| rows.into()), attachment })
    }

    /// How rows are drawn.
    pub fn plan(&self) -> &SamplingPlan {
        &self.plan
    }

    /// Active rows.
    pub fn num_rows(&self) -> u64 {
        self.plan.population()
    }

    /// What was given with the table.
    pub fn attachment(&self) -> Option<&Attachment> {
        self.attachment.as_ref()
    }

    /// The physical row of an active row.
    #[inline]
    pub(crate) fn physical(&self, row: u64) -> u64 {
        self.rows.as_ref().map_or(row, |rows| u64::from(rows[row as usize]))
    }
}

fn is_weight(weight: f64) -> bool {
    weight.is_finite() && weight > 0.0
}

fn unknown(at: usize, cache_id: u64, sample_id: u64) -> ReadError {
    ReadError::InvalidTable {
        reason: format!("row {at} is (cache_id {cache_id}, sample_id {sample_id}), and no such sample is loaded"),
    }
}
