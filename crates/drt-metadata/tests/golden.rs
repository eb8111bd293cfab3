//! Metadata of golden caches opens, and of damaged ones ends in the right error.

mod support;

use drt_metadata::{MetadataError, MetadataTable};
use support::{array_values, caches, golden, manifest_and_table, values};

#[test]
fn tables_of_released_writers_open_and_both_ways_of_reading_agree() {
    for set in ["v2", "v3", "migrated"] {
        for cache in caches(set) {
            let place = cache.display();
            let (manifest, file) = manifest_and_table(&cache);
            let table = MetadataTable::open(file.into(), &manifest.schema, manifest.sample_count)
                .unwrap_or_else(|error| panic!("{place}: {error}"));
            assert!(!table.has_nulls(), "{place}");
            let rows = values(&table, manifest.schema.len()).unwrap();
            assert_eq!(rows.len() as u64, manifest.sample_count, "{place}");
            assert_eq!(array_values(&table, manifest.schema.len()).unwrap(), rows, "{place}");
        }
    }
}

#[test]
fn both_versions_of_a_cache_have_the_same_table() {
    let (old, new) = (caches("v2"), caches("v3"));
    assert_eq!(old.len(), 13);
    for (old, new) in old.iter().zip(&new) {
        assert_eq!(manifest_and_table(old).1, manifest_and_table(new).1, "{}", new.display());
    }
}

/// How far reading a table gets.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// Opening gives this error.
    Open(&'static str),
    /// Opening works, and some value gives this error.
    Value(&'static str),
    /// Every value can be read, and the arrays give this error.
    Arrays(&'static str),
    /// All is well, in this many batches.
    Whole(usize),
}

fn variant(error: &MetadataError) -> &'static str {
    match error {
        MetadataError::Malformed { .. } => "Malformed",
        MetadataError::SchemaMismatch { .. } => "SchemaMismatch",
        MetadataError::RowCountMismatch { .. } => "RowCountMismatch",
        MetadataError::Unsupported { .. } => "Unsupported",
        MetadataError::Nulls { .. } => "Nulls",
        MetadataError::InvalidText { .. } => "InvalidText",
        MetadataError::KindMismatch { .. } => "KindMismatch",
        MetadataError::WidthMismatch { .. } => "WidthMismatch",
        MetadataError::TextTooLong { .. } => "TextTooLong",
        MetadataError::Write(_) => "Write",
    }
}

fn examine(case: &str) -> End {
    let (manifest, file) = manifest_and_table(&golden(&["damaged", case, "cache"]));
    let table = match MetadataTable::open(file.into(), &manifest.schema, manifest.sample_count) {
        Ok(table) => table,
        Err(error) => return End::Open(variant(&error)),
    };
    if let Err(error) = values(&table, manifest.schema.len()) {
        let of_arrays = table.arrays().unwrap_err();
        assert_eq!(of_arrays.to_string(), error.to_string(), "both ways name the same row");
        return End::Value(variant(&error));
    }
    match table.arrays() {
        Ok(batches) => End::Whole(batches.len()),
        Err(error) => End::Arrays(variant(&error)),
    }
}

#[test]
fn every_damaged_table_ends_in_its_error() {
    let cases = [
        ("_base_dmg_none", End::Whole(1)),
        ("_base_dmg_lz4", End::Whole(1)),
        ("metadata_bad_utf8_resealed", End::Value("InvalidText")),
        ("metadata_bit_flip", End::Whole(1)), // a value changed: for the file's digest to notice
        ("metadata_column_missing_resealed", End::Open("SchemaMismatch")),
        ("metadata_column_renamed_resealed", End::Open("SchemaMismatch")),
        ("metadata_compressed_resealed", End::Open("Unsupported")),
        ("metadata_empty", End::Open("Malformed")),
        ("metadata_large_utf8_resealed", End::Open("SchemaMismatch")),
        ("metadata_null_resealed", End::Arrays("Nulls")),
        ("metadata_row_missing_resealed", End::Open("RowCountMismatch")),
        ("metadata_truncated", End::Open("Malformed")),
        ("metadata_two_batches_resealed", End::Whole(2)),
    ];
    for (case, end) in &cases {
        assert_eq!(&examine(case), end, "{case}");
    }
    let listed = caches("damaged").iter().filter(|path| path.join("cache/metadata.arrow").exists()).count();
    let named = caches("damaged")
        .iter()
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("metadata_"))
        .filter(|path| path.join("cache/metadata.arrow").exists())
        .count();
    assert!(listed > named && named == cases.len() - 2, "every damaged table is in the list above");
}

#[test]
fn a_schema_error_names_the_column_and_a_count_error_both_counts() {
    let (manifest, file) = manifest_and_table(&golden(&["damaged", "metadata_column_renamed_resealed", "cache"]));
    let error = MetadataTable::open(file.into(), &manifest.schema, manifest.sample_count).unwrap_err().to_string();
    assert!(manifest.schema.fields().iter().any(|field| error.contains(&field.name)), "{error}");

    let (manifest, file) = manifest_and_table(&golden(&["damaged", "metadata_row_missing_resealed", "cache"]));
    match MetadataTable::open(file.into(), &manifest.schema, manifest.sample_count).unwrap_err() {
        MetadataError::RowCountMismatch { expected, found } => assert_eq!((expected, found), (6, 5)),
        other => panic!("{other:?}"),
    }
}
