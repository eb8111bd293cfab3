use std::io::{self, Write};
use std::sync::Arc;

use drt_format::{MetadataField, MetadataKind, MetadataSchema, MetadataValue};
use polars_arrow::array::{Array, BooleanArray, PrimitiveArray, Utf8Array};
use polars_arrow::bitmap::Bitmap;
use polars_arrow::datatypes::{ArrowDataType, ArrowSchema, Field};
use polars_arrow::io::ipc::write::{FileWriter, WriteOptions};
use polars_arrow::offset::OffsetsBuffer;
use polars_arrow::record_batch::RecordBatchT;

use crate::MetadataError;

/// The values of one column, appended row by row.
#[derive(Debug, Clone)]
pub enum ColumnBuilder {
    /// A byte a row while building; a bit a row in the file.
    Bool(Vec<bool>),
    /// 64-bit signed integers.
    Int(Vec<i64>),
    /// 64-bit floats, bits kept as they are.
    Float(Vec<f64>),
    /// All text in one piece; `ends[i]` is where row `i`'s text ends in it.
    String {
        /// Ends of the rows' texts.
        ends: Vec<i32>,
        /// The rows' texts, joined.
        text: String,
    },
}

impl ColumnBuilder {
    /// An empty column.
    pub fn new(kind: MetadataKind) -> Self {
        match kind {
            MetadataKind::Bool => Self::Bool(Vec::new()),
            MetadataKind::Int => Self::Int(Vec::new()),
            MetadataKind::Float => Self::Float(Vec::new()),
            MetadataKind::String => Self::String { ends: Vec::new(), text: String::new() },
        }
    }

    /// What the column holds.
    pub fn kind(&self) -> MetadataKind {
        match self {
            Self::Bool(_) => MetadataKind::Bool,
            Self::Int(_) => MetadataKind::Int,
            Self::Float(_) => MetadataKind::Float,
            Self::String { .. } => MetadataKind::String,
        }
    }

    /// The value of a row that was pushed.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn get(&self, row: usize) -> MetadataValue<'_> {
        match self {
            Self::Bool(values) => MetadataValue::Bool(values[row]),
            Self::Int(values) => MetadataValue::Int(values[row]),
            Self::Float(values) => MetadataValue::Float(values[row]),
            Self::String { ends, text } => {
                let start = if row == 0 { 0 } else { ends[row - 1] as usize };
                MetadataValue::String(&text[start..ends[row] as usize])
            }
        }
    }

    /// Append a value of the column's kind; anything else comes back as an error with nothing appended.
    #[inline]
    fn push(&mut self, value: MetadataValue<'_>, name: &str) -> Result<(), MetadataError> {
        match (self, value) {
            (Self::Bool(values), MetadataValue::Bool(value)) => values.push(value),
            (Self::Int(values), MetadataValue::Int(value)) => values.push(value),
            (Self::Float(values), MetadataValue::Float(value)) => values.push(value),
            (Self::String { ends, text }, MetadataValue::String(value)) => {
                let end = i32::try_from(text.len() + value.len())
                    .map_err(|_| MetadataError::TextTooLong { column: name.to_owned(), len: value.len() })?;
                text.push_str(value);
                ends.push(end);
            }
            (column, value) => {
                return Err(MetadataError::KindMismatch {
                    column: name.to_owned(),
                    expected: column.kind(),
                    found: value.kind(),
                });
            }
        }
        Ok(())
    }

    fn truncate(&mut self, rows: usize) {
        match self {
            Self::Bool(values) => values.truncate(rows),
            Self::Int(values) => values.truncate(rows),
            Self::Float(values) => values.truncate(rows),
            Self::String { ends, text } => {
                ends.truncate(rows);
                text.truncate(ends.last().map_or(0, |end| *end as usize));
            }
        }
    }

    fn text_len(&self) -> usize {
        if let Self::String { text, .. } = self { text.len() } else { 0 }
    }

    fn append(&mut self, other: &Self) {
        match (self, other) {
            (Self::Bool(values), Self::Bool(more)) => values.extend_from_slice(more),
            (Self::Int(values), Self::Int(more)) => values.extend_from_slice(more),
            (Self::Float(values), Self::Float(more)) => values.extend_from_slice(more),
            (Self::String { ends, text }, Self::String { ends: more_ends, text: more_text }) => {
                // `MetadataBuilder::append` has made sure that the sum fits.
                let start = text.len() as i32;
                text.push_str(more_text);
                ends.extend(more_ends.iter().map(|end| start + end));
            }
            _ => unreachable!("builders of one schema have columns of one kind"),
        }
    }

    fn into_array(self) -> Result<Box<dyn Array>, MetadataError> {
        Ok(match self {
            Self::Bool(values) => {
                BooleanArray::new(ArrowDataType::Boolean, Bitmap::from_trusted_len_iter(values.into_iter()), None)
                    .boxed()
            }
            Self::Int(values) => PrimitiveArray::<i64>::from_vec(values).boxed(),
            Self::Float(values) => PrimitiveArray::<f64>::from_vec(values).boxed(),
            Self::String { ends, text } => {
                let mut offsets = Vec::with_capacity(ends.len() + 1);
                offsets.push(0i32);
                offsets.extend_from_slice(&ends);
                drop(ends);
                let offsets =
                    OffsetsBuffer::try_from(offsets).map_err(|error| MetadataError::malformed(error.to_string()))?;
                Utf8Array::<i32>::try_new(ArrowDataType::Utf8, offsets, text.into_bytes().into(), None)
                    .map_err(|error| MetadataError::malformed(error.to_string()))?
                    .boxed()
            }
        })
    }

    fn arrow_type(kind: MetadataKind) -> ArrowDataType {
        match kind {
            MetadataKind::Bool => ArrowDataType::Boolean,
            MetadataKind::Int => ArrowDataType::Int64,
            MetadataKind::Float => ArrowDataType::Float64,
            MetadataKind::String => ArrowDataType::Utf8,
        }
    }
}

