//! One exclusive rename: what stands at the target is never touched, and what dead writers left is removed.

mod support;

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use drt_format::{CompressionAlgo, Manifest};
use drt_runtime::WorkerPool;
use drt_writer::fs::StdFs;
use drt_writer::progress::Silent;
use drt_writer::{CacheWriter, IterSource, Payload, WriteError, WriteOptions, WriterConfig, write_cache};
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

/// Take away what tells of the writers at work, as where one machine cannot see the locks of another.
fn hide_claims(base: &Path) {
    for name in names_in_tmp(base).iter().filter(|name| name.ends_with(".claim")) {
        fs::remove_file(base.join("tmp").join(name)).unwrap();
    }
}

#[test]
fn of_two_writers_that_cannot_see_each_other_the_first_to_finish_wins() {
    let pool = pool(2);
    let base = tempfile::tempdir().unwrap();
    let mut first = begin(&pool, base.path(), "name");
    hide_claims(base.path());
    let mut second = begin(&pool, base.path(), "name");
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

fn create_with(
    pool: &Arc<WorkerPool>,
    base: &Path,
    name: &str,
    options: WriteOptions<'_>,
) -> Result<CacheWriter, WriteError> {
    let config = config(1 << 20, CompressionAlgo::None);
    CacheWriter::create_with(Arc::new(StdFs), Arc::clone(pool), base, name, config, options)
}

#[test]
fn a_name_that_is_being_written_is_refused_at_once_and_others_are_not() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let first = begin(&pool, base.path(), "name");
    match write(&pool, base.path(), "name") {
        Err(WriteError::BeingWritten { path, holder }) => {
            assert_eq!((path, holder.as_str()), (base.path().join("name"), "another writer in this process"));
        }
        other => panic!("{other:?}"),
    }
    write(&pool, base.path(), "other").unwrap();
    // A writer that gives up makes way.
    drop(first);
    write(&pool, base.path(), "name").unwrap();
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

#[test]
fn who_waits_for_another_writer_finds_its_cache_or_the_place_free() {
    for publishes in [true, false] {
        let pool = pool(2);
        let base = tempfile::tempdir().unwrap();
        let mut first = Some(begin(&pool, base.path(), "name"));
        // Asked the third time, so after it has waited, the first writer ends.
        let mut asked = 0;
        let mut stop = |_holder: &str| {
            asked += 1;
            if asked == 3 {
                let first = first.take().unwrap();
                if publishes {
                    first.finish(&mut || false).unwrap();
                } else {
                    drop(first);
                }
            }
            false
        };
        let options = WriteOptions { wait: Some(&mut stop), ..WriteOptions::default() };
        match (publishes, create_with(&pool, base.path(), "name", options)) {
            (true, Err(WriteError::TargetExists { .. })) | (false, Ok(_)) => {}
            (_, other) => panic!("{publishes}: {:?}", other.err()),
        }
        assert!(asked >= 3);
        assert_eq!(names_in_tmp(base.path()), [""; 0]);
    }
}

#[test]
fn waiting_for_another_writer_can_be_ended() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let _first = begin(&pool, base.path(), "name");
    let before = names_in_tmp(base.path()).len();
    let mut asked = 0;
    let mut stop = |_holder: &str| {
        asked += 1;
        asked == 2
    };
    let options = WriteOptions { wait: Some(&mut stop), ..WriteOptions::default() };
    assert!(matches!(create_with(&pool, base.path(), "name", options), Err(WriteError::Interrupted)));
    assert_eq!(names_in_tmp(base.path()).len(), before);
}

#[test]
fn fingerprints_are_kept_and_bad_ones_are_refused_before_anything_is_made() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    for bad in [String::new(), "x".repeat(65_537)] {
        let options = WriteOptions { fingerprint: Some(&bad), ..WriteOptions::default() };
        let outcome = create_with(&pool, base.path(), "name", options);
        assert!(matches!(outcome, Err(WriteError::InvalidFingerprint { .. })), "{:?}", outcome.err());
        assert!(tree(base.path()).is_empty());
    }
    for (name, fingerprint) in [("short", "v1".to_owned()), ("long", "é".repeat(32_768))] {
        let options = WriteOptions { fingerprint: Some(&fingerprint), ..WriteOptions::default() };
        let mut writer = create_with(&pool, base.path(), name, options).unwrap();
        writer.push(Payload::Copy(b"abc"), &[]).unwrap();
        let path = writer.finish(&mut || false).unwrap();
        let manifest = Manifest::decode(&fs::read(path.join("manifest.json")).unwrap()).unwrap();
        assert_eq!(manifest.fingerprint(), Ok(Some(fingerprint.as_str())));
    }
}

