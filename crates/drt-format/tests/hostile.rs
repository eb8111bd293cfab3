//! Damaged caches end in the right error, and arbitrary damage in some error, never a panic.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use drt_format::{
    CompressionAlgo, FormatError, IndexView, Manifest, MetadataField, MetadataKind, MetadataSchema, Sha256Hasher,
    decode_payload, decode_row, encode_payload, payload_len, split_record, validate_index, validate_row_count,
};
use proptest::prelude::*;
use support::{caches, golden, read};

/// Where reading a cache ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Every row is read.
    Whole,
    /// As `Whole`, but SHA-256 of some file does not agree.
    Unverified,
    /// A file is missing or has another length than the manifest says.
    Files,
    /// An error with this name, before any record is read.
    Open(&'static str),
    /// An error with this name from a record.
    Read(&'static str),
}

/// Each damaged cache. What is wrong with `metadata.arrow` is for the crate that reads it: here
/// only its digest is seen.
const CASES: &[(&str, End)] = &[
    ("_base_dmg_lz4", End::Whole),
    ("_base_dmg_none", End::Whole),
    ("extra_files", End::Whole),
    ("index_bit_flip", End::Read("RecordJsonLen")),
    ("index_length_2_pow_40", End::Open("RecordOutOfShard")),
    ("index_length_u64_max", End::Open("RecordOutOfShard")),
    ("index_length_zero", End::Read("RecordTooShort")),
    ("index_missing", End::Files),
    ("index_offset_out_of_range", End::Open("RecordOutOfShard")),
    ("index_offset_u64_max", End::Open("RecordOutOfShard")),
    ("index_partial_row", End::Open("IndexLen")),
    ("index_row_extra", End::Open("RowCount")),
    ("index_row_missing", End::Open("RowCount")),
    ("index_rows_swapped_resealed", End::Whole),
    ("index_shard_out_of_range", End::Open("ShardOutOfRange")),
    ("lz4_block_cut_resealed", End::Read("Lz4Block")),
    ("lz4_declared_on_raw_resealed", End::Read("PayloadLenImpossible")),
    ("lz4_prefix_too_large_resealed", End::Read("PayloadLen")),
    ("lz4_prefix_too_small_resealed", End::Read("Lz4Block")),
    ("lz4_prefix_u32_max_resealed", End::Read("PayloadLenImpossible")),
    ("manifest_cache_id_negative", End::Open("ManifestKeyInvalid")),
    ("manifest_checksum_upper_case", End::Whole),
    ("manifest_duplicate_column", End::Open("ColumnRepeated")),
    ("manifest_duplicate_key", End::Open("ManifestKeyRepeated")),
    ("manifest_empty", End::Open("ManifestJson")),
    ("manifest_missing", End::Files),
    ("manifest_no_cache_id", End::Open("ManifestKeyMissing")),
    ("manifest_sample_count_high", End::Open("RowCount")),
    ("manifest_shard_list_short", End::Open("ShardOutOfRange")),
    ("manifest_shard_name_escapes", End::Open("ShardName")),
    ("manifest_truncated", End::Open("ManifestJson")),
    ("manifest_unknown_algo", End::Open("ManifestKeyMissing")),
    ("manifest_unknown_fields", End::Whole),
    ("manifest_unknown_kind", End::Open("ManifestKeyInvalid")),
    ("manifest_version_1", End::Open("UnsupportedVersion")),
    ("manifest_version_4", End::Open("UnsupportedVersion")),
    ("manifest_version_text", End::Open("ManifestKeyInvalid")),
    ("metadata_bad_utf8_resealed", End::Whole),
    ("metadata_bit_flip", End::Unverified),
    ("metadata_column_missing_resealed", End::Whole),
    ("metadata_column_renamed_resealed", End::Whole),
    ("metadata_compressed_resealed", End::Whole),
    ("metadata_empty", End::Unverified),
    ("metadata_large_utf8_resealed", End::Whole),
    ("metadata_missing", End::Files),
    ("metadata_null_resealed", End::Whole),
    ("metadata_row_missing_resealed", End::Whole),
    ("metadata_truncated", End::Unverified),
    ("metadata_two_batches_resealed", End::Whole),
    ("shard_extended", End::Files),
    ("shard_json_bad_utf8", End::Read("RowUtf8")),
    ("shard_json_float_as_int", End::Read("RowKind")),
    ("shard_json_length_huge", End::Read("RecordJsonLen")),
    ("shard_json_not_json", End::Read("RowJson")),
    ("shard_json_value_changed", End::Unverified),
    ("shard_json_value_changed_resealed", End::Whole),
    ("shard_missing", End::Files),
    ("shard_payload_bit_flip", End::Unverified),
    ("shard_truncated", End::Files),
    ("shard_truncated_resealed", End::Open("RecordOutOfShard")),
];

#[test]
fn every_damaged_cache_ends_as_it_should() {
    let cases: BTreeMap<&str, End> = CASES.iter().copied().collect();
    let folders = caches("damaged");
    assert_eq!(folders.len(), cases.len());
    for folder in folders {
        let case = folder.file_name().unwrap().to_str().unwrap();
        let end = examine(&folder.join("cache"));
        assert_eq!(Some(&end), cases.get(case), "{case}");
        if case.starts_with('_') {
            continue;
        }

        // The table above must also be what the fixture asks for. Arrow is not ours.
        let expect: serde_json::Value = serde_json::from_slice(&read(&folder.join("EXPECT.json"))).unwrap();
        let want = expect["want"].as_str().unwrap();
        let fits = match end {
            End::Whole => want.starts_with("accept") || want.contains("cross-checked") || case.starts_with("metadata_"),
            End::Unverified => want.contains("checksums are verified") || case.starts_with("metadata_"),
            End::Files | End::Open(_) => want.starts_with("reject at open"),
            End::Read(_) => want.contains("read") || want.starts_with("reject without allocating"),
        };
        assert!(fits, "{case}: {end:?} is not {want:?}");
    }
}

/// Reads a cache as a reader would, with the checks of this crate.
fn examine(cache: &Path) -> End {
    let file = |name: &str| std::fs::read(cache.join(name)).ok();
    let open = |error: FormatError| End::Open(variant(&error));
    let end = || -> Result<End, End> {
        let manifest = Manifest::decode(&file("manifest.json").ok_or(End::Files)?).map_err(open)?;
        let metadata = file("metadata.arrow").ok_or(End::Files)?;
        let index_bytes = file("index.bin").ok_or(End::Files)?;
        let mut verified = Sha256Hasher::digest(&metadata) == manifest.metadata_sha256
            && Sha256Hasher::digest(&index_bytes) == manifest.index_sha256;
        let mut shards = Vec::new();
        for shard in &manifest.shards {
            let bytes = file(&format!("shards/{}", shard.name)).ok_or(End::Files)?;
            if bytes.len() as u64 != shard.byte_len {
                return Err(End::Files);
            }
            verified &= Sha256Hasher::digest(&bytes) == shard.sha256;
            shards.push(bytes);
        }

        let index = IndexView::new(&index_bytes).map_err(open)?;
        validate_row_count(&manifest, index).map_err(open)?;
        validate_index(index, &manifest.shards).map_err(open)?;
        for entry in index.iter() {
            let shard = entry.shard as usize;
            let record = &shards[shard][entry.offset as usize..][..entry.len as usize];
            read_record(&manifest.schema, manifest.shards[shard].compression.algo, record)
                .map_err(|error| End::Read(variant(&error)))?;
        }
        Ok(if verified { End::Whole } else { End::Unverified })
    };
    end().unwrap_or_else(|end| end)
}

fn read_record(schema: &MetadataSchema, algo: CompressionAlgo, record: &[u8]) -> Result<(), FormatError> {
    let (json, stored) = split_record(record)?;
    decode_row(schema, json)?;
    let mut payload = vec![0; payload_len(algo, stored)?];
    decode_payload(algo, stored, &mut payload)
}

/// The name of an error's variant.
fn variant(error: &FormatError) -> &'static str {
    let debug = format!("{error:?}");
    let name = debug.split([' ', '{']).next().unwrap_or_default();
    Box::leak(name.to_owned().into_boxed_str())
}

