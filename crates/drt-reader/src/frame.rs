//! The metadata table as a Polars frame.

use polars_core::datatypes::DataType;
use polars_core::frame::DataFrame;
use polars_core::frame::column::Column;
use polars_core::prelude::{Float64Chunked, NamedFrom, PlSmallStr, PolarsError, UInt64Chunked};
use polars_core::series::Series;

use std::borrow::Cow;
use std::sync::Arc;

use drt_format::MetadataKind;

use crate::table::{ActiveTable, Attachment};
use crate::{Cache, CachedDataset, IgnoredColumn, ReadError};

/// Columns of a table that are not the caches'.
const CACHE_ID: &str = "cache_id";
const SAMPLE_ID: &str = "sample_id";
const WEIGHT: &str = "weight";

/// A frame that was found to be good.
#[derive(Debug)]
pub struct PreparedTable<'a> {
    /// The table to activate.
    pub table: Arc<ActiveTable>,
    /// Stored columns whose values are other ones in the frame.
    pub ignored: Vec<IgnoredColumn<'a>>,
}

impl CachedDataset {
    /// The metadata of all samples as it is stored: `cache_id`, `sample_id`, the stored columns, and `weight` (1.0). One chunk
    /// per cache; numbers are views into the mapped files. Built once, then shared.
    ///
    /// # Errors
    /// `Metadata` when a cache's table has nulls or bad text, `Unrepresentable` when its column names make no frame.
    pub fn stored_metadata(&self) -> Result<DataFrame, ReadError> {
        if let Some(frame) = self.frame.get() {
            return Ok(frame.clone());
        }
        let frame = self.build_frame()?;
        Ok(self.frame.get_or_init(|| frame).clone())
    }

    fn build_frame(&self) -> Result<DataFrame, ReadError> {
        let caches = self.catalog().caches();
        let first = &caches[0];
        let unrepresentable = |reason: String| ReadError::Unrepresentable { path: first.path().to_owned(), reason };
        for field in self.schema().fields() {
            if [CACHE_ID, SAMPLE_ID, WEIGHT].contains(&field.name.as_str()) {
                return Err(unrepresentable(format!(
                    "a stored column is called {:?} like the table's own",
                    field.name
                )));
            }
            if field.name.contains('\0') {
                return Err(unrepresentable(format!("the column name {:?} contains the NUL character", field.name)));
            }
        }
        let mut columns: Vec<Series> = Vec::new();
        for cache in caches {
            let more = cache_columns(cache)?;
            if columns.is_empty() {
                columns = more;
            } else {
                for (column, more) in columns.iter_mut().zip(&more) {
                    column.append(more).map_err(|error| unrepresentable(error.to_string()))?;
                }
            }
        }
        DataFrame::new_infer_height(columns.into_iter().map(Column::from).collect())
            .map_err(|error| unrepresentable(error.to_string()))
    }

    /// Make a frame the active table. Its `cache_id`, `sample_id`, stored columns and `weight` must be there with the right
    /// types; rows may be dropped, repeated and reordered, and columns added. Returns the stored columns whose values are other
    /// ones in the frame: samples keep theirs.
    ///
    /// `attachment` is kept with the table. Without one the frame itself is, for [`metadata`](Self::metadata).
    ///
    /// # Errors
    /// `InvalidTable` naming the column or row, `TooManyRows`; nothing changes then.
    pub fn update_metadata(
        &self,
        frame: &DataFrame,
        attachment: Option<Attachment>,
    ) -> Result<Vec<IgnoredColumn<'_>>, ReadError> {
        let PreparedTable { table, ignored } = self.prepare_metadata(frame, attachment, &mut || false)?;
        self.activate(table)?;
        Ok(ignored)
    }

    /// Check a frame as [`update_metadata`](Self::update_metadata) does, to [`activate`](Self::activate) it later. `stop` is
    /// asked now and then whether to give up.
    ///
    /// # Errors
    /// As [`update_metadata`](Self::update_metadata), and `Interrupted`.
    pub fn prepare_metadata(
        &self,
        frame: &DataFrame,
        attachment: Option<Attachment>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<PreparedTable<'_>, ReadError> {
        let missing = |name: &str| invalid(format!("the column {name:?} is missing"));
        let column = |name: &str| frame.column(name).map_err(|_| missing(name));
        let (cache_ids, sample_ids) = (identity(column(CACHE_ID)?)?, identity(column(SAMPLE_ID)?)?);
        for field in self.schema().fields() {
            let found = column(&field.name)?.dtype();
            let expected = data_type(field.kind);
            if *found != expected {
                return Err(invalid(format!(
                    "the stored column {:?} has type {found} and must keep its type {expected}",
                    field.name
                )));
            }
        }
        let weights = weights(column(WEIGHT)?)?;
        let ids = cache_ids.iter().copied().zip(sample_ids.iter().copied());
        let attachment = attachment.unwrap_or_else(|| Arc::new(frame.clone()));
        let table = self.prepare_table(ids, weights, Some(attachment), stop)?;
        let ignored = self.ignored_columns(frame, &table, stop)?;
        Ok(PreparedTable { table, ignored })
    }

    /// The active table as a frame: the one last given to [`update_metadata`](Self::update_metadata), or the stored one.
    ///
    /// # Errors
    /// As [`stored_metadata`](Self::stored_metadata).
    pub fn metadata(&self) -> Result<DataFrame, ReadError> {
        match self.table().attachment().and_then(|attachment| attachment.downcast_ref::<DataFrame>()) {
            Some(frame) => Ok(frame.clone()),
            None => self.stored_metadata(),
        }
    }
}

