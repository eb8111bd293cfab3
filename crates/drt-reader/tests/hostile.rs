//! Damaged caches give the right error, or the right data: never a panic, never wrong data where there are checksums.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use drt_format::{CompressionAlgo, IndexView, Manifest};
use drt_reader::{CachedDataset, IoMode, ReadError, ReaderConfig, RecordFault, Sample, SampleValue};
use drt_runtime::WorkerPool;
use drt_writer::CacheInput;
use support::{
    IO_MODES, assert_sample, caches, copy, files, golden, input, json, open, ordered, sample_of, small_cache, window,
    write,
};

/// Where a cache ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Opening gives this error.
    Open(&'static str),
    /// Some sample, and no earlier one, gives this error.
    Read(u64, &'static str),
    /// Every sample is what was written.
    Whole,
    /// Every sample is read, and this one is not what was written.
    Changed(u64),
}
use End::{Changed, Open, Read, Whole};

/// Each damaged cache, opened plainly and with all checksums verified.
const CASES: &[(&str, End, End)] = &[
    ("_base_dmg_lz4", Whole, Whole),
    ("_base_dmg_none", Whole, Whole),
    ("extra_files", Whole, Whole),
    ("index_bit_flip", Read(0, "RecordJsonLen"), Open("ChecksumMismatch")),
    ("index_length_2_pow_40", Open("RecordOutOfShard"), Open("RecordOutOfShard")),
    ("index_length_u64_max", Open("RecordOutOfShard"), Open("RecordOutOfShard")),
    ("index_length_zero", Read(2, "RecordTooShort"), Read(2, "RecordTooShort")),
    ("index_missing", Open("MissingFile"), Open("MissingFile")),
    ("index_offset_out_of_range", Open("RecordOutOfShard"), Open("RecordOutOfShard")),
    ("index_offset_u64_max", Open("RecordOutOfShard"), Open("RecordOutOfShard")),
    ("index_partial_row", Open("IndexLen"), Open("IndexLen")),
    ("index_row_extra", Open("SampleCountMismatch"), Open("SampleCountMismatch")),
    ("index_row_missing", Open("SampleCountMismatch"), Open("SampleCountMismatch")),
    ("index_rows_swapped_resealed", Changed(0), Read(0, "MetadataDiffers")),
    ("index_shard_out_of_range", Open("ShardOutOfRange"), Open("ShardOutOfRange")),
    ("lz4_block_cut_resealed", Read(0, "Lz4Block"), Read(0, "Lz4Block")),
    ("lz4_declared_on_raw_resealed", Read(0, "PayloadLenImpossible"), Read(0, "PayloadLenImpossible")),
    ("lz4_prefix_too_large_resealed", Read(0, "PayloadLen"), Read(0, "PayloadLen")),
    ("lz4_prefix_too_small_resealed", Read(0, "Lz4Block"), Read(0, "Lz4Block")),
    ("lz4_prefix_u32_max_resealed", Read(0, "PayloadLenImpossible"), Read(0, "PayloadLenImpossible")),
    ("manifest_cache_id_negative", Open("ManifestKeyInvalid"), Open("ManifestKeyInvalid")),
    ("manifest_checksum_upper_case", Whole, Whole),
    ("manifest_duplicate_column", Open("ColumnRepeated"), Open("ColumnRepeated")),
    ("manifest_duplicate_key", Open("ManifestKeyRepeated"), Open("ManifestKeyRepeated")),
    ("manifest_empty", Open("ManifestJson"), Open("ManifestJson")),
    ("manifest_missing", Open("NotACache"), Open("NotACache")),
    ("manifest_no_cache_id", Open("ManifestKeyMissing"), Open("ManifestKeyMissing")),
    ("manifest_sample_count_high", Open("SampleCountMismatch"), Open("SampleCountMismatch")),
    ("manifest_shard_list_short", Open("ShardOutOfRange"), Open("ShardOutOfRange")),
    ("manifest_shard_name_escapes", Open("ShardName"), Open("ShardName")),
    ("manifest_truncated", Open("ManifestJson"), Open("ManifestJson")),
    ("manifest_unknown_algo", Open("ManifestKeyMissing"), Open("ManifestKeyMissing")),
    ("manifest_unknown_fields", Whole, Whole),
    ("manifest_unknown_kind", Open("ManifestKeyInvalid"), Open("ManifestKeyInvalid")),
    ("manifest_version_1", Open("UnsupportedVersion"), Open("UnsupportedVersion")),
    ("manifest_version_4", Open("UnsupportedVersion"), Open("UnsupportedVersion")),
    ("manifest_version_text", Open("ManifestKeyInvalid"), Open("ManifestKeyInvalid")),
    ("metadata_bad_utf8_resealed", Whole, Read(0, "MetadataDiffers")),
    ("metadata_bit_flip", Whole, Open("ChecksumMismatch")),
    ("metadata_column_missing_resealed", Open("SchemaMismatch"), Open("SchemaMismatch")),
    ("metadata_column_renamed_resealed", Open("SchemaMismatch"), Open("SchemaMismatch")),
    ("metadata_compressed_resealed", Open("Unsupported"), Open("Unsupported")),
    ("metadata_empty", Open("Malformed"), Open("Malformed")),
    ("metadata_large_utf8_resealed", Open("SchemaMismatch"), Open("SchemaMismatch")),
    ("metadata_missing", Open("MissingFile"), Open("MissingFile")),
    ("metadata_null_resealed", Whole, Read(0, "MetadataDiffers")),
    ("metadata_row_missing_resealed", Open("RowCountMismatch"), Open("RowCountMismatch")),
    ("metadata_truncated", Open("Malformed"), Open("Malformed")),
    ("metadata_two_batches_resealed", Whole, Whole),
    ("shard_extended", Open("LengthMismatch"), Open("LengthMismatch")),
    ("shard_json_bad_utf8", Read(0, "RowUtf8"), Read(0, "RowUtf8")),
    ("shard_json_float_as_int", Read(0, "RowKind"), Read(0, "RowKind")),
    ("shard_json_length_huge", Read(0, "RecordJsonLen"), Read(0, "RecordJsonLen")),
    ("shard_json_not_json", Read(0, "RowJson"), Read(0, "RowJson")),
    ("shard_json_value_changed", Changed(0), Open("ChecksumMismatch")),
    ("shard_json_value_changed_resealed", Changed(0), Read(0, "MetadataDiffers")),
    ("shard_missing", Open("MissingFile"), Open("MissingFile")),
    ("shard_payload_bit_flip", Changed(1), Open("ChecksumMismatch")),
    ("shard_truncated", Open("LengthMismatch"), Open("LengthMismatch")),
    ("shard_truncated_resealed", Open("RecordOutOfShard"), Open("RecordOutOfShard")),
];

fn variant(error: &ReadError) -> &'static str {
    let name = match error {
        ReadError::Format { source, .. } => format!("{source:?}"),
        ReadError::Metadata { source, .. } => format!("{source:?}"),
        ReadError::Record { source: RecordFault::Format(source), .. } => format!("{source:?}"),
        ReadError::Record { source, .. } => format!("{source:?}"),
        other => format!("{other:?}"),
    };
    Box::leak(name.split([' ', '{', '(']).next().unwrap_or_default().to_owned().into_boxed_str())
}

