"""`DatasetRuntime`: the threads, and everything that is done with them."""

from __future__ import annotations

import inspect
import operator
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

from dataset_rt._native import Progress, Runtime, cpu_budget
from dataset_rt.exceptions import CacheExistsError, DatasetRTError, InvalidInputError

if TYPE_CHECKING:
    from typing_extensions import Self

    from dataset_rt._config import ReaderConfig, WriterConfig
    from dataset_rt._dataset import CachedDataset
    from dataset_rt._native import WriteProfile as NativeWriteProfile
    from dataset_rt._profile import WriteProfile
    from dataset_rt._results import CacheSourcesDatasetResult, CacheWriteError, CacheWriteResult
    from dataset_rt._source import CacheSource

_MAX_U64 = 2**64 - 1

_MAX_FINGERPRINT_BYTES = 64 * 1024
"""Source: docs/spec/v3.md, "Extensions"."""


class DatasetRuntime:
    """A fixed pool of native threads, and the operations that run on it.

    Make one per process. Datasets and iterators keep the threads alive that they need; the threads end when the runtime and all
    of those are closed or gone. As a context manager it is closed at the end of the block.
    """

    _handle: Runtime | None

    def __init__(self, *, num_workers: int | Literal["auto"] = "auto") -> None:
        """Start the threads.

        Args:
            num_workers: How many, at least 1, for the runtime's whole life. `"auto"` is one for each processor that the process
                may use: those it may run on (its affinity), and no more than its control group pays for.

        Raises:
            TypeError: `num_workers` is neither an integer nor `"auto"`.
            InvalidInputError: It is 0 (also a ValueError).
            OverflowError: It is negative or beyond 64 bits.
        """
        self._handle = None
        count = cpu_budget() if num_workers == "auto" else operator.index(num_workers)
        if not 0 <= count <= _MAX_U64:
            raise OverflowError(f"num_workers must be 1 to 2**64 - 1; got {num_workers}")
        self._handle = Runtime(num_workers=count)
        self._num_workers = self._handle.num_workers

    @property
    def num_workers(self) -> int:
        """The number of threads."""
        return self._num_workers

    @property
    def _native(self) -> Runtime:
        if self._handle is None:
            raise InvalidInputError("this DatasetRuntime is closed; make another one", kind="closed")
        return self._handle

    def close(self) -> None:
        """Let go of the threads. Datasets and iterators made before keep theirs; closing again does nothing."""
        self._handle = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = ", closed" if self._handle is None else ""
        return f"DatasetRuntime(num_workers={self.num_workers}{closed})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a DatasetRuntime owns threads of this process and cannot be pickled; make one in each process")

    def write_cache(
        self,
        sources: CacheSource | list[CacheSource],
        path: str | Path,
        *,
        writer_config: WriterConfig | None = None,
    ) -> list[CacheWriteResult]:
        """Write one immutable cache per source, as `path/<source name>`.

        Samples are pulled on the calling thread and checked when pulled; encoding, checksums and files are the pool's work. A
        cache appears by one rename when everything in it is on the disk. A source that fails leaves nothing behind, and the
        others are written all the same.

        With `writer_config.num_processes` each source is pickled when its turn comes and written by a spawned process with
        `num_workers` threads of its own, so many at a time. One that cannot be pickled, dies, or takes longer than
        `process_timeout_seconds` is an error of its own source. No process outlives the call.

        A name that another process of this machine is writing is an error result at once, of the kind `being-written`. A writer
        on another machine may be noticed at the end alone: one of the two publishes, and the other one's error is `cache-exists`.

        Args:
            sources: One source, or a list of them. Their names must differ, also when case is ignored.
            path: The base folder; made when it does not exist.
            writer_config: How to write; None for the defaults.

        Returns:
            One `CacheWriteSuccess` or `CacheWriteError` per source, in their order.

        Raises:
            TypeError: `path` is no path, or `writer_config` is not a WriterConfig.
            InvalidInputError: The configuration cannot be used, here or at all, or two sources have one name (nothing is
                written then).
            KeyboardInterrupt: And any other exception that is not an `Exception`: a source's or a signal's, unchanged; a copy
                of it when it was raised in another process. Caches at work are discarded, finished ones stay.

        Source: docs/spec/v3.md, "Writing and publishing".
        """
        config = _writer_config(writer_config)
        jobs = _name_sources(sources)
        _check_names(jobs)
        return self._write(jobs, _base_folder(path), config, reuse=False)

    def from_cache_sources(
        self,
        sources: CacheSource | list[CacheSource],
        path: str | Path,
        *,
        reader_config: ReaderConfig,
        writer_config: WriterConfig | None = None,
    ) -> CacheSourcesDatasetResult:
        """Write the caches that are missing, reuse those that are there, and open all of them as one dataset.

        A cache that exists is opened to see that it is one (and verified when `writer_config.validate_cache` says so); its source
        is then not iterated. A source's `fingerprint`, if it has one, is compared with its cache's, and `writer_config.on_stale`
        says what happens when they differ. Any other change, of source or configuration, is not noticed: use another name then.

        While another process of this machine writes a cache of the name, this waits, looking every 100 ms, and then uses what
        was published; when the other one died or failed, it writes the cache itself. A writer that cannot be seen, on another
        machine, is not waited for: whoever finishes second uses the cache of the first.

        Args:
            sources: One source, or a list of them.
            path: The base folder.
            reader_config: How to read.
            writer_config: How to write; None for the defaults.

        Returns:
            `CacheSourcesDatasetSuccess` when at least one cache was opened, otherwise `CacheSourcesDatasetError`. Both have one
            result per source; a cache that cannot be opened with the others is an error there.

        Raises:
            TypeError: `path` is no path, or a configuration is of another class.
            InvalidInputError: As in `write_cache`.
            OverflowError: The seed is outside 0 to 2**64 - 1 (nothing is written then).
            KeyboardInterrupt: As in `write_cache`.
        """
        from dataset_rt._results import CacheSourcesDatasetError, CacheSourcesDatasetSuccess, CacheWriteSuccess

        _check_reader_config(reader_config)
        config = _writer_config(writer_config)
        jobs = _name_sources(sources)
        _check_names(jobs)
        results = self._write(jobs, _base_folder(path), config, reuse=True)
        while usable := [result for result in results if isinstance(result, CacheWriteSuccess)]:
            try:
                dataset = self.cached_dataset([result.path for result in usable], reader_config=reader_config)
            except DatasetRTError as error:
                blamed = _blamed(error, [result.path for result in usable])
                if blamed is None:
                    raise
                at = next(i for i, r in enumerate(results) if isinstance(r, CacheWriteSuccess) and r.path == blamed)
                results[at] = failure(results[at].source_name, error)
            else:
                return CacheSourcesDatasetSuccess(dataset, results)
        if not results:
            return CacheSourcesDatasetError(results, "no cache sources were given")
        failures = [f"{result.source_name}: {result.message}" for result in results if not isinstance(result, CacheWriteSuccess)]
        return CacheSourcesDatasetError(results, "no cache could be loaded: " + "; ".join(failures))

    def cached_dataset(self, paths: Iterable[str | Path], *, reader_config: ReaderConfig) -> CachedDataset:
        """Open published caches as one dataset.

        Always checked: manifests, file lengths, index rows, the structure of the metadata tables. With
        `reader_config.validate_cache` also the checksum of every file.

        Args:
            paths: The caches' folders. For caches of format 2 their order gives each its `cache_id`.
            reader_config: How to open and draw.

        Returns:
            The dataset, with every sample active.

        Raises:
            TypeError: `reader_config` is not a ReaderConfig.
            InvalidInputError: No paths, or one path outside a list; two caches with one identity; different metadata columns.
            CacheNotFoundError: A path has no cache.
            CorruptCacheError: A cache's files contradict each other.
            UnsupportedVersionError: A cache of another format version.
            StorageError: The file system refused.
            OverflowError: The seed is outside 0 to 2**64 - 1.

        Source: docs/spec/v3.md, "What readers check".
        """
        from dataset_rt._dataset import CachedDataset

        if isinstance(paths, (str, bytes, os.PathLike)):
            raise InvalidInputError(
                f"paths must be a list of cache folders; got one path: write [{os.fspath(paths)!r}]", kind="invalid-argument"
            )
        _check_reader_config(reader_config)
        folders = [Path(path) for path in paths]
        profile = None
        if reader_config.profiler.enabled:
            from dataset_rt._profile import ReadProfile

            profile = ReadProfile(reader_config.profiler.path)
        native = self._native.open_dataset(
            list[os.PathLike[str]](folders),
            seed=reader_config.seed,
            prefetch_size=reader_config.prefetch_size,
            order=reader_config.order,
            validate_cache=reader_config.validate_cache,
            io=reader_config.io,
            profile=None if profile is None else profile.native,
        )
        return CachedDataset._create(self, native, folders, reader_config, profile)  # pyright: ignore[reportPrivateUsage]

    def _write(self, jobs: Sequence[WriteJob], base: Path, config: WriterConfig, *, reuse: bool) -> list[CacheWriteResult]:
        options = WriteOptions(
            max_shard_bytes=config.max_shard_bytes,
            compression=config.shard_compression.algo,
            ratio=config.shard_compression.ratio,
            level=config.shard_compression.level,
            prefetch_size=config.prefetch_size,
            reuse=reuse,
            validate_cache=config.validate_cache,
            on_stale=config.on_stale,
        )
        if not config.profiler.enabled:
            return self._write_all(jobs, base, config, options, None)
        from dataset_rt._profile import WriteProfile

        with WriteProfile(config.profiler.path) as profile:
            return self._write_all(jobs, base, config, options, profile)

    def _write_all(
        self, jobs: Sequence[WriteJob], base: Path, config: WriterConfig, options: WriteOptions, profile: WriteProfile | None
    ) -> list[CacheWriteResult]:
        if config.num_processes > 0:
            from dataset_rt._processes import write_in_processes

            return write_in_processes(
                self._native,
                jobs,
                base,
                options,
                num_processes=config.num_processes,
                timeout_seconds=config.process_timeout_seconds,
                show_progress=config.show_progress,
                profile=profile,
            )
        progress = Progress(num_sources=len(jobs), show=config.show_progress)
        results: list[CacheWriteResult] = []
        for position, job in enumerate(jobs):
            measured = None if profile is None else profile.measure(position, job.name)
            results.append(write_one(self._native, job, base, options, progress, profile=measured))
        return results


