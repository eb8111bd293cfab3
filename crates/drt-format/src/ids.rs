//! [`CacheId`] and [`SampleId`]: which cache, and which row in it.

use std::fmt;

use crate::checksum::Sha256Hasher;

/// Identity of one cache among those opened together.
///
/// A version 3 cache carries its id in the manifest; a version 2 cache has none of its own
/// and gets the position of its path when it is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CacheId(u64);

impl CacheId {
    /// The id with this number; every u64 is allowed.
    #[inline]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The id that the version 3 writer gives to a source.
    ///
    /// It is the first eight bytes of SHA-256 over the exact UTF-8 name, read big-endian, with
    /// the top bit cleared so that the value fits a signed column too.
    ///
    /// Source: docs/spec/v3.md, "cache_id".
    ///
    /// ```
    /// use drt_format::CacheId;
    /// assert_eq!(CacheId::from_source_name("a").get(), 5374906597990186442);
    /// ```
    pub fn from_source_name(name: &str) -> Self {
        let digest = Sha256Hasher::digest(name.as_bytes());
        let mut head = [0; 8];
        head.copy_from_slice(&digest.as_bytes()[..8]);
        Self(u64::from_be_bytes(head) & (u64::MAX >> 1))
    }
}

impl fmt::Display for CacheId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of a row in its cache, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SampleId(u64);

impl SampleId {
    /// The id with this number.
    #[inline]
    pub const fn new(id: u64) -> Self {
        Self(id)
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for SampleId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_known_names() {
        for (name, id) in [
            ("a", 5374906597990186442),
            ("b", 4477677635727087946),
            ("train_records_v1", 4127359618335148892),
            ("日本語", 8606672379249086371),
            ("na\u{ef}ve", 8678393179688043658),
            ("nai\u{308}ve", 4097101497665049223),
            ("😀", 8089654826421384519),
            ("é", 5375421630974772051),
            ("a/", 3737325468852538995),
        ] {
            assert_eq!(CacheId::from_source_name(name), CacheId::new(id), "{name}");
        }
    }

    #[test]
    fn ids_print_as_their_number() {
        assert_eq!(CacheId::new(u64::MAX).to_string(), "18446744073709551615");
        assert_eq!(SampleId::new(0).to_string(), "0");
    }
}
