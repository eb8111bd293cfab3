"""The profile of a dataset: what is in it, when it is written, and that it changes nothing about the samples."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import dataset_rt as drt
import pytest
from support import drt as subject
from support import profiles
from support.child import run_script
from support.damage import flip, place
from support.sources import CountingSource, ListSource, big_rows, mini, ten_rows

pytestmark = [pytest.mark.quick, pytest.mark.ours]

#: Stages of reading that run on the consumer's thread when everything is mapped and uncompressed.
DIRECT = {"consumer", "draw", "object_building", "page_in", "waiting"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "new" / "folders" / "profile.json"


def reader_config(path: Path, **options: Any) -> Any:
    return drt.ReaderConfig(seed=0, profiler=drt.ReaderProfilerConfig(enabled=True, path=path), **options)


def open_profiled(cache: Path, path: Path, *, shuffle: bool = False, **options: Any) -> Any:
    return subject.runtime().cached_dataset([cache], reader_config=reader_config(path, shuffle=shuffle, **options))


# what is in it ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("io", subject.IO_MODES)
@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_stages_count_samples_and_bytes(base: Path, path: Path, algo: str, io: str) -> None:
    rows = mini(500)
    cache = subject.write(base, "a", rows, algo=algo)
    assert len(list(open_profiled(cache, path, io=io))) == 500
    iterators, stages = profiles.load_read(path)
    assert iterators == 1
    payload = sum(len(data) for data, _ in rows)
    # The last sample is followed by a request as well.
    assert {name: stages[name]["calls"] for name in ("draw", "page_in", "object_building", "consumer")} == {
        "draw": 500, "page_in": 500, "object_building": 500, "consumer": 500,
    }  # fmt: skip
    assert stages["object_building"]["bytes"] == payload
    assert stages["decode"]["calls"] == 500, "each record is checked when it is first read"
    assert ("waiting" in stages) is (algo != "none" or io == "pread")


def test_records_that_were_checked_are_not_decoded_again(base: Path, path: Path) -> None:
    cache = subject.write(base, "a", mini(300))
    dataset = open_profiled(cache, path)
    list(dataset)
    list(dataset)
    iterators, stages = profiles.load_read(path)
    assert iterators == 2
    assert stages["decode"]["calls"] == 300 and stages["object_building"]["calls"] == 600


@pytest.mark.parametrize("size", [5_000, 50_000])
def test_payloads_that_are_copied_ahead_are_counted_so(base: Path, path: Path, size: int) -> None:
    cache = subject.write(base, "a", big_rows(100, size))
    list(open_profiled(cache, path))
    _, stages = profiles.load_read(path)
    assert 0 < stages["copy_ahead"]["calls"] < 100
    assert stages["copy_ahead"]["bytes"] == stages["copy_ahead"]["calls"] * size
    assert stages["object_building"]["bytes"] == 100 * size


def test_a_slow_consumer_is_seen_as_one(base: Path, path: Path) -> None:
    cache = subject.write(base, "a", ten_rows())
    for _sample in open_profiled(cache, path):
        time.sleep(0.005)
    _, stages = profiles.load_read(path)
    others = sum(stage["total_ns"] for name, stage in stages.items() if name != "consumer")
    assert stages["consumer"]["total_ns"] >= 10 * 0.005e9
    assert stages["consumer"]["total_ns"] > 3 * others


@pytest.mark.parametrize("algo", ["none", "lz4"])
def test_stages_add_up_to_no_more_than_the_threads_had(base: Path, path: Path, algo: str) -> None:
    cache = subject.write(base, "a", mini(3000), algo=algo)
    list(open_profiled(cache, path, shuffle=True))
    elapsed = profiles.load(path)["elapsed_ns"]
    _, stages = profiles.load_read(path)
    on_the_consumers_thread = DIRECT | {"decode"} if algo == "none" else {"consumer", "object_building", "waiting"}
    assert elapsed / 4 < profiles.total(stages, on_the_consumers_thread) <= elapsed
    assert profiles.total(stages, {"draw", "page_in", "decode"}) <= 3 * elapsed


def test_samples_and_iterators_are_what_they_are_without_a_profile(base: Path, path: Path) -> None:
    cache = subject.write(base, "a", mini(300))
    plain = subject.runtime().cached_dataset([cache], reader_config=drt.ReaderConfig(seed=0))
    profiled = open_profiled(cache, path, shuffle=True)
    assert list(plain) == list(profiled) and list(plain) == list(profiled)
    with iter(profiled) as samples:
        assert iter(samples) is samples
        assert next(samples) == next(iter(plain))
        assert samples.__length_hint__() == 299
        with pytest.raises(TypeError):
            pickle.dumps(samples)
    assert list(samples) == []


# when it is written -----------------------------------------------------------------------------------------------------------


def exhaust(samples: Any) -> None:
    list(samples)


def close(samples: Any) -> None:
    next(samples)
    samples.close()
    samples.close()


def leave(samples: Any) -> None:
    with samples:
        next(samples)


def drop(samples: Any) -> None:
    next(samples)


@pytest.mark.parametrize("end", [exhaust, close, leave, drop])
def test_it_is_written_whenever_an_iterator_ends(base: Path, path: Path, end: Any) -> None:
    dataset = open_profiled(subject.write(base, "a", ten_rows()), path)
    for count in (1, 2):
        samples = iter(dataset)
        end(samples)
        del samples
        gc.collect()
        iterators, stages = profiles.load_read(path)
        assert iterators == count
        assert stages["object_building"]["calls"] == count * (10 if end is exhaust else 1)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_it_is_written_when_a_sample_cannot_be_read(base: Path, path: Path) -> None:
    cache = subject.write(base, "a", ten_rows())
    shard, offset, length = place(cache, 9)
    flip(shard, offset + length - 1)
    dataset = open_profiled(cache, path)
    with pytest.raises(drt.CorruptCacheError):
        list(dataset)
    _, stages = profiles.load_read(path)
    assert stages["object_building"]["calls"] == 9


def test_it_is_written_when_a_dataset_is_closed_or_collected(base: Path, path: Path) -> None:
    cache = subject.write(base, "a", ten_rows())
    with open_profiled(cache, path) as dataset:
        samples = iter(dataset)
        next(samples)
        assert not path.exists()
    assert profiles.load_read(path)[1]["object_building"]["calls"] == 1
    list(samples)
    assert profiles.load_read(path)[1]["object_building"]["calls"] == 10
    path.unlink()
    other = open_profiled(cache, path)
    del other
    gc.collect()
    assert profiles.load_read(path) == (0, {})


@pytest.mark.parametrize("alone", [False, True])
def test_it_is_written_at_the_end_of_the_program(base: Path, path: Path, alone: bool) -> None:
    cache = subject.write(base, "a", ten_rows())
    script = """
