"""The exceptions of DatasetRT: one tree, grouped by what a handler would do.

Every class is also the builtin that scripts have always caught in its place, so `except ValueError` around opening a damaged
cache keeps working. `kind` says precisely what happened; kinds are only ever added.
"""

from __future__ import annotations

import os
from typing import Final

ERROR_KINDS: Final[dict[str, str]] = {
    # kind: class
    "invalid-argument": "InvalidInputError",
    "invalid-config": "InvalidInputError",
    "invalid-name": "InvalidInputError",
    "duplicate-name": "InvalidInputError",
    "closed": "InvalidInputError",
    "no-caches": "InvalidInputError",
    "not-a-cache": "CacheNotFoundError",
    "cache-not-found": "CacheNotFoundError",
    "cache-exists": "CacheExistsError",
    "being-written": "CacheExistsError",
    "stale-cache": "CacheExistsError",
    "invalid-fingerprint": "InvalidInputError",
    "no-samples": "InvalidInputError",
    "invalid-sample": "InvalidInputError",
    "source-raised": "SourceError",
    "not-picklable": "InvalidInputError",
    "process-died": "SourceError",
    "process-timeout": "SourceError",
    "malformed-manifest": "CorruptCacheError",
    "malformed-index": "CorruptCacheError",
    "malformed-metadata": "CorruptCacheError",
    "unsupported-version": "UnsupportedVersionError",
    "missing-file": "CorruptCacheError",
    "length-mismatch": "CorruptCacheError",
    "sample-count-mismatch": "CorruptCacheError",
    "checksum-mismatch": "CorruptCacheError",
    "damaged-record": "CorruptCacheError",
    "replaced-file": "CorruptCacheError",
    "duplicate-cache-id": "InvalidInputError",
    "schemas-differ": "InvalidInputError",
    "too-many-rows": "InvalidInputError",
    "invalid-table": "InvalidInputError",
    "unrepresentable-metadata": "CorruptCacheError",
    "invalid-epoch-length": "InvalidInputError",
    "folder-not-found": "CacheNotFoundError",
    "export-not-found": "CacheNotFoundError",
    "export-exists": "CacheExistsError",
    "malformed-export": "CorruptCacheError",
    "cache-differs": "CorruptCacheError",
    "invalid-state": "InvalidInputError",
    "state-mismatch": "StateMismatchError",
    "stream-exhausted": "InvalidInputError",
    "index-out-of-bounds": "SampleIndexError",
    "iterator-in-use": "InvalidInputError",
    "forked": "ForkedProcessError",
    "storage": "StorageError",
    "internal": "InternalError",
}
"""Every kind with the name of the class that carries it."""


class DatasetRTError(Exception):
    """Anything that DatasetRT raises on purpose.

    Attributes:
        kind: A stable code, one of `ERROR_KINDS`.
        path: The file or folder that the error is about, if there is one.
    """

    kind: str
    path: str | None

    def __init__(self, message: str, *, kind: str = "internal", path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.path = None if path is None else os.fspath(path)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


def _rebuild(cls: type[DatasetRTError], args: tuple[object, ...], state: dict[str, object]) -> DatasetRTError:
    """Make an exception again from its pickled parts."""
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidInputError(DatasetRTError, ValueError):
    """An argument, configuration, sample or table is not acceptable: correct it."""


class StateMismatchError(DatasetRTError, ValueError):
    """A saved state is of another stream than the one that should go on: set up what it was saved with."""


class SampleIndexError(DatasetRTError, IndexError):
    """No sample with this identity is loaded."""


class CacheNotFoundError(DatasetRTError, FileNotFoundError, ValueError):
    """There is no cache, export or folder at the path: create it, or correct the path."""


class CacheExistsError(DatasetRTError, FileExistsError):
    """Something is at the path of a cache or an export already, or is being written there: choose another name, or reuse it."""


class SourceError(DatasetRTError):
    """A source raised while it was pulled from (its own exception is `__cause__`), or the process that wrote it ended early."""


class CorruptCacheError(DatasetRTError, ValueError, RuntimeError):
    """Files of a cache or an export are not what was written: restore or rebuild it."""


class UnsupportedVersionError(DatasetRTError, ValueError, RuntimeError):
    """A format version that this release cannot read: upgrade dataset-rt, or rebuild the cache or export."""


class ForkedProcessError(DatasetRTError, RuntimeError):
    """A forked child used a runtime of its parent, whose threads it does not have: use `spawn` or `forkserver`."""


class StorageError(DatasetRTError, OSError, RuntimeError):
    """The file system refused.

    Attributes:
        errno: The system's error number, if it gave one.
    """

    def __init__(
        self,
        message: str,
        *,
        kind: str = "storage",
        path: str | os.PathLike[str] | None = None,
        errno: int | None = None,
    ) -> None:
        super().__init__(message, kind=kind, path=path)
        self.errno = errno


class InternalError(DatasetRTError, RuntimeError):
    """A bug in DatasetRT. Please report it with the message."""


class StoredColumnsIgnoredWarning(UserWarning):
    """A table has other values in stored columns than the caches hold, and samples will have the caches' values.

    Attributes:
        columns: The names of these columns, in stored order.
    """

    columns: tuple[str, ...]

    def __init__(self, message: str, *, columns: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.columns = columns
