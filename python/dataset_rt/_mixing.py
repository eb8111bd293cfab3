"""`MixedDataset`: one stream over several datasets, by exact shares. Nothing here imports torch."""

# Part of the package, as the classes that it takes the insides of.
# pyright: reportPrivateUsage=false

from __future__ import annotations

import copy
import math
import operator
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, SupportsIndex, TypeVar, cast, overload

from dataset_rt._dataset import CachedDataset
from dataset_rt._map_dataset import MapDataset
from dataset_rt._native import PLAN_VERSION, MixedIterator, Mixture
from dataset_rt.exceptions import DatasetRTError, InvalidInputError, StateMismatchError

if TYPE_CHECKING:
    from multiprocessing.context import BaseContext

    from typing_extensions import Self, Unpack

    from dataset_rt._native import Plan, TableView
    from dataset_rt._sample import CachedSample
    from dataset_rt._torch.mixed_loader import MixedLoader
    from dataset_rt._torch.mixing import MixedTorchDataset
    from dataset_rt._torch.options import MixedLoaderOptions

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_FORMAT = "dataset-rt/mixed-state"
_VERSION = 1
_ENDLESS = 2**63 - 1  # positions; nobody gets so far
_MAX_U64 = 2**64 - 1
READ_AT_ONCE = 128  # samples that a slice reads in one call for each component


@overload
def mix(
    datasets: Mapping[str, CachedDataset],
    *,
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
    names: Literal[False] = False,
) -> MixedDataset[CachedSample]: ...
@overload
def mix(
    datasets: Mapping[str, CachedDataset],
    *,
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
    names: Literal[True],
) -> MixedDataset[tuple[str, CachedSample]]: ...


