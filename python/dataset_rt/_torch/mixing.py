"""A rank's part of a mixture as torch's DataLoader takes it."""

# Torch has types in parts only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import torch
from torch.utils.data import IterableDataset, get_worker_info

from dataset_rt._mixing import MixedShard
from dataset_rt._torch.distributed import world
from dataset_rt.exceptions import InvalidInputError

T_co = TypeVar("T_co", covariant=True)


def ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and number of ranks: as given, or of torch's default process group."""
    if rank is None and world_size is None:
        here = world()
        return here.rank, here.size
    if rank is None or world_size is None:
        raise InvalidInputError("rank and world_size go together", kind="invalid-argument")
    return rank, world_size


class MixedTorchDataset(IterableDataset[T_co]):
    """The samples of a shard, divided over loading processes by whole batches."""

    def __init__(self, shard: MixedShard[T_co]) -> None:
        self._shard = shard
        # Epoch and step, in memory that loading processes share: persistent ones get no other message.
        self._next = torch.zeros(2, dtype=torch.int64)
        self._next.share_memory_()  # type: ignore[no-untyped-call]

    def __len__(self) -> int:
        """As the shard's."""
        return len(self._shard)

    def set_epoch(self, epoch: int, *, step: int = 0) -> None:
        """Choose the epoch of the passes that begin from now on, and their first batch.

        Args:
            epoch: As for `MixedShard.set_epoch`.
            step: As for `MixedShard.set_epoch`.

        Raises:
            TypeError: As for `MixedShard.set_epoch`.
            InvalidInputError: As for `MixedShard.set_epoch`.
        """
        epoch, step = self._shard._checked(epoch, step)
        self._next[0], self._next[1] = epoch, step

    def __iter__(self) -> Iterator[T_co]:
        info = get_worker_info()
        worker, num_workers = (0, 1) if info is None else (info.id, info.num_workers)
        epoch, step = int(self._next[0]), int(self._next[1])
        return self._shard._part(epoch, step, worker, num_workers)
