#![doc = include_str!("../README.md")]

mod cancel;
mod error;
mod pool;
mod window;

pub use cancel::CancelToken;
pub use error::PoolError;
pub use pool::{JobHandle, OfferedJob, WorkerPool};
pub use window::OrderedWindow;
