"""Map-style datasets and samplers in PyTorch's own loaders, and in torchdata's."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

import dataset_rt as drt
from dataset_rt.samplers import ClassBalancedSampler, LengthBucketBatchSampler, PermutationSampler, Sampler, WeightedSampler
from support import drt as subject
from support.child import run_program
from support.sources import mini, mini_payload
from torch.utils.data import BatchSampler, ConcatDataset, DataLoader, RandomSampler, Subset, random_split

pytestmark = [pytest.mark.ours, pytest.mark.skipif(sys.platform != "linux", reason="forks")]


def number(sample: drt.CachedSample) -> int:
    assert sample.data == mini_payload(sample.sample_id)
    return sample.sample_id


@pytest.fixture
def rows(base: Path) -> Any:
    return subject.open_dataset(subject.write(base, "mini", mini(60))).to_torch_map_dataset(transform=number)


def numbers(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def flat(batches: list[list[int]]) -> list[int]:
    return [number for batch in batches for number in batch]


@pytest.mark.parametrize("options", [{}, {"num_workers": 2, "multiprocessing_context": "fork"}], ids=["here", "forked"])
def test_any_sampler_of_torch_works(rows: Any, options: dict[str, Any]) -> None:
    assert numbers(DataLoader(rows, batch_size=25, **options)) == [list(range(25)), list(range(25, 50)), list(range(50, 60))]
    shuffled = numbers(DataLoader(rows, batch_size=7, shuffle=True, **options))
    assert sorted(flat(shuffled)) == list(range(60))
    batches = BatchSampler(RandomSampler(rows), 9, drop_last=True)
    assert [len(batch) for batch in numbers(DataLoader(rows, batch_sampler=batches, **options))] == [9] * 6
    assert numbers(DataLoader(Subset(rows, [5, 3, -1]), batch_size=2, **options)) == [[5, 3], [59]]
    left, right = random_split(rows, [40, 20])
    assert sorted(flat(numbers(DataLoader(ConcatDataset([left, right]), batch_size=8, **options)))) == list(range(60))


def test_a_transform_that_cannot_be_spawned_is_named(base: Path) -> None:
    rows = subject.open_dataset(subject.write(base, "mini", mini(6))).to_torch_map_dataset(transform=lambda sample: 1)
    assert numbers(DataLoader(rows, batch_size=6)) == [[1] * 6]
    with pytest.raises(TypeError, match=r"transform cannot be handed to loading processes.*top level.*num_workers=0"):
        iter(DataLoader(rows, num_workers=1, multiprocessing_context="spawn"))


def test_a_batch_is_one_native_call(rows: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    kind = type(rows)
    read = kind.__getitems__
    monkeypatch.setattr(kind, "__getitems__", lambda self, numbers: calls.append(len(numbers)) or read(self, numbers))
    numbers(DataLoader(rows, batch_size=20))
    assert calls == [20, 20, 20]


@pytest.mark.slow  # each worker imports torch
def test_spawned_workers_of_a_stock_loader_read_it(base: Path, tmp_path: Path) -> None:
    program = """
import sys
from pathlib import Path
from support import drt, sources
from torch.utils.data import DataLoader
from dataset_rt.samplers import PermutationSampler

def number(sample):
    assert sample.data == sources.mini_payload(sample.sample_id)
    return sample.sample_id

if __name__ == "__main__":
    rows = drt.open_dataset(drt.write(Path(sys.argv[1]), "mini", sources.mini(60))).to_torch_map_dataset(transform=number)
    sampler = PermutationSampler(rows=rows, seed=3)
    options = {"num_workers": 2, "multiprocessing_context": "spawn", "persistent_workers": True}
    loader = DataLoader(rows, batch_size=7, sampler=sampler, **options)
    for _ in range(2):
        print(*[number for batch in loader for number in batch.tolist()])
