//! Same samples and settings, same bytes: whatever the threads, the rhythm of the pushes, or who wrote them before.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_format::{
    CompressionAlgo, IndexView, Manifest, MetadataKind, RecordChecksumsView, Sha256Hasher, decode_payload, payload_len,
    record_checksum, split_record,
};
use drt_metadata::MetadataTable;
use drt_writer::{CacheInput, CacheWriter, OwnedValue, Payload, WriteError, WriterConfig};
use support::fault_fs::{Fault, FaultFs};
use support::{config, golden, input, pool, tree};

/// Write samples, asking `flush` after each, by their number, whether to hand over what there is.
fn write(
    num_workers: usize,
    config: WriterConfig,
    base: &Path,
    name: &str,
    samples: &[CacheInput],
    flush: impl Fn(usize, &CacheWriter) -> bool,
) -> Result<PathBuf, WriteError> {
    // Writes come in pieces here, and nobody waits for the disk.
    let fs = Arc::new(FaultFs::new(Fault::Never));
    let mut writer = CacheWriter::create_on(fs, pool(num_workers), base, name, config)?;
    for (n, sample) in samples.iter().enumerate() {
        let metadata: Vec<_> = sample.metadata.iter().map(|(name, value)| (name.as_str(), value.as_value())).collect();
        let payload = if n % 4 == 0 || sample.data.len() > 300 {
            Payload::Shared(Arc::new(sample.data.clone()))
        } else {
            Payload::Copy(&sample.data)
        };
        writer.push(payload, &metadata)?;
        if flush(n, &writer) {
            writer.flush(&mut || false)?;
        }
    }
    writer.finish(&mut || false)
}

#[test]
fn threads_and_rhythm_leave_no_trace() {
    let samples: Vec<_> = (0..1100).map(input).collect();
    let rhythms: [fn(usize, &CacheWriter) -> bool; 4] =
        [|_, _| false, |_, writer| writer.needs_flush(), |_, _| true, |n, _| n % 7 == 3];
    for algo in CompressionAlgo::ALL {
        for (max_shard_bytes, num_samples) in [(1, 100), (2000, 1100), (1 << 30, 1100)] {
            let (samples, mut expected) = (&samples[..num_samples], None);
            for num_workers in [1, 2, 8] {
                for rhythm in rhythms {
                    let base = tempfile::tempdir().unwrap();
                    let config = config(max_shard_bytes, algo);
                    let path = write(num_workers, config, base.path(), "numbers", samples, rhythm).unwrap();
                    let found = tree(&path);
                    let expected = expected.get_or_insert_with(|| found.clone());
                    assert!(&found == expected, "{algo}, {max_shard_bytes} bytes a shard, {num_workers} threads");
                }
            }
        }
    }
}

#[test]
fn the_order_of_the_metadatas_names_leaves_no_trace() {
    let samples: Vec<_> = (0..20).map(input).collect();
    let mut turned = samples.clone();
    for (n, sample) in turned.iter_mut().enumerate() {
        sample.metadata.rotate_left(n % 4);
    }
    let base = tempfile::tempdir().unwrap();
    let at = |folder: &str| base.path().join(folder);
    let one = write(1, WriterConfig::default(), &at("one"), "name", &samples, |_, _| false).unwrap();
    let other = write(1, WriterConfig::default(), &at("other"), "name", &turned, |_, _| false).unwrap();
    assert_eq!(tree(&one), tree(&other));
}

/// Lengths of the shards of a cache of such records.
fn shard_lens(max_shard_bytes: u64, record_lens: &[usize]) -> Vec<u64> {
    // A record without columns has 10 bytes beside the payload: a length and `{}`.
    let samples: Vec<_> =
        record_lens.iter().map(|len| CacheInput { data: vec![7; len - 10], metadata: Vec::new() }).collect();
    let base = tempfile::tempdir().unwrap();
    let config = config(max_shard_bytes, CompressionAlgo::None);
    let path = write(2, config, base.path(), "name", &samples, |n, _| n % 2 == 0).unwrap();
    let manifest = Manifest::decode(&fs::read(path.join("manifest.json")).unwrap()).unwrap();
    let files = fs::read_dir(path.join("shards")).unwrap().count();
    assert_eq!(files, manifest.shards.len());
    for (number, shard) in manifest.shards.iter().enumerate() {
        assert_eq!(shard.name, format!("{number:06}.bin"));
        assert_eq!(fs::metadata(path.join("shards").join(&shard.name)).unwrap().len(), shard.byte_len);
    }
    manifest.shards.iter().map(|shard| shard.byte_len).collect()
}

