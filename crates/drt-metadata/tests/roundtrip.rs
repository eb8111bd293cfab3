//! Tables come back from their files with every bit, however they were built and wherever the bytes lie.

mod support;

use drt_format::{MetadataField, MetadataKind, MetadataSchema, MetadataValue, testing};
use drt_metadata::{Column, MetadataBuilder, MetadataError, MetadataTable};
use polars_buffer::Buffer;
use proptest::collection::vec;
use proptest::prelude::*;
use support::{Bits, array_values, caches, manifest_and_table, values};

/// A value of this kind; unlike in a record, a float may be anything.
fn value(kind: MetadataKind) -> BoxedStrategy<Bits> {
    match kind {
        MetadataKind::Bool => any::<bool>().prop_map(Bits::Bool).boxed(),
        MetadataKind::Int => prop_oneof![any::<i64>(), -9i64..9].prop_map(Bits::Int).boxed(),
        MetadataKind::Float => {
            let special = prop::sample::select(vec![f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0]);
            prop_oneof![any::<u64>(), special.prop_map(f64::to_bits)].prop_map(Bits::Float).boxed()
        }
        MetadataKind::String => {
            // Views keep up to 12 bytes in themselves and point to longer text.
            prop_oneof![Just(String::new()), testing::text(), "[a-zé日😀]{10,16}"].prop_map(Bits::String).boxed()
        }
    }
}

fn as_value(bits: &Bits) -> MetadataValue<'_> {
    match bits {
        Bits::Bool(value) => MetadataValue::Bool(*value),
        Bits::Int(value) => MetadataValue::Int(*value),
        Bits::Float(bits) => MetadataValue::Float(f64::from_bits(*bits)),
        Bits::String(text) => MetadataValue::String(text),
    }
}

/// A schema, rows for it, and the sizes of the blocks in which they are appended.
fn table() -> impl Strategy<Value = (MetadataSchema, Vec<Vec<Bits>>, Vec<usize>)> {
    let rows = |schema: &MetadataSchema| {
        let row = schema.fields().iter().map(|field| value(field.kind)).collect::<Vec<_>>();
        vec(row, 0..150)
    };
    testing::schema().prop_flat_map(move |schema| {
        let rows = rows(&schema);
        (Just(schema), rows, vec(1usize..80, 1..6))
    })
}

/// A file with these rows, appended in blocks of these sizes, the sizes in turn.
fn write(schema: &MetadataSchema, rows: &[Vec<Bits>], blocks: &[usize], max_batch_text: usize) -> Vec<u8> {
    let mut whole = MetadataBuilder::with_max_batch_text(schema, max_batch_text);
    let (mut rest, mut sizes) = (rows, blocks.iter().cycle());
    while !rest.is_empty() {
        let (block_rows, later) = rest.split_at(rest.len().min(*sizes.next().unwrap()));
        let mut block = MetadataBuilder::new(schema);
        for row in block_rows {
            block.push(row.iter().map(as_value)).unwrap();
        }
        whole.append(&block);
        rest = later;
    }
    assert_eq!(whole.num_rows(), rows.len());
    let mut file = Vec::new();
    whole.write_ipc(schema, &mut file).unwrap();
    file
}

/// The file's bytes, beginning `shift` bytes after a place that any number may begin at.
fn at_offset(file: &[u8], shift: usize) -> Buffer<u8> {
    // A buffer of u64 is aligned for them.
    let words = Buffer::from(vec![0u64; (file.len() + shift).div_ceil(8)]);
    let mut bytes = words.try_transmute::<u8>().unwrap();
    bytes.get_mut_slice().unwrap()[shift..shift + file.len()].copy_from_slice(file);
    bytes.sliced(shift..shift + file.len())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_bit_of_a_table_comes_back(
        (schema, rows, blocks) in table(),
        max_batch_text in prop_oneof![1usize..200, Just(usize::MAX)],
        shift in 0usize..9,
    ) {
        let file = write(&schema, &rows, &blocks, max_batch_text);
        let table = MetadataTable::open(at_offset(&file, shift), &schema, rows.len() as u64).unwrap();
        prop_assert_eq!(table.num_rows(), rows.len() as u64);
        prop_assert!(!table.has_nulls());
        prop_assert_eq!(&values(&table, schema.len()).unwrap(), &rows);
        prop_assert_eq!(&array_values(&table, schema.len()).unwrap(), &rows);
    }

    #[test]
    fn blocks_leave_no_trace_in_the_file((schema, rows, blocks) in table()) {
        let whole = [rows.len().max(1)];
        prop_assert_eq!(write(&schema, &rows, &blocks, usize::MAX), write(&schema, &rows, &whole, usize::MAX));
    }
}

