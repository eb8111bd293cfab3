//! Version 2 to version 3, as values and as text.

use super::{Manifest, wire};
use crate::error::FormatError;
use crate::ids::CacheId;
use crate::version::FormatVersion;

impl Manifest {
    /// The same cache in version 3.
    ///
    /// A version 2 manifest takes `cache_id`, which should be the id it is known by now (its
    /// position among the opened paths), so that tables made before stay valid. A version 3
    /// manifest keeps its own and comes back as it was. Nothing else changes: the versions
    /// have all other files in common.
    ///
    /// Source: docs/spec/v3.md, "Migration".
    #[must_use]
    pub fn upgrade(self, cache_id: CacheId) -> Self {
        match self.version {
            FormatVersion::V2 => Self { version: FormatVersion::V3, cache_id: Some(cache_id), ..self },
            FormatVersion::V3 => self,
        }
    }

    /// The same, as the text of a manifest: what the versions have in common, keys that no version defines among it, keeps
    /// the text of its values.
    ///
    /// `None` when the text is of version 3 already.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn upgrade_text(text: &[u8], cache_id: CacheId) -> Result<Option<Vec<u8>>, FormatError> {
        let old = Self::decode(text)?;
        if old.version == FormatVersion::V3 {
            return Ok(None);
        }
        let new = wire::upgrade(text, cache_id)?;
        // The caller replaces the only copy by it.
        if Self::decode(&new)? != old.upgrade(cache_id) {
            let problem = "the upgraded text does not say what the old one did".to_owned();
            return Err(FormatError::ManifestKeyInvalid { key: "format_version".to_owned(), problem });
        }
        Ok(Some(new))
    }
}
