//! Rows per second of `fill`, and the time to build tables.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drt_sampler::{Mixture, SamplingPlan, Weights};

/// Rows asked for at a time.
const WINDOW: usize = 4096;

fn weights(population: usize) -> Vec<f64> {
    let spread = |row: usize| (row as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..population).map(|row| 1.0 + spread(row) as f64 / 1e6).collect()
}

fn draw(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("fill");
    group.throughput(Throughput::Elements(WINDOW as u64));
    for population in [10_000_usize, 1_000_000, 10_000_000] {
        let rows = population as u64;
        let plans = [
            ("cyclic", SamplingPlan::cyclic(rows).unwrap()),
            ("uniform", SamplingPlan::uniform(rows, 7).unwrap()),
            ("weighted", SamplingPlan::weighted(Weights::new(&weights(population)).unwrap(), 7)),
            ("permutation", SamplingPlan::permutation(rows, 7).unwrap()),
        ];
        for (name, plan) in plans {
            let (mut buffer, mut position) = (vec![0; WINDOW], 0);
            group.bench_function(BenchmarkId::new(name, population), |bencher| {
                bencher.iter(|| {
                    plan.fill(position, &mut buffer);
                    position += WINDOW as u64;
                    black_box(&mut buffer);
                });
            });
        }
    }
    group.finish();

    let mut group = criterion.benchmark_group("row");
    group.throughput(Throughput::Elements(1));
    let plans = [
        ("weighted", SamplingPlan::weighted(Weights::new(&weights(10_000)).unwrap(), 7)),
        ("permutation", SamplingPlan::permutation(10_000, 7).unwrap()),
        ("permutation of 256", SamplingPlan::permutation(256, 7).unwrap()),
    ];
    for (name, plan) in plans {
        let mut position = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                position += 1;
                plan.row(black_box(position))
            });
        });
    }
    group.finish();
}

fn build(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("Weights::new");
    group.sample_size(10);
    for population in [10_000, 1_000_000, 10_000_000] {
        let weights = weights(population);
        group.throughput(Throughput::Elements(population as u64));
        group.bench_function(BenchmarkId::from_parameter(population), |bencher| {
            bencher.iter(|| Weights::new(black_box(&weights)).unwrap());
        });
    }
    group.finish();
}

/// What going on at a far position takes: nothing before it is computed.
fn resume(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resume");
    let plans = [
        ("weighted", SamplingPlan::weighted(Weights::new(&weights(10_000_000)).unwrap(), 7)),
        ("permutation", SamplingPlan::permutation(10_000_000, 7).unwrap()),
    ];
    let mut buffer = vec![0; 64];
    for (name, plan) in plans {
        for position in [0, 1_000_000_000_000] {
            group.bench_function(BenchmarkId::new(name, position), |bencher| {
                bencher.iter(|| {
                    plan.fill(black_box(position), &mut buffer);
                    black_box(&mut buffer);
                });
            });
        }
    }
    let mixture = Mixture::new(&[0.5, 0.2, 0.15, 0.1, 0.05], 7).unwrap();
    group.bench_function("mixture/1000000000000", |bencher| {
        bencher.iter(|| mixture.before(black_box(1_000_000_000_000)))
    });
    group.finish();

    let mut group = criterion.benchmark_group("mixture");
    group.throughput(Throughput::Elements(WINDOW as u64));
    for components in [2_usize, 5, 100] {
        let mixture = Mixture::new(&(1..=components).map(|share| share as f64).collect::<Vec<_>>(), 7).unwrap();
        let (mut places, mut position) = (vec![(0, 0); WINDOW], 0);
        group.bench_function(BenchmarkId::from_parameter(components), |bencher| {
            bencher.iter(|| {
                mixture.fill(position, &mut places);
                position += WINDOW as u64;
                black_box(&mut places);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, draw, build, resume);
criterion_main!(benches);
