//! The work folder of one write: made unique, locked, and given its final name in one step.
//!
//! A cache is absent or whole because its folder gets its name last, when everything in it is on the disk. A writer that is
//! killed leaves its work folder behind, and beside it a lock file that nobody holds, which is how the next write knows that
//! it may remove both.
//!
//! ```text
//! BASE/tmp/drt-LABEL.lock        from before the work folder is made until after it is published or removed
//! BASE/tmp/drt-LABEL.work/       becomes BASE/NAME; after a replacement it is the old cache, until that is removed
//! BASE/tmp/drt-LABEL.aside/NAME  the old cache, while the file system has no exchange of names
//! BASE/tmp/drt-HASH.claim        see the module `claim`
//! ```

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use drt_format::Manifest;
use drt_format::constants::{MANIFEST_FILE, SHARDS_DIR, TMP_DIR};

use crate::WriteError;
use crate::claim;
use crate::fs::{CacheFs, StdFs};
use crate::gate::Waiter;
use crate::label::{Labelled, create_locked, lock_abandoned};

const LABEL_PREFIX: &str = "drt-";
const LOCK_SUFFIX: &str = "lock";
const WORK_SUFFIX: &str = "work";
const ASIDE_SUFFIX: &str = "aside";

/// A folder under `BASE/tmp` that exactly one writer owns.
pub(crate) struct WorkDir {
    fs: Arc<dyn CacheFs>,
    base: PathBuf,
    path: PathBuf,
    lock_path: PathBuf,
    /// Held, not used: see [`Labelled`].
    _lock: Option<File>,
    left: Left,
    owner: u32,
}

/// What has to be removed at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The folders and the lock file.
    All,
    /// The lock file: the folder has its final name.
    Lock,
    /// Nothing now. A later sweep sees what became of an exchange of names that may not be on the disk.
    ForSweep,
}

/// What a writer may do about a cache that stands at its path.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Existing<'a> {
    /// Nothing.
    Keep,
    /// Replace it unless it has this fingerprint already.
    ReplaceUnless(&'a str),
}

impl Existing<'_> {
    /// Is the path free, or held by what may be replaced? Anything else there is an error.
    pub(crate) fn check(self, fs: &dyn CacheFs, path: &Path) -> Result<(), WriteError> {
        if !fs.exists(path).map_err(WriteError::io("look for", path))? {
            return Ok(());
        }
        let taken = || WriteError::TargetExists { path: path.to_owned() };
        let Self::ReplaceUnless(fingerprint) = self else { return Err(taken()) };
        let refused = |reason: &str| WriteError::NotReplaceable { path: path.to_owned(), reason: reason.to_owned() };
        if !fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir()) {
            return Err(refused("it is a link or a file"));
        }
        let manifest = fs::read(path.join(MANIFEST_FILE)).map_err(|_| refused("its manifest cannot be read"))?;
        match Manifest::decode(&manifest).as_ref().map(Manifest::fingerprint) {
            Ok(Ok(Some(found))) if found == fingerprint => Err(taken()),
            Ok(_) => Ok(()),
            Err(error) => Err(refused(&error.to_string())),
        }
    }
}

impl WorkDir {
    /// Make and lock a work folder with an empty `shards` folder in it.
    pub(crate) fn create(fs: Arc<dyn CacheFs>, base: &Path) -> Result<Self, WriteError> {
        let tmp = base.join(TMP_DIR);
        // The label does not contain the source's name: that one may already be as long as a name may be.
        let lock_path = |label: &str| tmp.join(format!("{LABEL_PREFIX}{label}.{LOCK_SUFFIX}"));
        let Labelled { path: lock_path, lock, .. } = create_locked(fs.as_ref(), lock_path)
            .map_err(|(path, error)| WriteError::io("create and lock", path)(error))?;
        let path = lock_path.with_extension(WORK_SUFFIX);
        // From here on both are removed if anything fails.
        let owner = std::process::id();
        let work = Self { fs, base: base.to_owned(), path, lock_path, _lock: lock, left: Left::All, owner };
        for dir in [work.path.clone(), work.path.join(SHARDS_DIR)] {
            work.fs.create_dir(&dir).map_err(WriteError::io("create", &dir))?;
        }
        Ok(work)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Make the names durable and give the folder its own: `BASE/NAME`. Interrupted after that, the cache is there.
    pub(crate) fn publish(
        mut self,
        name: &str,
        existing: Existing<'_>,
        waiter: &mut Waiter<'_>,
    ) -> Result<PathBuf, WriteError> {
        let target = self.base.join(name);
        for dir in [self.path.join(SHARDS_DIR), self.path.clone()] {
            self.sync(&dir, waiter)?;
        }
        waiter.go_on()?;
        // More than once only when somebody else takes away, or puts there, what was looked at.
        for _attempt in 0..8 {
            match self.fs.rename_exclusive(&self.path, &target) {
                Ok(()) => {
                    self.left = Left::Lock;
                    self.sync(&self.base, waiter)?;
                    return Ok(target);
                }
                Err(error) if is_taken(&error) => {}
                Err(error) => return Err(WriteError::io("publish the cache as", target)(error)),
            }
            existing.check(self.fs.as_ref(), &target)?;
            if self.replace(name, &target, waiter)? {
                return Ok(target);
            }
        }
        Err(WriteError::TargetExists { path: target })
    }

    /// Put the folder in the place of the one at the path; false when there is none any more.
    fn replace(&mut self, name: &str, target: &Path, waiter: &mut Waiter<'_>) -> Result<bool, WriteError> {
        match self.fs.exchange(&self.path, target) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                return self.replace_in_two_steps(name, target, waiter);
            }
            Err(error) => return Err(WriteError::io("replace the cache", target)(error)),
        }
        self.sync_both(waiter)?;
        Ok(true)
    }

    /// The same, where names cannot be exchanged. A crash between the steps leaves the old cache aside; a sweep puts it back.
    fn replace_in_two_steps(&mut self, name: &str, target: &Path, waiter: &mut Waiter<'_>) -> Result<bool, WriteError> {
        let failed = WriteError::io("replace the cache", target);
        let aside = self.lock_path.with_extension(ASIDE_SUFFIX);
        self.fs.create_dir(&aside).map_err(WriteError::io("create", &aside))?;
        self.sync(&self.base.join(TMP_DIR), waiter)?;
        match self.fs.rename_exclusive(target, &aside.join(name)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.fs.remove_dir_all(&aside).map(|()| false).map_err(WriteError::io("remove", &aside));
            }
            Err(error) => return Err(failed(error)),
        }
        match self.fs.rename_exclusive(&self.path, target) {
            Ok(()) => {}
            Err(error) if is_taken(&error) => return Err(WriteError::TargetExists { path: target.to_owned() }),
            Err(error) => return Err(failed(error)),
        }
        self.sync_both(waiter)?;
        Ok(true)
    }

    /// Make a replacement durable before the old cache is removed.
    fn sync_both(&mut self, waiter: &mut Waiter<'_>) -> Result<(), WriteError> {
        let synced = self.sync(&self.base, waiter).and_then(|()| self.sync(&self.base.join(TMP_DIR), waiter));
        if synced.is_err() {
            self.left = Left::ForSweep;
        }
        synced
    }

    fn sync(&self, dir: &Path, waiter: &mut Waiter<'_>) -> Result<(), WriteError> {
        let (fs, dir) = (Arc::clone(&self.fs), dir.to_owned());
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
        match self.left {
            Left::All => remove_all(self.fs.as_ref(), &self.base, &self.lock_path),
            Left::Lock => drop(self.fs.remove_file(&self.lock_path)),
            Left::ForSweep => {}
        }
    }
}

