"""Configuration models: frozen, checked when built.

They are said to be frozen where type checkers look, beside the base class.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, Field, model_validator
from typing_extensions import Self

CompressionAlgo: TypeAlias = Literal["none", "lz4", "zstd"]
"""How payloads are stored."""

Order: TypeAlias = Literal["weighted", "sequential", "permutation"]
"""Which row of the active table comes next."""


class ShardCompression(BaseModel, frozen=True):
    """What is done to each payload on its way into a shard.

    Attributes:
        algo: `"none"`, `"lz4"` or `"zstd"`. Every payload is compressed alone, so any one can be read alone. Readers that do not
            know `"zstd"` refuse the cache by that name.
        ratio: The compression ratio that is expected: positive and finite, exactly 1.0 for `"none"`. Kept in the manifest;
            nothing reads it.
        level: For `"zstd"` alone: 1 (fast) to 22 (small); 3 if not given.
    """

    algo: CompressionAlgo = "none"
    ratio: float = Field(default=1.0, gt=0)
    level: int | None = Field(default=None, ge=1, le=22)

    @model_validator(mode="after")
    def _only_zstd_has_levels(self) -> Self:
        if self.level is not None and self.algo != "zstd":
            raise ValueError(f"level is for algo='zstd' alone, and algo is {self.algo!r}")
        return self


class WriterProfilerConfig(BaseModel, frozen=True):
    """Whether and where it is stored what the time of a write went into.

    Attributes:
        enabled: Measure, and store the profile when the call ends: when it returns, and when an exception leaves it.
        path: The JSON file, replaced as a whole; folders above it are made. A path that cannot be written is refused before the
            first source is pulled from.

    Source: docs/guides/profiling.md.
    """

    enabled: bool = False
    path: Path = Path("dataset_rt_profile.json")


class ReaderProfilerConfig(BaseModel, frozen=True):
    """Whether and where it is stored what the time of reading went into.

    Attributes:
        enabled: Measure a dataset's iterators, and store their profile whenever one of them ends and when the dataset is closed,
            collected, or left at the end of the program.
        path: The JSON file, replaced as a whole; folders above it are made. A path that cannot be written is refused when the
            dataset is opened. Two datasets with one path overwrite each other's profile.

    Source: docs/guides/profiling.md.
    """

    enabled: bool = False
    path: Path = Path("dataset_rt_read_profile.json")


class WriterConfig(BaseModel, frozen=True, extra="forbid"):
    """How caches are written. Their bytes depend on `max_shard_bytes` and `shard_compression` alone.

    Attributes:
        num_processes: How many spawned processes may write sources side by side, each source in one of its own; 0 writes one
            source after another in this process. Sources must be picklable and importable then, and a script needs a main guard.
        process_timeout_seconds: How long such a process may take to start, and again to unpickle and write its source, in
            seconds; then it is stopped. Unused without processes.
        prefetch_size: Blocks of samples that may be on their way between the source and the disk.
        max_shard_bytes: Bytes after which a new shard is begun. A record longer than that has a shard of its own.
        shard_compression: What is done to each payload.
        show_progress: Tell on standard error how the write goes: bars on a terminal, otherwise a line now and then; with
            processes a line per source.
        validate_cache: Verify the checksums of a cache before it is reused.
        on_stale: What `from_cache_sources` does when a source has a `fingerprint`, and the cache that is there has another or
            none: `"error"` makes it an error result, `"rebuild"` writes a new cache and puts it in the place of the old one,
            `"reuse"` uses the old one.
        profiler: Whether and where timings are stored; with processes those of all of them.
    """

    num_processes: int = Field(default=0, ge=0)
    process_timeout_seconds: float = Field(default=3600.0, gt=0, allow_inf_nan=False)
    prefetch_size: int = Field(default=64, gt=0)
    max_shard_bytes: int = Field(default=64 * 1024 * 1024, gt=0)
    shard_compression: ShardCompression = ShardCompression()
    show_progress: bool = True
    validate_cache: bool = False
    on_stale: Literal["error", "rebuild", "reuse"] = "error"
    profiler: WriterProfilerConfig = WriterProfilerConfig()


class ReaderConfig(BaseModel, frozen=True, extra="forbid"):
    """How caches are opened and drawn from.

    Attributes:
        seed: Seed of the draw stream, 0 to 2**64 - 1.
        prefetch_size: Samples that are prepared ahead of the consumer.
        shuffle: Draw rows by weight, with replacement; otherwise they come in table order, cyclically. What `order` says, if that
            is given.
        validate_cache: Verify all checksums when opening, and compare each record with the metadata table when it is read.
        io: `"mmap"` maps payloads, the fastest on local disks. `"pread"` reads each record, for file systems whose files may
            shrink or vanish while they are open: a mapped file that is truncated ends the process. Index and metadata are mapped
            in both.
        profiler: Whether and where timings are stored. Exports do not keep it.
        order: Which row comes next. `"weighted"` draws by weight with replacement, as `shuffle=True` does. `"sequential"` goes
            through the table and around, as `shuffle=False` does. `"permutation"` gives each active row once per epoch of as
            many samples as there are rows, in another order each time; repeated rows count as rows, and weights do not matter.
    """

    seed: int
    prefetch_size: int = Field(default=64, gt=0)
    shuffle: bool = True
    validate_cache: bool = False
    io: Literal["mmap", "pread"] = "mmap"
    profiler: ReaderProfilerConfig = ReaderProfilerConfig()
    order: Order = "weighted"

    @model_validator(mode="after")
    def _order_and_shuffle_agree(self) -> Self:
        given = self.model_fields_set & {"order", "shuffle"}
        if given == {"shuffle"}:
            object.__setattr__(self, "order", "weighted" if self.shuffle else "sequential")
        elif given == {"order"}:
            object.__setattr__(self, "shuffle", self.order != "sequential")
        if self.shuffle != (self.order != "sequential"):
            raise ValueError(f"order={self.order!r} and shuffle={self.shuffle} contradict each other; give one of them")
        return self

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Copy with some fields changed, unchecked as pydantic has it. Where `shuffle` or `order` is, the other one follows.

        Args:
            update: New values.
            deep: Copy nested models too.
        """
        changed = dict(update or {})
        if "order" in changed:
            changed.setdefault("shuffle", changed["order"] != "sequential")
        elif "shuffle" in changed and changed["shuffle"] != self.shuffle:
            changed["order"] = "weighted" if changed["shuffle"] else "sequential"
        return super().model_copy(update=changed, deep=deep)


DEFAULT_SHARD_COMPRESSION = ShardCompression()
"""Payloads as they are."""

DEFAULT_WRITER_PROFILER_CONFIG = WriterProfilerConfig()
"""No profile."""

DEFAULT_WRITER_CONFIG = WriterConfig()
"""What a write does when it is not told otherwise."""

for _public in (ShardCompression, WriterProfilerConfig, ReaderProfilerConfig, WriterConfig, ReaderConfig):
    _public.__module__ = "dataset_rt.api"