fn examine(cache: &Path, expected: &serde_json::Value, io: IoMode, validate_cache: bool) -> End {
    let config = ReaderConfig { validate_cache, ..ordered(io) };
    let dataset = match open(&[cache.to_owned()], config) {
        Ok(dataset) => dataset,
        Err(error) => return Open(variant(&error)),
    };
    let id = dataset.catalog().caches()[0].id().get();
    // By iterator: it ends with the first error.
    let mut by_iterator = Whole;
    for (n, sample) in dataset.iter().unwrap().enumerate() {
        match sample {
            Ok(sample) if is_as_described(&sample, &expected["samples"][n]) => {}
            Ok(_) if by_iterator == Whole => by_iterator = Changed(n as u64),
            Ok(_) => {}
            Err(error) => {
                by_iterator = Read(n as u64, variant(&error));
                if let ReadError::Record { path, cache_id, sample_id, .. } = &error {
                    assert!(path.starts_with(cache) && path.is_file(), "{}", path.display());
                    assert_eq!((cache_id.get(), *sample_id), (id, n as u64));
                }
            }
        }
    }
    // By identity: one bad sample does not keep the others from being read.
    let mut by_identity = Whole;
    for n in 0..dataset.epoch_len() {
        match dataset.get(id, n) {
            Ok(sample) if is_as_described(&sample, &expected["samples"][n as usize]) => {}
            Ok(_) if by_identity == Whole => by_identity = Changed(n),
            Ok(_) => {}
            Err(error) if matches!(by_identity, Whole | Changed(_)) => by_identity = Read(n, variant(&error)),
            Err(_) => {}
        }
    }
    assert_eq!(by_iterator, by_identity, "{}", cache.display());
    by_iterator
}

