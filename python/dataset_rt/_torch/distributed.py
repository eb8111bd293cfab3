"""What a training process knows of the others: torch's default process group, if there is one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch.distributed as dist

from dataset_rt.exceptions import InvalidInputError


class World(NamedTuple):
    """The training processes.

    Attributes:
        size: How many.
        rank: Which one this is, from 0.
    """

    size: int
    rank: int


def world() -> World:
    """The default group, or this process alone."""
    if dist.is_available() and dist.is_initialized():
        return World(dist.get_world_size(), dist.get_rank())
    return World(1, 0)


def from_all(value: Any, size: int) -> list[Any]:
    """The value of each rank. Every rank calls this, in the same order."""
    values: list[Any] = [None] * size
    dist.all_gather_object(values, value)
    return values


def agreed(world: World, shown: Mapping[str, Any], hidden: Mapping[str, Callable[[], Any]], own: Any = None) -> Any:
    """See that loaders are made alike on all ranks, which otherwise would lose samples or wait for one another.

    Args:
        world: The training processes.
        shown: What must be the same, by what it is called; the values go into the message.
        hidden: The same, for what is too large to show; it is computed only where there are others to compare with.
        own: Something that need not be the same.

    Returns:
        What the first rank has of its own.

    Raises:
        InvalidInputError: Something differs; all ranks raise it.
    """
    if world.size == 1:
        return own
    offers = from_all((dict(shown), {name: compute() for name, compute in hidden.items()}, own), world.size)
    first_shown, first_hidden, first_own = offers[0]
    for rank, (its_shown, its_hidden, _) in enumerate(offers):
        differs = [name for name in hidden if its_hidden[name] != first_hidden[name]]
        for name, value in first_shown.items():
            if its_shown[name] != value:
                differs.append(f"{name} ({value!r} on rank 0, {its_shown[name]!r} on rank {rank})")
        if differs:
            raise InvalidInputError(
                f"training processes gave their loaders different {', '.join(differs)}", kind="invalid-argument"
            )
    return first_own
