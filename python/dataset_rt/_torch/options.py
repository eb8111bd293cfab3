"""The arguments of `to_torch_dataloader`: checked one by one, then resolved to what will be."""

from __future__ import annotations

import math
import multiprocessing
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from pathlib import Path
from typing import Any, Literal, NoReturn, TypedDict, cast

from dataset_rt._torch import budgets
from dataset_rt._torch.partition import ENDLESS, ORDERS, PARTITIONS, Order, Partition
from dataset_rt.exceptions import CacheNotFoundError, InvalidInputError

MAX_SAMPLES = min(sys.maxsize, 2**53)
START_METHODS = ("inherit", "fork", "spawn", "forkserver")
#: Options of torch's DataLoader that a caller cannot give beside ours.
HANDLED = frozenset(
    {
        *("dataset", "sampler", "batch_sampler", "batch_size", "shuffle", "num_workers", "collate_fn", "pin_memory", "drop_last"),
        *("timeout", "worker_init_fn", "multiprocessing_context", "prefetch_factor", "persistent_workers"),
    }
)


class MixedLoaderOptions(TypedDict, total=False):
    """The arguments of a mixture's `to_torch_dataloader` beside the two functions, for its overloads."""

    samples_per_epoch: int | None
    batch_size: int
    num_workers: int | Literal["auto"]
    drop_last: bool
    pin_memory: bool
    timeout: float
    multiprocessing_context: Literal["inherit", "fork", "spawn", "forkserver"] | BaseContext
    worker_init_fn: Callable[[int], None] | None
    prefetch_factor: int | Literal["auto"]
    persistent_workers: bool | Literal["auto"]
    dataloader_kwargs: Mapping[str, Any] | None


class LoaderOptions(MixedLoaderOptions, total=False):
    """The same of a dataset's, which says more."""

    shuffle: bool
    order: Order | None
    seed: int | Literal["random"]
    worker_partition: Partition | None
    work_dir: str | Path | None
    native_num_workers: int | Literal["auto"]
    verbose: bool


@dataclass(frozen=True)
class Options:
    """What was asked for, with every `auto` and every None resolved but the random seed.

    Attributes:
        seed: None when it is to be chosen.
        samples: Global samples of a pass, or `ENDLESS`.
        samples_given: Whether the caller gave them.
        start_method: None for torch's own, and without loading processes.
        context_name: What the log calls it.
    """

    batch_size: int
    sample_transform_fn: Callable[[Any], Any] | None
    collate_fn: Callable[[Any], Any] | None
    shuffle: bool
    order: Order
    seed: int | None
    samples: int
    samples_given: bool
    worker_partition: Partition
    work_dir: Path | None
    num_workers: int
    drop_last: bool
    pin_memory: bool
    timeout: float
    native_num_workers: int
    start_method: str | BaseContext | None
    context_name: str
    worker_init_fn: Callable[[int], None] | None
    prefetch_factor: int | None
    persistent_workers: bool
    verbose: bool
    dataloader_kwargs: dict[str, Any]


