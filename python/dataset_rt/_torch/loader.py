"""The loader: checks what was asked for, puts the table where loading processes find it, and runs passes."""

# Torch has types in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false

from __future__ import annotations

import os
import secrets
import shutil
import traceback
import warnings
import weakref
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from torch.utils.data import DataLoader, default_collate

from dataset_rt._calls import called, called_for_each
from dataset_rt._native import Runtime
from dataset_rt._torch import distributed, options, state
from dataset_rt._torch.artifacts import Folder
from dataset_rt._torch.consumer import TABLE_FILE, Edition, TableReading, edition_folder, write_topology
from dataset_rt._torch.data import CollateInWorker, LoaderDataset, Parent, Run, StartThenInit
from dataset_rt._torch.events import emit
from dataset_rt._torch.partition import Place, Topology
from dataset_rt.exceptions import InvalidInputError

if TYPE_CHECKING:
    from dataset_rt._dataset import CachedDataset
    from dataset_rt._native import TableView
    from dataset_rt._torch.consumer import Reading
    from dataset_rt._torch.distributed import World
    from dataset_rt._torch.options import Options


T = TypeVar("T")
L = TypeVar("L")
P = TypeVar("P", bound="Passes")


class Loader(DataLoader[T], Generic[T, P]):
    """A torch DataLoader whose passes are told where to begin.

    Args:
        snapshot: What is read, and where that goes on.
        arguments: DataLoader's, beside the dataset.
    """

    def __init__(self, snapshot: P, **arguments: Any) -> None:
        self._snapshot = snapshot
        self._living: _Delivered | None = None
        super().__init__(snapshot.dataset, **arguments)

    def __iter__(self) -> Any:
        """Begin a pass; where the stream goes on, and when it begins again, is said at `to_torch_dataloader`."""
        run = self._snapshot.begin()
        dataset, collate = self._snapshot.dataset, self.collate_fn
        if not self.num_workers and not self.pin_memory:
            return _Pass(dataset, collate, run)
        # For the processes that start in this call. Others, of a stock loader over our dataset say, collate in other ways.
        dataset.for_loader = True
        dataset.places_only = isinstance(collate, CollateInWorker) and collate.needs_no_samples(dataset)
        try:
            batches = super().__iter__()
        finally:
            dataset.for_loader = dataset.places_only = False
        if not self.num_workers:
            return batches
        dataset.passes += 1  # as each loading process has counted
        # Processes that live on have one iterator, as torch has it: an earlier pass ends with the next.
        delivered = self._living if self.persistent_workers and self._living is not None else _Delivered(batches)
        delivered.run = run
        if self.persistent_workers:
            self._living = delivered
        return delivered

    def __len__(self) -> int:
        """Batches of a whole pass, also where the next one is the rest of one.

        Raises:
            TypeError: A pass has no end.
        """
        return _num_batches(self._snapshot.dataset.edition.topology)

    def __reduce__(self) -> NoReturn:
        """Refuse: it has processes, threads and files of this process.

        Raises:
            TypeError: Always.
        """
        raise TypeError(
            "a loader cannot be pickled or copied; make one with to_torch_dataloader in each process, and have it go on with "
            "state_dict and load_state_dict"
        )