fn is_as_described(sample: &Sample, expected: &serde_json::Value) -> bool {
    std::panic::catch_unwind(|| assert_sample(sample, expected, "")).is_ok()
}

#[test]
fn every_damaged_golden_cache_ends_as_it_should() {
    let mut found = BTreeMap::new();
    for folder in caches("damaged") {
        let case = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let base = if case.starts_with('_') {
            case.clone()
        } else {
            format!("_base_{}", json(&folder.join("EXPECT.json"))["base"].as_str().unwrap())
        };
        let expected = json(&golden(&["damaged", &base, "expected.json"]));
        let ends = [false, true].map(|validate_cache| {
            let ends = IO_MODES.map(|io| examine(&folder.join("cache"), &expected, io, validate_cache));
            assert_eq!(ends[0], ends[1], "{case}: both ways of reading agree");
            ends[0]
        });
        if !case.starts_with('_') {
            // The table above must also be what the fixture asks for.
            let expect = json(&folder.join("EXPECT.json"));
            let want = expect["want"].as_str().unwrap();
            let fits = match ends {
                [Whole, Whole] => want.starts_with("accept"),
                // Samples do not need the table. Whoever asks for it is refused: see below.
                [Whole, Read(..)] => want.contains("metadata access"),
                [Whole | Changed(_), Open("ChecksumMismatch")] => want.contains("checksums are verified"),
                [Changed(_), Read(_, "MetadataDiffers")] => want.contains("cross-checked"),
                [Read(..), Read(..)] => want.contains("read") || want.starts_with("reject without allocating"),
                [Read(..), Open("ChecksumMismatch")] => want.contains("read or with checksums"),
                [Open(plain), Open(validated)] => plain == validated && want.starts_with("reject"),
                _ => false,
            };
            assert!(fits, "{case}: {ends:?} is not {want:?}");
        }
        found.insert(case, ends);
    }
    let cases: BTreeMap<_, _> =
        CASES.iter().map(|(case, plain, validated)| ((*case).to_owned(), [*plain, *validated])).collect();
    assert_eq!(found, cases);
}

#[cfg(feature = "polars")]
#[test]
fn a_table_with_bad_text_or_nulls_is_refused_by_whoever_asks_for_it() {
    for case in ["metadata_bad_utf8_resealed", "metadata_null_resealed"] {
        let path = golden(&["damaged", case, "cache"]);
        let dataset = open(&[&path], ordered(IoMode::Mmap)).unwrap();
        match dataset.stored_metadata() {
            Err(ReadError::Metadata { path: named, .. }) => assert_eq!(named, path.join("metadata.arrow"), "{case}"),
            other => panic!("{case}: {other:?}"),
        }
    }
}

/// Numbers that look random and are the same in each run.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// What reading a changed cache gave.
#[derive(Debug, Default)]
struct Tally {
    refused_at_open: usize,
    refused_when_read: usize,
    whole: usize,
}