/// A lock file that a writer of another boot could have made, with its work folder.
fn foreign_work(base: &Path) -> [PathBuf; 4] {
    let tmp = base.join("tmp");
    let lock = tmp.join("drt-0123456789abcdef0123456789abcdef-77-1-0.lock");
    let work = lock.with_extension("work");
    fs::create_dir_all(work.join("shards")).unwrap();
    fs::write(work.join("shards/000000.bin"), "half a shard").unwrap();
    fs::write(&lock, "").unwrap();
    [work.join("shards/000000.bin"), work.join("shards"), work, lock]
}

fn age(paths: &[PathBuf], days: u64) {
    let then = SystemTime::now() - Duration::from_hours(24 * days);
    for path in paths {
        File::open(path).unwrap().set_modified(then).unwrap();
    }
}

#[test]
fn work_of_another_boot_is_removed_when_nothing_of_it_has_changed_for_a_week() {
    let pool = pool(1);
    for young in 0..4 {
        let base = tempfile::tempdir().unwrap();
        let paths = foreign_work(base.path());
        age(&paths, 8);
        age(&paths[young..=young], 6);
        let before = tree(&base.path().join("tmp"));
        write(&pool, base.path(), "name").unwrap();
        assert_eq!(tree(&base.path().join("tmp")), before, "{young}");
    }
    let base = tempfile::tempdir().unwrap();
    let paths = foreign_work(base.path());
    age(&paths, 8);
    let lock = File::open(&paths[3]).unwrap();
    lock.try_lock().unwrap();
    write(&pool, base.path(), "name").unwrap();
    assert_eq!(names_in_tmp(base.path()).len(), 2, "its lock is held");
    drop(lock);
    write(&pool, base.path(), "other").unwrap();
    assert_eq!(names_in_tmp(base.path()), [""; 0]);
}

#[test]
fn claims_that_nobody_holds_are_removed_and_hinder_nobody() {
    let pool = pool(1);
    let base = tempfile::tempdir().unwrap();
    let claim = {
        let _writer = begin(&pool, base.path(), "name");
        let names = names_in_tmp(base.path());
        base.path().join("tmp").join(names.iter().find(|name| name.ends_with(".claim")).unwrap())
    };
    let foreign = "0123456789abcdef0123456789abcdef 77 elsewhere\n";
    for (text, stays) in [("", false), ("garbage", true), (foreign, true)] {
        fs::write(&claim, text).unwrap();
        write(&pool, base.path(), &format!("other {stays} {}", text.len())).unwrap();
        assert_eq!(exists(&claim), stays, "{text:?}");
    }
    age(std::slice::from_ref(&claim), 8);
    write(&pool, base.path(), "another").unwrap();
    assert!(!exists(&claim));
    fs::write(&claim, foreign).unwrap();
    write(&pool, base.path(), "name").unwrap();
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
    // A writer that dies: none of its steps after the first write is done, removing its folder included.
    let counted = FaultFs::new(Fault::Never);
    let mut whole = CacheWriter::create_on(
        Arc::new(counted.clone()),
        Arc::clone(&pool),
        base.path(),
        "dead",
        WriterConfig::default(),
    )
    .unwrap();
    whole.push(Payload::Copy(&[1; 5000]), &[]).unwrap();
    fs::remove_dir_all(whole.finish(&mut || false).unwrap()).unwrap();
    let step = counted.steps().iter().position(|(verb, _)| *verb == "write").unwrap();
    let fs = Arc::new(FaultFs::new(Fault::Stop(step + 1)));
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
    assert_eq!(synced(), [root.path(), base.parent().unwrap()]);
    assert_eq!(synced(), [] as [PathBuf; 0]);
    // One that its maker may have left before it synced the name.
    fs::remove_dir(base.join("tmp")).unwrap();
    assert_eq!(synced(), [base.parent().unwrap()]);
}
