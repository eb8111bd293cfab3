"""What `CachedDataset.update_manifests` answers: outcomes as values, frozen and comparable."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Literal, TypeAlias, TypeVar

T = TypeVar("T")
E = TypeVar("E")


@dataclass(frozen=True)
class Ok(Generic[T]):
    """It worked.

    Attributes:
        value: What came of it.
    """

    value: T


@dataclass(frozen=True)
class Err(Generic[E]):
    """It did not work.

    Attributes:
        error: Why.
    """

    error: E


Result: TypeAlias = Ok[T] | Err[E]
"""One of the two: `match` on it."""


@dataclass(frozen=True)
class ManifestUpdateEntry:
    """What became of one manifest.

    Attributes:
        path: The manifest file, absolute and with links resolved.
        cache_id: The identity it has now: the one the cache had in the dataset.
        status: `"updated"`, `"unchanged"` (it was of format 3 already), or `"durability_unknown"`: replaced, but its folder could
            not be synced, so that after a power loss the old one may be back.
    """

    path: Path
    cache_id: int
    status: Literal["updated", "unchanged", "durability_unknown"]


@dataclass(frozen=True)
class ManifestUpdateReport:
    """All manifests are of format 3.

    Attributes:
        entries: One entry per cache, in the dataset's order.
    """

    entries: tuple[ManifestUpdateEntry, ...]


@dataclass(frozen=True)
class AbsentManifestTarget:
    """Stands where an error would name a manifest, when the request itself is the reason.

    Attributes:
        reason: Why no manifest is named.
    """

    reason: str


@dataclass(frozen=True)
class ManifestUpdateError:
    """The request stopped.

    Attributes:
        path: The manifest that is the reason, below the cache's folder as it was given.
        message: What is wrong, and what to do.
        entries: Manifests that were replaced, or found to be right, before that. Empty when one did not pass the checks, which
            come before the first replacement.
    """

    path: Path | AbsentManifestTarget
    message: str
    entries: tuple[ManifestUpdateEntry, ...] = ()


for _public in (Ok, Err, ManifestUpdateEntry, ManifestUpdateReport, AbsentManifestTarget, ManifestUpdateError):
    _public.__module__ = "dataset_rt.api"
