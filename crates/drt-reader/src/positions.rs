use crate::ReadError;

/// Positions of a plan's stream that an iterator goes through: one window, or pieces of equal length at equal distances, as a
/// process takes them that shares a stream with others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    start: u64,
    len: u64,
    piece: u64,
    stride: u64,
}

impl Positions {
    /// `len` positions in a row.
    ///
    /// # Errors
    /// `StreamExhausted` when the last would be 2^64 - 1 or beyond.
    pub fn window(start: u64, len: u64) -> Result<Self, ReadError> {
        start.checked_add(len).ok_or(ReadError::StreamExhausted)?;
        Ok(Self { start, len, piece: u64::MAX, stride: u64::MAX })
    }

    /// `len` positions, of which the first `piece` begin at `start`, the next `stride` further on, and so forth. The last piece
    /// may be shorter.
    ///
    /// # Errors
    /// `InvalidConfig` unless `1 <= piece <= stride`, `StreamExhausted` when the last position would be 2^64 - 1 or beyond.
    pub fn pieces(start: u64, len: u64, piece: u64, stride: u64) -> Result<Self, ReadError> {
        if piece == 0 || piece > stride {
            let reason = format!("pieces of {piece} positions cannot begin {stride} positions apart");
            return Err(ReadError::InvalidConfig { reason });
        }
        let last = len.saturating_sub(1);
        let end = u128::from(start) + u128::from(last / piece) * u128::from(stride) + u128::from(last % piece) + 1;
        if end > u128::from(u64::MAX) {
            return Err(ReadError::StreamExhausted);
        }
        Ok(Self { start, len, piece, stride })
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The position at `at`, and how many follow one another from there, itself included.
    ///
    /// `at` must be below the length.
    #[inline]
    pub(crate) fn run(&self, at: u64) -> (u64, u64) {
        let (number, within) = (at / self.piece, at % self.piece);
        (self.start + number * self.stride + within, (self.piece - within).min(self.len - at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(positions: Positions) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = 0;
        while at < positions.len() {
            let (start, run) = positions.run(at);
            assert!(run > 0 && run <= positions.len() - at);
            found.extend(start..start + run);
            at += run;
        }
        found
    }

    #[test]
    fn pieces_are_equally_long_and_equally_far_apart() {
        assert_eq!(all(Positions::window(5, 4).unwrap()), [5, 6, 7, 8]);
        assert_eq!(all(Positions::pieces(1, 5, 2, 6).unwrap()), [1, 2, 7, 8, 13]);
        assert_eq!(all(Positions::pieces(3, 4, 2, 2).unwrap()), [3, 4, 5, 6]);
        assert_eq!(all(Positions::pieces(3, 0, 2, 2).unwrap()), [0; 0]);
    }

    #[test]
    fn every_place_in_a_piece_can_be_asked_for() {
        let positions = Positions::pieces(10, 7, 3, 5).unwrap();
        let whole = all(positions);
        for (at, position) in whole.iter().enumerate() {
            assert_eq!(positions.run(at as u64).0, *position);
        }
    }

    #[test]
    fn positions_end_with_the_stream() {
        assert!(Positions::window(u64::MAX - 3, 3).is_ok());
        assert!(matches!(Positions::window(u64::MAX - 3, 4), Err(ReadError::StreamExhausted)));
        assert!(Positions::pieces(u64::MAX - 5, 4, 2, 3).is_ok());
        assert!(matches!(Positions::pieces(u64::MAX - 4, 4, 2, 3), Err(ReadError::StreamExhausted)));
        assert!(matches!(Positions::pieces(0, u64::MAX, 1, u64::MAX), Err(ReadError::StreamExhausted)));
    }

    #[test]
    fn pieces_that_overlap_are_refused() {
        assert!(matches!(Positions::pieces(0, 4, 0, 3), Err(ReadError::InvalidConfig { .. })));
        assert!(matches!(Positions::pieces(0, 4, 4, 3), Err(ReadError::InvalidConfig { .. })));
    }
}
