//! What a write tells the person who waits for it.

use std::io::{IsTerminal, Write};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Whoever is told how a write goes. Calls come from one thread, in order.
pub trait ProgressSink: Send + Sync {
    /// A source is begun.
    fn source_started(&self, name: &str);
    /// The current source waits for somebody else who writes its cache.
    fn waiting(&self, holder: &str);
    /// More samples, with this many payload bytes, were pulled from the current source.
    fn advanced(&self, samples: u64, bytes: u64);
    /// The current source ended; `ok` says whether its cache was published.
    fn source_finished(&self, ok: bool);
}

/// Says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl ProgressSink for Silent {
    fn source_started(&self, _name: &str) {}
    fn waiting(&self, _holder: &str) {}
    fn advanced(&self, _samples: u64, _bytes: u64) {}
    fn source_finished(&self, _ok: bool) {}
}

/// Drawn bars when standard error is a terminal, otherwise a plain line now and then.
pub fn for_stderr(num_sources: usize) -> Box<dyn ProgressSink> {
    if std::io::stderr().is_terminal() {
        Box::new(Bars::new(num_sources))
    } else {
        Box::new(Lines::new(num_sources, std::io::stderr()))
    }
}

/// How often a plain line is written at most.
const LINE_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug)]
struct Counts {
    source: String,
    samples: u64,
    bytes: u64,
    sources_done: usize,
    source_began: Instant,
    last_line: Instant,
}

/// Plain lines for logs: one when a source has taken a while, one when it ends after that.
#[derive(Debug)]
pub struct Lines<W> {
    num_sources: usize,
    began: Instant,
    out: Mutex<(Counts, W)>,
}

impl<W: Write> Lines<W> {
    /// Lines about `num_sources` sources, written to `out`.
    pub fn new(num_sources: usize, out: W) -> Self {
        let now = Instant::now();
        let counts =
            Counts { source: String::new(), samples: 0, bytes: 0, sources_done: 0, source_began: now, last_line: now };
        Self { num_sources, began: now, out: Mutex::new((counts, out)) }
    }

    fn line(&self, counts: &Counts, out: &mut W, now: Instant) {
        let text = describe(counts, now.duration_since(counts.source_began));
        let left = time_left(counts.sources_done, self.num_sources, now.duration_since(self.began));
        let left = left.map_or(String::new(), |left| format!(", about {} s left", left.as_secs()));
        // A closed standard error must not stop a write.
        drop(writeln!(
            out,
            "dataset-rt: {}: {text}, {}/{} sources done{left}",
            counts.source, counts.sources_done, self.num_sources
        ));
    }
}

fn describe(counts: &Counts, elapsed: Duration) -> String {
    let seconds = elapsed.as_secs_f64().max(1e-9);
    format!(
        "{} samples ({:.0} samples/s, {:.1} MB/s)",
        counts.samples,
        counts.samples as f64 / seconds,
        counts.bytes as f64 / 1e6 / seconds
    )
}

/// What is left when the sources to come take as long as those that are done.
fn time_left(done: usize, total: usize, elapsed: Duration) -> Option<Duration> {
    let left = total.checked_sub(done).filter(|left| *left > 0)?;
    Some(elapsed.checked_div(u32::try_from(done).ok()?)? * u32::try_from(left).ok()?)
}

impl<W: Write + Send> ProgressSink for Lines<W> {
    fn source_started(&self, name: &str) {
        let mut guard = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut guard.0;
        let now = Instant::now();
        (counts.samples, counts.bytes, counts.source_began, counts.last_line) = (0, 0, now, now);
        name.clone_into(&mut counts.source);
    }