fn is_taken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotADirectory
    )
}

/// Make the base folder and the one for work in it, and make the names of folders that were not there durable: a published
/// cache would be lost with the name of any folder above it. Returns the one for work.
pub(crate) fn create_dirs(fs: &dyn CacheFs, base: &Path) -> Result<PathBuf, WriteError> {
    let tmp = base.join(TMP_DIR);
    if fs.exists(&tmp).map_err(WriteError::io("look for", &tmp))? {
        return Ok(tmp);
    }
    let mut new = Vec::new();
    for dir in base.ancestors().filter(|dir| !dir.as_os_str().is_empty()) {
        if fs.exists(dir).map_err(WriteError::io("look for", dir))? {
            break;
        }
        new.push(dir);
    }
    let above = |dir: &Path| {
        let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
        above.map_or_else(|| PathBuf::from("."), Path::to_owned)
    };
    // A base folder without the folder for work may be what another writer had just made when it died.
    if new.is_empty() {
        drop(fs.sync_dir(&above(base)));
    }
    // Each name is durable before there is anything below it.
    for dir in new.into_iter().rev() {
        fs.create_dir_all(dir).map_err(WriteError::io("create", dir))?;
        let above = above(dir);
        fs.sync_dir(&above).map_err(WriteError::io("sync", above))?;
    }
    fs.create_dir_all(&tmp).map_err(WriteError::io("create", &tmp))?;
    Ok(tmp)
}

/// Remove what writers below a base folder have left that died without it. Every write does so before its first sample; this is
/// for whoever knows of a death and plans no write.
pub fn sweep(base: &Path) {
    sweep_on(&StdFs, base);
}

/// Remove what writers that died have left, and put back a cache that one of them was about to replace.
pub(crate) fn sweep_on(fs: &dyn CacheFs, base: &Path) {
    let Ok(entries) = fs::read_dir(base.join(TMP_DIR)) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        claim::remove_abandoned(fs, &path);
        if let Some(boot) = boot_of(&path)
            && let all = [path.as_path(), &path.with_extension(WORK_SUFFIX), &path.with_extension(ASIDE_SUFFIX)]
            && let Some(_lock) = lock_abandoned(&path, boot, &all)
        {
            remove_all(fs, base, &path);
        }
    }
}

/// The boot in the label of a lock file.
fn boot_of(path: &Path) -> Option<&str> {
    if path.extension() != Some(OsStr::new(LOCK_SUFFIX)) {
        return None;
    }
    let label = path.file_stem()?.to_str()?.strip_prefix(LABEL_PREFIX)?;
    Some(label.split('-').next().unwrap_or(label))
}

/// Remove a writer's folders, then its lock file; as long as there is anything, the lock file says so.
fn remove_all(fs: &dyn CacheFs, base: &Path, lock: &Path) {
    if put_back(fs, base, &lock.with_extension(ASIDE_SUFFIX)).is_err() {
        return;
    }
    match fs.remove_dir_all(&lock.with_extension(WORK_SUFFIX)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {}
        _ => drop(fs.remove_file(lock)),
    }
}

/// Give a cache that was put aside its name again, unless another one has it by now; then remove it.
fn put_back(fs: &dyn CacheFs, base: &Path, aside: &Path) -> io::Result<()> {
    let entries = match fs::read_dir(aside) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        match fs.rename_exclusive(&entry.path(), &base.join(entry.file_name())) {
            Ok(()) => fs.sync_dir(base)?,
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(error),
        }
    }
    fs.remove_dir_all(aside)
}
