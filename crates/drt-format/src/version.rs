//! [`FormatVersion`]: which of the two layouts a cache has.

use std::fmt;

use crate::error::FormatError;

/// Version of the on-disk format.
///
/// The versions differ in the manifest alone: version 3 adds `cache_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FormatVersion {
    /// Read, and upgraded on request.
    V2,
    /// Read and written.
    V3,
}

impl FormatVersion {
    /// The version that new caches are written in.
    pub const CURRENT: Self = Self::V3;

    /// The number in the manifest.
    pub const fn number(self) -> u64 {
        match self {
            Self::V2 => 2,
            Self::V3 => 3,
        }
    }

    /// The version with this number.
    ///
    /// # Errors
    /// [`FormatError::UnsupportedVersion`] for every number but 2 and 3.
    pub const fn from_number(number: u64) -> Result<Self, FormatError> {
        match number {
            2 => Ok(Self::V2),
            3 => Ok(Self::V3),
            found => Err(FormatError::UnsupportedVersion { found }),
        }
    }
}

impl fmt::Display for FormatVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.number().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_and_three_are_versions() {
        for version in [FormatVersion::V2, FormatVersion::V3] {
            assert_eq!(FormatVersion::from_number(version.number()), Ok(version));
        }
        for found in [0, 1, 4, u64::MAX] {
            let error = FormatVersion::from_number(found).unwrap_err();
            assert_eq!(error, FormatError::UnsupportedVersion { found });
            assert!(error.to_string().contains(&format!("version {found} ")));
        }
    }
}
