//! Mapped files, and hints about them: the only unsafe code of the crate.
//!
//! Mapping a file is a promise about every other process: nobody changes the bytes while they are mapped. Published caches
//! keep it, because nothing ever writes to one: they appear by a rename, and are replaced or removed by one. Removing a
//! mapped file is harmless (its bytes live on until it is unmapped). Tables that one process saves for others are complete
//! before anybody is told of them, and not written to again.
//!
//! If somebody breaks the promise by writing to a mapped file, readers may see old or new bytes, or both; checksums and
//! bounds checks then decide whether that is an error. If somebody truncates one, touching a page beyond the new end ends
//! the process with SIGBUS. Where that can happen, `IoMode::Pread` reads payloads without a map; index and metadata are
//! mapped in both modes.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;

use memmap2::{Advice, Mmap, MmapOptions};

/// The bytes of a file that was open when it was mapped.
#[derive(Debug)]
pub(crate) struct MappedFile(Option<Mmap>);

impl MappedFile {
    /// Map the first `len` bytes, which the caller knows the file to have.
    pub(crate) fn map(file: &File, len: usize) -> io::Result<Self> {
        if len == 0 {
            // Nothing cannot be mapped.
            return Ok(Self(None));
        }
        // SAFETY: the file is a published cache's or a saved table, which no process modifies (see the module's text), and its length
        // was found to be at least `len`.
        let map = unsafe { MmapOptions::new().len(len).map(file)? };
        Ok(Self(Some(map)))
    }

    /// Tell the kernel that reads will jump about, so that it does not read far ahead of each.
    pub(crate) fn expect_random(&self) {
        self.advise(Advice::Random, 0, self.as_ref().len());
    }

    /// Start bringing a range into memory, without waiting for it.
    pub(crate) fn will_need(&self, offset: usize, len: usize) {
        self.advise(Advice::WillNeed, offset, len);
    }

    fn advise(&self, advice: Advice, offset: usize, len: usize) {
        if let Some(map) = &self.0
            && len > 0
        {
            // Advice that the kernel does not take costs speed, not correctness.
            drop(map.advise_range(advice, offset, len));
        }
    }
}

impl AsRef<[u8]> for MappedFile {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.0.as_deref().unwrap_or(&[])
    }
}

/// Ask the processor to bring the cache line at `bytes[at]` nearer, without waiting for it. Out of bounds asks for nothing.
#[inline]
pub(crate) fn prefetch<T>(values: &[T], at: usize) {
    #[cfg(target_arch = "x86_64")]
    if let Some(value) = values.get(at) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch changes nothing that a program can see and cannot fault; SSE is part of x86-64.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(std::ptr::from_ref(value).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (values, at);
}