#[test]
fn a_shard_is_full_when_the_next_record_would_pass_the_limit() {
    assert_eq!(shard_lens(229, &[115; 5]), [115; 5]);
    assert_eq!(shard_lens(230, &[115; 5]), [230, 230, 115]);
    assert_eq!(shard_lens(231, &[115; 4]), [230, 230]);
    assert_eq!(shard_lens(u64::MAX, &[115; 5]), [575]);
}

#[test]
fn a_record_longer_than_the_limit_has_a_shard_of_its_own() {
    assert_eq!(shard_lens(114, &[115; 3]), [115; 3]);
    assert_eq!(shard_lens(1, &[10, 11, 12]), [10, 11, 12]);
    assert_eq!(shard_lens(100, &[40, 60, 500, 60, 40, 10]), [100, 500, 100, 10]);
    assert_eq!(shard_lens(100, &[500, 10, 500]), [500, 10, 500]);
}

#[test]
fn every_number_in_the_files_is_true() {
    for algo in CompressionAlgo::ALL {
        let samples: Vec<_> = (0..60).map(input).collect();
        let base = tempfile::tempdir().unwrap();
        let path = write(2, config(2000, algo), base.path(), "name", &samples, |_, _| false).unwrap();
        let file = |name: &str| fs::read(path.join(name)).unwrap();
        let manifest = Manifest::decode(&file("manifest.json")).unwrap();
        assert_eq!(manifest.source_name, "name");
        assert_eq!(manifest.sample_count, 60);
        assert_eq!(manifest.metadata_sha256, Sha256Hasher::digest(&file("metadata.arrow")));
        assert_eq!(manifest.index_sha256, Sha256Hasher::digest(&file("index.bin")));
        let announced = manifest.record_checksums().unwrap().unwrap();
        assert_eq!(announced.sha256, Sha256Hasher::digest(&file("drt_record_checksums.bin")));
        assert_eq!(manifest.writer().unwrap().unwrap().name, "dataset-rt");

        let shards: Vec<_> = manifest.shards.iter().map(|shard| file(&format!("shards/{}", shard.name))).collect();
        let (index, checksums) = (file("index.bin"), file("drt_record_checksums.bin"));
        let (index, checksums) = (IndexView::new(&index).unwrap(), RecordChecksumsView::new(&checksums).unwrap());
        assert_eq!((index.len(), checksums.len()), (60, 60));
        let (mut ends, mut payload_bytes) = (vec![0; shards.len()], vec![0; shards.len()]);
        for (row, entry) in index.iter().enumerate() {
            let shard = entry.shard as usize;
            // Records lie end to end, in source order.
            assert_eq!(entry.offset, ends[shard]);
            ends[shard] += entry.len;
            let record = &shards[shard][entry.offset as usize..][..entry.len as usize];
            assert_eq!(checksums.get(row), record_checksum(record));
            let (_, stored) = split_record(record).unwrap();
            let mut payload = vec![0; payload_len(algo, stored).unwrap()];
            decode_payload(algo, stored, &mut payload).unwrap();
            assert_eq!(payload, samples[row].data);
            payload_bytes[shard] += payload.len() as u64;
        }
        for (number, shard) in manifest.shards.iter().enumerate() {
            assert_eq!(shard.sha256, Sha256Hasher::digest(&shards[number]));
            assert_eq!((shard.byte_len, shard.uncompressed_byte_len), (ends[number], payload_bytes[number]));
            assert_eq!(shard.byte_len, shards[number].len() as u64);
            assert_eq!(shard.compression.algo, algo);
        }
    }
}