def mix(
    datasets: Mapping[str, CachedDataset],
    *,
    weights: Mapping[str, float] | None = None,
    seed: int = 0,
    names: bool = False,
) -> MixedDataset[Any]:
    """Make one stream of several datasets, in which each has exactly its share.

    After any number k of samples a component was drawn `k * weight / sum of weights` times, give or take less than the binary
    logarithm of the number of components, rounded up: two alternate as evenly as whole numbers allow. The components' own draws
    are what they would be alone: the i-th sample of a component is that at position i of its dataset's stream.

    It is a snapshot: tables, orders and seeds are taken now, later `update_metadata` calls change nothing, and the datasets'
    places in their streams are neither used nor moved.

    Args:
        datasets: Components by name, at least one, in the order that the mixture has them. Their columns may differ, and one
            dataset may be there several times.
        weights: For each component how often it comes: positive and finite, only ratios matter. None: all alike.
        seed: 0 to 2**64 - 1, for how components alternate. Their draws have the seeds of their datasets.
        names: Yield pairs of the component's name and the sample.

    Returns:
        The stream, at its beginning. An epoch has as many samples as all tables have rows.

    Raises:
        TypeError: The datasets or weights are no mappings, or a name, a dataset, a weight or the seed is of another type.
        InvalidInputError: There is no component, a weight is for an unknown one, missing, or not positive and finite (also a
            ValueError), or a dataset is closed.
        OverflowError: The seed is outside 0 to 2**64 - 1.

    Source: docs/guides/mixing.md.
    """
    if not isinstance(datasets, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"datasets must be a mapping from names to datasets; got {type(datasets).__name__}")
    if not datasets:
        raise _invalid("a mixture needs at least one dataset")
    for name, dataset in datasets.items():
        if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"names of components must be str; got {type(name).__name__}")
        if not isinstance(dataset, CachedDataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the component {name!r} must be a CachedDataset; got {type(dataset).__name__}")
    seed = operator.index(seed)
    if not 0 <= seed <= _MAX_U64:
        raise OverflowError(f"seed must be 0 to 2**64 - 1; got {seed}")
    shares = _shares(list(datasets), weights)
    components = [
        _Component(name, share, MapDataset._create(dataset, None, 1), dataset.reader_config.order, dataset.reader_config.seed)
        for (name, dataset), share in zip(datasets.items(), shares, strict=True)
    ]
    return MixedDataset._create(Blend(components, seed, names=bool(names)))


def _shares(names: list[str], weights: Mapping[str, float] | None) -> list[float]:
    if weights is None:
        return [1.0] * len(names)
    if not isinstance(weights, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"weights must be a mapping from names to numbers, or None; got {type(weights).__name__}")
    unknown = [name for name in weights if name not in names]
    if unknown:
        raise _invalid(f"there is a weight for {unknown[0]!r}, and the components are {', '.join(map(repr, names))}")
    shares: list[float] = []
    for name in names:
        if name not in weights:
            raise _invalid(f"the component {name!r} has no weight")
        weight = weights[name]
        if isinstance(weight, (bool, str)):
            raise TypeError(f"the weight of {name!r} must be a number; got {type(weight).__name__}")
        try:
            share = float(weight)
        except OverflowError:
            share = math.inf
        if not (share > 0 and math.isfinite(share)):
            raise _invalid(f"the weight of {name!r} is {weight}, and a weight must be finite and greater than zero")
        shares.append(share)
    return shares


class _Component(NamedTuple):
    """A dataset in a mixture, as it was when the mixture was made."""

    name: str
    share: float
    rows: MapDataset[CachedSample]
    order: Literal["weighted", "sequential", "permutation"]
    seed: int


class Blend:
    """What decides the samples of a mixture at each position. Pickled, it is a handle for other processes.

    Attributes:
        components: In their order.
        seed: Of their alternation.
        names: Whether samples come with the name of their component.
        num_rows: Of all tables together.
    """

    def __init__(self, components: list[_Component], seed: int, *, names: bool) -> None:
        self.components, self.seed, self.names = components, seed, names
        self.num_rows = sum(len(component.rows) for component in components)
        self._mixture: Mixture | None = None
        self._opened: tuple[int, list[tuple[TableView, Plan]]] | None = None
        self._identity: dict[str, Any] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return _restore_blend, (self.components, self.seed, self.names)

    @property
    def mixture(self) -> Mixture:
        """Which component each position belongs to."""
        if self._mixture is None:
            self._mixture = Mixture([component.share for component in self.components], seed=self.seed)
        return self._mixture

    def streams(self) -> list[tuple[TableView, Plan]]:
        """Each component's rows, by threads of this process, and how they are drawn."""
        opened = self._opened
        if opened is None or opened[0] != os.getpid():
            views = [component.rows._view for component in self.components]
            plans = [view.plan(component.order, component.seed) for view, component in zip(views, self.components, strict=True)]
            opened = self._opened = (os.getpid(), list(zip(views, plans, strict=True)))
        return opened[1]

    @property
    def labels(self) -> list[str] | None:
        """What samples of each component come with, if anything."""
        return [component.name for component in self.components] if self.names else None

    def read(self, places: Sequence[tuple[int, int]]) -> Iterator[Any]:
        """Samples at places, each component's in one call."""
        streams = self.streams()
        sources: dict[int, Iterator[CachedSample]] = {}
        for component in sorted({component for component, _ in places}):
            view, plan = streams[component]
            rows = _rows(plan, [index for own, index in places if own == component])
            try:
                sources[component] = iter(view.read(rows))
            except DatasetRTError:  # in its turn, after those before it
                sources[component] = (view.read([row])[0] for row in rows)
        numbers = [component for component, _ in places]
        samples: Iterator[Any] = map(next, map(sources.__getitem__, numbers))
        if (labels := self.labels) is not None:
            samples = zip(map(labels.__getitem__, numbers), samples, strict=True)
        yield from samples

    def identity(self) -> dict[str, Any]:
        """Everything that decides which sample comes at a position: small values as they are, large ones as digests."""
        if self._identity is None:
            self._identity = self._described()
        return copy.deepcopy(self._identity)

    def _described(self) -> dict[str, Any]:
        described: list[dict[str, Any]] = []
        for component, (view, plan) in zip(self.components, self.streams(), strict=True):
            caches, table, weights = view.digests()
            described.append(
                {
                    "name": component.name,
                    "share": component.share,
                    "order": component.order,
                    # What the order does not depend on is None.
                    "seed": None if component.order == "sequential" else component.seed,
                    "rows": plan.population,
                    "caches": caches,
                    "table": table,
                    "weights": weights if component.order == "weighted" else None,
                }
            )
        return {"version": PLAN_VERSION, "seed": self.seed, "components": described}


def _restore_blend(components: list[_Component], seed: int, names: bool) -> Blend:
    return Blend(components, seed, names=names)


class _Place(NamedTuple):
    """Where a mixture's stream is.

    Attributes:
        done: Windows taken before this one.
        position: In the stream, samples.
        rest: Samples left in the window; 0 when it is complete, or has no end.
    """

    done: int
    position: int
    rest: int


class MixedSamples(MixedIterator, Generic[T_co]):
    """An iterator over a window of a mixture's stream. Steps are native: no Python runs for them."""

    __slots__ = ("_blend", "_end", "_epoch_len", "_passes")

    _blend: Blend
    _passes: int
    _end: int
    _epoch_len: int | None

    if TYPE_CHECKING:

        def __next__(self) -> T_co: ...

    @classmethod
    def _create(cls, blend: Blend, begin: _Place, end: int, epoch_len: int | None) -> MixedSamples[Any]:
        made: MixedSamples[Any] = cls(blend.mixture, blend.streams(), begin.position, end - begin.position, names=blend.labels)
        made._blend, made._passes, made._end, made._epoch_len = blend, begin.done, end, epoch_len
        return made

    def _here(self) -> tuple[_Place, bool]:
        """Where the next sample is, and whether that is in the middle of the window; otherwise it is what comes behind it."""
        position, rest = self.place()
        endless = self._end == _ENDLESS
        if rest:
            return _Place(self._passes, position, 0 if endless else rest), True
        return _Place(self._passes + 1, position if endless else self._end, 0), False

    def state_dict(self) -> dict[str, Any]:
        """Say where in the mixture's stream the next sample is: behind the window when it is finished or closed.

        Returns:
            As `MixedDataset.state_dict`; mixtures take it as well.
        """
        return _state(self._blend, self._here()[0], self._epoch_len)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on in this window from the position that a state names, forwards or backwards, also when it was finished or closed.

        Args:
            state: What `state_dict` of a mixture, or of one of its iterators, returned, in any process.
            strict: Refuse the state of a stream that would go on differently.

        Raises:
            InvalidInputError: It is no such state, or its position is not in the window (also a ValueError).
            StateMismatchError: It is of another stream. In either case the iterator is as it was.
        """
        place, _ = _read_state(state, self._blend, strict=strict)
        self.go_to(place.position)


class MixedDataset(Generic[T_co]):
    """One stream over several datasets: iterate it as a `CachedDataset`.

    Made by `mix`. Threads may share it. What is closed, edited or drawn elsewhere does not change it.
    """

    _blend: Blend | None
    _lock: threading.RLock
    _epoch_len: int | None
    _place: _Place
    _newest: MixedSamples[T_co] | None

    def __init__(self) -> None:
        """Refuse: it is made of datasets.

        Raises:
            TypeError: Always.
        """
        raise TypeError("use dataset_rt.mix to make one stream of several datasets")

    @classmethod
    def _create(cls, blend: Blend) -> MixedDataset[Any]:
        mixed: MixedDataset[Any] = cls.__new__(cls)
        mixed._blend, mixed._lock = blend, threading.RLock()
        mixed._epoch_len, mixed._place, mixed._newest = blend.num_rows, _Place(0, 0, 0), None
        return mixed

    @property
    def weights(self) -> dict[str, float]:
        """The share of each component, as given, by name, in the order of the components."""
        return {component.name: component.share for component in self._open_blend.components}

    @property
    def _open_blend(self) -> Blend:
        if self._blend is None:
            raise InvalidInputError("this MixedDataset is closed; mix the datasets again", kind="closed")
        return self._blend

    def close(self) -> None:
        """Let go of the components. Iterators taken before stay usable, as do the datasets; closing again does nothing."""
        self._blend = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._blend is None:
            return "MixedDataset(closed)"
        epoch = "endless" if self._epoch_len is None else f"epoch of {self._next_len()} samples"
        total = math.fsum(component.share for component in self._blend.components)
        parts = ", ".join(f"{each.name!r}: {each.share / total:.3g}" for each in self._blend.components[:20])
        more = len(self._blend.components) - 20
        return f"MixedDataset({{{parts}{f', and {more} more' if more > 0 else ''}}}, {epoch})"

    def __reduce__(self) -> str | tuple[object, ...]:
        raise TypeError(
            "a MixedDataset has a place in its stream and cannot be pickled; pickle its shards, or mix in each process"
        )

    def __iter__(self) -> MixedSamples[T_co]:
        """Take the next window of the stream, at once, as iterating a `CachedDataset` does.

        What the iterator does not yield is skipped. Without an end (`set_epoch_len(None)`) the next iterator goes on behind the
        last sample that this one has yielded by then.

        Returns:
            An iterator of `len(self)` samples, or of as many as you want, that threads may share. It raises `CorruptCacheError`
            or `StorageError` at a sample that cannot be read, after all earlier ones, and is then finished. `close()` gives the
            rest of its window up. `state_dict()` and `load_state_dict(state, strict=True)` are the mixture's, for this window.

        Raises:
            InvalidInputError: The mixture is closed, or its stream ends, after 2**63 - 1 samples.
        """
        blend = self._open_blend
        with self._lock:
            here = self._here()
            length = here.rest or self._epoch_len
            if length is None:
                end = _ENDLESS
            elif (end := here.position + length) >= _ENDLESS:
                raise InvalidInputError("a mixture has 2**63 - 1 samples, and this epoch goes beyond", kind="stream-exhausted")
            samples: MixedSamples[T_co] = MixedSamples._create(blend, here, end, self._epoch_len)
            self._place, self._newest = _Place(here.done + 1, end, 0), samples
        return samples

    def __len__(self) -> int:
        """Samples that the next iterator will yield.

        Raises:
            TypeError: The stream was made endless.
        """
        self._open_blend  # noqa: B018
        return self._next_len()

    def _next_len(self) -> int:
        with self._lock:
            length = self._place.rest or self._epoch_len
        if length is None:
            raise TypeError("an endless mixture has no length; set_epoch_len gives it one")
        return length

    def _here(self) -> _Place:
        """Where the next window begins. The lock is held."""
        if self._place.position == _ENDLESS and self._newest is not None:
            position, _ = self._newest.place()
            return self._place._replace(position=position)
        return self._place

    def set_epoch_len(self, epoch_len: SupportsIndex | None) -> None:
        """Set how many samples each future iterator yields. The place in the stream stays.

        Args:
            epoch_len: Samples, at least 1. None: no end.

        Raises:
            InvalidInputError: It is below 1 (also a ValueError), or the mixture is closed; nothing changes.
            OverflowError: It is beyond 2**63 - 1; nothing changes.
            TypeError: It is not an integer.
        """
        self._open_blend  # noqa: B018
        length = None if epoch_len is None else _epoch_len(epoch_len)
        with self._lock:
            here = self._here()
            if here is not self._place:
                self._newest = None
            self._place, self._epoch_len = here._replace(rest=0), length

    def state_dict(self) -> dict[str, Any]:
        """Say where in its stream the mixture is: as `CachedDataset.state_dict`, behind the last sample of the newest iterator.

        Returns:
            A dict that fits into JSON, about 400 bytes per component whatever the data: `mixture` (plan version, seed, and for
            each component its name, share, order, seed, number of rows, and digests), `pass`, `position`, `rest` and `epoch_len`
            (None without an end).

        Raises:
            InvalidInputError: The mixture is closed.
        """
        blend = self._open_blend
        with self._lock:
            place, epoch_len = self._here(), self._epoch_len
            if self._newest is not None:
                newest, is_middle = self._newest._here()
                place = newest if is_middle else place
        return _state(blend, place, epoch_len)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on from a place in the stream.

        The next iterator yields the rest of the window that the state was in the middle of, if it was in one. Mix the same
        datasets, with the same tables, first: a state holds neither.

        Args:
            state: What `state_dict` of a mixture returned, in any process.
            strict: Refuse the state of a stream that would go on differently. Otherwise go on by position all the same.

        Raises:
            InvalidInputError: It is not such a state (also a ValueError), or the mixture is closed.
            StateMismatchError: It is of another stream; the message names the component and what differs. The mixture is then as
                it was.
        """
        place, epoch_len = _read_state(state, self._open_blend, strict=strict)
        with self._lock:
            self._place, self._epoch_len, self._newest = place, epoch_len, None

    def shard(self, *, batch_size: int, rank: int = 0, world_size: int = 1, drop_last: bool = False) -> MixedShard[T_co]:
        """Give one of several training processes its part of the stream, in fixed slices.

        Global step s is the positions from `s * world_size * batch_size` on, counted from where the stream is now; rank r's batch
        of it is the `batch_size` samples from `r * batch_size` on. So for one global batch size the global batches are the same
        whatever the number of ranks. The place of the mixture stays.

        Args:
            batch_size: Samples of a rank's batch, at least 1.
            rank: Which process this is, from 0.
            world_size: How many there are.
            drop_last: Let an epoch have the whole global steps that its length holds; otherwise the last step is filled up with
                the next samples of the stream. Either way nothing comes twice, and the next epoch goes on behind it.

        Returns:
            The samples of the rank, batch after batch. It can be pickled.

        Raises:
            TypeError: A number is not an integer.
            InvalidInputError: A number is out of its range, no step is left with `drop_last` (also a ValueError), or it is
                closed.
        """
        blend = self._open_blend
        with self._lock:
            start, epoch_len = self._here().position, self._epoch_len
        return MixedShard(blend, start, epoch_len, batch_size=batch_size, rank=rank, world_size=world_size, drop_last=drop_last)

    def to_torch_iterable_dataset(
        self, *, batch_size: int, rank: int | None = None, world_size: int | None = None, drop_last: bool = False
    ) -> MixedTorchDataset[T_co]:
        """Make a `torch.utils.data.IterableDataset` of a rank's part of the stream, for any number of loading processes.

        Give `DataLoader` the same `batch_size`: each loading process then makes every `num_workers`-th batch of `shard`, and
        torch takes them in turns, so the batches are the same for any number of processes. `set_epoch` reaches persistent ones
        too.

        Args:
            batch_size: As in `shard`, and as the DataLoader's.
            rank: As in `shard`. None: as torch's default process group says now.
            world_size: As in `shard`; goes together with `rank`.
            drop_last: As in `shard`.

        Returns:
            The dataset.

        Raises:
            ImportError: PyTorch is not installed.
            TypeError: As in `shard`.
            InvalidInputError: As in `shard`.
        """
        from dataset_rt._torch import require_torch

        require_torch()
        from dataset_rt._torch.mixing import MixedTorchDataset, ranks

        rank, world_size = ranks(rank, world_size)
        return MixedTorchDataset(self.shard(batch_size=batch_size, rank=rank, world_size=world_size, drop_last=drop_last))

    @overload
    def to_torch_dataloader(
        self,
        *,
        sample_transform_fn: Callable[[T_co], T],
        collate_fn: Callable[[list[T]], Any],
        **options: Unpack[MixedLoaderOptions],
    ) -> MixedLoader[T_co | T]: ...
    @overload
    def to_torch_dataloader(
        self,
        *,
        sample_transform_fn: None = None,
        collate_fn: Callable[[list[T_co]], Any],
        **options: Unpack[MixedLoaderOptions],
    ) -> MixedLoader[T_co]: ...
    @overload
    def to_torch_dataloader(
        self,
        *,
        sample_transform_fn: Callable[[T_co], T] | None = None,
        collate_fn: None = None,
        **options: Unpack[MixedLoaderOptions],
    ) -> MixedLoader[T_co | T]: ...

    def to_torch_dataloader(
        self,
        *,
        samples_per_epoch: int | None = None,
        batch_size: int = 1,
        num_workers: int | Literal["auto"] = "auto",
        sample_transform_fn: Callable[[Any], Any] | None = None,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        drop_last: bool = False,
        pin_memory: bool = False,
        timeout: float = 0,
        multiprocessing_context: Literal["inherit", "fork", "spawn", "forkserver"] | BaseContext = "spawn",
        worker_init_fn: Callable[[int], None] | None = None,
        prefetch_factor: int | Literal["auto"] = "auto",
        persistent_workers: bool | Literal["auto"] = "auto",
        dataloader_kwargs: Mapping[str, Any] | None = None,
    ) -> MixedLoader[Any]:
        """Make a `torch.utils.data.DataLoader` of passes over the stream, for any number of ranks and loading processes.

        All of them take turns in the one stream: with batch size B and R ranks, step s is the R·B samples from s·R·B on, counted
        from where the mixture is now, and rank r's batch of it the B from r·B on. So what comes depends on the global batch size
        R·B, and on nothing else about ranks and processes; it is what `shard` gives. The mixture's own place stays, and closing
        or iterating it later changes nothing.

        *How many.* A pass has ceil(N/(R·B)) steps of N samples, or floor with `drop_last`. Every batch is full: a last step takes
        the next samples of the stream, and what it has no step for is left to the next pass. `len(loader)`, in batches, is the
        same on all ranks. A pass over an endless mixture has no end, and `len(loader)` is a TypeError.

        *Pass after pass* the stream goes on behind the last batch delivered, also when a pass was given up, and however long
        loading processes live. An exception in place of a batch costs that batch.

        *Stop and go on.* `loader.state_dict()` says where the loader is, and `loader.load_state_dict(state)` has the next pass go
        on there, in any process and with other ranks and processes.

        *Several training processes.* Ranks are those of torch's default process group, if there is one now. Each makes its
        loaders in the same order, of the same mixture at the same place.

        Args:
            samples_per_epoch: Samples of a pass over all ranks, 1 to 2**53; None for the mixture's epoch length.
            batch_size: Samples of a batch, at least 1.
            num_workers: Loading processes of each rank. `"auto"`: this rank's share of the processors less one, up to 4.
            sample_transform_fn: Applied to each sample, or to the pair of a name and a sample if the mixture has names. For
                loading processes it must be picklable, with any start method.
            collate_fn: Gets a list of samples or pairs, or of what the transform made of them, also when it is one. None:
                torch's own.
            drop_last: Leave what is no whole step of a pass to the next one.
            pin_memory: As torch's.
            timeout: Seconds that torch waits for a batch of a loading process; 0 for ever.
            multiprocessing_context: How loading processes start; `"inherit"` is Python's default.
            worker_init_fn: Called in each loading process with its number, when the caches are open.
            prefetch_factor: Batches that each loading process has ready. `"auto"`: 2.
            persistent_workers: Whether loading processes live on between passes. `"auto"`: yes.
            dataloader_kwargs: More options of torch's DataLoader.

        Returns:
            The loader, a `DataLoader` with the methods `state_dict` and `load_state_dict`.

        Raises:
            ImportError: PyTorch is not installed.
            InvalidInputError: An argument or a combination of them cannot be (also a ValueError), types are exact; no step is
                left with `drop_last`; training processes gave different mixtures; it is closed, or beyond position 2**62.
            TypeError: A function cannot be pickled for loading processes, or torch does not know an option.
            StorageError: The tables could not be written for loading processes, when they start.

        Source: docs/explanation/loading.md, "Mixtures".
        """
        blend = self._open_blend
        from dataset_rt._torch import require_torch

        require_torch()
        from dataset_rt._torch.mixed_loader import build

        with self._lock:
            start, epoch_len = self._here().position, self._epoch_len
        return build(
            blend,
            start,
            epoch_len,
            samples_per_epoch=samples_per_epoch,
            batch_size=batch_size,
            num_workers=num_workers,
            sample_transform_fn=sample_transform_fn,
            collate_fn=collate_fn,
            drop_last=drop_last,
            pin_memory=pin_memory,
            timeout=timeout,
            multiprocessing_context=multiprocessing_context,
            worker_init_fn=worker_init_fn,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            dataloader_kwargs=dataloader_kwargs,
        )


class MixedShard(Generic[T_co]):
    """A rank's part of a mixture: fixed slices of the stream, epoch after epoch.

    Made by `MixedDataset.shard`. Every pass is over the epoch that `set_epoch` chose, at first 0. It can be pickled, also for
    processes that are spawned; they map the tables and the caches.
    """

    def __init__(
        self, blend: Blend, start: int, epoch_len: int | None, *, batch_size: int, rank: int, world_size: int, drop_last: bool
    ) -> None:
        self._blend, self._start = blend, start
        self._batch_size, self._world_size = _positive(batch_size, "batch_size"), _positive(world_size, "world_size")
        self._rank = operator.index(rank)
        if not 0 <= self._rank < self._world_size:
            raise _invalid(f"rank must be 0 to world_size - 1; got {rank} of {world_size}")
        stride = self._batch_size * self._world_size
        self._steps: int | None = None
        if epoch_len is not None:
            self._steps = epoch_len // stride if drop_last else -(-epoch_len // stride)
            if not self._steps:
                raise _invalid(f"with drop_last nothing is left of {epoch_len} samples for global batches of {stride}")
        self._epoch = self._step = 0

    @property
    def batch_size(self) -> int:
        """Samples of a batch."""
        return self._batch_size

    def set_epoch(self, epoch: int, *, step: int = 0) -> None:
        """Choose which epoch each following pass is over, and with which batch of it passes begin.

        Args:
            epoch: From 0. An endless mixture has this one alone.
            step: Batches of this rank that passes leave out, to go on where a run was stopped.

        Raises:
            TypeError: A number is not an integer.
            InvalidInputError: One is negative, the epoch has fewer steps, or there is no such epoch (also a ValueError).
        """
        self._epoch, self._step = self._checked(epoch, step)

    def _checked(self, epoch: int, step: int) -> tuple[int, int]:
        """An epoch and a step that there are, as plain ints.

        Raises:
            TypeError: As `set_epoch`.
            InvalidInputError: As `set_epoch`.
        """
        epoch, step = operator.index(epoch), operator.index(step)
        if epoch < 0 or step < 0:
            raise _invalid(f"epoch and step must be at least 0; got {epoch} and {step}")
        if self._steps is None and epoch:
            raise _invalid("an endless mixture has one epoch, number 0")
        if self._steps is not None and step > self._steps:
            raise _invalid(f"an epoch has {self._steps} steps; got step {step}")
        if self._steps is not None and self._start + (epoch + 1) * self._steps * self._batch_size * self._world_size > _ENDLESS:
            raise _invalid(f"the stream has 2**63 - 1 samples, and epoch {epoch} goes beyond")
        return epoch, step

    def __len__(self) -> int:
        """Samples of a whole epoch on this rank: batches of full size.

        Raises:
            TypeError: The mixture is endless.
        """
        if self._steps is None:
            raise TypeError("an endless mixture has no length")
        return self._steps * self._batch_size

    def __iter__(self) -> Iterator[T_co]:
        """Yield the rank's samples of the chosen epoch.

        Raises:
            CorruptCacheError: A sample cannot be read; all earlier ones came before.
            StorageError: The file system refused.
        """
        return self._part(self._epoch, self._step, 0, 1)

    def _part(self, epoch: int, step: int, worker: int, num_workers: int) -> Iterator[T_co]:
        """Yield the samples that one of several loading processes has of an epoch: every so-manieth batch.

        Args:
            epoch: From 0.
            step: Batches that all of them leave out.
            worker: Which process it is, from 0.
            num_workers: How many there are.
        """
        batch, stride = self._batch_size, self._batch_size * self._world_size
        steps = _ENDLESS // stride if self._steps is None else self._steps
        first = self._start + epoch * steps * stride + self._rank * batch
        together = max(READ_AT_ONCE // batch, 1)  # batches read in one call
        mine = range(step + worker, steps, num_workers)
        for done in range(0, len(mine), together):
            places: list[tuple[int, int]] = []
            for number in mine[done : done + together]:
                places += self._blend.mixture.places(first + number * stride, batch)
            yield from self._blend.read(places)


def _rows(plan: Plan, positions: list[int]) -> list[int]:
    """The rows at ascending positions of a plan, in a call for each run of them."""
    rows: list[int] = []
    start = 0
    for end in range(1, len(positions) + 1):
        if end == len(positions) or positions[end] != positions[end - 1] + 1:
            rows += plan.rows(positions[start], end - start)
            start = end
    return rows


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="invalid-argument")


def _positive(value: int, name: str) -> int:
    number = operator.index(value)
    if number < 1:
        raise _invalid(f"{name} must be at least 1; got {number}")
    return number


def _epoch_len(value: SupportsIndex) -> int:
    length = operator.index(value)
    if length < 1:
        raise InvalidInputError(f"epoch_len must be at least 1; got {length}", kind="invalid-epoch-length")
    if length > _ENDLESS:
        raise OverflowError(f"epoch_len must be at most 2**63 - 1; got {length}")
    return length


def _state(blend: Blend, place: _Place, epoch_len: int | None) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "version": _VERSION,
        "mixture": blend.identity(),
        "pass": place.done,
        "position": place.position,
        "rest": place.rest,
        "epoch_len": epoch_len,
    }


