use drt_format::{MetadataKind, MetadataSchema, MetadataValue};
use polars_arrow::array::{Array, BooleanArray, PrimitiveArray, Utf8ViewArray, View};
use polars_arrow::bitmap::Bitmap;
use polars_arrow::datatypes::ArrowDataType;
use polars_arrow::io::ipc::format::ipc::planus::{self, ReadAsRoot};
use polars_arrow::io::ipc::format::ipc::{
    Endianness, FooterRef, MessageHeaderRef, MessageRef, MetadataVersion, Precision, RecordBatchRef, TypeRef,
};
use polars_arrow::types::NativeType;
use polars_buffer::Buffer;

use crate::MetadataError;

const MAGIC: &[u8; 6] = b"ARROW1";
const CONTINUATION: u32 = u32::MAX;

/// One column of one batch: views into the file.
#[derive(Debug, Clone)]
pub enum Column {
    /// A bit a row, copied out of the file (lowest bit first).
    Bool(Bitmap),
    /// 64-bit signed integers.
    Int(Buffer<i64>),
    /// 64-bit floats.
    Float(Buffer<f64>),
    /// Text with 32-bit offsets, not yet checked.
    String {
        /// One more offset than rows.
        offsets: Buffer<i32>,
        /// The joined text.
        text: Buffer<u8>,
    },
}

impl Column {
    /// The bytes of a row's text; `None` when they are out of bounds, or the column holds no text. They are not checked for
    /// UTF-8.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn text(&self, row: usize) -> Option<&[u8]> {
        let Self::String { offsets, text } = self else { return None };
        text.get(usize::try_from(offsets[row]).ok()?..usize::try_from(offsets[row + 1]).ok()?)
    }

    /// The value in a row of this batch; `None` for text that is out of bounds or not UTF-8.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn value(&self, row: usize) -> Option<MetadataValue<'_>> {
        Some(match self {
            Self::Bool(bits) => MetadataValue::Bool(bits.get_bit(row)),
            Self::Int(values) => MetadataValue::Int(values[row]),
            Self::Float(values) => MetadataValue::Float(values[row]),
            Self::String { .. } => MetadataValue::String(std::str::from_utf8(self.text(row)?).ok()?),
        })
    }
}

#[derive(Debug, Clone)]
struct Batch {
    num_rows: usize,
    columns: Vec<Column>,
}

/// A cache's metadata, as it lies in its file.
#[derive(Debug, Clone)]
pub struct MetadataTable {
    names: Vec<String>,
    batches: Vec<Batch>,
    /// First row of each batch, then the number of rows.
    starts: Vec<u64>,
    /// The first column with a null, if any has one.
    nulls: Option<String>,
}

impl MetadataTable {
    /// Look at a file's structure and take its columns as views into `file`.
    ///
    /// Cost: a few microseconds a batch, and one bit a row for booleans; the columns' values are not touched.
    ///
    /// # Errors
    /// `Malformed`, `SchemaMismatch`, `RowCountMismatch`, `Unsupported`: each says what was expected and found.
    pub fn open(file: Buffer<u8>, schema: &MetadataSchema, num_rows: u64) -> Result<Self, MetadataError> {
        let footer_range = footer_range(&file)?;
        let footer = FooterRef::read_as_root(&file[footer_range.clone()]).map_err(broken)?;
        check_schema(&footer, schema)?;

        let mut batches = Vec::new();
        let mut starts = vec![0u64];
        let mut nulls = None;
        // Buffers do not overlap, so all of them together are no longer than the file. Otherwise a file could name one
        // stretch of itself many times, and each copy would take memory.
        let mut unclaimed = file.len();
        if let Some(blocks) = footer.record_batches().map_err(broken)? {
            for block in blocks {
                let reader = BatchReader::new(&file[..footer_range.start], block.offset(), block.meta_data_length())?;
                let batch = reader.read(&file, schema, &mut nulls, &mut unclaimed)?;
                let rows = starts[starts.len() - 1].saturating_add(batch.num_rows as u64);
                // Counting up to the manifest's number keeps a file of many huge empty batches from adding up.
                if rows > num_rows {
                    return Err(MetadataError::RowCountMismatch { expected: num_rows, found: rows });
                }
                if batch.num_rows > 0 {
                    batches.push(batch);
                    starts.push(rows);
                }
            }
        }
        let found = starts[starts.len() - 1];
        if found != num_rows {
            return Err(MetadataError::RowCountMismatch { expected: num_rows, found });
        }
        let names = schema.fields().iter().map(|field| field.name.clone()).collect();
        Ok(Self { names, batches, starts, nulls })
    }

