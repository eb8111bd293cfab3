"""`CachedDataset`: caches, the table that steers them, and the samples they give."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol, TypeVar, overload

from dataset_rt._origin import Origin, origin_of
from dataset_rt.exceptions import InvalidInputError, SampleIndexError, StoredColumnsIgnoredWarning

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    import polars as pl
    from typing_extensions import Self, Unpack

    from dataset_rt._config import ReaderConfig
    from dataset_rt._export import Contents
    from dataset_rt._map_dataset import MapDataset
    from dataset_rt._migration import ManifestUpdateError, ManifestUpdateReport, Result
    from dataset_rt._native import Dataset as NativeDataset
    from dataset_rt._profile import ReadProfile
    from dataset_rt._runtime import DatasetRuntime
    from dataset_rt._sample import CachedSample, Samples
    from dataset_rt._torch.loader import DatasetLoader
    from dataset_rt._torch.options import LoaderOptions

T = TypeVar("T")

_ID_COLUMNS = ("cache_id", "sample_id")
_WEIGHT = "weight"
_SHOWN_COLUMNS = 20
_SHOWN_CHARACTERS = 40
_MAX_EPOCH_LEN = 2**63 - 1
_MANY_CHUNKS = 1024


class CachedDataset:
    """A view over caches: iterate it, and edit its table to decide what is drawn next.

    Made by `DatasetRuntime.cached_dataset`, `DatasetRuntime.from_cache_sources` and `CachedDataset.from_config`. Threads may
    share it.
    """

    _runtime: DatasetRuntime
    _handle: NativeDataset | None
    _cache_paths: list[Path]
    _origins: list[Origin]
    _reader_config: ReaderConfig
    _profile: ReadProfile | None
    _table_edits: int = 0

    def __init__(self) -> None:
        """Refuse: a dataset needs a runtime.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "use DatasetRuntime.cached_dataset, DatasetRuntime.from_cache_sources or CachedDataset.from_config to open a dataset"
        )

    @classmethod
    def from_config(cls, path: str | Path) -> CachedDataset:
        """Make the dataset that `dump_config` saved, on a runtime of its own.

        A cache is looked for at its absolute path, then at its place as seen from the export: folders that were moved together
        are found. The first that is the exported cache, by identity, length and checksums of its manifest, is opened.

        Args:
            path: The export's `dataset.json`; the public package's exports (their version 2) are read as well.

        Returns:
            A dataset with the saved configuration, table and epoch length, at the beginning of its stream, on as many threads as
            the saved one had.

        Raises:
            TypeError: `path` is neither str nor Path.
            CacheNotFoundError: There is no such file, or a cache is at none of its places.
            InvalidInputError: `path` is a folder, or the table has rows that the caches do not have.
            CorruptCacheError: A file of the export was damaged, or a cache is another one than was exported; and what
                `DatasetRuntime.cached_dataset` finds.
            UnsupportedVersionError: An export of another version.
            StorageError: The file system refused.

        Source: docs/spec/export.md, "What readers check".
        """
        from dataset_rt import _export

        return _export.load(path)

    @classmethod
    def _create(
        cls,
        runtime: DatasetRuntime,
        native: NativeDataset,
        cache_paths: list[Path],
        reader_config: ReaderConfig,
        profile: ReadProfile | None,
    ) -> Self:
        dataset = cls.__new__(cls)
        dataset._runtime = runtime
        dataset._handle = native
        dataset._cache_paths = cache_paths
        dataset._origins = [origin_of(path) for path in cache_paths]
        dataset._reader_config = reader_config
        dataset._profile = profile
        if profile is not None:
            # When the dataset is collected, at the latest when the program ends.
            weakref.finalize(dataset, profile.save)
        return dataset

    @property
    def cache_paths(self) -> list[Path]:
        """The caches' folders as they were given, in a list of its own."""
        return list(self._cache_paths)

    @property
    def reader_config(self) -> ReaderConfig:
        """The configuration that the dataset was opened with."""
        return self._reader_config

    @property
    def _native(self) -> NativeDataset:
        if self._handle is None:
            raise InvalidInputError("this CachedDataset is closed; open the caches again", kind="closed")
        return self._handle

    def close(self) -> None:
        """Let go of files and memory. Iterators and tables taken before stay usable; closing again does nothing."""
        self._handle = None
        if self._profile is not None:
            self._profile.save()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def _summary(self) -> list[tuple[str, str]]:
        """What a person wants to know first, from what is in memory anyway."""
        config, count = self._reader_config, len(self._cache_paths)
        caches = "1 cache" if count == 1 else f"{count} caches"
        if self._handle is None:
            return [("caches", caches), ("state", "closed")]
        columns = [f"{_shown(name)}: {kind}" for name, kind in self._handle.schema]
        if len(columns) > _SHOWN_COLUMNS:
            columns[_SHOWN_COLUMNS:] = [f"and {len(columns) - _SHOWN_COLUMNS} more"]
        orders = {"weighted": "shuffled", "sequential": "in table order", "permutation": "permuted"}
        order = orders[config.order] + (f", seed {config.seed}" if config.shuffle else "")
        return [
            ("caches", caches),
            ("epoch", f"epoch of {len(self)} samples {order}"),
            ("metadata", f"metadata {{{', '.join(columns)}}}"),
        ]

    def __repr__(self) -> str:
        return f"CachedDataset({', '.join(text for _, text in self._summary())})"

    def _repr_html_(self) -> str:
        """The same for notebooks."""
        import html

        rows = "".join(f"<tr><td>{html.escape(text)}</td></tr>" for _, text in self._summary())
        return f"<table><thead><tr><th>CachedDataset</th></tr></thead><tbody>{rows}</tbody></table>"

    def __copy__(self) -> Self:
        """Another name for the same table and stream, with a `close` of its own."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        return twin

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a CachedDataset uses threads and files of this process and cannot be pickled; open it in each process")

    def __iter__(self) -> Samples:
        """Take the next window of the stream.

        The table, the length and the window are fixed now: later edits do not touch this iterator. What it does not yield is
        skipped, since the next iterator goes on behind the whole window.

        Returns:
            An iterator of `len(self)` samples, without a Python frame between it and the native code unless it is profiled.
            It raises `CorruptCacheError` or `StorageError` at a sample that cannot be read, after all earlier ones, and is then
            finished. It has a `state_dict`, a `load_state_dict` and a `close` of its own.

        Source: docs/explanation/order.md.
        """
        if self._profile is not None:
            from dataset_rt._profile import ProfiledIterator

            return ProfiledIterator(self._native.iter(), self._profile)
        return self._native.iter()

    def __len__(self) -> int:
        """Samples that the next iterator will yield."""
        return self._native.next_len

    def state_dict(self) -> dict[str, Any]:
        """Say where in its stream the dataset is.

        In the middle of an epoch that is the place behind the last sample that the newest iterator yielded, also when the loop
        was left; `iterator.close()` gives the rest of its window up. `state_dict` of an iterator says where that one is.

        Returns:
            A dict that fits into JSON, under 1 KiB whatever the data: the plan (version, order, seed, number of rows, and SHA-256
            digests of the caches' checksums, of the active rows and of the weights), `pass` (windows taken before this one since
            the table was set), `position` (in the stream, samples), `rest` (samples left in the window, 0 when it is complete)
            and `epoch_len`.

        Source: docs/explanation/order.md, "Going on after a restart".
        """
        return self._native.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on from a place in the stream.

        The next iterator yields the rest of the window that the state was in the middle of, if it was in one; those after it
        yield `epoch_len` samples each. Open the same caches, and set the same table first: a state holds neither.

        Args:
            state: What `state_dict` of a dataset or of its iterator returned, in any process.
            strict: Refuse the state of a stream that would go on differently. Otherwise go on by position all the same.

        Raises:
            InvalidInputError: It is not such a state (also a ValueError).
            StateMismatchError: It is of another stream; the message says what differs. The dataset is then as it was.
        """
        if not isinstance(state, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidInputError("this is no state of a dataset: it is not a dict", kind="invalid-state")
        self._native.load_state_dict(dict(state), strict)

    def set_epoch_len(self, epoch_len: int) -> None:
        """Set how many samples each future iterator yields. The place in the stream stays.

        Args:
            epoch_len: Samples, at least 1. The stream wraps around, or goes on drawing.

        Raises:
            InvalidInputError: It is below 1 (also a ValueError); nothing changes.
            OverflowError: It is beyond 2**63 - 1; nothing changes.
            TypeError: It is not an integer.
        """
        import operator

        epoch_len = operator.index(epoch_len)
        if epoch_len < 1:
            raise InvalidInputError(f"epoch_len must be at least 1; got {epoch_len}", kind="invalid-epoch-length")
        if epoch_len > _MAX_EPOCH_LEN:
            raise OverflowError(f"epoch_len must be at most 2**63 - 1; got {epoch_len}")
        self._native.set_epoch_len(epoch_len)

    def get_item(self, cache_id: int, sample_id: int) -> CachedSample:
        """Read one stored sample, leaving iterators and the place in the stream where they are.

        Args:
            cache_id: Identity from the `cache_id` column.
            sample_id: Row within that cache, from 0. Whether the active table has it does not matter.

        Returns:
            The sample.

        Raises:
            TypeError: An id is not an integer (bool is none).
            SampleIndexError: No such sample is loaded (also an IndexError).
            CorruptCacheError: The stored bytes fail their checksum or cannot be decoded.
            StorageError: The file system refused.

        Source: docs/spec/v3.md, "Index" and "Record".
        """
        return self._native.get_item(_id(cache_id, "cache_id"), _id(sample_id, "sample_id"))

    def get_many(self, ids: Iterable[tuple[int, int]]) -> list[CachedSample]:
        """Read stored samples in one native call, in the order asked for.

        Args:
            ids: Pairs of `cache_id` and `sample_id`, repeats allowed.

        Returns:
            One sample per pair.

        Raises:
            TypeError: An id is not an integer.
            SampleIndexError: One of the samples is not loaded (also an IndexError); nothing is read.
            CorruptCacheError: The stored bytes of one fail their checksum or cannot be decoded.
            StorageError: The file system refused.
        """
        pairs = [(_id(cache_id, "cache_id"), _id(sample_id, "sample_id")) for cache_id, sample_id in ids]
        return self._native.get_many(pairs)

    def get_metadata(self) -> pl.DataFrame:
        """Return the active table.

        Returns:
            `cache_id` and `sample_id` (UInt64), the stored columns (Boolean, Int64, Float64, String), `weight` (Float64),
            and whatever columns the last `update_metadata` brought. One row per active row. Buffers are shared with the dataset,
            numbers even with the mapped file: the frame costs next to nothing, and editing it changes nothing here.

        Raises:
            CorruptCacheError: A cache's metadata cannot be shown as a table (its samples may still be readable).
        """
        return _frame(self._native.metadata()).clone()

    def update_metadata(self, metadata: pl.DataFrame) -> None:
        """Make another table active, for future iterators. Nothing on disk changes.

        Rows may be dropped, repeated and reordered, columns added and reordered. Samples keep their stored metadata, whatever the
        table says in its stored columns: where it says something else, a `StoredColumnsIgnoredWarning` is issued before the table
        becomes active (a filter that makes it an error keeps the old table). The stream begins anew, and the epoch length becomes
        the number of rows.

        Args:
            metadata: A frame with `cache_id` and `sample_id` (integers that are loaded), every stored column in its type, and
                `weight` (any integer or float type; positive and finite; only ratios matter).

        Raises:
            TypeError: It is not a Polars DataFrame.
            InvalidInputError: A column is missing or has another type, a row is unknown, a weight is not positive and finite, or
                there are no rows (also a ValueError). The dataset is then as it was.
        """
        native = self._native
        columns = _deciding_columns(metadata, native.schema)
        table, ignored = native.prepare_metadata(columns, _ActiveFrame(metadata.clone()))
        if ignored:
            _warn_of_ignored_columns(columns, ignored)
        native.activate(table)
        self._table_edits += 1

    def dump_config(self, path: str | Path) -> Path:
        """Save configuration, paths, active table and epoch length, so that any process can make this dataset again.

        Payloads are not copied: the caches are referred to, by absolute path and by their place as seen from the export. The
        place in the stream is not saved. Three files appear in the folder, `dataset.json` last: stopped at any moment there is a
        whole export or none, and files that are there are never replaced.

        Args:
            path: An existing folder without an export. What else is in it does not matter.

        Returns:
            The absolute path of `dataset.json`, for `from_config`.

        Raises:
            TypeError: `path` is neither str nor Path.
            CacheNotFoundError: There is no such folder, or a cache is no longer where it was opened.
            InvalidInputError: `path` is not a folder, or the table has a column that Arrow files do not keep (Object, say).
            CacheExistsError: The folder holds an export, or a file that would be in the way; nothing is changed.
            CorruptCacheError: A cache was replaced by another since it was opened.
            StorageError: The file system refused.

        Source: docs/spec/export.md, "Writing".
        """
        from dataset_rt import _export

        return _export.dump(path, self._origins, self._contents)

    def _contents(self) -> Contents:
        """What an export says, as of one moment: no update may come between the table and the length."""
        from dataset_rt._export import Contents

        while True:
            before, epoch_len, after = self._native.metadata(), self._native.epoch_len, self._native.metadata()
            # Stored metadata is a new frame each time; once a table was set, it is never active again.
            if before is after or not isinstance(after, _ActiveFrame):
                return Contents(_frame(after), epoch_len, self._runtime.num_workers, self._reader_config)

    def update_manifests(self, version: Literal[3]) -> Result[ManifestUpdateReport, ManifestUpdateError]:
        """Make the manifests of format 2 format 3, with the identities that the caches have in this dataset.

        In format 2 a cache's identity is its place among the paths, so open the caches in the order that saved tables were made
        with. All manifests are looked at before the first is replaced, each in one step; keys that the format does not define
        stay letter for letter. Samples, the active table and the stream are not touched. Nobody else may change the manifests
        meanwhile. After an error, mend the cause and call again: what was replaced counts as unchanged.

        Args:
            version: The format to write. There is no other than 3.

        Returns:
            `Ok` of a report with one entry per cache, or `Err` that says which manifest is the reason and what was done before.
            Nothing is raised for another version, a manifest that changed since the caches were opened, or a file system that
            refuses.

        Source: docs/spec/v3.md, "Migration".
        """
        from dataset_rt._migration import (
            AbsentManifestTarget,
            Err,
            ManifestUpdateEntry,
            ManifestUpdateError,
            ManifestUpdateReport,
            Ok,
        )

        if type(version) is not int or version != 3:
            absent = AbsentManifestTarget("the request names no format that manifests can be made")
            return Err(ManifestUpdateError(absent, f"manifests can only be made version 3; got {version!r}"))
        done, failure = self._native.update_manifests()
        entries = tuple(ManifestUpdateEntry(path, cache_id, status) for path, cache_id, status in done)
        if failure is None:
            return Ok(ManifestUpdateReport(entries))
        path, message = failure
        return Err(ManifestUpdateError(path, message, entries))

    @overload
    def to_torch_map_dataset(self, *, transform: None = None, native_num_workers: int = 1) -> MapDataset[CachedSample]: ...
    @overload
    def to_torch_map_dataset(self, *, transform: Callable[[CachedSample], T], native_num_workers: int = 1) -> MapDataset[T]: ...

    def to_torch_map_dataset(
        self, *, transform: Callable[[CachedSample], Any] | None = None, native_num_workers: int = 1
    ) -> MapDataset[Any]:
        """Make a map-style dataset of the active table: row numbers in, samples out, a whole batch in one native call.

        It is a snapshot: later `update_metadata` calls do not change it, and it neither uses nor moves the place in the stream.
        PyTorch's own `DataLoader` takes it with any sampler, batch sampler and start method; PyTorch need not be installed. The
        samplers of `dataset_rt.samplers` choose rows by weight, class or length.

        Args:
            transform: Applied to each sample where it is read. For loading processes that are spawned it must be picklable.
            native_num_workers: Threads of each process that reads a copy of it, at least 1. This process uses its runtime's.

        Returns:
            The dataset, with as many items as the table has rows.

        Raises:
            TypeError: `transform` cannot be called, or the number is not an integer.
            InvalidInputError: The number is below 1 (also a ValueError), or the dataset is closed.

        Source: docs/guides/map-style.md.
        """
        from dataset_rt._map_dataset import MapDataset

        return MapDataset._create(self, transform, native_num_workers)  # pyright: ignore[reportPrivateUsage]

    def to_torch_iterable_dataset(self) -> SizedTorchIterableDataset:
        """Make a `torch.utils.data.IterableDataset` of this dataset, for loading in the training process.

        Iterating it is iterating the dataset: each pass takes, with its first step, the next window of the stream, and its length
        is the dataset's, now and later. Nothing is decoded. Its `state_dict` and `load_state_dict` are the dataset's, which is
        all that torchdata's `StatefulDataLoader` asks for. It refuses to work in a loading process, where every process would
        yield everything, and it cannot be pickled; `to_torch_dataloader` divides samples over processes.

        Returns:
            The dataset for `DataLoader(..., num_workers=0)`.

        Raises:
            ImportError: PyTorch is not installed.
        """
        from dataset_rt._torch import require_torch

        require_torch()
        from dataset_rt._torch.data import DatasetView

        return DatasetView(self)

    @overload
    def to_torch_dataloader(
        self,
        *,
        sample_transform_fn: Callable[[CachedSample], T],
        collate_fn: Callable[[list[T]], Any],
        **options: Unpack[LoaderOptions],
    ) -> DatasetLoader[CachedSample | T]: ...
    @overload
    def to_torch_dataloader(
        self,
        *,
        sample_transform_fn: None = None,
        collate_fn: Callable[[list[CachedSample]], Any],
        **options: Unpack[LoaderOptions],
    ) -> DatasetLoader[CachedSample]: ...
    @overload
    def to_torch_dataloader(
        self,
        *,
        sample_transform_fn: Callable[[CachedSample], T] | None = None,
        collate_fn: None = None,
        **options: Unpack[LoaderOptions],
    ) -> DatasetLoader[CachedSample | T]: ...

    def to_torch_dataloader(
        self,
        *,
        shuffle: bool = True,
        order: Literal["weighted", "sequential", "permutation"] | None = None,
        seed: int | Literal["random"] = "random",
        samples_per_epoch: int | None = None,
        worker_partition: Literal["split", "replicate", "stream"] | None = None,
        work_dir: str | Path | None = None,
        batch_size: int = 1,
        num_workers: int | Literal["auto"] = "auto",
        sample_transform_fn: Callable[[CachedSample], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        pin_memory: bool = False,
        timeout: float = 0,
        native_num_workers: int | Literal["auto"] = "auto",
        multiprocessing_context: Literal["inherit", "fork", "spawn", "forkserver"] | BaseContext = "spawn",
        worker_init_fn: Callable[[int], None] | None = None,
        prefetch_factor: int | Literal["auto"] = "auto",
        persistent_workers: bool | Literal["auto"] = "auto",
        verbose: bool = True,
        dataloader_kwargs: Mapping[str, Any] | None = None,
    ) -> DatasetLoader[Any]:
        """Make a `torch.utils.data.DataLoader` of finite passes over this dataset, for any number of processes.

        The loader is a snapshot: table, length, `prefetch_size`, `validate_cache` and `io` are taken now, and the dataset's place
        in its stream is neither used nor moved. After `update_metadata` the next pass warns; `loader.refresh(dataset)` hands the
        new table to the loader and to its living processes. The dataset's own `shuffle` and `seed` are not used either: say here
        what the loader shall do.

        *How many.* `samples_per_epoch` samples a pass over all ranks, before batching. Of R ranks each gets ceil(N/R), and with
        `drop_last` B·floor(N/(R·B)); rank 0 warns when that repeats or drops samples. `len(loader)`, in batches, is exact and the
        same on all ranks. Each loading process gets whole batches, the last one that has work also the rest. With `"stream"`
        every batch is full: a pass has ceil(N/(R·B)) of them on each rank, and begins with the next samples of the stream.

        *Which.* With `"replicate"` every consumer (loading process, or training process that loads itself) has the whole table;
        with `"split"` the rows are divided over ranks, then over their processes. Shuffled, a consumer draws its rows by weight,
        with replacement, with a seed of its own; a split is made in one permutation for all. In table order, rows come
        cyclically. No row is left out for ever: what a pass does not reach, a later one does. With `"stream"` all consumers take
        turns in one stream, drawn with the loader's seed: what comes depends on the product of ranks and batch size, and on
        nothing else about ranks and processes.

        *Pass after pass* the stream goes on behind the last batch delivered, also when a pass was given up. Only with `"split"`
        and `"replicate"`, processes that are not persistent begin anew in each pass and repeat it, and a warning says so.

        *Stop and go on.* `loader.state_dict()` says where the loader is, and `loader.load_state_dict(state)` has the next pass go
        on there, in any process.

        *Several training processes.* Each makes its loaders in the same order, over the same table. The loader divides the
        samples itself. Trainers that do so too (Accelerate's `prepare`, say), and one process that loads alone, which would wait
        for the others here, take a stock DataLoader over `to_torch_map_dataset()`.

        Numbers that transforms draw themselves are torch's matter: it seeds each loading process from its `base_seed`.

        Args:
            shuffle: Draw rows by weight; otherwise they come in table order.
            order: `"weighted"` and `"sequential"` say the same; the latter needs no `shuffle=False`. `"permutation"`, with
                `worker_partition="stream"` alone, gives each row once per table's length, in another order each time.
            seed: 0 to 2**64 - 1, with `shuffle` alone. `"random"`: chosen once, now, and the same on all ranks.
            samples_per_epoch: 1 to 2**53; None for `len(self)`. With more than the table has, rows repeat.
            worker_partition: None for `"replicate"` when drawn by weight, `"split"` in table order, `"stream"` for a permutation.
            work_dir: An existing folder, in which a sub-folder with an export of the dataset and the loader's files stays. None:
                a temporary folder, only with loading processes, which goes away with the loader.
            batch_size: Samples of a batch, at least 1.
            num_workers: Loading processes of each rank. `"auto"`: this rank's share of the processors less one, up to 4.
            sample_transform_fn: Applied to each sample. For loading processes it must be picklable, with any start method.
            collate_fn: Gets a list of samples, or of what the transform made of them, also when it is one. None: torch's own.
            drop_last: Drop incomplete batches.
            pin_memory: As torch's.
            timeout: Seconds that torch waits for a batch of a loading process; 0 for ever.
            native_num_workers: Native threads of each consumer. `"auto"`: its share of the processors, 1 to 4.
            multiprocessing_context: How loading processes start; `"inherit"` is Python's default.
            worker_init_fn: Called in each loading process with its number, when the caches are open.
            prefetch_factor: Batches that each loading process has ready. `"auto"`: 2.
            persistent_workers: Whether loading processes live on between passes. `"auto"`: yes.
            verbose: Log, on `dataset_rt.loader` at level INFO, what was resolved, and when consumers start and begin a pass; to
                standard error where logging is not set up.
            dataloader_kwargs: More options of torch's DataLoader.

        Returns:
            The loader, a `DataLoader` with the methods `refresh`, `state_dict` and `load_state_dict`.

        Raises:
            ImportError: PyTorch is not installed.
            InvalidInputError: An argument or a combination of them cannot be (also a ValueError), types are exact; or training
                processes gave different tables, orders, partitions, batch sizes, `drop_last`, numbers of samples or, unless each
                consumer has its own (`"replicate"`), seeds.
            CacheNotFoundError: There is no folder `work_dir`, or a cache is no longer where it was opened.
            TypeError: A function cannot be pickled for loading processes, or torch does not know an option.
            StorageError: The folder could not be written.

        Source: docs/explanation/loading.md.
        """
        from dataset_rt._torch import require_torch

        require_torch()
        from dataset_rt._torch.loader import build

        return build(
            self,
            shuffle=shuffle,
            order=order,
            seed=seed,
            samples_per_epoch=samples_per_epoch,
            worker_partition=worker_partition,
            work_dir=work_dir,
            batch_size=batch_size,
            num_workers=num_workers,
            sample_transform_fn=sample_transform_fn,
            collate_fn=collate_fn,
            drop_last=drop_last,
            pin_memory=pin_memory,
            timeout=timeout,
            native_num_workers=native_num_workers,
            multiprocessing_context=multiprocessing_context,
            worker_init_fn=worker_init_fn,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            verbose=verbose,
            dataloader_kwargs=dataloader_kwargs,
        )

    def samples_metadata(self) -> pl.DataFrame:
        """Return the active table: an older name of `get_metadata`.

        Returns:
            As `get_metadata`.

        Raises:
            CorruptCacheError: As `get_metadata`.
        """
        return self.get_metadata()

    def set_samples_metadata(self, metadata: pl.DataFrame) -> None:
        """Make another table active: an older name of `update_metadata`.

        Args:
            metadata: As in `update_metadata`.

        Raises:
            TypeError: It is not a Polars DataFrame.
            InvalidInputError: It was refused; the dataset is as it was.
        """
        self.update_metadata(metadata)


class SizedTorchIterableDataset(Protocol):
    """What `CachedDataset.to_torch_iterable_dataset` gives: a torch `IterableDataset` that knows its length."""

    def __iter__(self) -> Iterator[CachedSample]:
        """Yield the samples of the dataset's next window."""
        ...

    def __len__(self) -> int:
        """Samples of a pass, as the dataset has it now."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Say where in its stream the dataset is, as `CachedDataset.state_dict`."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass go on from a place, as `CachedDataset.load_state_dict`.

        Args:
            state: What `state_dict` returned.

        Raises:
            InvalidInputError: It is not such a state.
            StateMismatchError: It is of another stream.
        """
        ...


class _ActiveFrame:
    """A frame that was made active, as the native side keeps it: one object per update."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self.frame = frame


def _frame(kept: pl.DataFrame | _ActiveFrame) -> pl.DataFrame:
    return kept.frame if isinstance(kept, _ActiveFrame) else kept


def _shown(name: str) -> str:
    """A column's name on one line, whatever is in it."""
    name = name if len(name) <= _SHOWN_CHARACTERS else name[:_SHOWN_CHARACTERS] + "…"
    return name if name.isprintable() else repr(name)


def _id(value: object, name: str) -> int:
    """An identity as a plain int that the native side can take."""
    import operator

    kind = type(value)
    if kind is not int:
        if isinstance(value, bool) or kind.__name__ in {"bool", "bool_"}:
            raise TypeError(f"{name} must be an integer; got {kind.__name__}")
        try:
            value = operator.index(value)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"{name} must be an integer; got {kind.__name__}") from None
    assert isinstance(value, int)
    if not 0 <= value < 2**64:
        raise SampleIndexError(f"{name} {value} is not loaded", kind="index-out-of-bounds")
    return value


def _deciding_columns(metadata: object, schema: list[tuple[str, str]]) -> pl.DataFrame:
    """The columns that decide whether a table is accepted, in types that the native side knows.

    Everything else in the frame is the caller's and is not looked at, so it may have any type that Polars has.
    """
    import polars as pl

    if not isinstance(metadata, pl.DataFrame):
        hint = "; call .collect() first" if isinstance(metadata, pl.LazyFrame) else ""
        raise TypeError(f"metadata must be a polars DataFrame; got {type(metadata).__name__}{hint}")
    types = metadata.schema
    stored_types = {"bool": pl.Boolean, "int": pl.Int64, "float": pl.Float64, "string": pl.String}
    expected = {name: stored_types[kind] for name, kind in schema}
    for name in (*_ID_COLUMNS, *expected, _WEIGHT):
        if name not in types:
            _refuse(f"the column {name!r} is missing")
    for name, dtype in expected.items():
        if types[name] != dtype:
            _refuse(f"the stored column {name!r} has type {types[name]} and must keep its type {dtype}")
    for name in _ID_COLUMNS:
        if not any(types[name] == dtype for dtype in (pl.Int32, pl.Int64, pl.UInt32, pl.UInt64)):
            _refuse(f"the column {name!r} has type {types[name]} and must be a 32- or 64-bit integer")
    weight = metadata[_WEIGHT]
    if not (weight.dtype.is_integer() or weight.dtype.is_float()):
        _refuse(f"the column 'weight' has type {weight.dtype} and must be numeric")
    columns = [metadata[name] for name in (*_ID_COLUMNS, *expected)]
    deciding = pl.DataFrame([*columns, weight.cast(pl.Float64)])
    # A chunk costs as much to take over as thousands of rows.
    return deciding.rechunk() if deciding.n_chunks() > _MANY_CHUNKS else deciding


def _warn_of_ignored_columns(table: pl.DataFrame, ignored: list[tuple[str, int, int, int, bool | int | float | str]]) -> None:
    """Say which stored columns a table changes, with the first row of the first of them."""
    import warnings

    names = tuple(name for name, *_ in ignored)
    name, row, cache_id, sample_id, stored = ignored[0]
    shown = ", ".join(repr(_shown(each)) for each in names[:_SHOWN_COLUMNS])
    if len(names) > _SHOWN_COLUMNS:
        shown += f" and {len(names) - _SHOWN_COLUMNS} more"
    message = (
        f"the table changes the stored {'column' if len(names) == 1 else 'columns'} {shown}, and samples keep what their caches "
        f"hold: row {row} (cache_id {cache_id}, sample_id {sample_id}) has {_shown_value(table[name][row])} in {_shown(name)!r}, "
        f"and the sample {_shown_value(stored)}; put new values into a column of another name"
    )
    warnings.warn(StoredColumnsIgnoredWarning(message, columns=names), stacklevel=_callers_level())


def _callers_level() -> int:
    """The `stacklevel` for the caller of this function that makes a warning point outside the package."""
    import inspect

    level, frame = 0, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] == "dataset_rt":
        level, frame = level + 1, frame.f_back
    # This function's own frame was counted, and `stacklevel` counts its caller as 1.
    return max(level, 1)


def _shown_value(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "…"


def _refuse(reason: str) -> NoReturn:
    raise InvalidInputError(f"the metadata table was not accepted: {reason}", kind="invalid-table")


CachedDataset.__module__ = SizedTorchIterableDataset.__module__ = "dataset_rt.api"
