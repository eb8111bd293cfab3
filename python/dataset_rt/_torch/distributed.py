"""What a training process knows of the others: torch's default process group, if there is one."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch.distributed as dist


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
