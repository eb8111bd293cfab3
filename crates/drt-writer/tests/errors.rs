//! Whatever goes wrong is said with its row or its path, at once, and leaves nothing.

mod support;

use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use drt_format::{CompressionAlgo, FormatError, MetadataKind, MetadataValue, ShardCompression};
use drt_metadata::MetadataError;
use drt_writer::progress::{ProgressSink, Silent};
use drt_writer::{
    CacheInput, CacheSource, CacheWriter, IterSource, OwnedValue, Payload, WriteError, WriterConfig, write_cache,
};
use support::fault_fs::{Fault, FaultFs};
use support::{config, exists, in_time, names_in_tmp, pool, steps_of_create};

fn sample(metadata: &[(&str, OwnedValue)]) -> CacheInput {
    let metadata = metadata.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    CacheInput { data: vec![1, 2, 3], metadata }
}

/// Write `good` copies of one sample, then `bad`; nothing is left.
fn error_of(good: u64, first: &CacheInput, bad: CacheInput) -> WriteError {
    let base = tempfile::tempdir().unwrap();
    let samples = std::iter::repeat_n(first.clone(), good as usize).chain([bad]);
    let mut source = IterSource::new("name", samples);
    let error = write_cache(&pool(2), &mut source, base.path(), &WriterConfig::default(), &Silent).unwrap_err();
    nothing_is_left(base.path());
    error
}

fn nothing_is_left(base: &Path) {
    assert!(!exists(&base.join("name")));
    assert_eq!(names_in_tmp(base), [""; 0]);
}