    /// Rows in the table.
    pub fn num_rows(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// Does any column have a null? Such a table is readable only where the nulls are not looked at.
    pub fn has_nulls(&self) -> bool {
        self.nulls.is_some()
    }

    /// The batches in order, each with its rows.
    pub fn batches(&self) -> impl Iterator<Item = (std::ops::Range<u64>, &[Column])> {
        let rows = self.starts.windows(2).map(|pair| pair[0]..pair[1]);
        rows.zip(self.batches.iter().map(|batch| batch.columns.as_slice()))
    }

    /// The columns of the batch that holds a row, and the row's place in that batch.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub fn locate(&self, row: u64) -> (&[Column], usize) {
        // One batch is what every writer makes; the search is for files from elsewhere.
        let batch = if self.batches.len() == 1 { 0 } else { self.starts.partition_point(|start| *start <= row) - 1 };
        (&self.batches[batch].columns, (row - self.starts[batch]) as usize)
    }

    /// One value.
    ///
    /// # Errors
    /// `InvalidText` for a string that is not UTF-8 or out of bounds.
    ///
    /// # Panics
    /// When there is no such row or column.
    pub fn value(&self, row: u64, column: usize) -> Result<MetadataValue<'_>, MetadataError> {
        let (columns, local) = self.locate(row);
        columns[column]
            .value(local)
            .ok_or_else(|| MetadataError::InvalidText { column: self.names[column].clone(), row })
    }

    /// The columns as Arrow arrays, one list per batch: numbers share the file's memory, text is shared through string
    /// views (16 bytes a row) that this call builds.
    ///
    /// # Errors
    /// `Nulls`, and `InvalidText` naming the first bad row.
    pub fn arrays(&self) -> Result<Vec<Vec<Box<dyn Array>>>, MetadataError> {
        if let Some(column) = &self.nulls {
            return Err(MetadataError::Nulls { column: column.clone() });
        }
        self.batches.iter().zip(&self.starts).map(|(batch, start)| self.batch_arrays(batch, *start)).collect()
    }

    fn batch_arrays(&self, batch: &Batch, start: u64) -> Result<Vec<Box<dyn Array>>, MetadataError> {
        let one = |(column, name): (&Column, &String)| -> Result<Box<dyn Array>, MetadataError> {
            Ok(match column {
                Column::Bool(bits) => BooleanArray::new(ArrowDataType::Boolean, bits.clone(), None).boxed(),
                Column::Int(values) => PrimitiveArray::new(ArrowDataType::Int64, values.clone(), None).boxed(),
                Column::Float(values) => PrimitiveArray::new(ArrowDataType::Float64, values.clone(), None).boxed(),
                Column::String { offsets, text } => string_views(offsets, text)
                    .ok_or_else(|| {
                        let bad = (0..batch.num_rows).find(|row| column.value(*row).is_none()).unwrap_or(0);
                        MetadataError::InvalidText { column: name.clone(), row: start + bad as u64 }
                    })?
                    .boxed(),
            })
        };
        batch.columns.iter().zip(&self.names).map(one).collect()
    }
}

/// Views over text in place; `None` when an offset or the text is bad.
fn string_views(offsets: &Buffer<i32>, text: &Buffer<u8>) -> Option<Utf8ViewArray> {
    let bytes = text.as_slice();
    let mut views = Vec::with_capacity(offsets.len() - 1);
    for pair in offsets.windows(2) {
        let (start, end) = (u32::try_from(pair[0]).ok()?, u32::try_from(pair[1]).ok()?);
        views.push(View::new_from_bytes(bytes.get(start as usize..end as usize)?, 0, start));
    }
    // `try_new` checks that each view is UTF-8.
    Utf8ViewArray::try_new(ArrowDataType::Utf8View, views.into(), vec![text.clone()].into(), None).ok()
}

fn broken(error: planus::Error) -> MetadataError {
    MetadataError::malformed(error.to_string())
}

fn footer_range(file: &[u8]) -> Result<std::ops::Range<usize>, MetadataError> {
    let frame = MAGIC.len() + 2 + 4 + MAGIC.len();
    if file.len() < frame || !file.starts_with(MAGIC) || !file.ends_with(MAGIC) {
        return Err(MetadataError::malformed(format!(
            "{} bytes that do not begin and end with {:?}",
            file.len(),
            "ARROW1"
        )));
    }
    let end = file.len() - MAGIC.len() - 4;
    let len = read_u32(file, end).ok_or_else(|| MetadataError::malformed("no footer length"))? as usize;
    let start = end.checked_sub(len).filter(|start| *start >= MAGIC.len() + 2);
    let start = start
        .ok_or_else(|| MetadataError::malformed(format!("a footer of {len} bytes in a file of {}", file.len())))?;
    Ok(start..end)
}

fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn check_schema(footer: &FooterRef<'_>, schema: &MetadataSchema) -> Result<(), MetadataError> {
    let version = footer.version().map_err(broken)?;
    if !matches!(version, MetadataVersion::V4 | MetadataVersion::V5) {
        return Err(MetadataError::Unsupported { what: format!("Arrow metadata version {version:?}") });
    }
    if footer.dictionaries().map_err(broken)?.is_some_and(|dictionaries| !dictionaries.is_empty()) {
        return Err(MetadataError::Unsupported { what: "dictionary batches".into() });
    }
    let found = footer.schema().map_err(broken)?.ok_or_else(|| MetadataError::malformed("no schema"))?;
    if found.endianness().map_err(broken)? != Endianness::Little {
        return Err(MetadataError::Unsupported { what: "big-endian buffers".into() });
    }
    let mismatch = |reason: String| Err(MetadataError::SchemaMismatch { reason });
    let num_found = found.fields().map_err(broken)?.map_or(0, |fields| fields.len());
    if num_found != schema.len() {
        return mismatch(format!("{} columns expected, {num_found} found", schema.len()));
    }
    let Some(fields) = found.fields().map_err(broken)? else { return Ok(()) };
    for (position, (field, expected)) in fields.iter().zip(schema.fields()).enumerate() {
        let field = field.map_err(broken)?;
        let name = field.name().map_err(broken)?.unwrap_or("");
        if name != expected.name {
            return mismatch(format!("column {position} should be {:?} and is {name:?}", expected.name));
        }
        if field.dictionary().map_err(broken)?.is_some() {
            return Err(MetadataError::Unsupported { what: format!("a dictionary in column {name:?}") });
        }
        let data_type = field.type_().map_err(broken)?;
        let kind = match &data_type {
            Some(TypeRef::Bool(_)) => Some(MetadataKind::Bool),
            Some(TypeRef::Int(int)) if int.bit_width().map_err(broken)? == 64 && int.is_signed().map_err(broken)? => {
                Some(MetadataKind::Int)
            }
            Some(TypeRef::FloatingPoint(float)) if float.precision().map_err(broken)? == Precision::Double => {
                Some(MetadataKind::Float)
            }
            Some(TypeRef::Utf8(_)) => Some(MetadataKind::String),
            _ => None,
        };
        if kind != Some(expected.kind) {
            return mismatch(format!(
                "column {name:?} should hold {} values and is {data_type:?}",
                expected.kind.name()
            ));
        }
    }
    Ok(())
}

/// The bytes before the footer, and where one batch's head and body lie in them.
struct BatchReader<'a> {
    batch: RecordBatchRef<'a>,
    body: std::ops::Range<usize>,
}

impl<'a> BatchReader<'a> {
    fn new(file: &'a [u8], offset: i64, head_len: i32) -> Result<Self, MetadataError> {
        let outside = || MetadataError::malformed(format!("a record batch at offset {offset} that is not in the file"));
        let start = usize::try_from(offset).map_err(|_| outside())?;
        let body_start = usize::try_from(head_len).ok().and_then(|len| start.checked_add(len)).ok_or_else(outside)?;
        let head = file.get(start..body_start).ok_or_else(outside)?;
        // Since Arrow 0.15 a marker comes before the length of the message.
        let prefix = if read_u32(head, 0) == Some(CONTINUATION) { 8 } else { 4 };
        let len = read_u32(head, prefix - 4).ok_or_else(outside)? as usize;
        let message = prefix.checked_add(len).and_then(|end| head.get(prefix..end)).ok_or_else(outside)?;
        let message = MessageRef::read_as_root(message).map_err(broken)?;
        let body_end = usize::try_from(message.body_length().map_err(broken)?)
            .ok()
            .and_then(|len| body_start.checked_add(len))
            .filter(|end| *end <= file.len())
            .ok_or_else(outside)?;
        match message.header().map_err(broken)? {
            Some(MessageHeaderRef::RecordBatch(batch)) => Ok(Self { batch, body: body_start..body_end }),
            _ => Err(MetadataError::malformed("a message that is no record batch, listed as one")),
        }
    }

