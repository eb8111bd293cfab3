"""`CachedDataset`: caches, the table that steers them, and the samples they give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from dataset_rt.exceptions import InvalidInputError, SampleIndexError

if TYPE_CHECKING:
    import polars as pl
    from typing_extensions import Self

    from dataset_rt._config import ReaderConfig
    from dataset_rt._native import Dataset as NativeDataset
    from dataset_rt._runtime import DatasetRuntime
    from dataset_rt._sample import CachedSample

_ID_COLUMNS = ("cache_id", "sample_id")
_WEIGHT = "weight"
_MAX_EPOCH_LEN = 2**63 - 1


class CachedDataset:
    """A view over caches: iterate it, and edit its table to decide what is drawn next.

    Made by `DatasetRuntime.cached_dataset` and `DatasetRuntime.from_cache_sources`. Threads may share it.
    """

    _runtime: DatasetRuntime
    _native: NativeDataset
    _cache_paths: list[Path]
    _reader_config: ReaderConfig

    def __init__(self) -> None:
        """Refuse: a dataset needs a runtime.

        Raises:
            TypeError: Always.
        """
        raise TypeError("use DatasetRuntime.cached_dataset or DatasetRuntime.from_cache_sources to open a dataset")

    @classmethod
    def _create(
        cls, runtime: DatasetRuntime, native: NativeDataset, cache_paths: list[Path], reader_config: ReaderConfig
    ) -> Self:
        dataset = cls.__new__(cls)
        dataset._runtime = runtime
        dataset._native = native
        dataset._cache_paths = cache_paths
        dataset._reader_config = reader_config
        return dataset

    @property
    def cache_paths(self) -> list[Path]:
        """The caches' folders as they were given, in a list of its own."""
        return list(self._cache_paths)

    @property
    def reader_config(self) -> ReaderConfig:
        """The configuration that the dataset was opened with."""
        return self._reader_config

    def __repr__(self) -> str:
        config = self._reader_config
        columns = ", ".join(f"{name}: {kind}" for name, kind in self._native.schema)
        order = f"shuffled, seed {config.seed}" if config.shuffle else "in table order"
        caches = "1 cache" if len(self._cache_paths) == 1 else f"{len(self._cache_paths)} caches"
        return f"CachedDataset({caches}, epoch of {len(self)} samples {order}, metadata {{{columns}}})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError("a CachedDataset uses threads and files of this process and cannot be pickled; open it in each process")

    def __iter__(self) -> Iterator[CachedSample]:
        """Take the next window of the stream.

        The table, the length and the window are fixed now: later edits do not touch this iterator. What it does not yield is
        skipped, since the next iterator goes on behind the whole window.

        Returns:
            An iterator of `len(self)` samples, without a Python frame between it and the native code. It raises
            `CorruptCacheError` or `StorageError` at a sample that cannot be read, after all earlier ones, and is then finished.

        Source: docs/explanation/order.md.
        """
        return self._native.iter()

    def __len__(self) -> int:
        """Samples that the next iterator will yield."""
        return self._native.epoch_len

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
        return self._native.metadata().clone()

    def update_metadata(self, metadata: pl.DataFrame) -> None:
        """Make another table active, for future iterators. Nothing on disk changes.

        Rows may be dropped, repeated and reordered, columns added and reordered. Samples keep their stored metadata, whatever the
        table says in its stored columns. The stream begins anew, and the epoch length becomes the number of rows.

        Args:
            metadata: A frame with `cache_id` and `sample_id` (integers that are loaded), every stored column in its type, and
                `weight` (any integer or float type; positive and finite; only ratios matter).

        Raises:
            TypeError: It is not a Polars DataFrame.
            InvalidInputError: A column is missing or has another type, a row is unknown, a weight is not positive and finite, or
                there are no rows (also a ValueError). The dataset is then as it was.
        """
        columns = _deciding_columns(metadata, self._native.schema)
        self._native.update_metadata(columns, metadata.clone())

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
    return pl.DataFrame([*columns, weight.cast(pl.Float64)])


def _refuse(reason: str) -> NoReturn:
    raise InvalidInputError(f"the metadata table was not accepted: {reason}", kind="invalid-table")


CachedDataset.__module__ = "dataset_rt.api"