#[test]
fn configurations_outside_their_range_are_refused() {
    for (max_shard_bytes, prefetch_size, name) in [(0, 1, "max_shard_bytes"), (1, 0, "prefetch_size")] {
        match WriterConfig::new(max_shard_bytes, ShardCompression::default(), prefetch_size).unwrap_err() {
            WriteError::InvalidConfig { reason } => assert!(reason.contains(name), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    WriterConfig::new(1, ShardCompression::default(), 1).unwrap();
}

#[test]
fn a_source_without_samples_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let mut source = IterSource::new("name", Vec::new());
    let error = write_cache(&pool(1), &mut source, base.path(), &WriterConfig::default(), &Silent).unwrap_err();
    assert!(matches!(error, WriteError::NoSamples), "{error:?}");
    nothing_is_left(base.path());

    // Columns alone are no sample.
    let mut writer = CacheWriter::create(pool(1), base.path(), "name", WriterConfig::default()).unwrap();
    writer.fix_schema(&[("a", MetadataValue::Int(0))]).unwrap();
    assert!(matches!(writer.finish(&mut || false), Err(WriteError::NoSamples)));
    nothing_is_left(base.path());
}

#[test]
fn columns_that_cannot_be_stored_are_the_first_samples_fault() {
    let int = OwnedValue::Int(1);
    for (metadata, expected) in [
        (vec![("", int.clone())], FormatError::ColumnNameEmpty { column: 0 }),
        (vec![("a\0", int.clone())], FormatError::ColumnNameNul { name: "a\0".into() }),
        (vec![("weight", int.clone())], FormatError::ColumnNameReserved { name: "weight".into() }),
        (vec![("a", int.clone()), ("a", int.clone())], FormatError::ColumnRepeated { name: "a".into() }),
    ] {
        match error_of(0, &CacheInput::default(), sample(&metadata)) {
            WriteError::InvalidSchema { row: 0, source } => assert_eq!(source, expected),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn other_columns_than_the_first_samples_are_named() {
    let int = |n| OwnedValue::Int(n);
    let first = sample(&[("a", int(1)), ("b", int(2))]);
    for (metadata, part) in [
        (vec![("a", int(1))], "\"b\" is missing"),
        (vec![], "\"a\" is missing"),
        (vec![("a", int(1)), ("c", int(2))], "\"b\" is missing"),
        (vec![("a", int(1)), ("b", int(2)), ("c", int(3))], "\"c\" is not one of the first sample's"),
        (vec![("a", int(1)), ("b", int(2)), ("a", int(3))], "given twice"),
    ] {
        match error_of(3, &first, sample(&metadata)) {
            WriteError::ColumnsDiffer { row: 3, reason, expected } => {
                assert!(reason.contains(part), "{reason}");
                assert_eq!(expected, "[\"a\", \"b\"]");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn values_of_another_kind_are_named() {
    let values = [OwnedValue::Bool(true), OwnedValue::Int(1), OwnedValue::Float(1.0), OwnedValue::String("1".into())];
    for first in &values {
        for other in values.iter().filter(|other| other.as_value().kind() != first.as_value().kind()) {
            // Past the rows of one block, so that counting does not begin anew with each.
            match error_of(1500, &sample(&[("a", first.clone())]), sample(&[("a", other.clone())])) {
                WriteError::KindDiffers { row: 1500, column, expected, found } => {
                    assert_eq!(
                        (column.as_str(), expected, found),
                        ("a", first.as_value().kind(), other.as_value().kind())
                    );
                }
                error => panic!("{error:?}"),
            }
        }
    }
}

#[test]
fn floats_that_are_not_finite_are_named() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for good in [0, 2] {
            let first = sample(&[("a", OwnedValue::Float(f64::MAX))]);
            match error_of(good, &first, sample(&[("a", OwnedValue::Float(value))])) {
                WriteError::NonFinite { row, column, value: found } => {
                    assert_eq!((row, column.as_str(), found.to_bits()), (good, "a", value.to_bits()));
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn values_in_column_order_must_be_as_many_as_the_columns() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = CacheWriter::create(pool(1), base.path(), "name", WriterConfig::default()).unwrap();
    let schema = writer.fix_schema(&[("b", MetadataValue::Int(0)), ("a", MetadataValue::Bool(true))]).unwrap();
    assert_eq!(
        schema.fields().iter().map(|field| field.kind).collect::<Vec<_>>(),
        [MetadataKind::Bool, MetadataKind::Int]
    );
    let row = [MetadataValue::Bool(false), MetadataValue::Int(1)];
    writer.push_values(Payload::Copy(b""), &row).unwrap();
    for values in [&row[..1], &[row[0], row[1], row[1]]] {
        match writer.push_values(Payload::Copy(b""), values).unwrap_err() {
            WriteError::Metadata { row: 1, source: MetadataError::WidthMismatch { expected: 2, found } } => {
                assert_eq!(found, values.len());
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(writer.num_samples(), 1);
}

/// A payload that says it is longer than it could ever be.
struct Endless;

impl AsRef<[u8]> for Endless {
    fn as_ref(&self) -> &[u8] {
        // Address space without memory: nothing ever looks at it.
        static ZEROS: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        ZEROS.get_or_init(|| vec![0; (1 << 32) + 1])
    }
}

#[test]
fn a_payload_too_long_for_its_compression_is_refused_when_pushed() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = CacheWriter::create(pool(1), base.path(), "name", config(1, CompressionAlgo::Lz4)).unwrap();
    writer.push(Payload::Copy(b"short"), &[]).unwrap();
    match writer.push(Payload::Shared(Arc::new(Endless)), &[]).unwrap_err() {
        WriteError::Payload { row: 1, source: FormatError::PayloadTooLong { len, limit, .. } } => {
            assert_eq!((len as u64, limit), ((1 << 32) + 1, u64::from(u32::MAX)));
        }
        other => panic!("{other:?}"),
    }
    drop(writer);
    nothing_is_left(base.path());
}

#[test]
fn after_a_refused_sample_the_writer_goes_on_as_if_it_had_not_come() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = CacheWriter::create(pool(1), base.path(), "name", WriterConfig::default()).unwrap();
    // A first sample that is refused fixes no columns.
    writer.push(Payload::Copy(b"0"), &[("x", MetadataValue::Float(f64::NAN))]).unwrap_err();
    assert_eq!(writer.schema(), None);
    writer.push(Payload::Copy(b"one"), &[("a", MetadataValue::Int(1)), ("t", MetadataValue::String("1"))]).unwrap();
    writer.push(Payload::Copy(b"2"), &[("a", MetadataValue::Int(2)), ("t", MetadataValue::Int(2))]).unwrap_err();
    writer.push(Payload::Copy(b"3"), &[("a", MetadataValue::Int(2))]).unwrap_err();
    writer.push(Payload::Copy(b"four"), &[("t", MetadataValue::String("4")), ("a", MetadataValue::Int(4))]).unwrap();
    assert_eq!(writer.num_samples(), 2);
    let path = writer.finish(&mut || false).unwrap();
    let shard = std::fs::read(path.join("shards/000000.bin")).unwrap();
    let record = |json: &str, payload: &str| {
        [&(json.len() as u64).to_le_bytes()[..], json.as_bytes(), payload.as_bytes()].concat()
    };
    assert_eq!(shard, [record(r#"{"a":1,"t":"1"}"#, "one"), record(r#"{"a":4,"t":"4"}"#, "four")].concat());
}

#[test]
#[should_panic(expected = "before samples are pushed")]
fn columns_cannot_be_changed_under_samples_that_were_pushed() {
    let base = tempfile::tempdir().unwrap();
    let mut writer = CacheWriter::create(pool(1), base.path(), "name", WriterConfig::default()).unwrap();
    writer.push(Payload::Copy(b"1"), &[]).unwrap();
    let _fixed = writer.fix_schema(&[("a", MetadataValue::Int(1))]);
}

/// A source that misbehaves at one sample.
struct Misbehaving {
    next: u64,
    at: u64,
    panics: bool,
}

impl CacheSource for Misbehaving {
    fn name(&self) -> &str {
        "name"
    }

    fn next_sample(&mut self) -> Result<Option<CacheInput>, Box<dyn Error + Send + Sync>> {
        self.next += 1;
        match self.next - 1 == self.at {
            false => Ok(Some(CacheInput { data: vec![0; 2000], metadata: Vec::new() })),
            true if self.panics => panic!("the source panics on purpose"),
            true => Err("the source is broken".into()),
        }
    }
}

#[test]
fn a_source_that_fails_is_named_with_the_sample_it_was_asked_for() {
    for at in [0, 1, 2500] {
        let base = tempfile::tempdir().unwrap();
        let mut source = Misbehaving { next: 0, at, panics: false };
        match write_cache(&pool(2), &mut source, base.path(), &WriterConfig::default(), &Silent).unwrap_err() {
            WriteError::Source { row, source } => {
                assert_eq!((row, source.to_string().as_str()), (at, "the source is broken"))
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(source.next, at + 1, "nothing more is asked of it");
        nothing_is_left(base.path());
    }
}

#[test]
fn a_source_that_panics_leaves_nothing_and_the_pool_at_work() {
    let threads = pool(2);
    for at in [0, 2500] {
        let base = tempfile::tempdir().unwrap();
        let (folder, pool) = (base.path().to_owned(), Arc::clone(&threads));
        let panicked = in_time(move || {
            let mut source = Misbehaving { next: 0, at, panics: true };
            let write = || write_cache(&pool, &mut source, &folder, &WriterConfig::default(), &Silent);
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).is_err()
        });
        assert!(panicked);
        nothing_is_left(base.path());
        let mut source = IterSource::new("name", [CacheInput::default()]);
        write_cache(&threads, &mut source, base.path(), &WriterConfig::default(), &Silent).unwrap();
    }
}

/// Counts what it is told.
#[derive(Default)]
struct Counts(AtomicU64, AtomicU64);

impl ProgressSink for Counts {
    fn source_started(&self, _name: &str) {}

    fn waiting(&self, _holder: &str) {}

    fn advanced(&self, samples: u64, bytes: u64) {
        self.0.fetch_add(samples, Ordering::Relaxed);
        self.1.fetch_add(bytes, Ordering::Relaxed);
    }

    fn source_finished(&self, _ok: bool) {}
}

#[test]
fn progress_hears_of_every_sample_and_payload_byte() {
    let base = tempfile::tempdir().unwrap();
    let counts = Counts::default();
    let samples = (0..700).map(|n| CacheInput { data: vec![0; n], metadata: Vec::new() });
    write_cache(&pool(1), &mut IterSource::new("name", samples), base.path(), &WriterConfig::default(), &counts)
        .unwrap();
    assert_eq!((counts.0.into_inner(), counts.1.into_inner()), (700, 700 * 699 / 2));
}

/// Push samples of this length, a flush after each, until that blocks; returns how many were let in and what then became of
/// the write when `stop` said so.
fn push_until_blocked(num_workers: usize, prefetch_size: usize, len: usize) -> (u64, WriteError) {
    let base = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(Fault::Never);
    let pushed = Arc::new(AtomicU64::new(0));
    let (stop, stopped) = mpsc::channel::<()>();
    let writer = {
        let (fs, pushed, base) = (fs.clone(), Arc::clone(&pushed), base.path().to_owned());
        thread::spawn(move || {
            let config = WriterConfig::new(1 << 30, ShardCompression::default(), prefetch_size).unwrap();
            let mut writer = CacheWriter::create_on(Arc::new(fs), pool(num_workers), &base, "name", config).unwrap();
            let payload: drt_writer::SharedPayload = Arc::new(vec![0u8; len]);
            let error = loop {
                writer.push(Payload::Shared(Arc::clone(&payload)), &[]).unwrap();
                if let Err(error) = writer.flush(&mut || stopped.try_recv().is_ok()) {
                    break error;
                }
                pushed.fetch_add(1, Ordering::SeqCst);
            };
            (writer, error)
        })
    };
    fs.hold(true);
    let mut before = u64::MAX;
    let settled = loop {
        thread::sleep(Duration::from_millis(200));
        let now = pushed.load(Ordering::SeqCst);
        if now == before {
            break now;
        }
        before = now;
    };
    let asked = Instant::now();
    stop.send(()).unwrap();
    let (writer, error) = writer.join().unwrap();
    assert!(asked.elapsed() < Duration::from_secs(5), "{:?}", asked.elapsed());
    fs.hold(false);
    drop(writer);
    nothing_is_left(base.path());
    (settled, error)
}

#[test]
fn a_slow_disk_holds_the_source_back_by_blocks_and_by_bytes_and_stop_ends_the_wait() {
    // Some may be written before the disk is held, and hardly more than that.
    let (pushed, error) = push_until_blocked(1, 64, 20_000);
    assert!(matches!(error, WriteError::Interrupted), "{error:?}");
    assert!((2..1000).contains(&pushed), "{pushed}");
}

#[test]
fn bytes_in_flight_are_bounded_whatever_the_number_of_blocks() {
    // 128 blocks would be allowed: 64 MiB are 8 of these.
    let len = 8 << 20;
    let base = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(Fault::Never);
    fs.hold(true);
    let config = WriterConfig::new(1 << 40, ShardCompression::default(), 1000).unwrap();
    let mut writer = CacheWriter::create_on(Arc::new(fs.clone()), pool(64), base.path(), "name", config).unwrap();
    let payload: drt_writer::SharedPayload = Arc::new(vec![0u8; len]);
    let mut pushed = 0;
    let error = loop {
        writer.push(Payload::Shared(Arc::clone(&payload)), &[]).unwrap();
        // The first time it has to wait, it gives up.
        match writer.flush(&mut || true) {
            Ok(()) => pushed += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, WriteError::Interrupted), "{error:?}");
    assert_eq!(pushed, 8);
    fs.hold(false);
    drop(writer);
    nothing_is_left(base.path());
}

#[test]
fn a_sample_larger_than_all_that_may_be_in_flight_is_let_through_alone() {
    let base = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(Fault::Never);
    let config = WriterConfig::new(1 << 40, ShardCompression::default(), 1000).unwrap();
    let mut writer = CacheWriter::create_on(Arc::new(fs), pool(2), base.path(), "name", config).unwrap();
    for len in [10, 65 << 20, 10] {
        writer.push(Payload::Shared(Arc::new(vec![0u8; len])), &[]).unwrap();
        writer.flush(&mut || false).unwrap();
    }
    let path = writer.finish(&mut || false).unwrap();
    assert_eq!(std::fs::metadata(path.join("shards/000000.bin")).unwrap().len(), (65 << 20) + 50);
}

#[test]
fn stop_ends_the_wait_of_finish() {
    let base = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(Fault::Never);
    let mut writer =
        CacheWriter::create_on(Arc::new(fs.clone()), pool(1), base.path(), "name", WriterConfig::default()).unwrap();
    writer.push(Payload::Copy(&[0; 5000]), &[]).unwrap();
    fs.hold(true);
    let mut asked = 0;
    let outcome = in_time({
        let fs = fs.clone();
        move || {
            let began = Instant::now();
            let outcome = writer.finish(&mut || {
                asked += 1;
                // Finishing then waits for what is at work already, so let it.
                fs.hold(false);
                true
            });
            (outcome, asked, began.elapsed())
        }
    });
    let (outcome, asked, elapsed) = outcome;
    assert!(matches!(outcome, Err(WriteError::Interrupted)), "{outcome:?}");
    assert_eq!(asked, 1);
    assert!(elapsed < Duration::from_secs(5), "{elapsed:?}");
    nothing_is_left(base.path());
}

#[test]
fn tiny_shards_do_not_keep_a_file_open_each() {
    let base = tempfile::tempdir().unwrap();
    for num_workers in [1, 4] {
        let fs = FaultFs::new(Fault::Never);
        let name = format!("{num_workers}");
        let mut writer = CacheWriter::create_on(
            Arc::new(fs.clone()),
            pool(num_workers),
            base.path(),
            &name,
            config(1, CompressionAlgo::None),
        )
        .unwrap();
        for n in 0..1000u64 {
            writer.push(Payload::Copy(&n.to_le_bytes()), &[]).unwrap();
        }
        let path = writer.finish(&mut || false).unwrap();
        assert_eq!(std::fs::read_dir(path.join("shards")).unwrap().count(), 1000);
        assert!(fs.most_open_files() < 100, "{}", fs.most_open_files());
        let syncs = fs
            .steps()
            .iter()
            .filter(|(verb, path)| *verb == "sync" && path.extension().is_some_and(|x| x == "bin"))
            .count();
        assert_eq!(syncs, 1000 + 2, "every shard, the index and the checksums");
    }
}

#[test]
fn after_a_failure_nothing_can_be_published_any_more() {
    for num_workers in [1, 3] {
        let base = tempfile::tempdir().unwrap();
        // The first shard cannot be made; the next could.
        let fs = FaultFs::new(Fault::Once(steps_of_create()));
        let mut writer = CacheWriter::create_on(
            Arc::new(fs.clone()),
            pool(num_workers),
            base.path(),
            "name",
            WriterConfig::default(),
        )
        .unwrap();
        let first = loop {
            writer.push(Payload::Copy(b"abc"), &[]).unwrap();
            if let Err(error) = writer.flush(&mut || false) {
                break error;
            }
            thread::sleep(Duration::from_millis(1));
        };
        assert!(
            matches!(&first, WriteError::Io { action: "create", .. }),
            "{first:?}: {:?}",
            fs.steps()[steps_of_create()]
        );
        // A caller that goes on all the same hears that it is over.
        for _ in 0..3 {
            writer.push(Payload::Copy(b"abc"), &[]).unwrap();
            let next = writer.flush(&mut || false).unwrap_err();
            assert!(matches!(next, WriteError::Interrupted), "{next:?}");
        }
        let last = in_time(move || writer.finish(&mut || false));
        assert!(matches!(last, Err(WriteError::Interrupted)), "{last:?}");
        nothing_is_left(base.path());
    }
}

#[test]
fn a_flush_that_was_interrupted_can_be_repeated_and_loses_no_sample() {
    let base = tempfile::tempdir().unwrap();
    let fs = FaultFs::new(Fault::Never);
    fs.hold(true);
    let mut writer =
        CacheWriter::create_on(Arc::new(fs.clone()), pool(1), base.path(), "name", WriterConfig::default()).unwrap();
    let mut interrupted = 0;
    for n in 0..10u64 {
        writer.push(Payload::Copy(&n.to_le_bytes()), &[]).unwrap();
        match writer.flush(&mut || true) {
            Ok(()) => {}
            Err(WriteError::Interrupted) => interrupted += 1,
            Err(other) => panic!("{other:?}"),
        }
    }
    assert!(interrupted > 5, "{interrupted}");
    fs.hold(false);
    let path = writer.finish(&mut || false).unwrap();
    let shard = std::fs::read(path.join("shards/000000.bin")).unwrap();
    let expected: Vec<u8> =
        (0..10u64).flat_map(|n| [&2u64.to_le_bytes()[..], b"{}", &n.to_le_bytes()].concat()).collect();
    assert_eq!(shard, expected);
    assert_eq!(std::fs::metadata(path.join("index.bin")).unwrap().len(), 10 * 24);
}