class WriteOptions(NamedTuple):
    """How one source is written: what of a `WriterConfig` matters then, in a form that costs other processes no import.

    Attributes:
        reuse: Use a cache that is there already, and do not write then.
        validate_cache: Verify the checksums of a cache before it is reused.
        on_stale: What to do when a cache that is there has another fingerprint than its source.
    """

    max_shard_bytes: int
    compression: str
    ratio: float
    level: int | None
    prefetch_size: int
    reuse: bool
    validate_cache: bool
    on_stale: Literal["error", "rebuild", "reuse"]


class WriteJob(NamedTuple):
    """A source that is to become a cache.

    Attributes:
        name: Its name, or a label when it has none.
        fingerprint: Its fingerprint, if it has one.
        problem: Why it cannot be written, if that is known already.
    """

    source: object
    name: str
    fingerprint: str | None = None
    problem: Exception | None = None


def write_one(
    native: Runtime,
    job: WriteJob,
    base: Path,
    options: WriteOptions,
    progress: Progress,
    *,
    profile: NativeWriteProfile | None = None,
) -> CacheWriteResult:
    """Write or reuse the cache of one source."""
    from dataset_rt._results import CacheWriteSuccess

    while True:
        settled = settle(native, job, base, options)
        if settled is not None:
            return settled
        try:
            native.write_source(
                job.source,
                job.name,
                base,
                fingerprint=job.fingerprint,
                # What stands there was found to be stale, or nothing does.
                replace_stale=options.reuse and options.on_stale == "rebuild",
                wait=options.reuse,
                max_shard_bytes=options.max_shard_bytes,
                compression=options.compression,
                ratio=options.ratio,
                level=options.level,
                prefetch_size=options.prefetch_size,
                progress=progress,
                profile=profile,
            )
        except CacheExistsError as error:
            if not options.reuse:
                return failure(job.name, error)
            # Another writer of this name was faster: look at what it wrote.
        except Exception as error:  # a source may raise anything, and the others still have their turn
            return failure(job.name, error)
        else:
            return CacheWriteSuccess(job.name, base / job.name)


