//! What a profile says of a write: every stage, its calls and bytes, and times that there were.

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drt_format::{CompressionAlgo, Manifest};
use drt_writer::profile::{Profile, StageTotals};
use drt_writer::progress::Silent;
use drt_writer::{CacheInput, CacheSource, CacheWriter, IterSource, Payload, WriteError, write_cache};
use support::fault_fs::{Fault, FaultFs};
use support::{config, input, pool, tree};

fn by_name(profile: &Profile) -> BTreeMap<&'static str, StageTotals> {
    profile.totals().into_iter().map(|stage| (stage.name, stage)).collect()
}

#[test]
fn every_stage_has_its_calls_and_bytes() {
    for algo in CompressionAlgo::ALL {
        let base = tempfile::tempdir().unwrap();
        let samples: Vec<_> = (0..2500).map(input).collect();
        let payload = samples.iter().map(|sample| sample.data.len() as u64).sum::<u64>();
        let profile = Profile::on();
        let config = config(20_000, algo).with_profile(profile.clone());
        let began = Instant::now();
        let path =
            write_cache(&pool(2), &mut IterSource::new("numbers", samples), base.path(), &config, &Silent).unwrap();
        let elapsed = began.elapsed();

        let manifest = Manifest::decode(&std::fs::read(path.join("manifest.json")).unwrap()).unwrap();
        let records = manifest.shards.iter().map(|shard| shard.byte_len).sum::<u64>();
        let stages = by_name(&profile);
        let expected = BTreeMap::from([
            ("compression", (2500, payload)),
            ("disk_write", (2500, records)),
            ("finish_checksums", (1, 0)),
            ("finish_index", (1, 0)),
            ("finish_manifest", (1, 0)),
            ("finish_metadata", (1, 0)),
            ("finish_wait", (1, 0)),
            ("ingress_wait", (3, 0)),
            ("metadata_validate", (2500, 0)),
            ("publish", (1, 0)),
            ("python_next", (2501, 0)),
            ("record_encode", (2500, records)),
            ("shard_flush", (manifest.shards.len() as u64, 0)),
            ("shard_hash", (2500, records)),
        ]);
        let counted: BTreeMap<_, _> = stages.iter().map(|(name, stage)| (*name, (stage.calls, stage.bytes))).collect();
        assert_eq!(counted, expected, "{algo:?}");
        assert_eq!(stages["compression"].elapsed.is_zero(), algo == CompressionAlgo::None);
        let pooled = ["compression", "disk_write", "record_encode", "shard_flush", "shard_hash"];
        let total = |on_pool| -> Duration {
            let counted = stages.values().filter(|stage| pooled.contains(&stage.name) == on_pool);
            counted.map(|stage| stage.elapsed).sum()
        };
        assert!(total(false) <= elapsed);
        assert!(total(true) <= 2 * elapsed);
    }
}

#[test]
fn a_profile_leaves_no_trace_in_the_cache() {
    let base = tempfile::tempdir().unwrap();
    let plain = config(5000, CompressionAlgo::Lz4);
    let configs = [plain.clone(), plain.with_profile(Profile::on())];
    let trees = configs.map(|config| {
        let mut source = IterSource::new("numbers", (0..500).map(input));
        let base = tempfile::tempdir_in(base.path()).unwrap();
        tree(&write_cache(&pool(2), &mut source, base.path(), &config, &Silent).unwrap())
    });
    assert_eq!(trees[0], trees[1]);
}

#[test]
fn writes_that_share_a_profile_add_up() {
    let base = tempfile::tempdir().unwrap();
    let profile = Profile::on();
    let config = config(5000, CompressionAlgo::None).with_profile(profile.clone());
    for (name, len) in [("a", 10), ("b", 5)] {
        let mut source = IterSource::new(name, (0..len).map(input));
        write_cache(&pool(1), &mut source, base.path(), &config, &Silent).unwrap();
    }
    let stages = by_name(&profile);
    assert_eq!((stages["python_next"].calls, stages["publish"].calls), (17, 2));
}

struct Failing(usize);

impl CacheSource for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn next_sample(&mut self) -> Result<Option<CacheInput>, Box<dyn std::error::Error + Send + Sync>> {
        self.0 += 1;
        if self.0 > 3 { Err("no more".into()) } else { Ok(Some(input(self.0))) }
    }
}

#[test]
fn what_was_done_before_a_failure_is_counted_and_the_failing_call_too() {
    let base = tempfile::tempdir().unwrap();
    let profile = Profile::on();
    let config = config(5000, CompressionAlgo::None).with_profile(profile.clone());
    let outcome = write_cache(&pool(1), &mut Failing(0), base.path(), &config, &Silent);
    assert!(matches!(outcome, Err(WriteError::Source { row: 3, .. })));
    let stages = by_name(&profile);
    assert_eq!(stages.keys().copied().collect::<Vec<_>>(), ["metadata_validate", "python_next"]);
    assert_eq!((stages["python_next"].calls, stages["metadata_validate"].calls), (4, 3));
}

#[test]
fn a_disk_that_refuses_is_counted_as_far_as_it_was_tried() {
    let steps = {
        let fs = FaultFs::new(Fault::Never);
        write_on(&fs, &Profile::default()).unwrap();
        fs.steps()
    };
    let at = |name: &str| steps.iter().position(|(step, path)| *step == "sync" && path.ends_with(name)).unwrap();
    for (file, stage) in [("index.bin", "finish_index"), ("manifest.json", "finish_manifest")] {
        let profile = Profile::on();
        let outcome = write_on(&FaultFs::new(Fault::Once(at(file))), &profile);
        assert!(matches!(outcome, Err(WriteError::Io { .. })), "{outcome:?}");
        let stages = by_name(&profile);
        assert_eq!(stages[stage].calls, 1);
        assert!(!stages.contains_key("publish"));
    }
}

fn write_on(fs: &FaultFs, profile: &Profile) -> Result<std::path::PathBuf, WriteError> {
    let base = tempfile::tempdir().unwrap();
    let config = config(1 << 20, CompressionAlgo::None).with_profile(profile.clone());
    let mut writer = CacheWriter::create_on(Arc::new(fs.clone()), pool(1), base.path(), "numbers", config)?;
    writer.push(Payload::Copy(b"payload"), &[])?;
    writer.finish(&mut || false)
}