def _read_state(given: object, blend: Blend, *, strict: bool) -> tuple[_Place, int | None]:
    """The place that a state names, and the epoch length with it. With `strict` it must be of the stream that goes on."""
    state = _mapping(given)
    if state is None:
        raise _no_state("it is not a dict")
    if state.get("format") != _FORMAT:
        raise _no_state(f"its format is {state.get('format')!r}, and not {_FORMAT}")
    if state.get("version") != _VERSION:
        message = f"the state has version {state.get('version')}, and this release reads version {_VERSION}"
        raise StateMismatchError(message, kind="state-mismatch")
    done, position, rest = _number(state, "pass", 0), _number(state, "position", 0), _number(state, "rest", 0)
    epoch_len = None if state.get("epoch_len", 0) is None else _number(state, "epoch_len", 1)
    saved = _mapping(state.get("mixture"))
    components = None if saved is None else saved.get("components")
    if saved is None or not isinstance(components, list):
        raise _no_state("'mixture' is missing or of another form")
    before = [_mapping(component) or {} for component in cast("list[object]", components)]
    differ = differences(blend.identity(), saved, before) if strict else []
    if differ:
        raise StateMismatchError(
            f"the state is of another stream: {', '.join(differ)}; mix what it was saved with, or pass strict=False to go "
            "on by position",
            kind="state-mismatch",
        )
    return _Place(done, position, rest), epoch_len