/// Rows on their way into one record batch.
#[derive(Debug, Clone)]
struct Batch {
    num_rows: usize,
    columns: Vec<ColumnBuilder>,
}

/// Columns of metadata in memory, about as large as the values themselves.
#[derive(Debug, Clone)]
pub struct MetadataBuilder {
    names: Arc<[String]>,
    kinds: Vec<MetadataKind>,
    full: Vec<Batch>,
    last: Batch,
    max_batch_text: usize,
}

impl MetadataBuilder {
    /// An empty table.
    pub fn new(schema: &MetadataSchema) -> Self {
        Self::with_max_batch_text(schema, i32::MAX as usize)
    }

    /// An empty table whose batches end before any column's text passes `max_batch_text` bytes (at most 2^31 - 1).
    pub fn with_max_batch_text(schema: &MetadataSchema, max_batch_text: usize) -> Self {
        let kinds: Vec<_> = schema.fields().iter().map(|field| field.kind).collect();
        Self {
            names: schema.fields().iter().map(|field| field.name.clone()).collect(),
            last: Self::empty_batch(&kinds),
            kinds,
            full: Vec::new(),
            max_batch_text: max_batch_text.min(i32::MAX as usize),
        }
    }

    fn empty_batch(kinds: &[MetadataKind]) -> Batch {
        Batch { num_rows: 0, columns: kinds.iter().map(|kind| ColumnBuilder::new(*kind)).collect() }
    }

    /// Rows so far.
    pub fn num_rows(&self) -> usize {
        self.full.iter().map(|batch| batch.num_rows).sum::<usize>() + self.last.num_rows
    }

    /// The columns of a table that fits one batch: what an input block is while its rows are encoded.
    pub fn columns(&self) -> &[ColumnBuilder] {
        &self.last.columns
    }

