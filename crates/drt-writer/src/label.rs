//! Names of files in the making, and which of them nobody works on any more.
//!
//! A label begins with the id of the machine's present boot. A lock that somebody on another machine holds cannot be seen on
//! every file system, so a free lock proves its holder dead only where both belong to one boot.

use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::fs::{CacheFile, CacheFs};

/// What another boot left is taken for abandoned when nothing of it has changed for so long.
const FOREIGN_AFTER: Duration = Duration::from_hours(7 * 24);

static COUNTER: AtomicU64 = AtomicU64::new(0);

/// Something no other writer on any machine has: the boot, the process, the time, and a counter.
pub(crate) fn unique_label() -> String {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_nanos() as u64);
    let count = COUNTER.fetch_add(1, Ordering::Relaxed);
    format!("{}-{}-{nanos:x}-{count}", boot_id(), std::process::id())
}

/// The kernel's name for this run of it; containers on one machine share it, as they share its locks.
pub(crate) fn boot_id() -> &'static str {
    static BOOT_ID: LazyLock<String> = LazyLock::new(|| {
        let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let id: String = text.chars().filter(char::is_ascii_hexdigit).collect();
        if id.is_empty() { "unknown".to_owned() } else { id }
    });
    &BOOT_ID
}

fn is_this_boot(id: &str) -> bool {
    id == boot_id() && id != "unknown"
}

/// Open a file in order to lock it. Network file systems want it writable for that; another user's may not be.
pub(crate) fn open_to_lock(path: &Path) -> io::Result<File> {
    match OpenOptions::new().read(true).write(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => File::open(path),
        outcome => outcome,
    }
}

/// Is this open file the one that has the path?
pub(crate) fn is_at(file: &File, path: &Path) -> bool {
    let identity = |metadata: Metadata| (metadata.dev(), metadata.ino());
    let found = fs::symlink_metadata(path).map(identity);
    file.metadata().map(identity).is_ok_and(|opened| found.is_ok_and(|found| found == opened))
}

/// A file with a label in its name.
pub(crate) struct Labelled {
    pub(crate) path: PathBuf,
    pub(crate) file: Box<dyn CacheFile>,
    /// Held, not used: the lock ends with it. `None` where locks are not to be had: there nobody sweeps either.
    pub(crate) lock: Option<File>,
}

/// Make a file with a new label in its name, and lock it.
pub(crate) fn create_locked(
    fs: &dyn CacheFs,
    path: impl Fn(&str) -> PathBuf,
) -> Result<Labelled, (PathBuf, io::Error)> {
    let mut path_of_last = PathBuf::new();
    for _attempt in 0..8 {
        let path = path(&unique_label());
        let file = match fs.create_file(&path) {
            Ok(file) => file,
            Err(error) => return Err((path, error)),
        };
        // Between two of these calls a sweep may take the file for an abandoned one: then it is gone, or soon will be.
        match open_to_lock(&path).map(|lock| (lock.try_lock(), lock)) {
            Ok((Ok(()), lock)) if is_at(&lock, &path) => return Ok(Labelled { path, file, lock: Some(lock) }),
            Ok((Ok(()) | Err(TryLockError::WouldBlock), _)) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Ok((Err(TryLockError::Error(_)), _)) | Err(_) => return Ok(Labelled { path, file, lock: None }),
        }
        path_of_last = path;
    }
    Err((path_of_last, io::ErrorKind::ResourceBusy.into()))
}

/// The lock of a file that nobody works on any more, and none for one that somebody may work on.
///
/// `boot` is the boot of whoever made it, `all` the paths that would have changed if it were alive on another machine.
pub(crate) fn lock_abandoned(path: &Path, boot: &str, all: &[&Path]) -> Option<File> {
    if !is_this_boot(boot) && !all.iter().all(|path| is_long_unchanged(path)) {
        return None;
    }
    let lock = open_to_lock(path).ok()?;
    (lock.try_lock().is_ok() && is_at(&lock, path)).then_some(lock)
}

/// Has nothing at the path, or below it, changed for [`FOREIGN_AFTER`]? So it is where there is nothing.
fn is_long_unchanged(path: &Path) -> bool {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => return error.kind() == io::ErrorKind::NotFound,
    };
    let is_old = |time: SystemTime| time.elapsed().is_ok_and(|age| age > FOREIGN_AFTER);
    if !metadata.modified().is_ok_and(is_old) {
        return false;
    }
    if !metadata.is_dir() {
        return true;
    }
    let Ok(mut entries) = fs::read_dir(path) else { return false };
    entries.all(|entry| entry.is_ok_and(|entry| is_long_unchanged(&entry.path())))
}
