//! What every open and every row costs: `cargo bench -p drt-format`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drt_format::{
    CompressionAlgo, IndexEntry, IndexView, Manifest, MetadataField, MetadataKind, MetadataSchema, MetadataValue,
    RowEncoder, Sha256Digest, ShardCompression, ShardEntry, decode_payload, decode_row, encode_payload, payload_len,
    record_checksum, shard_file_name, validate_index,
};

const ROWS: u64 = 1_000_000;
const RECORD_LEN: u64 = 300;
const ROWS_PER_SHARD: u64 = 1000;

fn shards() -> Vec<ShardEntry> {
    (0..ROWS / ROWS_PER_SHARD)
        .map(|number| ShardEntry {
            name: shard_file_name(number),
            uncompressed_byte_len: ROWS_PER_SHARD * 256,
            byte_len: ROWS_PER_SHARD * RECORD_LEN,
            compression: ShardCompression::default(),
            sha256: Sha256Digest::new([7; 32]),
        })
        .collect()
}

fn index(c: &mut Criterion) {
    let shards = shards();
    let entry = |row: u64| IndexEntry {
        shard: row / ROWS_PER_SHARD,
        offset: row % ROWS_PER_SHARD * RECORD_LEN,
        len: RECORD_LEN,
    };
    let in_order: Vec<u8> = (0..ROWS).flat_map(|row| entry(row).encode()).collect();
    // 611,953 has no factor in common with the number of rows.
    let scattered: Vec<u8> = (0..ROWS).flat_map(|row| entry(row * 611_953 % ROWS).encode()).collect();

    let mut group = c.benchmark_group("validate_index");
    group.throughput(Throughput::Elements(ROWS)).sample_size(20);
    for (name, bytes) in [("in order", &in_order), ("scattered", &scattered)] {
        group.bench_function(name, |b| {
            b.iter(|| validate_index(IndexView::new(black_box(bytes)).unwrap(), &shards).unwrap());
        });
    }
    group.finish();
}

fn manifest(c: &mut Criterion) {
    let manifest = Manifest {
        version: drt_format::FormatVersion::V3,
        cache_id: Some(drt_format::CacheId::new(1)),
        source_name: "bench".into(),
        sample_count: ROWS,
        schema: schema(),
        metadata_sha256: Sha256Digest::new([1; 32]),
        index_sha256: Sha256Digest::new([2; 32]),
        shards: shards(),
        extra: serde_json::Map::new(),
    };
    let bytes = manifest.encode();
    let mut group = c.benchmark_group("manifest of 1000 shards");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("decode", |b| b.iter(|| Manifest::decode(black_box(&bytes)).unwrap()));
    group.bench_function("encode", |b| b.iter(|| black_box(&manifest).encode()));
    group.finish();
}

fn schema() -> MetadataSchema {
    MetadataSchema::new(vec![
        MetadataField::new("label", MetadataKind::Int),
        MetadataField::new("score", MetadataKind::Float),
        MetadataField::new("split", MetadataKind::String),
    ])
    .unwrap()
}

fn row(c: &mut Criterion) {
    let schema = schema();
    let encoder = RowEncoder::new(&schema);
    let values =
        [MetadataValue::Int(123_456), MetadataValue::Float(0.731_234_567), MetadataValue::String("train/00042")];
    let mut json = Vec::new();
    encoder.encode(|column| values[column], &mut json);

    let mut group = c.benchmark_group("row of 3 columns");
    let mut out = Vec::new();
    group.bench_function("encode", |b| {
        b.iter(|| {
            out.clear();
            encoder.encode_record_head(|column| black_box(values[column]), &mut out);
            out.len()
        });
    });
    group.bench_function("decode", |b| b.iter(|| decode_row(&schema, black_box(&json)).unwrap()));
    group.finish();
}

fn payload(c: &mut Criterion) {
    let line =
        |n: u32| format!("{{\"id\":{n},\"label\":\"cat {}\",\"score\":0.{}}}\n", n % 7, n * 37 % 1000).into_bytes();
    let text: Vec<u8> = (0..4096).flat_map(line).take(4096).collect();
    let mut stored = Vec::new();
    encode_payload(CompressionAlgo::Lz4, &text, &mut stored).unwrap();

    let mut group = c.benchmark_group("payload of 4 KiB");
    group.throughput(Throughput::Bytes(text.len() as u64));
    let mut out = vec![0; payload_len(CompressionAlgo::Lz4, &stored).unwrap()];
    group.bench_function("decode lz4", |b| {
        b.iter(|| decode_payload(CompressionAlgo::Lz4, black_box(&stored), &mut out).unwrap());
    });
    group.bench_function("encode lz4", |b| {
        b.iter(|| {
            stored.clear();
            encode_payload(CompressionAlgo::Lz4, black_box(&text), &mut stored).unwrap();
        });
    });
    group.bench_function("record checksum", |b| b.iter(|| record_checksum(black_box(&text))));
    group.finish();
}

criterion_group!(benches, index, manifest, row, payload);
criterion_main!(benches);
