#![doc = include_str!("../README.md")]

mod balanced;
mod cyclic;
mod error;
mod mixture;
mod multinomial;
mod permutation;
mod plan;
mod rng;
mod stream;
mod table;
mod weighted_order;
mod weights;

pub use balanced::BalancedPlan;
pub use error::SamplerError;
pub use mixture::Mixture;
pub use permutation::Permutation;
pub use plan::{MAX_POPULATION, Mode, PLAN_VERSION, SamplingPlan};
pub use stream::SampleStream;
pub use table::TABLE_ENTRY_BYTES;
pub use weighted_order::WeightedOrder;
pub use weights::Weights;