def settle(native: Runtime, job: WriteJob, base: Path, options: WriteOptions) -> CacheWriteResult | None:
    """What becomes of a source that is not pulled from: it has a problem, or its cache is reused. None for one to be written."""
    from dataset_rt._results import CacheWriteSuccess

    if job.problem is not None:
        return failure(job.name, job.problem)
    target = base / job.name
    if not options.reuse or not os.path.lexists(target):
        return None
    try:
        found = native.check_cache(target, validate_cache=options.validate_cache)
    except Exception as error:
        return failure(job.name, error)
    if job.fingerprint is None or job.fingerprint == found or options.on_stale == "reuse":
        return CacheWriteSuccess(job.name, target)
    if options.on_stale == "rebuild":
        return None
    has = "none: it was written from a source without one" if found is None else _shortened(found)
    stale = CacheExistsError(
        f"{target} is stale: its fingerprint is {has}, and the source's is {_shortened(job.fingerprint)}; set "
        "WriterConfig(on_stale='rebuild') to replace it, or on_stale='reuse' to use it as it is, or give the source another name",
        kind="stale-cache",
        path=target,
    )
    return failure(job.name, stale)


def _shortened(fingerprint: str) -> str:
    """A fingerprint as a message shows it."""
    return repr(fingerprint if len(fingerprint) <= 40 else f"{fingerprint[:32]}...{fingerprint[-5:]}")


