//! Version 3: adds `cache_id`, which is required.

use serde_json::Value;

use super::Manifest;
use super::wire::{self, Document};
use crate::error::{FormatError, quote};
use crate::ids::CacheId;

const KEY: &str = "cache_id";

pub(super) fn decode(mut document: Document) -> Result<Manifest, FormatError> {
    let cache_id = match document.cache_id.take() {
        None => return Err(FormatError::ManifestKeyMissing { key: KEY.to_owned() }),
        Some(value) => match value.as_u64() {
            Some(id) => CacheId::new(id),
            None => return Err(FormatError::ManifestKeyInvalid { key: KEY.to_owned(), problem: problem(&value) }),
        },
    };
    document.into_manifest(Some(cache_id))
}

fn problem(value: &Value) -> String {
    let found = match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "a bool".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quote(text),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    format!("expected an integer from 0 to 2^64-1, found {found}")
}

pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    let cache_id = manifest.cache_id.unwrap_or_else(|| CacheId::from_source_name(&manifest.source_name));
    wire::encode(manifest, Some(cache_id))
}