fn fields(kinds: &[(&str, MetadataKind)]) -> MetadataSchema {
    MetadataSchema::new(kinds.iter().map(|(name, kind)| MetadataField::new(*name, *kind)).collect()).unwrap()
}

#[test]
fn a_new_batch_is_begun_before_a_columns_text_passes_the_limit() {
    let schema = fields(&[("n", MetadataKind::Int), ("text", MetadataKind::String)]);
    let rows: Vec<_> = (0..10).map(|n| vec![Bits::Int(n), Bits::String("x".repeat(40))]).collect();
    let file = write(&schema, &rows, &[1], 100);
    let table = MetadataTable::open(file.into(), &schema, 10).unwrap();
    let lens: Vec<_> = table.arrays().unwrap().iter().map(|batch| batch[0].len()).collect();
    assert_eq!(lens, [2, 2, 2, 2, 2]);
    for row in 0..10 {
        let (columns, local) = table.locate(row);
        assert_eq!(local as u64, row % 2);
        assert_eq!(columns[0].value(local), Some(MetadataValue::Int(row as i64)));
    }
    assert_eq!(values(&table, 2).unwrap(), rows);
}

#[test]
fn booleans_keep_their_place_past_every_word_and_byte() {
    let schema = fields(&[("b", MetadataKind::Bool)]);
    for num_rows in [1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 1000] {
        let rows: Vec<_> = (0..num_rows).map(|row| vec![Bits::Bool(row % 3 == 0 || row == num_rows - 1)]).collect();
        // Blocks of 13 end inside bytes.
        let file = write(&schema, &rows, &[13], usize::MAX);
        let table = MetadataTable::open(file.into(), &schema, num_rows).unwrap();
        assert_eq!(values(&table, 1).unwrap(), rows, "{num_rows}");
        assert_eq!(array_values(&table, 1).unwrap(), rows, "{num_rows}");
    }
}

#[test]
fn a_table_without_columns_keeps_its_number_of_rows() {
    let schema = fields(&[]);
    for num_rows in [0u64, 1, 1000] {
        let rows = vec![Vec::new(); num_rows as usize];
        let file = write(&schema, &rows, &[300], usize::MAX);
        let table = MetadataTable::open(file.clone().into(), &schema, num_rows).unwrap();
        assert_eq!(table.num_rows(), num_rows);
        assert!(table.arrays().unwrap().iter().all(Vec::is_empty));
        let error = MetadataTable::open(file.into(), &schema, num_rows + 1).unwrap_err();
        assert!(
            matches!(error, MetadataError::RowCountMismatch { expected, found } if expected == found + 1),
            "{error:?}"
        );
    }
}

#[test]
fn aligned_numbers_are_views_into_the_file_and_others_are_copied() {
    let schema = fields(&[("f", MetadataKind::Float), ("i", MetadataKind::Int), ("s", MetadataKind::String)]);
    let rows: Vec<_> =
        (0..40).map(|n| vec![Bits::Float(n * 3), Bits::Int(-(n as i64)), Bits::String(format!("text {n}"))]).collect();
    let file = write(&schema, &rows, &[40], usize::MAX);
    for shift in 0..9 {
        let bytes = at_offset(&file, shift);
        let inside = bytes.as_slice().as_ptr_range();
        let table = MetadataTable::open(bytes.clone(), &schema, 40).unwrap();
        assert_eq!(values(&table, 3).unwrap(), rows, "{shift}");
        let (columns, _) = table.locate(0);
        let in_file = |start: *const u8| inside.contains(&start);
        for column in columns {
            let (numbers_in_file, align) = match column {
                Column::Bool(_) => panic!("no such column"),
                Column::Int(values) => (in_file(values.as_ptr().cast()), 8),
                Column::Float(values) => (in_file(values.as_ptr().cast()), 8),
                Column::String { offsets, text } => {
                    assert!(in_file(text.as_ptr()), "text is never copied");
                    (in_file(offsets.as_ptr().cast()), 4)
                }
            };
            assert_eq!(numbers_in_file, shift % align == 0, "{shift} {align}");
        }
    }
}

