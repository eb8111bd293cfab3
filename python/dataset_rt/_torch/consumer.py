"""What one consumer does: open the caches and the loader's table once, then give batch after batch, pass after pass."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from dataset_rt._torch.events import emit
from dataset_rt._torch.partition import Place, Share, Topology
from dataset_rt._torch.stream import Places, RowStream, Stream
from dataset_rt.exceptions import StorageError

if TYPE_CHECKING:
    from dataset_rt._native import Runtime, TableView

TABLE_FILE = "rows.table"
TOPOLOGY_FILE = "topology.json"
_EDITION = "pass-"
_PLACE = "place-"


class Edition(NamedTuple):
    """A table as loading processes find it, and who reads what of it.

    Attributes:
        since: The first pass that reads it, from 0.
        folder: Where its table is; None where only this process reads.
        topology: Who reads what.
    """

    since: int
    folder: Path | None
    topology: Topology


class Opener(Protocol):
    """Opens what consumers of a process read: once, and again for each later edition."""

    def __call__(self, edition: Edition, /) -> Any:
        """What streams are made of."""
        ...


class Reading(Protocol):
    """How consumers come by their samples. It is pickled for loading processes."""

    @property
    def num_threads(self) -> int:
        """Native threads of each consumer."""
        ...

    @property
    def persistent(self) -> bool:
        """Whether consumers live on after a pass."""
        ...

    @property
    def verbose(self) -> bool:
        """Whether they tell what they do."""
        ...

    @property
    def advice(self) -> str:
        """What is for loaders that are somebody else's."""
        ...

    @property
    def undivided(self) -> str:
        """What is for trainers that divide samples among ranks themselves."""
        ...

    def opener(self) -> Opener:
        """What a process opens its editions with."""
        ...

    def stream(self, opened: Any, topology: Topology, share: int, stride: int | None) -> Stream:
        """The samples of a consumer.

        Args:
            opened: What was opened.
            topology: Who reads what of it.
            share: The consumer whose share is read.
            stride: As a `Stream`'s.
        """
        ...


class TableReading(NamedTuple):
    """How consumers of a table open the caches.

    Attributes:
        paths: Folders of the caches, absolute.
        prefetch_size: Samples prepared ahead.
        validate_cache: Whether checksums are verified when opening.
        io: `"mmap"` or `"pread"`.
        num_threads: Native threads of each consumer.
        persistent: Whether consumers live on after a pass.
        verbose: Whether they tell what they do.
    """

    paths: tuple[str, ...]
    prefetch_size: int
    validate_cache: bool
    io: str
    num_threads: int
    persistent: bool
    verbose: bool

    @property
    def advice(self) -> str:
        """As `Reading`."""
        return "to_torch_map_dataset"

    @property
    def undivided(self) -> str:
        """As `Reading`."""
        return "to_torch_map_dataset()"

    def opener(self) -> Opener:
        """As `Reading`."""
        return _TableOpener(self)

    def stream(self, opened: TableView, topology: Topology, share: int, stride: int | None) -> Stream:
        """As `Reading`."""
        return RowStream(opened, topology.shares()[share], topology, stride)


class _TableOpener:
    """Maps the tables that a loader saved, by the threads of one runtime."""

    def __init__(self, reading: TableReading) -> None:
        self._reading = reading
        self._runtime: Runtime | None = None

    def __call__(self, edition: Edition) -> TableView:
        from dataset_rt._native import Runtime

        assert edition.folder is not None, "a table that is not open is in a file"
        first = self._runtime is None
        if self._runtime is None:
            self._runtime = Runtime(num_workers=self._reading.num_threads)
        return self._runtime.open_view(
            [Path(path) for path in self._reading.paths],
            edition.folder / TABLE_FILE,
            prefetch_size=self._reading.prefetch_size,
            validate_cache=self._reading.validate_cache and first,
            io=self._reading.io,
        )


class Batch(NamedTuple):
    """Samples of one batch, whose share they are of, and where in that stream they begin.

    Where another process reads them they are None.
    """

    samples: list[Any]
    share: int
    position: int


def edition_folder(home: Path, since: int) -> Path:
    """Where a later table is, which passes read from `since` on. The first one is in the loader's folder itself."""
    return home / f"{_EDITION}{since}"


def write_topology(folder: Path, topology: Topology) -> None:
    """Leave word of who reads what, for processes that are alive already."""
    (folder / TOPOLOGY_FILE).write_text(json.dumps(dataclasses.asdict(topology)), encoding="utf-8")


def editions(home: Path) -> list[int]:
    """The passes from which on there is another table, in order."""
    numbers = (name.removeprefix(_EDITION) for name in os.listdir(home) if name.startswith(_EDITION))
    return sorted(int(number) for number in numbers if number.isdigit())


def write_place(home: Path, number: int, place: Place) -> None:
    """Leave word of where a pass goes on, for processes that are alive already.

    Nobody looks for the places of passes before the last one any more: processes answer in order.

    Raises:
        StorageError: It could not be written.
    """
    fresh = home / f"{_PLACE}next"
    try:
        fresh.write_text(json.dumps(place), encoding="utf-8")
        fresh.replace(home / f"{_PLACE}{number}")
        (home / f"{_PLACE}{number - 2}").unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(
            f"loading processes could not be told where to go on: {error}", path=error.filename, errno=error.errno
        ) from error