def _mapping(value: object) -> Mapping[str, Any] | None:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else None


def _number(state: Mapping[str, Any], key: str, least: int) -> int:
    number = state.get(key)
    if type(number) is not int or not least <= number < _ENDLESS:
        raise _no_state(f"{key!r} is no number from {least} to 2**63 - 2: {number!r}")
    return number


def _no_state(what: str) -> InvalidInputError:
    return InvalidInputError(f"this is no state of a mixture: {what}", kind="invalid-state")


def differences(own: Mapping[str, Any], saved: Mapping[str, Any], before: list[Mapping[str, Any]]) -> list[str]:
    """What of another stream is different, in words.

    Args:
        own: `Blend.identity` of the stream here.
        saved: That of the other one.
        before: The components of the other one.
    """
    found: list[str] = []
    for key, what in (("version", "the plan version"), ("seed", "the seed of the mixture")):
        if own[key] != saved.get(key):
            found.append(f"{what} is {own[key]} here and was {saved.get(key)}")
    components: list[dict[str, Any]] = own["components"]
    here, there = [component["name"] for component in components], [component.get("name") for component in before]
    if here != there:
        return [*found, f"the components are {here} here and were {there}"]
    shown = {"share": "weight", "order": "order", "seed": "seed", "rows": "number of active rows"}
    digests = {"caches": "caches", "table": "rows of the active table", "weights": "weights of the rows"}
    for now, then in zip(components, before, strict=True):
        for key, what in (shown | digests).items():
            if now[key] != then.get(key):
                differs = f"is {now[key]!r} here and was {then.get(key)!r}" if key in shown else "differ"
                found.append(f"of {now['name']!r} the {what} {differs}")
    return found


mix.__module__ = MixedDataset.__module__ = MixedShard.__module__ = "dataset_rt.api"
