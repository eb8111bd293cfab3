"""Killed writers, two writers of one name, and a full disk: a cache is absent or whole, and nothing waits."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import values
from support.child import HANG_SECONDS, read_report, start_script
from support.disk import mounted
from support.sources import ListSource, mini, noise, ten_rows

pytestmark = pytest.mark.slow

ROWS = 20_000
SHARD_BYTES = 200_000

KILLED = """
import time
from support import drt, sources
rows = sources.mini(ARGS["rows"])
runtime = drt.runtime()
report("ready")
config = drt.writer_config(algo=ARGS["algo"], max_shard_bytes=ARGS["shard"])
runtime.write_cache([sources.ListSource("mini", rows)], ARGS["base"], writer_config=config)
report("finished")
"""


def is_complete(path: Path, reference: str) -> bool:
    """Whether a cache is there; one that is there has to be whole."""
    if not path.exists():
        with pytest.raises((ValueError, OSError, RuntimeError)):
            subject.open_dataset(path)
        return False
    dataset = subject.open_dataset(path, validate=True)
    assert values.digest(dataset) == reference
    return True


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_killed_writer_leaves_a_whole_cache_or_none(base: Path, tmp_path: Path, algo: str) -> None:
    straight = subject.write(tmp_path / "straight", "mini", mini(ROWS), algo=algo, max_shard_bytes=SHARD_BYTES)
    reference = values.digest(subject.open_dataset(straight))
    rng, outcomes, longest = random.Random(12), [], 0.0
    for attempt in range(6):
        arguments = {"base": str(base), "rows": ROWS, "algo": algo, "shard": SHARD_BYTES}
        process = start_script(KILLED, arguments)
        assert read_report(process) == "ready"
        start = time.monotonic()
        if attempt == 0:
            assert read_report(process) == "finished"
            longest = time.monotonic() - start
        elif attempt > 1:
            time.sleep(rng.uniform(0.0, 1.1 * longest))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=HANG_SECONDS)
        outcomes.append(is_complete(base / "mini", reference))
        if outcomes[-1]:
            shutil.rmtree(base / "mini")
    assert outcomes[0] and not all(outcomes)
    final = subject.write(base, "mini", mini(ROWS), algo=algo, max_shard_bytes=SHARD_BYTES)
    assert is_complete(final, reference)
    table = subject.open_dataset(final).get_metadata()
    assert table.equals(subject.open_dataset(straight).get_metadata())


def kill_while_writing(base: Path, name: str) -> None:
    script = """
from support import drt, sources
def rows():
    yield from sources.mini(3000)
    report("half-way")
    import time
    time.sleep(1000)
config = drt.writer_config(max_shard_bytes=5000)
drt.runtime().write_cache([sources.ListSource(ARGS["name"], rows())], ARGS["base"], writer_config=config)
"""
    process = start_script(script, {"base": str(base), "name": name})
    assert read_report(process) == "half-way"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=HANG_SECONDS)


def test_leftovers_of_a_killed_writer_hinder_nobody(base: Path) -> None:
    subject.write(base, "a", mini(50))
    kill_while_writing(base, "b")
    assert not (base / "b").exists()
    assert len(list(subject.open_dataset(base / "a", validate=True))) == 50
    result = subject.runtime().from_cache_sources(
        [ListSource("a", ten_rows()), ListSource("b", mini(70))], base,
        reader_config=subject.reader_config(), writer_config=subject.writer_config(),
    )  # fmt: skip
    assert [type(each).__name__ for each in result.results] == ["CacheWriteSuccess"] * 2
    assert subject.ids(result.dataset) == [*range(50), *range(70)]


def test_leftovers_of_another_version_hinder_nobody(base: Path) -> None:
    """The public package works in BASE/tmp/NAME; whatever is there is not ours to trip over."""
    work = base / "tmp" / "a"
    (work / "shards").mkdir(parents=True)
    (work / "shards" / "000000.bin").write_bytes(b"half a shard")
    assert subject.ids(subject.open_dataset(subject.write(base, "a", ten_rows()))) == list(range(10))


TWO_WRITERS = """
import time
from support import drt, sources
class Source:
    name = "same"
    def __iter__(self):
        for i in range(400):
            if i == 1:
                report("started")
                while time.time() < ARGS["go"]:
                    time.sleep(0.001)
            if i % 40 == 0:
                time.sleep(ARGS["pause"])
            yield ARGS["tag"].encode() + b"%d" % i, {"tag": ARGS["tag"], "i": i}
