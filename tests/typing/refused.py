"""What type checkers must refuse: each `type: ignore` here hides an error, and one that hides none is an error itself."""
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dataset_rt as drt


class WithoutName:
    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"", {})


class NumberedName:
    name = 1

    def __iter__(self) -> Iterator[drt.CacheInput]:
        yield drt.CacheInput(b"", {})


class YieldsText:
    name = "text_v1"

    def __iter__(self) -> Iterator[str]:
        yield "text"


def what_is_no_source(runtime: drt.DatasetRuntime, base: Path) -> None:
    runtime.write_cache(WithoutName(), base)  # type: ignore[arg-type]
    runtime.write_cache(NumberedName(), base)  # type: ignore[arg-type]
    runtime.write_cache(YieldsText(), base)  # type: ignore[arg-type]
    runtime.write_cache([YieldsText()], base)  # type: ignore[list-item]


def a_source_of_somebody_else_keeps_its_name(source: drt.CacheSource) -> None:
    source.name = "another"  # type: ignore[misc]


def values_that_no_cache_holds() -> None:
    drt.CacheInput("text", {})  # type: ignore[arg-type]
    drt.CacheInput(b"", {"label": None})  # type: ignore[dict-item]
    drt.CacheInput(b"", {1: 2})  # type: ignore[dict-item]


def configurations_that_cannot_be(runtime: drt.DatasetRuntime, paths: list[Path]) -> None:
    drt.ReaderConfig()  # type: ignore[call-arg]
    drt.ReaderConfig(seed=0, io="direct")  # type: ignore[arg-type]
    drt.ShardCompression(algo="gzip")  # type: ignore[arg-type]
    drt.ReaderConfig(seed=0).seed = 1  # type: ignore[misc]
    drt.DatasetRuntime(2)  # type: ignore[call-arg]
    drt.DatasetRuntime(num_workers="many")  # type: ignore[arg-type]
    runtime.cached_dataset(paths, drt.ReaderConfig(seed=0))  # type: ignore[call-arg]
    runtime.cached_dataset(paths, reader_config=drt.WriterConfig())  # type: ignore[arg-type]


def datasets_are_no_sequences(dataset: drt.CachedDataset) -> None:
    dataset[0]  # type: ignore[index]
    dataset.get_item("a", 0)  # type: ignore[arg-type]
    dataset.get_many([1, 2])  # type: ignore[list-item]
    dataset.update_manifests(2)  # type: ignore[arg-type]
    dataset.cache_paths = []  # type: ignore[misc]


def results_are_looked_at_first(result: drt.CacheWriteResult, sample: drt.CachedSample) -> None:
    _ = result.path  # type: ignore[union-attr]
    sample.data = b""  # type: ignore[misc]


def length(sample: drt.CachedSample) -> int:
    return len(sample.data)


def total(lengths: list[int]) -> int:
    return sum(lengths)


def first(samples: list[drt.CachedSample]) -> bytes:
    return samples[0].data


def loaders_whose_functions_do_not_fit(dataset: drt.CachedDataset) -> None:
    dataset.to_torch_dataloader(collate_fn=total)  # type: ignore[arg-type]
    dataset.to_torch_dataloader(sample_transform_fn=length, collate_fn=first)  # type: ignore[misc]
    dataset.to_torch_dataloader(worker_partition="halves")  # type: ignore[call-overload]
    dataset.to_torch_dataloader(batch_sze=4)  # type: ignore[call-overload]


def loaders_of_mixtures_whose_functions_do_not_fit(dataset: drt.CachedDataset) -> None:
    named = drt.mix({"a": dataset}, names=True)
    named.to_torch_dataloader(collate_fn=first)  # type: ignore[arg-type]
    named.to_torch_dataloader(sample_transform_fn=length)  # type: ignore[arg-type]
    named.to_torch_dataloader(shuffle=True)  # type: ignore[call-overload]
    named.to_torch_dataloader(worker_partition="stream")  # type: ignore[call-overload]