    fn read(
        &self,
        file: &Buffer<u8>,
        schema: &MetadataSchema,
        nulls: &mut Option<String>,
        unclaimed: &mut usize,
    ) -> Result<Batch, MetadataError> {
        if self.batch.compression().map_err(broken)?.is_some() {
            return Err(MetadataError::Unsupported { what: "compressed buffers".into() });
        }
        let num_rows = self.batch.length().map_err(broken)?;
        let num_rows = usize::try_from(num_rows).map_err(|_| MetadataError::malformed(format!("{num_rows} rows")))?;
        if schema.is_empty() {
            return Ok(Batch { num_rows, columns: Vec::new() });
        }
        let short = || MetadataError::malformed("a record batch that lists too few columns or buffers");
        let mut nodes = self.batch.nodes().map_err(broken)?.ok_or_else(short)?.iter();
        let mut buffers = self.batch.buffers().map_err(broken)?.ok_or_else(short)?.iter();
        let mut next_buffer = || -> Result<Buffer<u8>, MetadataError> {
            let buffer = buffers.next().ok_or_else(short)?;
            let range = usize::try_from(buffer.offset()).ok().zip(usize::try_from(buffer.length()).ok()).and_then(
                |(offset, len)| {
                    let start = self.body.start.checked_add(offset)?;
                    let end = start.checked_add(len)?;
                    (end <= self.body.end).then_some(start..end)
                },
            );
            let range = range.ok_or_else(|| {
                let (offset, len) = (buffer.offset(), buffer.length());
                MetadataError::malformed(format!("a buffer of {len} bytes at {offset} that leaves its record batch"))
            })?;
            let claimed = unclaimed.checked_sub(range.len());
            *unclaimed = claimed.ok_or_else(|| MetadataError::malformed("buffers that overlap"))?;
            Ok(file.clone().sliced(range))
        };
        let mut columns = Vec::with_capacity(schema.len());
        for field in schema.fields() {
            let node = nodes.next().ok_or_else(short)?;
            if usize::try_from(node.length()) != Ok(num_rows) {
                return Err(MetadataError::malformed(format!(
                    "column {:?} with {} rows in a batch of {num_rows}",
                    field.name,
                    node.length()
                )));
            }
            next_buffer()?; // validity: all ones, or absent
            if node.null_count() != 0 {
                nulls.get_or_insert_with(|| field.name.clone());
            }
            let too_small = |what: &str| {
                MetadataError::malformed(format!(
                    "column {:?}: the {what} buffer is too small for {num_rows} rows",
                    field.name
                ))
            };
            columns.push(match field.kind {
                MetadataKind::Bool => {
                    let bytes = next_buffer()?;
                    let bytes = bytes.get(..num_rows.div_ceil(8)).ok_or_else(|| too_small("value"))?;
                    Column::Bool(Bitmap::from_u8_vec(bytes.to_vec(), num_rows))
                }
                MetadataKind::Int => Column::Int(typed(next_buffer()?, num_rows).ok_or_else(|| too_small("value"))?),
                MetadataKind::Float => {
                    Column::Float(typed(next_buffer()?, num_rows).ok_or_else(|| too_small("value"))?)
                }
                MetadataKind::String => {
                    let offsets = next_buffer()?;
                    // Arrow allows no offsets at all where there are no rows.
                    let offsets = if num_rows == 0 && offsets.is_empty() {
                        vec![0].into()
                    } else {
                        num_rows
                            .checked_add(1)
                            .and_then(|len| typed(offsets, len))
                            .ok_or_else(|| too_small("offset"))?
                    };
                    Column::String { offsets, text: next_buffer()? }
                }
            });
        }
        Ok(Batch { num_rows, columns })
    }
}

/// The first `len` values of a buffer: in place when aligned, otherwise copied. `None` when the buffer is too short.
fn typed<T: NativeType>(bytes: Buffer<u8>, len: usize) -> Option<Buffer<T>> {
    let num_bytes = len.checked_mul(size_of::<T>())?;
    let bytes = (num_bytes <= bytes.len()).then(|| bytes.sliced(..num_bytes))?;
    // `try_transmute` judges alignment and length by the whole storage, so each column gets a storage of its own.
    let bytes = Buffer::from_owner(bytes);
    Some(bytes.try_transmute::<T>().unwrap_or_else(|bytes| {
        let read = |chunk: &[u8]| {
            let mut value = T::default().to_le_bytes();
            value.as_mut().copy_from_slice(chunk);
            T::from_le_bytes(value)
        };
        bytes.chunks_exact(size_of::<T>()).map(read).collect::<Vec<_>>().into()
    }))
}