class DatasetLoader(Loader[T, "Snapshot"]):
    """A torch DataLoader over a snapshot of a dataset.

    Made by `CachedDataset.to_torch_dataloader`, which says what it does. `len(loader)` is the number of batches of a pass.
    """

    def __iter__(self) -> Any:
        """Begin a pass; where the stream goes on, and when it begins again, is said at `to_torch_dataloader`."""
        self._snapshot.warn_if_outdated()
        return super().__iter__()

    def refresh(self, dataset: CachedDataset) -> None:
        """Go over to the table that the dataset has now: its rows, their order and weights.

        The next pass, `iter(loader)`, reads it from the beginning of a new stream, also in loading processes that are alive; a
        pass that has begun is finished with the old table. `len(loader)` follows the new table, as at construction, unless
        `samples_per_epoch` was given; seeds, batch size and everything else stay. With several training processes each of them
        calls this, in the same order, with the same table.

        Args:
            dataset: The dataset that the loader was made from, or one of the same caches.

        Raises:
            TypeError: It is not a CachedDataset.
            InvalidInputError: It reads other caches, its length cannot be, or training processes gave different tables. The
                loader stays as it is.
            StorageError: The table could not be written for the loading processes; the loader stays as it is.
        """
        self._snapshot.refresh(dataset)

    def state_dict(self) -> dict[str, Any]:
        """Say where the loader is: behind the last batch of its newest pass that the caller has had.

        What loading processes have ready beyond that does not count. Before the first pass, after `load_state_dict` and after
        `refresh` it is where the next pass begins. With several training processes that keep step, all have the same state.

        Returns:
            A dict that fits into JSON, under 4 KiB for up to a hundred loading processes whatever the data: the plan, as in the
            state of a dataset; who reads what (`partition`, `samples` of a pass, `batch_size`, `drop_last`, `ranks`, `repeats`);
            `pass` (passes before this one since the table was set), `delivered` (batches of it, 0 when it is complete),
            `position` (samples of all ranks that came before), and `consumers` (what each consumer of a rank has behind it, in
            samples; None with `worker_partition="stream"`).

        Raises:
            InvalidInputError: In the middle of a pass with `in_order=False`: what came does not say what is left.

        Source: docs/explanation/loading.md, "Stop and go on".
        """
        return self._snapshot.state_dict(in_order=getattr(self, "in_order", True))

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on from a place in the stream with the next `iter(loader)`, which yields what is left of the pass.

        Make the loader as the one was made that the state is of, with the same seed and table: a state does not set them. Later
        passes are whole, and `len(loader)` stays that of a whole one. Living processes follow. Every rank loads the same state.

        With `worker_partition="stream"` batch size, ranks and loading processes may be others. Between passes that is all; within
        a pass, what is left of it must be whole steps of the new ranks and batch size, as it always is when their product, the
        global batch size, stays. Otherwise ranks, batch size and the number of consumers must be the same.

        Args:
            state: What `state_dict` of a loader returned, in any process and on any rank.
            strict: Refuse the state of a loader that would go on differently. Otherwise go on by position, as nearly as whole
                batches allow.

        Raises:
            InvalidInputError: It is not such a state (also a ValueError).
            StateMismatchError: It is of another loader; the message says what differs. The loader is then as it was.
        """
        self._snapshot.load_state_dict(state, strict=strict)


class _Delivered:
    """A pass of loading processes, which counts what torch hands out."""

    run: Run

    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> _Delivered:
        return self

    def __len__(self) -> int:
        return _batches_left(self.run)

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except StopIteration:
            raise
        except Exception as error:
            # An exception in place of a batch is raised again by what carried it here; others, that a process died say, are not.
            if any(frame.f_code.co_name == "reraise" for frame, _ in traceback.walk_tb(error.__traceback__)):
                self.run.count()
            raise
        self.run.count()
        return batch


def _num_batches(topology: Topology) -> int:
    if topology.endless:
        raise TypeError("a pass without an end has no length; samples_per_epoch gives it one")
    return topology.num_batches


def _batches_left(run: Run) -> int:
    return _num_batches(run.topology) - run.place.delivered


class _Pass:
    """One pass in the training process itself: whole batches, without torch's step per sample."""

    def __init__(self, dataset: LoaderDataset, collate: Any, run: Run) -> None:
        self._dataset, self._collate, self._run = dataset, collate, run
        self._batches = dataset.batches()

    def __iter__(self) -> _Pass:
        return self

    def __len__(self) -> int:
        return _batches_left(self._run)

    def __next__(self) -> Any:
        samples: list[Any] = next(self._batches).samples
        if self._dataset.transform is not None:
            samples = called_for_each("sample_transform_fn", self._dataset.transform, samples)
        return called("collate_fn", self._collate, samples)