#[test]
fn files_of_other_writers_are_read_at_any_alignment() {
    // Two batches, buffers padded to 8 bytes, no validity bitmaps.
    let folder = caches("damaged").into_iter().find(|path| path.ends_with("metadata_two_batches_resealed")).unwrap();
    let (manifest, file) = manifest_and_table(&folder.join("cache"));
    let (ours, our_file) = manifest_and_table(&support::golden(&["damaged", "_base_dmg_none", "cache"]));
    assert_eq!(manifest.schema, ours.schema);
    let expected = MetadataTable::open(our_file.into(), &ours.schema, ours.sample_count).unwrap();
    let expected = values(&expected, ours.schema.len()).unwrap();
    for shift in 0..17 {
        let table = MetadataTable::open(at_offset(&file, shift), &manifest.schema, manifest.sample_count).unwrap();
        assert_eq!(table.arrays().unwrap().len(), 2);
        assert_eq!(values(&table, manifest.schema.len()).unwrap(), expected, "{shift}");
        assert_eq!(array_values(&table, manifest.schema.len()).unwrap(), expected, "{shift}");
    }
}

#[test]
fn a_row_that_does_not_fit_the_columns_leaves_the_table_as_it_was() {
    let schema = fields(&[("i", MetadataKind::Int), ("s", MetadataKind::String)]);
    let mut builder = MetadataBuilder::new(&schema);
    builder.push([MetadataValue::Int(1), MetadataValue::String("one")]).unwrap();

    let error = builder.push([MetadataValue::Int(2)]).unwrap_err();
    assert!(matches!(error, MetadataError::WidthMismatch { expected: 2, found: 1 }), "{error:?}");
    let error = builder.push([MetadataValue::Int(2), MetadataValue::String("two"), MetadataValue::Int(2)]).unwrap_err();
    assert!(matches!(error, MetadataError::WidthMismatch { expected: 2, found: 3 }), "{error:?}");
    let error = builder.push([MetadataValue::Int(2), MetadataValue::Bool(true)]).unwrap_err();
    let kinds = (MetadataKind::String, MetadataKind::Bool);
    assert!(
        matches!(&error, MetadataError::KindMismatch { column, expected, found } if column == "s" && (*expected, *found) == kinds),
        "{error:?}"
    );

    builder.push([MetadataValue::Int(3), MetadataValue::String("three")]).unwrap();
    let mut file = Vec::new();
    builder.write_ipc(&schema, &mut file).unwrap();
    let table = MetadataTable::open(file.into(), &schema, 2).unwrap();
    assert_eq!(table.value(1, 0).unwrap(), MetadataValue::Int(3));
    assert_eq!(table.value(1, 1).unwrap(), MetadataValue::String("three"));
}

/// Takes some bytes, then refuses.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if self.0 == 0 {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        let len = bytes.len().min(self.0);
        self.0 -= len;
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_destination_that_refuses_is_reported_with_its_own_error() {
    let schema = fields(&[("s", MetadataKind::String)]);
    let rows: Vec<_> = (0..20).map(|n| vec![Bits::String(format!("text {n}"))]).collect();
    let len = write(&schema, &rows, &[20], usize::MAX).len();
    for room in (0..len).step_by(50).chain([len - 1]) {
        let mut builder = MetadataBuilder::new(&schema);
        for row in &rows {
            builder.push(row.iter().map(as_value)).unwrap();
        }
        match builder.write_ipc(&schema, Full(room)).unwrap_err() {
            MetadataError::Write(error) => assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{room}"),
            other => panic!("{room}: {other:?}"),
        }
    }
}
