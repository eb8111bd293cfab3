//! Manifests of format 2 made format 3, so that caches keep the identities they are known by.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use drt_format::constants::MANIFEST_FILE;
use drt_format::{CacheId, FormatError, FormatVersion, Manifest};

use crate::fs::{CacheFile, CacheFs};
use crate::label::{Labelled, create_locked, lock_abandoned};

/// A manifest is replaced by a file of its folder whose name begins so.
const TEMPORARY_PREFIX: &str = ".drt-manifest-";

/// One opened cache whose manifest may have to be upgraded.
#[derive(Debug, Clone, Copy)]
pub struct UpgradeTarget<'a> {
    /// The cache's folder.
    pub cache: &'a Path,
    /// The identity it is known by.
    pub cache_id: CacheId,
    /// Its manifest when it was opened.
    pub opened: &'a Manifest,
}

/// What became of one manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpgradeStatus {
    /// It was replaced, and that is on the disk.
    Updated,
    /// It was of format 3 already, and was not touched.
    Unchanged,
    /// It was replaced, but the folder could not be synced: after a power loss the old one may be back.
    DurabilityUnknown,
}

/// One manifest that was looked after.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpgradeEntry {
    /// The manifest, with links resolved.
    pub path: PathBuf,
    /// The identity that it has now.
    pub cache_id: CacheId,
    /// What became of it.
    pub status: UpgradeStatus,
}

/// Why an upgrade stopped, and what was done before.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", path.display())]
pub struct UpgradeError {
    /// The manifest that is the reason, below the folder that was given.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub reason: UpgradeFault,
    /// Manifests that were replaced or found to be right before that.
    pub entries: Vec<UpgradeEntry>,
}

/// What can be wrong with one manifest.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeFault {
    /// The file system refused.
    #[error("could not {action} it: {source}")]
    Io {
        /// What was tried: a verb.
        action: &'static str,
        /// The file system's reason.
        source: io::Error,
    },
    /// It is no manifest any more.
    #[error("it cannot be read as a manifest any more: {0}")]
    Format(FormatError),
    /// It differs from the one that the cache was opened with.
    #[error(
        "it changed since the cache was opened; open the caches again, in the order that their identities come from"
    )]
    Changed,
    /// The caller asked to stop before it was looked at or replaced.
    #[error("the call was interrupted before its turn came; call again for the rest")]
    Interrupted,
    /// Two of the caches have this one manifest.
    #[error("two of the caches are one folder, and a manifest has one identity")]
    Repeated,
}

impl UpgradeFault {
    fn io(action: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { action, source }
    }
}

/// A manifest that was looked at before any is replaced.
struct Checked {
    entry: UpgradeEntry,
    /// What the manifest will be.
    text: Option<Vec<u8>>,
}

