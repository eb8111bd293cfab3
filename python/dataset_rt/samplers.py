"""Samplers: which rows come next, for any loader that takes row numbers. Nothing here imports torch.

A sampler goes into `DataLoader(sampler=...)`, a batch sampler into `DataLoader(batch_sampler=...)`. Each has one global order
per epoch, which only its arguments decide. Rank r of R takes the positions r, r + R, r + 2R of it: ranks and batch sizes with
one product see the same global batches. All ranks get equally many: the last ones begin again at the epoch's start, or, with
`drop_last`, the rest is left out.

*Epochs.* A complete pass is followed by the next epoch, with another order. `set_epoch` chooses one; a pass that was given up
begins again. *Going on.* `state_dict` says how far the newest pass is: what was yielded counts, so with a loader that asks
ahead (`num_workers` above 0) let torchdata's `StatefulDataLoader` keep the state, which notes it batch by batch. A state is the
same on all ranks, and may be loaded with another number of them.
"""

# A pass and its sampler are two halves of one thing, and datasets are this package's own.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import hashlib
import math
import operator
import struct
import sys
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Mapping, Sequence, Sized
from decimal import Decimal
from itertools import accumulate
from numbers import Real
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dataset_rt._dataset import CachedDataset
from dataset_rt._map_dataset import MapDataset
from dataset_rt._native import BalancedPlan, Plan, WeightedOrder
from dataset_rt.exceptions import InvalidInputError, StateMismatchError

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from dataset_rt._native import TableView

__all__ = ["ClassBalancedSampler", "LengthBucketBatchSampler", "PermutationSampler", "Sampler", "WeightedSampler"]

T = TypeVar("T")

_FORMAT = "dataset-rt/sampler"
_VERSION = 1
_MAX_U64 = 2**64 - 1
_MAX_SAMPLES = 2**53  # what JSON keeps exactly
_MAX_RANKS = 2**16  # that a state may be of
_AT_ONCE = 1024  # elements of a rank that are computed in one call


