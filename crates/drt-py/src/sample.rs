//! `CachedSample` objects from samples of a block.
//!
//! This runs once per sample with the interpreter locked, and is what a warm read costs most of its time on. It uses the C
//! interface directly for two things that the safe one cannot do without a detour: a `bytes` whose memory is filled in place,
//! and a named tuple without a call of its class. docs/adr/0006-building-samples.md has the measurements.
#![allow(unsafe_code)]

use std::os::raw::c_char;

use drt_format::{MetadataKind, MetadataValue};
use drt_reader::{Catalog, SampleRef};
use pyo3::exceptions::PyMemoryError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::error::from_read;

/// From this length on a payload is copied with the interpreter unlocked.
const UNLOCK_FROM: usize = 256 * 1024;
/// Fields of a `CachedSample`.
const NUM_FIELDS: isize = 4;

/// What all samples of one dataset have in common.
pub(crate) struct SampleBuilder {
    class: Py<PyType>,
    /// Names of the metadata columns.
    keys: Vec<Py<PyString>>,
    kinds: Vec<MetadataKind>,
    /// Identities of the caches, by position.
    cache_ids: Vec<Py<PyInt>>,
    /// May a tuple be allocated and filled directly? From CPython 3.14 on tuples carry a hash that only their own
    /// constructor sets.
    allocate_tuples: bool,
}

impl SampleBuilder {
    pub(crate) fn new(py: Python<'_>, catalog: &Catalog) -> PyResult<Self> {
        let class = py.import("dataset_rt._sample")?.getattr("CachedSample")?.cast_into::<PyType>()?.unbind();
        let fields = catalog.schema().fields();
        Ok(Self {
            class,
            keys: fields.iter().map(|field| PyString::intern(py, &field.name).unbind()).collect(),
            kinds: fields.iter().map(|field| field.kind).collect(),
            cache_ids: catalog
                .caches()
                .iter()
                .map(|cache| cache.id().get().into_pyobject(py).map(Bound::unbind))
                .collect::<Result<_, _>>()?,
            allocate_tuples: py.version_info() < (3, 14),
        })
    }

    /// Memory for texts that were met before, one per column of text.
    pub(crate) fn new_texts(&self) -> Texts {
        Texts(self.kinds.iter().map(|kind| (*kind == MetadataKind::String).then(TextCache::default)).collect())
    }

    /// One sample as a `CachedSample`.
    #[inline]
    pub(crate) fn build<'py>(
        &self,
        py: Python<'py>,
        sample: SampleRef<'_>,
        texts: &mut Texts,
    ) -> PyResult<Bound<'py, PyAny>> {
        let data = payload(py, sample)?;
        let metadata = PyDict::new(py);
        for (column, key) in self.keys.iter().enumerate() {
            let value = sample.metadata(column).ok_or_else(|| from_read(&sample.changed()))?;
            let key = key.bind(py);
            match value {
                MetadataValue::Bool(value) => metadata.set_item(key, PyBool::new(py, value))?,
                MetadataValue::Int(value) => metadata.set_item(key, PyInt::new(py, value))?,
                MetadataValue::Float(value) => metadata.set_item(key, PyFloat::new(py, value))?,
                MetadataValue::String(value) => match &mut texts.0[column] {
                    Some(cache) => metadata.set_item(key, cache.get(py, value))?,
                    None => metadata.set_item(key, PyString::new(py, value))?,
                },
            }
        }
        let cache_id = self.cache_ids[sample.cache_position()].bind(py).clone();
        let sample_id = PyInt::new(py, sample.sample_id());
        let fields = [data, metadata.into_any(), cache_id.into_any(), sample_id.into_any()];
        self.named_tuple(py, fields)
    }

    #[inline]
    fn named_tuple<'py>(&self, py: Python<'py>, fields: [Bound<'py, PyAny>; 4]) -> PyResult<Bound<'py, PyAny>> {
        let class = self.class.bind(py).as_type_ptr();
        if !self.allocate_tuples {
            let fields = PyTuple::new(py, [PyTuple::new(py, fields)?])?;
            // SAFETY: `tuple.__new__(class, (fields,))`: the class is a subclass of tuple without a `__new__` in C of its own,
            // and the arguments are a tuple. The slot returns a new reference or null with an exception set.
            return unsafe {
                let new = ffi::PyType_GetSlot(&raw mut ffi::PyTuple_Type, ffi::Py_tp_new);
                let new: ffi::newfunc = std::mem::transmute(new);
                Bound::from_owned_ptr_or_err(py, new(class, fields.as_ptr(), std::ptr::null_mut()))
            };
        }
        // SAFETY: `CachedSample` is a subclass of tuple that adds no memory of its own (`__slots__ = ()`), so its allocator
        // gives a tuple of `NUM_FIELDS` empty places, which only this thread knows. Each place is filled once with a
        // reference that `into_ptr` gives up; `PyTuple_SetItem` cannot fail for an index in range of a tuple with one owner.
        // Before CPython 3.14 a tuple has no other state than its items.
        unsafe {
            let tuple = ffi::PyType_GenericAlloc(class, NUM_FIELDS);
            if tuple.is_null() {
                return Err(PyErr::fetch(py));
            }
            for (at, field) in fields.into_iter().enumerate() {
                ffi::PyTuple_SetItem(tuple, at as isize, field.into_ptr());
            }
            Ok(Bound::from_owned_ptr(py, tuple))
        }
    }
}

