"""Checksums per record: a flipped byte in a cache of ours is noticed when its record is read, and said precisely."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support.damage import assert_names_the_record, flip, place
from support.sources import mini, noise

pytestmark = [pytest.mark.quick, pytest.mark.ours]


def rows(n: int = 40) -> list[Any]:
    return [(noise(f"checksum-{i}", 200), {"i": i, "s": f"text {i}"}) for i in range(n)]


@pytest.mark.parametrize("where", ["payload", "last byte", "json", "envelope"])
@pytest.mark.parametrize("algo", ["none", "lz4"])
@pytest.mark.parametrize("io", subject.IO_MODES)
def test_a_flipped_byte_is_noticed_without_validation(base: Path, io: str, algo: str, where: str) -> None:
    path = subject.write(base, "a", rows(), algo=algo, max_shard_bytes=3000)
    shard, offset, length = place(path, 17)
    places = {"payload": length // 2, "last byte": length - 1, "json": 13, "envelope": 3}
    flip(shard, offset + places[where])
    dataset = subject.open_dataset(path, io=io)
    seen = []
    with pytest.raises(drt.CorruptCacheError) as caught:
        for sample in dataset:
            seen.append(sample.sample_id)
    assert seen == list(range(17))
    assert_names_the_record(caught.value, path, 17)
    cache_id = dataset.get_metadata()["cache_id"][0]
    with pytest.raises(drt.CorruptCacheError) as caught:
        dataset.get_item(cache_id, 17)
    assert_names_the_record(caught.value, path, 17)
    with pytest.raises(drt.CorruptCacheError):
        dataset.get_many([(cache_id, 3), (cache_id, 17)])
    others = [i for i in range(40) if i != 17]
    assert [sample.data for sample in dataset.get_many([(cache_id, i) for i in others])] == [rows()[i][0] for i in others]


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_validation_refuses_the_cache_at_open_and_names_the_shard(base: Path, io: str) -> None:
    path = subject.write(base, "a", rows(), max_shard_bytes=3000)
    shard, offset, length = place(path, 17)
    flip(shard, offset + length // 2)
    with pytest.raises(drt.CorruptCacheError) as caught:
        subject.open_dataset(path, io=io, validate=True)
    assert shard.name in str(caught.value) and str(path) in str(caught.value) + str(caught.value.path)


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_a_record_that_was_noticed_once_is_noticed_again(base: Path, io: str) -> None:
    path = subject.write(base, "a", rows())
    shard, offset, length = place(path, 5)
    flip(shard, offset + length - 1)
    dataset = subject.open_dataset(path, io=io)
    cache_id = dataset.get_metadata()["cache_id"][0]
    for _ in range(3):
        with pytest.raises(drt.CorruptCacheError):
            dataset.get_item(cache_id, 5)


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_two_swapped_rows_of_the_index_are_noticed(base: Path, io: str) -> None:
    path = subject.write(base, "a", mini(20))
    index = bytearray((path / "index.bin").read_bytes())
    index[0:24], index[24:48] = index[24:48], index[0:24]
    (path / "index.bin").write_bytes(bytes(index))
    with pytest.raises(drt.CorruptCacheError):
        list(subject.open_dataset(path, io=io))


@pytest.mark.parametrize("damage", ["flip", "truncate", "empty", "remove"])
@pytest.mark.parametrize("validate", [False, True])
def test_a_damaged_checksum_file_gives_an_error_or_the_right_rows(base: Path, damage: str, validate: bool) -> None:
    path = subject.write(base, "a", mini(20))
    file = path / "drt_record_checksums.bin"
    if damage == "flip":
        flip(file, file.stat().st_size - 1)
    elif damage == "truncate":
        file.write_bytes(file.read_bytes()[:-3])
    elif damage == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    try:
        samples = list(subject.open_dataset(path, validate=validate))
    except drt.DatasetRTError as error:
        assert not isinstance(error, drt.InternalError)
        assert str(path) in str(error) + str(error.path)
    else:
        assert damage != "flip", "a record whose checksum does not match was returned"
        assert [(sample.data, sample.metadata) for sample in samples] == mini(20)


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize("value", [None, 7, "text", [], {}, {"file": "../../x"}])
def test_nonsense_in_our_manifest_key_gives_an_error_or_the_right_rows(base: Path, value: Any, validate: bool) -> None:
    path = subject.write(base, "a", mini(20))
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["drt_record_checksums"] = value
    (path / "manifest.json").write_text(json.dumps(manifest, indent=2))
    try:
        samples = list(subject.open_dataset(path, validate=validate))
    except drt.DatasetRTError as error:
        assert not isinstance(error, drt.InternalError)
    else:
        assert [(sample.data, sample.metadata) for sample in samples] == mini(20)


@pytest.mark.parametrize("io", subject.IO_MODES)
def test_a_shard_that_lost_its_end_is_refused_at_open(base: Path, io: str) -> None:
    path = subject.write(base, "mini", mini(300), max_shard_bytes=8000)
    shards = sorted((path / "shards").iterdir())
    assert len(shards) >= 3
    length = shards[-1].stat().st_size
    with open(shards[-1], "r+b") as file:
        file.truncate(length - 10)
    with pytest.raises(drt.CorruptCacheError) as caught:
        subject.open_dataset(path, io=io)
    message = str(caught.value).replace(str(path), "CACHE")
    for text in (shards[-1].name, str(length), str(length - 10)):
        assert text in message


def test_positioned_reads_survive_a_shard_that_shrinks_under_an_open_dataset(base: Path) -> None:
    """Mapped pages that vanish are a signal; with io="pread" the same accident is an error."""
    from support.child import run_script

    script = """
from pathlib import Path
from support import drt, sources
path = drt.write(Path(ARGS["base"]), "a", sources.big_rows(50, 20_000))
dataset = drt.open_dataset(path, io="pread")
with open(path / "shards" / "000000.bin", "r+b") as file:
    file.truncate(100_000)
seen = []
try:
    for sample in dataset:
        seen.append(sample.sample_id)
except drt.AnyError as error:
    report([seen, isinstance(error, (drt.Corrupt, drt.api.StorageError))])
"""
    assert run_script(script, {"base": str(base)}) == [[0, 1, 2, 3], True]
