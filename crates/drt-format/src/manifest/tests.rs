use serde_json::json;

use super::*;
use crate::checksum::{RecordChecksumAlgo, Sha256Hasher};
use crate::schema::{MetadataField, MetadataKind};

fn manifest() -> Value {
    json!({
        "format_version": 3,
        "cache_id": u64::MAX,
        "source_name": "train",
        "sample_count": 2,
        "metadata_schema": [{"name": "b", "kind": "int"}, {"name": "a", "kind": "string"}],
        "metadata_sha256": "00".repeat(32),
        "index_sha256": "ab".repeat(32),
        "shards": [
            {
                "name": "000000.bin",
                "uncompressed_byte_len": 10,
                "byte_len": u64::MAX,
                "compression": {"algo": "lz4", "ratio": 2.5},
                "sha256": "CD".repeat(32),
            },
            {
                "name": "other",
                "uncompressed_byte_len": 0,
                "byte_len": 0,
                "compression": {"algo": "none", "ratio": 1.0},
                "sha256": "ef".repeat(32),
            },
        ],
    })
}

fn decode(value: &Value) -> Result<Manifest, FormatError> {
    Manifest::decode(value.to_string().as_bytes())
}

/// The manifest with one place changed.
fn changed(pointer: &str, value: Value) -> Result<Manifest, FormatError> {
    let mut manifest = manifest();
    *manifest.pointer_mut(pointer).unwrap() = value;
    decode(&manifest)
}