class Passes:
    """What a loader reads, pass after pass, and where it goes on.

    Args:
        asked: The resolved options.
        world: The training processes.
        reading: How consumers come by their samples.
        view: What streams are made of, in this process.
        edition: What passes read at first.
        folder: What loading processes find on the disk, if anything.
        place: Where the first pass begins.
    """

    def __init__(
        self, asked: Options, world: World, *, reading: Reading, view: Any, edition: Edition, folder: Folder | None, place: Place
    ) -> None:
        self.options, self.world, self.folder = asked, world, folder
        self.dataset = LoaderDataset(reading, edition, view, asked.sample_transform_fn, Parent(reading, folder))
        self._run: Run | None = None
        self._next = place

    def discard(self) -> None:
        """Leave nothing behind: there will be no loader."""
        if self.folder is not None:
            self.folder.discard()

    @property
    def _topology_now(self) -> Topology:
        return self.dataset.edition.topology

    def begin(self) -> Run:
        """Begin a pass: where the last one ended or was given up, or where the loader was told to go on."""
        place = self._place()
        if self._run is not None and place.delivered:
            place = self._run.topology.next_pass(place)
        assert self.dataset.parent is not None
        run = Run(self.dataset.parent.newest, place)
        self.dataset.go_on(run, jump=self._run is None)
        self._run = run
        return run

    def _place(self) -> Place:
        """Where the next batch is."""
        if self._run is None:
            return self._next
        place = self._run.now()
        topology = self._run.topology
        if topology.num_workers:
            return place
        # Here passes may share the stream, and what is in it counts.
        position = self.dataset.position()
        if topology.partition == "stream":
            position -= topology.rank * topology.batch_size
        return Place(place.passes, place.delivered, (position,))

    def _go_on(self, place: Place) -> None:
        """Begin the next pass at a place."""
        self._next, self._run = place, None