def _check_reader_config(config: object) -> None:
    from dataset_rt._config import ReaderConfig

    if not isinstance(config, ReaderConfig):
        raise TypeError(f"reader_config must be a ReaderConfig; got {type(config).__name__}")
    for name, value in (("seed", config.seed), ("prefetch_size", config.prefetch_size)):
        if not 0 <= value <= _MAX_U64:
            raise OverflowError(f"ReaderConfig: {name} must be 0 to 2**64 - 1; got {value}")
    if config.profiler.enabled:
        from dataset_rt._profile import check_writable

        check_writable(config.profiler.path)


def _writer_config(config: WriterConfig | None) -> WriterConfig:
    from dataset_rt._config import DEFAULT_WRITER_CONFIG, WriterConfig

    config = DEFAULT_WRITER_CONFIG if config is None else config
    if not isinstance(config, WriterConfig):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"writer_config must be a WriterConfig; got {type(config).__name__}")
    algo, ratio = config.shard_compression.algo, config.shard_compression.ratio
    if algo == "none" and ratio != 1.0:
        raise InvalidInputError(f"ShardCompression: ratio must be 1.0 for 'none'; got {ratio}", kind="invalid-config")
    if ratio == float("inf"):
        raise InvalidInputError("ShardCompression: ratio must be finite; got inf", kind="invalid-config")
    for name, value in (("max_shard_bytes", config.max_shard_bytes), ("prefetch_size", config.prefetch_size)):
        if value > _MAX_U64:
            raise InvalidInputError(f"WriterConfig: {name} must be below 2**64; got {value}", kind="invalid-config")
    return config


def _base_folder(path: object) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"path must be str or Path; got {type(path).__name__}")
    return Path(cast("str | os.PathLike[str]", path))


_UNLISTED: tuple[type, ...] = (tuple, set, frozenset, Iterator)
"""What several sources may have been put into by someone who forgot that only a list will do."""


def _name_sources(sources: object) -> list[WriteJob]:
    """Find the sources' names. A list is several sources; anything else is one."""
    listed = cast("list[object]", sources) if isinstance(sources, list) else [sources]
    jobs: list[WriteJob] = []
    for position, source in enumerate(listed):
        try:
            name = _name_of(source)
        except InvalidInputError as problem:
            jobs.append(WriteJob(source, f"source[{position}]", problem=problem))
            continue
        try:
            jobs.append(WriteJob(source, name, _fingerprint_of(source)))
        except InvalidInputError as problem:
            jobs.append(WriteJob(source, name, problem=problem))
    return jobs