fn invalid_key(error: FormatError) -> String {
    match error {
        FormatError::ManifestKeyInvalid { key, .. } => key,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_key_arrives() {
    let decoded = decode(&manifest()).unwrap();
    assert_eq!(decoded.version, FormatVersion::V3);
    assert_eq!(decoded.cache_id, Some(CacheId::new(u64::MAX)));
    assert_eq!(decoded.source_name, "train");
    assert_eq!(decoded.sample_count, 2);
    let fields = [MetadataField::new("b", MetadataKind::Int), MetadataField::new("a", MetadataKind::String)];
    assert_eq!(decoded.schema.fields(), fields);
    assert_eq!(decoded.metadata_sha256, Sha256Digest::new([0; 32]));
    assert_eq!(decoded.index_sha256, Sha256Digest::new([0xab; 32]));
    assert_eq!(decoded.shards.len(), 2);
    assert_eq!(decoded.shards[0].byte_len, u64::MAX);
    assert_eq!(decoded.shards[0].compression.ratio.as_str(), "2.5");
    assert_eq!(decoded.shards[0].sha256, Sha256Digest::new([0xcd; 32]));
    assert_eq!(decoded.shards[1].name, "other");
    assert!(decoded.extra.is_empty());
}

#[test]
fn each_missing_key_is_named() {
    let required = [
        ("", "format_version", "format_version"),
        ("", "cache_id", "cache_id"),
        ("", "source_name", "source_name"),
        ("", "sample_count", "sample_count"),
        ("", "metadata_schema", "metadata_schema"),
        ("", "metadata_sha256", "metadata_sha256"),
        ("", "index_sha256", "index_sha256"),
        ("", "shards", "shards"),
        ("/metadata_schema/1", "name", "metadata_schema[1].name"),
        ("/metadata_schema/0", "kind", "metadata_schema[0].kind"),
        ("/shards/1", "name", "shards[1].name"),
        ("/shards/1", "uncompressed_byte_len", "shards[1].uncompressed_byte_len"),
        ("/shards/0", "byte_len", "shards[0].byte_len"),
        ("/shards/0", "compression", "shards[0].compression"),
        ("/shards/0", "sha256", "shards[0].sha256"),
        ("/shards/1/compression", "algo", "shards[1].compression.algo"),
        ("/shards/1/compression", "ratio", "shards[1].compression.ratio"),
    ];
    for (object, key, place) in required {
        let mut manifest = manifest();
        manifest.pointer_mut(object).unwrap().as_object_mut().unwrap().remove(key).unwrap();
        assert_eq!(decode(&manifest), Err(FormatError::ManifestKeyMissing { key: place.into() }));
    }
}

#[test]
fn each_wrong_value_is_named() {
    let short = json!("ab".repeat(31));
    let no_hex = json!("xy".repeat(32));
    let wrong = [
        ("/format_version", vec![json!(null), json!("3"), json!(-3), json!(3.0)]),
        ("/cache_id", vec![json!(null), json!("1"), json!(-1), json!(1.0), json!(true), json!([1])]),
        ("/source_name", vec![json!(null), json!(1)]),
        ("/sample_count", vec![json!(1.0), json!(-1), json!("1"), json!(null)]),
        ("/metadata_schema", vec![json!({}), json!(null), json!("a")]),
        ("/metadata_schema/1", vec![json!([]), json!("a")]),
        ("/metadata_schema/1/name", vec![json!(1), json!(null)]),
        ("/metadata_schema/1/kind", vec![json!("double"), json!("Int"), json!(1)]),
        ("/metadata_sha256", vec![json!(""), short.clone(), no_hex.clone(), json!(1)]),
        ("/index_sha256", vec![json!(""), short.clone(), no_hex.clone(), json!(null)]),
        ("/shards", vec![json!({}), json!(1)]),
        ("/shards/1", vec![json!("000000.bin"), json!([])]),
        ("/shards/1/name", vec![json!(1), json!(null)]),
        ("/shards/1/byte_len", vec![json!(-1), json!(0.0), json!("0")]),
        ("/shards/1/uncompressed_byte_len", vec![json!(-1), json!(0.0), json!("0")]),
        ("/shards/1/compression", vec![json!("none"), json!(null)]),
        ("/shards/1/compression/algo", vec![json!("brotli"), json!("LZ4"), json!(null)]),
        ("/shards/1/compression/ratio", vec![json!(null), json!("1.0"), json!([1.0])]),
        ("/shards/1/sha256", vec![json!(""), short, no_hex]),
    ];
    for (pointer, values) in wrong {
        let place = pointer[1..].replace("/1", "[1]").replace('/', ".");
        for value in values {
            assert_eq!(invalid_key(changed(pointer, value.clone()).unwrap_err()), place, "{value}");
        }
    }
}

#[test]
fn messages_say_what_was_expected_and_found() {
    for (pointer, value, message) in [
        (
            "/shards/1/byte_len",
            json!("x"),
            "the manifest key `shards[1].byte_len` is wrong: invalid type: string \"x\", expected u64",
        ),
        (
            "/metadata_schema/0/kind",
            json!("date"),
            "the manifest key `metadata_schema[0].kind` is wrong: unknown kind \"date\"",
        ),
        (
            "/cache_id",
            json!(-1),
            "the manifest key `cache_id` is wrong: expected an integer from 0 to 2^64-1, found -1",
        ),
        (
            "/index_sha256",
            json!("0"),
            "the manifest key `index_sha256` is wrong: a SHA-256 is 64 hexadecimal digits, found \"0\"",
        ),
    ] {
        assert_eq!(changed(pointer, value).unwrap_err().to_string(), message);
    }
}

#[test]
fn other_versions_are_refused_by_name_whatever_else_they_hold() {
    for found in [0, 1, 4, 99] {
        assert_eq!(changed("/format_version", json!(found)), Err(FormatError::UnsupportedVersion { found }));
        let bare = json!({"shards": {"count": 1}, "format_version": found});
        assert_eq!(decode(&bare), Err(FormatError::UnsupportedVersion { found }));
    }
}

#[test]
fn harmless_oddities_are_accepted() {
    for (pointer, value) in [
        ("/source_name", json!("")),
        ("/source_name", json!("../x")),
        ("/sample_count", json!(0)),
        ("/cache_id", json!(0)),
        ("/shards/1/name", json!("000000.bin")),
        ("/shards/1/name", json!("...")),
        ("/shards/1/compression/ratio", json!(0)),
        ("/shards/1/compression/ratio", json!(7)),
        ("/shards", json!([])),
        ("/metadata_schema", json!([])),
    ] {
        assert!(changed(pointer, value.clone()).is_ok(), "{pointer} {value}");
    }
}

#[test]
fn shard_names_stay_in_their_folder() {
    for name in ["", ".", "..", "/etc/passwd", "../x", "a/b", "a\\b", "C:\\x", "a\0"] {
        assert_eq!(changed("/shards/1/name", json!(name)), Err(FormatError::ShardName { shard: 1, name: name.into() }));
    }
}

#[test]
fn two_columns_cannot_share_a_name() {
    assert_eq!(changed("/metadata_schema/1/name", json!("b")), Err(FormatError::ColumnRepeated { name: "b".into() }));
}

#[test]
fn unknown_keys_are_ignored_below_and_kept_at_the_top() {
    let mut manifest = manifest();
    for object in ["/metadata_schema/0", "/shards/0", "/shards/1/compression"] {
        manifest.pointer_mut(object).unwrap()["x_note"] = json!({"deep": [1, null]});
    }
    manifest["x_z"] = json!([1, 2.5, {"k": "v"}]);
    manifest["x_a"] = json!(u64::MAX);
    let decoded = decode(&manifest).unwrap();
    assert_eq!(
        decoded.extra.iter().collect::<Vec<_>>(),
        [(&"x_z".to_owned(), &manifest["x_z"]), (&"x_a".to_owned(), &manifest["x_a"]),]
    );

    let text = String::from_utf8(decoded.encode()).unwrap();
    assert!(text.ends_with("  ],\n  \"x_z\": [\n    1,\n    2.5,\n    {\n      \"k\": \"v\"\n    }\n  ],\n  \"x_a\": 18446744073709551615\n}"));
    assert!(!text.contains("x_note"));
    assert_eq!(Manifest::decode(text.as_bytes()), Ok(decoded));
}

#[test]
fn a_key_may_come_twice_only_below_the_top() {
    let text = manifest().to_string();
    for key in ["format_version", "cache_id", "shards", "x_own"] {
        let twice = format!(r#"{{"x_own":1,"{key}":1,{}"#, &text[1..]);
        let twice = if key == "x_own" { twice } else { twice.replacen(r#""x_own":1,"#, "", 1) };
        assert!(Manifest::decode(twice.as_bytes()).is_err(), "{key}");
    }
    let repeated = format!(r#"{{"x":1,"x":1,{}"#, &text[1..]);
    assert_eq!(Manifest::decode(repeated.as_bytes()), Err(FormatError::ManifestKeyRepeated { key: "x".into() }));

    let nested = text.replace(r#""algo":"none""#, r#""algo":"lz4","algo":"none""#);
    let nested = nested.replace(r#""name":"other""#, r#""name":"first","name":"other""#);
    assert_eq!(Manifest::decode(nested.as_bytes()), decode(&manifest()));
}

#[test]
fn key_order_white_space_and_digest_case_do_not_matter() {
    let reversed: Map<String, Value> = manifest().as_object().unwrap().clone().into_iter().rev().collect();
    let text = serde_json::to_string_pretty(&reversed).unwrap();
    let text = format!(" \r\n{}\n\t \n", text.replace(&"ab".repeat(32), &"AB".repeat(32)));
    assert_eq!(Manifest::decode(text.as_bytes()), decode(&manifest()));
}

#[test]
fn only_one_json_object_is_a_manifest() {
    let text = manifest().to_string();
    for bad in [
        String::new(),
        "null".to_owned(),
        format!("[{text}]"),
        format!("\u{feff}{text}"),
        format!("{text}x"),
        format!("{text}{text}"),
        text[..text.len() - 1].to_owned(),
        text.replace("2.5", "NaN"),
    ] {
        let error = Manifest::decode(bad.as_bytes()).unwrap_err();
        assert!(matches!(error, FormatError::ManifestJson { .. }), "{bad}: {error}");
    }
    let mut bytes = text.into_bytes();
    bytes[3] = 0xff;
    assert_eq!(Manifest::decode(&bytes), Err(FormatError::ManifestUtf8 { offset: 3 }));
}

#[test]
fn version_2_has_no_id_and_ignores_the_key() {
    for cache_id in [json!(null), json!("x"), json!(-1), json!(5)] {
        let mut manifest = manifest();
        manifest["format_version"] = json!(2);
        manifest["cache_id"] = cache_id;
        let decoded = decode(&manifest).unwrap();
        assert_eq!((decoded.version, decoded.cache_id), (FormatVersion::V2, None));
        assert!(decoded.extra.is_empty());
        assert!(!String::from_utf8(decoded.encode()).unwrap().contains("cache_id"));
    }
}

#[test]
fn an_upgrade_changes_the_version_and_the_id_alone() {
    let mut old = manifest();
    old["format_version"] = json!(2);
    old["x"] = json!(1);
    let old = decode(&old).unwrap();
    let new = old.clone().upgrade(CacheId::new(4));
    assert_eq!((new.version, new.cache_id), (FormatVersion::V3, Some(CacheId::new(4))));
    assert_eq!(Manifest { version: old.version, cache_id: None, ..new.clone() }, old);
    assert_eq!(new.clone().upgrade(CacheId::new(9)), new);
}

#[test]
fn zstd_has_a_level_and_other_algorithms_have_none() {
    let zstd = |level: Value| changed("/shards/0/compression", json!({"algo": "zstd", "ratio": 1.0, "level": level}));
    assert_eq!(zstd(json!(19)).unwrap().shards[0].compression.level, Some(19));
    let again = Manifest::decode(&zstd(json!(19)).unwrap().encode()).unwrap();
    assert_eq!(again, zstd(json!(19)).unwrap());
    for level in [json!(null), json!("3"), json!(1.5)] {
        let error = zstd(level.clone()).unwrap_err();
        assert!(
            matches!(&error, FormatError::ManifestKeyMissing { key } if key == "shards[0].compression.level"),
            "{level}: {error:?}"
        );
    }
    assert!(changed("/shards/0/compression/algo", json!("zstd")).is_err());
    let mut other = manifest();
    other["shards"][0]["compression"]["level"] = json!({"of": "another program"});
    assert_eq!(decode(&other).unwrap().shards[0].compression.level, None);
}

#[test]
fn a_ratio_keeps_its_text() {
    let text = manifest().to_string().replace("2.5", "2.50e0");
    let encoded = String::from_utf8(Manifest::decode(text.as_bytes()).unwrap().encode()).unwrap();
    assert!(encoded.contains(r#""ratio": 2.50e0"#), "{encoded}");
}

#[test]
fn an_upgraded_text_keeps_what_no_version_defines() {
    let mut old = manifest();
    old["format_version"] = json!(2);
    old.as_object_mut().unwrap().remove("cache_id");
    let old = serde_json::to_string_pretty(&old).unwrap();
    // Unknown keys on every level, numbers that no type of ours holds, a `cache_id` that version 2 does not define, odd layout.
    let old = old
        .replace("\"source_name\"", "\"before\": 1.50e+3,   \"cache_id\": [\"junk\"],\n\t\"source_name\"")
        .replace("\"byte_len\"", "\"nested\": {\"deep\": [123456789012345678901234567890]},\n      \"byte_len\"");
    let old = format!("{}, \"a \\\"quoted\\\" \\u00e9 key\": null}}", old.trim_end().strip_suffix('}').unwrap());
    let expected = Manifest::decode(old.as_bytes()).unwrap().upgrade(CacheId::new(4));
    let new = Manifest::upgrade_text(old.as_bytes(), CacheId::new(4)).unwrap().unwrap();
    assert_eq!(Manifest::decode(&new), Ok(expected));
    let new = String::from_utf8(new).unwrap();
    for kept in
        ["\"before\": 1.50e+3", "\"deep\": [123456789012345678901234567890]", "\"a \\\"quoted\\\" é key\": null"]
    {
        assert!(new.contains(kept), "{kept} in {new}");
    }
    assert!(new.starts_with("{\n  \"format_version\": 3,\n  \"cache_id\": 4,\n") && !new.contains("junk"), "{new}");
    assert!(Manifest::upgrade_text(b"{\"format_version\": 2}", CacheId::new(4)).is_err());
}

#[test]
fn extra_keys_cannot_shadow_the_format() {
    let mut decoded = decode(&manifest()).unwrap();
    let bytes = decoded.encode();
    decoded.extra.insert("shards".to_owned(), json!([]));
    decoded.extra.insert("cache_id".to_owned(), json!(1));
    assert_eq!(decoded.encode(), bytes);
    decoded.cache_id = None;
    let id = Manifest::decode(&decoded.encode()).unwrap().cache_id;
    assert_eq!(id, Some(CacheId::from_source_name("train")));
}

#[test]
fn keys_of_ours_come_back() {
    let plain = decode(&manifest()).unwrap();
    assert_eq!(plain.writer(), Ok(None));
    assert_eq!(plain.record_checksums(), Ok(None));

    let writer = WriterInfo { name: "dataset-rt".into(), version: "0.1.0".into() };
    let checksums = RecordChecksums { algo: RecordChecksumAlgo::Xxh3_64, sha256: Sha256Hasher::digest(b"") };
    let bytes = plain.with_writer(&writer).with_record_checksums(checksums).encode();
    let text = std::str::from_utf8(&bytes).unwrap();
    let end = r#"  "drt_writer": {
    "name": "dataset-rt",
    "version": "0.1.0"
  },
  "drt_record_checksums": {
    "algo": "xxh3-64",
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
  }
}"#;
    assert!(text.ends_with(end), "{text}");
    let decoded = Manifest::decode(&bytes).unwrap();
    assert_eq!(decoded.writer(), Ok(Some(writer)));
    assert_eq!(decoded.record_checksums(), Ok(Some(checksums)));
}

#[test]
fn a_fingerprint_comes_back_and_must_be_text() {
    let plain = decode(&manifest()).unwrap();
    assert_eq!(plain.fingerprint(), Ok(None));
    let decoded = Manifest::decode(&plain.with_fingerprint("v1 \"é\"").encode()).unwrap();
    assert_eq!(decoded.fingerprint(), Ok(Some("v1 \"é\"")));
    let mut manifest = manifest();
    manifest["drt_fingerprint"] = json!(1);
    assert_eq!(invalid_key(decode(&manifest).unwrap().fingerprint().unwrap_err()), "drt_fingerprint");
}

#[test]
fn damaged_keys_of_ours_are_named() {
    for (value, place) in [
        (json!(1), "drt_record_checksums"),
        (json!({"algo": "crc32", "sha256": "00".repeat(32)}), "drt_record_checksums.algo"),
        (json!({"algo": "xxh3-64", "sha256": "00"}), "drt_record_checksums.sha256"),
        (json!({"algo": "xxh3-64", "sha256": null}), "drt_record_checksums.sha256"),
    ] {
        let mut manifest = manifest();
        manifest["drt_record_checksums"] = value;
        let decoded = decode(&manifest).unwrap();
        assert_eq!(invalid_key(decoded.record_checksums().unwrap_err()), place);
    }
    let mut manifest = manifest();
    manifest["drt_writer"] = json!({"name": "x"});
    assert_eq!(
        decode(&manifest).unwrap().writer(),
        Err(FormatError::ManifestKeyMissing { key: "drt_writer.version".into() })
    );
}
