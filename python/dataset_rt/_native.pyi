"""The native module. The package is its only user."""

import os
from pathlib import Path
from typing import Any, Literal, final

import polars as pl

from dataset_rt._sample import CachedSample

__all__ = ["Dataset", "Progress", "Runtime", "SampleIterator", "error_kinds"]

def error_kinds() -> list[tuple[str, str]]: ...

@final
class Runtime:
    def __new__(cls, *, num_workers: int) -> Runtime: ...
    @property
    def num_workers(self) -> int: ...
    def open_dataset(
        self,
        paths: list[os.PathLike[str]],
        *,
        seed: int,
        prefetch_size: int,
        shuffle: bool,
        validate_cache: bool,
        io: str,
    ) -> Dataset: ...
    def check_cache(self, path: os.PathLike[str], *, validate_cache: bool) -> None: ...
    def write_source(
        self,
        source: Any,
        name: str,
        base: os.PathLike[str],
        *,
        max_shard_bytes: int,
        compression: str,
        ratio: float,
        prefetch_size: int,
        progress: Progress,
    ) -> Path: ...

@final
class Progress:
    def __new__(cls, *, num_sources: int, show: bool) -> Progress: ...

@final
class Dataset:
    def iter(self) -> SampleIterator: ...
    @property
    def epoch_len(self) -> int: ...
    def set_epoch_len(self, len: int) -> None: ...
    @property
    def schema(self) -> list[tuple[str, str]]: ...
    def get_item(self, cache_id: int, sample_id: int) -> CachedSample: ...
    def get_many(self, ids: list[tuple[int, int]]) -> list[CachedSample]: ...
    def metadata(self) -> Any: ...
    def update_metadata(self, columns: pl.DataFrame, original: object) -> None: ...
    def update_manifests(
        self,
    ) -> tuple[list[tuple[Path, int, Literal["updated", "unchanged", "durability_unknown"]]], tuple[Path, str] | None]: ...

@final
class SampleIterator:
    def __iter__(self) -> SampleIterator: ...
    def __next__(self) -> CachedSample: ...
    def __length_hint__(self) -> int: ...
