//! The work folder of one write: made unique, locked, and given its final name in one step.
//!
//! A cache is absent or whole because its folder gets its name last, when everything in it is on the disk. A writer that is
//! killed leaves its work folder behind; the lock file in it is then free, which is how the next write knows that it may
//! remove it.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use drt_format::constants::{SHARDS_DIR, TMP_DIR};

use crate::WriteError;
use crate::fs::CacheFs;

const LOCK_FILE: &str = "writer.lock";
const WORK_SUFFIX: &str = ".work";
const NEW_SUFFIX: &str = ".new";

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A folder under `BASE/tmp` that exactly one writer owns.
pub(crate) struct WorkDir {
    fs: Arc<dyn CacheFs>,
    base: PathBuf,
    path: PathBuf,
    /// Held, not used: the lock ends with the file.
    lock: Option<File>,
    published: bool,
}

/// Something no other writer on any machine calls its folder.
fn unique_label() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{nanos:x}-{count}", std::process::id())
}

impl WorkDir {
    /// Make and lock a work folder with an empty `shards` folder in it.
    pub(crate) fn create(fs: Arc<dyn CacheFs>, base: &Path) -> Result<Self, WriteError> {
        let tmp = base.join(TMP_DIR);
        fs.create_dir_all(&tmp).map_err(WriteError::io("create", &tmp))?;
        remove_abandoned(fs.as_ref(), &tmp);
        // The folder's name does not contain the source's: that one may already be as long as a name may be.
        let label = unique_label();
        let new = tmp.join(format!("{label}{NEW_SUFFIX}"));
        let path = tmp.join(format!("{label}{WORK_SUFFIX}"));
        fs.create_dir(&new).map_err(WriteError::io("create", &new))?;
        // From here on the folder is removed if anything fails. Until it is locked it has a name that nobody sweeps.
        let mut work = Self { fs, base: base.to_owned(), path: new, lock: None, published: false };
        work.prepare().map_err(WriteError::io("create", &work.path))?;
        work.fs.rename_exclusive(&work.path, &path).map_err(WriteError::io("rename", &work.path))?;
        work.path = path;
        Ok(work)
    }

    fn prepare(&mut self) -> io::Result<()> {
        let path = self.path.join(LOCK_FILE);
        drop(self.fs.create_file(&path)?);
        // Where locks are not to be had nobody sweeps either, and the write itself does not need one.
        if let Ok(file) = File::open(&path)
            && file.try_lock().is_ok()
        {
            self.lock = Some(file);
        }
        self.fs.create_dir(&self.path.join(SHARDS_DIR))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Make the names durable and give the folder its own: `BASE/NAME`.
    pub(crate) fn publish(mut self, name: &str) -> Result<PathBuf, WriteError> {
        let target = self.base.join(name);
        let lock_path = self.path.join(LOCK_FILE);
        self.fs.remove_file(&lock_path).map_err(WriteError::io("remove", &lock_path))?;
        for dir in [self.path.join(SHARDS_DIR), self.path.clone()] {
            self.fs.sync_dir(&dir).map_err(WriteError::io("sync", &dir))?;
        }
        match self.fs.rename_exclusive(&self.path, &target) {
            Ok(()) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
                ) =>
            {
                return Err(WriteError::TargetExists { path: target });
            }
            Err(error) => return Err(WriteError::io("publish the cache as", target)(error)),
        }
        self.published = true;
        self.fs.sync_dir(&self.base).map_err(WriteError::io("sync", &self.base))?;
        Ok(target)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if !self.published {
            // An error is on its way to the caller already; what cannot be removed now is swept by a later write.
            drop(self.fs.remove_dir_all(&self.path));
        }
    }
}

/// Remove the work folders of writers that died. Those of living ones are locked, or on a machine whose locks we see.
fn remove_abandoned(fs: &dyn CacheFs, tmp: &Path) {
    let Ok(entries) = std::fs::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.extension().is_none_or(|suffix| suffix != &WORK_SUFFIX[1..]) {
            continue;
        }
        let Ok(lock) = File::open(path.join(LOCK_FILE)) else { continue };
        match lock.try_lock() {
            Ok(()) => drop(fs.remove_dir_all(&path)),
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
}
