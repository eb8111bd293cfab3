//! Counting where time goes, and costing nothing when nobody asked.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The stages that somebody's work has: an enum without fields.
pub trait Stage: Copy + Send + Sync + 'static {
    /// Their names, sorted.
    const NAMES: &'static [&'static str];

    /// The place of this one's name.
    fn index(self) -> usize;

    /// The name of this one in profiles.
    fn name(self) -> &'static str {
        Self::NAMES[self.index()]
    }
}

/// What one stage adds up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StageTotals {
    /// The stage's name.
    pub name: &'static str,
    /// How often it was gone through.
    pub calls: u64,
    /// How long that took, on all threads together.
    pub elapsed: Duration,
    /// Bytes that went through it; 0 for stages that count none.
    pub bytes: u64,
}

#[derive(Debug, Default)]
struct Counter {
    calls: AtomicU64,
    nanos: AtomicU64,
    bytes: AtomicU64,
}

/// Time spent in stages, by any number of threads. Clones add to the same totals.
///
/// By default it is off: nothing is counted, and the clock is not asked.
pub struct Profile<S> {
    counters: Option<Arc<[Counter]>>,
    stages: PhantomData<fn(S)>,
}

/// When something began; nothing when the profile is off.
#[derive(Debug, Clone, Copy, Default)]
pub struct Began(Option<Instant>);

impl Began {
    /// Time since then; zero when the profile is off.
    #[inline]
    pub fn elapsed(self) -> Duration {
        self.0.map_or(Duration::ZERO, |began| began.elapsed())
    }
}

impl<S: Stage> Profile<S> {
    /// A profile that counts.
    pub fn on() -> Self {
        Self { counters: Some(S::NAMES.iter().map(|_| Counter::default()).collect()), stages: PhantomData }
    }

    /// Does it count?
    #[inline]
    pub fn is_on(&self) -> bool {
        self.counters.is_some()
    }

    /// Now, for [`stop`](Self::stop).
    #[inline]
    pub fn start(&self) -> Began {
        Began(self.is_on().then(Instant::now))
    }

    /// Count what began then. When the profile was off then, or is now, nothing is counted.
    #[inline]
    pub fn stop(&self, began: Began, stage: S, calls: u64, bytes: u64) {
        if began.0.is_some() {
            self.add(stage, calls, began.elapsed(), bytes);
        }
    }

    /// Count what `work` takes, however it ends.
    #[inline]
    pub fn measure<T>(&self, stage: S, calls: u64, bytes: u64, work: impl FnOnce() -> T) -> T {
        let began = self.start();
        let outcome = work();
        self.stop(began, stage, calls, bytes);
        outcome
    }

    /// Count what was measured otherwise.
    #[inline]
    pub fn add(&self, stage: S, calls: u64, elapsed: Duration, bytes: u64) {
        if let Some(counters) = &self.counters {
            let counter = &counters[stage.index()];
            counter.calls.fetch_add(calls, Ordering::Relaxed);
            counter.nanos.fetch_add(elapsed.as_nanos() as u64, Ordering::Relaxed);
            counter.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The stages that were gone through so far, sorted by name.
    pub fn totals(&self) -> Vec<StageTotals> {
        let Some(counters) = &self.counters else { return Vec::new() };
        let totals = S::NAMES.iter().zip(counters.iter()).map(|(name, counter)| StageTotals {
            name,
            calls: counter.calls.load(Ordering::Relaxed),
            elapsed: Duration::from_nanos(counter.nanos.load(Ordering::Relaxed)),
            bytes: counter.bytes.load(Ordering::Relaxed),
        });
        totals.filter(|stage| stage.calls > 0).collect()
    }
}

impl<S> Default for Profile<S> {
    fn default() -> Self {
        Self { counters: None, stages: PhantomData }
    }
}

impl<S> Clone for Profile<S> {
    fn clone(&self) -> Self {
        Self { counters: self.counters.clone(), stages: PhantomData }
    }
}

impl<S: Stage> fmt::Debug for Profile<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.totals()).finish()
    }
}

/// Profiles are equal when they add to the same totals, or to none.
impl<S> PartialEq for Profile<S> {
    fn eq(&self, other: &Self) -> bool {
        match (&self.counters, &other.counters) {
            (Some(mine), Some(theirs)) => Arc::ptr_eq(mine, theirs),
            (mine, theirs) => mine.is_none() && theirs.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    enum Chore {
        Cook,
        Wash,
    }

    impl Stage for Chore {
        const NAMES: &'static [&'static str] = &["cook", "wash"];

        fn index(self) -> usize {
            self as usize
        }
    }

    #[test]
    fn a_profile_that_is_off_counts_nothing() {
        let profile = Profile::<Chore>::default();
        assert_eq!(profile.measure(Chore::Cook, 1, 10, || 7), 7);
        profile.add(Chore::Wash, 1, Duration::from_secs(1), 10);
        assert_eq!(profile.totals(), []);
        assert_eq!(profile.start().elapsed(), Duration::ZERO);
    }

    #[test]
    fn clones_add_to_the_same_totals_from_any_thread() {
        let profile = Profile::<Chore>::on();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let mine = profile.clone();
                scope.spawn(move || {
                    for _ in 0..100 {
                        mine.add(Chore::Wash, 2, Duration::from_nanos(3), 5);
                    }
                });
            }
        });
        let expected = StageTotals { name: "wash", calls: 800, elapsed: Duration::from_nanos(1200), bytes: 2000 };
        assert_eq!(profile.totals(), [expected]);
    }

    #[test]
    fn what_fails_is_measured_too() {
        let profile = Profile::<Chore>::on();
        let outcome: Result<(), ()> = profile.measure(Chore::Cook, 1, 0, || Err(()));
        assert_eq!(outcome, Err(()));
        assert_eq!(profile.totals()[0].calls, 1);
    }

    #[test]
    fn what_began_without_a_profile_is_not_counted() {
        let profile = Profile::on();
        profile.stop(Began::default(), Chore::Cook, 1, 1);
        assert_eq!(profile.totals(), []);
    }

    #[test]
    fn profiles_are_equal_when_they_share_their_totals() {
        let profile = Profile::<Chore>::on();
        assert!(profile == profile.clone());
        assert!(profile != Profile::on());
        assert!(profile != Profile::default());
        assert!(Profile::<Chore>::default() == Profile::default());
    }
}
