//! Golden caches of both versions are read whole and exactly; what does not fit together is refused when it is opened.

mod support;

use std::fs;
use std::path::PathBuf;

use drt_format::{CompressionAlgo, MetadataKind};
use drt_reader::{IoMode, ReadError, ReaderConfig};
use support::{IO_MODES, assert_sample, caches, copy, golden, input, json, open, ordered, small_cache, window, write};

fn name_of(path: &std::path::Path) -> &str {
    path.file_name().unwrap().to_str().unwrap()
}

#[test]
fn every_sample_of_every_golden_cache_is_as_described() {
    let mut num_caches = 0;
    for set in ["v2", "v3", "migrated"] {
        for cache in caches(set) {
            num_caches += 1;
            let expected = json(&golden(&["expected", set, &format!("{}.json", name_of(&cache))]));
            let samples = expected["samples"].as_array().unwrap();
            for io in IO_MODES {
                for validate_cache in [false, true] {
                    let place = format!("{} with {io:?}, validated {validate_cache}", cache.display());
                    let config = ReaderConfig { validate_cache, ..ordered(io) };
                    let dataset = open(&[&cache], config).unwrap_or_else(|error| panic!("{place}: {error}"));
                    // A cache of version 2 is known by the position of its path.
                    let id = expected["cache_id"].as_u64().unwrap_or(0);
                    let columns = expected["schema"].as_array().unwrap();
                    let fields = dataset.schema().fields();
                    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
                    let listed: Vec<_> =
                        columns.iter().map(|column| (text(&column["name"]), text(&column["kind"]))).collect();
                    let found: Vec<_> =
                        fields.iter().map(|field| (field.name.clone(), field.kind.name().to_owned())).collect();
                    assert_eq!(found, listed, "{place}");

                    // Twice, since a record is looked at more closely the first time.
                    for pass in 0..2 {
                        let found = window(&dataset);
                        assert_eq!(found.len(), samples.len(), "{place}");
                        for (sample, expected) in found.iter().zip(samples) {
                            assert_eq!(sample.cache_id, id, "{place}");
                            assert_sample(sample, expected, &format!("{place}, pass {pass}"));
                        }
                    }
                    for expected in samples {
                        let sample = dataset.get(id, expected["sample_id"].as_u64().unwrap()).unwrap();
                        assert_sample(&sample, expected, &place);
                    }
                }
            }
        }
    }
    assert_eq!(num_caches, 28);
}

#[cfg(feature = "polars")]
#[test]
fn the_metadata_of_every_golden_cache_is_a_frame_unless_its_names_make_none() {
    for cache in caches("v3") {
        let expected = json(&golden(&["expected", "v3", &format!("{}.json", name_of(&cache))]));
        let dataset = open(&[&cache], ReaderConfig::new(1)).unwrap();
        match dataset.stored_metadata() {
            Ok(frame) => {
                assert_eq!(frame.height() as u64, expected["sample_count"], "{}", cache.display());
                assert_eq!(frame.width(), expected["schema"].as_array().unwrap().len() + 3, "{}", cache.display());
                assert_eq!(frame, dataset.metadata().unwrap());
                dataset.update_metadata(&frame, None).unwrap();
                assert_eq!(dataset.epoch_len(), frame.height() as u64);
            }
            Err(ReadError::Unrepresentable { path, reason }) => {
                assert!(["nul_key", "reserved_keys"].contains(&name_of(&cache)), "{reason}");
                assert_eq!(path, cache);
            }
            Err(other) => panic!("{}: {other:?}", cache.display()),
        }
    }
}

