//! Caches, datasets and expectations for the tests of this crate.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use drt_format::{CompressionAlgo, Sha256Hasher, ShardCompression};
use drt_reader::{CachedDataset, IoMode, Order, ReadError, ReaderConfig, Sample, SampleValue};
use drt_runtime::WorkerPool;
use drt_writer::progress::Silent;
use drt_writer::{CacheInput, IterSource, OwnedValue, WriterConfig, write_cache};
use serde_json::Value;

pub(crate) const IO_MODES: [IoMode; 2] = [IoMode::Mmap, IoMode::Pread];
pub(crate) const ORDERS: [Order; 3] = [Order::Weighted, Order::Sequential, Order::Permutation];

pub(crate) fn pool(num_workers: usize) -> Arc<WorkerPool> {
    Arc::new(WorkerPool::new(num_workers).unwrap())
}

/// Rows in order, without verification.
pub(crate) fn ordered(io: IoMode) -> ReaderConfig {
    ReaderConfig { order: Order::Sequential, io, ..ReaderConfig::new(7) }
}

/// Sample `n` of a cache: text and payload say which it is.
pub(crate) fn input(n: usize, payload_len: usize) -> CacheInput {
    CacheInput {
        data: (0..payload_len).map(|at| (at / 7 * 31 + n * 17) as u8).collect(),
        metadata: vec![
            ("even".into(), OwnedValue::Bool(n.is_multiple_of(2))),
            ("label".into(), OwnedValue::Int(n as i64 - 3)),
            ("score".into(), OwnedValue::Float(n as f64 / 3.0)),
            ("text".into(), OwnedValue::String(format!("sample {n} é"))),
        ],
    }
}

/// What reading `input(n, payload_len)` gives.
pub(crate) fn sample_of(input: &CacheInput, cache_id: u64, sample_id: u64) -> Sample {
    let value = |value: &OwnedValue| SampleValue::from(value.as_value());
    let metadata = input.metadata.iter().map(|(name, stored)| (name.clone(), value(stored))).collect();
    Sample { data: input.data.clone(), metadata, cache_id, sample_id }
}

pub(crate) fn write(
    base: &Path,
    name: &str,
    max_shard_bytes: u64,
    algo: CompressionAlgo,
    inputs: &[CacheInput],
) -> PathBuf {
    let config = WriterConfig::new(max_shard_bytes, ShardCompression::new(algo, 1.0).unwrap(), 64).unwrap();
    write_cache(&pool(1), &mut IterSource::new(name, inputs.to_vec()), base, &config, &Silent).unwrap()
}

/// A cache of `num_samples` small samples in a few shards.
pub(crate) fn small_cache(base: &Path, name: &str, algo: CompressionAlgo, num_samples: usize) -> PathBuf {
    let inputs: Vec<_> = (0..num_samples).map(|n| input(n, n * 13 % 50)).collect();
    write(base, name, 1000, algo, &inputs)
}

pub(crate) fn open<P: AsRef<Path>>(paths: &[P], config: ReaderConfig) -> Result<CachedDataset, ReadError> {
    let paths: Vec<_> = paths.iter().map(|path| path.as_ref().to_owned()).collect();
    CachedDataset::open(pool(2), &paths, config)
}

/// The samples of the next window.
pub(crate) fn window(dataset: &CachedDataset) -> Vec<Sample> {
    dataset.iter().unwrap().collect::<Result<_, _>>().unwrap()
}

/// A copy of a folder and everything in it.
pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// Every file below a folder, in order.
pub(crate) fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Do the job on a thread of its own; a job that hangs fails the test.
pub(crate) fn in_time<T: Send + 'static>(job: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = mpsc::channel();
    let thread = thread::spawn(move || {
        let _receiver_gone = done.send(job());
    });
    match outcome.recv_timeout(Duration::from_secs(60)) {
        Ok(outcome) => outcome,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the job hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => std::panic::resume_unwind(thread.join().unwrap_err()),
    }
}

/// A path among the golden data.
pub(crate) fn golden(parts: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    parts.iter().fold(root, |path, part| path.join(part))
}

/// The folders in a set, by name.
pub(crate) fn caches(set: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = fs::read_dir(golden(&[set]))
        .unwrap_or_else(|error| panic!("{set}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

pub(crate) fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))).unwrap()
}

/// A sample is what its golden description says, every bit of it.
pub(crate) fn assert_sample(sample: &Sample, expected: &Value, place: &str) {
    assert_eq!(sample.sample_id, expected["sample_id"], "{place}");
    assert_eq!(sample.data.len(), expected["len"], "{place}");
    assert_eq!(Sha256Hasher::digest(&sample.data).to_string(), expected["sha256"], "{place}");
    let listed = expected["metadata"].as_object().unwrap();
    assert_eq!(sample.metadata.len(), listed.len(), "{place}");
    for (name, value) in &sample.metadata {
        let place = format!("{place}, {name:?}");
        match value {
            SampleValue::Bool(value) => assert_eq!(&listed[name], value, "{place}"),
            SampleValue::Int(value) => assert_eq!(&listed[name], value, "{place}"),
            SampleValue::String(value) => assert_eq!(&listed[name], value.as_str(), "{place}"),
            SampleValue::Float(value) => {
                let bits = u64::from_str_radix(expected["float_bits"][name].as_str().unwrap(), 16).unwrap();
                assert_eq!(value.to_bits(), bits, "{place}: {value}");
            }
        }
    }
}
