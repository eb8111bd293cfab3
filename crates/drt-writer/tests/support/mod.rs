//! Samples, pools and folders for the tests of this crate.

#![allow(dead_code, reason = "each test file uses a part")]

pub(crate) mod fault_fs;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use drt_format::{CompressionAlgo, ShardCompression};
use drt_runtime::WorkerPool;
use drt_writer::{CacheInput, CacheWriter, OwnedValue, WriterConfig};

pub(crate) fn pool(num_workers: usize) -> Arc<WorkerPool> {
    Arc::new(WorkerPool::new(num_workers).unwrap())
}

pub(crate) fn config(max_shard_bytes: u64, algo: CompressionAlgo) -> WriterConfig {
    WriterConfig::new(max_shard_bytes, ShardCompression::new(algo, 1.0).unwrap(), 64).unwrap()
}

/// Steps that beginning a cache takes in a base folder that is there and empty.
pub(crate) fn steps_of_create() -> usize {
    let base = tempfile::tempdir().unwrap();
    let fs = fault_fs::FaultFs::new(fault_fs::Fault::Never);
    let config = WriterConfig::default();
    let _writer = CacheWriter::create_on(Arc::new(fs.clone()), pool(1), base.path(), "name", config).unwrap();
    fs.steps().len()
}

/// Sample `n` of a source with all four kinds, its payload up to some hundred bytes.
pub(crate) fn input(n: usize) -> CacheInput {
    CacheInput {
        data: (0..n * 37 % 400).map(|at| (at * n) as u8).collect(),
        metadata: vec![
            ("text".into(), OwnedValue::String(format!("sample {n} \"é\"\n"))),
            ("even".into(), OwnedValue::Bool(n.is_multiple_of(2))),
            ("score".into(), OwnedValue::Float(n as f64 / 3.0)),
            ("label".into(), OwnedValue::Int(n as i64 - 5)),
        ],
    }
}

/// Everything below a folder: files with their bytes, folders and links with none.
pub(crate) fn tree(root: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    fn visit(root: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Option<Vec<u8>>>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_owned();
            let kind = fs::symlink_metadata(&path).unwrap().file_type();
            found.insert(name, if kind.is_file() { Some(fs::read(&path).unwrap()) } else { None });
            if kind.is_dir() {
                visit(root, &path, found);
            }
        }
    }
    let mut found = BTreeMap::new();
    visit(root, root, &mut found);
    found
}

/// Names in the folder of unfinished caches; none when there is no such folder.
pub(crate) fn names_in_tmp(base: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(base.join("tmp")) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Is anything at the path, a dangling link included?
pub(crate) fn exists(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok()
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
