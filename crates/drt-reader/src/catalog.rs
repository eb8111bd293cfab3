use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use drt_format::{CacheId, MetadataSchema, Sha256Digest, Sha256Hasher};
use drt_runtime::{CancelOnDrop, OrderedWindow, WorkerPool};

use crate::iter::STEP;
use crate::{Cache, IoMode, ReadError};

/// The most rows that one dataset can address: row positions are kept in 32 bits.
pub(crate) const MAX_ROWS: u64 = u32::MAX as u64;

/// Caches opened together. Their samples, in path order, are the physical rows that tables point to.
#[derive(Debug)]
pub struct Catalog {
    caches: Vec<Cache>,
    /// First physical row of each cache, then the number of rows.
    starts: Vec<u64>,
    /// Identities with their place in `caches`, ascending.
    ids: Vec<(CacheId, usize)>,
    digest: OnceLock<Sha256Digest>,
}

impl Catalog {
    /// Open all caches, on the pool's threads where there are several, and check that they fit together. `stop` is asked as in
    /// [`Cache::open`], and every 50 ms of waiting for the pool.
    ///
    /// # Errors
    /// `NoCaches`, `DuplicateCacheId`, `SchemasDiffer`, `NoSamples`, `TooManyRows`, and those of [`Cache::open`]; the first path
    /// that fails decides.
    pub fn open(
        pool: &Arc<WorkerPool>,
        paths: &[PathBuf],
        io: IoMode,
        validate_cache: bool,
        stop: &mut dyn FnMut() -> bool,
    ) -> Result<Self, ReadError> {
        let caches = match paths {
            [] => return Err(ReadError::NoCaches),
            [path] => vec![Cache::open(path, 0, io, validate_cache, stop)?],
            paths => {
                // However this ends, what is not needed any more is not opened.
                let unwanted = CancelOnDrop::default();
                let mut window = OrderedWindow::new(Arc::clone(pool));
                for (position, path) in paths.iter().enumerate() {
                    let (path, unwanted) = (path.clone(), unwanted.token());
                    window.submit(move || {
                        Cache::open(&path, position as u64, io, validate_cache, &mut || unwanted.is_cancelled())
                    })?;
                }
                let mut caches = Vec::with_capacity(paths.len());
                while !window.is_empty() {
                    if stop() {
                        return Err(ReadError::Interrupted);
                    }
                    if let Some(cache) = window.next_timeout(STEP) {
                        caches.push(cache??);
                    }
                }
                caches
            }
        };
        Self::new(caches)
    }

    fn new(caches: Vec<Cache>) -> Result<Self, ReadError> {
        let mut ids: Vec<_> = caches.iter().enumerate().map(|(place, cache)| (cache.id(), place)).collect();
        ids.sort_unstable();
        if let Some(pair) = ids.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let (first, second) = (&caches[pair[0].1], &caches[pair[1].1]);
            return Err(ReadError::DuplicateCacheId {
                id: pair[0].0,
                first: first.path().to_owned(),
                second: second.path().to_owned(),
                remedy: remedy(first, second),
            });
        }
        let first = &caches[0];
        for cache in &caches[1..] {
            if let Some(reason) = schema_difference(first.schema(), cache.schema()) {
                let (first, second) = (first.path().to_owned(), cache.path().to_owned());
                return Err(ReadError::SchemasDiffer { first, second, reason });
            }
        }
        let mut starts = vec![0u64];
        for cache in &caches {
            starts.push(starts[starts.len() - 1].saturating_add(cache.num_samples()));
        }
        match starts[starts.len() - 1] {
            0 => Err(ReadError::NoSamples),
            rows if rows > MAX_ROWS => Err(ReadError::TooManyRows { rows }),
            _ => Ok(Self { caches, starts, ids, digest: OnceLock::new() }),
        }
    }

    /// The caches in path order.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The metadata columns, the same in every cache.
    pub fn schema(&self) -> &MetadataSchema {
        self.caches[0].schema()
    }

    /// Physical rows: the samples of all caches.
    #[inline]
    pub fn num_rows(&self) -> u64 {
        self.starts[self.starts.len() - 1]
    }

    /// SHA-256 over what the caches are, in path order, wherever they lie: identity, number of samples, and the manifest's
    /// checksums of metadata, index and shards. Computed once.
    pub fn digest(&self) -> Sha256Digest {
        *self.digest.get_or_init(|| {
            let mut hasher = Sha256Hasher::new();
            for cache in &self.caches {
                let manifest = cache.manifest();
                hasher.update(&cache.id().get().to_le_bytes());
                hasher.update(&manifest.sample_count.to_le_bytes());
                hasher.update(manifest.metadata_sha256.as_bytes());
                hasher.update(manifest.index_sha256.as_bytes());
                hasher.update(&(manifest.shards.len() as u64).to_le_bytes());
                for shard in &manifest.shards {
                    hasher.update(shard.sha256.as_bytes());
                }
            }
            hasher.finish()
        })
    }

    /// Which cache, by its place in [`caches`](Self::caches), and which sample a physical row is.
    ///
    /// # Panics
    /// When there is no such row.
    #[inline]
    pub(crate) fn locate(&self, row: u64) -> (u32, u64) {
        let place = if self.caches.len() == 1 { 0 } else { self.starts.partition_point(|start| *start <= row) - 1 };
        (place as u32, row - self.starts[place])
    }

    /// The place of the cache with an identity.
    pub(crate) fn find(&self, cache_id: u64) -> Option<usize> {
        let id = CacheId::new(cache_id);
        self.ids.binary_search_by_key(&id, |(id, _)| *id).ok().map(|found| self.ids[found].1)
    }

    /// The first physical row and the number of samples of a cache.
    pub(crate) fn rows_of(&self, place: usize) -> (u64, u64) {
        (self.starts[place], self.caches[place].num_samples())
    }

    /// Which cache and sample an identity is.
    ///
    /// # Errors
    /// `UnknownSample`.
    pub(crate) fn sample(&self, cache_id: u64, sample_id: u64) -> Result<(u32, u64), ReadError> {
        let place = self.find(cache_id).filter(|place| sample_id < self.caches[*place].num_samples());
        place.map(|place| (place as u32, sample_id)).ok_or(ReadError::UnknownSample { cache_id, sample_id })
    }
}

/// What to do about two caches with one identity.
fn remedy(first: &Cache, second: &Cache) -> &'static str {
    let same_folder = || Some(first.path().canonicalize().ok()? == second.path().canonicalize().ok()?);
    if first.path() == second.path() || same_folder() == Some(true) {
        "they are one folder, so leave one of them out; to draw samples more often, repeat their rows in the metadata table"
    } else if [first, second].iter().any(|cache| cache.manifest().cache_id.is_none()) {
        "a cache of format 2 takes its place among the paths as its id, so put it at another place"
    } else {
        "the id comes from the source name, so give one of the sources another name and rebuild its cache"
    }
}

fn schema_difference(first: &MetadataSchema, second: &MetadataSchema) -> Option<String> {
    let (a, b) = (first.fields(), second.fields());
    if let Some((left, right)) = a.iter().zip(b).find(|(left, right)| left != right) {
        return Some(format!(
            "metadata column {:?} ({}) of the first stands where the second has {:?} ({})",
            left.name,
            left.kind.name(),
            right.name,
            right.kind.name()
        ));
    }
    (a.len() != b.len()).then(|| format!("the first has {} metadata columns and the second {}", a.len(), b.len()))
}
