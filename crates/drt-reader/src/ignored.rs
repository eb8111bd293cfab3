//! Which values of a table's stored columns differ from the caches': samples keep theirs, so somebody should say so.

use std::ops::Range;

use drt_format::{CacheId, MetadataValue};
use drt_metadata::Column;
use polars_core::frame::DataFrame;
use polars_core::series::Series;

use crate::table::ROWS_PER_LOOK;
use crate::{ActiveTable, CachedDataset, ReadError};

/// Rows that are looked at together: when they follow each other in a cache too, whole stretches are compared.
const PIECE: usize = 1024;

/// A stored column that a table has other values in than the caches. The samples keep the caches' values.
#[derive(Debug, Clone, PartialEq)]
pub struct IgnoredColumn<'a> {
    /// The column.
    pub name: &'a str,
    /// The table's first row that differs.
    pub row: usize,
    /// The cache of that row.
    pub cache_id: CacheId,
    /// The sample of that row.
    pub sample_id: u64,
    /// What the cache holds, and the sample will have.
    pub stored: MetadataValue<'a>,
}

/// Rows of one batch of one cache, as physical rows of the catalog.
struct Segment<'a> {
    rows: Range<u64>,
    columns: &'a [Column],
}

/// The stored values of all caches.
struct Stored<'a>(Vec<Segment<'a>>);

impl<'a> Stored<'a> {
    fn of(dataset: &'a CachedDataset) -> Self {
        let mut segments = Vec::new();
        let mut start = 0;
        for cache in dataset.catalog().caches() {
            let table = cache.metadata();
            for (rows, columns) in table.batches() {
                // A table with nulls is never shown, so nobody has its values.
                if !table.has_nulls() {
                    segments.push(Segment { rows: start + rows.start..start + rows.end, columns });
                }
            }
            start += cache.num_samples();
        }
        Self(segments)
    }

    /// The segment of a physical row: most often the one of the row before.
    #[inline]
    fn find(&self, row: u64, last: usize) -> Option<usize> {
        if self.0.get(last).is_some_and(|segment| segment.rows.contains(&row)) {
            return Some(last);
        }
        let found = self.0.partition_point(|segment| segment.rows.end <= row);
        self.0.get(found).filter(|segment| segment.rows.contains(&row)).map(|_| found)
    }
}

impl CachedDataset {
    /// The stored columns in which a frame has other values than the caches, each with its first such row. Nulls are other
    /// values; floats are compared by their bits. `table` was made of the frame's identities.
    ///
    /// # Errors
    /// `Interrupted` when `stop` said so.
    pub(crate) fn ignored_columns(
        &self,
        frame: &DataFrame,
        table: &ActiveTable,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Vec<IgnoredColumn<'_>>, ReadError> {
        let stored = Stored::of(self);
        let shown = self.frame.get().filter(|shown| table.rows().is_none() && shown.height() == frame.height());
        let mut ignored = Vec::new();
        for (position, field) in self.schema().fields().iter().enumerate() {
            let Ok(column) = frame.column(&field.name) else { continue };
            let series = column.as_materialized_series();
            let as_shown = shown.and_then(|shown| shown.column(&field.name).ok());
            if as_shown.is_some_and(|shown| is_same_memory(series, shown.as_materialized_series())) {
                continue;
            }
            if let Some(row) = first_difference(series, position, table, &stored, stop)? {
                let (place, sample_id) = self.catalog().locate(table.physical(row as u64));
                let cache = &self.catalog().caches()[place as usize];
                let (columns, local) = cache.columns(sample_id);
                // Text that cannot be read was not compared.
                let Some(value) = columns[position].value(local) else { continue };
                ignored.push(IgnoredColumn { name: &field.name, row, cache_id: cache.id(), sample_id, stored: value });
            }
        }
        Ok(ignored)
    }
}

/// Is a column the very memory that the stored table was handed out in?
fn is_same_memory(series: &Series, shown: &Series) -> bool {
    let has_no_nulls = series.null_count() == 0;
    if let (Ok(a), Ok(b)) = (series.i64(), shown.i64()) {
        has_no_nulls
            && all_equal(a.downcast_iter(), b.downcast_iter(), |array| array.values().as_slice().as_ptr_range())
    } else if let (Ok(a), Ok(b)) = (series.f64(), shown.f64()) {
        has_no_nulls
            && all_equal(a.downcast_iter(), b.downcast_iter(), |array| array.values().as_slice().as_ptr_range())
    } else if let (Ok(a), Ok(b)) = (series.bool(), shown.bool()) {
        let place = |bytes: (&[u8], usize, usize)| (bytes.0.as_ptr_range(), bytes.1, bytes.2);
        has_no_nulls && all_equal(a.downcast_iter(), b.downcast_iter(), |array| place(array.values().as_slice()))
    } else if let (Ok(a), Ok(b)) = (series.str(), shown.str()) {
        let same_texts = all_equal(a.downcast_iter(), b.downcast_iter(), |array| {
            array.data_buffers().iter().map(|buffer| buffer.as_slice().as_ptr_range()).collect::<Vec<_>>()
        });
        let same_views =
            all_equal(a.downcast_iter(), b.downcast_iter(), |array| array.views().as_slice().as_ptr_range());
        has_no_nulls && same_texts && same_views
    } else {
        false
    }
}

/// Do two lists of arrays have equal keys?
fn all_equal<A, K: PartialEq>(
    one: impl Iterator<Item = A>,
    other: impl Iterator<Item = A>,
    key: impl Fn(A) -> K,
) -> bool {
    one.map(&key).eq(other.map(&key))
}

