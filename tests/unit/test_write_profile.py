"""The profile of a write: what is in it, when it is written, and that it never costs a cache."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import process_sources as doing
from support import profiles
from support.child import run_script
from support.process_sources import Acting
from support.sources import CountingSource, ListSource, big_rows, mini, ten_rows

pytestmark = pytest.mark.quick


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folders" / "profile.json"


def profiler(path: Path) -> Any:
    return drt.WriterProfilerConfig(enabled=True, path=path)


def write(base: Path, sources: Any, path: Path, **options: Any) -> list[Any]:
    return subject.write_results(base, sources, profiler=profiler(path), **options)


def pausing(rows: list[Any], seconds: float) -> Iterator[Any]:
    for row in rows:
        time.sleep(seconds)
        yield row


def interrupted(rows: list[Any]) -> Iterator[Any]:
    yield from rows
    raise KeyboardInterrupt


# what is in it ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_every_stage_has_its_calls_and_bytes(base: Path, path: Path, algo: str) -> None:
    rows = mini(3000)
    (result,) = write(base, ListSource("a", rows), path, algo=algo, max_shard_bytes=20_000)
    stages = profiles.load_written(path)["a"]
    payload = sum(len(data) for data, _ in rows)
    manifest = json.loads((result.path / "manifest.json").read_text())
    records = sum(shard["byte_len"] for shard in manifest["shards"])
    expected = {
        "compression": (3000, payload),
        "disk_write": (3000, records),
        "finish_index": (1, 0),
        "finish_manifest": (1, 0),
        "finish_metadata": (1, 0),
        "metadata_validate": (3000, 0),
        "publish": (1, 0),
        "python_extract": (3000, payload),
        "python_next": (3001, 0),
        "record_encode": (3000, records),
    }
    assert {name: (stages[name]["calls"], stages[name]["bytes"]) for name in expected} == expected
    assert stages["ingress_wait"]["bytes"] == stages["shard_flush"]["bytes"] == 0
    if subject.IS_OURS:
        assert stages["shard_flush"]["calls"] == len(manifest["shards"]) > 2


@pytest.mark.ours
@pytest.mark.parametrize(("algo", "compresses"), [("none", False), ("lz4", True), ("zstd", True)])
def test_stages_of_ours_are_there_and_only_what_compresses_takes_time_for_it(
    base: Path, path: Path, algo: str, compresses: bool
) -> None:
    write(base, ListSource("a", big_rows(20, 40_000)), path, algo=algo)
    stages = profiles.load_written(path)["a"]
    assert set(stages) == profiles.CALLING | profiles.POOLED
    assert stages["shard_hash"]["bytes"] == stages["disk_write"]["bytes"] > 0
    assert stages["finish_wait"]["calls"] == stages["finish_checksums"]["calls"] == 1
    assert (stages["compression"]["total_ns"] > 0) is compresses


@pytest.mark.ours
def test_sources_are_in_their_order_and_those_that_were_not_pulled_from_are_left_out(base: Path, path: Path) -> None:
    subject.write(base, "occupied", ten_rows())
    failing = ListSource("failing", pausing([*mini(3), "no sample"], 0))
    sources = [ListSource("z", ten_rows(7)), ListSource("occupied", ten_rows()), failing, ListSource("a", ten_rows(5))]
    kinds = [isinstance(result, drt.CacheWriteSuccess) for result in write(base, sources, path)]
    assert kinds == [True, False, False, True]
    stages = profiles.load_written(path)
    assert list(stages) == ["z", "failing", "a"]
    assert [source["python_next"]["calls"] for source in stages.values()] == [8, 4, 6]
    assert "publish" not in stages["failing"]


def test_reused_caches_are_left_out(base: Path, path: Path) -> None:
    subject.write(base, "a", ten_rows())
    config = subject.writer_config(profiler=profiler(path))
    outcome = subject.runtime().from_cache_sources(
        [ListSource("a", ten_rows()), ListSource("b", ten_rows(5))],
        base,
        reader_config=subject.reader_config(),
        writer_config=config,
    )
    assert len(outcome.dataset) == 15
    assert list(profiles.load_written(path)) == ["b"]
    subject.runtime().from_cache_sources(
        ListSource("a", ten_rows()), base, reader_config=subject.reader_config(), writer_config=config
    )
    assert profiles.load_written(path) == {}


def test_no_sources_are_a_profile_without_any(base: Path, path: Path) -> None:
    assert write(base, [], path) == []
    assert profiles.load_written(path) == {}


def test_a_slow_source_is_seen_in_the_time_of_its_iterator(base: Path, path: Path) -> None:
    write(base, [ListSource("slow", pausing(ten_rows(), 0.01)), ListSource("quick", ten_rows())], path)
    stages = profiles.load_written(path)
    slow = stages["slow"]
    assert slow["python_next"]["total_ns"] > 10 * slow["python_extract"]["total_ns"]
    assert slow["python_next"]["total_ns"] > 10 * stages["quick"]["python_next"]["total_ns"]
    assert slow["python_next"]["total_ns"] >= 10 * 0.01e9


@pytest.mark.ours
@pytest.mark.parametrize("num_workers", [1, 3])
def test_stages_add_up_to_no_more_than_the_threads_had(base: Path, path: Path, num_workers: int) -> None:
    write(base, [ListSource("a", mini(5000)), ListSource("b", big_rows(50, 50_000))], path, num_workers=num_workers, algo="lz4")
    elapsed = profiles.load(path)["elapsed_ns"]
    stages = profiles.load_written(path).values()
    calling = sum(profiles.total(source, profiles.CALLING) for source in stages)
    pooled = sum(profiles.total(source, profiles.POOLED) for source in stages)
    assert 0 < calling <= elapsed
    assert 0 < pooled <= num_workers * elapsed
    # What the caller's thread does is measured without large gaps.
    assert calling > elapsed / 4


@pytest.mark.ours
def test_the_caches_are_those_of_a_write_without_a_profile(base: Path, path: Path) -> None:
    rows = mini(2000)
    (with_profile,) = write(base / "with", ListSource("a", rows), path, algo="lz4", max_shard_bytes=10_000)
    (without,) = subject.write_results(base / "without", ListSource("a", rows), algo="lz4", max_shard_bytes=10_000)
    files = sorted(file.relative_to(without.path) for file in without.path.rglob("*") if file.is_file())
    assert files == sorted(file.relative_to(with_profile.path) for file in with_profile.path.rglob("*") if file.is_file())
    assert all((without.path / file).read_bytes() == (with_profile.path / file).read_bytes() for file in files)


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_the_public_package_counts_the_same(oracle: Any, base: Path, tmp_path: Path, algo: str) -> None:
    described = [
        {"name": "tame", "maker": "tame_rows", "args": {"n": 3000}},
        {"name": "big", "maker": "big_rows", "args": {"n": 5, "size": 20_000}},
        {"name": "none", "maker": "mini", "args": {"n": 0}},
    ]
    options: dict[str, Any] = {"algo": algo, "max_shard_bytes": 50_000}
    theirs_path, ours_path = tmp_path / "theirs.json", tmp_path / "ours.json"
    oracle("write", base=str(base / "theirs"), sources=described, profile=str(theirs_path), **options)
    write(base / "ours", [subject.sources.build(source) for source in described], ours_path, **options)
    theirs, ours = profiles.load_written(theirs_path), profiles.load_written(ours_path)
    assert list(ours) == ["tame", "big", "none"] and set(theirs) == set(ours)  # theirs are sorted by name
    for name, stages in theirs.items():
        assert set(stages) <= set(ours[name])
        for stage, counted in stages.items():
            assert ours[name][stage]["bytes"] == counted["bytes"] or (algo == "lz4" and stage in {"disk_write", "record_encode"})
            # Waits are per block here and per sample there; flushes are per shard here, and of the last one there.
            if stage not in {"ingress_wait", "shard_flush"}:
                assert ours[name][stage]["calls"] == counted["calls"], (name, stage)


# when it is written -----------------------------------------------------------------------------------------------------------


def test_nothing_is_written_unless_it_is_asked_for(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    subject.write_results(base, ListSource("a", ten_rows()), profiler=drt.WriterProfilerConfig())
    assert [entry.name for entry in tmp_path.iterdir()] == [base.name]
    subject.write_results(base, ListSource("b", ten_rows()), profiler=drt.WriterProfilerConfig(enabled=True))
    assert list(profiles.load_written(tmp_path / "dataset_rt_profile.json")) == ["b"]


def test_an_interrupt_leaves_a_profile_of_what_was_done(base: Path, path: Path) -> None:
    sources = [ListSource("done", ten_rows()), ListSource("running", interrupted(mini(4))), ListSource("later", ten_rows())]
    with pytest.raises(KeyboardInterrupt):
        write(base, sources, path)
    stages = profiles.load_written(path)
    assert list(stages) == ["done", "running"]
    assert stages["running"]["python_next"]["calls"] == 5


@pytest.mark.ours
def test_a_real_interrupt_leaves_a_profile(base: Path, path: Path) -> None:
    script = """
