#![doc = include_str!("../README.md")]

mod cyclic;
mod error;
mod multinomial;
mod permutation;
mod plan;
mod rng;
mod stream;
mod table;
mod weights;

pub use error::SamplerError;
pub use permutation::Permutation;
pub use plan::{MAX_POPULATION, Mode, PLAN_VERSION, SamplingPlan};
pub use stream::SampleStream;
pub use table::TABLE_ENTRY_BYTES;
pub use weights::Weights;
