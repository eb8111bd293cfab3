//! Who writes a name: advice for others who want to, so that they need not find out at the end.
//!
//! A claim decides nothing. Where it cannot be seen, or is lost, two writers of one name work side by side, and the exclusive
//! rename still lets exactly one of them publish.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use drt_format::Sha256Hasher;

use crate::WriteError;
use crate::fs::CacheFs;
use crate::label::{boot_id, is_at, lock_abandoned, open_to_lock};

const PREFIX: &str = "drt-";
const SUFFIX: &str = "claim";

/// A sweep locks a claim for a moment, to see whether it is free. This long is waited for that to pass,
const RETRY_AFTER: Duration = Duration::from_millis(5);
/// so many times.
const NUM_TRIES: usize = 5;

/// `BASE/tmp/drt-HASH.claim`, locked for as long as this process writes the name that the hash is of. The file holds the boot,
/// the process and the host, for messages.
pub(crate) struct Claim {
    fs: Arc<dyn CacheFs>,
    path: PathBuf,
    /// `None` where locks are not to be had.
    lock: Option<File>,
    owner: u32,
}

impl Claim {
    /// Claim a name, or tell who has it.
    pub(crate) fn take(fs: &Arc<dyn CacheFs>, tmp: &Path, name: &str) -> Result<Result<Self, String>, WriteError> {
        let hash = Sha256Hasher::digest(name.as_bytes()).to_string();
        let path = tmp.join(format!("{PREFIX}{}.{SUFFIX}", &hash[..32]));
        let claim = |lock| Self { fs: Arc::clone(fs), path: path.clone(), lock, owner: std::process::id() };
        let mut holder = String::new();
        for attempt in 0..NUM_TRIES {
            match fs.create_file(&path) {
                Ok(file) => drop(file),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(WriteError::io("create", &path)(error)),
            }
            let mut file = match open_to_lock(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(_) => return Ok(Ok(claim(None))),
            };
            match file.try_lock() {
                Ok(()) if is_at(&file, &path) => {
                    // Who it is matters to messages alone, so it may fail to be told.
                    drop(file.set_len(0).and_then(|()| file.write_all(identity().as_bytes())));
                    return Ok(Ok(claim(Some(file))));
                }
                // Its last holder removed it between two of these calls.
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    holder = describe(&mut file);
                    if attempt + 1 < NUM_TRIES {
                        thread::sleep(RETRY_AFTER);
                    }
                }
                Err(TryLockError::Error(_)) => return Ok(Ok(claim(None))),
            }
        }
        Ok(Err(holder))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // A forked child has a copy of this value; what it stands for belongs to the parent.
        if std::process::id() == self.owner && self.lock.as_ref().is_none_or(|lock| is_at(lock, &self.path)) {
            drop(self.fs.remove_file(&self.path));
        }
    }
}

/// Remove a claim that nobody holds. It may be any file in the folder of unfinished caches.
pub(crate) fn remove_abandoned(fs: &dyn CacheFs, path: &Path) {
    let is_claim = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()))
        && path.extension().is_some_and(|suffix| suffix == SUFFIX);
    if !is_claim {
        return;
    }
    // One without a boot was made by a process that ended before it could write it.
    let text = open_to_lock(path).map(|mut file| read(&mut file)).unwrap_or_default();
    let boot = text.split_whitespace().next().unwrap_or(boot_id());
    if let Some(_lock) = lock_abandoned(path, boot, &[path]) {
        drop(fs.remove_file(path));
    }
}

fn identity() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{} {} {}\n", boot_id(), std::process::id(), host.trim())
}

fn read(file: &mut File) -> String {
    let mut text = String::new();
    let read = file.rewind().and_then(|()| Read::by_ref(file).take(1024).read_to_string(&mut text));
    if read.is_ok() { text } else { String::new() }
}

fn describe(file: &mut File) -> String {
    let text = read(file);
    let mut words = text.split_whitespace().skip(1);
    match (words.next().and_then(|pid| pid.parse::<u32>().ok()), words.next()) {
        (Some(pid), _) if pid == std::process::id() && text.starts_with(boot_id()) => {
            "another writer in this process".to_owned()
        }
        (Some(pid), Some(host)) => format!("another process ({pid} on {host})"),
        (Some(pid), None) => format!("another process ({pid})"),
        (None, _) => "another process".to_owned(),
    }
}
