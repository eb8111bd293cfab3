"""Who reads how many samples of which rows: ranks first, then their loading processes. Arithmetic only.

Words: *rows* is the length of the active table, *samples* the global number of samples of a pass before batching, a *budget*
what one rank gets of them, a *quota* what one loading process gets of that. A *consumer* is a loading process, or the training
process where it loads itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dataset_rt._torch.seeds import consumer_seed

Partition = Literal["split", "replicate"]
PARTITIONS: tuple[Partition, ...] = ("split", "replicate")


class Span(NamedTuple):
    """Rows `start` to `stop` of the table, or of its permutation."""

    start: int
    stop: int


class Share(NamedTuple):
    """What one consumer does in each pass.

    Attributes:
        quota: Samples; 0 for a consumer without work.
        rows: The rows that they come from, cyclically when in table order.
        seed: Seed of the draws; 0 in table order.
        permute: Seed of the permutation that `rows` are places of; None for the table's own order.
    """

    quota: int
    rows: tuple[Span, ...]
    seed: int = 0
    permute: int | None = None

    @property
    def population(self) -> int:
        """Rows that the samples come from."""
        return sum(stop - start for start, stop in self.rows)


@dataclass(frozen=True)
class Topology:
    """Everything that decides who reads what.

    Attributes:
        rows: Length of the active table, at least 1.
        samples: Global samples of a pass, at least 1.
        batch_size: Samples of a batch.
        drop_last: Whether incomplete batches are dropped.
        world_size: Training processes.
        rank: Which of them this is.
        num_workers: Loading processes of each; 0 when it loads itself.
        partition: Whether consumers divide the rows.
        shuffle: Whether rows are drawn by weight.
        seed: The loader's seed, the same on all ranks; unused in table order.
    """

    rows: int
    samples: int
    batch_size: int
    drop_last: bool
    world_size: int
    rank: int
    num_workers: int
    partition: Partition
    shuffle: bool
    seed: int

    @property
    def consumers(self) -> int:
        """Consumers of this rank."""
        return max(1, self.num_workers)

    @property
    def budget(self) -> int:
        """Samples of each rank in a pass: rounded up, or down to whole batches when incomplete ones are dropped."""
        if self.drop_last:
            return self.samples // (self.world_size * self.batch_size) * self.batch_size
        return -(-self.samples // self.world_size)

    @property
    def num_batches(self) -> int:
        """Batches of each rank in a pass."""
        return -(-self.budget // self.batch_size)

    @property
    def effective_samples(self) -> int:
        """Global samples after padding or dropping."""
        return self.budget * self.world_size

    def shares(self) -> tuple[Share, ...]:
        """What each consumer of this rank reads."""
        return shares(self)


def quotas(budget: int, batch_size: int, consumers: int) -> list[int]:
    """Divide a rank's samples: whole batches, earlier consumers one more, the remainder to the last one that has work."""
    batches, rest = divmod(budget, batch_size)
    active = min(consumers, max(batches, 1)) if budget else 0
    each = [_evenly(batches, active, worker) for worker in range(active)]
    result = [(stop - start) * batch_size for start, stop in each]
    if rest:
        result[-1] += rest
    return result + [0] * (consumers - active)


def shares(topology: Topology) -> tuple[Share, ...]:
    """What each consumer of a rank reads.

    In table order and split, a pass over exactly the table gives each consumer the rows of its own batches: the table's rows one
    after another, beginning again at its head where ranks are padded. Rows that are left over when incomplete batches are
    dropped are dealt out behind those, so that a later pass reads them. Any other number of samples divides the rows evenly.
    Shuffled, the rows are divided in proportion to what is drawn from them.

    Source: docs/explanation/loading.md.
    """
    rows, budget, rank, world = topology.rows, topology.budget, topology.rank, topology.world_size
    whole = (Span(0, rows),)
    spans: list[tuple[Span, ...]]
    if topology.partition == "replicate":
        quota = quotas(budget, topology.batch_size, min(topology.consumers, rows))
        spans = [whole] * len(quota)
    elif topology.shuffle:
        own = _own_rows(rows, world, rank)
        quota = quotas(budget, topology.batch_size, min(topology.consumers, own.stop - own.start))
        spans = [(span,) for span in _in_proportion(own, quota)]
    elif topology.samples == rows:
        spare = _within(Span(world * budget, rows), world, rank)
        population = budget + spare.stop - spare.start
        quota = quotas(budget, topology.batch_size, min(topology.consumers, population))
        spans, start = [], rank * budget
        active = sum(1 for samples in quota if samples)
        for worker, samples in enumerate(quota):
            extra = _within(spare, active, worker) if worker < active else Span(0, 0)
            spans.append(_joined([*_around(start, samples, rows), extra]))
            start += samples
    else:
        own = _own_rows(rows, world, rank)
        quota = quotas(budget, topology.batch_size, min(topology.consumers, own.stop - own.start))
        active = sum(1 for samples in quota if samples)
        spans = [(_within(own, active, worker),) if worker < active else () for worker in range(len(quota))]
    idle = [Share(0, ())] * (topology.consumers - len(quota))
    permute = topology.seed if topology.shuffle and topology.partition == "split" else None
    working = [
        Share(samples, span, consumer_seed(topology.seed, rank, worker) if topology.shuffle else 0, permute)
        if samples
        else Share(0, ())
        for worker, (samples, span) in enumerate(zip(quota, spans, strict=True))
    ]
    return (*working, *idle)


def _evenly(count: int, parts: int, part: int) -> Span:
    """One of `parts` pieces of `count` things; earlier pieces are longer by one where it does not divide."""
    size, longer = divmod(count, parts)
    start = part * size + min(part, longer)
    return Span(start, start + size + (part < longer))


def _within(span: Span, parts: int, part: int) -> Span:
    start, stop = _evenly(max(0, span.stop - span.start), parts, part)
    return Span(span.start + start, span.start + stop)


def _own_rows(rows: int, world_size: int, rank: int) -> Span:
    """A rank's piece of the rows; with fewer rows than ranks, rows serve several."""
    if rows < world_size:
        return Span(rank % rows, rank % rows + 1)
    return _evenly(rows, world_size, rank)


def _in_proportion(own: Span, quota: list[int]) -> list[Span]:
    """Divide rows in proportion to what is drawn from them, at least one to whoever draws."""
    spans: list[Span] = []
    drawn, total, start = 0, sum(quota), own.start
    active = sum(1 for samples in quota if samples)
    for worker, samples in enumerate(quota):
        drawn += samples
        stop = own.start + -(-(own.stop - own.start) * drawn // total) if samples else start
        if samples:
            stop = min(max(stop, start + 1), own.stop - (active - 1 - worker))
        spans.append(Span(start, stop))
        start = stop
    return spans


def _around(start: int, count: int, rows: int) -> list[Span]:
    """`count` rows from `start` on, beginning again at the table's head."""
    spans: list[Span] = []
    while count:
        start %= rows
        stop = min(rows, start + count)
        spans.append(Span(start, stop))
        start, count = stop, count - (stop - start)
    return spans


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """Spans without empty ones, neighbours as one."""
    joined: list[Span] = []
    for span in spans:
        if span.start >= span.stop:
            continue
        if joined and joined[-1].stop == span.start:
            joined[-1] = Span(joined[-1].start, span.stop)
        else:
            joined.append(span)
    return tuple(joined)
