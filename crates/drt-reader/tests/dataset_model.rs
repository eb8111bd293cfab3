//! Under any sequence of calls a dataset behaves like a list of rows, a place in a stream, and nothing more.

mod support;

use std::sync::{Arc, OnceLock};

use drt_format::CompressionAlgo;
use drt_reader::{CachedDataset, IoMode, Order, ReadError, ReaderConfig, Sample, SampleIter};
use drt_runtime::WorkerPool;
use drt_sampler::{SamplingPlan, Weights};
use drt_writer::CacheInput;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use support::{IO_MODES, ORDERS, input, sample_of, write};

/// Samples of the two caches.
const LENS: [usize; 2] = [23, 9];

/// What can be done to a dataset.
#[derive(Debug, Clone)]
enum Step {
    /// Read a whole window.
    Window,
    /// Read this many samples of a window and drop it.
    Part(usize),
    /// Take a window to be read later.
    Keep,
    /// Read on in a kept window: this one, this many samples.
    Resume(prop::sample::Index, usize),
    /// Change the length of windows.
    EpochLen(u64),
    /// Make a table active: rows of both caches, and weights.
    Update(Vec<(prop::sample::Index, f64)>),
    /// Try to make a table active that is no good.
    BadUpdate(BadTable),
    /// Read a sample by identity.
    Get(prop::sample::Index),
    /// Read several.
    GetMany(Vec<prop::sample::Index>),
}

#[derive(Debug, Clone, Copy)]
enum BadTable {
    Empty,
    UnknownCache,
    UnknownSample,
    TooFewWeights,
    Weight(f64),
}

fn step() -> impl Strategy<Value = Step> {
    let place = any::<prop::sample::Index>;
    let weight = prop_oneof![Just(1.0), 0.001f64..1000.0];
    let bad_weight = prop::sample::select(vec![0.0, -1.0, f64::NAN, f64::INFINITY, -0.0]);
    let bad = prop_oneof![
        Just(BadTable::Empty),
        Just(BadTable::UnknownCache),
        Just(BadTable::UnknownSample),
        Just(BadTable::TooFewWeights),
        bad_weight.prop_map(BadTable::Weight),
    ];
    prop_oneof![
        3 => Just(Step::Window),
        2 => (0usize..80).prop_map(Step::Part),
        2 => Just(Step::Keep),
        3 => (place(), 0usize..40).prop_map(|(which, len)| Step::Resume(which, len)),
        2 => (0u64..150).prop_map(Step::EpochLen),
        2 => vec((place(), weight), 1..70).prop_map(Step::Update),
        1 => bad.prop_map(Step::BadUpdate),
        1 => place().prop_map(Step::Get),
        1 => vec(place(), 0..100).prop_map(Step::GetMany),
    ]
}

/// A window of the model: the plan and rows it was made over, its next position and its end.
struct Window {
    plan: SamplingPlan,
    rows: Arc<Vec<usize>>,
    next: u64,
    end: u64,
}

struct Model {
    /// Every sample of both caches, in path order.
    samples: Vec<Sample>,
    order: Order,
    plan: SamplingPlan,
    rows: Arc<Vec<usize>>,
    epoch_len: u64,
    position: u64,
}

const SEED: u64 = 11;

impl Model {
    fn new(samples: Vec<Sample>, order: Order) -> Self {
        let rows: Vec<_> = (0..samples.len()).collect();
        let num_rows = rows.len() as u64;
        let plan = match order {
            Order::Weighted => SamplingPlan::uniform(num_rows, SEED),
            Order::Sequential => SamplingPlan::cyclic(num_rows),
            Order::Permutation => SamplingPlan::permutation(num_rows, SEED),
        };
        Self { samples, order, plan: plan.unwrap(), epoch_len: num_rows, rows: Arc::new(rows), position: 0 }
    }

    fn window(&mut self) -> Window {
        let next = self.position;
        self.position += self.epoch_len;
        Window { plan: self.plan.clone(), rows: Arc::clone(&self.rows), next, end: self.position }
    }

    fn update(&mut self, rows: Vec<usize>, weights: &[f64]) {
        let num_rows = rows.len() as u64;
        self.plan = match self.order {
            Order::Weighted => SamplingPlan::weighted(Weights::new(weights).unwrap(), SEED),
            Order::Sequential => SamplingPlan::cyclic(num_rows).unwrap(),
            Order::Permutation => SamplingPlan::permutation(num_rows, SEED).unwrap(),
        };
        self.epoch_len = rows.len() as u64;
        self.rows = Arc::new(rows);
        self.position = 0;
    }

    fn take(&self, window: &mut Window, most: usize) -> Vec<Sample> {
        let len = (window.end - window.next).min(most as u64);
        let rows: Vec<_> = (window.next..window.next + len)
            .map(|position| {
                // For table order the model does not ask the sampler.
                let row = match self.order {
                    Order::Sequential => position % window.rows.len() as u64,
                    Order::Weighted | Order::Permutation => window.plan.row(position),
                };
                window.rows[row as usize]
            })
            .collect();
        window.next += len;
        rows.into_iter().map(|row| self.samples[row].clone()).collect()
    }
}

fn take(samples: &mut SampleIter, most: usize) -> Vec<Sample> {
    samples.take(most).map(Result::unwrap).collect()
}

/// The two caches, written once for all runs, and what is in them.
struct Caches {
    _base: tempfile::TempDir,
    paths: Vec<std::path::PathBuf>,
    inputs: Vec<CacheInput>,
}

