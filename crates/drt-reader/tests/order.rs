//! One order: what comes next depends on caches, table, seed and position, and on nothing else.

mod support;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use drt_format::CompressionAlgo;
use drt_reader::{CachedDataset, IoMode, MAX_EPOCH_LEN, Order, ReadError, ReaderConfig, Sample};
use drt_sampler::{SamplingPlan, Weights};
use support::{IO_MODES, ORDERS, in_time, input, open, ordered, pool, sample_of, small_cache, window, write};

/// Two caches with 50 and 30 samples, some of them large.
fn caches(base: &std::path::Path, algo: CompressionAlgo) -> Vec<PathBuf> {
    let len = |n: usize| if n % 20 == 3 { 40_000 } else { n % 60 };
    let inputs = |from: usize, to: usize| (from..to).map(|n| input(n, len(n))).collect::<Vec<_>>();
    vec![write(base, "first", 5000, algo, &inputs(0, 50)), write(base, "second", 5000, algo, &inputs(50, 80))]
}

/// Three windows, then two of another table.
fn history(dataset: &CachedDataset) -> Vec<Sample> {
    let mut samples = window(dataset);
    dataset.set_epoch_len(37).unwrap();
    samples.extend(window(dataset));
    samples.extend(dataset.iter().unwrap().take(5).map(Result::unwrap));
    let ids: Vec<_> = dataset.catalog().caches().iter().map(|cache| cache.id().get()).collect();
    let rows = (0..60usize).map(|n| (ids[n % 2], n as u64 * 7 % 30));
    let weights: Vec<_> = (0..60).map(|n| f64::from(n % 5) + 0.5).collect();
    dataset.update_table(rows, weights.clone(), None).unwrap();
    samples.extend(window(dataset));
    samples.extend(window(dataset));
    samples
}

#[test]
fn threads_prefetching_and_ways_of_reading_leave_no_trace_in_the_order() {
    let (plain, packed) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let sets = [caches(plain.path(), CompressionAlgo::None), caches(packed.path(), CompressionAlgo::Lz4)];
    for order in ORDERS {
        let mut expected = None;
        for paths in &sets {
            for io in IO_MODES {
                for num_workers in [1, 2, 5] {
                    for prefetch_size in [1, 3, 64, 1000] {
                        let config = ReaderConfig { prefetch_size, order, ..ordered(io) };
                        let dataset = CachedDataset::open(pool(num_workers), paths, config).unwrap();
                        let found = history(&dataset);
                        let expected = expected.get_or_insert_with(|| found.clone());
                        assert!(&found == expected, "{order:?}, {io:?}, {num_workers} threads, {prefetch_size} ahead");
                    }
                }
            }
        }
        assert_eq!(expected.unwrap().len(), 80 + 37 + 5 + 60 + 60);
    }
}

#[test]
fn samples_are_drawn_as_the_plan_says_and_windows_join() {
    let base = tempfile::tempdir().unwrap();
    let path = small_cache(base.path(), "numbers", CompressionAlgo::None, 40);
    let dataset = open(&[path], ReaderConfig { seed: 99, ..ReaderConfig::new(0) }).unwrap();
    let id = dataset.catalog().caches()[0].id().get();

    let plan = SamplingPlan::uniform(40, 99).unwrap();
    let mut position = 0;
    for len in [1, 2, 40, 63, 64, 65, 200] {
        dataset.set_epoch_len(len).unwrap();
        for sample in window(&dataset) {
            assert_eq!((sample.cache_id, sample.sample_id), (id, plan.row(position)));
            position += 1;
        }
    }

    let weights: Vec<_> = (1..=10).map(f64::from).collect();
    dataset.update_table((0..10u32).map(|n| (id, u64::from(39 - n))), weights.clone(), None).unwrap();
    assert_eq!(dataset.epoch_len(), 10);
    let plan = SamplingPlan::weighted(Weights::new(&weights).unwrap(), 99);
    let drawn: Vec<_> = (0..3).flat_map(|_| window(&dataset)).map(|sample| sample.sample_id).collect();
    assert_eq!(drawn, (0..30).map(|position| 39 - plan.row(position)).collect::<Vec<_>>());
}

#[test]
fn equal_weights_draw_as_no_weights_do_and_another_seed_does_not() {
    let base = tempfile::tempdir().unwrap();
    let path = small_cache(base.path(), "numbers", CompressionAlgo::None, 40);
    let ids = |dataset: &CachedDataset| window(dataset).iter().map(|sample| sample.sample_id).collect::<Vec<_>>();
    let dataset = |seed| open(&[&path], ReaderConfig::new(seed)).unwrap();
    let expected = ids(&dataset(5));
    let weighted = dataset(5);
    let id = weighted.catalog().caches()[0].id().get();
    weighted.update_table((0..40u32).map(|n| (id, u64::from(n))), [0.25; 40], None).unwrap();
    assert_eq!(ids(&weighted), expected);
    assert_ne!(ids(&dataset(6)), expected);
}

