"""The batches of a mixture's stream, for one of those who take turns in it."""

from __future__ import annotations

import itertools
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from dataset_rt._mixing import READ_AT_ONCE
from dataset_rt._native import MixedIterator
from dataset_rt._torch.stream import Stream
from dataset_rt.exceptions import DatasetRTError

if TYPE_CHECKING:
    from dataset_rt._mixing import Blend
    from dataset_rt._torch.consumer import Edition
    from dataset_rt._torch.partition import Topology
    from dataset_rt._torch.stream import Source

_END = 2**63 - 1  # of positions; nobody gets so far


class MixedReading(NamedTuple):
    """How consumers come by a mixture's samples.

    Attributes:
        blend: The mixture, which comes out of a pickle with its tables mapped.
        persistent: Whether consumers live on after a pass.
    """

    blend: Blend
    persistent: bool

    @property
    def num_threads(self) -> int:
        """Native threads of a loading process, for each component."""
        return 1

    @property
    def verbose(self) -> bool:
        """Nothing is logged."""
        return False

    @property
    def advice(self) -> str:
        """What is for loaders that are somebody else's."""
        return "to_torch_iterable_dataset"

    @property
    def undivided(self) -> str:
        """What is for trainers that divide samples among ranks themselves."""
        return "to_torch_iterable_dataset(rank=0, world_size=1, ...)"

    def opener(self) -> MixedReading:
        """Itself: there is one edition, and the mixture knows which process has opened it."""
        return self

    def __call__(self, _edition: Edition, /) -> Blend:
        """Open the caches in this process."""
        self.blend.streams()
        return self.blend

    def stream(self, opened: Blend, topology: Topology, share: int, stride: int | None) -> MixedStream:
        """The batches of a consumer.

        Args:
            opened: The mixture.
            topology: Who reads what of it.
            share: All have the one stream.
            stride: As a `Stream`'s.
        """
        return MixedStream(opened, topology.batch_size, stride or topology.batch_size)


class MixedStream(Stream):
    """Batches of a mixture's stream.

    Args:
        blend: The mixture.
        batch_size: Samples of a batch.
        stride: How far apart batches begin.
    """

    def __init__(self, blend: Blend, batch_size: int, stride: int) -> None:
        super().__init__(stride)
        self._blend, self._batch_size, self._apart = blend, batch_size, stride

    def _iterate(self, position: int) -> Source:
        if self._apart == self._batch_size:
            return _Row(self._blend, position)
        return _Pieces(self._blend, position, self._batch_size, self._apart)


class _Row:
    """Samples one after another, read ahead."""

    def __init__(self, blend: Blend, position: int) -> None:
        self._samples = MixedIterator(blend.mixture, blend.streams(), position, _END - position, names=blend.labels)

    def take(self, count: int, /) -> list[Any]:
        return list(itertools.islice(self._samples, count))


class _Pieces:
    """Batches that are apart, several in one call."""

    def __init__(self, blend: Blend, position: int, batch_size: int, stride: int) -> None:
        self._blend, self._position, self._batch_size, self._stride = blend, position, batch_size, stride
        self._together = max(READ_AT_ONCE // batch_size, 1)
        self._ready: deque[list[Any]] = deque()

    def take(self, count: int, /) -> list[Any]:
        assert count == self._batch_size, "in the one stream every batch is full"
        if not self._ready:
            self._read()
        return self._ready.popleft()

    def _read(self) -> None:
        try:
            batches = self._batches(self._together)
        except DatasetRTError:
            if self._together == 1:
                raise
            self._together = 1  # each in its turn, as far as they can be read
            batches = self._batches(1)
        self._position += len(batches) * self._stride
        self._ready.extend(batches)

    def _batches(self, count: int) -> list[list[Any]]:
        places: list[tuple[int, int]] = []
        for number in range(count):
            places += self._blend.mixture.places(self._position + number * self._stride, self._batch_size)
        samples = self._blend.read(places)
        return [list(itertools.islice(samples, self._batch_size)) for _ in range(count)]
