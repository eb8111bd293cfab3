"""What one consumer does: open the caches and the loader's table once, then give batch after batch, pass after pass."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from dataset_rt._torch.events import emit
from dataset_rt._torch.partition import Share, Topology
from dataset_rt._torch.stream import Places, Stream

if TYPE_CHECKING:
    from dataset_rt._native import Runtime, TableView

TABLE_FILE = "rows.table"
TOPOLOGY_FILE = "topology.json"
_EDITION = "pass-"


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


class Reading(NamedTuple):
    """How consumers open the caches.

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


class Batch(NamedTuple):
    """Samples of one batch, and where in the consumer's stream they begin. Where another process reads them they are None."""

    samples: list[Any]
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


class Consumer:
    """One consumer of a rank.

    Args:
        reading: How to open the caches.
        edition: The table to begin with.
        home: The loader's folder, where later editions appear; None where nobody else reads.
        number: The loading process, or None for the training process itself.
        view: The table, where it is open already.
        places_only: Whether another process reads the samples.
    """

    def __init__(
        self,
        reading: Reading,
        edition: Edition,
        home: Path | None,
        number: int | None,
        *,
        view: TableView | None = None,
        places_only: bool = False,
    ) -> None:
        self._reading, self._edition, self._home, self._number = reading, edition, home, number
        self._view, self._places_only = view, places_only
        self._runtime: Runtime | None = None
        self._stream: Stream | Places | None = None
        self._share = Share(0, ())
        self._started = False

    @property
    def edition(self) -> Edition:
        """The table that is read."""
        return self._edition

    def start(self) -> None:
        """Open everything, once.

        Raises:
            DatasetRTError: What `DatasetRuntime.cached_dataset` raises about caches that cannot be used.
        """
        if self._started:
            return
        self._open(self._edition, self._view)
        self._started = True
        event = "reader_started" if self._share.quota else "reader_empty"
        self._tell(event, sampling_reset=True)

    def switch(self, edition: Edition, view: TableView | None = None) -> None:
        """Read another table, from the beginning of its stream."""
        if self._started:
            self._open(edition, view)
        self._edition, self._view = edition, view

    def begin(self, number: int) -> Iterator[Batch]:
        """Go through one pass.

        Args:
            number: The pass, from 0: it decides which table is read.

        Returns:
            The batches, the last one possibly short. Its first step may raise what `start` raises, every step what reading does.
        """
        self.start()
        reset = self._stream is None or self._stream.position == 0
        if self._home is not None:
            latest = max((since for since in editions(self._home) if since <= number), default=0)
            if latest > self._edition.since:
                folder = edition_folder(self._home, latest)
                topology = Topology(**json.loads((folder / TOPOLOGY_FILE).read_text("utf-8")))
                self.switch(Edition(latest, folder, topology))
                reset = True
        self._tell("reader_pass", sampling_reset=reset)
        return self._batches(self._stream, self._share.quota)

    def _batches(self, stream: Stream | Places | None, left: int) -> Iterator[Batch]:
        size = self._edition.topology.batch_size
        while left:
            assert stream is not None, "whoever has a quota has a stream"
            count = min(size, left)
            left -= count
            position = stream.position
            yield Batch(stream.take(count), position)

    def _open(self, edition: Edition, view: TableView | None) -> None:
        topology = edition.topology
        self._share = topology.shares()[self._number or 0]
        self._stream = None
        if not self._share.quota:
            return
        if self._places_only:
            self._stream = Places()
            return
        if view is None:
            view = self._map(edition)
        self._stream = Stream(view, self._share, shuffle=topology.shuffle)

    def _map(self, edition: Edition) -> TableView:
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
