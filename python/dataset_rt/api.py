"""The public names of DatasetRT, and nothing else.

Each is loaded when it is first used, so that importing the package costs next to nothing: no Polars, no pydantic, no native
module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataset_rt._config import (
        DEFAULT_SHARD_COMPRESSION,
        DEFAULT_WRITER_CONFIG,
        DEFAULT_WRITER_PROFILER_CONFIG,
        CompressionAlgo,
        ReaderConfig,
        ReaderProfilerConfig,
        ShardCompression,
        WriterConfig,
        WriterProfilerConfig,
    )
    from dataset_rt._dataset import (
        CachedDataset,
        SizedTorchIterableDataset,
    )
    from dataset_rt._map_dataset import (
        MapDataset,
    )
    from dataset_rt._migration import (
        AbsentManifestTarget,
        Err,
        ManifestUpdateEntry,
        ManifestUpdateError,
        ManifestUpdateReport,
        Ok,
        Result,
    )
    from dataset_rt._mixing import (
        MixedDataset,
        MixedShard,
        mix,
    )
    from dataset_rt._results import (
        CacheSourcesDatasetError,
        CacheSourcesDatasetResult,
        CacheSourcesDatasetSuccess,
        CacheWriteError,
        CacheWriteResult,
        CacheWriteSuccess,
    )
    from dataset_rt._runtime import (
        DatasetRuntime,
    )
    from dataset_rt._sample import (
        CachedSample,
    )
    from dataset_rt._source import (
        BytesLike,
        CacheInput,
        CacheSource,
        Metadata,
        MetadataValue,
    )
    from dataset_rt.exceptions import (
        CacheExistsError,
        CacheNotFoundError,
        CorruptCacheError,
        DatasetRTError,
        ForkedProcessError,
        InternalError,
        InvalidInputError,
        SampleIndexError,
        SourceError,
        StateMismatchError,
        StorageError,
        StoredColumnsIgnoredWarning,
        UnsupportedVersionError,
    )
    from dataset_rt.samplers import (
        ClassBalancedSampler,
        LengthBucketBatchSampler,
        PermutationSampler,
        Sampler,
        WeightedSampler,
    )

_HOMES = {
    "_config": (
        "DEFAULT_SHARD_COMPRESSION",
        "DEFAULT_WRITER_CONFIG",
        "DEFAULT_WRITER_PROFILER_CONFIG",
        "CompressionAlgo",
        "ReaderConfig",
        "ReaderProfilerConfig",
        "ShardCompression",
        "WriterConfig",
        "WriterProfilerConfig",
    ),
    "_dataset": ("CachedDataset", "SizedTorchIterableDataset"),
    "_map_dataset": ("MapDataset",),
    "_migration": (
        "AbsentManifestTarget",
        "Err",
        "ManifestUpdateEntry",
        "ManifestUpdateError",
        "ManifestUpdateReport",
        "Ok",
        "Result",
    ),
    "_mixing": ("MixedDataset", "MixedShard", "mix"),
    "_results": (
        "CacheSourcesDatasetError",
        "CacheSourcesDatasetResult",
        "CacheSourcesDatasetSuccess",
        "CacheWriteError",
        "CacheWriteResult",
        "CacheWriteSuccess",
    ),
    "_runtime": ("DatasetRuntime",),
    "_sample": ("CachedSample",),
    "_source": ("BytesLike", "CacheInput", "CacheSource", "Metadata", "MetadataValue"),
    "samplers": ("ClassBalancedSampler", "LengthBucketBatchSampler", "PermutationSampler", "Sampler", "WeightedSampler"),
    "exceptions": (
        "CacheExistsError",
        "CacheNotFoundError",
        "CorruptCacheError",
        "DatasetRTError",
        "ForkedProcessError",
        "InternalError",
        "InvalidInputError",
        "SampleIndexError",
        "StateMismatchError",
        "SourceError",
        "StorageError",
        "StoredColumnsIgnoredWarning",
        "UnsupportedVersionError",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "DEFAULT_SHARD_COMPRESSION",
    "DEFAULT_WRITER_CONFIG",
    "DEFAULT_WRITER_PROFILER_CONFIG",
    "AbsentManifestTarget",
    "BytesLike",
    "CacheExistsError",
    "CacheInput",
    "CacheNotFoundError",
    "CacheSource",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
    "CachedDataset",
    "CachedSample",
    "ClassBalancedSampler",
    "CompressionAlgo",
    "CorruptCacheError",
    "DatasetRTError",
    "DatasetRuntime",
    "Err",
    "ForkedProcessError",
    "InternalError",
    "InvalidInputError",
    "LengthBucketBatchSampler",
    "ManifestUpdateEntry",
    "ManifestUpdateError",
    "ManifestUpdateReport",
    "MapDataset",
    "Metadata",
    "MetadataValue",
    "MixedDataset",
    "MixedShard",
    "Ok",
    "PermutationSampler",
    "ReaderConfig",
    "ReaderProfilerConfig",
    "Result",
    "SampleIndexError",
    "Sampler",
    "ShardCompression",
    "SizedTorchIterableDataset",
    "SourceError",
    "StateMismatchError",
    "StorageError",
    "StoredColumnsIgnoredWarning",
    "UnsupportedVersionError",
    "WeightedSampler",
    "WriterConfig",
    "WriterProfilerConfig",
    "mix",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"dataset_rt.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
