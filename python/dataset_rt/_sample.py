"""What comes out of a dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol


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


class Samples(Iterator[CachedSample], Protocol):
    """What iterating a dataset gives: the samples of one window of its stream."""

    def state_dict(self) -> dict[str, Any]:
        """Say where in the stream the next sample is, as `CachedDataset.state_dict` does."""
        ...

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on from a place in this window, as `CachedDataset.load_state_dict` does.

        Args:
            state: What `state_dict` of the dataset or of its iterator returned.
            strict: As for the dataset.

        Raises:
            InvalidInputError: It is no state of a dataset.
            StateMismatchError: It is of another stream, or of another window of this one.
        """
        ...

    def close(self) -> None:
        """Give nothing more, and let go of what was prepared. Closing again does nothing."""
        ...

    def __length_hint__(self) -> int:
        """Samples left."""
        ...

    def __enter__(self) -> Samples:
        """Close it at the end of the block."""
        ...

    def __exit__(self, *_exception: object) -> None: ...


CachedSample.__module__ = "dataset_rt.api"
