//! A stale cache is replaced as a whole: at every moment, and after every failure, the old one or the new one is there.

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_format::{CompressionAlgo, Manifest};
use drt_runtime::WorkerPool;
use drt_writer::fs::{CacheFs, StdFs};
use drt_writer::progress::Silent;
use drt_writer::{
    CacheInput, CacheSource, CacheWriter, Payload, WriteError, WriteOptions, WriterConfig, sweep, write_cache_with,
};
use support::fault_fs::{Fault, FaultFs};
use support::{config, exists, names_in_tmp, pool, tree};

type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

const NAME: &str = "numbers";

/// Begin a cache whose samples are its fingerprint.
fn begin(
    fs: Arc<dyn CacheFs>,
    pool: &Arc<WorkerPool>,
    base: &Path,
    fingerprint: &str,
) -> Result<CacheWriter, WriteError> {
    let options = WriteOptions { fingerprint: Some(fingerprint), replace_stale: true, wait: None };
    let config = config(16, CompressionAlgo::None);
    let mut writer = CacheWriter::create_with(fs, Arc::clone(pool), base, NAME, config, options)?;
    for _ in 0..3 {
        writer.push(Payload::Copy(fingerprint.as_bytes()), &[])?;
        writer.flush(&mut || false)?;
    }
    Ok(writer)
}

fn write(fs: Arc<dyn CacheFs>, pool: &Arc<WorkerPool>, base: &Path, fingerprint: &str) -> Result<PathBuf, WriteError> {
    begin(fs, pool, base, fingerprint)?.finish(&mut || false)
}

fn fingerprint(base: &Path) -> Option<String> {
    let manifest = Manifest::decode(&fs::read(base.join(NAME).join("manifest.json")).unwrap()).unwrap();
    manifest.fingerprint().unwrap().map(str::to_owned)
}

/// What a cache with this fingerprint looks like when nothing goes wrong.
fn whole(pool: &Arc<WorkerPool>, fingerprint: &str) -> Tree {
    let base = tempfile::tempdir().unwrap();
    tree(&write(Arc::new(StdFs), pool, base.path(), fingerprint).unwrap())
}

#[test]
fn a_cache_with_another_fingerprint_is_replaced_and_one_with_the_same_is_not() {
    let pool = pool(2);
    for without_exchange in [false, true] {
        let base = tempfile::tempdir().unwrap();
        let fs = || {
            let fs = FaultFs::new(Fault::Never);
            Arc::new(if without_exchange { fs.without_exchange() } else { fs })
        };
        write(fs(), &pool, base.path(), "one").unwrap();
        let path = write(fs(), &pool, base.path(), "two").unwrap();
        assert_eq!(path, base.path().join(NAME));
        assert_eq!(tree(&path), whole(&pool, "two"));
        assert_eq!(names_in_tmp(base.path()), [""; 0]);
        assert!(matches!(write(fs(), &pool, base.path(), "two"), Err(WriteError::TargetExists { .. })));
    }
}

