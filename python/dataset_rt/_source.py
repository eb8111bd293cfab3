"""What goes into a cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

MetadataValue: TypeAlias = bool | int | float | str
"""One metadata value: 64-bit integers, finite floats."""

Metadata: TypeAlias = Mapping[str, MetadataValue]
"""A sample's metadata: names to values."""

BytesLike: TypeAlias = bytes | bytearray | memoryview
"""A payload. Any other object with the buffer protocol works too, in C order."""


class CacheInput(NamedTuple):
    """One sample that a source yields. A plain pair is as good.

    Attributes:
        data: The payload. It is copied or, if it is `bytes`, shared when pulled: a source may reuse its buffer.
        metadata: The attributes worth filtering on. Every sample of a source has the same names and kinds.
    """

    data: BytesLike
    metadata: Metadata


class CacheSource(Protocol):
    """A named iterable of samples. `write_cache` pulls from it on the calling thread, or in a process with `num_processes`.

    A source may also have a `fingerprint`, an attribute or a property: a str that changes when the cache would, such as a version
    or a hash of what the samples are made from, of 1 to 65536 bytes. It is read before anything is iterated and stored with the
    cache; `WriterConfig.on_stale` says what `from_cache_sources` does with a cache that has another one.

    Attributes:
        name: The cache's folder name: one plain path segment, at most 255 bytes, not `tmp`.
    """

    if TYPE_CHECKING:
        # Read-only, so that properties and frozen classes have one too. At run time there is nothing in the way of an attribute.
        @property
        def name(self) -> str: ...

    else:
        name: str

    def __iter__(self) -> Iterator[CacheInput]:
        """Yield the samples, one after another."""
        ...


for _public in (CacheInput, CacheSource):
    _public.__module__ = "dataset_rt.api"
