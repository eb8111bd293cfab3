"""From a share of the rows to samples: the endless stream of one consumer."""

from __future__ import annotations

import threading
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataset_rt._native import SampleIterator, TableView
    from dataset_rt._sample import CachedSample
    from dataset_rt._torch.partition import Share

_ENDLESS = 2**63 - 1  # positions; nobody gets so far


class Places:
    """The places of a stream without its samples, for a process whose batches another one reads.

    Attributes:
        position: Places handed out.
    """

    def __init__(self) -> None:
        self.position = 0

    def take(self, count: int) -> list[None]:
        """The next places: nothing but their number."""
        self.position += count
        return [None] * count


class Stream:
    """Samples of a share, one after another, from any place on. Threads may share it: each sample goes to one of them.

    Attributes:
        position: Samples handed out, or left behind as unreadable.
    """

    def __init__(self, view: TableView, share: Share, *, shuffle: bool) -> None:
        self._view, self._spans = view, share.rows
        if shuffle and share.permute is not None:
            (span,) = share.rows
            self._view = view.subset(span.start, span.stop, permute=share.permute)
        self._plan = self._view.plan("weighted" if shuffle else "sequential", share.seed)
        self._endless = shuffle or (share.population == view.num_rows and len(share.rows) == 1)
        self._population = share.population
        self._lock = threading.Lock()
        self._source: SampleIterator | None = None
        self.position = 0

    def take(self, count: int) -> list[CachedSample]:
        """The next samples.

        Args:
            count: How many.

        Raises:
            CorruptCacheError: One of them cannot be read; the next call goes on behind all of them.
            StorageError: As before.
        """
        with self._lock:
            return self._take(count)

    def take_at(self, position: int, count: int) -> list[CachedSample]:
        """Samples from a place on; reading ahead serves those who go on where they stopped.

        Args:
            position: Samples before the first one.
            count: How many.

        Raises:
            CorruptCacheError: As `take`.
            StorageError: As `take`.
        """
        with self._lock:
            if position != self.position:
                self.position, self._source = position, None
            return self._take(count)

    def _take(self, count: int) -> list[CachedSample]:
        samples: list[CachedSample] = []
        try:
            while len(samples) < count:
                if self._source is None:
                    self._source = self._iterate(self.position + len(samples))
                more = list(islice(self._source, count - len(samples)))
                if not more:
                    self._source = None
                samples += more
        except Exception:
            self.position, self._source = self.position + count, None
            raise
        except BaseException:  # an interrupt: nothing was handed out
            self._source = None
            raise
        self.position += count
        return samples

    def _iterate(self, position: int) -> SampleIterator:
        """An iterator from a place on: to no end, or to the end of the rows that follow one another there."""
        if self._endless:
            return self._view.iter(self._plan, position, _ENDLESS - position)
        ahead = position % self._population
        for start, stop in self._spans:
            if ahead < stop - start:
                return self._view.iter(self._plan, start + ahead, stop - start - ahead)
            ahead -= stop - start
        raise AssertionError("a place below the population is in one of the spans")