def _name_of(source: object) -> str:
    try:
        name: object = getattr(source, "name")  # noqa: B009 - an object that may have anything
    except Exception as error:
        hint = "; pass several sources in a list" if isinstance(source, _UNLISTED) else ""
        why = f"the source has no usable name: {type(error).__name__}: {error}{hint}"
        raise InvalidInputError(why, kind="invalid-name") from error
    if not isinstance(name, str):
        raise InvalidInputError(f"the source's name must be str; got {type(name).__name__}", kind="invalid-name")
    reason = _unusable_name(name)
    if reason is not None:
        raise InvalidInputError(f"the source's name {name!r} {reason}", kind="invalid-name")
    return name


def _fingerprint_of(source: object) -> str | None:
    """The source's fingerprint, None for a source that has no such attribute."""
    absent = object()
    try:
        fingerprint: object = getattr(source, "fingerprint", absent)
        if fingerprint is absent and inspect.getattr_static(source, "fingerprint", absent) is not absent:
            fingerprint = getattr(source, "fingerprint")  # noqa: B009 - it is there, and raises AttributeError
    except Exception as error:
        why = f"the source's fingerprint could not be read: {type(error).__name__}: {error}"
        raise InvalidInputError(why, kind="invalid-fingerprint") from error
    if fingerprint is absent:
        return None
    if not isinstance(fingerprint, str):
        reason = f"must be str; got {type(fingerprint).__name__}; leave the attribute out where there is none"
    else:
        try:
            length = len(fingerprint.encode())
        except UnicodeEncodeError:
            reason = "has characters that UTF-8 cannot hold (lone surrogates)"
        else:
            if 0 < length <= _MAX_FINGERPRINT_BYTES:
                return fingerprint
            reason = f"has {length} bytes, and 1 to {_MAX_FINGERPRINT_BYTES} can be kept: use a hash of it"
    raise InvalidInputError(f"the source's fingerprint {reason}", kind="invalid-fingerprint")


def _unusable_name(name: str) -> str | None:
    """Why a name cannot be a folder's; the writer's own rules (docs/spec/v3.md, "Writing and publishing"), told early."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "has characters that UTF-8 cannot hold (lone surrogates)"
    if name in {"", ".", ".."}:
        return "is not a folder name"
    if "/" in name or "\0" in name:
        return "contains a '/' or a NUL character"
    if len(encoded) > 255:
        return f"has {len(encoded)} bytes, and file systems allow 255"
    if name.lower() == "tmp":
        return "is reserved for work folders"
    return None


def _check_names(jobs: Sequence[WriteJob]) -> None:
    """Refuse a call in which two sources would become one folder, also on a disk that ignores case."""
    import unicodedata

    seen: dict[str, str] = {}
    for job in jobs:
        if isinstance(job.problem, InvalidInputError) and job.problem.kind == "invalid-name":
            continue
        folded = unicodedata.normalize("NFC", job.name.casefold())
        if folded in seen:
            both = repr(job.name) if seen[folded] == job.name else f"{seen[folded]!r} and {job.name!r}"
            raise InvalidInputError(f"two sources would have one cache folder: {both}", kind="duplicate-name")
        seen[folded] = job.name


def failure(name: str, error: BaseException) -> CacheWriteError:
    """The error result of a source."""
    from dataset_rt._results import CacheWriteError

    message = str(error) if isinstance(error, DatasetRTError) else f"{type(error).__name__}: {error}"
    if isinstance(error, DatasetRTError) and error.kind in {"invalid-sample", "source-raised"}:
        message = f"source {name!r}, {message}"
    if isinstance(error, DatasetRTError) and error.kind == "not-a-cache":
        message = f"{message}; remove it, and the cache will be written"
    failure = CacheWriteError(name, message)
    failure.exception = error
    return failure


def _blamed(error: DatasetRTError, paths: Sequence[Path]) -> Path | None:
    """The cache that an error is about."""
    if error.path is None:
        return None
    culprit = Path(error.path)
    return next((path for path in paths if path == culprit or path in culprit.parents), None)


DatasetRuntime.__module__ = "dataset_rt.api"