from support import drt
config = drt.api.ReaderConfig(seed=0, profiler={"enabled": True, "path": ARGS["path"]})
dataset = drt.runtime().cached_dataset([ARGS["cache"]], reader_config=config)
samples = iter(dataset)
if ARGS["alone"]:
    del dataset
next(samples)
report("left alive")
"""
    assert run_script(script, {"cache": str(cache), "path": str(path), "alone": alone}) == "left alive"
    assert profiles.load_read(path)[1]["object_building"]["calls"] == 1


def test_nothing_is_written_unless_it_is_asked_for(base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = subject.write(base, "a", ten_rows())
    monkeypatch.chdir(tmp_path)
    with subject.open_dataset(cache) as dataset:
        list(dataset)
    assert [entry.name for entry in tmp_path.iterdir()] == [base.name]
    config = drt.ReaderConfig(seed=0, profiler=drt.ReaderProfilerConfig(enabled=True))
    list(subject.runtime().cached_dataset([cache], reader_config=config))
    assert profiles.load_read(tmp_path / "dataset_rt_read_profile.json")[0] == 1


def test_threads_that_share_an_iterator_share_its_profile(base: Path, path: Path) -> None:
    samples = iter(open_profiled(subject.write(base, "a", mini(2000)), path))
    taken: list[list[int]] = [[], []]
    threads = [threading.Thread(target=lambda mine=mine: mine.extend(subject.ids(samples))) for mine in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(taken[0] + taken[1]) == list(range(2000))
    assert profiles.load_read(path)[1]["object_building"]["calls"] == 2000


def test_a_forked_child_leaves_its_parents_profile_alone(base: Path, path: Path) -> None:
    dataset = open_profiled(subject.write(base, "a", ten_rows()), path)
    samples = iter(dataset)
    next(samples)
    child = os.fork()
    if child == 0:
        list(samples)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert not path.exists()
    list(samples)
    assert profiles.load_read(path)[1]["object_building"]["calls"] == 10


# a path that cannot be written, and exports -----------------------------------------------------------------------------------


def test_a_path_that_cannot_be_written_opens_nothing(base: Path, tmp_path: Path) -> None:
    cache = subject.write(base, "a", ten_rows())
    with pytest.raises(drt.StorageError, match="the profile cannot be written") as caught:
        open_profiled(cache, tmp_path)
    assert caught.value.path == str(tmp_path)
    source = CountingSource("b", ten_rows())
    with pytest.raises(drt.StorageError, match="the profile cannot be written"):
        subject.runtime().from_cache_sources(
            source, base, reader_config=reader_config(tmp_path), writer_config=subject.writer_config()
        )
    assert source.pulled == 0 and not (base / "b").exists()


def test_samples_come_though_the_profile_cannot_be_written(base: Path, path: Path) -> None:
    dataset = open_profiled(subject.write(base, "a", ten_rows()), path)
    shutil.rmtree(path.parent)
    path.parent.write_text("in the way")
    with pytest.warns(RuntimeWarning, match="the profile cannot be written"):
        assert subject.ids(dataset) == list(range(10))
    path.parent.unlink()
    dataset.close()
    assert profiles.load_read(path)[0] == 1


def test_an_export_does_not_keep_the_profiler(base: Path, tmp_path: Path, path: Path) -> None:
    dataset = open_profiled(subject.write(base, "a", ten_rows()), path)
    folder = tmp_path / "export"
    folder.mkdir()
    restored = drt.CachedDataset.from_config(dataset.dump_config(folder))
    assert all("profile" not in file.read_text() for file in folder.glob("*.json"))
    assert restored.reader_config == drt.ReaderConfig(seed=0, shuffle=False)
    assert restored.reader_config.profiler == drt.ReaderProfilerConfig()
    assert dataset.reader_config.profiler.enabled


def test_a_dataset_may_come_from_sources(base: Path, path: Path) -> None:
    outcome = subject.runtime().from_cache_sources(
        ListSource("a", ten_rows()), base, reader_config=reader_config(path, shuffle=False), writer_config=subject.writer_config()
    )
    assert subject.ids(outcome.dataset) == list(range(10))
    assert profiles.load_read(path)[0] == 1
