//! [`CacheLayout`]: where each file of a cache lies, and which names a cache may have.
//!
//! Source: docs/spec/v3.md, "Folder layout".

use std::path::{Path, PathBuf};

use crate::constants::{
    INDEX_FILE, MANIFEST_FILE, MAX_SOURCE_NAME_BYTES, METADATA_FILE, RECORD_CHECKSUMS_FILE, SHARD_FILE_SUFFIX,
    SHARDS_DIR, TMP_DIR,
};
use crate::error::FormatError;

/// Paths of the files of one cache.
///
/// It only puts names together and never looks at a disk.
///
/// ```
/// use drt_format::CacheLayout;
/// use std::path::Path;
///
/// let layout = CacheLayout::new("base/train");
/// assert_eq!(layout.shard("000007.bin"), Path::new("base/train/shards/000007.bin"));
/// assert_eq!(CacheLayout::relative().index(), Path::new("index.bin"));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheLayout {
    root: PathBuf,
}

impl CacheLayout {
    /// Layout of the cache in the folder `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Layout with paths that begin at the folder of the cache.
    pub fn relative() -> Self {
        Self::new("")
    }

    /// Folder of the cache.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Path of the manifest.
    pub fn manifest(&self) -> PathBuf {
        self.root.join(MANIFEST_FILE)
    }

    /// Path of the metadata table.
    pub fn metadata(&self) -> PathBuf {
        self.root.join(METADATA_FILE)
    }

    /// Path of the index.
    pub fn index(&self) -> PathBuf {
        self.root.join(INDEX_FILE)
    }

    /// Path of our file of record checksums.
    pub fn record_checksums(&self) -> PathBuf {
        self.root.join(RECORD_CHECKSUMS_FILE)
    }

    /// Folder of the shards.
    pub fn shards_dir(&self) -> PathBuf {
        self.root.join(SHARDS_DIR)
    }

    /// Path of the shard that the manifest lists under `name`.
    ///
    /// Names from a decoded manifest are plain; any other name is the caller's to judge.
    pub fn shard(&self, name: &str) -> PathBuf {
        let mut path = self.shards_dir();
        path.push(name);
        path
    }
}

/// File name that the writer gives to shard `number`: at least six digits, then `.bin`.
pub fn shard_file_name(number: u64) -> String {
    format!("{number:06}{SHARD_FILE_SUFFIX}")
}

/// Whether a shard's name from a manifest stays inside the folder of the shards, on every
/// system.
pub(crate) fn is_plain_file_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\\', '\0'])
}

/// Checks that a cache may be published under the name of its source.
///
/// # Errors
/// [`FormatError::SourceName`] for a name that is empty, `.`, `..` or longer than 255 bytes,
/// that contains `/` or NUL, or that is `tmp` in any case (the work area lies there, and some
/// file systems do not tell `tmp` from `TMP`).
pub fn validate_source_name(name: &str) -> Result<(), FormatError> {
    let reason = if name.is_empty() {
        "is empty"
    } else if name == "." || name == ".." {
        "stands for an existing folder"
    } else if name.contains('/') {
        "contains `/`, but must be the name of one folder"
    } else if name.contains('\0') {
        "contains the NUL character"
    } else if name.len() > MAX_SOURCE_NAME_BYTES {
        "is longer than 255 bytes"
    } else if name.eq_ignore_ascii_case(TMP_DIR) {
        "is taken by the work area `tmp`"
    } else {
        return Ok(());
    };
    Err(FormatError::SourceName { name: name.to_owned(), reason })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_names_have_at_least_six_digits() {
        assert_eq!(shard_file_name(0), "000000.bin");
        assert_eq!(shard_file_name(999_999), "999999.bin");
        assert_eq!(shard_file_name(1_000_000), "1000000.bin");
        assert_eq!(shard_file_name(u64::MAX), "18446744073709551615.bin");
    }

    #[test]
    fn paths_begin_at_the_root() {
        let layout = CacheLayout::new("b/c");
        assert_eq!(layout.root(), Path::new("b/c"));
        assert_eq!(layout.manifest(), Path::new("b/c/manifest.json"));
        assert_eq!(layout.metadata(), Path::new("b/c/metadata.arrow"));
        assert_eq!(layout.index(), Path::new("b/c/index.bin"));
        assert_eq!(layout.record_checksums(), Path::new("b/c/drt_record_checksums.bin"));
        assert_eq!(layout.shards_dir(), Path::new("b/c/shards"));
        assert_eq!(CacheLayout::relative().shard("x"), Path::new("shards/x"));
    }

    #[test]
    fn odd_but_harmless_source_names_pass() {
        let longest = "n".repeat(255);
        for name in ["a", " a ", "a.", "...", "~", "a\\b", "a:b", "a\nb", "CON", "tmp2", "naïve 日本 😀", &longest]
        {
            assert_eq!(validate_source_name(name), Ok(()), "{name:?}");
        }
    }

    #[test]
    fn source_names_that_are_no_folder_of_their_own_are_refused() {
        let long = "é".repeat(128);
        for (name, part) in [
            ("", "empty"),
            (".", "existing folder"),
            ("..", "existing folder"),
            ("a/b", "`/`"),
            ("/a", "`/`"),
            ("a/", "`/`"),
            ("a\0", "NUL"),
            ("tmp", "work area"),
            ("TmP", "work area"),
            (&long, "255 bytes"),
        ] {
            let message = validate_source_name(name).unwrap_err().to_string();
            assert!(message.contains(part), "{message}");
        }
    }
}