#[test]
fn a_cache_is_replaced_by_sources_that_ask_for_it_and_have_a_fingerprint() {
    struct Source(Option<&'static str>, usize);
    impl CacheSource for Source {
        fn name(&self) -> &str {
            NAME
        }
        fn fingerprint(&self) -> Option<&str> {
            self.0
        }
        fn next_sample(&mut self) -> Result<Option<CacheInput>, Box<dyn std::error::Error + Send + Sync>> {
            self.1 += 1;
            Ok((self.1 == 1).then(CacheInput::default))
        }
    }
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let write = |fingerprint, replace| {
        let config = WriterConfig::default();
        write_cache_with(&pool, &mut Source(fingerprint, 0), base.path(), &config, &Silent, replace).is_ok()
    };
    assert!(write(None, false));
    assert_eq!(fingerprint(base.path()), None);
    assert!(!write(None, true), "without a fingerprint nothing is stale");
    assert!(!write(Some("a"), false));
    assert!(write(Some("a"), true), "a cache without one is stale");
    assert!(write(Some("b"), true));
    assert_eq!(fingerprint(base.path()).as_deref(), Some("b"));
    assert!(!write(None, true));
}

#[test]
fn what_is_no_cache_is_not_replaced() {
    let pool = pool(1);
    type Obstacle = (&'static str, fn(&Path));
    let obstacles: [Obstacle; 5] = [
        ("a file", |path| fs::write(path, "mine").unwrap()),
        ("an empty folder", |path| fs::create_dir(path).unwrap()),
        ("a folder", |path| {
            fs::create_dir(path).unwrap();
            fs::write(path.join("manifest.json"), "mine").unwrap();
        }),
        ("a link to a folder", |path| {
            fs::create_dir_all(path.with_file_name("elsewhere")).unwrap();
            symlink("elsewhere", path).unwrap();
        }),
        ("a dangling link", |path| symlink("nowhere", path).unwrap()),
    ];
    for (what, make) in obstacles {
        let base = tempfile::tempdir().unwrap();
        make(&base.path().join(NAME));
        let before = tree(base.path());
        let outcome = write(Arc::new(StdFs), &pool, base.path(), "two");
        assert!(matches!(outcome, Err(WriteError::NotReplaceable { .. })), "{what}: {outcome:?}");
        assert_eq!(tree(base.path()), before, "{what}");

        // Also when it appears during the write.
        let base = tempfile::tempdir().unwrap();
        let writer = begin(Arc::new(StdFs), &pool, base.path(), "two").unwrap();
        make(&base.path().join(NAME));
        let outcome = writer.finish(&mut || false);
        assert!(matches!(outcome, Err(WriteError::NotReplaceable { .. })), "{what}: {outcome:?}");
        assert_eq!(names_in_tmp(base.path()), [""; 0], "{what}");
        let mut after = tree(base.path());
        after.remove(Path::new("tmp"));
        assert_eq!(after, before, "{what}");
    }
}

#[test]
fn what_others_do_during_a_replacement_is_respected() {
    let pool = pool(1);
    // The old cache is taken away.
    let base = tempfile::tempdir().unwrap();
    write(Arc::new(StdFs), &pool, base.path(), "one").unwrap();
    let writer = begin(Arc::new(StdFs), &pool, base.path(), "two").unwrap();
    fs::remove_dir_all(base.path().join(NAME)).unwrap();
    writer.finish(&mut || false).unwrap();
    assert_eq!(tree(&base.path().join(NAME)), whole(&pool, "two"));
    // Another machine, whose claim cannot be seen, replaces it by the same.
    let writer = begin(Arc::new(StdFs), &pool, base.path(), "three").unwrap();
    for name in names_in_tmp(base.path()).iter().filter(|name| name.ends_with(".claim")) {
        fs::remove_file(base.path().join("tmp").join(name)).unwrap();
    }
    write(Arc::new(StdFs), &pool, base.path(), "three").unwrap();
    assert!(matches!(writer.finish(&mut || false), Err(WriteError::TargetExists { .. })));
    assert_eq!(tree(&base.path().join(NAME)), whole(&pool, "three"));
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

/// Whatever step fails, or is the last: the old cache or the new one is there, whole; and the next write tidies up.
#[test]
fn every_step_of_a_replacement_may_fail_or_be_the_last() {
    let pool = pool(2);
    // What the disk does is not what is tested, so it is spared.
    let unsynced = || Arc::new(FaultFs::new(Fault::Never));
    let (old, new) = (whole(&pool, "one"), whole(&pool, "two"));
    for without_exchange in [false, true] {
        let fs = |fault| {
            let fs = FaultFs::new(fault);
            if without_exchange { fs.without_exchange() } else { fs }
        };
        let num_steps = {
            let base = tempfile::tempdir().unwrap();
            write(unsynced(), &pool, base.path(), "one").unwrap();
            let fs = fs(Fault::Never);
            write(Arc::new(fs.clone()), &pool, base.path(), "two").unwrap();
            fs.steps().len()
        };
        let (mut num_new, mut num_aside) = (0, 0);
        for (fault, step) in (0..num_steps).flat_map(|step| [(Fault::Once(step), step), (Fault::Stop(step), step)]) {
            let base = tempfile::tempdir().unwrap();
            let target = base.path().join(NAME);
            write(unsynced(), &pool, base.path(), "one").unwrap();
            let fs = fs(fault);
            let outcome = write(Arc::new(fs.clone()), &pool, base.path(), "two");
            let what = format!("{fault:?} of {num_steps}, {:?}", fs.steps()[step]);
            if !exists(&target) {
                // Only a process that stops between the two steps that stand for an exchange leaves it so.
                assert!(without_exchange && matches!(fault, Fault::Stop(_)), "{what}");
                num_aside += 1;
                sweep(base.path());
                assert_eq!(tree(&target), old, "{what}: put back");
            }
            let found = tree(&target);
            assert!(found == old || found == new, "{what}");
            // A failure after the new cache has its name is one to make it durable, or to remove the old one.
            assert!(outcome.is_err() || found == new, "{what}");
            num_new += usize::from(found == new);
            if found == old {
                write(unsynced(), &pool, base.path(), "two").unwrap_or_else(|error| panic!("{what}: {error}"));
            } else {
                sweep(base.path());
            }
            assert_eq!(tree(&target), new, "{what}");
            assert_eq!(names_in_tmp(base.path()), [""; 0], "{what}");
        }
        assert!((4..=20).contains(&num_new), "new only at the very end: {num_new}");
        assert_eq!(num_aside, usize::from(without_exchange), "one step lies between the two");
    }
}

#[test]
fn everything_is_durable_before_the_exchange_and_the_names_before_the_old_cache_goes() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    write(Arc::new(StdFs), &pool, base.path(), "one").unwrap();
    let fs = FaultFs::new(Fault::Never);
    write(Arc::new(fs.clone()), &pool, base.path(), "two").unwrap();
    let steps = fs.steps();
    let at = steps.iter().position(|(verb, _)| *verb == "exchange").unwrap();
    assert!(steps[..at].iter().any(|(verb, path)| *verb == "sync" && path.ends_with("manifest.json")));
    let rest: Vec<_> = steps[at + 1..at + 3].to_vec();
    assert_eq!(rest, [("sync_dir", base.path().to_owned()), ("sync_dir", base.path().join("tmp"))]);
    assert!(steps[at + 3..].iter().any(|(verb, _)| *verb == "remove_dir_all"));
}
