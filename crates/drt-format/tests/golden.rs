//! Caches written by released packages are read whole, and written again byte for byte.

mod support;

use drt_format::{
    CompressionAlgo, DecodedValue, IndexEntry, IndexView, Manifest, MetadataKind, RowEncoder, Sha256Hasher,
    decode_payload, decode_row, encode_payload, payload_len, split_record, validate_index, validate_row_count,
};
use serde_json::Value;
use support::{caches, golden, read};

/// Sets of intact caches.
const SETS: [&str; 3] = ["v2", "v3", "migrated"];

#[test]
fn every_golden_cache_is_found() {
    let found = SETS.map(|set| caches(set).len());
    assert_eq!(found, [13, 13, 2]);
}

#[test]
fn manifests_are_written_again_byte_for_byte() {
    for set in SETS {
        for cache in caches(set) {
            let bytes = read(&cache.join("manifest.json"));
            let manifest = Manifest::decode(&bytes).unwrap();
            assert_eq!(manifest.encode(), bytes, "{}", cache.display());
        }
    }
}

#[test]
fn a_migrated_manifest_is_the_upgrade_of_the_old_one() {
    for (position, name) in ["shards_none", "shards_lz4"].into_iter().enumerate() {
        let old = Manifest::decode(&read(&golden(&["v2", name, "manifest.json"]))).unwrap();
        let id = drt_format::CacheId::new(position as u64);
        let migrated = read(&golden(&["migrated", name, "manifest.json"]));
        assert_eq!(old.upgrade(id).encode(), migrated, "{name}");
        let text = Manifest::upgrade_text(&read(&golden(&["v2", name, "manifest.json"])), id).unwrap();
        assert_eq!(text, Some(migrated.clone()), "{name}");
        assert_eq!(Manifest::upgrade_text(&migrated, drt_format::CacheId::new(7)), Ok(None), "{name}");
    }
}

#[test]
fn ids_of_version_3_come_from_the_source_name() {
    for cache in caches("v3") {
        let manifest = Manifest::decode(&read(&cache.join("manifest.json"))).unwrap();
        let id = drt_format::CacheId::from_source_name(&manifest.source_name);
        assert_eq!(manifest.cache_id, Some(id), "{}", manifest.source_name);
    }
}

#[test]
fn every_record_is_as_expected_and_is_written_again_byte_for_byte() {
    for set in SETS {
        for cache in caches(set) {
            let name = cache.file_name().unwrap().to_str().unwrap();
            let expected = read(&golden(&["expected", set, &format!("{name}.json")]));
            compare(&cache, &serde_json::from_slice(&expected).unwrap());
        }
    }
}

fn compare(cache: &std::path::Path, expected: &Value) {
    let place = cache.display();
    let manifest = Manifest::decode(&read(&cache.join("manifest.json"))).unwrap();
    assert_eq!(manifest.version.number(), expected["format_version"], "{place}");
    assert_eq!(manifest.source_name, expected["source_name"], "{place}");
    assert_eq!(manifest.sample_count, expected["sample_count"], "{place}");
    if let Some(id) = manifest.cache_id {
        assert_eq!(id.get(), expected["cache_id"], "{place}");
    }
    assert_eq!(Sha256Hasher::digest(&read(&cache.join("metadata.arrow"))), manifest.metadata_sha256, "{place}");

    let columns = expected["schema"].as_array().unwrap();
    assert_eq!(manifest.schema.len(), columns.len(), "{place}");
    for (field, column) in manifest.schema.fields().iter().zip(columns) {
        assert_eq!(
            (field.name.as_str(), field.kind.name()),
            (column["name"].as_str().unwrap(), column["kind"].as_str().unwrap())
        );
    }

    let shards: Vec<Vec<u8>> =
        manifest.shards.iter().map(|shard| read(&cache.join("shards").join(&shard.name))).collect();
    let listed = expected["shards"].as_array().unwrap();
    assert_eq!(shards.len(), listed.len(), "{place}");
    for ((shard, bytes), listed) in manifest.shards.iter().zip(&shards).zip(listed) {
        assert_eq!(shard.name, listed["name"]);
        assert_eq!(shard.byte_len, listed["byte_len"]);
        assert_eq!(shard.byte_len, bytes.len() as u64);
        assert_eq!(shard.uncompressed_byte_len, listed["uncompressed_byte_len"]);
        assert_eq!(shard.compression.algo.name(), listed["compression"]["algo"]);
        assert_eq!(shard.compression.ratio.as_f64(), listed["compression"]["ratio"]);
        assert_eq!(shard.sha256, Sha256Hasher::digest(bytes));
    }

    let index_bytes = read(&cache.join("index.bin"));
    assert_eq!(Sha256Hasher::digest(&index_bytes), manifest.index_sha256, "{place}");
    let index = IndexView::new(&index_bytes).unwrap();
    validate_row_count(&manifest, index).unwrap();
    validate_index(index, &manifest.shards).unwrap();
    let again: Vec<u8> = index.iter().flat_map(|entry: IndexEntry| entry.encode()).collect();
    assert_eq!(again, index_bytes, "{place}");

    let encoder = RowEncoder::new(&manifest.schema);
    let mut uncompressed = vec![0; shards.len()];
    for (row, entry) in index.iter().enumerate() {
        let sample = &expected["samples"][row];
        assert_eq!(sample["sample_id"], row);
        let shard = entry.shard as usize;
        let algo = manifest.shards[shard].compression.algo;
        let record = &shards[shard][entry.offset as usize..][..entry.len as usize];
        let (json, stored) = split_record(record).unwrap();

        let mut payload = vec![0; payload_len(algo, stored).unwrap()];
        decode_payload(algo, stored, &mut payload).unwrap();
        assert_eq!(payload.len(), sample["len"], "{place} row {row}");
        assert_eq!(Sha256Hasher::digest(&payload).to_string(), sample["sha256"], "{place} row {row}");
        uncompressed[shard] += payload.len() as u64;

        let values = decode_row(&manifest.schema, json).unwrap();
        for (field, value) in manifest.schema.fields().iter().zip(&values) {
            let bits = sample["float_bits"][&field.name].as_str();
            compare_value(value, &sample["metadata"][&field.name], bits, field.kind);
        }

        let mut again = Vec::new();
        encoder.encode_record_head(|column| values[column].as_value(), &mut again);
        assert_eq!(again, record[..8 + json.len()], "{place} row {row}");
        if algo == CompressionAlgo::None {
            encode_payload(algo, &payload, &mut again).unwrap();
            assert_eq!(again, record, "{place} row {row}");
        }
    }
    let listed: Vec<u64> = manifest.shards.iter().map(|shard| shard.uncompressed_byte_len).collect();
    assert_eq!(uncompressed, listed, "{place}");
}

fn compare_value(value: &DecodedValue<'_>, expected: &Value, bits: Option<&str>, kind: MetadataKind) {
    assert_eq!(value.kind(), kind);
    match value {
        DecodedValue::Bool(value) => assert_eq!(expected, value),
        DecodedValue::Int(value) => assert_eq!(expected, value),
        DecodedValue::Float(value) => {
            let bits = u64::from_str_radix(bits.unwrap(), 16).unwrap();
            assert_eq!(value.to_bits(), bits, "{value} {expected}");
        }
        DecodedValue::NonFiniteFloat => assert!(matches!(expected.as_str(), Some("nan" | "inf" | "-inf"))),
        DecodedValue::String(value) => assert_eq!(expected, &**value),
    }
}
