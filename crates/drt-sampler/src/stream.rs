//! A cursor over the draws of a plan.

use crate::error::SamplerError;
use crate::plan::SamplingPlan;

/// A plan and how far its stream of draws has been handed out.
///
/// Windows follow one another without gap or overlap, whatever is drawn from them and when:
///
/// ```
/// # use drt_sampler::{SampleStream, SamplingPlan};
/// let mut stream = SampleStream::new(SamplingPlan::cyclic(5)?);
/// assert_eq!(stream.next_window(3)?, (0, 3));
/// assert_eq!(stream.next_window(4)?, (3, 4));
/// assert_eq!(stream.position(), 7);
/// # Ok::<(), drt_sampler::SamplerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct SampleStream {
    plan: SamplingPlan,
    position: u64,
}

impl SampleStream {
    /// A stream at its beginning.
    pub fn new(plan: SamplingPlan) -> Self {
        Self::at(plan, 0)
    }

    /// A stream from which `position` draws have been taken.
    pub fn at(plan: SamplingPlan, position: u64) -> Self {
        Self { plan, position }
    }

    /// The plan drawn from.
    pub fn plan(&self) -> &SamplingPlan {
        &self.plan
    }

    /// Where the next window starts: the number of draws handed out.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Hands out the next `len` draws, as the position of the first one and their number.
    ///
    /// # Errors
    /// [`StreamExhausted`](SamplerError::StreamExhausted) when the window would end past 2^64 - 1; the stream stays
    /// where it is.
    pub fn next_window(&mut self, len: u64) -> Result<(u64, u64), SamplerError> {
        let start = self.position;
        self.position = start.checked_add(len).ok_or(SamplerError::StreamExhausted { position: start, len })?;
        Ok((start, len))
    }

    /// Goes back to the beginning.
    pub fn reset(&mut self) {
        self.position = 0;
    }
}
