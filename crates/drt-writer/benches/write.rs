//! Writing whole caches to a temporary folder: samples and payload bytes per second.

use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use drt_runtime::WorkerPool;
use drt_writer::progress::Silent;
use drt_writer::{CacheInput, IterSource, OwnedValue, WriterConfig, write_cache};

fn sample(row: usize, len: usize) -> CacheInput {
    CacheInput {
        data: vec![row as u8; len],
        metadata: vec![
            ("label".into(), OwnedValue::Int(row as i64 % 10)),
            ("score".into(), OwnedValue::Float(row as f64 / 7.0)),
            ("split".into(), OwnedValue::String(if row.is_multiple_of(5) { "val" } else { "train" }.into())),
        ],
    }
}

fn write(criterion: &mut Criterion) {
    let pool = Arc::new(WorkerPool::new(2).expect("threads"));
    for (rows, len) in [(20_000, 256), (5_000, 4096), (200, 256 * 1024)] {
        let mut group = criterion.benchmark_group("write");
        group.sample_size(10).throughput(Throughput::Elements(rows as u64));
        group.bench_function(format!("{len} B"), |bencher| {
            bencher.iter_with_large_drop(|| {
                let base = tempfile::tempdir().expect("a temporary folder");
                let mut source = IterSource::new("bench", (0..rows).map(|row| sample(row, len)));
                write_cache(&pool, &mut source, base.path(), &WriterConfig::default(), &Silent).expect("a cache");
                base
            });
        });
        group.finish();
    }
}

criterion_group!(benches, write);
criterion_main!(benches);
