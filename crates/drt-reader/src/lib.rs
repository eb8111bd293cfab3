#![doc = include_str!("../README.md")]

mod block;
mod cache;
mod catalog;
mod config;
mod dataset;
mod error;
#[cfg(feature = "polars")]
mod frame;
mod iter;
mod mmap;
mod shard;
mod table;

pub use block::{Block, SampleRef};
pub use cache::Cache;
pub use catalog::Catalog;
pub use config::{IoMode, ReaderConfig};
pub use dataset::{CachedDataset, MAX_EPOCH_LEN};
pub use error::{ReadError, RecordFault};
pub use iter::{Sample, SampleIter, SampleValue};
pub use table::{ActiveTable, Attachment};
