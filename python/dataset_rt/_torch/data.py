"""The datasets that torch's DataLoader sees, and what runs in its loading processes."""

# Torch has types in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import threading
import uuid
import warnings
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import is_
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, cast

from torch._utils import ExceptionWrapper
from torch.utils.data import IterableDataset, get_worker_info

from dataset_rt._calls import called
from dataset_rt._sample import CachedSample
from dataset_rt._torch.artifacts import Folder
from dataset_rt._torch.consumer import Batch, Consumer, Edition, Pass, Reading, read_place, write_place
from dataset_rt._torch.partition import Place, Topology
from dataset_rt._torch.stream import Stream
from dataset_rt.exceptions import ForkedProcessError, InvalidInputError

if TYPE_CHECKING:
    from dataset_rt._dataset import CachedDataset


class DatasetView(IterableDataset[CachedSample]):
    """A dataset as torch's DataLoader takes it, for loading in the training process: iterating takes windows of its stream."""

    def __init__(self, dataset: CachedDataset) -> None:
        self._dataset = dataset

    def __iter__(self) -> Iterator[CachedSample]:
        if get_worker_info() is not None:
            raise ForkedProcessError(
                "each loading process would yield the whole dataset; keep num_workers=0 here, or use to_torch_dataloader, "
                "which divides the samples",
                kind="forked",
            )
        return self._window()

    def _window(self) -> Iterator[CachedSample]:
        """Take a window with the first step: torchdata's loader makes iterators that it never uses."""
        # `yield from` would close the iterator when this one is left, and give up the rest of the window.
        for sample in self._dataset:  # noqa: UP028
            yield sample

    def __len__(self) -> int:
        return len(self._dataset)

    def state_dict(self) -> dict[str, Any]:
        """The dataset's state: where its newest iterator is."""
        return self._dataset.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Have the next pass go on from there."""
        self._dataset.load_state_dict(state)


class Opened:
    """An edition as the training process has it, as long as a pass is of it. A later one's folder goes away with it.

    Args:
        edition: The edition.
        view: Its table, or what else streams are made of.
        home: The loader's folder, if there is one.
    """

    def __init__(self, edition: Edition, view: Any, home: Folder | None) -> None:
        self.edition, self.view = edition, view
        self.streams: dict[int, Stream] = {}
        self._removal: Any = None
        if home is not None and edition.folder is not None and edition.folder != home.path:
            self._removal = home.remove_with(self, edition.folder)

    def leave_folder(self) -> None:
        """Another edition has taken the folder over."""
        if self._removal is not None:
            self._removal.detach()


class Parent:
    """What only the training process has: the open tables that loading processes refer to, and the folder that they map.

    Args:
        reading: How consumers come by their samples.
        folder: None when nothing is on the disk.
    """

    def __init__(self, reading: Reading, folder: Folder | None) -> None:
        self.token = uuid.uuid4().hex
        self.folder, self._reading = folder, reading
        self._opened: weakref.WeakValueDictionary[int, Opened] = weakref.WeakValueDictionary()
        self._last: deque[Opened] = deque(maxlen=2)
        _parents[self.token] = self

    def add(self, edition: Edition, view: Any) -> None:
        """Keep an edition, and the one before it: batches of a pass that was given up may still be on their way.

        Earlier ones stay as long as passes that were begun with them.
        """
        opened = Opened(edition, view, self.folder)
        if self._last and self._last[-1].edition.since == edition.since:  # no pass began to read it
            self._last.pop().leave_folder()
        self._opened[edition.since] = opened
        self._last.append(opened)

    @property
    def newest(self) -> Opened:
        """The edition that the next pass reads."""
        return self._last[-1]

    def read(self, since: int, share: int, position: int, count: int) -> list[Any]:
        """The samples that a loading process read, from here."""
        opened = self._opened.get(since)
        if opened is None:
            raise InvalidInputError("the batch is of a table that no pass of the loader reads any more", kind="closed")
        topology = opened.edition.topology
        # One stream that several processes take turns in comes together again here.
        stride = None
        if topology.partition == "stream":
            share, stride = 0, topology.step
        stream = opened.streams.get(share)
        if stream is None:
            stream = opened.streams[share] = self._reading.stream(opened.view, topology, share, stride)
        return stream.take_at(position, count)


_parents: weakref.WeakValueDictionary[str, Parent] = weakref.WeakValueDictionary()


class Run:
    """A pass that was begun: what it goes on from, and what was delivered of it since then.

    Args:
        opened: What it reads, which stays as long as this does.
        place: Where it goes on.

    Attributes:
        topology: Who reads what in it.
        delivered: Batches, or exceptions in place of them, that the caller has had.
    """

    def __init__(self, opened: Opened, place: Place) -> None:
        self._opened, self.place = opened, place
        self.topology: Topology = opened.edition.topology
        self.delivered = 0

    def count(self) -> None:
        """One more was delivered. No more are than the pass has: processes that cannot begin give exceptions without end."""
        self.delivered = min(self.delivered + 1, self.topology.num_batches - self.place.delivered)

    def now(self) -> Place:
        """Where the next batch is."""
        return self.topology.after(self.place, self.delivered)


class LoaderDataset(IterableDataset[Any]):
    """The samples of one rank, divided over its loading processes. It is pickled without rows, weights or open files.

    Args:
        reading: How consumers come by their samples.
        edition: The table to begin with.
        view: That table, or what else streams are made of.
        transform: Applied to each sample.
        parent: What stays in this process.

    Attributes:
        for_loader: Whether whoever iterates now, or in a loading process that starts now, is the loader that this was made for.
        places_only: Whether a loading process that starts now leaves the reading to this one.
    """

    def __init__(
        self,
        reading: Reading,
        edition: Edition,
        view: Any,
        transform: Callable[[Any], Any] | None,
        parent: Parent,
    ) -> None:
        self.for_loader = self.places_only = False
        self.reading, self.edition, self.transform, self.token = reading, edition, transform, parent.token
        self.parent: Parent | None = parent
        self.passes = 0
        self.place, self._place_of = edition.topology.beginning(), 0
        self.run: Run | None = None
        self._pid: int | None = os.getpid()
        self._home: Path | None = None if parent.folder is None else parent.folder.path
        self._consumer: Consumer | None = Consumer(reading, edition, None, None, view=view)
        self.current: Batch | None = None
        parent.add(edition, view)

    def __len__(self) -> int:
        if self.edition.topology.endless:
            raise TypeError("a pass without an end has no length")
        return self.edition.topology.budget

    def __getstate__(self) -> dict[str, Any]:
        """What a loading process needs."""
        state = self.__dict__.copy()
        state.update(parent=None, run=None, _consumer=None, current=None, _pid=None)
        return state

    def replace(self, edition: Edition, view: Any) -> None:
        """Go over to another table with the next pass."""
        assert self.parent is not None and self._consumer is not None
        self.edition = edition
        self.parent.add(edition, view)
        self._consumer.switch(edition, view)

    def consumer(self) -> Consumer:
        """The consumer of this process, made at first use in a loading process."""
        if self._consumer is None or self._pid != os.getpid():
            info = get_worker_info()
            if info is None and self._pid is not None:
                raise ForkedProcessError(
                    "a forked child cannot use a loader of its parent, whose threads it does not have; start the process with "
                    "spawn or forkserver, and make the loader there",
                    kind="forked",
                )
            planned = self.edition.topology.num_workers
            if info is None or info.num_workers != planned:
                raise InvalidInputError(
                    f"a loader's dataset is for the loader itself and its {planned} loading processes; call to_torch_dataloader "
                    f"with the num_workers that you want, or use {self.reading.advice} with a loader of your own",
                    kind="invalid-argument",
                )
            self._pid, self.parent = os.getpid(), None
            self._consumer = Consumer(self.reading, self.edition, self._home, info.id, places_only=self.places_only)
            _readers[self.token] = self
        return self._consumer

    def view(self) -> Any:
        """What the next pass reads."""
        assert self.parent is not None
        return self.parent.newest.view

    def position(self) -> int:
        """Where the stream of the training process goes on."""
        return self.consumer().position

    def go_on(self, run: Run, *, jump: bool) -> None:
        """Say where the next pass goes on, here or in loading processes.

        Args:
            run: The pass.
            jump: Whether it is another place than where the training process is, if that reads itself.

        Raises:
            StorageError: Processes that are alive could not be told.
        """
        self.run, self.place, self._place_of = run, run.place, self.passes
        if self.reading.persistent:
            assert self._home is not None, "loading processes have a folder"
            write_place(self._home, self.passes, run.place)
        elif jump and not run.topology.num_workers:
            self.consumer().go_to(run.place)

    def batches(self) -> _Batches:
        """Begin the next pass; nothing is opened or read before the first step."""
        number = self.passes
        loads_itself = not self.edition.topology.num_workers
        if loads_itself or self.parent is None:
            self.passes += 1
        place = self.place if number == self._place_of or not self.reading.persistent else None
        return _Batches(self, number, place, self.run if loads_itself else None)

    def begin(self, number: int, place: Place | None) -> Pass:
        """Begin a pass, from a place or from that which the training process left word of."""
        consumer = self.consumer()
        if place is None:
            assert self._home is not None
            place = read_place(self._home, number)
        return consumer.begin(number, place)

    def __iter__(self) -> Iterator[Any]:
        topology = self.edition.topology
        if topology.world_size > 1 and not self.for_loader:
            warnings.warn(
                f"this dataset has the samples of rank {topology.rank} of {topology.world_size} alone: a loader or trainer that "
                "divides them once more (Accelerate's prepare does) loses the others; give it a DataLoader over "
                f"{self.reading.undivided}",
                stacklevel=2,
            )
        return _Samples(self, self.batches())


class _Batches:
    """A pass of this process, begun with its first step. In the training process what it gives is delivered.

    Threads may share it: each batch goes to one of them.
    """

    def __init__(self, dataset: LoaderDataset, number: int, place: Place | None, run: Run | None) -> None:
        self._dataset, self._number, self._place, self._run = dataset, number, place, run
        self._pass: Iterator[Batch] | None = None
        self._lock = threading.Lock()

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Batch:
        with self._lock:
            if self._pass is None:
                self._pass = iter(())  # what cannot be begun is at its end
                self._pass = self._dataset.begin(self._number, self._place)
            try:
                batch = next(self._pass)
            except StopIteration:
                raise
            except Exception:
                self._count()
                raise
            self._count()
            return batch

    def _count(self) -> None:
        if self._run is not None:
            self._run.count()


class _Samples:
    """A pass sample by sample, as torch wants it. When one is an exception, the rest of its batch is left out."""

    def __init__(self, dataset: LoaderDataset, batches: _Batches) -> None:
        self._dataset, self._batches = dataset, batches
        self._pending: Iterator[Any] = iter(())

    def __iter__(self) -> _Samples:
        return self

    def __next__(self) -> Any:
        transform = self._dataset.transform
        while True:
            try:
                sample = next(self._pending)
            except StopIteration:
                batch = next(self._batches)
                self._dataset.current = batch
                self._pending = iter(batch.samples)
                continue
            if transform is None:
                return sample
            try:
                return called("sample_transform_fn", transform, sample)
            except BaseException:
                self._pending = iter(())
                raise


_readers: weakref.WeakValueDictionary[str, LoaderDataset] = weakref.WeakValueDictionary()


class StartThenInit:
    """What each loading process does first: open the caches, then whatever the caller wants done."""

    def __init__(self, then: Callable[[int], None] | None, undivided: str) -> None:
        self._then, self._undivided = then, undivided

    def __call__(self, worker: int) -> None:
        info = get_worker_info()
        assert info is not None, "torch calls it in loading processes alone"
        dataset = info.dataset
        if not isinstance(dataset, LoaderDataset):
            kind = type(cast(object, dataset)).__name__
            raise InvalidInputError(
                f"the loader's dataset was put into a {kind}, which would divide or change what the loader has "
                f"divided already (Accelerate's prepare does that); give it a DataLoader over {self._undivided}",
                kind="invalid-argument",
            )
        dataset.consumer().start()
        if self._then is not None:
            self._then(worker)


class CollateInWorker:
    """Collate a batch in a loading process, and send payloads only if they are not simply the stored ones.

    Torch's queues copy payloads several times. Where a collate function gives back the very samples that it got, in a list or a
    tuple, the training process is told which ones they are and reads them itself, out of the same mapped files.
    """

    def __init__(self, token: str, collate: Callable[[list[Any]], Any]) -> None:
        self._token, self.__wrapped__ = token, collate
        self._kind = kept_as(collate)

    def needs_no_samples(self, dataset: LoaderDataset) -> bool:
        """Whether batches of this dataset are told by their places alone."""
        return self._token == dataset.token and self._kind is not None and dataset.transform is None

    def __call__(self, samples: list[Any]) -> Any:
        reader = _readers.get(self._token)
        batch = None if reader is None else reader.current
        if reader is None or batch is None or reader.transform is not None or len(samples) != len(batch.samples):
            return called("collate_fn", self.__wrapped__, samples)
        if self._kind is not None:
            return self._stored(reader, batch, self._kind)
        metadata = [_metadata(sample).copy() for sample in samples]
        result = called("collate_fn", self.__wrapped__, samples)
        kind = type(result)
        if (kind is list or kind is tuple) and _are_stored(result, batch.samples, metadata):
            return self._stored(reader, batch, kind)
        return result

    def _stored(self, reader: LoaderDataset, batch: Batch, kind: type) -> Stored:
        since = reader.consumer().edition.since
        return Stored((self._token, kind, since, batch.share, batch.position, len(batch.samples)))


def kept_as(collate: object) -> type | None:
    """List or tuple for a function that surely makes no more of a list than that: these, or one whose code is `return batch`."""
    if collate is list or collate is tuple:
        return collate
    if isinstance(collate, FunctionType):
        code, same = collate.__code__, _same.__code__
        if (code.co_code, code.co_argcount, code.co_kwonlyargcount) == (same.co_code, 1, 0):
            return list
    return None


def _same(batch: Any) -> Any:
    return batch


def _metadata(sample: Any) -> dict[str, Any]:
    """A sample's metadata, also where it comes in a pair with the name of its component."""
    metadata: dict[str, Any] = (sample[1] if type(sample) is tuple else sample).metadata
    return metadata


