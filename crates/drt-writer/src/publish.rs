//! The work folder of one write: made unique, locked, and given its final name in one step.
//!
//! A cache is absent or whole because its folder gets its name last, when everything in it is on the disk. A writer that is
//! killed leaves its work folder behind, and beside it a lock file that nobody holds, which is how the next write knows that
//! it may remove both.
//!
//! ```text
//! BASE/tmp/LABEL.lock     from before LABEL.work is made until after it is published or removed
//! BASE/tmp/LABEL.work/    becomes BASE/NAME
//! ```

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use drt_format::constants::{SHARDS_DIR, TMP_DIR};

use crate::WriteError;
use crate::fs::{CacheFs, StdFs};
use crate::gate::Waiter;

const LABEL_PREFIX: &str = "drt-";
const LOCK_SUFFIX: &str = "lock";
const WORK_SUFFIX: &str = "work";

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// A folder under `BASE/tmp` that exactly one writer owns.
pub(crate) struct WorkDir {
    fs: Arc<dyn CacheFs>,
    base: PathBuf,
    path: PathBuf,
    lock_path: PathBuf,
    /// Held, not used: the lock ends with the file. `None` where locks are not to be had: there nobody sweeps either.
    _lock: Option<File>,
    published: bool,
    owner: u32,
}

/// Something no other writer on any machine calls its folder.
fn unique_label() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{LABEL_PREFIX}{}-{nanos:x}-{count}", std::process::id())
}

impl WorkDir {
    /// Make and lock a work folder with an empty `shards` folder in it.
    pub(crate) fn create(fs: Arc<dyn CacheFs>, base: &Path) -> Result<Self, WriteError> {
        let tmp = base.join(TMP_DIR);
        create_dirs(fs.as_ref(), base, &tmp)?;
        remove_abandoned(fs.as_ref(), &tmp);
        let (lock_path, lock) = create_lock(fs.as_ref(), &tmp)?;
        let path = lock_path.with_extension(WORK_SUFFIX);
        // From here on both are removed if anything fails.
        let owner = std::process::id();
        let work = Self { fs, base: base.to_owned(), path, lock_path, _lock: lock, published: false, owner };
        for dir in [work.path.clone(), work.path.join(SHARDS_DIR)] {
            work.fs.create_dir(&dir).map_err(WriteError::io("create", &dir))?;
        }
        Ok(work)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Make the names durable and give the folder its own: `BASE/NAME`. Interrupted after that, the cache is there.
    pub(crate) fn publish(mut self, name: &str, waiter: &mut Waiter<'_>) -> Result<PathBuf, WriteError> {
        let target = self.base.join(name);
        for dir in [self.path.join(SHARDS_DIR), self.path.clone()] {
            self.sync_dir(dir, waiter)?;
        }
        waiter.go_on()?;
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
        self.sync_dir(self.base.clone(), waiter)?;
        Ok(target)
    }

    fn sync_dir(&self, dir: PathBuf, waiter: &mut Waiter<'_>) -> Result<(), WriteError> {
        let fs = Arc::clone(&self.fs);
        waiter.run(move || fs.sync_dir(&dir).map_err(WriteError::io("sync", dir)))?
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        // A forked child has a copy of this value; what it stands for belongs to the parent.
        if std::process::id() != self.owner {
            return;
        }
        // An error is on its way to the caller already; what cannot be removed now is swept by a later write.
        if self.published {
            drop(self.fs.remove_file(&self.lock_path));
        } else {
            remove_both(self.fs.as_ref(), &self.path, &self.lock_path);
        }
    }
}

/// Make the base folder and the one for work in it, and make the names of folders that were not there durable: a published
/// cache would be lost with the name of any folder above it.
fn create_dirs(fs: &dyn CacheFs, base: &Path, tmp: &Path) -> Result<(), WriteError> {
    let mut new = Vec::new();
    for dir in base.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        if fs.exists(dir).map_err(WriteError::io("look for", dir))? {
            break;
        }
        new.push(dir);
    }
    fs.create_dir_all(tmp).map_err(WriteError::io("create", tmp))?;
    for dir in new {
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs.sync_dir(above).map_err(WriteError::io("sync", above))?;
    }
    Ok(())
}

/// Make a lock file under a new label and lock it.
fn create_lock(fs: &dyn CacheFs, tmp: &Path) -> Result<(PathBuf, Option<File>), WriteError> {
    for _attempt in 0..8 {
        // The label does not contain the source's name: that one may already be as long as a name may be.
        let path = tmp.join(format!("{}.{LOCK_SUFFIX}", unique_label()));
        drop(fs.create_file(&path).map_err(WriteError::io("create", &path))?);
        // Between two of these calls a sweep may take the file for an abandoned one: then it is gone, or soon will be.
        match File::open(&path).map(|file| (file.try_lock(), file)) {
            Ok((Ok(()), file)) if path.exists() => return Ok((path, Some(file))),
            Ok((Ok(()) | Err(TryLockError::WouldBlock), _)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok((Err(TryLockError::Error(_)), _)) | Err(_) => return Ok((path, None)),
        }
    }
    Err(WriteError::io("lock a file in", tmp)(io::ErrorKind::ResourceBusy.into()))
}

/// Remove what writers below a base folder have left that died without it. Every write does so before anything else; this is
/// for whoever knows of a death and plans no write.
pub fn sweep(base: &Path) {
    remove_abandoned(&StdFs, &base.join(TMP_DIR));
}

/// Remove what writers that died have left. The locks of living ones are held.
fn remove_abandoned(fs: &dyn CacheFs, tmp: &Path) {
    let Ok(entries) = std::fs::read_dir(tmp) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if entry.file_name().as_encoded_bytes().starts_with(LABEL_PREFIX.as_bytes())
            && path.extension().is_some_and(|suffix| suffix == LOCK_SUFFIX)
            && let Ok(lock) = File::open(&path)
            && lock.try_lock().is_ok()
        {
            remove_both(fs, &path.with_extension(WORK_SUFFIX), &path);
        }
    }
}

/// Remove a work folder, then its lock file; as long as there is the one, the other says so.
fn remove_both(fs: &dyn CacheFs, work: &Path, lock: &Path) {
    match fs.remove_dir_all(work) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => drop(fs.remove_file(lock)),
    }
}
