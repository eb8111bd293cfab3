"""Comparable, JSON-friendly forms of what the library hands out.

Floats become their bits in hexadecimal, so that a value one unit in the last place off is a difference and NaN
equals itself. Types are kept: `True` is not `1`.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Iterable
from typing import Any


def plain(value: Any) -> list[Any]:
    """One metadata value with its exact type."""
    if type(value) is float:
        if math.isnan(value):
            return ["float", "nan"]
        return ["float", struct.pack(">d", value).hex()]
    if type(value) in (bool, int, str):
        return [type(value).__name__, value]
    return [f"unexpected {type(value).__qualname__}", repr(value)]


def plain_metadata(metadata: dict[str, Any]) -> list[list[Any]]:
    """Metadata with its key order."""
    return [[name, *plain(value)] for name, value in metadata.items()]


def plain_sample(sample: Any) -> dict[str, Any]:
    """A `CachedSample` (or anything with its four fields)."""
    return {
        "cache_id": sample.cache_id,
        "sample_id": sample.sample_id,
        "len": len(sample.data),
        "sha256": hashlib.sha256(sample.data).hexdigest(),
        "metadata": plain_metadata(sample.metadata),
    }


def expected_sample(payload: bytes, metadata: dict[str, Any], cache_id: int, sample_id: int) -> dict[str, Any]:
    """The same form for a row as its source gave it; a cache orders columns by the UTF-8 bytes of their names."""
    ordered = {name: metadata[name] for name in sorted(metadata, key=lambda name: name.encode())}
    return {
        "cache_id": cache_id,
        "sample_id": sample_id,
        "len": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
        "metadata": plain_metadata(ordered),
    }


def plain_table(frame: Any) -> dict[str, Any]:
    """A metadata table: columns with their types, and every value."""
    return {
        "columns": [[name, str(dtype)] for name, dtype in frame.schema.items()],
        "rows": [[plain(value) for value in row] for row in frame.rows()],
    }


def digest(samples: Iterable[Any]) -> str:
    """One hash over a whole sequence of samples, order included."""
    total = hashlib.sha256()
    for sample in samples:
        total.update(repr(plain_sample(sample)).encode())
    return total.hexdigest()
