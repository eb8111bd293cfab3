//! Where the golden caches are, and one way to look at every value of a table.

#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};

use drt_format::{Manifest, MetadataValue};
use drt_metadata::{MetadataError, MetadataTable};
use polars_arrow::array::{Array, BooleanArray, PrimitiveArray, Utf8ViewArray};

/// A value that can be compared bit by bit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Bits {
    Bool(bool),
    Int(i64),
    Float(u64),
    String(String),
}

impl From<MetadataValue<'_>> for Bits {
    fn from(value: MetadataValue<'_>) -> Self {
        match value {
            MetadataValue::Bool(value) => Self::Bool(value),
            MetadataValue::Int(value) => Self::Int(value),
            MetadataValue::Float(value) => Self::Float(value.to_bits()),
            MetadataValue::String(value) => Self::String(value.to_owned()),
        }
    }
}

/// Every value of a table, row by row.
pub(crate) fn values(table: &MetadataTable, num_columns: usize) -> Result<Vec<Vec<Bits>>, MetadataError> {
    (0..table.num_rows())
        .map(|row| (0..num_columns).map(|column| table.value(row, column).map(Bits::from)).collect())
        .collect()
}

/// The same, by way of the Arrow arrays.
pub(crate) fn array_values(table: &MetadataTable, num_columns: usize) -> Result<Vec<Vec<Bits>>, MetadataError> {
    let batches = table.arrays()?;
    if num_columns == 0 {
        return Ok(vec![Vec::new(); table.num_rows() as usize]);
    }
    let mut rows = Vec::new();
    for batch in batches {
        assert_eq!(batch.len(), num_columns);
        rows.extend(
            (0..batch[0].len()).map(|row| batch.iter().map(|array| array_value(array.as_ref(), row)).collect()),
        );
    }
    Ok(rows)
}

fn array_value(array: &dyn Array, row: usize) -> Bits {
    assert_eq!(array.null_count(), 0);
    let array = array.as_any();
    if let Some(array) = array.downcast_ref::<BooleanArray>() {
        Bits::Bool(array.value(row))
    } else if let Some(array) = array.downcast_ref::<PrimitiveArray<i64>>() {
        Bits::Int(array.value(row))
    } else if let Some(array) = array.downcast_ref::<PrimitiveArray<f64>>() {
        Bits::Float(array.value(row).to_bits())
    } else {
        let array = array.downcast_ref::<Utf8ViewArray>().expect("one of the four kinds");
        Bits::String(array.value(row).to_owned())
    }
}

/// A path among the golden data.
pub(crate) fn golden(parts: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    parts.iter().fold(root, |path, part| path.join(part))
}

/// The folders in a set, by name.
pub(crate) fn caches(set: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(golden(&[set]))
        .unwrap_or_else(|error| panic!("{set}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// The bytes of a file that must be there.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A cache's manifest and the bytes of its metadata table.
pub(crate) fn manifest_and_table(cache: &Path) -> (Manifest, Vec<u8>) {
    let manifest = Manifest::decode(&read(&cache.join("manifest.json"))).unwrap();
    (manifest, read(&cache.join("metadata.arrow")))
}
