//! One dataset, many threads: every window is whole, and every sample is its own.

mod support;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use drt_format::CompressionAlgo;
use drt_reader::{CachedDataset, Order, ReaderConfig, Sample};
use drt_writer::CacheInput;
use support::{IO_MODES, ORDERS, input, open, ordered, pool, sample_of, write};

const NUM_THREADS: usize = 8;

fn inputs() -> Vec<CacheInput> {
    (0..60).map(|n| input(n, if n % 15 == 2 { 40_000 } else { n })).collect()
}

fn assert_right(sample: &Sample, inputs: &[CacheInput]) {
    assert!(sample == &sample_of(&inputs[sample.sample_id as usize], sample.cache_id, sample.sample_id));
}

/// A dataset over `inputs()` for each way of storing and reading them.
fn with_each_dataset(order: Order, check: impl Fn(&CachedDataset, &[CacheInput])) {
    let inputs = inputs();
    for algo in CompressionAlgo::ALL {
        let base = tempfile::tempdir().unwrap();
        let path = write(base.path(), "numbers", 2000, algo, &inputs);
        for io in IO_MODES {
            let config = ReaderConfig { order, prefetch_size: 20, ..ordered(io) };
            check(&CachedDataset::open(pool(2), std::slice::from_ref(&path), config).unwrap(), &inputs);
        }
    }
}

#[test]
fn windows_taken_by_many_threads_make_up_the_stream_without_gap_or_overlap() {
    with_each_dataset(Order::Sequential, |dataset, inputs| {
        // 8 threads take 5 windows of 9 samples: 6 times around.
        dataset.set_epoch_len(9).unwrap();
        let barrier = Barrier::new(NUM_THREADS);
        let windows: Vec<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..NUM_THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        barrier.wait();
                        let mut windows = Vec::new();
                        for _ in 0..5 {
                            let samples: Vec<_> = dataset.iter().unwrap().map(Result::unwrap).collect();
                            samples.iter().for_each(|sample| assert_right(sample, inputs));
                            windows.push(samples.iter().map(|sample| sample.sample_id).collect());
                        }
                        windows
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        let mut counts = [0; 60];
        for window in &windows {
            assert_eq!(window.len(), 9);
            for (at, id) in window.iter().enumerate() {
                assert_eq!(*id, (window[0] + at as u64) % 60, "{window:?}");
                counts[*id as usize] += 1;
            }
        }
        assert_eq!(counts, [6; 60]);
        // The stream stands where all of them together have left it.
        assert_eq!(dataset.iter().unwrap().next().unwrap().unwrap().sample_id, 0);
    });
}

#[test]
fn no_window_mixes_the_tables_that_are_swapped_under_it() {
    for order in ORDERS {
        with_each_dataset(order, |dataset, inputs| {
            let id = dataset.catalog().caches()[0].id().get();
            // Table `t` has every sixth sample, from `t` on, and 10 rows.
            let update = |t: u64| {
                let rows: Vec<_> = (0..10).map(|n| (id, t + 6 * n)).collect();
                dataset.update_table(rows.into_iter(), [1.0; 10], None).unwrap();
            };
            update(0);
            let stop = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..NUM_THREADS)
                    .map(|thread| {
                        scope.spawn(move || {
                            for n in 0..15 {
                                let mut samples = dataset.iter().unwrap();
                                // Some end early.
                                let len = if n % 3 == 0 { thread } else { 10 };
                                let samples: Vec<_> = samples.by_ref().take(len).map(Result::unwrap).collect();
                                samples.iter().for_each(|sample| assert_right(sample, inputs));
                                let table = samples.first().map_or(0, |sample| sample.sample_id % 6);
                                assert!(samples.iter().all(|sample| sample.sample_id % 6 == table));
                                assert!(samples.len() == len);
                                if n % 5 == 0 {
                                    let sample = dataset.get(id, thread as u64 * 7).unwrap();
                                    assert_right(&sample, inputs);
                                }
                            }
                        })
                    })
                    .collect();
                let stop = &stop;
                scope.spawn(move || {
                    let mut t = 0;
                    while !stop.load(Ordering::Relaxed) {
                        t = (t + 1) % 6;
                        update(t);
                    }
                });
                for thread in threads {
                    thread.join().unwrap();
                }
                stop.store(true, Ordering::Relaxed);
            });
        });
    }
}

#[test]
fn threads_that_meet_a_record_for_the_first_time_together_all_read_it_right() {
    let inputs = inputs();
    let base = tempfile::tempdir().unwrap();
    let path = write(base.path(), "numbers", 2000, CompressionAlgo::None, &inputs);
    for io in IO_MODES {
        for _ in 0..5 {
            let dataset = open(&[&path], ordered(io)).unwrap();
            let barrier = Barrier::new(NUM_THREADS);
            std::thread::scope(|scope| {
                for _ in 0..NUM_THREADS {
                    scope.spawn(|| {
                        let id = dataset.catalog().caches()[0].id().get();
                        barrier.wait();
                        for n in 0..60 {
                            assert_right(&dataset.get(id, n).unwrap(), &inputs);
                        }
                    });
                }
            });
        }
    }
}
