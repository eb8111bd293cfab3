//! One exclusive rename: what stands at the target is never touched, and what dead writers left is removed.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_format::CompressionAlgo;
use drt_runtime::WorkerPool;
use drt_writer::progress::Silent;
use drt_writer::{CacheWriter, IterSource, Payload, WriteError, WriterConfig, write_cache};
use support::fault_fs::{Fault, FaultFs};
use support::{config, exists, input, names_in_tmp, pool, tree};

fn write(pool: &Arc<WorkerPool>, base: &Path, name: &str) -> Result<PathBuf, WriteError> {
    let mut source = IterSource::new(name, (0..5).map(input));
    write_cache(pool, &mut source, base, &WriterConfig::default(), &Silent)
}

fn begin(pool: &Arc<WorkerPool>, base: &Path, name: &str) -> CacheWriter {
    let mut writer = CacheWriter::create(Arc::clone(pool), base, name, config(1 << 20, CompressionAlgo::None)).unwrap();
    writer.push(Payload::Copy(b"abc"), &[]).unwrap();
    writer
}

/// Something that may stand at a cache's path.
/// What is in the way, and how to put it there.
type Obstacle = (&'static str, fn(&Path));

fn obstacles() -> Vec<Obstacle> {
    vec![
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
    ]
}

#[test]
fn a_target_that_exists_is_refused_at_once_and_left_alone() {
    let pool = pool(1);
    for (what, make) in obstacles() {
        let base = tempfile::tempdir().unwrap();
        let target = base.path().join("name");
        make(&target);
        let before = tree(base.path());
        match write(&pool, base.path(), "name") {
            Err(WriteError::TargetExists { path }) => assert_eq!(path, target, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(tree(base.path()), before, "{what}");
    }
}

#[test]
fn a_target_that_appears_during_the_write_is_left_alone() {
    let pool = pool(1);
    for (what, make) in obstacles() {
        let base = tempfile::tempdir().unwrap();
        let writer = begin(&pool, base.path(), "name");
        let target = base.path().join("name");
        make(&target);
        let link = fs::read_link(&target).ok();
        let contents = if target.is_dir() { tree(&target) } else { Default::default() };
        match writer.finish(&mut || false) {
            Err(WriteError::TargetExists { path }) => assert_eq!(path, target, "{what}"),
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(fs::read_link(&target).ok(), link, "{what}");
        assert_eq!(if target.is_dir() { tree(&target) } else { Default::default() }, contents, "{what}");
        assert_eq!(names_in_tmp(base.path()), [""; 0], "{what}");
    }
}

#[test]
fn of_two_writers_of_one_name_the_first_to_finish_wins() {
    let pool = pool(2);
    let base = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (begin(&pool, base.path(), "name"), begin(&pool, base.path(), "name"));
    for n in 0..100u64 {
        first.push(Payload::Copy(&n.to_le_bytes()), &[]).unwrap();
        second.push(Payload::Copy(&[7; 9]), &[]).unwrap();
        first.flush(&mut || false).unwrap();
        second.flush(&mut || false).unwrap();
    }
    let path = second.finish(&mut || false).unwrap();
    let written = tree(&path);
    assert!(matches!(first.finish(&mut || false), Err(WriteError::TargetExists { .. })));
    assert_eq!(tree(&path), written);
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

#[test]
fn a_published_cache_has_the_formats_files_and_no_others() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let path = write(&pool, &base.path().join("made/on/the/way"), "name").unwrap();
    let files: Vec<_> = tree(&path).into_keys().collect();
    let expected =
        ["drt_record_checksums.bin", "index.bin", "manifest.json", "metadata.arrow", "shards", "shards/000000.bin"];
    assert_eq!(files, expected.map(PathBuf::from));
}

#[test]
fn what_a_dead_writer_left_is_removed_and_a_living_ones_folder_is_not() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    // A writer that dies: none of its steps after the tenth is done, removing its folder included.
    let fs = Arc::new(FaultFs::new(Fault::Stop(10)));
    let mut dead = CacheWriter::create_on(fs, Arc::clone(&pool), base.path(), "dead", WriterConfig::default()).unwrap();
    dead.push(Payload::Copy(&[1; 5000]), &[]).unwrap();
    dead.finish(&mut || false).unwrap_err();
    let left = tree(&base.path().join("tmp"));
    assert!(left.keys().any(|path| path.ends_with("shards/000000.bin")), "{left:?}");

    // While it lives, nobody may take its folder away.
    let mut living = begin(&pool, base.path(), "living");
    living.flush(&mut || false).unwrap();
    let names = names_in_tmp(base.path());
    assert!(names.iter().all(|name| !left.contains_key(Path::new(name))), "{names:?} are new");
    write(&pool, base.path(), "other").unwrap();
    begin(&pool, base.path(), "dropped");
    assert_eq!(names_in_tmp(base.path()).len(), names.len());
    let path = living.finish(&mut || false).unwrap();
    assert!(path.join("shards/000000.bin").is_file());
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

#[test]
fn other_peoples_things_in_tmp_stay() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let tmp = base.path().join("tmp");
    fs::create_dir_all(tmp.join("name")).unwrap();
    fs::create_dir_all(tmp.join("notes.work")).unwrap();
    for name in ["name/keep", "notes.lock", "notes.work/keep", "drt-", "drt-1.txt"] {
        File::create(tmp.join(name)).unwrap();
    }
    let before = tree(&tmp);
    write(&pool, base.path(), "name").unwrap();
    assert_eq!(tree(&tmp), before);
}

#[test]
fn names_that_are_no_folder_of_their_own_make_nothing() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let long = "n".repeat(256);
    for name in ["", ".", "..", "a/b", "/a", "tmp", "a\0b", &long] {
        assert!(matches!(write(&pool, base.path(), name), Err(WriteError::InvalidName(_))), "{name:?}");
    }
    assert!(tree(base.path()).is_empty());
    // The longest name of all works: what is unfinished is not called after it.
    let longest = "n".repeat(255);
    write(&pool, base.path(), &longest).unwrap();
    assert!(exists(&base.path().join(longest)));
}

#[test]
fn many_writers_of_one_base_do_not_sweep_each_other() {
    let pool = pool(2);
    let base = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (pool, base) = (&pool, base.path());
            scope.spawn(move || {
                for n in 0..10 {
                    write(pool, base, &format!("cache {thread} {n}")).unwrap();
                }
            });
        }
    });
    assert_eq!(tree(base.path()).keys().filter(|path| path.ends_with("manifest.json")).count(), 80);
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

#[test]
fn the_names_of_new_folders_above_a_cache_are_made_durable() {
    let root = tempfile::tempdir().unwrap();
    let base = root.path().join("new").join("newer");
    let synced = || {
        let fs = FaultFs::new(Fault::Never);
        let writer = CacheWriter::create_on(
            Arc::new(fs.clone()),
            pool(1),
            &base,
            "name",
            config(1 << 20, CompressionAlgo::None),
        );
        drop(writer.unwrap());
        let steps = fs.steps().into_iter().filter(|(verb, _)| *verb == "sync_dir");
        steps.map(|(_, path)| path).collect::<Vec<_>>()
    };
    assert_eq!(synced(), [base.parent().unwrap(), root.path()]);
    assert_eq!(synced(), [] as [PathBuf; 0]);
}
