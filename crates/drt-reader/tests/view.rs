//! Views of a table: rows read by number, parts of a table, pieces of a stream, and tables that other processes map.

mod support;

use std::fs;
use std::path::PathBuf;

use drt_format::CompressionAlgo;
use drt_reader::{Block, CachedDataset, IoMode, Order, Positions, ReadError, ReaderConfig, SampleIter, TableView};
use support::{IO_MODES, ORDERS, open, ordered, pool, small_cache};

const LENS: [usize; 2] = [40, 23];

/// Two caches, and a table of 50 of their rows, in an order and with weights of its own.
fn dataset(base: &std::path::Path, algo: CompressionAlgo, io: IoMode) -> (Vec<PathBuf>, CachedDataset, Vec<f64>) {
    let paths: Vec<_> = ["a", "b"].iter().zip(LENS).map(|(name, len)| small_cache(base, name, algo, len)).collect();
    let dataset = open(&paths, ordered(io)).unwrap();
    let ids: Vec<_> = dataset.catalog().caches().iter().map(|cache| cache.id().get()).collect();
    let rows: Vec<_> = (0..50).map(|n| if n % 3 == 0 { (ids[1], n * 7 % 23) } else { (ids[0], n * 11 % 40) }).collect();
    let weights: Vec<_> = (0..50).map(|n| 0.5 + f64::from(n % 7)).collect();
    dataset.update_table(rows.into_iter(), weights.clone(), None).unwrap();
    (paths, dataset, weights)
}

fn ids(blocks: &[Block]) -> Vec<(u64, u64)> {
    let samples = blocks.iter().flat_map(|block| (0..block.len()).map(|at| block.sample(at).unwrap()));
    samples.map(|sample| (sample.cache_id(), sample.sample_id())).collect()
}

fn drawn(samples: SampleIter) -> Vec<(u64, u64)> {
    samples.map(|sample| sample.unwrap()).map(|sample| (sample.cache_id, sample.sample_id)).collect()
}

fn all_rows(view: &TableView) -> Vec<(u64, u64)> {
    let rows: Vec<_> = (0..view.table().num_rows()).collect();
    ids(&view.get_rows(&rows, &mut || false).unwrap())
}

#[test]
fn rows_are_read_by_their_number_in_the_table() {
    let base = tempfile::tempdir().unwrap();
    for (algo, name) in [(CompressionAlgo::None, "plain"), (CompressionAlgo::Lz4, "packed")] {
        for io in IO_MODES {
            let folder = base.path().join(format!("{name} {io:?}"));
            let (_, dataset, _) = dataset(&folder, algo, io);
            let view = dataset.view();
            let expected = drawn(dataset.iter().unwrap());
            assert_eq!(all_rows(&view), expected);
            let rows = [49, 0, 0, 17];
            assert_eq!(ids(&view.get_rows(&rows, &mut || false).unwrap()), rows.map(|row| expected[row as usize]));
            assert!(matches!(view.get_rows(&[3, 50], &mut || false), Err(ReadError::UnknownRow { row: 50, rows: 50 })));
            assert!(view.get_rows(&[], &mut || false).unwrap().is_empty());
        }
    }
}

#[test]
fn a_view_stays_as_it_is_when_the_dataset_goes_on() {
    let base = tempfile::tempdir().unwrap();
    let (_, dataset, _) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let view = dataset.view();
    let expected = all_rows(&view);
    let id = dataset.catalog().caches()[0].id().get();
    dataset.update_table([(id, 3)].into_iter(), [2.0], None).unwrap();
    assert_eq!(all_rows(&dataset.view()), [(id, 3)]);
    drop(dataset);
    assert_eq!(all_rows(&view), expected);
}

#[test]
fn pieces_of_a_stream_are_the_stream_between_them() {
    let base = tempfile::tempdir().unwrap();
    let (_, dataset, _) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let view = dataset.view();
    for order in ORDERS {
        let plan = view.plan(order, 5).unwrap();
        let whole = drawn(view.iter(plan.clone(), Positions::window(0, 240).unwrap()).unwrap());
        // Three takers of batches of 8: taker `t` has batches t, t + 3, ...
        let mut joined = vec![(0, 0); 240];
        for taker in 0..3 {
            let positions = Positions::pieces(8 * taker, 80, 8, 24).unwrap();
            let part = drawn(view.iter(plan.clone(), positions).unwrap());
            for (batch, samples) in part.chunks(8).enumerate() {
                let start = 24 * batch + 8 * taker as usize;
                joined[start..start + 8].copy_from_slice(samples);
            }
        }
        assert_eq!(joined, whole, "{order:?}");
        let later = view.iter(plan, Positions::window(100, 50).unwrap()).unwrap();
        assert_eq!(drawn(later), whole[100..150]);
    }
}

#[test]
fn a_plan_for_another_table_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (_, dataset, _) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let (whole, part) = (dataset.view(), dataset.view().subset(0..10, None).unwrap());
    let plan = part.plan(Order::Sequential, 0).unwrap();
    let outcome = whole.iter(plan, Positions::window(0, 1).unwrap());
    assert!(matches!(outcome, Err(ReadError::InvalidConfig { .. })));
}

