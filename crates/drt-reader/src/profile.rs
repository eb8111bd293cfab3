//! Where the time of reading goes.

pub use drt_runtime::StageTotals;

/// Time spent in the stages of a dataset's iterators: given to [`CachedDataset::with_profile`](crate::CachedDataset::with_profile).
pub type Profile = drt_runtime::Profile<Stage>;

/// A stage of reading. Blocks are measured as wholes; calls are samples unless something else is said.
///
/// Drawing, paging in and decoding happen on the consumer's thread when all is mapped and uncompressed, otherwise on the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// The consumer at work between one sample and its next request. Counted by whoever hands samples out.
    Consumer,
    /// Payloads copied, or read from their files, before their turn, on any thread; bytes of payload.
    CopyAhead,
    /// Records that were checked, decompressed or taken out of a read buffer; bytes of records as they are stored.
    Decode,
    /// Positions of the stream turned into rows.
    Draw,
    /// Objects built out of a block, their payloads copied or read where that was not done before; bytes of payload. Counted by
    /// whoever builds them.
    ObjectBuilding,
    /// Index entries, metadata and records brought into memory: mapped pages touched, files read; bytes of records.
    PageIn,
    /// Mapped pages of later samples brought into memory by the pool.
    ReadAhead,
    /// The consumer's thread waiting for blocks and payloads, or making them itself because no thread had begun; calls are waits.
    Waiting,
}

impl drt_runtime::Stage for Stage {
    const NAMES: &'static [&'static str] =
        &["consumer", "copy_ahead", "decode", "draw", "object_building", "page_in", "read_ahead", "waiting"];

    #[inline]
    fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use drt_runtime::Stage as _;

    use super::*;

    #[test]
    fn names_are_sorted_and_each_stage_has_its_own() {
        assert!(Stage::NAMES.is_sorted());
        assert_eq!(Stage::Waiting.index() + 1, Stage::NAMES.len());
        assert_eq!(Stage::Decode.name(), "decode");
        assert_eq!(Stage::ObjectBuilding.name(), "object_building");
    }
}
