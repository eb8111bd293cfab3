"""Outcomes that callers plan for, as values."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from dataset_rt._dataset import CachedDataset


class CacheWriteSuccess(NamedTuple):
    """A source whose cache is there.

    Attributes:
        source_name: The source's name.
        path: The cache's folder: the base folder as it was given, and the name.
    """

    source_name: str
    path: Path


class _CacheWriteErrorFields(NamedTuple):
    source_name: str
    message: str


class CacheWriteError(_CacheWriteErrorFields):
    """A source whose cache is not there, and why.

    Attributes:
        source_name: The source's name, or `source[<position>]` when it has none.
        message: What went wrong, naming the sample where there is one.
        exception: The exception behind the message, with its traceback and cause. It stays in the process: a pickled result has
            `None`. One that was raised in a process of `num_processes` is a copy whose traceback is a note, or a stand-in of its
            name and text if it cannot be pickled.
    """

    exception: BaseException | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), tuple(self))


CacheWriteResult: TypeAlias = CacheWriteSuccess | CacheWriteError
"""What became of one source."""


class CacheSourcesDatasetSuccess(NamedTuple):
    """At least one cache was loaded.

    Attributes:
        dataset: The dataset over all caches that are there.
        results: What became of each source, in their order.
    """

    dataset: CachedDataset
    results: list[CacheWriteResult]


class CacheSourcesDatasetError(NamedTuple):
    """No cache could be loaded.

    Attributes:
        results: What became of each source, in their order.
        message: Why there is no dataset.
    """

    results: list[CacheWriteResult]
    message: str


CacheSourcesDatasetResult: TypeAlias = CacheSourcesDatasetSuccess | CacheSourcesDatasetError
"""What `from_cache_sources` returns."""

for _public in (CacheWriteSuccess, CacheWriteError, CacheSourcesDatasetSuccess, CacheSourcesDatasetError):
    _public.__module__ = "dataset_rt.api"