/// What the files of a golden cache decode to.
fn decode(cache: &Path) -> (Manifest, Vec<CacheInput>) {
    let file = |name: &str| fs::read(cache.join(name)).unwrap();
    let manifest = Manifest::decode(&file("manifest.json")).unwrap();
    let table = MetadataTable::open(file("metadata.arrow").into(), &manifest.schema, manifest.sample_count).unwrap();
    let index = file("index.bin");
    let mut samples = Vec::new();
    for (row, entry) in IndexView::new(&index).unwrap().iter().enumerate() {
        let shard = &manifest.shards[entry.shard as usize];
        let bytes = file(&format!("shards/{}", shard.name));
        let (_, stored) = split_record(&bytes[entry.offset as usize..][..entry.len as usize]).unwrap();
        let mut data = vec![0; payload_len(shard.compression.algo, stored).unwrap()];
        decode_payload(shard.compression.algo, stored, &mut data).unwrap();
        let value = |column: usize| table.value(row as u64, column).unwrap();
        let owned = |column: usize| match value(column) {
            drt_format::MetadataValue::Bool(value) => OwnedValue::Bool(value),
            drt_format::MetadataValue::Int(value) => OwnedValue::Int(value),
            drt_format::MetadataValue::Float(value) => OwnedValue::Float(value),
            drt_format::MetadataValue::String(value) => OwnedValue::String(value.to_owned()),
        };
        let metadata = manifest.schema.fields().iter().enumerate().map(|(n, field)| (field.name.clone(), owned(n)));
        samples.push(CacheInput { data, metadata: metadata.collect() });
    }
    (manifest, samples)
}

/// The length after which the golden caches begin a new shard.
fn golden_limit(name: &str) -> u64 {
    if name.starts_with("shards_") { 512 } else { drt_format::constants::DEFAULT_MAX_SHARD_BYTES }
}

#[test]
fn golden_caches_written_again_have_the_same_index_and_shards() {
    let mut written = BTreeMap::new();
    for entry in fs::read_dir(golden(&["v3"])).unwrap() {
        let cache = entry.unwrap().path();
        let name = cache.file_name().unwrap().to_str().unwrap().to_owned();
        let (manifest, samples) = decode(&cache);
        let base = tempfile::tempdir().unwrap();
        let algo = manifest.shards[0].compression.algo;
        let outcome = write(2, config(golden_limit(&name), algo), base.path(), &name, &samples, |_, _| false);
        let path = match outcome {
            Ok(path) => path,
            // What some reader cannot use is read by us, and not written.
            Err(WriteError::InvalidSchema { row: 0, .. }) if ["nul_key", "reserved_keys"].contains(&name.as_str()) => {
                continue;
            }
            Err(WriteError::NonFinite { .. }) if name == "nonfinite" => continue,
            Err(error) => panic!("{name}: {error:?}"),
        };
        let (mut ours, mut theirs) = (tree(&path), tree(&cache));
        // The table has the same values. How an Arrow file lays out its heads is up to whoever writes it.
        assert_eq!(decode(&path).1, samples, "{name}");
        let (our_table, _their_table) =
            (ours.remove(Path::new("metadata.arrow")), theirs.remove(Path::new("metadata.arrow")));
        assert_eq!(
            Manifest::decode(ours[Path::new("manifest.json")].as_ref().unwrap()).unwrap().metadata_sha256,
            Sha256Hasher::digest(&our_table.unwrap().unwrap())
        );
        // What is ours alone: one file, and two keys of the manifest.
        assert!(ours.remove(Path::new("drt_record_checksums.bin")).is_some());
        let mut our_manifest = Manifest::decode(ours[Path::new("manifest.json")].as_ref().unwrap()).unwrap();
        assert_eq!(our_manifest.extra.keys().collect::<Vec<_>>(), ["drt_writer", "drt_record_checksums"]);
        our_manifest.extra.clear();
        our_manifest.metadata_sha256 = manifest.metadata_sha256;
        ours.insert("manifest.json".into(), Some(our_manifest.encode()));
        assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "{name}");
        // The table has the same columns in another layout of the Arrow file, so its digest in the manifest differs too.
        ours.retain(|file, _| file != Path::new("metadata.arrow") && file != Path::new("manifest.json"));
        for (file, bytes) in &ours {
            assert!(bytes == &theirs[file], "{name}: {} differs", file.display());
        }
        written.insert(name, manifest.schema.fields().iter().any(|field| field.kind == MetadataKind::Float));
    }
    assert_eq!(written.len(), 10, "{written:?}");
}
