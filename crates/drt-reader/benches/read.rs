//! Preparing blocks of samples from a warm cache: what reading costs before any object is made of it. Large payloads are not in
//! their blocks, so of these a copy is made, into memory that is used again.

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drt_reader::{CachedDataset, Order, ReaderConfig};
use drt_runtime::WorkerPool;
use drt_writer::progress::Silent;
use drt_writer::{CacheInput, IterSource, OwnedValue, WriterConfig, write_cache};

fn read(criterion: &mut Criterion) {
    let pool = Arc::new(WorkerPool::new(2).expect("threads"));
    for (rows, len) in [(100_000usize, 256usize), (20_000, 4096), (400, 256 * 1024)] {
        let base = tempfile::tempdir().expect("a temporary folder");
        let samples = (0..rows).map(|row| CacheInput {
            data: vec![row as u8; len],
            metadata: vec![
                ("label".into(), OwnedValue::Int(row as i64 % 10)),
                ("split".into(), OwnedValue::String("train".into())),
            ],
        });
        let mut source = IterSource::new("bench", samples);
        let path = write_cache(&pool, &mut source, base.path(), &WriterConfig::default(), &Silent).expect("a cache");
        for order in [Order::Sequential, Order::Weighted, Order::Permutation] {
            let config = ReaderConfig { order, ..ReaderConfig::new(1) };
            let dataset =
                CachedDataset::open(Arc::clone(&pool), std::slice::from_ref(&path), config).expect("a dataset");
            let mut group = criterion.benchmark_group(order.name());
            group.sample_size(10).throughput(Throughput::Elements(rows as u64));
            let mut copy = Vec::new();
            group.bench_function(format!("{len} B"), |bencher| {
                bencher.iter(|| {
                    let mut samples = dataset.iter().expect("a window");
                    let mut block = samples.empty_block();
                    let mut bytes = 0;
                    while samples.next_block(&mut block, &mut || false).expect("a block") {
                        for at in 0..block.len() {
                            let sample = block.sample(at).expect("a sample");
                            bytes += sample.payload_len();
                            if sample.payload().is_none() {
                                copy.resize(sample.payload_len(), 0);
                                sample.copy_payload(&mut copy).expect("a payload");
                            }
                        }
                    }
                    bytes
                });
            });
            group.finish();
        }
    }
}

criterion_group!(benches, read);
criterion_main!(benches);
