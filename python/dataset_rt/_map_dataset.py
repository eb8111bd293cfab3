"""`MapDataset`: the rows of a table by number, for PyTorch's own DataLoader and for anybody else. Nothing here imports torch."""

from __future__ import annotations

import operator
import os
import weakref
from collections.abc import Callable, Iterable
from multiprocessing.context import get_spawning_popen
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, SupportsIndex, TypeVar, cast

from dataset_rt._calls import called_for_each
from dataset_rt._native import Runtime
from dataset_rt._torch.artifacts import Folder
from dataset_rt._torch.options import check_picklable
from dataset_rt.exceptions import InvalidInputError, SampleIndexError

if TYPE_CHECKING:
    import polars as pl

    from dataset_rt._dataset import CachedDataset
    from dataset_rt._native import TableView
    from dataset_rt._sample import CachedSample

T_co = TypeVar("T_co", covariant=True)


class MapDataset(Generic[T_co]):
    """A table as it was at one moment, as a map-style dataset: row numbers in, samples out.

    Made by `CachedDataset.to_torch_map_dataset`. It goes wherever PyTorch takes a map-style dataset, with any sampler, and needs
    no torch itself. Threads and processes may share it: pickled, it is a handle of some hundred bytes, and whoever unpickles it
    maps the table and the caches. A forked child reads with a runtime of its own.

    The first pickling saves the table in a temporary folder, 4 to 24 bytes a row. The folder goes away with the last copy in the
    process that saved it, and with that process at the latest, whatever happens to others; only when it is killed itself does it
    leave the folder.
    """

    _num_rows: int
    _threads: int
    _transform: Callable[[CachedSample], T_co] | None
    _paths: list[str]
    _options: dict[str, Any]
    _table: _TableFile | None = None
    _opened: tuple[int, TableView] | None
    _source: Any

    def __init__(self) -> None:
        """Refuse: it is made of a dataset.

        Raises:
            TypeError: Always.
        """
        raise TypeError("use CachedDataset.to_torch_map_dataset to make a map-style dataset")

    @classmethod
    def _create(
        cls, dataset: CachedDataset, transform: Callable[[CachedSample], Any] | None, native_num_workers: int
    ) -> MapDataset[Any]:
        threads = operator.index(native_num_workers)
        if threads < 1:
            raise InvalidInputError(f"native_num_workers must be at least 1; got {threads}", kind="invalid-argument")
        if transform is not None and not callable(transform):
            raise TypeError(f"transform must be callable; got {type(transform).__name__}")
        config, native = dataset.reader_config, dataset._native  # pyright: ignore[reportPrivateUsage]
        view = native.view()
        made: MapDataset[Any] = cls.__new__(cls)
        made._num_rows, made._threads, made._transform = view.num_rows, threads, transform
        made._paths = [origin.path for origin in dataset._origins]  # pyright: ignore[reportPrivateUsage]
        # Who opens the caches again does not hash them again.
        made._options = {"prefetch_size": config.prefetch_size, "validate_cache": False, "io": config.io}
        made._opened, made._source = (os.getpid(), view), native
        return made

    def __len__(self) -> int:
        """Rows of the table."""
        return self._num_rows

    def __getitem__(self, row: SupportsIndex) -> T_co:
        """Read one row.

        Args:
            row: Its number in the table. Negative ones count from the end, as in lists.

        Returns:
            The sample, or what `transform` made of it.

        Raises:
            TypeError: It is not an integer (a slice is none).
            SampleIndexError: There is no such row (also an IndexError).
            CorruptCacheError: The stored bytes fail their checksum or cannot be decoded.
            StorageError: The file system refused.
            InvalidInputError: The process that saved the table is done with it.
        """
        if isinstance(cast(object, row), slice):
            raise TypeError("rows are read by number; __getitems__ takes several numbers")
        (sample,) = self.__getitems__((row,))
        return sample

    def __getitems__(self, rows: Iterable[SupportsIndex]) -> list[T_co]:
        """Read several rows in one native call, in the order asked for. PyTorch's DataLoader calls it once per batch.

        Args:
            rows: Their numbers, repeats allowed.

        Returns:
            One sample per number, or what `transform` made of it.

        Raises:
            TypeError: One is not an integer.
            SampleIndexError: One of the rows is not there; nothing is read.
            CorruptCacheError: As for one row.
            StorageError: As for one row.
            InvalidInputError: As for one row.
        """
        numbers = [operator.index(row) for row in rows]
        if numbers and (min(numbers) < 0 or max(numbers) >= self._num_rows):
            numbers = [self._from_start(number) for number in numbers]
        samples = self._view.read(numbers)
        if self._transform is None:
            return samples  # type: ignore[return-value]
        return called_for_each("transform", self._transform, samples)

    def _from_start(self, row: int) -> int:
        if not -self._num_rows <= row < self._num_rows:
            raise SampleIndexError(f"there is no row {row}: the dataset has {self._num_rows}", kind="index-out-of-bounds")
        return row % self._num_rows

    def get_metadata(self) -> pl.DataFrame:
        """Return the table that rows are numbered by.

        Returns:
            As `CachedDataset.get_metadata` was when this dataset was made.

        Raises:
            CorruptCacheError: A cache's metadata cannot be shown as a table.
            InvalidInputError: This is a copy that came from a pickle: only where it was made is the table a frame.
        """
        if self._source is None:
            raise InvalidInputError(
                "a map-style dataset that was pickled has no table to show; ask the one that it was made from",
                kind="invalid-argument",
            )
        original = self._view.original
        frame: pl.DataFrame = self._source.stored_metadata() if original is None else original.frame
        return frame.clone()

    @property
    def _view(self) -> TableView:
        """The rows, by threads of this process."""
        opened, process = self._opened, os.getpid()
        if opened is not None and opened[0] == process:
            return opened[1]
        runtime = Runtime(num_workers=self._threads)
        if opened is not None:  # forked: the parent's files are here, its threads are not
            view = opened[1].on(runtime)
        else:
            assert self._table is not None, "what came from a pickle has a file"
            if not self._table.path.exists():
                raise InvalidInputError(
                    "the process that pickled this dataset ended, or let go of it, before it was read from here; keep it alive",
                    kind="closed",
                    path=self._table.path,
                )
            view = runtime.open_view([*map(Path, self._paths)], self._table.path, **self._options)
        self._opened = (process, view)
        return view

    def __reduce__(self) -> tuple[object, ...]:
        if get_spawning_popen() is not None:  # other picklers may know what to do with a lambda
            check_picklable("transform", self._transform)
        table = self._table
        if table is None:
            # One file, whichever thread is first.
            table = vars(self).setdefault("_table", _TableFile.save(self._view))
        state = {name: value for name, value in vars(self).items() if name not in {"_table", "_opened", "_source"}}
        return _restore, (type(self), state, str(table.path))

    def __repr__(self) -> str:
        caches = "1 cache" if len(self._paths) == 1 else f"{len(self._paths)} caches"
        return f"MapDataset({caches}, {self._num_rows} rows)"


def _restore(cls: type[MapDataset[Any]], state: dict[str, Any], table: str) -> MapDataset[Any]:
    """Make a dataset again from its pickled parts. Nothing is opened before the first read."""
    made: MapDataset[Any] = cls.__new__(cls)
    vars(made).update(state, _table=_TableFile.at(table), _opened=None, _source=None)
    return made


class _TableFile:
    """A table in a file that processes map. Where it was saved it is removed with the last reference to this object.

    Attributes:
        path: The file, absolute.
    """

    _saved: ClassVar[weakref.WeakValueDictionary[str, _TableFile]] = weakref.WeakValueDictionary()

    def __init__(self, path: Path, folder: Folder | None = None) -> None:
        self.path, self._folder = path, folder

    @classmethod
    def save(cls, view: TableView) -> _TableFile:
        """Write a table into a folder of its own."""
        folder = Folder(None)
        made = cls(folder.path / "table", folder)
        view.save(made.path)
        cls._saved[str(made.path)] = made
        return made

    @classmethod
    def at(cls, path: str) -> _TableFile:
        """The file that somebody saved: in this process the very object, so that copies keep it."""
        return cls._saved.get(path) or cls(Path(path))


MapDataset.__module__ = "dataset_rt.api"