/// Read all of a changed cache. Every sample must be an error or, where `inputs` says what it was, right.
fn read_changed(cache: &Path, config: ReaderConfig, inputs: Option<&[CacheInput]>, tally: &mut Tally, what: &str) {
    let dataset = match CachedDataset::open(shared_pool(), &[cache.to_owned()], config) {
        Ok(dataset) => dataset,
        Err(error) => {
            assert!(!error.to_string().is_empty());
            tally.refused_at_open += 1;
            return;
        }
    };
    let id = dataset.catalog().caches()[0].id().get();
    if let Some(inputs) = inputs {
        assert_eq!(dataset.epoch_len(), inputs.len() as u64, "{what}");
    }
    let mut refused = false;
    // The second time around, what is known to be right is not looked at again.
    for _pass in 0..2 {
        for n in 0..dataset.epoch_len() {
            match dataset.get(id, n) {
                Ok(sample) => {
                    if let Some(inputs) = inputs {
                        assert_eq!(sample, sample_of(&inputs[n as usize], id, n), "{what}");
                    }
                }
                Err(ReadError::Record { .. }) => refused = true,
                Err(other) => panic!("{what}: {other:?}"),
            }
        }
    }
    #[cfg(feature = "polars")]
    let _table = dataset.stored_metadata();
    if refused { tally.refused_when_read += 1 } else { tally.whole += 1 }
}

fn shared_pool() -> Arc<WorkerPool> {
    static POOL: OnceLock<Arc<WorkerPool>> = OnceLock::new();
    Arc::clone(POOL.get_or_init(|| support::pool(2)))
}

/// The configuration for change number `n`: plain twice in three, and either way of reading.
fn config_for(n: usize) -> ReaderConfig {
    ReaderConfig { validate_cache: n % 3 == 2, ..ordered(IO_MODES[n % 2]) }
}

#[test]
fn one_changed_byte_anywhere_is_an_error_or_changes_no_sample() {
    for algo in CompressionAlgo::ALL {
        let base = tempfile::tempdir().unwrap();
        let inputs: Vec<_> = (0..6).map(|n| input(n, n * 13 % 50)).collect();
        let cache = write(base.path(), "numbers", 300, algo, &inputs);
        let mut noise = Noise(1);
        for file in files(&cache) {
            let bytes = fs::read(&file).unwrap();
            let name = file.strip_prefix(&cache).unwrap().display().to_string();
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << noise.below(8);
                fs::write(&file, &changed).unwrap();
                let (config, what) = (config_for(at), format!("{algo}, {name}, byte {at}"));
                let mut tally = Tally::default();
                read_changed(&cache, config, Some(&inputs), &mut tally, &what);
                match name.as_str() {
                    // Some of its bytes are names that nobody looks at, or digests that nobody asked to verify.
                    "manifest.json" => {}
                    _ if config.validate_cache => assert_eq!(tally.refused_at_open, 1, "{what}: verified"),
                    // The records have its values too.
                    "metadata.arrow" => assert_eq!(tally.refused_when_read, 0, "{what}"),
                    _ => assert_eq!(tally.whole, 0, "{what}: every byte counts"),
                }
            }
            fs::write(&file, &bytes).unwrap();
        }
        // And with everything put back, all is well.
        let mut tally = Tally::default();
        read_changed(&cache, config_for(2), Some(&inputs), &mut tally, "restored");
        assert_eq!(tally.whole, 1);
    }
}

