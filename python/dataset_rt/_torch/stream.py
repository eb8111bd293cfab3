"""From a share of the rows to samples: the endless stream of one consumer, or its batches of the one that all share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from dataset_rt._native import SampleIterator, TableView
    from dataset_rt._torch.partition import Share, Topology

_ENDLESS = 2**63 - 1  # positions; nobody gets so far


class Places:
    """The places of a stream without its samples, for a process whose batches another one reads.

    Args:
        stride: As a `Stream`'s.

    Attributes:
        position: As a `Stream`'s.
    """

    def __init__(self, stride: int | None) -> None:
        self._stride = stride
        self.position = 0

    def take(self, count: int) -> list[None]:
        """The next places: nothing but their number."""
        self.position += self._stride or count
        return [None] * count

    def go_to(self, position: int) -> None:
        """As a `Stream`'s."""
        self.position = position


class Source(Protocol):
    """What gives the samples of a stream from some place on."""

    def take(self, count: int, /) -> list[Any]:
        """The next samples, `count` of them or as many as there are."""
        ...


class Stream(ABC):
    """Samples one after another, from any place on. Threads may share it: each sample goes to one of them.

    Args:
        stride: In the one stream of all consumers, how far apart batches begin; they are taken whole.

    Attributes:
        position: Where the next sample is: samples handed out, or left behind as unreadable, or others' in the one stream.
    """

    def __init__(self, stride: int | None) -> None:
        self._stride = stride
        self._lock = threading.Lock()
        self._source: Source | None = None
        self.position = 0

    def take(self, count: int) -> list[Any]:
        """The next samples.

        Args:
            count: How many.

        Raises:
            CorruptCacheError: One of them cannot be read; the next call goes on behind all of them.
            StorageError: As before.
        """
        with self._lock:
            return self._take(count)

    def take_at(self, position: int, count: int) -> list[Any]:
        """Samples from a place on; reading ahead serves those who go on where they stopped.

        Args:
            position: Where the first one is.
            count: How many.

        Raises:
            CorruptCacheError: As `take`.
            StorageError: As `take`.
        """
        with self._lock:
            self._go_to(position)
            return self._take(count)

    def go_to(self, position: int) -> None:
        """Go on from another place.

        Args:
            position: As `take_at`.
        """
        with self._lock:
            self._go_to(position)

    def _go_to(self, position: int) -> None:
        if position != self.position:
            self.position, self._source = position, None

    def _take(self, count: int) -> list[Any]:
        samples: list[Any] = []
        try:
            while len(samples) < count:
                if self._source is None:
                    self._source = self._iterate(self.position + len(samples))
                more = self._source.take(count - len(samples))
                if not more:
                    self._source = None
                samples = samples + more if samples else more
        except Exception:
            self.position, self._source = self.position + (self._stride or count), None
            raise
        except BaseException:  # an interrupt: nothing was handed out
            self._source = None
            raise
        self.position += self._stride or count
        return samples

    @abstractmethod
    def _iterate(self, position: int) -> Source:
        """What gives samples from a place on: to no end, or as far as they follow one another there."""


class RowStream(Stream):
    """Samples of a share of a table's rows.

    Args:
        view: The table.
        share: What is read of it.
        topology: How it is drawn from.
        stride: As a `Stream`'s.
    """

    def __init__(self, view: TableView, share: Share, topology: Topology, stride: int | None) -> None:
        super().__init__(stride)
        self._view, self._spans = view, share.rows
        if share.permute is not None:
            (span,) = share.rows
            self._view = view.subset(span.start, span.stop, permute=share.permute)
        self._plan = self._view.plan(topology.order, share.seed)
        self._endless = topology.shuffle or (share.population == view.num_rows and len(share.rows) == 1)
        self._population = share.population
        self._piece = topology.batch_size

    def _iterate(self, position: int) -> SampleIterator:
        """An iterator from a place on: to no end, or to the end of the rows that follow one another there."""
        if self._stride is not None:
            pieces = max(1, (_ENDLESS - position) // self._stride)
            return self._view.iter(self._plan, position, pieces * self._piece, piece=self._piece, stride=self._stride)
        if self._endless:
            return self._view.iter(self._plan, position, _ENDLESS - position)
        ahead = position % self._population
        for start, stop in self._spans:
            if ahead < stop - start:
                return self._view.iter(self._plan, start + ahead, stop - start - ahead)
            ahead -= stop - start
        raise AssertionError("a place below the population is in one of the spans")