class Snapshot(Passes):
    """The dataset as a loader has it: its table, where that is on the disk, and who reads what.

    Args:
        source: The dataset that it is made from.
        asked: The resolved options.
        world: The training processes.
        seed: The loader's seed; with several training processes, if it was not given, the first one's counts.

    Raises:
        InvalidInputError: Training processes gave different tables.
    """

    _source: weakref.ReferenceType[CachedDataset]
    _edits: int

    def __init__(self, source: CachedDataset, asked: Options, world: World, seed: int) -> None:
        self.options, self.world = asked, world
        self._watch(source)
        config = source.reader_config
        self._reading = TableReading(
            paths=_paths_of(source),
            prefetch_size=config.prefetch_size,
            validate_cache=config.validate_cache,
            io=config.io,
            num_threads=asked.native_num_workers,
            persistent=asked.persistent_workers,
            verbose=asked.verbose,
        )
        self._runtime: Runtime | None = None
        view = self._view(source)
        self._digests: state.Digests | None = None
        seed_of_first = self._agree(view, asked.samples, seed)
        self.seed = seed_of_first if asked.seed is None else seed
        topology = self._topology(view, asked.samples)
        folder = Folder(asked.work_dir) if asked.num_workers or asked.work_dir is not None else None
        try:
            if folder is not None:
                self._write(folder.path, source, view, topology)
            edition = Edition(0, None if folder is None else folder.path, topology)
            super().__init__(
                asked, world, reading=self._reading, view=view, edition=edition, folder=folder, place=topology.beginning()
            )
        except BaseException:
            if folder is not None:
                folder.discard()
            raise

    def state_dict(self, *, in_order: bool) -> dict[str, Any]:
        """As `DatasetLoader.state_dict`."""
        place = self._place()
        if place.delivered and not in_order:
            raise InvalidInputError(
                "with in_order=False batches overtake each other, and those that came do not say which are left; save the state "
                "between passes",
                kind="invalid-state",
            )
        return state.dump(self._topology_now, self._plan_digests(), place)

    def load_state_dict(self, saved: Mapping[str, Any], *, strict: bool) -> None:
        """As `DatasetLoader.load_state_dict`."""
        self._go_on(state.load(saved, self._topology_now, self._plan_digests(), strict=strict))

    def _plan_digests(self) -> state.Digests:
        if self._digests is None:
            self._digests = state.Digests(*self.dataset.view().digests())
        return self._digests

    def warn_if_outdated(self) -> None:
        """Tell once that the dataset has got another table than the loader has."""
        source = self._source()
        if source is not None and source._table_edits != self._edits:  # pyright: ignore[reportPrivateUsage]
            self._edits = source._table_edits  # pyright: ignore[reportPrivateUsage]
            warnings.warn(
                "the dataset's table was changed, and this loader still has the one it was made with; "
                "loader.refresh(dataset) hands the new one over",
                stacklevel=3,
            )

    def refresh(self, source: CachedDataset) -> None:
        """As `DatasetLoader.refresh`."""
        from dataset_rt._dataset import CachedDataset

        if not isinstance(source, CachedDataset):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"refresh takes a CachedDataset; got {type(source).__name__}")
        paths = _paths_of(source)
        if [*map(os.path.normpath, paths)] != [*map(os.path.normpath, self._reading.paths)]:
            raise InvalidInputError(
                f"the loader reads the caches {list(self._reading.paths)}, and this dataset has {list(paths)}",
                kind="invalid-argument",
            )
        samples = self.options.samples if self.options.samples_given else options.pass_length(len(source))
        view = self._view(source)
        topology = self._topology(view, samples)
        self._agree(view, samples, self.seed)
        since, folder = self.dataset.passes, None
        if self.folder is not None:
            folder = self._publish(source, view, topology, since)
        self._watch(source)
        self.dataset.replace(Edition(since, folder, topology), view)
        self._go_on(topology.beginning())
        self._digests = None
        self.tell("loader_refreshed")

    def tell(self, event: str) -> None:
        """Log what the loader is."""
        if not self.options.verbose:
            return
        asked, topology = self.options, self.dataset.edition.topology
        emit(
            event,
            pid=os.getpid(),
            rank=self.world.rank,
            seed=self.seed if asked.shuffle else "none",
            worker_seeds=[share.seed for share in topology.shares()],
            num_workers=asked.num_workers,
            native_threads_per_consumer=asked.native_num_workers,
            partition=asked.worker_partition,
            persistent=asked.persistent_workers,
            prefetch_factor=asked.prefetch_factor,
            native_prefetch=self._reading.prefetch_size,
            samples=topology.samples,
            samples_per_rank=topology.budget,
            batch_size=asked.batch_size,
            world_size=self.world.size,
            shuffle=asked.shuffle,
            multiprocessing_context=asked.context_name if asked.num_workers else "none",
        )

    def warn_about_budget(self) -> None:
        """Tell, on the first rank, when a pass has another number of samples than was asked for."""
        topology = self.dataset.edition.topology
        effective = topology.effective_samples
        if self.world.rank or effective == topology.samples:
            return
        if topology.partition == "stream":
            why = f"in whole steps of {topology.step}; the stream goes on behind them, and none comes twice or is lost"
        else:
            what = "drops" if effective < topology.samples else "repeats"
            missing = abs(effective - topology.samples)
            why = f"the loader {what} {missing}, for equal numbers of batches on {self.world.size} rank(s)"
        warnings.warn(
            f"{topology.samples} samples were asked for and {effective} are delivered in each pass: {why}", stacklevel=4
        )

    def _watch(self, source: CachedDataset) -> None:
        self._source = weakref.ref(source)
        self._edits = source._table_edits  # pyright: ignore[reportPrivateUsage]

    def _view(self, source: CachedDataset) -> TableView:
        """The table that a dataset has now. Where this process loads, as many threads as were asked for read it."""
        view = source._native.view()  # pyright: ignore[reportPrivateUsage]
        count = self.options.native_num_workers
        if self.options.num_workers or source._runtime.num_workers == count:  # pyright: ignore[reportPrivateUsage]
            return view
        self._runtime = self._runtime or Runtime(num_workers=count)
        return view.on(self._runtime)

    def _topology(self, view: TableView, samples: int) -> Topology:
        asked = self.options
        return Topology(
            rows=view.num_rows,
            samples=samples,
            batch_size=asked.batch_size,
            drop_last=asked.drop_last,
            world_size=self.world.size,
            rank=self.world.rank,
            num_workers=asked.num_workers,
            partition=asked.worker_partition,
            order=asked.order,
            seed=self.seed,
            repeats=asked.num_workers > 0 and not asked.persistent_workers and asked.worker_partition != "stream",
        )

    def _write(self, folder: Path, source: CachedDataset, view: TableView, topology: Topology) -> None:
        if self.options.work_dir is not None:
            source.dump_config(folder)
        if self.options.num_workers:
            view.save(folder / TABLE_FILE)
            write_topology(folder, topology)

    def _publish(self, source: CachedDataset, view: TableView, topology: Topology, since: int) -> Path:
        """Make another table appear, whole, for passes from `since` on."""
        assert self.folder is not None
        home = self.folder.path
        folder = edition_folder(home, since)
        fresh = home / f"next-{secrets.token_hex(4)}"
        fresh.mkdir()
        try:
            self._write(fresh, source, view, topology)
            if folder.exists():  # nobody has begun to read it
                shutil.rmtree(folder)
            fresh.rename(folder)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise
        return folder

    def _agree(self, view: TableView, samples: int, seed: int) -> int:
        """See that all training processes have one table and divide it alike, and return the first one's seed."""
        asked = self.options
        shown: dict[str, Any] = {
            "orders": asked.order,
            "worker_partition": asked.worker_partition,
            "batch_size": asked.batch_size,
            "drop_last": asked.drop_last,
            "numbers of samples": samples,
        }
        if asked.worker_partition != "replicate":  # there each consumer has a seed of its own anyway
            shown["seeds"] = "random" if asked.seed is None else asked.seed
        return int(distributed.agreed(self.world, shown, {"tables": view.digests}, seed))