class Sampler(ABC, Generic[T]):
    """What samplers share: ranks, epochs, and how far the newest pass is. They yield row numbers; batch ones, lists of them."""

    def __init__(self, *, seed: int, rank: int | None, world_size: int | None, drop_last: bool) -> None:
        self._seed = operator.index(seed)
        if not 0 <= self._seed <= _MAX_U64:
            raise OverflowError(f"seed must be 0 to 2**64 - 1; got {seed}")
        if (rank is None) != (world_size is None):
            raise _invalid("rank and world_size go together")
        if rank is not None and world_size is not None and not 0 <= rank < world_size:
            raise _invalid(f"rank must be 0 to world_size - 1; got {rank} of {world_size}")
        self._given_world = None if rank is None or world_size is None else (rank, world_size)
        self._drop_last = bool(drop_last)
        # Where the next pass begins, how many were begun or made since that was said, and the pass that the state is of.
        self._epoch = self._position = self._num_passes = 0
        self._newest: _Pass[T] | None = None
        # Positions of the endless order that an epoch takes; an order by epochs takes one.
        self._stride = 1
        # Of an epoch, what all of its elements come from, where that takes long to make.
        self._made: tuple[int, Any] | None = None

    @abstractmethod
    def _epoch_len(self, epoch: int) -> int:
        """Elements of the global order of an epoch."""

    @abstractmethod
    def _elements(self, epoch: int, start: int, count: int) -> Sequence[T]:
        """Elements of that order, all of which are there."""

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """What decides the order: small values as they are, large ones as digests."""

    @property
    def _last_epoch(self) -> int:
        """The last one but for one whose positions are all there, so that the one behind it can be begun."""
        return (_MAX_U64 - 1) // self._stride - 2

    def _world(self) -> tuple[int, int]:
        """Rank and number of ranks: as given, or of torch's default process group if there is one."""
        if self._given_world is not None:
            return self._given_world
        torch = sys.modules.get("torch")  # without torch there is no group
        distributed = getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return distributed.get_rank(), distributed.get_world_size()
        return 0, 1

    def _steps(self, epoch: int, start: int, world_size: int) -> int:
        """Elements of each rank from a position of the global order on."""
        left = max(self._epoch_len(epoch) - start, 0)
        return left // world_size if self._drop_last else -(-left // world_size)

    def __iter__(self) -> Iterator[T]:
        """Begin a pass, behind the place that was loaded, or at the beginning of the current epoch.

        Returns:
            An iterator of this rank's part.
        """
        self._num_passes += 1
        return _Pass(self, self._num_passes)

    def __len__(self) -> int:
        """What a whole pass of the current epoch yields on each rank."""
        return self._steps(self._epoch, 0, self._world()[1])

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass. Naming the current one changes nothing: a place that was loaded stays.

        Args:
            epoch: From 0.

        Raises:
            TypeError: It is not an integer.
            InvalidInputError: It is negative, or beyond the 2**64 positions of the order (also a ValueError).
        """
        epoch = operator.index(epoch)
        if not 0 <= epoch <= self._last_epoch:
            raise _invalid(f"epoch must be 0 to {self._last_epoch}; got {epoch}")
        if epoch != self._epoch:
            self._begin_at(epoch, 0)

    def state_dict(self) -> dict[str, Any]:
        """Say how far the newest pass is.

        Returns:
            A dict that fits into JSON, under 4 KiB whatever the data: `kind`, `epoch`, `position` (in the global order of the
            epoch, all ranks together) and `order`, what decides the order.
        """
        newest = self._newest
        epoch, position = (self._epoch, self._position) if newest is None else (newest.epoch, newest.position)
        order = self._identity()
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "kind": type(self).__name__,
            "epoch": epoch,
            "position": position,
            "order": order,
        }

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Let the next pass go on exactly behind a place, on as many ranks as there are now.

        Args:
            state: What `state_dict` of such a sampler returned, on any rank.
            strict: Refuse the state of another order. Otherwise go on by position all the same.

        Raises:
            InvalidInputError: It is not such a state (also a ValueError).
            StateMismatchError: It is of another order; the message says what differs. The sampler is then as it was.
        """
        epoch, position, order = _read_state(state)
        if epoch > self._last_epoch:
            raise _invalid(f"this is no state of a sampler: there is no epoch {epoch}", "invalid-state")
        if strict:
            own = {"kind": type(self).__name__, **self._identity()}
            saved = {"kind": state.get("kind"), **order}
            _compare(own, saved)
        # Behind the end by what ranks were padded with is at the end. Further on is nothing of this order.
        if position > self._epoch_len(epoch) + _MAX_RANKS:
            if strict:
                raise _invalid(f"this is no state of a sampler: epoch {epoch} has no position {position}", "invalid-state")
            epoch, position = epoch + 1, 0
        self._begin_at(epoch, position)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy needs: it has this one's place, and a pass of its own."""
        newest = self._newest
        place = (self._epoch, self._position) if newest is None else (newest.epoch, newest.position)
        return {**vars(self), "_epoch": place[0], "_position": place[1], "_num_passes": 0, "_newest": None, "_made": None}

    def _begin_at(self, epoch: int, position: int) -> None:
        self._epoch, self._position, self._num_passes, self._newest = epoch, position, 0, None


class _Pass(Iterator[T]):
    """An iterator over a rank's part of an epoch. It takes its place at the first step: loaders make some that they never use.

    Attributes:
        epoch: Which one.
        position: Elements of the global order that were yielded, on all ranks together.
    """

    def __init__(self, sampler: Sampler[T], number: int) -> None:
        self._sampler, self._number = sampler, number
        self._source: Iterator[T] | None = None
        self.epoch = self.position = self._world_size = 0

    def _begin(self) -> Iterator[T]:
        sampler = self._sampler
        rank, self._world_size = sampler._world()
        self.epoch, self.position = sampler._epoch, sampler._position
        steps = sampler._steps(self.epoch, self.position, self._world_size)
        if self.position and not steps and self._number > 1:
            # The place is the end of an epoch, and a pass over the nothing behind it was made and thrown away.
            self.epoch, self.position = self.epoch + 1, 0
            steps = sampler._steps(self.epoch, 0, self._world_size)
        sampler._epoch, sampler._position, sampler._newest = self.epoch, 0, self
        return self._part(self.position + rank, steps)

    def _part(self, start: int, steps: int) -> Iterator[T]:
        sampler, stride = self._sampler, self._world_size
        length = sampler._epoch_len(self.epoch)
        for done in range(0, steps, _AT_ONCE):
            first = start + done * stride
            span = (min(_AT_ONCE, steps - done) - 1) * stride + 1
            here = max(min(span, length - first), 0)
            elements = list(sampler._elements(self.epoch, first, here)[::stride]) if here else []
            yield from elements
            # Padding: the order once more from its beginning.
            for position in range(first + len(elements) * stride, first + span, stride):
                yield sampler._elements(self.epoch, position % length, 1)[0]

    def __next__(self) -> T:
        if self._source is None:
            self._source = self._begin()
        try:
            element = next(self._source)
        except StopIteration:
            if self._sampler._newest is self:
                self._sampler._begin_at(self.epoch + 1, 0)
            raise
        self.position += self._world_size
        return element


