"""The public names of DatasetRT, and nothing else.

Each is loaded when it is first used, so that importing the package costs next to nothing: no Polars, no pydantic, no native
module.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataset_rt._config import (
        DEFAULT_SHARD_COMPRESSION as DEFAULT_SHARD_COMPRESSION,
    )
    from dataset_rt._config import (
        DEFAULT_WRITER_CONFIG as DEFAULT_WRITER_CONFIG,
    )
    from dataset_rt._config import (
        DEFAULT_WRITER_PROFILER_CONFIG as DEFAULT_WRITER_PROFILER_CONFIG,
    )
    from dataset_rt._config import (
        CompressionAlgo as CompressionAlgo,
    )
    from dataset_rt._config import (
        ReaderConfig as ReaderConfig,
    )
    from dataset_rt._config import (
        ShardCompression as ShardCompression,
    )
    from dataset_rt._config import (
        WriterConfig as WriterConfig,
    )
    from dataset_rt._config import (
        WriterProfilerConfig as WriterProfilerConfig,
    )
    from dataset_rt._dataset import CachedDataset as CachedDataset
    from dataset_rt._results import (
        CacheSourcesDatasetError as CacheSourcesDatasetError,
    )
    from dataset_rt._results import (
        CacheSourcesDatasetResult as CacheSourcesDatasetResult,
    )
    from dataset_rt._results import (
        CacheSourcesDatasetSuccess as CacheSourcesDatasetSuccess,
    )
    from dataset_rt._results import (
        CacheWriteError as CacheWriteError,
    )
    from dataset_rt._results import (
        CacheWriteResult as CacheWriteResult,
    )
    from dataset_rt._results import (
        CacheWriteSuccess as CacheWriteSuccess,
    )
    from dataset_rt._runtime import DatasetRuntime as DatasetRuntime
    from dataset_rt._sample import CachedSample as CachedSample
    from dataset_rt._source import (
        BytesLike as BytesLike,
    )
    from dataset_rt._source import (
        CacheInput as CacheInput,
    )
    from dataset_rt._source import (
        CacheSource as CacheSource,
    )
    from dataset_rt._source import (
        Metadata as Metadata,
    )
    from dataset_rt._source import (
        MetadataValue as MetadataValue,
    )
    from dataset_rt.exceptions import (
        CacheExistsError as CacheExistsError,
    )
    from dataset_rt.exceptions import (
        CacheNotFoundError as CacheNotFoundError,
    )
    from dataset_rt.exceptions import (
        CorruptCacheError as CorruptCacheError,
    )
    from dataset_rt.exceptions import (
        DatasetRTError as DatasetRTError,
    )
    from dataset_rt.exceptions import (
        ForkedProcessError as ForkedProcessError,
    )
    from dataset_rt.exceptions import (
        InternalError as InternalError,
    )
    from dataset_rt.exceptions import (
        InvalidInputError as InvalidInputError,
    )
    from dataset_rt.exceptions import (
        SampleIndexError as SampleIndexError,
    )
    from dataset_rt.exceptions import (
        SourceError as SourceError,
    )
    from dataset_rt.exceptions import (
        StorageError as StorageError,
    )
    from dataset_rt.exceptions import (
        UnsupportedVersionError as UnsupportedVersionError,
    )

_HOMES = {
    "_config": (
        "DEFAULT_SHARD_COMPRESSION",
        "DEFAULT_WRITER_CONFIG",
        "DEFAULT_WRITER_PROFILER_CONFIG",
        "CompressionAlgo",
        "ReaderConfig",
        "ShardCompression",
        "WriterConfig",
        "WriterProfilerConfig",
    ),
    "_dataset": ("CachedDataset",),
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
    "exceptions": (
        "CacheExistsError",
        "CacheNotFoundError",
        "CorruptCacheError",
        "DatasetRTError",
        "ForkedProcessError",
        "InternalError",
        "InvalidInputError",
        "SampleIndexError",
        "SourceError",
        "StorageError",
        "UnsupportedVersionError",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


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
