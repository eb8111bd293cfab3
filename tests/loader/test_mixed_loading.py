"""Mixtures in torch's DataLoader: the same batches for any number of ranks and loading processes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install torch")

import dataset_rt as drt
from support import drt as subject
from support import loading
from support.sources import ten_rows

pytestmark = [pytest.mark.ours, pytest.mark.skipif(sys.platform != "linux", reason="forks")]


@pytest.fixture(autouse=True)
def no_processes_left() -> Iterator[None]:
    yield
    loading.end_processes()


@pytest.fixture
def mixed(base: Path) -> Any:
    sizes = {"a": 40, "b": 7}
    datasets = {
        name: subject.runtime().cached_dataset(
            [subject.write(base, name, ten_rows(rows))], reader_config=drt.ReaderConfig(seed=rows, order="permutation")
        )
        for name, rows in sizes.items()
    }
    mixed = drt.mix(datasets, weights={"a": 0.75, "b": 0.25}, seed=4, names=True)
    mixed.set_epoch_len(50)
    return mixed


def pairs(batch: list[Any]) -> list[tuple[str, int]]:
    return [(name, sample.sample_id) for name, sample in batch]


def load(dataset: Any, batch_size: int, num_workers: int, **options: Any) -> Any:
    if num_workers:
        options = {"multiprocessing_context": "fork", **options}
    return torch.utils.data.DataLoader(dataset, batch_size=batch_size, num_workers=num_workers, collate_fn=pairs, **options)


def stream(mixed: Any, count: int) -> list[tuple[str, int]]:
    mixed.set_epoch_len(None)
    whole = pairs(list(itertools.islice(mixed, count)))
    mixed.set_epoch_len(50)
    return whole


def test_batches_are_the_same_for_any_number_of_processes_and_ranks(mixed: Any) -> None:
    found = []
    for world_size, batch_size, num_workers in [(1, 6, 0), (1, 6, 1), (1, 6, 3), (2, 3, 2), (3, 2, 0)]:
        parts = []
        for rank in range(world_size):
            dataset = mixed.to_torch_iterable_dataset(batch_size=batch_size, rank=rank, world_size=world_size)
            loader = load(dataset, batch_size, num_workers)
            assert (len(dataset), len(loader)) == (9 * batch_size, 9)
            parts.append(list(loader))
        found.append([list(itertools.chain(*step)) for step in zip(*parts, strict=True)])
    assert all(batches == found[0] for batches in found)
    assert list(itertools.chain(*found[0])) == stream(mixed, 54)


def test_epochs_reach_persistent_processes_and_join(mixed: Any) -> None:
    dataset = mixed.to_torch_iterable_dataset(batch_size=6, drop_last=True)
    loader = load(dataset, 6, 2, persistent_workers=True)
    drawn = []
    for epoch in range(3):
        dataset.set_epoch(epoch)
        drawn.append(list(itertools.chain(*loader)))
    dataset.set_epoch(1, step=5)
    rest = list(itertools.chain(*loader))
    dataset.set_epoch(0)
    assert list(itertools.chain(*loader)) == drawn[0]
    assert list(itertools.chain(*drawn)) == stream(mixed, 3 * 48)
    assert rest == drawn[1][5 * 6 :]


def test_spawned_processes_give_the_same(mixed: Any) -> None:
    dataset = mixed.to_torch_iterable_dataset(batch_size=5)
    dataset.set_epoch(2)
    alone = list(load(dataset, 5, 0))
    assert list(load(dataset, 5, 1, multiprocessing_context="spawn")) == alone
    assert list(itertools.chain(*alone)) == stream(mixed, 150)[100:]


def test_what_cannot_be_is_refused(mixed: Any) -> None:
    with pytest.raises(drt.InvalidInputError, match="go together"):
        mixed.to_torch_iterable_dataset(batch_size=5, rank=0)
    dataset = mixed.to_torch_iterable_dataset(batch_size=5)
    with pytest.raises(drt.InvalidInputError):
        dataset.set_epoch(0, step=11)
    mixed.set_epoch_len(None)
    with pytest.raises(TypeError):
        len(mixed.to_torch_iterable_dataset(batch_size=5))
