//! Damaged tables give an error or values, never a panic, and no number in them decides how much memory is taken.

mod support;

use std::path::PathBuf;
use std::sync::Arc;

use drt_format::{MetadataField, MetadataKind, MetadataSchema, MetadataValue};
use drt_metadata::{MetadataBuilder, MetadataError, MetadataTable};
use polars_arrow::array::Array;
use polars_arrow::datatypes::ArrowSchema;
use polars_arrow::io::ipc::write::{FileWriter, WriteOptions};
use polars_arrow::record_batch::RecordBatchT;
use support::{caches, golden, manifest_and_table};

/// Everything that can be asked of a table.
fn read_all(file: Vec<u8>, schema: &MetadataSchema, num_rows: u64) -> Result<(), MetadataError> {
    let table = MetadataTable::open(file.into(), schema, num_rows)?;
    assert_eq!(table.num_rows(), num_rows);
    let values = support::values(&table, schema.len());
    let arrays = support::array_values(&table, schema.len());
    match (values, arrays) {
        (Ok(values), Ok(arrays)) => assert_eq!(values, arrays),
        (Ok(_), Err(error)) => assert!(matches!(error, MetadataError::Nulls { .. }), "{error:?}"),
        (Err(error), arrays) => {
            assert!(arrays.is_err());
            return Err(error);
        }
    }
    Ok(())
}

/// The most address space that this process has had at one time, in bytes.
fn peak_address_space() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()? * 1024)
}

/// Does the job without ever taking much memory, however briefly? What threads of other tests take is far below the limit, and
/// a length that a changed byte makes is often far above.
fn in_little_memory(job: impl FnOnce()) {
    let before = peak_address_space();
    job();
    if let (Some(before), Some(after)) = (before, peak_address_space()) {
        assert!(after - before < 1 << 30, "{} MiB were taken", (after - before) >> 20);
    }
}

fn golden_tables() -> Vec<PathBuf> {
    // Both versions have the same tables; this one is by another writer, and has two batches.
    caches("v3").into_iter().chain([golden(&["damaged", "metadata_two_batches_resealed", "cache"])]).collect()
}

#[test]
fn a_changed_byte_never_panics_or_takes_memory() {
    in_little_memory(|| {
        let (mut changed, mut refused) = (0u32, 0u32);
        for cache in golden_tables() {
            let (manifest, file) = manifest_and_table(&cache);
            for at in 0..file.len() {
                for flip in [0x01, 0x10, 0x80, 0xff] {
                    let mut damaged = file.clone();
                    damaged[at] ^= flip;
                    changed += 1;
                    refused += u32::from(read_all(damaged, &manifest.schema, manifest.sample_count).is_err());
                }
            }
        }
        // Most bytes are values or padding; a good part must still be noticed.
        assert!(refused > changed / 20 && refused < changed, "{refused} of {changed}");
    });
}

#[test]
fn eight_bytes_of_extremes_anywhere_never_panic_or_take_memory() {
    in_little_memory(|| {
        for cache in golden_tables() {
            let (manifest, file) = manifest_and_table(&cache);
            for at in (0..file.len().saturating_sub(8)).step_by(4) {
                for value in [0, 1, 1 << 20, i64::from(i32::MAX), i64::MAX, i64::MAX - 7, i64::MIN, -1, -8] {
                    let mut damaged = file.clone();
                    damaged[at..at + 8].copy_from_slice(&value.to_le_bytes());
                    let _outcome = read_all(damaged, &manifest.schema, manifest.sample_count);
                }
            }
        }
    });
}

#[test]
fn a_table_cut_anywhere_is_refused() {
    for cache in golden_tables() {
        let (manifest, file) = manifest_and_table(&cache);
        for len in 0..file.len() {
            let error = read_all(file[..len].to_vec(), &manifest.schema, manifest.sample_count).unwrap_err();
            assert!(matches!(error, MetadataError::Malformed { .. }), "{} at {len}: {error:?}", cache.display());
        }
    }
}