/// One change to some bytes: replaced, cut out or doubled.
#[derive(Debug, Clone)]
enum Damage {
    Flip(prop::sample::Index, u8),
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Remove(prop::sample::Index, usize),
    Double(prop::sample::Index, usize),
}

fn damage() -> impl Strategy<Value = Vec<Damage>> {
    let place = any::<prop::sample::Index>;
    let interesting = prop::sample::select(b"\0\xff\x80\"\\{}[],:019-+.eEuntf /\n".to_vec());
    let one = prop_oneof![
        (place(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (place(), interesting).prop_map(|(at, byte)| Damage::Set(at, byte)),
        place().prop_map(Damage::Cut),
        (place(), 1usize..40).prop_map(|(at, len)| Damage::Remove(at, len)),
        (place(), 1usize..40).prop_map(|(at, len)| Damage::Double(at, len)),
    ];
    prop::collection::vec(one, 1..4)
}

fn apply(bytes: &mut Vec<u8>, damage: &[Damage]) {
    for step in damage {
        if bytes.is_empty() {
            return;
        }
        match step {
            Damage::Flip(at, bit) => *at.get_mut(bytes) ^= 1 << bit,
            Damage::Set(at, byte) => *at.get_mut(bytes) = *byte,
            Damage::Cut(at) => bytes.truncate(at.index(bytes.len())),
            Damage::Remove(at, len) => {
                let start = at.index(bytes.len());
                bytes.drain(start..bytes.len().min(start + len));
            }
            Damage::Double(at, len) => {
                let start = at.index(bytes.len());
                bytes.extend_from_within(start..bytes.len().min(start + len));
            }
        }
    }
}

fn wide_schema() -> MetadataSchema {
    let fields = MetadataKind::ALL.map(|kind| MetadataField::new(kind.name(), kind));
    MetadataSchema::new(fields.to_vec()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn damaged_manifests_never_panic(damage in damage(), v3: bool) {
        let set = if v3 { "v3" } else { "v2" };
        let mut bytes = read(&golden(&[set, "kinds_lz4", "manifest.json"]));
        apply(&mut bytes, &damage);
        match Manifest::decode(&bytes) {
            // What is accepted can be written and is then accepted as the same.
            Ok(manifest) => prop_assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest)),
            Err(error) => prop_assert!(error.to_string().len() < 2000),
        }
    }

    #[test]
    fn damaged_indexes_never_panic(damage in damage()) {
        let manifest = Manifest::decode(&read(&golden(&["v3", "shards_none", "manifest.json"]))).unwrap();
        let mut bytes = read(&golden(&["v3", "shards_none", "index.bin"]));
        apply(&mut bytes, &damage);
        if let Ok(index) = IndexView::new(&bytes)
            && validate_index(index, &manifest.shards).is_ok()
        {
            for entry in index.iter() {
                let shard = &manifest.shards[entry.shard as usize];
                prop_assert!(entry.offset + entry.len <= shard.byte_len);
            }
        }
    }

    #[test]
    fn damaged_records_never_panic(damage in damage(), algo in prop::sample::select(&CompressionAlgo::ALL[..])) {
        let json = br#"{"bool":true,"int":-12,"float":1.5e-7,"string":"a\u00e9\ud83d\ude00\n"}"#;
        let mut record = (json.len() as u64).to_le_bytes().to_vec();
        record.extend_from_slice(json);
        encode_payload(algo, b"aaaaaaaaaaaaaaaaaaaaaaaabcbcbcbcbcbcbcbcbcbc0123456789", &mut record).unwrap();
        read_record(&wide_schema(), algo, &record).unwrap();
        apply(&mut record, &damage);
        let _outcome = read_record(&wide_schema(), algo, &record);
    }

    #[test]
    fn damaged_rows_are_judged_like_any_json(damage in damage()) {
        let mut json = br#"{"bool":true,"int":-12,"float":1.5e-7,"string":"a\u00e9\ud83d\ude00\n"}"#.to_vec();
        apply(&mut json, &damage);
        let row = decode_row(&wide_schema(), &json);
        match serde_json::from_slice::<serde_json::Value>(&json) {
            // A well-formed object for one parser is one for the other.
            Ok(value) if value.is_object() => {
                let malformed = matches!(row, Err(FormatError::RowJson { .. } | FormatError::RowUtf8 { .. }));
                prop_assert!(!malformed);
            }
            _ => prop_assert!(row.is_err()),
        }
    }

    #[test]
    fn damaged_blocks_never_panic(
        payload in prop_oneof![prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(0u8..2, 0..3000)],
        damage in damage(),
    ) {
        let mut stored = Vec::new();
        for (algo, expansion) in [(CompressionAlgo::Lz4, 255), (CompressionAlgo::Zstd, 32 * 1024)] {
            stored.clear();
            encode_payload(algo, &payload, &mut stored).unwrap();
            apply(&mut stored, &damage);
            if let Ok(len) = payload_len(algo, &stored) {
                prop_assert!(len <= expansion * (stored.len() + 4));
                let mut out = vec![0; len];
                let _outcome = decode_payload(algo, &stored, &mut out);
            }
        }
    }

    #[test]
    fn noise_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _outcome = Manifest::decode(&bytes);
        for algo in CompressionAlgo::ALL {
            let _outcome = read_record(&wide_schema(), algo, &bytes);
            let mut out = [0; 64];
            let _outcome = decode_payload(algo, &bytes, &mut out);
        }
    }
}

#[test]
fn depth_does_not_exhaust_the_stack() {
    let deep = 300_000;
    for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
        let nested = format!("{}1{}", open.repeat(deep), close.repeat(deep));
        let row = format!(r#"{{"bool":{nested}}}"#);
        assert!(decode_row(&wide_schema(), row.as_bytes()).is_err());
        assert!(decode_row(&wide_schema(), &row.as_bytes()[..deep]).is_err());
        let manifest = format!(r#"{{"x":{nested}}}"#);
        assert!(Manifest::decode(manifest.as_bytes()).is_err());
        assert!(Manifest::decode(nested.as_bytes()).is_err());
    }
}