def read_place(home: Path, number: int) -> Place:
    """Where a pass goes on."""
    passes, delivered, positions = json.loads((home / f"{_PLACE}{number}").read_text("utf-8"))
    return Place(passes, delivered, tuple(positions))


class Pass:
    """The batches that a consumer gives in a pass, the last one possibly short. One that cannot be read costs itself only."""

    def __init__(self, stream: Stream | Places | None, share: int, samples: int, batch_size: int) -> None:
        self._stream, self._share, self._left, self._size = stream, share, samples, batch_size

    def __iter__(self) -> Pass:
        return self

    def __next__(self) -> Batch:
        if not self._left:
            raise StopIteration
        assert self._stream is not None, "whoever has samples to give has a stream"
        count, position = min(self._size, self._left), self._stream.position
        try:
            samples = self._stream.take(count)
        except Exception:
            self._left -= count
            raise
        self._left -= count
        return Batch(samples, self._share, position)


class Consumer:
    """One consumer of a rank.

    Args:
        reading: How to open the caches.
        edition: The table to begin with.
        home: The loader's folder, where later editions appear; None where nobody else reads.
        number: The loading process, or None for the training process itself.
        view: What streams are made of, where it is open already.
        places_only: Whether another process reads the samples.
    """

    def __init__(
        self,
        reading: Reading,
        edition: Edition,
        home: Path | None,
        number: int | None,
        *,
        view: Any = None,
        places_only: bool = False,
    ) -> None:
        self._reading, self._edition, self._home, self._number = reading, edition, home, number
        self._view, self._places_only = view, places_only
        self._open_edition = reading.opener()
        self._shares = edition.topology.shares()
        self._stream: Stream | Places | None = None
        self._stream_of = self._number or 0
        self._position = self._first_position()
        self._started = False

    @property
    def edition(self) -> Edition:
        """The table that is read."""
        return self._edition

    @property
    def position(self) -> int:
        """Where its stream goes on."""
        return self._position if self._stream is None else self._stream.position

    @property
    def _share(self) -> Share:
        return self._shares[self._number or 0]

    def start(self) -> None:
        """Open everything, once.

        Raises:
            DatasetRTError: What `DatasetRuntime.cached_dataset` raises about caches that cannot be used.
        """
        if self._started:
            return
        self._open()
        self._started = True
        event = "reader_started" if self._share.quota else "reader_empty"
        self._tell(event, sampling_reset=True)

    def switch(self, edition: Edition, view: Any = None) -> None:
        """Read another table, from the beginning of its stream."""
        self._edition, self._view, self._shares = edition, view, edition.topology.shares()
        self._stream, self._stream_of, self._position = None, self._number or 0, self._first_position()
        if self._started:
            self._open()

    def go_to(self, place: Place) -> None:
        """Go on from another place with the next batch. Nothing is opened yet."""
        self._position = self._edition.topology.part(place, self._number or 0).position
        if self._stream is not None:
            self._stream.go_to(self._position)

    def begin(self, number: int, place: Place) -> Pass:
        """Go through a pass, or through what is left of it.

        Args:
            number: The pass of the loader, from 0: it decides which table is read.
            place: Where it goes on. In the training process the stream is there already.

        Returns:
            The batches. A step may raise what reading does.

        Raises:
            DatasetRTError: As `start`.
        """
        self.start()
        if self._home is not None:
            latest = max((since for since in editions(self._home) if since <= number), default=0)
            if latest > self._edition.since:
                folder = edition_folder(self._home, latest)
                topology = Topology(**json.loads((folder / TOPOLOGY_FILE).read_text("utf-8")))
                self.switch(Edition(latest, folder, topology))
        topology = self._edition.topology
        part = topology.part(place, self._number or 0)
        self._read_share_of(part.share)
        if self._number is not None and self._stream is not None:
            self._stream.go_to(part.position)
        self._tell("reader_pass", sampling_reset=self._stream is None or place[1:] == topology.beginning()[1:])
        return Pass(self._stream, part.share, part.samples, topology.batch_size)

    def _first_position(self) -> int:
        topology = self._edition.topology
        return topology.part(topology.beginning(), self._number or 0).position

    def _open(self) -> None:
        """Read this consumer's own share."""
        if not self._share.quota:
            return
        self._make_stream(self._number or 0)

    def _read_share_of(self, consumer: int) -> None:
        """Read the share of another one: a pass that is gone on with begins with whoever's turn it is."""
        if consumer != self._stream_of and self._shares[consumer].quota:
            self._make_stream(consumer)

    def _make_stream(self, consumer: int) -> None:
        topology = self._edition.topology
        if self._places_only:
            self._stream = Places(topology.stride)
        else:
            if self._view is None:
                self._view = self._open_edition(self._edition)
            self._stream = self._reading.stream(self._view, topology, consumer, topology.stride)
        self._stream.go_to(self._position)
        self._stream_of = consumer

    def _tell(self, event: str, *, sampling_reset: bool) -> None:
        if not self._reading.verbose:
            return
        emit(
            event,
            pid=os.getpid(),
            rank=self._edition.topology.rank,
            worker="main" if self._number is None else self._number,
            seed=self._share.seed,
            native_threads=self._reading.num_threads,
            persistent=self._reading.persistent,
            samples=self._share.quota,
            population=self._share.population,
            sampling_reset=sampling_reset,
        )