class PermutationSampler(Sampler[int]):
    """Each row once per epoch, in another order each time, computed as it is needed: no memory grows with the rows."""

    def __init__(
        self,
        *,
        rows: int | Sized,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        """Permute row numbers.

        Args:
            rows: How many, 1 to 2**32 - 1, or a dataset (its length counts).
            seed: Of all orders.
            rank: Which rank this is, with `world_size`. None: as torch's default process group says when a pass begins.
            world_size: How many ranks there are.
            drop_last: Leave out rows at the end, so that ranks are equal; otherwise some come twice.

        Raises:
            TypeError: A number is not an integer.
            InvalidInputError: There are no rows, too many, or fewer than ranks with `drop_last`; no such rank.
            OverflowError: The seed is outside 0 to 2**64 - 1.
        """
        super().__init__(seed=seed, rank=rank, world_size=world_size, drop_last=drop_last)
        if isinstance(rows, bool):
            raise TypeError(f"rows must be an integer or a dataset; got {rows}")
        view = _view_of(rows)
        if isinstance(rows, Sized):
            self._num_rows = len(rows) if view is None else view.num_rows
        else:
            self._num_rows = operator.index(rows)
        if not 0 <= self._num_rows <= _MAX_U64:
            raise _invalid(f"rows must be 1 to 2**32 - 1; got {self._num_rows}")
        self._plan = Plan("permutation", population=self._num_rows, seed=self._seed)
        self._stride = self._num_rows
        self._dataset = _Dataset(view)
        _check_not_empty(self)

    def _epoch_len(self, epoch: int) -> int:
        return self._num_rows

    def _elements(self, epoch: int, start: int, count: int) -> Sequence[int]:
        return self._plan.rows(epoch * self._num_rows + start, count)

    def _identity(self) -> dict[str, Any]:
        return {"seed": self._seed, "rows": self._num_rows, "dataset": self._dataset.digest()}


class WeightedSampler(Sampler[int]):
    """Rows as often as their weights say: drawn with replacement, or, without, the heavier ones earlier.

    *With replacement* the draws are exact for up to 2**32 - 1 rows, at 12 bytes a row, and epochs are pieces of one endless
    sequence. *Without*, each next row is drawn with a chance proportional to its weight among those that are left in the epoch
    (Efraimidis and Spirakis, 2006). Each epoch then takes time in proportion to all rows, when it begins.

    Source: crates/drt-sampler/README.md.
    """

    def __init__(
        self,
        *,
        weights: CachedDataset | MapDataset[Any] | Sequence[float] | Buffer,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        """Draw by weight.

        Args:
            weights: One per row, positive and finite; only ratios matter. Of a dataset, the `weight` column of its table.
            num_samples: Of an epoch, over all ranks. None: as many as there are rows. Without replacement at most that.
            replacement: Whether rows may come again within an epoch.
            seed: Of all draws.
            rank: As for `PermutationSampler`.
            world_size: As for `PermutationSampler`.
            drop_last: As for `PermutationSampler`.

        Raises:
            TypeError: A weight is no number, or a number is not an integer.
            InvalidInputError: A weight is not positive and finite, there is none, `num_samples` cannot be; no such rank.
            OverflowError: The seed is outside 0 to 2**64 - 1.
        """
        super().__init__(seed=seed, rank=rank, world_size=world_size, drop_last=drop_last)
        view = _view_of(weights)
        self._dataset = _Dataset(view)
        self._replacement = bool(replacement)
        self._plan: Plan | WeightedOrder
        if view is not None:
            self._weights_digest: str | None = None  # the dataset knows it
            self._plan = view.plan("weighted", self._seed) if replacement else view.weighted_order(self._seed)
        else:
            floats = _floats(weights)
            _check_rows(len(floats))
            self._weights_digest = _sha256(floats)
            self._plan = (
                Plan("weighted", weights=floats, seed=self._seed) if replacement else WeightedOrder(floats, seed=self._seed)
            )
        self._num_samples = _num_samples(num_samples, self._plan.population)
        if not replacement and self._num_samples > self._plan.population:
            raise _invalid(f"{self._num_samples} of {self._plan.population} rows cannot be drawn without replacement")
        self._stride = self._num_samples if replacement else 1
        self._made: tuple[int, array[int]] | None = None
        _check_not_empty(self)

    def _epoch_len(self, epoch: int) -> int:
        return self._num_samples

    def _elements(self, epoch: int, start: int, count: int) -> Sequence[int]:
        if isinstance(self._plan, Plan):
            return self._plan.rows(epoch * self._num_samples + start, count)
        made = self._made
        if made is None or made[0] != epoch:
            made = self._made = (epoch, array("Q", self._plan.rows(epoch, self._num_samples)))
        return made[1][start : start + count]

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "rows": self._plan.population,
            "num_samples": self._num_samples,
            "replacement": self._replacement,
            "weights": self._weights_digest or self._dataset.weights_digest(),
            "dataset": self._dataset.digest(),
        }


class ClassBalancedSampler(Sampler[int]):
    """Classes in given shares, and within a class each row once before any comes again, in another order each time round.

    Shares are kept over every stretch, not only on average: after any number k of samples, a class has come k times its share,
    give or take the binary logarithm of the number of classes. Epochs are pieces of one endless sequence, so that what one
    epoch left of a class comes in the next.

    Source: crates/drt-sampler/README.md, "Mixtures".
    """

    def __init__(
        self,
        *,
        labels: CachedDataset | MapDataset[Any] | Sequence[Any],
        column: str | None = None,
        shares: Mapping[Any, float] | None = None,
        num_samples: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        """Balance classes.

        Args:
            labels: The class of each row, by any value that can be a key of a dict; or a dataset, with `column`. All NaNs are
                one class.
            column: Of the dataset's table, the one with the classes.
            shares: For each class its share, positive; only ratios matter. None: all the same.
            num_samples: Of an epoch, over all ranks. None: as many as there are rows.
            seed: Of all orders.
            rank: As for `PermutationSampler`.
            world_size: As for `PermutationSampler`.
            drop_last: As for `PermutationSampler`.

        Raises:
            TypeError: A label cannot be a key, or a number is not an integer.
            InvalidInputError: There are no rows or no such column, `shares` leaves out a class or names one without rows, a share
                is not positive and finite, `num_samples` cannot be; no such rank.
            OverflowError: The seed is outside 0 to 2**64 - 1.
        """
        super().__init__(seed=seed, rank=rank, world_size=world_size, drop_last=drop_last)
        values, view = _values(labels, column, "labels")
        groups, number_of = _classes(values)
        if any(map(_is_nan, number_of)):  # each may be a key of its own
            groups, number_of = _classes([math.nan if _is_nan(value) else value for value in values])
        _check_rows(len(groups))
        if shares is None:
            amounts = [1.0] * len(number_of)
        else:
            shares = {math.nan if _is_nan(label) else label: share for label, share in shares.items()}
            left_out = [label for label in number_of if label not in shares]
            if left_out:
                raise _invalid(f"there is no share for {left_out[0]!r}; to leave rows out, drop them from the table")
            absent = [label for label in shares if label not in number_of]
            if absent:
                raise _invalid(f"there is a share for {absent[0]!r}, and no row has this label")
            amounts = [float(shares[label]) for label in number_of]
        self._plan = BalancedPlan(groups, amounts, seed=self._seed)
        self._labels_digest, self._shares_digest = _sha256(groups), _sha256(array("d", amounts))
        self._num_classes = len(amounts)
        self._num_samples = self._stride = _num_samples(num_samples, self._plan.population)
        self._dataset = _Dataset(view)
        _check_not_empty(self)

    def _epoch_len(self, epoch: int) -> int:
        return self._num_samples

    def _elements(self, epoch: int, start: int, count: int) -> Sequence[int]:
        return self._plan.rows(epoch * self._num_samples + start, count)

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "rows": self._plan.population,
            "num_samples": self._num_samples,
            "classes": self._num_classes,
            "labels": self._labels_digest,
            "shares": self._shares_digest,
            "dataset": self._dataset.digest(),
        }


class LengthBucketBatchSampler(Sampler[list[int]]):
    """Batches of rows that are alike in length, so that little is padded, in another composition and order each epoch.

    The rows of an epoch are permuted, cut into pools, sorted by length within each pool, cut into batches, and the batches are
    permuted. Each row comes once per epoch. Position and length count batches. An epoch takes time and 16 bytes for each row
    when it begins.
    """

    def __init__(
        self,
        *,
        lengths: CachedDataset | MapDataset[Any] | Sequence[int] | Buffer,
        column: str | None = None,
        batch_size: int | None = None,
        max_tokens_per_batch: int | None = None,
        pool_size: int = 64,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        """Make batches by length.

        Args:
            lengths: Of each row, in any unit; or a dataset, with `column`.
            column: Of the dataset's table, the one with the lengths.
            batch_size: Rows of a batch. Either this or `max_tokens_per_batch`.
            max_tokens_per_batch: What a padded batch may have: its rows times the longest of them, in the unit of `lengths`.
            pool_size: Batches of a pool, about so many with `max_tokens_per_batch`. More is less padding, and more alike epochs.
            seed: Of all orders.
            rank: As for `PermutationSampler`.
            world_size: As for `PermutationSampler`.
            drop_last: Leave out an incomplete batch, with `batch_size`, and batches at the end, so that ranks are equal;
                otherwise some batches come twice.

        Raises:
            TypeError: A number is not an integer.
            InvalidInputError: There are no rows or no such column, a length is negative or above `max_tokens_per_batch`, a size
                is below 1, both or none of the sizes are given, no batch is left; no such rank.
            OverflowError: The seed is outside 0 to 2**64 - 1.
        """
        super().__init__(seed=seed, rank=rank, world_size=world_size, drop_last=drop_last)
        values, view = _values(lengths, column, "lengths")
        self._lengths = array("q", map(operator.index, values))
        _check_rows(len(self._lengths))
        if (batch_size is None) == (max_tokens_per_batch is None):
            raise _invalid("either batch_size or max_tokens_per_batch must be given")
        self._batch_size = None if batch_size is None else _positive(batch_size, "batch_size")
        self._max_tokens = None if max_tokens_per_batch is None else _positive(max_tokens_per_batch, "max_tokens_per_batch")
        self._pool_size = _positive(pool_size, "pool_size")
        for row, length in enumerate(self._lengths):
            if length < 0:
                raise _invalid(f"row {row} has length {length}")
            if self._max_tokens is not None and length > self._max_tokens:
                raise _invalid(f"row {row} has length {length}, and a batch may have {self._max_tokens}")
        self._plan = Plan("permutation", population=len(self._lengths), seed=self._seed)
        self._stride = len(self._lengths)
        self._lengths_digest = _sha256(self._lengths)
        self._made: tuple[int, _Batches] | None = None
        self._dataset = _Dataset(view)
        _check_not_empty(self)

    def _pool_rows(self) -> int:
        if self._batch_size is not None:
            return self._pool_size * self._batch_size
        assert self._max_tokens is not None
        return max(self._pool_size * self._max_tokens * len(self._lengths) // max(sum(self._lengths), 1), 1)

    def _batches(self, epoch: int) -> _Batches:
        made = self._made
        if made is None or made[0] != epoch:
            made = self._made = (epoch, self._make(epoch))
        return made[1]

    def _make(self, epoch: int) -> _Batches:
        num_rows, pool_rows = len(self._lengths), self._pool_rows()
        rows, sizes = array("Q"), array("Q")
        for start in range(0, num_rows, pool_rows):
            pool = self._plan.rows(epoch * num_rows + start, min(pool_rows, num_rows - start))
            pool.sort(key=self._lengths.__getitem__)  # stable: among equals the permutation decides
            rows.extend(pool)
            sizes.extend(self._cut(pool))
        if self._drop_last and self._batch_size is not None and sizes and sizes[-1] < self._batch_size:
            sizes.pop()  # the shortest pool is the last one, and its last batch alone may be incomplete
        order: list[int] = []
        if sizes:
            order = Plan("permutation", population=len(sizes), seed=_other(self._seed)).rows(epoch * len(sizes), len(sizes))
        return _Batches(rows, array("Q", accumulate(sizes, initial=0)), array("Q", order))

    def _cut(self, pool: list[int]) -> list[int]:
        """The sizes of a pool's batches."""
        if self._batch_size is not None:
            return [min(self._batch_size, len(pool) - start) for start in range(0, len(pool), self._batch_size)]
        assert self._max_tokens is not None
        sizes: list[int] = []
        count = 0
        for row in pool:  # ascending: the newest row is the longest
            if count and (count + 1) * self._lengths[row] > self._max_tokens:
                sizes.append(count)
                count = 0
            count += 1
        return [*sizes, count]

    def _epoch_len(self, epoch: int) -> int:
        return len(self._batches(epoch).order)

    def _elements(self, epoch: int, start: int, count: int) -> Sequence[list[int]]:
        batches = self._batches(epoch)
        return [batches.rows[batches.starts[at] : batches.starts[at + 1]].tolist() for at in batches.order[start : start + count]]

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "rows": len(self._lengths),
            "batch_size": self._batch_size,
            "max_tokens_per_batch": self._max_tokens,
            "pool_size": self._pool_size,
            "lengths": self._lengths_digest,
            "dataset": self._dataset.digest(),
        }


class _Batches:
    """The batches of an epoch.

    Attributes:
        rows: Batch after batch.
        starts: Where each batch begins in them, and where the last one ends.
        order: The batches' numbers in the order of the epoch.
    """

    def __init__(self, rows: array[int], starts: array[int], order: array[int]) -> None:
        self.rows, self.starts, self.order = rows, starts, order


class _Dataset:
    """The dataset that row numbers are of, if it is known. A copy knows its digests alone."""

    def __init__(self, view: TableView | None, rows: str | None = None, weights: str | None = None) -> None:
        self._view, self._rows, self._weights = view, rows, weights

    def digest(self) -> str | None:
        """Of the caches and the rows."""
        if self._view is None:
            return self._rows
        caches, rows, _ = self._view.digests()
        return hashlib.sha256(f"{caches} {rows}".encode()).hexdigest()

    def weights_digest(self) -> str | None:
        """Of the weights, if they differ."""
        return self._weights if self._view is None else self._view.digests()[2]

    def __reduce__(self) -> tuple[object, ...]:
        return _Dataset, (None, self.digest(), self.weights_digest())


def _other(seed: int) -> int:
    """A seed for the order of batches: that of the rows would give both the same permutation when batches have one row."""
    (other,) = struct.unpack("<Q", hashlib.sha256(b"dataset-rt/batches" + struct.pack("<Q", seed)).digest()[:8])
    return int(other)


def _invalid(message: str, kind: str = "invalid-argument") -> InvalidInputError:
    return InvalidInputError(message, kind=kind)


def _positive(value: int, name: str) -> int:
    number = operator.index(value)
    if number < 1:
        raise _invalid(f"{name} must be at least 1; got {number}")
    return number


def _num_samples(asked: int | None, rows: int) -> int:
    number = rows if asked is None else _positive(asked, "num_samples")
    if number > _MAX_SAMPLES:
        raise _invalid(f"num_samples must be at most 2**53; got {number}")
    return number


def _check_rows(count: int) -> None:
    if count == 0:
        raise _invalid("there are no rows: a sampler needs at least one")


def _check_not_empty(sampler: Sampler[Any]) -> None:
    """Passes over nothing would only show later."""
    if len(sampler) == 0:
        raise _invalid(f"with drop_last nothing is left for each of {sampler._world()[1]} ranks")


def _view_of(rows: object) -> TableView | None:
    if isinstance(rows, CachedDataset):
        return rows._native.view()
    return rows._view if isinstance(rows, MapDataset) else None


def _values(source: Any, column: str | None, name: str) -> tuple[Sequence[Any], TableView | None]:
    """A value for each row, and what the rows are of."""
    if isinstance(source, CachedDataset):
        source = source.to_torch_map_dataset()  # one moment for the column and the rows
    if isinstance(source, MapDataset):
        if column is None:
            raise _invalid(f"name the column that has the {name}")
        frame = source.get_metadata()
        if column not in frame.columns:
            raise _invalid(f"the table has no column {column!r}")
        return frame[column].to_list(), source._view
    if column is not None:
        raise _invalid("only datasets have columns")
    # Arrays and tensors have values that are no Python numbers.
    return source.tolist() if hasattr(source, "tolist") else list(source), None


def _classes(values: Sequence[Any]) -> tuple[array[int], dict[Any, int]]:
    """The number of each row's class, and of each label; classes are numbered as they come."""
    number_of: dict[Any, int] = {}
    return array("I", [number_of.setdefault(value, len(number_of)) for value in values]), number_of


def _is_nan(value: Any) -> bool:
    return isinstance(value, (Real, Decimal)) and math.isnan(value)


def _floats(values: Any) -> memoryview | array[float]:
    """Numbers as a buffer of 64-bit floats, without a copy if they are one."""
    if hasattr(values, "numpy"):  # a tensor
        values = values.numpy()
    try:
        view = memoryview(values)
    except TypeError:
        return array("d", values)
    if view.ndim != 1:
        raise _invalid(f"weights must have one dimension; got {view.ndim}")
    return view if view.format == "d" and view.c_contiguous else array("d", view.tolist())


def _sha256(buffer: memoryview | array[Any]) -> str:
    return hashlib.sha256(memoryview(buffer).cast("B")).hexdigest()


def _read_state(given: object) -> tuple[int, int, dict[str, Any]]:
    """Epoch, position and order of a state."""
    state: Mapping[str, Any] = cast("Mapping[str, Any]", given) if isinstance(given, Mapping) else {}
    if state.get("format") != _FORMAT:
        raise _invalid(f"this is no state of a sampler: its format is not {_FORMAT}", "invalid-state")
    if state.get("version") != _VERSION:
        message = f"the state has version {state.get('version')}, and this release reads version {_VERSION}"
        raise StateMismatchError(message, kind="state-mismatch")
    epoch, position, order = state.get("epoch"), state.get("position"), state.get("order")
    numbers_fit = all(type(number) is int and 0 <= number <= _MAX_U64 for number in (epoch, position))
    if not numbers_fit or not isinstance(order, Mapping):
        raise _invalid("this is no state of a sampler: epoch, position or order is missing or of another type", "invalid-state")
    assert isinstance(epoch, int) and isinstance(position, int)
    return epoch, position, dict(cast("Mapping[str, Any]", order))


def _compare(own: dict[str, Any], saved: dict[str, Any]) -> None:
    digests = {name: name for name in ("weights", "labels", "shares", "lengths")} | {"dataset": "rows of the dataset"}
    differences: list[str] = []
    for name in dict.fromkeys((*own, *saved)):
        here, there = own.get(name), saved.get(name)
        # Row numbers may come from a dataset in one place, and be bare numbers in the other.
        if here == there or (name == "dataset" and None in (here, there)):
            continue
        differences.append(f"the {digests[name]} differ" if name in digests else f"{name} is {here!r} here and was {there!r}")
    if differences:
        raise StateMismatchError(
            f"the state is of another order: {', '.join(differences)}; make the sampler that it was saved with, or pass "
            "strict=False to go on by position",
            kind="state-mismatch",
        )
