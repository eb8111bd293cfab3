"""Profiles of writes and reads, read back and checked for what every one of them has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

#: Stages of a write that run on the thread of the caller, one after another.
CALLING = {
    "finish_checksums", "finish_index", "finish_manifest", "finish_metadata", "finish_wait", "ingress_wait",
    "metadata_validate", "publish", "python_extract", "python_next",
}  # fmt: skip
#: Stages of a write that run on the runtime's threads.
POOLED = {"compression", "disk_write", "record_encode", "shard_flush", "shard_hash"}


def by_name(stages: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """A list of stages by their names, in whose order it has to be."""
    names = [stage["name"] for stage in stages]
    assert names == sorted(set(names))
    for stage in stages:
        assert list(stage) == ["name", "calls", "total_ns", "bytes"]
        assert stage["calls"] > 0 and stage["total_ns"] >= 0 and stage["bytes"] >= 0
    return {stage["name"]: stage for stage in stages}


def load(path: Path) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    profile = json.loads(text)
    assert text.rstrip("\n") == json.dumps(profile, indent=2)
    assert profile["format_version"] == 1 and profile["elapsed_ns"] >= 0
    return profile


def load_written(path: Path) -> dict[str, dict[str, dict[str, Any]]]:
    """The profile of a write: stages by name, by source in the order of the file."""
    profile = load(path)
    assert list(profile) == ["format_version", "elapsed_ns", "sources"]
    assert all(list(source) == ["source_name", "stages"] for source in profile["sources"])
    return {source["source_name"]: by_name(source["stages"]) for source in profile["sources"]}


def load_read(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """The profile of a dataset: how many iterators, and their stages by name."""
    profile = load(path)
    assert list(profile) == ["format_version", "elapsed_ns", "iterators", "stages"]
    return profile["iterators"], by_name(profile["stages"])


def total(stages: dict[str, dict[str, Any]], names: set[str]) -> int:
    """Nanoseconds of some stages together."""
    return sum(stage["total_ns"] for name, stage in stages.items() if name in names)
