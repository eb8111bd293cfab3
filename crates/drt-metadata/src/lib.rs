#![doc = include_str!("../README.md")]

mod builder;
mod error;
mod table;

pub use builder::{ColumnBuilder, MetadataBuilder};
pub use error::MetadataError;
pub use table::{Column, MetadataTable};