    fn waiting(&self, holder: &str) {
        let mut guard = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, out) = &mut *guard;
        drop(writeln!(out, "dataset-rt: {}: waiting for {holder}, which writes it", counts.source));
    }

    fn advanced(&self, samples: u64, bytes: u64) {
        let mut guard = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, out) = &mut *guard;
        counts.samples += samples;
        counts.bytes += bytes;
        let now = Instant::now();
        if now.duration_since(counts.last_line) >= LINE_EVERY {
            counts.last_line = now;
            self.line(counts, out, now);
        }
    }

    fn source_finished(&self, ok: bool) {
        let mut guard = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, out) = &mut *guard;
        counts.sources_done += 1;
        let now = Instant::now();
        if ok && now.duration_since(counts.source_began) >= LINE_EVERY {
            self.line(counts, out, now);
        }
    }
}

/// Bars on a terminal: one for the source at work, one for the sources when there are several.
struct Bars {
    source: ProgressBar,
    overall: Option<ProgressBar>,
    state: Mutex<(Counts, Instant)>,
    num_sources: usize,
}

impl Bars {
    fn new(num_sources: usize) -> Self {
        let bars = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
        let style = |template: &str| {
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
        };
        let overall = (num_sources > 1).then(|| {
            bars.add(ProgressBar::new(num_sources as u64).with_style(style("{bar:30} {pos}/{len} sources {msg}")))
        });
        let source = bars.add(ProgressBar::new_spinner().with_style(style("{spinner} {prefix}: {msg}")));
        let now = Instant::now();
        let counts =
            Counts { source: String::new(), samples: 0, bytes: 0, sources_done: 0, source_began: now, last_line: now };
        Self { source, overall, state: Mutex::new((counts, now)), num_sources }
    }
}

impl ProgressSink for Bars {
    fn source_started(&self, name: &str) {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut guard.0;
        (counts.samples, counts.bytes, counts.source_began) = (0, 0, Instant::now());
        self.source.set_prefix(name.to_owned());
    }

    fn waiting(&self, holder: &str) {
        self.source.set_message(format!("waiting for {holder}, which writes it"));
        self.source.tick();
    }

    fn advanced(&self, samples: u64, bytes: u64) {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = &mut guard.0;
        counts.samples += samples;
        counts.bytes += bytes;
        self.source.set_message(describe(counts, counts.source_began.elapsed()));
        self.source.tick();
    }

    fn source_finished(&self, _ok: bool) {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (counts, began) = &mut *guard;
        counts.sources_done += 1;
        self.source.set_message(describe(counts, counts.source_began.elapsed()));
        if let Some(overall) = &self.overall {
            overall.set_position(counts.sources_done as u64);
            if let Some(left) = time_left(counts.sources_done, self.num_sources, began.elapsed()) {
                overall.set_message(format!("about {} s left", left.as_secs()));
            }
        }
        if counts.sources_done == self.num_sources {
            self.source.finish();
            if let Some(overall) = &self.overall {
                overall.finish_with_message("");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_the_sources_that_are_done() {
        let elapsed = Duration::from_secs(30);
        assert_eq!(time_left(0, 4, elapsed), None);
        assert_eq!(time_left(3, 4, elapsed), Some(Duration::from_secs(10)));
        assert_eq!(time_left(4, 4, elapsed), None);
    }

    #[test]
    fn a_quick_source_writes_no_line_and_a_slow_one_does() {
        let lines = Lines::new(1, Vec::new());
        lines.source_started("quick");
        lines.advanced(10, 1000);
        lines.source_finished(true);
        assert!(lines.out.lock().unwrap().1.is_empty());

        lines.source_started("late");
        lines.waiting("another process (7 on here)");
        let text = String::from_utf8(std::mem::take(&mut lines.out.lock().unwrap().1)).unwrap();
        assert_eq!(text, "dataset-rt: late: waiting for another process (7 on here), which writes it\n");

        lines.source_started("slow");
        lines.out.lock().unwrap().0.last_line -= LINE_EVERY;
        lines.out.lock().unwrap().0.source_began -= LINE_EVERY;
        lines.advanced(20, 2_000_000);
        lines.source_finished(true);
        let text = String::from_utf8(lines.out.lock().unwrap().1.clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.starts_with("dataset-rt: slow: 20 samples (2 samples/s, 0.2 MB/s)"), "{text}");
    }
}