#[test]
fn caches_of_both_versions_open_together_in_path_order() {
    let path = |set: &str, name: &str| golden(&[set, name]);
    let paths = [path("v2", "shards_lz4"), path("v3", "shards_none"), path("v2", "shards_none")];
    let ids = [0, json(&golden(&["expected", "v3", "shards_none.json"]))["cache_id"].as_u64().unwrap(), 2];
    for io in IO_MODES {
        let dataset = open(&paths, ordered(io)).unwrap();
        assert_eq!(dataset.epoch_len(), 120);
        for (n, sample) in window(&dataset).iter().enumerate() {
            assert_eq!((sample.cache_id, sample.sample_id), (ids[n / 40], n as u64 % 40));
            let set = if n / 40 == 1 { "v3" } else { "v2" };
            let name = format!("{}.json", name_of(&paths[n / 40]));
            assert_sample(sample, &json(&golden(&["expected", set, &name]))["samples"][n % 40], &name);
        }
    }
    // The same cache of version 2 twice is two caches.
    let dataset = open(&[path("v2", "bits"), path("v2", "bits")], ordered(IoMode::Mmap)).unwrap();
    let found = window(&dataset);
    assert_eq!((found[0].cache_id, found[130].cache_id, found.len()), (0, 1, 260));
    assert_eq!(found[0].data, found[130].data);
}

#[test]
fn a_cache_may_be_moved_linked_and_have_other_files_beside_its_own() {
    let base = tempfile::tempdir().unwrap();
    let original = small_cache(base.path(), "numbers", CompressionAlgo::Lz4, 20);
    let expected = window(&open(&[&original], ordered(IoMode::Mmap)).unwrap());
    let moved = base.path().join("another name");
    fs::rename(original, &moved).unwrap();
    fs::write(moved.join("notes.txt"), "mine").unwrap();
    fs::write(moved.join("shards/999999.bin"), "mine").unwrap();
    let link = base.path().join("link");
    std::os::unix::fs::symlink("another name", &link).unwrap();
    for io in IO_MODES {
        let config = ReaderConfig { validate_cache: true, ..ordered(io) };
        assert_eq!(window(&open(&[&link], config).unwrap()), expected);
    }
}

#[test]
fn what_is_no_cache_is_refused_by_its_path() {
    let base = tempfile::tempdir().unwrap();
    let at = |name: &str| base.path().join(name);
    fs::write(at("file"), "text").unwrap();
    fs::create_dir(at("folder")).unwrap();
    let good = small_cache(base.path(), "good", CompressionAlgo::None, 3);
    let error = |path: &str| open(&[good.clone(), at(path)], ordered(IoMode::Mmap)).unwrap_err();

    assert!(matches!(error("nothing"), ReadError::CacheNotFound { path } if path == at("nothing")));
    assert!(matches!(error("good/nothing/at/all"), ReadError::CacheNotFound { .. }));
    assert!(matches!(error("file"), ReadError::NotACache { path, .. } if path == at("file")));
    assert!(matches!(error("folder"), ReadError::NotACache { path, .. } if path == at("folder")));
    assert!(matches!(open::<PathBuf>(&[], ordered(IoMode::Mmap)), Err(ReadError::NoCaches)));
}

#[test]
fn of_several_bad_paths_the_first_is_reported() {
    let base = tempfile::tempdir().unwrap();
    let paths: Vec<PathBuf> = (0..20).map(|n| base.path().join(format!("missing {n}"))).collect();
    for _ in 0..10 {
        assert!(
            matches!(open(&paths, ordered(IoMode::Mmap)), Err(ReadError::CacheNotFound { path }) if path == paths[0])
        );
    }
}

#[test]
fn each_file_of_a_cache_must_be_there() {
    let base = tempfile::tempdir().unwrap();
    let good = small_cache(base.path(), "good", CompressionAlgo::None, 40);
    for file in support::files(&good) {
        let name = file.strip_prefix(&good).unwrap();
        if name == std::path::Path::new("manifest.json") {
            continue;
        }
        let bad = base.path().join("bad");
        copy(&good, &bad);
        fs::remove_file(bad.join(name)).unwrap();
        for io in IO_MODES {
            match open(&[&bad], ordered(io)).unwrap_err() {
                ReadError::MissingFile { path } => assert_eq!(path, bad.join(name)),
                other => panic!("{}: {other:?}", name.display()),
            }
        }
        fs::remove_dir_all(bad).unwrap();
    }
}

