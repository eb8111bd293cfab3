//! Where the golden caches are.

#![allow(dead_code, reason = "each test file uses a part")]

use std::path::{Path, PathBuf};

/// A path among the golden data.
pub(crate) fn golden(parts: &[&str]) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    parts.iter().fold(root, |path, part| path.join(part))
}

/// The folders in a set, by name.
pub(crate) fn caches(set: &str) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir(golden(&[set]))
        .unwrap_or_else(|error| panic!("{set}: {error}"))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    folders.sort();
    folders
}

/// The bytes of a file that must be there.
pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
