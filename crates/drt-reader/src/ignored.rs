//! Which values of a table's stored columns differ from the caches': samples keep theirs, so somebody should say so.

use drt_format::{CacheId, MetadataValue};
use drt_metadata::Column;
use polars_core::frame::DataFrame;
use polars_core::series::Series;
use polars_core::utils::arrow::array::{Array, BooleanArray, PrimitiveArray, Utf8ViewArray, View};
use polars_core::utils::arrow::bitmap::Bitmap;

use crate::table::ROWS_PER_LOOK;
use crate::{ActiveTable, CachedDataset, ReadError};

/// Rows whose places are looked up together, for all columns.
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
        let caches = self.catalog().caches();
        // A table with nulls is never shown, so nobody has its values.
        if caches.iter().any(|cache| cache.metadata().has_nulls()) {
            return Ok(Vec::new());
        }
        let shown = self.frame.get();
        let mut starts = vec![0];
        let mut segments: Vec<&[Column]> = Vec::new();
        for (rows, columns) in caches.iter().flat_map(|cache| cache.metadata().batches()) {
            starts.push(starts[starts.len() - 1] + (rows.end - rows.start));
            segments.push(columns);
        }

        let mut compared = Vec::new();
        for (position, field) in self.schema().fields().iter().enumerate() {
            let Ok(given) = frame.column(&field.name) else { continue };
            let given = given.as_materialized_series();
            let shown =
                shown.and_then(|shown| shown.column(&field.name).ok()).map(|shown| shown.as_materialized_series());
            let in_order = table.rows().is_none();
            if !shown.is_some_and(|shown| in_order && is_same_memory(given, shown))
                && let Some(values) = Values::of(given, &segments, position, shown)
            {
                compared.push(Compared { position, values, array: 0, array_start: 0, found: None });
            }
        }

        let (mut places, mut at) = (Places::default(), 0);
        let num_rows = table.num_rows() as usize;
        while at < num_rows && compared.iter().any(|column| column.found.is_none()) {
            if at.is_multiple_of(ROWS_PER_LOOK) && stop() {
                return Err(ReadError::Interrupted);
            }
            let end = num_rows.min(at + PIECE);
            places.find(&starts, (at..end).map(|row| table.physical(row as u64)));
            for column in compared.iter_mut().filter(|column| column.found.is_none()) {
                column.compare(at, &places);
            }
            at = end;
        }

        let ignored = compared.into_iter().filter_map(|Compared { position, found, .. }| {
            let row = found?;
            let (place, sample_id) = self.catalog().locate(table.physical(row as u64));
            let cache = &caches[place as usize];
            let (columns, local) = cache.columns(sample_id);
            // Text that cannot be read is nobody's to compare with.
            let stored = columns[position].value(local)?;
            let name = &self.schema().fields()[position].name;
            Some(IgnoredColumn { name, row, cache_id: cache.id(), sample_id, stored })
        });
        Ok(ignored.collect())
    }
}

/// Where some rows are stored: which batch of all caches', and which row in it.
#[derive(Default)]
struct Places {
    segments: Vec<u32>,
    rows: Vec<u32>,
}

impl Places {
    /// `starts` has the first physical row of each segment, then the number of rows.
    fn find(&mut self, starts: &[u64], rows: impl Iterator<Item = u64>) {
        self.segments.clear();
        self.rows.clear();
        let mut segment = 0;
        for row in rows {
            // Neighbours mostly lie in one segment.
            if !(starts[segment]..starts[segment + 1]).contains(&row) {
                segment = starts.partition_point(|start| *start <= row) - 1;
            }
            self.segments.push(segment as u32);
            self.rows.push((row - starts[segment]) as u32);
        }
    }
}

/// A column of a table beside what is stored: its arrays, and one stored slice a segment.
enum Values<'a> {
    Int(Vec<&'a PrimitiveArray<i64>>, Vec<&'a [i64]>),
    Float(Vec<&'a PrimitiveArray<f64>>, Vec<&'a [f64]>),
    Bool(Vec<&'a BooleanArray>, Vec<&'a Bitmap>),
    Text(Vec<&'a Utf8ViewArray>, Vec<StoredText<'a>>),
}

struct StoredText<'a> {
    column: &'a Column,
    text: &'a [u8],
    /// The views in which the text was handed out, if it was.
    views: Option<&'a [View]>,
}