fn invalid(reason: String) -> ReadError {
    ReadError::InvalidTable { reason }
}

fn data_type(kind: MetadataKind) -> DataType {
    match kind {
        MetadataKind::Bool => DataType::Boolean,
        MetadataKind::Int => DataType::Int64,
        MetadataKind::Float => DataType::Float64,
        MetadataKind::String => DataType::String,
    }
}

fn cache_columns(cache: &Cache) -> Result<Vec<Series>, ReadError> {
    let rows = cache.num_samples();
    let mut columns = vec![
        Series::new(CACHE_ID.into(), vec![cache.id().get(); rows as usize]),
        Series::new(SAMPLE_ID.into(), (0..rows).collect::<Vec<u64>>()),
    ];
    let batches =
        cache.metadata().arrays().map_err(|source| ReadError::Metadata { path: cache.metadata_path(), source })?;
    for (position, field) in cache.schema().fields().iter().enumerate() {
        let chunks: Vec<_> = batches.iter().map(|batch| batch[position].clone()).collect();
        let name = field.name.as_str();
        let column = if chunks.is_empty() {
            Ok(Series::new_empty(name.into(), &data_type(field.kind)))
        } else {
            Series::try_from((PlSmallStr::from_str(name), chunks))
        };
        columns.push(column.map_err(|error: PolarsError| ReadError::Unrepresentable {
            path: cache.path().to_owned(),
            reason: error.to_string(),
        })?);
    }
    columns.push(Series::new(WEIGHT.into(), vec![1.0f64; rows as usize]));
    Ok(columns)
}

/// The values of an identity column. Integers of 32 and 64 bits are accepted.
fn identity(column: &Column) -> Result<Cow<'_, [u64]>, ReadError> {
    let name = column.name();
    if !matches!(column.dtype(), DataType::Int32 | DataType::Int64 | DataType::UInt32 | DataType::UInt64) {
        let found = column.dtype();
        return Err(invalid(format!("the column {name:?} has type {found} and must be a 32- or 64-bit integer")));
    }
    let series = column.as_materialized_series();
    if let Ok(values) = series.u64().and_then(UInt64Chunked::cont_slice) {
        return Ok(Cow::Borrowed(values));
    }
    let wide = if column.dtype() == &DataType::UInt64 {
        series.clone()
    } else {
        // Negative numbers become null here and are told apart from real nulls below.
        series.cast(&DataType::UInt64).map_err(|error| invalid(error.to_string()))?
    };
    let values: &UInt64Chunked = wide.u64().map_err(|error| invalid(error.to_string()))?;
    if values.null_count() > 0 {
        let at = values.iter().position(|value| value.is_none()).unwrap_or(0);
        let what = if series.null_count() > 0 { "null" } else { "negative" };
        return Err(invalid(format!("row {at} has a {what} {name}")));
    }
    Ok(Cow::Owned(values.into_no_null_iter().collect()))
}

/// A column of weights, in one piece and without nulls.
struct WeightColumn(Float64Chunked);

impl AsRef<[f64]> for WeightColumn {
    fn as_ref(&self) -> &[f64] {
        self.0.cont_slice().expect("made of one piece without nulls")
    }
}

fn weights(column: &Column) -> Result<WeightColumn, ReadError> {
    let numeric = matches!(
        column.dtype(),
        DataType::Float64 | DataType::Float32 | DataType::Int32 | DataType::Int64 | DataType::UInt32 | DataType::UInt64
    );
    if !numeric {
        return Err(invalid(format!("the column \"weight\" has type {} and must be numeric", column.dtype())));
    }
    let series = column.as_materialized_series();
    let series = series.cast(&DataType::Float64).map_err(|error| invalid(error.to_string()))?;
    let values: &Float64Chunked = series.f64().map_err(|error| invalid(error.to_string()))?;
    if let Some(at) = values.iter().position(|value| value.is_none()).filter(|_| values.null_count() > 0) {
        return Err(invalid(format!("row {at} has a null weight")));
    }
    Ok(WeightColumn(values.rechunk().into_owned()))
}