/// A sample's payload as `bytes`, copied once: from the map or the block, or read from the file.
#[inline]
fn payload<'py>(py: Python<'py>, sample: SampleRef<'_>) -> PyResult<Bound<'py, PyAny>> {
    let len = sample.payload_len();
    let too_long = || PyMemoryError::new_err(format!("a payload of {len} bytes does not fit into memory"));
    let size = isize::try_from(len).map_err(|_| too_long())?;
    if let Some(payload) = sample.payload()
        && len < UNLOCK_FROM
    {
        // SAFETY: the pointer and the length are those of a slice; the result is a new reference or null with an exception.
        return unsafe {
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(payload.as_ptr().cast::<c_char>(), size))
        };
    }
    // SAFETY: a null pointer asks for a `bytes` whose content is not set yet; the result is a new reference or null.
    let bytes = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(std::ptr::null(), size))? };
    // SAFETY: `bytes` is a bytes object of `len` bytes. Nobody else has a reference to it until this function returns, so
    // writing to its content is not seen by anyone. The content is written as `u8`s, which have no invalid values.
    let content = unsafe {
        let start = ffi::PyBytes_AsString(bytes.as_ptr()).cast::<u8>();
        start.write_bytes(0, 0);
        std::slice::from_raw_parts_mut(start, len)
    };
    py.detach(|| sample.copy_payload(content)).map_err(|error| from_read(&error))?;
    Ok(bytes)
}

/// Strings that a column had before: labels and splits repeat.
pub(crate) struct Texts(Vec<Option<TextCache>>);

const TEXT_SLOTS: usize = 256;
/// Longer texts are rarely labels.
const MAX_CACHED_TEXT: usize = 64;
/// After this many look-ups a cache that seldom helps is given up.
const TRIAL: u32 = 4096;

pub(crate) struct TextCache {
    slots: Vec<Option<(Box<str>, Py<PyString>)>>,
    lookups: u32,
    hits: u32,
}

impl Default for TextCache {
    fn default() -> Self {
        Self { slots: Vec::new(), lookups: 0, hits: 0 }
    }
}

impl TextCache {
    #[inline]
    fn get<'py>(&mut self, py: Python<'py>, text: &str) -> Bound<'py, PyString> {
        if text.len() > MAX_CACHED_TEXT || (self.lookups >= TRIAL && self.hits < TRIAL / 2) {
            return PyString::new(py, text);
        }
        if self.slots.is_empty() {
            self.slots.resize_with(TEXT_SLOTS, || None);
        }
        if self.lookups < TRIAL {
            self.lookups += 1;
        }
        let slot = &mut self.slots[slot_of(text.as_bytes())];
        if let Some((known, string)) = slot
            && **known == *text
        {
            self.hits = self.hits.saturating_add(1);
            return string.bind(py).clone();
        }
        let string = PyString::new(py, text);
        *slot = Some((text.into(), string.clone().unbind()));
        string
    }
}

/// A slot for a text, from its length and its first and last eight bytes.
#[inline]
fn slot_of(text: &[u8]) -> usize {
    let word = |bytes: &[u8]| {
        let mut word = [0; 8];
        let len = bytes.len().min(8);
        word[..len].copy_from_slice(&bytes[..len]);
        u64::from_le_bytes(word)
    };
    let last = &text[text.len().saturating_sub(8)..];
    let mixed = (word(text) ^ word(last).rotate_left(29) ^ text.len() as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as usize
}
