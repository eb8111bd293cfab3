#![doc = include_str!("../README.md")]

mod cancel;
mod error;
mod pool;
mod profile;
mod window;

pub use cancel::{CancelOnDrop, CancelToken};
pub use error::PoolError;
pub use pool::{JobHandle, OfferedJob, WorkerPool};
pub use profile::{Began, Profile, Stage, StageTotals};
pub use window::OrderedWindow;