import os, signal
from pathlib import Path
from support import drt, process_sources
source = process_sources.Acting("a", signal.raise_signal, signal.SIGINT)
config = drt.writer_config(profiler={"enabled": True, "path": ARGS["path"]})
try:
    drt.runtime().write_cache(source, ARGS["base"], writer_config=config)
except KeyboardInterrupt:
    report("interrupted")
"""
    assert run_script(script, {"base": str(base), "path": str(path)}) == "interrupted"
    assert profiles.load_written(path)["a"]["python_extract"]["calls"] == 3


def test_an_earlier_profile_is_replaced(base: Path, path: Path) -> None:
    for name in ("a", "b"):
        write(base, ListSource(name, ten_rows()), path)
        assert list(profiles.load_written(path)) == [name]
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


@pytest.mark.ours
def test_a_link_to_a_profile_stays_a_link(base: Path, tmp_path: Path) -> None:
    link, target = tmp_path / "link.json", tmp_path / "elsewhere" / "target.json"
    link.symlink_to(target)
    write(base, ListSource("a", ten_rows()), link)
    assert link.is_symlink() and list(profiles.load_written(target)) == ["a"]


@pytest.mark.ours
def test_a_relative_path_is_that_of_the_beginning(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def rows() -> Iterator[Any]:
        yield from ten_rows()
        os.chdir(base)

    write(base.resolve(), ListSource("a", rows()), Path("profile.json"))
    assert list(profiles.load_written(tmp_path / "profile.json")) == ["a"]


# a path that cannot be written ------------------------------------------------------------------------------------------------


@pytest.mark.ours
@pytest.mark.parametrize("place", ["folder", "below a file", "pipe", "name too long", "NUL"])
def test_a_path_that_cannot_be_written_is_refused_before_anything_is_pulled(base: Path, tmp_path: Path, place: str) -> None:
    bad = tmp_path / "bad"
    match place:
        case "folder":
            bad.mkdir()
        case "below a file":
            bad.write_text("kept")
            bad = bad / "profile.json"
        case "pipe":
            os.mkfifo(bad)
        case "name too long":
            bad = bad / ("x" * 300)
        case _:
            bad = bad / "x\0y"
    source = CountingSource("a", ten_rows())
    with pytest.raises(drt.StorageError, match="the profile cannot be written") as caught:
        write(base, source, bad)
    assert isinstance(caught.value, (OSError, RuntimeError)) and caught.value.path == str(bad)
    assert source.pulled == 0 and list(base.iterdir()) == []


def lose_the_folder(path: Path) -> None:
    """Put a file where the profile's folder was."""
    shutil.rmtree(path.parent)
    path.parent.write_text("in the way")