#[test]
fn an_iterator_takes_its_window_when_it_is_made_and_keeps_its_table() {
    let base = tempfile::tempdir().unwrap();
    for algo in CompressionAlgo::ALL {
        let path = small_cache(base.path(), algo.name(), algo, 10);
        let dataset = open(&[path], ordered(IoMode::Mmap)).unwrap();
        let id = dataset.catalog().caches()[0].id().get();
        let (mut first, second) = (dataset.iter().unwrap(), dataset.iter().unwrap());
        assert_eq!(first.next().unwrap().unwrap().sample_id, 0);
        dataset.set_epoch_len(3).unwrap();
        let third = dataset.iter().unwrap();
        dataset.update_table([(id, 9), (id, 9), (id, 4)].into_iter(), [1.0; 3], None).unwrap();
        let fourth = dataset.iter().unwrap();
        let ids = |samples: drt_reader::SampleIter| samples.map(|sample| sample.unwrap().sample_id).collect::<Vec<_>>();
        assert_eq!(ids(fourth), [9, 9, 4]);
        assert_eq!(ids(third), [0, 1, 2]);
        assert_eq!(ids(second), (0..10).collect::<Vec<_>>());
        assert_eq!(ids(first), (1..10).collect::<Vec<_>>());
        // An iterator outlives its dataset.
        let last = dataset.iter().unwrap();
        drop(dataset);
        assert_eq!(ids(last), [9, 9, 4]);
    }
}

#[test]
fn a_stream_of_draws_has_an_end_and_says_so_and_table_order_goes_round() {
    let base = tempfile::tempdir().unwrap();
    for algo in CompressionAlgo::ALL {
        for order in ORDERS {
            let path = small_cache(base.path(), &format!("{algo} {order:?}"), algo, 7);
            let dataset = open(&[path], ReaderConfig { order, ..ordered(IoMode::Mmap) }).unwrap();
            for len in [0, MAX_EPOCH_LEN + 1, u64::MAX] {
                assert!(
                    matches!(dataset.set_epoch_len(len), Err(ReadError::InvalidEpochLen { len: found, .. }) if found == len)
                );
            }
            assert_eq!(dataset.epoch_len(), 7);
            dataset.set_epoch_len(MAX_EPOCH_LEN).unwrap();
            let longest = dataset.iter().unwrap();
            assert_eq!(longest.remaining(), MAX_EPOCH_LEN);
            assert_eq!(longest.take(100).filter(Result::is_ok).count(), 100);
            drop(dataset.iter().unwrap());
            // Two positions are taken by no window yet, and only one of them can be: 2^64 is past the end.
            dataset.set_epoch_len(2).unwrap();
            if order != Order::Sequential {
                assert!(matches!(dataset.iter(), Err(ReadError::StreamExhausted)));
                dataset.set_epoch_len(1).unwrap();
                assert_eq!(window(&dataset).len(), 1);
                assert!(matches!(dataset.iter(), Err(ReadError::StreamExhausted)));
            } else {
                // Table order goes round: position 2^64 - 2 is row 0 of 7.
                let sample_ids = || window(&dataset).iter().map(|sample| sample.sample_id).collect::<Vec<_>>();
                assert_eq!([sample_ids(), sample_ids()], [[0, 1], [2, 3]]);
            }
            // Another table begins another stream.
            let id = dataset.catalog().caches()[0].id().get();
            dataset.update_table([(id, 6)].into_iter(), [1.0], None).unwrap();
            assert_eq!(window(&dataset)[0].sample_id, 6);
        }
    }
}

#[test]
fn a_dataset_reads_the_files_that_it_opened_after_its_cache_was_rebuilt_or_removed() {
    for algo in CompressionAlgo::ALL {
        for io in IO_MODES {
            let base = tempfile::tempdir().unwrap();
            let inputs = |shift: usize| {
                (0..30).map(|n| input(n + shift, if n % 10 == 4 { 50_000 } else { n })).collect::<Vec<_>>()
            };
            let (before, after) = (inputs(0), inputs(1000));
            let path = write(base.path(), "numbers", 2000, algo, &before);
            let old = open(&[&path], ordered(io)).unwrap();
            let id = old.catalog().caches()[0].id().get();
            let mut halfway = old.iter().unwrap();
            halfway.by_ref().take(10).for_each(|sample| drop(sample.unwrap()));

            fs::remove_dir_all(&path).unwrap();
            assert!(matches!(open(&[&path], ordered(io)), Err(ReadError::CacheNotFound { .. })));
            write(base.path(), "numbers", 2000, algo, &after);
            let new = open(&[path], ordered(io)).unwrap();
            let expected = |inputs: &[drt_writer::CacheInput]| -> Vec<Sample> {
                inputs.iter().enumerate().map(|(n, input)| sample_of(input, id, n as u64)).collect()
            };
            assert_eq!(halfway.map(Result::unwrap).collect::<Vec<_>>(), expected(&before)[10..], "{algo}, {io:?}");
            assert!(window(&old) == expected(&before), "{algo}, {io:?}");
            assert!(window(&new) == expected(&after), "{algo}, {io:?}");
        }
    }
}