def resolve(
    *,
    epoch_len: int | None,
    world_size: int,
    batch_size: object,
    sample_transform_fn: object,
    collate_fn: object,
    shuffle: object,
    order: object,
    seed: object,
    samples_per_epoch: object,
    worker_partition: object,
    work_dir: object,
    num_workers: object,
    drop_last: object,
    pin_memory: object,
    timeout: object,
    native_num_workers: object,
    multiprocessing_context: object,
    worker_init_fn: object,
    prefetch_factor: object,
    persistent_workers: object,
    verbose: object,
    dataloader_kwargs: object,
) -> Options:
    """Check every argument; types are exact, so that a slip (a bool for a count, say) is told and not guessed at.

    Args:
        epoch_len: Samples of a pass when none are given; None for a pass without an end.
        world_size: Training processes.

    Raises:
        InvalidInputError: An argument or a combination cannot be (also a ValueError). It names the argument.
        CacheNotFoundError: `work_dir` is not there (also a ValueError).
        TypeError: A function cannot be handed to loading processes.
    """
    for name, flag in {"shuffle": shuffle, "drop_last": drop_last, "pin_memory": pin_memory, "verbose": verbose}.items():
        if type(flag) is not bool:
            _refuse(name, "must be True or False", flag)
    assert (
        isinstance(shuffle, bool) and isinstance(drop_last, bool) and isinstance(pin_memory, bool) and isinstance(verbose, bool)
    )
    if order is None:
        order = "weighted" if shuffle else "sequential"
    if type(order) is not str or order not in ORDERS:
        _refuse("order", f"must be one of {', '.join(ORDERS)}, or None", order)
    if order != "sequential" and not shuffle:
        _refuse("order", "is the table's with shuffle=False", order)
    shuffle = order != "sequential"
    batch_size = _count("batch_size", batch_size, 1, sys.maxsize)
    given = samples_per_epoch is not None
    samples = ENDLESS if epoch_len is None and not given else pass_length(samples_per_epoch if given else epoch_len)
    if seed != "random" or type(seed) is not str:
        seed = _count("seed", seed, 0, 2**64 - 1, 'an integer or "random"')
        if not shuffle:
            _refuse("seed", "is for shuffle=True alone: table order has nothing to draw", seed)
    if worker_partition is None:
        defaults: dict[Order, Partition] = {"weighted": "replicate", "sequential": "split", "permutation": "stream"}
        worker_partition = defaults[order]
    if type(worker_partition) is not str or worker_partition not in PARTITIONS:
        _refuse("worker_partition", f"must be one of {', '.join(PARTITIONS)}, or None", worker_partition)
    functions = {"sample_transform_fn": sample_transform_fn, "collate_fn": collate_fn, "worker_init_fn": worker_init_fn}
    for name, function in functions.items():
        if function is not None and not callable(function):
            _refuse(name, "must be callable, or None", function)
    extra = _extra(dataloader_kwargs)
    if worker_partition == "stream" and extra.get("in_order") is False:
        _refuse("dataloader_kwargs", "cannot have in_order=False where all take turns in one stream, which is an order", extra)
    if order == "permutation" and worker_partition != "stream":
        _refuse("worker_partition", 'must be "stream" for a permutation, which is one of all rows', worker_partition)

    ranks = budgets.local_ranks(world_size)
    auto = [value for value in (num_workers, native_num_workers) if type(value) is str and value == "auto"]
    cpus = budgets.cpu_budget() if auto else 1
    if type(num_workers) is str and num_workers == "auto":
        num_workers = budgets.auto_workers(cpus, ranks)
    num_workers = _count("num_workers", num_workers, 0, 2**31 - 1, 'an integer or "auto"')
    if type(native_num_workers) is str and native_num_workers == "auto":
        native_num_workers = budgets.auto_threads(cpus, ranks, num_workers)
    native_num_workers = _count("native_num_workers", native_num_workers, 1, 2**31 - 1, 'an integer or "auto"')

    timeout = _timeout(timeout, num_workers)
    start_method, context_name = _start_method(multiprocessing_context, num_workers)
    if type(prefetch_factor) is str and prefetch_factor == "auto":
        prefetch_factor = 2 if num_workers else None
    else:
        prefetch_factor = _count("prefetch_factor", prefetch_factor, 1, 2**31 - 1, 'an integer or "auto"')
        if not num_workers:
            _refuse("prefetch_factor", "is for loading processes, and num_workers is 0", prefetch_factor)
    if type(persistent_workers) is str and persistent_workers == "auto":
        persistent_workers = num_workers > 0
    elif type(persistent_workers) is not bool:
        _refuse("persistent_workers", 'must be True, False or "auto"', persistent_workers)
    elif persistent_workers and not num_workers:
        _refuse("persistent_workers", "is for loading processes, and num_workers is 0", persistent_workers)
    if num_workers:
        # A forked process inherits its functions, yet a transform is held to what the other methods need: scripts stay portable.
        forks = _starts_forked(start_method)
        for name, function in functions.items():
            if function is not None and (not forks or name == "sample_transform_fn"):
                check_picklable(name, function)
    folder = _folder(work_dir)
    return Options(
        batch_size=batch_size,
        sample_transform_fn=sample_transform_fn,  # type: ignore[arg-type]
        collate_fn=collate_fn,  # type: ignore[arg-type]
        shuffle=shuffle,
        order=order,
        seed=seed if isinstance(seed, int) else None,
        samples=samples,
        samples_given=given,
        worker_partition=worker_partition,
        work_dir=folder,
        num_workers=num_workers,
        drop_last=drop_last,
        pin_memory=pin_memory,
        timeout=timeout,
        native_num_workers=native_num_workers,
        start_method=start_method,
        context_name=context_name,
        worker_init_fn=worker_init_fn,  # type: ignore[arg-type]
        prefetch_factor=prefetch_factor,
        persistent_workers=bool(persistent_workers),
        verbose=verbose,
        dataloader_kwargs=extra,
    )


