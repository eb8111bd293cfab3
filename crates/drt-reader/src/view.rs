use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_runtime::{CancelOnDrop, OrderedWindow, WorkerPool};
use drt_sampler::SamplingPlan;

use crate::block::Block;
use crate::catalog::Catalog;
use crate::iter::{BLOCK_LEN, STEP, SampleIter, Snapshot};
use crate::positions::Positions;
use crate::profile::Profile;
use crate::table::ActiveTable;
use crate::{Order, ReadError, ReaderConfig};

/// A table as it was at one moment, and the caches that its rows are in. It has no place in a stream: whoever uses it says which
/// positions of which plan, or which rows.
///
/// Cloning is cheap. A view may be used from several threads; closing or updating the dataset does not change it.
#[derive(Debug, Clone)]
pub struct TableView {
    pool: Arc<WorkerPool>,
    catalog: Arc<Catalog>,
    table: Arc<ActiveTable>,
    prefetch_size: usize,
    profile: Profile,
}

impl TableView {
    pub(crate) fn new(
        pool: Arc<WorkerPool>,
        catalog: Arc<Catalog>,
        table: Arc<ActiveTable>,
        prefetch_size: usize,
        profile: Profile,
    ) -> Self {
        Self { pool, catalog, table, prefetch_size, profile }
    }

    /// Open caches and map a table that [`save`](Self::save) wrote for them. Rows and weights stay in the file, shared by all
    /// processes that map it; the configuration's order and seed do not matter. `stop` is asked as [`Catalog::open`] has it.
    ///
    /// # Errors
    /// Those of [`Catalog::open`], `MissingFile`, and `InvalidTable` for a file that is damaged
    /// or was written for other caches.
    pub fn open(
        pool: Arc<WorkerPool>,
        paths: &[PathBuf],
        table: &Path,
        config: ReaderConfig,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        config.check()?;
        pool.ensure_owner()?;
        let catalog = Catalog::open(&pool, paths, config.io, config.validate_cache, stop)?;
        let table = ActiveTable::open(&catalog, table)?;
        Ok(Self::new(pool, Arc::new(catalog), Arc::new(table), config.prefetch_size, Profile::default()))
    }

    /// Write the table to a new file, for [`open`](Self::open) in processes of the same program run: the file's form belongs to
    /// this version of the crate.
    ///
    /// # Errors
    /// `Io`, also when there is a file already. Nothing is left then.
    pub fn save(&self, path: &Path) -> Result<(), ReadError> {
        self.table.save(&self.catalog, path)
    }

    /// The threads that read.
    pub fn pool(&self) -> &WorkerPool {
        &self.pool
    }

    /// The caches.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// The table.
    pub fn table(&self) -> &ActiveTable {
        &self.table
    }

    /// The same rows, read by other threads.
    #[must_use]
    pub fn on(&self, pool: Arc<WorkerPool>) -> Self {
        Self { pool, ..self.clone() }
    }

    /// Some of the rows: those at `range`, or at `range` of the table's permutation with a seed (its first epoch).
    ///
    /// # Errors
    /// `InvalidTable` when the range is empty or goes beyond the rows.
    pub fn subset(&self, range: Range<u64>, permutation: Option<u64>) -> Result<Self, ReadError> {
        let table = Arc::new(self.table.subset(range, permutation)?);
        Ok(Self { table, ..self.clone() })
    }

    /// How rows are drawn in an order.
    ///
    /// # Errors
    /// As [`ActiveTable::plan`].
    pub fn plan(&self, order: Order, seed: u64) -> Result<SamplingPlan, ReadError> {
        self.table.plan(order, seed)
    }

    /// Iterate over positions of a plan.
    ///
    /// # Errors
    /// `InvalidConfig` when the plan is for another number of rows.
    pub fn iter(&self, plan: SamplingPlan, positions: Positions) -> Result<SampleIter, ReadError> {
        let (rows, population) = (self.table.num_rows(), plan.population());
        if rows != population {
            let reason = format!("a plan for {population} rows cannot draw from a table of {rows}");
            return Err(ReadError::InvalidConfig { reason });
        }
        let snapshot = Snapshot {
            pool: Arc::clone(&self.pool),
            catalog: Arc::clone(&self.catalog),
            table: Arc::clone(&self.table),
            plan,
            positions,
            profile: self.profile.clone(),
        };
        Ok(SampleIter::new(snapshot, self.prefetch_size))
    }

    /// Read rows of the table in the order asked for. Each block holds up to 64. `stop` is asked between blocks, and every 50 ms
    /// of waiting for the pool, whether to give up.
    ///
    /// # Errors
    /// `UnknownRow` before anything is read, `Pool`, `Interrupted`; a sample that cannot be read is in its block.
    pub fn get_rows(&self, rows: &[u64], stop: &mut dyn FnMut() -> bool) -> Result<Vec<Block>, ReadError> {
        let num_rows = self.table.num_rows();
        if let Some(row) = rows.iter().find(|row| **row >= num_rows) {
            return Err(ReadError::UnknownRow { row: *row, rows: num_rows });
        }
        let samples = rows.iter().map(|row| self.catalog.locate(self.table.physical(*row))).collect();
        read_samples(&self.pool, &self.catalog, samples, stop)
    }
}

/// Read samples, given by places in the catalog and sample ids, in order. Each block holds up to 64. `stop` is asked between
/// blocks, and every 50 ms of waiting for the pool, whether to give up.
pub(crate) fn read_samples(
    pool: &Arc<WorkerPool>,
    catalog: &Arc<Catalog>,
    samples: Vec<(u32, u64)>,
    stop: &mut dyn FnMut() -> bool,
) -> Result<Vec<Block>, ReadError> {
    let mut go_on = || if stop() { Err(ReadError::Interrupted) } else { Ok(()) };
    let pooled = samples.len() > 1 && samples.iter().any(|(place, _)| !catalog.caches()[*place as usize].is_direct());
    if !pooled {
        let fill = |chunk: &[(u32, u64)]| {
            go_on()?;
            let mut block = Block::new(Arc::clone(catalog));
            block.fill(chunk.iter().copied(), &Profile::default());
            Ok(block)
        };
        return samples.chunks(BLOCK_LEN).map(fill).collect();
    }
    let unwanted = CancelOnDrop::default();
    let mut window = OrderedWindow::new(Arc::clone(pool));
    let share = samples.len().div_ceil(pool.num_workers()).clamp(1, BLOCK_LEN);
    for chunk in samples.chunks(share) {
        let (catalog, chunk, unwanted) = (Arc::clone(catalog), chunk.to_vec(), unwanted.token());
        window.submit(move || {
            let mut block = Block::new(catalog);
            if !unwanted.is_cancelled() {
                block.fill(chunk.into_iter(), &Profile::default());
            }
            block
        })?;
    }
    let mut blocks = Vec::new();
    while !window.is_empty() {
        go_on()?;
        if let Some(block) = window.next_timeout(STEP) {
            blocks.push(block?);
        }
    }
    Ok(blocks)
}