/// The first row in which a column has another value than the caches.
fn first_difference(
    series: &Series,
    position: usize,
    table: &ActiveTable,
    stored: &Stored<'_>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Option<usize>, ReadError> {
    let mut walk = Walk { position, table, stored, stop, segment: 0, start: 0 };
    let mut found = None;
    if let Ok(values) = series.i64() {
        for array in values.downcast_iter() {
            let values = array.values().as_slice();
            let stretch = |column: &Column, from: usize, at: Range<usize>| match column {
                Column::Int(stored) => stored[from..][..at.len()] == values[at],
                _ => false,
            };
            let one = |column: &Column, local: usize, at: usize| match column {
                Column::Int(stored) => stored[local] == values[at],
                _ => false,
            };
            let is_null = |at: usize| array.validity().is_some_and(|valid| !valid.get_bit(at));
            found = walk.next(array.len(), array.validity().is_some(), stretch, one, is_null)?;
            if found.is_some() {
                break;
            }
        }
    } else if let Ok(values) = series.f64() {
        for array in values.downcast_iter() {
            let values = array.values().as_slice();
            let stretch = |column: &Column, from: usize, at: Range<usize>| match column {
                Column::Float(stored) => {
                    stored[from..][..at.len()].iter().zip(&values[at]).all(|(a, b)| a.to_bits() == b.to_bits())
                }
                _ => false,
            };
            let one = |column: &Column, local: usize, at: usize| match column {
                Column::Float(stored) => stored[local].to_bits() == values[at].to_bits(),
                _ => false,
            };
            let is_null = |at: usize| array.validity().is_some_and(|valid| !valid.get_bit(at));
            found = walk.next(array.len(), array.validity().is_some(), stretch, one, is_null)?;
            if found.is_some() {
                break;
            }
        }
    } else if let Ok(values) = series.bool() {
        for array in values.downcast_iter() {
            let values = array.values();
            let one = |column: &Column, local: usize, at: usize| match column {
                Column::Bool(stored) => stored.get_bit(local) == values.get_bit(at),
                _ => false,
            };
            let stretch = |column: &Column, from: usize, at: Range<usize>| {
                (from..).zip(at).all(|(local, at)| one(column, local, at))
            };
            let is_null = |at: usize| array.validity().is_some_and(|valid| !valid.get_bit(at));
            found = walk.next(array.len(), array.validity().is_some(), stretch, one, is_null)?;
            if found.is_some() {
                break;
            }
        }
    } else if let Ok(values) = series.str() {
        for array in values.downcast_iter() {
            // What was cut out of the stored table still points to its text.
            let one = |column: &Column, local: usize, at: usize| match (column.text(local), array.get(at)) {
                (Some(stored), Some(value)) => {
                    stored.len() == value.len()
                        && (std::ptr::eq(stored.as_ptr(), value.as_ptr()) || stored == value.as_bytes())
                }
                // Text that cannot be read was never shown to anybody.
                (None, value) => value.is_some(),
                (Some(_), None) => false,
            };
            let stretch = |column: &Column, from: usize, at: Range<usize>| {
                (from..).zip(at).all(|(local, at)| one(column, local, at))
            };
            found = walk.next(array.len(), false, stretch, one, |_| false)?;
            if found.is_some() {
                break;
            }
        }
    }
    Ok(found)
}

/// A walk over one column, array by array.
struct Walk<'a, 'b> {
    position: usize,
    table: &'a ActiveTable,
    stored: &'a Stored<'b>,
    stop: &'a mut dyn FnMut() -> bool,
    /// The segment of the last row.
    segment: usize,
    /// The table's row that the next array begins with.
    start: usize,
}

impl Walk<'_, '_> {
    /// Walk over the next array; the table's row of its first value that is another one.
    ///
    /// `stretch` compares stored rows from one on with a range of the array, `one` a stored row with a row of the array.
    fn next(
        &mut self,
        len: usize,
        may_have_nulls: bool,
        stretch: impl Fn(&Column, usize, Range<usize>) -> bool,
        one: impl Fn(&Column, usize, usize) -> bool,
        is_null: impl Fn(usize) -> bool,
    ) -> Result<Option<usize>, ReadError> {
        let start = self.start;
        self.start += len;
        for piece in (0..len).step_by(PIECE) {
            if (piece / PIECE).is_multiple_of(ROWS_PER_LOOK / PIECE) && (self.stop)() {
                return Err(ReadError::Interrupted);
            }
            let piece = piece..len.min(piece + PIECE);
            let first = self.table.physical((start + piece.start) as u64);
            let last = first + piece.len() as u64 - 1;
            let follow_each_other = match self.table.rows() {
                None => true,
                Some(rows) => rows[start + piece.start..start + piece.end]
                    .windows(2)
                    .fold(true, |yes, pair| yes & (pair[0].wrapping_add(1) == pair[1])),
            };
            if !may_have_nulls
                && follow_each_other
                && let Some(found) = self.stored.find(first, self.segment)
                && self.stored.0[found].rows.contains(&last)
            {
                self.segment = found;
                let Segment { rows, columns } = &self.stored.0[found];
                if stretch(&columns[self.position], (first - rows.start) as usize, piece.clone()) {
                    continue;
                }
            }
            for at in piece {
                let row = self.table.physical((start + at) as u64);
                let Some(found) = self.stored.find(row, self.segment) else { continue };
                self.segment = found;
                let Segment { rows, columns } = &self.stored.0[found];
                if is_null(at) || !one(&columns[self.position], (row - rows.start) as usize, at) {
                    return Ok(Some(start + at));
                }
            }
        }
        Ok(None)
    }
}
