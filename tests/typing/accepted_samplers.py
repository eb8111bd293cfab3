"""Map-style datasets and samplers as mypy and pyright must understand them."""

from __future__ import annotations

from typing import Any

import dataset_rt as drt
import polars as pl
from dataset_rt.samplers import ClassBalancedSampler, LengthBucketBatchSampler, PermutationSampler, Sampler, WeightedSampler
from typing_extensions import assert_type


def length(sample: drt.CachedSample) -> int:
    return len(sample.data)


def rows_of_a_dataset(dataset: drt.CachedDataset) -> None:
    plain = assert_type(dataset.to_torch_map_dataset(), drt.MapDataset[drt.CachedSample])
    assert_type(plain[0], drt.CachedSample)
    lengths = assert_type(dataset.to_torch_map_dataset(transform=length, native_num_workers=2), drt.MapDataset[int])
    assert_type(lengths[-1], int)
    assert_type(lengths.__getitems__([1, 2]), list[int])
    assert_type(len(lengths), int)
    assert_type(lengths.get_metadata(), pl.DataFrame)


def samplers_of_a_dataset(dataset: drt.CachedDataset) -> None:
    rows = dataset.to_torch_map_dataset()
    permutation: Sampler[int] = PermutationSampler(rows=rows, seed=3, rank=0, world_size=2, drop_last=True)
    for row in permutation:
        assert_type(row, int)
    assert_type(len(permutation), int)
    assert_type(list(WeightedSampler(weights=[1.0, 2.0], num_samples=3, replacement=False)), list[int])
    assert_type(list(ClassBalancedSampler(labels=dataset, column="label", shares={"a": 1, "b": 2.5})), list[int])
    assert_type(list(LengthBucketBatchSampler(lengths=rows, column="size", max_tokens_per_batch=8)), list[list[int]])
    state = assert_type(permutation.state_dict(), dict[str, Any])
    assert_type(permutation.load_state_dict(state, strict=False), None)
    assert_type(permutation.set_epoch(2), None)