#[test]
fn iterators_that_are_dropped_midway_leave_the_pool_free() {
    let base = tempfile::tempdir().unwrap();
    let path = small_cache(base.path(), "numbers", CompressionAlgo::Lz4, 200);
    in_time(move || {
        let pool = pool(2);
        let config = ReaderConfig { prefetch_size: 150, ..ordered(IoMode::Pread) };
        let dataset = CachedDataset::open(Arc::clone(&pool), &[path], config).unwrap();
        for n in 0..100 {
            let mut samples = dataset.iter().unwrap();
            for _ in 0..n % 7 {
                samples.next().unwrap().unwrap();
            }
        }
        assert_eq!(pool.submit(|| 5).unwrap().wait(), Ok(5));
        // Nothing on its way keeps the caches open for ever.
        let catalog = Arc::downgrade(&pool);
        drop((dataset, pool));
        let began = Instant::now();
        while catalog.strong_count() > 0 {
            assert!(began.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_wait_for_the_pool_can_be_given_up_and_taken_up_again_without_losing_a_sample() {
    let base = tempfile::tempdir().unwrap();
    let path = small_cache(base.path(), "numbers", CompressionAlgo::Lz4, 30);
    in_time(move || {
        let pool = pool(1);
        let dataset = CachedDataset::open(Arc::clone(&pool), &[path], ordered(IoMode::Mmap)).unwrap();
        let (release, held) = mpsc::channel::<()>();
        pool.spawn(move || held.recv().unwrap()).unwrap();
        let mut samples = dataset.iter().unwrap();
        let mut block = samples.empty_block();
        for _ in 0..2 {
            let began = Instant::now();
            assert!(matches!(samples.next_block(&mut block, &mut || true), Err(ReadError::Interrupted)));
            assert!(began.elapsed() < Duration::from_secs(5));
            assert_eq!((samples.remaining(), block.len()), (30, 0));
        }
        release.send(()).unwrap();
        let mut ids = Vec::new();
        while samples.next_block(&mut block, &mut || false).unwrap() {
            ids.extend((0..block.len()).map(|at| block.sample(at).unwrap().sample_id()).collect::<Vec<_>>());
        }
        assert_eq!(ids, (0..30).collect::<Vec<_>>());
        assert!(!samples.next_block(&mut block, &mut || false).unwrap(), "finished for good");
    });
}

#[test]
fn many_samples_come_in_the_order_asked_for_and_unknown_ones_before_any_is_read() {
    let base = tempfile::tempdir().unwrap();
    for algo in CompressionAlgo::ALL {
        let paths = caches(&base.path().join(algo.name()), algo);
        for io in IO_MODES {
            let dataset = open(&paths, ordered(io)).unwrap();
            let ids: Vec<_> = dataset.catalog().caches().iter().map(|cache| cache.id().get()).collect();
            let asked: Vec<_> = (0..300u64).map(|n| (ids[n as usize % 2], n * 11 % 30)).collect();
            let mut found = Vec::new();
            for block in dataset.get_many(&asked, &mut || false).unwrap() {
                assert!((1..=64).contains(&block.len()));
                for at in 0..block.len() {
                    let sample = block.sample(at).unwrap();
                    let mut data = vec![0; sample.payload_len()];
                    sample.copy_payload(&mut data).unwrap();
                    found.push(((sample.cache_id(), sample.sample_id()), data));
                }
            }
            assert_eq!(found.iter().map(|(id, _)| *id).collect::<Vec<_>>(), asked);
            for ((cache_id, sample_id), data) in found {
                assert_eq!(data, dataset.get(cache_id, sample_id).unwrap().data);
            }
            assert!(dataset.get_many(&[], &mut || false).unwrap().is_empty());
            for unknown in [(ids[0], 50), (ids[1], 30), (ids[0], u64::MAX), (1, 0)] {
                match dataset.get_many(&[asked[0], unknown, asked[1]], &mut || false) {
                    Err(ReadError::UnknownSample { cache_id, sample_id }) => assert_eq!((cache_id, sample_id), unknown),
                    other => panic!("{:?}", other.map(|blocks| blocks.len())),
                }
            }
            // None of this moved the stream.
            assert_eq!(window(&dataset)[0].sample_id, 0);
        }
    }
}
