//! Manifests of format 2 become format 3: all are looked at first, each is replaced in one step, and what happened is told.

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use drt_format::{CacheId, Manifest};
use drt_writer::fs::{CacheFs, StdFs};
use drt_writer::{UpgradeEntry, UpgradeError, UpgradeFault, UpgradeStatus, UpgradeTarget, upgrade_manifests};
use support::fault_fs::{Fault, FaultFs};

fn golden(set: &str, name: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    fs::read(root.join(set).join(name).join("manifest.json")).unwrap()
}

/// Folders with manifests of format 2 alone: nothing else of a cache is looked at.
struct Caches {
    base: tempfile::TempDir,
    paths: Vec<PathBuf>,
    opened: Vec<Manifest>,
}

impl Caches {
    fn new(manifests: &[Vec<u8>]) -> Self {
        let base = tempfile::tempdir().unwrap();
        let mut paths = Vec::new();
        for (place, manifest) in manifests.iter().enumerate() {
            let path = base.path().join(format!("cache-{place}"));
            fs::create_dir(&path).unwrap();
            fs::write(path.join("manifest.json"), manifest).unwrap();
            paths.push(path);
        }
        let opened = manifests.iter().map(|manifest| Manifest::decode(manifest).unwrap()).collect();
        Self { base, paths, opened }
    }

    fn two() -> Self {
        Self::new(&[golden("v2", "shards_none"), golden("v2", "shards_lz4")])
    }

    fn upgrade(&self, fs: &dyn CacheFs) -> Result<Vec<UpgradeEntry>, UpgradeError> {
        let targets: Vec<_> = (self.paths.iter().zip(&self.opened).enumerate())
            .map(|(place, (cache, opened))| UpgradeTarget { cache, cache_id: CacheId::new(place as u64), opened })
            .collect();
        upgrade_manifests(fs, &targets, &mut || false)
    }

    fn texts(&self) -> Vec<Vec<u8>> {
        self.paths.iter().map(|path| fs::read(path.join("manifest.json")).unwrap()).collect()
    }

    /// Every file below the base folder.
    fn num_files(&self) -> usize {
        self.paths.iter().map(|path| fs::read_dir(path).unwrap().count()).sum()
    }
}

fn statuses(entries: &[UpgradeEntry]) -> Vec<UpgradeStatus> {
    entries.iter().map(|entry| entry.status).collect()
}

#[test]
fn manifests_are_replaced_once_and_recognised_afterwards() {
    let caches = Caches::two();
    let entries = caches.upgrade(&StdFs).unwrap();
    assert_eq!(statuses(&entries), [UpgradeStatus::Updated; 2]);
    assert_eq!(caches.texts(), [golden("migrated", "shards_none"), golden("migrated", "shards_lz4")]);
    for (place, entry) in entries.iter().enumerate() {
        assert_eq!(entry.path, caches.paths[place].join("manifest.json").canonicalize().unwrap());
        assert_eq!(entry.cache_id.get(), place as u64);
    }
    assert_eq!(caches.num_files(), 2);
    // Again with what was opened before, and with what is there now.
    assert_eq!(statuses(&caches.upgrade(&StdFs).unwrap()), [UpgradeStatus::Unchanged; 2]);
    let again = Caches::new(&caches.texts());
    assert_eq!(statuses(&again.upgrade(&StdFs).unwrap()), [UpgradeStatus::Unchanged; 2]);
}

