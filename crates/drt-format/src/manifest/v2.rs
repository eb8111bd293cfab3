//! Version 2: no identity of its own, and a key `cache_id` means nothing.

use super::Manifest;
use super::wire::{self, Document};
use crate::error::FormatError;

pub(super) fn decode(document: Document) -> Result<Manifest, FormatError> {
    document.into_manifest(None)
}

pub(super) fn encode(manifest: &Manifest) -> Vec<u8> {
    wire::encode(manifest, None)
}