#[test]
fn two_caches_with_one_identity_are_refused() {
    let base = tempfile::tempdir().unwrap();
    let first = small_cache(&base.path().join("a"), "same name", CompressionAlgo::None, 3);
    let second = small_cache(&base.path().join("b"), "same name", CompressionAlgo::None, 5);
    match open(&[first.clone(), second.clone()], ordered(IoMode::Mmap)).unwrap_err() {
        ReadError::DuplicateCacheId { first: a, second: b, remedy, .. } => {
            assert_eq!((a, b), (first.clone(), second));
            assert!(remedy.contains("rebuild"), "{remedy}");
        }
        other => panic!("{other:?}"),
    }
    // One folder under two spellings is no case for another name.
    for again in [first.clone(), first.join("..").join("same name")] {
        let error = open(&[first.clone(), again], ordered(IoMode::Mmap)).unwrap_err();
        assert!(error.to_string().contains("one folder"), "{error}");
    }
    // Version 2 by position against a stored identity of the same number.
    let paths = [golden(&["migrated", "shards_lz4"]), golden(&["v2", "shards_none"])];
    let error = open(&paths, ordered(IoMode::Mmap)).unwrap_err();
    assert!(matches!(&error, ReadError::DuplicateCacheId { id, .. } if id.get() == 1), "{error:?}");
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn caches_with_other_columns_are_refused_with_the_first_difference() {
    let base = tempfile::tempdir().unwrap();
    let first = small_cache(base.path(), "first", CompressionAlgo::None, 3);
    let mut other_kind = input(0, 5);
    other_kind.metadata[1].1 = drt_writer::OwnedValue::Bool(true);
    let mut other_name = input(0, 5);
    other_name.metadata[3].0 = "title".into();
    let mut fewer = input(0, 5);
    fewer.metadata.pop();
    for (name, input, part) in
        [("kind", other_kind, "\"label\""), ("name", other_name, "\"title\""), ("fewer", fewer, "has 4")]
    {
        let second = write(base.path(), name, 1000, CompressionAlgo::None, &[input]);
        match open(&[first.clone(), second.clone()], ordered(IoMode::Mmap)).unwrap_err() {
            ReadError::SchemasDiffer { first: a, second: b, reason } => {
                assert!(reason.contains(part), "{reason}");
                assert_eq!((a, b), (first.clone(), second));
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_cache_without_columns_is_read() {
    let base = tempfile::tempdir().unwrap();
    let inputs: Vec<_> =
        (0..10u8).map(|n| drt_writer::CacheInput { data: vec![n; usize::from(n)], metadata: Vec::new() }).collect();
    let path = write(base.path(), "bare", 50, CompressionAlgo::Lz4, &inputs);
    for io in IO_MODES {
        let dataset = open(&[&path], ReaderConfig { validate_cache: true, ..ordered(io) }).unwrap();
        assert!(dataset.schema().is_empty());
        let found: Vec<_> = window(&dataset).into_iter().map(|sample| sample.data).collect();
        assert_eq!(found, inputs.iter().map(|input| input.data.clone()).collect::<Vec<_>>());
    }
}

#[test]
fn nothing_can_be_prefetched_ahead_of_nothing() {
    let base = tempfile::tempdir().unwrap();
    let path = small_cache(base.path(), "numbers", CompressionAlgo::None, 3);
    let config = ReaderConfig { prefetch_size: 0, ..ReaderConfig::new(1) };
    let error = open(&[&path], config).unwrap_err();
    assert!(matches!(error, ReadError::InvalidConfig { .. }), "{error:?}");
    // As far ahead as can be asked for is as good as everything.
    for algo in CompressionAlgo::ALL {
        let path = small_cache(base.path(), algo.name(), algo, 30);
        let config = ReaderConfig { prefetch_size: usize::MAX, ..ordered(IoMode::Mmap) };
        assert_eq!(window(&open(&[path], config).unwrap()).len(), 30);
    }
}

#[test]
fn kinds_of_the_metadata_are_those_of_the_manifest() {
    let base = tempfile::tempdir().unwrap();
    let path = small_cache(base.path(), "numbers", CompressionAlgo::None, 3);
    let dataset = open(&[path], ordered(IoMode::Mmap)).unwrap();
    let kinds: Vec<_> = dataset.schema().fields().iter().map(|field| field.kind).collect();
    assert_eq!(kinds, [MetadataKind::Bool, MetadataKind::Int, MetadataKind::Float, MetadataKind::String]);
}
