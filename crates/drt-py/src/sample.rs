//! `CachedSample` objects from samples of a block.
//!
//! This runs once per sample with the interpreter locked, and is what a warm read costs most of its time on. It uses the C
//! interface directly for two things that the safe one cannot do without a detour: a `bytes` whose memory is filled in place,
//! and a named tuple without a call of its class. docs/adr/0006-building-samples.md has the measurements.
#![allow(unsafe_code)]

use std::os::raw::c_char;

use drt_format::MetadataValue;
use drt_metadata::Column;
use drt_reader::{Catalog, SampleRef};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString, PyTuple, PyType};

use crate::error::from_read;
use crate::portion::{LARGE_PAYLOAD, read_payload};

/// From this length on even copying within memory takes long enough to let other threads run.
pub(crate) const LARGE_COPY: usize = 256 * 1024;
/// Fields of a `CachedSample`.
const NUM_FIELDS: isize = 4;

/// What all samples of one dataset have in common.
pub(crate) struct SampleBuilder {
    class: Py<PyType>,
    /// Names of the metadata columns.
    keys: Vec<Py<PyString>>,
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
            cache_ids: catalog
                .caches()
                .iter()
                .map(|cache| cache.id().get().into_pyobject(py).map(Bound::unbind))
                .collect::<Result<_, _>>()?,
            allocate_tuples: py.version_info() < (3, 14),
        })
    }

    /// Memory for texts that were met before.
    pub(crate) fn new_texts(&self) -> Texts {
        Texts(self.keys.iter().map(|_| TextCache::default()).collect())
    }

    /// One sample as a `CachedSample`; its payload is read here unless it is given.
    #[inline]
    pub(crate) fn build<'py>(
        &self,
        py: Python<'py>,
        sample: SampleRef<'_>,
        data: Option<Py<PyAny>>,
        texts: &mut Texts,
    ) -> PyResult<Bound<'py, PyAny>> {
        let data = match data {
            Some(data) => data.into_bound(py),
            None => payload(py, sample)?,
        };
        let metadata = self.metadata(py, sample, texts)?;
        let cache_id = self.cache_ids[sample.cache_position()].bind(py).clone();
        let sample_id = PyInt::new(py, sample.sample_id());
        let fields = [data, metadata, cache_id.into_any(), sample_id.into_any()];
        self.named_tuple(py, fields)
    }

    #[inline]
    fn metadata<'py>(&self, py: Python<'py>, sample: SampleRef<'_>, texts: &mut Texts) -> PyResult<Bound<'py, PyAny>> {
        let metadata = PyDict::new(py);
        let changed = || from_read(&sample.changed());
        if let Some((columns, row)) = sample.table_row() {
            for ((column, key), cache) in columns.iter().zip(&self.keys).zip(&mut texts.0) {
                match column {
                    Column::Bool(bits) => {
                        set(&metadata, key, PyBool::new(py, bits.get_bit(row)).to_owned().into_any())?
                    }
                    Column::Int(values) => set(&metadata, key, PyInt::new(py, values[row]).into_any())?,
                    Column::Float(values) => set(&metadata, key, PyFloat::new(py, values[row]).into_any())?,
                    Column::String { .. } => {
                        let text = column.text(row).ok_or_else(changed)?;
                        set(&metadata, key, cache.get(py, text).ok_or_else(changed)?.into_any())?;
                    }
                }
            }
        } else {
            for (column, key) in self.keys.iter().enumerate() {
                set(&metadata, key, to_python(py, sample.metadata(column).ok_or_else(changed)?))?;
            }
        }
        Ok(metadata.into_any())
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

/// A metadata value as a Python object.
pub(crate) fn to_python<'py>(py: Python<'py>, value: MetadataValue<'_>) -> Bound<'py, PyAny> {
    match value {
        MetadataValue::Bool(value) => PyBool::new(py, value).to_owned().into_any(),
        MetadataValue::Int(value) => PyInt::new(py, value).into_any(),
        MetadataValue::Float(value) => PyFloat::new(py, value).into_any(),
        MetadataValue::String(value) => PyString::new(py, value).into_any(),
    }
}

/// `dict[key] = value`, without the detours of the safe call.
#[inline]
fn set(dict: &Bound<'_, PyDict>, key: &Py<PyString>, value: Bound<'_, PyAny>) -> PyResult<()> {
    // SAFETY: three live objects, the first of them a dict; the call takes references of its own.
    let outcome = unsafe { ffi::PyDict_SetItem(dict.as_ptr(), key.as_ptr(), value.as_ptr()) };
    if outcome == 0 { Ok(()) } else { Err(PyErr::fetch(dict.py())) }
}

/// A number that tells this thread from all others that are inside the interpreter.
#[inline]
pub(crate) fn thread_number(_py: Python<'_>) -> usize {
    // SAFETY: the interpreter is attached, so the thread has a state; only its address is used.
    unsafe { ffi::PyThreadState_Get().addr() }
}

/// A sample's payload as `bytes`, copied once: from the map or the block, or read from the file.
#[inline]
fn payload<'py>(py: Python<'py>, sample: SampleRef<'_>) -> PyResult<Bound<'py, PyAny>> {
    // What a thread has put into the block is in memory for certain, so giving up the interpreter costs more than the copy.
    let limit = if sample.is_held() { LARGE_COPY } else { LARGE_PAYLOAD };
    if let Some(payload) = sample.payload()
        && payload.len() < limit
    {
        // SAFETY: the pointer and the length are those of a slice, whose length fits an `isize`; the result is a new reference
        // or null with an exception.
        return unsafe {
            let (start, len) = (payload.as_ptr().cast::<c_char>(), payload.len() as isize);
            Bound::from_owned_ptr_or_err(py, ffi::PyBytes_FromStringAndSize(start, len))
        };
    }
    read_payload(py, sample.payload_len(), |content| sample.copy_payload(content))?.map_err(|error| from_read(&error))
}

/// Strings that the columns had before, one cache per column: labels and splits repeat.
pub(crate) struct Texts(Vec<TextCache>);

const TEXT_SLOTS: usize = 256;
/// Longer texts are rarely labels.
const MAX_CACHED_TEXT: usize = 64;
/// After this many look-ups a cache that seldom helps is given up.
const TRIAL: u32 = 4096;

/// A text's bytes, and the string made of them.
type KnownText = (Box<[u8]>, Py<PyString>);

#[derive(Default)]
struct TextCache {
    slots: Vec<Option<KnownText>>,
    lookups: u32,
    hits: u32,
}

impl TextCache {
    /// A string of these bytes; `None` when they are not UTF-8.
    #[inline]
    fn get<'py>(&mut self, py: Python<'py>, text: &[u8]) -> Option<Bound<'py, PyString>> {
        let fresh = || std::str::from_utf8(text).ok().map(|text| PyString::new(py, text));
        if text.len() > MAX_CACHED_TEXT || (self.lookups >= TRIAL && self.hits < TRIAL / 2) {
            return fresh();
        }
        if self.slots.is_empty() {
            self.slots.resize_with(TEXT_SLOTS, || None);
        }
        let slot = &mut self.slots[slot_of(text)];
        let known = slot.as_ref().filter(|(known, _)| **known == *text);
        if self.lookups < TRIAL {
            self.lookups += 1;
            self.hits += u32::from(known.is_some());
        }
        if let Some((_, string)) = known {
            return Some(string.bind(py).clone());
        }
        let string = fresh()?;
        *slot = Some((text.into(), string.clone().unbind()));
        Some(string)
    }
}

/// A slot for a text, from its length and bytes of its beginning and end.
#[inline]
fn slot_of(text: &[u8]) -> usize {
    let len = text.len();
    let (first, last) = match (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        (Some(first), Some(last)) => (u64::from_le_bytes(*first), u64::from_le_bytes(*last)),
        _ => match (text.first_chunk::<4>(), text.last_chunk::<4>()) {
            (Some(first), Some(last)) => (u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into()),
            _ if len == 0 => (0, 0),
            _ => (u64::from(text[0]) | u64::from(text[len / 2]) << 8, u64::from(text[len - 1])),
        },
    };
    let mixed = (first ^ last.rotate_left(29) ^ len as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 56) as usize
}
