"""Who reads how many samples of which rows, and where they go on: ranks first, then their loading processes. Arithmetic only.

Words: *rows* is the length of the active table, *samples* the global number of samples of a pass before batching, a *budget*
what one rank gets of them, a *quota* what one loading process gets of that. A *consumer* is a loading process, or the training
process where it loads itself. A *step* is one batch on each rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from dataset_rt._torch.seeds import consumer_seed

Order = Literal["weighted", "sequential", "permutation"]
ORDERS: tuple[Order, ...] = ("weighted", "sequential", "permutation")
Partition = Literal["split", "replicate", "stream"]
PARTITIONS: tuple[Partition, ...] = ("split", "replicate", "stream")
#: Samples of a pass that has no end. Nobody gets so far.
ENDLESS = 2**62


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


class Place(NamedTuple):
    """Where a loader goes on.

    Attributes:
        passes: Passes before this one, since the table was set.
        delivered: Batches of this pass that each rank has had; never all of them, unless a pass has none.
        positions: Where the consumers of a rank go on, in samples of their own streams, the same on all ranks. With `stream` it
            is one number: where the next step begins, in samples of all ranks.
    """

    passes: int
    delivered: int
    positions: tuple[int, ...]


class Part(NamedTuple):
    """What one loading process does in what is left of a pass.

    Attributes:
        share: The consumer whose share it reads.
        position: Where it begins, in samples of that stream.
        samples: How many it gives.
    """

    share: int
    position: int
    samples: int


@dataclass(frozen=True)
class Topology:
    """Everything that decides who reads what.

    Attributes:
        rows: Length of the active table, at least 1.
        samples: Global samples of a pass, at least 1; `ENDLESS` for one without an end, in one stream.
        batch_size: Samples of a batch.
        drop_last: Whether incomplete batches are dropped.
        world_size: Training processes.
        rank: Which of them this is.
        num_workers: Loading processes of each; 0 when it loads itself.
        partition: Whether consumers divide the rows, have all of them each, or take turns in one stream.
        order: How rows are drawn.
        seed: The loader's seed, the same on all ranks; unused in table order.
        repeats: Whether every pass begins at the first sample, with processes that do not live on.
    """

    rows: int
    samples: int
    batch_size: int
    drop_last: bool
    world_size: int
    rank: int
    num_workers: int
    partition: Partition
    order: Order
    seed: int
    repeats: bool = False

    @property
    def shuffle(self) -> bool:
        """Whether rows come in another order than the table's."""
        return self.order != "sequential"

    @property
    def endless(self) -> bool:
        """Whether a pass has no end."""
        return self.samples == ENDLESS

    @property
    def step(self) -> int:
        """Samples of all ranks in a step."""
        return self.world_size * self.batch_size

    @property
    def stride(self) -> int | None:
        """How far apart the batches of a consumer begin in the one stream; None where it has a stream of its own."""
        return self.consumers * self.step if self.partition == "stream" else None

    @property
    def consumers(self) -> int:
        """Consumers of this rank."""
        return max(1, self.num_workers)

    @property
    def budget(self) -> int:
        """Samples of each rank in a pass: rounded up, or down to whole batches when incomplete ones are dropped."""
        if self.drop_last:
            return self.samples // self.step * self.batch_size
        if self.partition == "stream":
            return -(-self.samples // self.step) * self.batch_size
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

    def beginning(self, passes: int = 0) -> Place:
        """The place before the first sample."""
        return Place(passes, 0, (0,) * (1 if self.partition == "stream" else self.consumers))

    def after(self, place: Place, batches: int) -> Place:
        """The place behind some more batches of a pass; behind its last one, that is the beginning of the next pass.

        Args:
            place: Where the pass was begun, or gone on with.
            batches: Batches of each rank since then, no more than the pass has left.
        """
        delivered = place.delivered + batches
        if self.partition == "stream":
            positions: tuple[int, ...] = (place.positions[0] + batches * self.step,)
        else:
            quota = [share.quota for share in self.shares()]
            given = [self._given(quota, count) for count in (place.delivered, delivered)]
            positions = tuple(position + after - before for position, before, after in zip(place.positions, *given, strict=True))
        if delivered < self.num_batches:
            return Place(place.passes, delivered, positions)
        return self.next_pass(Place(place.passes, 0, positions))

    def next_pass(self, place: Place) -> Place:
        """Where the pass after that of a place begins, be it complete or given up."""
        if self.repeats:
            return self.beginning(place.passes + 1)
        return Place(place.passes + 1, 0, place.positions)

    def part(self, place: Place, process: int) -> Part:
        """What a loading process does, so that torch, which asks them in turn from the first on, gets the next batch first."""
        if self.partition == "stream":
            batches = len(range(process, self.num_batches - place.delivered, self.consumers))
            position = place.positions[0] + process * self.step + self.rank * self.batch_size
            return Part(process, position, batches * self.batch_size)
        quota = [share.quota for share in self.shares()]
        given, turn = turns([-(-samples // self.batch_size) for samples in quota], place.delivered)
        share = (process + turn) % self.consumers
        done = min(quota[share], given[share] * self.batch_size)
        return Part(share, place.positions[share], quota[share] - done)

    def _given(self, quota: list[int], batches: int) -> list[int]:
        """Samples of each consumer in the first `batches` batches of a pass."""
        given, _ = turns([-(-samples // self.batch_size) for samples in quota], batches)
        return [min(samples, count * self.batch_size) for samples, count in zip(quota, given, strict=True)]


def quotas(budget: int, batch_size: int, consumers: int) -> list[int]:
    """Divide a rank's samples: whole batches, earlier consumers one more, the remainder to the last one that has work."""
    batches, rest = divmod(budget, batch_size)
    active = min(consumers, max(batches, 1)) if budget else 0
    each = [_evenly(batches, active, worker) for worker in range(active)]
    result = [(stop - start) * batch_size for start, stop in each]
    if rest:
        result[-1] += rest
    return result + [0] * (consumers - active)


def turns(batches: list[int], count: int) -> tuple[list[int], int]:
    """Take turns, without those who have no more, as torch does with its processes.

    Args:
        batches: How many each consumer has; those of consumers with work differ by one at most.
        count: How many are taken, no more than there are.

    Returns:
        How many each one gave, and who comes next; the first consumer when nobody has more.
    """
    working = [number for number in batches if number]
    rounds = min(*working, count // len(working)) if working else 0
    given = [min(rounds, number) for number in batches]
    left, turn = count - sum(given), 0
    while left:
        if given[turn] < batches[turn]:
            given[turn] += 1
            left -= 1
        turn = (turn + 1) % len(batches)
    waiting = [(turn + ahead) % len(batches) for ahead in range(len(batches))]
    return given, next((each for each in waiting if given[each] < batches[each]), 0)


def shares(topology: Topology) -> tuple[Share, ...]:
    """What each consumer of a rank reads.

    In table order and split, a pass over exactly the table gives each consumer the rows of its own batches: the table's rows one
    after another, beginning again at its head where ranks are padded. Rows that are left over when incomplete batches are
    dropped are dealt out behind those, so that a later pass reads them. Any other number of samples divides the rows evenly.
    Shuffled, the rows are divided in proportion to what is drawn from them. In one stream, every consumer has all rows and the
    loader's own seed, and they differ by the steps that they take.

    Source: docs/explanation/loading.md.
    """
    rows, budget, rank, world = topology.rows, topology.budget, topology.rank, topology.world_size
    whole = (Span(0, rows),)
    spans: list[tuple[Span, ...]]
    if topology.partition == "stream":
        quota = [topology.part(topology.beginning(), process).samples for process in range(topology.consumers)]
        seed = topology.seed if topology.shuffle else 0
        return tuple(Share(samples, whole, seed) if samples else Share(0, ()) for samples in quota)
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