#[test]
fn one_manifest_that_is_not_as_it_was_keeps_all_from_being_replaced() {
    let other_id = || Manifest::decode(&golden("v2", "shards_lz4")).unwrap().upgrade(CacheId::new(9)).encode();
    type Change = (&'static str, fn(&Path));
    let changes: [Change; 3] = [
        ("missing", |path| fs::remove_file(path).unwrap()),
        ("no manifest", |path| fs::write(path, "{}").unwrap()),
        ("edited", |path| {
            let text = fs::read_to_string(path).unwrap().replace("\"sample_count\": 40", "\"sample_count\": 39");
            fs::write(path, text).unwrap();
        }),
    ];
    for (what, change) in changes {
        let caches = Caches::two();
        change(&caches.paths[1].join("manifest.json"));
        let error = caches.upgrade(&StdFs).unwrap_err();
        assert_eq!(error.path, caches.paths[1].join("manifest.json"), "{what}");
        assert!(error.entries.is_empty(), "{what}");
        assert_eq!(fs::read(caches.paths[0].join("manifest.json")).unwrap(), golden("v2", "shards_none"), "{what}");
        assert!(error.to_string().contains("cache-1"), "{error}");
    }
    let caches = Caches::two();
    fs::write(caches.paths[1].join("manifest.json"), other_id()).unwrap();
    assert!(matches!(caches.upgrade(&StdFs).unwrap_err().reason, UpgradeFault::Changed));
}

#[test]
fn one_folder_met_twice_is_refused() {
    let mut caches = Caches::two();
    let link = caches.base.path().join("link");
    symlink(&caches.paths[0], &link).unwrap();
    caches.paths[1] = link.clone();
    caches.opened[1] = caches.opened[0].clone();
    let error = caches.upgrade(&StdFs).unwrap_err();
    assert!(matches!(error.reason, UpgradeFault::Repeated), "{error}");
    assert_eq!(error.path, link.join("manifest.json"));
    assert_eq!(fs::read(caches.paths[0].join("manifest.json")).unwrap(), golden("v2", "shards_none"));
}

#[test]
fn permissions_and_links_stay() {
    let caches = Caches::two();
    let real = caches.base.path().join("elsewhere.json");
    let manifest = caches.paths[0].join("manifest.json");
    fs::rename(&manifest, &real).unwrap();
    symlink(&real, &manifest).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
    let entries = caches.upgrade(&StdFs).unwrap();
    assert_eq!(entries[0].path, real.canonicalize().unwrap());
    assert!(manifest.is_symlink());
    assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read(&manifest).unwrap(), golden("migrated", "shards_none"));
}

/// Whatever step fails: each manifest is the old or the new one, the entries say which, and a second attempt completes.
#[test]
fn every_failing_step_leaves_whole_manifests_and_tells_which_are_new() {
    let num_steps = {
        let fs = FaultFs::new(Fault::Never);
        Caches::two().upgrade(&fs).unwrap();
        fs.steps().len()
    };
    let (mut unknown, mut partial) = (0, 0);
    for (fault, step) in (0..num_steps).flat_map(|step| [(Fault::Once(step), step), (Fault::Stop(step), step)]) {
        let caches = Caches::two();
        let error = caches.upgrade(&FaultFs::new(fault)).unwrap_err();
        let new = [golden("migrated", "shards_none"), golden("migrated", "shards_lz4")];
        let old = [golden("v2", "shards_none"), golden("v2", "shards_lz4")];
        for (place, text) in caches.texts().into_iter().enumerate() {
            let told = error.entries.get(place).is_some();
            assert_eq!(text, if told { new[place].clone() } else { old[place].clone() }, "step {step}, cache {place}");
        }
        unknown +=
            statuses(&error.entries).iter().filter(|status| **status == UpgradeStatus::DurabilityUnknown).count();
        partial += usize::from(error.entries.len() == 1);
        let failing = error.entries.iter().filter(|entry| entry.status == UpgradeStatus::Updated).count();
        assert_eq!(error.path, caches.paths[failing].join("manifest.json"), "step {step}");

        let entries = caches.upgrade(&StdFs).unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(caches.texts(), new);
        assert_eq!(caches.num_files(), 2, "step {step} left a file behind");
    }
    // A folder that was not synced: once for each cache and kind of fault.
    assert_eq!(unknown, 4);
    assert!(partial > 2);
}

#[test]
fn a_file_that_another_upgrade_works_on_is_left_alone() {
    let caches = Caches::two();
    let theirs = caches.paths[0].join(".drt-manifest-0123456789abcdef0123456789abcdef-1-1-0.tmp");
    fs::write(&theirs, "half a manifest").unwrap();
    caches.upgrade(&StdFs).unwrap();
    assert_eq!(fs::read_to_string(&theirs).unwrap(), "half a manifest");
    assert_eq!(caches.texts(), [golden("migrated", "shards_none"), golden("migrated", "shards_lz4")]);
}

#[test]
fn upgrades_at_one_time_do_not_disturb_each_other() {
    for _ in 0..20 {
        let caches = Caches::two();
        std::thread::scope(|scope| {
            let upgrades: Vec<_> = (0..4).map(|_| scope.spawn(|| caches.upgrade(&StdFs))).collect();
            for upgrade in upgrades {
                upgrade.join().unwrap().unwrap();
            }
        });
        assert_eq!(caches.texts(), [golden("migrated", "shards_none"), golden("migrated", "shards_lz4")]);
        assert_eq!(caches.num_files(), 2);
    }
}