@pytest.mark.ours
@pytest.mark.parametrize("num_processes", [0, 1])
def test_results_are_returned_though_the_profile_cannot_be_written(base: Path, path: Path, num_processes: int) -> None:
    source = Acting("a", lose_the_folder, path)
    with pytest.warns(RuntimeWarning, match="the profile cannot be written") as caught:
        results = write(base, source, path, num_processes=num_processes)
    assert results == [drt.CacheWriteSuccess("a", base / "a")]
    assert subject.ids(subject.open_dataset(base / "a")) == list(range(10))
    assert caught[0].filename.endswith("drt.py"), "the warning points to the call"


@pytest.mark.ours
def test_an_interrupt_is_not_replaced_by_a_profile_that_cannot_be_written(base: Path, path: Path) -> None:
    def rows() -> Iterator[Any]:
        lose_the_folder(path)
        yield from interrupted(mini(2))

    with pytest.raises(KeyboardInterrupt) as caught:
        write(base, ListSource("a", rows()), path)
    assert any("the profile cannot be written" in note for note in caught.value.__notes__)


# processes --------------------------------------------------------------------------------------------------------------------


@pytest.mark.ours
def test_the_profiles_of_processes_are_one_file(base: Path, tmp_path: Path, path: Path) -> None:
    sources = [
        Acting("z", doing.announce_and_wait_for, tmp_path, "z.pid", "a.pid", n=2000),
        Acting("failing", doing.fail, ValueError("no"), n=9, at=5),
        Acting("a", doing.announce_and_wait_for, tmp_path, "a.pid", "z.pid", n=30),
    ]
    results = write(base, sources, path, num_processes=3, num_workers=1)
    assert [isinstance(result, drt.CacheWriteSuccess) for result in results] == [True, False, True]
    assert {(tmp_path / name).read_text() for name in ("a.pid", "z.pid")}.isdisjoint({str(os.getpid())})
    stages = profiles.load_written(path)
    assert [(name, source["python_next"]["calls"]) for name, source in stages.items()] == [("z", 2001), ("failing", 6), ("a", 31)]
    assert set(stages["a"]) == profiles.CALLING | profiles.POOLED
    elapsed = profiles.load(path)["elapsed_ns"]
    assert all(profiles.total(source, profiles.CALLING) <= elapsed for source in stages.values())


@pytest.mark.ours
def test_a_process_that_died_is_left_out_of_the_profile(base: Path, path: Path) -> None:
    results = write(base, [Acting("dying", os._exit, 3), Acting("a")], path, num_processes=2, num_workers=1)
    assert [isinstance(result, drt.CacheWriteSuccess) for result in results] == [False, True]
    assert list(profiles.load_written(path)) == ["a"]


@pytest.mark.ours
def test_a_call_that_is_left_keeps_the_profiles_of_its_processes(base: Path, tmp_path: Path, path: Path) -> None:
    sources = [
        Acting("running", doing.announce_and_sleep, tmp_path, "running.pid"),
        Acting("leaving", doing.wait_and_fail, tmp_path / "running.pid", SystemExit(3)),
    ]
    with pytest.raises(SystemExit):
        write(base, sources, path, num_processes=2, num_workers=1)
    stages = profiles.load_written(path)
    assert [(name, source["python_next"]["calls"]) for name, source in stages.items()] == [("running", 4), ("leaving", 4)]
