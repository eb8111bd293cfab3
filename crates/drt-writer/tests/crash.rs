//! A write may fail or stop at any step: the cache is then absent or whole, and the next write finds a clean place.

mod support;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drt_format::CompressionAlgo;
use drt_runtime::{PoolError, WorkerPool};
use drt_writer::fs::{CacheFile, CacheFs, StdFs};
use drt_writer::{CacheWriter, Payload, WriteError};
use support::fault_fs::{Fault, FaultFs};
use support::{config, exists, in_time, input, names_in_tmp, pool, steps_of_create, tree};

type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

const NAME: &str = "numbers";

/// Write a small cache of several shards and blocks.
fn write(fs: Arc<dyn CacheFs>, pool: &Arc<WorkerPool>, base: &Path) -> Result<PathBuf, WriteError> {
    write_unless(fs, pool, base, &mut || false)
}

/// The same, unless the end of it is stopped.
fn write_unless(
    fs: Arc<dyn CacheFs>,
    pool: &Arc<WorkerPool>,
    base: &Path,
    stop: &mut dyn FnMut() -> bool,
) -> Result<PathBuf, WriteError> {
    let mut writer = CacheWriter::create_on(fs, Arc::clone(pool), base, NAME, config(2048, CompressionAlgo::None))?;
    for n in 0..24 {
        let sample = input(n);
        let metadata: Vec<_> = sample.metadata.iter().map(|(name, value)| (name.as_str(), value.as_value())).collect();
        let payload = if n % 3 == 0 { Payload::Shared(Arc::new(sample.data)) } else { Payload::Copy(&sample.data) };
        writer.push(payload, &metadata)?;
        if n % 7 == 6 {
            writer.flush(&mut || false)?;
        }
    }
    writer.finish(stop)
}

/// What a write leaves when nothing goes wrong, and its number of steps.
fn whole(pool: &Arc<WorkerPool>) -> (Tree, usize) {
    let base = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(Fault::Never);
    let path = write(Arc::new(fs.clone()), pool, base.path()).unwrap();
    let whole = tree(&path);
    assert!(whole.len() > 8, "several shards: {:?}", whole.keys());
    (whole, fs.steps().len())
}

/// After whatever happened: the cache is absent or whole, and writing it again works where it is absent.
fn absent_or_whole(base: &Path, whole: &Tree, pool: &Arc<WorkerPool>, what: &str) {
    let target = base.join(NAME);
    if exists(&target) {
        assert_eq!(&tree(&target), whole, "{what}");
    } else {
        write(Arc::new(FaultFs::new(Fault::Never)), pool, base).unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(&tree(&target), whole, "{what}");
        assert_eq!(names_in_tmp(base), [""; 0], "{what}: the next write has removed what was left");
    }
}

#[test]
fn a_step_that_fails_leaves_no_cache_and_nothing_in_tmp() {
    for num_workers in [1, 3] {
        let pool = pool(num_workers);
        let (whole, num_steps) = whole(&pool);
        let mut published_and_failed = 0;
        for step in 0..num_steps {
            let base = tempfile::tempdir().unwrap();
            let fs = FaultFs::new(Fault::Once(step));
            let outcome = write(Arc::new(fs.clone()), &pool, base.path());
            let steps = fs.steps();
            let (verb, path) = &steps[step];
            let what = format!("step {step}, {verb} {}", path.display());
            match outcome {
                // The lock and the claim of a published cache have done their work; that the base folder, which was there
                // already, has a durable name is a precaution.
                Ok(_) => assert!(
                    *verb == "remove_file" || (*verb, Some(path.as_path())) == ("sync_dir", base.path().parent()),
                    "{what}"
                ),
                Err(WriteError::Io { path: named, source, .. }) => {
                    assert_eq!(source.kind(), io::ErrorKind::StorageFull, "{what}");
                    assert_eq!(&named, path, "{what}");
                    assert_eq!(names_in_tmp(base.path()), [""; 0], "{what}");
                    if exists(&base.path().join(NAME)) {
                        // What is published cannot be taken back; that it lasts could not be made sure of.
                        assert_eq!((*verb, path.as_path()), ("sync_dir", base.path()), "{what}");
                        published_and_failed += 1;
                    }
                }
                Err(other) => panic!("{what}: {other:?}"),
            }
            absent_or_whole(base.path(), &whole, &pool, &what);
        }
        assert_eq!(published_and_failed, 1);
    }
}

#[test]
fn a_process_that_stops_at_any_step_leaves_the_cache_absent_or_whole() {
    let pool = pool(2);
    let (whole, num_steps) = whole(&pool);
    let mut num_whole = 0;
    for step in 0..num_steps {
        let base = tempfile::tempdir().unwrap();
        let fs = FaultFs::new(Fault::Stop(step));
        let outcome = write(Arc::new(fs.clone()), &pool, base.path());
        let what = format!("step {step} of {num_steps}, {:?}", fs.steps()[step]);
        // The caller hears of it, unless only the lock and the claim of a published cache were left to remove.
        assert!(outcome.is_err() || step >= num_steps - 2, "{what}");
        num_whole += usize::from(exists(&base.path().join(NAME)));
        absent_or_whole(base.path(), &whole, &pool, &what);
    }
    assert!((1..=3).contains(&num_whole), "whole only at the very end: {num_whole}");
}