#[test]
fn files_cut_or_continued_anywhere_are_refused_at_open() {
    let base = tempfile::tempdir().unwrap();
    let cache = small_cache(base.path(), "numbers", CompressionAlgo::Lz4, 12);
    let inputs: Vec<_> = (0..12).map(|n| input(n, n * 13 % 50)).collect();
    for file in files(&cache) {
        let bytes = fs::read(&file).unwrap();
        for len in (0..bytes.len()).step_by(7).chain([bytes.len() - 1, bytes.len() + 1, bytes.len() + 24]) {
            let mut changed = bytes.clone();
            changed.resize(len, b'x');
            fs::write(&file, &changed).unwrap();
            let mut tally = Tally::default();
            let what = format!("{} with {len} bytes of {}", file.display(), bytes.len());
            read_changed(&cache, ordered(IO_MODES[len % 2]), Some(&inputs), &mut tally, &what);
            assert_eq!(tally.refused_at_open, 1, "{what}");
        }
        fs::write(&file, &bytes).unwrap();
    }
}

#[test]
fn damage_to_caches_without_record_checksums_never_panics() {
    let mut noise = Noise(2);
    for name in ["kinds_none", "shards_lz4", "nonfinite", "key_order"] {
        let base = tempfile::tempdir().unwrap();
        let cache = base.path().join(name);
        copy(&golden(&["v3", name]), &cache);
        let mut tally = Tally::default();
        for file in files(&cache) {
            let bytes = fs::read(&file).unwrap();
            for n in 0..60 {
                let mut changed = bytes.clone();
                for _ in 0..=noise.below(3) {
                    let at = noise.below(changed.len());
                    match noise.below(3) {
                        0 => changed[at] ^= 1 << noise.below(8),
                        1 => changed[at] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'{', b'9'][noise.below(8)],
                        _ => {
                            let end = changed.len().min(at + 8);
                            changed[at..end].fill([0, 0xff][noise.below(2)]);
                        }
                    }
                }
                fs::write(&file, &changed).unwrap();
                read_changed(&cache, config_for(n), None, &mut tally, name);
            }
            fs::write(&file, &bytes).unwrap();
        }
        assert!(tally.refused_at_open > 0 && tally.whole > 0, "{name}: {tally:?}");
    }
}

#[test]
fn a_damaged_sample_ends_its_iterator_and_no_other_read() {
    for algo in CompressionAlgo::ALL {
        let base = tempfile::tempdir().unwrap();
        let inputs: Vec<_> = (0..40).map(|n| input(n, 40)).collect();
        let cache = write(base.path(), "numbers", 1 << 20, algo, &inputs);
        let shard = cache.join("shards/000000.bin");
        let mut bytes = fs::read(&shard).unwrap();
        let at = bytes.windows(10).position(|text| text.starts_with(b"sample 17 ")).unwrap();
        bytes[at] ^= 1;
        fs::write(&shard, bytes).unwrap();
        for io in IO_MODES {
            let dataset = open(&[&cache], ordered(io)).unwrap();
            let id = dataset.catalog().caches()[0].id().get();
            let mut samples = dataset.iter().unwrap();
            for (n, input) in inputs.iter().enumerate().take(17) {
                assert_eq!(samples.next().unwrap().unwrap(), sample_of(input, id, n as u64));
            }
            match samples.next().unwrap() {
                Err(ReadError::Record { path, cache_id, sample_id, offset, len, source }) => {
                    assert_eq!((&path, cache_id.get(), sample_id), (&shard, id, 17));
                    assert!((offset..offset + len).contains(&(at as u64)));
                    assert!(matches!(source, RecordFault::Checksum { .. }), "{source:?}");
                }
                other => panic!("{other:?}"),
            }
            assert!(samples.next().is_none() && samples.next().is_none(), "finished");

            // Reading on is a new window's or a call's matter.
            assert_eq!(dataset.get(id, 18).unwrap(), sample_of(&inputs[18], id, 18));
            let ids: Vec<_> = (0..40).map(|n| (id, n)).collect();
            let blocks = dataset.get_many(&ids, &mut || false).unwrap();
            let mut num_errors = 0;
            for block in blocks {
                num_errors += (0..block.len()).filter(|at| block.sample(*at).is_err()).count();
            }
            assert_eq!(num_errors, 1);
            assert!(matches!(dataset.get(id, 17), Err(ReadError::Record { sample_id: 17, .. })), "again");
        }
    }
}