impl<'a> Values<'a> {
    fn of(given: &'a Series, segments: &[&'a [Column]], position: usize, shown: Option<&'a Series>) -> Option<Self> {
        fn stored<'a, T>(
            segments: &[&'a [Column]],
            position: usize,
            take: impl Fn(&'a Column) -> Option<T>,
        ) -> Option<Vec<T>> {
            segments.iter().map(|columns| take(&columns[position])).collect()
        }
        if let Ok(given) = given.i64() {
            let take =
                |column: &'a Column| if let Column::Int(values) = column { Some(values.as_slice()) } else { None };
            Some(Self::Int(given.downcast_iter().collect(), stored(segments, position, take)?))
        } else if let Ok(given) = given.f64() {
            let take =
                |column: &'a Column| if let Column::Float(values) = column { Some(values.as_slice()) } else { None };
            Some(Self::Float(given.downcast_iter().collect(), stored(segments, position, take)?))
        } else if let Ok(given) = given.bool() {
            let take = |column: &'a Column| if let Column::Bool(bits) = column { Some(bits) } else { None };
            Some(Self::Bool(given.downcast_iter().collect(), stored(segments, position, take)?))
        } else if let Ok(given) = given.str() {
            let take = |column: &'a Column| match column {
                Column::String { text, .. } => Some(StoredText { column, text: text.as_slice(), views: None }),
                _ => None,
            };
            let mut stored = stored(segments, position, take)?;
            if let Some(Ok(shown)) = shown.map(|shown| shown.str())
                && shown.downcast_iter().count() == stored.len()
            {
                for (stored, array) in stored.iter_mut().zip(shown.downcast_iter()) {
                    stored.views = Some(array.views().as_slice());
                }
            }
            Some(Self::Text(given.downcast_iter().collect(), stored))
        } else {
            None
        }
    }

    /// Rows of an array; 0 behind the last.
    fn len(&self, array: usize) -> usize {
        match self {
            Self::Int(given, _) => given.get(array).map_or(0, |array| array.len()),
            Self::Float(given, _) => given.get(array).map_or(0, |array| array.len()),
            Self::Bool(given, _) => given.get(array).map_or(0, |array| array.len()),
            Self::Text(given, _) => given.get(array).map_or(0, |array| array.len()),
        }
    }

    /// The first of some rows of an array, from `start` on, that is another value than the one stored at its place.
    fn first_difference(&self, array: usize, start: usize, segments: &[u32], rows: &[u32]) -> Option<usize> {
        let places = || segments.iter().zip(rows).map(|(segment, row)| (*segment as usize, *row as usize));
        let first_null =
            |valid: Option<&Bitmap>| valid.and_then(|valid| (0..rows.len()).find(|at| !valid.get_bit(start + at)));
        // All rows are compared without a branch first, so that the memory accesses of one overlap with those of the next.
        match self {
            Self::Int(given, stored) => {
                let values = &given[array].values().as_slice()[start..][..rows.len()];
                let pairs = || places().zip(values);
                let differ = pairs().fold(0, |differ, ((segment, row), value)| differ | (stored[segment][row] ^ value));
                let first =
                    (differ != 0).then(|| pairs().position(|((segment, row), value)| stored[segment][row] != *value));
                first_of(first.flatten(), first_null(given[array].validity()))
            }
            Self::Float(given, stored) => {
                let values = &given[array].values().as_slice()[start..][..rows.len()];
                let pairs = || places().zip(values.iter().map(|value| value.to_bits()));
                let bits = |segment: usize, row: usize| stored[segment][row].to_bits();
                let differ = pairs().fold(0, |differ, ((segment, row), value)| differ | (bits(segment, row) ^ value));
                let first =
                    (differ != 0).then(|| pairs().position(|((segment, row), value)| bits(segment, row) != value));
                first_of(first.flatten(), first_null(given[array].validity()))
            }
            Self::Bool(given, stored) => {
                let values = given[array].values();
                let first = places()
                    .zip(start..)
                    .position(|((segment, row), at)| stored[segment].get_bit(row) != values.get_bit(at));
                first_of(first, first_null(given[array].validity()))
            }
            Self::Text(given, stored) => {
                let array = given[array];
                let first = places().zip(start..).position(|((segment, row), at)| !stored[segment].is(row, array, at));
                first_of(first, first_null(array.validity()))
            }
        }
    }
}

/// The smaller of two places, where there are any.
fn first_of(one: Option<usize>, other: Option<usize>) -> Option<usize> {
    one.into_iter().chain(other).min()
}

impl StoredText<'_> {
    /// Is the stored text of a row an array's text?
    #[inline]
    fn is(&self, row: usize, array: &Utf8ViewArray, at: usize) -> bool {
        if let Some(views) = self.views {
            let (stored, given) = (&views[row], &array.views()[at]);
            if (stored.length, stored.prefix) != (given.length, given.prefix) {
                return false;
            }
            if stored.is_inline() {
                return (stored.buffer_idx, stored.offset) == (given.buffer_idx, given.offset);
            }
            // What was taken out of the stored table still points to its text.
            let buffer = &array.data_buffers()[given.buffer_idx as usize];
            if std::ptr::eq(buffer.as_ptr(), self.text.as_ptr()) && stored.offset == given.offset {
                return true;
            }
        }
        // Text that cannot be read was never shown to anybody.
        self.column.text(row).is_none_or(|stored| stored == array.value(at).as_bytes())
    }
}

/// A column that is being compared, piece by piece.
struct Compared<'a> {
    position: usize,
    values: Values<'a>,
    /// The array that the next rows are in, and the table's row that it begins with.
    array: usize,
    array_start: usize,
    /// The first row with another value.
    found: Option<usize>,
}

impl Compared<'_> {
    /// Compare the table's rows from `start` on with what is at their places.
    fn compare(&mut self, start: usize, places: &Places) {
        let (mut done, len) = (0, places.rows.len());
        while done < len {
            let within = start + done - self.array_start;
            let take = (len - done).min(self.values.len(self.array).saturating_sub(within));
            if take > 0 {
                let (segments, rows) = (&places.segments[done..][..take], &places.rows[done..][..take]);
                if let Some(first) = self.values.first_difference(self.array, within, segments, rows) {
                    self.found = Some(start + done + first);
                    return;
                }
            }
            done += take;
            if done < len {
                self.array_start += self.values.len(self.array);
                self.array += 1;
            }
        }
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
