#![doc = include_str!("../README.md")]

mod block;
mod claim;
mod config;
mod error;
pub mod fs;
mod gate;
mod label;
mod pipeline;
pub mod profile;
pub mod progress;
mod publish;
mod source;
mod upgrade;
mod writer;

pub use block::{Payload, SharedPayload};
pub use config::WriterConfig;
pub use error::WriteError;
pub use publish::sweep;
pub use source::{CacheInput, CacheSource, IterSource, OwnedValue, write_cache, write_cache_with};
pub use upgrade::{UpgradeEntry, UpgradeError, UpgradeFault, UpgradeStatus, UpgradeTarget, upgrade_manifests};
pub use writer::{CacheWriter, WriteOptions};