(result,) = drt.runtime().write_cache([Source()], ARGS["base"], writer_config=drt.writer_config(max_shard_bytes=1000))
report([type(result).__name__, str(result[1])])
"""


@pytest.mark.ours
@pytest.mark.parametrize("pauses", [(0.0, 0.0), (0.01, 0.03), (0.03, 0.01)])
def test_two_writers_of_one_name_make_one_whole_cache(base: Path, pauses: tuple[float, float]) -> None:
    go = time.time() + 4
    writers = [
        start_script(TWO_WRITERS, {"base": str(base), "tag": tag, "pause": pause, "go": go})
        for tag, pause in zip("xy", pauses, strict=True)
    ]
    outcomes: dict[str, list[str]] = {}
    for tag, process in zip("xy", writers, strict=True):
        report = read_report(process)
        outcomes[tag] = report if report != "started" else read_report(process)
        process.communicate(timeout=HANG_SECONDS)
    winners = [tag for tag, (kind, _) in outcomes.items() if kind == "CacheWriteSuccess"]
    assert len(winners) == 1, outcomes
    (loser,) = set("xy") - set(winners)
    assert outcomes[loser][0] == "CacheWriteError" and str(base / "same") in outcomes[loser][1]
    dataset = subject.open_dataset(base / "same", validate=True)
    (tag,) = winners
    assert [(sample.data, sample.metadata) for sample in dataset] == [
        (b"%s%d" % (tag.encode(), i), {"tag": tag, "i": i}) for i in range(400)
    ]
    assert subject.leftovers(base) == []


@pytest.mark.ours
def test_a_name_taken_during_a_write_is_not_overwritten(base: Path) -> None:
    def rows() -> Iterator[Any]:
        yield from ten_rows(3)
        (base / "a").mkdir()
        (base / "a" / "mine.txt").write_text("keep me")
        yield from ten_rows(3)

    (result,) = subject.write_results(base, ListSource("a", rows()))
    assert isinstance(result, drt.CacheWriteError) and str(base / "a") in result.message
    assert [entry.name for entry in (base / "a").iterdir()] == ["mine.txt"]
    assert subject.leftovers(base) == []


@pytest.mark.ours
def test_an_empty_folder_made_during_a_write_is_not_replaced(base: Path) -> None:
    def rows() -> Iterator[Any]:
        yield from ten_rows(3)
        (base / "a").mkdir()

    (result,) = subject.write_results(base, ListSource("a", rows()))
    assert isinstance(result, drt.CacheWriteError)
    assert list((base / "a").iterdir()) == []


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 16 MiB, mounted for one test."""
    with mounted(megabytes=16) as folder:
        yield folder


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_a_full_disk_is_an_error_result_and_the_space_comes_back(small_disk: Path, algo: str) -> None:
    subject.write(small_disk, "older", mini(100))

    def free() -> int:
        stat = os.statvfs(small_disk)
        return stat.f_bavail * stat.f_frsize

    before = free()
    rows = ((noise(f"full-{i}", 1 << 20), {"i": i}) for i in range(64))
    results = subject.write_results(small_disk, [ListSource("large", rows), ListSource("after", ten_rows())], algo=algo)
    assert isinstance(results[0], drt.CacheWriteError)
    assert "no space left" in results[0].message.lower()
    if subject.IS_OURS:
        assert str(small_disk) in results[0].message
    assert not (small_disk / "large").exists() and subject.leftovers(small_disk) == []
    assert isinstance(results[1], drt.CacheWriteSuccess)
    shutil.rmtree(small_disk / "after")
    assert before - free() < 1 << 20
    dataset = subject.open_dataset(small_disk / "older", validate=True)
    assert [(sample.data, sample.metadata) for sample in dataset] == mini(100)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_an_error_result(base: Path) -> None:
    base.chmod(0o500)
    try:
        (result,) = subject.write_results(base, ListSource("a", ten_rows()))
    finally:
        base.chmod(0o700)
    assert isinstance(result, drt.CacheWriteError)


def test_a_base_folder_that_is_a_file_is_an_error_result(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"mine")
    try:
        results = subject.write_results(tmp_path / "file", ListSource("a", ten_rows()))
    except OSError:
        assert (tmp_path / "file").read_bytes() == b"mine"
        return
    assert isinstance(results[0], drt.CacheWriteError)
    assert (tmp_path / "file").read_bytes() == b"mine"