def _are_stored(result: list[Any] | tuple[Any, ...], samples: list[Any], metadata: list[dict[str, Any]]) -> bool:
    """Are these the samples as they were read, their metadata untouched?"""
    if len(result) != len(samples) or not all(map(is_, result, samples)):
        return False
    for sample, before in zip(samples, metadata, strict=True):
        after = _metadata(sample)
        if list(after) != list(before) or not all(map(is_, after.values(), before.values())):
            return False
    return True


class Stored:
    """A batch of stored samples on its way to the training process: there it becomes the samples themselves."""

    def __init__(self, place: tuple[str, type, int, int, int, int]) -> None:
        self._place = place

    def __reduce__(self) -> tuple[Any, ...]:
        return (_restore, self._place)


class _Failure(ExceptionWrapper):
    """An exception of this process, for torch to raise when it is the batch's turn."""

    def __init__(self, error: Exception) -> None:
        super().__init__(  # type: ignore[no-untyped-call]
            (type(error), error, error.__traceback__), where="while reading a batch"
        )
        self._error = error

    def reraise(self) -> NoReturn:
        raise self._error


def _restore(token: str, kind: type, *place: int) -> Any:
    """Read a batch that a loading process refers to. An exception here would lose torch the count of its batches."""
    try:
        samples = _parents[token].read(*place)
        return samples if kind is list else tuple(samples)
    except Exception as error:
        return _Failure(error)
