//! Portions: some consecutive samples of a block, with their payloads already on the way.
//!
//! A record of some kilobytes takes longer to copy than its objects take to build. So while the consumer works on one portion,
//! the runtime's threads copy the payloads of the next ones into `bytes` that were allocated for them. Small records are not
//! worth the hand-over: they are copied where their objects are built.
#![allow(unsafe_code)]

use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use drt_reader::profile::{Profile, Stage};
use drt_reader::{Block, ReadError};
use drt_runtime::{OfferedJob, PoolError, WorkerPool};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::error::from_read;

/// From this length on payloads are copied with the interpreter unlocked: their pages may have to be waited for. Payloads that
/// are this long on average are worth copying on another thread.
pub(crate) const LARGE_PAYLOAD: usize = 2048;
/// A portion ends with the sample that reaches this many bytes of payload, or with this many samples.
const PORTION_BYTES: usize = 512 * 1024;
const PORTION_SAMPLES: usize = 32;

/// A `bytes` object that nobody has seen yet, and its memory.
struct UnseenBytes {
    object: Py<PyAny>,
    content: NonNull<u8>,
    len: usize,
}

// SAFETY: the pointer is to the memory of `object`, which lives as long as this value. Until the object is handed out, which
// moves it out of here, this value is the only way to that memory, so it may be written to by whichever thread has it.
unsafe impl Send for UnseenBytes {}

impl UnseenBytes {
    fn new(py: Python<'_>, len: usize) -> PyResult<Self> {
        let size = isize::try_from(len)
            .map_err(|_| PyMemoryError::new_err(format!("a payload of {len} bytes does not fit into memory")))?;
        // SAFETY: a null pointer asks for a `bytes` of that size whose content is not set yet; the result is a new reference or
        // null with an exception. Its memory is never null.
        unsafe {
            let object = Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))?;
            let content = NonNull::new_unchecked(ffi::PyBytes_AsString(object.as_ptr()).cast::<u8>());
            Ok(Self { object: object.unbind(), content, len })
        }
    }

    fn content(&mut self) -> &mut [u8] {
        // SAFETY: the memory has `len` bytes and lives as long as `self`, and nobody else reads or writes it (see above).
        // CPython has not set it: whoever gets this slice fills all of it, or fails and the object is never handed out.
        unsafe { std::slice::from_raw_parts_mut(self.content.as_ptr(), self.len) }
    }
}

/// How long a wait lasts before its owner looks whether it should stop.
const STEP: Duration = Duration::from_millis(50);

/// How often signals are looked for: more rarely than that, the interpreter may be asked for them.
const LOOK_EVERY: Duration = Duration::from_millis(25);

/// Wait or work with the interpreter unlocked, and look for signals now and then. What is given to `waiting` may be asked as
/// often as it likes.
pub(crate) fn wait<T: Send>(py: Python<'_>, waiting: impl FnOnce(&mut dyn FnMut() -> bool) -> T + Send) -> PyResult<T> {
    let mut signal = None;
    let mut looked = Instant::now();
    let mut stop = || {
        if signal.is_none() && looked.elapsed() >= LOOK_EVERY {
            signal = Python::attach(|py| py.check_signals()).err();
            looked = Instant::now();
        }
        signal.is_some()
    };
    let outcome = py.detach(|| waiting(&mut stop));
    signal.map_or(Ok(outcome), Err)
}

/// Whoever waits for the interpreter has to be woken to take it: a thread that only lets go of it has it again before that.
const PAUSE: Duration = Duration::from_micros(1);

/// How long the objects of one call are built before other threads and signals have their turn.
pub(crate) const TURN: Duration = Duration::from_millis(10);

/// Lets other threads and signals have their turn in a loop that needs the interpreter.
pub(crate) struct Turns {
    every: Duration,
    last: Instant,
}

impl Turns {
    /// A pause after each stretch of `every`. One takes about 60 microseconds.
    pub(crate) fn new(every: Duration) -> Self {
        Self { every, last: Instant::now() }
    }

    /// Is it time to let others have their turn? Then do.
    #[inline]
    pub(crate) fn pause(&mut self, py: Python<'_>) -> PyResult<()> {
        if self.last.elapsed() < self.every {
            return Ok(());
        }
        py.detach(|| std::thread::sleep(PAUSE));
        self.last = Instant::now();
        py.check_signals()
    }
}

/// Bytes that are copied in one go with the interpreter locked.
const COPIED_AT_ONCE: usize = 256 * 1024;

/// The content of a contiguous buffer as `bytes`, letting other threads run meanwhile. What they change in it may be in the copy
/// or not, as with any buffer.
pub(crate) fn copy_buffer<'py>(py: Python<'py>, buffer: &PyUntypedBuffer) -> PyResult<Bound<'py, PyAny>> {
    let len = buffer.len_bytes();
    let mut bytes = UnseenBytes::new(py, len)?;
    let mut turns = Turns::new(Duration::from_millis(1));
    for (at, piece) in (0..).step_by(COPIED_AT_ONCE).zip(bytes.content().chunks_mut(COPIED_AT_ONCE)) {
        // SAFETY: the buffer is contiguous and has `len` bytes, which stay where they are as long as it is held. The interpreter
        // is locked, so no Python code writes to them during this copy, and nobody else knows the memory that it goes to.
        unsafe {
            let source = buffer.buf_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(source, piece.as_mut_ptr(), piece.len());
        }
        turns.pause(py)?;
    }
    Ok(bytes.object.into_bound(py))
}