/// Give the caches' manifests of format 2 the identities that the caches are known by, as manifests of format 3. Those of
/// format 3 stay as they are.
///
/// All manifests are looked at before the first is replaced, each in one step. Nobody else may change them meanwhile. After an
/// error the same call may be repeated: what was replaced before counts as unchanged. `stop` is asked before each manifest whether
/// to give up.
///
/// # Errors
/// When a manifest is missing, is not the one that the cache was opened with, or is met twice (nothing is replaced then), and
/// when the file system refuses. A folder that cannot be synced is such an error too; its manifest is among the entries.
pub fn upgrade_manifests(
    fs: &dyn CacheFs,
    targets: &[UpgradeTarget<'_>],
    stop: &mut dyn FnMut() -> bool,
) -> Result<Vec<UpgradeEntry>, UpgradeError> {
    let mut checked: Vec<Checked> = Vec::with_capacity(targets.len());
    let mut seen = HashMap::with_capacity(targets.len());
    for (place, target) in targets.iter().enumerate() {
        let failed = |reason| UpgradeError { path: target.cache.join(MANIFEST_FILE), reason, entries: Vec::new() };
        if stop() {
            return Err(failed(UpgradeFault::Interrupted));
        }
        let found = check(target).map_err(failed)?;
        if seen.insert(found.entry.path.clone(), place).is_some() {
            return Err(failed(UpgradeFault::Repeated));
        }
        checked.push(found);
    }

    let mut entries = Vec::with_capacity(targets.len());
    for (target, Checked { mut entry, text }) in targets.iter().zip(checked) {
        let path = target.cache.join(MANIFEST_FILE);
        if stop() {
            return Err(UpgradeError { path, reason: UpgradeFault::Interrupted, entries });
        }
        if let Some(text) = text
            && let Err(reason) = replace(fs, &entry.path, &text)
        {
            return Err(UpgradeError { path, reason, entries });
        }
        // Also where an earlier attempt replaced it: that one may have failed to make it durable.
        if target.opened.version == FormatVersion::V2 {
            let folder = entry.path.parent().unwrap_or(Path::new("."));
            if let Err(source) = fs.sync_dir(folder) {
                entry.status = UpgradeStatus::DurabilityUnknown;
                entries.push(entry);
                let reason = UpgradeFault::Io { action: "sync the folder of", source };
                return Err(UpgradeError { path, reason, entries });
            }
        }
        entries.push(entry);
    }
    Ok(entries)
}

fn check(target: &UpgradeTarget<'_>) -> Result<Checked, UpgradeFault> {
    let path = target.cache.join(MANIFEST_FILE).canonicalize().map_err(UpgradeFault::io("find"))?;
    let bytes = fs::read(&path).map_err(UpgradeFault::io("read"))?;
    let found = Manifest::decode(&bytes).map_err(UpgradeFault::Format)?;
    let upgraded = target.opened.clone().upgrade(target.cache_id);
    if found != *target.opened && found != upgraded {
        return Err(UpgradeFault::Changed);
    }
    let text = Manifest::upgrade_text(&bytes, target.cache_id).map_err(UpgradeFault::Format)?;
    debug_assert_eq!(text.is_none(), found.version == FormatVersion::V3);
    let status = if text.is_some() { UpgradeStatus::Updated } else { UpgradeStatus::Unchanged };
    Ok(Checked { entry: UpgradeEntry { path, cache_id: target.cache_id, status }, text })
}

/// Put a whole new file in a manifest's place, in one step.
fn replace(fs: &dyn CacheFs, path: &Path, text: &[u8]) -> Result<(), UpgradeFault> {
    let folder = path.parent().unwrap_or(Path::new("."));
    remove_abandoned(fs, folder);
    let Labelled { path: temporary, file, lock: _lock } =
        create_locked(fs, |label| folder.join(format!("{TEMPORARY_PREFIX}{label}.tmp")))
            .map_err(|(_, error)| UpgradeFault::io("make a new file for")(error))?;
    let written = write(file, path, &temporary, text)
        .and_then(|()| fs.rename_over(&temporary, path).map_err(UpgradeFault::io("replace")));
    if written.is_err() {
        // The error says what happened; what cannot be removed now is removed by the next attempt.
        drop(fs.remove_file(&temporary));
    }
    written
}

fn write(mut file: Box<dyn CacheFile>, path: &Path, temporary: &Path, text: &[u8]) -> Result<(), UpgradeFault> {
    file.write_all(text).map_err(UpgradeFault::io("write a new file for"))?;
    // Who could read the old manifest can read the new one.
    let permissions = fs::metadata(path).map_err(UpgradeFault::io("look at"))?.permissions();
    fs::set_permissions(temporary, permissions).map_err(UpgradeFault::io("keep the permissions of"))?;
    file.sync().map_err(UpgradeFault::io("sync a new file for"))
}

/// Remove what an attempt that was killed has left. Another one may be at work, and holds the locks of its files.
fn remove_abandoned(fs: &dyn CacheFs, folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        if let Some(label) = name.to_str().and_then(|name| name.strip_prefix(TEMPORARY_PREFIX))
            && let Some(_lock) = lock_abandoned(&path, label.split('-').next().unwrap_or(label), &[&path])
        {
            drop(fs.remove_file(&path));
        }
    }
}
