"""DatasetRT: a dataset cache and sampling layer for machine learning.

Preprocess once, keep the results in immutable indexed caches, and steer what is drawn with one Polars table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dataset_rt import api

if TYPE_CHECKING:
    from dataset_rt.api import (
        DEFAULT_SHARD_COMPRESSION,
        DEFAULT_WRITER_CONFIG,
        DEFAULT_WRITER_PROFILER_CONFIG,
        AbsentManifestTarget,
        BytesLike,
        CachedDataset,
        CachedSample,
        CacheExistsError,
        CacheInput,
        CacheNotFoundError,
        CacheSource,
        CacheSourcesDatasetError,
        CacheSourcesDatasetResult,
        CacheSourcesDatasetSuccess,
        CacheWriteError,
        CacheWriteResult,
        CacheWriteSuccess,
        ClassBalancedSampler,
        CompressionAlgo,
        CorruptCacheError,
        DatasetRTError,
        DatasetRuntime,
        Err,
        ForkedProcessError,
        InternalError,
        InvalidInputError,
        LengthBucketBatchSampler,
        ManifestUpdateEntry,
        ManifestUpdateError,
        ManifestUpdateReport,
        MapDataset,
        Metadata,
        MetadataValue,
        MixedDataset,
        MixedShard,
        Ok,
        PermutationSampler,
        ReaderConfig,
        ReaderProfilerConfig,
        Result,
        SampleIndexError,
        Sampler,
        ShardCompression,
        SizedTorchIterableDataset,
        SourceError,
        StateMismatchError,
        StorageError,
        StoredColumnsIgnoredWarning,
        UnsupportedVersionError,
        WeightedSampler,
        WriterConfig,
        WriterProfilerConfig,
        mix,
    )

__version__ = "0.1.0"

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
    "__version__",
    "mix",
]


def __getattr__(name: str) -> object:
    """Load a public name on first use."""
    if name not in api.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
