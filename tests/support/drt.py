"""The library under test, behind a few conveniences that keep tests short.

The suite runs against our library. Most of it also runs against the public package 0.4.8, which is how we know that
the tests themselves are right: install pytest next to that package and select `-m "not ours"`. What only our library
promises is marked `ours`; `IS_OURS` tells which of the two is installed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import dataset_rt as api

from . import sources

IS_OURS = hasattr(api, "__version__")

#: What a test expects for a class of errors. The public package has no exception tree, only builtins.
InvalidInput = getattr(api, "InvalidInputError", ValueError)
NotFound = getattr(api, "CacheNotFoundError", (ValueError, RuntimeError))
Corrupt = getattr(api, "CorruptCacheError", (ValueError, RuntimeError))
SampleIndex = getattr(api, "SampleIndexError", IndexError)
AnyError = getattr(api, "DatasetRTError", Exception)

IO_MODES = ("mmap", "pread") if IS_OURS else ("mmap",)
QUIET = {"show_progress": False}


def runtime(num_workers: int = 2) -> Any:
    return api.DatasetRuntime(num_workers=num_workers)


def reader_config(
    seed: int = 0, *, shuffle: bool = False, io: str | None = None, validate: bool = False, prefetch: int | None = None
) -> Any:
    options: dict[str, Any] = {"seed": seed, "shuffle": shuffle, "validate_cache": validate}
    if prefetch is not None:
        options["prefetch_size"] = prefetch
    if io is not None and IS_OURS:
        options["io"] = io
    return api.ReaderConfig(**options)


def writer_config(algo: str = "none", ratio: float = 1.0, **options: Any) -> Any:
    return api.WriterConfig(shard_compression=api.ShardCompression(algo=algo, ratio=ratio), **{**QUIET, **options})


def write_results(base: Path, written: Any, *, num_workers: int = 2, **options: Any) -> list[Any]:
    """`write_cache` with a runtime of its own and without progress output."""
    return runtime(num_workers).write_cache(written, base, writer_config=writer_config(**options))


def write(base: Path, name: str, rows: Iterable[Any], **options: Any) -> Path:
    """Write one cache that must succeed; returns its folder."""
    (result,) = write_results(base, sources.ListSource(name, rows), **options)
    assert isinstance(result, api.CacheWriteSuccess), result
    return result.path


def write_error(base: Path, name: str, rows: Iterable[Any], **options: Any) -> str:
    """Write one cache that must fail; returns the message, having checked that nothing stays behind.

    The base folder's path is taken out of the message, since it holds words and numbers of its own.
    """
    (result,) = write_results(base, sources.ListSource(name, rows), **options)
    assert isinstance(result, api.CacheWriteError), result
    assert result.source_name == name
    assert not (base / name).exists()
    assert leftovers(base) == []
    return result.message.replace(str(base), "BASE")


def leftovers(base: Path) -> list[str]:
    """Names left in the work area below a base folder."""
    work = base / "tmp"
    return sorted(entry.name for entry in work.iterdir()) if work.is_dir() else []


def open_dataset(paths: Path | Sequence[Path], *, num_workers: int = 2, **options: Any) -> Any:
    """`cached_dataset` with a runtime of its own; `options` go to `reader_config` above."""
    if isinstance(paths, (str, Path)):
        paths = [paths]
    return runtime(num_workers).cached_dataset(list(paths), reader_config=reader_config(**options))


def ids(samples: Iterable[Any]) -> list[int]:
    return [sample.sample_id for sample in samples]


def pairs(samples: Iterable[Any]) -> list[tuple[int, int]]:
    return [(sample.cache_id, sample.sample_id) for sample in samples]