def _paths_of(source: CachedDataset) -> tuple[str, ...]:
    """Where the caches were when the dataset opened them: a relative path means another place after `os.chdir`."""
    return tuple(origin.path for origin in source._origins)  # pyright: ignore[reportPrivateUsage]


def assemble(kind: Callable[..., L], snapshot: Passes) -> L:
    """Make a loader of a kind, with what torch is to know."""
    asked = snapshot.options
    collate: Any = default_collate if asked.collate_fn is None else asked.collate_fn
    if asked.num_workers and asked.collate_fn:
        collate = CollateInWorker(snapshot.dataset.token, collate)
    elif asked.pin_memory:  # torch calls it itself
        collate = partial(called, "collate_fn", collate)
    init = asked.worker_init_fn
    if asked.num_workers:
        init = StartThenInit(init, snapshot.dataset.reading.undivided)
    try:
        return kind(
            snapshot,
            batch_size=asked.batch_size,
            num_workers=asked.num_workers,
            collate_fn=collate,
            pin_memory=asked.pin_memory,
            drop_last=asked.drop_last,
            timeout=asked.timeout,
            worker_init_fn=init,
            multiprocessing_context=asked.start_method,
            prefetch_factor=asked.prefetch_factor,
            persistent_workers=asked.persistent_workers,
            **asked.dataloader_kwargs,
        )
    except BaseException:
        snapshot.discard()
        raise


def build(source: CachedDataset, **arguments: Any) -> DatasetLoader[Any]:
    """Make a loader; `CachedDataset.to_torch_dataloader` says how."""
    world = distributed.world()
    asked = options.resolve(epoch_len=len(source), world_size=world.size, **arguments)
    seed = asked.seed
    if seed is None:
        seed = secrets.randbits(64) if asked.shuffle else 0
    snapshot = Snapshot(source, asked, world, seed)
    loader: DatasetLoader[Any] = assemble(DatasetLoader, snapshot)
    snapshot.warn_about_budget()
    if snapshot.dataset.edition.topology.repeats:
        warnings.warn(
            "persistent_workers=False starts the streams anew in each pass, so that every pass yields the same samples; "
            'with "auto" or True they go on, and worker_partition="stream" goes on with any processes',
            stacklevel=3,
        )
    snapshot.tell("loader_ready")
    return loader