#[test]
fn large_records_are_the_same_either_way_and_every_changed_byte_is_noticed() {
    // Records on either side of the length from which payloads are read past the map, and far from it.
    let head = small_head_len();
    let limit = 32 * 1024;
    let lens = [limit - head - 1, limit - head, limit - head + 1, 100_000, 3, 1 << 20];
    let inputs: Vec<_> = lens.iter().map(|len| input(0, *len)).collect();
    for algo in CompressionAlgo::ALL {
        let base = tempfile::tempdir().unwrap();
        let cache = write(base.path(), "large", 150_000, algo, &inputs);
        for io in IO_MODES {
            for validate_cache in [false, true] {
                let dataset = open(&[&cache], ReaderConfig { validate_cache, ..ordered(io) }).unwrap();
                let id = dataset.catalog().caches()[0].id().get();
                for _pass in 0..2 {
                    for (n, sample) in window(&dataset).into_iter().enumerate() {
                        assert!(sample == sample_of(&inputs[n], id, n as u64), "{algo}, {io:?}, sample {n}");
                    }
                }
            }
        }

        let manifest = Manifest::decode(&fs::read(cache.join("manifest.json")).unwrap()).unwrap();
        let index = fs::read(cache.join("index.bin")).unwrap();
        for (n, entry) in IndexView::new(&index).unwrap().iter().enumerate() {
            let shard = cache.join("shards").join(&manifest.shards[entry.shard as usize].name);
            let bytes = fs::read(&shard).unwrap();
            for at in [0, 7, 12, head as u64 - 1, head as u64, entry.len / 2, entry.len - 1] {
                let mut changed = bytes.clone();
                changed[(entry.offset + at) as usize] ^= 0x20;
                fs::write(&shard, &changed).unwrap();
                for io in IO_MODES {
                    let dataset = open(&[&cache], ordered(io)).unwrap();
                    let id = dataset.catalog().caches()[0].id().get();
                    for _again in 0..2 {
                        match dataset.get(id, n as u64) {
                            Err(ReadError::Record { sample_id, source, .. }) => {
                                assert_eq!(sample_id, n as u64);
                                let in_payload = at >= head as u64;
                                assert!(!in_payload || matches!(source, RecordFault::Checksum { .. }), "{source:?}");
                            }
                            other => panic!("{algo}, {io:?}, sample {n}, byte {at}: {:?}", other.map(|_| "read")),
                        }
                    }
                    let error = dataset.iter().unwrap().find_map(Result::err).unwrap();
                    assert!(matches!(error, ReadError::Record { sample_id, .. } if sample_id == n as u64), "{error:?}");
                }
            }
            fs::write(&shard, &bytes).unwrap();
        }
    }
}

/// Length of what comes before the payload in a record of `input(0, _)`.
fn small_head_len() -> usize {
    let base = tempfile::tempdir().unwrap();
    let cache = write(base.path(), "head", 1000, CompressionAlgo::None, &[input(0, 0)]);
    fs::metadata(cache.join("shards/000000.bin")).unwrap().len() as usize
}

#[test]
fn metadata_comes_from_the_record_where_the_table_says_something_else() {
    let base = tempfile::tempdir().unwrap();
    let inputs: Vec<_> = (0..5).map(|n| input(n, 10)).collect();
    let cache = write(base.path(), "numbers", 1000, CompressionAlgo::None, &inputs);
    let table = cache.join("metadata.arrow");
    let mut bytes = fs::read(&table).unwrap();
    let at = bytes.windows(8).position(|text| text == b"sample 2").unwrap();
    bytes[at + 7] = b'9';
    fs::write(&table, bytes).unwrap();
    let dataset = open(&[cache], ordered(IoMode::Mmap)).unwrap();
    for _pass in 0..2 {
        let found = window(&dataset);
        assert_eq!(found[2].metadata[3].1, SampleValue::String("sample 2 é".into()));
        assert_eq!(found[3], sample_of(&inputs[3], found[3].cache_id, 3));
    }
}
