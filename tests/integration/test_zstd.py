"""Payloads stored as Zstandard frames: read like any others, smaller at higher levels, and refused by name elsewhere."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from pydantic import ValidationError
from support import drt as subject
from support.child import run_script
from support.damage import assert_names_the_record, flip, place
from support.sources import noise

pytestmark = [pytest.mark.quick, pytest.mark.ours]

WORDS = ["shard", "index", "record", "label", "split", "score", "weight", "epoch", "draw", "cache"]


def text(seed: int, length: int) -> bytes:
    rng = random.Random(seed)
    return " ".join(rng.choices(WORDS, k=length)).encode()


def rows() -> list[Any]:
    payloads = [b"", b"x", noise("zstd", 5000), bytes(3_000_000), *(text(i, 500) for i in range(120))]
    return [(payload, {"i": i}) for i, payload in enumerate(payloads)]


def write(base: Path, name: str, level: int | None = None) -> Path:
    compression = drt.ShardCompression(algo="zstd", level=level)
    config = drt.WriterConfig(shard_compression=compression, show_progress=False)
    (result,) = subject.runtime().write_cache(subject.sources.ListSource(name, rows()), base, writer_config=config)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("level", [None, 1, 19])
def test_payloads_come_back_at_every_level(base: Path, io: str, level: int | None) -> None:
    path = write(base, "a", level)
    (shard,) = json.loads((path / "manifest.json").read_text())["shards"]
    assert shard["compression"] == {"algo": "zstd", "ratio": 1.0, "level": level or 3}
    for validate in (False, True):
        dataset = subject.open_dataset(path, io=io, validate=validate)
        assert [sample.data for sample in dataset] == [payload for payload, _ in rows()]
        cache_id = next(iter(dataset)).cache_id
        assert dataset.get_item(cache_id, 3).data == bytes(3_000_000)


def test_bytes_depend_on_the_level_alone(base: Path) -> None:
    def shards(path: Path) -> bytes:
        return (path / "shards" / "000000.bin").read_bytes()

    first, again = shards(write(base / "one", "a", 3)), shards(write(base / "two", "a"))
    assert first == again
    assert len(shards(write(base / "three", "a", 19))) < len(first)


@pytest.mark.parametrize(
    "options", [{"algo": "lz4", "level": 3}, {"level": 3}, *({"algo": "zstd", "level": n} for n in (0, 23, -1))]
)
def test_a_level_that_makes_no_sense_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="level"):
        drt.ShardCompression(**options)


@pytest.mark.parametrize("row", [2, 3, 50])
def test_a_damaged_frame_is_an_error_that_names_the_record(base: Path, row: int) -> None:
    path = write(base, "a")
    shard, offset, length = place(path, row)
    flip(shard, offset + length // 2)
    dataset = subject.open_dataset(path)
    seen = []
    with pytest.raises(drt.CorruptCacheError) as caught:
        for sample in dataset:
            seen.append(sample.sample_id)
    assert seen == list(range(row))
    assert_names_the_record(caught.value, path, row)


def test_a_frame_that_stands_for_more_than_its_shard_has_is_refused(base: Path) -> None:
    """A few bytes may honestly say that they are gigabytes; the manifest says how many there can be."""
    path = write(base, "a")
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["drt_record_checksums"]
    manifest["shards"][0]["uncompressed_byte_len"] = 2_000_000
    (path / "manifest.json").write_text(json.dumps(manifest))
    dataset = subject.open_dataset(path)
    assert dataset.get_item(manifest["cache_id"], 2).data == noise("zstd", 5000)
    with pytest.raises(drt.CorruptCacheError, match="3000000 bytes") as caught:
        dataset.get_item(manifest["cache_id"], 3)
    assert_names_the_record(caught.value, path, 3)


@pytest.mark.parametrize("row", [2, 50])
def test_a_damaged_frame_without_checksums_is_no_crash(base: Path, row: int) -> None:
    """Every byte of a record's frame, in a cache that has nothing but the frame itself to tell."""
    path = write(base, "a")
    manifest = json.loads((path / "manifest.json").read_text())
    del manifest["drt_record_checksums"]
    (path / "manifest.json").write_text(json.dumps(manifest))
    shard, offset, length = place(path, row)
    cache_id = manifest["cache_id"]
    for at in range(offset + length - min(length - 30, 150), offset + length):
        flip(shard, at)
        try:
            subject.open_dataset(path, num_workers=1).get_item(cache_id, row)
        except drt.CorruptCacheError as error:
            assert_names_the_record(error, path, row)
        flip(shard, at)


@pytest.mark.slow
def test_a_write_gives_the_memory_of_its_level_back(base: Path) -> None:
    script = """
from pathlib import Path
import dataset_rt as api
from support import drt, sources

def private():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("RssAnon"))

runtime, payload = drt.runtime(2), sources.noise("level", 1 << 20) * 6
def write(name, level):
    compression = api.ShardCompression(algo="zstd", level=level)
    config = api.WriterConfig(shard_compression=compression, show_progress=False)
    rows = [(payload, {"i": i}) for i in range(4)]
    (result,) = runtime.write_cache(sources.ListSource(name, rows), Path(ARGS["base"]), writer_config=config)
    assert isinstance(result, api.CacheWriteSuccess), result

write("before", 1)
before = private()
write("after", 19)
report(private() - before)
"""
    kept = run_script(script, {"base": str(base)})
    assert kept < 30_000_000, f"{kept} bytes stayed"  # the threads' encoders alone took more than that each