#: What a mixture's loader is not asked for: its stream, of which all have their turns, is drawn as the mixture says.
_MIXED: dict[str, Any] = {
    "shuffle": True, "order": "sequential", "seed": "random", "worker_partition": "stream", "work_dir": None,
    "native_num_workers": 1, "verbose": False,
}  # fmt: skip


def resolve_mixed(*, epoch_len: int | None, world_size: int, **arguments: object) -> Options:
    """The same for a mixture, by the same checks.

    Args:
        epoch_len: Samples of a pass when none are given; None for a pass without an end.
        world_size: Training processes.
        arguments: The others, as the keys of `MixedLoaderOptions` and the two functions.

    Raises:
        InvalidInputError: As `resolve`.
        TypeError: As `resolve`.
    """
    return resolve(epoch_len=epoch_len, world_size=world_size, **_MIXED, **arguments)


def pass_length(samples: object) -> int:
    """A number of samples of which torch can count the batches.

    Raises:
        InvalidInputError: It is not one (also a ValueError).
    """
    return _count("samples_per_epoch (or the dataset's length)", samples, 1, MAX_SAMPLES)


def _refuse(name: str, rule: str, value: object) -> NoReturn:
    raise InvalidInputError(f"{name} {rule}; got {value!r}", kind="invalid-argument")


def _count(name: str, value: object, least: int, most: int, what: str = "an integer") -> int:
    if type(value) is not int:
        _refuse(name, f"must be {what}", value)
    if not least <= value <= most:
        _refuse(name, f"must be {least} to {most}", value)
    return value


def _timeout(value: object, num_workers: int) -> float:
    if type(value) not in (int, float):
        _refuse("timeout", "must be a number of seconds", value)
    assert isinstance(value, (int, float))
    if not math.isfinite(value) or value < 0:
        _refuse("timeout", "must be 0 (none) or more seconds", value)
    if value and not num_workers:
        _refuse("timeout", "is for loading processes, and num_workers is 0", value)
    return value


def _start_method(value: object, num_workers: int) -> tuple[str | BaseContext | None, str]:
    if isinstance(value, BaseContext):
        return (value if num_workers else None), value.get_start_method()
    if type(value) is not str or value not in START_METHODS:
        _refuse("multiprocessing_context", f"must be one of {', '.join(START_METHODS)}, or a context", value)
    if value != "inherit" and value not in multiprocessing.get_all_start_methods():
        _refuse("multiprocessing_context", "is no start method of this platform", value)
    if value == "inherit" or not num_workers:
        return None, value
    return value, value


def _starts_forked(start_method: str | BaseContext | None) -> bool:
    if isinstance(start_method, BaseContext):
        return start_method.get_start_method() == "fork"
    default = multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
    return (start_method or default) == "fork"


def _extra(value: object) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        _refuse("dataloader_kwargs", "must be a mapping, or None", value)
    extra = dict(cast("Mapping[str, Any]", value))
    for name in extra:
        if name in HANDLED:
            _refuse("dataloader_kwargs", f"cannot hold {name!r}, which the loader handles itself", sorted(extra))
    return extra


def _folder(value: Any) -> Path | None:
    if value is None:
        return None
    try:
        path = cast(object, os.fspath(value))
    except TypeError:
        path = None
    if not isinstance(path, str):
        _refuse("work_dir", "must be a str, a Path or None", value)
    folder = Path(path)
    if not folder.is_dir():
        if folder.exists():
            _refuse("work_dir", "must be a folder", str(value))
        raise CacheNotFoundError(f"work_dir: there is no folder {folder}", kind="folder-not-found", path=folder)
    return folder


class _Nowhere:
    """Takes a pickle and keeps nothing of it: a function may hold a whole model."""

    def write(self, data: bytes) -> int:
        return len(data)


def check_picklable(name: str, function: object) -> None:
    """Refuse a function that spawned processes could not be given.

    Raises:
        TypeError: It cannot be pickled; the message says what to do.
    """
    try:
        pickle.Pickler(_Nowhere(), pickle.HIGHEST_PROTOCOL).dump(function)
    except Exception as error:
        raise TypeError(
            f"{name} cannot be handed to loading processes, because it cannot be pickled: {error}. Define it at the top level of "
            "an importable module (no lambda, no function inside a function), or load in this process with num_workers=0"
        ) from error
