"""The loader of a mixture: all ranks and loading processes take turns in its one stream."""

# Part of the package, as the classes that it takes the insides of.
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from dataset_rt._torch import distributed, options, state
from dataset_rt._torch.artifacts import Folder
from dataset_rt._torch.consumer import Edition
from dataset_rt._torch.loader import Loader, Passes, assemble
from dataset_rt._torch.mixed_stream import MixedReading
from dataset_rt._torch.partition import ENDLESS, Place, Topology
from dataset_rt.exceptions import InvalidInputError

if TYPE_CHECKING:
    from dataset_rt._mixing import Blend
    from dataset_rt._torch.distributed import World
    from dataset_rt._torch.options import Options

T = TypeVar("T")


class MixedLoader(Loader[T, "MixedPasses"]):
    """A torch DataLoader over a mixture's stream.

    Made by `MixedDataset.to_torch_dataloader`, which says what it does. `len(loader)` is the number of batches of a pass, and a
    TypeError for one without an end.
    """

    def state_dict(self) -> dict[str, Any]:
        """Say where the loader is: behind the last batch of its newest pass that the caller has had.

        What loading processes have ready beyond that does not count. Before the first pass and after `load_state_dict` it is
        where the next pass begins. With several training processes that keep step, all have the same state.

        Returns:
            A dict that fits into JSON, about 400 bytes per component whatever the data: `mixture`, as in the state of a
            `MixedDataset`; who reads what (`samples` of a pass, None without an end, `batch_size`, `drop_last`, `ranks`); `pass`
            (passes before this one), `delivered` (batches of it, 0 when it is complete), and `position` (where in the mixture's
            stream the next step begins, in samples of all ranks).

        Source: docs/explanation/loading.md, "Stop and go on".
        """
        return self._snapshot.state_dict()

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> None:
        """Go on from a place in the stream with the next `iter(loader)`, which yields what is left of the pass.

        Mix the same datasets, with the same tables, weights and seeds, first: a state holds none of them. Later passes are whole,
        and `len(loader)` stays that of a whole one. Living processes follow. Every rank loads the same state.

        Batch size, ranks and loading processes may be others. Between passes, and without an end, that is all; within a pass,
        what is left of it must be whole steps of the new ranks and batch size, as it always is when their product, the global
        batch size, stays.

        Args:
            state: What `state_dict` of a mixture's loader returned, in any process and on any rank.
            strict: Refuse the state of a loader that would go on differently. Otherwise go on by position, as nearly as whole
                batches allow.

        Raises:
            InvalidInputError: It is not such a state (also a ValueError).
            StateMismatchError: It is of another stream or length; the message says what differs. The loader is then as it was.
        """
        self._snapshot.load_state_dict(state, strict=strict)


class MixedPasses(Passes):
    """A mixture as a loader has it.

    Args:
        blend: The mixture.
        start: Where in its stream the first pass begins.
        asked: The resolved options.
        world: The training processes.

    Raises:
        InvalidInputError: A pass would have no step, or the mixture is too far in its stream.
    """

    def __init__(self, blend: Blend, start: int, asked: Options, world: World) -> None:
        topology = Topology(
            rows=blend.num_rows,
            samples=asked.samples,
            batch_size=asked.batch_size,
            drop_last=asked.drop_last,
            world_size=world.size,
            rank=world.rank,
            num_workers=asked.num_workers,
            partition=asked.worker_partition,
            order=asked.order,
            seed=0,
        )
        if not topology.num_batches:
            raise _invalid(f"with drop_last nothing is left of {topology.samples} samples for global batches of {topology.step}")
        if start >= ENDLESS:
            raise InvalidInputError(
                f"the mixture is at position {start}, and loaders go no further than 2**62", kind="stream-exhausted"
            )
        # Living processes read there where each pass begins.
        folder = Folder(None) if asked.persistent_workers else None
        reading = MixedReading(blend, asked.persistent_workers)
        edition, place = Edition(0, None, topology), Place(0, 0, (start,))
        super().__init__(asked, world, reading=reading, view=blend, edition=edition, folder=folder, place=place)
        self._blend = blend

    def state_dict(self) -> dict[str, Any]:
        """As `MixedLoader.state_dict`."""
        return state.dump_mixed(self._topology_now, self._blend.identity(), self._place())

    def load_state_dict(self, saved: Mapping[str, Any], *, strict: bool) -> None:
        """As `MixedLoader.load_state_dict`."""
        self._go_on(state.load_mixed(saved, self._topology_now, self._blend.identity(), strict=strict))


def _invalid(message: str) -> InvalidInputError:
    return InvalidInputError(message, kind="invalid-argument")


def build(blend: Blend, start: int, epoch_len: int | None, **arguments: Any) -> MixedLoader[Any]:
    """Make a loader; `MixedDataset.to_torch_dataloader` says how.

    Args:
        blend: The mixture.
        start: Where in its stream the first pass begins.
        epoch_len: Samples of a pass when none are given; None for a pass without an end.
        arguments: The others.
    """
    world = distributed.world()
    asked = options.resolve_mixed(epoch_len=epoch_len, world_size=world.size, **arguments)
    shown = {
        "positions of the mixture": start,
        "batch_size": asked.batch_size,
        "drop_last": asked.drop_last,
        "numbers of samples": None if asked.samples == ENDLESS else asked.samples,
    }
    distributed.agreed(world, shown, {"mixtures": blend.identity})
    return assemble(MixedLoader[Any], MixedPasses(blend, start, asked, world))
