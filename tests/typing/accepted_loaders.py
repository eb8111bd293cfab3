"""What type checkers make of the overloads of loaders and map-style datasets."""

from __future__ import annotations

import dataset_rt as drt
from typing_extensions import assert_type


def length(sample: drt.CachedSample) -> int:
    return len(sample.data)


def total(lengths: list[int]) -> float:
    return float(sum(lengths))


def first(samples: list[drt.CachedSample]) -> bytes:
    return samples[0].data


def collate_functions_get_what_transforms_make(dataset: drt.CachedDataset) -> None:
    loader = dataset.to_torch_dataloader(sample_transform_fn=length, collate_fn=total, batch_size=4, num_workers="auto")
    assert_type(len(loader), int)
    dataset.to_torch_dataloader(collate_fn=first, shuffle=False, worker_partition="split")
    dataset.to_torch_dataloader(sample_transform_fn=length, seed=3, persistent_workers=True, multiprocessing_context="fork")
    dataset.to_torch_dataloader(sample_transform_fn=None, collate_fn=None, order="sequential", seed="random")


def row(pair: tuple[str, drt.CachedSample]) -> int:
    return pair[1].sample_id


def names(pairs: list[tuple[str, drt.CachedSample]]) -> list[str]:
    return [name for name, _ in pairs]


def loaders_of_mixtures_give_samples_or_pairs(dataset: drt.CachedDataset) -> None:
    bare, named = drt.mix({"a": dataset}), drt.mix({"a": dataset}, names=True)
    loader = bare.to_torch_dataloader(sample_transform_fn=length, collate_fn=total, batch_size=4, num_workers="auto")
    assert_type(len(loader), int)
    loader.load_state_dict(loader.state_dict(), strict=False)
    bare.to_torch_dataloader(collate_fn=first, samples_per_epoch=100, persistent_workers="auto")
    named.to_torch_dataloader(sample_transform_fn=row, collate_fn=total, drop_last=True)
    named.to_torch_dataloader(collate_fn=names, multiprocessing_context="fork", prefetch_factor=3)
    named.to_torch_dataloader(sample_transform_fn=row)
    named.to_torch_dataloader(sample_transform_fn=None, collate_fn=None)


def iterators_of_mixtures_have_a_state(dataset: drt.CachedDataset) -> None:
    samples = iter(drt.mix({"a": dataset}, names=True))
    assert_type(next(samples), tuple[str, drt.CachedSample])
    samples.load_state_dict(samples.state_dict(), strict=False)
    with samples as within:
        assert_type(next(within), tuple[str, drt.CachedSample])


def map_style_items_are_what_the_transform_makes(dataset: drt.CachedDataset) -> None:
    assert_type(dataset.to_torch_map_dataset()[0], drt.CachedSample)
    assert_type(dataset.to_torch_map_dataset(transform=length)[0], int)
    assert_type(dataset.to_torch_map_dataset(transform=length).__getitems__([0, 1]), list[int])
