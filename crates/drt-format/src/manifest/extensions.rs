//! Keys of our own in the manifest. Readers that do not know them ignore them.

use serde_json::{Map, Value};

use super::Manifest;
use crate::checksum::{RecordChecksumAlgo, Sha256Digest};
use crate::constants::{FINGERPRINT_KEY, RECORD_CHECKSUMS_KEY, WRITER_KEY};
use crate::error::{FormatError, quote};

/// `drt_writer`: the program that wrote a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WriterInfo {
    /// Name of the program.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// `drt_record_checksums`: the cache has a file with one checksum per record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordChecksums {
    /// How the checksums are computed.
    pub algo: RecordChecksumAlgo,
    /// Digest of `drt_record_checksums.bin`.
    pub sha256: Sha256Digest,
}

impl Manifest {
    /// The program that wrote the cache, if it left its name.
    ///
    /// # Errors
    /// [`FormatError::ManifestKeyMissing`] or [`FormatError::ManifestKeyInvalid`] when the key
    /// is there but is not made as we make it.
    pub fn writer(&self) -> Result<Option<WriterInfo>, FormatError> {
        let Some(object) = self.extension(WRITER_KEY)? else { return Ok(None) };
        Ok(Some(WriterInfo {
            name: text(object, WRITER_KEY, "name")?.to_owned(),
            version: text(object, WRITER_KEY, "version")?.to_owned(),
        }))
    }

    /// The manifest with the name of the program that writes it.
    #[must_use]
    pub fn with_writer(mut self, writer: &WriterInfo) -> Self {
        let object = [("name", &writer.name), ("version", &writer.version)]
            .map(|(key, text)| (key.to_owned(), Value::from(text.as_str())));
        self.extra.insert(WRITER_KEY.to_owned(), Value::Object(object.into_iter().collect()));
        self
    }

    /// The announcement of record checksums, if the cache has them.
    ///
    /// # Errors
    /// [`FormatError::ManifestKeyMissing`] or [`FormatError::ManifestKeyInvalid`] when the key
    /// is there but is not made as we make it, or names an algorithm that we do not know.
    pub fn record_checksums(&self) -> Result<Option<RecordChecksums>, FormatError> {
        let Some(object) = self.extension(RECORD_CHECKSUMS_KEY)? else { return Ok(None) };
        let algo = text(object, RECORD_CHECKSUMS_KEY, "algo")?;
        let algo = RecordChecksumAlgo::from_name(algo)
            .ok_or_else(|| invalid(RECORD_CHECKSUMS_KEY, "algo", format!("unknown algorithm {}", quote(algo))))?;
        let sha256 = text(object, RECORD_CHECKSUMS_KEY, "sha256")?
            .parse()
            .map_err(|error: FormatError| invalid(RECORD_CHECKSUMS_KEY, "sha256", error.to_string()))?;
        Ok(Some(RecordChecksums { algo, sha256 }))
    }

    /// The manifest with the announcement of record checksums.
    #[must_use]
    pub fn with_record_checksums(mut self, checksums: RecordChecksums) -> Self {
        let object = [("algo", checksums.algo.name().to_owned()), ("sha256", checksums.sha256.to_string())]
            .map(|(key, text)| (key.to_owned(), Value::from(text)));
        self.extra.insert(RECORD_CHECKSUMS_KEY.to_owned(), Value::Object(object.into_iter().collect()));
        self
    }

    /// Which state of its source the cache was written from, if the source told.
    ///
    /// # Errors
    /// [`FormatError::ManifestKeyInvalid`] when the key is there but is no text.
    pub fn fingerprint(&self) -> Result<Option<&str>, FormatError> {
        match self.extra.get(FINGERPRINT_KEY) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(FormatError::ManifestKeyInvalid {
                key: FINGERPRINT_KEY.to_owned(),
                problem: "expected a string".to_owned(),
            }),
        }
    }

    /// The manifest with the source's fingerprint.
    #[must_use]
    pub fn with_fingerprint(mut self, fingerprint: &str) -> Self {
        self.extra.insert(FINGERPRINT_KEY.to_owned(), Value::from(fingerprint));
        self
    }

    fn extension(&self, key: &str) -> Result<Option<&Map<String, Value>>, FormatError> {
        match self.extra.get(key) {
            None => Ok(None),
            Some(Value::Object(object)) => Ok(Some(object)),
            Some(_) => {
                Err(FormatError::ManifestKeyInvalid { key: key.to_owned(), problem: "expected an object".to_owned() })
            }
        }
    }
}

fn text<'a>(object: &'a Map<String, Value>, key: &str, field: &str) -> Result<&'a str, FormatError> {
    match object.get(field) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(invalid(key, field, "expected a string".to_owned())),
        None => Err(FormatError::ManifestKeyMissing { key: format!("{key}.{field}") }),
    }
}

fn invalid(key: &str, field: &str, problem: String) -> FormatError {
    FormatError::ManifestKeyInvalid { key: format!("{key}.{field}"), problem }
}
