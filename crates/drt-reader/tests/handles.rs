//! A dataset keeps few files open, and notices when one that it has to open again is no longer the same.
//!
//! The limit is the process's own, so this file has one test.

mod support;

use std::fs;

use drt_format::CompressionAlgo;
use drt_reader::{IoMode, ReadError};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::{input, open, ordered, sample_of, window, write};

fn open_files() -> usize {
    fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}

#[test]
fn shards_past_the_share_of_open_files_are_opened_for_each_read_and_never_mistaken() {
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(128), maximum: before.maximum }).unwrap();

    let base = tempfile::tempdir().unwrap();
    let inputs: Vec<_> = (0..100).map(|n| input(n, if n % 9 == 0 { 40_000 } else { 20 })).collect();
    let path = write(base.path(), "numbers", 1, CompressionAlgo::None, &inputs);
    let files_before = open_files();
    let dataset = open(&[&path], ordered(IoMode::Pread)).unwrap();
    // A quarter of 128, and some for index and metadata.
    assert!(open_files() - files_before < 40, "{}", open_files() - files_before);
    let id = dataset.catalog().caches()[0].id().get();
    let expected: Vec<_> = inputs.iter().enumerate().map(|(n, input)| sample_of(input, id, n as u64)).collect();
    assert!(window(&dataset) == expected);
    // Mapped shards need no file.
    let mapped = open(&[&path], ordered(IoMode::Mmap)).unwrap();
    assert!(window(&mapped) == expected);

    // The same samples again, in other files.
    fs::rename(&path, base.path().join("old")).unwrap();
    write(base.path(), "numbers", 1, CompressionAlgo::None, &inputs);
    let (mut read, mut replaced) = (0, 0);
    for (n, expected) in expected.iter().enumerate() {
        match dataset.get(id, n as u64) {
            Ok(sample) => {
                assert_eq!(&sample, expected);
                read += 1;
            }
            Err(ReadError::Replaced { path: named }) => {
                assert!(named.starts_with(&path), "{}", named.display());
                replaced += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(read >= 32 && replaced >= 60 && read + replaced == 100, "{read} {replaced}");
    assert!(window(&mapped) == expected);

    // And no files at all.
    fs::remove_dir_all(&path).unwrap();
    let errors = (0..100).filter_map(|n| dataset.get(id, n).err());
    assert!(
        errors.inspect(|error| assert!(matches!(error, ReadError::MissingFile { .. }), "{error:?}")).count()
            == replaced
    );
    assert!(window(&mapped) == expected);
}
