//! The one error enum of this crate.

/// Why a plan, a table of weights or a window was refused.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SamplerError {
    /// There is no row to draw.
    #[error("the population is empty: a plan needs at least one row")]
    EmptyPopulation,

    /// The population has more rows than a plan can hold.
    #[error("the population has {population} rows, and a plan holds at most {maximum}")]
    PopulationTooLarge {
        /// Rows asked for; counting stops at the first row too many.
        population: u64,
        /// The largest population allowed, [`MAX_POPULATION`](crate::MAX_POPULATION).
        maximum: u64,
    },

    /// A weight is zero, negative, infinite or not a number.
    #[error("the weight of row {row} is {weight}, and a weight must be finite and greater than zero")]
    InvalidWeight {
        /// Row position of the first weight refused, from 0.
        row: u64,
        /// The weight found there.
        weight: f64,
    },

    /// A share is zero, negative, infinite or not a number.
    #[error("the share of component {component} is {share}, and a share must be finite and greater than zero")]
    InvalidShare {
        /// The first component refused, from 0.
        component: u64,
        /// The share found there.
        share: f64,
    },

    /// A row is in a group that has no share.
    #[error("row {row} is in group {group}, and there are shares for {groups} groups")]
    UnknownGroup {
        /// Row position of the first row refused, from 0.
        row: u64,
        /// The group found there.
        group: u64,
        /// Groups that have a share.
        groups: u64,
    },

    /// A group has a share and no rows.
    #[error("group {group} has a share, and no row is in it")]
    EmptyGroup {
        /// The first group refused, from 0.
        group: u64,
    },

    /// Exported table bytes are not a whole number of entries.
    #[error("a sampling table has {found_bytes} bytes, which is not a whole number of {entry_bytes}-byte entries")]
    TableLength {
        /// Length of the bytes found.
        found_bytes: u64,
        /// Length of one entry, [`TABLE_ENTRY_BYTES`](crate::TABLE_ENTRY_BYTES).
        entry_bytes: u64,
    },

    /// An exported table names a row that the population does not have.
    #[error("entry {row} of a sampling table names row {alias}, and the population has {population} rows")]
    TableAlias {
        /// Position of the first entry refused, from 0.
        row: u64,
        /// The row it names.
        alias: u64,
        /// Rows in the table.
        population: u64,
    },

    /// A window would reach past the last position of a stream, 2^64 - 2.
    #[error("a window of {len} draws from position {position} would pass the end of the stream at 2^64 - 1")]
    StreamExhausted {
        /// Where the window would start.
        position: u64,
        /// Draws asked for.
        len: u64,
    },
}
