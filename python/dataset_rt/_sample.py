"""What comes out of a dataset."""

from __future__ import annotations

from typing import NamedTuple


class CachedSample(NamedTuple):
    """One sample that a dataset yields.

    Attributes:
        data: The payload, as it was written.
        metadata: The stored attributes in column order, in a dict of its own.
        cache_id: Which cache: from its manifest (format 3), or its position among the paths (format 2).
        sample_id: Which row of that cache, from 0.
    """

    data: bytes
    metadata: dict[str, bool | int | float | str]
    cache_id: int
    sample_id: int


CachedSample.__module__ = "dataset_rt.api"