/// A payload as `bytes` with the interpreter unlocked while it is read; for those that are not copied ahead.
pub(crate) fn read_payload<'py>(
    py: Python<'py>,
    len: usize,
    read: impl FnOnce(&mut [u8]) -> Result<(), ReadError> + Send,
) -> PyResult<Result<Bound<'py, PyAny>, ReadError>> {
    let mut bytes = UnseenBytes::new(py, len)?;
    let outcome = py.detach(|| read(bytes.content()));
    Ok(outcome.map(|()| bytes.object.into_bound(py)))
}

type Payloads = Vec<Result<Py<PyAny>, Box<ReadError>>>;

enum Payload {
    /// Copied when the sample is built.
    OnDemand,
    /// Being copied by some thread.
    Coming(OfferedJob<Payloads>),
    /// Copied, or failed.
    There(std::vec::IntoIter<Result<Py<PyAny>, Box<ReadError>>>),
}

/// Consecutive samples of a block.
pub(crate) struct Portion {
    pub(crate) block: Arc<Block>,
    at: usize,
    end: usize,
    is_large: bool,
    payloads: Payload,
}

impl Portion {
    /// A portion without samples.
    pub(crate) fn empty(block: Arc<Block>) -> Self {
        Self { block, at: 0, end: 0, is_large: false, payloads: Payload::OnDemand }
    }

    /// The portion of `block` that begins at `start`.
    pub(crate) fn new(block: Arc<Block>, start: usize) -> Self {
        let len = block.len() - start;
        // What was decoded or read into the block was prepared by a thread already.
        let bytes =
            (start..block.len()).map(|at| if block.holds(at) { 0 } else { block.payload_len(at) }).sum::<usize>();
        let is_large = bytes >= LARGE_PAYLOAD * len;
        let mut end = block.len();
        if is_large {
            let mut bytes = 0;
            let reaches = |at: &usize| {
                bytes += block.payload_len(*at);
                bytes >= PORTION_BYTES || at - start + 1 == PORTION_SAMPLES
            };
            end = (start..end).find(reaches).map_or(end, |last| last + 1);
        }
        Self { block, at: start, end, is_large, payloads: Payload::OnDemand }
    }

    /// All portions of a block, in order.
    pub(crate) fn cut(block: Arc<Block>) -> impl Iterator<Item = Self> {
        let mut start = 0;
        std::iter::from_fn(move || {
            let portion = Self::new(Arc::clone(&block), start);
            start = portion.end;
            (portion.len() > 0).then_some(portion)
        })
    }

    /// Samples that were not yet taken.
    pub(crate) fn len(&self) -> usize {
        self.end - self.at
    }

    /// Are its payloads worth copying on another thread?
    pub(crate) fn is_large(&self) -> bool {
        self.is_large
    }

    /// Have the payloads copied by whichever thread comes first, if that is worth it.
    pub(crate) fn copy_ahead(&mut self, py: Python<'_>, pool: &WorkerPool, profile: &Profile) -> PyResult<()> {
        if !self.is_large {
            return Ok(());
        }
        let (block, start) = (Arc::clone(&self.block), self.at);
        let room = (start..self.end).map(|at| UnseenBytes::new(py, block.payload_len(at)));
        let began = profile.start();
        let room = room.collect::<PyResult<Vec<_>>>()?;
        profile.stop(began, Stage::ObjectBuilding, 0, 0);
        let profile = profile.clone();
        self.payloads = Payload::Coming(pool.offer(move || {
            let began = profile.start();
            let (len, bytes) = (room.len() as u64, room.iter().map(|bytes| bytes.len as u64).sum());
            let copy = |(at, mut bytes): (usize, UnseenBytes)| {
                block.sample(at)?.copy_payload(bytes.content())?;
                Ok(bytes.object)
            };
            let payloads = (start..).zip(room).map(|sample| copy(sample).map_err(Box::new)).collect();
            profile.stop(began, Stage::CopyAhead, len, bytes);
            payloads
        }));
        Ok(())
    }

    /// Wait for the payloads that are being copied, or copy them, with the interpreter unlocked.
    pub(crate) fn finish_copying(&mut self, py: Python<'_>, profile: &Profile) -> PyResult<()> {
        let Payload::Coming(job) = &self.payloads else { return Ok(()) };
        let began = profile.start();
        let payloads = wait(py, |stop| {
            loop {
                match job.finish(STEP) {
                    None if stop() => return Err(ReadError::Interrupted),
                    None => {}
                    // The thread that had it stayed in the parent.
                    Some(Err(PoolError::Forked { .. })) => return Ok(None),
                    Some(payloads) => return Ok(Some(payloads?)),
                }
            }
        })?;
        profile.stop(began, Stage::Waiting, 1, 0);
        self.payloads = match payloads.map_err(|error| from_read(&error))? {
            Some(payloads) => Payload::There(payloads.into_iter()),
            None => Payload::OnDemand,
        };
        Ok(())
    }

    /// The next sample's position in the block.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<usize> {
        let at = self.at;
        self.at += usize::from(at < self.end);
        (at < self.end).then_some(at)
    }

    /// The payload of the sample that `next` told last, where that was copied ahead.
    #[inline]
    pub(crate) fn payload(&mut self) -> Result<Option<Py<PyAny>>, Box<ReadError>> {
        match &mut self.payloads {
            Payload::OnDemand | Payload::Coming(_) => Ok(None),
            Payload::There(payloads) => payloads.next().transpose(),
        }
    }
}
