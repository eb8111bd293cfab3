use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use drt_format::MetadataSchema;
use drt_runtime::WorkerPool;
use drt_sampler::SamplingPlan;

use crate::block::Block;
use crate::catalog::Catalog;
use crate::iter::{Sample, SampleIter};
use crate::positions::Positions;
use crate::profile::Profile;
use crate::table::{ActiveTable, Attachment};
use crate::view::{TableView, read_samples};
use crate::{Order, ReadError, ReaderConfig};

/// The longest finite window: what a signed 64-bit length can say.
pub const MAX_EPOCH_LEN: u64 = i64::MAX as u64;

/// Caches, the table that says what is drawn from them, and a place in the endless stream of draws.
///
/// All methods take `&self`; a dataset may be used from several threads. Iterators keep the table they were made with.
#[derive(Debug)]
pub struct CachedDataset {
    pool: Arc<WorkerPool>,
    catalog: Arc<Catalog>,
    config: ReaderConfig,
    profile: Profile,
    state: Mutex<State>,
    #[cfg(feature = "polars")]
    pub(crate) frame: std::sync::OnceLock<polars_core::frame::DataFrame>,
}

#[derive(Debug)]
struct State {
    table: Arc<ActiveTable>,
    plan: SamplingPlan,
    place: StreamPlace,
}

impl State {
    /// At the beginning of a table's stream.
    fn new(table: Arc<ActiveTable>, config: &ReaderConfig) -> Result<Self, ReadError> {
        let plan = table.plan(config.order, config.seed)?;
        let place = StreamPlace { pass: 0, position: 0, rest: 0, epoch_len: table.num_rows() };
        Ok(Self { table, plan, place })
    }
}

/// A place in a dataset's stream, and how it goes on from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPlace {
    /// Windows that were taken since the table became active.
    pub pass: u64,
    /// Where in the stream the next window begins.
    pub position: u64,
    /// Samples in the next window; 0 for as many as an epoch has.
    pub rest: u64,
    /// Samples in each window after it.
    pub epoch_len: u64,
}

/// A window of a dataset's stream.
#[derive(Debug, Clone)]
pub struct Window {
    /// The table that it is drawn from.
    pub view: TableView,
    /// How it is drawn.
    pub plan: SamplingPlan,
    /// Its positions in the stream.
    pub positions: Range<u64>,
    /// Its number since the table became active, from 0.
    pub pass: u64,
    /// What an epoch's length was when it was taken.
    pub epoch_len: u64,
}

impl Window {
    /// Its samples from a position on.
    ///
    /// # Errors
    /// `InvalidConfig` when the position is not in the window.
    pub fn iter_from(&self, position: u64) -> Result<SampleIter, ReadError> {
        let Range { start, end } = self.positions;
        if !(start..=end).contains(&position) {
            let reason = format!("position {position} is not in the window of {start} to {end}");
            return Err(ReadError::InvalidConfig { reason });
        }
        self.view.iter(self.plan.clone(), Positions::window(position, end - position)?)
    }
}

impl CachedDataset {
    /// Open caches as one dataset; all of their samples are active, with equal weights.
    ///
    /// # Errors
    /// `InvalidConfig`, and those of [`Catalog::open`].
    pub fn open(pool: Arc<WorkerPool>, paths: &[PathBuf], config: ReaderConfig) -> Result<Self, ReadError> {
        Self::open_unless(pool, paths, config, &mut || false)
    }

    /// The same, unless `stop` says so first: it is asked often, as [`Catalog::open`] has it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and `Interrupted`.
    pub fn open_unless(
        pool: Arc<WorkerPool>,
        paths: &[PathBuf],
        config: ReaderConfig,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        config.check()?;
        pool.ensure_owner()?;
        let catalog = Catalog::open(&pool, paths, config.io, config.validate_cache, stop)?;
        if config.order != Order::Sequential {
            for shard in catalog.caches().iter().flat_map(|cache| cache.shards()) {
                shard.expect_random();
            }
        }
        let state = State::new(Arc::new(ActiveTable::whole(&catalog)), &config)?;
        Ok(Self {
            pool,
            catalog: Arc::new(catalog),
            config,
            profile: Profile::default(),
            state: Mutex::new(state),
            #[cfg(feature = "polars")]
            frame: std::sync::OnceLock::new(),
        })
    }

    /// Measure the iterators that are made from now on.
    #[must_use]
    pub fn with_profile(self, profile: Profile) -> Self {
        Self { profile, ..self }
    }

    /// Where time is counted: nowhere, unless [`with_profile`](Self::with_profile) was given a profile that is on.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change to the state is one assignment of checked values: a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The threads that read.
    pub fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// The caches.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The metadata columns.
    pub fn schema(&self) -> &MetadataSchema {
        self.catalog.schema()
    }

    /// As given to [`open`](Self::open).
    pub fn config(&self) -> &ReaderConfig {
        &self.config
    }

    /// The table that the next iterator will draw from.
    pub fn table(&self) -> Arc<ActiveTable> {
        Arc::clone(&self.state().table)
    }

    /// Samples that the next iterator will yield: at first the number of active rows.
    pub fn epoch_len(&self) -> u64 {
        let StreamPlace { rest, epoch_len, .. } = self.state().place;
        if rest > 0 { rest } else { epoch_len }
    }

    /// Where the next window begins, and how long it and the following ones are.
    pub fn place(&self) -> StreamPlace {
        self.state().place
    }