"""
    done = run_program(tmp_path / "program.py", program, str(base))
    assert done.returncode == 0, done.stderr
    expected = PermutationSampler(rows=60, seed=3)
    assert [[int(word) for word in line.split()] for line in done.stdout.splitlines()] == [list(expected), list(expected)]


def test_a_loader_may_be_built_again_around_it_with_another_sampler(rows: Any) -> None:
    """What Lightning and Accelerate do: they take a loader apart and make another with a sampler of theirs."""
    loader = DataLoader(
        rows, batch_size=6, sampler=WeightedSampler(weights=[1.0] * 60), num_workers=1, multiprocessing_context="fork"
    )
    parts = [
        DataLoader(
            loader.dataset,
            batch_size=loader.batch_size,
            sampler=torch.utils.data.DistributedSampler(loader.dataset, num_replicas=2, rank=rank, shuffle=False),
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            multiprocessing_context=loader.multiprocessing_context,
        )
        for rank in range(2)
    ]
    assert [flat(numbers(part)) for part in parts] == [list(range(0, 60, 2)), list(range(1, 60, 2))]


def test_global_batches_do_not_depend_on_the_topology(rows: Any) -> None:
    def batches(ranks: int, size: int) -> list[set[int]]:
        loaders = [
            DataLoader(rows, batch_size=size, sampler=PermutationSampler(rows=rows, seed=4, rank=rank, world_size=ranks))
            for rank in range(ranks)
        ]
        return [set().union(*turn) for turn in zip(*map(numbers, loaders), strict=True)]

    assert batches(1, 12) == batches(2, 6) == batches(4, 3)


def test_ranks_are_those_of_the_default_process_group(rows: Any, tmp_path: Path) -> None:
    sampler = PermutationSampler(rows=rows)
    assert len(sampler) == 60
    import torch.distributed as dist

    store = dist.FileStore(str(tmp_path / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert len(sampler) == 60
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dist, "get_world_size", lambda: 3)
            patch.setattr(dist, "get_rank", lambda: 2)
            assert len(sampler) == 20
            assert list(sampler) == list(PermutationSampler(rows=60, rank=0, world_size=1))[2::3]
            assert list(PermutationSampler(rows=60, rank=0, world_size=1)) == list(
                PermutationSampler(rows=60, rank=0, world_size=1)
            )
    finally:
        dist.destroy_process_group()


SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "permutation": lambda: {"sampler": PermutationSampler(rows=60, seed=1), "batch_size": 7},
    "balanced": lambda: {"sampler": ClassBalancedSampler(labels=[row % 5 == 0 for row in range(60)]), "batch_size": 7},
    "without replacement": lambda: {"sampler": WeightedSampler(weights=range(1, 61), replacement=False), "batch_size": 7},
    "buckets": lambda: {"batch_sampler": LengthBucketBatchSampler(lengths=range(60), batch_size=7, pool_size=2)},
}

KINDS = [*((kind, 0) for kind in SAMPLERS), ("permutation", 2), ("buckets", 2)]


@pytest.mark.parametrize(("kind", "workers"), KINDS)
@pytest.mark.parametrize("stop", [2, 9])
def test_stateful_loaders_go_on_where_they_were(rows: Any, kind: str, workers: int, stop: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")

    def loader() -> Any:
        options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
        return stateful.StatefulDataLoader(rows, **SAMPLERS[kind](), **options)

    straight = loader()
    whole = [numbers(straight), numbers(straight)]
    assert whole[0] != whole[1]
    first = loader()
    seen = [batch.tolist() for batch in itertools.islice(first, stop)]
    resumed = loader()
    resumed.load_state_dict(first.state_dict())
    # At the end of an epoch the state may already be that of the next: an incomplete batch means that the sampler has ended.
    while len(seen) < len(whole[0]) + len(whole[1]):
        seen += numbers(resumed)
    assert seen == whole[0] + whole[1]


@pytest.mark.parametrize(("kind", "workers"), KINDS)
def test_stateful_loaders_begin_the_next_epoch_after_a_complete_one(rows: Any, kind: str, workers: int) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader", reason="needs torchdata")
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    straight = stateful.StatefulDataLoader(rows, **SAMPLERS[kind](), **options)
    numbers(straight)
    state = straight.state_dict()
    second = numbers(straight)
    resumed = stateful.StatefulDataLoader(rows, **SAMPLERS[kind](), **options)
    resumed.load_state_dict(state)
    assert numbers(resumed) == second


def test_samplers_are_no_torch_samplers_and_need_not_be(rows: Any) -> None:
    sampler: Sampler[int] = PermutationSampler(rows=rows)
    assert not isinstance(sampler, torch.utils.data.Sampler)
    assert len(DataLoader(rows, batch_size=7, sampler=sampler)) == 9