#[test]
fn subsets_divide_a_table_and_keep_its_weights() {
    let base = tempfile::tempdir().unwrap();
    let (_, dataset, weights) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let view = dataset.view();
    let whole = all_rows(&view);
    let parts = [0..20, 20..21, 21..50];
    let joined: Vec<_> = parts.iter().flat_map(|range| all_rows(&view.subset(range.clone(), None).unwrap())).collect();
    assert_eq!(joined, whole);

    let order = view.plan(Order::Permutation, 9).unwrap();
    let mut rows = [0; 50];
    order.fill(0, &mut rows);
    let permuted: Vec<_> =
        parts.iter().flat_map(|range| all_rows(&view.subset(range.clone(), Some(9)).unwrap())).collect();
    assert_eq!(permuted, rows.map(|row| whole[row as usize]));

    // A part draws as a table of its own rows and weights does.
    let part = view.subset(5..25, Some(9)).unwrap();
    let own: Vec<_> = rows[5..25].iter().map(|row| whole[*row as usize]).collect();
    let own_weights: Vec<_> = rows[5..25].iter().map(|row| weights[*row as usize]).collect();
    dataset.update_table(own.into_iter(), own_weights, None).unwrap();
    let draws = |view: &TableView| {
        drawn(view.iter(view.plan(Order::Weighted, 4).unwrap(), Positions::window(0, 200).unwrap()).unwrap())
    };
    assert_eq!(draws(&part), draws(&dataset.view()));

    for range in [0..0, 40..51, 51..52] {
        assert!(matches!(view.subset(range, None), Err(ReadError::InvalidTable { .. })));
    }
}

#[test]
fn a_saved_table_is_the_same_table_and_can_be_saved_again() {
    let base = tempfile::tempdir().unwrap();
    let (paths, dataset, _) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let views = [
        ("edited", dataset.view()),
        ("consecutive", open(&paths, ordered(IoMode::Mmap)).unwrap().view().subset(30..45, None).unwrap()),
        ("equal", dataset.view().subset(3..4, None).unwrap()),
    ];
    for (name, view) in &views {
        let (file, copy) = (base.path().join(name), base.path().join(format!("{name} again")));
        view.save(&file).unwrap();
        let mapped = TableView::open(pool(1), &paths, &file, ReaderConfig::new(0), &mut || false).unwrap();
        mapped.save(&copy).unwrap();
        assert_eq!(fs::read(&file).unwrap(), fs::read(&copy).unwrap());
        assert_eq!(all_rows(&mapped), all_rows(view));
        assert_eq!(mapped.table().is_weighted(), view.table().is_weighted());
        assert_eq!(mapped.table().rows_digest(), view.table().rows_digest());
        assert_eq!(mapped.table().weights_digest().unwrap(), view.table().weights_digest().unwrap());
        for order in ORDERS {
            let draws = |view: &TableView| {
                drawn(view.iter(view.plan(order, 3).unwrap(), Positions::window(7, 100).unwrap()).unwrap())
            };
            assert_eq!(draws(&mapped), draws(view), "{name} {order:?}");
        }
        let rows = view.table().num_rows();
        let halves = |view: &TableView| all_rows(&view.subset(rows / 2..rows, Some(1)).unwrap());
        assert_eq!(halves(&mapped), halves(view));
    }
}

#[test]
fn a_saved_table_is_never_written_over() {
    let base = tempfile::tempdir().unwrap();
    let (_, dataset, _) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let file = base.path().join("table");
    fs::write(&file, "somebody's").unwrap();
    assert!(matches!(dataset.view().save(&file), Err(ReadError::Io { .. })));
    assert_eq!(fs::read(&file).unwrap(), b"somebody's");
}

#[test]
fn a_damaged_or_foreign_table_file_is_refused() {
    let base = tempfile::tempdir().unwrap();
    let (paths, dataset, _) = dataset(base.path(), CompressionAlgo::None, IoMode::Mmap);
    let file = base.path().join("table");
    dataset.view().save(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    let refused = |bytes: &[u8], paths: &[PathBuf]| {
        fs::write(&file, bytes).unwrap();
        match TableView::open(pool(1), paths, &file, ReaderConfig::new(0), &mut || false) {
            Err(ReadError::InvalidTable { reason }) => assert!(reason.contains("table"), "{reason}"),
            other => panic!("{other:?}"),
        }
    };
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        refused(&bytes, &paths);
    }
    for len in [0, 1, 79, 80, 81, whole.len() - 1] {
        refused(&whole[..len], &paths);
    }
    refused(&[&whole[..], &[0]].concat(), &paths);
    refused(&whole, &paths[..1]);
    let reversed: Vec<_> = paths.iter().rev().cloned().collect();
    refused(&whole, &reversed);
    fs::remove_file(&file).unwrap();
    let missing = TableView::open(pool(1), &paths, &file, ReaderConfig::new(0), &mut || false);
    assert!(matches!(missing, Err(ReadError::MissingFile { path }) if path == file));
}