    /// Append one row, values in column order.
    ///
    /// # Errors
    /// `WidthMismatch`, `KindMismatch`, `TextTooLong`; the table is then as it was.
    #[inline]
    pub fn push<'a>(&mut self, row: impl IntoIterator<Item = MetadataValue<'a>>) -> Result<(), MetadataError> {
        let rows = self.last.num_rows;
        let mut width = 0;
        let mut failure = None;
        for value in row {
            if let Some(column) = self.last.columns.get_mut(width)
                && let Err(error) = column.push(value, &self.names[width])
            {
                failure = Some(error);
                break;
            }
            width += 1;
        }
        if failure.is_none() && width != self.last.columns.len() {
            failure = Some(MetadataError::WidthMismatch { expected: self.last.columns.len(), found: width });
        }
        if let Some(error) = failure {
            for column in &mut self.last.columns {
                column.truncate(rows);
            }
            return Err(error);
        }
        self.last.num_rows += 1;
        Ok(())
    }

    /// Append all rows of another table of the same schema.
    pub fn append(&mut self, other: &Self) {
        for batch in other.full.iter().chain([&other.last]) {
            let too_much = |(column, more): (&ColumnBuilder, &ColumnBuilder)| {
                column.text_len() + more.text_len() > self.max_batch_text
            };
            if self.last.num_rows > 0 && self.last.columns.iter().zip(&batch.columns).any(too_much) {
                let full = std::mem::replace(&mut self.last, Self::empty_batch(&self.kinds));
                self.full.push(full);
            }
            for (column, more) in self.last.columns.iter_mut().zip(&batch.columns) {
                column.append(more);
            }
            self.last.num_rows += batch.num_rows;
        }
    }

    /// Write the table as an Arrow IPC file (docs/spec/v3.md, "metadata.arrow").
    ///
    /// # Errors
    /// `Write` when the destination refuses.
    pub fn write_ipc(self, schema: &MetadataSchema, destination: impl Write) -> Result<(), MetadataError> {
        let mut destination = KeepError { inner: destination, error: None };
        let outcome = self.write_batches(schema, &mut destination);
        match destination.error {
            Some(error) => Err(MetadataError::Write(error)),
            None => outcome,
        }
    }

    fn write_batches(self, schema: &MetadataSchema, destination: impl Write) -> Result<(), MetadataError> {
        fn failed(error: impl std::fmt::Display) -> MetadataError {
            MetadataError::malformed(error.to_string())
        }
        let fields = schema.fields().iter().map(arrow_field);
        let arrow_schema: Arc<ArrowSchema> = Arc::new(fields.map(|field| (field.name.clone(), field)).collect());
        let options = WriteOptions { compression: None };
        let mut writer = FileWriter::try_new(destination, Arc::clone(&arrow_schema), None, options).map_err(failed)?;
        for batch in self.full.into_iter().chain([self.last]) {
            let num_rows = batch.num_rows;
            // Readers do not ask for validity bitmaps, but the format's files have always carried one per column.
            let valid = Bitmap::new_with_value(true, num_rows);
            let arrays = batch
                .columns
                .into_iter()
                .map(|column| Ok(column.into_array()?.with_validity(Some(valid.clone()))))
                .collect::<Result<Vec<_>, MetadataError>>()?;
            let record_batch = RecordBatchT::try_new(num_rows, Arc::clone(&arrow_schema), arrays).map_err(failed)?;
            writer.write(&record_batch, None).map_err(failed)?;
        }
        writer.finish().map_err(failed)
    }
}

/// A destination that remembers its first error, since the Arrow writer passes on only the text.
struct KeepError<W> {
    inner: W,
    error: Option<io::Error>,
}

impl<W: Write> KeepError<W> {
    fn keep<T>(&mut self, outcome: io::Result<T>) -> io::Result<T> {
        outcome.map_err(|error| {
            let copy = io::Error::new(error.kind(), error.to_string());
            if error.kind() != io::ErrorKind::Interrupted {
                self.error.get_or_insert(error);
            }
            copy
        })
    }
}

impl<W: Write> Write for KeepError<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let outcome = self.inner.write(bytes);
        self.keep(outcome)
    }

    fn flush(&mut self) -> io::Result<()> {
        let outcome = self.inner.flush();
        self.keep(outcome)
    }
}

fn arrow_field(field: &MetadataField) -> Field {
    Field::new(field.name.as_str().into(), ColumnBuilder::arrow_type(field.kind), false)
}
