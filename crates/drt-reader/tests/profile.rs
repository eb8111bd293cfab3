//! What a profile says of reading: every stage, its samples and bytes.

mod support;

use std::collections::BTreeMap;

use drt_format::CompressionAlgo;
use drt_reader::profile::{Profile, StageTotals};
use drt_reader::{CachedDataset, IoMode, ReaderConfig};
use support::{IO_MODES, input, open, ordered, small_cache, window, write};

fn by_name(profile: &Profile) -> BTreeMap<&'static str, StageTotals> {
    profile.totals().into_iter().map(|stage| (stage.name, stage)).collect()
}

fn stored_bytes(dataset: &CachedDataset) -> u64 {
    dataset.catalog().caches()[0].manifest().shards.iter().map(|shard| shard.byte_len).sum()
}

#[test]
fn samples_are_drawn_paged_in_and_decoded_once_each() {
    for algo in CompressionAlgo::ALL {
        for io in IO_MODES {
            let base = tempfile::tempdir().unwrap();
            let cache = small_cache(base.path(), "a", algo, 300);
            let profile = Profile::on();
            let dataset = open(&[cache], ordered(io)).unwrap().with_profile(profile.clone());
            assert_eq!(window(&dataset).len(), 300);
            let stages = by_name(&profile);
            let stored = stored_bytes(&dataset);
            let counted = |name| (stages[name].calls, stages[name].bytes);
            assert_eq!(counted("draw"), (300, 0), "{algo:?} {io:?}");
            assert_eq!(counted("page_in"), (300, stored));
            assert_eq!(counted("decode"), (300, stored));
            let is_direct = algo == CompressionAlgo::None && io == IoMode::Mmap;
            assert_eq!(stages.contains_key("waiting"), !is_direct);
            // Who hands samples out counts these.
            assert!(!stages.contains_key("consumer") && !stages.contains_key("object_building"));
        }
    }
}

#[test]
fn what_was_checked_and_is_mapped_as_it_is_needs_no_decoding() {
    let base = tempfile::tempdir().unwrap();
    let profile = Profile::on();
    let cache = small_cache(base.path(), "a", CompressionAlgo::None, 200);
    let dataset = open(&[cache], ordered(IoMode::Mmap)).unwrap().with_profile(profile.clone());
    window(&dataset);
    window(&dataset);
    let stages = by_name(&profile);
    assert_eq!((stages["draw"].calls, stages["decode"].calls), (400, 200));
}

#[test]
fn payloads_that_are_read_later_are_not_decoded_here() {
    let base = tempfile::tempdir().unwrap();
    let inputs: Vec<_> = (0..10).map(|n| input(n, if n < 4 { 40_000 } else { 100 })).collect();
    let cache = write(base.path(), "a", 1 << 20, CompressionAlgo::None, &inputs);
    for io in IO_MODES {
        let profile = Profile::on();
        let dataset = open(&[&cache], ordered(io)).unwrap().with_profile(profile.clone());
        window(&dataset);
        assert_eq!(by_name(&profile)["decode"].calls, 6);
        assert_eq!(by_name(&profile)["page_in"].calls, 10);
    }
}

#[test]
fn a_dataset_without_a_profile_counts_nothing_and_draws_the_same() {
    let base = tempfile::tempdir().unwrap();
    let cache = small_cache(base.path(), "a", CompressionAlgo::Lz4, 100);
    let config = ReaderConfig::new(3);
    let plain = open(&[&cache], config).unwrap();
    let profiled = open(&[&cache], config).unwrap().with_profile(Profile::on());
    assert_eq!(window(&plain), window(&profiled));
    assert!(plain.profile().totals().is_empty());
    assert!(!profiled.profile().totals().is_empty());
}