#[test]
fn a_panic_on_a_thread_of_the_pool_is_an_error_that_leaves_nothing() {
    let pool = pool(2);
    let (whole, num_steps) = whole(&pool);
    for step in 0..num_steps {
        let base = tempfile::tempdir().unwrap();
        let (fs, folder, threads) = (FaultFs::new(Fault::Panic(step)), base.path().to_owned(), Arc::clone(&pool));
        let writer_fs = Arc::new(fs.clone());
        let outcome = in_time(move || {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| write(writer_fs, &threads, &folder)))
        });
        // On the caller's own thread a panic is passed on.
        if let Ok(outcome) = outcome {
            let what = format!("step {step}, {:?}", fs.steps()[step]);
            assert!(matches!(outcome, Err(WriteError::Pool(PoolError::JobPanicked { .. }))), "{what}: {outcome:?}");
            // The last step but two makes the name of a cache durable that is published already.
            assert_eq!(exists(&base.path().join(NAME)), step + 3 == num_steps, "{what}");
            assert_eq!(names_in_tmp(base.path()), [""; 0], "{what}");
        }
        absent_or_whole(base.path(), &whole, &pool, &format!("panic at step {step}"));
    }
}

#[test]
fn a_failure_is_noticed_by_the_next_flush_or_by_finish_and_never_hangs() {
    // The third block fails while many are on their way.
    for num_workers in [1, 4] {
        let pool = pool(num_workers);
        let base = tempfile::tempdir().unwrap();
        let folder = base.path().to_owned();
        let (pushed, error) = in_time(move || {
            let fs = Arc::new(FaultFs::new(Fault::Once(steps_of_create() + 3)));
            let mut writer =
                CacheWriter::create_on(fs, pool, &folder, NAME, config(1 << 20, CompressionAlgo::None)).unwrap();
            for n in 0..100_000u64 {
                writer.push(Payload::Copy(&n.to_le_bytes()), &[]).unwrap();
                if let Err(error) = writer.flush(&mut || false) {
                    return (n, error);
                }
            }
            (100_000, writer.finish(&mut || false).unwrap_err())
        });
        assert!(matches!(error, WriteError::Io { .. }), "{error:?}");
        // Blocks that were on their way already were let through, and no others.
        assert!(pushed < 1000, "{pushed}");
        assert_eq!(names_in_tmp(base.path()), [""; 0]);
        assert!(!exists(&base.path().join(NAME)));
    }
}

/// Files whose sync fails and that then take their time to close, as on a network.
struct SlowToClose;

struct SlowFile;

impl Write for SlowFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl CacheFile for SlowFile {
    fn sync(&mut self) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

impl Drop for SlowFile {
    fn drop(&mut self) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl CacheFs for SlowToClose {
    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        StdFs.create_dir_all(path)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        StdFs.create_dir(path)
    }