fn caches(algo: CompressionAlgo) -> &'static Caches {
    static CACHES: [OnceLock<Caches>; 2] = [const { OnceLock::new() }; 2];
    CACHES[usize::from(algo == CompressionAlgo::Lz4)].get_or_init(|| {
        let base = tempfile::tempdir().unwrap();
        let inputs: Vec<_> =
            (0..LENS.iter().sum()).map(|n| input(n, if n % 8 == 5 { 33_000 } else { n * 3 })).collect();
        let (first, second) = inputs.split_at(LENS[0]);
        let paths =
            vec![write(base.path(), "first", 800, algo, first), write(base.path(), "second", 800, algo, second)];
        Caches { _base: base, paths, inputs }
    })
}

fn shared_pool() -> Arc<WorkerPool> {
    static POOL: OnceLock<Arc<WorkerPool>> = OnceLock::new();
    Arc::clone(POOL.get_or_init(|| support::pool(2)))
}

fn run(steps: &[Step], order: Order, algo: CompressionAlgo, io: IoMode, prefetch_size: usize) {
    let caches = caches(algo);
    let config = ReaderConfig { seed: SEED, order, io, prefetch_size, validate_cache: false };
    let dataset = CachedDataset::open(shared_pool(), &caches.paths, config).unwrap();
    let ids: Vec<_> = dataset.catalog().caches().iter().map(|cache| cache.id().get()).collect();
    let identity = |row: usize| if row < LENS[0] { (ids[0], row as u64) } else { (ids[1], (row - LENS[0]) as u64) };
    let samples: Vec<_> = caches
        .inputs
        .iter()
        .enumerate()
        .map(|(row, input)| sample_of(input, identity(row).0, identity(row).1))
        .collect();
    let num_rows = samples.len();
    let mut model = Model::new(samples, order);
    let mut kept: Vec<(SampleIter, Window)> = Vec::new();

    for step in steps {
        match step {
            Step::Window => {
                let mut window = model.window();
                let mut samples = dataset.iter().unwrap();
                assert_eq!(samples.remaining(), window.end - window.next);
                assert_eq!(take(&mut samples, usize::MAX), model.take(&mut window, usize::MAX));
                assert!(samples.next().is_none());
            }
            Step::Part(len) => {
                let mut window = model.window();
                assert_eq!(take(&mut dataset.iter().unwrap(), *len), model.take(&mut window, *len));
            }
            Step::Keep => kept.push((dataset.iter().unwrap(), model.window())),
            Step::Resume(which, len) => {
                if !kept.is_empty() {
                    let which = which.index(kept.len());
                    let (samples, window) = &mut kept[which];
                    assert_eq!(take(samples, *len), model.take(window, *len));
                }
            }
            Step::EpochLen(0) => {
                assert!(matches!(dataset.set_epoch_len(0), Err(ReadError::InvalidEpochLen { len: 0, .. })));
            }
            Step::EpochLen(len) => {
                dataset.set_epoch_len(*len).unwrap();
                model.epoch_len = *len;
            }
            Step::Update(table) => {
                let (rows, weights): (Vec<_>, Vec<_>) =
                    table.iter().map(|(row, weight)| (row.index(num_rows), *weight)).unzip();
                dataset.update_table(rows.iter().map(|row| identity(*row)), weights.clone(), None).unwrap();
                model.update(rows, &weights);
            }
            Step::BadUpdate(bad) => {
                let good = [identity(0), identity(1)];
                let outcome = match bad {
                    BadTable::Empty => dataset.update_table([].into_iter(), [], None),
                    BadTable::UnknownCache => dataset.update_table([good[0], (3, 0)].into_iter(), [1.0; 2], None),
                    BadTable::UnknownSample => {
                        dataset.update_table([good[0], (ids[1], LENS[1] as u64)].into_iter(), [1.0; 2], None)
                    }
                    BadTable::TooFewWeights => dataset.update_table(good.into_iter(), [1.0], None),
                    BadTable::Weight(weight) => dataset.update_table(good.into_iter(), [1.0, *weight], None),
                };
                match outcome.unwrap_err() {
                    ReadError::InvalidTable { reason } => {
                        let names_the_row =
                            matches!(bad, BadTable::Empty | BadTable::TooFewWeights) || reason.contains('1');
                        assert!(names_the_row, "{bad:?}: {reason}");
                    }
                    other => panic!("{bad:?}: {other:?}"),
                }
            }
            Step::Get(row) => {
                let row = row.index(num_rows);
                assert_eq!(dataset.get(identity(row).0, identity(row).1).unwrap(), model.samples[row]);
            }
            Step::GetMany(rows) => {
                let rows: Vec<_> = rows.iter().map(|row| row.index(num_rows)).collect();
                let asked: Vec<_> = rows.iter().map(|row| identity(*row)).collect();
                let mut found = Vec::new();
                for block in dataset.get_many(&asked, &mut || false).unwrap() {
                    for at in 0..block.len() {
                        let sample = block.sample(at).unwrap();
                        let mut data = vec![0; sample.payload_len()];
                        sample.copy_payload(&mut data).unwrap();
                        found.push(data);
                    }
                }
                assert!(found.iter().eq(rows.iter().map(|row| &model.samples[*row].data)));
            }
        }
        assert_eq!(dataset.epoch_len(), model.epoch_len);
        assert_eq!(dataset.table().num_rows(), model.rows.len() as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    #[test]
    fn a_dataset_behaves_like_a_list_and_a_place_in_it(
        steps in vec(step(), 1..25),
        order in select(&ORDERS[..]),
        lz4: bool,
        pread: bool,
        prefetch_size in prop_oneof![1usize..10, Just(64), Just(500)],
    ) {
        let algo = if lz4 { CompressionAlgo::Lz4 } else { CompressionAlgo::None };
        run(&steps, order, algo, IO_MODES[usize::from(pread)], prefetch_size);
    }
}
