//! Proptest strategies for tests of this crate and of those built on it.
//!
//! Everything made here may be written: schemas pass
//! [`MetadataSchema::validate_for_write`], floats are finite, manifests encode and decode.
//! Names and texts lean towards what is easy to get wrong: quotation marks, control
//! characters, letters outside ASCII, characters on either side of the surrogates.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use serde_json::{Map, Value};

use crate::{
    CacheId, CompressionAlgo, DecodedValue, FormatVersion, Manifest, MetadataField, MetadataKind, MetadataSchema,
    Sha256Digest, ShardCompression, ShardEntry, constants,
};

/// Text of up to 24 characters.
pub fn text() -> impl Strategy<Value = String> {
    let character = prop_oneof![
        4 => prop::char::range(' ', '~'),
        2 => prop::char::range('\0', '\u{1f}'),
        1 => prop::sample::select(vec!['"', '\\', '/', '\u{7f}', '\u{2028}', '\u{d7ff}', '\u{e000}', '\u{ffff}']),
        1 => any::<char>(),
    ];
    vec(character, 0..24).prop_map(String::from_iter)
}

/// A column name that a writer accepts.
pub fn column_name() -> impl Strategy<Value = String> {
    let allowed = |name: &String| {
        !name.is_empty() && !name.contains('\0') && !constants::RESERVED_COLUMNS.contains(&name.as_str())
    };
    text().prop_filter("a writer refuses the name", allowed)
}

/// Any kind of column.
pub fn kind() -> impl Strategy<Value = MetadataKind> {
    prop::sample::select(MetadataKind::ALL.to_vec())
}

/// A schema that a writer accepts, with up to 6 columns.
pub fn schema() -> impl Strategy<Value = MetadataSchema> {
    btree_map(column_name(), kind(), 0..6).prop_map(|columns| {
        let fields = columns.into_iter().map(|(name, kind)| MetadataField { name, kind });
        MetadataSchema::new(fields.collect()).expect("the keys of a map are unique")
    })
}

/// A finite float: any bits, and numbers near the limits of the plain notation.
pub fn float() -> impl Strategy<Value = f64> {
    use prop::num::f64 as classes;
    prop_oneof![
        2 => classes::POSITIVE | classes::NEGATIVE | classes::NORMAL | classes::SUBNORMAL | classes::ZERO,
        1 => (-99_999i32..99_999, -12i32..22).prop_map(|(digits, exponent)| f64::from(digits) * 10f64.powi(exponent)),
    ]
}

/// A value for a column of this kind; floats are finite.
pub fn value(kind: MetadataKind) -> BoxedStrategy<DecodedValue<'static>> {
    match kind {
        MetadataKind::Bool => any::<bool>().prop_map(DecodedValue::Bool).boxed(),
        MetadataKind::Int => {
            prop_oneof![any::<i64>(), -9i64..99, Just(i64::MIN), Just(i64::MAX)].prop_map(DecodedValue::Int).boxed()
        }
        MetadataKind::Float => float().prop_map(DecodedValue::Float).boxed(),
        MetadataKind::String => text().prop_map(|text| DecodedValue::String(text.into())).boxed(),
    }
}

/// A row for this schema, its values in column order.
pub fn row(schema: &MetadataSchema) -> impl Strategy<Value = Vec<DecodedValue<'static>>> + use<> {
    schema.fields().iter().map(|field| value(field.kind)).collect::<Vec<_>>()
}

/// A schema and up to `max_rows` rows for it.
pub fn schema_with_rows(max_rows: usize) -> impl Strategy<Value = (MetadataSchema, Vec<Vec<DecodedValue<'static>>>)> {
    schema().prop_flat_map(move |schema| {
        let rows = vec(row(&schema), 0..=max_rows);
        (Just(schema), rows)
    })
}

/// Any digest.
pub fn digest() -> impl Strategy<Value = Sha256Digest> {
    any::<[u8; 32]>().prop_map(Sha256Digest::new)
}

/// A compression setting that a writer accepts.
pub fn compression() -> impl Strategy<Value = ShardCompression> {
    prop_oneof![
        Just(ShardCompression::default()),
        (1e-3..1e3f64)
            .prop_map(|ratio| { ShardCompression::new(CompressionAlgo::Lz4, ratio).expect("positive and finite") }),
        (1..=22).prop_map(|level| {
            let zstd = ShardCompression::new(CompressionAlgo::Zstd, 1.0).expect("positive and finite");
            zstd.with_level(level).expect("a level of zstd")
        }),
    ]
}

/// A shard of any length with the name that belongs to `number`.
pub fn shard(number: u64) -> impl Strategy<Value = ShardEntry> {
    (any::<u64>(), any::<u64>(), compression(), digest()).prop_map(
        move |(uncompressed_byte_len, byte_len, compression, sha256)| ShardEntry {
            name: crate::shard_file_name(number),
            uncompressed_byte_len,
            byte_len,
            compression,
            sha256,
        },
    )
}

/// A manifest of either version with up to 4 shards and some keys of other programs.
pub fn manifest() -> impl Strategy<Value = Manifest> {
    let shards = (0..4usize).prop_flat_map(|len| (0..len as u64).map(shard).collect::<Vec<_>>());
    let extra =
        btree_map("x_[a-z]{1,8}", prop_oneof![text().prop_map(Value::from), any::<u64>().prop_map(Value::from)], 0..3)
            .prop_map(|extra| extra.into_iter().collect::<Map<_, _>>());
    let cache_id = prop::option::of(any::<u64>().prop_map(CacheId::new));
    (cache_id, text(), any::<u64>(), schema(), digest(), digest(), shards, extra).prop_map(
        |(cache_id, source_name, sample_count, schema, metadata_sha256, index_sha256, shards, extra)| Manifest {
            version: if cache_id.is_some() { FormatVersion::V3 } else { FormatVersion::V2 },
            cache_id,
            source_name,
            sample_count,
            schema,
            metadata_sha256,
            index_sha256,
            shards,
            extra,
        },
    )
}
