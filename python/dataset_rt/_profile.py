"""Profiles: where the time of writing and reading goes, as JSON files.

The native code counts; this module writes. A file is replaced as a whole, so that whoever reads it meanwhile never sees half of
one. That it can be written is found out before anything is begun; when it cannot be written at the end all the same, that is a
warning, since what was asked for is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import stat
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from dataset_rt._native import ReadProfile as NativeReadProfile
from dataset_rt._native import WriteProfile as NativeWriteProfile
from dataset_rt.exceptions import StorageError

if TYPE_CHECKING:
    from typing_extensions import Self

    from dataset_rt._native import SampleIterator
    from dataset_rt._sample import CachedSample

FORMAT_VERSION = 1

StageRow: TypeAlias = "tuple[str, int, int, int]"
"""A stage's name, its calls, its nanoseconds, its bytes."""


def check_writable(path: Path) -> Path:
    """See that a profile can be written, and make the folders above it.

    Args:
        path: As it was configured.

    Returns:
        The absolute path of the file itself, behind any links.

    Raises:
        StorageError: It cannot be written.
    """
    try:
        target = Path(os.path.realpath(path))
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISREG(target.stat().st_mode):
                # Replacing it would take away a device or a pipe.
                raise OSError(None, "it is not a regular file")
        probe = _beside(target)
        probe.touch(exist_ok=False)
        probe.unlink()
    except (OSError, ValueError) as error:
        errno = error.errno if isinstance(error, OSError) else None
        raise StorageError(f"{_why(path, error)}; nothing was begun", path=path, errno=errno) from error
    return target


def _beside(target: Path) -> Path:
    return target.parent / f".drt-profile-{os.getpid()}-{secrets.token_hex(4)}"


def _why(path: Path, error: Exception) -> str:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return f"the profile cannot be written to {path}: {reason}"


def _replace(target: Path, document: dict[str, object]) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = _beside(target)
    try:
        with temporary.open("x", encoding="utf-8") as file:
            file.write(json.dumps(document, indent=2) + "\n")
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _stages(rows: Iterable[StageRow]) -> list[dict[str, object]]:
    return [{"name": name, "calls": calls, "total_ns": total_ns, "bytes": num_bytes} for name, calls, total_ns, num_bytes in rows]


class WriteProfile:
    """The profile of one call that writes; as a context manager it is written when the call ends, in whichever way."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._target = check_writable(path)
        self._began = time.perf_counter_ns()
        self._sources: dict[int, tuple[str, Callable[[], list[StageRow]]]] = {}

    def measure(self, position: int, name: str) -> NativeWriteProfile:
        """A place to count for the source at a position of the call."""
        native = NativeWriteProfile()
        self._sources[position] = (name, native.stages)
        return native

    def report(self, position: int, name: str, stages: list[StageRow]) -> None:
        """Keep what another process counted for a source."""
        self._sources[position] = (name, lambda: stages)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        try:
            _replace(self._target, self._document())
        except OSError as problem:
            why = f"{_why(self._path, problem)}; the caches that were written are there"
            if error is None:
                # Above this: the private method, the public one, and its caller.
                warnings.warn(why, RuntimeWarning, stacklevel=4)
            else:
                # `add_note` of Python 3.11, for 3.10 too.
                error.__notes__ = [*getattr(error, "__notes__", []), why]

    def _document(self) -> dict[str, object]:
        sources = [(name, stages()) for _, (name, stages) in sorted(self._sources.items())]
        return {
            "format_version": FORMAT_VERSION,
            "elapsed_ns": time.perf_counter_ns() - self._began,
            # A source that nothing was pulled from has no stages: it was reused, refused, or not come to.
            "sources": [{"source_name": name, "stages": _stages(rows)} for name, rows in sources if rows],
        }


class ReadProfile:
    """The profile of a dataset's iterators, all together. It is written whenever one of them ends, and with the dataset.

    A forked child leaves it to its parent: it neither counts nor writes, nor waits for a lock that another thread had.
    """

    def __init__(self, path: Path) -> None:
        self.native = NativeReadProfile()
        self._path = path
        self._target = check_writable(path)
        self._process = os.getpid()
        # Reentrant: an iterator may be collected, and so end, while another one is being counted.
        self._lock = threading.RLock()
        self._num_iterators = 0
        self._ended_ns = 0
        self._began: dict[int, int] = {}
        self._num_changes = 0
        self._num_saved = -1

    def begin(self) -> int:
        """Count an iterator; returns its number."""
        if os.getpid() != self._process:
            return 0
        with self._lock:
            self._num_changes += 1
            self._num_iterators += 1
            self._began[self._num_iterators] = time.perf_counter_ns()
            return self._num_iterators

    def end(self, number: int) -> None:
        """Count an iterator's time and write the profile, once."""
        if os.getpid() != self._process:
            return
        with self._lock:
            began = self._began.pop(number, None)
            if began is None:
                return
            self._num_changes += 1
            self._ended_ns += time.perf_counter_ns() - began
            self.save()

    def save(self) -> None:
        """Write what there is so far, if there is anything new."""
        if os.getpid() != self._process:
            return
        with self._lock:
            num_changes, living = self._num_changes, list(self._began.values())
            if num_changes == self._num_saved and not living:
                return
            now = time.perf_counter_ns()
            document: dict[str, object] = {
                "format_version": FORMAT_VERSION,
                "elapsed_ns": self._ended_ns + sum(now - began for began in living),
                "iterators": self._num_iterators,
                "stages": _stages(self.native.stages()),
            }
            try:
                _replace(self._target, document)
            except OSError as error:
                warnings.warn(_why(self._path, error), RuntimeWarning, stacklevel=2)
            else:
                self._num_saved = num_changes


class ProfiledIterator:
    """A native iterator whose samples are counted one by one."""

    def __init__(self, native: SampleIterator, profile: ReadProfile) -> None:
        self._native = native
        self._profile = profile
        self._number = profile.begin()
        # When it is collected, at the latest when the program ends.
        weakref.finalize(self, profile.end, self._number)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> CachedSample:
        try:
            sample = self._native.next_measured()
        except BaseException:
            self._profile.end(self._number)
            raise
        if sample is None:
            self._profile.end(self._number)
            raise StopIteration
        return sample

    def __length_hint__(self) -> int:
        return self._native.__length_hint__()

    def state_dict(self) -> dict[str, Any]:
        """Where in the stream the next sample is."""
        return self._native.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on in this window from the place that a state names."""
        self._native.load_state_dict(state, strict=strict)

    def close(self) -> None:
        """Give nothing more, and write the profile."""
        self._native.close()
        self._profile.end(self._number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("an iterator uses threads and files of this process and cannot be pickled")