    fn create_file(&self, path: &Path) -> io::Result<Box<dyn CacheFile>> {
        if path.parent().is_some_and(|folder| folder.ends_with("shards")) {
            return Ok(Box::new(SlowFile));
        }
        StdFs.create_file(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        StdFs.sync_dir(path)
    }

    fn rename_exclusive(&self, from: &Path, to: &Path) -> io::Result<()> {
        StdFs.rename_exclusive(from, to)
    }

    fn exchange(&self, first: &Path, second: &Path) -> io::Result<()> {
        StdFs.exchange(first, second)
    }

    fn rename_over(&self, from: &Path, to: &Path) -> io::Result<()> {
        StdFs.rename_over(from, to)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        StdFs.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        StdFs.remove_dir_all(path)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        StdFs.exists(path)
    }
}

#[test]
fn publishing_never_overtakes_the_news_of_a_failed_sync() {
    let pool = pool(2);
    let base = tempfile::tempdir().unwrap();
    let mut writer =
        CacheWriter::create_on(Arc::new(SlowToClose), pool, base.path(), NAME, config(1 << 20, CompressionAlgo::None))
            .unwrap();
    writer.push(Payload::Copy(b"abc"), &[]).unwrap();
    match writer.finish(&mut || false) {
        Err(WriteError::Io { action: "sync", path, .. }) => assert!(path.ends_with("000000.bin")),
        other => panic!("{other:?}"),
    }
    assert!(!exists(&base.path().join(NAME)));
}

#[test]
fn everything_is_durable_before_the_cache_has_its_name_and_the_name_after_it() {
    for num_workers in [1, 3] {
        let base = tempfile::tempdir().unwrap();
        let fs = FaultFs::new(Fault::Never);
        let target = write(Arc::new(fs.clone()), &pool(num_workers), base.path()).unwrap();
        let steps = fs.steps();
        let published = steps.iter().position(|(verb, path)| *verb == "rename_exclusive" && *path == target).unwrap();
        let last = |verbs: &[&str], about: &dyn Fn(&Path) -> bool| {
            steps[..published].iter().rposition(|(verb, path)| verbs.contains(verb) && about(path))
        };
        // Each file is synced after its last write, and the manifest is the last file of all.
        let in_cache = |path: &Path| path.parent().is_some_and(|parent| !parent.ends_with("tmp"));
        let files: Vec<_> = steps
            .iter()
            .filter(|(verb, path)| *verb == "create_file" && in_cache(path))
            .map(|(_, path)| path)
            .collect();
        assert!(files.len() > 6 && files.last().unwrap().ends_with("manifest.json"), "{files:?}");
        for file in &files {
            let written = last(&["create_file", "write"], &|path| path == file.as_path());
            let synced = last(&["sync"], &|path| path == file.as_path());
            assert!(synced > written, "{}", file.display());
        }
        // Each folder is synced after the last change to its names.
        let work = files.last().unwrap().parent().unwrap();
        for folder in [work.to_owned(), work.join("shards")] {
            let in_folder = |path: &Path| path.parent() == Some(&folder);
            let changed = last(&["create_file", "create_dir"], &in_folder);
            let synced = last(&["sync_dir"], &|path| path == folder);
            assert!(changed.is_some() && synced > changed, "{}", folder.display());
        }
        assert_eq!(steps[published + 1], ("sync_dir", base.path().to_owned()));
    }
}

#[test]
fn stopping_while_the_disk_takes_its_time_leaves_the_cache_absent_or_whole_at_once() {
    let (whole, _) = whole(&pool(2));
    let mut stopped = Vec::new();
    for sync in 0.. {
        let base = tempfile::tempdir().unwrap();
        // With the folder for work there is nothing to be synced before the first sample.
        std::fs::create_dir(base.path().join("tmp")).unwrap();
        let fs = FaultFs::new(Fault::Hang(sync));
        let outcome = in_time({
            let (fs, folder) = (fs.clone(), base.path().to_owned());
            move || {
                let disk = fs.clone();
                write_unless(Arc::new(fs), &pool(2), &folder, &mut || disk.hangs())
            }
        });
        if !fs.hangs() {
            assert_eq!(tree(&outcome.unwrap()), whole, "{sync} syncs are all that there are");
            break;
        }
        // The disk is still at work.
        assert!(matches!(outcome, Err(WriteError::Interrupted)), "sync {sync}: {outcome:?}");
        assert_eq!(names_in_tmp(base.path()), [""; 0], "sync {sync}");
        stopped.push(exists(&base.path().join(NAME)));
        fs.release();
        absent_or_whole(base.path(), &whole, &pool(2), &format!("sync {sync}"));
    }
    // Every shard, four other files, two folders, and then the name.
    assert!(stopped.len() > 8, "{stopped:?}");
    assert_eq!(stopped.iter().position(|published| *published), Some(stopped.len() - 1));
}

/// A payload that takes its time on a thread of the pool, and then panics.
struct Broken;

impl AsRef<[u8]> for Broken {
    fn as_ref(&self) -> &[u8] {
        if std::thread::current().name().is_some_and(|name| name.starts_with("drt-worker")) {
            std::thread::sleep(Duration::from_millis(200));
            panic!("a payload panics on purpose");
        }
        b"fine so far"
    }
}

#[test]
fn a_block_that_never_comes_does_not_hold_up_the_end_of_those_behind_it() {
    let base = tempfile::tempdir().unwrap();
    let folder = base.path().to_owned();
    let outcome = in_time(move || {
        let config = config(1 << 20, CompressionAlgo::None);
        let mut writer = CacheWriter::create(pool(3), &folder, NAME, config).unwrap();
        writer.push(Payload::Shared(Arc::new(Broken)), &[]).unwrap();
        writer.flush(&mut || false).unwrap();
        for _ in 0..3 {
            writer.push(Payload::Copy(b"encoded long before the first block fails"), &[]).unwrap();
            writer.flush(&mut || false).unwrap();
        }
        writer.finish(&mut || false)
    });
    assert!(matches!(outcome, Err(WriteError::Pool(PoolError::JobPanicked { .. }))), "{outcome:?}");
    assert!(!exists(&base.path().join(NAME)));
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let pool = pool(2);
    let base = tempfile::tempdir().unwrap();
    for num_samples in [0u64, 1, 500] {
        let mut writer = CacheWriter::create_on(
            Arc::new(StdFs),
            Arc::clone(&pool),
            base.path(),
            NAME,
            config(100, CompressionAlgo::Lz4),
        )
        .unwrap();
        for n in 0..num_samples {
            writer.push(Payload::Copy(&n.to_le_bytes()), &[]).unwrap();
            if n % 100 == 7 {
                writer.flush(&mut || false).unwrap();
            }
        }
        drop(writer);
        assert_eq!(tree(base.path()).keys().collect::<Vec<_>>(), [Path::new("tmp")], "{num_samples}");
    }
}
