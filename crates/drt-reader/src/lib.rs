#![doc = include_str!("../README.md")]

mod block;
mod cache;
mod catalog;
mod config;
mod dataset;
mod error;
#[cfg(feature = "polars")]
mod frame;
#[cfg(feature = "polars")]
mod ignored;
mod iter;
mod mmap;
mod positions;
pub mod profile;
mod shard;
mod table;
mod table_file;
mod view;

pub use block::{Block, SampleRef};
pub use cache::Cache;
pub use catalog::Catalog;
pub use config::{IoMode, Order, ReaderConfig};
pub use dataset::{CachedDataset, MAX_EPOCH_LEN, StreamPlace, Window};
pub use error::{ReadError, RecordFault};
#[cfg(feature = "polars")]
pub use frame::PreparedTable;
#[cfg(feature = "polars")]
pub use ignored::IgnoredColumn;
pub use iter::{Sample, SampleIter, SampleValue};
pub use positions::Positions;
pub use table::{ActiveTable, Attachment};
pub use view::TableView;