    /// Go on from another place in the stream.
    ///
    /// # Errors
    /// `InvalidEpochLen` when a length is beyond [`MAX_EPOCH_LEN`], or an epoch's is 0; nothing changes then.
    pub fn set_place(&self, place: StreamPlace) -> Result<(), ReadError> {
        for len in [place.epoch_len, place.rest.max(1)] {
            if !(1..=MAX_EPOCH_LEN).contains(&len) {
                return Err(ReadError::InvalidEpochLen { len, max: MAX_EPOCH_LEN });
            }
        }
        self.state().place = place;
        Ok(())
    }

    /// Set how many samples each future iterator yields. The place in the stream stays.
    ///
    /// # Errors
    /// `InvalidEpochLen` outside 1 to [`MAX_EPOCH_LEN`]; nothing changes then.
    pub fn set_epoch_len(&self, len: u64) -> Result<(), ReadError> {
        if !(1..=MAX_EPOCH_LEN).contains(&len) {
            return Err(ReadError::InvalidEpochLen { len, max: MAX_EPOCH_LEN });
        }
        let mut state = self.state();
        state.place = StreamPlace { epoch_len: len, rest: 0, ..state.place };
        Ok(())
    }

    /// Make another table active: rows as identities in the order they are drawn by, with their weights. The stream begins
    /// anew and the epoch length becomes the number of rows.
    ///
    /// # Errors
    /// `InvalidTable`, `TooManyRows`; nothing changes then.
    pub fn update_table(
        &self,
        ids: impl ExactSizeIterator<Item = (u64, u64)>,
        weights: impl AsRef<[f64]> + Send + Sync + 'static,
        attachment: Option<Attachment>,
    ) -> Result<(), ReadError> {
        self.activate(self.prepare_table(ids, weights, attachment, &mut || false)?)
    }

    /// Check another table, to [`activate`](Self::activate) it later. `stop` is asked now and then whether to give up.
    ///
    /// # Errors
    /// `InvalidTable`, `TooManyRows`, `Interrupted`.
    pub fn prepare_table(
        &self,
        ids: impl ExactSizeIterator<Item = (u64, u64)>,
        weights: impl AsRef<[f64]> + Send + Sync + 'static,
        attachment: Option<Attachment>,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Arc<ActiveTable>, ReadError> {
        let table = ActiveTable::new(&self.catalog, ids, Arc::new(weights), attachment, stop)?;
        // What takes time about the plan is kept with the table.
        table.plan(self.config.order, self.config.seed)?;
        Ok(Arc::new(table))
    }

    /// Make a table of this dataset the active one. The stream begins anew and the epoch length becomes the number of rows.
    ///
    /// # Errors
    /// As [`ActiveTable::plan`]; nothing changes then.
    pub fn activate(&self, table: Arc<ActiveTable>) -> Result<(), ReadError> {
        let state = State::new(table, &self.config)?;
        *self.state() = state;
        Ok(())
    }

    /// Take the next window of the stream. The table and the window are fixed now, whatever happens later.
    ///
    /// # Errors
    /// `Sampler` at the end of the stream, after 2^64 draws.
    pub fn iter(&self) -> Result<SampleIter, ReadError> {
        let window = self.next_window()?;
        window.iter_from(window.positions.start)
    }

    /// Take the next window of the stream, to be iterated over later.
    ///
    /// # Errors
    /// As [`iter`](Self::iter).
    pub fn next_window(&self) -> Result<Window, ReadError> {
        let mut state = self.state();
        let StreamPlace { pass, mut position, rest, epoch_len } = state.place;
        let len = if rest > 0 { rest } else { epoch_len };
        // Table order repeats itself, so there is always a place to go on from.
        if self.config.order == Order::Sequential && position.checked_add(len).is_none() {
            position %= state.table.num_rows();
        }
        let end = position.checked_add(len).ok_or(ReadError::StreamExhausted)?;
        state.place = StreamPlace { pass: pass.saturating_add(1), position: end, rest: 0, epoch_len };
        let (view, plan) = (self.view_of(&state), state.plan.clone());
        Ok(Window { view, plan, positions: position..end, pass, epoch_len })
    }

    /// The active table as it is now, to be drawn from in other ways.
    pub fn view(&self) -> TableView {
        self.view_of(&self.state())
    }

    /// The active table, how it is drawn from, and where its stream is, as of one moment.
    pub fn snapshot(&self) -> (TableView, SamplingPlan, StreamPlace) {
        let state = self.state();
        (self.view_of(&state), state.plan.clone(), state.place)
    }

    fn view_of(&self, state: &State) -> TableView {
        let (pool, catalog, table) = (Arc::clone(&self.pool), Arc::clone(&self.catalog), Arc::clone(&state.table));
        TableView::new(pool, catalog, table, self.config.prefetch_size, self.profile.clone())
    }

    /// Read samples by identity, in the order asked for, wherever the stream is. Each block holds up to 64. `stop` is asked
    /// between blocks, and every 50 ms of waiting for the pool, whether to give up.
    ///
    /// # Errors
    /// `UnknownSample` before anything is read, `Pool`, `Interrupted`; a sample that cannot be read is in its block.
    pub fn get_many(&self, ids: &[(u64, u64)], stop: &mut dyn FnMut() -> bool) -> Result<Vec<Block>, ReadError> {
        let sample = |(cache_id, sample_id): &(u64, u64)| self.catalog.sample(*cache_id, *sample_id);
        read_samples(&self.pool, &self.catalog, ids.iter().map(sample).collect::<Result<_, _>>()?, stop)
    }

    /// Read one sample by identity.
    ///
    /// # Errors
    /// `UnknownSample`, `Record`, `Io`.
    pub fn get(&self, cache_id: u64, sample_id: u64) -> Result<Sample, ReadError> {
        let blocks = self.get_many(&[(cache_id, sample_id)], &mut || false)?;
        Sample::from_ref(blocks[0].sample(0)?)
    }
}