#[test]
fn a_table_is_refused_under_every_other_caches_schema() {
    let tables: Vec<_> = caches("v3").iter().map(|cache| manifest_and_table(cache)).collect();
    for (manifest, _) in &tables {
        for (other, file) in &tables {
            let outcome = read_all(file.clone(), &manifest.schema, manifest.sample_count);
            let fits = manifest.schema == other.schema && manifest.sample_count == other.sample_count;
            assert_eq!(outcome.is_ok(), fits, "{} read as {}", other.source_name, manifest.source_name);
        }
    }
}

/// A table of ones.
fn bools(num_columns: usize, num_rows: usize) -> (MetadataSchema, Vec<u8>) {
    let names = (0..num_columns).map(|n| MetadataField::new(format!("{n:05}"), MetadataKind::Bool));
    let schema = MetadataSchema::new(names.collect()).unwrap();
    let mut builder = MetadataBuilder::new(&schema);
    for _ in 0..num_rows {
        builder.push((0..num_columns).map(|_| MetadataValue::Bool(true))).unwrap();
    }
    let mut file = Vec::new();
    builder.write_ipc(&schema, &mut file).unwrap();
    (schema, file)
}

/// Where each occurrence of some bytes begins.
fn find_all(file: &[u8], wanted: &[u8]) -> Vec<usize> {
    (0..=file.len() - wanted.len()).filter(|at| file[*at..].starts_with(wanted)).collect()
}

#[test]
fn the_sum_of_all_batches_rows_cannot_overflow() {
    // Batches without columns may claim any number of rows.
    let schema = MetadataSchema::new(Vec::new()).unwrap();
    let mut file = Vec::new();
    let none = Arc::new(ArrowSchema::default());
    let mut writer =
        FileWriter::try_new(&mut file, Arc::clone(&none), None, WriteOptions { compression: None }).unwrap();
    for num_rows in [usize::MAX >> 1, 3, usize::MAX >> 1] {
        writer.write(&RecordBatchT::new(num_rows, Arc::clone(&none), Vec::<Box<dyn Array>>::new()), None).unwrap();
    }
    writer.finish().unwrap();
    let most = i64::MAX as u64;
    for (num_rows, reached) in [(most, most + 3), (most + 3, u64::MAX), (u64::MAX - 1, u64::MAX)] {
        match MetadataTable::open(file.clone().into(), &schema, num_rows).unwrap_err() {
            MetadataError::RowCountMismatch { expected, found } => assert_eq!((expected, found), (num_rows, reached)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn columns_that_share_a_buffer_do_not_multiply_it() {
    // Every buffer is 512 bytes, a multiple of the alignment: they follow each other without gaps.
    let (num_columns, num_rows, len) = (40, 8 * 512, 512i64);
    let (schema, mut file) = bools(num_columns, num_rows);
    read_all(file.clone(), &schema, num_rows as u64).unwrap();
    // They are listed side by side, each as its offset and its length. Let all of them be the first one,
    let num_buffers = 2 * num_columns as i64;
    let list: Vec<u8> = (0..num_buffers).flat_map(|n| [n * len, len]).flat_map(i64::to_le_bytes).collect();
    let at = find_all(&file, &list)[0];
    file[at..at + list.len()].copy_from_slice(&[0, len].map(i64::to_le_bytes).concat().repeat(num_buffers as usize));
    // and drop the others from the file.
    let body_len = num_buffers * len;
    for at in find_all(&file, &body_len.to_le_bytes()) {
        file[at..at + 8].copy_from_slice(&len.to_le_bytes());
    }
    let body = find_all(&file, &[0xff; 512])[0];
    file.drain(body + len as usize..body + body_len as usize);

    let error = read_all(file, &schema, num_rows as u64).unwrap_err();
    assert!(matches!(&error, MetadataError::Malformed { reason } if reason.contains("overlap")), "{error:?}");
}
